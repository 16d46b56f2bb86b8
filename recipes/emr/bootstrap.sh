#!/bin/sh
# bootstrap action: an environment of our own on every node; Spark and Delta stay those of the release
set -eu
aws s3 cp s3://BUCKET/dedup/dedup_nb-0.2.0-py3-none-any.whl /tmp/
sudo python3.11 -m venv /opt/dedup
sudo /opt/dedup/bin/pip install '/tmp/dedup_nb-0.2.0-py3-none-any.whl[aws]' 'pandas<3'

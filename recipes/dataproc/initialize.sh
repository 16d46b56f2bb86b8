#!/bin/sh
# initialization action: an environment of our own on every node; Spark stays that of the image
set -eu
gsutil cp gs://BUCKET/dedup/dedup_nb-0.2.0-py3-none-any.whl /tmp/
python3 -m venv /opt/dedup
/opt/dedup/bin/pip install /tmp/dedup_nb-0.2.0-py3-none-any.whl 'pandas<3'

"""A session that refuses what serverless compute of Databricks refuses, by its documents.

Simulated: nobody here could try Databricks itself.
"""

import json
import os
import re
import subprocess
import sys

import pytest
from conftest import ROOT
from runs import STAYED
from spread import SHORT_LIVED, kill_group

from dedup_nb.base.spark import setting_of
from dedup_nb.base.storage import absolute, canonical, is_inside


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    "What a driver of its own found there."
    pytest.importorskip("grpc", reason="Spark Connect needs grpc: pip install 'pyspark[connect]'")
    folder = tmp_path_factory.mktemp("serverless")
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "JAVA_TOOL_OPTIONS": SHORT_LIVED}
    with open(folder / "driver.log", "wb") as log:
        command = [sys.executable, str(ROOT / "tests/programs/serverless.py"), str(folder)]
        driver = subprocess.Popen(command, stdout=log, stderr=log, env=env, start_new_session=True)
        try:
            driver.wait(400)
        finally:
            kill_group(driver)
    assert driver.returncode == 0, (folder / "driver.log").read_text(errors="replace")[-3000:]
    return json.loads((folder / "found.json").read_text())


def rows(kept):
    return {batch: [tuple(row) for row in rows] for batch, rows in kept.items()}


@pytest.mark.slow
def test_batches_run_and_run_again(found):
    assert rows(found["lake"]) == rows(found["again"]) == STAYED and found["none"] == 3
    assert "wide events cost up to twice as much in this session" in "".join(found["notes"])


@pytest.mark.slow
def test_the_session_that_is_there_is_taken_and_the_command_returns(found):
    assert found["same session"] and found["command"] is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "what, words",
    [
        (
            "s3",
            "AccessError: s3://bucket.* without AWS credentials.*On Databricks only .* use a volume",
        ),
        ("dynamodb", "ConfigError: manifest=dynamodb: on serverless .* Use manifest=lake"),
        ("stream", "ConfigError: A stream needs a classic session: .* `dedup run` on a schedule"),
        ("deduper", "ConfigError: A Deduper keeps the rows between its steps"),
        ("dbfs", "InputError: dbfs:/clean.*: Python finds no /dbfs .*/Volumes/catalog/schema/volume"),
    ],
)
def test_what_cannot_be_is_refused_in_words(found, what, words):
    assert re.match(words, found["refused"][what] or "nothing was said"), found["refused"][what]


@pytest.mark.slow
def test_a_table_is_repaired_as_a_whole(found):
    assert found["moved"] == [1, 2, 5] and found["renamed"] == [1, 2, 4, 5]


def test_a_setting_that_nobody_may_read_has_its_default():
    class Refusing:
        class conf:
            @staticmethod
            def get(*asked):
                raise RuntimeError("[CONFIG_NOT_AVAILABLE]")

    assert (setting_of(Refusing, "spark.x"), setting_of(Refusing, "spark.x", "y")) == ("", "y")


def test_a_volume_has_one_spelling():
    spelled = ["/Volumes/c/s/v/x", "dbfs:/Volumes/c/s/v/x", "/dbfs/Volumes/c/s/v/x"]
    assert {absolute(p) for p in spelled} == {canonical(p) for p in spelled} == {"/Volumes/c/s/v/x"}
    assert is_inside("dbfs:/Volumes/c/s/v/x", "/Volumes/c/s/v")

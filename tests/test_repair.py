"""A loaded table is repaired by the rules of `deduplicate`, in place, and nothing is lost on the way."""

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import functions as F
from runs import silent

from dedup_nb import deduplicate
from dedup_nb.deltas import Delta
from dedup_nb.errors import (
    BusyError,
    ConfigError,
    FormatError,
    InputError,
    MissingColumnError,
    MissingInputError,
)
from dedup_nb.repair import repair

SCHEMA = "event_id string, event_fingerprint string, day int, n int"
EIGHT = [
    ("a", "f", 1, 1),
    ("a", "f", 2, 2),
    ("b", "f", 1, 3),
    ("b", "g", 2, 4),
    ("c", "f", 1, 5),
    ("c", "f", 1, 5),
    ("c", "f", 1, 5),
    (None, "f", 1, 8),
]
LEFT = [(2, "natural", "a"), (4, "synthetic", None), (5, "natural", "c"), (5, "natural", "c")]


def frame(spark, rows):
    events = spark.createDataFrame(rows, SCHEMA)
    day = F.expr("timestamp'2026-11-01 00:00:00Z' + make_interval(0, 0, 0, day - 1)")
    return events.withColumn("etl_tstamp", day).drop("day")


def made(spark, folder, rows=EIGHT, **options):
    "A Delta table; its path."
    frame(spark, rows).coalesce(1).write.format("delta").options(**options).save(f"{folder}/events")
    return f"{folder}/events"


def go(spark, path, *args, **more):
    return repair(path, *args, spark=spark, say=silent, **more)


def numbers(spark, path):
    return sorted(r.n for r in spark.read.format("delta").load(path).collect())


def left(spark, path):
    rows = spark.read.format("delta").load(path).select("n", "dedup.reason", "dedup.kept_event_id").collect()
    return sorted(map(tuple, rows))


def test_eight_rows_by_path(spark, tmp_path):
    path = made(spark, tmp_path)
    told = go(spark, path, mode="decide")
    assert not (tmp_path / "duplicated_events").exists() and Delta(spark, path).version() == 0
    assert (told.data["reasons"], told.data["files"]) == ({"natural": 3, "synthetic": 1}, 1)
    assert len(told.data["samples"]) == 4
    done = go(spark, path)
    assert done.counts == told.counts == dict(before=8, without_id=1, left=4, renamed=0, after=4)
    assert numbers(spark, path) == [1, 3, 5, 8] and left(spark, f"{tmp_path}/duplicated_events") == LEFT
    # a second time nothing is left to do, and nothing is written
    assert go(spark, path).counts["left"] == 0 and Delta(spark, path).version() == 1
    for statement in done.data["undo"]:
        spark.sql(statement)
    assert numbers(spark, path) == [1, 2, 3, 4, 5, 5, 5, 8]

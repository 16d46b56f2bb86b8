"""What tests of whole runs share: small batches, a quiet run, and what it left."""

import json
import logging
import os
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import ROOT
from pyspark.sql import functions as F

from dedup_nb import Config, run
from dedup_nb.pipeline.job import RunOptions, existing_manifest, memory_of

SAMPLES = ROOT / "data_samples"
SCHEMA = "event_id string, event_fingerprint string, t int, n int"
DAY = 86400
# id, fingerprint, second, n
TWO = {"1": [("a", "f", 1, 1), ("b", "f", 1, 2)], "2": [("a", "f", 2, 3), ("a", "g", 2, 4), ("c", "f", 2, 5)]}
# a is kept, copied, copied in the next batch and renamed there; one row is bad
WITH_COPIES = {**TWO, "1": [*TWO["1"], ("a", "f", 3, 9), (None, "f", 4, 8)]}
TWO_DAYS = {
    "2026-11-18": [("a", "f", 1, 1), ("a", "f", 2, 2), ("b", "f", 1, 3)],
    "2026-11-19": [("a", "f", 3, 4), ("a", "g", 4, 5)],
}
STAYED = {"1": [("a", 1), ("b", 2)], "2": [("c", 5), ("new of a", 4)]}


class _Listener(logging.Handler):
    def __init__(self, tell):
        super().__init__()
        self.tell = tell

    def emit(self, record):
        self.tell(record.getMessage())


@contextmanager
def heard(tell=None):
    "Give each line that the package logs meanwhile to a function, else to the list that is yielded."
    log, lines = logging.getLogger("dedup_nb"), []
    listener, before = _Listener(tell or lines.append), log.level
    log.addHandler(listener)
    log.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        log.removeHandler(listener)
        log.setLevel(before)


def write(spark, folder, batches, first=1_763_000_000):
    "Write batches of literal rows as Parquet folders."
    for name, rows in batches.items():
        frame = spark.createDataFrame(rows, SCHEMA)
        frame = frame.withColumn("etl_tstamp", F.timestamp_seconds(F.lit(first) + F.col("t")))
        frame = frame.select("event_id", "event_fingerprint", "etl_tstamp", "n").coalesce(1)
        frame.write.mode("append").parquet(f"{folder}/run={name}")


def config(folder, **more):
    plain = {"input": str(folder / "in"), "output": str(folder / "out"), "input_format": "parquet"}
    return Config(**{**plain, **more})


def go(spark, folder, *, force=False, late_files=False, accept_empty_manifest=False, **more):
    options = RunOptions(force, late_files, accept_empty_manifest)
    return run(config(folder, **more), spark, options)


def record(output, batch):
    return json.loads(Path(output, "runs", batch, "files.json").read_text())


def committed(spark, output, batch, area="events"):
    "The rows of the files that a commit lists; None where it lists none."
    listed = [str(Path(output, f["path"])) for f in record(output, batch)[area]]
    return spark.read.parquet(*listed) if listed else None


def shown(spark, output, batch):
    "The kept rows of a batch: the id, or whose new id it is, and n."
    rows = committed(spark, output, batch)
    named = [(r.event_id, r.original_event_id, r.n) for r in rows.collect()] if rows else []
    return sorted((own if came is None else f"new of {came}", n) for own, came, n in named)


def stayed(spark, folder):
    return {batch: shown(spark, folder / "out", batch) for batch in STAYED}


def files(folder):
    "The files below a folder that readers see: no name starts with a dot or an underscore."
    paths = (p for p in Path(folder).rglob("*") if p.is_file() and p.name[0] not in "._")
    return sorted(str(p.relative_to(folder)) for p in paths)


def counted_rows(frame):
    return Counter(tuple(map(str, r)) for r in frame.select(sorted(frame.columns)).collect())


def on_dynamodb(address, name):
    "The settings of a manifest on DynamoDB, in a table of its own."
    table = f"{name}_{os.getpid()}_{time.monotonic_ns()}"
    return dict(manifest="dynamodb", dynamodb_table=table, dynamodb_endpoint=address, create_table=True)


class Killed(BaseException):
    "As if the process ended there."


def die_after(monkeypatch, where, name):
    "Let a function of a module or class be the last thing that is done."
    real = getattr(where, name)

    def die(*given):
        real(*given)
        raise Killed

    monkeypatch.setattr(where, name, die)


def killed_erasure(spark, config, after, **asked):
    "An erasure that dies right after a step."
    import dedup_nb.operate.erase

    with pytest.MonkeyPatch.context() as m:
        die_after(m, dedup_nb.operate.erase, after)
        with pytest.raises(Killed):
            dedup_nb.operate.erase.erase(config, spark, yes=True, **asked)


def notebooks(*patterns):
    return sorted(path for pattern in patterns for path in (ROOT / "nbs").glob(f"{pattern}.ipynb"))


def runs_through(path):
    "True if every cell of a notebook runs, in this process and its session; the error goes to stderr."
    from nbdev.test import test_nb

    return test_nb(path, basepath=ROOT)[0]


def manifest_of(spark, folder, **more):
    settings = config(folder, **more)
    return existing_manifest(spark, memory_of(settings), settings.output)


def change_input(folder, batch):
    "The file of a committed batch is another one now."
    with next((folder / f"in/run={batch}").glob("*.parquet")).open("ab") as file:
        file.write(b" ")


def states_in(spark, folder):
    return {name: e.state for name, e in manifest_of(spark, folder).ledger().entries.items()}

"""Run a job that dies, or halts, at a named point, Spark and all.

python killed_run.py POINT INPUT OUTPUT [SETTING=VALUE ...]
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession

from dedup_nb import Config, run
from dedup_nb.base import arrow
from dedup_nb.base.errors import DedupError
from dedup_nb.base.spark import get_spark
from dedup_nb.manifest.protocol import Manifest
from dedup_nb.pipeline import carry, commit
from dedup_nb.pipeline import run as pipeline

point, source, output, *more = sys.argv[1:]


def die(*_args, **_more):
    os.killpg(0, signal.SIGKILL)


def halt(*_args, **_more):
    os.kill(os.getpid(), signal.SIGSTOP)


def die_once_a_file_is_half_written():
    while not list(Path(output, ".staging").rglob("left_or_not_yet/*.parquet*")):
        time.sleep(0.002)
    die()


def before(place, name, then=die):
    "Die, or halt, where this function is about to be called."
    real = getattr(place, name)

    def first(*args, **more):
        then()
        return real(*args, **more)

    setattr(place, name, first)


def after(place, *names):
    "Die where the first of these functions has just returned."

    def replace(name):
        real = getattr(place, name)

        def then_die(*args, **more):
            real(*args, **more)
            die()

        setattr(place, name, then_die)

    for name in names:
        replace(name)


def in_the_pass(change):
    "Die, the driver and all, in a task that carries by Arrow, where `change` says so."
    driver, real = os.getpgid(0), carry._carry_parts
    carry.size_of_parts = lambda *_: 1000  # one part alone would be carried here

    def all_die(*_args, **_more):
        os.killpg(driver, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def carry_parts(*given, **more):  # workers do not know this module: they are sent the function itself
        change(all_die)
        return real(*given, **more)

    carry._carry_parts = carry_parts


def before_a_part_is_there(all_die):
    arrow.ParquetOnce._put = all_die


def after_a_part_is_there(all_die):
    real = arrow.ParquetOnce._put

    def put(self):
        real(self)
        all_die()

    arrow.ParquetOnce._put = put


POINTS = {
    "the batch is claimed": lambda: after(Manifest, "begin"),
    "dropped rows are written": lambda: after(pipeline, "write_by_arrow", "write_dropped"),
    "a file of events is half written": threading.Thread(
        target=die_once_a_file_is_half_written, daemon=True
    ).start,
    "a part is written, and not in its place": lambda: in_the_pass(before_a_part_is_there),
    "a part is in its place, and nothing else": lambda: in_the_pass(after_a_part_is_there),
    "metrics are written, nothing else is": lambda: before(commit, "_record_of"),
    "metrics are written, the commit is not": lambda: before(Manifest, "commit"),
    "the manifest has the commit, files.json is not written": lambda: before(commit, "publish"),
    "the commit is written, old files are not removed": lambda: before(commit, "remove_unlisted"),
    "halt before the commit": lambda: before(Manifest, "commit", halt),
    "halt when metrics are written": lambda: before(commit, "_record_of", halt),
}

if __name__ == "__main__":
    POINTS.get(point, lambda: None)()
    if point == "a session without Delta":  # one of somebody's own, which get_spark takes as it is
        SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    spark = get_spark(delta=True, addresses=[source, output])
    spark.sql("select 1").collect()
    print("ready", flush=True)
    settings = dict(word.split("=", 1) for word in more)
    try:
        run(Config(input=source, output=output, **{"input_format": "parquet", **settings}), spark)
    except DedupError as wrong:
        print(f"{type(wrong).__name__}: {wrong}", file=sys.stderr)
        sys.exit(wrong.exit_code)

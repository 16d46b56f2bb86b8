"""Run a job that dies, or halts, at a named point, Spark and all.

python killed_run.py POINT INPUT OUTPUT [SETTING=VALUE ...]
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path

from dedup_nb import Config, run
from dedup_nb.base.errors import DedupError
from dedup_nb.base.spark import get_spark
from dedup_nb.manifest.protocol import Manifest
from dedup_nb.pipeline import commit
from dedup_nb.pipeline import run as pipeline

point, source, output, *more = sys.argv[1:]


def die(*_args, **_more):
    os.killpg(0, signal.SIGKILL)


def halt(*_args, **_more):
    os.kill(os.getpid(), signal.SIGSTOP)


def die_once_a_file_is_half_written():
    while not list(Path(output, "events").rglob("_temporary/**/*.parquet")):
        time.sleep(0.002)
    die()


def before(place, name, then=die):
    "Die, or halt, where this function is about to be called."
    real = getattr(place, name)

    def first(*args, **more):
        then()
        return real(*args, **more)

    setattr(place, name, first)


def after(place, name):
    "Die where this function has just returned."
    real = getattr(place, name)

    def then_die(*args, **more):
        real(*args, **more)
        die()

    setattr(place, name, then_die)


POINTS = {
    "the batch is claimed": lambda: after(Manifest, "begin"),
    "dropped rows are written": lambda: after(pipeline, "write_dropped"),
    "a file of events is half written": threading.Thread(
        target=die_once_a_file_is_half_written, daemon=True
    ).start,
    "metrics are written, the commit is not": lambda: before(Manifest, "commit"),
    "the manifest has the commit, files.json is not written": lambda: before(commit, "publish"),
    "the commit is written, old files are not removed": lambda: before(commit, "remove_unlisted"),
    "halt before the commit": lambda: before(Manifest, "commit", halt),
}

if __name__ == "__main__":
    POINTS.get(point, lambda: None)()
    spark = get_spark(delta=point != "a session without Delta", addresses=[source, output])
    spark.sql("select 1").collect()
    print("ready", flush=True)
    settings = dict(word.split("=", 1) for word in more)
    try:
        run(Config(input=source, output=output, **{"input_format": "parquet", **settings}), spark)
    except DedupError as wrong:
        print(f"{type(wrong).__name__}: {wrong}", file=sys.stderr)
        sys.exit(wrong.exit_code)

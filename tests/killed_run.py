"""Run a job that dies, or halts, at a named point, Spark and all: python killed_run.py POINT INPUT OUTPUT [SETTING=VALUE ...]."""
import os, signal, sys, threading, time
from pathlib import Path

point, source, output, *more = sys.argv[1:]


def die(*_args, **_more): os.killpg(0, signal.SIGKILL)


def halt(*_args, **_more): os.kill(os.getpid(), signal.SIGSTOP)


def die_once_a_file_is_half_written():
    while not list(Path(output, "events").rglob("_temporary/**/*.parquet")): time.sleep(0.002)
    die()


def before(module, name, then=die):
    "Die, or halt, where the pipeline is about to call this function."
    real = getattr(module, name)
    def first(*args, **more): then(); return real(*args, **more)
    setattr(module, name, first)


def after(module, name):
    "Die where this function has just returned."
    real = getattr(module, name)
    def then_die(*args, **more): real(*args, **more); die()
    setattr(module, name, then_die)


from dedup_nb import Config, manifest, pipeline, run
from dedup_nb.config import DedupError, get_spark

if point == "the batch is claimed": after(manifest.LakeManifest, "begin")
if point == "dropped rows are written": before(pipeline, "_write_events")
if point == "a file of events is half written": threading.Thread(target=die_once_a_file_is_half_written, daemon=True).start()
if point == "metrics are written, the commit is not": before(manifest.LakeManifest, "commit")
if point == "the manifest has the commit, files.json is not written": before(pipeline, "publish")
if point == "the commit is written, old files are not removed": before(pipeline, "remove_unlisted")
if point == "halt before the commit": before(manifest.LakeManifest, "commit", halt)
spark = get_spark(delta=point != "a session without Delta")
spark.sql("select 1").collect()
print("ready", flush=True)
try: run(Config(input=source, output=output, input_format="parquet", **dict(word.split("=", 1) for word in more)), spark)
except DedupError as wrong: sys.exit(f"{type(wrong).__name__}: {wrong}")

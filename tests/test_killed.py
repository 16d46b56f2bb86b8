"""kill -9 while a run writes, then run again: the same rows, nothing half listed, no claim left open."""
import json, os, subprocess, sys
from collections import Counter
from pathlib import Path
import pytest
from pyspark.sql import functions as F
from dedup_nb import Config, run
from dedup_nb.manifest import LakeManifest

POINTS = ["the batch is claimed", "a file of events is half written", "metrics are written, the commit is not",
          "the manifest has the commit, files.json is not written", "the commit is written, old files are not removed"]
AREAS = ("events", "dropped", "verdicts")


def listed(output): return json.loads(Path(output, "runs/2/files.json").read_text())


def content(spark, output, area):
    frame = spark.read.parquet(*[str(Path(output, f["path"])) for f in listed(output)[area]])
    return Counter(map(str, frame.collect()))


def again(spark, source, output, **more): return run(Config(input=source, output=output, input_format="parquet", **more), spark, say=lambda line: None)


@pytest.fixture(scope="module")
def source(spark, tmp_path_factory):
    "Two batches that share ids and pairs."
    path = str(tmp_path_factory.mktemp("killed") / "in")
    ids, prints = F.expr("if(id % 50 = 0, 'hot', concat('id', id div 2))"), F.expr("concat('f', id % 3)")
    wide = [F.sha2((F.col("id") * n).cast("string"), 512).alias(f"c{n}") for n in range(8)]
    for batch, rows in (("1", spark.range(1000)), ("2", spark.range(500, 3000))):
        rows.select(ids.alias("event_id"), prints.alias("event_fingerprint"), F.timestamp_seconds(F.col("id") % 100).alias("etl_tstamp"), *wide).repartition(2).write.parquet(f"{path}/run={batch}")
    return path


@pytest.fixture(scope="module")
def undisturbed(spark, source, tmp_path_factory):
    "What each kind of memory gives for the second batch."
    outputs = {kind: str(tmp_path_factory.mktemp("undisturbed")) for kind in ("lake", "none")}
    for kind, output in outputs.items(): again(spark, source, output, manifest=kind)
    return {kind: {area: content(spark, output, area) for area in AREAS} for kind, output in outputs.items()}


# the commit that was not published, and a run without a manifest; the others with --long
@pytest.mark.parametrize("point, kind", [*(pytest.param(point, "lake", marks=[pytest.mark.long] if i < len(POINTS) - 1 else []) for i, point in enumerate(POINTS)), ("dropped rows are written", "none")])
def test_a_killed_run_is_repaired_by_running_again(spark, source, undisturbed, tmp_path, point, kind):
    output = str(tmp_path / "out")
    again(spark, source, output, manifest=kind, until="1")
    done = subprocess.run([sys.executable, str(Path(__file__).with_name("killed_run.py")), point, source, output, "since=2", f"manifest={kind}"],
                          start_new_session=True, capture_output=True, text=True, timeout=120, env={**os.environ, "SPARK_MASTER": "local[2]"})
    assert done.returncode == -9, done.stderr[-2000:]
    assert Path(output, "runs/2/files.json").exists() == (point == POINTS[-1])
    summary = again(spark, source, output, manifest=kind, since="2")
    took_over = [note for m in summary.batches for note in m["notes"] if "took over the unfinished claim" in note]
    assert len(summary.batches) == (point not in POINTS[3:]) and len(took_over) == (point in POINTS[:3])
    assert {area: content(spark, output, area) for area in AREAS} == undisturbed[kind]
    on_disk = {str(p.relative_to(output)) for area in (*AREAS, "bad") for p in Path(output, area).rglob("*") if p.is_file() and not p.name.endswith(".crc") and "batch_id=2" in str(p)}
    assert on_disk == {f["path"] for area in (*AREAS, "bad") for f in listed(output)[area]}
    assert not list(Path(output, ".staging").rglob("*.parquet"))
    if kind == "lake": assert {e.batch_id: e.state for e in LakeManifest(spark, f"{output}/manifest").ledger()} == {"1": "committed", "2": "committed"}

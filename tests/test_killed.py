"""kill -9 while a run writes, then run again: the same rows, nothing half listed."""
import json, os, subprocess, sys
from collections import Counter
from pathlib import Path
import pytest
from pyspark.sql import functions as F
from dedup_nb import Config, run

POINTS = ["suspects are staged", "dropped rows are written", "a file of events is half written",
          "metrics are written, the commit is not", "the commit is written, old files are not removed"]


def listed(output): return json.loads(Path(output, "runs/in/files.json").read_text())


def content(spark, output, area):
    frame = spark.read.parquet(*[str(Path(output, f["path"])) for f in listed(output)[area]])
    return Counter(map(str, frame.collect()))


@pytest.fixture(scope="module")
def source(spark, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("killed") / "in")
    ids, prints = F.expr("if(id % 50 = 0, 'hot', concat('id', id div 2))"), F.expr("concat('f', id % 3)")
    wide = [F.sha2((F.col("id") * n).cast("string"), 512).alias(f"c{n}") for n in range(8)]
    spark.range(3000).select(ids.alias("event_id"), prints.alias("event_fingerprint"), F.timestamp_seconds(F.col("id") % 100).alias("etl_tstamp"), *wide).repartition(3).write.parquet(path)
    return path


@pytest.fixture(scope="module")
def undisturbed(spark, source, tmp_path_factory):
    output = str(tmp_path_factory.mktemp("undisturbed"))
    run(Config(input=source, output=output, input_format="parquet", manifest="none"), spark, say=lambda line: None)
    return {area: content(spark, output, area) for area in ("events", "dropped", "verdicts")}


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_run_is_repaired_by_running_again(spark, source, undisturbed, tmp_path, point):
    output = str(tmp_path / "out")
    done = subprocess.run([sys.executable, str(Path(__file__).with_name("killed_run.py")), point, source, output],
                          start_new_session=True, capture_output=True, text=True, timeout=120, env={**os.environ, "SPARK_MASTER": "local[2]"})
    assert done.returncode == -9, done.stderr[-2000:]
    committed = Path(output, "runs/in/files.json").exists()
    assert committed == (point == POINTS[-1])
    if committed: assert content(spark, output, "events") == undisturbed["events"]
    run(Config(input=source, output=output, input_format="parquet", manifest="none"), spark, say=lambda line: None)
    assert {area: content(spark, output, area) for area in undisturbed} == undisturbed
    on_disk = {str(p.relative_to(output)) for area in ("events", "dropped", "verdicts", "bad") for p in Path(output, area).rglob("*") if p.is_file() and not p.name.endswith(".crc")}
    assert on_disk == {f["path"] for area in ("events", "dropped", "verdicts", "bad") for f in listed(output)[area]}
    assert not list(Path(output, ".staging").rglob("*.parquet"))

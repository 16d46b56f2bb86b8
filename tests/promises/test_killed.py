"""kill -9 while a run writes, then run again: the same rows, nothing half listed, no claim left open."""

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from conftest import ROOT
from pyspark.sql import functions as F
from runs import committed, record

from dedup_nb import Config, run
from dedup_nb.manifest.lake import LakeStore
from dedup_nb.manifest.ledger import Ledger

POINTS = [
    "the batch is claimed",
    "a part is written, and not in its place",
    "a part is in its place, and nothing else",
    "a file of events is half written",
    "metrics are written, the commit is not",
    "the manifest has the commit, files.json is not written",
    "the commit is written, old files are not removed",
]
AREAS = ("events", "dropped", "verdicts")


def content(spark, output, area):
    return Counter(map(str, committed(spark, output, "2", area).collect()))


def run_again(spark, source_of_two, output, **more):
    return run(Config(input=source_of_two, output=output, input_format="parquet", **more), spark)


@pytest.fixture(scope="module")
def source_of_two(spark, tmp_path_factory):
    "Two batches that share ids and pairs."
    path = str(tmp_path_factory.mktemp("killed") / "in")
    ids, prints = F.expr("if(id % 50 = 0, 'hot', concat('id', id div 2))"), F.expr("concat('f', id % 3)")
    wide = [F.sha2((F.col("id") * n).cast("string"), 512).alias(f"c{n}") for n in range(8)]
    for batch, rows in (("1", spark.range(1000)), ("2", spark.range(500, 3000))):
        time = F.timestamp_seconds(F.col("id") % 100).alias("etl_tstamp")
        columns = ids.alias("event_id"), prints.alias("event_fingerprint"), time, *wide
        rows.select(*columns).repartition(2).write.parquet(f"{path}/run={batch}")
    return path


@pytest.fixture(scope="module")
def undisturbed(spark, source_of_two, tmp_path_factory):
    "With each kind of memory: an output with the first batch, and what the second one gives."
    found = {}

    def of(kind):
        if kind not in found:
            first, both = (str(tmp_path_factory.mktemp(f"{kind}_{n}")) for n in (1, 2))
            run_again(spark, source_of_two, first, manifest=kind, until="1")
            shutil.copytree(first, both, dirs_exist_ok=True)
            run_again(spark, source_of_two, both, manifest=kind, since="2")
            found[kind] = first, {area: content(spark, both, area) for area in AREAS}
        return found[kind]

    return of


# a run that is killed before it is published is in test_earlier_batches
@pytest.mark.slow
@pytest.mark.parametrize(
    "point, kind", [*((point, "lake") for point in POINTS), ("dropped rows are written", "none")]
)
def test_a_killed_run_is_repaired_by_running_again(spark, source_of_two, undisturbed, tmp_path, point, kind):
    output = str(tmp_path / "out")
    first, expected = undisturbed(kind)
    shutil.copytree(first, output)
    command = [sys.executable, str(ROOT / "tests/programs/killed_run.py"), point, source_of_two, output]
    done = subprocess.run(
        [*command, "since=2", f"manifest={kind}"],
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == -9, done.stderr[-2000:]
    assert Path(output, "runs/2/files.json").exists() == (point == POINTS[-1])
    summary = run_again(spark, source_of_two, output, manifest=kind, since="2")
    notes = [note for m in summary.batches for note in m["notes"]]
    assert sum("took over the unfinished claim" in note for note in notes) == (point in POINTS[:5])
    assert len(summary.batches) == (point not in POINTS[5:])
    assert {area: content(spark, output, area) for area in AREAS} == expected
    areas = (*AREAS, "bad")
    on_disk = {
        str(p.relative_to(output)) for area in areas for p in Path(output, area).rglob("batch_id=2/**/part-*")
    }
    assert on_disk == {f["path"] for area in areas for f in record(output, "2")[area]}
    assert not list(Path(output, ".staging").rglob("*.parquet"))
    if kind == "lake":
        entries = Ledger(LakeStore(spark, f"{output}/manifest").markers()).entries
        assert {e.batch_id: e.state for e in entries.values()} == {"1": "committed", "2": "committed"}

"""An output whose files lie in no folder of an attempt, as commits before wrote it, lives on."""

import json
import shutil
from pathlib import Path

import pytest
from runs import STAYED, TWO, WITH_COPIES, committed, config, go, record, stayed, write

from dedup_nb.formats.loader import copy_manifest
from dedup_nb.operate.erase import erase
from dedup_nb.operate.history import explain
from dedup_nb.pipeline.write import AREAS, attempt_folder


def as_before(output, batches=tuple(STAYED)):
    "Move the files of batches out of the folders of attempts, under names that begin with the token."
    for batch in batches:
        commit = record(output, batch)
        for f in (f for area in AREAS for f in commit.get(area, [])):
            own = Path(attempt_folder(f["path"]))
            inner = Path(f["path"]).relative_to(own)
            path = own.parent / inner.with_name(
                f"part-{commit['attempt']}-{inner.name.removeprefix('part-')}"
            )
            (output / path).parent.mkdir(parents=True, exist_ok=True)
            (output / f["path"]).rename(output / path)
            f["path"] = str(path)
        for area in AREAS:
            for name in (commit["attempt"], f"attempt={commit['attempt']}"):
                shutil.rmtree(output / area / f"batch_id={batch}" / name, ignore_errors=True)
        commit |= copy_manifest(str(output), commit["events"])
        (output / "runs" / batch / "files.json").write_text(json.dumps(commit))


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"partition_by": "etl_tstamp:date"}], ids=["plain", "by day"])
def test_it_is_read_explained_run_again_and_erased_from(spark, tmp_path, more):
    output, settings = tmp_path / "out", more
    write(spark, tmp_path / "in", WITH_COPIES)
    go(spark, tmp_path, **settings)

    def told():  # but for the names of files
        story = str(explain("a", config(tmp_path), spark)).splitlines()
        return [line for line in story if ".parquet" not in line]

    now = told()
    as_before(output)
    assert stayed(spark, tmp_path) == STAYED and told() == now
    assert spark.read.parquet(str(output / "events")).count() == 4
    old = {p for p in (output / "events/batch_id=1").rglob("*.parquet")}
    go(spark, tmp_path, batch_id="1", rerun=True, **settings)
    assert stayed(spark, tmp_path) == STAYED
    assert old and not any(p.exists() for p in old)
    assert attempt_folder(record(output, "1")["events"][0]["path"])
    for name in ("b", "c"):  # of a batch in the new folders, and of one in the old
        erase(config(tmp_path), spark, event_id=name, yes=True)
    left = [r.event_id for b in STAYED for r in committed(spark, output, b).collect()]
    files = [str(p) for p in (output / "events").rglob("*.parquet")]
    assert sorted(left) == sorted(r.event_id for r in spark.read.parquet(*files).select("event_id").collect())
    assert not {"b", "c"} & set(left) and len(left) == 2


@pytest.mark.slow
def test_batches_of_before_and_after_are_erased_from_together(spark, tmp_path):
    write(spark, tmp_path / "in", {"1": TWO["1"], "late": TWO["2"]})  # a number for Spark, and a text
    go(spark, tmp_path, partition_by="etl_tstamp:date")
    as_before(tmp_path / "out", ["1"])
    done = erase(config(tmp_path), spark, event_id="a", yes=True)
    assert done.data["batches"] == ["1", "late"]
    left = [r.event_id for b in ("1", "late") for r in committed(spark, tmp_path / "out", b).collect()]
    assert sorted(left)[:2] == ["b", "c"] and "a" not in left

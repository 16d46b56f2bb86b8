"""Runs that get in each other's way, as processes of their own."""
import os, signal, subprocess, sys, time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
import pytest
from dedup_nb.manifest import LakeManifest
from spread import kill_group
from test_cross_batch import go, shown, write


@contextmanager
def processes(folder, *jobs):
    "One process per job (point, settings ...), all gone afterwards. Each begins when all are ready."
    started = []
    for point, *settings in jobs:
        command = [sys.executable, str(Path(__file__).with_name("killed_run.py")), point, str(folder / "in"), str(folder / "out"), *settings]
        started.append(subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "SPARK_MASTER": "local[1]"}))
    try: yield started
    finally:
        for process in started: kill_group(process)


def ended(process, within_s=150):
    out, err = process.communicate(timeout=within_s)
    return process.returncode, out + err


def states(spark, folder): return {e.batch_id: e.state for e in LakeManifest(spark, str(folder / "out/manifest")).ledger()}


@pytest.mark.long
def test_two_processes_on_one_batch_one_wins_and_the_other_says_who(spark, tmp_path):
    write(spark, tmp_path / "in", {"0": [("z", "f", 0, 0)], "1": [("a", "f", 1, 1), ("a", "g", 2, 2), ("a", "f", 3, 3)]})
    go(spark, tmp_path, until="0")
    with processes(tmp_path, ("none", "batch_id=1"), ("none", "batch_id=1")) as both: results = sorted(map(ended, both))
    (won, _), (lost, said) = results
    assert won == 0 and lost == 1 and any(words in said for words in ("BusyError: batch 1 is claimed by process", "ManifestError: Batch 1 is committed already", "FencedError: Batch 1 was")), said[-2000:]
    assert shown(spark, tmp_path / "out", "1") == [("a", 1), ("new of a", 2)] and states(spark, tmp_path) == {"0": "committed", "1": "committed"}


@pytest.mark.long
def test_two_processes_on_batches_with_shared_ids_keep_each_pair_once(spark, tmp_path):
    shared = [("a", "f", 1, 1), ("b", "f", 1, 2), ("c", "f", 1, 3)]
    write(spark, tmp_path / "in", {"0": [("z", "f", 0, 0)], "1": [*shared, ("d", "f", 1, 4)], "2": [*shared, ("d", "g", 1, 5)]})
    go(spark, tmp_path, until="0")
    with processes(tmp_path, ("none", "batch_id=1", "wait_minutes=2"), ("none", "batch_id=2", "wait_minutes=2")) as both: results = list(map(ended, both))
    assert [code for code, _ in results] == [0, 0], results
    found = Counter(i for batch in "12" for i, _ in shown(spark, tmp_path / "out", batch))
    assert found == {"a": 1, "b": 1, "c": 1, "d": 1, "new of d": 1} and set(states(spark, tmp_path).values()) == {"committed"}
    assert sum("waiting: batch" in said for _, said in results) <= 1


@pytest.mark.long
def test_a_zombie_that_goes_on_after_it_was_taken_over_changes_nothing(spark, tmp_path):
    write(spark, tmp_path / "in", {"1": [("a", "f", 1, 1), ("a", "g", 2, 2)]})
    with processes(tmp_path, ("halt before the commit",)) as [zombie]:
        while "T" not in Path(f"/proc/{zombie.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]: time.sleep(0.1)
        with pytest.raises(Exception, match=f"batch 1 is claimed by process {zombie.pid} on .*which may still be at work.*--wait-minutes.*dedup abandon 1"): go(spark, tmp_path)
        summary = go(spark, tmp_path, claim_timeout_minutes=0)
        assert f"took over the unfinished claim of process {zombie.pid}" in str(summary)
        before = {p: p.read_bytes() for p in (tmp_path / "out").rglob("*") if p.is_file() and "manifest" not in p.parts}
        os.kill(zombie.pid, signal.SIGCONT)
        code, said = ended(zombie)
    assert code == 1 and "FencedError: Batch 1 was" in said, said[-2000:]
    assert {p: p.read_bytes() for p in (tmp_path / "out").rglob("*") if p.is_file() and "manifest" not in p.parts} == before
    assert states(spark, tmp_path) == {"1": "committed"} and shown(spark, tmp_path / "out", "1") == [("a", 1), ("new of a", 2)]


@pytest.mark.long
def test_a_session_without_delta_is_told_the_lines_to_add(spark, tmp_path):
    write(spark, tmp_path / "in", {"1": [("a", "f", 1, 1)]})
    with processes(tmp_path, ("a session without Delta",)) as [process]: code, said = ended(process)
    assert code == 1 and "this Spark session has no Delta. Start it with these settings, or set manifest=none:" in said and "spark.sql.extensions = io.delta" in said
    assert not (tmp_path / "out/events").exists() and not (tmp_path / "out/manifest").exists()

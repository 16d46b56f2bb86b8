"""Runs that get in each other's way, as processes of their own."""

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import ROOT
from runs import go, shown, states_in, write
from spread import kill_group

pytestmark = pytest.mark.slow
FIRST = {"0": [("z", "f", 0, 0)]}


@contextmanager
def started_runs(folder, *jobs):
    "One process per job (point, settings ...), all gone afterwards."
    started = []
    for point, *settings in jobs:
        script = str(ROOT / "tests/programs/killed_run.py")
        command = [sys.executable, script, point, str(folder / "in"), str(folder / "out"), *settings]
        pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(subprocess.Popen(command, start_new_session=True, **pipes))
    try:
        yield started
    finally:
        for process in started:
            kill_group(process)


def ended(process, within_s=150):
    out, err = process.communicate(timeout=within_s)
    return process.returncode, out + err


def rows_left(folder):
    paths = (p for p in (folder / "out").rglob("*") if p.is_file() and "manifest" not in p.parts)
    return {p: p.read_bytes() for p in paths}


def test_two_processes_on_one_batch_one_wins_and_the_other_says_who(spark, tmp_path):
    write(spark, tmp_path / "in", FIRST | {"1": [("a", "f", 1, 1), ("a", "g", 2, 2), ("a", "f", 3, 3)]})
    go(spark, tmp_path, until="0")
    with started_runs(tmp_path, ("none", "batch_id=1"), ("none", "batch_id=1")) as both:
        (won, _), (lost, said) = sorted(map(ended, both))
    assert won == 0 and lost in (1, 2, 4)
    reasons = (
        "BusyError: Batch 1 is claimed by process",
        "ManifestError: Batch 1 is committed already",
        "FencedError",
    )
    assert any(words.lower() in said.lower() for words in reasons), said[-2000:]
    assert shown(spark, tmp_path / "out", "1") == [("a", 1), ("new of a", 2)]
    assert states_in(spark, tmp_path) == {"0": "committed", "1": "committed"}


def test_two_processes_on_a_fresh_output_both_end_well(spark, tmp_path):
    "Each is first to write there, or sees that another was."
    write(spark, tmp_path / "in", {"1": [("a", "f", 1, 1)], "2": [("a", "f", 1, 2)]})
    jobs = [("none", f"batch_id={b}", "wait_minutes=2") for b in "12"]
    with started_runs(tmp_path, *jobs) as both:
        results = list(map(ended, both))
    assert [code for code, _ in results] == [0, 0], results
    assert sum(len(shown(spark, tmp_path / "out", b)) for b in "12") == 1


def test_two_processes_on_the_same_batches_both_end_well(spark, tmp_path):
    "What one has committed the other passes by."
    write(spark, tmp_path / "in", {"1": [("a", "f", 1, 1)], "2": [("a", "f", 1, 2), ("a", "g", 2, 3)]})
    with started_runs(tmp_path, *[("none", "wait_minutes=2")] * 2) as both:
        results = list(map(ended, both))
    assert [code for code, _ in results] == [0, 0], results
    assert [shown(spark, tmp_path / "out", b) for b in "12"] == [[("a", 1)], [("new of a", 3)]]
    assert states_in(spark, tmp_path) == {"1": "committed", "2": "committed"}


def test_two_processes_on_batches_with_shared_ids_keep_each_pair_once(spark, tmp_path):
    shared = [("a", "f", 1, 1), ("b", "f", 1, 2), ("c", "f", 1, 3)]
    batches = {"1": [*shared, ("d", "f", 1, 4)], "2": [*shared, ("d", "g", 1, 5)]}
    write(spark, tmp_path / "in", FIRST | batches)
    go(spark, tmp_path, until="0")
    jobs = [("none", f"batch_id={b}", "wait_minutes=2") for b in "12"]
    with started_runs(tmp_path, *jobs) as both:
        results = list(map(ended, both))
    assert [code for code, _ in results] == [0, 0], results
    found = Counter(i for batch in "12" for i, _ in shown(spark, tmp_path / "out", batch))
    assert found == {"a": 1, "b": 1, "c": 1, "d": 1, "new of d": 1}
    assert set(states_in(spark, tmp_path).values()) == {"committed"}


def test_a_zombie_that_goes_on_after_it_was_taken_over_changes_nothing(spark, tmp_path):
    write(spark, tmp_path / "in", {"1": [("a", "f", 1, 1), ("a", "g", 2, 2)]})
    with started_runs(tmp_path, ("halt before the commit",)) as [zombie]:
        stat = Path(f"/proc/{zombie.pid}/stat")
        while "T" not in stat.read_text().rsplit(")", 1)[1].split()[0]:
            time.sleep(0.1)
        with pytest.raises(Exception, match=f"claimed by process {zombie.pid} on .*dedup abandon 1") as busy:
            go(spark, tmp_path)
        assert busy.value.exit_code == 4
        summary = go(spark, tmp_path, claim_timeout_minutes=0)
        assert f"took over the unfinished claim of process {zombie.pid}" in str(summary)
        before = rows_left(tmp_path)
        os.kill(zombie.pid, signal.SIGCONT)
        code, said = ended(zombie)
    assert code == 4 and "FencedError: Batch 1 was" in said, said[-2000:]
    assert rows_left(tmp_path) == before and states_in(spark, tmp_path) == {"1": "committed"}
    assert shown(spark, tmp_path / "out", "1") == [("a", 1), ("new of a", 2)]


def test_a_session_without_delta_is_told_the_lines_to_add(spark, tmp_path):
    write(spark, tmp_path / "in", {"1": [("a", "f", 1, 1)]})
    with started_runs(tmp_path, ("a session without Delta",)) as [process]:
        code, said = ended(process)
    assert code and re.search(
        "this Spark session has no Delta.* package io.delta:.* is missing: add it", said
    )
    assert "spark.sql.extensions = io.delta" in said
    assert not (tmp_path / "out/events").exists() and not (tmp_path / "out/manifest").exists()

"""A committer as Databricks has one, by its documents: other names, markers, and files of lost tasks.

Simulated: nobody here could try Databricks itself.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyspark
import pytest
from conftest import ROOT
from entities import five_lines
from runs import STAYED, TWO, committed, go, record, stayed, write
from spread import kill_group

pytestmark = pytest.mark.slow
JARS = Path(pyspark.__file__).parent / "jars"
CLASS = {"spark.sql.sources.commitProtocolClass": "DatabricksCommitter"}


@pytest.fixture(scope="module")
def jar(tmp_path_factory):
    "The committer, compiled."
    if not shutil.which("javac"):
        pytest.skip("the committer is a class of Java: a JDK is wanted, and here is a JRE (no javac)")
    made = tmp_path_factory.mktemp("committer")
    source = ROOT / "tests/platforms/DatabricksCommitter.java"
    for words in (
        ["javac", "-nowarn", "-d", made, "-cp", f"{JARS}/*", source],
        ["jar", "cf", made / "committer.jar", "-C", made, "DatabricksCommitter.class"],
    ):
        subprocess.run(words, check=True, capture_output=True)
    return made / "committer.jar"


def there(jar):
    "The environment of a driver with that committer."
    words = f"--driver-class-path {jar} --conf {'='.join(*CLASS.items())} pyspark-shell"
    return {**os.environ, "PYSPARK_SUBMIT_ARGS": words}


JOBS = {
    "lake": {"runs": [{}, {"batch_id": "1", "rerun": True}]},
    "none": {"runs": [{"manifest": "none"}, {"manifest": "none", "batch_id": "1"}]},
    "folders": {"runs": [{"partition_by": "etl_tstamp:date"}]},
    "erased": {"runs": [{}], "erase": "b"},
    **{
        form: {"runs": [{"input_format": "enriched_tsv", "output_format": form}]}
        for form in ("enriched_tsv", "shredded", "wide_row", "json")
    },
}


@pytest.fixture(scope="module")
def home(jar, tmp_path_factory):
    "The folder of all jobs, done."
    folder = tmp_path_factory.mktemp("jobs")
    (folder / "jobs.json").write_text(json.dumps(JOBS))
    for name, job in JOBS.items():
        if "input_format" in job["runs"][0]:
            (folder / name / "in/run=1").mkdir(parents=True)
            (folder / name / "in/run=1/part-0.txt").write_text("\n".join(five_lines()) + "\n")
    with open(folder / "driver.log", "wb") as log:
        command = [sys.executable, str(ROOT / "tests/programs/runs_there.py"), str(folder)]
        driver = subprocess.Popen(command, stdout=log, stderr=log, env=there(jar), start_new_session=True)
        try:
            driver.wait(400)
        finally:
            kill_group(driver)
    assert driver.returncode == 0, (folder / "driver.log").read_text(errors="replace")[-3000:]
    return folder


@pytest.fixture
def counts(home):
    "What each run of a job counted."
    return json.loads((home / "found.json").read_text())


def lost(output):
    "What lost tasks left beside the files that count."
    return [p for p in Path(output).rglob("part-99999-*") if ".staging" not in p.parts]


def assert_only_what_counts(output, *batches, mark="-tid-"):
    for batch in batches:
        commit = record(output, batch)
        listed = [f["path"] for area in ("events", "dropped", "bad", "verdicts") for f in commit[area]]
        assert listed and not any("part-99999" in path for path in listed)
        for path in listed:
            assert f"/{commit['attempt']}/" in path or f"/attempt={commit['attempt']}/" in path
            assert mark in path


ALONE = {"1": STAYED["1"], "2": [("a", 3), ("c", 5), ("new of a", 4)]}  # batches that know no others


@pytest.mark.parametrize("manifest", ["lake", "none"])
def test_batches_are_counted_and_listed_right_and_run_again(spark, home, counts, manifest):
    assert lost(home / manifest / "in")  # which the input has, too
    assert [c["read"] for c in counts[manifest][0]] == [4, 3]
    assert stayed(spark, home / manifest) == (STAYED if manifest == "lake" else ALONE)
    assert_only_what_counts(home / manifest / "out", "1", "2")
    tokens = {p.name for p in (home / manifest / "out/events/batch_id=1").iterdir()}
    assert tokens == {
        record(home / manifest / "out", "1")["attempt"]
    }  # the folder of the first went as a whole


@pytest.mark.parametrize("form", ["enriched_tsv", "shredded", "wide_row", "json"])
def test_lines_and_their_tables_are_counted_right(home, counts, form):
    [[c]] = counts[form]
    assert (c["read"], c["bad"], c["kept"], c["dropped"]) == (5, 1, 3, 1)
    assert_only_what_counts(home / form / "out", "1")
    if form == "shredded":
        places = [f["path"] for f in record(home / form / "out", "1")["events"]]
        assert all(p.startswith("events/batch_id=1/output=good/vendor=") for p in places)


def test_folders_by_column_are_found(spark, home):
    output = home / "folders/out"
    assert stayed(spark, home / "folders") == STAYED
    paths = [str(output / f["path"]) for b in "12" for f in record(output, b)["events"]]
    found = spark.read.option("basePath", f"{output}/events").parquet(*paths)
    assert {"batch_id", "attempt", "etl_tstamp_date"} < set(found.columns) and found.count() == 4


def test_what_is_erased_is_in_no_file_of_a_lost_task(spark, home):
    output = home / "erased/out"
    kept = [str(p) for p in (output / "events").rglob("*.parquet")]
    ids = {r.event_id for r in spark.read.parquet(*kept).select("event_id").collect()}
    assert "a" in ids and "b" not in ids and committed(spark, output, "2").count() == 2


def started(jar, folder, point, manifest):
    "A run of its own with this committer, which dies or halts at a point."
    script = ROOT / "tests/programs/killed_run.py"
    command = [sys.executable, script, point, folder / "in", folder / "out", f"manifest={manifest}"]
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return subprocess.Popen(list(map(str, command)), start_new_session=True, env=there(jar), **pipes)


@pytest.mark.parametrize(
    "manifest, point",
    [("lake", "metrics are written, the commit is not"), ("none", "metrics are written, nothing else is")],
)
def test_a_run_that_is_killed_there_leaves_no_row_twice(spark, jar, tmp_path, manifest, point):
    write(spark, tmp_path / "in", TWO)
    died = started(jar, tmp_path, point, manifest)
    assert died.wait(150) == -9, died.communicate()[1][-2000:]
    assert list((tmp_path / "out/events").rglob("*.parquet"))
    go(spark, tmp_path, manifest=manifest)
    assert stayed(spark, tmp_path) == (STAYED if manifest == "lake" else ALONE)
    assert_only_what_counts(tmp_path / "out", "1", "2", mark="part-")  # of this session
    for batch in "12":
        [folder] = (tmp_path / f"out/events/batch_id={batch}").iterdir()
        assert folder.name == record(tmp_path / "out", batch)["attempt"]


@pytest.mark.parametrize(
    "manifest, point, words",
    [
        ("lake", "halt before the commit", "FencedError: Batch 1 was"),
        ("none", "halt when metrics are written", "BusyError: Another run has written"),
    ],
)
def test_a_zombie_there_adds_a_stray_folder_at_most(spark, jar, tmp_path, manifest, point, words):
    write(spark, tmp_path / "in", {"1": TWO["1"]})
    zombie = started(jar, tmp_path, point, manifest)
    try:
        while "T" not in Path(f"/proc/{zombie.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]:
            time.sleep(0.1)
        go(spark, tmp_path, claim_timeout_minutes=0, manifest=manifest)
        before = {f["path"]: f["bytes"] for f in record(tmp_path / "out", "1")["events"]}
        os.kill(zombie.pid, signal.SIGCONT)
        _, said = zombie.communicate(timeout=150)
    finally:
        kill_group(zombie)
    assert zombie.returncode == 4 and words in said, said[-2000:]
    assert {f["path"]: f["bytes"] for f in record(tmp_path / "out", "1")["events"]} == before
    assert all((tmp_path / "out" / path).stat().st_size == size for path, size in before.items())
    assert_only_what_counts(tmp_path / "out", "1", mark="part-")

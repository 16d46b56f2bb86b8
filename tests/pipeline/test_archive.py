"""Whole runs over archives whose batch folders are the cases: run once, read by many tests."""

import csv
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import nbformat
import pytest
from conftest import ROOT
from pyspark.sql import functions as F
from runs import DAY, SAMPLES, committed, files, go, heard, on_dynamodb, record, shown, write

from dedup_nb import Config, run
from dedup_nb.operate.history import explain, runs
from dedup_nb.report.pages import Summary
from dedup_nb.rules.keys import new_event_id

pytestmark = pytest.mark.slow


def truth(batch):
    with open(SAMPLES / "truth.csv") as file:
        return [r for r in csv.DictReader(file) if r["batch_id"] == batch]


def fates_of(spark, output, batch):
    "What became of each good row of a batch: (the id it came with, fate)."
    stays = committed(spark, output, batch)
    stays = stays.select(F.coalesce("original_event_id", "event_id"), F.col("original_event_id").isNotNull())
    found = Counter((i, "renamed" if new else "kept") for i, new in stays.collect())
    goes = committed(spark, output, batch, "dropped")
    return found + Counter((r.event_id, "dropped") for r in goes.select("event_id").collect())


# --- the sample batches, with known truth ---


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    "The output of `make demo`, which runs the job notebook through papermill, and what it said."
    folder = tmp_path_factory.mktemp("demo")
    for name in ("Makefile", "settings.ini", "nbs", "data_samples"):
        (folder / name).symlink_to(ROOT / name)
    command = ["make", "-o", "setup", "demo", f"BIN={Path(sys.executable).parent}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "demo_output", done


@pytest.fixture(scope="module", params=["lake", "dynamodb"])
def sample_run(request, spark, tmp_path_factory):
    "The summary, the output, and the settings that find its manifest again."
    if request.param == "lake":
        output, _ = request.getfixturevalue("demo")
        metrics = [json.loads(path.read_text()) for path in sorted(output.glob("runs/*/metrics.json"))]
        return Summary(metrics, str(output)), output, Config(output=str(output))
    output = tmp_path_factory.mktemp("samples") / "out"
    where = {"output": str(output), **on_dynamodb(request.getfixturevalue("dynamodb"), "samples")}
    return run(Config(input=str(SAMPLES), **where), spark), output, Config(**where)


def test_the_demo_says_what_it_did(demo):
    output, done = demo
    lines = [line for line in done.stdout.splitlines() if not line.startswith("make")]
    *_, head, one, two, three, pages, notebook = lines
    assert done.stderr == "" and head.startswith("batch ")
    assert all(" committed " in line for line in (one, two, three))
    assert sum(" of 8 " in line for line in lines) == 3 * 8  # stages, as they come
    assert pages.endswith(f" {output}/runs/index.html") and (output / "runs/index.html").exists()
    assert notebook.endswith(f" {output}/runs/run_dedup.ipynb")
    executed = nbformat.read(output / "runs/run_dedup.ipynb", 4)
    shown = [o.get("data", {}).get("text/html", "") for c in executed.cells for o in c.get("outputs", [])]
    assert any("--w:" in text for text in shown)


def test_the_samples_meet_their_truth_row_by_row(spark, sample_run):
    summary, output, _ = sample_run
    assert len(summary.batches) == 3
    for m in summary.batches:
        expected = truth(m["batch_id"])
        good = [r for r in expected if r["fate_known"] != "bad"]
        assert fates_of(spark, output, m["batch_id"]) == Counter(
            (r["event_id"], r["fate_known"]) for r in good
        )
        assert m["counts"]["read"] == len(expected)
        assert m["counts"]["bad"] == len(expected) - len(good)
        assert m["reasons"] == Counter(r["reason_known"] for r in good if r["fate_known"] == "dropped")
        across = m["cross_batch"]
        assert across["natural_cross_batch"] == m["reasons"].get("natural_cross_batch", 0)
        assert across["natural_cross_batch"] == sum(across["dropped_for"].values())
        assert across["renamed"] == sum(r["reason_known"] == "synthetic_cross_batch" for r in good)


def test_kept_ids_are_unique_and_dropped_rows_point_at_one_of_them(spark, sample_run):
    summary, output, _ = sample_run
    names = [m["batch_id"] for m in summary.batches]
    stays = [(b, r.event_id) for b in names for r in committed(spark, output, b).select("event_id").collect()]
    assert len({i for _, i in stays}) == len(stays)
    for batch in names:
        goes = committed(spark, output, batch, "dropped").select("dedup.*").distinct().collect()
        assert goes and {(r.kept_in_batch, r.kept_event_id) for r in goes} <= set(stays)


def test_the_summary_says_what_earlier_batches_changed(sample_run):
    summary, output, _ = sample_run
    across = [m["cross_batch"] for m in summary.batches]
    dropped, renamed = (sum(x[name] for x in across) for name in ("natural_cross_batch", "renamed"))
    assert f"Because of earlier batches: {dropped} dropped, {renamed} renamed." in str(summary)
    assert "of them with an event of an earlier batch" in str(summary)
    report = (output / f"runs/{summary.batches[-1]['batch_id']}/report.html").read_text()
    assert "natural duplicates of earlier batches" in report and "--w:" in report


def test_explain_tells_the_story_of_an_id(spark, sample_run):
    summary, output, there = sample_run
    last = summary.batches[-1]["batch_id"]
    for reason, words in {
        "natural_cross_batch": "dropped; reason natural_cross_batch (loaded by batch 2026-11-1",
        "synthetic_cross_batch": "kept under a new id: ",
    }.items():
        row = next(r for r in truth(last) if r["reason_known"] == reason)
        told = explain(row["event_id"].upper(), there, spark)
        assert words in str(told) and f"batch {last}: fingerprint" in str(told) and "(attempt " in str(told)
    renamed = next(v for v in told.data["verdicts"] if v["new_event_id"])
    again = str(explain(renamed["new_event_id"], there, spark))
    assert f"it is the new id of an event that came as {row['event_id']}" in again
    unique = next(r for r in truth(last) if r["kind"] == "unique")
    told = str(explain(unique["event_id"], there, spark))
    plain = f"batch {last} kept it under its own id, and no batch dropped or renamed a row of this id"
    assert told.startswith(f"Event id {unique['event_id']}\n  {plain}\n\n  its rows, what differs first:")
    nobody = str(explain("00000000-0000-4000-8000-00000000abcd", there, spark))
    assert "nothing is recorded of it in the 3 committed batches" in nobody
    assert str(runs(there, spark)).count("committed") == 3


def test_the_samples_without_a_memory_meet_their_truth(spark, tmp_path):
    summary = run(Config(input=str(SAMPLES), output=str(tmp_path), manifest="none"), spark)
    for m in summary.batches:
        good = [r for r in truth(m["batch_id"]) if r["fate_alone"] != "bad"]
        assert fates_of(spark, tmp_path, m["batch_id"]) == Counter(
            (r["event_id"], r["fate_alone"]) for r in good
        )
        assert m["reasons"] == Counter(r["reason_alone"] for r in good if r["fate_alone"] == "dropped")


# --- one archive, each folder a case ---


CASES = {  # batch -> rows: id, fingerprint, second, n
    "01": [
        ("a", "f", 0, 1),
        ("a", "f", 3, 2),
        ("a", "g", 9, 3),
        ("b", "f", 0, 4),
        ("b", "f", 0, 4),
        ("c", "f", 0, 5),
        (None, "f", 0, 6),
    ],
    "02_known": [("a", "f", 20, 1), ("a", "h", 21, 2), ("c", "f", 22, 3), ("d", "f", 23, 4)],
    "03_nothing_repeats": [("k", "f", 30, 1), ("l", "f", 31, 2)],
    "04_empty": [],
    "05_no_ids": [(None, "f", 50, 1), ("", "f", 51, 2)],
    "07_late": [("a", "f", -7200, 1), ("m", "f", -7200, 2), ("m", "g", -7199, 3)],
    "08_one_old_clock": [*((f"i{n}", "f", 80 + n, n) for n in range(4)), ("old", "f", -24 * 365 * DAY, 9)],
    "10_after": [("far1", "f", 100, 1), ("i2", "f", 100, 2), ("y", "f", 100, 3)],
}


@pytest.fixture(scope="module")
def archive(spark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("archive")
    write(spark, folder / "in", CASES)
    renamed = renamed_id(spark)
    fed_back = [  # an event that was kept under a new id comes again; another one has that id by chance
        (renamed, "g", 60, 1, "a"),
        (renamed, "x", 61, 2, None),
        ("n", "f", 62, 3, None),
    ]
    frame = spark.createDataFrame(
        fed_back, "event_id string, event_fingerprint string, t int, n int, original_event_id string"
    )
    frame = frame.withColumn("etl_tstamp", F.timestamp_seconds(F.lit(1_763_000_000) + F.col("t"))).drop("t")
    frame.coalesce(1).write.parquet(str(folder / "in/run=06_fed_back"))
    far = [(f"far{n}", "f", n) for n in range(3)]
    frame = spark.createDataFrame(far, "event_id string, event_fingerprint string, n int")
    frame = frame.withColumn("etl_tstamp", F.expr("timestamp '9999-12-31 23:59:59'"))
    frame.coalesce(1).write.parquet(str(folder / "in/run=09_far"))
    with heard() as said:
        return folder, go(spark, folder, max_bad_share=1), said


def renamed_id(spark):
    "The new id of (a, g)."
    one = spark.range(1).select(new_event_id(F.lit("a"), F.lit("g")).alias("new"))
    return one.first().new


def counts_of(m):
    return tuple(m["counts"][name] for name in ("read", "bad", "kept", "dropped", "renamed"))


EXPECTED = {  # read, bad, kept, dropped, renamed; reasons
    "01": ((7, 1, 4, 2, 1), {"natural": 2}),
    "02_known": ((4, 0, 2, 2, 1), {"natural_cross_batch": 2}),
    "03_nothing_repeats": ((2, 0, 2, 0, 0), {}),
    "04_empty": ((0, 0, 0, 0, 0), {}),
    "05_no_ids": ((2, 2, 0, 0, 0), {}),
    "06_fed_back": ((3, 0, 2, 1, 1), {"natural_cross_batch": 1}),
    "07_late": ((3, 0, 2, 1, 1), {"natural_cross_batch": 1}),
    "08_one_old_clock": ((5, 0, 5, 0, 0), {}),
    "09_far": ((3, 0, 3, 0, 0), {}),
    "10_after": ((3, 0, 1, 2, 0), {"natural_cross_batch": 2}),
}


@pytest.mark.parametrize("batch", EXPECTED)
def test_each_batch_has_the_counts_and_reasons_of_its_case(archive, batch):
    _, summary, _ = archive
    m = next(m for m in summary.batches if m["batch_id"] == batch)
    assert (counts_of(m), m["reasons"]) == EXPECTED[batch]
    c = m["counts"]
    assert c["read"] == c["bad"] + c["kept"] + c["dropped"]


@pytest.mark.parametrize(
    "batch, expected",
    [
        ("01", [("a", 1), ("b", 4), ("c", 5), ("new of a", 3)]),
        ("02_known", [("d", 4), ("new of a", 2)]),
        ("04_empty", []),
        ("06_fed_back", [("n", 3)]),
        ("07_late", [("m", 2), ("new of m", 3)]),
    ],
)
def test_the_kept_rows_of_a_case(spark, archive, batch, expected):
    folder, _, _ = archive
    found = shown(spark, folder / "out", batch)
    assert [row for row in found if len(row[0]) < 12] == expected  # without a new id of a new id


def test_an_event_with_the_new_id_of_an_earlier_one_gets_an_id_of_its_own(spark, archive):
    "Else two rows of kept would have one id."
    folder, summary, _ = archive
    frames = [committed(spark, folder / "out", m["batch_id"]) for m in summary.batches]
    ids = [r.event_id for frame in frames if frame is not None for r in frame.collect()]
    assert len(ids) == len(set(ids)) == sum(m["counts"]["kept"] for m in summary.batches)


def test_a_late_batch_says_which_newer_ones_it_yielded_to(archive):
    _, summary, _ = archive
    m = next(m for m in summary.batches if m["batch_id"] == "07_late")
    newer = {"01", "02_known", "03_nothing_repeats", "06_fed_back"}
    assert m["cross_batch"]["newer_batches"] == sorted(newer & {m["batch_id"] for m in summary.batches})
    assert m["cross_batch"]["dropped_for_newer"] == 1
    assert "this batch is late" in str(summary)


def test_a_batch_without_a_row_says_so_and_nothing_else(archive):
    _, summary, _ = archive
    m = next(m for m in summary.batches if m["batch_id"] == "04_empty")
    assert m["notes"] == ["the input has no row: is something missing where it comes from?"]


def test_a_run_leaves_what_it_says(spark, archive):
    folder, summary, _ = archive
    out = folder / "out"
    areas = {f.split("/")[0] for f in files(out)}
    assert areas == {"events", "dropped", "bad", "verdicts", "runs", "manifest", "metrics"}
    assert not list((out / ".staging").rglob("*.parquet"))
    goes = committed(spark, out, "01", "dropped")
    assert goes.columns == ["event_id", "event_fingerprint", "etl_tstamp", "n", "dedup"]
    assert goes.select("dedup.*").columns == ["reason", "kept_event_id", "kept_in_batch"]
    verdicts = committed(spark, out, "01", "verdicts")
    assert verdicts.columns == [
        "event_id",
        "event_fingerprint",
        "copies",
        "verdict",
        "reason",
        "new_event_id",
        "seen_in_batch",
    ]
    bad = json.loads("".join(p.read_text() for p in (out / "bad/batch_id=01").glob("*/part-*")))
    assert "generic_error" in bad["schema"] and "event_fingerprint" in bad["data"]["payload"]


def test_files_json_lists_the_files_and_is_a_redshift_manifest(archive):
    folder, _, _ = archive
    out = folder / "out"
    listed = record(out, "01")
    on_disk = {f for f in files(out) if "batch_id=01/" in f and not f.startswith("manifest")}
    assert {f["path"] for area in ("events", "dropped", "verdicts", "bad") for f in listed[area]} == on_disk
    assert [e["url"] for e in listed["entries"]] == [f"file://{out}/{f['path']}" for f in listed["events"]]
    for entry in listed["entries"]:
        assert entry["mandatory"] and entry["meta"]["content_length"] == os.path.getsize(entry["url"][7:])
    assert json.loads((out / "runs/01/copy_manifest.json").read_text()) == {"entries": listed["entries"]}


def test_metrics_have_times_counts_and_versions(spark, archive):
    folder, _, _ = archive
    m = json.loads((folder / "out/runs/01/metrics.json").read_text())
    assert m["status"] == "committed" and m["versions"]["spark"] == spark.version
    # the median hour
    assert m["etl_time"] == "2025-11-13T02:00:00Z" and m["started_at"] <= m["finished_at"]
    stages = ["read", "manifest", "suspects", "natural", "synthetic", "resolve", "clean", "commit"]
    assert list(m["seconds"]) == [*stages, "total"]


def test_progress_is_one_line_per_stage(archive):
    _, _, said = archive
    at = said.index("batch 01")
    lines = [line.split() for line in said[at + 1 : at + 9]]
    assert [words[3].rstrip(":") for words in lines] == [
        "read",
        "manifest",
        "suspects",
        "natural",
        "synthetic",
        "resolve",
        "clean",
        "commit",
    ]
    assert said[at + 4].startswith("  4 of 8 natural: 5 in, 2 dropped (40 %") and said[at + 4].endswith(" s")


def test_a_second_run_has_nothing_to_do(spark, archive):
    folder, _, _ = archive
    before = files(folder / "out")
    again = go(spark, folder, max_bad_share=1)
    assert again.batches == [] and "Nothing to do" in str(again) and files(folder / "out") == before


def test_one_wrong_clock_does_not_move_the_time_of_a_batch(archive):
    "By its smallest time the first of these would be forgotten at once, by its largest the second never."
    _, summary, _ = archive
    times = {m["batch_id"]: m["etl_time"] for m in summary.batches}
    assert times["08_one_old_clock"] == times["10_after"] == "2025-11-13T02:00:00Z"
    assert times["09_far"].startswith("9999-12-31")

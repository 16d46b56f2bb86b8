"""Batches that know one another: reruns, late files, backfills, work by hand, what stands in the way."""

import json
import shutil
import subprocess
import sys
from collections import Counter

import pytest
from conftest import ROOT
from pyspark.sql import functions as F
from runs import DAY, STAYED, TWO, committed, config, files, go, record, shown, stayed, write

from dedup_nb import Config, run
from dedup_nb.base.errors import ConfigError, DedupError
from dedup_nb.cli import main
from dedup_nb.manifest.lake import LakeStore
from dedup_nb.manifest.ledger import FencedError, ManifestError
from dedup_nb.manifest.protocol import Manifest
from dedup_nb.operate.backfill import backfill
from dedup_nb.operate.history import expire, explain, forget, runs
from dedup_nb.pipeline.job import RunOptions, existing_manifest, memory_of


@pytest.fixture(scope="module")
def two_done(spark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    write(spark, folder / "in", TWO)
    go(spark, folder)
    return folder


@pytest.fixture
def two(two_done, tmp_path):
    "A folder of its own with two committed batches."
    shutil.copytree(two_done, tmp_path, dirs_exist_ok=True)
    # the copies of the input have the times of the original: they are the files that were committed
    return tmp_path


def manifest_of(spark, folder, **more):
    settings = config(folder, **more)
    return existing_manifest(spark, memory_of(settings), settings.output)


def changed(folder, batch):
    "The file of a committed batch is another one now."
    with next((folder / f"in/run={batch}").glob("*.parquet")).open("ab") as file:
        file.write(b" ")


def states(spark, folder):
    return {name: e.state for name, e in manifest_of(spark, folder).ledger().entries.items()}


# --- any cut gives the same events ---

ROWS = [
    ("a", "f", 0, 1),
    ("a", "g", 1, 2),
    ("a", "f", 2, 3),
    ("b", None, 3, 4),
    ("a", "h", 4, 5),
    ("b", None, 5, 4),
    ("b", "f", 6, 7),
    ("a", "g", 7, 8),
    ("c", "f", 8, 9),
    ("c", "g", 9, 10),
]


@pytest.mark.slow
def test_any_cut_along_the_order_keeps_the_same_events_with_the_same_ids(spark, tmp_path):
    found = []
    for name, ends in {"whole": [0, 10], "cut": [0, 3, 8, 10]}.items():
        parts = {str(n): ROWS[a:b] for n, (a, b) in enumerate(zip(ends, ends[1:]))}
        write(spark, tmp_path / name / "in", parts)
        summary = go(spark, tmp_path / name)
        frames = [committed(spark, tmp_path / name / "out", m["batch_id"]) for m in summary.batches]
        found.append(Counter((r.event_id, r.n, r.original_event_id) for f in frames for r in f.collect()))
    assert found[0] == found[1] and found[0].total() == 7


# --- reruns ---


def test_a_rerun_gives_the_same_output_and_is_refused_with_other_settings_or_pairs(spark, two):
    with pytest.raises(ManifestError, match="Batch 2 is committed already.*--rerun.*dedup forget 2"):
        go(spark, two, batch_id="2")
    for force in (False, True):
        with pytest.raises(ManifestError, match="another recipe: synthetic was rename_later, is now off"):
            go(spark, two, batch_id="2", rerun=True, synthetic="off", force=force)
    # files that came later are no part of a rerun
    write(spark, two / "in", {"2": [("z", "f", 2, 9)]})
    again = go(spark, two, batch_id="2", rerun=True)
    assert again.counts["read"] == 3 and again.batches[0]["cross_batch"]["dropped_for"] == {"1": 1}
    assert stayed(spark, two) == STAYED
    # files that are others have other pairs
    shutil.rmtree(two / "in/run=2")
    write(spark, two / "in", {"2": [("a", "f", 2, 2), ("y", "f", 2, 9)]})
    with pytest.raises(ManifestError, match="dedup forget 2"):
        go(spark, two, batch_id="2", rerun=True)
    assert stayed(spark, two) == STAYED and states(spark, two) == {"1": "committed", "2": "committed"}


@pytest.mark.parametrize("loaded_again", [True, False])
@pytest.mark.slow
def test_a_rerun_that_would_no_longer_see_a_batch_for_which_it_dropped_rows_is_refused(
    spark, two, loaded_again
):
    "Batch 2 dropped `a` because 1 had it. Another batch has it now, which a rerun of 2 would not see."
    forget("1", config(two), spark, yes=True)
    if not loaded_again:
        shutil.rmtree(two / "in/run=1")
        write(spark, two / "in", {"3": [("a", "f", 3, 6)]})
    go(spark, two)
    since = "forgotten and loaded again since" if loaded_again else "forgotten since"
    with pytest.raises(ManifestError, match=f"because batch 1 had them, which was {since}.*dedup forget 2"):
        go(spark, two, batch_id="2", rerun=True)


# --- folders that change ---


def test_late_files_are_reported_and_become_a_batch_of_their_own(spark, two, said):
    write(spark, two / "in", {"1": [("a", "f", 3, 6), ("d", "f", 3, 7)]})
    summary = go(spark, two)
    assert summary.batches == [] and "Nothing" in str(summary)
    assert any(
        "Batch 1 is committed" in line and "1 new file" in line and "--late-files" in line for line in said
    )
    late = go(spark, two, late_files=True)
    assert [m["batch_id"] for m in late.batches] == ["1~1"]
    assert (late.counts["kept"], late.counts["dropped"]) == (1, 1)
    assert go(spark, two, late_files=True).batches == []


@pytest.mark.slow
def test_late_files_can_be_run_again_and_forgotten_like_any_batch(spark, two):
    write(spark, two / "in", {"1": [("a", "f", 3, 6), ("d", "f", 3, 7)]})
    late = go(spark, two, late_files=True)
    again = go(spark, two, rerun=True, batch_id="1~1")
    assert [m["batch_id"] for m in again.batches] == ["1~1"] and again.counts == late.counts
    forget("1~1", config(two), spark, yes=True)
    assert [m["batch_id"] for m in go(spark, two, late_files=True).batches] == ["1~1"]


@pytest.mark.slow
def test_a_folder_that_looks_like_late_files_of_another_is_a_batch(spark, two):
    write(spark, two / "in", {"1+1": [("p", "f", 3, 6)]})
    assert [m["batch_id"] for m in go(spark, two).batches] == ["1+1"] and shown(
        spark, two / "out", "1+1"
    ) == [("p", 6)]


@pytest.mark.parametrize("change", [pytest.param("gone", marks=pytest.mark.slow), "another"])
def test_a_committed_file_that_is_gone_or_another_is_named_and_the_others_go_on(spark, two, change):
    path = next((two / "in/run=1").glob("*.parquet"))
    if change == "gone":
        path.rename(path.with_name("part-later.parquet"))
    else:
        shutil.copy(next((two / "in/run=2").glob("*.parquet")), path)
    write(spark, two / "in", {"3": [("e", "f", 3, 1)]})
    summary = go(spark, two)
    assert [m["batch_id"] for m in summary.batches] == ["3"] and summary.exit_code == 1
    assert "1" in summary.troubles[0] and path.name in summary.troubles[0]


@pytest.mark.slow
def test_a_first_folder_without_files_binds_nobody(spark, tmp_path, said):
    "It has no columns, and the first batch says what stands in for missing fingerprints."
    (tmp_path / "in/run=1").mkdir(parents=True)
    frame = spark.createDataFrame([("a", 1), ("a", 2)], "event_id string, n int")
    frame.write.parquet(str(tmp_path / "in/run=2"))
    first = go(spark, tmp_path)
    assert [m["counts"]["kept"] for m in first.batches] == [1]
    assert "without files, left for a later run: 1" in said
    assert [m["batch_id"] for m in go(spark, tmp_path).batches] == ["1"]


def test_what_does_not_fit_the_manifest_is_refused_and_changes_nothing(spark, two):
    changed(two, "2")
    write(spark, two / "in", {"3": [("e", "f", 3, 1)]})
    before = files(two / "out")
    for more, kind, words in (
        ({"batch_id": "1"}, ManifestError, "Batch 1 is committed already.*--rerun.*dedup forget 1"),
        ({"batch_id": "2", "rerun": True}, ManifestError, "its input changed since: .*dedup forget 2"),
        ({"missing_fingerprint": "unique"}, ManifestError, "is now unique.*or go on with --force"),
        ({"order_by": "n", "rerun": True, "force": True}, ManifestError, "a rerun must give the same output"),
        (
            {"max_batches": 1, "rerun": True, "skip_batches": "2"},
            ConfigError,
            "2 batches are to do, more than",
        ),
    ):
        with pytest.raises(kind, match=words):
            go(spark, two, **more)
    assert files(two / "out") == before


# --- strategies, retention ---


@pytest.mark.slow
def test_delete_all_lists_loaded_rows_as_retractions(spark, tmp_path):
    write(
        spark,
        tmp_path / "in",
        {"1": [("a", "f", 1, 1), ("b", "f", 1, 2)], "2": [("a", "g", 2, 3), ("b", "f", 2, 4)]},
    )
    go(spark, tmp_path, synthetic="delete_all")
    retracted = committed(spark, tmp_path / "out", "2", "retractions").collect()
    assert [tuple(r) for r in retracted] == [("a", "1", "synthetic_cross_batch")]
    assert shown(spark, tmp_path / "out", "1") == [("a", 1), ("b", 2)]
    assert record(tmp_path / "out", "2")["counts"]["kept"] == 0


@pytest.mark.slow
def test_retention_is_exact_by_the_time_of_the_batches_and_expire_changes_nothing_later(spark, tmp_path):
    batches = {
        "1": [("a", "f", 0, 1), ("b", "f", 0, 2), ("b", "f", 0, 3), (None, "f", 0, 4)],
        "2": [("a", "g", 8 * DAY, 5), ("b", "f", 8 * DAY, 6)],
        "3": [("a", "f", 10 * DAY + 3600, 7), ("b", "f", 10 * DAY + 3600, 8)],
    }
    write(spark, tmp_path / "in", batches)
    go(spark, tmp_path, retention_days=10)
    # (b, f) is forgotten an hour after day 10; (a, f) lives on with the rename of batch 2
    expected = [[("a", 1), ("b", 2)], [("new of a", 5)], [("b", 8)]]
    assert [shown(spark, tmp_path / "out", b) for b in "123"] == expected
    would = expire(config(tmp_path), spark, audit_days=5)
    assert would.data == {"keys_of": ["1"], "audit_of": ["1"], "done": False}
    assert "Would remove the keys of 1 batch that" in str(would) and list(
        (tmp_path / "out/bad").rglob("part-*")
    )
    expire(config(tmp_path), spark, audit_days=5, yes=True)
    listed = record(tmp_path / "out", "1")
    assert (listed["dropped"], listed["bad"]) == ([], []) and not list((tmp_path / "out/bad").rglob("part-*"))
    assert {p.parent.name for p in (tmp_path / "out/dropped").rglob("*.parquet")} == {
        "batch_id=2",
        "batch_id=3",
    }
    write(
        spark,
        tmp_path / "in",
        {"0": [("b", "f", DAY, 9)], "4": [("a", "f", 12 * DAY, 10), ("a", "g", 12 * DAY, 11)]},
    )
    with pytest.raises(ManifestError, match="Batch 0 .* is so old that it would have seen the pairs of 1"):
        go(spark, tmp_path, retention_days=10, until="0")
    assert go(spark, tmp_path, retention_days=10, since="4").counts["dropped"] == 2


# --- backfill ---


def test_a_backfill_says_what_it_leaves_out_and_ends_with_1(spark, two, capsys):
    changed(two, "2")
    where = ["--input", str(two / "in"), "--output", str(two / "out"), "--input-format", "parquet"]
    with pytest.raises(SystemExit) as done:
        main(["backfill", *where])
    assert "Batch 2 is committed, and its input changed since" in capsys.readouterr().out
    assert done.value.code == 1
    (two / "out/runs/recipe.json").write_text('{"manifest": "none"}')
    with pytest.raises(ConfigError, match="manifest=none"):
        backfill(config(two), spark)


def test_a_manifest_that_does_not_know_the_events_beside_it_is_refused(spark, two):
    shutil.rmtree(two / "out/manifest")
    for mode in ("decide", "apply"):
        with pytest.raises(ManifestError, match=r"empty, but .* 2 batches \(1, 2\).* --accept-empty-manif"):
            go(spark, two, mode=mode)
    assert not (two / "out/manifest").exists()


@pytest.mark.slow
def test_an_empty_manifest_beside_events_is_refused_until_it_is_filled_or_accepted(spark, two, said):
    shutil.rmtree(two / "out/manifest")
    write(spark, two / "in", {"3": [("a", "f", 3, 6), ("e", "f", 3, 7)]})
    words = r"is empty, but .*events of 2 batches \(1, 2\).*dedup backfill.*--accept-empty-manifest"
    with pytest.raises(ManifestError, match=words):
        go(spark, two, batch_id="3")
    filled = backfill(config(two, until="2"), spark)
    assert [tuple(f[n] for n in ("rows", "pairs", "repeats", "known")) for f in filled] == [
        (2, 2, 0, 0),
        (3, 3, 0, 1),
    ]
    assert any(
        "2 of 2 2: 3 events, 0 copies among them (0 %), 1 known from earlier runs" in line for line in said
    )
    assert backfill(config(two, until="2"), spark) == [] and "Nothing to do" in said[-1]
    with pytest.raises(ManifestError, match="by a backfill, so it is loaded already"):
        go(spark, two, batch_id="1", rerun=True)
    assert go(spark, two).counts["dropped"] == 1 and "committed (backfill)" in str(runs(config(two), spark))


@pytest.mark.slow
def test_a_backfill_from_an_output_takes_what_its_commits_list_and_knows_renamed_events(spark, two, said):
    shutil.copytree(two / "out/events/batch_id=1", two / "out/events/batch_id=9")
    stray = next((two / "out/events/batch_id=2").glob("*.parquet"))
    shutil.copy(stray, stray.with_name("part-stray.parquet"))
    archive = str(two / "out/events")
    loaded = Config(
        input=archive, output=str(two / "new"), input_format="parquet", batch_pattern="batch_id=*"
    )
    filled = backfill(loaded, spark)
    assert [(m["batch_id"], m["rows"]) for m in filled] == [("1", 2), ("2", 2)]
    assert "Left out, as no run has committed what lies there: 9." in "".join(said)
    story = explain("a", Config(output=str(two / "new"), input_format="parquet"), spark).data["claims"]
    assert [(c["fate"], c["first"]) for c in story] == [("under its own id", True), ("under a new id", False)]
    # what was loaded under a new id is known under both
    fed_back = next(r.event_id for r in committed(spark, two / "out", "2").collect() if r.original_event_id)
    write(spark, two / "in", {"7": [("a", "g", 9, 1), (fed_back, "g", 9, 2), ("q", "f", 9, 3)]})
    later = run(
        config(two, output=str(two / "new"), batch_id="7"), spark, RunOptions(accept_empty_manifest=True)
    )
    assert later.counts["dropped"] + later.counts["renamed"] == 2


def test_a_backfill_of_another_format_or_without_a_column_fills_nothing(spark, two):
    new = dict(output=str(two / "new"))
    with pytest.raises(DedupError, match="payload_hsh"):
        backfill(config(two, event_fingerprint="payload_hsh", **new), spark)
    with pytest.raises(DedupError, match="is Parquet, but input_format is enriched_tsv"):
        backfill(Config(input=str(two / "out/events/batch_id=1"), batch_id="1", **new), spark)
    assert not files(two / "new/manifest")


@pytest.mark.slow
def test_a_loaded_table_fills_the_manifest_day_by_day_under_the_ids_its_events_came_with(spark, tmp_path):
    loaded = [
        ("a", "f", "2026-11-01 08:00", None),
        ("n1", "g", "2026-11-01 09:00", "a"),
        ("b", "f", "2026-11-02 08:00", None),
        ("b", "f", "2026-11-03 08:00", None),
    ]
    frame = spark.createDataFrame(
        loaded, "event_id string, event_fingerprint string, etl_tstamp string, original_event_id string"
    )
    frame.withColumn("etl_tstamp", F.to_timestamp("etl_tstamp")).createOrReplaceTempView("loaded")
    source = Config(input="loaded", output=str(tmp_path / "out"), input_format="table")
    done = backfill(source, spark)
    assert [(d["batch_id"], d["rows"], d["repeats"]) for d in done] == [
        ("loaded@2026-11-01", 2, 0),
        ("loaded@2026-11-02", 2, 1),
    ]
    assert backfill(source, spark) == []


# --- by hand ---


@pytest.mark.slow
def test_forget_abandon_and_expire_say_what_they_would_do_first(spark, two, capsys):
    def said(*words):
        with pytest.raises(SystemExit) as end:
            main([*words, "--output", str(two / "out")])
        return end.value.code, "".join(capsys.readouterr())

    code, text = said("forget", "1")
    assert (
        code == 0
        and "Would take the pairs of batch 1 out" in text
        and "Batches that dropped rows in its favour: 2;" in text
    )
    for words, expected in {
        ("abandon", "1", "--yes"): "Batch 1 is committed: there is no open claim to abandon",
        ("forget", "11", "--yes"): "has no batch 11",
    }.items():
        code, text = said(*words)
        assert code != 0 and expected in text
    code, text = said("expire")
    assert code == 0 and "Would remove the keys of 0 batches" in text
    manifest = manifest_of(spark, two)
    manifest.begin("3", next(iter(manifest.ledger().times().values())), {"token": "t"})
    code, text = said("forget", "1", "--yes")
    assert code == 4 and "Batch 3 is claimed by process" in text and "dedup abandon 3" in text
    assert said("abandon", "3", "--yes")[0] == said("forget", "1", "--yes")[0] == 0
    code, text = said("runs", "--json")
    assert {r["batch_id"]: r["state"] for r in json.loads(text)} == {
        "1": "forgotten",
        "2": "committed",
        "3": "abandoned",
    }
    # loaded again: its own event must not fall for the key of it that batch 2 kept alive
    assert go(spark, two).counts["kept"] == 2 and shown(spark, two / "out", "1") == [
        ("b", 2),
        ("new of a", 1),
    ]


@pytest.mark.slow
def test_another_recipe_is_refused_and_forced_on_request(spark, two):
    write(spark, two / "in", {"3": [("a", "f", 3, 6)]})
    other = dict(retention_days=7, order_by="n")
    with pytest.raises(
        ManifestError, match="order_by was .*retention_days was 180, is now 7.*--force"
    ) as wrong:
        go(spark, two, **other)
    assert wrong.value.exit_code == 2
    assert go(spark, two, force=True, **other).counts["dropped"] == 1
    assert go(spark, two).batches == []  # what nobody sets is taken from the manifest


def test_deciding_claims_nothing_and_sees_what_is_committed(spark, two):
    write(spark, two / "in", {"3": [("a", "f", 3, 8), ("e", "f", 3, 9)]})
    before = files(two / "out/manifest")
    assert go(spark, two, mode="decide").counts["dropped"] == 1 and files(two / "out/manifest") == before


def test_two_inputs_with_the_same_batch_names_may_not_share_a_manifest(spark, two):
    write(spark, two / "other", {"1": [("q", "f", 1, 1), ("r", "f", 1, 2), ("s", "f", 1, 3)]})
    elsewhere = dict(output=str(two / "elsewhere"), manifest_path=str(two / "out/manifest"))
    with pytest.raises(
        ManifestError, match="has a batch 1 with other files, committed from .*Name the batches"
    ):
        run(config(two, input=str(two / "other"), **elsewhere), spark)


# --- what stands in the way ---


def test_a_manifest_that_cannot_be_used_stops_the_run_before_anything(spark, two):
    (two / "file").write_text("no folder")
    with pytest.raises(ManifestError, match="file/manifest cannot be used"):
        go(spark, two, manifest_path=str(two / "file/manifest"), accept_empty_manifest=True)
    spark.range(3).write.format("delta").save(str(two / "another"))
    before = files(two / "another")
    with pytest.raises(ManifestError, match="holds another table"):
        go(spark, two, manifest_path=str(two / "another"))
    assert files(two / "another") == before and stayed(spark, two) == STAYED


@pytest.mark.slow
def test_a_run_that_is_killed_after_its_commit_is_published_by_the_next(spark, two, said):
    "kill -9 between the commit in the manifest and files.json; test_killed has the other points."
    write(spark, two / "in", {"3": [("a", "f", 3, 1), ("q", "f", 3, 2)]})
    point = "the manifest has the commit, files.json is not written"
    killed = [sys.executable, str(ROOT / "tests/programs/killed_run.py"), point, two / "in", two / "out"]
    done = subprocess.run(killed, start_new_session=True, capture_output=True, text=True, timeout=120)
    assert done.returncode == -9, done.stderr[-2000:]
    assert not (two / "out/runs/3/files.json").exists() and states(spark, two)["3"] == "committed"
    # named by its id it is committed already, and finished all the same
    assert go(spark, two, batch_id="3").batches == []
    assert any("published now" in line for line in said) and shown(spark, two / "out", "3") == [("q", 2)]
    assert not list((two / "out/.staging").rglob("*.parquet"))


@pytest.mark.slow
def test_failed_runs_give_their_claim_back(spark, two, monkeypatch):
    write(spark, two / "in", {"3": [("q", "f", 3, 1), ("q", "f", 4, 2)]})
    before = files(two / "out/events")
    with pytest.raises(DedupError, match="above max_duplicate_share"):
        go(spark, two, max_duplicate_share=0.1)
    assert files(two / "out/events") == before and states(spark, two)["3"] == "abandoned"

    def full(*args):
        raise ManifestError("No space left on device. Nothing was committed")

    with monkeypatch.context() as patched:
        patched.setattr(LakeStore, "replace", full)
        with pytest.raises(ManifestError, match="No space left"):
            go(spark, two)
    assert files(two / "out/events") == before and states(spark, two)["3"] == "abandoned"


@pytest.mark.slow
def test_a_commit_whose_answer_is_lost_keeps_its_files(spark, two, monkeypatch):
    "The run is interrupted, asks, hears no, and only then the commit gets through."
    write(spark, two / "in", {"3": [("q", "f", 3, 1)]})
    real, asked, on_its_way = Manifest.commit, Manifest.is_committed, []

    def interrupted(*args):
        on_its_way.append(args)
        raise KeyboardInterrupt

    def ask(self, *args):
        found = asked(self, *args)
        if on_its_way:
            real(*on_its_way.pop())
        return found

    with monkeypatch.context() as patched:
        patched.setattr(Manifest, "commit", interrupted)
        patched.setattr(Manifest, "is_committed", ask)
        with pytest.raises(KeyboardInterrupt):
            go(spark, two)
    assert not (two / "out/runs/3/files.json").exists()
    assert go(spark, two).batches == [] and shown(spark, two / "out", "3") == [("q", 1)]


@pytest.mark.slow
def test_a_run_whose_claim_was_ended_writes_nothing_into_a_delta_table(spark, tmp_path, monkeypatch):
    from dedup_nb.pipeline import commit

    write(spark, tmp_path / "in", TWO)
    go(spark, tmp_path, output_format="delta", batch_id="1")
    real = commit.check_shares

    def ended(*args):
        manifest_of(spark, tmp_path).abandon("2")
        return real(*args)

    monkeypatch.setattr(commit, "check_shares", ended)
    with pytest.raises(FencedError, match="Batch 2 was taken over, or its claim ended"):
        go(spark, tmp_path, output_format="delta", batch_id="2")
    assert spark.read.format("delta").load(str(tmp_path / "out/events")).count() == 2


@pytest.mark.slow
def test_a_run_that_failed_binds_nobody(spark, tmp_path):
    write(spark, tmp_path / "in", {"1": [*TWO["1"], ("a", "f", 9, 9), ("a", "g", 9, 9)]})
    with pytest.raises(DedupError, match="recieved_at"):
        go(spark, tmp_path, order_by="recieved_at")
    with pytest.raises(DedupError, match="above max_duplicate_share"):
        go(spark, tmp_path, synthetic="off", max_duplicate_share=0.1)
    assert not (tmp_path / "out/runs/recipe.json").exists()
    # a run that only decides is there to look
    assert go(spark, tmp_path, synthetic="off", max_duplicate_share=0.1, mode="decide").counts["dropped"] == 1
    counts = go(spark, tmp_path).counts
    assert (counts["kept"], counts["renamed"]) == (3, 1)


@pytest.mark.slow
def test_a_batch_id_may_hold_signs_but_no_path(spark, tmp_path):
    write(spark, tmp_path / "in", {"x": [("a", "f", 1, 1)]})

    def one(batch_id):
        return run(config(tmp_path, input=str(tmp_path / "in/run=x"), batch_id=batch_id), spark)

    for batch_id in ("../../evil", "a/b", "it's", ".."):
        with pytest.raises(DedupError, match="batch_id cannot be part of a folder name"):
            one(batch_id)
    odd = "a=b+c@d,e-ü"
    assert [m["batch_id"] for m in one(odd).batches] == [odd] and shown(spark, tmp_path / "out", odd) == [
        ("a", 1)
    ]
    assert forget(odd, config(tmp_path), spark, yes=True).data["done"]
    assert {p.name for p in tmp_path.iterdir()} == {"in", "out"}

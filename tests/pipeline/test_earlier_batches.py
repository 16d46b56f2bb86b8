"Batches that know one another: any cut, reruns, strategies, retention, what stands in the way."

import shutil
import subprocess
import sys
from collections import Counter
from unittest.mock import Mock

import pytest
from conftest import ROOT
from runs import (
    DAY,
    STAYED,
    TWO,
    committed,
    config,
    files,
    go,
    manifest_of,
    record,
    shown,
    states_in,
    stayed,
    write,
)

from dedup_nb import run
from dedup_nb.base.errors import AlarmError, ConfigError, DedupError
from dedup_nb.manifest.lake import LakeStore
from dedup_nb.manifest.ledger import FencedError, ManifestError
from dedup_nb.manifest.protocol import Manifest
from dedup_nb.operate.history import expire, forget
from dedup_nb.pipeline import commit, decide
from dedup_nb.pipeline import run as pipeline

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


# --- another run is at the same batches ---


@pytest.mark.parametrize("place", [(pipeline, "look_back"), (decide, "_stage_keys")], ids=["claim", "scan"])
def test_a_batch_that_another_run_commits_meanwhile_is_done(spark, tmp_path, monkeypatch, place):
    "Before the claim, or so that the files that were staged go while they are read."
    write(spark, tmp_path / "in", TWO)
    module, name = place
    real = getattr(module, name)

    def with_another_run(*args):
        monkeypatch.setattr(module, name, real)
        found = real(*args) if name == "_stage_keys" else None
        go(spark, tmp_path, batch_id="1")
        return found or real(*args)

    monkeypatch.setattr(module, name, with_another_run)
    summary = go(spark, tmp_path)
    assert [m["batch_id"] for m in summary.batches] == ["2"]
    assert "batch 1: another run has committed it meanwhile" in summary.notes
    assert stayed(spark, tmp_path) == STAYED
    assert states_in(spark, tmp_path) == {"1": "committed", "2": "committed"}
    assert not any(p.is_file() for p in (tmp_path / "out/.staging").rglob("*"))


def test_a_batch_that_was_forgotten_and_cannot_be_read_is_not_taken_as_done(spark, two):
    forget("1", config(two), spark, yes=True)
    [file] = (two / "in/run=1").glob("*.parquet")
    file.write_bytes(b"PAR1 no more")
    with pytest.raises(DedupError, match="run=1") as wrong:
        go(spark, two)
    assert "meanwhile" not in str(wrong.value) and "committed already" not in str(wrong.value)


def test_a_batch_that_stops_the_run_is_named_with_the_way_on(spark, tmp_path, capsys):
    write(spark, tmp_path / "in", TWO)
    with pytest.raises(AlarmError):
        go(spark, tmp_path, max_duplicate_share=0.01)
    words = "batch 2 stops the run, 1 of 2 batches done. To go on without it: --skip-batches 2"
    assert words in capsys.readouterr().out


# --- reruns ---


@pytest.mark.slow
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
    assert stayed(spark, two) == STAYED and states_in(spark, two) == {"1": "committed", "2": "committed"}


@pytest.mark.slow
def test_a_rerun_after_the_retention_changed_is_refused(spark, two):
    "It would see other batches than the first time."
    write(spark, two / "in", {"3": [("d", "f", 3, 6)]})
    go(spark, two, retention_days=7, force=True)
    with pytest.raises(ManifestError, match="retention_days was 180, is now 7.*dedup forget 2"):
        go(spark, two, batch_id="2", rerun=True)
    assert stayed(spark, two) == STAYED


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


@pytest.mark.slow
def test_a_rerun_that_would_no_longer_see_whose_id_it_gave_up_is_refused(spark, tmp_path):
    write(spark, tmp_path / "in", {"1": [("a", "f", 1, 1)], "2": [("a", "g", 2, 3)]})
    assert go(spark, tmp_path).batches[1]["cross_batch"]["collided_with"] == {"1": 1}
    forget("1", config(tmp_path), spark, yes=True)
    with pytest.raises(ManifestError, match="gave ids up because batch 1 had them, which was forgotten"):
        go(spark, tmp_path, batch_id="2", rerun=True)


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
    left = {p.parent.parent.name for p in (tmp_path / "out/dropped").rglob("*.parquet")}
    assert left == {"batch_id=2", "batch_id=3"}
    write(
        spark,
        tmp_path / "in",
        {"0": [("b", "f", DAY, 9)], "4": [("a", "f", 12 * DAY, 10), ("a", "g", 12 * DAY, 11)]},
    )
    with pytest.raises(ManifestError, match="Batch 0 .* is so old that it would have seen the pairs of 1"):
        go(spark, tmp_path, retention_days=10, until="0")
    assert go(spark, tmp_path, retention_days=10, since="4").counts["dropped"] == 2


# --- by hand ---


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
    assert not (two / "out/runs/3/files.json").exists() and states_in(spark, two)["3"] == "committed"
    # named by its id it is committed already, and finished all the same
    assert go(spark, two, batch_id="3").batches == []
    assert any("published now" in line for line in said) and shown(spark, two / "out", "3") == [("q", 2)]
    assert not list((two / "out/.staging").rglob("*.parquet"))


@pytest.mark.slow
def test_deciding_leaves_alone_what_a_run_that_died_has_to_publish(spark, two, monkeypatch):
    write(spark, two / "in", {"3": [("a", "f", 3, 1), ("q", "f", 3, 2)]})
    with monkeypatch.context() as patched:
        patched.setattr(commit, "publish", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            go(spark, two)
    with pytest.raises(ConfigError, match="Batch 3 is already applied.*died before it published.*mode=apply"):
        go(spark, two, mode="decide", batch_id="3", rerun=True)
    go(spark, two, mode="decide", batch_id="3", manifest="none")  # which cannot know it
    assert go(spark, two).batches == [] and shown(spark, two / "out", "3") == [("q", 2)]


@pytest.mark.slow
def test_failed_runs_give_their_claim_back(spark, two, monkeypatch):
    write(spark, two / "in", {"3": [("q", "f", 3, 1), ("q", "f", 4, 2)]})
    before = files(two / "out/events")
    with pytest.raises(DedupError, match="above max_duplicate_share"):
        go(spark, two, max_duplicate_share=0.1)
    assert files(two / "out/events") == before and states_in(spark, two)["3"] == "abandoned"

    for wrong, why in {
        ManifestError("No space left on device"): "ManifestError: No space left on device",
        KeyboardInterrupt(): "interrupted",
    }.items():
        with monkeypatch.context() as patched:
            patched.setattr(LakeStore, "replace", Mock(side_effect=wrong))
            with pytest.raises(type(wrong)):
                go(spark, two)
        assert files(two / "out/events") == before and states_in(spark, two)["3"] == "abandoned"
        assert manifest_of(spark, two).ledger().entries["3"].info["why"] == why


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


@pytest.mark.soak
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

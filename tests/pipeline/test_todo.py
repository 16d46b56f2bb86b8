"Which batches are to do: committed folders that changed, late files, limits."

import gzip
import re
import shutil
import time
from dataclasses import replace

import pytest
from ledgers import RECIPE, Dictionary, begin
from runs import DAY, change_input, config, files, go, heard, shown, write

from dedup_nb import run
from dedup_nb.base.config import Limits
from dedup_nb.base.errors import ConfigError
from dedup_nb.formats.batches import Batch, InputFile
from dedup_nb.manifest.ledger import Ledger, ManifestError, Marker, this_process
from dedup_nb.manifest.protocol import Manifest
from dedup_nb.operate.history import forget
from dedup_nb.pipeline.job import RunOptions
from dedup_nb.pipeline.todo import choose_batches, compare_with_commits, record_input


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
    with heard() as lines:  # the command shows its summary right after
        nothing = run(config(two), spark, RunOptions(alone=True))
    assert str(nothing).count("  TROUBLE   Batch 1 is committed") == 1
    assert not any("its input changed" in line for line in lines)
    write(spark, two / "in", {"3": [("e", "f", 3, 1)]})
    summary = go(spark, two)
    assert [m["batch_id"] for m in summary.batches] == ["3"] and summary.exit_code == 1
    assert "1" in summary.troubles[0] and path.name in summary.troubles[0]


def test_where_nothing_is_to_do_the_run_says_why(spark, two, tmp_path, said):
    again = go(spark, two, since="2027")
    assert "since=2027 leaves out all 2 batches (1 to 2)" in said
    assert "Nothing to do" in str(again) and f"dedup runs --output {again.output} lists them" in str(again)
    (tmp_path / "new/in").mkdir(parents=True)
    first = go(spark, tmp_path / "new", input_format="auto")
    assert any(line.startswith("no file is in ") for line in said)
    assert str(first) == "Nothing to do: no batch is left to process." and first.exit_code == 0


@pytest.mark.slow
def test_a_first_folder_without_files_binds_nobody(spark, tmp_path, said):
    "It has no columns, and the first batch says what stands in for missing fingerprints."
    (tmp_path / "in/run=1").mkdir(parents=True)
    frame = spark.createDataFrame([("a", 1), ("a", 2)], "event_id string, n int")
    frame.write.parquet(str(tmp_path / "in/run=2"))
    first = go(spark, tmp_path)
    assert [m["counts"]["kept"] for m in first.batches] == [1]
    assert "without files, or with empty ones, left for a later run: 1" in said
    assert [m["batch_id"] for m in go(spark, tmp_path).batches] == ["1"]


@pytest.mark.slow
def test_a_first_file_without_a_line_binds_nobody(spark, tmp_path, said):
    for hour, text in (("00", ""), ("03", '{"event_id": "a", "n": 1}\n{"event_id": "a", "n": 2}\n')):
        (tmp_path / f"in/run={hour}").mkdir(parents=True)
        (tmp_path / f"in/run={hour}/a.json").write_text(text)
    for hour, content in (("001", b" \n\n"), ("002", gzip.compress(b"\n"))):
        (tmp_path / f"in/run={hour}").mkdir(parents=True)
        (tmp_path / f"in/run={hour}/a.json{'.gz' * (content[0] == 31)}").write_bytes(content)
    assert go(spark, tmp_path, input_format="json").counts["kept"] == 1
    assert "without files, or with empty ones, left for a later run: 00, 001, 002" in said


def test_what_does_not_fit_the_manifest_is_refused_and_changes_nothing(spark, two):
    change_input(two, "2")
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


# --- by the ledger, without Spark


def folder(name, batch_id=None, at="/in", **files):
    listed = (InputFile(f"{at}/run={name}/{path}", size) for path, size in sorted(files.items()))
    return Batch(batch_id or name, tuple(listed), f"{at}/run={name}")


def ledger_of_folders(output, *batches, source=None, **more):
    "The ledger of an output in which these were committed."
    markers = [Marker(0, "recipe", "", RECIPE)]
    for seq, b in enumerate(batches, 1):
        info = {"token": "t", "first_seq": seq, "etl": 0, "source": source or b.source, **more}
        markers.append(Marker(seq, "commit", b.batch_id, {**info, "input": record_input(output, b)}))
    return Ledger(markers)


A = folder("1", a=10, b=20)


@pytest.mark.parametrize(
    "now, note, trouble",
    [
        (A, None, None),
        (folder("1", a=10, b=20, c=1), "its folder has 1 new file since; the first is c", None),
        (folder("1", a=10, b=20, c=1, d=1), "2 new files since; the first is c", None),
        (folder("1", a=10, b=21), None, r"b was rewritten \(21 bytes, had 20\)"),
        (folder("1", a=10), None, "b is gone"),
        (folder("1", c=10), "1 new file", "a, b are gone"),
        (folder("1", a=11, c=5), "1 new file", r"b is gone; a was rewritten \(11 bytes, had 10\)"),
        (folder("elsewhere", "1", a=10, b=21), None, "from /in/run=1, so /in/run=elsewhere is left"),
        (folder("1", at="/moved", a=10, b=20), None, None),
        (folder("elsewhere", "1", a=10, b=20), None, None),  # the same files, renamed folder
        (Batch("1", (), "/in/run=1"), None, "a, b are gone"),
        (Batch("1", (), "/in/table"), None, None),
    ],
)  # fmt: skip
def test_a_committed_folder_that_changed_is_never_passed_over_in_silence(tmp_path, now, note, trouble):
    chosen = compare_with_commits([now], ledger_of_folders(str(tmp_path), A), str(tmp_path))
    assert len(chosen.notes) == bool(note) and len(chosen.troubles) == bool(trouble)
    if note:
        assert note in chosen.notes[0] and "--late-files" in chosen.notes[0]
    if trouble:
        assert re.search(trouble, chosen.troubles["1"])
        assert (
            "left out" in chosen.troubles["1"]
            or "dedup forget 1 --output DIR --yes, then dedup run" in chosen.troubles["1"]
        )
    assert choose_batches(chosen.batches, Limits(), ledger_of_folders(str(tmp_path), A)) == []


def test_a_table_that_names_no_files_has_lost_none(tmp_path):
    ledger = ledger_of_folders(str(tmp_path), A, table_id="t")
    assert not compare_with_commits([replace(A, files=())], ledger, str(tmp_path)).troubles


def test_late_files_are_batches_of_their_own_and_no_folder_is_taken_for_them(tmp_path):
    output, twin = str(tmp_path), folder("1+1", z=1)
    grown, twice = folder("1", a=10, b=20, c=1), folder("1", a=10, b=20, c=1, d=2)

    def compared(batches, ledger, **more):
        found = compare_with_commits(batches, ledger, output, **more)
        assert not found.troubles
        todo = choose_batches(found.batches, Limits(), ledger)
        return [(b.batch_id, [f.path[-1] for f in b.files]) for b in todo]

    one = ledger_of_folders(output, A)
    assert compared([grown, twin], one) == [("1+1", ["z"])]
    assert compared([grown, twin], one, take_late=True) == [("1+1", ["z"]), ("1~1", ["c"])]
    late = folder("1", "1~1", c=1)
    two = ledger_of_folders(output, A, late, twin)
    assert compared([grown, twin], two, take_late=True) == []
    assert compared([twice, twin], two, take_late=True) == [("1~2", ["d"])]
    forgotten = Ledger([*two.markers, Marker(4, "forget", "1", {})])
    assert compared([twice, twin], forgotten) == [("1", ["a", "b", "d"])]


def test_two_inputs_with_the_same_batch_names_may_not_share_a_manifest(tmp_path):
    ledger = ledger_of_folders(str(tmp_path / "one"), A)
    other = replace(folder("1", a=99), source="/other/run=1")
    with pytest.raises(
        ManifestError, match="has a batch 1 with other files, committed from /in/run=1.*--batch"
    ):
        compare_with_commits([other], ledger, str(tmp_path / "two"))  # fmt: skip


ABC = [Batch(name, (), name) for name in ("2026-11-18", "2026-11-19", "2026-11-20")]


@pytest.mark.parametrize(
    "limits, expected",
    [
        ({}, "19 18 20"),  # the unfinished one first
        ({"batch_id": "2026-11-18"}, "18"),
        ({"since": "2026-11-19"}, "19 20"),
        ({"until": "2026-11-18"}, "18"),
        ({"since": "2026-11", "until": "2026-11", "max_batches": 1}, "19 18 20"),
        ({"skip_batches": ("2026-11-19", "2026-11-20")}, "18"),
        ({"since": "2027"}, ""),
        ({"rerun": True}, "19 18 20"),
    ],
)
def test_batches_are_chosen_by_the_limits_unfinished_ones_first(limits, expected):
    begun = Ledger([Marker(1, "claim", "2026-11-19", {"token": "t"})])
    found = choose_batches(ABC, Limits(**limits), begun)
    assert [b.batch_id[-2:] for b in found] == expected.split()
    given_up = Ledger([*begun.markers, Marker(2, "abandon", "2026-11-19", {"token": "t"})])
    found = choose_batches(ABC, Limits(**limits), given_up)
    assert [b.batch_id[-2:] for b in found] == sorted(expected.split())


@pytest.mark.parametrize(
    "limits, kind, words",
    [
        ({"max_batches": 2}, ConfigError, "3 batches are to do, more than max_batches = 2: 2026-11-18, "),
        ({"skip_batches": ("2026-11-1",)}, ConfigError, "names 2026-11-1; .*Did you mean 2026-11-1"),
        ({"batch_id": "2026-11-17"}, ManifestError, "Batch 2026-11-17 is committed already"),
    ],
)  # fmt: skip
def test_batches_that_cannot_be_chosen_are_named(limits, kind, words):
    done = committed_ledger(["2026-11-17"])
    with pytest.raises(kind, match=words):
        choose_batches([Batch("2026-11-17", (), ""), *ABC], Limits(**limits), done)


# --- many batches


def committed_ledger(names, digest=None):
    info = {"token": "t", "etl": 0, "counts": {}, "source": "/in/run=x", "input": digest, **this_process()}
    return Ledger(
        [
            Marker(0, "recipe", "", RECIPE),
            *(Marker(n, "commit", name, {**info, "first_seq": n}) for n, name in enumerate(names, 1)),
        ]
    )


def test_what_is_done_before_the_first_job_grows_with_the_batches_and_not_faster(tmp_path):
    digest = record_input(str(tmp_path), folder("x", a=1, b=2))

    def seconds(number):
        names = [f"b{n:06}" for n in range(number)]
        store = Dictionary()
        store.places = {m.seq: m for m in committed_ledger(names, digest).markers}
        batches = [folder("x", name, a=1, b=2) for name in [*names, "new"]]
        m = Manifest(store, RECIPE)
        start = time.process_time()
        ledger = m.ledger()
        chosen = compare_with_commits(batches, ledger, str(tmp_path))
        [new] = choose_batches(chosen.batches, Limits(skip_batches=tuple(names[:50])), ledger)
        claim = begin(m, new.batch_id, 5)
        m.commit(claim, (), {"counts": {}})
        assert m.expirable(90 * DAY)[:-1] == names and m.relying_on(names[-1]) == []
        return time.process_time() - start

    few, many = (min(seconds(n) for _ in range(2)) for n in (2_500, 10_000))
    assert many < 9 * few and many < 10

"Batches: which folders are one, what each holds, and which are let through."

import pytest
from inputs import found_in, ids, make_files, write_lines

from dedup_nb.base.config import Config, Input, Limits, limits_of
from dedup_nb.base.errors import ConfigError, InputError, MissingInputError
from dedup_nb.base.storage import in_order, names_in
from dedup_nb.formats.batches import (
    Batch,
    check_limits,
    find_batches,
    is_asked_for,
    late_id,
    limits_in_words,
)

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.mark.parametrize(
    "files, pattern, expected",
    [
        (["run=2026-11-20/b", "run=2026-11-19/deep/er/a"], "run=*", ["2026-11-19", "2026-11-20"]),
        (
            ["dt=20/hour=02/a", "dt=20/hour=10/a", "dt=19/hour=23/a"],
            "dt=*/hour=*",
            ["19_23", "20_02", "20_10"],
        ),
        (["run=1/part-0", "run=1/_SUCCESS", "run=1/.part.crc", "_tmp/run=2/x"], "run=*", ["1"]),
        (["sub/a.tsv", "b.tsv"], "run=*", ["events"]),
        (["x-1/a", "x-2/a"], "x-*", ["1", "2"]),
    ],
    ids=["oldest first", "several levels", "hidden names", "no folders", "another pattern"],
)
def test_folders_that_match_are_batches(tmp_path, files, pattern, expected):
    for name in files:
        write_lines(tmp_path / "events" / name, "x")
    assert ids(tmp_path / "events", batch_pattern=pattern) == expected


def test_a_batch_knows_its_files_with_their_size(tmp_path):
    path = write_lines(tmp_path / "run=1" / "deep" / "a", "12345")
    write_lines(tmp_path / "run=1" / "_SUCCESS")
    [batch] = found_in(tmp_path).batches
    [file] = batch.files
    assert (file.path, file.size, batch.bytes, batch.source) == (str(path), 6, 6, str(tmp_path / "run=1"))
    assert batch.by_path() == {"deep/a": file}


def test_the_users_scheme_is_kept(tmp_path):
    write_lines(tmp_path / "run=1" / "a", "x")
    [batch] = found_in(f"file:{tmp_path}").batches
    assert batch.files[0].path == f"file://{tmp_path}/run=1/a"


@pytest.mark.parametrize(
    "path, place, batch_id",
    [
        ("run=2026-11-20", {}, "2026-11-20"),
        ("run=2026-11-20/", {}, "2026-11-20"),
        ("run=2026-11-20/a.tsv.gz", {}, "a"),
        ("dt=20/hour=05", {"batch_pattern": "dt=*/hour=*"}, "20_05"),
        ("no/folders", {}, "folders"),
    ],
)
def test_an_input_that_is_one_batch_is_named_by_its_path(tmp_path, path, place, batch_id):
    for name in ("run=2026-11-20/a.tsv.gz", "dt=20/hour=05/a", "no/folders/x.tsv"):
        write_lines(tmp_path / name, "x")
    assert ids(f"{tmp_path}/{path}", **place) == [batch_id]
    assert ids(tmp_path / "no" / "folders", "mine") == ["mine"]


def test_a_given_batch_id_picks_that_folder(tmp_path):
    for day in (19, 20):
        write_lines(tmp_path / f"run=2026-11-{day}" / "a", "x")
    assert ids(tmp_path, "2026-11-19") == ["2026-11-19"]
    words = "Wanted batch 2026-11-2; .* has 2026-11-19, 2026-11-20.* Did you mean 2026-11-20"
    with pytest.raises(MissingInputError, match=words):
        ids(tmp_path, "2026-11-2")


@pytest.mark.parametrize("path, batch_id", [("lake.web.events", "events"), ("`a b`.`events`", "events")])
def test_a_table_is_one_batch(path, batch_id):
    assert found_in(path, format="table").batches == (Batch(batch_id, (), path),)


def test_files_beside_the_batch_folders_are_said(tmp_path):
    for name in ("run=1/a", "stray-1.tsv", "other/stray-2.tsv"):
        write_lines(tmp_path / name, "x")
    [note] = found_in(tmp_path).notes
    assert note.startswith("2 files lie beside the batch folders (run=*), in no batch; the first is ")
    assert note.endswith("other/stray-2.tsv")


@pytest.mark.parametrize(
    "folders, pattern",
    [
        (["dt=20/hour=02", "dt=20/hour=10"], "dt=*/hour=*"),
        (["date=2026-11-20"], "date=*"),
        (["dt=20/plain"], None),
        (["day1", "day2/deep"], "day*"),
        (["2026-11-19", "2026-11-20"], "*"),
        (["dt=20", "dt=21/plain"], "dt=*"),
        (["day1", "day2", "old"], None),
        (["day1", "day2", "."], None),
        (["a", "b"], None),
    ],
)
def test_folders_that_look_like_batches_by_another_pattern_are_said(tmp_path, folders, pattern):
    for name in folders:
        write_lines(tmp_path / "in" / name / "a", "x")
    found = found_in(tmp_path / "in")
    assert [b.batch_id for b in found.batches] == ["in"]
    expected = (
        f"the folders of {tmp_path}/in look like {pattern}, and are taken as one batch, in; "
        f"for a batch each: --batch-pattern '{pattern}'"
    )
    assert found.notes == ((expected,) if pattern else ())


def test_a_missing_path_names_what_is_there(tmp_path):
    (tmp_path / "events").mkdir()
    with pytest.raises(MissingInputError) as wrong:
        ids(tmp_path / "evnets" / "run=1")
    for words in (f"{tmp_path} has events", "Did you mean events?", "--input"):
        assert words in str(wrong.value)


def test_a_missing_setting_is_said():
    with pytest.raises(ConfigError, match="--input"):
        find_batches(Input(""))


@pytest.mark.parametrize("name", ["a b", "-x", "a'b", "ü;", "x" * 181, "1~2x", "1~", "erasures"])
def test_an_unfit_folder_is_named_and_the_others_go_on(tmp_path, name):
    for folder in ("run=1", f"run={name}"):
        write_lines(tmp_path / folder / "a", "x")
    found = found_in(tmp_path)
    assert [b.batch_id for b in found.batches] == ["1"]
    assert f"run={name}: {name!r} cannot name a batch: " in found.unfit[0]
    with pytest.raises(InputError, match="cannot name a batch"):
        ids(tmp_path, name)


@pytest.mark.parametrize("name", ["1+1", "a@b", "2026-11-20_13", "x" * 180])
def test_a_folder_name_cannot_be_taken_for_late_files(tmp_path, name):
    write_lines(tmp_path / f"run={name}" / "a", "x")
    assert ids(tmp_path) == [name]
    write_lines(tmp_path / "run=1~1" / "a", "x")
    found = found_in(tmp_path)
    assert [b.batch_id for b in found.batches] == [name] and "'1~1' cannot name a batch" in found.unfit[0]
    assert late_id("1", 1) == "1~1"


def test_two_folders_with_one_id_are_both_left_out(tmp_path):
    for name in ("a=1_2/b=3/f", "a=1/b=2_3/f", "a=9/b=9/f"):
        write_lines(tmp_path / name, "x")
    found = found_in(tmp_path, batch_pattern="a=*/b=*")
    assert [b.batch_id for b in found.batches] == ["9_9"]
    assert "would both be batch 1_2_3" in found.unfit[0]


@pytest.mark.parametrize(
    "limits, asked_for",
    [
        ({}, ["1-18", "1-19", "1-19~1", "2-01"]),
        ({"since": "1-19"}, ["1-19", "1-19~1", "2-01"]),
        ({"until": "1"}, ["1-18", "1-19", "1-19~1"]),
        ({"since": "1-19", "until": "1-19"}, ["1-19", "1-19~1"]),
        ({"batch_id": "1-19"}, ["1-19", "1-19~1"]),
        ({"batch_id": "1-19~1"}, ["1-19~1"]),
        ({"skip_batches": ("1-19", "2-01")}, ["1-18", "1-19~1"]),
    ],
)
def test_limits_let_batches_through_as_far_as_they_are_written(limits, asked_for):
    batches = ["1-18", "1-19", "1-19~1", "2-01"]
    assert [b for b in batches if is_asked_for(b, Limits(**limits))] == asked_for


def batches_found(batch_id=None, **more):
    found = find_batches(Input(**{"path": "in", **more}), batch_id)
    return {b.batch_id: sorted(b.by_path()) for b in found.batches}, found


@pytest.mark.parametrize(
    "pattern, batches",
    [
        ("run=*", {"1": ["a", "x/b"], "2": ["a"]}),
        ("run=*/x", {"1": ["b"]}),
        ("run=2", {"run=2": ["a"]}),
        ("*", {"run=1": ["a", "x/b"], "run=2": ["a"], "other": ["a"]}),
        ("day=*", {"in": ["other/a", "run=1/a", "run=1/x/b", "run=2/a"]}),
    ],
)
def test_a_pattern_cuts_the_input_into_batches(pattern, batches):
    make_files("in/run=1/a", "in/run=1/x/b", "in/run=2/a", "in/other/a", "in/_hidden/a", "in/run=1/.crc")
    found, listed = batches_found(batch_pattern=pattern)
    assert found == batches and listed.unfit == ()
    assert bool(listed.notes) == (pattern != "*")


def test_several_levels_make_one_name_and_folders_that_look_like_batches_are_said():
    make_files("in/dt=2026-11-20/hour=07/a", "in/dt=2026-11-20/hour=08/a")
    assert list(batches_found(batch_pattern="dt=*/hour=*")[0]) == ["2026-11-20_07", "2026-11-20_08"]
    found, listed = batches_found()
    assert list(found) == ["in"] and "for a batch each: --batch-pattern 'dt=*/hour=*'" in listed.notes[0]
    assert list(batches_found(path="in/dt=2026-11-20/hour=07", batch_pattern="dt=*/hour=*")[0]) == [
        "2026-11-20_07"
    ]


@pytest.mark.parametrize(
    "files, more, words",
    [
        (
            "eu/x/a us/a",
            {"batch_pattern": "eu*"},
            "fits --batch-pattern 'eu*': eu, us are taken as one batch, in",
        ),
        ("eu/x/a us/a", {"batch_pattern": "dt=*"}, "no folder of in fits --batch-pattern 'dt=*': eu, us"),
        ("eu/x/a us/a", {}, None),
        ("a", {"batch_pattern": "dt=*"}, None),
        ("eu/x/a", {"batch_pattern": "i*"}, None),
        (".a _b", {}, "no file is in in (names that begin with a dot"),
    ],
)
def test_a_pattern_that_no_folder_fits_and_an_input_without_files_are_said(files, more, words):
    make_files(*(f"in/{name}" for name in files.split()))
    _, listed = batches_found(**more)
    assert [words in note for note in listed.notes] == [True] * bool(words) if words else not listed.notes


def test_folders_that_cannot_be_batches_are_named_and_left_out_and_the_others_go_on():
    odd = ["a b", "1~1", "-x", "ü$", "x" * 200]
    make_files(
        "in/run=1/a", "in/run=1+1/a", "in/run=dé-1/a", *(f"in/run={name}/a" for name in odd), "in/beside"
    )
    found, listed = batches_found()
    assert list(found) == ["1", "1+1", "dé-1"]
    assert len(listed.unfit) == len(odd) and all("cannot name a batch" in words for words in listed.unfit)
    assert all(any(f"run={name}: " in words for words in listed.unfit) for name in odd)
    assert "1 file lies beside the batch folders (run=*), in no batch; the first is" in listed.notes[0]
    with pytest.raises(InputError, match="'a b' cannot name a batch"):
        batches_found("a b")
    with pytest.raises(MissingInputError, match="Wanted batch 3; .* has 1, 1\\+1, dé-1. Correct batch_id"):
        batches_found("3")
    assert list(batches_found("1")[0]) == ["1"] and list(batches_found("mine", path="in/beside")[0]) == [
        "mine"
    ]


def test_the_output_of_a_run_may_have_folders_of_late_files(own_folder):
    make_files("out/events/batch_id=1/a", "out/events/batch_id=1~1/a", "in/run=1~1/a")
    found = find_batches(Input(f"{own_folder}/out/events", batch_pattern="batch_id=*"))
    assert [b.batch_id for b in found.batches] == ["1", "1~1"] and not found.unfit
    assert "1~1" in find_batches(Input(f"{own_folder}/in")).unfit[0]


def test_two_folders_of_one_name_are_named_and_neither_is_taken():
    make_files("in/a=1/b=2_3/f", "in/a=1_2/b=3/f", "in/a=1/b=4/f")
    found, listed = batches_found(batch_pattern="a=*/b=*")
    assert list(found) == ["1_4"] and "would both be batch 1_2_3" in listed.unfit[0]


def test_an_input_that_is_not_there_names_what_is_near():
    make_files("events/a")
    for path in ("evnts", "evnts/deeper/still"):
        with pytest.raises(MissingInputError, match="it is not there. .* has events. Did you mean events?"):
            batches_found(path=path)
    with pytest.raises(ConfigError, match="Wanted the setting input"):
        batches_found(path=None)
    assert list(batches_found(path="db.`events`", format="table")[0]) == ["events"]
    with pytest.raises(InputError, match="Or name the batch yourself with batch_id"):
        batches_found(path="db.`my events`", format="table")


def test_numbers_in_the_names_of_batches_compare_as_numbers():
    make_files(*(f"in/month={m}/day={d}/a" for m, d in ((11, 2), (2, 11), (2, 3), ("02", 3))))
    assert list(batches_found(batch_pattern="month=*/day=*")[0]) == ["02_3", "2_3", "2_11", "11_2"]
    make_files("out/runs/v10/a", "out/runs/v9/a", "out/runs/v9~10/a", "out/runs/v9~2/a")
    assert names_in("out/runs") == ["v9", "v9~2", "v9~10", "v10"]


HOURS = ["2026-03-01_9", "2026-03-01_10", "2026-03-02_0", "2026-03-10_1"]
DAYS = ["20261031", "20261101T09", "20261120", "20261201"]


@pytest.mark.parametrize(
    "names, limits, asked",
    [
        (HOURS, {"since": "2026-03-01_9"}, HOURS),
        (HOURS, {"since": "2026-03-01_10"}, HOURS[1:]),
        (HOURS, {"until": "2026-03-01_9"}, HOURS[:1]),
        (HOURS, {"since": "2026-03-01", "until": "2026-03-01"}, HOURS[:2]),
        (HOURS, {"since": "2026-3-2", "until": "2026-03-09"}, HOURS[2:3]),
        (["v9", "v10", "v10~1", "v11"], {"since": "v10", "until": "v10"}, ["v10", "v10~1"]),
        (["9999", "10000"], {"since": "9999"}, ["9999", "10000"]),
        (DAYS, {"since": "202611", "until": "202611"}, DAYS[1:3]),
        (DAYS, {"since": "20261120"}, DAYS[2:]),
        (DAYS, {"until": "2026"}, DAYS),
    ],
)
def test_limits_follow_the_order_of_batches(names, limits, asked):
    assert [n for n in sorted(names, key=in_order) if is_asked_for(n, Limits(**limits))] == asked


@pytest.mark.parametrize(
    "names, limits, words",
    [
        (DAYS, {"since": "2027"}, "since=2027 leaves out all 4 batches (20261031 to 20261201)"),
        (DAYS[:1], {"until": "2025"}, "until=2025 leaves out the only batch, 20261031"),
        (
            ["a", "b"],
            {"since": "b", "skip_batches": ("b",)},
            "since=b and skip_batches=b leave out all 2 batches (a to b)",
        ),
        (DAYS, {"since": "20261120"}, ""),
        ([], {"since": "2027"}, ""),
    ],
)
def test_limits_that_leave_out_all_batches_are_said(names, limits, words):
    assert limits_in_words([Batch(name, (), "") for name in names], Limits(**limits)) == words


@pytest.mark.parametrize(
    "since, until, fits",
    [
        ("2026-11-02", "2026-11-01", False),
        ("2027", "2026-11", False),
        ("day-10", "day-9", False),
        ("2026-11-02", "2026-11", True),
        ("2026", "2026-11-01", True),
        ("20261120", "2026", True),
        ("v9", "v10", True),
        ("a", None, True),
    ],
)
def test_since_comes_before_until(since, until, fits):
    limits = Limits(since=since, until=until)
    if fits:
        return check_limits(limits)
    with pytest.raises(ConfigError, match=f"since={since} comes after until={until}.* Exchange them"):
        check_limits(limits)


def test_what_spark_reads_is_in_a_batch_and_what_it_passes_by_is_not():
    make_files(
        "in/_day=1/_k=2/a", "in/_day=1/_SUCCESS", "in/_tmp/a", "in/x/.a=b", "in/x/b._COPYING_", "in/x/_a=b"
    )
    assert batches_found(batch_pattern="day=*")[0] == {"in": ["_day=1/_k=2/a", "x/_a=b"]}
    assert batches_found(batch_pattern="_day=*")[0] == {"1": ["_k=2/a"]}


@pytest.mark.parametrize("name", ["_events.json", ".events.json", "events._COPYING_"])
def test_one_file_that_spark_would_pass_by_is_refused(name):
    make_files(f"in/{name}")
    with pytest.raises(InputError, match="would be read as an empty file.* Rename the file"):
        batches_found(path=f"in/{name}")


@pytest.mark.parametrize(
    "batch_id, asked",
    [("2026-11-20", True), ("2026-11-20~2", True), ("2026-11-20~x", False), ("2026-11-201", False)],
)
def test_a_batch_that_is_asked_for_includes_its_late_files(batch_id, asked):
    assert is_asked_for(batch_id, limits_of(Config(batch_id="2026-11-20"))) == asked
    assert not is_asked_for(batch_id, Limits(skip_batches=(batch_id,)))

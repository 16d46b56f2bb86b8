"""Where things are: one spelling of each place, what lies inside what, batches cut from folders. No Spark."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from dedup_nb.base.config import Config, Input, Limits, ManifestSettings, limits_of
from dedup_nb.base.errors import ConfigError, InputError, MissingInputError
from dedup_nb.base.storage import (
    absolute,
    canonical,
    escaped,
    filesystem,
    in_order,
    is_inside,
    loader_url,
    names_in,
    write_text,
)
from dedup_nb.formats.batches import find_batches, is_asked_for
from dedup_nb.pipeline import job
from dedup_nb.pipeline.commit import publish
from dedup_nb.pipeline.job import (
    check_output,
    job_settings,
    memory_of,
    noted_memory,
    noted_output,
    put_back_note,
    read_note,
    record_output,
    write_note,
)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return str(tmp_path)


# --- addresses


@pytest.mark.parametrize(
    "path, opened, loaded",
    [
        ("/data/x/", "/data/x", "file:///data/x"),
        ("file:/data/x", "file:///data/x", "file:///data/x"),
        ("file:///data/x/", "file:///data/x", "file:///data/x"),
        ("FILE:/data//x/../y", "file:///data/y", "file:///data/y"),
        ("dbfs:/data/x/", "dbfs:/data/x", "dbfs:/data/x"),
        ("/dbfs/data/x", "/dbfs/data/x", "file:///dbfs/data/x"),
        ("s3://lake/x/", "s3://lake/x", "s3://lake/x"),
        ("s3a://lake/x", "s3a://lake/x", "s3://lake/x"),
        ("s3n://lake/x", "s3n://lake/x", "s3://lake/x"),
        ("gs://lake/x", "gs://lake/x", "gs://lake/x"),
        ("abfss://c@account/x", "abfss://c@account/x", "abfss://c@account/x"),
        ("hdfs://node:8020/x", "hdfs://node:8020/x", "hdfs://node:8020/x"),
    ],
)
def test_an_address_is_one_for_spark_and_one_for_loaders(path, opened, loaded):
    assert absolute(path) == opened and absolute(opened) == opened
    assert loader_url(absolute(path)) == loaded


def test_local_paths_are_from_here(here):
    assert absolute("a/../b") == f"{here}/b" and absolute("file:b") == f"file://{here}/b"
    assert filesystem("dbfs:/data/x")[1] == "/dbfs/data/x" and filesystem("file:/data//x")[1] == "/data/x"
    assert escaped("/data/run={1}/[a]*?") == r"/data/run=\{1\}/\[a\]\*\?"
    with pytest.raises(InputError, match="found hdsf:. Did you mean hdfs?"):
        filesystem("hdsf://lake/x")


SAME = (
    ("in", "{here}/in", "file:in", "file:{here}/in", "file://{here}/in/", "./in/", "x/../in"),
    ("dbfs:/lake/in", "dbfs:///lake/in/", "/dbfs/lake/in", "file:/dbfs/lake/in"),
    ("s3://lake/in", "s3a://lake/in/", "s3n://lake//in", "S3://lake/in"),
)


@pytest.mark.parametrize("spellings", SAME, ids=lambda s: s[0])
def test_a_place_is_found_under_all_its_spellings(spellings, here):
    places = [path.format(here=here) for path in spellings]
    assert len({canonical(p) for p in places}) == 1
    for folder in places:
        for path in places:
            assert is_inside(path, folder) and is_inside(f"{path.rstrip('/')}/out", folder)
            assert not is_inside(f"{path.rstrip('/')}2", folder) and not is_inside(folder, f"{path}/out")


@pytest.mark.parametrize("name", ["output", "manifest_path"])
@pytest.mark.parametrize("spellings", SAME, ids=lambda s: s[0])
def test_what_a_run_writes_may_not_lie_in_its_input(name, spellings, here):
    source, *others = (path.format(here=here) for path in spellings)
    for path in (source, *others):
        given = {"input": source, "output": "out", name: f"{path.rstrip('/')}/below"}
        with pytest.raises(ConfigError, match=f"The {name} .* lies in it, and would be read by the next run"):
            job_settings(Config(**given), "run")
    job_settings(Config(input=source, output="out"), "run")
    job_settings(Config(input="in", output="in", input_format="table"), "run")  # a table is no folder


def test_a_link_is_another_spelling(here):
    Path("in").mkdir()
    os.symlink("in", "link")
    with pytest.raises(ConfigError, match="lies in it"):
        job_settings(Config(input="in", output="link/out"), "run")


def test_the_door_resolves_paths_and_says_what_is_missing(here):
    settings = job_settings(Config(input="in", output="out/", etl_time="1970-01-02", rerun=True), "run")
    places, limits = settings.places, settings.limits
    assert (places.input.path, places.output.path) == ("in", f"{here}/out")
    assert (limits.etl_s, limits.rerun) == (86400, True)
    with pytest.raises(ConfigError, match="A backfill needs input and output. Give --input DIR"):
        job_settings(Config(), "backfill")


# --- the manifest that an output is noted with


DYNAMO = ManifestSettings("dynamodb", None, "events", "http://host:8000", "east")


@pytest.mark.parametrize(
    "noted, given, expected",
    [
        (None, {}, ManifestSettings("lake")),
        (ManifestSettings("lake", "/keys"), {}, ManifestSettings("lake", "/keys")),
        (ManifestSettings("none"), {}, ManifestSettings("none")),
        (DYNAMO, {}, DYNAMO),
        (DYNAMO, {"aws_region": "west"}, replace(DYNAMO, region="west")),
        (DYNAMO, {"max_wcu": 5}, replace(DYNAMO, max_wcu=5)),
        (DYNAMO, {"manifest": "lake"}, ManifestSettings("lake")),
        (DYNAMO, {"manifest_path": "/keys"}, ManifestSettings("lake", "/keys")),
        (DYNAMO, {"manifest": "dynamodb", "dynamodb_table": "t"}, ManifestSettings("dynamodb", None, "t")),
    ],
)  # fmt: skip
def test_an_output_knows_its_manifest_unless_somebody_names_one(noted, given, expected):
    if noted:
        record_output("out", {"output_format": "parquet"}, noted)
    assert noted_memory("out") == noted and memory_of(Config(output="out", **given)) == expected
    assert job_settings(Config(input="in", output="out", **given), "run").places.memory == expected


def test_a_password_in_the_endpoint_stays_out_of_files():
    record_output("out", {}, ManifestSettings("dynamodb", None, "events", "http://me:pass@host:8000"))
    text = Path("out/runs/recipe.json").read_text()
    assert noted_memory("out").endpoint == "http://host:8000" and "pass" not in text and "me:" not in text


def test_a_note_that_is_as_it_should_be_costs_no_look_at_all_batches(here, monkeypatch):
    made_with = {"output_format": "parquet", "event_id": ("a", "b")}
    record_output("out", made_with, ManifestSettings("lake"))
    monkeypatch.setattr(job, "names_in", lambda path: pytest.fail(f"{path} was listed"))
    record_output("out", made_with, ManifestSettings("lake"))
    write_note(check_output("out", made_with, ManifestSettings("lake")))


def test_an_output_is_bound_to_its_recipe_by_a_commit_alone(here):
    one = {"input_format": "json", "event_id": ("event_id",), "output_format": "parquet"}
    other = {**one, "event_id": ("tenant", "id"), "output_format": "json"}
    first = check_output("out", one)
    write_note(first)
    write_note(check_output("out", other))  # what failed binds nobody
    put_back_note(first)
    assert noted_output("out")["output_format"] == "json"  # that was another run's
    put_back_note(replace(first, after=noted_output("out")))
    assert [*Path("out/runs").iterdir()] == []
    write_note(first)
    publish("out", {"batch_id": "0", "entries": [], "status": "decided"})
    check_output("out", other)  # nor does a run that only decided
    publish("out", {"batch_id": "1", "entries": []})
    put_back_note(first)
    check_output("out", one)
    with pytest.raises(
        ConfigError, match="event_id was event_id, is now tenant, id; output_format was parquet"
    ):
        check_output("out", other)  # fmt: skip


def test_an_output_of_release_0_1_0_is_gone_on_with(here):
    "It noted its one id column as a text, and no manifest."
    write_text(
        "out/runs/recipe.json", '{"input_format": "json", "event_id": "id", "output_format": "parquet"}'
    )
    publish("out", {"batch_id": "1", "entries": [], "status": "committed"})
    check_output("out", {"input_format": "json", "event_id": ("id",), "output_format": "parquet"})
    assert noted_memory("out") is None
    with pytest.raises(ConfigError, match="event_id was id, is now tenant, id"):
        check_output("out", {"event_id": ("tenant", "id")})


def test_the_note_of_an_output_follows_its_manifest(here):
    filled = ManifestSettings("dynamodb", table="events")  # by a backfill, which commits no files
    record_output("out", {"event_id": ("event_id",)}, filled)
    before = noted_output("out")
    note = check_output("out", {"event_id": ("event_id",), "output_format": "json"}, filled)
    write_note(note)
    put_back_note(note)  # that run failed
    assert noted_output("out") == before and noted_memory("out").table == "events"
    publish("out", {"batch_id": "1", "entries": []})
    record_output("out", {"output_format": "delta"}, ManifestSettings("lake"))  # a backfill
    assert noted_memory("out").kind == "dynamodb"
    write_note(read_note("out", {"output_format": "delta"}, ManifestSettings("lake")))  # a commit
    assert noted_output("out") == {"event_id": ["event_id"], "manifest": "lake"}


# --- batches in folders


def tree(*names):
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(name)


def cut(batch_id=None, **more):
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
    tree("in/run=1/a", "in/run=1/x/b", "in/run=2/a", "in/other/a", "in/_hidden/a", "in/run=1/.crc")
    found, listed = cut(batch_pattern=pattern)
    assert found == batches and listed.unfit == ()
    assert bool(listed.notes) == (pattern in ("run=*", "run=*/x", "run=2"))


def test_several_levels_make_one_name_and_folders_that_look_like_batches_are_said():
    tree("in/dt=2026-11-20/hour=07/a", "in/dt=2026-11-20/hour=08/a")
    assert list(cut(batch_pattern="dt=*/hour=*")[0]) == ["2026-11-20_07", "2026-11-20_08"]
    found, listed = cut()
    assert list(found) == ["in"] and "for a batch each: --batch-pattern 'dt=*/hour=*'" in listed.notes[0]
    assert list(cut(path="in/dt=2026-11-20/hour=07", batch_pattern="dt=*/hour=*")[0]) == ["2026-11-20_07"]


def test_folders_that_cannot_be_batches_are_named_and_left_out_and_the_others_go_on():
    odd = ["a b", "1~1", "-x", "ü$", "x" * 200]
    tree("in/run=1/a", "in/run=1+1/a", "in/run=dé-1/a", *(f"in/run={name}/a" for name in odd), "in/beside")
    found, listed = cut()
    assert list(found) == ["1", "1+1", "dé-1"]
    assert len(listed.unfit) == len(odd) and all("cannot name a batch" in words for words in listed.unfit)
    assert all(any(f"run={name}: " in words for words in listed.unfit) for name in odd)
    assert "1 file lies beside the batch folders (run=*), in no batch; the first is" in listed.notes[0]
    with pytest.raises(InputError, match="'a b' cannot name a batch"):
        cut("a b")
    with pytest.raises(MissingInputError, match="Wanted batch 3; .* has 1, 1\\+1, dé-1. Correct batch_id"):
        cut("3")
    assert list(cut("1")[0]) == ["1"] and list(cut("mine", path="in/beside")[0]) == ["mine"]


def test_the_output_of_a_run_may_have_folders_of_late_files(here):
    tree("out/events/batch_id=1/a", "out/events/batch_id=1~1/a", "in/run=1~1/a")
    found = find_batches(Input(f"{here}/out/events", batch_pattern="batch_id=*"))
    assert [b.batch_id for b in found.batches] == ["1", "1~1"] and not found.unfit
    assert "1~1" in find_batches(Input(f"{here}/in")).unfit[0]


def test_two_folders_of_one_name_are_named_and_neither_is_taken():
    tree("in/a=1/b=2_3/f", "in/a=1_2/b=3/f", "in/a=1/b=4/f")
    found, listed = cut(batch_pattern="a=*/b=*")
    assert list(found) == ["1_4"] and "would both be batch 1_2_3" in listed.unfit[0]


def test_an_input_that_is_not_there_names_what_is_near():
    tree("events/a")
    for path in ("evnts", "evnts/deeper/still"):
        with pytest.raises(MissingInputError, match="it is not there. .* has events. Did you mean events?"):
            cut(path=path)
    with pytest.raises(ConfigError, match="Wanted the setting input"):
        cut(path=None)
    assert list(cut(path="db.`events`", format="table")[0]) == ["events"]
    with pytest.raises(InputError, match="Or name the batch yourself with batch_id"):
        cut(path="db.`my events`", format="table")


def test_numbers_in_the_names_of_batches_compare_as_numbers():
    tree(*(f"in/month={m}/day={d}/a" for m, d in ((11, 2), (2, 11), (2, 3), ("02", 3))))
    assert list(cut(batch_pattern="month=*/day=*")[0]) == ["02_3", "2_3", "2_11", "11_2"]
    tree("out/runs/v10/a", "out/runs/v9/a", "out/runs/v9~10/a", "out/runs/v9~2/a")
    assert names_in("out/runs") == ["v9", "v9~2", "v9~10", "v10"]


def test_names_with_all_their_zeros_keep_the_order_of_their_letters():
    names = [
        "",
        "+1",
        "-",
        "0",
        "01",
        "1",
        "1-1",
        "1_1",
        "2026-02-28",
        "2026-02-28-00",
        "2026-11-20",
        "A",
        "a~1",
    ]
    assert sorted(sorted(names, reverse=True), key=in_order) == sorted(names)
    assert sorted(["a1", "a01", "a001", "a²", "a0"], key=in_order) == ["a0", "a001", "a01", "a1", "a²"]


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


def test_what_spark_reads_is_in_a_batch_and_what_it_passes_by_is_not():
    tree("in/_day=1/_k=2/a", "in/_day=1/_SUCCESS", "in/_tmp/a", "in/x/.a=b", "in/x/b._COPYING_", "in/x/_a=b")
    assert cut(batch_pattern="day=*")[0] == {"in": ["_day=1/_k=2/a", "x/_a=b"]}
    assert cut(batch_pattern="_day=*")[0] == {"1": ["_k=2/a"]}


@pytest.mark.parametrize("name", ["_events.json", ".events.json", "events._COPYING_"])
def test_one_file_that_spark_would_pass_by_is_refused(name):
    tree(f"in/{name}")
    with pytest.raises(InputError, match="would be read as an empty file.* Rename the file"):
        cut(path=f"in/{name}")


@pytest.mark.parametrize(
    "batch_id, asked",
    [("2026-11-20", True), ("2026-11-20~2", True), ("2026-11-20~x", False), ("2026-11-201", False)],
)
def test_a_batch_that_is_asked_for_includes_its_late_files(batch_id, asked):
    assert is_asked_for(batch_id, limits_of(Config(batch_id="2026-11-20"))) == asked
    assert not is_asked_for(batch_id, Limits(skip_batches=(batch_id,)))

"A job: its places, and the manifest and recipe that an output is noted with. No Spark."

import os
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from inputs import SPELLINGS

from dedup_nb.base import spark
from dedup_nb.base.config import Config, ManifestSettings
from dedup_nb.base.errors import ConfigError
from dedup_nb.base.storage import write_text
from dedup_nb.pipeline import job
from dedup_nb.pipeline.commit import publish
from dedup_nb.pipeline.job import (
    RunOptions,
    check_output,
    job_settings,
    manifest_path,
    memory_of,
    noted_memory,
    noted_output,
    put_back_note,
    read_note,
    record_output,
    write_note,
)
from dedup_nb.pipeline.run import run

pytestmark = pytest.mark.usefixtures("own_folder")


# --- addresses


@pytest.mark.parametrize("name", ["output", "manifest_path"])
@pytest.mark.parametrize("spellings", SPELLINGS, ids=lambda s: s[0])
def test_what_a_run_writes_may_not_lie_in_its_input(name, spellings, own_folder):
    source, *others = (path.format(here=own_folder) for path in spellings)
    for path in (source, *others):
        given = {"input": source, "output": "out", name: f"{path.rstrip('/')}/below"}
        with pytest.raises(ConfigError, match=f"The {name} .* lies in it, and would be read by the next run"):
            job_settings(Config(**given), "run")
    job_settings(Config(input=source, output="out"), "run")
    job_settings(Config(input="in", output="in", input_format="table"), "run")  # a table is no folder


def test_a_link_is_another_spelling(own_folder):
    Path("in").mkdir()
    os.symlink("in", "link")
    with pytest.raises(ConfigError, match="lies in it"):
        job_settings(Config(input="in", output="link/out"), "run")


def test_the_door_resolves_paths_and_says_what_is_missing(own_folder):
    settings = job_settings(Config(input="in", output="out/", etl_time="1970-01-02", rerun=True), "run")
    places, limits = settings.places, settings.limits
    assert (places.input.path, places.output.path) == ("in", f"{own_folder}/out")
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


def test_a_manifest_is_noted_from_wherever_it_is_asked_for(own_folder, monkeypatch):
    record_output("out", {}, ManifestSettings("lake", "keys"))
    here = os.getcwd()
    monkeypatch.chdir("out")
    assert noted_memory(f"{here}/out").path == f"{here}/keys"


def test_a_password_in_the_endpoint_stays_out_of_files():
    record_output("out", {}, ManifestSettings("dynamodb", None, "events", "http://me:pass@host:8000"))
    text = Path("out/runs/recipe.json").read_text()
    assert noted_memory("out").endpoint == "http://host:8000" and "pass" not in text and "me:" not in text


def test_a_note_that_is_as_it_should_be_costs_no_look_at_all_batches(own_folder, monkeypatch):
    made_with = {"output_format": "parquet", "event_id": ("a", "b")}
    record_output("out", made_with, ManifestSettings("lake"))
    monkeypatch.setattr(job, "names_in", lambda path: pytest.fail(f"{path} was listed"))
    record_output("out", made_with, ManifestSettings("lake"))
    write_note(check_output("out", made_with, ManifestSettings("lake")))


def test_an_output_is_bound_to_its_recipe_by_a_commit_alone(own_folder):
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


def test_an_output_of_release_0_1_0_is_gone_on_with(own_folder):
    "It noted its one id column as a text, and no manifest."
    write_text(
        "out/runs/recipe.json", '{"input_format": "json", "event_id": "id", "output_format": "parquet"}'
    )
    publish("out", {"batch_id": "1", "entries": [], "status": "committed"})
    check_output("out", {"input_format": "json", "event_id": ("id",), "output_format": "parquet"})
    assert noted_memory("out") is None
    with pytest.raises(ConfigError, match="event_id was id, is now tenant, id"):
        check_output("out", {"event_id": ("tenant", "id")})


def test_the_note_of_an_output_follows_its_manifest(own_folder):
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


def test_a_manifest_path_is_the_name_of_a_table_or_a_folder_and_says_which():
    lake = partial(ManifestSettings, "lake")
    assert manifest_path(lake("`prod-lake`.x.y"), None) == "`prod-lake`.x.y"
    with pytest.raises(ConfigError, match="Write `prod-lake`.x.y for that, ./prod-lake.x.y for a folder"):
        manifest_path(lake("prod-lake.x.y"), None)
    assert manifest_path(lake("./prod-lake.x.y"), None) == os.path.abspath("prod-lake.x.y")


# --- the session of a command


QUICK = "-XX:TieredStopAtLevel=1"


@pytest.fixture
def started(monkeypatch):
    "Give the options that a run would start Java and Spark's plans with; nothing starts."

    def refuse(settings, delta):
        codegen = settings.get("spark.sql.codegen.factoryMode", "")
        raise ConfigError(f"{settings['spark.driver.extraJavaOptions']} {codegen}")

    for name in spark._JAVA:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(spark.SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(spark, "_start", refuse)

    def options(alone=True, **settings):
        with pytest.raises(ConfigError) as told:
            run(Config(**{"input": "in", "output": "out", **settings}), options=RunOptions(alone=alone))
        return str(told.value).split()

    write_text("in/2026-11-20/a.json", '{"event_id": "a"}')
    return options


def test_a_command_with_little_to_read_starts_java_with_the_quick_compiler_alone(started, monkeypatch):
    assert QUICK in started() and QUICK in started(manifest="none")
    assert QUICK not in started(alone=False)  # the session may live on, and work much
    assert "-XX:-DontCompileHugeMethods" in started() and "-XX:-DontCompileHugeMethods" in started(
        alone=False
    )
    # nobody knows how much is behind a table
    assert QUICK not in started(input="lake.events", input_format="table", manifest="none")
    assert QUICK not in started(manifest="lake", manifest_path="main.lake.manifest")
    # a word of the environment counts
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=4")
    assert QUICK not in started()


def test_a_command_with_much_to_read_or_to_remember_starts_java_with_both_compilers(started, monkeypatch):
    monkeypatch.setattr(spark, "_LITTLE", 1000)
    monkeypatch.setattr(spark, "_VERY_LITTLE", 500)
    assert {QUICK, "NO_CODEGEN"} <= set(started())
    write_text("out/manifest/kind=key/era=0/part-0.parquet", "x" * 500)
    assert QUICK in started(manifest="lake") and "NO_CODEGEN" not in started(manifest="lake")
    write_text("out/manifest/kind=key/era=0/part-0.parquet", "x" * 1000)
    assert QUICK not in started(manifest="lake") and QUICK in started(manifest="none")
    write_text("in/2026-11-21/a.json", '{"event_id": "b"}' + " " * 1000)
    assert QUICK not in started(manifest="none")


# --- a cluster


@pytest.mark.parametrize(
    "master, root, words",
    [
        (
            "yarn",
            "hdfs://node:8020",
            "is hdfs://node:8020/out, .*: write hdfs://node:8020/out or file:///out",
        ),
        ("yarn", "s3a://lake", "write s3a://lake/out or"),
        ("yarn", "file:", None),
        ("local[2]", "hdfs://node:8020", None),
    ],
)
def test_a_plain_path_is_one_place_for_spark_and_python(master, root, words):
    def look(path):
        raise ValueError(f"[PATH_NOT_FOUND] Path does not exist: {root}{path}. SQLSTATE: 42K03")

    session = MagicMock()
    session.conf.get.return_value = master
    session.read.options.return_value.text.side_effect = look
    job._check_same_place(session, "hdfs://node/out")
    job._check_same_place(session, None)
    with pytest.raises(ConfigError, match=words) if words else nullcontext():
        job._check_same_place(session, "/out")

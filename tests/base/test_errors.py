"""Errors: what they say, and the secrets that no text may show. No Spark."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dedup_nb.base import errors
from dedup_nb.base.config import Config, ManifestSettings, Recipe, places_of
from dedup_nb.base.errors import (
    ConfigError,
    DedupError,
    MissingColumnError,
    UnwritableError,
    did_you_mean,
    first_line,
    keep_secret,
    masked,
    require_columns,
)
from dedup_nb.dynamodb.connection import Connection, connection_of, snowplow_config
from dedup_nb.pipeline.job import check_output, noted_memory, record_output
from dedup_nb.rules.keys import fit


@pytest.fixture(autouse=True)
def own_secrets(monkeypatch, tmp_path):
    monkeypatch.setattr(errors, "_SECRETS", set())
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "text, shown",
    [
        ("nothing to hide: s3://lake/x?y=1, me@host", "nothing to hide: s3://lake/x?y=1, me@host"),
        ("http://me:pass@host:8000/t", "http://***@host:8000/t"),
        ("http://me@host and https://u:p@other", "http://***@host and https://***@other"),
        ("http://me:p@ss@host:8000", "http://***@host:8000"),
        ("http://me:pa%2Fss@host/a@b", "http://***@host/a@b"),
        ("abfss://events@acct.net/x, wasbs://c@a", "abfss://events@acct.net/x, wasbs://c@a"),
        ("xabfs://me:pass@host", "xabfs://***@host"),
        ("key AKIAIOSFODNN7EXAMPLE is unknown", "key *** is unknown"),
        ("(ASIAIOSFODNN7EXAMPLE)", "(***)"),
        ("'AccessKeyId': 'AKIAIOSFODNN7EXAMPLE'", "'AccessKeyId': '***'"),
        ("MAKIAIOSFODNN7EXAMPLE, AKIA", "MAKIAIOSFODNN7EXAMPLE, AKIA"),
        ("typed wJalr/Secret+1 and wJalr%2FSecret%2B1", "typed *** and ***"),
        ("of the environment: tok/en+of+the+session", "of the environment: ***"),
    ],
)
def test_secrets_are_masked_in_every_text(text, shown, monkeypatch):
    monkeypatch.setenv("AWS_SESSION_TOKEN", "tok/en+of+the+session")
    keep_secret("wJalr/Secret+1", None, "", "abc")
    assert masked(text) == shown and str(DedupError(text)) == shown
    assert all(str(kind(text)) == shown for kind in DedupError.__subclasses__())


def test_a_notebook_shows_the_sentence_and_no_trace(tmp_path):
    code = "from dedup_nb.base.errors import ConfigError; raise ConfigError('Unknown setting outptu.')"
    command = [sys.executable, "-m", "IPython", "-c", code]
    own_folder = {**os.environ, "IPYTHONDIR": str(tmp_path)}
    shown = subprocess.run(command, env=own_folder, capture_output=True, text=True)
    assert shown.returncode == 1 and shown.stdout.strip() == "ConfigError: Unknown setting outptu."


def test_a_line_is_seen_while_the_work_lasts(tmp_path):
    code = """if True:
        import logging, os, sys
        from dedup_nb.base.errors import lines_shown
        with lines_shown():
            logging.getLogger("dedup_nb.x").info("batch 1")
            sys.stdout, seen = None, sys.stdout
            logging.getLogger("dedup_nb.x").info("said to nobody")
            os._exit(0)  # as a killed pod: what is not flushed is lost"""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    shown = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert shown.stdout == "batch 1\n" and shown.stderr == "" and shown.returncode == 0


ENDPOINT = "http://me:geheim@host:8000"


def test_an_endpoint_with_a_user_is_used_and_never_shown():
    config = Config(dynamodb_endpoint=ENDPOINT, dynamodb_table="t", manifest="dynamodb", output="out")
    memory = places_of(config).memory
    record_output("out", {}, memory)
    assert config.dynamodb_endpoint == memory.endpoint == connection_of(memory).endpoint == ENDPOINT
    left = [
        json.dumps(config.chosen()),
        Path("out/runs/recipe.json").read_text(),
    ]
    left += [repr(config), repr(memory), repr(connection_of(memory)), repr(noted_memory("out"))]
    assert not [text for text in left if "geheim" in text]


def of_snowplow(**more):
    auth = {"accessKeyId": "AKIAIOSFODNN7EXAMPLE", "secretAccessKey": "wJalrSecret"}
    data = {"name": "n", "auth": auth, "awsRegion": "r", "dynamodbTable": "t", "id": "1"} | more
    schema = "iglu:com.snowplowanalytics.snowplow.storage/amazon_dynamodb_config/jsonschema/2-0-0"
    return json.dumps({"schema": schema, "data": {"purpose": "EVENTS_MANIFEST", **data}})


@pytest.mark.parametrize("wrapped", [str, lambda text: base64.b64encode(text.encode()).decode()])
def test_keys_of_a_configuration_are_used_and_never_shown(wrapped):
    text = wrapped(of_snowplow())
    found = snowplow_config(text)
    assert found == Connection("t", "r", None, "AKIAIOSFODNN7EXAMPLE", "wJalrSecret")
    assert masked("denied: wJalrSecret") == "denied: ***" and "wJalr" not in repr(found)
    config = Config(duplicate_storage_config=text, mode="decide")
    shown = repr(config) + repr(places_of(config)) + repr(config.chosen())
    assert config.chosen() == {"mode": "decide"} and text not in shown
    for wrong in (of_snowplow(awsRegion=1), of_snowplow(dynamodbTable=""), wrapped(of_snowplow())[:-9]):
        with pytest.raises(ConfigError) as told:
            snowplow_config(wrong)
        assert (
            "wJalr" not in str(told.value) and "AKIA" not in str(told.value) and wrong not in str(told.value)
        )


def test_a_wrong_setting_does_not_show_what_it_holds():
    with pytest.raises(ConfigError, match="max_wcu = 'http://\\*\\*\\*@host'") as wrong:
        Config(max_wcu="http://me:geheim@host")
    assert "geheim" not in str(wrong.value)


def test_the_nearest_name():
    assert did_you_mean("etl_tsamp", ["etl_tstamp", "event_id"]) == " Did you mean etl_tstamp?"
    assert did_you_mean("q", ["event_id"]) == did_you_mean("q", []) == ""


def test_missing_columns_are_all_named_with_the_nearest_ones():
    require_columns(["a", "b"], ["b"], "natural")
    with pytest.raises(MissingColumnError) as wrong:
        require_columns(["event_id", "etl_tsamp"], ["event_id", "etl_tstamp", "x"], "order_by")
    assert str(wrong.value).startswith("order_by needs etl_tstamp, x; the input has event_id, etl_tsamp.")
    assert "For etl_tstamp: Did you mean etl_tsamp?" in str(wrong.value)
    assert "the right one in the settings (dedup run --help)" in str(wrong.value)
    with pytest.raises(MissingColumnError, match=r"c11, ... \(131 columns\)"):
        require_columns([f"c{n}" for n in range(131)], ["x"], "natural")
    with pytest.raises(
        MissingColumnError, match="has id, ' ts'. For ts: .* ' ts'. Rename .*no setting can name"
    ):
        require_columns(["id", " ts"], ["ts"], "The run")


@pytest.mark.parametrize(
    "text, line",
    [
        (
            "[NO] `x` is none of [`ts`, `_dd_text`, `_dd_id`]. SQLSTATE: 42703; line 1",
            "[NO] `x` is none of [`ts`].",
        ),
        ("[NO] `x` is none of [`_dd_id`, `ts`]. SQLSTATE: 42703;\n'Project", "[NO] `x` is none of [`ts`]."),
        ("[PARSE] Wrong at '='. SQLSTATE: 42601 (line 1, pos 3)", "[PARSE] Wrong at '='."),
        ("[PARSE] Wrong at '='.(SQLSTATE: 42601)", "[PARSE] Wrong at '='."),
        (": java.io.IOException: gone\n at x", "java.io.IOException: gone"),
    ],
)
def test_of_an_error_of_spark_what_is_said_stays(text, line):
    assert first_line(ValueError(text)) == line


@pytest.mark.parametrize(
    "columns, recipe, words",
    [
        (["user_id", "id"], Recipe(), "For event_id: Did you mean id? .* with --event-id."),
        (["evnt_id"], Recipe(), "For event_id: Did you mean evnt_id? .* with --event-id."),
        (["a"], Recipe(), "needs event_id; the input has a. Rename .* with --event-id."),
        (["event_id"], Recipe(order_by=("t", "event_id desc")), "needs t; .* with --order-by."),
        (["event_id", "ts"], Recipe(order_by=("ts dsc",)), "needs ts dsc; .* Did you mean ts desc? .*"),
        (["event_id", "ts"], Recipe(order_by=("ts ascending",)), "needs ts ascending; .* mean ts asc?"),
        (["id"], Recipe(fingerprint_columns=("n", "t"), order_by=("t desc",)),
         "needs event_id, t, n; .* with --event-id, --order-by, --fingerprint-columns."),
    ],
)  # fmt: skip
def test_a_missing_column_names_its_setting(columns, recipe, words):
    with pytest.raises(MissingColumnError, match=words.replace("?", r"\?").replace(" .* ", " .*")):
        fit(recipe, columns)


def test_an_output_that_cannot_be_written_is_named_and_no_file_in_it(tmp_path):
    (tmp_path / "out").write_text("a file")
    with pytest.raises(UnwritableError, match=f"Cannot write {tmp_path}/out: ") as wrong:
        check_output(f"{tmp_path}/out", {})
    assert "probe" not in str(wrong.value) and "tmp." not in str(wrong.value)


def test_to_check_an_output_makes_no_folder(tmp_path):
    check_output(f"{tmp_path}/new/out", {})
    assert not list(tmp_path.iterdir())


def test_a_manifest_that_is_none_and_one_without_a_place():
    from dedup_nb.pipeline.job import existing_manifest, manifest_path

    with pytest.raises(ConfigError, match="manifest=none has no ledger to look at"):
        existing_manifest(None, ManifestSettings("none"), "out")
    with pytest.raises(ConfigError, match="--output DIR"):
        manifest_path(ManifestSettings(), None)

"Where a DynamoDB table is, and what a policy must allow there."

import base64
import json

import pytest
from claimants import claim, who
from emulator import a_client, a_name, a_table

from dedup_nb.base.config import ManifestSettings
from dedup_nb.base.errors import ConfigError
from dedup_nb.cli import main
from dedup_nb.dynamodb.connection import (
    PURPOSES,
    Connection,
    client_of,
    connection_of,
    iam_policy,
    s3_policy,
    snowplow_config,
)
from dedup_nb.dynamodb.table import check_table, create_table, described
from dedup_nb.rules.cross_batch import Fate

# --- policies --------------------------------------------------------------------------------------------


VERBS = {
    "INSERT": "PartiQLInsert",
    "UPDATE": "PartiQLUpdate",
    "DELETE": "PartiQLDelete",
    "SELECT": "PartiQLSelect",
}


def noting_actions(client, actions):
    "Note the actions that a policy must allow for each call."

    def note(model, params, **_):
        body = json.loads(params["body"])
        texts = [s["Statement"] for s in body.get("Statements", ())] + [body.get("Statement", "")]
        actions.update([VERBS[text.split()[0]] for text in texts if text] or [model.name])

    client.meta.events.register("before-call.dynamodb", note)
    return client


def all_that_a_run_does(table):
    check_table(table, described(table))
    for heads in (True, False):
        claim(table, who("one", 1, heads=heads), ("a", "fg"), ("b", "f"))
        later = who("two", 2, 1, heads=heads, dead=frozenset({"one@1"}))
        claim(table, later, ("a", "fh"), ("b", "g"), read_first=True)
    table.mark({("a", "#"): Fate.GONE | Fate.HEAD}, "two@2")
    table.delete([("a", "h")], "two@2")
    table.log_after("0")


def test_each_policy_allows_what_is_called_and_nothing_else(dynamodb):
    actions = {purpose: set() for purpose in PURPOSES}
    name = a_name()
    client = lambda purpose: noting_actions(a_client(dynamodb), actions[purpose])
    create_table(a_table(dynamodb, name, client=client("create")))
    all_that_a_run_does(a_table(dynamodb, name, client=client("run")))
    for purpose, called in actions.items():
        [allowed] = iam_policy(name, purpose)["Statement"]
        assert {f"dynamodb:{action}" for action in called} == set(allowed["Action"])


def test_the_command_prints_a_policy(capsys):
    with pytest.raises(SystemExit) as done:
        main(["iam", "--table", "events", "--for", "create", "--json"])
    assert done.value.code == 0
    assert json.loads(capsys.readouterr().out) == iam_policy("events", "create")
    [allowed] = iam_policy("events", region="eu-west-1", account="12")["Statement"]
    assert allowed["Resource"] == "arn:aws:dynamodb:eu-west-1:12:table/events"
    with pytest.raises(ConfigError, match="Did you mean create"):
        iam_policy("events", "creat")


@pytest.mark.parametrize(
    "region, part", [("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov"), ("eu-west-1", "aws")]
)
def test_a_policy_is_for_the_part_of_aws_that_the_region_is_in(monkeypatch, region, part):
    [allowed] = iam_policy("events", region=region)["Statement"]
    assert allowed["Resource"] == f"arn:{part}:dynamodb:{region}:*:table/events"
    monkeypatch.setenv("AWS_REGION", region)
    [allowed] = iam_policy("events")["Statement"]
    assert allowed["Resource"] == f"arn:{part}:dynamodb:*:*:table/events"
    assert s3_policy("s3://lake", None)["Statement"][0]["Resource"] == [f"arn:{part}:s3:::lake"]


# --- where the table is ----------------------------------------------------------------------------------


IGLU = "iglu:com.snowplowanalytics.snowplow.storage/amazon_dynamodb_config/jsonschema/"
DATA = {"name": "n", "awsRegion": "eu-west-1", "dynamodbTable": "snow", "purpose": "DUPLICATE_TRACKING"}
AUTH = {"accessKeyId": "AKIASECRET", "secretAccessKey": "hunter2secret"}
OLD = {**DATA, **AUTH}
NEW = {**DATA, "purpose": "EVENTS_MANIFEST", "id": "x", "auth": None}


def coded(version, data):
    return base64.b64encode(json.dumps({"schema": IGLU + version, "data": data}).encode()).decode()


@pytest.mark.parametrize(
    "version, data, secret",
    [
        ("1-0-0", OLD, "hunter2secret"),
        ("1-0-1", {**OLD, "id": "x"}, "hunter2secret"),
        ("2-0-0", NEW, None),
        ("2-0-0", {**NEW, "auth": AUTH}, "hunter2secret"),
        ("2-0-1", {"dynamodbTable": "snow", "awsRegion": "eu-west-1", "auth": None, "colour": 1}, None),
    ],
)
def test_all_versions_are_read_from_files_base64_and_json(tmp_path, version, data, secret):
    whole = json.dumps({"schema": IGLU + version, "data": data})
    (tmp_path / "c.json").write_text(whole)
    for text in (whole, coded(version, data), str(tmp_path / "c.json")):
        found = snowplow_config(text)
        assert (found.table, found.region, found.secret_key) == ("snow", "eu-west-1", secret)
        assert "hunter2" not in repr(found) and "AKIA" not in repr(found)


def test_our_own_settings_go_over_those_of_the_configuration():
    over = ManifestSettings(storage_config=coded("1-0-0", OLD), table="mine", endpoint="http://x")
    found = connection_of(over)
    assert (found.table, found.region, found.endpoint) == ("mine", "eu-west-1", "http://x")
    assert found.secret_key == "hunter2secret" and "hunter2" not in f"{over}{found}"


@pytest.mark.parametrize(
    "text, words",
    [
        ("hunter2secret", "neither a readable file nor base64"),
        (json.dumps({"schema": IGLU.replace("dynamodb", "redshift"), "data": OLD}), "is no configuration of"),
        (coded("1-0-0", "hunter2secret"), "is no configuration of Snowplow's manifest"),
        (coded("1-0-0", {n: v for n, v in OLD.items() if n != "awsRegion"}), "wanted a text as awsRegion"),
        (coded("1-0-0", {**OLD, "dynamodbTable": {}}), "does not fit: wanted a text as dynamodbTable"),
        (coded("1-0-0", DATA), "wanted a text as accessKeyId and as secretAccessKey"),
        (coded("2-0-0", {**NEW, "auth": {"accessKeyId": "hunter2secret"}}), "a text as secretAccessKey"),
        (coded("2-0-0", {**NEW, "auth": "hunter2secret"}), "a text as accessKeyId and as secretAccessKey"),
        (base64.b64encode(b'{"secret": "hunter2secret"}').decode(), "is no configuration of Snowplow's"),
    ],
)
def test_a_configuration_that_does_not_fit_is_named_without_what_it_holds(text, words):
    with pytest.raises(ConfigError, match=words) as wrong:
        connection_of(ManifestSettings(storage_config=text))
    assert "hunter2" not in str(wrong.value)
    assert wrong.value.__context__ is None or wrong.value.__suppress_context__


@pytest.mark.parametrize(
    "more", [{"endpoint": "localhost:8000"}, {"region": "us east 1"}, {"endpoint": "me:hunter2@host"}]
)
def test_an_address_or_region_that_is_none_is_named(more):
    with pytest.raises(ConfigError, match="cannot be reached with these settings") as wrong:
        client_of(Connection("t", **{"region": "us-east-1", **more}))
    assert "hunter2" not in str(wrong.value)


def test_a_run_without_a_table_name_is_refused():
    with pytest.raises(ConfigError, match="manifest=dynamodb needs a table"):
        connection_of(ManifestSettings())

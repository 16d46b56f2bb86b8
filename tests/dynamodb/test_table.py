"A DynamoDB table as it is called: claims on lists of keys against a running server, with faults. No Spark."

import random
import time
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest
from botocore.exceptions import (
    ClientError,
    CredentialRetrievalError,
    EndpointConnectionError,
    ReadTimeoutError,
    UnauthorizedSSOTokenError,
)
from claimants import claim, kinds_of, many, own_pairs, put_item, who
from emulator import Faults, a_client, a_table, items, refusal, refuse

from dedup_nb.dynamodb.claims import OWN, Claims
from dedup_nb.dynamodb.connection import Connection, new_client
from dedup_nb.dynamodb.table import (
    DeniedError,
    Pace,
    Table,
    check_table,
    create_table,
    described,
    in_parts,
    log_item,
    log_marker,
    table_exists,
    write_rate,
)
from dedup_nb.manifest.ledger import ManifestError, Marker

# --- requests, units, pace -------------------------------------------------------------------------------


def test_a_thousand_keys_take_forty_requests(table):
    before = table.meter.counts["requests"]
    claim(table, who("one", 1), *many(1000))
    assert table.meter.counts["requests"] - before == 40 and table.meter.counts["write_units"] == 1000


def test_reading_first_is_chosen_when_more_than_a_sixth_is_refused(table):
    ids = [(i, list(prints)) for i, prints in many(600)]
    Claims(table, who("one", 1)).of(ids)
    again = a_table(table.connection.endpoint, table.name)
    claims = Claims(again, who("two", 2, 1), None)
    for part in in_parts(ids, 200):
        claims.of(part)
    assert (again.meter.counts["write_units"], again.meter.counts["read_units"]) == (200, 600)


def test_the_pace_starts_slowly_halves_on_throttling_and_recovers():
    clock = [0.0]

    def sleep(seconds):
        clock[0] += seconds

    pace = Pace(100, lambda: clock[0], sleep)
    for _ in range(40):
        pace.take(25)
    assert pace.rate == 100 and 12 < clock[0] < 18, "1000 units at 100 a second, after a slow start"
    pace.throttled()
    pace.throttled()
    assert pace.rate == 50, "answers of one second count once"
    sleep(3)
    pace.take(1)
    assert 80 <= pace.rate < 85, "a tenth of the top more each second"


PROVISIONED, LIMITED = "ProvisionedThroughput", "OnDemandThroughput"


@pytest.mark.parametrize(
    "description, rate",
    [
        ({PROVISIONED: {"WriteCapacityUnits": 100}, "WarmThroughput": {"WriteUnitsPerSecond": 9}}, 100),
        ({PROVISIONED: {"WriteCapacityUnits": 0}, LIMITED: {"MaxWriteRequestUnits": 700}}, 700),
        ({LIMITED: {"MaxWriteRequestUnits": -1}, "WarmThroughput": {"WriteUnitsPerSecond": 12000}}, 12000),
        ({}, 4000),
    ],
)
def test_the_rate_comes_from_the_table(description, rate):
    assert write_rate(description) == rate


# --- faults ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["lost", "unsent", "busy", "broken", "cut", "throttled"])
def test_what_goes_wrong_on_the_way_is_repeated_and_changes_nothing(table, kind):
    faults = Faults(11, **{kind: 0.3})
    shaky = a_table(table.connection.endpoint, table.name, faults=faults)
    assert len(own_pairs(claim(shaky, who(), *many(100, "fg")))) == 200
    repeated = a_table(table.connection.endpoint, table.name)
    assert len(own_pairs(claim(repeated, who(), *many(100, "fg"), read_first=True))) == 200
    assert len(items(table)) == 200 and faults.count[kind] > 1
    assert shaky.meter.counts["retried"] == faults.count[kind]


@pytest.mark.parametrize(
    "code",
    [
        "ProvisionedThroughputExceeded",
        "ThrottlingError",
        "RequestLimitExceeded",
        "InternalServerError",
        "TransactionConflict",
    ],
)
def test_members_that_were_throttled_are_sent_again_alone(dynamodb, shared_table, code):
    table = a_table(dynamodb, shared_table.name, faults=(faults := Faults(3, throttled=0.3, code=code)))
    assert len(own_pairs(claim(table, who(), *[(f"{code}{n}", "f") for n in range(75)]))) == 75
    assert table.meter.counts["retried"] == faults.count["throttled"] > 10
    assert table.meter.counts["write_units"] == 75


def test_what_may_have_been_written_twice_is_counted_twice(dynamodb, table):
    lossy = a_table(dynamodb, table.name, faults=(faults := Faults(11, lost=0.3)))
    assert len(own_pairs(claim(lossy, who(), *many(250)))) == 250
    assert lossy.meter.counts["write_units"] == 250 + 25 * faults.count["lost"] > 250


@pytest.mark.parametrize(
    "kind, words",
    [
        ("busy", "Throttling .*no event is lost.*Lower max_wcu"),
        ("cut", "an answer that was cut .*Check --dyn"),
    ],
)
def test_what_does_not_end_fails_and_claims_nothing_for_others(dynamodb, shared_table, kind, words):
    stuck = a_table(dynamodb, shared_table.name, faults=Faults(**{kind: 1.0}), patience_s=0.5)
    start = time.monotonic()
    with pytest.raises(ManifestError, match=f"nothing but {words}"):
        claim(stuck, who("one", 1), (kind, "f"))
    assert time.monotonic() - start < 5
    assert kinds_of(claim(shared_table, who("one", 1), (kind, "f"))) == [(OWN, kind, "f")]


@pytest.mark.parametrize("refusals", [7, 8])
def test_a_request_is_sent_eight_times_and_each_is_counted(dynamodb, shared_table, refusals):
    left = [True] * refusals
    client = refuse(a_client(dynamodb), lambda operation: left and left.pop(), "ThrottlingException")
    assert client.meta.config.retries == {"mode": "standard", "total_max_attempts": 8}
    table = Table(shared_table.connection, client=client, patience_s=0)
    if refusals == 8:
        words = "nothing but Throttling for .* seconds.*Raise the table's read capacity"
        with pytest.raises(ManifestError, match=words):
            table.read([("nobody", "#")])
    else:
        assert table.read([("nobody", "#")]) == {}
        assert (table.meter.counts["requests"], table.meter.counts["retried"]) == (8, 7)
    assert not left


BUSY = [
    ClientError({"Error": {"Code": code}}, "any")
    for code in ("ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded")
]
SILENT = [ReadTimeoutError(endpoint_url="x"), EndpointConnectionError(endpoint_url="x")]


@pytest.mark.parametrize("patience_s", [20, 0])
@pytest.mark.parametrize("wrong", [BUSY, SILENT], ids=["busy", "silent"])
@pytest.mark.parametrize("what", ["read", "of_ids", "insert"])
def test_what_botocore_gives_up_is_waited_for_as_long_as_the_patience_says(
    dynamodb, shared_table, what, wrong, patience_s
):
    "Nothing is in these clients but what comes after botocore's own attempts."
    left, told, real = list(wrong), [], a_client(dynamodb)

    class Client:
        def __getattr__(self, operation):
            if left:
                raise left.pop()
            return getattr(real, operation)

    table = Table(shared_table.connection, client=Client(), patience_s=patience_s, has_answered=True)
    table.pace.throttled = lambda: told.append(what)
    key = (f"patient {what} {len(wrong)}", "f")
    calls = {"read": lambda: table.read([key]), "of_ids": lambda: table.of_ids([key[0]])}
    calls["insert"] = lambda: table.insert({key: {"eventId": key[0], "fingerprint": key[1]}})
    if not patience_s:
        remedy = "the network" if wrong is SILENT else "max_wcu" if what == "insert" else "read capacity"
        with pytest.raises(ManifestError, match=f"nothing but .* for .* seconds.*{remedy}"):
            calls[what]()
    else:
        assert not calls[what]() and not left and table.meter.counts["retried"] == len(wrong)
        assert len(told) == (len(wrong) if wrong is BUSY else 0), "the pace is that of the table"


def test_who_has_never_answered_is_not_waited_for(shared_table):
    client = Mock()
    client.batch_get_item.side_effect = SILENT
    with pytest.raises(ManifestError, match="nothing but ReadTimeoutError .*the network"):
        Table(shared_table.connection, client=client).read([("i", "f")])
    assert client.batch_get_item.call_count == 1


KEYS = ("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMIbPxRfiCYEXAMPLEKEY")


@pytest.mark.parametrize(
    "code, words",
    [
        ("ExpiredTokenException", "credentials .* expired or invalid.*renew them"),
        ("UnrecognizedClientException", "credentials .* expired or invalid.*renew them"),
        ("ResourceNotFoundException", "There is no DynamoDB table .*--create-table true"),
        ("AccessDeniedException", "does not allow batch_execute_statement .*dedup iam"),
        ("SomethingNew", "batch_execute_statement on the DynamoDB table .* was refused: SomethingNew"),
    ],
)
def test_what_cannot_be_repeated_fails_with_the_next_step_and_shows_no_secret(dynamodb, table, code, words):
    host = dynamodb.partition("://")[2]
    secret = Connection(table.name, "us-east-1", f"http://somebody:hunter2pass@{host}", *KEYS)
    told = f"The key {KEYS[0]} at http://somebody:hunter2pass@{host} is not welcome"
    client = refuse(new_client(secret), lambda operation: operation == "BatchExecuteStatement", code, told)
    with pytest.raises(ManifestError, match=words) as wrong:
        claim(Table(secret, client=client, patience_s=0.3), who(), ("a", "f"))
    assert not [part for part in (*KEYS, "hunter2pass", "somebody") if part in f"{wrong.value}{secret!r}"]


def test_what_is_refused_after_an_error_of_the_server_is_said_as_it_is(dynamodb, shared_table):
    "The request was sent again, and then the policy did not allow it: that is no lack of an answer."
    client, asked = a_client(dynamodb), []

    def send(request, **_):
        asked.append(request)
        return refusal(
            request, *(("InternalServerError", "", 500), ("AccessDeniedException",))[len(asked) > 1]
        )

    client.meta.events.register("before-send.dynamodb", send)
    with pytest.raises(DeniedError, match="does not allow batch_get_item"):
        Table(shared_table.connection, client=client).read([("a", "#")])
    assert len(asked) == 2


def test_a_table_that_is_deleted_under_way_fails_the_run_with_the_next_step(table):
    claim(table, who(), ("a", "f"))
    table.client.delete_table(TableName=table.name)
    with pytest.raises(ManifestError, match="There is no DynamoDB table .*--create-table true"):
        claim(table, who(), ("b", "f"))


@pytest.mark.parametrize("code", ["UnrecognizedClientException", "InvalidSignatureException"])
def test_wrong_credentials_are_said_at_once(dynamodb, shared_table, monkeypatch, code):
    client = refuse(a_client(dynamodb), lambda operation: True, code)
    monkeypatch.setattr("dedup_nb.dynamodb.connection.new_client", lambda connection: client)
    begun = time.monotonic()
    with pytest.raises(ManifestError, match="expired or invalid"):
        Table(Connection(shared_table.name, endpoint=dynamodb), client=client, patience_s=60).read(
            [("a", "#")]
        )
    assert time.monotonic() - begun < 20


def test_fresh_credentials_of_the_chain_are_taken_up(dynamodb, shared_table):
    expired = refuse(a_client(dynamodb), lambda operation: True, "ExpiredTokenException")
    table = Table(shared_table.connection, client=expired, patience_s=5)
    assert own_pairs(claim(table, who(), ("fresh", "f"))) == {("fresh", "f")}


HICCUP = CredentialRetrievalError(provider="role", error_msg="hunter2")


@pytest.mark.parametrize(
    "wrong, tries", [(HICCUP, 2), (UnauthorizedSSOTokenError(), 1)], ids=["role", "login"]
)
def test_a_role_that_does_not_answer_is_asked_again_and_a_login_is_asked_for(shared_table, wrong, tries):
    "A hiccup of the endpoint of roles is no reason to fail; a session that ended is, in our words."
    asked = []

    class Client:
        def batch_get_item(self, **words):
            asked.append(words)
            if len(asked) == 1:
                raise wrong
            return shared_table.client.batch_get_item(**words)

    table = Table(shared_table.connection, client=Client(), patience_s=20)
    if tries == 2:
        assert table.read([("nobody", "#")]) == {}
    else:
        with pytest.raises(ManifestError, match="aws sso login"):
            table.read([("nobody", "#")])
    assert len(asked) == tries


# --- tables ----------------------------------------------------------------------------------------------


def test_a_table_is_made_once_by_whoever_comes_and_found_by_the_rest(dynamodb):
    one = a_table(dynamodb)
    assert not table_exists(one)
    with pytest.raises(ManifestError, match="no DynamoDB table .*--create-table true"):
        described(one)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda n: create_table(a_table(dynamodb, one.name)), range(3)))
    assert table_exists(one) and check_table(one, described(one)) == []
    assert described(one)["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    assert one.ask("describe_time_to_live")["TimeToLiveDescription"]["AttributeName"] == "ttl"


def test_a_table_that_is_being_changed_is_used(table):
    asked = table.ask
    table.ask = lambda *what: {"Table": {**asked(*what)["Table"], "TableStatus": "UPDATING"}}
    assert described(table, minutes=0)["TableStatus"] == "UPDATING"


def test_a_table_of_somebody_else_is_refused_and_left_as_it_is(dynamodb):
    other = a_table(dynamodb)
    keys = [{"AttributeName": "id", "KeyType": "HASH"}]
    types = [{"AttributeName": "id", "AttributeType": "S"}]
    made = dict(KeySchema=keys, AttributeDefinitions=types, BillingMode="PAY_PER_REQUEST")
    other.client.create_table(TableName=other.name, **made)
    words = r"has the keys id \(HASH, S\); a manifest has eventId .*left as it is"
    with pytest.raises(ManifestError, match=words):
        check_table(other, described(other))


@pytest.mark.parametrize(
    "more, words",
    [
        ({}, "has replicas in eu-west-1, us-east-1, which see late"),
        ({"MultiRegionConsistency": "EVENTUAL"}, "let all runs use one region"),
        ({"MultiRegionConsistency": "STRONG"}, None),
        ({"Replicas": []}, None),
    ],
)
def test_of_a_table_that_regions_share_and_see_late_it_is_said(table, more, words):
    copies = [{"RegionName": name, "ReplicaStatus": "ACTIVE"} for name in ("us-east-1", "eu-west-1")]
    description = described(table) | {"Replicas": copies} | more
    told = check_table(table, description)
    assert [words in note for note in told] == ([True] if words else [])


@pytest.mark.parametrize("attribute, words", [("gone", "expires items by the attribute gone"), (None, None)])
def test_the_expiry_of_a_table_is_looked_at(table, attribute, words):
    ttl = {"TimeToLiveStatus": "ENABLED" if attribute else "DISABLED", "AttributeName": attribute}
    asked = table.ask
    table.ask = lambda what, *_, **__: {"TimeToLiveDescription": ttl} if "live" in what else asked(what)
    if words:
        with pytest.raises(ManifestError, match=words):
            check_table(table, described(table))
    else:
        assert "expires nothing (TTL is off)" in check_table(table, described(table))[0]


def test_another_emulator_agrees_on_tables():
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        table = a_table("http://%s:%s" % server.get_host_and_port())
        create_table(table)
        assert check_table(table, described(table)) == [] and write_rate(described(table)) == 4000
        put_item(table, "a", "f", 7)
        assert table.read([("a", "f"), ("b", "f")])["a", "f"]["etlTime"] == 7
    finally:
        server.stop()


def test_a_long_record_is_packed():
    files = [[f"run=2026-11-20/part-{n:05}.parquet", n] for n in range(5000)]
    marker = Marker(3, "claim", "b", {"first_seq": 1, "input": files})
    assert len(log_item(marker)["info"]) < 50_000 and log_marker(log_item(marker)) == marker
    with pytest.raises(ManifestError, match="record of batch b is too large .*fewer files"):
        log_item(Marker(3, "claim", "b", {"x": random.Random(1).randbytes(400_000).hex()}))

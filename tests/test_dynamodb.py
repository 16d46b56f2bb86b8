"""The DynamoDB manifest: claims on lists of keys against a running server, faults included. No Spark here but for the last tests."""
import base64, json, os, random, shutil, signal, time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
import pyarrow as pa
import pytest
from botocore.exceptions import CredentialRetrievalError, UnauthorizedSSOTokenError
from pyspark.sql import functions as F
from emulator import Faults, a_table, items, refuse
from dedup_nb.config import Config, ConfigError
from dedup_nb.manifest import GONE, HEAD, NO_TIME, RENAMED, STAYS, BusyError, FencedError, ManifestError, id_key, pair_key
from dedup_nb import dynamodb as module
from dedup_nb.cli import main
from dedup_nb.costs import Terms
from dedup_nb.dynamodb import (KNOWN, LATER, OWN, PURPOSES, TAKEN, Claimant, Claims, Connection, DynamoManifest, Pace, PutTable, Table, client_of, connection_of, create_table, find_table, iam_policy, raised_capacity,
                               snowplow_config, write_rate)

DAY = 86400


def who(batch="b", seq=1, day=0, **more):
    "An attempt at a batch of some day."
    return Claimant(batch, f"{batch}@{seq}", 1_800_000_000 + day * DAY, 1_800_000_000, 180 * DAY, sees=seq, **more)


def said(answers): return sorted((a.kind, a.event_id, a.fingerprint or "") for a in answers)


def own(answers): return {(a.event_id, a.fingerprint) for a in answers if a.kind in (OWN, LATER)}


@pytest.fixture
def table(dynamodb):
    made = a_table(dynamodb, patience_s=20)
    create_table(made)
    return made


@pytest.fixture(params=["partiql", "put"])
def either(request, table):
    "The table by PartiQL, and by PutItem alone."
    return table if request.param == "partiql" else PutTable(table.connection, client=table.client, patience_s=20)


# -- a claim --

@pytest.mark.parametrize("read_first", [False, True])
@pytest.mark.parametrize("heads", [True, False])
def test_the_first_batch_owns_and_the_second_yields_whatever_it_asks_first(table, heads, read_first):
    ids = [("a", ["f", "g"]), ("b", ["f"]), ("c", [None])]
    first = Claims(table, who("one", 1, heads=heads), read_first).of(ids)
    assert said(first) == [(OWN, "a", "f"), (OWN, "b", "f"), (OWN, "c", ""), (LATER, "a", "g")]
    second = Claims(table, who("two", 2, 1, heads=heads), read_first).of([("a", ["g", "h"]), ("b", ["f"]), ("c", [None]), ("d", ["f"])])
    assert own(second) == {("a", "h"), ("c", None), ("d", "f")} and {a.event_id for a in second if a.kind == TAKEN} == {"a", "b"}
    assert {(a.event_id, a.run) for a in second if a.kind == KNOWN} == {("a", "one@1"), ("b", "one@1"), ("c", "one@1")}


@pytest.mark.parametrize("heads", [True, False])
def test_an_attempt_that_asks_again_gets_what_it_got(table, heads):
    ids = [("a", ["f", "g"]), ("b", ["f"]), ("c", [None, "f"])]
    Claims(table, who("zero", 1, -1, heads=heads)).of([("b", ["x"]), ("a", ["g"])])
    answers = [said(Claims(table, who("one", 2, heads=heads), read_first).of(ids)) for read_first in (False, False, True)]
    assert answers[0] == answers[1] == answers[2]


def test_putitem_alone_decides_the_same(table, dynamodb):
    other = a_table(dynamodb, PutTable)
    create_table(other)
    outcomes = []
    for t in (table, other):
        steps = []
        for seq, ids in enumerate(([("a", ["f"]), ("b", ["f", "g"])], [("a", ["g", "f"]), ("b", ["g"]), ("c", [None])], [("a", ["g", "h"]), ("c", ["f"])]), 1):
            steps.append(sorted(map(tuple, Claims(t, who(f"b{seq}", seq, seq)).of(ids)), key=str))
        outcomes.append((steps, {k: {n: v for n, v in i.items() if n != "ttl"} for k, i in items(t).items()}))
    assert outcomes[0] == outcomes[1]


def test_an_expired_row_is_taken_over_exactly_after_its_last_second(either):
    Claims(either, who("one", 1)).of([("a", ["f"]), ("b", ["f"])])
    on_time = Claims(either, who("two", 2, 180)).of([("a", ["f"])])
    late = Claims(either, Claimant("three", "three@3", 1_800_000_000 + 180 * DAY + 1, 0, 180 * DAY, sees=3)).of([("b", ["f"])])
    assert said(on_time)[0][0] == TAKEN and said(late) == [(OWN, "b", "f")] and items(either)["b", "#"]["run"] == "three@3"


def test_a_row_of_a_run_that_is_over_is_taken_over_and_of_a_newer_attempt_fences(either):
    Claims(either, who("one", 1)).of([("a", ["f"])])
    assert said(Claims(either, who("two", 2, dead=frozenset({"one@1"}))).of([("a", ["f"])])) == [(OWN, "a", "f")]
    Claims(either, who("one", 3)).of([("b", ["f"])])
    with pytest.raises(FencedError, match="taken over by another run"): Claims(either, who("one", 1)).of([("b", ["f"])])
    assert said(Claims(either, who("one", 4)).of([("b", ["f"])])) == [(OWN, "b", "f")]


def test_a_head_lives_as_long_as_what_was_renamed_because_of_it(either):
    Claims(either, who("one", 1)).of([("a", ["f"])])
    assert said(Claims(either, who("two", 2, 170)).of([("a", ["g"])]))[0] == (LATER, "a", "g")
    later = Claims(either, who("three", 3, 185)).of([("a", ["f", "g"])])
    assert [a for a in said(later) if a[0] != KNOWN] == [(TAKEN, "a", "f"), (TAKEN, "a", "g")]
    assert Counter(a.run for a in later if a.kind == KNOWN) == {"one@1": 1, "two@2": 1}


def test_without_renaming_the_first_pair_ends_with_its_own_time_and_the_id_with_its_last(either):
    Claims(either, who("one", 1, renames=False)).of([("a", ["f"])])
    Claims(either, who("two", 2, 170, renames=False)).of([("a", ["g"])])
    later = Claims(either, who("three", 3, 185, renames=False)).of([("a", ["f", "g"])])
    assert [a for a in said(later) if a[0] != KNOWN] == [(LATER, "a", "f"), (TAKEN, "a", "g")]
    assert {a.fingerprint for a in later if a.kind == KNOWN} == {None, "g"}


def test_a_dead_head_with_tails_does_not_let_a_loaded_pair_in_again(either):
    Claims(either, who("one", 1)).of([("a", ["f"])])
    Claims(either, who("two", 2, 1)).of([("a", ["g"])])
    three = who("three", 3, 2, dead=frozenset({"one@1"}))
    assert [x for x in said(Claims(either, three).of([("a", ["g"])])) if x[0] != KNOWN] == [(TAKEN, "a", "g")]
    assert said(Claims(either, three).of([("a", ["g", "f"])]))[0] == (OWN, "a", "f")


def test_a_forgotten_head_stays_while_others_rest_on_it(table):
    Claims(table, who("one", 1)).of([("a", ["f"]), ("b", ["f"])])
    Claims(table, who("two", 2, 1)).of([("a", ["g"])])
    assert table.delete([("a", "#"), ("b", "#")], "one@1") == 1
    assert set(items(table)) == {("a", "#"), ("a", "g")}


def test_rows_of_the_original_count_by_their_time_and_keep_what_else_they_hold(either):
    table, etl = either, who().etl
    for i, time_ in (("a", etl), ("b", etl - DAY), ("c", etl - 181 * DAY)):
        table.client.put_item(TableName=table.name, Item={"eventId": {"S": i}, "fingerprint": {"S": "f"}, "etlTime": {"N": str(time_)}, "ttl": {"N": str(time_ + 180 * DAY)}, "note": {"M": {"by": {"S": "hand"}}}})
    answers = Claims(table, who("one", 1, heads=False)).of([("a", ["f"]), ("b", ["f", "g"]), ("c", ["f"])])
    assert own(answers) == {("a", "f"), ("b", "g"), ("c", "f")} and [(a.event_id, a.run) for a in answers if a.kind == KNOWN and a.fingerprint == "f"] == [("b", None)]
    after = table.client.get_item(TableName=table.name, Key={"eventId": {"S": "c"}, "fingerprint": {"S": "f"}})["Item"]
    assert after["run"] == {"S": "one@1"} and after["note"] == {"M": {"by": {"S": "hand"}}}


def test_any_text_is_a_key(either):
    odd = ["#", "#dedup_nb", "x" * 3000, "'; DROP", "é\n\"?", " ", "#sha256/" + "0" * 64]
    ids = [(text, [text, "f"]) for text in odd]
    assert len(own(Claims(either, who("one", 1)).of(ids))) == 14
    assert own(Claims(either, who("two", 2, 1)).of(ids)) == set()


def test_old_batches_are_not_swept_away(table):
    Claims(table, Claimant("old", "old@1", 1_500_000_000, int(time.time()), 180 * DAY, sees=1)).of([("a", ["f", "g"])])
    assert all(int(i["ttl"]) >= time.time() + 180 * DAY - 5 for i in items(table).values())
    Claims(table, Claimant("next", "next@2", 1_500_000_000 + DAY, int(time.time()) + 3600, 180 * DAY, sees=2)).of([("a", ["h"])])
    assert int(items(table)["a", "#"]["ttl"]) >= time.time() + 3600 + 180 * DAY - 5 and int(items(table)["a", "#"]["until"]) == 1_500_000_000 + 181 * DAY


def test_looking_writes_nothing_and_sees_what_a_claim_would(either):
    Claims(either, who("one", 1)).of([("a", ["f", "g"])])
    before = items(either)
    answers = Claims(either, who("two", 2, 1, writes=False)).of([("a", ["g", "h"]), ("b", ["f"])])
    assert {(a.kind, a.fingerprint) for a in answers} == {(KNOWN, "f"), (KNOWN, "g")} and items(either) == before


# -- requests and units --

def test_a_thousand_keys_take_forty_requests(table, dynamodb):
    ids = [(f"id{n}", ["f"]) for n in range(1000)]
    Claims(table, who("one", 1)).of(ids)
    assert table.meter.counts["requests"] - 4 == 40 and table.meter.counts["write_units"] == 1000
    put = PutTable(table.connection, client=table.client)
    Claims(put, who("one", 1)).of(ids[:100])
    assert put.meter.counts["requests"] == 100


def test_reading_first_is_chosen_when_more_than_a_sixth_is_refused(table):
    ids = [(f"id{n}", ["f"]) for n in range(600)]
    Claims(table, who("one", 1)).of(ids)
    again = Table(table.connection, client=table.client)
    claims = Claims(again, who("two", 2, 1), None)
    for start in range(0, 600, 200): claims.of(ids[start:start + 200])
    assert claims.read_first and again.meter.counts["write_units"] == 200 and again.meter.counts["read_units"] == 600


# -- pace --

def test_the_pace_starts_slowly_halves_on_throttling_and_recovers():
    clock = [0.0]
    pace = Pace(100, lambda: clock[0], lambda s: clock.__setitem__(0, clock[0] + s))
    for _ in range(40): pace.take(25)
    assert pace.rate == 100 and 12 < clock[0] < 18, "1000 units at 100 a second, after a slow start"
    pace.throttled(); pace.throttled()
    assert pace.rate == 50, "answers of one second count once"
    clock[0] += 3; pace.take(1)
    assert 80 <= pace.rate < 85, "a tenth of the top more each second"


def test_the_rate_comes_from_the_table():
    assert write_rate({"ProvisionedThroughput": {"WriteCapacityUnits": 100}, "WarmThroughput": {"WriteUnitsPerSecond": 9}}) == 100
    assert write_rate({"ProvisionedThroughput": {"WriteCapacityUnits": 0}, "OnDemandThroughput": {"MaxWriteRequestUnits": 700}}) == 700
    assert write_rate({"OnDemandThroughput": {"MaxWriteRequestUnits": -1}, "WarmThroughput": {"WriteUnitsPerSecond": 12000}}) == 12000 and write_rate({}) == 4000


# -- faults --

def in_parts(ids, size): return [ids[n:n + size] for n in range(0, len(ids), size)]


def claimed_by(endpoint, name, claimant, ids, faults, read_first=None):
    table = a_table(endpoint, name=name, faults=faults, patience_s=60)
    claims = Claims(table, claimant, read_first)
    with ThreadPoolExecutor(4) as pool: return [a for answers in pool.map(claims.of, in_parts(ids, 60)) for a in answers]


@pytest.mark.parametrize("heads", [True, False])
def test_three_runs_over_shared_keys_with_lost_answers_and_throttling_keep_every_key_once(table, dynamodb, heads):
    dice = random.Random(7)
    pool = [(f"id{n}", "f") for n in range(300)] + ([(f"id{n}", "g") for n in range(40)] if heads else [])
    old = who("old", 1, -200, heads=heads)
    Claims(table, old).of([(f"id{n}", ["f"]) for n in range(0, 300, 3)])
    batches = [dice.sample(pool, 200) for _ in range(3)]
    def grouped_(pairs):
        by_id = {}
        for i, p in sorted(pairs): by_id.setdefault(i, []).append(p)
        return list(by_id.items())
    claimants = [who(f"run{n}", n + 2, heads=heads) for n in range(3)]
    faults = [Faults(n, lost=0.15, unsent=0.05, busy=0.03, broken=0.02, throttled=0.2) for n in range(4)]
    with ThreadPoolExecutor(4) as runs:
        jobs = [runs.submit(claimed_by, dynamodb, table.name, claimants[n % 3], grouped_(batches[n % 3]), faults[n]) for n in range(4)]  # run0 twice, as a speculative task would
        results = [job.result() for job in jobs]
    kept = Counter(pair for answers in results[:3] for pair in own(answers))
    assert kept == Counter({pair for b in batches for pair in b}), "each key is kept exactly once"
    assert said(a for a in results[3] if a.kind != KNOWN) == said(a for a in results[0] if a.kind != KNOWN)
    assert all(sum(f.count[what] for f in faults) > 5 for what in ("lost", "unsent", "throttled"))
    for n in range(3):
        for read_first in (False, True):
            assert own(Claims(table, claimants[n], read_first).of(grouped_(batches[n]))) == own(results[n]), "a rerun decides the same"


@pytest.mark.parametrize("code", ["ProvisionedThroughputExceeded", "ThrottlingError", "RequestLimitExceeded", "InternalServerError", "TransactionConflict"])
def test_members_that_were_throttled_are_sent_again_alone(dynamodb, code):
    table = a_table(dynamodb, faults=(faults := Faults(3, throttled=0.3, code=code)))
    create_table(table)
    assert len(own(Claims(table, who()).of([(f"id{n}", ["f"]) for n in range(75)]))) == 75
    assert table.meter.counts["retried"] == faults.count["throttled"] > 10 and table.meter.counts["write_units"] == 75


def test_throttling_that_does_not_end_fails_and_claims_nothing_for_others(dynamodb, table):
    busy = a_table(dynamodb, name=table.name, faults=Faults(busy=1.0), patience_s=0.5)
    start = time.monotonic()
    with pytest.raises(ManifestError, match="nothing but Throttling for 0.5 seconds.*no event is lost.*Lower max_wcu"): Claims(busy, who("one", 1)).of([("a", ["f"])])
    assert time.monotonic() - start < 5
    assert said(Claims(table, who("one", 1)).of([("a", ["f"])])) == [(OWN, "a", "f")]


@pytest.mark.parametrize("code, words", [("ExpiredTokenException", "credentials .* expired or invalid.*renew them"), ("ResourceNotFoundException", "There is no DynamoDB table .*--create-table true"), ("AccessDeniedException", "does not allow batch_execute_statement .*dedup iam")])
def test_what_cannot_be_repeated_fails_with_the_next_step(dynamodb, table, code, words):
    client = refuse(a_table(dynamodb).client, lambda operation, body: operation == "BatchExecuteStatement", code)
    bad = Table(Connection(table.name, None, dynamodb, "key", "secret"), client=client, patience_s=0.3)
    with pytest.raises(ManifestError, match=words): Claims(bad, who()).of([("a", ["f"])])


def test_a_table_that_is_deleted_under_way_fails_the_run_with_the_next_step(dynamodb, table):
    Claims(table, who()).of([("a", ["f"])])
    table.client.delete_table(TableName=table.name)
    with pytest.raises(ManifestError, match="There is no DynamoDB table .*--create-table true"): Claims(table, who()).of([("b", ["f"])])


@pytest.mark.parametrize("code, words", [("UnrecognizedClientException", "expired or invalid"), ("InvalidSignatureException", "expired or invalid")])
def test_wrong_credentials_are_said_at_once(dynamodb, table, monkeypatch, code, words):
    client = refuse(a_table(dynamodb).client, lambda operation, body: True, code)
    monkeypatch.setattr(module, "_new_client", lambda connection: client)
    begun = time.monotonic()
    with pytest.raises(ManifestError, match=words): Table(Connection(table.name, endpoint=dynamodb), client=client, patience_s=60).read([("a", "#")])
    assert time.monotonic() - begun < 20


@pytest.mark.parametrize("wrong, tries", [(CredentialRetrievalError(provider="role", error_msg="hunter2"), 2), (UnauthorizedSSOTokenError(), 1)])
def test_a_role_that_does_not_answer_is_asked_again_and_a_login_is_asked_for(table, wrong, tries):
    "A hiccup of the endpoint of roles is no reason to fail; a session that ended is, in our words."
    asked = []
    class Client:
        def batch_get_item(self, **words):
            asked.append(words)
            if len(asked) == 1: raise wrong
            return table.client.batch_get_item(**words)
    find = lambda: Table(table.connection, client=Client(), patience_s=20).read([("a", "#")])
    if tries == 2: assert find() == {}
    else:
        with pytest.raises(ManifestError, match="aws sso login"): find()
    assert len(asked) == tries


def test_a_time_with_a_fraction_is_taken_over_like_others(table):
    table.client.put_item(TableName=table.name, Item={"eventId": {"S": "a"}, "fingerprint": {"S": "f"}, "etlTime": {"N": "1500000000.5"}, "ttl": {"N": "1500000001"}})
    assert own(Claims(table, who(heads=False)).of([("a", ["f"])])) == {("a", "f")}


def test_what_may_have_been_written_twice_is_counted_twice(dynamodb, table):
    lossy = a_table(dynamodb, name=table.name, faults=(faults := Faults(5, lost=0.3)), patience_s=20)
    assert len(own(Claims(lossy, who()).of([(f"id{n}", ["f"]) for n in range(250)]))) == 250
    assert lossy.meter.counts["write_units"] == 250 + 25 * faults.count["lost"] > 250


def test_fresh_credentials_of_the_chain_are_taken_up(dynamodb, table):
    expired = refuse(a_table(dynamodb).client, lambda operation, body: True, "ExpiredTokenException")
    assert own(Claims(Table(table.connection, client=expired, patience_s=5), who()).of([("a", ["f"])])) == {("a", "f")}


ASKED = {"before_insert": "before-send.dynamodb.BatchExecuteStatement", "after_insert": "after-call.dynamodb.BatchExecuteStatement",
         "before_read": "before-send.dynamodb.BatchGetItem", "after_read": "after-call.dynamodb.BatchGetItem"}


def killed(endpoint, name, claimant, ids, point):
    "Claim in a process of its own that dies (kill -9) at the n-th request or answer of a kind."
    if (child := os.fork()) == 0:
        what, _, number = point.partition(":")
        table, count = a_table(endpoint, name=name), [0]
        def die(**_):
            count[0] += 1
            if count[0] == int(number): os.kill(os.getpid(), signal.SIGKILL)
        table.client.meta.events.register(ASKED[what], die)
        try: Claims(table, claimant).of(ids)
        finally: os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -9, point


IDS = [(f"id{n:03}", ["f", "g"] if n % 5 == 0 else ["f"]) for n in range(200)]
POINTS = ["before_insert:1", "after_insert:1", "before_insert:4", "after_read:1", "after_insert:9"]


def killed_and_run_again(endpoint, points):
    "Kill attempt after attempt, then let one finish beside another batch: what each owns."
    table = a_table(endpoint)
    create_table(table)
    Claims(table, who("earlier", 1)).of([(f"id{n:03}", ["f"]) for n in range(0, 200, 7)])
    for n, point in enumerate(points, 2): killed(endpoint, table.name, who("killed", n, 1, dead=frozenset(f"killed@{m}" for m in range(2, n))), IDS, point)
    seq = len(points) + 2
    dead = frozenset(f"killed@{n}" for n in range(2, seq))
    return table, own(Claims(table, who("killed", seq, 1, dead=dead), read_first=True).of(IDS)), dead


def test_killed_at_any_point_and_run_again_nothing_is_lost_and_nothing_twice(dynamodb):
    table, mine, dead = killed_and_run_again(dynamodb, POINTS)
    assert mine == {(i, p) for n, (i, prints) in enumerate(IDS) for p in prints if p == "g" or n % 7}
    assert own(Claims(table, who("next", 9, 2, dead=dead)).of(IDS)) == set()


def test_the_keys_of_a_killed_run_that_nobody_repeats_are_free_once_it_is_over(dynamodb):
    table = a_table(dynamodb)
    create_table(table)
    killed(dynamodb, table.name, who("killed", 2, 1), IDS, "after_insert:3")
    ids = [(i, ["f"]) for i, _ in IDS]
    yielded = Claims(table, who("next", 3, 2)).of(ids[:100])
    assert 0 < len(own(yielded)) < 100 and {a.run for a in yielded if a.kind == KNOWN} == {"killed@2"}
    assert len(own(Claims(table, who("last", 4, 2, dead=frozenset({"killed@2", "next@3"}))).of(ids))) == 200


def test_a_clock_that_is_off_changes_no_decision(table):
    ids = [("a", ["f"]), ("b", ["f", "g"])]
    Claims(table, who("one", 1)).of(ids)
    for hour in (-3600, 0, 3600):
        off = Claimant("two", "two@2", who().etl + DAY, who().now + hour, 180 * DAY, sees=2)
        assert own(Claims(table, off).of(ids)) == set()


def test_of_two_claimants_of_the_same_thousand_keys_each_key_has_one(table, dynamodb):
    ids = [(f"id{n}", ["f", "g"] if n % 10 == 0 else ["f"]) for n in range(300)]
    def race(n): return own(Claims(a_table(dynamodb, name=table.name), who(f"r{n}", n)).of(ids if n % 2 else ids[::-1]))
    with ThreadPoolExecutor(4) as pool: won = list(pool.map(race, range(1, 5)))
    assert Counter(pair for w in won for pair in w) == Counter((i, p) for i, prints in ids for p in prints)


# -- the ledger --

def at(day): return datetime(2026, 11, 1, tzinfo=timezone.utc) + timedelta(days=day)


def opened(endpoint, table=None, client=None, **more):
    "A manifest without Spark: all but the claims themselves."
    connection = Connection(table.name if table else f"dedup_test_{os.getpid()}_{time.monotonic_ns()}", None, endpoint)
    return DynamoManifest(None, connection, "unused", recipe={"format": 1, "retention_days": 180}, say=lambda line: None, create=True, patience_s=20, **more)


def test_claims_of_many_runs_at_once_get_numbers_of_their_own(dynamodb):
    first = opened(dynamodb)
    with ThreadPoolExecutor(6) as pool: claims = list(pool.map(lambda n: opened(dynamodb, first._table).begin(f"b{n}", at(n), {"token": f"t{n}"}), range(6)))
    assert sorted(c.seq for c in claims) == list(range(1, 7)) and sorted(e.batch_id for e in first.ledger()) == [f"b{n}" for n in range(6)]


def test_of_two_runs_of_one_batch_one_begins(dynamodb):
    first = opened(dynamodb)
    def begin(n):
        try: return opened(dynamodb, first._table).begin("b", at(1), {"token": f"t{n}"})
        except BusyError as wrong: return wrong
    with ThreadPoolExecutor(4) as pool: found = list(pool.map(begin, range(4)))
    assert sum(isinstance(f, BusyError) for f in found) == 3


def test_the_ledger_survives_lost_answers(dynamodb, monkeypatch):
    faults = Faults(5, lost=0.3, unsent=0.1)
    real = module._new_client
    monkeypatch.setattr(module, "client_of", lambda connection: faults.on(real(connection)))
    m = opened(dynamodb)
    for n in range(8): m.give_up(m.begin(f"b{n}", at(n), {"token": f"t{n}"}))
    assert faults.count["lost"] > 3 and [m.kind for m in m._markers()] == ["recipe"] + ["claim", "abandon"] * 8


@pytest.mark.parametrize("layout", ["heads", "pairs"])
def test_a_table_with_rows_of_the_original_keeps_its_layout(dynamodb, table, layout):
    if layout == "pairs": table.client.put_item(TableName=table.name, Item={"eventId": {"S": "a"}, "fingerprint": {"S": "f"}, "etlTime": {"N": "1"}, "ttl": {"N": "2"}})
    assert opened(dynamodb, table).layout == layout == opened(dynamodb, table).layout
    other = {"heads": "pairs", "pairs": "heads"}[layout]
    with pytest.raises(ManifestError, match=f"has the layout {layout}, which cannot be changed to {other}"): opened(dynamodb, table, layout=other)


def test_a_long_record_is_packed(dynamodb):
    m = opened(dynamodb)
    files = [[f"run=2026-11-20/part-{n:05}.parquet", n] for n in range(5000)]
    m.begin("b", at(1), {"token": "t", "input": files})
    assert opened(dynamodb, m._table).ledger()[0].info["input"] == files


def test_a_policy_with_putitem_alone_is_noticed_and_said(dynamodb, table, monkeypatch):
    allowed = {"PutItem", "DescribeTable"}
    real = module._new_client
    monkeypatch.setattr(module, "client_of", lambda connection: refuse(real(connection), lambda operation, body: operation not in allowed))
    m = opened(dynamodb, table)
    claim = m.begin("b", at(1), {"token": "t"})
    assert "no PartiQL" in claim.notes[0] and not m._table.partiql and m.layout == "pairs" and "synthetic duplicates across batches stay unnoticed" in claim.notes[1]
    m.give_up(claim)
    assert [e.state for e in opened(dynamodb, table).ledger()] == ["abandoned"]


# -- in Spark --

def in_spark(spark, endpoint, path, table=None, said=None, **more):
    connection = Connection(table.name if table else f"dedup_test_{os.getpid()}_{time.monotonic_ns()}", None, endpoint)
    settings = {"create": True, "tasks": 3, "on_driver": 0, "patience_s": 20, "recipe": {"format": 1, "retention_days": 180}, **more}
    return DynamoManifest(spark, connection, str(path), say=(said.append if said is not None else lambda line: None), **settings)


def pairs(spark, *rows):
    "Pairs (id, fingerprint or None, fate), in the order of their place."
    frame = spark.createDataFrame([(*r, n) for n, r in enumerate(rows)], "event_id string, event_fingerprint string, fate int, place int")
    return frame.select("*", *id_key(F.col("event_id")), pair_key(F.col("event_id"), F.col("event_fingerprint")).alias("pair"), F.lit(None).cast("string").alias("origin"))


def test_tasks_claim_whole_ids_once_and_the_answers_are_files(spark, dynamodb, tmp_path):
    said = []
    m = in_spark(spark, dynamodb, tmp_path, said=said)
    rows = [(f"id{n}", "f", STAYS | HEAD) for n in range(900)] + [("hot", f"f{n}", RENAMED) for n in range(1, 300)] + [("hot", "f0", GONE | HEAD), ("only", None, STAYS | HEAD)]
    rows.insert(0, rows.pop(-2))  # f0 is the first of the hot id
    one = m.begin("one", at(1), {"token": "t"})
    assert m.known(one, pairs(spark, *rows)).count() == 0
    m.commit(one, pairs(spark, *rows), {"counts": {}})
    used = m.used(one)
    assert used["claimed"] == 1201 and used["own"] == used["duplicate"] == 0 and used["requests"] <= 1201 / 20 and used["write_units"] == 1202  # one fate differs from its place
    assert items(m._table)["hot", "#"]["first"] == "f0" and items(m._table)["hot", "#"]["fate"] == "6"
    assert said[0].strip() == "1 201 pairs to claim at 4 000 write units a second: about a second, under $0.01" and said[1].strip().startswith("claimed 1 201, own 0, duplicate 0, expired 0, throttled 0, retried 0; ")
    two = m.begin("two", at(2), {"token": "u"})
    found = m.known(two, pairs(spark, ("hot", "f7", 0), ("hot", "f0", 0), ("id3", "g", 0), ("new", "f", 0)))
    expected = {("hot", "f7"): RENAMED, ("hot", "f0"): GONE | HEAD, ("id3", "f"): STAYS | HEAD}
    named = pairs(spark, *[(*k, 0) for k in expected]).select("event_id", "event_fingerprint", "pair")
    assert {(r.event_id, r.event_fingerprint): r.fate for r in found.join(named, "pair").collect()} == expected and {r.batch_id for r in found.collect()} == {"one"}


def test_the_sentence_before_a_run_goes_by_the_terms_of_the_table(spark, dynamodb, tmp_path):
    name = f"dedup_test_{os.getpid()}_{time.monotonic_ns()}"
    client_of(Connection(name, None, dynamodb)).create_table(TableName=name, KeySchema=[{"AttributeName": "eventId", "KeyType": "HASH"}, {"AttributeName": "fingerprint", "KeyType": "RANGE"}],
        AttributeDefinitions=[{"AttributeName": n, "AttributeType": "S"} for n in ("eventId", "fingerprint")], BillingMode="PAY_PER_REQUEST", TableClass="STANDARD_INFREQUENT_ACCESS")
    old = in_spark(spark, dynamodb, tmp_path / "old", SimpleNamespace(name=name), layout="pairs")
    assert old.terms == Terms(4000, False, "ia", "pairs", rcu=12_000) and old.terms.claiming() == "read_first" and old.forecast(2_000_000).endswith("about 8 minutes, $1.87")   # 2 * 0.78 to insert, 2 * 0.155 to read before
    assert old.forecast(2_000_000, rerun=True) == "2 000 000 pairs to look up at 12 000 read units a second: about 3 minutes, $0.31"
    Path("dear.toml").write_text("[regions.us-east-1]\nstandard_write_usd_per_million = 10\n")
    new = in_spark(spark, dynamodb, tmp_path / "new", capacity=(5, 50), prices="dear.toml")
    assert new.terms == Terms(50, True, rcu=5) == in_spark(spark, dynamodb, tmp_path / "new", SimpleNamespace(name=new.connection.table), max_wcu=3000).terms and new.forecast(100).endswith("about 2 seconds, paid with its provisioned capacity")
    assert in_spark(spark, dynamodb, tmp_path / "dear", prices="dear.toml").forecast(2_000_000).endswith("$20.00")


def test_what_a_task_raised_is_said_in_its_own_words(spark, dynamodb, tmp_path):
    m = in_spark(spark, dynamodb, tmp_path)
    claim = m.begin("one", at(1), {"token": "t"})
    m._table.client.delete_table(TableName=m.connection.table)
    m._refresh = lambda: None
    with pytest.raises(ManifestError, match="^There is no DynamoDB table dedup_test_.*Nothing of this batch is committed"): m.known(claim, pairs(spark, ("a", "f", 0)))


def test_an_attempt_that_lost_keys_frees_them_and_killed_ones_are_taken(spark, dynamodb, tmp_path):
    m = in_spark(spark, dynamodb, tmp_path, on_driver=2000)
    first = m.begin("one", at(1), {"token": "t1"})
    m.known(first, pairs(spark, ("a", "f", 0), ("b", "f", 0), ("c", "f", 0)))
    m.give_up(first)
    second = m.begin("one", at(1), {"token": "t2"})
    m.known(second, pairs(spark, ("a", "f", 0)))
    m.commit(second, pairs(spark, ("a", "f", STAYS | HEAD)), {})
    assert set(items(m._table)) == {("a", "#")} and m.ledger()[0].committed["released"] == 2


def test_a_batch_that_yielded_to_one_given_up_by_hand_is_not_committed_and_its_rerun_takes_over(spark, dynamodb, tmp_path):
    m = in_spark(spark, dynamodb, tmp_path, on_driver=2000)
    m.known(m.begin("one", at(1), {"token": "t1"}), pairs(spark, ("a", "f", 0)))
    two = m.begin("two", at(2), {"token": "t2"})
    assert m.known(two, pairs(spark, ("a", "f", 0))).first().batch_id == "one" and "batch one, which is not committed yet" in m.notes(two)[0]
    m.abandon("one")
    with pytest.raises(ManifestError, match="Batch two dropped or renamed rows in favour of one, which was given up.*run it again"): m.commit(two, pairs(spark).limit(0), {"dropped_for": {"one": 1}})
    m.give_up(two)
    again = m.begin("two", at(2), {"token": "t3"})
    assert m.known(again, pairs(spark, ("a", "f", 0))).count() == 0


def test_abandon_is_refused_while_a_committed_batch_relies_on_it(spark, dynamodb, tmp_path):
    m = in_spark(spark, dynamodb, tmp_path, on_driver=2000)
    m.known(m.begin("one", at(1), {"token": "t1"}), pairs(spark, ("a", "f", 0)))
    two = m.begin("two", at(2), {"token": "t2"})
    m.known(two, pairs(spark, ("a", "f", 0)))
    m.commit(two, pairs(spark).limit(0), {"dropped_for": {"one": 1}})
    with pytest.raises(ManifestError, match="cannot be abandoned: two dropped rows in its favour.*--force"): m.abandon("one")
    assert m.abandon("one", force=True) == ["two"]
    rerun = m.begin("two", at(2), {"token": "t3"}, rerun=True)
    assert m.known(rerun, pairs(spark, ("a", "f", 0))).count() == 0 and items(m._table)["a", "#"]["run"] == f"two@{two.seq}"


def test_a_batch_that_yielded_to_a_run_that_died_is_not_committed_beside_another_run_without_the_pair(spark, dynamodb, tmp_path):
    "Both would be without the event: whichever commits second is stopped."
    m = in_spark(spark, dynamodb, tmp_path, on_driver=2000)
    def yielded():
        died = m.begin("one", at(1), {"token": f"dead {time.monotonic_ns()}"})
        m.known(died, pairs(spark, ("a", "f", 0), ("b", "f", 0)))
        two = m.begin("two", at(2), {"token": f"two {time.monotonic_ns()}"})
        m.known(two, pairs(spark, ("b", "f", 0)))
        m.give_up(died)
        again = m.begin("one", at(1), {"token": f"again {time.monotonic_ns()}"})
        m.known(again, pairs(spark, ("a", "f", 0)))
        return two, again, lambda: m.commit(two, pairs(spark).limit(0), {"dropped_for": {"one": 1}}), lambda: m.commit(again, pairs(spark, ("a", "f", STAYS | HEAD)), {})
    two, again, commit_two, commit_again = yielded()
    commit_again()
    with pytest.raises(ManifestError, match="in favour of one, which was given up or loaded by another attempt"): commit_two()
    m.give_up(two)
    m.forget("one")
    two, again, commit_two, commit_again = yielded()
    release = m._release
    def late(claim):
        freed = release(claim)
        if claim is again: commit_two()  # between the release and the commit
        return freed
    m._release = late
    with pytest.raises(ManifestError, match="has pairs less than an attempt before it, and two dropped rows in its favour"): commit_again()


def test_what_a_killed_attempt_took_is_looked_up_where_others_yielded_to_it(spark, dynamodb, tmp_path):
    "Its files list nothing: it was killed before they were there."
    m = in_spark(spark, dynamodb, tmp_path, on_driver=2000)
    m.known(m.begin("one", at(1), {"token": "killed"}), pairs(spark, ("a", "f", 0), ("b", "f", 0)))
    shutil.rmtree(m._folder("one", "killed"))
    two = m.begin("two", at(2), {"token": "two"})
    m.known(two, pairs(spark, ("b", "f", 0)))
    m.commit(two, pairs(spark).limit(0), {"dropped_for": {"one": 1}})
    m.give_up(m.open_claim("one") and m.look("one", at(1), {"token": "killed"}))
    again = m.begin("one", at(1), {"token": "again"})
    m.known(again, pairs(spark, ("a", "f", 0)))
    with pytest.raises(ManifestError, match="has 1 pairs less than an attempt before it, and two dropped rows in its favour"): m.commit(again, pairs(spark, ("a", "f", STAYS | HEAD)), {})


def test_a_batch_from_before_others_that_may_have_taken_its_rows_over_is_refused(spark, dynamodb, tmp_path):
    m = in_spark(spark, dynamodb, tmp_path, on_driver=2000)
    for name, day in (("one", 1), ("two", 201)):
        claim = m.begin(name, at(day), {"token": name})
        m.known(claim, pairs(spark, ("a", "f", 0)))
        m.commit(claim, pairs(spark, ("a", "f", STAYS | HEAD)), {})
    with pytest.raises(ManifestError, match="Batch late .*would have seen the pairs of one.*given to a later batch.*--force"): m.begin("late", at(100), {"token": "late"})
    with pytest.raises(ManifestError, match="Batch one .*--force"): m.begin("one", at(1), {"token": "rerun"}, rerun=True)
    assert m.begin("next", at(202), {"token": "next"}).batch_id == "next"


def test_a_batch_without_a_time_has_no_pairs(spark, dynamodb, tmp_path):
    m = in_spark(spark, dynamodb, tmp_path, on_driver=2000)
    claim = m.begin("timeless", NO_TIME, {"token": "t"})
    with pytest.raises(ManifestError, match="Nobody knows when batch timeless was.*etl_time"): m.known(claim, pairs(spark, ("a", "f", 0)))
    assert m.known(claim, pairs(spark).limit(0)).count() == 0
    m.give_up(claim)
    # an attempt that told no time binds no other
    assert m.begin("timeless", at(1), {"token": "u"}).etl_time == at(1)


def test_a_commit_that_comes_in_between_wins_over_abandon(spark, dynamodb, tmp_path):
    m = in_spark(spark, dynamodb, tmp_path, on_driver=2000)
    m.known(m.begin("one", at(1), {"token": "t1"}), pairs(spark, ("a", "f", 0)))
    two = m.begin("two", at(2), {"token": "t2"})
    m.known(two, pairs(spark, ("a", "f", 0)))
    opened = m.open_claim
    def late(batch_id):
        entry = opened(batch_id)
        m.commit(two, pairs(spark).limit(0), {"dropped_for": {"one": 1}})
        return entry
    m.open_claim = late
    with pytest.raises(ManifestError, match="cannot be abandoned: two dropped rows"): m.abandon("one")
    assert {e.batch_id: e.state for e in m.ledger()} == {"one": "claimed", "two": "committed"}


def test_a_forget_that_was_killed_is_finished_by_the_next(spark, dynamodb, tmp_path):
    m = in_spark(spark, dynamodb, tmp_path, on_driver=2000)
    claim = m.begin("one", at(1), {"token": "one"})
    m.known(claim, pairs(spark, ("a", "f", 0)))
    m.commit(claim, pairs(spark, ("a", "f", STAYS | HEAD)), {})
    delete = m._delete
    def killed(*_): raise KeyboardInterrupt
    m._delete = killed
    with pytest.raises(KeyboardInterrupt): m.forget("one")
    m._delete = delete
    assert set(items(m._table)) == {("a", "#")} and m.forget("one") == [] and not items(m._table)


@pytest.mark.parametrize("files", [True, False])
def test_forget_deletes_the_rows_of_a_batch_with_or_without_its_files(spark, dynamodb, tmp_path, files):
    m = in_spark(spark, dynamodb, tmp_path, on_driver=2000)
    for n, batch in enumerate(("one", "two"), 1):
        claim = m.begin(batch, at(n), {"token": batch})
        m.known(claim, pairs(spark, (f"a{n}", "f", 0), (f"a{n}", "g", 0)))
        m.commit(claim, pairs(spark, (f"a{n}", "f", STAYS | HEAD), (f"a{n}", "g", RENAMED)), {})
    if not files: shutil.rmtree(tmp_path / "claims")
    assert m.forget("one") == [] and set(items(m._table)) == {("a2", "#"), ("a2", "g")}


# -- policies --

def test_putitem_alone_opens_a_table_that_has_no_ledger_yet(dynamodb, table, monkeypatch):
    "Under the policy `fallback`: nothing else may be called."
    monkeypatch.setattr(module, "client_of", lambda connection: refuse(a_table(dynamodb).client, lambda operation, body: operation not in PURPOSES["fallback"]))
    m = DynamoManifest(None, table.connection, "unused", recipe={"format": 1}, say=lambda line: None, strategy="put_item")
    assert m.layout == "pairs" and m.begin("one", at(1), {"token": "t"}).seq == 1


def test_heads_would_not_see_the_rows_of_the_original(table):
    table.client.put_item(TableName=table.name, Item={"eventId": {"S": "a"}, "fingerprint": {"S": "f"}, "etlTime": {"N": "1.5E9"}, "ttl": {"N": "2000000000"}})
    with pytest.raises(ManifestError, match="rows of another writer, which the layout heads would not see"): DynamoManifest(None, table.connection, "unused", recipe={"format": 1}, say=lambda line: None, layout="heads")


VERBS = {"INSERT": "PartiQLInsert", "UPDATE": "PartiQLUpdate", "DELETE": "PartiQLDelete", "SELECT": "PartiQLSelect"}


def recorded(client, actions):
    "Note the actions that a policy must allow for each call."
    def note(model, params, **_):
        body = json.loads(params["body"])
        texts = [s["Statement"] for s in body.get("Statements", [])] + ([body["Statement"]] if "Statement" in body else [])
        actions.update([VERBS[t.split()[0]] for t in texts] or [model.name])
    client.meta.events.register("before-call.dynamodb", note)
    return client


def all_that_a_run_does(m, table):
    for heads in (True, False):
        Claims(table, who("one", 1, heads=heads)).of([("a", ["f", "g"]), ("b", ["f"])])
        Claims(table, who("two", 2, 1, heads=heads, dead=frozenset({"one@1"}))).of([("a", ["f", "h"]), ("b", ["g"])])
    table.mark({("a", "#"): 2}, "two@2")
    table.delete([("a", "h")], "two@2")
    m.give_up(m.begin("b", at(1), {"token": "t"}))
    m.held(["a"])


def test_each_policy_allows_what_is_called_and_nothing_else(dynamodb, monkeypatch):
    real, actions = module._new_client, {p: set() for p in PURPOSES}
    now = ["create"]
    monkeypatch.setattr(module, "client_of", lambda connection: recorded(real(connection), actions[now[0]]))
    table = a_table(dynamodb)
    made = Table(table.connection)
    create_table(made)
    now[0] = "run"
    m = DynamoManifest(None, table.connection, "unused", recipe={"format": 1}, say=lambda line: None)
    all_that_a_run_does(m, m._table)
    now[0] = "fallback"
    m = DynamoManifest(None, table.connection, "unused", recipe={"format": 1}, say=lambda line: None, strategy="put_item")
    all_that_a_run_does(m, m._table)
    paid = a_table(dynamodb)
    create_table(paid, (5, 5))
    now[0] = "schedule"
    with raised_capacity(Table(paid.connection), 50): pass
    optional = {"DescribeTimeToLive"}  # asked for by every run, and done without where it is denied
    for purpose, used in actions.items(): assert used - optional == set(PURPOSES[purpose]) - optional, purpose


def test_the_command_prints_a_policy(capsys):
    assert main(["iam", "--table", "events", "--for", "create"]) == 0
    assert json.loads(capsys.readouterr().out) == iam_policy("events", "create")
    assert iam_policy("events", region="eu-west-1", account="12")["Statement"][0]["Resource"] == "arn:aws:dynamodb:eu-west-1:12:table/events"
    assert main(["iam"]) == 2 and "--table NAME" in capsys.readouterr().err
    assert main(["iam", "--table", "events", "--for", "shedule"]) == 2 and "Did you mean schedule?" in capsys.readouterr().err


# -- the table --

def test_moto_agrees_on_tables_and_putitem(monkeypatch):
    from moto.server import ThreadedMotoServer
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        table = a_table("http://%s:%s" % server.get_host_and_port(), PutTable)
        assert find_table(table, create=True)[1:] == (True, []) and find_table(table)[1:] == (False, [])
        Claims(table, who("one", 1)).of([("a", ["f", "g"]), ("b", ["f"])])
        assert own(Claims(table, who("two", 2, 1)).of([("a", ["g", "h"]), ("b", ["f"])])) == {("a", "h")}
        assert own(Claims(table, who("three", 3, 400)).of([("b", ["f"])])) == {("b", "f")}
    finally: server.stop()



def test_a_table_is_made_once_by_whoever_comes_and_found_by_the_rest(dynamodb):
    one = a_table(dynamodb)
    with pytest.raises(ManifestError, match="no DynamoDB table .*--create-table true"): find_table(one)
    with ThreadPoolExecutor(3) as pool: made = list(pool.map(lambda n: find_table(a_table(dynamodb, name=one.name), create=True)[2], range(3)))
    assert made == [[], [], []]
    described = one.client.describe_table(TableName=one.name)["Table"]
    assert described["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST" and one.client.describe_time_to_live(TableName=one.name)["TimeToLiveDescription"]["AttributeName"] == "ttl"
    paid = a_table(dynamodb)
    assert write_rate(find_table(paid, create=True, capacity=(20, 100))[0]) == 100
    with raised_capacity(paid, 500): assert write_rate(paid.client.describe_table(TableName=paid.name)["Table"]) == 500
    assert write_rate(paid.client.describe_table(TableName=paid.name)["Table"]) == 100


def test_a_table_of_somebody_else_is_refused_and_left_as_it_is(dynamodb):
    other = a_table(dynamodb)
    other.client.create_table(TableName=other.name, KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}], AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}], BillingMode="PAY_PER_REQUEST")
    with pytest.raises(ManifestError, match=r"has the keys id \(HASH, S\); a manifest has eventId .*left as it is"): find_table(other, create=True)
    ttl = a_table(dynamodb)
    create_table(ttl)
    ttl.client.update_time_to_live(TableName=ttl.name, TimeToLiveSpecification={"Enabled": False, "AttributeName": "ttl"})
    assert "expires nothing" in find_table(ttl)[2][0]


# -- the configuration of the original --

DATA = {"name": "n", "awsRegion": "eu-west-1", "dynamodbTable": "snow", "purpose": "DUPLICATE_TRACKING", "accessKeyId": "AKIASECRET", "secretAccessKey": "hunter2secret"}
NEW = {"name": "n", "awsRegion": "eu-west-1", "dynamodbTable": "snow", "purpose": "EVENTS_MANIFEST", "id": "x", "auth": None}
IGLU = "iglu:com.snowplowanalytics.snowplow.storage/amazon_dynamodb_config/jsonschema/"


def coded(version, data): return base64.b64encode(json.dumps({"schema": IGLU + version, "data": data}).encode()).decode()


def test_all_three_versions_are_read_from_files_and_base64(tmp_path):
    (tmp_path / "c.json").write_text(json.dumps({"schema": IGLU + "1-0-1", "data": {**DATA, "id": "x"}}))
    for text, keys in ((coded("1-0-0", DATA), "hunter2secret"), (str(tmp_path / "c.json"), "hunter2secret"), (coded("2-0-0", NEW), None), (coded("2-0-0", {**NEW, "auth": {"accessKeyId": "AKIASECRET", "secretAccessKey": "hunter2secret"}}), "hunter2secret")):
        found = snowplow_config(text)
        assert (found.table, found.region, found.secret_key) == ("snow", "eu-west-1", keys) and "hunter2" not in repr(found) and "AKIA" not in repr(found)
    over = connection_of(Config(duplicate_storage_config=coded("1-0-0", DATA), dynamodb_table="mine", dynamodb_endpoint="http://x"))
    assert (over.table, over.region, over.endpoint, over.secret_key) == ("mine", "eu-west-1", "http://x", "hunter2secret")


@pytest.mark.parametrize("text, words", [
    ("hunter2secret", "neither a readable file nor base64"), (coded("3-0-0", DATA), "has the schema .*3-0-0"), (coded("1-0-0", {**DATA, "id": "hunter2secret"}), "id is not one of its fields"),
    (coded("1-0-0", {n: v for n, v in DATA.items() if n != "awsRegion"}), "awsRegion is missing"), (coded("2-0-0", DATA), "auth is missing.*purpose must be EVENTS_MANIFEST"),
    (coded("2-0-0", {**NEW, "auth": {"accessKeyId": "hunter2secret"}}), "auth must be null or hold"), (base64.b64encode(b'{"secret": "hunter2secret"}').decode(), "not self-describing"),
])
def test_a_configuration_that_does_not_fit_is_named_without_what_it_holds(text, words):
    with pytest.raises(ConfigError, match=words) as wrong: connection_of(Config(duplicate_storage_config=text))
    assert "hunter2" not in str(wrong.value)
    assert wrong.value.__context__ is None or wrong.value.__suppress_context__


@pytest.mark.parametrize("more", [{"endpoint": "localhost:8000"}, {"region": "us east 1"}])
def test_an_address_or_region_that_is_none_is_named(more):
    with pytest.raises(ConfigError, match="cannot be reached with these settings"): client_of(Connection("t", **{"region": "us-east-1", **more}))


def test_a_batch_that_the_original_claimed_gets_our_name_and_can_be_committed(table):
    time_ = 1_800_000_000
    table.client.batch_write_item(RequestItems={table.name: [{"PutRequest": {"Item": {"eventId": {"S": "a"}, "fingerprint": {"S": f}, "etlTime": {"N": str(time_)}, "ttl": {"N": str(time_ + 180 * DAY)}}}} for f in "fg"]})
    mine = who("b", 1, heads=False)
    assert own(Claims(table, mine).of([("a", ["f", "g"])])) == {("a", "f"), ("a", "g")}
    assert {i["run"] for i in items(table).values()} == {"b@1"} and table.mark({("a", "g"): RENAMED}, "b@1") == set()


def test_many_fingerprints_of_one_id_take_no_longer_than_those_of_many():
    rows = pa.RecordBatch.from_pydict({"i": ["hot"] * 100_000, "p": [str(n % 90_000) for n in range(100_000)]})
    [[(i, prints)]] = module._by_id([rows])
    assert i == "hot" and len(prints) == 90_000 and prints[:2] == ["0", "1"]


def test_a_run_without_a_table_name_is_refused():
    with pytest.raises(ConfigError, match="manifest=dynamodb needs a table"): connection_of(Config())

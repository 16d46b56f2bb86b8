"A DynamoDB table as it is called: claims on lists of keys against a running server, with faults. No Spark."

import base64
import json
import os
import random
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from botocore.exceptions import CredentialRetrievalError, UnauthorizedSSOTokenError
from emulator import Faults, a_client, a_name, a_table, items, refuse

from dedup_nb.base.config import ManifestSettings
from dedup_nb.base.errors import ConfigError
from dedup_nb.cli import main
from dedup_nb.dynamodb.claims import KNOWN, LATER, OWN, TAKEN, Claimant, Claims
from dedup_nb.dynamodb.connection import (
    PURPOSES,
    Connection,
    client_of,
    connection_of,
    iam_policy,
    new_client,
    snowplow_config,
)
from dedup_nb.dynamodb.store import whole_ids
from dedup_nb.dynamodb.table import (
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
from dedup_nb.manifest.ledger import FencedError, ManifestError, Marker
from dedup_nb.rules.cross_batch import Fate

DAY = 86400
NOW = 1_800_000_000
BOTH = pytest.mark.parametrize("heads", [True, False], ids=["heads", "pairs"])


def who(batch="b", seq=1, day=0, **more):
    "An attempt at a batch of some day."
    return Claimant(batch, f"{batch}@{seq}", NOW + day * DAY, NOW, 180 * DAY, sees=seq, **more)


def said(answers):
    return sorted((a.kind, a.event_id, a.fingerprint or "") for a in answers if a.kind != KNOWN)


def own(answers):
    return {(a.event_id, a.fingerprint) for a in answers if a.kind in (OWN, LATER)}


def known(answers):
    return {(a.event_id, a.fingerprint, a.run) for a in answers if a.kind == KNOWN}


def claim(table, claimant, *ids, read_first=False):
    "Claim ids, each given as (id, fingerprints)."
    return Claims(table, claimant, read_first).of([(i, list(prints)) for i, prints in ids])


def many(n, prints="f"):
    return [(f"id{k:04}", prints) for k in range(n)]


@pytest.fixture(scope="module")
def shared(dynamodb):
    "One table for all tests whose ids are their own."
    made = a_table(dynamodb)
    create_table(made)
    return made


@pytest.fixture
def table(dynamodb):
    made = a_table(dynamodb)
    create_table(made)
    return made


def put(table, event_id, fingerprint, etl, **more):
    "A row as Snowplow's own job writes it."
    plain = {"eventId": {"S": event_id}, "fingerprint": {"S": fingerprint}, "etlTime": {"N": str(etl)}}
    item = {**plain, "ttl": {"N": str(int(etl) + 180 * DAY)}, **more}
    table.client.put_item(TableName=table.name, Item=item)


# --- a claim ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("read_first", [False, True], ids=["insert", "read"])
@BOTH
def test_the_first_batch_owns_and_the_second_yields_whatever_it_asks_first(table, heads, read_first):
    ids = [("a", "fg"), ("b", "f"), ("c", [None])]
    first = claim(table, who("one", 1, heads=heads), *ids, read_first=read_first)
    assert said(first) == [(OWN, "a", "f"), (OWN, "b", "f"), (OWN, "c", ""), (LATER, "a", "g")]
    again = claim(table, who("one", 1, heads=heads), *ids, read_first=not read_first)
    assert said(again) == said(first), "an attempt that asks again gets what it got"
    two, ids = who("two", 2, 1, heads=heads), [("a", "gh"), ("b", "f"), ("c", [None]), ("d", "f")]
    second = claim(table, two, *ids, read_first=read_first)
    assert own(second) == {("a", "h"), ("c", None), ("d", "f")}
    assert {(a.event_id, a.fingerprint) for a in second if a.kind == TAKEN} == {("a", "g"), ("b", "f")}
    assert {(i, run) for i, _, run in known(second)} == {(i, "one@1") for i in "abc"}


# steps (batch, day, what of the claimant, prints) on one id; then the answers to the last
TABLE_OF_CLAIMS = {
    "a pair lives through its last second": ([("one", 0, {}, "f"), ("two", 180, {}, "f")], [(TAKEN, "f")]),
    "and is free a day later": ([("one", 0, {}, "f"), ("two", 181, {}, "f")], [(OWN, "f")]),
    "a row of a run that is over": (
        [("one", 0, {}, "f"), ("two", 1, {"dead": frozenset({"one@1"})}, "f")],
        [(OWN, "f")],
    ),
    "a head lives as long as what was renamed because of it": (
        [("one", 0, {}, "f"), ("two", 170, {}, "g"), ("three", 185, {}, "fg")],
        [(TAKEN, "f"), (TAKEN, "g")],
    ),
    "without renaming the pair ends in its time, the id with its last": (
        [
            ("one", 0, {"renames": False}, "f"),
            ("two", 170, {"renames": False}, "g"),
            ("three", 185, {"renames": False}, "fg"),
        ],
        [(LATER, "f"), (TAKEN, "g")],
    ),
    "a dead head with tails lets no loaded pair in again": (
        [("one", 0, {}, "f"), ("two", 1, {}, "g"), ("three", 2, {"dead": frozenset({"one@1"})}, "g")],
        [(TAKEN, "g")],
    ),
    "but another pair has the id then": (
        [("one", 0, {}, "f"), ("two", 1, {}, "g"), ("three", 2, {"dead": frozenset({"one@1"})}, "gf")],
        [(OWN, "f"), (TAKEN, "g")],
    ),
}


@pytest.mark.parametrize("case", TABLE_OF_CLAIMS)
def test_who_has_a_pair_follows_from_the_times_of_the_batches(shared, case):
    steps, expected = TABLE_OF_CLAIMS[case]
    for seq, (batch, day, more, prints) in enumerate(steps, 1):
        answers = claim(shared, who(batch, seq, day, **more), (case, prints))
    assert [(kind, p) for kind, _, p in said(answers)] == expected


def test_whoever_has_the_head_keeps_its_id(shared):
    "A has the head; B takes the tail of g and drops its f in favour of A; then A finds its own g taken."
    a, b = who("A", 1), who("B", 2)
    claim(shared, a, ("id", "f"))
    assert said(claim(shared, b, ("id", "gf"))) == [(LATER, "id", "g"), (TAKEN, "id", "f")]
    answers = claim(shared, a, ("id", "fg"))
    assert said(answers) == [(OWN, "id", "f"), (TAKEN, "id", "g")]
    assert [(a.fingerprint, a.run, a.of_id) for a in answers if a.kind == KNOWN] == [("g", "B@2", False)]


def test_a_newer_attempt_of_the_batch_fences_an_older_one(shared):
    claim(shared, who("one", 3), ("fenced", "f"))
    with pytest.raises(FencedError, match="Batch one was taken over"):
        claim(shared, who("one", 1), ("fenced", "f"))
    assert said(claim(shared, who("one", 4), ("fenced", "f"))) == [(OWN, "fenced", "f")]


def test_a_forgotten_head_stays_while_others_rest_on_it(table):
    claim(table, who("one", 1), ("a", "f"), ("b", "f"))
    claim(table, who("two", 2, 1), ("a", "g"))
    assert table.delete([("a", "#"), ("b", "#")], "one@1") == 1
    assert set(items(table)) == {("a", "#"), ("a", "g")}


def test_rows_of_the_original_count_by_their_time_and_keep_what_else_they_hold(table):
    etl, note = who().etl, {"note": {"M": {"by": {"S": "hand"}}}}
    for event_id, time_ in (("a", etl), ("b", etl - DAY), ("c", etl - 181 * DAY), ("d", "1500000000.5")):
        put(table, event_id, "f", float(time_) if event_id == "d" else time_, **note)
    ids = [("a", "f"), ("b", "fg"), ("c", "f"), ("d", "f")]
    answers = claim(table, who("one", 1, heads=False), *ids)
    assert own(answers) == {("a", "f"), ("b", "g"), ("c", "f"), ("d", "f")}
    assert known(answers) == {("b", "f", None)}
    after = {i: item for (i, p), item in items(table).items() if p == "f"}
    assert {i: item.get("run") for i, item in after.items()} == dict.fromkeys("acd", "one@1") | {"b": None}
    assert all(item["note"] == {"by": {"S": "hand"}} for item in after.values())


def test_a_batch_that_the_original_claimed_gets_our_name_and_can_be_committed(table):
    for fingerprint in "fg":
        put(table, "a", fingerprint, NOW)
    assert own(claim(table, who("b", 1, heads=False), ("a", "fg"))) == {("a", "f"), ("a", "g")}
    assert {item["run"] for item in items(table).values()} == {"b@1"}
    assert table.mark({("a", "g"): Fate.RENAMED}, "b@1") == set()
    assert table.mark({("a", "g"): Fate.STAYS}, "c@2") == {("a", "g")}


@pytest.mark.parametrize(
    "text", ["#", "#dedup_nb", "x" * 3000, "'; DROP", 'é\n"?', " ", "#sha256/" + "0" * 64]
)
@BOTH
def test_any_text_is_a_key(shared, text, heads):
    event_id = f"{text}{'h' if heads else 'p'}"
    ids = [(event_id, [text, "f"])]
    assert len(own(claim(shared, who("one", 1, heads=heads), *ids))) == 2
    assert own(claim(shared, who("two", 2, 1, heads=heads), *ids)) == set()


def test_old_batches_are_not_swept_away_while_they_are_in_use(table):
    old, now = 1_500_000_000, int(time.time())
    claim(table, Claimant("old", "old@1", old, now, 180 * DAY, sees=1), ("a", "fg"))
    assert all(int(item["ttl"]) == now + 180 * DAY for item in items(table).values())
    later = Claimant("next", "next@2", old + DAY, now + 3600, 180 * DAY, sees=2)
    claim(table, later, ("a", "h"))
    head = items(table)["a", "#"]
    assert (int(head["ttl"]), int(head["until"])) == (now + 3600 + 180 * DAY, old + 181 * DAY)


@BOTH
def test_looking_writes_nothing_and_sees_what_a_claim_would(table, heads):
    claim(table, who("one", 1, heads=heads), ("a", "fg"))
    before, look = items(table), who("two", 2, 1, heads=heads, writes=False)
    assert known(claim(table, look, ("a", "gh"), ("b", "f"))) == {("a", "f", "one@1"), ("a", "g", "one@1")}
    assert items(table) == before


@pytest.mark.parametrize("hours", [-1, 0, 1])
def test_a_clock_that_is_off_changes_no_decision(shared, hours):
    ids = [(f"clock{hours}", "f"), (f"clock{hours}b", "fg")]
    claim(shared, who("one", 1), *ids)
    off = Claimant("two", "two@2", NOW + DAY, NOW + hours * 3600, 180 * DAY, sees=2)
    assert own(claim(shared, off, *ids)) == set()


def test_many_fingerprints_of_one_id_take_no_longer_than_those_of_many():
    prints = [str(n % 90_000) for n in range(100_000)]
    rows = pa.RecordBatch.from_pydict({"i": ["hot"] * 100_000, "p": prints})
    [[(event_id, found)]] = whole_ids([rows])
    assert event_id == "hot" and len(found) == 90_000 and found[:2] == ["0", "1"]


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
    assert len(own(claim(shaky, who(), *many(100, "fg")))) == 200
    repeated = a_table(table.connection.endpoint, table.name)
    assert len(own(claim(repeated, who(), *many(100, "fg"), read_first=True))) == 200
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
def test_members_that_were_throttled_are_sent_again_alone(dynamodb, shared, code):
    table = a_table(dynamodb, shared.name, faults=(faults := Faults(3, throttled=0.3, code=code)))
    assert len(own(claim(table, who(), *[(f"{code}{n}", "f") for n in range(75)]))) == 75
    assert table.meter.counts["retried"] == faults.count["throttled"] > 10
    assert table.meter.counts["write_units"] == 75


def test_what_may_have_been_written_twice_is_counted_twice(dynamodb, table):
    lossy = a_table(dynamodb, table.name, faults=(faults := Faults(11, lost=0.3)))
    assert len(own(claim(lossy, who(), *many(250)))) == 250
    assert lossy.meter.counts["write_units"] == 250 + 25 * faults.count["lost"] > 250


@pytest.mark.parametrize(
    "kind, words",
    [
        ("busy", "Throttling .*no event is lost.*Lower max_wcu"),
        ("cut", "an answer that was cut .*Check --dyn"),
    ],
)
def test_what_does_not_end_fails_and_claims_nothing_for_others(dynamodb, shared, kind, words):
    stuck = a_table(dynamodb, shared.name, faults=Faults(**{kind: 1.0}), patience_s=0.5)
    start = time.monotonic()
    with pytest.raises(ManifestError, match=f"nothing but {words}"):
        claim(stuck, who("one", 1), (kind, "f"))
    assert time.monotonic() - start < 5
    assert said(claim(shared, who("one", 1), (kind, "f"))) == [(OWN, kind, "f")]


@pytest.mark.parametrize("refusals", [7, 8])
def test_a_request_is_sent_eight_times_and_each_is_counted(dynamodb, shared, refusals):
    left = [True] * refusals
    client = refuse(a_client(dynamodb), lambda operation: left and left.pop(), "ThrottlingException")
    assert client.meta.config.retries == {"mode": "standard", "total_max_attempts": 8}
    table = Table(shared.connection, client=client)
    if refusals == 8:
        with pytest.raises(ManifestError, match="nothing but Throttling for .* seconds.*Lower max_wcu"):
            table.read([("nobody", "#")])
    else:
        assert table.read([("nobody", "#")]) == {}
        assert (table.meter.counts["requests"], table.meter.counts["retried"]) == (8, 7)
    assert not left


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


def test_a_table_that_is_deleted_under_way_fails_the_run_with_the_next_step(table):
    claim(table, who(), ("a", "f"))
    table.client.delete_table(TableName=table.name)
    with pytest.raises(ManifestError, match="There is no DynamoDB table .*--create-table true"):
        claim(table, who(), ("b", "f"))


@pytest.mark.parametrize("code", ["UnrecognizedClientException", "InvalidSignatureException"])
def test_wrong_credentials_are_said_at_once(dynamodb, shared, monkeypatch, code):
    client = refuse(a_client(dynamodb), lambda operation: True, code)
    monkeypatch.setattr("dedup_nb.dynamodb.connection.new_client", lambda connection: client)
    begun = time.monotonic()
    with pytest.raises(ManifestError, match="expired or invalid"):
        Table(Connection(shared.name, endpoint=dynamodb), client=client, patience_s=60).read([("a", "#")])
    assert time.monotonic() - begun < 20


def test_fresh_credentials_of_the_chain_are_taken_up(dynamodb, shared):
    expired = refuse(a_client(dynamodb), lambda operation: True, "ExpiredTokenException")
    table = Table(shared.connection, client=expired, patience_s=5)
    assert own(claim(table, who(), ("fresh", "f"))) == {("fresh", "f")}


HICCUP = CredentialRetrievalError(provider="role", error_msg="hunter2")


@pytest.mark.parametrize(
    "wrong, tries", [(HICCUP, 2), (UnauthorizedSSOTokenError(), 1)], ids=["role", "login"]
)
def test_a_role_that_does_not_answer_is_asked_again_and_a_login_is_asked_for(shared, wrong, tries):
    "A hiccup of the endpoint of roles is no reason to fail; a session that ended is, in our words."
    asked = []

    class Client:
        def batch_get_item(self, **words):
            asked.append(words)
            if len(asked) == 1:
                raise wrong
            return shared.client.batch_get_item(**words)

    table = Table(shared.connection, client=Client(), patience_s=20)
    if tries == 2:
        assert table.read([("nobody", "#")]) == {}
    else:
        with pytest.raises(ManifestError, match="aws sso login"):
            table.read([("nobody", "#")])
    assert len(asked) == tries


# --- races -----------------------------------------------------------------------------------------------


def race(endpoint, name, claimant, ids, faults=None):
    "Claim ids in parts, four at a time, as a task does."
    table = a_table(endpoint, name, faults=faults, patience_s=60)
    claims = Claims(table, claimant, None)
    with ThreadPoolExecutor(4) as pool:
        return [a for answers in pool.map(claims.of, in_parts(ids, 40)) for a in answers]


def collisions(dice, number, prints="fg"):
    "Ids with their fingerprints in an order of their own, as batches see them that share events."
    some = dice.sample(range(number * 4 // 3), number)
    return [(f"id{n:04}", dice.sample(prints, dice.randint(1, len(prints)))) for n in sorted(some)]


def kept_ids(ids, answers):
    "What a batch keeps: pair -> id; and what it drops: pair -> the id of the copy that stays."
    by_id = {}
    for a in answers:
        by_id.setdefault(a.event_id, []).append(a)
    kept, gone = {}, {}
    for i, prints in ids:
        taken = {a.fingerprint for a in by_id[i] if a.kind == TAKEN}
        there = {a.fingerprint: a for a in by_id[i] if a.kind == KNOWN}
        stay = [p for p in prints if p not in taken]
        new = stay if any(a.of_id for a in there.values()) else stay[1:]
        kept |= {(i, p): f"{i}/{p}" if p in new else i for p in stay}
        gone |= {(i, p): i if there[p].fate & 3 == Fate.STAYS else f"{i}/{p}" for p in taken}
    return kept, gone


def check_race(dynamodb, seed, number, faults):
    "Three runs on colliding ids, one of them twice: each pair and each id is kept once, drops point at it."
    dice = random.Random(seed)
    table = a_table(dynamodb)
    create_table(table)
    claim(table, who("old", 1, -200), *[(f"id{n:04}", "f") for n in range(0, number, 3)])
    ids = [collisions(dice, number, "fgh") for _ in range(3)]
    runs = [who(f"run{n}", n + 2) for n in range(3)]
    shaky = [Faults(seed * 10 + n, **faults) for n in range(4)]
    with ThreadPoolExecutor(4) as pool:  # the first run twice, as a speculative task would
        jobs = [pool.submit(race, dynamodb, table.name, runs[n % 3], ids[n % 3], shaky[n]) for n in range(4)]
        results = [job.result() for job in jobs]
    assert said(results[3]) == said(results[0]), "two copies of a task agree"
    kept, gone = zip(*(kept_ids(i, r) for i, r in zip(ids, results)))
    pairs = Counter(pair for k in kept for pair in k)
    assert pairs == Counter({(i, p) for batch in ids for i, prints in batch for p in prints}), "kept once"
    event_ids = Counter(event_id for k in kept for event_id in k.values())
    assert max(event_ids.values()) == 1, "ids are unique"
    assert {i for batch in ids for i, _ in batch} <= set(event_ids), "somebody has each id"
    assert {pointed for g in gone for pointed in g.values()} <= set(event_ids), "a dropped row points nowhere"
    for n in range(3):
        again = claim(table, runs[n], *ids[n], read_first=n % 2 == 0)
        assert kept_ids(ids[n], again) == (kept[n], gone[n]), "a rerun decides the same"
    return {what: sum(f.count[what] for f in shaky) for what in faults}


ROUGH = dict(lost=0.08, unsent=0.05, busy=0.03, broken=0.03, cut=0.05, throttled=0.1)


def test_runs_that_race_for_colliding_ids_keep_each_pair_and_each_id_once(dynamodb):
    happened = check_race(dynamodb, 7, 90, ROUGH)
    # which fault meets which request hangs on the threads: not every kind need come up each time
    assert sum(n > 0 for n in happened.values()) >= 4, happened


@pytest.mark.parametrize("seed", range(3))
def test_the_same_on_few_ids_that_all_of_them_want(dynamodb, seed):
    check_race(dynamodb, seed, 24, {"slow": 0.3, "lost": 0.1})


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_the_same_many_times(dynamodb, seed):
    check_race(dynamodb, seed, 30 + seed % 5 * 40, ROUGH | {"slow": 0.2})


@BOTH
def test_of_many_claimants_of_the_same_keys_each_key_has_one(table, dynamodb, heads):
    ids = [(i, ["f", "g"] if heads and n % 10 == 0 else ["f"]) for n, (i, _) in enumerate(many(200))]
    runs = [who(f"r{n}", n, heads=heads) for n in range(1, 5)]
    with ThreadPoolExecutor(4) as pool:
        jobs = [
            pool.submit(race, dynamodb, table.name, run, ids[:: 1 if run.sees % 2 else -1]) for run in runs
        ]
        won = [own(job.result()) for job in jobs]
    assert Counter(pair for w in won for pair in w) == Counter((i, p) for i, prints in ids for p in prints)


# --- kills -----------------------------------------------------------------------------------------------

ASKED = {
    "before_insert": "before-send.dynamodb.BatchExecuteStatement",
    "after_insert": "after-call.dynamodb.BatchExecuteStatement",
    "after_read": "after-call.dynamodb.BatchGetItem",
}
# every fifth id has two fingerprints, every seventh an earlier batch has already: some ids collide with it
IDS = [(f"id{n:03}", ["g", "f"] if n % 5 == 0 else ["f"]) for n in range(200)]
POINTS = ["before_insert:1", "after_insert:1", "before_insert:4", "after_read:1", "after_insert:9"]


def killed(endpoint, name, claimant, point):
    "Claim in a process of its own that dies (kill -9) at the n-th request or answer of a kind."
    if (child := os.fork()) == 0:
        what, _, number = point.partition(":")
        table, count = a_table(endpoint, name), [0]

        def die(**_):
            count[0] += 1
            if count[0] == int(number):
                os.kill(os.getpid(), signal.SIGKILL)

        table.client.meta.events.register(ASKED[what], die)
        try:
            Claims(table, claimant).of(IDS)
        finally:
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -9, point


def attempts(number, **more):
    "So many attempts at one batch, each of which knows that those before it are over."
    seqs = range(2, number + 2)
    return [who("killed", n, 1, dead=frozenset(f"killed@{m}" for m in seqs if m < n), **more) for n in seqs]


def killed_and_run_again(endpoint, points):
    "Kill attempt after attempt, then let one finish beside an earlier batch: the table, and what both keep."
    table = a_table(endpoint)
    create_table(table)
    earlier = [(f"id{n:03}", ["f"]) for n in range(0, 200, 7)]
    first = claim(table, who("earlier", 1), *earlier)
    *dying, last = attempts(len(points) + 1)
    for claimant, point in zip(dying, points):
        killed(endpoint, table.name, claimant, point)
    return table, last, kept_ids(earlier, first), kept_ids(IDS, claim(table, last, *IDS, read_first=True))


def check_killed(first, mine):
    "Every pair is kept once, every id by somebody, and what was dropped points at what is kept."
    kept, gone = mine
    assert set(kept) == {(i, p) for n, (i, prints) in enumerate(IDS) for p in prints if p == "g" or n % 7}
    event_ids = Counter([*first[0].values(), *kept.values()])
    assert max(event_ids.values()) == 1 and {i for i, _ in IDS} <= set(event_ids)
    assert set(gone.values()) <= set(event_ids)


def test_killed_at_any_point_and_run_again_nothing_is_lost_and_nothing_twice(dynamodb):
    table, last, *outcome = killed_and_run_again(dynamodb, POINTS)
    check_killed(*outcome)
    assert own(claim(table, who("next", 9, 2, dead=last.dead), *IDS)) == set()


def test_the_keys_of_a_killed_run_that_nobody_repeats_are_free_once_it_is_over(table, dynamodb):
    killed(dynamodb, table.name, who("killed", 2, 1), "after_insert:3")
    ids = [(i, ["f"]) for i, _ in IDS]
    yielded = claim(table, who("next", 3, 2), *ids[:100])
    assert 0 < len(own(yielded)) < 100 and {run for _, _, run in known(yielded)} == {"killed@2"}
    over = frozenset({"killed@2", "next@3"})
    assert len(own(claim(table, who("last", 4, 2, dead=over), *ids))) == 200


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


def test_a_table_of_somebody_else_is_refused_and_left_as_it_is(dynamodb):
    other = a_table(dynamodb)
    keys = [{"AttributeName": "id", "KeyType": "HASH"}]
    types = [{"AttributeName": "id", "AttributeType": "S"}]
    made = dict(KeySchema=keys, AttributeDefinitions=types, BillingMode="PAY_PER_REQUEST")
    other.client.create_table(TableName=other.name, **made)
    words = r"has the keys id \(HASH, S\); a manifest has eventId .*left as it is"
    with pytest.raises(ManifestError, match=words):
        check_table(other, described(other))


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
        put(table, "a", "f", 7)
        assert table.read([("a", "f"), ("b", "f")])["a", "f"]["etlTime"] == 7
    finally:
        server.stop()


def test_a_long_record_is_packed():
    files = [[f"run=2026-11-20/part-{n:05}.parquet", n] for n in range(5000)]
    marker = Marker(3, "claim", "b", {"first_seq": 1, "input": files})
    assert len(log_item(marker)["info"]) < 50_000 and log_marker(log_item(marker)) == marker
    with pytest.raises(ManifestError, match="record of batch b is too large .*fewer files"):
        log_item(Marker(3, "claim", "b", {"x": random.Random(1).randbytes(400_000).hex()}))


# --- policies --------------------------------------------------------------------------------------------

VERBS = {
    "INSERT": "PartiQLInsert",
    "UPDATE": "PartiQLUpdate",
    "DELETE": "PartiQLDelete",
    "SELECT": "PartiQLSelect",
}


def recorded(client, actions):
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
    client = lambda purpose: recorded(a_client(dynamodb), actions[purpose])
    create_table(a_table(dynamodb, name, client=client("create")))
    all_that_a_run_does(a_table(dynamodb, name, client=client("run")))
    for purpose, called in actions.items():
        [allowed] = iam_policy(name, purpose)["Statement"]
        assert {f"dynamodb:{action}" for action in called} == set(allowed["Action"])


def test_the_command_prints_a_policy(capsys):
    with pytest.raises(SystemExit) as done:
        main(["iam", "--table", "events", "--for", "create"])
    assert done.value.code == 0
    assert json.loads(capsys.readouterr().out) == iam_policy("events", "create")
    [allowed] = iam_policy("events", region="eu-west-1", account="12")["Statement"]
    assert allowed["Resource"] == "arn:aws:dynamodb:eu-west-1:12:table/events"
    with pytest.raises(ConfigError, match="Did you mean create"):
        iam_policy("events", "creat")


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

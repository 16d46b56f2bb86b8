"Claims on a DynamoDB table: who has a pair, races, kills."

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from claimants import (
    BOTH,
    IDS,
    NOW,
    ROUGH,
    check_killed,
    check_race,
    claim,
    kill_claim,
    killed_and_run_again,
    kinds_of,
    known_pairs,
    many,
    own_pairs,
    put_item,
    race,
    who,
)
from emulator import items
from runs import DAY

from dedup_nb.dynamodb.claims import KNOWN, LATER, OWN, TAKEN, Claimant
from dedup_nb.dynamodb.store import whole_ids
from dedup_nb.manifest.ledger import FencedError
from dedup_nb.rules.cross_batch import Fate

# --- a claim ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("read_first", [False, True], ids=["insert", "read"])
@BOTH
def test_the_first_batch_owns_and_the_second_yields_whatever_it_asks_first(table, heads, read_first):
    ids = [("a", "fg"), ("b", "f"), ("c", [None])]
    first = claim(table, who("one", 1, heads=heads), *ids, read_first=read_first)
    assert kinds_of(first) == [(OWN, "a", "f"), (OWN, "b", "f"), (OWN, "c", ""), (LATER, "a", "g")]
    again = claim(table, who("one", 1, heads=heads), *ids, read_first=not read_first)
    assert kinds_of(again) == kinds_of(first), "an attempt that asks again gets what it got"
    two, ids = who("two", 2, 1, heads=heads), [("a", "gh"), ("b", "f"), ("c", [None]), ("d", "f")]
    second = claim(table, two, *ids, read_first=read_first)
    assert own_pairs(second) == {("a", "h"), ("c", None), ("d", "f")}
    assert {(a.event_id, a.fingerprint) for a in second if a.kind == TAKEN} == {("a", "g"), ("b", "f")}
    assert {(i, run) for i, _, run in known_pairs(second)} == {(i, "one@1") for i in "abc"}


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
def test_who_has_a_pair_follows_from_the_times_of_the_batches(shared_table, case):
    steps, expected = TABLE_OF_CLAIMS[case]
    for seq, (batch, day, more, prints) in enumerate(steps, 1):
        answers = claim(shared_table, who(batch, seq, day, **more), (case, prints))
    assert [(kind, p) for kind, _, p in kinds_of(answers)] == expected


def test_whoever_has_the_head_keeps_its_id(shared_table):
    "A has the head; B takes the tail of g and drops its f in favour of A; then A finds its own g taken."
    a, b = who("A", 1), who("B", 2)
    claim(shared_table, a, ("id", "f"))
    assert kinds_of(claim(shared_table, b, ("id", "gf"))) == [(LATER, "id", "g"), (TAKEN, "id", "f")]
    answers = claim(shared_table, a, ("id", "fg"))
    assert kinds_of(answers) == [(OWN, "id", "f"), (TAKEN, "id", "g")]
    assert [(a.fingerprint, a.run, a.of_id) for a in answers if a.kind == KNOWN] == [("g", "B@2", False)]


OVER = {"dead": frozenset({"A@1"})}


@BOTH
@pytest.mark.parametrize(
    "last, kept",
    [
        (("A", "p"), [(OWN, "p")]),
        (("C", "p"), [(OWN, "p")]),
        (("A", "qp"), [(OWN, "p"), (TAKEN, "q")]),
        (("C", "r"), [(OWN, "r")]),
        (("A", "rp"), [(OWN, "r"), (LATER, "p")]),
    ],
    ids=str,
)
def test_a_pair_is_later_only_behind_a_first_that_counts(table, heads, last, kept):
    "A has the first pair of x and dies; B has a later one. Whoever comes once A is over has the id again."
    claim(table, who("A", 1, heads=heads), ("x", "p"))
    assert kinds_of(claim(table, who("B", 2, heads=heads), ("x", "q"))) == [(LATER, "x", "q")]
    (batch, prints), more = last, OVER | {"heads": heads}
    look = claim(table, who(batch, 3, writes=False, **more), ("x", prints))
    answers = claim(table, who(batch, 3, **more), ("x", prints))
    assert [(kind, p) for kind, _, p in kinds_of(answers)] == kept
    assert not any(a.of_id for a in answers if a.kind == KNOWN), "the id is ours"
    assert heads or not any(a.of_id for a in look), "a look sees what a claim would"
    assert kinds_of(claim(table, who(batch, 3, **more), ("x", prints))) == kinds_of(answers)
    new = claim(table, who("D", 4, **more), ("x", "s"))
    assert any(a.of_id for a in new if a.kind == KNOWN), "and nobody gets it twice"


@BOTH
@pytest.mark.parametrize("fate", [Fate.RENAMED, Fate.GONE, Fate.STAYS])
def test_a_later_pair_of_an_unfinished_batch_shows_what_becomes_of_it(table, heads, fate):
    claim(table, who("A", 1, heads=heads, later=fate), ("x", "fg"))
    claim(table, who("B", 2, heads=heads, later=fate), ("x", "h"))
    seen = claim(table, who("C", 3, heads=heads), ("x", "gh"))
    fates = {a.fingerprint: a.fate for a in seen if a.kind == KNOWN and a.fingerprint != "f"}
    assert fates == {"g": fate, "h": fate}


def test_a_newer_attempt_of_the_batch_fences_an_older_one(shared_table):
    claim(shared_table, who("one", 3), ("fenced", "f"))
    with pytest.raises(FencedError, match="Batch one was taken over"):
        claim(shared_table, who("one", 1), ("fenced", "f"))
    assert kinds_of(claim(shared_table, who("one", 4), ("fenced", "f"))) == [(OWN, "fenced", "f")]


def test_a_forgotten_head_stays_while_others_rest_on_it(table):
    claim(table, who("one", 1), ("a", "f"), ("b", "f"))
    claim(table, who("two", 2, 1), ("a", "g"))
    assert table.delete([("a", "#"), ("b", "#")], "one@1") == 1
    assert set(items(table)) == {("a", "#"), ("a", "g")}


def test_rows_of_the_original_count_by_their_time_and_keep_what_else_they_hold(table):
    etl, note = who().etl, {"note": {"M": {"by": {"S": "hand"}}}}
    for event_id, time_ in (("a", etl), ("b", etl - DAY), ("c", etl - 181 * DAY), ("d", "1500000000.5")):
        put_item(table, event_id, "f", float(time_) if event_id == "d" else time_, **note)
    ids = [("a", "f"), ("b", "fg"), ("c", "f"), ("d", "f")]
    answers = claim(table, who("one", 1, heads=False), *ids)
    assert own_pairs(answers) == {("a", "f"), ("b", "g"), ("c", "f"), ("d", "f")}
    assert known_pairs(answers) == {("b", "f", None)}
    after = {i: item for (i, p), item in items(table).items() if p == "f"}
    assert {i: item.get("run") for i, item in after.items()} == dict.fromkeys("acd", "one@1") | {"b": None}
    assert all(item["note"] == {"by": {"S": "hand"}} for item in after.values())


def test_a_batch_that_the_original_claimed_gets_our_name_and_can_be_committed(table):
    for fingerprint in "fg":
        put_item(table, "a", fingerprint, NOW)
    assert own_pairs(claim(table, who("b", 1, heads=False), ("a", "fg"))) == {("a", "f"), ("a", "g")}
    assert {item["run"] for item in items(table).values()} == {"b@1"}
    assert table.mark({("a", "g"): Fate.RENAMED}, "b@1") == set()
    assert table.mark({("a", "g"): Fate.STAYS}, "c@2") == {("a", "g")}


@pytest.mark.parametrize(
    "text", ["#", "#dedup_nb", "x" * 3000, "'; DROP", 'é\n"?', " ", "#sha256/" + "0" * 64]
)
@BOTH
def test_any_text_is_a_key(shared_table, text, heads):
    event_id = f"{text}{'h' if heads else 'p'}"
    ids = [(event_id, [text, "f"])]
    assert len(own_pairs(claim(shared_table, who("one", 1, heads=heads), *ids))) == 2
    assert own_pairs(claim(shared_table, who("two", 2, 1, heads=heads), *ids)) == set()


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
    assert known_pairs(claim(table, look, ("a", "gh"), ("b", "f"))) == {
        ("a", "f", "one@1"),
        ("a", "g", "one@1"),
    }
    assert items(table) == before


@pytest.mark.parametrize("hours", [-1, 0, 1])
def test_a_clock_that_is_off_changes_no_decision(shared_table, hours):
    ids = [(f"clock{hours}", "f"), (f"clock{hours}b", "fg")]
    claim(shared_table, who("one", 1), *ids)
    off = Claimant("two", "two@2", NOW + DAY, NOW + hours * 3600, 180 * DAY, sees=2)
    assert own_pairs(claim(shared_table, off, *ids)) == set()


def test_many_fingerprints_of_one_id_take_no_longer_than_those_of_many():
    prints = [str(n % 90_000) for n in range(100_000)]
    rows = pa.RecordBatch.from_pydict({"i": ["hot"] * 100_000, "p": prints})
    [[(event_id, found)]] = whole_ids([rows])
    assert event_id == "hot" and len(found) == 90_000 and found[:2] == ["0", "1"]


# --- races -----------------------------------------------------------------------------------------------


def test_runs_that_race_for_colliding_ids_keep_each_pair_and_each_id_once(dynamodb):
    happened = check_race(dynamodb, 7, 90, ROUGH)
    # which fault meets which request hangs on the threads: not every kind need come up each time
    assert sum(n > 0 for n in happened.values()) >= 4, happened


@pytest.mark.parametrize("seed", range(3))
def test_the_same_on_few_ids_that_all_of_them_want(dynamodb, seed):
    check_race(dynamodb, seed, 24, {"slow": 0.3, "lost": 0.1})


@pytest.mark.soak
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
        won = [own_pairs(job.result()) for job in jobs]
    assert Counter(pair for w in won for pair in w) == Counter((i, p) for i, prints in ids for p in prints)


# --- kills -----------------------------------------------------------------------------------------------


POINTS = ["before_insert:1", "after_insert:1", "before_insert:4", "after_read:1", "after_insert:9"]


@BOTH
def test_killed_at_any_point_and_run_again_nothing_is_lost_and_nothing_twice(dynamodb, heads):
    points = POINTS if heads else [point for point in POINTS if "read" not in point]
    table, last, *outcomes = killed_and_run_again(dynamodb, points, heads)
    check_killed(*outcomes)
    assert own_pairs(claim(table, who("next", 9, 2, dead=last.dead, heads=heads), *IDS)) == set()


def test_the_keys_of_a_killed_run_that_nobody_repeats_are_free_once_it_is_over(table, dynamodb):
    kill_claim(dynamodb, table.name, who("killed", 2, 1), "after_insert:3")
    ids = [(i, ["f"]) for i, _ in IDS]
    yielded = claim(table, who("next", 3, 2), *ids[:100])
    assert 0 < len(own_pairs(yielded)) < 100 and {run for _, _, run in known_pairs(yielded)} == {"killed@2"}
    over = frozenset({"killed@2", "next@3"})
    assert len(own_pairs(claim(table, who("last", 4, 2, dead=over), *ids))) == 200

"Claims on a DynamoDB table: by whom, how they race and are killed, and what must hold afterwards."

import os
import random
import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from emulator import Faults, a_table
from runs import DAY

from dedup_nb.dynamodb.claims import KNOWN, LATER, OWN, TAKEN, Claimant, Claims
from dedup_nb.dynamodb.table import create_table, in_parts
from dedup_nb.rules.cross_batch import Fate

NOW = 1_800_000_000
BOTH = pytest.mark.parametrize("heads", [True, False], ids=["heads", "pairs"])


def who(batch="b", seq=1, day=0, **more):
    "An attempt at a batch of some day."
    return Claimant(batch, f"{batch}@{seq}", NOW + day * DAY, NOW, 180 * DAY, sees=seq, **more)


def kinds_of(answers):
    return sorted((a.kind, a.event_id, a.fingerprint or "") for a in answers if a.kind != KNOWN)


def own_pairs(answers):
    return {(a.event_id, a.fingerprint) for a in answers if a.kind in (OWN, LATER)}


def known_pairs(answers):
    return {(a.event_id, a.fingerprint, a.run) for a in answers if a.kind == KNOWN}


def claim(table, claimant, *ids, read_first=False):
    "Claim ids, each given as (id, fingerprints)."
    return Claims(table, claimant, read_first).of([(i, list(prints)) for i, prints in ids])


def many(n, prints="f"):
    return [(f"id{k:04}", prints) for k in range(n)]


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
    assert kinds_of(results[3]) == kinds_of(results[0]), "two copies of a task agree"
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


# --- kills -----------------------------------------------------------------------------------------------


ASKED = {
    "before_insert": "before-send.dynamodb.BatchExecuteStatement",
    "after_insert": "after-call.dynamodb.BatchExecuteStatement",
    "after_read": "after-call.dynamodb.BatchGetItem",
}
# every fifth id has two fingerprints, every seventh an earlier batch has already: some ids collide with it
IDS = [(f"id{n:03}", ["g", "f"] if n % 5 == 0 else ["f"]) for n in range(200)]


def kill_claim(endpoint, name, claimant, point):
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


def killed_and_run_again(endpoint, points, heads=True):
    """Kill attempt after attempt, let another batch in, then let one finish.

    The table, the last attempt, and what each batch keeps and drops: an earlier one, the one in between, it.
    """
    table = a_table(endpoint)
    create_table(table)
    earlier = [(f"id{n:03}", ["f"]) for n in range(0, 200, 7)]
    between = [(f"id{n:03}", ["h"]) for n in range(0, 200, 3)]
    first = claim(table, who("earlier", 1, heads=heads), *earlier)
    *dying, skipped, last = attempts(len(points) + 2, heads=heads)
    for claimant, point in zip(dying, points):
        kill_claim(endpoint, table.name, claimant, point)
    second = claim(table, who("between", skipped.sees, 1, heads=heads), *between)
    mine = claim(table, last, *IDS, read_first=True)
    return table, last, kept_ids(earlier, first), kept_ids(between, second), kept_ids(IDS, mine)


def check_killed(*outcomes):
    "Every pair is kept once, every id by somebody, and what was dropped points at what is kept."
    kept, _ = outcomes[-1]
    assert set(kept) == {(i, p) for n, (i, prints) in enumerate(IDS) for p in prints if p == "g" or n % 7}
    event_ids = Counter(event_id for kept, _ in outcomes for event_id in kept.values())
    assert max(event_ids.values()) == 1, "ids are unique"
    assert {i for i, _ in IDS} <= set(event_ids), "somebody has each id"
    assert {pointed for _, gone in outcomes for pointed in gone.values()} <= set(event_ids)


def put_item(table, event_id, fingerprint, etl, **more):
    "A row as Snowplow's own job writes it."
    plain = {"eventId": {"S": event_id}, "fingerprint": {"S": fingerprint}, "etlTime": {"N": str(etl)}}
    item = {**plain, "ttl": {"N": str(int(etl) + 180 * DAY)}, **more}
    table.client.put_item(TableName=table.name, Item=item)

"Claims of several runs, mixed step by step: a step is a call on one item, and a dice says whose turn it is."

import random
import threading
from collections import Counter
from dataclasses import dataclass, field

import pytest

from dedup_nb.dynamodb.claims import KNOWN, LATER, OWN, TAKEN, Claimant, Claims
from dedup_nb.dynamodb.table import Meter
from dedup_nb.rules.cross_batch import Fate

DAY = 86400
X = "x"  # the id that all of them are after


class Steps:
    "Lets one of several threads go on at a time, by dice."

    def __init__(self, seed, actors):
        self.dice, self.all, self.free = random.Random(seed), set(range(actors)), threading.Condition()
        self.waiting = {}  # actor -> is it its turn?

    def turn(self, me):
        with self.free:
            self.waiting[me] = False
            self.choose()
            while not self.waiting.get(me):
                self.free.wait(10)
            del self.waiting[me]

    def choose(self):
        if self.waiting and set(self.waiting) == self.all and not any(self.waiting.values()):
            self.waiting[self.dice.choice(sorted(self.waiting))] = True
            self.free.notify_all()

    def done(self, me):
        with self.free:
            self.all.discard(me)
            self.choose()


class Items:
    "A table as a dictionary. Each item of a call is a step; if an answer is lost, the call is repeated."

    def __init__(self, rows, steps=None, me=None, lost=0.0):
        self.rows, self.steps, self.me, self.lost, self.meter = rows, steps, me, lost, Meter()

    def step(self):
        if self.steps:
            self.steps.turn(self.me)

    def repeated(self, work, *words):
        self.step()
        found = work(*words)
        if self.steps and self.steps.dice.random() < self.lost:
            self.step()
            found = work(*words)
        return found

    def insert(self, items):
        return {key: None for key, item in items.items() if not self.repeated(self.inserted, key, item)}

    def inserted(self, key, item):
        if key in self.rows:
            return False
        self.rows[key] = dict(item)
        return True

    def read(self, keys):
        found = {}
        for key in keys:
            self.step()
            if key in self.rows:
                found[key] = dict(self.rows[key])
        return found

    def swap(self, changes):
        return {key for key, (old, new) in changes.items() if self.repeated(self.swapped, key, old, new)}

    def swapped(self, key, old, new):
        now = self.rows.get(key)
        if now is None or any(now.get(n) != old.get(n) for n in ("etlTime", "run", "until")):
            return False
        self.rows[key] = {n: v for n, v in {**now, **new}.items() if v is not None}
        return True

    def of_ids(self, ids):
        self.step()
        return [dict(r) for (i, _), r in self.rows.items() if i in ids]

    def delete(self, keys, run):
        for key in keys:
            self.step()
            if key in self.rows and self.rows[key].get("run") == run and "until" not in self.rows[key]:
                del self.rows[key]


@dataclass(frozen=True)
class Actor:
    "A run that claims some fingerprints of the id, in its order."

    batch: str
    seq: int
    day: int
    prints: str
    more: dict = field(default_factory=dict, hash=False)

    @property
    def run(self):
        return f"{self.batch}@{self.seq}"

    def claims(self, table, heads=True, read_first=False):
        etl = 1_800_000_000 + self.day * DAY
        more = dict(sees=self.seq, heads=heads, **self.more)
        who = Claimant(self.batch, self.run, etl, etl, 180 * DAY, **more)
        return Claims(table, who, read_first).of([(X, list(self.prints))])


def old(day, prints, batch="old"):
    return Actor(batch, 1, day, prints)


OVER, KEEPS_IDS = {"dead": frozenset({"old@1"})}, {"renames": False}
A, B = Actor("a", 2, 0, "fg"), Actor("b", 3, 0, "gf")
# what is there before, and who comes then
CASES = {
    "two runs, one pair": ([], [Actor("a", 2, 0, "f"), Actor("b", 3, 0, "f")]),
    "two runs, two prints each, in other orders": ([], [A, B]),
    "three runs, shared prints": ([], [A, Actor("b", 3, 1, "gh"), Actor("c", 4, 2, "hf")]),
    "an expired head": ([old(-200, "f")], [Actor("a", 2, 0, "f"), B]),
    "an expired head with tails": (
        [old(-200, "f"), old(-190, "g", "older")],
        [A, B, Actor("c", 4, 1, "g")],
    ),
    "a run that is over for one and not for the other": (
        [old(-1, "f")],
        [Actor("a", 2, 0, "g"), Actor("b", 3, 0, "g", OVER)],
    ),
    "the same with more": (
        [old(-1, "fh")],
        [Actor("a", 2, 0, "gh"), Actor("b", 3, 0, "gh", OVER), Actor("c", 4, 0, "hg", OVER)],
    ),
    "a run that is over and is younger": (
        [old(1, "f")],
        [Actor("a", 2, 0, "g"), Actor("b", 3, 0, "g", OVER)],
    ),
    "a run that is over, and others rest on its head": (
        [old(-1, "f"), old(-1, "g", "mid")],
        [Actor("a", 2, 0, "gf", OVER), Actor("b", 3, 0, "fg", OVER), Actor("c", 4, 0, "hg", OVER)],
    ),
    "expired for the later batch only": ([old(-179, "f")], [Actor("a", 2, 0, "g"), Actor("b", 3, 9, "g")]),
    "a task twice beside another run": ([old(-200, "g")], [A, A, B]),
    "without renames": (
        [old(-170, "f"), old(-10, "g", "mid")],
        [Actor("a", 2, 15, "fg", KEEPS_IDS), Actor("b", 3, 15, "gf", KEEPS_IDS)],
    ),
}


def play(before, actors, seed, heads=True):
    "The rows at the end, and the answers of each actor."
    rows = {}
    for one in before:
        one.claims(Items(rows), heads)
    over = any(a.more is OVER for a in actors)
    lost, sweep = (0.2 if seed % 2 else 0.0), over and seed % 4 == 1
    steps, results = Steps(seed, len(actors) + sweep), [None] * len(actors)

    def act(n):
        try:
            results[n] = actors[n].claims(Items(rows, steps, n, lost), heads, read_first=seed % 3 == 0)
        finally:
            steps.done(n)

    def sweeper():  # deletes what is over and nobody rests on, as a release or forget would
        try:
            Items(rows, steps, len(actors)).delete(list(rows), "old@1")
        finally:
            steps.done(len(actors))

    threads = [threading.Thread(target=act, args=(n,)) for n in range(len(actors))]
    threads += [threading.Thread(target=sweeper)] * sweep
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return rows, results


def prints_kept(answers):
    return {a.fingerprint for a in answers if a.kind in (OWN, LATER)}


def ids_by_print(actor, answers):
    "Under which id each print of a batch stays; of those that go, who has the copy that stays, and its id."
    taken = {a.fingerprint for a in answers if a.kind == TAKEN}
    known = {a.fingerprint: a for a in answers if a.kind == KNOWN}
    stay = [p for p in dict.fromkeys(actor.prints) if p not in taken]
    new = stay if any(a.kind == KNOWN and a.of_id for a in answers) else stay[1:]
    gone = {p: (known[p].run, X if known[p].fate & 3 == Fate.STAYS else f"{X}/{p}") for p in taken}
    return {p: f"{X}/{p}" if p in new else X for p in stay}, gone


def check_kept_once(before, actors, results):
    runs = {a.run: prints_kept(r) for a, r in zip(actors, results)}
    count = Counter(p for prints in runs.values() for p in prints)
    lost = set("".join(a.prints for a in actors)) - set(count)
    live_before = {p for b in before if b.day > -180 and b.batch != "old" for p in b.prints}
    there = {b.run for b in before}
    owners = (x.run for r in results for x in r if x.kind == KNOWN)
    assert max(count.values(), default=1) == 1, "kept twice"
    assert lost <= live_before or there & set(owners), "lost"


def check_ids(before, actors, rows, results):
    "Whoever has the head keeps its id, and nobody else; what was dropped points at what is kept."
    decided = {a.run: ids_by_print(a, r) for a, r in zip(actors, results)}
    head, keepers = rows[X, "#"], [run for run, (stay, _) in decided.items() if X in stay.values()]
    over = any(a.more is OVER for a in actors)  # a batch that rests on a run that is over is not committed
    if head["run"] in decided:
        assert keepers == [head["run"]] and decided[head["run"]][0][head["first"]] == X, "the id"
    elif not over:
        assert keepers == [], "the id is another's"
    for _, gone in decided.values():
        for p, (run, event_id) in gone.items():
            if run in decided:
                assert decided[run][0].get(p) == event_id, f"{p} points at nothing"


def check_again(actors, rows, results, heads, read_first):
    "A rerun of each gets what it got; but what another run deletes because it is over may be had by then."
    for actor, result in zip(actors, results):
        if any(a.more is OVER for a in actors) and any(x.run == "old@1" for x in result):
            continue
        again = actor.claims(Items(rows), heads, read_first)
        assert prints_kept(again) == prints_kept(result), "a rerun disagrees"
        if heads and actor.more is not KEEPS_IDS:
            assert ids_by_print(actor, again)[0] == ids_by_print(actor, result)[0], "a rerun gives other ids"


def check_all(before, actors, seed, heads):
    rows, results = play(before, actors, seed, heads)
    try:
        check_kept_once(before, actors, results)
        if heads and all(a.more is not KEEPS_IDS for a in actors):
            check_ids(before, actors, rows, results)
        check_again(actors, rows, results, heads, read_first=bool(seed % 2))
    except AssertionError as wrong:
        raise AssertionError(f"{wrong}; seed {seed}: {actors} {results} {rows}") from None


BOTH = pytest.mark.parametrize("heads", [True, False], ids=["heads", "pairs"])


@BOTH
@pytest.mark.parametrize("case", CASES)
def test_however_runs_are_mixed_each_pair_is_kept_once_and_a_rerun_agrees(case, heads):
    for seed in range(100):
        check_all(*CASES[case], seed, heads)


@pytest.mark.soak
@BOTH
@pytest.mark.parametrize("case", CASES)
def test_the_same_many_times(case, heads):
    for seed in range(100, 2000):
        check_all(*CASES[case], seed, heads)


def a_case(seed):
    "Up to two batches that are there, and two or three runs that come; some know that `old` is over."
    dice = random.Random(seed)
    over, before, actors = dice.choice([OVER, {}]), [], []
    for batch in dice.sample(["old", "mid", "older"], dice.randint(0, 2)):
        prints = "".join(dice.sample("fgh", dice.randint(1, 2)))
        before.append(old(dice.choice([-1, -170, -185, -200]), prints, batch))
    for seq, batch in enumerate("abc"[: dice.randint(2, 3)], 2):
        prints = "".join(dice.sample("fgh", dice.randint(1, 3)))
        more = over if dice.random() < 0.7 else {}
        actors.append(Actor(batch, seq, dice.choice([0, 0, 1, 9]), prints, more))
    return before, actors


def check_cases(seeds, heads):
    for seed in seeds:
        check_all(*a_case(seed), seed, heads)


@BOTH
def test_so_it_is_in_any_case(heads):
    check_cases(range(300), heads)


@pytest.mark.soak
@BOTH
def test_so_it_is_in_very_many_cases(heads):
    check_cases(range(300, 5_000), heads)

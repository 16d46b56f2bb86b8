"""Claims of several runs, mixed step by step: each call on one item is a step, and a seeded dice says whose turn it is."""
import random, threading
from collections import Counter
import pytest
from dedup_nb.dynamodb import KNOWN, LATER, OWN, Claimant, Claims, Meter

DAY = 86400


class Steps:
    "Lets one of several threads go on at a time, by dice."

    def __init__(self, seed, actors):
        self.dice, self.waiting, self.all, self.free = random.Random(seed), {}, set(range(actors)), threading.Condition()

    def turn(self, me):
        with self.free:
            self.waiting[me] = False
            self.choose()
            while not self.waiting.get(me): self.free.wait(10)
            del self.waiting[me]

    def choose(self):
        if set(self.waiting) == self.all and not any(self.waiting.values()) and self.waiting:
            self.waiting[self.dice.choice(sorted(self.waiting))] = True
            self.free.notify_all()

    def done(self, me):
        with self.free:
            self.all.discard(me)
            self.choose()


class Memory:
    "The calls of a table on a dictionary; each item of a call is a step, and an answer may be lost, so that the call is repeated."
    partiql = True

    def __init__(self, rows, steps=None, me=None, lost=0.0): self.rows, self.steps, self.me, self.lost, self.meter = rows, steps, me, lost, Meter()

    def step(self):
        if self.steps: self.steps.turn(self.me)

    def repeated(self, work):
        self.step()
        found = work()
        if self.steps and self.steps.dice.random() < self.lost:
            self.step()
            found = work()
        return found

    def insert(self, items):
        def one(key, item):
            if key in self.rows: return key
            self.rows[key] = dict(item)
        return {key: None for key, item in items.items() if self.repeated(lambda: one(key, item)) is not None}

    def read(self, keys):
        found = {}
        for key in keys:
            self.step()
            if key in self.rows: found[key] = dict(self.rows[key])
        return found

    def swap(self, changes):
        def one(key, old, new):
            now = self.rows.get(key)
            if now is None or any(now.get(n) != old.get(n) for n in ("etlTime", "run", "until")): return False
            self.rows[key] = {n: v for n, v in {**now, **new}.items() if v is not None}
            return True
        return {key for key, (old, new) in changes.items() if self.repeated(lambda: one(key, old, new))}

    def of_ids(self, ids):
        self.step()
        return [dict(r) for (i, _), r in self.rows.items() if i in ids]

    def delete(self, keys, run):
        for key in keys:
            self.step()
            if key in self.rows and self.rows[key].get("run") == run and "until" not in self.rows[key]: del self.rows[key]


def who(batch, seq, day=0, **more): return Claimant(batch, f"{batch}@{seq}", 1_800_000_000 + day * DAY, 1_800_000_000 + day * DAY, 180 * DAY, sees=seq, **more)


OVER = frozenset({"old@1"})
X = "x"
# rows that are there, (run, prints) of the actors, the pairs of which exactly one of them must keep; None = old@1 may have it
CASES = {
    "two runs, one pair": ([], [("a", 2, 0, {}, "f"), ("b", 3, 0, {}, "f")]),
    "two runs, two prints each, in other orders": ([], [("a", 2, 0, {}, "fg"), ("b", 3, 0, {}, "gf")]),
    "three runs, shared prints": ([], [("a", 2, 0, {}, "fg"), ("b", 3, 1, {}, "gh"), ("c", 4, 2, {}, "hf")]),
    "an expired head": ([("old", 1, -200, "f")], [("a", 2, 0, {}, "f"), ("b", 3, 0, {}, "gf")]),
    "an expired head with tails": ([("old", 1, -200, "f"), ("older", 1, -190, "g")], [("a", 2, 0, {}, "fg"), ("b", 3, 0, {}, "gf"), ("c", 4, 1, {}, "g")]),
    "a run that is over for one and not for the other": ([("old", 1, -1, "f")], [("a", 2, 0, {}, "g"), ("b", 3, 0, {"dead": OVER}, "g")]),
    "the same with more": ([("old", 1, -1, "fh")], [("a", 2, 0, {}, "gh"), ("b", 3, 0, {"dead": OVER}, "gh"), ("c", 4, 0, {"dead": OVER}, "hg")]),
    "a run that is over and is younger": ([("old", 1, 1, "f")], [("a", 2, 0, {}, "g"), ("b", 3, 0, {"dead": OVER}, "g")]),
    "expired for the later batch only": ([("old", 1, -179, "f")], [("a", 2, 0, {}, "g"), ("b", 3, 9, {}, "g")]),
    "a task twice beside another run": ([("old", 1, -200, "g")], [("a", 2, 0, {}, "fg"), ("a", 2, 0, {}, "fg"), ("b", 3, 0, {}, "gf")]),
    "without renames": ([("old", 1, -170, "f"), ("mid", 1, -10, "g")], [("a", 2, 15, {"renames": False}, "fg"), ("b", 3, 15, {"renames": False}, "gf")]),
}


def play(case, seed, heads=True, lost=0.0, sweep=False):
    before, actors = CASES[case]
    rows = {}
    for batch, seq, day, prints in before: Claims(Memory(rows), who(batch, seq, day, heads=heads)).of([(X, list(prints))])
    steps, results = Steps(seed, len(actors) + sweep), [None] * len(actors)

    def act(n):
        batch, seq, day, more, prints = actors[n]
        try: results[n] = Claims(Memory(rows, steps, n, lost), who(batch, seq, day, heads=heads, **more), read_first=bool(seed % 3 == 0)).of([(X, list(prints))])
        finally: steps.done(n)

    def sweeper():  # deletes what is over and nobody rests on, as a release or forget would
        try: Memory(rows, steps, len(actors)).delete(list(rows), "old@1")
        finally: steps.done(len(actors))

    threads = [threading.Thread(target=act, args=(n,)) for n in range(len(actors))] + ([threading.Thread(target=sweeper)] if sweep else [])
    for t in threads: t.start()
    for t in threads: t.join(30)
    return rows, results, actors


def kept(answers): return {a.fingerprint for a in answers if a.kind in (OWN, LATER)}


@pytest.mark.parametrize("heads", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_however_runs_are_mixed_each_pair_is_kept_once_and_a_rerun_agrees(case, heads):
    for seed in range(200):
        rows, results, actors = play(case, seed, heads, lost=0.2 if seed % 2 else 0.0, sweep="over" in case and seed % 4 == 1)
        runs = {f"{a[0]}@{a[1]}": r for a, r in zip(actors, results)}
        count, wanted = Counter(p for r in runs.values() for p in kept(r)), set("".join(a[4] for a in actors))
        live_before = {p for batch, seq, day, prints in CASES[case][0] if day > -180 and seq != 1 for p in prints}
        assert max(count.values(), default=1) == 1, (case, seed, "kept twice", results)
        lost_ = wanted - set(count)
        yielded = {p for a, r in zip(actors, results) for p in lost_ if any(x.kind == KNOWN and x.run in ("old@1", "older@1", "mid@1") for x in r)}
        assert lost_ <= yielded | live_before, (case, seed, "lost", results)
        for n, (batch, seq, day, more, prints) in enumerate(actors):
            again = Claims(Memory(rows), who(batch, seq, day, heads=heads, **more), read_first=bool(seed % 2)).of([(X, list(prints))])
            assert kept(again) == kept(results[n]), (case, seed, "a rerun disagrees")
            if heads: assert {a.fingerprint for a in again if a.kind == OWN} <= set(prints)
        if heads: assert sum(a.kind == OWN for r in runs.values() for a in r) <= len({r for r in runs}), (case, seed)

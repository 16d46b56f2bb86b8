"""Every interleaving of two runs on a DynamoDB table, with one fault anywhere: each pair is kept once.

The runs are real, down to the statements that they send; only the client is a dictionary, and what is
Spark's. Each item of a request is a step. The answer that is lost may be to a part of a request, and then
all of it is sent again.
"""

import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import pytest
from schedules import ETL, FAULTS, RECIPE, AnswerLost, Call, Runs, explore, give_processes, take_step

from dedup_nb.dynamodb import store as store_module
from dedup_nb.dynamodb.claims import FIRST, KNOWN, LATER, OWN, TAKEN, Claimant, Claims, batch_of, run_of
from dedup_nb.dynamodb.connection import Connection
from dedup_nb.dynamodb.store import DynamoStore, Gathered
from dedup_nb.dynamodb.table import LOG, Table, log_marker
from dedup_nb.manifest.ledger import FencedError, Ledger, ManifestError
from dedup_nb.manifest.protocol import Lookup, Manifest

PRINTS = "fg"  # a pair is an id and one of these: "xf"


class Items:
    "A table: items by their keys, each of them changed at once. And what claims were answered, by token."

    def __init__(self, rows=(), answers=()):
        self.rows, self.answers = dict(rows), dict(answers)

    def copy(self):
        return type(self)(self.rows, self.answers)

    def __repr__(self):
        return f"{dict(sorted(self.rows.items()))} {self.answers}"

    def markers(self):
        places = sorted(key for key in self.rows if key[0] == LOG)
        return [log_marker({n: v["S"] for n, v in self.rows[key].items()}) for key in places]

    def insert(self, key, item):
        there = self.rows.setdefault(key, item)
        return {} if there is item else {"Error": {"Code": "DuplicateItem", "Item": there}}

    def change(self, key, wanted, new):
        there = self.rows.get(key)
        if there is None or any(there.get(name) != value for name, value in wanted.items()):
            return {"Error": {"Code": "ConditionalCheckFailed"}}
        if new is None:
            del self.rows[key]
        else:
            self.rows[key] = {n: v for n, v in {**there, **new}.items() if v is not None}
        return {}


class PutsWithoutCondition(Items):
    "A mutation: an item is put, whatever is there."

    def insert(self, key, item):
        self.rows[key] = item
        return {}


class SwapsWithoutCondition(Items):
    "A mutation: an item is taken over, whoever has done so since it was read."

    def change(self, key, wanted, new):
        return super().change(key, {}, new)


def key_of(item):
    return item["eventId"]["S"], item["fingerprint"]["S"]


def change_of(text, values):
    "What a statement wants an item to be, and what it makes of it: None for nothing that is there."
    changes, _, condition = text.partition(" WHERE ")
    names = re.findall(r'SET "(\w+)"=\?', changes)
    wanted = dict(zip(re.findall(r'"(\w+)"=\?', condition), values[len(names) :]))
    wanted |= dict.fromkeys(re.findall(r'"(\w+)" IS MISSING', condition))
    removed = dict.fromkeys(re.findall(r'REMOVE "(\w+)"', changes))
    return wanted, None if text.startswith("DELETE") else dict(zip(names, values)) | removed


class Client:
    "The calls of a client of DynamoDB."

    def __init__(self, items, by_steps):
        self.items, self.by_steps = items, by_steps

    def sent(self, members):
        "What each member of a request is answered."
        while True:
            with suppress(AnswerLost):
                return [take_step(call, work) if self.by_steps else work() for call, work in members]

    def batch_execute_statement(self, Statements):
        members = []
        for s in Statements:
            text, values = s["Statement"], s["Parameters"]
            if text.startswith("INSERT"):
                item = dict(zip(re.findall(r"'(\w+)':\?", text), values))
                key, work = key_of(item), partial(self.items.insert, key_of(item), item)
            else:
                wanted, new = change_of(text, values)
                key, work = key_of(wanted), partial(self.items.change, key_of(wanted), wanted, new)
            about = frozenset({LOG if key[0] == LOG else key})
            members.append((Call(f"{text.split()[0]} {key}", about, about), work))
        return {"Responses": self.sent(members)}

    def batch_get_item(self, RequestItems):
        [(table, words)] = RequestItems.items()
        keys = map(key_of, words["Keys"])
        members = [(Call(f"get {key}", frozenset({key})), partial(self.items.rows.get, key)) for key in keys]
        return {"Responses": {table: [item for item in self.sent(members) if item]}}

    def execute_statement(self, Statement, Parameters, **_):
        ids = [value["S"] for value in Parameters]
        about, after = frozenset((i, p) for i in ids for p in FIRST + PRINTS), ""
        if ids[0] == LOG:
            about, after = frozenset({LOG}), ids.pop()

        def found():
            return [item for (i, p), item in self.items.rows.items() if i in ids and p > after]

        return {"Items": self.sent([(Call(f"select {ids}", about), found)])[0]}


class ClaimingStore(DynamoStore):
    "A store without Spark."

    def known(self, claim, pairs, retention_s, pair_count=None):
        asked = Gathered(None, pairs, len(pairs))
        store_module._claim(self, claim, store_module._claimant(self, claim, retention_s), asked)
        return Lookup(self.spark.answers[claim.token])


def claim_pairs(executor, pairs, who, read_first, path):
    "As `store` does it with few pairs."
    items, table = executor
    ids = {}
    for event_id, fingerprint in pairs.few:
        ids.setdefault(event_id, []).append(fingerprint)
    items.answers[path.split("/")[-2]] = Claims(table, who, read_first).of(list(ids.items()))
    return table.meter.counts


def rests_on(store, claim):
    "The runs whose rows decided something."
    return {a.run for a in store.spark.answers[claim.token] if a.kind == KNOWN}


def answers_of(store, token, kinds=(OWN, LATER)):
    return [a for a in store.spark.answers.get(token, ()) if a.kind in kinds]


def pairs_of(answers):
    return {(a.event_id, a.fingerprint) for a in answers}


def rows_of(store, token):
    "The keys of the rows that an attempt owned."
    at_head = OWN if store.layout == "heads" else None
    answers = answers_of(store, token)
    return {(a.event_id, FIRST if a.kind == at_head else a.fingerprint) for a in answers}


def release(store, claim):
    "Let go what earlier attempts had and this one has not."
    freed, kept = 0, rows_of(store, claim.token)
    asked = pairs_of(answers_of(store, claim.token, (OWN, LATER, TAKEN)))
    for m in store._log:
        if m.kind == "claim" and m.batch_id == claim.batch_id and m.seq < claim.seq:
            if run_of(m) != f"{claim.batch_id}@{claim.sees}":
                lacks = pairs_of(answers_of(store, m.info["token"])) - asked
                if lacks and Ledger(store._log).yielded_to(claim.batch_id):
                    raise ManifestError(f"{claim.batch_id} lacks pairs")
                freed += store._table.delete(sorted(rows_of(store, m.info["token"]) - kept), run_of(m))
    return freed


def settle(store, claim, keys):
    return release(store, claim)


@dataclass
class ClaimRuns(Runs):
    "Runs that claim pairs one by one."

    layout: str = "heads"

    def store_of_run(self, by_steps):
        connection = Connection("t")
        store = ClaimingStore(self.store, connection, "", now=lambda: ETL)
        store._table = Table(connection, client=Client(self.store, by_steps))
        store._executor, store._layout = (self.store, store._table), self.layout
        return store

    def decide(self, manifest, claim, pairs):
        answers = manifest.known(claim, pairs).keys
        kept = sorted(a.event_id + a.fingerprint for a in answers if a.kind in (OWN, LATER))
        taken = {(a.event_id, a.fingerprint) for a in answers if a.kind == TAKEN}
        whose = [{"run": a.run} for a in answers if a.kind == KNOWN and (a.event_id, a.fingerprint) in taken]
        return pairs, {"kept": kept, "dropped_for": Counter(map(batch_of, whose))}

    def check(self):
        super().check()
        reruns = Counter(name for name, _, rerun in self.batches if rerun)
        commits = Counter(m.batch_id for m in self.store.markers() if m.kind == "commit")
        assert all(n <= 1 + reruns[name] for name, n in commits.items()), commits
        kept, pairs = self.kept(), {pair: None for _, pairs, _ in self.batches for pair in pairs}
        again = ((name, pairs, True) for name, pairs, _ in self.batches)
        self.batches = ("last", [*pairs], False), *again
        for number in range(3):
            self.run(number)
        assert self.kept() == {**kept, "last": []}, "a later batch or a rerun disagrees"


@pytest.fixture(autouse=True)
def without_spark(monkeypatch):
    give_processes(monkeypatch)
    plain_ones = {"_claim_pairs": claim_pairs, "_rests_on": rests_on, "_settle": settle, "_release": release}
    for name, plain in plain_ones.items():
        monkeypatch.setattr(store_module, name, plain)


def all_schedules(batches, is_old=False, items=Items, over=(), faults=FAULTS, layout="heads"):
    "Try all schedules of two runs; how many there were."
    # with a batch in it the recipe is recorded
    runs = ClaimRuns(items(), (("zero", ["zf"], False),), is_old, layout=layout)
    runs.finish()
    if over:  # pairs of a batch that was given up after it claimed them
        manifest = Manifest(runs.store_of_run(by_steps=False), RECIPE)
        claim = manifest.begin("over", ETL, {"token": "t0"})
        manifest.known(claim, over)
        manifest.give_up("over", "t0")
    runs.batches = batches
    return explore(runs, faults)


def batches(one, two):
    return ("one", one, False), ("two", two, False)


PAIR = batches(["af"], ["af"])
TWO_IDS = batches(["af", "bf"], ["bf", "cf"])
TWO_PRINTS = batches(["af", "ag"], ["ag", "af"])
SAME = ("one", ["af"], False), ("one", ["af"], False)
BOTH = pytest.mark.parametrize("layout", ["heads", "pairs"])


@pytest.mark.slow
def test_two_runs_keep_a_pair_once_whoever_is_when_and_whatever_fails():
    assert all_schedules(PAIR) > 6000


@BOTH
def test_so_it_is_with_pairs_of_an_id_in_another_order(layout):
    assert all_schedules(TWO_PRINTS, layout=layout, faults=()) > 600


@BOTH
def test_a_pair_of_a_run_that_is_over_is_taken_over_once(layout):
    assert all_schedules(TWO_PRINTS, layout=layout, over=["af"], faults=()) > 800


@BOTH
@pytest.mark.parametrize("faults, is_old", [(FAULTS, False), ((), True)], ids=["fresh claims", "old claims"])
def test_one_batch_is_committed_once_whoever_is_taken_for_dead(layout, faults, is_old):
    assert all_schedules(SAME, is_old, layout=layout, faults=faults) > 350


NEW, TAKEN_OVER = (
    pytest.param(over, marks=mark, id=name)
    for over, mark, name in [
        ((), pytest.mark.slow, "new pairs"),
        (["af"], pytest.mark.soak, "pairs to take over"),
    ]
)


@BOTH
@pytest.mark.parametrize("runs", [PAIR, TWO_IDS, TWO_PRINTS], ids=["a pair", "two ids", "two prints"])
@pytest.mark.parametrize("over", [NEW, TAKEN_OVER])
def test_so_it_is_with_one_fault_anywhere(layout, runs, over):
    assert all_schedules(runs, layout=layout, over=over) > 6000


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("over", [(), ["af"]], ids=["new pairs", "pairs to take over"])
def test_so_it_is_with_one_fault_where_a_run_is_taken_for_dead(layout, over):
    assert all_schedules(SAME, is_old=True, layout=layout, over=over) > 5000


class Unfenced(Claimant):
    "A mutation: a row of a newer attempt may be taken back."

    def judge(self, item):
        try:
            return super().judge(item)
        except FencedError:
            return "dead"


MUTATIONS = {
    "puts without their condition": (PAIR, {"items": PutsWithoutCondition}),
    "takeovers without their condition": (PAIR, {"items": SwapsWithoutCondition, "over": ["af"]}),
    "rows without a fence": (SAME, {"is_old": True}),
    "commits without a fence": (SAME, {"is_old": True}),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_without_its_guards_it_would_fail(monkeypatch, mutation):
    if mutation == "rows without a fence":
        monkeypatch.setattr(store_module, "Claimant", Unfenced)
    if mutation == "commits without a fence":
        monkeypatch.setattr(Ledger, "holds", lambda self, batch_id, token: True)
    runs, how = MUTATIONS[mutation]
    with pytest.raises(AssertionError, match="after the schedule"):
        all_schedules(runs, **how, faults=())

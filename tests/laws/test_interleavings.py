"""Every interleaving of two runs, call by call, with one fault anywhere: each pair is kept once.

The runs are real: `Manifest` over a store that is a dictionary. Each call of the store is a step, a run is a
greenlet, and a schedule says whose step is next. All schedules are tried; of those that differ only in the
order of calls that do not see each other, one is enough. Afterwards the batches are run again until they are
committed, as a scheduler would.
"""

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
from greenlet import GreenletExit, getcurrent, greenlet

from dedup_nb.base.config import Limits, Recipe
from dedup_nb.base.errors import BusyError
from dedup_nb.manifest import ledger as ledger_module
from dedup_nb.manifest import protocol
from dedup_nb.manifest.ledger import Ledger, ManifestError
from dedup_nb.manifest.protocol import Lookup, Manifest
from dedup_nb.pipeline.job import recipe_record

RECIPE = recipe_record(Recipe(missing_fingerprint="surrogate", retention_days=10), "lower")
CALLS = ("markers", "append", "replace", "known")  # that do something here
FAULTS = ("dies", "dies after it", "its answer is lost")


class Dictionary:
    "Markers by their place; for each batch the pairs of its newest commit. Each call may be repeated."

    name, exclusive, texts = "a dictionary", True, False

    def __init__(self):
        self.places, self.keys = {}, {}

    def markers(self):
        return [self.places[seq] for seq in sorted(self.places)]

    def append(self, marker):
        return self.places.setdefault(marker.seq, marker) is marker

    def replace(self, marker, claim, keys):
        is_repeated = self.places.get(marker.seq) is marker
        if not self.append(marker):
            return False
        if not is_repeated:
            self.keys[marker.batch_id] = set(keys or ())
        return True

    def known(self, claim, pairs, retention_s, number=None):
        earlier = [e.batch_id for e in claim.ledger.committed() if e.first_seq < claim.sees]
        others = (self.keys[batch] for batch in earlier if batch != claim.batch_id)
        return Lookup(set(pairs).intersection(set().union(*others)))

    def gone(self, ledger, retention_s):
        return set()

    def tidy(self, retention_s):
        pass


class NoPlaceOfItsOwn(Dictionary):
    "A mutation: whoever writes a marker has the place, be it taken or not."

    def append(self, marker):
        self.places[max([marker.seq, *(seq + 1 for seq in self.places)])] = marker
        return True


class Stepwise:
    "A store whose calls are steps of the run that makes them."

    def __init__(self, store):
        self.store = store
        self.name, self.exclusive, self.texts = store.name, store.exclusive, store.texts

    def __getattr__(self, call):
        if call not in CALLS:
            return getattr(self.store, call)  # it does nothing here

        def step(*words):
            fault = getcurrent().parent.switch(call)  # whoever has the schedule says what happens
            if fault == "dies":
                raise GreenletExit
            answer = getattr(self.store, call)(*words)
            if fault == "dies after it":
                raise GreenletExit
            if fault == "its answer is lost":
                getcurrent().parent.switch(call)  # others may go on before it is asked again
                answer = getattr(self.store, call)(*words)
            return answer

        return step


@dataclass
class Runs:
    "Two runs on one store, and which process is at work or dead."

    store: Dictionary
    batches: tuple  # of each run: name, pairs, is it a rerun?
    is_old: bool  # does every claim count as older than `claim_timeout_minutes`?
    dead: set = field(default_factory=set)
    started: int = 0
    ended: list = field(default_factory=list)

    def start(self, number, store):
        "Begin an attempt at a batch, as a process of its own."
        self.started += 1
        name, pairs, rerun = self.batches[number]
        return greenlet(lambda: self.attempt(f"t{self.started}", name, pairs, rerun, store)), self.started

    def attempt(self, token, name, pairs, rerun, store):
        "What `run` does with a batch: claim, look back, commit; give up if that fails."
        limits = Limits(claim_timeout_minutes=60, rerun=rerun)
        manifest = Manifest(store, RECIPE, limits)
        try:
            claim = manifest.begin(name, None, {"token": token}, rerun=rerun)
            known = manifest.known(claim, pairs).keys
            manifest.commit(claim, pairs, {"kept": sorted(set(pairs) - known)})
        except (BusyError, ManifestError):
            if not manifest.is_committed(name, token):
                manifest.give_up(name, token)


def schedules(runs_of, faults):
    "Run all schedules: yields the steps of each, and the runs as they are after it."
    nodes = []  # of each step: its options, which of them is taken, and which ones need not be tried
    while True:
        runs = runs_of()
        if steps := follow(runs, nodes, faults):
            yield steps, runs
        while nodes and nodes[-1].taken == len(nodes[-1].options) - 1:
            nodes.pop()
        if not nodes:
            return
        nodes[-1].taken += 1


@dataclass
class Node:
    "A step of a schedule: a run, its call, and what goes wrong with it."

    options: list
    asleep: set  # steps of which all schedules were tried before, and which nothing has disturbed since
    taken: int = 0

    @property
    def step(self):
        return self.options[self.taken]

    def asleep_after(self):
        "The steps that need not be tried next: they would only stand in another order."
        before = self.asleep | set(self.options[: self.taken])
        return {step for step in before if not sees(step, self.step)}


def sees(one, other):
    "Does the order of two steps make a difference?"
    if one[0] == other[0] or (one[2] and other[2]):
        return True
    return bool(effects(one) & reads(other) or effects(other) & reads(one))


def effects(step):
    "What a step changes for the other run: the ledger, the keys, and who is alive."
    _, call, fault = step
    did = {"append": {"ledger"}, "replace": {"ledger", "keys"}}.get(call, set()) if fault != "dies" else set()
    return did | ({"alive"} if fault in ("dies", "dies after it") else set())


def reads(step):
    "What a step asks for."
    _, call, fault = step
    asks = {
        "markers": {"ledger", "alive"},
        "known": {"keys"},
        "append": {"ledger"},
        "replace": {"ledger", "keys"},
    }
    return asks[call] if fault != "dies" else set()


def follow(runs, nodes, faults):
    "Run two runs by the choices made so far, then by the first option of each step. None: tried before."
    store = Stepwise(runs.store)
    alive, calls = {n: runs.start(n, store) for n in range(2)}, {}
    for n, (run, process) in alive.items():
        with_process(process, runs)
        calls[n] = run.switch()
    at, is_faulty = 0, False
    while calls:
        if at == len(nodes):
            asleep = nodes[-1].asleep_after() if nodes else set()
            kinds = [None] if is_faulty else [None, *faults]
            steps = [(n, call, kind) for n, call in calls.items() for kind in kinds]
            if not (left := [step for step in steps if step not in asleep]):
                return None
            nodes.append(Node(left, asleep))
        n, _, fault = nodes[at].step
        at, is_faulty = at + 1, is_faulty or fault is not None
        run, process = alive[n]
        with_process(process, runs)
        calls[n] = run.switch(fault)
        if run.dead:
            del calls[n]
            runs.dead.add(process)
    return [node.step for node in nodes]


def with_process(process, runs):
    "The process that is at work now, and which ones are dead, as the ledger asks for them."
    at = datetime(2020, 1, 1, tzinfo=UTC) if runs.is_old else datetime.now(UTC)
    NOW.update(process=process, dead=runs.dead, at=at.isoformat())


NOW = {"process": 0, "dead": set(), "at": ""}


@pytest.fixture(autouse=True)
def processes(monkeypatch):
    "Each attempt is a process of its own, which is alive until it ends."

    def this_process():
        return {"host": "here", "pid": NOW["process"], "started": "", "at": NOW["at"]}

    for module in (ledger_module, protocol):
        monkeypatch.setattr(module, "this_process", this_process)
    monkeypatch.setattr(ledger_module, "is_gone", lambda info: info["pid"] in NOW["dead"])


def finish(runs):
    "Run each batch again until it is committed, as a scheduler does: one after the other."
    for _ in range(3):
        for number, (name, pairs, rerun) in enumerate(runs.batches):
            entry = Ledger(runs.store.markers()).entries.get(name)
            if entry and entry.committed and entry.state == "committed":
                continue
            run, process = runs.start(number, runs.store)
            with_process(process, runs)
            run.switch()
            runs.dead.add(process)


def check(runs):
    "Each batch is committed, and each pair is kept by one of them."
    committed = {e.batch_id: e.committed["kept"] for e in Ledger(runs.store.markers()).committed()}
    names = {name for name, _, _ in runs.batches}
    assert set(committed) >= names
    kept = Counter(pair for pairs in committed.values() for pair in pairs)
    wanted = set().union(*(pairs for _, pairs, _ in runs.batches))
    assert set(kept) >= wanted and set(kept.values()) == {1}, kept


def explore(batches, is_old=False, store=Dictionary, before=(), faults=FAULTS):
    "Try all schedules of two runs; how many there were."

    def runs_of():
        runs = Runs(store(), batches, is_old)
        for name, pairs in before:
            runs.batches = ((name, pairs, False),)
            finish(runs)
        runs.batches = batches
        return runs

    number = 0
    for number, (steps, runs) in enumerate(schedules(runs_of, faults), 1):
        try:
            finish(runs)
            check(runs)
        except AssertionError as wrong:
            raise AssertionError(f"{wrong}\nafter the schedule:\n" + "\n".join(map(str, steps))) from None
    return number


TWO = (("one", {"a", "b"}, False), ("two", {"b", "c"}, False))
SAME = (("one", {"a", "b"}, False), ("one", {"a", "b"}, False))
AGAIN = (("one", {"a", "b"}, True), ("two", {"b", "c"}, False))
EARLIER = [("zero", {"z"})]  # with a batch in it the recipe is recorded
both = pytest.mark.parametrize("batches", [TWO, SAME], ids=["two batches", "one batch"])


@both
def test_each_pair_is_kept_once_whoever_is_when_and_whatever_fails(batches):
    assert explore(batches) > 1000


@pytest.mark.parametrize("is_old", [False, True], ids=["claims are fresh", "claims are old"])
def test_a_rerun_beside_another_batch_keeps_each_pair_once(is_old):
    assert explore(AGAIN, is_old, before=[("one", {"a", "b"})], faults=() if is_old else FAULTS) > 500


@both
def test_a_claim_that_is_taken_for_dead_and_is_not_commits_nothing(batches):
    assert explore(batches, is_old=True, before=EARLIER) > 5000


@pytest.mark.slow
@both
def test_so_it_is_while_the_recipe_is_recorded(batches):
    assert explore(batches, is_old=True) > 50_000


@pytest.mark.parametrize("mutation", ["no fence", "no place of its own"])
def test_without_its_guards_it_would_fail(monkeypatch, mutation):
    if mutation == "no fence":
        monkeypatch.setattr(Ledger, "holds", lambda self, batch_id, token: True)
    store = Dictionary if mutation == "no fence" else NoPlaceOfItsOwn
    with pytest.raises(AssertionError, match="after the schedule"):
        explore(TWO, is_old=True, store=store, before=EARLIER)

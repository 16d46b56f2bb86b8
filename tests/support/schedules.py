"""Every interleaving of two runs, call by call, with one fault anywhere.

A run is a greenlet, each call on what the runs share is a step, and a schedule says whose step is next. All
schedules are tried, depth first; of those that differ only in the order of calls that do not see each other,
one is enough. Afterwards the batches are run again until they are committed, as a scheduler would.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import NamedTuple

from greenlet import GreenletExit, getcurrent, greenlet

from dedup_nb.base.config import Limits, Recipe
from dedup_nb.base.errors import BusyError
from dedup_nb.manifest import ledger as ledger_module
from dedup_nb.manifest import protocol
from dedup_nb.manifest.ledger import Ledger, ManifestError
from dedup_nb.manifest.protocol import Manifest
from dedup_nb.pipeline.job import recipe_record

RECIPE = recipe_record(Recipe(missing_fingerprint="surrogate", retention_days=10), "lower")
FAULTS = ("dies", "its answer is lost")  # to die after a call is to die before the next one
ALIVE = "who is alive"  # which a death changes


class Call(NamedTuple):
    "A call, and what of the shared things it reads and writes: the order of calls matters only there."

    name: str
    reads: frozenset = frozenset()
    writes: frozenset = frozenset()


class AnswerLost(Exception):
    "The call was done, and who asked does not know: it asks again."


def take_step(call, work):
    "Do the work once it is this run's turn; whoever has the schedule says what goes wrong."
    fault = getcurrent().parent.switch(call)
    if fault == "dies":
        raise GreenletExit
    answer = work()
    if fault == "its answer is lost":
        raise AnswerLost
    return answer


@dataclass
class Runs:
    "Two runs on one store, and which process is at work or dead."

    store: object  # has `markers()` and `copy()`
    batches: tuple  # of each run: name, pairs, is it a rerun?
    is_old: bool  # does every claim count as older than `claim_timeout_minutes`?
    dead: set = field(default_factory=set)
    started: int = 0

    def store_of_run(self, by_steps):
        "The store as one attempt has it; each call is a step, or none is."
        raise NotImplementedError

    def decide(self, manifest, claim, pairs):
        "Look back; returns the keys to commit and what is to be recorded: `kept`, sorted."
        raise NotImplementedError

    def start(self, number, by_steps=False):
        "Begin an attempt at a batch, as a process of its own."
        self.started += 1
        store, token = self.store_of_run(by_steps), f"t{self.started}"
        return greenlet(lambda: self.attempt(token, *self.batches[number], store)), self.started

    def attempt(self, token, name, pairs, rerun, store):
        "What `run` does with a batch: claim, look back, commit; give up if that fails."
        manifest = Manifest(store, RECIPE, Limits(claim_timeout_minutes=60, rerun=rerun))
        try:
            claim = manifest.begin(name, ETL, {"token": token}, rerun=rerun)
            keys, info = self.decide(manifest, claim, pairs)
            manifest.commit(claim, keys, info)
        except (BusyError, ManifestError):
            if not manifest.is_committed(name, token):
                manifest.give_up(name, token)

    def run(self, number):
        "Run a batch from its beginning to its end, with nobody beside it."
        run, process = self.start(number)
        with_process(process, self)
        run.switch()
        self.dead.add(process)

    def finish(self):
        "Run each batch again until it is committed, as a scheduler does: one after the other."
        for _ in range(3):
            for number, (name, _, _) in enumerate(self.batches):
                entry = Ledger(self.store.markers()).entries.get(name)
                if not (entry and entry.committed and entry.state == "committed"):
                    self.run(number)

    def kept(self):
        "What each committed batch keeps."
        return {e.batch_id: e.committed["kept"] for e in Ledger(self.store.markers()).committed()}

    def check(self):
        "Each batch is committed, and each pair is kept by one of them."
        committed, wanted = self.kept(), {pair for batch in self.batches for pair in batch[1]}
        assert set(committed) >= {name for name, _, _ in self.batches}
        kept = Counter(pair for pairs in committed.values() for pair in pairs)
        assert set(kept) >= wanted and set(kept.values()) == {1}, kept


ETL = 1_800_000_000  # time of all batches, seconds since 1970
LONG_AGO, JUST_NOW = datetime(2020, 1, 1, tzinfo=UTC), datetime.now(UTC)
NOW = {"process": 0, "dead": set(), "at": "", "was asked": False}


def with_process(process, runs):
    "The process that is at work now, and which ones are dead, as the ledger asks for them."
    at = LONG_AGO if runs.is_old else JUST_NOW
    NOW.update({"process": process, "dead": runs.dead, "at": at.isoformat(), "was asked": False})


def give_processes(monkeypatch):
    "Each attempt is a process of its own, which is alive until it ends."

    def this_process():
        return {"host": "here", "pid": NOW["process"], "started": "", "at": NOW["at"]}

    def is_gone(info):
        NOW["was asked"] = True
        return info["pid"] in NOW["dead"]

    for module in (ledger_module, protocol):
        monkeypatch.setattr(module, "this_process", this_process)
    monkeypatch.setattr(ledger_module, "is_gone", is_gone)


@dataclass
class Step:
    "A run, its call, and what goes wrong with it."

    run: int
    call: Call
    fault: str | None
    asks_who_lives: bool = field(default=False, compare=False)  # known once it was taken

    def changes(self):
        return {ALIVE} if self.fault == "dies" else self.call.writes

    def asks(self):
        if self.fault == "dies":
            return set()
        return self.call.reads | self.call.writes | ({ALIVE} if self.asks_who_lives else set())

    def sees(self, other):
        "Does the order of two steps make a difference?"
        if self.run == other.run or (self.fault and other.fault):
            return True
        return bool(self.changes() & other.asks() or other.changes() & self.asks())


@dataclass
class Node:
    "Where a schedule goes on."

    options: list
    asleep: list  # steps of which all schedules were tried before, and which nothing has disturbed since
    taken: int = 0

    @property
    def step(self):
        return self.options[self.taken]

    def asleep_after(self):
        "The steps that need not be tried next: they would only stand in another order."
        before = self.asleep + self.options[: self.taken]
        return [step for step in before if not step.sees(self.step)]


def schedules(before, faults):
    "Run all schedules: yields the steps of each, and the runs as they are after it."
    nodes = []
    while True:
        runs = replace(before, store=before.store.copy(), dead=set(before.dead))
        if steps := follow(runs, nodes, faults):
            yield steps, runs
        while nodes and nodes[-1].taken == len(nodes[-1].options) - 1:
            nodes.pop()
        if not nodes:
            return
        nodes[-1].taken += 1


def follow(runs, nodes, faults):
    "Run two runs by the choices made so far, then by the first option of each step. None: tried before."
    alive, calls = {n: runs.start(n, by_steps=True) for n in range(2)}, {}
    for n, (run, process) in alive.items():
        with_process(process, runs)
        calls[n] = run.switch()
    at, is_faulty = 0, False
    while calls:
        if at == len(nodes):
            asleep = nodes[-1].asleep_after() if nodes else []
            steps = [Step(n, call, None) for n, call in calls.items()]
            if not is_faulty:
                # who dies before a read might die before what it writes next: nobody sees a difference
                steps += [Step(n, call, f) for n, call in calls.items() if call.writes for f in faults]
            if not (left := [step for step in steps if step not in asleep]):
                return None
            nodes.append(Node(left, asleep))
        step = nodes[at].step
        at, is_faulty = at + 1, is_faulty or step.fault is not None
        run, process = alive[step.run]
        with_process(process, runs)
        calls[step.run] = run.switch(step.fault)
        step.asks_who_lives = NOW["was asked"]
        if run.dead:
            del calls[step.run]
            runs.dead.add(process)
    return [node.step for node in nodes]


def explore(before, faults=FAULTS):
    "Try all schedules of two runs; how many there were."
    number, ends = 0, set()
    for number, (steps, runs) in enumerate(schedules(before, faults), 1):
        end = repr(runs)
        if end in ends:
            continue  # what follows is the same
        ends.add(end)
        try:
            runs.finish()
            runs.check()
        except AssertionError as wrong:
            shown = "\n".join(f"{s.run}: {s.call.name} {s.fault or ''}" for s in steps)
            raise AssertionError(f"{wrong}\nafter the schedule:\n{shown}") from None
    return number

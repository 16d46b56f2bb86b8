"""Every interleaving of two runs on a ledger, with one fault anywhere: each pair is kept once.

The runs are real: `Manifest` over a store that is a dictionary. Each call of the store is a step.
"""

from contextlib import suppress

import pytest
from schedules import FAULTS, AnswerLost, Call, Runs, explore, give_processes, take_step

from dedup_nb.manifest.ledger import Ledger
from dedup_nb.manifest.protocol import Lookup

LEDGER, KEYS = frozenset({"ledger"}), frozenset({"keys"})
CALLS = {  # those that do something here
    "markers": Call("markers", LEDGER),
    "known": Call("known", KEYS),
    "append": Call("append", LEDGER, LEDGER),
    "replace": Call("replace", LEDGER, LEDGER | KEYS),
}


class Dictionary:
    "Markers by their place; for each batch the pairs of its newest commit. Each call may be repeated."

    name, exclusive, texts = "a dictionary", True, False

    def __init__(self, places=(), keys=()):
        self.places, self.keys = dict(places), dict(keys)

    def copy(self):
        return type(self)(self.places, self.keys)

    def __repr__(self):
        return f"{self.places} {self.keys}"

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
        work = getattr(self.store, call)

        def in_steps(*words):
            while True:
                with suppress(AnswerLost):  # others may go on before it is asked again
                    return take_step(CALLS[call], lambda: work(*words))

        return in_steps if call in CALLS else work


class LedgerRuns(Runs):
    "Runs that look back in one call, and commit in one."

    def store_of_run(self, by_steps):
        return Stepwise(self.store) if by_steps else self.store

    def decide(self, manifest, claim, pairs):
        known = manifest.known(claim, pairs).keys
        return pairs, {"kept": sorted(set(pairs) - known)}


@pytest.fixture(autouse=True)
def processes(monkeypatch):
    give_processes(monkeypatch)


def all_schedules(batches, is_old=False, store=Dictionary, before=(), faults=FAULTS):
    "Try all schedules of two runs; how many there were."

    runs = LedgerRuns(store(), tuple((*batch, False) for batch in before), is_old)
    runs.finish()
    runs.batches = batches
    return explore(runs, faults)


TWO = (("one", {"a", "b"}, False), ("two", {"b", "c"}, False))
SAME = (("one", {"a", "b"}, False), ("one", {"a", "b"}, False))
AGAIN = (("one", {"a", "b"}, True), ("two", {"b", "c"}, False))
EARLIER = [("zero", {"z"})]  # with a batch in it the recipe is recorded
both = pytest.mark.parametrize("batches", [TWO, SAME], ids=["two batches", "one batch"])


@both
def test_each_pair_is_kept_once_whoever_is_when_and_whatever_fails(batches):
    assert all_schedules(batches) > 3000


@pytest.mark.parametrize("is_old", [False, True], ids=["claims are fresh", "claims are old"])
def test_a_rerun_beside_another_batch_keeps_each_pair_once(is_old):
    assert all_schedules(AGAIN, is_old, before=[("one", {"a", "b"})], faults=() if is_old else FAULTS) > 400


@both
def test_a_claim_that_is_taken_for_dead_and_is_not_commits_nothing(batches):
    assert all_schedules(batches, is_old=True, before=EARLIER) > 2500


@pytest.mark.slow
@both
def test_so_it_is_while_the_recipe_is_recorded(batches):
    assert all_schedules(batches, is_old=True) > 20_000


@pytest.mark.parametrize("mutation", ["no fence", "no place of its own"])
def test_without_its_guards_it_would_fail(monkeypatch, mutation):
    if mutation == "no fence":
        monkeypatch.setattr(Ledger, "holds", lambda self, batch_id, token: True)
    store = Dictionary if mutation == "no fence" else NoPlaceOfItsOwn
    with pytest.raises(AssertionError, match="after the schedule"):
        all_schedules(TWO, is_old=True, store=store, before=EARLIER)

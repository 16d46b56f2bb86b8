"A manifest without Spark: its store is a dictionary."

from dedup_nb.base.config import Recipe
from dedup_nb.manifest.protocol import Lookup
from dedup_nb.pipeline.job import recipe_record

RECIPE = recipe_record(Recipe(missing_fingerprint="surrogate", retention_days=10), "lower")


class Dictionary:
    "Markers by their place, keys by their batch."

    name, exclusive, texts = "a dictionary", True, False

    def __init__(self):
        self.places, self.keys, self.asked = {}, {}, 0

    def markers(self):
        return [self.places[seq] for seq in sorted(self.places)]

    def append(self, marker):
        self.asked += 1
        assert self.asked < 100, "this never ends"
        return self.places.setdefault(marker.seq, marker) is marker

    def replace(self, marker, claim, keys):
        if not self.append(marker):
            return False
        self.keys[marker.batch_id] = set(keys or ())
        return True

    def known(self, claim, pairs, retention_s, number=None):
        earlier = [e for e in claim.ledger.committed() if e.first_seq < claim.sees]
        live = [e for e in earlier if None in (e.etl, claim.etl) or e.etl + retention_s >= claim.etl]
        return Lookup({e.batch_id for e in live if self.keys[e.batch_id] & set(pairs)})

    def gone(self, ledger, retention_s):
        return ledger.expired()

    def expire(self, ledger, batches):
        for batch in batches:
            self.keys[batch] = set()

    def tidy(self, retention_s):
        pass


def begin(manifest, batch, etl=0, token="t", **more):
    return manifest.begin(batch, etl, {"token": token}, **more)


def states_of(manifest):
    return {e.batch_id: e.state for e in manifest.ledger().entries.values()}

"What earlier batches had, and what every strategy makes of it."

from functools import reduce

import pytest
from pyspark.sql import functions as F
from worlds import STRATEGIES, new_id

from dedup_nb.base.config import Recipe
from dedup_nb.rules.cross_batch import Fate, cross_batch, id_key, pair_key
from dedup_nb.rules.keys import fit, with_ids, with_keys
from dedup_nb.rules.natural import natural
from dedup_nb.rules.synthetic import synthetic

pytestmark = pytest.mark.usefixtures("one_partition")


KNOWN = [  # id, fingerprint (None: only the id), what became of it, batch, number
    ("a", "f", Fate.STAYS | Fate.HEAD, "monday", 1),
    ("b", "h", Fate.STAYS | Fate.HEAD, "monday", 1),
    ("c", "x", Fate.STAYS | Fate.HEAD, "monday", 1),
    ("c", "f", Fate.RENAMED, "monday", 1),
    ("d", "f", Fate.GONE | Fate.HEAD, "monday", 1),
    ("e", "f", Fate.ELSEWHERE | Fate.HEAD, "monday", 1),
    ("g", "f", Fate.STAYS | Fate.HEAD, "tuesday", 2),
    ("g", "f", Fate.STAYS | Fate.HEAD, "monday", 1),
    ("u", None, Fate.STAYS | Fate.HEAD, "monday", 1),
]
TODAY = [
    ("a", "f", 1),
    ("a", "f", 2),
    ("a", "g", 3),
    ("b", "f", 1),
    ("c", "f", 1),
    ("d", "f", 1),
    ("e", "f", 1),
]
TODAY += [("g", "f", 1), ("u", "f", 1), ("n", "f", 1), (new_id("t", "g"), "f", 1)]
GONE_BEFORE = ("drop", "natural_cross_batch")
ACROSS = {  # pair -> verdict, reason, id of the row that stays, its batch; under rename_later
    ("a", "f"): (*GONE_BEFORE, "a", "monday"),
    ("a", "g"): ("rename", "synthetic_cross_batch", new_id("a", "g"), "today"),
    ("b", "f"): ("rename", "synthetic_cross_batch", new_id("b", "f"), "today"),
    ("c", "f"): (*GONE_BEFORE, new_id("c", "f"), "monday"),
    ("d", "f"): (*GONE_BEFORE, None, "monday"),
    ("e", "f"): (*GONE_BEFORE, None, "monday"),
    ("g", "f"): (*GONE_BEFORE, "g", "monday"),
    ("u", "f"): ("rename", "synthetic_cross_batch", new_id("u", "f"), "today"),
    ("n", "f"): (None, None, "n", "today"),
    (new_id("t", "g"), "f"): ("rename", "synthetic", new_id(new_id("t", "g"), "f"), "today"),
}
COLLIDES = {  # strategy -> what happens to (a, g), whose id an earlier batch has
    "rename_later": ("rename", "synthetic_cross_batch", new_id("a", "g"), "today"),
    "rename_all": ("rename", "synthetic_cross_batch", new_id("a", "g"), "today"),
    "quarantine": ("quarantine", "synthetic_cross_batch", None, None),
    "delete_all": ("drop", "synthetic_cross_batch", None, None),
    "off": (None, None, "a", "today"),
}


@pytest.fixture(scope="module")
def across(spark):
    "What every strategy decides of today's pairs, with what earlier batches had."
    event_id, fingerprint = F.col("i"), F.col("f")
    rows = [(i, f, int(fate), batch_id, seq) for i, f, fate, batch_id, seq in KNOWN]
    known = spark.createDataFrame(rows, "i string, f string, fate int, batch_id string, seq bigint")
    known = known.select(
        *id_key(event_id),
        pair_key(event_id, fingerprint),
        "fate",
        "batch_id",
        "seq",
        F.lit(True).alias("of_id"),
    )
    events = spark.createDataFrame(TODAY, "event_id string, event_fingerprint string, n int").coalesce(1)
    keys = fit(Recipe(order_by=("n",)), events.schema)
    suspects = with_keys(with_ids(events, keys), keys).cache()
    # an id that an event of this batch was given is taken
    taken = spark.createDataFrame([(new_id("t", "g"),)], "event_id string")
    found = {}
    # as `decide` does it, but the strategies share what comes before them
    pairs = cross_batch(natural(suspects), known).cache()
    decided = [synthetic(pairs, s, "today", taken).withColumn("strategy", F.lit(s)) for s in STRATEGIES]
    for r in reduce(lambda one, other: one.union(other), decided).collect():
        said = (r.verdict, r.reason, r.kept_event_id, r.kept_in_batch)
        found[r.strategy, r.event_id, r.event_fingerprint] = said
    return found


@pytest.mark.parametrize("pair, expected", ACROSS.items(), ids=lambda value: "-".join(map(str, value)))
def test_what_earlier_batches_had_decides(across, pair, expected):
    assert across[("rename_later", *pair)] == expected


@pytest.mark.parametrize("strategy, expected", COLLIDES.items(), ids=COLLIDES)
def test_an_id_of_an_earlier_batch_makes_every_new_pair_a_later_one(across, strategy, expected):
    assert across[strategy, "a", "g"] == expected
    assert across[strategy, "a", "f"] == ACROSS["a", "f"]


def test_an_id_with_a_line_end_is_another_id(spark):
    one = "6c2a1f0e-0000-4000-8000-00000000abcd"
    rows = spark.createDataFrame([(one,), (one + "\n",)], "id string").select(*id_key(F.col("id"))).collect()
    assert len(set(rows)) == 2 and [r.packed for r in rows] == [True, False]

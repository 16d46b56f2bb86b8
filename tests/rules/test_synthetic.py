"Synthetic duplicates: what each strategy decides of the pairs that share an id."

import pytest
from pyspark.sql import functions as F
from worlds import new_id

from dedup_nb.base.config import Recipe
from dedup_nb.rules.cross_batch import cross_batch
from dedup_nb.rules.keys import fit, with_ids, with_keys
from dedup_nb.rules.natural import natural
from dedup_nb.rules.synthetic import synthetic

pytestmark = pytest.mark.usefixtures("one_partition")
LATER = new_id("a", "g")


@pytest.fixture(scope="module")
def pairs(spark, one_partition):
    "Two pairs that share the id a, and one whose id is its own."
    rows = [("a", "f", 1), ("a", "g", 2), ("a", "g", 3), ("b", "f", 4)]
    events = spark.createDataFrame(rows, "event_id string, event_fingerprint string, n int").coalesce(1)
    keys = fit(Recipe(order_by=("n",)), events.columns)
    return cross_batch(natural(with_keys(with_ids(events, keys), keys))).cache()


def decided(pairs, strategy, **more):
    rows = synthetic(pairs, strategy, "monday", **more).orderBy("event_id", "event_fingerprint").collect()
    return [(r.verdict, r.reason, r.kept_event_id) for r in rows]


ONE = (None, None, "b")  # who shares its id with nobody stays as it is


@pytest.mark.parametrize(
    "strategy, first, later",
    [
        ("rename_later", ("keep_first", "synthetic", "a"), ("rename", "synthetic", LATER)),
        ("rename_all", ("rename", "synthetic", new_id("a", "f")), ("rename", "synthetic", LATER)),
        ("quarantine", ("keep_first", "synthetic", "a"), ("quarantine", "synthetic", None)),
        ("delete_all", ("drop", "synthetic", None), ("drop", "synthetic", None)),
        ("off", ("keep_first", "synthetic", "a"), ("keep_first", "natural", "a")),
    ],
)
def test_each_strategy_decides_of_the_first_and_of_later_pairs(pairs, strategy, first, later):
    assert decided(pairs, strategy) == [first, later, ONE]


def test_an_id_that_a_renamed_event_was_given_is_taken(spark, pairs):
    taken = spark.range(1).select(F.lit("b").alias("event_id"))
    assert decided(pairs, "rename_later", taken=taken)[2] == ("rename", "synthetic", new_id("b", "f"))


def test_a_strategy_that_is_none_is_refused(pairs):
    with pytest.raises(KeyError, match="renam"):
        synthetic(pairs, "renam", "monday")

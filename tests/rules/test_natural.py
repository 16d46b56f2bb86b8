"Natural duplicates: rows become pairs, and of each pair the first copy in the total order stays."

import pytest

from dedup_nb.base.config import Recipe
from dedup_nb.rules.keys import fit, with_ids, with_keys
from dedup_nb.rules.natural import distinct_with_counts, natural, number_unfingerprinted

pytestmark = pytest.mark.usefixtures("one_partition")


def suspects_of(spark, *rows, **recipe):
    events = spark.createDataFrame(rows, "event_id string, event_fingerprint string, n int").coalesce(1)
    keys = fit(Recipe(order_by=("n",), **recipe), events.columns)
    return with_keys(with_ids(events, keys), keys)


def test_copies_are_counted_and_the_first_in_the_order_leads(spark):
    suspects = suspects_of(spark, ("a", "f", 2), ("a", "f", 1), ("a", "g", 3), ("b", "f", 4))
    pairs = {(r._dd_id, r._dd_fp): r for r in natural(suspects).collect()}
    assert {pair: r.copies for pair, r in pairs.items()} == {("a", "f"): 2, ("a", "g"): 1, ("b", "f"): 1}
    first = {r.asDict()["_dd_at"].row for r in suspects.where("n = 1").collect()}
    assert {pairs["a", "f"].first.row} == first


def test_equal_rows_are_taken_once_and_still_counted(spark):
    suspects = suspects_of(spark, ("a", "f", 1), ("a", "f", 1), ("a", "f", 2))
    once = distinct_with_counts(suspects)
    assert sorted((r.n, r._dd_n) for r in once.collect()) == [(1, 2), (2, 1)]
    assert [r.copies for r in natural(once).collect()] == [3]


def test_rows_without_a_fingerprint_are_pairs_of_one_copy_each(spark):
    suspects = suspects_of(spark, ("a", None, 1), ("a", None, 1), ("a", "f", 2), missing_fingerprint="unique")
    pairs = number_unfingerprinted(natural(suspects), "monday").orderBy("ordinal").collect()
    assert [(r.copies, r.ordinal) for r in pairs] == [(1, 0), (1, 1), (1, 2)]
    assert pairs[0].name == "f" and [r.name.split("/")[1:] for r in pairs[1:]] == [
        ["monday", "1"],
        ["monday", "2"],
    ]

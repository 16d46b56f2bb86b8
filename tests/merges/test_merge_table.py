"Partitions of a merge table, and what its optimize leaves: the table says the same before and after."

import pytest
from pyspark.sql import functions as F

from dedup_nb.base.errors import ConfigError, InputError
from dedup_nb.merges.change_log import Coalescing, Collapsing, Latest, Replacing, VersionedCollapsing
from dedup_nb.merges.merge_table import MergeTable


@pytest.mark.slow
def test_keys_in_several_partitions_are_not_merged_where_rows_are_put_together_or_paired(spark, tmp_path):
    specs = {"coalesced": Coalescing("k"), "paired": VersionedCollapsing("k", "sign", "ver")}
    for name, spec in specs.items():
        table = MergeTable(str(tmp_path / name), spec, "p", spark=spark)
        schema = "k string, ver int, sign int, v string, p int"
        # of the first partition the merged row would be later than that of the second, and its pair gone
        for row in [("a", 1, 1, "x", 1), ("a", 1, 1, "y", 2), ("a", 1, -1, None, 1)]:
            table.insert(spark.createDataFrame([row], schema))
        with pytest.raises(InputError, match="The partition column p is no key.*force=True"):
            table.optimize()
        kept = 2 if name == "coalesced" else 1
        assert table.optimize(force=True) == (3, kept)


@pytest.mark.slow
def test_an_empty_text_makes_no_partition(spark, tmp_path):
    schema = "k string, ver int, v string"
    table = MergeTable(str(tmp_path / "t"), Latest(["k", "v"], "ver"), "v", spark=spark)
    table.insert(spark.createDataFrame([("a", 1, None), ("b", 1, "x")], schema))
    with pytest.raises(InputError, match="partition column v has an empty text, which Delta stores as null"):
        table.insert(spark.createDataFrame([("a", 1, ""), ("c", 1, "x")], schema))
    assert table.rows().count() == 2


@pytest.mark.slow
def test_names_may_have_signs_that_files_of_delta_do_not_take(spark, tmp_path):
    rows = spark.sql("select 'a' as `user id`, 1 as `n;`, array(struct(2 as `b,c`)) as v")
    table = MergeTable(str(tmp_path / "t"), Latest("user id", "n;"), "user id", spark=spark)
    inserts = table.insert(rows), table.insert(rows), table.insert(rows.withColumn("n;", F.lit(2)))
    assert [i.rows for i in inserts] == [1, 0, 1]
    assert table.optimize("`user id` = 'a'") == (2, 1)
    assert table.final().collect() == [("a", 2, [(2,)])]


def test_an_insert_that_is_refused_leaves_its_block_to_others(spark, tmp_path):
    table = MergeTable(str(tmp_path / "t"), Collapsing("k", "sign", "seq"), spark=spark)
    with pytest.raises(Exception, match="sign is 5"):
        table.insert(spark.createDataFrame([("a", 1, 5)], "k string, seq int, sign int"))
    assert not (tmp_path / "t").exists()


@pytest.mark.slow
def test_copies_go_from_what_the_merge_has_left(spark, tmp_path):
    schema = "k string, seq int, sign int"
    table = MergeTable(str(tmp_path / "order"), Replacing("k"), spark=spark)
    for n in (1, 2):
        table.insert(spark.createDataFrame([("a", n, 1)], schema))
    assert table.optimize(deduplicate=["k"]) == (2, 1)
    assert [r.seq for r in table.final().collect()] == [2]
    signs = MergeTable(str(tmp_path / "signs"), Collapsing("k", "sign", "seq"), spark=spark)
    signs.insert(spark.createDataFrame([("a", 1, 1), ("a", 2, -1), ("b", 1, 1)], schema))
    with pytest.raises(ConfigError, match="of signs the sign .* too: sign"):
        signs.optimize(deduplicate=["k"])
    signs.optimize(deduplicate=["k", "sign"])
    assert [r.k for r in signs.final().collect()] == ["b"]


@pytest.mark.slow
def test_equal_rows_of_a_version_are_made_one_only_by_force(spark, tmp_path):
    table = MergeTable(str(tmp_path / "t"), VersionedCollapsing("k", "sign", "ver"), spark=spark)
    table.insert(spark.createDataFrame([("a", 1, 1), ("a", 1, 1)], "k string, ver int, sign int"))
    with pytest.raises(ConfigError, match="too: ver"):
        table.optimize(deduplicate=["k", "sign"])
    with pytest.raises(InputError, match="Each row that is left over counts.*force=True"):
        table.optimize(deduplicate=True)
    assert table.optimize(deduplicate=True, force=True) == (2, 1)


@pytest.mark.slow
def test_what_was_cancelled_still_counts_for_rows_that_come_late_or_lie_in_another_partition(spark, tmp_path):
    schema = "k string, seq int, sign int, p int"
    table = MergeTable(str(tmp_path / "t"), Collapsing("k", "sign", "seq"), "p", spark=spark)
    rows = [
        ("late", 1, 1, 1),
        ("late", 4, -1, 1),
        ("apart", 1, 1, 1),
        ("apart", 2, 1, 2),
        ("apart", 3, -1, 2),
    ]
    table.insert(spark.createDataFrame([*rows, ("gone", 1, 1, 1), ("gone", 2, -1, 1)], schema))
    said = table.final().collect()
    assert [(r.k, r.seq) for r in said] == [("apart", 2)]
    assert table.optimize() == (7, 7) and table.final().collect() == said
    table.insert(spark.createDataFrame([("late", 2, -1, 1), ("late", 3, 1, 1)], schema))
    assert table.final().collect() == said
    assert table.optimize() == (9, 7) and table.final().collect() == said


@pytest.mark.slow
def test_a_mark_guards_its_key_in_another_partition_however_that_is_written(spark, tmp_path):
    table = MergeTable(str(tmp_path / "t"), Replacing(["k", "m"], "ver", "gone"), "p", spark=spark)
    rows = [(0.0, None, 2, 1, 1), (-0.0, None, 1, 0, 2), (1.0, None, 2, 1, 1), (1.0, "m", 1, 0, 2)]
    table.insert(spark.createDataFrame(rows, "k double, m string, ver int, gone int, p int"))
    said = table.final().collect()
    assert [r.m for r in said] == ["m"]
    assert table.optimize(cleanup=True, tombstones_older_than=5) == (4, 3)
    assert table.final().collect() == said

"Partitions of a merge table: what they may hold, and when they may be merged."

import pytest

from dedup_nb.base.errors import InputError
from dedup_nb.merges.change_log import Coalescing, Latest, VersionedCollapsing
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

"""Through Spark Connect the frames hold the rows of a classic session, and batches know one another."""

import pytest
from runs import STAYED
from spread import driver_of_its_own, rows_of


@pytest.mark.slow
@pytest.mark.parametrize("manifest", ["lake", "dynamodb", "none"])
def test_spark_connect_gives_the_same_rows_as_a_classic_session(request, spark, tmp_path, manifest):
    pytest.importorskip("grpc", reason="Spark Connect needs grpc: pip install 'pyspark[connect]'")
    where = request.getfixturevalue("dynamodb") if manifest == "dynamodb" else manifest
    # a Connect session cannot share a process with a classic one
    found = driver_of_its_own(f"connect+{where}", tmp_path, within_s=300)
    assert found["rows"] == rows_of(spark, 60)
    assert set(found["carried_by"]) == {"spark: input_format=json" if manifest == "none" else "arrow"}
    alone = {"1": STAYED["1"], "2": [("a", 4), ("c", 5), ("new of a", 3)]}
    expected = alone if manifest == "none" else STAYED
    assert {batch: [tuple(row) for row in rows] for batch, rows in found["stayed"].items()} == expected
    assert found.get("repaired", [1, 2, 5]) == [1, 2, 5]
    words = "partitions='n = 1' is no condition on partition columns (p)."
    assert found.get("refused", words) == words

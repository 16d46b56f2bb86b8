"""Through Spark Connect the four frames hold the same rows as in a classic session."""
import pytest
from spread import driver_of_its_own, rows_of


def test_spark_connect_gives_the_same_rows_as_a_classic_session(spark, tmp_path):
    pytest.importorskip("grpc", reason="Spark Connect needs grpc: pip install 'pyspark[connect]'")
    # a Connect session cannot share a process with a classic one
    assert driver_of_its_own("connect", tmp_path, within_s=240)["rows"] == rows_of(spark, 60)

"What Arrow picks of Parquet files is what Spark would take, and why it does not."

from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dedup_nb.base.arrow import hash_texts, read_footers
from dedup_nb.base.canonical import id_text, values_of
from dedup_nb.formats import arrow_tasks
from dedup_nb.formats.arrow_tasks import have_ids, id_texts, pick_rows, why_no_parquet, why_not_there
from dedup_nb.formats.parquet import parts_of_parquet

A = ["a", "", None, "x/y", "50%", "%", " ", "ünï", "a", "%2F"]
N = [1, 2, 3, None, -5, None, 7, 2**31 - 1, 1, 0]
CHAR = {"__CHAR_VARCHAR_TYPE_STRING": "char(4)"}
SCHEMA = pa.schema([("a", pa.string()), ("n", pa.int32()), ("more", pa.list_(pa.int64()))])


@pytest.fixture
def files(tmp_path):
    "Two files of rows, in row groups of three."
    for number in range(2):
        told = [[number] if number else None] * len(A)
        rows = pa.table([A, N, told], schema=SCHEMA)
        pq.write_table(rows, tmp_path / f"{number}.parquet", row_group_size=3)
    return [str(tmp_path / f"{number}.parquet") for number in range(2)]


@pytest.mark.parametrize("null_in_id", ["bad", "value"])
@pytest.mark.parametrize("id", [("a",), ("n",), ("a", "n")], ids=",".join)
def test_rows_are_picked_by_the_ids_that_spark_gives_them(spark, files, id, null_in_id):
    rows = spark.read.parquet(*files)
    ids = rows.withColumn("id", F.expr(f"nullif({id_text(values_of(rows.schema), id, null_in_id)}, '')"))
    texts = id_texts(pa.record_batch([A, N], ["a", "n"]), id, null_in_id).to_pylist()
    assert sorted(map(str, texts * 2)) == sorted(str(row.id) for row in ids.collect())

    known = sorted({text for text in texts if text is not None})[::2]
    which = partial(
        have_ids, id=id, null_in_id=null_in_id, hashes=np.sort(hash_texts(pa.array(known)).to_numpy())
    )
    expected = sorted(map(str, ids.where(F.col("id").isin(known)).drop("id").collect()))
    for size in (1, 10**9):
        parts = parts_of_parquet(read_footers(files), size)
        assert len(parts) == (8 if size == 1 else 1)
        assert sorted(map(str, pick_rows(spark, parts, SCHEMA, which).collect())) == expected
    assert 0 < len(expected) < 2 * len(A)


def test_what_arrow_does_not_surely_know_is_said(files):
    footers = tuple(read_footers(files))
    lists = T.ArrayType(T.LongType())
    schema = T.StructType().add("a", "string").add("n", "integer").add("more", lists)
    source = SimpleNamespace(
        schema=schema, columns=schema.names, folders=(), listed=20, footers=footers, no_files=None
    )
    assert why_no_parquet(source, ["a", "n"]) is None
    with_more = lambda **more: SimpleNamespace(**{**vars(source), **more})
    assert why_no_parquet(source, ["more"]) == "the type of more"
    assert why_no_parquet(with_more(listed=0), ["a"]) == "no rows"
    assert why_no_parquet(with_more(footers=None), ["a"]) == "a file whose footer nobody reads here"
    assert why_no_parquet(with_more(no_files="deletion vectors"), ["a"]) is None
    old = tuple(replace(footer, is_legacy=True) for footer in footers)
    assert why_no_parquet(with_more(footers=old), ["a"]) == "a calendar of Spark 2"
    wider = T.StructType().add("a", "string").add("n", "long").add("more", lists)
    assert why_no_parquet(with_more(schema=wider), ["a"]).startswith("n is int32 in ")
    inner = {name: f"struct<b:array<{kind}>>" for name, kind in CHAR.items()}
    varchar = {name: f"var{kind}" for name, kind in CHAR.items()}
    told = ((CHAR, "a is char"), (inner, "a is char"), (varchar, None))
    for metadata, why in (({"EXISTS_DEFAULT": "5"}, "a has a default"), *told):
        told = T.StructType([T.StructField("a", T.StringType(), True, metadata), *schema.fields[1:]])
        assert why_no_parquet(with_more(schema=told), ["a"]) == why


def test_files_elsewhere_are_left_to_spark(spark, files):
    assert why_not_there(spark, files) is None
    for path in ("hdfs://host/in/a.parquet", "abfss://c@account/in/a.parquet", "gs://bucket/in/a.parquet"):
        assert why_not_there(spark, [path]) == "neither on a local disk nor on S3"
    assert why_not_there(spark, files, "gs://bucket/out") == "neither on a local disk nor on S3"


def test_workers_that_may_not_find_this_package_are_tried_first(spark, files, monkeypatch):
    def lacks(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(arrow_tasks, "_try", lambda numbers, files, output: None)  # whoever tries it fails
    monkeypatch.setattr(arrow_tasks, "distribution", lacks)
    own = str(Path(arrow_tasks.__file__).parents[2])
    for path, is_found in (("/elsewhere", False), (f"/elsewhere:{own}/", True)):
        monkeypatch.setenv("PYTHONPATH", path)
        assert (why_not_there(spark, files) is None) == is_found


def test_workers_with_another_python_are_tried_first(spark, files, monkeypatch):
    monkeypatch.setattr(arrow_tasks, "_try", lambda numbers, files, output: None)  # whoever tries it fails
    assert why_not_there(spark, files) is None
    monkeypatch.setenv("PYSPARK_PYTHON", "/bin/sh")
    assert why_not_there(spark, files).startswith("a worker cannot: ")

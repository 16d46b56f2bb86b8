"""Hashes as Spark's, and files that are there whole or not at all."""

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dedup_nb.base.arrow import LinesOnce, ParquetOnce, hash_texts, read_footers


def test_hashes_are_those_of_spark(spark):
    pick = random.Random(7)
    texts = [None, *("".join(pick.choices("aé~0\x00\U0001f600", k=n)) for n in range(150) for _ in range(3))]
    pick.shuffle(texts)
    rows = spark.createDataFrame(list(enumerate(texts)), "n int, t string").orderBy("n")
    wanted = [r.h for r in rows.selectExpr("xxhash64(t) as h").collect()]
    assert hash_texts(pa.array(texts)).to_pylist() == wanted
    assert hash_texts(pa.array(texts).slice(5, 100)).to_pylist() == wanted[5:105]


def parquet(path):
    return ParquetOnce(path, f"{path}_beside", pa.schema([("n", pa.int64())])), pa.record_batch({"n": [1, 2]})


def lines(path):
    return LinesOnce(path, f"{path}_beside"), b"a\nb\n"


@pytest.mark.parametrize("kind", [parquet, lines])
def test_a_file_is_there_whole_or_not_at_all(tmp_path, kind):
    for end in ("forget", "close", "close"):  # the second time over the first
        file, rows = kind(f"{tmp_path}/in/part-00000")
        file.add(rows)
        assert file.rows == 2
        getattr(file, end)()
        left = [p.name for p in tmp_path.rglob("*") if p.is_file()]
        assert left == ([] if end == "forget" else ["part-00000"])
    empty, _ = kind(f"{tmp_path}/none")
    assert empty.close() == 0 and not (tmp_path / "none").exists()


def test_footers_tell_rows_and_old_calendars(tmp_path):
    for name, notes in (("new", {}), ("old", {"org.apache.spark.legacyDateTime": ""})):
        file, rows = parquet(f"{tmp_path}/{name}")
        file.schema = file.schema.with_metadata(notes)
        file.add(rows)
        file.close()
    found = read_footers(f"{tmp_path}/{name}" for name in ("new", "old"))
    assert [(f.rows, f.is_legacy) for f in found] == [(2, False), (2, True)]


def test_no_file_waits_for_more_than_its_bytes(tmp_path, monkeypatch):
    "A few rows of a large dictionary, or texts that another part of the file has by number."
    monkeypatch.setattr("dedup_nb.base.arrow._ROW_GROUP", 1 << 20)
    large = pa.array([f"{n:0200}" for n in range(5000)]).dictionary_encode()
    for first in (large, large.cast(pa.string())):
        file = ParquetOnce(f"{tmp_path}/a", f"{tmp_path}/x", pa.schema({"t": pa.string()}))
        for column in (first[:1], *[large[:1]] * 20, pa.array([0] * 9000).cast(pa.string())):
            file.add(pa.record_batch({"t": column}))
            assert sum(rows.nbytes for rows in file._waiting) < 2 << 20
        assert file.close() == 9021


def test_texts_by_number_are_texts_of_the_file_and_only_those_of_its_rows(tmp_path, monkeypatch):
    given = [["a", "b", None, "secret"], ["c", "a"], [None, None], ["secret", "d"], ["b"]]
    batches = [pa.record_batch({"t": pa.array(texts, pa.string()).dictionary_encode()}) for texts in given]
    batches[3] = pa.record_batch({"t": pa.array(given[3])})  # of a file that has no numbers
    without = [
        batch.filter(pa.array([text != "secret" for text in texts])) for batch, texts in zip(batches, given)
    ]
    wanted = [text for texts in given for text in texts if text != "secret"]
    for groups in (1, 5):
        monkeypatch.setattr("dedup_nb.base.arrow._ROW_GROUP", 1 if groups == 5 else 1 << 20)
        file = ParquetOnce(f"{tmp_path}/{groups}", f"{tmp_path}/x", pa.schema({"t": pa.string()}, {"k": "v"}))
        for rows in without:
            file.add(rows)
        assert file.close() == len(wanted)
        found = pq.ParquetFile(file.path, read_dictionary=["t"])
        assert found.metadata.num_row_groups == groups and found.metadata.metadata == {b"k": b"v"}
        assert (
            found.read()["t"].to_pylist() == wanted
            and pq.read_schema(file.path).field("t").type == pa.string()
        )
        texts = {text for part in found.read()["t"].chunks for text in part.dictionary.to_pylist()}
        assert texts == {"a", "b", "c", "d"}

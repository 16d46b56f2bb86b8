"Rows of a Delta table appended and read without Spark, beside a Spark that does the same."

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from dedup_nb.manifest.table import append_once, find_rows, read_rows

APP = "tests"


def append(path, number, **row):
    rows = pa.table({name: [value] for name, value in {"day": 1, "number": number, **row}.items()})
    return append_once(path, rows, ["day"], (APP, number), f"note {number}")


def numbers(path):
    return sorted(row["number"] for row in read_rows(path, ["number"], pc.field("day") == 1))


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "table")


def test_a_number_is_used_once_and_none_before_it(path):
    assert [append(path, number) for number in (0, 3, 3, 2, 4)] == [True, True, False, False, True]
    assert numbers(path) == [0, 3, 4]


def test_of_threads_one_gets_each_number_the_first_too(tmp_path):
    with ThreadPoolExecutor(6) as threads:
        for turn in range(10):
            path = str(tmp_path / f"table {turn}")
            for number in range(3):
                taken = list(threads.map(lambda _: append(path, number), range(6)))
                assert taken.count(True) == numbers(path).count(number) == 1


def test_who_was_late_with_the_first_rows_is_told(path, monkeypatch):
    def late(place):  # somebody else makes the table between our look and our write
        monkeypatch.undo()
        assert append(path, 0)
        return False

    monkeypatch.setattr(DeltaTable, "is_deltatable", late)
    assert not append(path, 0) and numbers(path) == [0]


@pytest.mark.parametrize(
    "name", ["a b", "a+b#c?d", "ä:{}*&=;,'\"~!$()@`<>", "a%20b", "a[1]", "x^y|z", "a\\b"]
)
def test_a_folder_is_that_folder_or_is_refused(tmp_path, name):
    for place in (f"{tmp_path}/{name}", f"file://{tmp_path}/{name}"):
        if set("%[]^|\\") & set(name):
            with pytest.raises(OSError, match="characters that stand for others"):
                append(place, 0)
        else:
            append(place, 0)
            assert numbers(place) == [0]
    assert {found.name for found in tmp_path.iterdir()} <= {name}


def test_who_wrote_meanwhile_is_told_from_a_log_that_takes_nothing(path, monkeypatch):
    assert append(path, 0)

    def late(self, app):  # somebody else writes between our look and our write
        monkeypatch.undo()
        assert append(path, 1)
        return None

    monkeypatch.setattr(DeltaTable, "transaction_version", late)
    assert not append(path, 2) and numbers(path) == [0, 1]

    def refuse(*_, **__):
        raise CommitFailedError("the log takes nothing")

    monkeypatch.setattr("deltalake.write_deltalake", refuse)
    with pytest.raises(CommitFailedError, match="takes nothing"):
        append(path, 3)


@pytest.mark.slow
def test_spark_and_this_write_to_one_table_for_long(spark, path, capfd):
    written = []
    for number in range(0, 24, 4):
        rows = spark.createDataFrame([(1, number)], "day bigint, number bigint")
        writer = rows.write.format("delta").mode("append").partitionBy("day")
        writer.options(txnAppId=APP, txnVersion=str(number)).save(path)
        written += [number, *(n for n in range(number + 1, number + 4) if append(path, n))]
    assert written == list(range(24)) == numbers(path)
    found = spark.read.format("delta").load(path)
    assert sorted(r.number for r in found.collect()) == written
    # both kept their checkpoints, and the number of the last transaction is in them
    log = DeltaTable(path)
    assert log.version() == 23 and log.transaction_version(APP) == 23
    rows = spark.createDataFrame([(1, 20)], "day bigint, number bigint")
    again = rows.write.format("delta").mode("append").option("txnAppId", APP)
    again.option("txnVersion", "20").save(path)
    assert numbers(path) == written


def test_more_rows_than_wanted_are_not_held(path):
    rows = pa.table({"day": [1] * 100, "number": range(100)})
    append_once(path, rows, ["day"], (APP, 0), "")
    assert find_rows(path, ["number"], pc.field("number") < 10, most=10).num_rows == 10
    assert find_rows(path, ["number"], pc.field("number") < 11, most=10) is None


def test_a_panic_is_an_error(path, monkeypatch):
    class PanicException(BaseException):
        "As that of Rust."

    def panic(*_, **__):
        raise PanicException("Invalid object store url")

    monkeypatch.setattr("deltalake.write_deltalake", panic)
    with pytest.raises(OSError, match="Invalid object store url"):
        append(path, 0)

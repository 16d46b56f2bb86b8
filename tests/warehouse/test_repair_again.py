"A repair that dies, is repeated, or meets a table that changes meanwhile."

import subprocess
import sys

import pytest
from conftest import ROOT
from pyspark.sql import functions as F
from repairs import (
    EIGHT,
    LEFT,
    STAYING,
    frame_of_days,
    links_in,
    numbers_in,
    repaired,
    rows_that_left,
    table_made,
    with_entities,
)
from runs import heard

from dedup_nb.base.errors import BusyError, OutputError
from dedup_nb.formats.delta import Delta
from dedup_nb.warehouse.repair import repair


class Died(BaseException):
    "What nothing catches."


def die_at(monkeypatch, number, wrong=Died):
    "Let the write of this number fail."
    real, writes = Delta._write, []

    def fail(self, writer, note):
        writes.append(self.name)
        if len(writes) == number:
            raise wrong("the disk is full")
        real(self, writer, note)

    monkeypatch.setattr(Delta, "_write", fail)
    return writes


@pytest.mark.soak
@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_a_repair_that_died_is_finished_by_the_next_one(spark, tmp_path, monkeypatch, step):
    "Its own settings are taken, whatever the next one asks for."
    path, entities = with_entities(spark, tmp_path)
    with monkeypatch.context() as patch:
        die_at(patch, step)
        with pytest.raises(Died):
            repaired(spark, path, None, entities)
    repaired(spark, path, mode="decide")
    with heard() as said:
        repair(path, spark=spark, strategy="rename" if step > 1 else "move", entities=entities)
    assert [line.partition(" is ")[0] for line in said] == (
        [f"The repair of {path} decided on version 0"] if step > 1 else []
    )
    assert numbers_in(spark, path) == [1, 3, 5, 7, 8] and links_in(spark, f"{tmp_path}/link") == STAYING
    assert len(rows_that_left(spark, f"{tmp_path}/duplicated_events")) == 5
    assert spark.read.format("delta").load(f"{tmp_path}/duplicated_link").count() == 5


@pytest.mark.soak
@pytest.mark.parametrize("step", [pytest.param(2, marks=pytest.mark.soak), 4])
def test_a_repair_that_failed_is_taken_back(spark, tmp_path, monkeypatch, step):
    path, entities = with_entities(spark, tmp_path)
    with monkeypatch.context() as patch:
        die_at(patch, step, OutputError)
        with pytest.raises(OutputError, match="the disk is full"):
            repaired(spark, path, None, entities)
    assert len(numbers_in(spark, path)) == 10 and len(links_in(spark, f"{tmp_path}/link")) == 10
    assert rows_that_left(spark, f"{tmp_path}/duplicated_events") == []
    assert repaired(spark, path, None, entities).counts["left"] == 5


@pytest.mark.slow
def test_of_two_repairs_at_once_one_does_it(spark, tmp_path, monkeypatch):
    path = table_made(spark, tmp_path)
    repaired(spark, path)
    frame_of_days(spark, EIGHT[:2]).write.format("delta").mode("append").save(path)
    with monkeypatch.context() as patch:
        before_write(patch, 1, lambda: repaired(spark, path))
        with pytest.raises(BusyError, match="Another repair of"):
            repaired(spark, path)
    assert numbers_in(spark, path) == [1, 3, 5, 8]
    assert rows_that_left(spark, f"{tmp_path}/duplicated_events") == sorted(
        [*LEFT, (1, "natural", "a"), (2, "natural", "a")]
    )


@pytest.mark.soak
def test_a_repair_that_may_be_alive_elsewhere_is_let_be(spark, tmp_path, monkeypatch):
    path = table_made(spark, tmp_path)
    elsewhere = {"host": "another", "pid": 1, "started": "1", "at": "2026-11-01T00:00:00+00:00"}
    with monkeypatch.context() as patch:
        die_at(patch, 2)
        patch.setattr("dedup_nb.warehouse.repair.this_process", lambda: elsewhere)
        with pytest.raises(Died):
            repaired(spark, path)
    with pytest.raises(BusyError, match="is at work: process 1 on another since 2026-11-01"):
        repaired(spark, path)
    repaired(spark, path, take_over=True)
    assert (
        numbers_in(spark, path) == [1, 3, 5, 8]
        and rows_that_left(spark, f"{tmp_path}/duplicated_events") == LEFT
    )


@pytest.mark.slow
@pytest.mark.parametrize("writes", [3, *(pytest.param(n, marks=pytest.mark.soak) for n in (1, 2, 4, 5))])
def test_a_killed_repair_is_finished_by_the_next_one(spark, tmp_path, writes):
    "kill -9 after each of its commits."
    path, entities = with_entities(spark, tmp_path)
    script = ROOT / "tests/programs/killed_repair.py"
    asked = [sys.executable, script, str(writes), path, *entities]
    done = subprocess.run(asked, capture_output=True, start_new_session=True)
    assert done.returncode == -9, done.stderr[-2000:]
    assert repaired(spark, path, None, entities).counts["left"] == 0
    assert numbers_in(spark, path) == [1, 3, 5, 7, 8] and links_in(spark, f"{tmp_path}/link") == STAYING
    assert len(rows_that_left(spark, f"{tmp_path}/duplicated_events")) == 5
    assert spark.read.format("delta").load(f"{tmp_path}/duplicated_link").count() == 5


def before_write(monkeypatch, number, then):
    "Do something just before a write."
    real, writes = Delta._write, []

    def first(self, writer, note):
        writes.append(note)
        if len(writes) == number:
            then()
        real(self, writer, note)

    monkeypatch.setattr(Delta, "_write", first)


@pytest.mark.slow
def test_what_is_appended_meanwhile_is_never_lost(spark, tmp_path, monkeypatch):
    path = table_made(spark, tmp_path)
    late = frame_of_days(spark, [("a", "f", 3, 20), ("c", "f", 1, 5), ("new", "f", 3, 21)])
    with monkeypatch.context() as patch:
        before_write(patch, 2, lambda: late.write.format("delta").mode("append").save(path))
        repaired(spark, path)
    assert numbers_in(spark, path) == [1, 3, 5, 5, 8, 20, 21]
    assert rows_that_left(spark, f"{tmp_path}/duplicated_events") == LEFT
    repaired(spark, path)
    assert numbers_in(spark, path) == [1, 3, 5, 8, 21]
    again = [(5, "natural", "c"), (20, "natural", "a")]
    assert rows_that_left(spark, f"{tmp_path}/duplicated_events") == sorted([*LEFT, *again])


@pytest.mark.soak
def test_a_table_that_changes_is_left_alone(spark, tmp_path, monkeypatch):
    path = table_made(spark, tmp_path)
    changed = f"update delta.`{path}` set n = 30 where n = 1"
    with monkeypatch.context() as patch:
        before_write(patch, 1, lambda: spark.sql(changed))
        with pytest.raises(BusyError, match="events was changed while it was repaired .version 1: UPDATE"):
            repaired(spark, path)
    assert len(numbers_in(spark, path)) == 8 and rows_that_left(spark, f"{tmp_path}/duplicated_events") == []
    other = frame_of_days(spark, [("new", "f", 3, 21)])
    with monkeypatch.context() as patch:
        before_write(patch, 2, lambda: other.write.format("delta").mode("append").save(path))
        repaired(spark, path)
    assert numbers_in(spark, path) == [3, 5, 8, 21, 30]


@pytest.mark.soak
def test_a_writer_that_is_quicker_is_waited_for(spark, tmp_path, monkeypatch):
    "Open-source Delta undoes a transaction if rows are appended beside it: it is done again."
    path = table_made(spark, tmp_path)
    late = frame_of_days(spark, [("a", "f", 3, 20)]).withColumn("more", F.lit("x"))

    def conflict():
        late.write.format("delta").mode("append").option("mergeSchema", "true").save(path)
        raise BusyError("Another writer was quicker")

    with monkeypatch.context() as patch:
        before_write(patch, 2, conflict)
        repaired(spark, path)
    assert (
        numbers_in(spark, path) == [1, 3, 5, 8, 20]
        and rows_that_left(spark, f"{tmp_path}/duplicated_events") == LEFT
    )


@pytest.mark.soak
def test_a_repair_that_died_is_finished_by_one_process(spark, tmp_path, monkeypatch):
    path, entities = with_entities(spark, tmp_path)
    with monkeypatch.context() as patch:
        die_at(patch, 3)
        with pytest.raises(Died):
            repaired(spark, path, None, entities)
    with monkeypatch.context() as patch:
        before_write(patch, 1, lambda: repaired(spark, path, None, entities))
        with pytest.raises(BusyError, match="Another process goes on with the repair"):
            repaired(spark, path, None, entities)
    assert numbers_in(spark, path) == [1, 3, 5, 7, 8] and links_in(spark, f"{tmp_path}/link") == STAYING


@pytest.mark.soak
@pytest.mark.parametrize("step", [*(pytest.param(n, marks=pytest.mark.soak) for n in (1, 2, 3)), 4])
def test_what_is_put_back_may_die_too(spark, tmp_path, monkeypatch, step):
    "What was appended to the entities after they were changed stays."
    path, entities = with_entities(spark, tmp_path)
    more = spark.createDataFrame([("new", "late")], "root_id string, link string")
    real, writes = Delta._write, []

    def fail(self, writer, note):
        writes.append(note)
        if len(writes) == 4:  # the events: entities are changed already
            more.write.format("delta").mode("append").save(f"{tmp_path}/link")
            raise OutputError("the disk is full")
        if len(writes) == 4 + step:
            raise Died
        real(self, writer, note)

    with monkeypatch.context() as patch:
        patch.setattr(Delta, "_write", fail)
        with pytest.raises(Died):
            repaired(spark, path, None, entities)
    done = repaired(spark, path, None, entities)
    assert numbers_in(spark, path) == [1, 3, 5, 7, 8] and done.counts["left"] == (0 if step == 1 else 5)
    assert links_in(spark, f"{tmp_path}/link") == sorted([*STAYING, ("new", "late")])
    assert len(rows_that_left(spark, f"{tmp_path}/duplicated_events")) == 5
    assert spark.read.format("delta").load(f"{tmp_path}/duplicated_link").count() == 5


@pytest.mark.soak
def test_a_repair_whose_version_is_gone_is_put_back(spark, tmp_path, monkeypatch):
    path = table_made(spark, tmp_path)
    with monkeypatch.context() as patch:
        die_at(patch, 2)
        with pytest.raises(Died):
            repaired(spark, path)
    spark.sql(f"optimize delta.`{path}`")
    frame_of_days(spark, EIGHT[:1]).write.format("delta").mode("append").save(path)
    with monkeypatch.context() as patch, heard() as said:
        patch.setattr("dedup_nb.warehouse.repair.open_loaded", _gone_once())
        done = repair(path, spark=spark)
    assert "It could not be finished, and is put back: no such file" in said[1]
    assert done.counts["left"] == 5 and numbers_in(spark, path) == [1, 3, 5, 8]


def _gone_once():
    from dedup_nb.warehouse.decisions import open_loaded

    times = []

    def opened(*args):
        times.append(args)
        if len(times) == 1:
            raise RuntimeError("no such file")
        return open_loaded(*args)

    return opened

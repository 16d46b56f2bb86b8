"A deduper on a stream: batches, kills, drivers that come late, outputs of others."

import shutil
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from itertools import product

import pytest
from conftest import ROOT
from deduper_model import SCHEMA, Model
from killed_split import POINTS
from kills import kills_at
from pyspark.sql import functions as F

from dedup_nb.base.errors import ConfigError, InputError
from dedup_nb.streams import deduper
from dedup_nb.streams.deduper import OUTCOMES, Deduper, SplitStream


@pytest.mark.slow
def test_a_stream_is_split_as_batches_are(spark, tmp_path):
    "Every cut gives the outcomes of the row by row model, also if a micro-batch comes twice."
    rows = [(n, "abc"[n * 7 % 3], n * 1000 + (-9000 if n % 5 == 4 else 0)) for n in range(12)]
    for number, start in enumerate((0, 5, 9)):
        part = spark.createDataFrame(rows[start : (5, 9, 12)[number]], SCHEMA)
        part.coalesce(1).write.parquet(str(tmp_path / f"in/{number}"))
    asked = dict(key="key", event_time="time", expire_before=6, bucket_span=2, reference_instant=0)
    deduper = Deduper(**asked, order_by=["seq"])
    folders = {outcome: str(tmp_path / outcome) for outcome in OUTCOMES}

    def take():
        reader = spark.readStream.schema(SCHEMA).option("recursiveFileLookup", True)
        events = reader.option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
        stream = deduper.stream(events, str(tmp_path / "state"), str(tmp_path / "checkpoint"), **folders)
        stream.start(available_now=True).awaitTermination()
        found = {}
        for outcome, folder in folders.items():
            if any((tmp_path / outcome).glob("*/*.parquet")):
                found |= {r.seq: outcome for r in spark.read.parquet(folder).collect()}
        return found

    model = Model(6000, 2000)
    expected = {seq: model.take(key, at) for seq, key, at in rows}
    assert take() == expected and len(set(expected.values())) == 3
    for name in ("2", ".2.crc"):
        (tmp_path / "checkpoint/commits" / name).unlink()
    assert take() == expected
    assert sum(spark.read.parquet(folder).count() for folder in folders.values()) == len(rows)
    # another stream: on its outputs, and on its state
    shutil.move(tmp_path / "checkpoint", tmp_path / "kept")
    with pytest.raises(ConfigError, match="is that of another stream .state .*/state, checkpoint "):
        take()
    plain, folders = dict(folders), {"unique": str(tmp_path / "other")}
    with pytest.raises(Exception, match="knows batches that are not of the checkpoint"):
        take()
    # a checkpoint that was put back, and a state that is lost
    folders = plain
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.copytree(tmp_path / "kept", tmp_path / "checkpoint")
    for folder, name in product(("offsets", "commits"), ("1", ".1.crc", "2", ".2.crc")):
        (tmp_path / "checkpoint" / folder / name).unlink()
    with pytest.raises(Exception, match="now has other rows under its number"):
        take()
    shutil.rmtree(tmp_path / "state")
    with pytest.raises(Exception, match="does not know the one before it"):
        take()


@kills_at(POINTS)
def test_a_killed_split_goes_on(spark, tmp_path, monkeypatch, kills):
    "kill -9 at each step of the first, a middle and the last micro-batch; each time on other cores."
    rows = [(n, "abc"[n * 7 % 3], n * 1000 + (-9000 if n % 5 == 4 else 0)) for n in range(40)]
    for number in range(4):
        part = spark.createDataFrame(rows[10 * number : 10 * number + 10], SCHEMA)
        part.coalesce(1).write.parquet(str(tmp_path / f"in/{number}"))
    script = ROOT / "tests/programs/killed_split.py"

    def take(point, number):
        asked = [sys.executable, script, point, str(number), tmp_path]
        return subprocess.run(asked, capture_output=True)

    for n, (number, point) in enumerate(kills):
        monkeypatch.setenv("SPARK_MASTER", f"local[{n % 2 + 1}]")
        assert take(point, number).returncode == -9, (number, point)
    assert take("never", 0).returncode == 0
    model, found = Model(6000, 2000), []
    for outcome in OUTCOMES:
        found += [(r.seq, outcome) for r in spark.read.parquet(str(tmp_path / outcome)).collect()]
    assert sorted(found) == [(seq, model.take(key, at)) for seq, key, at in rows]


def torn(split, message):
    return replace(split, tagged=split.tagged.withColumn("seq", F.raise_error(F.lit(message)).cast("int")))


@pytest.mark.slow
@pytest.mark.parametrize(
    "late, words",
    [
        # another driver commits the micro-batch before this one looks at its rows, before it writes, and
        # before it writes and fails
        ("looks", None),
        ("writes", "Another batch was committed"),
        ("fails", "the disk is full"),
    ],
)
def test_a_driver_that_comes_late_takes_nothing_and_adds_nothing(spark, tmp_path, monkeypatch, late, words):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets/0").write_text("rows")
    (tmp_path / "metadata").write_text('{"id": "mine"}')
    rows = spark.createDataFrame([(1, "a", 5), (2, "b", 6), (3, "a", 7)], SCHEMA)
    folders = {outcome: str(tmp_path / outcome) for outcome in OUTCOMES}
    rules = Deduper(key="key", event_time="time", expire_before=10, reference_instant=0)
    stream = SplitStream(rules, rows, str(tmp_path / "state"), str(tmp_path), folders)
    split_batch = deduper._split_batch

    def split_late(*asked):
        split = None if late == "looks" else split_batch(*asked)
        with monkeypatch.context() as other:
            other.setattr(deduper, "_split_batch", split_batch)
            deduper._take_batch(stream, rows, 0)
        return torn(split, words) if late == "fails" else split or split_batch(*asked)

    monkeypatch.setattr(deduper, "_split_batch", split_late)
    with pytest.raises(Exception, match=words) if words else nullcontext():
        deduper._take_batch(stream, rows, 0)
    deduper._take_batch(stream, rows, 0)
    found = {o: sorted(r.seq for r in spark.read.parquet(f).collect()) for o, f in folders.items()}
    assert found == {"unique": [1, 2], "duplicate": [3], "expired": []}
    assert not list(tmp_path.glob("*/.staging/*/*"))


def test_an_output_of_another_stream_is_left_alone(spark, tmp_path):
    events, output = spark.readStream.format("rate").load(), tmp_path / "unique"
    output.mkdir()
    (output / "_stream.json").write_text('{"id": "i1", "state": "STATE", "checkpoint": "CHECKPOINT"}')
    deduper = Deduper(key="value", event_time="timestamp", expire_before=5)
    stream = deduper.stream(events, str(tmp_path / "s"), str(tmp_path / "c"), unique=str(output))
    with pytest.raises(ConfigError, match="that of another stream .state STATE, checkpoint CHECKPOINT."):
        stream.start()
    with pytest.raises(ConfigError, match="leave one out"):
        stream.start(available_now=True, trigger="1 minute")


def test_what_cannot_be_split_as_a_stream(spark):
    events, split = (
        spark.readStream.format("rate").load(),
        Deduper(key="value", event_time="timestamp", expire_before=5),
    )
    with pytest.raises(ConfigError, match="unique and duplicate are both out"):
        split.stream(events, "state", "checkpoint", unique="out", duplicate="out/")
    with pytest.raises(ConfigError, match="go nowhere"):
        split.stream(events, "state", "checkpoint")
    with pytest.raises(InputError, match="no stream"):
        split.stream(spark.range(1), "state", "checkpoint", unique="out")
    for name in ("batch_id", "Batch_Id", "Outcome"):
        with pytest.raises(InputError, match=f"a column {name}, which is ours"):
            split.stream(events.withColumn(name, events.value), "state", "checkpoint", unique="out")


def test_a_stream_that_remembers_for_ever_is_warned_of(spark):
    with pytest.warns(UserWarning, match="grows for ever"):
        Deduper(key="key").stream(spark.readStream.format("rate").load(), "state", "checkpoint", "unique")

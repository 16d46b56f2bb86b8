"""A stream gives what one batch gives, however it is cut and however often it dies."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from conftest import ROOT
from inputs import line
from killed_stream import POINTS
from kills import kills_at
from pyspark.sql import functions as F
from runs import SCHEMA, heard

from dedup_nb import Config, run
from dedup_nb.base.config import Recipe
from dedup_nb.base.errors import ConfigError, FormatError, InputError, MissingColumnError
from dedup_nb.base.storage import read_json
from dedup_nb.manifest import lake
from dedup_nb.manifest.ledger import Entry, holder_in_the_way, this_process
from dedup_nb.manifest.protocol import Manifest
from dedup_nb.operate.history import forget, runs, runs_table
from dedup_nb.pipeline import commit, job
from dedup_nb.report.pages import draw_pages
from dedup_nb.streams import stream as streams
from dedup_nb.streams.deduper import trigger_of
from dedup_nb.streams.stream import deduplicate_stream, follow, read_stream

# id, fingerprint, second, n: copies, collisions, and copies of collisions, in the order of their times
ROWS = [(f"i{n * 7 % 5}", f"f{n * 11 % 3}", n, n) for n in range(12)] + [("alone", "f", 12, 12)]


def land(spark, folder, rows, number):
    "A file of rows."
    frame = spark.createDataFrame(rows, SCHEMA)
    frame = frame.withColumn("etl_tstamp", F.timestamp_seconds(1_763_000_000 + F.col("t"))).drop("t")
    frame.coalesce(1).write.parquet(f"{folder}/{number:03d}")


def streamed(spark, folder, **more):
    "Take what is there, a file at a time, until the end or a failure."
    events = read_stream(spark, Config(input=str(folder / "in"), input_format="parquet"), max_files=1)
    more = {"name": "web", "available_now": True, **more}
    query = deduplicate_stream(events, str(folder / "out"), **more)
    query.awaitTermination()


def kept_tuples(spark, output):
    rows = spark.read.parquet(f"{output}/events").select(
        "event_id", "event_fingerprint", "original_event_id", "n"
    )
    return sorted(map(tuple, rows.collect()))


def in_one(spark, folder, **more):
    "What one batch keeps."
    land(spark, folder / "whole", ROWS, 0)
    whole = dict(
        input=str(folder / "whole"), batch_id="whole", batch_pattern="none=*", input_format="parquet"
    )
    run(Config(output=str(folder / "one"), manifest="none", **whole, **more), spark)
    return kept_tuples(spark, folder / "one")


def land_cut(spark, folder, places):
    "The rows in files that end at these places."
    for number, (start, end) in enumerate(zip([0, *places], [*places, len(ROWS)])):
        land(spark, folder / "in", ROWS[start:end], number)


@pytest.mark.slow
@pytest.mark.parametrize("synthetic", ["rename_later", "quarantine"])
def test_a_stream_keeps_what_one_batch_keeps(spark, tmp_path, synthetic, monkeypatch):
    land_cut(spark, tmp_path, [5, 9])
    opened, store = [], job.lake_store
    monkeypatch.setattr(job, "lake_store", lambda *asked: (opened.append(asked), store(*asked))[1])
    with heard() as said:
        streamed(spark, tmp_path, synthetic=synthetic)
    assert kept_tuples(spark, tmp_path / "out") == in_one(spark, tmp_path, synthetic=synthetic)
    assert [line.partition(":")[0] for line in said] == [f"web-{n:09d}" for n in range(3)]
    assert len(opened) == 1, "what the manifest had is not read again for each micro-batch"
    folder = tmp_path / "out" / "runs" / "web-000000000"
    assert {f.name for f in folder.iterdir()} >= {"metrics.json", "files.json"}
    assert not (folder / "report.html").exists()
    assert list((tmp_path / "out/checkpoints/web/rows").iterdir()) == []
    # what was committed is passed by when Spark hands it over again
    (tmp_path / "out/checkpoints/web/commits/2").unlink()
    (tmp_path / "out/checkpoints/web/commits/.2.crc").unlink(missing_ok=True)
    before = kept_tuples(spark, tmp_path / "out")
    with heard() as said:
        streamed(spark, tmp_path, synthetic=synthetic)
    assert said[-1] == "web-000000002: committed before, passed by"
    assert kept_tuples(spark, tmp_path / "out") == before


@pytest.mark.slow
def test_a_micro_batch_that_failed_is_done_again(spark, tmp_path, monkeypatch):
    land_cut(spark, tmp_path, [6])
    process, failed = streams._process, []

    def fail_once(stream, rows, batch_id, folder):
        if not failed:
            failed.append(batch_id)
            rows.limit(1).write.parquet(folder)  # half of it
            raise RuntimeError("the disk is full")
        process(stream, rows, batch_id, folder)

    monkeypatch.setattr(streams, "_process", fail_once)
    with pytest.raises(Exception, match="the disk is full"):
        streamed(spark, tmp_path)
    streamed(spark, tmp_path)
    assert failed == ["web-000000000"]
    assert kept_tuples(spark, tmp_path / "out") == in_one(spark, tmp_path)


def test_what_does_not_belong_together_is_refused(spark, tmp_path):
    land_cut(spark, tmp_path, [])
    streamed(spark, tmp_path, manifest="none")
    with pytest.raises(ConfigError, match="that of the stream 'web'.*give name=web"):
        streamed(spark, tmp_path, name="shop")
    with pytest.raises(ConfigError, match="would read all events again"):
        streamed(spark, tmp_path, checkpoint=str(tmp_path / "other"))
    shutil.copytree(tmp_path / "out/checkpoints/web", tmp_path / "used")
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(ConfigError, match="has been used, but not for the output"):
        streamed(spark, tmp_path, checkpoint=str(tmp_path / "used"))


def test_what_no_stream_can_be_is_refused(spark, tmp_path):
    land_cut(spark, tmp_path, [])
    with pytest.raises(ConfigError, match="spells a time"):
        streamed(spark, tmp_path, name="2026-11-20")
    with pytest.raises(ConfigError, match="makes no name for a batch"):
        streamed(spark, tmp_path, name="a/b")
    with pytest.raises(ConfigError, match="decides itself on batch_id"):
        streamed(spark, tmp_path, batch_id="b")
    with pytest.raises(ConfigError, match="wants lines, in one column `value`"):
        streamed(spark, tmp_path, input_format="enriched_tsv")
    with pytest.raises(InputError, match="no stream"):
        deduplicate_stream(spark.range(1), str(tmp_path / "out"))
    with pytest.raises(ConfigError, match="cannot be watched"):
        read_stream(spark, Config(input="events", input_format="table"))


def test_a_record_is_one_line_whatever_it_holds(spark, tmp_path):
    "Line ends in a value, and values that are null: a record is an event, or a bad row."
    values = [('{"event_id":"a",\n "n":1}\n',), ('{"event_id":"b"}\r\n',), (None,)]
    spark.createDataFrame(values, "text string").coalesce(1).write.parquet(str(tmp_path / "in"))
    lines = read_stream(spark, Config(input=str(tmp_path / "in"), input_format="parquet"))
    more = dict(manifest="none", input_format="json", available_now=True)
    with pytest.raises(ConfigError, match="Give input_schema, such as 'event_id string"):
        deduplicate_stream(lines.selectExpr("text as value"), str(tmp_path / "out"), **more)
    more["input_schema"] = "event_id string, n int"
    deduplicate_stream(lines.selectExpr("text as value"), str(tmp_path / "out"), **more).awaitTermination()
    rows = spark.read.parquet(str(tmp_path / "out/events"))
    assert sorted(r.event_id for r in rows.collect()) == ["a", "b"]
    assert len(spark.read.text(str(tmp_path / "out/bad")).collect()) == 1


def test_a_command_that_follows_says_what_went_wrong(spark, tmp_path):
    land(spark, tmp_path / "in", ROWS, 0)
    asked = dict(input=str(tmp_path / "in"), input_format="parquet", event_id="other")
    config = Config(output=str(tmp_path / "out"), **asked)
    with pytest.raises(MissingColumnError, match="other"):
        follow(read_stream(spark, config), config, available_now=True)
    inside = Config(output=str(tmp_path / "in/out"), **asked)
    with pytest.raises(ConfigError, match="lies in the input"):
        follow(read_stream(spark, inside), inside, available_now=True)


def test_a_micro_batch_is_run_by_its_stream_alone(spark, tmp_path):
    land(spark, tmp_path / "in", ROWS, 0)
    (tmp_path / "out/runs").mkdir(parents=True)
    (tmp_path / "out/runs/stream.json").write_text('{"name": "web"}')
    asked = dict(input=str(tmp_path / "in"), output=str(tmp_path / "out"), input_format="parquet")
    with pytest.raises(ConfigError, match="of the stream web"):
        run(Config(batch_id="web-000000003", **asked), spark)


def test_a_stream_takes_its_own_claim_over_from_any_host():
    elsewhere = {**this_process(), "host": "elsewhere", "token": "t", "stream": "s1"}
    claimed = Entry("web-000000007", "claimed", 1, None, elsewhere)
    assert holder_in_the_way(claimed, "web-000000007", 360, "s1") is None
    assert "elsewhere" in holder_in_the_way(claimed, "web-000000007", 360, "s2")
    assert "elsewhere" in holder_in_the_way(claimed, "web-000000007", 360)
    assert "elsewhere" in holder_in_the_way(claimed, "other", 360, "s1")


def test_a_long_stream_is_one_line_and_its_last_batches():
    counts = {"read": 10, "bad": 1, "kept": 8, "dropped": 1}
    told = [
        {"state": "committed", "etl_time": None, "counts": counts, "batch_id": f"web-{n:09d}"}
        for n in range(8)
    ]
    told.append({**told[0], "batch_id": "2026-11-20"})
    found = runs_table(told)
    assert [row[0] for row in found.rows[1:]] == [
        "web-*",
        *(f"web-{n:09d}" for n in range(3, 8)),
        "2026-11-20",
    ]
    assert found.rows[1][1:4] == ("8 committed", "-", "64")
    assert len(found.data) == 9


@kills_at(POINTS)
def test_a_killed_stream_goes_on(spark, tmp_path, monkeypatch, kills):
    "kill -9 at each step of the first, a middle and the last micro-batch; each time on other cores."
    land_cut(spark, tmp_path, [3, 7, 10])
    source, output = tmp_path / "in", tmp_path / "out"
    script = ROOT / "tests/programs/killed_stream.py"
    for n, (number, point) in enumerate(kills):
        monkeypatch.setenv("SPARK_MASTER", f"local[{n % 2 + 1}]")
        asked = [sys.executable, script, point, str(number), source, output]
        done = subprocess.run(asked, capture_output=True)
        assert done.returncode == -9, (number, point, done.stderr[-2000:])
    streamed(spark, tmp_path)
    assert kept_tuples(spark, output) == in_one(spark, tmp_path)
    states = {t["batch_id"]: t["state"] for t in runs(Config(output=str(output)), spark).data}
    assert states == {f"web-{n:09d}": "committed" for n in range(4)}
    counts = [read_json(str(m))["counts"] for m in (output / "runs").glob("*/metrics.json")]
    assert sum(c["kept"] + c["dropped"] + c["bad"] for c in counts) == len(ROWS)


@pytest.mark.soak
def test_every_cut_of_sixty_rows(spark, tmp_path, monkeypatch):
    "In two at every place, and each row alone."
    rows = [(f"i{n * 7 % 11}", f"f{n * n % 5}", n, n) for n in range(60)]
    monkeypatch.setattr(f"{__name__}.ROWS", rows)
    whole = in_one(spark, tmp_path)
    for places in [[n] for n in range(1, 60)] + [list(range(1, 60))]:
        folder = tmp_path / "cut"
        land_cut(spark, folder, places)
        streamed(spark, folder)
        assert kept_tuples(spark, folder / "out") == whole, places
        shutil.rmtree(folder)


def rows_taken(events, spark, folder):
    "The rows that a stream brings."
    query = events.writeStream.option("checkpointLocation", str(folder / "checkpoint")).trigger(
        availableNow=True
    )
    query.format("parquet").start(str(folder / "rows")).awaitTermination()
    return spark.read.parquet(str(folder / "rows"))


def test_lines_come_from_the_folders_that_are_batches(spark, tmp_path):
    "A file beside them is none of theirs, as for a run."
    for name in ("run=1", "run=2/part"):
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / "lines.txt").write_text(f"{name}\n")
    (tmp_path / "in/truth.csv").write_text("no event\n")
    found = rows_taken(
        read_stream(spark, Config(input=str(tmp_path / "in"), input_format="json")), spark, tmp_path
    )
    assert sorted(r.value for r in found.collect()) == ["run=1", "run=2/part"]


@pytest.mark.parametrize("kind", ["enriched_tsv", "parquet"])
def test_a_file_of_an_old_time_is_read(spark, tmp_path, kind):
    "An archive that is moved in beside files of today keeps its times."
    for number in (0, 1):
        if kind == "parquet":
            land(spark, tmp_path / "in", ROWS[number : number + 1], number)
        else:
            lines_arrive(tmp_path / "in", number, f"line {number}")
        for file in (tmp_path / "in").rglob(f"*{number:03d}/*" if kind == "parquet" else f"{number}.txt"):
            os.utime(file, (10**9, 10**9) if number else None)
        events = read_stream(spark, Config(input=str(tmp_path / "in"), input_format=kind))
        assert rows_taken(events, spark, tmp_path).count() == number + 1


def test_a_command_gives_the_pattern_of_the_batches(spark, tmp_path):
    spark.sql("select 'a' as event_id, 1 as n").write.parquet(str(tmp_path / "in/dt=1/hour=2"))
    asked = dict(input=str(tmp_path / "in"), output=str(tmp_path / "out"), input_format="parquet")
    config = Config(batch_pattern="dt=*/hour=*", manifest="none", **asked)
    follow(read_stream(spark, config), config, available_now=True)
    [file] = Path(config.output).glob("events/*/*/*.parquet")
    assert spark.read.parquet(str(file)).columns == ["event_id", "n", "original_event_id"]


@pytest.mark.slow
def test_a_delta_table_is_watched(spark, tmp_path):
    asked = dict(
        input=str(tmp_path / "in"), output=str(tmp_path / "out"), input_format="delta", manifest="none"
    )
    config, made = Config(**asked), []
    for part in (ROWS[:7], ROWS[7:]):
        frame = (
            spark.createDataFrame(part, SCHEMA).withColumn("etl_tstamp", F.timestamp_seconds("t")).drop("t")
        )
        frame.coalesce(1).write.format("delta").mode("append").save(config.input)
    made = follow(read_stream(spark, config), config, available_now=True)
    there = len({(r[0], r[1]) for r in ROWS})
    assert len(made) == 1 and len(kept_tuples(spark, tmp_path / "out")) == there
    # what is added since is the next batch, whatever was compacted meanwhile
    spark.sql(f"optimize delta.`{config.input}`")
    frame.where("event_id is not null").limit(1).withColumn("event_id", F.lit("new")).write.format(
        "delta"
    ).mode("append").save(config.input)
    assert len(follow(read_stream(spark, config), config, available_now=True)) == 1
    assert len(kept_tuples(spark, tmp_path / "out")) == there + 1
    spark.sql(f"delete from delta.`{config.input}` where event_id = 'new'")
    with pytest.raises(InputError, match="rows changed or deleted since the last micro-batch"):
        follow(read_stream(spark, config), config, available_now=True)


def test_what_a_stream_cannot_do_is_said_before_it_starts(spark, tmp_path):
    (tmp_path / "in").mkdir()
    lines, output = spark.readStream.text(str(tmp_path / "in")), str(tmp_path / "out")
    with pytest.raises(ConfigError, match="or looks again every 1 minute: leave one out"):
        deduplicate_stream(lines, output, trigger="1 minute", available_now=True)
    with pytest.raises(ConfigError, match="'synthetik'.*synthetic"):
        deduplicate_stream(lines, output, synthetik="off")
    with pytest.raises(ConfigError, match="not delta. Leave input_format out"):
        deduplicate_stream(lines, output, input_format="delta")
    with pytest.raises(ConfigError, match="trigger wants a time above 0 such as '24 hours'.*found 'often'"):
        deduplicate_stream(lines, output, trigger="often")
    (tmp_path / "in/lines.txt").write_text("no Parquet")
    with pytest.raises(FormatError, match="Is input_format=parquet right"):
        read_stream(spark, Config(input=str(tmp_path / "in"), input_format="parquet"))
    with pytest.raises(ConfigError, match="1 file or more"):
        read_stream(spark, Config(input=str(tmp_path / "in"), input_format="json"), max_files=0)
    assert not (tmp_path / "out").exists()


def line_at(event_id, second):
    "A line of an enriched event."
    at = f"2026-11-20 10:00:{second:02d}.000"
    return line(event_id=event_id, event_fingerprint=event_id[:8], collector_tstamp=at, event="page_view")


def lines_arrive(folder, number, *lines):
    folder.mkdir(exist_ok=True)
    (folder / f"{number}.txt").write_text("\n".join(lines) + "\n")


ID = "00000000-0000-4000-8000-{:012d}".format


@pytest.mark.soak
def test_after_the_first_a_micro_batch_may_hold_bad_rows_alone(spark, tmp_path, said):
    "Whatever they look like: a line of JSON is no reason to end a stream of enriched events."
    source, output = tmp_path / "in", tmp_path / "out"

    def take():
        events = read_stream(spark, Config(input=str(source)))
        more = dict(manifest="none", available_now=True)
        deduplicate_stream(events, str(output), **more).awaitTermination()

    lines_arrive(source, 0, line_at(ID(1), 1), line_at(ID(2), 2))
    take()
    lines_arrive(source, 1, '{"event_id": "a"}')
    take()
    lines_arrive(source, 2, line_at(ID(3), 3))
    take()
    counts = [line for line in said if line.startswith("stream-")]
    assert ["1 bad" in line for line in counts] == [False, True, False], said
    assert any("no row is an event" in line for line in said)
    assert len(spark.read.text(str(output / "bad")).collect()) == 1
    assert len(spark.read.parquet(str(output / "events")).collect()) == 3


@pytest.mark.slow
def test_a_first_micro_batch_without_an_event_binds_nobody(spark, tmp_path):
    lines_arrive(tmp_path / "in", 0, "no event", "none either")
    events = read_stream(spark, Config(input=str(tmp_path / "in"), input_format="enriched_tsv"))
    more = dict(manifest="none", available_now=True)
    with pytest.raises(Exception, match="Is input_format=enriched_tsv right"):
        deduplicate_stream(events, str(tmp_path / "out"), name="wrong", **more).awaitTermination()
    lines_arrive(tmp_path / "in", 1, line_at(ID(1), 1))
    again = dict(name="right", max_bad_share=1, **more)
    deduplicate_stream(events, str(tmp_path / "out"), **again).awaitTermination()
    assert len(spark.read.parquet(str(tmp_path / "out/events")).collect()) == 1


@pytest.mark.slow
def test_a_checkpoint_from_a_backup_loses_nothing_in_silence(spark, tmp_path):
    land(spark, tmp_path / "in", ROWS[:5], 0)
    streamed(spark, tmp_path, manifest="none")
    shutil.copytree(tmp_path / "out/checkpoints/web", tmp_path / "backup")
    land(spark, tmp_path / "in", ROWS[5:9], 1)
    streamed(spark, tmp_path, manifest="none")
    shutil.rmtree(tmp_path / "out/checkpoints/web")
    shutil.copytree(tmp_path / "backup", tmp_path / "out/checkpoints/web")
    land(spark, tmp_path / "in", ROWS[9:], 2)
    with pytest.raises(Exception, match="put back to an earlier state"):
        streamed(spark, tmp_path, manifest="none")


def test_an_output_from_a_backup_loses_nothing_in_silence(spark, tmp_path):
    land(spark, tmp_path / "in", ROWS[:5], 0)
    streamed(spark, tmp_path, manifest="none")
    shutil.rmtree(tmp_path / "out/runs/web-000000000")
    land(spark, tmp_path / "in", ROWS[5:], 1)
    with pytest.raises(Exception, match="goes on after web-000000000, and the output .* has no such batch"):
        streamed(spark, tmp_path, manifest="none")


@pytest.mark.slow
def test_a_commit_whose_files_are_published_by_the_next_start(spark, tmp_path, monkeypatch):
    "Nothing is amiss then: a line as ever, and no word of files that changed."
    land(spark, tmp_path / "in", ROWS, 0)
    monkeypatch.setattr(commit, "publish", lambda *asked: 1 / 0)
    with pytest.raises(Exception, match="ZeroDivision"):
        streamed(spark, tmp_path)
    monkeypatch.undo()
    asked = dict(input=str(tmp_path / "in"), input_format="parquet")
    config = Config(output=str(tmp_path / "out"), **asked)
    with heard() as said:
        made = follow(read_stream(spark, config), config, name="web", available_now=True)
    assert made == ["web-000000000"] and said[1].startswith("web-000000000: 13 rows read")
    assert [line for line in said[2:] if "died" not in line] == []
    assert kept_tuples(spark, tmp_path / "out") == in_one(spark, tmp_path)
    told = str(forget("web-000000000", Config(output=config.output), spark))
    assert "its stream does not bring it again" in told and "next run" not in told


@pytest.mark.slow
def test_rows_that_came_since_a_commit_that_is_not_published_are_not_taken_for_it(
    spark, tmp_path, monkeypatch
):
    "The checkpoint comes back from before the micro-batch; the next one of its number has more rows."
    land(spark, tmp_path / "in", ROWS[:5], 0)
    with monkeypatch.context() as patched:
        patched.setattr(commit, "publish", lambda *asked: 1 / 0)
        with pytest.raises(Exception, match="ZeroDivision"):
            streamed(spark, tmp_path)
    for noted in ("offsets", "sources"):
        shutil.rmtree(tmp_path / "out/checkpoints/web" / noted)
    land(spark, tmp_path / "in", ROWS[5:], 1)
    config = Config(output=str(tmp_path / "out"), input=str(tmp_path / "in"), input_format="parquet")
    for _ in range(2):
        with pytest.raises(
            ConfigError, match="web-000000000 of .* is committed, .* has other rows under its"
        ):
            follow(read_stream(spark, config), config, name="web", available_now=True)
    assert read_json(f"{tmp_path}/out/runs/web-000000000/files.json")["counts"]["read"] == 5


@pytest.mark.slow
def test_what_a_death_left_beside_a_commit_goes(spark, tmp_path):
    land(spark, tmp_path / "in", ROWS, 0)
    streamed(spark, tmp_path, manifest="none")
    before = kept_tuples(spark, tmp_path / "out")
    folder = tmp_path / "out/events/batch_id=web-000000000"
    shutil.copy(next(folder.rglob("*.parquet")), folder / "part-stray.parquet")
    (tmp_path / "out/checkpoints/web/commits/0").unlink()
    (tmp_path / "out/checkpoints/web/commits/.0.crc").unlink(missing_ok=True)
    streamed(spark, tmp_path, manifest="none")
    assert kept_tuples(spark, tmp_path / "out") == before


@pytest.mark.slow
def test_columns_of_folders_and_of_all_files_are_read(spark, tmp_path):
    base = "select 'a' as event_id, 'f' as event_fingerprint, timestamp'2026-11-20 10:00:00' as etl_tstamp"
    spark.sql(base).write.parquet(str(tmp_path / "in/run=1/country=01"))
    spark.sql(base.replace("'a'", "'b'") + ", 7 as n").write.parquet(str(tmp_path / "in/run=2/country=02"))
    streamed(spark, tmp_path, manifest="none")
    rows = spark.read.option("mergeSchema", True).parquet(str(tmp_path / "out/events"))
    assert "run" not in rows.columns
    assert sorted((r.event_id, r.country, r.n) for r in rows.collect()) == [("a", "01", None), ("b", "02", 7)]


def test_columns_that_folders_give(spark, tmp_path):
    "Those of the batches are left out, on all levels; a column of the files stays, whatever its name."
    spark.sql("select 'a' as event_id, 'x' as run").write.parquet(str(tmp_path / "one/run=1"))
    spark.sql("select 'a' as event_id").write.parquet(str(tmp_path / "two/dt=1/hour=2/country=01"))
    config = Config(input=str(tmp_path / "one"), input_format="parquet")
    assert read_stream(spark, config).columns == ["event_id", "run"]
    config = Config(input=str(tmp_path / "two"), input_format="parquet", batch_pattern="dt=*/hour=*")
    assert read_stream(spark, config).columns == ["event_id", "country"]


@pytest.mark.soak
def test_the_folder_of_a_row_tells_no_copies_apart(spark, tmp_path):
    "As in a run: a column that a folder gives is kept, and is no part of a surrogate."
    row = "select 'a' as event_id, string(null) as event_fingerprint, 7 as n"
    rows = spark.sql(row)
    for place in ("1/country=01", "2/country=02"):
        rows.write.parquet(str(tmp_path / f"in/run={place}"))
    rows.where("false").write.parquet(str(tmp_path / "in/run=3/country=03"))
    streamed(spark, tmp_path)
    [kept] = spark.read.parquet(str(tmp_path / "out/events")).collect()
    assert kept.country in ("01", "02") and kept.n == 7


@pytest.mark.slow
def test_two_streams_of_one_name_on_one_manifest_are_told_apart(spark, tmp_path):
    shared = {"manifest_path": str(tmp_path / "manifest")}
    for place in ("one", "two"):
        land(spark, tmp_path / place / "in", ROWS[:3], 0)
    streamed(spark, tmp_path / "one", **shared)
    with pytest.raises(Exception, match="web-000000000"):
        streamed(spark, tmp_path / "two", **shared)
    assert not (tmp_path / "two/out/runs/stream.json").exists()
    shutil.rmtree(tmp_path / "two/out/checkpoints")
    streamed(spark, tmp_path / "two", name="other", **shared)


def test_a_stream_ends_after_the_micro_batch_at_hand(spark, tmp_path):
    "SIGTERM, as a scheduler sends it; the pages are drawn then, or on request."
    land(spark, tmp_path / "in", ROWS, 0)
    asked = dict(input=str(tmp_path / "in"), input_format="parquet", manifest="none")
    config, said = Config(output=str(tmp_path / "out"), **asked), []

    def say(line):
        said.append(line)
        if line.startswith("stream-"):
            threading.Timer(1.0, signal.raise_signal, [signal.SIGTERM]).start()

    with heard(say):
        made = follow(read_stream(spark, config), config, trigger="1 second")
    assert made == ["stream-000000000"] and said[-1] == "stopping after the micro-batch at hand"
    page = tmp_path / "out/runs/stream-000000000/report.html"
    drawn = page.read_text()
    page.unlink()
    draw_pages(config.output)
    assert page.read_text() == drawn


@pytest.mark.soak
def test_a_stop_ends_the_wait_for_another_run(spark, tmp_path):
    "What a stream waits for is said, and what it takes from the manifest."
    land(spark, tmp_path / "in", ROWS, 0)
    config = Config(input=str(tmp_path / "in"), output=str(tmp_path / "out"), input_format="parquet")
    store = lake.lake_store(spark, f"{config.output}/manifest")
    recipe = job.recipe_record(Recipe(missing_fingerprint="id"), "as it is") | {"retention_days": 30}
    other, said = Manifest(store, recipe), []
    other.begin("other", None, {"token": "t"})

    def say(line):
        said.append(line)
        if "waiting" in line:
            threading.Timer(0.5, signal.raise_signal, [signal.SIGTERM]).start()

    begun = time.monotonic()
    with heard(say):
        assert follow(read_stream(spark, config), config) == []
    assert time.monotonic() - begun < 30
    assert said[1].startswith("taken from the manifest: retention_days=30")
    assert said[2].startswith("  waiting: batch other is claimed by")
    assert said[3:] == ["stopping after the micro-batch at hand"]
    other.give_up("other", "t")
    assert follow(read_stream(spark, config), config, available_now=True) == ["stream-000000000"]


def test_what_fails_while_a_stream_is_stopped_is_raised(spark, tmp_path, monkeypatch):
    "SIGTERM comes, and the micro-batch at hand fails; pages that cannot be drawn hide nothing."
    land(spark, tmp_path / "in", ROWS, 0)
    asked = dict(input=str(tmp_path / "in"), input_format="parquet", manifest="none")
    config, said = Config(output=str(tmp_path / "out"), **asked), []

    def fail(stream, rows, number):
        signal.raise_signal(signal.SIGTERM)
        time.sleep(1)
        raise RuntimeError("the disk is full")

    def no_pages(output):
        raise OSError("no pages")

    monkeypatch.setattr(streams, "_take", fail)
    monkeypatch.setattr("dedup_nb.streams.stream.draw_pages", no_pages)
    with pytest.raises(RuntimeError, match="the disk is full"), heard(said.append):
        follow(read_stream(spark, config), config)
    assert "stopping after the micro-batch at hand" in said
    assert said[-1].startswith("The pages were not drawn: no pages")


def test_what_is_watched_is_said(spark, tmp_path):
    "Lines in folders that are batches: those alone, so files beside them are not read."
    lines_arrive(tmp_path / "in", 0, "a line")
    config = Config(input=str(tmp_path / "in"), input_format="json", output=str(tmp_path / "out"))
    said = []
    events = read_stream(spark, config)
    for folder in ("in", "in/run=*"):
        with pytest.raises(ConfigError, match="makes no name"), heard(said.append):
            follow(events, config, name="a/b")
        assert said[-1].startswith(f"Watching {tmp_path / folder}: ")
        lines_arrive(tmp_path / "in/run=1", 0, "a line")


def test_a_trigger_in_the_words_of_spark():
    assert trigger_of(True, None) == {"availableNow": True} and trigger_of(False, None) == {}
    for told, milliseconds in (("10 s", 10_000), ("1 min", 60_000), ("60", 60_000), ("1 minute", 60_000)):
        assert trigger_of(False, told) == {"processingTime": f"{milliseconds} milliseconds"}
    with pytest.raises(ConfigError, match="leave one out"):
        trigger_of(True, "1 minute")


@pytest.mark.slow
def test_a_stream_takes_events_from_kafka(tmp_path):
    "A broker of our own: 30 records in two goes; each third is a copy, one of them of the first go."
    script = ROOT / "tests/programs/kafka_stream.py"
    done = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {"rows": 20, "ids": 20}
    assert "stream-000000001: " in done.stdout


def test_a_folder_that_would_replace_a_column_is_refused(spark, tmp_path):
    "With a folder that gives a column beside it: Spark takes all names of folders for columns then."
    spark.sql("select 'a' as event_id, 'FR' as Country").write.parquet(str(tmp_path / "in/day=1/country=DE"))
    config = Config(input=str(tmp_path / "in"), input_format="parquet")
    with pytest.raises(
        InputError, match="have a column country, which the folders country=... would replace"
    ):
        read_stream(spark, config)

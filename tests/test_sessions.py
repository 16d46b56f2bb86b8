"""What the settings of a session do to a run: nothing."""

import gzip
import json
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from runs import TWO, files, go, silent, write

from dedup_nb.changes import Latest
from dedup_nb.errors import InputError
from dedup_nb.expiry import Deduper
from dedup_nb.merges import MergeTable
from dedup_nb.repair import repair
from dedup_nb.stream import deduplicate_stream


@contextmanager
def session(spark, **settings):
    "A session with other settings than the tests' own."
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
        assert {name: spark.conf.get(name) for name in settings} == settings  # put back
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


LENIENT = {"spark.sql.files.ignoreCorruptFiles": "true", "spark.sql.files.ignoreMissingFiles": "true"}


def damaged_gzip(spark, folder):
    whole = gzip.compress("".join(json.dumps({"event_id": str(n)}) + "\n" for n in range(20_000)).encode())
    Path(folder, "in/run=1").mkdir(parents=True)
    Path(folder, "in/run=1/a.json.gz").write_bytes(whole[: len(whole) // 2])
    return "json"


def truncated_parquet(spark, folder):
    write(spark, folder / "in", {"1": [("a", "f", 1, 1)]})
    write(spark, folder / "in", {"1": [("b", "f", 1, n) for n in range(100)]})
    path = max((folder / "in/run=1").glob("*.parquet"), key=lambda p: p.stat().st_size)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    return "parquet"


@pytest.mark.parametrize("damage", [damaged_gzip, truncated_parquet])
def test_a_damaged_file_is_said_whatever_the_session_passes_by(spark, tmp_path, damage):
    kind = damage(spark, tmp_path)
    said = []
    for settings in ({}, LENIENT):
        with session(spark, **settings), pytest.raises(InputError) as wrong:
            go(spark, tmp_path, input_format=kind, missing_fingerprint="surrogate")
        said.append(str(wrong.value))
    assert said[0] == said[1] and "cannot be read to its end" in said[0]
    assert not [f for f in files(tmp_path / "out") if f.startswith("events/")]


def test_a_manifest_that_lost_a_file_is_no_smaller_manifest(spark, tmp_path):
    write(spark, tmp_path / "in", TWO)
    go(spark, tmp_path, batch_id="1")
    for path in (tmp_path / "out/manifest/kind=key").rglob("*.parquet"):
        path.unlink()
    with session(spark, **LENIENT), pytest.raises(Exception, match="FILE_NOT_EXIST"):
        go(spark, tmp_path, batch_id="2")
    assert not [f for f in files(tmp_path / "out/events") if f.startswith("batch_id=2")]


# what other tools read: Parquet files with times of far years


def parquet_files(folder):
    return [p for p in Path(folder).rglob("*.parquet") if p.stat().st_size and "/_delta_log/" not in str(p)]


def int96(folder):
    "The columns of Parquet files below a folder whose times only Spark reads right."
    found = []
    for path in parquet_files(folder):
        schema = pq.ParquetFile(path).schema
        columns = (schema.column(i) for i in range(len(schema.names)))
        found += [(path.name, c.path) for c in columns if c.physical_type == "INT96"]
    return found


FAR = "timestamp_ltz'0001-01-01 00:00:00Z'", "timestamp_ltz'9999-12-31 23:59:59.999999Z'"
INT96 = {"spark.sql.parquet.outputTimestampType": "INT96"}


@pytest.mark.parametrize("more", [{}, {"output_format": "delta"}, {"manifest": "none"}])
def test_times_of_far_years_are_read_right_by_others(spark, tmp_path, more):
    rows = spark.sql(
        f"select id event_id, 'f' event_fingerprint, t etl_tstamp, array(t) ts from values "
        f"('a', {FAR[0]}), ('b', {FAR[1]}), ('b', {FAR[1]}) as r(id, t)"
    )
    rows.coalesce(1).write.parquet(str(tmp_path / "in/run=1"))
    with session(spark, **INT96):
        go(spark, tmp_path, etl_time="2026-11-20T00:00:00Z", **more)
    assert parquet_files(tmp_path / "out/dropped") and not int96(tmp_path / "out")
    kept = [p for p in parquet_files(tmp_path / "out/events")]
    read = {str(t) for p in kept for t in pq.ParquetFile(p).read(["etl_tstamp"])["etl_tstamp"].to_pylist()}
    assert read == {"0001-01-01 00:00:00+00:00", "9999-12-31 23:59:59.999999+00:00"}


def test_streams_dedupers_tables_and_repairs_write_such_times(spark, tmp_path):
    rows = spark.sql(
        f"select id event_id, 'f' event_fingerprint, t etl_tstamp from values "
        f"('a', {FAR[0]}), ('b', {FAR[1]}), ('b', {FAR[1]}) as r(id, t)"
    ).coalesce(1)
    places = {name: str(tmp_path / name) for name in ("in", "stream", "table", "split", "state", "merged")}
    rows.write.parquet(places["in"])
    events = spark.readStream.schema(rows.schema).parquet(places["in"])
    with session(spark, **INT96):
        more = dict(available_now=True, manifest="none", say=silent)
        deduplicate_stream(events, places["stream"], **more).awaitTermination()
        outputs = dict(unique=f"{places['split']}/unique", duplicate=f"{places['split']}/duplicate")
        checkpoint = str(tmp_path / "checkpoint")
        with pytest.warns(UserWarning, match="grows for ever"):
            split = Deduper("event_id").stream(events, places["state"], checkpoint, **outputs)
        split.start(True).awaitTermination()
        MergeTable(places["merged"], Latest("event_id", "etl_tstamp"), spark=spark).insert(rows)
    with session(spark, **{"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}):
        rows.write.format("delta").save(places["table"])
    with session(spark, **INT96):
        repair(places["table"], spark=spark, say=silent)
    for name in ("stream", "split", "state", "merged", "table", "duplicated_table"):
        assert parquet_files(tmp_path / name) and not int96(tmp_path / name), name

"""What the settings of a session do to a run: nothing."""

import gzip
import json
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F
from runs import SAMPLES, TWO, TWO_DAYS, files, go, write
from spread import configured

from dedup_nb import deduplicate
from dedup_nb.base import spark as sessions
from dedup_nb.base.errors import ConfigError, ConservationError, InputError
from dedup_nb.base.spark import WRITING, temporary_conf
from dedup_nb.distribution.compare import compare
from dedup_nb.distribution.profile import profile_events
from dedup_nb.manifest.lake import lake_store
from dedup_nb.manifest.ledger import Ledger, Marker
from dedup_nb.merges.change_log import Latest
from dedup_nb.merges.engines import final
from dedup_nb.merges.merge_table import MergeTable
from dedup_nb.rules.deduplicate import decide
from dedup_nb.streams.deduper import Deduper
from dedup_nb.streams.deduper_state import DedupState
from dedup_nb.streams.stream import deduplicate_stream
from dedup_nb.warehouse.repair import repair


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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.soak
def test_streams_dedupers_tables_and_repairs_write_such_times(spark, tmp_path):
    rows = spark.sql(
        f"select id event_id, 'f' event_fingerprint, t etl_tstamp from values "
        f"('a', {FAR[0]}), ('b', {FAR[1]}), ('b', {FAR[1]}) as r(id, t)"
    ).coalesce(1)
    places = {name: str(tmp_path / name) for name in ("in", "stream", "table", "split", "state", "merged")}
    rows.write.parquet(places["in"])
    events = spark.readStream.schema(rows.schema).parquet(places["in"])
    with session(spark, **INT96):
        more = dict(available_now=True, manifest="none")
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
        repair(places["table"], spark=spark)
    for name in ("stream", "split", "state", "merged", "table", "duplicated_table"):
        assert parquet_files(tmp_path / name) and not int96(tmp_path / name), name


@pytest.mark.slow
def test_a_file_that_a_reader_passes_over_is_missed_in_the_counts(spark, tmp_path, monkeypatch):
    write(spark, tmp_path / "in", {"1": [("a", "f", 1, 1), ("b", "f", 1, 2)]})
    write(spark, tmp_path / "in", {"1": [("c", "f", 1, 3)]})
    lost = next(p for p in (tmp_path / "in/run=1").glob("*.parquet") if pq.read_metadata(p).num_rows == 1)
    monkeypatch.setattr(
        "dedup_nb.formats.reading.reading", lambda spark: spark.read.options(ignoreMissingFiles="true")
    )
    monkeypatch.setattr("dedup_nb.pipeline.run.check_columns", lambda *_: lost.unlink())
    with pytest.raises(ConservationError, match="2 rows were read, but the footers .* have 3"):
        go(spark, tmp_path, carry="spark")
    assert not [f for f in files(tmp_path / "out") if f.startswith("events/")]


def test_columns_are_never_added_by_an_empty_dictionary(spark, monkeypatch):
    frame = type(spark.range(1))
    real = frame.withColumns

    def as_on_connect(rows, columns):
        assert columns
        return real(rows, columns)

    monkeypatch.setattr(frame, "withColumns", as_on_connect)
    events = spark.createDataFrame([(1, 2, "f"), (1, 2, "g")], "a int, b int, event_fingerprint string")
    found = deduplicate(events, event_id=("a", "b"), synthetic="quarantine")
    assert found.kept.count() == 1


@pytest.mark.parametrize("unique", [False, True])
def test_pairs_have_the_same_types_with_and_without_unique_rows(spark, unique):
    keyed = "_dd_id string, _dd_own string, _dd_fp string, _dd_at struct<row:string>, _dd_n bigint"
    rows = spark.createDataFrame([("a", None, "f", ("1",), 1)], keyed)
    types = dict(decide(rows, "rename_later", unique=unique).dtypes)
    assert (types["ordinal"], types["copies"]) == ("bigint", "bigint")


# what SQL means in a session

ODD = {
    "ntz": {"spark.sql.timestampType": "TIMESTAMP_NTZ"},
    "raw": {"spark.sql.parser.escapedStringLiterals": "true"},
}


def told_of_run(spark, folder, source, kind):
    "The counts and reasons of each batch."
    done = go(spark, folder, input=source, input_format=kind)
    return [(m["batch_id"], m["counts"], m["reasons"]) for m in done.batches]


@pytest.fixture(
    scope="module", params=[pytest.param("enriched_tsv", marks=pytest.mark.soak), "json", "parquet"]
)
def plain_run(request, spark, tmp_path_factory):
    "A format, an input in it, and what a run says of that in a session like any other."
    kind, folder = request.param, tmp_path_factory.mktemp("plain")
    source = str(SAMPLES if kind == "enriched_tsv" else folder / "in")
    if kind != "enriched_tsv":
        write(spark, source, TWO_DAYS)
    if kind == "json":
        spark.read.parquet(source).write.partitionBy("run").json(str(folder / "lines"))
        source = str(folder / "lines")
    return kind, source, told_of_run(spark, folder, source, kind)


@pytest.mark.slow
@pytest.mark.parametrize("odd", ODD)
def test_a_run_means_the_same_in_every_session(spark, tmp_path, odd, plain_run):
    kind, source, told = plain_run
    with session(spark, **ODD[odd]):
        assert told and told_of_run(spark, tmp_path, source, kind) == told


def found_in_frames(spark):
    "What each way of working on frames finds in four rows."
    names = "event_id string, event_fingerprint string, etl_tstamp timestamp, useragent string"
    rows = [
        ("a", "f", None, "a bot\\"),
        ("a", "f", None, "it's"),
        ("a", "g", None, None),
        ("b", "f", None, ""),
    ]
    events = spark.createDataFrame(rows, names)
    kept = deduplicate(events).kept.drop("etl_tstamp")
    merged = final(events, Latest("event_id", "event_fingerprint"))
    split = Deduper("event_id").split(events)
    profiled = profile_events(events).numbers
    compared = compare(events).collect()
    return sorted(map(str, kept.collect())), merged.count(), split.unique.count(), profiled, compared


@pytest.fixture(scope="module")
def plain_frames(spark):
    return found_in_frames(spark)


@pytest.mark.parametrize("odd", ODD)
def test_frames_mean_the_same_in_every_session(spark, odd, plain_frames):
    with session(spark, **ODD[odd]):
        assert found_in_frames(spark) == plain_frames


@pytest.mark.slow
def test_a_manifest_whose_path_has_a_backtick_is_tidied(spark, tmp_path):
    store = lake_store(spark, str(tmp_path / "it`s" / "manifest"))
    store.append(Marker(0, "recipe", "", {}))
    store.expire(Ledger(store.markers()), ["1"])
    assert store.remove_ids(["a"]) == 0


@pytest.mark.slow
def test_a_deduper_and_a_merge_table_refuse_a_session_that_passes_by_files(spark, tmp_path):
    rows = spark.createDataFrame([("a", 1)], "id string, v int")
    state, table = (
        DedupState(str(tmp_path / "state"), spark),
        MergeTable(str(tmp_path / "t"), Latest("id", "v")),
    )
    Deduper("id").split(rows, state, "1").commit()
    table.insert(rows)
    with session(spark, **LENIENT):
        for asked in (lambda: Deduper("id").split(rows, state, "2"), table.optimize, table.final):
            with pytest.raises(ConfigError, match="ignoreCorruptFiles=true and .*ignoreMissingFiles=true"):
                asked()
    assert table.optimize() == (1, 1)


@pytest.mark.parametrize("refused", [*LENIENT, "spark.sql.timestampType", *WRITING])
def test_a_session_that_keeps_its_settings_is_refused_or_said(refused):
    kept = {**LENIENT, "spark.sql.timestampType": "TIMESTAMP_NTZ", refused: "INT96"}

    class Conf:
        def get(self, name):
            return {"spark.sql.codegen.maxFields": "300", refused: kept[refused]}[name]

        def set(self, name, value):
            raise RuntimeError("CANNOT_MODIFY_CONFIG")

    asked = temporary_conf(SimpleNamespace(conf=Conf()))
    if refused in WRITING:
        with asked as note:
            assert note == f"{refused}=INT96: other readers show far years wrong"
        return
    with pytest.raises(ConfigError, match=f"This session has {refused}="), asked:
        pass


DELTA = [  # what is asked; are the jars here? Has the session Delta?
    ({}, True, True),
    ({}, False, False),
    ({"delta": True}, False, True),
    ({"work": 1}, True, False),
    ({"work": 1, "delta": True}, True, True),
]


@pytest.mark.slow
def test_an_original_id_with_a_collation_is_carried_on(spark):
    ids = [("a", "f", None), ("a", "f", None), ("b", "f", None)]
    events = spark.createDataFrame(ids, "event_id string, event_fingerprint string, original_event_id string")
    collated = events.withColumn("original_event_id", F.expr("original_event_id collate UTF8_LCASE"))
    found = deduplicate(collated)
    assert sorted(r.event_id for r in found.kept.collect()) == ["a", "b"]
    assert found.kept.schema["original_event_id"].dataType == collated.schema["original_event_id"].dataType


def test_a_session_of_somebody_else_is_tuned_while_a_run_works(spark):
    name = "spark.sql.codegen.maxFields"
    with configured(spark, {name: "100"}):
        with pytest.raises(ZeroDivisionError), temporary_conf(spark):
            assert spark.conf.get(name) == "300"
            1 / 0
        assert spark.conf.get(name) == "100"
    with configured(spark, {name: "500"}), temporary_conf(spark):
        assert spark.conf.get(name) == "500"
    with temporary_conf(object()):
        pass  # one that has no settings, or none for us


@pytest.mark.parametrize("given, is_here, has_delta", DELTA)
def test_a_session_that_people_work_in_has_delta_where_its_jars_are(monkeypatch, given, is_here, has_delta):
    jars = {"spark.jars": "a.jar"} if is_here else {"spark.jars.packages": "io.delta:x:1"}
    monkeypatch.setattr(sessions, "_jars_here", lambda settings: jars)
    monkeypatch.setattr(sessions, "SparkSession", MagicMock(getActiveSession=lambda: None))
    monkeypatch.setattr(sessions, "_start", lambda settings, delta: settings)
    found = sessions.get_spark(**given)
    assert any(name.startswith("spark.jars") for name in found) == has_delta


@pytest.mark.parametrize(
    "said, words",
    [
        ("Gone: x", "did not start with io.delta:x:1, .*: java.lang.Gone: x Check .* the network, or do"),
        ("UnsupportedOperationException: getSubject is not supported", "needs Java 17 or 21; found: 25"),
    ],
)
def test_a_start_that_fails_says_what_java_says(monkeypatch, said, words):
    made = MagicMock()
    start = made.builder.master.return_value.appName.return_value.config.return_value.getOrCreate
    start.side_effect = OSError(f"An error occurred while calling None.x\n: java.lang.{said}\n\tat y")
    monkeypatch.setattr(sessions, "SparkSession", made)
    monkeypatch.setattr(sessions, "_java_version", lambda: "25")
    with pytest.raises(ConfigError, match=words):
        sessions._start({"spark.jars.packages": "io.delta:x:1"}, delta=True)

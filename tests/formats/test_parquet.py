import datetime as dt
import uuid
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inputs import good_rows, opened
from spread import configured

from dedup_nb import Config, deduplicate, run
from dedup_nb.base.arrow import read_footers
from dedup_nb.base.errors import InputError
from dedup_nb.formats.parquet import (
    count_cut_rows,
    fit_rows,
    needs_arrow,
    plain_type,
    rows_of_part,
    spark_columns,
)

IDS = [uuid.UUID(int=n) for n in (1, 2, 2**127 + 3)]
NANOS = [1_700_000_000_000_000_001, 1_700_000_000_000_000_000, None, -1_999]


def written(folder, name="0", **columns):
    Path(folder).mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), f"{folder}/{name}.parquet")
    return str(folder)


def told(spark, source, output, **more):
    "The kept rows, the counts and the notes of a run."
    config = Config(input=source, output=str(output), manifest="none", **more)
    [metrics] = run(config, spark).batches
    kept = spark.read.parquet(f"{output}/events").drop("batch_id")
    return kept, metrics


def by_id(frame):
    return {str(row.event_id): row for row in frame.collect()}


@pytest.mark.parametrize("carry", ["arrow", "spark"])
def test_what_others_write_is_read_in_both_ways(spark, tmp_path, carry):
    "Nanoseconds, UUIDs, large strings, dictionaries, unsigned numbers, durations."
    source = written(
        tmp_path / "in",
        event_id=pa.array([b.bytes for b in [IDS[0], IDS[0], IDS[1], IDS[2]]], pa.uuid()),
        event_fingerprint=pa.array(["f", "f", "g", "h"], pa.large_string()),
        collector_tstamp=pa.array(NANOS, pa.timestamp("ns", "UTC")),
        local=pa.array(NANOS, pa.timestamp("ns")),
        kind=pa.array(["x", "x", "y", None]).dictionary_encode(),
        small=pa.array([255, 255, 1, None], pa.uint8()),
        large=pa.array([2**64 - 1, 2**64 - 1, 0, None], pa.uint64()),
        took=pa.array([5, 5, 6, None], pa.duration("ns")),
        tags=pa.array([["a"], ["a"], [], None], pa.large_list(pa.large_string())),
        page=pa.array(['{"a": 1}', '{"a": 1}', "2", None], pa.json_()),
        never=pa.nulls(4),
    )
    kept, metrics = told(spark, source, tmp_path / "out", carry=carry)
    assert metrics["counts"] | {"read": 4, "kept": 3, "dropped": 1, "bad": 0} == metrics["counts"]
    assert (metrics["carried_by"] == "arrow") == (carry == "arrow")
    assert [n for n in metrics["notes"] if "finer than a microsecond" in n] == [
        "2 rows of the input have a time finer than a microsecond: "
        "times are written without the digits after that"
    ]
    rows = by_id(kept)
    assert set(rows) == {str(i) for i in IDS}
    one, last = rows[str(IDS[0])], rows[str(IDS[2])]
    assert one.small == 255 and one.large == Decimal(2**64 - 1) and one.took == 5 and one.tags == ["a"]
    assert one.kind == "x" and one.local == dt.datetime(2023, 11, 14, 22, 13, 20)
    assert last.local == dt.datetime(1970, 1, 1) - dt.timedelta(microseconds=2) and last.kind is None
    assert one.page == '{"a": 1}' and one.never is None
    types = dict(kept.dtypes)
    assert (types["collector_tstamp"], types["local"], types["large"], types["small"]) == (
        *("timestamp", "timestamp_ntz", "decimal(20,0)", "smallint"),
    )


def test_what_pandas_writes_by_default_is_read(spark, tmp_path):
    frame = pd.DataFrame(
        {"order_id": ["a", "b", "a"], "at": pd.to_datetime(["2026-11-01"] * 3), "n": [1, 2, 1]}
    )
    frame["at"] = frame["at"].astype("datetime64[ns]")
    (tmp_path / "in").mkdir()
    frame.to_parquet(tmp_path / "in/orders.parquet")
    kept, metrics = told(spark, str(tmp_path / "in"), tmp_path / "out", event_id="order_id", order_by="at")
    assert metrics["counts"]["dropped"] == 1 and metrics["carried_by"] == "arrow"
    assert not any("finer" in note for note in metrics["notes"])
    assert {(r.order_id, r.n) for r in kept.collect()} == {("a", 1), ("b", 2)}


def test_files_may_differ_and_folders_give_columns(spark, tmp_path):
    written(tmp_path / "in/country=FR/day=__HIVE_DEFAULT_PARTITION__", event_id=["a", "b"])
    at = pa.array([1_000], pa.timestamp("ns", "UTC"))
    written(tmp_path / "in/country=%2F/day=2", event_id=["a"], at=at, event_fingerprint=["x"])
    more = dict(input_format="parquet", input_schema="day int")
    kept, metrics = told(spark, str(tmp_path / "in"), tmp_path / "out", **more)
    assert metrics["counts"] | {"read": 3, "bad": 0} == metrics["counts"]
    found = {(r.country, r.day, r["at"] is None) for r in kept.collect()}
    assert found == {("FR", None, True), ("/", 2, False)}
    with pytest.raises(InputError, match="/ of country is no int. Correct input_schema"):
        told(spark, str(tmp_path / "in"), tmp_path / "other", input_schema="country int")


@pytest.mark.parametrize("carry", ["arrow", pytest.param("spark", marks=pytest.mark.slow)])
def test_a_column_that_spark_did_not_note_is_read(spark, tmp_path, carry):
    "Who reads a file of Spark by Arrow, and writes it with more columns, writes the note of Spark again."
    rows = spark.sql("select 'a' as event_id, 1 as n, timestamp'2026-11-20 10:00:00Z' as at").coalesce(1)
    with configured(spark, {"spark.sql.parquet.outputTimestampType": "INT96"}):
        rows.write.parquet(str(tmp_path / "own"))
    [path] = (tmp_path / "own").glob("*.parquet")
    table = pq.read_table(path)
    more = table.append_column("country", pa.array(["FR"])).set_column(1, "n", pa.array([2**40]))
    (tmp_path / "in").mkdir()
    more = more.replace_schema_metadata(table.schema.metadata)
    pq.write_table(more, tmp_path / "in/1.parquet", use_deprecated_int96_timestamps=True)
    kept, metrics = told(spark, str(tmp_path / "in"), tmp_path / "out", carry=carry)
    assert [(r.event_id, r.n, r.country) for r in kept.collect()] == [("a", 2**40, "FR")]
    assert dict(kept.dtypes)["at"] == "timestamp"
    assert metrics["carried_by"].startswith(carry)


@pytest.mark.parametrize("carry", ["arrow", pytest.param("spark", marks=pytest.mark.slow)])
def test_what_grew_inside_of_a_column_that_spark_noted_is_read(spark, tmp_path, carry):
    rows = spark.sql("select 'a' as event_id, named_struct('x', 1) as page, array(1L) as sizes").coalesce(1)
    rows.write.parquet(str(tmp_path / "own"))
    [path] = (tmp_path / "own").glob("*.parquet")
    noted = pq.read_table(path)
    columns = {"event_id": ["a"], "page": [{"x": 1, "y": "new"}], "sizes": [[0.5]]}
    (tmp_path / "in").mkdir()
    pq.write_table(
        pa.table(columns).replace_schema_metadata(noted.schema.metadata), tmp_path / "in/1.parquet"
    )
    kept, _ = told(spark, str(tmp_path / "in"), tmp_path / "out", carry=carry)
    [row] = kept.collect()
    assert row.page.asDict() == {"x": 1, "y": "new"} and row.sizes == [0.5]


@pytest.mark.parametrize("carry", ["arrow", pytest.param("spark", marks=pytest.mark.slow)])
def test_a_column_without_a_value_fits_any_type(spark, tmp_path, carry):
    "Such as None throughout a file of pandas."
    nothing, tags = pa.nulls(2), pa.array([["x"], ["x"]], pa.list_(pa.string(), 1))
    written(tmp_path / "in", "1", event_id=["a", "b"], note=nothing, tags=nothing, never=nothing)
    source = written(tmp_path / "in", "2", event_id=["c", "c"], note=["p", "p"], tags=tags, never=nothing)
    kept, metrics = told(spark, source, tmp_path / "out", carry=carry)
    assert metrics["counts"]["dropped"] == 1 and metrics["carried_by"].startswith(carry)
    rows = {(r.event_id, r.note, r.never) for r in kept.collect()}
    assert rows == {("a", None, None), ("b", None, None), ("c", "p", None)}
    assert dict(kept.dtypes) == {
        **{"event_id": "string", "note": "string", "tags": "array<string>", "never": "int"},
        "original_event_id": "string",
    }


WITHIN = {  # values of a file that have no type all through, and of another that have it
    "list": ([[], None], [["x"], []], "array<string>"),
    "struct": ([{"a": None, "b": 1}, None], [{"a": "x", "b": 2}, None], "struct<a:string,b:bigint>"),
    "deep": (
        [[{"a": [], "n": 1}], []],
        [[{"a": [0.5], "n": 2}], None],
        "array<struct<a:array<double>,n:bigint>>",
    ),
    "map": ([[("k", None)], []], [[("k", "v")], None], "map<string,string>"),
}


@pytest.mark.parametrize("carry", ["arrow", pytest.param("spark", marks=pytest.mark.slow)])
def test_what_has_no_value_within_a_column_fits_any_type(spark, tmp_path, carry):
    "Such as lists that are empty throughout a file of pandas."
    maps = [pa.map_(pa.string(), kind) for kind in (pa.null(), pa.string())]
    for name, ids, kind in zip("12", (["a", "b"], ["c", "d"]), maps):
        columns = {column: values[int(name) - 1] for column, values in WITHIN.items()}
        columns["map"] = pa.array(columns["map"], kind)
        written(tmp_path / "in", name, event_id=ids, **columns)
    kept, metrics = told(spark, str(tmp_path / "in"), tmp_path / "out", carry=carry)
    assert metrics["carried_by"].startswith(carry)
    rows = kept.orderBy("event_id").select(*WITHIN).toArrow().to_pydict()
    for column, (empty, filled, kind) in WITHIN.items():
        assert rows[column] == [*empty, *filled] and dict(kept.dtypes)[column] == kind


def test_a_file_without_bytes_is_passed_over_as_in_other_formats(spark, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/0.parquet").touch()
    assert opened(spark, tmp_path / "in", format="parquet").raw.isEmpty()
    written(tmp_path / "in", "1", event_id=["a"], n=[1])
    source = opened(spark, tmp_path / "in", format="parquet")
    assert good_rows(source) == [("a", 1)]
    written(tmp_path / "in", "2", event_id=["b"], n=["text"])
    with pytest.raises(InputError, match="Column n is string in .*2.parquet, and bigint in the files before"):
        opened(spark, tmp_path / "in", format="parquet")


def with_another_footer(whole):
    at = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    return whole[:at] + b"x" * (len(whole) - 8 - at) + whole[-8:]


@pytest.mark.slow
@pytest.mark.parametrize("harm", [lambda whole: whole[:-20], with_another_footer])
def test_a_damaged_file_among_others_is_named(spark, tmp_path, harm):
    for name in "abc":
        pd.DataFrame({"event_id": [name], "at": pd.Timestamp("2026-11-20")}).to_parquet(
            tmp_path / f"{name}.parquet"
        )
    cut, whole = tmp_path / "b.parquet", (tmp_path / "b.parquet").read_bytes()
    (tmp_path / "a0.parquet").touch()  # which is passed over
    cut.write_bytes(harm(whole))
    with pytest.raises(InputError, match=f"{cut} cannot be read to its end"):
        run(Config(input=str(tmp_path), output=f"{tmp_path}-out", manifest="none"), spark)


@pytest.mark.slow
def test_a_batch_of_files_without_bytes_waits_until_they_are_written(spark, tmp_path):
    written(tmp_path / "in/run=1", "a", event_id=["a"], n=[1])
    (tmp_path / "in/run=1/b.parquet").touch()
    (tmp_path / "in/run=2").mkdir()
    (tmp_path / "in/run=2/a.parquet").touch()
    config = Config(input=str(tmp_path / "in"), output=str(tmp_path / "out"))
    done = [run(config, spark) for _ in range(2)]
    assert [[m["batch_id"] for m in one.batches] for one in done] == [["1"], []]
    assert "of 0 bytes, and passed over: b.parquet" in done[0].batches[0]["notes"]
    for one in done:
        assert "left for a later run: 2" in one.notes[0] and not one.troubles
    written(tmp_path / "in/run=2", "a", event_id=["b"], n=[1])
    assert run(config, spark).counts["kept"] == 1
    (tmp_path / "in/run=2/a.parquet").write_bytes(b"")
    [trouble] = run(config, spark).troubles
    assert "a.parquet was rewritten (0 bytes, had" in trouble


@pytest.mark.slow
def test_names_of_folders_are_read_alike_by_spark_and_arrow(spark, tmp_path):
    cities = []
    for unit in ("us", "ns"):  # which Spark reads, and Arrow
        at = pa.array([dt.datetime(2026, 11, 20, 10)], pa.timestamp(unit, "UTC"))
        for number, folder in enumerate(("M%C3%BCnchen", "%E8", "%E9", "a%2Fb")):
            written(tmp_path / unit / f"city={folder}", event_id=[f"{number}"], at=at)
        kept, _ = told(spark, str(tmp_path / unit), tmp_path / f"out-{unit}", input_format="parquet")
        cities.append({row.event_id: row.city for row in kept.collect()})
    assert cities[0] == cities[1] and cities[0]["3"] == "a/b" and len({*cities[0].values()}) == 4


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["us", "ns"])  # which Spark reads, and Arrow
@pytest.mark.parametrize("more", [dict(input_schema="day timestamp"), dict(partition_by="at")], ids=str)
def test_times_in_names_of_folders_are_of_utc(spark, tmp_path, more, unit):
    at = pa.array([dt.datetime(2026, 11, 20, 10)], pa.timestamp(unit, "UTC"))
    written(tmp_path / "in/day=2026-11-20 10%3A00%3A00", event_id=["a"], at=at)
    with configured(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
        told(spark, str(tmp_path / "in"), tmp_path / "out", input_format="parquet", **more)
    with configured(spark, {"spark.sql.session.timeZone": "UTC"}):
        name = "day" if "input_schema" in more else "at"
        kept = spark.read.parquet(f"{tmp_path}/out/events").selectExpr(f"string(timestamp({name}))")
        assert kept.collect()[0][0] == "2026-11-20 10:00:00"


@pytest.mark.slow
def test_a_part_of_such_rows_is_taken_by_a_condition(spark, tmp_path):
    at = pa.array([1_000, 2_000], pa.timestamp("ns", "UTC"))
    source = written(tmp_path / "in", event_id=["a", "b"], at=at, n=[1, 2])
    kept, metrics = told(spark, source, tmp_path / "out", input_where="n = 2")
    assert [r.event_id for r in kept.collect()] == ["b"] and metrics["counts"]["read"] == 1


@pytest.mark.slow
def test_row_groups_are_read_once_each(spark, tmp_path):
    source = tmp_path / "in"
    source.mkdir()
    table = pa.table(
        {"event_id": [str(n) for n in range(1000)], "at": pa.array(range(1000), pa.timestamp("ns"))}
    )
    pq.write_table(table, source / "a.parquet", row_group_size=70)
    footers = read_footers([f"{source}/a.parquet"])
    assert needs_arrow(footers) and count_cut_rows(spark, footers, 1) == 999
    for carry in ("arrow", "spark"):
        kept, metrics = told(spark, str(source), tmp_path / carry, carry=carry)
        assert metrics["counts"]["read"] == kept.count() == kept.select("event_id").distinct().count() == 1000


@pytest.mark.parametrize("stored", ["as Arrow writes texts", "as texts by number"])
def test_large_texts_that_repeat_are_read_a_few_at_a_time(tmp_path, stored):
    large, number = ["x" * 1_000_000, "y" * 1_000_000], 300
    texts = pa.DictionaryArray.from_arrays(pa.array([0, 1] * (number // 2), pa.int32()), pa.array(large))
    rows = pa.table({"n": range(number), "text": texts})
    pq.write_table(rows, tmp_path / "a.parquet", store_schema=stored != "as Arrow writes texts")
    schema = pa.schema([("n", pa.int64()), ("text", pa.string())])
    batches = [*rows_of_part(((str(tmp_path / "a.parquet"), (0,)),), schema)]
    assert max(batch.nbytes for batch in batches) < 64 << 20
    assert [n for batch in batches for n in batch["n"].to_pylist()] == [*range(number)]


def test_slices_and_nulls_of_uuids():
    ids = pa.array([None, IDS[0].bytes, IDS[2].bytes, None, IDS[1].bytes], pa.uuid())
    schema = pa.schema([("u", pa.string())])
    for start, stop in ((0, 5), (1, 3), (2, 5), (5, 5)):
        rows = pa.record_batch({"u": ids[start:stop]})
        wanted = [
            b and str(uuid.UUID(bytes=b if isinstance(b, bytes) else b.bytes))
            for b in ids[start:stop].to_pylist()
        ]
        assert fit_rows(rows, schema).column("u").to_pylist() == wanted


def test_types_of_files_are_those_that_spark_has(spark, tmp_path):
    "What Arrow reads where it must has the type that Spark gives it where it may."
    columns = dict(
        a=pa.array([1], pa.uint32()),
        b=pa.array([1], pa.timestamp("ms", "UTC")),
        c=pa.array([[{"x": 1}]]),
        d=pa.array([Decimal("1.20")], pa.decimal128(9, 2)),
        e=pa.array([b"1"], pa.binary(1)),
        f=pa.array([1], pa.duration("us")),
        g=pa.array([dt.date(2026, 1, 1)]),
        h=pa.array([[("k", 1.5)]], pa.map_(pa.string(), pa.float32())),
        i=pa.array([1], pa.uint64()),
        j=pa.array([None], pa.bool_()),
        k=pa.nulls(1),
        m=pa.array(["a"], pa.string_view()),
    )
    source = written(tmp_path / "in", **columns)
    [footer] = read_footers([f"{source}/0.parquet"])
    assert spark_columns(footer.schema) == spark.read.parquet(source).schema
    assert not needs_arrow([footer])
    assert plain_type(pa.dictionary(pa.int8(), pa.large_binary())) == pa.binary()
    with pytest.raises(TypeError):
        spark_columns(pa.schema([("t", pa.time64("ns"))]))


@pytest.mark.slow
def test_a_frame_of_such_files_keeps_its_second_batch(spark, tmp_path):
    "The ids of a UUID column are the same as those of text, batch after batch."
    written(
        tmp_path / "in/run=1",
        event_id=pa.array([i.bytes for i in IDS], pa.uuid()),
        event_fingerprint=["f"] * 3,
    )
    written(tmp_path / "in/run=2", event_id=[str(i) for i in IDS], event_fingerprint=["f"] * 3)
    config = Config(
        input=str(tmp_path / "in"),
        output=str(tmp_path / "out"),
        batch_pattern="run=*",
        manifest="lake",
        input_format="parquet",
        etl_time="2026-11-01",
    )
    counts = run(config, spark).counts
    assert (counts["read"], counts["kept"], counts["dropped"], counts["bad"]) == (6, 3, 3, 0)
    kept = spark.read.parquet(str(tmp_path / "out/events"))
    assert sorted(r.event_id for r in kept.collect()) == sorted(map(str, IDS))
    assert kept.columns == ["event_id", "event_fingerprint", "original_event_id", "batch_id"]
    assert deduplicate(kept.drop("batch_id", "original_event_id")).dropped.count() == 0


def test_folders_above_a_batch_give_no_column_and_twins_are_refused(spark, tmp_path):
    at = pa.array([1_000], pa.timestamp("ns", "UTC"))
    source = written(tmp_path / "env=prod/in", event_id=["a"], env=["own"], at=at)
    for carry in ("arrow", "spark"):
        kept, _ = told(spark, source, tmp_path / carry, carry=carry)
        assert [(r.event_id, r.env) for r in kept.collect()] == [("a", "own")]
    Path(tmp_path, "twins").mkdir()
    twins = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"]), at], ["event_id", "event_id", "at"])
    pq.write_table(twins, tmp_path / "twins/0.parquet")
    with pytest.raises(InputError, match="such as event_id. Rename one upstream"):
        told(spark, str(tmp_path / "twins"), tmp_path / "out")

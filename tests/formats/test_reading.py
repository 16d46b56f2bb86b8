"What is read: formats told apart, lines, Parquet, Delta folders, tables."

import gzip
import json
import random
from datetime import datetime, timezone
from decimal import Decimal

import pyarrow as pa
import pytest
from inputs import (
    ELSEWHERE,
    MARK,
    bad_rows,
    found_in,
    good_rows,
    line,
    opened,
    parquet,
    write_lines,
)
from spread import configured

from dedup_nb.base.config import Input, Recipe
from dedup_nb.base.errors import FormatError, InputError, MissingInputError
from dedup_nb.formats.batches import Batch, InputFile
from dedup_nb.formats.reading import explain_read_error, read_batch
from dedup_nb.rules.keys import ids_of


@pytest.mark.parametrize("wanted", ["parquet", "enriched_tsv", "json"])
def test_a_delta_table_is_not_read_as_the_files_that_lie_in_it(spark, tmp_path, wanted):
    write_lines(tmp_path / "t" / "_delta_log" / "00000000000000000000.json", "{}")
    parquet(tmp_path / "t" / "part-0.parquet", event_id=["deleted long ago"])
    with pytest.raises(FormatError, match="is a Delta table, .* Set --input-format delta"):
        opened(spark, tmp_path / "t", format=wanted)


# --- lines of enriched events ------------------------------------------------------------------------------


GOOD_FILES = {  # name -> how the file is written; each has one event, which names the file in its title
    "a.tsv": lambda event: event + b"\n",
    "b.tsv.gz": lambda event: gzip.compress(event + b"\n"),
    "c.tsv": lambda event: event + b"\r\n",
    "d.tsv.gz": lambda event: gzip.compress(event + b"\r\n"),
    "e.tsv": lambda event: event,
    "f.tsv": lambda event: MARK + event + b"\n",
    "g.tsv.gz": lambda event: gzip.compress(MARK + event + b"\n"),
    "a[1].tsv": lambda event: event,
    "b{x,y}*.tsv": lambda event: event,
    "c d%20.tsv": lambda event: event,
    "é.tsv": lambda event: event,
}
BAD_LINES = [b"", b"x", b"a\tb", b"bad\xff", b"\t" * 100_000]
LONG = "x" * 10_000_000


@pytest.fixture(scope="module")
def lines_read(spark, tmp_path_factory):
    "All odd files of lines in one folder, read once: the good rows by title, and the bad rows."
    folder = tmp_path_factory.mktemp("lines")
    for name, written in GOOD_FILES.items():
        (folder / name).write_bytes(written(line(page_title=name, app_id="shop").encode()))
    write_lines(folder / "bad.tsv", *BAD_LINES)
    write_lines(folder / "bad.tsv.gz", *BAD_LINES, end="\r\n")
    odd = line(page_title="@ and odd", app_id="a\0b").encode().replace(b"@", b"\xff\xe2\x82")
    write_lines(folder / "odd.tsv", odd, line(page_title=LONG))
    for name in ("empty.tsv", "empty.tsv.gz", "_SUCCESS"):
        write_lines(folder / name)
    with configured(spark, ELSEWHERE):
        source = opened(spark, folder, "x")
        write_lines(folder / "late.tsv", line(page_title="late"))
        good = good_rows(source, "page_title", "app_id", "collector_tstamp", "true_tstamp")
        return {r.page_title: r for r in good}, bad_rows(source)


@pytest.mark.parametrize("name", GOOD_FILES)
def test_a_file_of_lines_is_read_whatever_its_name_packing_and_line_end(lines_read, name):
    row = lines_read[0][name]
    assert (row.app_id, row.true_tstamp) == ("shop", None)
    assert row.collector_tstamp.microsecond == 1000


def test_a_file_that_comes_later_is_in_no_scan(lines_read):
    assert "late" not in lines_read[0] and len(lines_read[0]) == len(GOOD_FILES) + 2


def test_invalid_utf8_becomes_replacement_characters_and_nul_passes(lines_read):
    assert lines_read[0]["\ufffd\ufffd and odd"].app_id == "a\0b"
    assert [b["payload"] for b in lines_read[1]].count("bad\ufffd") == 2


def test_a_line_of_10_mb_is_an_event_like_any_other(lines_read):
    assert LONG in lines_read[0]


def test_every_line_that_is_no_event_is_a_bad_row(lines_read):
    found = sorted(
        (b["payload"], b["failure"]["type"], b["failure"].get("fieldCount")) for b in lines_read[1]
    )
    kinds = {1: ("NotTSV", None)}
    texts = [x.decode(errors="replace") for x in BAD_LINES]
    fields = [t.count("\t") + 1 for t in texts]
    expected = [(t, *kinds.get(n, ("FieldNumberMismatch", n))) for t, n in zip(texts, fields)]
    assert found == sorted(2 * expected)


@pytest.mark.parametrize("kind", ["enriched_tsv", "json", "parquet"])
def test_an_empty_folder_is_a_batch_without_rows(spark, tmp_path, kind):
    source = opened(spark, tmp_path, format=kind)
    assert source.raw.isEmpty() and "event_id" in source.columns and not source.folders
    assert source.decode(source.raw).columns[: len(source.columns)] == source.columns
    assert source.bad(source.raw).columns == ["value"]


def test_lines_of_zstd_are_refused_before_anything_is_read(spark, tmp_path):
    write_lines(tmp_path / "a.tsv.zst", b"\x28\xb5\x2f\xfd...")
    with pytest.raises(FormatError, match="a.tsv.zst is compressed with zstd.*Store it as text, gzip"):
        opened(spark, tmp_path)


def test_a_truncated_file_fails_and_is_named(spark, tmp_path):
    rng = random.Random(1)
    lines = [line(page_title="%0200x" % rng.getrandbits(800)) for _ in range(500)]
    write_lines(tmp_path / "part-0.tsv.gz", line())
    broken = write_lines(tmp_path / "part-1.tsv.gz", *lines)
    broken.write_bytes(broken.read_bytes()[:-2000])
    [batch] = found_in(tmp_path, "x").batches
    source = read_batch(spark, batch, Input(str(tmp_path)), Recipe(), ids_of(Recipe()))
    with pytest.raises(Exception) as wrong:
        source.raw.count()
    explained = explain_read_error(wrong.value, batch)
    assert isinstance(explained, InputError) and str(broken) in str(explained)
    assert "Nothing was committed" in str(explained)


@pytest.mark.parametrize(
    "text, said",
    [
        ("No space left on device", None),
        ("[FAILED_READ_FILE] /out/.staging/batch_id=x/keys/part-7.parquet", None),
        ("[FAILED_READ_FILE] file:///in/part-1", "/in/part-1 cannot be read to its end"),
        ("[FAILED_READ_FILE] file:///in/part-10", "/in/part-10 cannot be read to its end"),
        ("java.io.EOFException: Unexpected end of input stream", "one of 2 files of /in cannot be read"),
        (
            "FAILED_READ_FILE: /in/part-1: [Errno 24] Detail: [errno 24] Too many open files",
            "read: Too many open",
        ),
        ("[PATH_NOT_FOUND] file:/in/part-1", "/in is not there"),
    ],
)
def test_an_error_of_spark_is_explained_if_it_is_about_the_input(text, said):
    batch = Batch("x", (InputFile("/in/part-1", 1), InputFile("/in/part-10", 1)), "/in")
    found = explain_read_error(RuntimeError(text), batch)
    code = 2 if "NOT_FOUND" in text else 1
    assert (said in str(found) and found.exit_code == code) if said else found is None


WRITES = "[TASK_WRITE_FAILED] Task failed while writing rows to file:/out/.staging/x/ids."


@pytest.mark.parametrize(
    "text, said",
    [
        ("[FAILED_READ_FILE] a broken file /out/.staging/x/keys/part-1.parquet", None),
        ("[FAILED_READ_FILE] file:/out/events/batch_id=1/1", None),
        (f"{WRITES} [FAILED_READ_FILE] file:///lake/in/a", None),
        (f"{WRITES} [FAILED_READ_FILE] file:///in/a", "/in/a cannot be read to its end"),
        (f"{WRITES} [FAILED_READ_FILE] file:///in/batch_id=2/%C3%A9%201", "/in/batch_id=2/é 1 cannot be"),
        ("java.io.EOFException: a broken file, at Gzip.java:1", "one of 3 files of /in cannot be read"),
        ("[PATH_NOT_FOUND] file:/inbox/a", None),
    ],
)
def test_a_short_name_of_a_file_is_not_found_in_every_error(text, said):
    files = [InputFile(f"file:///in/{name}", 1) for name in ("1", "a", "batch_id=2/é 1")]
    found = explain_read_error(RuntimeError(text), Batch("x", tuple(files), "/in"))
    assert (said in str(found) and found.exit_code == 1) if said else found is None


# --- Parquet -----------------------------------------------------------------------------------------------


def test_an_id_that_is_no_uuid_is_fine_elsewhere_and_a_missing_one_is_bad(spark, tmp_path):
    at = datetime(2026, 11, 20, 10, tzinfo=timezone.utc)
    columns = {
        "event_id": ["Not a UUID", "", None],
        "m": pa.array([[("k", 1)], None, None], pa.map_(pa.string(), pa.int32())),
        "odd.name": ["x", "y", "z"],
        "at": pa.array([at, at, None], pa.timestamp("us", "UTC")),
    }
    parquet(tmp_path / "p" / "part-0.parquet", **columns)
    with configured(spark, ELSEWHERE):
        source = opened(spark, tmp_path / "p", format="parquet")
        assert [(r.event_id, r.m, r["odd.name"]) for r in good_rows(source)] == [
            ("Not a UUID", {"k": 1}, "x")
        ]
        bad = bad_rows(source)
    failure = {"timestamp": "1970-01-01T00:00:00Z", "errors": ["Field event_id cannot be empty"]}
    assert [b["failure"] for b in bad] == [failure] * 2
    assert [json.loads(b["payload"]) for b in bad] == [
        {"event_id": "", "odd.name": "y", "at": "2026-11-20T10:00:00.000000Z"},
        {"odd.name": "z"},
    ]


def test_the_id_alone_is_one_parquet_column(spark, tmp_path):
    parquet(tmp_path / "p" / "part-0.parquet", event_id=["a"], wide=["b"])
    raw = opened(spark, tmp_path / "p", format="parquet").raw
    plan = raw.select("_dd_id")._jdf.queryExecution().executedPlan().toString()
    assert "ReadSchema: struct<event_id:string>" in plan


def test_a_number_may_be_the_id_and_several_columns_too(spark, tmp_path):
    parquet(tmp_path / "p" / "part-0.parquet", shop=[7, 7, None], n=["a/b", "", "c"])
    by_shop = opened(spark, tmp_path / "p", recipe=Recipe(event_id=("shop",)), format="parquet")
    assert [(r._dd_id, r.shop) for r in by_shop.decode(by_shop.raw).collect()] == [
        ("7", 7),
        ("7", 7),
        (None, None),
    ]
    by_both = opened(spark, tmp_path / "p", recipe=Recipe(event_id=("shop", "n")), format="parquet")
    assert [r._dd_id for r in by_both.raw.collect()] == ["7/a%2Fb", None, None]
    assert bad_rows(by_both)[0]["failure"]["errors"] == ["Field n cannot be empty"]


@pytest.mark.parametrize("schema, values", [(None, ("001", "02")), ("country int", (1, 2))])
def test_parquet_files_are_merged_by_name_and_folder_names_are_text(spark, tmp_path, schema, values):
    parquet(tmp_path / "run=1" / "country=001" / "part-0.parquet", event_id=["a"], n=[1])
    parquet(tmp_path / "run=1" / "country=02" / "part-1.parquet", event_id=["b"], s=["x"])
    source = opened(spark, tmp_path, format="parquet", schema=schema)
    rows = {r.event_id: (r.n, r.s, r.country) for r in good_rows(source)}
    assert rows == {"a": (1, None, values[0]), "b": (None, "x", values[1])}
    assert source.folders == ("country",) and "run" not in source.columns


@pytest.mark.parametrize(
    "schema, said",
    [
        (
            "contry int",
            "input_schema gives types of folder columns; it needs contry; .* Did you mean country",
        ),
        ("country int", "FR.*country"),
    ],
)
def test_a_type_that_no_folder_name_has_is_said(spark, tmp_path, schema, said):
    parquet(tmp_path / "run=1" / "country=FR" / "part-0.parquet", event_id=["a"])
    with pytest.raises(InputError, match=said):
        opened(spark, tmp_path, format="parquet", schema=schema)


UUIDS = pa.array([b"0123456789abcdef"], pa.uuid())
UNREADABLE = {  # files -> what is said
    "types that disagree": (
        [{"event_id": ["a"], "n": [1]}, {"event_id": ["b"], "n": ["x"]}],
        "Column n is string in .*/1.parquet, and bigint in the files before it. Write that file again",
    ),
    "whole numbers and others": (
        [{"event_id": ["a"], "n": [1]}, {"event_id": ["b"], "n": [1.5]}],
        "Column n is double in .*/1.parquet, and bigint in the files before it. Write that file again",
    ),
    "A and a": (
        [{"event_id": ["a"], "Country": [1], "country": [2]}],
        "columns that differ only in upper and lower case, .* such as country. Rename one upstream",
    ),
    "nanoseconds inside": (
        [{"event_id": ["a"], "at": pa.array([[1]], pa.list_(pa.timestamp("ns")))}],
        "Spark does not read the nanosecond column at.* in .*/0.parquet. Write it with microseconds",
    ),
    "a time of day beside nanoseconds": (
        [{"event_id": ["a"], "n": pa.array([1], pa.timestamp("ns")), "at": pa.array([1], pa.time64("us"))}],
        "Spark does not read the time-of-day column at in .*/0.parquet. Write it as text, or leave it out",
    ),
    "nanoseconds inside and outside": (
        [
            {
                "event_id": ["a"],
                "n": pa.array([1], pa.timestamp("ns")),
                "at": pa.array([[1]], pa.list_(pa.timestamp("ns"))),
            }
        ],
        "Spark does not read the nanosecond column at.list.element in .*/0.parquet. Write it with",
    ),
    "nanoseconds and text": (
        [{"event_id": ["a"], "at": pa.array([1], pa.timestamp("ns"))}, {"event_id": ["b"], "at": ["x"]}],
        "Column at is string in .*/1.parquet, and timestamp_ntz in the files before it. Write",
    ),
    "A and a beside a UUID": (
        [{"event_id": UUIDS, "Country": [1], "country": [2]}],
        "columns that differ only in upper and lower case, .* such as country. Rename one upstream",
    ),
    "a time of day": (
        [{"event_id": ["a"], "at": pa.array([1], pa.time64("us"))}],
        "Spark does not read the time-of-day column at in .*/0.parquet. Write it as text, or leave it out",
    ),
    "a UUID inside": (
        [{"event_id": ["a"], "s": pa.StructArray.from_arrays([UUIDS], ["u"])}],
        "Spark does not read the UUID column s.u in .*/0.parquet. Write it as text",
    ),
    "half a float": (
        [{"event_id": ["a"], "f": pa.array([1.5], pa.float16())}],
        "Spark does not read the 16-bit float column f in .*/0.parquet. Write it as float",
    ),
    "a very long decimal": (
        [{"event_id": ["a"], "d": pa.array([Decimal("1.00")], pa.decimal256(39, 2))}],
        "Spark does not read the decimal column d in .*/0.parquet. Write it with at most 38 digits",
    ),
    "no id": (
        [{"event_ids": ["a"]}],
        "needs event_id; the input has event_ids. For event_id: Did you mean event_ids",
    ),
}


@pytest.mark.parametrize("files, said", UNREADABLE.values(), ids=UNREADABLE)
def test_parquet_that_cannot_be_read_is_said_in_our_words(spark, tmp_path, files, said):
    for i, columns in enumerate(files):
        parquet(tmp_path / "p" / f"{i}.parquet", **columns)
    with pytest.raises(InputError, match=said):
        opened(spark, tmp_path / "p", format="parquet")


@pytest.mark.parametrize(
    "column, folder", [("country", "country=DE"), ("Event_ID", "event_id=x"), ("a=b", "a%3Db=1")]
)
def test_a_folder_that_would_replace_a_column_of_any_file_is_refused(spark, tmp_path, column, folder):
    parquet(tmp_path / "in" / folder / "0.parquet", id=["a"])
    parquet(tmp_path / "in" / folder / "x" / "1.parquet", id=["b"], **{column: ["FR"]})
    said = f"files of {tmp_path}/in have a column {column}, which the folder {folder} would replace. Rename"
    with pytest.raises(InputError, match=said):
        opened(spark, tmp_path / "in", format="parquet", recipe=Recipe(event_id=("id",)))


def test_a_folder_without_a_value_is_refused(spark, tmp_path):
    parquet(tmp_path / "in" / "c=" / "0.parquet", event_id=["a"])
    with pytest.raises(InputError, match="c= of .* has no value. Rename it to c=__HIVE_DEFAULT_PARTITION__"):
        opened(spark, tmp_path / "in", format="parquet")


def test_a_column_stays_where_its_folders_are_batches(spark, tmp_path):
    parquet(tmp_path / "country=DE" / "0.parquet", event_id=["a"], country=["FR"])
    source = opened(spark, tmp_path, format="parquet", batch_pattern="country=*")
    assert source.plain().select("event_id", "country").collect() == [("a", "FR")] and source.folders == ()


def test_folders_give_the_columns_that_spark_finds_in_them(spark, tmp_path):
    parquet(tmp_path / "in" / "no=1" / "x" / "_day=02" / "a%20b=c%3Dd" / "e" / "0.parquet", event_id=["a"])
    source = opened(spark, tmp_path / "in", format="parquet")
    assert source.folders == ("_day", "a b") and source.columns == ["event_id", "_day", "a b"]
    assert source.plain().select("event_id", "_day", "a b").collect() == [("a", "02", "c=d")]


@pytest.mark.parametrize("folder", ["event_id=x", "value=7", "_day=1/n=2"])
def test_folders_take_nothing_from_lines(spark, tmp_path, folder):
    write_lines(tmp_path / "in" / folder / "a.json", '{"event_id": "a", "value": "b", "n": 1}')
    write_lines(tmp_path / "in" / folder / "b.json", '{"event_id": "b", "value": "c", "n": 2}')
    source = opened(spark, tmp_path / "in", format="json")
    rows = source.plain().select("event_id", "value", "n").orderBy("event_id").collect()
    assert rows == [("a", "b", 1), ("b", "c", 2)] and source.folders == ()


@pytest.mark.parametrize("other", ["", "x=1", "plain"])
def test_folders_that_give_columns_to_some_files_only_are_said(spark, tmp_path, other):
    parquet(tmp_path / "in" / "x=1" / "y=2" / "0.parquet", event_id=["a"])
    parquet(tmp_path / "in" / other / "1.parquet", event_id=["b"])
    with pytest.raises(InputError, match=f"{tmp_path}/in"):
        opened(spark, tmp_path / "in", format="parquet")


def test_a_file_that_is_cut_off_is_named(spark, tmp_path):
    path = parquet(tmp_path / "a.parquet", event_id=["a"])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match="a.parquet cannot be read to its end.*input_format"):
        opened(spark, path, format="parquet")


@pytest.mark.parametrize(
    "where, said", [("n > 1", None), ("m > 1", "input_where = 'm > 1' does not fit the input")]
)
def test_input_where_takes_a_slice(spark, tmp_path, where, said):
    parquet(tmp_path / "p" / "0.parquet", event_id=["a", "b"], n=[1, 2])
    if said:
        with pytest.raises(InputError, match=said) as wrong:
            opened(spark, tmp_path / "p", format="parquet", where=where)
        assert "SQLSTATE" not in str(wrong.value)
    else:
        source = opened(spark, tmp_path / "p", format="parquet", where=where)
        assert [r.event_id for r in good_rows(source)] == ["b"] and source.raw.count() == 1


def test_brackets_and_stars_in_a_path_are_no_pattern(spark, tmp_path):
    folder = tmp_path / "in[1]*{a,b}"
    parquet(folder / "day=[x]" / "p?.parquet", event_id=["a"])
    source = opened(spark, folder, "x", format="parquet")
    assert [(r.event_id, r.day) for r in good_rows(source)] == [("a", "[x]")]


# --- tables and Delta folders ------------------------------------------------------------------------------


def test_a_table_is_read_by_name(spark):
    spark.sql("select 'a' as event_id union all select null").createOrReplaceTempView("some_events")
    source = opened(spark, "some_events", format="table")
    assert [r.event_id for r in good_rows(source)] == ["a"] and len(bad_rows(source)) == 1
    assert source.version is None
    with pytest.raises(MissingInputError, match="no_such_table"):
        opened(spark, "no_such_table", format="table")
    with pytest.raises(MissingInputError, match="a/folder is no name of a table .* input_format=delta"):
        opened(spark, "a/folder", batch_id="1", format="table")


def test_a_delta_folder_is_one_batch_as_it_was(spark, tmp_path):
    path, place = tmp_path / "run=2026-11-20", {"format": "delta"}
    spark.sql("select 'a' as event_id").write.format("delta").save(str(path))
    [batch] = found_in(path, **place).batches
    source = read_batch(spark, batch, Input(str(path), **place), Recipe(), ids_of(Recipe()))
    spark.sql("select 'b' as event_id").write.format("delta").mode("append").save(str(path))
    assert (batch.batch_id, batch.files, source.version) == ("2026-11-20", (), "0")
    assert [r.event_id for r in good_rows(source)] == ["a"]


def test_a_folder_that_is_not_delta_is_said(spark, tmp_path):
    write_lines(tmp_path / "x" / "a.txt", "x")
    with pytest.raises(
        FormatError, match="x cannot be read as a Delta table: .* Check input and input_format"
    ):
        opened(spark, tmp_path / "x", format="delta")

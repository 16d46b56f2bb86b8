"""CSV: whatever a file holds, each line is a row, or a bad row that says its number."""

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as T
from spread import configured

from dedup_nb import Config, run
from dedup_nb.base.errors import FormatError, InputError, MissingColumnError
from dedup_nb.formats.csv_rows import records_in, typed_cell


@given(st.lists(st.lists(st.text(alphabet='ab,"\n\r é', max_size=4), min_size=1, max_size=3), max_size=6))
def test_records_are_those_that_were_written(rows):
    text = io.StringIO(newline="")
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows(rows)
    lines = io.StringIO(text.getvalue(), newline="")
    assert [record.cells for record in records_in(lines, ",")] == rows


@given(st.text(alphabet='a,"\n', max_size=30))
def test_no_line_is_swallowed(text):
    lines = io.StringIO(text, newline="").readlines()
    found = [*records_in(iter(lines), ",")]
    assert "".join(r.text for r in found).replace("\n", "") == text.replace("\n", "")
    starts = [r.number for r in found]
    assert starts == sorted(set(starts)) and all(1 <= n <= len(lines) for n in starts)


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        data = text if isinstance(text, bytes) else text.encode()
        (folder / f"{name}.csv").write_bytes(data)
    return str(folder)


def ran(spark, source, output, **more):
    settings = dict(input=source, output=str(output), input_format="csv", manifest="none", event_id="id")
    [metrics] = run(Config(**{**settings, **more}), spark).batches
    kept = spark.read.parquet(f"{output}/events/*/*").drop("original_event_id")
    bad = []
    if metrics["counts"]["bad"]:
        records = [json.loads(r.value) for r in spark.read.text(f"{output}/bad/*/*").collect()]
        bad = sorted(json.dumps(record["data"]["failure"]) for record in records)
    return kept, bad, metrics["counts"]


def test_rows_are_text_and_what_is_none_is_bad_by_its_number(spark, tmp_path):
    source = write(
        tmp_path / "in",
        a='\ufeffid,n,page\n1,1,"a ""b"", c"\n1,1,"a ""b"", c"\n2,2,"two\nlines"\n\n'
        "3,3\n4,4,x,y\n5,5,\n,6,z\n",
        b=b'page,id\r\nx,7\r\ny,\xff\r\n"open,8\r\nz,9\r\n',
    )
    kept, bad, counts = ran(spark, source, tmp_path / "out")
    rows = {row.id: row for row in kept.collect()}
    assert sorted(rows) == ["1", "2", "5", "7", "9"] and counts["dropped"] == 1
    assert (rows["1"].page, rows["2"].page, rows["5"].page) == ('a "b", c', "two\nlines", None)
    assert rows["7"].n is None and rows["7"].page == "x"
    assert len(bad) == counts["bad"] == 5
    for words in (
        "Line 7: 2 cells",
        "Line 8: 4 cells",
        "id cannot be empty",
        "Line 3: no UTF-8",
        "Line 4: unexpected end",
    ):
        assert any(words in one for one in bad), (words, bad)


def test_types_are_given_by_name_or_by_place(spark, tmp_path):
    source = write(tmp_path / "in", a="id,n,at\n1,1,2026-11-20 10:00:00\n2,x,\n3,y,z\n")
    kept, bad, _ = ran(spark, source, tmp_path / "out", input_schema="n int, at timestamp")
    assert dict(kept.dtypes) == {"id": "string", "n": "int", "at": "timestamp"} and kept.count() == 1
    assert "n is no int: x" in bad[0] and "n is no int: y; at is no timestamp: z" in bad[1]
    source = write(tmp_path / "bare", a="1,1\n2,2\n2,2\n")
    kept, _, counts = ran(spark, source, tmp_path / "out2", input_schema="id string, n int")
    assert sorted((r.id, r.n) for r in kept.collect()) == [("1", 1), ("2", 2)] and counts["dropped"] == 1


WRONG = {  # a file -> settings, the error, its words
    "1,2\n3,4\n": (
        {},
        MissingColumnError,
        "no id, and looks like data: 1, 2. .*--input-schema 'c1 string, c2 string' --event-id c1;",
    ),
    "a,2026-11-01T10:00:00Z\n": ({}, MissingColumnError, "has no id, and looks like data: a, 2026"),
    "F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6,a\n": (
        {},
        MissingColumnError,
        "has no id, and looks like data: F8",
    ),
    "order,v2,2b\n": (
        {},
        MissingColumnError,
        "whose first line names the columns.* needs id; the input has order, v2, 2b",
    ),
    "id,id\n": ({}, InputError, "two columns named id"),
    'id,"n"ame\n1,2\n': ({}, InputError, "first line of .* is no CSV: .*expected after"),
    'id,"n"ame,x\n1,2,3\n': (dict(input_schema="id int"), InputError, "first line of .* is no CSV"),
    "id,n,ID\n": ({}, InputError, "differ only in case: ID, id"),
    "id,_dd_wrong\n": ({}, InputError, "_dd_wrong, a name this package adds itself"),
    "event_id,n\n1,2\n": (
        dict(input_schema="ID int, N int", event_id="ID"),
        InputError,
        "names ID, N, which no file has. Found: event_id, n",
    ),
    "1,2\n": (dict(input_schema="id int, id int"), InputError, "differ only in case: id, id"),
    "id,tags\n": (dict(input_schema="tags array<int>"), InputError, "tags is array<int>, and a cell of CSV"),
    "id;n\n1;2\n": ({}, InputError, "one column, 'id;n'. Set --csv-delimiter ';'"),
    "1,2,3\n": (dict(input_schema="id string, n int"), InputError, "first line of .* has 3 cells"),
    "id,n\n": (dict(input_schema="m int, id string"), InputError, "input_schema names m.*Found: id, n"),
    "größe,id\n1,2\n".encode("latin-1"): (
        {},
        InputError,
        "first line of .*a.csv is no UTF-8. Save it as UTF-8",
    ),
    '{"id": 1}\n': ({}, FormatError, "is JSON, but input_format is csv"),
}


@pytest.mark.parametrize("text", WRONG, ids=repr)
def test_what_is_no_csv_is_said(spark, tmp_path, text):
    more, error, words = WRONG[text]
    source = write(tmp_path / "in", a=text)
    with pytest.raises(error, match=words):
        ran(spark, source, tmp_path / "out", **more)
    assert not [*(tmp_path / "out").rglob("*.parquet")]


CUT = {  # a type -> cells that are of it, cells that a cast would cut or take for something else
    "decimal(10,2)": (["1.23", "-5", " 1.230", "1.2345e2"], ["1.239", "1.005", "1e-3"]),
    "decimal(38,9)": (["1.123456789", "1.1234567890", "7"], ["1.1234567891"]),
    "decimal(37,2)": (["1.00", "-.5"], ["1.0001"]),
    "date": (
        ["2026-11-20", "2026-11-20 00:00:00.0", "2026-11-20T00:00:00.000Z", "2026", "+12026-11-20"],
        ["2026-11-20T10:00", "2026-11-20 00:00:00+02:00", "202611", "202611-20", "12026-11-20"],
    ),
    "timestamp": (["2026", "2026-11", "+12026-11-20 10:00:00"], ["202611", "202611-01-20T10:00:00Z"]),
    "timestamp_ntz": (["2026-11-20 10:00:00", "2026-11-20"], ["2026-11-20T10:00+02:00", "202611"]),
    "double": (["1e308", "-Infinity", "NaN"], ["1e309", "-1e400"]),
    "float": (["3.4e38", "Infinity"], ["3.5e38"]),
}


@pytest.mark.parametrize("kind", CUT)
def test_nothing_of_a_cell_is_cut_off(spark, kind):
    cells = [cell for some in CUT[kind] for cell in some]
    frame = spark.createDataFrame([(cell,) for cell in cells], "cell string")
    is_value = typed_cell("cell", kind_of(kind)).isNotNull()
    right = [row.cell for row in frame.where(is_value).collect()]
    assert right == CUT[kind][0]


def kind_of(kind):
    return T.StructType.fromDDL(f"c {kind}")["c"].dataType


def test_a_time_is_the_same_in_every_session(spark, tmp_path):
    "One without a zone is of UTC, and a clock alone is none: it would be one of today."
    cells = [
        "2026-11-20 10:00:00",
        "2026-11-20T11:00+01:00",
        "2026-11-20 10:0:0.0",
        "2026-11-20 10:00:00 UTC",
    ]
    cells += ["2026-11-20 11:00:00 Europe/Paris", "10:00", "2026-11-20+05"]
    source = write(tmp_path / "in", a="\n".join(["id,t", *(f"{n},{cell}" for n, cell in enumerate(cells))]))
    with configured(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
        kept, bad, _ = ran(spark, source, tmp_path / "out", input_schema="t timestamp")
        assert {r[0] for r in kept.selectExpr("unix_seconds(t)").collect()} == {1795168800}
    assert kept.count() == 5 and len(bad) == 2


def test_a_first_record_that_is_no_csv_is_a_bad_row_where_other_files_have_no_header(spark, tmp_path):
    source = write(tmp_path / "in", a="1,2\n", b='"3"x,4\n5,6\n')
    kept, bad, _ = ran(spark, source, tmp_path / "out", input_schema="id string, n int")
    assert {(r.id, r.n) for r in kept.collect()} == {("1", 2), ("5", 6)} and len(bad) == 1


@pytest.mark.slow
def test_a_long_cell_is_one(spark, tmp_path):
    body = "\n".join(["7,forged"] * 150_000)
    source = write(tmp_path / "in", a=f'id,body\n1,"{body}"\n2,x\n')
    kept, bad, _ = ran(spark, source, tmp_path / "out")
    assert not bad and {r.id: len(r.body) for r in kept.collect()} == {"1": len(body), "2": 1}


def test_headers_that_differ_only_in_case_are_said(spark, tmp_path):
    source = write(tmp_path / "in", a="id,n\n1,2\n", b="ID,n\n1,2\n")
    with pytest.raises(InputError, match="differ only in case: ID, id. Rename one upstream"):
        ran(spark, source, tmp_path / "out")


def test_another_delimiter_and_a_filter(spark, tmp_path):
    source = write(tmp_path / "in", a="id\tn\n1\t1\n2\t2\nx\n")
    more = dict(csv_delimiter="tab", input_where="n > 1")
    kept, bad, _ = ran(spark, source, tmp_path / "out", **more)
    assert [r.id for r in kept.collect()] == ["2"] and len(bad) == 1
    with pytest.raises(Exception, match="csv_delimiter is one character, or tab; found 'ab'"):
        Config(input="a", output="b", csv_delimiter="ab")


@pytest.mark.parametrize("more", [{}, {"input_schema": "event_id string, n int"}], ids=str)
def test_a_file_without_the_header_of_the_others_is_refused(spark, tmp_path, more):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/1.csv").write_text("event_id,n\na,1\n")
    (tmp_path / "in/2.csv").write_text("c,3\nd,4\n")
    settings = dict(input=f"{tmp_path}/in", output=f"{tmp_path}/out", input_format="csv", manifest="none")
    with pytest.raises(InputError, match="2.csv has no event_id in its first line, which other files have"):
        run(Config(**settings, **more), spark)

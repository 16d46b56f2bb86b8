"JSON lines: which are events, which are bad, and what cannot be read."

import json
from datetime import datetime, timezone

import pytest
from inputs import ELSEWHERE, MARK, bad_rows, good_rows, opened, write_lines
from spread import configured

from dedup_nb import Config, run
from dedup_nb.base.config import Recipe
from dedup_nb.base.errors import InputError, MissingColumnError
from dedup_nb.base.spark import quoted
from dedup_nb.formats.reading import wrong_line

NO_JSON = "The line is not a JSON object with the types of these columns"
SEVERAL = (
    "The line holds several JSON objects, as Firehose writes them; wanted one a line. "
    "Write the file anew with jq -c . FILE"
)
ARRAY = "The line is an array of JSON objects; wanted one a line. Write the file anew with jq -c .[] FILE"
TWICE = "An object of the line has a key twice"
HALF = "A text of the line has half a character: a surrogate alone"
NO_ID = "Field event_id cannot be empty"
JSON_LINES = [  # line -> the row, or what is wrong with it; None: an empty line is no line
    ('{"event_id":"A","tags":["x"],"m":{"k":{"n":1}},"value":"v"}', ("A", ["x"], 1, "v", None)),
    ('{"event_id":"t","at":"2026-11-20T10:00:00"}', ("t", None, None, None, "10:00")),
    ('{"event_id":"z","at":"2026-11-20T10:00:00+09:00"}', ("z", None, None, None, "01:00")),
    ('{"event_id":"d"}  \t', ("d", None, None, None, None)),
    (
        '{"event_id":"dot","value":"[1],[2]","more":{"not":["asked","for"]}}',
        ("dot", None, None, "[1],[2]", None),
    ),
    ("", None),
    ("  \t ", None),
    ('{"event_id":"","tags":null}', NO_ID),
    ('{"tags":["y"]}', NO_ID),
    ('{"event_id":"b"', NO_JSON),
    ('{"event_id":"clock","at":"10:00:00"}', NO_JSON),
    ("[1]", ARRAY),
    ('"text"', NO_JSON),
    ("nothing at all", NO_JSON),
    ('{"event_id":"c","tags":"no array"}', NO_JSON),
    ('{"event_id":"e"}{"event_id":"f"}', SEVERAL),
    ('{"event_id":"g"},{"event_id":"h"}', SEVERAL),
    ('{"event_id":"m","event_id":"n"}', TWICE),
    ('{"event_id":"m","m":{"k":{"n":1,"n":2}}}', TWICE),
    ('{"event_id":"i"} x', NO_JSON),
    ('{"event_id":"j"}],[{"event_id":"k"}', NO_JSON),
    ('{"event_id":"o"}]{"event_id":"p"}', NO_JSON),
    ('{"event_id":"o"}],"value":"p"}', NO_JSON),
    (b'{"event_id":"M\xfcller"}', "The line is no UTF-8"),
    ('{"event_id":"blank","at":" 10:00:00"}', NO_JSON),
    ('{"event_id":"l\xff', NO_JSON),
    (b'{"event_id":"odd","k\xff":1,"k\xfe":2}', "The line is no UTF-8"),
    (r'{"event_id":"half","value":"\ud83d"}', HALF),
    (r'{"event_id":"half","more":{"x":"\\\\\ud83d\ude00 \udC01"}}', HALF),
    (r'{"event_id":"whole","value":"\ud83d\ude00\\ud83d"}', ("whole", None, None, "\U0001f600\\ud83d", None)),
    ('{"event_id":"tab","value":"a\tb"}', f"{TWICE}, or a text a raw tab or control character"),
    ('{"event_id":"nan","more":[{"x":NaN}]}', ("nan", None, None, None, None)),
    ("{'event_id':'single','more':[{'x':1}]}", ("single", None, None, None, None)),
    ('{"event_id":"times","ats":[{"t":"2026-11-20 10:00"}]}', ("times", None, None, None, None)),
    ('{"event_id":"clocks","ats":[{"t":"2026-11-20"},{"t":"10:00"}]}', NO_JSON),
    ('{"event_id":"clocks","per":{"a":["2026-11-20","T1:02"]}}', NO_JSON),
    ('{"event_id":"clock","at":"T7"}', NO_JSON),
    (r"a line of a log \ud83d", NO_JSON),
]
JSON_SCHEMA = (
    "event_id string, tags array<string>, m struct<k: struct<n: int>>, value string, at timestamp, "
    "ats array<struct<n: int, t: timestamp>>, per map<string, array<timestamp>>"
)


@pytest.fixture(scope="module")
def json_read(spark, tmp_path_factory):
    "All odd JSON lines in one folder, read once: the good rows by id, and the bad rows by line."
    folder = tmp_path_factory.mktemp("json")
    half = len(JSON_LINES) // 2
    write_lines(
        folder / "a.json", MARK + JSON_LINES[0][0].encode(), *(text for text, _ in JSON_LINES[1:half])
    )
    write_lines(folder / "b.json.gz", *(text for text, _ in JSON_LINES[half:]), end="\r\n")
    write_lines(folder / "empty.json")
    with configured(spark, ELSEWHERE):
        source = opened(spark, folder, format="json", schema=JSON_SCHEMA)
        rows = (
            source.decode(source.raw).where("_dd_good").selectExpr("*", "unix_seconds(at) as at_s").collect()
        )
        good = {r.event_id: r for r in rows}
        return good, {b["payload"]: b["failure"] for b in bad_rows(source)}, source.raw.count()


@pytest.mark.parametrize("text, expected", JSON_LINES, ids=[repr(text)[:40] for text, _ in JSON_LINES])
def test_json_columns_pass_untouched_and_lines_that_do_not_fit_are_bad(json_read, text, expected):
    good, bad, _ = json_read
    if not isinstance(expected, tuple):
        text = text.decode(errors="replace") if isinstance(text, bytes) else text
        assert bad.get(text, {"errors": None})["errors"] == (expected and [expected])
        return
    row = good[expected[0]]
    assert (row.event_id, row.tags, row.m and row.m.k.n, row.value) == expected[:4]
    at = row.at_s and datetime.fromtimestamp(row.at_s, timezone.utc).strftime("%H:%M")
    assert at == expected[4]


def test_any_key_tells_events_apart(spark, tmp_path):
    keys = ["n?", " n", "\u2003n", 'it\'s "n"', "?\n"]
    events = [{"event_id": key, key: n} for key in keys for n in (1, 2, 2)]
    write_lines(tmp_path / "in/a.json", *map(json.dumps, [{"event_fingerprint": "f"}, *events]))
    settings = dict(input_format="json", manifest="none")
    summary = run(Config(input=str(tmp_path / "in"), output=str(tmp_path / "out"), **settings), spark)
    counts = summary.batches[0]["counts"]
    assert (counts["read"], counts["dropped"], counts["bad"]) == (16, 5, 1)


def test_no_json_line_is_in_two_places_or_in_none(json_read):
    good, bad, read = json_read
    filled = [text for text, expected in JSON_LINES if expected]
    assert read == len(filled) == len(good) + len(bad)
    assert {f["timestamp"] for f in bad.values()} == {"1970-01-01T00:00:00Z"}


def test_json_files_with_other_columns_are_merged_by_name(spark, tmp_path):
    write_lines(tmp_path / "a.json", '{"event_id":"a","n":1,"o":{"x":1},"nothing":null,"l":[]}')
    write_lines(
        tmp_path / "b.json",
        '{"event_id":"b","n":2.5,"o":{"y":"t"},"more":true,"nothing":null,"l":[1]}',
        "{no",
    )
    source = opened(spark, tmp_path, format="json", where="n > 1")
    assert {f.name: f.dataType.simpleString() for f in source.schema} == {
        "event_id": "string",
        "l": "array<bigint>",
        "n": "double",
        "nothing": "string",
        "o": "struct<x:bigint,y:string>",
        "more": "boolean",
    }
    assert [(r.event_id, r.n) for r in good_rows(source)] == [("b", 2.5)]
    assert [b["payload"] for b in bad_rows(source)] == ["{no"]


def test_json_files_that_disagree_are_named_and_a_schema_settles_it(spark, tmp_path):
    write_lines(tmp_path / "a.json", '{"event_id":"a","o":{"n":1}}')
    other = write_lines(tmp_path / "b.json", '{"event_id":"b","o":{"n":"one"}}')
    with pytest.raises(InputError) as wrong:
        opened(spark, tmp_path, format="json")
    assert f"Column o.n is string in {other}, and bigint in the files before it. Set input_schema" in str(
        wrong.value
    )
    source = opened(spark, tmp_path, format="json", schema="event_id string, o struct<n: string>")
    assert {r.o.n for r in good_rows(source)} == {"1", "one"}


@pytest.mark.parametrize("schema", [None, "ev struct<`http.id`: string, `http.at`: timestamp>"])
def test_names_of_fields_may_have_dots(spark, tmp_path, schema):
    event_id, at = "12345678901234567.75", "10:00" if schema else "now"  # more digits than a double has
    lines = f'{{"ev":{{"http.id":{event_id}}}}}', f'{{"ev":{{"http.at":"{at}"}}}}'
    path, recipe = write_lines(tmp_path / "a.json", *lines), Recipe(event_id=("ev.http.id",))
    where = f"ev.`http.id` = '{event_id}' or ev.`http.at` is not null"
    source = opened(spark, path, format="json", schema=schema, recipe=recipe, where=where)
    assert [(r.ev["http.id"], r._dd_id) for r in good_rows(source, "ev", "_dd_id")] == [(event_id, event_id)]
    [bad] = bad_rows(source)
    assert bad["failure"]["errors"] == [NO_JSON if schema else "Field ev.http.id cannot be empty"]


@pytest.mark.parametrize(
    "text, place, said",
    [
        (
            '{"event_id":"a"}',
            {"schema": "event_id strnig"},
            "input_schema is not a list of columns.*event_id strnig",
        ),
        (
            '{"event_id":"a","A":1,"a":2}',
            {},
            "columns that differ only in case: A, a. Rename one upstream",
        ),
        ('{"eventid":"a"}', {}, "needs event_id; the input has eventid.*event_id: Did you mean eventid"),
        ('{"event_id":"a"}', {"where": "m > 1"}, "input_where = 'm > 1' does not fit"),
        (
            '{"event_id":"a","p":[{"":"x"}]}',
            {},
            "a key without a name.*Rename it upstream, or name the columns",
        ),
    ],
    ids=["a broken schema", "twins", "no id", "a filter", "an empty name"],
)
def test_json_that_cannot_be_read_is_said(spark, tmp_path, text, place, said):
    with pytest.raises(InputError, match=said):
        opened(spark, write_lines(tmp_path / "a.json", text), format="json", **place)


ANEW = "wanted one a line. Write the file anew with jq -c"
SEVERAL = f"The line holds several JSON objects, as Firehose writes them; {ANEW} . FILE"
ARRAY = f"The line is an array of JSON objects; {ANEW} .[] FILE"
NO_OBJECT = "The line is not a JSON object with the types of these columns"


@pytest.mark.parametrize(
    "text, said",
    [
        ('{"a":1}{"a":2}{"a":{"b":[{}]}}', SEVERAL),
        (' {"a":1} \t{"a":"}{"} ', SEVERAL),
        ('{"a":1}, {"a":2}', SEVERAL),
        ('[{"a":1},{"a":2}]', ARRAY),
        ("[ \r", f"The line begins an array of JSON objects; {ANEW} .[] FILE"),
        ("{ \r", f"The line begins a JSON object of several lines; {ANEW} . FILE"),
        ("  {", NO_OBJECT),  # perhaps within an array
        ('{"a":"}{"}', NO_OBJECT),
        ('{"a":1}{"a":', NO_OBJECT),
        ('{"a":1} and more', NO_OBJECT),
        ("[]", NO_OBJECT),
        ("no JSON", NO_OBJECT),
    ],
)
def test_a_line_of_several_objects_says_how_to_part_them(spark, text, said):
    assert spark.createDataFrame([(text,)], "line string").selectExpr(wrong_line("line")).collect() == [
        (said,)
    ]


@pytest.mark.parametrize(
    "text, names, said",
    [
        (
            '{"Records": [{"eventID": "a"}]}',
            ("eventID",),
            "has Records, an .* that have it. .* jq -c '.Records\\[\\]'",
        ),
        (
            '{"d": {"my list": [{"k": 1, "n": 2}]}}',
            ("k", "n"),
            "that have them. .* jq -c '.d.\"my list\"\\[\\]' FILE",
        ),
        (
            '{"Records": [{"detail": {"id": "a"}}]}',
            ("detail.id",),
            "needs detail.id; the input has Records, an",
        ),
        ('{"Records": [{"other": "a"}]}', ("eventID",), "needs eventID; the input has Records. Rename"),
        (
            '{"tags": [{"eventID": 1}], "eventId": "a"}',
            ("eventID",),
            "the input has tags, an array of objects",
        ),
    ],
)
def test_events_that_lie_in_an_array_are_named_with_the_way_out(spark, tmp_path, text, names, said):
    write_lines(tmp_path / "a.json", text)
    with pytest.raises(MissingColumnError, match=said):
        opened(spark, tmp_path / "a.json", format="json", recipe=Recipe(event_id=names))


def test_json_without_any_object_is_all_bad(spark, tmp_path):
    source = opened(spark, write_lines(tmp_path / "a.json", "nothing", "at all"), format="json")
    assert not good_rows(source) and len(bad_rows(source)) == 2


def kept_of(spark, folder, files, **recipe):
    "The columns and the kept rows of files of lines, and how many rows are bad."
    for name, lines in files.items():
        write_lines(folder / name, *lines)
    source = opened(spark, folder, format="json", recipe=Recipe(event_id=("id",), **recipe))
    kinds = {f.name: f.dataType.simpleString() for f in source.schema if f.name != "id"}
    rows = [tuple(r) for r in good_rows(source, "id", *map(quoted, kinds))]
    return kinds, sorted(rows), len(bad_rows(source))


BIG = 18446744073709551615  # larger than a bigint
TYPES = {  # the lines of files -> columns beside the id, the kept rows in the order of their ids, bad rows
    "an empty text beside a number": (
        ['{"id":"a","n":""}', '{"id":"b","n":5}'],
        ({"n": "string"}, [("a", ""), ("b", "5")], 0),
    ),
    "an empty text beside an object": (
        ['{"id":"a","n":"","m":[""]}', '{"id":"b","n":{"x":[1]},"m":[{"y":true}]}'],
        ({"m": "array<string>", "n": "string"}, [("a", [""], ""), ("b", ['{"y":true}'], '{"x":[1]}')], 0),
    ),
    "objects without members": (
        ['{"id":"a","p":{},"q":[{}]}', '{"id":"b","p":{},"q":[]}'],
        ({"p": "string", "q": "array<string>"}, [("a", "{}", ["{}"]), ("b", "{}", [])], 0),
    ),
    "an object without members within one": (
        ['{"id":"a","p":{"q":{}}}'],
        ({"p": "struct<q:string>"}, [("a", ("{}",))], 0),
    ),
    "objects without members, and one with": (
        ['{"id":"a","p":{}}'],
        ['{"id":"b","p":{"x":1}}'],
        ({"p": "struct<x:bigint>"}, [("a", (None,)), ("b", (1,))], 0),
    ),
    "objects without members, and a text": (
        ['{"id":"a","p":{}}'],
        ['{"id":"b","p":"x"}'],
        ({"p": "string"}, [("a", "{}"), ("b", "x")], 0),
    ),
    "a large number": (
        ['{"id":1,"n":1}'],
        [f'{{"id":{BIG},"n":{BIG}}}'],
        ({"n": "decimal(20,0)"}, [("1", 1), (str(BIG), BIG)], 0),
    ),
    "a large number and a fraction": (
        ['{"id":"a","n":1}'],
        [f'{{"id":"b","n":{BIG}}}'],
        ['{"id":"c","n":0.5}'],
        ({"n": "double"}, [("a", 1.0), ("b", float(BIG)), ("c", 0.5)], 0),
    ),
    "whole numbers written as fractions": (
        ['{"id":"a","n":1,"v1.0":"\\" 1.0","m":[3.0]}', '{"id":"b","n":2.0}'],
        (
            {"m": "array<double>", "n": "double", "v1.0": "string"},
            [("a", [3.0], 1.0, '" 1.0'), ("b", None, 2.0, None)],
            0,
        ),
    ),
    "a key twice": (
        ['{"id":"a","id":"b"}', '{"id":"c","p":{}}'],
        ({"p": "string"}, [("c", "{}")], 1),
    ),
    "an array": (
        ['{"id":"a","n":5}'],
        ['[{"id":"b","n":"x"}]', " \t[1]"],
        ({"n": "bigint"}, [("a", 5)], 2),
    ),
    "bad lines beside good ones": (
        ['{"id":"a","n":5,"m":[{"x":Infinity}]}', b'{"id":"b","k\xff":1}', r'{"id":"d","m":"\ud83d"}'],
        ['{"id":"c","n":"x"}]{}', '{"ID":"e"} x'],
        ({"m": "array<struct<x:double>>", "n": "bigint"}, [("a", [(float("inf"),)], 5)], 4),
    ),
    "odd names": (
        ['{"id":"a","a`b.c: d":1,"OBJECT<":2,"OBJECT":{"select":3},"é, ``":4}'],
        (
            {"OBJECT": "struct<select:bigint>", "OBJECT<": "bigint", "a`b.c: d": "bigint", "é, ``": "bigint"},
            [("a", (3,), 2, 1, 4)],
            0,
        ),
    ),
}


@pytest.mark.parametrize("case", TYPES)
def test_a_line_is_read_by_what_it_says_itself(spark, tmp_path, case):
    *files, expected = TYPES[case]
    named = {f"{i}.json": lines for i, lines in enumerate(files)}
    assert kept_of(spark, tmp_path, named) == expected

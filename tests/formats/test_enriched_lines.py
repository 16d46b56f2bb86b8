"An enriched event as a line again, and the duplicate context in it."

import json
from decimal import Decimal

import pytest
from enriched_cases import (
    ATOMIC,
    CASES,
    CONTEXTS,
    DUPLICATE,
    RECORDED,
    RECORDED_LINES,
    TYPED,
    contexts,
    duplicate_of,
    numbered_lines,
)
from inputs import ID, line
from pyspark.sql import functions as F
from runs import committed, go
from spread import configured

from dedup_nb.base.errors import OutputError
from dedup_nb.formats.enriched import (
    NAMES,
    decimal_text,
    decoded,
    enriched_lines,
    original_of,
    utc_text,
    with_duplicate_context,
)

# --- all lines in one frame --------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_event_that_was_renamed_leaves_under_the_id_that_it_came_under(spark, tmp_path):
    first, renamed = "11111111-1111-4111-8111-111111111111", "22222222-2222-5222-8222-222222222222"
    fed_back = contexts(duplicate_of(first), schema=CONTEXTS)
    lines = [
        line(event_id=first, event_fingerprint="f", etl_tstamp="2026-11-20 10:00:00"),
        line(event_id=renamed, event_fingerprint="g", derived_contexts=fed_back),
    ]
    (tmp_path / "in" / "run=1").mkdir(parents=True)
    (tmp_path / "in" / "run=1" / "a.tsv").write_text("\n".join(lines))
    go(spark, tmp_path, input_format="enriched_tsv")
    kept = committed(spark, tmp_path / "out", "1").collect()
    assert {(r.event_id, r.original_event_id) for r in kept} == {(first, None), (renamed, first)}


# --- the duplicate context ---------------------------------------------------------------------------------


PLAIN = {"k": 1}
ENVELOPE_TEXTS = {  # derived_contexts -> the schema of the envelope and the items behind the new one
    None: ("iglu:com.snowplowanalytics.snowplow/contexts/jsonschema/1-0-0", []),
    "": ("iglu:com.snowplowanalytics.snowplow/contexts/jsonschema/1-0-0", []),
    "  ": ("iglu:com.snowplowanalytics.snowplow/contexts/jsonschema/1-0-0", []),
    '{"schema":"s/1-0-1","data":[{"k":1}]}': ("s/1-0-1", [PLAIN]),
    '{"schema":"s/1-0-1","data":[]}': ("s/1-0-1", []),
    ' { "schema" : "s/1-0-1" , "data" : [ ] } ': ("s/1-0-1", []),
    '{"data":[{"k":1}],"schema":"s"}': ("s", [PLAIN]),
    '{"schema":"s","data":[{"data":[{"k":1}]}]}': ("s", [{"data": [PLAIN]}]),
    '{"x":{"data":[1]},"schema":"s","data":[{"k":1}]}': ("s", [PLAIN]),
    '{"x":{"schema":"t","data":[1]},"schema":"s","data":[]}': ("s", []),
    '{"x":[{"data":[{"k":2}]}],"data":[{"k":1}],"schema":"s"}': ("s", [PLAIN]),
    '{"x":"\\"data\\":[","schema":"s","data":[{"k":1}]}': ("s", [PLAIN]),
    '{"schema":"a \\" b","data":[{"k":1}]}': ('a " b', [PLAIN]),
    '{"x":1,"schema":"s","data":[{"n":1.50,"t":"a\\tb","u":"é"},{"l":[1,"2"]}]}': (
        "s",
        [{"n": 1.5, "t": "a\tb", "u": "é"}, {"l": [1, "2"]}],
    ),
}
NO_ENVELOPES = [
    "&&&",
    "[1]",
    '"x"',
    '{"schema":"s","data":{"k":1}}',
    '{"schema":"s"}',
    '{"x":{"data":[]}}',
    '{"x":1,"data":[{"k":1}]}',
    '{"x":1,"schema":"s","data":["text"]}',
    '{"x":1,"schema":"s","data":[null]}',
]


@pytest.fixture(scope="module")
def renamed(spark):
    texts = [*ENVELOPE_TEXTS, *NO_ENVELOPES]
    frame = spark.createDataFrame([(text,) for text in texts], "contexts string").coalesce(1)
    made = with_duplicate_context(F.col("contexts"), F.lit('the "original"')).alias("made")
    both = frame.select(made).selectExpr("made", f"{original_of('made')} as original")
    return dict(zip(texts, both.collect()))


@pytest.mark.parametrize("text, expected", ENVELOPE_TEXTS.items(), ids=map(repr, ENVELOPE_TEXTS))
def test_a_duplicate_context_comes_first_into_the_list_of_the_envelope(renamed, text, expected):
    context = {"schema": DUPLICATE, "data": {"originalEventId": 'the "original"'}}
    made, (schema, items) = json.loads(renamed[text].made), expected
    assert (made["schema"], made["data"]) == (schema, [context, *items])
    assert renamed[text].original == 'the "original"'


@pytest.mark.parametrize("text", NO_ENVELOPES)
def test_text_that_is_no_envelope_of_contexts_stays_as_it_is(renamed, text):
    assert renamed[text].made == text and renamed[text].original is None


# --- from an event to a line -------------------------------------------------------------------------------


DOUBLES = [
    (1.5, "1.5"),
    (10.0, "10.0"),
    (0.0, "0.0"),
    (-0.0, "-0.0"),
    (1.23e7, "12300000.0"),
    (-1.23e7, "-12300000.0"),
    (1.23456789e8, "123456789.0"),
    (1.234567891e8, "123456789.1"),
    (1.2e-5, "0.000012"),
    (-1e-4, "-0.0001"),
    (0.001, "0.001"),
    (1e10, "10000000000.0"),
    (None, None),
]
FAR = [
    1.7976931348623157e308,
    2.2250738585072014e-308,
    123456789012345680.0,
    9.999999e6,
    1.0000001e7,
    1e-3,
    9.99e-4,
]


@pytest.fixture(scope="module")
def doubles(spark):
    numbers = [*(number for number, _ in DOUBLES), *FAR]
    frame = spark.createDataFrame([(x,) for x in numbers], "x double").coalesce(1)
    return dict(zip(map(repr, numbers), (r[0] for r in frame.select(decimal_text(F.col("x"))).collect())))


@pytest.mark.parametrize("number, text", DOUBLES)
def test_doubles_are_written_plainly(doubles, number, text):
    assert doubles[repr(number)] == text


@pytest.mark.parametrize("number", FAR)
def test_doubles_keep_all_their_digits(doubles, number):
    text = doubles[repr(number)]
    assert float(text) == number and "E" not in text and Decimal(text) == Decimal(repr(number))


TO_WRITE = line(**TYPED, page_title='say "what"', se_value="0.000012")
WRITTEN = [case for case, good in CASES.items() if 0 < good < 48]  # those with recorded atomic rows


@pytest.fixture(scope="module")
def written_lines(spark):
    "Events as lines again: in New York, with white space in a text and a column that goes."
    recorded = [text for case in WRITTEN for text in RECORDED_LINES.get(case, ())]
    events = decoded(numbered_lines(spark, [TO_WRITE, *recorded])).select(*NAMES)
    own = F.when(F.col("page_title") == 'say "what"', "a\tb\nc\rd").otherwise(F.col("app_id"))
    events = events.withColumn("original_event_id", F.lit(ID)).withColumn("app_id", own)
    with configured(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        return [r.value for r in enriched_lines(events).collect()]


def test_an_event_becomes_a_line_again(written_lines):
    expected = {
        **TYPED,
        "app_id": "a b c d",
        "etl_tstamp": "2026-11-20 10:00:00.123456",
        "txn_id": "-7",
        "geo_latitude": "15.0",
        "page_title": 'say "what"',
        "se_value": "0.000012",
    }
    assert written_lines[0] == line(**expected)


def test_recorded_events_are_written_as_the_recorded_atomic_rows(written_lines, conformance):
    expected = []
    for case in WRITTEN:
        expected += (RECORDED[case] / "expected_00_atomic.txt").read_text().splitlines()
    own_ids = ATOMIC.index("event_id")  # a dummy in one of the recorded cases
    rows = [dict(zip(NAMES, text.split("\t"))) for text in written_lines[1:]]
    found = [[row[name] for name in ATOMIC] for row in rows]
    without_id = [row[:own_ids] + row[own_ids + 1 :] for row in found]
    recorded = [text.split("\t") for text in expected]
    assert sorted(without_id) == sorted(row[:own_ids] + row[own_ids + 1 :] for row in recorded)
    assert len(found) == 6 and {row[own_ids] for row in found} >= {row[own_ids] for row in recorded[3:]}


@pytest.mark.parametrize(
    "time, text",
    [
        ("2026-11-20T10:00:00Z", "2026-11-20 10:00:00.000"),
        ("2026-11-20T10:00:00.12Z", "2026-11-20 10:00:00.120"),
        ("2026-11-20T10:00:00.123456Z", "2026-11-20 10:00:00.123456"),
        ("1969-12-31T23:59:59.999Z", "1969-12-31 23:59:59.999"),
    ],
)
def test_times_are_written_in_utc_with_three_or_six_digits(spark, time, text):
    with configured(spark, {"spark.sql.session.timeZone": "Asia/Kolkata"}):
        frame = spark.sql(f"select cast('{time}' as timestamp) as t")
        assert frame.select(utc_text(F.col("t"))).first()[0] == text


def test_columns_that_have_no_place_in_a_line_are_refused(spark):
    with pytest.raises(OutputError, match="no column for app_ids. Did you mean app_id"):
        enriched_lines(spark.sql("select 1 as app_ids"))
    for sql, words in {
        "array('{}') as contexts": "contexts is array<string>, and enriched lines want string .JSON text",
        "true as txn_id": "txn_id is boolean, and enriched lines want int",
        "1L as etl_tstamp": "etl_tstamp is bigint, and enriched lines want timestamp",
    }.items():
        with pytest.raises(OutputError, match=words):
            enriched_lines(spark.sql(f"select {sql}"))


@pytest.mark.parametrize(
    "name, text, cell",
    [
        ("etl_tstamp", "2026-11-20T10:00:00.5+02:00", "2026-11-20 08:00:00.500"),
        ("etl_tstamp", "2026-11-20", "2026-11-20 00:00:00.000"),
        ("etl_tstamp", "yesterday", "yesterday"),
        ("br_cookies", "False", "0"),
        ("br_cookies", "1", "1"),
        ("txn_id", "12", "12"),
        ("app_id", "true", "true"),
        ("txn_id", 12.0, "12"),  # as pandas has whole numbers beside null
        ("txn_id", 1.5, "1.5"),
        ("br_cookies", 1, "1"),
    ],
)
def test_a_value_is_written_as_its_column_has_it(spark, name, text, cell):
    with configured(spark, {"spark.sql.session.timeZone": "Asia/Kolkata"}):
        frame = spark.createDataFrame([(text,)], [name])
        written = enriched_lines(frame).first().value
    assert written.split("\t")[NAMES.index(name)] == cell

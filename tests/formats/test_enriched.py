"Snowplow's line: which lines are events, and what is said of the others."

import json
import re
from functools import cache

import pytest
from enriched_cases import (
    AT,
    ATOMIC,
    CASES,
    CELLS,
    DAY,
    DUPLICATE,
    FED_BACK,
    ITEM,
    JOINED,
    MANY_FAULTS,
    MESSAGES,
    MINIMUM,
    NO_JSON,
    OLD_AND_BAD,
    OLD_LINES,
    OLD_TIMES,
    RECORDED,
    RECORDED_LINES,
    TYPED,
    YOUNG,
    contexts,
    faults_of,
    mutants,
    numbered_lines,
)
from inputs import ID, line, opened
from pyspark.sql import functions as F
from spread import configured

import dedup_nb
from dedup_nb.base.config import Config
from dedup_nb.base.errors import ConfigError
from dedup_nb.formats.enriched import (
    ENRICHED,
    NAMES,
    bad_lines,
    decoded,
    is_one_json_value,
    moment,
    some_values,
    with_line_ids,
)

# --- all lines in one frame --------------------------------------------------------------------------------


MUTANTS = mutants(3000, 20261120)
LINES = [line(**{"app_id": f"cell {i}", name: cell}) for i, (name, cell, _) in enumerate(CELLS)]
LINES += [line(app_id=f"joined {i}", **cells) for i, cells in enumerate(JOINED)]
LINES += [line(derived_contexts=text, app_id=f"fed {i}") for i, text in enumerate(FED_BACK)]
LINES += [
    line(**MANY_FAULTS),
    line(**TYPED),
    line()[:-1],
    line() + "\t",
    "",
    "x",
    "many\t" * 30_000,
    "\t".join(line().split("\t")[:7]),  # an id, and nothing behind it
    line(derived_contexts=next(iter(FED_BACK)), page_title="one\tmore"),
    line(derived_contexts=next(iter(FED_BACK))) + "\tmore",
    line(domain_sessionid=DUPLICATE),
    *MUTANTS,
]
LINES += [*OLD_LINES, YOUNG, OLD_AND_BAD]
LINES += dict.fromkeys(text for lines in RECORDED_LINES.values() for text in lines)
TIMES = ["etl_tstamp", "collector_tstamp"]
SHOWN = ["event_id", *(name for name in TYPED if name not in TIMES)]


def failure_of(bad):
    failure = bad["data"]["failure"]
    if "errors" in failure:
        return [(e["key"], e["value"]) for e in failure["errors"]]
    return failure.get("fieldCount", failure["type"])


def judge(spark, lines, minimum=None):
    "The decoded rows by line, the records of lines that are no events by line, and those of old events."
    frame = numbered_lines(spark, lines)
    cells = "split(value, '\t', -1)"
    own = f"if(size({cells}) > 7, nullif(lower(get({cells}, 6)), ''), null) as _own"
    carried = with_line_ids(frame, "n", "value", own)
    # microseconds: Python has no years before 1
    times = [F.unix_micros(name).alias(name) for name in TIMES]
    rows = decoded(carried, minimum).select("n", "_dd_good", "_own", "_dd_id", *SHOWN, *times).collect()
    bad = [json.loads(r.value) for r in bad_lines(frame.select("value"), minimum).collect()]
    old = [b["data"] for b in bad if "/generic_error/jsonschema/1-0-0" in b["schema"]]
    unparsed = {b["data"]["payload"]: b for b in bad if "/loader_parsing_error/" in b["schema"]}
    assert len(bad) == len(rows) - sum(r._dd_good for r in rows)
    return {lines[r.n]: r for r in rows}, unparsed, [(b, json.loads(b["payload"])) for b in old]


SESSIONS = {
    "ANSI, UTC": ({"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}, None),
    "not ANSI, New York, a minimum": (
        {"spark.sql.ansi.enabled": "false", "spark.sql.session.timeZone": "America/New_York"},
        MINIMUM,
    ),
}


@pytest.fixture(scope="module")
def in_session(spark):
    @cache
    def judged_in(name):
        conf, minimum = SESSIONS[name]
        with configured(spark, conf):
            return judge(spark, LINES, minimum)

    return judged_in


@pytest.fixture(scope="module", params=SESSIONS)
def judged(in_session, request):
    return in_session(request.param)


@pytest.mark.parametrize("i", range(len(CELLS)), ids=[f"{name}: {cell[:60]!r}" for name, cell, _ in CELLS])
def test_each_cell_is_judged_by_its_column(judged, i):
    rows, bad, old = judged
    name, cell, right = CELLS[i]
    is_old = f"cell {i}" in {event["app_id"] for _, event in old}
    assert rows[LINES[i]]._dd_good is (right and not is_old)
    assert not is_old or cell < DAY
    if not right:
        [error] = bad[LINES[i]]["data"]["failure"]["errors"]
        assert (error["type"], error["key"], error["value"]) == ("InvalidValue", name, cell)


@pytest.mark.parametrize("i", range(len(JOINED)))
def test_cells_that_are_json_only_together_are_bad(judged, i):
    text = line(app_id=f"joined {i}", **JOINED[i])
    rows, bad, _ = judged
    assert not rows[text]._dd_good
    errors = bad[text]["data"]["failure"]["errors"]
    assert {e["key"] for e in errors} == set(JOINED[i])
    assert {e["message"] for e in errors if e["value"] != "0"} == {f"ParsingFailure: {NO_JSON}"}


def test_every_line_is_an_event_or_bad_or_old(judged):
    rows, bad, old = judged
    ids = {event["app_id"] for _, event in old}
    kinds = {text: (r._dd_good, text in bad, text.partition("\t")[0] in ids) for text, r in rows.items()}
    assert set(rows) == set(LINES) and set(bad) < set(LINES)
    # by their first cell the others cannot be told apart
    literal = set(LINES) - set(MUTANTS) - {text for lines in RECORDED_LINES.values() for text in lines}
    assert {sum(kinds[text]) for text in literal} == {1}


def test_mutated_lines_get_the_verdict_of_a_plain_decoder(judged):
    agrees_with_the_plain_decoder(judged[1], MUTANTS)


def agrees_with_the_plain_decoder(bad, lines):
    expected = {text: found for text in lines if (found := faults_of(text))}
    found = {text: failure_of(bad[text]) for text in lines if text in bad}
    assert {t: (found.get(t), expected.get(t)) for t in lines if found.get(t) != expected.get(t)} == {}
    assert len(lines) / 10 < len(expected) < len(lines) * 9 / 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_many_mutated_lines_get_the_verdict_of_a_plain_decoder(spark, seed):
    lines = mutants(20_000, seed)
    agrees_with_the_plain_decoder(judge(spark, lines)[1], lines)


def test_messages_name_column_and_type_in_column_order(judged):
    failure = judged[1][line(**MANY_FAULTS)]["data"]["failure"]
    assert failure["type"] == "RowDecodingError"
    assert [(e["key"], e["message"]) for e in failure["errors"]] == MESSAGES


@pytest.mark.parametrize(
    "text, failure",
    [
        ("", {"type": "NotTSV"}),
        ("x", {"type": "NotTSV"}),
        (line()[:-1], {"type": "FieldNumberMismatch", "fieldCount": 130}),
        (line() + "\t", {"type": "FieldNumberMismatch", "fieldCount": 132}),
    ],
    ids=["empty", "one column", "130 columns", "132 columns"],
)
def test_a_bad_row_is_snowplows_record(judged, text, failure):
    processor = {"artifact": "dedup_nb", "version": dedup_nb.__version__}
    assert judged[1][text] == {
        "schema": "iglu:com.snowplowanalytics.snowplow.badrows/loader_parsing_error/jsonschema/2-0-0",
        "data": {"processor": processor, "failure": failure, "payload": text},
    }


def test_good_cells_have_values_of_their_type(judged):
    row = judged[0][line(**TYPED)]
    assert (row.etl_tstamp, row.collector_tstamp) == (AT + 123456, AT + 1000)
    assert (row.event_id, row.txn_id, row.geo_latitude) == (ID, -7, 15.0)
    assert (row.br_cookies, row.dvce_ismobile, row.contexts) == (True, False, contexts())


@pytest.mark.parametrize("i", range(len(FED_BACK)))
def test_an_event_that_was_renamed_is_looked_up_by_the_id_that_it_came_with(judged, i):
    text, original = list(FED_BACK.items())[i]
    row = judged[0][line(derived_contexts=text, app_id=f"fed {i}")]
    assert (row._own, row._dd_id, row.event_id) == (ID, original or ID, ID)


def test_ids_are_found_before_and_after_decoding(judged):
    for text, row in judged[0].items():
        cells = text.split("\t")
        assert row._own == (cells[6].lower() or None if len(cells) > 7 else None)
        assert not row._dd_good or row.event_id == row._own


def test_columns_have_their_real_types(spark):
    frame = decoded(numbered_lines(spark, []))
    kinds = [(f.name, f.dataType.simpleString()) for f in frame.schema]
    assert kinds == [*ENRICHED, ("n", "int"), ("_dd_good", "boolean"), ("_dd_look", "boolean")]


def test_some_values_are_those_of_the_whole_line(spark, in_session):
    rows = in_session("ANSI, UTC")[0]
    times = [F.unix_micros(name).alias(name) for name in TIMES]
    frame = some_values(numbered_lines(spark, LINES[:300]), [*TIMES, "txn_id"])
    for text, row in zip(LINES, frame.select("_dd_id", "_dd_look", "txn_id", *times).collect()):
        whole = rows[text]
        assert row._dd_id == whole._dd_id
        assert row._dd_look or (whole._dd_good and whole._own == whole._dd_id)
        assert not whole._dd_good or [row[n] for n in (*TIMES, "txn_id")] == [
            whole[n] for n in (*TIMES, "txn_id")
        ]


@pytest.mark.parametrize("session", SESSIONS)
def test_which_way_a_sure_line_went_does_not_show(spark, in_session, tmp_path, session):
    conf, minimum = SESSIONS[session]
    # each under an id of its own; what breaks a line breaks it for every reader of files
    named = {text.replace(ID, f"{n:08x}{ID[8:]}"): text for n, text in enumerate(LINES)}
    lines = [text for text in named if not re.search("[\\r\\n]", text)]
    shown = [n for n in [*SHOWN, *TIMES] if n != "event_id"]
    with configured(spark, conf):
        glimpses = some_values(numbered_lines(spark, lines), [], minimum).collect()
        for look in (True, False):
            texts = [text for text, r in zip(lines, glimpses) if r._dd_look is look]
            ids = [r._dd_id for r in glimpses if r._dd_look is look]
            (tmp_path / f"{look}").write_bytes("\n".join(texts).encode(errors="surrogatepass"))
            source = opened(spark, tmp_path / f"{look}", minimum_timestamp=minimum)
            events = source.plain().withColumns({name: F.unix_micros(name) for name in TIMES}).collect()
            passed = source.lines().collect()
            if look:  # an anti-join with the ids of these lines removes them all
                assert {r._dd_id for r in events} | {r._dd_id for r in passed} <= set(ids)
                continue
            rows = [in_session(session)[0][named[text]] for text in texts]
            assert all(r._dd_good for r in rows) and len(rows) > 300
            assert [[r[n] for n in shown] for r in events] == [[r[n] for n in shown] for r in rows]
            assert [r._dd_id for r in events] == [r._dd_id for r in passed] == ids
            assert [r.event_id for r in events] == ids
            assert [r.value for r in passed] == [
                text.replace(text.split("\t")[6], text.split("\t")[6].lower()) for text in texts
            ]


@pytest.mark.parametrize(
    "cells",
    [
        {},
        {"collector_tstamp": "2024-02-29 23:59:59.999"},
        {"se_value": "1.5E-7", "contexts": contexts()},
        {
            "contexts": contexts(
                '{"schema":"iglu:a.b/c-d/jsonschema/1-0-0","data":{"say":"\\"}]{","n":[[],{"m":{}}]}}'
            )
        },
        {"contexts": contexts(",".join([ITEM] * 300))},
    ],
)
def test_ordinary_lines_are_sure(spark, cells):
    assert not some_values(numbered_lines(spark, [line(**cells)]), []).first()._dd_look


def test_a_name_that_the_parser_refuses_makes_a_bad_line_in_any_spelling(spark):
    told = [
        contexts(f'{{"schema":"iglu:a/b/jsonschema/1-0-0","data":{{"{60_000 * "x"}":{n}}}}}')
        for n in ("1", "  1")
    ]
    frame = numbered_lines(spark, [line(contexts=text) for text in told])
    assert [r._dd_good for r in decoded(frame).select("_dd_good").collect()] == [False, False]


def test_a_filter_on_good_does_not_parse_twice(spark):
    plan = (
        decoded(numbered_lines(spark, [""]))
        .where("_dd_good")
        ._jdf.queryExecution()
        .optimizedPlan()
        .toString()
    )
    filters = [x for x in plan.splitlines() if "Filter" in x]
    assert filters and not any("split" in x or "from_json" in x for x in filters)
    assert plan.count("split(") == 1


# --- minimum_timestamp, and the recorded cases -------------------------------------------------------------


@pytest.fixture(scope="module")
def old_events(in_session):
    "The records of events that are too old, and the events in them."
    return in_session("not ANSI, New York, a minimum")[2]


def test_events_before_the_minimum_are_bad(in_session, old_events):
    rows, bad, _ = in_session("not ANSI, New York, a minimum")
    assert rows[YOUNG]._dd_good and not any(rows[text]._dd_good for text in OLD_LINES)
    assert bad[OLD_AND_BAD]["data"]["failure"]["type"] == "RowDecodingError"
    assert {event["app_id"] for _, event in old_events} >= {"old", *OLD_TIMES}
    assert not in_session("ANSI, UTC")[2]


def test_the_bad_row_of_an_old_event_names_its_times_in_order_of_the_columns(old_events):
    [failure] = [bad["failure"] for bad, event in old_events if event["app_id"] == "old"]
    said = "Timestamp {} is before than minimum timestamp, at column {}".format
    assert failure == {
        "timestamp": "2026-11-20T09:59:59.999999Z",
        "errors": [
            said("2026-11-20T09:59:59.999999Z", "collector_tstamp"),
            said("2026-01-01T00:00:00.120Z", "dvce_sent_tstamp"),
            said("2026-01-01T00:00:00.123456789Z", "true_tstamp"),
        ],
    }


def test_the_bad_row_of_an_old_event_holds_it_as_json_with_its_nulls(old_events):
    [event] = [event for _, event in old_events if event["app_id"] == "old"]
    assert list(event) == list(NAMES)
    assert event == dict.fromkeys(NAMES) | {
        "app_id": "old",
        "event_id": ID,
        "v_collector": "c",
        "v_etl": "e",
        "collector_tstamp": "2026-11-20T09:59:59.999999Z",
        "true_tstamp": "2026-01-01T00:00:00.123456789Z",
        "dvce_sent_tstamp": "2026-01-01T00:00:00.120Z",
        "etl_tstamp": "2026-11-20T10:00:00Z",
        "txn_id": -7,
        "se_value": 1e7,
        "br_cookies": True,
        "page_title": 'say "\\ü"',
        "contexts": json.loads(contexts()),
    }


@pytest.mark.parametrize("time, shown", OLD_TIMES.items())
def test_times_are_printed_with_the_digits_of_the_line(old_events, time, shown):
    [(bad, event)] = [(bad, event) for bad, event in old_events if event["app_id"] == time]
    assert bad["failure"]["timestamp"] == event["collector_tstamp"] == shown


@pytest.mark.parametrize(
    "text, instant",
    [
        ("2026-11-20", "2026-11-20T00:00:00"),
        ("2026-11-20 10:00", "2026-11-20T10:00:00"),
        ("2026-11-20T10:00:30Z", "2026-11-20T10:00:30"),
        ("2026-11-20T01:00:00.5+0100", "2026-11-20T00:00:00.5"),
        ("2026-11-20T01:00+01:00", "2026-11-20T00:00:00"),
        ("2026-11-20T01:00-0130", "2026-11-20T02:30:00"),
        ("0000-01-02T00:00:00.00Z", "0000-01-02T00:00:00"),
        ("-0044-03-15", "-0044-03-15T00:00:00"),
    ],
)
def test_the_minimum_may_be_written_in_several_ways(spark, text, instant):
    assert Config(minimum_timestamp=text).minimum_timestamp == text
    with configured(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
        same = f"{moment(text)} <=> cast('{instant}Z' as timestamp) and {moment(text)} is not null"
        assert spark.sql(f"select {same}").first()[0]


@pytest.mark.parametrize("text", ["2026-02-31", "2026-11-20 25:00", "2026-13-01", "-0044-02-30", "today"])
def test_a_minimum_that_no_calendar_has_is_refused(text):
    with pytest.raises(ConfigError, match="minimum_timestamp is not a time"):
        Config(minimum_timestamp=text)


@pytest.mark.parametrize("case, good", CASES.items())
def test_recorded_bad_rows_are_met(judged, conformance, case, good):
    lines = RECORDED_LINES[case]
    found = [judged[1][text] for text in lines if text in judged[1]]
    expected = (RECORDED[case] / "expected_bad.txt").read_text().splitlines()
    assert sorted(map(comparable, found)) == sorted(comparable(json.loads(x)) for x in expected)
    assert len(lines) - len(found) == good


def comparable(bad):
    "Without the processor; parser messages by their prefix."
    data = bad["data"]
    for error in data["failure"].get("errors", []):
        if error["message"].startswith("ParsingFailure"):
            error["message"] = "ParsingFailure"
    return json.dumps([bad["schema"], data["failure"], data["payload"]], sort_keys=True)


def test_recorded_events_as_json_have_the_columns_of_the_recorded_wide_rows(old_events, conformance):
    text = (RECORDED["WideRowJsonSpec"] / "expected_00_output=good.txt").read_text()
    wide = [json.loads(x) for x in text.splitlines()]
    expected = {row["event_id"]: {name: row[name] for name in ATOMIC} for row in wide}
    found = {event["event_id"]: {name: event[name] for name in ATOMIC} for _, event in old_events}
    assert len(expected) == 48
    assert {event_id: found[event_id] for event_id in expected} == expected


# --- from an event to a line -------------------------------------------------------------------------------


ONE_VALUE = {
    '{"a":1}': True,
    '{"a":1} ': True,
    '{"a":"],["}': True,
    '{"a":1}{"b":2}': False,
    '{"a":1},{"b":2}': False,
    '{"a":1} x': False,
    '{"a":1}],[{"b":2}': False,
    '{"a":1}]{"b":2}': False,
    '{"a":1} ], "b":{}}': False,
    '{"a":[{"b":[{}]} ]}': True,
    "{'a':'}]','b':[{'c':1}]}": True,
    '1],{"a":1}': False,
    "[1]": False,
    "1": False,
    "": False,
    None: False,
}


def test_one_json_object_and_nothing_behind_it(spark):
    frame = spark.createDataFrame([(text,) for text in ONE_VALUE], "t string").coalesce(1)
    found = frame.selectExpr("t", f"coalesce({is_one_json_value('t')}, false) as one").collect()
    assert {r.t: r.one for r in found} == ONE_VALUE

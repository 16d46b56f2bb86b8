"Snowplow's line: which lines are events, what is said of the others, and an event as a line again."

import json
import math
import random
import re
from calendar import monthrange
from decimal import Decimal
from functools import cache

import pytest
from conftest import CONFORMANCE
from inputs import ID, line, opened
from pyspark.sql import functions as F
from runs import committed, go
from spread import configured

import dedup_nb
from dedup_nb.base.config import Config
from dedup_nb.base.errors import ConfigError, OutputError
from dedup_nb.formats.enriched import (
    ENRICHED,
    NAMES,
    REQUIRED,
    bad_lines,
    decimal_text,
    decoded,
    enriched_lines,
    is_one_json_value,
    moment,
    original_of,
    some_values,
    utc_text,
    with_duplicate_context,
    with_line_ids,
)

CONTEXTS = "iglu:com.snowplowanalytics.snowplow/contexts/jsonschema/1-0-1"
UNSTRUCT = "iglu:com.snowplowanalytics.snowplow/unstruct_event/jsonschema/1-0-0"
DUPLICATE = "iglu:com.snowplowanalytics.snowplow/duplicate/jsonschema/1-0-0"
ITEM = '{"schema":"iglu:com.acme/thing/jsonschema/1-0-0","data":{"a":[1,{"b":null}]}}'
ENVELOPES = ("contexts", "unstruct_event", "derived_contexts")
NO_JSON = "the text is not one JSON value"


def contexts(items=ITEM, schema=CONTEXTS, tail=""):
    return f'{{"schema":"{schema}","data":[{items}]}}{tail}'


def unstruct(data=ITEM, schema=UNSTRUCT):
    return f'{{"schema":"{schema}","data":{data}}}'


def item(data, schema="iglu:a/b/jsonschema/1-0-0"):
    return f'{{"schema":"{schema}","data":{data}}}'


def duplicate_of(event_id):
    return item(f'{{"originalEventId":"{event_id}"}}', DUPLICATE)


# --- the cases ---------------------------------------------------------------------------------------------

DAY, TIME = "2026-11-20", "2026-11-20 10:00:00"
AT = 1795168800 * 10**6  # the same in microseconds
GOOD_CELLS = {
    "txn_id": ["+5", "-007", "2147483647", "-2147483648"],
    "se_value": ["10", "-.5E-3", "1.", " 1.5", "1.5\u0020", "1e300", "0", "-0.0"],
    "br_cookies": ["0", "1"],
    "etl_tstamp": [
        TIME,
        f"{DAY}T10:00:00.1",
        f"{TIME}.",
        f"{TIME}.123456789",
        "-0044-03-15 12:00:00",
        "+12026-11-20 10:00:00",
        "2024-02-29 23:59:59",
    ],
    "event_id": [ID.upper()],
    "v_etl": [" "],
    "page_title": ['"quoted', "\\N", "  ", "'", "{", "é\u2028"],
    "contexts": [
        contexts(),
        contexts(""),
        contexts(f"{ITEM},{ITEM}"),
        contexts(item('[1,"x"]')),
        contexts(item("7")),
        contexts(f" {ITEM} ", tail=" "),
        f'\n {{ "data" : [ {ITEM} ] , "schema" : "{CONTEXTS}" }}'.replace("\n", ""),
        contexts(item('{"a":"]},{["}')),
        contexts(item('{"a":"\\"}\\u007d\\\\"}')),
        contexts(item("[" * 40 + "]" * 40)),
        contexts(item('{"a":' * 30 + "{}" + "}" * 30)),
        contexts(item('{"long":"' + "x" * 9000 + '"}')),
    ],
    "derived_contexts": [contexts()],
    "unstruct_event": [
        unstruct(),
        unstruct(item("7")),
        f'{{"data":{ITEM},"schema":"{UNSTRUCT}","more":1}}',
    ],
}
BAD_CELLS = {
    "txn_id": [" 5", "5 ", "5.0", "2147483648", "-2147483649", "-", "1e3", "٣"],
    "se_value": [
        "1,5",
        "x",
        "1_0",
        "nan",
        "NaN",
        "inf",
        "-inf",
        "Infinity",
        "+Infinity",
        "1d",
        "1f",
        "0x1p3",
        ".",
        "1e400",
        "-1e400",
    ],
    "br_cookies": ["2", "true", "01", " 1", "false"],
    "etl_tstamp": [
        f"{DAY} 10:00",
        DAY,
        "2026-02-30 10:00:00",
        "2026-02-29 10:00:00",
        f"{TIME}Z",
        f"{TIME}+01:00",
        f"{TIME}.1234567890",
        f" {TIME}",
        "2026-1-2 10:00:00",
        "10:00:00",
        f"{DAY} 25:00:00",
        "1763632800000",
        "today",
        "12026-11-20 10:00:00",
        f"{TIME}\u2028",
    ],
    "true_tstamp": [f"{TIME}\u2028", "\u0085"],
    "event_id": [
        "",
        ID.replace("-", ""),
        f"{ID} ",
        f"{{{ID}}}",
        "1-1-1-1-1",
        f"{ID[:-1]}g",
        f"{ID}\u2028",
        "null",
    ],
    "v_etl": [""],
    "v_collector": [""],
    "collector_tstamp": [""],
    "derived_contexts": ["&&&", "null", unstruct()],
    "contexts": [
        contexts(schema=CONTEXTS.replace("1-0-1", "1-1-0")),
        contexts(schema=CONTEXTS.replace("1-0-1", "2-0-1")),
        contexts(schema=UNSTRUCT),
        contexts(schema=f"{CONTEXTS}\\n"),
        contexts(tail=" x"),
        contexts(tail=",{}"),
        contexts(tail="] }"),
        contexts(tail='],"k":1} garbage'),
        contexts("1"),
        contexts("null"),
        contexts('"text"'),
        contexts(f"[{ITEM}]"),
        contexts(f"{ITEM},"),
        contexts('{"schema":"iglu:a/b/jsonschema/1-0-0"}'),
        contexts('{"schema":"iglu:a/b/jsonschema/1-0-0","data":null}'),
        contexts('{"schema":"com.acme","data":{}}'),
        contexts('{"data":{}}'),
        contexts("{'schema':'iglu:a/b/jsonschema/1-0-0','data':{}}"),
        contexts(item("{'a':1}")),
        contexts(item('{"a":"\x01"}')),
        contexts(item('{"a":"{{"}') + ',"junk",{"k":{"z":"}}"}}'),
        contexts(item('{"a":"\\x"}')),
        contexts()[:-1],
        contexts(ITEM.replace("1,", "01,")),
        contexts(ITEM.replace("null", "NaN")),
        contexts(ITEM.replace("null", "None")),
        contexts(item('{"a":[}')),
        contexts(item('{"a":]}')),
        contexts(item('[{"a":1]}')),
        f'{{"schema":"{CONTEXTS}","data":{ITEM}}}',
        f"[{contexts()}]",
        f'1],"contexts":[{contexts()}',
        "[]",
        "{}",
        "null",
        " ",
    ],
    "unstruct_event": [unstruct(f"[{ITEM}]"), f'{{"schema":"{UNSTRUCT}"}}', unstruct("null"), contexts()],
}
CELLS = [(name, cell, True) for name, cells in GOOD_CELLS.items() for cell in cells]
CELLS += [(name, cell, False) for name, cells in BAD_CELLS.items() for cell in cells]

# none of these cells is JSON, but what stands between and around them in one text for all of them makes it so
JOINED = [
    {
        "contexts": f'{contexts()}],"unstruct_event":[{{"schema":"{UNSTRUCT}","data":{ITEM},"x":[',
        "unstruct_event": "0",
        "derived_contexts": f']}}],"derived_contexts":[{contexts()}',
    },
    {"contexts": f"{contexts()},[{contexts()}", "unstruct_event": f"{contexts()}]"},
    {
        "contexts": f'{contexts()},{{"a":"',
        "unstruct_event": '","b":"',
        "derived_contexts": f'"}},{contexts()}',
    },
    {"contexts": contexts(item('{"a":[}')), "unstruct_event": unstruct(item('{"a":]}'))},
]

MANY_FAULTS = dict(
    etl_tstamp="x",
    event_id="y",
    txn_id="z",
    v_etl="",
    geo_latitude="n",
    contexts="&&&",
    unstruct_event=contexts(),
    br_cookies="yes",
    derived_contexts="[]",
)
MESSAGES = [
    ("etl_tstamp", "Cannot parse key etl_tstamp into datetime"),
    ("event_id", "Cannot parse key event_id into UUID"),
    ("txn_id", "Cannot parse key txn_id into integer"),
    ("v_etl", "Field v_etl cannot be empty"),
    ("geo_latitude", "Cannot parse key geo_latitude into double"),
    ("contexts", f"ParsingFailure: {NO_JSON}"),
    ("unstruct_event", f"Unknown payload: {CONTEXTS}"),
    ("br_cookies", "Cannot parse key br_cookies into boolean"),
    ("derived_contexts", "DecodingFailure: the JSON is not self-describing contexts"),
]
TYPED = dict(
    etl_tstamp=f"{DAY}T10:00:00.123456789",
    txn_id="-007",
    geo_latitude="1.5e1",
    br_cookies="1",
    dvce_ismobile="0",
    contexts=contexts(),
)
FED_BACK = {  # derived_contexts -> the id that the event came with first
    contexts(duplicate_of("11111111-AAAA-1111-1111-111111111111")): "11111111-aaaa-1111-1111-111111111111",
    contexts(f"{ITEM},{duplicate_of('22222222-1111-1111-1111-111111111111')}"): (
        "22222222-1111-1111-1111-111111111111"
    ),
    # renamed twice: each renaming puts its context first
    contexts(f"{duplicate_of('3' * 8)},{duplicate_of('44444444-1111-1111-1111-111111111111')}"): (
        "44444444-1111-1111-1111-111111111111"
    ),
    contexts(item(json.dumps({"says": DUPLICATE, "originalEventId": "5"}))): None,
    contexts(item("{}", DUPLICATE)): None,
    contexts(duplicate_of("")): None,
    contexts(f"{duplicate_of('6' * 8)},{duplicate_of('')}"): "6" * 8,
    contexts(): None,
}


# --- a plain decoder ---------------------------------------------------------------------------------------


def faults_of(text):
    "The decode rule in plain Python: the wrong cells of a line as (key, value), or how its columns fail."
    cells = text.split("\t")
    if len(cells) != len(NAMES):
        return "NotTSV" if len(cells) == 1 else len(cells)
    return [(name, cell) for (name, kind), cell in zip(ENRICHED, cells) if not is_right(name, kind, cell)]


def is_right(name, kind, cell):
    if cell == "":
        return name not in REQUIRED
    if name in ENVELOPES:
        return is_enveloped(name, cell)
    if name == "event_id":
        return re.fullmatch("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", cell, re.I) is not None
    if kind == "int":
        return re.fullmatch("[+-]?[0-9]+", cell) is not None and -(2**31) <= int(cell) < 2**31
    if kind == "double":
        number = re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", cell.strip(" "))
        return number is not None and math.isfinite(float(number[0]))
    judge = {"boolean": lambda text: text in ("0", "1"), "timestamp": is_instant}
    return judge.get(kind, bool)(cell)


def is_instant(cell):
    # a sign belongs to years of more than four digits, and to those before 0
    year = "(?P<year>[0-9]{4}|-[0-9]{4,6}|[+][0-9]{5,6})"
    clock = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{0,9})?"
    found = re.fullmatch(rf"{year}-(?P<month>[0-9]{{2}})-(?P<day>[0-9]{{2}})[ T]{clock}", cell, re.ASCII)
    if not found or not 1 <= int(found["month"]) <= 12:
        return False
    like = 2000 + int(found["year"]) % 400  # the calendar begins again every 400 years
    return 1 <= int(found["day"]) <= monthrange(like, int(found["month"]))[1]


def is_described(value):
    uri = r"iglu:[\w.-]+/[\w-]+/[\w-]+/[0-9]+-[0-9]+-[0-9]+"
    if not isinstance(value, dict) or value.get("data") is None:
        return False
    return re.fullmatch(uri, str(value.get("schema")), re.ASCII) is not None


def not_json(constant):
    raise ValueError(constant)


def is_enveloped(name, cell):
    try:
        found = json.loads(cell, parse_constant=not_json)
    except ValueError:
        return False
    kind = "unstruct_event" if name == "unstruct_event" else "contexts"
    uri = rf"iglu:com\.snowplowanalytics\.snowplow/{kind}/jsonschema/1-0-[0-9]+"
    if not is_described(found) or not re.fullmatch(uri, found["schema"]):
        return False
    data = found["data"]
    if kind == "unstruct_event":
        return is_described(data)
    return isinstance(data, list) and all(map(is_described, data))


WHOLE = dict(app_id="a", etl_tstamp=f"{TIME}.5", txn_id="12", geo_latitude="1.5", br_cookies="1")
WHOLE |= dict(contexts=contexts(), unstruct_event=unstruct(), derived_contexts=contexts(f"{ITEM},{ITEM}"))
SPARE = ["", "0", "1", "x", " ", TIME, "12.5", ID, contexts(), "null", "{}", "[]", "nan", "1e400"]


def mutated(pick):
    "A good line with up to four faults: characters changed, cells swapped, cut or added."
    cells = line(**WHOLE).split("\t")
    for _ in range(pick.randint(0, 4)):
        filled = [i for i, cell in enumerate(cells) if cell]
        i = pick.choice(filled) if filled and pick.random() < 0.8 else pick.randrange(len(cells))
        cell, at, what = cells[i], pick.randint(0, len(cells[i])), pick.random()
        if what < 0.5:
            cells[i] = cell[:at] + pick.choice("01x -+.:T\"'{}[],\\Zé") + cell[at + pick.randint(0, 1) :]
        elif what < 0.7:
            cells[i] = cell[:at] + cell[at + pick.randint(1, 3) :]
        elif what < 0.9:
            cells[i] = pick.choice(SPARE)
        elif what < 0.95:
            cells = cells[:-1] if pick.random() < 0.5 else [*cells, ""]
        else:
            cells[i] = cell.upper()
    return "\t".join(cells)


def mutants(number, seed):
    pick = random.Random(seed)
    return list(dict.fromkeys(mutated(pick) for _ in range(number)))


CASES = {
    "WideRowJsonSpec": 48,
    "bad_InvalidJsonsSpec": 0,
    "EventDeduplicationSpec_disabled": 3,
    "DerivedContextsSpec": 1,
    "LinkClickEventSpec": 1,
    "MultipleJsonsSpec": 1,
}
RECORDED = {case: CONFORMANCE / "snowplow" / case for case in CASES if CONFORMANCE.is_dir()}
RECORDED_LINES = {case: (folder / "input.tsv").read_text().splitlines() for case, folder in RECORDED.items()}


MINIMUM = "2026-11-20 10:00"
OLD_TIMES = {  # a time of a line -> how it is printed
    "2026-11-20 09:59:59.999999": "2026-11-20T09:59:59.999999Z",
    "2026-11-20T09:59:59": "2026-11-20T09:59:59Z",
    "2026-01-01 00:00:00.12": "2026-01-01T00:00:00.120Z",
    "2026-01-01 00:00:00.123456789": "2026-01-01T00:00:00.123456789Z",
    "2026-01-01 00:00:00.1234": "2026-01-01T00:00:00.123400Z",
    "2026-01-01 00:00:00.000": "2026-01-01T00:00:00Z",
    "2026-01-01 00:00:00.": "2026-01-01T00:00:00Z",
    "-0044-03-15 12:00:00": "-0044-03-15T12:00:00Z",
}
OLD = dict(
    app_id="old",
    collector_tstamp="2026-11-20 09:59:59.999999",
    true_tstamp="2026-01-01 00:00:00.123456789",
    dvce_sent_tstamp="2026-01-01 00:00:00.12",
    etl_tstamp="2026-11-20 10:00:00",
    txn_id="-007",
    se_value="1e7",
    br_cookies="1",
    page_title='say "\\ü"',
    contexts=contexts(),
)


def old_line(time):
    return line(app_id=time, collector_tstamp=time, derived_tstamp=TIME)


OLD_LINES = [line(**OLD), *map(old_line, OLD_TIMES)]
YOUNG = line(collector_tstamp=TIME)
OLD_AND_BAD = line(txn_id="x", etl_tstamp="2020-01-01 00:00:00")


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


def frame_of(spark, lines):
    return spark.createDataFrame(list(enumerate(lines)), "n int, value string")


def failure_of(bad):
    failure = bad["data"]["failure"]
    if "errors" in failure:
        return [(e["key"], e["value"]) for e in failure["errors"]]
    return failure.get("fieldCount", failure["type"])


def judge(spark, lines, minimum=None):
    "The decoded rows by line, the records of lines that are no events by line, and those of old events."
    frame = frame_of(spark, lines)
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


def test_ids_are_found_before_and_after_decoding(judged):
    for text, row in judged[0].items():
        cells = text.split("\t")
        assert row._own == (cells[6].lower() or None if len(cells) > 7 else None)
        assert not row._dd_good or row.event_id == row._own


def test_columns_have_their_real_types(spark):
    frame = decoded(frame_of(spark, []))
    kinds = [(f.name, f.dataType.simpleString()) for f in frame.schema]
    assert kinds == [*ENRICHED, ("n", "int"), ("_dd_good", "boolean"), ("_dd_look", "boolean")]


def test_some_values_are_those_of_the_whole_line(spark, in_session):
    rows = in_session("ANSI, UTC")[0]
    times = [F.unix_micros(name).alias(name) for name in TIMES]
    frame = some_values(frame_of(spark, LINES[:300]), [*TIMES, "txn_id"])
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
        glimpses = some_values(frame_of(spark, lines), [], minimum).collect()
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
    assert not some_values(frame_of(spark, [line(**cells)]), []).first()._dd_look


def test_a_name_that_the_parser_refuses_makes_a_bad_line_in_any_spelling(spark):
    told = [
        contexts(f'{{"schema":"iglu:a/b/jsonschema/1-0-0","data":{{"{60_000 * "x"}":{n}}}}}')
        for n in ("1", "  1")
    ]
    frame = frame_of(spark, [line(contexts=text) for text in told])
    assert [r._dd_good for r in decoded(frame).select("_dd_good").collect()] == [False, False]


def test_a_filter_on_good_does_not_parse_twice(spark):
    plan = decoded(frame_of(spark, [""])).where("_dd_good")._jdf.queryExecution().optimizedPlan().toString()
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


ATOMIC = [name for name in NAMES if name not in ENVELOPES]


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


# --- the duplicate context ---------------------------------------------------------------------------------

PLAIN = {"k": 1}
OTHER = "iglu:a/b/jsonschema/1-0-0"
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
def written(spark):
    "Events as lines again: in New York, with white space in a text and a column that goes."
    recorded = [text for case in WRITTEN for text in RECORDED_LINES.get(case, ())]
    events = decoded(frame_of(spark, [TO_WRITE, *recorded])).select(*NAMES)
    own = F.when(F.col("page_title") == 'say "what"', "a\tb\nc\rd").otherwise(F.col("app_id"))
    events = events.withColumn("original_event_id", F.lit(ID)).withColumn("app_id", own)
    with configured(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        return [r.value for r in enriched_lines(events).collect()]


def test_an_event_becomes_a_line_again(written):
    expected = {
        **TYPED,
        "app_id": "a b c d",
        "etl_tstamp": "2026-11-20 10:00:00.123456",
        "txn_id": "-7",
        "geo_latitude": "15.0",
        "page_title": 'say "what"',
        "se_value": "0.000012",
    }
    assert written[0] == line(**expected)


def test_recorded_events_are_written_as_the_recorded_atomic_rows(written, conformance):
    expected = []
    for case in WRITTEN:
        expected += (RECORDED[case] / "expected_00_atomic.txt").read_text().splitlines()
    own_ids = ATOMIC.index("event_id")  # a dummy in one of the recorded cases
    rows = [dict(zip(NAMES, text.split("\t"))) for text in written[1:]]
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


ONE_VALUE = {
    '{"a":1}': True,
    '{"a":1} ': True,
    '{"a":"],["}': True,
    '{"a":1}{"b":2}': False,
    '{"a":1},{"b":2}': False,
    '{"a":1} x': False,
    '{"a":1}],[{"b":2}': False,
    "[1]": False,
    "1": False,
    "": False,
    None: False,
}


def test_one_json_object_and_nothing_behind_it(spark):
    frame = spark.createDataFrame([(text,) for text in ONE_VALUE], "t string").coalesce(1)
    found = frame.selectExpr("t", f"coalesce({is_one_json_value('t')}, false) as one").collect()
    assert {r.t: r.one for r in found} == ONE_VALUE

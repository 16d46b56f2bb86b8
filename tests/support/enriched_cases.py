"Snowplow's line: cells that are right and wrong, a plain decoder, and lines that are nearly events."

import json
import math
import random
import re
from calendar import monthrange

from conftest import CONFORMANCE
from inputs import ID, line

from dedup_nb.formats.enriched import ENRICHED, NAMES, REQUIRED

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


def entity_text(data, schema="iglu:a/b/jsonschema/1-0-0"):
    return f'{{"schema":"{schema}","data":{data}}}'


def duplicate_of(event_id):
    return entity_text(f'{{"originalEventId":"{event_id}"}}', DUPLICATE)


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
        contexts(entity_text('[1,"x"]')),
        contexts(entity_text("7")),
        contexts(f" {ITEM} ", tail=" "),
        f'\n {{ "data" : [ {ITEM} ] , "schema" : "{CONTEXTS}" }}'.replace("\n", ""),
        contexts(entity_text('{"a":"]},{["}')),
        contexts(entity_text('{"a":"\\"}\\u007d\\\\"}')),
        contexts(entity_text("[" * 40 + "]" * 40)),
        contexts(entity_text('{"a":' * 30 + "{}" + "}" * 30)),
        contexts(entity_text('{"long":"' + "x" * 9000 + '"}')),
    ],
    "derived_contexts": [contexts()],
    "unstruct_event": [
        unstruct(),
        unstruct(entity_text("7")),
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
        contexts(entity_text("{'a':1}")),
        contexts(entity_text('{"a":"\x01"}')),
        contexts(entity_text('{"a":"{{"}') + ',"junk",{"k":{"z":"}}"}}'),
        contexts(entity_text('{"a":"\\x"}')),
        contexts()[:-1],
        contexts(ITEM.replace("1,", "01,")),
        contexts(ITEM.replace("null", "NaN")),
        contexts(ITEM.replace("null", "None")),
        contexts(entity_text('{"a":[}')),
        contexts(entity_text('{"a":]}')),
        contexts(entity_text('[{"a":1]}')),
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
    {"contexts": contexts(entity_text('{"a":[}')), "unstruct_event": unstruct(entity_text('{"a":]}'))},
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
    contexts(entity_text(json.dumps({"says": DUPLICATE, "originalEventId": "5"}))): None,
    contexts(entity_text("{}", DUPLICATE)): None,
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


ATOMIC = [name for name in NAMES if name not in ENVELOPES]


def numbered_lines(spark, lines):
    return spark.createDataFrame(list(enumerate(lines)), "n int, value string")

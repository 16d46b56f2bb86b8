"""Enriched lines with something wrong, or so unusual that only one of two judges may take them."""

import random

from evidence import broken, lines_of
from runs import SAMPLES

TIMES = """2026-11-20T10:00:00|2026-11-20 10:00:00.123456|2026-11-20 24:00:00|2026-11-20|2026-11-20 10:00
2026-11-20 10:00:00.|2026-11-20 10:00:00.1234567|0000-01-01 00:00:00|2026-11-20 10:00:60|2025-02-29 10:00:00
+12026-11-20 10:00:00|2026-11-20 10:00:00Z"""
ITEM = '{"schema":"iglu:com.acme/a/jsonschema/1-0-0","data":{"a":%s}}'
ENVELOPE = '{"schema":"iglu:com.snowplowanalytics.snowplow/contexts/jsonschema/1-0-0","data":[%s]}'
RIGHT = ENVELOPE % (ITEM % "1")
VALUES = ["1", "01", "1.", "NaN", "[-Infinity]", "[Inf]", "'x'", r'"\x"', r'"\ud800"', "1e999", "1 2", "tru"]
VALUES += ['{"b":1,"b":2}', "[" * 1100 + "]" * 1100, "1" * 1100]
CELLS = {
    "collector_tstamp": TIMES.replace("\n", "|").split("|"),
    "txn_id": ["007", "+1", "-0", "2147483647", "2147483648", "0x1F", " 1", "1 ", "1_000", "١"],
    "se_value": "1. .5 1e5 1E-400 1e400 nan Infinity 0x1p3 1d 1f -0 1e".split() + [" 1", "9" * 40],
    "br_cookies": ["0", "1", "true", "2", "01"],
    "event_id": ["C6EF3124-B53A-4B13-A233-0088F79DCBCB", "c6ef3124b53a4b13a2330088f79dcbcb", "x", ""],
    "v_etl": ["", " ", "\u00a0"],
    "contexts": [
        *(ENVELOPE % (ITEM % text) for text in VALUES),
        *(ENVELOPE % ITEM.replace('{"a":%s}', data) for data in ("[1]", "null")),
        *(ENVELOPE % "null", ENVELOPE % "", f"{RIGHT} ", f" {RIGHT}", RIGHT + "{}", RIGHT + ",1"),
        RIGHT.replace("contexts", "unstruct_event"),
        RIGHT.replace("1-0-0", "1-0-0\u0085"),
        RIGHT.replace('"data":[', '"schema":"x","data":['),
        RIGHT.replace('"data":{', '"data":{},"data":{'),
        *("{}", "[]", "null", '"x"'),
    ],
}


def odd_lines(number, seed=7):
    "Lines of the samples with something wrong."
    pick = random.Random(seed)
    good = [line for path in sorted(SAMPLES.glob("run=*/*")) for line in lines_of(path)][:1000]
    lines = (broken(pick.choice(good), pick) for _ in range(number))
    return [line.replace("\n", " ").replace("\r", " ") for line in lines]

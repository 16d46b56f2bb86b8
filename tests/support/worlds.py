"Frames of literal or random rows, and what the reference expects `deduplicate` to make of them."

import json
import random
import re
from collections import Counter
from functools import reduce
from uuid import uuid5

import pytest
import reference
from pyspark.sql import functions as F
from spread import SMALL, configured

from dedup_nb.rules.deduplicate import deduplicate
from dedup_nb.rules.keys import NAMESPACE

COLUMNS = ["event_id", "event_fingerprint", "etl_tstamp", "collector_tstamp", "app"]
WIDE = [*COLUMNS, "original_event_id"]
FRAMES = ["kept", "dropped", "bad", "verdicts"]
STRATEGIES = list(reference.STRATEGIES)

T = ["2026-11-20T00:00:00.000000Z", "2026-11-20T00:00:00.000001Z", "2026-11-21T07:00:00.500000Z"]
JSON = {"ignoreNullFields": "false", "timeZone": "UTC", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}


# --- frames and what is expected of them -------------------------------------------------------------------


def frame_of_texts(spark, rows, columns=COLUMNS):
    "Rows of text in one partition; what is called a time is one."
    ddl = ", ".join(f"{c} string" for c in columns)
    texts = spark.createDataFrame([tuple(r[c] for c in columns) for r in rows], ddl)
    return texts.withColumns({c: F.col(c).cast("timestamp") for c in columns if c.endswith("_tstamp")})


def text_of(row):
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"))


def rows_found(result):
    "The four frames as multisets of JSON texts, by one job."
    parts = [getattr(result, name).select(F.lit(name), F.to_json(F.struct("*"), JSON)) for name in FRAMES]
    found = {name: Counter() for name in FRAMES}
    for name, text in reduce(lambda a, b: a.union(b), parts).collect():
        found[name][text] += 1
    return found


def deduplicated(spark, rows, columns=COLUMNS, partitions=1, **chosen):
    events = frame_of_texts(spark, rows, columns)
    if partitions > 1:
        events = events.repartition(partitions)
    # else the rows are made anew for each of the four frames
    events = events.cache()
    with configured(spark, SMALL | {"spark.sql.shuffle.partitions": str(min(partitions, 5))}):
        found = rows_found(deduplicate(events, **chosen))
    events.unpersist()
    return found


KEY_COLUMNS = {"event_id", "event_fingerprint", "etl_tstamp", "collector_tstamp", "original_event_id"}


def surrogate_of(row):
    return "surrogate-" + reference.sha256_of(row, [c for c in row if c not in KEY_COLUMNS])


def outcome_of(rows, columns=COLUMNS, **chosen):
    "What the reference gives."
    rows = [{c: row[c] for c in columns} for row in rows]
    hashes = dict(row_hash=lambda row: reference.sha256_of(row, columns), surrogate=surrogate_of)
    return reference.deduplicate(rows, namespace=NAMESPACE, **hashes, **chosen)


def rows_expected(rows, columns=COLUMNS, **chosen):
    outcome = outcome_of(rows, columns, **chosen)
    return {name: Counter(map(text_of, getattr(outcome, name))) for name in FRAMES}


def assert_agrees(found, expected, rows=()):
    for name in FRAMES:
        missing = list((expected[name] - found[name]).elements())
        extra = list((found[name] - expected[name]).elements())
        if missing or extra:
            differ = [json.loads(text) for text in missing + extra]
            ids = {row.get(c) for row in differ for c in ("event_id", "original_event_id")} - {None}
            own = [str(r) for r in rows if {r["event_id"], r.get("original_event_id")} & ids]
            lines = [f"{name} lacks:", *missing[:5], f"{name} has instead:", *extra[:5], "rows of these ids:"]
            pytest.fail("\n".join([*lines, *own[:20]]), pytrace=False)


def counts_of_kept_ids(found):
    return Counter({json.loads(text)["event_id"]: n for text, n in found["kept"].items()})


# --- worlds ------------------------------------------------------------------------------------------------


ODD_IDS = [None, "", "ID1", " ", 'é"\\\n', "a/b", "a%2Fb", *["hot"] * 9]
PRINTS = [None, "", "f", "g", "F", "surrogate-x"]
CONTENTS = [None, "", "x", 'ÿ\t"\\\u0001/']


def crowded(seed, size=300):
    "Rows full of ties: ids with one pair, with many, equal rows, and every kind of missing value."
    pick = random.Random(seed)
    ids = ODD_IDS + [f"id{i}" for i in range(size // 7)]
    kinds = ids, PRINTS, [None, *T], [None, *T[:2]], CONTENTS
    rows = [dict(zip(COLUMNS, map(pick.choice, kinds))) for _ in range(size)]
    return rows + pick.sample(rows, size // 5) + without_a_column(seed)


def without_a_column(seed):
    "For each column a world in which it is null."
    pick, rows = random.Random(seed), []
    for column in COLUMNS[1:]:
        kinds = [f"no {column}"], ["f", "g"], T, T, ["x", "y"]
        own = [dict(zip(COLUMNS, map(pick.choice, kinds))) | {column: None} for _ in range(6)]
        rows += own + own[:2]
    return rows


def came_again(rows, seed):
    "Some rows come as what they were renamed to, with the id that they had first; some name another event."
    pick, kinds = random.Random(seed), [is_reingested, is_reingested, own_original, *[not_renamed] * 5]
    return [r | pick.choice(kinds)(r) for r in rows]


def not_renamed(row):
    return {"original_event_id": None}


def own_original(row):
    "A column of the input that has our name, such as the event that a refund is about."
    return {"original_event_id": "id1"}


def is_reingested(row):
    event_id, fingerprint = row["event_id"], row["event_fingerprint"]
    if not event_id or not fingerprint:
        return {"original_event_id": event_id}  # says the same, or nothing
    mark = "=" * bool(re.match("=*surrogate-", fingerprint))
    name = f"{event_id.replace('%', '%25').replace('/', '%2F')}/{mark}{fingerprint}"
    return {"event_id": str(uuid5(NAMESPACE, name)), "original_event_id": event_id}


def new_id(event_id, name):
    return str(uuid5(NAMESPACE, f"{event_id.replace('%', '%25').replace('/', '%2F')}/{name}"))

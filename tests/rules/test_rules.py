"The rules on literal rows: who stays, under which id, who goes and why; keys, columns, errors."

import json
import os
import subprocess
import sys
from collections import Counter
from functools import cache, reduce
from hashlib import sha256
from uuid import uuid5

import pandas as pd
import pyspark
import pytest
from conftest import ROOT
from pyspark.sql import functions as F
from spread import configured
from test_laws import (
    COLUMNS,
    SMALL,
    WIDE,
    T,
    assert_agrees,
    came_again,
    crowded,
    deduplicated,
    frame_of,
    ids_of,
    rows_expected,
    rows_found,
    surrogate_of,
)

from dedup_nb.base.canonical import field_at, micros_of
from dedup_nb.base.config import Output, Recipe
from dedup_nb.base.errors import ConfigError, InputError, MissingColumnError
from dedup_nb.base.spark import check_spark, get_spark, temporary_conf
from dedup_nb.pipeline.decide import differing_words
from dedup_nb.pipeline.write import check_columns_fit
from dedup_nb.rules.cross_batch import Fate, cross_batch, id_key, pair_key
from dedup_nb.rules.deduplicate import (
    VERDICTS,
    Deduplicated,
    decide,
    deduplicate,
    dropped_rows,
    kept_rows,
    with_decisions,
)
from dedup_nb.rules.keys import (
    NAMESPACE,
    check_columns,
    fingerprint_of,
    fit,
    hash_of,
    is_reingested,
    looked_up_id,
    new_event_id,
    own_id,
    place_of,
    suspect_ids,
    with_ids,
    with_keys,
)
from dedup_nb.rules.natural import distinct_with_counts, natural
from dedup_nb.rules.synthetic import synthetic

STRATEGIES = ["rename_later", "rename_all", "quarantine", "delete_all", "off"]


def new(event_id, name):
    return str(uuid5(NAMESPACE, f"{event_id.replace('%', '%25').replace('/', '%2F')}/{name}"))


# --- literal rows under every strategy ---------------------------------------------------------------------

STAND_IN = surrogate_of({"app": "x"})
LITERALS = [  # id, fingerprint, place in time (None: no time), content, the id that it came with first
    ("a", "f", 1, "x", None),
    ("a", "g", 2, "y", None),
    ("a", "g", 3, "z", None),
    ("b", "f", 1, "x", None),
    ("b", "f", 2, "y", None),
    ("b", "g", 3, "z", None),
    ("once", "f", 1, "x", None),
    ("twice", "f", 2, "x", None),
    ("twice", "f", 1, "y", None),
    ("twice", "f", None, "z", None),
    (None, "f", 1, "x", None),
    ("", "f", 1, "x", "a"),
    # the names of their new ids must differ
    ("s", "f", 1, "x", None),
    ("s", "b/c", 2, "x", None),
    ("s/b", "f", 1, "x", None),
    ("s/b", "c", 2, "x", None),
    # what stands in for a missing fingerprint is no real one
    ("r", None, 1, "x", None),
    ("r", STAND_IN, 2, "x", None),
    ("r", f"={STAND_IN}", 3, "x", None),
    ("r", "", 3, "x", None),
    # rows that were renamed before are the pairs that they were
    (new("c", "g"), "g", 2, "alone", "c"),
    ("d", "f", 1, "x", None),
    ("d", "g", 2, "y", None),
    (new("d", "g"), "g", 3, "again", "d"),
    (new("e", "g"), "g", 1, "first", "e"),
    ("e", "g", 2, "late", None),
    ("h", "f", 1, "x", None),
    ("foreign", "g", 2, "y", "h"),
    ("foreign", "g", 3, "y", "h"),
    ("i", "f", 1, "x", ""),
    ("i", "g", 2, "y", ""),
    ("j", "f", 1, "x", "j"),
    ("j", "f", 2, "y", None),
]


def row_of(event_id, fingerprint, n, app, original):
    time = n and T[n - 1]
    return dict(zip(WIDE, (event_id, fingerprint, time, None, app, original)))


ROWS = [row_of(*values) for values in LITERALS] + came_again(crowded(1, 150), 1)


@pytest.fixture(scope="module", autouse=True)
def one_partition(spark):
    with configured(spark, SMALL):
        yield
    spark.catalog.clearCache()


@pytest.fixture(scope="module")
def results(spark, one_partition):
    "What each strategy makes of the rows, step by step as a run does it."
    events, keys = frame_of(spark, ROWS, WIDE), fit(Recipe(), WIDE)
    rows = with_ids(events, keys).cache()
    suspects = distinct_with_counts(with_keys(rows.where("_dd_id is not null"), keys)).cache()
    found = {}
    for strategy in STRATEGIES:
        decisions = decide(suspects, strategy, batch_id="day1").cache()
        together = with_decisions(suspects, decisions)
        found[strategy] = Deduplicated(
            kept_rows(together, WIDE, keys.id),
            dropped_rows(together),
            rows.where("_dd_id is null").drop("_dd_id"),
            decisions.where("verdict is not null").select(*VERDICTS),
        )
    return found


@pytest.fixture(scope="module")
def outcome(results):
    "The rows of each result, collected once for all tests."
    return cache(lambda strategy: rows_found(results[strategy]))


every_strategy = pytest.mark.parametrize("strategy", STRATEGIES)


@every_strategy
def test_every_strategy_agrees_with_the_reference(outcome, strategy):
    expected = rows_expected(ROWS, WIDE, synthetic=strategy, batch_id="day1")
    assert_agrees(outcome(strategy), expected, ROWS)


@every_strategy
def test_rows_in_are_kept_dropped_or_bad(outcome, strategy):
    found = outcome(strategy)
    out = [json.loads(text) for name in ("kept", "dropped", "bad") for text in found[name].elements()]
    content = COLUMNS[1:]
    assert Counter(tuple(row[c] for c in content) for row in out) == Counter(
        tuple(row[c] for c in content) for row in ROWS
    )


@pytest.mark.parametrize("strategy", STRATEGIES[:-1])
def test_ids_in_kept_are_unique_under_every_strategy_but_off(outcome, strategy):
    found = outcome(strategy)
    assert set(ids_of(found).values()) == {1}


@every_strategy
def test_dropped_rows_point_at_a_row_that_is_kept(outcome, strategy):
    found = outcome(strategy)
    dropped = [json.loads(text)["dedup"] for text in found["dropped"]]
    named = {d["kept_event_id"] for d in dropped} - {None}
    assert named and named <= set(ids_of(found))
    assert {d["kept_in_batch"] for d in dropped if d["kept_event_id"]} == {"day1"}


def of_ids(found, *ids):
    "Of the rows that came with these ids: what was kept, dropped and said, as short tuples."
    place = {None: None} | {time: n for n, time in enumerate(T, 1)}
    rows = {name: [json.loads(t) for t in found[name].elements()] for name in found}
    own = {
        name: [r for r in rows[name] if {r["event_id"], r.get("original_event_id")} & set(ids)]
        for name in rows
    }
    kept = [(r["event_id"], place[r["etl_tstamp"]], r["original_event_id"]) for r in own["kept"]]
    dropped = [
        (r["event_id"], place[r["etl_tstamp"]], r["dedup"]["reason"], r["dedup"]["kept_event_id"])
        for r in own["dropped"]
    ]
    said = [tuple(r[c] for c in VERDICTS[:-1]) for r in own["verdicts"]]
    return [sorted(rows, key=str) for rows in (kept, dropped, said)]


AF, AG, BF, BG = new("a", "f"), new("a", "g"), new("b", "f"), new("b", "g")
COLLISION = {  # strategy -> kept, dropped, verdicts
    "rename_later": (
        [("a", 1, None), (AG, 2, "a"), ("b", 1, None), (BG, 3, "b")],
        [("a", 3, "natural", AG), ("b", 2, "natural", "b")],
        [
            ("a", "f", 1, "keep_first", "synthetic", None),
            ("a", "g", 2, "rename", "synthetic", AG),
            ("b", "f", 2, "keep_first", "natural", None),
            ("b", "g", 1, "rename", "synthetic", BG),
        ],
    ),
    "rename_all": (
        [(AF, 1, "a"), (AG, 2, "a"), (BF, 1, "b"), (BG, 3, "b")],
        [("a", 3, "natural", AG), ("b", 2, "natural", BF)],
        [
            ("a", "f", 1, "rename", "synthetic", AF),
            ("a", "g", 2, "rename", "synthetic", AG),
            ("b", "f", 2, "rename", "synthetic", BF),
            ("b", "g", 1, "rename", "synthetic", BG),
        ],
    ),
    "quarantine": (
        [("a", 1, None), ("b", 1, None)],
        [("a", 2, "synthetic", None), ("a", 3, "natural", None)]
        + [("b", 2, "natural", "b"), ("b", 3, "synthetic", None)],
        [
            ("a", "f", 1, "keep_first", "synthetic", None),
            ("a", "g", 2, "quarantine", "synthetic", None),
            ("b", "f", 2, "keep_first", "natural", None),
            ("b", "g", 1, "quarantine", "synthetic", None),
        ],
    ),
    "delete_all": (
        [],
        [("a", 1, "synthetic", None), ("a", 2, "synthetic", None), ("a", 3, "natural", None)]
        + [("b", 1, "synthetic", None), ("b", 2, "natural", None), ("b", 3, "synthetic", None)],
        [
            ("a", "f", 1, "drop", "synthetic", None),
            ("a", "g", 2, "drop", "synthetic", None),
            ("b", "f", 2, "drop", "synthetic", None),
            ("b", "g", 1, "drop", "synthetic", None),
        ],
    ),
    "off": (
        [("a", 1, None), ("a", 2, None), ("b", 1, None), ("b", 3, None)],
        [("a", 3, "natural", "a"), ("b", 2, "natural", "b")],
        [
            ("a", "f", 1, "keep_first", "synthetic", None),
            ("a", "g", 2, "keep_first", "natural", None),
            ("b", "f", 2, "keep_first", "natural", None),
        ],
    ),
}


@pytest.mark.parametrize("strategy, expected", COLLISION.items(), ids=COLLISION)
def test_events_that_share_an_id_go_by_the_strategy(outcome, strategy, expected):
    assert of_ids(outcome(strategy), "a", "b") == [sorted(rows, key=str) for rows in expected]


@every_strategy
def test_ids_with_one_pair_keep_their_first_copy_under_every_strategy(outcome, strategy):
    kept, dropped, said = of_ids(outcome(strategy), "once", "twice")
    assert kept == [("once", 1, None), ("twice", 1, None)]
    assert dropped == [("twice", 2, "natural", "twice"), ("twice", None, "natural", "twice")]
    assert said == [("twice", "f", 3, "keep_first", "natural", None)]


@every_strategy
def test_rows_without_an_id_are_bad_and_as_they_were(outcome, strategy):
    bad = [json.loads(text) for text in outcome(strategy)["bad"]]
    assert [r for r in bad if r["event_fingerprint"] == "f" and r["original_event_id"] == "a"] == [
        row_of(*LITERALS[11])
    ]
    assert not [r for r in bad if r["event_id"]]


def test_ids_and_fingerprints_with_a_slash_do_not_share_a_new_id(outcome):
    kept, _, _ = of_ids(outcome("rename_later"), "s", "s/b")
    assert [row[0] for row in kept] == sorted(["s", new("s", "b/c"), "s/b", new("s/b", "c")])
    assert len(set(row[0] for row in kept)) == 4


def test_a_surrogate_never_equals_a_real_fingerprint(outcome):
    kept, dropped, said = of_ids(outcome("rename_all"), "r")
    assert len({row[0] for row in kept}) == 3
    assert [row[1:3] for row in dropped] == [(3, "natural")]
    assert {row[1] for row in said} == {STAND_IN, f"={STAND_IN}"}


FED_BACK = {  # id -> kept, dropped under rename_later
    "c": ([(new("c", "g"), 2, "c")], []),
    "d": ([("d", 1, None), (new("d", "g"), 2, "d")], [(new("d", "g"), 3, "natural", new("d", "g"))]),
    "e": ([(new("e", "g"), 1, "e")], [("e", 2, "natural", new("e", "g"))]),
    "h": ([("foreign", 2, "h"), ("h", 1, None)], [("foreign", 3, "natural", "foreign")]),
    "i": ([(new("i", "g"), 2, "i"), ("i", 1, "")], []),
    "j": ([("j", 1, "j")], [("j", 2, "natural", "j")]),
}


@pytest.mark.parametrize("event_id, expected", FED_BACK.items())
def test_a_row_that_comes_renamed_is_the_pair_that_it_was_and_keeps_its_id(outcome, event_id, expected):
    kept, dropped, _ = of_ids(outcome("rename_later"), event_id)
    assert (kept, dropped) == tuple(sorted(rows, key=str) for rows in expected)


# --- the whole of `deduplicate` ----------------------------------------------------------------------------


SNOWPLOW = [
    ("a", "f", T[0], T[0], "x"),
    ("a", "f", None, T[1], "y"),
    ("b", "f", T[0], None, "x"),
    ("b", "f", T[0], T[0], "y"),
    ("c", None, T[0], T[0], "x"),
    ("c", "", T[0], T[1], "x"),
    ("d", "f", T[1], T[1], "x"),
    ("d", "g", T[0], T[1], "x"),
]


def test_compat_snowplow_takes_a_null_time_first_renames_all_and_never_matches_missing_fingerprints(spark):
    literal = [dict(zip(COLUMNS, row)) for row in SNOWPLOW]
    rows, chosen = literal + crowded(7, 100), dict(compat="snowplow", batch_id="2026-11-20")
    found = deduplicated(spark, rows, **chosen)
    assert_agrees(found, rows_expected(rows, **chosen), rows)
    c1, c2 = (new("c", f"{STAND_IN}/2026-11-20/{n}") for n in (1, 2))
    kept, dropped, said = of_ids(found, *"abcd")
    expected = [
        ("a", None, None),
        ("b", 1, None),
        (c1, 1, "c"),
        (c2, 1, "c"),
        (new("d", "f"), 2, "d"),
        (new("d", "g"), 1, "d"),
    ]
    assert kept == sorted(expected, key=str)
    assert dropped == [("a", 1, "natural", "a"), ("b", 1, "natural", "b")]
    assert [row for row in said if row[0] == "c"] == sorted(
        ("c", STAND_IN, 1, "rename", "synthetic", c) for c in (c1, c2)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "chosen",
    [
        dict(natural="off", synthetic="off"),
        *(dict(synthetic=s, missing_fingerprint=p) for s in STRATEGIES for p in ("unique", "id")),
    ],
    ids=str,
)
def test_other_settings_agree_with_the_reference(spark, chosen):
    rows = crowded(8)
    assert_agrees(deduplicated(spark, rows, **chosen), rows_expected(rows, **chosen), rows)


def test_an_empty_frame_gives_four_empty_frames_of_the_same_shape(spark):
    result = deduplicate(frame_of(spark, []))
    assert result.kept.columns == [*COLUMNS, "original_event_id"] and result.bad.columns == COLUMNS
    assert result.dropped.columns == [*COLUMNS, "dedup"] and result.verdicts.columns == VERDICTS
    assert result.dropped.select("dedup.*").columns == ["reason", "kept_event_id", "kept_in_batch"]
    assert result.bad.isEmpty()


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["surrogate", "unique"])
def test_an_empty_frame_gives_no_rows(spark, policy):
    assert not any(deduplicated(spark, [], missing_fingerprint=policy).values())


def test_a_result_shows_its_counts_as_a_table(results):
    shown = results["quarantine"]._repr_html_()
    for word in ("keep_first", "quarantine", "natural", "synthetic", "pairs", "rows"):
        assert word in shown


# --- missing fingerprints ----------------------------------------------------------------------------------

ENRICHED_ENOUGH = ["event_id", "collector_tstamp", "v_collector", "v_etl", "page_url", "hour", "_ingested_at"]
POLICIES = {  # columns, settings -> what stands in, the columns that it hashes
    "no fingerprints, an ingestion column": (
        ["event_id", "page", "_ingested_at"],
        {},
        "id",
        ("page", "_ingested_at"),
    ),
    "a column of fingerprints": (["event_id", "event_fingerprint", "page"], {}, "surrogate", ("page",)),
    "named columns": (
        ["event_id", "page", "_ingested_at"],
        {"fingerprint_columns": ("page",)},
        "surrogate",
        ("page",),
    ),
    "asked for": (["event_id", "page"], {"missing_fingerprint": "surrogate"}, "surrogate", ("page",)),
    "unique": (["event_id", "page"], {"missing_fingerprint": "unique"}, "unique", ("page",)),
    "enriched events": (ENRICHED_ENOUGH, {}, "surrogate", ("page_url",)),
    "enriched events by the id": (ENRICHED_ENOUGH, {"missing_fingerprint": "id"}, "id", ("page_url",)),
    "order columns do not count": (["event_id", "n", "page"], {"order_by": ("n desc",)}, "id", ("page",)),
    "a column of originals does not count": (["event_id", "original_event_id", "page"], {}, "id", ("page",)),
}


@pytest.mark.parametrize("columns, settings, policy, hashed", POLICIES.values(), ids=POLICIES)
def test_what_stands_in_for_a_fingerprint_goes_by_the_input(columns, settings, policy, hashed):
    keys = fit(Recipe(**settings), columns)
    assert (keys.missing, keys.surrogate) == (policy, hashed)


def test_columns_that_folders_give_never_enter_a_surrogate():
    columns = ["event_id", "event_fingerprint", "page", "dt", "hour"]
    assert fit(Recipe(), columns, folders=["dt", "hour"]).surrogate == ("page",)


INGESTED = [  # id, page, when our own job took it in
    ("a", "/home", "10:01"),
    ("a", "/home", "10:02"),
    ("b", "/home", "10:01"),
    ("b", "/cart", "10:02"),
    ("c", "/home", "10:01"),
    ("d", None, "10:02"),
    ("d", "/home", "10:01"),
    ("e", "/home", "10:01"),
    ("e", "/home", "10:01"),
]
INGESTED_AS = "event_id string, page string, _ingested_at string"


def test_an_ingestion_column_does_not_make_every_copy_another_event(spark):
    events = spark.createDataFrame(INGESTED, INGESTED_AS).cache()
    kept = deduplicate(events).kept.select("event_id", "original_event_id").collect()
    assert sorted(kept) == [(event_id, None) for event_id in "abcde"]


def test_dropped_copies_that_differ_from_the_one_that_stays_are_counted_by_column(spark):
    events = spark.createDataFrame(INGESTED, INGESTED_AS).coalesce(1)
    keys = fit(Recipe(order_by=("_ingested_at",)), events.columns)
    suspects = with_keys(with_ids(events, keys), keys).cache()
    decisions = decide(suspects, "rename_later").cache()
    words = differing_words(suspects, decisions, events.columns)
    assert "(missing_fingerprint=id): 3 dropped copies differ from the one that stays" in words
    assert "(_ingested_at: 3, page: 2)" in words and "fingerprint_columns" in words
    equal = differing_words(
        suspects.where("event_id = 'e'"), decisions.where("event_id = 'e'"), events.columns
    )
    assert equal.endswith("copies equal the one that stays, but for the columns that order them")


def test_copies_that_differ_by_microseconds_differ(spark):
    rows = spark.sql("select 'a' as event_id, timestamp_micros(id) as at from range(1, 3)")
    keys = fit(Recipe(order_by=("at",)), rows.columns)
    suspects = with_keys(with_ids(rows, keys), keys)
    assert "(at: 1)" in differing_words(suspects, decide(suspects, "rename_later"), rows.columns)


ENRICHED_AS = (
    "event_id string, page_url string, _ingested_at string, v_collector string, v_etl string, "
    "collector_tstamp string"
)
PRINTS = {  # settings, columns -> how many fingerprints the rows have
    "no fingerprints: the id alone": ({}, INGESTED_AS, 1),
    "each column counts": ({"missing_fingerprint": "surrogate"}, INGESTED_AS, 4),
    "one column counts": ({"fingerprint_columns": ("page",)}, INGESTED_AS, 3),
    "each row is its own": ({"missing_fingerprint": "unique"}, INGESTED_AS, 8),
    "enriched events: what the client sent": ({}, ENRICHED_AS, 3),
}


@pytest.mark.parametrize("settings, ddl, number", PRINTS.values(), ids=PRINTS)
def test_an_ingestion_column_counts_only_where_all_columns_do(spark, settings, ddl, number):
    rows = [(*row, "c", "e", row[2]) for row in INGESTED]
    events = spark.createDataFrame([row[: ddl.count(",") + 1] for row in rows], ddl).coalesce(1)
    prints = events.select(fingerprint_of(events, fit(Recipe(**settings), events.columns))).collect()
    assert len(set(prints)) == number
    assert all(p[0].startswith("surrogate-") for p in prints)


# --- columns of any kind -----------------------------------------------------------------------------------

ODD_KINDS = """map('b', n, 'a', 1) as m, 1 as `tick``ed`, array(n, null) as `a list`, 'r' as reason,
    named_struct('x', n, 'y.z', map(1, cast(null as string))) as `A.Struct`, n > 1 as `is it`,
    array(named_struct('m', map('k', array(n)))) as deep, cast('é' as binary) as bin,
    cast(n as decimal(38, 10)) as DEC, date'2026-11-20' as day, cast('NaN' as double) as ratio,
    timestamp_ntz'2026-03-29 02:30:00' as local, cast(null as map<string,int>) as none,
    map_from_arrays(k, transform(k, x -> 1)) as entries, cast(null as string) as derived_contexts"""
ODD_ROWS = """('a', 'f', 1, array('x', 'y')), ('b', 'f', 1, array('x', 'y')), ('b', 'f', 2, array('x', 'y')),
    ('c', null, 1, array('x', 'y')), ('c', null, 2, array('x', 'y')), ('c', null, 2, array('x', 'y')),
    ('d', null, 1, array('x', 'y')), ('d', null, 1, array('y', 'x'))"""


@pytest.fixture(scope="module")
def odd(spark):
    "Columns of any kind and name, in and out."
    rows = f"values {ODD_ROWS} as t(`the.id`, `My Print`, n, k)"
    events = spark.sql(f"select *, {ODD_KINDS} from {rows}").drop("k").coalesce(1).cache()
    result = deduplicate(events, event_id="the.id", event_fingerprint="My Print", order_by="DEC")
    return events, result, result.kept.collect(), result.dropped.collect()


def test_columns_of_any_kind_and_name_pass_untouched(odd):
    events, result, kept, dropped = odd
    assert result.kept.columns == [*events.columns, "original_event_id"]
    assert result.dropped.columns == [*events.columns, "dedup"]
    assert [f.dataType for f in result.kept.schema][:-1] == [f.dataType for f in events.schema]
    plain = [c for c in events.columns if c not in ("the.id", "derived_contexts", "entries")]

    def shown(event_id, row):
        return repr((event_id, *(row[c] for c in plain)))

    out = [shown(r["original_event_id"] or r["the.id"], r) for r in kept] + [
        shown(r["the.id"], r) for r in dropped
    ]
    assert Counter(out) == Counter(shown(r["the.id"], r) for r in events.collect())


def test_maps_that_differ_only_in_the_order_of_their_entries_are_equal(odd):
    _, _, kept, dropped = odd
    assert [r["entries"] for r in kept if r["the.id"] == "d"] == [{"x": 1, "y": 1}]
    assert [r["dedup"].kept_event_id for r in dropped if r["the.id"] == "d"] == ["d"]


def test_a_renamed_event_carries_the_duplicate_context(odd):
    [renamed] = [r for r in odd[2] if r["original_event_id"]]
    [context] = json.loads(renamed["derived_contexts"])["data"]
    assert (renamed["original_event_id"], context["data"]) == ("c", {"originalEventId": "c"})
    assert not [r for r in odd[2] if r["derived_contexts"] and not r["original_event_id"]]


def test_several_columns_make_the_id_and_the_newest_may_be_the_first(spark):
    rows = [
        (1, "x/y", "f", 1),
        (1, "x/y", "f", 3),
        (1, "x/y", "g", 2),
        (2, "x/y", "f", 1),
        (1, None, "f", 1),
        (1, "", "f", 1),
    ]
    events = spark.createDataFrame(rows, "shop int, nr string, event_fingerprint string, n int").cache()
    result = deduplicate(events, event_id="shop,nr", order_by="n desc", synthetic="quarantine")
    assert sorted((r.shop, r.nr, r.n) for r in result.kept.collect()) == [(1, "x/y", 3), (2, "x/y", 1)]
    assert result.bad.count() == 2 and result.kept.schema["shop"].dataType == events.schema["shop"].dataType
    said = [(r.event_id, r.event_fingerprint, r.verdict, r.copies) for r in result.verdicts.collect()]
    assert sorted(said) == [("1/x%2Fy", "f", "keep_first", 2), ("1/x%2Fy", "g", "quarantine", 1)]


@pytest.mark.slow
@pytest.mark.parametrize("strategy, kept", [("off", [(7, 1), (7, 2)]), ("quarantine", [(7, 1)])])
def test_numeric_ids_keep_their_type_where_nothing_is_renamed(spark, strategy, kept):
    rows = [(7, "f", 1), (7, "g", 2), (7, "f", 3), (None, "f", 4)]
    events = spark.createDataFrame(rows, "event_id bigint, event_fingerprint string, n int")
    result = deduplicate(events, synthetic=strategy, order_by="n")
    assert result.kept.schema["event_id"].dataType == events.schema["event_id"].dataType
    assert sorted((r.event_id, r.n) for r in result.kept.collect()) == kept
    assert [r.n for r in result.bad.collect()] == [4] and result.verdicts.first().event_id == "7"


# --- what cannot be deduplicated is said before any work ---------------------------------------------------


@pytest.mark.parametrize("name", ["dedup", "DEDUP", "_dd_x", "_DD_x", "Original_Event_Id"])
def test_columns_named_like_ours_are_refused(spark, name):
    with pytest.raises(InputError, match=f"{name}, a name this package adds itself. Rename it"):
        deduplicate(spark.createDataFrame([], f"event_id string, {name} string"))


@pytest.mark.parametrize(
    "chosen, words",
    [
        ({}, ["event_id", "evnt_id, fp, at", "Did you mean evnt_id?"]),
        ({"event_id": "evnt_id", "event_fingerprint": "fpp"}, ["needs fpp", "Did you mean fp?"]),
        ({"event_id": "evnt_id", "order_by": "att"}, ["needs att", "Did you mean at?"]),
        ({"event_id": "evnt_id", "order_by": "at desc,n"}, ["needs n"]),
        ({"event_id": "evnt_id", "fingerprint_columns": "fp,fpx"}, ["needs fpx", "Did you mean fp?"]),
        ({"event_id": "evnt_id,shop", "synthetic": "off"}, ["needs shop"]),
    ],
    ids=["id", "fingerprint", "order", "a descending order", "fingerprint_columns", "a part of the id"],
)
def test_a_missing_column_is_named_with_what_is_there_and_the_nearest(spark, chosen, words):
    with pytest.raises(MissingColumnError) as error:
        deduplicate(spark.createDataFrame([], "evnt_id string, fp string, at timestamp"), **chosen)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize("kind", ["array<int>", "map<string,int>", "struct<a:int>", "binary", "boolean"])
def test_an_order_column_without_an_order_in_time_is_refused(spark, kind):
    with pytest.raises(InputError) as error:
        deduplicate(spark.createDataFrame([], f"event_id string, etl_tstamp {kind}"))
    for word in ("etl_tstamp", kind, "wanted a timestamp, date, number or string", "order_by"):
        assert word in str(error.value)


@pytest.mark.parametrize(
    "ddl, chosen, kind, said",
    [
        ("event_id bigint", {}, InputError, "event_id, which is bigint.*quarantine"),
        (
            "event_id string, original_event_id int",
            {},
            InputError,
            "original_event_id .* must be a string, and is int",
        ),
        (
            "event_id string",
            {"event_id": "event_id,x"},
            ConfigError,
            "nobody can rename those: set synthetic=",
        ),
        ("event_id string", {"mode": "decide"}, ConfigError, "mode would do nothing"),
        (
            "event_id string",
            {"minimum_timestamp": "2026-01-01", "max_bad_share": 0.1},
            ConfigError,
            "max_bad_share, minimum_timestamp would do nothing",
        ),
        ("event_id string", {"evnt_id": "x"}, ConfigError, "Did you mean event_id"),
        ("event_id string", {"synthetic": "rename"}, ConfigError, "wanted one of rename_later"),
    ],
)
def test_settings_that_do_not_fit_a_frame_are_refused(spark, ddl, chosen, kind, said):
    with pytest.raises(kind, match=said):
        deduplicate(spark.createDataFrame([], ddl), **chosen)


@pytest.mark.parametrize("output_format", ["parquet", "json", "delta", "enriched_tsv"])
@pytest.mark.parametrize("name", ["batch_id", "Batch_ID"])
def test_a_column_that_the_folders_of_the_output_would_hide_is_refused(spark, name, output_format):
    schema = spark.createDataFrame([], f"event_id string, {name} string").schema
    with pytest.raises(InputError, match=f"column {name}, which the folder batch_id=.* would hide"):
        check_columns_fit(spark, schema, Output("/nowhere", output_format))


def test_columns_that_differ_only_in_case_are_refused(spark):
    schema = spark.createDataFrame([], "event_id string, Country string, country string").schema
    with pytest.raises(InputError, match="columns that differ only in case: Country, country. Rename one"):
        check_columns(schema, Recipe(), fit(Recipe(), schema.fieldNames()))


@pytest.mark.parametrize("events", [pd.DataFrame({"event_id": ["a"]}), [("a",)]])
def test_a_frame_that_is_not_of_spark_is_refused_with_what_to_do(events):
    kind = type(events).__module__.partition(".")[0]
    with pytest.raises(InputError, match=rf"found {kind}.*spark.createDataFrame\(events\)"):
        deduplicate(events)


# --- earlier batches ---------------------------------------------------------------------------------------

KNOWN = [  # id, fingerprint (None: only the id), what became of it, batch, number
    ("a", "f", Fate.STAYS | Fate.HEAD, "monday", 1),
    ("b", "h", Fate.STAYS | Fate.HEAD, "monday", 1),
    ("c", "x", Fate.STAYS | Fate.HEAD, "monday", 1),
    ("c", "f", Fate.RENAMED, "monday", 1),
    ("d", "f", Fate.GONE | Fate.HEAD, "monday", 1),
    ("e", "f", Fate.ELSEWHERE | Fate.HEAD, "monday", 1),
    ("g", "f", Fate.STAYS | Fate.HEAD, "tuesday", 2),
    ("g", "f", Fate.STAYS | Fate.HEAD, "monday", 1),
    ("u", None, Fate.STAYS | Fate.HEAD, "monday", 1),
]
TODAY = [
    ("a", "f", 1),
    ("a", "f", 2),
    ("a", "g", 3),
    ("b", "f", 1),
    ("c", "f", 1),
    ("d", "f", 1),
    ("e", "f", 1),
]
TODAY += [("g", "f", 1), ("u", "f", 1), ("n", "f", 1), (new("t", "g"), "f", 1)]
GONE_BEFORE = ("drop", "natural_cross_batch")
ACROSS = {  # pair -> verdict, reason, id of the row that stays, its batch; under rename_later
    ("a", "f"): (*GONE_BEFORE, "a", "monday"),
    ("a", "g"): ("rename", "synthetic_cross_batch", new("a", "g"), "today"),
    ("b", "f"): ("rename", "synthetic_cross_batch", new("b", "f"), "today"),
    ("c", "f"): (*GONE_BEFORE, new("c", "f"), "monday"),
    ("d", "f"): (*GONE_BEFORE, None, "monday"),
    ("e", "f"): (*GONE_BEFORE, None, "monday"),
    ("g", "f"): (*GONE_BEFORE, "g", "monday"),
    ("u", "f"): ("rename", "synthetic_cross_batch", new("u", "f"), "today"),
    ("n", "f"): (None, None, "n", "today"),
    (new("t", "g"), "f"): ("rename", "synthetic", new(new("t", "g"), "f"), "today"),
}
COLLIDES = {  # strategy -> what happens to (a, g), whose id an earlier batch has
    "rename_later": ("rename", "synthetic_cross_batch", new("a", "g"), "today"),
    "rename_all": ("rename", "synthetic_cross_batch", new("a", "g"), "today"),
    "quarantine": ("quarantine", "synthetic_cross_batch", None, None),
    "delete_all": ("drop", "synthetic_cross_batch", None, None),
    "off": (None, None, "a", "today"),
}


@pytest.fixture(scope="module")
def across(spark):
    "What every strategy decides of today's pairs, with what earlier batches had."
    event_id, fingerprint = F.col("i"), F.col("f")
    rows = [(i, f, int(fate), batch_id, seq) for i, f, fate, batch_id, seq in KNOWN]
    known = spark.createDataFrame(rows, "i string, f string, fate int, batch_id string, seq bigint")
    known = known.select(
        *id_key(event_id),
        pair_key(event_id, fingerprint),
        "fate",
        "batch_id",
        "seq",
        F.lit(True).alias("of_id"),
    )
    events = spark.createDataFrame(TODAY, "event_id string, event_fingerprint string, n int").coalesce(1)
    keys = fit(Recipe(order_by=("n",)), events.schema)
    suspects = with_keys(with_ids(events, keys), keys).cache()
    # an id that an event of this batch was given is taken
    taken = spark.createDataFrame([(new("t", "g"),)], "event_id string")
    found = {}
    # as `decide` does it, but the strategies share what comes before them
    pairs = cross_batch(natural(suspects), known).cache()
    decided = [synthetic(pairs, s, "today", taken).withColumn("strategy", F.lit(s)) for s in STRATEGIES]
    for r in reduce(lambda one, other: one.union(other), decided).collect():
        said = (r.verdict, r.reason, r.kept_event_id, r.kept_in_batch)
        found[r.strategy, r.event_id, r.event_fingerprint] = said
    return found


@pytest.mark.parametrize("pair, expected", ACROSS.items(), ids=lambda value: "-".join(map(str, value)))
def test_what_earlier_batches_had_decides(across, pair, expected):
    assert across[("rename_later", *pair)] == expected


@pytest.mark.parametrize("strategy, expected", COLLIDES.items(), ids=COLLIDES)
def test_an_id_of_an_earlier_batch_makes_every_new_pair_a_later_one(across, strategy, expected):
    assert across[strategy, "a", "g"] == expected
    assert across[strategy, "a", "f"] == ACROSS["a", "f"]


# --- keys --------------------------------------------------------------------------------------------------


def test_an_id_with_a_line_end_is_another_id(spark):
    one = "6c2a1f0e-0000-4000-8000-00000000abcd"
    rows = spark.createDataFrame([(one,), (one + "\n",)], "id string").select(*id_key(F.col("id"))).collect()
    assert len(set(rows)) == 2 and [r.packed for r in rows] == [True, False]


def test_new_ids_are_uuids_of_version_5(spark):
    names = [
        ("a", "f"),
        ("", ""),
        ("é%/", "/%2F"),
        ("x" * 300, "y" * 300),
        ("a/b", "c"),
        ("a", "b/c"),
        ("a%2Fb", "c"),
    ]
    names += [(f"id {i}", f"print {i}") for i in range(50)]
    frame = spark.createDataFrame(names, "i string, f string").coalesce(1)
    made = [r[0] for r in frame.select(new_event_id(F.col("i"), F.col("f"))).collect()]
    assert made == [new(*name) for name in names] and len(set(made)) == len(names)


def test_ids_are_text_and_what_came_renamed_is_looked_up_by_its_first_id(spark):
    rows = [
        (new("o", "surrogate-id"), 1, "o"),  # ours: made of the id that it came with
        ("a", 1, "o"),  # a column of the input
        ("a", 1, ""),
        ("", 1, "o"),
        (None, None, "o"),
        ("a/%", 7, None),
    ]
    frame = spark.createDataFrame(rows, "i string, n int, original_event_id string").coalesce(1)
    one, both = (
        fit(Recipe(event_id=names, missing_fingerprint="id"), frame.schema) for names in (("i",), ("i", "n"))
    )
    parts = [
        F.expr(own_id(frame.schema, one)),
        looked_up_id(frame.schema, one),
        is_reingested(frame.schema, one),
    ]
    again = new("o", "surrogate-id")
    assert [tuple(r) for r in frame.select(*parts, F.expr(own_id(frame.schema, both))).collect()] == [
        (again, "o", True, f"{again}/1"),
        ("a", "a", False, "a/1"),
        ("a", "a", False, "a/1"),
        (None, None, False, None),
        (None, None, False, None),
        ("a/%", "a/%", False, "a%2F%25/7"),
    ]


def test_a_session_of_somebody_else_is_tuned_while_a_run_works(spark):
    name = "spark.sql.codegen.maxFields"
    with configured(spark, {name: "100"}):
        with pytest.raises(ZeroDivisionError), temporary_conf(spark):
            assert spark.conf.get(name) == "300"
            1 / 0
        assert spark.conf.get(name) == "100"
    with configured(spark, {name: "500"}), temporary_conf(spark):
        assert spark.conf.get(name) == "500"
    with temporary_conf(object()):
        pass  # one that has no settings, or none for us


def test_suspects_are_all_repeated_ids_and_those_that_came_renamed(spark):
    rows = [("a", False), ("a", False), ("b", False), ("c", True)]
    frame = spark.createDataFrame(rows, "_dd_id string, _dd_look boolean").coalesce(1)
    hashes = {r.h: r.i for r in frame.selectExpr("xxhash64(_dd_id) as h", "_dd_id as i").collect()}
    assert sorted(hashes[r._dd_hash] for r in suspect_ids(frame).collect()) == ["a", "c"]
    assert [hashes[r._dd_hash] for r in suspect_ids(frame, repeats=False).collect()] == ["c"]


# of the JSON text that the first row stands for
AS_JSON = '{"b":"","d":"1795132800000000","l":"1795132800000000","t":"1795132800000000"}'
HASH_OF_FIRST = sha256(AS_JSON.encode()).hexdigest()


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_the_hash_of_a_row_tells_nulls_from_texts_and_does_not_know_the_session(spark, zone):
    rows = [(None, ""), ("", None), ("null", None), (None, None), ('"', ","), ('",', "")]
    with configured(spark, {"spark.sql.session.timeZone": zone}):
        frame = spark.createDataFrame(rows, "a string, b string").coalesce(1)
        times = (
            "timestamp'2026-11-20 00:00:00Z' as t",
            "timestamp_ntz'2026-11-20 00:00:00' as l",
            "date'2026-11-20' as d",
        )
        frame = frame.selectExpr("*", *times)
        found = [r[0] for r in frame.select(hash_of(frame)).collect()]
    assert len(set(found)) == len(rows)
    assert found[0] == HASH_OF_FIRST


PLACES = {  # type -> values in ascending order
    "int": [-5, 0, 7],
    "double": [float("-inf"), -1.5, 0.0, 2.5, float("nan")],
    "string": ["", "a", "a\0", "aa", "b", "é", "𝄞"],
    "decimal(10,2)": [-1, 2, 3],
    "timestamp": ["1969-12-31 23:59:59.999999", "2026-11-20 10:00:00", "9999-12-31 00:00:00"],
    "date": ["0001-01-01", "2026-11-20"],
    "timestamp_ntz": ["2026-03-29 02:30:00", "2026-03-29 02:30:00.000001"],
}


@pytest.mark.parametrize("kind, values", PLACES.items(), ids=PLACES)
def test_the_largest_is_first_in_descending_order_and_null_is_last_in_both(spark, kind, values):
    texts = [(i, v if isinstance(v, float) else str(v)) for i, v in enumerate(values)] + [(len(values), None)]
    source = "double" if kind == "double" else "string"
    frame = (
        spark.createDataFrame(texts, f"i int, s {source}")
        .coalesce(1)
        .selectExpr("i", f"cast(s as {kind}) as x")
    )
    both = []
    for order in ("x", "x desc"):
        at = place_of(frame, fit(Recipe(event_id=("i",), order_by=(order,)), ["i", "x"]))
        both.append(F.collect_list("i").over(_whole(F.struct(*at))).alias(order))
    ascending, descending = frame.select(*both).first()
    assert ascending == list(range(len(values) + 1))
    assert descending == [*reversed(range(len(values))), len(values)]


def _whole(place):
    from pyspark.sql import Window

    return Window.orderBy(place).rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)


MICROS = {  # SQL -> seconds since 1970, None: no time
    "timestamp'2026-11-20 10:00:00Z'": 1795168800,
    "timestamp_ntz'2026-11-20 10:00:00'": 1795168800,
    "date'2026-11-20'": 1795132800,
    "'2026-11-20 10:00:00'": 1795168800,
    "'2026-11-20T10:00:00Z'": 1795168800,
    "'2026-11-20T12:00:00+02:00'": 1795168800,
    "'2026-11-20'": 1795132800,
    "'no time'": None,
    "cast(null as string)": None,
    "7": None,
    "timestamp'9999-12-31 23:59:59Z'": 253402300799,
}


def test_times_of_any_type_are_the_same_instant_in_any_zone(spark):
    with configured(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
        names = {f"c{i}": sql for i, sql in enumerate(MICROS)}
        frame = spark.sql(f"select {', '.join(f'{sql} as {name}' for name, sql in names.items())}")
        found = frame.selectExpr(
            *(f"{micros_of(field_at(frame.schema, name))} as {name}" for name in names)
        ).first()
    assert {sql: found[name] for name, sql in names.items()} == {
        sql: seconds and seconds * 10**6 for sql, seconds in MICROS.items()
    }


# --- Spark, or none ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["3.5.1", "2.4.8"])
def test_spark_before_4_is_refused_by_name_with_what_fits(monkeypatch, version):
    monkeypatch.setattr(pyspark, "__version__", version)
    for refused in (check_spark, get_spark):
        with pytest.raises(
            ConfigError, match=rf"Spark 4.0 or newer is needed; here is {version}. .*pip install"
        ):
            refused()


WITHOUT = """
import sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Without())
for code in {codes!r}:
    try:
        exec(code)
    except BaseException as wrong:
        print(type(wrong).__name__, wrong, file=sys.stderr)
    print("---", file=sys.stderr)
"""


def without(modules, codes, folder):
    "What Python says, for each code, where these modules are not installed."
    script = WITHOUT.format(missing=modules, codes=codes)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(ROOT)])}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env, cwd=folder)
    return dict(zip(codes, done.stderr.split("---\n")))


NEEDS_SPARK = [
    "from dedup_nb import get_spark; get_spark()",
    "from dedup_nb import deduplicate; deduplicate(None)",
    "from dedup_nb import Config, run; run(Config(input='x', output='y'))",
    "from dedup_nb.cli import main; main(['run', '--input', 'x', '--output', 'y'])",
]


WITHOUT_DELTA = """
from dedup_nb import Config, get_spark, run
from dedup_nb.repair import repair
one = dict(input="in", output="out", manifest="none")
for work in (
    lambda: get_spark(delta=True),
    lambda: run(Config(**one, input_format="json", output_format="delta"), get_spark()),
    lambda: run(Config(**one, input_format="delta"), get_spark()),
    lambda: repair("./in", spark=get_spark()),
):
    try:
        work()
    except Exception as wrong:
        print(type(wrong).__name__, wrong, end="---\\n")
"""


@pytest.mark.slow
def test_where_own_packages_leave_delta_out_it_is_said_which_one_is_missing(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.json").write_text('{"event_id": "a", "event_fingerprint": "f", "etl_tstamp": 1}')
    env = {**os.environ, "PYSPARK_SUBMIT_ARGS": "--packages org.antlr:antlr4-runtime:4.13.1 pyspark-shell"}
    env["PYTHONPATH"] = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(ROOT)])
    command = [sys.executable, "-c", WITHOUT_DELTA]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path)
    *told, rest = done.stdout.split("---\n")
    kinds = ["ConfigError", "OutputError", "InputError", "InputError"]
    assert [one.partition(" ")[0] for one in told] == kinds and not rest, done.stdout + done.stderr
    assert all("The package io.delta:delta-spark_" in one and "(--packages A,B)" in one for one in told)


@pytest.fixture(scope="module")
def without_pyspark(tmp_path_factory):
    return without(["pyspark"], NEEDS_SPARK, tmp_path_factory.mktemp("without"))


@pytest.mark.parametrize("code", NEEDS_SPARK)
def test_without_pyspark_it_is_said_how_to_install_it(without_pyspark, code):
    words = "Spark is not installed here. Install it with: pip install 'dedup_nb[local]'"
    assert words in without_pyspark[code]


def test_deduplicate_needs_no_more_than_spark(tmp_path):
    others = ["boto3", "botocore", "matplotlib", "papermill", "pandas", "pyarrow", "nbformat", "IPython"]
    code = "from dedup_nb import Config, deduplicate; print(deduplicate.__name__, file=sys.stderr)"
    assert without(others, [code], tmp_path)[code] == "deduplicate\n"

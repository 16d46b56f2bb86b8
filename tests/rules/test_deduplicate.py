"The rules on literal rows: who stays, under which id, who goes and why; what cannot be deduplicated."

import inspect
import json
import re
import warnings
from collections import Counter
from functools import cache

import pandas as pd
import pytest
from worlds import (
    COLUMNS,
    STRATEGIES,
    WIDE,
    T,
    assert_agrees,
    came_again,
    counts_of_kept_ids,
    crowded,
    deduplicated,
    frame_of_texts,
    new_id,
    rows_expected,
    rows_found,
    surrogate_of,
)

from dedup_nb.base.config import Recipe
from dedup_nb.base.errors import ConfigError, InputError, MissingColumnError
from dedup_nb.rules.deduplicate import (
    VERDICTS,
    Deduplicated,
    decide,
    deduplicate,
    dropped_rows,
    kept_rows,
    with_decisions,
)
from dedup_nb.rules.keys import fit, with_ids, with_keys
from dedup_nb.rules.natural import distinct_with_counts

pytestmark = pytest.mark.usefixtures("one_partition")


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
    (new_id("c", "g"), "g", 2, "alone", "c"),
    ("d", "f", 1, "x", None),
    ("d", "g", 2, "y", None),
    (new_id("d", "g"), "g", 3, "again", "d"),
    (new_id("e", "g"), "g", 1, "first", "e"),
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


@pytest.fixture(scope="module")
def results(spark, one_partition):
    "What each strategy makes of the rows, step by step as a run does it."
    events, keys = frame_of_texts(spark, ROWS, WIDE), fit(Recipe(), WIDE)
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
    assert set(counts_of_kept_ids(found).values()) == {1}


@every_strategy
def test_dropped_rows_point_at_a_row_that_is_kept(outcome, strategy):
    found = outcome(strategy)
    dropped = [json.loads(text)["dedup"] for text in found["dropped"]]
    named = {d["kept_event_id"] for d in dropped} - {None}
    assert named and named <= set(counts_of_kept_ids(found))
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


AF, AG, BF, BG = new_id("a", "f"), new_id("a", "g"), new_id("b", "f"), new_id("b", "g")
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
    assert [row[0] for row in kept] == sorted(["s", new_id("s", "b/c"), "s/b", new_id("s/b", "c")])
    assert len(set(row[0] for row in kept)) == 4


def test_a_surrogate_never_equals_a_real_fingerprint(outcome):
    kept, dropped, said = of_ids(outcome("rename_all"), "r")
    assert len({row[0] for row in kept}) == 3
    assert [row[1:3] for row in dropped] == [(3, "natural")]
    assert {row[1] for row in said} == {STAND_IN, f"={STAND_IN}"}


FED_BACK = {  # id -> kept, dropped under rename_later
    "c": ([(new_id("c", "g"), 2, "c")], []),
    "d": ([("d", 1, None), (new_id("d", "g"), 2, "d")], [(new_id("d", "g"), 3, "natural", new_id("d", "g"))]),
    "e": ([(new_id("e", "g"), 1, "e")], [("e", 2, "natural", new_id("e", "g"))]),
    "h": ([("foreign", 2, "h"), ("h", 1, None)], [("foreign", 3, "natural", "foreign")]),
    "i": ([(new_id("i", "g"), 2, "i"), ("i", 1, "")], []),
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
    c1, c2 = (new_id("c", f"{STAND_IN}/2026-11-20/{n}") for n in (1, 2))
    kept, dropped, said = of_ids(found, *"abcd")
    expected = [
        ("a", None, None),
        ("b", 1, None),
        (c1, 1, "c"),
        (c2, 1, "c"),
        (new_id("d", "f"), 2, "d"),
        (new_id("d", "g"), 1, "d"),
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
    result = deduplicate(frame_of_texts(spark, []))
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


@pytest.mark.parametrize("events", [pd.DataFrame({"event_id": ["a"]}), [("a",)]])
def test_a_frame_that_is_not_of_spark_is_refused_with_what_to_do(events):
    kind = type(events).__module__.partition(".")[0]
    with pytest.raises(InputError, match=rf"found {kind}.*spark.createDataFrame\(events\)"):
        deduplicate(events)


def test_what_the_columns_leave_open_is_said_before_any_work(spark):
    events = spark.createDataFrame([("a", 1), ("a", 2)], "event_id string, n int")
    with pytest.warns(UserWarning, match="fingerprint_columns") as told:
        notes = deduplicate(events).notes
    assert [str(w.message) for w in told] == [*notes] and "the id alone says" in notes[0]
    assert "name order_by to choose" in notes[1] and "whatever else differs" in notes[2]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = deduplicate(events, fingerprint_columns="n", order_by="n")
    assert result.notes == () and result.kept.count() == 2


def test_the_help_names_the_common_settings_and_its_example_runs(spark):
    words = inspect.getdoc(deduplicate)
    assert all(
        f"`{name}`" in words for name in "event_id event_fingerprint fingerprint_columns order_by".split()
    )
    example, _ = re.findall("^>>> (.*)", words, re.MULTILINE)
    rows = [("a", 1, "/home"), ("a", 2, "/home"), ("a", 3, "/cart")]
    found = {
        "deduplicate": deduplicate,
        "orders": spark.createDataFrame(rows, "id string, received_at int, page string"),
    }
    exec(example, found)
    assert (found["result"].kept.count(), found["result"].dropped.count()) == (2, 1)

"""Merge engines: against results recorded from ClickHouse, and against their own laws."""

import json
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pytest
from conftest import CONFORMANCE, ROOT
from pyspark.sql import functions as F

from dedup_nb.base.errors import BusyError, ConfigError, InputError, MissingColumnError
from dedup_nb.merges.change_log import (
    Coalescing,
    Collapsing,
    Latest,
    Replacing,
    VersionedCollapsing,
    check_log,
    explain_merge,
)
from dedup_nb.merges.engines import (
    coalescing,
    collapsing,
    final,
    latest,
    merge,
    replacing,
    versioned_collapsing,
)
from dedup_nb.merges.merge_table import MergeTable

RECORDED = CONFORMANCE / "clickhouse"
FAMILIES = ["rmt", "rmt_ver", "rmt_ver_del", "cmt_ok", "cmt_chaos", "vcmt_ok", "vcmt_chaos"]
NAMES = ["p", "k1", "k2", "ver", "d", "sign", "val", "x"]
COLUMNS = "p int, k1 int, k2 string, ver bigint, d int, sign int, val bigint, x string"
FRAME = f"case string, key string, part int, batch int, pos int, {COLUMNS}"
ORDER = ["part", "batch", "pos"]
recorded = pytest.mark.skipif(not RECORDED.exists(), reason="the recorded cases are not here")


@cache
def cases(family):
    return [json.loads(line) for line in (RECORDED / f"{family}.jsonl").read_text().splitlines()]


@cache
def documented():
    known = json.loads((RECORDED / "known_defects.json").read_text())
    return {(k["case"], k["scenario"], k["mode"]): k["documented"] for k in known}


def spec_of(family, keys):
    if family.startswith("vcmt"):
        return VersionedCollapsing(keys, "sign", "ver", ORDER)
    if family.startswith("cmt"):
        return Collapsing(keys, "sign", ORDER)
    version = "ver" if "ver" in family else None
    return Replacing(keys, version, "d" if family.endswith("del") else None, ORDER)


def rows_of_batch(case, number):
    "The rows of a batch, with case, key, partition and place."
    at = [NAMES.index(c) for c in case["order_by"]]
    for pos, row in enumerate(case["batches"][number].get("rows", ())):
        key = json.dumps([row[i] for i in at])
        yield (case["id"], key, row[0] if case["partition_by"] else 0, number, pos, *row)


def rows_by_case(frame):
    "The rows of each case, as a multiset."
    told = {}
    for row in frame.select("case", *NAMES).collect():
        told.setdefault(row[0], Counter())[tuple(row[1:])] += 1
    return told


def wanted(case, scenario, mode):
    rows = documented().get((case["id"], scenario, mode), case["expected"][scenario].get(mode))
    return rows if rows is None else Counter(map(tuple, rows))


def cases_that_differ(frame, family, scenario, mode, some=None):
    got = rows_by_case(frame)
    these = [c for c in some or cases(family) if wanted(c, scenario, mode) is not None]
    assert these
    return [c["id"] for c in these if got.get(c["id"], Counter()) != wanted(c, scenario, mode)]


def plain(family):
    "The cases without an operation between their inserts."
    return [c for c in cases(family) if not any("op" in b for b in c["batches"])]


@recorded
@pytest.mark.parametrize("family", FAMILIES)
def test_results_are_those_of_the_engine(spark, family):
    some = plain(family)
    rows = [row for c in some for n in range(len(c["batches"])) for row in rows_of_batch(c, n)]
    frame = spark.createDataFrame(rows, FRAME)
    whole, by_part = spec_of(family, ["case", "key"]), spec_of(family, ["case", "key", "part"])
    shown = {"final": final(frame, whole), "final_per_partition": final(frame, by_part)}
    shown["optimize_final"] = merge(frame, by_part)
    assert {
        mode: cases_that_differ(f, family, "flat", mode, some) for mode, f in shown.items()
    } == dict.fromkeys(shown, [])
    # each insert merged alone first
    spec = spec_of(family, ["case", "key", "part", "batch"])
    merged = merge(frame, spec)
    shown = {"raw": merged, "final": final(merged, whole), "optimize_final": merge(merged, by_part)}
    assert {
        mode: cases_that_differ(f, family, "on_insert", mode, some) for mode, f in shown.items()
    } == dict.fromkeys(shown, [])


def step_by_step(spark, family, scenario, some):
    "The rows that are stored after the last batch, where some are merged between."
    by_part, stored = spec_of(family, ["case", "key", "part"]), []
    for number in range(max(len(c["batches"]) for c in some)):
        there = {c["id"]: c["batches"][number].get("op") for c in some if number < len(c["batches"])}
        stored += [row for c in some if number < len(c["batches"]) for row in rows_of_batch(c, number)]
        ops = {i: op or ("optimize" if scenario == "merged_each" else None) for i, op in there.items()}
        frame = merge(spark.createDataFrame([r for r in stored if ops.get(r[0])], FRAME), by_part).collect()
        kept = [tuple(r) for r in frame if not (ops[r.case] == "cleanup" and r.d == 1)]
        stored = [r for r in stored if not ops.get(r[0])] + kept
    return spark.createDataFrame(stored, FRAME)


@pytest.mark.slow
@recorded
@pytest.mark.parametrize(
    "family", [f if f == "rmt_ver_del" else pytest.param(f, marks=pytest.mark.slow) for f in FAMILIES]
)
@pytest.mark.parametrize("scenario", ["flat", "merged_each"])
def test_results_are_those_of_the_engine_where_merges_run_between(spark, family, scenario):
    some = cases(family)
    stored = step_by_step(spark, family, scenario, some)
    whole, by_part = spec_of(family, ["case", "key"]), spec_of(family, ["case", "key", "part"])
    shown = {"raw": stored, "final": final(stored, whole), "optimize_final": merge(stored, by_part)}
    shown["final_per_partition"] = final(stored, by_part)
    if family == "rmt_ver_del":
        shown["cleanup"] = shown["optimize_final"].where("d = 0")
    assert {m: cases_that_differ(f, family, scenario, m, some) for m, f in shown.items()} == dict.fromkeys(
        shown, []
    )


@recorded
def test_the_first_row_of_a_set_of_columns_stays(spark):
    rows, some = [], cases("dedup_by")
    for case in some:
        by = next(b["by"] for b in case["batches"] if b.get("op") == "deduplicate") or NAMES
        at = [NAMES.index(c) for c in by]
        for number in range(len(case["batches"])):
            for row in rows_of_batch(case, number):
                rows.append((row[0], json.dumps([row[5:][i] for i in at]), *row[2:]))
    frame = spark.createDataFrame(rows, FRAME)
    kept = latest(frame, ["case", "key", "part"], ["batch", "pos"], keep="first")
    assert cases_that_differ(kept, "dedup_by", "flat", "raw") == []


def merge_table_of(spark, folder, case):
    spec = Latest(case["order_by"], "pos")
    window = case["settings"]["non_replicated_deduplication_window"]
    return MergeTable(str(folder), spec, case["partition_by"], window=window, spark=spark)


@recorded
@pytest.mark.filterwarnings("ignore:The token")
@pytest.mark.slow
@pytest.mark.parametrize("number", range(20))
def test_repeated_inserts_are_those_of_the_engine(spark, tmp_path, number):
    case = cases("insert_dedup")[number]
    table, counts = merge_table_of(spark, tmp_path / "t", case), []
    for batch in case["batches"]:
        rows = [(pos, *row) for pos, row in enumerate(batch["rows"])]
        table.insert(spark.createDataFrame(rows, f"pos int, {COLUMNS}"), token=batch["token"])
        counts.append(table.rows().count())
    assert counts == case["expected"]["flat"]["counts"]
    raw = Counter(tuple(r) for r in table.rows().select(*NAMES).collect())
    assert raw == Counter(map(tuple, case["expected"]["flat"]["raw"]))


# -- columns of all kinds --

ODD = """select inline(array(
    struct(1 as k, 1 as seq, map('a', 1, 'b', 2) as m, array(struct(double('NaN') as d)) as s),
    struct(1 as k, 2 as seq, map('b', 2, 'a', 3) as m, array(struct(-0.0d as d)) as s),
    struct(null as k, 1 as seq, map() as m, null as s),
    struct(null as k, 2 as seq, null as m, array() as s)))"""


@pytest.mark.parametrize("ties", ["order", "content", "error"])
def test_null_keys_are_equal_and_maps_and_nested_columns_pass(spark, ties):
    frame = spark.sql(ODD)
    kept = replacing(frame, "k", version="seq", order=None if ties != "order" else "seq", ties=ties)
    assert kept.schema.simpleString() == frame.schema.simpleString()
    assert sorted((r.k or 0, r.seq, str(r.m)) for r in kept.collect()) == [
        (0, 2, "None"),
        (1, 2, "{'a': 3, 'b': 2}"),
    ]
    assert sorted((r.k or 0, str(r.m)) for r in coalescing(frame, "k", "seq").collect()) == [
        (0, "{}"),
        (1, "{'a': 3, 'b': 2}"),
    ]


def test_keys_with_a_point_are_equal_by_value_and_stay_as_they_were(spark):
    frame = spark.sql(
        "select * from values (0.0d, 1), (-0.0d, 2), (double('NaN'), 3), (double('NaN'), 4) as t(k, seq)"
    )
    assert sorted(str(r.k) for r in latest(frame, "k", "seq").collect()) == ["-0.0", "nan"]


def test_no_keys_at_all_leave_one_row_and_of_nothing_nothing(spark):
    frame = spark.createDataFrame([(1, "a"), (2, "b")], "seq int, v string")
    assert [r.v for r in latest(frame, [], "seq").collect()] == ["b"]
    for empty in (latest(frame.limit(0), [], "seq"), latest(frame.limit(0), "v", "seq")):
        assert empty.count() == 0


def test_the_greatest_number_is_nan_and_a_null_version_is_refused_or_lowest(spark):
    frame = spark.sql("select * from values ('a', 1.0d), ('a', double('NaN')), ('b', null) as t(k, ver)")
    with pytest.raises(Exception, match="wanted is a version on each row"):
        replacing(frame, "k", version="ver", ties="content").count()
    kept = replacing(frame, "k", version="ver", ties="content", null_version="lowest")
    assert sorted((r.k, str(r.ver)) for r in kept.collect()) == [("a", "nan"), ("b", "None")]


@pytest.mark.parametrize(
    "ask", [lambda f: f.select("k").count(), lambda f: f.collect(), lambda f: f.groupBy().count().collect()]
)
def test_a_wrong_value_stops_every_query_with_its_key(spark, ask):
    signs = spark.createDataFrame([("a", 1, 1), ("b", 2, 0)], "k string, seq int, sign int")
    with pytest.raises(Exception, match='sign is 0, wanted is 1 or -1: key .*"k":"b".*check_log'):
        ask(collapsing(signs, "k", "sign", "seq"))
    marks = spark.createDataFrame([("a", 1, None)], "k string, ver int, gone int")
    with pytest.raises(Exception, match='gone is null, wanted is 1 or 0: key .*"k":"a"'):
        ask(replacing(marks, "k", version="ver", is_deleted="gone", ties="content"))
    tied = spark.createDataFrame([("a", 1, 7), ("a", 1, 8)], "k string, ver int, v int")
    with pytest.raises(Exception, match='greatest version of key .*"k":"a"'):
        ask(replacing(tied, "k", version="ver", ties="error"))


TEXTS = [  # each is later than the one before: numbers, then instants, then other text
    "-1",
    "9",
    "10",
    "10.5",
    "2026-11-20T10:00:00Z",
    "2026-11-20T10:00:00.250Z",
    "2026-11-20 10:00:01",
    "2026-11-20T09:30:00-01:00",
    "2026-11-21",
    "first",
    "second",
]


def test_text_orders_as_what_it_says(spark):
    # a key for each pair of neighbours
    pairs = range(len(TEXTS) - 1)
    rows = [(pair, TEXTS[pair + n], 1, n) for pair in pairs for n in (0, 1)]
    frame = spark.createDataFrame(rows, "k int, at string, sign int, n int")
    later = [
        latest(frame, "k", "at"),
        latest(frame, "k", "at desc", keep="first"),
        coalescing(frame, "k", "at"),
        collapsing(frame, "k", "sign", "at"),
        replacing(frame, "k", order="at"),
        explain_merge(frame, Latest("k", "at")).where("_kept"),
    ]
    for found in later:
        assert sorted((r.k, r.n) for r in found.collect()) == [(pair, 1) for pair in pairs]
    for found in (latest(frame, "k", "at", keep="first"), latest(frame, "k", "at desc")):
        assert sorted((r.k, r.n) for r in found.collect()) == [(pair, 0) for pair in pairs]


def test_texts_that_say_the_same_are_a_tie(spark):
    told = [
        ("a", "10", 1),
        ("a", "10.0", 2),
        ("b", "2026-11-20T10:00:00Z", 1),
        ("b", "2026-11-20T11:00:00+01:00", 2),
    ]
    frame = spark.createDataFrame(told, "k string, at string, n int")
    problems = check_log(frame, Latest("k", "at")).collect()
    assert sorted((r.k, r.problem) for r in problems) == [
        ("a", "tie"),
        ("a", "tie"),
        ("b", "tie"),
        ("b", "tie"),
    ]


@pytest.mark.parametrize("spec", [Latest("k", "at"), Latest("k", "at desc"), Latest("k", "at", keep="first")])
def test_null_is_the_lowest_place_however_it_runs(spark, spec):
    frame = spark.createDataFrame(
        [("a", None, 1), ("a", "x", 2), ("b", None, 1)], "k string, at string, n int"
    )
    assert sorted((r.k, r.n) for r in final(frame, spec).collect()) == [("a", 2), ("b", 1)]


@pytest.mark.parametrize(
    "spec, error, words",
    [
        (Replacing("k", version="v", order="seq"), InputError, "text does not order as numbers do"),
        (Replacing("k", version="k", order="seq"), ConfigError, "one of the keys"),
        (Replacing("k", version="seq"), ConfigError, "Rows of equal versions need a rule"),
        (Replacing("k", version="seq", order="n", ties="orders"), ConfigError, "Did you mean order"),
        (Replacing("k"), ConfigError, "needs an order"),
        (Collapsing("k", "v", "seq"), InputError, "Columns of such a type: seq, n"),
        (Collapsing("k", "sing", "seq"), MissingColumnError, "needs sing"),
        (Latest("keys", "seq"), MissingColumnError, "needs keys"),
        (Latest("k", "m"), InputError, "have no order"),
        (Latest("j", "seq"), InputError, "j cannot be a key: values of map<string,variant>"),
        (Latest("k", "seq", keep="lst"), ConfigError, "Did you mean last"),
    ],
)
def test_what_cannot_hold_is_refused_at_the_call(spark, spec, error, words):
    frame = spark.sql("select 'a' as k, 'x' as v, 1 as seq, 2 as n, map('a', 1) as m")
    frame = frame.withColumn("j", F.expr("map('a', parse_json('1'))"))
    with pytest.raises(error, match=words):
        final(frame, spec)
    with pytest.raises(ConfigError, match="Did you mean merge"):
        latest(frame, "k", "seq", mode="merg")
    with pytest.raises(ConfigError, match="found str"):
        final(frame, "latest")


def test_a_rule_and_its_names_are_looked_at_first(spark, tmp_path):
    with pytest.raises(ConfigError, match="A rule is one of Replacing, .*; found str"):
        MergeTable(str(tmp_path / "t"), "latest", spark=spark)
    frame = spark.sql("select 'a' as k, 1 as seq, 2 as dedup")
    assert latest(frame, "k", "seq").columns == frame.columns
    with pytest.raises(InputError, match="The frame has columns that differ only in case: K, k"):
        latest(frame.toDF("k", "seq", "K"), "k", "seq")


def filters_below(frame):
    "The conditions that Spark applies below its aggregation or window."
    plan = frame._jdf.queryExecution().optimizedPlan().toString()
    return plan[max(plan.find("Aggregate"), plan.find("Window")) :]


def test_filters_on_keys_are_pushed_down_and_others_are_not(spark, tmp_path):
    rows = [("a", 1, 1, 5), ("a", 2, 1, 6), ("b", 1, 1, 7)]
    spark.createDataFrame(rows, "k string, seq int, sign int, v int").write.parquet(str(tmp_path / "t"))
    frame = spark.read.parquet(str(tmp_path / "t"))
    engines = {
        "replacing": replacing(frame, "k", version="seq", ties="content"),
        "latest": latest(frame, "k", "seq"),
        "collapsing": collapsing(frame, "k", "sign", "seq"),
        "merge": collapsing(frame, "k", "sign", "seq", mode="merge"),
        "versioned": versioned_collapsing(frame, "k", "sign", "seq"),
        "coalescing": coalescing(frame, "k", "seq"),
    }
    for name, kept in engines.items():
        assert "= a)" in filters_below(kept.where("k = 'a'")), name
        assert "= 5)" not in filters_below(kept.where("v = 5")), name
    assert engines["latest"].where("v = 5").count() == 0  # the row of a that is not the latest


def test_one_key_with_all_rows_needs_no_window(spark):
    frame = spark.range(200_000).selectExpr("1 as k", "id as seq", "1 as sign")
    for kept in (latest(frame, "k", "seq"), collapsing(frame, "k", "sign", "seq")):
        assert "Window" not in kept._jdf.queryExecution().optimizedPlan().toString()
        assert [r.seq for r in kept.collect()] == [199_999]


@pytest.mark.slow
@pytest.mark.parametrize(
    "spec",
    [
        Replacing("k", "ver", "gone", "seq"),
        Latest("k", ["ver desc", "seq"]),
        Latest("k", "seq", "first"),
        Coalescing("k", ["ver", "seq"]),
        Collapsing("k", "sign", ["ver"]),
        VersionedCollapsing("k", "sign", "ver", "seq"),
    ],
)
def test_no_order_of_rows_or_partitions_changes_a_result_and_merges_may_run_twice(spark, spec):
    rows = [(n % 7, n % 3, int(n % 11 == 0), n // 9, 1 if n % 2 else -1, f"v{n % 4}") for n in range(90)]
    schema = "k int, ver int, gone int, seq int, sign int, v string"
    frame, turned = (
        spark.createDataFrame(rows, schema),
        spark.createDataFrame(rows[::-1], schema).repartition(3),
    )
    for engine in (final, merge):
        one = Counter(map(tuple, engine(frame, spec).collect()))
        assert one and one == Counter(map(tuple, engine(turned, spec).collect()))
    merged = Counter(map(tuple, merge(frame, spec).collect()))
    again = Counter(map(tuple, merge(merge(frame, spec), spec).collect()))
    assert merged == again


@pytest.mark.slow
@pytest.mark.parametrize("spec", [Latest("k", "n"), Coalescing("k", "n"), Collapsing("k", "sign", "n")])
def test_texts_that_a_collation_takes_for_equal_are_chosen_in_any_order(spark, spec):
    rows = [("a", 1, 1, "x"), ("A", 1, 1, "X"), ("b", 2, 1, "y"), ("B", 2, 1, "Y")]
    kept = []
    for given in (rows, rows[::-1]):
        frame = spark.createDataFrame(given, "k string, n int, sign int, v string").coalesce(1)
        frame = frame.withColumns({c: F.expr(f"collate({c}, 'UTF8_LCASE')") for c in ("k", "v")})
        kept.append(sorted(map(tuple, final(frame, spec).collect())))
    assert kept[0] == kept[1] and len(kept[0]) == 2


# -- the log --


@pytest.mark.slow
@pytest.mark.parametrize(
    "spec",
    [
        Replacing("k", "ver", "gone", "seq"),
        Latest("k", "seq"),
        Collapsing("k", "sign", "seq"),
        VersionedCollapsing("k", "sign", "ver", "seq"),
    ],
)
@pytest.mark.parametrize("mode", ["final", "merge"])
def test_the_explanation_keeps_what_the_engine_keeps(spark, spec, mode):
    rows = [(n % 7, n % 3, int(n % 5 == 0), n, 1 if n % 3 else -1) for n in range(60)]
    frame = spark.createDataFrame(rows, "k int, ver int, gone int, seq int, sign int")
    told = explain_merge(frame, spec, mode).collect()
    kept = Counter(tuple(r[:5]) for r in told if r._kept)
    assert len(told) == 60 and all(r._reason for r in told)
    assert kept == Counter(map(tuple, (final if mode == "final" else merge)(frame, spec).collect()))
    assert all(
        tuple(r._winner) == tuple(r[:5]) for r in told if r._kept and r._reason != "waits for its state"
    )


@recorded
@pytest.mark.parametrize("family", ["cmt_ok", "vcmt_ok"])
def test_well_formed_logs_have_no_problem(spark, family):
    rows = [row for c in cases(family) for n in range(len(c["batches"])) for row in rows_of_batch(c, n)]
    spec = spec_of(family, ["case", "key"])
    ignore = [c for c in FRAME.replace(",", "").split()[::2] if c not in ("case", "key", "sign", "ver")]
    found = check_log(
        spark.createDataFrame(rows, FRAME), spec, ignore=[*ignore, *(["ver"] if family == "cmt_ok" else [])]
    )
    problems = Counter(r.problem for r in found.collect())
    assert (
        not set(problems) - {"several states of one version", "cancels nothing"}
        if family == "vcmt_ok"
        else not problems
    )


def test_each_problem_of_a_log_is_named(spark):
    rows = [("a", 1, 1, 5), ("a", 2, -1, 6), ("b", 1, 3, 1), ("c", 1, -1, 1), ("d", 1, 1, 1), ("d", 1, 1, 2)]
    frame = spark.createDataFrame(rows, "k string, seq int, sign int, v int")
    found = {(r.k, r.problem) for r in check_log(frame, Collapsing("k", "sign", "seq")).collect()}
    assert found == {
        ("a", "other values"),
        ("b", "bad sign"),
        ("c", "cancels nothing"),
        ("d", "tie"),
        ("d", "state before it is not cancelled"),
    }
    assert check_log(frame.where("k = 'a'"), Collapsing("k", "sign", "seq"), ignore="v").count() == 0


# -- the table --

SCHEMA = "k string, ver int, v string"


def frame_of(spark, *rows):
    return spark.createDataFrame(rows, SCHEMA)


@pytest.mark.slow
def test_an_insert_is_there_once_by_token_or_by_content_in_any_order(spark, tmp_path):
    table = MergeTable(str(tmp_path / "t"), Replacing("k", "ver"), spark=spark)
    one, two = frame_of(spark, ("a", 1, "x"), ("b", 1, "y")), frame_of(spark, ("a", 2, "z"))
    assert table.insert(one, token="m").rows == 2 and table.insert(one, token="m").repeated == 2
    assert table.insert(two).block == 2 and table.insert(two).rows == 0
    turned = frame_of(spark, ("b", 1, "y"), ("a", 1, "x")).select("v", "k", "ver")
    assert table.insert(turned, token="m").rows == 0
    with pytest.warns(UserWarning, match="used before with other rows"):
        assert table.insert(two, token="m").rows == 0
    assert sorted(map(tuple, table.final().collect())) == [("a", 2, "z"), ("b", 1, "y")]
    assert table.optimize() == (3, 2) and table.insert(one, token="m").rows == 0
    assert sorted((r._block, r.rows) for r in table.parts().collect()) == [(1, 1), (2, 1)]
    with pytest.raises(ConfigError, match="made with another rule"):
        MergeTable(str(tmp_path / "t"), Latest("k", "ver"), spark=spark).final()
    with pytest.raises(MissingColumnError, match="lack v"):
        table.insert(one.drop("v"))
    with pytest.raises(InputError, match="no column w"):
        table.insert(one.withColumn("w", F.lit(1)))
    with pytest.raises(InputError, match="v is int in these rows, and string in .* Cast it"):
        table.insert(one.withColumn("v", F.lit(1)))


@pytest.mark.soak
def test_marks_go_when_nothing_older_can_come_and_logs_that_are_not_well_formed_are_not_merged(
    spark, tmp_path
):
    table = MergeTable(str(tmp_path / "t"), Replacing("k", "ver", "gone"), "p", spark=spark)
    rows = [("a", 1, 0, 1), ("a", 2, 1, 1), ("b", 2, 1, 1), ("b", 1, 0, 2), ("c", 9, 1, 1)]
    table.insert(spark.createDataFrame(rows, "k string, ver int, gone int, p int"))
    with pytest.raises(ConfigError, match="tombstones_older_than"):
        table.optimize(cleanup=True)
    assert table.optimize("p = 1") == (4, 3)
    assert table.optimize(cleanup=True, tombstones_older_than=5)[1] == 3
    # the mark of b guards against its older row in another partition, that of c is too young
    assert sorted(r.k for r in table.rows().collect()) == ["b", "b", "c"] and table.final().count() == 0
    log = MergeTable(str(tmp_path / "l"), Collapsing("k", "sign", "sign"), spark=spark)
    log.insert(spark.createDataFrame([("a", 1), ("a", 1)], "k string, sign int"))
    log.insert(spark.createDataFrame([("b", -1)], "k string, sign int"))
    with pytest.raises(InputError, match="not well formed"):
        log.optimize()
    assert log.optimize(force=True) == (3, 2)
    with pytest.raises(Exception, match="sign is 5"):
        log.insert(spark.createDataFrame([("c", 5)], "k string, sign int"))
    assert log.rows().count() == 2


@pytest.mark.slow
def test_of_two_writers_at_once_one_wins_and_the_other_is_told(spark, tmp_path):
    spec, path = Replacing("k", "ver"), str(tmp_path / "t")
    MergeTable(path, spec, spark=spark).insert(frame_of(spark, ("a", 1, "x")))

    def insert(n):
        table = MergeTable(path, spec, spark=spark)
        try:
            return table.insert(frame_of(spark, (f"k{n}", n, "y"))).rows
        except BusyError as told:
            assert "nothing of this write" in str(told)
            return 0

    with ThreadPoolExecutor(4) as pool:
        written = sum(pool.map(insert, range(4)))
    table = MergeTable(path, spec, spark=spark)
    assert written >= 1 and table.rows().count() == 1 + written
    assert sorted(r._block for r in table.parts().collect()) == list(range(1, written + 2))


@pytest.mark.soak
def test_optimizing_forgets_no_insert_and_another_table_is_refused(spark, tmp_path):
    path = str(tmp_path / "t")
    table = MergeTable(path, Replacing("k", "ver"), window=1, spark=spark)
    table.insert(frame_of(spark, ("a", 1, "x")), token="m")
    for _ in range(3):
        table.optimize()
    assert table.insert(frame_of(spark, ("a", 1, "x")), token="m").rows == 0
    forgetful = MergeTable(path, Replacing(["k"], "ver"), window=0, spark=spark)
    assert forgetful.insert(frame_of(spark, ("a", 1, "x")), token="m").rows == 1
    frame_of(spark, ("a", 1, "x")).write.format("delta").save(str(tmp_path / "other"))
    with pytest.raises(InputError, match="something else made"):
        MergeTable(str(tmp_path / "other"), Replacing("k", "ver"), spark=spark).rows()


@pytest.mark.slow
def test_what_would_change_the_answer_is_not_merged(spark, tmp_path):
    schema = "k string, seq int, sign int, p int"
    log = MergeTable(str(tmp_path / "t"), Collapsing("k", "sign", "seq"), "p", spark=spark)
    log.insert(
        spark.createDataFrame([("a", 1, 1, 1), ("a", 2, -1, 2), ("a", 3, 1, 2), ("a", 4, -1, 1)], schema)
    )
    assert log.final().count() == 0
    with pytest.raises(InputError, match="not well formed"):
        log.optimize()
    with pytest.raises(ConfigError, match="no condition on partition columns"):
        log.optimize("sign = 1")
    with pytest.raises(ConfigError, match="needs an order"):
        MergeTable(str(tmp_path / "u"), Collapsing("k", "sign"), spark=spark)
    with pytest.raises(MissingColumnError, match="lack the partition column p"):
        log.insert(spark.createDataFrame([("a", 1, 1)], "k string, seq int, sign int"))


@pytest.mark.slow
def test_ties_that_are_errors_are_so_between_inserts(spark, tmp_path):
    table = MergeTable(str(tmp_path / "t"), Replacing("k", "ver", ties="error"), spark=spark)
    table.insert(frame_of(spark, ("a", 1, "x"), ("b", 1, "y")))
    table.insert(frame_of(spark, ("b", 1, "y"), ("c", 1, "z")))
    assert sorted(r.k for r in table.final().collect()) == ["a", "b", "c"]
    table.insert(frame_of(spark, ("a", 1, "other")))
    with pytest.raises(Exception, match='greatest version of key .*"k":"a"'):
        table.final().count()


def test_equal_rows_are_explained_one_by_one_and_names_of_ours_are_refused(spark):
    frame = spark.createDataFrame(
        [("a", 1, 1), ("a", 1, 1), ("b", 1, -1), ("b", 1, -1)], "k string, row int, sign int"
    )
    spec = Collapsing("k", "sign", "row")
    kept = [r.k for r in explain_merge(frame, spec, "merge").collect() if r._kept]
    assert sorted(kept) == sorted(r.k for r in merge(frame, spec).collect()) == ["a", "b"]
    with pytest.raises(InputError, match="_kept, a name that is added here"):
        explain_merge(explain_merge(frame, spec), spec)
    with pytest.raises(InputError, match="differ only in case: s.A, s.a"):
        check_log(frame.selectExpr("*", "named_struct('a', 1, 'A', 2) as s"), spec)
    with pytest.raises(ConfigError, match="Did you mean final"):
        explain_merge(frame, spec, "finl")
    empty = replacing(frame.limit(0), [], version="row", ties="error")
    assert empty.count() == 0


KILLED = """
import sys
from dedup_nb import get_spark
from dedup_nb import MergeTable, Replacing
spark = get_spark(delta=True)
table = MergeTable(sys.argv[1], Replacing("k", "ver"), spark=spark)
for n in range(1000):
    if n == 1:
        print("ready", flush=True)
    table.insert(spark.range(500).selectExpr("concat('k', id) as k", f"{n} as ver", "'v' as v"), token=str(n))
    if n % 3 == 2:
        table.optimize()
"""


SOME, MORE = [2.3, 4.4], [1.0, 3.1, 5.7]  # seconds


@pytest.mark.parametrize(
    "delay",
    [
        *(pytest.param(delay, marks=pytest.mark.slow) for delay in SOME),
        *(pytest.param(delay, marks=pytest.mark.soak) for delay in MORE),
    ],
)
def test_a_table_whose_writer_is_killed_holds_whole_inserts(spark, tmp_path, delay):
    path = str(tmp_path / "t")
    job = subprocess.Popen([sys.executable, "-c", KILLED, path], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert job.stdout.readline().strip() == "ready"
    with pytest.raises(subprocess.TimeoutExpired):
        job.wait(delay)
    job.kill()
    job.wait()
    table = MergeTable(path, Replacing("k", "ver"), spark=spark)
    last = max(r.ver for r in table.rows().collect())
    parts = {r._block: r.rows for r in table.parts().collect()}
    assert set(parts.values()) == {500}
    again = spark.range(500).selectExpr("concat('k', id) as k", f"{last} as ver", "'v' as v")
    assert table.insert(again, token=str(last)).rows == 0
    assert table.final().count() == 500

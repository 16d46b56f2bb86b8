"""The deduper: against the recorded cases of Apache Apex, and against its rules followed row by row."""

import csv
import math

import pytest
from conftest import CONFORMANCE
from deduper_model import FEW, SCHEMA, Model, deduper_of, outcomes_by_seq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

from dedup_nb.base.errors import ConfigError, InputError, MissingColumnError
from dedup_nb.manifest.ledger import FencedError, ManifestError, RecipeError
from dedup_nb.streams.deduper import OUTCOMES, Deduper, default_span, time_span
from dedup_nb.streams.deduper_state import DedupState

APEX = CONFORMANCE / "apex"
CASES = sorted(p.name.removesuffix(".in.csv") for p in APEX.glob("*.in.csv"))
SHORT = {
    "doc_expiry_table",
    "edge_span_larger_than_expiry",
    "rand_b_12_004",
    "bounded_two_windows_documented",
}


def recorded_rows(name):
    with open(APEX / name) as file:
        return list(csv.DictReader(file))


def case(name):
    "The rows, the settings and the outcomes of a recorded case."
    rows = [(int(r["seq"]), r["key"], int(r["time_ms"])) for r in recorded_rows(f"{name}.in.csv")]
    told = {r["parameter"]: float(r["value"]) for r in recorded_rows(f"{name}.config.csv")}
    return rows, told, {int(r["seq"]): r["outcome"] for r in recorded_rows(f"{name}.expected.csv")}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=[] if n in SHORT else [pytest.mark.slow])
        for n in CASES
        if n != "bounded_two_windows_as_built"  # a defect: it forgets at the end of each window
    ],
)
def test_recorded_cases(spark, name):
    rows, told, expected = case(name)
    told.pop("num_buckets", None)  # of the original; it never changes an outcome
    deduper = Deduper(key="key", event_time="time", order_by=["seq"], profile="apex", **told)
    assert outcomes_by_seq(deduper.split(spark.createDataFrame(rows, SCHEMA))) == expected


@pytest.mark.slow
def test_a_split_that_is_released_leaves_the_rows_of_an_equal_one(spark):
    rows = spark.createDataFrame([(1, "a", 5), (2, "a", 6)], SCHEMA).coalesce(1)
    one, two = (Deduper(key="key").split(rows) for _ in range(2))
    one.release()
    assert two._held[0].storageLevel.useMemory and not one._held[0].storageLevel.useMemory
    assert two.unique.columns == two.duplicate.columns == rows.columns
    two.release()


@pytest.mark.skipif(not CASES, reason="the recorded cases are not there")
def test_the_model_of_these_tests_follows_the_recorded_cases():
    for name in CASES:
        rows, told, expected = case(name)
        if "num_buckets" in told:
            continue
        horizon, span, reference = (
            round(1000 * told[n]) for n in ("expire_before", "bucket_span", "reference_instant")
        )
        model = Model(horizon, span, reference, scope="bucket")
        assert {seq: model.take(key, at) for seq, key, at in rows} == expected, name


# --- against the model


ROWS = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 60)), min_size=1, max_size=60)
HOW = st.fixed_dictionaries(
    {
        "horizon": st.integers(1, 20),
        "span": st.integers(1, 8),
        "reference": st.integers(-5, 30),
        "scope": st.sampled_from(["horizon", "bucket"]),
        "expiry": st.sampled_from(["bucket", "exact"]),
        "max_future": st.sampled_from([None, None, 7, 15]),
    }
)


def follows_the_model(spark, how, rows, partitions):
    model = Model(**how)
    told = [(n, key, at) for n, (key, at) in enumerate(rows)]
    expected = model.split(rows)
    frame = spark.createDataFrame(told[::-1], SCHEMA).repartition(partitions)
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", partitions)
    try:
        found = deduper_of(how).split(frame)
        assert outcomes_by_seq(found) == expected
        assert found.metrics["latest_point"] == math.floor(model.latest)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)


MIXED = [("abcd"[n * 7 % 4], (n * 5 + n * n % 17) % 61) for n in range(60)]


@pytest.mark.parametrize("how, partitions", FEW)
def test_a_split_follows_the_rules_row_by_row(spark, how, partitions):
    follows_the_model(spark, how, MIXED, partitions)


@pytest.mark.soak
@settings(max_examples=2000, suppress_health_check=list(HealthCheck))
@given(how=HOW, rows=ROWS, partitions=st.sampled_from([1, 2, 7, 50]))
def test_every_split_follows_the_rules_row_by_row(spark, how, rows, partitions):
    follows_the_model(spark, how, rows, partitions)


@pytest.mark.slow
@pytest.mark.parametrize("scope, expiry", [("horizon", "bucket"), ("bucket", "bucket"), ("horizon", "exact")])
def test_a_key_with_half_of_all_rows(spark, scope, expiry):
    how = dict(horizon=50, span=10, reference=0, scope=scope, expiry=expiry, max_future=None)
    rows = [("hot" if n % 2 else f"k{n * 7 % 501}", n // 20 + n * n % 23) for n in range(10_000)]
    follows_the_model(spark, how, rows, 7)


def outcomes_of_batches(spark, path, deduper, rows, cuts):
    "The outcomes of rows that come in batches, each batch from a memory opened anew."
    found = {}
    for n, (start, end) in enumerate(zip([0, *cuts], [*cuts, len(rows)])):
        frame = spark.createDataFrame([(i, *rows[i]) for i in range(start, end)], SCHEMA)
        split = deduper.split(frame, state=DedupState(path, spark), batch_id=f"b{n}")
        found |= outcomes_by_seq(split)
        split.commit()
    return found


@pytest.mark.soak
@pytest.mark.parametrize("how, partitions", FEW[:1])
def test_batches_give_the_outcomes_of_one(spark, tmp_path, how, partitions):
    model = Model(**how)
    expected = {n: model.take(key, at) for n, (key, at) in enumerate(MIXED)}
    path = str(tmp_path / "state")
    assert outcomes_of_batches(spark, path, deduper_of(how), MIXED, [7, 20]) == expected
    state = DedupState(path, spark)
    assert state.summary()["batches"] == 3
    # the same batch again: the same outcomes, and nothing changes
    frame = spark.createDataFrame([(i, *MIXED[i]) for i in range(7, 20)], SCHEMA)
    again = deduper_of(how).split(frame, state=state, batch_id="b1")
    before = state.summary()
    again.commit()
    assert outcomes_by_seq(again) == {i: expected[i] for i in range(7, 20)} and state.summary() == before
    state.compact()
    assert state.purge() == [] and state.summary()["keys"] == before["keys"] == state.read().count()
    # another memory
    with pytest.raises(RecipeError, match="expire_before was 0.01, is now 0.02"):
        deduper_of({**how, "horizon": 20}).split(frame, state=state, batch_id="b3")
    # two at once: the second must look again
    one, two = (deduper_of(how).split(frame, state=state, batch_id=b) for b in ("b3", "b4"))
    one.commit()
    with pytest.raises(FencedError, match="Split it again"):
        two.commit()


@pytest.mark.slow
@settings(max_examples=4, suppress_health_check=list(HealthCheck))
@given(how=HOW, cuts=st.sets(st.integers(1, 59), max_size=4), unit=st.sampled_from([1, 1000]))
def test_every_cut_into_batches_follows_the_rules_row_by_row(spark, tmp_path_factory, how, cuts, unit):
    "In milliseconds, where a state looks up all that it has, and in seconds, where it looks up what lives."
    path = str(tmp_path_factory.mktemp("cut") / "state")
    follows_the_model_in_batches(spark, path, how, MIXED, sorted(cuts), unit)


def follows_the_model_in_batches(spark, path, how, rows, cuts, unit):
    timed = ("horizon", "span", "reference", "max_future")
    how = {name: how[name] and how[name] * unit if name in timed else how[name] for name in how}
    rows = [(key, at * unit) for key, at in rows]
    model, expected = Model(**how), {}
    for start, end in zip([0, *cuts], [*cuts, len(rows)]):
        expected |= model.split(rows[start:end], start)
    assert outcomes_of_batches(spark, path, deduper_of(how), rows, cuts) == expected
    return expected


TEN = dict(horizon=10, span=10, reference=0, expiry="exact", max_future=None)


@pytest.mark.slow
def test_a_cut_changes_no_outcome(spark, tmp_path):
    "The first row has expired, and its bucket has not."
    how, rows = dict(TEN, scope="bucket"), [("a", 10), ("b", 21), ("a", 19)]
    follows_the_model_in_batches(spark, str(tmp_path / "state"), how, rows, [2], 1000)


@pytest.mark.soak
def test_a_clock_that_runs_ahead_blocks_its_key_no_longer_than_others(spark, tmp_path):
    "Each batch begins 7 later at most, so `a` counts as of 7, and blocks up to 17."
    how = dict(TEN, scope="horizon", max_future=7)
    rows = [("b", 1), ("a", 99), ("b", 14), ("a", 16), ("b", 99), ("a", 20)]
    found = follows_the_model_in_batches(spark, str(tmp_path / "state"), how, rows, [2, 4], 1000)
    words = ["unique", "unique", "unique", "duplicate", "duplicate", "unique"]
    assert found == dict(enumerate(words))


# --- rows and settings that are wrong


def test_rows_without_key_or_time_are_never_lost(spark):
    rows = spark.createDataFrame([(1, "a", 5), (2, None, 6), (3, "b", None), (4, "a", 6)], SCHEMA)
    plain = dict(key="key", event_time="time", expire_before=1, order_by=["seq"])
    with pytest.raises(InputError, match="2 rows without a key.*on_null"):
        Deduper(**plain).split(rows)
    for what in ("unique", "expired"):
        found = Deduper(**plain, on_null=what).split(rows)
        assert outcomes_by_seq(found) == {1: "unique", 2: what, 3: what, 4: "duplicate"}
    assert sum(found.metrics[o] for o in OUTCOMES) == 4
    seen = found.tagged.where("outcome = 'duplicate'").first().first_seen
    assert (seen.event_time, seen.order_by) == (5, '{"_0":1}')


@pytest.mark.slow
def test_keys_of_several_columns_equal_rows_and_sql(spark):
    rows = spark.createDataFrame([("a", "b"), ("a", "b"), ("ab", ""), ("A", "b")], "one string, two string")
    found = Deduper(key=["one", "two"]).split(rows)
    assert found.metrics | {"latest_point": 0} == {
        **{"unique": 3, "duplicate": 1, "expired": 0},
        **{"latest_point": 0, "expiry_point": None},
    }
    assert found.unique.columns == ["one", "two"]
    assert Deduper(key="lower(one) || two").split(rows).unique.count() == 1


@pytest.fixture
def berlin(spark):
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", zone)


@pytest.mark.slow
def test_keys_are_the_same_in_every_zone(berlin):
    "Half past two comes twice in a night of October, also inside a struct."
    told = "values ('2026-10-25T00:30:00Z'), ('2026-10-25T01:30:00Z') as t(at)"
    times = berlin.sql(f"select timestamp(at) as at from {told}")
    for key in ("at", "struct(at)", "array(at)"):
        assert Deduper(key=key).split(times).metrics["unique"] == 2


def test_the_row_that_was_first_is_told_in_full_and_the_same_in_every_zone(berlin):
    told = "values ('2026-10-25T00:30:00.000001Z', null), ('2026-10-25T00:30:00.000002Z', 1) as t(at, n)"
    rows = berlin.sql(f"select 'a' as key, timestamp(at) as at, n from {told}")
    found = Deduper(key="key", order_by=["at", "n"]).split(rows).tagged.where("outcome = 'duplicate'")
    assert found.first().first_seen.order_by == '{"_0":"2026-10-25T00:30:00.000001Z","_1":null}'


@pytest.mark.slow
def test_rows_may_be_taken_in_descending_order(spark):
    rows = spark.createDataFrame([(1, "a", 5), (2, "a", 5), (3, "a", 5)], SCHEMA)
    for order, first in {"seq desc": 3, "abs(seq - 2) desc, seq": 1, "time DESC, seq ASC": 1}.items():
        found = Deduper(key="key", order_by=order.split(", ")).split(rows)
        assert [r.seq for r in found.unique.collect()] == [first], order
    # a column may have such a name
    named = rows.withColumnRenamed("seq", "seq desc")
    assert Deduper(key="key", order_by="seq desc").split(named).unique.first()["seq desc"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("two", [("9", "10"), ("2026-11-20T10:00:00Z", "2026-11-20T10:00:00.250Z")])
def test_rows_in_the_order_of_a_text(spark, two):
    rows = spark.createDataFrame([(1, two[0]), (2, two[1])], "seq int, at string").withColumn(
        "key", F.lit("a")
    )
    for order, first in {"at": 1, "at desc": 2, "trim(at)": 1, "trim(at) desc": 2}.items():
        found = Deduper(key="key", order_by=order).split(rows)
        assert [r.seq for r in found.unique.collect()] == [first], order


@pytest.mark.parametrize("order", ["seq", "seq desc"])
def test_a_row_without_a_place_comes_last(spark, order):
    rows = spark.createDataFrame([(None, "a", 5), (2, "a", 5)], SCHEMA)
    assert Deduper(key="key", order_by=order).split(rows).unique.first().seq == 2


def test_a_split_that_fails_keeps_no_rows(spark):
    rows = spark.createDataFrame([(1, "a", 5), (2, None, 90_000)], SCHEMA)
    kept = lambda: spark.sparkContext._jsc.getPersistentRDDs().size()
    before = kept()
    with pytest.raises(InputError, match="1 row without a key"):
        Deduper(key="key", event_time="time", expire_before=1, reference_instant=0).split(rows)
    assert kept() == before


def test_a_platform_that_keeps_no_rows_is_named(spark, monkeypatch):
    rows = spark.createDataFrame([(1, "a", 5)], SCHEMA)

    def refuse(frame):
        raise RuntimeError("[NOT_SUPPORTED_WITH_SERVERLESS] PERSIST TABLE\nat line 1")

    monkeypatch.setattr(type(rows), "persist", refuse)
    with pytest.raises(
        ConfigError, match="platform refuses: .NOT_SUPPORTED_WITH_SERVERLESS. PERSIST TABLE. U"
    ):
        Deduper(key="key").split(rows)


@pytest.mark.parametrize(
    "wrong, words",
    [
        (dict(expire_before="soon"), "expire_before wants a time"),
        (dict(expire_before=0), "above 0"),
        (dict(expire_before=10, event_time=None), "needs event_time"),
        (dict(expire_before=None, bucket_span=5), "bucket_span needs expire_before"),
        (dict(expire_before=True), "found True"),
        (dict(expire_before="999999999 days", bucket_span=5), "250 years at most"),
        (dict(scope="day"), "scope is one of: horizon, bucket; found 'day'"),
        (dict(scope="horizn"), "Did you mean horizon?"),
        (dict(key=[]), "key wants a column"),
        (dict(reference_instant="then"), "reference_instant wants a time"),
    ],
)
def test_settings_that_are_wrong(wrong, words):
    with pytest.raises(ConfigError, match=words):
        Deduper(**{"key": "key", "event_time": "time", **wrong})


def test_frames_and_memories_that_do_not_fit(spark, tmp_path):
    rows = spark.createDataFrame([(1, "a", 5)], SCHEMA)
    with pytest.raises(MissingColumnError, match="kee.*Did you mean key"):
        Deduper(key="kee").split(rows)
    with pytest.raises(InputError, match="event_time is boolean; wanted a timestamp"):
        Deduper(key="key", event_time="time > 5", expire_before=1).split(rows)
    with pytest.raises(InputError, match="a column outcome"):
        Deduper(key="key").split(rows.withColumnRenamed("time", "outcome"))
    with pytest.raises(InputError, match="differ only in case: s.A, s.a"):
        Deduper(key="key").split(rows.selectExpr("*", "named_struct('a', 1, 'A', 2) as s"))
    with pytest.raises(InputError, match="The frame has columns that differ only in case: KEY, key"):
        Deduper(key="key").split(rows.toDF("seq", "key", "KEY"))
    with pytest.raises(ConfigError, match=r"is sorted: .*order_by=\['abs\(seq - 2\) desc'\]"):
        Deduper(key="key", order_by=["seq", F.expr("abs(seq - 2)").desc_nulls_first()])
    with pytest.raises(ConfigError, match="state and batch_id go together"):
        Deduper(key="key").split(rows, batch_id="b1")
    with pytest.raises(ConfigError, match="without state"):
        Deduper(key="key").split(rows).commit()
    path = tmp_path / "state"
    spark.range(1).write.format("delta").save(str(path))
    with pytest.raises(ManifestError, match="another table"):
        Deduper(key="key").split(rows, state=DedupState(str(path), spark), batch_id="b1")


def test_a_column_may_have_any_name_but_ours(spark):
    names = "Anchor, dedup, step, steps, first, known, places, n, s, at, time, rows"
    rows = spark.range(2).selectExpr("'a' as key", *(f"id as {name}" for name in names.split(", ")))
    found = Deduper(key="key").split(rows)
    assert (found.unique.count(), found.duplicate.count()) == (1, 1)


def test_spans():
    assert time_span("x", "24 hours") == 86_400_000_000 and time_span("x", "500 ms") == 500_000
    assert {h: default_span(h * 10**6) // 10**6 for h in (10, 60, 3600, 86400)} == {
        10: 2,
        60: 6,
        3600: 60,
        86400: 288,
    }


def test_a_span_that_does_not_divide_the_horizon_is_said():
    with pytest.warns(UserWarning, match="3 s does not divide expire_before 10 s.*the window 12 s is longer"):
        Deduper(key="key", event_time="time", expire_before=10, bucket_span=3)

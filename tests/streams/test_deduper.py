"""The deduper: against the recorded cases of Apache Apex, and against its rules followed row by row."""

import csv
import math
import shutil
import subprocess
import sys
import warnings
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest
from conftest import CONFORMANCE, ROOT
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from killed_split import POINTS
from pyspark.sql import functions as F

from dedup_nb.base.errors import BusyError, ConfigError, InputError, MissingColumnError
from dedup_nb.manifest.lake import LakeStore, read_markers
from dedup_nb.manifest.ledger import FencedError, Ledger, ManifestError, Marker, RecipeError, this_process
from dedup_nb.manifest.protocol import Manifest
from dedup_nb.rules.cross_batch import KEY, id_key
from dedup_nb.streams import deduper
from dedup_nb.streams.checkpoint import origin_of
from dedup_nb.streams.deduper import OUTCOMES, Deduper, SplitStream, default_span, time_span
from dedup_nb.streams.deduper_state import (
    DedupState,
    commit_batch,
    find_known,
    find_micro_batch,
    read_earlier,
)

APEX = CONFORMANCE / "apex"
CASES = sorted(p.name.removesuffix(".in.csv") for p in APEX.glob("*.in.csv"))
SHORT = {
    "doc_expiry_table",
    "edge_span_larger_than_expiry",
    "rand_b_12_004",
    "bounded_two_windows_documented",
}
SCHEMA = "seq int, key string, time bigint"
HOUR = 3_600_000


class Model:
    "The rules of the deduper, row by row; times and spans in milliseconds."

    def __init__(self, horizon, span=1, reference=0, scope="horizon", expiry="bucket", max_future=None):
        self.horizon, self.span, self.scope, self.expiry = horizon, span, scope, expiry
        self.n, self.origin, self.step = math.ceil(horizon / span), reference - horizon, max_future
        self.latest, self.anchors = reference - Fraction(1, 1000), {}  # a microsecond
        self.limit, self.is_first = math.inf, True

    def begin(self, times):
        "A batch with these times comes."
        hours = sorted(at - at % HOUR for at in times)
        known = hours[(len(hours) - 1) // 2] if self.is_first else self.latest
        self.limit, self.is_first = math.inf if self.step is None else known + self.step, False

    def bucket(self, at):
        return (at - self.origin) // self.span

    def ages(self, at):
        return at if self.expiry == "exact" else self.bucket(at)

    @property
    def now(self):
        return self.latest if self.expiry == "exact" else max(self.n - 1, self.bucket(self.latest))

    def lives(self, at):
        return self.now - self.ages(at) < (self.horizon if self.expiry == "exact" else self.n)

    def take(self, key, at):
        at = min(at, self.limit)  # a clock that runs ahead
        self.latest = max(self.latest, at)
        if not self.lives(at):
            return "expired"
        place = (key, self.bucket(at)) if self.scope == "bucket" else key
        if place in self.anchors and (self.scope == "bucket" or self.lives(self.anchors[place])):
            return "duplicate"
        self.anchors[place] = at
        return "unique"

    def split(self, rows, start=0):
        "The outcomes of a batch of keys and times, by their numbers."
        self.begin([at for _, at in rows])
        return {n: self.take(key, at) for n, (key, at) in enumerate(rows, start)}


def read(name):
    with open(APEX / name) as file:
        return list(csv.DictReader(file))


def case(name):
    "The rows, the settings and the outcomes of a recorded case."
    rows = [(int(r["seq"]), r["key"], int(r["time_ms"])) for r in read(f"{name}.in.csv")]
    told = {r["parameter"]: float(r["value"]) for r in read(f"{name}.config.csv")}
    return rows, told, {int(r["seq"]): r["outcome"] for r in read(f"{name}.expected.csv")}


def outcomes(found):
    return {r.seq: r.outcome for r in found.tagged.select("seq", "outcome").collect()}


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
    assert outcomes(deduper.split(spark.createDataFrame(rows, SCHEMA))) == expected


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


def deduper_of(how):
    told = {n: how[n] / 1000 for n in ("horizon", "span", "reference")}
    step = how["max_future"]
    return Deduper(
        key="key",
        event_time="time",
        order_by=["seq"],
        expire_before=told["horizon"],
        bucket_span=told["span"],
        reference_instant=told["reference"],
        scope=how["scope"],
        expiry=how["expiry"],
        max_future=step and step / 1000,
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
        assert outcomes(found) == expected
        assert found.metrics["latest_point"] == math.floor(model.latest)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)


FEW = [
    (dict(horizon=10, span=5, reference=0, scope="horizon", expiry="bucket", max_future=None), 2),
    (dict(horizon=10, span=3, reference=2, scope="horizon", expiry="exact", max_future=None), 7),
    (dict(horizon=8, span=9, reference=0, scope="bucket", expiry="bucket", max_future=7), 1),
]
MIXED = [("abcd"[n * 7 % 4], (n * 5 + n * n % 17) % 61) for n in range(60)]


@pytest.mark.parametrize("how, partitions", FEW)
def test_a_split_follows_the_rules_row_by_row(spark, how, partitions):
    follows_the_model(spark, how, MIXED, partitions)


@pytest.mark.slow
@settings(max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))
@given(how=HOW, rows=ROWS, partitions=st.sampled_from([1, 2, 7, 50]))
def test_every_split_follows_the_rules_row_by_row(spark, how, rows, partitions):
    follows_the_model(spark, how, rows, partitions)


@pytest.mark.slow
@pytest.mark.parametrize("scope, expiry", [("horizon", "bucket"), ("bucket", "bucket"), ("horizon", "exact")])
def test_a_key_with_half_of_all_rows(spark, scope, expiry):
    how = dict(horizon=50, span=10, reference=0, scope=scope, expiry=expiry, max_future=None)
    rows = [("hot" if n % 2 else f"k{n * 7 % 501}", n // 20 + n * n % 23) for n in range(10_000)]
    follows_the_model(spark, how, rows, 7)


def in_batches(spark, path, deduper, rows, cuts):
    "The outcomes of rows that come in batches, each batch from a memory opened anew."
    found = {}
    for n, (start, end) in enumerate(zip([0, *cuts], [*cuts, len(rows)])):
        frame = spark.createDataFrame([(i, *rows[i]) for i in range(start, end)], SCHEMA)
        split = deduper.split(frame, state=DedupState(path, spark), batch_id=f"b{n}")
        found |= outcomes(split)
        split.commit()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("how, partitions", FEW[:1])
def test_batches_give_the_outcomes_of_one(spark, tmp_path, how, partitions):
    model = Model(**how)
    expected = {n: model.take(key, at) for n, (key, at) in enumerate(MIXED)}
    path = str(tmp_path / "state")
    assert in_batches(spark, path, deduper_of(how), MIXED, [7, 20]) == expected
    state = DedupState(path, spark)
    assert state.summary()["batches"] == 3
    # the same batch again: the same outcomes, and nothing changes
    frame = spark.createDataFrame([(i, *MIXED[i]) for i in range(7, 20)], SCHEMA)
    again = deduper_of(how).split(frame, state=state, batch_id="b1")
    before = state.summary()
    again.commit()
    assert outcomes(again) == {i: expected[i] for i in range(7, 20)} and state.summary() == before
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
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
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
    assert in_batches(spark, path, deduper_of(how), rows, cuts) == expected
    return expected


TEN = dict(horizon=10, span=10, reference=0, expiry="exact", max_future=None)


@pytest.mark.slow
def test_a_cut_changes_no_outcome(spark, tmp_path):
    "The first row has expired, and its bucket has not."
    how, rows = dict(TEN, scope="bucket"), [("a", 10), ("b", 21), ("a", 19)]
    follows_the_model_in_batches(spark, str(tmp_path / "state"), how, rows, [2], 1000)


@pytest.mark.slow
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
        assert outcomes(found) == {1: "unique", 2: what, 3: what, 4: "duplicate"}
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


def test_times_are_read_as_they_come(spark):
    told = "values ('a', '2026-11-20 10:00:00'), ('a', '2026-11-20T10:00:05Z'), ('a', '2026-11-20 12:00:00')"
    text = spark.sql(f"select * from {told} as t(key, at)")
    plain = dict(key="key", event_time="at", expire_before="1 hour", expiry="exact")
    for events in (text, text.selectExpr("key", "cast(at as timestamp) as at")):
        found = Deduper(**plain).split(events)
        assert {n: found.metrics[n] for n in OUTCOMES} == {"unique": 2, "duplicate": 1, "expired": 0}
    broken = text.selectExpr("key", "'noon' as at")
    with pytest.raises(InputError, match="3 rows"):
        Deduper(**plain).split(broken)


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


@pytest.mark.parametrize("two", [("9", "10"), ("2026-11-20T10:00:00Z", "2026-11-20T10:00:00.250Z")])
def test_rows_in_the_order_of_a_text(spark, two):
    rows = spark.createDataFrame([(1, two[0]), (2, two[1])], "seq int, at string").withColumn(
        "key", F.lit("a")
    )
    for order, first in {"at": 1, "at desc": 2, "trim(at)": 1, "trim(at) desc": 2}.items():
        found = Deduper(key="key", order_by=order).split(rows)
        assert [r.seq for r in found.unique.collect()] == [first], order


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


def test_numbers_that_are_no_time(spark):
    rows = spark.sql("select * from values (1, 5D), (2, double('NaN')), (3, 1.7e21D) as t(key, time)")
    found = Deduper(key="key", event_time="time", expire_before=10, on_null="expired").split(rows)
    assert found.metrics["expired"] == 2


NOVEMBER = 1_700_000_000  # of 2023, in seconds


def of_times(spark, *times, kind="bigint"):
    rows = ", ".join(f"({n}, 'k{n % 2}', cast({at} as {kind}))" for n, at in enumerate(times, 1))
    return spark.sql(f"select * from values {rows} as t(seq, key, at)")


def split_by(event_time, rows, **more):
    return Deduper(
        **{"key": "key", "event_time": event_time, "expire_before": "24 hours", "order_by": "seq", **more}
    ).split(rows)


@pytest.mark.parametrize("kind", ["bigint", "double", "decimal(20,0)"])
@pytest.mark.parametrize(
    "per_second, words",
    [
        (10**6, "3 times of 3 in at .milliseconds since 1970. lie outside the years 1900 to 2200: "),
        (10**9, "As nanoseconds it is 2023-11-15 01:13:20: give event_time='at / 1000000'."),
    ],
)
def test_times_of_another_unit_are_refused_with_one_that_fits(spark, kind, per_second, words):
    rows = of_times(
        spark, *(n * per_second for n in (NOVEMBER, NOVEMBER + 5400, NOVEMBER + 10_800)), kind=kind
    )
    for more in ({}, dict(on_null="expired"), dict(max_future="1 hour", reference_instant=0)):
        with pytest.raises(InputError, match=words) as wrong:
            split_by("at", rows, **more)
    advice = str(wrong.value).rpartition("event_time='")[2].partition("'")[0]
    assert outcomes(split_by(advice, rows)) == {1: "unique", 2: "unique", 3: "duplicate"}
    # not a word where nothing expires by them
    assert split_by("at", rows, expire_before=None).metrics["unique"] == 2


def test_a_batch_of_another_unit_is_refused_with_a_state_too(spark, tmp_path):
    deduper = Deduper(key="key", event_time="at", expire_before="24 hours", order_by="seq")
    state = DedupState(str(tmp_path / "state"), spark)
    deduper.split(of_times(spark, NOVEMBER * 1000), state, "b1").commit()
    with pytest.raises(
        InputError, match="As microseconds it is 2023-11-14 22:13:21: give event_time='at / 1000'"
    ):
        deduper.split(of_times(spark, (NOVEMBER + 1) * 10**6), state, "b2")


def test_a_stray_time_is_refused_unless_max_future_takes_care_of_it(spark):
    # 9999-12-31 in milliseconds, and the first instant of 1900 and the last one of 2200
    rows = of_times(spark, NOVEMBER * 1000, NOVEMBER * 1000 + 1, 253_402_300_799_000, NOVEMBER * 1000 + 2)
    with pytest.raises(
        InputError, match="1 time of 4 .* in the year 9999. Make them null .on_null .* max_future"
    ):
        split_by("at", rows)
    found = split_by("at", rows, max_future="1 hour", reference_instant=NOVEMBER)
    assert outcomes(found) == {1: "unique", 2: "unique", 3: "duplicate", 4: "duplicate"}
    # also where it is the very first row, and buckets begin with it
    found = split_by("at", rows, max_future="1 hour", order_by="at desc")
    assert outcomes(found) == {3: "unique", 4: "unique", 2: "duplicate", 1: "duplicate"}
    edges = of_times(spark, -2_208_988_800_000, 7_289_654_399_999)
    assert split_by("at", edges).metrics["unique"] == 2
    for at in (-2_208_988_800_001, 7_289_654_400_000):
        with pytest.raises(InputError, match="1 time of 1"):
            split_by("at", of_times(spark, at))


@pytest.mark.parametrize(
    "hours, latest",
    [
        # half of four is reached at 10:30, of five at 11:00, and of two at the first
        ((10, 10.5, 11, 99), 12),
        ((10, 10.5, 11, 11.5, 99), 13),
        ((10.5, 99), 12),
        # nothing is too far, and hours before 1970 begin earlier too
        ((10, 11, 11.5), 11.5),
        ((-0.5, 99), 1),
    ],
)
def test_times_of_a_first_batch_count_up_to_max_future_after_its_median_hour(spark, hours, latest):
    rows = of_times(spark, *(int(at * HOUR) for at in hours), "null")
    found = split_by("at", rows, max_future="2 hours", on_null="unique").metrics
    assert (found["latest_point"], found["expired"]) == (latest * HOUR, 0)


def test_times_of_a_later_batch_count_up_to_max_future_after_the_latest_point(spark, tmp_path):
    "Whatever its median hour is; so after a pause the latest point follows, batch by batch."
    deduper = Deduper("key", "at", expire_before="24 hours", order_by="seq", max_future="2 hours")
    state = DedupState(str(tmp_path / "state"), spark)

    def split(batch_id, *hours):
        return deduper.split(of_times(spark, *(int(at * HOUR) for at in hours)), state, batch_id)

    split("b1", 10, 10.5).commit()
    second = split("b2", 11, 90, 91)
    second.commit()
    assert second.metrics["latest_point"] == 12.5 * HOUR
    assert split("b3", 90, 91).metrics["latest_point"] == 14.5 * HOUR


def test_timestamps_that_were_cast_from_milliseconds_are_refused(spark):
    rows = of_times(spark, NOVEMBER * 1000, NOVEMBER * 1000 + 1).selectExpr(
        "seq", "key", "timestamp_seconds(at) as at"
    )
    with pytest.raises(
        InputError, match="2 times of 2 in at lie outside .* in the year 55840. .*timestamp_millis"
    ):
        split_by("at", rows)


def test_seconds_among_small_milliseconds_are_warned_of(spark):
    with pytest.warns(UserWarning, match=r"If they are seconds, give event_time='at \* 1000L'"):
        split_by("at", of_times(spark, NOVEMBER, NOVEMBER + 10_800))
    rows = of_times(spark, NOVEMBER, NOVEMBER + 5400, NOVEMBER + 10_800, kind="int")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert outcomes(split_by("at * 1000L", rows)) == {1: "unique", 2: "unique", 3: "duplicate"}
        split_by("at", of_times(spark, 0, 86_400_000))
        split_by("at", of_times(spark, 0, NOVEMBER))


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
    with pytest.raises(ConfigError, match="state and batch_id go together"):
        Deduper(key="key").split(rows, batch_id="b1")
    with pytest.raises(ConfigError, match="without state"):
        Deduper(key="key").split(rows).commit()
    path = tmp_path / "state"
    spark.range(1).write.format("delta").save(str(path))
    with pytest.raises(ManifestError, match="another table"):
        Deduper(key="key").split(rows, state=DedupState(str(path), spark), batch_id="b1")


def test_spans():
    assert time_span("x", "24 hours") == 86_400_000_000 and time_span("x", "500 ms") == 500_000
    assert {h: default_span(h * 10**6) // 10**6 for h in (10, 60, 3600, 86400)} == {
        10: 2,
        60: 6,
        3600: 60,
        86400: 288,
    }


@pytest.mark.slow
def test_a_stream_is_split_as_batches_are(spark, tmp_path):
    "Every cut gives the outcomes of the row by row model, also if a micro-batch comes twice."
    rows = [(n, "abc"[n * 7 % 3], n * 1000 + (-9000 if n % 5 == 4 else 0)) for n in range(12)]
    for number, start in enumerate((0, 5, 9)):
        part = spark.createDataFrame(rows[start : (5, 9, 12)[number]], SCHEMA)
        part.coalesce(1).write.parquet(str(tmp_path / f"in/{number}"))
    asked = dict(key="key", event_time="time", expire_before=6, bucket_span=2, reference_instant=0)
    deduper = Deduper(**asked, order_by=["seq"])
    folders = {outcome: str(tmp_path / outcome) for outcome in OUTCOMES}

    def take():
        reader = spark.readStream.schema(SCHEMA).option("recursiveFileLookup", True)
        events = reader.option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
        stream = deduper.stream(events, str(tmp_path / "state"), str(tmp_path / "checkpoint"), **folders)
        stream.start(available_now=True).awaitTermination()
        found = {}
        for outcome, folder in folders.items():
            if any((tmp_path / outcome).glob("*/*.parquet")):
                found |= {r.seq: outcome for r in spark.read.parquet(folder).collect()}
        return found

    model = Model(6000, 2000)
    expected = {seq: model.take(key, at) for seq, key, at in rows}
    assert take() == expected and len(set(expected.values())) == 3
    for name in ("2", ".2.crc"):
        (tmp_path / "checkpoint/commits" / name).unlink()
    assert take() == expected
    assert sum(spark.read.parquet(folder).count() for folder in folders.values()) == len(rows)
    # another stream: on its outputs, and on its state
    shutil.move(tmp_path / "checkpoint", tmp_path / "kept")
    with pytest.raises(ConfigError, match="is that of another stream .state .*/state, checkpoint "):
        take()
    plain, folders = dict(folders), {"unique": str(tmp_path / "other")}
    with pytest.raises(Exception, match="knows batches that are not of the checkpoint"):
        take()
    # a checkpoint that was put back, and a state that is lost
    folders = plain
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.copytree(tmp_path / "kept", tmp_path / "checkpoint")
    for folder, name in product(("offsets", "commits"), ("1", ".1.crc", "2", ".2.crc")):
        (tmp_path / "checkpoint" / folder / name).unlink()
    with pytest.raises(Exception, match="now has other rows under its number"):
        take()
    shutil.rmtree(tmp_path / "state")
    with pytest.raises(Exception, match="does not know the one before it"):
        take()


@pytest.mark.slow
def test_a_killed_split_goes_on(spark, tmp_path, monkeypatch):
    "kill -9 at each step of the first, a middle and the last micro-batch; each time on other cores."
    rows = [(n, "abc"[n * 7 % 3], n * 1000 + (-9000 if n % 5 == 4 else 0)) for n in range(40)]
    for number in range(4):
        part = spark.createDataFrame(rows[10 * number : 10 * number + 10], SCHEMA)
        part.coalesce(1).write.parquet(str(tmp_path / f"in/{number}"))
    script = ROOT / "tests/programs/killed_split.py"

    def take(point, number):
        asked = [sys.executable, script, point, str(number), tmp_path]
        return subprocess.run(asked, capture_output=True)

    for n, (number, point) in enumerate(product((0, 1, 3), POINTS)):
        monkeypatch.setenv("SPARK_MASTER", f"local[{n % 2 + 1}]")
        assert take(point, number).returncode == -9, (number, point)
    assert take("never", 0).returncode == 0
    model, found = Model(6000, 2000), []
    for outcome in OUTCOMES:
        found += [(r.seq, outcome) for r in spark.read.parquet(str(tmp_path / outcome)).collect()]
    assert sorted(found) == [(seq, model.take(key, at)) for seq, key, at in rows]


def committed(number, **told):
    return Marker(number + 1, "commit", f"{number:09d}", {"first_seq": number + 1, "token": "t", **told})


def test_a_state_and_a_checkpoint_that_do_not_fit(tmp_path, monkeypatch):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text('{"id": "mine"}')
    for number in range(3):
        (tmp_path / f"offsets/{number}").write_text(f"rows of {number}")
    state, checkpoint = DedupState(str(tmp_path / "state")), str(tmp_path)

    def has(number, *markers):
        monkeypatch.setattr(DedupState, "_ledger", lambda self: Ledger(markers))
        return find_micro_batch(state, checkpoint, number) is not None

    mine = [committed(n, **origin_of(checkpoint, n)) for n in range(2)]
    by_hand = Marker(9, "commit", "history", {"first_seq": 9, "token": "t"})
    assert [has(0), has(0, by_hand), has(1, *mine), has(2, *mine)] == [False, False, True, False]
    with pytest.raises(ManifestError, match="knows batches that are not of the checkpoint"):
        has(1, committed(0, stream="other", offsets="x"))
    with pytest.raises(ManifestError, match="goes on with batch 2, and the state .* does not know the one"):
        has(2, mine[0])
    (tmp_path / "offsets/1").write_text("other rows")
    with pytest.raises(ManifestError, match="Batch 1 of the state .* now has other rows under its number"):
        has(1, *mine)
    # one that was split by hand
    with pytest.raises(ManifestError, match="knows batches that are not of the checkpoint"):
        has(1, committed(0))


def torn(split, message):
    return replace(split, tagged=split.tagged.withColumn("seq", F.raise_error(F.lit(message)).cast("int")))


@pytest.mark.slow
@pytest.mark.parametrize(
    "late, words",
    [
        # another driver commits the micro-batch before this one looks at its rows, before it writes, and
        # before it writes and fails
        ("looks", None),
        ("writes", "Another batch was committed"),
        ("fails", "the disk is full"),
    ],
)
def test_a_driver_that_comes_late_takes_nothing_and_adds_nothing(spark, tmp_path, monkeypatch, late, words):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets/0").write_text("rows")
    (tmp_path / "metadata").write_text('{"id": "mine"}')
    rows = spark.createDataFrame([(1, "a", 5), (2, "b", 6), (3, "a", 7)], SCHEMA)
    folders = {outcome: str(tmp_path / outcome) for outcome in OUTCOMES}
    rules = Deduper(key="key", event_time="time", expire_before=10, reference_instant=0)
    stream = SplitStream(rules, rows, str(tmp_path / "state"), str(tmp_path), folders)
    split_batch = deduper._split_batch

    def split_late(*asked):
        split = None if late == "looks" else split_batch(*asked)
        with monkeypatch.context() as other:
            other.setattr(deduper, "_split_batch", split_batch)
            deduper._take_batch(stream, rows, 0)
        return torn(split, words) if late == "fails" else split or split_batch(*asked)

    monkeypatch.setattr(deduper, "_split_batch", split_late)
    with pytest.raises(Exception, match=words) if words else nullcontext():
        deduper._take_batch(stream, rows, 0)
    deduper._take_batch(stream, rows, 0)
    found = {o: sorted(r.seq for r in spark.read.parquet(f).collect()) for o, f in folders.items()}
    assert found == {"unique": [1, 2], "duplicate": [3], "expired": []}
    assert not list(tmp_path.glob("*/.staging/*/*"))


@pytest.mark.slow
def test_a_state_reads_its_markers_once(spark, tmp_path, monkeypatch):
    rows, reads = spark.createDataFrame([(1, "a", 5)], SCHEMA), []
    monkeypatch.setattr(
        "dedup_nb.manifest.lake.read_markers", lambda path: reads.append(path) or read_markers(path)
    )
    for batch in ("b1", "b2"):
        reads.clear()
        Deduper(key="key").split(rows, DedupState(str(tmp_path / "state"), spark), batch).commit()
    assert len(reads) == 1


def test_an_output_of_another_stream_is_left_alone(spark, tmp_path):
    events, output = spark.readStream.format("rate").load(), tmp_path / "unique"
    output.mkdir()
    (output / "_stream.json").write_text('{"id": "i1", "state": "STATE", "checkpoint": "CHECKPOINT"}')
    deduper = Deduper(key="value", event_time="timestamp", expire_before=5)
    stream = deduper.stream(events, str(tmp_path / "s"), str(tmp_path / "c"), unique=str(output))
    with pytest.raises(ConfigError, match="that of another stream .state STATE, checkpoint CHECKPOINT."):
        stream.start()
    with pytest.raises(ConfigError, match="leave one out"):
        stream.start(available_now=True, trigger="1 minute")


def test_a_state_is_safe_from_two_hosts_where_a_manifest_is(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "dedup_nb.manifest.lake.conditional_puts", lambda folder, log_store: f"puts of {folder}"
    )
    path = str(tmp_path / "state")
    assert DedupState(path, spark)._store.puts == f"puts of {path}"


@pytest.mark.slow
def test_a_batch_that_was_given_up_is_committed_with_its_new_time(spark, tmp_path, monkeypatch):
    "What failed blocks nobody; what another host has at work is named, and is taken over by its own stream."
    state, told, second = DedupState(str(tmp_path / "state"), spark), {"key": ["id"]}, 10**6
    keys = spark.sql("select 'a' as id, bigint(1000000000) as time").select(*id_key(F.col("id")), "time")

    def commit(batch_id, latest, keys=keys, **info):
        commit_batch(read_earlier(state, batch_id, told), keys, latest * second, info, days=1)

    with pytest.raises(Exception, match="the disk is full"):
        commit("b1", 10, keys.withColumn("time", F.raise_error(F.lit("the disk is full")).cast("bigint")))
    commit("b1", 1000)
    ids = keys.select(*KEY)
    seen = find_known(read_earlier(state, "b2", told), ids, 1005 * second, 60 * second)
    assert [(r.batch_id, r.time) for r in seen.collect()] == [("b1", 1000 * second)]
    with monkeypatch.context() as elsewhere:
        far = {**this_process(), "host": "far"}
        elsewhere.setattr("dedup_nb.manifest.protocol.this_process", lambda: far)
        Manifest(LakeStore(spark, state.path), state._ledger().recipe).begin(
            "b2", None, {"token": "t", "stream": "mine"}
        )
    with pytest.raises(BusyError, match="Batch b2 is being committed to .* on far .* split batch b3 again"):
        commit("b3", 1010)
    commit("b2", 1010, stream="mine")
    assert state.summary()["batches"] == 2


def test_settings_that_differ_are_named_as_they_are_given(spark, tmp_path, monkeypatch):
    asked = dict(key="key", event_time="time", expire_before=10, bucket_span=5, reference_instant=0)
    recipe = Marker(0, "recipe", "", {"deduper": deduper._recipe_of(Deduper(**asked))})
    monkeypatch.setattr("dedup_nb.manifest.lake.LakeStore.markers", lambda self: [recipe, committed(0)])
    rows, state = spark.createDataFrame([(1, "a", 5)], SCHEMA), DedupState(str(tmp_path / "state"), spark)
    words = "scope was horizon, is now bucket; profile was -, is now apex"
    with pytest.raises(RecipeError, match=words):
        Deduper(**asked, profile="apex").split(rows, state, "b1")
    with pytest.raises(RecipeError, match="expiry was bucket, is now exact"):
        Deduper(**asked, expiry="exact").split(rows, state, "b1")


def test_what_cannot_be_split_as_a_stream(spark):
    events, split = (
        spark.readStream.format("rate").load(),
        Deduper(key="value", event_time="timestamp", expire_before=5),
    )
    with pytest.raises(ConfigError, match="unique and duplicate are both out"):
        split.stream(events, "state", "checkpoint", unique="out", duplicate="out/")
    with pytest.raises(ConfigError, match="go nowhere"):
        split.stream(events, "state", "checkpoint")
    with pytest.raises(InputError, match="no stream"):
        split.stream(spark.range(1), "state", "checkpoint", unique="out")
    for name in ("batch_id", "Batch_Id", "Outcome"):
        with pytest.raises(InputError, match=f"a column {name}, which is ours"):
            split.stream(events.withColumn(name, events.value), "state", "checkpoint", unique="out")


@pytest.mark.slow
def test_a_name_stands_for_the_rows_of_one_batch(spark, tmp_path):
    "An empty first batch binds nothing; other rows under a name that is committed are refused."
    deduper, path = deduper_of({**FEW[0][0], "reference": 0}), str(tmp_path / "state")
    deduper = replace(deduper, reference_instant=None)
    frames = [spark.createDataFrame([row] * 2, SCHEMA) for row in ((1, "a", 7), (2, "a", 7))]
    frames = [frames[0].limit(0), *frames]
    empty = deduper.split(frames[0], state=DedupState(path, spark), batch_id="b0")
    empty.commit()
    assert empty.metrics == {**dict.fromkeys(OUTCOMES, 0), "latest_point": None, "expiry_point": None}
    first = deduper.split(frames[1], state=DedupState(path, spark), batch_id="b1")
    first.commit()
    first.commit()
    assert first.tagged.first().bucket == deduper.split(frames[1]).tagged.first().bucket
    assert DedupState(path, spark).summary()["batches"] == 2
    with pytest.raises(InputError, match="b1 is committed with 2 rows, and these 2 are not the same"):
        deduper.split(frames[2], state=DedupState(path, spark), batch_id="b1")


def test_a_span_that_does_not_divide_the_horizon_is_said():
    with pytest.warns(UserWarning, match="3 s does not divide expire_before 10 s.*the window 12 s is longer"):
        Deduper(key="key", event_time="time", expire_before=10, bucket_span=3)


def test_a_stream_that_remembers_for_ever_is_warned_of(spark):
    with pytest.warns(UserWarning, match="grows for ever"):
        Deduper(key="key").stream(spark.readStream.format("rate").load(), "state", "checkpoint", "unique")

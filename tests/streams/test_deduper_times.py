"Times that a deduper takes, refuses and warns of."

import warnings

import pytest
from deduper_model import HOUR, outcomes_by_seq

from dedup_nb.base.errors import InputError
from dedup_nb.streams.deduper import OUTCOMES, Deduper
from dedup_nb.streams.deduper_state import DedupState


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


@pytest.mark.slow
def test_without_expire_before_times_say_the_order_and_who_was_first(spark, tmp_path):
    "A row without a time comes last, and is no worse for it."
    told = "(1, 'a', '11:00'), (2, 'a', 'noon'), (3, 'a', '10:00'), (4, 'b', 'noon')"
    rows = spark.sql(f"select *, concat('2026-11-20 ', clock) as at from values {told} as t(seq, key, clock)")
    state, first = DedupState(str(tmp_path / "state"), spark), "2026-11-20 10:00:00"
    for batch_id, names in (
        ("b1", ["duplicate", "duplicate", "unique", "unique"]),
        ("b2", ["duplicate"] * 4),
    ):
        split = Deduper(key="key", event_time="at").split(rows, state, batch_id)
        assert outcomes_by_seq(split) == dict(enumerate(names, 1))
        seen = split.tagged.where("outcome = 'duplicate'").selectExpr("key", "string(first_seen.event_time)")
        assert {tuple(row) for row in seen.collect()} <= {("a", first), ("b", None)}
        split.commit()
    assert {r.at for r in state.read().selectExpr("string(event_time) as at").collect()} == {first, None}


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


@pytest.mark.slow
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
    assert outcomes_by_seq(split_by(advice, rows)) == {1: "unique", 2: "unique", 3: "duplicate"}
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
    assert outcomes_by_seq(found) == {1: "unique", 2: "unique", 3: "duplicate", 4: "duplicate"}
    # also where it is the very first row, and buckets begin with it
    found = split_by("at", rows, max_future="1 hour", order_by="at desc")
    assert outcomes_by_seq(found) == {3: "unique", 4: "unique", 2: "duplicate", 1: "duplicate"}
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_seconds_among_small_milliseconds_are_warned_of(spark):
    with pytest.warns(UserWarning, match=r"If they are seconds, give event_time='at \* 1000L'"):
        split_by("at", of_times(spark, NOVEMBER, NOVEMBER + 10_800))
    rows = of_times(spark, NOVEMBER, NOVEMBER + 5400, NOVEMBER + 10_800, kind="int")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert outcomes_by_seq(split_by("at * 1000L", rows)) == {1: "unique", 2: "unique", 3: "duplicate"}
        split_by("at", of_times(spark, 0, 86_400_000))
        split_by("at", of_times(spark, 0, NOVEMBER))

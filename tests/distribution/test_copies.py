"Copies: their gap, their age, their cause, and why ids are shared."

from types import SimpleNamespace

import pytest
from profiles import COMPARED
from pyspark.sql import Row
from pyspark.sql import functions as F
from spread import configured

from dedup_nb.base.config import Recipe
from dedup_nb.distribution import copies as copies_of
from dedup_nb.distribution.copies import Compared, Ids, OneBatch, Subject, copies, time_column
from dedup_nb.distribution.measures import find_collisions, rank_copies, sum_by_id
from dedup_nb.rules.keys import fit

HOUR, DAY = 3_600_000, 86_400_000

COPY = (
    "id string, fp string, batch int, missing boolean, at bigint, skew bigint, processed bigint, "
    "ip int, agent int, robot boolean, values array<int>"
)


def copied(spark, *rows):
    "Rows of copies: id, fp, batch, at, processed, values, and what else there is to say."
    said = ("id", "fp", "batch", "at", "processed", "values")
    usual = {"missing": False, "skew": 0, "ip": 1, "agent": 1, "robot": False}
    made = [{**usual, **dict(zip(said, row)), **more} for *row, more in rows]
    return spark.createDataFrame([tuple(row[c.split()[0]] for c in COPY.split(", ")) for row in made], COPY)


def test_a_copy_has_its_gap_its_age_and_its_cause(spark):
    same = [1, 1, 1]  # collector_tstamp, page, etl_tstamp
    rows = copied(
        spark,
        ("replay", "f", 0, 0, 0, same, {}),
        ("replay", "f", 1, 0, 30 * DAY, [1, 1, 2], {}),  # collected once, processed a month apart
        ("replay", "f", 1, 0, 30 * DAY, [1, 1, 2], {}),
        ("early", "f", 0, 4 * DAY, 4 * DAY, same, {}),
        ("early", "f", 1, 0, 8 * DAY, [2, 1, 2], {}),  # the later batch holds what was collected first
        ("backfill", "f", 0, 0, 9 * DAY, same, {}),
        ("backfill", "f", 1, HOUR, DAY, [2, 1, 2], {}),  # a later batch, processed before
        ("nobody", "f", 0, None, None, same, {}),
        ("nobody", "f", 1, None, None, [2, 1, 2], {}),
        ("versions", "f", 0, 5, None, same, {}),
        ("versions", "f", 1, 5 + HOUR, None, [2, 1, 1], {}),  # ordered by what is no time
        ("edited", "f", 0, 0, 0, same, {}),
        ("edited", "f", 1, HOUR, HOUR, [2, 2, 1], {}),  # the fingerprint does not cover the page
    )
    told = {(r.id, r.gap, r.age, r.cause) for r in rank_copies(rows, COMPARED).where("nth > 1").collect()}
    assert told == {
        ("replay", 0, 30 * DAY, "replayed"),
        ("replay", 0, 30 * DAY, "exact"),
        ("early", 4 * DAY, 4 * DAY, "resent_days"),
        ("backfill", HOUR, 0, "resent_hours"),
        ("nobody", None, None, "unexplained"),
        ("versions", HOUR, HOUR, "resent_hours"),
        ("edited", HOUR, HOUR, "other_values"),
    }


def test_a_copy_that_another_network_sent_again_is_one(spark):
    "What the collector adds is in no fingerprint."
    rows = copied(spark, ("a", "f", 0, 0, 0, [1, 1, 1], {}), ("a", "f", 0, 900, 900, [2, 1, 1], {}))
    compared = Compared(("user_ipaddress", "page"), ("user_ipaddress", "page"))
    assert [r.cause for r in rank_copies(rows, compared).where("nth > 1").collect()] == ["resent_seconds"]


def test_values_of_copies_are_equal_whatever_their_types(spark):
    "Another batch may have a column wider, or with a zone."
    frame = spark.range(1).selectExpr(
        "'a' as event_id", "'a' as _dd_id", "0 as _dd_batch", "float(2.5) as amount", "5 as n"
    )
    frame = frame.withColumn("at", F.expr("timestamp_ntz'2026-03-29T00:30:00'"))
    kinds = {"amount": "decimal(9, 3)", "n": "double", "at": "timestamp"}
    wider = frame.withColumns({name: F.col(name).cast(kind) for name, kind in kinds.items()})
    keys, compared = fit(Recipe(), frame.schema), Compared((*kinds,), ())
    with configured(spark, {"spark.sql.session.timeZone": "UTC"}):
        values = [copies(rows, keys, compared).first()["values"] for rows in (frame, wider)]
    assert values[0] == values[1]


def test_a_nested_value_that_is_null_is_as_if_there_were_no_column(spark):
    frame = spark.range(1).selectExpr("'a' as event_id", "'a' as _dd_id", "0 as _dd_batch")
    kinds = ("struct<a: int>", "array<int>", "map<string, int>", "variant")
    nulls = {f"n{i}": F.expr(f"cast(null as {kind})") for i, kind in enumerate(kinds)}
    nulls["said"] = F.parse_json(F.lit("null"))
    keys, compared = fit(Recipe(), frame.schema), Compared((*nulls,), ())
    both = (frame, frame.withColumns(nulls))
    without, with_nulls = (copies(rows, keys, compared).first()["values"] for rows in both)
    assert without == with_nulls


def test_a_number_orders_copies_but_is_no_time(spark):
    "As for the time of a batch the first order column counts that may hold one."
    events = spark.sql("select 'a' as _dd_id, 0 as _dd_batch, 'a' as event_id, 7 as n, '2026-11-20' as day")
    keys = fit(Recipe(order_by=("n", "day")), events.schema)
    assert time_column(events.schema, keys) == "day"
    assert time_column(events.drop("day").schema, keys) is None
    row = copies(events, keys, Compared((), ())).first()
    assert row["at"] == row["processed"] == 20_777 * DAY


def test_an_id_is_shared_for_a_reason(spark):
    weak, strong = "00000000-0000-4000-8000-000000000000", "9dbd8f50-9fa9-419d-a008-519c3b5e0269"
    pairs = {
        "robot": (strong, {}, {"robot": True}),
        "weak_id": (weak, {}, {}),
        "clock_skew": (strong.replace("9", "8"), {}, {"skew": 2 * HOUR}),
        "shared_id": (strong.replace("9", "7"), {"ip": 2}, {"ip": 3}),
        "unexplained": (strong.replace("9", "6"), {}, {}),
    }
    rows = [
        (event_id, f"f{i}", 0, i, i, [i, i, 1], more)
        for event_id, second, third in pairs.values()
        for i, more in enumerate(({}, second, third))
    ]
    rows += [("order-17", "f1", 0, 0, 0, [0, 0, 1], {}), ("order-17", "f2", 0, 1, 1, [1, 1, 1], {})]
    rows = rank_copies(copied(spark, *rows), COMPARED)
    again = find_collisions(rows, sum_by_id(rows), COMPARED, random_ids=True).select("id", "cause").distinct()
    ids = {event_id: cause for cause, (event_id, _, _) in pairs.items()}
    assert {r.id: r.cause for r in again.collect()} == {**ids, "order-17": "weak_id"}


@pytest.mark.parametrize("rows, random", [((5, 5), True), ((5, 6), False), ((0, 0), False)])
def test_ids_should_be_random_where_most_are(rows, random):
    known = [Row(batch=0, random=is_random, rows=n) for is_random, n in zip((True, False), rows)]
    assert Ids(None, known).are_random is random


@pytest.mark.parametrize(
    "rows, hashes, others, picks",
    [(25, 10, 75, True), (26, 10, 75, False), (0, 0, 9, False), (10**6 + 2, 10**6 + 1, 10**9, False)],
)
def test_few_rows_are_picked(spark, monkeypatch, rows, hashes, others, picks):
    monkeypatch.setattr(copies_of, "_footers", lambda batch: [SimpleNamespace(path="/in/a.parquet")])
    look = Subject((OneBatch("1", spark.range(1), None, None, None),), (), None, COMPARED)
    known = [Row(repeats=True, rows=rows, hashes=hashes), Row(repeats=False, rows=others, hashes=others)]
    assert copies_of._may_pick(look, Ids(None, known)) == picks

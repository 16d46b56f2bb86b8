"Keys: ids, new ids, the hash of a row and its place in the order."

from hashlib import sha256

import pytest
from pyspark.sql import functions as F
from pyspark.sql import types as T
from spread import configured
from worlds import new_id

from dedup_nb.base.config import Recipe
from dedup_nb.base.errors import InputError
from dedup_nb.rules.keys import (
    check_columns,
    fit,
    hash_of,
    is_reingested,
    looked_up_id,
    new_event_id,
    own_id,
    place_of,
    suspect_ids,
)

pytestmark = pytest.mark.usefixtures("one_partition")


def test_columns_that_differ_only_in_case_are_refused(spark):
    schema = spark.createDataFrame([], "event_id string, Country string, country string").schema
    with pytest.raises(InputError, match="columns that differ only in case: Country, country. Rename one"):
        check_columns(schema, Recipe(), fit(Recipe(), schema.fieldNames()))


@pytest.mark.parametrize("nested", ["{}", "array<{}>", "map<int, {}>", "struct<x: {}>"])
def test_fields_that_differ_only_in_case_are_refused_where_spark_takes_them_for_one(spark, nested):
    schema = T.StructType.fromDDL(f"event_id string, s {nested.format('struct<a: int, A: int, b: int>')}")
    event, path = Recipe(), "s.x" if "x:" in nested else "s"
    with pytest.raises(InputError, match=f"differ only in case: {path}.A, {path}.a. Rename one upstream"):
        check_columns(schema, event, fit(event, schema))
    with configured(spark, {"spark.sql.caseSensitive": "true"}):
        check_columns(schema, event, fit(event, schema))


@pytest.mark.parametrize(
    "ddl, event_id, hashed",
    [
        (
            "ev struct<id: string, `http.url`: string, at: date>, n int",
            "ev.id",
            ("n", "ev.http.url", "ev.at"),
        ),
        ("ev struct<`http.id`: string, http: struct<url: string>>", "ev.http.id", ("ev.http",)),
        ("`a.b` struct<c: string, `d.e`: int>", "a.b.c", ("a.b.d.e",)),
        ("`a.b` string, a struct<c: string>", "a.b", ("a",)),
    ],
)
def test_a_surrogate_hashes_all_fields_beside_the_id_whatever_their_names(ddl, event_id, hashed):
    recipe = Recipe(event_id=(event_id,), missing_fingerprint="surrogate")
    assert fit(recipe, T.StructType.fromDDL(ddl)).surrogate == hashed


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
    assert made == [new_id(*name) for name in names] and len(set(made)) == len(names)


def test_ids_are_text_and_what_came_renamed_is_looked_up_by_its_first_id(spark):
    rows = [
        (new_id("o", "surrogate-id"), 1, "o"),  # ours: made of the id that it came with
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
    again = new_id("o", "surrogate-id")
    assert [tuple(r) for r in frame.select(*parts, F.expr(own_id(frame.schema, both))).collect()] == [
        (again, "o", True, f"{again}/1"),
        ("a", "a", False, "a/1"),
        ("a", "a", False, "a/1"),
        (None, None, False, None),
        (None, None, False, None),
        ("a/%", "a/%", False, "a%2F%25/7"),
    ]


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
    "double": [float("-inf"), -1.5, 0.0, 2.5, float("inf"), float("nan")],
    "string": [
        "",
        "2026-11-20 09:00:00.1234569 UTC",
        "2026-11-20 10:00:00.1234561 UTC",
        "a",
        "a\0",
        "aa",
        "b",
        "é",
        "𝄞",
    ],
    "decimal(10,2)": [-1, 2, 3],
    "timestamp": ["1969-12-31 23:59:59.999999", "2026-11-20 10:00:00", "9999-12-31 00:00:00"],
    "date": ["0001-01-01", "2026-11-20", "+5881580-07-11"],
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

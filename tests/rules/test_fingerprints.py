"What stands in for a missing fingerprint, and what copies that differ are told by."

import pytest

from dedup_nb.base.config import Recipe
from dedup_nb.pipeline.decide import differing_words
from dedup_nb.rules.deduplicate import decide, deduplicate
from dedup_nb.rules.keys import fingerprint_of, fit, with_ids, with_keys

pytestmark = pytest.mark.usefixtures("one_partition")

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


IN_WORDS = {  # ids, reasons -> what is said
    "some differ": (
        "abcde",
        {"natural": 4},
        "3 dropped copies differ from the one that stays (_ingested_at: 3, page: 2)",
        True,
    ),
    "equal": ("ce", {"natural": 1}, "1 dropped copy equals the one that stays, but for the columns", False),
    "the first one twice": (
        "f",
        {"natural": 2},
        "1 dropped copy differs from the one that stays (page: 1)",
        True,
    ),
    "earlier batches, too": (
        "e",
        {"natural": 1, "natural_cross_batch": 40},
        "order them; 40 rows dropped for earlier batches were not compared with those kept there. If some",
        True,
    ),
    "earlier batches alone": (
        "c",
        {"natural_cross_batch": 1},
        "(missing_fingerprint=id): 1 row dropped for earlier batches was not compared with those kept there",
        True,
    ),
}


@pytest.mark.parametrize("ids, reasons, words, advice", IN_WORDS.values(), ids=IN_WORDS)
def test_a_run_says_of_the_copies_that_it_compared_how_many_differ(spark, ids, reasons, words, advice):
    twice = [("f", "/home", "10:01"), ("f", "/home", "10:01"), ("f", "/cart", "10:01")]
    rows = [row for row in (*INGESTED, *twice) if row[0] in ids]
    events = spark.createDataFrame(rows, INGESTED_AS).coalesce(1)
    keys = fit(Recipe(), events.columns)
    suspects = with_keys(with_ids(events, keys), keys).cache()
    said = differing_words(suspects, decide(suspects, "rename_later"), events.columns, reasons)
    assert words in said and ("fingerprint_columns" in said) == advice


def test_copies_that_differ_by_microseconds_differ(spark):
    rows = spark.sql("select 'a' as event_id, timestamp_micros(id) as at from range(1, 3)")
    keys = fit(Recipe(order_by=("at",)), rows.columns)
    suspects = with_keys(with_ids(rows, keys), keys)
    decisions = decide(suspects, "rename_later")
    assert "(at: 1)" in differing_words(suspects, decisions, rows.columns, {"natural": 1})
    assert "1 dropped copy equals" in differing_words(suspects, decisions, [], {"natural": 1})


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

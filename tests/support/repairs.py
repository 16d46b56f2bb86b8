"Delta tables with repeated rows, and what a repair leaves of them."

from collections import Counter

from pyspark.sql import functions as F

from dedup_nb.warehouse.repair import repair

SCHEMA = "event_id string, event_fingerprint string, day int, n int"
EIGHT = [
    ("a", "f", 1, 1),
    ("a", "f", 2, 2),
    ("b", "f", 1, 3),
    ("b", "g", 2, 4),
    ("c", "f", 1, 5),
    ("c", "f", 1, 5),
    ("c", "f", 1, 5),
    (None, "f", 1, 8),
]
LEFT = [(2, "natural", "a"), (4, "synthetic", None), (5, "natural", "c"), (5, "natural", "c")]


def frame_of_days(spark, rows):
    events = spark.createDataFrame(rows, SCHEMA)
    day = F.expr("timestamp'2026-11-01 00:00:00Z' + make_interval(0, 0, 0, day - 1)")
    return events.withColumn("etl_tstamp", day).drop("day")


def table_made(spark, folder, rows=EIGHT, **options):
    "A Delta table; its path."
    frame_of_days(spark, rows).coalesce(1).write.format("delta").options(**options).save(f"{folder}/events")
    return f"{folder}/events"


def repaired(spark, path, *args, **more):
    return repair(path, *args, spark=spark, **more)


def numbers_in(spark, path):
    return sorted(r.n for r in spark.read.format("delta").load(path).collect())


def rows_that_left(spark, path):
    rows = spark.read.format("delta").load(path).select("n", "dedup.reason", "dedup.kept_event_id").collect()
    return sorted(map(tuple, rows))


def as_they_are(frame):
    return Counter(tuple(map(str, r)) for r in frame.collect())


SYNTHETIC = {"move": "quarantine", "rename": "rename_later", "delete": "delete_all"}


ENTITIES = [  # root id, root time (a day), value
    ("a", 1, "first"),
    ("a", 1, "first"),
    ("a", 2, "second"),
    ("b", 1, "of b"),
    ("b", 2, "of the other b"),
    ("k", 3, "shared"),
    ("k", 3, "shared"),
    ("k", 3, "shared"),
    ("m", 4, "whose"),
    ("z", 1, "fine"),
]
OF_ENTITIES = [
    ("a", "f", 1, 1),
    ("a", "f", 2, 2),
    ("b", "f", 1, 3),
    ("b", "g", 2, 4),
    ("k", "f", 3, 5),
    ("k", "f", 3, 5),
    ("k", "f", 3, 5),
    ("m", "f", 4, 6),  # of two at one time, the hash of the row tells which is first: 7
    ("m", "g", 4, 7),
    ("z", "f", 1, 8),
]


def with_entities(spark, folder):
    events = frame_of_days(spark, OF_ENTITIES).withColumn("collector_tstamp", F.col("etl_tstamp"))
    events.coalesce(1).write.format("delta").save(f"{folder}/events")
    links = spark.createDataFrame(ENTITIES, "root_id string, day int, link string")
    day = F.expr("timestamp'2026-11-01 00:00:00Z' + make_interval(0, 0, 0, day - 1)")
    links = links.withColumn("root_tstamp", day).drop("day")
    links.coalesce(1).write.format("delta").save(f"{folder}/link")
    return f"{folder}/events", {f"{folder}/link": "root_id"}


def links_in(spark, path):
    return sorted((r.root_id, r.link) for r in spark.read.format("delta").load(path).collect())


STAYING = [("a", "first"), ("a", "first"), ("b", "of b"), ("k", "shared"), ("z", "fine")]

"A manifest in a DynamoDB table: opened, with batches that claim, fail and die."

import time

from emulator import a_name, a_table
from pyspark.sql import functions as F

from dedup_nb.base.config import Recipe
from dedup_nb.dynamodb.claims import Claimant, Claims
from dedup_nb.dynamodb.connection import Connection
from dedup_nb.dynamodb.store import DynamoStore
from dedup_nb.manifest.protocol import Manifest
from dedup_nb.pipeline.job import recipe_record
from dedup_nb.rules.cross_batch import Fate, id_key, pair_key

DAY = 86400
START = 1_793_491_200  # 2026-11-01
RECIPE = recipe_record(Recipe(missing_fingerprint="surrogate"), "lower")


def at(day):
    return START + day * DAY


def open_in_table(endpoint, name=None, spark=None, folder="unused", recipe=RECIPE, **more):
    "A manifest in a table, which is made if it is not there."
    more = {"create": True, "patience_s": 20, "max_wcu": 100_000, "now": lambda: at(0), **more}
    store = DynamoStore(spark, Connection(name or a_name(), None, endpoint), str(folder), **more)
    return Manifest(store, recipe)


def begin_on_day(m, batch, day, **more):
    return m.begin(batch, at(day), {"token": f"{batch} {time.monotonic_ns()}"}, **more)


def pairs(spark, *rows):
    "Pairs (id, fingerprint or None, fate), in the order of their place."
    ddl = "event_id string, event_fingerprint string, fate int, place int"
    numbered = [(i, p, int(fate), n) for n, (i, p, fate) in enumerate(rows)]
    frame = spark.createDataFrame(numbered, ddl)
    keys = id_key(F.col("event_id")), pair_key(F.col("event_id"), F.col("event_fingerprint"))
    origin = F.lit(None).cast("string").alias("origin"), F.lit(False).alias("is_new_id")
    return frame.select("*", *keys[0], keys[1].alias("pair"), *origin)


def firsts(spark, *ids):
    return pairs(spark, *((i, "f", Fate.STAYS | Fate.HEAD) for i in ids))


def claimed(m, spark, batch, day, *ids, **more):
    "Claim a batch with one pair per id."
    claim = begin_on_day(m, batch, day, **more)
    m.known(claim, firsts(spark, *ids))
    return claim


def killed(m, batch, day, *ids):
    "An attempt that claims and dies before its answers are files."
    claim = begin_on_day(m, batch, day)
    who = Claimant(batch, f"{batch}@{claim.sees}", claim.etl, claim.etl, 180 * DAY, sees=claim.sees)
    Claims(a_table(m.store.connection.endpoint, m.store.name), who).of([(i, ["f"]) for i in ids])
    return claim


def give_up(m, claim):
    m.give_up(claim.batch_id, claim.token)


def table_behind(m):
    return a_table(m.store.connection.endpoint, m.store.name)

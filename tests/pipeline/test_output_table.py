"""Kept events go into a table of a catalog, a batch in one transaction."""

import json
import subprocess
import sys

import pytest
from pyspark.sql import functions as F
from runs import TWO, go, killed_erasure, record, write

from dedup_nb import Config
from dedup_nb.base.errors import ConfigError, DedupError, OutputError
from dedup_nb.base.storage import read_json
from dedup_nb.operate.erase import erase

TABLE = "shop.events"


@pytest.fixture
def shop(spark, tmp_path):
    spark.sql(f"create schema shop location '{tmp_path}/shop'")
    write(spark, tmp_path / "in", TWO)
    yield tmp_path
    spark.sql("drop schema shop cascade")


def rows_of_table(spark, columns="event_id n batch_id"):
    return sorted(map(tuple, spark.table(TABLE).select(*columns.split()).collect()), key=str)


def kept_with_batch(spark):
    return [(n, batch) for _, n, batch in sorted(rows_of_table(spark), key=lambda r: r[1])]


KEPT = [(1, "1"), (2, "1"), (4, "2"), (5, "2")]


@pytest.mark.slow
def test_a_table_is_made_and_batches_replace_their_own_rows(spark, shop):
    done = go(spark, shop, output_table=TABLE)
    assert kept_with_batch(spark) == KEPT and [m["counts"]["kept"] for m in done.batches] == [2, 2]
    told = record(shop / "out", "1")
    assert (told["output_table"], told["events"]) == (TABLE, [])
    # rows of others stay, a rerun gives the same
    spark.sql(f"insert into {TABLE} (event_id, event_fingerprint, n) values ('x', 'f', 9)")
    version = spark.sql(f"describe history {TABLE}").count()
    go(spark, shop, output_table=TABLE, batch_id="1", rerun=True)
    assert kept_with_batch(spark) == [*KEPT, (9, None)]
    assert spark.sql(f"describe history {TABLE}").count() == version + 1
    with pytest.raises(DedupError, match="output_table was shop.events"):
        go(spark, shop, output_table="shop.others")


@pytest.mark.slow
def test_a_wide_table_is_clustered_by_its_batches_too(spark, shop):
    wide = spark.read.parquet(f"{shop}/in/run=1").withColumns({f"c{n}": F.lit(n) for n in range(40)})
    wide.write.parquet(f"{shop}/wide/run=1")
    go(spark, shop, input=f"{shop}/wide", output_table=TABLE)
    [about] = spark.sql(f"describe detail {TABLE}").collect()
    assert (about.clusteringColumns, about.partitionColumns) == (["batch_id"], [])
    assert spark.table(TABLE).columns[0] == "batch_id" and spark.table(TABLE).count() == 2


@pytest.mark.slow
def test_a_run_that_died_after_the_table_was_changed_is_run_again(spark, shop, monkeypatch):
    def die(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("dedup_nb.pipeline.commit.commit_keys", die)
        with pytest.raises(KeyboardInterrupt):
            go(spark, shop, output_table=TABLE)
    go(spark, shop, output_table=TABLE)
    assert kept_with_batch(spark) == KEPT


@pytest.mark.soak
def test_a_table_that_is_there(spark, shop):
    "Its own order of columns, one more of them, and types."
    spark.sql(f"create table {TABLE} (n int, more string, batch_id string, event_id string) using delta")
    with pytest.raises(
        OutputError, match="no column event_fingerprint, etl_tstamp, original_event_id.*table_may_grow"
    ):
        go(spark, shop, output_table=TABLE)
    go(spark, shop, output_table=TABLE, table_may_grow=True)
    assert kept_with_batch(spark) == KEPT
    assert spark.table(TABLE).columns[:4] == ["n", "more", "batch_id", "event_id"]
    assert spark.table(TABLE).where("original_event_id = 'a'").count() == 1


@pytest.mark.slow
def test_what_cannot_be(spark, shop):
    spark.sql("create table shop.plain (event_id string, batch_id string) using parquet")
    spark.sql("create table shop.without (event_id string) using delta")
    spark.sql("create table shop.typed (n string, batch_id string) using delta")
    spark.sql("create table shop.numbered (batch_id int) using delta")
    go(spark, shop, output=str(shop / "other"), output_table="shop.taken")
    spark.sql("create view shop.seen as select 1 as batch_id")
    cases = [
        (OutputError, "shop.plain is parquet, which cannot replace", "shop.plain"),
        (OutputError, "is a view", "shop.seen"),
        (OutputError, "is not there. Add it: ALTER TABLE shop.without", "shop.without"),
        (OutputError, "has rows of a batch 1 that this output has not written", "shop.taken"),
        (OutputError, "batch_id.*is int, and must be a string", "shop.numbered"),
        (OutputError, "column n is int in this batch, and string in the table", "shop.typed"),
        (ConfigError, "there is no schema shpo.*CREATE SCHEMA", "shpo.events"),
        (ConfigError, "no catalog nowhere", "nowhere.shop.events"),
        (ConfigError, "no name of a table", "s3://bucket/events"),
    ]
    for error, words, table in cases:
        with pytest.raises(error, match=words):
            go(spark, shop, output_table=table)
    assert not list(shop.glob("out/runs/*/files.json"))


@pytest.mark.slow
def test_an_event_is_erased_from_the_table(spark, shop):
    go(spark, shop, output_table=TABLE)
    spark.sql(f"insert into {TABLE} (event_id, event_fingerprint, n) values ('a', 'f', 9)")
    asked = Config(output=str(shop / "out"))
    assert "2 in events/" in str(erase(asked, spark, event_id="a"))
    told = str(erase(asked, spark, event_id="a", yes=True))
    assert "Older versions of shop.events" in told
    assert kept_with_batch(spark) == [(2, "1"), (5, "2"), (9, None)]
    assert record(shop / "out", "1")["counts"]["kept"] == 1


ASKED = {"copied": ({"where": "n = 1"}, 1), "alone": ({"event_id": "b"}, 2)}
GONE = {"copied": {"events": 1, "dropped": 1, "verdicts": 1}, "alone": {"events": 1}}
AFTER = ("_note_request", "_delete_in_table", "publish", "_remove_unlisted")


@pytest.mark.slow
@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("after", AFTER)
def test_an_erasure_that_was_killed_is_finished_though_the_table_has_lost_its_events(
    spark, shop, asked, after
):
    go(spark, shop, output_table=TABLE)
    config, (request, n) = Config(output=str(shop / "out")), ASKED[asked]
    killed_erasure(spark, config, after, **request)
    done = erase(config, spark, yes=True, **request)
    assert (done.data["rows"], done.data["proof"]) == (GONE[asked], "runs/erasures/000001.json")
    assert kept_with_batch(spark) == [row for row in KEPT if row[0] != n]
    counts = [record(shop / "out", batch)["counts"] for batch in "12"]
    assert [c["kept"] for c in counts] == [1, 2]
    erased = [c["read"] - c["bad"] - c["kept"] - c["dropped"] for c in counts]
    assert erased == [c.get("erased", 0) for c in counts] == [1, int(asked == "copied")]
    assert "until_done" not in read_json(f"{shop}/out/{done.data['proof']}")


@pytest.mark.slow
def test_a_killed_erasure_takes_the_events_of_a_batch_that_came_since(spark, shop):
    go(spark, shop, output_table=TABLE)
    config = Config(output=str(shop / "out"))
    killed_erasure(spark, config, "_note_request", event_id="a")
    write(spark, shop / "in", {"3": [("a", "k", 9, 7)]})
    go(spark, shop, output_table=TABLE)
    erase(config, spark, event_id="a", yes=True)
    left = [row.event_id for row in spark.table(TABLE).select("event_id").collect()]
    assert sorted(left) == ["b", "c"]
    assert record(shop / "out", "3")["counts"]["erased"] == 1


ICEBERG = """
import json, sys
from dedup_nb import Config, get_spark, run
place, jar = sys.argv[1:]
more = {
    "spark.jars.packages": jar,
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.ice.type": "hadoop",
    "spark.sql.catalog.ice.warehouse": f"{place}/warehouse",
}
spark = get_spark(delta=True, settings=more)
spark.sql("create schema ice.shop")
config = dict(input=f"{place}/in", output=f"{place}/out", input_format="parquet")
config["output_table"] = "ice.shop.events"
run(Config(**config), spark)
run(Config(**config, batch_id="1", rerun=True), spark)
rows = spark.table("ice.shop.events").orderBy("n").collect()
print(json.dumps([(r.n, r.batch_id) for r in rows]))
"""
RUNTIME = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"


@pytest.mark.slow
def test_an_iceberg_table(spark, tmp_path):
    write(spark, tmp_path / "in", TWO)
    done = subprocess.run([sys.executable, "-c", ICEBERG, tmp_path, RUNTIME], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert list(map(tuple, json.loads(done.stdout.splitlines()[-1]))) == KEPT

"Tables by version: each run takes what was added since the last commit, once."

import json
import shutil
from datetime import date, datetime
from pathlib import Path

import pytest

from dedup_nb import Config, run
from dedup_nb.base.errors import ConfigError
from dedup_nb.base.spark import get_spark
from dedup_nb.base.storage import escaped
from dedup_nb.formats.batches import Batch
from dedup_nb.formats.delta import Delta, added_between, table_rows
from dedup_nb.operate.history import forget
from dedup_nb.pipeline import run as pipeline
from dedup_nb.pipeline.job import RunOptions

COLUMNS = "event_id string, n int"


@pytest.fixture
def lake(spark, tmp_path):
    return Delta(spark, str(tmp_path / "lake [x]" / "events"))


def grow(lake, *rows, columns=COLUMNS, **options):
    frame = lake.spark.createDataFrame(rows, columns).coalesce(1)
    writer = frame.write.format("delta").mode("append").options(mergeSchema="true")
    partitions = options.pop("partitions", ())
    writer.partitionBy(*partitions).options(**options).save(lake.name)


def batches_taken(lake, **more):
    "Per batch that a run takes: its name, and how many rows it read and kept."
    force = more.pop("force", False)
    home = lake.name.rpartition("/")[0]
    asked = dict(input=lake.name, output=f"{home}/clean", input_format="delta", order_by="n") | more
    done = run(Config(**asked), lake.spark, RunOptions(force=force))
    return [(m["batch_id"], m["counts"]["read"], m["counts"]["kept"]) for m in done.batches]


def kept_ids_beside(lake):
    home = lake.name.rpartition("/")[0]
    return sorted(r.event_id for r in lake.spark.read.parquet(escaped(f"{home}/clean/events")).collect())


@pytest.mark.slow
def test_each_run_takes_what_came_since_and_passes_by_a_compaction(lake):
    grow(lake, ("a", 1), ("b", 2))
    assert batches_taken(lake) == [("events", 2, 2)]
    grow(lake, ("b", 3), ("c", 4))
    lake.spark.sql(f"optimize {lake.sql}")
    grow(lake, ("c", 5), ("d", 6))
    assert batches_taken(lake) == [("events-v1-3", 4, 2)]
    lake.spark.sql(f"optimize {lake.sql}")
    assert batches_taken(lake) == []
    grow(lake, ("e", 7))
    assert batches_taken(lake, mode="decide") == [("events-v4-5", 1, 1)]
    grow(lake, ("f", 8))
    assert batches_taken(lake, rerun=True) == [("events", 2, 2), ("events-v1-3", 4, 2)]
    assert batches_taken(lake) == [("events-v4-6", 2, 2)]
    assert batches_taken(lake, rerun=True, batch_id="events-v1-3") == [("events-v1-3", 4, 2)]
    assert kept_ids_beside(lake) == list("abcdef")


@pytest.mark.slow
def test_by_the_change_feed_where_it_is_on(lake):
    grow(lake, ("a", 1))
    assert batches_taken(lake) == [("events", 1, 1)]
    grow(lake, ("b", 2))
    feed = f"alter table {lake.sql} set tblproperties (delta.enableChangeDataFeed = true)"
    lake.spark.sql(feed)
    grow(lake, ("c", 3))
    assert batches_taken(lake) == [("events-v1-3", 2, 2)]  # it was not on in all of them
    lake.spark.sql(f"alter table {lake.sql} set tblproperties (delta.columnMapping.mode = 'name')")
    lake.spark.sql(f"alter table {lake.sql} rename column n to number")
    grow(lake, ("d", 4), columns="event_id string, number int")
    assert batches_taken(lake, order_by="number", force=True) == [
        ("events-v4-6", 4, 1)
    ]  # the feed does not go over a new name
    grow(lake, ("d", 4), ("e", 5), columns="event_id string, number int")
    lake.spark.sql(f"optimize {lake.sql}")
    assert batches_taken(lake, order_by="number") == [("events-v7-8", 2, 1)]
    lake.spark.sql(f"update {lake.sql} set number = 9 where event_id = 'e'")
    with pytest.raises(ConfigError, match="1 version among them .9. updated or deleted rows. --force takes"):
        batches_taken(lake, order_by="number")
    assert kept_ids_beside(lake) == list("abcde")


CHANGES = {
    "a delete": ("delete from {} where n = 1", r"1 version among them \(2\) updated or deleted rows"),
    "an update": ("update {} set n = 9 where n = 1", r"updated or deleted rows"),
    "a merge": (
        "merge into {} t using (select 'a' as event_id, 5 as n) s on t.event_id = s.event_id "
        "when matched then update set * when not matched then insert *",
        "updated or deleted rows",
    ),
    "an overwrite": ("insert overwrite {} select 'a', 7", "updated or deleted rows"),
    "other names in the files": (
        "alter table {} set tblproperties (delta.columnMapping.mode = 'name')",
        "its columns have other names in the files .* its change feed was not on in all these versions",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", CHANGES)
def test_what_cannot_be_told_is_refused_and_taken_whole_if_forced(lake, what):
    statement, why = CHANGES[what]
    grow(lake, ("a", 1), ("b", 2))
    assert batches_taken(lake) == [("events", 2, 2)]
    grow(lake, ("c", 3))
    lake.spark.sql(statement.format(lake.sql))
    with pytest.raises(ConfigError, match=f"{why}. --force takes all rows as batch events-v1-2: those that"):
        batches_taken(lake)
    [(name, read, new)] = batches_taken(lake, force=True)
    assert (name, read) == ("events-v1-2", lake.rows().count())
    assert new == (0 if what == "an overwrite" else 1)
    assert batches_taken(lake) == []


@pytest.mark.slow
def test_a_merge_that_only_inserts_is_an_addition(lake):
    grow(lake, ("a", 1))
    assert batches_taken(lake) == [("events", 1, 1)]
    lake.spark.sql(
        f"merge into {lake.sql} t using (select explode(array('a', 'b')) as event_id, 5 as n) s "
        "on t.event_id = s.event_id when not matched then insert *"
    )
    assert batches_taken(lake) == [("events-v1-1", 1, 1)]


@pytest.mark.slow
def test_columns_that_come_and_folders_with_odd_names(lake):
    columns = "event_id string, n int, page string, day date"
    by = dict(partitions=["page", "day"])
    grow(lake, ("a", 1, "x=1/ü %41:", None), columns=columns, **by)
    assert batches_taken(lake) == [("events", 1, 1)]
    day = date(2026, 11, 20)
    grow(lake, ("b", 2, "y [z]*?{q} 50%", day), ("b", 3, None, day), columns=columns, **by)
    grow(lake, ("a", 4, "x=1/ü %41:", None, 5), columns=columns + ", more int", **by)
    more = dict(
        synthetic="rename_later", fingerprint_columns=("page", "day"), missing_fingerprint="surrogate"
    )
    assert [t[1:] for t in batches_taken(lake, force=True, **more)] == [(3, 3)]


@pytest.mark.slow
def test_a_time_in_the_names_of_folders_is_not_exact(lake):
    columns, day = "event_id string, n int, t timestamp", datetime(2026, 11, 20, 7)
    grow(lake, ("a", 1, day), columns=columns, partitions=["t"])
    batches_taken(lake)
    grow(lake, ("b", 2, day), columns=columns, partitions=["t"])
    with pytest.raises(ConfigError, match=r"partitioned by t \(timestamp\), and its change feed was not on"):
        batches_taken(lake)


@pytest.mark.parametrize(
    "folder, why", [("n=7", "lies outside of the folders of the table"), ("plain", None)]
)
def test_a_folder_that_would_replace_a_column_of_a_table_is_refused(lake, folder, why):
    grow(lake, ("a", 1))
    [file] = Path(lake.name).glob("*.parquet")
    (Path(lake.name) / folder).mkdir()
    copied = Path(shutil.copy(file, Path(lake.name) / folder / "b.parquet"))
    added = {"path": f"{folder}/b.parquet", "size": copied.stat().st_size, "partitionValues": {}}
    entry = {"add": {**added, "modificationTime": 0, "dataChange": True}}
    (Path(lake.name) / "_delta_log" / f"{1:020}.json").write_text(json.dumps(entry))
    found = added_between(lake, 1, 1)
    assert (found.why_not or "").endswith(why or "") and bool(found.why_not) == bool(why)
    if not why:
        part = Batch("events-v1-1", found.files, lake.name, versions=(1, 1))
        assert table_rows(lake.spark, part, "delta").rows.collect() == [("a", 1)]


@pytest.mark.slow
def test_a_run_that_was_begun_is_finished_with_its_versions(lake, monkeypatch):
    grow(lake, ("a", 1))
    batches_taken(lake)
    grow(lake, ("b", 2))
    with monkeypatch.context() as broken:
        broken.setattr(pipeline, "finish", lambda *a: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            batches_taken(lake)
    grow(lake, ("c", 3))
    assert batches_taken(lake) == [("events-v1-1", 1, 1), ("events-v2-2", 1, 1)]
    assert kept_ids_beside(lake) == list("abc")


@pytest.mark.slow
def test_what_was_forgotten_is_taken_again(lake):
    for n, event_id in enumerate("abcd"):
        grow(lake, (event_id, n))
        batches_taken(lake)
    home = lake.name.rpartition("/")[0]
    for batch in ("events", "events-v1-1", "events-v3-3"):
        forget(batch, Config(output=f"{home}/clean"), lake.spark, yes=True)
    grow(lake, ("e", 5))
    again = [("events", 1, 1), ("events-v1-1", 1, 1), ("events-v3-3", 1, 1), ("events-v4-4", 1, 1)]
    assert sorted(batches_taken(lake)) == again
    assert batches_taken(lake) == [] and kept_ids_beside(lake) == list("abcde")


@pytest.mark.slow
def test_a_whole_that_was_forgotten_is_taken_again_under_its_name(lake):
    grow(lake, ("a", 1))
    home = lake.name.rpartition("/")[0]
    assert batches_taken(lake, batch_id="first") == [("first", 1, 1)]
    grow(lake, ("b", 2))
    forget("first", Config(output=f"{home}/clean"), lake.spark, yes=True)
    assert sorted(batches_taken(lake)) == [("events-v1-1", 1, 1), ("first", 1, 1)]
    assert kept_ids_beside(lake) == list("ab")
    # its version is gone, and all rows are taken under another name
    forget("first", Config(output=f"{home}/clean"), lake.spark, yes=True)
    lake.spark.sql(f"alter table {lake.sql} set tblproperties (delta.checkpointInterval = 2)")
    grow(lake, ("c", 3))
    grow(lake, ("c", 3))
    Path(lake.name, "_delta_log", f"{0:020d}.json").unlink()
    with pytest.raises(
        ConfigError, match="first was all rows of .* as of version 0, which cannot be read any"
    ):
        batches_taken(lake)
    assert batches_taken(lake, batch_id="all")[0][0] == "all"
    assert batches_taken(lake) == []


@pytest.mark.slow
def test_a_table_that_is_named_like_a_part_is_taken_by_version(lake):
    like = Delta(lake.spark, f"{lake.name}-v1-2")
    grow(like, ("a", 1))
    assert batches_taken(like) == [("events-v1-2", 1, 1)]
    grow(like, ("b", 2))
    assert batches_taken(like) == [("events-v1-2-v1-1", 1, 1)]
    assert batches_taken(like) == []


@pytest.mark.slow
def test_a_table_made_anew_is_not_taken_for_the_old_one(lake):
    grow(lake, ("a", 1))
    batches_taken(lake)
    shutil.rmtree(lake.name)
    grow(lake, ("b", 2))
    grow(lake, ("c", 3))
    with pytest.raises(ConfigError, match="one that was made anew, .* --batch-id NAME"):
        batches_taken(lake)
    assert batches_taken(lake, batch_id="new") == [("new", 2, 2)]
    grow(lake, ("d", 4))
    assert batches_taken(lake) == [("new-v2-2", 1, 1)]


@pytest.mark.slow
def test_a_log_that_was_cleaned_is_said(lake):
    grow(lake, ("a", 1))
    batches_taken(lake)
    lake.spark.sql(f"alter table {lake.sql} set tblproperties (delta.checkpointInterval = 2)")
    for n in (2, 3, 4):
        grow(lake, ("b", n))
    for version in (0, 1, 2):
        Path(lake.name, "_delta_log", f"{version:020d}.json").unlink()
    with pytest.raises(ConfigError, match="its log cannot be read from version 1 on"):
        batches_taken(lake)
    assert batches_taken(lake, force=True) == [("events-v1-4", 4, 1)]


@pytest.mark.slow
def test_a_compaction_that_was_vacuumed_is_said(lake):
    grow(lake, ("a", 1))
    batches_taken(lake)
    grow(lake, ("b", 2))
    grow(lake, ("c", 3))
    lake.spark.sql(f"optimize {lake.sql}")
    assert batches_taken(lake, mode="decide") == [("events-v1-3", 2, 2)]
    lake.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    lake.spark.sql(f"vacuum {lake.sql} retain 0 hours")
    with pytest.raises(ConfigError, match="2 files of it were compacted and vacuumed. --force"):
        batches_taken(lake)
    assert batches_taken(lake, force=True) == [("events-v1-5", 3, 2)]


@pytest.mark.slow
def test_what_a_name_or_a_filter_leaves_out_is_said(lake):
    grow(lake, ("a", 1), ("b", 2))
    assert batches_taken(lake, batch_id="some", input_where="n > 1") == [("some", 1, 1)]
    with pytest.raises(ConfigError, match="some of this table had input_where = 'n > 1', this run has None"):
        batches_taken(lake)
    assert batches_taken(lake, input_where="n > 1") == []
    assert batches_taken(lake, batch_id="all") == [("all", 2, 1)]
    grow(lake, ("c", 3))
    assert batches_taken(lake) == [("events-v1-1", 1, 1)]
    with pytest.raises(ConfigError, match="events-v1-1 is committed .* or with another input_where"):
        batches_taken(lake, input_where="n > 1")
    with pytest.raises(ConfigError, match="would be versions 1 to 9; .* is at 1"):
        batches_taken(lake, batch_id="events-v1-9")


@pytest.mark.slow
def test_the_rest_of_a_table_under_a_name_that_is_taken_is_refused(lake):
    grow(lake, ("z", 9))
    assert batches_taken(lake) == [("events", 1, 1)]
    shutil.rmtree(lake.name)
    for n, event_id in enumerate("abc"):
        grow(lake, (event_id, n))
    assert batches_taken(lake, batch_id="events-v2-2") == [("events-v2-2", 1, 1)]
    with pytest.raises(ConfigError, match="Batch events is committed from another table"):
        batches_taken(lake)
    assert batches_taken(lake, batch_id="rest") == [("rest", 3, 2)]
    assert batches_taken(lake) == []


@pytest.mark.slow
def test_the_time_of_a_whole_table_is_nearly_its_newest(lake):
    days = [datetime(2026, 1, 1), *[datetime(2026, 11, d) for d in (1, 20)]]
    rows = [(f"e{n}", n, days[n % 3]) for n in range(30)]
    grow(lake, *rows, columns="event_id string, n int, etl_tstamp timestamp")
    batches_taken(lake, order_by="etl_tstamp", retention_days=5)
    grow(lake, ("e1", 40, days[2]), columns="event_id string, n int, etl_tstamp timestamp")
    assert batches_taken(lake, order_by="etl_tstamp", retention_days=5) == [("events-v1-1", 1, 0)]


@pytest.mark.slow
def test_a_table_by_name(spark, tmp_path):
    spark.sql("create schema if not exists versions")
    spark.sql("drop table if exists versions.events")
    table = "versions.events"
    spark.sql(f"create table {table} (event_id string, n int) using delta location '{tmp_path / 'at'}'")
    spark.sql(f"insert into {table} values ('a', 1)")
    asked = dict(input=table, output=str(tmp_path / "out"), input_format="table", order_by="n")
    names = []
    for more in ("('b', 2)", "('c', 3), ('b', 4)"):
        names += [m["batch_id"] for m in run(Config(**asked), get_spark()).batches]
        spark.sql(f"insert into {table} values {more}")
    done = run(Config(**asked), spark)
    assert [*names, done.batches[0]["batch_id"]] == ["events", "events-v2-2", "events-v3-3"]
    assert done.counts["read"] == 2 and done.counts["kept"] == 1
    spark.sql("drop schema versions cascade")

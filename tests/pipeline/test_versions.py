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
def delta_table(spark, tmp_path):
    return Delta(spark, str(tmp_path / "lake [x]" / "events"))


def grow(delta_table, *rows, columns=COLUMNS, **options):
    frame = delta_table.spark.createDataFrame(rows, columns).coalesce(1)
    writer = frame.write.format("delta").mode("append").options(mergeSchema="true")
    partitions = options.pop("partitions", ())
    writer.partitionBy(*partitions).options(**options).save(delta_table.name)


def batches_taken(delta_table, **more):
    "Per batch that a run takes: its name, and how many rows it read and kept."
    force = more.pop("force", False)
    home = delta_table.name.rpartition("/")[0]
    asked = dict(input=delta_table.name, output=f"{home}/clean", input_format="delta", order_by="n") | more
    done = run(Config(**asked), delta_table.spark, RunOptions(force=force))
    return [(m["batch_id"], m["counts"]["read"], m["counts"]["kept"]) for m in done.batches]


def kept_ids_beside(delta_table):
    home = delta_table.name.rpartition("/")[0]
    return sorted(
        r.event_id for r in delta_table.spark.read.parquet(escaped(f"{home}/clean/events")).collect()
    )


@pytest.mark.slow
def test_each_run_takes_what_came_since_and_passes_by_a_compaction(delta_table):
    grow(delta_table, ("a", 1), ("b", 2))
    assert batches_taken(delta_table) == [("events", 2, 2)]
    grow(delta_table, ("b", 3), ("c", 4))
    delta_table.spark.sql(f"optimize {delta_table.sql}")
    grow(delta_table, ("c", 5), ("d", 6))
    assert batches_taken(delta_table) == [("events-v1-3", 4, 2)]
    delta_table.spark.sql(f"optimize {delta_table.sql}")
    assert batches_taken(delta_table) == []
    grow(delta_table, ("e", 7))
    assert batches_taken(delta_table, mode="decide") == [("events-v4-5", 1, 1)]
    grow(delta_table, ("f", 8))
    assert batches_taken(delta_table, rerun=True) == [("events", 2, 2), ("events-v1-3", 4, 2)]
    assert batches_taken(delta_table) == [("events-v4-6", 2, 2)]
    assert batches_taken(delta_table, rerun=True, batch_id="events-v1-3") == [("events-v1-3", 4, 2)]
    assert kept_ids_beside(delta_table) == list("abcdef")


@pytest.mark.slow
def test_what_is_added_on_the_same_day_is_not_late(delta_table):
    late = []
    for day, hour in ((20, 12), (20, 5), (10, 5)):
        grow(
            delta_table,
            (f"{day}/{hour}", datetime(2026, 11, day, hour)),
            columns="event_id string, at timestamp",
        )
        clean = f"{delta_table.name}-clean"
        asked = Config(input=delta_table.name, output=clean, input_format="delta", order_by="at")
        [taken] = run(asked, delta_table.spark).batches
        late.append(any("this batch is late" in note for note in taken["notes"]))
    assert late == [False, False, True]


@pytest.mark.slow
def test_by_the_change_feed_where_it_is_on(delta_table):
    grow(delta_table, ("a", 1))
    assert batches_taken(delta_table) == [("events", 1, 1)]
    grow(delta_table, ("b", 2))
    feed = f"alter table {delta_table.sql} set tblproperties (delta.enableChangeDataFeed = true)"
    delta_table.spark.sql(feed)
    grow(delta_table, ("c", 3))
    assert batches_taken(delta_table) == [("events-v1-3", 2, 2)]  # it was not on in all of them
    delta_table.spark.sql(
        f"alter table {delta_table.sql} set tblproperties (delta.columnMapping.mode = 'name')"
    )
    delta_table.spark.sql(f"alter table {delta_table.sql} rename column n to number")
    grow(delta_table, ("d", 4), columns="event_id string, number int")
    assert batches_taken(delta_table, order_by="number", force=True) == [
        ("events-v4-6", 4, 1)
    ]  # the feed does not go over a new name
    grow(delta_table, ("d", 4), ("e", 5), columns="event_id string, number int")
    delta_table.spark.sql(f"optimize {delta_table.sql}")
    assert batches_taken(delta_table, order_by="number") == [("events-v7-8", 2, 1)]
    delta_table.spark.sql(f"update {delta_table.sql} set number = 9 where event_id = 'e'")
    with pytest.raises(ConfigError, match="1 version among them .9. updated or deleted rows. --force takes"):
        batches_taken(delta_table, order_by="number")
    assert kept_ids_beside(delta_table) == list("abcde")


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
def test_what_cannot_be_told_is_refused_and_taken_whole_if_forced(delta_table, what):
    statement, why = CHANGES[what]
    grow(delta_table, ("a", 1), ("b", 2))
    assert batches_taken(delta_table) == [("events", 2, 2)]
    grow(delta_table, ("c", 3))
    delta_table.spark.sql(statement.format(delta_table.sql))
    with pytest.raises(ConfigError, match=f"{why}. --force takes all rows as batch events-v1-2: those that"):
        batches_taken(delta_table)
    [(name, read, new)] = batches_taken(delta_table, force=True)
    assert (name, read) == ("events-v1-2", delta_table.rows().count())
    assert new == (0 if what == "an overwrite" else 1)
    assert batches_taken(delta_table) == []


@pytest.mark.soak
def test_a_merge_that_only_inserts_is_an_addition(delta_table):
    grow(delta_table, ("a", 1))
    assert batches_taken(delta_table) == [("events", 1, 1)]
    delta_table.spark.sql(
        f"merge into {delta_table.sql} t using (select explode(array('a', 'b')) as event_id, 5 as n) s "
        "on t.event_id = s.event_id when not matched then insert *"
    )
    assert batches_taken(delta_table) == [("events-v1-1", 1, 1)]


@pytest.mark.soak
def test_columns_that_come_and_folders_with_odd_names(delta_table):
    columns = "event_id string, n int, page string, day date"
    by = dict(partitions=["page", "day"])
    grow(delta_table, ("a", 1, "x=1/ü %41:", None), columns=columns, **by)
    assert batches_taken(delta_table) == [("events", 1, 1)]
    day = date(2026, 11, 20)
    grow(delta_table, ("b", 2, "y [z]*?{q} 50%", day), ("b", 3, None, day), columns=columns, **by)
    grow(delta_table, ("a", 4, "x=1/ü %41:", None, 5), columns=columns + ", more int", **by)
    more = dict(
        synthetic="rename_later", fingerprint_columns=("page", "day"), missing_fingerprint="surrogate"
    )
    assert [t[1:] for t in batches_taken(delta_table, force=True, **more)] == [(3, 3)]


@pytest.mark.soak
def test_a_time_in_the_names_of_folders_is_not_exact(delta_table):
    columns, day = "event_id string, n int, t timestamp", datetime(2026, 11, 20, 7)
    grow(delta_table, ("a", 1, day), columns=columns, partitions=["t"])
    batches_taken(delta_table)
    grow(delta_table, ("b", 2, day), columns=columns, partitions=["t"])
    with pytest.raises(ConfigError, match=r"partitioned by t \(timestamp\), and its change feed was not on"):
        batches_taken(delta_table)


@pytest.mark.parametrize(
    "folder, why", [("n=7", "lies outside of the folders of the table"), ("plain", None)]
)
def test_a_folder_that_would_replace_a_column_of_a_table_is_refused(delta_table, folder, why):
    grow(delta_table, ("a", 1))
    [file] = Path(delta_table.name).glob("*.parquet")
    (Path(delta_table.name) / folder).mkdir()
    copied = Path(shutil.copy(file, Path(delta_table.name) / folder / "b.parquet"))
    added = {"path": f"{folder}/b.parquet", "size": copied.stat().st_size, "partitionValues": {}}
    entry = {"add": {**added, "modificationTime": 0, "dataChange": True}}
    (Path(delta_table.name) / "_delta_log" / f"{1:020}.json").write_text(json.dumps(entry))
    found = added_between(delta_table, 1, 1)
    assert (found.why_not or "").endswith(why or "") and bool(found.why_not) == bool(why)
    if not why:
        part = Batch("events-v1-1", found.files, delta_table.name, versions=(1, 1))
        assert table_rows(delta_table.spark, part, "delta").rows.collect() == [("a", 1)]


@pytest.mark.soak
def test_a_run_that_was_begun_is_finished_with_its_versions(delta_table, monkeypatch):
    grow(delta_table, ("a", 1))
    batches_taken(delta_table)
    grow(delta_table, ("b", 2))
    with monkeypatch.context() as broken:
        broken.setattr(pipeline, "finish", lambda *a: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            batches_taken(delta_table)
    grow(delta_table, ("c", 3))
    assert batches_taken(delta_table) == [("events-v1-1", 1, 1), ("events-v2-2", 1, 1)]
    assert kept_ids_beside(delta_table) == list("abc")


@pytest.mark.soak
def test_what_was_forgotten_is_taken_again(delta_table):
    for n, event_id in enumerate("abcd"):
        grow(delta_table, (event_id, n))
        batches_taken(delta_table)
    home = delta_table.name.rpartition("/")[0]
    for batch in ("events", "events-v1-1", "events-v3-3"):
        forget(batch, Config(output=f"{home}/clean"), delta_table.spark, yes=True)
    grow(delta_table, ("e", 5))
    again = [("events", 1, 1), ("events-v1-1", 1, 1), ("events-v3-3", 1, 1), ("events-v4-4", 1, 1)]
    assert sorted(batches_taken(delta_table)) == again
    assert batches_taken(delta_table) == [] and kept_ids_beside(delta_table) == list("abcde")


@pytest.mark.soak
def test_a_whole_that_was_forgotten_is_taken_again_under_its_name(delta_table):
    grow(delta_table, ("a", 1))
    home = delta_table.name.rpartition("/")[0]
    assert batches_taken(delta_table, batch_id="first") == [("first", 1, 1)]
    grow(delta_table, ("b", 2))
    forget("first", Config(output=f"{home}/clean"), delta_table.spark, yes=True)
    assert sorted(batches_taken(delta_table)) == [("events-v1-1", 1, 1), ("first", 1, 1)]
    assert kept_ids_beside(delta_table) == list("ab")
    # its version is gone, and all rows are taken under another name
    forget("first", Config(output=f"{home}/clean"), delta_table.spark, yes=True)
    delta_table.spark.sql(f"alter table {delta_table.sql} set tblproperties (delta.checkpointInterval = 2)")
    grow(delta_table, ("c", 3))
    grow(delta_table, ("c", 3))
    Path(delta_table.name, "_delta_log", f"{0:020d}.json").unlink()
    with pytest.raises(
        ConfigError, match="first was all rows of .* as of version 0, which cannot be read any"
    ):
        batches_taken(delta_table)
    assert batches_taken(delta_table, batch_id="all")[0][0] == "all"
    assert batches_taken(delta_table) == []


@pytest.mark.soak
def test_a_table_that_is_named_like_a_part_is_taken_by_version(delta_table):
    like = Delta(delta_table.spark, f"{delta_table.name}-v1-2")
    grow(like, ("a", 1))
    assert batches_taken(like) == [("events-v1-2", 1, 1)]
    grow(like, ("b", 2))
    assert batches_taken(like) == [("events-v1-2-v1-1", 1, 1)]
    assert batches_taken(like) == []


@pytest.mark.slow
def test_a_table_made_anew_is_not_taken_for_the_old_one(delta_table):
    grow(delta_table, ("a", 1))
    batches_taken(delta_table)
    shutil.rmtree(delta_table.name)
    grow(delta_table, ("b", 2))
    grow(delta_table, ("c", 3))
    with pytest.raises(ConfigError, match="one that was made anew, .* --batch-id NAME"):
        batches_taken(delta_table)
    assert batches_taken(delta_table, batch_id="new") == [("new", 2, 2)]
    grow(delta_table, ("d", 4))
    assert batches_taken(delta_table) == [("new-v2-2", 1, 1)]


@pytest.mark.soak
def test_a_log_that_was_cleaned_is_said(delta_table):
    grow(delta_table, ("a", 1))
    batches_taken(delta_table)
    delta_table.spark.sql(f"alter table {delta_table.sql} set tblproperties (delta.checkpointInterval = 2)")
    for n in (2, 3, 4):
        grow(delta_table, ("b", n))
    for version in (0, 1, 2):
        Path(delta_table.name, "_delta_log", f"{version:020d}.json").unlink()
    with pytest.raises(ConfigError, match="its log cannot be read from version 1 on"):
        batches_taken(delta_table)
    assert batches_taken(delta_table, force=True) == [("events-v1-4", 4, 1)]


@pytest.mark.soak
def test_a_compaction_that_was_vacuumed_is_said(delta_table):
    grow(delta_table, ("a", 1))
    batches_taken(delta_table)
    grow(delta_table, ("b", 2))
    grow(delta_table, ("c", 3))
    delta_table.spark.sql(f"optimize {delta_table.sql}")
    assert batches_taken(delta_table, mode="decide") == [("events-v1-3", 2, 2)]
    delta_table.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    delta_table.spark.sql(f"vacuum {delta_table.sql} retain 0 hours")
    with pytest.raises(ConfigError, match="2 files of it were compacted and vacuumed. --force"):
        batches_taken(delta_table)
    assert batches_taken(delta_table, force=True) == [("events-v1-5", 3, 2)]


@pytest.mark.soak
def test_what_a_name_or_a_filter_leaves_out_is_said(delta_table):
    grow(delta_table, ("a", 1), ("b", 2))
    assert batches_taken(delta_table, batch_id="some", input_where="n > 1") == [("some", 1, 1)]
    with pytest.raises(ConfigError, match="some of this table had input_where = 'n > 1', this run has None"):
        batches_taken(delta_table)
    assert batches_taken(delta_table, input_where="n > 1") == []
    assert batches_taken(delta_table, batch_id="all") == [("all", 2, 1)]
    grow(delta_table, ("c", 3))
    assert batches_taken(delta_table) == [("events-v1-1", 1, 1)]
    with pytest.raises(ConfigError, match="events-v1-1 is committed .* or with another input_where"):
        batches_taken(delta_table, input_where="n > 1")
    with pytest.raises(ConfigError, match="would be versions 1 to 9; .* is at 1"):
        batches_taken(delta_table, batch_id="events-v1-9")


@pytest.mark.soak
def test_the_rest_of_a_table_under_a_name_that_is_taken_is_refused(delta_table):
    grow(delta_table, ("z", 9))
    assert batches_taken(delta_table) == [("events", 1, 1)]
    shutil.rmtree(delta_table.name)
    for n, event_id in enumerate("abc"):
        grow(delta_table, (event_id, n))
    assert batches_taken(delta_table, batch_id="events-v2-2") == [("events-v2-2", 1, 1)]
    with pytest.raises(ConfigError, match="Batch events is committed from another table"):
        batches_taken(delta_table)
    assert batches_taken(delta_table, batch_id="rest") == [("rest", 3, 2)]
    assert batches_taken(delta_table) == []


@pytest.mark.soak
def test_the_time_of_a_whole_table_is_nearly_its_newest(delta_table):
    days = [datetime(2026, 1, 1), *[datetime(2026, 11, d) for d in (1, 20)]]
    rows = [(f"e{n}", n, days[n % 3]) for n in range(30)]
    grow(delta_table, *rows, columns="event_id string, n int, etl_tstamp timestamp")
    batches_taken(delta_table, order_by="etl_tstamp", retention_days=5)
    grow(delta_table, ("e1", 40, days[2]), columns="event_id string, n int, etl_tstamp timestamp")
    assert batches_taken(delta_table, order_by="etl_tstamp", retention_days=5) == [("events-v1-1", 1, 0)]


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

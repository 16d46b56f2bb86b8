"""A loaded table is repaired by the rules of `deduplicate`, in place, and nothing is lost on the way."""

import json
from datetime import date

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F
from repairs import (
    EIGHT,
    LEFT,
    STAYING,
    SYNTHETIC,
    as_they_are,
    frame_of_days,
    links_in,
    numbers_in,
    repaired,
    rows_that_left,
    table_made,
    with_entities,
)
from runs import SAMPLES, heard

from dedup_nb import Config, deduplicate, run
from dedup_nb.base.errors import ConfigError, FormatError, InputError, MissingColumnError, MissingInputError
from dedup_nb.base.spark import temporary_conf
from dedup_nb.base.storage import escaped
from dedup_nb.cli import main
from dedup_nb.formats.delta import Delta
from dedup_nb.formats.enriched import NAMES
from dedup_nb.operate.history import forget
from dedup_nb.warehouse.repair import repair


@pytest.mark.soak
def test_eight_rows_by_path(spark, tmp_path, monkeypatch, capsys):
    path = table_made(spark, tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["repair", "--table", path, "--mode", "decide", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert ended.value.code == 0
    assert not (tmp_path / "duplicated_events").exists() and Delta(spark, path).version() == 0
    assert (told["reasons"], told["files"]) == ({"natural": 3, "synthetic": 1}, 1)
    assert len(told["samples"]) == 4
    done = repaired(spark, path)
    assert done.counts == told["counts"] == dict(before=8, without_id=1, left=4, renamed=0, after=4)
    assert (
        numbers_in(spark, path) == [1, 3, 5, 8]
        and rows_that_left(spark, f"{tmp_path}/duplicated_events") == LEFT
    )
    # a second time nothing is left to do, and nothing is written
    assert repaired(spark, path).counts["left"] == 0 and Delta(spark, path).version() == 1
    # and what was done can be undone
    for statement in done.data["undo"]:
        spark.sql(statement)
    assert numbers_in(spark, path) == [1, 2, 3, 4, 5, 5, 5, 8]


@pytest.mark.slow
@pytest.mark.parametrize(
    "strategy, synthetic",
    [("move", "quarantine"), ("rename", "rename_later"), ("delete", "delete_all")],
)
def test_a_table_by_name_becomes_what_deduplicate_keeps(spark, strategy, synthetic):
    "Rows in any order, partitions with deletion vectors."
    spark.sql("create database if not exists lake")
    spark.sql("drop table if exists lake.events")
    spark.sql("drop table if exists lake.duplicated_events")
    rows = [(f"i{n * 7 % 9}", f"f{n * 5 % 4}", n * 3 % 5, n % 11) for n in range(40)] + EIGHT
    events = (
        frame_of_days(spark, rows).withColumn("part", F.expr("n % 2")).orderBy(F.hash("n")).repartition(3)
    )
    options = {"delta.enableDeletionVectors": "true"}
    events.write.format("delta").partitionBy("part").options(**options).saveAsTable("lake.events")
    more = {} if strategy == "move" else {"order_by": ["etl_tstamp", "n desc"]}
    done = repaired(spark, "lake.events", strategy=strategy, **more)
    expected = deduplicate(events, synthetic=synthetic, **more)
    stay = expected.kept.drop("original_event_id").unionByName(expected.bad)
    assert as_they_are(spark.table("lake.events").select(stay.columns)) == as_they_are(stay)
    left = spark.table("lake.duplicated_events")
    plain = [*events.columns, "dedup.reason", "dedup.kept_event_id"]
    assert as_they_are(left.select(plain)) == as_they_are(expected.dropped.select(plain))
    renamed = expected.kept.where("original_event_id is not null").count()
    assert done.counts["renamed"] == renamed and (renamed > 0) == (strategy == "rename")
    assert repaired(spark, "lake.events", strategy=strategy, **more).counts["left"] == 0
    assert Delta(spark, "lake.events").version() == 1
    spark.sql("drop database lake cascade")


ROW = st.tuples(
    st.sampled_from(["a", "b", "c", "d", "A", "", None]),
    st.sampled_from(["f", "g", "", None]),
    st.integers(1, 4),
    st.integers(0, 5),
)


@pytest.mark.soak
@given(
    loaded=st.lists(ROW, min_size=1, max_size=30),
    files=st.integers(1, 4),
    strategy=st.sampled_from(sorted(SYNTHETIC)),
    missing=st.sampled_from(["surrogate", "unique", "id"]),
)
@settings(max_examples=4, suppress_health_check=[*HealthCheck])
def test_any_table_becomes_what_deduplicate_keeps(spark, tmp_path_factory, loaded, files, strategy, missing):
    path = str(tmp_path_factory.mktemp("any") / "events")
    events = frame_of_days(spark, loaded).repartition(files, "n")
    events.write.format("delta").save(path)
    asked = dict(order_by=["etl_tstamp", "n desc"], missing_fingerprint=missing)
    done = repaired(spark, path, strategy=strategy, **asked)
    expected = deduplicate(events, synthetic=SYNTHETIC[strategy], **asked)
    stay = expected.kept.select(events.columns).unionByName(expected.bad.select(events.columns))
    assert as_they_are(spark.read.format("delta").load(path).select(events.columns)) == as_they_are(stay)
    assert done.counts["left"] == expected.dropped.count()
    if done.counts["left"]:
        told = [*events.columns, "dedup.reason", "dedup.kept_event_id"]
        gone = spark.read.format("delta").load(path.replace("events", "duplicated_events"))
        assert as_they_are(gone.select(told)) == as_they_are(expected.dropped.select(told))
    assert repaired(spark, path, strategy=strategy, **asked).counts["left"] == 0


@pytest.mark.soak
def test_older_rows_protect_and_are_never_changed(spark, tmp_path):
    older = [("old", "f", 1, 1), ("old", "f", 2, 2), ("a", "f", 1, 3), ("b", "f", 1, 4)]
    newer = [("a", "f", 9, 5), ("b", "g", 9, 6), ("c", "f", 9, 7), ("c", "f", 10, 8), ("d", "f", 9, 9)]
    path = table_made(spark, tmp_path, older + newer)
    repaired(spark, path, from_date="2026-11-05")
    assert numbers_in(spark, path) == [1, 2, 3, 4, 7, 9]
    assert rows_that_left(spark, f"{tmp_path}/duplicated_events") == [
        (5, "natural_cross_batch", "a"),
        (6, "synthetic_cross_batch", None),
        (8, "natural", "c"),
    ]
    assert repaired(spark, path, from_date="2026-11-05").counts["left"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "rows, more, stay",
    [
        pytest.param(
            [("a", "f", 1, 1), ("a", "g", 2, 2)], dict(strategy="delete"), [], marks=pytest.mark.soak
        ),
        ([("a", "f", 1, 1), ("a", "f", 9, 2)], dict(from_date="2026-11-05"), [1]),
    ],
)
def test_files_of_which_nothing_stays(spark, tmp_path, rows, more, stay):
    path = table_made(spark, tmp_path, rows[:1])
    frame_of_days(spark, rows[1:]).write.format("delta").mode("append").save(path)
    assert repaired(spark, path, **more).counts["left"] == len(rows) - len(stay)
    assert numbers_in(spark, path) == stay
    assert repaired(spark, path, **more).counts["left"] == 0


@pytest.mark.slow
def test_only_files_with_such_rows_are_rewritten(spark, tmp_path):
    path = table_made(spark, tmp_path, [("x", "f", 1, 1), ("y", "f", 1, 2)])
    frame_of_days(spark, EIGHT[:2]).coalesce(1).write.format("delta").mode("append").save(path)
    frame_of_days(spark, [("z", "f", 1, 9)]).coalesce(1).write.format("delta").mode("append").save(path)
    repaired(spark, path)
    told = Delta(spark, path).commits()[0].operationMetrics
    assert (told["numRemovedFiles"], told["numDeletedRows"]) == ("1", "2")


# --- entities


@pytest.mark.soak
def test_entities_follow_their_events(spark, tmp_path):
    path, entities = with_entities(spark, tmp_path)
    done = repaired(spark, path, None, entities)
    assert links_in(spark, f"{tmp_path}/link") == STAYING
    rows = spark.read.format("delta").load(f"{tmp_path}/duplicated_link").collect()
    assert sorted((r.link, r.dedup.reason) for r in rows) == [
        ("of the other b", "synthetic"),
        ("second", "natural"),
        ("shared", "natural"),
        ("shared", "natural"),
        ("whose", "ambiguous"),
    ]
    assert done.data["entities"][f"{tmp_path}/link"] == dict(left=5, renamed=0, ambiguous=1, files=1)
    for statement in done.data["undo"]:
        spark.sql(statement)
    assert len(links_in(spark, f"{tmp_path}/link")) == 10 and len(numbers_in(spark, path)) == 10


@pytest.mark.soak
def test_entities_of_a_renamed_event_get_its_new_id(spark, tmp_path):
    path, entities = with_entities(spark, tmp_path)
    done = repaired(spark, path, None, entities, strategy="rename")
    new = next(r.event_id for r in spark.read.format("delta").load(path).collect() if r.n == 4)
    assert (new, "of the other b") in links_in(spark, f"{tmp_path}/link") and new != "b"
    assert done.data["entities"][f"{tmp_path}/link"]["renamed"] == 1


# --- a repair that dies, and tables that change


@pytest.mark.soak
@pytest.mark.parametrize("column", [None, "original_event_id"])
def test_ids_that_nothing_keeps_are_said_before_they_are_replaced(spark, tmp_path, column):
    events = frame_of_days(spark, EIGHT[2:4])
    events = events.withColumn(column, F.lit(None).cast("string")) if column else events
    events.coalesce(1).write.format("delta").save(f"{tmp_path}/events")
    path, said = f"{tmp_path}/events", []
    alter = f"ALTER TABLE delta.`{path}` ADD COLUMNS (original_event_id STRING)"
    version = lambda line: said.append((line.rpartition("first: ")[2], Delta(spark, path).version()))
    with heard(version):
        done = repair(path, strategy="rename", spark=spark)
    assert said == ([] if column else [(alter, 0)]) and done.counts["renamed"] == 1
    assert (alter in str(done)) == (done.data["note"] is not None) == (not column)
    kept = spark.read.format("delta").load(path).where("n = 4").first().asDict()
    assert kept["event_id"] != "b" and kept.get("original_event_id") == (column and "b")


@pytest.mark.soak
def test_an_event_that_was_renamed_and_is_loaded_again_is_a_copy(spark, tmp_path):
    path = table_made(spark, tmp_path, EIGHT[2:4])
    repaired(spark, path, strategy="rename")
    frame_of_days(spark, EIGHT[3:4]).write.format("delta").mode("append").save(path)
    repaired(spark, path, strategy="rename")
    assert numbers_in(spark, path) == [3, 4]
    [(n, reason, new)] = rows_that_left(spark, f"{tmp_path}/duplicated_events")
    assert (n, reason) == (4, "natural") and new != "b"


@pytest.mark.slow
def test_several_columns_make_an_id(spark, tmp_path, capsys):
    rows = [("x", "a", 1), ("x", "a", 1), ("x", "b", 1), ("y", "a", 1), ("x", None, 1), ("x", None, 1)]
    path = str(tmp_path / "events")
    spark.createDataFrame(rows, "tenant string, id string, n int").write.format("delta").save(path)
    with pytest.raises(ConfigError, match="tenant, id make the id together. Use strategy=move or delete"):
        repair(path, spark=spark, strategy="rename", event_id=["tenant", "id"])
    with pytest.raises(SystemExit) as end:
        main(["repair", "--table", path, "--event-id", "tenant,id", "--order-by", "n"])
    assert end.value.code == 0, capsys.readouterr().err
    stay = spark.read.format("delta").load(path)
    assert sorted(map(tuple, stay.collect()), key=str) == sorted(rows[1:], key=str)


@pytest.mark.soak
def test_odd_columns_and_layouts(spark, tmp_path):
    "Null ids beside an id whose hash has that of null in it; names with blanks; columns that are new."
    path = f"{tmp_path}/events"
    rows = [("A", "f", 1, 1), ("A", "f", 2, 2), *[(f"i{n}", "f", 1, 10 + n) for n in range(20)] * 2]
    rows += [(None, "f", 1, 3), (None, "f", 1, 4)]
    events = frame_of_days(spark, rows).withColumn("two  words", F.expr("map('k', named_struct('a.b', n))"))
    events.write.format("delta").option("delta.columnMapping.mode", "name").save(path)
    assert repaired(spark, path).counts == dict(before=44, without_id=2, left=21, renamed=0, after=23)
    more = events.where("n < 3").withColumn("col", F.lit("new"))
    more.write.format("delta").mode("append").option("mergeSchema", "true").save(path)
    assert repaired(spark, path).counts["left"] == 2
    gone = spark.read.format("delta").load(f"{tmp_path}/duplicated_events")
    # of two that differ in the new column alone, the hash says which one stays
    assert gone.count() == 23 and gone.where("col = 'new'").count() in (1, 2)


@pytest.mark.soak
def test_a_column_of_an_entity_may_have_any_name(spark, tmp_path):
    path, entities = with_entities(spark, tmp_path)
    [link] = entities
    rows = (
        spark.read.format("delta").load(link).withColumn("col", F.lit("x")).withColumn("new_id", F.lit("y"))
    )
    rows.write.format("delta").mode("overwrite").option("mergeSchema", "true").save(link)
    repaired(spark, path, None, entities)
    rows = spark.read.format("delta").load(link)
    assert links_in(spark, link) == STAYING and rows.where("col = 'x' and new_id = 'y'").count() == 5


@pytest.mark.slow
def test_duplicates_belong_to_one_table(spark, tmp_path):
    path = table_made(spark, tmp_path)
    repaired(spark, path)
    other = table_made(spark, tmp_path / "b")
    with pytest.raises(ConfigError, match="has the duplicates of another table"):
        repaired(spark, other, f"{tmp_path}/duplicated_events")


@pytest.mark.soak
def test_many_ids_are_written_with_the_whole_table(spark, tmp_path, monkeypatch):
    path, entities = with_entities(spark, tmp_path)
    monkeypatch.setattr("dedup_nb.warehouse.repair._MANY", 1)
    done = repaired(spark, path, None, entities)
    assert numbers_in(spark, path) == [1, 3, 5, 7, 8] and links_in(spark, f"{tmp_path}/link") == STAYING
    assert done.counts == dict(before=10, without_id=0, left=5, renamed=0, after=5)


@pytest.mark.slow
def test_a_table_whose_files_have_no_statistics_is_repaired_whole(spark, tmp_path, monkeypatch):
    monkeypatch.setattr("dedup_nb.warehouse.repair._MANY", 1)
    with temporary_conf(spark, {"spark.databricks.delta.stats.collect": "false"}):
        path = table_made(spark, tmp_path)
    assert repaired(spark, path).counts["left"] == 4 and numbers_in(spark, path) == [1, 3, 5, 8]


@pytest.mark.slow
def test_events_that_a_run_renamed_are_no_duplicates(spark, tmp_path):
    "A run gave an id of its own to one of two events: what it wrote has nothing to repair."
    events = frame_of_days(spark, EIGHT)
    kept = deduplicate(events, synthetic="rename_later").kept
    assert kept.where("original_event_id is not null").count() == 1
    path = f"{tmp_path}/events"
    kept.write.format("delta").save(path)
    for strategy in SYNTHETIC:
        assert repaired(spark, path, strategy=strategy).counts["left"] == 0
    kept.where("original_event_id is not null").write.format("delta").mode("append").save(path)
    assert repaired(spark, path).counts["left"] == 1
    rows = spark.read.format("delta").load(path)
    assert as_they_are(rows) == as_they_are(kept)


# --- retractions


@pytest.mark.soak
def test_retractions_of_a_run_are_applied(spark, tmp_path):
    at = F.expr("timestamp'2026-11-01 00:00:00Z'")
    batches = {"1": [("a", "f", 1), ("b", "f", 2)], "2": [("a", "g", 3), ("c", "f", 4)]}
    for name, rows in batches.items():
        batch = spark.createDataFrame(rows, "event_id string, event_fingerprint string, n int")
        batch.withColumn("etl_tstamp", at).coalesce(1).write.parquet(f"{tmp_path}/in/run={name}")
    out = f"{tmp_path}/out"
    asked = dict(input_format="parquet", output_format="delta", synthetic="delete_all")
    run(Config(input=f"{tmp_path}/in", output=out, **asked), spark)
    assert numbers_in(spark, f"{out}/events") == [1, 2, 4]
    done = repaired(spark, None, f"{tmp_path}/gone", retractions=out)
    assert numbers_in(spark, f"{out}/events") == [2, 4] and done.counts["left"] == 1
    assert rows_that_left(spark, f"{tmp_path}/gone") == [(1, "synthetic_cross_batch", None)]
    assert repaired(spark, None, f"{tmp_path}/gone", retractions=out).counts["left"] == 0


@pytest.mark.slow
def test_retractions_of_a_forgotten_batch_wait_until_it_is_run_again(spark, tmp_path):
    config = Config(input=f"{tmp_path}/in", output=f"{tmp_path}/out[1]", synthetic="delete_all")
    for name, rows in {"1": [("a", "f", 1)], "2": [("a", "g", 2)]}.items():
        batch = spark.createDataFrame(rows, "event_id string, event_fingerprint string, n int")
        batch = batch.withColumn("etl_tstamp", F.expr("timestamp'2026-11-01 00:00:00Z'"))
        batch.coalesce(1).write.parquet(f"{tmp_path}/in/run={name}")
    run(config, spark)
    loaded = spark.read.parquet(escaped(f"{config.output}/events")).drop("batch_id")
    loaded.write.format("delta").save(f"{tmp_path}/loaded")
    asked = dict(mode="decide", retractions=config.output)
    assert repaired(spark, f"{tmp_path}/loaded", **asked).counts["left"] == 1
    forget("2", config, spark, yes=True)
    assert repaired(spark, f"{tmp_path}/loaded", **asked).counts["left"] == 0
    run(config, spark)
    assert repaired(spark, f"{tmp_path}/loaded", **asked).counts["left"] == 1


@pytest.mark.slow
def test_what_a_report_tells_has_an_order(spark, tmp_path, monkeypatch):
    numbers = [9, 3, 7, 1, 8, 2, 6]
    path = table_made(spark, tmp_path, [(f"i{n}", "f", 1, n) for n in numbers] * 2)
    told = repaired(spark, path, mode="decide", from_date=date(2026, 11, 1)).data
    assert [row["event_id"] for row in told["samples"]] == ["i1", "i2", "i3", "i6", "i7"]
    listed = spark.createDataFrame(
        [(f"i{n}", f"why {n}") for n in numbers], "event_id string, _dd_why string"
    )
    monkeypatch.setattr("dedup_nb.warehouse.decisions._read_retractions", lambda *_: listed)
    told = repaired(spark, path, mode="decide", retractions="out").data
    assert [row["reason"] for row in told["verdicts"]] == [f"why {n}" for n in sorted(numbers)]


# --- what cannot be


def test_what_cannot_be_repaired_is_named(spark, tmp_path):
    path = table_made(spark, tmp_path)
    frame_of_days(spark, EIGHT).write.parquet(f"{tmp_path}/files")
    frame_of_days(spark, EIGHT).createOrReplaceTempView("seen")
    spark.range(1).write.format("delta").save(f"{tmp_path}/other")
    spark.sql("select string(null) as root_id").write.format("delta").save(f"{tmp_path}/rootless")
    cases = [
        (ConfigError, "move, rename, delete; found 'mvoe'. Did you mean move", path, {"strategy": "mvoe"}),
        (ConfigError, "apply, decide; found 'now'", path, {"mode": "now"}),
        (ConfigError, "not natural", path, {"natural": "off"}),
        (ConfigError, "a day such as 2026-11-01; found 'yesterday'", path, {"from_date": "yesterday"}),
        (ConfigError, "a day such as 2026-11-01; found '20261101'", path, {"from_date": "20261101"}),
        (
            ConfigError,
            "needs a time among the order columns",
            path,
            {"from_date": "2026-11-01", "order_by": ["n"]},
        ),
        (ConfigError, "A repair needs a table", None, {}),
        (MissingInputError, "evnts; it is not there. Did you mean events", f"{tmp_path}/evnts", {}),
        (MissingInputError, "lake.nothing; it is not there", "lake.nothing", {}),
        (FormatError, "is a folder of other files; wanted a Delta table", f"{tmp_path}/files", {}),
        (FormatError, "is a view", "seen", {}),
        (ConfigError, "cannot be its own table of duplicates", path, {"duplicates": path}),
        (InputError, "does not fit .*wanted", path, {"duplicates": f"{tmp_path}/other"}),
        (
            MissingColumnError,
            "needs evnt_id.*Did you mean|evnt_id: Did you mean event_id",
            path,
            {"event_id": ["evnt_id"]},
        ),
        (ConfigError, "which is int, no string", path, {"strategy": "rename", "event_id": ["n"]}),
        (InputError, "no root id: root_id is null", path, {"entities": {f"{tmp_path}/rootless": "root_id"}}),
        (MissingColumnError, "needs root_id", path, {"entities": {f"{tmp_path}/other": "root_id"}}),
        (MissingInputError, "has no runs", path, {"retractions": f"{tmp_path}/files"}),
        (ConfigError, "are no Delta table: name the table", None, {"retractions": f"{tmp_path}/files"}),
    ]
    for error, words, table, asked in cases:
        with pytest.raises(error, match=words):
            repaired(spark, table, **asked)
    assert Delta(spark, path).version() == 0


@pytest.mark.soak
def test_samples_that_were_loaded_three_times(spark, tmp_path):
    columns = ", ".join(f"`{name}` string" for name in NAMES)
    day = spark.read.csv(f"{SAMPLES}/run=2026-11-18-00-00-00", sep="\t", schema=columns, quote="", escape="")
    names = "event_id event_fingerprint etl_tstamp collector_tstamp v_collector v_etl page_url contexts"
    day = day.select(*names.split(), "derived_contexts")
    day.union(day).union(day).write.format("delta").save(f"{tmp_path}/samples")
    repair(f"{tmp_path}/samples", strategy="rename", mode="apply", spark=spark)
    once = deduplicate(day, synthetic="rename_later").kept
    loaded = spark.read.format("delta").load(f"{tmp_path}/samples").where("event_id is not null")
    assert loaded.count() == once.count() == loaded.select("event_id").distinct().count()
    assert loaded.join(once, "event_id", "left_anti").isEmpty()

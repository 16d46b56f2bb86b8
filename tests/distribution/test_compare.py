"What other ways of deduplicating keep, lose and leave to chance."

import json
import re
from datetime import datetime

import pytest
from enriched_cases import contexts, duplicate_of
from inputs import line, parquet
from warehouses import SCHEMA, TENANTS

from dedup_nb import Config
from dedup_nb.base.errors import ConfigError, InputError, MissingColumnError
from dedup_nb.cli import main
from dedup_nb.distribution.compare import Comparison, compare, compare_input
from dedup_nb.rules.deduplicate import deduplicate

CASES = [
    ("a", "f", 1, "/home"),
    ("a", "f", 2, "/home"),
    ("b", "f", 1, "/cart"),
    ("b", "g", 3, "/admin"),
    ("c", None, 2, "/in"),
    ("c", None, 2, "/out"),
    ("d", "f", 2, "/pay"),
    ("d", "f", 2, "/pay"),
    ("e", "", 1, "/home"),
    ("e", "", 2, "/home"),
    ("f", "f", 1, "/home"),
    (None, "f", 1, "/home"),
    ("", "f", 1, "/home"),
]
TIME_OF = {"1": {"etl_tstamp": [datetime(2026, 11, 18)] * 3}, "2": {}}
NUMBERED = "event_id bigint, event_fingerprint string, etl_tstamp int"
TIMES = "event_id string, event_fingerprint string, etl_tstamp int, page string"


def numbers_by_way(frame):
    return {r.way: (r.kept, r.lost, r.twice, r.arbitrary) for r in frame.collect()}


def test_other_ways_side_by_side(spark):
    events = spark.createDataFrame(CASES, TIMES)
    found = compare(events)
    assert numbers_by_way(found) == {
        "dedup_nb": (8, 0, 0, 0),
        "drop_duplicates": (6, 2, 0, 4),
        "dbt": (6, 2, 0, 1),
        "last_wins": (6, 2, 0, 1),
        "snowplow": (9, 0, 1, 3),
    }
    told = {r.way: r for r in found.collect()}
    assert told["drop_duplicates"].arbitrary_ids == ["a", "b", "c"] and told["dbt"].lost_ids == ["b", "c"]
    assert told["snowplow"].twice_ids == ["e"] and {r.rows for r in told.values()} == {11}
    # what can be done here comes out as it was said
    with_id = events.where("event_id <> ''")
    assert with_id.dropDuplicates(["event_id"]).count() == told["drop_duplicates"].kept
    assert deduplicate(events).kept.count() == told["dedup_nb"].kept


@pytest.mark.slow
def test_batches_are_compared_as_a_run_takes_them(spark, tmp_path):
    "A column in two types, one of a folder, a time that only one batch has."
    for batch, values in {"1": [7, 7, 8], "2": ["007", "x", "8"]}.items():
        folder = tmp_path / f"in/run={batch}/site={batch}"
        parquet(folder / "part.parquet", event_id=["a", "b", "c"], n=values, **TIME_OF[batch])
    config = Config(input=str(tmp_path / "in"), missing_fingerprint="surrogate")
    told = {row["way"]: row for row in compare_input(config, spark=spark).rows}
    # c stands in both folders, and is one event; 007 is no 7
    assert (told["dedup_nb"]["rows"], told["dedup_nb"]["kept"]) == (6, 5)
    assert told["drop_duplicates"]["lost_ids"] == ["a", "b"]


@pytest.mark.slow
def test_an_event_that_was_renamed_is_compared_under_the_id_that_it_came_with(spark, tmp_path):
    first, renamed = (f"{n}1111111-1111-4111-8111-111111111111" for n in (1, 2))
    lines = [
        line(event_id=first, event_fingerprint="f"),
        line(event_id=renamed, event_fingerprint="g", derived_contexts=contexts(duplicate_of(first))),
    ]
    (tmp_path / "lines").write_text("\n".join(lines) + "\n")
    config = Config(input=str(tmp_path), input_format="enriched_tsv")
    told = {row["way"]: row for row in compare_input(config, spark=spark).rows}
    assert (told["dedup_nb"]["kept"], told["drop_duplicates"]["kept"]) == (2, 1)
    assert told["drop_duplicates"]["lost_ids"] == [first]


LONG = pytest.mark.slow


@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    [
        dict(missing_fingerprint="unique"),
        pytest.param(dict(synthetic="quarantine"), marks=LONG),
        pytest.param(dict(synthetic="delete_all"), marks=LONG),
        pytest.param(dict(synthetic="off"), marks=LONG),
        pytest.param(dict(synthetic="off", natural="off"), marks=LONG),
        pytest.param(dict(missing_fingerprint="id"), marks=LONG),
    ],
    ids=str,
)
def test_our_own_way_says_what_deduplicate_does(spark, given):
    events = spark.createDataFrame(CASES, TIMES)
    kept = deduplicate(events, **given).kept
    twice = kept.groupBy("event_id").count().where("count > 1").count()
    [row] = compare(events, (), **given).collect()
    assert (row.kept, row.twice) == (kept.count(), twice)


@pytest.mark.slow
def test_ways_side_by_side_where_several_columns_make_the_id(spark, tmp_path, capsys):
    events = spark.createDataFrame(TENANTS, f"tenant string, {SCHEMA}").drop("event_fingerprint")
    asked = dict(event_id=["tenant", "event_id"], order_by="seq")
    # nobody can rename: what collides is put aside
    for more in ({}, dict(synthetic="quarantine")):
        [ours, dbt] = compare(events, ["dbt"], **asked, fingerprint_columns=["page"], **more).collect()
        assert (ours.way, ours.kept, ours.lost, dbt.lost, dbt.lost_ids) == ("dedup_nb", 5, 1, 1, ["x/b"])
    with pytest.raises(ConfigError, match="Several columns make the event id .tenant, event_id."):
        compare(events, ["dbt"], synthetic="rename_later", **asked)
    events.write.parquet(f"{tmp_path}/in")
    words = f"compare --input {tmp_path}/in --input-format parquet --event-id tenant,event_id --order-by seq"
    with pytest.raises(SystemExit) as end:
        main(words.split())
    assert end.value.code == 0 and "dedup_nb: with synthetic=quarantine" in capsys.readouterr().out


@pytest.mark.slow
def test_ways_side_by_side_where_the_id_is_a_number(spark, tmp_path, capsys):
    "New ids are texts: what collides is put aside."
    events = spark.createDataFrame([(1, "f", 1), (1, "g", 2), (2, "f", 1), (2, "f", 1)], NUMBERED)
    [ours] = compare(events, ()).collect()
    assert (ours.kept, ours.lost) == (deduplicate(events, synthetic="quarantine").kept.count(), 1)
    with pytest.raises(
        InputError, match="synthetic=rename_later writes UUIDs into event_id, which is bigint"
    ):
        compare(events, (), synthetic="rename_later")
    events.write.parquet(f"{tmp_path}/in")
    with pytest.raises(SystemExit) as end:
        main(f"compare --input {tmp_path}/in --method dbt".split())
    said = "dedup_nb: with synthetic=quarantine, as nobody can rename ids that are no text."
    assert end.value.code == 0 and said in capsys.readouterr().out


@pytest.mark.parametrize(
    "given, error, said",
    [
        (dict(ways=["last_win"]), ConfigError, "Did you mean last_wins?"),
        (dict(ways="dbt, last_win"), ConfigError, "Unknown way last_win;"),
        (dict(order_by="etl_tstmp"), MissingColumnError, "Did you mean etl_tstamp?"),
    ],
)
def test_compare_refuses(spark, given, error, said):
    with pytest.raises(error, match=re.escape(said)):
        compare(spark.createDataFrame(CASES, TIMES), **given)


def test_what_chance_decides_is_said_of_events_with_and_without_etl_tstamp():
    row = dict(way="snowplow", rows=2, kept=2, lost=0, twice=0, arbitrary=1, arbitrary_ids=["e"])
    assert "rows of 1 id get random ids, or no etl_tstamp says which one stays, such as e." in str(
        Comparison([row])
    )


@pytest.mark.slow
def test_the_command_compares_all_batches_of_an_input(spark, tmp_path, capsys):
    events = spark.createDataFrame(CASES, TIMES)
    for number, part in enumerate(("event_id < 'c'", "event_id >= 'c'")):
        events.where(part).write.parquet(f"{tmp_path}/in/run={number}")
    words = ["compare", "--input", f"{tmp_path}/in", "--input-format", "parquet", "--method", "dbt"]
    for more in ([], ["--json"]):
        with pytest.raises(SystemExit) as end:
            main([*words, *more])
        assert end.value.code == 0
    text, _, told = capsys.readouterr().out.rpartition("\n[")
    assert "dbt: loses 2 events, such as b; " in text and "11 rows with an id" in text
    assert [row["lost"] for row in json.loads(f"[{told}")] == [0, 2]

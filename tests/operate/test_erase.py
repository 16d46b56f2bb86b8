"""What is erased is nowhere any more, all else is as it was, and the numbers still add up."""

import json
import os
import shutil
from functools import partial
from pathlib import Path

import pytest
from conftest import ROOT
from emulator import a_table, items
from inputs import parquet
from runs import (
    WITH_COPIES,
    Killed,
    committed,
    die_after,
    files,
    go,
    killed_erasure,
    on_dynamodb,
    record,
    write,
)

from dedup_nb import Config, profile, run
from dedup_nb.base.config import ManifestSettings
from dedup_nb.base.errors import BusyError, ConfigError
from dedup_nb.base.spark import LINE
from dedup_nb.base.storage import read_json, write_text
from dedup_nb.dynamodb.store import DynamoStore
from dedup_nb.dynamodb.table import Table
from dedup_nb.operate.erase import _has_id_in_text, _rewrite_reports, asked_ids, erase
from dedup_nb.operate.history import explain, forget, runs
from dedup_nb.operate.rows import text_has
from dedup_nb.pipeline.job import existing_manifest, memory_of


@pytest.fixture
def loaded(copies_done, tmp_path):
    "Where the output of two batches full of copies is."
    shutil.copytree(copies_done / "out", tmp_path / "out")
    return Config(output=str(tmp_path / "out"))


def everything(output):
    "The text of all files but the manifest, as bytes."
    return {
        name: Path(output, name).read_bytes() for name in files(output) if not name.startswith("manifest")
    }


def rows_listed(spark, output):
    "The rows of all areas that commits list."
    found = {}
    for area in ("events", "dropped", "verdicts"):
        rows = (committed(spark, output, batch, area) for batch in "12")
        found[area] = sorted((r.event_id, r.asDict().get("n")) for f in rows if f for r in f.collect())
    return found


def sums(output):
    for batch in "12":
        for name in ("files", "metrics"):
            c = read_json(f"{output}/runs/{batch}/{name}.json")["counts"]
            assert c["read"] == c["bad"] + c["kept"] + c["dropped"] + c["erased"], (batch, name)
            yield c["erased"]


def assert_only_what_is_listed(output):
    areas = ("events", "dropped", "bad", "verdicts")
    listed = {f["path"] for b in "12" for area in areas for f in record(output, b)[area]}
    assert listed == {n for n in files(output) if "/part-" in n and n.split("/")[0] in areas}


NOTHING = "Nothing was found: no row is of these in 2 batches, dropped and bad rows included."


def listed_in(config, *ids):
    "A file of ids."
    path = Path(config.output).parent / "ids"
    path.write_text("\n".join(ids))
    return str(path)


def test_an_id_goes_with_its_copies_and_new_ids(spark, loaded):
    output = loaded.output
    old = everything(output)
    told = erase(loaded, spark, event_id="a")
    assert "Would remove 2 in events/, 2 in dropped/, 3 in verdicts/ of 2 batches (1, 2)" in str(told)
    assert everything(output) == old
    done = erase(loaded, spark, event_id="a", yes=True)
    assert done.data["rows"] == told.data["rows"] == {"events": 2, "dropped": 2, "verdicts": 3}
    assert rows_listed(spark, output) == {"events": [("b", 2), ("c", 5)], "dropped": [], "verdicts": []}
    assert list(sums(output)) == [2, 2, 2, 2]
    assert_only_what_is_listed(output)
    assert [m["hot_ids"] for m in (read_json(f"{output}/runs/{b}/metrics.json") for b in "12")] == [[], []]
    page = Path(output, "runs/1/report.html").read_text()
    assert "+ 2 erased" in page and "erased on request" in page and ">a<" not in page
    proof = read_json(f"{output}/{done.data['proof']}")
    assert proof["done"] and proof["rows"] == done.data["rows"] and len(proof["ids_sha256"]) == 2
    assert spark.read.json(f"{output}/metrics").where("rows_erased = 2").count() == 2
    # the manifest keeps the pairs; the story and the list of batches say that rows are gone
    story = explain("a", loaded, spark)
    assert story.data["erased"] == [done.data["proof"]] and len(story.data["claims"]) == 3
    assert f"rows of it were erased on request; the proof is {done.data['proof']}" in str(story)
    listed = runs(loaded)
    assert [row[1] for row in listed.rows[1:]] == ["committed, 2 rows erased"] * 2
    for batch, told in zip("12", listed.data):
        assert told["counts"] == read_json(f"{output}/runs/{batch}/files.json")["counts"]
    forget("2", loaded, spark, yes=True)  # it has no counts any more
    assert [row[1] for row in runs(loaded).rows[1:]] == ["committed, 2 rows erased", "forgotten"]


def test_what_is_nowhere_is_said_and_leaves_no_proof(spark, loaded):
    old = everything(loaded.output)
    for more, answer in {(): "", ("forget",): "\nThe manifest had no key of theirs.\nThe proof, "}.items():
        asked = dict(event_id="z", **dict.fromkeys(more, True))
        told, done = erase(loaded, spark, **asked), erase(loaded, spark, **asked, yes=True)
        assert str(told).endswith("Do it with --yes.") == bool(more) and not told.data["done"]
        assert str(done).startswith(
            f"{NOTHING} dedup explain EVENT_ID --output DIR tells what is known of an"
        )
        assert str(done).partition(" an id.")[2].startswith(answer) and done.data["done"]
        assert "vacuum" not in str(done) and "The input still" not in str(done)
        assert (done.data["proof"] is None) == (everything(loaded.output) == old) == (not more)
    erase(loaded, spark, ids=listed_in(loaded, "c"), yes=True)
    again = erase(loaded, spark, event_id="c", yes=True)
    assert f"{NOTHING} Rows of theirs were erased before: runs/erasures/000002.json." == str(again)


def proof_of(output, number=1):
    return read_json(f"{output}/runs/erasures/{number:06d}.json")


LONG = [
    pytest.param(after, marks=pytest.mark.slow)
    for after in ("_rewrite_files", "_rewrite_reports", "_remove_unlisted")
]


@pytest.mark.parametrize("after", ["publish", *LONG])
def test_a_kill_leaves_each_batch_whole_and_the_same_command_finishes(spark, loaded, after):
    killed_erasure(spark, loaded, after, event_id="a")
    for batch in "12":
        assert all(Path(loaded.output, f["path"]).exists() for f in record(loaded.output, batch)["events"])
    erase(loaded, spark, event_id="a", yes=True)
    assert (
        rows_listed(spark, loaded.output)["events"] == [("b", 2), ("c", 5)] and sum(sums(loaded.output)) == 8
    )
    proof = proof_of(loaded.output)
    assert proof["done"] and proof["rows"] == {"events": 2, "dropped": 2, "verdicts": 3}
    assert_only_what_is_listed(loaded.output)


STEPS = [pytest.param(after, marks=pytest.mark.soak) for after in ("_note_request", "_remove_hot_ids")]


@pytest.mark.slow
@pytest.mark.parametrize("after", ["publish", "_rewrite_reports", *STEPS])
def test_a_condition_that_was_killed_takes_the_copies_of_events_that_are_gone(spark, loaded, after):
    """The kept event of batch 1 is gone, and it alone says that a row of batch 2 is a copy of it."""
    killed_erasure(spark, loaded, after, where="n = 1")
    noted = proof_of(loaded.output)
    assert noted["until_done"]["ids"] == ["a"] and noted["until_done"]["where"] == "(n = 1)"
    assert "The next --yes first finishes an erasure that was killed" in str(
        erase(loaded, spark, event_id="b")
    )
    told = erase(loaded, spark, where="n = 1", yes=True)
    assert told.data["rows"] == {"events": 1, "dropped": 2, "verdicts": 2} and told.data["proof"][-6] == "1"
    assert rows_listed(spark, loaded.output) == {
        "events": [(new_of_a(spark, loaded.output), 4), ("b", 2), ("c", 5)],
        "dropped": [],
        "verdicts": [("a", None)],  # of the event that stays, under a new id
    }
    assert sum(sums(loaded.output)) == 6
    assert "until_done" not in proof_of(loaded.output) and len(files(f"{loaded.output}/runs/erasures")) == 1
    assert_only_what_is_listed(loaded.output)


def new_of_a(spark, output):
    renamed = committed(spark, output, "2").where("original_event_id is not null")
    return renamed.first().event_id


@pytest.mark.slow
def test_another_request_finishes_one_that_was_killed(spark, loaded):
    killed_erasure(spark, loaded, "publish", where="n = 1")
    told = erase(loaded, spark, event_id="b", yes=True)
    assert str(told).startswith("Finished an erasure that was killed: runs/erasures/000001.json.")
    assert told.data["rows"] == {"events": 1} and told.data["proof"].endswith("000002.json")
    assert [n for _, n in rows_listed(spark, loaded.output)["events"]] == [4, 5]
    assert rows_listed(spark, loaded.output)["dropped"] == [] and sum(sums(loaded.output)) == 8
    assert not [n for n in (1, 2) if "until_done" in proof_of(loaded.output, n)]


@pytest.mark.slow
@pytest.mark.parametrize("after", ["_note_request", "_rewrite_reports"])
def test_a_request_that_was_killed_takes_what_came_since_into_its_proof(spark, loaded, tmp_path, after):
    killed_erasure(spark, loaded, after, event_id="a")
    noted = {**proof_of(loaded.output), "at": "2026-01-01T10:00:00+00:00"}
    write_text(f"{loaded.output}/runs/erasures/000001.json", json.dumps(noted))
    write(spark, tmp_path / "in", {"3": [("a", "f", 9, 1), ("a", "h", 9, 7), ("d", "f", 9, 8)]})
    go(spark, tmp_path)
    done = erase(loaded, spark, event_id="a", yes=True)
    assert done.data["rows"] == {"events": 3, "dropped": 3, "verdicts": 5} and "3)" in str(done)
    proof = proof_of(loaded.output)
    assert proof["batches"].keys() == {"1", "2", "3"} and proof["renamed"]["3"] == 1
    assert len(proof["ids_sha256"]) == 3 and len(proof["files"]) == len({*proof["files"]})
    counts = [read_json(f"{loaded.output}/runs/{b}/files.json")["counts"] for b in "123"]
    assert [c["erased"] for c in counts] == [2, 2, 2]
    assert [told["counts"] for told in runs(loaded).data] == counts
    assert go(spark, tmp_path, batch_id="3", rerun=True).batches[0]["reasons"] == {"erased": 2}


@pytest.mark.slow
def test_a_run_that_begins_meanwhile_keeps_its_files(spark, loaded, tmp_path, monkeypatch):
    "The erasure ends before it removes what no list names; the next one goes on."
    write(spark, tmp_path / "in", {"3": [("z", "f", 9, 1)]})

    def then_a_run(output):
        _rewrite_reports(output)
        go(spark, tmp_path)

    monkeypatch.setattr("dedup_nb.operate.erase._rewrite_reports", then_a_run)
    with pytest.raises(BusyError, match="A run has begun since this erasure did"):
        erase(loaded, spark, event_id="a", yes=True)
    monkeypatch.undo()
    assert committed(spark, loaded.output, "3").count() == 1
    erase(loaded, spark, event_id="a", yes=True)
    assert rows_listed(spark, loaded.output)["events"] == [("b", 2), ("c", 5)]
    assert committed(spark, loaded.output, "3").count() == 1


def test_of_two_erasures_at_once_one_is_refused(spark, loaded):
    killed_erasure(spark, loaded, "_note_request", event_id="a")
    proof = proof_of(loaded.output)
    proof["until_done"]["by"] |= {"pid": os.getppid(), "started": None}
    Path(loaded.output, "runs/erasures/000001.json").write_text(json.dumps(proof))
    with pytest.raises(BusyError, match=f"Another erasure is at work: process {os.getppid()} on"):
        erase(loaded, spark, event_id="b", yes=True)
    assert ("b", 2) in rows_listed(spark, loaded.output)["events"]


@pytest.mark.slow
def test_ids_leave_the_manifest_where_a_kill_came_before_that(spark, loaded):
    killed_erasure(spark, loaded, "_take_out", event_id="a", forget=True)
    erase(loaded, spark, event_id="b", yes=True)
    assert proof_of(loaded.output, 1)["keys_removed"] == 4 and proof_of(loaded.output, 2)["pairs"] == "kept"


def test_a_condition_takes_events_and_leaves_others_of_their_id(spark, loaded):
    erase(loaded, spark, where="n = 4", yes=True)
    assert rows_listed(spark, loaded.output)["events"] == [("a", 1), ("b", 2), ("c", 5)]
    with pytest.raises(ConfigError, match="columns of events: event_id, event_fingerprint"):
        erase(loaded, spark, where="user_id = 'u'")


@pytest.mark.slow
def test_what_tells_of_dropped_events_goes_with_them_if_no_row_of_their_id_stays(spark, tmp_path):
    ids = dict(event_id=["a", "a", "b", "b", "c", "c", "d", None], user_id=[*"1112111", "a"])
    prints = ["f", "g", "f", "g", "f", "f", "f", "f"]
    parquet(tmp_path / "in/run=1/part.parquet", **ids, event_fingerprint=prints, n=[*range(8)])
    go(spark, tmp_path, synthetic="delete_all", order_by="n")
    output, where = tmp_path / "out", dict(where="user_id = '1' and n < 5")
    hot = {h["event_id"] for h in read_json(f"{output}/runs/1/metrics.json")["hot_ids"]}
    # all of a goes; of b a dropped row stays; a copy of c goes with the kept one
    assert hot == {"a", "b", "c"}
    config = Config(output=str(output))
    rows = erase(config, spark, **where).data["rows"]
    assert rows == {"events": 1, "dropped": 4, "bad": 1, "verdicts": 3}
    killed_erasure(spark, config, "publish", **where)
    assert erase(config, spark, yes=True, **where).data["rows"] == rows
    assert sorted(r.event_id for r in committed(spark, output, "1", "verdicts").collect()) == ["b", "b"]
    assert [h["event_id"] for h in read_json(f"{output}/runs/1/metrics.json")["hot_ids"]] == ["b"]
    assert ">a<" not in (output / "runs/1/report.html").read_text()
    assert erase(config, spark, **where).data["rows"] == {}


@pytest.mark.slow
def test_a_profile_in_the_output_loses_the_id_and_its_page(spark, loaded, tmp_path):
    write(spark, tmp_path / "in", WITH_COPIES)
    profile(Config(input=str(tmp_path / "in"), output=loaded.output), spark)
    path, page = Path(loaded.output, "profile.json"), Path(loaded.output, "profile.html")
    assert "a" in [hot["id"] for hot in read_json(str(path))["hot_ids"]] and page.exists()
    erase(loaded, spark, event_id="a", yes=True)
    assert "a" not in [hot["id"] for hot in read_json(str(path))["hot_ids"]] and not page.exists()
    path.write_text("no JSON")
    erase(loaded, spark, event_id="b", yes=True)
    assert path.read_text() == "no JSON"


def test_bad_rows_go_by_their_text(spark, loaded, tmp_path):
    (tmp_path / "ids").write_text("8\n\n")
    told = erase(loaded, spark, ids=str(tmp_path / "ids"))
    assert told.data["rows"] == {"bad": 1}
    metrics = f"{loaded.output}/runs/1/metrics.json"
    assert sum(read_json(metrics)["bad_reasons"].values()) == 1
    erase(loaded, spark, ids=str(tmp_path / "ids"), yes=True)
    assert read_json(metrics)["bad_reasons"] == {}


# a bad row is JSON, and holds a line, which may be JSON itself; or a line of CSV with a strange delimiter
TEXTS = {
    "user/1": [r'{"id": "user\/1"}', '{"id": "user/1"}'],
    "é1": [r'{"id": "\u00e91"}', '{"id": "É1"}', r'{"id": "\u00C91"}', "7,é1"],
    'a"b': [r'{"id": "a\"b"}'],
    "a<b": [r'{"id": "a\u003cb"}', '{"id": "A<b"}'],
    r"c:\new": [r'{"id": "c:\\new"}', r"c:\new,7"],
    "abc123": ["7\x01abc123\x019", "7\tabc123", '{"id": "ABC123"}', r'{"id": 7, "x": "7\tabc123"}'],
}


def test_an_id_is_found_in_a_bad_row_however_json_has_written_it(spark):
    rows = [json.dumps({"line": line}, ensure_ascii=plain) for lines in TEXTS.values() for line in lines
            for plain in (False, True)]  # fmt: skip
    texts = spark.createDataFrame([(text,) for text in rows], f"{LINE} string").coalesce(1)
    for event_id, lines in TEXTS.items():
        own = {json.dumps({"line": line}, ensure_ascii=plain) for line in lines for plain in (False, True)}
        found = {r[LINE] for r in texts.where(_has_id_in_text([event_id])).collect()}
        assert found == own == {*filter(text_has([event_id]), rows)}
    cut = [json.dumps({"line": line}) for line in ('{"tenant":"t1","id":"é","n":', '{"tenant":"t1","id":"ab')]
    texts = spark.createDataFrame([(text,) for text in cut], f"{LINE} string").coalesce(1)
    for event_id, number in {"t1/é": 1, "t1/ab": 1, "T1/é": 1, "t2/é": 0, "t1/%": 0, "t1/": 0}.items():
        assert texts.where(_has_id_in_text([event_id], 2)).count() == number, event_id


def assert_looked_without_spark(monkeypatch, config, spark, *ids):
    "The same is said whether Spark looks or not."
    asked = dict(ids=listed_in(config, *ids))
    with monkeypatch.context() as without:
        without.setattr("dedup_nb.operate.erase.get_spark", lambda *a, **k: pytest.fail("Spark was asked"))
        found = erase(config, **asked)
    assert found == erase(config, spark, **asked) and found.data["rows"]
    return found.data["rows"]


@pytest.mark.slow
def test_what_would_go_is_said_without_spark(spark, loaded, tmp_path, monkeypatch):
    look = partial(assert_looked_without_spark, monkeypatch)
    assert look(loaded, spark, "a").keys() == {"events", "dropped", "verdicts"}
    assert look(loaded, spark, "8", "n'8") == {"bad": 1}
    write_text(
        f"{tmp_path}/in/b/rows.json", '{"k": 7, "j": 1}\n{"k": 7, "j": 2}\n{"k": "x/7 y", "j": null}\n'
    )
    rows = dict(input=f"{tmp_path}/in", input_format="json", manifest="none", batch_pattern="*")
    for form in ("parquet", "json"):
        one = Config(output=f"{tmp_path}/{form}", output_format=form, event_id="k", **rows)
        run(one, spark)
        assert look(one, spark, "7", "X/7 Y").keys() == {"events", "dropped", "verdicts"}
    named = Config(output=f"{tmp_path}/named", output_format="json", event_id="k", partition_by="k", **rows)
    several = Config(output=f"{tmp_path}/two", event_id=["k", "j"], synthetic="off", **rows)
    for other in (named, several):  # the id is in a folder, or several make it
        run(other, spark)
        with pytest.raises(pytest.fail.Exception, match="Spark was asked"):
            look(other, spark, "7")


def test_ids_of_a_file_are_read_behind_a_mark(tmp_path):
    (tmp_path / "ids").write_bytes("a\r\nb\r\n".encode("utf-8-sig"))
    assert asked_ids(None, str(tmp_path / "ids"), None) == ["a", "b"]
    (tmp_path / "ids").write_bytes("a\r\nb\r\n".encode("utf-16"))
    with pytest.raises(ConfigError, match="wanted ids as UTF-8, one a line"):
        asked_ids(None, str(tmp_path / "ids"), None)


@pytest.mark.slow
def test_a_column_of_an_event_may_be_called_value(spark, tmp_path):
    parquet(tmp_path / "in/run=1/part.parquet", event_id=["a", "a", "b"], value=[1, 2, 3])
    go(spark, tmp_path, missing_fingerprint="surrogate", fingerprint_columns="value")
    asked = Config(output=str(tmp_path / "out"))
    assert erase(asked, spark, where="value > 1", yes=True).data["rows"]["events"] == 2


def erased(spark, output, **asked):
    "What goes from each area."
    config = Config(output=str(output))
    told = erase(config, spark, **asked)
    done = erase(config, spark, yes=True, **asked)
    assert done.data["rows"] == told.data["rows"] and erase(config, spark, **asked).data["rows"] == {}
    return done.data["rows"]


@pytest.mark.slow
def test_batches_may_have_a_column_in_two_types(spark, tmp_path):
    parquet(tmp_path / "in/run=1/part.parquet", event_id=["a", "a", "b"], n=[1, 1, 3])
    parquet(tmp_path / "in/run=2/part.parquet", event_id=["a", "a", "c"], n=["1", "2", "5"])
    go(spark, tmp_path, missing_fingerprint="surrogate", fingerprint_columns="n")
    assert erased(spark, tmp_path / "out", event_id="a") == {"events": 2, "dropped": 2, "verdicts": 3}
    kept = [committed(spark, tmp_path / "out", batch).drop("original_event_id") for batch in "12"]
    assert [tuple(rows.first()) for rows in kept] == [("b", 3), ("c", "5")]


@pytest.mark.slow
@pytest.mark.parametrize("where", ["_more = 'y'", "batch_id = '2' and n = 5"])
def test_a_condition_may_name_what_some_batches_have(spark, tmp_path, where):
    parquet(tmp_path / "in/run=1/part.parquet", event_id=["a", "a", "b"], n=[1, 1, 5])
    parquet(tmp_path / "in/run=2/part.parquet", event_id=["a", "c", "c"], n=[1, 5, 5], _more=["x", "y", "y"])
    go(spark, tmp_path, missing_fingerprint="surrogate", fingerprint_columns="n")
    assert erased(spark, tmp_path / "out", where=where) == {"events": 1, "dropped": 1, "verdicts": 1}


@pytest.mark.slow
@pytest.mark.parametrize("output_format", ["parquet", "json"])
def test_a_part_of_an_id_may_be_in_the_folder(spark, tmp_path, output_format):
    columns = dict(event_id=["a", "a", "b"], day=["007", "007", "8"])
    parquet(tmp_path / "in/run=1/part.parquet", **columns, event_fingerprint=["f", "f", "g"])
    more = dict(output_format=output_format, synthetic="quarantine")
    go(spark, tmp_path, event_id="event_id,day", partition_by="day", **more)
    rows = erased(spark, tmp_path / "out", event_id="a/007")
    assert rows == {"events": 1, "dropped": 1, "verdicts": 1}


@pytest.mark.slow
def test_a_bad_row_is_of_an_id_of_several_columns_if_it_has_all_values(spark, tmp_path):
    lines = '{"t": "t1", "k": "abc", "n": 1}', '{"t":"t1","k":"abc","n":', '{"t":"t1","k":"abd","n":'
    write_text(f"{tmp_path}/in/b/rows.json", "\n".join(lines))
    two = dict(event_id=["t", "k"], synthetic="off", manifest="none", input_format="json")
    run(Config(input=f"{tmp_path}/in", output=f"{tmp_path}/out", batch_pattern="*", **two), spark)
    assert erased(spark, tmp_path / "out", event_id="t1/abc") == {"events": 1, "bad": 1}


@pytest.mark.slow
def test_a_member_of_json_may_have_a_dot_in_its_name(spark, tmp_path):
    columns = {"event.id": ["a", "a", "b"], "event_fingerprint": ["f", "f", "g"], "value": [1, 1, 2]}
    parquet(tmp_path / "in/run=1/part.parquet", **columns)
    go(spark, tmp_path, event_id="event.id", output_format="json")
    assert erased(spark, tmp_path / "out", event_id="a")["events"] == 1
    assert erased(spark, tmp_path / "out", where="value = 2")["events"] == 1


def test_what_cannot_be_done_is_said(spark, loaded, tmp_path):
    for asked in ({}, {"event_id": "a", "where": "n = 1"}):
        with pytest.raises(ConfigError, match="wants one of --id ID, --ids FILE and --where SQL"):
            erase(loaded, spark, **asked)
    with pytest.raises(ConfigError, match="is not there"):
        erase(loaded, spark, ids=str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="--forget takes ids out of a manifest, and this output has none"):
        erase(Config(output=str(tmp_path), manifest="none"), spark, event_id="a", forget=True)
    with pytest.raises(ConfigError, match="Wanted an output with batches"):
        erase(Config(output=str(tmp_path), manifest="none"), spark, event_id="a")
    manifest = existing_manifest(spark, ManifestSettings("lake"), loaded.output)
    manifest.begin("3", None, {"token": "t"})
    with pytest.raises(BusyError, match="Batch 3 is claimed by"):
        erase(loaded, spark, event_id="a", yes=True)


@pytest.fixture
def on_table(spark, dynamodb, tmp_path):
    "The two batches with a manifest on DynamoDB, and its table."
    there = on_dynamodb(dynamodb, "erase")
    write(spark, tmp_path / "in", WITH_COPIES)
    go(spark, tmp_path, **there)
    return Config(output=str(tmp_path / "out")), a_table(dynamodb, there["dynamodb_table"]), there


def answered(spark, output):
    "The ids in the answers of claims."
    folder = spark.read.option("recursiveFileLookup", "true").parquet(f"{output}/manifest/claims")
    return {r.event_id for r in folder.select("event_id").distinct().collect()} - {""}


@pytest.mark.slow
def test_with_forget_items_leave_a_table_and_a_late_copy_is_loaded_again(spark, on_table, tmp_path):
    asked, table, there = on_table
    new = new_of_a(spark, asked.output)
    assert set(items(table)) == {("a", "#"), ("a", "g"), ("b", "#"), ("c", "#"), (new, "#")}
    assert "The manifest keeps their pairs" in str(erase(asked, spark, event_id="a"))
    assert "Their pairs leave the manifest" in str(erase(asked, spark, event_id="a", forget=True))
    assert len(items(table)) == 5 and answered(spark, asked.output) == {"a", "b", "c", new}
    done = erase(asked, spark, event_id="a", forget=True, yes=True)
    assert "3 keys of theirs left the manifest: a copy that comes late is loaded" in str(done)
    assert f"Backups of the table {table.name}" in str(done) and "vacuum" not in str(done)
    assert done.data["keys_removed"] == proof_of(asked.output)["keys_removed"] == 3
    assert set(items(table)) == {("b", "#"), ("c", "#")} and answered(spark, asked.output) == {"b", "c"}
    write(spark, tmp_path / "in", {"3": [("a", "f", 9, 1), ("b", "f", 9, 1)]})
    go(spark, tmp_path, **there)
    assert [(r.event_id, r.n) for r in committed(spark, asked.output, "3").collect()] == [("a", 1)]


@pytest.mark.slow
def test_a_table_keeps_its_items_without_forget_and_a_batch_at_work_refuses(spark, on_table):
    asked, table, _ = on_table
    before = items(table)
    assert "The manifest keeps their pairs" in str(erase(asked, spark, event_id="c", yes=True))
    assert items(table) == before and proof_of(asked.output)["pairs"] == "kept"
    manifest = existing_manifest(spark, memory_of(asked), asked.output)
    manifest.begin("3", 0, {"token": "t"})
    with pytest.raises(BusyError, match="Batch 3 is claimed by"):
        erase(asked, spark, event_id="a", forget=True, yes=True)
    assert items(table) == before


@pytest.mark.slow
@pytest.mark.parametrize("after", ["remove", "_remove_answers"])
def test_a_kill_while_items_leave_a_table_is_made_good_by_the_next(spark, on_table, monkeypatch, after):
    asked, table, _ = on_table
    with monkeypatch.context() as m:
        die_after(m, Table if after == "remove" else DynamoStore, after)
        with pytest.raises(Killed):
            erase(asked, spark, where="n = 1", forget=True, yes=True)
    done = erase(asked, spark, where="n = 1", yes=True)
    assert done.data["proof"].endswith("1.json") and "until_done" not in proof_of(asked.output)
    assert "a" not in answered(spark, asked.output) and not [i for i, _ in items(table) if i == "a"]


@pytest.mark.soak
def test_with_forget_a_late_copy_is_loaded_again(spark, loaded, tmp_path):
    assert (
        erase(loaded, spark, event_id="a", forget=True, yes=True).data["keys_removed"] == 4
    )  # one keeps a alive
    write(spark, tmp_path / "in", {"3": [("a", "f", 9, 1), ("b", "f", 9, 1)]})
    go(spark, tmp_path)
    assert [(r.event_id, r.n) for r in committed(spark, loaded.output, "3").collect()] == [("a", 1)]


FORMATS = ["delta", "json", "enriched_tsv", "shredded", "wide_row"]


@pytest.mark.slow
@pytest.mark.parametrize("output_format", FORMATS)
def test_every_output_format(spark, tmp_path, monkeypatch, output_format):
    more = dict(input=str(ROOT / "data_samples"), output=str(tmp_path / "out"), output_format=output_format)
    asked = Config(**more)
    run(asked, spark)
    rows = spark.read.parquet(f"{tmp_path}/out/verdicts").where(
        "new_event_id is not null and reason = 'synthetic'"
    )
    event_id = rows.orderBy("event_id").first().event_id
    known = [r.new_event_id for r in rows.where(f"event_id = '{event_id}'").collect()]
    if output_format != "delta":
        assert_looked_without_spark(monkeypatch, asked, spark, event_id.upper())
    done = erase(asked, spark, event_id=event_id.upper(), yes=True)
    assert done.data["rows"]["events"] >= 1 + len(known)
    texts = [
        p for p in Path(tmp_path, "out").rglob("*") if p.is_file() and p.suffix in (".txt", ".json", ".html")
    ]
    found = [str(p) for p in texts if any(i in p.read_text() for i in (event_id, *known))]
    assert not [name for name in found if "/manifest/" not in name and "_delta_log" not in name]
    assert erase(asked, spark, event_id=event_id).data["rows"] == {}
    for batch in done.data["batches"]:
        told = record(tmp_path / "out", batch)
        c = told["counts"]
        assert c["read"] == c["bad"] + c["kept"] + c["dropped"] + c["erased"]
        lists = [*Path(tmp_path, f"out/runs/{batch}/copy_manifests").glob("*")]
        urls = [entry["url"] for p in lists for entry in json.loads(p.read_text())["entries"]]
        assert bool(lists) == (output_format == "shredded")
        assert not lists or sorted(urls) == [
            f"file://{tmp_path}/out/{f['path']}" for f in told["events"] if f["bytes"]
        ]


@pytest.mark.soak
def test_a_condition_is_asked_of_lines_of_json(spark, tmp_path):
    write(spark, tmp_path / "in", WITH_COPIES)
    go(spark, tmp_path, output_format="json", manifest="none")
    asked = Config(output=str(tmp_path / "out"), manifest="none")
    assert erase(asked, spark, where="n = 5", yes=True).data["rows"]["events"] == 1
    assert erase(asked, spark, where="n = 5").data["rows"] == {}

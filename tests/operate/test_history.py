"Work by hand: forget, abandon and expire say what they would do first."

import json
from functools import partial
from types import SimpleNamespace

import pytest
from ledgers import RECIPE, Dictionary, begin
from runs import go, manifest_of, shown

from dedup_nb import Config
from dedup_nb.base.config import Limits, epoch_seconds
from dedup_nb.cli import main
from dedup_nb.dynamodb.claims import batch_of
from dedup_nb.manifest.ledger import Entry, Ledger, ManifestError, this_process
from dedup_nb.manifest.protocol import Manifest
from dedup_nb.operate.history import (
    _batch_of_entry,
    _claim_in_words,
    _in_words,
    abandon,
    expire,
    explain,
    forget,
    runs_table,
)
from dedup_nb.rules.cross_batch import Fate


@pytest.mark.parametrize(
    "pid, said", [(2**22 + 1, True), (this_process()["pid"], False)], ids=["dead", "lives"]
)
def test_a_claim_whose_process_is_dead_is_listed_as_such(pid, said):
    claim = Entry("1", "claimed", 1, 0, {**this_process(), "pid": pid, "token": "t"})
    told = runs_table([_batch_of_entry(claim)])
    assert ("(not running any more: start it again, which takes it over)" in str(told)) == said


@pytest.mark.slow
def test_forget_abandon_and_expire_say_what_they_would_do_first(spark, two, capsys):
    def said(*words):
        with pytest.raises(SystemExit) as end:
            main([*words, "--output", str(two / "out")])
        return end.value.code, "".join(capsys.readouterr())

    code, text = said("forget", "1")
    assert (
        code == 0
        and "Would take the pairs of batch 1 out" in text
        and "Batches that dropped rows in its favour: 2;" in text
    )
    for words, expected in {
        ("abandon", "1", "--yes"): "Batch 1 is committed: there is no open claim to abandon",
        ("forget", "11", "--yes"): "has no batch 11",
    }.items():
        code, text = said(*words)
        assert code != 0 and expected in text
    code, text = said("expire")
    assert code == 0 and "Would remove the keys of 0 batches" in text
    manifest = manifest_of(spark, two)
    manifest.begin("3", next(iter(manifest.ledger().times().values())), {"token": "t"})
    code, text = said("forget", "1", "--yes")
    assert code == 4 and "Batch 3 is claimed by process" in text and "dedup abandon 3" in text
    assert said("abandon", "3", "--yes")[0] == said("forget", "1", "--yes")[0] == 0
    code, text = said("runs", "--json")
    assert {r["batch_id"]: r["state"] for r in json.loads(text)} == {
        "1": "forgotten",
        "2": "committed",
        "3": "abandoned",
    }
    # loaded again: its own event must not fall for the key of it that batch 2 kept alive
    assert go(spark, two).counts["kept"] == 2 and shown(spark, two / "out", "1") == [
        ("b", 2),
        ("new of a", 1),
    ]


def test_a_claim_of_snowplows_is_told_by_the_time_of_its_batch():
    batch = batch_of({"etlTime": epoch_seconds("2026-11-20T10:00:00Z")})
    held = dict(batch_id=batch, fate=Fate.STAYS, only_id=False, keeps_alive_of=None, open=False)
    [claim] = _in_words([held], Ledger([]))
    told = "  manifest: batch snowplow-2026-11-20T10:00:00Z claimed a pair under its own id"
    assert _claim_in_words(claim) == told
    entry = Entry("1", "committed", 1, 0, {}, {"token": "t", "pid": 7, "host": "h"})
    ledger = SimpleNamespace(entries={"1": entry})
    [claim] = _in_words([{**held, "batch_id": "1"}], ledger)
    assert _claim_in_words(claim).endswith(" under its own id (attempt t, process 7 on h)")


@pytest.mark.slow
def test_a_story_is_told_without_spark_as_with_it(spark, two, monkeypatch):
    config = Config(output=str(two / "out"))
    told = {event_id: explain(event_id, config, spark) for event_id in ("a", "b", "nobody")}
    monkeypatch.setattr("dedup_nb.operate.history.get_spark", lambda *_, **__: pytest.fail("Spark was asked"))
    for event_id, by_spark in told.items():
        quick = explain(event_id, config)
        assert str(quick) == str(by_spark) and quick.data == by_spark.data
        json.dumps(quick.data)
    assert "its rows, what differs first" in str(told["a"])


def test_a_story_is_told_beside_a_run_that_writes(two):
    half = two / "out/verdicts/batch_id=3/token/_temporary/0/part-0.parquet"
    half.parent.mkdir(parents=True)
    half.touch()
    assert "its rows" in str(explain("a", Config(output=str(two / "out"))))


def test_what_a_command_would_do_is_said_without_spark_as_with_it(spark, two, monkeypatch):
    config = Config(output=str(two / "out"))
    manifest = manifest_of(spark, two)
    manifest.begin("3", next(iter(manifest.ledger().times().values())), {"token": "t"})
    would = [partial(forget, "1"), partial(forget, "nobody"), partial(abandon, "3"), partial(abandon, "1")]
    would.append(partial(expire, audit_days=0))

    def said_by(one, *session):
        try:
            answer = one(config, *session)
        except ManifestError as wrong:
            return str(wrong)
        return str(answer), answer.data

    told = [said_by(one, spark) for one in would]
    asked = []
    monkeypatch.setattr("dedup_nb.operate.history.get_spark", lambda *_, **__: asked.append(1) or spark)
    assert [said_by(one) for one in would] == told and not asked
    assert "Would take the pairs of batch 1 out" in told[0][0] and "has no batch nobody" in told[1]
    # a table that the other reader cannot read is for Spark, and so is whatever changes it
    monkeypatch.setattr("dedup_nb.manifest.lake.read_markers", lambda path: None)
    assert [said_by(one) for one in would] == told and len(asked) == len(would)
    assert abandon("3", config, yes=True).data["done"] and len(asked) == len(would) + 1


def test_what_a_claim_is_not_ended_for_is_said_before_that(monkeypatch):
    store = Dictionary()
    store.exclusive = False
    manifest = Manifest(store, RECIPE, Limits(), False, print)
    monkeypatch.setattr("dedup_nb.operate.history._open_manifest", lambda *_: manifest)
    begin(manifest, "one", token="t1")
    assert str(abandon("one", Config())).endswith("commit any more. Do it with --yes.")
    manifest.commit(begin(manifest, "two", token="t2"), {"a"}, {"counts": {}, "dropped_for": {"one": 1}})
    would = abandon("one", Config())
    assert "Batches that dropped rows in its favour: two;" in str(would) and would.data["yielded"] == ["two"]
    assert str(would).endswith("Do it with --yes --force.")
    with pytest.raises(ManifestError, match="two dropped rows in its favour.*--force"):
        abandon("one", Config(), yes=True)
    assert abandon("one", Config(), yes=True, force=True).data["yielded"] == ["two"]

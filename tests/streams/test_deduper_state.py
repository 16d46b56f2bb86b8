"The state of a deduper: what it remembers of batches, and whose it is."

from dataclasses import replace

import pytest
from deduper_model import FEW, SCHEMA, commit_marker, deduper_of
from pyspark.sql import functions as F

from dedup_nb.base.errors import BusyError, InputError
from dedup_nb.manifest.lake import LakeStore, read_markers
from dedup_nb.manifest.ledger import Marker, RecipeError, this_process
from dedup_nb.manifest.protocol import Manifest
from dedup_nb.rules.cross_batch import KEY, id_key
from dedup_nb.streams import deduper
from dedup_nb.streams.deduper import OUTCOMES, Deduper
from dedup_nb.streams.deduper_state import DedupState, commit_batch, find_known, read_earlier


@pytest.mark.slow
def test_a_state_reads_its_markers_once(spark, tmp_path, monkeypatch):
    rows, reads = spark.createDataFrame([(1, "a", 5)], SCHEMA), []
    monkeypatch.setattr(
        "dedup_nb.manifest.lake.read_markers", lambda path: reads.append(path) or read_markers(path)
    )
    for batch in ("b1", "b2"):
        reads.clear()
        Deduper(key="key").split(rows, DedupState(str(tmp_path / "state"), spark), batch).commit()
    assert len(reads) == 1


def test_a_state_is_empty_before_its_first_commit(spark, tmp_path):
    state = DedupState(str(tmp_path / "state"), spark)
    assert (state.read().collect(), state.compact(), state.purge()) == ([], None, [])
    Deduper(key="key").split(spark.createDataFrame([(1, "a", 5)], SCHEMA), state, "b1").commit()
    assert state.read().schema == DedupState(str(tmp_path / "none"), spark).read().schema


def test_a_state_is_safe_from_two_hosts_where_a_manifest_is(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "dedup_nb.manifest.lake.places_of_manifest", lambda folder, log_store: f"puts of {folder}"
    )
    path = str(tmp_path / "state")
    assert DedupState(path, spark)._store.puts == f"puts of {path}"


@pytest.mark.slow
def test_a_batch_that_was_given_up_is_committed_with_its_new_time(spark, tmp_path, monkeypatch):
    "What failed blocks nobody; what another host has at work is named, and is taken over by its own stream."
    state, told, second = DedupState(str(tmp_path / "state"), spark), {"key": ["id"]}, 10**6
    keys = spark.sql("select 'a' as id, bigint(1000000000) as time").select(*id_key(F.col("id")), "time")

    def commit(batch_id, latest, keys=keys, **info):
        commit_batch(read_earlier(state, batch_id, told), keys, latest * second, info, days=1)

    with pytest.raises(Exception, match="the disk is full"):
        commit("b1", 10, keys.withColumn("time", F.raise_error(F.lit("the disk is full")).cast("bigint")))
    commit("b1", 1000)
    ids = keys.select(*KEY)
    seen = find_known(read_earlier(state, "b2", told), ids, 1005 * second, 60 * second)
    assert [(r.batch_id, r.time) for r in seen.collect()] == [("b1", 1000 * second)]
    with monkeypatch.context() as elsewhere:
        far = {**this_process(), "host": "far"}
        elsewhere.setattr("dedup_nb.manifest.protocol.this_process", lambda: far)
        Manifest(LakeStore(spark, state.path), state._ledger().recipe).begin(
            "b2", None, {"token": "t", "stream": "mine"}
        )
    with pytest.raises(BusyError, match="Batch b2 is being committed to .* on far .* split batch b3 again"):
        commit("b3", 1010)
    commit("b2", 1010, stream="mine")
    assert state.summary()["batches"] == 2


def test_settings_that_differ_are_named_as_they_are_given(spark, tmp_path, monkeypatch):
    asked = dict(key="key", event_time="time", expire_before=10, bucket_span=5, reference_instant=0)
    recipe = Marker(0, "recipe", "", {"deduper": deduper._recipe_of(Deduper(**asked))})
    monkeypatch.setattr("dedup_nb.manifest.lake.LakeStore.markers", lambda self: [recipe, commit_marker(0)])
    rows, state = spark.createDataFrame([(1, "a", 5)], SCHEMA), DedupState(str(tmp_path / "state"), spark)
    words = "scope was horizon, is now bucket; profile was -, is now apex"
    with pytest.raises(RecipeError, match=words):
        Deduper(**asked, profile="apex").split(rows, state, "b1")
    with pytest.raises(RecipeError, match="expiry was bucket, is now exact"):
        Deduper(**asked, expiry="exact").split(rows, state, "b1")


@pytest.mark.slow
def test_a_name_stands_for_the_rows_of_one_batch(spark, tmp_path):
    "An empty first batch binds nothing; other rows under a name that is committed are refused."
    deduper, path = deduper_of({**FEW[0][0], "reference": 0}), str(tmp_path / "state")
    deduper = replace(deduper, reference_instant=None)
    frames = [spark.createDataFrame([row] * 2, SCHEMA) for row in ((1, "a", 7), (2, "a", 7))]
    frames = [frames[0].limit(0), *frames]
    empty = deduper.split(frames[0], state=DedupState(path, spark), batch_id="b0")
    empty.commit()
    assert empty.metrics == {**dict.fromkeys(OUTCOMES, 0), "latest_point": None, "expiry_point": None}
    first = deduper.split(frames[1], state=DedupState(path, spark), batch_id="b1")
    first.commit()
    first.commit()
    assert first.tagged.first().bucket == deduper.split(frames[1]).tagged.first().bucket
    assert DedupState(path, spark).summary()["batches"] == 2
    with pytest.raises(InputError, match="b1 is committed with 2 rows, and these 2 are not the same"):
        deduper.split(frames[2], state=DedupState(path, spark), batch_id="b1")

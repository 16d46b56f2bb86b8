"Proofs of erasures: which batches they are about, and the pairs that stay out for them."

import json

import pytest
from pyspark.sql import functions as F
from worlds import new_id

from dedup_nb.base.storage import write_text
from dedup_nb.manifest.ledger import Ledger
from dedup_nb.pipeline.erased import erasures, find_erased, mark_erased, sha256_of, without_forgotten
from dedup_nb.rules.cross_batch import id_key

DECISIONS = """event_id string, _dd_fp string, name string, ordinal int, own string, verdict string,
               reason string, new_event_id string, stays boolean, kept_event_id string,
               kept_in_batch string"""
DECIDED = [
    ("a", "f", "f", 0, None, None, None, None, True, "a", "1"),
    ("b", "f", "f", 0, None, "keep_first", "synthetic", None, True, "b", "1"),
    ("b", "g", "g", 0, None, "rename", "synthetic", new_id("b", "g"), True, new_id("b", "g"), "1"),
]
PROOF = {"at": "2026-11-21T10:00:00Z", "batches": ["1"], "by": "id", "pairs": "kept", "made_sha256": []}


@pytest.fixture
def output(tmp_path):
    "An output from which a was erased by its id, and one event of b by a condition."
    for n, (event_id, by) in enumerate([("a", "id"), ("b", "where")], 1):
        proof = {**PROOF, "by": by, "ids_sha256": [sha256_of(event_id)]}
        write_text(f"{tmp_path}/runs/erasures/{n:06}.json", json.dumps(proof))
    return str(tmp_path)


def test_a_proof_is_about_its_batches_and_their_late_files(spark, output):
    assert [proof["by"] for proof in erasures(output)] == ["id", "where"]
    assert (
        find_erased(spark, output, "2", Ledger) is None and find_erased(spark, "/none", "1", Ledger) is None
    )
    found = {(r.sha256, r.whole, r.forgotten) for r in find_erased(spark, output, "1~1", Ledger).collect()}
    assert found == {(sha256_of("a"), True, False), (sha256_of("b"), False, False)}


def test_erased_pairs_go_and_others_of_the_id_stay_where_a_condition_took_one(spark, output):
    decisions = spark.createDataFrame(DECIDED, DECISIONS).coalesce(1)
    marked = mark_erased(decisions, find_erased(spark, output, "1", Ledger))
    assert marked.columns == decisions.columns
    found = sorted((r.event_id, r._dd_fp, r.reason, r.stays, r.kept_event_id) for r in marked.collect())
    assert found == [
        ("a", "f", "erased", False, None),
        ("b", "f", "erased", False, None),
        ("b", "g", "synthetic", True, new_id("b", "g")),
    ]


def test_ids_that_left_the_manifest_do_not_come_back(spark):
    rows = spark.createDataFrame([("a", True), ("b", False)], "event_id string, forgotten boolean")
    ids = rows.coalesce(1).select("event_id", *id_key(F.col("event_id")), "forgotten")
    assert [r.event_id for r in without_forgotten(ids, ids).collect()] == ["b"]

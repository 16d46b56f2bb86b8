"""What must hold for every frame: nothing is lost, nothing depends on the cluster, the reference agrees.

Ids are independent of each other, so many small worlds lie side by side in one frame.
"""

import random
from collections import Counter

import pytest
import reference
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F
from spread import SMALL, configured
from worlds import (
    COLUMNS,
    FRAMES,
    JSON,
    STRATEGIES,
    WIDE,
    T,
    assert_agrees,
    came_again,
    crowded,
    deduplicated,
    frame_of_texts,
    outcome_of,
    rows_expected,
    text_of,
)

from dedup_nb.base.config import Recipe
from dedup_nb.rules.cross_batch import KEY, id_key, pair_key, to_remember
from dedup_nb.rules.deduplicate import decide, kept_rows, with_decisions
from dedup_nb.rules.keys import fit, with_ids, with_keys
from dedup_nb.rules.natural import distinct_with_counts

POLICIES = ["surrogate", "unique", "id"]

ZONES = ["America/New_York", "Asia/Kolkata", "UTC"]


def law(examples):
    "No shrinking: each try is a few Spark jobs, and a failure names the ids that differ."
    return settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


# --- worlds ------------------------------------------------------------------------------------------------


def shuffled(rows, seed):
    return random.Random(seed).sample(rows, len(rows))


event = st.builds(
    lambda *values: dict(zip(COLUMNS, values)),
    st.sampled_from([*"abcdefgh", None, ""]),
    st.sampled_from(["f", "g", None, "", "="]),
    st.sampled_from([T[0], T[1], None]),
    st.sampled_from([T[0], T[1], None]),
    st.sampled_from(["x", "y", None, ""]),
)
small = st.lists(event, min_size=10, max_size=30)


def side_by_side(drawn):
    "Small worlds in one frame, on top of a fixed one: the simplest draw is not an empty example."
    rows = crowded(1, 60)
    for i, world in enumerate(drawn):
        rows += [r | {"event_id": r["event_id"] and f"{i}{r['event_id']}"} for r in world * 2]
    return rows


worlds = st.lists(small, min_size=3, max_size=8).map(side_by_side)
choices = st.fixed_dictionaries(
    {},
    optional={
        "synthetic": st.sampled_from(STRATEGIES),
        "missing_fingerprint": st.sampled_from(POLICIES),
        "compat": st.sampled_from(["none", "snowplow"]),
        "batch_id": st.just("b1"),
    },
)
# the simplest draw comes first: far from UTC, forgiving casts, several partitions
sessions = st.fixed_dictionaries(
    {
        "spark.sql.session.timeZone": st.sampled_from(ZONES),
        "spark.sql.ansi.enabled": st.sampled_from(["false", "true"]),
    }
)


# --- any frame, any settings, any session ------------------------------------------------------------------


def any_frame_agrees(spark, rows, again, chosen, session, seed, partitions):
    columns = WIDE if again else COLUMNS
    rows = shuffled(came_again(rows, seed) if again else rows, seed)
    with configured(spark, session):
        found = deduplicated(spark, rows, columns, partitions=partitions, **chosen)
    assert_agrees(found, rows_expected(rows, columns, **chosen), rows)


any_frame = given(
    rows=worlds,
    again=st.sampled_from([True, False]),
    chosen=choices,
    session=sessions,
    seed=st.integers(0, 99),
    partitions=st.sampled_from([2, 3, 1]),
)


@law(2)
@any_frame
def test_any_frame_under_any_settings_in_any_session_agrees_with_the_reference(spark, **drawn):
    any_frame_agrees(spark, **drawn)


@pytest.mark.slow
@law(5)
@any_frame
def test_many_frames_agree_with_the_reference(spark, **drawn):
    any_frame_agrees(spark, **drawn)


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [5, 50])
@pytest.mark.parametrize("policy", POLICIES)
def test_partitions_and_row_order_do_not_matter(spark, policy, partitions):
    rows = crowded(partitions)
    found = deduplicated(spark, shuffled(rows, 1), partitions=partitions, missing_fingerprint=policy)
    assert_agrees(found, rows_expected(rows, missing_fingerprint=policy), rows)


# --- what was kept, again ----------------------------------------------------------------------------------


KEPT_AGAIN = [
    dict(),
    dict(compat="snowplow"),
    dict(synthetic="quarantine", missing_fingerprint="unique"),
    dict(synthetic="rename_all", missing_fingerprint="id"),
    dict(synthetic="off"),
]


@pytest.mark.slow
@pytest.mark.parametrize("chosen", KEPT_AGAIN, ids=lambda chosen: "-".join(chosen.values()) or "defaults")
def test_kept_of_kept_is_kept_under_the_same_ids_and_nothing_is_dropped(spark, chosen):
    rows = crowded(30, 150)
    # no ties: those are decided by the row itself, which changes when it is renamed
    rows = [row | {"collector_tstamp": f"2026-11-20T00:00:00.{i:06}Z"} for i, row in enumerate(rows)]
    kept = outcome_of(rows, **chosen).kept
    found = deduplicated(spark, shuffled(kept, 2), WIDE, **chosen)
    assert not found["dropped"] and not found["bad"]
    assert_agrees(found, rows_expected(kept, WIDE, **chosen), kept)
    assert found["kept"] == Counter(map(text_of, kept))


# --- any cut gives the same events -------------------------------------------------------------------------


def cut_into_batches(rows, pick, parts):
    "The rows of each id along the total order, cut at any places into `parts` batches."
    by_id, batches = {}, [[] for _ in range(parts)]
    for row in rows:
        by_id.setdefault(row["event_id"], []).append(row)
    for own in by_id.values():
        ends = sorted(pick.randint(0, len(own)) for _ in range(parts - 1))
        for batch, start, end in zip(batches, [0, *ends], [*ends, len(own)]):
            batch += own[start:end]
    return batches


def kept_of_batches(spark, batches, strategy):
    "The kept rows of batches that see each other's keys as a manifest would give them."
    keys, found = fit(Recipe(synthetic=strategy), COLUMNS), Counter()
    key = "hi bigint, lo bigint, packed boolean, pair bigint"
    ddl, memory = f"{key}, fate int, batch_id string, seq bigint, of_id boolean", []
    event_id = F.col("_dd_id")
    for seq, rows in enumerate(batches):
        suspects = distinct_with_counts(with_keys(with_ids(frame_of_texts(spark, rows), keys), keys)).cache()
        known = spark.createDataFrame(memory, ddl)
        decisions = decide(suspects, strategy, batch_id=str(seq), known=known).cache()
        kept = kept_rows(with_decisions(suspects, decisions), COLUMNS, keys.id)
        found += Counter(r[0] for r in kept.select(F.to_json(F.struct("*"), JSON)).collect())
        pairs = suspects.select(*id_key(event_id), pair_key(event_id, F.col("_dd_fp"))).distinct()
        for r in to_remember(pairs, decisions, known).collect():
            memory.append((*(r[c] for c in KEY), r.pair, r.fate, r.origin or str(seq), seq, True))
    spark.catalog.clearCache()
    return found


@pytest.mark.parametrize(
    "strategy, seed, parts",
    [
        ("rename_later", 1, 2),
        *(
            pytest.param(strategy, seed, parts, marks=pytest.mark.slow)
            for strategy in ("rename_later", "quarantine")
            for seed in range(2)
            for parts in (3, 5)
        ),
    ],
)
def test_any_cut_along_the_total_order_keeps_the_same_events_with_the_same_ids(spark, strategy, seed, parts):
    row_hash = lambda row: reference.sha256_of(row, COLUMNS)  # noqa: E731
    order = ("etl_tstamp", "collector_tstamp")
    rows = [r for r in crowded(seed, 150) if r["event_id"]]
    rows.sort(key=lambda row: reference.place_of(row, order, row_hash))
    expected = rows_expected(rows, synthetic=strategy)["kept"]
    with configured(spark, SMALL):
        found = kept_of_batches(spark, cut_into_batches(rows, random.Random(seed), parts), strategy)
    assert_agrees({"kept": found} | NOTHING, {"kept": expected} | NOTHING, rows)


NOTHING = {name: Counter() for name in FRAMES[1:]}

"""Merge engines against a reference in plain Python, on generated inserts that are merged here and there."""

import random
from collections import Counter
from itertools import compress

import pytest
from merge_cases import CASES, KINDS, SCHEMA, generate, shown

from dedup_nb.merges.engines import final, merge

NEVER = 9


def merged_here_and_there(spark, pick, kind, rows):
    "Insert by insert; after each, those of some cases are merged that follow one another."
    stored = []
    for turn in range(5):
        stored += [row for row in rows if row["turn"] == turn]
        # what is left over of a version depends on what came first
        some_turn = 0 if kind == "versioned" else pick.randint(0, turn)
        since = {case: pick.choice([NEVER, 0, some_turn]) for case in range(CASES)}
        taken = [row["turn"] >= since[row["case"]] for row in stored]
        some = merge(frame_of(spark, compress(stored, taken)), KINDS[kind])
        stored = [row for row, goes in zip(stored, taken) if not goes]
        stored += [row.asDict() for row in some.collect()]
    return stored


def frame_of(spark, rows):
    return spark.createDataFrame([tuple(row.values()) for row in rows], SCHEMA)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_merged_here_and_there_is_shown_as_the_reference_does(spark, kind):
    pick = random.Random(f"merge cases of {kind}")
    rows = [row for case in range(CASES) for row in generate(pick, kind, case)]
    of_key = {}
    for row in rows:
        of_key.setdefault((row["case"], row["key"]), []).append(row)
    wanted = Counter(tuple(row.values()) for group in of_key.values() for row in shown(kind, group))
    for stored in (rows, merged_here_and_there(spark, pick, kind, rows)):
        found = final(frame_of(spark, stored), KINDS[kind]).collect()
        assert Counter(map(tuple, found)) == wanted

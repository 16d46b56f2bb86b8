"""Generated logs whose rows come late: a table says the same whether it was optimized in between or not."""

import random
from collections import Counter
from itertools import groupby

import pytest
from pyspark.sql import functions as F

from dedup_nb.merges.change_log import Coalescing, Collapsing, Latest, Replacing, VersionedCollapsing
from dedup_nb.merges.engines import BLOCK, final
from dedup_nb.merges.merge_table import MergeTable, _drop_tombstones, _keep_first, _merge_partitions

CASES, TURNS = 40, 3
COLUMNS = ["case", "k", "p", "seq", "ver", "gone", "sign", "val", BLOCK]
SCHEMA = f"case int, k double, p int, seq int, ver int, gone int, sign int, val string, {BLOCK} long"
WHOLE, APART = ["case", "k", "p"], ["case", "k"]  # keys; p is the partition


def is_accepted(log):
    "Do signs follow each other in turn, where at each turn what is before the last state goes?"
    for p in (1, 2):
        since = 0
        for turn in range(TURNS):
            there = [n for n, row in enumerate(log) if row["p"] == p and row["turn"] <= turn]
            kept = [n for n in there if n >= since or log[n]["turn"] == turn]
            signs = [log[n]["sign"] for n in kept]
            if signs != [1, -1] * (len(signs) // 2) + [1] * (len(signs) % 2):
                return False
            since = max((n for n in kept if log[n]["sign"] == 1), default=0)
    return True


def signs_that_come_late(pick):
    "A log into which pairs come at any place, well formed at each turn."
    log = [{"turn": 0, "p": 1, "sign": 1}] * pick.randint(0, 1)
    turns = sorted(pick.choices(range(TURNS), k=4))
    for turn in turns:
        at, p = pick.randint(0, len(log)), pick.choice([1, 1, 2])
        first = -log[at - 1]["sign"] if at else 1
        log[at:at] = [{"turn": turn, "p": p, "sign": sign} for sign in (first, -first)]
    return log if is_accepted(log) else signs_that_come_late(pick)


def generate(pick, case, spec):
    "The rows of a case."
    if isinstance(spec, Collapsing):
        log = signs_that_come_late(pick)
    else:
        log = [{"turn": pick.randrange(TURNS), "p": pick.randint(1, 2)} for _ in range(pick.randint(1, 6))]
    for seq, row in enumerate(log):
        several = not isinstance(spec, Collapsing)
        own = {"case": case, "seq": pick.randrange(4) if several else seq, "ver": pick.randrange(4)}
        own |= {"gone": int(pick.random() < 0.4), "val": pick.choice([None, "a", "b"])}
        key = pick.choice([0.0, -0.0, None] if several else [0.0, -0.0])
        yield {"k": key, "sign": pick.choice([1, -1]), BLOCK: row["turn"] + 1, **own, **row}


def frame_of(spark, rows):
    return spark.createDataFrame([tuple(row[c] for c in COLUMNS) for row in rows], SCHEMA)


def optimized(table, rows, by, horizon):
    "What an optimize leaves."
    kept = _merge_partitions(table, rows, force=False)
    if by:
        kept = _keep_first(table, kept, by, force=False)
    if horizon:
        is_old = (F.col("gone") == 1) & (F.col("ver") < horizon)
        kept = _drop_tombstones(table, kept, rows, is_old)
    return [row.asDict() for row in kept.collect()]


def said(spark, table, stored, untouched, names):
    "What these rows say, and those; all in one query."
    those = [row | {"case": row["case"] + CASES} for row in untouched]
    found = final(frame_of(spark, stored + those), table.ordered).select(*names).collect()
    one = Counter(tuple(row) for row in found if row.case < CASES)
    return one, Counter((row.case - CASES, *row[1:]) for row in found if row.case >= CASES)


VERSIONS = ["case", "k", "p", "ver", "sign"]  # of what is left over of a version only the number stays
ACCEPTED = {
    "versions": (Replacing(APART, "ver", "gone", "seq"), True, None),
    "no order": (Replacing(WHOLE), COLUMNS[:-1], None),
    "cleanup": (Replacing(APART, "ver", "gone"), False, 3),
    "content": (Replacing(APART, "ver", ties="content"), True, None),
    "latest": (Latest(APART, "seq"), True, None),
    "first": (Latest(APART, "seq", "first"), False, None),
    "coalesced": (Coalescing(WHOLE), True, None),
    "signs": (Collapsing(APART, "sign", "seq"), [*WHOLE, "sign"], None),
    "versions of signs": (VersionedCollapsing(WHOLE, "sign", "ver", "seq"), False, None),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ACCEPTED)
def test_a_table_says_the_same_whether_it_was_optimized_or_not(spark, tmp_path, kind):
    spec, by, horizon = ACCEPTED[kind]
    table = MergeTable(str(tmp_path / "t"), spec, "p", spark=spark)
    pick = random.Random(f"optimized again: {kind}")
    rows = [row for case in range(CASES) for row in generate(pick, case, spec)]
    rows = [row for row in rows if not horizon or row["turn"] == 0 or row["ver"] >= horizon]
    names = VERSIONS if isinstance(spec, VersionedCollapsing) else COLUMNS[:-1]
    stored = []
    for turn, added in groupby(sorted(rows, key=lambda row: row["turn"]), lambda row: row["turn"]):
        stored = optimized(table, frame_of(spark, stored + list(added)), by, horizon)
        untouched = [row for row in rows if row["turn"] <= turn]
        one, other = said(spark, table, stored, untouched, names)
        assert one == other and len(one) > 5
    assert len(stored) < len(rows)

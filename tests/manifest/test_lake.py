"""The lake manifest as a table: what the rules of `test_protocol` stand on, strange tables."""

import os
import random
import re
import subprocess
import sys
import uuid
from hashlib import sha256

import pytest
from ledgers import RECIPE, states_of
from pyspark.sql import functions as F
from runs import config

from dedup_nb.manifest.lake import LakeStore, read_markers
from dedup_nb.manifest.ledger import FORMAT, ManifestError, Marker
from dedup_nb.manifest.lock import LockFiles
from dedup_nb.manifest.protocol import Manifest
from dedup_nb.manifest.table import append_once
from dedup_nb.operate.history import forget
from dedup_nb.rules.cross_batch import Fate, id_key, pair_key

DAY = 86400
T = 20_777 * DAY  # 2026-11-20
FIRST = Fate.STAYS | Fate.HEAD


def keys(spark, *rows):
    "Keys (id, fingerprint, fate, and of whose pair that is kept alive: batch and sequence)."
    schema = "id string, fp string, fate int, origin string, origin_seq bigint"
    whole = [(i, p, int(fate), *(more or (None, None))) for i, p, fate, *more in rows]
    frame = spark.createDataFrame(whole, schema)
    pair = pair_key(F.col("id"), F.col("fp"))
    return frame.select(
        *id_key(F.col("id")), pair, "fate", "origin", "origin_seq", F.col("id").alias("event_id")
    )


@pytest.fixture
def open_folder(spark, tmp_path):
    "Open the manifest of this test in a folder, again and again, as separate runs would."
    return lambda: Manifest(LakeStore(spark, str(tmp_path / "manifest")), RECIPE)


@pytest.fixture
def name(spark):
    "A table of the catalog, for this test."
    spark.sql("create schema if not exists manifests")
    yield (found := f"manifests.m{uuid.uuid4().hex}")
    spark.sql(f"drop table if exists {found}")


@pytest.fixture
def open_near(spark, tmp_path):
    "The same, where few rows are written and found without Spark."
    path = str(tmp_path / "manifest")
    return lambda: Manifest(LakeStore(spark, path, puts=LockFiles(path)), RECIPE)


@pytest.fixture(params=["folder", "near", "table"])
def open_lake(spark, request):
    "The same, in a folder, by Spark and near, and in a table of the catalog."
    if request.param != "table":
        return request.getfixturevalue(f"open_{request.param}")
    name = request.getfixturevalue("name")
    return lambda: Manifest(LakeStore(spark, name), RECIPE)


def commit_rows(manifest, batch, etl, *rows, **more):
    claim = manifest.begin(batch, etl, {"token": f"of {batch}"}, **more)
    manifest.commit(claim, keys(manifest.store.spark, *rows), {"pairs": len(rows)})
    return claim


def known_fates(manifest, etl, *ids):
    "What a batch of this time would find of these ids."
    asked = keys(manifest.store.spark, *((i, None, 0) for i in ids))
    found = manifest.known(manifest.look("another", etl, {"token": "t"}), asked).keys.collect()
    return sorted((r.batch_id, r.fate) for r in found)


def stored(manifest):
    "The batches of the keys in the table, one for each."
    return sorted(r.batch_id for r in manifest.store.table().where("kind = 'key'").collect())


TWIN = str(uuid.UUID(sha256(b"order 7").hexdigest()[:32]))  # a UUID of the same bits as the id `order 7`
ODD = "a=b+c@d,e.f~1"


@pytest.mark.slow
def test_the_story_of_three_batches(open_lake, spark, tmp_path, monkeypatch):
    m, other = open_lake(), open_lake()
    commit_rows(m, ODD, T, ("order 7", "f", FIRST), ("a'\\%ü", "f", FIRST))
    claim = m.begin("two", T + 9 * DAY, {"token": "t"})
    # another run is late at this place
    taken = Marker(claim.seq, "claim", "three", {"token": "u", "etl": T})
    assert not other.store.append(taken) and states_of(other) == {ODD: "committed", "two": "claimed"}
    alive = ("order 7", "f", FIRST, ODD, 1)
    m.commit(claim, keys(spark, ("order 7", "g", Fate.RENAMED), alive), {"pairs": 1})

    # ids match as they are; what a later batch keeps alive lives as long as that one
    assert known_fates(m, T + 10 * DAY, TWIN, "ORDER 7", "a'\\%ü") == [(ODD, FIRST)]
    assert known_fates(m, T + 10 * DAY + 1, "a'\\%ü", "order 7") == [(ODD, FIRST), ("two", Fate.RENAMED)]
    with monkeypatch.context() as small:
        small.setattr("dedup_nb.manifest.lake._MANY", 0)  # first ask which eras have the ids
        assert known_fates(m, T + 10 * DAY + 1, TWIN) == known_fates(m, T, "new") == []
        assert known_fates(m, T + 10 * DAY + 1, "new", "order 7") == [(ODD, FIRST), ("two", Fate.RENAMED)]

    # what is forgotten goes, with what others kept alive of it
    m.forget(ODD)
    assert stored(other) == ["two"]

    # the ledger comes back as it was, and that of a folder is listed without Spark
    why = "AlarmError: 50 % of the rows is bad"
    stopped = {"token": "t", "etl": -62_135_596_801, "why": why}
    m.store.append(Marker(m.ledger().next, "abandon", "before", stopped))
    assert list(open_lake().ledger().markers) == list(m.ledger().markers)
    if m.store.is_named:
        return
    assert list(m.ledger().markers) == read_markers(m.store.path)
    words = [sys.executable, "-m", "dedup_nb", "runs", "--output", tmp_path]
    no_spark = {**os.environ, "JAVA_HOME": "/nowhere", "PATH": ""}
    told = subprocess.run(words, capture_output=True, text=True, env=no_spark)
    lines = [re.split("  +", line)[:3] for line in told.stdout.splitlines()[1:]]
    assert lines == [
        ["two", "committed", "2026-11-29 00:00"],
        [ODD, "forgotten", "-"],
        ["before", f"abandoned: {why}", "0000-12-31 23:59"],
    ], told.stderr


@pytest.mark.slow
def test_the_table_stays_small_and_lets_what_expired_go(open_lake, monkeypatch):
    "Eras of two batches, of which two become one."
    monkeypatch.setattr("dedup_nb.manifest.ledger._LAST", 3)
    for name, value in {"_PLACES": 4, "_ERAS": 2}.items():
        monkeypatch.setattr(f"dedup_nb.manifest.lake.{name}", value)
    m = open_lake()
    commit_rows(m, "b0", T, ("gone after a rerun", "f", FIRST), ("stays", "f", FIRST))
    commit_rows(m, "b0", T + 5, ("stays", "f", FIRST), rerun=True)
    assert stored(m) == ["b0"] and known_fates(m, T, "gone after a rerun", "stays") == [("b0", FIRST)]
    for n in range(1, 9):
        commit_rows(m, f"b{n}", T + 4 * n * DAY, (f"id{n}", "f", FIRST), ("all", f"f{n}", Fate.STAYS))
    now = m.store.table().where("kind = 'key'")
    assert now.select(F.input_file_name()).distinct().count() < 5
    gone = m.ledger().expired()
    assert gone and set(stored(m)).isdisjoint(gone) and set(stored(m)) >= {"b6", "b7", "b8"}
    assert known_fates(m, T + 36 * DAY, "all", "id7") == [
        ("b7", Fate.STAYS),
        ("b7", FIRST),
        ("b8", Fate.STAYS),
    ]
    old = [b for b in stored(m) if b != "b8"]
    assert set(m.expire(T + 42 * DAY)) >= set(old) and set(stored(m)) == {"b8"}
    assert set(states_of(open_lake()).values()) == {"committed"} and len(states_of(open_lake())) == 9


@pytest.mark.slow
def test_of_eras_that_became_one_nothing_goes_while_one_batch_of_them_lives(open_lake, monkeypatch):
    monkeypatch.setattr("dedup_nb.manifest.ledger._LAST", 3)
    for name, value in {"_PLACES": 4, "_ERAS": 2}.items():
        monkeypatch.setattr(f"dedup_nb.manifest.lake.{name}", value)
    m, long_ago = open_lake(), T - 200 * DAY
    for n in range(6):
        commit_rows(m, f"b{n}", long_ago if n < 2 else T, (f"id{n}", "f", FIRST))
    assert set(stored(m)) >= {"b2", "b3", "b4", "b5"}
    assert known_fates(m, T, "id3") == [("b3", FIRST)]
    for n in range(6, 10):
        commit_rows(m, f"b{n}", T + 200 * DAY, (f"id{n}", "f", FIRST))
    assert set(stored(m)) >= {"b6", "b7", "b8", "b9"} and {"b0", "b1", "b2", "b3"} <= m.ledger().expired()


@pytest.mark.parametrize("found", ["table", "text", "broken"])
def test_what_somebody_else_has_there_is_refused_and_left_as_it_is(open_folder, spark, tmp_path, found):
    path = tmp_path / "manifest"
    if found == "table":
        spark.range(1).write.format("delta").save(str(path))
    else:
        (path / "_delta_log").mkdir(parents=True)
        (path / {"text": "notes.txt", "broken": f"_delta_log/{0:020}.json"}[found]).write_text("{}")
    before = {p: p.read_bytes() for p in path.rglob("*") if p.is_file()}
    with pytest.raises(ManifestError, match="manifest.*(another table|not a manifest|cannot be used)"):
        open_folder().begin("one", T, {"token": "t"})
    assert {p: p.read_bytes() for p in path.rglob("*") if p.is_file()} == before


def test_half_a_table_is_nothing_and_one_of_a_newer_format_is_not_touched(open_folder, spark, tmp_path):
    "A run that is killed while it makes the table leaves a file that nothing names."
    newer = Marker(0, "recipe", "", {**RECIPE, "format": FORMAT + 1})
    open_folder().store.append(newer)
    for file in (tmp_path / "manifest/_delta_log").rglob("*.*"):
        file.unlink()
    m = open_folder()
    assert states_of(m) == {} and m.store.append(newer)
    there = config(tmp_path, manifest_path=str(tmp_path / "manifest"))
    for act in (lambda: m.begin("one", T, {"token": "t"}), lambda: forget("one", there, spark, yes=True)):
        with pytest.raises(ManifestError, match=f"has format {FORMAT + 1}.*Upgrade"):
            act()


@pytest.mark.slow
def test_what_others_do_with_the_table_between_two_commits_changes_nothing(open_lake, spark):
    "Unity Catalog optimizes its tables whenever it likes."
    m = open_lake()
    for n in range(3):
        claim = m.begin(f"b{n}", T, {"token": f"t{n}"})
        spark.sql(f"optimize {m.store._sql}")
        m.commit(claim, keys(spark, (f"id{n}", "f", FIRST)), {"pairs": 1})
        spark.sql(f"optimize {m.store._sql}")
    assert stored(m) == ["b0", "b1", "b2"] and known_fates(m, T, "id1") == [("b1", FIRST)]
    assert list(m.ledger().markers) == list(open_lake().ledger().markers)
    commit_rows(m, "b1", T, ("id1", "g", FIRST), rerun=True)
    assert stored(m) == ["b0", "b1", "b2"] and states_of(open_lake()) == dict.fromkeys(stored(m), "committed")


@pytest.mark.parametrize(
    "made, words",
    [
        ("create view {} as select 1 as n", "is a view, or no Delta table, .*choose another manifest_path"),
        ("create table {} (n int) using parquet", "is a view, or no Delta table"),
        ("create table {} (n int) using delta", r"holds another table \(n, ...\), not a manifest"),
    ],
)
def test_a_name_of_something_else_is_refused(spark, name, made, words):
    spark.sql(made.format(name))
    try:
        with pytest.raises(ManifestError, match=words):
            Manifest(LakeStore(spark, name), RECIPE).begin("one", T, {"token": "t"})
    finally:
        spark.sql(f"drop {made.split()[1]} {name}")


@pytest.mark.slow
def test_a_table_that_takes_no_rows_is_said(spark, name):
    commit_rows(Manifest(LakeStore(spark, name), RECIPE), "one", T, ("a", "f", FIRST))
    spark.sql(f"alter table {name} add constraint shut check (seq < 3)")
    with pytest.raises(ManifestError, match="cannot be used: .*Nothing was committed; check the path and"):
        Manifest(LakeStore(spark, name), RECIPE).begin("two", T, {"token": "t"})
    with pytest.raises(ManifestError, match="no_such_schema.manifest cannot be used"):
        Manifest(LakeStore(spark, "no_such_schema.manifest"), RECIPE).begin("two", T, {"token": "t"})


@pytest.fixture
def no_spark(monkeypatch):
    "Spark neither writes nor reads the table."
    for name in ("save", "table"):
        monkeypatch.setattr(LakeStore, name, lambda *_: pytest.fail("Spark is asked"))


def test_few_rows_are_written_and_found_without_spark(open_near, no_spark):
    m = open_near()
    commit_rows(m, "one", T, ("a", "f", FIRST), ("b", "f", FIRST))
    commit_rows(m, "two", T + DAY, ("a", "f", FIRST, "one", 1), ("c", "g", Fate.RENAMED))
    assert known_fates(m, T + 2 * DAY, "a", "c", "new") == [
        ("one", FIRST),
        ("one", FIRST),
        ("two", Fate.RENAMED),
    ]
    assert states_of(open_near()) == {"one": "committed", "two": "committed"}


def _write_then_fail(*args):
    append_once(*args)
    raise OSError("the disk is gone")


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(lambda *_: (_ for _ in ()).throw(ImportError("deltalake")), id="not installed"),
        pytest.param(_write_then_fail, id="fails once it is written"),
    ],
)
def test_spark_does_what_cannot_be_done_without_it(open_near, monkeypatch, way):
    monkeypatch.setattr("dedup_nb.manifest.lake.append_once", way)
    m = open_near()
    commit_rows(m, "one", T, ("a", "f", FIRST))
    assert stored(m) == ["one"] and known_fates(m, T + DAY, "a") == [("one", FIRST)]
    markers = m.store.table().where("kind = 'marker'").collect()
    assert sorted((r.seq, r.marker) for r in markers) == [(0, "recipe"), (1, "claim"), (2, "commit")]


def test_keys_that_are_many_are_found_by_spark(open_near, monkeypatch):
    m = open_near()
    commit_rows(m, "one", T, *(("robot", f"f{n}", FIRST) for n in range(5)))
    monkeypatch.setattr("dedup_nb.manifest.lake._MOST", 4)
    assert known_fates(m, T + DAY, "robot") == 5 * [("one", FIRST)]


@pytest.mark.slow
def test_both_ways_find_the_same_keys(open_near, spark):
    m, pick = open_near(), random.Random(7)
    for n in range(8):
        rows = [(f"id {pick.randrange(12)}", f"f{pick.randrange(3)}", FIRST) for _ in range(6)]
        if n:
            rows[0] = (*rows[0], f"b{pick.randrange(n)}", 1)
        commit_rows(m, f"b{n}", T + n * DAY, *rows)
    m.forget("b3")
    path = m.store.path
    by_spark = Manifest(LakeStore(spark, path), RECIPE)
    asked = keys(spark, *((f"id {n}", "f1", 0) for n in range(12)))
    number = 0
    for etl in (None, T, T + 4 * DAY, T + 11 * DAY, T + 15 * DAY):
        found = []
        for way in (m, by_spark):
            claim = way.look("another", etl, {"token": "t"})
            frame = way.known(claim, asked).keys
            found.append((sorted(map(str, frame.collect())), dict(frame.dtypes)))
        assert found[0] == found[1]
        number += len(found[0][0])
    assert number > 50

"""The protocol of a manifest: what holds before and after each call. One suite for all back ends."""
import os, shutil, threading, time
from datetime import datetime, timedelta, timezone
import pytest
from pyspark.sql import functions as F
from emulator import items
from dedup_nb import dynamodb as dynamo, manifest as module
from dedup_nb.dynamodb import Connection, DynamoManifest
from dedup_nb.manifest import GONE, HEAD, RENAMED, STAYS, BusyError, FencedError, LakeManifest, ManifestError, id_key, pair_key

RECIPE = {"format": 1, "retention_days": 180}


def at(day): return datetime(2026, 11, 1, tzinfo=timezone.utc) + timedelta(days=day)


@pytest.fixture(params=["lake", "dynamodb", pytest.param("dynamodb, a row per pair", marks=pytest.mark.long)])
def make(request, spark, tmp_path):
    "Open the manifest of this test, again and again, as separate runs would."
    def lake(**more): return LakeManifest(spark, str(tmp_path / "manifest"), recipe={**RECIPE, **more.pop("recipe", {})}, say=lambda line: None, **more)
    def dynamodb(**more): return DynamoManifest(spark, connection, str(tmp_path / "manifest"), recipe={**RECIPE, **more.pop("recipe", {})}, say=lambda line: None, create=True, layout=layout, tasks=1, **more)
    if request.param == "lake": return lake
    layout = "pairs" if "pair" in request.param else "heads"
    connection = Connection(f"dedup_test_{os.getpid()}_{time.monotonic_ns()}", None, request.getfixturevalue("dynamodb"))
    return dynamodb


def stored(manifest):
    "How many keys the back end holds."
    return manifest.rows().where("kind = 'key'").count() if isinstance(manifest, LakeManifest) else sum(f == "#" or f[0] != "#" for _, f in items(manifest._table))


@pytest.fixture
def elsewhere(monkeypatch):
    "Claims seem to come from this host or process for a while."
    def claimed_by(**who):
        for m in (module, dynamo): monkeypatch.setattr(m, "this_process", lambda: {"host": module.platform.node(), "pid": os.getpid(), "started": "", **who})
    return claimed_by


def keys(spark, *pairs):
    frame = spark.createDataFrame(pairs, "id string, fp string, fate int")
    return frame.select(*id_key(F.col("id")), pair_key(F.col("id"), F.col("fp")), "fate", F.lit(None).cast("string").alias("origin"), F.col("id").alias("event_id"), F.col("fp").alias("event_fingerprint"))


def commit(manifest, batch, day, *pairs, **info):
    claim = manifest.begin(batch, at(day), {"token": f"{batch}-{time.monotonic_ns()}"})
    manifest.known(claim, keys(manifest.spark, *pairs))
    manifest.commit(claim, keys(manifest.spark, *pairs), {"counts": {}, **info})
    return claim


def known(manifest, claim, *asked):
    "What others have of ids, `a`, or pairs, `a/f`."
    rows = manifest.known(claim, keys(manifest.spark, *[(i, f or None, 0) for i, _, f in (a.partition("/") for a in asked)])).collect()
    return sorted((r.batch_id, r.fate) for r in rows)


def states(manifest): return {e.batch_id: e.state for e in manifest.ledger()}


def test_a_batch_sees_committed_batches_only(make):
    m = make()
    commit(m, "one", 1, ("a", "f", STAYS | HEAD), ("a", "g", RENAMED), ("b", "f", GONE))
    begun = m.begin("two", at(2), {"token": "t"})
    m.give_up(begun)
    third = m.begin("three", at(3), {"token": "u"})
    assert known(m, third, "a/f", "a/g", "c") == [("one", RENAMED), ("one", STAYS | HEAD)]
    assert states(m) == {"one": "committed", "two": "abandoned", "three": "claimed"}


def test_an_id_that_is_no_uuid_never_matches_a_uuid_of_the_same_bits(make, spark):
    import hashlib, uuid
    twin = str(uuid.UUID(hashlib.sha256(b"order 7").hexdigest()[:32]))
    m = make()
    commit(m, "one", 1, ("order 7", "f", STAYS | HEAD))
    two = m.begin("two", at(2), {"token": "t"})
    assert known(m, two, twin) == [] and known(m, two, "order 7") == [("one", STAYS | HEAD)]
    assert known(m, two, "ORDER 7") == []


def test_a_second_run_is_refused_with_the_name_of_the_holder_and_the_command_to_go_on(make):
    m = make()
    m.begin("one", at(1), {"token": "t"})
    for batch in ("one", "two")[:1 if m.concurrent else 2]:
        with pytest.raises(BusyError, match=f"batch one is claimed by process {os.getpid()} on .*dedup abandon one"): make().begin(batch, at(2), {"token": "u"})
    if m.concurrent: assert make().begin("two", at(2), {"token": "u"}).seq == 2


def test_a_second_run_waits_for_the_first(make, spark):
    m = make()
    first = m.begin("one", at(1), {"token": "t"})
    late = threading.Timer(1.0, lambda: m.commit(first, keys(spark, ("a", "f", STAYS | HEAD)), {}))
    late.start()
    if m.concurrent:
        with pytest.raises(ManifestError, match="Batch one is committed already"): make(wait_minutes=1).begin("one", at(2), {"token": "u"})
        second = m.begin("two", at(2), {"token": "u"})
    else: second = make(wait_minutes=1).begin("two", at(2), {"token": "u"})
    late.join()
    assert known(m, second, "a") == [("one", STAYS | HEAD)]


def test_a_run_of_the_same_batch_takes_over_when_the_process_is_gone(make, elsewhere, spark):
    m = make()
    elsewhere(pid=2 ** 22 + 1)
    dead = m.begin("one", at(1), {"token": "dead"})
    elsewhere()
    if m.concurrent: m.give_up(m.begin("two", at(2), {"token": "u"}))
    else:
        with pytest.raises(BusyError, match="whose process is gone.*--batch-id one"): m.begin("two", at(2), {"token": "u"})
    alive = m.begin("one", at(9), {"token": "alive"})
    assert alive.etl_time == at(1), "the time of a batch is fixed by its first claim"
    m.commit(alive, keys(spark, ("a", "f", STAYS | HEAD)), {})
    with pytest.raises(FencedError, match="taken over by another run"): m.commit(dead, keys(spark, ("zombie", "f", STAYS)), {})
    assert stored(m) == 1 and m.is_committed(alive) and not m.is_committed(dead)


def test_a_claim_of_another_host_is_closed_by_another_batch_once_it_is_old(make, elsewhere):
    m = make()
    elsewhere(host="elsewhere", pid=1)
    m.begin("one", at(1), {"token": "t"})
    elsewhere()
    for batch in ("one", "two")[:1 if m.concurrent else 2]:
        with pytest.raises(BusyError, match="which may still be at work"): m.begin(batch, at(2), {"token": "u"})
    time.sleep(0.05)
    if m.concurrent:
        assert make(claim_timeout_minutes=0.0001).begin("one", at(2), {"token": "v"}).etl_time == at(1)
        return
    claim = make(claim_timeout_minutes=0.0001).begin("two", at(2), {"token": "v"})
    assert "the claim of batch one (process 1 on elsewhere" in claim.notes[0] and "still to do" in claim.notes[0]
    assert states(m) == {"one": "abandoned", "two": "claimed"}


def test_a_rerun_sees_what_it_saw_the_first_time(make, spark):
    m = make()
    commit(m, "one", 1, ("a", "f", STAYS | HEAD))
    commit(m, "two", 2, ("b", "f", STAYS | HEAD))
    with pytest.raises(ManifestError, match="Batch one is committed already.*--rerun.*dedup forget one"): m.begin("one", at(1), {"token": "t"})
    again = m.begin("two", at(7), {"token": "u"}, rerun=True)
    assert again.rerun and again.etl_time == at(2) and known(m, again, "a", "b") == [("one", STAYS | HEAD)]
    m.commit(again, keys(spark, ("b", "f", STAYS | HEAD)), {})
    first = m.begin("one", at(1), {"token": "v"}, rerun=True)
    assert known(m, first, "a", "b") == []
    m.give_up(first)
    assert states(m) == {"one": "committed", "two": "committed"}
    assert stored(m) == 2


def test_a_pair_lives_to_the_second_for_the_retention_and_by_the_clock_of_the_batches(make):
    m = make(retention_days=10)
    commit(m, "one", 1, ("a", "f", STAYS | HEAD))
    for when, expected in ((at(11), [("one", STAYS | HEAD)]), (at(11) + timedelta(seconds=1), []), (at(-400), [("one", STAYS | HEAD)])):
        assert known(m, m.look("two", when, {"token": "t"}), "a") == expected


def test_what_a_later_batch_keeps_alive_lives_as_long_as_that_batch(make, spark):
    m = make(retention_days=10)
    commit(m, "one", 1, ("a", "f", STAYS | HEAD))
    two = m.begin("two", at(9), {"token": "t"})
    m.commit(two, keys(spark, ("a", "g", RENAMED)).unionByName(keys(spark, ("a", "f", STAYS | HEAD)).withColumn("origin", F.lit("one"))), {})
    assert known(m, m.look("three", at(15), {"token": "u"}), "a/g") == [("one", STAYS | HEAD), ("two", RENAMED)]
    assert known(m, m.look("three", at(20), {"token": "u"}), "a") == []


def test_forget_takes_a_batch_out_and_says_who_relied_on_it(make):
    m = make()
    commit(m, "one", 1, ("a", "f", STAYS | HEAD))
    commit(m, "two", 2, ("b", "f", STAYS | HEAD), dropped_for={"one": 3})
    assert m.forget("one") == ["two"]
    assert states(m) == {"one": "forgotten", "two": "committed"} and known(m, m.look("three", at(3), {"token": "t"}), "a", "b") == [("two", STAYS | HEAD)]
    again = m.begin("one", at(4), {"token": "u"})
    assert not again.rerun and known(m, again, "b") == [("two", STAYS | HEAD)]
    with pytest.raises(ManifestError, match="Batch one is claimed, not committed"): m.forget("one")
    with pytest.raises(ManifestError, match="no batch tow.*Did you mean two"): m.forget("tow")


def test_abandon_ends_an_open_claim_only(make):
    m = make()
    commit(m, "one", 1, ("a", "f", STAYS | HEAD))
    m.begin("two", at(2), {"token": "t"})
    assert m.abandon("two") == []
    for batch in ("one", "two"):
        with pytest.raises(ManifestError, match="no open claim to abandon"): m.abandon(batch)
    m.begin("three", at(3), {"token": "u"})


def test_expire_removes_what_nobody_can_see_and_refuses_batches_that_could_have(make):
    m = make(retention_days=10)
    commit(m, "one", 1, ("a", "f", STAYS | HEAD))
    commit(m, "two", 30, ("b", "f", STAYS | HEAD))
    if m.sweeps:  # the back end deletes by the clock, and expired keys are never heeded
        assert m.expire(at(30)) == m.expirable(at(30)) == [] and known(m, m.look("three", at(30), {"token": "t"}), "a", "b") == [("two", STAYS | HEAD)]
        with pytest.raises(ManifestError, match="Batch late .*would have seen the pairs of one.*--force"): make(retention_days=10, now=lambda: time.time() + 30 * 86400).begin("late", at(5), {"token": "t"})
        return
    assert m.expire(at(11)) == [] and m.expire(at(30)) == ["one"] and m.expire(at(30)) == []
    assert stored(m) == 1 and states(m) == {"one": "committed", "two": "committed"}
    with pytest.raises(ManifestError, match="Batch late .*would have seen the pairs of one.*--force"): m.begin("late", at(5), {"token": "t"})
    assert m.begin("three", at(12), {"token": "u"}).seq == 4


def test_another_recipe_is_refused_with_the_difference_and_forced_on_request(make):
    make(recipe={"retention_days": 7})
    commit(make(), "one", 1, ("a", "f", STAYS | HEAD))  # what failed or never ran binds nobody
    with pytest.raises(ManifestError, match="retention_days was 180, is now 30.*--force"): make(recipe={"retention_days": 30})
    make(recipe={"retention_days": 30}, force=True)
    make(recipe={"retention_days": 30})


@pytest.mark.parametrize("make", ["lake"], indirect=True)
@pytest.mark.parametrize("found", ["delta", "text", "broken"])
def test_a_table_or_folder_of_somebody_else_is_refused_and_left_as_it_is(make, spark, tmp_path, found):
    path = tmp_path / "manifest"
    if found == "delta": spark.range(3).write.format("delta").save(str(path))
    elif found == "text": path.mkdir(); (path / "notes.txt").write_text("mine")
    else: (path / "_delta_log").mkdir(parents=True); (path / "_delta_log" / f"{0:020}.json").write_text("{}")
    before = {p: p.read_bytes() for p in path.rglob("*") if p.is_file()}
    with pytest.raises(ManifestError, match="manifest.*(another table|not a manifest|cannot be used)"): make()
    assert {p: p.read_bytes() for p in path.rglob("*") if p.is_file()} == before


# --- the lake table alone -------------------------------------------------------------------------------------------------

@pytest.fixture
def lake(spark, tmp_path):
    return lambda **more: LakeManifest(spark, str(tmp_path / "manifest"), recipe=RECIPE, say=lambda line: None, **more)


def test_a_forgotten_batch_stays_forgotten_whatever_is_summed_up(lake, monkeypatch):
    "Its old commit must not come back when a later marker of it is the newest."
    monkeypatch.setattr(module, "_SUMMARY_EVERY", 2)
    m = lake()
    for n, batch in enumerate(("one", "two")): commit(m, batch, n, (batch, "f", STAYS | HEAD))
    m.forget("one")
    m.give_up(m.begin("one", at(3), {"token": "t"}))
    for n, batch in enumerate(("three", "four")): commit(m, batch, 4 + n, (batch, "f", STAYS | HEAD))
    assert states(lake()) == {"one": "abandoned", "two": "committed", "three": "committed", "four": "committed"}


def test_what_is_left_of_a_table_that_was_never_made_is_no_table(lake, spark, tmp_path):
    "A run that is killed while it writes the first row leaves an empty log and a file that nothing names."
    commit(lake(), "one", 1, ("a", "f", STAYS | HEAD))
    shutil.rmtree(tmp_path / "manifest/_delta_log")
    (tmp_path / "manifest/_delta_log").mkdir()
    shutil.rmtree(tmp_path / "manifest/batch_id=one")
    assert states(lake()) == {} and not commit(lake(), "one", 1, ("a", "f", STAYS | HEAD)).rerun


def test_a_claim_that_comes_in_between_wins_over_expire_and_forget(lake, monkeypatch):
    m = lake()
    commit(m, "old", 1, ("a", "f", STAYS | HEAD))
    checked, other = LakeManifest._check_idle, lake()
    def late(self, entries):
        checked(self, entries)
        monkeypatch.undo()
        other.begin("late", at(2), {"token": "t"})
    for act in (lambda: m.expire(at(400)), lambda: m.forget("old")):
        monkeypatch.setattr(LakeManifest, "_check_idle", late)
        with pytest.raises(BusyError, match="at the same moment, so nothing was done"): act()
        assert stored(m) == 1 and states(m) == {"old": "committed", "late": "claimed"}
        other.abandon("late")


def test_an_expire_that_was_killed_is_finished_by_the_next(lake, monkeypatch):
    m = lake()
    for n, batch in ((1, "old"), (300, "new")): commit(m, batch, n, (batch, "f", STAYS | HEAD))
    def killed(*_): raise KeyboardInterrupt
    monkeypatch.setattr(LakeManifest, "_remove_keys", killed)
    with pytest.raises(KeyboardInterrupt): m.expire(at(300))
    monkeypatch.undo()
    assert stored(m) == 2 and lake().expire(at(300)) == [] and stored(m) == 1


def test_what_has_no_time_is_never_forgotten(lake):
    m = lake()
    claim = m.begin("timeless", module.NO_TIME, {"token": "t"})
    m.commit(claim, keys(m.spark, ("a", "f", STAYS | HEAD)), {"counts": {}})
    assert known(m, m.begin("new", at(1), {"token": "u"}), "a") == [("timeless", STAYS | HEAD)] and m.expirable(at(4000)) == []


def test_a_rerun_that_died_comes_first_and_says_how_to_go_on(lake):
    "Others wait for it, so the next rerun takes it up before them; and it is named with --rerun."
    from dedup_nb import Config
    from dedup_nb.pipeline import choose_batches
    from dedup_nb.read import Batch
    m = lake()
    for n in (1, 2): commit(m, str(n), n, (str(n), "f", STAYS | HEAD))
    m.begin("2", at(2), {"token": "t"}, rerun=True)
    batches = [Batch(str(n), "in", ()) for n in (1, 2, 3)]
    assert [b.batch_id for b in choose_batches(batches, Config(input="in", output="out", rerun=True), m.ledger())] == ["2", "1", "3"]
    with pytest.raises(BusyError, match="run it again with --batch-id 2 --rerun"): lake().begin("3", at(3), {"token": "u"})

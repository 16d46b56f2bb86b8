"The manifest in a DynamoDB table: its ledger without Spark, then claims and commits with it."

import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid5

import pytest
from emulator import Faults, a_name, a_table, items, ministack, refuse
from ledgers import states_of
from pyspark.sql import functions as F
from runs import STAYED, TWO, config, files, go, stayed, write
from tables import DAY, at, begin_on_day, claimed, firsts, give_up, killed, open_in_table, pairs, table_behind

from dedup_nb.base.config import Config, Recipe
from dedup_nb.base.errors import BusyError, DedupError
from dedup_nb.cli import main
from dedup_nb.dynamodb.claims import TAKEN, Claimant, Claims
from dedup_nb.dynamodb.connection import client_of
from dedup_nb.dynamodb.store import DynamoStore
from dedup_nb.dynamodb.table import DeniedError, Table, create_table, log_item
from dedup_nb.manifest.ledger import ManifestError, Marker
from dedup_nb.manifest.protocol import Manifest
from dedup_nb.operate.history import expire, forget
from dedup_nb.rules.cross_batch import Fate, cross_batch, id_key, pair_key
from dedup_nb.rules.keys import NAMESPACE, fit, place_of, with_ids, with_keys
from dedup_nb.rules.natural import natural
from dedup_nb.rules.synthetic import synthetic

# --- the ledger, without Spark ---------------------------------------------------------------------------


@pytest.mark.slow
def test_claims_of_many_runs_at_once_get_places_of_their_own(dynamodb):
    m = open_in_table(dynamodb)
    again = [open_in_table(dynamodb, m.store.name) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        claims = list(pool.map(lambda n: begin_on_day(again[n], f"b{n}", n), range(4)))
    assert sorted(c.seq for c in claims) == list(range(1, 5))
    assert [marker.kind for marker in m.ledger().markers] == ["recipe"] + ["claim"] * 4


@pytest.mark.slow
def test_of_two_runs_of_one_batch_one_begins(dynamodb):
    name = open_in_table(dynamodb).store.name

    def one(n):
        try:
            return begin_on_day(open_in_table(dynamodb, name), "b", 1)
        except BusyError as wrong:
            return wrong

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(one, range(4)))
    assert sum(isinstance(f, BusyError) for f in found) == 3


@pytest.mark.slow
def test_the_ledger_survives_answers_that_are_lost_or_cut(dynamodb):
    m = open_in_table(dynamodb)
    faults = Faults(5, lost=0.15, unsent=0.1, cut=0.15)
    faults.on(client_of(m.store.connection))
    for n in range(6):
        claim = begin_on_day(m, f"b{n}", n)
        m.give_up(claim.batch_id, claim.token)
    assert min(faults.count[kind] for kind in ("lost", "cut")) > 1
    assert [marker.kind for marker in m.ledger().markers] == ["recipe"] + ["claim", "abandon"] * 6
    client_of.cache_clear()


def test_what_a_policy_lacks_is_said_before_any_work(dynamodb):
    m = open_in_table(dynamodb)
    refuse(client_of(m.store.connection), lambda operation: operation == "BatchExecuteStatement")
    with pytest.raises(DeniedError, match="does not allow .* on the DynamoDB table .*dedup iam --table"):
        begin_on_day(m, "b", 1)
    client_of.cache_clear()


OF_THE_ORIGINAL = {
    "eventId": {"S": "a"},
    "fingerprint": {"S": "f"},
    "etlTime": {"N": "1"},
    "ttl": {"N": "4102444800"},
}


@pytest.mark.parametrize(
    "there, as_snowplow, layout",
    [
        ("nothing", False, "heads"),
        ("nothing", True, "pairs"),
        ("an empty table", False, "heads"),
        ("an empty table", True, "pairs"),
        ("rows of the original", False, "pairs"),
        ("rows of the original", True, "pairs"),
    ],
)
def test_a_table_of_snowplows_is_laid_out_as_snowplow_does_and_the_run_says_so(
    dynamodb, there, as_snowplow, layout
):
    m = open_in_table(dynamodb, as_snowplow=as_snowplow)
    table = a_table(dynamodb, m.store.name)
    if there != "nothing":
        create_table(table)
    if there == "rows of the original":
        table.client.put_item(TableName=table.name, Item=OF_THE_ORIGINAL)
    claim = begin_on_day(m, "b", 1)
    words = {"heads": "with heads", "pairs": "as Snowplow does, a row per pair"}
    assert m.store.notes(claim) == [f"the table {table.name} is laid out {words[layout]}"]
    assert m.store.layout == layout
    later = open_in_table(dynamodb, table.name, as_snowplow=not as_snowplow)
    assert later.store.notes(begin_on_day(later, "c", 2)) == [] and later.store.layout == layout, (
        "and keeps it"
    )


def commit_of_day(seq, batch, day, **more):
    own = {
        "token": batch,
        "etl": at(day),
        "first_seq": seq - 1,
        "at": "2026-11-01T00:00:00+00:00",
        "dropped_for": {},
    }
    return Marker(seq, "commit", batch, {**own, **more})


def claim_of_day(seq, batch, day):
    return Marker(
        seq,
        "claim",
        batch,
        {"token": batch, "etl": at(day), "first_seq": None, "at": "2026-11-01T00:00:00+00:00"},
    )


def put_markers(table, markers):
    "Markers, as runs have put them one by one."
    table.insert({("#dedup_nb", item["fingerprint"]): item for item in map(log_item, markers)})


def test_a_batch_from_before_others_that_may_have_taken_its_rows_over_is_refused(dynamodb):
    m = open_in_table(dynamodb)
    begin_on_day(m, "zero", 0)  # makes the table
    table = a_table(dynamodb, m.store.name)
    marks = [
        (claim_of_day, 2, "one", 1),
        (commit_of_day, 3, "one", 1),
        (claim_of_day, 4, "two", 201),
        (commit_of_day, 5, "two", 201),
    ]
    put_markers(table, [make(seq, batch, day) for make, seq, batch, day in marks])
    with pytest.raises(ManifestError, match="Batch late .*would have seen the pairs of one.*--force"):
        begin_on_day(m, "late", 100)
    assert begin_on_day(m, "next", 202).batch_id == "next"


def test_a_batch_whose_rows_the_table_has_swept_away_is_gone(dynamodb):
    m = open_in_table(dynamodb, now=lambda: at(181) + 1)
    begin_on_day(m, "zero", 0)
    put_markers(a_table(dynamodb, m.store.name), [claim_of_day(2, "one", 1), commit_of_day(3, "one", 1)])
    with pytest.raises(ManifestError, match="Batch late .*would have seen the pairs of one.*--force"):
        begin_on_day(m, "late", 100)


def test_a_commit_that_comes_in_between_wins_over_abandon(dynamodb):
    m = open_in_table(dynamodb)
    begin_on_day(m, "one", 1)
    other = open_in_table(dynamodb, m.store.name)
    begin_on_day(other, "two", 2)
    append = m.store.append

    def late(marker):
        m.store.append = append
        other.store.append(commit_of_day(marker.seq, "two", 2, dropped_for={"one": 1}))
        return append(marker)

    m.store.append = late
    with pytest.raises(ManifestError, match="cannot be abandoned: two dropped rows"):
        m.abandon("one")
    assert states_of(m) == {"one": "claimed", "two": "committed"}


def seconds_to_claim(endpoint, batches):
    "CPU seconds and requests of this process to claim one more batch."
    m = open_in_table(endpoint)
    begin_on_day(m, "first", 0)
    markers = []
    for n in range(batches):
        yielded = {f"b{n - 1}": 1} if n else {}
        markers += [
            claim_of_day(2 * n + 2, f"b{n}", 0),
            commit_of_day(2 * n + 3, f"b{n}", 0, dropped_for=yielded),
        ]
    put_markers(a_table(endpoint, m.store.name), markers)
    m.ledger()  # reading it grows with its length, of course
    asked, took = [], []
    client_of(m.store.connection).meta.events.register("before-send.dynamodb", lambda **_: asked.append(1))
    for n in range(3):
        start = time.process_time()
        claim = begin_on_day(m, f"next{n}", 1)
        m.store.notes(claim)
        m.give_up(claim.batch_id, claim.token)
        took.append(time.process_time() - start)
    client_of.cache_clear()
    return min(took), len(asked)


@pytest.mark.slow
def test_a_claim_takes_time_in_line_with_the_committed_batches(dynamodb):
    "Four times the batches take four times as long, not sixteen times; and no request more."
    (few, asked), (many, asked_then) = (seconds_to_claim(dynamodb, n) for n in (500, 2000))
    print(f"{few:.3f} s after 500 batches, {many:.3f} s after 2000")
    assert many < 9 * few and asked_then == asked


def test_rows_of_a_year_ago_are_in_use_while_the_table_deletes_what_has_expired():
    with ministack(sweeping=True) as address:
        table = a_table(address)
        create_table(table)
        now = int(time.time())
        who = lambda batch, seq: Claimant(
            batch, f"{batch}@{seq}", now - (366 - seq) * DAY, now, 180 * DAY, sees=seq
        )
        Claims(table, who("one", 1)).of([("a", ["f"])])
        table.client.put_item(
            TableName=table.name, Item={**OF_THE_ORIGINAL, "eventId": {"S": "e"}, "ttl": {"N": "2"}}
        )
        end = time.monotonic() + 20
        while ("e", "f") in items(table):
            assert time.monotonic() < end
            time.sleep(0.1)
        assert [a.kind for a in Claims(table, who("two", 2)).of([("a", ["f"])])][0] == TAKEN


# --- with Spark ------------------------------------------------------------------------------------------


@pytest.fixture
def manifest(spark, dynamodb, tmp_path):
    return open_in_table(dynamodb, spark=spark, folder=tmp_path)


@pytest.mark.slow
def test_tasks_claim_whole_ids_once_and_the_answers_are_files(spark, dynamodb, tmp_path, said):
    m = open_in_table(dynamodb, None, spark, tmp_path, tasks=2, on_driver=100, max_wcu=4000)
    rows = [(f"id{n}", "f", Fate.STAYS | Fate.HEAD) for n in range(600)] + [
        ("only", None, Fate.STAYS | Fate.HEAD)
    ]
    rows += [("hot", "f0", Fate.GONE | Fate.HEAD)] + [("hot", f"f{n}", Fate.GONE) for n in range(1, 200)]
    one = begin_on_day(m, "one", 1)
    assert m.known(one, pairs(spark, *rows)).keys.count() == 0
    m.commit(one, pairs(spark, *rows), {"counts": {}})
    used = m.store.used(one)
    assert (used["claimed"], used["own"], used["duplicate"]) == (801, 0, 0)
    assert used["requests"] <= 1001 / 20 and used["write_units"] == 1001, "200 fates differ from their place"
    there = items(table_behind(m))
    assert (there["hot", "#"]["first"], there["hot", "#"]["fate"]) == ("f0", str(Fate.GONE | Fate.HEAD))
    assert there["hot", "f7"]["fate"] == str(Fate.GONE)
    assert said[0].strip() == "801 pairs to claim at 4 000 write units a second: about a second"
    told = "claimed 801, own 0, duplicate 0, expired 0, throttled 0, retried 0; "
    assert said[1].strip().startswith(told)
    assert len(said) == 2, "what the commit writes is no claim of the batch"
    asked = pairs(spark, ("hot", "f7", 0), ("hot", "f0", 0), ("id3", "g", 0), ("id3", "f", 0))
    named = asked.select("pair", F.concat("event_id", "event_fingerprint").alias("named"))
    found = m.known(begin_on_day(m, "two", 2), asked.where("event_fingerprint <> 'f'")).keys.join(
        named, "pair"
    )
    expected = {
        ("hotf7", Fate.GONE, "one"),
        ("hotf0", Fate.GONE | Fate.HEAD, "one"),
        ("id3f", Fate.STAYS | Fate.HEAD, "one"),
    }
    assert {(r.named, r.fate, r.batch_id) for r in found.collect()} == expected


# f is the first of each id; Python's calendar has neither the year 0 nor 10000
ORDERED = """
    ('years', 'g', timestamp'+10000-05-01', null, null, null),
    ('years', 'f', timestamp'0000-05-01', null, null, null),
    ('none', 'g', null, null, null, null), ('none', 'f', timestamp'+10000-05-01', null, null, null),
    ('days', 'g', null, date'+10000-05-01', null, null), ('days', 'f', null, date'0000-05-01', null, null),
    ('numbers', 'g', null, null, double('NaN'), null), ('numbers', 'f', null, null, 7d, null),
    ('falling', 'g', null, null, null, timestamp'0000-05-01'),
    ('falling', 'f', null, null, null, timestamp'+10000-05-01')"""


@pytest.mark.parametrize("on_driver", [0, 100])
def test_the_first_pair_of_an_id_is_the_same_wherever_it_is_claimed(spark, dynamodb, tmp_path, on_driver):
    named = "event_id, event_fingerprint, at, day, n, back"
    events = spark.sql(f"select * from values {ORDERED} as t({named})")
    keys = fit(Recipe(order_by=("at", "day", "n", "back desc")), events.columns)
    place = F.struct(*place_of(events, keys)).alias("place")
    m = open_in_table(dynamodb, None, spark, tmp_path, on_driver=on_driver)
    event_id, pair = F.col("event_id"), pair_key(F.col("event_id"), F.col("event_fingerprint"))
    asked = events.select(event_id, "event_fingerprint", place, *id_key(event_id), pair)
    m.known(begin_on_day(m, "one", 1), asked)
    first = {i: item["first"] for (i, mark), item in items(table_behind(m)).items() if mark == "#"}
    assert first == dict.fromkeys(["years", "none", "days", "numbers", "falling"], "f")


def test_what_a_task_raised_is_said_in_its_own_words(spark, dynamodb, tmp_path):
    m = open_in_table(dynamodb, None, spark, tmp_path, on_driver=0)
    claim, markers = begin_on_day(m, "one", 1), m.store.markers()
    m.store.markers = lambda: markers
    table_behind(m).client.delete_table(TableName=m.store.name)
    words = "^There is no DynamoDB table dedup_test_.*Nothing of this batch is committed"
    with pytest.raises(ManifestError, match=words):
        m.known(claim, firsts(spark, "a"))


def test_whoever_has_the_head_keeps_its_id(spark, manifest):
    "A has the head of x; B takes (x, g), and drops (x, f) in favour of A; then A finds its own g taken."
    m, rows = manifest, [("x", "f", 1), ("x", "g", 2), ("y", "f", 3)]
    a, b = begin_on_day(m, "A", 1), begin_on_day(m, "B", 1)
    m.known(a, pairs(spark, ("x", "f", 0)))
    m.known(b, pairs(spark, ("x", "g", 0), ("x", "f", 0)))
    known = m.known(a, pairs(spark, *[(i, p, 0) for i, p, _ in rows])).keys
    events = spark.createDataFrame(rows, "event_id string, event_fingerprint string, n int")
    keys = fit(Recipe(order_by=("n",)), events.schema)
    keyed = with_keys(with_ids(events, keys), keys)
    decided = synthetic(cross_batch(natural(keyed), known), "rename_later", "A").collect()
    made = str(uuid5(NAMESPACE, "x/g"))  # as B renames it: the id is A's
    assert {(r.event_id + r.event_fingerprint, r.stays, r.kept_event_id) for r in decided} == {
        ("xf", True, "x"),
        ("xg", False, made),
        ("yf", True, "y"),
    }


@pytest.mark.parametrize("as_snowplow", [False, True], ids=["heads", "pairs"])
def test_what_a_strategy_does_is_seen_before_the_commit_and_costs_no_write_more(
    spark, dynamodb, tmp_path, as_snowplow
):
    m = open_in_table(dynamodb, None, spark, tmp_path, as_snowplow=as_snowplow, synthetic="quarantine")
    rows = pairs(spark, ("a", "f", Fate.STAYS | Fate.HEAD), ("a", "g", Fate.GONE))
    one = begin_on_day(m, "one", 1)
    m.known(one, rows)
    before = items(table_behind(m))
    assert before["a", "g"]["fate"] == str(int(Fate.GONE))
    m.commit(one, rows, {})
    assert items(table_behind(m)) == before and m.store.used(one)["write_units"] == 2


def test_an_attempt_that_lost_keys_frees_them(spark, manifest):
    m = manifest
    give_up(m, claimed(m, spark, "one", 1, "a", "b", "c"))
    m.commit(claimed(m, spark, "one", 1, "a"), firsts(spark, "a"), {})
    assert set(items(table_behind(m))) == {("a", "#")}
    assert m.ledger().entries["one"].committed["released"] == 2


def test_a_batch_that_yielded_to_one_given_up_by_hand_is_not_committed_and_its_rerun_takes_over(
    spark, manifest
):
    m = manifest
    one = killed(m, "one", 1, "a")
    two = begin_on_day(m, "two", 2)
    assert m.known(two, firsts(spark, "a")).keys.first().batch_id == "one"
    assert "batch one, which is not committed yet" in m.store.notes(two)[-1]
    give_up(m, one)
    assert "batch one, which is not committed yet" in m.store.notes(two)[-1], "nor is one that failed"
    begin_on_day(m, "one", 1)
    m.abandon("one")
    words = "Batch two dropped or renamed rows in favour of one, which was given up.*run it again"
    with pytest.raises(ManifestError, match=words):
        m.commit(two, firsts(spark).limit(0), {"dropped_for": {"one": 1}})
    give_up(m, two)
    assert m.known(begin_on_day(m, "two", 2), firsts(spark, "a")).keys.count() == 0


def test_abandon_is_refused_while_a_committed_batch_relies_on_it(spark, manifest):
    m = manifest
    killed(m, "one", 1, "a")
    m.commit(claimed(m, spark, "two", 2, "a"), firsts(spark).limit(0), {"dropped_for": {"one": 1}})
    with pytest.raises(ManifestError, match="cannot be abandoned: two dropped rows in its favour.*--force"):
        m.abandon("one")
    assert m.abandon("one", force=True) == ["two"]
    rerun = begin_on_day(m, "two", 2, rerun=True)
    assert m.known(rerun, firsts(spark, "a")).keys.count() == 0
    assert items(table_behind(m))["a", "#"]["run"] == f"two@{rerun.sees}"


def yielded(m, spark):
    "One claims a and b and dies; two yields b to it; one comes again without b."
    died = killed(m, "one", 1, "a", "b")
    two = claimed(m, spark, "two", 2, "b")
    give_up(m, died)
    return two, claimed(m, spark, "one", 1, "a")


def test_of_two_batches_that_would_both_be_without_an_event_the_second_is_stopped(spark, manifest):
    m = manifest
    two, again = yielded(m, spark)
    m.commit(again, firsts(spark, "a"), {})
    with pytest.raises(
        ManifestError, match="in favour of one, which was given up or loaded by another attempt"
    ):
        m.commit(two, firsts(spark).limit(0), {"dropped_for": {"one": 1}})


def test_what_a_killed_attempt_took_is_looked_up_where_others_yielded_to_it(spark, manifest):
    "Its files list nothing: it was killed before they were there."
    m = manifest
    two, again = yielded(m, spark)
    m.commit(two, firsts(spark).limit(0), {"dropped_for": {"one": 1}})
    words = "Batch one lacks 1 pair that an earlier attempt had, and two dropped rows in its favour"
    with pytest.raises(ManifestError, match=words):
        m.commit(again, firsts(spark, "a"), {})


def test_a_commit_between_release_and_commit_is_seen(spark, manifest):
    m = manifest
    died = claimed(m, spark, "one", 1, "a", "b")
    two = claimed(m, spark, "two", 2, "b")
    give_up(m, died)
    again, append = claimed(m, spark, "one", 1, "a"), m.store.append

    def late(marker):  # its pairs are released by now
        m.store.append = append
        append(commit_of_day(marker.seq, "two", 2, dropped_for={"one": 1}, token=two.token))
        return append(marker)

    m.store.append = late
    words = "Batch one lacks .*that an earlier attempt had, and two dropped rows"
    with pytest.raises(ManifestError, match=words):
        m.commit(again, firsts(spark, "a"), {})


@pytest.mark.parametrize("as_snowplow", [False, True], ids=["heads", "pairs"])
@pytest.mark.parametrize("has_it", [True, False], ids=["another has it", "nobody has it"])
def test_a_pair_is_lacking_where_neither_the_batch_nor_another_has_it(
    spark, dynamodb, tmp_path, as_snowplow, has_it
):
    "One claims (x, f) and fails; two yields it. Then three takes it over, or one comes again with (x, g)."
    m = open_in_table(dynamodb, None, spark, tmp_path, as_snowplow=as_snowplow)
    failed = claimed(m, spark, "one", 1, "x")
    m.commit(claimed(m, spark, "two", 2, "x"), firsts(spark).limit(0), {"dropped_for": {"one": 1}})
    give_up(m, failed)
    rows = pairs(spark, ("x", "g", Fate.STAYS | Fate.HEAD))
    if has_it:
        m.commit(claimed(m, spark, "three", 3, "x"), firsts(spark, "x"), {})
        rows = firsts(spark, "x")
    again = begin_on_day(m, "one", 1)
    known = m.known(again, rows).keys.collect()
    if has_it:
        m.commit(again, rows.limit(0), {"dropped_for": {"three": 1}})
        assert [r.batch_id for r in known] == ["three"] and states_of(m)["one"] == "committed"
    else:
        with pytest.raises(
            ManifestError, match="Batch one lacks 1 pair that an earlier attempt had, and two"
        ):
            m.commit(again, rows, {})


def test_a_batch_without_a_time_has_no_pairs(spark, manifest):
    m = manifest
    claim = m.begin("timeless", None, {"token": "t"})
    with pytest.raises(ManifestError, match="Nobody knows when batch timeless was.*etl_time"):
        m.known(claim, firsts(spark, "a"))
    assert m.known(claim, firsts(spark).limit(0)).keys.count() == 0
    give_up(m, claim)
    assert begin_on_day(m, "timeless", 1).etl == at(1), "an attempt that told no time binds no other"


@pytest.mark.slow
@pytest.mark.parametrize("listed", [True, False], ids=["files", "no files"])
def test_forget_deletes_the_rows_of_a_batch_and_is_finished_by_the_next_if_it_is_killed(
    spark, manifest, tmp_path, listed
):
    m = manifest
    rows = pairs(spark, ("a", "f", Fate.STAYS | Fate.HEAD), ("a", "g", Fate.RENAMED))
    claim = begin_on_day(m, "one", 1)
    m.known(claim, rows)
    m.commit(claim, rows, {})
    killed(m, "two", 2, "b")
    if not listed:
        shutil.rmtree(tmp_path / "claims")
    m.store.append(Marker(m.ledger().next, "forget", "one", {"etl": None}))  # killed after its marker
    assert set(items(table_behind(m))) == {("a", "#"), ("a", "g"), ("b", "#")}
    assert m.forget("one") == [] and set(items(table_behind(m))) == {("b", "#")}


def with_two(m, spark):
    "Two ids with two fingerprints each, and another one, committed; a batch that was killed and given up."
    rows = pairs(
        spark, *((i, f, Fate.STAYS | Fate.HEAD if f == "f" else Fate.RENAMED) for i in "ab" for f in "fg")
    )
    claim = begin_on_day(m, "one", 1)
    m.known(claim, rows.unionByName(firsts(spark, "c")))
    m.commit(claim, rows.unionByName(firsts(spark, "c")), {})
    give_up(m, killed(m, "two", 2, "d"))
    assert len(items(table_behind(m))) == 6


@pytest.mark.parametrize("on_driver", [pytest.param(0, marks=pytest.mark.slow), 2000])
def test_ids_are_removed_with_all_their_rows_and_answers(spark, dynamodb, tmp_path, on_driver):
    m = open_in_table(dynamodb, spark=spark, folder=tmp_path, on_driver=on_driver)
    with_two(m, spark)
    temporary = (
        tmp_path / "claims/batch_id=two" / m.ledger().entries["two"].info["token"] / "call=0/_temporary"
    )
    temporary.mkdir(parents=True)
    (temporary / "part-0.parquet").write_text("d")
    (temporary.parents[1] / "empty").mkdir()
    assert m.store.remove_ids([]) == 0 and m.store.remove_ids(["a", "d", "nobody"]) == 3
    assert set(items(table_behind(m))) == {("b", "#"), ("b", "g"), ("c", "#")}
    assert not list(temporary.iterdir())
    answers = spark.read.option("recursiveFileLookup", "true").parquet(str(tmp_path / "claims"))
    assert sorted({r.event_id for r in answers.collect()} - {""}) == ["b", "c"]
    assert [r.used is not None for r in answers.where("event_id = ''").collect()] == [True], "counters stay"
    # the batch is forgotten by what its files still list
    assert m.forget("one") == [] and not items(table_behind(m))


@pytest.mark.slow
def test_ids_that_a_run_takes_while_they_leave_are_left_to_the_next_call(spark, manifest, monkeypatch):
    m = manifest
    with_two(m, spark)
    real = Table.of_ids

    def late(table, ids):
        there = real(table, ids)
        claimed(m, spark, "three", 3, "d")  # it takes over what a dead run has
        return there

    with monkeypatch.context() as patched:
        patched.setattr(Table, "of_ids", late)
        with pytest.raises(BusyError, match="A run began while ids left the DynamoDB table"):
            m.store.remove_ids(["a", "d"])
    assert set(items(table_behind(m))) == {("b", "#"), ("b", "g"), ("c", "#"), ("d", "#")}


@pytest.mark.slow
def test_rows_are_counted_once_where_answers_are_lost(spark, manifest):
    m = manifest
    with_two(m, spark)
    faults = Faults(3, lost=0.3, throttled=0.2)
    faults.on(client_of(m.store.connection))
    assert m.store.remove_ids(list("abcd")) == 6 and faults.count["lost"] + faults.count["throttled"]
    assert not items(table_behind(m))
    client_of.cache_clear()


SCHEMA = "iglu:com.snowplowanalytics.snowplow.storage/amazon_dynamodb_config/jsonschema/2-0-0"
SECRETS = ("wJalrSecret", "AKIATESTTEST", "hunter2pass", "somebody:")


def as_snowplow(endpoint, name):
    "Settings of a run on a table that Snowplow's configuration names, with secrets wherever they fit."
    data = {
        "name": "n",
        "awsRegion": "us-east-1",
        "dynamodbTable": name,
        "id": "1",
        "purpose": "EVENTS_MANIFEST",
    }
    data["auth"] = {"accessKeyId": SECRETS[1], "secretAccessKey": SECRETS[0]}
    return dict(
        manifest="dynamodb",
        dynamodb_endpoint=f"http://somebody:hunter2pass@{endpoint.partition('://')[2]}",
        create_table=True,
        duplicate_storage_config=json.dumps({"schema": SCHEMA, "data": data}),
    )


def test_a_run_on_dynamodb_does_what_one_on_the_lake_does_and_leaves_no_secret(
    spark, dynamodb, tmp_path, capsys, said
):
    write(spark, tmp_path / "in", TWO)
    there = as_snowplow(dynamodb, a_name())
    summary = go(spark, tmp_path, **there)
    assert stayed(spark, tmp_path) == STAYED
    assert "is laid out as Snowplow does, a row per pair" in str(summary)
    told = "\n".join(said)
    assert told.count(" to claim at ") == 2, "the new ids of renames are no claim of the batch"
    assert "3 pairs to claim at 4 000 write units a second: about a second" in told
    first, second = (m["used"] for m in summary.batches)
    assert (first["claimed"], second["claimed"], second["duplicate"]) == (2, 3, 1), "two pairs and a new id"
    with pytest.raises(SystemExit) as done:  # the output knows where its manifest is
        main(["runs", "--output", str(tmp_path / "out")])
    listed = capsys.readouterr().out
    assert done.value.code == 0 and listed.count("committed") == 2 and "move" not in listed, listed
    with pytest.raises(DedupError) as wrong:
        go(spark, tmp_path, **{**there, "dynamodb_table": "nobody-s", "create_table": False})
    left = [str(wrong.value), listed, str(summary), told, json.dumps(summary.batches)]
    left += [(tmp_path / f).read_bytes().decode("utf-8", "replace") for f in files(tmp_path)]
    assert not [(secret, text[:300]) for secret in SECRETS for text in left if secret in text]


@pytest.mark.slow
def test_a_rerun_and_a_batch_that_was_forgotten_give_what_they_gave(spark, dynamodb, tmp_path):
    write(spark, tmp_path / "in", TWO)
    name = a_name()
    there = as_snowplow(dynamodb, name)
    summary = go(spark, tmp_path, **there)
    again = go(spark, tmp_path, rerun=True, **there)
    assert again.counts == summary.counts and stayed(spark, tmp_path) == STAYED
    assert all(m["used"]["claimed"] == 0 for m in again.batches), "a rerun reads what it has"
    forget("2", config(tmp_path, **there), spark, yes=True)
    before = items(a_table(dynamodb, name))
    decided = go(
        spark, tmp_path, **{**there, "output": str(tmp_path / "looked"), "mode": "decide", "batch_id": "2"}
    )
    assert decided.counts["dropped"] == 1 and decided.batches[0]["used"]["write_units"] == 0
    assert items(a_table(dynamodb, name)) == before
    assert go(spark, tmp_path, **there).counts["read"] == 3 and stayed(spark, tmp_path) == STAYED


def with_files_of_claims(folder, times):
    "A store without a table: a committed batch for each time, with its folder."
    log = []
    for n, etl in enumerate(times):
        (folder / f"claims/batch_id=b{n}").mkdir(parents=True)
        log.append(Marker(n, "commit", f"b{n}", {"etl": etl, "first_seq": n, "token": "t"}))
    store = DynamoStore(None, None, str(folder))
    store._log, store.markers = log, lambda: log
    return store


def claims_in(folder):
    return {f.name for f in (folder / "claims").iterdir()}


def test_the_files_of_old_claims_go_by_themselves_once_in_a_while(tmp_path):
    "64 commits, of which the first 40 lie a year back; one clock ahead of all changes nothing."
    times = [0 if n < 40 else 365 * DAY for n in range(63)] + [99_999 * DAY]
    store = with_files_of_claims(tmp_path, times)
    log, store._log = store._log, store._log[:63]
    store.tidy(180 * DAY)
    assert len(claims_in(tmp_path)) == 64
    store._log = log
    store.tidy(180 * DAY)
    assert claims_in(tmp_path) == {f"batch_id=b{n}" for n in range(40, 64)}


@pytest.mark.parametrize("recent", [20, 3])
def test_one_clock_that_is_ahead_lets_no_file_of_the_others_expire(recent, tmp_path, monkeypatch):
    store = with_files_of_claims(tmp_path, [0, 0, *[365 * DAY] * recent, 99_999 * DAY])
    manifest = Manifest(store, {"retention_days": 180 if recent > 3 else 400})
    monkeypatch.setattr("dedup_nb.operate.history._open_manifest", lambda *_: manifest)
    expire(Config(), yes=True)
    gone = 2 if recent > 3 else 0
    assert claims_in(tmp_path) == {f"batch_id=b{n}" for n in range(gone, recent + 3)}

"""Across batches: the truth of the samples, any cut gives the same events, reruns, and what stands in the way."""
import base64, json, os, re, shutil, time
from collections import Counter
from dataclasses import replace
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from pyspark.sql import functions as F
import reference
from emulator import items, ministack
from test_laws import COLUMNS, T, crowded, frame_of, law
from test_run import QUIET, SAMPLES, files, kept, truth
from dedup_nb import Config, run
from dedup_nb.cli import main
from dedup_nb.config import ConfigError, DedupError, InputError
from dedup_nb.costs import count_claims, past_runs, review
from dedup_nb.cross_batch import to_remember
from dedup_nb.dynamodb import Connection, Table, _by_id, _new_client, create_table
from dedup_nb.history import backfill, expire, explain, forget, runs
from dedup_nb.manifest import Entry, FencedError, LakeManifest, ManifestError, id_key, pair_key
from dedup_nb.pipeline import _check_held, _met, decide, kept_rows, open_manifest, publish_pending, stage_keys
from dedup_nb.read import ENRICHED, find_batches, read_batch
from dedup_nb.suspects import with_keys
from dedup_nb.synthetic import NAMESPACE
from dedup_nb.write import Attempt, commit_record, committed_files, write_text

SCHEMA = "event_id string, event_fingerprint string, t int, n int"
DAY = 86400
TWO = {"1": [("a", "f", 1, 1), ("b", "f", 1, 2)], "2": [("a", "f", 2, 3), ("a", "g", 2, 4), ("c", "f", 2, 5)]}
STAYED = {"1": [("a", 1), ("b", 2)], "2": [("c", 5), ("new of a", 4)]}


def write(spark, folder, batches):
    "Batches of literal rows (id, fingerprint, second, n)."
    for name, rows in batches.items():
        frame = spark.createDataFrame(rows, SCHEMA).withColumn("etl_tstamp", F.timestamp_seconds(F.lit(1_763_000_000) + F.col("t")))
        frame.select("event_id", "event_fingerprint", "etl_tstamp", "n").coalesce(1).write.mode("append").parquet(f"{folder}/run={name}")


def config(folder, **more): return Config(**{"input": str(folder / "in"), "output": str(folder / "out"), "input_format": "parquet", **more})


def go(spark, folder, *, force=False, late_files=False, accept_empty_manifest=False, **more):
    return run(config(folder, **more), spark, force=force, late_files=late_files, accept_empty_manifest=accept_empty_manifest, **QUIET)


def shown(spark, output, batch): return sorted((r.event_id if r.original_event_id is None else f"new of {r.original_event_id}", r.n) for r in kept(spark, output, batch).collect())


@pytest.fixture(scope="module")
def two_done(spark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    write(spark, folder / "in", TWO)
    go(spark, folder)
    return folder


@pytest.fixture
def two(two_done, tmp_path):
    "A folder of its own with two committed batches."
    shutil.copytree(two_done, tmp_path, dirs_exist_ok=True)
    return tmp_path


def stayed(spark, folder): return {b: shown(spark, folder / "out", b) for b in "12"}


# --- the sample batches -------------------------------------------------------------------------------------------------

def on_dynamodb(address, **more): return dict(manifest="dynamodb", dynamodb_table=f"cross_batch_{time.monotonic_ns()}", dynamodb_endpoint=address, create_table=True, **more)


@pytest.fixture(scope="module", params=["lake", pytest.param("dynamodb", marks=pytest.mark.long)])
def samples_done(request, spark, tmp_path_factory):
    "The sample batches, the folder of the results, and the settings that find the manifest again."
    output = tmp_path_factory.mktemp("samples") / "out"
    where = dict(output=str(output), **(on_dynamodb(request.getfixturevalue("dynamodb")) if request.param == "dynamodb" else {}))
    summary = run(Config(input=str(SAMPLES), **where), spark, **QUIET)
    return summary, output, Config(**where)


def test_the_sample_batches_meet_their_truth_with_earlier_batches_known(spark, samples_done):
    summary, output, _ = samples_done
    assert len(summary.batches) == 3
    for m in summary.batches:
        expected = truth(m["batch_id"])
        assert m["reasons"] == Counter(r["reason_known"] for r in expected if r["fate_known"] == "dropped")
        assert m["cross_batch"]["natural_cross_batch"] == m["reasons"].get("natural_cross_batch", 0) == sum(m["cross_batch"]["dropped_for"].values())
        assert m["cross_batch"]["renamed"] == sum(r["reason_known"] == "synthetic_cross_batch" for r in expected)
        stays = kept(spark, output, m["batch_id"]).select(F.coalesce("original_event_id", "event_id"), F.col("original_event_id").isNotNull()).collect()
        goes = spark.read.parquet(str(output / f"dropped/batch_id={m['batch_id']}")).select("event_id").collect()
        found = Counter((i, "renamed" if new else "kept") for i, new in stays) + Counter((i, "dropped") for i, in goes)
        assert found == Counter((r["event_id"], r["fate_known"]) for r in expected if r["fate_known"] != "bad")
    ids = [r.event_id for m in summary.batches for r in kept(spark, output, m["batch_id"]).select("event_id").collect()]
    assert len(ids) == len(set(ids))
    dropped, renamed = (sum(m["cross_batch"][name] for m in summary.batches) for name in ("natural_cross_batch", "renamed"))
    assert dropped and renamed and f"Because of earlier batches: {dropped} dropped, {renamed} renamed." in str(summary)
    assert "of them with an event of an earlier batch" in str(summary) and "natural duplicates of earlier batches" in (output / f"runs/{m['batch_id']}/report.html").read_text()


@pytest.mark.parametrize("samples_done", [pytest.param("dynamodb", marks=pytest.mark.long)], indirect=True)
def test_what_the_samples_take_on_dynamodb_is_what_was_counted_before(spark, samples_done, tmp_path):
    summary, _, there = samples_done
    batches = []
    for n, batch in enumerate(find_batches(replace(there, input=str(SAMPLES)))):
        chosen = replace(there, input=str(SAMPLES), batch_id=batch.batch_id)
        pairs, _, total = stage_keys(spark, read_batch(spark, batch, chosen), chosen, str(tmp_path / str(n)), texts=True)
        # the tasks and chunks of a claim: whole ids, about 500 pairs at a time
        tasks = max(1, min(2, -(-total["pairs"] // 500)))
        placed = pairs.repartition(tasks, "event_id").sortWithinPartitions("event_id", "place", "pair").select(F.spark_partition_id().alias("task"), "event_id", "event_fingerprint").collect()
        by_task = [pa.RecordBatch.from_pylist([{"i": r.event_id, "p": r.event_fingerprint} for r in placed if r.task == t]) for t in range(tasks)]
        batches.append([chunk for part in by_task if part.num_rows for chunk in _by_id([part])])
    expected = count_claims(batches)
    # ties that only the hash of the whole row breaks are marked at the commit, which nobody can count before
    of_claims = lambda used, name: used[name] - used[{"requests": "marking", "write_units": "marked"}.get(name, "throttled")]
    assert [{name: of_claims(m["used"], name) for name in expected[0]} for m in summary.batches] == expected


def test_dropped_rows_point_at_the_loaded_event_and_its_batch(spark, samples_done):
    summary, output, _ = samples_done
    loaded = {(m["batch_id"], r.event_id) for m in summary.batches for r in kept(spark, output, m["batch_id"]).select("event_id").collect()}
    for m in summary.batches:
        goes = spark.read.parquet(str(output / f"dropped/batch_id={m['batch_id']}")).select("dedup.*").distinct().collect()
        assert {(r.kept_in_batch, r.kept_event_id) for r in goes} <= loaded


def test_explain_tells_the_story_of_a_natural_and_a_synthetic_id(spark, samples_done, capsys):
    summary, output, there = samples_done
    last = summary.batches[-1]["batch_id"]
    for reason, words in (("natural_cross_batch", "dropped; reason natural_cross_batch (loaded by batch 2026-11-1"), ("synthetic_cross_batch", "kept under a new id: ")):
        row = next(r for r in truth(last) if r["reason_known"] == reason)
        told = str(explain(row["event_id"], there, spark))
        assert words in told and f"batch {last}: fingerprint" in told and "manifest: batch 2026-11-1" in told and "(attempt " in told
    asked = [word for name, value in there.chosen().items() for word in (f"--{name.replace('_', '-')}", str(value))]
    assert main(["explain", row["event_id"].upper(), *asked, "--json"]) == 0
    story = json.loads(capsys.readouterr().out)
    renamed = next(v for v in story["verdicts"] if v["new_event_id"])
    assert story["event_id"] == renamed["event_id"] == row["event_id"] and {c["batch_id"] for c in story["claims"]} >= {renamed["batch_id"]}
    again = str(explain(renamed["new_event_id"], there, spark))
    copied = next(r for r in truth(last) if r["kind"] == "resent_seconds")
    copies = sum(r["event_id"] == copied["event_id"] for r in truth(last))
    assert f"{copies} copies, the first kept under its own id, the other{'' if copies == 2 else f' {copies - 1}'} dropped; reason natural" in str(explain(copied["event_id"], there, spark))
    assert f"it is the new id of an event that came as {row['event_id']}" in again and again.count("\n") == told.count("\n") + 1
    unique = next(r for r in truth(last) if r["kind"] == "unique")
    assert f"manifest: batch {last} claimed a pair, the first of the id, under its own id" in str(explain(unique["event_id"], there, spark))
    assert "nothing is recorded of it in the 3 committed batches" in str(explain("00000000-0000-4000-8000-00000000abcd", there, spark))
    assert str(runs(there, spark)).count("committed") == 3


def test_runs_on_dynamodb_do_what_runs_on_the_lake_do_and_show_no_key(spark, dynamodb, tmp_path, capsys, monkeypatch):
    write(spark, tmp_path / "in", TWO)
    secret = {"schema": "iglu:com.snowplowanalytics.snowplow.storage/amazon_dynamodb_config/jsonschema/2-0-0", "data": {
        "name": "n", "auth": {"accessKeyId": "AKIATEST", "secretAccessKey": "wJalrSecret"}, "awsRegion": "us-east-1", "dynamodbTable": f"run_{time.monotonic_ns()}", "id": "1", "purpose": "EVENTS_MANIFEST"}}
    there = dict(manifest="dynamodb", dynamodb_endpoint=dynamodb, create_table=True, duplicate_storage_config=base64.b64encode(json.dumps(secret).encode()).decode())
    if os.environ.get("DEDUP_TEST_DYNAMODB_ENDPOINT"): there |= on_dynamodb(dynamodb); del there["duplicate_storage_config"]
    said = []
    summary = run(config(tmp_path, **there), spark, say=said.append)
    assert stayed(spark, tmp_path) == STAYED
    assert any(re.search("3 pairs to claim at .* write units a second: about a second, ", line) for line in said) and any("claimed 2, own 0, duplicate 1, expired 0, throttled 0, retried 0; " in line for line in said)
    first, second = (m["used"] for m in summary.batches)
    # 1: two pairs. 2: two ids' first pairs, one of which is refused; for `a g` the head is made to live on, and a row taken
    assert (first["write_units"], first["claimed"]) == (2, 2) and (second["claimed"], second["duplicate"]) == (2, 1)
    assert second["write_units"] == 4 and [r["actual"] for r in review(past_runs(str(tmp_path / "out"))) if r["what"] == "write_units"] == [2, 4]
    assert "reason synthetic_cross_batch" in str(explain("a", config(tmp_path, **there), spark)) and str(runs(config(tmp_path, **there), spark)).count("committed") == 2
    with pytest.raises(ManifestError, match="Batch 2 is committed already"): go(spark, tmp_path, batch_id="2", **there)
    again = go(spark, tmp_path, rerun=True, **there)
    assert again.counts == summary.counts and stayed(spark, tmp_path) == STAYED and [m["forecast"]["write_units"] for m in again.batches] == [0, 0]  # a rerun reads what it has
    forget("2", config(tmp_path, **there), spark, yes=True)
    decided, = run(config(tmp_path, output=str(tmp_path / "looked"), mode="decide", **there), spark, **QUIET).batches
    assert (decided["forecast"]["write_units"], decided["used"]["write_units"], decided["used"]["read_units"]) == (0, 0, 5)  # two heads, three pairs
    assert go(spark, tmp_path, **there).counts["read"] == 3 and stayed(spark, tmp_path) == STAYED
    written = b"".join(f.read_bytes() for f in tmp_path.rglob("*") if f.is_file()) + "".join(said).encode() + capsys.readouterr().out.encode()
    assert b"wJalrSecret" not in written and b"AKIATEST" not in written and there.get("duplicate_storage_config", "AKIATEST").encode() not in written


def test_batches_of_a_year_ago_decide_the_same_while_the_table_deletes_what_has_expired(spark, tmp_path):
    write(spark, tmp_path / "in", TWO)
    with ministack(sweeping=True) as address:
        there = on_dynamodb(address)
        go(spark, tmp_path, batch_id="1", **there)
        client = _new_client(Connection(there["dynamodb_table"], None, address))
        expired = {"eventId": {"S": "e"}, "fingerprint": {"S": "f"}}
        client.put_item(TableName=there["dynamodb_table"], Item={**expired, "etlTime": {"N": "1"}, "ttl": {"N": "2"}})
        end = time.monotonic() + 20
        while "Item" in client.get_item(TableName=there["dynamodb_table"], Key=expired): assert time.monotonic() < end; time.sleep(0.1)
        go(spark, tmp_path, batch_id="2", **there)
    assert stayed(spark, tmp_path) == STAYED


def test_every_commit_that_was_not_published_is_also_an_older_one(tmp_path):
    entries = [Entry(b, "committed", seq, seq, {"token": f"t{b}"}, {"token": f"t{b}", "seq": seq}) for b, seq in (("A", 1), ("B", 2))]
    attempt = Attempt(str(tmp_path), "A", "tA")
    write_text(f"{attempt.staging}/commit.json", json.dumps(commit_record(attempt, {}, {"output_format": "parquet", "status": "committed"})))
    publish_pending(str(tmp_path), entries)
    assert committed_files(str(tmp_path), "A")["attempt"] == "tA" and committed_files(str(tmp_path), "B") is None and not (tmp_path / ".staging/batch_id=A").exists()


def test_a_run_that_failed_binds_nobody_and_deciding_leaves_no_recipe(spark, tmp_path):
    write(spark, tmp_path / "in", {"1": TWO["1"]})
    with pytest.raises(DedupError, match="recieved_at"): go(spark, tmp_path, order_by="recieved_at")
    go(spark, tmp_path, mode="decide", synthetic="off")
    assert go(spark, tmp_path).counts["kept"] == 2


def test_two_inputs_with_the_same_batch_names_may_not_share_a_manifest(spark, two):
    write(spark, two / "other", {"1": [("q", "f", 1, 1), ("r", "f", 1, 2), ("s", "f", 1, 3)]})
    with pytest.raises(ManifestError, match="has a batch 1 with other files, committed from .*Name the batches"):
        run(Config(input=str(two / "other"), output=str(two / "elsewhere"), input_format="parquet", manifest_path=str(two / "out/manifest")), spark, **QUIET)


def test_a_backfill_with_a_column_that_is_not_there_fills_nothing(spark, two):
    with pytest.raises(DedupError, match="payload_hsh"): backfill(config(two, output=str(two / "new"), event_fingerprint="payload_hsh"), spark, say=print)
    assert open_manifest(spark, config(two, output=str(two / "new"))).ledger() == []


# --- any cut gives the same events --------------------------------------------------------------------------------------

def place(row): return [x for c in ("etl_tstamp", "collector_tstamp") for x in (row[c] is None, row[c])] + [reference.sha256_of(row, COLUMNS)]


def kept_of_cut(spark, parts, strategy):
    "The kept rows of batches that see each other's keys as a manifest would give them."
    chosen, memory, found = Config(input_format="table", synthetic=strategy), [], Counter()
    for n, rows in enumerate(parts):
        suspects = with_keys(frame_of(spark, rows), chosen)
        known = spark.createDataFrame(memory, "hi bigint, lo bigint, packed boolean, pair bigint, fate int, batch_id string, etl_time string, seq bigint")
        decisions = decide(suspects, chosen, known)
        decisions = spark.createDataFrame(decisions.collect(), decisions.schema)
        found += Counter((r.event_id, r.event_fingerprint, r.app, r.original_event_id, str(r.etl_tstamp)) for r in kept_rows(_met(suspects, decisions), COLUMNS, chosen).collect())
        pairs = suspects.select(*id_key(F.col("_dd_id")), pair_key(F.col("_dd_id"), F.col("_dd_fp"))).distinct()
        memory += [(r.hi, r.lo, r.packed, r.pair, r.fate, r.origin or str(n), "", n) for r in to_remember(pairs, decisions, known).collect()]
    return found


@law(3)
@given(strategy=st.sampled_from(["rename_later", "quarantine"]), seed=st.integers(0, 999), cuts=st.lists(st.integers(1, 139), min_size=1, max_size=3, unique=True))
def test_any_cut_along_the_total_order_keeps_the_same_events_with_the_same_ids(spark, strategy, seed, cuts):
    rows = sorted((r for r in crowded(seed, 130) if r["event_id"]), key=place)
    ends = [0, *sorted(c for c in cuts if c < len(rows)), len(rows)]
    found = kept_of_cut(spark, [rows[a:b] for a, b in zip(ends, ends[1:])], strategy)
    content = [c for c in COLUMNS if c == "app"]
    whole = reference.deduplicate(rows, namespace=NAMESPACE, row_hash=lambda r: reference.sha256_of(r, COLUMNS), surrogate=lambda r: "surrogate-" + reference.sha256_of(r, content), synthetic=strategy)
    assert found.total() == len(whole.kept)
    by_time = {None: "None", T[0]: "2026-11-20 00:00:00", T[1]: "2026-11-20 00:00:00.000001", T[2]: "2026-11-21 07:00:00.500000"}
    assert found == Counter((r["event_id"], r["event_fingerprint"], r["app"], r["original_event_id"], by_time[r["etl_tstamp"]]) for r in whole.kept)


ROWS = [("a", "f", 0, 1), ("a", "g", 1, 2), ("a", "f", 2, 3), ("b", None, 3, 4), ("a", "h", 4, 5), ("b", None, 5, 4), ("b", "f", 6, 7), ("a", "g", 7, 8), ("c", "f", 8, 9), ("c", "g", 9, 10)]


@pytest.mark.long
def test_any_cut_holds_for_whole_runs(spark, tmp_path):
    found = []
    for name, ends in (("whole", [0, 10]), ("cut", [0, 3, 8, 10])):
        write(spark, tmp_path / name / "in", {str(n): ROWS[a:b] for n, (a, b) in enumerate(zip(ends, ends[1:]))})
        summary = go(spark, tmp_path / name)
        found.append(Counter((r.event_id, r.n, r.original_event_id) for m in summary.batches for r in kept(spark, tmp_path / name / "out", m["batch_id"]).collect()))
    assert found[0] == found[1] and found[0].total() == 7


# --- reruns, late files, late batches -----------------------------------------------------------------------------------

def test_a_rerun_gives_the_same_output_and_is_refused_with_other_settings_or_pairs(spark, two):
    with pytest.raises(ManifestError, match="Batch 2 is committed already.*--rerun.*dedup forget 2"): go(spark, two, batch_id="2")
    with pytest.raises(ManifestError, match="another recipe: synthetic was rename_later, is now off"): go(spark, two, batch_id="2", rerun=True, synthetic="off")
    with pytest.raises(ManifestError, match="minimum_timestamp was None, is now 2020-01-01"): go(spark, two, batch_id="2", rerun=True, minimum_timestamp="2020-01-01")
    # files that came later are no part of a rerun; a file that is another is
    write(spark, two / "in", {"2": [("z", "f", 2, 9)]})
    again = go(spark, two, batch_id="2", rerun=True)
    assert again.counts["read"] == 3 and again.batches[0]["cross_batch"]["dropped_for"] == {"1": 1} and stayed(spark, two) == STAYED
    shutil.rmtree(two / "in/run=2")
    write(spark, two / "in", {"2": [("a", "f", 2, 2), ("y", "f", 2, 9)]})
    with pytest.raises(ManifestError, match="the batch had 3 pairs, has now 2.*dedup forget 2"): go(spark, two, batch_id="2", rerun=True)
    assert stayed(spark, two) == STAYED and str(runs(config(two), spark)).count("committed") == 2


@pytest.mark.long
def test_a_rerun_with_other_settings_is_refused_by_force_too_and_changes_nothing(spark, two):
    "Had it recorded its recipe, the next run would be refused with the settings of the first."
    for force in (False, True):
        with pytest.raises(ManifestError, match="another recipe: synthetic was rename_later, is now quarantine.*a rerun must give the same output"): go(spark, two, batch_id="2", rerun=True, synthetic="quarantine", force=force)
    assert go(spark, two, batch_id="2", rerun=True).counts["kept"] == 2


@pytest.mark.long
def test_an_archive_of_another_format_fills_the_manifest_and_one_that_cannot_be_read_does_not(spark, two):
    "What a run of enriched TSV loaded is Parquet; the next run is of enriched TSV again."
    out, archive = str(two / "again"), str(two / "out/events")
    with pytest.raises(InputError, match="None of the .* rows of 1 is an event of the form enriched_tsv.*--input-format parquet"): backfill(Config(input=archive + "/batch_id=1", output=out, batch_id="1"), spark, **QUIET)
    backfill(Config(input=archive, output=out, input_format="parquet", batch_pattern="batch_id=*"), spark, **QUIET)
    line = "\t".join({"event_id": "a", "event_fingerprint": "f"}.get(name, "") for name, _ in ENRICHED)
    (two / "tsv/run=9").mkdir(parents=True)
    (two / "tsv/run=9/part").write_text(line + "\n")
    assert run(Config(input=str(two / "tsv"), output=out), spark, **QUIET).counts["read"] == 1
    write(spark, two / "in", {"9": [("a", "f", 3, 6)]})
    with pytest.raises(ManifestError, match=r"input_format was enriched_tsv \(ids in lower case\), is now another"): run(config(two, output=out, batch_id="9"), spark, **QUIET)


def test_a_rerun_beside_a_batch_that_was_loaded_again_would_load_an_event_twice(spark, two):
    "Batch 2 dropped `a` because 1 had it; 1 now comes after 2, which would no longer see it."
    forget("1", config(two), spark, yes=True)
    go(spark, two, batch_id="1")
    with pytest.raises(ManifestError, match="because batch 1 had them, which was forgotten and loaded again since.*dedup forget 2"): go(spark, two, batch_id="2", rerun=True)


def test_a_rerun_without_a_batch_for_which_it_dropped_rows_is_refused(spark, two):
    "Batch 3 has `a` now, which a rerun of 2 would not see: both would load it."
    forget("1", config(two), spark, yes=True)
    shutil.rmtree(two / "in/run=1")
    write(spark, two / "in", {"3": [("a", "f", 3, 6)]})
    go(spark, two)
    with pytest.raises(ManifestError, match="because batch 1 had them, which was forgotten since.*dedup forget 2"): go(spark, two, batch_id="2", rerun=True)


@pytest.mark.long
def test_parts_of_a_folder_that_were_forgotten_are_taken_again_and_no_file_twice(spark, two):
    for n in (6, 7):
        write(spark, two / "in", {"1": [(f"late{n}", "f", 3, n)]})
        go(spark, two, late_files=True)
    forget("1+1", config(two), spark, yes=True)
    again = go(spark, two, late_files=True)
    assert [(m["batch_id"], m["counts"]["kept"]) for m in again.batches] == [("1+1", 1)] and shown(spark, two / "out", "1+1") == [("late6", 6)]
    forget("1", config(two), spark, yes=True)
    again = go(spark, two)
    assert [(m["batch_id"], m["counts"]["read"]) for m in again.batches] == [("1", 2)]


def test_late_files_are_reported_and_become_a_batch_of_their_own(spark, two):
    write(spark, two / "in", {"1": [("a", "f", 3, 6), ("d", "f", 3, 7)]})
    said = []
    summary = run(config(two), spark, say=said.append)
    assert summary.batches == [] and "Nothing to do" in str(summary) and "Batch 1 is committed, and its folder has 1 new file since; the first is part-" in said[0] and "--late-files" in str(summary)
    late = go(spark, two, late_files=True)
    assert [m["batch_id"] for m in late.batches] == ["1+1"] and late.counts["kept"] == 1 and late.counts["dropped"] == 1
    assert go(spark, two, late_files=True).batches == [] and go(spark, two).notes == []
    again = go(spark, two, rerun=True, batch_id="1+1")
    assert [m["batch_id"] for m in again.batches] == ["1+1"] and again.counts == late.counts


@pytest.mark.long
def test_a_late_batch_yields_to_those_that_were_there_first_and_says_how_many(spark, two):
    write(spark, two / "in", {"0": [("a", "f", 0, 8), ("x", "f", 0, 9)]})
    summary = go(spark, two)
    [m] = summary.batches
    assert m["cross_batch"]["newer_batches"] == ["1", "2"] and m["cross_batch"]["dropped_for_newer"] == 1 and shown(spark, two / "out", "0") == [("x", 9)]
    assert "this batch is late" in str(summary) and "before that of 2 committed batches;" in str(summary) and "(1 rows dropped)" in str(summary)


@pytest.mark.long
def test_batches_are_taken_unfinished_ones_first_and_those_committed_are_left(spark, two):
    write(spark, two / "in", {b: [(b, "f", int(b), 1)] for b in "34"})
    manifest = open_manifest(spark, config(two))
    manifest.give_up(manifest.begin("4", manifest.ledger()[0].etl_time, {"token": "t"}))
    with pytest.raises(ConfigError, match="2 batches are to do, more than max_batches = 1"): go(spark, two, max_batches=1)
    assert [m["batch_id"] for m in go(spark, two, since="1", max_batches=1).batches] == ["4"]
    assert go(spark, two, skip_batches="3").batches == [] and go(spark, two, until="2").batches == []


@pytest.mark.long
def test_slices_of_a_table_are_batches_by_their_names(spark, tmp_path):
    spark.createDataFrame([("a", "f", 1), ("a", "f", 2), ("b", "f", 2)], "event_id string, event_fingerprint string, day int").createOrReplaceTempView("events_of_days")
    slices = [run(Config(input="events_of_days", output=str(tmp_path / "out"), input_format="table", input_where=f"day = {day}", batch_id=f"day{day}", etl_time=f"2026-11-0{day}"), spark, **QUIET) for day in (1, 2)]
    assert [s.counts["kept"] for s in slices] == [1, 1] and slices[1].batches[0]["reasons"] == {"natural_cross_batch": 1}


# --- strategies, retention ----------------------------------------------------------------------------------------------

@pytest.mark.long
def test_delete_all_lists_loaded_rows_as_retractions(spark, tmp_path):
    write(spark, tmp_path / "in", {"1": [("a", "f", 1, 1), ("b", "f", 1, 2)], "2": [("a", "g", 2, 3), ("b", "f", 2, 4)]})
    go(spark, tmp_path, synthetic="delete_all")
    listed = json.loads((tmp_path / "out/runs/2/files.json").read_text())
    assert [tuple(r) for r in spark.read.parquet(*[str(tmp_path / "out" / f["path"]) for f in listed["retractions"]]).collect()] == [("a", "1", "synthetic_cross_batch")]
    assert shown(spark, tmp_path / "out", "1") == [("a", 1), ("b", 2)] and listed["counts"]["kept"] == 0


@pytest.mark.long
def test_rows_without_a_fingerprint_claim_only_their_id_when_they_are_unique(spark, tmp_path):
    write(spark, tmp_path / "in", {"1": [("a", None, 1, 1)], "2": [("a", None, 2, 1), ("a", "f", 2, 3)]})
    go(spark, tmp_path, missing_fingerprint="unique")
    assert shown(spark, tmp_path / "out", "2") == [("new of a", 1), ("new of a", 3)]
    keys = open_manifest(spark, config(tmp_path), existing=True).rows().where("kind = 'key'")
    assert keys.where("pair is null and origin is null").count() == 2 and keys.where("pair is not null").count() == 1


@pytest.mark.long
def test_retention_is_exact_by_the_time_of_the_batches_and_expire_changes_nothing_later(spark, tmp_path):
    at = lambda day, second=0: day * DAY + second
    batches = {"1": [("a", "f", 0, 1), ("b", "f", 0, 2), ("b", "f", 0, 3), (None, "f", 0, 4)], "2": [("a", "g", at(8), 5), ("b", "f", at(8), 6)],
               "3": [("a", "f", at(10, 1), 7), ("b", "f", at(10, 1), 8)]}
    write(spark, tmp_path / "in", batches)
    go(spark, tmp_path, retention_days=10)
    # (b, f) is forgotten a second after day 10; (a, f) lives on with the rename of batch 2
    assert [shown(spark, tmp_path / "out", b) for b in "123"] == [[("a", 1), ("b", 2)], [("new of a", 5)], [("b", 8)]]
    would = expire(config(tmp_path), spark, audit_days=5)
    assert "Would remove the keys of 1 batches" in str(would) and would.data == {"keys_of": ["1"], "audit_of": ["1"], "done": False} and list((tmp_path / "out/bad").rglob("part-*"))
    expire(config(tmp_path), spark, audit_days=5, yes=True)
    listed = json.loads((tmp_path / "out/runs/1/files.json").read_text())
    assert (listed["dropped"], listed["bad"]) == ([], []) and not list((tmp_path / "out/bad").rglob("part-*")) and {p.parent.name for p in (tmp_path / "out/dropped").rglob("part-*.parquet")} == {"batch_id=2", "batch_id=3"}
    write(spark, tmp_path / "in", {"0": [("b", "f", at(1), 9)], "4": [("a", "f", at(12), 10), ("a", "g", at(12), 11)]})
    with pytest.raises(ManifestError, match="Batch 0 .* is so old that it would have seen the pairs of 1"): go(spark, tmp_path, retention_days=10, until="0")
    assert go(spark, tmp_path, retention_days=10, since="4").counts["dropped"] == 2


# --- decide, empty, recipe ----------------------------------------------------------------------------------------------

@pytest.mark.long
def test_deciding_claims_nothing_and_sees_what_is_committed(spark, two):
    write(spark, two / "in", {"3": [("a", "f", 3, 8), ("e", "f", 3, 9)]})
    before = files(two / "out/manifest")
    decided = go(spark, two, mode="decide")
    assert decided.counts["dropped"] == 1 and files(two / "out/manifest") == before
    look = run(Config(input=str(two / "in"), output=str(two / "look"), input_format="parquet", mode="decide", batch_id="3"), spark, **QUIET)
    assert look.counts["dropped"] == 0 and not (two / "look/manifest").exists()


def test_a_limit_in_dollars_leaves_the_table_as_it_was(spark, dynamodb, tmp_path):
    write(spark, tmp_path / "in", TWO)
    there = on_dynamodb(dynamodb)
    table = Table(Connection(there["dynamodb_table"], None, dynamodb))
    create_table(table)
    for job in (run, backfill):
        with pytest.raises(DedupError, match="above max_dollars = 0. Nothing was written"): job(config(tmp_path, **{**there, "create_table": False}, max_dollars=0), spark, **QUIET)
    assert items(table) == {} and not (tmp_path / "out").exists()
    go(spark, tmp_path, dynamodb_layout="pairs", max_dollars=1, **there)  # nothing was fixed by then
    assert stayed(spark, tmp_path) == STAYED


@pytest.mark.parametrize("back_end", [pytest.param("lake", marks=pytest.mark.long), "dynamodb"])
def test_a_backfill_stores_its_forecast_for_the_review_and_teaches_no_run(spark, dynamodb, tmp_path, back_end):
    write(spark, tmp_path / "in", TWO)
    there, said = config(tmp_path, **(on_dynamodb(dynamodb) if back_end == "dynamodb" else {})), []
    filled = backfill(there, spark, say=said.append)
    assert said[0].startswith("plan: about ") and [f["new"] for f in filled] == [2, 2]
    past = past_runs(there.output)
    assert [(m["batch_id"], m["backfill"], m["counts"]["read"], m["counts"]["kept"]) for m in past] == [("1", True, 2, 2), ("2", True, 3, 2)]
    told = {(r["batch_id"], r["what"]): r["actual"] for r in review(past)}
    assert told["1", "rows"] == 2 and told["2", "rows"] == 3 and told["1", "seconds"] > 0
    assert ("1", "write_units") not in told if back_end == "lake" else told["1", "write_units"] == 2
    assert main(["plan", "--review", "--output", there.output]) == 0


@pytest.mark.long
def test_an_empty_manifest_beside_events_is_refused_until_it_is_filled_or_accepted(spark, two):
    shutil.rmtree(two / "out/manifest")
    write(spark, two / "in", {"3": [("a", "f", 3, 6), ("e", "f", 3, 7)]})
    for mode in ("decide", "apply"):
        with pytest.raises(ManifestError, match=r"manifest is empty, but .*events has events of 2 batches \(1, 2\).*dedup backfill.*--accept-empty-manifest"): go(spark, two, batch_id="3", mode=mode)
    said = []
    filled = backfill(config(two, until="2"), spark, say=said.append)
    assert [(f["rows"], f["pairs"], f["repeats"], f["known"]) for f in filled] == [(2, 2, 0, 0), (3, 3, 0, 1)] and any("2 of 2 2: 3 events, 0 copies among them (0 %), 1 known from earlier runs" in line for line in said)
    assert backfill(config(two, until="2"), spark, say=said.append) == [] and "Nothing to do" in said[-1]
    with pytest.raises(ManifestError, match="by a backfill, so it is loaded already"): go(spark, two, batch_id="1", rerun=True)
    assert go(spark, two).counts["dropped"] == 1 and "committed (backfill)" in str(runs(config(two), spark))
    shutil.rmtree(two / "out/manifest")
    assert go(spark, two, since="3", accept_empty_manifest=True).counts["dropped"] == 0


@pytest.mark.long
def test_a_loaded_table_fills_the_manifest_day_by_day_under_the_ids_its_events_came_with(spark, tmp_path):
    rows = [("a", "f", "2026-11-01 08:00", None), ("n1", "g", "2026-11-01 09:00", "a"), ("b", "f", "2026-11-02 08:00", None), ("b", "f", "2026-11-03 08:00", None)]
    frame = spark.createDataFrame(rows, "event_id string, event_fingerprint string, etl_tstamp string, original_event_id string")
    frame.withColumn("etl_tstamp", F.to_timestamp("etl_tstamp")).createOrReplaceTempView("loaded")
    source = Config(input="loaded", output=str(tmp_path / "out"), input_format="table")
    done = backfill(source, spark, **QUIET)
    assert [(d["batch_id"], d["rows"], d["repeats"]) for d in done] == [("loaded@2026-11-01", 2, 0), ("loaded@2026-11-02", 2, 1)]
    assert backfill(source, spark, **QUIET) == []
    story = explain("a", Config(output=str(tmp_path / "out"), input_format="table"), spark).data
    assert [(c["fate"], c["first"]) for c in story["claims"]] == [("under its own id", True), ("under a new id", False)]


@pytest.mark.long
def test_forget_abandon_and_expire_say_what_they_would_do_first(spark, two, capsys):
    def said(*words):
        code = main([*words, "--output", str(two / "out")])
        return code, "".join(capsys.readouterr())
    code, text = said("forget", "1")
    assert code == 0 and "Would take the pairs of batch 1 out" in text and "Batches that dropped rows in its favour: 2;" in text and "--yes" in text
    code, text = said("abandon", "1", "--yes")
    assert code == 1 and "Batch 1 is committed: there is no open claim to abandon" in text
    code, text = said("forget", "11", "--yes")
    assert code == 1 and "has no batch 11" in text and "dedup runs" in text
    code, text = said("expire")
    assert code == 0 and "Would remove the keys of 0 batches" in text
    (manifest := open_manifest(spark, config(two))).begin("3", manifest.ledger()[0].etl_time, {"token": "t"})
    code, text = said("forget", "1", "--yes")
    assert code == 1 and "Batch 3 is claimed by process" in text and "dedup abandon 3" in text
    assert said("abandon", "3", "--yes")[0] == said("forget", "1", "--yes")[0] == 0
    code, text = said("runs", "--json")
    assert {r["batch_id"]: r["state"] for r in json.loads(text)} == {"1": "forgotten", "2": "committed", "3": "abandoned"}
    # loaded again: its own event must not fall for the key of it that batch 2 kept alive
    again = go(spark, two)
    assert again.counts["kept"] == 2 and shown(spark, two / "out", "1") == [("b", 2), ("new of a", 1)]


@pytest.mark.long
def test_another_recipe_is_refused_and_forced_on_request(spark, two):
    write(spark, two / "in", {"3": [("a", "f", 3, 6)]})
    with pytest.raises(ManifestError, match="order_by was .*retention_days was 180, is now 7.*--force"): go(spark, two, retention_days=7, order_by="n")
    assert go(spark, two, retention_days=7, order_by="n", force=True).counts["dropped"] == 1
    with pytest.raises(ManifestError, match="retention_days was 7, is now 180"): go(spark, two)


# --- what stands in the way ---------------------------------------------------------------------------------------------

def test_a_manifest_that_cannot_be_written_stops_the_run_before_anything(spark, two):
    (two / "file").write_text("no folder")
    with pytest.raises(ManifestError, match="file/manifest cannot be used.*Nothing was committed"): go(spark, two, manifest_path=str(two / "file" / "manifest"), accept_empty_manifest=True)
    assert stayed(spark, two) == STAYED


def test_another_table_at_the_place_of_the_manifest_is_left_as_it_is(spark, two):
    shutil.rmtree(two / "out/manifest")
    spark.range(3).write.format("delta").save(str(two / "out/manifest"))
    before = files(two / "out/manifest")
    with pytest.raises(ManifestError, match="holds another table"): go(spark, two)
    assert files(two / "out/manifest") == before


def test_failed_runs_give_their_claim_back_and_a_commit_that_was_not_published_is(spark, two, monkeypatch):
    write(spark, two / "in", {"3": [("q", "f", 3, 1), ("q", "f", 3, 2)]})
    before = files(two / "out/events")
    with pytest.raises(DedupError, match="above max_duplicate_share"): go(spark, two, max_duplicate_share=0.1)
    real, state = LakeManifest._write, lambda: open_manifest(spark, config(two), existing=True).ledger()[-1].state
    def full(self, rows, version, mode, **options):
        if mode == "overwrite": raise ManifestError("No space left on device. Nothing was committed")
        return real(self, rows, version, mode, **options)
    assert state() == "abandoned"
    with monkeypatch.context() as patched:
        patched.setattr(LakeManifest, "_write", full)
        with pytest.raises(ManifestError, match="No space left"): go(spark, two)
    assert files(two / "out/events") == before and not (two / "out/runs/3/files.json").exists() and state() == "abandoned"
    def die(*args): raise KeyboardInterrupt
    with monkeypatch.context() as patched:
        patched.setattr("dedup_nb.pipeline.publish", die)
        with pytest.raises(KeyboardInterrupt): go(spark, two)
    assert not (two / "out/runs/3/files.json").exists() and state() == "committed"
    assert go(spark, two).batches == [] and shown(spark, two / "out", "3") in ([("q", 1)], [("q", 2)])
    assert not list((two / "out/.staging").rglob("*.parquet"))


def test_a_commit_whose_answer_is_lost_keeps_its_files(spark, two, monkeypatch):
    "The run is interrupted, asks, hears no, and only then the commit gets through."
    write(spark, two / "in", {"3": [("q", "f", 3, 1)]})
    real, asked, on_its_way = LakeManifest.commit, LakeManifest.is_committed, []
    def interrupted(*args): on_its_way.append(args); raise KeyboardInterrupt
    def ask(self, claim):
        found = asked(self, claim)
        if on_its_way: real(*on_its_way.pop())
        return found
    with monkeypatch.context() as patched:
        patched.setattr(LakeManifest, "commit", interrupted)
        patched.setattr(LakeManifest, "is_committed", ask)
        with pytest.raises(KeyboardInterrupt): go(spark, two)
    assert not (two / "out/runs/3/files.json").exists()
    # named by its id it is committed already, and finished all the same
    summary = go(spark, two, batch_id="3")
    assert summary.batches == [] and "files are published now" in str(summary) and shown(spark, two / "out", "3") == [("q", 1)]


def test_a_run_whose_claim_was_ended_writes_nothing_into_a_delta_table(spark, tmp_path, monkeypatch):
    write(spark, tmp_path / "in", TWO)
    go(spark, tmp_path, output_format="delta", batch_id="1")
    def ended(job): open_manifest(spark, config(tmp_path), existing=True).abandon("2"); return _check_held(job)
    monkeypatch.setattr("dedup_nb.pipeline._check_held", ended)
    with pytest.raises(FencedError, match="claim of batch 2 was taken over or ended"): go(spark, tmp_path, output_format="delta", batch_id="2")
    assert spark.read.format("delta").load(str(tmp_path / "out/events")).count() == 2


def test_a_backfill_takes_what_a_commit_lists_and_names_the_rest(spark, two):
    "A run died after some of its files, and its manifest is gone."
    shutil.copytree(two / "out/events/batch_id=1", two / "out/events/batch_id=9")
    stray = next((two / "out/events/batch_id=2").glob("*.parquet"))
    shutil.copy(stray, stray.with_name("part-stray.parquet"))
    said = []
    filled = backfill(Config(input=str(two / "out/events"), output=str(two / "again"), input_format="parquet", batch_pattern="batch_id=*"), spark, say=said.append)
    assert [(m["batch_id"], m["rows"]) for m in filled] == [("1", 2), ("2", 2)] and "Left out, as no run has committed what lies there: 9." in "".join(said)


@pytest.mark.long
def test_a_batch_without_good_rows_is_blocked_by_no_expiry_and_keeps_its_bad_rows(spark, tmp_path):
    write(spark, tmp_path / "in", {"1": [("a", "f", 1, 1)], "2": [("b", "f", 400 * DAY, 2)]})
    go(spark, tmp_path)
    assert expire(config(tmp_path), spark, yes=True).data["keys_of"] == ["1"]
    write(spark, tmp_path / "in", {"3": [(None, "f", 400 * DAY, 3)]})
    assert go(spark, tmp_path).counts["bad"] == 1
    assert expire(config(tmp_path), spark, audit_days=30, yes=True).data["audit_of"] == ["1"] and list((tmp_path / "out/bad/batch_id=3").glob("*"))
    with pytest.raises(ConfigError, match="audit_days removes rows .*--output"): expire(Config(manifest_path=str(tmp_path / "out/manifest")), spark, audit_days=30)


def test_a_batch_id_may_hold_signs_but_no_path(spark, tmp_path):
    write(spark, tmp_path / "in", {"x": [("a", "f", 1, 1)]})
    one = lambda batch_id: run(Config(input=str(tmp_path / "in/run=x"), output=str(tmp_path / "out"), input_format="parquet", batch_id=batch_id), spark, **QUIET)
    for batch_id in ("../../evil", "a/b", "it's", ".."):
        with pytest.raises(DedupError, match="cannot name a batch"): one(batch_id)
    odd = "a=b+c@d,e-ü"
    assert [m["batch_id"] for m in one(odd).batches] == [odd] and shown(spark, tmp_path / "out", odd) == [("a", 1)]
    assert forget(odd, config(tmp_path), spark, yes=True).data["done"] and {p.name for p in tmp_path.iterdir()} == {"in", "out"}


@pytest.mark.long
def test_the_markers_of_many_batches_are_read_from_one_row(spark, two, monkeypatch):
    monkeypatch.setattr("dedup_nb.manifest._SUMMARY_EVERY", 2)
    write(spark, two / "in", {"3": [("a", "f", 3, 6)]})
    assert go(spark, two).batches[0]["cross_batch"]["dropped_for"] == {"1": 1}
    fresh = lambda: open_manifest(spark, config(two), existing=True)
    assert fresh()._summed == 3 and [(e.batch_id, e.state, e.first_seq) for e in fresh().ledger()] == [(b, "committed", int(b)) for b in "123"]
    forget("2", config(two), spark, yes=True)
    assert [(e.batch_id, e.state) for e in fresh().ledger()] == [("1", "committed"), ("3", "committed"), ("2", "forgotten")]

"""The main job from folder to commit: formats, reruns, bad input, and the sample batches against their known truth."""
import csv, gzip, json, os, shutil
from collections import Counter
from pathlib import Path
import pytest
from pyspark.sql import functions as F
from pyspark.testing import assertDataFrameEqual
from conftest import ROOT
from spread import COMPILED, configured
from dedup_nb import Config, deduplicate, pipeline, run
from dedup_nb.cli import main
from dedup_nb.config import ConfigError, ConservationError, DedupError, InputError, MissingColumnError, OutputError
from dedup_nb.pipeline import check_conservation
from dedup_nb.read import ENRICHED
from dedup_nb.write import Attempt, commit, discard, files_of, write_text

SAMPLES = ROOT / "data_samples"
QUIET = dict(say=lambda line: None)
EVENTS = [  # event_id, event_fingerprint, etl_tstamp, page_url: 7 rows = 1 bad + 4 kept + 2 dropped
    ("a", "f1", "2026-11-20 10:00:00", "/home"), ("a", "f1", "2026-11-20 10:00:03", "/home"), ("a", "f2", "2026-11-20 10:00:09", "/cart"),
    ("b", "f1", "2026-11-20 10:00:00", "/home"), ("b", "f1", "2026-11-20 10:00:00", "/home"), ("c", "f1", "2026-11-20 10:00:00", "/home"), (None, "f1", "2026-11-20 10:00:00", "/home"),
]
COUNTS = {"read": 7, "bad": 1, "kept": 4, "dropped": 2, "renamed": 1, "suspects": 5}


@pytest.fixture
def events(spark):
    return spark.createDataFrame(EVENTS, "event_id string, event_fingerprint string, etl_tstamp string, page_url string").withColumn("etl_tstamp", F.to_timestamp("etl_tstamp"))


def kept(spark, output, batch="in"):
    listed = json.loads(Path(output, "runs", batch, "files.json").read_text())
    return spark.read.parquet(*[str(Path(output, f["path"])) for f in listed["events"]])


def rows(frame): return Counter(tuple(map(str, r)) for r in frame.select(sorted(frame.columns)).collect())


def files(folder): return sorted(str(p.relative_to(folder)) for p in Path(folder).rglob("*") if p.is_file() and not p.name.startswith("."))


# --- the sample batches -------------------------------------------------------------------------------------------------

def truth(batch):
    with open(SAMPLES / "truth.csv") as file: return [r for r in csv.DictReader(file) if r["batch_id"] == batch]


def test_the_sample_batches_meet_their_truth_row_by_row(spark, tmp_path):
    summary = run(Config(input=str(SAMPLES), output=str(tmp_path / "out"), manifest="none"), spark, **QUIET)
    batches = sorted(p.name.removeprefix("run=") for p in SAMPLES.glob("run=*"))
    assert [m["batch_id"] for m in summary.batches] == batches
    for m in summary.batches:
        expected = truth(m["batch_id"])
        fates = Counter(r["fate_alone"] for r in expected)
        assert (m["counts"]["bad"], m["counts"]["dropped"], m["counts"]["renamed"]) == (fates["bad"], fates["dropped"], fates["renamed"])
        assert m["counts"]["kept"] == fates["kept"] + fates["renamed"] and m["counts"]["read"] == len(expected)
        assert m["reasons"] == Counter(r["reason_alone"] for r in expected if r["fate_alone"] == "dropped")
        stays = kept(spark, tmp_path / "out", m["batch_id"]).select(F.coalesce("original_event_id", "event_id"), F.col("original_event_id").isNotNull()).collect()
        goes = spark.read.parquet(str(tmp_path / f"out/dropped/batch_id={m['batch_id']}")).select("event_id").collect()
        found = Counter((i, "renamed" if new else "kept") for i, new in stays) + Counter((i, "dropped") for i, in goes)
        assert found == Counter((r["event_id"], r["fate_alone"]) for r in expected if r["fate_alone"] != "bad")


def test_ids_are_unique_in_every_kept_sample_batch_and_all_dropped_rows_point_at_a_kept_one(spark, tmp_path):
    batch = sorted(SAMPLES.glob("run=*"))[0].name.removeprefix("run=")
    run(Config(input=str(SAMPLES), output=str(tmp_path), batch_id=batch, manifest="none"), spark, **QUIET)
    stays = kept(spark, tmp_path, batch)
    assert stays.count() == stays.select("event_id").distinct().count()
    goes = spark.read.parquet(str(tmp_path / f"dropped/batch_id={batch}"))
    assert goes.join(stays, goes["dedup.kept_event_id"] == stays["event_id"], "left_anti").count() == 0
    assert {r[0] for r in goes.select("dedup.kept_in_batch").distinct().collect()} == {batch}


# --- formats ------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("kind", ["json", "parquet", "delta", "table"])
def test_every_input_format_gives_the_same_rows(spark, events, tmp_path, kind):
    source = str(tmp_path / "in")
    if kind == "json": events.write.option("ignoreNullFields", "false").json(source)
    elif kind == "table": source = "in"; events.createOrReplaceTempView("in")
    else: events.write.format(kind).save(source)
    summary = run(Config(input=source, output=str(tmp_path / "out"), input_format=kind, manifest="none"), spark, **QUIET)
    assert summary.counts == COUNTS
    ids = [r.event_id for r in kept(spark, tmp_path / "out").orderBy("event_fingerprint", "event_id").collect()]
    assert ids[:3] == ["a", "b", "c"] and len(ids[3]) == 36


@pytest.mark.parametrize("kind", ["parquet", "delta", "json"])
def test_every_output_format_holds_the_same_rows(spark, events, tmp_path, kind):
    events.write.parquet(str(tmp_path / "in"))
    run(Config(input=str(tmp_path / "in"), output=str(tmp_path / "out"), input_format="parquet", output_format=kind, manifest="none"), spark, **QUIET)
    path = str(tmp_path / "out/events") + ("" if kind == "delta" else "/batch_id=in")
    found = spark.read.format(kind).load(path)
    assert set(found.columns) - {"batch_id"} == {*events.columns, "original_event_id"}
    expected = deduplicate(events).kept.select("event_id", "event_fingerprint", "page_url", "original_event_id")
    assertDataFrameEqual(found.select(*expected.columns), expected)


def test_a_delta_output_replaces_only_its_own_batch(spark, events, tmp_path):
    for name in ("in", "other"): events.where("event_id is not null").write.parquet(str(tmp_path / name))
    for name in ("in", "other", "in"):
        run(Config(input=str(tmp_path / name), output=str(tmp_path / "out"), input_format="parquet", output_format="delta", manifest="none"), spark, **QUIET)
    table = spark.read.format("delta").load(str(tmp_path / "out/events"))
    assert {r.batch_id: r["count"] for r in table.groupBy("batch_id").count().collect()} == {"in": 4, "other": 4}


@pytest.mark.long
def test_enriched_tsv_out_is_131_columns_and_reads_back_as_the_same_events(spark, tmp_path):
    batch = sorted(SAMPLES.glob("run=*"))[0].name.removeprefix("run=")
    once = run(Config(input=str(SAMPLES), output=str(tmp_path / "tsv"), output_format="enriched_tsv", batch_id=batch, manifest="none"), spark, **QUIET)
    lines = [line for f in (tmp_path / f"tsv/events/batch_id={batch}").glob("part-*") for line in f.read_text().split("\n") if line]
    assert len(lines) == once.counts["kept"] and {line.count("\t") for line in lines} == {130}
    again = run(Config(input=str(tmp_path / f"tsv/events/batch_id={batch}"), output=str(tmp_path / "again"), manifest="none"), spark, **QUIET)
    assert again.counts == {**once.counts, "read": once.counts["kept"], "bad": 0, "dropped": 0, "renamed": 0, "suspects": 0}
    run(Config(input=str(SAMPLES), output=str(tmp_path / "parquet"), batch_id=batch, manifest="none"), spark, **QUIET)
    one, two = kept(spark, tmp_path / "parquet", batch).drop("original_event_id"), kept(spark, tmp_path / "again", f"batch_id={batch}").drop("original_event_id")
    assert rows(one) == rows(two)


def test_enriched_tsv_out_refuses_columns_that_have_no_place_in_it(spark, events, tmp_path):
    events.withColumn("colour", F.lit("red")).write.parquet(str(tmp_path / "in"))
    with pytest.raises(OutputError, match="no column for colour"): counts(spark, tmp_path, input_format="parquet", output_format="enriched_tsv")


def test_partition_by_makes_folders_by_column_and_by_utc_day(spark, events, tmp_path):
    events.where("event_id is not null").write.parquet(str(tmp_path / "in"))
    run(Config(input=str(tmp_path / "in"), output=str(tmp_path / "out"), input_format="parquet", partition_by="page_url,etl_tstamp:date", manifest="none"), spark, **QUIET)
    found = {str(Path(f).parent) for f in files(tmp_path / "out/events/batch_id=in")}
    assert found == {"page_url=%2Fhome/etl_tstamp_date=2026-11-20", "page_url=%2Fcart/etl_tstamp_date=2026-11-20"}


# --- what a run leaves --------------------------------------------------------------------------------------------------

@pytest.fixture
def done(spark, events, tmp_path):
    events.write.parquet(str(tmp_path / "in"))
    config = Config(input=str(tmp_path / "in"), output=str(tmp_path / "out"), input_format="parquet", manifest="none")
    return config, run(config, spark, **QUIET)


def test_a_run_leaves_what_it_says(spark, done, tmp_path):
    config, summary = done
    assert summary.counts == COUNTS and summary.batches[0]["reasons"] == {"natural": 2} and summary.batches[0]["verdicts"] == {"keep_first": 2, "rename": 1}
    assert {Path(f).parts[0] for f in files(tmp_path / "out")} == {"events", "dropped", "bad", "verdicts", "runs"}
    assert not (tmp_path / "out/.staging").exists() or not any((tmp_path / "out/.staging").rglob("*.parquet"))
    goes = spark.read.parquet(str(tmp_path / "out/dropped/batch_id=in"))
    assert goes.columns == ["event_id", "event_fingerprint", "etl_tstamp", "page_url", "dedup"] and goes.select("dedup.*").columns == ["reason", "kept_event_id", "kept_in_batch"]
    verdicts = spark.read.parquet(str(tmp_path / "out/verdicts/batch_id=in"))
    assert verdicts.columns == ["event_id", "event_fingerprint", "copies", "verdict", "reason", "new_event_id", "seen_in_batch"]
    bad = json.loads("".join(p.read_text() for p in (tmp_path / "out/bad/batch_id=in").glob("part-*")))
    assert "generic_error" in bad["schema"] and "page_url" in bad["data"]["payload"]


def test_files_json_lists_the_files_and_is_a_redshift_manifest(done, tmp_path):
    listed = json.loads((tmp_path / "out/runs/in/files.json").read_text())
    assert {f["path"] for area in ("events", "dropped", "verdicts", "bad") for f in listed[area]} == {f for f in files(tmp_path / "out") if not f.startswith("runs")}
    assert [e["url"] for e in listed["entries"]] == [f"file://{tmp_path}/out/{f['path']}" for f in listed["events"]]
    assert all(e["mandatory"] and e["meta"]["content_length"] == os.path.getsize(e["url"][7:]) for e in listed["entries"])
    assert json.loads((tmp_path / "out/runs/in/copy_manifest.json").read_text()) == {"entries": listed["entries"]}


def test_metrics_hold_the_numbers_and_no_secret(spark, events, tmp_path):
    events.write.parquet(str(tmp_path / "in"))
    run(Config(input=str(tmp_path / "in"), output=str(tmp_path / "out"), input_format="parquet", duplicate_storage_config="geheim", manifest="none"), spark, **QUIET)
    text = (tmp_path / "out/runs/in/metrics.json").read_text()
    m = json.loads(text)
    assert m["counts"] == COUNTS and m["etl_time"] == "2026-11-20T10:00:00Z" and m["status"] == "committed" and "geheim" not in text
    assert set(m["seconds"]) == {"read", "suspects", "natural", "synthetic", "resolve", "clean", "commit", "total"} and m["versions"]["spark"] == spark.version
    assert "<svg" in (tmp_path / "out/runs/in/report.html").read_text()


def test_a_rerun_gives_the_same_rows_and_replaces_its_own_files_only(spark, events, done, tmp_path):
    config, _ = done
    events.write.parquet(str(tmp_path / "other")); run(Config(input=str(tmp_path / "other"), output=config.output, input_format="parquet", manifest="none"), spark, **QUIET)
    before, other = files(tmp_path / "out/events/batch_id=in"), files(tmp_path / "out/events/batch_id=other")
    first = rows(kept(spark, config.output))
    run(config, spark, **QUIET)
    assert rows(kept(spark, config.output)) == first
    assert not set(files(tmp_path / "out/events/batch_id=in")) & set(before) and files(tmp_path / "out/events/batch_id=other") == other


def test_decide_writes_only_verdicts_counts_and_the_report(spark, events, tmp_path):
    events.write.parquet(str(tmp_path / "in"))
    config = dict(input=str(tmp_path / "in"), input_format="parquet", manifest="none")
    decided = run(Config(**config, output=str(tmp_path / "decided"), mode="decide"), spark, **QUIET)
    applied = run(Config(**config, output=str(tmp_path / "applied")), spark, **QUIET)
    assert decided.counts == applied.counts and decided.batches[0]["reasons"] == applied.batches[0]["reasons"]
    assert {Path(f).parts[0] for f in files(tmp_path / "decided")} == {"verdicts", "runs"}
    assertDataFrameEqual(spark.read.parquet(str(tmp_path / "decided/verdicts/batch_id=in")), spark.read.parquet(str(tmp_path / "applied/verdicts/batch_id=in")))


def test_decide_does_not_replace_the_record_of_an_applied_batch(done, spark):
    config, _ = done
    with pytest.raises(ConfigError, match="already applied"): run(Config(input=config.input, output=config.output, input_format="parquet", mode="decide", manifest="none"), spark, **QUIET)


def test_a_decided_batch_can_be_applied(spark, events, tmp_path):
    events.write.parquet(str(tmp_path / "in"))
    for mode in ("decide", "apply"): summary = run(Config(input=str(tmp_path / "in"), output=str(tmp_path / "out"), input_format="parquet", mode=mode, manifest="none"), spark, **QUIET)
    assert summary.counts == COUNTS and kept(spark, tmp_path / "out").count() == 4


def test_progress_is_one_line_per_stage(spark, events, tmp_path):
    events.write.parquet(str(tmp_path / "in")); said = []
    run(Config(input=str(tmp_path / "in"), output=str(tmp_path / "out"), input_format="parquet", manifest="none"), spark, say=said.append)
    plan, *said = said
    assert plan.startswith("plan: about ") and said[0] == "batch in" and [line.split()[3].rstrip(":") for line in said[1:]] == ["read", "suspects", "natural", "synthetic", "resolve", "clean", "commit"]
    assert said[3].startswith("  3 of 7 natural: 5 in, 2 dropped (40 %), ") and said[3].endswith(" s")


# --- batches ------------------------------------------------------------------------------------------------------------

@pytest.fixture
def archive(spark, events, tmp_path):
    for day in ("2026-11-18", "2026-11-19", "2026-11-20"): events.write.parquet(str(tmp_path / f"archive/run={day}"))
    return dict(input=str(tmp_path / "archive"), output=str(tmp_path / "out"), input_format="parquet", manifest="none")


@pytest.mark.parametrize("more, expected", [
    ({}, ["2026-11-18", "2026-11-19", "2026-11-20"]), ({"batch_id": "2026-11-19"}, ["2026-11-19"]), ({"since": "2026-11-19"}, ["2026-11-19", "2026-11-20"]),
    ({"until": "2026-11-18"}, ["2026-11-18"]), ({"skip_batches": "2026-11-18,2026-11-20"}, ["2026-11-19"]), ({"since": "2026-11", "max_batches": 1}, ["2026-11-18"]), ({"since": "2027"}, []),
])
def test_batches_are_chosen_by_the_settings(spark, archive, more, expected):
    summary = run(Config(**archive, **more), spark, **QUIET)
    assert [m["batch_id"] for m in summary.batches] == expected
    if not expected: assert "Nothing to do" in str(summary)


def test_more_batches_than_allowed_are_refused_with_the_list(archive):
    with pytest.raises(ConfigError, match="3 batches are to do, more than max_batches = 2: 2026-11-18"): run(Config(**archive, max_batches=2))


def test_a_failing_batch_stops_the_run_and_leaves_the_earlier_ones_committed(spark, archive, tmp_path):
    spark.range(3).write.parquet(str(tmp_path / "archive/run=2026-11-19b"))
    with pytest.raises(MissingColumnError): run(Config(**archive), spark, **QUIET)
    assert [p.name for p in sorted((tmp_path / "out/runs").iterdir()) if p.is_dir()] == ["2026-11-18", "2026-11-19"]


# --- bad input ----------------------------------------------------------------------------------------------------------

def tsv(path, *lines, end="\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(end.join(lines).encode() if lines and isinstance(lines[0], str) else b"\n".join(lines))


def line(event_id="83c1293c-9788-4607-a11c-f291161a7a5a", **more):
    values = {"event_id": event_id, "collector_tstamp": "2026-11-20 10:00:00.000", "v_collector": "ssc", "v_etl": "spark", "event_fingerprint": "f1", **more}
    return "\t".join(values.get(name, "") for name, _ in ENRICHED)


def counts(spark, tmp_path, **more):
    return run(Config(input=str(tmp_path / "in"), output=str(tmp_path / "out"), manifest="none", **more), spark, **QUIET).counts


def test_a_missing_input_names_what_is_near(spark, tmp_path):
    (tmp_path / "inn").mkdir()
    with pytest.raises(InputError, match="inn"): counts(spark, tmp_path)


def test_an_empty_input_is_a_valid_run_with_zero_rows(spark, tmp_path):
    (tmp_path / "in").mkdir()
    assert counts(spark, tmp_path) == dict.fromkeys(COUNTS, 0)
    assert json.loads((tmp_path / "out/runs/in/files.json").read_text())["counts"]["read"] == 0


def test_an_empty_file_is_a_valid_run_with_zero_rows(spark, tmp_path):
    tsv(tmp_path / "in/part-0.txt"); (tmp_path / "in/part-1.txt.gz").write_bytes(gzip.compress(b""))
    assert counts(spark, tmp_path)["read"] == 0


def test_a_folder_without_good_rows_is_all_bad(spark, tmp_path):
    tsv(tmp_path / "in/part-0.txt", "x", "", "a\tb")
    assert counts(spark, tmp_path) == {**dict.fromkeys(COUNTS, 0), "read": 3, "bad": 3}


@pytest.mark.parametrize("input_format", ["json", "parquet"])
@pytest.mark.parametrize("steps", [{}, {"natural": "off", "synthetic": "off"}])
def test_a_batch_without_ids_ends_under_adaptive_execution_and_says_what_to_check(spark, tmp_path, input_format, steps):
    # adaptive execution cuts away what stands on an empty shuffle, and an observation there would be waited for in vain
    if input_format == "json": tsv(tmp_path / "in/part-0.json", '{"event_id": null, "n": 1}', '{"event_id": "", "n": 2}')
    else: spark.createDataFrame([(None, 1), ("", 2)], "event_id string, n int").write.parquet(str(tmp_path / "in"))
    with configured(spark, COMPILED):
        summary = run(Config(input=str(tmp_path / "in"), output=str(tmp_path / "out"), manifest="none", input_format=input_format, **steps), spark, **QUIET)
    assert summary.counts == {**dict.fromkeys(COUNTS, 0), "read": 2, "bad": 2}
    assert f"is input_format={input_format} right?" in str(summary)


def test_a_truncated_gzip_fails_names_the_file_and_commits_nothing(spark, tmp_path):
    (tmp_path / "in").mkdir(); (tmp_path / "in/part-0.txt.gz").write_bytes(gzip.compress("\n".join(line() for _ in range(5000)).encode())[:-40])
    with pytest.raises(InputError, match="part-0.txt.gz"): counts(spark, tmp_path)
    assert not (tmp_path / "out/runs/in").exists() and not any((tmp_path / "out").rglob("part-*"))


def test_a_line_of_10_mb_is_an_event_like_any_other(spark, tmp_path):
    tsv(tmp_path / "in/part-0.txt", line(page_title="x" * 10_000_000), line())
    assert counts(spark, tmp_path) == {**COUNTS, "read": 2, "bad": 0, "kept": 1, "dropped": 1, "renamed": 0, "suspects": 2}


def test_nul_bytes_invalid_utf8_crlf_and_a_byte_order_mark_lose_no_row(spark, tmp_path):
    ids = [f"83c1293c-9788-4607-a11c-f2911600000{n}" for n in range(4)]
    good = [line(ids[0], page_title="a\0b").encode(), line(ids[1]).encode().replace(b"ssc", b"s\xffc") + b"\r", line(ids[2]).encode() + b"\r", line(ids[3]).encode()]
    (tmp_path / "in").mkdir(); (tmp_path / "in/part-0.txt").write_bytes(b"\xef\xbb\xbf" + b"\n".join(good))
    assert counts(spark, tmp_path)["kept"] == 4
    found = {r.event_id: r for r in kept(spark, tmp_path / "out").collect()}
    assert found[ids[0]].page_title == "a\0b" and found[ids[0]].app_id is None and found[ids[1]].v_collector == "s\ufffdc" and found[ids[2]].true_tstamp is None


def test_too_few_and_too_many_columns_and_ids_that_are_no_uuid_are_bad_rows(spark, tmp_path):
    tsv(tmp_path / "in/part-0.txt", line()[:-1], line() + "\t", line("not-a-uuid"), line())
    # the good row shares its id with bad ones, so it was looked at, and found to be alone
    assert counts(spark, tmp_path) == {**dict.fromkeys(COUNTS, 0), "read": 4, "bad": 3, "kept": 1, "suspects": 1}


def test_an_id_that_is_no_uuid_is_a_plain_string_elsewhere(spark, tmp_path):
    spark.createDataFrame([("X-1",), ("x-1",), ("X-1",)], "event_id string").write.parquet(str(tmp_path / "in"))
    assert counts(spark, tmp_path, input_format="parquet")["kept"] == 2


def test_columns_named_like_ours(spark, tmp_path, events):
    events.withColumn("reason", F.lit("r")).withColumn("original_event_id", F.when(F.col("event_id") == "c", "z")).write.parquet(str(tmp_path / "in"))
    assert counts(spark, tmp_path, input_format="parquet") == COUNTS
    found = {r.event_id: r for r in kept(spark, tmp_path / "out").collect()}
    assert found["c"].original_event_id == "z" and found["c"].reason == "r" and sorted(str(r.original_event_id) for r in found.values()) == ["None", "None", "a", "z"]
    events.withColumn("dedup", F.lit("x")).write.parquet(str(tmp_path / "ours"))
    with pytest.raises(InputError, match="dedup"): run(Config(input=str(tmp_path / "ours"), output=str(tmp_path / "out2"), input_format="parquet", manifest="none"), spark, **QUIET)


def test_a_named_column_that_is_not_there(spark, tmp_path, events):
    events.write.parquet(str(tmp_path / "in"))
    with pytest.raises(MissingColumnError, match="needs etl_tsamp; the input has .* Did you mean etl_tstamp?"): counts(spark, tmp_path, input_format="parquet", order_by="etl_tsamp")
    with pytest.raises(MissingColumnError, match="Did you mean event_id?"): counts(spark, tmp_path, input_format="parquet", event_id="eventid")


def test_a_wrong_type_in_an_order_column(spark, tmp_path, events):
    events.withColumn("m", F.create_map(F.lit("a"), F.lit(1))).write.parquet(str(tmp_path / "in"))
    with pytest.raises(InputError, match="order column m is map<string,int>"): counts(spark, tmp_path, input_format="parquet", order_by="m")


def test_an_output_that_is_not_writable(spark, tmp_path, events):
    events.write.parquet(str(tmp_path / "in")); (tmp_path / "out").write_text("a file is in the way")
    with pytest.raises(OutputError, match="Cannot write .*out"): counts(spark, tmp_path, input_format="parquet")


def test_another_recipe_for_the_same_output_is_refused(spark, done, tmp_path):
    config, _ = done
    with pytest.raises(OutputError, match="event_id was event_id, is now page_url"):
        run(Config(input=config.input, output=config.output, input_format="parquet", event_id="page_url", manifest="none"), spark, **QUIET)


@pytest.mark.parametrize("limit, words", [({"max_duplicate_share": 0.3}, "max_duplicate_share"), ({"max_bad_share": 0.1}, "max_bad_share")])
def test_a_breached_limit_stops_before_the_commit(spark, events, tmp_path, limit, words):
    events.write.parquet(str(tmp_path / "in"))
    with pytest.raises(DedupError, match=words): counts(spark, tmp_path, input_format="parquet", **limit)
    assert not (tmp_path / "out/runs/in").exists() and not any((tmp_path / "out").rglob("part-*"))


@pytest.mark.parametrize("committed", [True, False])
def test_a_failure_removes_the_files_of_an_attempt_only_if_it_has_not_committed(tmp_path, committed):
    attempt = Attempt.new(str(tmp_path), "b")
    write_text(f"{attempt.folder('events')}/part-{attempt.token}-0.parquet", "rows")
    if committed: commit(attempt, {"events": files_of(attempt, "events")}, {})
    discard(attempt)
    assert bool(files_of(attempt, "events")) == committed


def test_rows_that_do_not_add_up_name_the_term_that_is_off():
    with pytest.raises(ConservationError, match="dropped: 1 written, 2 expected"): check_conservation(6, {"bad": 1, "kept": 3, "dropped": 1}, {"bad": 1, "kept": 3, "dropped": 2})
    with pytest.raises(ConservationError, match="did the input change"): check_conservation(7, {"bad": 1, "kept": 3, "dropped": 2}, {"bad": 1, "kept": 3, "dropped": 2})


def test_files_of_one_batch_may_differ_in_columns_but_not_in_types(spark, tmp_path):
    spark.createDataFrame([("a", 1)], "event_id string, n int").write.parquet(str(tmp_path / "in/x"))
    spark.createDataFrame([("b", "y")], "event_id string, page string").write.parquet(str(tmp_path / "in/y"))
    assert counts(spark, tmp_path, input_format="parquet")["kept"] == 2 and set(kept(spark, tmp_path / "out").columns) == {"event_id", "n", "page", "original_event_id"}
    spark.createDataFrame([("c", "1")], "event_id string, n string").write.parquet(str(tmp_path / "in/z"))
    with pytest.raises(InputError, match=r"\bn\b") as wrong: run(Config(input=str(tmp_path / "in"), output=str(tmp_path / "out2"), input_format="parquet", manifest="none"), spark, **QUIET)
    assert "part-" in str(wrong.value)


def test_nothing_repeats(spark, tmp_path, events):
    events.dropDuplicates(["event_id"]).where("event_id is not null").write.parquet(str(tmp_path / "in"))
    assert counts(spark, tmp_path, input_format="parquet") == {**dict.fromkeys(COUNTS, 0), "read": 3, "kept": 3}


def test_everything_off_keeps_everything(spark, tmp_path, events):
    events.write.parquet(str(tmp_path / "in"))
    assert counts(spark, tmp_path, input_format="parquet", natural="off", synthetic="off") == {**dict.fromkeys(COUNTS, 0), "read": 7, "bad": 1, "kept": 6}


def test_more_suspects_than_can_be_broadcast_are_joined_by_shuffle(spark, tmp_path, events, monkeypatch):
    monkeypatch.setattr("dedup_nb.pipeline.BROADCAST_LIMIT", 1); said = []
    events.write.parquet(str(tmp_path / "in"))
    assert run(Config(input=str(tmp_path / "in"), output=str(tmp_path / "out"), input_format="parquet", manifest="none"), spark, say=said.append).counts == COUNTS
    assert any("too many to broadcast" in s for s in said)


def test_the_command_runs_and_prints_only_json_when_asked(spark, tmp_path, events, capsys):
    events.write.parquet(str(tmp_path / "in"))
    words = ["run", "--input", "in", "--output", "out", "--input-format", "parquet", "--set", "manifest=none"]
    assert main(words) == 0 and "7 rows read = 1 bad + 4 kept + 2 dropped" in capsys.readouterr().out
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"] == COUNTS


# --- the peers' recorded events -----------------------------------------------------------------------------------------

@pytest.mark.parametrize("case, read, bad, more", [
    ("WideRowJsonSpec", 50, 2, {}), ("bad_InvalidJsonsSpec", 1, 1, {}), ("DerivedContextsSpec", 1, 0, {}), ("LinkClickEventSpec", 1, 0, {}), ("MultipleJsonsSpec", 1, 0, {}),
    ("EventDeduplicationSpec_disabled", 3, 0, {"natural": "off", "synthetic": "off"}),
])
def test_recorded_events(spark, tmp_path, conformance, case, read, bad, more):
    (tmp_path / "in").mkdir(); shutil.copy(conformance / "snowplow" / case / "input.tsv", tmp_path / "in")
    found = counts(spark, tmp_path, **more)
    assert (found["read"], found["bad"], found["kept"]) == (read, bad, read - bad)


@pytest.mark.long
def test_a_limit_stops_a_delta_output_before_the_table_changes(spark, events, tmp_path):
    events.limit(1).write.parquet(str(tmp_path / "in"))
    config = dict(input=str(tmp_path / "in"), output=str(tmp_path / "o ut"), input_format="parquet", output_format="delta", manifest="none")
    run(Config(**config), spark, **QUIET)
    before = rows(spark.read.format("delta").load(str(tmp_path / "o ut/events")))
    events.write.mode("append").parquet(str(tmp_path / "in"))
    with pytest.raises(DedupError, match="Nothing was committed"): run(Config(**config, max_duplicate_share=0.01), spark, **QUIET)
    assert rows(spark.read.format("delta").load(str(tmp_path / "o ut/events"))) == before


def test_a_run_that_was_overtaken_commits_nothing(spark, events, tmp_path, monkeypatch):
    events.write.parquet(str(tmp_path / "in"))
    config, real, nested = Config(input=str(tmp_path / "in"), output=str(tmp_path / "out"), input_format="parquet", manifest="none"), pipeline._check_shares, []
    def overtaken(*args):
        if not nested: nested.append(True); run(config, spark, **QUIET)
        return real(*args)
    monkeypatch.setattr(pipeline, "_check_shares", overtaken)
    with pytest.raises(OutputError, match="Another run has written batch in"): run(config, spark, **QUIET)
    assert kept(spark, tmp_path / "out").count() == 4


@pytest.mark.parametrize("partition_by, words", [("n:date", "wanted a timestamp or a date; n is int"), ("etl_tstamp:date", "which the input has already"), ("pge_url", "Did you mean page_url")])
def test_a_partition_that_does_not_fit_is_refused_before_anything_is_staged(spark, events, tmp_path, partition_by, words):
    events.withColumns({"n": F.lit(1), "etl_tstamp_date": F.lit("mine")}).write.parquet(str(tmp_path / "in"))
    with pytest.raises(OutputError, match=words): run(Config(input=str(tmp_path / "in"), output=str(tmp_path / "out"), input_format="parquet", partition_by=partition_by, manifest="none"), spark, **QUIET)
    assert not files(tmp_path / "out/events")


def test_brackets_in_an_output_path_are_no_pattern(spark, events, tmp_path):
    events.write.parquet(str(tmp_path / "in"))
    assert run(Config(input=str(tmp_path / "in"), output=str(tmp_path / "out[1]"), input_format="parquet", manifest="none"), spark, **QUIET).counts == COUNTS


def test_the_time_of_a_batch_does_not_depend_on_the_time_zone(spark, events, tmp_path):
    events.withColumn("etl_tstamp", F.date_format("etl_tstamp", "yyyy-MM-dd HH:mm:ss")).write.parquet(str(tmp_path / "in"))
    with configured(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        summary = run(Config(input=str(tmp_path / "in"), output=str(tmp_path / "out"), input_format="parquet", manifest="none"), spark, **QUIET)
    assert summary.batches[0]["etl_time"] == "2026-11-20T10:00:00Z"


def test_settings_that_do_nothing_for_a_frame_are_refused(events):
    with pytest.raises(ConfigError, match="max_bad_share, minimum_timestamp would do nothing"): deduplicate(events, minimum_timestamp="2026-01-01", max_bad_share=0.1)

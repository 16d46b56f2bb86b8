"""One run at a time: formats in and out, what is refused before any work, alarms, deciding."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from inputs import line
from pyspark.sql import functions as F
from runs import STAYED, TWO, committed, counted_rows, files, go, heard, record, shown, write
from spread import COMPILED, configured

from dedup_nb import Config, deduplicate, run
from dedup_nb.base.errors import (
    AlarmError,
    BusyError,
    ConfigError,
    ConservationError,
    DedupError,
    InputError,
    MissingColumnError,
    OutputError,
)
from dedup_nb.pipeline import decide
from dedup_nb.pipeline.commit import check_conservation, commit_record, discard, publish
from dedup_nb.pipeline.write import Attempt, files_of

EVENTS = [  # 7 rows = 1 bad + 4 kept + 2 dropped
    ("a", "f1", "2026-11-20 10:00:00", "/home"),
    ("a", "f1", "2026-11-20 10:00:03", "/home"),
    ("a", "f2", "2026-11-20 10:00:09", "/cart"),
    ("b", "f1", "2026-11-20 10:00:00", "/home"),
    ("b", "f1", "2026-11-20 10:00:00", "/home"),
    ("c", "f1", "2026-11-20 10:00:00", "/home"),
    (None, "f1", "2026-11-20 10:00:00", "/home"),
]
COUNTS = {"read": 7, "bad": 1, "kept": 4, "dropped": 2, "renamed": 1, "suspects": 5}
NONE = dict.fromkeys(COUNTS, 0)


@pytest.fixture(scope="module")
def events(spark):
    frame = spark.createDataFrame(
        EVENTS, "event_id string, event_fingerprint string, etl_tstamp string, page_url string"
    )
    return frame.withColumn("etl_tstamp", F.to_timestamp("etl_tstamp"))


@pytest.fixture(scope="module")
def source(events, tmp_path_factory):
    "The events as a folder of Parquet."
    path = tmp_path_factory.mktemp("events") / "in"
    events.write.parquet(str(path))
    return path


def alone(source, output, **more):
    return Config(
        **{"input": str(source), "output": str(output), "input_format": "parquet", "manifest": "none", **more}
    )


def one(spark, source, output, **more):
    return run(alone(source, output, **more), spark)


def test_rows_that_a_lost_task_counted_twice_are_counted_again(spark, source, tmp_path, monkeypatch):
    counted = decide.scan_ids
    twice = lambda *given: replace(scan := counted(*given), read=scan.read + 2)
    monkeypatch.setattr(decide, "scan_ids", twice)
    assert one(spark, source, tmp_path, carry="spark").counts == COUNTS


# --- formats ---


@pytest.mark.parametrize("kind", ["json", "table", pytest.param("delta", marks=pytest.mark.slow)])
def test_every_input_format_gives_the_same_rows(spark, events, tmp_path, kind):
    source = tmp_path / "in"
    if kind == "json":
        events.write.option("ignoreNullFields", "false").json(str(source))
    elif kind == "table":
        source = "in"
        events.createOrReplaceTempView("in")
    else:
        events.write.format(kind).save(str(source))
    assert one(spark, source, tmp_path / "out", input_format=kind).counts == COUNTS
    ids = committed(spark, tmp_path / "out", "in").orderBy("event_fingerprint", "event_id").collect()
    assert [r.event_id for r in ids][:3] == ["a", "b", "c"] and len(ids[3].event_id) == 36


@pytest.fixture(scope="module")
def expected(events):
    kept = deduplicate(events).kept.select("event_id", "event_fingerprint", "page_url", "original_event_id")
    return counted_rows(kept)


# most other tests read Parquet
@pytest.mark.parametrize("kind", ["delta", "json"])
def test_every_output_format_holds_the_same_rows(spark, events, expected, source, tmp_path, kind):
    one(spark, source, tmp_path, output_format=kind)
    path = str(tmp_path / "events") + ("" if kind == "delta" else "/batch_id=in/*")
    found = spark.read.format(kind).load(path)
    assert set(found.columns) - {"batch_id"} == {*events.columns, "original_event_id"}
    assert (
        counted_rows(found.select("event_id", "event_fingerprint", "page_url", "original_event_id"))
        == expected
    )


@pytest.mark.slow
def test_a_delta_output_replaces_only_its_own_batch_and_nothing_after_an_alarm(
    spark, source, events, tmp_path
):
    output = dict(output_format="delta")
    for name in ("in", "other", "in"):
        one(spark, source, tmp_path / "o ut", batch_id=name, **output)
    table = lambda: spark.read.format("delta").load(str(tmp_path / "o ut/events"))
    before = counted_rows(table())
    assert {r.batch_id: r["count"] for r in table().groupBy("batch_id").count().collect()} == {
        "in": 4,
        "other": 4,
    }
    with pytest.raises(AlarmError, match="Nothing was committed"):
        one(spark, source, tmp_path / "o ut", batch_id="in", max_duplicate_share=0.01, **output)
    assert counted_rows(table()) == before


@pytest.mark.slow
def test_enriched_tsv_out_is_131_columns_and_reads_back_as_the_same_events(spark, tmp_path):
    from runs import SAMPLES

    from dedup_nb.formats.enriched import decoded

    batch = sorted(SAMPLES.glob("run=*"))[0].name.removeprefix("run=")
    this = dict(input_format="enriched_tsv", batch_id=batch)
    once = one(spark, SAMPLES, tmp_path / "tsv", output_format="enriched_tsv", **this)
    folder = tmp_path / f"tsv/events/batch_id={batch}"
    lines = [line for f in folder.glob("*/part-*") for line in f.read_text().split("\n") if line]
    assert len(lines) == once.counts["kept"] and {line.count("\t") for line in lines} == {130}
    one(spark, SAMPLES, tmp_path / "parquet", **this)
    first = committed(spark, tmp_path / "parquet", batch).drop("original_event_id")
    again = decoded(spark.read.text(f"{folder}/*"))
    assert again.where("not _dd_good").isEmpty() and counted_rows(first) == counted_rows(
        again.drop("_dd_good", "_dd_look")
    )
    # those that were renamed come as the pairs that they were
    same = {"read": len(lines), "kept": len(lines), "dropped": 0, "bad": 0}
    assert same.items() <= one(spark, folder, tmp_path / "again", input_format="enriched_tsv").counts.items()


@pytest.mark.slow
def test_lines_that_go_on_as_lines_keep_their_text(spark, tmp_path):
    "Which way a line went does not show: a suspect keeps its cells as they came, like any other."
    from dedup_nb.formats.enriched import NAMES

    def line(i, second, **cells):
        event_id = f"0000000{i}-AAAA-4AAA-8AAA-AAAAAAAAAAAA"
        whole = {"event_id": event_id, "collector_tstamp": f"2026-11-20 10:00:0{second}", "v_etl": "e"}
        whole |= {"v_collector": "c", "event_fingerprint": "f", "se_value": "1.50", "app_id": " a ", **cells}
        return "\t".join(whole.get(name, "") for name in NAMES)

    came = [line(1, 1), line(2, 1), line(2, 2), line(3, 1), line(3, 2, event_fingerprint="g")]
    (tmp_path / "in").mkdir()
    (tmp_path / "in/lines.txt").write_text("\n".join(came) + "\n")
    done = one(spark, tmp_path / "in", tmp_path, input_format="enriched_tsv", output_format="enriched_tsv")
    assert (done.counts["kept"], done.counts["dropped"], done.counts["renamed"]) == (4, 1, 1)
    kept = spark.read.text(str(tmp_path / "events/batch_id=in/*")).collect()
    found = sorted((r.value.split("\t") for r in kept), key=lambda cells: cells[3:4] + cells[6:7])
    at_id, at_contexts = NAMES.index("event_id"), NAMES.index("derived_contexts")
    *same, renamed = found
    assert ["\t".join(cells) for cells in same] == [
        text.replace("-AAAA-4AAA-8AAA-AAAAAAAAAAAA", "-aaaa-4aaa-8aaa-aaaaaaaaaaaa")
        for text in came[:2] + came[3:4]
    ]
    told, renamed[at_contexts], renamed[at_id] = renamed[at_contexts], "", came[4].split("\t")[at_id]
    assert "\t".join(renamed) == came[4] and '"originalEventId":"00000003-aaaa-4aaa-8aaa' in told


@pytest.mark.slow
def test_partition_by_makes_folders_by_column_and_by_utc_day(spark, source, tmp_path):
    one(spark, source, tmp_path, partition_by="page_url,etl_tstamp:date")
    folder = tmp_path / f"events/batch_id=in/attempt={record(tmp_path, 'in')['attempt']}"
    found = {str(Path(f).parent) for f in files(folder)}
    assert found == {f"page_url=%2F{page}/etl_tstamp_date=2026-11-20" for page in ("home", "cart")}
    assert {"batch_id", "attempt", "page_url"} < set(spark.read.parquet(str(tmp_path / "events")).columns)
    renamed = spark.read.parquet(str(source)).withColumnRenamed("page_url", "Attempt")
    renamed.write.parquet(str(tmp_path / "taken/in"))
    with pytest.raises(InputError, match="a column Attempt, which the folder attempt=... .*Rename it"):
        one(spark, tmp_path / "taken/in", tmp_path / "taken/out", partition_by="etl_tstamp:date")


# --- refused before anything is written ---

REFUSED = {  # settings; columns that the input has more; the kind of error and its words
    "an order column that is not there": (
        dict(order_by="etl_tsamp"),
        {},
        MissingColumnError,
        "needs etl_tsamp.*Did you mean etl_tstamp",
    ),
    "an id column that is not there": (
        dict(event_id="eventid"),
        {},
        MissingColumnError,
        "Did you mean event_id",
    ),
    "an order column without an order": (
        dict(order_by="m"),
        {"m": "map('a', 1)"},
        InputError,
        "order column m is map<string,int>",
    ),
    "a partition by the day of a number": (
        dict(partition_by="n:date"),
        {"n": "1"},
        OutputError,
        "wanted a timestamp or a date; n is int",
    ),
    "a partition that would make a column twice": (
        dict(partition_by="etl_tstamp:date"),
        {"etl_tstamp_date": "'mine'"},
        OutputError,
        "which the input has already",
    ),
    "a partition that is not there": (dict(partition_by="pge_url"), {}, OutputError, "Did you mean page_url"),
    "a column with no place in enriched TSV": (
        dict(output_format="enriched_tsv"),
        {"colour": "'red'"},
        OutputError,
        "no column for colour",
    ),
    "a column that is ours": ({}, {"dedup": "'x'"}, InputError, "dedup"),
    "another that is ours": ({}, {"batch_id": "'x'"}, InputError, "batch_id"),
    "a name that Delta refuses": (
        dict(output_format="delta"),
        {"a b": "1"},
        OutputError,
        "a b",
    ),
    "ids that cannot be renamed": ({}, {"event_id": "1"}, InputError, "synthetic"),
    "another form than the files have": (
        dict(input_format="enriched_tsv"),
        {},
        DedupError,
        "is Parquet, but input_format is enriched_tsv. Set --input-format parquet",
    ),
}


@pytest.mark.parametrize("settings, columns, kind, words", REFUSED.values(), ids=REFUSED)
def test_what_cannot_work_is_refused_before_anything_is_written(
    spark, events, source, tmp_path, settings, columns, kind, words
):
    if columns:
        source = tmp_path / "in"
        events.limit(1).withColumns({name: F.expr(text) for name, text in columns.items()}).write.parquet(
            str(source)
        )
    with pytest.raises(kind, match=words):
        one(spark, source, tmp_path / "out", **settings)
    assert not files(tmp_path / "out")


@pytest.mark.slow
def test_a_delta_table_with_another_type_is_said_before_the_work(spark, source, events, tmp_path):
    one(spark, source, tmp_path / "out", output_format="delta")
    events.limit(1).withColumn("page_url", F.lit(1)).write.parquet(str(tmp_path / "other"))
    with pytest.raises(OutputError, match="page_url") as wrong, heard() as said:
        run(alone(tmp_path / "other", tmp_path / "out", output_format="delta"), spark)
    assert (
        "int" in str(wrong.value)
        and "string" in str(wrong.value)
        and not any("natural" in line for line in said)
    )


def test_an_input_that_is_not_there_names_what_is_near(spark, tmp_path):
    (tmp_path / "events").mkdir()
    with pytest.raises(InputError, match="evnts; it is not there. .* Did you mean events") as wrong:
        one(spark, tmp_path / "evnts", tmp_path / "out")
    assert wrong.value.exit_code == 2


def test_an_output_that_is_not_writable(spark, source, tmp_path):
    (tmp_path / "out").write_text("a file is in the way")
    with pytest.raises(OutputError, match="Cannot write .*out"):
        one(spark, source, tmp_path / "out")


def test_another_recipe_for_the_same_output_is_refused(spark, source, tmp_path):
    one(spark, source, tmp_path)
    with pytest.raises(ConfigError, match="event_id was event_id, is now page_url"):
        one(spark, source, tmp_path, event_id="page_url", batch_id="again")


# --- odd input ---


@pytest.mark.slow
@pytest.mark.parametrize("steps", [{}, {"natural": "off", "synthetic": "off"}])
def test_a_batch_without_a_good_row_is_committed_only_if_that_is_asked_for(spark, tmp_path, steps):
    "Under adaptive execution: it cuts away what stands on an empty shuffle, with what is counted there."
    spark.createDataFrame([(None, 1), ("", 2)], "event_id string, n int").write.parquet(str(tmp_path / "in"))
    with configured(spark, COMPILED):
        with pytest.raises(AlarmError, match="max_bad_share"):
            one(spark, tmp_path / "in", tmp_path / "out", **steps)
        assert not files(tmp_path / "out")
        summary = one(spark, tmp_path / "in", tmp_path / "out", max_bad_share=1, **steps)
    assert summary.counts == {**NONE, "read": 2, "bad": 2}


def test_an_array_of_several_lines_says_how_to_write_it_anew(spark, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.json").write_text(json.dumps([{"event_id": "a"}, {"event_id": "b"}], indent=2))
    said = r"None of the 8 rows .* the first says: The line begins an array .* with jq -c \.\[\] FILE\. Is"
    with pytest.raises(AlarmError, match=said):
        one(spark, tmp_path / "in", tmp_path / "out", input_format="json")


def test_everything_off_keeps_everything(spark, source, tmp_path):
    counts = one(spark, source, tmp_path, natural="off", synthetic="off").counts
    assert counts == {**NONE, "read": 7, "bad": 1, "kept": 6}


@pytest.mark.slow
def test_rows_that_are_like_no_other_are_all_kept_where_nothing_is_compared(spark, tmp_path):
    rows = spark.createDataFrame([("b", "a", 1)] * 2, "event_id string, original_event_id string, n int")
    rows.write.parquet(str(tmp_path / "in"))
    off = dict(natural="off", synthetic="off", missing_fingerprint="unique")
    assert one(spark, tmp_path / "in", tmp_path / "out", **off).counts["kept"] == 2


@pytest.mark.slow
def test_a_json_field_may_have_the_name_of_a_line(spark, tmp_path):
    (tmp_path / "in").write_text('{"event_id": "a", "value": 1, "Line": 2}\n{"event_id":\n{"value": 3}\n')
    found = one(spark, tmp_path / "in", tmp_path / "out", input_format="json")
    assert (found.counts["bad"], found.counts["kept"]) == (2, 1)


def line_of_event(**cells):
    own = {"collector_tstamp": "2026-11-20 10:00:00", "event_id": f"{'0' * 8}-0000-4000-8000-{'0' * 12}"}
    return line(**(own | {"event_fingerprint": "f"} | cells))


@pytest.mark.slow
@pytest.mark.parametrize("order", [1, -1])
def test_of_events_that_differ_in_their_text_alone_the_same_line_stays(spark, tmp_path, order):
    texts = [line_of_event(se_value=text) for text in ("1.50", "1.5", "15e-1", "+1.5")]
    for n, text in enumerate(texts[::order]):
        (tmp_path / f"in-{n}").write_text(text + "\n")
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / f"in-{n}").rename(tmp_path / f"in/{n}")
    one(spark, tmp_path / "in", tmp_path / "out", input_format="enriched_tsv", output_format="enriched_tsv")
    [kept] = [r.value for r in spark.read.text(f"{tmp_path}/out/events").collect()]
    least = spark.createDataFrame([(t,) for t in texts], "t string").orderBy(F.hex(F.xxhash64("t"))).first().t
    assert kept == least


@pytest.mark.slow
def test_more_suspects_than_can_be_broadcast_are_joined_by_shuffle(
    spark, source, tmp_path, monkeypatch, said
):
    monkeypatch.setattr("dedup_nb.pipeline.decide.BROADCAST_LIMIT", 1)
    assert run(alone(source, tmp_path), spark).counts == COUNTS
    assert any("too many to broadcast" in line for line in said)


@pytest.mark.slow
def test_columns_named_like_ours_pass(spark, events, tmp_path):
    named = events.withColumn("reason", F.lit("r"))
    named = named.withColumn("original_event_id", F.when(F.col("event_id") == "c", "z"))
    named.write.parquet(str(tmp_path / "in"))
    assert one(spark, tmp_path / "in", tmp_path / "out").counts["kept"] == 4
    found = {r.event_id: r for r in committed(spark, tmp_path / "out", "in").collect()}
    assert found["c"].original_event_id == "z" and found["c"].reason == "r"


def test_brackets_in_a_path_are_no_pattern_and_time_zones_do_not_matter(spark, events, tmp_path):
    text = events.withColumn("etl_tstamp", F.date_format("etl_tstamp", "yyyy-MM-dd HH:mm:ss"))
    text.write.parquet(str(tmp_path / "in"))
    with configured(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        summary = one(spark, tmp_path / "in", tmp_path / "out[1]")
    assert summary.counts == COUNTS and summary.batches[0]["etl_time"] == "2026-11-20T10:00:00Z"


# --- batches ---


@pytest.mark.slow
def test_an_unfit_folder_is_left_out_and_named_and_the_others_go_on(spark, tmp_path):
    batches = {"1": [("a", "f", 1, 1)], "2 b": [("b", "f", 1, 2)], "3": [("c", "f", 1, 3)]}
    write(spark, tmp_path / "in", batches)
    summary = go(spark, tmp_path, manifest="none")
    assert [m["batch_id"] for m in summary.batches] == ["1", "3"] and summary.exit_code == 1
    assert "2 b" in str(summary) and summary.troubles


def test_a_failing_batch_stops_the_run_and_leaves_the_earlier_ones_committed(spark, tmp_path):
    write(spark, tmp_path / "in", {name: [("a", "f", 1, 1)] for name in ("1", "3")})
    spark.range(3).write.parquet(str(tmp_path / "in/run=2"))
    with pytest.raises(MissingColumnError):
        go(spark, tmp_path, manifest="none")
    assert [p.name for p in sorted((tmp_path / "out/runs").iterdir()) if p.is_dir()] == ["1"]


# --- deciding, alarms, reruns, accidents ---


def test_decide_writes_only_verdicts_and_counts_and_can_be_applied_then(spark, source, tmp_path):
    decided = one(spark, source, tmp_path / "out", mode="decide")
    assert ">Field event_id cannot be empty<" in (tmp_path / "out/runs/in/report.html").read_text()
    assert {f.split("/")[0] for f in files(tmp_path / "out")} == {"verdicts", "metrics", "runs"}
    verdicts = counted_rows(committed(spark, tmp_path / "out", "in", "verdicts"))
    applied = one(spark, source, tmp_path / "out")
    assert decided.counts == applied.counts == COUNTS
    assert decided.batches[0]["reasons"] == applied.batches[0]["reasons"]
    faults = [m["bad_reasons"] for m in (decided.batches[0], applied.batches[0])]
    assert faults == 2 * [{"Field event_id cannot be empty": 1}]
    assert counted_rows(committed(spark, tmp_path / "out", "in", "verdicts")) == verdicts
    with pytest.raises(ConfigError, match="already applied"):
        one(spark, source, tmp_path / "out", mode="decide")


@pytest.mark.parametrize(
    "limit, words",
    [
        ({"max_duplicate_share": 0.3}, r"above max_duplicate_share = 0.3\. Nothing"),
        (
            {"max_bad_share": 0.1},
            r"above max_bad_share = 0.1: Field event_id cannot be empty \(1\)\. Nothing",
        ),
    ],
)
def test_an_alarm_stops_before_the_commit_and_leaves_nothing(spark, source, tmp_path, limit, words):
    with pytest.raises(AlarmError, match=words) as wrong:
        one(spark, source, tmp_path / "out", **limit)
    assert wrong.value.exit_code == 3 and not files(tmp_path / "out")


def test_a_rerun_gives_the_same_rows_and_replaces_its_own_files_only(spark, source, tmp_path):
    for name in ("in", "other"):
        one(spark, source, tmp_path, batch_id=name)
    before = {name: files(tmp_path / f"events/batch_id={name}") for name in ("in", "other")}
    first = counted_rows(committed(spark, tmp_path, "in"))
    one(spark, source, tmp_path, batch_id="in")
    assert counted_rows(committed(spark, tmp_path, "in")) == first
    assert not set(files(tmp_path / "events/batch_id=in")) & set(before["in"])
    assert files(tmp_path / "events/batch_id=other") == before["other"]


@pytest.mark.slow
def test_a_run_that_was_overtaken_commits_nothing(spark, source, tmp_path, monkeypatch):
    from dedup_nb.pipeline import commit

    real, nested = commit.check_shares, []

    def overtaken(*args):
        if not nested:
            nested.append(True)
            one(spark, source, tmp_path)
        return real(*args)

    monkeypatch.setattr(commit, "check_shares", overtaken)
    with pytest.raises(BusyError, match="Another run has written batch in"):
        one(spark, source, tmp_path)
    assert committed(spark, tmp_path, "in").count() == 4


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_failure_removes_the_files_of_an_attempt_only_if_it_has_not_committed(
    spark, tmp_path, is_committed
):
    attempt = Attempt.new(str(tmp_path), "b")
    path = Path(attempt.folder("events"), attempt.token, "part-0.parquet")
    path.parent.mkdir(parents=True)
    path.write_text("rows")
    if is_committed:
        publish(
            str(tmp_path),
            commit_record(attempt, files_of(spark, attempt), {"status": "committed"}),
        )
    discard(attempt)
    assert bool(files_of(spark, attempt)["events"]) == is_committed


@pytest.mark.parametrize(
    "read, dropped, words", [(6, 1, "dropped: 1 written, 2 expected"), (7, 2, "did the input change")]
)
def test_rows_that_do_not_add_up_name_the_term_that_is_off(read, dropped, words):
    with pytest.raises(ConservationError, match=words):
        check_conservation(
            read, {"bad": 1, "kept": 3, "dropped": dropped}, {"bad": 1, "kept": 3, "dropped": 2}
        )


# --- an input without fingerprints ---


@pytest.mark.slow
def test_the_id_alone_says_what_is_the_same_event_and_the_run_counts_what_differs(spark, tmp_path):
    frame = spark.createDataFrame(
        [("a", 1, "x"), ("a", 2, "x"), ("b", 3, "y")], "event_id string, offset int, page string"
    )
    frame.write.parquet(str(tmp_path / "in"))
    by_id = one(spark, tmp_path / "in", tmp_path / "id", manifest="lake")
    assert by_id.counts["dropped"] == 1
    again = one(spark, tmp_path / "in", tmp_path / "id", manifest="lake", batch_id="again")
    [note] = (note for note in again.batches[0]["notes"] if "missing_fingerprint=id" in note)
    assert "3 rows dropped for earlier batches were not compared" in note and "equal" not in note
    assert "missing_fingerprint=id" in str(
        by_id
    ) and "1 dropped copy differs from the one that stays (offset: 1)" in str(by_id)
    by_content = one(spark, tmp_path / "in", tmp_path / "content", fingerprint_columns="page")
    assert by_content.counts["dropped"] == 1 and "missing_fingerprint=id" not in str(by_content)
    assert (
        one(spark, tmp_path / "in", tmp_path / "all", missing_fingerprint="surrogate").counts["renamed"] == 1
    )


# --- the peers' recorded events ---


@pytest.mark.parametrize(
    "case, read, bad, more",
    [
        ("WideRowJsonSpec", 50, 2, {}),
        pytest.param("bad_InvalidJsonsSpec", 1, 1, {"max_bad_share": 1}, marks=pytest.mark.slow),
        pytest.param("DerivedContextsSpec", 1, 0, {}, marks=pytest.mark.slow),
        ("EventDeduplicationSpec_disabled", 3, 0, {"natural": "off", "synthetic": "off"}),
    ],
)
def test_recorded_events(spark, tmp_path, conformance, case, read, bad, more):
    source = conformance / "snowplow" / case / "input.tsv"
    found = one(spark, source, tmp_path, input_format="enriched_tsv", **more).counts
    assert (found["read"], found["bad"], found["kept"]) == (read, bad, read - bad)


def test_an_output_below_a_folder_with_a_colon(spark, tmp_path):
    write(spark, tmp_path / "in", {"1": TWO["1"]})
    go(spark, tmp_path, output=str(tmp_path / "10:00/out"), manifest="none")
    assert shown(spark, tmp_path / "10:00/out", "1") == STAYED["1"]

"A backfill: what it takes, what it leaves out, and a manifest that is empty beside events."

import shutil

import pytest
from pyspark.sql import functions as F
from runs import change_input, committed, config, files, go, write

from dedup_nb import Config, run
from dedup_nb.base.config import Input
from dedup_nb.base.errors import ConfigError, DedupError
from dedup_nb.base.storage import write_text
from dedup_nb.cli import main
from dedup_nb.formats.batches import Batch, InputFile
from dedup_nb.manifest.ledger import ManifestError
from dedup_nb.operate.backfill import _only_committed, backfill
from dedup_nb.operate.erase import erase
from dedup_nb.operate.history import explain, forget, runs
from dedup_nb.pipeline.job import RunOptions


def test_a_backfill_says_what_it_leaves_out_and_ends_with_1(spark, two, capsys):
    change_input(two, "2")
    where = ["--input", str(two / "in"), "--output", str(two / "out"), "--input-format", "parquet"]
    with pytest.raises(SystemExit) as done:
        main(["backfill", *where])
    assert "Batch 2 is committed, and its input changed since" in capsys.readouterr().out
    assert done.value.code == 1
    (two / "out/runs/recipe.json").write_text('{"manifest": "none"}')
    with pytest.raises(ConfigError, match="manifest=none"):
        backfill(config(two), spark)


def test_a_manifest_that_does_not_know_the_events_beside_it_is_refused(spark, two):
    shutil.rmtree(two / "out/manifest")
    for mode in ("decide", "apply"):
        with pytest.raises(ManifestError, match=r"empty, but .* 2 batches \(1, 2\).* --accept-empty-manif"):
            go(spark, two, mode=mode)
    assert not (two / "out/manifest").exists()


@pytest.mark.slow
def test_an_empty_manifest_beside_events_is_refused_until_it_is_filled_or_accepted(spark, two, said):
    shutil.rmtree(two / "out/manifest")
    write(spark, two / "in", {"3": [("a", "f", 3, 6), ("e", "f", 3, 7)]})
    words = r"is empty, but .*events of 2 batches \(1, 2\).*dedup backfill.*--accept-empty-manifest"
    with pytest.raises(ManifestError, match=words):
        go(spark, two, batch_id="3")
    filled = backfill(config(two, until="2"), spark)
    assert [tuple(f[n] for n in ("rows", "pairs", "repeats", "known")) for f in filled] == [
        (2, 2, 0, 0),
        (3, 3, 0, 1),
    ]
    assert any(
        "2 of 2 2: 3 events, 0 copies among them (0 %), 1 known from earlier runs" in line for line in said
    )
    assert backfill(config(two, until="2"), spark) == [] and "Nothing to do" in said[-1]
    with pytest.raises(ManifestError, match="by a backfill, so it is loaded already"):
        go(spark, two, batch_id="1", rerun=True)
    assert go(spark, two).counts["dropped"] == 1 and "committed (backfill)" in str(runs(config(two), spark))


@pytest.mark.slow
def test_a_backfill_from_an_output_takes_what_its_commits_list_and_knows_renamed_events(spark, two, said):
    shutil.copytree(two / "out/events/batch_id=1", two / "out/events/batch_id=9")
    stray = next((two / "out/events/batch_id=2").rglob("*.parquet"))
    shutil.copy(stray, stray.with_name("part-stray.parquet"))
    archive = str(two / "out/events")
    loaded = Config(
        input=archive, output=str(two / "new"), input_format="parquet", batch_pattern="batch_id=*"
    )
    filled = backfill(loaded, spark)
    assert [(m["batch_id"], m["rows"]) for m in filled] == [("1", 2), ("2", 2)]
    assert "Left out, as no run has committed what lies there: 9." in "".join(said)
    story = explain("a", Config(output=str(two / "new"), input_format="parquet"), spark).data["claims"]
    assert [(c["fate"], c["first"]) for c in story] == [("under its own id", True), ("under a new id", False)]
    # what was loaded under a new id is known under both
    fed_back = next(r.event_id for r in committed(spark, two / "out", "2").collect() if r.original_event_id)
    write(spark, two / "in", {"7": [("a", "g", 9, 1), (fed_back, "g", 9, 2), ("q", "f", 9, 3)]})
    later = run(
        config(two, output=str(two / "new"), batch_id="7"), spark, RunOptions(accept_empty_manifest=True)
    )
    assert later.counts["dropped"] + later.counts["renamed"] == 2


def test_a_backfill_of_another_format_or_without_a_column_fills_nothing(spark, two):
    new = dict(output=str(two / "new"))
    with pytest.raises(DedupError, match="payload_hsh"):
        backfill(config(two, event_fingerprint="payload_hsh", **new), spark)
    with pytest.raises(DedupError, match="is Parquet, but input_format is enriched_tsv"):
        kept = str(two / "out/events/batch_id=1")
        backfill(Config(input=kept, input_format="enriched_tsv", batch_id="1", **new), spark)
    assert not files(two / "new/manifest")


@pytest.mark.slow
def test_a_loaded_table_fills_the_manifest_day_by_day_under_the_ids_its_events_came_with(spark, tmp_path):
    loaded = [
        ("a", "f", "2026-11-01 08:00", None),
        ("n1", "g", "2026-11-01 09:00", "a"),
        ("b", "f", "2026-11-02 08:00", None),
        ("b", "f", "2026-11-03 08:00", None),
    ]
    frame = spark.createDataFrame(
        loaded, "event_id string, event_fingerprint string, etl_tstamp string, original_event_id string"
    )
    frame.withColumn("etl_tstamp", F.to_timestamp("etl_tstamp")).createOrReplaceTempView("loaded")
    source = Config(input="loaded", output=str(tmp_path / "out"), input_format="table")
    done = backfill(source, spark)
    assert [(d["batch_id"], d["rows"], d["repeats"]) for d in done] == [
        ("loaded@2026-11-01", 2, 0),
        ("loaded@2026-11-02", 2, 1),
    ]
    assert backfill(source, spark) == []


@pytest.mark.slow
@pytest.mark.parametrize("as_table", [False, True])
def test_what_has_left_the_manifest_for_an_erasure_does_not_come_back(spark, two, as_table):
    new = str(two / "new")
    archive = config(two, output=new, until="1")
    if as_table:
        time = F.to_timestamp(F.lit("2026-11-01"))
        spark.read.parquet(str(two / "in/run=1")).withColumn("etl_tstamp", time).createOrReplaceTempView(
            "rows"
        )
        archive = Config(input="rows", output=new, input_format="table")
    [first] = backfill(archive, spark)
    run(config(two, output=new, batch_id="2"), spark, RunOptions(accept_empty_manifest=True))
    out = Config(output=new)
    assert [c["batch_id"] for c in explain("a", out, spark).data["claims"]][0] == first["batch_id"]
    assert backfill(archive, spark) == []
    erase(out, spark, event_id="a", forget=True, yes=True)
    assert backfill(archive, spark).troubles == ()
    forget(first["batch_id"], out, spark, yes=True)
    [again] = backfill(archive, spark)
    assert (first["pairs"], again["pairs"]) == (2, 1)
    assert explain("a", out, spark).data["claims"] == [] != explain("b", out, spark).data["claims"]


def test_what_a_run_left_that_was_killed_before_its_first_commit_is_left_out(tmp_path):
    def taken(file):
        folder = f"{tmp_path}/events/batch_id=1"
        return _only_committed(
            [Batch("1", (InputFile(f"{folder}/{file}", 1),), folder)], Input(f"{tmp_path}/events")
        )

    words = "Left out, as no run has committed what lies there: 1. Run it again where it came from."
    assert [len(found) for found in taken("part-0.parquet")] == [1, 0]  # of another job
    for ours in (".staging/batch_id=1/0123456789ab/x", "runs/recipe.json"):
        write_text(f"{tmp_path}/{ours}", "{}" if ours.startswith(".") else '{"event_id": ["event_id"]}')
        assert taken("part-0.parquet") == ([], [words])
        shutil.rmtree(tmp_path / ours.split("/")[0])

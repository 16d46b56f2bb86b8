"""How duplicated events are, and why: against the planted truth, and at the edges."""
import json, re
from pathlib import Path
import pandas as pd
import pytest
from pyspark.sql import functions as F
from conftest import ROOT
from dedup_nb import Config, deduplicate
from dedup_nb.cli import main
from dedup_nb.config import ConfigError, MissingColumnError
from dedup_nb.distribution import DISTRIBUTION_SQL, REASONS, events_per_id, knee, profile, profile_events, profile_html, window_title
from dedup_nb.report import page


@pytest.fixture(scope="module")
def planted():
    "The good lines of the samples with their fate; `known`: seen with the earlier batches."
    told = pd.read_csv(ROOT / "data_samples" / "truth.csv", keep_default_na=False)
    return told[told["fate_known"] != "bad"]


@pytest.fixture(scope="module")
def found(spark, tmp_path_factory):
    output = tmp_path_factory.mktemp("profile")
    return profile(Config(input=str(ROOT / "data_samples"), output=str(output)), spark, say=lambda line: None), output


def more(planted, reasons, *kinds):
    "Rows that the plan put beyond the first, by reason, of these kinds."
    rows = planted[planted["reason_known"].isin(reasons)]
    return len(rows[rows["kind"].isin(kinds)] if kinds else rows)


NATURAL, SYNTHETIC = ("natural", "natural_cross_batch"), ("synthetic", "synthetic_cross_batch")


def test_the_headline_is_what_was_planted(found, planted):
    n, sizes = found[0].numbers, planted["event_id"].value_counts()
    assert {name: n[name] for name in ("events", "ids", "repeated_ids", "natural_excess", "synthetic_excess", "hottest_id_events", "bad")} == {
        "events": len(planted), "ids": len(sizes), "repeated_ids": int((sizes > 1).sum()), "natural_excess": more(planted, NATURAL), "synthetic_excess": more(planted, SYNTHETIC),
        "hottest_id_events": int(sizes.max()), "bad": sum(1 for line in (ROOT / "data_samples" / "truth.csv").open()) - 1 - len(planted)}
    assert n["without_fingerprint"] == int((planted["event_fingerprint"] == "").sum())


def test_every_size_of_id_is_what_was_planted(found, planted):
    sizes = planted["event_id"].value_counts().value_counts()
    assert {r.events_per_id: r.ids for r in found[0].frames["distribution"].itertuples()} == sizes.to_dict()


@pytest.mark.parametrize("name, key", [("split", None), ("per_batch", "batch_id"), ("per_day", None)])
def test_the_split_is_what_was_planted(found, planted, name, key):
    frame = found[0].frames[name]
    if name == "split":
        told = planted[planted["reason_known"] != ""].groupby("reason_known")["event_id"].agg(["size", "nunique"])
        shown = frame.set_index("what")
        assert {r: (int(shown.loc[r, "rows"]), int(shown.loc[r, "ids"])) for r in REASONS.values()} == {r: tuple(map(int, told.loc[r])) for r in REASONS.values()}
        assert shown["rows"].sum() == len(planted)
    elif key:
        told = planted.groupby([key, "reason_known"]).size().unstack(fill_value=0)
        assert {r.batch: [r.first, *(getattr(r, x) for x in REASONS.values())] for r in frame.itertuples()} == {b: [t[""], *(t[x] for x in REASONS.values())] for b, t in told.iterrows()}
    else:
        assert frame["events"].sum() == len(planted) and all(frame[r].sum() == more(planted, [r]) for r in REASONS.values())


def test_the_causes_are_those_that_were_planted(found, planted):
    rows = {(r.kind, r.cause): r.rows for r in found[0].frames["causes"].itertuples()}
    assert rows["natural", "exact"] == more(planted, NATURAL, "exact", "cross_exact")
    assert rows["natural", "replayed"] == more(planted, NATURAL, "replayed", "cross_replayed")
    # copies with both timestamps equal and another address: nothing says why
    assert rows["natural", "unexplained"] == sum(more(planted, NATURAL, k) // n for k, n in (("tie", 2), ("mixed_tie", 1), ("cross_tie", 2)))
    assert rows["synthetic", "weak_id"] == more(planted, SYNTHETIC, "weak_id") and rows["synthetic", "clock_skew"] == more(planted, SYNTHETIC, "clock_skew")
    assert rows["synthetic", "robot"] == more(planted, SYNTHETIC, "bot", "hot_mixed")
    assert sum(n for (kind, _), n in rows.items() if kind == "natural") == more(planted, NATURAL) and sum(rows.values()) == more(planted, NATURAL + SYNTHETIC)


def test_the_examples_are_of_the_kind(found, planted):
    kinds = planted.groupby("event_id")["kind"].agg(set)
    examples = {r.cause: set().union(*(kinds[i] for i in r.examples)) for r in found[0].frames["causes"].itertuples()}
    assert examples["replayed"] <= {"replayed", "cross_replayed"} and examples["weak_id"] == {"weak_id"} and examples["robot"] <= {"bot", "hot_mixed"}


def test_the_columns_are_those_that_were_changed(found, planted):
    sets = {tuple(r.columns): r.rows for r in found[0].frames["column_sets"].itertuples()}
    # a pre-fetcher sends no referrer and no size; a title is changed; a twin without a fingerprint differs in nothing that the client sent
    assert {("page_referrer", "br_viewwidth", "br_viewheight"), ("page_title",), ()} <= set(sets)
    natural = found[0].frames["columns"].query("kind == 'natural'").set_index("column")
    assert natural["rows"].idxmax() == "etl_tstamp" and not natural["sent"].any()
    causes = found[0].frames["causes"].query("kind == 'natural'").set_index("cause")["rows"]
    assert natural.loc["collector_tstamp", "rows"] == sum(n for cause, n in causes.items() if cause.startswith("resent")) == more(planted, NATURAL) - causes["exact"] - causes["replayed"] - causes["unexplained"]


def test_the_hot_ids_are_those_that_were_planted(found, planted):
    sizes = planted["event_id"].value_counts()
    shown = found[0].frames["hot_ids"]
    assert shown["rows"].tolist() == sorted(sizes[sizes > 1], reverse=True)[:len(shown)] and all(sizes[i] == n for i, n in zip(shown["id"], shown["rows"]))
    assert shown["natural"].iloc[0] + shown["synthetic"].iloc[0] + 1 == shown["rows"].iloc[0]


def test_joins_are_what_plain_sql_gives(found, spark):
    "Events and web pages of the repeated ids, joined on the id."
    from dedup_nb.read import find_batches, read_batch
    config = Config(input=str(ROOT / "data_samples"))
    events = None
    for batch in find_batches(config):
        source = read_batch(spark, batch, config)
        good = source.decode(source.raw).where("_dd_good").selectExpr("event_id", "size(regexp_extract_all(contexts, '(snowplow/web_page/)', 1)) as pages")
        events = good if events is None else events.unionAll(good)
    by_id = events.groupBy("event_id").agg(F.count("*").alias("n"), F.sum("pages").alias("pages")).where("n > 1")
    assert found[0].frames["joins"].set_index("entity").loc["com.snowplowanalytics.snowplow/web_page", "before"] == by_id.agg(F.sum(F.col("n") * F.col("pages"))).first()[0]


def test_the_files_hold_the_numbers_and_fetch_nothing(found):
    numbers, text = json.loads((found[1] / "profile.json").read_text()), (found[1] / "profile.html").read_text()
    assert numbers == json.loads(json.dumps(found[0].numbers)) and all(isinstance(numbers[n], int) for n in ("events", "ids", "repeated_ids", "natural_excess", "synthetic_excess", "hottest_id_events"))
    assert len(text) < 2_000_000 and text.count("<svg") == len(found[0].charts()) == 11 and "width=device-width" in text
    # names of namespaces are no addresses: nothing loads them
    assert not re.search(r"""(?:src|href)\s*=\s*["']?[^"'#\s]|url\((?!#)|@import|<script|<link""", text)


def test_every_title_is_a_conclusion_with_a_number(found):
    said = found[0].conclusions()
    assert len(said) == 13 and all(re.search(r"\d|^No natural repeat", line) for line in said)
    assert said[0] == "7.8 % of 11 906 events are repeats, on 2.4 % of the ids; the hottest id has 378"


EVENT = "event_id string, event_fingerprint string, collector_tstamp string, etl_tstamp string, user_ipaddress string, useragent string, page_url string"
ROWS = [("a", "f1", "2026-11-20 10:00:00", "2026-11-20 10:05:00", "1.1.1.1", "Firefox", "/home"), ("a", "f1", "2026-11-20 10:00:01", "2026-11-20 10:05:00", "1.1.1.1", "Firefox", "/home"),
        ("a", "f2", "2026-11-20 11:00:00", "2026-11-20 11:05:00", "1.1.1.1", "Firefox", "/cart"), ("b", "f9", "2026-11-20 10:00:00", "2026-11-20 10:05:00", "2.2.2.2", "Firefox", "/home"),
        (None, "f9", "2026-11-20 10:00:00", "2026-11-20 10:05:00", "2.2.2.2", "Firefox", "/home")]


def events(spark, rows=ROWS):
    frame = spark.createDataFrame(rows, EVENT)
    return frame.withColumns({c: F.expr(f"cast(concat({c}, 'Z') as timestamp)") for c in ("collector_tstamp", "etl_tstamp")})


def headline(found):
    return tuple(found.numbers[n] for n in ("events", "ids", "repeated_ids", "natural_excess", "synthetic_excess", "hottest_id_events", "bad"))


def test_one_batch_says_nothing_across_batches(spark):
    found = profile_events(events(spark))
    assert headline(found) == (4, 2, 1, 1, 1, 3, 1)
    assert found.frames["per_batch"].to_dict("records") == [{"batch": "all", "events": 4, "first": 2, "natural": 1, "natural_cross_batch": 0, "synthetic": 1, "synthetic_cross_batch": 0}]
    assert any("one batch" in note for note in found.numbers["notes"]) and not found.frames["quantiles"]["where"].eq("across batches").any()
    assert {(r.kind, r.cause) for r in found.frames["causes"].itertuples()} == {("natural", "resent_seconds"), ("synthetic", "few_columns")}
    assert "<svg" in profile_html(found) and "Joins are not counted" in str(found)


def test_two_batches(spark):
    later = [("a", "f1", "2026-11-21 10:00:00", "2026-11-21 10:05:00", "1.1.1.1", "Firefox", "/home"), ("b", "f8", "2026-11-21 10:00:00", "2026-11-21 10:05:00", "2.2.2.2", "Firefox", "/cart")]
    found = profile_events({"d1": events(spark), "d2": events(spark, later)})
    assert headline(found)[:5] == (6, 2, 2, 2, 2)
    assert found.frames["per_batch"].drop(columns="events").values.tolist() == [["d1", 2, 1, 0, 1, 0], ["d2", 0, 0, 1, 0, 1]]
    assert found.frames["per_day"].drop(columns="events").values.tolist() == [["2026-11-20", 2, 1, 0, 1, 0], ["2026-11-21", 0, 0, 1, 0, 1]]
    windows_ = found.frames["window"].set_index("window")["caught"]
    assert (windows_["1 hour"], windows_["12 hours"], windows_["1 day"]) == (1, 1, 2)
    assert set(found.frames["quantiles"]["where"]) == {"within a batch", "across batches"}


@pytest.mark.parametrize("columns", [["event_fingerprint"], ["etl_tstamp"], ["user_ipaddress", "useragent"]])
def test_a_missing_optional_column_is_one_line_that_names_it(spark, columns):
    found = profile_events(events(spark).drop(*columns))
    for column in columns: assert sum(f"no {column}" in note for note in found.numbers["notes"]) == 1
    assert headline(found)[:3] == (4, 2, 1) and headline(found)[3] + headline(found)[4] == 2


def test_without_any_time_there_are_no_days_no_gaps_and_no_windows(spark):
    found = profile_events(events(spark).drop("collector_tstamp", "etl_tstamp", "user_ipaddress", "useragent"))
    assert headline(found) == (4, 2, 1, 1, 1, 3, 1)
    assert all(len(found.frames[name]) == 0 for name in ("per_day", "gaps", "window", "quantiles")) and any("no collector_tstamp" in note for note in found.numbers["notes"])
    assert {"per_day", "gaps", "window"}.isdisjoint(found.charts()) and found.numbers["knee"] is None


def test_all_unique(spark):
    found = profile_events(events(spark, ROWS[2:4]))
    assert headline(found) == (2, 2, 0, 0, 0, 1, 0) and len(found.frames["causes"]) == len(found.frames["gaps"]) == len(found.frames["hot_ids"]) == 0
    assert found.conclusions()[0] == "All 2 ids are unique" and "No event shares its id" in str(found)


def test_all_the_same_id(spark):
    rows = [("00000000-0000-4000-8000-000000000000", f"f{i}", "2026-11-20 10:00:00", "2026-11-20 10:05:00", f"1.1.1.{i}", "Firefox", f"/{i}") for i in range(5)]
    found = profile_events(events(spark, rows))
    assert headline(found) == (5, 1, 1, 0, 4, 5, 0)
    assert [(r.cause, r.rows) for r in found.frames["causes"].itertuples()] == [("weak_id", 4)]


def test_an_empty_input(spark):
    found = profile_events(events(spark, []))
    assert headline(found) == (0, 0, 0, 0, 0, 0, 0) and "<svg" in profile_html(found) and json.dumps(found.numbers)


def test_wrong_input_is_said_clearly(spark, capsys):
    Path("events").mkdir()
    assert main(["profile", "--input", "evnts", "--output", "out"]) == 1 and "evnts; it is not there" in capsys.readouterr().err and not Path("out").exists()
    assert main(["profile", "--output", "out"]) == 2 and "A profile needs input" in capsys.readouterr().err
    with pytest.raises(MissingColumnError, match="uid"): profile_events(events(spark), event_id="uid")
    with pytest.raises(MissingColumnError, match="finger"): profile_events(events(spark), event_fingerprint="finger")
    with pytest.raises(ConfigError, match="Write 5 % as 0.05"): profile_events(events(spark), sample=5)


def test_plain_sql_gives_the_same_distribution(spark, found):
    frame = spark.createDataFrame([("a",), ("a",), ("a",), ("b",), ("b",), ("c",), ("d",), (None,), ("",)], "event_id string")
    frame.createOrReplaceTempView("events")
    told = lambda rows: sorted(tuple(r) for r in rows.collect())
    assert told(spark.sql(DISTRIBUTION_SQL)) == told(events_per_id(frame)) == [(1, 2), (2, 1), (3, 1)]


@pytest.mark.parametrize("policy", ["surrogate", "unique"])
def test_each_strategy_does_what_was_forecast(spark, policy):
    rows = ROWS[:4] + [("c", None, "2026-11-20 10:00:00", "2026-11-20 10:05:00", "3.3.3.3", "Firefox", "/home")] * 3
    told = profile_events(events(spark, rows)).frames["outcomes"].query("missing_fingerprint == @policy").set_index("synthetic")
    for strategy in {"surrogate": ["rename_all"], "unique": ["rename_later", "delete_all"]}[policy]:
        result = deduplicate(events(spark, rows), synthetic=strategy, missing_fingerprint=policy)
        kept = result.kept.select("original_event_id").collect()
        assert (len(kept), sum(r[0] is not None for r in kept)) == (told.loc[strategy, "kept"], told.loc[strategy, "renamed"]), strategy


def test_a_sample_keeps_groups_whole_and_says_how_far_off_it_may_be(spark):
    ids = spark.range(4000).selectExpr("concat('id', id % 2000) as event_id", "concat('f', id % 2000) as event_fingerprint", "timestamp_seconds(1795000000 + id) as collector_tstamp")
    found, exact = profile_events(ids, sample=0.25), (4000, 2000, 2000, 2000, 0)
    errors = found.numbers["sample"]["errors"]
    for name, truth in zip(("events", "ids", "repeated_ids", "natural_excess", "synthetic_excess"), exact): assert abs(found.numbers[name] - truth) <= errors[name]
    assert found.numbers["hottest_id_events"] == 2 and 0 < errors["ids"] < 400 and any("Estimated from 25 %" in note for note in found.numbers["notes"])


def test_with_json_only_json_goes_to_standard_output(spark, capsys):
    events(spark).write.parquet(str(Path("in").absolute()))
    assert main(["profile", "--input", "in", "--output", "out", "--input-format", "parquet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["events"] == 4 and Path("out/profile.json").exists() and Path("out/profile.html").exists()
    assert sorted(p.name for p in Path("out").iterdir() if p.name != ".staging") == ["profile.html", "profile.json"]


def test_the_knee_is_where_more_hours_bring_little():
    frame = pd.DataFrame({"window": ["1 hour", "1 day", "7 days", "30 days", "180 days"], "hours": [1, 24, 168, 720, 4320], "share": [.70, .97, .98, .985, .99], "seen": [1, .99, .9, .5, 0], "lake_usd": [1., 2, 3, 4, 5], "dynamodb_usd": [5.] * 5})
    assert knee(frame) == 1
    assert window_title(frame) == "1 day catches 97.0 % at $2.00 a month on the lake; 30 days catch 98.5 % at $4.00 a month on the lake; 180 days cost $5.00, but gaps longer than the data cannot be seen"


def again(spark, row, **changes):
    "The row twice: as it is, and changed, each a batch."
    names = [c.split()[0] for c in EVENT.split(", ")]
    return {"monday": events(spark, [row]), "later": events(spark, [tuple(changes.get(n, v) for n, v in zip(names, row))])}


def test_a_replay_is_as_old_as_the_batches_are_apart(spark):
    "The gap of a replayed row is 0, and yet a window of an hour does not hold it: the manifest counts from when its batch was processed."
    found = profile_events(again(spark, ROWS[0], etl_tstamp="2026-12-20 10:05:00"))
    curve = found.frames["window"].set_index("window")["share"]
    assert found.frames["gaps"]["to_ms"].tolist() == [0] and (curve["14 days"], curve["30 days"]) == (0, 1)
    assert not any("1 hour catches" in line for line in found.conclusions())


def test_a_late_copy_has_a_gap_too(spark):
    "The first batch holds the copy that was collected last."
    found = profile_events(again(spark, ROWS[0], collector_tstamp="2026-11-16 10:00:00", etl_tstamp="2026-11-24 10:05:00"))
    assert found.frames["causes"]["cause"].tolist() == ["resent_days"]
    assert found.frames["gaps"]["from_ms"].iloc[0] < 4 * 86_400_000 <= found.frames["gaps"]["to_ms"].iloc[0]


def test_an_id_that_twenty_addresses_use_is_shared(spark):
    rows = [("undefined", f"f{i}", f"2026-11-20 10:00:{i:02}", "2026-11-20 11:00:00", f"1.1.1.{i}", f"Firefox {i}", f"/{i}") for i in range(20)]
    assert profile_events(events(spark, rows)).frames["causes"]["cause"].tolist() == ["shared_id"]


def test_a_template_that_nobody_filled_is_an_id_like_others(spark):
    "A pair of dollar signs is a formula to matplotlib, and this one no valid one."
    rows = [("${id}_${ts}", "f1", *ROWS[0][2:]), ("${id}_${ts}", "f2", *ROWS[1][2:])]
    assert "${id}_${ts}" in profile_html(profile_events({"a${b}$": events(spark, rows), "c": events(spark, rows)}))


def test_times_that_no_event_has_are_counted(spark):
    rows = [(f"i{i}", "f", f"{year}-12-31 10:00:00" if year else None, "2026-11-20 11:00:00", "1.1.1.1", "Firefox", "/") for i, year in enumerate(("2026", "2026", "9999", None))]
    found = profile_events(events(spark, rows))
    assert found.frames["per_day"]["day"].tolist() == ["2026-12-31", "9999-12-31"]
    assert any(line.startswith("1 events have no collector_tstamp") for line in found.numbers["notes"])


def test_a_column_that_some_batches_lack_is_named(spark):
    found = profile_events({"monday": events(spark), "tuesday": events(spark).drop("useragent")})
    assert any(line.startswith("1 of the 2 batches, tuesday first, have no useragent") for line in found.numbers["notes"])


def test_a_sample_without_repeats_says_how_many_there_may_be(spark):
    rows = [(f"i{i}", "f", *ROWS[0][2:]) for i in range(200)] + [("hot", f"f{i}", *ROWS[0][2:]) for i in range(3)]
    found = profile_events(events(spark, rows), sample=0.3)
    assert found.numbers["sample"]["errors"]["natural_excess"] == 7


def test_nothing_to_profile_is_said():
    with pytest.raises(ConfigError, match="nothing to profile"): profile_events({})

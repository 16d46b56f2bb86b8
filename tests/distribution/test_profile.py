"How duplicated events are, and why: against the planted truth, in files and on the page."

import json
import re
from collections import Counter
from html.parser import HTMLParser
from uuid import uuid5

import pandas as pd
import pytest
from conftest import ROOT
from profiles import COMPARED, COUNTS, headline
from pyspark.sql import Row
from pyspark.sql import functions as F
from runs import heard

from dedup_nb.base.config import Config
from dedup_nb.base.errors import ConfigError, MissingColumnError, MissingInputError
from dedup_nb.distribution import copies as profile_copies
from dedup_nb.distribution.copies import Subject
from dedup_nb.distribution.measures import REASONS, WINDOWS, Measures, knee, numbers_of
from dedup_nb.distribution.profile import Profile, _draw_distribution, conclusions, profile, profile_events
from dedup_nb.formats.enriched import ENRICHED
from dedup_nb.rules.deduplicate import deduplicate
from dedup_nb.rules.keys import NAMESPACE, Keys


@pytest.fixture(scope="module")
def planted():
    "The good lines of the samples with their fate; `known`: seen with the earlier batches."
    told = pd.read_csv(ROOT / "data_samples" / "truth.csv", keep_default_na=False)
    return told[told["fate_known"] != "bad"]


@pytest.fixture(scope="module")
def profiled_samples(spark, tmp_path_factory):
    output = tmp_path_factory.mktemp("profile")
    config = Config(input=str(ROOT / "data_samples"), output=str(output))
    return profile(config, spark), output


def more(planted, reasons, *kinds):
    "Rows that the plan put beyond the first, by reason, of these kinds."
    rows = planted[planted["reason_known"].isin(reasons)]
    return len(rows[rows["kind"].isin(kinds)] if kinds else rows)


NATURAL, SYNTHETIC = REASONS[:2], REASONS[2:]


def test_the_headline_is_what_was_planted(profiled_samples, planted):
    sizes = planted["event_id"].value_counts()
    lines = sum(1 for _ in (ROOT / "data_samples" / "truth.csv").open()) - 1
    assert headline(profiled_samples[0]) == {
        "events": len(planted),
        "ids": len(sizes),
        "repeated_ids": int((sizes > 1).sum()),
        "natural_excess": more(planted, NATURAL),
        "synthetic_excess": more(planted, SYNTHETIC),
        "hottest_id_events": int(sizes.max()),
        "bad": lines - len(planted),
    }
    assert profiled_samples[0].numbers["without_fingerprint"] == int(
        (planted["event_fingerprint"] == "").sum()
    )


def test_every_size_of_id_is_what_was_planted(profiled_samples, planted):
    sizes = planted["event_id"].value_counts().value_counts()
    told = {size["events_per_id"]: size["ids"] for size in profiled_samples[0].numbers["distribution"]}
    assert told == sizes.to_dict()


def test_the_split_is_what_was_planted(profiled_samples, planted):
    shown = profiled_samples[0].frames["split"].set_index("what")
    told = planted[planted["reason_known"] != ""].groupby("reason_known")["event_id"].agg(["size", "nunique"])
    for reason in REASONS:
        assert shown.loc[reason, ["rows", "ids"]].tolist() == told.loc[reason].tolist(), reason
    assert shown["rows"].sum() == len(planted)


def test_every_batch_is_what_was_planted(profiled_samples, planted):
    told = planted.groupby(["batch_id", "reason_known"]).size().unstack(fill_value=0)
    for batch in profiled_samples[0].numbers["per_batch"]:
        wanted = told.loc[batch["batch"]]
        assert batch["first"] == wanted[""] and batch["events"] == wanted.sum()
        assert {reason: batch[reason] for reason in REASONS} == {reason: wanted[reason] for reason in REASONS}


def test_the_days_add_up_to_what_was_planted(profiled_samples, planted):
    days = profiled_samples[0].frames["per_day"]
    assert days["events"].sum() == len(planted)
    assert all(days[reason].sum() == more(planted, [reason]) for reason in REASONS)


def test_the_causes_are_those_that_were_planted(profiled_samples, planted):
    rows = {(c["kind"], c["cause"]): c["rows"] for c in profiled_samples[0].numbers["causes"]}
    assert rows["natural", "exact"] == more(planted, NATURAL, "exact", "cross_exact")
    assert rows["natural", "replayed"] == more(planted, NATURAL, "replayed", "cross_replayed")
    # copies with both timestamps equal and another address: nothing says why
    ties = (("tie", 2), ("mixed_tie", 1), ("cross_tie", 2))
    assert rows["natural", "unexplained"] == sum(more(planted, NATURAL, kind) // n for kind, n in ties)
    assert rows["synthetic", "weak_id"] == more(planted, SYNTHETIC, "weak_id")
    assert rows["synthetic", "clock_skew"] == more(planted, SYNTHETIC, "clock_skew")
    assert rows["synthetic", "robot"] == more(planted, SYNTHETIC, "bot", "hot_mixed")
    assert sum(n for (kind, _), n in rows.items() if kind == "natural") == more(planted, NATURAL)
    assert sum(rows.values()) == more(planted, REASONS) and ("natural", "changed") not in rows


def test_the_examples_are_of_the_kind(profiled_samples, planted):
    kinds = planted.groupby("event_id")["kind"].agg(set)
    causes = profiled_samples[0].numbers["causes"]
    shown = {c["cause"]: set().union(*(kinds[i] for i in c["examples"])) for c in causes}
    assert shown["replayed"] <= {"replayed", "cross_replayed"}
    assert shown["weak_id"] == {"weak_id"} and shown["robot"] <= {"bot", "hot_mixed"}


def test_the_columns_are_those_that_were_changed(profiled_samples, planted):
    frames = profiled_samples[0].frames
    sets = {tuple(names) for names in frames["column_sets"]["columns"]}
    # a pre-fetcher sends no referrer and no size; a title is changed; a twin without a fingerprint differs in
    # nothing that it would cover
    assert {("page_referrer", "br_viewwidth", "br_viewheight"), ("page_title",), ()} <= sets
    natural = frames["columns"].query("kind == 'natural'").set_index("column")
    assert natural["rows"].idxmax() == "etl_tstamp" and not natural["sent"].any()
    causes = frames["causes"].query("kind == 'natural'").set_index("cause")["rows"]
    resent = sum(n for cause, n in causes.items() if cause.startswith("resent"))
    assert natural.loc["collector_tstamp", "rows"] == resent


def test_the_hot_ids_are_those_that_were_planted(profiled_samples, planted):
    sizes = planted["event_id"].value_counts()
    hot = profiled_samples[0].frames["hot_ids"]
    assert hot["rows"].tolist() == sorted(sizes[sizes > 1], reverse=True)[: len(hot)]
    assert all(sizes[i] == n for i, n in zip(hot["id"], hot["rows"]))
    assert (hot["natural"] + hot["synthetic"] + 1 == hot["rows"]).all()
    top = profiled_samples[0].numbers["hot_shares"][1]
    assert top["excess"] == sizes[:10].sum() - 10 and top["share"] == top["excess"] / more(planted, REASONS)


class Structure(HTMLParser):
    "What a page is made of, and whether its elements close in order."

    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.wrong = [], Counter(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.seen[tag] += 1
        if tag not in ("meta", "path", "use", "rect", "image", "br", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.seen[tag] += 1

    def handle_endtag(self, tag):
        if tag in self.open and self.open.pop() != tag:
            self.wrong.append(tag)


def test_the_files_hold_the_numbers_and_fetch_nothing(profiled_samples):
    found, output = profiled_samples
    numbers, text = json.loads((output / "profile.json").read_text()), (output / "profile.html").read_text()
    assert numbers == json.loads(json.dumps(found.numbers))
    assert all(isinstance(numbers[name], int) for name in COUNTS)
    assert {path.name for path in output.iterdir()} - {".staging"} == {"profile.json", "profile.html"}
    assert len(text) < 2_000_000 and "width=device-width" in text
    # names of namespaces are no addresses: nothing loads them
    assert not re.search(r"""(?:src|href)\s*=\s*["']?[^"'#\s]|url\((?!#)|@import|<script[ ]|<link""", text)


def test_the_page_has_every_chart_and_its_numbers(profiled_samples):
    page = Structure(profiled_samples[0].html())
    assert page.seen["svg"] == page.seen["figure"] == len(profiled_samples[0].charts) == 11 and not page.wrong
    assert page.seen["h2"] == 11 and page.seen["details"] - 1 == page.seen["table"] == 12  # one of words
    for line in profiled_samples[0].conclusions():
        assert line.replace("'", "&#39;") in profiled_samples[0]._repr_html_()


def test_each_figure_has_its_title_as_a_label_and_times_are_to_the_right(profiled_samples):
    found, page = profiled_samples[0], profiled_samples[0].html()
    labels = re.findall(r'<figure role="img" aria-label="([^"]+)">', page)
    titles = [line.replace("'", "&#39;") for line in found.conclusions()]
    assert labels == titles[:-1]  # the last one is that of a table
    assert '<th class="number"><button type="button">p50</button></th>' in page
    assert '<th><button type="button">in the fingerprint</button></th>' in page


def test_nothing_is_said_of_no_repeat_within_two_seconds(profiled_samples):
    bars = [{"kind": "natural", "across": False, "from_ms": 0, "to_ms": 60_000, "rows": 3}]
    said = conclusions({**profiled_samples[0].numbers, "gaps": bars})
    assert said["gaps_natural"] == "Half of the natural repeats come within 1 min"


def test_the_outcome_is_that_of_the_settings(profiled_samples):
    n = profiled_samples[0].numbers
    told = {(o["missing_fingerprint"], o["synthetic"]): o for o in n["outcomes"]}
    said = lambda **settings: conclusions({**n, "settings": settings})["outcomes"]
    assert said() == said(synthetic="rename_later", input="in") == conclusions(n)["outcomes"]
    assert said().startswith("rename_later keeps ")
    preset = said(**Config(compat="snowplow").chosen())
    assert preset.startswith("rename_all, with missing_fingerprint=unique, keeps ")
    assert preset.endswith(f" and renames {told['unique', 'rename_all']['renamed']}")
    aside = told["surrogate", "quarantine"]["quarantined"]
    assert said(synthetic="quarantine").endswith(f" and puts aside {aside}")


def parts(*counts):
    "Days with so many events and natural repeats."
    none = dict.fromkeys(REASONS, 0)
    return [{"day": f"2026-11-{i:02}", "events": n, **none, "natural": k} for i, (n, k) in enumerate(counts)]


@pytest.mark.parametrize(
    "days, said",
    [
        ([(1000, 996), (5000, 20)], "up to 99.60 % of the events of a day, most on 2026-11-00"),
        ([(1, 1), (5000, 20)], "up to 0.4 % of the events of a day with 100 or more, most on 2026-11-01"),
        ([(1, 1), (99, 9)], "up to 100 % of the events of a day, most on 2026-11-00"),
        ([(5000, 0), (2, 1)], "up to 50 % of the events of a day, most on 2026-11-01"),
    ],
)
def test_the_worst_day_is_one_that_says_something(profiled_samples, days, said):
    told = conclusions({**profiled_samples[0].numbers, "per_day": parts(*days)})
    assert told["per_day"] == f"Repeats take {said}"


def test_a_share_is_0_or_100_only_where_it_is_that(profiled_samples):
    n = profiled_samples[0].numbers
    columns = [{**c, "share": 0.9999} for c in n["columns"]]
    sets = [{"columns": ["page_url"], "rows": 1, "share": 0.004}]
    said = conclusions({**n, "columns": columns, "column_sets": sets})["columns_synthetic"]
    # few that differ so are no reason for another fingerprint
    assert said.startswith("99.99 % of the synthetic repeats differ in ") and ";" not in said
    sets[0]["share"] = 0.012
    said = conclusions({**n, "columns": columns, "column_sets": sets})["columns_synthetic"]
    assert "; 1.2 % only in page_url: if those are copies" in said


def test_every_conclusion_has_a_number(profiled_samples):
    said = profiled_samples[0].conclusions()
    assert len(said) == 12 and all(re.search(r"\d|^No natural repeat", line) for line in said)
    assert said[0] == "7.8 % of 11 906 events are repeats, on 2.4 % of the ids; the hottest id has 378"
    assert str(profiled_samples[0]).splitlines()[0].endswith("; 94 rows are no events")


def unreadable(figure):
    "Texts that leave the picture; an axis without a name; a plot that its labels squeeze."
    (axes,) = figure.axes
    inside = [figure._suptitle, axes.xaxis.label, axes.yaxis.label, *axes.texts, *axes.get_yticklabels()]
    boxes = {text.get_text(): text.get_window_extent() for text in inside if text.get_text()}
    wrong = [text for text, box in boxes.items() if box.x0 < -3 or box.x1 > figure.bbox.x1 + 3]
    if not axes.get_xlabel():
        wrong.append("x axis")
    if axes.bbox.width < figure.bbox.width / 4:
        wrong.append("narrow")
    return wrong


def test_charts_say_their_conclusion_and_stay_in_the_picture(profiled_samples):
    for name, chart in profiled_samples[0].charts.items():
        title = chart.figure.get_suptitle().replace("\n", " ").replace("\\$", "$")
        assert title == conclusions(profiled_samples[0].numbers)[name]
        assert not unreadable(chart.figure), name
    picture = profiled_samples[0].charts["causes"].png()
    assert picture[1:4] == b"PNG" and len(picture) < 60_000


@pytest.mark.parametrize(
    "hottest, ids, ticks", [(1, 3, [1, 2, 5]), (2, 6, [1, 2, 5, 10]), (7, 200, [1, 10, 100])]
)
def test_a_short_scale_has_ticks_at_plain_numbers(hottest, ids, ticks):
    sizes = [{"events_per_id": size, "ids": n} for size, n in ((1, ids), (hottest, 1))]
    n = {"distribution": sizes, "hottest_id_events": hottest, "ids": ids}
    [axes] = _draw_distribution(n, "t").figure.axes
    low, high = axes.get_ylim()
    assert [t for t in axes.get_yticks() if low <= t <= high] == ticks
    assert not [*axes.get_xticks(minor=True), *axes.get_yticks(minor=True)]
    assert {t.get_text() for t in axes.get_xticklabels()} >= {"1"}


def test_names_that_are_no_formulas_and_long_ones_can_be_drawn(profiled_samples):
    "A pair of dollar signs is a formula to matplotlib, and this one no valid one."
    n = profiled_samples[0].numbers
    strange = "${id}_${ts}" + "x" * 60
    changed = {
        **{"gaps": [], "per_day": [], "ids": 0},  # charts without names
        "hot_ids": [{**hot, "id": strange} for hot in n["hot_ids"]],
        "per_batch": [{**n["per_batch"][i % 3], "batch": f"{strange}{i}"} for i in range(70)],
        "columns": [{**column, "column": strange + column["column"]} for column in n["columns"]],
    }
    odd = Profile({**n, **changed})
    assert not [name for name, chart in odd.charts.items() if unreadable(chart.figure)]
    assert "(the last 60 of 70 shown)" in odd.charts["per_batch"].figure.get_suptitle().replace("\n", " ")
    assert strange in odd.html()


def test_without_matplotlib_the_page_has_words_and_tables(profiled_samples, monkeypatch):
    monkeypatch.setattr("dedup_nb.distribution.profile.has_charts", lambda: False)
    page = Structure(profiled_samples[0].html())
    assert page.seen["svg"] == 0 and page.seen["table"] == 12 and page.seen["h2"] == 11


EVENT = (
    "event_id string, event_fingerprint string, collector_tstamp string, etl_tstamp string, "
    "user_ipaddress string, useragent string, page_url string, original_event_id string"
)
TIMES = ("collector_tstamp", "etl_tstamp")


def dated_events(spark, rows):
    "Rows of EVENT; times without a date are of 2026-11-16."
    frame = spark.createDataFrame(rows, EVENT)
    dated = "cast(concat(if({0} like '%-%', '', '2026-11-16 '), {0}, 'Z') as timestamp)".format
    return frame.withColumns({name: F.expr(dated(name)) for name in TIMES})


MONDAY = [
    ("a", "f1", "10:00:00", "10:05:00", "1.1.1.1", "Firefox", "/home", None),
    ("a", "f1", "10:00:01", "10:05:00", "1.1.1.1", "Firefox", "/home", None),  # sent again
    ("a", "f2", "10:40:00", "10:45:00", "1.1.1.1", "Firefox", "/cart", None),  # another event, the same id
    ("b", "f3", "11:00:00", "11:05:00", "1.1.1.7", "Firefox", "/home", None),
    ("c", "f4", "12:00:00", "12:05:00", "1.1.1.8", "BeanBot/2.1", "/home", None),
    (None, "f4", "12:00:00", "12:05:00", "1.1.1.8", "BeanBot/2.1", "/home", None),
]
RENAMED = str(uuid5(NAMESPACE, "b/f3"))
TUESDAY = [
    ("b", "f3", "11:00:00", "2026-11-17 09:00:00", "1.1.1.7", "Firefox", "/home", None),  # replayed
    (RENAMED, "f3", "11:00:00", "2026-11-17 09:00:00", "1.1.1.7", "Firefox", "/home", "b"),  # once
    ("c", "f5", "2026-11-17 12:00:00", "2026-11-17 12:05:00", "1.1.1.9", "BeanBot/2.1", "/cart", None),
    ("d", "f6", "2026-11-17 23:00:00", "2026-11-17 23:05:00", "1.1.1.4", "Firefox", "/home", None),
]


@pytest.fixture(scope="module")
def week(spark, tmp_path_factory):
    "Both days as Parquet, profiled in another time zone: what it found, its Spark jobs, what it said."
    folder = tmp_path_factory.mktemp("week")
    for name, rows in (("mon", MONDAY), ("tue", TUESDAY)):
        dated_events(spark, rows).coalesce(1).write.parquet(f"{folder}/in/run={name}")
    (folder / "in" / "run=a wed").mkdir()
    config = Config(input=f"{folder}/in", output=f"{folder}/out", input_format="parquet")
    tracker = spark.sparkContext.statusTracker()
    before = len(tracker.getJobIdsForGroup(None))
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        with heard() as said:
            found = profile(config, spark)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    return found, len(tracker.getJobIdsForGroup(None)) - before, said


@pytest.mark.slow
def test_a_row_that_was_renamed_counts_under_the_id_it_came_with(week):
    assert list(headline(week[0]).values()) == [9, 4, 3, 3, 2, 3, 1]


def test_each_row_is_in_its_batch_and_its_day(week):
    columns, frames = ["first", *REASONS], week[0].frames
    batches = frames["per_batch"][["batch", *columns]].values.tolist()
    assert batches == [["mon", 3, 1, 0, 1, 0], ["tue", 1, 0, 2, 0, 1]]
    # a day is that of the collector, in UTC: the replayed rows were collected on Monday
    days = frames["per_day"][["day", *columns]].values.tolist()
    assert days == [["2026-11-16", 3, 1, 2, 1, 0], ["2026-11-17", 1, 0, 0, 0, 1]]


def test_each_repeat_has_its_cause_and_its_example(week):
    told = {(c["kind"], c["cause"]): (c["rows"], c["examples"]) for c in week[0].numbers["causes"]}
    assert told == {
        ("natural", "exact"): (1, ["b"]),
        ("natural", "replayed"): (1, ["b"]),
        ("natural", "resent_seconds"): (1, ["a"]),
        ("synthetic", "robot"): (1, ["c"]),
        ("synthetic", "few_columns"): (1, ["a"]),
    }


def test_the_columns_that_differ_are_counted_alone_and_together(week):
    columns = week[0].frames["columns"]
    told = {(c.kind, c.column): (c.sent, c.rows) for c in columns.itertuples()}
    assert told["natural", "etl_tstamp"] == (False, 2) and told["natural", "collector_tstamp"] == (False, 1)
    assert told["synthetic", "page_url"] == (True, 2) and told["synthetic", "user_ipaddress"] == (True, 1)
    sets = sorted((s["columns"], s["rows"], s["share"]) for s in week[0].numbers["column_sets"])
    assert sets == [(["page_url"], 1, 0.5), (["user_ipaddress", "page_url"], 1, 0.5)]


def test_a_replay_must_be_remembered_for_as_long_as_the_batches_are_apart(week):
    caught = {w["window"]: w["caught"] for w in week[0].numbers["window"]}
    # a came a second later; b was processed again after 21 h 55 min, though its gap is 0
    assert (caught["1 hour"], caught["12 hours"], caught["1 day"]) == (1, 1, 3)
    zero = [bar for bar in week[0].numbers["gaps"] if bar["to_ms"] == 0]
    assert [(bar["across"], bar["rows"]) for bar in zero] == [(True, 2)]


def test_a_folder_that_is_left_out_is_named(week):
    assert any("'a wed' cannot name a batch" in note for note in week[0].numbers["notes"])


def test_a_profile_takes_no_more_jobs_than_it_should(week):
    assert week[1] <= 26
    assert [line.split()[3].strip(":") for line in week[2]] == ["read", "profile", "report"]


MIXED = [
    *MONDAY[:4],
    (None, "f9", "10:00:00", "10:05:00", "1.1.1.1", "Firefox", "/home", None),
    *[("c", None, "10:00:00", "10:05:00", "3.3.3.3", "Firefox", "/home", None)] * 3,
    ("never", "f", None, "10:05:00", "1.1.1.1", "Firefox", "/home", None),
    ("late", "f", "9999-12-31 10:00:00", "10:05:00", "1.1.1.1", "Firefox", "/home", None),
]


@pytest.fixture(scope="module")
def mixed(spark):
    return profile_events(dated_events(spark, MIXED))


def test_one_batch_says_nothing_across_batches(mixed):
    n = mixed.numbers
    assert list(headline(mixed).values()) == [9, 5, 2, 3, 1, 3, 1] and n["without_fingerprint"] == 3
    reasons = dict(zip(REASONS, (3, 0, 1, 0)))
    assert n["per_batch"] == [{"batch": "all", "events": 9, "first": 5, **reasons}]
    assert any("one batch" in note for note in n["notes"]) and "per_batch" not in conclusions(n)
    assert {q["where"] for q in n["quantiles"]} == {"within a batch"}


def test_times_that_no_event_has_are_counted(mixed):
    assert mixed.frames["per_day"]["day"].tolist() == ["2026-11-16", "9999-12-31"]
    assert any(note.startswith("1 event has no collector_tstamp") for note in mixed.numbers["notes"])


def test_stray_clocks_are_noted(spark):
    rows = spark.range(2000).selectExpr(
        "id % 1990 as event_id", "date_add(date'2026-11-16', int(id % 2)) as day"
    )
    stray = spark.sql("select 5000L as event_id, date'9999-12-31' as day")
    found = profile_events(rows.unionAll(stray), order_by="day")
    assert found.numbers["span_ms"] == 2 * 86_400_000
    assert found.frames["per_day"]["day"].max() == "9999-12-31"
    note = "The data spans 2 days without 1 event at its ends, whose clocks may be wrong."
    assert note in found.numbers["notes"]


def test_each_strategy_has_its_outcome(mixed):
    "One copy of a, two of c without a fingerprint, one more event of a."
    names = ["missing_fingerprint", "synthetic", "kept", "renamed", "quarantined", "dropped"]
    assert mixed.frames["outcomes"][names].values.tolist() == [
        ["surrogate", "rename_later", 6, 1, 0, 3],
        ["surrogate", "rename_all", 6, 2, 0, 3],
        ["surrogate", "quarantine", 5, 0, 1, 3],
        ["surrogate", "delete_all", 4, 0, 0, 5],
        ["surrogate", "off", 6, 0, 0, 3],
        ["unique", "rename_later", 8, 3, 0, 1],
        ["unique", "rename_all", 8, 5, 0, 1],
        ["unique", "quarantine", 5, 0, 3, 1],
        ["unique", "delete_all", 3, 0, 0, 6],
        ["unique", "off", 8, 0, 0, 1],
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "missing, strategy",
    [
        ("unique", "rename_all"),
        pytest.param("surrogate", "rename_all", marks=pytest.mark.slow),
        pytest.param("unique", "rename_later", marks=pytest.mark.slow),
        pytest.param("unique", "delete_all", marks=pytest.mark.slow),
    ],
)
def test_a_run_does_what_was_forecast(spark, mixed, missing, strategy):
    forecasts = mixed.frames["outcomes"].set_index(["missing_fingerprint", "synthetic"])
    told = forecasts.loc[missing, strategy]
    result = deduplicate(dated_events(spark, MIXED), synthetic=strategy, missing_fingerprint=missing)
    original = [row[0] for row in result.kept.select("original_event_id").collect()]
    assert (len(original), len(original) - original.count(None)) == (told["kept"], told["renamed"])


@pytest.fixture(scope="module")
def bare(spark):
    rows = [("x", "/home", "Firefox"), ("x", "/cart", "Firefox"), *[("y", "/home", "Opera")] * 2]
    monday = spark.createDataFrame(rows, "order_id string, page string, useragent string")
    tuesday = spark.createDataFrame([("z", "/home"), ("", "/home")], "order_id string, page string")
    return profile_events({"monday": monday, "tuesday": tuesday}, event_id="order_id")


def test_without_fingerprints_the_id_alone_says_what_is_the_same(bare):
    assert list(headline(bare).values()) == [5, 3, 2, 2, 0, 2, 1]
    assert {c["cause"]: c["examples"] for c in bare.numbers["causes"]} == {"exact": ["y"], "changed": ["x"]}
    assert {o["missing_fingerprint"] for o in bare.numbers["outcomes"]} == {"id", "unique"}
    assert bare.numbers["columns"] == [
        {"kind": "natural", "column": "page", "sent": True, "rows": 1, "share": 0.5}
    ]
    note = "rows with the same id are the same event; 1 copy differs from the first in other columns."
    assert any(line.endswith(note) for line in bare.numbers["notes"])


def test_without_any_time_there_are_no_days_no_gaps_and_no_windows(bare):
    n = bare.numbers
    assert n["per_day"] == n["gaps"] == n["window"] == n["quantiles"] == []
    assert n["knee"] is n["span_ms"] is None
    assert {"per_day", "gaps_natural", "window"}.isdisjoint(conclusions(bare.numbers))
    assert any("no collector_tstamp" in note for note in n["notes"])


def test_each_column_of_snowplow_that_is_missing_is_one_line_that_names_it(spark, bare):
    events = spark.createDataFrame([("x", "/")], "event_id string, page string")
    found = profile_events(events.withColumn("collector_tstamp", F.expr("timestamp '2026-11-20'")))
    for column in ("event_fingerprint", "etl_tstamp", "user_ipaddress", "useragent", "dvce_sent_tstamp"):
        assert sum(f"no {column}" in note for note in found.numbers["notes"]) == 1, column
    # elsewhere nobody misses them
    assert not any(
        f"no {column}" in note for column in ("etl_tstamp", "user_ip") for note in bare.numbers["notes"]
    )
    line = "1 of the 2 batches, tuesday first, have no useragent"
    assert any(note.startswith(line) for note in bare.numbers["notes"])


def test_of_a_fingerprint_that_is_named_by_its_columns_nothing_is_missed(spark):
    events = spark.createDataFrame([("x", "/", 1)], "event_id string, page string, n int")
    found = profile_events(events, fingerprint_columns="page", order_by="n")
    assert not any("fingerprint" in note for note in found.numbers["notes"])


@pytest.mark.parametrize(
    "names", [("2026-11-01", "2026-11-20"), ("first", "second")], ids=["spelled", "else"]
)
def test_a_memory_goes_by_batches_where_copies_carry_the_same_time(spark, names):
    early, late = names
    times = {early: "2026-11-01T10:00:00Z", late: "2026-11-20T11:00:00Z"}
    rows = {batch: [(f"{batch}{n}", at) for n in range(9)] for batch, at in times.items()}
    rows[late] += rows[early][:3]
    frames = {batch: spark.createDataFrame(rows[batch], "id string, ts string") for batch in names}
    found = profile_events(frames, event_id="id", order_by="ts", fingerprint_columns="ts")
    caught = {w["window"]: w["caught"] for w in found.numbers["window"]}
    assert (caught["14 days"], caught["30 days"]) == (0, 3) and found.numbers["knee"] is None
    assert "A memory shorter than 30 days catches no copy" in conclusions(found.numbers)["window"]


def test_an_empty_input(spark):
    found = profile_events(dated_events(spark, []))
    assert list(headline(found).values()) == [0] * 7 and json.dumps(found.numbers)
    assert not found.charts and not found.conclusions() and found.html().count("<h2") == 1  # the words
    assert found.numbers["notes"][0] == "The input has no rows."


def test_where_all_ids_are_unique_nothing_else_is_said():
    alone = [Row(batch=0, missing=False, day=1, rows=2)]
    keys = Keys(("event_id",), None, (), "surrogate", ())
    numbers = numbers_of(Measures(("b",), alone, 0, 0, [], [], [], []), Subject((), (), keys, COMPARED))
    assert [numbers[name] for name in COUNTS] == [2, 2, 0, 0, 0, 1, 0]
    assert conclusions(numbers) == {"distribution": "All 2 ids are unique"}


def test_the_knee_is_where_more_hours_bring_little(profiled_samples):
    shares = {
        "1 hour": (0.7, 1),
        "1 day": (0.97, 0.99),
        "7 days": (0.98, 0.9),
        "30 days": (0.985, 0.4),
        "180 days": (0.99, 0),
    }
    curve = [
        {"window": name, "hours": WINDOWS[name], "caught": 0, "share": share, "seen": seen}
        for name, (share, seen) in shares.items()
    ]
    assert knee(curve) == "1 day"
    assert conclusions({**profiled_samples[0].numbers, "window": curve, "knee": "1 day"})["window"] == (
        "A memory of 1 day catches 97 % of the copies; "
        "30 days, 98 % of the copies, as far as 40 % of the data can tell"
    )


def test_wrong_input_is_said_clearly(spark, tmp_path):
    output = tmp_path / "out"
    (tmp_path / "events").mkdir()
    with pytest.raises(MissingInputError, match="evnts; it is not there.*Did you mean events?"):
        profile(Config(input=str(tmp_path / "evnts"), output=str(output)), spark)
    assert not output.exists()
    with pytest.raises(ConfigError, match="A profile needs input"):
        profile(Config(output="out"), spark)
    inside = tmp_path / "events/look"
    with pytest.raises(ConfigError, match="The output .* lies in it, and would be read by the next run"):
        profile(Config(input=str(tmp_path / "events"), output=str(inside)), spark)
    assert not inside.exists()
    with pytest.raises(ConfigError, match="nothing to profile"):
        profile_events({})


@pytest.mark.parametrize("input_format", ["auto", "csv", "enriched_tsv"])
def test_an_input_without_anything_in_it_is_refused(input_format, spark, tmp_path):
    (tmp_path / "in").mkdir()
    config = Config(input=str(tmp_path / "in"), output=str(tmp_path / "out"), input_format=input_format)
    with pytest.raises(MissingInputError, match="in has no rows: no file is in .*/in .*Name another input"):
        profile(config, spark)
    (tmp_path / "in/a.csv").write_text("")
    with pytest.raises(MissingInputError, match="in has no rows. Name another input"):
        profile(config, spark)


@pytest.mark.parametrize("column", ["event_id", "event_fingerprint"])
def test_a_column_that_was_named_must_be_there(spark, column):
    with pytest.raises(MissingColumnError, match="needs uid"):
        profile_events(dated_events(spark, MONDAY), **{column: "uid"})


@pytest.mark.parametrize(
    "wrong, words",
    [
        ({"skip_batches": "2026-11-18"}, "skip_batches names 2026-11-18; .* mean 2026-11-18-00-00-00"),
        ({"since": "2027"}, "No batch is left to profile: since=2027 leaves out all 3 batches"),
        ({"since": "2027", "until": "2026"}, "since=2027 comes after until=2026"),
    ],
)
def test_batches_that_are_not_there_are_named(spark, wrong, words):
    with pytest.raises(ConfigError, match=words):
        profile(Config(input=str(ROOT / "data_samples"), output="out", **wrong), spark)


@pytest.mark.slow
def test_whoever_picks_the_rows_of_repeated_ids_the_profile_is_the_same(spark, tmp_path, monkeypatch):
    cells = ", ".join(f"{name} {kind if kind == 'timestamp' else 'string'}" for name, kind in ENRICHED)
    samples = spark.read.schema(cells).csv(f"{ROOT}/data_samples/run=*", sep="\t", quote="", escape="")
    ids = {"event_id": F.expr("if(event_id < '1', null, if(event_id < '2', '', event_id))")}
    for name, number in (("1", 0), ("2", 1)):
        part = samples.withColumns(ids).where(f"pmod(hash(domain_userid), 2) = {number}")
        part.withColumn("txn_id", F.expr("cast(txn_id as long)")).write.parquet(
            str(tmp_path / f"in/run={name}")
        )

    def numbers(output):
        config = Config(input=str(tmp_path / "in"), output=str(tmp_path / output), input_format="parquet")
        return {name: told for name, told in profile(config, spark).numbers.items() if name != "settings"}

    by_spark = numbers("by_spark")
    picked = []
    monkeypatch.setattr(profile_copies, "_LARGE", 0)
    pick = profile_copies._pick
    monkeypatch.setattr(profile_copies, "_pick", lambda *told: picked.append(told) or pick(*told))
    assert numbers("by_arrow") == by_spark and len(picked) == 2
    assert by_spark["natural_excess"] and by_spark["synthetic_excess"] and by_spark["bad"]
    # more ids than a task is sent are Spark's again
    monkeypatch.setattr(profile_copies, "_FEW", 0)
    assert numbers("again") == by_spark and len(picked) == 2

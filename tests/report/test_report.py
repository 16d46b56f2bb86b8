"""The page of a batch, and that of all: what they say, and that nothing is said of nothing."""

import html
import json
import random
import re
import shlex
import sys
import time
from pathlib import Path

import pytest
from IPython.core.formatters import HTMLFormatter
from runs import TWO, WITH_COPIES, go, heard, write

from dedup_nb import Config
from dedup_nb.base import storage
from dedup_nb.base.errors import ConfigError
from dedup_nb.base.storage import names_in, write_text
from dedup_nb.cli import main
from dedup_nb.distribution.profile import profile
from dedup_nb.operate.history import forget, runs
from dedup_nb.report.page import BAD, DROPPED, waterfall
from dedup_nb.report.pages import (
    bad_examples,
    batch_cells,
    count_faults,
    draw_pages,
    fate_chart,
    faults_in_words,
    index_html,
    looked_back,
    remove_row,
    report_html,
    row_file,
    row_of,
    some_bad_rows,
    unlike_others,
    write_index,
)

NONE = {"read": 5, "bad": 0, "kept": 5, "dropped": 0, "renamed": 0, "suspects": 0}
PLAIN = {
    "batch_id": "b",
    "status": "committed",
    "counts": NONE,
    "reasons": {},
    "verdicts": {},
    "notes": [],
    "seconds": {"read": 1.0, "total": 1.0},
    "bytes": {"input": 10},
    "settings": {},
    "versions": {},
}


def test_a_waterfall_adds_up():
    drawn = waterfall("t", 1000, [("bad rows", 20, BAD), ("copies", 30, DROPPED)])._repr_html_()
    assert ">1 000<" in drawn and "20 (2 %)" in drawn and "30 (3 %)" in drawn and ">950 (95 %)<" in drawn


STATES = {  # what is known of a batch -> in words
    "abandoned: interrupted": {"state": "abandoned", "why": "interrupted"},
    f"abandoned: {'word ' * 31}word…": {"state": "abandoned", "why": "word " * 40},
    "claimed since 2026-11-20 10:00": {"state": "claimed", "at": "2026-11-20T10:00:59.1+00:00"},
    "claimed since 2026-11-20 10:00 (not running any more: start it again, which takes it over)": {
        "state": "claimed",
        "at": "2026-11-20T10:00:59.1+00:00",
        "is_gone": True,
    },
}


@pytest.mark.parametrize("words, batch", STATES.items())
def test_the_state_of_a_batch_is_said_in_words(words, batch):
    assert batch_cells({"batch_id": "b", "counts": {}, **batch})["state"] == words


def test_a_page_says_nothing_of_nothing():
    text = report_html(PLAIN)
    assert "5 rows read = 0 bad + 5 kept + 0 dropped" in text and "became of the rows" not in text
    for heading in ("earlier batches", "ids with most rows", "wrong with bad rows"):
        assert heading not in text


def test_a_page_lists_the_notes_and_draws_the_rest():
    counts = {**NONE, "kept": 3, "dropped": 2, "renamed": 1}
    shown = {**PLAIN, "counts": counts, "reasons": {"natural": 2}, "notes": ["look <here>"]}
    text = report_html({**shown, "seconds": {"read": 1.0, "natural": 0.04, "total": 1.0}})
    assert text.count("<li>") == 1 and "<li>look &lt;here&gt;</li>" in text
    assert "became of the rows" in text and ">renamed<" in text and "0.0 s" not in text


def test_a_setting_that_is_a_list_is_said_with_commas():
    text = report_html({**PLAIN, "settings": {"event_id": ["tenant", "id"], "rerun": True}})
    assert "event id tenant, id, rerun True" in text and "[" not in text.partition("<body>")[2]


def test_what_comes_from_the_events_is_escaped():
    hot = [{"event_id": "<script>", "rows": 2, "pairs": 1, "dropped": 1}]
    text = report_html({**PLAIN, "hot_ids": hot}, [("<b>wrong", 1, "<i>row")])
    assert (
        text.count("<script>") == 1
        and "&lt;script&gt;" in text
        and "<b>wrong" not in text
        and "<i>row" not in text
    )


def test_the_command_that_is_copied_takes_any_id(capsys):
    ids = ("a b", "-abc", "x" * 200)
    text = report_html(
        {**PLAIN, "hot_ids": [{"event_id": i, "rows": 2, "pairs": 1, "dropped": 1} for i in ids]}
    )
    copied = [html.unescape(found) for found in re.findall('data-copy="([^"]*)"', text)]
    # of the last one nobody knows the end
    assert copied == ["dedup explain 'a b' --output OUTPUT", "dedup explain --output OUTPUT -- -abc"]
    for command in copied:
        with pytest.raises(SystemExit, match="2"):
            main(shlex.split(command)[1:])
        assert "OUTPUT is not there" in capsys.readouterr().err


def test_examples_are_one_for_each_fault_with_its_rows_and_the_page_shows_five(tmp_path):
    record = {"failure": {"errors": ["same"]}, "payload": "a\tb" * 200}
    faults = [{"failure": {"errors": [f"fault {n}"]}, "payload": {"n": n}} for n in range(9)]
    lines = [json.dumps({"data": data}) for data in (record, record, *faults)]
    (tmp_path / "part").write_text("\n".join(lines) + "\n")
    found = bad_examples(some_bad_rows(str(tmp_path), [{"path": "part", "bytes": 1}]))
    assert [(what, rows) for what, rows, _ in found] == [("same", 2), *((f"fault {n}", 1) for n in range(9))]
    assert found[1][2] == '{"n": 0}' and [*some_bad_rows(str(tmp_path), [])] == []
    for bad, words in (
        (11, "Counted in all 11 bad rows; 5 other faults beside."),
        (99, "Counted in the first 11; 5"),
    ):
        page = report_html({**PLAIN, "counts": {**PLAIN["counts"], "read": 99, "bad": bad}}, found)
        assert words in page and "fault 3" in page and "fault 4" not in page


FAULTS = {  # what bad rows say, how many there are -> in words
    "lines of CSV": (
        ["Line 3: no UTF-8", "Line 40: no UTF-8", "n is no int: secret: 7", "n is no int: 8\n9", "Line 5: x"],
        5,
        "n is no int (2), no UTF-8 (2), x (1)",
    ),
    "more than three, not all looked at": (
        ["a", "a", "b", "c", "d"],
        1000,
        "a (2), b (1), c (1) and other faults (1), of 5 looked at",
    ),
    "many kinds": ([*"abcdefghijkl", "l"], 13, "l (2), a (1), b (1) and other faults (9)"),
    "values, and how many other faults": (
        ["Unknown payload: iglu:a/b", "Unknown payload: iglu:a/c", '{"fieldCount": 7}', '{"fieldCount": 8}'],
        4,
        'Unknown payload (2), {"fieldCount": ...} (2)',
    ),
    "nobody has looked": ([], 5, ""),
}


@pytest.mark.parametrize("faults, whole, words", FAULTS.values(), ids=FAULTS)
def test_faults_are_counted_without_the_values_of_a_row(faults, whole, words):
    assert faults_in_words(count_faults({"errors": [fault]} for fault in faults), whole) == words


def test_a_bad_row_that_is_cut_says_so(tmp_path):
    records = [{"failure": {"errors": [n * "f"]}, "payload": n * "x"} for n in (160, 161)]
    (tmp_path / "part").write_text("\n".join(json.dumps({"data": data}) for data in records) + "\n")
    found = bad_examples(some_bad_rows(str(tmp_path), [{"path": "part", "bytes": 1}]))
    assert sorted(found) == sorted([(160 * "f", 1, 160 * "x"), (159 * "f" + "…", 1, 159 * "x" + "…")])


@pytest.mark.parametrize(
    "natural, words",
    [
        (108, "; most of what is dropped: natural duplicates in the batch"),
        (107, "; 107 of the 214 dropped: natural duplicates in the batch"),  # as many as of earlier batches
    ],
)
def test_most_is_more_than_half(natural, words):
    counts = {**NONE, "read": 4000, "kept": 3786, "dropped": 214}
    reasons = {"natural": natural, "natural_cross_batch": 214 - natural}
    assert fate_chart({**PLAIN, "counts": counts, "reasons": reasons}).title.endswith(words)


def test_a_page_says_from_when_to_when():
    told = {"started_at": "2026-11-20T10:00:00Z", "finished_at": "2026-11-20T10:01:00Z"}
    page = report_html({**PLAIN, **told})
    assert "from 2026-11-20T10:00:00Z to 2026-11-20T10:01:00Z" in page
    assert "ran at 2026-11-20 10:00 (UTC)" in page.partition("<h2>")[0]
    assert "began, ended" not in report_html(PLAIN) and "ran at" not in report_html(PLAIN)


@pytest.fixture(scope="module")
def drawn_pages(spark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("drawn")
    write(spark, folder / "in", WITH_COPIES)
    return go(spark, folder), folder / "out"


def test_a_run_draws_the_pages_of_its_batches(drawn_pages):
    _, output = drawn_pages
    first, second = ((output / f"runs/{b}/report.html").read_text() for b in "12")
    assert all(page.count("href=") == page.count('href="../index.html"') == 1 for page in (first, second))
    assert "Which earlier batches had them" in second and "Which earlier batches" not in first
    assert "What is wrong with bad rows" in first and "bad rows" not in second


def test_the_hottest_ids_are_counted(drawn_pages):
    summary, _ = drawn_pages
    assert [m["hot_ids"] for m in summary.batches] == [
        [{"event_id": "a", "rows": 2, "pairs": 1, "dropped": 1}],
        [{"event_id": "a", "rows": 2, "pairs": 2, "dropped": 1}],
    ]


def test_pages_that_are_missing_are_drawn_as_they_were(drawn_pages, capsys):
    _, output = drawn_pages
    pages = [output / f"runs/{name}.html" for name in ("1/report", "2/report", "index")]
    drawn = [page.read_text() for page in pages]
    for page in pages[1:]:
        page.unlink()
    pages[0].write_text("there")
    draw_pages(str(output))
    assert [page.read_text() for page in pages] == ["there", *drawn[1:]]
    for page in pages:
        page.unlink()
    with pytest.raises(SystemExit) as end:
        main(["runs", "--output", str(output)])
    assert end.value.code == 0 and [page.read_text() for page in pages] == drawn


@pytest.mark.slow
def test_without_jinja_a_profile_leaves_its_numbers(spark, tmp_path, monkeypatch):
    write(spark, tmp_path / "in", {"1": TWO["1"]})
    with monkeypatch.context() as missing, heard() as lines:
        missing.setitem(sys.modules, "jinja2", None)
        profile(Config(input=str(tmp_path / "in"), output=str(tmp_path / "look")), spark)
    assert (tmp_path / "look/profile.json").exists() and not (tmp_path / "look/profile.html").exists()
    assert "profile.html needs pip install 'dedup_nb[report]'" in lines[-1]


def test_without_jinja_a_run_commits_and_says_how_pages_are_drawn(spark, tmp_path, monkeypatch):
    write(spark, tmp_path / "in", {"1": TWO["1"]})
    with monkeypatch.context() as missing, heard() as lines:
        missing.setitem(sys.modules, "jinja2", None)
        summary = go(spark, tmp_path, manifest="none")
        with pytest.raises(ConfigError, match=r"Pages need Jinja2: pip install 'dedup_nb\[report\]'\."):
            report_html(PLAIN)
        assert HTMLFormatter()(summary) is None  # a notebook shows the text
    assert summary.counts["kept"] == 2 and (tmp_path / "out/runs/1/files.json").exists()
    said = "note: no page was drawn, as Jinja2 is missing. pip install 'dedup_nb[report]', then: dedup runs"
    assert [said in line for line in lines].count(True) == 1
    assert not list((tmp_path / "out").rglob("*.html"))
    draw_pages(str(tmp_path / "out"))
    assert "Batch 1" in (tmp_path / "out/runs/1/report.html").read_text()


# --- all batches


def rows_of_many(number, **odd):
    "Rows of `metrics/`, a batch an hour, each much like the others."
    made = {}
    for n in range(number):
        dropped, bad = odd.get(f"dropped_{n}", 400 + n % 7), odd.get(f"bad_{n}", 20 + n % 5)
        counts = {"read": 10_000, "bad": bad, "kept": 10_000 - bad - dropped, "dropped": dropped}
        cross = {"looked_back": looked_back({"a": 3, "b": 2}, {"a": 0, "b": 7200}, 10_000)}
        told = {"counts": {**NONE, **counts}, "reasons": {"natural": dropped}, "cross_batch": cross}
        made |= row_file({**PLAIN, **told, "batch_id": f"b{n:04d}", "sequence": 2 * n})
    return made


def test_the_page_of_all_lists_them_and_names_what_is_unlike_the_others(tmp_path):
    for path, text in rows_of_many(300, dropped_250=4000, bad_299=900).items():
        write_text(f"{tmp_path}/{path}", text)
    begun = time.monotonic()
    write_index(str(tmp_path))
    assert time.monotonic() - begun < 5
    page = (tmp_path / "runs/index.html").read_text()
    assert '<a href="b0299/report.html">b0299</a> has 9 % bad rows (the median is 0.22 %)' in page
    assert '<a href="b0250/report.html">b0250</a> has 40 % duplicates (the median is 4 %)' in page
    assert (
        len(page) < 300_000
        and page.count('/report.html">b') == 302  # each batch, and the two that are named
        and page.count('<tr class="odd"') == 2
        and "100 % of what is dropped for earlier batches" in page
        and all(f">{words}<" in page for words in ("up to an hour", "an hour to a day", "a day to a week"))
        and "1 column is cut at the top: the highest is 40 %" in page
        and '<a href="b0250/report.html" title="b0250: 40 %">' in page
    )


def test_a_thousand_batches_are_a_small_page_paged_by_month(tmp_path):
    rows = [json.loads(text) for text in rows_of_many(1000).values()]
    for n, row in enumerate(rows):
        row |= {
            "etl_time": f"2026-{1 + n // 100:02d}-01T00:00:00Z" if n else None,
            "rows_erased": 3 * (n == 7),
        }
    page = index_html(rows, 1000)
    assert len(page) < 300_000 and page.count('/report.html">b') == 1000
    assert "<summary>2026-10 (100)</summary>" in page and "<summary>without a time (1)</summary>" in page
    assert page.count("<details open>") == 1 and "erased</button>" in page and "+ 3 erased" in page
    assert "erased</button>" not in index_html(rows[10:40], 30)


def test_chance_makes_no_batch_unlike_the_others():
    noise = random.Random(7)
    alarms = 0
    for _ in range(200):
        shares = [max(0, noise.gauss(450, 90)) for _ in range(60)]
        rows = [dict(batch_id="b", rows_read=10_000, rows_bad=0, rows_dropped=found) for found in shares]
        alarms += len(unlike_others(rows))
    assert alarms < 24  # of 12,000


def test_of_a_long_stream_the_last_rows_alone_are_read(tmp_path, monkeypatch):
    names = ["2026-11-20", *(f"web-{n:09d}" for n in range(1010))]
    for name, text in zip(names, rows_of_many(1011).values()):
        write_text(f"{tmp_path}/metrics/{name}.json", text)
    read, real = [], storage.read_json
    monkeypatch.setattr(storage, "read_json", lambda path: (read.append(Path(path).stem), real(path))[1])
    write_index(str(tmp_path))
    assert sorted(read) == [names[0], *names[-1000:]]
    assert "1 011 batches, of which the last 1 000 are shown" in (tmp_path / "runs/index.html").read_text()


@pytest.mark.parametrize(
    "last, shown, looked_at", [(2, "34", 3), (1, "4", 2), (9, "1234", 5), (None, "1234", 5)]
)
def test_of_an_output_without_a_manifest_the_last_batches_alone_are_read(
    tmp_path, monkeypatch, last, shown, looked_at
):
    for name in "1234":
        write_text(
            f"{tmp_path}/runs/{name}/metrics.json", json.dumps({**PLAIN, "batch_id": name, "attempt": "t"})
        )
        write_text(f"{tmp_path}/runs/{name}/files.json", '{"status": "committed", "attempt": "t"}')
    write_text(f"{tmp_path}/runs/index.html", "")
    read, real = set(), storage.read_json
    monkeypatch.setattr(storage, "read_json", lambda path: (read.add(Path(path).parent), real(path))[1])
    listed = runs(Config(output=str(tmp_path), manifest="none"), last=last)
    assert "".join(row[0] for row in listed.rows[1:]) == shown and len(read) == looked_at


def test_what_was_only_decided_is_no_batch_of_the_page(tmp_path):
    for path, text in rows_of_many(3).items():
        decided = {"status": "decided"} if "b0001" in path else {}
        write_text(f"{tmp_path}/{path}", json.dumps({**json.loads(text), **decided}))
    write_index(str(tmp_path))
    assert "2 batches: " in (tmp_path / "runs/index.html").read_text()


def test_the_page_of_all_is_that_of_the_rows(tmp_path):
    for path, text in rows_of_many(12).items():
        write_text(f"{tmp_path}/{path}", text)
    write_index(str(tmp_path))
    assert "b0003" in (tmp_path / "runs/index.html").read_text()
    remove_row(str(tmp_path), "b0003")
    assert "b0003" not in (tmp_path / "runs/index.html").read_text()


def test_metrics_are_one_table_with_one_row_a_batch(spark, drawn_pages):
    summary, output = drawn_pages
    table = spark.read.json(str(output / "metrics"))
    found = {r.batch_id: r for r in table.collect()}
    assert sorted(found) == ["1", "2"] and found["2"].back_hour == 1 and found["1"].rows_bad == 1
    for m in summary.batches:
        r = found[m["batch_id"]]
        assert r.rows_read == r.rows_bad + r.rows_kept + r.rows_dropped + r.rows_erased
        assert r.asDict() == row_of(m)
    assert 'href="2/report.html"' in (output / "runs/index.html").read_text()


@pytest.mark.slow
def test_a_batch_that_is_done_again_has_its_page_drawn_anew(spark, drawn_pages):
    _, output = drawn_pages
    page = output / "runs/1/report.html"
    page.write_text("of the attempt before")
    go(spark, output.parent, batch_id="1", rerun=True)
    assert "Batch 1" in page.read_text()


@pytest.mark.slow
def test_a_forgotten_batch_leaves_the_table_and_comes_back_with_its_rerun(spark, drawn_pages):
    _, output = drawn_pages
    there = Config(output=str(output))
    forget("2", there, spark, yes=True)
    assert names_in(f"{output}/metrics") == ["1.json"]
    assert "2/report" not in (output / "runs/index.html").read_text()
    assert "was forgotten" in (output / "runs/2/report.html").read_text()
    go(spark, output.parent)
    assert "was forgotten" not in (output / "runs/2/report.html").read_text()
    assert names_in(f"{output}/metrics") == ["1.json", "2.json"]
    assert [t["batch_id"] for t in runs(there, spark, last=1).data] == ["2"]
    with pytest.raises(ConfigError, match="wanted a number of batches from 1"):
        runs(there, spark, last=0)

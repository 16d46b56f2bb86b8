"""The README and the documents: commands run, links lead somewhere, figures are the measured ones."""

import ast
import importlib
import json
import re
import runpy

import pytest
from commands import blocks, checked, inline, words_of
from conftest import ROOT
from runs import TWO_DAYS, write

from dedup_nb import __version__
from dedup_nb.base.config import settings
from dedup_nb.cli import main

DOCS = [ROOT / "README.md", ROOT / "docs/operate.md"]
DOCS += [p for p in sorted((ROOT / "docs").glob("*.md")) if p not in DOCS]
PAGES = [*DOCS, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "recipes").rglob("*.md"))]
TEXTS = {p: p.read_text() for p in PAGES}


def named(paths):
    return pytest.mark.parametrize("path", paths, ids=lambda p: str(p.relative_to(ROOT)))


def commands():
    "The command lines in the blocks of all documents, as words, each of them once."
    lines = [line for p in DOCS for line in blocks(TEXTS[p]) if re.match(r"(\.venv/bin/)?dedup ", line)]
    return list(dict.fromkeys(tuple(words_of(line)[1:]) for line in lines))


@pytest.mark.slow
def test_the_commands_of_the_documents_run(spark, tmp_path, monkeypatch, capsys):
    # columns and tables that are not here, and what never ends
    others = {"--event-id", "--create-table", "--trigger", "--table"}
    listed = [words for words in commands() if not others & set(words)]
    wanted = {
        "profile",
        "plan",
        "run",
        "runs",
        "explain",
        "backfill",
        "forget",
        "expire",
        "abandon",
        "stream",
    }
    assert {words[0] for words in listed} >= wanted
    write(spark, tmp_path / "EVENTS", TWO_DAYS)
    write(spark, tmp_path / "ARCHIVE", {"2026-10-01": [("z", "f", 1, 1)]})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DEDUP_INPUT_FORMAT", "parquet")
    stands_for = {"EVENT_ID": "a", "BATCH": "2026-11-19", "LANDING": "EVENTS", "OLD/events": "CLEAN/events"}
    ends = {}
    for line in listed:
        words = [stands_for.get(word, word) for word in line]
        if "..." in words:
            words[words.index("...")] = "--input=EVENTS"
            words.append("--output=CLEAN")
        if "decide" in words and "CLEAN" in words:
            words[words.index("CLEAN")] = "LOOKED"
        with pytest.raises(SystemExit) as end:
            main(words)
        ends[" ".join(words)] = (end.value.code, capsys.readouterr().err[-500:])
    # there is no open claim to abandon
    assert not {line: end for line, end in ends.items() if end[0] and not line.startswith("abandon")}


@named(DOCS)
def test_what_is_not_run_would_be_taken(path):
    "Commands in the running text, those that another test cannot run, and the parameters of papermill."
    told = [t for t in inline(TEXTS[path]) if re.match("dedup [a-z]", t)] + blocks(TEXTS[path])
    names = {"profile", *(s.name for s in settings())}
    for line in told:
        if re.match(r"(\.venv/bin/)?dedup [a-z]", line):
            checked([word for word in words_of(line)[1:] if word != "..."])
        if line.startswith("papermill"):
            assert set(re.findall(r" -[pr] (\w+)", line)) <= names


@named(PAGES)
def test_a_link_leads_somewhere(path):
    for target, heading in re.findall(r"(?:\]\(|src=\")(?!http)([^)#\"]*)#?([^)\"]*)[)\"]", TEXTS[path]):
        there = path.parent / target if target else path
        assert there.exists(), target
        if heading:
            heads = re.findall(r"^#+ (.*)$", there.read_text(), re.M)
            assert heading in {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in heads}, heading


@named(DOCS)
def test_what_python_examples_import_is_there(path):
    for code in re.findall(r"^```python\n(.*?)^```", TEXTS[path], re.M | re.S):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("dedup_nb"):
                module = importlib.import_module(node.module)
                assert all(hasattr(module, name.name) for name in node.names)


def test_every_document_is_in_the_readme():
    readme = TEXTS[ROOT / "README.md"]
    assert not [p.name for p in DOCS[1:] if p.name != "index.md" and f"(docs/{p.name}" not in readme]
    assert len(readme.splitlines()) <= 130
    assert f"## [{__version__}]" in TEXTS[ROOT / "CHANGELOG.md"]


def test_what_is_generated_is_as_committed(spark):
    made = runpy.run_path(str(ROOT / "docs/generate.py"))
    assert made["picture"](spark) == (ROOT / "docs/before_after.svg").read_text(), "make docs"
    page = (ROOT / "docs/settings.md").read_text()
    assert made["settings_page"](page) == page, "make docs"
    chapters = (ROOT / "nbs/README.md").read_text()
    assert made["chapters_page"](chapters) == chapters, "make docs"


def test_the_three_lines_of_the_readme_run(spark):
    made = runpy.run_path(str(ROOT / "docs/generate.py"))
    events = spark.createDataFrame(made["ROWS"], made["SCHEMA"])
    [code] = re.findall(r"^```python\n(.*?)^```", TEXTS[ROOT / "README.md"], re.M | re.S)
    found = {"events": events}
    exec(code, found)
    assert len(code.splitlines()) == 3 and found["result"].kept.columns[-1] == "original_event_id"


def outputs_of(name):
    "What a benchmark printed."
    cells = json.loads((ROOT / f"nbs/jobs/{name}.ipynb").read_text())["cells"]
    told = [o for c in cells for o in c.get("outputs", [])]
    return "\n".join("".join(o.get("text", o.get("data", {}).get("text/plain", ""))) for o in told)


def test_the_figures_of_the_readme_are_those_of_the_benchmark():
    shown, grows = (outputs_of(name) for name in ("bench", "bench_history"))
    readme = TEXTS[ROOT / "README.md"]
    table = readme[readme.index("| Parquet to Parquet | seconds") :].split("\n\n")[0].splitlines()[2:]
    told = [pair for line in table for pair in re.findall(r"([\w][\w ,]*) \| (\d+\.\d)", line)]
    assert len(told) == 8
    for label, seconds in told:
        assert re.search(rf"^{re.escape(label)} +{seconds} ", shown, re.M), label
    events, history = (
        re.search(r"([\d,]+) events of 131", readme)[1],
        re.search(r"took ([\d.]+) times", readme)[1],
    )
    assert f"{events} events:" in shown
    copy, beside = (
        float(re.search(rf"^{name} +([\d.]+)$", grows, re.M)[1]) for name in ("copy", "beside the history")
    )
    assert f"{beside / copy:.2f}" == history

"""Notebooks run and show what they say; job notebooks and the commands of the README do what they promise."""

import re
import subprocess
import sys

import nbformat
import pytest
from conftest import ROOT
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook
from runs import files, write

from dedup_nb import __version__
from dedup_nb.cli import main

NOTEBOOKS = sorted((ROOT / "nbs").glob("[0-9]*.ipynb"))
TWO_DAYS = {
    "2026-11-18": [("a", "f", 1, 1), ("a", "f", 2, 2), ("b", "f", 1, 3)],
    "2026-11-19": [("a", "f", 3, 4), ("a", "g", 4, 5)],
}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_what_a_notebook_shows_is_committed(path):
    cells = nbformat.read(path, 4).cells
    assert any(c.get("outputs") for c in cells), "run the notebook and commit what it shows"
    shown = [o for c in cells for o in c.get("outputs", [])]
    assert not any(o.output_type == "error" for o in shown)


def test_make_notebooks_runs_every_numbered_notebook():
    recipe = re.search(r"^notebooks:.*\n\t@\$\(BIN\)/python (.*)$", (ROOT / "Makefile").read_text(), re.M)[1]
    command = [sys.executable, *recipe.split(), "--collect-only"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    assert {p.stem for p in NOTEBOOKS} == set(re.findall(r"\[(\w+)\]", listed))


# the demo runs the third, run_dedup
@pytest.mark.parametrize("name", ["run_backfill", "run_profile"])
def test_a_job_notebook_does_its_job(spark, tmp_path, monkeypatch, name):
    write(spark, tmp_path / "in", TWO_DAYS)
    notebook = load_notebook_node(str(ROOT / "nbs" / f"{name}.ipynb"))
    asked = {"input": str(tmp_path / "in"), "output": str(tmp_path / "out"), "input_format": "parquet"}
    code = [c.source for c in parameterize_notebook(notebook, asked).cells if c.cell_type == "code"]
    monkeypatch.chdir(tmp_path)
    found = {"__name__": "__main__"}
    for source in code:
        exec(compile(source, name, "exec"), found)
    if name == "run_backfill":
        assert [(m["batch_id"], m["new"]) for m in found["done"]] == [("2026-11-18", 2), ("2026-11-19", 1)]
    else:
        assert found["found"].numbers["events"] == 5
        assert {"profile.html", "profile.json"} <= set(files(tmp_path / "out"))


def commands():
    "The lines of the README that call the command, as words."
    text = re.sub(r"\\\n\s*", "", (ROOT / "README.md").read_text())
    found = re.findall(r"^(?:\.venv/bin/)?dedup ([^#\n]+)", text, re.M)
    return [line.split() for line in found]


def test_the_commands_of_the_readme_run(spark, tmp_path, monkeypatch, capsys):
    # columns and tables that are not here, and what never ends
    named = ["", "--event-id id", "--create-table", "--trigger"]
    listed = [w for w in commands() if not any(n and n in " ".join(w) for n in named)]
    assert {w[0] for w in listed} >= {
        "profile",
        "plan",
        "run",
        "runs",
        "explain",
        "backfill",
        "forget",
        "expire",
    }
    write(spark, tmp_path / "EVENTS", TWO_DAYS)
    write(spark, tmp_path / "ARCHIVE", {"2026-10-01": [("z", "f", 1, 1)]})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DEDUP_INPUT_FORMAT", "parquet")
    words = {
        "EVENT_ID": "a",
        "BATCH": "2026-11-19",
        "...": "--input EVENTS --output CLEAN",
        "OLD/events": "CLEAN/events",
        "LANDING": "EVENTS",
    }
    ends = {}
    for line in listed:
        line = [part for word in line for part in words.get(word, word).split()]
        line = [
            "LOOKED" if line[0] == "run" and "--mode" in line and w == "CLEAN" else w.strip("'") for w in line
        ]
        with pytest.raises(SystemExit) as end:
            main(line)
        ends[" ".join(line)] = (end.value.code, capsys.readouterr().err[-500:])
    # there is no open claim to abandon, and what the output holds is in its own manifest
    failed = {line: end for line, end in ends.items() if end[0] and not line.startswith("abandon")}
    assert not failed and any(line.startswith("abandon") for line in ends)


def test_the_readme_has_the_settings_table_and_the_changelog_this_version():
    from dedup_nb.config import settings_table

    assert settings_table().strip() in (ROOT / "README.md").read_text()
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_a_link_of_the_documents_leads_somewhere():
    for document in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", (ROOT / document).read_text()):
            assert (ROOT / target).exists(), f"{document}: {target}"

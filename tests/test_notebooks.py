"""Notebooks run and show what they say; job notebooks do what they promise."""

import re
import shlex
import subprocess
import sys

import nbformat
import pytest
from conftest import ROOT
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook
from runs import TWO_DAYS, files, write

NOTEBOOKS = [p for p in sorted((ROOT / "nbs").rglob("*.ipynb")) if p.parent.name != "jobs"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_what_a_notebook_shows_is_committed(path):
    cells = nbformat.read(path, 4).cells
    assert any(c.get("outputs") for c in cells), "run the notebook and commit what it shows"
    shown = [o for c in cells for o in c.get("outputs", [])]
    assert not any(o.output_type == "error" for o in shown)


def test_make_notebooks_runs_every_notebook_but_the_jobs():
    recipe = re.search(r"^notebooks:.*\n\t@\$\(BIN\)/python (.*)$", (ROOT / "Makefile").read_text(), re.M)[1]
    command = [sys.executable, *shlex.split(recipe), "--collect-only"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    assert {p.stem for p in NOTEBOOKS} == set(re.findall(r"\[(\w+)\]", listed))


# the demo runs the third, run_dedup
@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("run_backfill", marks=pytest.mark.slow), "run_profile"])
def test_a_job_notebook_does_its_job(spark, tmp_path, monkeypatch, name):
    write(spark, tmp_path / "in", TWO_DAYS)
    notebook = load_notebook_node(str(ROOT / "nbs/jobs" / f"{name}.ipynb"))
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

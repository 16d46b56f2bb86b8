"""The notebooks are the source: exported, runnable, tidy."""
import os, re, shutil, subprocess, sys
from pathlib import Path
import nbformat
import pytest
from conftest import ROOT
from dedup_nb.config import delta_settings, settings

NOTEBOOKS = sorted((ROOT / "nbs").glob("*.ipynb"))
JOBS = [p for p in NOTEBOOKS if not p.name[:2].isdigit()]


def cells(path): return nbformat.read(path, 4).cells


def command(*words, cwd=ROOT, **more):
    return subprocess.run([str(Path(sys.executable).parent / words[0]), *words[1:]], cwd=cwd, capture_output=True, text=True, **more)


def test_the_package_is_what_the_notebooks_export(tmp_path):
    # in a copy: other tests import the package while this one runs
    for name in ("nbs", "dedup_nb"): shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    done = command("nbdev-export", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    package = lambda root: {p.name: p.read_bytes() for p in (root / "dedup_nb").glob("*.py")}
    exported, committed = package(tmp_path), package(ROOT)
    changed = [name for name, text in exported.items() if committed.get(name) != text]
    assert not changed, f"{changed} differ from their notebooks: run make export and commit"


def test_every_notebook_runs():
    # one process, one JVM: a JVM per notebook would take minutes
    # the first notebook makes the session, and some need Delta
    delta = " ".join(f"--conf {name}={value}" for name, value in delta_settings().items())
    env = {k: v for k, v in os.environ.items() if k != "SPARK_SUBMIT_OPTS"} | {"PYSPARK_SUBMIT_ARGS": f"{delta} pyspark-shell"}
    done = command("nbdev-test", "--n-workers", "0", timeout=1200, env=env)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_committed_outputs_are_small_and_know_no_machine(path):
    assert path.stat().st_size < 200_000
    text = path.read_text()
    assert not re.search(r'/(root|home|work|tmp|Users)/', text), "an output holds a path of a machine"
    assert '"output_type": "error"' not in text and "nbdev_export()" not in text


@pytest.mark.parametrize("path", [p for p in NOTEBOOKS if p.name != "bench.ipynb"], ids=lambda p: p.stem)
def test_outputs_are_committed(path):
    assert path in JOBS or any(c.get("outputs") for c in cells(path)), "run the notebook and commit what it shows"


@pytest.mark.parametrize("path", JOBS, ids=lambda p: p.stem)
def test_job_notebooks_are_skipped_by_nbdev_and_take_parameters(path):
    found = cells(path)
    assert found[0].cell_type == "raw" and "skip_exec: true" in found[0].source
    assert sum("parameters" in c.metadata.get("tags", []) for c in found) == 1
    assert not any("#| eval: false" in c.source for c in found)


@pytest.mark.parametrize("name, more", [("run_dedup", []), ("run_backfill", []), ("run_profile", [("sample", "share of the ids to look at, chosen by hash")])])
def test_the_job_notebooks_offer_every_setting(name, more):
    cell = next(c for c in cells(ROOT / "nbs" / f"{name}.ipynb") if "parameters" in c.metadata.get("tags", []))
    offered = re.findall(r"^(\w+) = None +# (.*)$", cell.source, re.M)
    assert offered == [("profile", "section of settings.ini")] + [(s.name, s.metadata["help"]) for s in settings()] + more


def test_no_file_of_the_tree_names_a_machine_or_a_registry():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    for name in listed:
        path = ROOT / name
        if not path.is_file() or path.suffix in (".gz", ".png"): continue
        text = path.read_text(errors="replace")
        assert not re.search(r'(?<![\w.])/(work|root|farm)/', text), name
        assert not re.search(r'https?://[^ ]*(pypi|pythonhosted|maven2|npmjs|debian)\.', text), name

"""The house itself: which way imports point, how long functions are, and that notebooks and package agree."""

import ast
import io
import json
import re
import shutil
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path

import nbformat
import pytest
from conftest import ROOT

from dedup_nb.base.config import settings

BIN = Path(sys.executable).parent
NOTEBOOKS = sorted((ROOT / "nbs").rglob("*.ipynb"))
JOBS = [p for p in NOTEBOOKS if p.name.startswith("run_")]
NO_MODULE = {"jobs", "00_tutorial"}  # of the folders and notebooks: they export nothing
PACKAGE = ROOT / "dedup_nb"
FILES = [p for p in PACKAGE.rglob("*.py") if not p.stem.startswith("_")]
TREES = {".".join(p.relative_to(PACKAGE).with_suffix("").parts): ast.parse(p.read_text()) for p in FILES}

# the architecture: what the modules of a package may import, beside their own package
ALLOWED = {
    "base": set(),
    "formats": {"base"},
    "report": {"base"},
    "rules": {"base", "formats.enriched"},
    "distribution": {"base", "formats", "rules", "report"},
    "manifest": {"base", "rules", "formats.delta"},
    "dynamodb": {"base", "rules", "manifest"},
    "costs": {"base", "formats", "report"},
    "pipeline": {"base", "formats", "rules", "report", "manifest"},  # dynamodb inside functions
    "operate": {"base", "formats", "rules", "manifest", "pipeline", "report"},
    "streams": {"base", "formats", "rules", "manifest", "pipeline", "report"},
    "merges": {"base", "formats.delta", "rules", "manifest.ledger", "manifest.lock"},
    "warehouse": {"base", "formats", "rules", "report", "manifest.ledger", "pipeline.commit"},
    "tools": {"base", "formats"},
}


def imports(name, everywhere=True):
    "All (module, name) that a module imports from the package, inside functions too."
    for node in ast.walk(TREES[name]) if everywhere else TREES[name].body:
        if not isinstance(node, ast.ImportFrom):
            continue
        above = name.split(".")[: -node.level] if node.level else []
        module = ".".join([*above, *(node.module or "").split(".")]).removeprefix("dedup_nb.").strip(".")
        yield from ((module, a.name) for a in node.names if module in TREES)
        yield from ((f"{module}.{a.name}", None) for a in node.names if f"{module}.{a.name}" in TREES)


def rooms(name, everywhere=True):
    "The modules of the package that a module imports."
    return {module for module, _ in imports(name, everywhere)}


def package(name):
    return name.split(".")[0]


def public(name):
    "What a module offers."
    assigned = (n for n in TREES[name].body if isinstance(n, ast.Assign))
    return next(ast.literal_eval(n.value) for n in assigned if n.targets[0].id == "__all__")


def cells(path):
    return json.loads(path.read_text())["cells"]


def code(path):
    return ["".join(c["source"]) for c in cells(path) if c["cell_type"] == "code"]


def ours():
    "The files of the tree that people wrote, or will commit."
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [name for name in listed if (ROOT / name).is_file()]


def run_python(code, *more):
    return subprocess.run([sys.executable, "-c", code, *more], capture_output=True, text=True)


# --- modules


def test_a_package_imports_what_the_architecture_allows():
    def is_allowed(name, used, everywhere):
        allowed = {*ALLOWED[package(name)], package(name)} | ({"dynamodb"} if everywhere else set())
        return package(used) in allowed or used in allowed

    asked = [n for n in TREES if package(n) != "cli"]
    found = {(n, used) for n in asked for used in rooms(n, False) if not is_allowed(n, used, False)}
    inside = {
        (n, used) for n in asked for used in rooms(n) if not is_allowed(n, used, package(n) == "pipeline")
    }
    assert not found and not inside


def test_no_modules_import_each_other():
    left = {n: rooms(n) for n in TREES}
    while ready := [n for n, used in left.items() if not used & set(left)]:
        for n in ready:
            del left[n]
    assert not left


def test_each_notebook_is_the_module_of_its_name_and_chapter():
    made = {p: p.relative_to(ROOT / "nbs").with_suffix("").parts for p in NOTEBOOKS}
    rooms = {p: parts for p, parts in made.items() if parts[0] not in NO_MODULE}
    homes = {p: ".".join(re.sub(r"^\d+_", "", part) for part in parts) for p, parts in rooms.items()}
    exported = {p: re.search(r"^#\| default_exp (\S+)", "\n".join(code(p)), re.M) for p in rooms}
    assert {p.stem: found and found[1] for p, found in exported.items()} == {
        p.stem: h for p, h in homes.items()
    }
    assert sorted(homes.values()) == sorted(TREES)


def test_the_door_offers_every_public_name():
    import dedup_nb

    assert all(getattr(dedup_nb, name).__module__.startswith("dedup_nb.") for name in dedup_nb.__all__)
    with pytest.raises(AttributeError, match="no attribute 'dedupe'"):
        dedup_nb.dedupe


def test_no_private_name_crosses_a_module():
    faults = [(n, name) for n in TREES for _, name in imports(n) if name and re.match("_[^_]", name)]
    for module, tree in TREES.items():
        nodes = list(ast.walk(tree))
        own = {n.name for n in nodes if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
        own |= {n.id for n in nodes if isinstance(n, ast.Name)}
        asked = [n for n in nodes if isinstance(n, ast.Attribute) and re.match("_[^_]", n.attr)]
        own |= {n.attr for n in asked if isinstance(n.ctx, ast.Store)}
        of_tuples = {"_replace", "_asdict", "_fields", "_make", "_exit"}  # the last one is of os
        faults += [(module, name) for name in {n.attr for n in asked} - own - of_tuples]
    assert not faults


def test_one_public_name_stands_in_one_module():
    homes = Counter(name for module in TREES for name in public(module))
    assert not [(name, m) for m in TREES for name in public(m) if homes[name] > 1]


def test_only_what_spark_connect_has_is_used():
    found = re.compile(r"\.(rdd|sparkContext|_jvm|_jdf|_jsparkSession)\b")
    assert not {p.stem: words for p in FILES if (words := found.findall(p.read_text()))}


def functions():
    "All functions: name, lines, syntax nodes."
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    for module, tree in TREES.items():
        for node in (n for n in ast.walk(tree) if isinstance(n, kinds)):
            yield f"{module}.{node.name}", node.end_lineno - node.lineno + 1, sum(1 for _ in ast.walk(node))


def test_functions_are_short_and_say_one_thought_a_line():
    assert not [(name, lines) for name, lines, _ in functions() if lines > 40]
    longer = [(name, nodes / lines) for name, lines, nodes in functions() if lines >= 5]
    assert not [(name, density) for name, density in longer if density > 16]


def kinds_of_cells(path):
    "What each cell is: imports, an export, an example or text."
    for cell in cells(path):
        source = "".join(cell["source"])
        if cell["cell_type"] != "code":
            yield "text", 0
        elif not re.search(r"^#\| exporti?$", source, re.M):
            yield "example", 0
        else:
            only_imports = all(isinstance(n, (ast.Import, ast.ImportFrom)) for n in ast.parse(source).body)
            yield "imports" if only_imports else "export", len(source.splitlines())


@pytest.mark.parametrize("path", [p for p in NOTEBOOKS if p.parent.name != "jobs"], ids=lambda p: p.stem)
def test_a_notebook_shows_each_piece_that_it_exports(path):
    kinds, lines = zip(*kinds_of_cells(path))
    assert max(lines) <= 60
    exports = [n for n, kind in enumerate(kinds) if kind == "export"]
    assert not [n for n in exports if "example" not in kinds[n + 1 : n + 3]], "an example within two cells"


def test_no_line_is_wider_than_110():
    texts = {p.name: p.read_text() for p in [*FILES, *(ROOT / "tests").rglob("*.py")]}
    texts |= {p.name: "\n".join(code(p)) for p in NOTEBOOKS}
    wide = Counter(n for n, text in texts.items() for line in text.splitlines() if len(line) > 110)
    assert not wide


# --- tests


def test_each_module_is_tested_in_the_folder_of_its_package():
    def tested(path):
        nodes = ast.walk(ast.parse(path.read_text()))
        for node in (n for n in nodes if isinstance(n, ast.ImportFrom) and n.module):
            yield from (node.module, *(f"{node.module}.{a.name}" for a in node.names))

    homes = {n: ROOT / "tests" / ("" if "." not in n else package(n)) for n in TREES}
    found = {home: {m for p in home.glob("test_*.py") for m in tested(p)} for home in {*homes.values()}}
    assert not [n for n, home in homes.items() if f"dedup_nb.{n}" not in found[home]]


def test_no_helper_of_tests_stands_twice():
    homes = {}
    for path in (ROOT / "tests").rglob("*.py"):
        defined = (n for n in ast.parse(path.read_text()).body if isinstance(n, ast.FunctionDef))
        for node in (n for n in defined if not n.name.startswith("test_")):
            if ast.get_docstring(node):
                del node.body[0]
            text = ast.dump(node.args) + "".join(map(ast.dump, node.body))
            homes.setdefault((node.name, text), []).append(path.name)
    assert not [(name, where) for (name, _), where in homes.items() if len(where) > 1]


def test_test_files_can_be_read_in_one_go():
    lengths = {p.name: len(p.read_text().splitlines()) for p in (ROOT / "tests").rglob("*.py")}
    assert not {name: lines for name, lines in lengths.items() if lines > 650}


# --- notebooks


def test_the_package_is_what_the_notebooks_export_and_all_is_formatted(tmp_path):
    # in a copy: other tests import the package while this one runs
    for name in ("nbs", "dedup_nb", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    did = []
    for words in (["ruff", "format", "--check", "nbs", "tests"], ["nbdev-export"], ["ruff", "format"]):
        words = [BIN / words[0], *words[1:], *(["dedup_nb"] if words == ["ruff", "format"] else [])]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
        did.append(done.stdout + done.stderr if done.returncode else "")
    trees = [r / "dedup_nb" for r in (tmp_path, ROOT)]
    made, ours = ({str(p.relative_to(r)): p.read_text() for p in r.rglob("*.py")} for r in trees)
    changed = [name for name in sorted({*made, *ours}) if made.get(name) != ours.get(name)]
    assert not changed and not any(did), f"{changed} {did}: make export, and commit"


def test_notebooks_are_small_and_know_no_machine():
    faults = {
        "200 kB": lambda text: len(text) > 200_000,
        "a path of a machine": re.compile(r"/(root|home|work|tmp|Users)/").search,
        "an error": re.compile(r'"output_type": "error"').search,
        "a cell that is left out": re.compile("#[|] eval: false").search,
    }
    texts = {p.stem: p.read_text() for p in NOTEBOOKS}
    assert not [(name, what) for name, text in texts.items() for what, has in faults.items() if has(text)]
    for path in NOTEBOOKS:
        nbformat.validate(nbformat.read(path, 4))
    assert {key for path in NOTEBOOKS for c in cells(path) for key in c["metadata"]} == {"tags"}
    told = [p for p in NOTEBOOKS if p.parent.name != "jobs"]
    assert not [p.stem for p in told if not any(c.get("outputs") for c in cells(p))], "run them"


@pytest.mark.parametrize("path", JOBS, ids=lambda p: p.stem)
def test_a_job_notebook_offers_every_setting_with_its_help(path):
    found = cells(path)
    assert found[0]["cell_type"] == "raw" and "skip_exec: true" in "".join(found[0]["source"])
    [cell] = [c for c in found if "parameters" in c["metadata"].get("tags", [])]
    source = "".join(cell["source"])
    given = [n for n in ast.parse(source).body if isinstance(n, ast.Assign)]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    words = [t.string[2:] for t in tokens if t.type == tokenize.COMMENT]
    offered = dict(zip((n.targets[0].id for n in given), words))
    assert len(words) == len(given) and all(n.value.value is None for n in given)
    helps = {s.name: s.metadata["help"] for s in settings()}
    assert list(offered)[: len(helps) + 1] == ["profile", *helps]
    assert {name: offered[name] for name in helps} == helps


# --- the tree


def test_no_file_names_a_machine_or_a_registry():
    home = re.compile(r"(?<![\w.:])/(?:work|root|farm|home/\w+|Users)/")
    registry = re.compile(r"https?://[^ ]*(pypi|pythonhosted|maven2|npmjs|debian|jfrog|nexus|artifactory)\b")
    for name in ours():
        text = (ROOT / name).read_bytes().decode(errors="replace")
        if name != "tests/test_house.py":
            assert not home.search(text) and not registry.search(text), name


# --- what is imported when


@pytest.mark.parametrize(
    "words",
    [[], ["--help"], ["run", "--help"], ["run", "--ordr-by", "x"], ["run", "--synthetic", "renam"], ["rnu"]],
    ids=" ".join,
)
def test_nothing_heavy_is_imported_to_answer(words):
    told = run_python(
        "import dedup_nb, sys\n"
        "try: sys.argv[1:] and __import__('dedup_nb.cli').cli.main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "heavy = {'pyspark', 'boto3', 'botocore', 'matplotlib', 'jinja2', 'pandas', 'pyarrow', 'papermill'}\n"
        "print('heavy:', sorted(heavy & set(sys.modules)))",
        *words,
    )
    assert told.stdout.endswith("heavy: []\n"), told.stdout + told.stderr


def test_deduplicate_needs_no_more_than_spark():
    told = run_python(
        "import sys\n"
        "missing = ['boto3', 'botocore', 'matplotlib', 'jinja2', 'papermill', 'IPython']\n"
        "missing += ['deltalake', 'nbdev', 'tqdm']\n"
        "sys.modules.update(dict.fromkeys(missing))  # importing them fails\n"
        "from dedup_nb import Config, deduplicate, get_spark, run\n"
        "print(deduplicate.__module__, run.__module__)"
    )
    assert told.stdout == "dedup_nb.rules.deduplicate dedup_nb.pipeline.run\n", told.stderr

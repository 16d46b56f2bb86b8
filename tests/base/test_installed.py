"What is installed: Spark, or none, or without Delta."

import os
import re
import subprocess
import sys

import pyspark
import pytest
from conftest import ROOT

from dedup_nb.base.errors import ConfigError
from dedup_nb.base.spark import check_spark, get_spark


@pytest.mark.parametrize("version", ["3.5.1", "2.4.8"])
def test_spark_before_4_is_refused_by_name_with_what_fits(monkeypatch, version):
    monkeypatch.setattr(pyspark, "__version__", version)
    for refused in (check_spark, get_spark):
        with pytest.raises(
            ConfigError, match=rf"Spark 4.0 or newer is needed; here is {version}. .*pip install"
        ):
            refused()


WITHOUT = """
import sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Without())
for code in {codes!r}:
    try:
        exec(code)
    except BaseException as wrong:
        print(type(wrong).__name__, wrong, file=sys.stderr)
    print("---", file=sys.stderr)
"""


def test_older_spark_is_refused_whoever_brings_the_session(tmp_path):
    old = "import pyspark; pyspark.__version__ = '3.5.1'; from dedup_nb import "
    said = without([], [f"{old}{name}" for name in ("run", "deduplicate", "repair")], tmp_path)
    assert all(words.startswith("ConfigError Spark 4.0 or newer is needed") for words in said.values()), said


def without(modules, codes, folder):
    "What Python says, for each code, where these modules are not installed."
    script = WITHOUT.format(missing=modules, codes=codes)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(ROOT)])}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env, cwd=folder)
    return dict(zip(codes, done.stderr.split("---\n")))


NEEDS_SPARK = [
    "from dedup_nb import get_spark; get_spark()",
    "from dedup_nb import deduplicate; deduplicate(None)",
    "from dedup_nb import Config, run; run(Config(input='x', output='y'))",
    "from dedup_nb.cli import main; main(['run', '--input', 'x', '--output', 'y'])",
]


WITHOUT_DELTA = """
from dedup_nb import Config, get_spark, run
from dedup_nb.warehouse.repair import repair
one = dict(input="in", output="out", manifest="none")
for work in (
    lambda: get_spark(delta=True),
    lambda: run(Config(**one, input_format="json", output_format="delta"), get_spark()),
    lambda: run(Config(**one, input_format="delta"), get_spark()),
    lambda: repair("./in", spark=get_spark()),
):
    try:
        work()
    except Exception as wrong:
        print(type(wrong).__name__, wrong, end="---\\n")
"""


@pytest.mark.slow
def test_where_own_packages_leave_delta_out_it_is_said_which_one_is_missing(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.json").write_text('{"event_id": "a", "event_fingerprint": "f", "etl_tstamp": 1}')
    env = {**os.environ, "PYSPARK_SUBMIT_ARGS": "--packages org.antlr:antlr4-runtime:4.13.1 pyspark-shell"}
    env["PYTHONPATH"] = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(ROOT)])
    command = [sys.executable, "-c", WITHOUT_DELTA]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path)
    *told, rest = done.stdout.split("---\n")
    kinds = ["ConfigError", "OutputError", "InputError", "InputError"]
    found = re.findall(r"^(\w+Error) ", done.stdout, re.MULTILINE)  # beside what runs say
    assert found == kinds and not rest, done.stdout + done.stderr
    assert all("The package io.delta:delta-spark_" in one and "(--packages A,B)" in one for one in told)


@pytest.fixture(scope="module")
def without_pyspark(tmp_path_factory):
    return without(["pyspark"], NEEDS_SPARK, tmp_path_factory.mktemp("without"))


@pytest.mark.parametrize("code", NEEDS_SPARK)
def test_without_pyspark_it_is_said_how_to_install_it(without_pyspark, code):
    words = "Spark is not installed here. Install it with: pip install 'dedup_nb[local]'"
    assert words in without_pyspark[code]


def test_deduplicate_needs_no_more_than_spark(tmp_path):
    others = ["boto3", "botocore", "matplotlib", "papermill", "pandas", "pyarrow", "nbformat", "IPython"]
    code = "from dedup_nb import Config, deduplicate; print(deduplicate.__name__, file=sys.stderr)"
    assert without(others, [code], tmp_path)[code] == "deduplicate\n"

"""`make recipes`: the recipes in the hands of the tools that they are for, on the sample events.

Not part of `make test`: the schedulers' own packages are installed into an environment beside ours.
"""

import csv
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml
from conftest import ROOT
from spread import SHORT_LIVED

from dedup_nb.base.spark import delta_settings

RECIPES, SAMPLES = ROOT / "recipes", ROOT / "data_samples"
BIN, TOOLS = Path(sys.executable).parent, ROOT / ".venv-recipes/bin"
TRUTH = Counter(row["fate_known"] for row in csv.DictReader((SAMPLES / "truth.csv").open()))
READ, KEPT = TRUTH.total(), TRUTH["kept"] + TRUTH["renamed"]
ENV = {
    **os.environ,
    "PYTHONPATH": str(ROOT),
    "PATH": f"{BIN}:{os.environ['PATH']}",
    "SPARK_MASTER": "local[2]",
    "SPARK_SUBMIT_OPTS": SHORT_LIVED,
}


def call(*words, code=0, **env):
    words = [str(word) for word in words]
    done = subprocess.run(words, env={**ENV, **env}, capture_output=True, text=True, timeout=600)
    assert done.returncode == code, (done.stdout + done.stderr)[-4000:]
    return done.stdout


def with_tools(program, *more, **how):
    return call(TOOLS / "python", "-c", program, *more, **how)


def read_and_kept(output):
    "What all batches of an output read and kept."
    numbers = [json.loads(p.read_text())["counts"] for p in Path(output).glob("runs/*/metrics.json")]
    return sum(n["read"] for n in numbers), sum(n["kept"] for n in numbers)


def test_airflow_parses_the_dag_and_runs_it(tmp_path):
    env = {
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(RECIPES / "airflow"),
    }
    call(TOOLS / "airflow", "db", "migrate", **env)
    given = json.dumps({"input": str(SAMPLES), "output": str(tmp_path / "out")})
    run = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); from dedup import dedup\n"
        "state = dedup().test(run_conf=json.loads(sys.argv[2])).state; assert state == 'success', state"
    )
    with_tools(run, RECIPES / "airflow", given, **env)
    assert read_and_kept(tmp_path / "out") == (READ, KEPT)


def test_spark_submit_takes_the_job_of_the_clusters(tmp_path):
    [step] = json.loads((RECIPES / "emr/steps.json").read_text())["Steps"]
    words = step["HadoopJarStep"]["Args"]
    ours = {"s3://BUCKET/enriched": SAMPLES, "s3://BUCKET/clean": tmp_path / "out"}
    ours |= {"s3://BUCKET/dedup/dedup_job.py": RECIPES / "dedup_job.py"}
    conf = [w for w in words if w.startswith("spark.") and not re.match("spark.(jars|pyspark)", w)]
    packages = delta_settings()["spark.jars.packages"]
    spark = ["--master", "local[2]", "--packages", packages, *(w for c in conf for w in ("--conf", c))]
    job = words[words.index("s3://BUCKET/dedup/dedup_job.py") :]
    call(BIN / "spark-submit", *spark, *(ours.get(word, word) for word in job), PYSPARK_PYTHON=sys.executable)
    assert read_and_kept(tmp_path / "out") == (READ, KEPT)


def test_the_notebook_of_databricks_runs_through_spark_connect(tmp_path):
    code = """
import os, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[2]").getOrCreate()
given = {"input": sys.argv[2], "output": sys.argv[3], "max_duplicate_share": "0.5"}
class dbutils:
    class widgets:
        getAll = staticmethod(lambda: given)
exec(open(sys.argv[1]).read())
os._exit(0 if summary.counts["kept"] else 1)
"""
    lines = "".join(f"{name} {value}\n" for name, value in delta_settings().items())
    (tmp_path / "spark-defaults.conf").write_text(lines)
    notebook = RECIPES / "databricks/dedup.py"
    call(sys.executable, "-c", code, notebook, SAMPLES, tmp_path / "out", SPARK_CONF_DIR=str(tmp_path))
    assert read_and_kept(tmp_path / "out") == (READ, KEPT)


def test_the_job_of_databricks_is_what_its_package_knows():
    [job] = yaml.safe_load((RECIPES / "databricks/databricks.yml").read_text())["resources"]["jobs"].values()
    check = (
        "import json, sys; from databricks.bundles.jobs import Job; Job.from_dict(json.loads(sys.argv[1]))"
    )
    with_tools(check, json.dumps(job))
    with_tools(check, json.dumps({**job, "max_concurrent_rnus": 1}), code=1)


def test_the_job_of_dataproc_is_what_its_package_knows():
    job = yaml.safe_load((RECIPES / "dataproc/job.yaml").read_text())
    check = "import sys; from google.cloud.dataproc_v1 import Job; Job.from_json(sys.argv[1])"
    with_tools(check, json.dumps(job))
    with_tools(check, json.dumps({**job, "plcement": {}}), code=1)


def test_the_lines_of_cron_run_one_at_a_time(tmp_path):
    places = {"/opt/dedup/bin": BIN, "/opt/dedup": tmp_path, "/data/enriched": SAMPLES, "/data": tmp_path}
    lines = (RECIPES / "cron/crontab").read_text()
    lines = re.sub("|".join(places), lambda found: str(places[found[0]]), lines)
    run, expire = [line.split(maxsplit=5)[5] for line in lines.splitlines() if not line.startswith("#")]
    first, second = (subprocess.Popen(["sh", "-c", run], env=ENV) for _ in range(2))
    assert sorted([first.wait(600), second.wait(600)]) == [0, 4]
    call("sh", "-c", expire)
    assert read_and_kept(tmp_path / "clean") == (READ, KEPT), (tmp_path / "dedup.log").read_text()


@pytest.mark.parametrize("kubernetes", ["1.33", "1.36"])
def test_kubernetes_knows_every_field_of_the_job(kubernetes):
    check = [TOOLS / "kubernetes-validate", "--strict", "-k", kubernetes]
    call(*check, RECIPES / "kubernetes/cronjob.yaml")


def test_the_dockerfile_has_no_fault_that_a_linter_finds():
    call(TOOLS / "hadolint", RECIPES / "docker/Dockerfile")


ALONE = """
from pyspark.sql import SparkSession
from dedup_nb import deduplicate
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
rows = [("a", 1, 1), ("a", 1, 2), ("a", 2, 3)]
result = deduplicate(spark.createDataFrame(rows, "event_id string, n int, t int"), order_by="t",
                     fingerprint_columns="n")
print(result.kept.toPandas().shape, result.dropped.count())
"""


def test_an_install_leaves_the_packages_of_a_platform_alone(tmp_path):
    python = tmp_path / "platform/bin/python"
    call(sys.executable, "-m", "venv", tmp_path / "platform")
    pip = lambda *words: call(BIN / "uv", "pip", *words, "--python", python)
    pip("install", "pandas==2.0.3", "pyarrow==14.0.2", "numpy<2", "pyspark==4.0.5", "setuptools", "wheel")
    before = set(pip("freeze").splitlines())
    pip("install", ROOT)
    gone, came = before - (after := set(pip("freeze").splitlines())), after - before
    assert not gone and all(line.startswith("dedup") for line in came), (gone, came)
    env = {"PYTHONPATH": "", "PYSPARK_PYTHON": str(python)}
    assert call(python, "-c", ALONE, **env).strip() == "(2, 4) 1"

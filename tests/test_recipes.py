"""The recipes say only what the command, its settings and AWS's calls know."""

import ast
import json
import re
from pathlib import Path

import botocore.session
import pytest
import yaml
from botocore.validate import ParamValidator
from commands import blocks, checked, inline, words_of
from conftest import ROOT

from dedup_nb import __version__
from dedup_nb.base.config import Config, settings

FOLDER = ROOT / "recipes"
FILES = sorted(p for p in FOLDER.rglob("*") if p.is_file() and p.suffix not in (".pyc", ".whl"))
CALLS = {
    "emr-serverless/start_job_run.json": ("emr-serverless", "StartJobRun"),
    "emr/steps.json": ("emr", "AddJobFlowSteps"),
    "glue/create_job.json": ("glue", "CreateJob"),
}


def lists_in(value):
    "All lists of words in JSON or YAML; what is no text counts as a word that is given later."
    if isinstance(value, dict):
        for inner in value.values():
            yield from lists_in(inner)
    elif isinstance(value, list):
        if all(isinstance(word, str) for word in value):
            yield value
        for inner in value:
            yield from lists_in(inner)


def lists_of_python(text):
    lists = (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.List))
    return [
        [str(word.value) if isinstance(word, ast.Constant) else "VALUE" for word in n.elts] for n in lists
    ]


def lists_of_text(text):
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [words_of(line) for line in lines if re.search(r"\bdedup [a-z]|dedup_nb:", line)]


def word_lists(path):
    "Everything in a file that may be a command line, as lists of words."
    text = path.read_text()
    if path.suffix == ".json":
        return list(lists_in(json.loads(text)))
    if path.suffix in (".yaml", ".yml"):
        return list(lists_in(yaml.safe_load(text)))
    if path.suffix == ".md":
        return lists_of_text("\n".join([*blocks(text), *inline(text)]))
    return lists_of_python(text) if path.suffix == ".py" else lists_of_text(text)


def calls(path):
    "The command lines of dedup in a file, without the name of the command."
    starts = re.compile(r"(.*/)?(dedup|dedup_job\.py|dedup_nb:[\d.]+)")
    for words in word_lists(path):
        place = next((n + 1 for n, word in enumerate(words) if starts.fullmatch(word)), None)
        if place is None and words and words[0] in ("run", "expire"):
            place = 0  # the arguments of an image or of a job
        end = words.index(">>") if ">>" in words else None
        # an image that is built is followed by a folder
        if place is not None and re.fullmatch("[a-z]+", "".join(words[place : place + 1])):
            yield words[place:end]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(FOLDER)))
def test_every_command_of_a_recipe_is_one_that_there_is(path):
    for words in calls(path):
        checked(words)


def test_the_commands_are_found():
    found = {p.parent.name: [words[0] for words in calls(p)] for p in FILES if p.suffix != ".md"}
    told = {
        name: words for p in FILES if p.suffix == ".md" for name, words in [(p.parent.name, list(calls(p)))]
    }
    assert found["airflow"] == found["cron"] == ["run", "expire"]
    assert found["emr"] == found["emr-serverless"] == found["kubernetes"] == found["dataproc"] == ["run"]
    assert [words[0] for words in told["docker"]] == ["run"]


def test_a_wrong_flag_in_a_recipe_is_found():
    from dedup_nb.base.errors import ConfigError

    for line in ("dedup run --imput x", "dedup rnu", "dedup run --manifest lakes"):
        [words] = lists_of_text(line)
        with pytest.raises(ConfigError):
            checked(words[1:])


def test_every_setting_of_the_environment_and_of_jobs_is_one():
    names = {s.name for s in settings()}
    for path in FILES:
        given = re.findall(r"\bDEDUP_([A-Z_]+[A-Z])\b", path.read_text())
        assert {name.lower() for name in given} <= names, path
    job = yaml.safe_load((FOLDER / "databricks/databricks.yml").read_text())["resources"]["jobs"]["dedup"]
    Config.passed(**{p["name"]: p["default"] for p in job["parameters"]})


@pytest.mark.parametrize("name", CALLS)
def test_a_call_of_aws_is_what_its_model_says(name):
    service, operation = CALLS[name]
    shape = botocore.session.get_session().get_service_model(service).operation_model(operation).input_shape
    asked = json.loads((FOLDER / name).read_text())
    generated = {m: "t" for m in shape.metadata.get("required", ()) if m == "clientToken"}
    report = ParamValidator().validate({**asked, **generated}, shape)
    assert not report.has_errors(), report.generate_report()


def test_the_version_in_recipes_is_this_one():
    found = {v for p in FILES for v in re.findall(r"dedup_nb[-:](\d+\.\d+\.\d+)", p.read_text())}
    assert found == {__version__}


def test_a_recipe_has_its_page_and_stands_in_the_list():
    listed = set(re.findall(r"\]\(([\w-]+)/README\.md\)", (FOLDER / "README.md").read_text()))
    folders = {p.name for p in FOLDER.iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert listed == folders == {p.parent.name for p in Path(FOLDER).glob("*/README.md")}

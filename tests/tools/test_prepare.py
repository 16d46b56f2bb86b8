"Java's classes are written down once, whole or not at all, and sessions begin with them."

import subprocess
import sys

import pytest

from dedup_nb.base import spark as sessions
from dedup_nb.base.errors import ConfigError
from dedup_nb.tools import prepare as preparing


@pytest.fixture
def archive(monkeypatch, tmp_path):
    "A place for the file that is none of this environment's."
    place = tmp_path / "a folder" / "classes.jsa"
    for module in (sessions, preparing):
        monkeypatch.setattr(module, "class_archive", lambda: place)
    return place


def test_a_session_begins_with_the_file_where_it_is(archive, monkeypatch):
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    assert "SharedArchiveFile" not in sessions._options_of_java(work=1)
    archive.parent.mkdir()
    archive.touch()
    assert f'"-XX:SharedArchiveFile={archive}"' in sessions._options_of_java(work=1)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:SharedArchiveFile=/mine.jsa")
    assert "SharedArchiveFile" not in sessions._options_of_java(work=1)


@pytest.mark.parametrize(
    "code, words",
    [
        ("echo first >&2; echo 'no network' >&2; exit 1", "Spark did not do its work: no network"),
        ("exit 1", "Spark did not do its work: it ended with 1"),
        ("exit 0", "Java wrote no file of its classes"),
    ],
)
def test_what_hinders_it_is_said_and_leaves_nothing(archive, monkeypatch, tmp_path, code, words):
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{code}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    with pytest.raises(ConfigError, match=words):
        preparing.prepare()
    assert list(archive.parent.iterdir()) == []


def test_an_environment_that_takes_no_file_is_named(archive):
    archive.parent.touch()
    with pytest.raises(
        ConfigError, match=r"a folder takes no file: (Not a directory|File exists)\. Runs work"
    ):
        preparing.prepare()


def test_where_the_file_is_and_the_jars_are_not_these_are_fetched(archive, monkeypatch):
    archive.parent.mkdir()
    archive.touch()
    loaded = []
    monkeypatch.setattr(preparing, "_load", lambda *words: loaded.append(words))
    for is_here, number in ((True, 0), (False, 1)):
        monkeypatch.setattr(preparing, "are_jars_here", lambda is_here=is_here: is_here)
        assert "Remove the file" in preparing.prepare() and len(loaded) == number


def test_a_session_that_is_given_is_left_alone(archive, monkeypatch):
    monkeypatch.setenv("SPARK_REMOTE", "sc://there")
    with pytest.raises(ConfigError, match="Sessions are given here"):
        preparing.prepare()


@pytest.mark.slow
def test_java_takes_its_classes_from_the_file(archive, monkeypatch, tmp_path):
    assert "sessions begin with them now" in preparing.prepare()
    assert list(archive.parent.iterdir()) == [archive]
    assert "Remove the file" in preparing.prepare()
    log = tmp_path / "loaded"
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dsaid=Archive")  # not that of this environment
    options = f'"-XX:SharedArchiveFile={archive}" -Xlog:class+load:file={log}'
    code = (
        "import sys; from dedup_nb.base.spark import get_spark; "
        "get_spark(settings={'spark.driver.extraJavaOptions': sys.argv[1]}).range(9).count()"
    )
    subprocess.run([sys.executable, "-c", code, options], check=True)
    assert log.read_text().count("shared objects file (top)") > 5_000

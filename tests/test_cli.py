"""The command: its words, its exit codes, its help."""
import subprocess, sys
from pathlib import Path
import pytest
from dedup_nb import __version__
from dedup_nb.cli import main
from dedup_nb.config import settings


def test_version(capsys):
    with pytest.raises(SystemExit) as done: main(["--version"])
    assert done.value.code == 0 and capsys.readouterr().out.strip() == f"dedup_nb {__version__}"


def test_help_lists_every_setting_with_its_help(capsys):
    with pytest.raises(SystemExit) as done: main(["run", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert done.value.code == 0
    for s in settings(): assert f"--{s.name.replace('_', '-')}" in text and " ".join(s.metadata["help"].split()) in text


@pytest.mark.parametrize("words, said", [
    ([], "Name a command"),
    (["run"], "A run needs input and output"),
    (["rnu"], "Unknown command rnu; there are run, backfill, runs, explain, forget, abandon, expire"),
    (["rnu"], "Did you mean run"),
    (["forget", "--output", "out"], "Wanted dedup forget BATCH --output DIR. dedup runs --output DIR lists the batches."),
    (["explain", "--output", "out"], "Wanted dedup explain EVENT_ID"),
    (["explain", "a"], "dedup explain EVENT_ID --output DIR"),
    (["expire", "--yess"], "Did you mean --yes?"),
    (["backfill", "--input", "x"], "A backfill needs output. Give --output DIR, DEDUP_OUTPUT or a line in settings.ini."),
    (["backfill", "--input", "x", "--output", "y", "--manifest", "none"], "Set manifest=lake"),
    (["runs"], "--output DIR"),
    (["run", "--ordr-by", "x"], "Unknown argument --ordr-by. Did you mean --order-by?"),
    (["run", "--set", "synthetic"], "wanted --set name=value"),
    (["run", "--set", "synthetc=off"], "Did you mean synthetic?"),
    (["run", "--synthetic", "renam_all"], "Did you mean rename_all?"),
    (["run", "--natural", "off"], "set synthetic=off too"),
    (["run", "--profile", "prod"], "settings.ini"),
])
def test_wrong_usage_is_exit_code_2_and_one_message(words, said, capsys):
    assert main(words) == 2
    out = capsys.readouterr()
    assert said in out.err and "Traceback" not in out.err and out.out == ""


def test_a_missing_input_is_said_before_spark_starts(capsys):
    Path("events").mkdir()
    assert main(["run", "--input", "evnts", "--output", "out"]) == 1
    said = capsys.readouterr().err
    assert "evnts" in said and "events" in said and "Traceback" not in said


def test_the_command_is_installed():
    done = subprocess.run([str(Path(sys.executable).parent / "dedup"), "--version"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.strip() == f"dedup_nb {__version__}"


def test_with_json_what_java_prints_is_no_part_of_the_answer():
    words = "import os; from dedup_nb.cli import _java_apart\nwith _java_apart(True): os.system('echo java'); print('json')\nprint('after'); os.system('echo too')"
    done = subprocess.run([sys.executable, "-u", "-c", words], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("json\nafter\ntoo\n", "java\n")
    gone = subprocess.run(["sh", "-c", f"{sys.executable} -c 'from dedup_nb.cli import main; import sys; sys.exit(main(sys.argv[1:]))' plan --events-per-day 1e6 --json >&-"], capture_output=True, text=True)
    assert gone.returncode == 0 and "Traceback" not in gone.stderr

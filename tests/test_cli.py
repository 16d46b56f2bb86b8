"""The command: its words, its exit codes, its help. No Spark."""

import json
import logging
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from dedup_nb import __version__
from dedup_nb.base import errors
from dedup_nb.base.config import GROUPS, Config, settings
from dedup_nb.cli import main
from dedup_nb.manifest import ledger
from dedup_nb.pipeline import job
from dedup_nb.report.pages import Summary

# a Java that is not there: whoever starts Spark fails
NO_SPARK = {"JAVA_HOME": "/nowhere", "PATH": ""}


@pytest.fixture(autouse=True)
def nothing_is_left_behind(own_folder, monkeypatch):
    monkeypatch.setenv("TMPDIR", own_folder)


def exit_code(words):
    with pytest.raises(SystemExit) as done:
        main(shlex.split(words))
    return done.value.code


def apart(*words, **env):
    "The command in a process of its own."
    asked = [sys.executable, "-m", "dedup_nb", *words]
    return subprocess.run(asked, capture_output=True, text=True, env={**os.environ, **env})


# --- help


COMMANDS = {  # options that it has, and one that would do nothing for it
    "run": ("--late-files", "--yes"),
    "stream": ("--available-now --batch-pattern", "--batch-id"),
    "repair": ("--table --mode --from-date --order-by", "--compat"),
    "profile": ("--since", "--etl-time"),
    "backfill": ("--synthetic --etl-time --wait-minutes --claim-timeout-minutes", "--output-format"),
    "plan": ("--events-per-day --batch-id", "--output"),
    "explain": ("--dynamodb-table", "--synthetic"),
    "runs": ("--manifest-path --last", "--retention-days"),
    "abandon": ("--force", "--input"),
    "forget": ("--yes", "--force"),
    "expire": ("--audit-days", "--input"),
    "compare": ("--method --synthetic", "--output"),
    "sql": ("--dialect --entity --order-by", "--natural"),
    "erase": ("--id --ids --where --forget", "--input"),
    "iam": ("--for --output", "--synthetic"),
    "prepare": ("", "--synthetic"),
}


def test_help_names_every_command(capsys):
    assert exit_code("--help") == 0
    listed = re.findall(r"^    (\w+) +\w", capsys.readouterr().out, re.M)
    assert listed == list(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_the_commands_own_options_and_an_example(command, capsys):
    assert exit_code(f"{command} --help") == 0
    text = capsys.readouterr().out
    has, has_not = COMMANDS[command]
    assert all(f"\n  {option}" in text for option in has.split()) and has_not not in text
    assert f"Example:\n  dedup {command}" in text


@pytest.mark.parametrize(
    "command, words",
    [
        (
            "run",
            "--force go on with another recipe than the manifest's, and record it; and past the check on",
        ),
        ("backfill", "--force go on with another recipe than the manifest's"),
        ("abandon", "--force although committed batches dropped rows in its favour"),
    ],
)
def test_help_of_a_flag_says_what_it_does_for_the_command(command, words, capsys):
    assert exit_code(f"{command} --help") == 0
    assert words in " ".join(capsys.readouterr().out.split())


def test_help_of_run_shows_every_setting_in_its_group(capsys):
    assert exit_code("run --help") == 0
    parts = re.split(r"^(\w[\w ]*):\n", capsys.readouterr().out, flags=re.M)
    section = {name: " ".join(text.split()) for name, text in zip(parts[1::2], parts[2::2])}
    assert [name for name in section if name in GROUPS] == list(GROUPS)
    for s in settings():
        shown = section[s.metadata["group"]]
        assert f"--{s.name.replace('_', '-')}" in shown and " ".join(s.metadata["help"].split()) in shown
        assert all(word in shown for word in s.metadata["allowed"])


# --- exit code 2: what was typed does not fit


@pytest.mark.parametrize(
    "words, said",
    [
        ("", "Name a command"),
        ("rnu", "Unknown command rnu; there are run, stream, repair, "),
        ("rnu", "Did you mean run?"),
        (
            "run",
            "A run needs input and output. Give --input DIR and --output DIR; DEDUP_INPUT=DIR and a line",
        ),
        ("run --input x", "A run needs output. Give --output DIR"),
        ("backfill --input x", "A backfill needs output"),
        ("backfill --input x --output y --manifest none", "Set manifest=lake"),
        ("forget --output out", "Wanted dedup forget BATCH --output DIR. dedup runs --output DIR lists"),
        ("explain --output out", "Wanted dedup explain EVENT_ID"),
        ("explain a", "dedup explain EVENT_ID --output DIR"),
        ("runs", "--output DIR"),
        ("repair", "A repair needs a table: dedup repair --table lake.events"),
        ("runs --manifest none", "--output DIR"),
        ("run --ordr-by x", "Unknown argument --ordr-by. Did you mean --order-by? dedup run --help"),
        ("run --ordr-by=x", "Did you mean --order-by?"),
        ("expire --yess", "Did you mean --yes?"),
        ("forget b --force --output out", "Unknown argument --force. dedup forget --help"),
        ("runs --synthetic off", "dedup runs takes no --synthetic"),
        ("run events", "Unknown argument events."),
        ("run --duplicate-storage-confg=eyJrZXkiOiAxfQ", "Unknown argument --duplicate-storage-confg. Did"),
        ("run --set synthetic", "--set synthetic: wanted --set name=value, with a value."),
        ("run --set input=", "--set input=: wanted --set name=value, with a value."),
        ("run --set synthetc=off", "Did you mean synthetic?"),
        ("run --set profile=prod", "Unknown setting 'profile' (from --set). Give it as --profile. dedup run"),
        (
            "run --set settings-file=x",
            "Unknown setting 'settings_file' (from --set). Give it as --settings-file.",
        ),
        ("run --set cls=x", "Unknown setting 'cls' (from --set)."),
        (
            "sql --event-id a,b --set null_in_id=value",
            "--set null_in_id: dedup sql takes no null_in_id, leave",
        ),
        ("repair --table t --set synthetic=delete_all", "--set synthetic: dedup repair takes no synthetic,"),
        ("runs --output out --set max_batches=3", "dedup runs --help lists what it takes."),
        ("run --synthetic renam_all", "wanted one of rename_later, rename_all"),
        ("run --natural off", "set synthetic=off too"),
        ("run --profile prod", "settings.ini"),
        ("run --rerun 2026-11-20", "If 2026-11-20 is a batch, name it with --batch-id 2026-11-20."),
        ("run --rerun 1 --input x --output y", "name it with --batch-id 1"),
        ("run --create-table maybe", "wanted --create-table alone, or true or false"),
        ("expire --audit-days many --output out", "--audit-days many: wanted a whole number of days"),
        ("expire --audit-days -1 --output out", "wanted days from 0"),
        ("plan", "A plan needs --input DIR, --from-profile FILE or --events-per-day N"),
        ("plan --event-id id --input x", "dedup plan takes no --event-id: leave it out."),
        ("plan --events-per-day 9 --input x", "--input, not both"),
        ("plan --events-per-day 9 --set batch_id=x", "--batch-id, not both"),
        ("plan --events-per-day 9 --from-profile x", "--from-profile, not both"),
        ("plan --input . --batch-pattern * --batch-id x", "Wanted batch x; . has day"),
        ("profile --etl-time 2026-11-20", "dedup profile takes no --etl-time"),
        ("iam", "dedup iam --table NAME"),
        ("compare", "A comparison needs input. Give --input DIR"),
        ("compare --input x --method dbtt", "Did you mean dbt?"),
        ("sql --dialect postgres", "dedup sql --dialect NAME --table NAME"),
        ("sql --dialect postgre --table atomic.events", "Did you mean postgres?"),
        ("sql --dialect postgres --table atomic.events --entity atomic.link", "atomic.link"),
        ("iam --table t --for rnu", "Did you mean run?"),
        ("run --input", "expected one argument"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_one_message(words, said, capsys):
    Path("day").mkdir()
    Path("day/part-0").write_text("x")
    assert exit_code(words) == 2
    shown = capsys.readouterr()
    assert said in " ".join(shown.err.split()) and "Traceback" not in shown.err and shown.out == ""


@pytest.mark.parametrize("command", ["run", "stream", "backfill"])
def test_what_would_rename_ids_of_several_columns_is_refused_before_spark_starts(
    command, capsys, monkeypatch
):
    monkeypatch.setattr("dedup_nb.base.spark.get_spark", lambda *_, **__: pytest.fail("Spark starts"))
    words = f"{command} --input in --output out --input-format json --event-id tenant,id"
    with pytest.raises(SystemExit) as end:
        main(words.split())
    said = capsys.readouterr().err
    assert (
        end.value.code == 2
        and "Several columns make the event id (tenant, id), and nobody can rename" in said
    )


@pytest.mark.parametrize("more", ["input_schema = id string", "minimum_timestamp = 2026-11-01", ""])
@pytest.mark.parametrize(
    "words", ["repair --table x/y --event-id id", "sql --dialect duckdb --table t --columns id --event-id id"]
)
def test_a_table_is_cleaned_whatever_the_settings_say_of_an_input(words, more, capsys, monkeypatch):
    Path("settings.ini").write_text(
        f"[DEFAULT]\ninput_format = {'enriched_tsv' if 'min' in more else 'csv'}\n{more}\n"
    )
    monkeypatch.setattr(
        "dedup_nb.warehouse.repair.repair", lambda *_, **asked: SimpleNamespace(data=asked["event_id"])
    )
    assert exit_code(f"{words} --json") == 0
    assert "id" in capsys.readouterr().out


@pytest.mark.parametrize(
    "command, found",
    [
        ("profile --input {}/none --output {}/out", "none"),
        ("compare --input {}/none", "none"),
        ("plan --input {}/none", "none"),
        ("runs --output {}/none", "none"),
        ("explain x/y --output {}/none", "none"),
        ("erase --id x/y --output {}/none", "none"),
        ("expire --output {}/none", "none"),
        ("forget b --output {}/none", "none"),
    ],
)
def test_what_renames_nothing_takes_ids_of_several_columns(command, found, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("DEDUP_EVENT_ID", "tenant,id")
    monkeypatch.setenv("DEDUP_INPUT_FORMAT", "json")
    with pytest.raises(SystemExit):
        main(command.format(tmp_path, tmp_path).split())
    said = capsys.readouterr().err
    assert found in said and "rename those" not in said


def test_wrong_arguments_are_answered_in_under_a_second():
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    wrong = (["rnu"], ["run", "--ordr-by", "x"], ["run", "--input", "a", "--max-batches", "many"])
    assert [apart(*words).returncode for words in wrong] == [2, 2, 2]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert seconds < len(wrong)


def test_a_missing_input_is_said_before_spark_starts():
    Path("events").mkdir()
    done = apart("run", "--input", "evnts", "--output", "out", **NO_SPARK)
    assert done.returncode == 2 and "Wanted the input evnts; it is not there" in done.stderr
    assert "Did you mean events? Correct input (--input)." in done.stderr and not Path("out").exists()


# --- what a scheduler can act on


@pytest.mark.parametrize(
    "wrong, code",
    [
        (errors.DedupError, 1),
        (errors.UnreadableError, 1),
        (errors.UnwritableError, 1),
        (errors.ConservationError, 1),
        (ledger.UnreachableManifestError, 1),
        (ZeroDivisionError, 1),
        (errors.ConfigError, 2),
        (errors.InputError, 2),
        (errors.OutputError, 2),
        (ledger.ManifestError, 2),
        (errors.MissingInputError, 2),
        (errors.MissingColumnError, 2),
        (errors.FormatError, 2),
        (ledger.RecipeError, 2),
        (job.NoManifestError, 2),
        (errors.AlarmError, 3),
        (errors.BusyError, 4),
        (ledger.FencedError, 4),
        (KeyboardInterrupt, 130),
        (BrokenPipeError, 1),
    ],
)
def test_each_kind_of_error_has_its_exit_code(wrong, code, monkeypatch, capsys):
    def fail(*_, **__):
        raise wrong("what went wrong")

    monkeypatch.setattr("dedup_nb.operate.history.runs", fail)
    assert exit_code("runs --output out") == code
    said = capsys.readouterr().err
    is_foreseen = wrong not in (ZeroDivisionError, BrokenPipeError)
    named = f"dedup: {'' if is_foreseen else 'DedupError: '}{wrong.__name__}: what went wrong\n"
    assert code == 130 or named in said
    assert "Traceback" not in said or wrong is ZeroDivisionError


@pytest.mark.parametrize("troubles, code", [((), 0), (("Batch 1 is committed, and its input changed",), 1)])
def test_what_was_left_out_shows_in_the_exit_code(troubles, code, monkeypatch, capsys):
    made = Summary([], "out", troubles=troubles)
    monkeypatch.setattr("dedup_nb.pipeline.run.run", lambda *_, **__: made)
    assert exit_code("run --input in --output out --json") == code
    assert json.loads(capsys.readouterr().out)["troubles"] == list(troubles)
    assert exit_code("run --input in --output out") == code
    assert all(words in capsys.readouterr().out for words in troubles)


class Cut:
    "A standard output that nobody reads any more."

    def write(self, text):
        raise BrokenPipeError

    flush = isatty = lambda self: self.write("")


def test_the_work_goes_on_where_nobody_reads_what_it_says(monkeypatch):
    done = []

    def work(*_, **__):
        logging.getLogger("dedup_nb.pipeline.run").info("batch 1")
        done.append("1")
        return Summary([], "out", troubles=("Batch 2 changed",))

    monkeypatch.setattr("dedup_nb.pipeline.run.run", work)
    monkeypatch.setattr("sys.stdout", Cut())
    assert exit_code("run --input in --output out") == 1 and done == ["1"]


def test_the_command_the_module_and_the_function_are_the_same():
    script = Path(sys.executable).parent / "dedup"
    asked = [[script], [sys.executable, "-m", "dedup_nb"]]
    told = [subprocess.run([*a, "--version"], capture_output=True, text=True) for a in asked]
    assert [(t.returncode, t.stdout) for t in told] == [(0, f"dedup_nb {__version__}\n")] * 2
    told = [subprocess.run([*a, "rnu"], capture_output=True, text=True) for a in asked]
    assert told[0].stderr == told[1].stderr and told[0].returncode == told[1].returncode == 2


@pytest.mark.parametrize(
    "words, said",
    [
        ("explain a --manifest none", "Wanted an output with batches; OUT is not there. Did you mean outer?"),
        ("explain a --manifest lake", "OUT is not there. Did you mean outer? Correct --output, or make one"),
        ("runs --manifest none", "OUT is not there. Did you mean outer?"),
        ("runs", "or make one: dedup run --input EVENTS --output OUT."),
        ("forget a", "OUT is not there"),
        ("erase --id a", "OUT is not there"),
        ("erase --id a --manifest none", "OUT is not there"),
        ("runs --output outer", "outer has none. Correct --output"),
        ("runs --output made", "There is no manifest at"),
        ("explain a --output made", "There is no manifest at"),
        ("runs --manifest-path elsewhere --output made", "elsewhere. Correct --output or --manifest-path"),
    ],
)
def test_an_output_that_is_not_there_is_said_before_spark_starts(words, said, monkeypatch, capsys):
    for module in ("history", "erase"):
        monkeypatch.setattr(f"dedup_nb.operate.{module}.get_spark", None)
    Path("outer/x").mkdir(parents=True)
    put_json("made/runs/1/files.json", {"status": "committed"})
    assert exit_code(f"{words.partition(' ')[0]} --output out {words.partition(' ')[2]}") == 2
    assert said.replace("OUT", str(Path("out").absolute())) in capsys.readouterr().err
    assert not Path("out").exists()


@pytest.mark.parametrize("words, code", [("--events-per-day 9", 0), ("--events-per-day 9 --input x", 2)])
def test_an_input_that_is_set_for_other_commands_does_not_hinder_a_plan_from_numbers(
    words, code, monkeypatch
):
    monkeypatch.setenv("DEDUP_INPUT", "events")
    Path("settings.ini").write_text("[DEFAULT]\nbatch_id = 2026-11-20\n")
    assert exit_code(f"plan {words}") == code


# --- what goes where


ENDING = """
import logging, sys
from dedup_nb import cli
from dedup_nb.base import errors
from dedup_nb.costs import plan
def answer(region, **_):
    if region == "fine": return plan.Plan({})
    logging.error("KeyboardInterrupt while sending command.")  # as py4j does, where a call was cut
    logging.getLogger("py4j.clientserver").error("Exception occurred while shutting down connection")
    raise {"broken": errors.InputError, "stop": KeyboardInterrupt, "bug": KeyError}[region]("AKIAABCDEFGH")
plan.Plan.__str__ = lambda self: "told"
plan.plan_workload = answer
sys.argv[1:] = ["plan", "--events-per-day", "9", "--region", sys.argv[1]]
cli.main()
"""


def test_the_trace_of_an_error_that_nobody_foresaw_goes_to_a_file_that_is_named():
    codes = {"fine": 0, "broken": 2, "bug": 1, "stop": 130}
    python = [sys.executable, "-c", ENDING]
    told = {w: subprocess.run([*python, w], capture_output=True, text=True) for w in codes}
    assert {word: done.returncode for word, done in told.items()} == codes
    assert (told["fine"].stdout, told["fine"].stderr) == ("told\n", "")
    assert not any("AKIA" in done.stdout + done.stderr for done in told.values())
    assert all(len(told[word].stderr.splitlines()) == 1 for word in ("broken", "stop"))
    said, where = told["bug"].stderr.splitlines()
    assert said.startswith("dedup: DedupError: KeyError: ")
    text = Path(where.removeprefix("The whole trace is in ")).read_text()
    assert text.startswith("Traceback") and text.endswith("KeyError: '***'\n")
    assert len(list(Path().glob("dedup-*.log"))) == 1


def test_with_json_only_json_goes_to_standard_output_even_when_that_is_closed():
    done = apart("plan", "--events-per-day", "1e6", "--json", **NO_SPARK)
    assert json.loads(done.stdout)["workload"]["events_per_day"] == 1_000_000 and done.returncode == 0
    words = f"{sys.executable} -m dedup_nb plan --events-per-day 1e6 --json >&-"
    closed = subprocess.run(["sh", "-c", words], capture_output=True, text=True)
    assert closed.returncode == 0 and "Traceback" not in closed.stderr


@pytest.mark.parametrize(
    "made, before, table",
    [
        ({"output_format": "parquet"}, None, None),
        ({"output_format": "delta"}, None, "delta.`OUT/events`"),
        ({"output_format": "table", "output_table": "lake.events"}, None, "lake.events"),
        ({"output_format": "table", "output_table": "lake.events"}, {"token": "t"}, None),
    ],
)
def test_rows_that_an_abandoned_claim_may_have_put_into_a_table_are_said(made, before, table, monkeypatch):
    from dedup_nb.operate import history

    put_json("out/runs/recipe.json", made)
    entry = SimpleNamespace(committed=before)
    ledger = SimpleNamespace(entries={"it's": entry})
    there = SimpleNamespace(abandon=lambda *_, **__: [], ledger=lambda: ledger)
    monkeypatch.setattr(history, "_open_manifest", lambda *_: there)
    said = str(history.abandon("it's", Config(output="out"), yes=True))
    table = table and table.replace("OUT", str(Path("out").absolute()))
    assert (
        said.endswith(f"DELETE FROM {table} WHERE batch_id = 'it\\'s';") == ("DELETE" in said) == bool(table)
    )


# --- dedup runs, without Spark


def put_json(path, found):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(json.dumps(found))


def test_runs_of_an_output_without_a_manifest(capsys):
    put_json("out/runs/recipe.json", {"manifest": "none", "output_format": "parquet"})
    counts = {"read": 40_010, "bad": 10, "kept": 39_999, "dropped": 1, "renamed": 0, "suspects": 2}
    one = {"batch_id": "1", "attempt": "a1", "status": "committed", "etl_time": "2026-11-20T10:00:00Z"}
    one["counts"] = counts
    put_json("out/runs/1/metrics.json", {**one, "started_at": "2026-11-20T11:00:00Z",
                                    "finished_at": "2026-11-20T11:02:03Z"})  # fmt: skip
    none = dict.fromkeys(counts, 0)
    two = {**one, "batch_id": "2", "status": "decided", "etl_time": None, "counts": none}
    put_json("out/runs/2/metrics.json", two)
    put_json("out/runs/1/files.json", {"status": "committed", "attempt": "a1"})
    put_json("out/runs/2/files.json", {"status": "decided", "attempt": "a1"})
    Path("out/runs/3").mkdir()  # of a run that failed
    # metrics come before files.json, which is the commit
    put_json("out/runs/4/metrics.json", {**two, "batch_id": "4", "status": "committed"})
    put_json("out/runs/5/metrics.json", {**two, "batch_id": "5", "status": "committed", "attempt": "a2"})
    put_json("out/runs/5/files.json", {"status": "committed", "attempt": "a1"})
    told = apart("runs", "--output", "out", **NO_SPARK)
    head, *rows = [re.split("  +", line) for line in told.stdout.splitlines()]
    assert head[3:] == ["kept", "dropped", "of the good", "bad", "of all", "took", "by"], told.stderr
    assert rows == [
        ["1", "committed", "2026-11-20 10:00", "39 999", "1", "below 0.01 %", "10", "0.025 %",
         "2 minutes", "-"],
        ["2", "decided", "-", "0", "0", "0 %", "0", "0 %", "-", "-"],
        ["4", "unfinished", "-", "0", "0", "0 %", "0", "0 %", "-", "-"],
        ["5", "unfinished", "-", "0", "0", "0 %", "0", "0 %", "-", "-"],
    ]  # fmt: skip
    assert exit_code("runs --output out --json") == 0
    assert [m["counts"] for m in json.loads(capsys.readouterr().out)] == [counts, none, none, none]


def test_runs_finds_the_table_that_the_output_is_noted_with(dynamodb):
    from dedup_nb.base.config import ManifestSettings
    from dedup_nb.dynamodb.connection import Connection
    from dedup_nb.dynamodb.store import DynamoStore
    from dedup_nb.manifest.protocol import Manifest
    from dedup_nb.pipeline.job import record_output

    memory = ManifestSettings("dynamodb", None, f"cli_{time.monotonic_ns()}", dynamodb, "us-east-1")
    record_output("out", {"output_format": "parquet"}, memory)
    store = DynamoStore(None, Connection(memory.table, memory.region, dynamodb), "out/manifest", create=True)
    manifest = Manifest(store, {"format": 2, "retention_days": 180})
    for batch in ("good", "poor"):
        manifest.begin(batch, 0, {"token": f"t_{batch}"})
    manifest.give_up("poor", "t_poor", "AlarmError: 50 % of the rows is bad, above max_bad_share = 0.1")
    told = apart("runs", "--output", "out", **NO_SPARK)
    assert told.returncode == 0, told.stderr
    assert "abandoned: AlarmError: 50 % of the rows is bad" in told.stdout and "claimed" in told.stdout


def test_java_that_a_stream_starts_does_not_hear_a_stop():
    "A micro-batch at hand is to end."
    code = """
import re, signal
from pathlib import Path
from pyspark.java_gateway import launch_gateway
from dedup_nb.cli import _without_stops
with _without_stops():
    java = launch_gateway().proc.pid
    ignored = re.search("SigIgn:\\s*(.*)", Path(f"/proc/{java}/status").read_text())[1]
    print(int(ignored, 16) >> signal.SIGTERM - 1 & 1, flush=True)
signal.raise_signal(signal.SIGTERM)
print("lost")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "1\n"), done.stderr


@pytest.mark.parametrize(
    "words",
    [
        "run --input in --duplicate-storage-config TYPED",
        "run --input in --duplicate-storage-config=TYPED",
        "run --input in --set duplicate_storage_config=TYPED",
        "run --input in --set=duplicate-storage-config=TYPED",
    ],
)
def test_a_configuration_that_is_typed_is_shown_nowhere(words, monkeypatch, capsys):
    def fail(*_, **__):
        raise errors.MissingColumnError("no event_id")

    monkeypatch.setattr(errors, "_SECRETS", set())
    monkeypatch.setattr(errors.MissingColumnError, "likely", {"event_id": "id"})
    monkeypatch.setattr("dedup_nb.pipeline.run.run", fail)
    typed = "eyJzZWNyZXQiOiAid0phbHIifQ=="
    assert exit_code(words.replace("TYPED", typed)) == 2
    said = capsys.readouterr().err
    assert "Try:" in said and "--event-id id" in said and typed not in said
    Path("keys.json").write_text("{}")
    assert exit_code(words.replace("TYPED", "keys.json")) == 2 and "keys.json" in capsys.readouterr().err


def test_a_machine_without_java_is_told_so_in_one_line():
    Path("in").mkdir()
    Path("in/a").write_text('{"event_id": "a"}')
    done = apart("run", "--input", "in", "--output", "out", **NO_SPARK)
    [line] = done.stderr.splitlines()
    assert done.returncode == 2 and "needs Java 17 or 21; found: none (/nowhere/bin/java)" in line

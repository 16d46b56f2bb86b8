"""A run that is stopped at any instant, by Ctrl-C on a terminal or by a signal: one line, code 130."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parent.parent.parent / "data_samples"
SECONDS = [0.05, 0.3, 1, 2, 3.5, 5, 7, 9, 12, 15]  # after Python has come to our code
HOW = {"ctrl-c": None, "INT": signal.SIGINT, "TERM": signal.SIGTERM}
CASES = [(seconds, how) for seconds in SECONDS for how in HOW]
EACH = [
    pytest.param(*case, marks=[] if n in (1, 5, 9, 13, 17, 21) else pytest.mark.soak)
    for n, case in enumerate(CASES)
]


RUN = "from dedup_nb.__main__ import main; print('here', flush=True); main()"


def run_and_stop(output, seconds, how):
    "Run the command on a terminal of its own, stop it after so many seconds; what it said and its exit code."
    words = ["run", "--input", str(SAMPLES), "--batch-pattern", "run=*", "--output", str(output)]
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-c", RUN, *words])
    said = os.read(terminal, 4)
    time.sleep(seconds)
    if HOW[how] is None:
        os.write(terminal, b"\x03")
    else:
        os.kill(child, HOW[how])
    part = said
    try:
        while part and select.select([terminal], [], [], 120)[0]:
            part = os.read(terminal, 65536)
            said += part
    except OSError:  # Linux says so that the other end is closed
        part = b""
    assert not part, f"something holds the terminal: {said!r}"
    _, status = os.waitpid(child, 0)
    os.close(terminal)
    return said.decode(errors="replace"), os.waitstatus_to_exitcode(status)


WHILE_JAVA_STARTS = """
import psutil
import pyspark.java_gateway
from dedup_nb import get_spark

def interrupt(seconds):
    raise KeyboardInterrupt

pyspark.java_gateway.time.sleep = interrupt
try:
    get_spark()
except KeyboardInterrupt:
    _, left = psutil.wait_procs(psutil.Process().children(), timeout=20)
    print("left", len(left))
"""


def test_no_java_is_left_by_who_is_stopped_while_it_starts():
    told = subprocess.run(
        [sys.executable, "-c", WHILE_JAVA_STARTS], capture_output=True, text=True, timeout=60
    )
    assert told.stdout == "left 0\n", told.stderr


@pytest.mark.slow
@pytest.mark.parametrize("seconds, how", EACH)
def test_a_run_that_is_stopped_ends_with_one_line(tmp_path, seconds, how):
    said, code = run_and_stop(tmp_path / "out", seconds, how)
    assert code == 130, said
    assert said.count("interrupted; what is committed stays, the rest is done by the next run") == 1
    assert "Traceback" not in said and "Error" not in said

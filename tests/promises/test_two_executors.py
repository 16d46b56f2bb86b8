"""On two executors every run picks the same winners: in one process even an arbitrary choice looks stable."""

import os
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest
from spread import FRAMES, PARTITIONS, SHORT_LIVED, driver_of_its_own, kill_group, rows_of

SPARK_HOME = Path(pyspark.__file__).parent


@contextmanager
def cluster(folder):
    "A master and two workers of one core each on loopback, and whether they came up; all are gone after it."
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {
        **os.environ,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_WORKER_DIR": str(folder / "work"),
        "JAVA_TOOL_OPTIONS": SHORT_LIVED,
    }
    master, started = f"spark://127.0.0.1:{port}", []

    def start(name, kind, *words):
        command = [
            str(SPARK_HOME / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{kind}",
            "--host",
            "127.0.0.1",
            "--webui-port",
            "0",
            *words,
        ]
        # a session of its own, so that killing the group also ends the executors
        with open(folder / f"{name}.log", "wb") as log:
            started.append(subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True))

    try:
        start("master", "master.Master", "--port", str(port))
        for name in ("worker1", "worker2"):
            start(name, "worker.Worker", "--cores", "1", "--memory", "1g", master)
        yield master, _registered(folder, within_s=60)
    finally:
        for process in started:
            kill_group(process)


def _registered(folder, within_s):
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if all(
            "Successfully registered with master" in (folder / f"{name}.log").read_text(errors="replace")
            for name in ("worker1", "worker2")
        ):
            return True
        time.sleep(0.2)
    return False


@pytest.mark.slow
def test_two_executors_keep_the_same_rows_at_any_partitioning_and_try(spark, tmp_path):
    with cluster(tmp_path) as (master, up):
        if not up:
            pytest.skip(
                "no standalone cluster on loopback: "
                + (tmp_path / "worker1.log").read_text(errors="replace")[-500:]
            )
        found = driver_of_its_own(master, tmp_path, within_s=240)
    assert found["executors"] == 2
    assert found["carried"]["arrow"] == found["carried"]["spark"] and len(found["carried"]["arrow"]) == 450
    assert found["rows"] == [rows_of(spark, 1500, frames=FRAMES[:2])] * len(PARTITIONS)

"""Deduplicate what has come, every hour; keep the memory small.

`dedup` and Spark are where the worker runs. The run finds by itself which batches are not done, so
no date goes in, and a run that was missed is made up for by the next one.
"""

import subprocess
from datetime import datetime, timedelta

from airflow.sdk import dag, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException

NO_RETRY = {2: "wrong settings, or an input that does not fit", 3: "stopped by an alarm"}


def call(words):
    "Call dedup; what a second try cannot mend fails at once. 4 is busy: Airflow tries again."
    code = subprocess.run(words).returncode
    if code in NO_RETRY:
        raise AirflowFailException(f"dedup ended with {code}: {NO_RETRY[code]}; its own words are in the log")
    if code:
        raise RuntimeError(f"dedup ended with {code}; its own words are in the log")


@dag(
    schedule="17 * * * *",
    start_date=datetime(2026, 11, 1),
    catchup=False,
    max_active_runs=1,  # a lake manifest takes one run at a time
    default_args={"retries": 2, "retry_delay": timedelta(minutes=5)},
    params={"input": "/data/enriched", "output": "/data/clean"},
)
def dedup():
    @task(execution_timeout=timedelta(hours=3))
    def run(params):
        own = get_current_context()["ti"]
        # the same at each try, on whatever worker: it takes over what a killed one left unfinished
        owner = f"{own.dag_id}.{own.task_id}"
        # fmt: off
        call(["dedup", "run", "--input", params["input"], "--output", params["output"],
              "--owner", owner, "--wait-minutes", "10"])
        # fmt: on

    @task
    def expire(params):
        call(["dedup", "expire", "--output", params["output"], "--audit-days", "90", "--yes"])

    run() >> expire()


dedup()

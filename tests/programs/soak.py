"""Kill a job at random instants until it has died KILLS times; run it again after each kill.

    python soak.py KILLS [SEED]

The job processes three batches that share ids. Whatever happened to it, the kept rows must be those of an
undisturbed run, and each row that was dropped must point at one of them.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from spread import SHORT_LIVED, kill_group

JOB = [sys.executable, str(Path(__file__).with_name("killed_run.py")), "none"]
ENV = {
    **os.environ,
    "PYSPARK_PYTHON": sys.executable,
    "SPARK_MASTER": "local[2]",
    "SPARK_SUBMIT_OPTS": os.environ.get("SPARK_SUBMIT_OPTS", SHORT_LIVED),
}
KEPT = ("event_id", "original_event_id", "n")
DROPPED = ("event_id", "n", "dedup.reason", "dedup.kept_event_id", "dedup.kept_in_batch")


def started(source, output):
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    job = subprocess.Popen([*JOB, source, output], start_new_session=True, env=ENV, **pipes)
    while job.poll() is None and job.stdout.readline().strip() != "ready":
        pass
    return job


def rows_on_disk(spark, output):
    records = [json.loads(path.read_text()) for path in sorted(Path(output).glob("runs/*/files.json"))]

    def read(area, columns):
        paths = [f"{output}/{f['path']}" for r in records for f in r[area]]
        return Counter(map(tuple, spark.read.parquet(*paths).selectExpr(*columns).collect()))

    return read("events", KEPT), read("dropped", DROPPED)


def nowhere(kept, dropped):
    "Dropped rows whose event is not among the kept ones."
    ids = {row[0] for row in kept}
    return sum(n for row, n in dropped.items() if row[3] not in ids)


def differences(found, expected):
    "Rows lost, rows doubled (or that should not be there)."
    lost = sum((e - f).total() for f, e in zip(found, expected))
    return lost, sum((f - e).total() for f, e in zip(found, expected))


def write_batches(spark, source):
    from pyspark.sql import functions as F

    n = F.col("id")
    for batch in range(3):
        frame = spark.range(batch * 3000, batch * 3000 + 6000).select(
            F.concat(F.lit("id"), F.expr("id div 3")).alias("event_id"),
            F.concat(F.lit("f"), n % 2).alias("event_fingerprint"),
            F.timestamp_seconds(n + 1_763_000_000).alias("etl_tstamp"),
            n.alias("n"),
            F.sha2(n.cast("string"), 512).alias("wide"),
        )
        frame.repartition(2).write.parquet(f"{source}/run={batch}")


def killed_until_done(source, output, instant, kills, done):
    "Start the job again and again; the last one that ended, and the number of kills by then."
    while True:
        job = started(source, output)
        # within the time of a batch and a half: most runs die, a batch is reached by several of them
        wait = instant() if done < kills else None
        try:
            job.wait(wait)
            return job, done
        except subprocess.TimeoutExpired:
            done += 1
            kill_group(job)
            print(f"kill {done} of {kills}, {wait:.1f} s after its start", flush=True)


def main(kills=200, seed=1):
    from dedup_nb.base.spark import get_spark
    from dedup_nb.manifest.lake import LakeStore
    from dedup_nb.manifest.ledger import Ledger

    pick, base, spark = (
        random.Random(seed),
        Path(tempfile.mkdtemp(prefix="dedup_soak_")),
        get_spark(delta=True),
    )
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    source, output = str(base / "in"), str(base / "out")
    write_batches(spark, source)
    begun = time.monotonic()
    job = started(source, str(base / "undisturbed"))
    ready = time.monotonic()
    assert job.wait() == 0, job.stderr.read()[-2000:]
    takes = time.monotonic() - ready
    expected = rows_on_disk(spark, base / "undisturbed")
    assert not nowhere(*expected)
    done, rounds, lost, doubled, stuck = 0, 0, 0, 0, 0
    while done < kills:
        rounds += 1
        shutil.rmtree(output, ignore_errors=True)
        job, done = killed_until_done(source, output, lambda: pick.uniform(0, takes / 2), kills, done)
        if job.returncode:
            stuck += 1
            print(job.stderr.read()[-1500:])
            continue
        off = differences(rows_on_disk(spark, output), expected)
        entries = Ledger(LakeStore(spark, f"{output}/manifest").markers()).entries
        states = Counter(e.state for e in entries.values())
        lost, doubled, stuck = lost + off[0], doubled + off[1], stuck + (states != {"committed": 3})
        print(
            f"round {rounds}, {done} kills: {lost} rows lost, {doubled} doubled, {stuck} rounds stuck",
            flush=True,
        )
    took = time.monotonic() - begun
    print(f"{done} kills in {rounds} rounds, {took:.0f} s, seed {seed}:")
    print(f"{lost} rows lost, {doubled} doubled, {stuck} rounds stuck")
    shutil.rmtree(base, ignore_errors=True)
    return int(bool(lost or doubled or stuck))


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))

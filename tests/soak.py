"""Kill a job at random instants until it has died KILLS times; after each kill run it again: python soak.py KILLS [SEED].

The job processes three batches that share ids. Whatever happened to it, the kept rows must be those of an undisturbed run.
"""
import json, os, random, shutil, subprocess, sys, tempfile, time
from collections import Counter
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parent))
from spread import kill_group

JOB = [sys.executable, str(Path(__file__).with_name("killed_run.py")), "none"]
ENV = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_MASTER": "local[2]", "SPARK_SUBMIT_OPTS": os.environ.get("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")}


def started(source, output):
    job = subprocess.Popen([*JOB, source, output], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, env=ENV)
    while job.poll() is None and job.stdout.readline().strip() != "ready": pass
    return job


def rows(spark, output):
    records = [json.loads(path.read_text()) for path in sorted(Path(output).glob("runs/*/files.json"))]
    read = lambda area, columns: Counter(map(tuple, spark.read.parquet(*[f"{output}/{f['path']}" for r in records for f in r[area]]).selectExpr(*columns).collect()))
    return read("events", ("event_id", "original_event_id", "n")), read("dropped", ("event_id", "n", "dedup.reason", "dedup.kept_event_id", "dedup.kept_in_batch"))


def differences(found, expected):
    "Rows lost, rows doubled (or that should not be there)."
    return sum(((e - f).total() for f, e in zip(found, expected))), sum(((f - e).total() for f, e in zip(found, expected)))


def main(kills=200, seed=1):
    from pyspark.sql import functions as F
    from dedup_nb.config import get_spark
    from dedup_nb.manifest import LakeManifest
    pick, base = random.Random(seed), Path(tempfile.mkdtemp(prefix="dedup_soak_"))
    source, spark = str(base / "in"), get_spark(delta=True)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    for batch in range(3):
        n = F.col("id")
        frame = spark.range(batch * 3000, batch * 3000 + 6000).select(F.concat(F.lit("id"), F.expr("id div 3")).alias("event_id"), F.concat(F.lit("f"), n % 2).alias("event_fingerprint"),
                F.timestamp_seconds(n + 1_763_000_000).alias("etl_tstamp"), n.alias("n"), F.sha2(n.cast("string"), 512).alias("wide"))
        frame.repartition(2).write.parquet(f"{source}/run={batch}")
    start = time.monotonic()
    job = started(source, str(base / "undisturbed"))
    ready = time.monotonic()
    assert job.wait() == 0, job.stderr.read()[-2000:]
    takes = time.monotonic() - ready
    expected = rows(spark, base / "undisturbed")
    done, rounds, lost, doubled, stuck = 0, 0, 0, 0, 0
    while done < kills:
        output, rounds = base / "out", rounds + 1
        shutil.rmtree(output, ignore_errors=True)
        while True:
            job = started(source, str(output))
            # within the time of a batch and a half: most runs die, a batch is reached by several of them, and the round still ends
            instant = pick.uniform(0, takes / 2 if done < kills else 0)
            try: job.wait(instant if done < kills else None)
            except subprocess.TimeoutExpired: done += 1; kill_group(job); print(f"kill {done} of {kills}, {instant:.1f} s after its start", flush=True); continue
            break
        if job.returncode: stuck += 1; print(job.stderr.read()[-1500:]); continue
        off = differences(rows(spark, output), expected)
        states = Counter(e.state for e in LakeManifest(spark, f"{output}/manifest").ledger())
        lost, doubled, stuck = lost + off[0], doubled + off[1], stuck + (states != {"committed": 3})
        print(f"round {rounds}, {done} kills so far: {lost} rows lost, {doubled} doubled, {stuck} rounds left stuck", flush=True)
    print(f"{done} kills in {rounds} rounds of 3 batches: {lost} rows lost, {doubled} doubled, {stuck} rounds left stuck ({time.monotonic() - start:.0f} s, seed {seed})")
    shutil.rmtree(base, ignore_errors=True)
    return int(bool(lost or doubled or stuck))


if __name__ == "__main__": sys.exit(main(*map(int, sys.argv[1:])))

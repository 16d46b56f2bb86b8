"""A driver of its own: deduplicates events in a Connect session or on a cluster, and leaves the rows as JSON.

python spread.py connect+lake OUT.json       every frame, and what stayed of two batches (also: connect+none)
python spread.py connect+ADDRESS OUT.json    the same with the DynamoDB there
python spread.py spark://HOST:PORT OUT.json  kept and dropped at two partitionings; what is carried in both
                                             ways; how many executors
"""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from functools import reduce
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

JSON = {"ignoreNullFields": "false", "timeZone": "UTC"}
FRAMES = ("kept", "dropped", "bad", "verdicts")
PARTITIONS = (2, 9)
# the first compiler only, with room for all that it compiles; classes are as Spark was published
SHORT_LIVED = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=256m -XX:+UseSerialGC "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
# plans for a few rows cost more to compile than to run
INTERPRETED = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
}
# for plans that are longer than their data: what Spark does to plans for large data, and its checks of itself
SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
}
COMPILED = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
}


@contextmanager
def configured(spark, conf):
    "Settings of the session for a while."
    before = {name: spark.conf.get(name, None) for name in conf}
    for name, value in conf.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def rows_of(spark, events, *, partitions=2, frames=FRAMES):
    "All rows of the frames that `deduplicate` gives for `events` events full of ties, sorted."
    from dedup_nb import deduplicate

    n = F.col("id") % (events * 2 // 3)  # every second row comes again, equal in all columns
    id_of = (
        F.when(n % 97 == 0, None)
        .when(n % 7 == 0, "hot")
        .otherwise(F.concat(F.lit("id"), n * 13 % (events // 4)))
    )
    frame = (
        spark.range(events)
        .repartition(partitions)
        .select(
            id_of.alias("event_id"),
            F.when(n % 5 == 0, "").otherwise((n % 3).cast("string")).alias("event_fingerprint"),
            F.timestamp_seconds(n % 2).alias("etl_tstamp"),
            (n % 11).alias("app"),
            F.create_map(F.lit("k"), n % 2).alias("m"),
        )
    )
    with configured(spark, INTERPRETED):
        result = deduplicate(frame)
        parts = [getattr(result, name).select(F.lit(name), F.to_json(F.struct("*"), JSON)) for name in frames]
        return sorted(list(row) for row in reduce(lambda a, b: a.union(b), parts).collect())


def keep_keys_in_files(beyond):
    "Of batches with more rows than that: tasks are told where they lie."
    from dedup_nb.pipeline import write

    write._FEW_ROWS = beyond


def through_connect(manifest, folder):
    from runs import TWO, config, on_dynamodb, stayed, write

    from dedup_nb import run
    from dedup_nb.base.spark import delta_settings

    # the server that this starts reads its settings from here; one that runs elsewhere has Delta already
    os.environ["SPARK_CONF_DIR"] = str(folder)
    (folder / "spark-defaults.conf").write_text(
        "".join(f"{name} {value}\n" for name, value in delta_settings().items())
    )
    settings = {"spark.sql.shuffle.partitions": "2", **INTERPRETED}
    spark = reduce(
        lambda builder, item: builder.config(*item), settings.items(), SparkSession.builder.remote("local[2]")
    ).getOrCreate()
    write(spark, folder / "in", TWO)
    keep_keys_in_files(beyond=2)  # of the second batch
    memory = on_dynamodb(manifest, "connect") if ":" in manifest else {"manifest": manifest}
    if manifest == "none":  # rows that are counted as they are decoded
        for name in TWO:
            parsed = spark.read.parquet(f"{folder}/in/run={name}")
            parsed.write.json(f"{folder}/json/run={name}")
        memory |= {"input": f"{folder}/json", "input_format": "json"}
    done = run(config(folder, **memory), spark)
    found = {"carried_by": [m["carried_by"] for m in done.batches]}
    found |= {"rows": rows_of(spark, 60), "stayed": stayed(spark, folder)}
    if manifest == "lake":
        found |= {"repaired": repaired(spark, folder), "refused": refused(spark, folder)}
    return spark, found


def repaired(spark, folder):
    "What stays of a table after its repair."
    from dedup_nb.warehouse.repair import repair

    loaded = spark.read.parquet(f"{folder}/in").drop("run")
    loaded.write.format("delta").save(f"{folder}/loaded")
    repair(f"{folder}/loaded", spark=spark)
    return sorted(r.n for r in spark.read.format("delta").load(f"{folder}/loaded").collect())


def refused(spark, folder):
    "What a merge table says of a condition on a column that is no partition's."
    from dedup_nb.base.errors import ConfigError
    from dedup_nb.merges.change_log import Latest
    from dedup_nb.merges.merge_table import MergeTable

    table = MergeTable(f"{folder}/merged", Latest("k", "n"), "p", spark=spark)
    table.insert(spark.range(1).selectExpr("'a' as k", "id as n", "1 as p"))
    try:
        return table.optimize("n = 1")
    except ConfigError as told:
        return str(told)


def carried(spark, folder):
    "What is kept where tasks that carry fail at their first try, when all is in its place; and by Spark."
    from pyspark import TaskContext

    from dedup_nb import Config, run
    from dedup_nb.pipeline import carry

    keep_keys_in_files(beyond=0)
    real = carry._carry_parts

    def fail_first(*given, **more):  # workers do not know this module: they are sent the function itself
        yield from real(*given, **more)
        if TaskContext.get().attemptNumber() == 0:
            raise RuntimeError("the first try of a task")

    carry._carry_parts, carry.size_of_parts = fail_first, lambda *_: 1000
    rows = spark.range(500).selectExpr("string(id % 450) as event_id", "'f' as event_fingerprint", "id as n")
    rows.repartition(4).write.parquet(f"{folder}/in")
    found = {}
    for how in ("arrow", "spark"):
        settings = dict(input=f"{folder}/in", output=f"{folder}/{how}", input_format="parquet")
        run(Config(**settings, manifest="none", order_by="n", carry=how), spark)
        kept = spark.read.parquet(f"{folder}/{how}/events/*/*").select("event_id", "n").collect()
        found[how] = sorted(map(list, kept))
    return found


def on_cluster(master, folder):
    conf = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.cores.max": "2",
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": "4",
        # no task before both executors are there
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "30s",
    }
    spark = reduce(
        lambda builder, item: builder.config(*item), conf.items(), SparkSession.builder.master(master)
    ).getOrCreate()
    rows = [rows_of(spark, 1500, partitions=partitions, frames=FRAMES[:2]) for partitions in PARTITIONS]
    return spark, {
        "rows": rows,
        "carried": carried(spark, folder),
        "executors": spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1,
    }


def driver_of_its_own(where, folder, *, within_s):
    "What the driver leaves; it and the JVMs it started are gone afterwards."
    # optimising code that runs for seconds would take most of the time
    env = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JAVA_TOOL_OPTIONS": SHORT_LIVED,
    }
    with open(folder / "driver.log", "wb") as log:
        driver = subprocess.Popen(
            [sys.executable, __file__, where, str(folder / "found.json")],
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=env,
        )
        try:
            driver.wait(within_s)
        finally:
            kill_group(driver)
    assert driver.returncode == 0, (folder / "driver.log").read_text(errors="replace")[-3000:]
    return json.loads((folder / "found.json").read_text())


def kill_group(leader):
    try:
        os.killpg(leader.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    leader.wait()


def main(where, out):
    where, _, manifest = where.partition("+")
    folder = Path(out).parent
    spark, found = through_connect(manifest, folder) if where == "connect" else on_cluster(where, folder)
    Path(out).write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

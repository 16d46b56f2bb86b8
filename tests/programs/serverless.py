"""A driver in a session that refuses what serverless compute of Databricks refuses: simulated.

python serverless.py FOLDER     what works and what is refused there, as FOLDER/found.json
"""

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from runs import TWO, config, go, stayed, write
from spread import INTERPRETED

from dedup_nb.base.errors import DedupError
from dedup_nb.base.spark import delta_settings, get_spark

ALLOWED = {"spark.sql.shuffle.partitions", "spark.sql.session.timeZone", "spark.sql.ansi.enabled"}
ALLOWED.add("spark.sql.execution.pyspark.binaryAsBytes")  # which the client of Spark 4.1 reads by itself


def refuse(self, name, *rest):
    raise RuntimeError(f"[CONFIG_NOT_AVAILABLE] Configuration {name} is not available. SQLSTATE: 42K0I")


def session_of_serverless(folder):
    "A Connect session; from then on few settings may be read or set, no frame is kept, no other is built."
    os.environ["SPARK_CONF_DIR"] = str(folder)
    settings = {**delta_settings(), **INTERPRETED, "spark.sql.shuffle.partitions": "2"}
    (folder / "spark-defaults.conf").write_text("".join(f"{n} {v}\n" for n, v in settings.items()))
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    write(spark, folder / "in", TWO)
    for name in ("moved", "renamed"):
        spark.read.parquet(f"{folder}/in").drop("run").write.format("delta").save(f"{folder}/{name}")
    from pyspark.sql.connect.conf import RuntimeConf
    from pyspark.sql.connect.dataframe import DataFrame

    for name in ("get", "set", "unset"):
        real = getattr(RuntimeConf, name)
        asked = lambda self, key, *rest, real=real: (real if key in ALLOWED else refuse)(self, key, *rest)
        setattr(RuntimeConf, name, asked)
    kept = "[NOT_SUPPORTED_WITH_SERVERLESS] PERSIST TABLE is not supported on serverless compute."
    DataFrame.persist = lambda *_: refuse(None, kept)
    os.environ["DATABRICKS_RUNTIME_VERSION"] = "client.4.1"
    for name in [
        name for name in os.environ if name.startswith("AWS_") and name != "AWS_EC2_METADATA_DISABLED"
    ]:
        del os.environ[name]  # there are no credentials for Python
    return spark


def words_of(work):
    "What a work is refused with; None if it is done."
    try:
        work()
    except DedupError as wrong:
        return f"{type(wrong).__name__}: {wrong}"


def main(folder):
    from dedup_nb import Deduper, cli, deduplicate_stream
    from dedup_nb.warehouse.repair import repair

    spark = session_of_serverless(folder)
    summary = go(spark, folder)
    found = {"lake": stayed(spark, folder), "notes": list(summary.notes)}
    go(spark, folder, batch_id="2", rerun=True)
    found["again"] = stayed(spark, folder)
    alone = go(spark, folder, manifest="none", output=str(folder / "none"), batch_id="2")
    found["none"] = alone.counts["kept"]
    found["same session"] = get_spark() is spark
    words = ["run", "--input", f"{folder}/in", "--output", f"{folder}/cli", "--input-format", "parquet"]
    found["command"] = cli.main(words)
    events = spark.readStream.schema("event_id string").parquet(f"{folder}/in")
    refused = {
        "s3": lambda: go(spark, folder, output="s3://bucket/clean"),
        "dynamodb": lambda: go(spark, folder, manifest="dynamodb", dynamodb_table="t", output=f"{folder}/d"),
        "stream": lambda: deduplicate_stream(events, f"{folder}/stream"),
        "deduper": lambda: Deduper("event_id", event_time="etl_tstamp").split(
            spark.read.parquet(f"{folder}/in")
        ),
        "dbfs": lambda: config(folder, output="dbfs:/clean") and go(spark, folder, output="dbfs:/clean"),
    }
    found["refused"] = {name: words_of(work) for name, work in refused.items()}
    for name in ("moved", "renamed"):
        repair(f"{folder}/{name}", spark=spark, strategy={"moved": "move", "renamed": "rename"}[name])
        found[name] = sorted(r.n for r in spark.read.format("delta").load(f"{folder}/{name}").collect())
    (folder / "found.json").write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

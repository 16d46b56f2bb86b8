"""Events through a Kafka broker of our own, in two goes: kafka_stream.py FOLDER

The broker's jars come from the Java registry with Spark's own source for Kafka.
"""

import json
import socket
import subprocess
import sys
import time
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pyspark
from pyspark.sql import functions as F

from dedup_nb.base.spark import get_spark
from dedup_nb.streams.stream import deduplicate_stream

PACKAGES = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1,org.apache.kafka:kafka_2.13:3.9.0"


def free_port():
    with closing(socket.socket()) as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def answers(port):
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True


@contextmanager
def broker(folder, jars):
    "A broker on loopback, its own controller."
    port, control = free_port(), free_port()
    told = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{control}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": folder / "log",
        "offsets.topic.replication.factor": 1,
        "num.partitions": 3,
    }
    config = folder / "server.properties"
    config.write_text("\n".join(f"{k}={v}" for k, v in told.items()))
    java = ["java", "-Xmx512m", "-cp", ":".join(jars)]
    form = [*java, "kafka.tools.StorageTool", "format", "-t", "dedupdedupdedupdedupAA", "-c", config]
    subprocess.run(form, check=True, capture_output=True)
    with open(folder / "broker.log", "w") as log:
        server = subprocess.Popen([*java, "kafka.Kafka", config], stdout=log, stderr=log)
    try:
        end = time.monotonic() + 90
        while not answers(port) and time.monotonic() < end:
            time.sleep(0.5)
        yield f"127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def json_events(first, last):
    "JSON events; each third one is a copy of the one before."
    for n in range(first, last):
        m = n - 1 if n % 3 == 2 else n
        yield (
            json.dumps(
                {
                    "event_id": f"e{m}",
                    "event_fingerprint": f"f{m}",
                    "collector_tstamp": f"2026-11-20T10:{n:02d}:00Z",
                }
            ),
        )


def main(folder):
    spark = get_spark(delta=True, settings={"spark.jars.packages": PACKAGES, "spark.master": "local[2]"})
    jars = [j.removeprefix("file:") for j in spark.conf.get("spark.jars").split(",")]
    with broker(folder, [*jars, f"{Path(pyspark.__file__).parent}/jars/*"]) as address:
        kafka = {"kafka.bootstrap.servers": address}

        def send(first, last):
            frame = spark.createDataFrame(list(json_events(first, last)), "value string")
            frame.write.format("kafka").options(topic="events", **kafka).save()

        def take():
            rows = spark.readStream.format("kafka").options(
                subscribe="events", startingOffsets="earliest", **kafka
            )
            columns = "event_id string, event_fingerprint string, collector_tstamp timestamp"
            asked = dict(input_format="json", input_schema=columns, available_now=True)
            query = deduplicate_stream(rows.load().select("value"), f"{folder}/out", **asked)
            query.awaitTermination()

        for first, last in ((0, 11), (11, 30)):
            send(first, last)
            take()
    kept = spark.read.parquet(f"{folder}/out/events").agg(
        F.count("*").alias("rows"), F.countDistinct("event_id").alias("ids")
    )
    print(json.dumps(kept.first().asDict()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

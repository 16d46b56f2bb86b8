"""Split a stream that dies, Spark and all, at a point of a micro-batch.

killed_split.py POINT NUMBER FOLDER
"""

import os
import signal
import sys
from pathlib import Path

from pyspark.sql import DataFrameWriter
from pyspark.sql import functions as F

from dedup_nb.base.spark import get_spark
from dedup_nb.streams import deduper
from dedup_nb.streams.deduper import OUTCOMES, Deduper

POINTS = {  # what is called, for which words in its arguments, and whether it comes to its end
    "the first output is written": (DataFrameWriter, "parquet", "unique", True),
    "the outputs are written": (deduper, "commit_batch", "", False),
    "the state is committed": (deduper, "commit_batch", "", True),
    "the first output is moved": (deduper, "move_files", "unique", True),
}
SCHEMA = "seq int, key string, time bigint"


def die_in_micro_batch(number, place, name, words, ends):
    "Die before this function is called for a micro-batch, or when it has returned."
    real = getattr(place, name)

    def then(*args, **more):
        ours = f"{int(number):09d}" in repr(args) and words in repr(args)
        if ours and not ends:
            os.killpg(0, signal.SIGKILL)
        given = real(*args, **more)
        if ours:
            os.killpg(0, signal.SIGKILL)
        return given

    setattr(place, name, then)


def main(point, number, folder):
    os.setpgrp()
    if point in POINTS:
        die_in_micro_batch(number, *POINTS[point])
    spark, folder = get_spark(delta=True), Path(folder)
    asked = dict(key="key", event_time="time", expire_before=6, bucket_span=2, reference_instant=0)
    reader = spark.readStream.schema(SCHEMA).option("recursiveFileLookup", True)
    events = reader.option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    outputs = {outcome: str(folder / outcome) for outcome in OUTCOMES}
    places = (str(folder / "state"), str(folder / "checkpoint"))
    stream = Deduper(**asked, order_by=[F.col("seq")]).stream(events, *places, **outputs)
    stream.start(available_now=True).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])

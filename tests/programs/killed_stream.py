"""Run a stream that dies, Spark and all, at a point of a micro-batch.

killed_stream.py POINT NUMBER INPUT OUTPUT
"""

import os
import signal
import sys

from dedup_nb import Config
from dedup_nb.base.spark import get_spark
from dedup_nb.manifest.protocol import Manifest
from dedup_nb.pipeline import commit
from dedup_nb.streams import stream

POINTS = {
    "the rows are staged": (stream, "run", True),
    "the batch is claimed": (Manifest, "begin", False),
    "the manifest has it": (Manifest, "commit", False),
    "the files are published": (commit, "publish", False),
    "the batch is committed": (stream, "remove_folder", True),
}


def die_in_batch(batch_id, place, name, first):
    "Die before this function is called for a batch, or when it has returned."
    real = getattr(place, name)

    def then(*args, **more):
        if first and batch_id in repr(args):
            os.killpg(0, signal.SIGKILL)
        given = real(*args, **more)
        if batch_id in repr(args):
            os.killpg(0, signal.SIGKILL)
        return given

    setattr(place, name, then)


def main(point, number, source, output):
    os.setpgrp()
    die_in_batch(f"web-{int(number):09d}", *POINTS[point])
    parquet = Config(input=source, input_format="parquet")
    events = stream.read_stream(get_spark(delta=True), parquet, max_files=1)
    stream.deduplicate_stream(events, output, name="web", available_now=True).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])

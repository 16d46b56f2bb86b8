"""Run a stream that dies at a named point, Spark and all: killed_stream.py POINT INPUT OUTPUT"""

import os
import signal
import sys

from dedup_nb import Config, stream
from dedup_nb.manifest import Manifest
from dedup_nb.session import get_spark

point, source, output = sys.argv[1:]


def dying(place, name, first):
    "Die before this function is called, or when it has returned."
    real = getattr(place, name)

    def then(*args, **more):
        if not first:
            real(*args, **more)
        os.killpg(0, signal.SIGKILL)

    setattr(place, name, then)


os.setpgrp()
where = {
    "the rows are staged": (stream, "run", True),
    "the batch is claimed": (Manifest, "begin", False),
    "the batch is committed": (stream, "remove_folder", True),
}
dying(*where[point])
events = stream.read_stream(get_spark(delta=True), Config(input=source, input_format="parquet"), max_files=1)
stream.deduplicate_stream(events, output, name="web", available_now=True).awaitTermination()

"""Runs in a session that the environment sets up (PYSPARK_SUBMIT_ARGS), on input that is written there.

python runs_there.py FOLDER     FOLDER/jobs.json: of each folder in it, settings of its runs, what is erased
"""

import json
import sys
from pathlib import Path

from runs import WITH_COPIES, go, write

from dedup_nb import Config
from dedup_nb.base.spark import get_spark
from dedup_nb.operate.erase import erase


def main(folder):
    spark, found = get_spark(delta=True), {}
    for name, job in json.loads((folder / "jobs.json").read_text()).items():
        home = folder / name
        if not (home / "in").exists():
            write(spark, home / "in", WITH_COPIES)
        found[name] = [[m["counts"] for m in go(spark, home, **more).batches] for more in job["runs"]]
        if wanted := job.get("erase"):
            erase(Config(output=str(home / "out"), input_format="parquet"), spark, event_id=wanted, yes=True)
    (folder / "found.json").write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

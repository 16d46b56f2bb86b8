"""What AWS Glue starts: a run, in the session of the job."""

import sys

from awsglue.utils import getResolvedOptions
from pyspark.sql import SparkSession

from dedup_nb import Config, run

SETTINGS = ["input", "output", "owner", "wait_minutes"]
given = getResolvedOptions(sys.argv, SETTINGS)  # Glue puts arguments of its own beside ours
summary = run(Config.load(**{name: given[name] for name in SETTINGS}), SparkSession.builder.getOrCreate())
print(summary)
if summary.troubles:  # folders that were left out, after all others are done
    raise RuntimeError("; ".join(summary.troubles))

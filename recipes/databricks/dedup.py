# Databricks notebook source
# MAGIC %md
# MAGIC # Deduplicate batches of events
# MAGIC
# MAGIC The parameters of the job are the settings of the run. Spark, Delta, pandas and pyarrow are those of the platform.

# COMMAND ----------

from dedup_nb import Config, run
from dedup_nb.base.errors import DedupError

# COMMAND ----------

config = Config.load(**dbutils.widgets.getAll())
config.chosen()

# COMMAND ----------

summary = run(config, spark)
summary

# COMMAND ----------

# MAGIC %md
# MAGIC Folders that were left out make the job fail, after all others are done.

# COMMAND ----------

if summary.troubles:
    raise DedupError("\n".join(summary.troubles))

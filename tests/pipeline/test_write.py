"What is written: columns that an output can hold."

import pytest

from dedup_nb.base.config import Output
from dedup_nb.base.errors import InputError
from dedup_nb.pipeline.write import check_columns_fit


@pytest.mark.parametrize("output_format", ["parquet", "json", "delta", "enriched_tsv"])
@pytest.mark.parametrize("name", ["batch_id", "Batch_ID"])
def test_a_column_that_the_folders_of_the_output_would_hide_is_refused(spark, name, output_format):
    schema = spark.createDataFrame([], f"event_id string, {name} string").schema
    with pytest.raises(InputError, match=f"column {name}, which the folder batch_id=.* would hide"):
        check_columns_fit(spark, schema, Output("/nowhere", output_format))

"What is written: columns that an output can hold, and what lies where between two steps."

import pytest
from spread import configured

from dedup_nb.base.arrow import rows_at
from dedup_nb.base.config import Config, Output
from dedup_nb.base.errors import InputError
from dedup_nb.base.spark import temporary_conf
from dedup_nb.pipeline import write
from dedup_nb.pipeline.run import run
from dedup_nb.pipeline.write import Attempt, check_columns_fit


@pytest.mark.parametrize("output_format", ["parquet", "json", "delta", "enriched_tsv"])
@pytest.mark.parametrize("name", ["batch_id", "Batch_ID"])
def test_a_column_that_the_folders_of_the_output_would_hide_is_refused(spark, name, output_format):
    schema = spark.createDataFrame([], f"event_id string, {name} string").schema
    with pytest.raises(InputError, match=f"column {name}, which the folder batch_id=.* would hide"):
        check_columns_fit(spark, schema, Output("/nowhere", output_format))


@pytest.mark.parametrize("micros, day", [(-(2**63), -106751992), (-1, -1), (0, 0), (2**63 - 1, 106751991)])
def test_a_day_of_any_time_is_its_own(spark, micros, day):
    times = spark.sql(f"select timestamp_micros(bigint('{micros}')) as at")
    rows, [name] = write._with_partitions(times, ["at:date"])
    assert name == "at_date" and rows.selectExpr("unix_date(at_date) as day").first().day == day


# --- between two steps

KEYED = "id", "if(id > 0, named_struct('at', timestamp_seconds(id), 'never', 0), null) as at", "x'ff' as odd"
CASES = {  # rows and bytes of the batch, rows of the frame -> is it in memory?
    (3, 0, 3): True,
    (4, 0, 3): False,
    (None, 0, 3): False,
    (3, 1 << 30, 3): False,
    (3, 0, 4): False,  # known keys: more than the batch has rows
    (0, 0, 0): True,
}


@pytest.mark.parametrize("rows, size, number", CASES)
@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_rows_are_the_same_in_memory_and_in_files(spark, tmp_path, monkeypatch, rows, size, number, zone):
    monkeypatch.setattr(write, "_FEW_ROWS", 3)
    no_limit = {"spark.sql.execution.arrow.maxRecordsPerBatch": "0", "spark.sql.session.timeZone": zone}
    with configured(spark, no_limit), temporary_conf(spark):
        frame = spark.range(number).selectExpr(*KEYED)
        staged = Attempt(str(tmp_path), "b", "t").sized(rows, size).stage(frame, "keys", may_be_many=True)
        assert (staged.table is not None) == CASES[rows, size, number] and staged.rows == number
        assert staged.frame.schema == frame.schema.toNullable()
        assert sorted(staged.frame.collect()) == sorted(frame.collect())
        assert sum(found.num_rows for found in rows_at(staged.place)) == number


def test_a_frame_of_much_text_is_not_kept_in_memory(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(write, "_FEW_ROWS", 3)
    monkeypatch.setattr(write, "_FEW_BYTES", 1000)
    attempt = Attempt(str(tmp_path), "b", "t").sized(1, 10)
    assert attempt.stage(spark.range(1), "few").table is not None
    assert attempt.stage(spark.sql("select repeat('x', 2000) as text"), "much").table is None


# --- of one type in all batches

NUMBERS = {  # batch -> its line; what is said of its types
    "1": ('{"event_id": "a", "n": 1, "of": {"x": 1}}', None),
    "2": ('{"event_id": "b", "n": 2.5, "of": {"y": 1}}', "n (double, was bigint)"),
    "3": (
        '{"event_id": "c", "n": "3", "of": {"x": "1"}}',
        "n (string, was double), of.x (string, was bigint)",
    ),
    "4": ('{"event_id": "d", "n": "4", "of": {"x": "1"}}', None),
}


@pytest.mark.slow
def test_a_batch_says_which_columns_are_of_another_type_than_before(spark, tmp_path):
    for batch, (line, _) in NUMBERS.items():
        (tmp_path / f"in/run={batch}").mkdir(parents=True)
        (tmp_path / f"in/run={batch}/part-0.json").write_text(line)
    config = Config(input=str(tmp_path / "in"), output=str(tmp_path / "out"), input_format="json")
    done = run(config, spark).batches
    types = (tmp_path / "out/runs/columns.json").read_text()
    [again] = run(config.replace(batch_id="1", rerun=True), spark).batches
    assert not any("earlier batches have" in note for note in again["notes"])
    assert (tmp_path / "out/runs/columns.json").read_text() == types
    notes = [[note for note in m["notes"] if "earlier batches have" in note] for m in done]
    told = [note[0].partition(": ")[2].partition(";")[0] if note else None for note in notes]
    assert told == [expected for _, expected in NUMBERS.values()]

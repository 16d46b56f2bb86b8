"Delta tables: notes on what is written, versions that are put back, places that one writer can have."

import pytest

from dedup_nb.base.errors import FormatError, MissingInputError
from dedup_nb.formats.delta import Delta, is_conflict, is_no_delta_table, open_delta


@pytest.fixture(scope="module")
def written_table(spark, tmp_path_factory):
    "A table with two versions: three rows, and one of them replaced."
    made = Delta(spark, str(tmp_path_factory.mktemp("delta") / "events"))
    made.append(spark.range(3).coalesce(1), "the first")
    made.replace(spark.range(2, 3).coalesce(1), "id = 2", "the second")
    return made


def test_each_write_is_a_version_with_its_note(written_table):
    assert written_table.version() == 1 and written_table.commit_of("the first").version == 0
    assert [c.userMetadata for c in written_table.commits()] == ["the second", "the first"]
    assert written_table.commit_of("the first", after=0) is None
    assert sorted(r.id for r in written_table.at(0).collect()) == [0, 1, 2]


@pytest.mark.slow
def test_a_version_is_put_back(spark, tmp_path):
    table = Delta(spark, str(tmp_path / "events"))
    table.append(spark.range(1), "one")
    table.append(spark.range(1), "two")
    table.restore(0)
    assert table.rows().count() == 1 and table.version() == 2
    assert table.restore_words(0) == f"RESTORE TABLE {table.sql} TO VERSION AS OF 0"


def test_what_is_no_delta_table_is_named_with_what_is_near(spark, written_table, tmp_path):
    with pytest.raises(
        MissingInputError, match="Wanted the table .*evnts; it is not there. Did you mean even"
    ):
        open_delta(spark, written_table.name.replace("events", "evnts"), "table")
    spark.range(1).write.json(str(tmp_path / "lines"))
    with pytest.raises(FormatError, match="is a folder of other files; wanted a Delta table"):
        open_delta(spark, str(tmp_path / "lines"), "table")
    assert open_delta(spark, written_table.name, "table").version() == 1


def test_errors_of_delta_are_told_apart():
    assert is_conflict(Exception("[DELTA_CONCURRENT_APPEND] files were added"))
    assert is_no_delta_table(Exception("[PATH_DOES_NOT_EXIST] lake/events"))
    assert not is_conflict(OSError("the disk is full")) and not is_no_delta_table(OSError("the disk is full"))

"""Lines judged together: whatever Arrow calls an event is one. Lines are cut as Hadoop cuts them."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import line
from odd_lines import CELLS, odd_lines

from dedup_nb.formats.batches import InputFile
from dedup_nb.formats.blocks import TextPart, blocks_of, parts_of_text, surely_events
from dedup_nb.formats.enriched import decoded


def sure_ones(spark, lines):
    "How many lines Arrow calls an event; the exact way must say the same of each."
    sure = [not surely_events(line.encode() + b"\n")[1][0] for line in lines]
    rows = spark.createDataFrame(list(zip(lines, sure)), "value string, sure boolean")
    judged = decoded(rows).select("sure", "_dd_good").where("sure")
    assert judged.where("not _dd_good").isEmpty()
    return judged.count()


def test_what_arrow_calls_an_event_is_one(spark):
    odd = [line(**{name: cell}) for name, cells in CELLS.items() for cell in cells]
    assert 0 < sure_ones(spark, [*odd, *odd_lines(1500)]) < 1500


@pytest.mark.slow
def test_a_line_that_is_none_makes_few_others_doubtful():
    good, odd = [line(page_title=str(n)) for n in range(2000)], odd_lines(20)
    mixed = [*good[:1000], *odd, *good[1000:]]
    table, doubtful = surely_events("".join(f"{text}\n" for text in mixed).encode())
    alone = [surely_events(text.encode() + b"\n")[1][0] for text in mixed]
    assert table.num_rows == (~doubtful).sum() > 1900 and not any(~doubtful & alone)


@pytest.mark.soak
def test_of_100_000_broken_lines_none_is_called_an_event_that_is_none(spark):
    assert sure_ones(spark, odd_lines(100_000, seed=8))


@given(
    st.lists(st.sampled_from([b"a", b"\xef\xbb\xbf", b"\n", b"\r\n", b"\r", "é".encode()])), st.integers(1, 9)
)
def test_parts_of_any_size_have_each_line_once(tmp_path_factory, pieces, size):
    folder = tmp_path_factory.mktemp("lines")
    data = b"".join(pieces)
    (folder / "plain").write_bytes(data)
    (folder / "packed.gz").write_bytes(gzip.compress(data))
    parts = parts_of_text([InputFile(f"{folder}/plain", len(data))], size)
    found = b"".join(block for part in parts for piece in part for block in blocks_of(piece))
    assert found == b"".join(blocks_of(TextPart(f"{folder}/packed.gz", 0, 1)))
    if b"\xef" not in data and data:
        lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").removesuffix(b"\n").split(b"\n")
        assert found == b"".join(line + b"\n" for line in lines)

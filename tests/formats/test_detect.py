"How an input is stored: told by its first bytes, or refused in words."

import bz2
import gzip
import json
import lzma

import pytest
from inputs import JSON_LINE, MARK, found_in, line, parquet, write_lines

from dedup_nb import Config, run
from dedup_nb.base.config import Input
from dedup_nb.base.errors import ConfigError, FormatError, InputError
from dedup_nb.formats.detect import check_format, find_input, format_of, shown_format

STARTS = {
    "tsv": (line().encode(), "enriched_tsv"),
    "tsv with a mark": (MARK + line().encode(), "enriched_tsv"),
    "json": (JSON_LINE, "json"),
    "json with a mark": (MARK + JSON_LINE, "json"),
    "json after empty lines": (b"\n\n  " + JSON_LINE, "json"),
    "parquet": (b"PAR1\x15\0...", "parquet"),
    "orc": (b"ORC\n\0...", "ORC"),
    "avro": (b"Obj\x01...", "Avro"),
    "zip": (b"PK\x03\x04...", "a zip archive"),
    "zstd": (b"\x28\xb5\x2f\xfd...", "compressed with zstd"),
    "empty": (b"", None),
    "text": (b"nothing in particular\n", None),
    "a bad line": (line().encode() + b"\t", None),
    "tsv like orc": (line(app_id="ORCID-web").encode(), "enriched_tsv"),
    "tsv like parquet": (line(app_id="PAR1S").encode(), "enriched_tsv"),
    "tsv like orc after a bad line": (b"ORCID\n" + line().encode(), None),
    "parquet of lines": (b"PAR1\x15\0" + line().encode() + b"\n", "parquet"),
    "tsv after a line of json": (JSON_LINE + line().encode(), None),
    "csv like orc": (b"ORCID,event_id\n1,a\n", None),
    "zstd with a line feed": (b"\x28\xb5\x2f\xfd\n...", "compressed with zstd"),
}


@pytest.mark.parametrize("start, kind", STARTS.values(), ids=STARTS)
def test_a_format_is_told_by_its_beginning(start, kind):
    assert format_of(start) == kind


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize(
    "content, wanted, said",
    [
        (
            "parquet",
            "enriched_tsv",
            "is Parquet, but input_format is enriched_tsv. Set --input-format parquet",
        ),
        (
            "parquet",
            "json",
            "is Parquet, but input_format is json. Set --input-format parquet, and another --output if",
        ),
        ("json", "enriched_tsv", "is JSON, but input_format is enriched_tsv. Set --input-format json"),
        ("json", "parquet", "is JSON, but input_format is parquet. Set --input-format json"),
        ("tsv", "json", "is enriched TSV, but input_format is json. Set --input-format enriched_tsv"),
        ("tsv", "parquet", "is enriched TSV, but input_format is parquet. Set --input-format enriched_tsv"),
        ("text", "parquet", "is text, but input_format is parquet. Store it as text, gzip or Parquet"),
        (
            "orc",
            "enriched_tsv",
            "is ORC, but input_format is enriched_tsv. Store it as text, gzip or Parquet",
        ),
        ("avro", "json", "is Avro, but input_format is json. Store it"),
        ("zip", "enriched_tsv", "is a zip archive, but input_format is enriched_tsv. Store it"),
        ("zstd", "enriched_tsv", "is compressed with zstd, but input_format is enriched_tsv. Store it"),
        ("tsv", "enriched_tsv", None),
        ("json", "json", None),
        ("parquet", "parquet", None),
        ("text", "enriched_tsv", None),
        ("text", "json", None),
        ("tsv like orc", "enriched_tsv", None),
        ("tsv after a line of json", "enriched_tsv", None),
        ("tsv after a line of json", "json", None),
        ("tsv after a line of json", "parquet", "is text, but input_format is parquet. Store it"),
        ("empty", "enriched_tsv", None),
    ],
)
def test_a_wrong_format_is_named_with_the_right_setting(tmp_path, content, wanted, said, packed):
    path = write_lines(tmp_path / "in" / f"b{packed}", STARTS[content][0])
    write_lines(tmp_path / "in" / f"a{packed}", STARTS[content][0])
    [batch] = found_in(tmp_path / "in").batches
    if not said:
        return check_format(batch, wanted)
    with pytest.raises(FormatError) as wrong:
        check_format(batch, wanted)
    assert f"{path.parent}/a{packed} {said}" in str(wrong.value) and "Nothing was written" in str(wrong.value)


@pytest.mark.parametrize(
    "name, pack, said",
    [
        (
            "a.gzip",
            gzip.compress,
            "is gzip, and Spark unpacks only names that end in .gz. Rename the file so",
        ),
        ("a.json.GZ", gzip.compress, "is gzip, and Spark unpacks only names that end in .gz. Rename"),
        ("a", bz2.compress, "is bzip2, and Spark unpacks only names that end in .bz2. Rename the file so"),
        (
            "a.gz",
            bz2.compress,
            "is not gzip, and Spark unpacks all names that end in .gz. Rename the file wi",
        ),
        ("a.json.gz", bytes, "is not gzip, and Spark unpacks all names that end in .gz. Rename the file wi"),
        (
            "a.bz2",
            bytes,
            "is not bzip2, and Spark unpacks all names that end in .bz2. Rename the file without",
        ),
        ("a.xz", lzma.compress, "is compressed with xz, but input_format is json. Store it as text, gzip or"),
        ("a.gz", gzip.compress, None),
        ("a.bz2", bz2.compress, None),
        ("a.gzip", bytes, None),
    ],
)
def test_lines_that_are_packed_otherwise_than_their_name_says_are_refused(tmp_path, name, pack, said):
    (tmp_path / name).write_bytes(pack(JSON_LINE))
    [batch] = found_in(tmp_path / name).batches
    if not said:
        return check_format(batch, "json")
    with pytest.raises(FormatError) as wrong:
        check_format(batch, "json")
    assert f"{tmp_path}/{name} {said}" in str(wrong.value)


@pytest.mark.parametrize("odd", [0, 5, 9])
def test_one_file_of_another_format_at_either_end_or_in_the_middle_is_found(tmp_path, odd):
    for i in range(10):
        write_lines(tmp_path / "in" / f"part-{i}", JSON_LINE if i == odd else line())
    [batch] = found_in(tmp_path / "in").batches
    with pytest.raises(FormatError, match=f"part-{odd} is JSON"):
        check_format(batch, "enriched_tsv")


@pytest.mark.parametrize("there", ["nothing", "a folder"])
def test_a_file_that_cannot_be_opened_any_more_is_named(tmp_path, there):
    path = write_lines(tmp_path / "in" / "a.tsv", line())
    [batch] = found_in(tmp_path / "in").batches
    path.unlink()
    if there == "a folder":
        path.mkdir()
    with pytest.raises(InputError, match=r"a.tsv cannot be opened, though .*: .*run the batch again"):
        check_format(batch, "enriched_tsv")


# --- nobody named it ---------------------------------------------------------------------------------------


def write_files(folder, files):
    for name, content in files.items():
        (folder / name).write_bytes(content)


INPUTS = {
    "events": ({"a.tsv": line().encode(), "b": b"oops\n" + line().encode()}, "enriched_tsv"),
    "json": ({"a.txt": b"oops\n" + JSON_LINE, "b": JSON_LINE}, "json"),
    "json, packed": ({"a.json.gz": gzip.compress(JSON_LINE)}, "json"),
    "json behind an empty pack": ({"a.gz": gzip.compress(b"") + gzip.compress(JSON_LINE * 99)}, "json"),
    "json behind another empty pack": ({"a.bz2": bz2.compress(b"") + bz2.compress(JSON_LINE)}, "json"),
    "bzip2 by its name": ({"a.jsonl.bz2": bz2.compress(JSON_LINE)}, "json"),
    "csv": ({"a": b"order id,amount\n1,2\n"}, "csv"),
    "csv with quotes, semicolons, a mark": ({"a.txt": MARK + b'"id";"n, m"\r\n1;2\r\n'}, "csv"),
    "csv by its name": ({"a.CSV": b"2026-11-20,5\n"}, "csv"),
    "csv with odd names": ({"a": "größe,amount (EUR),$set,2nd\n1,2,3,4\n".encode()}, "csv"),
    "events in bzip2": ({"a.bz2": bz2.compress((line() + "\n").encode() * 3000)}, "enriched_tsv"),
    "an empty file beside": ({"a": b"", "b": JSON_LINE}, "json"),
    "files that say nothing beside": (
        {"a.gz": gzip.compress(b""), "b": b"a line\n", "c": line().encode()},
        "enriched_tsv",
    ),
    "nothing but empty files": ({"a": b""}, "auto"),
}


@pytest.mark.parametrize("files, shown", INPUTS.values(), ids=INPUTS)
def test_the_files_say_their_format_where_nobody_does(tmp_path, files, shown):
    write_files(tmp_path, files)
    config, found = find_input(Config(input=str(tmp_path)))
    assert config.input_format == shown and found.batches
    named, _ = find_input(Config(input=str(tmp_path), input_format="csv"))
    assert named.input_format == "csv"


UNTOLD = {
    "two formats": (
        {"a": line().encode(), "b": JSON_LINE},
        "has files of several formats: .*a is enriched TSV",
    ),
    "prose": (
        {"a.log": b"hello\nworld\n"},
        "a.log begins like no format: wanted enriched TSV .*--input-format",
    ),
    "Avro": ({"a": b"Obj\x01..."}, "a is Avro. Store it as text"),
}


@pytest.mark.parametrize("files, said", UNTOLD.values(), ids=UNTOLD)
def test_files_that_do_not_say_it_are_named(tmp_path, files, said):
    write_files(tmp_path, files)
    with pytest.raises(FormatError, match=said):
        shown_format(Input(str(tmp_path), "auto"), found_in(tmp_path).batches)


def test_parquet_and_delta_are_told_apart(tmp_path):
    parquet(tmp_path / "in" / "a.parquet", event_id=["a"])
    assert find_input(Config(input=str(tmp_path / "in")))[0].input_format == "parquet"
    (tmp_path / "in" / "_delta_log").mkdir()
    config, found = find_input(Config(input=str(tmp_path / "in")))
    assert config.input_format == "delta" and [b.batch_id for b in found.batches] == ["in"]


def test_what_the_files_say_is_checked_like_what_people_say(tmp_path):
    (tmp_path / "a.tsv").write_text(line())
    with pytest.raises(ConfigError, match="enriched_tsv has fixed columns"):
        find_input(Config(input=str(tmp_path), event_id="order"))


@pytest.mark.slow
def test_an_output_keeps_to_the_format_of_its_batches(spark, tmp_path, said):
    source, rows = tmp_path / "in", [{"event_id": i, "n": 1} for i in "aab"]
    write_lines(source / "run=1" / "a", "\n".join(map(json.dumps, rows)))
    config = Config(input=str(source), output=str(tmp_path / "out"))
    [first] = run(config, spark).batches
    assert any("The files are JSON: input_format=json" in line for line in said)
    assert first["counts"]["kept"] == 2 and first["settings"]["input_format"] == "json"
    (source / "run=1" / "a").unlink()
    (source / "run=1").rmdir()
    write_lines(source / "run=2" / "a")
    write_lines(source / "run=3" / "a", "oops\n" + json.dumps(rows[0]))
    second, third = run(config, spark).batches
    assert second["counts"]["read"] == 0 and third["counts"]["bad"] == third["counts"]["dropped"] == 1


def test_a_first_batch_without_a_byte_waits_for_one_that_says_its_format(spark, tmp_path):
    write_lines(tmp_path / "in" / "run=1" / "a")
    summary = run(Config(input=str(tmp_path / "in"), output=str(tmp_path / "out"), manifest="none"), spark)
    assert not summary.batches and "left for a later run: 1" in summary.notes[0]

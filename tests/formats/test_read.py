"What is read: addresses, batches, formats told apart, lines, JSON, Parquet, Delta folders, tables."

import bz2
import gzip
import json
import lzma
import random
from datetime import datetime, timezone
from decimal import Decimal

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from spread import configured

from dedup_nb.base.config import Input, Limits, Recipe
from dedup_nb.base.errors import ConfigError, FormatError, InputError, MissingColumnError, MissingInputError
from dedup_nb.base.storage import absolute, canonical, filesystem, is_inside, loader_url
from dedup_nb.formats.batches import Batch, InputFile, find_batches, is_asked_for, late_id
from dedup_nb.formats.enriched import NAMES
from dedup_nb.formats.reading import check_format, explain_read_error, format_of, read_batch, wrong_line
from dedup_nb.rules.keys import ids_of

ID = "83c1293c-9788-5607-a11c-f291161a7a5a"
MARK = b"\xef\xbb\xbf"  # what some editors put at the beginning of a file
# far from UTC, forgiving casts: nothing that is read may depend on them
ELSEWHERE = {"spark.sql.session.timeZone": "Asia/Tokyo", "spark.sql.ansi.enabled": "false"}


def line(**cells):
    "An enriched event; cells not named are empty but for the required ones."
    required = {
        "event_id": ID,
        "collector_tstamp": "2026-11-20 10:00:00.001",
        "v_collector": "c",
        "v_etl": "e",
    }
    assert set(cells) <= set(NAMES)
    return "\t".join((required | cells).get(name, "") for name in NAMES)


def write(path, *lines, end="\n"):
    "Write lines (text or bytes); packed if the name ends with .gz."
    data = b"".join((x if isinstance(x, bytes) else x.encode()) + end.encode() for x in lines)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def parquet(path, **columns):
    "Write columns as a Parquet file."
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def found_in(path, batch_id=None, **place):
    return find_batches(Input(str(path), **place), batch_id)


def ids(path, batch_id=None, **place):
    return [b.batch_id for b in found_in(path, batch_id, **place).batches]


def opened(spark, path, batch_id=None, recipe=Recipe(), **place):
    [batch] = found_in(path, batch_id, **place).batches
    return read_batch(spark, batch, Input(str(path), **place), recipe, ids_of(recipe))


def good_rows(source, *columns):
    rows = source.decode(source.raw).where("_dd_good")
    return rows.select(*(columns or [f"`{c}`" for c in source.columns])).collect()


def bad_rows(source):
    return [json.loads(r.value)["data"] for r in source.bad(source.raw).collect()]


# --- addresses ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path, inner",
    [("/data/x", "/data/x"), ("file:/d/x", "/d/x"), ("file:///d/x", "/d/x"), ("dbfs:/mnt/x", "/dbfs/mnt/x")],
)
def test_local_addresses_open_the_local_file_system(path, inner):
    assert filesystem(path) == (pafs.LocalFileSystem(), inner)


def test_relative_paths_become_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert filesystem("x")[1] == absolute("x") == f"{tmp_path}/x"


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_s3_addresses_open_s3_whatever_their_spelling(monkeypatch, scheme):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    fs, inner = filesystem(f"{scheme}://bucket/folder/")
    assert fs.type_name == "s3" and inner == "bucket/folder"


def test_an_unknown_scheme_names_the_known_ones():
    words = r"s3x://b/x: wanted .*s3a:.*; found s3x:\. Did you mean s3\w?\?"
    with pytest.raises(InputError, match=words):
        filesystem("s3x://b/x")


@pytest.mark.parametrize(
    "path, folder, inside",
    [
        ("s3a://b/in/out", "s3://b/in/", True),
        ("s3n://b//in", "s3a://b/in", True),
        ("s3://b/input", "s3://b/in", False),
        ("file:/in/out", "/in", True),
        ("/in/../out", "file:///in", False),
        ("/dbfs/in/x", "dbfs:/in", True),
        ("dbfs:/in", "/in", False),
        ("gs://b/in/x", "s3://b/in", False),
    ],
)
def test_a_place_is_inside_a_folder_however_the_two_are_spelled(path, folder, inside):
    assert is_inside(path, folder) is inside
    assert (canonical(path) == canonical(folder)) is (path == "s3n://b//in")


@pytest.mark.parametrize(
    "path, url",
    [
        ("s3a://b/x", "s3://b/x"),
        ("s3n://b/x", "s3://b/x"),
        ("gs://b/x", "gs://b/x"),
        ("dbfs:/x", "dbfs:/x"),
        ("file:/x", "file:///x"),
        ("/x/y", "file:///x/y"),
    ],
)
def test_a_loader_gets_addresses_that_it_knows(path, url):
    assert loader_url(path) == url


# --- batches -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "files, pattern, expected",
    [
        (["run=2026-11-20/b", "run=2026-11-19/deep/er/a"], "run=*", ["2026-11-19", "2026-11-20"]),
        (
            ["dt=20/hour=02/a", "dt=20/hour=10/a", "dt=19/hour=23/a"],
            "dt=*/hour=*",
            ["19_23", "20_02", "20_10"],
        ),
        (["run=1/part-0", "run=1/_SUCCESS", "run=1/.part.crc", "_tmp/run=2/x"], "run=*", ["1"]),
        (["sub/a.tsv", "b.tsv"], "run=*", ["events"]),
        (["x-1/a", "x-2/a"], "x-*", ["1", "2"]),
    ],
    ids=["oldest first", "several levels", "hidden names", "no folders", "another pattern"],
)
def test_folders_that_match_are_batches(tmp_path, files, pattern, expected):
    for name in files:
        write(tmp_path / "events" / name, "x")
    assert ids(tmp_path / "events", batch_pattern=pattern) == expected


def test_a_batch_knows_its_files_with_their_size(tmp_path):
    path = write(tmp_path / "run=1" / "deep" / "a", "12345")
    write(tmp_path / "run=1" / "_SUCCESS")
    [batch] = found_in(tmp_path).batches
    [file] = batch.files
    assert (file.path, file.size, batch.bytes, batch.source) == (str(path), 6, 6, str(tmp_path / "run=1"))
    assert batch.by_path() == {"deep/a": file}


def test_the_users_scheme_is_kept(tmp_path):
    write(tmp_path / "run=1" / "a", "x")
    [batch] = found_in(f"file:{tmp_path}").batches
    assert batch.files[0].path == f"file://{tmp_path}/run=1/a"


@pytest.mark.parametrize(
    "path, place, batch_id",
    [
        ("run=2026-11-20", {}, "2026-11-20"),
        ("run=2026-11-20/", {}, "2026-11-20"),
        ("run=2026-11-20/a.tsv.gz", {}, "a"),
        ("dt=20/hour=05", {"batch_pattern": "dt=*/hour=*"}, "20_05"),
        ("no/folders", {}, "folders"),
    ],
)
def test_an_input_that_is_one_batch_is_named_by_its_path(tmp_path, path, place, batch_id):
    for name in ("run=2026-11-20/a.tsv.gz", "dt=20/hour=05/a", "no/folders/x.tsv"):
        write(tmp_path / name, "x")
    assert ids(f"{tmp_path}/{path}", **place) == [batch_id]
    assert ids(tmp_path / "no" / "folders", "mine") == ["mine"]


def test_a_given_batch_id_picks_that_folder(tmp_path):
    for day in (19, 20):
        write(tmp_path / f"run=2026-11-{day}" / "a", "x")
    assert ids(tmp_path, "2026-11-19") == ["2026-11-19"]
    words = "Wanted batch 2026-11-2; .* has 2026-11-19, 2026-11-20.* Did you mean 2026-11-20"
    with pytest.raises(MissingInputError, match=words):
        ids(tmp_path, "2026-11-2")


@pytest.mark.parametrize("path, batch_id", [("lake.web.events", "events"), ("`a b`.`events`", "events")])
def test_a_table_is_one_batch(path, batch_id):
    assert found_in(path, format="table").batches == (Batch(batch_id, (), path),)


def test_files_beside_the_batch_folders_are_said(tmp_path):
    for name in ("run=1/a", "stray-1.tsv", "other/stray-2.tsv"):
        write(tmp_path / name, "x")
    [note] = found_in(tmp_path).notes
    assert note.startswith("2 files lie beside the batch folders (run=*), in no batch; the first is ")
    assert note.endswith("other/stray-2.tsv")


@pytest.mark.parametrize(
    "folders, pattern",
    [
        (["dt=20/hour=02", "dt=20/hour=10"], "dt=*/hour=*"),
        (["date=2026-11-20"], "date=*"),
        (["dt=20/plain"], None),
        (["a", "b"], None),
    ],
)
def test_folders_that_look_like_batches_by_another_pattern_are_said(tmp_path, folders, pattern):
    for name in folders:
        write(tmp_path / "in" / name / "a", "x")
    found = found_in(tmp_path / "in")
    assert [b.batch_id for b in found.batches] == ["in"]
    expected = (
        f"the folders of {tmp_path}/in look like {pattern}, and are taken as one batch, in; "
        f"for a batch each: --batch-pattern '{pattern}'"
    )
    assert found.notes == ((expected,) if pattern else ())


def test_a_missing_path_names_what_is_there(tmp_path):
    (tmp_path / "events").mkdir()
    with pytest.raises(MissingInputError) as wrong:
        ids(tmp_path / "evnets" / "run=1")
    for words in (f"{tmp_path} has events", "Did you mean events?", "--input"):
        assert words in str(wrong.value)


def test_a_missing_setting_is_said():
    with pytest.raises(ConfigError, match="--input"):
        find_batches(Input(""))


@pytest.mark.parametrize("name", ["a b", "-x", "a'b", "ü;", "x" * 181, "1~2x", "1~"])
def test_an_unfit_folder_is_named_and_the_others_go_on(tmp_path, name):
    for folder in ("run=1", f"run={name}"):
        write(tmp_path / folder / "a", "x")
    found = found_in(tmp_path)
    assert [b.batch_id for b in found.batches] == ["1"]
    assert f"run={name}: {name!r} cannot name a batch: " in found.unfit[0]
    with pytest.raises(InputError, match="cannot name a batch"):
        ids(tmp_path, name)


@pytest.mark.parametrize("name", ["1+1", "a@b", "2026-11-20_13", "x" * 180])
def test_a_folder_name_cannot_be_taken_for_late_files(tmp_path, name):
    write(tmp_path / f"run={name}" / "a", "x")
    assert ids(tmp_path) == [name]
    write(tmp_path / "run=1~1" / "a", "x")
    found = found_in(tmp_path)
    assert [b.batch_id for b in found.batches] == [name] and "'1~1' cannot name a batch" in found.unfit[0]
    assert late_id("1", 1) == "1~1"


def test_two_folders_with_one_id_are_both_left_out(tmp_path):
    for name in ("a=1_2/b=3/f", "a=1/b=2_3/f", "a=9/b=9/f"):
        write(tmp_path / name, "x")
    found = found_in(tmp_path, batch_pattern="a=*/b=*")
    assert [b.batch_id for b in found.batches] == ["9_9"]
    assert "would both be batch 1_2_3" in found.unfit[0]


@pytest.mark.parametrize(
    "limits, asked_for",
    [
        ({}, ["1-18", "1-19", "1-19~1", "2-01"]),
        ({"since": "1-19"}, ["1-19", "1-19~1", "2-01"]),
        ({"until": "1"}, ["1-18", "1-19", "1-19~1"]),
        ({"since": "1-19", "until": "1-19"}, ["1-19", "1-19~1"]),
        ({"batch_id": "1-19"}, ["1-19", "1-19~1"]),
        ({"batch_id": "1-19~1"}, ["1-19~1"]),
        ({"skip_batches": ("1-19", "2-01")}, ["1-18", "1-19~1"]),
    ],
)
def test_limits_let_batches_through_as_far_as_they_are_written(limits, asked_for):
    batches = ["1-18", "1-19", "1-19~1", "2-01"]
    assert [b for b in batches if is_asked_for(b, Limits(**limits))] == asked_for


# --- formats told apart ------------------------------------------------------------------------------------

JSON_LINE = b'{"event_id":"a"}\n'
STARTS = {
    "tsv": (line().encode(), "enriched_tsv"),
    "tsv with a mark": (MARK + line().encode(), "enriched_tsv"),
    "json": (JSON_LINE, "json"),
    "json with a mark": (MARK + JSON_LINE, "json"),
    "json after empty lines": (b"\n\n  " + JSON_LINE, "json"),
    "parquet": (b"PAR1...", "parquet"),
    "orc": (b"ORC...", "ORC"),
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
        ("parquet", "json", "is Parquet, but input_format is json. Set --input-format parquet"),
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
    path = write(tmp_path / "in" / f"b{packed}", STARTS[content][0])
    write(tmp_path / "in" / f"a{packed}", STARTS[content][0])
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
        write(tmp_path / "in" / f"part-{i}", JSON_LINE if i == odd else line())
    [batch] = found_in(tmp_path / "in").batches
    with pytest.raises(FormatError, match=f"part-{odd} is JSON"):
        check_format(batch, "enriched_tsv")


@pytest.mark.parametrize("there", ["nothing", "a folder"])
def test_a_file_that_cannot_be_opened_any_more_is_named(tmp_path, there):
    path = write(tmp_path / "in" / "a.tsv", line())
    [batch] = found_in(tmp_path / "in").batches
    path.unlink()
    if there == "a folder":
        path.mkdir()
    with pytest.raises(InputError, match=r"a.tsv cannot be opened, though .*: .*run the batch again"):
        check_format(batch, "enriched_tsv")


@pytest.mark.parametrize("wanted", ["parquet", "enriched_tsv", "json"])
def test_a_delta_table_is_not_read_as_the_files_that_lie_in_it(spark, tmp_path, wanted):
    write(tmp_path / "t" / "_delta_log" / "00000000000000000000.json", "{}")
    parquet(tmp_path / "t" / "part-0.parquet", event_id=["deleted long ago"])
    with pytest.raises(FormatError, match="is a Delta table, .* Set --input-format delta"):
        opened(spark, tmp_path / "t", format=wanted)


# --- lines of enriched events ------------------------------------------------------------------------------

GOOD_FILES = {  # name -> how the file is written; each has one event, which names the file in its title
    "a.tsv": lambda event: event + b"\n",
    "b.tsv.gz": lambda event: gzip.compress(event + b"\n"),
    "c.tsv": lambda event: event + b"\r\n",
    "d.tsv.gz": lambda event: gzip.compress(event + b"\r\n"),
    "e.tsv": lambda event: event,
    "f.tsv": lambda event: MARK + event + b"\n",
    "g.tsv.gz": lambda event: gzip.compress(MARK + event + b"\n"),
    "a[1].tsv": lambda event: event,
    "b{x,y}*.tsv": lambda event: event,
    "c d%20.tsv": lambda event: event,
    "é.tsv": lambda event: event,
}
BAD_LINES = [b"", b"x", b"a\tb", b"bad\xff", b"\t" * 100_000]
LONG = "x" * 10_000_000


@pytest.fixture(scope="module")
def lines_read(spark, tmp_path_factory):
    "All odd files of lines in one folder, read once: the good rows by title, and the bad rows."
    folder = tmp_path_factory.mktemp("lines")
    for name, written in GOOD_FILES.items():
        (folder / name).write_bytes(written(line(page_title=name, app_id="shop").encode()))
    write(folder / "bad.tsv", *BAD_LINES)
    write(folder / "bad.tsv.gz", *BAD_LINES, end="\r\n")
    odd = line(page_title="@ and odd", app_id="a\0b").encode().replace(b"@", b"\xff\xe2\x82")
    write(folder / "odd.tsv", odd, line(page_title=LONG))
    for name in ("empty.tsv", "empty.tsv.gz", "_SUCCESS"):
        write(folder / name)
    with configured(spark, ELSEWHERE):
        source = opened(spark, folder, "x")
        write(folder / "late.tsv", line(page_title="late"))
        good = good_rows(source, "page_title", "app_id", "collector_tstamp", "true_tstamp")
        return {r.page_title: r for r in good}, bad_rows(source)


@pytest.mark.parametrize("name", GOOD_FILES)
def test_a_file_of_lines_is_read_whatever_its_name_packing_and_line_end(lines_read, name):
    row = lines_read[0][name]
    assert (row.app_id, row.true_tstamp) == ("shop", None)
    assert row.collector_tstamp.microsecond == 1000


def test_a_file_that_comes_later_is_in_no_scan(lines_read):
    assert "late" not in lines_read[0] and len(lines_read[0]) == len(GOOD_FILES) + 2


def test_invalid_utf8_becomes_replacement_characters_and_nul_passes(lines_read):
    assert lines_read[0]["\ufffd\ufffd and odd"].app_id == "a\0b"
    assert [b["payload"] for b in lines_read[1]].count("bad\ufffd") == 2


def test_a_line_of_10_mb_is_an_event_like_any_other(lines_read):
    assert LONG in lines_read[0]


def test_every_line_that_is_no_event_is_a_bad_row(lines_read):
    found = sorted(
        (b["payload"], b["failure"]["type"], b["failure"].get("fieldCount")) for b in lines_read[1]
    )
    kinds = {1: ("NotTSV", None)}
    texts = [x.decode(errors="replace") for x in BAD_LINES]
    fields = [t.count("\t") + 1 for t in texts]
    expected = [(t, *kinds.get(n, ("FieldNumberMismatch", n))) for t, n in zip(texts, fields)]
    assert found == sorted(2 * expected)


@pytest.mark.parametrize("kind", ["enriched_tsv", "json", "parquet"])
def test_an_empty_folder_is_a_batch_without_rows(spark, tmp_path, kind):
    source = opened(spark, tmp_path, format=kind)
    assert source.raw.isEmpty() and "event_id" in source.columns and not source.folders
    assert source.decode(source.raw).columns[: len(source.columns)] == source.columns
    assert source.bad(source.raw).columns == ["value"]


def test_lines_of_zstd_are_refused_before_anything_is_read(spark, tmp_path):
    write(tmp_path / "a.tsv.zst", STARTS["zstd"][0])
    with pytest.raises(FormatError, match="a.tsv.zst is compressed with zstd.*Store it as text, gzip"):
        opened(spark, tmp_path)


def test_a_truncated_file_fails_and_is_named(spark, tmp_path):
    rng = random.Random(1)
    lines = [line(page_title="%0200x" % rng.getrandbits(800)) for _ in range(500)]
    write(tmp_path / "part-0.tsv.gz", line())
    broken = write(tmp_path / "part-1.tsv.gz", *lines)
    broken.write_bytes(broken.read_bytes()[:-2000])
    [batch] = found_in(tmp_path, "x").batches
    source = read_batch(spark, batch, Input(str(tmp_path)), Recipe(), ids_of(Recipe()))
    with pytest.raises(Exception) as wrong:
        source.raw.count()
    explained = explain_read_error(wrong.value, batch)
    assert isinstance(explained, InputError) and str(broken) in str(explained)
    assert "Nothing was committed" in str(explained)


@pytest.mark.parametrize(
    "text, said",
    [
        ("No space left on device", None),
        ("[FAILED_READ_FILE] /out/.staging/batch_id=x/keys/part-7.parquet", None),
        ("[FAILED_READ_FILE] file:///in/part-1", "/in/part-1 cannot be read to its end"),
        ("[FAILED_READ_FILE] file:///in/part-10", "/in/part-10 cannot be read to its end"),
        ("java.io.EOFException: Unexpected end of input stream", "one of 2 files of /in cannot be read"),
        ("[PATH_NOT_FOUND] file:/in/part-1", "/in is not there"),
    ],
)
def test_an_error_of_spark_is_explained_if_it_is_about_the_input(text, said):
    batch = Batch("x", (InputFile("/in/part-1", 1), InputFile("/in/part-10", 1)), "/in")
    found = explain_read_error(RuntimeError(text), batch)
    assert (said in str(found)) if said else found is None


WRITES = "[TASK_WRITE_FAILED] Task failed while writing rows to file:/out/.staging/x/ids."


@pytest.mark.parametrize(
    "text, said",
    [
        ("[FAILED_READ_FILE] a broken file /out/.staging/x/keys/part-1.parquet", None),
        ("[FAILED_READ_FILE] file:/out/events/batch_id=1/1", None),
        (f"{WRITES} [FAILED_READ_FILE] file:///lake/in/a", None),
        (f"{WRITES} [FAILED_READ_FILE] file:///in/a", "/in/a cannot be read to its end"),
        (f"{WRITES} [FAILED_READ_FILE] file:///in/batch_id=2/%C3%A9%201", "/in/batch_id=2/é 1 cannot be"),
        ("java.io.EOFException: a broken file, at Gzip.java:1", "one of 3 files of /in cannot be read"),
        ("[PATH_NOT_FOUND] file:/inbox/a", None),
    ],
)
def test_a_short_name_of_a_file_is_not_found_in_every_error(text, said):
    files = [InputFile(f"file:///in/{name}", 1) for name in ("1", "a", "batch_id=2/é 1")]
    found = explain_read_error(RuntimeError(text), Batch("x", tuple(files), "/in"))
    assert (said in str(found)) if said else found is None


# --- JSON lines --------------------------------------------------------------------------------------------

NO_JSON = "The line is not a JSON object with the types of these columns"
SEVERAL = (
    "The line holds several JSON objects, as Firehose writes them; wanted one a line. "
    "Write the file anew with jq -c . FILE"
)
ARRAY = "The line is an array of JSON objects; wanted one a line. Write the file anew with jq -c .[] FILE"
TWICE = "An object of the line has a key twice"
NO_ID = "Field event_id cannot be empty"
JSON_LINES = [  # line -> the row, or what is wrong with it; None: an empty line is no line
    ('{"event_id":"A","tags":["x"],"m":{"k":{"n":1}},"value":"v"}', ("A", ["x"], 1, "v", None)),
    ('{"event_id":"t","at":"2026-11-20T10:00:00"}', ("t", None, None, None, "10:00")),
    ('{"event_id":"z","at":"2026-11-20T10:00:00+09:00"}', ("z", None, None, None, "01:00")),
    ('{"event_id":"d"}  \t', ("d", None, None, None, None)),
    (
        '{"event_id":"dot","value":"[1],[2]","more":{"not":["asked","for"]}}',
        ("dot", None, None, "[1],[2]", None),
    ),
    ("", None),
    ("  \t ", None),
    ('{"event_id":"","tags":null}', NO_ID),
    ('{"tags":["y"]}', NO_ID),
    ('{"event_id":"b"', NO_JSON),
    ("[1]", ARRAY),
    ('"text"', NO_JSON),
    ("nothing at all", NO_JSON),
    ('{"event_id":"c","tags":"no array"}', NO_JSON),
    ('{"event_id":"e"}{"event_id":"f"}', SEVERAL),
    ('{"event_id":"g"},{"event_id":"h"}', SEVERAL),
    ('{"event_id":"m","event_id":"n"}', TWICE),
    ('{"event_id":"m","m":{"k":{"n":1,"n":2}}}', TWICE),
    ('{"event_id":"i"} x', NO_JSON),
    ('{"event_id":"j"}],[{"event_id":"k"}', NO_JSON),
    ('{"event_id":"l\xff', NO_JSON),
]
JSON_SCHEMA = "event_id string, tags array<string>, m struct<k: struct<n: int>>, value string, at timestamp"


@pytest.fixture(scope="module")
def json_read(spark, tmp_path_factory):
    "All odd JSON lines in one folder, read once: the good rows by id, and the bad rows by line."
    folder = tmp_path_factory.mktemp("json")
    half = len(JSON_LINES) // 2
    write(folder / "a.json", MARK + JSON_LINES[0][0].encode(), *(text for text, _ in JSON_LINES[1:half]))
    write(folder / "b.json.gz", *(text for text, _ in JSON_LINES[half:]), end="\r\n")
    write(folder / "empty.json")
    with configured(spark, ELSEWHERE):
        source = opened(spark, folder, format="json", schema=JSON_SCHEMA)
        rows = (
            source.decode(source.raw).where("_dd_good").selectExpr("*", "unix_seconds(at) as at_s").collect()
        )
        good = {r.event_id: r for r in rows}
        return good, {b["payload"]: b["failure"] for b in bad_rows(source)}, source.raw.count()


@pytest.mark.parametrize("text, expected", JSON_LINES, ids=[repr(text)[:40] for text, _ in JSON_LINES])
def test_json_columns_pass_untouched_and_lines_that_do_not_fit_are_bad(json_read, text, expected):
    good, bad, _ = json_read
    if not isinstance(expected, tuple):
        assert bad.get(text, {"errors": None})["errors"] == (expected and [expected])
        return
    row = good[expected[0]]
    assert (row.event_id, row.tags, row.m and row.m.k.n, row.value) == expected[:4]
    at = row.at_s and datetime.fromtimestamp(row.at_s, timezone.utc).strftime("%H:%M")
    assert at == expected[4]


def test_no_json_line_is_in_two_places_or_in_none(json_read):
    good, bad, read = json_read
    filled = [text for text, expected in JSON_LINES if expected]
    assert read == len(filled) == len(good) + len(bad)
    assert {f["timestamp"] for f in bad.values()} == {"1970-01-01T00:00:00Z"}


def test_json_files_with_other_columns_are_merged_by_name(spark, tmp_path):
    write(tmp_path / "a.json", '{"event_id":"a","n":1,"o":{"x":1},"nothing":null,"l":[]}')
    write(
        tmp_path / "b.json",
        '{"event_id":"b","n":2.5,"o":{"y":"t"},"more":true,"nothing":null,"l":[1]}',
        "{no",
    )
    source = opened(spark, tmp_path, format="json", where="n > 1")
    assert {f.name: f.dataType.simpleString() for f in source.schema} == {
        "event_id": "string",
        "l": "array<bigint>",
        "n": "double",
        "nothing": "string",
        "o": "struct<x:bigint,y:string>",
        "more": "boolean",
    }
    assert [(r.event_id, r.n) for r in good_rows(source)] == [("b", 2.5)]
    assert [b["payload"] for b in bad_rows(source)] == ["{no"]


def test_json_files_that_disagree_are_named_and_a_schema_settles_it(spark, tmp_path):
    write(tmp_path / "a.json", '{"event_id":"a","o":{"n":1}}')
    other = write(tmp_path / "b.json", '{"event_id":"b","o":{"n":"one"}}')
    with pytest.raises(InputError) as wrong:
        opened(spark, tmp_path, format="json")
    assert f"Column o.n is string in {other}, and bigint in the files before it. Set input_schema" in str(
        wrong.value
    )
    source = opened(spark, tmp_path, format="json", schema="event_id string, o struct<n: string>")
    assert {r.o.n for r in good_rows(source)} == {"1", "one"}


@pytest.mark.parametrize(
    "text, place, said",
    [
        (
            '{"event_id":"a"}',
            {"schema": "event_id strnig"},
            "input_schema is not a list of columns.*event_id strnig",
        ),
        (
            '{"event_id":"a","A":1,"a":2}',
            {},
            "columns that differ only in case: A, a. Rename one upstream",
        ),
        ('{"eventid":"a"}', {}, "needs event_id; the input has eventid.*event_id: Did you mean eventid"),
        ('{"event_id":"a"}', {"where": "m > 1"}, "input_where = 'm > 1' does not fit"),
    ],
    ids=["a broken schema", "twins", "no id", "a filter"],
)
def test_json_that_cannot_be_read_is_said(spark, tmp_path, text, place, said):
    with pytest.raises(InputError, match=said):
        opened(spark, write(tmp_path / "a.json", text), format="json", **place)


ANEW = "wanted one a line. Write the file anew with jq -c"
SEVERAL = f"The line holds several JSON objects, as Firehose writes them; {ANEW} . FILE"
ARRAY = f"The line is an array of JSON objects; {ANEW} .[] FILE"
NO_OBJECT = "The line is not a JSON object with the types of these columns"


@pytest.mark.parametrize(
    "text, said",
    [
        ('{"a":1}{"a":2}{"a":{"b":[{}]}}', SEVERAL),
        (' {"a":1} \t{"a":"}{"} ', SEVERAL),
        ('{"a":1}, {"a":2}', SEVERAL),
        ('[{"a":1},{"a":2}]', ARRAY),
        ('{"a":"}{"}', NO_OBJECT),
        ('{"a":1}{"a":', NO_OBJECT),
        ('{"a":1} and more', NO_OBJECT),
        ("[]", NO_OBJECT),
        ("no JSON", NO_OBJECT),
    ],
)
def test_a_line_of_several_objects_says_how_to_part_them(spark, text, said):
    assert spark.createDataFrame([(text,)], "line string").selectExpr(wrong_line("line")).collect() == [
        (said,)
    ]


@pytest.mark.parametrize(
    "text, names, said",
    [
        (
            '{"Records": [{"eventID": "a"}]}',
            ("eventID",),
            "has Records, an .* that have it. .* jq -c '.Records\\[\\]'",
        ),
        (
            '{"d": {"my list": [{"k": 1, "n": 2}]}}',
            ("k", "n"),
            "that have them. .* jq -c '.d.\"my list\"\\[\\]' FILE",
        ),
        (
            '{"Records": [{"detail": {"id": "a"}}]}',
            ("detail.id",),
            "needs detail.id; the input has Records, an",
        ),
        ('{"Records": [{"other": "a"}]}', ("eventID",), "needs eventID; the input has Records. Rename"),
        (
            '{"tags": [{"eventID": 1}], "eventId": "a"}',
            ("eventID",),
            "the input has tags, an array of objects",
        ),
    ],
)
def test_events_that_lie_in_an_array_are_named_with_the_way_out(spark, tmp_path, text, names, said):
    write(tmp_path / "a.json", text)
    with pytest.raises(MissingColumnError, match=said):
        opened(spark, tmp_path / "a.json", format="json", recipe=Recipe(event_id=names))


def test_json_without_any_object_is_all_bad(spark, tmp_path):
    source = opened(spark, write(tmp_path / "a.json", "nothing", "at all"), format="json")
    assert not good_rows(source) and len(bad_rows(source)) == 2


# --- Parquet -----------------------------------------------------------------------------------------------


def test_an_id_that_is_no_uuid_is_fine_elsewhere_and_a_missing_one_is_bad(spark, tmp_path):
    at = datetime(2026, 11, 20, 10, tzinfo=timezone.utc)
    columns = {
        "event_id": ["Not a UUID", "", None],
        "m": pa.array([[("k", 1)], None, None], pa.map_(pa.string(), pa.int32())),
        "odd.name": ["x", "y", "z"],
        "at": pa.array([at, at, None], pa.timestamp("us", "UTC")),
    }
    parquet(tmp_path / "p" / "part-0.parquet", **columns)
    with configured(spark, ELSEWHERE):
        source = opened(spark, tmp_path / "p", format="parquet")
        assert [(r.event_id, r.m, r["odd.name"]) for r in good_rows(source)] == [
            ("Not a UUID", {"k": 1}, "x")
        ]
        bad = bad_rows(source)
    failure = {"timestamp": "1970-01-01T00:00:00Z", "errors": ["Field event_id cannot be empty"]}
    assert [b["failure"] for b in bad] == [failure] * 2
    assert [json.loads(b["payload"]) for b in bad] == [
        {"event_id": "", "odd.name": "y", "at": "2026-11-20T10:00:00.000000Z"},
        {"odd.name": "z"},
    ]


def test_the_id_alone_is_one_parquet_column(spark, tmp_path):
    parquet(tmp_path / "p" / "part-0.parquet", event_id=["a"], wide=["b"])
    raw = opened(spark, tmp_path / "p", format="parquet").raw
    plan = raw.select("_dd_id")._jdf.queryExecution().executedPlan().toString()
    assert "ReadSchema: struct<event_id:string>" in plan


def test_a_number_may_be_the_id_and_several_columns_too(spark, tmp_path):
    parquet(tmp_path / "p" / "part-0.parquet", shop=[7, 7, None], n=["a/b", "", "c"])
    by_shop = opened(spark, tmp_path / "p", recipe=Recipe(event_id=("shop",)), format="parquet")
    assert [(r._dd_id, r.shop) for r in by_shop.decode(by_shop.raw).collect()] == [
        ("7", 7),
        ("7", 7),
        (None, None),
    ]
    by_both = opened(spark, tmp_path / "p", recipe=Recipe(event_id=("shop", "n")), format="parquet")
    assert [r._dd_id for r in by_both.raw.collect()] == ["7/a%2Fb", None, None]
    assert bad_rows(by_both)[0]["failure"]["errors"] == ["Field n cannot be empty"]


@pytest.mark.parametrize("schema, values", [(None, ("001", "02")), ("country int", (1, 2))])
def test_parquet_files_are_merged_by_name_and_folder_names_are_text(spark, tmp_path, schema, values):
    parquet(tmp_path / "run=1" / "country=001" / "part-0.parquet", event_id=["a"], n=[1])
    parquet(tmp_path / "run=1" / "country=02" / "part-1.parquet", event_id=["b"], s=["x"])
    source = opened(spark, tmp_path, format="parquet", schema=schema)
    rows = {r.event_id: (r.n, r.s, r.country) for r in good_rows(source)}
    assert rows == {"a": (1, None, values[0]), "b": (None, "x", values[1])}
    assert source.folders == ("country",) and "run" not in source.columns


@pytest.mark.parametrize(
    "schema, said",
    [
        (
            "contry int",
            "input_schema gives types of folder columns; it needs contry; .* Did you mean country",
        ),
        ("country int", "FR.*country"),
    ],
)
def test_a_type_that_no_folder_name_has_is_said(spark, tmp_path, schema, said):
    parquet(tmp_path / "run=1" / "country=FR" / "part-0.parquet", event_id=["a"])
    with pytest.raises(InputError, match=said):
        opened(spark, tmp_path, format="parquet", schema=schema)


UUIDS = pa.array([b"0123456789abcdef"], pa.uuid())
UNREADABLE = {  # files -> what is said
    "types that disagree": (
        [{"event_id": ["a"], "n": [1]}, {"event_id": ["b"], "n": ["x"]}],
        "Column n is string in .*/1.parquet, and bigint in the files before it. Write that file again",
    ),
    "whole numbers and others": (
        [{"event_id": ["a"], "n": [1]}, {"event_id": ["b"], "n": [1.5]}],
        "Column n is double in .*/1.parquet, and bigint in the files before it. Write that file again",
    ),
    "A and a": (
        [{"event_id": ["a"], "Country": [1], "country": [2]}],
        "columns that differ only in upper and lower case, .* such as country. Rename one upstream",
    ),
    "nanoseconds": (
        [{"event_id": ["a"]}, {"event_id": ["a"], "at": pa.array([1], pa.timestamp("ns"))}],
        "Spark does not read the nanosecond column at in .*/1.parquet. Write it with microseconds, or leave",
    ),
    "a time of day": (
        [{"event_id": ["a"], "at": pa.array([1], pa.time64("us"))}],
        "Spark does not read the time-of-day column at in .*/0.parquet. Write it as text, or leave it out",
    ),
    "a UUID": (
        [{"event_id": ["a"]}, {"event_id": UUIDS}],
        r"Spark does not read the UUID column event_id in .*/1.parquet. Write it as text \(varchar\), or",
    ),
    "a UUID inside": (
        [{"event_id": ["a"], "s": pa.StructArray.from_arrays([UUIDS], ["u"])}],
        "Spark does not read the UUID column s.u in .*/0.parquet. Write it as text",
    ),
    "half a float": (
        [{"event_id": ["a"], "f": pa.array([1.5], pa.float16())}],
        "Spark does not read the 16-bit float column f in .*/0.parquet. Write it as float",
    ),
    "a very long decimal": (
        [{"event_id": ["a"], "d": pa.array([Decimal("1.00")], pa.decimal256(39, 2))}],
        "Spark does not read the decimal column d in .*/0.parquet. Write it with at most 38 digits",
    ),
    "no id": (
        [{"event_ids": ["a"]}],
        "needs event_id; the input has event_ids. For event_id: Did you mean event_ids",
    ),
}


@pytest.mark.parametrize("files, said", UNREADABLE.values(), ids=UNREADABLE)
def test_parquet_that_cannot_be_read_is_said_in_our_words(spark, tmp_path, files, said):
    for i, columns in enumerate(files):
        parquet(tmp_path / "p" / f"{i}.parquet", **columns)
    with pytest.raises(InputError, match=said):
        opened(spark, tmp_path / "p", format="parquet")


@pytest.mark.parametrize(
    "column, folder", [("country", "country=DE"), ("Event_ID", "event_id=x"), ("a=b", "a%3Db=1")]
)
def test_a_folder_that_would_replace_a_column_of_any_file_is_refused(spark, tmp_path, column, folder):
    parquet(tmp_path / "in" / folder / "0.parquet", id=["a"])
    parquet(tmp_path / "in" / folder / "x" / "1.parquet", id=["b"], **{column: ["FR"]})
    said = f"files of {tmp_path}/in have a column {column}, which the folder {folder} would replace. Rename"
    with pytest.raises(InputError, match=said):
        opened(spark, tmp_path / "in", format="parquet", recipe=Recipe(event_id=("id",)))


def test_a_folder_without_a_value_is_refused(spark, tmp_path):
    parquet(tmp_path / "in" / "c=" / "0.parquet", event_id=["a"])
    with pytest.raises(InputError, match="c= of .* has no value. Rename it to c=__HIVE_DEFAULT_PARTITION__"):
        opened(spark, tmp_path / "in", format="parquet")


def test_a_column_stays_where_its_folders_are_batches(spark, tmp_path):
    parquet(tmp_path / "country=DE" / "0.parquet", event_id=["a"], country=["FR"])
    source = opened(spark, tmp_path, format="parquet", batch_pattern="country=*")
    assert source.plain().select("event_id", "country").collect() == [("a", "FR")] and source.folders == ()


def test_folders_give_the_columns_that_spark_finds_in_them(spark, tmp_path):
    parquet(tmp_path / "in" / "no=1" / "x" / "_day=02" / "a%20b=c%3Dd" / "e" / "0.parquet", event_id=["a"])
    source = opened(spark, tmp_path / "in", format="parquet")
    assert source.folders == ("_day", "a b") and source.columns == ["event_id", "_day", "a b"]
    assert source.plain().select("event_id", "_day", "a b").collect() == [("a", "02", "c=d")]


@pytest.mark.parametrize("folder", ["event_id=x", "value=7", "_day=1/n=2"])
def test_folders_take_nothing_from_lines(spark, tmp_path, folder):
    write(tmp_path / "in" / folder / "a.json", '{"event_id": "a", "value": "b", "n": 1}')
    write(tmp_path / "in" / folder / "b.json", '{"event_id": "b", "value": "c", "n": 2}')
    source = opened(spark, tmp_path / "in", format="json")
    rows = source.plain().select("event_id", "value", "n").orderBy("event_id").collect()
    assert rows == [("a", "b", 1), ("b", "c", 2)] and source.folders == ()


@pytest.mark.parametrize("other", ["", "x=1", "plain"])
def test_folders_that_give_columns_to_some_files_only_are_said(spark, tmp_path, other):
    parquet(tmp_path / "in" / "x=1" / "y=2" / "0.parquet", event_id=["a"])
    parquet(tmp_path / "in" / other / "1.parquet", event_id=["b"])
    with pytest.raises(InputError, match=f"{tmp_path}/in"):
        opened(spark, tmp_path / "in", format="parquet")


def test_a_file_that_is_cut_off_is_named(spark, tmp_path):
    path = parquet(tmp_path / "a.parquet", event_id=["a"])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match="a.parquet cannot be read to its end.*input_format"):
        opened(spark, path, format="parquet")


@pytest.mark.parametrize(
    "where, said", [("n > 1", None), ("m > 1", "input_where = 'm > 1' does not fit the input")]
)
def test_input_where_takes_a_slice(spark, tmp_path, where, said):
    parquet(tmp_path / "p" / "0.parquet", event_id=["a", "b"], n=[1, 2])
    if said:
        with pytest.raises(InputError, match=said):
            opened(spark, tmp_path / "p", format="parquet", where=where)
    else:
        source = opened(spark, tmp_path / "p", format="parquet", where=where)
        assert [r.event_id for r in good_rows(source)] == ["b"] and source.raw.count() == 1


def test_brackets_and_stars_in_a_path_are_no_pattern(spark, tmp_path):
    folder = tmp_path / "in[1]*{a,b}"
    parquet(folder / "day=[x]" / "p?.parquet", event_id=["a"])
    source = opened(spark, folder, "x", format="parquet")
    assert [(r.event_id, r.day) for r in good_rows(source)] == [("a", "[x]")]


# --- tables and Delta folders ------------------------------------------------------------------------------


def test_a_table_is_read_by_name(spark):
    spark.sql("select 'a' as event_id union all select null").createOrReplaceTempView("some_events")
    source = opened(spark, "some_events", format="table")
    assert [r.event_id for r in good_rows(source)] == ["a"] and len(bad_rows(source)) == 1
    assert source.version is None
    with pytest.raises(MissingInputError, match="no_such_table"):
        opened(spark, "no_such_table", format="table")
    with pytest.raises(MissingInputError, match="a/folder is no name of a table .* input_format=delta"):
        opened(spark, "a/folder", batch_id="1", format="table")


def test_a_delta_folder_is_one_batch_as_it_was(spark, tmp_path):
    path, place = tmp_path / "run=2026-11-20", {"format": "delta"}
    spark.sql("select 'a' as event_id").write.format("delta").save(str(path))
    [batch] = found_in(path, **place).batches
    source = read_batch(spark, batch, Input(str(path), **place), Recipe(), ids_of(Recipe()))
    spark.sql("select 'b' as event_id").write.format("delta").mode("append").save(str(path))
    assert (batch.batch_id, batch.files, source.version) == ("2026-11-20", (), "0")
    assert [r.event_id for r in good_rows(source)] == ["a"]


def test_a_folder_that_is_not_delta_is_said(spark, tmp_path):
    write(tmp_path / "x" / "a.txt", "x")
    with pytest.raises(
        FormatError, match="x cannot be read as a Delta table: .* Check input and input_format"
    ):
        opened(spark, tmp_path / "x", format="delta")

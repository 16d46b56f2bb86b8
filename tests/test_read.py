"What is read, what is bad, and which files make a batch."
import gzip, json, logging, os, random, re
from datetime import datetime, timezone
import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from dedup_nb.config import Config, ConfigError, InputError, MissingColumnError
from dedup_nb.read import ENRICHED, Batch, InputFile, explain_read_error, filesystem, find_batches, read_batch

NAMES = [name for name, _ in ENRICHED]
ID = "83c1293c-9788-5607-a11c-f291161a7a5a"
CONTEXTS = "iglu:com.snowplowanalytics.snowplow/contexts/jsonschema/1-0-1"
UNSTRUCT = "iglu:com.snowplowanalytics.snowplow/unstruct_event/jsonschema/1-0-0"
ITEM = '{"schema":"iglu:com.acme/thing/jsonschema/1-0-0","data":{"a":[1,{"b":null}]}}'


def line(**cells):
    "An enriched event; cells not named are empty but for the required ones."
    cells = {"event_id": ID, "collector_tstamp": "2026-11-20 10:00:00.001", "v_collector": "c", "v_etl": "e", **cells}
    assert set(cells) <= set(NAMES)
    return "\t".join(cells.get(name, "") for name in NAMES)


def contexts(items=ITEM, schema=CONTEXTS, tail=""): return f'{{"schema":"{schema}","data":[{items}]}}{tail}'


def write(path, *lines, end="\n"):
    "Write lines (text or bytes); the suffix says how they are packed."
    data = b"".join((x if isinstance(x, bytes) else x.encode()) + end.encode() for x in lines)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz": data = gzip.compress(data)
    if path.suffix == ".zst": data = bytes(pa.compress(data, "zstd", asbytes=True)) if not data else zstd(data)
    path.write_bytes(data)
    return path


def zstd(data):
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "zstd") as packed: packed.write(data)
    return out.getvalue().to_pybytes()


def opened(spark, path, **settings):
    config = Config(input=str(path), **settings)
    [batch] = find_batches(config)
    return read_batch(spark, batch, config)


def good_rows(source): return source.decode(source.raw).where("_dd_good").select(*[f"`{c}`" for c in source.columns]).collect()


def bad_rows(source): return [json.loads(r.value) for r in source.bad(source.raw).collect()]


def failures(source): return [b["data"]["failure"] for b in bad_rows(source)]


# --- file systems -----------------------------------------------------------------------------------------------

def test_local_addresses_open_the_local_file_system():
    for path in ("/data/x", "file:/data/x", "file:///data/x"): assert filesystem(path) == (pafs.LocalFileSystem(), "/data/x")
    assert filesystem("dbfs:/mnt/x")[1] == "/dbfs/mnt/x"


def test_relative_paths_become_absolute(tmp_path): assert filesystem("x")[1] == str(tmp_path / "x")


def test_s3_addresses_open_s3_whatever_their_spelling(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    for scheme in ("s3", "s3a", "s3n"):
        fs, inner = filesystem(f"{scheme}://bucket/folder/")
        assert fs.type_name == "s3" and inner == "bucket/folder"


def test_an_unknown_scheme_names_the_known_ones():
    with pytest.raises(InputError, match=r"s3x://b/x: wanted .*s3a:.*; found s3x:\. Did you mean s3\w?\?"): filesystem("s3x://b/x")


# --- batches ----------------------------------------------------------------------------------------------------

def ids(path, **settings): return [b.batch_id for b in find_batches(Config(input=str(path), **settings))]


def test_folders_that_match_are_batches_oldest_first(tmp_path):
    for name in ("run=2026-11-20-10-00-00/b.tsv", "run=2026-11-19/deep/er/a.tsv", "run=2026-11-20-10-00-00/a.tsv.gz"): write(tmp_path / name)
    found = find_batches(Config(input=str(tmp_path)))
    assert [(b.batch_id, [os.path.relpath(f.path, tmp_path) for f in b.files]) for b in found] == [
        ("2026-11-19", ["run=2026-11-19/deep/er/a.tsv"]),
        ("2026-11-20-10-00-00", ["run=2026-11-20-10-00-00/a.tsv.gz", "run=2026-11-20-10-00-00/b.tsv"])]
    assert found[0].source == str(tmp_path / "run=2026-11-19") and all(f.path.startswith("/") for b in found for f in b.files)


def test_stars_of_several_levels_are_joined(tmp_path):
    for name in ("dt=2026-11-20/hour=02/a", "dt=2026-11-20/hour=10/a", "dt=2026-11-19/hour=23/a"): write(tmp_path / name, "x")
    assert ids(tmp_path, batch_pattern="dt=*/hour=*") == ["2026-11-19_23", "2026-11-20_02", "2026-11-20_10"]


def test_names_with_underscore_or_dot_are_not_data(tmp_path):
    for name in ("run=1/_SUCCESS", "run=1/.part.crc", "run=1/_temporary/0/x", "run=1/part-0", "_tmp/run=2/x"): write(tmp_path / name, "x")
    [batch] = find_batches(Config(input=str(tmp_path)))
    assert [os.path.basename(f.path) for f in batch.files] == ["part-0"]


def test_size_and_time_of_a_file_are_kept(tmp_path):
    path = write(tmp_path / "run=1" / "a", "12345")
    [batch] = find_batches(Config(input=str(tmp_path)))
    [found] = batch.files
    assert (found.path, found.size, found.modified) == (str(path), 6, pytest.approx(path.stat().st_mtime, abs=0.001))


def test_an_input_without_batch_folders_is_one_batch_named_after_it(tmp_path):
    write(tmp_path / "events" / "sub" / "a.tsv", "x")
    assert ids(tmp_path / "events") == ["events"] and ids(tmp_path / "events" / "sub" / "a.tsv") == ["a"]
    assert ids(tmp_path / "events", batch_id="mine") == ["mine"]


def test_file_names_lose_all_their_suffixes(tmp_path): assert ids(write(tmp_path / "2026-11-20.tsv.gz")) == ["2026-11-20"]


def test_an_input_that_is_itself_a_batch_folder_is_named_by_the_star(tmp_path):
    write(tmp_path / "run=2026-11-20" / "a.tsv", "x")
    assert ids(tmp_path / "run=2026-11-20") == ["2026-11-20"] and ids(f"{tmp_path}/run=2026-11-20/") == ["2026-11-20"]
    write(tmp_path / "dt=2026-11-20" / "hour=05" / "a.tsv", "x")
    assert ids(tmp_path / "dt=2026-11-20" / "hour=05", batch_pattern="dt=*/hour=*") == ["2026-11-20_05"]


def test_a_given_batch_id_picks_that_folder(tmp_path):
    for day in (19, 20): write(tmp_path / f"run=2026-11-{day}" / "a", "x")
    assert ids(tmp_path, batch_id="2026-11-19") == ["2026-11-19"]
    with pytest.raises(InputError, match="Wanted batch 2026-11-2; .* has 2026-11-19, 2026-11-20 .*Did you mean 2026-11-20"): ids(tmp_path, batch_id="2026-11-2")


def test_an_empty_folder_is_a_batch_without_rows(spark, tmp_path):
    for path in (tmp_path / "in" / "run=1", tmp_path / "empty"): path.mkdir(parents=True)
    assert [(b.batch_id, b.files) for b in find_batches(Config(input=str(tmp_path / "in")))] == [("1", ())]
    for kind in ("enriched_tsv", "json", "parquet"):
        source = opened(spark, tmp_path / "empty", input_format=kind)
        assert source.raw.count() == 0 and good_rows(source) == [] and bad_rows(source) == [] and "event_id" in source.columns


def test_files_beside_the_batch_folders_are_warned_about(tmp_path, caplog):
    for name in ("run=1/a", "stray-1.tsv", "other/stray-2.tsv"): write(tmp_path / name, "x")
    with caplog.at_level(logging.WARNING, "dedup_nb"): assert ids(tmp_path) == ["1"]
    assert "2 files lie beside the batch folders (run=*)" in caplog.text and "other/stray-2.tsv" in caplog.text


def test_a_missing_path_names_what_is_there(tmp_path):
    (tmp_path / "events").mkdir()
    with pytest.raises(InputError) as wrong: ids(tmp_path / "evnets" / "run=1")
    assert f"{tmp_path} has events" in str(wrong.value) and "Did you mean events?" in str(wrong.value) and "--input" in str(wrong.value)


def test_a_missing_setting_is_said():
    with pytest.raises(ConfigError, match="--input"): find_batches(Config())


@pytest.mark.parametrize("name", ["a b", "-x", "a'b", "ü;"])
def test_ids_unfit_as_folder_names_are_refused(tmp_path, name):
    write(tmp_path / f"run={name}" / "a", "x")
    with pytest.raises(InputError, match="cannot name a batch.*--batch-id"): ids(tmp_path)


def test_two_folders_with_one_id_are_refused(tmp_path):
    for name in ("a=1_2/b=3/f", "a=1/b=2_3/f"): write(tmp_path / name, "x")
    with pytest.raises(InputError, match="would both be batch 1_2_3"): ids(tmp_path, batch_pattern="a=*/b=*")


def test_a_table_is_one_batch(): assert find_batches(Config(input="lake.web.events", input_format="table")) == [Batch("events", (), "lake.web.events")]


def test_the_users_scheme_is_kept(tmp_path):
    write(tmp_path / "run=1" / "a", "x")
    assert find_batches(Config(input=f"file:{tmp_path}"))[0].files[0].path == f"file://{tmp_path}/run=1/a"


def test_a_file_that_comes_later_is_in_no_scan(spark, tmp_path):
    write(tmp_path / "a.tsv", line())
    source = opened(spark, tmp_path)
    write(tmp_path / "b.tsv", line())
    assert source.raw.count() == 1


def test_names_that_look_like_patterns_are_read_as_they_are(spark, tmp_path):
    for name in ("a[1].tsv", "a1.tsv", "b{x,y}*.tsv", "c d%20.tsv.zst", "é.tsv"): write(tmp_path / name, line(page_title=name))
    assert {r.page_title for r in good_rows(opened(spark, tmp_path, batch_id="x"))} == {"a[1].tsv", "a1.tsv", "b{x,y}*.tsv", "c d%20.tsv.zst", "é.tsv"}


# --- lines ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_plain_gzip_and_zstd_may_be_mixed(spark, tmp_path, end):
    for suffix in ("tsv", "tsv.gz", "tsv.zst"): write(tmp_path / f"part.{suffix}", line(page_title=suffix), "", "x", end=end)
    source = opened(spark, tmp_path, batch_id="x")
    assert sorted(r.page_title for r in good_rows(source)) == ["tsv", "tsv.gz", "tsv.zst"]
    assert sorted(b["data"]["payload"] for b in bad_rows(source)) == ["", "", "", "x", "x", "x"]


@pytest.mark.parametrize("block", [1, 2, 3, 7, 1000])
def test_zstd_lines_do_not_depend_on_block_size(monkeypatch, block):
    import dedup_nb.read as read
    monkeypatch.setattr(read, "_LINE_BYTES", block)
    for data in (b"a\nbb\r\n\r\nccc\rd\n", b"a\r\n", b"a\r", b"\n\n", b"a", b"", b"\r\r\n\n" + b"x" * 20, b"long" * 30 + b"\n" + b"z"):
        assert [x for lines in read._unpacked("f", zstd(data)) for x in lines] == data.splitlines()


def test_a_byte_order_mark_is_not_part_of_the_line(spark, tmp_path):
    for suffix in ("tsv", "tsv.gz", "tsv.zst"): write(tmp_path / f"part.{suffix}", b"\xef\xbb\xbf" + line(app_id="shop").encode(), b"\xef\xbb\xbf" + line(app_id="two").encode())
    assert sorted(r.app_id for r in good_rows(opened(spark, tmp_path))) == ["shop"] * 3 + ["two"] * 3


def test_invalid_utf8_becomes_replacement_characters_and_nul_passes(spark, tmp_path):
    write(tmp_path / "part.tsv", line(page_title="@", app_id="a\0b").encode().replace(b"@", b"x\xff\xe2\x82y"), b"bad\xff")
    source = opened(spark, tmp_path)
    assert [(r.page_title, r.app_id) for r in good_rows(source)] == [("x\ufffd\ufffdy", "a\0b")]
    assert bad_rows(source)[0]["data"]["payload"] == "bad\ufffd"


def test_long_lines_and_many_tabs_work(spark, tmp_path):
    long = line(page_title="x" * 10_000_000)
    for suffix in ("tsv", "tsv.zst"): write(tmp_path / f"part.{suffix}", long, "\t" * 100_000)
    source = opened(spark, tmp_path)
    assert [len(r.page_title) for r in good_rows(source)] == [10_000_000] * 2
    assert failures(source) == [{"type": "FieldNumberMismatch", "fieldCount": 100_001}] * 2


@pytest.mark.parametrize("suffix", ["tsv.gz", "tsv.zst"])
def test_a_truncated_file_fails_and_is_named(spark, tmp_path, suffix):
    rng = random.Random(1)
    lines = [line(page_title="%0200x" % rng.getrandbits(800)) for _ in range(500)]
    write(tmp_path / f"part-0.{suffix}", line())
    broken = write(tmp_path / f"part-1.{suffix}", *lines)
    broken.write_bytes(broken.read_bytes()[:-2000])
    config = Config(input=str(tmp_path), batch_id="x")
    [batch] = find_batches(config)
    source = read_batch(spark, batch, config)
    with pytest.raises(Exception) as wrong: source.decode(source.raw).where("_dd_good").count()
    explained = explain_read_error(wrong.value, batch)
    assert isinstance(explained, InputError) and str(broken) in str(explained) and "Nothing was committed" in str(explained)


def test_other_errors_are_not_explained_as_broken_files():
    assert explain_read_error(RuntimeError("No space left on device"), Batch("x", (InputFile("/a/b", 1, 0.0),), "/a")) is None


def test_a_folder_without_good_rows_is_all_bad(spark, tmp_path):
    source = opened(spark, write(tmp_path / "a.tsv", "", "x", "a\tb"))
    assert good_rows(source) == []
    assert failures(source) == [{"type": "NotTSV"}, {"type": "NotTSV"}, {"type": "FieldNumberMismatch", "fieldCount": 2}]


# --- the decode rule --------------------------------------------------------------------------------------------

def test_columns_get_their_real_types(spark, tmp_path):
    source = opened(spark, write(tmp_path / "a.tsv", line()))
    decoded = source.decode(source.raw)
    assert [(f.name, f.dataType.simpleString()) for f in decoded.schema.fields] == [*ENRICHED, ("_dd_id", "string"), ("_dd_good", "boolean")]
    assert source.columns == tuple(NAMES) and [f.name for f in source.raw.schema.fields] == ["value", "_dd_id"]


def test_good_cells_are_cast_and_empty_ones_are_null(spark, tmp_path):
    path = write(tmp_path / "a.tsv", line(event_id=ID.upper(), etl_tstamp="2026-11-20T10:00:00.123456789", txn_id="-007", geo_latitude="1.5e1", br_cookies="1", dvce_ismobile="0", contexts=contexts()))
    [row] = good_rows(opened(spark, path))
    filled = {name: value for name, value in row.asDict().items() if value is not None}
    assert filled.pop("etl_tstamp").microsecond == 123456 and filled.pop("collector_tstamp").microsecond == 1000
    assert filled == dict(event_id=ID, v_collector="c", v_etl="e", txn_id=-7, geo_latitude=15.0, br_cookies=True, dvce_ismobile=False, contexts=contexts())


def test_raw_and_decoded_ids_are_the_same(spark, tmp_path):
    source = opened(spark, write(tmp_path / "a.tsv", line(event_id=ID.upper()), line(event_id=""), "x", line(event_id="Not-A-UUID")))
    assert [r._dd_id for r in source.raw.collect()] == [ID, None, None, "not-a-uuid"] == [r._dd_id for r in source.decode(source.raw).collect()]


def test_any_part_of_raw_can_be_decoded(spark, tmp_path):
    source = opened(spark, write(tmp_path / "a.tsv", line(), line(event_id="11111111-1111-1111-1111-111111111111"), "x"))
    part = source.raw.where(f"_dd_id = '{ID}'")
    assert [r.event_id for r in source.decode(part).collect()] == [ID] and source.bad(part).count() == 0 and source.bad(source.raw.where("_dd_id is null")).count() == 1


CELLS = [  # column, cell, is it good?
    ("br_cookies", "2", False), ("br_cookies", "true", False), ("br_cookies", "01", False), ("br_cookies", " 1", False),
    ("txn_id", "+5", True), ("txn_id", " 5", False), ("txn_id", "5 ", False), ("txn_id", "5.0", False), ("txn_id", "2147483647", True), ("txn_id", "2147483648", False), ("txn_id", "-", False), ("txn_id", "1e3", False),
    ("se_value", "10", True), ("se_value", "-.5E-3", True), ("se_value", "1,5", False), ("se_value", "x", False), ("se_value", "1_0", False),
    ("etl_tstamp", "2026-11-20 10:00:00", True), ("etl_tstamp", "2026-11-20T10:00:00.1", True), ("etl_tstamp", "-0044-03-15 12:00:00", True), ("etl_tstamp", "+12026-11-20 10:00:00", True),
    ("etl_tstamp", "2026-11-20 10:00", False), ("etl_tstamp", "2026-11-20", False), ("etl_tstamp", "2026-02-30 10:00:00", False), ("etl_tstamp", "2026-11-20 10:00:00Z", False), ("etl_tstamp", "2026-11-20 10:00:00+01:00", False),
    ("etl_tstamp", "2026-11-20 10:00:00.1234567890", False), ("etl_tstamp", " 2026-11-20 10:00:00", False), ("etl_tstamp", "2026-1-2 10:00:00", False), ("etl_tstamp", "10:00:00", False), ("etl_tstamp", "2026-11-20 25:00:00", False),
    ("etl_tstamp", "1763632800000", False), ("etl_tstamp", "today", False), ("etl_tstamp", "12026-11-20 10:00:00", False),
    ("event_id", ID.upper(), True), ("event_id", ID.replace("-", ""), False), ("event_id", ID + " ", False), ("event_id", "{" + ID + "}", False), ("event_id", "1-1-1-1-1", False), ("event_id", ID[:-1] + "g", False),
    ("v_etl", "", False), ("v_collector", "", False), ("collector_tstamp", "", False), ("event_id", "", False), ("v_etl", " ", True),
    ("contexts", contexts(), True), ("contexts", contexts(""), True), ("contexts", contexts(ITEM + "," + ITEM), True), ("contexts", contexts('{"schema":"iglu:a/b/jsonschema/1-0-0","data":[1,"x"]}'), True),
    ("contexts", contexts(schema=CONTEXTS.replace("1-0-1", "1-1-0")), False), ("contexts", contexts(schema=UNSTRUCT), False), ("contexts", contexts(tail=" x"), False), ("contexts", contexts(tail=",{}"), False), ("contexts", contexts(tail="] }"), False),
    ("contexts", contexts("1"), False), ("contexts", contexts("null"), False), ("contexts", contexts('{"schema":"iglu:a/b/jsonschema/1-0-0"}'), False), ("contexts", contexts('{"schema":"com.acme","data":{}}'), False), ("contexts", contexts('{"data":{}}'), False),
    ("contexts", contexts("{'schema':'iglu:a/b/jsonschema/1-0-0','data':{}}"), False), ("contexts", contexts()[:-1], False), ("contexts", "[]", False), ("contexts", "{}", False), ("contexts", "null", False), ("contexts", " ", False), ("contexts", contexts(ITEM.replace("1,", "01,")), False),
    ("contexts", contexts(ITEM.replace("null", "NaN")), False), ("derived_contexts", contexts(), True), ("derived_contexts", "&&&", False), ("contexts", f'{{"schema":"{CONTEXTS}","data":{ITEM}}}', False), ("contexts", contexts(" " + ITEM + " ", tail=" "), True),
    ("unstruct_event", f'{{"schema":"{UNSTRUCT}","data":{ITEM}}}', True), ("unstruct_event", f'{{"schema":"{UNSTRUCT}","data":[{ITEM}]}}', False), ("unstruct_event", f'{{"schema":"{UNSTRUCT}"}}', False), ("unstruct_event", contexts(), False),
    ("unstruct_event", f'{{"schema":"{UNSTRUCT}","data":{{"schema":"iglu:a/b/jsonschema/1-0-0","data":7}}}}', True), ("unstruct_event", f'{{"data":{ITEM},"schema":"{UNSTRUCT}","more":1}}', True),
    ("page_title", '"quoted', True), ("page_title", "\\N", True), ("page_title", "  ", True),
]


@pytest.mark.parametrize("ansi, zone", [("true", "UTC"), ("false", "America/New_York")])
def test_each_cell_is_judged_by_its_column(spark, tmp_path, ansi, zone):
    rows = [line(**{"app_id": str(i), name: cell}) for i, (name, cell, _) in enumerate(CELLS)]
    with session(spark, {"spark.sql.ansi.enabled": ansi, "spark.sql.session.timeZone": zone}):
        source = opened(spark, write(tmp_path / "a.tsv", *rows))
        found = {int(r.app_id): r._dd_good for r in source.decode(source.raw).select("app_id", "_dd_good").collect()}
        errors = {b["data"]["payload"]: b["data"]["failure"]["errors"] for b in bad_rows(source)}
    assert [(name, cell, found[i]) for i, (name, cell, _) in enumerate(CELLS)] == CELLS
    for row, (name, cell, right) in zip(rows, CELLS):
        assert [(e["type"], e["key"], e["value"]) for e in errors.get(row, [])] == ([] if right else [("InvalidValue", name, cell)])


class session:
    "Session settings for a while."
    def __init__(self, spark, settings): self.spark, self.settings = spark, settings
    def __enter__(self):
        self.before = {name: self.spark.conf.get(name) for name in self.settings}
        for name, value in self.settings.items(): self.spark.conf.set(name, value)
    def __exit__(self, *_):
        for name, value in self.before.items(): self.spark.conf.set(name, value)


def test_messages_name_column_and_type_in_column_order(spark, tmp_path):
    wrong = dict(etl_tstamp="x", event_id="y", txn_id="z", v_etl="", geo_latitude="n", contexts="&&&", unstruct_event=contexts(), br_cookies="yes", derived_contexts="[]")
    [failure] = failures(opened(spark, write(tmp_path / "a.tsv", line(**wrong))))
    assert failure["type"] == "RowDecodingError" and [(e["key"], e["message"]) for e in failure["errors"]] == [
        ("etl_tstamp", "Cannot parse key etl_tstamp into datetime"), ("event_id", "Cannot parse key event_id into UUID"), ("txn_id", "Cannot parse key txn_id into integer"),
        ("v_etl", "Field v_etl cannot be empty"), ("geo_latitude", "Cannot parse key geo_latitude into double"), ("contexts", "ParsingFailure: the text is not one JSON value"),
        ("unstruct_event", f"Unknown payload: {CONTEXTS}"), ("br_cookies", "Cannot parse key br_cookies into boolean"), ("derived_contexts", "DecodingFailure: the JSON is not self-describing contexts")]


def test_130_and_132_columns_are_counted(spark, tmp_path):
    source = opened(spark, write(tmp_path / "a.tsv", line()[:-1], line() + "\t", line()))
    assert failures(source) == [{"type": "FieldNumberMismatch", "fieldCount": 130}, {"type": "FieldNumberMismatch", "fieldCount": 132}] and len(good_rows(source)) == 1


def test_a_bad_row_is_snowplows_record(spark, tmp_path):
    import dedup_nb
    [bad] = bad_rows(opened(spark, write(tmp_path / "a.tsv", "x")))
    assert bad == {"schema": "iglu:com.snowplowanalytics.snowplow.badrows/loader_parsing_error/jsonschema/2-0-0",
                   "data": {"processor": {"artifact": "dedup_nb", "version": dedup_nb.__version__}, "failure": {"type": "NotTSV"}, "payload": "x"}}


def test_a_filter_on_good_does_not_parse_twice(spark, tmp_path):
    source = opened(spark, write(tmp_path / "a.tsv", line()))
    plan = source.decode(source.raw).where("_dd_good")._jdf.queryExecution().optimizedPlan().toString()
    filters = [x for x in plan.splitlines() if "Filter" in x]
    assert filters and not any("split" in x or "from_json" in x for x in filters) and plan.count("split(") == 2  # once for the id, once for the cells


# --- against a plain decoder ------------------------------------------------------------------------------------

def reference(text):
    "The decode rule in plain Python: the errors of a line as (key, value), or its failure; [] if it is good."
    cells = text.split("\t")
    if len(cells) == 1: return "NotTSV"
    if len(cells) != 131: return len(cells)
    return [(name, cell) for (name, kind), cell in zip(ENRICHED, cells) if not right(name, kind, cell)]


def right(name, kind, cell):
    if cell == "": return name not in ("event_id", "collector_tstamp", "v_collector", "v_etl")
    if name == "event_id": return re.fullmatch("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", cell, re.I) is not None
    if name in ("contexts", "derived_contexts", "unstruct_event"): return enveloped(name, cell)
    if kind == "boolean": return cell in ("0", "1")
    if kind == "int": return re.fullmatch("[+-]?[0-9]+", cell) is not None and -2**31 <= int(cell) < 2**31
    if kind == "double": return re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", cell.strip()) is not None
    if kind == "timestamp": return instant(cell)
    return True


def instant(cell):
    m = re.fullmatch(r"([0-9]{4}-[0-9]{2}-[0-9]{2})[ T]([0-9]{2}:[0-9]{2}:[0-9]{2})(\.[0-9]{0,9})?", cell)
    try: return bool(m and datetime.strptime(f"{m[1]} {m[2]}", "%Y-%m-%d %H:%M:%S"))
    except ValueError: return False


def enveloped(name, cell):
    def no(_): raise ValueError
    described = lambda x: isinstance(x, dict) and isinstance(x.get("schema"), str) and re.fullmatch(r"iglu:[\w.-]+/[\w-]+/[\w-]+/\d+-\d+-\d+", x["schema"]) and x.get("data") is not None
    try: found = json.loads(cell, parse_constant=no)
    except ValueError: return False
    kind = "unstruct_event" if name == "unstruct_event" else "contexts"
    if not described(found) or not re.fullmatch(rf"iglu:com\.snowplowanalytics\.snowplow/{kind}/jsonschema/1-0-\d+", found["schema"]): return False
    return bool(described(found["data"])) if kind == "unstruct_event" else isinstance(found["data"], list) and all(map(described, found["data"]))


def mutated(rng):
    "A good line with up to four faults: characters changed, cells swapped, cut or added."
    cells = line(app_id="a", etl_tstamp="2026-11-20 10:00:00.5", txn_id="12", geo_latitude="1.5", br_cookies="1", contexts=contexts(), unstruct_event=f'{{"schema":"{UNSTRUCT}","data":{ITEM}}}').split("\t")
    for _ in range(rng.randint(0, 4)):
        i = rng.choice([k for k, c in enumerate(cells) if c] or [0]) if rng.random() < 0.7 else rng.randrange(len(cells))
        cell, at = cells[i], rng.randint(0, len(cells[i]))
        what = rng.random()
        if what < 0.45: cells[i] = cell[:at] + rng.choice('01x -+.:T"{}[],\\Zé') + cell[at + rng.randint(0, 1):]
        elif what < 0.65: cells[i] = cell[:at] + cell[at + 1:]
        elif what < 0.85: cells[i] = rng.choice(["", "0", "1", "x", " ", "2026-11-20 10:00:00", "12.5", ID, contexts(), "null", "{}", "[]"])
        elif what < 0.9: cells = cells[:-1]
        elif what < 0.95: cells.append("")
        else: cells[i] = cell.upper()
    return "\t".join(cells)


def test_mutated_lines_get_the_verdict_of_a_plain_decoder(spark, tmp_path):
    rng = random.Random(20261120)
    lines = list(dict.fromkeys(mutated(rng) for _ in range(3000)))
    source = opened(spark, write(tmp_path / "a.tsv", *lines))
    found = {}
    for b in bad_rows(source):
        f = b["data"]["failure"]
        found[b["data"]["payload"]] = [(e["key"], e["value"]) for e in f["errors"]] if "errors" in f else f.get("fieldCount", f["type"])
    expected = {x: e for x in lines if (e := reference(x))}
    assert {x: (found.get(x), expected.get(x)) for x in lines if found.get(x) != expected.get(x)} == {}
    assert len(good_rows(source)) == len(lines) - len(expected) > 300 and len(expected) > 1000


# --- recorded cases ---------------------------------------------------------------------------------------------

CASES = {"WideRowJsonSpec": 48, "bad_InvalidJsonsSpec": 0, "EventDeduplicationSpec_disabled": 3, "DerivedContextsSpec": 1, "LinkClickEventSpec": 1, "MultipleJsonsSpec": 1}


@pytest.mark.parametrize("case, good", CASES.items())
def test_recorded_bad_rows_are_met(spark, conformance, case, good):
    folder = conformance / "snowplow" / case
    source = opened(spark, folder / "input.tsv", minimum_timestamp="0000-01-02T00:00:00.00Z")
    expected = [json.loads(x) for x in (folder / "expected_bad.txt").read_text().splitlines()]
    assert sorted(map(comparable, bad_rows(source))) == sorted(map(comparable, expected)) and len(good_rows(source)) == good


def comparable(bad):
    "Without the processor; parser messages by their prefix."
    data = bad["data"]
    for error in data["failure"].get("errors", []):
        if error["message"].startswith("ParsingFailure"): error["message"] = "ParsingFailure"
    return json.dumps([bad["schema"], data["failure"], data["payload"]], sort_keys=True)


# --- minimum_timestamp ------------------------------------------------------------------------------------------

@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_events_before_the_minimum_are_bad_in_order_of_the_columns(spark, tmp_path, zone):
    rows = [line(app_id="old", collector_tstamp="2026-11-20 09:59:59.999999", true_tstamp="2026-01-01 00:00:00", dvce_sent_tstamp="2026-01-01 00:00:00.12"), line(app_id="new", collector_tstamp="2026-11-20 10:00:00"), line(txn_id="x", collector_tstamp="2020-01-01 00:00:00")]
    with session(spark, {"spark.sql.session.timeZone": zone}):
        source = opened(spark, write(tmp_path / "a.tsv", *rows), minimum_timestamp="2026-11-20 10:00")
        assert [r.app_id for r in good_rows(source)] == ["new"]
        old, unparsed = bad_rows(source)
    assert old["schema"] == "iglu:com.snowplowanalytics.snowplow.badrows/generic_error/jsonschema/1-0-0" and unparsed["data"]["failure"]["type"] == "RowDecodingError"
    assert old["data"]["failure"] == {"timestamp": "2026-11-20T10:00:00Z", "errors": [
        "Timestamp 2026-11-20T09:59:59.999999Z is before than minimum timestamp, at column collector_tstamp",
        "Timestamp 2026-01-01T00:00:00.120Z is before than minimum timestamp, at column dvce_sent_tstamp",
        "Timestamp 2026-01-01T00:00:00Z is before than minimum timestamp, at column true_tstamp"]}
    assert json.loads(old["data"]["payload"])["app_id"] == "old" and json.loads(old["data"]["payload"])["collector_tstamp"] == "2026-11-20T09:59:59.999999Z"


@pytest.mark.parametrize("text, instant", [("2026-11-20", "2026-11-20T00:00:00Z"), ("2026-11-20T01:00:00.5+0100", "2026-11-20T00:00:00.500Z"), ("2026-11-20T01:00+01:00", "2026-11-20T00:00:00Z"), ("-0044-03-15", "-0044-03-15T00:00:00Z")])
def test_the_minimum_may_be_written_in_several_ways(spark, text, instant):
    from dedup_nb.read import _moment, _utc_text
    with session(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}): assert spark.sql(f"select {_utc_text(_moment(text))} as t").first().t == instant


def test_a_minimum_that_is_no_date_is_refused(spark, tmp_path):
    with pytest.raises(ConfigError, match="2026-02-31"): opened(spark, write(tmp_path / "a.tsv"), minimum_timestamp="2026-02-31")


def test_the_minimum_looks_at_order_columns_of_other_inputs(spark, tmp_path):
    spark.sql("select * from values ('a', timestamp_ntz'2026-11-20 09:00:00'), ('b', timestamp_ntz'2026-11-20 11:00:00') as t(id, at)").coalesce(1).write.parquet(str(tmp_path / "p"))
    with session(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        source = opened(spark, tmp_path / "p", input_format="parquet", event_id="id", order_by=("at",), minimum_timestamp="2026-11-20T10:00:00Z")
        assert [r.id for r in good_rows(source)] == ["b"]
        [bad] = bad_rows(source)
    assert bad["data"]["failure"]["errors"] == ["Timestamp 2026-11-20T09:00:00Z is before than minimum timestamp, at column at"] and json.loads(bad["data"]["payload"])["id"] == "a"


# --- JSON lines -------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("suffix", ["json", "json.gz"])
def test_json_columns_pass_untouched_and_bad_lines_are_kept(spark, tmp_path, suffix):
    lines = ['{"event_id":"A","tags":["x"],"m":{"k":{"n":1}},"value":"v"}', "", '{"event_id":"","tags":null}', '{"tags":["y"]}', '{"event_id":"b"', "[1]", "  ", '{"event_id":"c","tags":"no array"}']
    source = opened(spark, write(tmp_path / f"e.{suffix}", *lines), input_format="json", input_schema="event_id string, tags array<string>, m struct<k: struct<n: int>>, value string")
    assert [(r.event_id, r.tags, r.m and r.m.k.n, r.value) for r in good_rows(source)] == [("A", ["x"], 1, "v")]
    assert [(b["data"]["payload"], b["data"]["failure"]["errors"][0]) for b in bad_rows(source)] == [
        (lines[2], "Field event_id cannot be empty"), (lines[3], "Field event_id cannot be empty"), (lines[4], "The line is not a JSON object with the types of these columns"),
        (lines[5], "The line is not a JSON object with the types of these columns"), (lines[7], "The line is not a JSON object with the types of these columns")]
    assert source.raw.count() == 6 and source.raw.select("_dd_id").columns == ["_dd_id"]


def test_json_files_with_other_columns_are_merged_by_name(spark, tmp_path):
    write(tmp_path / "a.json", '{"event_id":"a","n":1,"o":{"x":1},"nothing":null,"l":[]}')
    write(tmp_path / "b.json", '{"event_id":"b","n":2.5,"o":{"y":"t"},"more":true,"nothing":null,"l":[1]}', "{broken")
    source = opened(spark, tmp_path, input_format="json")
    assert {f.name: f.dataType.simpleString() for f in source.decode(source.raw).schema.fields if not f.name.startswith("_dd_")} == {
        "event_id": "string", "l": "array<bigint>", "n": "double", "nothing": "string", "o": "struct<x:bigint,y:string>", "more": "boolean"}
    assert {r.event_id: r.n for r in good_rows(source)} == {"a": 1.0, "b": 2.5}


def test_json_files_that_disagree_are_named(spark, tmp_path):
    write(tmp_path / "a.json", '{"event_id":"a","o":{"n":1}}')
    other = write(tmp_path / "b.json", '{"event_id":"b","o":{"n":"one"}}')
    with pytest.raises(InputError, match=re.escape(f"Column o.n is string in {other}, and bigint in the files before it. Set input_schema")): opened(spark, tmp_path, input_format="json")
    assert len(good_rows(opened(spark, tmp_path, input_format="json", input_schema="event_id string, o struct<n: string>"))) == 2


def test_json_in_zstd_needs_a_schema(spark, tmp_path):
    path = write(tmp_path / "a.json.zst", '{"event_id":"a"}')
    with pytest.raises(InputError, match="Set input_schema"): opened(spark, path, input_format="json")
    assert [r.event_id for r in good_rows(opened(spark, path, input_format="json", input_schema="event_id string"))] == ["a"]


def test_a_broken_input_schema_is_said(spark, tmp_path):
    with pytest.raises(InputError, match="input_schema is not a list of columns.*event_id strnig"): opened(spark, write(tmp_path / "a.json", "{}"), input_format="json", input_schema="event_id strnig")


def test_json_times_do_not_depend_on_the_session_zone(spark, tmp_path):
    path = write(tmp_path / "a.json", '{"event_id":"a","at":"2026-11-20T10:00:00"}')
    with session(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
        source = opened(spark, path, input_format="json", input_schema="event_id string, at timestamp")
        assert source.decode(source.raw).selectExpr("unix_seconds(at) as s").first().s == datetime(2026, 11, 20, 10, tzinfo=timezone.utc).timestamp()


# --- Parquet, tables, Delta -------------------------------------------------------------------------------------

def test_an_id_that_is_no_uuid_is_fine_elsewhere_and_a_missing_one_is_bad(spark, tmp_path):
    spark.sql("select * from values ('Not a UUID', map('k', 1), 'x'), ('', null, 'y'), (null, null, 'z') as t(event_id, m, `odd.name`)").coalesce(1).write.parquet(str(tmp_path / "p"))
    source = opened(spark, tmp_path / "p", input_format="parquet")
    assert [(r.event_id, r.m, r["odd.name"]) for r in good_rows(source)] == [("Not a UUID", {"k": 1}, "x")]
    assert [b["data"]["failure"] for b in bad_rows(source)] == [{"timestamp": "1970-01-01T00:00:00Z", "errors": ["Field event_id cannot be empty"]}] * 2
    assert [json.loads(b["data"]["payload"]) for b in bad_rows(source)] == [{"event_id": "", "odd.name": "y"}, {"odd.name": "z"}]


def test_the_id_alone_is_one_parquet_column(spark, tmp_path):
    spark.sql("select 'a' as event_id, 'b' as wide").write.parquet(str(tmp_path / "p"))
    plan = opened(spark, tmp_path / "p", input_format="parquet").raw.select("_dd_id")._jdf.queryExecution().executedPlan().toString()
    assert "ReadSchema: struct<event_id:string>" in plan


def test_a_number_may_be_the_id(spark, tmp_path):
    spark.sql("select 7L as event_id").write.parquet(str(tmp_path / "p"))
    source = opened(spark, tmp_path / "p", input_format="parquet")
    assert [(r._dd_id, r.event_id) for r in source.decode(source.raw).collect()] == [("7", 7)]


def test_parquet_files_are_merged_by_name_and_partition_folders_are_columns(spark, tmp_path):
    spark.sql("select 'a' as event_id, 1 as n").write.parquet(str(tmp_path / "run=1" / "country=DE"))
    spark.sql("select 'b' as event_id, 'x' as s").write.parquet(str(tmp_path / "run=1" / "country=FR"))
    source = opened(spark, tmp_path, input_format="parquet")
    assert sorted((r.event_id, r.n, r.s, r.country) for r in good_rows(source)) == [("a", 1, None, "DE"), ("b", None, "x", "FR")]
    assert "run" not in source.columns


def test_parquet_files_that_disagree_are_named(spark, tmp_path):
    spark.sql("select 'a' as event_id, 1 as n").coalesce(1).write.parquet(str(tmp_path / "p" / "one"))
    spark.sql("select 'b' as event_id, 'x' as n").coalesce(1).write.parquet(str(tmp_path / "p" / "two"))
    with pytest.raises(InputError, match=r"Column n is string in .*/two/part-.*parquet, and int in the files before it"): opened(spark, tmp_path / "p", input_format="parquet")


def test_a_file_that_is_not_parquet_is_named(spark, tmp_path):
    with pytest.raises(InputError, match="a.parquet cannot be read.*input_format"): opened(spark, write(tmp_path / "a.parquet", "x" * 100), input_format="parquet")


def test_a_missing_id_column_names_the_nearest(spark, tmp_path):
    spark.sql("select 'a' as event_ids").write.parquet(str(tmp_path / "p"))
    with pytest.raises(MissingColumnError, match="event_ids"): opened(spark, tmp_path / "p", input_format="parquet")


def test_input_where_takes_a_slice(spark, tmp_path):
    spark.sql("select 'a' as event_id, 1 as n union all select 'b', 2").write.parquet(str(tmp_path / "p"))
    write(tmp_path / "j.json", '{"event_id":"a","n":1}', '{"event_id":"b","n":2}', "{broken")
    for source in (opened(spark, tmp_path / "p", input_format="parquet", input_where="n > 1"), opened(spark, tmp_path / "j.json", input_format="json", input_where="n > 1")):
        assert [r.event_id for r in good_rows(source)] == ["b"] and source.raw.where("_dd_id is not null").count() == 1
    assert [b["data"]["payload"] for b in bad_rows(source)] == ["{broken"]
    with pytest.raises(InputError, match="input_where = 'm > 1' does not fit"): opened(spark, tmp_path / "p", input_format="parquet", input_where="m > 1")


def test_a_table_is_read_by_name(spark):
    spark.sql("select 'a' as event_id union all select null").createOrReplaceTempView("some_events")
    source = opened(spark, "some_events", input_format="table")
    assert [r.event_id for r in good_rows(source)] == ["a"] and len(bad_rows(source)) == 1
    with pytest.raises(InputError, match="no_such_table"): opened(spark, "no_such_table", input_format="table")


def test_a_delta_folder_is_one_batch_as_it_was(spark, tmp_path):
    if "delta" not in spark.conf.get("spark.sql.extensions", "").lower(): pytest.skip("this session has no Delta")
    path = str(tmp_path / "run=2026-11-20")
    spark.sql("select 'a' as event_id").write.format("delta").save(path)
    config = Config(input=path, input_format="delta")
    [batch] = find_batches(config)
    source = read_batch(spark, batch, config)
    spark.sql("select 'b' as event_id").write.format("delta").mode("append").save(path)
    assert (batch.batch_id, batch.files) == ("2026-11-20", ()) and [r.event_id for r in good_rows(source)] == ["a"]
    assert source.raw.count() == 1


def test_a_folder_that_is_not_delta_is_said(spark, tmp_path):
    write(tmp_path / "x" / "a.txt", "x")
    with pytest.raises(InputError, match="elta"): opened(spark, tmp_path / "x", input_format="delta")


@pytest.mark.parametrize("more", [
    {"true_tstamp": "2026-11-20 10:00:00\u2028"}, {"true_tstamp": "\u0085"}, {"event_id": ID + "\u2028"},
    {"contexts": '{"schema":"%s","data":[{"schema":"iglu:a/b/jsonschema/1-0-0","data":{\'a\':1}}]}' % CONTEXTS},
    {"contexts": '{"schema":"%s","data":[{"schema":"iglu:a/b/jsonschema/1-0-0","data":{"a":"\x01"}}]}' % CONTEXTS},
    {"contexts": '{"schema":"%s","data":[{"schema":"iglu:a/b/jsonschema/1-0-0","data":{"a":"{{"}},"junk",{"k":{"z":"}}"}}]}' % CONTEXTS},
    {"contexts": '{"schema":"%s","data":[%s]}],"k":1} garbage' % (CONTEXTS, ITEM)},
    {"contexts": '1],"contexts":[{"schema":"%s","data":[%s]}' % (CONTEXTS, ITEM)},
    {"contexts": '{"schema":"%s\\n","data":[%s]}' % (CONTEXTS, ITEM)},
], ids=["line separator after a time", "next line as a time", "line separator after an id", "single quotes", "control character", "braces in strings", "garbage that closes early", "two values in a cell", "escaped line end in a schema"])
def test_cells_that_hide_something_are_bad(spark, tmp_path, more):
    source = opened(spark, write(tmp_path / "a.tsv", line(**more), line()))
    assert len(good_rows(source)) == 1 and len(bad_rows(source)) == 1


def test_a_second_object_on_a_json_line_makes_it_bad(spark, tmp_path):
    (tmp_path / "in.json").write_text('{"event_id":"a"}{"event_id":"b"}\n{"event_id":"c"} x\n{"event_id":"d"}  \n')
    source = opened(spark, tmp_path / "in.json", input_format="json")
    assert [r.event_id for r in good_rows(source)] == ["d"] and len(bad_rows(source)) == 2


def test_json_without_any_object_is_all_bad_and_an_empty_file_is_empty(spark, tmp_path):
    for name, text, bad in (("a.json", "", 0), ("b.json", "nothing\nat all\n", 2)):
        (tmp_path / name).write_text(text)
        source = opened(spark, tmp_path / name, input_format="json")
        assert good_rows(source) == [] and len(bad_rows(source)) == bad

"""Both ways to carry give the same rows: Arrow in tasks and Spark, whatever the types, files and ids."""

import json
import random
import shutil
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from evidence import lines_of
from inputs import MARK, line, write_lines
from odd_lines import CELLS, ENVELOPE, ITEM, odd_lines
from pyspark.sql import functions as F
from runs import SAMPLES

from dedup_nb import Config, run
from dedup_nb.base.errors import ConfigError, InputError
from dedup_nb.formats import parquet
from dedup_nb.pipeline import carry, decide, write
from dedup_nb.pipeline import run as run_of

SLOW = pytest.mark.slow
LONG_AGO = datetime(1400, 1, 1, tzinfo=timezone.utc)
KINDS = {  # of a column -> one of its values
    pa.int8(): lambda r: r.randint(-128, 127),
    pa.int32(): lambda r: r.randint(-(2**31), 2**31 - 1),
    pa.int64(): lambda r: r.randint(-(2**63), 2**63 - 1),
    pa.float32(): lambda r: r.choice([0.0, -0.0, 1.5, float("nan"), float("-inf")]),
    pa.float64(): lambda r: r.choice([0.0, -0.0, 0.1, 1e300, float("nan"), float("inf")]),
    pa.bool_(): lambda r: r.random() < 0.5,
    pa.string(): lambda r: r.choice(["", "a", "é\t\n", "x" * 300]),
    pa.large_string(): lambda r: r.choice(["", "b"]),
    pa.dictionary(pa.int32(), pa.string()): lambda r: r.choice(["red", "blue"]),
    pa.binary(): lambda r: r.choice([b"", b"\xff\x00"]),
    pa.date32(): lambda r: date(1400, 1, 1) + timedelta(r.randint(0, 300_000)),
    pa.timestamp("us", "UTC"): lambda r: LONG_AGO + timedelta(microseconds=r.randint(0, 25 * 10**15)),
    pa.timestamp("us"): lambda r: datetime(1400, 1, 1) + timedelta(microseconds=r.randint(0, 25 * 10**15)),
    pa.timestamp("ms", "UTC"): lambda r: LONG_AGO + timedelta(milliseconds=r.randint(0, 25 * 10**12)),
    pa.decimal128(9, 2): lambda r: Decimal(r.randint(-(10**8), 10**8)) / 100,
    pa.decimal128(38, 10): lambda r: Decimal(r.randint(-(10**20), 10**20)),
    pa.list_(pa.int32()): lambda r: [r.choice([1, None]) for _ in range(r.randint(0, 3))],
    pa.map_(pa.string(), pa.int64()): lambda r: [(f"k{n}", n) for n in range(r.randint(0, 3))],
    pa.struct([("a", pa.string()), ("b", pa.list_(pa.float64()))]): lambda r: {"a": "x", "b": [None, 1.0]},
}
IDS = {
    pa.string(): lambda r: r.choice(["", "é", "a/b", str(r.randint(0, 60)), "0f" * r.randint(1, 40)]),
    pa.int64(): lambda r: r.randint(-30, 30),
    pa.binary(): lambda r: bytes([r.randint(0, 60)]) * r.randint(0, 2),
}


def values(r, kind, make, number):
    return pa.array([None if r.random() < 0.15 else make(r) for _ in range(number)], kind)


def write_files(seed, folder):
    "Some files of some columns: not all files have all of them, or in this order. Their ids' columns."
    r = random.Random(seed)
    ids = {f"id{n}": r.choice([*IDS]) for n in range(r.choice([1, 1, 2]))}
    columns = {f"c{n}": kind for n, kind in enumerate(r.sample([*KINDS], r.randint(1, 8)))}
    Path(folder).mkdir(parents=True)
    for n in range(r.randint(1, 4)):
        names = [*ids, *(name for name in columns if r.random() < 0.8)]
        r.shuffle(names)
        number = r.choice([0, 1, 40, 200] if n else [1, 40, 200])
        table = {
            c: values(r, ids.get(c) or columns[c], {**KINDS, **IDS}[ids.get(c) or columns[c]], number)
            for c in names
        }
        pq.write_table(pa.table(table), f"{folder}/{n}.parquet", row_group_size=r.choice([7, 1000]))
    return [*ids]


def carried(spark, source, output, how, **more):
    "What a run leaves that carries in this way: the rows of all areas, their schemas, counts."
    settings = dict(input=source, output=output, input_format="parquet", manifest="none", carry=how)
    done = run(Config(**{**settings, "synthetic": "quarantine", **more}), spark).batches[0]
    areas, are_lines = {}, more.get("output_format") == "enriched_tsv"
    has_tables = more.get("output_format") in ("shredded", "wide_row")
    if has_tables:
        areas["events"] = sorted(lines_of_tables(Path(output, "events")))
        areas["columns"] = sorted((p.name, p.read_text()) for p in Path(output).rglob("jsonpaths/*.json"))
        assert areas["columns"] or more["output_format"] != "shredded"
    for area in ("dropped", "verdicts") if has_tables else ("events", "dropped", "verdicts"):
        reader = spark.read.text if area == "events" and are_lines else spark.read.parquet
        rows = reader(f"{output}/{area}/*/*")
        text = rows.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"}))
        areas[area] = rows.schema, sorted(r[0] for r in text.collect())
    areas["bad"] = (
        sorted(r.value for r in spark.read.text(f"{output}/bad/*/*").collect())
        if done["counts"]["bad"]
        else []
    )
    told = {
        name: done.get(name) for name in ("counts", "reasons", "verdicts", "hot_ids", "notes", "entities")
    }
    return areas | told, done["carried_by"]


def lines_of_tables(folder):
    "Each line with the folder of its table, without that of the attempt."
    for path in folder.rglob("part-*"):
        table = path.relative_to(folder).parts[:-2]
        yield from ((table, line) for line in path.read_bytes().splitlines())


def check_both_ways(spark, tmp_path, source, few=20_000, **more):
    with mock.patch.object(write, "_FEW_ROWS", -1):  # where keys lie changes nothing either
        by_spark, _ = carried(spark, source, f"{tmp_path}/spark", "spark", **more)
    with mock.patch.object(write, "_FEW_ROWS", few):
        by_arrow, said = carried(spark, source, f"{tmp_path}/arrow", "arrow", **more)
    assert said == "arrow"
    for area, found in by_spark.items():
        assert by_arrow[area] == found, area


def check_frame(spark, tmp_path, seed):
    ids = write_files(seed, f"{tmp_path}/in")
    # every second time all texts are read by their number, as of files that Spark wrote
    more = {"PLAIN", "RLE_DICTIONARY"} if seed % 2 else set()
    with mock.patch.object(parquet, "_NUMBERED", parquet._NUMBERED | more):
        check_both_ways(spark, tmp_path, f"{tmp_path}/in", event_id=ids, max_bad_share=1)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(n, marks=SLOW) for n in range(2, 12))])
def test_any_files_are_carried_alike(spark, tmp_path, seed):
    check_frame(spark, tmp_path, seed)


@pytest.mark.soak
def test_300_frames_are_carried_alike(spark, tmp_path):
    for seed in range(100, 400):
        check_frame(spark, tmp_path / str(seed), seed)
        shutil.rmtree(tmp_path / str(seed))


@pytest.fixture(scope="module")
def source(spark, tmp_path_factory):
    "Events as Spark writes them, with copies, a collision and a row without an id; several row groups."
    folder = f"{tmp_path_factory.mktemp('events')}/in"
    rows = spark.range(3000).selectExpr(
        "if(id = 7, null, if(id % 100 = 0, 'again' || id % 200, 'once' || id)) as event_id",
        "'f' || id % 3 as event_fingerprint",
        "timestamp_micros(id * 1000000) as collector_tstamp",
        "id as n",
        "parse_json('{\"a\": ' || id || '}') as v",
    )
    rows.drop("v").repartition(3, "n").write.option("parquet.block.size", 20_000).parquet(folder)
    rows.write.parquet(folder + "_variant")
    return folder


@SLOW
def test_an_id_that_is_no_text_repeats_like_any_other(spark, tmp_path):
    Path(tmp_path, "in").mkdir()
    ids = pa.array([b"\xff", b"a", b"\xff", b"\xfe"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"event_id": ids, "n": [1, 2, 3, 4]}), f"{tmp_path}/in/1.parquet")
    check_both_ways(spark, tmp_path, f"{tmp_path}/in")


@SLOW
def test_rows_with_one_place_in_the_order_are_told_apart_alike(spark, tmp_path):
    Path(tmp_path, "in").mkdir()
    r = random.Random(1)
    ids = [f"e{r.randint(0, 60)}" for _ in range(200)]
    columns = {"event_id": ids, "at": [r.randint(0, 2) for _ in ids], "n": [r.randint(0, 3) for _ in ids]}
    columns |= {"_row": [*map(str, range(200))], "derived_contexts": ["", None] * 100}
    pq.write_table(pa.table(columns), f"{tmp_path}/in/1.parquet", row_group_size=50)
    more = dict(order_by="at", synthetic="rename_later")
    check_both_ways(spark, tmp_path / "other", f"{tmp_path}/in", fingerprint_columns="n", **more)
    check_both_ways(spark, tmp_path / "same", f"{tmp_path}/in", missing_fingerprint="id", **more)


@SLOW
def test_rows_that_are_pairs_of_their_own_are_told_apart_alike(spark, tmp_path):
    Path(tmp_path, "in").mkdir()
    columns = {"event_id": ["a", "a", "b", "b", "c"], "event_fingerprint": [None, None, "f", "f", None]}
    pq.write_table(pa.table(columns | {"n": [1, 1, 2, 3, 4]}), f"{tmp_path}/in/1.parquet")
    more = dict(missing_fingerprint="unique")
    check_both_ways(spark, tmp_path, f"{tmp_path}/in", **more)
    settings = dict(input=f"{tmp_path}/in", output=f"{tmp_path}/json", manifest="none", output_format="json")
    [done] = run(Config(input_format="parquet", **settings, **more), spark).batches
    assert done["counts"]["kept"] + done["counts"]["dropped"] == 5
    rows = [json.loads(text) for _, text in lines_of_tables(tmp_path / "json/events")]
    assert not any("_dd_place" in row for row in rows)


def test_files_without_rows(spark, tmp_path):
    Path(tmp_path, "in").mkdir()
    pq.write_table(pa.table({"event_id": pa.array([], pa.string())}), f"{tmp_path}/in/1.parquet")
    _, said = carried(spark, f"{tmp_path}/in", f"{tmp_path}/out", "auto")
    assert said == "spark: no rows"


@pytest.mark.parametrize(
    "kind", ["INT96", *(pytest.param(f"TIMESTAMP_{s}", marks=SLOW) for s in ("MILLIS", "MICROS"))]
)
def test_times_as_writers_store_them(spark, source, tmp_path, kind):
    name = "spark.sql.parquet.outputTimestampType"
    before = spark.conf.get(name)
    spark.conf.set(name, kind)
    inside = ("struct(collector_tstamp as t, n) as s", "array(map(n, collector_tstamp), null) as l")
    spark.read.parquet(source).selectExpr("*", *inside).write.parquet(f"{tmp_path}/in")
    spark.conf.set(name, before)
    check_both_ways(spark, tmp_path, f"{tmp_path}/in", synthetic="rename_later")


@SLOW
@pytest.mark.parametrize("parts, few", [(7, -1), (1, 20_000), (2, -1)])
def test_the_number_of_parts_changes_nothing(spark, source, tmp_path, parts, few, monkeypatch):
    monkeypatch.setattr(carry, "size_of_parts", lambda spark, size: size // parts)
    check_both_ways(spark, tmp_path, source, few, synthetic="rename_later")
    assert len(list(Path(tmp_path, "arrow/events").rglob("part-?????.parquet"))) == min(parts, 6)


@SLOW
@pytest.mark.parametrize("few", [-1, 20_000])
def test_a_part_may_set_bad_rows_aside_alone(spark, tmp_path, few, monkeypatch):
    monkeypatch.setattr(carry, "size_of_parts", lambda spark, size: 1)
    Path(tmp_path, "in").mkdir()
    for name, ids in {"a": [None, None], "b": ["x", "x", "y"], "c": ["z", "x"]}.items():
        rows = pa.table({"event_id": pa.array(ids, pa.string()), "event_fingerprint": ["f"] * len(ids)})
        pq.write_table(rows, f"{tmp_path}/in/{name}.parquet")
    check_both_ways(spark, tmp_path, f"{tmp_path}/in", few, max_bad_share=1)


@SLOW
def test_texts_of_rows_that_go_are_in_no_file_of_those_that_stay(spark, tmp_path):
    rows = spark.range(0, 4000, 1, 2).selectExpr(
        "string(id % 3900) as event_id",
        "'f' as event_fingerprint",
        "if(id >= 3900, 'of a copy', string(id % 7)) as t",
        "id as n",
    )
    rows.write.parquet(f"{tmp_path}/in")
    run(Config(input=f"{tmp_path}/in", output=f"{tmp_path}/out", carry="arrow", order_by="n"), spark)
    texts = set()
    for path in Path(tmp_path, "out/events").rglob("*.parquet"):
        for part in pq.ParquetFile(path, read_dictionary=["t"]).read()["t"].chunks:
            texts |= set(part.dictionary.to_pylist())
    assert texts == {str(n) for n in range(7)}


@SLOW
def test_natural_off_and_a_manifest(spark, source, tmp_path):
    check_both_ways(spark, tmp_path / "off", source, natural="off", synthetic="off")
    check_both_ways(spark, tmp_path / "lake", source, manifest="lake")


@SLOW
@pytest.mark.parametrize("order", ["e, s.u", "s.t"])
def test_rows_without_a_fingerprint_have_the_same_keys_whoever_reads_them(
    spark, tmp_path, monkeypatch, order
):
    rows = spark.range(0, 3000, 1, 2).selectExpr(
        "string(id % 2900) as event_id",
        "case id % 5 when 0 then null when 1 then '' else 'f' || id % 3 end as event_fingerprint",
        "named_struct('t', nullif(id, 5), 'u', nullif(id % 9, 5)) as s",
        "timestamp_seconds(3000 - id) as `s.t`",
        "array(cast(id as decimal(9, 2)), null) as l",
        "string(id % 4) as e",
    )
    rows.write.parquet(f"{tmp_path}/in")
    split, taken, keys = carry.split_by_fingerprint, [], {}
    monkeypatch.setattr(carry, "_LARGE", 1)
    monkeypatch.setattr(
        run_of, "split_by_fingerprint", lambda *given: taken.append(split(*given)) or taken[-1]
    )
    for how in ("spark", "arrow"):
        output = f"{tmp_path}/{how}"
        more = dict(manifest="lake", order_by=order)
        keys[how] = [carried(spark, f"{tmp_path}/in", output, how, **more)[0]]
        known = spark.read.format("delta").load(f"{output}/manifest").where("kind = 'key'")
        keys[how] += sorted(map(str, known.select("hi", "lo", "packed", "pair", "fate").collect()))
    assert keys["arrow"] == keys["spark"] and len(keys["arrow"]) > 2900
    assert [batch.judged is batch.raw for batch in taken] == [True, False]  # by Spark, by Arrow


@SLOW
def test_entities_are_judged_before_a_manifest_knows_their_events(spark, tmp_path, monkeypatch):
    write_lines(tmp_path / "lines/run=1/a", *(line(page_title=t) for t in "abc"))
    [made] = run(Config(input=f"{tmp_path}/lines", output=f"{tmp_path}/rows", manifest="none"), spark).batches
    rows = spark.read.parquet(f"{tmp_path}/rows/events/*/*")
    broken = F.expr("if(page_title = 'b', '{', contexts)")
    rows = rows.drop("original_event_id").withColumns(
        {"contexts": broken, "event_fingerprint": F.col("page_title")}
    )
    rows.write.parquet(f"{tmp_path}/in")
    monkeypatch.setattr(carry, "_LARGE", 1)
    settings = dict(input=f"{tmp_path}/in", output=f"{tmp_path}/out", output_format="shredded")
    [done] = run(Config(**settings, input_format="parquet", manifest="lake"), spark).batches
    assert (made["counts"]["kept"], done["counts"]["bad"], done["counts"]["kept"]) == (3, 1, 2)


@pytest.fixture
def table(spark, tmp_path):
    "A Delta table in which a column came later."
    rows = spark.range(300).selectExpr("string(id % 290) as event_id", "'f' as event_fingerprint", "id as n")
    rows.repartition(2).write.format("delta").save(f"{tmp_path}/a b/table")
    more = rows.limit(20).selectExpr("*", "timestamp_seconds(n) as etl_tstamp")
    more.write.format("delta").option("mergeSchema", True).mode("append").save(f"{tmp_path}/a b/table")
    return f"{tmp_path}/a b/table"


@SLOW
def test_a_table_and_what_it_got_later(spark, tmp_path, table):
    check_both_ways(spark, tmp_path, table, input_format="delta")
    settings = dict(input=table, output=f"{tmp_path}/out", input_format="delta", carry="arrow")
    for number in (320, 20):
        [metrics] = run(Config(**settings), spark).batches
        assert (metrics["counts"]["read"], metrics["carried_by"]) == (number, "arrow")
        again = spark.read.format("delta").load(table).limit(20).withColumn("n", F.col("n") + 1000)
        again.write.format("delta").mode("append").save(table)


def test_a_table_without_rows_is_no_reason_against_arrow(spark, tmp_path):
    rows = spark.createDataFrame([], "event_id string, event_fingerprint string")
    rows.write.format("delta").save(f"{tmp_path}/in")
    settings = dict(input=f"{tmp_path}/in", output=f"{tmp_path}/out", input_format="delta", carry="arrow")
    [metrics] = run(Config(**settings), spark).batches
    assert metrics["counts"]["read"] == 0


ODD_TABLES = {  # a property of a table -> why Spark carries
    "partitions": "the table is partitioned by event_fingerprint",
    "delta.enableDeletionVectors": "the table may have deletion vectors",
    "delta.columnMapping.mode": "delta.columnMapping.mode of the table",
}


@pytest.mark.parametrize("odd", ODD_TABLES)
def test_tables_whose_files_do_not_say_their_rows(spark, tmp_path, odd):
    writer = spark.range(30).selectExpr("string(id) as event_id", "'f' as event_fingerprint", "id as n").write
    if odd == "partitions":
        writer = writer.partitionBy("event_fingerprint")
    else:
        writer = writer.option(odd, "name" if "mode" in odd else "true")
    writer.format("delta").save(f"{tmp_path}/in")
    if "Vectors" in odd:
        spark.sql(f"delete from delta.`{tmp_path}/in` where n = 3")
    settings = dict(input=f"{tmp_path}/in", output=f"{tmp_path}/out", input_format="delta", manifest="none")
    [metrics] = run(Config(**settings), spark).batches
    assert metrics["carried_by"] == f"spark: {ODD_TABLES[odd]}"
    assert metrics["counts"]["read"] == (29 if "Vectors" in odd else 30)


ASIDE = {  # Spark writes, or nobody: Arrow only picks the rows that need a look
    "parquet": [dict(mode="decide"), dict(output_format="json"), dict(partition_by="event_fingerprint")],
    "enriched_tsv": [dict(mode="decide"), dict(output_format="json")],
}


@pytest.mark.parametrize("kind, more", [(kind, more) for kind in ASIDE for more in ASIDE[kind]], ids=str)
def test_where_spark_writes_arrow_picks_the_suspects(spark, source, tmp_path, kind, more):
    write_lines(tmp_path / "lines/run=1/a", *odd_lines(200), *(line(page_title=t) for t in "abb"))
    place = source if kind == "parquet" else f"{tmp_path}/lines"
    found = {}
    for how in ("spark", "auto"):
        settings = dict(
            input=place, output=f"{tmp_path}/{how}", input_format=kind, manifest="none", carry=how
        )
        [done] = run(Config(**{**settings, "minimum_timestamp": None, **more}), spark).batches
        written = [
            p for area in ("events", "bad", "dropped") for p in Path(tmp_path, how, area).rglob("part-*")
        ]
        lines = sorted(x for p in written if p.suffix == ".txt" for x in p.read_bytes().splitlines())
        verdicts = spark.read.parquet(f"{tmp_path}/{how}/verdicts/*/*").collect()
        told = [done[name] for name in ("counts", "reasons", "verdicts", "hot_ids", "notes")]
        found[how] = told, sorted(map(str, verdicts)), lines
        assert done["carried_by"] == (None if "mode" in more else f"spark: {said_of(how, more)}")
    assert found["auto"] == found["spark"] and found["auto"][1]


def said_of(how, more):
    [(name, value)] = more.items()
    return "carry=spark" if how == "spark" else name if name == "partition_by" else f"{name}={value}"


REASONS = {  # why Spark carries: settings, or what is special about the files
    "carry=spark": dict(carry="spark"),
    "output_format=json": dict(output_format="json"),
    "partition_by": dict(partition_by="collector_tstamp:date"),
    "input_where": dict(input_where="n > 5"),
    "the type of v": dict(),
    "the type of collector_tstamp": dict(event_id="collector_tstamp", synthetic="off"),
}


@pytest.mark.parametrize("why", REASONS)
def test_what_arrow_does_not_surely_know_is_left_to_spark(spark, source, tmp_path, why):
    settings = dict(input=source + "_variant" if why == "the type of v" else source, output=f"{tmp_path}/out")
    settings |= dict(input_format="parquet", manifest="none") | REASONS[why]
    [metrics] = run(Config(**settings), spark).batches
    assert metrics["carried_by"] == f"spark: {why}"
    if "carry" not in REASONS[why]:
        with pytest.raises(
            ConfigError, match=f"carry=arrow: Arrow cannot carry this batch: {why}. Leave carry"
        ):
            run(Config(**{**settings, "output": f"{tmp_path}/other"}, carry="arrow"), spark)
        assert not Path(tmp_path, "other/events").exists()


def test_a_default_is_what_spark_reads_where_a_file_lacks_the_column(spark, tmp_path):
    spark.sql("select '1' as event_id").write.parquet(f"{tmp_path}/in")
    later = spark.sql("select '2' as event_id, 'new' as c").withMetadata("c", {"EXISTS_DEFAULT": "'old'"})
    later.write.mode("append").parquet(f"{tmp_path}/in")
    config = Config(input=f"{tmp_path}/in", output=f"{tmp_path}/out", input_format="parquet", manifest="none")
    [done] = run(config, spark).batches
    assert done["carried_by"] == "spark: c has a default"
    kept = spark.read.parquet(f"{tmp_path}/out/events/*/*")
    assert {r.event_id: r.c for r in kept.collect()} == {"1": "old", "2": "new"}


def test_large_suspects_are_set_aside_a_few_at_a_time(spark, source, tmp_path):
    with mock.patch.object(parquet, "_BATCH", 1):
        check_both_ways(spark, tmp_path, source)


def test_one_large_part_is_carried_in_a_task(spark, source, tmp_path):
    with mock.patch.object(carry, "_LITTLE", -1):
        check_both_ways(spark, tmp_path, source)


def test_a_damaged_file_is_named_and_leaves_nothing(spark, source, tmp_path):
    shutil.copytree(source, f"{tmp_path}/in")
    file = next(Path(tmp_path, "in").glob("*.parquet"))
    about = pq.read_metadata(file).row_group(0).column(3)  # n, which nothing but the pass reads
    damaged = bytearray(file.read_bytes())
    damaged[about.data_page_offset : about.data_page_offset + 40] = b"\xff" * 40
    file.write_bytes(damaged)
    for how in ("spark", "arrow"):
        with pytest.raises(InputError, match=f"{file.name} cannot be read to its end"):
            carried(spark, f"{tmp_path}/in", f"{tmp_path}/{how}", how)
        assert not [p for p in Path(tmp_path, how).rglob("*.parquet")]


# --- lines


TABLES = dict(output_format="shredded", shred_layout="classic"), dict(output_format="wide_row")
SKIP = "iglu:com.snowplowanalytics.snowplow/web_page/jsonschema/1-*-*"
OTHERS = [
    dict(output_format="enriched_tsv"),
    dict(manifest="lake"),
    dict(output_format="shredded", shred_layout="6.x", skip_schemas=SKIP),
    dict(output_format="wide_row", compat="snowplow"),
]


@pytest.mark.parametrize("more", [{}, *TABLES, *(pytest.param(more, marks=SLOW) for more in OTHERS)], ids=str)
def test_lines_are_carried_alike(spark, tmp_path, more):
    odd = [line(**{name: cell}) for name, cells in CELLS.items() for cell in cells]
    write_lines(tmp_path / "in/run=1/a", *odd, *odd_lines(400), end="\r\n")
    write_lines(
        tmp_path / "in/run=1/b.gz", MARK + line().upper().encode(), b"\xff\t" * 131, "", *odd_lines(20, 9)
    )
    Path(tmp_path, "in/run=1/c").write_text("\n".join(lines_of(next(SAMPLES.glob("run=*18*/*")))), "utf-8")
    duplicate = "iglu:com.snowplowanalytics.snowplow/duplicate/jsonschema/1-0-0"
    other = [line(event_id=f"{n:08x}-0000-4000-8000-000000000000", page_title=t) for n, t in enumerate("ab")]
    named = line(
        event_id=f"{2:08x}-0000-4000-8000-000000000000", derived_contexts=ENVELOPE % (ITEM % f'"{duplicate}"')
    )
    write_lines(tmp_path / "in/run=1/d", *(x.encode().replace(b"\tb\t", b"\t\xff\t") for x in other), named)
    settings = dict(input_format="enriched_tsv", synthetic="rename_later", minimum_timestamp="2010-01-01")
    check_both_ways(spark, tmp_path, f"{tmp_path}/in", **settings, **more)


@SLOW
def test_lines_with_one_place_in_the_order_are_told_apart_alike(spark, tmp_path):
    "Which of them stays is of their values, then of how these are written, and never of where they lie."
    r = random.Random(1)
    lines = []
    for _ in range(120):
        name = f"{r.randint(0, 5):08x}-0000-4000-8000-000000000000"
        cells = dict(
            collector_tstamp=f"2026-11-20 10:00:0{r.randint(0, 1)}", event_fingerprint=r.choice("ab")
        )
        cells |= dict(page_title=r.choice("xy"), tr_total=r.choice(["1.5", "1.50"]))
        lines.append(line(event_id=name, etl_tstamp="2026-11-20 11:00:00", **cells))
    kept = []
    for turn in range(2):
        source = tmp_path / f"in{turn}"
        write_lines(source / "run=1/a", *lines[:70])
        write_lines(source / "run=1/b", *lines[70:])
        settings = dict(input_format="enriched_tsv", output_format="enriched_tsv", synthetic="rename_later")
        check_both_ways(spark, tmp_path / f"out{turn}", f"{source}", **settings)
        kept.append(sorted(lines_of_tables(tmp_path / f"out{turn}/arrow/events")))
        r.shuffle(lines)
    assert [text for _, text in kept[0]] == [text for _, text in kept[1]]


def test_lines_that_arrow_judges_and_spark_writes(spark, tmp_path):
    "A line that only names the schema of renamed events; other formats than Arrow's."
    duplicate = "iglu:com.snowplowanalytics.snowplow/duplicate/jsonschema/1-0-0"
    named = line(derived_contexts=ENVELOPE % (ITEM % f'"{duplicate}"'))
    write_lines(tmp_path / "in/run=1/a", named, line(event_id=f"{2:08x}-0000-4000-8000-000000000000"))
    settings = dict(input=f"{tmp_path}/in", output=f"{tmp_path}/out", manifest="none", output_format="json")
    [done] = run(Config(**settings), spark).batches
    assert done["carried_by"] == "spark: output_format=json" and done["counts"]["kept"] == 2


def test_a_damaged_file_of_lines_is_named(spark, tmp_path):
    path = write_lines(tmp_path / "in/run=1/a.gz", *odd_lines(300))
    path.write_bytes(path.read_bytes()[:-500])
    for how in ("spark", "arrow"):
        settings = dict(input=f"{tmp_path}/in", output=f"{tmp_path}/{how}", manifest="none", carry=how)
        with pytest.raises(InputError, match="a.gz cannot be read to its end"):
            run(Config(**settings), spark)


# --- few rows, of which this process reads the ids ---


def ids_and_times(seed, path):
    "Rows with ids of two kinds, some of them empty, and times around 1970, with and without a zone."
    r = random.Random(seed)
    text, number = (values(r, kind, IDS[kind], 90) for kind in (pa.string(), pa.int64()))
    utc, local = (
        values(r, kind, KINDS[kind], 90) for kind in (pa.timestamp("us", "UTC"), pa.timestamp("us"))
    )
    nobody = pa.nulls(90, pa.timestamp("us"))
    rows = pa.table([text, number, utc, local, nobody], names=["id", "n", "utc", "local", "nobody"])
    pq.write_table(rows, path / "a.parquet", row_group_size=r.randint(10, 100))
    pq.write_table(
        rows.drop_columns(["utc"]),
        path / "b.parquet",
        coerce_timestamps="ms",
        allow_truncated_timestamps=True,
    )


@pytest.mark.parametrize("id", ["id", "n", "id,n"])
@pytest.mark.parametrize("natural", ["keep_first", "off"])
def test_this_process_finds_the_ids_of_few_rows_that_spark_finds(spark, tmp_path, monkeypatch, id, natural):
    monkeypatch.setattr(write, "_FEW_ROWS", 20_000)
    source = tmp_path / "in/run=a"
    source.mkdir(parents=True)
    ids_and_times(len(id), source)
    scans, scan = [], decide._scan_without_manifest

    def both(job, source, keys, attempt, plan, timed):
        here, by_spark = (scan(job, source, keys, attempt, which, True) for which in (plan, None))
        ids = [sorted(row._dd_hash for row in each.ids.frame.collect()) for each in (here, by_spark)]
        assert ids[0] == ids[1] and (here.hours, here.read) == (by_spark.hours, by_spark.read)
        scans.append((plan, here.hours, ids[0]))
        return here

    monkeypatch.setattr(decide, "_scan_without_manifest", both)
    monkeypatch.setattr(decide, "_scan_here", spied := mock.Mock(wraps=decide._scan_here))
    given = dict(input_format="parquet", event_id=id, order_by="utc,local,nobody", missing_fingerprint="id")
    given |= dict(manifest="none", natural=natural, synthetic="off")
    config = Config(input=f"{tmp_path}/in", output=f"{tmp_path}/out", **given)
    run(config, spark)
    [(plan, hours, ids)] = scans
    assert spied.call_count == 1 and plan and ids and len(hours) == 3 and hours[2] is None
    assert (len(ids) > 1) == (natural != "off")


@pytest.mark.parametrize("more", [dict(carry="spark"), dict(order_by="sent"), dict(manifest="lake")], ids=str)
def test_what_this_process_does_not_read_spark_reads(spark, tmp_path, monkeypatch, more):
    monkeypatch.setattr(write, "_FEW_ROWS", 20_000)
    monkeypatch.setattr(decide, "_scan_here", mock.Mock(side_effect=AssertionError("read here")))
    rows = pa.table(
        {"event_id": ["a", "a", "b"], "event_fingerprint": ["f", "g", "f"], "sent": ["1", "2", "3"]}
    )
    (tmp_path / "in").mkdir()
    pq.write_table(rows, tmp_path / "in/a.parquet")
    given = dict(manifest="none", input_format="parquet", order_by="") | more
    done = run(Config(input=f"{tmp_path}/in", output=f"{tmp_path}/out", **given), spark)
    assert done.counts["read"] == 3

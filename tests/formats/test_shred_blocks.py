"""What Python writes of lines in Arrow's pass is what Spark writes; whatever is odd it leaves to Spark."""

import json

import pytest
from inputs import line
from odd_lines import CELLS, ENVELOPE, ITEM, odd_lines
from pyspark.sql import functions as F

from dedup_nb.formats.enriched import decoded, with_small_id
from dedup_nb.formats.shred import LAYOUTS, entity_types, shredded, wide_lines
from dedup_nb.formats.shred_blocks import TableRules, shred_block, sum_types

SKIP = ("iglu:com.snowplowanalytics.snowplow/web_page/jsonschema/1-*-*",)
MORE = {  # cells that are right; only some are written as they came
    "contexts": [
        ENVELOPE % (ITEM % text)
        for text in (
            '"\\u00e4"',
            '"ä\u2028"',
            "1.5",
            "1.50",
            "[1,null]",
            " 1",
            '"😀"',
            "[" * 30 + "0.0001" + "]" * 30,
        )
    ],
    "derived_contexts": [ENVELOPE % f"{ITEM % 1},{ITEM % 2}"],
    "page_title": ['a "b"', "a\\b", "\ufffd", "\x01", ""],
    "geo_latitude": ["52.5", "-0.0001", "0.001", "1", "1e3"],
}


@pytest.fixture(scope="module")
def events(spark):
    "Lines that are events, many of them odd, with ids in lower case."
    odd = [line(**{name: cell}) for cells in (CELLS, MORE) for name in cells for cell in cells[name]]
    odd += [line(geo_latitude="1.5", geo_longitude="2.5", contexts=cell) for cell in MORE["contexts"]]
    odd += [
        line(contexts=cell, **{n: c[0] for n, c in MORE.items() if n != "contexts"})
        for cell in MORE["contexts"]
    ]
    rows = spark.createDataFrame(
        [(text, text) for text in [*odd, *odd_lines(1500)]], "value string, line string"
    )
    good = decoded(rows).where("_dd_good").select(with_small_id(F.col("line")).alias("value"))
    return [row.value for row in good.collect()]


def split(events, rules):
    found = shred_block("".join(f"{text}\n" for text in events).encode(), rules)
    left = set(found.left)
    sure = [text for text in events if text.encode() not in left]
    assert len(events) / 2 < len(sure) < len(events)
    return found, sure


def members_in(texts):
    "The names in the data of the lines of entities, by schema."
    members = {}
    for entity in (json.loads(text) for text in texts if text.startswith("{")):
        vendor, name, form, version = entity["schema"].values()
        schema = f"iglu:{vendor}/{name}/{form}/{version}"
        members.setdefault(schema, set()).update(entity["data"])
    return members


@pytest.mark.parametrize("layout, skip", [*((layout, ()) for layout in LAYOUTS), ("5.x", SKIP)])
def test_tables_of_sure_lines_are_those_of_spark(spark, events, layout, skip):
    found, sure = split(events, TableRules(layout, skip))
    lines = spark.createDataFrame([(text,) for text in sure], "value string")
    by_spark = [row.value for row in shredded(lines, layout, skip).collect()]
    texts = [text for folder, texts in found.lines.items() for text in texts if folder != "atomic-events"]
    assert sorted(texts) == sorted(by_spark)
    told = {(row["kind"], row["schema"]): row["members"] for row in found.types}
    counted = [row.asDict() for row in entity_types(lines, skip).collect()]
    counted = [{**row, "members": told[row["kind"], row["schema"]]} for row in counted]
    by_name = lambda rows: sorted(map(str, rows))
    assert by_name(found.types) == by_name(sum_types(found.types)) == by_name(counted)
    found_there = members_in(by_spark)
    assert {schema: {*told[kind, schema]} for kind, schema in told if kind} == found_there


@pytest.mark.parametrize("compat, skip", [("none", ()), ("snowplow", SKIP)])
def test_wide_rows_of_sure_lines_are_those_of_spark(spark, events, compat, skip):
    found, sure = split(events, TableRules(None, skip, compat))
    lines = spark.createDataFrame([(text,) for text in sure], "value string")
    [objects] = found.lines.values()
    assert sorted(objects) == sorted(row.value for row in wide_lines(lines, compat, skip).collect())

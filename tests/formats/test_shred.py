"""Events become tables: recorded cases of the transformer, odd JSON, and the join back."""

import json

import pytest
from entities import BASE, ENVELOPE, entity, envelope, frame_of_lines, line_of
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from dedup_nb.base.errors import ConfigError, MissingColumnError
from dedup_nb.formats.enriched import ENRICHED, decoded, with_line_ids
from dedup_nb.formats.shred import (
    ATOMIC,
    LAYOUTS,
    entities_of,
    entity_types,
    shred,
    shredded,
    wide_lines,
    wide_row,
)

CASES = ["LinkClickEventSpec", "MultipleJsonsSpec", "DerivedContextsSpec", "EventDeduplicationSpec_disabled"]


def events_of(lines):
    "The good events of lines."
    names = [name for name, _ in ENRICHED]
    return decoded(with_line_ids(lines, "value"), None).where("_dd_good").select(*names)


@pytest.fixture
def recorded(spark, conformance):
    def of(case):
        folder = conformance / "snowplow" / case
        expected = json.loads((folder / "case.json").read_text())["good"]
        tables = {name: (folder / file).read_text().splitlines() for name, file in expected.items()}
        return frame_of_lines(spark, (folder / "input.tsv").read_text()), tables

    return of


def dummied(line):
    "A line whose event id is of no interest."
    if line.startswith("{"):
        told = json.loads(line)
        told["hierarchy"]["rootId"] = ""
        return json.dumps(told)
    cells = line.split("\t")
    return "\t".join([*cells[:6], "", *cells[7:]])


@pytest.mark.parametrize("case", CASES)
def test_recorded_events_become_the_recorded_tables(recorded, case):
    lines, expected = recorded(case)
    found = {}
    for r in shredded(lines, "5.x").collect():
        folder = f"vendor={r.vendor}/name={r.name}/format={r.format}/model={r.model}"
        found.setdefault(folder, []).append(r.value)
    same = dummied if "Deduplication" in case else str
    assert {name: sorted(map(same, rows)) for name, rows in found.items()} == {
        name: sorted(map(same, rows)) for name, rows in expected.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_frames_are_shredded_as_lines_are(recorded, case):
    lines, _ = recorded(case)
    tables = shred(events_of(lines))
    by_line = shredded(lines, "5.x").where("name <> 'atomic'")
    line = '{{"schema":{schema},"data":{data},"hierarchy":{hierarchy}}}'.format
    found = [line(**r.asDict()) for frame in tables.entities.values() for r in frame.collect()]
    assert sorted(found) == sorted(r.value for r in by_line.collect())
    assert tables.types == sorted({f"{r.vendor}/{r.name}/{r.model}" for r in by_line.collect()})
    assert tables.atomic.columns == [name for name, _ in ATOMIC] and len(tables.atomic.columns) == 128
    assert dict(tables.atomic.dtypes)["collector_tstamp"] == "timestamp"
    for name, frame in tables.entities.items():
        rows = [r.asDict() for r in frame.collect()]
        assert all(json.loads(text) for row in rows for text in row.values())
        assert {json.loads(r["schema"])["name"] for r in rows} == {name.split("/")[1]}


def test_recorded_types_are_found(spark, conformance):
    folder = conformance / "snowplow" / "AccumulatorSpec"
    types = entity_types(frame_of_lines(spark, (folder / "input.tsv").read_text())).collect()
    found = {(r.schema, r.kind, r.number) for r in types}
    # we write JSON alone
    [expected] = [
        c for c in json.loads((folder / "expected_types.json").read_text()) if c["default"] == "JSON"
    ]
    assert found == {(t["schemaKey"], t["snowplowEntity"], 1) for t in expected["types"]}


def test_recorded_events_become_the_recorded_wide_rows(recorded):
    lines, expected = recorded("WideRowJsonSpec")
    good = decoded(with_line_ids(lines, "value").withColumn("_dd_line", F.col("value")), None)
    kept = good.where("_dd_good").selectExpr("_dd_line as value")
    found = {(row := json.loads(r.value))["event_id"]: row for r in wide_lines(kept, "snowplow").collect()}
    recorded_rows = {(row := json.loads(text))["event_id"]: row for text in expected["output=good"]}
    assert found == recorded_rows and len(found) == 48


# --- odd events ---


def dicts_of(frame):
    return [r.asDict() for r in frame.collect()]


def test_the_text_of_an_entity_stays_as_it_came_without_white_space(spark):
    data = '{ "b" : 1.50,  "a": [ 1E5 , "x  \\" y\\u00e9 \\\\" , {"z" : null} ], '
    data += '"n":123456789012345678901234567890 }'
    text = '{"schema":"%s","data":[ {"schema":"iglu:a/b/jsonschema/1-0-0", "data":%s} ]}'
    lines = frame_of_lines(spark, line_of(contexts=text % (ENVELOPE.format("contexts"), data)))
    [found] = entities_of(events_of(lines)).collect()
    expected = '{"b":1.50,"a":[1E5,"x  \\" y\\u00e9 \\\\",{"z":null}],"n":123456789012345678901234567890}'
    assert found.data == expected and found.root_tstamp == "2026-11-20 10:00:00.123"
    assert found.root_id == BASE["event_id"].lower()


def test_entities_come_in_the_order_of_the_original(spark):
    texts = {
        "contexts": envelope("contexts", [entity("c", {"n": 1}), entity("c", {"n": 2})]),
        "derived_contexts": envelope("contexts", [entity("d", {"n": 3})]),
        "unstruct_event": envelope("unstruct_event", entity("u", {"n": 4}, "2-0-1")),
    }
    found = dicts_of(entities_of(events_of(frame_of_lines(spark, line_of(**texts)))))
    assert [(r["name"], r["kind"], r["version"], r["model"], r["data"]) for r in found] == [
        ("u", "SELF_DESCRIBING_EVENT", "2-0-1", "2", '{"n":4}'),
        ("d", "CONTEXT", "1-0-0", "1", '{"n":3}'),
        ("c", "CONTEXT", "1-0-0", "1", '{"n":1}'),
        ("c", "CONTEXT", "1-0-0", "1", '{"n":2}'),
    ]


@pytest.mark.slow
def test_an_event_with_500_contexts_and_one_of_ten_megabytes(spark):
    many = envelope("contexts", [entity(f"c{n % 60}", {"n": n}) for n in range(500)])
    large = envelope("contexts", [entity("large", {"text": "x" * 10_000_000})])
    found = shredded(
        frame_of_lines(spark, "\n".join([line_of(contexts=many), line_of(contexts=large)])), "6.x"
    )
    counts = {r.name: r["count"] for r in found.groupBy("name").count().collect()}
    assert counts["atomic"] == 2 and counts["large"] == 1 and sum(counts.values()) == 503
    assert found.where("name = 'large'").first().value.count("x") >= 10_000_000


@pytest.mark.slow
@pytest.mark.parametrize(
    "layout, folders",
    [
        ("classic", ["com.acme", "c", "jsonschema", "2-3-4"]),
        ("5.x", ["com.acme", "c", "json", "2"]),
        ("6.x", ["com.acme", "c", "json", "2", "3", "4"]),
    ],
)
def test_layouts_have_their_own_folders(spark, layout, folders):
    lines = frame_of_lines(spark, line_of(contexts=envelope("contexts", [entity("c", {}, "2-3-4")])))
    found = shredded(lines, layout)
    assert found.columns == [*LAYOUTS[layout], "value"]
    assert [list(r)[:-1] for r in found.where("name = 'c'").collect()] == [folders]
    assert found.where("name = 'atomic'").count() == (layout != "classic")


def test_skipped_schemas_stay_out(spark):
    contexts = envelope("contexts", [entity("c", {}), entity("d", {}), entity("c", {}, "2-0-0")])
    lines = frame_of_lines(spark, line_of(contexts=contexts))
    found = shredded(lines, "5.x", skip=["iglu:com.acme/c/jsonschema/1-*-*"])
    assert sorted((r.name, r.model) for r in found.collect()) == [("atomic", "1"), ("c", "2"), ("d", "1")]


WRONG = [
    "&&&",
    '{"schema":"x"}',
    envelope("contexts", [{"schema": "no uri", "data": {}}]),
    '{"data":[{"a":1}]}',
]


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_entity_is_an_error_and_never_passed_over(spark, text):
    events = events_of(frame_of_lines(spark, line_of())).withColumn("contexts", F.lit(text))
    with pytest.raises(PySparkException, match="has in contexts no self-describing JSON"):
        entities_of(events).collect()


def test_what_shred_needs_is_said(spark):
    events = events_of(frame_of_lines(spark, line_of()))
    assert shred(events).types == [] and shred(events).atomic.count() == 1
    with pytest.raises(MissingColumnError, match="missing: event_id"):
        shred(events.drop("event_id"))
    with pytest.raises(MissingColumnError, match="missing: unstruct_event, derived_contexts, contexts"):
        shred(events.drop("contexts", "derived_contexts", "unstruct_event"))
    with pytest.raises(ConfigError, match="vendor/name/model"):
        shred(events, types=["link_click"])
    with pytest.raises(ConfigError, match="vendor/name/model"):
        wide_row(events, types=["com.acme/it's/1"])


def test_atomic_rows_have_times_to_the_millisecond_and_decimal_doubles(spark):
    values = {
        "etl_tstamp": "2026-11-20T10:00:00",
        "dvce_created_tstamp": "-0044-03-15 00:00:00.9999",
        "geo_latitude": "1e-5",
        "se_value": "10",
        "txn_id": "+007",
        "br_features_pdf": "1",
        "page_title": "a  b",
    }
    [row] = shredded(frame_of_lines(spark, line_of(**values))).collect()
    found = dict(zip([name for name, _ in ATOMIC], row.value.split("\t")))
    assert {name: found[name] for name in values} == {
        "etl_tstamp": "2026-11-20 10:00:00.000",
        "dvce_created_tstamp": "-0044-03-15 00:00:00.999",
        "geo_latitude": "0.00001",
        "se_value": "10.0",
        "txn_id": "7",
        "br_features_pdf": "1",
        "page_title": "a  b",
    }
    assert len(found) == 128 and row.value.count("\t") == 127


# --- wide rows ---


def test_wide_rows_have_a_column_for_each_type(spark):
    texts = {
        "contexts": envelope("contexts", [entity("WebPage", {"n": 1}), entity("web-page", {"n": 2})]),
        "derived_contexts": envelope("contexts", [entity("WebPage", {"n": 3})]),
        "unstruct_event": envelope("unstruct_event", entity("clickV2", {"n": 4})),
    }
    events = events_of(frame_of_lines(spark, "\n".join([line_of(**texts), line_of()])))
    found = wide_row(events)
    names = ["contexts_com_acme_web_page_1", "unstruct_event_com_acme_click_v2_1"]
    assert found.columns == [name for name, _ in ATOMIC] + names
    values = sorted((tuple(r[n] for n in names) for r in found.collect()), key=str)
    assert values == [('[{"n":3},{"n":1},{"n":2}]', '{"n":4}'), (None, None)]
    replaced = wide_row(events, compat="snowplow").where(f"{names[0]} is not null").first()
    assert replaced[names[0]] == '[{"n":3}]'
    typed = wide_row(events, schema=f"{names[0]} array<struct<n: int>>, contexts_absent_1 string")
    assert typed.where(f"{names[0]} is not null").first()[names[0]][1].n == 1
    assert typed.columns[-1] == "contexts_absent_1"
    given = wide_row(events, types=["com.acme/clickV2/1"]).columns[128:]
    assert given == ["contexts_com_acme_click_v2_1", "unstruct_event_com_acme_click_v2_1"]


def test_wide_lines_are_the_json_of_wide_rows(spark):
    texts = {
        "contexts": envelope("contexts", [entity("page", {"n": 1})]),
        "geo_latitude": "1.5",
        "geo_longitude": "-2",
    }
    lines = frame_of_lines(spark, "\n".join([line_of(**texts), line_of()]))
    one, other = (json.loads(r.value) for r in wide_lines(lines).collect())
    assert one["geo_location"] == "1.5,-2.0" and one["contexts_com_acme_page_1"] == [{"n": 1}]
    assert len(other) == 128 and other["geo_latitude"] is None
    assert one["collector_tstamp"] == "2026-11-20T10:00:00.123456Z"


@pytest.mark.slow
def test_texts_that_break_a_careless_split_stay_whole(spark):
    datas = [
        '{"a":"}],[{","b":1.0}',
        '{"data":{"data":[{"data":1.0}]},"schema":"x"}',
        '{"deep":' + "[" * 20 + "1.50" + "]" * 20 + "}",
        '{"\\"schema\\"":1e3,"é\\\\":["\\u0000"]}',
        "[1.0,2]",
        '{"n":-0,"m":[-0],"id":"9e1-0.5"}',
        '{"id":"a:1.50","n":0,"m":10}',
        '"text"',
        "1.50",
    ]
    items = ",".join(f'{{"schema":"iglu:a/b/jsonschema/1-0-0","data":{d}}}' for d in datas)
    turned = items.replace("}},{", "}} , {")
    behind = ",".join(f'{{"more":[{{}}],"data":{d},"schema":"iglu:a/b/jsonschema/1-0-0"}}' for d in datas)
    for text in (items, turned, behind):
        cell = '{"data":[%s],"schema":"%s"}' % (text, ENVELOPE.format("contexts"))
        found = entities_of(events_of(frame_of_lines(spark, line_of(contexts=cell)))).collect()
        assert [r.data for r in found] == datas


def test_data_that_is_a_text_keeps_its_quotes(spark):
    text = envelope("contexts", [entity("a", "text"), entity("b", True), entity("c", 5), entity("d", [])])
    found = entities_of(events_of(frame_of_lines(spark, line_of(contexts=text)))).collect()
    assert [r.data for r in found] == ['"text"', "true", "5", "[]"]


def test_an_envelope_that_says_its_data_twice_is_read_and_no_error(spark):
    one, two = (f"[{','.join(['%s'] * n)}]" % ((json.dumps(entity("a", 1.5)),) * n) for n in (1, 2))
    for first, last in ((one, two), (two, one)):
        cell = '{"schema":"%s","data":%s,"data":%s}' % (ENVELOPE.format("contexts"), first, last)
        events = events_of(frame_of_lines(spark, line_of())).withColumn("contexts", F.lit(cell))
        found = entities_of(events).collect()
        assert {r.data for r in found} == {"1.5"} and len(found) == last.count("com.acme")

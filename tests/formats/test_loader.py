"What a loader is told of a batch: the files of each table, COPY statements, the message that it is complete."

import json

from dedup_nb.base.config import Output
from dedup_nb.formats.loader import (
    complete_message,
    copy_files,
    copy_manifest,
    files_by_table,
    members_by_table,
)

PAGE = "shredded-types/vendor=com.acme/name=web_page/format=json/version=1-0-0"
FILES = [  # of a batch: events, an entity, and a file without rows
    {"path": "events/batch_id=1/atomic-events/part-0", "bytes": 9},
    {"path": f"events/batch_id=1/{PAGE}/part-0", "bytes": 7},
    {"path": f"events/batch_id=1/{PAGE}/part-1", "bytes": 0},
]
TABLE = "com_acme_web_page_1"


def test_files_with_rows_go_to_the_table_of_their_type_and_events_come_last():
    assert files_by_table(FILES) == {TABLE: [FILES[1]], "events": [FILES[0]]}
    assert files_by_table([]) == {}


def test_members_are_found_in_the_files_of_entities(spark, tmp_path):
    line = {"schema": {"name": "web_page"}, "data": {"id": "p1", "isNew": True}, "hierarchy": {}}
    place = tmp_path / FILES[1]["path"]
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps(line, separators=(",", ":")) + "\n")
    assert members_by_table(spark, str(tmp_path), FILES, []) == {TABLE: {"id", "isNew"}}
    assert members_by_table(spark, str(tmp_path), FILES[:1], []) == {}


def test_members_that_the_types_tell_are_not_read_back(spark):
    page = {
        "kind": "CONTEXT",
        "schema": "iglu:com.acme/web_page/jsonschema/1-0-0",
        "members": ["id", "isNew"],
    }
    nobody = {"kind": None, "schema": None, "members": []}
    not_there = [FILES[0], {"path": f"events/batch_id=1/{PAGE}/part-00000.txt", "bytes": 7}]
    assert members_by_table(spark, "/nowhere", not_there, [page, nobody]) == {TABLE: {"id", "isNew"}}


def test_each_table_has_a_manifest_and_the_script_loads_all_or_nothing():
    texts = copy_files("/lake/it's", "1", FILES, {TABLE: {"id", "root_id"}})
    assert list(texts) == [
        f"runs/1/copy_manifests/{TABLE}.json",
        f"runs/1/jsonpaths/{TABLE}.json",
        "runs/1/copy_manifests/events.json",
        "runs/1/copy.sql",
    ]
    script = texts["runs/1/copy.sql"]
    assert script.startswith("BEGIN;") and script.endswith("COMMIT;\n") and script.count("COPY atomic.") == 2
    assert "'file:///lake/it''s/runs/1/" in script  # a quote in a path ends no text
    assert '"root_id_"' in script  # a member that is named like a column of ours
    assert copy_manifest("s3a://lake", FILES[:1])["entries"][0]["url"] == f"s3://lake/{FILES[0]['path']}"


def test_the_message_has_counts_types_and_times():
    metrics = {"started_at": "10:00", "finished_at": "10:01", "versions": {"dedup_nb": "1"}}
    metrics["counts"] = {"kept": 2, "bad": 1}
    schema = "iglu:com.acme/web_page/jsonschema/1-0-0"
    atomic = {"schema": "atomic", "kind": None, "first": "2026-11-20 10:00:00", "last": "2026-11-20 10:00:02"}
    types = [atomic, {"schema": schema, "kind": "CONTEXT"}]
    told = complete_message(Output("/lake", format="shredded"), "/lake/events/batch_id=1", types, metrics)
    assert told["data"]["count"] == {"good": 2, "bad": 1}
    assert told["data"]["timestamps"]["min"] == "2026-11-20T10:00:00Z"
    [entry] = told["data"]["typesInfo"]["types"]
    assert entry == {"schemaKey": schema, "format": "JSON", "snowplowEntity": "CONTEXT"}

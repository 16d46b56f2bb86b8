"""Runs that leave what a loader takes: shredded tables, wide rows, the message, COPY, and what is bad."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from conftest import ROOT
from entities import PAGES, WIDE, A, B, entity, envelope, five_lines, line_of
from pyspark.sql import functions as F
from pyspark.sql import types as T
from runs import counted_rows, files, record

from dedup_nb import Config, run
from dedup_nb.base.errors import ConfigError, ConservationError, OutputError
from dedup_nb.base.spark import struct_of
from dedup_nb.formats.enriched import decoded, with_line_ids
from dedup_nb.formats.shred import LAYOUTS
from dedup_nb.formats.wide_rows import columns_as_json, columns_from_json
from dedup_nb.manifest.ledger import Ledger
from dedup_nb.pipeline import write
from dedup_nb.pipeline.commit import check_entities, publish, publish_pending


@pytest.fixture
def source_of(tmp_path):
    def of(texts=None):
        folder = tmp_path / "in/run=1"
        folder.mkdir(parents=True)
        (folder / "part-0.txt").write_text("\n".join(texts or five_lines()) + "\n")
        return tmp_path

    return of


def batch_metrics(spark, folder, **more):
    plain = dict(
        input=str(folder / "in"), output=str(folder / "out"), output_format="shredded", manifest="none"
    )
    [m] = run(Config(**{**plain, **more}), spark).batches
    return m


def lines_by_folder(folder):
    "The lines of each folder of the batch."
    base = folder / "out/events/batch_id=1"
    texts: dict[str, list[str]] = {}
    for f in record(folder / "out", "1")["events"]:
        path = folder / "out" / f["path"]
        texts.setdefault(str(path.parent.parent.relative_to(base)), []).extend(path.read_text().splitlines())
    return texts


FOLDERS = {
    "classic": [
        "atomic-events",
        "shredded-types/vendor=com.acme/name=linkClick/format=jsonschema/version=1-0-1",
    ],
    "5.x": [
        "output=good/vendor=com.snowplowanalytics.snowplow/name=atomic/format=tsv/model=1",
        "output=good/vendor=com.acme/name=linkClick/format=json/model=1",
    ],
    "6.x": [
        "output=good/vendor=com.snowplowanalytics.snowplow/name=atomic/format=tsv/model=1/"
        "revision=0/addition=0",
        "output=good/vendor=com.acme/name=linkClick/format=json/model=1/revision=0/addition=1",
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_run_leaves_a_table_for_events_and_one_for_each_type(spark, source_of, layout):
    folder = source_of()
    m = batch_metrics(spark, folder, shred_layout=layout)
    assert m["counts"] == {"read": 5, "bad": 1, "kept": 3, "dropped": 1, "renamed": 1, "suspects": 3}
    tables, (events, clicks) = lines_by_folder(folder), FOLDERS[layout]
    assert len(tables[events]) == 3 and all(line.count("\t") == 127 for line in tables[events])
    ids = {line.split("\t")[6] for line in tables[events]}
    assert ids > {A, B} and len(ids) == 3
    roots = Counter(json.loads(line)["hierarchy"]["rootId"] for line in tables[clicks])
    assert roots == {A: 1, (ids - {A, B}).pop(): 1}
    by_type = {"com.acme/linkClick/1": 2, "com.acme/web_page/1": 4}
    assert m["entities"] == {**by_type, "com.snowplowanalytics.snowplow/duplicate/1": 1}
    assert sum(map(len, tables.values())) == 3 + sum(m["entities"].values())


@pytest.mark.slow
def test_the_old_id_of_a_renamed_event_is_nowhere_a_root(spark, source_of):
    folder = source_of()
    batch_metrics(spark, folder)
    entities = [
        json.loads(t)
        for name, texts in lines_by_folder(folder).items()
        if "atomic" not in name
        for t in texts
    ]
    renamed = [e for e in entities if e["schema"]["name"] == "duplicate"]
    assert [e["data"] for e in renamed] == [{"originalEventId": A}]
    assert Counter(e["hierarchy"]["rootId"] for e in entities)[renamed[0]["hierarchy"]["rootId"]] == 4


@pytest.mark.soak
def test_the_message_says_what_is_there(spark, source_of):
    folder = source_of()
    m = batch_metrics(spark, folder)
    told = json.loads((folder / "out/events/batch_id=1/shredding_complete.json").read_text())
    assert told["schema"].endswith("/shredding_complete/jsonschema/2-0-1")
    assert {t["schemaKey"]: t["snowplowEntity"] for t in told["data"]["typesInfo"]["types"]} == {
        "iglu:com.acme/linkClick/jsonschema/1-0-1": "SELF_DESCRIBING_EVENT",
        "iglu:com.acme/web_page/jsonschema/1-0-0": "CONTEXT",
        "iglu:com.snowplowanalytics.snowplow/duplicate/jsonschema/1-0-0": "CONTEXT",
    }
    assert told["data"]["base"] == f"file://{folder}/out/events/batch_id=1/"
    times = told["data"]["timestamps"]
    assert (times["min"], times["max"]) == ("2026-11-20T10:00:00.123Z", "2026-11-20T10:00:01.000Z")
    assert (times["jobStarted"], times["jobCompleted"]) == (m["started_at"], m["finished_at"])
    assert told["data"]["count"] == {"good": 3, "bad": 1} and told["data"]["compression"] == "NONE"
    assert set(told["data"]) == {"base", "typesInfo", "timestamps", "compression", "processor", "count"}


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_command_loads_a_batch_into_redshift(spark, source_of, layout):
    folder = source_of()
    batch_metrics(spark, folder, shred_layout=layout)
    out = folder / "out"
    text = (out / "runs/1/copy.sql").read_text()
    assert text.startswith("BEGIN;") and text.endswith("COMMIT;\n") and text.count("COPY atomic.") == 4
    paths = json.loads((out / "runs/1/jsonpaths/com_acme_link_click_1.json").read_text())["jsonpaths"]
    [line] = [t for t in text.split("\n\n") if "com_acme_link_click_1 (" in t]
    columns = line.split("(")[1].split(")")[0].split(", ")
    assert len(columns) == len(paths) == 10 and (columns[-1], paths[-1]) == (
        '"target_url"',
        "$['data']['targetUrl']",
    )
    listed = {
        entry["url"].removeprefix(f"file://{out}/")
        for path in (out / "runs/1/copy_manifests").iterdir()
        for entry in json.loads(path.read_text())["entries"]
    }
    assert listed == {f["path"] for f in record(out, "1")["events"] if f["bytes"]}


@pytest.mark.slow
def test_what_a_loader_is_told_is_said_again_if_a_run_died_before(spark, source_of):
    folder = source_of()
    batch_metrics(spark, folder, manifest="lake")
    out, message = folder / "out", folder / "out/events/batch_id=1/shredding_complete.json"
    before, stays = message.read_text(), record(out, "1")
    staged = out / f".staging/batch_id=1/{stays['attempt']}"
    staged.mkdir(parents=True)
    loader = {"events/batch_id=1/shredding_complete.json": before}
    (staged / "commit.json").write_text(json.dumps({**stays, "loader": loader}))
    message.unlink()
    (out / "runs/1/files.json").unlink()
    from dedup_nb.manifest.lake import LakeStore

    assert publish_pending(str(out), Ledger(LakeStore(spark, f"{out}/manifest").markers())) == ["1"]
    assert message.read_text() == before and record(out, "1") == stays


@pytest.mark.soak
def test_a_killed_run_tells_the_loader_at_the_next_start(spark, tmp_path):
    as_parquet(spark, tmp_path, five_lines())
    point = "the manifest has the commit, files.json is not written"
    script = str(ROOT / "tests/programs/killed_run.py")
    command = [
        sys.executable,
        script,
        point,
        str(tmp_path / "in"),
        str(tmp_path / "out"),
        "output_format=shredded",
    ]
    done = subprocess.run(command, start_new_session=True, capture_output=True, text=True, timeout=120)
    message = tmp_path / "out/events/batch_id=1/shredding_complete.json"
    assert done.returncode == -9 and not message.exists()
    more = dict(input_format="parquet", output_format="shredded")
    again = Config(input=str(tmp_path / "in"), output=str(tmp_path / "out"), **more)
    assert run(again, spark).batches == []
    assert json.loads(message.read_text())["data"]["count"] == {"good": 3, "bad": 1}
    assert sum(map(len, lines_by_folder(tmp_path).values())) == 10


@pytest.mark.soak
def test_a_rerun_and_other_partitions_give_the_same_lines(spark, source_of, tmp_path):
    folder = source_of()
    batch_metrics(spark, folder)
    first = {name: sorted(texts) for name, texts in lines_by_folder(folder).items()}
    batch_metrics(spark, folder, rerun=True, batch_id="1")
    assert {name: sorted(texts) for name, texts in lines_by_folder(folder).items()} == first
    on_disk = {p for p in files(folder / "out/events") if "/part-" in p}
    assert on_disk == {f["path"].removeprefix("events/") for f in record(folder / "out", "1")["events"]}
    whole = (folder / "in/run=1/part-0.txt").read_text().splitlines()
    for n, line in enumerate(whole):
        (folder / f"in/run=1/part-{n}.txt").write_text(line + "\n")
    batch_metrics(spark, folder, output=str(folder / "out2"))
    (folder / "out").rename(folder / "old")
    (folder / "out2").rename(folder / "out")
    assert {name: sorted(texts) for name, texts in lines_by_folder(folder).items()} == first


@pytest.mark.soak
def test_some_schemas_stay_out(spark, source_of):
    folder = source_of()
    m = batch_metrics(spark, folder, skip_schemas="iglu:com.acme/web_page/jsonschema/1-*-*")
    assert set(m["entities"]) == {"com.acme/linkClick/1", "com.snowplowanalytics.snowplow/duplicate/1"}
    assert not any("web_page" in name for name in lines_by_folder(folder))


@pytest.mark.parametrize(
    "more, said",
    [
        (dict(skip_schemas="com.acme/web_page"), "write iglu:com.acme/name/jsonschema/1-\\*-\\*"),
        (dict(skip_schemas="iglu:a/b/jsonschema/1-*-*,iglu:a/b/jsonschema/*-0-0"), "overlap"),
        (dict(wide_row_schema="infer"), "wide_row_schema is for output_format=wide_row"),
        (dict(partition_by="app_id"), "partition_by needs output_format parquet or json"),
        (dict(shred_layout="7.x"), "shred_layout"),
    ],
)
def test_settings_that_do_not_fit_are_refused(more, said):
    with pytest.raises(ConfigError, match=said):
        Config(input="a", output="b", output_format="shredded", **more)


def test_other_criteria_do_not_overlap():
    names = ["iglu:a/b/jsonschema/1-*-*", "iglu:a/b/jsonschema/2-*-*", "iglu:a/c-d/jsonschema/1-*-*"]
    assert Config(input="a", output="b", skip_schemas=names).skip_schemas == tuple(names)


@pytest.mark.slow
def test_atomic_texts_can_be_cut(spark, source_of):
    folder = source_of()
    batch_metrics(spark, folder, truncate_atomic=True)
    [cut] = [t for t in lines_by_folder(folder)[FOLDERS["5.x"][0]] if f"\t{B}\t" in t]
    assert cut.split("\t")[0] == "x" * 255


# --- columns instead of lines


def as_parquet(spark, folder, texts):
    made = spark.createDataFrame([(t,) for t in texts], "value string")
    events = decoded(with_line_ids(made, "value"), None)
    events = events.drop("_dd_id", "_dd_good", "_dd_look")
    events.coalesce(1).write.parquet(str(folder / "in/run=1"))


@pytest.mark.slow
def test_columns_are_shredded_as_lines_are_and_bad_entities_make_bad_rows(spark, source_of, tmp_path):
    by_line = source_of()
    batch_metrics(spark, by_line)
    wanted = {name: sorted(texts) for name, texts in lines_by_folder(by_line).items()}
    by_column = tmp_path / "columns"
    as_parquet(spark, by_column, five_lines())
    m = batch_metrics(spark, by_column, input_format="parquet")
    assert m["counts"] == {"read": 5, "bad": 1, "kept": 3, "dropped": 1, "renamed": 1, "suspects": 3}
    assert {name: sorted(texts) for name, texts in lines_by_folder(by_column).items()} == wanted
    [bad] = [
        json.loads(t) for f in (by_column / "out/bad").rglob("part-*") for t in f.read_text().splitlines()
    ]
    failure = bad["data"]["failure"]
    assert failure["errors"][0].startswith("contexts: ") and failure["timestamp"].startswith(
        "2026-11-20T10:00:00"
    )


@pytest.mark.soak
def test_a_bad_copy_does_not_take_its_good_twin_along(spark, tmp_path):
    wrong = envelope("contexts", [{"schema": "no-uri", "data": {}}])
    texts = [line_of(event_id=A, event_fingerprint="f", contexts=c) for c in (wrong, PAGES)]
    as_parquet(spark, tmp_path, texts)
    m = batch_metrics(spark, tmp_path, input_format="parquet")
    assert (m["counts"]["bad"], m["counts"]["kept"], m["counts"]["dropped"]) == (1, 1, 0)


def test_columns_that_are_no_text_are_refused(spark, tmp_path):
    frame = spark.sql(
        f"select '{A}' as event_id, timestamp '2026-11-20' as collector_tstamp, array(1) as contexts"
    )
    frame.write.parquet(str(tmp_path / "in/run=1"))
    with pytest.raises(OutputError, match="contexts is array<int>"):
        batch_metrics(spark, tmp_path, input_format="parquet")
    assert not (tmp_path / "out/events").exists()


@pytest.mark.soak
@pytest.mark.parametrize("layout", ["5.x", "classic"])
def test_a_schema_of_both_kinds_and_an_event_that_looks_like_an_entity(spark, source_of, layout):
    own = envelope("unstruct_event", entity("click", {"n": 1}))
    both = line_of(event_id=A, unstruct_event=own, contexts=envelope("contexts", [entity("click", {"n": 2})]))
    pages = envelope("contexts", [entity("page", {"n": 3})])
    folder = source_of([both, line_of(event_id=B, app_id='{"schema":{}', contexts=pages)])
    m = batch_metrics(spark, folder, shred_layout=layout)
    assert m["counts"]["kept"] == 2
    assert m["entities"] == {"com.acme/click/1": 2, "com.acme/page/1": 1}
    told = json.loads((folder / "out/events/batch_id=1/shredding_complete.json").read_text())["data"]
    listed = sorted((t["schemaKey"], t["snowplowEntity"]) for t in told["typesInfo"]["types"])
    click, page = (f"iglu:com.acme/{name}/jsonschema/1-0-0" for name in ("click", "page"))
    assert listed == [(click, "CONTEXT"), (click, "SELF_DESCRIBING_EVENT"), (page, "CONTEXT")]
    assert told["timestamps"]["min"] == told["timestamps"]["max"] == "2026-11-20T10:00:00.123Z"


def test_a_missing_entity_stops_the_run():
    types = [{"kind": "CONTEXT", "schema": "iglu:com.acme/a/jsonschema/1-0-0", "number": 2}]
    folder = "output=good/vendor=com.acme/name=a/format=json/model=1"
    check_entities({folder: 2}, types, "5.x")
    with pytest.raises(
        ConservationError, match="1 entities were written to .*name=a.*the kept events have 2"
    ):
        check_entities({folder: 1}, types, "5.x")
    with pytest.raises(ConservationError, match="name=b"):
        check_entities({folder: 2, "output=good/name=b": 1}, types, "5.x")


@pytest.mark.soak
@pytest.mark.parametrize("layout", ["5.x", pytest.param("classic", marks=pytest.mark.slow)])
def test_a_run_that_writes_an_entity_less_commits_nothing(spark, source_of, monkeypatch, layout):
    folder = source_of()
    clicks, whole = F.col("name") == "linkClick", write.shredded
    monkeypatch.setattr(write, "shredded", lambda *asked: whole(*asked).where(~clicks))
    with pytest.raises(
        ConservationError, match="0 entities were written to .*name=linkClick.* events have 2"
    ):
        batch_metrics(spark, folder, shred_layout=layout, carry="spark")
    assert not (folder / "out/runs/1/files.json").exists() and not files(folder / "out/events")


# --- wide rows


@pytest.mark.slow
def test_wide_rows_are_lines_of_json(spark, source_of):
    folder = source_of()
    m = batch_metrics(spark, folder, output_format="wide_row")
    [name] = lines_by_folder(folder)
    events = {e["event_id"]: e for e in map(json.loads, lines_by_folder(folder)[name])}
    assert name == "output=good" and len(events) == m["counts"]["kept"] == 3
    assert events[A]["unstruct_event_com_acme_link_click_1"] == {"targetUrl": "/cart"}
    assert [p["id"] for p in events[A]["contexts_com_acme_web_page_1"]] == ["p1", "p2"]
    assert "contexts_com_acme_web_page_1" not in events[B]
    told = json.loads((folder / "out/events/batch_id=1/shredding_complete.json").read_text())
    assert told["data"]["typesInfo"]["transformation"] == "WIDEROW"
    assert not (folder / "out/runs/1/copy.sql").exists()


def wide(spark, folder, batch):
    paths = [str(folder / "out" / f["path"]) for f in record(folder / "out", batch)["events"]]
    return spark.read.parquet(*paths)


@pytest.mark.soak
def test_wide_rows_have_typed_columns_that_grow_and_do_not_break(spark, tmp_path):
    batches = {
        "1": [{"id": "p1", "n": 1}],
        "2": [{"id": "p2", "more": True}],
        "3": [{"id": "p3", "n": "many"}],
        "4": [],
    }
    for batch, pages in batches.items():
        contexts = envelope("contexts", [entity("web_page", p) for p in pages])
        path = tmp_path / f"in/run={batch}"
        path.mkdir(parents=True)
        text = line_of(event_id=f"{batch}{A[1:]}", event_fingerprint="f", contexts=contexts)
        (path / "part-0.txt").write_text(text + "\n")
    plain = dict(input=str(tmp_path / "in"), output=str(tmp_path / "out"), output_format="wide_row")
    done = run(Config(**plain, wide_row_schema="infer"), spark).batches
    types = [dict(wide(spark, tmp_path, b).dtypes)[WIDE] for b in batches]
    grown = "array<struct<id:string,n:bigint,more:boolean>>"
    assert types == ["array<struct<id:string,n:bigint>>", grown, "string", grown]
    notes = [[n for n in m["notes"] if n.startswith("JSON text")] for m in done]
    assert [len(n) for n in notes] == [0, 0, 1, 0] and WIDE in notes[2][0]
    assert json.loads(wide(spark, tmp_path, "3").first()[WIDE]) == [{"id": "p3", "n": "many"}]
    assert wide(spark, tmp_path, "4").first()[WIDE] is None
    before = counted_rows(wide(spark, tmp_path, "1"))
    run(Config(**plain, wide_row_schema="infer", rerun=True, batch_id="1"), spark)
    assert counted_rows(wide(spark, tmp_path, "1")) == before
    assert dict(wide(spark, tmp_path, "1").dtypes)[WIDE] == types[0]
    assert json.loads((tmp_path / "out/runs/wide_columns.json").read_text())[WIDE]["type"] == "array"


def test_no_run_forgets_the_columns_that_another_one_notes_meanwhile(tmp_path):
    "Each began with the note before; the last one was killed, and is published by a later run."
    before = {"old": struct_of({"n": T.LongType()})}
    grown = {"old": struct_of({"n": T.LongType(), "m": T.StringType()})}
    other = {"old": struct_of({"n": T.LongType(), "at": T.DoubleType()}), "new": T.StringType()}
    another = {"old": T.StringType(), "newer": struct_of({"x": T.LongType()})}
    for columns in (before, grown, other, another, before):
        note = {"runs/wide_columns.json": json.dumps(columns_as_json(columns))}
        publish(str(tmp_path), {"batch_id": "1", "entries": [], "loader": note})
    noted = columns_from_json(json.loads((tmp_path / "runs/wide_columns.json").read_text()))
    assert {name: kind.simpleString() for name, kind in noted.items()} == {
        "old": "struct<n:bigint,m:string,at:double>",
        "new": "string",
        "newer": "struct<x:bigint>",
    }


@pytest.mark.soak
def test_given_types_hold_or_the_column_is_text(spark, source_of):
    folder = source_of()
    given = f"{WIDE} array<struct<id:string, deep:struct<n:int>>>"
    batch_metrics(spark, folder, output_format="wide_row", wide_row_schema=given)
    kinds = dict(wide(spark, folder, "1").dtypes)
    assert kinds[WIDE] == "array<struct<id:string,deep:struct<n:int>>>"
    assert kinds["unstruct_event_com_acme_link_click_1"] == "string"
    m = batch_metrics(
        spark,
        folder,
        output=str(folder / "o2"),
        output_format="wide_row",
        wide_row_schema=f"{WIDE} array<struct<id:int>>",
    )
    assert any(WIDE in note for note in m["notes"])


def test_a_schema_that_is_none_is_refused_before_any_work(spark, source_of):
    folder = source_of()
    with pytest.raises(ConfigError, match="wide_row_schema is not a list of columns"):
        batch_metrics(spark, folder, output_format="wide_row", wide_row_schema="array<")
    assert not Path(folder, "out/events").exists()

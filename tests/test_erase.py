"""What is erased is nowhere any more, all else is as it was, and the numbers still add up."""

import shutil
from pathlib import Path

import pytest
from conftest import ROOT
from runs import TWO, committed, files, go, record, silent, write

import dedup_nb.erase
from dedup_nb import Config, run
from dedup_nb.erase import erase
from dedup_nb.errors import BusyError, ConfigError
from dedup_nb.files import read_json
from dedup_nb.memory import existing_manifest
from dedup_nb.places import Memory

ROWS = {**TWO, "1": [*TWO["1"], ("a", "f", 3, 9), (None, "f", 4, 8)]}


@pytest.fixture(scope="module")
def before(spark, tmp_path_factory):
    "Two batches: a is kept, copied, copied in the next batch, and renamed there."
    folder = tmp_path_factory.mktemp("erase")
    write(spark, folder / "in", ROWS)
    go(spark, folder)
    return folder


@pytest.fixture
def two(before, tmp_path):
    shutil.copytree(before / "out", tmp_path / "out")
    return Config(output=str(tmp_path / "out"))


def everything(output):
    "The text of all files but the manifest, as bytes."
    return {
        name: Path(output, name).read_bytes() for name in files(output) if not name.startswith("manifest")
    }


def left(spark, output):
    "The rows of all areas that commits list."
    found = {}
    for area in ("events", "dropped", "verdicts"):
        rows = (committed(spark, output, batch, area) for batch in "12")
        found[area] = sorted((r.event_id, r.asDict().get("n")) for f in rows if f for r in f.collect())
    return found


def sums(output):
    for batch in "12":
        for name in ("files", "metrics"):
            c = read_json(f"{output}/runs/{batch}/{name}.json")["counts"]
            assert c["read"] == c["bad"] + c["kept"] + c["dropped"] + c["erased"], (batch, name)
            yield c["erased"]


def assert_only_what_is_listed(output):
    areas = ("events", "dropped", "bad", "verdicts")
    listed = {f["path"] for b in "12" for area in areas for f in record(output, b)[area]}
    assert listed == {n for n in files(output) if "/part-" in n and n.split("/")[0] in areas}


def test_an_id_goes_with_its_copies_and_new_ids(spark, two):
    output = two.output
    old = everything(output)
    told = erase(two, spark, event_id="a")
    assert "Would remove 2 in events/, 2 in dropped/, 3 in verdicts/ of 2 batches (1, 2)" in str(told)
    assert everything(output) == old
    done = erase(two, spark, event_id="a", yes=True)
    assert done.data["rows"] == told.data["rows"] == {"events": 2, "dropped": 2, "verdicts": 3}
    assert left(spark, output) == {"events": [("b", 2), ("c", 5)], "dropped": [], "verdicts": []}
    assert list(sums(output)) == [2, 2, 2, 2]
    assert_only_what_is_listed(output)
    assert [m["hot_ids"] for m in (read_json(f"{output}/runs/{b}/metrics.json") for b in "12")] == [[], []]
    page = Path(output, "runs/1/report.html").read_text()
    assert "+ 2 erased" in page and "erased on request" in page and ">a<" not in page
    proof = read_json(f"{output}/{done.data['proof']}")
    assert proof["done"] and proof["rows"] == done.data["rows"] and len(proof["ids_sha256"]) == 2
    assert spark.read.json(f"{output}/metrics").where("rows_erased = 2").count() == 2
    # the manifest keeps the pairs; what is asked for again is nowhere
    assert "no row is of these" in str(erase(two, spark, event_id="a", yes=True))
    assert len(files(f"{output}/runs/erasures")) == 2


LONG = [pytest.param(after, marks=pytest.mark.long) for after in ("_rewritten", "_told_anew", "_sweep")]


@pytest.mark.parametrize("after", ["publish", *LONG])
def test_a_kill_leaves_each_batch_whole_and_the_same_command_finishes(spark, two, monkeypatch, after):
    class Killed(BaseException):
        pass

    real = getattr(dedup_nb.erase, after)

    def die(*given):
        real(*given)
        raise Killed

    with monkeypatch.context() as m:
        m.setattr(dedup_nb.erase, after, die)
        with pytest.raises(Killed):
            erase(two, spark, event_id="a", yes=True)
    for batch in "12":
        assert all(Path(two.output, f["path"]).exists() for f in record(two.output, batch)["events"])
    erase(two, spark, event_id="a", yes=True)
    assert left(spark, two.output)["events"] == [("b", 2), ("c", 5)] and sum(sums(two.output)) == 8
    proof = read_json(f"{two.output}/runs/erasures/000001.json")
    assert proof["done"] and proof["rows"] == {"events": 2, "dropped": 2, "verdicts": 3}
    assert_only_what_is_listed(two.output)


def test_a_condition_takes_events_and_leaves_others_of_their_id(spark, two):
    erase(two, spark, where="n = 4", yes=True)
    assert left(spark, two.output)["events"] == [("a", 1), ("b", 2), ("c", 5)]
    with pytest.raises(ConfigError, match="columns of events: event_id, event_fingerprint"):
        erase(two, spark, where="user_id = 'u'")


def test_bad_rows_go_by_their_text(spark, two, tmp_path):
    (tmp_path / "ids").write_text("8\n\n")
    told = erase(two, spark, ids=str(tmp_path / "ids"))
    assert told.data["rows"] == {"bad": 1}


def test_what_cannot_be_done_is_said(spark, two, tmp_path):
    for asked in ({}, {"event_id": "a", "where": "n = 1"}):
        with pytest.raises(ConfigError, match="wants one of --id ID, --ids FILE and --where SQL"):
            erase(two, spark, **asked)
    with pytest.raises(ConfigError, match="is not there"):
        erase(two, spark, ids=str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="no output of a run"):
        erase(Config(output=str(tmp_path), manifest="none"), spark, event_id="a")
    manifest = existing_manifest(spark, Memory("lake"), two.output)
    manifest.begin("3", None, {"token": "t"})
    with pytest.raises(BusyError, match="Batch 3 is claimed by"):
        erase(two, spark, event_id="a", yes=True)


@pytest.mark.long
def test_with_forget_a_late_copy_is_loaded_again(spark, before, two, tmp_path):
    erase(two, spark, event_id="a", forget=True, yes=True)
    write(spark, tmp_path / "in", {"3": [("a", "f", 9, 1), ("b", "f", 9, 1)]})
    go(spark, tmp_path)
    assert [(r.event_id, r.n) for r in committed(spark, two.output, "3").collect()] == [("a", 1)]


FORMATS = ["delta", "json", "enriched_tsv", "shredded", "wide_row"]


@pytest.mark.long
@pytest.mark.parametrize("output_format", FORMATS)
def test_every_output_format(spark, tmp_path, output_format):
    more = dict(input=str(ROOT / "data_samples"), output=str(tmp_path / "out"), output_format=output_format)
    asked = Config(**more)
    run(asked, spark, say=silent)
    rows = spark.read.parquet(f"{tmp_path}/out/verdicts").where(
        "new_event_id is not null and reason = 'synthetic'"
    )
    event_id = rows.orderBy("event_id").first().event_id
    known = [r.new_event_id for r in rows.where(f"event_id = '{event_id}'").collect()]
    done = erase(asked, spark, event_id=event_id.upper(), yes=True)
    assert done.data["rows"]["events"] >= 1 + len(known)
    texts = [
        p for p in Path(tmp_path, "out").rglob("*") if p.is_file() and p.suffix in (".txt", ".json", ".html")
    ]
    found = [str(p) for p in texts if any(i in p.read_text() for i in (event_id, *known))]
    assert not [name for name in found if "/manifest/" not in name and "_delta_log" not in name]
    assert erase(asked, spark, event_id=event_id).data["rows"] == {}
    for batch in done.data["batches"]:
        c = record(tmp_path / "out", batch)["counts"]
        assert c["read"] == c["bad"] + c["kept"] + c["dropped"] + c["erased"]

"""Erased stays erased: a batch that is taken again drops such events, and writes nothing of them."""

import shutil
from pathlib import Path

import pytest
from emulator import a_table, items
from runs import WITH_COPIES, committed, config, files, go, on_dynamodb, write

from dedup_nb import Config
from dedup_nb.base.storage import read_json
from dedup_nb.operate.erase import erase
from dedup_nb.operate.history import explain, forget, runs


@pytest.fixture(scope="module")
def erased_done(spark, copies_done, tmp_path_factory):
    "The two batches, from which a is erased; to be read only."
    folder = tmp_path_factory.mktemp("erased")
    shutil.copytree(copies_done, folder, dirs_exist_ok=True)
    erase(Config(output=str(folder / "out")), spark, event_id="a", yes=True)
    return folder


@pytest.fixture
def without_a(erased_done, tmp_path):
    "A folder of its own, with two batches from which a is erased."
    return Path(shutil.copytree(erased_done, tmp_path, dirs_exist_ok=True))


def reasons_again(spark, folder, *batches, **more):
    "The batches are processed again; their reasons."
    more = {"rerun": True, **more} if more.get("manifest") != "none" else more
    return {b: go(spark, folder, batch_id=b, **more).batches[0]["reasons"] for b in batches}


def kept_numbers(spark, folder, *batches):
    return {
        b: sorted(r.n for r in rows.collect()) if (rows := committed(spark, folder / "out", b)) else []
        for b in batches
    }


def dropped(spark, folder, *batches):
    "The dropped rows: the values of their columns, if they have any, and the reason."
    rows = (committed(spark, folder / "out", b, "dropped") for b in batches)
    found = (r.asDict(recursive=True) for frame in rows if frame for r in frame.collect())
    return sorted(
        (str([v for name, v in r.items() if name != "dedup" and v is not None]), *r["dedup"].values())
        for r in found
    )


ERASED = ("[]", "erased", None, None)


def assert_adds_up(folder, *batches):
    for b in batches:
        for name in ("files", "metrics"):
            c = read_json(f"{folder}/out/runs/{b}/{name}.json")["counts"]
            assert c["read"] == c["bad"] + c["kept"] + c["dropped"] + c.get("erased", 0), (b, name, c)


def assert_nowhere(folder, *texts):
    "No text of the output but the manifest has one of these."
    for name in files(folder / "out"):
        if name.endswith((".json", ".html", ".txt")) and not name.startswith("manifest"):
            found = Path(folder, "out", name).read_text()
            assert not any(text in found for text in texts), name


@pytest.mark.slow
def test_a_rerun_drops_erased_events_and_writes_nothing_of_them(spark, copies_done, without_a):
    out = Config(output=str(without_a / "out"))
    new = next(
        r.event_id for r in committed(spark, copies_done / "out", "2").collect() if r.original_event_id
    )
    assert reasons_again(spark, without_a, "1", "2") == {"1": {"erased": 2}, "2": {"erased": 2}}
    assert kept_numbers(spark, without_a, "1", "2") == {"1": [2], "2": [5]}
    assert dropped(spark, without_a, "1", "2") == [ERASED] * 4
    assert_adds_up(without_a, "1", "2")
    assert_nowhere(without_a, new, '"a"', ">a<")
    verdicts = [
        r.asDict() for b in "12" for r in committed(spark, without_a / "out", b, "verdicts").collect()
    ]
    told = sorted(
        (v["event_id"], v["new_event_id"], v["verdict"], v["reason"], v["copies"]) for v in verdicts
    )
    assert told == [(None, None, "drop", "erased", 1)] * 2 + [(None, None, "drop", "erased", 2)]
    m = read_json(f"{without_a}/out/runs/1/metrics.json")
    assert m["counts"]["dropped"] == 2 and m["hot_ids"] == [] and "erased on request" in m["notes"][0]
    assert erase(out, spark, event_id="a").data["rows"] == {}
    assert [t["counts"]["dropped"] for t in runs(out).data] == [2, 2]
    # the manifest has the pairs still: a late copy goes, and nothing that stays is named
    write(spark, without_a / "in", {"3": [("a", "f", 9, 6), ("a", "g", 9, 7), (new, "g", 9, 10)]})
    go(spark, without_a)
    assert kept_numbers(spark, without_a, "3") == {"3": []}
    assert {r[1:] for r in dropped(spark, without_a, "3")} == {
        ("natural_cross_batch", None, "1"),
        ("natural_cross_batch", None, "2"),
    }
    # and once more, the same
    assert reasons_again(spark, without_a, "1") == {"1": {"erased": 2}}
    assert "rows of it were erased on request" in str(explain("a", out, spark))


@pytest.mark.slow
def test_the_id_that_an_erased_event_came_under_stays_known(spark, copies):
    "It was renamed by another run, and is the first of its id here."
    own = next(r for r in committed(spark, copies / "out", "2").collect() if r.original_event_id)
    folder = copies / "other"
    spark.createDataFrame([own]).write.parquet(f"{folder}/in/run=1")
    go(spark, folder)
    erase(Config(output=str(folder / "out")), spark, event_id=own.event_id, yes=True)
    assert reasons_again(spark, folder, "1") == {"1": {"erased": 1}}
    write(spark, folder / "in", {"2": [(own.event_id, own.event_fingerprint, 9, 6)]})
    go(spark, folder)
    assert kept_numbers(spark, folder, "2") == {"2": []}


@pytest.mark.soak
def test_a_condition_names_what_was_kept_and_spares_others_of_the_id(spark, copies):
    out = Config(output=str(copies / "out"))
    erase(out, spark, where="n = 4", yes=True)  # the one that was renamed
    assert reasons_again(spark, copies, "1", "2") == {
        "1": {"natural": 1},
        "2": {"erased": 1, "natural_cross_batch": 1},
    }
    assert kept_numbers(spark, copies, "1", "2") == {"1": [1, 2], "2": [5]}
    erase(out, spark, where="n = 1", yes=True)
    assert reasons_again(spark, copies, "1", "2") == {"1": {"erased": 2}, "2": {"erased": 2}}
    assert kept_numbers(spark, copies, "1", "2") == {"1": [2], "2": [5]}
    assert dropped(spark, copies, "1", "2") == [ERASED] * 4


@pytest.mark.slow
def test_a_condition_spares_the_other_event_of_an_id(spark, copies):
    erase(Config(output=str(copies / "out")), spark, where="n = 1", yes=True)
    assert reasons_again(spark, copies, "1", "2") == {"1": {"erased": 2}, "2": {"erased": 1}}
    assert kept_numbers(spark, copies, "1", "2") == {"1": [2], "2": [4, 5]}


@pytest.mark.slow
@pytest.mark.parametrize("asked", [{"event_id": "a"}, {"where": "event_id = 'a' or n = 4"}], ids=str)
def test_forgotten_and_run_again_in_another_order(spark, copies, asked):
    out = Config(output=str(copies / "out"))
    erase(out, spark, yes=True, **asked)
    for b in "21":
        forget(b, out, spark, yes=True)
    # now batch 2 is the first one: a would be kept there under its own id
    assert reasons_again(spark, copies, "2", "1", rerun=False) == {"2": {"erased": 2}, "1": {"erased": 2}}
    assert kept_numbers(spark, copies, "1", "2") == {"1": [2], "2": [5]}
    assert dropped(spark, copies, "1", "2") == [ERASED] * 4
    assert_adds_up(copies, "1", "2")


@pytest.mark.soak
def test_late_files_of_such_a_batch_bring_nothing_back(spark, without_a):
    write(spark, without_a / "in", {"1": [("a", "f", 7, 6), ("a", "h", 7, 7), ("d", "f", 7, 8)]})
    [late] = go(spark, without_a, late_files=True).batches
    assert (late["batch_id"], late["reasons"]) == ("1~1", {"erased": 2})
    assert (
        kept_numbers(spark, without_a, "1~1") == {"1~1": [8]}
        and dropped(spark, without_a, "1~1") == [ERASED] * 2
    )
    assert reasons_again(spark, without_a, "1~1") == {"1~1": {"erased": 2}}


@pytest.mark.soak
def test_with_forget_no_key_comes_back_and_a_new_batch_loads_a_late_copy(spark, copies):
    out = Config(output=str(copies / "out"))
    assert erase(out, spark, event_id="a", forget=True, yes=True).data["keys_removed"] == 4
    assert reasons_again(spark, copies, "1", "2") == {"1": {"erased": 2}, "2": {"erased": 2}}
    assert explain("a", out, spark).data["claims"] == []
    assert erase(out, spark, event_id="a", forget=True).data["rows"] == {}
    write(spark, copies / "in", {"3": [("a", "f", 9, 6), ("b", "f", 9, 7)]})
    go(spark, copies)
    assert kept_numbers(spark, copies, "3") == {"3": [6]}
    # that one is no part of what was erased
    assert reasons_again(spark, copies, "3") == {"3": {"natural_cross_batch": 1}} and kept_numbers(
        spark, copies, "3"
    ) == {"3": [6]}


@pytest.mark.parametrize(
    "more",
    [
        {},
        pytest.param({"natural": "off", "synthetic": "off"}, marks=pytest.mark.slow),
        pytest.param(
            {"natural": "off", "synthetic": "off", "missing_fingerprint": "unique"}, marks=pytest.mark.soak
        ),
        pytest.param({"missing_fingerprint": "unique"}, marks=pytest.mark.slow),
        pytest.param({"synthetic": "delete_all"}, marks=pytest.mark.slow),
        pytest.param({"synthetic": "quarantine"}, marks=pytest.mark.soak),
    ],
    ids=str,
)
@pytest.mark.parametrize("asked", [{"event_id": "a"}, {"where": "event_id = 'a' or n in (3, 4)"}], ids=str)
def test_without_a_manifest(spark, tmp_path, more, asked):
    rows = [("a", "f", 1, 1), ("a", "f", 2, 2), ("a", "g", 3, 3), ("b", None, 1, 5), ("b", None, 1, 5)]
    write(spark, tmp_path / "in", {"1": [*rows, ("a", None, 4, 4), ("a", None, 4, 4), ("c", "f", 2, 6)]})
    more |= {"manifest": "none"}
    go(spark, tmp_path, **more)
    before = [n for n in kept_numbers(spark, tmp_path, "1")["1"] if n > 4]
    erase(config(tmp_path, **more), spark, yes=True, **asked)
    reasons = reasons_again(spark, tmp_path, "1", **more)["1"]
    assert kept_numbers(spark, tmp_path, "1")["1"] == before
    assert reasons["erased"] == 5 or "delete_all" in more.values()
    assert all(n == "[]" or "'b'" in n for n, *_ in dropped(spark, tmp_path, "1"))
    assert_adds_up(tmp_path, "1")


@pytest.mark.soak
def test_on_a_table_no_item_comes_back(spark, dynamodb, tmp_path):
    more = on_dynamodb(dynamodb, "erased")
    write(spark, tmp_path / "in", WITH_COPIES)
    go(spark, tmp_path, **more)
    erase(config(tmp_path, **more), spark, event_id="a", forget=True, yes=True)
    assert reasons_again(spark, tmp_path, "1", "2", **more) == {"1": {"erased": 2}, "2": {"erased": 2}}
    assert kept_numbers(spark, tmp_path, "1", "2") == {"1": [2], "2": [5]}
    left = str(items(a_table(dynamodb, more["dynamodb_table"])))
    assert "'b'" in left and "'a'" not in left

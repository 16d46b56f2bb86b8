"""The manifest as a table of a catalog, from run to erasure; others optimize it at any moment."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from ledgers import RECIPE
from runs import STAYED, TWO, config, go, stayed, write

from dedup_nb.manifest.lake import LakeStore
from dedup_nb.manifest.protocol import Manifest
from dedup_nb.operate.erase import erase
from dedup_nb.operate.history import forget, runs


@pytest.fixture
def name(spark):
    spark.sql("create schema governed")
    yield "governed.manifest"
    spark.sql("drop schema governed cascade")


@pytest.mark.slow
def test_all_commands_find_the_table_by_the_note_of_the_output(spark, tmp_path, name):
    write(spark, tmp_path / "in", TWO)
    go(spark, tmp_path, manifest_path=name)
    assert stayed(spark, tmp_path) == STAYED and not (tmp_path / "out/manifest").exists()
    assert [r["state"] for r in runs(config(tmp_path), spark).data] == ["committed", "committed"]
    assert erase(config(tmp_path), spark, event_id="b", yes=True, forget=True).data["keys_removed"] == 1
    forget("2", config(tmp_path), spark, yes=True)
    assert [m["batch_id"] for m in go(spark, tmp_path).batches] == ["2"]
    assert stayed(spark, tmp_path) == {**STAYED, "1": [("a", 1)]}


@pytest.mark.slow
def test_somebody_optimizes_the_table_all_the_time(spark, name):
    ended = Event()

    def optimize():
        number = 0
        while not ended.is_set():
            if spark.catalog.tableExists(name):
                spark.sql(f"optimize {name}")
                number += 1
        return number

    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(optimize)
        try:
            for n in range(6):
                manifest = Manifest(LakeStore(spark, name), RECIPE)
                manifest.commit(manifest.begin(f"b{n}", n, {"token": f"t{n}"}), None, {"pairs": 0})
        finally:
            ended.set()
        assert beside.result() > 5
    entries = Manifest(LakeStore(spark, name), RECIPE).ledger().entries
    assert {b: e.state for b, e in entries.items()} == {f"b{n}": "committed" for n in range(6)}

"""A fingerprint column that comes or goes between batches: taken alike, or refused with the way on."""

import json
import re

import pytest
from runs import config, go, on_dynamodb

from dedup_nb.manifest.ledger import Ledger, Marker, RecipeError, other_kind
from dedup_nb.manifest.protocol import Manifest
from dedup_nb.operate.backfill import backfill
from dedup_nb.operate.history import runs


def write_json_batch(folder, batch, *rows):
    "Write a batch of JSON lines: an id, and what else is there."
    place = folder / f"in/run={batch}"
    place.mkdir(parents=True)
    rows = ({"event_id": i, "etl_tstamp": f"2026-11-20T10:0{batch}:00Z", **more} for i, more in rows)
    (place / "a.json").write_text("\n".join(map(json.dumps, rows)))


WITH = [("a", {"event_fingerprint": "f"}), ("b", {"event_fingerprint": "g"})]
WITHOUT = [("a", {}), ("c", {})]
NULL = [("a", {"event_fingerprint": None}), ("c", {"event_fingerprint": ""})]
SOME = [("a", {"event_fingerprint": "f"}), ("c", {})]


@pytest.fixture(params=["lake", pytest.param("dynamodb", marks=pytest.mark.slow)])
def memory(request):
    "The settings of a manifest."
    if request.param == "lake":
        return {}
    return on_dynamodb(request.getfixturevalue("dynamodb"), "kinds")


def counts_taken(spark, folder, memory, apart, *batches):
    "The batches that are taken, in one command or in one each, and what stopped it."
    names, done = [str(n) for n, _ in enumerate(batches, 1)], []
    for name, rows in zip(names, batches):
        write_json_batch(folder, name, *rows)
    try:
        for name in names if apart else [None]:
            asked = {"input_format": "json", **memory}
            found = go(spark, folder, **(asked | ({"batch_id": name} if name else {})))
            done += found.batches
    except RecipeError as wrong:
        return wrong
    return {m["batch_id"]: (m["counts"]["dropped"], m["counts"]["renamed"]) for m in done}


LONG = pytest.mark.soak
NONE_HERE = "Batch 2 has no column event_fingerprint, and batches of the manifest have fingerprints there"
NOTHING = "Batch 2 has nothing in event_fingerprint, and batches of the manifest have fingerprints there"
CAME = "Batch {} has fingerprints in event_fingerprint, and batches of the manifest have none (missing_fing"


@pytest.mark.slow
@pytest.mark.parametrize("apart", [False, True], ids=["one command", "a command each"])
@pytest.mark.parametrize(
    "batches, words",
    [
        ((WITH, WITHOUT), NONE_HERE),
        ((WITHOUT, SOME, WITH), CAME.format(2)),
        pytest.param((WITH, NULL), NOTHING, marks=LONG),
        pytest.param((NULL, WITH), CAME.format(2), marks=LONG),
        pytest.param((WITHOUT, WITHOUT, WITH), CAME.format(3), marks=LONG),
    ],
)
def test_another_kind_of_fingerprint_is_refused_with_the_ways_on(
    spark, tmp_path, memory, batches, words, apart
):
    wrong = str(counts_taken(spark, tmp_path, memory, apart, *batches))
    assert wrong.startswith(words) and "--force" in wrong and "--manifest-path" in wrong, wrong


@pytest.mark.slow
@pytest.mark.parametrize("apart", [False, True], ids=["one command", "a command each"])
@pytest.mark.parametrize(
    "batches, expected",
    [
        # what stands in is that of the first batch, for all
        ((WITHOUT, NULL), {"1": (0, 0), "2": (2, 0)}),
        pytest.param((NULL, WITHOUT), {"1": (0, 0), "2": (2, 0)}, marks=LONG),
        # some rows lack it: each has its own stand-in
        ((WITH, SOME, NULL), {"1": (0, 0), "2": (1, 0), "3": (1, 1)}),
        pytest.param((SOME, WITH), {"1": (0, 0), "2": (1, 0)}, marks=LONG),
    ],
)
def test_the_same_kind_goes_on(spark, tmp_path, memory, batches, expected, apart):
    assert counts_taken(spark, tmp_path, memory, apart, *batches) == expected


@pytest.mark.soak
def test_with_force_it_goes_on_and_is_recorded(spark, tmp_path):
    assert "--force" in str(counts_taken(spark, tmp_path, {}, False, WITH, WITHOUT))
    [done] = go(spark, tmp_path, input_format="json", force=True).batches
    assert NONE_HERE + ": copies of their events count as other events" in done["notes"]
    assert done["counts"]["renamed"] == 1
    write_json_batch(tmp_path, "3", *WITHOUT)
    write_json_batch(tmp_path, "4", *WITH)
    with pytest.raises(RecipeError, match=re.escape(CAME.format(4))):
        go(spark, tmp_path, input_format="json")
    assert [(r["batch_id"], r["state"]) for r in runs(config(tmp_path)).data][:3] == [
        (b, "committed") for b in "123"
    ]
    # a rerun of a batch of the first kind sees what it saw
    [again] = go(spark, tmp_path, input_format="json", batch_id="1", rerun=True).batches
    assert again["counts"]["kept"] == 2


@pytest.mark.slow
def test_a_backfill_notes_the_kind_too(spark, tmp_path):
    write_json_batch(tmp_path, "1", *WITH)
    backfill(config(tmp_path, input_format="json"), spark)
    write_json_batch(tmp_path, "2", *WITHOUT)
    with pytest.raises(RecipeError, match=NONE_HERE):
        backfill(config(tmp_path, input_format="json"), spark)
    with pytest.raises(RecipeError, match=NONE_HERE):
        go(spark, tmp_path, input_format="json", mode="decide")


def ledger_of(*kinds):
    info = {"token": "t", "etl": 0}
    commits = (
        Marker(n, "commit", str(n), {**info, "first_seq": n, "fingerprints": kind})
        for n, kind in enumerate(kinds, 1)
    )
    return Ledger([Marker(0, "recipe", "", {"missing_fingerprint": "id"}), *commits])


@pytest.mark.parametrize(
    "before, fitting",
    [
        ((), "column some empty surrogate id unique"),
        ((None,), "column some empty surrogate id unique"),  # without a row
        (("column",), "column some"),
        (("column", "some"), "column some empty"),
        (("some", None, "empty", "column"), "column some empty"),
        (("empty",), "empty surrogate id unique"),
        (("id",), "empty surrogate id unique"),
        (("id", "empty"), "empty surrogate id unique"),
        # forced: what came last holds
        (("column", "id"), "empty surrogate id unique"),
        (("id", "column"), "column some"),
        (("column", "empty"), "column some empty"),
    ],
)
def test_what_fits_the_kind_of_a_manifest(before, fitting):
    kinds = "column some empty surrogate id unique".split()
    ledger = ledger_of(*before)
    assert [k for k in kinds if other_kind(ledger, "9", k, "fp") is None] == fitting.split()
    assert other_kind(ledger, "9", None, "fp") is None


def test_a_stream_takes_a_few_rows_without_any(manifest_on):
    manifest = manifest_on(ledger_of("column"))
    info = {"token": "t", "stream": "s", "fingerprints": "empty"}
    claim = manifest.begin("9", 0, info)
    assert claim.notes[0].startswith("Batch 9 has nothing in event_fingerprint")
    for kind in ("surrogate", "id"):
        with pytest.raises(RecipeError):
            manifest.begin("10", 0, {**info, "fingerprints": kind})
    with pytest.raises(RecipeError, match="--input-schema"):
        manifest.look("10", 0, {"token": "t", "fingerprints": "empty"})


@pytest.fixture
def manifest_on():
    "A manifest on markers in a list."

    class Listed:
        name, exclusive, texts = "a list", False, False

        def __init__(self, ledger):
            self.markers = lambda: list(ledger.markers)

        def append(self, marker):
            return True

        def gone(self, ledger, retention_s):
            return set()

    return lambda ledger: Manifest(Listed(ledger), ledger.recipe)

"""Hosts that change: who may take over a claim that a killed run left, on both back ends."""

import pytest
from conftest import made_table
from ledgers import RECIPE

from dedup_nb.base.config import Config, Limits
from dedup_nb.base.errors import BusyError, ConfigError
from dedup_nb.dynamodb.connection import Connection
from dedup_nb.dynamodb.store import DynamoStore
from dedup_nb.manifest import ledger, protocol
from dedup_nb.manifest.lake import LakeStore
from dedup_nb.manifest.protocol import Manifest


@pytest.fixture
def host(monkeypatch):
    "Be a process of another host from now on, with a start of its own; one that is dead if so asked."

    def become(name, boot=None, dead=False):
        monkeypatch.setattr(ledger.platform, "node", lambda: name)
        monkeypatch.setattr(ledger, "_boot", lambda: boot or f"start of {name}")
        gone = {"pid": 2**22 + 1, "started": "1"} if dead else {}
        monkeypatch.setattr(protocol, "this_process", lambda: {**ledger.this_process(), **gone})

    return become


@pytest.fixture(params=["lake", "dynamodb"])
def manifest(request, spark, tmp_path):
    "Open the manifest of this test as another job would."
    name = made_table(request.getfixturevalue("dynamodb")).name if request.param == "dynamodb" else None

    def of(owner=None, minutes=360):
        limits = Limits(owner=owner, claim_timeout_minutes=minutes)
        if name:
            address = request.getfixturevalue("dynamodb")
            store = DynamoStore(spark, Connection(name, "us-east-1", address), str(tmp_path / "claims"))
        else:
            store = LakeStore(spark, str(tmp_path / "manifest"))
        return Manifest(store, RECIPE, limits)

    return of


def test_its_owner_takes_a_claim_over_at_once_on_another_host(manifest, host):
    host("one")
    manifest("daily-dedup").begin("monday", 0, {"token": "t1"})
    host("two")
    for other in (None, "another-job"):
        with pytest.raises(BusyError, match="claimed by daily-dedup, process .* on one since"):
            manifest(other).begin("monday", 0, {"token": "t2"})
    claim = manifest("daily-dedup").begin("monday", 0, {"token": "t3"})
    assert "took over the unfinished claim of daily-dedup, process" in str(claim.notes)
    assert manifest().ledger().holds("monday", "t3")


# on DynamoDB other batches are never in the way
@pytest.mark.parametrize("manifest", ["lake"], indirect=True)
def test_what_its_owner_left_of_another_batch_is_closed_at_once(manifest, host):
    host("one")
    first = manifest("daily-dedup")
    first.commit(first.begin("monday", 0, {"token": "t1"}), None, {"counts": {}})
    manifest("daily-dedup").begin("monday", 0, {"token": "t2"}, rerun=True)
    host("two")
    with pytest.raises(BusyError, match="batch monday is claimed by daily-dedup"):
        manifest("another-job").begin("tuesday", 60, {"token": "t3"})
    claim = manifest("daily-dedup").begin("tuesday", 60, {"token": "t4"})
    assert "was left by the same owner and is closed; that batch stays as it was committed" in str(
        claim.notes
    )
    assert claim.ledger.entries["monday"].committed


def test_without_an_owner_time_frees_a_claim_or_a_dead_process_of_the_same_start(manifest, host):
    host("one", dead=True)
    manifest().begin("monday", 0, {"token": "t1"})
    host("one", boot="another start")  # two machines of a cloud with one name
    with pytest.raises(BusyError, match="which may still be at work"):
        manifest().begin("monday", 0, {"token": "t2"})
    host("two", dead=True)
    with pytest.raises(BusyError, match="which may still be at work"):
        manifest().begin("monday", 0, {"token": "t2"})
    assert manifest(minutes=0).begin("monday", 0, {"token": "t3"})
    assert manifest().begin("monday", 0, {"token": "t4"})  # that process is no more


@pytest.mark.parametrize("owner", ["daily dedup", "x" * 201, "a\tb"])
def test_an_owner_that_is_no_name_is_refused(owner):
    with pytest.raises(ConfigError, match="owner is no name of a job: .* at most 200 characters"):
        Config(input="/in", output="/out", owner=owner)

"""One Spark session for all tests, and where the peers' recorded cases lie (absent outside the workshop: those tests skip)."""
import os, sys
from pathlib import Path
import pytest
from spread import INTERPRETED, SHORT_LIVED

ROOT = Path(__file__).resolve().parents[1]
CONFORMANCE = ROOT.parent / "shared" / "conformance"


def pytest_configure(config):
    # settings of the person who runs the tests must not leak into them
    for name in [n for n in os.environ if n.startswith("DEDUP_") and not n.startswith("DEDUP_TEST_")]: del os.environ[name]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # the emulator takes any; workers get them from the JVM, so before it starts
    if not os.environ.get("DEDUP_TEST_DYNAMODB_ENDPOINT"): os.environ.update(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test", AWS_DEFAULT_REGION="us-east-1", AWS_EC2_METADATA_DISABLED="true")


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="also the tests marked `long`, see make test-long")


# files that take minutes go first, so that no worker is left alone with one at the end
FIRST = ["notebooks", "cross_batch", "run", "manifest", "laws", "killed", "two_executors", "distribution", "dynamodb", "samples"]


def pytest_collection_modifyitems(config, items):
    "The longest files first; without --long, leave out what takes minutes and guards what another test already touches."
    place = {f"test_{name}": n for n, name in enumerate(FIRST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(place)))
    if config.getoption("--long"): return
    left = [item for item in items if item.get_closest_marker("long")]
    if left: config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]


@pytest.fixture(scope="session")
def spark():
    os.environ.setdefault("SPARK_MASTER", "local[2]")
    from dedup_nb.config import _LOCAL, get_spark
    _LOCAL["spark.driver.memory"] = "2g"  # several workers, one JVM each
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:+UseSerialGC")
    session = get_spark(delta=True)
    # the JVMs that tests start do not live long enough to earn back the second compiler
    os.environ["SPARK_SUBMIT_OPTS"] = SHORT_LIVED
    # tiny frames: partitions, adaptive plans and generated code are pure cost; the notebooks run with them
    for name, value in {"spark.sql.shuffle.partitions": "2", **INTERPRETED}.items(): session.conf.set(name, value)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def dynamodb():
    "The address of a DynamoDB: an emulator in a process of its own, or DEDUP_TEST_DYNAMODB_ENDPOINT."
    from emulator import ministack
    if given := os.environ.get("DEDUP_TEST_DYNAMODB_ENDPOINT"): yield given
    else:
        with ministack() as address: yield address


@pytest.fixture(autouse=True)
def _quiet_folder(tmp_path, monkeypatch):
    "Each test works in a folder of its own: no settings.ini in reach, nothing left behind."
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def conformance():
    if not CONFORMANCE.exists(): pytest.skip("the recorded cases are not here")
    return CONFORMANCE

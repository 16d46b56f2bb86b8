"""One Spark session a worker, one DynamoDB, and the recorded cases of peers (absent: those tests skip)."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from spread import INTERPRETED, SHORT_LIVED, SMALL, configured

ROOT = Path(__file__).resolve().parents[1]
CONFORMANCE = ROOT.parent / "shared" / "conformance"
# files that take longest go first, so that no worker is left alone with one at the end
FIRST = (
    "s3",
    "notebooks_runs",
    "sessions",
    "killed",
    "merges",
    "repair_again",
    "repair",
    "output_table",
    "erased_again",
    "stream",
    "tables",
    "laws",
    "connect",
    "archive",
    "notebooks_rules",
    "versions",
    "fingerprint_kinds",
    "erase",
    "docs",
    "run",
    "deduper",
    "claim_interleavings",
    "claim_races",
    "claims",
    "store",
    "row_by_row",
)
# Spark starts `chmod` for each local file: VFORK starts it faster, and without checksums there are fewer
LIGHT_PROCESSES = ["-Djdk.lang.Process.launchMechanism=VFORK"] if sys.platform == "linux" else []
LIGHT_FILES = "-Dspark.hadoop.fs.file.impl=org.apache.hadoop.fs.RawLocalFileSystem"


def in_memory():
    "A folder in memory where there is room: runs write many small files. Else None."
    shared = "/dev/shm"
    return shared if os.path.isdir(shared) and shutil.disk_usage(shared).free > 4e9 else None


def pytest_configure(config):
    # settings of the person who runs the tests must not leak into them
    for name in [n for n in os.environ if n.startswith("DEDUP_") and not n.startswith("DEDUP_TEST_")]:
        del os.environ[name]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # programs that tests start find the package and what tests share
    own = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests/support")]
    os.environ["PYTHONPATH"] = os.pathsep.join([*own, os.environ.get("PYTHONPATH", "")])
    os.environ.setdefault("SPARK_MASTER", "local[1]")
    if "TMPDIR" not in os.environ and (shared := in_memory()):  # workers find it set
        config.own_folder = tempfile.tempdir = tempfile.mkdtemp(prefix="dedup-tests-", dir=shared)
        os.environ["TMPDIR"] = os.environ["SPARK_LOCAL_DIRS"] = tempfile.tempdir
    # for the frames of tests, plans that are optimised and compiled cost more than they bring
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join(
        [SHORT_LIVED, "-Xms1g -Xmn400m", *LIGHT_PROCESSES, *(f"-D{n}={v}" for n, v in INTERPRETED.items())]
    )
    if not os.environ.get("DEDUP_TEST_DYNAMODB_ENDPOINT"):  # the emulator takes any key
        os.environ.update(
            AWS_ACCESS_KEY_ID="test",
            AWS_SECRET_ACCESS_KEY="test",
            AWS_DEFAULT_REGION="us-east-1",
            AWS_EC2_METADATA_DISABLED="true",
        )


def pytest_unconfigure(config):
    shutil.rmtree(getattr(config, "own_folder", ""), ignore_errors=True)


def pytest_collection_modifyitems(items):
    "The longest files first."
    place = {f"test_{name}": n for n, name in enumerate(FIRST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(FIRST)))


@pytest.fixture(scope="session")
def spark():
    from dedup_nb.base.spark import get_spark

    options = os.environ["SPARK_SUBMIT_OPTS"]
    os.environ["SPARK_SUBMIT_OPTS"] = f"{options} {LIGHT_FILES}"  # not for commands: S3 wants the others
    # a run of the tests that is killed must not leave tables to the next one
    warehouse = {"spark.sql.warehouse.dir": tempfile.mkdtemp(prefix="warehouse-")}
    session = get_spark(delta=True, settings=warehouse)
    os.environ["SPARK_SUBMIT_OPTS"] = options
    session.conf.set("spark.sql.shuffle.partitions", "2")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def dynamodb():
    "The address of a DynamoDB: an emulator in a process of its own, or DEDUP_TEST_DYNAMODB_ENDPOINT."
    from emulator import ministack

    if given := os.environ.get("DEDUP_TEST_DYNAMODB_ENDPOINT"):
        yield given
        return
    with ministack() as address:
        yield address


@pytest.fixture(scope="module")
def shared_table(dynamodb):
    "A DynamoDB table that tests with ids of their own share."
    return made_table(dynamodb)


@pytest.fixture
def table(dynamodb):
    "A DynamoDB table of its own."
    return made_table(dynamodb)


def made_table(address):
    from emulator import a_table

    from dedup_nb.dynamodb.table import create_table

    made = a_table(address)
    create_table(made)
    return made


@pytest.fixture(scope="session")
def s3_server():
    "The address of an S3 in this process."
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture(scope="session")
def conformance():
    if not CONFORMANCE.is_dir():
        pytest.skip("the peers' recorded cases are not here")
    return CONFORMANCE


def committed_batches(spark, folder, batches):
    from runs import go, write

    write(spark, folder / "in", batches)
    go(spark, folder)
    return folder


@pytest.fixture(scope="session")
def two_done(spark, tmp_path_factory):
    "A folder with two committed batches, to be read only."
    from runs import TWO

    return committed_batches(spark, tmp_path_factory.mktemp("two"), TWO)


@pytest.fixture(scope="session")
def copies_done(spark, tmp_path_factory):
    "A folder with two committed batches full of copies, to be read only."
    from runs import WITH_COPIES

    return committed_batches(spark, tmp_path_factory.mktemp("copies"), WITH_COPIES)


@pytest.fixture
def two(two_done, tmp_path):
    "A folder of its own with two committed batches."
    # the copies of the input have the times of the original: they are the files that were committed
    return Path(shutil.copytree(two_done, tmp_path, dirs_exist_ok=True))


@pytest.fixture
def copies(copies_done, tmp_path):
    "A folder of its own with two committed batches full of copies."
    return Path(shutil.copytree(copies_done, tmp_path, dirs_exist_ok=True))


@pytest.fixture(scope="module")
def one_partition(spark):
    "For frames of a few rows: plans as short as they can be, and no frame cached afterwards."
    with configured(spark, SMALL):
        yield
    spark.catalog.clearCache()


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    "The test works in a folder of its own, with no settings.ini in reach."
    monkeypatch.chdir(tmp_path)
    return str(tmp_path)


@pytest.fixture
def said():
    "The lines that the package logs during a test."
    from runs import heard

    with heard() as lines:
        yield lines

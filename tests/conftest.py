"""One Spark session a worker, one DynamoDB, and the recorded cases of peers (absent: those tests skip)."""

import os
import shutil
import sys
import tempfile
import time
import zipfile
from collections import defaultdict
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings
from spread import INTERPRETED, SHORT_LIVED, SMALL, configured

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
ROOT = Path(__file__).resolve().parents[1]
CONFORMANCE = ROOT.parent / "shared" / "conformance"
# files that take longest, or hold what the README promises, go first: no worker is left alone at the end
FIRST = (
    "s3",
    "notebooks_runs",
    "sessions",
    "killed",
    "two_executors",
    "races",
    "interleavings",
    "lock",
    "earlier_batches",
    "committer",
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
# of tests with several cases, so many belong to `make test`; the others to `make test-slow`
QUICK = {
    "test_lines_are_carried_alike": 1,
    "test_where_spark_writes_arrow_picks_the_suspects": 1,
    "test_what_arrow_does_not_surely_know_is_left_to_spark": 2,
    "test_tables_whose_files_do_not_say_their_rows": 1,
    "test_any_files_are_carried_alike": 1,
    "test_frames_mean_the_same_in_every_session": 0,
    "test_a_damaged_file_is_said_whatever_the_session_passes_by": 1,
    "test_without_a_manifest": 1,
    "test_the_error_proposes_the_command_to_paste": 2,
    "test_recorded_events_become_the_recorded_tables": 2,
    "test_tables_of_sure_lines_are_those_of_spark": 2,
    "test_recorded_events": 1,
    "test_every_output_format_holds_the_same_rows": 1,
    "test_every_input_format_gives_the_same_rows": 1,
    "test_results_are_those_of_the_engine": 3,
    "test_every_strategy_agrees_with_the_reference": 3,
    "test_what_others_write_is_read_in_both_ways": 1,
    "test_a_pair_of_a_run_that_is_over_is_taken_over_once": 1,
    "test_a_claim_that_is_taken_for_dead_and_is_not_commits_nothing": 1,
}
# of tests with many slow cases, so many belong to it; the others to `make soak`
FEW = {
    "test_a_killed_run_is_repaired_by_running_again": 2,
    "test_spark_connect_gives_the_same_rows_as_a_classic_session": 1,
    "test_a_run_means_the_same_in_every_session": 1,
    "test_times_of_far_years_are_read_right_by_others": 1,
    "test_our_own_way_says_what_deduplicate_does": 2,
    "test_many_mutated_lines_get_the_verdict_of_a_plain_decoder": 2,
    "test_frames_are_shredded_as_lines_are": 2,
    "test_no_value_is_lost_between_batches": 2,
    "test_what_no_type_holds_is_text": 2,
    "test_so_it_is_with_one_fault_anywhere": 1,
    "test_so_it_is_with_one_fault_where_a_run_is_taken_for_dead": 1,
    "test_any_cut_along_the_total_order_keeps_the_same_events_with_the_same_ids": 2,
    "test_kept_of_kept_is_kept_under_the_same_ids_and_nothing_is_dropped": 2,
    "test_partitions_and_row_order_do_not_matter": 2,
    "test_a_table_whose_writer_is_killed_holds_whole_inserts": 1,
    "test_no_order_of_rows_or_partitions_changes_a_result_and_merges_may_run_twice": 2,
    "test_repeated_inserts_are_those_of_the_engine": 1,
    "test_results_are_those_of_the_engine_where_merges_run_between": 2,
    "test_the_explanation_keeps_what_the_engine_keeps": 2,
    "test_a_condition_that_was_killed_takes_the_copies_of_events_that_are_gone": 1,
    "test_a_kill_leaves_each_batch_whole_and_the_same_command_finishes": 1,
    "test_a_kill_while_items_leave_a_table_is_made_good_by_the_next": 1,
    "test_every_output_format": 1,
    "test_any_files_are_carried_alike": 2,
    "test_forgotten_and_run_again_in_another_order": 1,
    "test_without_a_manifest": 1,
    "test_another_kind_of_fingerprint_is_refused_with_the_ways_on": 1,
    "test_the_same_kind_goes_on": 1,
    "test_an_erasure_that_was_killed_is_finished_though_the_table_has_lost_its_events": 1,
    "test_what_cannot_be_told_is_refused_and_taken_whole_if_forced": 2,
    "test_lines_and_their_tables_are_counted_right": 2,
    "test_other_settings_agree_with_the_reference": 2,
    "test_recorded_cases": 6,
    "test_a_key_with_half_of_all_rows": 1,
    "test_times_of_another_unit_are_refused_with_one_that_fits": 2,
    "test_a_table_by_name_becomes_what_deduplicate_keeps": 1,
    "test_several_columns_make_an_id": 2,
    "test_lines_are_carried_alike": 2,
    "test_a_zombie_there_adds_a_stray_folder_at_most": 1,
    "test_a_run_that_is_killed_there_leaves_no_row_twice": 1,
    "test_a_stream_keeps_what_one_batch_keeps": 1,
    "test_a_driver_that_comes_late_takes_nothing_and_adds_nothing": 1,
    "test_it_is_read_explained_run_again_and_erased_from": 1,
    "test_a_rerun_that_would_no_longer_see_a_batch_for_which_it_dropped_rows_is_refused": 1,
    "test_a_store_without_conditional_puts_has_one_host": 1,
    "test_an_empty_manifest_beside_events_is_refused_until_it_is_filled_or_accepted": 1,
    "test_a_run_does_what_was_forecast": 2,
    "test_the_samples_meet_their_truth_row_by_row": 1,
    "test_kept_ids_are_unique_and_dropped_rows_point_at_one_of_them": 1,
    "test_explain_tells_the_story_of_an_id": 1,
    "test_the_summary_says_what_earlier_batches_changed": 1,
    "test_a_table_says_the_same_whether_it_was_optimized_or_not": 4,
    "test_a_run_that_is_stopped_ends_with_one_line": 3,
    "test_what_is_merged_here_and_there_is_shown_as_the_reference_does": 3,
    "test_one_command_loads_a_batch_into_redshift": 2,
    "test_a_run_leaves_a_table_for_events_and_one_for_each_type": 2,
    "test_what_others_do_with_the_table_between_two_commits_changes_nothing": 2,
    "test_the_number_of_parts_changes_nothing": 2,
}
# Spark starts `chmod` for each local file: VFORK starts it faster, and without checksums there are fewer
OF_LINUX = ["-Djdk.lang.Process.launchMechanism=VFORK", "-XX:+UseTransparentHugePages"]
LIGHT_PROCESSES = OF_LINUX if sys.platform == "linux" else []
LIGHT_FILES = "-Dspark.hadoop.fs.file.impl=org.apache.hadoop.fs.RawLocalFileSystem"
# each scan sends all settings of Hadoop along, packed one by one: two thirds are of clusters
OF_CLUSTERS = ("yarn-default.xml", "mapred-default.xml")
# PySpark asks for these by name in most calls, and Java looks for the name in each of its jars
OFTEN_ASKED = ("functions", "PythonUtils", "PythonSQLUtils", "org.apache.spark.sql.functions")


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
        [
            SHORT_LIVED,
            "-Xms1g -Xmn400m",
            *LIGHT_PROCESSES,
            *(f"-D{n}={v}" for n, v in INTERPRETED.items()),
        ]
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


def mark_most(items, few, which, mark):
    "Of tests with more cases than `few` says, of those that `which` takes, mark the others, evenly."
    cases = defaultdict(list)
    for item in items:
        if item.originalname in few and which({mark.name for mark in item.iter_markers()}):
            cases[item.path, item.originalname].append(item)
    for (_, name), found in cases.items():
        kept = {len(found) * n // few[name] for n in range(few[name])}  # from the first on
        for item in (item for n, item in enumerate(found) if n not in kept):
            item.add_marker(mark)


@pytest.hookimpl(tryfirst=True)  # before the marks are asked for
def pytest_collection_modifyitems(items):
    "The longest files first; of tests with many cases, a few are for every day."
    place = {f"test_{name}": n for n, name in enumerate(FIRST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(FIRST)))
    mark_most(items, FEW, lambda marks: "slow" in marks and "soak" not in marks, "soak")
    mark_most(items, QUICK, lambda marks: not marks & {"slow", "soak"}, "slow")


def pytest_runtest_setup(item):
    "Where there is a limit of time, the last tests are skipped, and the report says so."
    if time.time() > float(os.environ.get("DEDUP_TEST_UNTIL", "inf")):
        pytest.skip("no time left: this machine is too slow for all tests (DEDUP_TEST_UNTIL)")


@pytest.fixture(autouse=True)
def keys_in_files(request, monkeypatch):
    "In every third test keys lie in files between two steps, as those of large batches do."
    if crc32(request.node.nodeid.encode()) % 3 == 0:
        monkeypatch.setattr("dedup_nb.pipeline.write._FEW_ROWS", -1)


def without_clusters():
    "The option for Java by which Hadoop's settings of clusters are found empty."
    jar = f"{tempfile.mkdtemp()}/none.jar"
    with zipfile.ZipFile(jar, "w") as none:
        for name in OF_CLUSTERS:
            none.writestr(name, "<configuration/>")
    return f"-Xbootclasspath/a:{jar}"


@pytest.fixture(scope="session")
def spark():
    from dedup_nb.base.spark import get_spark

    options = os.environ["SPARK_SUBMIT_OPTS"]
    # not for commands: S3 wants the others
    os.environ["SPARK_SUBMIT_OPTS"] = f"{options} {LIGHT_FILES} {without_clusters()} -Xms2g -Xmn900m"
    # a run of the tests that is killed must not leave tables to the next one
    warehouse = {"spark.sql.warehouse.dir": tempfile.mkdtemp(prefix="warehouse-")}
    session = get_spark(delta=True, settings=warehouse)
    os.environ["SPARK_SUBMIT_OPTS"] = options
    session.conf.set("spark.sql.shuffle.partitions", "2")
    for name in OFTEN_ASKED:
        setattr(session._jvm, name, getattr(session._jvm, name))
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

"Addresses: one spelling of each place, and what lies inside what."

from types import SimpleNamespace

import pyarrow.fs as pafs
import pytest
from inputs import SPELLINGS

from dedup_nb.base.errors import InputError
from dedup_nb.base.storage import absolute, canonical, escaped, filesystem, in_order, is_inside, loader_url

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.mark.parametrize(
    "path, inner",
    [("/data/x", "/data/x"), ("file:/d/x", "/d/x"), ("file:///d/x", "/d/x")],
)
def test_local_addresses_open_the_local_file_system(path, inner):
    assert filesystem(path) == (pafs.LocalFileSystem(), inner)


def test_dbfs_is_a_folder_on_databricks_and_nothing_elsewhere(monkeypatch):
    with pytest.raises(InputError, match="dbfs:/mnt/x: dbfs: is on Databricks alone"):
        filesystem("dbfs:/mnt/x")
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    monkeypatch.setattr("os.path.isdir", lambda path: path == "/dbfs")
    assert filesystem("dbfs:/mnt/x")[1] == "/dbfs/mnt/x"


def test_relative_paths_become_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert filesystem("x")[1] == absolute("x") == f"{tmp_path}/x"


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_s3_addresses_open_s3_whatever_their_spelling(monkeypatch, scheme):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    fs, inner = filesystem(f"{scheme}://bucket/folder/")
    assert fs.type_name == "s3" and inner == "bucket/folder"


def test_what_python_needs_for_hdfs_is_said(monkeypatch):
    def fail(_):
        raise OSError("Unable to load libhdfs\ndlopen failed")

    monkeypatch.setattr(pafs, "FileSystem", SimpleNamespace(from_uri=fail))
    words = r"hdfs://node/x cannot be opened: Unable to load libhdfs\. .*HADOOP_HOME and CLASSPATH"
    with pytest.raises(InputError, match=words):
        filesystem("hdfs://node/x")


def test_an_unknown_scheme_names_the_known_ones():
    words = r"s3x://b/x: wanted .*s3a:.*; found s3x:\. Did you mean s3\w?\?"
    with pytest.raises(InputError, match=words):
        filesystem("s3x://b/x")


@pytest.mark.parametrize(
    "path, folder, inside",
    [
        ("s3a://b/in/out", "s3://b/in/", True),
        ("s3n://b//in", "s3a://b/in", True),
        ("s3://b/input", "s3://b/in", False),
        ("file:/in/out", "/in", True),
        ("/in/../out", "file:///in", False),
        ("/dbfs/in/x", "dbfs:/in", True),
        ("dbfs:/in", "/in", False),
        ("gs://b/in/x", "s3://b/in", False),
    ],
)
def test_a_place_is_inside_a_folder_however_the_two_are_spelled(path, folder, inside):
    assert is_inside(path, folder) is inside
    assert (canonical(path) == canonical(folder)) is (path == "s3n://b//in")


@pytest.mark.parametrize(
    "path, url",
    [
        ("s3a://b/x", "s3://b/x"),
        ("s3n://b/x", "s3://b/x"),
        ("gs://b/x", "gs://b/x"),
        ("dbfs:/x", "dbfs:/x"),
        ("file:/x", "file:///x"),
        ("/x/y", "file:///x/y"),
    ],
)
def test_a_loader_gets_addresses_that_it_knows(path, url):
    assert loader_url(path) == url


@pytest.mark.parametrize(
    "path, opened, loaded",
    [
        ("/data/x/", "/data/x", "file:///data/x"),
        ("file:/data/x", "file:///data/x", "file:///data/x"),
        ("file:///data/x/", "file:///data/x", "file:///data/x"),
        ("FILE:/data//x/../y", "file:///data/y", "file:///data/y"),
        ("dbfs:/data/x/", "dbfs:/data/x", "dbfs:/data/x"),
        ("/dbfs/data/x", "/dbfs/data/x", "file:///dbfs/data/x"),
        ("s3://lake/x/", "s3://lake/x", "s3://lake/x"),
        ("S3://Lake/X", "s3://Lake/X", "s3://Lake/X"),
        ("s3a://lake/x", "s3a://lake/x", "s3://lake/x"),
        ("s3n://lake/x", "s3n://lake/x", "s3://lake/x"),
        ("gs://lake/x", "gs://lake/x", "gs://lake/x"),
        ("abfss://c@account/x", "abfss://c@account/x", "abfss://c@account/x"),
        ("hdfs://node:8020/x", "hdfs://node:8020/x", "hdfs://node:8020/x"),
    ],
)
def test_an_address_is_one_for_spark_and_one_for_loaders(path, opened, loaded):
    assert absolute(path) == opened and absolute(opened) == opened
    assert loader_url(absolute(path)) == loaded


def test_local_paths_are_from_here(own_folder):
    assert absolute("a/../b") == f"{own_folder}/b" and absolute("file:b") == f"file://{own_folder}/b"
    assert filesystem("file:/data//x")[1] == "/data/x"
    assert escaped("/data/run={1}/[a]*?") == r"/data/run=\{1\}/\[a\]\*\?"
    with pytest.raises(InputError, match="found hdsf:. Did you mean hdfs?"):
        filesystem("hdsf://lake/x")
    with pytest.raises(InputError, match="Correct the path, or write ./xc:1 for such a folder"):
        filesystem("xc:1")


@pytest.mark.parametrize("spellings", SPELLINGS, ids=lambda s: s[0])
def test_a_place_is_found_under_all_its_spellings(spellings, own_folder):
    places = [path.format(here=own_folder) for path in spellings]
    assert len({canonical(p) for p in places}) == 1
    for folder in places:
        for path in places:
            assert is_inside(path, folder) and is_inside(f"{path.rstrip('/')}/out", folder)
            assert not is_inside(f"{path.rstrip('/')}2", folder) and not is_inside(folder, f"{path}/out")


def test_names_with_all_their_zeros_keep_the_order_of_their_letters():
    names = [
        "",
        "+1",
        "-",
        "0",
        "01",
        "1",
        "1-1",
        "1_1",
        "2026-02-28",
        "2026-02-28-00",
        "2026-11-20",
        "A",
        "a~1",
    ]
    assert sorted(sorted(names, reverse=True), key=in_order) == sorted(names)
    assert sorted(["a1", "a01", "a001", "a²", "a0"], key=in_order) == ["a0", "a001", "a01", "a1", "a²"]

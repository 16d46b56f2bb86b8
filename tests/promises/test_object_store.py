"""An object store as a home of inputs and outputs: what the driver does alone, over S3's protocol."""

import json

import boto3
import pytest

from dedup_nb.base.config import Config, Input, ManifestSettings
from dedup_nb.base.errors import (
    AccessError,
    BusyError,
    InputError,
    MissingInputError,
    UnreadableError,
    UnwritableError,
)
from dedup_nb.base.storage import (
    files_below,
    filesystem,
    has_files,
    move_files,
    names_in,
    read_json,
    remove_file,
    remove_folder,
    write_text,
)
from dedup_nb.formats.batches import find_batches
from dedup_nb.formats.detect import check_format
from dedup_nb.manifest.ledger import Ledger, Marker
from dedup_nb.operate.history import runs
from dedup_nb.pipeline.commit import (
    check_alone,
    commit_record,
    committed_files,
    discard,
    publish,
    publish_pending,
    remove_unlisted,
)
from dedup_nb.pipeline.job import check_output, noted_memory, put_back_note, write_note
from dedup_nb.pipeline.todo import compare_with_commits, record_input
from dedup_nb.pipeline.write import AREAS, Attempt


@pytest.fixture(scope="module")
def s3(s3_server):
    "A client to look behind the scenes."
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("AWS_ENDPOINT_URL", s3_server)
        patched.setenv("AWS_REGION", "us-east-1")
        yield boto3.client("s3", endpoint_url=s3_server, region_name="us-east-1")


@pytest.fixture
def bucket(s3):
    "A bucket of its own."
    taken = len(s3.list_buckets()["Buckets"])
    s3.create_bucket(Bucket=f"lake-{taken}")
    return f"lake-{taken}"


def put_texts(s3, bucket, **objects):
    for key, text in objects.items():
        s3.put_object(Bucket=bucket, Key=key, Body=text.encode())


def keys_in(s3, bucket, prefix=""):
    found = s3.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
    return {o["Key"] for o in found}


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_an_input_is_listed_once_and_cut_into_batches(s3, bucket, scheme):
    odd = "in/run=2/dt=a%3Ab/part 1#?{x}.json"
    put_texts(
        s3, bucket, **{"in/run=1/a": "12", "in/run=1/x/b": "3", odd: "1234", "in/run=3/": "", "in/notes": "n"}
    )
    put_texts(s3, bucket, **{"in/run=a b/a": "1", "in/run=1/_SUCCESS": "", "other/run=9/a": "1"})
    put_texts(s3, bucket, **{"in/run=4//x/_b": "1", "in/run=4//x/a": "12345", "in/run=4/_x//a": "1"})
    found = find_batches(Input(f"{scheme}://{bucket}/in/"))
    assert [(b.batch_id, b.source, b.bytes) for b in found.batches] == [
        ("1", f"{scheme}://{bucket}/in/run=1", 3),
        ("2", f"{scheme}://{bucket}/in/run=2", 4),
        ("3", f"{scheme}://{bucket}/in/run=3", 0),
        ("4", f"{scheme}://{bucket}/in/run=4", 5),
    ]
    assert [f.path for b in found.batches for f in b.files] == [
        f"{scheme}://{bucket}/{key}" for key in ("in/run=1/a", "in/run=1/x/b", odd, "in/run=4//x/a")
    ]
    with pytest.raises(InputError, match="in/run=4//x/a has // in its name.*Rename the object"):
        check_format(found.batches[-1], "json")
    assert "run=a b: 'a b' cannot name a batch" in found.unfit[0]
    assert "1 file lies beside the batch folders" in found.notes[0]
    single = find_batches(Input(f"{scheme}://{bucket}/in/run=1/a"))
    assert [(b.batch_id, b.bytes) for b in single.batches] == [("a", 2)]


@pytest.mark.parametrize(
    "path, kind, words",
    [
        ("s3://{lake}/evnts", MissingInputError, "it is not there. .* has events. Did you mean events?"),
        ("s3://{lake}/events/no/way", MissingInputError, "it is not there. .*/events has run=1"),
        ("s3://nobody-has-this/in", AccessError, "there is no bucket nobody-has-this"),
        ("s3://{lake}/events//run=1", InputError, "events//run=1 cannot be listed"),
    ],
)
def test_an_input_that_is_not_there_is_said_in_our_words(s3, bucket, path, kind, words):
    put_texts(s3, bucket, **{"events/run=1/a": "1"})
    with pytest.raises(kind, match=words):
        find_batches(Input(path.format(lake=bucket)))


@pytest.mark.slow
def test_a_store_that_cannot_be_reached_is_said_in_our_words(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    with pytest.raises(UnreadableError, match="s3://lake/in cannot be listed"):
        find_batches(Input("s3://lake/in"))
    with pytest.raises(UnwritableError, match="Cannot write s3://lake/x"):
        write_text("s3://lake/x", "")


def test_small_files_are_written_read_listed_and_removed(s3, bucket):
    root = f"s3a://{bucket}/out"
    assert read_json(f"{root}/a.json") is None and names_in(root) == files_below(root) == []
    write_text(f"{root}/runs/a=1+1/x y.json", '{"n": "ü"}')
    write_text(f"{root}/runs/a=1+1/x y.json", '{"n": 1}')
    assert read_json(f"{root}/runs/a=1+1/x y.json") == {"n": 1}
    assert files_below(f"{root}/runs", root) == [{"path": "runs/a=1+1/x y.json", "bytes": 8}]
    assert names_in(f"{root}/runs") == ["a=1+1"] and has_files(root)
    assert remove_file(f"{root}/runs/a=1+1/x y.json") and not remove_file(f"{root}/runs/a=1+1/x y.json")
    assert not has_files(root) and keys_in(s3, bucket) == set()
    for name in ("a b.parquet", "_SUCCESS", ".a.crc"):
        write_text(f"{root}/gone/x/{name}", "a")
    for _ in range(2):
        move_files(f"{root}/gone/x", f"{root}/gone/n=1")
    assert [f["path"] for f in files_below(f"{root}/gone")] == ["n=1/a b.parquet", "x/.a.crc", "x/_SUCCESS"]
    remove_folder(f"{root}/gone")
    remove_folder(f"{root}/gone")
    assert names_in(f"{root}/gone") == [] and keys_in(s3, bucket) == set()


def attempt_at(root, token, batch="1"):
    "An attempt that has written a file in each area."
    attempt = Attempt(root, batch, token)
    for area in AREAS:
        write_text(f"{attempt.folder(area)}/attempt={token}/day=1/part-0.parquet", token)
    return attempt, {area: files_below(attempt.folder(area) + f"/attempt={token}", root) for area in AREAS}


def test_a_commit_record_is_published_read_back_and_what_it_does_not_list_is_removed(s3, bucket):
    root = f"s3a://{bucket}/out"
    attempt_at(root, "dead")
    attempt, files = attempt_at(root, "alive")
    write_text(f"{attempt.staging}/keys/part-0", "")
    check_alone(attempt, files, None, AREAS)
    record = commit_record(attempt, files, {"status": "committed", "output_format": "parquet"})
    publish(root, record)
    publish(root, record)  # as after a crash
    assert committed_files(root, "1") == record and record["entries"] == [
        {
            "url": f"s3://{bucket}/out/events/batch_id=1/attempt=alive/day=1/part-0.parquet",
            "mandatory": True,
            "meta": {"content_length": 5},
        }
    ]
    assert read_json(f"{root}/runs/1/copy_manifest.json") == {"entries": record["entries"]}
    assert remove_unlisted(attempt, record, AREAS) == len(AREAS)
    left = {f"out/{area}/batch_id=1/attempt=alive/day=1/part-0.parquet" for area in AREAS}
    assert keys_in(s3, bucket) == left | {"out/runs/1/files.json", "out/runs/1/copy_manifest.json"}
    discard(attempt)  # what is committed stays
    late, files = attempt_at(root, "late")
    with pytest.raises(BusyError, match="Another run has written batch 1"):
        check_alone(late, files, None, AREAS)
    discard(late)
    assert {key for key in keys_in(s3, bucket) if "late" in key} == set() and left <= keys_in(s3, bucket)


def test_commits_that_were_not_published_are_published_by_the_next_run(s3, bucket):
    root = f"s3://{bucket}/out"
    markers = [Marker(0, "recipe", "", {})]
    for seq, batch in enumerate("abc", 1):
        attempt, files = attempt_at(root, f"t{batch}", batch)
        record = commit_record(attempt, files, {"status": "committed", "output_format": "parquet"})
        if batch != "c":  # a run that was killed between its commit and the publishing
            write_text(f"{attempt.staging}/commit.json", json.dumps(record))
        markers.append(Marker(seq, "commit", batch, {"token": f"t{batch}", "first_seq": seq}))
    assert (
        publish_pending(root, Ledger(markers)) == ["a", "b"] and publish_pending(root, Ledger(markers)) == []
    )
    assert committed_files(root, "a")["attempt"] == "ta" and committed_files(root, "c") is None
    assert not has_files(f"{root}/.staging")


def test_what_is_noted_of_an_output_and_its_inputs_is_found_again(s3, bucket):
    root, table = f"s3://{bucket}/out", ManifestSettings("dynamodb", None, "events", None, "us-east-1")
    made_with = {"input_format": "json", "event_id": ("event_id",), "output_format": "parquet"}
    note = check_output(root, made_with, table)
    assert keys_in(s3, bucket) == set()
    write_note(note)
    assert noted_memory(root) == table
    put_back_note(note)
    assert noted_memory(root) is None and keys_in(s3, bucket) == set()
    put_texts(s3, bucket, **{"in/run=1/a": "12", "in/run=1/b": "3"})
    [batch] = find_batches(Input(f"s3a://{bucket}/in")).batches
    info = {"token": "t", "first_seq": 1, "input": record_input(root, batch), "source": batch.source}
    ledger = Ledger([Marker(1, "commit", "1", info)])

    def compared():
        return compare_with_commits(find_batches(Input(f"s3://{bucket}/in")).batches, ledger, root)

    assert (compared().notes, compared().troubles) == ((), {})
    put_texts(s3, bucket, **{"in/run=1/b": "33", "in/run=1/c": "3"})
    assert "1 new file since; the first is c" in compared().notes[0]
    assert "b was rewritten (2 bytes, had 1)" in compared().troubles["1"]


def test_runs_of_an_output_without_a_manifest_are_listed(s3, bucket):
    root = f"s3://{bucket}/out"
    counts = {"read": 3, "bad": 1, "kept": 1, "dropped": 1}
    m = {"batch_id": "1", "attempt": "a1", "status": "committed", "etl_time": None, "counts": counts}
    write_text(f"{root}/runs/1/metrics.json", json.dumps(m))
    write_note(check_output(root, {}, ManifestSettings("none")))
    assert [(r["batch_id"], r["counts"]) for r in runs(Config(output=root)).data] == [("1", counts)]


def test_a_bucket_with_dots_and_its_root_can_be_read(s3):
    s3.create_bucket(Bucket="my.lake.of-events")
    put_texts(s3, "my.lake.of-events", **{"run=1/a": "1"})
    found = find_batches(Input("s3a://my.lake.of-events"))
    assert [f.path for b in found.batches for f in b.files] == ["s3a://my.lake.of-events/run=1/a"]
    assert filesystem("s3a://my.lake.of-events/x//")[1] == "my.lake.of-events/x"

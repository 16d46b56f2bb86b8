"""Whole runs from the shell on an S3, a server in a process of its own: one way there for all."""

import io
import json
import os
import re
import subprocess
import sys
from collections import Counter
from fnmatch import fnmatchcase
from unittest.mock import Mock

import boto3
import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.exceptions import CredentialRetrievalError
from conftest import ROOT
from emulator import answer, gate_to, ministack
from runs import TWO

from dedup_nb.base import storage
from dedup_nb.base.config import Input
from dedup_nb.base.errors import AccessError, ConfigError, UnreachableError
from dedup_nb.base.spark import _join_settings
from dedup_nb.base.storage import remove_folder
from dedup_nb.dynamodb.connection import s3_policy
from dedup_nb.formats.batches import find_batches
from dedup_nb.formats.detect import check_format
from dedup_nb.pipeline.job import check_output

SECRET = "a secret that is never seen"


@pytest.fixture(scope="module")
def gate():
    "A store that counts, and may refuse."
    with ministack() as server, gate_to(server) as (gate, address), pytest.MonkeyPatch.context() as patched:
        patched.setenv("AWS_ENDPOINT_URL_S3", address)
        patched.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        yield gate


@pytest.fixture
def bucket(gate, request):
    "A bucket with two batches of JSON lines."
    name = f"lake-{len(boto3.client('s3').list_buckets()['Buckets'])}"
    boto3.client("s3").create_bucket(Bucket=name)
    for batch, rows in TWO.items():
        put_rows(name, f"in/run={batch}/a.json", rows)
    return name


def put_rows(bucket, key, rows):
    names = ("event_id", "event_fingerprint", "etl_tstamp", "n")
    times = ((one, other, f"2026-11-20T00:00:{t:02d}Z", n) for one, other, t, n in rows)
    lines = "\n".join(json.dumps(dict(zip(names, row))) for row in times)
    boto3.client("s3").put_object(Bucket=bucket, Key=key, Body=lines.encode())


def keys_below(bucket, prefix=""):
    pages = boto3.client("s3").get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    return [o["Key"] for page in pages for o in page.get("Contents", ())]


def read(bucket, key):
    return boto3.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()


def nothing_left(bucket):
    "Are there no objects that stand for folders, and nothing of a step on the way?"
    return not [k for k in keys_below(bucket) if k.endswith("/") or "/.staging/" in k or "_temporary" in k]


def kept_rows_on_s3(bucket, batch):
    "The rows that a commit lists: the id, or whose new id it is, and n."
    listed = json.loads(read(bucket, f"out/runs/{batch}/files.json"))["events"]
    tables = [pq.read_table(io.BytesIO(read(bucket, f"out/{f['path']}"))).to_pylist() for f in listed]
    named = [(r["event_id"], r["original_event_id"], r["n"]) for rows in tables for r in rows]
    return sorted((one if came is None else f"new of {came}", n) for one, came, n in named)


STAYED = {"1": [("a", 1), ("b", 2)], "2": [("c", 5), ("new of a", 4)]}
SCHEMA = "event_id string, event_fingerprint string, etl_tstamp timestamp, n int"


def dedup(bucket, command, *more, **env):
    words = [command, "--output", f"s3://{bucket}/out"]
    if command == "run":
        words += ["--input", f"s3a://{bucket}/in", "--input-format", "json", "--input-schema", SCHEMA]
    told = [sys.executable, "-m", "dedup_nb", *words, *more]
    return subprocess.run(told, capture_output=True, text=True, env={**os.environ, **env})


ACTIONS = {"get": "s3:GetObject", "put": "s3:PutObject", "post": "s3:PutObject", "delete": "s3:DeleteObject"}
ACTIONS |= {"head": "s3:GetObject", "list": "s3:ListBucket"}


def outside(policy):
    "Is a request outside a policy?"

    def denies(kind, path):
        bucket, _, key = path.strip("/").partition("/")
        action = ACTIONS[kind] if key else "s3:ListBucket"
        resource = f"arn:aws:s3:::{path[1:] if key else bucket}"
        stated = [s["Resource"] for s in policy["Statement"] if action in s["Action"]]
        return not any(fnmatchcase(resource, arn) for arns in stated for arn in arns)

    return staticmethod(denies)


def policy_for(bucket):
    words = ["iam", "--for", "s3", "--input", f"s3://{bucket}/in", "--output", f"s3a://{bucket}/out"]
    told = subprocess.run([sys.executable, "-m", "dedup_nb", *words], capture_output=True, text=True)
    return json.loads(told.stdout)


@pytest.mark.slow
def test_the_command_alone_reads_and_writes_s3(gate, bucket):
    straight = f"http://{gate.target}"  # the gate takes longer than the server
    done = dedup(bucket, "run", "--until", "1", "--manifest", "none", AWS_ENDPOINT_URL_S3=straight)
    assert done.returncode == 0, done.stderr
    assert kept_rows_on_s3(bucket, "1") == STAYED["1"] and nothing_left(bucket)


@pytest.mark.soak
def test_the_least_policy_is_enough_and_no_key_is_shown(gate, bucket, monkeypatch):
    monkeypatch.setattr(gate, "denies", outside(policy_for(bucket)))
    done = dedup(bucket, "run", "--json")
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)["counts"]
    assert [counts[name] for name in ("read", "bad", "kept", "dropped", "renamed")] == [5, 0, 4, 1, 1]
    assert {batch: kept_rows_on_s3(bucket, batch) for batch in STAYED} == STAYED
    left = keys_below(bucket, "out/")
    assert nothing_left(bucket)
    told = done.stderr + "".join(read(bucket, key).decode(errors="replace") for key in left)
    assert SECRET not in told


JSON = ["input_format=json", f"input_schema={SCHEMA}"]


@pytest.mark.soak
@pytest.mark.parametrize(
    "point, published",
    [
        pytest.param("dropped rows are written", False, marks=pytest.mark.soak),
        ("metrics are written, the commit is not", False),
        pytest.param("the manifest has the commit, files.json is not written", False, marks=pytest.mark.soak),
        pytest.param("the commit is written, old files are not removed", True, marks=pytest.mark.soak),
    ],
)
def test_a_killed_run_on_s3_is_repaired_by_running_again(gate, bucket, point, published):
    script = str(ROOT / "tests/programs/killed_run.py")
    words = [sys.executable, script, point, f"s3a://{bucket}/in", f"s3a://{bucket}/out", *JSON]
    died = subprocess.run(words, start_new_session=True, capture_output=True, text=True)
    assert died.returncode == -9, died.stderr
    assert ("out/runs/1/files.json" in keys_below(bucket)) == published
    assert any("/.staging/" in key for key in keys_below(bucket))
    done = dedup(bucket, "run")
    assert done.returncode == 0, done.stderr
    assert {batch: kept_rows_on_s3(bucket, batch) for batch in STAYED} == STAYED and nothing_left(bucket)
    listed = [
        f["path"] for b in STAYED for f in json.loads(read(bucket, f"out/runs/{b}/files.json"))["events"]
    ]
    found = [k for k in keys_below(bucket, "out/events/") if not k.endswith("/_SUCCESS")]
    assert found == sorted(f"out/{path}" for path in listed)


def requests_by_batch(gate, output):
    "What was asked up to the commit of each batch since the one before it, by kind."
    found, counted = {}, Counter()
    for kind, path in gate.asked:
        counted[kind] += 1
        if kind == "put" and (batch := re.fullmatch(f"{output}/runs/([^/]+)/files.json", path)):
            found[batch[1]], counted = counted, Counter()
    return found


@pytest.mark.soak
def test_many_batches_late_files_and_expiry_on_s3(gate, bucket):
    for n in range(3, 7):  # in order of their names they come before the others
        put_rows(bucket, f"in/run={n:03d}/a.json", [("k", "f", n, n), (f"x{n}", "f", n, n)])
    assert dedup(bucket, "run").returncode == 0
    assert [kept_rows_on_s3(bucket, f"{n:03d}") for n in (3, 6)] == [[("k", 3), ("x3", 3)], [("x6", 6)]]
    put_rows(bucket, "in/run=006/late.json", [("x6", "f", 13, 1), ("late", "f", 13, 2)])
    again = dedup(bucket, "run")
    assert "1 new file since" in again.stdout and "--late-files" in again.stdout
    assert dedup(bucket, "run", "--late-files").returncode == 0 and kept_rows_on_s3(bucket, "006~1") == [
        ("late", 2)
    ]
    told = dedup(bucket, "runs", "--json")
    assert [r["state"] for r in json.loads(told.stdout)] == ["committed"] * 7
    again = dedup(bucket, "run", "--batch-id", "003", "--rerun")
    assert again.returncode == 0 and kept_rows_on_s3(bucket, "003") == [("k", 3), ("x3", 3)], again.stderr
    erased = dedup(bucket, "erase", "--id", "x3", "--yes")
    assert "Removed 1 in events/" in erased.stdout and kept_rows_on_s3(bucket, "003") == [("k", 3)], (
        erased.stderr
    )
    assert dedup(bucket, "expire", "--yes", "--audit-days", "0").returncode == 0 and nothing_left(bucket)
    by_batch = requests_by_batch(gate, f"/{bucket}/out")
    print({batch: (sum(c.values()), dict(c)) for batch, c in by_batch.items()})
    numbers = [sum(by_batch[f"{n:03d}"].values()) for n in range(4, 7)]
    assert max(numbers) < min(1.5 * min(numbers), 700), numbers


@pytest.mark.soak
def test_a_table_on_s3_is_repaired_and_taken_by_version(gate, bucket):
    where = {"AWS_ENDPOINT_URL": os.environ["AWS_ENDPOINT_URL_S3"], "AWS_ALLOW_HTTP": "true"}
    where["AWS_S3_ALLOW_UNSAFE_RENAME"] = "true"  # nobody else writes
    events = f"s3://{bucket}/events"
    rows = [("a", "f", 1), ("a", "f", 2), ("b", "f", 3), ("b", "g", 4)]
    rows_of = lambda *some: pa.table(dict(zip(("event_id", "event_fingerprint", "n"), zip(*some))))
    left = lambda path: sorted(
        deltalake.DeltaTable(path, storage_options=where).to_pyarrow_table()["n"].to_pylist()
    )
    deltalake.write_deltalake(events, rows_of(*rows), storage_options=where)
    call = lambda *words: subprocess.run(
        [sys.executable, "-m", "dedup_nb", *words], capture_output=True, text=True
    )
    done = call("repair", "--table", events.replace("s3:", "s3a:"), "--order-by", "n", "--mode", "apply")
    assert done.returncode == 0, done.stderr + done.stdout
    assert left(events) == [1, 3] and left(f"s3://{bucket}/duplicated_events") == [2, 4]
    asked = [
        "--input",
        events,
        "--output",
        f"s3://{bucket}/clean",
        "--input-format",
        "delta",
        "--order-by",
        "n",
    ]
    done = call("run", *asked, "--output-format", "delta")
    assert done.returncode == 0, done.stderr + done.stdout
    more = rows_of(("b", "f", 5), ("c", "f", 6))
    deltalake.write_deltalake(events, more, mode="append", storage_options=where)
    done = call("run", *asked, "--output-format", "delta", "--json")
    assert [b["counts"]["read"] for b in json.loads(done.stdout)["batches"]] == [2], done.stderr
    assert left(f"s3://{bucket}/clean/events") == [1, 3, 6]
    assert nothing_left(bucket)


@pytest.mark.soak
def test_what_spark_is_denied_is_said_too(gate, bucket, monkeypatch):
    events = f"/{bucket}/out/events"
    monkeypatch.setattr(
        gate, "denies", staticmethod(lambda kind, path: kind == "put" and path.startswith(events))
    )
    done = dedup(bucket, "run")
    assert (
        done.returncode == 2 and f"s3://{bucket}/out/events" in done.stderr and "s3:PutObject" in done.stderr
    )
    assert not [key for key in keys_below(bucket, "out/") if "/manifest/" not in key]


PACKAGES, EXTENSIONS = "spark.jars.packages", "spark.sql.extensions"


def test_later_settings_go_over_those_before_and_lists_grow():
    ours = {PACKAGES: "d:d:1", EXTENSIONS: "D", "spark.ui.enabled": "false"}
    joined = _join_settings(
        ours, {}, {PACKAGES: "s:s:2"}, {PACKAGES: "a:b:3,c:c:4", "spark.ui.enabled": "no"}
    )
    assert joined == {PACKAGES: "d:d:1,s:s:2,a:b:3,c:c:4", EXTENSIONS: "D", "spark.ui.enabled": "no"}


@pytest.mark.parametrize("scheme, tls", [("http", "false"), ("https", "true")])
def test_an_endpoint_is_that_of_spark_too(monkeypatch, scheme, tls):
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"{scheme}://store.example:9000")
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    made = storage.s3_settings(["s3n://one/a", "s3://two", "/data"])
    own = {
        n.removeprefix("spark.hadoop.fs.s3a."): v
        for n, v in made.items()
        if n.startswith("spark.hadoop.fs.s3a.")
    }
    del own["aws.credentials.provider"]
    assert own == {
        "endpoint": f"{scheme}://store.example:9000",
        "endpoint.region": "eu-north-1",
        "path.style.access": "true",
        "connection.ssl.enabled": tls,
        "directory.marker.retention": "delete",
        "performance.flags": "create,delete,mkdir",
    }
    assert (
        made["spark.hadoop.fs.s3.impl"]
        == made["spark.hadoop.fs.s3n.impl"]
        == "org.apache.hadoop.fs.s3a.S3AFileSystem"
    )
    assert made[PACKAGES].startswith("org.apache.hadoop:hadoop-aws:3.")


def test_a_profile_gives_endpoint_region_and_keys(monkeypatch, tmp_path):
    text = "[profile lab]\nregion = eu-central-1\naws_access_key_id = one\naws_secret_access_key = two\n"
    (tmp_path / "config").write_text(
        f"{text}services = own\n[services own]\ns3 =\n  endpoint_url = http://lab:9\n"
    )
    for name in [n for n in os.environ if n.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "lab")
    made = storage.s3_settings(["s3://lake"])
    assert made["spark.hadoop.fs.s3a.endpoint"] == "http://lab:9"
    assert made["spark.hadoop.fs.s3a.endpoint.region"] == storage.s3_files("lake").region == "eu-central-1"
    monkeypatch.setenv("AWS_PROFILE", "none")
    with pytest.raises(
        ConfigError, match=r"configuration cannot be used for S3: .*\(none\).* Correct AWS_PROFILE"
    ):
        storage.s3_client()


def test_a_bucket_of_aws_is_reached_in_its_own_region(monkeypatch):
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_REGION", "us-east-1")

    def elsewhere(request, **_):
        assert request.url == "https://far.s3.amazonaws.com/"
        return answer(request, 403, b"", **{"x-amz-bucket-region": "ap-south-1"})

    storage.s3_client().meta.events.register("before-send.s3.HeadBucket", elsewhere)
    assert (
        storage.s3_settings(["s3://far/in"])["spark.hadoop.fs.s3a.bucket.far.endpoint.region"] == "ap-south-1"
    )
    assert storage.s3_files("far").region == "ap-south-1"


def refused(act, code=2):
    "What is said of a refusal; nothing was written on the way."
    with pytest.raises(AccessError) as told, storage.s3_in_words():
        act()
    assert told.value.exit_code == code and str(told.value).endswith(("committed.", "written."))
    return str(told.value)


def listed(path):
    return lambda: find_batches(Input(path, "json"))


@pytest.mark.parametrize(
    "denied, act, words",
    [
        ("list", listed, "in cannot be used: .* s3:ListBucket there"),
        (
            "get",
            lambda path: lambda: check_format(listed(path)().batches[0], "json"),
            "in/run=1/a.json .* s3:GetObject",
        ),
        (
            "put",
            lambda path: lambda: check_output(path.replace("/in", "/out"), {}),
            "out/runs cannot be used: .* s3:PutObject",
        ),
        ("post", lambda path: lambda: remove_folder(path), "in cannot .* s3:DeleteObject"),
    ],
)
def test_a_denied_request_is_said_with_bucket_key_and_right(gate, bucket, monkeypatch, denied, act, words):
    monkeypatch.setattr(gate, "denies", staticmethod(lambda kind, key: kind == denied))
    before = len(gate.asked)
    said = refused(act(f"s3://{bucket}/in"))
    assert re.search(f"s3://{bucket}/.*{words}.*: check the policies of this user.*dedup iam --for s3", said)
    assert sum(kind == "put" for kind, _ in gate.asked[before:]) == (denied == "put")


def test_what_else_a_store_refuses_is_said_with_what_to_check(gate, bucket, monkeypatch, tmp_path):
    nowhere = "s3://nobody-has-this/out"
    words = "this/out/runs cannot be used: there is no bucket nobody-has-this there.*AWS_ENDPOINT_URL_S3"
    assert re.search(words, refused(lambda: check_output(nowhere, {})))
    told = refused(listed("s3://nobody-has-this/in"))
    assert re.search("s3://nobody-has-this.* there is no bucket nobody-has-this there", told)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    words = "s3://lake/in.* cannot be reached at http://127.0.0.1:1. Check AWS_ENDPOINT_URL_S3"
    assert re.search(words, refused(listed("s3://lake/in"), code=1))
    for name in [n for n in os.environ if n.startswith("AWS_") and "KEY" in n]:
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    words = "s3://lake cannot be reached without AWS credentials, and none were found.*AWS_PROFILE"
    assert re.search(words, refused(listed("s3://lake/in")))


@pytest.mark.parametrize(
    "text, words",
    [  # what real stores say, and an emulator does not
        (
            "AWS Error UNKNOWN (HTTP status 301) during HeadObject operation: in bucket 'b'",
            "AWS_REGION to that",
        ),
        (
            "(AuthorizationHeaderMalformed) when calling the PutObject operation (key 'k' in bucket 'b')",
            "region than",
        ),
        ("s3a://b/k: getFileStatus on s3a://b/k: S3Exception (Service: S3, Status Code: 301)", "region than"),
        (
            "(InvalidAccessKeyId) when calling the PutObject operation (key 'k' in bucket 'b')",
            "aws sso login",
        ),
        (
            "AWS Error SIGNATURE_DOES_NOT_MATCH during ListObjectsV2 operation: in bucket 'b'",
            "secret is wrong",
        ),
        (
            "AccessDeniedException: s3a://b/k: open on s3a://b/k: (Service: S3, Status Code: 403)",
            "s3:GetObject",
        ),
        ("s3a://b/k: Writing Object on k: S3Exception (Service: S3, Status Code: 403)", "s3:PutObject"),
        (
            "s3a://b/k: initiate MultiPartUpload on k: S3Exception (Service: S3, Status Code: 403)",
            "s3:PutObject",
        ),
        (
            "s3a://b/k: AccessDeniedException: k: PUT 0-byte object  on k: (Service: S3, Status Code: 403)",
            "s3:PutObject",
        ),
        ("s3a://b/k: NoAwsCredentialsException: + DefaultCredentialsProvider", "without AWS credentials"),
        (
            'No FileSystem for scheme "s3" s3://b/k',
            "no S3A. Start it with .*:hadoop-aws:.* is missing: add .*\n  spark.jars.packages = org.apache.h",
        ),
    ],
)
def test_a_refusal_of_any_client_is_understood(text, words):
    said = storage.s3_refusal(OSError(text))
    assert said.exit_code == 2 and re.search(f"^s3://b.*{words}", str(said), re.DOTALL)


SDK = "software.amazon.awssdk.core.exception.SdkClientException: "


@pytest.mark.parametrize(
    "text, words",
    [
        ("(ExpiredToken) when calling the PutObject operation (key 'k' in bucket 'b')", "the keys are over"),
        ("AWS Error EXPIRED_TOKEN during HeadObject operation: in bucket 'b'", "the keys are over"),
        ("AWS Error NETWORK_CONNECTION during ListObjectsV2 operation: in bucket 'b'", "be reached at"),
        ("AWS Error SLOW_DOWN during GetObject operation: in bucket 'b'", "too busy"),
        ("AWS Error UNKNOWN (HTTP status 503) during GetObject operation: in bucket 'b'", "too busy"),
        ("Read timeout on endpoint URL: 'http://x' (key 'k' in bucket 'b')", "be reached at"),
        ("Could not connect to the endpoint URL: 'http://x' (key 'k' in bucket 'b')", "be reached at"),
        (f"getFileStatus on s3a://b: {SDK}Received an UnknownHostException", "be reached at"),
        (
            f"getFileStatus on s3a://b: {SDK}Unable to execute HTTP request: Connection refused",
            "be reached at",
        ),
    ],
)
def test_what_may_pass_is_worth_a_retry(text, words):
    said = storage.s3_refusal(OSError(text))
    assert said.exit_code == 1 and re.search(f"^s3://b.*{words}", str(said))
    with pytest.raises(AccessError) as told, storage.s3_in_words():
        raise said
    assert told.value is said


def test_keys_that_cannot_be_renewed_are_worth_a_retry(monkeypatch, tmp_path):
    for name in [n for n in os.environ if n.startswith("AWS_")]:
        monkeypatch.delenv(name)
    (tmp_path / "config").write_text("[default]\ncredential_process = false\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    with pytest.raises(UnreachableError, match="cannot be used for S3: Error when retrieving credentials"):
        listed("s3://lake/in")()
    monkeypatch.delenv("AWS_CONFIG_FILE")
    lost = CredentialRetrievalError(provider="sso", error_msg="Token has expired and refresh failed")
    monkeypatch.setattr("boto3.session.Session.get_credentials", Mock(side_effect=lost))
    assert "refresh failed" in refused(listed("s3://lake/in"), code=1)


def test_a_refusal_without_a_bucket_is_of_the_one_at_hand():
    text = "AccessDeniedException: out/x/: PUT 0-byte object  on out/x/: (Service: S3, Status Code: 403)"
    assert re.search(
        "^s3://b/out/x cannot.*s3:PutObject", str(storage.s3_refusal(OSError(text), "s3a://b/out"))
    )


def test_errors_of_others_stay_as_they_are():
    for text in (
        "AccessDenied: /data/x",
        "s3://lake/in has no batch",
        "Reading s3a://b/k: java.net.ConnectException: Connection refused: executor-3/10.0.0.3:7337",
        "(AccessDeniedException) PartiQLInsert",
        "[FAILED_READ_FILE] s3a://b/k. Caused by: [INTERNAL_ERROR] Eagerly executed command failed.",
        "Reading s3a://b/k: java.lang.InternalError: a fault occurred",
    ):
        assert storage.s3_refusal(OSError(text)) is None


def test_the_least_policy_names_what_is_on_s3_alone():
    policy = s3_policy("s3://lake/in/", "/data/out", "s3n://lake/m/x")
    assert {s["Sid"]: (len(s["Action"]), s["Resource"]) for s in policy["Statement"]} == {
        "DedupList": (2, ["arn:aws:s3:::lake"]),
        "DedupRead": (1, ["arn:aws:s3:::lake/in", "arn:aws:s3:::lake/in/*"]),
        "DedupWrite": (5, ["arn:aws:s3:::lake/m/x", "arn:aws:s3:::lake/m/x/*"]),
    }
    whole = s3_policy("s3://lake", "s3://clean", None)["Statement"]
    assert [s["Resource"] for s in whole[1:]] == [["arn:aws:s3:::lake/*"], ["arn:aws:s3:::clean/*"]]
    with pytest.raises(ConfigError, match="dedup iam --for s3 --input"):
        s3_policy("/data/in", None)

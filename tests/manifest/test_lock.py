"""Places of a lake manifest on S3, taken by conditional puts: moto's server, and two hosts that race."""

import json
import multiprocessing
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import boto3
import pytest

from dedup_nb.base.errors import BusyError
from dedup_nb.manifest import ledger, lock
from dedup_nb.manifest.lake import LakeStore
from dedup_nb.manifest.ledger import RECIPE_DEFAULTS, ManifestError, Marker, this_process
from dedup_nb.manifest.lock import ConditionalPuts, LockFiles, places_of_manifest
from dedup_nb.manifest.protocol import Manifest

RECIPE = dict(RECIPE_DEFAULTS)


@pytest.fixture
def s3(s3_server, monkeypatch):
    "The client that all use, and a bucket."
    return _at(s3_server, monkeypatch)


def _at(s3_server, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3_server)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    client = boto3.client("s3", endpoint_url=s3_server, region_name="us-east-1")
    client.create_bucket(Bucket="lake")
    return client


@pytest.fixture
def path(request):
    return f"s3a://lake/{request.node.name.replace('[', '-').rstrip(']')}"


def open_claim(seq=1, batch="a", **info):
    return Marker(seq, "claim", batch, {**this_process(), "token": "t", **info})


def on(host):
    "This process as it would be on another host."
    return lambda: {**this_process(), "host": host}


def marker_names(s3, path):
    listed = s3.list_objects_v2(Bucket="lake", Prefix=path.split("/", 3)[3] + "/").get("Contents", [])
    return [o["Key"].rsplit("/", 1)[1].lstrip("0") for o in listed]


def test_of_hosts_that_race_one_gets_the_place(s3, path, monkeypatch):
    hosts = threading.local()
    monkeypatch.setattr(lock, "this_process", lambda: on(hosts.name)())
    monkeypatch.setattr(lock, "_WAIT_S", 0)
    won, ready = [], threading.Barrier(8)

    def race(name):
        hosts.name = name
        ready.wait()
        for seq in range(1, 6):
            if ConditionalPuts(path).take(open_claim(seq)):
                won.append((seq, name))

    threads = [threading.Thread(target=race, args=(f"host {i}",)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(seq for seq, _ in won) == [1, 2, 3, 4, 5]
    assert sorted(marker_names(s3, path)) == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize("place", ["s3", "disk"])
def test_a_place_is_taken_again_after_a_lost_answer_and_over_from_the_dead(
    s3, path, tmp_path, monkeypatch, place
):
    puts = ConditionalPuts(path) if place == "s3" else LockFiles(str(tmp_path))
    newest = lambda: _body(s3, path, 1) if place == "s3" else (tmp_path / f"_places/{1:020d}.1").read_bytes()
    assert puts.take(open_claim()) and puts.take(open_claim(at="later"))
    monkeypatch.setattr(lock, "this_process", on("another host"))
    monkeypatch.setattr(lock, "_WAIT_S", 0)
    assert puts.take(open_claim()) is False
    monkeypatch.setattr(lock, "_PATIENCE_S", -1)
    with pytest.raises(BusyError, match="is being written to by process .* since .* Run again in a few min"):
        puts.take(open_claim())
    monkeypatch.setattr(lock, "_HELD_S", -1)
    assert puts.take(open_claim()) is True
    assert json.loads(newest())["host"] == "another host"
    monkeypatch.undo()


def _body(s3, path, seq):
    return s3.get_object(Bucket="lake", Key=f"{path.split('/', 3)[3]}/_places/{seq:020d}")["Body"].read()


def test_a_dead_process_of_this_host_holds_no_place(s3, path, monkeypatch):
    gone = {**this_process(), "pid": 2**22 + 1}
    monkeypatch.setattr(lock, "this_process", lambda: gone)
    assert ConditionalPuts(path).take(open_claim())
    monkeypatch.setattr(lock, "this_process", this_process)
    assert ConditionalPuts(path).take(open_claim()) is True
    assert json.loads(_body(s3, path, 1))["pid"] == os.getpid()


def test_places_far_back_are_removed(s3, path):
    puts = ConditionalPuts(path)
    assert all(puts.take(open_claim(seq)) for seq in (1, 2, 30))
    puts.remove_before(30)
    assert marker_names(s3, path) == ["30"]


def test_a_refusal_is_said_in_our_words(s3, path):
    with pytest.raises(ManifestError, match="s3://no-such-bucket/m/_places/0*1 was refused .*NoSuchBucket"):
        ConditionalPuts("s3://no-such-bucket/m").take(open_claim())


def test_who_needs_places_of_manifest(monkeypatch):
    assert places_of_manifest("s3n://lake/m") == ConditionalPuts("s3n://lake/m")
    assert places_of_manifest("/data/m") == LockFiles("/data/m") and places_of_manifest("gs://lake/m") is None
    assert places_of_manifest("s3://lake/m", "io.delta.storage.S3DynamoDBLogStore") is None
    assert places_of_manifest("s3://lake/m", "io.delta.storage.S3SingleDriverLogStore")
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    assert places_of_manifest("s3://lake/m") is places_of_manifest("/Volumes/c/s/v/m") is None


# -- on a local disk: files that can be made once --


def race_on_disk(path, ready, rounds, won):
    "One of several processes that want each place at once; which of them it got."
    lock._WAIT_S = 0
    mine = []
    for seq in rounds:
        ready.wait()
        if LockFiles(path).take(open_claim(seq)):
            mine.append(seq)
    won.put(mine)


@pytest.mark.slow
def test_of_eight_processes_on_one_disk_one_gets_each_place(tmp_path):
    path, started = str(tmp_path), multiprocessing.get_context("spawn")
    (tmp_path / "_places").mkdir()
    dead = json.dumps({**this_process(), "pid": 2**22 + 1})
    for seq in range(40, 50):  # places of a writer that died there
        (tmp_path / f"_places/{seq:020d}.0").write_text(dead)
    ready, won = started.Barrier(8), started.Queue()
    racers = [started.Process(target=race_on_disk, args=(path, ready, range(50), won)) for _ in range(8)]
    for racer in racers:
        racer.start()
    found = [seq for _ in racers for seq in won.get(timeout=60)]
    for racer in racers:
        racer.join()
    assert sorted(found) == [*range(50)]
    LockFiles(path).remove_before(49)
    assert {name.partition(".")[0].lstrip("0") for name in os.listdir(tmp_path / "_places")} == {"49"}


@pytest.mark.parametrize("left", ["", '{"kind": "cl', "\0\0", "[]"])
def test_half_a_note_blocks_a_place_on_disk_only_for_a_while(tmp_path, monkeypatch, left):
    (tmp_path / "_places").mkdir()
    (tmp_path / f"_places/{2:020d}.0").write_text(left)
    monkeypatch.setattr(lock, "_WAIT_S", 0)
    assert LockFiles(str(tmp_path)).take(open_claim(2)) is False
    monkeypatch.setattr(lock, "_HELD_S", -1)
    assert LockFiles(str(tmp_path)).take(open_claim(2)) is True


# -- a manifest: the table on this disk, its places on S3 --


def manifest_by_puts(spark, tmp_path, path, force=False):
    store = LakeStore(spark, str(tmp_path / "manifest"), force=force, puts=ConditionalPuts(path))
    return Manifest(store, RECIPE)


@pytest.fixture
def nothing(spark):
    columns = "hi bigint, lo bigint, packed boolean, pair bigint, fate tinyint, origin string"
    return spark.createDataFrame([], f"{columns}, origin_seq bigint")


def test_a_lake_manifest_takes_its_places_first(spark, s3, tmp_path, path, nothing):
    first = manifest_by_puts(spark, tmp_path, path)
    monday = first.begin("monday", 0, {"token": "t1"})
    assert marker_names(s3, path) == ["", "1"]
    # a second host had read the ledger before Monday's claim came: the place is gone, and it reads again
    with pytest.raises(BusyError, match="batch monday is claimed by"):
        manifest_by_puts(spark, tmp_path, path).begin("tuesday", 0, {"token": "t2"})
    first.commit(monday, nothing, {"pairs": 0})
    manifest_by_puts(spark, tmp_path, path).forget("monday")
    assert marker_names(s3, path) == ["", "1", "2", "3"]
    assert [m.kind for m in first.ledger().markers] == ["recipe", "claim", "commit", "forget"]


def test_a_claim_between_the_put_and_the_table_keeps_others_away(spark, s3, tmp_path, path, monkeypatch):
    manifest_by_puts(spark, tmp_path, path).give_up("nobody", "t")
    first = manifest_by_puts(spark, tmp_path, path)
    first.commit(first.begin("monday", 0, {"token": "t1"}), None, {"pairs": 0})
    monkeypatch.setattr(lock, "this_process", on("another host"))
    assert ConditionalPuts(path).take(open_claim(3, "tuesday"))
    monkeypatch.setattr(lock, "this_process", this_process)
    monkeypatch.setattr(lock, "_WAIT_S", 0)
    monkeypatch.setattr(lock, "_PATIENCE_S", -1)
    with pytest.raises(BusyError, match="on another host"):
        first.begin("wednesday", 0, {"token": "t3"})
    monkeypatch.setattr(lock, "_HELD_S", -1)
    assert first.begin("wednesday", 0, {"token": "t3"}).seq == 3


class WithoutConditions(BaseHTTPRequestHandler):
    "A store that passes over what it does not know: everything goes on to moto but the conditions."

    target = refuses = None

    def _pass_on(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.refuses and "If-None-Match" in self.headers:
            return self._answer(501, f"<Error><Code>{self.refuses}</Code></Error>".encode())
        kept = {k: v for k, v in self.headers.items() if not k.startswith("If-") and k != "Expect"}
        try:
            with urlopen(Request(self.target + self.path, body or None, kept, method=self.command)) as got:
                self._answer(got.status, got.read(), got.headers)
        except HTTPError as wrong:
            self._answer(wrong.code, wrong.read())

    def _answer(self, status, body, headers={}):
        self.send_response_only(status)
        for name in ("ETag", "Last-Modified", "Date"):
            if name in headers:
                self.send_header(name, headers[name])
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_PUT = do_GET = do_HEAD = do_DELETE = _pass_on

    def log_message(self, *words):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("refuses", [None, "NotImplemented"])
def test_a_store_without_conditional_puts_has_one_host(
    spark, s3_server, tmp_path, path, monkeypatch, nothing, refuses
):
    handler = type("Handler", (WithoutConditions,), {"target": s3_server, "refuses": refuses})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    _at("http://127.0.0.1:{}".format(server.server_port), monkeypatch)
    here = manifest_by_puts(spark, tmp_path, path)
    here.commit(here.begin("monday", 0, {"token": "t1"}), nothing, {"pairs": 0})
    again = manifest_by_puts(spark, tmp_path, path)
    again.commit(again.begin("tuesday", 0, {"token": "t2"}), nothing, {"pairs": 0})
    for module in (lock, ledger):
        monkeypatch.setattr(module.platform if module is ledger else module, *_elsewhere(module))
    with pytest.raises(BusyError, match="no conditional put .* the last to write .* process .*--force"):
        manifest_by_puts(spark, tmp_path, path).begin("wednesday", 0, {"token": "t3"})
    assert manifest_by_puts(spark, tmp_path, path, force=True).begin("wednesday", 0, {"token": "t3"}).seq == 5
    server.shutdown()


def _elsewhere(module):
    "What makes this process one of another host."
    if module is ledger:
        return "node", lambda: "another host"
    return "this_process", lambda: {**this_process(), "host": "another host"}

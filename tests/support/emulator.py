"A DynamoDB and an S3 to test against, and what can go wrong on the way to them."

import http.client
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

from botocore.awsrequest import AWSResponse
from botocore.exceptions import ConnectionClosedError, ReadTimeoutError
from botocore.httpsession import URLLib3Session
from botocore.retries.standard import ExponentialBackoff

from dedup_nb.dynamodb.connection import Connection, new_client
from dedup_nb.dynamodb.table import Table

# the emulator deletes what has expired every 60 s
SWEEPING = (
    "import time; sleep = time.sleep; time.sleep = lambda s: sleep(min(s, 0.5)); "
    "from ministack.app import main; main()"
)

# botocore waits for seconds between its attempts; where faults are many, a part of that will do
delay_amount = ExponentialBackoff.delay_amount
ExponentialBackoff.delay_amount = lambda self, context: delay_amount(self, context) / 20


@contextmanager
def ministack(*, sweeping=False):
    "A server process on a free port of loopback. Sweeping: expired items go after half a second."
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    command = [str(Path(sys.executable).parent / "ministack")]
    env = {**os.environ, "BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(port)}
    quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    process = subprocess.Popen([sys.executable, "-c", SWEEPING] if sweeping else command, env=env, **quiet)
    try:
        _wait_for(process, port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _wait_for(process, port):
    end = time.monotonic() + 30
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), 0.2).close()
        except OSError:
            assert process.poll() is None and time.monotonic() < end, "ministack does not start"
            time.sleep(0.02)


class Gate(BaseHTTPRequestHandler):
    "On the way to an S3: counts what is asked, and refuses some of it, as a policy would."

    protocol_version = "HTTP/1.1"
    target = ""
    asked: list = []  # kind and key of each request
    denies = staticmethod(lambda kind, key: False)

    def _pass_on(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path, _, query = self.path.partition("?")
        kind = {"GET": "list" if "list-type" in query or path.count("/") < 2 else "get"}.get(self.command)
        kind = kind or self.command.lower()
        self.asked.append((kind, unquote(path)))
        if self.denies(kind, unquote(path)):
            return self._answer(403, [], b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>")
        connection = http.client.HTTPConnection(self.target)
        kept = {name: value for name, value in self.headers.items() if name != "Expect"}
        connection.request(self.command, self.path, body, kept)
        got = connection.getresponse()
        self._answer(got.status, got.getheaders(), got.read())
        connection.close()

    def _answer(self, status, headers, body):
        self.send_response_only(status)
        own = ("content-length", "transfer-encoding", "connection")
        length = dict((n.lower(), v) for n, v in headers).get("content-length", 0)
        for name, value in (h for h in headers if h[0].lower() not in own):
            self.send_header(name, value)
        is_head = self.command == "HEAD"
        self.send_header("Content-Length", length if is_head else len(body))
        self.end_headers()
        self.wfile.write(b"" if is_head else body)

    do_PUT = do_GET = do_HEAD = do_DELETE = do_POST = _pass_on

    def log_message(self, *words):
        pass


@contextmanager
def gate_to(address):
    "A gate, and its address."
    gate = type("OneGate", (Gate,), {"target": address.removeprefix("http://"), "asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), gate)
    server.handle_error = lambda *_: None  # who asked may be gone
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield gate, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


KINDS = ("lost", "unsent", "busy", "broken", "cut", "throttled", "slow")


class Faults:
    "What goes wrong on one client, by a seeded dice; `count` says what did."

    def __init__(self, seed=0, *, code="ThrottlingError", **chances):
        self.chances = dict.fromkeys(KINDS, 0.0) | chances
        self.dice, self.lock, self.code = random.Random(seed), threading.Lock(), code
        self.count = dict.fromkeys(KINDS, 0)

    def happens(self, what):
        with self.lock:
            hit = self.dice.random() < self.chances[what]
            self.count[what] += hit
            return hit

    def on(self, client):
        events = client.meta.events
        events.register("before-send.dynamodb", self.send)
        events.register("before-call.dynamodb.BatchExecuteStatement", self.take_out)
        events.register_last("after-call.dynamodb.BatchExecuteStatement", self.put_back)
        return client

    def send(self, request, **_):
        if self.happens("slow"):
            time.sleep(0.02)
        if self.happens("unsent"):
            raise ConnectionClosedError(endpoint_url=request.url)
        if self.happens("busy"):
            return refusal(request, "ThrottlingException")
        if self.happens("broken"):
            return refusal(request, "InternalServerError", status=500)
        if self.happens("lost"):
            URLLib3Session().send(request)
            raise ReadTimeoutError(endpoint_url=request.url)
        if self.happens("cut"):
            whole = URLLib3Session().send(request)
            return answer(request, whole.status_code, whole.content[: len(whole.content) // 2])

    def take_out(self, params, context, **_):
        "Leave members out of a request."
        statements = json.loads(params["body"])["Statements"]
        out = {i for i in range(len(statements)) if self.happens("throttled")}
        if len(out) == len(statements):  # a request needs one
            self.count["throttled"] -= 1
            out.pop()
        context["taken_out"] = out
        sent = [s for i, s in enumerate(statements) if i not in out]
        params["body"] = json.dumps({"Statements": sent}).encode()

    def put_back(self, parsed, context, **_):
        "Say of those members that they were throttled."
        if "Responses" not in parsed:
            return
        rest, out = iter(parsed["Responses"]), context["taken_out"]
        total = len(parsed["Responses"]) + len(out)
        throttled = {"Error": {"Code": self.code, "Message": "slow down"}}
        parsed["Responses"] = [throttled if i in out else next(rest) for i in range(total)]


def answer(request, status, body, **headers):
    "An answer of a server, as botocore gets it."

    class Raw:
        def stream(self, **_):
            yield body

    return AWSResponse(request.url, status, {"content-type": "application/x-amz-json-1.0"} | headers, Raw())


def refusal(request, code, message="injected", status=400):
    said = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": message}
    return answer(request, status, json.dumps(said).encode())


def refuse(client, denied, code="AccessDeniedException", message="injected"):
    "Refuse the operations for which `denied(operation)` is true, as a policy would."

    def send(request, **_):
        target = request.headers["X-Amz-Target"]
        operation = (target.decode() if isinstance(target, bytes) else target).partition(".")[2]
        if denied(operation):
            return refusal(request, code, message)

    client.meta.events.register("before-send.dynamodb", send)
    return client


def a_name():
    "The name of a table of one's own."
    return f"dedup_test_{os.getpid()}_{time.monotonic_ns()}"


def a_client(endpoint):
    "A client of its own, for those who change it."
    return new_client(Connection("any", None, endpoint))


@lru_cache(maxsize=None)
def _shared_client(endpoint, pid):  # a process that was forked needs one of its own
    return a_client(endpoint)


def a_table(endpoint, name=None, *, faults=None, client=None, patience_s=20):
    "A way to a table, a new one unless it is named; nothing is made."
    if client is None:
        client = faults.on(a_client(endpoint)) if faults else _shared_client(endpoint, os.getpid())
    return Table(Connection(name or a_name(), None, endpoint), client=client, patience_s=patience_s)


def items(table):
    "Everything in a table but the ledger, as (eventId, fingerprint) -> item."
    found = {}
    for item in _scanned(table):
        plain = {name: next(iter(value.values())) for name, value in item.items()}
        if plain["eventId"] != "#dedup_nb":
            found[plain["eventId"], plain["fingerprint"]] = plain
    return found


def _scanned(table):
    client = _shared_client(table.connection.endpoint, os.getpid())
    pages = client.get_paginator("scan").paginate(TableName=table.name, ConsistentRead=True)
    return [item for page in pages for item in page["Items"]]

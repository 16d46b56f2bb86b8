"""A DynamoDB to test against, and what can go wrong on the way to it."""
import json, os, random, socket, subprocess, sys, threading, time
from contextlib import contextmanager
from pathlib import Path
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ConnectionClosedError, ReadTimeoutError
from botocore.httpsession import URLLib3Session
from dedup_nb.dynamodb import Connection, Table, _new_client


# the emulator deletes what has expired every 60 s
SWEEPING = "import time; sleep = time.sleep; time.sleep = lambda s: sleep(min(s, 0.5)); from ministack.app import main; main()"


@contextmanager
def ministack(*, sweeping=False):
    "A server process on a free port of loopback: its address. Sweeping: what has expired is gone after half a second."
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    command = [sys.executable, "-c", SWEEPING] if sweeping else [str(Path(sys.executable).parent / "ministack")]
    process = subprocess.Popen(command, env={**os.environ, "BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(port)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 30
        while True:
            try: socket.create_connection(("127.0.0.1", port), 0.2).close(); break
            except OSError:
                assert process.poll() is None and time.monotonic() < end, "ministack does not start"
                time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


class Faults:
    "What goes wrong on one client, by a seeded dice; counts of what did."

    def __init__(self, seed=0, *, lost=0.0, unsent=0.0, busy=0.0, broken=0.0, throttled=0.0, slow=0.0, code="ThrottlingError"):
        self.chances, self.dice, self.lock, self.code = dict(lost=lost, unsent=unsent, busy=busy, broken=broken, throttled=throttled, slow=slow), random.Random(seed), threading.Lock(), code
        self.count = dict.fromkeys(self.chances, 0)

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
        if self.happens("slow"): time.sleep(0.02)
        if self.happens("unsent"): raise ConnectionClosedError(endpoint_url=request.url)
        if self.happens("busy"): return answer(request, 400, "ThrottlingException")
        if self.happens("broken"): return answer(request, 500, "InternalServerError")
        if self.happens("lost"):
            URLLib3Session().send(request)
            raise ReadTimeoutError(endpoint_url=request.url)

    def take_out(self, params, context, **_):
        statements = json.loads(params["body"])["Statements"]
        out = {i for i in range(len(statements)) if self.happens("throttled")}
        if len(out) == len(statements):  # a request needs one
            self.count["throttled"] -= 1
            out.pop()
        context["taken_out"] = out
        params["body"] = json.dumps({"Statements": [s for i, s in enumerate(statements) if i not in out]}).encode()

    def put_back(self, parsed, context, **_):
        if "Responses" not in parsed: return
        rest = iter(parsed["Responses"])
        total = len(parsed["Responses"]) + len(context["taken_out"])
        parsed["Responses"] = [{"Error": {"Code": self.code, "Message": "slow down"}} if i in context["taken_out"] else next(rest) for i in range(total)]


def answer(request, status, code, message="injected"):
    class Raw:
        def stream(self, **_): yield json.dumps({"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": message}).encode()
    return AWSResponse(request.url, status, {"content-type": "application/x-amz-json-1.0"}, Raw())


def refuse(client, denied, code="AccessDeniedException"):
    "Refuse requests for which `denied(operation, body)` is true, as a policy would."
    def send(request, **_):
        operation, body = request.headers["X-Amz-Target"], request.body
        operation = (operation.decode() if isinstance(operation, bytes) else operation).partition(".")[2]
        if denied(operation, json.loads(body)): return answer(request, 400, code)
    client.meta.events.register("before-send.dynamodb", send)
    return client


def a_table(endpoint, kind=Table, *, faults=None, client=None, **more):
    "A way to a table of its own; the first one that is asked for makes it."
    name = more.pop("name", None) or f"dedup_test_{os.getpid()}_{time.monotonic_ns()}"
    connection = Connection(name, None, endpoint)
    client = client or _new_client(connection)
    if faults: faults.on(client)
    return kind(connection, client=client, **more)


def items(table):
    "Everything in a table but the ledger, as (eventId, fingerprint) -> item."
    found, client, words = {}, _new_client(table.connection), {"TableName": table.name, "ConsistentRead": True}
    while True:
        answer = client.scan(**words)
        for i in answer["Items"]:
            if i["eventId"]["S"] != "#dedup_nb": found[i["eventId"]["S"], i["fingerprint"]["S"]] = {n: next(iter(v.values())) for n, v in i.items()}
        if "LastEvaluatedKey" not in answer: return found
        words["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

"""The simulator of a run against a table's capacity, beside the real client against a server that grants so many units a second."""
import http.server, json, threading, time
from contextlib import contextmanager
import pytest
from dedup_nb.costs import Capacity, Load, load_prices, simulate
from dedup_nb.dynamodb import Claimant, Claims, Connection, Pace, Table, _at_once, _new_client

P = load_prices()


@contextmanager
def granting(wcu):
    "A server that takes every claim as long as its table has units left; `served.refused` counts the others."
    class Served(http.server.BaseHTTPRequestHandler):
        protocol_version, lock, left, then, refused = "HTTP/1.1", threading.Lock(), float(wcu), None, 0

        def do_POST(self):
            wanted = len(json.loads(self.rfile.read(int(self.headers["content-length"])))["Statements"])
            with Served.lock:
                now = time.monotonic()
                Served.left = min(wcu, Served.left + wcu * (now - (Served.then or now)))
                Served.then = now
                taken = min(wanted, int(Served.left))
                Served.left -= taken
                Served.refused += wanted - taken
            members = [{"TableName": "t"}] * taken + [{"Error": {"Code": "ThrottlingError", "Message": "slow down"}}] * (wanted - taken)
            body = json.dumps({"Responses": members}).encode()
            self.send_response(200)
            for name, value in (("content-type", "application/x-amz-json-1.0"), ("content-length", str(len(body)))): self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_): pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Served)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try: yield Served, f"http://127.0.0.1:{server.server_port}"
    finally: server.shutdown()


def claimed(address, claims, max_wcu):
    "Claim so many ids in one task of this rate: the seconds it takes."
    connection = Connection("t", "us-east-1", address, "example", "example")
    table = Table(connection, Pace(max_wcu), client=_new_client(connection))
    work = Claims(table, Claimant("b", "b@1", 1_800_000_000, 1_800_000_000, 180 * 86400))
    start = time.monotonic()
    chunks = ([(f"id{n}", ["f"]) for n in range(at, min(at + 100, claims))] for at in range(0, claims, 100))
    owned = sum(len(answers) for answers in _at_once(work.of, chunks))
    assert owned == claims
    return time.monotonic() - start


# capacity above the rate (the formula holds), and rates above the capacity, where throttling decides
@pytest.mark.parametrize("claims, wcu, max_wcu", [(1500, 1000, 300), (2400, 300, 600), (2400, 300, 3000)])
def test_the_simulator_tells_what_the_client_takes(claims, wcu, max_wcu):
    told = simulate(Load(claims, tasks=1, slots=1, max_wcu=max_wcu), Capacity.provisioned(wcu, P), P)
    with granting(wcu) as (served, address): took = claimed(address, claims, max_wcu)
    print(f"{claims} claims at {max_wcu} a second, {wcu} granted: {told.seconds} s told, {took:.1f} s taken; {told.refused} refused told, {served.refused} found")
    assert took >= claims / max(wcu, max_wcu) * 0.9 and told.seconds / 1.6 <= took <= 1.6 * told.seconds
    assert (told.refused == 0) == (max_wcu <= wcu) and (served.refused > 0) == (max_wcu > wcu)

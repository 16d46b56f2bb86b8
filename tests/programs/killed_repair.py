"""Run a repair that dies once it has written a number of times, Spark and all.

python killed_repair.py NUMBER TABLE ENTITIES
"""

import os
import signal
import sys

from dedup_nb.base.spark import get_spark
from dedup_nb.formats.delta import Delta
from dedup_nb.warehouse.repair import repair

number, table, entities = int(sys.argv[1]), *sys.argv[2:]
real, writes = Delta._write, []


def write_and_die(self, writer, note):
    real(self, writer, note)
    writes.append(self.name)
    if len(writes) == number:
        os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    Delta._write = write_and_die
    repair(table, entities={entities: "root_id"}, spark=get_spark(delta=True))

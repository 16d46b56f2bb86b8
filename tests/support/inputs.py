"Files to read: written as literal lines or columns, and what is read of them."

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dedup_nb.base.config import Input, Recipe
from dedup_nb.formats.batches import find_batches
from dedup_nb.formats.enriched import NAMES
from dedup_nb.formats.reading import read_batch
from dedup_nb.rules.keys import ids_of

ID = "83c1293c-9788-5607-a11c-f291161a7a5a"
MARK = b"\xef\xbb\xbf"  # what some editors put at the beginning of a file
# far from UTC, forgiving casts: nothing that is read may depend on them
ELSEWHERE = {"spark.sql.session.timeZone": "Asia/Tokyo", "spark.sql.ansi.enabled": "false"}


def line(**cells):
    "An enriched event; cells not named are empty but for the required ones."
    required = {
        "event_id": ID,
        "collector_tstamp": "2026-11-20 10:00:00.001",
        "v_collector": "c",
        "v_etl": "e",
    }
    assert set(cells) <= set(NAMES)
    return "\t".join((required | cells).get(name, "") for name in NAMES)


def write_lines(path, *lines, end="\n"):
    "Write lines (text or bytes); packed if the name ends with .gz."
    data = b"".join((x if isinstance(x, bytes) else x.encode()) + end.encode() for x in lines)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def parquet(path, **columns):
    "Write columns as a Parquet file."
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def found_in(path, batch_id=None, **place):
    return find_batches(Input(str(path), **place), batch_id)


def ids(path, batch_id=None, **place):
    return [b.batch_id for b in found_in(path, batch_id, **place).batches]


def opened(spark, path, batch_id=None, recipe=Recipe(), **place):
    [batch] = found_in(path, batch_id, **place).batches
    return read_batch(spark, batch, Input(str(path), **place), recipe, ids_of(recipe))


def good_rows(source, *columns):
    rows = source.decode(source.raw).where("_dd_good")
    return rows.select(*(columns or [f"`{c}`" for c in source.columns])).collect()


def bad_rows(source):
    return [json.loads(r.value)["data"] for r in source.bad(source.raw).collect()]


JSON_LINE = b'{"event_id":"a"}\n'


SPELLINGS = (
    ("in", "{here}/in", "file:in", "file:{here}/in", "file://{here}/in/", "./in/", "x/../in"),
    ("dbfs:/lake/in", "dbfs:///lake/in/", "/dbfs/lake/in", "file:/dbfs/lake/in"),
    ("s3://lake/in", "s3a://lake/in/", "s3n://lake//in", "S3://lake/in"),
)


def make_files(*names):
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(name)

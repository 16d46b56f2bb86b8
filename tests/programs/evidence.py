"""Run at scale what the project promises, and print one table: python evidence.py [SHARE].

SHARE of 1 (the default) takes some hours: all recorded cases of other tools, 2,000 merge cases, every
schedule of two runs, 200 kills on each manifest, 100,000 broken lines, 500 combinations of settings, 500
small batches. 0.01 is a try. Ends with 1 if anything is wrong.
"""

import gzip
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from datetime import date
from pathlib import Path

import soak
from conftest import CONFORMANCE
from merge_cases import CASES
from runs import SAMPLES, write

from dedup_nb import Config, run
from dedup_nb.base.config import settings
from dedup_nb.base.errors import DedupError
from dedup_nb.base.spark import get_spark

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SEED = 20261124


def tested(base, files, words=""):
    "Run tests: how many ran, how many were skipped, how many failed."
    report = base / "junit.xml"
    options = ["-n", "0", "-m", "", "-k", words, f"--junitxml={report}"]
    command = [sys.executable, "-m", "pytest", *options, *(str(ROOT / "tests" / f) for f in files)]
    subprocess.run(command, capture_output=True, cwd=ROOT)
    found = ET.parse(report).getroot().find("testsuite").attrib
    tests, skipped = int(found["tests"]), int(found["skipped"])
    wrong = int(found["failures"]) + int(found["errors"]) + (tests == skipped)
    return tests - skipped, skipped, wrong


def recorded(base, share):
    "Cases that other tools' own tests hold, row by row."
    files = ["formats", "merges", "pipeline/test_run.py", "streams/test_deduper.py"]
    ran, skipped, wrong = tested(base, files, "recorded or conformance or documented or peers")
    inputs = len(list(CONFORMANCE.rglob("*.json")) + list(CONFORMANCE.rglob("input.*")))
    return f"{ran} tests on {inputs} files, {skipped} skipped", wrong


def interleaved(base, share):
    "Two runs at once, call by call, with one fault anywhere, on a ledger and on claims."
    ran, _, wrong = tested(base, ["laws/test_interleavings.py", "laws/test_claim_interleavings.py"])
    return f"every schedule, in {ran} tests", wrong


def merged(base, share):
    "Generated inserts, merged here and there, against a reference in plain Python."
    ran, _, wrong = tested(base, ["merges/test_generated_merges.py"])
    return f"{ran * CASES:,} cases of {ran} engines", wrong


def kills_lake(base, share):
    "The job is killed at random instants."
    kills = max(2, round(200 * share))
    return f"{kills} kills", soak.main(kills, SEED)


def kills_dynamodb(base, share):
    kills = max(2, round(200 * share))
    done = subprocess.run([sys.executable, str(HERE / "soak_claims.py"), str(kills), str(SEED)])
    return f"{kills} kills, and races for the same ids", done.returncode


ODD = [
    "",
    "\\N",
    "null",
    "NaN",
    "-1",
    "1e400",
    "9" * 40,
    "2026-13-45 99:99:99",
    "{",
    '{"data":[]}',
    "é",
    "\u2028",
]


def broken(line, pick):
    "A line with something wrong."
    cells, way = line.split("\t"), pick.randrange(6)
    if way == 0:
        return line[: pick.randrange(len(line))]
    if way == 1:
        return line + "\t" * pick.randrange(1, 4)
    if way == 2:
        at = pick.randrange(len(line))
        return line[:at] + pick.choice("\x00\x07\"'\\\u00a0\ufffd") + line[at + 1 :]
    for _ in range(pick.randrange(1, 4)):
        at = pick.randrange(len(cells))
        cells[at] = pick.choice(ODD) if way < 5 else cells[at] * 3
    return "\t".join(cells)


def lines_of(path):
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", newline="\n") as file:
        return [line for line in file.read().split("\n") if line]


def ids_of_lines(lines):
    return {cells[6].lower() for line in lines if len(cells := line.split("\t")) > 6}


def ran(place, lines):
    "The counts of a run over lines, and the ids in what it wrote."
    (place / "in" / "run=1").mkdir(parents=True)
    (place / "in" / "run=1" / "lines").write_text("\n".join(lines) + "\n", encoding="utf-8")
    asked = dict(input=str(place / "in"), output=str(place / "out"), output_format="enriched_tsv")
    done = run(Config(**asked, manifest="none"), get_spark())
    written = [line for path in (place / "out" / "events").rglob("part-*") for line in lines_of(path)]
    return done.batches[0]["counts"], ids_of_lines(written)


def fuzzed(base, share):
    """Lines with something wrong are kept or bad, never lost; ids of the lines beside them stay.

    New ids may be others: a broken line that is taken as an earlier event keeps the id.
    """
    pick, number = random.Random(SEED), max(200, round(100_000 * share))
    good = [line for path in sorted(SAMPLES.glob("run=*/*")) for line in lines_of(path)]
    lines = [broken(pick.choice(good), pick) for _ in range(number)]
    lines = [line.replace("\n", " ").replace("\r", " ") for line in lines]
    _, alone = ran(base / "0", good)
    (c, there), again = (ran(base / turn, [*lines, *good]) for turn in "12")
    wrong = (
        bool(alone & ids_of_lines(good) - there) or again != (c, there) or c["read"] != len(lines) + len(good)
    )
    wrong = wrong or not c["bad"] or c["read"] != c["bad"] + c["kept"] + c["dropped"]
    return f"{number:,} lines: {c['bad']:,} bad, {c['kept'] + c['dropped']:,} events", int(wrong)


RIGHT = {  # what a setting without a list of its own may be
    "order_by": ["etl_tstamp", "n desc", "n,etl_tstamp"],
    "event_id": ["event_id", "event_id,n", "n"],
    "event_fingerprint": ["event_fingerprint", "n"],
    "fingerprint_columns": ["n", "n,etl_tstamp"],
    "partition_by": ["n", "etl_tstamp:date"],
    "input_where": ["n > 1"],
    "retention_days": [1, 180],
    "batch_id": ["1", "2"],
    "etl_time": ["2026-11-20"],
    "since": ["1", "2026-11-20"],
    "until": ["1", "2"],
    "max_batches": [2, 50],
    "skip_batches": ["1", "2"],
    "batch_pattern": ["run=*"],
    "max_duplicate_share": [0.5, 1],
    "max_bad_share": [0, 1],
}
WRONG = {
    **dict.fromkeys(("order_by", "event_id", "event_fingerprint", "fingerprint_columns"), ["nothing"]),
    "partition_by": ["nothing"],
    "input_where": ["nothing = 1", "n >"],
    "input_schema": ["n inet"],
    "retention_days": [0],
    "batch_id": ["no such", "a/b"],
    "etl_time": ["yesterday"],
    "until": ["2020-01-01"],
    "max_batches": [0, 1],
    "batch_pattern": ["run=*/x=*", "*"],
    "max_duplicate_share": [0, 2],
    "max_bad_share": [-1],
    "minimum_timestamp": ["2026-01-01", "never"],
    "skip_schemas": ["com.acme"],
    "wide_row_schema": ["infer", "a int"],
}
LEFT_OUT = ("input", "output", "manifest_path", "output_table", "aws_region", "max_wcu", "create_table")


def drawn(pick):
    "Some settings with some values; in one draw of three there is a wrong one."
    kinds = {s.name: list(s.metadata["allowed"]) or RIGHT.get(s.name) for s in settings()}
    kinds |= {s.name: [True, False] for s in settings() if s.type in (bool, "bool")}
    names = [n for n, v in kinds.items() if v and n not in LEFT_OUT]
    drawn = {name: pick.choice(kinds[name]) for name in pick.sample(names, pick.randrange(1, 4))}
    wrong = pick.sample(sorted(WRONG), pick.randrange(3) // 2)
    return {**drawn, **{name: pick.choice(WRONG[name]) for name in wrong}}


def combined(base, share):
    "Random settings either run, and account for every row, or are refused with a message."
    pick, number, spark = random.Random(SEED), max(10, round(500 * share)), get_spark(delta=True)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    rows = [(f"i{n % 7}", f"f{n % 3}", n, n) for n in range(20)]
    write(spark, base / "combined", {"1": rows[:12], "2": rows[8:]})
    ran, wrong = 0, 0
    for turn in range(number):
        chosen = {"input_format": "parquet", "manifest": pick.choice(["lake", "none"]), **drawn(pick)}
        output = base / "combined-out"
        shutil.rmtree(output, ignore_errors=True)
        try:
            for m in run(Config(input=str(base / "combined"), output=str(output), **chosen), spark).batches:
                c = m["counts"]
                wrong += c["read"] != c["bad"] + c["kept"] + c["dropped"]
            ran += 1
        except DedupError as refused:
            wrong += len(str(refused)) < 20
        except Exception as odd:
            wrong += 1
            print(f"{chosen}: {type(odd).__name__}: {str(odd)[:300]}", flush=True)
    return f"{number} combinations: {ran} ran, {number - ran} were refused in words", wrong


def small(base, share):
    "Many small batches, one after the other: the time of each must not grow."
    number, spark = max(20, round(500 * share)), get_spark(delta=True)
    rows = {f"{n:05d}": [(f"i{n * 50 + i}", "f", n, i) for i in range(-10, 50)] for n in range(number)}
    write(spark, base / "small", rows)
    config = Config(
        input=str(base / "small"), output=str(base / "small-out"), input_format="parquet", max_batches=number
    )
    done = run(config, spark)
    took = [m["seconds"]["total"] for m in done.batches]
    dropped, tenth = sum(m["counts"]["dropped"] for m in done.batches), max(1, number // 10)
    early, late = statistics.median(took[tenth : 2 * tenth]), statistics.median(took[-tenth:])
    wrong = len(took) != number or dropped != 10 * (number - 1) or late > 1.5 * early
    return f"{number} batches: {early:.1f} s each after {tenth}, {late:.1f} s at the end", int(wrong)


PARTS = {
    "Recorded cases of other tools": recorded,
    "Merge engines, generated cases": merged,
    "Two runs at once, with one fault": interleaved,
    "Killed, with the lake manifest": kills_lake,
    "Killed, with the DynamoDB manifest": kills_dynamodb,
    "Broken lines": fuzzed,
    "Settings at random": combined,
    "Small batches": small,
}


def main(share=1.0, only=""):
    base, lines, bad = Path(tempfile.mkdtemp(prefix="dedup_evidence_")), [], 0
    for name, part in PARTS.items():
        if only not in name:
            continue
        start = time.monotonic()
        told, wrong = part(base, share)
        took = f"{(time.monotonic() - start) / 60:.0f} min"
        lines.append(f"| {name} | {told} | {wrong} | {took} |")
        bad += wrong
        print(lines[-1], flush=True)
    print(f"\n`make evidence` on {date.today()}:\n\n| what | how much | wrong | took |\n|---|---|---|---|")
    print("\n".join(lines))
    shutil.rmtree(base, ignore_errors=True)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(float((sys.argv[1:] or ["1"])[0]), "".join(sys.argv[2:3])))

"""Writes what is generated: before_after.svg, the tables of settings.md, and the table of chapters in nbs/README.md.

python docs/generate.py        (make docs does it; a test compares)
"""

import json
import re
from html import escape
from pathlib import Path

DOCS = Path(__file__).parent
NOTEBOOKS = DOCS.parent / "nbs"
ROWS = [
    ("a", "f1", "10:00:00", "/home"),
    ("b", "f2", "10:00:01", "/cart"),
    ("b", "f3", "10:00:02", "/order"),
    ("c", "f4", "10:00:03", "/home"),
    (None, "f5", "10:00:04", "/home"),
    ("a", "f1", "10:00:07", "/home"),
]
SCHEMA = "event_id string, event_fingerprint string, collector_tstamp string, page string"
PLACES, FATE = (18, 102, 204, 282), 364  # of the columns
STYLE = """
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #1f2328 }
.card { fill: #fff; stroke: #d0d7de } .soft { fill: #59636e } .line { stroke: #d0d7de }
.head { font: 600 14px system-ui, sans-serif } .word { font: 14px system-ui, sans-serif }
.kept { fill: #0072b2 } .dropped { fill: #c04a00 } .bad { fill: #59636e } .gone { opacity: .6 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .card { fill: #0d1117; stroke: #3d444d } .soft, .bad { fill: #9198a1 }
  .line { stroke: #3d444d } .kept { fill: #56b4e9 } .dropped { fill: #ff9a4d }
}
"""


def fates(spark):
    "What `deduplicate` makes of each row: a class, the id it has now, and words; the sum of all."
    from dedup_nb import deduplicate

    result = deduplicate(spark.createDataFrame(ROWS, SCHEMA))
    told = {}
    for r in result.kept.collect():
        words = f"new id; was {r.original_event_id}" if r.original_event_id else "kept"
        told[r.collector_tstamp] = (
            "kept",
            r.event_id[:13] + "…" if r.original_event_id else r.event_id,
            words,
        )
    for r in result.dropped.collect():
        told[r.collector_tstamp] = (
            "dropped",
            "",
            f"dropped: {r.dedup.reason}, {r.dedup.kept_event_id} stays",
        )
    for r in result.bad.collect():
        told[r.collector_tstamp] = ("bad", "", "bad: no id")
    counts = {kind: sum(fate == kind for fate, _, _ in told.values()) for kind in ("kept", "dropped", "bad")}
    assert sum(counts.values()) == len(ROWS) == len(told)
    total = " + ".join(f"{number} {kind}" for kind, number in counts.items())
    return [told[row[2]] for row in ROWS], f"{len(ROWS)} rows read = {total}"


def text(x, y, words, kind=""):
    return f'<text x="{x}" y="{y}" class="{kind}">{escape(words)}</text>'


def picture(spark):
    "The rows before and after, as SVG for light and dark pages."
    told, total = fates(spark)
    height = 92 + 28 * len(ROWS)
    size = f'viewBox="0 0 640 {height}" width="640" height="{height}"'
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">', f"<title>{escape(total)}</title>"]
    out += [
        f"<style>{STYLE}</style>",
        f'<rect class="card" x=".5" y=".5" width="639" height="{height - 1}" rx="6"/>',
    ]
    heads = [*zip(PLACES, ("event_id", "fingerprint", "time", "page")), (FATE, "what became of it")]
    out += [text(x, 28, words, "head soft") for x, words in heads]
    out.append(f'<path class="line" d="M12 40H628M348.5 40V{height - 42}"/>')
    for n, (row, (kind, now, words)) in enumerate(zip(ROWS, told)):
        y, gone = 64 + 28 * n, "" if kind == "kept" else "gone"
        cells = zip(PLACES, row)
        out += [text(x, y, cell or "-", gone) for x, cell in cells]
        out += [text(FATE, y, now)] if now else []
        out.append(text(FATE + 134 if now else FATE, y, words, f"word {kind}"))
    out += [f'<path class="line" d="M12 {height - 42}H628"/>', text(18, height - 16, total, "head")]
    return "\n".join([*out, "</svg>", ""])


def settings_page(page):
    "The page of settings, its tables made anew from the settings themselves."
    from dedup_nb.base.config import settings_table

    return page.split("\n## ")[0] + f"\n{settings_table()}\n"


CHAPTERS = {  # folders of nbs/, in the order of the story
    "01_distribution": "how duplicated, and why",
    "02_rules": "one verdict for each pair of an id and a fingerprint",
    "03_manifest": "what earlier batches had",
    "04_dynamodb": "the same, pair by pair on DynamoDB",
    "05_costs": "dollars before the run",
    "06_pipeline": "batches, one commit each",
    "07_operate": "look after an output",
    "08_streams": "the same on a stream; expiry by time",
    "09_merges": "merge engines as functions",
    "10_warehouse": "what is loaded already",
    "base": "what everything stands on",
    "formats": "what is read and written",
    "report": "pages from numbers",
    "tools": "samples with known truth",
    "jobs": "run by papermill, exported to no module",
}


def notebook_row(path):
    "A notebook as a row of the table: its title, and the line below that."
    cells = json.loads(path.read_text())["cells"]
    title = next("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    name, line = re.match(r"# (.*)\n+> (.*)", title).groups()
    return f"| [{name}]({path.relative_to(NOTEBOOKS)}) | {line} |"


def chapters_page(page):
    "The page of the notebooks, its tables made anew from the notebooks themselves."
    tables = []
    for folder, job in CHAPTERS.items():
        rows = map(notebook_row, sorted((NOTEBOOKS / folder).glob("*.ipynb")))
        tables.append("\n".join([f"## {folder}: {job}", "", "| | |", "|---|---|", *rows]))
    return page.split("\n## ")[0] + "\n" + "\n\n".join(tables) + "\n"


def write():
    from dedup_nb import get_spark

    (DOCS / "before_after.svg").write_text(picture(get_spark()))
    (NOTEBOOKS / "README.md").write_text(chapters_page((NOTEBOOKS / "README.md").read_text()))
    (DOCS / "settings.md").write_text(settings_page((DOCS / "settings.md").read_text()))


if __name__ == "__main__":
    write()

"""Generated inserts, and what merge engines show of them, in plain Python."""

from dedup_nb.merges.change_log import Coalescing, Collapsing, Latest, Replacing, VersionedCollapsing

CASES = 400  # of each kind: 2,000
COLUMNS = ["case", "key", "turn", "pos", "ver", "gone", "sign", "val", "x"]
SCHEMA = "case int, key int, turn int, pos int, ver int, gone int, sign int, val int, x string"
KEYS, ORDER = ["case", "key"], ["turn", "pos"]
KINDS = {
    "latest": Latest(KEYS, ORDER),
    "replacing": Replacing(KEYS, "ver", "gone", ORDER),
    "coalescing": Coalescing(KEYS, ORDER),
    "collapsing": Collapsing(KEYS, "sign", ORDER),
    "versioned": VersionedCollapsing(KEYS, "sign", "ver", ORDER),
}


def place(row):
    return row["turn"], row["pos"]


def last_values(rows):
    "In each column the last value that is not null."
    return {c: next((r[c] for r in reversed(rows) if r[c] is not None), None) for c in COLUMNS}


def left_over(rows):
    "What is left where a row cancels the last one of the other sign."
    stack = []
    for row in rows:
        if stack and stack[-1]["sign"] != row["sign"]:
            stack.pop()
        else:
            stack.append(row)
    return stack


def shown(kind, rows):
    "What a query shows of the rows of one key, by the engines' documentation."
    rows = sorted(rows, key=place)
    if kind == "latest":
        return rows[-1:]
    if kind == "replacing":
        newest = max(rows, key=lambda row: (row["ver"], place(row)))
        return [] if newest["gone"] else [newest]
    if kind == "coalescing":
        return [last_values(rows)]
    if kind == "collapsing":  # each state but the last was cancelled
        return rows[-1:] if rows[-1]["sign"] == 1 else []
    versions = {row["ver"] for row in rows}
    return [row for ver in versions for row in left_over([r for r in rows if r["ver"] == ver])]


def generate(pick, kind, case):
    "Some inserts of a case: rows in their order."
    signs, rows = {}, []
    for turn in range(pick.randint(1, 5)):
        for pos in range(pick.randint(0, 6)):
            key = pick.randrange(3)
            signs[key] = -signs.get(key, -1) if kind == "collapsing" else pick.choice([1, -1])
            values = pick.randrange(3), int(pick.random() < 0.3), signs[key]
            told = pick.choice([None, 1, 2]), pick.choice([None, "", "a", "b"])
            rows.append(dict(zip(COLUMNS, (case, key, turn, pos, *values, *told))))
    return rows

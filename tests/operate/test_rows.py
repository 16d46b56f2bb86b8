"The rows of an id, side by side, from the files that commits list."

import json
from datetime import datetime, timezone
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dedup_nb.base.config import Config
from dedup_nb.base.storage import write_text
from dedup_nb.operate import rows as operate_rows
from dedup_nb.operate.history import explain
from dedup_nb.operate.rows import bad_rows_in_words, can_look, find_bad_rows, find_copies, side_by_side

TIME = datetime(2026, 11, 20, tzinfo=timezone.utc)


def committed(folder, event_id=("id",), output_format="parquet", **areas):
    "An output with one batch, `b`, whose commit lists a file for each area; a stray file lies beside."
    record = {"status": "committed", "attempt": "t"}
    for area, rows in areas.items():
        (folder / area / "batch_id=b").mkdir(parents=True)
        for name in ("part", "stray"):
            pq.write_table(pa.Table.from_pylist(rows), folder / area / f"batch_id=b/{name}.parquet")
        record[area] = [{"path": f"{area}/batch_id=b/part.parquet"}]
    write_text(f"{folder}/runs/b/files.json", json.dumps(record))
    note = {"event_id": list(event_id), "output_format": output_format}
    write_text(f"{folder}/runs/recipe.json", json.dumps(note))
    return str(folder)


def test_kept_and_dropped_rows_of_an_id_are_found_by_the_ids_they_have_or_came_with(tmp_path):
    kept = [{"id": "a", "n": 1, "original_event_id": None}, {"id": "new", "n": 2, "original_event_id": "a"}]
    gone = [{"id": "a", "n": 1, "dedup": {"reason": "natural"}}, {"id": "b", "n": 3, "dedup": None}]
    output = committed(tmp_path, events=kept, dropped=gone)
    found = [*find_copies(output, ["b"], ["a"])]
    assert [(c.row, c.reason, c.file) for c in found] == [
        ({"id": "a", "n": 1}, None, "events/batch_id=b/part.parquet"),
        ({"id": "new", "n": 2}, None, "events/batch_id=b/part.parquet"),
        ({"id": "a", "n": 1}, "natural", "dropped/batch_id=b/part.parquet"),
    ]
    assert [c.row["n"] for c in find_copies(output, ["b"], ["new"])] == [2]
    assert not [*find_copies(output, ["b"], ["nobody"])] and not [*find_copies(output, ["c"], ["a"])]


def test_values_of_any_type_are_shown(tmp_path):
    row = {"id": 7, "at": TIME, "price": Decimal("9.50"), "raw": b"\xff", "of": {"a": [1, None]}, "no": None}
    [copy] = find_copies(committed(tmp_path, events=[row]), ["b"], ["7"])
    json.dumps(copy.row)
    [head, *lines] = side_by_side([copy])
    assert head.split() == ["b,", "kept"] and lines[-1] == "  events/batch_id=b/part.parquet"
    assert "  price  9.50" in lines and not any(line.lstrip().startswith("no ") for line in lines)


def test_what_differs_comes_first_and_much_is_cut(tmp_path):
    many = {f"d{n}": 0 for n in range(22)}
    rows = [
        {f"c{i}": "x" * 50 for i in range(12)} | {"id": "a", "z": i} | dict.fromkeys(many, i)
        for i in range(9)
    ]
    lines = side_by_side([*find_copies(committed(tmp_path, events=rows), ["b"], ["a"])])
    assert lines[1].split() == ["z", "*", "0", "1", "2", "3", "4"]
    assert "  they differ in d19, d20, d21 too" in lines
    assert lines[21].split()[1:] == ["x" * 35 + "…"] * 5
    assert "  and more of its rows: these are 5" in lines
    assert [line for line in lines if line.startswith("  the same in all of them, too: c8, c9, c10, c11")]


@pytest.mark.parametrize(
    "how", [{"event_id": ("id", "n")}, {"event_id": ("a.id",)}, {"output_format": "json"}]
)
def test_where_nobody_can_look_there_are_no_rows(tmp_path, how):
    output = committed(tmp_path, events=[{"id": "a", "n": 1}], **how)
    assert not can_look(output) and not [*find_copies(output, ["b"], ["a"])] and side_by_side([]) == []


def test_a_file_that_is_gone_or_lacks_a_column_of_folders_is_no_difference(tmp_path):
    kept, gone = [{"id": "a", "n": 1}], [{"id": "a", "n": 1, "app": "web", "dedup": {"reason": "natural"}}]
    output = committed(tmp_path, events=kept, dropped=gone)
    lines = side_by_side([*find_copies(output, ["b"], ["a"])])
    assert not any("*" in line for line in lines)
    (tmp_path / "dropped/batch_id=b/part.parquet").unlink()
    assert [c.reason for c in find_copies(output, ["b"], ["a"])] == [None]


BAD = [  # payloads
    {"id": None, "page": "of y1"},
    "Y1,caf?,8",
    "y11,caf?",
    '{"id": "y-1", "name": "say \\"hi\\""}',
    "tab\ty2\there",
    r'{"id": "a\/b", "of": "\ty3"}',
]


def with_bad_rows(folder, number=1, **how):
    "An output with one batch, whose commit lists its bad rows; a stray file lies beside."
    output = committed(folder, **how)
    lines = [{"failure": {"errors": [f"Line {n}: no UTF-8"]}, "payload": p} for n, p in enumerate(BAD)]
    text = number * "".join(json.dumps({"data": line}) + "\n" for line in lines)
    for name in ("part", "stray"):
        write_text(f"{folder}/bad/batch_id=b/t/{name}.txt", text)
    record = {"status": "committed", "attempt": "t", "bad": [{"path": "bad/batch_id=b/t/part.txt"}]}
    write_text(f"{folder}/runs/b/files.json", json.dumps(record))
    return output


@pytest.mark.parametrize(
    "asked, lines",
    [
        ("y1", [0, 1]),
        ("Y1", [0, 1]),
        ("y-1", [3]),
        ("y", []),
        ("y2", [4]),
        ('say "hi"', [3]),
        ("caf", [1, 2]),
        ("a/b", [5]),
        ("y3", [5]),
    ],
)
def test_a_bad_row_is_found_by_an_id_that_stands_in_it_as_a_word(tmp_path, asked, lines):
    found = find_bad_rows(with_bad_rows(tmp_path), ["b"], [asked])
    assert [row.fault for row in found] == [f"Line {n}: no UTF-8" for n in lines]
    assert {row.file for row in found} <= {"bad/batch_id=b/t/part.txt"}
    assert not find_bad_rows(str(tmp_path), ["other"], [asked]), "of committed batches alone"


def test_a_story_tells_of_bad_rows_or_that_nobody_looked(tmp_path, monkeypatch):
    output = with_bad_rows(tmp_path)
    told = explain("y2", Config(output=output, manifest="none"))
    assert str(told) == (
        "Event id y2\n  batch b: a bad row holds it: Line 4: no UTF-8 (bad/batch_id=b/t/part.txt)"
    )
    assert told.data["bad"][0]["batch_id"] == "b"
    nobody = str(explain("nobody", Config(output=output, manifest="none")))
    assert "it was in none of them" in nobody and "bad row" not in nobody
    monkeypatch.setattr(operate_rows, "_MUCH", 10)
    told = str(explain("y2", Config(output=output, manifest="none")))
    assert "it was in none of them" in told and "bad rows were not looked at: dedup erase --id=y2" in told


def test_bad_rows_of_an_id_of_several_columns_are_not_looked_at_and_many_are_cut(tmp_path):
    assert find_bad_rows(with_bad_rows(tmp_path / "two", event_id=("id", "n")), ["b"], ["y1"]) is None
    rows = find_bad_rows(with_bad_rows(tmp_path / "many", number=4), ["b"], ["y1"])
    assert len(rows) == 8 and bad_rows_in_words(rows, "y1", "out")[5:] == ["  and 3 bad rows more"]

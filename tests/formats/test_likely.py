import json

import pandas as pd
import pytest

from dedup_nb import Config, run
from dedup_nb.base.errors import MissingColumnError
from dedup_nb.cli import main
from dedup_nb.formats.likely import likely_columns

ROWS = [
    {
        "order_id": f"o{n // 2}",
        "user_id": f"u{n % 3}",
        "received_at": f"2026-11-0{1 + n % 9}T10:00:00Z",
        "n": n,
    }
    for n in range(60)
]


@pytest.mark.parametrize(
    "columns, likely",
    [
        ({"id": [1, 2], "message_id": [1, 2]}, {"event_id": "id"}),  # as distinct: by its name
        ({"id": [1, None], "guid": ["a", "b"]}, {"event_id": "guid"}),
        ({"id": [None, *range(20)], "n": range(21)}, {"event_id": "id"}),  # a few rows are bad
        ({"id": [None, *range(20)], "message_id": range(21)}, {"event_id": "message_id"}),  # none is
        ({"id": [1, 1, 1, 1], "row_key": [1, 2, 3, 4]}, {"event_id": "row_key"}),
        (
            {"id": [1, 1, 2, 3], "load_id": [1, 2, 3, 4]},
            {"event_id": "id", "fingerprint_columns": "load_id"},
        ),  # repeats are what we are for
        ({"user_id": ["a"] * 9}, {}),
        ({"Order No": ["a", "b"], "name": ["c", "d"]}, {"event_id": "Order No"}),
        ({"uid": [1, 2], "user_key": [3, 4]}, {"event_id": "uid"}),
        ({"id": [1, 2, None], "n": [1, 2, None]}, {"event_id": "id"}),  # the last line is no row
        (
            {" id": [1, 2], "a,b_id": [1, 2], "guid": [1, 2]},
            {"event_id": "guid"},
        ),  # no setting can name the others
        (
            {
                "id": [1, 1, 2],
                "ts": ["2026-11-01", "2026-11-02", None],
                "n": [1, 1, 2],
                "page": ["a", "b", "c"],
            },
            {"event_id": "id", "fingerprint_columns": "page"},
        ),
        ({"id": [1, 1, 2], "page": ["a", None, "c"]}, {"event_id": "id", "fingerprint_columns": "page"}),
        (
            {"id": [1, 1, 2, 2], "row": [1, 2, 3, 4], "page": ["a", "b", "c", "c"]},
            {"event_id": "id", "fingerprint_columns": "page"},
        ),  # each repeat has its row
        (
            {"id": [1, 1, 2], "day": pd.to_datetime(["2026-11-01", "2026-11-02", "2026-11-03"])},
            {"event_id": "id"},  # copies come at different times
        ),
        ({"created": ["2026-11-01 00:00:00"]}, {"order_by": "created"}),
        ({"name": ["a", "b"], "ts": [1_700_000_000, 1_700_000_001]}, {"order_by": "ts"}),
        (
            {"ts": ["yesterday", "today"], "paid_at": ["2026-11-01", "2026-11-02 10:00"]},
            {"order_by": "paid_at"},
        ),
        ({"valid": [True, False]}, {}),
        ({}, {}),
    ],
)
def test_columns_are_found_by_name_and_value(columns, likely):
    assert likely_columns(pd.DataFrame(columns)) == likely


def written(folder, kind):
    folder.mkdir(parents=True)
    frame = pd.DataFrame(ROWS)
    if kind == "json":
        (folder / "a.json").write_text("".join(json.dumps(row) + "\n" for row in ROWS) + "{broken\n")
    elif kind == "csv":
        (folder / "a.csv").write_text(frame.to_csv(index=False) + "short,row\n")
    else:
        frame["at"] = pd.Timestamp("2026-11-01").as_unit(kind.removeprefix("parquet "))
        frame.to_parquet(folder / "a.parquet")
    return str(folder)


@pytest.mark.parametrize("kind", ["json", "csv", "parquet us", "parquet ns"])
def test_the_error_proposes_the_command_to_paste(spark, tmp_path, capsys, kind):
    source = written(tmp_path / "my data/in", kind)
    with pytest.raises(SystemExit) as ended:
        main(["run", "--input", source, "--output", str(tmp_path / "out"), "--manifest", "none"])
    said = capsys.readouterr().err
    assert ended.value.code == 2 and "needs event_id" in said, said
    columns = "n,user_id" if kind == "json" else "user_id,n"
    assert f"Likely: event_id=order_id, order_by=received_at, fingerprint_columns={columns}. Rows" in said
    assert f"one order_id differ in {columns.replace(',', ', ')}: so they are other events; without" in said
    [line] = [line.strip() for line in said.splitlines() if line.startswith("  dedup run ")]
    assert (
        line.endswith(f"--order-by received_at --fingerprint-columns {columns}")
        and f"--input '{source}'" in line
    )
    more = dict(event_id="order_id", order_by="received_at", fingerprint_columns=columns, manifest="none")
    counts = run(Config(input=source, output=str(tmp_path / "out"), **more), spark).counts
    assert counts["kept"] == 60 and counts["bad"] == (kind in ("json", "csv"))


@pytest.mark.parametrize(
    "settings, words",
    [
        ({}, " Rows with one order_id are copies then. If dedup profile shows other events among them, name"),
        (
            {"input_format": "json"},
            "order_id is a number: cast it to string upstream, or run with --synthetic q",
        ),
        ({"missing_fingerprint": "surrogate"}, ""),
        ({"fingerprint_columns": "n"}, ""),
        ({"event_fingerprint": "n"}, ""),  # which says what is another event
    ],
)
def test_what_rows_with_one_id_are_is_told_where_nothing_says_it(spark, tmp_path, settings, words):
    if settings.get("input_format") == "json":
        (tmp_path / "a.json").write_text('{"order_id": 1}\n{"order_id": 2}\n')
    else:
        (tmp_path / "a.csv").write_text("order_id,n\no1,1\no2,1\n")
    with pytest.raises(MissingColumnError) as wrong:
        run(Config(input=str(tmp_path), output=f"{tmp_path}-out", manifest="none", **settings), spark)
    _, _, said = str(wrong.value).partition(" Likely: event_id=order_id.")
    assert words in said and bool(said) == bool(words)


def test_where_another_column_lacks_no_id_is_proposed(spark, tmp_path):
    (tmp_path / "a.csv").write_text("event_id,amount\n1,1\n2,1\n")
    with pytest.raises(MissingColumnError, match="Did you mean amount?") as wrong:
        settings = dict(manifest="none", fingerprint_columns="amout")
        run(Config(input=str(tmp_path), output=f"{tmp_path}-out", **settings), spark)
    assert not wrong.value.likely


def test_who_named_an_id_gets_no_other(spark, tmp_path):
    source = written(tmp_path / "in", "json")
    with pytest.raises(MissingColumnError) as wrong:
        run(Config(input=source, output=str(tmp_path / "out"), manifest="none", event_id="orders"), spark)
    assert "Likely" not in str(wrong.value) and not wrong.value.likely

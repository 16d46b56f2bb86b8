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
        ({"id": [1, 1, 1, 1], "row_key": [1, 2, 3, 4]}, {"event_id": "row_key"}),
        ({"id": [1, 1, 2, 3], "load_id": [1, 2, 3, 4]}, {"event_id": "id"}),  # repeats are what we are for
        ({"user_id": ["a"] * 9}, {}),
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
        (folder / "a.json").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    elif kind == "csv":
        frame.to_csv(folder / "a.csv", index=False)
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
    assert "Likely: event_id=order_id, order_by=received_at." in said
    [line] = [line.strip() for line in said.splitlines() if line.startswith("  dedup run ")]
    assert line.endswith("--event-id order_id --order-by received_at") and f"--input '{source}'" in line
    more = dict(event_id="order_id", order_by="received_at", manifest="none")
    assert run(Config(input=source, output=str(tmp_path / "out"), **more), spark).counts["bad"] == 0


def test_who_named_an_id_gets_no_other(spark, tmp_path):
    source = written(tmp_path / "in", "json")
    with pytest.raises(MissingColumnError) as wrong:
        run(Config(input=source, output=str(tmp_path / "out"), manifest="none", event_id="orders"), spark)
    assert "Likely" not in str(wrong.value) and not wrong.value.likely

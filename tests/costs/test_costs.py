"""Units, capacity, dollars, and the plan made of them. No Spark."""

import gzip
import json
import math
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st

from dedup_nb.base.config import Input
from dedup_nb.base.errors import ConfigError, InputError
from dedup_nb.costs.estimate import (
    Units,
    Workload,
    capacity_usd,
    claim_units,
    hours_to_write,
    load_prices,
    month_of,
    usd,
)
from dedup_nb.costs.plan import plan_input, plan_workload

pytestmark = pytest.mark.usefixtures("own_folder")
P = load_prices()
SAMPLES = ROOT / "data_samples"

# Published figures for 180 days and 2 % known in us-east-1: stored GB, storage, requests, on demand; WCU
# all day, dollars for it at 100 % and 70 %; the lake at 1, 24 and 288 batches a day; core-hours of a scan,
# break-even with on demand; hours to write at 100, 4 000 and 40 000 WCU
TABLE = {
    10e6: (349, 81, 191, 272, 116, 55, 79, 2, 18, 206, 0.4, 381, 27.8, 0.7, 0.07),
    100e6: (3487, 865, 1909, 2774, 1158, 549, 785, 21, 185, 2060, 3.6, 388, 278, 6.9, 0.7),
    1e9: (34869, 8711, 19086, 27797, 11575, 5492, 7846, 212, 1846, 20603, 36, 389, 2778, 69, 6.9),
    10e9: (
        348687,
        87166,
        190865,
        278030,
        115741,
        54919,
        78456,
        2118,
        18460,
        206034,
        365,
        389,
        27778,
        694,
        69,
    ),
}


@pytest.mark.parametrize("events", TABLE, ids=lambda n: f"{n:,.0f}")
def test_the_published_table(events):
    m, full = month_of(Workload(events), P), month_of(Workload(events), P, utilisation=1)
    lake = [month_of(Workload(events, batches_per_day=b), P).usd["lake"] for b in (1, 24, 288)]
    capacity = [full.wcu, capacity_usd(full.wcu, 0, P), capacity_usd(m.wcu, 0, P)]
    got = [m.stored_gb, m.storage_usd, m.request_usd, m.usd["on_demand"], *capacity, *lake]
    *expected, scan, even, slow, new, most = TABLE[events]
    assert [round(x) for x in got] == expected
    assert math.isclose(m.lake_core_s / 3600, scan, abs_tol=0.05 if scan < 10 else 0.5)
    assert round(m.break_even("on_demand")) == even
    for wcu, hours in ((100, slow), (4000, new), (40_000, most)):
        digits = len(str(hours).partition(".")[2])
        assert round(hours_to_write(events, wcu), digits) == hours, wcu


def test_a_month_by_hand():
    m = month_of(Workload(10e6), P)
    assert (m.wcu, m.rcu) == (166, 4)  # 10 M writes and 0.2 M reads a day, / 86 400 / 0.7
    assert m.usd["provisioned"] == pytest.approx(80.92 + (166 * 0.00065 + 4 * 0.00013) * 730, abs=0.005)
    # 1.8e9 keys of 34 B: / 50e6 = 1224 s, + 1.8e9 * 50e-9 = 90 s; 61.2e9 / 2^24 requests at 0.40 a million
    assert m.lake_core_s == pytest.approx(1314)
    assert m.lake_scan_usd == pytest.approx(0.365 * 0.06 + 61.2e9 / 2**24 * 0.4e-6)
    assert capacity_usd(100, 20, P) == pytest.approx(49.35, abs=0.005)
    small = month_of(Workload(1, retention_days=1, batches_per_day=0.01), P)
    assert (small.storage_usd, small.wcu, small.rcu) == (0, 1, 1)  # 25 GB are free, no table has less units
    assert [usd(x) for x in (0, 0.001, 0.0151, 1234.5)] == ["$0.00", "under $0.01", "$0.02", "$1 234.50"]


@pytest.mark.parametrize(
    "known, write, read, dollars",
    [
        (0.02, 1e6, 20_000, 0.6275),  # insert first: 0.625 + 0.125 * 0.02
        (0.16, 1e6, 160_000, 0.645),
        (0.17, 830_000, 1e6, 0.64375),  # read first from a sixth on: 0.625 * 0.83 + 0.125
        (1, 0, 1e6, 0.125),
    ],
)
def test_units_of_a_million_claims(known, write, read, dollars):
    units = claim_units(1e6, known, P)
    assert units == Units(pytest.approx(write), pytest.approx(read))
    assert units.usd(P) == pytest.approx(dollars)


@given(st.floats(1e3, 1e11), st.floats(1, 30), st.floats(0, 1), st.integers(1, 1000), st.integers(1, 300))
def test_more_never_costs_less_and_more_batches_cost_only_the_lake(n, more, known, days, batches):
    of = lambda n, days, batches: month_of(Workload(n, known, batches, days), P).usd
    one, often = of(n, days, batches), of(n, days, batches + 9)
    for other in (of(n * more, days, batches), of(n, days * more, batches)):
        assert all(other[way] >= one[way] * (1 - 1e-9) for way in one)
    assert often == one | {"lake": often["lake"]} and often["lake"] > one["lake"]


# prices
def test_every_region_has_every_price_a_date_and_a_source():
    for region in ("us-east-1", "us-east-2", "us-west-2"):
        p = load_prices(region)
        assert p.values.keys() == P.values.keys() and p.date == "2026-11-20" and p.source


def test_a_file_replaces_single_values_and_adds_regions():
    own = {n: 2 * v for n, v in P.values.items() if "usd" in n or n == "standard_free_gb"}
    table = "\n".join(f"{n} = {v}" for n, v in own.items())
    Path("mine.toml").write_text(
        "date = 2027-01-01\n[quotas]\ntable_wcu = 300\n[regions.us-east-1]\ncore_usd_per_hour = 0.1\n"
        f"[regions.eu-west-1]\nsource = 'our bill'\n{table}\n"
    )
    mine = load_prices(file="mine.toml")
    assert (mine["core_usd_per_hour"], mine["table_wcu"], mine["cores"]) == (0.1, 300, 8)
    told = plan_workload(events_per_day=1e7, region="eu-west-1", prices_file="mine.toml").numbers["prices"]
    assert told == {"region": "eu-west-1", "date": "2027-01-01", "source": "our bill with mine.toml"}


@pytest.mark.parametrize(
    "text, words",
    [
        ("[regions.us-east-1]\ncore_usd_per_hou = 1", "Did you mean regions.us-east-1.core_usd_per_hour?"),
        ("[rate]\ncores = 1", "what nothing uses: rate.cores. Did you mean rates.cores?"),
        ("quotas = 1", "what nothing uses: quotas."),
        ("[regions.us-east-1]\nia_write = 1\n[quota]\nx = 1", "regions.us-east-1.ia_write.*quota.x"),
        ("[regions", "mine.toml cannot be read as prices"),
    ],
)
def test_a_price_file_with_unknown_names_is_refused(text, words):
    Path("mine.toml").write_text(text)
    with pytest.raises(ConfigError, match=words):
        load_prices(file="mine.toml")


@pytest.mark.parametrize(
    "text, words",
    [
        ("[rates]\ncores = 0", "rates.cores = 0: wanted a number above 0"),
        ("[rates]\ncores = 'eight'", "rates.cores = 'eight': wanted a number above 0"),
        ("[quotas]\ntable_wcu = true", "quotas.table_wcu = True: wanted a number from 0 on"),
        (
            "[rates]\nbatch_overhead_s = nan\n[regions.us-east-1]\ncore_usd_per_hour = -1",
            "batch_overhead_s = nan: .* regions.us-east-1.core_usd_per_hour = -1: wanted a number from 0 on",
        ),
    ],
)
def test_a_price_that_nobody_can_reckon_with_is_refused_by_name(text, words):
    Path("mine.toml").write_text(text)
    with pytest.raises(ConfigError, match=words):
        load_prices(file="mine.toml")


def test_a_price_may_be_nothing():
    Path("mine.toml").write_text("[regions.us-east-1]\nlake_storage_usd_per_gb = 0\nsource = 2026\n")
    mine = load_prices(file="mine.toml")
    assert mine["lake_storage_usd_per_gb"] == 0 and mine.source == "2026 with mine.toml"


def test_a_region_without_prices_is_refused_and_never_free():
    with pytest.raises(ConfigError, match="No prices for region us-west-1.*mean us-west-2.*--prices"):
        load_prices("us-west-1")
    Path("mine.toml").write_text("[regions.eu-west-1]\nstandard_write_usd_per_million = 0.7\n")
    with pytest.raises(ConfigError, match="No standard_read_usd_per_million, .* for region eu-west-1"):
        load_prices("eu-west-1", "mine.toml")
    with pytest.raises(ConfigError, match="absent.toml cannot be read"):
        load_prices(file="absent.toml")


# numbers
@pytest.mark.parametrize(
    "numbers, words",
    [
        (dict(events_per_day="many"), "--events-per-day many: wanted a number from 1 to 10 000 000 000 000."),
        (dict(events_per_day=math.nan), "--events-per-day nan: wanted"),
        (dict(events_per_day=1e6, duplicate_share=7), "--duplicate-share 7: wanted a share from 0 to 1"),
        (dict(events_per_day=1e6, batches_per_day="0"), "--batches-per-day 0: wanted a number from 0.001"),
        (dict(events_per_day=1e6, retention_days=-1), "--retention-days -1: wanted"),
        (
            dict(events_per_day=10, batches_per_day=100),
            "--batches-per-day 100: wanted at most 10, the events",
        ),
        (dict(events_per_day=0, duplicate_share=2), "(?s)--events-per-day 0: .*--duplicate-share 2: "),
    ],
)
def test_wrong_numbers_say_what_was_wanted(numbers, words):
    with pytest.raises(ConfigError, match=words):
        plan_workload(**numbers)


def test_a_plan_from_numbers_is_unrounded_json():
    n = plan_workload(events_per_day="1e7", duplicate_share="0.02", batches_per_day="1").numbers
    assert json.loads(json.dumps(n, allow_nan=False)) == n
    month = month_of(Workload(1e7), P)
    assert n["per_month"] == month.usd and month.usd["lake"] != round(month.usd["lake"], 2)
    b = n["batch"]
    assert (b["rows"], b["write_units"], b["read_units"]) == (10_000_000, 10_000_000, 200_000)
    assert b["hours_to_write"] == {"on_demand": 1e7 / 4000 / 3600, "provisioned": 1e7 / 166 / 3600}
    # 10 M rows at 8 * 5 000 a second, 7 s for the batch, 1 314 core-seconds to look back
    assert (b["seconds"]["lake"], b["seconds"]["on_demand"]) == (250 + 7 + 1314 / 8, 250 + 7 + 2500)
    assert n["recommendation"]["choice"] == "lake" and n["notes"] == []


def test_the_page_is_short_and_says_what_matters():
    plan = plan_workload(events_per_day=1e7)
    title, _, head, *rows = str(plan).splitlines()
    assert title.startswith("Plan for 10 000 000 rows a day in 1 batch of 10 000 000; 2 % known")
    assert head.split() == "a month a batch takes of it writing write units a second".split()
    assert [" ".join(row.split()) for row in rows[:3]] == [
        "lake manifest $2.12 7 min - -",
        "DynamoDB on demand $271.79 46 min 42 min 4 000",
        "DynamoDB provisioned $160.07 16.8 h 16.7 h 166",
    ]
    assert len(rows) < 20 and all(len(row) <= 110 for row in rows[:-1])
    assert (
        rows[-1]
        == plan.numbers["provisioned"]["command"]
        == (
            "aws dynamodb update-table --table-name TABLE --billing-mode PROVISIONED "
            "--provisioned-throughput ReadCapacityUnits=4,WriteCapacityUnits=166"
        )
    )
    page, shown = plan._repr_html_(), " ".join(" ".join(rows).split())
    for words in (
        "Recommended: lake manifest; it costs $2.12 a",
        "Minutes are an estimate, for 8 cores",
        "us-east-1, 2026-11-20, third-party price pages",
        "--duplicate-share",
        rows[-1],
    ):
        assert words in shown and words in page, words


def _plan(n, b, **more):
    return plan_workload(events_per_day=n, batches_per_day=b, **more).numbers


def test_the_recommendation_flips_where_it_says():
    at = lambda b, n=1e7, **more: _plan(n, b, **more)["recommendation"]
    few, many, beside = at(223), at(224), at(1, side_by_side=True)
    assert [r["choice"] for r in (few, many, beside)] == ["lake", "provisioned", "provisioned"]
    # (160.07 - 1.41) / 0.02336 / 30.417
    assert few["break_even_batches_per_day"] == pytest.approx(223.3, rel=1e-3)
    assert "up to 223 batches a day" in few["reason"] and "below 223 batches a day" in many["reason"]
    assert "side by side, which a lake manifest refuses" in beside["reason"]
    assert at(1, 1e4, side_by_side=True)["choice"] == "on_demand"  # a unit all day is more than a few writes
    month, trifle = _plan(1e4, 1000)["per_month"], at(1000, 1e4)
    assert 1 > month["lake"] > month["on_demand"]
    assert trifle["choice"] == "lake" and "for less than a dollar" in trifle["reason"]
    nothing = "core_usd_per_hour = 0\nlake_request_usd_per_million = 0\n"
    Path("p.toml").write_text(f"[regions.us-east-1]\n{nothing}")
    free = at(1000, prices_file="p.toml")
    assert free["break_even_batches_per_day"] is None and "up to any number of batches" in free["reason"]


def test_a_plan_warns_of_the_next_batch_and_of_quotas():
    notes = plan_workload(events_per_day=1e10, batches_per_day=288, duplicate_share=0.02).numbers["notes"]
    assert "a batch comes every 5 min, and takes longer with lake manifest, DynamoDB on demand" in notes[0]
    assert "40 000 write and 40 000 read units a second" in notes[1]


@pytest.mark.parametrize(
    "often, side_by_side, words",
    [
        (24, False, "lake: than the 60 min between two; DynamoDB provisioned would be in time."),
        (24, True, "provisioned: "),
        (288, True, "provisioned: than the 5 min between two, and no other way is in time."),
        (1, False, "lake: "),
    ],
)
def test_a_recommended_way_that_is_too_late_is_told_with_one_that_is_not(often, side_by_side, words):
    found = _plan(1e9, often, side_by_side=side_by_side)["recommendation"]
    choice, late = words.split(": ")
    assert found["choice"] == choice
    assert found["reason"].endswith(late) and ("But a batch takes longer" in found["reason"]) == bool(late)


# inputs
def test_rows_come_from_sizes_and_the_rhythm_from_names():
    n = plan_input(Input(str(SAMPLES))).numbers  # three days of 4 000 lines
    assert n["batch"]["rows"] == 4000 and n["workload"]["batches_per_day"] == 1
    assert n["estimated"] == ["12 000 rows in 3 batches, counted in 3 files"]
    assert "2 % are known" in n["notes"][0] and "beside the batch folders" in n["notes"][1]
    Path("in").mkdir()
    Path("in/a.json").write_text("x\n" * 9 + "x")
    Path("in/b.json.gz").write_bytes(gzip.compress(b"{}\n" * 10))
    found = plan_input(Input("in", "json"), batches_per_day="24", duplicate_share=0).numbers
    assert found["batch"]["rows"] == 20 and found["estimated"] == ["20 rows in 1 batch, counted in 2 files"]
    assert found["workload"]["events_per_day"] == 480 and found["notes"] == []


@pytest.mark.parametrize(
    "text, more, rows",
    [
        ('id,page\n1,"two\nlines"\n2,a\n\n', {}, 2),  # a blank line is none
        ('\ufeffid;page\r\n1;"a\r\n;b"\r\n2;a', {"delimiter": ";"}, 2),
        ('1,"two\nlines"\n2,a\n', {"schema": "id string, page string"}, 2),  # no header
        ("id,page\n1,b\n2,a\n", {"schema": "ID int"}, 2),
        ('id,page\n1,"open\n2,a\n', {}, 2),
    ],
)
def test_of_csv_records_count_and_not_lines(text, more, rows):
    Path("in").mkdir()
    for name in "ab":
        Path(f"in/{name}.csv").write_text(text, newline="")
    found = plan_input(Input("in", "csv", **more)).numbers
    assert found["estimated"] == [f"{2 * rows} rows in 1 batch, counted in 2 files"]


def test_a_large_file_of_csv_is_scaled_up_by_its_records(monkeypatch):
    monkeypatch.setattr("dedup_nb.costs.plan._SAMPLE", 1000)
    Path("in").mkdir()
    Path("in/a.csv").write_text("id,page\n" + '12345,"a\nb"\n' * 1000)
    found = plan_input(Input("in", "csv")).numbers
    assert found["batch"]["rows"] == pytest.approx(1000, rel=0.02)
    Path("in/a.csv").write_text("id,page\n")
    with pytest.raises(InputError, match="in has no rows"):
        plan_input(Input("in", "csv"))


def test_parquet_rows_come_from_a_few_footers():
    folders = [Path(f"in/run=2026-11-20_{hour:02}") for hour in range(0, 24, 2)]
    for folder in folders:
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"event_id": ["a"] * 1000}), folder / "a.parquet")
    whole = (folders[0] / "a.parquet").read_bytes()
    (folders[1] / "a.parquet").write_bytes(whole[::-1])  # which is not looked at
    n = plan_input(Input("in", "parquet")).numbers
    assert (n["workload"]["events_per_day"], n["workload"]["batches_per_day"]) == (12_000, 12)
    assert n["estimated"] == ["12 000 rows in 12 batches, by the footers of 5 of 12 Parquet files"]
    (folders[0] / "a.parquet").write_text("words")
    with pytest.raises(InputError, match="a.parquet is not readable as parquet.*--input-format"):
        plan_input(Input("in", "parquet"))


def test_a_batch_a_week_and_a_batch_without_a_time():
    for name, rows in (("week/run=2026-01-01", 3), ("week/run=2026-01-08", 4), ("in/run=first", 10)):
        Path(name).mkdir(parents=True)
        Path(f"{name}/a.gz").write_bytes(gzip.compress(b"x\n" * rows))
    plan = plan_input(Input("week"))
    week = plan.numbers["workload"]
    assert week["batches_per_day"] == pytest.approx(1 / 7) and week["events_per_day"] == 1
    assert "Plan for 1 row a day in 0.143 batches of 7;" in str(plan)
    assert "one batch a day, as nothing says otherwise" in plan_input(Input("in")).numbers["notes"][1]


# all others give the rhythm, see `files.spelled_time`
@pytest.mark.parametrize(
    "names, per_day",
    [
        (("20261120T130000Z", "20261120T190000Z"), 4),
        (("2026-11-20_13", "2026-11-20_19"), 4),
        (("20261120", "20261121"), 1),
        (("20261120123", "20261120124"), None),
        (("19000101", "19000103"), None),
        (("2026-1120", "2026-1122"), None),
    ],
)
def test_names_that_spell_times_tell_the_rhythm(names, per_day):
    for name in names:
        Path(f"in/run={name}").mkdir(parents=True)
        Path(f"in/run={name}/a.gz").write_bytes(gzip.compress(b"x\n" * 10))
    n = plan_input(Input("in")).numbers
    assert n["workload"]["batches_per_day"] == (per_day or 1)
    assert any("one batch a day, as nothing says" in note for note in n["notes"]) == (per_day is None)


def test_a_plan_of_one_batch():
    for name, rows in (("1", 10), ("2", 100)):
        Path(f"in/run={name}").mkdir(parents=True)
        Path(f"in/run={name}/a.gz").write_bytes(gzip.compress(b"x\n" * rows))
    one, both = (plan_input(Input("in"), batch_id=b).numbers["batch"]["rows"] for b in ("2", None))
    assert one > 1.5 * both
    with pytest.raises(InputError, match="Wanted batch 3; in has 1, 2"):
        plan_input(Input("in"), batch_id="3")


def test_a_file_without_an_end_of_a_line_is_said():
    Path("in").mkdir()
    Path("in/a.json").write_bytes(b"[" + b'{"event_id": 1},' * 600_000)
    with pytest.raises(
        InputError, match="No line ends in the first .* MB of 1 file.*wanted one event a line"
    ):
        plan_input(Input("in", "json"))


def test_a_profile_tells_rows_and_share():
    counts = {"events": 40_000, "ids": 39_000, "batches": 2, "natural_excess": 800, "synthetic_excess": 200}
    Path("profile.json").write_text(json.dumps(counts))
    n = plan_input(Input(""), profile="profile.json", batches_per_day=24).numbers
    assert n["workload"] | {"retention_days": 0} == {
        "events_per_day": 480_000,
        "duplicate_share": 0.02,  # of copies: another event under a taken id is a new pair
        "batches_per_day": 24,
        "retention_days": 0,
    }
    assert n["estimated"] == ["40 000 events in 2 batches, counted by profile.json"] and n["notes"] == []
    both = plan_input(Input(str(SAMPLES)), profile="profile.json", duplicate_share=0.5).numbers["workload"]
    assert (both["events_per_day"], both["duplicate_share"], both["batches_per_day"]) == (20_000, 0.5, 1)
    Path("other.json").write_text("[]")
    for name in ("other.json", "absent.json"):
        with pytest.raises(ConfigError, match=f"{name} is no profile .* dedup profile writes"):
            plan_input(Input(""), profile=name)


def test_an_input_that_cannot_be_planned_says_why():
    Path("t/_delta_log").mkdir(parents=True)
    for form in ("delta", "auto"):
        with pytest.raises(ConfigError, match="input_format is delta. Give numbers .*, or the profile.json"):
            plan_input(Input("t", form))
    with pytest.raises(InputError, match="Wanted the input nowhere"):
        plan_input(Input("nowhere"))
    Path("empty/run=1").mkdir(parents=True)
    Path("empty/run=1/part-0").write_text("")
    for form in ("enriched_tsv", "parquet"):
        with pytest.raises(InputError, match="empty has no rows"):
            plan_input(Input("empty", form))
    with pytest.raises(ConfigError, match="--batches-per-day often: wanted"):
        plan_input(Input("nowhere"), batches_per_day="often")  # told before anything is listed


def test_a_plan_needs_no_spark():
    heavy = "('pyspark', 'matplotlib', 'pandas', 'boto3')"
    code = f"import sys, dedup_nb.costs.plan; print([m for m in {heavy} if m in sys.modules])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"

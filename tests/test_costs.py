"""Capacity, time and money: the arithmetic, the simulator, the plan. No Spark."""
import csv, gzip, json, math, os
from datetime import datetime, timezone
from pathlib import Path
import pyarrow as pa, pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st
from conftest import ROOT
from dedup_nb.cli import main
from dedup_nb.config import Config, ConfigError, DedupError, InputError, MissingColumnError
from dedup_nb.costs import (MONTH_DAYS, Capacity, Load, Prices, Terms, Units, Workload, backfill_usd, batches_chart, break_even_batches, calibrate, capacity_chart, capacity_usd, caught,
                            check_dollars, claim_requests, claim_units, costs_by, crossing, dynamodb_choices, forecast_month, forecast_of, hours_to_write, item_bytes, lake_core_hours, lake_open_usd, lake_scan_usd,
                            lake_storage_usd, load_prices, minutes_by_wcu, number_bytes, past_runs, provisioned_pays, read_first_pays, remembered, request_usd, retention_chart, review, review_page,
                            waiting_usd, simulate, storage_usd, stored_gb, utilisation_chart, volume_chart, wcu_needed, window_hours, window_units)
from dedup_nb.dynamodb import new_terms, region_of
from dedup_nb.pipeline import _forecast, run
from dedup_nb.plan import estimate_input, lake_ends, plan_input, plan_workload, recommend
from dedup_nb.read import Batch, InputFile, find_batches

P = load_prices()
SAMPLES = ROOT / "data_samples"

# Published figures for 180 days and 2 % known keys in us-east-1: keys, stored GB, storage Standard / IA, requests, on demand Standard / IA, WCU all day / 1 h,
# capacity at 100 % / 70 %, 1 h peak held all day, window of 1 / 2 hours, window total Standard / IA, lake at 1 / 24 / 288 batches, scan core-hours, break-even with on demand
TABLE = {
    10e6: (1.8e9, 349, 81, 35, 191, 272, 273, 116, 2_778, 55, 79, 1_318, 55, 110, 136, 103, 2, 18, 206, 0.4, 381),
    100e6: (18e9, 3_487, 865, 349, 1_909, 2_774, 2_731, 1_158, 27_778, 549, 785, 13_181, 549, 1_098, 1_415, 1_033, 21, 185, 2_060, 3.6, 388),
    1e9: (180e9, 34_869, 8_711, 3_487, 19_086, 27_797, 27_306, 11_575, 277_778, 5_492, 7_846, 131_806, 5_492, 10_984, 14_203, 10_331, 212, 1_846, 20_603, 36, 389),
    10e9: (1.8e12, 348_687, 87_166, 34_869, 190_865, 278_030, 273_062, 115_741, 2_777_778, 54_919, 78_456, 1_318_056, 54_919, 109_838, 142_085, 103_306, 2_118, 18_460, 206_034, 365, 389),
}


@pytest.mark.parametrize("events", TABLE, ids=lambda n: f"{n:,.0f}")
def test_the_published_table(events):
    m, lake = forecast_month(Workload(events), P), lambda b: forecast_month(Workload(events, batches_per_day=b), P).total_usd["lake"]
    capacity = [capacity_usd(m.all_day_wcu, 730, P), capacity_usd(wcu_needed(events, 86_400, utilisation=0.7), 730, P), capacity_usd(m.window_wcu, 730, P),
                capacity_usd(m.window_wcu, MONTH_DAYS, P), capacity_usd(m.window_wcu, 2 * MONTH_DAYS, P)]
    t = m.total_usd
    got = [m.workload.keys, m.stored_gb, m.storage_usd["standard"], m.storage_usd["ia"], m.request_usd["standard"], t["standard_on_demand"], t["ia_on_demand"], m.all_day_wcu, m.window_wcu,
           *capacity, t["standard_window"], t["ia_window"], lake(1), lake(24), lake(288)]
    assert tuple(round(x) for x in got) == tuple(round(x) for x in TABLE[events][:-2])
    scan, even = TABLE[events][-2:]
    assert f"{m.lake_core_hours:.1f}" == "0.4" if events == 10e6 else abs(m.lake_core_hours - scan) <= max(0.05, 0.5 * (scan > 10)) + 1e-9
    assert round(break_even_batches(m, "standard_on_demand")) == even


def test_hours_to_write_in_the_published_table():
    assert [[round(hours_to_write(n, wcu), digits) for wcu, digits in ((100, 1), (4000, 1), (40_000, 2))] for n in (10e6, 100e6)] == [[27.8, 0.7, 0.07], [277.8, 6.9, 0.69]]
    assert [round(hours_to_write(1e9, wcu)) for wcu in (100, 4000, 40_000)] == [2778, 69, 7] and [round(hours_to_write(10e9, wcu)) for wcu in (100, 4000, 40_000)] == [27_778, 694, 69]


def test_an_item_counts_names_and_values():
    # eventId 7 + 36, fingerprint 11 + 32, etlTime 7 + 6, ttl 3 + 6: a 10-digit number is 1 + 5 bytes
    assert item_bytes() == 7 + 36 + 11 + 32 + 7 + 6 + 3 + 6 == 108
    assert item_bytes(fingerprint_chars=36) == 112 and item_bytes(run_chars=16) == 108 + 3 + 16
    assert [number_bytes(n) for n in (7, 12, 123, 1_700_000_000, 1_795_651_201, -123)] == [2, 2, 3, 2, 6, 4]
    # 1.8 B * (108 + 100) / 2^30 = 348.687 GB; (348.687 - 25) * 0.25 = 80.92
    assert round(stored_gb(1.8e9), 3) == 348.687 and round(storage_usd(stored_gb(1.8e9), P), 2) == 80.92 and storage_usd(25, P) == 0 and storage_usd(25, P, "ia") == 2.5


@pytest.mark.parametrize("strategy, share, write, read, dollars", [
    ("insert_first", 0.02, 1e6, 20_000, 0.6275),       # 0.625 + 0.125 * 0.02
    ("insert_first", 1, 1e6, 1e6, 0.75),               # 0.625 + 0.125
    ("read_first", 0.02, 980_000, 1e6, 0.7375),        # 0.625 * 0.98 + 0.125
    ("read_first", 1, 0, 1e6, 0.125),
    ("read_first_stale", 1, 0, 500_000, 0.0625),
    ("put_item", 1, 1e6, 0, 0.625),
])
def test_units_of_a_million_claims(strategy, share, write, read, dollars):
    units = claim_units(1e6, share, strategy)
    assert units == Units(pytest.approx(write), pytest.approx(read)) and request_usd(units, P) == pytest.approx(dollars)


def test_large_items_take_more_units():
    # 1,025 B: 2 write units, 1 read unit; 4,097 B: 5 and 2
    assert claim_units(10, 0.5, item_bytes=1025) == Units(20, 5) and claim_units(10, 0.5, item_bytes=4097) == Units(50, 10)


def test_where_strategies_and_modes_change_places():
    # 0.625 + 0.125 d = 0.125 + 0.625 (1 - d)  =>  d = 0.125 / 0.75;  with half a unit d = 0.0625 / 0.75
    assert read_first_pays(P) == pytest.approx(1 / 6) and read_first_pays(P, strong=False) == pytest.approx(1 / 12)
    for share, strong, name in ((1 / 6, True, "read_first"), (1 / 12, False, "read_first_stale")):
        assert request_usd(claim_units(1e6, share), P) == pytest.approx(request_usd(claim_units(1e6, share, name), P))
    # 0.00065 / (0.0036 * 0.625) = 28.9 %; 1 year (150 / 8760 + 0.0128) / 100 = 0.0002992 per hour; 3 years (180 / 26280 + 0.0081) / 100 = 0.0001495
    assert [round(100 * provisioned_pays(P, y), 1) for y in (0, 1, 3)] == [28.9, 13.3, 6.6]


def test_capacity_and_backfill_by_hand():
    assert capacity_usd(100, 730, P) == pytest.approx(47.45) and capacity_usd(100, 730, P, rcu=20) == pytest.approx(47.45 + 1.898)
    assert round(capacity_usd(27_778, 24, P), 2) == 433.34          # forgotten for a day: 27,778 * 0.00065 * 24
    assert backfill_usd(1.8e9, P) == 1125 and round(backfill_usd(1.8e9, P, "import"), 2) == 44.0   # 1.8e9 * 175 / 2^30 * 0.15


def test_a_scan_of_the_lake_by_hand():
    # 1.8e9 * 34 B = 61.2e9 B: / 50e6 = 1224 s, + 1.8e9 * 50e-9 = 90 s; 61.2e9 / 2^24 = 3647.8 requests at 0.40 a million
    assert lake_core_hours(1.8e9, P) == pytest.approx(1314 / 3600) and lake_scan_usd(1.8e9, P) == pytest.approx(0.365 * 0.06 + 61.2e9 / 2**24 * 0.4e-6)
    assert lake_storage_usd(1.8e9, P) == pytest.approx(61.2 * 0.023)


def test_requests_are_counted_task_by_task():
    assert claim_requests([(26, 0, 0), (25, 1, 0), (0, 0, 0)]) == {"insert": 3, "get": 1, "takeover": 0, "write_units": 51, "read_units": 1}
    assert claim_requests([(2000, 101, 26)]) == {"insert": 80, "get": 2, "takeover": 2, "write_units": 2026, "read_units": 101}


# laws
events, share, days, batches = st.floats(1e3, 1e11), st.floats(0, 1), st.integers(1, 1000), st.integers(1, 300)


@given(events, st.floats(1, 100), share, days, batches)
def test_more_events_never_cost_less(n, more, d, r, b):
    less, most = (forecast_month(Workload(x, d, r, b), P).total_usd for x in (n, n * more))
    assert all(most[c] >= less[c] * (1 - 1e-12) for c in less)


@given(events, share, days, st.integers(1, 1000), batches)
def test_a_longer_retention_never_stores_or_costs_less(n, d, r, more, b):
    short, long = (forecast_month(Workload(n, d, x, b), P) for x in (r, r + more))
    assert long.stored_gb > short.stored_gb and long.lake_core_hours > short.lake_core_hours and all(long.total_usd[c] >= short.total_usd[c] for c in short.total_usd)


@given(st.dictionaries(st.integers(0, 400), st.integers(0, 1000), max_size=20), st.integers(1, 400), st.integers(0, 400))
def test_a_longer_window_never_catches_less(gaps, r, more):
    assert 0 <= caught(gaps, r) <= caught(gaps, r + more) <= 1


@given(events, share, st.integers(1, 200), st.integers(1, 200))
def test_more_batches_never_make_the_lake_cheaper_nor_on_demand_dearer(n, d, b, more):
    few, many = (forecast_month(Workload(n, d, 180, x), P).total_usd for x in (b, b + more))
    assert many["lake"] > few["lake"] and many["standard_on_demand"] == few["standard_on_demand"]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 10**7), st.floats(1, 3), st.integers(1, 64), st.integers(1, 64), st.integers(50, 40_000))
def test_simulated_runs_conserve_claims_and_never_beat_the_formula(claims, more, tasks, slots, wcu):
    run = lambda n: simulate(Load(n, tasks=tasks, slots=slots, max_wcu=wcu, task_claims_per_s=1e9), Capacity.provisioned(wcu, P), P)
    s, larger = run(claims), run(claims * more)
    assert s.seconds >= claims / wcu - 1e-6 and s.refused == 0 and s.units.write == claims and s.attempts == claims
    assert larger.seconds >= s.seconds and larger.usd >= s.usd


# the simulator against closed formulas, which know no slow start
def test_constant_capacity_takes_claims_by_capacity():
    s = simulate(Load(7_200_000, tasks=8, slots=8, max_wcu=2000, start=1), Capacity.provisioned(2000, P), P)
    assert (s.seconds, s.refused, s.requests) == (3600, 0, 288_000) and s.usd == pytest.approx(1 * 2000 * 0.00065)
    assert simulate(Load(7_200_001, tasks=8, slots=8, max_wcu=2000, start=1), Capacity.provisioned(2000, P), P).usd == pytest.approx(2 * 2000 * 0.00065)   # a second more is an hour more


def test_a_slow_start_takes_some_seconds_which_a_window_leaves_over():
    # the rate is 25, 35, ... 95 % for 8 seconds: 0.75 + 0.65 + ... + 0.05 = 3.2 seconds' worth are missing
    assert simulate(Load(7_200_000, max_wcu=2000), Capacity.provisioned(2000, P), P).seconds == 3600 + 4
    w = Workload(100e6)
    assert window_hours(w, P) == 1 and window_units(w, 1, P) == (math.ceil(100e6 / (3600 - 60)), 0) == (28_249, 0)
    s = simulate(Load(100e6, max_wcu=28_249), Capacity.provisioned(28_249, P), P)
    assert s.seconds <= 3600 and s.usd == pytest.approx(28_249 * 0.00065)
    assert [window_hours(Workload(n), P) for n in (141.6e6, 141.7e6)] == [1, 2]   # 40,000 * 3,540 = 141.6 M


def test_saved_units_are_a_burst_up_to_what_the_partitions_grant():
    # 100 WCU idle for 300 s save 30,000; one partition grants 1,000 a second, so 30,000 claims take 30 s and not 300
    assert simulate(Load(30_000, max_wcu=1000, start=1), Capacity.provisioned(100, P, idle_s=300), P).seconds == 30
    assert simulate(Load(30_000, max_wcu=100, start=1), Capacity.provisioned(100, P), P).seconds == 300
    long = simulate(Load(1_000_000, max_wcu=1000, start=1), Capacity.provisioned(100, P, idle_s=900), P)   # 300 s at most are saved, and all used in the end
    assert (1_000_000 - 30_000) / 100 == pytest.approx(long.seconds, rel=0.01) and long.refused > 0


def test_on_demand_starts_at_4000_and_doubles_every_half_hour_up_to_the_quota():
    s = simulate(Load(200e6, tasks=64, slots=64, max_wcu=40_000, start=1), Capacity.on_demand(P), P)
    limits = dict.fromkeys(round(limit) for *_, limit in s.trace)
    assert list(limits) == [4000, 8000, 16_000, 32_000, 40_000] and s.peak_wcu == pytest.approx(40_000)
    assert s.usd == pytest.approx(200 * 0.625)
    calm = simulate(Load(7_200_000, max_wcu=4000, start=1), Capacity.on_demand(P), P)
    assert (calm.seconds, calm.refused) == (1800, 0)
    assert Capacity.on_demand(P, previous_peak=9000).wcu == 18_000 and Capacity.on_demand(P, previous_peak=90_000).wcu == 40_000


def test_one_id_gets_one_partition():
    # 600,000 pairs on one id at 1,000 a second: 10 minutes whatever the table grants
    alone = simulate(Load(600_000, hot=(600_000,), tasks=8, slots=8, max_wcu=8000, task_claims_per_s=1000, start=1), Capacity.on_demand(P, previous_peak=20_000), P)
    assert alone.seconds == 600 and alone.refused == 0
    pushed = simulate(Load(600_000, hot=(600_000,), max_wcu=8000, start=1), Capacity.on_demand(P, previous_peak=20_000), P)
    assert pushed.seconds >= 600 and pushed.refused > 0 and pushed.attempts == 600_000 + pushed.refused
    spread = simulate(Load(600_000, max_wcu=8000, start=1), Capacity.on_demand(P, previous_peak=20_000), P)
    assert spread.seconds == 75


def test_tasks_that_do_not_share_the_rate_are_refused():
    shared, own = (simulate(Load(1_200_000, tasks=4, slots=4, max_wcu=2000, shared=x, start=1), Capacity.provisioned(2000, P), P) for x in (True, False))
    assert shared.seconds == 600 and shared.refused == 0 and own.refused > 0 and own.seconds > 600


def test_tasks_run_in_waves_and_no_faster_than_their_cores():
    # 8 tasks of 10,000 claims on 2 cores of 1,000 a second each: 4 waves of 10 s
    assert simulate(Load(80_000, tasks=8, slots=2, max_wcu=40_000, task_claims_per_s=1000, start=1), Capacity.on_demand(P, previous_peak=20_000), P).seconds == 40


def test_reading_first_writes_only_what_is_missing():
    s = simulate(Load(1_000_000, duplicate_share=0.9, max_wcu=1000, start=1), Capacity.provisioned(1000, P), P, strategy="read_first")
    assert s.seconds == 100 and s.units == Units(pytest.approx(100_000), 1_000_000)


def test_hot_ids_come_from_the_distribution():
    load = Load.of({1: 1_000_000, 2: 500, 5000: 2, 90_000: 1}, max_wcu=500)
    assert load.claims == 1_000_000 + 1000 + 10_000 + 90_000 and load.hot == (90_000, 5000, 5000) and load.max_wcu == 500


def test_the_simulator_is_deterministic_and_fast_at_a_billion():
    run = lambda: simulate(Load(1e9, hot=(3e6, 2e6), duplicate_share=0.02, tasks=512, slots=64, max_wcu=40_000), Capacity.on_demand(P), P)
    assert run() == run()
    assert run().seconds > 1e9 / 40_000


# prices
def test_a_region_without_prices_names_the_nearest():
    with pytest.raises(ConfigError, match="No prices for region 'us-west-1'.*Did you mean us-west-2.*--prices FILE"): load_prices("us-west-1")


def test_a_missing_price_is_named_and_never_zero():
    Path("mine.toml").write_text("[regions.eu-west-1]\nstandard_write_usd_per_million = 0.7\n")
    mine = load_prices("eu-west-1", "mine.toml")
    assert mine["standard_write_usd_per_million"] == 0.7 and mine["table_wcu"] == 40_000
    with pytest.raises(ConfigError, match="eu-west-1 has no standard_read_usd_per_million"): mine["standard_read_usd_per_million"]
    with pytest.raises(ConfigError, match="ia_storage_usd_per_gb.*standard_free_gb.*Add them"): plan_workload(events_per_day=1e6, region="eu-west-1", prices_file="mine.toml")
    with pytest.raises(ConfigError, match="standard_storage_usd_per_gb"): storage_usd(100, Prices("x", "-", "-", {"standard_free_gb": 25}))


def test_a_file_replaces_single_values_and_quotas():
    Path("mine.toml").write_text('date = "2027-01-01"\n[quotas]\ntable_wcu = 300_000\n[regions.us-east-1]\nia_wcu_usd_per_hour = 0.001\n')
    mine = load_prices(file="mine.toml")
    assert (mine.date, mine["ia_wcu_usd_per_hour"], mine["standard_wcu_usd_per_hour"], mine["table_wcu"]) == ("2027-01-01", 0.001, 0.00065, 300_000)
    assert "ia_wcu_usd_per_hour" not in mine.unverified and "ia_storage_usd_per_gb" in mine.unverified and "mine.toml" in mine.source
    assert window_hours(Workload(1e9), P) == 7 and window_hours(Workload(1e9), mine) == 1


@pytest.mark.parametrize("text, words", [
    ("[regions.us-east-1]\nia_wcu_usd_per_hou = 1", "Did you mean ia_wcu_usd_per_hour"),
    ("[regions.us-east-1]\nia_wcu_usd_per_hour = -1", "wanted a number from 0 up"),
    ("[regions.us-east-1]\nia_wcu_usd_per_hour = '1'", "wanted a number from 0 up"),
    ("[region.us-east-1]\nia_wcu_usd_per_hour = 1", "Did you mean regions"),
    ("[regions", "is not TOML"),
])
def test_a_wrong_price_file_is_refused(text, words):
    Path("mine.toml").write_text(text)
    with pytest.raises(ConfigError, match=words): load_prices(file="mine.toml")
    with pytest.raises(ConfigError, match="absent.toml cannot be read"): load_prices(file="absent.toml")


def test_every_price_has_a_region_a_date_and_a_source():
    for region in ("us-east-1", "us-east-2", "us-west-2"):
        p = load_prices(region)
        assert p.date == "2026-11-20" and p.source and all(v > 0 for v in p.values.values()) and set(p.values) == set(P.values)
    assert "ia_storage_usd_per_gb" in P.unverified and "standard_write_usd_per_million" not in P.unverified and "standard_write_usd_per_million" in load_prices("us-west-2").unverified


# bad input
@pytest.mark.parametrize("numbers, words", [
    (dict(events_per_day=-1), "events_per_day = -1"), (dict(events_per_day=0), "from 1 to"), (dict(events_per_day=1e20), "from 1 to 10 000 000 000 000"), (dict(events_per_day=math.nan), "nan"),
    (dict(events_per_day="many"), "'many'"), (dict(events_per_day=True), "True"), (dict(events_per_day=1e6, duplicate_share=1.5), "Write 2 % as 0.02"),
    (dict(events_per_day=1e6, retention_days=0), "retention_days = 0"), (dict(events_per_day=1e6, batches_per_day=1e9), "batches_per_day"),
    (dict(events_per_day=10, batches_per_day=100), "more than events_per_day"), (dict(events_per_day=1e6, cores=0), "cores = 0"),
])
def test_absurd_numbers_are_refused(numbers, words):
    with pytest.raises(ConfigError, match=words): plan_workload(**numbers)


def test_a_window_may_not_be_longer_than_its_share_of_the_day():
    # 48 batches a day leave half an hour each: 1 B / 48 / 1800 s = 11,575 WCU, all day
    m = forecast_month(Workload(1e9, batches_per_day=48), P)
    assert (m.window_hours, m.window_wcu) == (0.5, 11_575) and m.total_usd["standard_window"] == pytest.approx(m.storage_usd["standard"] + 11_575 * 0.00065 * 730)


def test_all_mistakes_come_together():
    with pytest.raises(ConfigError) as wrong: Workload(-1, duplicate_share=2, retention_days=0)
    assert all(name in str(wrong.value) for name in ("events_per_day", "duplicate_share", "retention_days"))


def test_wrong_loads_and_capacities_are_refused():
    with pytest.raises(ConfigError, match="claims = 0"): Load(0)
    with pytest.raises(ConfigError, match="hot ids have 20 pairs"): Load(10, hot=(20,))
    with pytest.raises(ConfigError, match="quota of a table, 40000"): Capacity.provisioned(50_000, P)
    with pytest.raises(ConfigError, match="Did you mean insert_first"): claim_units(1, 0, "insert_frist")


# the recommendation
def test_the_lake_wins_up_to_the_batches_that_are_named():
    ends = lake_ends(Workload(10e6), P)
    # all day in Standard-IA: ceil(116 events a second / 0.7) = 166 WCU * 0.00081 * 730 + 34.87 = 133.02. The lake, b batches a day: each scans for 0.02336 and opens
    # 180 b files for 0.012 s * 0.06 an hour + 2 * 0.4e-6 = 1e-6 each. A core waits for 166 WCU for 60,241 s a day: 30.54 a month.
    # (133.02 + 30.54 - 1.4076) / 30.417 = 5.331 = 0.02336 b + 1.8e-4 b^2 where b = 119.03
    assert ends == 120
    below, above = (recommend(Workload(10e6, batches_per_day=b), P) for b in (119, 120))
    assert (below["back_end"], above["back_end"], above["choice"], above["wcu"]) == ("lake", "dynamodb", "ia_all_day", 166)
    assert "From 120 batches a day" in below["changes_when"] and "Below 120 batches a day" in above["changes_when"]


def test_quotas_decide_what_dynamodb_can_do():
    assert next(iter(dynamodb_choices(Workload(10e6), P))) == "ia_window" and window_hours(Workload(1e9), P) == 7 and window_hours(Workload(1e9, batches_per_day=25), P) is None
    assert window_hours(Workload(1e9, batches_per_day=4), P) == 2   # 250 M in 1 h are 69,445 WCU, in 2 h 34,723
    assert not [c for c in dynamodb_choices(Workload(1e9, batches_per_day=25), P) if "window" in c] and dynamodb_choices(Workload(10e9), P) == {}
    assert "above the quota" in recommend(Workload(10e9), P)["reason"] and "higher quota" in recommend(Workload(10e9), P)["changes_when"]


# the plan
def test_a_plan_from_numbers_holds_the_totals_for_programs():
    n = json.loads(json.dumps(plan_workload(events_per_day=10e6, duplicate_share=0.02, retention_days=180, batches_per_day=1).numbers))
    # 190.864 + 80.922;  2,778 * 0.00065 * 30.41667 + 80.922;  1.4076 + 0.02336 * 30.41667
    assert {c: n["per_month"][c] for c in ("standard_on_demand", "standard_window", "lake")} == {"standard_on_demand": 271.79, "standard_window": 135.85, "lake": 2.12}
    assert n["batch"]["claim_seconds"]["on_demand"] == 2500 + 4 and n["batch"]["window_wcu"] == 2825 and n["batch"]["claim_seconds"]["window"] <= 3600 and n["backfill"]["usd"] == {"writes": 1125.0, "import": 44.0}
    assert n["recommendation"]["back_end"] == "lake" and "ia_wcu_usd_per_hour" in n["prices"]["unverified"]


def test_the_page_says_what_matters():
    page = str(plan_workload(events_per_day=1e9, batches_per_day=1))
    for words in ("1 000 000 000 rows", "$27 797.39", "277 778 WCU (above the quota of 40 000 WCU)", "window of 7 h with 39 778 WCU", "Recommended: lake manifest", "DynamoDB, 7 h a batch       $14 202.89", "* not verified", "us-east-1"):
        assert words in page, words


def test_the_plan_of_the_samples_counts_what_the_truth_says():
    rows = list(csv.DictReader((SAMPLES / "truth.csv").open()))
    fates = lambda fate, reason: sum(r["fate_known"] == fate and r["reason_known"] == reason for r in rows)
    found = estimate_input(Config(input=str(SAMPLES)))
    assert found.whole and (found.rows, found.bad, found.batches, found.batches_per_day) == (12_000, fates("bad", ""), 3, 1)
    assert found.kinds == {"natural": fates("dropped", "natural"), "natural_cross_batch": fates("dropped", "natural_cross_batch"),
                           "synthetic": fates("renamed", "synthetic"), "synthetic_cross_batch": fates("renamed", "synthetic_cross_batch")}
    alone = sum(r["fate_alone"] == "dropped" for r in rows)
    assert found.claims == 12_000 - found.bad - alone   # one claim for each pair of each batch
    plan = plan_input(Config(input=str(SAMPLES)), cores=2).numbers
    assert plan["batch"]["cores"] == 1 and plan["batch"]["batches"] == 3 and plan["batch"]["rows_per_day"] == 4000 and plan["workload"]["events_per_day"] == found.claims / 3 and "whole input" in plan["estimated"][0]


def test_a_sample_is_said_to_be_one():
    found = estimate_input(Config(input=str(SAMPLES)), sample_rows=6000)
    assert not found.whole and 10_500 < found.rows < 13_500 and "at least" in found.how[0] and "bytes a row" in found.how[0]


def test_a_plan_says_which_batches_are_there_already():
    first, record = sorted(b.batch_id for b in find_batches(Config(input=str(SAMPLES))))[0], {"counts": {"read": 4000}, "seconds": {"total": 9}}
    Path(f"out/runs/{first}").mkdir(parents=True); Path(f"out/runs/{first}/metrics.json").write_text(json.dumps({"batch_id": first, **record}))
    assert "already in out: 1 of the 3 batches" in str(plan_input(Config(input=str(SAMPLES), output="out")))


def test_parquet_rows_come_from_footers():
    Path("events/run=2026-01-01-00").mkdir(parents=True); Path("events/run=2026-01-01-06").mkdir()
    ids = [f"id{n}" for n in range(1000)]
    pq.write_table(pa.table({"event_id": ids + ids[:10] + ["id1"], "event_fingerprint": ["a"] * 1010 + ["b"], "wide": ["x" * 50] * 1011}), "events/run=2026-01-01-00/a.parquet")
    pq.write_table(pa.table({"event_id": ids[:5] + ["new", None], "event_fingerprint": ["a"] * 7, "wide": ["x"] * 7}), "events/run=2026-01-01-06/a.parquet")
    config = Config(input="events", input_format="parquet", output="out")
    found = estimate_input(config)
    assert (found.rows, found.bad, found.batches_per_day) == (1018, 1, 4) and found.kinds == {"natural": 10, "synthetic": 1, "natural_cross_batch": 5, "synthetic_cross_batch": 0}
    sampled = estimate_input(config, sample_rows=100)
    assert sampled.rows == 1018 and not sampled.whole and "footers of 2 Parquet files" in sampled.how[0]
    with pytest.raises(MissingColumnError, match="Did you mean event_id"): estimate_input(Config(input="events", input_format="parquet", event_id="event_idd"))


def test_json_lines_are_read():
    Path("events").mkdir()
    events = [{"event_id": "a", "event_fingerprint": "f", "n": 1}] * 2 + [{"event_id": "a", "event_fingerprint": "g", "n": 2}, {"n": 3}]
    with gzip.open("events/part.json.gz", "wt") as out: out.write("\n".join(map(json.dumps, events)) + "\nnot json\n")
    found = estimate_input(Config(input="events", input_format="json"))
    assert (found.rows, found.bad, found.claims, found.batches_per_day) == (5, 2, 2, None) and found.kinds["natural"] == 1 and found.kinds["synthetic"] == 1
    plan = plan_input(Config(input="events", input_format="json"), batches_per_day="24")
    assert plan.numbers["workload"]["batches_per_day"] == 24 and "2 % known keys are assumed" in str(plan)


def test_many_small_packed_files_are_not_taken_for_long_rows():
    "What is read ahead of a packed file is not the length of its first rows."
    lines = gzip.open(next((SAMPLES / "run=2026-11-18-00-00-00").glob("*.gz"))).read().splitlines(keepends=True)
    for b in range(3):
        Path(f"many/run={b}").mkdir(parents=True)
        for n in range(60): Path(f"many/run={b}/{n:02}.gz").write_bytes(gzip.compress(b"".join(lines[n * 50:n * 50 + 400])))
    found = estimate_input(Config(input="many"), sample_rows=15_000)
    assert not found.whole and found.rows == pytest.approx(3 * sum(len(lines[n * 50:n * 50 + 400]) for n in range(60)), rel=0.1)


def test_a_plan_asks_for_no_more_than_max_wcu():
    slow, fast = (plan_input(Config(input=str(SAMPLES), max_wcu=wcu)).numbers["batch"]["claim_seconds"]["on_demand"] for wcu in (1, None))
    assert slow > 3600 and fast < 10


def test_a_little_a_week_can_be_planned():
    for day in ("2026-01-01", "2026-01-08"):
        Path(f"week/run={day}").mkdir(parents=True)
        Path(f"week/run={day}/a.json").write_text("\n".join(json.dumps({"event_id": f"{day}-{n}"}) for n in range(5)))
    assert plan_input(Config(input="week", input_format="json")).numbers["workload"]["events_per_day"] == 1


def test_a_trillion_events_a_day_are_planned_at_once():
    assert plan_workload(events_per_day=1e12).numbers["recommendation"]["back_end"] == "lake"


def test_reading_takes_time_too():
    s = simulate(Load(1e9, duplicate_share=1.0), Capacity.on_demand(P), P, strategy="read_first")
    assert s.units == Units(0, 1e9) and s.seconds == 3600 + math.ceil((1e9 - 1800 * 36_000) / 40_000) and s.requests == 1e7   # 12,000 a second, then 24,000, then the quota


def test_a_price_file_names_what_would_divide_by_nothing():
    Path("p.toml").write_text("[quotas]\ntable_wcu = 0\n[rates]\nunverified = 3\n")
    with pytest.raises(ConfigError, match=r"(?s)table_wcu = 0: wanted a number above 0.*unverified = 3: wanted a list"): load_prices(file="p.toml")
    Path("free.toml").write_text("[regions.us-east-1]\ncore_usd_per_hour = 0\nlake_request_usd_per_million = 0\n")
    free = load_prices(file="free.toml")
    assert break_even_batches(forecast_month(Workload(10e6), free), "standard_on_demand") == math.inf
    plan = plan_workload(events_per_day=10e6, prices_file="free.toml")
    assert "It would change: By no number of batches; and where two batches" in str(plan) and json.dumps(plan.numbers, allow_nan=False)
    Path("r.toml").write_text('[quotas]\nunverified = [["x"]]\n')
    with pytest.raises(ConfigError, match="wanted a list of names of quotas"): load_prices(file="r.toml")
    Path("own.toml").write_text('date = "2026-12-01"\n[regions.eu-west-1]\nsource = "our bill"\ncore_usd_per_hour = 0.1\n')
    assert (load_prices("eu-west-1", "own.toml").source, load_prices("eu-west-1", "own.toml").date, load_prices(None, "own.toml").source) == ("our bill", "2026-12-01", P.source)   # nothing of it counts there
    Path("bare.toml").write_text("[regions.eu-west-1]\ncore_usd_per_hour = 0.1\n")
    assert (load_prices("eu-west-1", "bare.toml").source, load_prices("eu-west-1", "bare.toml").date) == ("no source in bare.toml", "no date in bare.toml")


def test_a_price_that_is_not_verified_has_a_star_where_it_counts():
    stars = lambda **more: [line.split()[2:] for line in str(plan_workload(events_per_day=10e6, **more)).splitlines() if line.startswith("A month")]
    Path("checked.toml").write_text("[regions.us-east-1]\nstandard_free_gb = 25\n")   # the only one of Standard that nobody had verified
    assert stars() == stars(region="us-west-2") == [["Standard*", "Standard-IA*"]] and stars(prices_file="checked.toml") == [["Standard", "Standard-IA*"]]


def test_a_batch_of_known_keys_alone_can_be_planned():
    n = plan_workload(events_per_day=1e7, duplicate_share=1).numbers   # pairs are read first: no writes, 10 M reads
    assert (n["batch"]["write_units"], n["batch"]["window_wcu"], n["batch"]["window_rcu"]) == (0, 1, 2825) and n["batch"]["claim_seconds"]["window"] == math.ceil(1e7 / 2825)
    assert forecast_month(Workload(1, 0.95, batches_per_day=0.001), P).all_day_table_wcu == 1   # no table has less
    assert plan_workload(events_per_day=30, duplicate_share=0.999, batches_per_day=24).numbers["batch"]["window_wcu"] == 1
    assert plan_workload(events_per_day=5, batches_per_day=5).numbers["batch"]["rows"] == 1


def test_reads_have_a_quota_and_a_price_of_their_own():
    batch = plan_workload(events_per_day=1e8, duplicate_share=0.9).numbers["batch"]   # 100 M reads and 10 M writes, in 3,540 seconds
    assert (batch["window_wcu"], batch["window_rcu"], batch["window_paid_hours"]) == (2825, 28_249, 1) and batch["claim_seconds"]["window"] == 3540 + 4   # a slow start
    assert batch["usd"]["window"] == pytest.approx(2825 * 0.00065 + 28_249 * 0.00013, abs=0.01)
    assert window_hours(Workload(1e9, 0.9), P) == 7 and window_hours(Workload(1e9, 0.9, batches_per_day=4), P) == 2   # 1e9 / 40,000 = 25,000 s
    # 10 B reads a day are 115,741 a second, and 1 B writes 11,574; the quota is 40,000 of each
    assert dynamodb_choices(Workload(1e10, 0.9), P) == {} and recommend(Workload(1e10, 0.9, batches_per_day=1000), P)["choice"] == "lake"
    page = str(plan_workload(events_per_day=1e10, duplicate_share=0.9))
    assert page.count("(above the quota of 40 000 RCU)") == 2 and page.count("(above the quota of 40 000 WCU and 40 000 RCU)") == 1 and "DynamoDB needs 11 575 WCU and 115 741 RCU all day, above the quota of 40 000 WCU and 40 000 RCU" in page
    # on demand 12,000 reads a second double twice, in half hours: 21.6 M and 43.2 M, and the rest at the quota of 40,000
    slow = plan_workload(events_per_day=2e9, duplicate_share=0.9, batches_per_day=2, max_wcu=40_000)
    assert plan_workload(events_per_day=2e9, duplicate_share=0.9).numbers["batch"]["claim_seconds"]["on_demand"] == 3600 + math.ceil((2e9 - 64.8e6) / 40_000)
    assert "on demand at 12 000 read units a second (RCU), doubled every half hour; or" in str(slow) and "--max-wcu" not in str(slow)
    s = simulate(Load(1e6, duplicate_share=1), Capacity.provisioned(100, P, rcu=100), P, strategy="read_first")
    assert s.seconds == 10_000 and s.usd == pytest.approx(3 * (100 * 0.00065 + 100 * 0.00013))   # three hours are begun
    all_known = str(plan_workload(events_per_day=1e8, duplicate_share=1))
    assert "1 WCU and 27 778 RCU, or 1 WCU and 28 249 RCU with a minute to spare" in all_known and "1 WCU and 1 654 RCU, 70% used" in all_known
    assert "which their totals leave out" in str(plan_workload(events_per_day=1e9, batches_per_day=2)) and "which their totals leave out" not in str(plan_workload(events_per_day=1e9, batches_per_day=48))
    few = recommend(Workload(1e7, 0.9, batches_per_day=288), P)
    assert (few["choice"], few["wcu"], few["rcu"]) == ("ia_all_day", math.ceil(1e6 / 86_400 / 0.7), math.ceil(1e7 / 86_400 / 0.7))


def test_cores_that_wait_count_on_both_sides():
    w = Workload(100_000, retention_days=3650, batches_per_day=24)
    # 4,167 pairs take 1.04 s on demand, and at 2 WCU, of which a window of 3,540 s has to have so many, 2,083 s, 730 times a month
    waiting = waiting_usd(w, P)
    assert waiting == pytest.approx({"on_demand": 0.0127, "window": 25.35, "all_day": 25.35}, abs=0.005) and waiting_usd(w, P, cores=4)["window"] == pytest.approx(4 * 25.35, abs=0.02)
    best = recommend(w, P)
    assert best["choice"] == "ia_on_demand" and best["usd_per_month"] == pytest.approx(forecast_month(w, P).total_usd["ia_on_demand"] + 0.0127, abs=0.01)
    n = plan_workload(events_per_day=1e9, batches_per_day=288).numbers   # many cores for the lake's keys, few for the batch
    assert n["recommendation"]["choice"] == "ia_all_day" and n["batch"]["cores"] > 100 > 5 > n["batch"]["waiting_cores"]
    for more in (dict(cores=16, max_wcu=40_000), dict(cores=4, max_wcu=100), dict(cores=16, duplicate_share=1), dict(cores=1)):   # a month of batches, as simulated
        n = plan_workload(events_per_day=1e9, **more).numbers
        for mode in ("on_demand", "window"): assert n["waiting_usd"][mode] == pytest.approx(n["batch"]["waiting_usd"][mode] * MONTH_DAYS, rel=0.03), (more, mode)
    n = plan_workload(events_per_day=1e7, batches_per_day=288).numbers
    assert min(n["compared_usd"], key=n["compared_usd"].get) == n["recommendation"]["choice"] and n["compared_usd"]["lake"] == pytest.approx(n["per_month"]["lake"] + n["lake_open_usd"], abs=0.01)


def test_nobody_sets_up_a_table_for_less_than_a_dollar():
    page = str(plan_workload(events_per_day=1))
    assert "Recommended: lake manifest" in page and "Plan for 1 event a day" in page
    few = recommend(Workload(500, 0, batches_per_day=12), P)
    assert few["back_end"] == "lake" and "for less than a dollar no table is worth its set-up" in few["reason"] and "DynamoDB is worth it" in few["changes_when"]


def test_a_month_counts_pairs_as_a_batch_does():
    Path("in").mkdir()
    pq.write_table(pa.table({"event_id": ["a"] * 1000, "event_fingerprint": [f"p{n % 100}" for n in range(1000)]}), "in/a.parquet")   # 1,000 rows of 100 pairs
    n = plan_input(Config(input="in", input_format="parquet"), cores=1).numbers
    assert n["batch"]["rows_per_day"] == 1000 and n["batch"]["claims"] == n["workload"]["events_per_day"] == 100 and n["backfill"]["keys"] == 18_000


def test_parquet_without_fingerprints_is_planned_by_all_columns():
    Path("in").mkdir()
    pq.write_table(pa.table({"event_id": [0, 1, 2, 0, 1, 2], "n": [7, 8, 9, 7, 8, 6]}), "in/a.parquet")
    found = estimate_input(Config(input="in", input_format="parquet"))
    assert (found.claims, found.bad) == (4, 0) and (found.kinds["natural"], found.kinds["synthetic"]) == (2, 1)   # an id of 0 is an id
    pq.write_table(pa.table({"event_id": ["a", "a", "b", "b", None], "event_fingerprint": ["f", "f", None, "", "g"], "n": [1, 2, 3, 3, 4]}), "in/a.parquet")
    found = estimate_input(Config(input="in", input_format="parquet"))
    assert (found.claims, found.bad) == (2, 1) and (found.kinds["natural"], found.kinds["synthetic"]) == (2, 0)


def test_times_that_python_does_not_know_are_planned():
    Path("in").mkdir()
    late = pa.array([253_402_300_800_000, 253_402_300_800_000, 1], pa.timestamp("ms"))
    pq.write_table(pa.table({"event_id": ["a", "a", "a"], "t": late, "d": pa.array([10**7] * 3, pa.date32())}), "in/a.parquet")
    found = estimate_input(Config(input="in", input_format="parquet"))
    assert (found.claims, found.kinds["natural"], found.kinds["synthetic"]) == (2, 1, 1)


def test_the_wrong_format_makes_no_plan(capsys):
    with pytest.raises(InputError, match="None of the 12 000 rows of .* is an event of the form json that has event_id. Set the right --input-format"): plan_input(Config(input=str(SAMPLES), input_format="json"))
    assert main(["plan", "--review", "--output", "out", "--events-per-day", "4"]) == 2 and "A review looks at past runs alone" in capsys.readouterr().err


def test_settings_that_change_nothing_in_a_plan_are_named(capsys):
    assert main("plan --events-per-day 1e7 --manifest dynamodb --dynamodb-table t --dynamodb-strategy put_item --max-dollars 1".split()) == 0
    assert "it makes no use of manifest, dynamodb_strategy, max_dollars" in capsys.readouterr().out
    assert main("plan --events-per-day 1e7".split()) == 0 and "makes no use" not in capsys.readouterr().out


def test_advice_is_given_where_it_helps():
    fast, most = (str(plan_workload(events_per_day=n, cores=4, max_wcu=wcu)) for n, wcu in ((1e7, 20_000), (1e10, 40_000)))
    assert "on demand at 4 000 write units a second (WCU), doubled every half hour up to 20 000" in fast
    assert "on demand at 4 000 write units a second (WCU), doubled" in str(plan_workload(events_per_day=1e6, duplicate_share=0.2, cores=4, max_wcu=40_000))   # writes bind
    assert "too slow: the next batch comes after 24.0 h)" in most and "ask for more with --max-wcu)" in str(plan_workload(events_per_day=1e9))
    assert "to spare" not in str(plan_workload(events_per_day=4000))   # a small batch leaves most of the hour


def test_cores_that_wait_for_dynamodb_are_told():
    batch = plan_workload(events_per_day=1e9).numbers["batch"]
    assert batch["waiting_usd"]["on_demand"] == pytest.approx(250_004 * 56 / 3600 * 0.06, abs=0.01)
    given = plan_workload(events_per_day=1e9, cores=64).numbers["batch"]
    told = forecast_of(Config(input="x", manifest="dynamodb", dynamodb_table="t"), [], cores=64, rows=10**9, claims=10**9, known=2 * 10**7)
    assert told["usd"]["cores"] == pytest.approx(given["usd"]["cores"] + given["waiting_usd"]["on_demand"], rel=0.01)   # a run is stopped by the same sum
    assert batch["cores"] == 93 and batch["waiting_cores"] == 56   # nobody looks through a lake's keys then
    assert f"cores $3.36, and $233.34 more on demand or ${batch['waiting_usd']['window']:.2f} in a window while 56 of them wait for DynamoDB" in str(plan_workload(events_per_day=1e9))


def test_a_run_of_many_batches_warms_up_once():
    n = plan_input(Config(input=str(SAMPLES)), cores=1).numbers["batch"]
    assert n["batches"] == 3 and n["run_usd"]["cores"] == pytest.approx(n["run_seconds"] / 3600 * 0.06, rel=0.01) and n["run_usd"]["cores"] < 2.9 * n["usd"]["cores"]


def test_batches_beyond_the_retention_are_not_scanned():
    past = [measured(1_000_000, 1.0, 1, batch_id=f"b{d}", etl_time=f"2026-{d // 28 + 1:02}-{d % 28 + 1:02}T00:00:00Z") for d in range(0, 280, 7)]
    assert len(remembered(past)) == len(remembered(past, 10_000)) == 40 and len(remembered(past, 20)) == 3   # 0, 7 and 14 days old
    assert remembered([*past, measured(5, 1.0, 1, batch_id="look", etl_time="2099-01-01", status="decided")], 20) == remembered(past, 20)   # which no manifest holds
    old = datetime(2026, 5, 1, tzinfo=timezone.utc)
    assert len(remembered(past, 20, old)) == sum(m["etl_time"] >= "2026-04-11" for m in past)   # a late batch sees what was there then
    assert "b273" in remembered([{**m, "etl_time": None} for m in past], 1)   # those whose time nobody knew live on
    dollars = lambda days: forecast_of(Config(input="x", retention_days=days), [], past=past, rows=1, cores=1)["usd"]["manifest"]
    assert dollars(20) < dollars(10_000) == pytest.approx(lake_scan_usd(4e7, P) + lake_open_usd(40, P), abs=1e-6)


def test_sums_so_small_that_they_round_to_nothing_are_told_as_such():
    page = str(plan_workload(events_per_day=10, retention_days=7))
    assert "under $0.01 by writes" in page and "under $0.01 by import" in page and "$0.00 by" not in page and "In 1 batches" not in page


def test_a_price_file_cannot_crash_the_arithmetic():
    Path("free.toml").write_text("[regions.us-east-1]\nstandard_read_usd_per_million = 0\nstandard_write_usd_per_million = 0\n")
    free = load_prices(file="free.toml")
    assert read_first_pays(free) == 1.0 and provisioned_pays(free) == math.inf and json.dumps(plan_workload(events_per_day=1e6, prices_file="free.toml").numbers, allow_nan=False)
    Path("long.toml").write_text(f"[regions.us-east-1]\ncore_usd_per_hour = 1{'0' * 400}\n")
    with pytest.raises(ConfigError, match="wanted a number from 0 up"): load_prices(file="long.toml")
    with pytest.raises(ConfigError, match="events_per_day = 1000"): Workload(10**400)


def test_an_input_that_cannot_be_planned_says_why():
    Path("empty/run=1").mkdir(parents=True); Path("empty/run=1/part-0").write_text("")
    with pytest.raises(InputError, match="has no rows to plan with"): estimate_input(Config(input="empty"))
    with pytest.raises(ConfigError, match="Give numbers instead"): estimate_input(Config(input="empty", input_format="delta"))
    with pytest.raises(InputError, match="Wanted the input"): estimate_input(Config(input="emtpy"))
    Path("text").mkdir(); Path("text/a").write_text("words")
    with pytest.raises(InputError, match="not readable as parquet"): estimate_input(Config(input="text", input_format="parquet"))


# forecasts and the truth
def measured(rows, seconds, files, **more): return {"batch_id": "b", "counts": {"read": rows, "bad": 0, "kept": rows}, "seconds": {"total": seconds}, "bytes": {"input": 240 * rows}, "input_files": files, "settings": {}, "reasons": {}, **more}


def test_one_calibration_run_forecasts_a_million_rows_within_half():
    # recorded on two busy cores: three batches of 4,000 lines in one process, then a million lines in 10 files on another day
    small = [measured(4000, s, 1, forecast={"cores": 1, "first": n == 0}) for n, s in enumerate((19.4, 7.9, 7.0))]
    told = forecast_of(Config(input="x"), [InputFile(f"part-{n}.txt.gz", 24_342_912, 0) for n in range(10)], past=small, cores=2)
    assert 111.5 / 1.5 < told["seconds"] < 111.5 * 1.5 and told["rows"] == pytest.approx(1_000_000, rel=0.02) and told["cores"] == 2 and told["runs"] == 3
    again = forecast_of(Config(input="x"), [InputFile("a.gz", 243_429_120, 0)], past=[measured(1_000_000, 111.5, 10, forecast={"cores": 2})], cores=2)
    assert again["cores"] == 1 and again["seconds"] > 1.6 * 111.5   # one file that one task reads alone


def test_calibration_scales_the_defaults_and_large_runs_count_most():
    default = calibrate([], P)
    exact = calibrate([measured(100_000, default.seconds(100_000, 2), 2, forecast={"cores": 2})], P)
    assert exact.seconds(5e6, 8) == pytest.approx(default.seconds(5e6, 8)) and exact.runs == 1
    slow = calibrate([measured(10_000_000, 3 * default.seconds(10_000_000, 2), 2, forecast={"cores": 2}), measured(10, default.seconds(10, 2), 2, forecast={"cores": 2})], P)
    assert 2.9 < slow.overhead_s / default.overhead_s < 3
    assert calibrate([measured(0, 0, 0)], P) == default


@pytest.mark.parametrize("manifest", ["none", "lake", "dynamodb"])
def test_a_run_that_took_what_was_forecast_teaches_nothing_new(manifest):
    "The claims and the scan are reckoned for themselves: they must not also make the machine seem slower."
    config = Config(input="x", manifest=manifest, **({"dynamodb_table": "t"} if manifest == "dynamodb" else {}))
    files = [InputFile(f"part-{n}.txt.gz", 24_000_000, 0) for n in range(10)]
    long_ago = [measured(1_000_000_000, calibrate([], P).seconds(1e9, 8), 8, forecast={"cores": 8})]  # a history for the lake to scan
    told = forecast_of(config, files, past=long_ago, cores=8, rows=1_000_000)
    again = forecast_of(config, files, past=[*long_ago, {**measured(1_000_000, told["seconds"], 10, forecast=told), "batch_id": "c"}], cores=8, rows=1_000_000)
    assert again["seconds"] == pytest.approx(told["seconds"], rel=0.01) and (told["manifest_seconds"] > 0) == (manifest != "none")


def test_a_limit_in_dollars_counts_the_batches_before():
    told = {"dollars": 0.9, "usd": {"cores": 0.9}, "rows": 5}
    assert check_dollars(told, 1) is None
    with pytest.raises(DedupError, match=r"after \$0.90 for the batches before it, above max_dollars = 1. Nothing more was written"): check_dollars(told, 1, 0.9)


def test_a_forecast_is_pure_and_counts_what_it_is_told():
    files = [InputFile("a.parquet", 180_000_000, 0.0)]
    config = Config(input="x", input_format="parquet")
    one = forecast_of(config, files, cores=4)
    assert one == forecast_of(config, files, cores=4) and (one["rows"], one["write_units"], one["cores"]) == (1_000_000, 0, 4)
    object.__setattr__(config, "manifest", "dynamodb")
    told = forecast_of(config, files, cores=4, rows=1_000_000, claims=900_000, known=30_000)
    assert (told["claims"], told["write_units"], told["read_units"]) == (900_000, 900_000, 30_000)
    assert told["usd"]["manifest"] == pytest.approx(0.9 * 0.625 + 0.03 * 0.125) and told["dollars"] == pytest.approx(sum(told["usd"].values()))
    assert told["seconds"] == pytest.approx(one["seconds"] + 900_000 / 4000 + 4, abs=1.1)   # a slow start
    object.__setattr__(config, "manifest", "lake")
    past = [measured(1_800_000_000, 1.0, 1)]
    assert forecast_of(config, files, past=past, cores=4)["usd"]["manifest"] == pytest.approx(lake_scan_usd(1.8e9, P), abs=1e-6)


def test_a_forecast_goes_by_the_terms_of_the_table():
    config, files = Config(input="x", manifest="dynamodb", dynamodb_table="t"), [InputFile("a.gz", 240_000, 0.0)]
    told = lambda **more: forecast_of(config, files, cores=1, rows=1_000_000, claims=1_000_000, known=0, **more)
    units = lambda t: (t["write_units"], t["read_units"], round(t["usd"]["manifest"], 6))
    assert units(told()) == (1_000_000, 0, 0.625)
    assert units(told(terms=Terms(table_class="ia"))) == (1_000_000, 0, 0.78)
    assert units(told(terms=Terms(strategy="read_first"))) == (1_000_000, 1_000_000, 0.75)   # the rows of an older writer are read first
    assert units(told(terms=Terms(100, provisioned=True))) == (1_000_000, 0, 0) and told(terms=Terms(100, provisioned=True))["manifest_seconds"] == pytest.approx(10_000, abs=5)
    assert units(told(job="rerun")) == (0, 1_000_000, 0.125) and units(told(job="rerun", terms=Terms(strategy="put_item"))) == (1_000_000, 0, 0.625)
    assert units(told(job="rerun", terms=Terms(strategy="insert_first"))) == (1_000_000, 1_000_000, 0.75)   # as it was told to
    assert units(told(job="look")) == (0, 2_000_000, 0.25) and units(told(job="look", terms=Terms(layout="pairs"))) == (0, 1_000_000, 0.125)   # the head and the pair
    assert Terms().claiming(0.16) == "insert_first" and Terms().claiming(0.17) == "read_first" and Terms(strategy="insert_first").claiming(0.9) == "insert_first"
    seconds = lambda **more: told(**more)["manifest_seconds"]
    assert seconds(job="look") == pytest.approx(2_000_000 / 12_000, abs=1) and seconds(job="look", terms=Terms(layout="pairs")) == pytest.approx(1_000_000 / 12_000, abs=1)
    assert seconds(job="rerun", terms=Terms(100, True)) == 10_000 and seconds(job="rerun", terms=Terms(100, True, rcu=1000)) == 1000   # as many read units as write units, or those it has
    assert seconds(terms=Terms(100, limited=True)) == pytest.approx(10_000, abs=5)   # a limit that somebody set on demand
    # 1,202 claims a second and core by PutItem, 4 s of slow start where the rate is a limit
    assert told(terms=Terms(40_000, strategy="put_item"))["manifest_seconds"] == pytest.approx(1_000_000 / 1202, abs=2)


def test_a_high_max_wcu_makes_no_table_faster():
    seconds = lambda terms, claims, wcu: forecast_of(Config(input="x", manifest="dynamodb", dynamodb_table="t", max_wcu=wcu), [], cores=64, rows=claims, claims=claims, known=0, terms=terms)["manifest_seconds"]
    assert seconds(Terms(100, limited=True), 1_000_000, 4000) == pytest.approx(10_000, abs=5)
    assert seconds(Terms(300, True), 1_000_000, 3000) == pytest.approx(1_000_000 / 300, abs=5)
    new = seconds(Terms(), 100_000_000, 40_000)
    assert new == simulate(Load(100e6, tasks=64, slots=64, max_wcu=40_000), Capacity.on_demand(P), P).seconds > 2 * 100e6 / 40_000   # it begins with 4,000 and doubles
    assert seconds(Terms(40_000), 100_000_000, 40_000) == pytest.approx(2500, abs=5) and seconds(Terms(5, True), 1_000_000, 4000) == pytest.approx(200_000, abs=50)


def test_a_scan_is_paid_once():
    told = forecast_of(Config(input="x"), [], rows=0, cores=4, past=[measured(1_800_000_000, 1.0, 1)])
    speed = calibrate([measured(1_800_000_000, 1.0, 1)], P)
    assert told["usd"] == {"cores": pytest.approx(speed.seconds(0, 4) * 4 / 3600 * 0.06, abs=1e-6), "manifest": pytest.approx(lake_scan_usd(1.8e9, P), abs=1e-6)}


def test_runs_that_only_decided_neither_teach_nor_count_as_remembered():
    looked = [measured(4000, 1.0, 1, status="decided")]
    assert calibrate(looked, P) == calibrate([], P) and calibrate(looked, P, kind="decided").runs == 1 and remembered(looked) == {} and remembered([measured(5, 1.0, 1), measured(7, 1.0, 1, backfill=True)]) == {"b": 5}
    for m in [{**looked[0], "batch_id": b.batch_id} for b in find_batches(Config(input=str(SAMPLES)))]:
        Path(f"out/runs/{m['batch_id']}").mkdir(parents=True); Path(f"out/runs/{m['batch_id']}/metrics.json").write_text(json.dumps(m))
    plan = plan_input(Config(input=str(SAMPLES), output="out"))
    assert plan.numbers["speed"]["runs"] == 0 and "already in" not in str(plan)


def test_many_small_batches_take_longer_to_open_than_to_scan():
    many, few = (plan_workload(events_per_day=1e6, batches_per_day=b).numbers for b in (250, 1))
    assert many["batch"]["claim_seconds"]["lake"] * many["batch"]["cores"] == pytest.approx(0.012 * 180 * 250 + 180e6 * (34 / 50e6 + 50e-9), rel=0.01)
    assert many["recommendation"]["back_end"] == "dynamodb" and few["recommendation"]["back_end"] == "lake" and few["lake_open_usd"] == pytest.approx(180e-6 * MONTH_DAYS, abs=0.005)


def test_the_page_marks_what_is_not_possible():
    page, numbers = str(plan := plan_workload(events_per_day=1e10)), plan.numbers
    assert numbers["possible"] == ["lake"] and page.count("(above the quota of 40 000 WCU)") == 3 and "too slow: the next batch comes after 24.0 h" in page
    assert set(plan_workload(events_per_day=1e7, batches_per_day=288).numbers["possible"]) == {"lake", "standard_on_demand", "ia_on_demand", "standard_all_day", "ia_all_day"}
    assert "does not keep up" in str(plan_workload(events_per_day=1e8, batches_per_day=24)) and "does not keep up" not in str(plan_workload(events_per_day=1e8))


def test_this_run_takes_what_is_asked_for_and_not_done():
    of = lambda **more: plan_input(Config(input=str(SAMPLES), **more)).numbers["batch"]["batches"]
    assert (of(), of(since="2026-11-19"), of(until="2026-11-18"), of(skip_batches="2026-11-19-00-00-00"), of(max_batches=1), of(since="2027")) == (3, 2, 1, 2, 1, 0)
    assert "This run: nothing" in str(plan_input(Config(input=str(SAMPLES), since="2027"))) and "This run: 2 of 3 batches" in str(plan_input(Config(input=str(SAMPLES), since="2026-11-19")))
    Path("out/runs/2026-11-18-00-00-00").mkdir(parents=True)
    Path("out/runs/2026-11-18-00-00-00/metrics.json").write_text(json.dumps({**measured(4000, 9.0, 1, cross_batch={"pairs": 3800, "known_pairs": 38}), "batch_id": "2026-11-18-00-00-00"}))
    assert of(output="out") == 2 and of(output="out", rerun=True) == of(output="out", manifest="none") == 3
    share = lambda: plan_input(Config(input=str(SAMPLES), output="out")).numbers["workload"]["duplicate_share"]
    assert share() == pytest.approx(102 / 11_391, abs=2e-4)   # the first batch of a manifest knows nothing: the input tells more
    Path("out/runs/2026-11-19-00-00-00").mkdir(parents=True)
    Path("out/runs/2026-11-19-00-00-00/metrics.json").write_text(json.dumps({**measured(4000, 9.0, 1, cross_batch={"pairs": 3800, "known_pairs": 38}), "batch_id": "2026-11-19-00-00-00"}))
    assert share() == 0.01   # pairs, not rows


def test_a_short_memory_leaves_the_time_of_the_batch():
    Path("p.toml").write_text("[rates]\nlake_open_core_s = 1e-6\n")
    batch = plan_workload(events_per_day=1000, retention_days=1, prices_file="p.toml").numbers["batch"]
    assert batch["claim_seconds"]["lake"] == 0 and batch["total_seconds"]["lake"] == batch["run_total_seconds"]["lake"] == batch["seconds"] > 0


def test_a_window_that_the_cores_cannot_fill_is_paid_for_longer():
    batch = plan_workload(events_per_day=1e9, cores=1).numbers["batch"]
    assert batch["window_hours"] == 7 and batch["window_paid_hours"] == 17 and batch["usd"]["window"] == pytest.approx(17 * batch["window_wcu"] * 0.00065, abs=0.01)   # 1e9 / 17,361 a second = 16 h and some seconds
    assert "the cores, or an id with many fingerprints, are too slow for it, and 17 h are paid" in str(plan_workload(events_per_day=1e9, cores=1))
    page = str(plan_workload(events_per_day=1e7, batches_per_day=86_400))
    assert "no number of them would do a batch and the lake's look back before the next batch" in page


def test_a_plan_from_numbers_knows_the_rate_and_high_shares():
    assert plan_workload(events_per_day=1e7, max_wcu=100).numbers["batch"]["claim_seconds"]["on_demand"] == pytest.approx(1e5, abs=5)
    assert main("plan --events-per-day 1e7 --max-wcu 100".split()) == 0
    n = plan_workload(events_per_day=1e7, duplicate_share=0.9).numbers   # reads first: 10 M reads and 1 M writes a day
    assert (n["batch"]["write_units"], n["batch"]["read_units"]) == (1_000_000, 10_000_000) and n["per_month"]["standard_on_demand"] == pytest.approx(80.92 + (1.25 + 0.625) * MONTH_DAYS, abs=0.02)
    # an hour of 1 M / 3,600 write and 10 M / 3,600 read units a second; with a minute to spare 1 M / 3,540 and 10 M / 3,540
    assert n["per_month"]["standard_window"] == pytest.approx(80.92 + (278 * 0.00065 + 2778 * 0.00013) * MONTH_DAYS, abs=0.02) and (n["batch"]["window_wcu"], n["batch"]["window_rcu"]) == (283, 2825)
    assert n["batch"]["claim_seconds"]["window"] == math.ceil(10e6 / 2825) and "with 283 WCU and 2 825 RCU" in str(plan_workload(events_per_day=1e7, duplicate_share=0.9))
    assert recommend(Workload(1e7, 0.9, batches_per_day=288), P)["choice"] == "ia_all_day"


def test_the_lake_may_be_cheaper_again_where_windows_end():
    for b in (1, 22, 23, 24, 25, 26, 27, 30):   # DynamoDB costs a window up to 24 batches, and capacity all day from then on
        w = Workload(7e5, batches_per_day=b)
        r, ends = recommend(w, P), lake_ends(w, P)
        assert (r["back_end"] == "dynamodb") == (b >= ends), (b, ends)


def test_a_configuration_that_is_not_used_stops_nothing():
    assert forecast_of(Config(input="x"), [], rows=1)["rows"] == 1 and region_of(Config(duplicate_storage_config="nofile.json")) == os.environ.get("AWS_REGION", os.environ.get("AWS_DEFAULT_REGION"))
    assert "; ask for more" not in str(plan_workload(events_per_day=1e7, max_wcu=100_000)) and plan_workload(events_per_day=1e7, max_wcu=100_000).numbers["batch"]["on_demand_wcu"] == 40_000
    assert "with a minute to spare\n" not in str(plan_workload(events_per_day=142e6))   # of two hours, beside a row of one
    with pytest.raises(ConfigError, match="Region eu-west-1 has no .*core_usd_per_hour"):
        Path("part.toml").write_text("[regions.eu-west-1]\nstandard_write_usd_per_million = 0.7\n")
        run(Config(input=str(SAMPLES), output="out", aws_region="eu-west-1", prices="part.toml"))   # before Spark


def test_a_new_table_has_the_terms_of_the_settings():
    of = lambda **more: new_terms(Config(input="x", manifest="dynamodb", dynamodb_table="t", **more))
    assert of() == Terms() and of(dynamodb_capacity=500) == Terms(500, True) and of(dynamodb_layout="pairs").claiming() == "read_first" and of(dynamodb_strategy="put_item").strategy == "put_item"


def test_a_price_file_serves_runs_and_regions_of_its_own():
    Path("p.toml").write_text("[regions.eu-west-1]\n" + "".join(f"{name} = {value}\n" for name, value in P.values.items() if "usd" in name or "free_gb" in name).replace("core_usd_per_hour = 0.06", "core_usd_per_hour = 6.0"))
    here = dict(input="x", aws_region="eu-west-1", manifest="none")
    ours, theirs = (forecast_of(Config(**here, **more), [], rows=1_000_000, cores=1) for more in ({}, {"prices": "p.toml"}))
    assert (ours["region"], theirs["region"]) == ("us-east-1", "eu-west-1") and theirs["dollars"] == pytest.approx(100 * ours["dollars"], rel=1e-4)
    Path("q.toml").write_text("core = 1")
    with pytest.raises(ConfigError, match="q.toml has core"): forecast_of(Config(**here, prices="q.toml"), [], rows=1)   # a wrong file is no missing region


def test_a_plan_goes_by_the_region_of_the_table(monkeypatch, capsys):
    last = lambda words: (main(words.split()), capsys.readouterr().out)[1]
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    assert "Prices: us-west-2" in last("plan --events-per-day 1e6") and "Prices: us-east-2" in last("plan --events-per-day 1e6 --region us-east-2") and "Prices: us-east-2" in last("plan --events-per-day 1e6 --aws-region us-east-2")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    said = last(f"plan --input {SAMPLES}")
    assert "Prices: us-east-1" in said and "Note: the table would be in eu-west-1, which has no prices here: those of us-east-1 count" in said
    Path("m.json").write_text(json.dumps({"schema": "iglu:com.snowplowanalytics.snowplow.storage/amazon_dynamodb_config/jsonschema/2-0-0", "data": {"name": "n", "auth": None, "awsRegion": "us-east-2", "dynamodbTable": "t", "id": "i", "purpose": "EVENTS_MANIFEST"}}))
    assert "Prices: us-east-2" in last("plan --events-per-day 1e6 --duplicate-storage-config m.json")


def test_cores_keep_up_with_the_next_batch():
    batch = lambda b: plan_workload(events_per_day=10e6, batches_per_day=b).numbers["batch"]
    assert batch(1)["cores"] == batch(24)["cores"] == 1 and batch(288)["cores"] == 7   # 300 s less 19 s for 6.9 s of rows, 1 314 s of keys and 622 s of files
    assert batch(288)["total_seconds"]["lake"] <= 300 and batch(1)["total_seconds"]["lake"] == pytest.approx(batch(1)["seconds"] + batch(1)["claim_seconds"]["lake"], abs=0.11)


def test_max_dollars_stops_a_dear_run_with_the_sum():
    told = {"dollars": 12.345, "usd": {"cores": 0.345, "manifest": 12.0}, "rows": 20_000_000}
    assert check_dollars(told, None) is None and check_dollars(told, 12.345) is None
    with pytest.raises(DedupError, match=r"\$12.3[45].*20 000 000 rows.*max_dollars = 12.*Nothing was written"): check_dollars(told, 12)
    with pytest.raises(DedupError, match="Nothing of this batch was written"): check_dollars(told, 12, 3.0, counted=True)   # the manifest is there by then


def test_a_limit_in_dollars_wants_prices_of_the_region_and_rows_that_can_be_known(monkeypatch):
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    with pytest.raises(ConfigError, match="No prices for region 'eu-west-1'"): run(Config(input=str(SAMPLES), output="out", max_dollars=5))   # before Spark starts
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    table = [Batch("t", (), "a_table")]
    with pytest.raises(ConfigError, match="max_dollars = 5 cannot be kept: no listing tells how many rows t has"):
        _forecast(table, Config(input="t", output="out", input_format="table", manifest="none", max_dollars=5), [], print)
    assert _forecast(table, Config(input="t", output="out", input_format="table", max_dollars=5), [], lambda line: None)   # its pairs are counted before they are claimed


def test_a_review_of_a_folder_that_is_not_there_says_so(capsys):
    assert main(["plan", "--review", "--output", "nowhere"]) == 2 and "There is no folder nowhere" in capsys.readouterr().err


def test_a_review_sets_forecast_beside_actual():
    past = [measured(1000, 20.0, 1, forecast={"rows": 1100, "seconds": 25.0, "write_units": 990}, used={"write_units": 1000}), measured(5, 1.0, 1)]
    assert [(r["what"], r["forecast"], r["actual"], round(r["error"], 3)) for r in review(past)] == [("rows", 1100, 1000, 0.1), ("seconds", 25.0, 20.0, 0.25), ("write_units", 990, 1000, -0.01)]
    assert "+25%" in review_page(past) and "none with a forecast" in review_page(past[1:])
    even = review_page([measured(100_000, 20.0, 1, forecast={"rows": 99_999, "seconds": 20.0}, backfill=True)])
    assert "b (backfill) " in even and "-0%" not in even and "rows: median error 0%, largest 0%, over 1 batch" in even


def test_a_backfill_teaches_backfills_only():
    runs_, filled = measured(1_000_000, 100.0, 1, forecast={"cores": 1}), {**measured(1_000_000, 20.0, 1, forecast={"cores": 1}, backfill=True), "batch_id": "a"}
    assert calibrate([runs_, filled], P) == calibrate([runs_], P) and calibrate([runs_, filled], P, kind="backfill") == calibrate([{**filled, "backfill": False}], P)
    told = [forecast_of(Config(input="x"), [], rows=1_000_000, cores=1, past=[runs_, filled], backfill=b) for b in (False, True)]
    assert told[0]["seconds"] > 4 * told[1]["seconds"] and told[0]["manifest_seconds"] == pytest.approx(lake_core_hours(2_000_000, P) * 3600, abs=0.1)   # both have keys to scan


def test_records_of_past_runs_are_read_and_broken_ones_left_out():
    assert past_runs(None) == [] and past_runs("nowhere") == []
    for name, text in (("b2", json.dumps(measured(2, 1.0, 1))), ("b1", json.dumps(measured(1, 1.0, 1))), ("b3", "{"), ("b4", "[]")):
        Path(f"out/runs/{name}").mkdir(parents=True); Path(f"out/runs/{name}/metrics.json").write_text(text)
    assert [m["counts"]["read"] for m in past_runs("out")] == [1, 2]


# charts
def titled(figure): return figure.axes[0].get_title(loc="left")


def test_chart_titles_state_the_conclusion_and_axes_have_units():
    volumes = [10**(4 + k / 2) for k in range(13)]
    by_batches = costs_by(Workload(10e6), P, batches_per_day=[1, 24, 25, 100, 200, 400, 1000])
    load = Load(10e6, hot=(600_000,), tasks=8)
    figures = {
        "the lake is cheaper than DynamoDB everywhere here": volume_chart(costs_by(Workload(1e6), P, events_per_day=volumes)),
        "At 10 M events a day the lake is dearer than DynamoDB above 118 batches a day": batches_chart(by_batches),
        "90 days catch 99%": retention_chart(costs_by(Workload(10e6), P, retention_days=[7, 30, 90, 180]), {1: 900, 40: 95, 120: 5}),
        "4 k WCU, the least of these, claim 10 M pairs within the hour": capacity_chart(minutes_by_wcu(load, [1000, 2000, 4000, 16_000], P), load.claims),
        "above 28.9% utilisation": utilisation_chart(P),
    }
    for words, figure in figures.items():
        assert words in titled(figure), titled(figure)
        assert all(a.get_ylabel() for a in figure.axes) and figure.axes[0].get_xlabel()
    # where the lines cross more than once, the last crossing tells what comes above it; where no table is large enough, the line ends
    often = costs_by(Workload(700e3), P, batches_per_day=range(1, 60))
    at = crossing(often, "batches_per_day", "lake", "dynamodb")
    assert 24 < at < 60 and all(r["lake"] > r["dynamodb"] for r in often if r["batches_per_day"] > at)
    assert titled(batches_chart(often)) == f"At 700 k events a day the lake is dearer than DynamoDB above {at:.3g} batches a day"
    beyond = costs_by(Workload(1e10), P, batches_per_day=[1, 24, 200])
    assert all(math.isnan(r["dynamodb"]) for r in beyond) and "no table of DynamoDB is large enough" in titled(batches_chart(beyond))
    assert crossing(by_batches, "batches_per_day", "lake", "standard_on_demand") == pytest.approx(168, rel=0.02)   # 270.38 / 30.417 = 0.02336 b + 1.8e-4 b^2


# the command
def test_the_command_prints_json_alone(capsys):
    assert main("plan --events-per-day 1e9 --duplicate-share 0.02 --retention 180 --batches-per-day 24 --json".split()) == 0
    out = capsys.readouterr()
    assert {c: round(json.loads(out.out)["per_month"][c]) for c in ("standard_on_demand", "standard_window", "lake")} == {"standard_on_demand": 27_797, "standard_window": 14_203, "lake": 1_846} and out.err == ""


def test_the_command_plans_an_input_and_reviews(capsys):
    assert main(["plan", "--input", str(SAMPLES), "--cores", "2"]) == 0 and "12 000 rows were read" in capsys.readouterr().out
    Path("out/runs/b").mkdir(parents=True)
    Path("out/runs/b/metrics.json").write_text(json.dumps(measured(1000, 20.0, 1, forecast={"rows": 1100, "seconds": 25.0})))
    assert main(["plan", "--review", "--output", "out"]) == 0 and "+25%" in capsys.readouterr().out
    assert main(["plan", "--review", "--output", "out", "--json"]) == 0 and len(json.loads(capsys.readouterr().out)) == 2


@pytest.mark.parametrize("words, said", [
    ("plan", "A plan needs --input DIR"), ("plan --review", "A review needs the folder"), ("plan --events-per-day x", "events_per_day = 'x'"),
    ("plan --events-per-day 1e6 --input d", "not both"), ("plan --events-per-day 1e6 --region eu-wst-2", "No prices for region 'eu-wst-2'"),
    ("plan --evnts-per-day 5", "Did you mean --events-per-day?"), ("plan --events-per-day 1e6 --duplicate-share 2", "Write 2 % as 0.02"), ("plan --events-per-day 1e6 --prices no.toml", "no.toml cannot be read"),
])
def test_wrong_usage_of_plan_is_exit_code_2(words, said, capsys):
    assert main(words.split()) == 2
    out = capsys.readouterr()
    assert said in out.err and out.out == ""


@pytest.mark.parametrize("wrong, words", [(lambda p: claim_units(1e6, 1.5, "read_first"), "duplicate_share = 1.5: wanted 0 to 1"), (lambda p: claim_units(-1, 0), "claims = -1: wanted 0 or more"),
    (lambda p: forecast_month(Workload(1e6), p, window_hours=-1), "window_hours = -1: wanted more than 0"), (lambda p: wcu_needed(1, 0), "seconds = 0: wanted more than 0"),
    (lambda p: hours_to_write(1, 0), "wcu = 0: wanted more than 0"), (lambda p: backfill_usd(1, p, "imports"), "by = 'imports': wanted writes or import.*import")])
def test_numbers_out_of_range_are_refused(wrong, words):
    with pytest.raises(ConfigError, match=words): wrong(load_prices())


def test_a_window_that_does_not_fit_says_why():
    said = str(plan_workload(events_per_day=1e7, batches_per_day=288))
    assert "no window, as capacity is paid by the hour, and 288 hours do not fit into a day" in said and "(not possible: capacity is paid by the hour" in said
    assert "it would be above the quota of 40 000 WCU" in str(plan_workload(events_per_day=2e10, batches_per_day=6))

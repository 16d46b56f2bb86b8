"Measures: windows, gaps and days."

import pytest
from pyspark.sql import Row

from dedup_nb.distribution import measures
from dedup_nb.distribution.measures import WINDOWS, gaps, knee, quantiles, split_by, windows

DAY = 86_400_000


class Counted:
    "As `measure` leaves them."

    def __init__(self, tallies=(), alone=(), batches=("b",), span_ms=None):
        self.tallies = [Row(**dict(zip(("by", "what", "slot", "rows"), tally))) for tally in tallies]
        self.alone, self.batches, self.span_ms = list(alone), batches, span_ms


def test_windows_say_how_much_of_the_data_could_show_them():
    caught = [("window", "natural", slot, n) for slot, n in (("0", 70), ("4", 27), ("12", 2), ("13", 1))]
    found = Counted([("gap", "natural", "3", 100), *caught], span_ms=10 * DAY)
    curve = windows(found)
    assert [w["window"] for w in curve] == list(WINDOWS)
    assert [w["caught"] for w in curve] == [70] * 4 + [97] * 8 + [99]
    assert curve[4]["share"] == 0.97 and curve[4]["seen"] == 0.9 and curve[-1]["seen"] == 0
    assert knee(curve) == "1 day" and knee([]) is None and windows(Counted()) == []


def test_gaps_are_read_at_the_ends_of_their_bars():
    rows = (("natural", "-1", 5), ("natural", "60", 4), ("synthetic_cross_batch", "20", 1))
    bars = gaps(Counted([("gap", *row) for row in rows]))
    assert [(b["kind"], b["across"], b["from_ms"], b["to_ms"]) for b in bars] == [
        ("natural", False, 0.0, 0.0),
        ("natural", False, 891.251, 1000.0),
        ("synthetic", True, 8.913, 10.0),
    ]
    natural, synthetic = quantiles(bars)
    assert (natural["p50"], natural["p75"], natural["p100"]) == (0.0, 1000.0, 1000.0)
    assert (synthetic["where"], synthetic["rows"], synthetic["p10"]) == ("across batches", 1, 10.0)


def test_days_of_any_year_have_a_name():
    alone = [Row(batch=0, missing=False, day=day, rows=1) for day in (-719_529, 0, None, 2_932_897)]
    days = [d["day"] for d in split_by(Counted(alone=alone), "day")]
    assert days == ["-0001-12-31", "1970-01-01", "+10000-01-01"]


STRAYS = (-1, 2_932_896)  # days: 1969-12-31, 9999-12-31


@pytest.mark.parametrize(
    "strays, days",
    [
        ({}, 3),
        (dict.fromkeys(STRAYS, 3), 3),
        ({STRAYS[0]: 4}, 20_778),  # more than 0.1 % of the events: this is when they were
    ],
)
def test_stray_clocks_do_not_make_the_data_long(strays, days):
    alone = [Row(day=day, rows=n) for day, n in {20_774: 1000, 20_775: 1000, None: 5, **strays}.items()]
    tallies = [Row(by=by, slot=slot, rows=n, oldest=oldest) for by, slot, n, oldest in WINDOW_AND_DAY]
    times = [(day + end) * DAY for day in (20_774, 20_776, *strays) for end in (0, 1)]
    assert measures._span(alone, tallies, times) == days * DAY


# of 3000 events with a time one is a year older than the copy that it repeats
WINDOW_AND_DAY = [
    ("day", "20776", 1000, DAY),
    ("window", "13", 1, 365 * DAY),
    ("window", "5", 90, 2 * DAY),
    ("gap", "3", 91, 365 * DAY),
]


def test_what_many_repeats_show_of_the_time_counts():
    tallies = [Row(by="day", slot="0", rows=900, oldest=None), Row(by="window", slot="9", rows=1, oldest=DAY)]
    assert measures._span([], tallies, [5, 9]) == DAY and measures._span([], tallies[:1], [5, 9]) == 4

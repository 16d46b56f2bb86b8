"The ledger: who is at work, the times of batches, and recipes that agree or differ. No Spark."

from datetime import datetime, timedelta, timezone

import pytest
from ledgers import RECIPE

from dedup_nb.base.errors import minute, utc
from dedup_nb.formats.batches import spelled_time
from dedup_nb.manifest.ledger import FORMAT, Ledger, Marker, agreed, is_at_work, this_process
from dedup_nb.pipeline.decide import time_of_batch

# --- who is at work, and how late it is


def test_a_process_is_at_work_here_as_long_as_it_lives_and_elsewhere_for_some_minutes():
    me = this_process()
    hour_ago = (datetime.now(timezone.utc) - timedelta(hours=1)).isoformat()
    assert not is_at_work(me), "oneself is in nobody's way"
    assert is_at_work({**me, "pid": 1, "started": "", "at": hour_ago}, 5)
    assert not is_at_work({**me, "pid": 2**22 + 1}) and not is_at_work({**me, "started": "1"})
    far = {**me, "host": "elsewhere", "at": hour_ago}
    assert is_at_work(far) and is_at_work(far, 61) and not is_at_work(far, 59)


@pytest.mark.parametrize(
    "times, newest",
    [
        ([5] * 15, None),
        ([1, *range(10, 26)], 10),
        ([*range(10, 25), 99_999], 10),  # one clock ahead of all
        ([*range(10, 25), None], None),  # a batch without a time sees everything
        ([None, *range(10, 26)], 10),
    ],
)
def test_the_last_sixteen_commits_must_agree_how_late_it_is(times, newest):
    markers = [Marker(n, "commit", f"b{n}", {"first_seq": n, "etl": etl}) for n, etl in enumerate(times, 1)]
    assert Ledger(markers).newest_time() == newest


# --- time


@pytest.mark.parametrize(
    "name, time",
    [
        ("2026-11-20-01-02-03", "2026-11-20T01:02:03Z"),
        ("2026-11-20", "2026-11-20T00:00:00Z"),
        ("2026-11-20_13", "2026-11-20T13:00:00Z"),
        ("20261120T13", "2026-11-20T13:00:00Z"),
        ("2026-11-20_9", "2026-11-20T09:00:00Z"),  # of day=2026-11-20/hour=9
        ("2026-11-20-9", None),
        ("2026-11-20~1", "2026-11-20T00:00:00Z"),
        ("2026-02-30", None),
        ("web-2026-11-20", None),
        ("20261120x", None),
        ("12345678", None),
        ("1", None),
    ],
)
def test_a_batch_id_that_spells_a_time_gives_it(name, time):
    assert utc(spelled_time(name)) == time
    hours = [None, -20_000_000, 7]
    assert time_of_batch(None, name, hours) == (-72_000_000_000 if time is None else spelled_time(name))
    assert time_of_batch(5, name, hours) == 5 and (time or time_of_batch(None, name, [None]) is None)


@pytest.mark.parametrize(
    "seconds, text",
    [
        (0, "1970-01-01T00:00:00Z"),
        (-1, "1969-12-31T23:59:59Z"),
        (951_782_400, "2000-02-29T00:00:00Z"),
        (253_402_300_799, "9999-12-31T23:59:59Z"),
        (253_402_300_800, "+10000-01-01T00:00:00Z"),
        (-62_135_596_800, "0001-01-01T00:00:00Z"),
        (-62_135_596_801, "0000-12-31T23:59:59Z"),
        (-62_198_755_200, "-0001-01-01T00:00:00Z"),
        (None, None),
    ],
)
def test_any_time_can_be_said(seconds, text):
    assert utc(seconds) == text and minute(seconds) == (text or "-")[:-4].replace("T", " ") + "-" * (not text)


# --- the recipe


@pytest.mark.parametrize(
    "recorded, mine, given, differ, taken",
    [
        ({}, {}, set(), [], {}),
        ({"retention_days": 7}, {}, set(), [], {"retention_days": 7}),
        ({"retention_days": 7}, {}, {"retention_days"}, ["retention_days was 7, is now 10"], {}),
        ({"order_by": ["a"]}, {"order_by": ("b", "a")}, {"order_by"}, ["order_by was a, is now b, a"], {}),
        ({"order_by": None}, {"order_by": ("b",)}, {"order_by"}, ["order_by was -, is now b"], {}),
        ({"colour": "red"}, {}, set(RECIPE), [], {}),
        ({"id_case": None}, {}, set(RECIPE), [], {}),
        ({"id_case": "as it is"}, {}, set(), ["input_format was another than enriched_tsv (ids as they are), "
                                              "is now enriched_tsv (ids in lower case)"], {}),
        ({"id_case": "as it is"}, {"id_case": None}, set(), [], {}),
    ],
)  # fmt: skip
def test_two_recipes_agree_or_say_in_what_they_differ(recorded, mine, given, differ, taken):
    recipe, words, took = agreed({**RECIPE, **recorded}, {**RECIPE, **mine}, given)
    assert (words, took) == (differ, taken) and recipe["format"] == FORMAT
    if not differ:
        assert recipe["retention_days"] == recorded.get("retention_days", 10)
        assert recipe.get("colour") == recorded.get("colour")


@pytest.mark.parametrize("name", [n for n in RECIPE if n not in ("format", "id_case", "retention_days")])
def test_a_name_that_an_older_recipe_does_not_have_means_its_default(name):
    older = {n: value for n, value in RECIPE.items() if n != name}
    assert agreed(older, RECIPE, set(RECIPE))[1] == []
    other = "id" if name == "missing_fingerprint" else "other"
    assert len(agreed(older, {**RECIPE, name: other}, {name})[1]) == 1

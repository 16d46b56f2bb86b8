"The protocol on a store that is a dictionary: who may take a batch, what it sees, what is refused."

import threading
from datetime import datetime, timedelta, timezone

import pytest
from ledgers import RECIPE, Dictionary, begin, states_of
from runs import DAY

from dedup_nb.base.config import Limits
from dedup_nb.base.errors import BusyError, minute
from dedup_nb.manifest.ledger import FORMAT, FencedError, ManifestError, Marker, RecipeError, this_process
from dedup_nb.manifest.protocol import Manifest, check_rerun


@pytest.fixture
def store():
    return Dictionary()


@pytest.fixture
def open_manifest(store):
    "Open the manifest of this test, again and again, as separate runs would."
    return lambda force=False, recipe=RECIPE, **limits: Manifest(
        store, recipe, Limits(**limits), force, print
    )


@pytest.fixture
def elsewhere(monkeypatch):
    "Claims seem to come from another host or process for a while."

    def claimed_by(**who):
        monkeypatch.setattr("dedup_nb.manifest.protocol.this_process", lambda: {**this_process(), **who})

    return claimed_by


def commit_keys(manifest, batch, etl, *keys, **info):
    claim = manifest.begin(batch, etl, {"token": f"t {batch} {len(manifest.ledger().markers)}"})
    manifest.commit(claim, keys, {"counts": {}, **info})
    return claim


def known_keys(manifest, etl, *keys):
    return manifest.known(manifest.look("another", etl, {"token": "t"}), keys).keys


# --- claims and commits


def test_a_batch_sees_committed_batches_only(open_manifest):
    m = open_manifest()
    commit_keys(m, "one", 0, "a", "b")
    begin(m, "two", token="t2")
    m.give_up("two", "t2", "AlarmError: too bad")
    third = begin(m, "three")
    assert m.known(third, ["a", "c"]).keys == {"one"} and known_keys(m, 0, "c") == set()
    assert states_of(m) == {"one": "committed", "two": "abandoned", "three": "claimed"}
    assert m.ledger().entries["two"].info["why"] == "AlarmError: too bad"
    assert [(c.seq, c.kind) for c in m.ledger().markers][:3] == [(0, "recipe"), (1, "claim"), (2, "commit")]


def test_the_time_of_a_batch_is_that_of_its_first_attempt(open_manifest):
    m = open_manifest()
    begin(m, "one", 5, token="t1")
    m.give_up("one", "t1")
    assert begin(m, "one", 9).etl == 5
    m.abandon("one")
    assert commit_keys(m, "one", 7).etl == 5 and begin(m, "one", 9, rerun=True).etl == 5
    m.give_up("one", "t")
    m.forget("one")
    assert begin(m, "one", 9).etl == 9


def test_a_second_run_is_refused_with_the_holder_and_the_next_command(open_manifest, store, elsewhere):
    elsewhere(host="elsewhere", pid=1)
    begin(open_manifest(), "one")
    elsewhere()
    for batch, words in (("one", "let it end"), ("two", "run it again with --batch-id one")):
        with pytest.raises(BusyError, match="batch one is claimed by process 1 on elsewhere since") as wrong:
            begin(open_manifest(), batch)
        assert "which may still be at work" in str(wrong.value) and words in str(wrong.value)
        assert "or end it: dedup abandon one --output DIR --yes" in str(wrong.value)
    here = open_manifest()
    here.abandon("one")
    begin(here, "one")  # by this process, which lives
    for batch in ("one", "two"):
        with pytest.raises(
            BusyError, match="which is at work. Wait for it .--wait-minutes.; only if it hangs, "
        ):
            begin(open_manifest(), batch)
    store.exclusive = False  # side by side, batch by batch
    assert begin(open_manifest(), "two").seq == 4


def test_a_second_run_waits_for_the_first(open_manifest, said):
    m = open_manifest()
    first = begin(m, "one")
    late = threading.Timer(0.1, lambda: m.commit(first, {"a"}, {}))
    late.start()
    waiting = open_manifest(wait_minutes=0.005)
    second = begin(waiting, "two")
    late.join()
    assert waiting.known(second, ["a"]).keys == {"one"} and said[0].startswith("  waiting: batch one is")


def test_whoever_has_the_place_has_it_and_the_other_tries_the_next(open_manifest, store):
    "Another run is quicker at the recipe, at the claim and at the commit."
    slow, quick, append, tried = open_manifest(), open_manifest(), store.append, []
    store.exclusive = False

    def late(marker):
        store.append = append
        tried.append(marker.kind)
        if tried in (["recipe"], ["recipe", "claim"], ["recipe", "claim", "claim", "commit"]):
            commit_keys(quick, f"quick{len(tried)}", 0)
        store.append = late
        return append(marker)

    store.append = late
    slow.commit(begin(slow, "slow"), {"a"}, {})
    assert tried == ["recipe", "claim", "claim", "commit", "commit"]
    assert [e.first_seq for e in slow.ledger().committed()] == [1, 3, 5, 6]
    assert [m.seq for m in slow.ledger().markers] == list(range(9)) and known_keys(slow, 0, "a") == {"slow"}


def test_a_dead_process_is_taken_over_and_a_zombie_is_told(open_manifest, elsewhere):
    m = open_manifest()
    elsewhere(pid=2**22 + 1)
    dead = begin(m, "one", 5, token="dead")
    elsewhere()
    with pytest.raises(BusyError, match="whose process is gone.*--batch-id one"):
        begin(m, "two")
    alive = begin(m, "one", 9, token="alive")
    assert alive.etl == 5 and "took over the unfinished claim of process 4194305" in alive.notes[0]
    m.commit(alive, {"a"}, {})
    with pytest.raises(FencedError, match="Batch one was taken over") as wrong:
        m.commit(dead, {"z"}, {})
    assert wrong.value.exit_code == 4 and known_keys(m, 5, "z") == set() and known_keys(m, 5, "a") == {"one"}
    assert m.is_committed("one", "alive") and not m.is_committed("one", "dead")
    m.give_up("one", "dead")  # closes nothing that is not its own
    assert states_of(m) == {"one": "committed"}


def test_a_reused_process_number_is_not_the_process_that_claimed(open_manifest, elsewhere):
    elsewhere(started="1")
    begin(open_manifest(), "one")
    with pytest.raises(BusyError, match="whose process is gone" if this_process()["started"] else ""):
        begin(open_manifest(), "two")


@pytest.mark.parametrize("timeout", [60, 1e-9, 1e15])
def test_a_claim_of_another_host_is_closed_once_it_is_old(open_manifest, elsewhere, timeout):
    hours_ago = (datetime.now(timezone.utc) - timedelta(hours=2)).isoformat()
    elsewhere(host="elsewhere", pid=1, at=hours_ago)
    begin(open_manifest(), "one", 5)
    elsewhere()
    with pytest.raises(BusyError):
        begin(open_manifest(), "two")
    m = open_manifest(claim_timeout_minutes=timeout)
    if timeout > 120:
        with pytest.raises(BusyError):
            begin(m, "two")
        return
    claim = begin(m, "two")
    assert "the claim of batch one (process 1 on elsewhere" in claim.notes[0] and "still" in claim.notes[0]
    assert states_of(m) == {"one": "abandoned", "two": "claimed"} and m.ledger().entries["one"].etl == 5


def test_a_manifest_that_was_set_back_is_said_instead_of_trying_for_ever(open_manifest, store, monkeypatch):
    "Delta passes over a place that it has taken once, also where the table was restored to before it."
    m = open_manifest()
    begin(m, "one")
    monkeypatch.setattr(store, "append", lambda marker: False)
    with pytest.raises(ManifestError, match="set back to an older version"):
        m.abandon("one")


def test_a_commit_of_which_only_the_answer_was_lost_is_a_commit(open_manifest, store):
    m, replaced = open_manifest(), store.replace
    claim = begin(m, "one")

    def lost(*args):
        store.replace = replaced
        assert replaced(*args)
        raise ManifestError("no answer")

    store.replace = lost
    m.commit(claim, {"a"}, {})
    m.commit(claim, {"a"}, {})  # asked again
    assert m.is_committed("one", "t") and [x.kind for x in m.ledger().markers].count("commit") == 1
    store.replace = lambda *_: (_ for _ in ()).throw(ManifestError("full"))
    with pytest.raises(ManifestError, match="full"):
        m.commit(begin(m, "two"), {"a"}, {})
    assert m.is_open("two", "t")


# --- reruns


def test_a_rerun_sees_what_it_saw_the_first_time(open_manifest, elsewhere):
    m = open_manifest()
    commit_keys(m, "one", 0, "a")
    commit_keys(m, "two", DAY, "b")
    with pytest.raises(
        ManifestError, match="Batch one is committed already.*--rerun.*dedup forget one --output DIR --yes"
    ):
        begin(m, "one")
    elsewhere(host="elsewhere", pid=1)
    again = begin(m, "two", 7, rerun=True)
    assert again.rerun and again.etl == DAY and m.known(again, ["a", "b"]).keys == {"one"}
    with pytest.raises(BusyError, match="--batch-id two --rerun"):
        begin(m, "three")
    m.commit(again, {"b"}, {"counts": {}})
    first = begin(m, "one", 7, token="u", rerun=True)
    assert m.known(first, ["a", "b"]).keys == set()
    m.give_up("one", "u")
    assert states_of(m) == {"one": "committed", "two": "committed"} and known_keys(m, 0, "a") == {"one"}


WAS = {"settings": {"synthetic": "off", "event_id": ["id"]}, "pairs": 3, "checksum": 7, "dropped_for": {}}
NOW = {"settings": {"synthetic": "off", "event_id": ["id"]}, "pairs": 3, "checksum": 7}


@pytest.mark.parametrize(
    "was, now, words",
    [
        ({}, {}, None),
        ({}, {"settings": {"new": 1}}, None),  # a setting that the first run did not know
        ({}, {"settings": {"synthetic": "quarantine"}}, "synthetic was off, is now quarantine"),
        ({}, {"pairs": 2}, "the batch had 3 pairs"),
        ({}, {"checksum": 8}, "the batch had 3 pairs"),
        ({"pairs": 1}, {}, "the batch had 1 pair,"),
        ({"backfill": True}, {}, "by a backfill, so it is loaded already"),
        ({"dropped_for": {"one": 1}}, {}, None),
        ({"dropped_for": {"late": 1}}, {}, "because batch late had them, .* forgotten and loaded again"),
        ({"dropped_for": {"gone": 1}}, {}, "because batch gone had them, .* forgotten since"),
        ({"collided_with": {"one": 1}}, {}, None),
        ({"collided_with": {"gone": 1}}, {}, "gave ids up because batch gone had them, .* forgotten since"),
    ],
)  # fmt: skip
def test_a_rerun_must_be_the_same_batch(open_manifest, was, now, words):
    m = open_manifest()
    for batch in ("one", "two", "late"):
        commit_keys(m, batch, 0)
    claim = begin(m, "two", rerun=True)
    if words is None:
        return check_rerun(claim, WAS | was, NOW | now)
    with pytest.raises(ManifestError, match=words) as wrong:
        check_rerun(claim, WAS | was, NOW | now)
    assert "dedup forget two --output DIR --yes" in str(wrong.value)


# --- forget, abandon


def test_a_time_that_was_wrong_is_corrected_until_something_is_committed(open_manifest):
    m = open_manifest()
    for given, etl, expected in (
        (True, 36 * 365 * DAY, 36 * 365 * DAY),
        (False, 5, 36 * 365 * DAY),
        (True, 7, 7),
    ):
        claim = m.begin("one", etl, {"token": f"t{etl}", "fingerprints": "own"}, time_is_given=given)
        assert claim.etl == expected
        m.give_up("one", f"t{etl}")
    commit_keys(m, "one", 9, "a")
    assert m.begin("one", 8, {"token": "u", "fingerprints": "own"}, rerun=True, time_is_given=True).etl == 7


def test_forget_takes_a_batch_out_and_says_who_relied_on_it(open_manifest):
    m = open_manifest()
    commit_keys(m, "one", 0, "a")
    commit_keys(m, "two", 0, "b", dropped_for={"one": 3, "three": 0})
    assert m.relying_on("one") == m.forget("one") == m.forget("one") == ["two"]
    assert states_of(m) == {"one": "forgotten", "two": "committed"} and known_keys(m, 0, "a", "b") == {"two"}
    again = begin(m, "one")
    assert not again.rerun and m.known(again, ["b"]).keys == {"two"}
    with pytest.raises(ManifestError, match="Batch one is claimed, not committed"):
        m.forget("one")
    with pytest.raises(BusyError, match="Batch one is claimed by .* dedup abandon one --output DIR --yes"):
        m.forget("two")
    with pytest.raises(ManifestError, match="no batch tow; it has 2: .*Did you mean two"):
        m.forget("tow")


def test_abandon_ends_an_open_claim_unless_others_yielded_to_it(open_manifest, store):
    m = open_manifest()
    store.exclusive = False
    begin(m, "one", token="t1")
    commit_keys(m, "two", 0, dropped_for={"one": 1})
    with pytest.raises(ManifestError, match="two dropped rows in its favour.*--force"):
        m.abandon("one")
    assert m.abandon("one", force=True) == ["two"] and states_of(m)["one"] == "abandoned"
    for batch in ("one", "two"):
        with pytest.raises(ManifestError, match="no open claim to abandon"):
            m.abandon(batch)
    begin(m, "two", rerun=True)
    m.abandon("two")
    assert states_of(m)["two"] == "committed"


def test_a_change_by_hand_that_meets_a_run_does_nothing(open_manifest, store):
    m, checked = open_manifest(), []
    commit_keys(m, "old", 0, "a")
    append = store.append

    def late(marker):
        if not checked.append(marker) and len(checked) == 1:
            begin(open_manifest(), "late", 400 * DAY, token="late")
        return append(marker)

    for act in (lambda: m.expire(400 * DAY), lambda: m.forget("old")):
        checked.clear()
        store.append = late
        with pytest.raises(BusyError, match="at the same moment, so nothing was done"):
            act()
        store.append = append
        assert states_of(m) == {"old": "committed", "late": "claimed"} and store.keys["old"] == {"a"}
        m.abandon("late")


# --- time


@pytest.mark.parametrize(
    "etl, at, seen",
    [
        (0, 10 * DAY, True),
        (0, 10 * DAY + 1, False),
        (10 * DAY, 0, True),  # late, but not too late
        (None, 9 * 10**12, True),
        (0, None, True),
        (253_402_300_799, 0, True),  # 9999-12-31
        (0, 253_402_300_799, False),
        (-62_135_596_800 - DAY, -62_135_596_800, True),  # before year 1
        (10**13, 10**13 + 10 * DAY, True),
        (10**13, 10**13 + 10 * DAY + 1, False),
    ],
)
def test_a_pair_lives_to_the_second_by_the_times_of_the_batches(open_manifest, etl, at, seen):
    m = open_manifest()
    commit_keys(m, "one", etl, "a")
    assert known_keys(m, at, "a") == ({"one"} if seen else set())
    assert m.lives_at(m.ledger().entries["one"], at) == seen
    if at is not None:
        assert m.expirable(at) == ([] if seen else ["one"])
    commit_keys(m, "two", at)  # whatever the times are, the next batch can run
    assert begin(m, "three", 0, token="u").seq == 5 and minute(etl) and minute(at)


def test_expire_removes_what_nobody_can_see_and_refuses_batches_that_could_have(open_manifest, store):
    m = open_manifest()
    for batch, etl in (("one", 0), ("two", 30 * DAY), ("timeless", None)):
        commit_keys(m, batch, etl, batch)
    assert m.expire(10 * DAY) == [] and m.expire(30 * DAY) == ["one"] and m.expire(30 * DAY) == []
    assert store.keys == {"one": set(), "two": {"two"}, "timeless": {"timeless"}}
    with pytest.raises(
        ManifestError, match=r"Batch late \(1970-01-11 00:00\) is so old .* pairs of one, which"
    ):
        begin(m, "late", 10 * DAY)  # fmt: skip
    assert begin(open_manifest(force=True), "forced", 10 * DAY).seq
    m.abandon("forced")
    assert begin(m, "one", 5, rerun=True).etl == 0  # it sees what it saw
    m.abandon("one")
    assert begin(m, "just not", 10 * DAY + 1).seq
    m.abandon("just not")
    with pytest.raises(BusyError):
        begin(m, "open", 90 * DAY)
        m.expire(90 * DAY)
    with pytest.raises(BusyError):  # though nothing is to go: the table would be put in order
        m.expire(0)


def test_a_rerun_is_as_old_as_it_was_the_first_time(open_manifest):
    "What it saw then is gone by now: whatever time is found for it today, and if it has none."
    m = open_manifest()
    for batch, etl in (("one", 0), ("two", 10 * DAY), ("timeless", None)):
        commit_keys(m, batch, etl, "a")
    assert m.expire(30 * DAY) == ["one", "two"]
    refused = {
        "two": r"\(1970-01-11 00:00\) is so old that it would have seen the pairs of one, which are expired",
        "timeless": "has no time, and has seen the pairs of one, two, which are expired .*--force",
    }
    for batch, words in refused.items():
        for found in (None, 400 * DAY):
            with pytest.raises(ManifestError, match=f"Batch {batch} {words}"):
                begin(m, batch, found, rerun=True)
    assert begin(open_manifest(force=True), "timeless", None, rerun=True).rerun
    m.abandon("timeless")
    assert begin(m, "another", None).seq  # it never saw them


def test_an_expire_that_was_killed_is_finished_by_the_next(open_manifest, store):
    m, expire = open_manifest(), store.expire
    commit_keys(m, "one", 0, "a")
    store.expire = lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        m.expire(30 * DAY)
    store.expire = expire
    assert (
        store.keys["one"] == {"a"} and open_manifest().expire(30 * DAY) == [] and store.keys["one"] == set()
    )


# --- the recipe


def test_another_recipe_is_refused_with_the_difference_and_forced_on_request(open_manifest, store):
    week = {**RECIPE, "retention_days": 7}
    begin(open_manifest(recipe=week), "one", token="u")
    open_manifest().give_up("one", "u")
    commit_keys(open_manifest(), "one", 0)  # what failed binds nobody
    with pytest.raises(RecipeError, match="retention_days was 10, is now 7.*or go on with --force") as wrong:
        begin(open_manifest(recipe=week), "two")
    assert wrong.value.exit_code == 2 and "a dictionary" in str(wrong.value)
    for force in (False, True):
        with pytest.raises(RecipeError, match="a rerun must give the same output"):
            begin(open_manifest(force, week), "one", rerun=True)
    commit_keys(open_manifest(True, week), "two", 0)
    assert (
        open_manifest().ledger().recipe["retention_days"] == 7
        and commit_keys(open_manifest(recipe=week), "three", 0).seq
    )
    with pytest.raises(RecipeError, match="retention_days was 7, is now 10"):
        begin(open_manifest(), "four")
    assert states_of(open_manifest()) == dict.fromkeys(("one", "two", "three"), "committed")


def test_a_manifest_of_a_newer_format_is_refused(open_manifest, store):
    store.append(Marker(0, "recipe", "", {**RECIPE, "format": FORMAT + 1}))
    with pytest.raises(
        ManifestError, match=f"has format {FORMAT + 1}.*knows formats up to {FORMAT}.*Upgrade"
    ):
        begin(open_manifest(force=True), "one")  # fmt: skip

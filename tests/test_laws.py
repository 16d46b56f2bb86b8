"""What must hold for every frame: nothing is lost, nothing depends on the cluster, and the reference agrees."""
import json, random
from collections import Counter
from functools import reduce
import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st
from pyspark.sql import functions as F
import reference
from spread import INTERPRETED, configured
from dedup_nb.config import InputError, MissingColumnError
from dedup_nb.pipeline import deduplicate
from dedup_nb.synthetic import NAMESPACE

COLUMNS = ["event_id", "event_fingerprint", "etl_tstamp", "collector_tstamp", "app"]
FRAMES = ["kept", "dropped", "bad", "verdicts"]
STRATEGIES = ["rename_later", "rename_all", "quarantine", "delete_all", "off"]
POLICIES = ["surrogate", "unique"]
T = ["2026-11-20T00:00:00.000000Z", "2026-11-20T00:00:00.000001Z", "2026-11-21T07:00:00.500000Z"]
JSON = {"ignoreNullFields": "false", "timeZone": "UTC", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
# no shrinking: each try is a Spark job; a failure names the ids that differ, and ids are independent of each other
law = lambda examples: settings(max_examples=examples, deadline=None, derandomize=True, database=None, phases=[Phase.explicit, Phase.generate],
                                suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module", autouse=True)
def interpreted(spark):
    with configured(spark, INTERPRETED): yield


def frame_of(spark, rows, columns=COLUMNS):
    texts = spark.createDataFrame([tuple(r[c] for c in columns) for r in rows], ", ".join(f"{c} string" for c in columns))
    return texts.withColumns({c: F.col(c).cast("timestamp") for c in columns if c.endswith("_tstamp")})


def rows_found(result):
    "The four frames as multisets of JSON texts, by one job."
    parts = [getattr(result, name).select(F.lit(name), F.to_json(F.struct("*"), JSON)) for name in FRAMES]
    found = {name: Counter() for name in FRAMES}
    for name, text in reduce(lambda a, b: a.union(b), parts).collect(): found[name][text] += 1
    return found


def rows_expected(rows, columns=COLUMNS, **chosen):
    content = [c for c in columns if c not in ("event_id", "event_fingerprint", "etl_tstamp", "collector_tstamp", "original_event_id")]
    outcome = reference.deduplicate(rows, namespace=NAMESPACE, row_hash=lambda r: reference.sha256_of(r, columns),
                                    surrogate=lambda r: "surrogate-" + reference.sha256_of(r, content), **chosen)
    text = lambda row: json.dumps(row, ensure_ascii=False, separators=(",", ":"))
    return {name: Counter(map(text, getattr(outcome, name))) for name in FRAMES}


def assert_agrees(found, expected, rows=()):
    for name in FRAMES:
        missing, extra = list((expected[name] - found[name]).elements()), list((found[name] - expected[name]).elements())
        ids = {json.loads(t).get("event_id") for t in missing + extra} | {json.loads(t).get("original_event_id") for t in missing + extra}
        assert not missing and not extra, "\n".join([f"{name} lacks:", *missing[:5], f"{name} has instead:", *extra[:5], "rows of these ids:",
                                                     *[str(r) for r in rows if r["event_id"] in ids][:20]])


def ids_of(found): return Counter({i: n for text, n in found["kept"].items() for i in [json.loads(text)["event_id"]]})


def crowded(seed, size=300):
    "Rows full of ties: some ids with one pair, some with many, equal rows, and every kind of missing value."
    pick = random.Random(seed)
    ids = [None, ""] + [f"id{i}" for i in range(45)] + ["ID1", " ", "é\"\\\n"] + ["hot"] * 9
    rows = [dict(zip(COLUMNS, (pick.choice(ids), pick.choice([None, "", "f", "g", "F"]), pick.choice([None, *T]), pick.choice([None, *T[:2]]),
                               pick.choice([None, "", "x", "ÿ\t\"\\\u0001/"])))) for _ in range(size)]
    return rows + pick.sample(rows, size // 5)


event = st.builds(lambda *values: dict(zip(COLUMNS, values)), st.sampled_from([*"abcdefgh", None, ""]), st.sampled_from(["f", "g", None, "", "="]),
                  st.sampled_from([T[0], T[1], None]), st.sampled_from([T[0], T[1], None]), st.sampled_from(["x", "y", None, ""]))
# a drawn frame comes on top of a small fixed one, so that the simplest draw is not an empty example
frames = st.lists(event, min_size=10, max_size=40).flatmap(lambda rows: st.lists(st.sampled_from(rows), max_size=20).map(lambda again: rows + again + crowded(1, 40)))
choices = st.fixed_dictionaries({}, optional={"synthetic": st.sampled_from(STRATEGIES), "missing_fingerprint": st.sampled_from(POLICIES),
                                              "compat": st.sampled_from(["none", "snowplow"]), "batch_id": st.just("b1")})


CASES = [dict(synthetic=s, missing_fingerprint=p, compat=("none", "snowplow")[(i + j) % 2]) for i, s in enumerate(STRATEGIES) for j, p in enumerate(POLICIES)]
CASES += [dict(compat="snowplow", batch_id="2026-11-20"), dict(natural="off", synthetic="off")]
every_case = pytest.mark.parametrize("chosen", CASES, ids=lambda c: "-".join(c.values()))


@pytest.fixture(scope="module")
def outcome(spark):
    "Each case is worked out once, for all the laws that read it."
    done = {}
    def of(chosen):
        case = CASES.index(chosen)
        if case not in done:
            rows = crowded(case)
            done[case] = rows, rows_found(deduplicate(frame_of(spark, rows), **chosen))
        return done[case]
    return of


@pytest.mark.long
@every_case
def test_a_crowded_frame_agrees_with_the_reference(outcome, chosen):
    rows, found = outcome(chosen)
    assert_agrees(found, rows_expected(rows, **chosen), rows)


@every_case
def test_rows_in_are_kept_dropped_or_bad(outcome, chosen):
    rows, found = outcome(chosen)
    columns = lambda text: tuple(v for c, v in json.loads(text).items() if c in COLUMNS and c != "event_id")
    out = Counter(columns(text) for name in ("kept", "dropped", "bad") for text in found[name].elements())
    assert out == Counter(tuple(r[c] for c in COLUMNS[1:]) for r in rows)


@pytest.mark.parametrize("chosen", [c for c in CASES if c.get("synthetic") != "off"], ids=lambda c: "-".join(c.values()))
def test_ids_in_kept_are_unique_under_every_strategy_but_off(outcome, chosen):
    _, found = outcome(chosen)
    assert len(ids_of(found)) == sum(found["kept"].values())


@law(5)
@given(rows=frames, chosen=choices)
def test_any_frame_under_any_settings_agrees_with_the_reference(spark, rows, chosen):
    assert_agrees(rows_found(deduplicate(frame_of(spark, rows), **chosen)), rows_expected(rows, **chosen), rows)


@pytest.mark.parametrize("partitions", [1, 2, pytest.param(7, marks=pytest.mark.long), pytest.param(50, marks=pytest.mark.long)])
@law(2)
@given(rows=frames, chance=st.integers(0, 99), policy=st.sampled_from(POLICIES))
def test_partitions_and_row_order_do_not_matter(spark, rows, chance, policy, partitions):
    chosen, shuffled = dict(missing_fingerprint=policy), random.Random(chance).sample(rows, len(rows))
    with configured(spark, {"spark.sql.shuffle.partitions": str(min(partitions, 5))}):
        found = rows_found(deduplicate(frame_of(spark, shuffled).repartition(partitions), **chosen))
    assert_agrees(found, rows_expected(rows, **chosen), rows)


@pytest.mark.parametrize("zone, ansi", [("America/New_York", "true"), ("Asia/Kolkata", "false")])
def test_time_zone_and_ansi_mode_do_not_matter(spark, zone, ansi):
    rows = crowded(20, 100)
    with configured(spark, {"spark.sql.session.timeZone": zone, "spark.sql.ansi.enabled": ansi}):
        found = rows_found(deduplicate(frame_of(spark, rows)))
    assert_agrees(found, rows_expected(rows), rows)


@pytest.mark.parametrize("chosen", [dict(), dict(compat="snowplow"), dict(synthetic="off"), dict(synthetic="quarantine", missing_fingerprint="unique")],
                         ids=lambda c: "-".join(c.values()) or "defaults")
@pytest.mark.long
def test_kept_of_kept_is_kept_and_nothing_is_dropped(spark, chosen):
    columns = [*COLUMNS, "original_event_id"]
    rows = crowded(30, 100)
    kept = [json.loads(t) for t in rows_expected(rows, **chosen)["kept"].elements()]
    again = rows_found(deduplicate(frame_of(spark, kept, columns), **chosen))
    assert not again["dropped"] and not again["bad"]
    if chosen.get("synthetic") != "off": assert not again["verdicts"]
    text = lambda row: json.dumps(row, ensure_ascii=False, separators=(",", ":"))
    assert again["kept"] == Counter(map(text, kept))


def values_of(found): return {name: sorted((tuple(json.loads(t).values()) for t in found[name].elements()), key=str) for name in FRAMES}


def table(spark, rows, **chosen):
    "Literal rows (id, fingerprint, order, content) in, the four frames out as sorted tuples; `dedup` as a tuple of its values."
    events = spark.createDataFrame(rows, "event_id string, event_fingerprint string, n int, app string")
    found = values_of(rows_found(deduplicate(events, order_by="n", **chosen)))
    found["dropped"] = [(*row, tuple(dedup.values())) for *row, dedup in found["dropped"]]
    return found


def new(event_id, name): return str(reference.uuid5(NAMESPACE, f"{event_id}/{name}"))


@pytest.mark.parametrize("strategy", ["rename_all", "delete_all"])
def test_ids_with_one_pair_keep_their_first_copy_under_every_strategy(spark, strategy):
    found = table(spark, [("once", "f", 1, "x"), ("twice", "f", 2, "x"), ("twice", "f", 1, "y"), ("twice", "f", None, "z"), (None, "f", 1, "x"), ("", "f", 1, "x")],
                  synthetic=strategy)
    assert found == {
        "kept": [("once", "f", 1, "x", None), ("twice", "f", 1, "y", None)],
        "dropped": [("twice", "f", 2, "x", ("natural", "twice", None)), ("twice", "f", None, "z", ("natural", "twice", None))],
        "bad": [("", "f", 1, "x"), (None, "f", 1, "x")],
        "verdicts": [("twice", "f", 3, "keep_first", "natural", None, None)]}


COLLISION = [("a", "f", 1, "x"), ("a", "g", 2, "y"), ("a", "g", 3, "z"), ("b", "f", 1, "x"), ("b", "f", 2, "y"), ("b", "g", 3, "z")]


def test_rename_later_keeps_the_first_pair_and_renames_the_later_ones(spark):
    ag, bg = new("a", "g"), new("b", "g")
    found = table(spark, COLLISION, batch_id="day1")
    assert found == {
        "kept": sorted([("a", "f", 1, "x", None), (ag, "g", 2, "y", "a"), ("b", "f", 1, "x", None), (bg, "g", 3, "z", "b")], key=str),
        "dropped": [("a", "g", 3, "z", ("natural", ag, "day1")), ("b", "f", 2, "y", ("natural", "b", "day1"))],
        "bad": [],
        "verdicts": [("a", "f", 1, "keep_first", "synthetic", None, None), ("a", "g", 2, "rename", "synthetic", ag, None),
                     ("b", "f", 2, "keep_first", "natural", None, None), ("b", "g", 1, "rename", "synthetic", bg, None)]}


def test_rename_all_renames_the_first_pair_too(spark):
    af, ag, bf, bg = new("a", "f"), new("a", "g"), new("b", "f"), new("b", "g")
    assert table(spark, COLLISION, synthetic="rename_all") == {
        "kept": sorted([(af, "f", 1, "x", "a"), (ag, "g", 2, "y", "a"), (bf, "f", 1, "x", "b"), (bg, "g", 3, "z", "b")], key=str),
        "dropped": [("a", "g", 3, "z", ("natural", ag, None)), ("b", "f", 2, "y", ("natural", bf, None))],
        "bad": [],
        "verdicts": [("a", "f", 1, "rename", "synthetic", af, None), ("a", "g", 2, "rename", "synthetic", ag, None),
                     ("b", "f", 2, "rename", "synthetic", bf, None), ("b", "g", 1, "rename", "synthetic", bg, None)]}


def test_quarantine_drops_the_later_pairs_with_all_their_copies(spark):
    assert table(spark, COLLISION, synthetic="quarantine") == {
        "kept": [("a", "f", 1, "x", None), ("b", "f", 1, "x", None)],
        "dropped": [("a", "g", 2, "y", ("synthetic", None, None)), ("a", "g", 3, "z", ("natural", None, None)),
                    ("b", "f", 2, "y", ("natural", "b", None)), ("b", "g", 3, "z", ("synthetic", None, None))],
        "bad": [],
        "verdicts": [("a", "f", 1, "keep_first", "synthetic", None, None), ("a", "g", 2, "quarantine", "synthetic", None, None),
                     ("b", "f", 2, "keep_first", "natural", None, None), ("b", "g", 1, "quarantine", "synthetic", None, None)]}


def test_delete_all_drops_every_pair_of_the_id(spark):
    assert table(spark, COLLISION, synthetic="delete_all") == {
        "kept": [],
        "dropped": [("a", "f", 1, "x", ("synthetic", None, None)), ("a", "g", 2, "y", ("synthetic", None, None)), ("a", "g", 3, "z", ("natural", None, None)),
                    ("b", "f", 1, "x", ("synthetic", None, None)), ("b", "f", 2, "y", ("natural", None, None)), ("b", "g", 3, "z", ("synthetic", None, None))],
        "bad": [],
        "verdicts": [("a", "f", 1, "drop", "synthetic", None, None), ("a", "g", 2, "drop", "synthetic", None, None),
                     ("b", "f", 2, "drop", "synthetic", None, None), ("b", "g", 1, "drop", "synthetic", None, None)]}


def test_synthetic_off_treats_each_later_pair_as_if_it_were_alone(spark):
    assert table(spark, COLLISION, synthetic="off") == {
        "kept": [("a", "f", 1, "x", None), ("a", "g", 2, "y", None), ("b", "f", 1, "x", None), ("b", "g", 3, "z", None)],
        "dropped": [("a", "g", 3, "z", ("natural", "a", None)), ("b", "f", 2, "y", ("natural", "b", None))],
        "bad": [],
        "verdicts": [("a", "f", 1, "keep_first", "synthetic", None, None), ("a", "g", 2, "keep_first", "natural", None, None),
                     ("b", "f", 2, "keep_first", "natural", None, None)]}


def test_compat_snowplow_puts_null_etl_tstamp_first_renames_all_and_never_matches_missing_fingerprints(spark):
    rows = [dict(zip(COLUMNS, r)) for r in [("a", "f", T[0], T[0], "x"), ("a", "f", None, T[1], "y"), ("b", "f", T[0], None, "x"), ("b", "f", T[0], T[0], "y"),
                                            ("c", None, T[0], T[0], "x"), ("c", "", T[0], T[1], "x")]]
    stand_in = "surrogate-" + reference.sha256_of(rows[4], ["app"])
    c1, c2 = new("c", stand_in + "//1"), new("c", stand_in + "//2")
    found = values_of(rows_found(deduplicate(frame_of(spark, rows), compat="snowplow")))
    assert [(r[0], *r[2:]) for r in found["kept"]] == sorted([
        ("a", None, T[1], "y", None), ("b", T[0], T[0], "y", None), (c1, T[0], T[0], "x", "c"), (c2, T[0], T[1], "x", "c")], key=str)
    assert found["dropped"] == [("a", "f", T[0], T[0], "x", {"reason": "natural", "kept_event_id": "a", "kept_in_batch": None}),
                                ("b", "f", T[0], None, "x", {"reason": "natural", "kept_event_id": "b", "kept_in_batch": None})]
    assert found["verdicts"] == sorted([("a", "f", 2, "keep_first", "natural", None, None), ("b", "f", 2, "keep_first", "natural", None, None),
                                        ("c", stand_in, 1, "rename", "synthetic", c1, None), ("c", stand_in, 1, "rename", "synthetic", c2, None)], key=str)


@pytest.mark.long
@pytest.mark.parametrize("policy", POLICIES)
def test_a_surrogate_never_equals_a_real_fingerprint(spark, policy):
    rows = [("a", None, 1, "x"), ("a", "g", 2, "x")]
    stand_in = table(spark, rows, missing_fingerprint=policy)["verdicts"][-1][1]
    assert len(stand_in) > 64
    found = table(spark, [("a", None, 1, "x"), ("a", stand_in, 2, "x"), ("a", "=" + stand_in, 3, "x")], synthetic="rename_all", missing_fingerprint=policy)
    assert found["dropped"] == []
    assert len({row[0] for row in found["kept"]}) == 3


def test_ids_and_fingerprints_with_a_slash_do_not_share_a_new_id(spark):
    found = table(spark, [("a", "f", 1, "x"), ("a", "b/c", 2, "x"), ("a/b", "f", 1, "x"), ("a/b", "c", 2, "x")])
    assert len({row[0] for row in found["kept"]}) == 4


def test_a_renamed_event_carries_its_original_id_and_the_duplicate_context(spark):
    rows = spark.createDataFrame([("a", "f", 1, "first", None), ("a", "g", 2, None, ""), ("a", "h", 3, "before", '{"schema":"s/1-0-1","data":[{"k":1}]}')],
                                 "event_id string, event_fingerprint string, n int, original_event_id string, derived_contexts string")
    found = values_of(rows_found(deduplicate(rows, order_by="n")))["kept"]
    by_n = {row[2]: row for row in found}
    duplicate = {"schema": "iglu:com.snowplowanalytics.snowplow/duplicate/jsonschema/1-0-0", "data": {"originalEventId": "a"}}
    assert by_n[1] == ("a", "f", 1, "first", None)
    assert by_n[2][:4] == (new("a", "g"), "g", 2, "a")
    assert json.loads(by_n[2][4])["data"] == [duplicate]
    assert by_n[3][:4] == (new("a", "h"), "h", 3, "before")
    assert json.loads(by_n[3][4]) == {"schema": "s/1-0-1", "data": [duplicate, {"k": 1}]}


ODD_KINDS = """map('b', n, 'a', 1) as m, array(n, null) as `a list`, named_struct('x', n, 'y.z', map(1, cast(null as string))) as `A.Struct`,
    array(named_struct('m', map('k', array(n)))) as deep, cast('é' as binary) as bin, cast(n as decimal(38, 10)) as DEC, date'2026-11-20' as day,
    cast('NaN' as double) as ratio, timestamp_ntz'2026-03-29 02:30:00' as local, n > 1 as `is it`, cast(null as map<string,int>) as none, 'r' as reason"""


@pytest.mark.parametrize("policy", POLICIES)
def test_columns_of_any_kind_and_name_pass_untouched(spark, policy):
    ids = "values ('a', 'f', 1), ('b', 'f', 1), ('b', 'f', 2), ('c', null, 1), ('c', null, 2), ('c', null, 2) as t(`the.id`, `My Print`, n)"
    events = spark.sql(f"select *, {ODD_KINDS} from {ids}")
    result = deduplicate(events, event_id="the.id", event_fingerprint="My Print", order_by="DEC", missing_fingerprint=policy)
    assert result.kept.columns == [*events.columns, "original_event_id"]
    assert [f.dataType for f in result.kept.schema][:-1] == [f.dataType for f in events.schema]
    read, out = events.collect(), [(row["the.id"], row["original_event_id"], row) for row in result.kept.collect()] + [(row["the.id"], None, row) for row in result.dropped.collect()]
    shown = lambda event_id, row: repr((event_id, *row[1:len(events.columns)]))
    assert Counter(shown(original or i, row) for i, original, row in out) == Counter(shown(row[0], row) for row in read)
    assert len(result.dropped.columns) == len(events.columns) + 1


def test_maps_that_differ_only_in_the_order_of_their_entries_are_equal(spark):
    events = spark.sql("select 'a' as event_id, map_from_arrays(k, transform(k, x -> 1)) as m from values (array('x', 'y')), (array('y', 'x')) as t(k)")
    result = deduplicate(events)
    assert [row["m"] for row in result.kept.collect()] == [{"x": 1, "y": 1}]
    assert [(v["copies"], v["verdict"], v["reason"]) for v in result.verdicts.collect()] == [(2, "keep_first", "natural")]


@pytest.mark.parametrize("strategy, kept", [("off", [(7, "f", 1, None), (7, "g", 2, None)]), ("quarantine", [(7, "f", 1, None)])])
def test_numeric_ids_keep_their_type_where_nothing_is_renamed(spark, strategy, kept):
    events = spark.createDataFrame([(7, "f", 1), (7, "g", 2), (7, "f", 3), (None, "f", 4)], "event_id bigint, event_fingerprint string, n int")
    result = deduplicate(events, synthetic=strategy, order_by="n")
    assert result.kept.schema["event_id"].dataType == events.schema["event_id"].dataType
    found = values_of(rows_found(result))
    assert found["kept"] == kept
    assert found["bad"] == [(None, "f", 4)]
    assert found["verdicts"][0][:2] == ("7", "f")


def test_numeric_ids_cannot_be_renamed(spark):
    events = spark.createDataFrame([(7, "f")], "event_id bigint, event_fingerprint string")
    with pytest.raises(InputError, match="event_id, which is bigint, not string.*synthetic=quarantine or off"): deduplicate(events)


def test_an_empty_frame_gives_four_empty_frames_of_the_same_shape(spark):
    result = deduplicate(frame_of(spark, []))
    assert not any(rows_found(result).values())
    assert result.kept.columns == [*COLUMNS, "original_event_id"]
    assert result.dropped.select("dedup.*").columns == ["reason", "kept_event_id", "kept_in_batch"]
    assert result.bad.columns == COLUMNS
    assert result.verdicts.columns == ["event_id", "event_fingerprint", "copies", "verdict", "reason", "new_event_id", "seen_in_batch"]


@pytest.mark.parametrize("name", ["dedup", "_dd_x"])
def test_columns_named_like_ours_are_refused(spark, name):
    with pytest.raises(InputError, match=f"{name}, a name this package adds itself. Rename it"):
        deduplicate(spark.createDataFrame([("a", 1)], f"event_id string, {name} int"))


@pytest.mark.parametrize("name", ["DEDUP", "_DD_x", "Original_Event_Id"])
def test_columns_that_differ_from_ours_only_in_case_are_refused(spark, name):
    with pytest.raises(InputError, match=name):
        deduplicate(spark.createDataFrame([("a", "1")], f"event_id string, {name} string"))


@pytest.mark.parametrize("chosen, words", [
    ({}, ["event_id", "evnt_id, fp, at", "Did you mean evnt_id?"]),
    ({"event_id": "evnt_id", "event_fingerprint": "fpp"}, ["needs fpp", "evnt_id, fp, at", "Did you mean fp?"]),
    ({"event_id": "evnt_id", "order_by": "att"}, ["needs att", "evnt_id, fp, at", "Did you mean at?"]),
    ({"event_id": "evnt_id", "fingerprint_columns": "fp,fpx"}, ["needs fpx", "evnt_id, fp, at", "Did you mean fp?"]),
], ids=["id", "fingerprint", "order", "fingerprint_columns"])
def test_a_missing_column_is_named_with_what_is_there_and_the_nearest(spark, chosen, words):
    with pytest.raises(MissingColumnError) as error: deduplicate(spark.createDataFrame([], "evnt_id string, fp string, at timestamp"), **chosen)
    for word in words: assert word in str(error.value)


@pytest.mark.parametrize("kind", ["array<int>", "map<string,int>", "struct<a:int>", "binary", "boolean"])
def test_an_order_column_without_an_order_in_time_is_refused(spark, kind):
    with pytest.raises(InputError) as error: deduplicate(spark.createDataFrame([], f"event_id string, etl_tstamp {kind}"))
    for word in ["etl_tstamp", kind, "wanted a timestamp, date, number or string", "order_by"]: assert word in str(error.value)

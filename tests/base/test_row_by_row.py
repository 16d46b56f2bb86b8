"""What a row is follows from the row alone: its id, its surrogate, its place in the order."""

import random
import re
from datetime import date, datetime, timedelta
from decimal import Decimal

import pytest
from pyspark.sql import functions as F
from runs import committed, go
from spread import configured

from dedup_nb.base.config import Input, Output, Recipe
from dedup_nb.base.errors import InputError, MissingColumnError, OutputError
from dedup_nb.formats.batches import find_batches
from dedup_nb.formats.reading import read_batch
from dedup_nb.pipeline.write import check_columns_fit
from dedup_nb.rules.deduplicate import deduplicate
from dedup_nb.rules.keys import fit, ids_of, with_ids, with_keys

# --- any subset, any widening, any order of columns --------------------------------------------------------


NARROW = {  # the type in one batch -> types that another batch may have it in
    "int": ["bigint", "double", "decimal(20,2)"],
    "float": ["double"],
    "double": ["double"],
    "decimal(10,2)": ["decimal(14,4)", "decimal(38,10)", "double"],
    "decimal(30,12)": ["decimal(38,20)"],
    "date": ["timestamp_ntz", "timestamp"],
    "timestamp_ntz": ["timestamp"],
    "string": ["string"],
    "binary": ["binary"],
    "boolean": ["boolean"],
    "array<int>": ["array<double>", "array<bigint>"],
    "struct<a:int,b:string>": ["struct<b:string,z:double,a:bigint>", "struct<b:string,a:decimal(12,3)>"],
    "map<string,int>": ["map<string,double>"],
    "array<struct<d:decimal(4,1),t:date>>": ["array<struct<t:timestamp,n:int,d:double>>"],
}
_EPOCH = datetime(2026, 3, 29, 1, 30)


def value_of(kind, pick):
    if pick.random() < 0.2:
        return None
    number = pick.choice([0, 1, -1, 10, 25, 7, 100])
    return {
        "int": lambda: number,
        "float": lambda: pick.choice([0.5, -0.0, 10.0, 0.1]),
        "double": lambda: pick.choice([0.1, 1e300, float("nan"), -0.0, 2.0**60, 1 / 3]),
        "decimal(10,2)": lambda: Decimal(number) / 4,
        "decimal(30,12)": lambda: Decimal("1234567890123456.000000000001") * number,
        "date": lambda: date(2026, 3, 29) - timedelta(days=number),
        "timestamp_ntz": lambda: _EPOCH + timedelta(microseconds=number),
        "string": lambda: pick.choice(["", "x", "é", "1.0", "\u0000", '"\\']),
        "binary": lambda: bytes([number & 255, 255]),
        "boolean": lambda: number > 0,
        "array<int>": lambda: [number, None, 2],
        "struct<a:int,b:string>": lambda: (number, pick.choice([None, "b"])),
        "map<string,int>": lambda: dict(pick.sample([("k", number), ("l", 2), ("m", None)], 3)),
        "array<struct<d:decimal(4,1),t:date>>": lambda: [(Decimal(number) / 2, None), None],
    }[kind]()


def widened(name, narrow, wide):
    "SQL that gives a column its other type."
    if narrow.startswith("struct"):
        kinds = [f.split(":") for f in re.findall(r"\w+:[a-z]+(?:\(.*?\))?", wide)]
        members = ", ".join(
            f"'{m}', cast({'null' if m == 'z' else f'{name}.{m}'} as {kind})" for m, kind in kinds
        )
        return f"if({name} is null, null, named_struct({members}))"
    if "struct" in narrow:
        item = "named_struct('t', cast(x.t as timestamp), 'n', cast(null as int), 'd', cast(x.d as double))"
        return f"transform({name}, x -> if(x is null, null, {item}))"
    return f"cast({name} as {wide})"


def keys_found(frame, recipe):
    "What each row is, by its number `n`."
    keys = fit(recipe, frame.schema)
    keyed = with_keys(with_ids(frame, keys).where("_dd_id is not null"), keys)
    return {
        r.n: (r._dd_id, r._dd_fp, r.row)
        for r in keyed.selectExpr("n", "_dd_id", "_dd_fp", "_dd_at.row").collect()
    }


def check_world(spark, seed):
    pick = random.Random(seed)
    kinds = {f"c{i}": kind for i, kind in enumerate(pick.choices([*NARROW], k=6))}
    first = pick.choice([k for k in NARROW if k not in ("boolean",)])  # the id
    rows = [(value_of(first, pick), *(value_of(kind, pick) for kind in kinds.values())) for _ in range(12)]
    rows = [(n, *row) for n, row in enumerate([*rows, *rows[:4]])]
    schema = ", ".join(f"{name} {kind}" for name, kind in {"n": "int", "i": first, **kinds}.items())
    narrow = spark.createDataFrame(rows, schema)
    recipe = Recipe(
        event_id=("i",), missing_fingerprint="surrogate", fingerprint_columns=tuple(kinds), synthetic="off"
    )
    expected = keys_found(narrow, recipe)
    columns = {"n": "n"} | {c: widened(c, kind, pick.choice(NARROW[kind])) for c, kind in kinds.items()}
    columns["i"] = widened("i", first, pick.choice(NARROW[first]))
    nulls = [f"cast(null as {kind}) as more{i}" for i, kind in enumerate(pick.sample([*NARROW], 2))]
    selected = pick.sample([*(f"{sql} as {name}" for name, sql in columns.items()), *nulls], len(columns) + 2)
    some = set(pick.sample(range(len(rows)), pick.randint(1, len(rows))))
    wide = narrow.selectExpr(*selected).where(F.col("n").isin(*some)).repartition(pick.randint(1, 3))
    found = keys_found(wide, recipe)
    assert found == {n: key for n, key in expected.items() if n in some}, (seed, schema, selected)


@pytest.mark.parametrize("seeds", [range(6)])
def test_a_row_is_the_same_in_any_batch_with_any_types_and_columns(spark, seeds):
    with configured(spark, {"spark.sql.session.timeZone": "UTC"}):
        for seed in seeds:
            check_world(spark, seed)


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(6, 26), marks=pytest.mark.slow),
        pytest.param(range(26, 306), marks=pytest.mark.soak),
    ],
    ids=len,
)
def test_many_random_frames(spark, seeds):
    with configured(spark, {"spark.sql.session.timeZone": "UTC"}):
        for seed in seeds:
            check_world(spark, seed)


# --- lines of JSON -----------------------------------------------------------------------------------------


def json_keys(spark, folder, lines, recipe, name):
    "What each line is: the keys of a batch that has these lines."
    (folder / name).mkdir()
    (folder / name / "a.json").write_text("\n".join(lines))
    place = Input(str(folder / name), "json")
    [batch] = find_batches(place).batches
    source = read_batch(spark, batch, place, recipe, ids_of(recipe))
    keys = fit(recipe, source.schema)
    rows = source.decode(source.raw).where("_dd_good").drop("_dd_look")
    keyed = with_keys(rows, keys).selectExpr("_dd_line", "_dd_id", "_dd_fp", "_dd_at.row")
    return {r._dd_line: (r._dd_id, r._dd_fp, r.row) for r in keyed.collect()}


LINES = [
    '{"id": 1, "v": 10, "p": {"a": 1, "b": null}}',
    '{"id": "1", "v": 10.5, "p": {"b": 2, "a": 1}}',
    '{"id": 1.50, "v": 9007199254740993, "p": "text"}',
    '{"id": 12345678901234567890123456789012345678901, "v": 1e2, "p": [1, {"x": null}]}',
    '{"id": 9007199254740993, "v": "10", "p": {"c": {"d": 1.0}}}',
    '{"id": 9007199254740992, "v": true, "p": null}',
    '{"id": "2026-03-29T00:30:00Z", "v": "2026-03-29", "q": 1}',
    '{"id": {"x": 1, "w": 2}, "v": 0.1}',
    '{"id": "a", "v": 123456789012345678901234567890.123456789012345678901234567890}',
]


@pytest.mark.slow
def test_a_time_needs_no_seconds_and_a_column_may_have_any_name(spark):
    times = ["2026-03-29T02:00:00Z", "2026-03-29T02:30", "2026-03-29T04:45+02:00", "2026-03-29T03:00"]
    rows = [("a", t, (t,)) for t in times]
    frame = spark.createDataFrame(rows, "event_id string, p string, q struct<real: string>")
    for name in ("p", "q.real"):
        for order, first in ((name, times[0]), (f"{name} desc", times[-1])):
            kept = deduplicate(frame, order_by=order, missing_fingerprint="id").kept
            assert [r.p for r in kept.collect()] == [first], order


def test_text_of_a_line_stays_whatever_marks_its_strings(spark, tmp_path):
    lines = [
        "{'id':'a','v':'x:1e5'}",
        "{'id':'a','v':'x:100000'}",
        '{"id":1e400,"v":1}',
        '{"id":1e401,"v":1}',
    ]
    (tmp_path / "a.json").write_text("\n".join(lines))
    place, recipe = Input(str(tmp_path), "json"), Recipe(event_id=("id",), fingerprint_columns=("v",))
    [batch] = find_batches(place).batches
    source = read_batch(spark, batch, place, recipe, ids_of(recipe))
    rows = source.decode(source.raw)
    found = with_keys(rows, fit(recipe, source.schema)).collect()
    assert len({r._dd_fp for r in found if r.id == "a"}) == 2
    assert sorted(len(r.id) for r in found) == [1, 1, 5, 401]  # 1e401 is short


@pytest.mark.slow
def test_a_line_is_the_same_whatever_lines_stand_beside_it(spark, tmp_path):
    recipe = Recipe(
        event_id=("id",), missing_fingerprint="surrogate", fingerprint_columns=("v", "p"), synthetic="off"
    )
    ids = {}
    for number in range(12):
        some = random.Random(number).sample(LINES, 3)
        if not any('"p"' in line for line in some):
            continue
        for line, key in json_keys(spark, tmp_path, some, recipe, f"w{number}").items():
            assert ids.setdefault(line, key) == key, line
    assert [ids[line][0] for line in LINES if line in ids] == [
        found
        for line, found in zip(
            LINES,
            [
                "1",
                "1",
                "1.5",
                "12345678901234567890123456789012345678901",
                "9007199254740993",
                "9007199254740992",
                "2026-03-29T00:30:00Z",
                '{"w":2,"x":1}',
                "a",
            ],
        )
        if line in ids
    ]


SAME_LINES = [
    '{"id": "a", "v": 10, "p": {"x": 1, "y": [1, 2.50]}}',
    '{"p": {"y": [1.0, 2.5], "x": 1.0, "z": null}, "v": 1e1, "id": "a", "gone": null}',
    '{ "v":10.00,"id":"\\u0061","p":{"z":null,"x":1e0,"y":[1,25e-1]} }',
]


def test_lines_that_say_the_same_are_copies(spark, tmp_path):
    recipe = Recipe(event_id=("id",), missing_fingerprint="surrogate", fingerprint_columns=("v", "p"))
    found = json_keys(spark, tmp_path, [*SAME_LINES, '{"id": "a", "v": 10, "p": "no object"}'], recipe, "in")
    assert len({found[line] for line in SAME_LINES}) == 1 and len({key[1] for key in found.values()}) == 2


@pytest.mark.parametrize("columns", [(), ("p",)])
def test_an_object_without_members_counts_whatever_stands_beside_it(spark, tmp_path, columns):
    line, *others = '{"id": "a", "p": {}}', '{"id": "b", "p": {"x": 1}}', '{"id": "b", "p": "text"}'
    recipe = Recipe(event_id=("id",), missing_fingerprint="surrogate", fingerprint_columns=columns)
    beside = {"alone": [], "object": others[:1], "text": others[1:]}
    found = {json_keys(spark, tmp_path, [line, *more], recipe, name)[line] for name, more in beside.items()}
    assert len(found) == 1


# --- names, nulls, originals -------------------------------------------------------------------------------


def kept_of(frame, **settings):
    result = deduplicate(frame, **settings)
    return sorted((r.n, r.original_event_id) for r in result.kept.collect()), result.dropped.count()


def test_a_field_of_a_struct_may_be_the_id_the_fingerprint_and_the_order(spark):
    rows = [(("a", "f", 2), 1), (("a", "f", 1), 2), (("a", "g", 3), 3), ((None, "g", 3), 4), (None, 5)]
    frame = spark.createDataFrame(rows, "detail struct<id: string, print: string, at: int>, n int")
    names = dict(event_id="detail.id", event_fingerprint="detail.print", order_by="detail.at")
    result = deduplicate(frame, **names)
    kept = {r.n: (r.detail.id, r.original_event_id) for r in result.kept.collect()}
    assert set(kept) == {2, 3} and kept[2] == ("a", None) and kept[3][1] == "a" and kept[3][0] != "a"
    assert sorted(r.n for r in result.bad.collect()) == [4, 5]
    with pytest.raises(MissingColumnError, match="needs detail.ids"):
        deduplicate(frame, event_id="detail.ids")


def test_a_dot_in_the_name_of_a_field_is_a_letter_of_it(spark):
    frame = spark.range(2).selectExpr("named_struct('b.c', 'x', 'd', id) as a")
    result = deduplicate(frame, event_id="a.b.c", fingerprint_columns="a.d", order_by="a.d")
    kept = [(r.a["b.c"], r.a.d, r.original_event_id) for r in result.kept.collect()]
    assert ("x", 0, None) in kept and [k[1:] for k in kept if k[0] != "x"] == [(1, "x")]


@pytest.mark.parametrize("null_in_id, kept, bad", [("bad", [1, 4], [2, 3, 5]), ("value", [1, 2, 4], [5])])
def test_null_may_be_a_value_of_one_of_several_columns_of_an_id(spark, null_in_id, kept, bad):
    rows = [("a", "x", 1), ("a", None, 2), ("a", None, 3), ("%", "x", 4), (None, None, 5)]
    frame = spark.createDataFrame(rows, "u string, s string, n int")
    chosen = dict(event_id=["u", "s"], synthetic="quarantine", order_by="n", null_in_id=null_in_id)
    result = deduplicate(frame, missing_fingerprint="id", **chosen)
    assert sorted(r.n for r in result.kept.collect()) == kept
    assert sorted(r.n for r in result.bad.collect()) == bad


@pytest.mark.slow
def test_an_original_id_of_the_input_is_a_column_like_any_other(spark):
    rows = [("r", "f", "p", 1), ("p", "f", None, 2), ("s", "f", "p", 3)]
    frame = spark.createDataFrame(
        rows, "event_id string, event_fingerprint string, original_event_id string, n int"
    )
    assert kept_of(frame, order_by="n") == ([(1, "p"), (2, None), (3, "p")], 0)


@pytest.mark.slow
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Europe/Berlin"])
def test_a_time_as_id_is_an_instant_in_any_zone(spark, zone):
    times = ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z"]
    with configured(spark, {"spark.sql.session.timeZone": zone}):
        frame = spark.createDataFrame([(t,) for t in times], "t string").selectExpr(
            "cast(t as timestamp) as at"
        )
        result = deduplicate(frame, event_id="at", synthetic="off")
        assert result.kept.count() == 4
        again = deduplicate(frame.union(frame), event_id="at", synthetic="quarantine")
        assert sorted(r.event_id for r in again.verdicts.collect()) == times


def test_binary_ids_and_text_that_is_no_utf_8_are_hex(spark):
    frame = spark.sql("select X'00ff10' as i union all select X'00ff10' union all select X'00ff11'")
    [verdict] = deduplicate(frame, event_id="i", synthetic="quarantine").verdicts.collect()
    assert (verdict.event_id, verdict.copies) == ("00ff10", 2)


COLLATED = "event_id string collate UTF8_LCASE, event_fingerprint string collate UTF8_LCASE, n int"


def test_collated_ids_are_told_apart_by_their_letters(spark):
    frame = spark.createDataFrame([("a", "f", 1), ("A", "f", 2), ("a", "f", 3), ("a", "F", 4)], COLLATED)
    result = deduplicate(frame, order_by="n")
    kept = {r.n: r.original_event_id for r in result.kept.collect()}
    assert kept == {1: None, 2: None, 4: "a"} and result.dropped.count() == 1


def test_the_id_in_kept_is_the_one_that_came(spark, tmp_path):
    (tmp_path / "in").mkdir()
    long = "12345678901234567890123456789012345678901"
    ids = ["9007199254740992", "9007199254740993", "1.5", long, '"x"']
    (tmp_path / "in/a.json").write_text("\n".join(f'{{"id": {i}, "n": {n}}}' for n, i in enumerate(ids)))
    go(spark, tmp_path, input_format="json", event_id="id", synthetic="quarantine", manifest="none")
    assert [r.id for r in committed(spark, tmp_path / "out", "in").orderBy("n").collect()] == [
        i.strip('"') for i in ids
    ]


def test_keys_that_differ_in_case_are_said_wherever_they_stand(spark, tmp_path):
    cases = {
        "top": ['{"id": "a", "userId": 1}', '{"id": "b", "userID": 2}', "userID, userId"],
        "inner": [
            '{"id": "a", "l": [{"p": {"x": 1}}]}',
            '{"id": "b", "l": [{"p": {"X": 1}}]}',
            "l.p.X, l.p.x",
        ],
    }
    for name, (one, other, said) in cases.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.json").write_text(f"{one}\n{other}\n")
        place = Input(str(tmp_path / name), "json")
        [batch] = find_batches(place).batches
        with pytest.raises(InputError, match=f"differ only in case: {said}. Rename one upstream"):
            read_batch(spark, batch, place, Recipe(event_id=("id",)), ids_of(Recipe(event_id=("id",))))


def test_text_with_a_collation_is_refused_where_it_cannot_be_written(spark):
    schema = spark.createDataFrame([], COLLATED).schema
    check_columns_fit(spark, schema, Output("/nowhere", "parquet"))
    with pytest.raises(OutputError, match="Delta takes no text with a collation, and event_id has one"):
        check_columns_fit(spark, schema, Output("/nowhere", "delta"))

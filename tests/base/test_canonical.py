"One value, one text, whatever its type and the session."

from functools import reduce

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from spread import configured

from dedup_nb.base.canonical import (
    Value,
    as_text,
    canonical_row,
    field_at,
    id_of_line,
    may_be_time,
    micros_of,
    parsed_line,
    parsed_members,
    values_of,
    with_value,
)
from dedup_nb.base.spark import JSON

MICROS = {  # SQL -> seconds since 1970, None: no time
    "timestamp'2026-11-20 10:00:00Z'": 1795168800,
    "timestamp_ntz'2026-11-20 10:00:00'": 1795168800,
    "date'2026-11-20'": 1795132800,
    "'2026-11-20 10:00:00'": 1795168800,
    "'2026-11-20T10:00:00Z'": 1795168800,
    "'2026-11-20T12:00:00+02:00'": 1795168800,
    "'2026-11-20'": 1795132800,
    "date_from_unix_date(2147483647)": None,
    "timestampadd(microsecond, -9223372036854775807, timestamp_ntz'1970-01-01')": None,
    "'no time'": None,
    "cast(null as string)": None,
    "7": None,
    "timestamp'9999-12-31 23:59:59Z'": 253402300799,
}


def test_times_of_any_type_are_the_same_instant_in_any_zone(spark):
    with configured(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
        names = {f"c{i}": sql for i, sql in enumerate(MICROS)}
        frame = spark.sql(f"select {', '.join(f'{sql} as {name}' for name, sql in names.items())}")
        found = frame.selectExpr(
            *(f"{micros_of(field_at(frame.schema, name))} as {name}" for name in names)
        ).first()
    assert {sql: found[name] for name, sql in names.items()} == {
        sql: seconds and seconds * 10**6 for sql, seconds in MICROS.items()
    }


def test_the_types_that_may_be_times_are_those_of_which_one_is_read():
    times = [T.TimestampType(), T.TimestampNTZType(), T.DateType(), T.StringType(), T.VariantType()]
    others = [T.LongType(), T.DoubleType(), T.DecimalType(9, 2), T.BinaryType(), T.ArrayType(T.DateType())]
    for kind in (*times, *others):
        is_read = "null as bigint" not in micros_of(Value("x", kind))
        assert may_be_time(kind) == is_read == (kind in times)


SAME = {
    "a whole number": ["10", "10L", "10.0D", "float(10)", "10.00", "cast(10 as decimal(38, 18))"],
    "zero": ["0", "0.0D", "-0.0D", "cast(0 as decimal(9, 3))", "double('-0')"],
    "another number": ["10.5D", "10.50", "float(10.5)", "cast(10.5 as decimal(38, 20))"],
    "a small one": ["1e-9D", "cast('0.000000001' as decimal(20, 10))"],
    "a large one": ["1e20D", "cast('1e20' as decimal(38, 0))"],
    "2^63": ["9223372036854775808D", "cast('9223372036854775808' as decimal(20, 0))"],
    "26 digits": ["-12345678901234567890123456D", "cast('-12345678901234568244756480' as decimal(32, 4))"],
    "2^60": ["double(1152921504606846976L)", "1152921504606846976L"],
    "an instant": [
        "timestamp_ltz'2026-03-29T00:30:00Z'",
        "timestamp_ltz'2026-03-29T01:30:00+01:00'",
        "timestamp_ntz'2026-03-29T00:30:00'",
    ],
    "an hour that a zone does not have": [
        "timestamp_ltz'2026-03-29T02:30:00Z'",
        "timestamp_ntz'2026-03-29T02:30:00'",
    ],
    "a long double": ["9.00000000000001e18D", "cast('9000000000000010240' as decimal(20, 0))"],
    "midnight": ["date'2026-03-29'", "timestamp_ntz'2026-03-29T00:00:00'"],
    "a map": ["map('a', 1, 'b', 2)", "map('b', 2L, 'a', 1.0D)"],
    "a struct": [
        "named_struct('a', 1, 'b', 'x')",
        "named_struct('b', 'x', 'a', 1.0D)",
        "named_struct('c', null, 'b', 'x', 'a', 1.0)",
    ],
    "an array": ["array(1, null)", "array(1.0D, null)", "array(null, 1)"][:2],
    "a variant": ['parse_json(\'{"b":1.0,"a":1e1,"c":null}\')', 'parse_json(\'{"a":10,"b":1}\')'],
}
OTHERS = [
    "9007199254740992L",
    "9007199254740993L",
    "cast('9007199254740992.5' as decimal(38, 2))",
    "0.1D",
    "0.1D + 0.2D",
    "double('NaN')",
    "double('Infinity')",
    "'10'",
    "'é'",
    "cast(X'ff' as string)",
    "'FF'",
    "array(1, 2)",
    "array(2, 1)",
    "array(12)",
    "named_struct('a', named_struct('b', 1))",
    "map('a', 1)",
    "date_from_unix_date(2147483647)",
    "date_from_unix_date(2147483646)",
    "timestampadd(microsecond, -9223372036854775807, timestamp_ntz'1970-01-01')",
]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Europe/Berlin"])
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_equal_values_have_one_text_and_different_values_have_two(spark, zone, ansi):
    values = [*(sql for sqls in SAME.values() for sql in sqls), *OTHERS]
    with configured(spark, {"spark.sql.session.timeZone": zone, "spark.sql.ansi.enabled": ansi}):
        frames = {sql: spark.range(1).select(F.expr(sql).alias("v")) for sql in values}
        told = [f.select(F.lit(sql), F.expr(canonical_row(f.schema))) for sql, f in frames.items()]
        texts = dict(map(tuple, reduce(DataFrame.union, told).collect()))
    assert {kind: len({texts[sql] for sql in sqls}) for kind, sqls in SAME.items()} == dict.fromkeys(SAME, 1)
    # a column has one kind, but for whole numbers and texts: there 10 is 10
    assert len({texts[sql] for sql in OTHERS}) == len(OTHERS)


DOTTED = (
    "n int, `a.b` struct<c: string>, ev struct<id: string, `http.url`: string, `x.y`: struct<`z.w`: string>>"
)
VALUES = {"n": "7", "a.b.c": "1", "ev.id": "2", "ev.http.url": "3", "ev.x.y.z.w": "4"}
LINE_OF_VALUES = '{"n":7,"a.b":{"c":"1"},"ev":{"id":"2","http.url":"3","x.y":{"z.w":"4"}}}'


def test_a_name_with_dots_leads_to_one_value_in_rows_and_in_lines(spark):
    lines = spark.createDataFrame([(LINE_OF_VALUES,)], "line string").coalesce(1)
    schema = T.StructType.fromDDL(DOTTED)
    rows = lines.select(F.from_json("line", schema).alias("r")).select("r.*")
    ways = {
        "rows": [as_text(values_of(schema)(name)) for name in VALUES],
        "lines of an unknown schema": [id_of_line("line", [name]) for name in VALUES],
    }
    found = {"rows": rows.selectExpr(*ways.pop("rows"))}
    found |= {what: lines.selectExpr(*sql) for what, sql in ways.items()}
    for what, sql in {
        "lines": parsed_line("line"),
        "members": parsed_members("line", schema, VALUES),
    }.items():
        parsed = lines.selectExpr(f"{sql} as {JSON}")
        at = values_of(T.StructType([*schema.fields, *parsed.schema.fields]))
        found[what] = parsed.selectExpr(*(as_text(at(name)) for name in VALUES))
    assert {what: list(frame.first()) for what, frame in found.items()} == dict.fromkeys(
        found, list(VALUES.values())
    )
    for name in VALUES:
        changed = rows.withColumn(*with_value(schema, name, F.lit("9" if name != "n" else 9)))
        told = changed.selectExpr(*(as_text(values_of(schema)(n)) for n in VALUES)).first()
        assert list(told) == ["9" if n == name else value for n, value in VALUES.items()]


NUMBERS = {  # as a line has it -> as people read it, as an id
    "NaN": "NaN",
    "Infinity": "Infinity",
    "-INF": "-Infinity",
    "-Infinity": "-Infinity",
    "1e2": "100",
    "1e400": "1" + "0" * 400,
}


def test_what_is_no_number_is_no_text_either(spark):
    lines = [f'{{"N":"I ,NaN","x":[{{"n": {of}}}],"id":{of}}}' for n in NUMBERS for of in (n, f'"{n}"')]
    frame = spark.createDataFrame([(line,) for line in lines], "line string").coalesce(1)
    parsed = frame.selectExpr("line", f"{parsed_line('line')} as {JSON}")
    schema = T.StructType([parsed.schema[JSON]])
    row, x, id = canonical_row(schema), canonical_row(schema, ["x"]), id_of_line("line", ["id"])
    found = parsed.selectExpr(f"{row} as row", f"{x} as x", f"{id} as id", "line").collect()
    ways = {"-INF", "-Infinity"}  # to write one number
    assert len({r.row for r in found}) == len({r.x for r in found}) == len(lines) - len(ways) + 1
    assert [r.id for r in found] == [of for n, read in NUMBERS.items() for of in (read, n)]

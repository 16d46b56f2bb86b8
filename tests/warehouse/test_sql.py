"Loaded tables are cleaned: as frames, and by SQL that runs."

import re
import sys
from collections import Counter

import pytest
import sqlglot
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from postgres import postgres
from runs import counted_rows
from warehouses import (
    COLUMNS,
    DIALECTS,
    SCHEMA,
    TENANTS,
    TYPES,
    Duck,
    Postgres,
    Translated,
    cleaned,
    load,
    parsed,
    script,
    statements,
)

from dedup_nb.base.errors import ConfigError, MissingColumnError
from dedup_nb.cli import main
from dedup_nb.warehouse.repair import repair
from dedup_nb.warehouse.sql import DIALECTS as SQL_DIALECTS
from dedup_nb.warehouse.sql import split_events, warehouse_sql

EIGHT = [
    ("a", "f", 1, "/home"),
    ("a", "f", 1, "/home"),
    ("a", "f", 2, "/home"),
    ("b", "f", 1, "/cart"),
    ("b", "g", 3, "/admin"),
    ("c", "f", 2, "/home"),
    ("d", "f", 2, "/pay"),
    (None, "f", 3, "/home"),
]


@pytest.fixture(scope="module")
def server():
    try:
        with postgres() as connection:
            yield Postgres(connection)
    except OSError as wrong:
        pytest.skip(f"PostgreSQL does not start here: {wrong}")


@pytest.fixture(params=["duckdb", "postgres"])
def warehouse(request):
    return Duck() if request.param == "duckdb" else request.getfixturevalue("server")


@pytest.fixture
def warehouses(server):
    return [Duck(), server]


def by_frames(spark, events, duplicated, **more):
    "The same as `cleaned`, by `split_events`."
    loaded = spark.createDataFrame(events, SCHEMA)
    gone = spark.createDataFrame(duplicated, f"{SCHEMA}, dedup struct<reason: string, kept_event_id: string>")
    stay, left = split_events(loaded, gone, **{"order_by": "seq", **more})
    return Counter(map(tuple, stay.collect())), Counter(
        map(tuple, left.select(*COLUMNS, "dedup.reason").collect())
    )


# --- frames


def test_of_each_id_the_first_row_stays_and_the_others_say_why_they_left(spark):
    stay, left = split_events(spark.createDataFrame(EIGHT, SCHEMA), order_by="seq")
    assert stay.columns == COLUMNS and left.columns == [*COLUMNS, "dedup"]
    assert Counter(map(tuple, stay.collect())) == Counter([EIGHT[0], EIGHT[3], *EIGHT[5:]])
    assert sorted((r.event_id, r.seq, *r.dedup) for r in left.collect()) == [
        ("a", 1, "natural", "a"),
        ("a", 2, "natural", "a"),
        ("b", 3, "synthetic", None),
    ]


def test_by_all_columns_copies_vanish_and_all_rows_of_other_repeated_ids_leave(spark):
    events = spark.createDataFrame([*EIGHT, ("c", "f", 2, "/home"), ("d", "f", 2, "/pay")], SCHEMA)
    before = spark.createDataFrame([("d", "z", 1, "/old"), ("b", "z", 1, "/old")], SCHEMA)
    stay, left = split_events(events, before, model="full_row")
    assert Counter(map(tuple, stay.collect())) == Counter([EIGHT[5], EIGHT[7]])
    assert sorted((r.event_id, r.seq, r.dedup.reason if r.dedup else "") for r in left.collect()) == [
        ("a", 1, "synthetic"),
        ("a", 2, "synthetic"),
        ("b", 1, ""),
        ("b", 1, "synthetic"),
        ("b", 3, "synthetic"),
        ("d", 1, ""),
        ("d", 2, "synthetic"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["fingerprint", "full_row"])
def test_single_rows_stay_whatever_left_before(spark, model):
    events = spark.createDataFrame(EIGHT[5:7], SCHEMA)
    stay, left = split_events(events, events, model=model, order_by="seq")
    assert counted_rows(stay) == counted_rows(events) and left.count() == 2


@pytest.mark.parametrize(
    "given, error, said",
    [
        (dict(model="finger_print"), ConfigError, "Did you mean fingerprint?"),
        (dict(synthetic="rename_later"), ConfigError, "synthetic"),
        (dict(order_by="sec"), MissingColumnError, "Did you mean seq?"),
        (dict(model="full_row", event_id="even_id"), MissingColumnError, "Did you mean event_id?"),
    ],
)
def test_split_events_refuses(spark, given, error, said):
    with pytest.raises(error, match=re.escape(said)):
        split_events(spark.createDataFrame(EIGHT, SCHEMA), **given)


def test_duplicated_rows_must_have_the_columns_of_the_events(spark):
    events = spark.createDataFrame(EIGHT, SCHEMA)
    with pytest.raises(MissingColumnError, match="duplicated needs page"):
        split_events(events, events.drop("page"))


# --- SQL that runs


ROW = st.tuples(
    st.sampled_from(["a", "b", "c", "d", "", None]),
    st.sampled_from(["f", "g", "", None]),
    st.sampled_from(["/home", "/cart", None]),
)


@pytest.mark.slow
@given(
    events=st.lists(st.tuples(ROW, st.integers(1, 3)), min_size=25, max_size=40),
    asked=st.sampled_from([dict(missing_fingerprint=m) for m in ("surrogate", "unique", "id")]),
)
@example([((id, "f", "/home"), 2) for id in "abcd"] + [(("c", "g", None), 1)], dict(model="full_row"))
@settings(max_examples=2, database=None, derandomize=True, suppress_health_check=[*HealthCheck])
def test_sql_does_what_split_events_does(spark, warehouses, events, asked):
    # the order decides but between rows that are equal
    loaded = [(id, fp, n, page) for n, ((id, fp, page), times) in enumerate(events) for _ in range(times)]
    gone = [("d", "z", 1, "/old", None)]
    tables = {("events", TYPES): loaded, ("duplicated_events", f"{TYPES}, dedup_reason varchar(16)"): gone}
    wanted = by_frames(spark, loaded, gone, **asked)
    for warehouse in warehouses:
        load(warehouse, tables)
        for _ in range(2):  # a second run changes nothing
            warehouse.run(script(warehouse, **asked))
            assert cleaned(warehouse) == wanted


def by_repair(spark, folder, events, gone, **more):
    "The same as `cleaned`, by `repair` of a Delta table that has its rows in three files."
    loaded = spark.createDataFrame(events, SCHEMA).repartition(3, "seq")
    loaded.write.format("delta").save(f"{folder}/events")
    dedup = "struct<reason: string, kept_event_id: string, version: bigint>"
    before = spark.createDataFrame([(*row[:-1], None) for row in gone], f"{SCHEMA}, dedup {dedup}")
    before.write.format("delta").save(f"{folder}/duplicated_events")
    repair(f"{folder}/events", spark=spark, order_by=["seq"], **more)
    stay, left = (
        spark.read.format("delta").load(f"{folder}/{name}") for name in ("events", "duplicated_events")
    )
    return Counter(map(tuple, stay.select(COLUMNS).collect())), Counter(
        map(tuple, left.select(*COLUMNS, "dedup.reason").collect())
    )


def equal_by_repair_and_sql(spark, warehouses, folder, events, missing):
    loaded = [(id, fp, n, page) for n, ((id, fp, page), times) in enumerate(events) for _ in range(times)]
    gone = [("d", "z", 1, "/old", None)]
    tables = {("events", TYPES): loaded, ("duplicated_events", f"{TYPES}, dedup_reason varchar(16)"): gone}
    wanted = by_repair(spark, folder, loaded, gone, missing_fingerprint=missing)
    for warehouse in warehouses:
        load(warehouse, tables)
        warehouse.run(script(warehouse, missing_fingerprint=missing))
        assert cleaned(warehouse) == wanted
    return wanted


@pytest.mark.slow
def test_sql_does_what_repair_does(spark, warehouses, tmp_path):
    ids, prints, pages = ["a", "b", "c", "", None], ["f", "g", "", None], ["/home", "/cart"]
    events = [((ids[n % 5], prints[n * 7 % 4], pages[n * 3 % 2]), 1 + n % 3) for n in range(30)]
    stay, left = equal_by_repair_and_sql(spark, warehouses, tmp_path, events, "surrogate")
    assert stay.total() + left.total() == 61 and {r[-1] for r in left} == {None, "natural", "synthetic"}


@pytest.mark.soak
@given(
    events=st.lists(st.tuples(ROW, st.integers(1, 3)), min_size=1, max_size=40),
    missing=st.sampled_from(["surrogate", "unique", "id"]),
)
@settings(max_examples=8, suppress_health_check=[*HealthCheck])
def test_sql_does_what_repair_does_on_any_table(spark, warehouses, tmp_path_factory, events, missing):
    equal_by_repair_and_sql(spark, warehouses, tmp_path_factory.mktemp("any"), events, missing)


def test_a_script_that_is_cut_off_before_its_end_changes_nothing(warehouse):
    load(warehouse, {("events", TYPES): EIGHT})
    parts = statements(script(warehouse))
    begun = next(n for n, part in enumerate(parts) if part.strip().startswith("BEGIN"))
    assert parts[-1].strip() == "COMMIT"
    for end in range(begun + 1, len(parts)):
        for part in parts[:end]:
            warehouse.run(part)
        warehouse.run("rollback")
        assert Counter(warehouse.rows("atomic.events")) == Counter(EIGHT)
        with pytest.raises(Exception, match="(?i)duplicated_events.*not exist"):
            warehouse.rows("atomic.duplicated_events")
    warehouse.run(script(warehouse))
    assert sum(cleaned(warehouse)[1].values()) == 3


@pytest.mark.parametrize("asked", [COLUMNS, [*COLUMNS, "more"]])
def test_a_table_of_other_columns_is_left_alone(warehouse, asked):
    "A column that the script does not have, or the duplicates; by a client that goes on after an error, too."
    left = [("events", f"{TYPES}, more int"), ("duplicated_events", f"{TYPES}, dedup_reason varchar")]
    load(warehouse, {left[0]: [(*row, 1) for row in EIGHT], left[1]: []})
    said = []
    for part in statements(script(warehouse, columns=asked)):
        try:
            warehouse.run(part)
        except Exception as wrong:
            said.append(str(wrong))
    assert re.search('(?i)number of.*columns|same number of|"more"', said[0])
    warehouse.run("rollback") if isinstance(warehouse, Postgres) else None
    assert Counter(warehouse.rows("atomic.events")) == Counter((*row, 1) for row in EIGHT)


def test_a_table_of_keys_alone(warehouse):
    rows = [("a", "f", 1), ("a", "f", 2), ("a", None, 3), ("b", None, 1), ("b", None, 2)]
    load(warehouse, {("events", TYPES.rpartition(",")[0]): rows})
    warehouse.run(script(warehouse, columns=COLUMNS[:3]))
    stay, left = cleaned(warehouse)
    assert stay == Counter([rows[0], rows[3]])
    assert sorted(r[3] for r in left) == ["natural", "natural", "synthetic"]


def test_the_numbers_of_the_script_add_up(warehouse):
    load(warehouse, {("events", TYPES): [*EIGHT, ("b", "h", 1, "/tie")]})
    shown = []
    for part in map(str.strip, statements(script(warehouse))):
        shown += [warehouse.asked(part)] if part.startswith("SELECT") else [warehouse.run(part)]
    before, ids, reasons, ties, after, ids_after = (s for s in shown if s is not None)
    ids, ids_after = sorted(ids), sorted(ids_after)
    assert before == [("events", 9, 0, 9)] and after == [("events", 5, 4, 9)]
    assert ids == [(1, 2), (3, 2)] and ids_after == [(1, 4)] and ties == [(1,)]
    assert dict(reasons) == {None: 2, "natural": 2, "synthetic": 2}


# copies of one event, with entities: (id, time, url)
TIMED = "event_id varchar, event_fingerprint varchar, collector_tstamp timestamp, n int"
AT = ["2026-11-20 10:00:00", "2026-11-20 11:00:00"]
EVENTS = [
    ("a", "f", AT[0], 1),
    ("a", "f", AT[0], 2),
    ("a", "f", AT[1], 3),
    ("b", "f", AT[0], 4),
    ("b", "g", AT[1], 5),
    ("c", "f", AT[0], 6),
    ("c", "g", AT[0], 7),
    ("d", "f", AT[0], 8),
]
LINKS = [
    *[("a", AT[0], "/x")] * 4,  # two each: two stay
    *[("a", AT[0], "/y")] * 3,  # rounded up: two stay
    ("a", AT[1], "/x"),
    ("b", AT[0], "/x"),
    ("b", AT[1], "/x"),
    ("c", AT[0], "/x"),
    *[("d", AT[0], "/x")] * 2,
    ("z", AT[0], "/orphan"),
]
LINK = "root_id varchar, root_tstamp timestamp, url varchar"
FOLLOWED = dict(
    columns=["event_id", "event_fingerprint", "collector_tstamp", "n"],
    order_by="n",
    entities={"atomic.link": ["root_id", "root_tstamp", "url"]},
)


def test_entities_follow_their_events(warehouse):
    load(warehouse, {("events", TIMED): EVENTS, ("link", LINK): LINKS})
    warehouse.run(script(warehouse, **FOLLOWED))
    times = dict(zip(map(str, AT), (0, 1)))
    here = Counter((id, times[str(at)], url) for id, at, url in warehouse.rows("atomic.link"))
    gone = Counter(
        (id, times[str(at)], url, why) for id, at, url, why in warehouse.rows("atomic.duplicated_link")
    )
    assert here == {
        ("a", 0, "/x"): 2,
        ("a", 0, "/y"): 2,
        ("b", 0, "/x"): 1,
        ("d", 0, "/x"): 2,
        ("z", 0, "/orphan"): 1,
    }
    assert gone == {
        ("a", 0, "/x", "natural"): 2,
        ("a", 0, "/y", "natural"): 1,
        ("a", 1, "/x", "natural"): 1,
        ("b", 1, "/x", "synthetic"): 1,
        ("c", 0, "/x", "ambiguous"): 1,
    }
    assert here.total() + gone.total() == len(LINKS)
    once = cleaned(warehouse, "link"), cleaned(warehouse)
    warehouse.run(script(warehouse, **FOLLOWED))
    assert (cleaned(warehouse, "link"), cleaned(warehouse)) == once


def test_entities_may_have_the_columns_of_events(warehouse):
    kept = [(id, at, url, at) for id, at, url in LINKS]
    entities = {"atomic.link": ["root_id", "root_tstamp", "event_id", "collector_tstamp"]}
    types = "root_id varchar, root_tstamp timestamp, event_id varchar, collector_tstamp timestamp"
    load(warehouse, {("events", TIMED): EVENTS, ("link", types): kept})
    warehouse.run(script(warehouse, **{**FOLLOWED, "entities": entities}))
    here, gone = cleaned(warehouse, "link")
    assert (here.total(), gone.total()) == (8, 6)


def test_words_of_the_language_and_values_without_order(warehouse):
    kind = "json" if warehouse.dialect == "postgres" else "int[]"
    load(
        warehouse,
        {("events", f'"order" varchar, "two  words" varchar, list {kind}'): [("a", "x", "[1]")] * 2},
    )
    sql = script(
        warehouse,
        columns=["order", "two  words", "list"],
        order_by=(),
        event_id="order",
        as_text=["list"],
        duplicates='atomic."left"',
    )
    warehouse.run(sql)
    assert len(warehouse.rows("atomic.events")) == 1 and len(warehouse.rows('atomic."left"')) == 1


RESERVED = (  # somewhere: in the words that a statement is built of, or in one of the warehouses
    "offset returning window fetch lateral qualify start row rows values set current organization issue "
    "trigger"
).split()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_words_that_some_warehouse_keeps_for_itself_are_quoted(dialect):
    for n in range(0, len(RESERVED), 3):
        event_id, event_fingerprint, order = RESERVED[n : n + 3]
        asked = dict(event_id=event_id, event_fingerprint=event_fingerprint, order_by=f"{order} desc")
        trees = parsed(warehouse_sql(dialect, "atomic.events", columns=RESERVED, **asked), dialect)
        names = [name for tree in trees for name in tree.find_all(sqlglot.exp.Identifier)]
        found = [name for name in names if name.name.lower() in RESERVED]
        assert {name.name.lower() for name in found} == {*RESERVED} and all(name.quoted for name in found)
    assert not re.search(r'["`]\w+["`]', warehouse_sql(dialect, "atomic.events"))


def test_a_table_whose_columns_are_such_words_is_cleaned(warehouse):
    quoted = [f'"{word}"' for word in RESERVED]
    types = ", ".join(f"{name} varchar" for name in quoted)
    rows = [tuple("ab"[n == at] for at, _ in enumerate(RESERVED)) for n in (0, 1, 1, 2)]
    load(warehouse, {("events", types): rows})
    sql = script(warehouse, columns=RESERVED, event_id="window", event_fingerprint="fetch", order_by="offset")
    warehouse.run(sql)
    here, gone = cleaned(warehouse)
    assert (here.total(), gone.total()) == (2, 2)


OF_TENANTS = dict(columns=["tenant", *COLUMNS], event_id=["tenant", "event_id"], order_by="seq")
GONE = [("z", "d", "z", 0, "/old", None), ("z", None, "z", 0, "/old", None)]


def cleaned_by_tenant(warehouse, name="events", **more):
    types = f"tenant varchar, {TYPES}"
    load(
        warehouse,
        {(name, types): TENANTS, (f"duplicated_{name}", f"{types}, dedup_reason varchar(16)"): GONE},
    )
    found = []
    for _ in range(2):  # a second run changes nothing
        sql = warehouse_sql(warehouse.dialect, f"atomic.{name}", **OF_TENANTS, **more)
        warehouse.run(sql)
        found.append(cleaned(warehouse, name))
    assert found[0] == found[1]
    return found[0]


@pytest.fixture(scope="module")
def tenants_split(spark):
    loaded = spark.createDataFrame(TENANTS, f"tenant string, {SCHEMA}")
    gone = spark.createDataFrame(
        GONE, f"tenant string, {SCHEMA}, dedup struct<reason: string, kept_event_id: string>"
    )

    def split(model):
        stay, left = split_events(loaded, gone, model=model, order_by="seq", event_id=["tenant", "event_id"])
        return (
            Counter(map(tuple, stay.collect())),
            Counter(map(tuple, left.select("tenant", *COLUMNS, "dedup.reason").collect())),
        )

    return {model: split(model) for model in ("fingerprint", "full_row")}


@pytest.mark.slow
@pytest.mark.parametrize("model", ["fingerprint", "full_row"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_several_columns_make_an_id(request, tenants_split, dialect, model):
    if dialect == "postgres":
        other = request.getfixturevalue("server")
    else:
        other = Duck() if dialect == "duckdb" else Translated(dialect)
    assert cleaned_by_tenant(other, model=model) == tenants_split[model]
    stay, left = tenants_split["fingerprint"]
    lacking = Counter(row for row in TENANTS if not (row[0] and row[1]))
    assert stay - lacking == Counter([TENANTS[0], TENANTS[3], TENANTS[5], TENANTS[6], TENANTS[-1]])
    assert lacking <= stay and sorted(str(row[-1]) for row in left) == [
        "None",
        "None",
        "natural",
        "natural",
        "synthetic",
    ]


def test_a_table_may_have_the_name_of_an_alias():
    "All its rows would be looked at, and those that are not repeated go with the others."
    assert cleaned_by_tenant(Duck(), "s") == cleaned_by_tenant(Duck())
    load(duck := Duck(), {("events", TIMED): EVENTS, ("s", LINK): LINKS})
    duck.run(script(duck, **{**FOLLOWED, "entities": {"atomic.s": ["root_id", "root_tstamp", "url"]}}))
    here, gone = cleaned(duck, "s")
    assert here.total() == 8 and gone.total() == 6


@pytest.mark.parametrize("model", ["fingerprint", "full_row"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_script_on_several_id_columns_is_understood_in_its_dialect(dialect, model):
    trees = parsed(warehouse_sql(dialect, "atomic.events", model=model, **OF_TENANTS), dialect)
    assert not [tree for tree in trees if isinstance(tree, sqlglot.exp.Command)]


# --- SQL that is written


@pytest.mark.parametrize("model", ["fingerprint", "full_row"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_script_is_understood_in_its_dialect(dialect, model):
    entities = {"atomic.link": ["root_id", "root_tstamp", "url"]}
    sql = warehouse_sql(dialect, "atomic.events", model=model, entities=entities)
    trees = parsed(sql, dialect)
    assert not [tree for tree in trees if isinstance(tree, sqlglot.exp.Command)]
    again = parsed(";".join(tree.sql(dialect, comments=False) for tree in trees), dialect)
    assert again == trees


def test_snowflake_goes_on_after_no_error():
    script = warehouse_sql("snowflake", "atomic.events")
    aborts = "\nALTER SESSION SET TRANSACTION_ABORT_ON_ERROR = TRUE;\nBEGIN TRANSACTION;\n"
    assert script.count(aborts) == 1 and script.index(aborts) < script.index("\nDELETE ")


@pytest.mark.parametrize("dialect", ["redshift", "snowflake", "bigquery", "databricks"])
def test_in_every_dialect_a_script_says_the_same(dialect):
    # what cannot run here is translated: the ways of each dialect stay
    other = Translated(dialect)
    found = []
    for warehouse in (Duck(), other):
        load(warehouse, {("events", TIMED): EVENTS, ("link", LINK): LINKS})
        for table, types in (("events", TIMED), ("link", LINK)):
            warehouse.run(f"create table atomic.duplicated_{table} ({types}, dedup_reason varchar)")
        warehouse.run(script(warehouse, **FOLLOWED))
        found.append((*cleaned(warehouse), *cleaned(warehouse, "link")))
        warehouse.run(script(warehouse, **FOLLOWED))
        assert found[-1] == (*cleaned(warehouse), *cleaned(warehouse, "link"))
    assert found[0] == found[1] and found[0][3].total() == 6


@pytest.mark.parametrize(
    "given, error, said",
    [
        (dict(dialect="redshft"), ConfigError, "Did you mean redshift?"),
        (dict(model="full-row"), ConfigError, "Did you mean full_row?"),
        (dict(table="atomic events"), ConfigError, "found 'atomic events'"),
        (dict(table="atomic.events; drop table x"), ConfigError, "Wanted the name of a table"),
        (dict(table="a.b.c.d"), ConfigError, "Wanted the name of a table"),
        (dict(duplicates=""), ConfigError, "Wanted the name of a table"),
        (dict(duplicates="atomic.events"), ConfigError, "atomic.events"),
        (dict(columns=["event_id", "dedup_row"]), ConfigError, "dedup_row"),
        (dict(columns=["event_id", "n", "n"]), ConfigError, "each once; found n"),
        (dict(columns=["id", "n"]), MissingColumnError, "event_id"),
        (dict(order_by="etl_tstmp"), MissingColumnError, "Did you mean etl_tstamp?"),
        (
            dict(event_id="event_id,app_id", entities={"atomic.link": ["root_id", "root_tstamp"]}),
            ConfigError,
            "event_id, app_id make the id together. Name one column as event_id, or leave the entities out",
        ),
        (dict(synthetic="off"), ConfigError, "synthetic would do nothing"),
        (dict(as_text=["contexts"]), MissingColumnError, "contexts"),
        (dict(entities={"atomic.link": ["url"]}), MissingColumnError, "root_id, root_tstamp"),
        (dict(entities={"atomic.events": ["root_id", "root_tstamp"]}), ConfigError, "two tables"),
    ],
)
def test_warehouse_sql_refuses(given, error, said):
    with pytest.raises(error, match=re.escape(said)):
        warehouse_sql(**{"dialect": "redshift", "table": "atomic.events", **given})


def test_without_sqlglot_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    with pytest.raises(ConfigError, match=re.escape("pip install 'dedup_nb[sql]'")):
        warehouse_sql("redshift", "atomic.events")


def test_lists_may_be_texts_with_commas():
    lists = dict(
        columns=["event_id", "n", "url"], as_text=["n", "url"], entities={"link": ["root_id", "url"]}
    )
    texts = dict(columns="event_id, n,url", as_text="n,url", entities={"link": "root_id,url"})
    assert warehouse_sql("duckdb", "events", **texts) == warehouse_sql("duckdb", "events", **lists)


def test_the_command_prints_the_script(capsys):
    with pytest.raises(SystemExit) as end:
        main(
            "sql --dialect duckdb --table events --columns event_id,n,url --as-text url --order-by n".split()
        )
    wanted = warehouse_sql(
        "duckdb", "events", columns=["event_id", "n", "url"], as_text=["url"], order_by="n"
    )
    assert end.value.code == 0 and capsys.readouterr().out == wanted


def test_the_command_takes_several_id_columns(capsys):
    words = (
        "sql --dialect duckdb --table web.events --columns tenant,id,at --event-id tenant,id --order-by at"
    )
    with pytest.raises(SystemExit) as end:
        main([*words.split(), "--missing-fingerprint", "id"])
    said = capsys.readouterr().out
    assert end.value.code == 0 and "-- One row of each (tenant, id) stays" in said
    assert "Rows that lack a part of the id stay." in said


@pytest.fixture
def delta_lake(spark, tmp_path):
    "Tables are Delta, as on Databricks, in a schema `atomic` of their own."
    spark.conf.set("spark.sql.sources.default", "delta")
    spark.sql(f"create schema atomic location '{tmp_path}'")
    yield Lake(spark)
    spark.sql("drop schema atomic cascade")
    spark.conf.unset("spark.sql.sources.default")


class Lake(Duck):
    dialect = "databricks"

    def __init__(self, spark):
        self.spark = spark

    def run(self, sql):
        self.spark.sql(sql)

    def asked(self, sql):
        return [tuple(row) for row in self.spark.sql(sql).collect()]

    def load(self):
        for name, types, filled in (("events", TIMED, EVENTS), ("link", LINK, LINKS)):
            values = ", ".join(str(row) for row in filled)
            casts = ", ".join(
                f"cast(c{n} as {t.split()[1]}) as {t.split()[0]}" for n, t in enumerate(types.split(", "))
            )
            casts = casts.replace("as varchar", "as string")
            names = ", ".join(f"c{n}" for n in range(len(filled[0])))
            self.run(
                f"create or replace table atomic.{name} as select {casts} from values {values} as t({names})"
            )
            self.run(f"drop table if exists atomic.duplicated_{name}")


@pytest.mark.parametrize(
    "each", [pytest.param(4, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.soak)]
)
def test_the_databricks_script_runs_on_delta_and_can_be_cut_off_anywhere(delta_lake, each):
    duck = Duck()
    load(duck, {("events", TIMED): EVENTS, ("link", LINK): LINKS})
    duck.run(script(duck, **FOLLOWED))
    wanted = cleaned(duck), cleaned(duck, "link")
    parts = statements(script(delta_lake, **FOLLOWED))
    changing = [n for n, part in enumerate(parts) if not part.strip().startswith("SELECT")]
    for end in [len(parts), *(n + 1 for n in changing[::each])]:
        delta_lake.load()
        for part in [*parts[:end], *parts]:  # the second time whole
            delta_lake.run(part)
        assert (cleaned(delta_lake), cleaned(delta_lake, "link")) == wanted, parts[end - 1]
    # the same rows, loaded once more, leave again
    before = Counter(delta_lake.rows("atomic.duplicated_events"))
    delta_lake.run(
        f"insert into atomic.events select {', '.join(FOLLOWED['columns'])} from atomic.duplicated_events"
    )
    for part in parts:
        delta_lake.run(part)
    assert cleaned(delta_lake) == (wanted[0][0], before + before)


def test_rows_that_are_microseconds_apart_are_two_on_databricks(spark):
    at = "timestamp_ntz'2026-11-01 10:00:00.00000{}'"
    times = f"values {at.format(1)}, {at.format(2)} as t(at)"
    row = SQL_DIALECTS["databricks"].row.format("at")
    assert len({r.row for r in spark.sql(f"select {row} as row from {times}").collect()}) == 2


@pytest.mark.slow
@pytest.mark.parametrize("model", ["fingerprint", "full_row"])
def test_several_columns_make_an_id_on_delta(delta_lake, tenants_split, model):
    types = f"tenant string, {SCHEMA}"
    delta_lake.spark.createDataFrame(TENANTS, types).write.saveAsTable("atomic.events")
    gone = delta_lake.spark.createDataFrame(GONE, f"{types}, dedup_reason string")
    gone.write.saveAsTable("atomic.duplicated_events")
    for _ in range(2):  # a second run changes nothing
        for part in statements(script(delta_lake, **OF_TENANTS, model=model)):
            delta_lake.run(part)
        assert cleaned(delta_lake) == tenants_split[model]

"Loaded tables in DuckDB and PostgreSQL, and the scripts that clean them."

import re
from collections import Counter

import duckdb
import sqlglot

from dedup_nb.warehouse.sql import warehouse_sql

COLUMNS = ["event_id", "event_fingerprint", "seq", "page"]
SCHEMA = "event_id string, event_fingerprint string, seq int, page string"
TYPES = "event_id varchar, event_fingerprint varchar, seq int, page varchar"
DIALECTS = ["redshift", "postgres", "snowflake", "bigquery", "databricks", "duckdb"]


def parsed(sql, dialect):
    "The statements as trees, without the comments between them."
    return [t for t in sqlglot.parse(sql, dialect=dialect) if not isinstance(t, sqlglot.exp.Semicolon)]


class Duck:
    dialect = "duckdb"

    def __init__(self):
        self.connection = duckdb.connect()

    def run(self, sql):
        self.connection.execute(sql)

    def asked(self, sql):
        return self.connection.execute(sql).fetchall()

    def rows(self, table):
        return self.asked(f"select * from {table}")


class Translated(Duck):
    "Runs what is written for another warehouse."

    def __init__(self, dialect):
        super().__init__()
        self.dialect = dialect

    def run(self, sql):
        if not sql.startswith("--"):
            return super().run(sql)
        sql = re.sub(r",\s+MAP\('timeZone'[^)]*\)", "", sql)  # DuckDB's to_json has no options
        for tree in parsed(sql, self.dialect):
            # a table that is like another is there, and settings of a session are others here
            if not (isinstance(tree, sqlglot.exp.Alter) or list(tree.find_all(sqlglot.exp.LikeProperty))):
                super().run(tree.sql("duckdb").replace("(MAX)", ""))


class Postgres(Duck):
    dialect = "postgres"

    def __init__(self, connection):
        self.connection = connection


def load(warehouse, tables):
    "A schema `atomic` with just these tables: (name, columns and types) -> rows."
    warehouse.run("rollback") if isinstance(warehouse, Postgres) else None
    warehouse.run("drop schema if exists atomic cascade; create schema atomic")
    for (name, types), filled in tables.items():
        warehouse.run(f"create table atomic.{name} ({types})")
        for row in filled:
            values = ", ".join("null" if v is None else f"'{v}'" for v in row)
            warehouse.run(f"insert into atomic.{name} values ({values})")


def script(warehouse, **more):
    return warehouse_sql(
        warehouse.dialect, "atomic.events", **{"columns": COLUMNS, "order_by": "seq", **more}
    )


def statements(sql):
    return [part for part in re.sub(r"^--.*\n", "", sql, flags=re.M).split(";") if part.strip()]


def cleaned(warehouse, name="events"):
    return Counter(warehouse.rows(f"atomic.{name}")), Counter(warehouse.rows(f"atomic.duplicated_{name}"))


# an id of two columns: (tenant, id, fingerprint, seq, page); whoever lacks a part of it stays
TENANTS = [
    *[("x", "a", "f", 1, "/home")] * 2,
    ("x", "a", "f", 2, "/home"),
    ("x", "b", "f", 1, "/cart"),
    ("x", "b", "g", 3, "/admin"),
    ("y", "a", "f", 2, "/home"),
    ("y", "b", "f", 1, "/pay"),
    *[("x", None, "f", 3, "/home")] * 2,
    *[(None, "a", "f", 3, "/home")] * 2,
    *[("x", "", "f", 3, "/home")] * 2,
    ("z", "d", "f", 1, "/home"),
]

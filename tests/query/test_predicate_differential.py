"""Every predicate of the dialect: what is pushed into scans follows from what DuckDB finds true."""

from __future__ import annotations

import datetime as dt
import math
import random
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import catalog_of
from chronicle.errors import SqlError
from chronicle.query.conditions import predicates
from chronicle.query.conditions.constants import Folder
from chronicle.query.conditions.predicates import PredicateCompiler
from chronicle.query.sql.dialect import parse_predicate, to_text
from chronicle.schema import StreamSchema
from chronicle.store.prune import AllOf, AnyOf, IsNull, Never, NotNull, Range

ROWS = 1_200
EPOCH = dt.datetime(1970, 1, 1)
INT64 = (-(2**63), 2**63 - 1)
BIG = [2**53, 2**53 + 1, -(2**53) - 1, 10**18, 2**63 - 512, 2**63 - 513, *INT64]


def events() -> pa.Table:
    """Runs of alike events, so that blocks have narrow bounds; nulls, NaN, infinities, extremes."""
    rng = random.Random(5)

    def column(common, odd, nulls=0.1):
        values = []
        while len(values) < ROWS:
            base = rng.choice(common) if rng.random() < 0.7 else rng.choice(odd)
            run = range(rng.choice([1, 3, 90, 200]))
            values.extend(None if rng.random() < nulls else base for _ in run)
        return values[:ROWS]

    micros = [-3_600_000_000 + 7_500_000 * i for i in range(ROWS)]
    doubles = [-1.5, 0.0, 0.1, 2.5, 100.0]
    odd_doubles = [math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308, 2.0**53 + 2]
    days = [dt.date(1970, 1, 1) + dt.timedelta(days=i) for i in range(-3, 6)]
    words = ["apple", "Apple", "banana", "alpha", "b_c", "b%c", "ba", "", "Ärger", "zz\U0010ffff"]
    floats = [np.float32(v).item() for v in (0.1, -2.5, 16777216.0, 3.0, 1e30)]
    odd_floats = [math.nan, math.inf, -math.inf]
    small = pa.array(column([-3, 0, 7, 12], [-128, 127]), pa.int8())
    return pa.table(
        {
            "t": pa.array(micros, pa.timestamp("us")),
            "n": pa.array(column([-5, 0, 3, 12, 1000], BIG), pa.int64()),
            "i": small,
            "u": pa.array(column([0, 3, 12], [2**53 + 1, 2**63, 2**64 - 1]), pa.uint64()),
            "x": pa.array(column(doubles, odd_doubles), pa.float64()),
            "f": pa.array(column(floats, odd_floats), pa.float32()),
            "s": pa.array(column(words, ["12", "3.5", "1970-01-02", "true"])),
            "b": pa.array(column([True, False], [True])),
            "d": pa.array(column(days, [dt.date(1969, 1, 1)]), pa.date32()),
            "m": pa.array(
                column([v // 1000 for v in micros[::200]], [0]), pa.timestamp("ms", "UTC")
            ),
            "g": pa.array(column([v * 1000 + 1 for v in micros[::200]], [0]), pa.timestamp("ns")),
            "dec": pa.array(
                column([Decimal("1.50"), Decimal("-3.25"), Decimal(0)], [Decimal("99999999.99")]),
                pa.decimal128(10, 2),
            ),
        }
    )


NUMBERS = [
    "0", "3", "12", "-5", "12.0", "2.5", "0.1", "1e2", "1e0", "1e19", "-1e19",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809",
    "18446744073709551615", "9007199254740993", "9007199254740992.0", "9007199254740993.5", "1e18",
    "1000000000000000000", "3::FLOAT", "0.1::FLOAT", "0.1::DOUBLE", "'nan'::DOUBLE",
    "'inf'::DOUBLE", "'-inf'::DOUBLE", "'nan'::FLOAT", "127", "128", "-129", "300::SMALLINT",
    "3::UTINYINT", "2.50::DECIMAL(5,2)", "true", "170141183460469231731687303715884105727",
    "1.7976931348623157e308", "-0.0", "'12'", "'3.5'", "'nan'", "'inf'", "NULL", "NULL::INTEGER",
    "abs(-3)", "3 + 0.5", "2 ** 62", "-(3)", "7 // 2", "16777217", "999.5", "0.0000001",
    "2.9999999999999999999", "0.30000000000000004",
]  # fmt: skip
TIMES = [
    "TIMESTAMP '1970-01-01'", "'1970-01-01 00:30:00'", "'1970-01-01'", "DATE '1970-01-02'", "NULL",
    "TIMESTAMPTZ '1970-01-01 01:00:00+01'", "TIMESTAMP '1970-01-01 00:00:07.5'",
    "TIMESTAMP 'infinity'", "TIMESTAMP '-infinity'", "TIMESTAMP_NS '1970-01-01 00:00:00.000000001'",
    "'1970-01-01T00:10:00'", "'1970-01-01 00:10:00.1234567'",
    "TIMESTAMP '1970-01-01' + INTERVAL 10 MINUTE", "DATE 'infinity'",
    "CAST('1970-01-01 12:00:00' AS DATE)", "DATE '1970-01-01' + 1",
    "TIMESTAMP_S '1970-01-01 00:00:07'", "'epoch'", "TIMESTAMP_MS '1970-01-01 00:00:07.5'",
    "make_timestamp(7500000)", "DATE '1969-12-31'",
]  # fmt: skip
TEXTS = [
    "'apple'", "'b'", "''", "'Apple'", "'zz'", "'b' || 'a'", "'APPLE' COLLATE NOCASE", "NULL",
    "'Ärger'", "'12'", "12",
]  # fmt: skip
PATTERNS = [
    "'a%'", "'b%'", "'%a'", "'apple'", "'b_c'", "'b\\%c'", "'B%'", "'_'", "'%'", "''", "NULL",
    "'b' || '%'", "'Ä%'", "'zz\U0010ffff%'",
]  # fmt: skip
SUBJECTS = {
    "t": TIMES, "m": TIMES, "g": TIMES, "d": TIMES, "n": NUMBERS, "i": NUMBERS, "u": NUMBERS,
    "x": NUMBERS, "f": NUMBERS, "dec": NUMBERS, "s": TEXTS, "b": ["true", "false", "NULL", "1",
    "'true'"],
}  # fmt: skip
TYPES = [
    "DATE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMPTZ", "DOUBLE",
    "FLOAT", "INTEGER", "BIGINT", "TINYINT", "HUGEINT", "UBIGINT", "DECIMAL(18, 1)",
    "DECIMAL(38, 0)", "DECIMAL", "VARCHAR", "BOOLEAN",
]  # fmt: skip
COMPARISONS = ["<", "<=", ">", ">=", "=", "==", "<>", "!="]
OTHER = ["o_t", "o_n", "o_i", "o_s"]


class Predicates:
    """Random conditions from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def one_of(self, *choices):
        return self.random.choice(choices)

    def value(self, column: str) -> str:
        if self.random.random() < 0.04:
            return self.random.choice([*NUMBERS, *TIMES, *TEXTS])
        return self.random.choice(SUBJECTS[column])

    def subject(self, column: str) -> str:
        """A column, perhaps inside of a function or cast."""
        if self.random.random() < 0.55:
            return column
        types = self.random.choice(TYPES)
        unit = self.one_of("second", "minute", "hour", "day", "week", "month", "year", "quarter")
        return self.one_of(
            f"({column})", f"CAST({column} AS {types})", f"TRY_CAST({column} AS {types})",
            f"{column}::{types}", f"date_trunc('{unit}', {column})",
            f"datetrunc('{unit}', {column})",
            f"COALESCE({column}, {self.value(column)})", f"NULLIF({column}, {self.value(column)})",
            f"CASE WHEN {column} IS NULL THEN {self.value(column)} ELSE {column} END", f"-{column}",
            f"{column} + 1", f"abs({column})", f"least({column}, {self.value(column)})",
            f"{column} COLLATE NOCASE", f"lower({column})",
            f"ifnull({column}, {self.value(column)})",
            f"CAST(CAST({column} AS {types}) AS {self.random.choice(TYPES)})",
        )  # fmt: skip

    def atom(self) -> str:
        column = self.random.choice(list(SUBJECTS))
        name, value = self.subject(column), self.value(column)
        form = self.random.randrange(14)
        negation = self.one_of("", "NOT ")
        if form == 0:
            return f"{value} {self.random.choice(COMPARISONS)} {name}"
        if form == 1:
            return f"{name} {negation}BETWEEN {value} AND {self.value(column)}"
        if form in (2, 3):
            values = ", ".join(self.value(column) for _ in range(self.random.randrange(1, 5)))
            return f"{name} {negation}IN ({values})"
        if form == 4:
            return f"{name} IS {negation}{self.one_of('NULL', 'NULL', 'TRUE', 'FALSE', 'UNKNOWN')}"
        if form == 5:
            return f"{name} IS {negation}DISTINCT FROM {value}"
        if form in (6, 7):
            subject = self.one_of("s", "s", "(s)", "lower(s)", "s COLLATE NOCASE", name)
            pattern = self.random.choice(PATTERNS)
            return self.one_of(
                f"{subject} {negation}LIKE {pattern}", f"{subject} {negation}ILIKE {pattern}",
                f"{subject} {negation}LIKE {pattern} ESCAPE '\\'", f"{subject} !~~ {pattern}",
                f"{subject} {negation}GLOB 'a*'", f"{subject} {negation}SIMILAR TO 'b.*'",
                f"{subject} ~~ {pattern}", f"{subject} !~~* {pattern}", f"{subject} ~~* {pattern}",
                f"{subject} {negation}LIKE ANY ({pattern}, 'b%')", f"{subject} !~ 'a.*'",
                f"{subject} {negation}LIKE ALL ({pattern}, 'b%')",
            )  # fmt: skip
        if form == 8:
            prefix = self.random.choice(["'a'", "'b'", "'B'", "''", "'zz\U0010ffff'", "NULL"])
            return self.one_of(
                f"starts_with(s, {prefix})", f"prefix(s, {prefix})", f"s ^@ {prefix}",
                f"contains(s, {prefix})", f"starts_with({name}, {prefix})", f"suffix(s, {prefix})",
            )  # fmt: skip
        if form == 9:
            return self.one_of(
                "b", "NOT b", "(b)", "b = b", "b AND NULL", "b OR NULL", "NOT (b AND NULL)", "true",
                "false", "NULL", "NULL::BOOLEAN", "1", "0", "n", "b::INTEGER", "coalesce(b, true)",
                "isnan(x)", "isfinite(x)", "CASE WHEN b THEN n > 3 ELSE x < 0.5 END",
                "if(b, true, false)",
                "x = x", "n < x", "n IN (i, 3)", "(n, i) IN ((3, 7), (0, 0))", "(n, i) = (3, 7)",
                "n IN (u, NULL)",
                "n = ANY ([3, 12])", "n <> ALL ([3, NULL])", "b IS b", "s ISNULL", "s NOTNULL",
                "xor(i, 1) = 1",
                "n IN (SELECT i FROM e)", "NOT EXISTS (SELECT 1)",
            )  # fmt: skip
        if form == 10:
            return f"{name} BETWEEN {self.one_of('SYMMETRIC ', '')}{value} AND {self.value(column)}"
        return f"{name} {self.random.choice(COMPARISONS)} {value}"

    def predicate(self, depth: int = 0) -> str:
        roll = self.random.random()
        if depth > 2 or roll < 0.4:
            return self.atom()
        if roll < 0.55:
            return f"NOT ({self.predicate(depth + 1)})"
        word = "AND" if roll < 0.78 else "OR"
        both = f"({self.predicate(depth + 1)} {word} {self.predicate(depth + 1)})"
        if roll > 0.96:
            return f"{both} IS {self.one_of('', 'NOT ')}{self.one_of('TRUE', 'FALSE', 'NULL')}"
        return both


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A store with many small leaves and two indexes, and DuckDB over the same events."""
    table = events()
    database = chronicle.open(tmp_path_factory.mktemp("store"))
    for name in ("e", "indexed"):
        stream = database.create_stream(name, table.schema, "t", options={"leaf_bytes": 4096})
        stream.append(table)
        stream.flush()
    for column in ("n", "x", "s", "u", "f"):
        catalog_of(database).create_index("indexed", column)
    other = table.select(["t", "n", "i", "s"]).rename_columns(OTHER).take(list(range(0, ROWS, 3)))
    database.create_stream("o", other.schema, "o_t").append(other)
    ticks = pa.table({"k": range(-6, ROWS)})
    database.create_stream("ticks", ticks.schema, "k").append(ticks)
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("e", table)
    connection.register("indexed", table)
    connection.register("o", other)
    connection.register("ticks", ticks)
    yield database, connection
    connection.close()
    database.close()


def truths(connection, predicate: str) -> list[bool] | None:
    """Where DuckDB finds a predicate true; None where it refuses it."""
    try:
        found = connection.sql(f"SELECT ({predicate}) IS TRUE AS p FROM e").to_arrow_table()
        connection.sql(f"SELECT count(*) FROM e WHERE {predicate}").fetchall()
    except duckdb.Error:
        return None
    return found.column(0).to_pylist()


def key(value):
    """A value under the order of the store: NaN is the greatest number, strings go by bytes."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return (1, 0) if isinstance(value, float) and math.isnan(value) else (0, value)


def satisfies(prune, row) -> bool:
    if isinstance(prune, AllOf):
        return all(satisfies(item, row) for item in prune.items)
    if isinstance(prune, AnyOf):
        return any(satisfies(item, row) for item in prune.items)
    if isinstance(prune, Never):
        return False
    value = row[prune.column]
    if isinstance(prune, IsNull):
        return value is None
    if value is None or isinstance(prune, NotNull):
        return value is not None
    assert isinstance(prune, Range)
    low, high, at = prune.low, prune.high, key(value)
    above = low is None or (at > key(low) if prune.low_open else at >= key(low))
    below = high is None or (at < key(high) if prune.high_open else at <= key(high))
    return above and below


@pytest.fixture(scope="module")
def compiler(pair):
    """The compiler over the stream, its rows with times as ticks."""
    database, _ = pair
    table = events()
    columns = {}
    for field in table.schema:
        column = table.column(field.name)
        if pa.types.is_timestamp(field.type):
            column = column.cast(pa.int64())
        elif pa.types.is_date(field.type):
            column = column.cast(pa.int32())
        columns[field.name] = column.to_pylist()
    rows = [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]
    schema = catalog_of(database).stream_schema("e")
    executor = catalog_of(database).engine.executor
    folder = Folder(
        {}, dt.datetime.now(dt.timezone.utc), lambda node: executor.constant(to_text(node))
    )
    names = set(columns)
    assert isinstance(schema, StreamSchema)
    return PredicateCompiler(schema, folder, lambda c: c.name if c.name in names else None), rows


def disagreement(compiler, rows, predicate: str, true: list[bool]) -> str | None:
    """An event for which the compiled predicate says something else than DuckDB."""
    compiled = compiler.compile(parse_predicate(predicate))
    if compiled.prune is None:
        return None
    for row, holds in zip(rows, true, strict=True):
        kept = satisfies(compiled.prune, row)
        if (holds and not kept) or (compiled.exact and kept and not holds):
            return f"{predicate}: true={holds} of {row}, compiled to {compiled}"
    return None


@pytest.mark.parametrize("seed", range(40))
def test_what_is_pushed_down_follows_from_the_condition(pair, compiler, seed):
    made = Predicates(seed)
    for _ in range(60):
        predicate = made.predicate()
        true = truths(pair[1], predicate)
        if true is not None:
            assert disagreement(*compiler, predicate, true) is None


def asked(pair, made, count):
    """Predicates that DuckDB knows, with the times of the events for which they are true."""
    times = pair[1].sql("SELECT t FROM e").to_arrow_table().column(0).to_pylist()
    while count:
        predicate = made.predicate()
        true = truths(pair[1], predicate)
        if true is not None:
            count -= 1
            yield predicate, [time for time, holds in zip(times, true, strict=True) if holds]


def times_of(database, sql: str, refused: list[str]):
    """The only column of a query; None, and a note, where the dialect refuses it."""
    try:
        return database.sql(sql).arrow().column(0).to_pylist()
    except SqlError as error:
        refused.append(str(error))
        return None


@pytest.mark.parametrize("seed", range(16))
def test_filters_with_and_without_indexes_keep_the_events_that_duckdb_keeps(pair, seed):
    refused: list[str] = []
    for predicate, want in asked(pair, Predicates(10_000 + seed), 12):
        for stream in ("e", "indexed"):
            got = times_of(pair[0], f"SELECT t FROM {stream} WHERE {predicate}", refused)
            assert got in (want, None), (stream, predicate)
    assert len(refused) <= 2, refused


@pytest.mark.parametrize("seed", range(8))
def test_windows_and_joins_keep_the_events_that_duckdb_keeps(pair, seed):
    refused: list[str] = []
    for predicate, want in asked(pair, Predicates(20_000 + seed), 8):
        counted = times_of(
            pair[0],
            f"SELECT sum(k) FROM (SELECT count(*) AS k FROM TUMBLE(e, t, INTERVAL 1 HOUR) "
            f"WHERE {predicate} GROUP BY window_start, window_end)",
            refused,
        )
        assert counted is None or (counted[0] or 0) == len(want), predicate
        joined = times_of(
            pair[0],
            f"SELECT t FROM e JOIN (VALUES (1)) AS v(one) ON ({predicate}) ORDER BY t",
            refused,
        )
        assert joined in (want, None), predicate
    assert len(refused) <= 4, refused


JOINS = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN"]


def compare(pair, queries: list[str]) -> None:
    """Rows are those of DuckDB, in any order, of whatever DuckDB and the dialect know."""
    refused: list[str] = []
    for sql in queries:
        try:
            want = pair[1].sql(sql).fetchall()
        except duckdb.Error:
            continue
        try:
            got = pair[0].sql(sql).fetchall()
        except SqlError as error:
            refused.append(str(error))
            continue
        assert sorted(got, key=repr) == sorted(want, key=repr), sql
    assert len(refused) <= len(queries) // 4, refused


def test_a_time_of_ticks_is_compared_with_every_number(pair):
    where = [f"k {operator} {number}" for operator in COMPARISONS for number in NUMBERS]
    compare(pair, [f"SELECT k FROM ticks WHERE {condition}" for condition in where])


@pytest.mark.parametrize("kind", JOINS)
def test_joins_have_the_rows_that_duckdb_finds(pair, kind):
    """With conditions of either side, on pairs and on rows."""
    made = Predicates(40_000 + JOINS.index(kind))
    queries = []
    for sides in ("e {} o", "o {} e") * 6:
        known = "I JOIN" not in kind
        columns = "t, n, o_t, o_n, o_s" if known else "t, n" if sides[0] == "e" else "o_t, o_n"
        where = made.predicate(1) if known or sides[0] == "e" else "o_n > 0"
        near = "n = o_n AND o_t - t BETWEEN INTERVAL '-1' MINUTE AND INTERVAL 1 MINUTE"
        queries.append(
            f"SELECT {columns} FROM {sides.format(kind)} ON {near} AND {made.atom()} WHERE {where}"
        )
    compare(pair, queries)


@pytest.mark.parametrize("seed", range(8))
def test_derived_tables_have_the_rows_that_duckdb_finds(pair, seed):
    made = Predicates(50_000 + seed)
    inner, outer = made.predicate(1), made.predicate(1)
    queries = [
        f"SELECT t, n FROM (SELECT * FROM e WHERE {inner}) AS q WHERE {outer}",
        f"WITH q AS (SELECT * FROM e WHERE {inner}) SELECT t, n FROM q WHERE {outer}",
        f"WITH q AS (SELECT * FROM e WHERE {inner}) SELECT count(*) FROM q JOIN q AS r USING (t)",
        f"SELECT n, count(*) FROM (SELECT * FROM e WHERE {inner} ORDER BY t LIMIT 200) "
        f"WHERE {outer} GROUP BY n",
        f"SELECT t, s FROM e WHERE {inner} AND n IN (SELECT o_n FROM o WHERE o_i > 0)",
        f"SELECT o_t FROM o WHERE o_n IN (SELECT n FROM e WHERE {outer})",
    ]
    compare(pair, queries)


@pytest.mark.parametrize("seed", range(8))
def test_conditions_of_patterns_hold_where_duckdb_finds_them_true(pair, seed):
    refused: list[str] = []
    for predicate, want in asked(pair, Predicates(30_000 + seed), 6):
        for stream, hint in (("e", ""), ("indexed", "/*+ strategy(all) */")):
            sql = (
                f"SELECT {hint} w FROM {stream} MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS w "
                f"PATTERN (A) DEFINE A AS {predicate})"
            )
            assert times_of(pair[0], sql, refused) in (want, None), sql
    assert len(refused) <= 4, refused


@pytest.mark.parametrize(
    "predicate",
    [
        "s NOT LIKE 'b%'", "s !~~ 'b%'", "NOT (s NOT LIKE 'b%')", "s NOT ILIKE 'B%'",
        "s NOT LIKE 'apple'", "n IN (1e19, 9223372036854775808)", "n IN (9007199254740993, 1e0)",
        "n BETWEEN 9007199254740993 AND 1e19", "n NOT IN ('3.7', 2.5)",
        "s = 'APPLE' COLLATE NOCASE",
        "n = 9007199254740992::FLOAT", "CAST(t AS DATE) = '1970-01-01 12:00:00'",
        "n IN (9007199254740993, NULL::DOUBLE)", "CAST(n AS BIGINT) = 9223372036854775807::FLOAT",
        "d NOT BETWEEN '1970-01-01 00:10:00' AND TIMESTAMP '1970-01-02'",
        "f = 0.1", "NOT (f > 0.1)", "f IN (0.1, 3)",
    ],
)  # fmt: skip
def test_conditions_that_were_once_pruned_wrongly(pair, compiler, predicate):
    true = truths(pair[1], predicate)
    assert true is not None
    assert disagreement(*compiler, predicate, true) is None
    got = pair[0].sql(f"SELECT count(*) FROM e WHERE {predicate}").fetchall()
    assert got == [(sum(true),)]


def test_events_are_read_up_to_the_last_tick_of_a_truncated_time(tmp_path):
    last = "2023-12-31 23:59:59.999999"  # of a Sunday
    with chronicle.open(tmp_path) as database:
        stream = database.create_stream("s", pa.schema([("t", pa.timestamp("us"))]), time="t")
        stream.append([{"t": last}])
        for unit in predicates._TRUNCATED_NS:
            condition = f"date_trunc('{unit}', t) = date_trunc('{unit}', TIMESTAMP '{last}')"
            found = database.sql(f"SELECT count(*) FROM s WHERE {condition}").fetchall()
            assert found == [(1,)], unit

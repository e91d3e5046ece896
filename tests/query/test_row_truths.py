"""Conditions of deletes that are decided over columns: DuckDB finds the same rows true."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import catalog_of
from chronicle.query import modification
from chronicle.query.conditions.constants import Folder
from chronicle.query.conditions.predicates import Compiled, PredicateCompiler
from chronicle.query.conditions.row_filters import columns_of, has_row_truths, row_truths
from chronicle.query.sql.dialect import parse_predicate, to_text
from chronicle.schema import StreamSchema
from chronicle.store.prune import Remainder

from ..rounds import rounds
from .test_predicate_differential import Predicates, events, truths

INTEGERS = {
    "n": [-(2**63), -(2**63) + 1, -101, -100, -7, -1, 0, 1, 7, 100, 107, 2**63 - 1, None],
    "i": [-128, -127, -100, -3, 0, 3, 100, 127, None, 5, 6, 7, 8],
}
DIVISORS = [1, 2, 3, 7, 100, 127, 128, 2**31, 2**62, 2**63 - 1, 2**63, 0, -3]
OPERATORS = ["<", "<=", ">", ">=", "=", "<>"]

Looked = Callable[[str], Compiled]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Looked]:
    """What a condition on the events is compiled to, remainders with it."""
    with chronicle.open(tmp_path_factory.mktemp("store")) as database:
        database.create_stream("e", events().schema, "t")
        schema = catalog_of(database).stream_schema("e")
        executor = catalog_of(database).engine.executor

        def evaluate(node: object) -> pa.Scalar | None:
            return executor.constant(to_text(node))

        folder = Folder({}, dt.datetime.now(dt.timezone.utc), evaluate)

        def look(predicate: str) -> Compiled:
            compiler = PredicateCompiler(
                schema, folder, lambda c: c.name if c.name in schema else None
            )
            return compiler.compile(parse_predicate(predicate))

        yield look


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("e", events())
    yield connection
    connection.close()


def schema_of(table: pa.Table) -> StreamSchema:
    return StreamSchema(table.schema, table.schema.names[0])


def found_in(table: pa.Table, found: Compiled, rng: random.Random) -> list[bool]:
    """Row truths of a table, in batches that begin anywhere, with texts as codes now and then."""
    schema, truths, at = schema_of(table), [], 0
    whole = table.combine_chunks().to_batches()[0]
    while at < len(whole):
        batch = whole.slice(at, rng.randrange(1, 400))
        at += len(batch)
        arrays = [
            column.dictionary_encode() if pa.types.is_string(column.type) and at % 2 else column
            for column in batch.columns
        ]
        batch = pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)
        truths += row_truths(found.prune, batch, schema).tolist()
    return truths


@pytest.mark.parametrize("seed", range(12))
def test_what_is_decided_is_what_duckdb_finds(
    compiled: Looked, connection: duckdb.DuckDBPyConnection, seed: int
) -> None:
    made, rng, table, decided = Predicates(50_000 + seed), random.Random(seed), events(), 0
    schema = schema_of(table)
    for _ in range(80):
        predicate = made.atom() if rng.random() < 0.6 else made.predicate()
        if rng.random() < 0.3:
            divisor, other = rng.choice(DIVISORS), rng.choice(["0", "3", "-1", "2.5", "100"])
            remainder = f"{rng.choice('ni')} % {divisor} {rng.choice(OPERATORS)} {other}"
            word = rng.choice(["AND", "OR", "AND NOT", "OR NOT"])
            predicate = f"({predicate}) {word} {remainder}"
        want = truths(connection, predicate)
        if want is None:
            continue
        found = compiled(predicate)
        if found.exact and has_row_truths(found.prune, schema):
            decided += 1
            assert found_in(table, found, rng) == want, (predicate, found)
    assert decided > 5


def decided_as_by_duckdb(
    compiled: Looked,
    connection: duckdb.DuckDBPyConnection,
    predicates: list[str],
    name: str,
    values: pa.Array,
    scan: bool = False,
) -> int:
    """How many conditions on one column are decided; fails where DuckDB finds something else."""
    found = {each: compiled(each) for each in predicates}
    exact = [each for each in predicates if found[each].exact and found[each].prune is not None]
    table = pa.table({"t": pa.array(range(len(values)), pa.int64()), name: values})
    with connection.cursor() as cursor:
        cursor.register("column_of_e", table)
        asked = ", ".join(f"({each}) IS TRUE AS p{i}" for i, each in enumerate(exact))
        want = cursor.sql(f"SELECT {asked} FROM column_of_e").to_arrow_table() if exact else table
        for number, each in enumerate(exact):
            got = found_in(table, found[each], random.Random(1))
            assert got == want.column(number).to_pylist(), (each, found[each])
            if scan:
                kept = cursor.sql(f"SELECT t FROM column_of_e WHERE {each}").to_arrow_table()
                assert kept.column(0).to_pylist() == np.flatnonzero(got).tolist(), each
    return len(exact)


def test_doubles_beside_decimals_are_told_apart_to_the_last_bit(
    compiled: Looked, connection: duckdb.DuckDBPyConnection
) -> None:
    rng = random.Random(3)
    literals = ["0.01", "0.1", "-0.3", "1.1", "0.0", "-0.0", "99999999999999.9", "0.000001"]
    literals += ["1234567.12345678", "0.30000000000000004", "123456789012345678.5", "5.", ".5"]
    for _ in range(rounds(60, 200)):
        digits = rng.randrange(1, 21)
        scale = rng.randrange(0, digits + 4)
        literals.append(f"{rng.randrange(10**digits)}.{rng.randrange(10**scale):0{scale}}")
    decided = 0
    for literal in literals:
        near = float(Decimal(literal))
        values = [near, None, math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324]
        up = down = near
        for _ in range(3):
            up, down = math.nextafter(up, math.inf), math.nextafter(down, -math.inf)
            values += [up, down]
        predicates = [f"x {operator} {literal}" for operator in OPERATORS]
        predicates += [f"NOT ({literal} {operator} x)" for operator in OPERATORS]
        predicates += [f"x BETWEEN 0.1 AND {literal}", f"x IN (0.25, {literal})"]
        column = pa.array(values, pa.float64())
        decided += decided_as_by_duckdb(
            compiled, connection, predicates, "x", column, rng.random() < 0.1
        )
    assert decided > rounds(400, 1000)
    assert compiled("x < 0.01").exact
    assert not compiled("x < 0.1234567890123456789").exact


@pytest.mark.parametrize("name", INTEGERS)
def test_remainders_have_the_sign_that_duckdb_gives_them(
    compiled: Looked, connection: duckdb.DuckDBPyConnection, name: str
) -> None:
    type_ = events().schema.field(name).type
    rng = random.Random(7)
    limits = np.iinfo(type_.to_pandas_dtype())
    more = [rng.randint(int(limits.min), int(limits.max)) for _ in range(300)]
    values = pa.array([*INTEGERS[name], *more], type_)
    decided = 0
    for divisor in DIVISORS:
        remainder, predicates = f"{name} % {divisor}", []
        for other in ("0", "1", "-1", "6", "-99", "2.5", "0.0", "170141183460469231731687303715"):
            for operator in OPERATORS:
                predicates += [
                    f"{remainder} {operator} {other}", f"{other} {operator} ({remainder})",
                    f"NOT ({remainder} {operator} {other})",
                ]  # fmt: skip
        decided += decided_as_by_duckdb(
            compiled, connection, predicates, name, values, divisor == 7
        )
    assert decided > 300
    assert not compiled(f"{name} % 0 = 1").exact
    assert not compiled("u % 3 = 1").exact  # whole numbers beyond those with a sign
    assert not compiled(f"{name} % 3.0 = 1").exact


def test_a_remainder_says_nothing_to_scans(tmp_path: Path) -> None:
    with chronicle.open(tmp_path) as database:
        database.create_stream("e", events().schema, "t").append(events())
        query = "SELECT count(*) FROM e WHERE n % 3 = 1 AND i > 2"
        assert "%" not in str(database.explain(query).to_dict().get("prune"))
        want = sum(
            n is not None and i is not None and math.fmod(n, 3) == 1 and i > 2
            for n, i in zip(events()["n"].to_pylist(), events()["i"].to_pylist(), strict=True)
            if n is None or abs(n) < 2**53
        )
        near = f"{query} AND n BETWEEN -9007199254740991 AND 9007199254740991"
        assert database.sql(near).fetchall() == [(want,)]
        either = database.sql("SELECT count(*) FROM e WHERE n % 7 = 5 OR i > 127").fetchall()
        sieved = duckdb.connect()
        sieved.register("e", events())
        assert either == sieved.sql("SELECT count(*) FROM e WHERE n % 7 = 5 OR i > 127").fetchall()
    assert columns_of(Remainder("n", 3, 1, 1)) == ["n"]


CONDITIONS = [
    "n % 7 = 3", "x < 0.01", "x >= 0.99 OR n % 100 < -50", "s = 'b'", "s IS NULL AND n % 2 = 0",
    "NOT (s < 'b') AND x BETWEEN 0.25 AND 0.5", "t % 5 = 0", "t > 400 AND n % 3 <> 0", "x IS NULL",
    "b", "NOT b AND n > 0", "n % 2 = 0 AND n % 2 = 1",
]  # fmt: skip


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_delete_takes_what_a_select_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, condition: str
) -> None:
    """Events of equal times, late ones, leaves, a tail and several parts to look at."""
    monkeypatch.setattr(modification, "PART_EVENTS", 100)
    asked: list[str] = []

    def chosen(*_: object) -> None:
        asked.append(condition)

    monkeypatch.setattr(modification.Deletion, "_chosen", chosen)
    rng = np.random.default_rng(11)
    schema = pa.schema(
        [("t", pa.int64()), ("n", pa.int64()), ("x", pa.float64()), ("s", pa.string()),
         ("b", pa.bool_())]
    )  # fmt: skip
    numbers = iter(range(-(10**6), 10**6))

    def batch(times: list[int]) -> pa.Table:
        count = len(times)
        missing = rng.random((4, count)) < 0.1
        columns = [
            pa.array(times, pa.int64()),
            pa.array([next(numbers) for _ in times], mask=missing[0]),
            pa.array(rng.choice([0.01, 0.25, math.nan, 0.5, 0.99, 0.009], count), mask=missing[1]),
            pa.array(rng.choice(["a", "b", "c"], count), pa.string(), mask=missing[2]),
            pa.array(rng.random(count) < 0.5, mask=missing[3]),
        ]
        return pa.Table.from_arrays(columns, schema=schema)

    options = {"leaf_bytes": 2048, "segment_bytes": 16_384, "late_events_max": 50}
    with chronicle.open(tmp_path) as database:
        stream = database.create_stream("s", schema, "t", options=options)
        for times in (
            [i // 3 for i in range(1500)],
            [90, 90, 5, 200, 199],
            [500] * 300,
            [600, 601],
        ):
            stream.append(batch(times))
        rows = pa.Table.from_batches(stream.scan())
        rows = rows.append_column("place", pa.array(range(len(rows))))
        connection = duckdb.connect()
        connection.register("s", rows)
        gone = connection.sql(f"SELECT place FROM s WHERE {condition}").fetchall()
        left = rows.take(sorted(set(range(len(rows))) - {place for (place,) in gone})).drop(
            ["place"]
        )
        assert stream.delete(condition) == len(gone)
        assert not asked
        now = pa.Table.from_batches(stream.scan())
        assert str(now.to_pylist()) == str(left.to_pylist())  # NaN is like NaN


def test_a_delete_looks_at_its_range_of_time_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In many parts, of which none is read of the segments before and behind it."""
    monkeypatch.setattr(modification, "PART_EVENTS", 50)
    looked: list[int] = []

    def watched(prune: object, batch: pa.RecordBatch, schema: StreamSchema) -> np.ndarray:
        looked.extend(batch.column(0).to_pylist())
        return row_truths(prune, batch, schema)

    monkeypatch.setattr(modification, "row_truths", watched)
    options = {"leaf_bytes": 512, "segment_bytes": 4096}
    with chronicle.open(tmp_path) as database:
        schema = pa.schema([("t", pa.int64()), ("n", pa.int64())])
        stream = database.create_stream("s", schema, "t", options=options)
        times = [i // 2 for i in range(2_000)]
        stream.append(pa.table([times, list(range(2_000))], schema=schema))
        stream.append(pa.table([[300, 301], [5, 6]], schema=schema))
        for start, end in ((300, 400), (None, 20), (995, None), (301, 302), (0, 0)):
            looked.clear()
            low, high = start or 0, 1_000 if end is None else end
            left = [
                (t, n)
                for batch in stream.scan()
                for t, n in zip(*batch.to_pydict().values(), strict=True)
                if not (low <= t < high and n % 3 == 1)
            ]
            stream.delete("n % 3 = 1", start, end)
            assert sorted(looked) == looked
            assert all(low <= tick < high for tick in looked)
            assert bool(looked) == (low < high)
            rows = pa.Table.from_batches(stream.scan()).to_pydict()
            assert list(zip(rows["t"], rows["n"], strict=True)) == left

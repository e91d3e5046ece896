"""SELECTs of columns of events that a scan finds by itself, against the relational executor."""

from __future__ import annotations

import datetime as dt
import math
import pickle
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import catalog_of
from chronicle.query.engine import StatementCache
from chronicle.query.plan import nodes, planner
from chronicle.query.plan.division import divide
from chronicle.query.sql.dialect import parse_statement

from ..rounds import rounds

DAY = dt.date(2020, 1, 1)
VALUES: dict[str, tuple[pa.DataType, list[Any], list[str]]] = {
    "i": (pa.int8(), [-128, -1, 0, 1, 5, 127], ["0", "5", "127", "1000", "-129", "2.5", "1e0"]),
    "u": (pa.uint64(), [0, 1, 2**53 + 1, 2**64 - 1], ["0", "1", "-1", "9007199254740993"]),
    "x": (
        pa.float64(),
        [-math.inf, -1.5, -0.0, 0.0, 0.1, 1.5, 2.0**60, math.inf, math.nan],
        ["0", "1.5", "0.1", "-0.0", "'nan'::DOUBLE", "'inf'::DOUBLE", "1e0", "1152921504606846976"],
    ),
    "f": (
        pa.float32(),
        [-1.5, 0.0, 0.1, 1.5, math.nan],
        ["0", "1.5", "0.1", "1.5::FLOAT", "0.1e0"],
    ),
    "k": (pa.string(), ["", "a", "ab", "b", "é", "\U0001f600"], ["''", "'a'", "'é'", "'zz'"]),
    "l": (pa.large_string(), ["", "a", "b"], ["'a'", "'b'"]),
    "b": (pa.bool_(), [True, False], ["true", "false"]),
    "d": (pa.date32(), [DAY, dt.date(1969, 12, 31)], ["'2020-01-01'", "DATE '1970-01-01'"]),
    "m": (
        pa.timestamp("ms"),
        [dt.datetime(2020, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 999000)],
        ["'2020-01-01'", "TIMESTAMP '2020-01-01 00:00:00.0005'", "'2019-12-31 23:59:59'"],
    ),
    "z": (pa.timestamp("us", "UTC"), [dt.datetime(2020, 1, 1)], ["'2020-01-01'"]),
    "w": (pa.binary(), [b"", b"\x00\xff"], []),
    "n": (pa.decimal128(10, 2), [Decimal("1.50")], []),
}
EVENTS = 1000


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    chance = random.Random(7)
    columns = {"t": pa.array(range(EVENTS))}
    for name, (type_, values, _) in VALUES.items():
        drawn = [chance.choice([*values, None]) for _ in range(EVENTS)]
        columns[name] = pa.array(drawn, type_)
    table = pa.table(columns)
    with chronicle.open(tmp_path_factory.mktemp("passing") / "store") as db:
        stream = db.create_stream("s", table.schema, "t")
        stream.append(table.slice(0, 600))
        stream.seal()
        stream.append(table.slice(700))  # the rest is late
        stream.append(table.slice(600, 100))
        yield db


def condition(chance: random.Random, depth: int = 2) -> str:
    if depth and chance.random() < 0.5:
        parts = [condition(chance, depth - 1) for _ in range(chance.randint(2, 3))]
        joined = f" {chance.choice(['AND', 'OR'])} ".join(parts)
        return f"{chance.choice(['', 'NOT '])}({joined})"
    if chance.random() < 0.2:
        return f"t {chance.choice(['<', '>='])} {chance.randint(-5, EVENTS + 5)}"
    name = chance.choice(list(VALUES))
    constants = VALUES[name][2]
    if not constants or chance.random() < 0.15:
        return f"{name} IS {chance.choice(['', 'NOT '])}NULL"
    one, two = chance.choice(constants), chance.choice(constants)
    kind = chance.randrange(8)
    if kind == 0:
        return f"{name} {chance.choice(['', 'NOT '])}IN ({one}, {two})"
    if kind == 1:
        return f"{name} {chance.choice(['', 'NOT '])}BETWEEN {one} AND {two}"
    if kind == 2:
        return f"{name} IS {chance.choice(['', 'NOT '])}DISTINCT FROM {one}"
    operator = chance.choice(["=", "<>", "<", "<=", ">", ">="])
    return f"{name} {operator} {one}" if kind > 3 else f"{one} {operator} {name}"


def answered(db: Any, text: str, params: Any = None) -> pa.Table | str:
    catalog_of(db).engine._prepared = StatementCache()
    try:
        return db.sql(text, params).arrow()
    except chronicle.errors.SqlError as error:
        return str(error)


def compare(
    db: Any, monkeypatch: pytest.MonkeyPatch, text: str, params: Any = None
) -> pa.Table | str:
    """The answer, which is the executor's as well."""
    found = answered(db, text, params)
    with monkeypatch.context() as patched:
        patched.setattr(planner, "passing_scan", lambda *_: None)
        expected = answered(db, text, params)
    if isinstance(expected, str) or isinstance(found, str):
        assert found == expected, text
    else:
        assert found.schema.equals(expected.schema), text
        assert found.num_rows == expected.num_rows, text
        for ours, theirs in zip(found.columns, expected.columns, strict=True):
            assert same(ours, theirs), text
    return found


def same(ours: pa.ChunkedArray, theirs: pa.ChunkedArray) -> bool:
    """Whether values are equal, NaN and minus zero told apart."""
    if not pa.types.is_floating(ours.type):
        return bool(ours.equals(theirs))
    words = [c.cast(pa.float64()).fill_null(4.5).to_numpy().view(np.int64) for c in (ours, theirs)]
    return bool(ours.is_null().equals(theirs.is_null()) and (words[0] == words[1]).all())


def passes(db: Any, text: str) -> bool:
    plan = catalog_of(db).engine.plan(parse_statement(text), text)
    return isinstance(plan.root, nodes.PassThrough)


def test_rows_are_those_of_the_executor(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    chance, passed = random.Random(11), 0
    for _ in range(rounds(40, 120)):
        text = f"SELECT * EXCLUDE (n) FROM s WHERE {condition(chance)}"
        text = text.replace("* EXCLUDE (n)", "t, i, u, x, f, k, l, b, d, m, z, w")
        passed += passes(db, text)
        compare(db, monkeypatch, text)
    assert passed > rounds(13, 40)


@pytest.mark.parametrize(
    ("columns", "rest", "expected"),
    [
        ("*", "", False),  # a decimal column: the executor's own types
        ("t, x AS y, T, \"k\", s.i, q.b", "", None),
        ("t, x AS y, T, \"k\", s.i", "", True),
        ("t, t, x AS t", "", True),
        ("s.t, k", "WHERE x >= 0 AND b", True),
        ("t", "WHERE x >= 0 ORDER BY t", True),
        ("t, x", "WHERE x >= 0 ORDER BY 1", True),
        ("t", "WHERE x >= 0 ORDER BY t DESC", False),
        ("t, x", "ORDER BY x", False),
        ("x AS t", "ORDER BY t", False),
        ("t, k", "LIMIT 10", True),
        ("t, k", "LIMIT 0", True),
        ("t, k", "LIMIT 10 OFFSET 695", True),
        ("t, k", "WHERE k = 'a' LIMIT 7 OFFSET 3", True),
        ("t, k", "WHERE k = 'a' ORDER BY t LIMIT 3 OFFSET 70", True),
        ("t, k", "OFFSET 990", False),
        ("t, k", "LIMIT 1 + 1", None),
        ("t, k", "LIMIT 10 PERCENT", False),
        ("t, x + 1", "", False),
        ("DISTINCT b", "", False),
        ("t", "WHERE k LIKE 'a%'", False),
        ("t", "WHERE abs(x) > 1", False),
        ("t", "WHERE x > i", False),
        ("count(*)", "WHERE x > 0", False),
        ("t", "WHERE t = 17 OR i = 5 AND NOT b", True),
        ("t", "WHERE t < -5", True),
        ("t", "WHERE NULL", True),
        ("t, row_number() OVER ()", "", False),
    ],
)  # fmt: skip
def test_what_passes(
    db: Any, monkeypatch: pytest.MonkeyPatch, columns: str, rest: str, expected: bool | None
) -> None:
    text = f"SELECT {columns} FROM s {rest}"
    if expected is not False:  # else it may have its rows in any order
        compare(db, monkeypatch, text)
    if expected is not None:
        assert passes(db, text) == expected


def test_errors_are_those_of_the_executor(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = compare(db, monkeypatch, "SELECT t FROM s WHERE i = 'abc'")
    assert "abc" in str(found)


def test_values_decide_anew(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "SELECT t, x FROM s WHERE x >= $x AND t < $t AND k = $k LIMIT $n"
    seen = set()
    for x, t, k, n in [
        (0, 900, "a", 10), (0.1, 100, "é", 5), (math.nan, 4000, "b", 3), (None, 10, "a", 1),
        (Decimal("0.1"), 4000, "", 0), (-math.inf, 2**62, "\U0001f600", 10**6),
    ]:  # fmt: skip
        found = compare(db, monkeypatch, text, {"x": x, "t": t, "k": k, "n": n})
        seen.add(str(found))
    assert len(seen) > 4


def test_a_list_that_is_long_is_the_executors(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = ", ".join(str(n * 7) for n in range(500))
    text = f"SELECT t, k FROM s WHERE u IN ({listed})"
    assert not passes(db, text)
    compare(db, monkeypatch, text)


def test_columns_with_strange_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["time", "a.b", "x y", "and", "is_valid(t)", "[0]", "/a"]
    with chronicle.open(tmp_path / "names") as db:
        table = pa.table({name: pa.array([1, 2, 3, 4]) for name in names})
        db.create_stream("s", table.schema, "time").append(table)
        for name in names:
            text = f'SELECT "{name}", "time" FROM s WHERE "{name}" >= 2 AND "{name}" <> 3'
            assert passes(db, text)
            found = compare(db, monkeypatch, text)
            assert found.column(0).to_pylist() == [2, 4]  # type: ignore[union-attr]


def test_explain_tells_what_the_scan_applies(db: Any) -> None:
    text = "SELECT t, k FROM s WHERE x >= 1.5 AND t < 900 LIMIT 10 OFFSET 5"
    told = str(db.explain(text, analyze=True))
    assert "filter: x >= 1.5" in told
    assert "columns: t, k" in told
    assert "rows 10" in told


def test_batches_are_of_a_size(tmp_path: Path) -> None:
    with chronicle.open(tmp_path / "large") as db:
        table = pa.table({"t": np.arange(300_000), "x": np.arange(300_000) * 0.5})
        db.create_stream("s", table.schema, "t").append(table)
        text = "SELECT x FROM s WHERE x >= 1 AND t < 250000 LIMIT 200000 OFFSET 70000"
        sizes = [batch.num_rows for batch in db.sql(text).batches()]
        assert sum(sizes) == 179_998
        assert max(sizes) <= 65_536


def test_a_query_over_windows_reads_such_rows(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "SELECT window_start, sum(i) AS total, k FROM TUMBLE(s, t, 100) WHERE x >= 0 AND b "
        "GROUP BY window_start, k ORDER BY window_start, k"
    )
    compare(db, monkeypatch, text)


def test_parts_of_such_a_query_have_its_rows(tmp_path: Path) -> None:
    with chronicle.open(tmp_path / "parts") as db:
        table = pa.table({"t": np.arange(900_000), "x": np.arange(900_000) % 7 * 0.5})
        stream = db.create_stream("s", table.schema, "t")
        stream.append(table)
        text = "SELECT x AS y, t FROM s WHERE x >= 1.5 AND t >= 5000 AND t < 890000"
        engine = catalog_of(db).engine
        plan = engine.plan(parse_statement(text), text)
        assert isinstance(plan.root, nodes.PassThrough)
        parts = divide(plan, engine.catalog.snapshot, lambda _: 3).parts
        assert len(parts) > 1
        found = [engine.run_plan(pickle.loads(pickle.dumps(p.plan))).arrow() for p in parts]
        assert pa.concat_tables(found).combine_chunks() == db.sql(text).arrow().combine_chunks()

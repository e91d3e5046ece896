"""Filters that live queries answer without the executor: the same rows as with it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import catalog_of
from chronicle.live.analysis import form_of as analysed
from chronicle.live.row_form import TIME, RowForm
from chronicle.query.sql.dialect import parse_statement

SCHEMA = pa.schema(
    [
        pa.field("t", pa.int64(), False), ("x", pa.float64()), ("y", pa.float64()),
        ("n", pa.int64()), ("small", pa.int16()), ("kind", pa.string()), ("flag", pa.bool_()),
        ("at", pa.timestamp("ms")), ("single", pa.float32()), ("b", pa.binary()),
    ]
)  # fmt: skip
VALUES: dict[str, list[Any]] = {
    "x": [None, float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 0.1, 0.3, 1e300, 5e-324],
    "y": [None, float("nan"), 0.0, 0.1, 0.3, -1.5],
    "n": [None, -(2**63), 2**63 - 1, 0, 1, 2, 3],
    "small": [None, -32768, 32767, 0, 1],
    "kind": [None, "", "a", "A", "b", "it's", "ä"],
    "flag": [None, True, False],
    "at": [None, 0, 1_500_000_000_000],
    "single": [None, 0.1, float("nan")],
    "b": [None, b"", b"a"],
}
PLAIN = [
    "x < 0.1", "x <= 0.1", "x > 0.1", "x >= 0.1", "x = 0.1", "0.1 < x", "x < -0.0", "x > 1e299",
    "x = 0", "x BETWEEN 0 AND 0.3", "n > 1", "n >= 1.5",
    "n < 1.5", "n = 2", "n BETWEEN -1 AND 2", "small < 1 AND n > 0", "flag", "(x < 0.3) AND (flag)",
    "kind = 'a'", "kind <> 'a'", "kind IN ('a', 'it''s')", "kind NOT IN ('a', '')",
    "NOT kind = 'a'", "kind IS NULL", "x IS NOT NULL", "NOT (b IS NULL)", "t IS NULL",
    "s.x < 0.3 AND s.kind = 'a'", "X < 0.3", "x < 1 AND x > -1 AND kind <> 'b' AND n IS NOT NULL",
    "x < 0.1 OR n = 1", "n <> 1", "kind < 'b'", "at > TIMESTAMP '2001-01-01'", "n = '1'",
    "(x) < 0.3", "kind IN ('a', NULL)", "NOT (x < 0.1)", "n IN (1, 2)", "n % 2 = 1", "t < 90",
    "t BETWEEN 20 AND 90 AND (flag OR kind NOT IN ('a', 'b', 'ä'))", "true", "false",
]  # fmt: skip
OTHER = [
    "x < y", "x >= y", "x = y", "x + 1 < 2", "abs(x) < 1", "kind LIKE 'a%'", "single < 0.1",
    "kind IN ('a', n)", "b = 'a'", "x IS NOT DISTINCT FROM y",
]  # fmt: skip


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    rng = random.Random(3)
    with chronicle.open(tmp_path_factory.mktemp("plain") / "store") as opened:
        stream = opened.create_stream("s", SCHEMA, time="t")
        for begin in (0, 100, 50):  # some of them late
            times = sorted(begin + rng.randrange(60) for _ in range(400))
            columns = [rng.choices(VALUES[name], k=400) for name in SCHEMA.names[1:]]
            stream.append(pa.table([times, *columns], schema=SCHEMA))
        yield opened


def form_of(database: Any, select: str) -> RowForm:
    live = catalog_of(database).live_statements
    found = analysed(
        live._engine, lambda name: database.stream(name).snapshot(), parse_statement(select), select
    )
    form: Any = getattr(found.form, "form", found.form)
    assert isinstance(form, RowForm)
    return form


@pytest.mark.parametrize("where", PLAIN)
def test_rows_are_those_of_the_executor(database: Any, where: str) -> None:
    columns = "t AS time, n, X, kind, at, single, b, flag"
    form = form_of(database, f"SELECT {columns} FROM s WHERE {where}")
    assert form.plain is not None, where
    snapshot = database.stream("s").snapshot()
    for start, end in ((None, None), (30, 110), (55, 56), (5, 5)):
        found = form.plain.over(snapshot, start, end, TIME)
        wanted = form.evaluator.over(snapshot, start, end)
        assert found.schema.types == wanted.schema.types
        assert repr(found.to_pylist()) == repr(
            wanted.rename_columns(found.column_names).to_pylist()
        )


@pytest.mark.parametrize("where", OTHER)
def test_what_is_none_of_these_is_left_to_the_executor(database: Any, where: str) -> None:
    assert form_of(database, f"SELECT t FROM s WHERE {where}").plain is None


@pytest.mark.parametrize(
    ("select", "plain"),
    [
        ("SELECT * FROM s", True),
        ("SELECT * FROM s AS e WHERE e.x < 1", True),
        ("SELECT x AS y, y AS x FROM s WHERE y < 0.1", True),
        ("SELECT x AS z FROM s WHERE z < 0.1", False),
        ("SELECT x + 1 FROM s", False),
        ("SELECT * EXCLUDE (x) FROM s", False),
        ("SELECT * REPLACE (-x AS x) FROM s", False),
        ("SELECT e.n FROM s AS e(t, x) WHERE x < 1", False),
    ],
)
def test_columns_as_they_are(database: Any, select: str, plain: bool) -> None:
    form = form_of(database, select)
    assert (form.plain is not None) == plain
    snapshot = database.stream("s").snapshot()
    wanted = form.evaluator.over(snapshot, None, None)
    if form.plain is not None:
        found = form.plain.over(snapshot, None, None, TIME)
        assert repr(found.to_pylist()) == repr(wanted.to_pylist())


@pytest.mark.parametrize(
    ("query", "condition", "plain"),
    [
        ("SELECT t, n FROM s", "true", True),
        ("SELECT n, t AS n2, x AS t FROM s WHERE kind = 'a'", "q.n > 1", True),
        ("SELECT n, t AS n2, kind AS t FROM s", "q.t = 'a' AND Q.N2 < 90", True),
        ("SELECT t, x AS n, n AS x FROM s WHERE x < 0.3 OR flag", "q.x = 1 AND q.n < 0.2", True),
        ("SELECT t, n, x FROM s", "q.x < q.n", False),
        ("SELECT t, n + 1 AS n FROM s", "true", False),
    ],
)
def test_a_side_of_a_join_that_renames_columns(
    database: Any, query: str, condition: str, plain: bool
) -> None:
    time = "n2" if "n2" in query else "t"
    live = catalog_of(database).live_statements
    sql = (
        f"SELECT q.n, s.kind FROM ({query}) AS q JOIN s ON s.t BETWEEN q.{time} AND q.{time} + 5 "
        f"WHERE {condition}"
    )
    joined = live._analyse(parse_statement(sql), sql).form
    side = joined._plain[0]
    assert (side is not None) == plain
    if side is not None:
        snapshot = database.stream("s").snapshot()
        rows, wanted = side.over(snapshot, None, None, TIME), joined._sides[0].over(snapshot)
        assert rows.schema.types == wanted.schema.types
        assert repr(rows.to_pylist()) == repr(wanted.to_pylist())

"""Aggregates without an order take rows by time, whatever the executor's threads do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle.errors import SqlError

EVENTS = 300_000  # several batches for each of several threads
KEYS = 7


@pytest.fixture(scope="module")
def events() -> dict[str, Any]:
    """Values that are not in the order of time, with keys, by column."""
    rng = np.random.default_rng(7)
    return {
        "v": rng.permutation(EVENTS),
        "k": rng.integers(0, KEYS, EVENTS),
        "x": np.where(rng.random(EVENTS) < 0.5, np.nan, 1.0),
    }


@pytest.fixture(scope="module")
def db(events: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    table = pa.table(
        {
            "t": pa.array(np.arange(EVENTS) * 1_000_000, pa.timestamp("us")),
            "v": events["v"],
            "k": pa.array(events["k"]).cast(pa.string()),
            "x": pa.array(events["x"], from_pandas=True),
        }
    )
    path: Path = tmp_path_factory.mktemp("time_order")
    with chronicle.open(path) as database:
        database.create_stream("s", table.schema, time="t").append(table)
        yield database


def rows(db: Any, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in db.sql(sql).arrow().to_pylist()]


def by_key(events: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key in range(KEYS):
        yield str(key), events["v"][events["k"] == key]


@pytest.mark.parametrize(
    "source", ["s", "(SELECT v, k, t AS at FROM s)", "s JOIN s AS o USING (t)"]
)
def test_first_and_last_are_by_time(db: Any, events: dict[str, Any], source: str) -> None:
    v, k = ("v", "k") if "JOIN" not in source else ("s.v", "s.k")
    sql = f"SELECT {k} AS k, first({v}), last({v}) FROM {source} GROUP BY {k} ORDER BY {k}"
    expected = [(key, values[0], values[-1]) for key, values in by_key(events)]
    assert rows(db, sql) == expected


def test_lists_are_in_the_order_of_time(db: Any, events: dict[str, Any]) -> None:
    for function in ("list(v)", "array_agg(v)"):
        (found,) = rows(db, f"WITH w AS (SELECT * FROM s) SELECT {function} FROM w")[0]
        assert found == events["v"].tolist()
    for function in ("string_agg(v::VARCHAR, ' ')", "group_concat(v::VARCHAR, ' ')"):
        found = rows(db, f"SELECT k, {function} FROM s GROUP BY k ORDER BY k")
        assert found == [(key, " ".join(map(str, vs))) for key, vs in by_key(events)]


def test_of_equal_extremes_and_counts_the_earliest_is_taken(
    db: Any, events: dict[str, Any]
) -> None:
    listed = "max_by(v, x), list_sort(arg_min(v, x, 2)), mode(v)"
    for key, got in enumerate(rows(db, f"SELECT k, {listed} FROM s GROUP BY k ORDER BY k")):
        at = np.flatnonzero(events["k"] == key)
        ones = events["v"][at[events["x"][at] == 1]]
        assert got == (str(key), ones[0], sorted(ones[:2]), events["v"][at[0]])


def test_any_value_is_the_first_that_is_not_null(db: Any, events: dict[str, Any]) -> None:
    first = int(np.flatnonzero(~np.isnan(events["x"]))[0])
    sql = "SELECT any_value(CASE WHEN x > 0 THEN v END), last(v) FILTER (WHERE x > 0) FROM s"
    last = int(np.flatnonzero(~np.isnan(events["x"]))[-1])
    assert rows(db, sql) == [(events["v"][first], events["v"][last])]


def test_distinct_on_takes_the_first_by_time(db: Any, events: dict[str, Any]) -> None:
    found = dict(rows(db, "SELECT DISTINCT ON (k) k, v FROM s"))
    assert found == {key: values[0] for key, values in by_key(events)}


def test_windows_without_an_order_go_by_time(db: Any, events: dict[str, Any]) -> None:
    sql = (
        "SELECT DISTINCT k, first_value(v) OVER (PARTITION BY k), last(v) OVER (PARTITION BY k) "
        "FROM s ORDER BY k"
    )
    assert rows(db, sql) == [(key, values[0], values[-1]) for key, values in by_key(events)]
    sql = "SELECT k, v FROM s QUALIFY row_number() OVER (PARTITION BY k) = 2 ORDER BY k"
    assert rows(db, sql) == [(key, values[1]) for key, values in by_key(events)]


def test_an_order_that_is_written_stays(db: Any, events: dict[str, Any]) -> None:
    sql = "SELECT first(v ORDER BY v), last(v ORDER BY v), list(DISTINCT k) FROM s"
    assert rows(db, sql) == [(0, EVENTS - 1, [str(key) for key in range(KEYS)])]
    assert rows(db, "SELECT DISTINCT ON (k) k, v FROM s ORDER BY k, v DESC LIMIT 1") == [
        ("0", max(events["v"][events["k"] == 0]))
    ]
    one = "(SELECT v, t FROM s ORDER BY v), (SELECT t FROM s LIMIT 1) AS one"
    for of in (one, "(SELECT v, -v AS w FROM s ORDER BY 2 DESC, v) AS u"):
        numbered = f"SELECT v FROM {of} QUALIFY row_number() OVER () = 9"
        assert rows(db, f"SELECT first(v), last(v) FROM {of}") == [(0, EVENTS - 1)]
        assert rows(db, f"WITH w AS ({numbered}) SELECT * FROM w") == [(8,)]
    calls = "lag(v ORDER BY v) OVER (), first_value(v ORDER BY v IGNORE NULLS) OVER ()"
    sql = f"SELECT v, {calls} FROM s WHERE v < 9 ORDER BY v LIMIT 2"
    assert rows(db, sql) == [(0, None, 0), (1, 0, 0)]


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT first(v), k FROM s GROUP BY k", ['"first"(v)', "k"]),
        ("SELECT list(v) IS NULL FROM s", ["(list(v) IS NULL)"]),
        ("SELECT * FROM (SELECT last(v), list(k) FROM s)", ['"last"(v)', "list(k)"]),
        ("SELECT first(COLUMNS(* EXCLUDE (x))) FROM s", ["t", "v", "k"]),
        ("SELECT any_value(v) AS one FROM s", ["one"]),
    ],
)
def test_columns_keep_their_names(db: Any, sql: str, names: list[str]) -> None:
    assert db.sql(sql).schema.names == names


def test_sources_without_a_time_are_left_alone(db: Any) -> None:
    sql = "SELECT first(n) FROM (SELECT k, count(*) AS n FROM s WHERE k = '1' GROUP BY k)"
    assert len(rows(db, sql)) == 1
    assert rows(db, "SELECT list(c) FROM (VALUES (1), (2)) AS u (c)") == [([1, 2],)]


def test_a_query_in_a_list_of_columns_is_ordered_too(db: Any, events: dict[str, Any]) -> None:
    sql = "SELECT u.k, (SELECT last(v) FROM s WHERE s.k = u.k) FROM (VALUES ('3')) AS u (k)"
    assert rows(db, sql) == [("3", events["v"][events["k"] == 3][-1])]


@pytest.mark.parametrize("name", ["list", "string_agg", "first"])
def test_distinct_of_nothing_is_refused(db: Any, name: str) -> None:
    called = f"SELECT {name}(DISTINCT ) FROM s"
    for sql in (called, f"SELECT 1 FROM ({called})"):
        with pytest.raises(SqlError):
            rows(db, sql)

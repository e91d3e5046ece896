"""Sessions of keys against plain Python: grouped by keys, named in the call, expanded."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle.errors import SqlError
from chronicle.query.windows import keyed, slices
from chronicle.query.windows.keyed import Sessions

TICK_MAX = 2**63 - 1


def events(seed: int, rows: int = 3_000) -> list[tuple[Any, ...]]:
    rng = random.Random(seed)
    t, made = -500, []
    for _ in range(rows):
        t += rng.choice([0, 0, 1, 1, 2, 5, 30])
        key = rng.choice(["a", "b", "c", None, "rare"] if rng.random() < 0.2 else ["a", "b"])
        made.append(
            (
                t,
                key,
                rng.choice([0.0, -0.0, 1.5, float("nan"), None]),
                rng.choice([None, rng.randrange(-9, 9)]),
            )
        )
    return [*made, (TICK_MAX - 1, "a", 1.5, 3), (TICK_MAX, "b", 1.5, 4)]


def sessions_of(
    rows: list[tuple[Any, ...]], gap: int, key: Any
) -> list[tuple[int, int, list[tuple[Any, ...]]]]:
    """(start, end, events) of each session of each key."""
    open_: dict[Any, list[tuple[Any, ...]]] = {}
    done = []
    for row in rows:
        held = open_.get(key(row))
        if held is not None and row[0] - held[-1][0] <= gap:
            held.append(row)
            continue
        if held is not None:
            done.append(held)
        open_[key(row)] = [row]
    done += open_.values()
    return [(s[0][0], min(s[-1][0] + gap, TICK_MAX), s) for s in done]


def plain(value: Any) -> Any:
    """Values that GROUP BY takes for equal, made equal."""
    if isinstance(value, float):
        return "nan" if value != value else value + 0.0
    return value


@pytest.fixture(scope="module")
def rows() -> list[tuple[Any, ...]]:
    return events(3)


@pytest.fixture(scope="module")
def db(tmp_path_factory: Any, rows: list[tuple[Any, ...]]) -> Iterator[Any]:
    schema = pa.schema(
        [
            pa.field("t", pa.int64(), False),
            ("k", pa.string()),
            ("x", pa.float64()),
            ("n", pa.int64()),
        ]
    )
    with chronicle.open(tmp_path_factory.mktemp("store")) as database:
        stream = database.create_stream("s", schema, "t", options={"leaf_bytes": 4096})
        columns = list(zip(*rows, strict=True))
        table = pa.table(
            [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
        )
        stream.append(table)
        yield database


@pytest.fixture(params=[1 << 19, 97])
def cut(request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches whole, and cut small."""
    monkeypatch.setattr(slices, "EVENTS_AT_ONCE", request.param)
    monkeypatch.setattr(keyed, "KEYS_IDLE_MAX", 2)


def answer(rows: list[tuple[Any, ...]], gap: int, names: str) -> list[tuple[Any, ...]]:
    places = ["tkxn".index(name) for name in names]
    found = []
    for start, end, inside in sessions_of(
        rows, gap, lambda r: [plain(r[p]) for p in places].__repr__()
    ):
        numbers = [r[3] for r in inside if r[3] is not None]
        found.append(
            (
                start,
                end,
                *(plain(inside[0][p]) for p in places),
                len(inside),
                sum(numbers) if numbers else None,
                min(numbers, default=None),
                inside[0][3],
                inside[-1][3],
            )
        )
    return sorted(found, key=repr)


def shown(result: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(plain(v) for v in row) for row in result.fetchall()), key=repr)


AGGREGATES = "count(*), sum(n), min(n), first(n), last(n)"


@pytest.mark.parametrize("gap", [1, 7, 40])
@pytest.mark.parametrize("names", ["k", "x", "kx", "n"])
def test_sessions_grouped_by_keys_are_those_of_each_key(db, rows, cut, gap, names):
    keys = ", ".join(names)
    want = answer(rows, gap, names)
    grouped = f"SELECT window_start, window_end, {keys}, {AGGREGATES}"
    for call in (f"SESSION(s, t, {gap})", f"SESSION(s, t, {gap}, {keys})"):
        sql = f"{grouped} FROM {call} GROUP BY window_start, window_end, {keys}"
        names_of = [operator.name for operator in db.explain(sql).operators()]
        assert "WindowAggregate" in names_of
        assert shown(db.sql(sql)) == want
        # an aggregate that no operator has: the executor groups events with their sessions
        other = f"{grouped}, median(n) FROM {call} GROUP BY ALL"
        assert "WindowEvents" in [operator.name for operator in db.explain(other).operators()]
        # (its first and last are of any event, so they are left out)
        got = sorted((row[:-3] for row in shown(db.sql(other))), key=repr)
        assert got == sorted((row[:-2] for row in want), key=repr)


def test_named_keys_tell_sessions_apart_whatever_is_grouped_by(db, rows):
    want: dict[tuple[int, int], int] = {}
    for start, end, inside in sessions_of(rows, 5, lambda row: row[1]):
        want[start, end] = want.get((start, end), 0) + len(inside)
    got = db.sql(
        "SELECT window_start, window_end, count(*) FROM SESSION(s, t, 5, K) GROUP BY ALL"
    ).fetchall()
    assert sorted(got) == sorted((*bounds, count) for bounds, count in want.items())
    rows_of = db.sql("SELECT t, k, window_start, window_end FROM SESSION(s, t, 5, k)").fetchall()
    expected = [
        (row[0], row[1], start, end)
        for start, end, inside in sessions_of(rows, 5, lambda row: row[1])
        for row in inside
    ]
    assert sorted(rows_of, key=repr) == sorted(expected, key=repr)


def test_conditions_come_before_the_sessions_of_keys(db, rows):
    inside = [row for row in rows if row[3] is not None and row[3] > 0 and row[0] < 4_000]
    got = db.sql(
        f"SELECT window_start, window_end, k, {AGGREGATES} FROM SESSION(s, t, 5) "
        "WHERE n > 0 AND t < 4000 GROUP BY window_start, window_end, k"
    )
    assert shown(got) == answer(inside, 5, "k")


def test_rows_come_in_the_order_asked_for(db):
    got = db.sql(
        "SELECT window_start, k, count(*) FROM SESSION(s, t, 5) "
        "GROUP BY window_start, window_end, k ORDER BY window_start, k"
    ).fetchall()
    assert got == sorted(got, key=lambda row: (row[0], row[1] is None, row[1] or ""))


def test_keys_may_be_expressions_where_the_operator_aggregates(db, rows):
    got = db.sql(
        "SELECT window_start, window_end, upper(k), count(*) FROM SESSION(s, t, 5) "
        "GROUP BY window_start, window_end, upper(k)"
    )
    want = [
        (start, end, inside[0][1] and inside[0][1].upper(), len(inside))
        for start, end, inside in sessions_of(rows, 5, lambda row: row[1])
    ]
    assert shown(got) == sorted(want, key=repr)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        (
            "SELECT window_start, lower(k), median(n) FROM SESSION(s, t, 5) GROUP BY 1, 2",
            "sessions are told apart by attributes",
        ),
        (
            "SELECT window_start, k, sum(n) FROM SESSION(s, t, 5) GROUP BY CUBE (window_start, k)",
            "sessions are told apart by attributes",
        ),
        (
            "SELECT window_start, w.k, count(*) FROM SESSION(s, t, 5) AS w JOIN s ON s.t = w.t "
            "GROUP BY window_start, w.k",
            "sessions are told apart by attributes",
        ),
        ("SELECT * FROM SESSION(s, t, 5, kk)", "a key of sessions is an attribute of s (k, x, n)"),
        ("SELECT * FROM SESSION(s, t, 5, t)", "a key of sessions is an attribute of s (k, x, n)"),
        ("SELECT * FROM SESSION(s, t)", "takes 3 or more arguments, found 2"),
    ],
)
def test_what_cannot_tell_sessions_apart_is_said(db, sql, words):
    with pytest.raises(SqlError) as caught:
        db.sql(sql).fetchall()
    assert words in str(caught.value)
    assert caught.value.line == 1


def test_sessions_have_the_same_numbers_however_events_are_cut():
    rng = np.random.default_rng(1)
    ticks = np.cumsum(rng.integers(0, 4, 2_000))
    codes = rng.integers(0, 9, 2_000)
    events = pa.record_batch({"t": ticks, "k": codes})
    want = Sessions(6, "t", ["k"]).take(events).of_row
    for size in (1, 7, 500):
        sessions = Sessions(6, "t", ["k"])
        got = []
        for at in range(0, 2_000, size):
            got += sessions.take(events.slice(at, size)).of_row.tolist()
        assert got == want.tolist()
    firsts = [want.tolist().index(number) for number in range(int(want.max()) + 1)]
    assert firsts == sorted(firsts)

"""Where replay intervals begin and end, to the event: every bound that a pattern can set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chronicle.query.pattern.compiled import compile_match
from chronicle.query.replay.coarse import coarse_map
from chronicle.query.replay.planning import plan_match
from chronicle.query.replay.replay_plan import ReplayPlan
from chronicle.query.replay.run_plan import run_match
from chronicle.query.replay.symbols import outline
from chronicle.query.replay.timeline import Timeline
from chronicle.query.sql.match_clause import clause_of_text

from ...new_stores import timed
from .across_cases import answers
from .conftest import Opened
from .test_derived_indexes import SCHEMA as DERIVED
from .test_derived_indexes import compiled as derived_clause

SCHEMA = timed(k=pa.int64(), x=pa.int64(), y=pa.int64())
EVENTS = 4000
MARKED = {
    100: 1, 105: 2, 108: 2,  # 10 and 16 ticks apart
    300: 1, 306: 2,  # 12 ticks apart
    500: 1, 501: 2,
    700: 3, 702: 1, 704: 2,
    3990: 1, 3995: 2,  # not indexed yet
}  # fmt: skip
Plans = Callable[..., ReplayPlan]


def table(marked: dict[int, int], first: int, end: int) -> pa.Table:
    """Events two ticks apart; the event at position p has t = 2 p and x as marked, or a 9."""
    at = np.arange(first, end)
    x = np.full(len(at), 9)
    for position, value in marked.items():
        if first <= position < end:
            x[position - first] = value
    columns = {"t": 2 * at, "k": at % 2, "x": x, "y": x}
    return pa.table(columns).cast(SCHEMA.arrow)


@pytest.fixture
def stream(opened: Opened) -> Any:
    """A stream whose first 3,900 events have an index on x; those after them lie in memory."""
    made, indexes = opened(SCHEMA, "x", leaf_bytes=4096, compaction="manual")
    made.append(table(MARKED, 0, 3900))
    made.seal()
    indexes.catch_up(made.snapshot().state)
    made.append(table(MARKED, 3900, EVENTS))
    return made, indexes


def planned(
    stream: Any,
    pattern: str,
    within: int | None,
    define: str,
    by: str = "",
    order: str = "t",
    selection: str = "",
) -> Any:
    """The plan of a pattern, and its rows, which are those of a full replay."""
    made, indexes = stream
    snapshot = made.snapshot()
    window = "" if within is None else f"WITHIN {within}"
    text = (
        f"SELECT * FROM s MATCH_RECOGNIZE ({by} ORDER BY {order} "
        f"MEASURES FIRST(t) AS f, LAST(t) AS l PATTERN ({pattern}) {window} {selection} "
        f"DEFINE {define})"
    )
    compiled = compile_match(clause_of_text(text), SCHEMA)
    plan = plan_match(snapshot, compiled, indexes, "all", gap=0)
    full = plan_match(snapshot, compiled, indexes, "replay")
    found, expected = (
        [row for batch in run_match(snapshot, compiled, each) for row in batch.to_pylist()]
        for each in (plan, full)
    )
    assert found == expected
    return plan, found


def spans_of(plan: ReplayPlan) -> list[tuple[int, int]]:
    assert plan.spans is not None, plan.reason
    return list(zip(plan.spans.starts.tolist(), plan.spans.ends.tolist(), strict=True))


A, B, AB = "A AS x = 1", "B AS x = 2", "A AS x = 1, B AS x = 2"
AT_A = (100, 300, 500, 702, 3990)
OF_ONE = [(100, 101), (300, 301), (500, 501), (700, 703), (3990, 3991)]
"""Intervals so near that the rows around them meet are one."""


@pytest.mark.parametrize(
    ("pattern", "within", "define", "expected"),
    [
        # positions, where the pattern fixes them
        ("A B", 10, AB, [(500, 502)]),
        ("A B", None, AB, [(500, 502)]),
        ("A C B", 10, AB, [(702, 705)]),
        ("D C A C B", 10, f"{AB}, D AS x = 3", [(700, 705)]),
        ("C C A C", 10, A, [(at - 2, at + 2) for at in AT_A]),
        # WITHIN is inclusive on both sides: five events are ten ticks
        ("A C*", 10, A, [(at, at + 6) for at in AT_A]),
        ("A C*", 11, A, [(at, at + 6) for at in AT_A]),
        ("A C*", 9, A, [(at, at + 5) for at in AT_A]),
        ("C* A", 10, A, [(at - 5, at + 1) for at in AT_A]),
        ("C* A", 9, A, [(at - 4, at + 1) for at in AT_A]),
        ("C* A C*", 10, A, [(at - 5, at + 6) for at in AT_A]),
        ("A C* B", 10, AB, [(100, 106), (500, 502), (702, 705), (3990, 3996)]),
        ("A C* B", 9, AB, [(500, 502), (702, 705)]),
        ("A C* B", 12, AB, [(100, 106), (300, 307), (500, 502), (702, 705), (3990, 3996)]),
        ("A C* B", 16, AB, [(100, 109), (300, 307), (500, 502), (702, 705), (3990, 3996)]),
        ("A C+ B", 10, AB, [(100, 106), (702, 705), (3990, 3996)]),
        # a greatest number of events
        ("A C{0,3}", None, A, [(at, at + 4) for at in AT_A]),
        ("C{0,3} A", None, A, [(at - 3, at + 1) for at in AT_A]),
        ("A C{0,4} B", None, AB, [(100, 106), (500, 502), (702, 705), (3990, 3996)]),
        ("A C{0,3} B", None, AB, [(500, 502), (702, 705)]),
        # the smaller of both bounds
        ("A C{0,3}", 4, A, [(at, at + 3) for at in AT_A]),
        ("A C{0,3}", 40, A, [(at, at + 4) for at in AT_A]),
        # any of several values
        ("A", 10, "A AS x = 1 OR x = 3", OF_ONE),
        ("(A | D) B", None, f"{AB}, D AS x = 3", [(500, 502)]),
    ],
)
def test_intervals_to_the_event(
    stream: Any, pattern: str, within: int | None, define: str, expected: list[tuple[int, int]]
) -> None:
    plan, _ = planned(stream, pattern, within, define)
    assert spans_of(plan) == expected


def test_what_a_late_event_reaches_is_read_by_time(stream: Any) -> None:
    made, _ = stream
    made.append(table({1500: 1}, 1500, 1501).set_column(0, SCHEMA.arrow.field("t"), [[3001]]))
    _, rows = planned(stream, "A C*", 10, A)
    assert {"f": 3001, "l": 3010} in rows
    for pattern, within, low, high in (
        ("A C*", 10, 2992, 3010), ("C* A", 9, 2992, 3010), ("A C{0,3}", None, 2996, 3006),
    ):  # fmt: skip
        plan, rows = planned(stream, pattern, within, A)
        (ticks,) = plan.intervals.by_time.values()
        assert ticks == (low, high), pattern
    # at the very end, where no base event follows it
    made.append(table({1: 1}, 1, 2).set_column(0, SCHEMA.arrow.field("t"), [[7997]]))
    plan, rows = planned(stream, "A", 10, A)
    assert {"f": 7997, "l": 7997} in rows


def test_rows_of_one_partition_alone_are_replayed(stream: Any) -> None:
    """k = position % 2: within ten ticks of an A its partition has three events."""
    plan, rows = planned(stream, "A C*", 10, A, "PARTITION BY k")
    own = plan.intervals.partitions.hull()
    assert list(zip(own.starts.tolist(), own.ends.tolist(), strict=True)) == [
        (at, at + 6) for at in AT_A
    ]
    assert rows == [{"k": at % 2, "f": 2 * at, "l": 2 * at + 8} for at in AT_A]
    # NEXT looks at the event after the last one, which lies beyond the window
    plan, rows = planned(stream, "A C", 4, "A AS x = 1, C AS NEXT(y) = 9", "PARTITION BY k")
    assert [row["f"] for row in rows] == [2 * at for at in AT_A]


def test_rows_around_an_interval_are_looked_at(stream: Any) -> None:
    define = "A AS x = 1 AND PREV(y) = 9 AND NEXT(y) = 9"
    # after the one at 500 comes a 2, and in the partition of that at 702 a 3 and a 2 are beside it
    for by, alone in (("", 702), ("PARTITION BY k", 500)):
        _, rows = planned(stream, "A", 1, define, by)
        assert [row["f"] for row in rows] == [2 * at for at in sorted((100, 300, alone, 3990))]
    # a PREV that reaches over the first row of the match, by one
    _, rows = planned(stream, "C A", 10, "A AS x = 1 AND PREV(y, 2) = 9", "PARTITION BY k")
    assert [row["l"] for row in rows] == [2 * at for at in AT_A]


def test_events_of_one_time_may_come_in_any_order(opened: Opened) -> None:
    """Four events a tick; sorted by y an A stands before a B that is stored before it."""
    made, indexes = opened(SCHEMA, "x", leaf_bytes=4096)
    at = np.arange(2000)
    x, y = np.full(2000, 9), np.full(2000, 50)
    x[[800, 802, 1203, 1204]], y[[800, 802, 1203, 1204]] = [2, 1, 2, 1], [99, 98, 0, 0]
    made.append(pa.table({"t": at // 4, "k": at, "x": x, "y": y}).cast(SCHEMA.arrow))
    indexes.catch_up(made.snapshot().state)
    plan, rows = planned((made, indexes), "A B", 10, AB, order="t, y")
    assert rows == [{"f": 200, "l": 200}]
    assert spans_of(plan) == [(800, 804)]


def test_an_index_that_is_not_built_yet_is_no_obstacle(stream: Any) -> None:
    _, indexes = stream
    indexes.create("y", SCHEMA)
    _, rows = planned(stream, "A", 10, "A AS x = 1 AND y = 1")
    assert len(rows) == len(AT_A)


def test_the_coarse_map_takes_windows_as_inclusive(opened: Opened) -> None:
    """It knows of a leaf no more than its first and its last time."""
    made, _ = opened(SCHEMA, leaf_bytes=4096, codec="none")
    events = table({1500: 2, 3500: 12}, 0, 6000)
    filling = np.random.default_rng(1).integers(0, 2**62, 6000)
    made.append(events.set_column(3, "y", pa.array(filling)).cast(SCHEMA.arrow))
    made.seal()
    timeline = Timeline(made.snapshot())
    leaves = timeline.parts[0].leaves
    assert leaves is not None
    starts, first, last = leaves.starts.tolist(), leaves.first_ticks, leaves.last_ticks
    b, a = (int(np.searchsorted(leaves.starts, at, side="right")) - 1 for at in (1500, 3500))
    assert 0 < b < a - 1
    assert a + 2 < len(starts)

    def allowed(pattern: str, within: int) -> list[tuple[int, int]]:
        define = "A AS x = 12, B AS x = 2" if "B" in pattern else "A AS x = 12"
        text = (
            f"SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES FIRST(t) AS f "
            f"PATTERN ({pattern}) WITHIN {within} DEFINE {define})"
        )
        found = outline(compile_match(clause_of_text(text), SCHEMA), SCHEMA)
        spans = coarse_map(timeline, found, 0, timeline.total, zones=False).allowed
        return list(zip(spans.starts.tolist(), spans.ends.tolist(), strict=True))

    apart = int(first[a] - last[b])
    assert allowed("B C* A", apart) == [(starts[b], starts[a + 1])]
    assert allowed("B C* A", apart - 1) == []
    step = int(first[a + 1] - last[a])
    assert allowed("A C*", step) == [(starts[a], starts[a + 2])]
    assert allowed("A C*", step - 1) == [(starts[a], starts[a + 1])]
    assert allowed("C* A", step) == [(starts[a - 1], starts[a + 1])]
    assert allowed("C* A", step - 1) == [(starts[a], starts[a + 1])]


@pytest.mark.parametrize("defined", ["B AS k = 'zz'", "B AS k = 'zz' AND x > A.x"])
def test_events_of_one_time_may_lie_in_other_leaves_than_their_order_has_them(
    opened: Opened, defined: str
) -> None:
    """ORDER BY t, x puts A first, which is stored 2,890 events and some leaves behind B."""
    rows = [{"t": i // 3000 * 100_000_000, "k": "z", "x": 500 + i % 7} for i in range(9000)]
    rows[3010].update(k="zz", x=900)
    rows[5900].update(k="a", x=1)
    stream, indexes = opened(DERIVED, "k", leaf_bytes=1 << 13)
    stream.append(pa.Table.from_pylist(rows, schema=DERIVED.arrow))
    stream.seal()
    indexes.catch_up(stream.snapshot().state)
    text = "PATTERN (A Z* B) WITHIN INTERVAL '5' SECOND"
    clause = derived_clause(text, f"A AS k = 'a', {defined}", "", ", x")
    expected, _ = answers(stream.snapshot(), clause, indexes, "replay")
    assert len(expected) == 1
    found, plan = answers(stream.snapshot(), clause, indexes, "all", gap=0)
    assert found == expected
    assert plan.spans is not None


@pytest.mark.parametrize("by", ["", "PARTITION BY k"])
def test_absence_at_the_end_looks_at_the_rest_of_the_window(stream: Any, by: str) -> None:
    selection = "EVENT SELECTION SKIP TILL NEXT MATCH"
    plan, rows = planned(stream, "A [^B]", 12, AB, by, selection=selection)
    assert [row["f"] for row in rows] == ([] if not by else [200, 1000, 7980])
    first, end = spans_of(plan)[0]
    assert first <= 100 < 106 < end <= 110


@pytest.mark.parametrize(
    "bound",
    [
        "t - A.t <= 12",
        "A.t >= t - 12",
        "12 + A.t >= B.t",
        "t < 13 + FIRST(A.t)",
        "x > 0 AND (B.t - A.t <= 12)",
    ],
)
def test_a_bound_on_the_time_in_define_is_a_window(stream: Any, bound: str) -> None:
    plan, rows = planned(stream, "A C* B", None, f"A AS x = 1, B AS x = 2 AND {bound}")
    assert [(row["f"], row["l"]) for row in rows] == [
        (200, 210),
        (600, 612),
        (1000, 1002),
        (1404, 1408),
        (7980, 7990),
    ]
    assert plan.outline is not None
    assert plan.outline.within in (12, 13)


@pytest.mark.parametrize(
    ("pattern", "bound"),
    [
        ("A C* B C", "t - A.t <= 12"),
        ("A+ B", "t - A.t <= 12"),
        ("A B", "t - A.t >= 12"),
        ("A B", "A.t - t <= 12"),
        ("(A | C) B", "t - A.t <= 12"),
        ("A B", "t - A.t <= 100000000000000000000"),
    ],
)
def test_other_comparisons_of_times_bound_nothing(pattern: str, bound: str) -> None:
    text = (
        "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES FIRST(t) AS f "
        f"PATTERN ({pattern}) DEFINE A AS x = 1, B AS {bound})"
    )
    assert compile_match(clause_of_text(text), SCHEMA).within is None

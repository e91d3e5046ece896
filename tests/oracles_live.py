"""What live queries have to say, by definition: plain Python over a list of events.

An event is a tuple (t, k, x), and a list of them is in the order of arrival.  Each function gives
the rows of the query of the same name in :data:`QUERIES` that are closed at a watermark; those of
:data:`JOINED` read a second stream, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

from . import oracles_situations as oracle

Event = tuple[int, str, int]
Rows = list[tuple[Any, ...]]

SIZE, SLIDE, GAP, WITHIN = 10, 4, 3, 12

QUERIES = {
    "rows": "SELECT t, k, x * 2 AS y FROM s WHERE x > 5",
    "tumble": f"SELECT window_start, window_end, count(*) AS n, sum(x) AS total "
    f"FROM TUMBLE(s, t, {SIZE}) GROUP BY window_start, window_end",
    "keyed": f"SELECT k, window_start, max(x) AS high FROM TUMBLE(s, t, {SIZE}) "
    "WHERE x <> 4 GROUP BY window_start, k HAVING count(*) > 1",
    "hop": f"SELECT window_end, k, count(*) AS n FROM HOP(s, t, {SLIDE}, {SIZE}) "
    "GROUP BY window_start, window_end, k",
    "sessions": f"SELECT k, window_start, window_end, count(*) AS n FROM SESSION(s, t, {GAP}, k) "
    "WHERE x > 2 GROUP BY k, window_start, window_end HAVING count(*) > 1",
    "past": f"SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES FIRST(t) AS f, "
    f"LAST(t) AS l, LAST(x) AS x PATTERN (A B+) WITHIN {WITHIN} "
    "DEFINE A AS x > 5, B AS x < PREV(x))",
    "next": f"SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES FIRST(t) AS f, "
    f"LAST(t) AS l PATTERN (A B) WITHIN {WITHIN} EVENT SELECTION SKIP TILL NEXT MATCH "
    "DEFINE A AS x > 6, B AS x < 3)",
    "together": f"SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES "
    f"FIRST(t) AS f, LAST(t) AS l, COUNT(*) AS n PATTERN (A B+) WITHIN {WITHIN} "
    "DEFINE A AS x > 4, B AS x < 6)",
    "each": f"SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES FIRST(t) AS f, LAST(t) AS l "
    f"AFTER MATCH SKIP TO NEXT ROW PATTERN (A B? C) WITHIN {WITHIN} "
    "DEFINE A AS x > 5, C AS x < 4)",
    "situations": "SELECT * FROM s MATCH_SITUATIONS (PARTITION BY k MEASURES STARTED(a) AS f, "
    f"STARTED(b) AS g, count(a.*) AS n PATTERN (a OVERLAPS | MEETS | DURING b) WITHIN {WITHIN} "
    f"GAP {GAP} DEFINE a AS x > 5 LASTING AT LEAST 2, b AS x < 8 LASTING AT MOST 9)",
    "alarms": "SELECT * FROM s MATCH_SITUATIONS (PARTITION BY k MEASURES STARTED(a) AS f, "
    "STARTED(b) AS g, count(a.*) AS n PATTERN (a DURING | FINISHES | OVERLAPPED BY b) "
    f"WITHIN {WITHIN} EMIT ON DETECTION DEFINE a AS x > 5 LASTING AT LEAST 3, b AS x < 8)",
}
"""Live queries of every class."""

BEFORE, BEHIND = 5, 3

JOINED = {
    "pairs": f"SELECT s.t, r.t AS u, s.k, s.x, r.x AS y FROM s JOIN r ON s.k = r.k AND r.t BETWEEN "
    f"s.t - {BEFORE} AND s.t + {BEHIND} WHERE s.x + r.x > 4",
    "alone": f"SELECT s.t, r.t AS u, s.x, r.x * 2 AS y FROM s LEFT JOIN r ON s.k = r.k AND r.t >= "
    f"s.t - {BEFORE} AND r.t < s.t + {BEHIND} AND s.x < r.x WHERE s.x > 2",
    "itself": "SELECT one.t, two.t AS u FROM s AS one JOIN s AS two ON one.k = two.k "
    "AND two.t > one.t AND one.t >= two.t - 4",
    "shifted": "SELECT s.t, r.t AS u, r.k FROM s LEFT JOIN r ON r.t - s.t <= -2 AND s.t - r.t <= 6 "
    "AND s.x = r.x",
    "both": f"SELECT t, k, x FROM s WHERE x > 5 UNION ALL SELECT t, k, x FROM r WHERE x < 3 "
    f"UNION ALL SELECT window_start, k, sum(x)::BIGINT FROM TUMBLE(s, t, {SIZE}) "
    "GROUP BY window_start, k",
    "mixed": f"SELECT k, window_start AS t, count(*) AS n FROM SESSION(r, t, {GAP}, k) WHERE x > 2 "
    "GROUP BY k, window_start, window_end HAVING count(*) > 1 "
    "UNION ALL SELECT k, t, x FROM s WHERE x > 5",
}
"""Joins and unions, of ``s`` and ``r``."""

SITUATIONS = {
    "situations": oracle.Pattern(
        "ab", [("a", "b", frozenset({"OVERLAPS", "MEETS", "DURING"}))], {"a": 2, "b": 0},
        {"a": None, "b": 9}, WITHIN, GAP,
    ),
    "alarms": oracle.Pattern(
        "ab", [("a", "b", frozenset({"DURING", "FINISHES", "OVERLAPPED BY"}))], {"a": 3, "b": 0},
        {"a": None, "b": None}, WITHIN,
    ),
}  # fmt: skip
HOLDS: dict[str, Callable[[int], bool]] = {"a": lambda x: x > 5, "b": lambda x: x < 8}

PATTERNS = ("past", "next", "together", "each")


def in_time(events: list[Event]) -> list[Event]:
    """As the stream has them."""
    return sorted(events, key=lambda event: event[0])


def rows(events: list[Event], watermark: int) -> Rows:
    return [(t, k, 2 * x) for t, k, x in in_time(events) if x > 5 and t <= watermark]


def _windows(events: list[Event], size: int, slide: int) -> dict[int, list[Event]]:
    found = defaultdict(list)
    for event in in_time(events):
        start = event[0] // slide * slide
        while start > event[0] - size:
            found[start].append(event)
            start -= slide
    return found


def tumble(events: list[Event], watermark: int) -> Rows:
    return [
        (start, start + SIZE, len(held), sum(x for _, _, x in held))
        for start, held in _windows(events, SIZE, SIZE).items()
        if start + SIZE - 1 <= watermark
    ]


def keyed(events: list[Event], watermark: int) -> Rows:
    found = []
    for start, held in _windows([e for e in events if e[2] != 4], SIZE, SIZE).items():
        for key in {k for _, k, _ in held}:
            mine = [x for _, k, x in held if k == key]
            if len(mine) > 1 and start + SIZE - 1 <= watermark:
                found.append((key, start, max(mine)))
    return found


def hop(events: list[Event], watermark: int) -> Rows:
    return [
        (start + SIZE, key, sum(1 for _, k, _ in held if k == key))
        for start, held in _windows(events, SIZE, SLIDE).items()
        for key in {k for _, k, _ in held}
        if start + SIZE - 1 <= watermark
    ]


def sessions(events: list[Event], watermark: int) -> Rows:
    found = []
    for key in {k for _, k, _ in events}:
        runs: list[list[int]] = []
        for t, k, x in in_time(events):
            if k != key or x <= 2:
                continue
            if runs and t - runs[-1][-1] <= GAP:
                runs[-1].append(t)
            else:
                runs.append([t])
        found += [
            (key, run[0], run[-1] + GAP, len(run))
            for run in runs
            if len(run) > 1 and run[-1] + GAP <= watermark
        ]
    return found


def matched(name: str, events: list[Event], watermark: int) -> Rows:
    """Situations that match, known at the watermark."""
    found = []
    pattern = SITUATIONS[name]
    for key in {k for _, k, _ in events}:
        mine = [(t, x) for t, k, x in in_time(events) if k == key and t <= watermark]
        situations = {
            each: oracle.runs([(t, HOLDS[each](x)) for t, x in mine], pattern.gap, watermark)
            for each in pattern.names
        }
        known = oracle.matches(pattern, situations, watermark, name == "alarms")
        for instant, _, chosen in known:
            a = chosen["a"]
            held = sum(1 for t, _ in mine[a.first : a.last + 1] if t <= instant)
            found.append((key, a.start, chosen["b"].start, held))
    return found


ORACLES: dict[str, Callable[[list[Event], int], Rows]] = {
    "rows": rows,
    "tumble": tumble,
    "keyed": keyed,
    "hop": hop,
    "sessions": sessions,
    **{name: partial(matched, name) for name in SITUATIONS},
}


# -- of two streams -----------------------------------------------------------------------------


def _pairs(left: list[Event], right: list[Event], low: int, high: int) -> list[tuple[Event, Event]]:
    """Pairs with ``low <= right - left <= high``."""
    return [(a, b) for a in left for b in right if low <= b[0] - a[0] <= high]


def pairs(events: list[Event], others: list[Event], watermark: int) -> Rows:
    return [
        (a[0], b[0], a[1], a[2], b[2])
        for a, b in _pairs(events, others, -BEFORE, BEHIND)
        if a[1] == b[1] and a[2] + b[2] > 4 and max(a[0], b[0]) <= watermark
    ]


def alone(events: list[Event], others: list[Event], watermark: int) -> Rows:
    found: Rows = []
    for a in events:
        mine = [b for _, b in _pairs([a], others, -BEFORE, BEHIND - 1) if a[1] == b[1]]
        mine = [b for b in mine if a[2] < b[2]]
        if a[2] > 2:
            found += [(a[0], b[0], a[2], 2 * b[2]) for b in mine if max(a[0], b[0]) <= watermark]
            if not mine and a[0] + BEHIND - 1 <= watermark:
                found.append((a[0], None, a[2], None))
    return found


def itself(events: list[Event], others: list[Event], watermark: int) -> Rows:
    found = _pairs(events, events, 1, 4)
    return [(a[0], b[0]) for a, b in found if a[1] == b[1] and b[0] <= watermark]


def shifted(events: list[Event], others: list[Event], watermark: int) -> Rows:
    found: Rows = []
    for a in events:
        mine = [b for _, b in _pairs([a], others, -6, -2) if a[2] == b[2]]
        if a[0] <= watermark:
            found += [(a[0], b[0], b[1]) for b in mine] or [(a[0], None, None)]
    return found


def both(events: list[Event], others: list[Event], watermark: int) -> Rows:
    found: Rows = [(t, k, x) for t, k, x in events if x > 5 and t <= watermark]
    found += [(t, k, x) for t, k, x in others if x < 3 and t <= watermark]
    for start, held in _windows(events, SIZE, SIZE).items():
        if start + SIZE - 1 <= watermark:
            keys = {k for _, k, _ in held}
            found += [(start, key, sum(x for _, k, x in held if k == key)) for key in keys]
    return found


def mixed(events: list[Event], others: list[Event], watermark: int) -> Rows:
    runs = [(k, start, n) for k, start, _, n in sessions(others, watermark)]
    return [*runs, *((k, t, x) for t, k, x in events if x > 5 and t <= watermark)]


JOINED_ORACLES: dict[str, Callable[[list[Event], list[Event], int], Rows]] = {
    "pairs": pairs,
    "alone": alone,
    "itself": itself,
    "shifted": shifted,
    "both": both,
    "mixed": mixed,
}

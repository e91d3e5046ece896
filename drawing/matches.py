"""Matches over time: a lane for each, marks for each variable's first and last event.  Matches of
one partition have lanes of their own, and matches in a lane do not overlap.  If all matches are too
short to see, each has a lane that starts at its first event, labelled with its time.  Only the
first MATCH_RECOGNIZE of a statement counts, and at most ``LANES_MAX`` lanes are drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ..errors import InvalidArgument
from ..query.matches import match_outline
from .axis import LINE, QUIET, SERIES, TEXT, TimeAxis, count, mark, sheet, text

LANES_MAX = 40
_LANE = 24
_LABEL, _LABEL_ALONE = 110, 220
_TEXT_MAX, _TEXT_MAX_ALONE = 15, 34
_POINT = 0.02
"""Share of the whole time below which the longest match is drawn as a point."""


@dataclass(frozen=True)
class MatchSpan:
    """One match: ``key`` is its partition, ``first`` and ``last`` are ticks.  ``met`` has, by the
    variable's place in the pattern: first and last tick, number of events.
    """

    key: str
    first: int
    last: int
    met: Mapping[int, tuple[int, int, int]]

    def moved(self, by: int) -> MatchSpan:
        """The same match, shifted by ticks."""
        met = {place: (a + by, b + by, n) for place, (a, b, n) in self.met.items()}
        return MatchSpan(self.key, self.first + by, self.last + by, met)


@dataclass(frozen=True)
class Matches:
    """The matches of a statement, drawn in notebooks.  ``unit`` is that of ticks, None for integer
    times; ``truncated`` says whether there are more.
    """

    variables: tuple[str, ...]
    unit: str | None
    spans: tuple[MatchSpan, ...]
    truncated: bool = field(default=False)

    def _repr_html_(self) -> str:
        return matches_svg(self)

    def __repr__(self) -> str:
        more = ", there are more" if self.truncated else ""
        return f"<chronicle matches of ({' '.join(self.variables)}): {len(self.spans)}{more}>"


def matches_of(
    database: Any, sql: str, params: Mapping[str, Any] | None = None, limit: int = 200
) -> Matches:
    """Find the matches of a statement.

    Parameters
    ----------
    database : Database or RemoteDatabase
    limit : int
        Most matches.

    Raises
    ------
    SqlError, InvalidArgument
    """
    outline = match_outline(sql)
    time = outline.time
    if time is None:
        if outline.stream is None or outline.stream not in database.streams():
            raise InvalidArgument("give the clause an ORDER BY: matches are drawn over its column")
        time = database.stream(outline.stream).time
    text_ = f"SELECT * FROM ({outline.rows(time)}) AS _outline LIMIT {limit + 1}"
    table = database.sql(text_, params).arrow()
    type_ = table.schema.field("_first").type
    unit = type_.unit if pa.types.is_timestamp(type_) else None

    def ticks(name: str) -> list[Any]:
        return list(table.column(name).cast(pa.int64()).to_pylist())

    met = [
        (ticks(f"_first_{i}"), ticks(f"_last_{i}"), table.column(f"_count_{i}").to_pylist())
        for i in range(len(outline.variables))
    ]
    keys = [table.column(name).to_pylist() for name in outline.partition]
    spans = tuple(
        MatchSpan(
            " · ".join(str(values[row]) for values in keys),
            first,
            last,
            {i: (f[row], u[row], n[row]) for i, (f, u, n) in enumerate(met) if n[row]},
        )
        for row, (first, last) in enumerate(zip(ticks("_first"), ticks("_last"), strict=True))
        if row < limit
    )
    return Matches(outline.variables, unit, spans, table.num_rows > limit)


def _lanes_of(spans: Sequence[MatchSpan]) -> tuple[list[int], list[str]]:
    """The first free lane of each span, in order of begin, and each lane's key."""
    groups: dict[str, list[int]] = {}
    for i, span in enumerate(spans):
        groups.setdefault(span.key, []).append(i)
    lane, names = [0] * len(spans), list[str]()
    for key, members in groups.items():
        free: list[int] = []
        for i in sorted(members, key=lambda i: spans[i].first):
            at = next((k for k, until in enumerate(free) if until < spans[i].first), len(free))
            free[at : at + 1] = [spans[i].last]
            lane[i] = len(names) + at
        names += [key] * len(free)
    return lane, names


def matches_svg(matches: Matches, width: int = 860) -> str:
    parts, height = matches_parts(matches, width, 0)
    return sheet(width, round(height), repr(matches)[1:-1], parts)


def matches_parts(matches: Matches, width: int, top: float) -> tuple[list[str], float]:
    """The matches as SVG elements, and the y coordinate of their end."""
    spans = matches.spans
    if not spans:
        return [text("No match.", 12, top + 24)], top + 40
    first, last = min(s.first for s in spans), max(s.last for s in spans)
    longest = max(s.last - s.first for s in spans)
    alone = len(spans) > 1 and 0 < longest < _POINT * (last - first)
    axis = TimeAxis(first, last, matches.unit, _LABEL, width - 12)
    if alone:
        names = [f"{span.key} {axis.label(span.first, 1)}" for span in spans]
        lane, first, last = list(range(len(spans))), 0, longest
        spans = tuple(span.moved(-span.first) for span in spans)
    else:
        lane, names = _lanes_of(spans)
    margin = max(1, (last - first) // 40)
    left = _LABEL_ALONE if alone else _LABEL
    axis = TimeAxis(first - margin, last + margin, matches.unit, left, width - 12)
    shown = min(len(names), LANES_MAX)
    parts, x = [], 12.0
    for place, name in enumerate(matches.variables):
        parts += [mark(place, x + 4, top + 16), text(name, x + 13, top + 20)]
        x += 34 + 7 * len(name)
    head = top + 44
    foot = head + shown * _LANE + 8
    for at, label in axis.marks():
        if at > width - 70 or (alone and at < axis.at(0)):
            continue
        parts.append(f'<path d="M{at:.1f} {head - 12:.1f}V{foot - 6:.1f}" stroke="{LINE}"/>')
        parts.append(text(f"+{label}" if alone else label, at + 4, head - 3, colour=QUIET))
    for place, name in enumerate(names[:shown]):
        if place == 0 or names[place - 1] != name:
            most = _TEXT_MAX_ALONE if alone else _TEXT_MAX
            label = name if len(name) <= most else name[: most - 1] + "…"
            parts.append(text(label, 12, head + place * _LANE + _LANE / 2 + 8))
    for span, at in zip(spans, lane, strict=True):
        if at < shown:
            parts += _drawn(span, axis, head + at * _LANE + _LANE / 2 + 4)
    more = f"{count(len(spans))} matches{', the first of more' if matches.truncated else ''}"
    if len(names) > shown:
        more += f", {count(len(names) - shown)} lanes are not drawn"
    parts.append(text(more, 12, foot + 12, colour=QUIET))
    return parts, foot + 22


def _drawn(span: MatchSpan, axis: TimeAxis, y: float) -> list[str]:
    left, right = axis.at(span.first), axis.at(span.last)
    parts = [f'<path d="M{left:.1f} {y:.1f}H{max(left + 1, right):.1f}" stroke="{QUIET}"/>']
    for place, (first, last, events) in span.met.items():
        a, b = axis.at(first), axis.at(last)
        if events > 1 and b - a > 3:
            colour = SERIES[place % len(SERIES)]
            parts.append(f'<path d="M{a:.1f} {y:.1f}H{b:.1f}" stroke="{colour}" stroke-width="3"/>')
            label = f"×{count(events)}"
            if b - a > 7 * len(label) + 16:
                middle = ' text-anchor="middle" font-size="10"'
                parts.append(text(label, (a + b) / 2, y - 5, colour=TEXT, more=middle))
            parts.append(mark(place, b, y))
        parts.append(mark(place, a, y))
    return parts

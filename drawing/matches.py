"""Matches over time, plans and history maps, as SVG and HTML.

Matches: a lane for each, marks for each variable's first and last event.  Matches of one partition
have lanes of their own, and matches in a lane do not overlap.  If all matches are too short to see,
each has a lane that starts at its first event, labelled with its time.  Only the first
MATCH_RECOGNIZE of a statement counts, and at most ``LANES_MAX`` lanes are drawn.

The history map shows which parts of a stream's time a query replayed, looked up or skipped.

Colours are those of Okabe and Ito, as in the console; shapes encode
the same as colours.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import pyarrow as pa

from ..errors import InvalidArgument
from ..formats.plots import TEXT, sheet, text
from ..query.contract.explanation import Plan, Regions
from ..query.matches import match_outline

SERIES = ("#0072b2", "#d55e00", "#009e73", "#b2569a", "#b07d00", "#3d8fc4", "#5b6472")
QUIET, LINE = "#59657a", "#d8dee8"
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_STEPS = (
    *(0.001, 0.01, 0.1, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800),
    *(21600, 43200, 86400, 2 * 86400, 7 * 86400, 14 * 86400, 30 * 86400, 91 * 86400, 365 * 86400),
)
_DAY = 86400


@dataclass(frozen=True)
class TimeAxis:
    """A range of ticks laid out from ``left`` to ``right``; ``unit`` is s, ms, us, ns, or None for
    integers.
    """

    first: int
    last: int
    unit: str | None
    left: float
    right: float

    def at(self, tick: int) -> float:
        return self.left + (tick - self.first) / max(1, self.last - self.first) * (
            self.right - self.left
        )

    def label(self, tick: int, step: float = 0.0) -> str:
        """A tick as text; ``step`` is the distance of labels, in seconds or integers."""
        if self.unit is None:
            return f"{tick:,}"
        seconds, rest = divmod(tick, _PER_SECOND[self.unit])
        try:
            moment = dt.datetime(1970, 1, 1) + dt.timedelta(seconds=seconds)
        except OverflowError:
            return f"{tick:,} {self.unit}"
        if step >= _DAY:
            return f"{moment:%Y-%m-%d}"
        if step >= 60:
            return f"{moment:%m-%d %H:%M}"
        if step >= 1:
            return f"{moment:%H:%M:%S}"
        digits = len(str(_PER_SECOND[self.unit])) - 1
        fraction = f".{rest:0{digits}}".rstrip("0").rstrip(".") if digits else ""
        return f"{moment:%Y-%m-%d %H:%M:%S}{fraction}"

    def marks(self, apart: float = 130.0) -> Iterator[tuple[float, str]]:
        """Positions and texts of round times, about ``apart`` units from each other."""
        per = 1 if self.unit is None else _PER_SECOND[self.unit]
        wanted = (self.last - self.first) / per / max(1.0, (self.right - self.left) / apart)
        if self.unit is None:
            power = 10.0 ** math.floor(math.log10(max(wanted, 1.0)))
            step = next(power * by for by in (1, 2, 5, 10) if power * by >= max(wanted, 1.0))
        else:
            step = next((one for one in _STEPS if one >= wanted), _STEPS[-1])
            while step < wanted:
                step *= 2
        every = max(1, round(step * per))
        tick = -(-self.first // every) * every
        while tick <= self.last:
            yield self.at(tick), self.label(tick, step)
            tick += every


def count(number: int) -> str:
    return f"{number:,}"


def mark(place: int, x: float, y: float, size: float = 4.2) -> str:
    """The mark of a pattern variable, by its place in the pattern."""
    colour, shape = SERIES[place % len(SERIES)], place % 5
    if shape == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" fill="{colour}"/>'
    if shape == 1:
        half = size * 0.9
        return (
            f'<rect x="{x - half:.1f}" y="{y - half:.1f}" width="{2 * half:.1f}" '
            f'height="{2 * half:.1f}" fill="{colour}"/>'
        )
    corners = {2: 3, 3: 4, 4: 10}[shape]
    points = []
    for i in range(corners):
        angle = -math.pi / 2 + 2 * math.pi * i / corners
        radius = size * (0.55 if shape == 4 and i % 2 else 1.3)
        points.append(f"{x + radius * math.cos(angle):.1f},{y + radius * math.sin(angle):.1f}")
    return f'<polygon points="{" ".join(points)}" fill="{colour}"/>'


KINDS = {
    "replayed": ("replayed", SERIES[1]),
    "read": ("read", SERIES[1]),
    "aggregated": ("answered by the tree", SERIES[2]),
    "looked_up": ("looked up", SERIES[0]),
    "skipped": ("skipped", LINE),
}
HEIGHT = 62
_STRIP = 20


def history_svg(regions: Regions, width: int = 860) -> str:
    """One strip: x is time; the shares are of events."""
    parts, summary = history_parts(regions, 12, width - 12, 8)
    return sheet(width, HEIGHT + 10, f"History map: {summary}", parts)


def history_parts(regions: Regions, left: float, right: float, top: float) -> tuple[list[str], str]:
    """The strip as SVG elements, and a summary in words."""
    spans = regions.found
    first, last = min(one[0] for one in spans), max(one[1] for one in spans)
    axis = TimeAxis(first, last, regions.unit, left, right)
    total = max(1, sum(one[3] for one in spans))
    shares: dict[str, int] = {}
    drawn: dict[str, list[str]] = {}
    for begin, end, kind, events in spans:
        shares[kind] = shares.get(kind, 0) + events
        x, until = axis.at(begin), axis.at(end)
        wide = max(1.0, until - x)
        drawn.setdefault(kind, []).append(f"M{x:.1f} {top:.1f}h{wide:.1f}v{_STRIP}h{-wide:.1f}z")
    parts = [
        f'<path d="{"".join(drawn[kind])}" fill="{KINDS.get(kind, ("", SERIES[3]))[1]}"/>'
        for kind in sorted(drawn, key=lambda kind: kind != "skipped")  # skipped ones below
    ]
    below = top + _STRIP + 15
    parts.append(text(axis.label(first), left, below, colour=QUIET))
    at_right = ' text-anchor="end"'
    parts.append(text(axis.label(last), right, below, colour=QUIET, more=at_right))
    x, share_texts = left, []
    for kind, events in shares.items():
        name, colour = KINDS.get(kind, (kind, SERIES[3]))
        label = f"{name} {_share(events, total)} ({count(events)} events)"
        share_texts.append(f"{name} {_share(events, total)}")
        parts.append(
            f'<rect x="{x:.1f}" y="{below + 8:.1f}" width="10" height="10" fill="{colour}"/>'
        )
        parts.append(text(label, x + 15, below + 17))
        x += 30 + 6.4 * len(label)
    return parts, ", ".join(share_texts)


def _share(part: int, whole: int) -> str:
    share = 100 * part / whole
    if part and share < 0.01:
        return "<0.01%"
    return f"{share:.3g}%" if share < 99.9 or part == whole else f"{share:.2f}%"


def plan_html(plan: Plan) -> str:
    """The text of a plan, and a history map for each operator that reads a stream."""
    regions = [step.regions for step in plan.operators()]
    maps = [history_svg(each, 720) for each in regions if each is not None and each.found]
    return f"<pre>{escape(str(plan))}</pre>{''.join(maps)}"


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

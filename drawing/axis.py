"""Time axis, labels, colours and marks of all drawings.  ``text`` escapes every text.  Colours are
those of Okabe and Ito, as in the console; shapes encode the same as colours.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

SERIES = ("#0072b2", "#d55e00", "#009e73", "#b2569a", "#b07d00", "#3d8fc4", "#5b6472")
TEXT, QUIET, LINE = "#1b2330", "#59657a", "#d8dee8"
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


def text(value: object, x: float, y: float, *, colour: str = TEXT, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}"{more}>{escape(str(value))}</text>'


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


def sheet(width: int, height: int, title: str, parts: list[str]) -> str:
    """A whole SVG on white, with its content as text for screen readers."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" style="max-width:100%;height:auto" '
            'font-family="system-ui, sans-serif" font-size="12">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{width}" height="{height}" rx="6" fill="#ffffff"/>',
            *parts,
            "</svg>\n",
        ]
    )

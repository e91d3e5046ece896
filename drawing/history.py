"""The history map: which parts of a stream's time a query replayed, looked up or skipped."""

from __future__ import annotations

from ..query.contract.explanation import Regions
from .axis import LINE, QUIET, SERIES, TimeAxis, count, sheet, text

__all__ = ["history_parts", "history_svg"]

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
    found = regions.found
    first, last = min(one[0] for one in found), max(one[1] for one in found)
    axis = TimeAxis(first, last, regions.unit, left, right)
    total = max(1, sum(one[3] for one in found))
    shares: dict[str, int] = {}
    drawn: dict[str, list[str]] = {}
    for begin, end, kind, events in found:
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
    x, said = left, []
    for kind, events in shares.items():
        name, colour = KINDS.get(kind, (kind, SERIES[3]))
        label = f"{name} {_share(events, total)} ({count(events)} events)"
        said.append(f"{name} {_share(events, total)}")
        parts.append(
            f'<rect x="{x:.1f}" y="{below + 8:.1f}" width="10" height="10" fill="{colour}"/>'
        )
        parts.append(text(label, x + 15, below + 17))
        x += 30 + 6.4 * len(label)
    return parts, ", ".join(said)


def _share(part: int, whole: int) -> str:
    share = 100 * part / whole
    if part and share < 0.01:
        return "<0.01%"
    return f"{share:.3g}%" if share < 99.9 or part == whole else f"{share:.2f}%"

"""The history map: which parts of a stream's time a query replayed, looked up or skipped.

A plan in HTML shows nested operators, with a history map where one read a stream.
"""

from __future__ import annotations

from html import escape

from ..query.contract.explanation import Operator, Plan, Regions
from .axis import LINE, QUIET, SERIES, TimeAxis, count, sheet, text

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


_BOX = "border-left:2px solid #d8dee8;margin:6px 0 0 4px;padding:0 0 0 12px"


def plan_html(plan: Plan) -> str:
    """The tree of ``str(plan)`` as HTML; every value is escaped."""
    figures = ", ".join(f"{key.replace('_', ' ')} {_number(value)}" for key, value in plan.figures)
    foot = f"<p><small>{escape(figures)}</small></p>"
    return f'<div style="font-size:13px">{_step(plan.root)}{foot}</div>'


def _step(step: Operator) -> str:
    parts = [f"<b>{escape(step.name)}</b>"]
    for key, value in step.details:
        if value is None or value in ("", ()):
            continue
        shown = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        parts.append(
            f"<div><small>{escape(key.replace('_', ' '))}:</small> "
            f'<code style="white-space:pre-wrap">{escape(shown)}</code></div>'
        )
    if step.regions is not None and step.regions.found:
        parts.append(history_svg(step.regions, 720))
    if step.figures:
        shown = ", ".join(
            f"{_number(value)} {key.replace('_', ' ')}" for key, value in step.figures
        )
        parts.append(f"<div><small>actual:</small> {escape(shown)}</div>")
    parts += [_step(below) for below in step.inputs]
    return f'<div style="{_BOX}">{"".join(parts)}</div>'


def _number(value: int | float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"

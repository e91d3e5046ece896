"""A plan as HTML: nested operators, with history maps where one read a stream."""

from __future__ import annotations

from html import escape

from ..query.contract.explanation import Operator, Plan
from .history import history_svg

__all__ = ["plan_html"]

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

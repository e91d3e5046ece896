"""Plan hints of a SELECT: ``/*+ strategy(replay) */``, for experiments."""

from __future__ import annotations

import re
from typing import Any

from sqlglot import exp

from ..pattern.any_choice import REGIMES
from ..sql.dialect import error_at

__all__ = ["THREADS_MAX", "take_hints"]

_ALL_HINT = re.compile(r"strategy\s*\(\s*all\s*\)", re.IGNORECASE)
_HINTS = {
    "strategy": ("auto", "replay", "index", "all", "greedy", "optimal", "none"),
    "selection": REGIMES,
    "recent": ("auto", "eager", "live_first", "archive_first", "both"),
    "rollups": ("auto", "none", "always"),
}
THREADS_MAX = 256


def take_hints(select: Any, text: str) -> dict[str, str]:
    """Remove and return a SELECT's hints; SqlError for unknown ones."""
    hint = select.args.get("hint")
    if hint is None:
        return {}
    select.set("hint", None)
    found: dict[str, str] = {}
    for item in hint.expressions:
        call = isinstance(item, exp.Anonymous)  # unparsable hints are one text
        name = item.name.lower() if call else str(item).lower()
        value = item.expressions[0].name.lower() if call and item.expressions else ""
        if not value and _ALL_HINT.search(text):  # ALL is a keyword: parsed without argument
            value = "all"
        counted = name == "threads" and value.isdecimal() and 1 <= int(value) <= THREADS_MAX
        if not counted and value not in _HINTS.get(name, ()):
            known = [f"{h}(x) with x one of {', '.join(x)}" for h, x in _HINTS.items()]
            known.append(f"threads(n) with n from 1 to {THREADS_MAX}")
            message = f"the plan hint is {' or '.join(known)}"
            raise error_at(text, max(text.find("/*+"), 0), message)
        found[name] = value
    return found

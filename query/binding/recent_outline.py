"""Rewrite of a statement with a recency join for drawing: the times of each pair's rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from ...errors import SqlError
from ..sql.dialect import (
    MatchRelation,
    RecentRelation,
    SituationRelation,
    error_at,
    parse_statement,
)
from ..sql.match_outline import quoted, with_of
from .binder import conjuncts
from .recent_scope import leaves_of

__all__ = ["RecentOutline", "recent_outline"]


@dataclass(frozen=True)
class RecentOutline:
    """Sides (live first), keys, and SQL with ``_from_i``, ``_to_i`` and ``_key_i`` per pair."""

    sides: tuple[str, ...]
    keys: tuple[str, ...]
    text: str


def recent_outline(text: str) -> RecentOutline:
    """Parse the outermost recency join; SqlError if there is none, or it has no pairs."""
    join = parse_statement(text).find(RecentRelation)
    if join is None:
        raise SqlError("the statement has no RECENT JOIN: there are no pairs to draw", 1, 1)
    if join.args["kind"] in ("semi", "anti"):
        message = "SEMI and ANTI joins give live rows alone: there are no pairs to draw"
        raise error_at(text, join.meta["recent_at"], message)
    sides = tuple(_name(side) for side in leaves_of(join, text))
    keys = tuple(_keys(join.args.get("on"), sides[0]))
    columns = [
        f"match_{which}({quoted(side)}) AS _{word}_{place}"
        for place, side in enumerate(sides)
        for which, word in (("start", "from"), ("end", "to"))
    ]
    columns += [f"{quoted(sides[0])}.{quoted(key)} AS _key_{i}" for i, key in enumerate(keys)]
    first, end = join.meta["recent_span"]
    asked = f"{with_of(text)}SELECT {', '.join(columns)} FROM {text[first:end]}"
    return RecentOutline(sides, keys, asked)


def _name(side: Any) -> str:
    unnamed = "match" if isinstance(side, MatchRelation | SituationRelation) else side.name
    return str(side.alias or unnamed)


def _keys(on: Any, live: str) -> Iterator[str]:
    found: dict[str, None] = {}
    for part in () if on is None else conjuncts(on):
        columns = (part.this, part.expression) if isinstance(part, exp.EQ) else ()
        if columns and all(isinstance(column, exp.Column) for column in columns):
            mine = [column.name for column in columns if column.table.lower() == live.lower()]
            if len(mine) == 1:
                found[mine[0]] = None
    yield from found

"""The sides of a recency join as sources of one relation with columns ``alias.column``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ..sql.dialect import RecentRelation, error_at, position_of
from .scope import OutputColumn, Scope, Source, own_nodes

__all__ = ["Face", "leaves_of", "source_of", "spell_out", "unwrapped"]

_TIMES = ("match_start", "match_end")


@dataclass(frozen=True)
class Face:
    """A side under its name: ``columns`` are name, column of the relation and type."""

    alias: str
    columns: tuple[tuple[str, str, pa.DataType], ...]
    start: str
    end: str


def unwrapped(side: Any, text: str) -> Any:
    """The item without parentheses around a recency join."""
    if not isinstance(side, exp.Subquery) or not isinstance(side.this, RecentRelation):
        return side
    if side.alias:
        message = "a recency join has no name of its own: its sides keep theirs"
        raise error_at(text, position_of(side.args["alias"]), message)
    return side.this


def leaves_of(item: Any, text: str) -> Iterator[Any]:
    for side in (unwrapped(item.this, text), unwrapped(item.expression, text)):
        if isinstance(side, RecentRelation):
            yield from leaves_of(side, text)
        else:
            yield side


def source_of(face: Face, relation: str) -> Source:
    source = Source(
        face.alias.lower(), [OutputColumn(name, type_) for name, _, type_ in face.columns]
    )
    source.pushable = False
    source.relation = relation
    source.columns = {name.lower(): column for name, column, _ in face.columns}
    source.times = dict(zip(_TIMES, (face.start, face.end), strict=True))
    return source


def spell_out(select: Any, scope: Scope, text: str) -> None:
    """Expand a SELECT's projections before they are resolved."""
    if not any(source.relation for source in scope.sources):
        return
    shown: list[Any] = []
    for projection in select.expressions:
        star = projection.this if isinstance(projection, exp.Column) else projection
        if isinstance(star, exp.Star):
            shown += _columns(projection, star, scope, text)
        elif isinstance(projection, exp.Column):
            name = _declared(projection, scope)
            shown.append(projection if name is None else _named(projection, name))
        elif not isinstance(projection, exp.Alias) and _speaks_of_a_side(projection):
            name = projection.sql("duckdb", normalize_functions="lower").lower()
            shown.append(_named(projection, name))
        else:
            shown.append(projection)
    select.set("expressions", shown)


def _named(projection: Any, name: str) -> Any:
    return exp.Alias(this=projection, alias=exp.to_identifier(name, quoted=True))


def _speaks_of_a_side(projection: Any) -> bool:
    return any(isinstance(node, exp.Column) for node in own_nodes(projection))


def _declared(column: Any, scope: Scope) -> str | None:
    found = [
        output.name
        for source in scope.sources
        if source.relation and column.table.lower() in ("", source.alias)
        if (output := source.find(column.name)) is not None
    ]
    return found[0] if len(found) == 1 else None


def _columns(projection: Any, star: Any, scope: Scope, text: str) -> list[Any]:
    alias = projection.table.lower() if isinstance(projection, exp.Column) else None
    left_out = {node.name.lower() for node in star.args.get("except_") or ()}
    replaced = {node.alias.lower(): node for node in star.args.get("replace") or ()}
    renamed = {node.this.name.lower(): node.alias for node in star.args.get("rename") or ()}
    found: list[Any] = []
    known: set[str] = set()
    for source in scope.sources:
        if alias is not None and source.alias != alias:
            continue
        if not source.relation:
            if star.args.get("except_") or replaced or renamed or not source.alias:
                message = (
                    "beside a recency join, * with EXCLUDE, REPLACE or RENAME needs a name: a.*"
                )
                raise error_at(text, position_of(projection), message)
            found.append(exp.column(exp.Star(), table=source.alias, quoted=True))
            continue
        for output in source.outputs:
            name = str(output.name)
            known.add(name.lower())
            if name.lower() in left_out:
                continue
            if name.lower() in replaced:
                found.append(replaced[name.lower()])
                continue
            column = exp.column(name, table=source.alias, quoted=True)
            column.meta.update(projection.meta)
            found.append(_named(column, renamed.get(name.lower(), name)))
    if alias is not None and not found and not known:
        return [projection]  # not a side: left to the binder
    for name in (left_out | replaced.keys() | renamed.keys()) - known:
        raise error_at(text, position_of(projection), f"no column {name!r} that * stands for")
    return found

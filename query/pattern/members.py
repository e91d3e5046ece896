"""Resolves members of structs and JSON in conditions and measures: ``A.at.b``, ``at.b.c``.

::

    A.at.b          struct_extract(A.at, 'b')            at is a struct
    A.at.b.c        struct_extract(struct_extract(A.at, 'b'), 'c')
    A.body.b.c      json_extract(A.body, '$."b"."c"')    body is JSON

A name that is a variable is a variable.  Struct members resolve exactly, else ignoring case; JSON
members exactly, and a missing one is NULL.  Other names are left for the binder to refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ...core.json_text import is_json
from ...core.suggestion import did_you_mean
from ...errors import AttributeNotFound, SqlError
from ..sql.sql_types import sql_type

__all__ = ["with_members"]

Refuse = Callable[[str, Any], SqlError]


def with_members(
    node: Any,
    schema: Any,
    variables: Collection[str],
    refuse: Refuse,
    others: Collection[str] = (),
) -> Any:
    """Rewrite members to function calls; changes ``node``.  ``variables``: qualifiers of columns of
    ``schema``; ``others``: of other columns.  ``refuse`` makes the error for a node.
    """
    if not any(isinstance(part, exp.Dot) or _qualified(part) for part in node.walk()):
        return node

    def visit(part: Any) -> Any:
        names = _path(part)
        if names is None or len(names) < 2 or _folded(names[0]) in others:
            return part
        variable = names[0] if _folded(names[0]) in variables else None
        if variable is not None and len(names) == 2:
            return part
        column, *members = names if variable is None else names[1:]
        try:
            found = schema.resolve(column.name)
        except AttributeNotFound as error:
            if variable is None:
                return part
            raise refuse(str(error), part) from None
        if variable is None and not _has_members(schema.arrow.field(found).type):
            return part
        base = exp.Column(this=column.copy(), table=None if variable is None else variable.copy())
        base.meta.update(part.meta)
        return _taken(base, schema.arrow.field(found).type, members, part, refuse)

    return node.transform(visit)


def _taken(base: Any, type_: pa.DataType, members: list[Any], node: Any, refuse: Refuse) -> Any:
    shown = base.name
    for place, member in enumerate(members):
        if is_json(type_):
            path = _json_path([each.name for each in members[place:]])
            return _call("json_extract", base, path)
        if not pa.types.is_struct(type_):
            what = "take an element first, x[1]" if pa.types.is_list(type_) else "it is no struct"
            raise refuse(f"{shown} is {sql_type(type_)}, which has no member {member.name!r}: "
                         f"{what}", node)  # fmt: skip
        names = [field.name for field in type_]
        folded = [name for name in names if name.lower() == member.name.lower()]
        if member.name not in names and len(folded) != 1:
            hint = did_you_mean(member.name, names)
            raise refuse(f"{shown} has no member {member.name!r}{hint} (it has "
                         f"{', '.join(names)})", node)  # fmt: skip
        name = member.name if member.name in names else folded[0]
        base, type_ = _call("struct_extract", base, name), type_.field(name).type
        shown = f"{shown}.{name}"
    return base


def _call(function: str, base: Any, text: str) -> Any:
    made = exp.Anonymous(this=function, expressions=[base, exp.Literal.string(text)])
    made.meta.update(base.meta)
    return made


def _json_path(names: list[str]) -> str:
    if any('"' in name or "\\" in name for name in names):  # a JSON path cannot quote these
        return "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in names)
    return "$" + "".join(f'."{name}"' for name in names)


def _has_members(type_: pa.DataType) -> bool:
    return bool(is_json(type_) or pa.types.is_struct(type_))


def _qualified(node: Any) -> bool:
    return isinstance(node, exp.Column) and node.args.get("table") is not None


def _folded(identifier: Any) -> str:
    return str(identifier.name if identifier.args.get("quoted") else identifier.name.upper())


def _path(node: Any) -> list[Any] | None:
    """The names of ``a.b.c``; None if the node is anything else."""
    if isinstance(node, exp.Column):
        return node.parts if all(isinstance(p, exp.Identifier) for p in node.parts) else None
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        before = _path(node.this.unnest())
        return None if before is None else [*before, node.expression]
    return None

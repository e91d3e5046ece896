"""Relations in FROM that are not streams: ``NET(stream)``, frames and system tables.

NET has the results of a live query that hold, additions minus retractions.  Conditions on ``_time``
are pushed down, as a result and its retraction have the same time.  Frames are tables that the
program registered.  Only system tables, such as ``chronicle.streams``, have names of two parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ...core.suggestion import did_you_mean
from ...errors import SqlError
from ...schema import StreamSchema
from ..contract.catalog import SYSTEM_TABLES
from ..contract.frames import Frame
from ..sql.dialect import error_at, position_of
from .binder import conjuncts
from .from_operator import OperatorSite

CHANGELOG = ("_time", "_seq", "_id", "_rev")
"""First columns of a result stream."""

DIFFERENCE = "_diff"
"""The next one, if results may be retracted."""


@dataclass(frozen=True)
class BoundNet:
    stream: str
    changes: StreamSchema
    schema: pa.Schema
    conditions: tuple[Any, ...]

    @property
    def streams(self) -> Sequence[str]:
        return (self.stream,)

    @property
    def ordered_by(self) -> Sequence[str]:
        return ("_time",)


def bind_net(site: OperatorSite) -> BoundNet:
    arguments = site.item.this.expressions

    def wrong(what: str, node: Any = None) -> SqlError:
        return error_at(site.text, position_of(node or site.item), what)

    if len(arguments) != 1 or not isinstance(arguments[0], exp.Column) or arguments[0].table:
        raise wrong("NET takes the name of a live query's stream: NET(name)")
    name, schema = site.stream(arguments[0])
    if tuple(schema.names[: len(CHANGELOG)]) != CHANGELOG:
        raise wrong(
            f"{name} holds no results of a live query, so there is nothing to net", site.item
        )
    hidden = ("_seq", DIFFERENCE)
    fields = [field for field in schema.arrow if field.name not in hidden]
    return BoundNet(name, schema, pa.schema(fields), _on_time(site))


def _on_time(site: OperatorSite) -> tuple[Any, ...]:
    select = site.select
    where = select.args.get("where") if isinstance(select, exp.Select) else None
    if where is None or any(select.args.get(key) for key in ("joins", "laterals")):
        return ()
    alias = (site.item.alias or "net").lower()
    found = []
    for part in conjuncts(where.this):
        columns = list(part.find_all(exp.Column))
        mine = all(
            column.name.lower() == "_time" and column.table.lower() in ("", alias)
            for column in columns
        )
        if columns and mine and part.find(exp.Query) is None:
            found.append(part.copy())
    return tuple(found)


@dataclass(frozen=True)
class BoundFrame:
    frame: Frame

    @property
    def schema(self) -> pa.Schema:
        return self.frame.schema

    @property
    def streams(self) -> Sequence[str]:
        return ()

    @property
    def ordered_by(self) -> Sequence[str]:
        return ()


def bind_frame(site: OperatorSite) -> BoundFrame:
    return BoundFrame(site.frames[site.item.name.lower()])


@dataclass(frozen=True)
class BoundSystemTable:
    space: str
    name: str

    @property
    def schema(self) -> pa.Schema:
        return SYSTEM_TABLES[self.space][self.name]

    @property
    def streams(self) -> Sequence[str]:
        return ()

    @property
    def ordered_by(self) -> Sequence[str]:
        return ()


def bind_system_table(site: OperatorSite) -> BoundSystemTable:
    item = site.item
    space, name = str(item.args["db"].name).lower(), str(item.name).lower()
    tables = SYSTEM_TABLES.get(space)
    if tables is None:
        hint = did_you_mean(space, sorted(SYSTEM_TABLES), quoted=False)
        message = f"names of streams have one part, found {space}.{item.name}{hint}"
        raise error_at(site.text, position_of(item), message)
    if name not in tables:
        hint = did_you_mean(name, sorted(tables), quoted=False, prefix=f"{space}.")
        known = "" if hint else f" (there are {', '.join(sorted(tables))})"
        message = f"no system table {space}.{item.name}{hint}{known}"
        raise error_at(site.text, position_of(item), message)
    item.set("db", None)
    return BoundSystemTable(space, name)

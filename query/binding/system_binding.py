"""System tables in FROM, such as ``chronicle.streams``; only these have two-part names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from ...core.suggestion import did_you_mean
from ..contract.catalog import SYSTEM_TABLES
from ..sql.dialect import error_at, position_of
from .from_operator import OperatorSite

__all__ = ["BoundSystemTable", "bind_system_table"]


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

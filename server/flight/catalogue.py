"""Metadata tables of Flight SQL, with what the token reaches.  Streams have no keys, so key tables
are empty.  A view's columns are those of its creation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...errors import StreamNotFound
from ...query.contract.catalog import SYSTEM_TABLES
from ...query.relations import CATALOG, SCHEMA
from ..access.auth import Principal, visible_to
from ..service.state import Server
from .calls import schema_bytes

TEXT = pa.string()
STREAM, VIEW, SYSTEM = "TABLE", "VIEW", "SYSTEM TABLE"


def _of(*columns: tuple[str, pa.DataType, bool]) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=nullable) for name, kind, nullable in columns])


_CATALOGS = _of(("catalog_name", TEXT, False))
_SCHEMAS = _of(("catalog_name", TEXT, True), ("db_schema_name", TEXT, False))
_TABLES = _of(
    ("catalog_name", TEXT, True), ("db_schema_name", TEXT, True),
    ("table_name", TEXT, False), ("table_type", TEXT, False),
)  # fmt: skip
_TABLE_TYPES = _of(("table_type", TEXT, False))
_PRIMARY_KEYS = _of(
    ("catalog_name", TEXT, True), ("db_schema_name", TEXT, True), ("table_name", TEXT, False),
    ("column_name", TEXT, False), ("key_name", TEXT, True), ("key_sequence", pa.int32(), False),
)  # fmt: skip
_FOREIGN_KEYS = _of(
    ("pk_catalog_name", TEXT, True), ("pk_db_schema_name", TEXT, True),
    ("pk_table_name", TEXT, False), ("pk_column_name", TEXT, False),
    ("fk_catalog_name", TEXT, True), ("fk_db_schema_name", TEXT, True),
    ("fk_table_name", TEXT, False), ("fk_column_name", TEXT, False),
    ("key_sequence", pa.int32(), False), ("fk_key_name", TEXT, True),
    ("pk_key_name", TEXT, True), ("update_rule", pa.uint8(), False),
    ("delete_rule", pa.uint8(), False),
)  # fmt: skip


def _like(pattern: str) -> Callable[[str], bool]:
    r"""A matcher for a pattern of ``%`` and ``_``, escaped by ``\``."""
    return lambda name: bool(pc.match_like(pa.scalar(name), pattern).as_py())


def _filter(command: Any, field: str, fits: Callable[[str], Callable[[str], bool]]) -> Any:
    return fits(getattr(command, field)) if command.HasField(field) else lambda name: True


def _same(wanted: str) -> Callable[[str], bool]:
    return lambda name: name == wanted


def _table(schema: pa.Schema, rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
    )


def _catalogs(server: Server, principal: Principal, command: Any) -> pa.Table:
    return _table(_CATALOGS, [(CATALOG,)])


def _schemas(server: Server, principal: Principal, command: Any) -> pa.Table:
    in_catalog = _filter(command, "catalog", _same)
    named = _filter(command, "db_schema_filter_pattern", _like)
    names = sorted((SCHEMA, *SYSTEM_TABLES))
    return _table(
        _SCHEMAS, [(CATALOG, name) for name in names if in_catalog(CATALOG) and named(name)]
    )


def _table_types(server: Server, principal: Principal, command: Any) -> pa.Table:
    return _table(_TABLE_TYPES, [(SYSTEM,), (STREAM,), (VIEW,)])


def _tables(server: Server, principal: Principal, command: Any) -> pa.Table:
    in_catalog = _filter(command, "catalog", _same)
    in_schema = _filter(command, "db_schema_filter_pattern", _like)
    named = _filter(command, "table_name_filter_pattern", _like)
    kinds = set(command.table_types) or {STREAM, VIEW, SYSTEM}
    visible = visible_to(principal) or (lambda name: True)
    catalog = server.catalog
    damaged = catalog.damaged()
    streams = [name for name in catalog.streams() if visible(name) and name not in damaged]
    views = {name: view for name, view in catalog.views().items() if visible(name)}
    tables = [(SCHEMA, name, STREAM) for name in streams]
    tables += [(SCHEMA, name, VIEW) for name in views]
    tables += [(space, name, SYSTEM) for space, names in SYSTEM_TABLES.items() for name in names]
    rows: list[tuple[Any, ...]] = []
    for space, name, kind in sorted(tables):
        if not (kind in kinds and in_catalog(CATALOG) and in_schema(space) and named(name)):
            continue
        row: tuple[Any, ...] = (CATALOG, space, name, kind)
        if command.include_schema:
            try:
                columns = (
                    catalog.stream_schema(name).arrow
                    if kind == STREAM
                    else views[name].columns
                    if kind == VIEW
                    else SYSTEM_TABLES[space][name]
                )
            except StreamNotFound:
                continue  # dropped meanwhile
            row = (*row, schema_bytes(columns))
        rows.append(row)
    with_schema = _TABLES.append(pa.field("table_schema", pa.binary(), nullable=False))
    return _table(with_schema if command.include_schema else _TABLES, rows)


def _none(schema: pa.Schema) -> Callable[[Server, Principal, Any], pa.Table]:
    return lambda server, principal, command: schema.empty_table()


TABLES: dict[str, Callable[[Server, Principal, Any], pa.Table]] = {
    "CommandGetCatalogs": _catalogs,
    "CommandGetDbSchemas": _schemas,
    "CommandGetTables": _tables,
    "CommandGetTableTypes": _table_types,
    "CommandGetPrimaryKeys": _none(_PRIMARY_KEYS),
    "CommandGetExportedKeys": _none(_FOREIGN_KEYS),
    "CommandGetImportedKeys": _none(_FOREIGN_KEYS),
    "CommandGetCrossReference": _none(_FOREIGN_KEYS),
}

"""``chronicle://`` for SQLAlchemy: streams as tables, without transactions, keys and constraints.
``chronicle:///directory`` opens a store (four slashes: an absolute path),
``chronicle://:token@host:port`` a server, ``chronicle+https://`` over TLS; ``?mode=r`` only reads.
Streams have the schema ``main``; system tables are views of their own schemas.  ``Table(...,
chronicle_time="timestamp")`` names the time attribute of a new stream, by default the first time
column; ``chronicle_retention`` and ``chronicle_codec`` are its settings.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from sqlalchemy import exc, pool, text, types
from sqlalchemy.engine import default, reflection
from sqlalchemy.engine.url import URL
from sqlalchemy.schema import Table
from sqlalchemy.sql import compiler

from ..errors import ConnectionFailed, StoreClosed

MAIN = "main"

_TYPES: dict[str, Any] = {
    "BOOLEAN": types.Boolean(),
    "TINYINT": types.SmallInteger(),
    "SMALLINT": types.SmallInteger(),
    "INTEGER": types.Integer(),
    "BIGINT": types.BigInteger(),
    "UTINYINT": types.SmallInteger(),
    "USMALLINT": types.Integer(),
    "UINTEGER": types.BigInteger(),
    "UBIGINT": types.Numeric(20, 0),
    "FLOAT": types.Float(24),
    "DOUBLE": types.Double(),
    "VARCHAR": types.String(),
    "BLOB": types.LargeBinary(),
    "DATE": types.Date(),
    "TIMESTAMP": types.DateTime(),
    "TIMESTAMP_S": types.DateTime(),
    "TIMESTAMP_MS": types.DateTime(),
    "TIMESTAMP_NS": types.DateTime(),
    "TIMESTAMPTZ": types.DateTime(timezone=True),
    "TIMESTAMP WITH TIME ZONE": types.DateTime(timezone=True),
    "INTERVAL": types.Interval(),
}
_DECIMAL = re.compile(r"DECIMAL\((\d+), ?(\d+)\)")


def type_of(written: str) -> Any:
    """SQLAlchemy's type for an ``information_schema.columns.data_type``."""
    decimal = _DECIMAL.fullmatch(written)
    if decimal is not None:
        return types.Numeric(int(decimal[1]), int(decimal[2]))
    return _TYPES.get(written, types.NullType())


class ChronicleIdentifiers(compiler.IdentifierPreparer):
    def schema_for_object(self, obj: Any, /) -> str:
        schema: str | None = obj.schema
        return "" if schema in (None, MAIN) else str(schema)


class ChronicleTypes(compiler.GenericTypeCompiler):
    def visit_VARCHAR(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        return "VARCHAR"

    visit_CHAR = visit_NVARCHAR = visit_NCHAR = visit_TEXT = visit_CLOB = visit_VARCHAR  # noqa: N815

    def visit_BLOB(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        return "BLOB"

    visit_BINARY = visit_VARBINARY = visit_BLOB  # noqa: N815

    def visit_FLOAT(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        """Single precision only on request."""
        return "FLOAT" if type_.precision is not None and type_.precision <= 24 else "DOUBLE"

    visit_REAL = visit_FLOAT  # noqa: N815

    def visit_DATETIME(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        return "TIMESTAMPTZ" if getattr(type_, "timezone", False) else "TIMESTAMP"

    visit_TIMESTAMP = visit_DATETIME  # noqa: N815


class ChronicleDDL(compiler.DDLCompiler):
    def visit_create_table(self, create: Any, **kw: Any) -> str:
        table = create.element
        options = table.dialect_options["chronicle"]
        columns = [self._column(column) for column in table.columns]
        exists = "IF NOT EXISTS " if create.if_not_exists else ""
        settings = [
            f"{name} = {self.sql_compiler.render_literal_value(str(options[name]), types.String())}"
            for name in ("retention", "codec")
            if options[name] is not None
        ]
        written = f"\nCREATE STREAM {exists}{self.preparer.format_table(table)} (\n\t"
        written += ", \n\t".join(columns)
        written += f"\n) TIMESTAMP BY {self.preparer.quote(self._time(table, options['time']))}"
        return written + (f" WITH ({', '.join(settings)})" if settings else "")

    def _column(self, column: Any) -> str:
        kind = self.dialect.type_compiler_instance.process(column.type, type_expression=column)
        rest = "" if column.nullable else " NOT NULL"
        return f"{self.preparer.format_column(column)} {kind}{rest}"

    @staticmethod
    def _time(table: Any, chosen: str | None) -> str:
        if chosen is not None:
            return chosen
        for column in table.columns:
            if isinstance(column.type, (types.DateTime, types.TIMESTAMP)):
                return str(column.name)
        raise exc.CompileError(
            f"a stream has a time attribute: give Table({table.name!r}, ..., "
            "chronicle_time='a column'), a timestamp or an integer"
        )

    def visit_drop_table(self, drop: Any, **kw: Any) -> str:
        exists = "IF EXISTS " if drop.if_exists else ""
        return f"\nDROP STREAM {exists}{self.preparer.format_table(drop.element)}"

    def visit_create_index(self, create: Any, *_: Any, **kw: Any) -> str:
        """A secondary index, which has no name of its own."""
        return self._index("CREATE INDEX", create.if_not_exists, "IF NOT EXISTS", create.element)

    def visit_drop_index(self, drop: Any, **kw: Any) -> str:
        return self._index("DROP INDEX", drop.if_exists, "IF EXISTS", drop.element)

    def _index(self, verb: str, may: bool, words: str, index: Any) -> str:
        columns = ", ".join(self.preparer.format_column(column) for column in index.columns)
        table = self.preparer.format_table(index.table)
        return f"{verb} {words + ' ' if may else ''}ON {table} ({columns})"


class ChronicleDialect(default.DefaultDialect):
    name = "chronicle"
    driver = "http"
    default_paramstyle = "qmark"
    default_schema_name = MAIN
    supports_statement_cache = True
    supports_alter = False
    supports_sequences = False
    supports_native_boolean = True
    supports_native_decimal = True
    supports_multivalues_insert = True
    supports_default_values = False
    supports_default_metavalue = False
    supports_empty_insert = False
    supports_sane_multi_rowcount = False
    postfetch_lastrowid = False
    insert_returning = update_returning = delete_returning = False
    preparer = ChronicleIdentifiers
    ddl_compiler = ChronicleDDL
    type_compiler_cls = ChronicleTypes
    construct_arguments = [(Table, {"time": None, "retention": None, "codec": None})]  # noqa: RUF012

    @classmethod
    def import_dbapi(cls) -> Any:
        import chronicle.dbapi

        return chronicle.dbapi

    @classmethod
    def get_pool_class(cls, url: URL) -> type[pool.Pool]:
        return pool.QueuePool

    def create_connect_args(self, url: URL) -> tuple[list[Any], dict[str, Any]]:
        parameters = dict(url.query)
        wrong = sorted(parameters.keys() - {"mode", "timeout"})
        if wrong:
            raise exc.ArgumentError(f"unknown in the url: {', '.join(wrong)} (mode, timeout)")
        options: dict[str, Any] = {key: value for key, value in parameters.items() if key == "mode"}
        if "timeout" in parameters:
            options["timeout"] = float(str(parameters["timeout"]))
        if url.host is None:
            if not url.database:
                raise exc.ArgumentError("chronicle:///directory of a store, or chronicle://host")
            return [url.database], options
        scheme = "https" if url.drivername.endswith("+https") else "http"
        host = f"[{url.host}]" if ":" in url.host else url.host
        where = f"{scheme}://{host}:{url.port or 8000}/{url.database or ''}".rstrip("/")
        token = url.password or url.username
        return [where], {**options, "token": None if token is None else str(token)}

    # ------------------------------------------------------------------ transactions

    def do_rollback(self, dbapi_connection: Any) -> None:
        """Does nothing; see the module."""

    def do_ping(self, dbapi_connection: Any) -> bool:
        dbapi_connection.cursor().execute("SELECT 1").close()
        return True

    def is_disconnect(self, e: Any, connection: Any, cursor: Any) -> bool:
        return isinstance(getattr(e, "__cause__", None), (ConnectionFailed, StoreClosed))

    def get_isolation_level_values(self, dbapi_conn: Any) -> Sequence[Any]:
        return ["AUTOCOMMIT"]

    def get_isolation_level(self, dbapi_connection: Any) -> Any:
        return "AUTOCOMMIT"

    def get_default_isolation_level(self, dbapi_conn: Any) -> Any:
        return "AUTOCOMMIT"

    def set_isolation_level(self, dbapi_connection: Any, level: Any) -> None:
        """Does nothing: AUTOCOMMIT is the only level."""

    def _get_server_version_info(self, connection: Any) -> tuple[int, ...]:
        import chronicle

        return tuple(int(part) for part in chronicle.__version__.split(".") if part.isdigit())

    def _get_default_schema_name(self, connection: Any) -> str:
        return MAIN

    # -------------------------------------------------------------------- reflection

    def _rows(self, connection: Any, query: str, **values: Any) -> list[Any]:
        return list(connection.execute(text(query), values))

    @reflection.cache
    def get_schema_names(self, connection: Any, **kw: Any) -> list[str]:
        query = "SELECT schema_name FROM information_schema.schemata ORDER BY schema_name"
        return [row[0] for row in self._rows(connection, query)]

    def _names(self, connection: Any, schema: str | None, kind: str) -> list[str]:
        query = "SELECT table_name FROM information_schema.tables "
        query += "WHERE table_schema = :schema AND table_type = :kind ORDER BY table_name"
        return [row[0] for row in self._rows(connection, query, schema=schema or MAIN, kind=kind)]

    @reflection.cache
    def get_table_names(self, connection: Any, schema: str | None = None, **kw: Any) -> list[str]:
        return self._names(connection, schema, "BASE TABLE")

    @reflection.cache
    def get_view_names(self, connection: Any, schema: str | None = None, **kw: Any) -> list[str]:
        return self._names(connection, schema, "VIEW")

    @reflection.cache
    def has_table(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> bool:
        query = "SELECT 1 FROM information_schema.tables "
        query += "WHERE table_schema = :schema AND table_name = :name"
        return bool(self._rows(connection, query, schema=schema or MAIN, name=table_name))

    @reflection.cache
    def get_columns(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[Any]:
        query = "SELECT column_name, data_type, is_nullable, column_default "
        query += "FROM information_schema.columns "
        query += "WHERE table_schema = :schema AND table_name = :name ORDER BY ordinal_position"
        columns = self._rows(connection, query, schema=schema or MAIN, name=table_name)
        if not columns:
            raise exc.NoSuchTableError(table_name)
        return [
            {"name": name, "type": type_of(kind), "nullable": null == "YES", "default": default}
            for name, kind, null, default in columns
        ]

    @reflection.cache
    def get_indexes(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[Any]:
        query = "SELECT attribute FROM chronicle.indexes WHERE stream = :name ORDER BY attribute"
        self._check_table(connection, table_name, schema, kw)
        indexes = (
            [] if schema not in (None, MAIN) else self._rows(connection, query, name=table_name)
        )
        return [
            {"name": f"{table_name}_{row[0]}", "column_names": [row[0]], "unique": False}
            for row in indexes
        ]

    def _check_table(
        self, connection: Any, name: str, schema: str | None, kw: dict[str, Any]
    ) -> None:
        if not self.has_table(connection, name, schema, **kw):
            raise exc.NoSuchTableError(name)

    def get_pk_constraint(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        self._check_table(connection, table_name, schema, kw)
        return {"constrained_columns": [], "name": None}

    def _none(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[Any]:
        self._check_table(connection, table_name, schema, kw)
        return []

    get_foreign_keys = get_unique_constraints = get_check_constraints = _none

    def get_table_comment(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        self._check_table(connection, table_name, schema, kw)
        return {"text": None}

    def get_view_definition(
        self, connection: Any, view_name: str, schema: str | None = None, **kw: Any
    ) -> str:
        self._check_table(connection, view_name, schema, kw)
        query = "SELECT view_definition FROM information_schema.views "
        query += "WHERE table_schema = :schema AND table_name = :name"
        rows = self._rows(connection, query, schema=schema or MAIN, name=view_name)
        return str(rows[0][0]) if rows else ""

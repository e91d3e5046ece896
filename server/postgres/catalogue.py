"""What tools ask of ``pg_catalog`` and ``information_schema``: tables, and texts translated.

A query that names a system table or function of PostgreSQL is parsed in PostgreSQL's dialect,
changed by the tables here, and run by Chronicle's engine like any other: with the streams that the
token sees, its limits and its gate.  Streams and views are in the schema ``public``.  Tables
without an entry in ``_ROWS`` are empty.  An object's oid is made of its name, so that it is the
same for every session.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from ...core.caches import lazy
from ...core.sql_text import quoted_text
from ...errors import SqlError
from ...query.contract.access import VisibleStreams
from ...query.contract.frames import Frame
from .values import ARRAY_OIDS, KINDS, kind_of, modifier_of

DATABASE, SCHEMA, OWNER = "chronicle", "public", "chronicle"
SERVER_VERSION = "15.0"
"""Tools choose their queries of the catalogue by it."""

LONGEST = 1 << 15
"""Characters of a query of the catalogue; those of tools have a tenth."""

SETTINGS = {
    "server_version": SERVER_VERSION,
    "server_version_num": "150000",
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "iso_8601",
    "TimeZone": "UTC",
    "integer_datetimes": "on",
    "standard_conforming_strings": "on",
    "search_path": SCHEMA,
    "transaction_isolation": "repeatable read",
    "default_transaction_isolation": "repeatable read",
    "transaction_read_only": "on",
    "default_transaction_read_only": "on",
    "max_identifier_length": "63",
    "max_index_keys": "32",
    "lc_collate": "C",
    "lc_ctype": "C",
    "is_superuser": "off",
}

# Columns by type: i integer, b boolean, f real, l integers, a texts, else text.
_TABLES = {
    "pg_namespace": "oid:i nspname nspowner:i nspacl:a",
    "pg_class": (
        "oid:i relname relnamespace:i reltype:i reloftype:i relowner:i relam:i relfilenode:i "
        "reltablespace:i relpages:i reltuples:f reltoastrelid:i relhasindex:b relisshared:b "
        "relpersistence relkind relnatts:i relchecks:i relhasrules:b relhastriggers:b "
        "relhassubclass:b relrowsecurity:b relforcerowsecurity:b relispopulated:b relreplident "
        "relispartition:b relacl:a reloptions:a relpartbound"
    ),
    "pg_attribute": (
        "attrelid:i attname atttypid:i attstattarget:i attlen:i attnum:i attndims:i atttypmod:i "
        "attnotnull:b atthasdef:b atthasmissing:b attidentity attgenerated attisdropped:b "
        "attislocal:b attcollation:i attacl:a attoptions:a attstorage attcompression "
        "attfdwoptions:a"
    ),
    "pg_type": (
        "oid:i typname typnamespace:i typowner:i typlen:i typbyval:b typtype typcategory "
        "typispreferred:b typisdefined:b typdelim typrelid:i typelem:i typarray:i typinput "
        "typoutput typreceive typnotnull:b typbasetype:i typtypmod:i typndims:i typcollation:i "
        "typdefault typacl:a"
    ),
    "pg_database": (
        "oid:i datname datdba:i encoding:i datlocprovider datistemplate:b datallowconn:b "
        "datconnlimit:i dattablespace:i datcollate datctype daticulocale datacl:a"
    ),
    "pg_roles": (
        "oid:i rolname rolsuper:b rolinherit:b rolcreaterole:b rolcreatedb:b rolcanlogin:b "
        "rolconnlimit:i rolvaliduntil rolreplication:b rolbypassrls:b"
    ),
    "pg_user": "usename usesysid:i usecreatedb:b usesuper:b",
    "pg_settings": "name setting unit category short_desc context vartype source",
    "pg_tables": (
        "schemaname tablename tableowner tablespace hasindexes:b hasrules:b hastriggers:b "
        "rowsecurity:b"
    ),
    "pg_views": "schemaname viewname viewowner definition",
    "pg_am": "oid:i amname amhandler amtype",
    "pg_attrdef": "oid:i adrelid:i adnum:i adbin",
    "pg_description": "objoid:i classoid:i objsubid:i description",
    "pg_shdescription": "objoid:i classoid:i description",
    "pg_index": (
        "indexrelid:i indrelid:i indnatts:i indnkeyatts:i indisunique:b indisprimary:b "
        "indisexclusion:b indimmediate:b indisclustered:b indisvalid:b indisreplident:b indkey:l "
        "indclass:l indoption:l indcollation:l indexprs indpred"
    ),
    "pg_indexes": "schemaname tablename indexname tablespace indexdef",
    "pg_constraint": (
        "oid:i conname connamespace:i contype condeferrable:b condeferred:b convalidated:b "
        "conrelid:i contypid:i conindid:i conparentid:i confrelid:i confupdtype confdeltype "
        "confmatchtype conislocal:b connoinherit:b conkey:l confkey:l conbin"
    ),
    "pg_inherits": "inhrelid:i inhparent:i inhseqno:i inhdetachpending:b",
    "pg_partitioned_table": "partrelid:i partstrat partnatts:i partdefid:i",
    "pg_proc": (
        "oid:i proname pronamespace:i proowner:i prolang:i prokind proretset:b prorettype:i "
        "pronargs:i proargtypes:l proallargtypes:l proargmodes:a proargnames:a prosrc "
        "provolatile proacl:a"
    ),
    "pg_trigger": (
        "oid:i tgrelid:i tgname tgfoid:i tgtype:i tgenabled tgisinternal:b tgconstraint:i "
        "tgparentid:i"
    ),
    "pg_rewrite": "oid:i rulename ev_class:i ev_type ev_enabled is_instead:b",
    "pg_enum": "oid:i enumtypid:i enumsortorder:f enumlabel",
    "pg_range": "rngtypid:i rngsubtype:i rngmultitypid:i",
    "pg_collation": "oid:i collname collnamespace:i collprovider collencoding:i",
    "pg_depend": "classid:i objid:i objsubid:i refclassid:i refobjid:i refobjsubid:i deptype",
    "pg_policy": "oid:i polname polrelid:i polcmd polpermissive:b polroles:l polqual polwithcheck",
    "pg_statistic_ext": (
        "oid:i stxrelid:i stxname stxnamespace:i stxowner:i stxkeys:l stxkind:a stxstattarget:i"
    ),
    "pg_publication": "oid:i pubname puballtables:b",
    "pg_publication_rel": "oid:i prpubid:i prrelid:i prqual prattrs:l",
    "pg_publication_namespace": "oid:i pnpubid:i pnnspid:i",
    "pg_foreign_table": "ftrelid:i ftserver:i ftoptions:a",
    "pg_foreign_server": "oid:i srvname srvowner:i srvfdw:i srvoptions:a",
    "pg_foreign_data_wrapper": "oid:i fdwname fdwowner:i",
    "pg_get_keywords": "word catcode catdesc",
    "pg_sequence": "seqrelid:i seqtypid:i seqstart:i seqincrement:i seqmax:i seqmin:i",
    "pg_sequences": "schemaname sequencename sequenceowner",
    "pg_matviews": "schemaname matviewname matviewowner definition ispopulated:b",
    "pg_extension": "oid:i extname extowner:i extnamespace:i extversion",
    "pg_language": "oid:i lanname lanowner:i",
    "pg_tablespace": "oid:i spcname spcowner:i spcacl:a spcoptions:a",
    "pg_auth_members": "roleid:i member:i grantor:i admin_option:b",
    "pg_db_role_setting": "setdatabase:i setrole:i setconfig:a",
    "pg_event_trigger": "oid:i evtname evtevent evtowner:i evtenabled",
    "pg_cast": "oid:i castsource:i casttarget:i castfunc:i castcontext castmethod",
    "pg_operator": "oid:i oprname oprnamespace:i oprleft:i oprright:i oprresult:i",
    "pg_aggregate": "aggfnoid:i aggkind",
    "pg_opclass": "oid:i opcmethod:i opcname opcnamespace:i opcintype:i opcdefault:b",
    "pg_stat_activity": "datid:i datname pid:i usename application_name state query",
    "pg_stat_user_tables": "relid:i schemaname relname n_live_tup:i",
    "pg_locks": "locktype database:i relation:i pid:i mode granted:b",
    "information_schema_schemata": "catalog_name schema_name schema_owner",
    "information_schema_tables": (
        "table_catalog table_schema table_name table_type is_insertable_into"
    ),
    "information_schema_columns": (
        "table_catalog table_schema table_name column_name ordinal_position:i column_default "
        "is_nullable data_type character_maximum_length:i numeric_precision:i numeric_scale:i "
        "datetime_precision:i udt_catalog udt_schema udt_name is_identity is_generated is_updatable"
    ),
    "information_schema_views": "table_catalog table_schema table_name view_definition",
    "information_schema_table_constraints": (
        "constraint_catalog constraint_schema constraint_name table_catalog table_schema "
        "table_name constraint_type"
    ),
    "information_schema_key_column_usage": (
        "constraint_catalog constraint_schema constraint_name table_catalog table_schema "
        "table_name column_name ordinal_position:i position_in_unique_constraint:i"
    ),
    "information_schema_constraint_column_usage": (
        "table_catalog table_schema table_name column_name constraint_catalog constraint_schema "
        "constraint_name"
    ),
    "information_schema_referential_constraints": (
        "constraint_catalog constraint_schema constraint_name unique_constraint_schema "
        "unique_constraint_name update_rule delete_rule"
    ),
    "information_schema_routines": "routine_catalog routine_schema routine_name routine_type",
    "information_schema_table_privileges": (
        "grantor grantee table_catalog table_schema table_name privilege_type"
    ),
}
_TYPES = {"i": pa.int64(), "b": pa.bool_(), "f": pa.float64(), "l": pa.list_(pa.int64()),
          "a": pa.list_(pa.string()), "": pa.string()}  # fmt: skip
_SPACES = {"pg_catalog": 11, SCHEMA: 2200, "information_schema": 13_000}
_ROLE, _DATABASE = 10, 5
_CATEGORIES = {"bool": "B", "date": "D", "time": "D", "timestamp": "D", "timestamptz": "D",
               "text": "S", "varchar": "S", "name": "S", "bytea": "U", "json": "U"}  # fmt: skip

Row = dict[str, Any]


def schema_of(table: str) -> pa.Schema:
    parts = (column.partition(":") for column in _TABLES[table].split())
    return pa.schema([(name, _TYPES[kind]) for name, _, kind in parts])


def oid_of(name: str) -> int:
    return 16_384 + zlib.crc32(name.encode()) % (2**31 - 16_384)


class _Frames(Mapping[str, Frame]):
    """The system tables by name, made when they are asked for."""

    def __init__(self, catalog: PostgresCatalog) -> None:
        self._catalog = catalog

    def __getitem__(self, name: str) -> Frame:
        schema = schema_of(name)
        rows = list(_ROWS.get(name, _none)(self._catalog))
        return Frame(name, pa.Table.from_pylist(rows, schema))

    def __iter__(self) -> Iterator[str]:
        return iter(_TABLES)

    def __len__(self) -> int:
        return len(_TABLES)

    def __contains__(self, name: object) -> bool:
        return name in _TABLES


class PostgresCatalog(VisibleStreams):
    """The streams that a caller sees, and PostgreSQL's system tables as frames."""

    @lazy
    def frames(self) -> Mapping[str, Frame]:
        return _Frames(self)

    @lazy
    def tables(self) -> list[tuple[str, str, pa.Schema, str | None]]:
        """Name, kind (``r``: a stream, ``v``: a view), columns, and a view's text."""
        damaged = self.damaged()
        streams = [name for name in self.streams() if name not in damaged]
        return [
            *((name, "r", self.stream_schema(name).arrow, None) for name in streams),
            *((view.name, "v", view.columns, view.sql) for view in self.views().values()),
        ]


def _none(catalog: PostgresCatalog) -> Iterator[Row]:
    return iter(())


def _namespaces(catalog: PostgresCatalog) -> Iterator[Row]:
    for name, oid in _SPACES.items():
        yield {"oid": oid, "nspname": name, "nspowner": _ROLE}


def _classes(catalog: PostgresCatalog) -> Iterator[Row]:
    off = dict.fromkeys(
        ("relhasindex", "relisshared", "relhasrules", "relhastriggers", "relhassubclass",
         "relrowsecurity", "relforcerowsecurity", "relispartition"), False,
    )  # fmt: skip
    for name, kind, columns, _ in catalog.tables:
        events = catalog.snapshot(name).count if kind == "r" else 0
        yield {
            "oid": oid_of(name), "relname": name, "relnamespace": _SPACES[SCHEMA], "reltype": 0,
            "reloftype": 0, "relowner": _ROLE, "relam": 2 if kind == "r" else 0,
            "relfilenode": 0, "reltablespace": 0, "relpages": 0, "reltuples": float(events),
            "reltoastrelid": 0, "relpersistence": "p", "relkind": kind, "relnatts": len(columns),
            "relchecks": 0, "relispopulated": True, "relreplident": "d", **off,
        }  # fmt: skip


def _attributes(catalog: PostgresCatalog) -> Iterator[Row]:
    for name, _, columns, _ in catalog.tables:
        for place, field in enumerate(columns, 1):
            kind = KINDS[kind_of(field.type)]
            yield {
                "attrelid": oid_of(name), "attname": field.name, "atttypid": kind.oid,
                "attstattarget": -1, "attlen": kind.size, "attnum": place, "attndims": 0,
                "atttypmod": modifier_of(field.type), "attnotnull": not field.nullable,
                "atthasdef": False, "atthasmissing": False, "attidentity": "", "attgenerated": "",
                "attisdropped": False, "attislocal": True, "attcollation": 0, "attstorage": "p",
                "attcompression": "",
            }  # fmt: skip


def _types(catalog: PostgresCatalog) -> Iterator[Row]:
    arrays = {f"_{name}": (oid, -1, KINDS[name].oid) for name, oid in ARRAY_OIDS.items()}
    kinds = {name: (kind.oid, kind.size, 0) for name, kind in KINDS.items()}
    for name, (oid, size, item) in {**kinds, **arrays}.items():
        yield {
            "oid": oid, "typname": name, "typnamespace": _SPACES["pg_catalog"],
            "typowner": _ROLE, "typlen": size, "typbyval": size > 0, "typtype": "b",
            "typcategory": "A" if item else _CATEGORIES.get(name, "N"),
            "typispreferred": name == "text", "typisdefined": True, "typdelim": ",",
            "typrelid": 0, "typelem": item, "typarray": ARRAY_OIDS.get(name, 0),
            "typinput": f"{name}in", "typoutput": f"{name}out", "typreceive": f"{name}recv",
            "typnotnull": False, "typbasetype": 0, "typtypmod": -1, "typndims": 0,
            "typcollation": 0,
        }  # fmt: skip


def _databases(catalog: PostgresCatalog) -> Iterator[Row]:
    yield {
        "oid": _DATABASE, "datname": DATABASE, "datdba": _ROLE, "encoding": 6,
        "datlocprovider": "c", "datistemplate": False, "datallowconn": True, "datconnlimit:i": -1,
        "dattablespace": 0, "datcollate": "C", "datctype": "C",
    }  # fmt: skip


def _roles(catalog: PostgresCatalog) -> Iterator[Row]:
    yield {
        "oid": _ROLE, "rolname": OWNER, "rolsuper": False, "rolinherit": True,
        "rolcreaterole": False, "rolcreatedb": False, "rolcanlogin": True, "rolconnlimit": -1,
        "rolreplication": False, "rolbypassrls": False,
    }  # fmt: skip


def _users(catalog: PostgresCatalog) -> Iterator[Row]:
    yield {"usename": OWNER, "usesysid": _ROLE, "usecreatedb": False, "usesuper": False}


def _settings(catalog: PostgresCatalog) -> Iterator[Row]:
    for name, value in SETTINGS.items():
        yield {"name": name, "setting": value, "context": "internal", "vartype": "string"}


def _access_methods(catalog: PostgresCatalog) -> Iterator[Row]:
    yield {"oid": 2, "amname": "tab+tree", "amtype": "t"}


def _listed_tables(catalog: PostgresCatalog) -> Iterator[Row]:
    off = dict.fromkeys(("hasindexes", "hasrules", "hastriggers", "rowsecurity"), False)
    for name, kind, _, _ in catalog.tables:
        if kind == "r":
            yield {"schemaname": SCHEMA, "tablename": name, "tableowner": OWNER, **off}


def _listed_views(catalog: PostgresCatalog) -> Iterator[Row]:
    for name, kind, _, text in catalog.tables:
        if kind == "v":
            yield {
                "schemaname": SCHEMA, "viewname": name, "viewowner": OWNER, "definition": text,
                "table_catalog": DATABASE, "table_schema": SCHEMA, "table_name": name,
                "view_definition": text,
            }  # fmt: skip


def _schemata(catalog: PostgresCatalog) -> Iterator[Row]:
    for name in _SPACES:
        yield {"catalog_name": DATABASE, "schema_name": name, "schema_owner": OWNER}


def _information_tables(catalog: PostgresCatalog) -> Iterator[Row]:
    for name, kind, _, _ in catalog.tables:
        yield {
            "table_catalog": DATABASE, "table_schema": SCHEMA, "table_name": name,
            "table_type": "BASE TABLE" if kind == "r" else "VIEW", "is_insertable_into": "NO",
        }  # fmt: skip


def _information_columns(catalog: PostgresCatalog) -> Iterator[Row]:
    for name, _, columns, _ in catalog.tables:
        for place, field in enumerate(columns, 1):
            kind = kind_of(field.type)
            yield {
                "table_catalog": DATABASE, "table_schema": SCHEMA, "table_name": name,
                "column_name": field.name, "ordinal_position": place,
                "is_nullable": "YES" if field.nullable else "NO", "data_type": KINDS[kind].name,
                "numeric_precision": getattr(field.type, "precision", None),
                "numeric_scale": getattr(field.type, "scale", None),
                "datetime_precision": 6 if kind.startswith("time") else None,
                "udt_catalog": DATABASE, "udt_schema": "pg_catalog", "udt_name": kind,
                "is_identity": "NO", "is_generated": "NEVER", "is_updatable": "NO",
            }  # fmt: skip


_ROWS: Mapping[str, Callable[[PostgresCatalog], Iterator[Row]]] = {
    "pg_namespace": _namespaces,
    "pg_class": _classes,
    "pg_attribute": _attributes,
    "pg_type": _types,
    "pg_database": _databases,
    "pg_roles": _roles,
    "pg_user": _users,
    "pg_settings": _settings,
    "pg_am": _access_methods,
    "pg_tables": _listed_tables,
    "pg_views": _listed_views,
    "information_schema_schemata": _schemata,
    "information_schema_tables": _information_tables,
    "information_schema_columns": _information_columns,
    "information_schema_views": _listed_views,
}

# ----------------------------------------------------------------------------- translation

_NAMES_CATALOG = re.compile(
    r"\bpg_\w+|\binformation_schema\b|\bcurrent_(?:schemas?|setting|catalog|database|user|role)\b"
    r"|\b(?:session_user|version|set_config|quote_ident|has_\w+_privilege|obj_description"
    r"|col_description|shobj_description|format_type|to_reg\w+)\b|::\s*(?:reg\w+|name|oid)\b",
    re.IGNORECASE,
)


_OIDS = re.compile(r"::\s*oid\s*\[\]", re.IGNORECASE)


def _by_oid(kinds: Mapping[str, Any], value: str) -> str:
    cases = " ".join(f"WHEN {k.oid} THEN {quoted_text(k.name)}" for k in kinds.values())
    return f"CASE {value} {cases} END"


def _setting(name: str) -> str:
    found = next((v for k, v in SETTINGS.items() if k.lower() == name.strip("'").lower()), None)
    return "NULL" if found is None else quoted_text(found)


_TRUE = (
    "pg_table_is_visible pg_type_is_visible pg_function_is_visible pg_opclass_is_visible "
    "pg_operator_is_visible pg_statistics_obj_is_visible has_schema_privilege "
    "has_table_privilege has_column_privilege has_any_column_privilege has_database_privilege "
    "has_function_privilege has_sequence_privilege pg_has_role"
)
_FALSE = "pg_is_in_recovery pg_relation_is_publishable row_security_active pg_is_other_temp_schema"
_NULL = (
    "obj_description col_description shobj_description pg_get_indexdef pg_get_constraintdef "
    "pg_get_triggerdef pg_get_ruledef pg_get_statisticsobjdef_columns pg_get_partkeydef "
    "pg_get_serial_sequence pg_get_functiondef pg_get_function_arguments "
    "pg_get_function_identity_arguments pg_get_function_result pg_tablespace_location "
    "inet_server_addr inet_server_port inet_client_addr pg_relation_filenode "
    "pg_get_function_sqlbody pg_my_temp_schema"
)
_ZERO = "pg_relation_size pg_total_relation_size pg_table_size pg_indexes_size pg_database_size"

_CALLS: dict[str, Callable[..., str]] = {
    **dict.fromkeys(_TRUE.split(), lambda *_: "TRUE"),
    **dict.fromkeys(_FALSE.split(), lambda *_: "FALSE"),
    **dict.fromkeys(_NULL.split(), lambda *_: "CAST(NULL AS VARCHAR)"),
    **dict.fromkeys(_ZERO.split(), lambda *_: "0"),
    **dict.fromkeys(
        ("version", "current_version"),
        lambda: quoted_text(f"PostgreSQL {SERVER_VERSION} (Chronicle)"),
    ),
    **dict.fromkeys(("current_database", "current_catalog"), lambda: quoted_text(DATABASE)),
    "current_schema": lambda *_: quoted_text(SCHEMA),
    "current_schemas": lambda *_: f"['pg_catalog', '{SCHEMA}']",
    **dict.fromkeys(("pg_get_userbyid",), lambda *_: quoted_text(OWNER)),
    "pg_encoding_to_char": lambda *_: "'UTF8'",
    "pg_get_expr": lambda text, *_: text,
    "pg_get_viewdef": lambda oid, *_: (
        "(SELECT v.definition FROM pg_views v JOIN pg_class c ON c.relname = v.viewname "
        f"WHERE c.oid = {oid})"
    ),
    "pg_size_pretty": lambda size, *_: f"format_bytes({size})",
    "pg_backend_pid": lambda: "1",
    "format_type": lambda oid, *_: _by_oid(KINDS, oid),
    "current_setting": lambda name, *_: _setting(name),
    "set_config": lambda name, value, *_: value,
    "_pg_expandarray": lambda *_: "{'x': CAST(NULL AS BIGINT), 'n': CAST(NULL AS BIGINT)}",
    "quote_ident": lambda name: f"CAST({name} AS VARCHAR)",
    "to_regclass": lambda name: f"(SELECT max(oid) FROM pg_class WHERE relname = {name})",
    "to_regtype": lambda name: f"(SELECT max(oid) FROM pg_type WHERE typname = {name})",
}
_USERS = ("current_user", "session_user", "current_role", "user")


def names_catalog(text: str) -> bool:
    return _NAMES_CATALOG.search(text) is not None


def translated(text: str, user: str) -> str:
    """A query over PostgreSQL's catalogue in Chronicle's SQL; raises ``SqlError``."""
    if len(text) > LONGEST:  # its parser does not ask whether to go on
        raise SqlError(
            f"a query of PostgreSQL's catalogue has at most {LONGEST:,} characters, found "
            f"{len(text):,}"
        )
    try:
        tree = sqlglot.parse_one(_OIDS.sub("::UINTEGER[]", text), read="postgres")
    except SqlglotError as error:
        raise SqlError(str(error).splitlines()[0]) from None
    if not isinstance(tree, exp.Query):
        raise SqlError("only queries read PostgreSQL's catalogue")
    for select in tree.find_all(exp.Select):
        select.set("expressions", [_named(column) for column in select.expressions])
    for node in reversed(list(tree.walk())):  # operands before what they are in
        changed = _changed(node, user)
        if changed is not node:
            node.replace(changed)
    return str(tree.sql("duckdb", normalize_functions=False))


def _named(column: Any) -> Any:
    """A column with the name that PostgreSQL gives it: of the function that makes it."""
    inner = column
    while isinstance(inner, (exp.Cast, exp.Dot)):
        inner = inner.this if isinstance(inner, exp.Cast) else inner.expression
    if isinstance(column, exp.Dot) or isinstance(inner, exp.Func):
        name = _function_name(inner)
        return exp.alias_(column, "version" if name == "current_version" else name)
    return column


def _function_name(node: Any) -> str:
    return str(node.name if isinstance(node, exp.Anonymous) else node.sql_name()).lower()


def _parsed(text: str) -> Any:
    return sqlglot.parse_one(text, read="duckdb")


def _changed(node: Any, user: str) -> Any:
    if isinstance(node, exp.Table):
        return _table(node)
    if isinstance(node, exp.Collate):
        return node.this
    if isinstance(node, exp.Operator):
        return exp.RegexpLike(this=node.this, expression=node.expression)
    if isinstance(node, exp.Cast):
        return _cast(node)
    if isinstance(node, exp.Array) and node.find(exp.Select) in node.expressions:
        return _array_of(node.expressions[0])
    if isinstance(node, exp.NEQ) and node.expression.name.upper() == "ALL":
        values = [*node.expression.expressions, node.this]
        return exp.Not(this=exp.Anonymous(this="list_contains", expressions=values))
    if isinstance(node, exp.Div) and _is_whole(node.this) and _is_whole(node.expression):
        return exp.IntDiv(this=node.this, expression=node.expression)
    if isinstance(node, exp.Column) and node.db.lower() in _SPACES:
        node.set("db", None)
    if isinstance(node, exp.Dot) and node.this.name.lower() in _SPACES:
        return node.expression
    if isinstance(node, (exp.Column, exp.Func)):
        return _call(node, user)
    return node


def _array_of(select: Any) -> Any:
    """``ARRAY(SELECT x ...)`` as an aggregate, without its order."""
    select.set("order", None)
    column = select.expressions[0].unalias()
    select.set("expressions", [exp.Anonymous(this="list", expressions=[column])])
    return exp.Subquery(this=select)


def _is_whole(node: Any) -> bool:
    if isinstance(node, exp.Literal):
        return bool(node.is_int)
    return isinstance(node, exp.Cast) and node.to.this in exp.DataType.INTEGER_TYPES


def _table(node: Any) -> Any:
    if isinstance(node.this, (exp.GenerateSeries, exp.ExplodingGenerateSeries)):
        return _series(node)
    if isinstance(node.this, exp.Anonymous) and node.this.name.lower() in _TABLES:
        return _source(f"{node.this.name} AS {node.alias or node.this.name}")
    if isinstance(node.this, (exp.Func, exp.Array)):  # a scalar is a table of one row
        return _source(f"(SELECT {node.this.sql('duckdb')} AS {node.alias}) AS {node.alias}")
    space, name = node.db.lower(), node.name.lower()
    if space == "information_schema":
        alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(name))
        return exp.Table(this=exp.to_identifier(f"{space}_{name}"), alias=alias)
    if space in ("pg_catalog", SCHEMA):
        node.set("db", None)
        node.set("catalog", None)
    return node


def _series(node: Any) -> Any:
    """A series over the places of an array; only tables without rows have arrays."""
    bounds = (node.this.args["start"], node.this.args["end"])
    alias = node.args.get("alias")
    column = alias.columns[0].name if alias and alias.columns else node.alias
    if not all(isinstance(bound, exp.Literal) for bound in bounds):
        return _source(f"unnest(CAST([] AS BIGINT[])) AS {node.alias}({column})")
    first, last = (bound.name for bound in bounds)
    return _source(f"generate_series({first}, {last}) AS {node.alias}({column})")


def _source(text: str) -> Any:
    return _parsed(f"SELECT 1 FROM {text}").args["from_"].this


def _call(node: Any, user: str) -> Any:
    if isinstance(node, exp.Column):
        plain = node.name.lower() if len(node.parts) == 1 and not node.this.quoted else ""
        if plain in _USERS:
            return exp.Literal.string(user)
        return _parsed(_CALLS[plain]()) if plain == "current_catalog" else node
    name = _function_name(node)
    if name in _FOLDED:
        return _folded(name, node)
    if name in _USERS:
        return exp.Literal.string(user)
    make = _CALLS.get(name)
    if make is None:
        return node
    arguments = node.expressions if isinstance(node, exp.Anonymous) else _arguments(node)
    return _parsed(make(*(argument.sql("duckdb") for argument in arguments)))


_FOLDED = (
    "string_to_array",
    "parse_ident",
    "array_lower",
    "array_upper",
    "array_length",
    "array_size",
)


def _folded(name: str, node: Any) -> Any:
    """Arrays of constants, and their lengths, as constants: sizes have to be literals."""
    first = (node.expressions if isinstance(node, exp.Anonymous) else _arguments(node))[0]
    if name in ("string_to_array", "parse_ident"):
        if not isinstance(first, exp.Literal):
            return node
        parts = first.name.split("," if name == "string_to_array" else ".")
        return _list_of([part.strip('"') for part in parts])
    if name == "array_lower":
        return exp.Literal.number(1)
    if isinstance(first, exp.Array):
        return exp.Literal.number(len(first.expressions))
    return _parsed(f"len({first.sql('duckdb')})")


def _list_of(texts: list[str]) -> Any:
    return exp.Array(expressions=[exp.Literal.string(text) for text in texts])


def _arguments(node: Any) -> list[Any]:
    values = [node.args.get(key) for key in node.arg_types]
    return [value for value in values if isinstance(value, exp.Expression)]


_TEXTS = {
    "name", "char", '"char"', "regproc", "regprocedure", "regrole", "regnamespace", "int2vector",
    "oidvector", "pg_node_tree", "aclitem", "xid", "bpchar",
}  # fmt: skip


def _cast(node: Any) -> Any:
    to = node.to.sql("postgres").lower().replace("pg_catalog.", "")
    inner = node.this
    if to in ("regclass", "regtype"):
        table, column = ("pg_class", "relname") if to == "regclass" else ("pg_type", "typname")
        if not isinstance(inner, exp.Literal):
            inner.meta["names"] = (table, column)
            return inner
        name = quoted_text(inner.name.rpartition(".")[2].strip('"'))
        return _parsed(f"(SELECT max(oid) FROM {table} WHERE {column} = {name})")
    if "names" in inner.meta and to in ("text", "varchar"):
        table, column = inner.meta["names"]
        return _parsed(f"(SELECT max({column}) FROM {table} WHERE oid = {inner.sql('duckdb')})")
    if to.endswith("[]") and isinstance(inner, exp.Literal) and inner.name.startswith("{"):
        inner = _list_of([part.strip('"') for part in inner.name.strip("{}").split(",")])
        node.set("this", inner)
    if to == "oid":
        return exp.Cast(this=inner, to=exp.DataType.build("bigint"))
    if to.rstrip("[]") in _TEXTS:
        many = "[]" * to.endswith("[]")
        return exp.Cast(this=inner, to=exp.DataType.build(f"text{many}", dialect="duckdb"))
    return node

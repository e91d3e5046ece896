"""The gate to DuckDB: one SELECT, over our relations, of allowed words.

Guarantee: an instance is an empty read-only database without files, network, extensions and Python
variables, with locked configuration and UTC sessions, so no statement can leave a macro, view,
table or setting behind.  What a cursor registers ends with it.  A text passes if DuckDB's parser
finds exactly one statement, a SELECT, that reads only the given relations, calls only functions and
collations in ``sql.forms``, and names no schema; errors of sqlglot and
``sql.rendering`` are thus caught here.  Limits: without a place for the empty file, the database is
in memory and writable, and only ``admit`` protects it; DuckDB's memory limit is not a hard cap
(``sql.gate``).  Cost: an instance 15 ms, once per database; a text about 1 ms, then 20
microseconds.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from ...core.caches import Lru
from ...core.scratch import ScratchDirectory
from ...core.sql_text import quoted_text
from ...core.times import only_durations
from ...errors import ResourceLimit, SqlError
from ..sql.forms import (
    COLLATIONS,
    FUNCTIONS,
    MADE_BY_DUCKDB,
    MOMENTS,
    TABLE_FUNCTIONS,
    UNQUOTED,
)
from .scans import SPILL_BYTES, Failure

_ADMITTED_MAX = 4096
_FROM = frozenset(
    ("EMPTY", "EMPTY_FROM", "BASE_TABLE", "SUBQUERY", "JOIN", "TABLE_FUNCTION", "EXPRESSION_LIST")
)
_QUERIES = frozenset(("SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"))
_READ = """SELECT json_serialize_sql(
    $1, skip_null := true, skip_empty := true, skip_default := true)"""
_MOMENTS = frozenset(word.lower() for word in MOMENTS.values())
_OURS = re.compile(r"c\d*|v|rows|events|window_(?:start|end|id)")
"""Unquoted names in texts made by the callers of ``evaluation``."""
_CALLS = frozenset(("FUNCTION", "WINDOW"))

_OTHERS = ["BIGINT", "DATE", "TIME", "TIMETZ", "TIME_NS", "INTERVAL"]


def _floored(count: str, ticks: int) -> str:
    return f"{count} // {ticks} - CASE WHEN {count} % {ticks} < 0 THEN 1 ELSE 0 END"


_EPOCH_MS = "CREATE MACRO epoch_ms" + ", ".join(
    [
        f"(t TIMESTAMP_NS) AS {_floored('epoch_ns(t)', 1_000_000)}",
        *(
            f"(t {name}) AS {_floored('epoch_us(t)', 1000)}"
            for name in ("TIMESTAMP", "TIMESTAMPTZ")
        ),
        *(
            f"(t {name}) AS {_floored('epoch_us(CAST(t AS TIMESTAMP))', 1000)}"
            for name in ("TIMESTAMP_MS", "TIMESTAMP_S")
        ),
        *(f"(t {name}) AS system.main.epoch_ms(t)" for name in _OTHERS),
    ]
)
"""DuckDB 2.0.1 fails on all times but microseconds, and rounds those before 1970 up."""

_admitted: Lru[bytes, bool] = Lru(_ADMITTED_MAX)


@cache
def _empty_database() -> bytes:
    with ScratchDirectory("empty") as directory:
        path = directory / "empty"
        with duckdb.connect(str(path), config={"threads": 1}) as empty:
            empty.execute(_EPOCH_MS)
        return path.read_bytes()


def open_unlocked(**settings: Any) -> Any:
    """An empty instance; ``lock`` it before it runs foreign SQL."""
    settings = {
        "python_enable_replacements": "false",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        **settings,
    }
    try:
        place = ScratchDirectory("empty")
        path = place.path / "empty"
        path.write_bytes(_empty_database())
    except OSError:  # a read-only system without a writable directory, or without space
        connection = duckdb.connect(config=settings)
        connection.execute(_EPOCH_MS)
    else:
        with place:
            connection = duckdb.connect(str(path), read_only=True, config=settings)
    # for all cursors, which do not inherit what is set for a connection
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    # relations have no known size, so every ASOF join would be planned as a tiny one
    connection.execute("SET GLOBAL asof_loop_join_threshold = 0")
    return connection


def lock(
    connection: Any,
    *,
    directory: Path | str | None = None,
    memory_bytes: int | None = None,
    threads: int = 1,
) -> None:
    """Set an instance's limits and its spill directory for good; without one it never spills."""
    place = quoted_text("" if directory is None else str(directory))
    connection.execute(f"SET threads = {threads}")
    if memory_bytes is not None:
        connection.execute(f"SET memory_limit = '{memory_bytes}B'")
    connection.execute(f"SET max_temp_directory_size = '{SPILL_BYTES}B'")
    connection.execute(f"SET temp_directory = {place}")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def open_empty(
    directory: Path | None = None, *, memory_bytes: int | None = None, threads: int = 1
) -> Any:
    connection = open_unlocked(threads=threads)
    lock(connection, directory=directory, memory_bytes=memory_bytes, threads=threads)
    return connection


def failure_of(error: BaseException) -> Failure | None:
    """Classify an error of DuckDB or of this module; None for others."""
    message = str(error)
    if isinstance(error, duckdb.InterruptException) or message.startswith("INTERRUPT Error"):
        return Failure("interrupted", message)
    if isinstance(error, (duckdb.OutOfMemoryException, MemoryError)) or message.startswith(
        ("Out of Memory Error", "std::bad_alloc")
    ):
        return Failure("memory", message)
    if is_broken(error):
        return Failure("broken", message)
    if isinstance(error, (duckdb.Error, OSError, SqlError, ResourceLimit)):
        return Failure("sql", message)
    return None


_CTRL_C = re.compile(
    r"Invalid Input Error: [a-z ]+ registered as '[^']*' failed: .*KeyboardInterrupt", re.DOTALL
)
"""Not only the word: an error may quote a value."""


def is_ctrl_c(error: BaseException) -> bool:
    """Whether an error is what DuckDB made of a KeyboardInterrupt."""
    if isinstance(error, KeyboardInterrupt):
        return True
    message = str(error)
    if isinstance(error, RuntimeError):
        return message.lower().startswith("query interrupted")
    return isinstance(error, duckdb.InvalidInputException) and bool(_CTRL_C.match(message))


def hugeints_of(relation: Any) -> tuple[int, ...]:
    """Positions of the columns of a relation whose type Arrow lacks."""
    return tuple(
        position
        for position, type_ in enumerate(relation.types)
        if str(type_) in ("HUGEINT", "UHUGEINT")
    )


def check_types(relation: Any) -> None:
    """Refuse columns that Arrow gets as DuckDB's own bytes."""
    for name, type_ in zip(relation.columns, relation.types, strict=True):
        if _is_opaque(type_):
            raise duckdb.InvalidInputException(
                f"Invalid Input Error: results have no type {type_}; cast {name!r} to VARCHAR"
            )


_WIDE = re.compile(r"HUGEINT|\bTIME(_NS)?\b(?! ZONE)")
_DAY = {"us": 86_400_000_000, "ns": 86_400_000_000_000}
_NESTED = ("list", "array", "struct", "map")


def _parts(type_: Any) -> list[Any]:
    """The types in a nested one; not the size of an array."""
    return [part for _, part in type_.children if not isinstance(part, int)]


def _is_opaque(type_: Any) -> bool:
    if type_.id in _NESTED:
        return any(map(_is_opaque, _parts(type_)))
    return type_.id in ("bit", "bignum")


def wide_of(relation: Any) -> tuple[int, ...]:
    """Positions of the columns that may have values which Arrow cannot hold."""
    return tuple(
        at
        for at, type_ in enumerate(relation.types)
        if _WIDE.search(str(type_)) or (type_.id in _NESTED and "INTERVAL" in str(type_))
    )


def _leaves(values: pa.Array, type_: Any) -> Iterator[tuple[pa.Array, str]]:
    """The plain columns in one, with their types in the executor."""
    if type_.id not in _NESTED:
        yield values, type_.id
        return
    if type_.id == "map":
        below = [values.keys, values.items]
    else:
        below = values.flatten() if type_.id == "struct" else [values.flatten()]
    for part, kind in zip(below, _parts(type_), strict=True):
        yield from _leaves(part, kind)


def check_wide(relation: Any, wide: Sequence[int], batch: pa.RecordBatch) -> None:
    """Refuse integers beyond DECIMAL(38, 0), the time 24:00, and intervals in nested columns that
    wrap around.
    """
    for at in wide:
        for values, kind in _leaves(batch.column(at), relation.types[at]):
            if kind == "interval":
                only_durations(values)
            elif kind.endswith("hugeint"):
                _check_hugeints(values, kind, batch.schema.names[at])
            elif pa.types.is_time64(values.type):
                latest = pc.max(values.cast(pa.int64())).as_py()
                if latest is not None and latest >= _DAY[values.type.unit]:
                    raise duckdb.OutOfRangeException(
                        "Out of Range Error: results have no time 24:00:00; cast "
                        f"{batch.schema.names[at]!r} to VARCHAR"
                    )


def _check_hugeints(values: pa.Array, kind: str, name: str) -> None:
    low, high = (bound.as_py() for bound in pc.min_max(values).values())
    # no arithmetic: it would round to the 28 digits of the context
    if low is not None and (low <= -(10**38) or high >= 10**38 or (kind[0] == "u" and low < 0)):
        raise duckdb.OutOfRangeException(
            f"Out of Range Error: a value of column {name!r} has more than 38 digits; cast it to "
            "DOUBLE or VARCHAR"
        )


def jsons_of(relation: Any) -> tuple[int, ...]:
    """Positions of the JSON columns of a relation, which arrive as text."""
    return tuple(at for at, type_ in enumerate(relation.types) if str(type_) == "JSON")


def is_broken(error: BaseException) -> bool:
    return isinstance(error, (duckdb.FatalException, duckdb.InternalException)) or str(
        error
    ).startswith(("FATAL Error", "INTERNAL Error"))


def admit(cursor: Any, sql: str, relations: Collection[str] = ()) -> None:
    """Raise SqlError for a text that is not one SELECT over these relations; runs nothing."""
    names = sorted(relations)
    digest = hashlib.blake2b("\0".join([sql, *names]).encode(), digest_size=16).digest()
    if _admitted.get(digest):
        return
    written = _written(sql)
    ((document,),) = cursor.execute(_READ, [sql]).fetchall()
    try:
        parsed = json.loads(document)
    except RecursionError:
        raise SqlError("the statement is nested too deeply") from None
    if parsed.get("error"):
        statements = cursor.extract_statements(sql)  # raises with a position for a syntax error
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise SqlError("the executor runs one SELECT at a time")
        raise SqlError(str(parsed.get("error_message") or "the query cannot be read"))
    _check(parsed["statements"], frozenset(name.lower() for name in names), written)
    _admitted.put(digest, True)


class _Written(NamedTuple):
    names: frozenset[str]
    texts: frozenset[str]


_LEXEME = re.compile(
    r"""'(?P<text>[^']*+(?:''[^']*+)*+)'|"(?P<name>[^"]*+(?:""[^"]*+)*+)"|\s++
    |\$\w++|\#\d++|(?:\d++(?:\.\d*+)?+|\.\d++)(?:[eE][+-]?\d++)?+(?!\w)|(?P<word>[^\W\d]\w*+)
    |(?!--|/\*)[-+*/%=<>!&|@~^(),.:\[\]{}?]""",
    re.VERBOSE,
)


def _written(sql: str) -> _Written:
    """Tokenise a text by the rules of ``sql.rendering``; raise for what it never writes."""
    names, texts, position = set(), set(), 0
    while position < len(sql):
        lexeme = _LEXEME.match(sql, position)
        if lexeme is None:
            raise SqlError(f"the executor reads no {sql[position : position + 10]!r}")
        kind = lexeme.lastgroup
        if kind == "text":
            texts.add(lexeme["text"].replace("''", "'"))
        elif kind == "name":
            names.add(lexeme["name"].replace('""', '"').lower())
        elif kind == "word" and not _OURS.fullmatch(lexeme["word"]):
            _allow(lexeme["word"].upper(), UNQUOTED, "word")
        position = lexeme.end()
    return _Written(frozenset(names), frozenset(texts))


def _check(statements: Any, relations: frozenset[str], written: _Written) -> None:
    if len(statements) != 1:
        raise SqlError("the executor runs one SELECT at a time")
    allowed = set(relations)
    waiting: list[Any] = [statements]
    nodes: list[dict[str, Any]] = []
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting.extend(part)
        elif isinstance(part, dict):
            nodes.append(part)
            waiting.extend(part.values())
            for entry in (part.get("cte_map") or {}).get("map") or ():
                allowed.add(str(entry["key"]).lower())
    for node in nodes:
        kind = node.get("type")
        if "from_table" in node or "cte_map" in node:
            _allow(kind, _QUERIES, "query")
        if "from_table" in node:
            _allow((node["from_table"] or {}).get("type", "EMPTY"), _FROM, "item of FROM")
        if kind == "BASE_TABLE":
            _allow(str(node.get("table_name")).lower(), allowed, "relation")
        if kind == "TABLE_FUNCTION":
            _allow(str(node["function"].get("function_name")).lower(), TABLE_FUNCTIONS, "relation")
        if node.get("class") in _CALLS:
            name = str(node.get("function_name")).lower()
            if not node.get("is_operator"):
                _allow(name, FUNCTIONS | MADE_BY_DUCKDB, "function")
        if node.get("class") == "COLUMN_REF":
            for part in node.get("column_names") or ():
                name = str(part).lower()
                if name not in written.names and not _OURS.fullmatch(name):
                    _allow(name, _MOMENTS, "column")
        literal = node.get("literal")
        if isinstance(literal, dict) and literal.get("kind") == "STRING":
            value = literal.get("text", "")
            if value.lower() not in written.names:  # a field: (x)."a"
                _allow(value, written.texts, "text")
        if node.get("class") == "COLLATE":
            for step in str(node.get("collation")).upper().split("."):
                _allow(step, COLLATIONS, "collation")
        for key in ("schema", "schema_name", "catalog", "catalog_name"):
            if node.get(key) and (key, node[key]) != ("schema", "main"):
                raise SqlError(f"the executor names no schema, found {node[key]!r}")


def _allow(name: Any, known: Collection[str], what: str) -> None:
    if name not in known:
        raise SqlError(f"the executor knows no {what} {name!r}")

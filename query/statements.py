"""Statements that are not queries: DDL, SHOW, DESCRIBE, INSERT.

Purpose
    :func:`execute` carries a parsed statement out against the catalog and answers with a small
    result: a status line for changes, a table for SHOW and DESCRIBE, a count for INSERT.

Guarantee
    A statement that would change the store is refused before it does anything when the store is
    open for reading or the caller asked for reading only.  INSERT is one atomic append.

Limits
    INSERT ... SELECT gathers its rows in memory first, because it appends all of them or none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from ..errors import AttributeNotFound, ReadOnlyStore, UnsupportedType
from ..schema import StreamSchema, time_text
from ..suggestion import did_you_mean
from .contract.access import Access
from .contract.cancellation import QueryControl
from .contract.explanation import Plan
from .contract.result import Result
from .insertion import Insertion
from .live_statements import LIVE_CHANGES, LIVE_READS, execute_live
from .sql.dialect import (
    AlterStream,
    CreateIndexOn,
    CreateLive,
    CreateStream,
    DescribeStream,
    DropIndexOn,
    DropStream,
    Explain,
    ShowIndexes,
    ShowStreams,
    error_at,
    position_of,
)
from .sql.sql_types import arrow_type, sql_type
from .sql.stream_names import StreamNames

if TYPE_CHECKING:
    from .engine import QueryEngine

__all__ = ["declared", "execute", "query_of", "result_of_plan"]

_QUERIES = (exp.Query, exp.Values)
_READING = (ShowStreams, ShowIndexes, DescribeStream, *LIVE_READS)
_OPTIONS = (
    "retention",
    "codec",
    "leaf_bytes",
    "segment_bytes",
    "durability",
    "interval_ms",
    "late_events_max",
    "kept_bytes_max",
    "compaction",
)
_INDEX_OPTIONS = ("lag_events_max",)


def execute(
    engine: QueryEngine,
    tree: Any,
    text: str,
    params: Any,
    control: QueryControl,
    read_only: bool,
) -> Result:
    """Carry out a statement that is not a query.

    Raises
    ------
    SqlError, ReadOnlyStore, StreamNotFound, StreamExists, ...
    """
    if not isinstance(tree, _READING):
        if read_only:
            raise ReadOnlyStore(
                "only queries may run here; send a statement that changes the store the way that "
                "allows it (POST instead of GET)"
            )
        if engine.catalog.mode == "r":
            raise ReadOnlyStore(
                "the store was opened with mode='r'; open it with mode='rw' to change it"
            )
    if params and not isinstance(tree, (exp.Insert, DescribeStream)):
        raise error_at(text, 0, "only queries and INSERT take parameters")
    if isinstance(tree, exp.Insert):
        return _insert(engine, tree, text, params, control)
    if isinstance(tree, CreateStream):
        return _create(engine, tree, text)
    if isinstance(tree, DropStream):
        known = StreamNames(engine.catalog.streams())
        if known.find(tree.this.name) is None and tree.args.get("exists"):
            return _status(f"there is no stream {tree.this.name}")
        name = _stream(engine, tree.this, text)
        engine.catalog.drop_stream(name)
        return _status(f"dropped stream {name}")
    if isinstance(tree, AlterStream):
        name = _stream(engine, tree.this, text)
        column = tree.args["column"]
        if column.meta.get("not_null"):
            raise error_at(
                text, position_of(column), "an added column is nullable: older events lack it"
            )
        engine.catalog.add_column(name, column.this.name, arrow_type(column.args["kind"], text))
        return _status(f"added column {column.this.name} to stream {name}")
    if isinstance(tree, (*LIVE_CHANGES, *LIVE_READS)):
        return execute_live(engine, tree, text)
    if isinstance(tree, ShowStreams):
        return _show_streams(engine)
    if isinstance(tree, ShowIndexes):
        return _show_indexes(engine, tree, text)
    if isinstance(tree, DescribeStream):
        return _describe(engine, tree, text, params, control)
    if isinstance(tree, (CreateIndexOn, DropIndexOn)):
        return _index(engine, tree, text)
    raise error_at(text, 0, f"{type(tree).__name__} cannot be run")


def declared(tree: Any) -> Access:
    """What the statement itself says that it does; streams that it reads are not looked for."""
    kind = type(tree).__name__
    if isinstance(tree, exp.Insert):
        target = tree.this.find(exp.Table) or tree.this
        return Access(kind, "write", str(target.name))
    if isinstance(tree, CreateStream):
        return Access(kind, "write", str(tree.this.name))
    if isinstance(tree, (Explain, *_QUERIES, *_READING)):
        named = tree.this if isinstance(tree, (DescribeStream, ShowIndexes)) else None
        if isinstance(named, exp.Identifier):
            return Access(kind, "read", None, lambda: frozenset((str(named.name),)))
        return Access(kind, "read")
    return Access(kind, "admin", str(tree.this.name))


def query_of(tree: Any) -> Any:
    """The query that a statement runs or describes, as it is prepared; None when there is none."""
    if isinstance(tree, _QUERIES):
        return tree
    if isinstance(tree, CreateLive):
        return tree.args["query"].copy()
    if isinstance(tree, (Explain, DescribeStream)):
        return tree.this.copy() if isinstance(tree.this, _QUERIES) else None
    if isinstance(tree, exp.Insert) and tree.expression is not None:
        source = tree.expression.copy()
        if isinstance(source, exp.Values):
            source.set("alias", None)
            return exp.select("*").from_(source)
        return exp.select("*").from_(source.subquery("q"))
    return None


def result_of_plan(plan: Plan) -> Result:
    """The answer to EXPLAIN: one line of the tree a row."""
    table = pa.table({"plan": pa.array(str(plan).splitlines(), pa.string())})
    return Result.of_table(table, plan)


def _status(message: str) -> Result:
    return Result.of_table(pa.table({"status": [message]}))


def _stream(engine: QueryEngine, node: Any, text: str) -> str:
    names = StreamNames(engine.catalog.streams())
    found = names.find(node.name)
    if found is None:
        raise names.missing(node, text)
    return found


def _attribute(schema: StreamSchema, node: Any, text: str) -> str:
    try:
        return schema.resolve(node.name)
    except AttributeNotFound as error:
        raise error_at(text, position_of(node), str(error)) from None


# ------------------------------------------------------------------------------- DDL


def _create(engine: QueryEngine, tree: Any, text: str) -> Result:
    name = tree.this.name
    time = tree.args["time"]
    fields = []
    for column in tree.args["columns"]:
        type_ = arrow_type(column.args["kind"], text)
        fields.append(pa.field(column.this.name, type_, not column.meta.get("not_null")))
    names = [f.name for f in fields]
    if time.name not in names:
        folded = [n for n in names if n.lower() == time.name.lower()]
        if not folded:
            raise error_at(
                text,
                position_of(time),
                f"the time attribute {time.name!r} is not among the columns {', '.join(names)}",
            )
    time_name = time.name if time.name in names else folded[0]
    try:
        schema = StreamSchema(pa.schema(fields), time_name)
    except UnsupportedType as error:
        raise error_at(text, position_of(time), str(error)) from None
    settings = _settings(tree, text, _OPTIONS)
    retention = settings.pop("retention", None)
    codec = settings.pop("codec", "lz4")
    before = name in engine.catalog.streams()
    engine.catalog.create_stream(
        name,
        schema,
        retention=retention,
        codec=codec,
        if_not_exists=bool(tree.args.get("exists")),
        options=settings,
    )
    return _status(f"stream {name} exists" if before else f"created stream {name}")


def _settings(tree: Any, text: str, known: tuple[str, ...]) -> dict[str, Any]:
    """What stands behind WITH."""
    settings: dict[str, Any] = {}
    for option in tree.args.get("options") or ():
        key = option.this.name.lower()
        if key not in known:
            hint = did_you_mean(key, known, quoted=False)
            raise error_at(
                text,
                position_of(option),
                f"no option {key!r}{hint} (there {'are' if len(known) > 1 else 'is'} "
                f"{', '.join(known)})",
            )
        settings[key] = _option(option.expression)
    return settings


def _option(node: Any) -> Any:
    if isinstance(node, exp.Literal) and not node.is_string:
        return int(node.this) if str(node.this).isdigit() else node.this
    return node.name


def _index(engine: QueryEngine, tree: Any, text: str) -> Result:
    name = _stream(engine, tree.this, text)
    attribute = _attribute(engine.catalog.stream_schema(name), tree.args["column"], text)
    present = {entry.get("attribute") for entry in engine.catalog.list_indexes(name)}
    exists = bool(tree.args.get("exists"))
    if isinstance(tree, CreateIndexOn):
        limit = _settings(tree, text, _INDEX_OPTIONS).get("lag_events_max")
        if limit is not None and not isinstance(limit, int):
            raise error_at(
                text, position_of(tree.args["options"][0]), "lag_events_max is a number of events"
            )
        if exists and attribute in present:
            return _status(f"index on {name} ({attribute}) exists")
        engine.catalog.create_index(name, attribute, lag_events_max=limit)
        return _status(f"created index on {name} ({attribute})")
    if exists and attribute not in present:
        return _status(f"there is no index on {name} ({attribute})")
    engine.catalog.drop_index(name, attribute)
    return _status(f"dropped index on {name} ({attribute})")


# ---------------------------------------------------------------------------- looking


def _show_streams(engine: QueryEngine) -> Result:
    rows: list[dict[str, Any]] = []
    damaged = engine.catalog.damaged()
    for name in engine.catalog.streams():
        if name in damaged:
            rows.append({"stream": name, "damage": damaged[name]})
            continue
        schema = engine.catalog.stream_schema(name)
        snapshot = engine.catalog.snapshot(name)
        first, last = snapshot.time_range or (None, None)
        rows.append(
            {
                "stream": name,
                "time": schema.time,
                "events": snapshot.count,
                "first": _shown(schema, first),
                "last": _shown(schema, last),
            }
        )
    schema_out = pa.schema(
        [
            ("stream", pa.string()),
            ("time", pa.string()),
            ("events", pa.int64()),
            ("first", pa.string()),
            ("last", pa.string()),
            ("damage", pa.string()),
        ]
    )
    return Result.of_table(pa.Table.from_pylist(rows, schema_out))


def _shown(schema: StreamSchema, ticks: int | None) -> str | None:
    """A time as SHOW STREAMS has it."""
    if ticks is None:
        return None
    value = schema.from_ticks(ticks)
    return time_text(ticks, schema.time_type) if isinstance(value, pa.Scalar) else str(value)


def _show_indexes(engine: QueryEngine, tree: Any, text: str) -> Result:
    damaged = engine.catalog.damaged()
    names = [name for name in engine.catalog.streams() if name not in damaged]
    if tree.this is not None:
        names = [_stream(engine, tree.this, text)]
    rows = [
        {
            "stream": name,
            "attribute": str(entry.get("attribute")),
            "state": str(entry.get("state", "")),
            "covered": float(entry.get("covered", 0.0)),
            "runs": int(entry.get("runs", 0)),
            "bytes": int(entry.get("bytes", 0)),
            "problem": entry.get("problem"),
        }
        for name in names
        for entry in engine.catalog.list_indexes(name)
    ]
    schema = pa.schema(
        [
            ("stream", pa.string()),
            ("attribute", pa.string()),
            ("state", pa.string()),
            ("covered", pa.float64()),
            ("runs", pa.int64()),
            ("bytes", pa.int64()),
            ("problem", pa.string()),
        ]
    )
    return Result.of_table(pa.Table.from_pylist(rows, schema))


def _describe(
    engine: QueryEngine, tree: Any, text: str, params: Any, control: QueryControl
) -> Result:
    if isinstance(tree.this, exp.Query):
        query = exp.select("*").from_(tree.this.copy().subquery("q")).limit(0)
        found = engine.query(query, text, params, control)
        try:
            fields = list(found.schema)
        finally:
            found.close()
        columns = {
            "column_name": [f.name for f in fields],
            "column_type": [sql_type(f.type) for f in fields],
        }
        return Result.of_table(pa.table(columns))
    name = _stream(engine, tree.this, text)
    schema = engine.catalog.stream_schema(name)
    indexed = {entry.get("attribute") for entry in engine.catalog.list_indexes(name)}
    table = pa.table(
        {
            "column_name": [a.name for a in schema.attributes],
            "column_type": [sql_type(a.type) for a in schema.attributes],
            "null": ["YES" if a.nullable else "NO" for a in schema.attributes],
            "key": [
                "TIME" if a.name == schema.time else "INDEX" if a.name in indexed else ""
                for a in schema.attributes
            ],
        }
    )
    return Result.of_table(table)


# ------------------------------------------------------------------------------ INSERT


def _insert(
    engine: QueryEngine, tree: Any, text: str, params: Any, control: QueryControl
) -> Result:
    for key in (
        "conflict",
        "returning",
        "overwrite",
        "where",
        "partition",
        "alternative",
        "exists",
    ):
        if tree.args.get(key):
            raise error_at(
                text,
                position_of(tree),
                f"INSERT INTO s [(a, ...)] VALUES ... | SELECT ...: no {key.upper()}",
            )
    target = tree.this
    columns = None
    if isinstance(target, exp.Schema):
        columns = list(target.expressions)
        target = target.this
    if not isinstance(target, exp.Table) or target.args.get("db"):
        raise error_at(text, position_of(tree), "expected the name of a stream after INSERT INTO")
    name = _stream(engine, target.this, text)
    schema = engine.catalog.stream_schema(name)
    source = tree.expression
    if tree.args.get("default") or source is None:
        raise error_at(text, len(text), "expected VALUES or a query")
    insertion = Insertion(engine, name, schema, source, text, params, control)
    given = insertion.given()
    if tree.args.get("by_name"):
        names = [_attribute(schema, exp.to_identifier(column), text) for column in given.names]
    else:
        names = _targets(schema, columns, text)
    if len(given) != len(names):
        raise error_at(
            text,
            0,
            f"INSERT gives {len(given)} columns for the {len(names)} of {', '.join(names)}",
        )
    added = engine.catalog.append_arrow(name, insertion.rows(names, given))
    return Result.of_table(pa.table({"count": pa.array([added], pa.int64())}))


def _targets(schema: StreamSchema, columns: list[Any] | None, text: str) -> list[str]:
    if columns is None:
        return schema.names
    names = [_attribute(schema, column, text) for column in columns]
    for position, column in enumerate(columns):
        if names[position] in names[:position]:
            raise error_at(text, position_of(column), f"column {column.name!r} is named twice")
    return names

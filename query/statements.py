"""Statements that are not queries: DDL, SHOW, DESCRIBE, INSERT, DELETE, UPDATE.

A change is rejected before any effect if the store or the caller is read-only.  INSERT is one
atomic append, so its rows are gathered in memory; DELETE and UPDATE are one commit each.

CREATE STREAM ... AS SELECT makes a stream from the rows of a query, atomically.  Columns have the
query's names and types, all nullable but the time.  Memory is bounded by a few batches; rows out of
time order are written twice.

Views share one namespace with streams.  A stored view could be run when it was created, and reads
neither itself nor a frame.  ``chronicle.live`` checks of live queries what goes beyond names and
constants.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from ..core.suggestion import did_you_mean
from ..errors import (
    AttributeNotFound,
    InvalidArgument,
    InvalidData,
    ReadOnlyStore,
    SchemaMismatch,
    SqlError,
    StreamExists,
    UnsupportedType,
)
from ..indexes.index_key import index_key
from ..schema import StreamSchema
from ..store.views import StoredView
from .binding.scope import StreamNames
from .binding.views import Expansion
from .conditions.constants import Folder, Kind
from .contract.access import Access
from .contract.cancellation import QueryControl
from .contract.catalog import LIVE_QUERIES, SYSTEM_TABLES, Given, LiveRequest, LiveStatements
from .contract.explanation import Plan
from .contract.result import Result
from .modification import Deletion, Insertion, Update, default_of
from .relations import index_rows, live_rows, stream_rows
from .sql.dialect import error_at, error_on, position_of, to_text
from .sql.sql_types import arrow_type, sql_type
from .sql.statement_clauses import (
    AlterLive,
    AlterStream,
    CreateIndexOn,
    CreateLive,
    CreateRollup,
    CreateStream,
    CreateView,
    DeleteEvents,
    DescribeLive,
    DescribeRollup,
    DescribeStream,
    DropIndexOn,
    DropLive,
    DropRollup,
    DropStream,
    DropView,
    Explain,
    ExplainLive,
    ShowCreateView,
    ShowIndexes,
    ShowLive,
    ShowRollups,
    ShowStreams,
    ShowViews,
    UpdateEvents,
)

if TYPE_CHECKING:
    from .engine import QueryEngine


def create_as(
    engine: QueryEngine,
    tree: Any,
    text: str,
    params: Any,
    control: QueryControl,
    settings: Mapping[str, Any],
) -> tuple[int, int]:
    """Create the stream of a query, or raise and create none; returns events and duplicates."""
    query = tree.args["query"]
    at = position_of(query)
    result = engine.query(query.copy(), text, params, control)
    rows = 0

    def taken() -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for batch in result.batches():
            rows += batch.num_rows
            yield batch

    options = dict(settings)
    try:
        schema = _schema(tree, result.schema, text)
        made = engine.catalog.changes.create_stream(
            tree.this.name,
            schema,
            retention=options.pop("retention", None),
            codec=options.pop("codec", "lz4"),
            options=options,
            events=taken(),
        )
    except (SchemaMismatch, UnsupportedType) as error:
        raise error_at(text, at, f"{error}; say CAST(... AS ...) in the query") from None
    except InvalidData as error:
        raise error_at(text, at, f"{error} of the query's result") from None
    finally:
        result.close()
    stored = int(made.count)
    return stored, rows - stored


def require_different_names(names: Sequence[str], text: str, at: int | None) -> None:
    """Raise SqlError for query columns whose names differ at most in case."""
    names_before: dict[str, str] = {}
    for name in names:
        other = names_before.get(name.lower())
        if other is None:
            names_before[name.lower()] = name
            continue
        both = f"two columns {name!r}" if other == name else f"columns {other!r} and {name!r}"
        why = "" if other == name else ", which differ in case only"
        raise error_at(text, at, f"the query gives {both}{why}: name them with AS")


def _schema(tree: Any, given: pa.Schema, text: str) -> StreamSchema:
    at = position_of(tree.args["query"])
    require_different_names(given.names, text, at)
    folded = [name.lower() for name in given.names]
    time = tree.args.get("time")
    if time is not None:
        if time.name.lower() not in folded:
            raise error_on(
                text,
                time,
                f"the time attribute {time.name!r} is not among the columns of the query: "
                f"{', '.join(given.names)}",
            )
        name = given.names[folded.index(time.name.lower())]
    else:
        times = [field.name for field in given if pa.types.is_timestamp(field.type)]
        if len(times) != 1:
            listed = f"there are {', '.join(times)}" if times else "no column is a TIMESTAMP"
            raise error_on(
                text,
                tree.this,
                f"say which column is the time, TIMESTAMP BY t before AS: {listed}",
            )
        name = times[0]
    fields = [pa.field(field.name, field.type, field.name != name) for field in given]
    return StreamSchema(pa.schema(fields), name)


VIEW_CHANGES = (CreateView, DropView)
VIEW_READS = (ShowViews, ShowCreateView)


def view_named(engine: QueryEngine, name: str) -> StoredView | None:
    views = engine.catalog.views()
    view = StreamNames(list(views)).find(name)
    return None if view is None else views[view]


def execute_view(engine: QueryEngine, tree: Any, text: str, control: QueryControl) -> Result:
    if isinstance(tree, ShowViews):
        views = engine.catalog.views().values()
        columns = {"view": [v.name for v in views], "query": [v.sql for v in views]}
        kinds = pa.schema([("view", pa.string()), ("query", pa.string())])
        return Result.of_table(pa.table(columns, schema=kinds))
    name = tree.this.name
    view = view_named(engine, name)
    if isinstance(tree, CreateView):
        return _create_view(engine, tree, text, control, view)
    if view is None:
        if tree.args.get("exists"):
            return _status(f"there is no view {name}")
        raise StreamNames(list(engine.catalog.views())).missing(tree.this, text, "view")
    if isinstance(tree, ShowCreateView):
        made = f"CREATE VIEW {exp.to_identifier(view.name, quoted=True).sql()} AS {view.sql}"
        return Result.of_table(pa.table({"statement": [made]}))
    engine.catalog.changes.drop_view(view.name, cascade=bool(tree.args.get("cascade")))
    return _status(f"dropped view {view.name}")


def _status(message: str) -> Result:
    return Result.of_table(pa.table({"status": [message]}))


def _create_view(
    engine: QueryEngine, tree: Any, text: str, control: QueryControl, known: StoredView | None
) -> Result:
    name = tree.this.name if known is None else known.name
    if known is not None and not tree.args.get("replace"):
        if tree.args.get("exists"):
            return _status(f"view {name} exists")
        raise StreamExists(f"there is a view {name!r} already; CREATE OR REPLACE VIEW changes it")
    if StreamNames(engine.catalog.streams()).find(name) is not None:
        raise StreamExists(f"there is a stream {name!r} already; choose another name")
    query = tree.args["query"]
    begin = int(tree.meta["query"])
    for placeholder in query.find_all(exp.Placeholder, exp.Parameter):
        raise error_on(text, placeholder, "a view takes no parameters")
    expansion = Expansion(text, engine.catalog.views(), within=(name,))
    expanded = expansion.into(query.copy())
    try:
        outputs = engine.prepared(expanded.copy(), text).bound.outputs or ()
        names = [output.name for output in outputs if output.name is not None]
        require_different_names(names, text, begin)
        probe = exp.select("*").from_(expanded.subquery("q")).limit(0)
        result = engine.query(probe, text, None, control)
    except SqlError as error:
        raise expansion.explained(error) from None
    try:
        columns = result.schema
    finally:
        result.close()
    sources = _sources(engine, expansion)
    sql = text[begin : int(tree.meta["end"])]
    view = StoredView(name, sql, sources, columns.remove_metadata())
    engine.catalog.changes.create_view(view, replace=known is not None)
    return _status(f"{'created' if known is None else 'replaced'} view {name}")


def _sources(engine: QueryEngine, expansion: Expansion) -> tuple[str, ...]:
    available = StreamNames([*engine.catalog.views(), *engine.catalog.streams()])
    named = {available.find(name) for name in expansion.named}
    return tuple(sorted(name for name in named if name is not None))


LIVE_CHANGES = (CreateLive, DropLive, AlterLive)
LIVE_READS = (ShowLive, DescribeLive, ExplainLive, ShowRollups)
ROLLUPS = pa.schema(
    [
        ("name", pa.string()), ("stream", pa.string()), ("window", pa.string()),
        ("columns", pa.string()), ("state", pa.string()), ("watermark", pa.string()),
        ("lag_events", pa.int64()), ("rows", pa.int64()), ("late", pa.int64()),
        ("retention", pa.string()), ("error", pa.string()),
    ]
)  # fmt: skip


def execute_live(engine: QueryEngine, tree: Any, text: str) -> Result:
    live = engine.catalog.live_statements
    seen = set(engine.catalog.streams())
    names = [name for name in live.names() if live.sink_of(name) in seen]
    if isinstance(tree, CreateLive):
        return _create_live(engine, live, tree, text)
    if isinstance(tree, ShowLive):
        rows = list(live_rows(engine.catalog))
        return Result.of_table(pa.Table.from_pylist(rows, LIVE_QUERIES))
    rollups = [name for name in live.rollups() if name in names]
    if isinstance(tree, ShowRollups):
        shown = [live.rollup_row(name) for name in rollups]
        return Result.of_table(pa.Table.from_pylist(shown, ROLLUPS))
    rolled = isinstance(tree, DropRollup | DescribeRollup)
    what = "roll-up" if rolled else "live query"
    name = _name(rollups if rolled else names, tree, text, what)
    if isinstance(tree, DropLive):
        if name is None:
            return _status(f"there is no {what} {tree.this.name}")
        if name in rollups and not rolled:
            raise error_on(text, tree.this, f"{name} is a roll-up: DROP ROLLUP {name}")
        live.drop(name, bool(tree.args.get("keep")))
        return _status(f"dropped {what} {name}")
    assert name is not None
    if isinstance(tree, AlterLive):
        return _alter_live(engine, live, name, tree, text)
    if isinstance(tree, DescribeLive):
        pairs = live.describe(name)
        columns = {"property": [p for p, _ in pairs], "value": [v for _, v in pairs]}
        return Result.of_table(pa.table(columns))
    return Result.of_table(pa.table({"plan": pa.array(live.explain(name), pa.string())}))


def _name(names: list[str], tree: Any, text: str, what: str) -> str | None:
    wanted = str(tree.this.name)
    if wanted in names:
        return wanted
    existing = {name.lower(): name for name in names}.get(wanted.lower())
    if existing is None and not tree.args.get("exists"):
        hint = did_you_mean(wanted, names, quoted=False)
        raise error_on(text, tree.this, f"no {what} {wanted!r}{hint}")
    return existing


def _create_live(engine: QueryEngine, live: LiveStatements, tree: Any, text: str) -> Result:
    args = tree.args
    begin = int(tree.meta["query"])
    start, idle = args.get("start"), args.get("idle")
    request = LiveRequest(
        str(tree.this.name),
        args["query"],
        text,
        text[begin:].strip().removesuffix(";").rstrip(),
        into=None if args.get("into") is None else str(args["into"].name),
        start=start if isinstance(start, str) else _given(engine, start, text) or "first",
        delay=_given(engine, args.get("delay"), text),
        idle=idle if isinstance(idle, str) else _given(engine, idle, text),
        late=args.get("late") or "correct",
        correct_for=_given(engine, args.get("correct_for"), text),
        every=_given(engine, args.get("every"), text),
        options={
            option.this.name.lower(): Given(_live_option(option.expression), at=position_of(option))
            for option in args.get("options") or ()
        },
        exists_ok=bool(args.get("exists")),
        at=position_of(tree.this),
        rollup=isinstance(tree, CreateRollup),
    )
    made, what = live.create(request), "roll-up" if request.rollup else "live query"
    return _status(f"{f'created {what}' if made else f'{what} exists:'} {request.name}")


def _live_option(node: Any) -> Any:
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    name = str(node.name)
    number = getattr(node, "is_string", True) is False
    return int(name) if number and name.isdigit() else name


def _given(engine: QueryEngine, node: Any, text: str) -> Given | None:
    if node is None:
        return None
    at = position_of(node)
    executor = engine.executor
    folder = Folder(
        {}, dt.datetime.now(dt.timezone.utc),
        lambda part: executor.constant(to_text(part, text), {}, QueryControl()),
    )  # fmt: skip
    try:
        constant = folder.fold(node)
    except SqlError as error:
        raise error_at(text, at, error.reason) from None
    if constant.kind is Kind.INTERVAL:
        return Given(None, int(constant.value), at)
    if constant.kind is Kind.TIME:
        return Given(pa.scalar(int(constant.value), pa.timestamp("ns")), at=at)
    if constant.kind is Kind.EXACT and constant.value == int(constant.value):
        return Given(int(constant.value), at=at)
    if constant.kind is Kind.TEXT:
        return Given(str(constant.value), at=at)
    raise error_at(text, at, "expected a constant: a time, an interval or an integer")


def _alter_live(
    engine: QueryEngine, live: LiveStatements, name: str, tree: Any, text: str
) -> Result:
    action = str(tree.args["action"])
    if action == "pause":
        live.pause(name)
    elif action == "resume":
        live.resume(name)
    else:
        bounds = [_given(engine, tree.args.get(key), text) for key in ("start", "end")]
        live.refresh(name, *(None if bound is None else bound.value for bound in bounds))
    done = {"pause": "paused", "resume": "resumed", "refresh": "refreshed"}[action]
    return _status(f"{done} live query {name}")


_QUERIES = (exp.Query, exp.Values)
_READING = (ShowStreams, ShowIndexes, DescribeStream, *LIVE_READS, *VIEW_READS)
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
    "unique",
    "within",
    "move_after",
    "keep_local_bytes",
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
    taking = (exp.Insert, DeleteEvents, UpdateEvents, DescribeStream)
    if params and not isinstance(tree, taking) and not tree.args.get("query"):
        raise error_at(text, 0, "only queries, INSERT, UPDATE and DELETE take parameters")
    if isinstance(tree, exp.Insert):
        return _insert(engine, tree, text, params, control)
    if isinstance(tree, DeleteEvents):
        return _delete(engine, tree, text, params, control)
    if isinstance(tree, UpdateEvents):
        return _update(engine, tree, text, params, control)
    if isinstance(tree, CreateStream):
        return _create(engine, tree, text, params, control)
    if isinstance(tree, DropStream):
        streams = StreamNames(engine.catalog.streams())
        if streams.find(tree.this.name) is None and tree.args.get("exists"):
            return _status(f"there is no stream {tree.this.name}")
        name = _stream(engine, tree.this, text)
        engine.catalog.changes.drop_stream(name, cascade=bool(tree.args.get("cascade")))
        return _status(f"dropped stream {name}")
    if isinstance(tree, AlterStream):
        return _alter(engine, tree, text)
    if isinstance(tree, (*LIVE_CHANGES, *LIVE_READS)):
        return execute_live(engine, tree, text)
    if isinstance(tree, (*VIEW_CHANGES, *VIEW_READS)):
        return execute_view(engine, tree, text, control)
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
    """The access that the statement itself declares, without the streams that its query reads."""
    kind = type(tree).__name__
    if isinstance(tree, exp.Insert):
        target = tree.this.find(exp.Table) or tree.this
        return Access(kind, "write", str(target.name))
    if isinstance(tree, (CreateStream, CreateView)):
        scope = "admin" if tree.args.get("replace") else "write"
        return Access(kind, scope, str(tree.this.name))
    if isinstance(tree, (Explain, *_QUERIES, *_READING)):
        named = tree.this if isinstance(tree, (DescribeStream, ShowIndexes)) else None
        if isinstance(named, exp.Identifier):
            return Access(kind, "read", None, lambda: frozenset((str(named.name),)))
        return Access(kind, "read")
    to = tree.args.get("to") if tree.args.get("action") == "rename" else None
    renamed = None if to is None else str(to.name)
    return Access(kind, "admin", str(tree.this.name), renamed=renamed)


def query_of(tree: Any) -> Any:
    """The query that a statement runs or describes, as prepared; None if there is none."""
    if isinstance(tree, _QUERIES):
        return tree
    if (
        isinstance(tree, (CreateLive, CreateStream, CreateView))
        and tree.args.get("query") is not None
    ):
        return tree.args["query"].copy()
    if isinstance(tree, (Explain, DescribeStream)):
        return tree.this.copy() if isinstance(tree.this, _QUERIES) else None
    if isinstance(tree, exp.Insert) and tree.expression is not None:
        return _all_rows(tree.expression.copy())
    return None


def _all_rows(source: Any) -> Any:
    if isinstance(source, exp.Values):
        source.set("alias", None)
        return exp.select("*").from_(source)
    return exp.select("*").from_(source.subquery("q"))


def result_of_plan(plan: Plan) -> Result:
    table = pa.table({"plan": pa.array(str(plan).splitlines(), pa.string())})
    return Result.of_table(table, plan)


def _stream(engine: QueryEngine, node: Any, text: str) -> str:
    names = StreamNames(engine.catalog.streams())
    name = names.find(node.name)
    if name is not None:
        return name
    view = view_named(engine, node.name)
    if view is not None:
        what = f"{view.name!r} is a view: what it shows is changed in the streams that it reads"
        raise error_on(text, node, what)
    raise names.missing(node, text)


def _attribute(schema: StreamSchema, node: Any, text: str) -> str:
    try:
        if isinstance(node, exp.Var):  # more than the name of one
            return index_key(node.name, schema).name
        return schema.resolve(node.name)
    except (AttributeNotFound, InvalidArgument, UnsupportedType) as error:
        raise error_on(text, node, str(error)) from None


# ------------------------------------------------------------------------------- DDL


def _create(
    engine: QueryEngine, tree: Any, text: str, params: Any, control: QueryControl
) -> Result:
    name = tree.this.name
    if tree.args.get("query") is not None:
        if name in engine.catalog.streams():
            if tree.args.get("exists"):
                return _status(f"stream {name} exists")
            raise StreamExists(
                f"there is a stream {name!r} already; drop it or choose another name"
            )
        settings = _settings(tree, text, _OPTIONS)
        events, twice = create_as(engine, tree, text, params, control, settings)
        left_out = f"; {twice:,} duplicates left out" if twice else ""
        return _status(f"created stream {name} with {events:,} events{left_out}")
    time = tree.args["time"]
    fields, defaults = [], {}
    for column in tree.args["columns"]:
        type_ = arrow_type(column.args["kind"], text)
        defaults[column.this.name] = default_of(engine, name, column, type_, text)
        fields.append(pa.field(column.this.name, type_, not column.meta.get("not_null")))
    names = [f.name for f in fields]
    if time.name not in names:
        folded = [n for n in names if n.lower() == time.name.lower()]
        if not folded:
            raise error_on(
                text,
                time,
                f"the time attribute {time.name!r} is not among the columns {', '.join(names)}",
            )
    time_name = time.name if time.name in names else folded[0]
    try:
        defaults_of = {key: default for key, default in defaults.items() if default is not None}
        schema = StreamSchema(pa.schema(fields), time_name, defaults_of)
    except UnsupportedType as error:
        raise error_on(text, time, str(error)) from None
    settings = _settings(tree, text, _OPTIONS)
    retention = settings.pop("retention", None)
    codec = settings.pop("codec", "lz4")
    before = name in engine.catalog.streams()
    engine.catalog.changes.create_stream(
        name,
        schema,
        retention=retention,
        codec=codec,
        if_not_exists=bool(tree.args.get("exists")),
        options=settings,
    )
    return _status(f"stream {name} exists" if before else f"created stream {name}")


def _alter(engine: QueryEngine, tree: Any, text: str) -> Result:
    name = _stream(engine, tree.this, text)
    changes = engine.catalog.changes
    action, column, to = (tree.args.get(key) for key in ("action", "column", "to"))
    if action == "add":
        type_ = arrow_type(column.args["kind"], text)
        default = default_of(engine, name, column, type_, text)
        nullable = not column.meta.get("not_null")
        if default is None and not nullable:
            what = "events so far lack the column: give it a DEFAULT, or leave out NOT NULL"
            raise error_on(text, column, what)
        changes.stream(name).add_column(column.this.name, type_, nullable=nullable, default=default)
        return _status(f"added column {column.this.name} to stream {name}")
    if action == "set":
        settings = _settings(tree, text, _OPTIONS)
        changes.stream(name).set_options(**settings)
        return _status(f"set {', '.join(settings)} of stream {name}")
    if action == "rename":
        changes.rename_stream(name, to.name)
        return _status(f"renamed stream {name} to {to.name}")
    column_name = _attribute(engine.catalog.stream_schema(name), column, text)
    if action == "type":
        type_ = arrow_type(tree.args["kind"], text)
        changes.stream(name).widen_column(column_name, type_)
        return _status(f"column {column_name} of stream {name} is {sql_type(type_)}")
    if action == "drop":
        changes.stream(name).drop_column(column_name)
        return _status(f"dropped column {column_name} of stream {name}")
    changes.stream(name).rename_column(column_name, to.name)
    return _status(f"renamed column {column_name} of stream {name} to {to.name}")


def _settings(tree: Any, text: str, known: tuple[str, ...]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for option in tree.args.get("options") or ():
        key = option.this.name.lower()
        if key not in known:
            hint = did_you_mean(key, known, quoted=False)
            raise error_on(
                text,
                option,
                f"no option {key!r}{hint} (there {'are' if len(known) > 1 else 'is'} "
                f"{', '.join(known)})",
            )
        settings[key] = _option(option.expression)
    return settings


def _option(node: Any) -> Any:
    if isinstance(node, exp.Null):
        return None
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
            raise error_on(text, tree.args["options"][0], "lag_events_max is a number of events")
        if exists and attribute in present:
            return _status(f"index on {name} ({attribute}) exists")
        engine.catalog.changes.create_index(name, attribute, lag_events_max=limit)
        return _status(f"created index on {name} ({attribute})")
    if exists and attribute not in present:
        return _status(f"there is no index on {name} ({attribute})")
    engine.catalog.changes.drop_index(name, attribute)
    return _status(f"dropped index on {name} ({attribute})")


# ---------------------------------------------------------------------------- looking


def _show_streams(engine: QueryEngine) -> Result:
    shown = ("stream", "time", "events", "first", "last", "damage")
    schema = SYSTEM_TABLES["chronicle"]["streams"]
    table = pa.Table.from_pylist(list(stream_rows(engine.catalog)), schema)
    return Result.of_table(table.select(shown))


def _show_indexes(engine: QueryEngine, tree: Any, text: str) -> Result:
    names = None if tree.this is None else [_stream(engine, tree.this, text)]
    rows = list(index_rows(engine.catalog, names))
    return Result.of_table(pa.Table.from_pylist(rows, SYSTEM_TABLES["chronicle"]["indexes"]))


def _describe(
    engine: QueryEngine, tree: Any, text: str, params: Any, control: QueryControl
) -> Result:
    if isinstance(tree.this, _QUERIES):
        query = _all_rows(tree.this.copy()).limit(0)
        result = engine.query(query, text, params, control)
        try:
            fields = list(result.schema)
        finally:
            result.close()
        columns = {
            "column_name": [f.name for f in fields],
            "column_type": [sql_type(f.type) for f in fields],
        }
        return Result.of_table(pa.table(columns))
    view = view_named(engine, tree.this.name)
    if view is not None:
        tree = DescribeStream(this=exp.select("*").from_(exp.to_table(view.name, quoted=True)))
        return _describe(engine, tree, text, params, control)
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


# ------------------------------------------------------------ INSERT, DELETE, UPDATE


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
            raise error_on(
                text, tree, f"INSERT INTO s [(a, ...)] VALUES ... | SELECT ...: no {key.upper()}"
            )
    target = tree.this
    columns = None
    if isinstance(target, exp.Schema):
        columns = list(target.expressions)
        target = target.this
    if not isinstance(target, exp.Table) or target.args.get("db"):
        raise error_on(text, tree, "expected the name of a stream after INSERT INTO")
    name = _stream(engine, target.this, text)
    schema = engine.catalog.stream_schema(name)
    source = tree.expression
    if tree.args.get("default") or source is None:
        raise error_at(text, len(text), "expected VALUES or a query")
    insertion = Insertion(engine, name, schema, text, params, control, source)
    source = insertion.given()
    if tree.args.get("by_name"):
        names = [_attribute(schema, exp.to_identifier(column), text) for column in source.names]
    else:
        names = _targets(schema, columns, text)
    if len(source) != len(names):
        raise error_at(
            text,
            0,
            f"INSERT gives {len(source)} columns for the {len(names)} of {', '.join(names)}",
        )
    done = engine.catalog.changes.stream(name).append(insertion.rows(names, source))
    answer = {"count": done.appended}
    if engine.catalog.stream_options(name)["unique"] is not None:
        answer["duplicates"] = done.duplicates
    return Result.of_table(pa.table({key: pa.array([n], pa.int64()) for key, n in answer.items()}))


def _delete(
    engine: QueryEngine, tree: Any, text: str, params: Any, control: QueryControl
) -> Result:
    name = _stream(engine, tree.this, text)
    where = tree.args.get("where")
    schema = engine.catalog.stream_schema(name)
    condition = None if where is None else where.this
    deleted = Deletion(engine, name, schema, text, params, control, condition).run()
    return Result.of_table(pa.table({"deleted": pa.array([deleted], pa.int64())}))


def _update(
    engine: QueryEngine, tree: Any, text: str, params: Any, control: QueryControl
) -> Result:
    name = _stream(engine, tree.this, text)
    where = tree.args.get("where")
    assignments = [(each.this, each.expression) for each in tree.args["assignments"]]
    updated = Update(
        engine, name, engine.catalog.stream_schema(name), text, params, control, assignments,
        None if where is None else where.this,
    ).run()  # fmt: skip
    return Result.of_table(pa.table({"updated": pa.array([updated], pa.int64())}))


def _targets(schema: StreamSchema, columns: list[Any] | None, text: str) -> list[str]:
    if columns is None:
        return schema.names
    names = [_attribute(schema, column, text) for column in columns]
    for position, column in enumerate(columns):
        if names[position] in names[:position]:
            raise error_on(text, column, f"column {column.name!r} is named twice")
    return names

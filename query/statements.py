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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from .conditions.constants import Folder, Kind, time_of_nanoseconds
from .contract.access import Access
from .contract.cancellation import QueryControl
from .contract.catalog import LIVE_QUERIES, SYSTEM_TABLES, Catalog, Changes, Given, LiveRequest
from .contract.explanation import Plan
from .contract.result import Result, result_of
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
    StatementNode,
    UpdateEvents,
)

if TYPE_CHECKING:
    from .engine import QueryEngine


_QUERIES = (exp.Query, exp.Values)
_LIVE = (CreateLive, DropLive, AlterLive, DescribeLive, ExplainLive)
_READING = (
    ShowStreams, ShowIndexes, DescribeStream, ShowLive, DescribeLive, ExplainLive, ShowRollups,
    ShowViews, ShowCreateView,
)  # fmt: skip
_OPTIONS = (
    "retention", "codec", "leaf_bytes", "segment_bytes", "durability", "interval_ms",
    "late_events_max", "kept_bytes_max", "compaction", "unique", "within", "move_after",
    "keep_local_bytes",
)  # fmt: skip
_INDEX_OPTIONS = ("lag_events_max",)
ROLLUPS = pa.schema(
    [
        ("name", pa.string()), ("stream", pa.string()), ("window", pa.string()),
        ("columns", pa.string()), ("state", pa.string()), ("watermark", pa.string()),
        ("lag_events", pa.int64()), ("rows", pa.int64()), ("late", pa.int64()),
        ("retention", pa.string()), ("error", pa.string()),
    ]
)  # fmt: skip


@dataclass(frozen=True)
class Statement:
    """A statement to run, with the values of its parameters and the limits of its run."""

    engine: QueryEngine
    tree: Any
    text: str
    params: Any
    control: QueryControl

    @property
    def catalog(self) -> Catalog:
        return self.engine.catalog

    @property
    def changes(self) -> Changes:
        return self.engine.catalog.changes

    @property
    def name(self) -> str:
        return str(self.tree.this.name)

    def has(self, argument: str) -> bool:
        return bool(self.tree.args.get(argument))

    def error(self, node: Any, message: str) -> SqlError:
        return error_on(self.text, node, message)

    def query(self, tree: Any, params: Any = None) -> Result:
        return self.engine.query(tree, self.text, params, self.control)

    def stream(self, node: Any = None) -> str:
        """The name of the stream that the statement, or a node, names."""
        node = self.tree.this if node is None else node
        names = StreamNames(self.catalog.streams())
        name = names.find(node.name)
        if name is not None:
            return name
        view = self.view(node.name)
        if view is not None:
            what = f"{view.name!r} is a view: what it shows is changed in the streams that it reads"
            raise self.error(node, what)
        raise names.missing(node, self.text)

    def view(self, name: str) -> StoredView | None:
        views = self.catalog.views()
        found = StreamNames(list(views)).find(name)
        return None if found is None else views[found]

    def attribute(self, schema: StreamSchema, node: Any) -> str:
        try:
            if isinstance(node, exp.Var):  # more than the name of one
                return index_key(node.name, schema).name
            return schema.resolve(node.name)
        except (AttributeNotFound, InvalidArgument, UnsupportedType) as error:
            raise self.error(node, str(error)) from None

    def settings(self, names: tuple[str, ...]) -> dict[str, Any]:
        """The options of WITH (...) or SET (...)."""
        settings: dict[str, Any] = {}
        for option in self.tree.args.get("options") or ():
            key = option.this.name.lower()
            if key not in names:
                hint = did_you_mean(key, names, quoted=False)
                listed = f"there {'are' if len(names) > 1 else 'is'} {', '.join(names)}"
                raise self.error(option, f"no option {key!r}{hint} ({listed})")
            settings[key] = _option(option.expression)
        return settings

    def constant(self, node: Any) -> Given | None:
        """A time, an interval, an integer or a text in a clause of a live query."""
        if node is None:
            return None
        at, executor = position_of(node), self.engine.executor
        folder = Folder(
            {}, dt.datetime.now(dt.timezone.utc),
            lambda part: executor.constant(to_text(part, self.text), {}, QueryControl()),
        )  # fmt: skip
        try:
            constant = folder.fold(node)
        except SqlError as error:
            raise error_at(self.text, at, error.reason) from None
        if constant.kind is Kind.INTERVAL:
            return Given(None, int(constant.value), at)
        if constant.kind is Kind.TIME:
            return Given(time_of_nanoseconds(int(constant.value)), at=at)
        if constant.kind is Kind.EXACT and constant.value == int(constant.value):
            return Given(int(constant.value), at=at)
        if constant.kind is Kind.TEXT:
            return Given(str(constant.value), at=at)
        raise error_at(
            self.text, at, "expected a constant: a time, an interval in whole units or an integer"
        )


def execute(statement: Statement, read_only: bool) -> Result:
    tree = statement.tree
    if not isinstance(tree, _READING):
        if read_only:
            raise ReadOnlyStore(
                "only queries may run here; send a statement that changes the store the way that "
                "allows it (POST instead of GET)"
            )
        if statement.catalog.mode == "r":
            raise ReadOnlyStore(
                "the store was opened with mode='r'; open it with mode='rw' to change it"
            )
    taking = (exp.Insert, DeleteEvents, UpdateEvents, DescribeStream)
    if statement.params and not isinstance(tree, taking) and not statement.has("query"):
        raise error_at(statement.text, 0, "only queries, INSERT, UPDATE and DELETE take parameters")
    for kind, run in _RUNS.items():
        if isinstance(tree, kind):
            return run(statement)
    raise error_at(statement.text, 0, f"{type(tree).__name__} cannot be run")


def declared(tree: Any) -> Access:
    """The access that the statement itself declares, without the streams that its query reads."""
    kind = type(tree).__name__
    if isinstance(tree, exp.Insert):
        target = tree.this.find(exp.Table) or tree.this
        return Access(kind, "write", str(target.name))
    if isinstance(tree, (CreateStream, CreateView)):
        scope = "admin" if tree.args.get("replace") else "write"
        return Access(kind, scope, str(tree.this.name))
    if isinstance(tree, (Explain, *_READING)) or not isinstance(tree, StatementNode):
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
    if isinstance(tree, (CreateLive, CreateStream, CreateView)):
        query = tree.args.get("query")
        return None if query is None else query.copy()
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
    return result_of(table, plan)


def _status(message: str) -> Result:
    return result_of(pa.table({"status": [message]}))


def _count(**counts: int) -> Result:
    columns = {name: pa.array([count], pa.int64()) for name, count in counts.items()}
    return result_of(pa.table(columns))


def _option(node: Any) -> Any:
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Literal) and not node.is_string:
        return int(node.this) if str(node.this).isdigit() else node.this
    return node.name


def _live_option(node: Any) -> Any:
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    return node.name if isinstance(node, exp.Null) else _option(node)


# --------------------------------------------------------------------------- streams


def _create_as(s: Statement) -> Result:
    """Create the stream of a query, or raise and create none."""
    query, options = s.tree.args["query"], s.settings(_OPTIONS)
    at = position_of(query)
    result = s.query(query.copy(), s.params)
    rows = 0

    def taken() -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for batch in result.batches():
            rows += batch.num_rows
            yield batch

    try:
        made = s.changes.create_stream(
            s.name,
            _schema(s, result.schema),
            retention=options.pop("retention", None),
            codec=options.pop("codec", "lz4"),
            options=options,
            events=taken(),
        )
    except (SchemaMismatch, UnsupportedType) as error:
        raise error_at(s.text, at, f"{error}; say CAST(... AS ...) in the query") from None
    except InvalidData as error:
        raise error_at(s.text, at, f"{error} of the query's result") from None
    finally:
        result.close()
    twice = rows - int(made.count)
    left_out = f"; {twice:,} duplicates left out" if twice else ""
    return _status(f"created stream {s.name} with {made.count:,} events{left_out}")


def require_different_names(names: Sequence[str], text: str, at: int | None) -> None:
    """Raise SqlError for query columns whose names differ at most in case."""
    names_before: dict[str, str] = {}
    for name in names:
        other = names_before.get(name.lower())
        names_before[name.lower()] = name
        if other is None:
            continue
        both = f"two columns {name!r}" if other == name else f"columns {other!r} and {name!r}"
        why = "" if other == name else ", which differ in case only"
        raise error_at(text, at, f"the query gives {both}{why}: name them with AS")


def _schema(s: Statement, columns: pa.Schema) -> StreamSchema:
    """The schema of a stream made of a query's columns."""
    require_different_names(columns.names, s.text, position_of(s.tree.args["query"]))
    folded = {name.lower(): name for name in columns.names}
    time = s.tree.args.get("time")
    times = [field.name for field in columns if pa.types.is_timestamp(field.type)]
    if time is not None:
        times = [folded[time.name.lower()]] if time.name.lower() in folded else []
        if not times:
            what = f"the time attribute {time.name!r} is not among the columns of the query"
            raise s.error(time, f"{what}: {', '.join(columns.names)}")
    if len(times) != 1:
        listed = f"there are {', '.join(times)}" if times else "no column is a TIMESTAMP"
        what = f"say which column is the time, TIMESTAMP BY t before AS: {listed}"
        raise s.error(s.tree.this, what)
    fields = [
        pa.field(field.name, field.type, field.name != times[0] or pa.types.is_null(field.type))
        for field in columns
    ]
    return StreamSchema(pa.schema(fields), times[0])


def _create(s: Statement) -> Result:
    existing = s.name in s.catalog.streams()
    if s.has("query"):
        if not existing:
            return _create_as(s)
        if s.has("exists"):
            return _status(f"stream {s.name} exists")
        raise StreamExists(f"there is a stream {s.name!r} already; drop it or choose another name")
    time = s.tree.args["time"]
    fields, defaults = [], {}
    for column in s.tree.args["columns"]:
        type_ = arrow_type(column.args["kind"], s.text)
        default = default_of(s.engine, s.name, column, type_, s.text)
        if default is not None:
            defaults[column.this.name] = default
        fields.append(pa.field(column.this.name, type_, not column.meta.get("not_null")))
    names = [f.name for f in fields]
    same = [n for n in names if n == time.name] or [
        n for n in names if n.lower() == time.name.lower()
    ]
    if not same:
        what = f"the time attribute {time.name!r} is not among the columns {', '.join(names)}"
        raise s.error(time, what)
    try:
        schema = StreamSchema(pa.schema(fields), same[0], defaults)
    except UnsupportedType as error:
        raise s.error(time, str(error)) from None
    options = s.settings(_OPTIONS)
    s.changes.create_stream(
        s.name,
        schema,
        retention=options.pop("retention", None),
        codec=options.pop("codec", "lz4"),
        if_not_exists=s.has("exists"),
        options=options,
    )
    return _status(f"stream {s.name} exists" if existing else f"created stream {s.name}")


def _drop(s: Statement) -> Result:
    if StreamNames(s.catalog.streams()).find(s.name) is None and s.has("exists"):
        return _status(f"there is no stream {s.name}")
    name = s.stream()
    s.changes.drop_stream(name, cascade=s.has("cascade"))
    return _status(f"dropped stream {name}")


def _alter(s: Statement) -> Result:
    name, changes = s.stream(), s.changes
    action, column, to = (s.tree.args.get(key) for key in ("action", "column", "to"))
    if action == "add":
        type_ = arrow_type(column.args["kind"], s.text)
        default = default_of(s.engine, name, column, type_, s.text)
        nullable = not column.meta.get("not_null")
        if default is None and not nullable:
            what = "events so far lack the column: give it a DEFAULT, or leave out NOT NULL"
            raise s.error(column, what)
        changes.stream(name).add_column(column.this.name, type_, nullable=nullable, default=default)
        return _status(f"added column {column.this.name} to stream {name}")
    if action == "set":
        settings = s.settings(_OPTIONS)
        changes.stream(name).set_options(**settings)
        return _status(f"set {', '.join(settings)} of stream {name}")
    if action == "rename":
        changes.rename_stream(name, to.name)
        return _status(f"renamed stream {name} to {to.name}")
    column_name = s.attribute(s.catalog.stream_schema(name), column)
    if action == "type":
        type_ = arrow_type(s.tree.args["kind"], s.text)
        changes.stream(name).widen_column(column_name, type_)
        return _status(f"column {column_name} of stream {name} is {sql_type(type_)}")
    if action == "drop":
        changes.stream(name).drop_column(column_name)
        return _status(f"dropped column {column_name} of stream {name}")
    changes.stream(name).rename_column(column_name, to.name)
    return _status(f"renamed column {column_name} of stream {name} to {to.name}")


def _index(s: Statement) -> Result:
    name = s.stream()
    attribute = s.attribute(s.catalog.stream_schema(name), s.tree.args["column"])
    present = {entry.get("attribute") for entry in s.catalog.list_indexes(name)}
    if isinstance(s.tree, CreateIndexOn):
        limit = s.settings(_INDEX_OPTIONS).get("lag_events_max")
        if limit is not None and type(limit) is not int:
            raise s.error(s.tree.args["options"][0], "lag_events_max is a number of events")
        if s.has("exists") and attribute in present:
            return _status(f"index on {name} ({attribute}) exists")
        s.changes.create_index(name, attribute, lag_events_max=limit)
        return _status(f"created index on {name} ({attribute})")
    if s.has("exists") and attribute not in present:
        return _status(f"there is no index on {name} ({attribute})")
    s.changes.drop_index(name, attribute)
    return _status(f"dropped index on {name} ({attribute})")


def _show_streams(s: Statement) -> Result:
    schema = SYSTEM_TABLES["chronicle"]["streams"]
    table = pa.Table.from_pylist(list(stream_rows(s.catalog)), schema)
    return result_of(table.select(("stream", "time", "events", "first", "last", "damage")))


def _show_indexes(s: Statement) -> Result:
    names = None if s.tree.this is None else [s.stream()]
    rows = list(index_rows(s.catalog, names))
    return result_of(pa.Table.from_pylist(rows, SYSTEM_TABLES["chronicle"]["indexes"]))


def _describe(s: Statement) -> Result:
    query = s.tree.this
    if not isinstance(query, _QUERIES):
        view = s.view(query.name)
        if view is None:
            return _describe_stream(s)
        query = exp.select("*").from_(exp.to_table(view.name, quoted=True))
    result = s.query(_all_rows(query.copy()).limit(0), s.params)
    try:
        fields = list(result.schema)
    finally:
        result.close()
    columns = {
        "column_name": [f.name for f in fields],
        "column_type": [sql_type(f.type) for f in fields],
    }
    return result_of(pa.table(columns))


def _describe_stream(s: Statement) -> Result:
    name = s.stream()
    schema = s.catalog.stream_schema(name)
    indexed = {entry.get("attribute") for entry in s.catalog.list_indexes(name)}
    rows = [
        {
            "column_name": a.name,
            "column_type": sql_type(a.type),
            "null": "YES" if a.nullable else "NO",
            "key": "TIME" if a.name == schema.time else "INDEX" if a.name in indexed else "",
        }
        for a in schema.attributes
    ]
    return result_of(pa.Table.from_pylist(rows))


# ------------------------------------------------------------ INSERT, DELETE, UPDATE


def _insert(s: Statement) -> Result:
    tree, text = s.tree, s.text
    for key in (
        "conflict", "returning", "overwrite", "where", "partition", "alternative", "exists",
    ):  # fmt: skip
        if s.has(key):
            what = f"INSERT INTO s [(a, ...)] VALUES ... | SELECT ...: no {key.upper()}"
            raise s.error(tree, what)
    target, columns = tree.this, None
    if isinstance(target, exp.Schema):
        target, columns = target.this, list(target.expressions)
    if not isinstance(target, exp.Table) or target.args.get("db"):
        raise s.error(tree, "expected the name of a stream after INSERT INTO")
    name = s.stream(target.this)
    schema = s.catalog.stream_schema(name)
    if s.has("default") or tree.expression is None:
        raise error_at(text, len(text), "expected VALUES or a query")
    insertion = Insertion(s.engine, name, schema, text, s.params, s.control, tree.expression)
    source = insertion.given()
    names = schema.names
    if s.has("by_name"):
        names = [s.attribute(schema, exp.to_identifier(column)) for column in source.names]
    elif columns is not None:
        names = [s.attribute(schema, column) for column in columns]
        for position, column in enumerate(columns):
            if names[position] in names[:position]:
                raise s.error(column, f"column {column.name!r} is named twice")
    if len(source) != len(names):
        what = f"INSERT gives {len(source)} columns for the {len(names)} of {', '.join(names)}"
        raise error_at(text, 0, what)
    done = s.changes.stream(name).append(insertion.rows(names, source))
    if s.catalog.stream_options(name)["unique"] is not None:
        return _count(count=done.appended, duplicates=done.duplicates)
    return _count(count=done.appended)


def _change(s: Statement) -> Result:
    """DELETE and UPDATE."""
    name, where = s.stream(), s.tree.args.get("where")
    condition = None if where is None else where.this
    place = (s.engine, name, s.catalog.stream_schema(name), s.text, s.params, s.control)
    if isinstance(s.tree, DeleteEvents):
        return _count(deleted=Deletion(*place, condition).run())
    assignments = [(each.this, each.expression) for each in s.tree.args["assignments"]]
    return _count(updated=Update(*place, assignments, condition).run())


# ----------------------------------------------------------------------------- views


def _show_views(s: Statement) -> Result:
    views = s.catalog.views().values()
    columns = {"view": [v.name for v in views], "query": [v.sql for v in views]}
    kinds = pa.schema([("view", pa.string()), ("query", pa.string())])
    return result_of(pa.table(columns, schema=kinds))


def _existing_view(s: Statement) -> Result:
    """DROP VIEW and SHOW CREATE VIEW."""
    view = s.view(s.name)
    if view is None:
        if s.has("exists"):
            return _status(f"there is no view {s.name}")
        raise StreamNames(list(s.catalog.views())).missing(s.tree.this, s.text, "view")
    if isinstance(s.tree, ShowCreateView):
        made = f"CREATE VIEW {exp.to_identifier(view.name, quoted=True).sql()} AS {view.sql}"
        return result_of(pa.table({"statement": [made]}))
    s.changes.drop_view(view.name, cascade=s.has("cascade"))
    return _status(f"dropped view {view.name}")


def _create_view(s: Statement) -> Result:
    existing = s.view(s.name)
    name = s.name if existing is None else existing.name
    if existing is not None and not s.has("replace"):
        if s.has("exists"):
            return _status(f"view {name} exists")
        raise StreamExists(f"there is a view {name!r} already; CREATE OR REPLACE VIEW changes it")
    if StreamNames(s.catalog.streams()).find(name) is not None:
        raise StreamExists(f"there is a stream {name!r} already; choose another name")
    query, begin = s.tree.args["query"], int(s.tree.meta["query"])
    for placeholder in query.find_all(exp.Placeholder, exp.Parameter):
        raise s.error(placeholder, "a view takes no parameters")
    expansion = Expansion(s.text, s.catalog.views(), within=(name,))
    expanded = expansion.into(query.copy())
    try:
        outputs = s.engine.prepared(expanded.copy(), s.text).bound.outputs or ()
        names = [output.name for output in outputs if output.name is not None]
        require_different_names(names, s.text, begin)
        result = s.query(exp.select("*").from_(expanded.subquery("q")).limit(0))
    except SqlError as error:
        raise expansion.explained(error) from None
    columns = result.schema.remove_metadata()
    result.close()
    available = StreamNames([*s.catalog.views(), *s.catalog.streams()])
    found = {available.find(each) for each in expansion.named}
    sources = tuple(sorted(each for each in found if each is not None))
    view = StoredView(name, s.text[begin : int(s.tree.meta["end"])], sources, columns)
    s.changes.create_view(view, replace=existing is not None)
    return _status(f"{'created' if existing is None else 'replaced'} view {name}")


# ---------------------------------------------------------------------- live queries


def _show_live(s: Statement) -> Result:
    return result_of(pa.Table.from_pylist(list(live_rows(s.catalog)), LIVE_QUERIES))


def _visible_live(s: Statement, names: Sequence[str]) -> list[str]:
    live, streams = s.catalog.live_statements, set(s.catalog.streams())
    return [name for name in names if live.sink_of(name) in streams]


def _show_rollups(s: Statement) -> Result:
    live = s.catalog.live_statements
    shown = [live.rollup_row(name) for name in _visible_live(s, live.rollups())]
    return result_of(pa.Table.from_pylist(shown, ROLLUPS))


def _existing_live(s: Statement) -> Result:
    """DROP, ALTER, DESCRIBE and EXPLAIN of a live query or a roll-up."""
    live, tree = s.catalog.live_statements, s.tree
    rollups = _visible_live(s, live.rollups())
    of_rollup = isinstance(tree, DropRollup | DescribeRollup)
    what = "roll-up" if of_rollup else "live query"
    names = rollups if of_rollup else _visible_live(s, live.names())
    name = StreamNames(names).find(s.name)
    if name is None:
        if s.has("exists"):
            return _status(f"there is no {what} {s.name}")
        hint = did_you_mean(s.name, names, quoted=False)
        raise s.error(tree.this, f"no {what} {s.name!r}{hint}")
    if isinstance(tree, DropLive):
        if name in rollups and not of_rollup:
            raise s.error(tree.this, f"{name} is a roll-up: DROP ROLLUP {name}")
        live.drop(name, s.has("keep"))
        return _status(f"dropped {what} {name}")
    if isinstance(tree, AlterLive):
        return _alter_live(s, name)
    if isinstance(tree, DescribeLive):
        pairs = live.describe(name)
        columns = {"property": [p for p, _ in pairs], "value": [v for _, v in pairs]}
        return result_of(pa.table(columns))
    return result_of(pa.table({"plan": pa.array(live.explain(name), pa.string())}))


def _alter_live(s: Statement, name: str) -> Result:
    live, action = s.catalog.live_statements, str(s.tree.args["action"])
    if action == "pause":
        live.pause(name)
    elif action == "resume":
        live.resume(name)
    else:
        bounds = [s.constant(s.tree.args.get(key)) for key in ("start", "end")]
        live.refresh(name, *(None if bound is None else bound.value for bound in bounds))
    done = {"pause": "paused", "resume": "resumed", "refresh": "refreshed"}[action]
    return _status(f"{done} live query {name}")


def _create_live(s: Statement) -> Result:
    args = s.tree.args
    start, idle = args.get("start"), args.get("idle")
    request = LiveRequest(
        s.name,
        args["query"],
        s.text,
        s.text[int(s.tree.meta["query"]) :].strip().removesuffix(";").rstrip(),
        into=None if args.get("into") is None else str(args["into"].name),
        start=start if isinstance(start, str) else s.constant(start) or "first",
        delay=s.constant(args.get("delay")),
        idle=idle if isinstance(idle, str) else s.constant(idle),
        late=args.get("late") or "correct",
        correct_for=s.constant(args.get("correct_for")),
        every=s.constant(args.get("every")),
        options={
            option.this.name.lower(): Given(_live_option(option.expression), at=position_of(option))
            for option in args.get("options") or ()
        },
        exists_ok=s.has("exists"),
        at=position_of(s.tree.this),
        rollup=isinstance(s.tree, CreateRollup),
    )
    made = s.catalog.live_statements.create(request)
    what = "roll-up" if request.rollup else "live query"
    return _status(f"{f'created {what}' if made else f'{what} exists:'} {request.name}")


_RUNS: Mapping[type | tuple[type, ...], Callable[[Statement], Result]] = {
    exp.Insert: _insert,
    (DeleteEvents, UpdateEvents): _change,
    CreateStream: _create,
    DropStream: _drop,
    AlterStream: _alter,
    ShowStreams: _show_streams,
    ShowIndexes: _show_indexes,
    DescribeStream: _describe,
    (CreateIndexOn, DropIndexOn): _index,
    CreateLive: _create_live,
    ShowLive: _show_live,
    ShowRollups: _show_rollups,
    _LIVE: _existing_live,
    CreateView: _create_view,
    ShowViews: _show_views,
    (DropView, ShowCreateView): _existing_view,
}
"""How statements of each class are run; the first class that fits counts."""

"""Statements about views, which share one namespace with streams.

A stored view could be run when it was created, and reads neither itself nor a frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from ..errors import SqlError, StreamExists
from ..store.views import KeptView
from .binding.views import Expansion
from .contract.cancellation import QueryControl
from .contract.result import Result
from .creation import require_different_names
from .sql.dialect import error_at, position_of
from .sql.statement_nodes import CreateView, DropView, ShowCreateView, ShowViews
from .sql.stream_names import StreamNames

if TYPE_CHECKING:
    from .engine import QueryEngine

__all__ = ["VIEW_CHANGES", "VIEW_READS", "execute_view", "view_named"]

VIEW_CHANGES = (CreateView, DropView)
VIEW_READS = (ShowViews, ShowCreateView)


def view_named(engine: QueryEngine, name: str) -> KeptView | None:
    views = engine.catalog.views()
    found = StreamNames(list(views)).find(name)
    return None if found is None else views[found]


def execute_view(engine: QueryEngine, tree: Any, text: str, control: QueryControl) -> Result:
    if isinstance(tree, ShowViews):
        views = engine.catalog.views().values()
        columns = {"view": [v.name for v in views], "query": [v.sql for v in views]}
        kinds = pa.schema([("view", pa.string()), ("query", pa.string())])
        return Result.of_table(pa.table(columns, schema=kinds))
    name = tree.this.name
    view = view_named(engine, name)
    if isinstance(tree, CreateView):
        return _create(engine, tree, text, control, view)
    if view is None:
        if tree.args.get("exists"):
            return _status(f"there is no view {name}")
        raise StreamNames(list(engine.catalog.views())).missing(tree.this, text, "view")
    if isinstance(tree, ShowCreateView):
        made = f"CREATE VIEW {exp.to_identifier(view.name, quoted=True).sql()} AS {view.sql}"
        return Result.of_table(pa.table({"statement": [made]}))
    engine.catalog.drop_view(view.name, cascade=bool(tree.args.get("cascade")))
    return _status(f"dropped view {view.name}")


def _status(message: str) -> Result:
    return Result.of_table(pa.table({"status": [message]}))


def _create(
    engine: QueryEngine, tree: Any, text: str, control: QueryControl, known: KeptView | None
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
        raise error_at(text, position_of(placeholder), "a view takes no parameters")
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
    view = KeptView(name, sql, sources, columns.remove_metadata())
    engine.catalog.create_view(view, replace=known is not None)
    return _status(f"{'created' if known is None else 'replaced'} view {name}")


def _sources(engine: QueryEngine, expansion: Expansion) -> tuple[str, ...]:
    known = StreamNames([*engine.catalog.views(), *engine.catalog.streams()])
    found = {known.find(name) for name in expansion.named}
    return tuple(sorted(name for name in found if name is not None))

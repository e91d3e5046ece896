"""Roll-ups: live queries over TUMBLE whose results outlive their events and answer for them.

Retention drops no event before its windows were emitted and the roll-up's last step has processed
all commits before it; a paused or failed roll-up keeps its events.  A window with dropped events
stays as it is.  A bulk load that replaces the whole stream retracts everything.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from sqlglot import exp

from ..core.times import INT64_MAX, INT64_MIN
from ..errors import ChronicleError, SqlError
from ..query.binding.window_binding import (
    BoundWindows,
    aggregate_text,
    condition_text,
    key_text,
    names_in,
)
from ..query.contract.catalog import Rollup
from ..query.engine import QueryEngine
from ..query.sql.dialect import parse_statement
from ..query.windows.fields import aggregate_column, key_column
from ..store.floor import Hold
from ..store.store import Store
from ..store.stream import EventStream
from .analysis import Analysed, refused
from .composition import expand_views, stored_views
from .definition import LiveDefinition
from .query import LiveQuery
from .window_form import WindowForm

NOTHING_SEEN = Hold(INT64_MIN, INT64_MIN)


def checked(engine: QueryEngine, analysed: Analysed, tree: Any, text: str) -> dict[str, int]:
    """Size and origin of a roll-up's windows in ticks; SqlError if it cannot be one."""
    form = analysed.form
    item = tree.args["from_"].this if tree.args.get("from_") is not None else tree
    call = item.this if isinstance(item, exp.Table) else None
    if not isinstance(form, WindowForm) or form.windows.size != form.windows.slide:
        raise refused(text, item, "a roll-up is a SELECT FROM TUMBLE(stream, time, size)")
    if not isinstance(call, exp.Anonymous) or call.name.lower() != "tumble":
        raise refused(text, item, "a roll-up is a SELECT FROM TUMBLE(stream, time, size)")
    if tree.args.get("having") is not None:
        raise refused(
            text, tree.args["having"], "a roll-up has all of its windows: leave HAVING out, and "
            "choose where it is read"
        )  # fmt: skip
    windows = {"size": form.windows.size, "origin": int(form.windows.origin or 0)}
    _columns(engine, tree, text)
    return windows


def rollup_of(
    engine: QueryEngine, definition: LiveDefinition, query: Callable[[], LiveQuery | None]
) -> Rollup | None:
    """The planner's description; None where the stream has changed incompatibly."""
    assert definition.rollup is not None
    try:
        views = stored_views(definition.views)
        expanded = expand_views(parse_statement(definition.sql), definition.sql, views)
        bound, columns = _columns(engine, expanded.tree, definition.sql)
    except SqlError:  # SHOW ROLLUPS reports it: the query cannot be opened
        return None
    fused = bound.fused
    assert fused is not None
    names = {column: name for name, column in columns.items()}
    keys, attributes, aggregates = {}, {}, {}
    for i, key in enumerate(fused.keys):
        keys[key_text(fused, key)] = names[key_column(i)]
        if key not in fused.derived:
            attributes[key] = names[key_column(i)]
    for i, aggregate in enumerate(fused.aggregates):
        if aggregate_column(i) in names:
            aggregates[aggregate_text(bound, aggregate)] = names[aggregate_column(i)]

    def progress() -> dict[str, Any] | None:
        at_work = query()
        return None if at_work is None else at_work.mark.to_json()

    return Rollup(
        definition.name, definition.sink, definition.sources[0], definition.rollup["size"],
        definition.rollup["origin"], keys, attributes, aggregates,
        frozenset(filter(None, map(condition_text, bound.conditions))), progress,
    )  # fmt: skip


def _columns(engine: QueryEngine, tree: Any, text: str) -> tuple[BoundWindows, dict[str, str]]:
    """The windows of a roll-up's SELECT, and the operator's column for each selected one."""
    shown = list(tree.expressions)
    prepared = engine.prepared(tree.copy(), text)
    bound = prepared.bound.sites[0].operator
    if not isinstance(bound, BoundWindows) or bound.fused is None:
        raise refused(
            text, tree, "a roll-up selects window_start, window_end, the keys that it is grouped "
            "by, and count, sum, min, max, avg, first, last, any_value, bool_and, bool_or, stddev "
            "or variance of events; of texts, binaries and decimals only count"
        )  # fmt: skip
    time = bound.call.schema.time.lower()
    for node in bound.conditions:
        if time in names_in(node):
            raise refused(text, tree.args["where"], "a roll-up is of all times: leave the "
                          f"condition on {bound.call.schema.time} out")  # fmt: skip
        if condition_text(node) is None:
            raise refused(text, tree.args["where"], "this condition is not the same each time")
    columns: dict[str, str] = {}
    keys = {key_column(i) for i in range(len(bound.fused.keys))}
    keys |= {aggregate_column(i) for i in range(len(bound.fused.aggregates))}
    for place, projection in enumerate(prepared.bound.root.expressions):
        node = projection.unalias()
        while isinstance(node, exp.Cast) and _keeps(node):
            node = node.this
        name = node.name if isinstance(node, exp.Column) else None
        if name in keys:
            columns.setdefault(projection.alias_or_name, name)
        elif name not in ("window_start", "window_end"):
            at = shown[place] if place < len(shown) else tree
            raise refused(
                text, at, "a roll-up has windows, keys and aggregates as they are: compute with "
                "them where it is read"
            )  # fmt: skip
    missing = [key_column(i) for i in range(len(bound.fused.keys))]
    missing = [name for name in missing if name not in columns.values()]
    if missing:
        key = bound.fused.keys[int(missing[0].removeprefix("$k"))]
        raise refused(text, tree.args["group"], f"a roll-up selects all of its keys: {key} is "
                      "missing")  # fmt: skip
    if not bound.fused.aggregates:
        raise refused(text, tree, "a roll-up selects at least one aggregate")
    return bound, columns


def _keeps(cast: Any) -> bool:
    """Whether a cast preserves every sum of integers."""
    return str(cast.to.sql("duckdb")).upper().replace(" ", "") in (
        "INT128", "HUGEINT", "DECIMAL(38,0)",
    )  # fmt: skip


class RetentionHolds:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._holds: dict[str, tuple[EventStream, _Holder]] = {}

    def begin(self, definition: LiveDefinition) -> None:
        if definition.rollup is None or definition.name in self._holds:
            return
        holder = _Holder(definition)
        with contextlib.suppress(ChronicleError):  # missing or damaged
            holder.sink = self._store.writer(definition.sink)
        with contextlib.suppress(ChronicleError):
            source = self._store.writer(definition.sources[0])
            self._holds[definition.name] = (source, holder)
            source.commits.hold(holder)

    def serve(self, name: str, sink: EventStream) -> None:
        if name in self._holds:
            self._holds[name][1].sink = sink

    def end(self, name: str) -> None:
        held = self._holds.pop(name, None)
        if held is not None:
            held[0].commits.release(held[1])


class _Holder:
    """A roll-up's hold; called while the stream is being changed, so it takes no lock."""

    def __init__(self, definition: LiveDefinition) -> None:
        assert definition.rollup is not None
        self._name = definition.name
        self._size, self._origin = definition.rollup["size"], definition.rollup["origin"]
        self.sink: EventStream | None = None

    def __call__(self) -> Hold:
        if self.sink is None:
            return NOTHING_SEEN
        mark = self.sink.snapshot().state.marks.get(self._name)
        watermark = None if mark is None else mark.get("watermark")
        if watermark is None:
            return NOTHING_SEEN
        following = min(INT64_MAX, int(watermark) + 1)
        boundary = (following - self._origin) // self._size * self._size + self._origin
        return Hold(int(watermark), max(INT64_MIN, boundary))

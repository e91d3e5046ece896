"""The option ``query``: one SQL text, planned once, run inside the executors in parts.

Purpose
    :func:`split_query` decides on the driver how a query can be cut so that its parts together
    give its rows, and :func:`part_of` makes the tree of one part on an executor.

Layout
    ============  ====================================================  ==========================
    a cut         query                                                 a part
    ============  ====================================================  ==========================
    ``rows``      filter and projection of one stream                   a time range, cut at leaf
                                                                        borders
    ``windows``   aggregation over TUMBLE or HOP in time, grouped by    windows that start in a
                  ``window_start`` or ``window_end``                    time range
    ``match``     MATCH_RECOGNIZE over a stream                         replay intervals, a time
                                                                        range, or partitions (see
                                                                        :mod:`..query.split`)
    ``whole``     everything else                                       the query
    ============  ====================================================  ==========================

Guarantee
    The parts are disjoint and their union is the query's result, each row once.  A query with
    ORDER BY, LIMIT, DISTINCT, an aggregate or a window function over all rows is never cut, nor one
    that asks for the time: every part would have its own.

Limits
    Parts come in no order.  How a query was cut, and why not further, is logged under
    ``chronicle.spark`` (level INFO) and told by :mod:`.query_plan`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import InputPartition
from sqlglot import exp

from ..errors import SqlError
from ..query.plan.planner import tells_the_time
from ..query.split.parts import MatchPart
from ..query.split.planning import split_match
from ..query.sql.dialect import MatchRelation, StatementNode, parse_statement
from ..schema import StreamSchema
from ..store.pinned import Pin
from ..ticks import TICKS_PER_SECOND
from .backend import partition_count
from .pinned_catalog import PinnedCatalog

__all__ = ["QueryPartition", "divide", "part_of", "query_tree", "split_query"]

logger = logging.getLogger("chronicle.spark")

_CLAUSES = ("limit", "offset", "order", "distinct", "qualify", "sort", "with_", "with", "having")


@dataclass(frozen=True)
class Cut:
    """One part of a query.

    Attributes
    ----------
    kind : str
        ``rows``, ``windows``, ``match`` or ``whole``.
    low, high : int or None
        Ticks, half-open, of ``rows`` and ``windows``.
    match : MatchPart or None
        Of ``match``.
    """

    kind: str
    low: int | None = None
    high: int | None = None
    match: MatchPart | None = None

    def __str__(self) -> str:
        if self.match is not None:
            return self.match.describe()
        if self.kind == "whole":
            return "the whole query"
        low, high = ("" if bound is None else str(bound) for bound in (self.low, self.high))
        return f"{self.kind} of time [{low}, {high})"


class QueryPartition(InputPartition):
    """One part of a query on pinned streams."""

    def __init__(self, cut: Cut, pins: dict[str, Pin]) -> None:
        super().__init__(None)
        self.cut = cut
        self.pins = pins


def query_tree(text: str) -> Any:
    """The tree of a query.

    Raises
    ------
    SqlError
        For anything that is not a query.
    """
    tree = parse_statement(text)
    if isinstance(tree, StatementNode | exp.Insert) or not isinstance(tree, exp.Query):
        raise SqlError("option 'query' takes a SELECT; change the store with chronicle sql")
    return tree


def split_query(text: str, catalog: PinnedCatalog, wanted: int | None) -> list[QueryPartition]:
    """Cut a query (driver); pins the streams that it names.

    Parameters
    ----------
    text : str
    catalog : PinnedCatalog
        A growing one; the query has been prepared with it, so its streams are pinned.
    wanted : int, optional
        Parts to aim for; by the stream's size unless given.
    """
    cuts, reason = divide(query_tree(text), catalog, wanted)
    logger.info("query in %d parts (%s): %s", len(cuts), cuts[0].kind if cuts else "none", reason)
    return [QueryPartition(cut, catalog.pins) for cut in cuts]


def divide(tree: Any, catalog: PinnedCatalog, wanted: int | None) -> tuple[list[Cut], str]:
    """The cuts of a query that was planned with a catalogue, and what is to be said about them."""
    whole = [Cut("whole")]
    kind, name = _kind(tree)
    if name is None:
        return whole, "its rows depend on each other"
    if tells_the_time(tree):
        return whole, "it asks for the time, which is one for all rows"
    if kind == "match":
        assert catalog.pattern is not None
        name = catalog.pattern[0]  # in the stream's own spelling
    snapshot = catalog.snapshot(name)
    state = snapshot.state
    size = sum(view.length for view in (*state.segments, *state.runs))
    if kind == "match":
        assert catalog.pattern is not None
        _, compiled, plan = catalog.pattern

        def parts(share: float) -> int:
            return partition_count(wanted, int(size * share))

        split = split_match(snapshot, compiled, plan, parts)
        found = [Cut("match", match=part) if part is not None else whole[0] for part in split.parts]
        if plan.reason:
            return found, f"{split.reason}; the whole stream is replayed: {plan.reason}"
        return found, split.reason
    count = partition_count(wanted, size)
    cuts = [Cut(kind, low, high) for low, high in snapshot.ranges(count)] if count > 1 else whole
    if len(cuts) == 1:
        return whole, "one part was asked for, or the stream is small"
    return cuts, "time ranges at leaf borders"


def _kind(tree: Any) -> tuple[str, str | None]:
    """How a query can be cut, and the stream that it is cut by."""
    if not isinstance(tree, exp.Select) or any(tree.args.get(name) for name in _CLAUSES):
        having_only = isinstance(tree, exp.Select) and not any(
            tree.args.get(name) for name in _CLAUSES if name != "having"
        )
        if not having_only:
            return "whole", None
    if tree.args.get("joins") or tree.args.get("laterals"):
        return "whole", None
    source = (tree.args.get("from_") or tree.args.get("from")).this if _from(tree) else None
    if isinstance(source, MatchRelation):
        return _match_kind(tree, source)
    if not isinstance(source, exp.Table) or source.args.get("joins"):
        return "whole", None
    if list(tree.find_all(exp.Subquery, exp.Window, exp.Union)) or _nested(tree):
        return "whole", None
    if isinstance(source.this, exp.Anonymous):
        return _window_kind(tree, source.this)
    plain = not tree.args.get("group") and not tree.args.get("having") and _row_wise(tree)
    return ("rows", source.name) if plain and source.name else ("whole", None)


def _from(tree: Any) -> bool:
    return bool(tree.args.get("from_") or tree.args.get("from"))


def _nested(tree: Any) -> bool:
    return any(node is not tree for node in tree.find_all(exp.Select))


def _row_wise(tree: Any) -> bool:
    """Whether what is selected depends on one row only, as far as the names of functions tell."""
    return not any(
        isinstance(node, exp.AggFunc | exp.Anonymous | exp.Window)
        for expression in tree.expressions
        for node in expression.walk()
    )


def _window_kind(tree: Any, call: Any) -> tuple[str, str | None]:
    group = tree.args.get("group")
    keys = {node.name.lower() for node in group.expressions} if group is not None else set()
    first = call.expressions[0] if call.expressions else None
    timed = call.name.lower() in ("tumble", "hop") and len(call.expressions) >= 3
    origin = len(call.expressions) > (3 if call.name.lower() == "tumble" else 4)
    if timed and not origin and keys & {"window_start", "window_end"}:
        return "windows", first.name if first is not None else None
    return "whole", None


def _match_kind(tree: Any, relation: Any) -> tuple[str, str | None]:
    inner = relation.this
    if not isinstance(inner, exp.Table) or isinstance(inner.this, exp.Anonymous):
        return "whole", None
    if tree.args.get("group") or tree.args.get("having") or not _row_wise(tree):
        return "whole", None
    if any(node is not tree for node in tree.find_all(exp.Select)):
        return "whole", None
    return "match", inner.name


def part_of(text: str, cut: Cut, catalog: PinnedCatalog) -> Any:
    """The tree of one part of a query (executor)."""
    tree = query_tree(text)
    if cut.kind in ("whole", "match"):  # the part of a pattern is the catalogue's
        return tree
    source = (tree.args.get("from_") or tree.args.get("from")).this
    if cut.kind == "rows":
        schema = catalog.stream_schema(source.name)
        column = exp.column(exp.to_identifier(schema.time, quoted=True))
    else:
        schema = catalog.stream_schema(source.this.expressions[0].name)
        column = exp.column("window_start")
    for bound, comparison in ((cut.low, exp.GTE), (cut.high, exp.LT)):
        if bound is not None:
            condition = comparison(this=column.copy(), expression=_time_literal(bound, schema))
            tree = tree.where(condition, copy=False)
    return tree


def _time_literal(ticks: int, schema: StreamSchema) -> Any:
    """A time in SQL; a border may lie anywhere, so nanoseconds are cut to microseconds."""
    if schema.time_unit is None:
        literal = exp.Literal.number(abs(ticks))
        return exp.Neg(this=literal) if ticks < 0 else literal
    import datetime as dt

    micros = ticks * 1_000_000 // TICKS_PER_SECOND[schema.time_unit]
    moment = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=micros)
    zoned = schema.time_type.tz is not None
    text = moment.isoformat(sep=" ") + ("+00:00" if zoned else "")
    return exp.cast(exp.Literal.string(text), "TIMESTAMPTZ" if zoned else "TIMESTAMP")

"""The operators that may stand in FROM, one line each, with their parts to bind, plan and run them.

Parts and kernels are loaded by the first statement that uses the operator.  See
docs/architecture.md for the recipe of another line.

``event_operator(name, bind)`` makes the line of an operator of which only the ``EventOperator`` is
written: the table function works ad hoc, in parts (Spark) and live, with late events
(``live.instant_form``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ..core.caches import lazy
from ..core.ownership import LOADING
from ..core.times import INT64_MAX, INT64_MIN
from ..store.segment import ScanMetrics
from .binding.scope import Binders, BoundOperator, OperatorSite
from .binding.views import WINDOW_FUNCTIONS
from .contract.explanation import Operator
from .contract.frames import Frame
from .contract.operator import EventOperator, InstantRange, MatchLimits, PartRun
from .plan.nodes import (
    EventRows,
    FilledWindows,
    FrameRows,
    Leaf,
    Match,
    NetRows,
    RecentJoin,
    RollupWindows,
    SituationMatch,
    WindowAggregate,
    WindowedEvents,
)
from .plan.planner import Planners, Planning
from .run.context import LeafOperator, Openers, Relation, RunContext
from .sql.statement_clauses import MatchRelation, RecentRelation, SituationRelation


@dataclass(frozen=True)
class BoundEvents:
    """``instant``: the column of the output with the time at which a row becomes known."""

    operator: EventOperator
    stream: str
    instant: str

    @property
    def schema(self) -> pa.Schema:
        return self.operator.output_schema

    @property
    def streams(self) -> tuple[str, ...]:
        return (self.stream,)

    @property
    def ordered_by(self) -> tuple[str, ...]:
        return (self.instant,)


def plan_events(bound: BoundEvents, planning: Planning) -> EventRows:
    snapshot = planning.snapshot(bound.stream)
    if planning.part is not None:
        part = planning.part(snapshot, bound.operator)
        return EventRows(bound.operator, bound.stream, part)
    start, end = planning.bounds.get(bound.stream, (None, None))
    if start is None and end is None:
        return EventRows(bound.operator, bound.stream)
    low, high = INT64_MIN if start is None else start, INT64_MAX if end is None else end - 1
    part = InstantRange.of(snapshot, bound.operator, low, high)
    return EventRows(bound.operator, bound.stream, part)


class EventsOperator(LeafOperator[EventRows]):
    def __init__(self, node: EventRows, run: RunContext) -> None:
        super().__init__(node, run)
        self._metrics = ScanMetrics()

    def _results(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        node, control = self._node, self._run.control
        snapshot = self._run.snapshot(node.stream)
        whole = InstantRange.of(snapshot, node.compiled, INT64_MIN, INT64_MAX)
        run = PartRun(snapshot, node.compiled, self._metrics, control.check, MatchLimits())
        return (node.part or whole).run(run)

    def explain(self) -> Operator:
        node, analyze = self._node, self._run.analyze
        scan = (("stream", node.stream), ("columns", tuple(node.compiled.input_columns)))
        source = Operator("Scan", scan, self._metrics.figures if analyze else ())
        details = () if node.part is None else (("gives", node.part.describe()),)
        figures = (("rows", self._rows),) if analyze else ()
        return Operator(type(node.compiled).__name__, details, figures, (source,))


Plan = Callable[[Any, Planning], Leaf]


@dataclass(frozen=True)
class Parts:
    """The parts of one operator.  ``bind`` maps its site to a bound operator of class ``bound``;
    ``plan`` maps that to a node, under the values of one execution; ``runs``: the run operator of
    each class of node.
    """

    bind: Callable[[OperatorSite], BoundOperator]
    bound: type
    plan: Plan
    runs: Mapping[type, Callable[[Any, RunContext], Relation]]


@dataclass(frozen=True)
class FromOperator:
    """One kind of FROM item.  ``written``: names of table functions in lower case, or the class of
    its syntax node (``Frame`` for names of frames); ``nodes``: classes of its plan nodes; ``load``
    imports its parts.
    """

    written: tuple[str | type, ...]
    nodes: tuple[type, ...]
    load: Callable[[], Parts]

    @lazy
    def parts(self) -> Parts:
        with LOADING:
            return self.load()

    def bind(self, site: OperatorSite) -> BoundOperator:
        return self.parts.bind(site)

    def open(self, node: Any, context: RunContext) -> Relation:
        return self.parts.runs[type(node)](node, context)


class _Planners(dict[type, Plan]):
    """Planners by class of bound operator, filled when the operator is loaded."""

    def __missing__(self, bound: type) -> Plan:
        loaded = [one for one in OPERATORS if "parts" in vars(one)]
        for one in (*loaded, *OPERATORS):
            self[one.parts.bound] = one.parts.plan
            if one.parts.bound is bound:
                return one.parts.plan
        raise KeyError(bound)


def event_operator(name: str, bind: Callable[[OperatorSite], BoundEvents]) -> FromOperator:
    """The line of a table function of which only an ``EventOperator`` is written."""

    def load() -> Parts:

        return Parts(bind, BoundEvents, plan_events, {EventRows: EventsOperator})

    return FromOperator((name,), (EventRows,), load)


def _windows() -> Parts:
    from .binding.window_binding import BoundWindows, bind_windows
    from .plan.window_plan import plan_windowed
    from .run.window_operator import (
        FilledOperator,
        RollupOperator,
        WindowAggregateOperator,
        WindowedEventsOperator,
    )

    return Parts(
        bind_windows,
        BoundWindows,
        plan_windowed,
        {
            WindowAggregate: WindowAggregateOperator,
            WindowedEvents: WindowedEventsOperator,
            RollupWindows: RollupOperator,
            FilledWindows: FilledOperator,
        },
    )


def _match() -> Parts:
    from .binding.match_binding import BoundMatch, bind_match
    from .plan.match_plan import plan_recognition
    from .run.match_operator import MatchOperator

    return Parts(bind_match, BoundMatch, plan_recognition, {Match: MatchOperator})


def _situations() -> Parts:
    from .binding.match_binding import BoundSituations, bind_situations
    from .plan.match_plan import plan_situations
    from .run.situation_operator import SituationOperator

    return Parts(
        bind_situations, BoundSituations, plan_situations, {SituationMatch: SituationOperator}
    )


def _recent() -> Parts:
    from .binding.recent_binding import BoundRecent, bind_recent
    from .plan.recent_plan import plan_recent
    from .run.recent_operator import RecentOperator

    return Parts(bind_recent, BoundRecent, plan_recent, {RecentJoin: RecentOperator})


def _net() -> Parts:
    from .relations import BoundNet, NetOperator, bind_net, plan_net

    return Parts(bind_net, BoundNet, plan_net, {NetRows: NetOperator})


def _frame() -> Parts:
    from .relations import BoundFrame, FrameOperator, bind_frame, plan_frame

    return Parts(bind_frame, BoundFrame, plan_frame, {FrameRows: FrameOperator})


OPERATORS = (
    FromOperator(
        WINDOW_FUNCTIONS,
        (WindowAggregate, WindowedEvents, RollupWindows, FilledWindows),
        _windows,
    ),
    FromOperator((MatchRelation,), (Match,), _match),
    FromOperator((SituationRelation,), (SituationMatch,), _situations),
    FromOperator((RecentRelation,), (RecentJoin,), _recent),
    FromOperator(("net",), (NetRows,), _net),
    FromOperator((Frame, exp.Table), (FrameRows,), _frame),  # exp.Table: a name with two parts
)

BINDERS: Binders = {written: one.bind for one in OPERATORS for written in one.written}
PLANNERS: Planners = _Planners()
OPENERS: Openers = {node: one.open for one in OPERATORS for node in one.nodes}

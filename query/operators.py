"""The operators that may stand in FROM: one line for each.

Purpose
    :data:`OPERATORS` says, for each operator, what it is written as, what binds it, what plans it
    and which class runs each of its nodes.  The binder, the planner and the run are given their
    columns of this table; nothing else in query/ lists operators.

    docs/architecture.md has the recipe for another line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from .binding.frame_binding import BoundFrame, bind_frame
from .binding.from_operator import Binders, BoundOperator, OperatorSite
from .binding.match_binding import BoundMatch, bind_match
from .binding.net_binding import BoundNet, bind_net
from .binding.recent_binding import BoundRecent, bind_recent
from .binding.situation_binding import BoundSituations, bind_situations
from .binding.system_binding import BoundSystemTable, bind_system_table
from .binding.window_binding import BoundWindows, bind_windows
from .binding.window_call import NAMES
from .contract.frames import Frame
from .plan.frame_plan import plan_frame
from .plan.match_plan import plan_recognition
from .plan.net_plan import plan_net
from .plan.nodes import (
    FilledWindows,
    FrameRows,
    Leaf,
    Match,
    NetRows,
    RecentJoin,
    RollupWindows,
    SituationMatch,
    SystemRows,
    WindowAggregate,
    WindowedEvents,
)
from .plan.planner import Planners, Planning
from .plan.recent_plan import plan_recent
from .plan.rollup_plan import plan_windowed
from .plan.situation_plan import plan_situations
from .plan.system_plan import plan_system_table
from .run.context import Openers, Relation, RunContext
from .run.filled_operator import FilledOperator
from .run.frame_operator import FrameOperator
from .run.match_operator import MatchOperator
from .run.net_operator import NetOperator
from .run.recent_operator import RecentOperator
from .run.rollup_operator import RollupOperator
from .run.situation_operator import SituationOperator
from .run.system_operator import SystemTableOperator
from .run.window_operator import WindowAggregateOperator, WindowedEventsOperator
from .sql.dialect import MatchRelation, RecentRelation, SituationRelation

__all__ = ["BINDERS", "OPENERS", "OPERATORS", "PLANNERS", "FromOperator"]


@dataclass(frozen=True)
class FromOperator:
    """One kind of FROM item.

    Attributes
    ----------
    written : tuple of (str or type)
        Names of table functions in lower case, or the class of node that a clause is parsed to;
        :class:`Frame` for names that stand for one.
    bind : callable
        From where it stands to a bound operator.
    bound : type
        What that is.
    plan : callable
        From a bound operator to a node, under the values of one execution.
    runs : mapping of type to callable
        The operator of each class of node.
    """

    written: tuple[str | type, ...]
    bind: Callable[[OperatorSite], BoundOperator]
    bound: type
    plan: Callable[[Any, Planning], Leaf]
    runs: Mapping[type, Callable[[Any, RunContext], Relation]]


OPERATORS = (
    FromOperator(
        NAMES,
        bind_windows,
        BoundWindows,
        plan_windowed,
        {
            WindowAggregate: WindowAggregateOperator,
            WindowedEvents: WindowedEventsOperator,
            RollupWindows: RollupOperator,
            FilledWindows: FilledOperator,
        },
    ),
    FromOperator(
        (MatchRelation,), bind_match, BoundMatch, plan_recognition, {Match: MatchOperator}
    ),
    FromOperator(
        (SituationRelation,),
        bind_situations,
        BoundSituations,
        plan_situations,
        {SituationMatch: SituationOperator},
    ),
    FromOperator(
        (RecentRelation,), bind_recent, BoundRecent, plan_recent, {RecentJoin: RecentOperator}
    ),
    FromOperator(("net",), bind_net, BoundNet, plan_net, {NetRows: NetOperator}),
    FromOperator(  # a name with two parts
        (exp.Table,),
        bind_system_table,
        BoundSystemTable,
        plan_system_table,
        {SystemRows: SystemTableOperator},
    ),
    FromOperator((Frame,), bind_frame, BoundFrame, plan_frame, {FrameRows: FrameOperator}),
)

BINDERS: Binders = {written: one.bind for one in OPERATORS for written in one.written}
PLANNERS: Planners = {one.bound: one.plan for one in OPERATORS}
OPENERS: Openers = {node: run for one in OPERATORS for node, run in one.runs.items()}

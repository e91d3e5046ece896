"""Plan nodes of one execution: immutable values with all parameter values, bounds and decisions::

    QueryPlan
      root   Relational       the executor's SQL over relations, each of them a leaf
             | PassThrough      columns of one leaf, as it delivers them
             | TreeAggregate    a SELECT that the tree answers alone
      leaf   Scan             events of a stream in a range of time
             | TreeAggregate    one row of aggregates over such a range
             | WindowAggregate  windows with their aggregates
             | WindowedEvents   events, once for each window that contains them
             | RollupWindows    windows from a roll-up, and from the stream where it ends
             | FilledWindows    one of these, plus windows without events
             | Match            matches of a row pattern
             | SituationMatch   matches of a pattern of situations
             | EventRows        results of an operator of the contract
             | NetRows          the results of a live query that hold
             | FrameRows        rows of a registered or a system table
             | RecentJoin       pairs of two of these, by recency

Nodes refer to streams by name and can be pickled, except that a ``Match`` may know its snapshot,
which ``division`` replaces.  Importing this module imports no operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from ...schema import StreamSchema
    from ...store.prune import Prune
    from ..binding.tree_aggregates import Call
    from ..contract.frames import Frame
    from ..contract.operator import EventOperator, Part
    from ..pattern.compiled import CompiledMatch
    from ..replay.replay_plan import ReplayPlan
    from ..replay.tree_runs import TreeRuns
    from ..situations.compiled import CompiledSituations
    from ..windows.aggregation import Costs
    from ..windows.fields import Aggregate
    from ..windows.filling import Fill
    from ..windows.group_cache import GroupHook
    from ..windows.spec import AnyWindows, Calendar, CalendarWindows, TimeWindows
    from .prepared import Picked


@dataclass(frozen=True)
class Scan:
    """Events of a stream in time order, ``low`` to ``high`` (inclusive ticks).

    ::

        prune            further conditions, without the time range
        decided          the time range and ``prune`` decide which events pass
        applied          the scan must apply ``prune`` itself, as nothing above does
        limit            events after which it may stop
    """

    stream: str
    schema: StreamSchema
    low: int
    high: int
    prune: Prune | None = None
    decided: bool = True
    applied: bool = False
    limit: int | None = None

    @property
    def exact(self) -> bool:
        """Whether the time range alone decides."""
        return self.decided and self.prune is None


@dataclass(frozen=True)
class TreeAggregate:
    """Aggregates over a time range; ``columns``: names and call indexes, if the whole query."""

    scan: Scan
    calls: tuple[Call, ...]
    columns: tuple[tuple[str, int], ...] | None = None

    @property
    def attributes(self) -> tuple[str, ...]:
        """Attributes whose aggregates are needed, without the time."""
        names = dict.fromkeys(c.attribute for c in self.calls if c.attribute is not None)
        names.pop(self.scan.schema.time, None)
        return tuple(names)


@dataclass(frozen=True)
class WindowAggregate:
    """Windows with their aggregates; ``schema``: window columns, keys, a column per aggregate.

    ::

        events     a query if more than a time range is required of them
        windows    origin None: ``'first'``, known only from the events
        derived    event columns that are expressions
        strategy   ``index`` (the tree) or ``replay`` (the events)
        costs      of both, if there is a choice
        starts     half-open ticks of window starts
        hook       transforms groups before output
    """

    stream: str
    schema: pa.Schema
    events: Scan | QueryPlan
    event_schema: StreamSchema
    windows: AnyWindows
    aggregates: tuple[Aggregate, ...]
    keys: tuple[str, ...]
    derived: frozenset[str]
    strategy: str
    reason: str
    costs: Costs | None = None
    starts: tuple[int | None, int | None] = (None, None)
    hook: GroupHook | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RollupWindows:
    """Windows combined from ``pieces`` in time order: a roll-up's windows of ``size`` ticks from
    ``since`` to ``until`` (half-open), and events.  Pieces give keys (their number is ``keys``) and
    ``partials``; ``same``: the query's windows are the roll-up's.
    """

    stream: str
    rollup: str
    schema: pa.Schema
    windows: TimeWindows | Calendar
    described: str
    size: int
    since: int
    until: int
    pieces: tuple[WindowAggregate | QueryPlan, ...]
    aggregates: tuple[Aggregate, ...]
    partials: tuple[Aggregate, ...]
    keys: int
    event_schema: StreamSchema
    same: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class FilledWindows:
    """Windows, with a row per empty one in ``low`` to ``high``; ``counts``: count aggregates."""

    input: WindowAggregate | RollupWindows
    schema: pa.Schema
    windows: TimeWindows | CalendarWindows
    fill: Fill
    keys: int
    counts: tuple[bool, ...]
    low: int
    high: int
    per_second: int | None


@dataclass(frozen=True)
class WindowedEvents:
    """Events, once for each window that contains them; ``keys`` distinguish sessions."""

    stream: str
    schema: pa.Schema
    events: Scan | QueryPlan
    event_schema: StreamSchema
    windows: AnyWindows
    keys: tuple[str, ...]
    starts: tuple[int | None, int | None] = (None, None)


class _Operator:
    """A node whose operator says the columns."""

    compiled: Any

    @property
    def schema(self) -> pa.Schema:
        return self.compiled.output_schema


@dataclass(frozen=True)
class Match(_Operator):
    """Matches over a stream or ``input``; ``replay``: where they can be; ``part``: a share;
    ``counted``: their columns are not read, whatever the executor asks for.
    """

    compiled: CompiledMatch
    stream: str | None
    input: QueryPlan | None = None
    replay: ReplayPlan | None = None
    part: Part | None = None
    counted: bool = False


@dataclass(frozen=True)
class SituationMatch(_Operator):
    """As ``Match``; ``tree``: what the tree answers instead of reading events."""

    compiled: CompiledSituations
    stream: str | None
    input: QueryPlan | None = None
    replay: ReplayPlan | None = None
    tree: TreeRuns | None = None
    part: Part | None = None


@dataclass(frozen=True)
class EventRows(_Operator):
    """The results of an operator over a stream, or those of a ``part``."""

    compiled: EventOperator
    stream: str
    part: Part | None = None


@dataclass(frozen=True)
class NetRows:
    """Results that hold, from the changes in ``scan``; ``revoked``: there may be retractions."""

    scan: Scan
    schema: pa.Schema
    revoked: bool


@dataclass(frozen=True)
class FrameRows:
    frame: Frame

    @property
    def schema(self) -> pa.Schema:
        return self.frame.schema


@dataclass(frozen=True)
class RecentSide:
    """``columns`` maps the relation's names to the input's; ``alone``: events to replay without
    narrowing; ``obstacle``: why it cannot be narrowed; ``condition``: SQL over ``rows`` of the
    relation's ``condition_columns``, without which a row has no partner.
    """

    input: Match | SituationMatch | RecentJoin | Scan | QueryPlan
    columns: tuple[tuple[str, str], ...]
    start: str
    end: str
    alone: float = 0.0
    obstacle: str = ""
    strategy: str = "auto"
    condition: str | None = None
    condition_columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class RecentJoin:
    """Pairs of a live row and recent archive rows; ``distance`` in ticks of ``unit``;
    ``condition``: SQL over ``rows``; ``order``: the side that narrows the other; ``ends``:
    half-open ticks of live rows' ends.
    """

    live: RecentSide
    archive: RecentSide
    kind: str
    keys: tuple[tuple[str, str], ...]
    distance: int | None
    unit: pa.DataType
    last: int | None
    condition: str | None
    condition_columns: tuple[str, ...]
    schema: pa.Schema
    order: str
    why: str
    ends: tuple[int | None, int | None] = (None, None)


Leaf = (
    Scan
    | TreeAggregate
    | WindowAggregate
    | WindowedEvents
    | RollupWindows
    | FilledWindows
    | Match
    | SituationMatch
    | EventRows
    | NetRows
    | FrameRows
    | RecentJoin
)


@dataclass(frozen=True)
class Relational:
    """The executor's SQL with its parameter values and input relations by name.  ``outputs`` are
    declared types of result columns that are attributes.
    """

    sql: str
    values: Mapping[str, Any]
    inputs: tuple[tuple[str, Leaf], ...]
    outputs: tuple[pa.DataType | None, ...] | None = None


@dataclass(frozen=True)
class PassThrough:
    """Columns of one leaf without its first ``skip`` rows; no executor needed."""

    input: Leaf
    columns: tuple[Picked, ...]
    skip: int = 0


Root = Relational | PassThrough | TreeAggregate


@dataclass(frozen=True)
class QueryPlan:
    text: str
    root: Root
    cut: str = "whole"
    reason: str = ""
    notes: tuple[str, ...] = ()

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        if isinstance(self.root, Relational):
            return tuple(leaf for _, leaf in self.root.inputs)
        return (self.root.input,) if isinstance(self.root, PassThrough) else ()

    @property
    def leaf(self) -> Leaf | None:
        """The only leaf; None of a plan with more, or of a tree aggregate."""
        leaves = self.leaves
        return leaves[0] if len(leaves) == 1 else None

    def over(self, *leaves: Leaf) -> QueryPlan:
        """The same plan over other leaves."""
        root = self.root
        if isinstance(root, PassThrough):
            return replace(self, root=replace(root, input=leaves[0]))
        if isinstance(root, Relational):
            named = zip((name for name, _ in root.inputs), leaves, strict=True)
            return replace(self, root=replace(root, inputs=tuple(named)))
        return self


def notes_of(plan: QueryPlan) -> tuple[str, ...]:
    """Notes of a plan's operators for the user."""
    notes = list(plan.notes)
    for leaf in plan.leaves:
        notes += _notes_of(leaf)
    return tuple(dict.fromkeys(notes))


def _notes_of(leaf: Any) -> list[str]:
    if isinstance(leaf, QueryPlan):
        return list(notes_of(leaf))
    if isinstance(leaf, RecentJoin):
        return _notes_of(leaf.live.input) + _notes_of(leaf.archive.input)
    if isinstance(leaf, FilledWindows):
        leaf = leaf.input
    if isinstance(leaf, WindowAggregate | RollupWindows):
        return list(leaf.notes)
    notes = list(leaf.compiled.notes) if isinstance(leaf, SituationMatch) else []
    if isinstance(leaf, SituationMatch | Match) and leaf.input is not None:
        notes += notes_of(leaf.input)
    return notes

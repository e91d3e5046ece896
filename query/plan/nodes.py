"""Plans of one execution: a tree of immutable, typed nodes.

Purpose
    The planner says with these what is done: every value of a parameter is in them, every bound,
    every choice.  :mod:`chronicle.query.run` has one operator for each class, EXPLAIN prints the
    tree that a run takes, and other processes run a tree as they unpickle it.

Layout
    ::

        QueryPlan
          root   Relational       the executor's SQL over relations, each of them a leaf
               | PassThrough      columns of one leaf, as it delivers them
               | TreeAggregate    a SELECT that the tree answers alone
          leaf   Scan             events of a stream in a range of time
               | TreeAggregate    one row of aggregates over such a range
               | WindowAggregate  windows with their aggregates
               | WindowedEvents   events, once for each window that holds them
               | RollupWindows    windows from a roll-up, and from the stream where it ends
               | FilledWindows    these or those, and windows without events
               | Match            what a row pattern gives
               | SituationMatch   what a pattern of situations gives
               | NetRows          what holds of a live query's results
               | FrameRows        rows of a table of the program around the database
               | RecentJoin       pairs of two of these, by recency
               | SystemRows       a system table

    Windows and row patterns that do not read a stream as it is have a :class:`QueryPlan` below.

Guarantee
    Nodes hold plain values, and nothing of a database but names: what they read is what the
    snapshots of the run hold.  (A :class:`Match` that was planned here knows the snapshot that its
    intervals are of; for other processes :mod:`.division` puts a part in their place.)

    Loading this module loads no operator's rooms: a statement loads those that it names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from ...schema import StreamSchema
    from ...store.prune import Prune
    from ..binding.tree_aggregates import Call
    from ..contract.frames import Frame
    from ..pattern.compiled import CompiledMatch
    from ..replay.cost import Weights
    from ..replay.replay_plan import ReplayPlan
    from ..replay.tree_runs import TreeRuns
    from ..situations.compiled import CompiledSituations
    from ..split.parts import MatchPart
    from ..split.situation_parts import SituationPart
    from ..windows.calendar import AnyWindows, Calendar, CalendarWindows
    from ..windows.cost import Costs
    from ..windows.fields import Aggregate
    from ..windows.filling import Fill
    from ..windows.kept_groups import GroupHook
    from ..windows.spec import TimeWindows
    from .pass_through import Picked

__all__ = [
    "FilledWindows",
    "FrameRows",
    "Leaf",
    "Match",
    "NetRows",
    "PassThrough",
    "QueryPlan",
    "RecentJoin",
    "RecentSide",
    "Relational",
    "RollupWindows",
    "Root",
    "Scan",
    "SituationMatch",
    "SystemRows",
    "TreeAggregate",
    "WindowAggregate",
    "WindowedEvents",
    "notes_of",
]


@dataclass(frozen=True)
class Scan:
    """Events of a stream, in time order.

    Attributes
    ----------
    stream : str
    schema : StreamSchema
    low, high : int
        Ticks, both inclusive; empty when low > high.
    prune : Prune or None
        What else is known of the events that count, without the range of time.
    exact : bool
        Whether the range alone decides which events pass: nothing else is asked of them.
    decided : bool
        Whether range and ``prune`` together decide which events pass.
    passing : Prune or None
        Where they do not: what decides it, if anything that is known here does.
    applied : bool
        Whether the scan has to apply ``prune``, exactly, because nothing above it does.
    limit : int or None
        Events after which a scan may stop.
    """

    stream: str
    schema: StreamSchema
    low: int
    high: int
    prune: Prune | None = None
    exact: bool = True
    decided: bool = False
    applied: bool = False
    limit: int | None = None
    passing: Prune | None = None


@dataclass(frozen=True)
class TreeAggregate:
    """Aggregates over a range of time, answered by one walk down the tree.

    Attributes
    ----------
    scan : Scan
        The range.
    calls : tuple of Call
    columns : tuple of (str, int) or None
        Where this is the whole query: name of each result column, and which call it is.
    """

    scan: Scan
    calls: tuple[Call, ...]
    columns: tuple[tuple[str, int], ...] | None = None

    @property
    def attributes(self) -> tuple[str, ...]:
        """Attributes whose aggregates are needed, time left out."""
        names = dict.fromkeys(c.attribute for c in self.calls if c.attribute is not None)
        names.pop(self.scan.schema.time, None)
        return tuple(names)


@dataclass(frozen=True)
class WindowAggregate:
    """Windows with their aggregates.

    Attributes
    ----------
    schema : pyarrow.Schema
        Window columns, keys, one column for each aggregate.
    events : Scan or QueryPlan
        The events that are windowed; a query where more than a range of time is asked of them.
    event_schema : StreamSchema
        Their columns, derived ones too.
    windows : AnyWindows
        Origin ``'first'`` as None where only reading the events tells it.
    aggregates : tuple of Aggregate
    keys : tuple of str
    derived : frozenset of str
        Columns of the events that are expressions over attributes.
    strategy : str
        ``index`` (the tree) or ``replay`` (the events).
    reason : str
        Why that.
    costs : Costs or None
        What both would cost, where both are possible.
    starts : (int or None, int or None)
        Ticks, half-open: only windows that start there.
    hook : GroupHook or None
        What becomes of the groups of keys in windows of time before they are given out.
    notes : tuple of str
        What is to be said of the answer.
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
    """Windows with their aggregates, put together from a roll-up and from events.

    Attributes
    ----------
    schema : pyarrow.Schema
        As of :class:`WindowAggregate`.
    windows : TimeWindows or Calendar
        Those of the query; ``described`` for people.
    size : int
        Of the roll-up's windows, in ticks.
    since, until : int
        Ticks, half-open, which the roll-up answers.
    pieces : tuple of WindowAggregate or QueryPlan
        In order of time; the query gives ``_time``, then keys and partials as a window does.
    aggregates : tuple of Aggregate
        Of the query.
    partials : tuple of Aggregate
        What the pieces give, a column each.
    keys : int
        How many there are.
    event_schema : StreamSchema
        What aggregates are of.
    same : bool
        Whether a window of the query is one of the roll-up, so that nothing is put together.
    notes : tuple of str
        What is to be said of the answer.
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
    """Windows, and a row for each that holds no events.

    Attributes
    ----------
    low, high : int
        The range of time that is asked for, ticks, both inclusive.
    counts : tuple of bool
        Which of the aggregates count.
    per_second : int or None
        Ticks, where time is no integer.
    """

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
    """Events in time order, once for each window that holds them.

    Attributes
    ----------
    schema : pyarrow.Schema
        The stream's attributes, then the window columns.
    events : Scan or QueryPlan
    event_schema : StreamSchema
    windows : AnyWindows
    keys : tuple of str
        By which sessions are told apart.
    starts : (int or None, int or None)
        Ticks, half-open: only windows that start there.
    """

    stream: str
    schema: pa.Schema
    events: Scan | QueryPlan
    event_schema: StreamSchema
    windows: AnyWindows
    keys: tuple[str, ...]
    starts: tuple[int | None, int | None] = (None, None)


@dataclass(frozen=True)
class Match:
    """The matches of a row pattern.

    Attributes
    ----------
    compiled : CompiledMatch
    stream : str or None
        The stream that is matched; None for the rows of ``input``.
    input : QueryPlan or None
    replay : ReplayPlan or None
        Where matches can be; None when that is not known, or ``part`` says it.
    part : MatchPart or None
        The share of the matches that is looked for; None for all.
    """

    compiled: CompiledMatch
    stream: str | None
    input: QueryPlan | None = None
    replay: ReplayPlan | None = None
    part: MatchPart | None = None

    @property
    def schema(self) -> pa.Schema:
        """Columns of the result."""
        return self.compiled.output_schema


@dataclass(frozen=True)
class SituationMatch:
    """The matches of a pattern of situations.

    Attributes
    ----------
    compiled : CompiledSituations
    stream : str or None
        The stream that is matched; None for the rows of ``input``.
    input : QueryPlan or None
    replay : ReplayPlan or None
        Where matches can be; None when that is not known.
    tree : TreeRuns or None
        What the tree is asked in place of reading events; None where they are read.
    part : SituationPart or None
        The share of the matches that is looked for; None for all.
    """

    compiled: CompiledSituations
    stream: str | None
    input: QueryPlan | None = None
    replay: ReplayPlan | None = None
    tree: TreeRuns | None = None
    part: SituationPart | None = None

    @property
    def schema(self) -> pa.Schema:
        """Columns of the result."""
        return self.compiled.output_schema


@dataclass(frozen=True)
class NetRows:
    """What holds of the results that were put out.

    Attributes
    ----------
    scan : Scan
        The changes.
    schema : pyarrow.Schema
        Of what holds.
    revoked : bool
        Whether the stream tells of results that were taken back.
    """

    scan: Scan
    schema: pa.Schema
    revoked: bool


@dataclass(frozen=True)
class FrameRows:
    """Rows of a frame; it stays in the process that registered it."""

    frame: Frame

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""
        return self.frame.schema


@dataclass(frozen=True)
class RecentSide:
    """One side of a recency join.

    Attributes
    ----------
    input : Match, SituationMatch, RecentJoin, Scan or QueryPlan
    columns : tuple of (str, str)
        Name in the relation, and column of the input.
    start, end : str
        Columns of the input.
    alone : float
        Events that it is expected to replay where nothing narrows it.
    obstacle : str
        Why it cannot be narrowed; empty when it can.
    strategy : str
        The hint for its intervals.
    """

    input: Match | SituationMatch | RecentJoin | Scan | QueryPlan
    columns: tuple[tuple[str, str], ...]
    start: str
    end: str
    alone: float = 0.0
    obstacle: str = ""
    strategy: str = "auto"


@dataclass(frozen=True)
class RecentJoin:
    """Pairs of rows of which one happened recently, as seen from the other.

    Attributes
    ----------
    kind : str
        ``inner``, ``left``, ``semi`` or ``anti``.
    keys : tuple of (str, str)
        Columns of the relation that must be equal, live and archive.
    distance : int or None
        P in ticks of ``unit``; None: unbounded.
    last : int or None
        How many archive rows a live row is given at most.
    condition : str or None
        SQL over the table ``rows``; ``condition_columns`` are those that it reads.
    order : str
        ``eager``, ``live_first``, ``archive_first``: which side narrows the other.
    why : str
        Why that.
    weights : Weights
        What things cost, for what is planned while it runs.
    ends : (int or None, int or None)
        Half-open range of ticks of the live side: only live rows that end there.
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
    weights: Weights
    ends: tuple[int | None, int | None] = (None, None)


@dataclass(frozen=True)
class SystemRows:
    """A system table, as it was when the statement was planned.

    Attributes
    ----------
    name : str
        With its schema.
    """

    name: str
    rows: pa.Table


Leaf = (
    Scan
    | TreeAggregate
    | WindowAggregate
    | WindowedEvents
    | RollupWindows
    | FilledWindows
    | Match
    | SituationMatch
    | NetRows
    | FrameRows
    | RecentJoin
    | SystemRows
)


@dataclass(frozen=True)
class Relational:
    """What is left for the relational executor.

    Attributes
    ----------
    sql : str
    values : mapping
        Of the parameters that occur in it.
    inputs : tuple of (str, Leaf)
        Relations by the name that the SQL has for them, in the order of the statement.
    outputs : tuple of (DataType or None) or None
        Declared types of the result's columns, where they are attributes.
    """

    sql: str
    values: Mapping[str, Any]
    inputs: tuple[tuple[str, Leaf], ...]
    outputs: tuple[pa.DataType | None, ...] | None = None


@dataclass(frozen=True)
class PassThrough:
    """Columns of one leaf, as it delivers them: nothing is left for the executor.

    Attributes
    ----------
    input : Leaf
    columns : tuple of Picked
    skip : int
        Rows left out at the beginning.
    """

    input: Leaf
    columns: tuple[Picked, ...]
    skip: int = 0


Root = Relational | PassThrough | TreeAggregate


@dataclass(frozen=True)
class QueryPlan:
    """What one execution of a query does.

    Attributes
    ----------
    text : str
        The statement, for positions in messages.
    root : Root
    cut : str
        How it may be run in parts: ``rows``, ``windows``, ``match`` or ``whole``.
    reason : str
        Why only as a whole.
    """

    text: str
    root: Root
    cut: str = "whole"
    reason: str = ""


def notes_of(plan: QueryPlan) -> tuple[str, ...]:
    """What the operators of a plan, and of those below it, have to say about their clauses."""
    root = plan.root
    listed: list[Leaf] = []
    if isinstance(root, Relational):
        listed = [leaf for _, leaf in root.inputs]
    elif isinstance(root, PassThrough):
        listed = [root.input]
    found: list[str] = []
    for leaf in listed:
        found += _notes_of(leaf)
    return tuple(dict.fromkeys(found))


def _notes_of(leaf: Any) -> list[str]:
    if isinstance(leaf, QueryPlan):
        return list(notes_of(leaf))
    if isinstance(leaf, RecentJoin):
        return _notes_of(leaf.live.input) + _notes_of(leaf.archive.input)
    if isinstance(leaf, FilledWindows):
        leaf = leaf.input
    if isinstance(leaf, WindowAggregate | RollupWindows):
        return list(leaf.notes)
    found = list(leaf.compiled.notes) if isinstance(leaf, SituationMatch) else []
    if isinstance(leaf, SituationMatch | Match) and leaf.input is not None:
        found += notes_of(leaf.input)
    return found

"""Which queries cost so little that they may run where they arrive, estimated beforehand.

Purpose
    A server that hands every query to a thread spends more on the handing than on a query that the
    tree answers.  :func:`is_small` says of a plan whether its whole answer is surely small work:
    about a millisecond, whatever is in the stream.

How it is estimated
    ::

        aggregates of the tree    two zones of 512 events in each tree that a border of the range
                                  may lie in, and the tail, whose zones are made anew after commits
        events of a range         those that the trees count in it, or the limit where nothing is
                                  asked of them

    times the columns that are read.  Of base segments a range has borders in two at most; in late
    runs, of which :data:`RUNS_MAX` may be there, it can have them in all.

Limits
    Conditions on values are counted as if no block could be skipped, and a scan that would ask an
    index is never small.  Nothing is said of a disk: pages that are not in memory take their time.
    Only plans that are kept (:attr:`.prepared.PreparedQuery.plan`) are asked about, so each text
    has run elsewhere before.
"""

from __future__ import annotations

from collections.abc import Callable

from ...schema import Storage
from ...store.layout import ZONE_EVENTS
from ...store.snapshot import Snapshot
from ..conditions.ranges import half_open
from .nodes import PassThrough, QueryPlan, Scan, TreeAggregate

__all__ = ["EVENTS_MAX", "RUNS_MAX", "is_small", "is_small_read"]

VALUES_MAX = 64_000
"""Values that are decoded, at most."""

FOLDED_MAX = 200_000
"""Values that are folded into aggregates, at most."""

EVENTS_MAX = 256
"""Events that are given out, at most, where nothing is asked of them."""

RUNS_MAX = 6


def is_small(
    plan: QueryPlan, snapshot: Callable[[str], Snapshot], indexed: Callable[[str], bool]
) -> bool:
    """Whether the answer of a plan is surely little work; looks at trees, not at events."""
    root = plan.root
    if isinstance(root, TreeAggregate):
        return _is_small_aggregate(root, snapshot(root.scan.stream))
    if isinstance(root, PassThrough) and isinstance(root.input, Scan):
        scan, columns = root.input, len({picked.column for picked in root.columns})
        if scan.prune is None:
            return is_small_read(
                snapshot(scan.stream), columns, *half_open(scan.low, scan.high), scan.limit
            )
        return not indexed(scan.stream) and _is_small_search(scan, columns, snapshot(scan.stream))
    return False


def is_small_read(
    snapshot: Snapshot, columns: int, start: int | None, end: int | None, limit: int | None
) -> bool:
    """Whether reading the first events of a range is little work."""
    if len(snapshot.state.runs) > RUNS_MAX:
        return False
    if limit is None or limit > EVENTS_MAX:
        limit = int(snapshot.aggregate((), start, end).count)
    return limit <= EVENTS_MAX and limit * columns <= VALUES_MAX


def _is_small_aggregate(node: TreeAggregate, snapshot: Snapshot) -> bool:
    names = node.attributes
    if any(
        node.scan.schema.attribute(n).storage in (Storage.STRING, Storage.BINARY) for n in names
    ):
        return False  # their extremes take a scan
    state = snapshot.state
    trees = min(2, len(state.segments)) + len(state.runs)
    memory = state.tail_events + sum(leaf.events for leaf in state.late)
    values = (2 * ZONE_EVENTS * trees + memory) * (1 + len(names))
    return len(state.runs) <= RUNS_MAX and values <= FOLDED_MAX


def _is_small_search(scan: Scan, columns: int, snapshot: Snapshot) -> bool:
    """The events of a range, of which some are asked for."""
    if len(snapshot.state.runs) > RUNS_MAX:
        return False
    count: int = snapshot.aggregate((), *half_open(scan.low, scan.high)).count
    return count * (columns + len(scan.schema.names)) <= VALUES_MAX

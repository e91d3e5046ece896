"""Estimation of queries so cheap (about a millisecond) that a server runs them without a thread.

For tree aggregates: two zones of 512 events in each tree with a border of the range (at most two
base segments, all late runs), and the tail; for ranges: the tree's count, or the limit.  No block
skipping, no index, and no disk reads are assumed.
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

FOLDED_MAX = 200_000

EVENTS_MAX = 256
"""Limit of events returned without conditions."""

RUNS_MAX = 6


def is_small(
    plan: QueryPlan, snapshot: Callable[[str], Snapshot], indexed: Callable[[str], bool]
) -> bool:
    """Whether a plan is surely cheap; reads tree nodes, not events."""
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
        return False  # their extremes need a scan
    state = snapshot.state
    trees = min(2, len(state.segments)) + len(state.runs)
    memory = state.tail_events + sum(leaf.events for leaf in state.late)
    values = (2 * ZONE_EVENTS * trees + memory) * (1 + len(names))
    return len(state.runs) <= RUNS_MAX and values <= FOLDED_MAX


def _is_small_search(scan: Scan, columns: int, snapshot: Snapshot) -> bool:
    if len(snapshot.state.runs) > RUNS_MAX:
        return False
    count: int = snapshot.aggregate((), *half_open(scan.low, scan.high)).count
    return count * (columns + len(scan.schema.names)) <= VALUES_MAX

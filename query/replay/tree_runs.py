"""Runs of rows from the aggregates of the tree: leaves and zones that need not be read.

A condition that a leaf's aggregates exclude holds in none of its rows; one whose negation they
exclude holds in all.  If this decides every name of a pattern, the leaf has a single word and its
first row stands for all.  Only undecided zones are read, so the cost grows with changes, not with
events.  The runs are those of a scan: the negation is NOT the condition, or a null in one of its
columns.  Only comparisons of columns with non-null constants, with AND, OR and NOT, are supported;
no PARTITION BY, GAP, PREV, measures that read rows, or late events.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.native import kernel
from ...core.sorting import order_of
from ...store.prune import Prune
from ...store.snapshot import Snapshot
from ..conditions.constants import Folder
from ..contract.operator import MatchLimits
from ..pattern.buffers import row_words
from ..situations.compiled import CompiledSituations
from ..situations.stream import SituationStream
from .buckets import Buckets
from .reading import read_ranges
from .situation_intervals import SituationRun, contrary
from .symbols import condition_prune
from .timeline import Timeline

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

KNOWN_LEAST = 0.5
"""Minimum share of events in leaves or zones with a single word."""
ROWS_AT_ONCE = 1 << 20
ROWS_READ = 1 << 18
"""Events of undecided zones that are read together."""


@dataclass(frozen=True)
class TreeRuns:
    """By name, what holds where the condition is ``true``, and where it is not (``other``).
    ``known``: share of the events in leaves or zones with a single word.
    """

    true: tuple[Prune | None, ...]
    other: tuple[Prune | None, ...]
    known: float

    def words(self, buckets: Buckets) -> tuple[Words, Mask]:
        """Word of each bucket, and which buckets are undecided."""
        words = np.zeros(len(buckets.starts), np.uint64)
        mixed = np.zeros(len(buckets.starts), np.bool_)
        for i, (true, other) in enumerate(zip(self.true, self.other, strict=True)):
            may = np.ones(len(words), np.bool_) if true is None else buckets.may_satisfy(true)
            may_not = np.ones(len(words), np.bool_) if other is None else buckets.may_satisfy(other)
            mixed |= may & may_not
            words |= np.where(may & ~may_not, np.uint64(1) << np.uint64(i), np.uint64(0))
        return words, mixed


def plan_tree_runs(
    snapshot: Snapshot, compiled: CompiledSituations, folder: Folder | None = None
) -> TreeRuns | None:
    """The tree's conditions; None if unsupported or too unselective."""
    if (
        compiled.partition_by
        or compiled.gap is not None
        or compiled.history
        or compiled.measured_names
        or snapshot.dirty_ranges()
    ):
        return None
    folder = folder or Folder({}, dt.datetime.now(dt.timezone.utc))
    schema = snapshot.schema
    true, other = [], []
    for name, bound in zip(compiled.names, compiled.conditions, strict=True):
        true.append(condition_prune(bound, name, schema, folder))
        other.append(contrary(bound, name, schema, folder))
    if None in true or None in other:
        return None
    plan = TreeRuns(tuple(true), tuple(other), 1.0)
    total = decided = 0
    for part in Timeline(snapshot).parts:
        buckets = Buckets.of(part)
        _, mixed = plan.words(buckets)
        sizes = buckets.ends - buckets.starts
        total += int(sizes.sum())
        if part.leaves is not None:
            zoned = mixed & (sizes > 0)
            decided += int(sizes[~zoned].sum()) + _decided_in_zones(plan, buckets, zoned)
    share = decided / total if total else 0.0
    return TreeRuns(plan.true, plan.other, share) if share >= KNOWN_LEAST else None


SAMPLED_LEAVES = 4


def _decided_in_zones(plan: TreeRuns, buckets: Buckets, mixed: Mask) -> int:
    places = np.flatnonzero(mixed)
    if not len(places):
        return 0
    some = np.unique(places[np.linspace(0, len(places) - 1, SAMPLED_LEAVES).astype(np.int64)])
    chosen = np.zeros(len(mixed), np.bool_)
    chosen[some] = True
    low = np.flatnonzero(chosen)
    sizes = buckets.ends - buckets.starts
    zoned = buckets.zoned(chosen)
    _, unsure = plan.words(zoned)
    inside = np.zeros(len(unsure), np.bool_)
    for number in low.tolist():
        inside |= (zoned.starts >= buckets.starts[number]) & (zoned.ends <= buckets.ends[number])
    lengths = zoned.ends - zoned.starts
    share = float(lengths[inside & ~unsure].sum()) / max(1, int(lengths[inside].sum()))
    return int(share * int(sizes[mixed].sum()))


# ------------------------------------------------------------------------------- running


def run_tree_runs(
    snapshot: Snapshot,
    compiled: CompiledSituations,
    tree: TreeRuns,
    run: SituationRun,
    check: Callable[[], None],
    limits: MatchLimits,
) -> Iterator[pa.RecordBatch]:
    timeline = Timeline(snapshot)
    stream = SituationStream(compiled, limits, check)
    waiting: list[tuple[Ints, Words]] = []
    rows = 0
    for part in timeline.parts:
        check()
        buckets = Buckets.of(part)
        _, mixed = tree.words(buckets)
        ticks, words = _flipping(
            timeline, compiled, tree, buckets.zoned(mixed, compiled.condition_columns),
            run, check,
        )  # fmt: skip
        waiting.append((ticks, words))
        rows += len(ticks)
        if rows >= ROWS_AT_ONCE:
            yield from _advance(stream, waiting, None)
            rows = sum(len(ticks) for ticks, _ in waiting)
    bounds = snapshot.time_range
    if bounds is not None and waiting:
        yield from _advance(stream, waiting, bounds[1])
    run.figures = stream.figures()
    run.ended = True


def _advance(
    stream: SituationStream, waiting: list[tuple[Ints, Words]], last: int | None
) -> Iterator[pa.RecordBatch]:
    """Feed the waiting words: up to ``last``, or up to before their newest tick."""
    ticks = np.concatenate([some for some, _ in waiting])
    words = np.concatenate([some for _, some in waiting])
    waiting.clear()
    cut = len(ticks)
    if last is None:
        cut = int(np.searchsorted(ticks, ticks[-1], side="left"))
        waiting.append((ticks[cut:], words[cut:]))
        last = int(ticks[-1]) - 1
    yield from stream.advance_words(ticks[:cut], words[:cut], last)


def _flipping(
    timeline: Timeline, compiled: CompiledSituations, tree: TreeRuns,
    buckets: Buckets, run: SituationRun, check: Callable[[], None],
) -> tuple[Ints, Words]:  # fmt: skip
    words, mixed = tree.words(buckets)
    starting = ~mixed
    starting[1:] &= mixed[:-1] | (words[1:] != words[:-1])
    chosen = np.flatnonzero(starting)
    places, values = [buckets.starts[chosen]], [words[chosen]]
    ranges = np.stack([buckets.starts[mixed], buckets.ends[mixed]], axis=1)
    for some in _portions(ranges):
        check()
        position, word = _read_words(timeline, compiled, some, run)
        places.append(position)
        values.append(word)
    place, word = np.concatenate(places), np.concatenate(values)
    order = order_of(place)
    place, word = place[order], word[order]
    flips = np.ones(len(word), np.bool_)
    flips[1:] = word[1:] != word[:-1]
    return timeline.ticks_at(place[flips]), word[flips]


def _portions(ranges: Ints) -> Iterator[Ints]:
    read = np.cumsum(ranges[:, 1] - ranges[:, 0])
    cuts = np.flatnonzero(np.diff(read // ROWS_READ)) + 1
    yield from (some for some in np.split(ranges, cuts) if len(some))


@kernel
def _changes(words, ranges, places, found):  # type: ignore[no-untyped-def]
    """First rows of ranges and rows where the word changes, with their words; returns the count."""
    count = 0
    at = 0
    for r in range(ranges.shape[0]):
        for i in range(ranges[r, 0], ranges[r, 1]):
            if i == ranges[r, 0] or words[at] != words[at - 1]:
                places[count] = i
                found[count] = words[at]
                count += 1
            at += 1
    return count


def _read_words(
    timeline: Timeline, compiled: CompiledSituations, ranges: Ints,
    run: SituationRun,
) -> tuple[Ints, Words]:  # fmt: skip
    arrow, wanted = timeline.schema.arrow, compiled.condition_columns
    output = pa.schema([field for field in arrow if field.name in wanted])
    total = int((ranges[:, 1] - ranges[:, 0]).sum())
    table = pa.Table.from_batches([read_ranges(timeline, output, ranges, run.metrics)])
    run.events += total
    words = row_words(compiled.tests, table, np.array([0, total], np.int64))
    places, values = np.empty(total, np.int64), np.empty(total, np.uint64)
    count = _changes(words, ranges, places, values)
    return places[:count].copy(), values[:count].copy()

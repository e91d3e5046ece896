"""Where events of one key follow one another, from indexes on two attributes alone.

An index on ``(category, beat)`` sorts the events of a category by beat, so under
``PARTITION BY beat`` or with ``B.beat = A.beat`` one merge per word finds those in one beat, in
order and near enough, and the column ``beat`` is read only there.  Runs are merged one by one; what
may cross the end of one, and what has no run, is kept.  Sound: equal values have equal words, and
every match ends at most a window after its first such event and begins at most one before the last.
Events without a word (null in either attribute) count as one key.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from ...core.native import kernel
from ...core.sorting import order_of
from ...core.times import moved
from ...indexes.index_key import HASH_BITS, PairKey
from ...indexes.lookup import read_entries, read_nulls
from ...indexes.runs import Run
from ...store.layout import ZONE_EVENTS
from ...store.prune import Range
from .candidates import LookupRange, in_any_order
from .context import PlanContext
from .lookups import Lookups
from .spans import Spans
from .terms import Term, equalities, pair_keys
from .timeline import Timeline

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
_Chosen = tuple[PairKey, Sequence[Range]]
WORTH_ENTRIES = 2_000
"""Occurrences of the rarest symbol from which on reading all entries of the others is worth it."""
_REST = np.uint64((1 << (64 - HASH_BITS)) - 1)
_NULL = np.uint64(1 << (64 - HASH_BITS))


def coded_spans(
    lookups: Lookups, columns: Collection[str], variables: frozenset[str] | None = None
) -> Spans | None:
    """Spans that hold every match, or None if unknown; in each column a match's events (or those of
    its ``variables``) have one value.
    """
    context = lookups.context
    within, indexes = context.pattern.within, context.indexes
    if within is None or indexes is None:
        return None
    if min(offer.entries for offer in lookups.picked) < WORTH_ENTRIES:
        return None
    chosen = index_choices(context, columns, variables)
    if len(chosen) < 2:
        return None
    names = sorted({key.name for key, _ in chosen})
    chunks = context.chunks(names)
    if not chunks:
        return None
    parts = [_unmerged(lookups, chunks, within)]
    for chunk in chunks:
        context.check()
        parts.append(_of_chunk(lookups, chunk, chosen, within))
    return Spans.of(
        np.concatenate([spans.starts for spans in parts]),
        np.concatenate([spans.ends for spans in parts]),
    )


def index_choices(
    context: PlanContext, columns: Collection[str], variables: frozenset[str] | None = None
) -> list[_Chosen]:
    """Per block an index and its words, for one second attribute, even if not picked."""
    best: list[_Chosen] = []
    pairs = pair_keys(frozenset(context.indexed), context.schema)
    for column in columns:
        keys = [key for key in pairs if key.pair[1].name == column]
        chosen: list[_Chosen] = []
        for block in context.pattern.blocks:
            terms = [
                term
                for symbol in block.symbols
                if variables is None or symbol.name in variables
                for term in symbol.terms
            ]
            restricted = ((key, _words(term, key)) for term in terms for key in keys)
            first = next(((key, ranges) for key, ranges in restricted if ranges), None)
            if first is not None:
                chosen.append(first)
        best = chosen if len(chosen) > len(best) else best
    return best


def _words(term: Term, key: PairKey) -> list[Range]:
    ranges = [atom for atom in term.atoms if isinstance(atom, Range) and atom.column == key.name]
    return ranges if len(ranges) == len(term.atoms) else equalities(term.atoms, key)


def _unmerged(lookups: Lookups, chunks: Sequence[LookupRange], within: int) -> Spans:
    timeline, total = lookups.context.timeline, lookups.context.total
    covered = Spans.of([chunk.start for chunk in chunks], [chunk.end for chunk in chunks])
    edges = np.unique([edge for chunk in chunks for edge in (chunk.start, chunk.end)])
    edges = edges[(edges > 0) & (edges < total)]
    low = timeline.lower(moved(timeline.ticks_at(edges), -within))
    high = timeline.upper(moved(timeline.ticks_at(edges - 1), within))
    return Spans.of(low, high).union(covered.complement(total))


def _of_chunk(
    lookups: Lookups,
    chunk: LookupRange,
    chosen: Sequence[_Chosen],
    within: int,
) -> Spans:
    context = lookups.context
    count = chunk.end - chunk.start
    places, begins, words = [], [], []
    base = 0
    for key, ranges in chosen:
        run = chunk.runs[key.name]
        read = partial(_entries, lookups, run, ranges, count, chunk.skipped)
        which = ("pairs", key.name, chunk.start, chunk.end, *ranges)
        some, begin, at = context.looked_up.once(which, read)
        if not len(at):
            return Spans.empty()
        words.append(some)
        begins.append(base + begin)
        places.append(at)
        base += len(at)
    common = words[0]
    for some in words[1:]:
        common = np.intersect1d(common, some, assume_unique=True)
    bounds = np.empty((2, len(chosen), len(common)), np.int64)
    for number, (some, begin) in enumerate(zip(words, begins, strict=True)):
        at = np.searchsorted(some, common)
        bounds[0, number], bounds[1, number] = begin[at], begin[at + 1]
    first, last = np.empty(len(places[0]), np.int64), np.empty(len(places[0]), np.int64)
    timeline, merged = context.timeline, np.concatenate(places)
    ties, ticks = context.wants.ties, np.zeros(0, np.int64)
    if ties:
        ticks = timeline.ticks_between(chunk.start, chunk.end)
    reach = _reach(timeline, chunk, within)
    total = _chains(bounds, merged, reach, ticks, ties, ZONE_EVENTS, first, last)
    first, last = first[:total] + chunk.start, last[:total] + chunk.start
    begun = in_any_order(timeline, first, Timeline.ticks_at)
    ended = in_any_order(timeline, last, Timeline.ticks_at)
    near = ended <= moved(begun, within)
    low = in_any_order(timeline, moved(ended[near], -within), Timeline.lower)
    high = in_any_order(timeline, moved(begun[near], within), Timeline.upper)
    return Spans.of(np.maximum(low, chunk.start), np.minimum(high, chunk.end))


def _reach(timeline: Timeline, chunk: LookupRange, within: int) -> Ints:
    """Per zone of a chunk, the position from which on no event is within its window."""
    starts = np.arange(chunk.start, chunk.end, ZONE_EVENTS)
    begins = timeline.ticks_at(np.append(starts, chunk.end - 1))
    zone = np.searchsorted(begins[:-1], moved(begins[1:], within), side="right")
    return np.minimum(zone * ZONE_EVENTS, chunk.end - chunk.start)


def _entries(
    lookups: Lookups, run: Run, ranges: Sequence[Range], count: int, skipped: int
) -> tuple[Words, Ints, Ints]:
    """Ascending words without hash, where each begins, and positions, ascending in each word."""
    context = lookups.context
    assert context.indexes is not None
    words, places = [], []
    for range_ in ranges:
        low, high = int(range_.low), int(range_.high)  # type: ignore[arg-type]
        some, at = read_entries(context.indexes, run, low, high, context.metrics)
        context.metrics.keys_listed += len(some)
        words.append(some)
        places.append(at)
    unknown = read_nulls(context.indexes, run)
    word, place, rest = words[0], places[0], _REST
    if len(words) > 1 or len(unknown):
        word = np.concatenate([*(some & _REST for some in words), np.full(len(unknown), _NULL)])
        place, rest = np.concatenate([*places, unknown]), ~np.uint64(0)
    if len(words) > 1:
        order = order_of(place, word)
        word, place = word[order], place[order]
    if run.end - run.first > count:  # a run may hold positions that this snapshot does not show
        shown = (place >= skipped) & (place < skipped + count)
        word, place = word[shown], place[shown] - skipped
    if not len(word):
        return word, np.zeros(1, np.int64), place
    starts = np.flatnonzero(np.concatenate([[True], word[1:] != word[:-1]]))
    return word[starts] & rest, np.append(starts, len(word)), place


@kernel
def _chains(bounds, places, reach, ticks, ties, zone, first, last):  # type: ignore[no-untyped-def]
    """Occurrences of the first block that others of their word follow; returns their number.
    ``places[bounds[0, b, g]:bounds[1, b, g]]`` are those of block ``b`` with word ``g``; the others
    lie before ``reach[z]`` for an event in zone ``z``.  With ties, ``ticks`` decide which may be
    first.
    """
    blocks = bounds.shape[1]
    pointer = np.zeros(blocks, np.int64)
    count = 0
    for g in range(bounds.shape[2]):
        for b in range(blocks):
            pointer[b] = bounds[0, b, g]
        for i in range(bounds[0, 0, g], bounds[1, 0, g]):
            begin = places[i]
            end = reach[begin // zone]
            here = begin
            alive = True
            for b in range(1, blocks):
                j = pointer[b]
                stop = bounds[1, b, g]
                if ties:
                    while j < stop and ticks[places[j]] < ticks[here]:
                        j += 1
                else:
                    while j < stop and places[j] <= here:
                        j += 1
                pointer[b] = j
                if j == stop:
                    alive = False
                    break
                here = places[j]
                if here >= end:
                    break
            if not alive:
                break
            if here < end:
                first[count] = begin
                last[count] = here
                count += 1
    return count

"""Candidates: where the chosen symbols occur in the order and at the distances of the pattern.

Purpose
    Algorithm 3.1 of the thesis.  Its first merge, occurrences of a basic block, is a shift-AND: an
    index answer sets bits at *block position* (the event's position less the symbol's place in the
    block), and the block occurs where the bits of all chosen terms meet.  Its second merge, blocks
    to candidates, is one sweep over the occurrences of the first block with a pointer into each
    other.

Layout
    ::

        position      0 1 2 3 4 5 6 7            block (A B), B at place 1
        A             . x . . x . x .            bits of A at p
        B             . . x . . . . x            bits of B at p - 1:  . x . . . . x .
        occurs        . x . . . . x .            AND

    For every occurrence of the first block only the nearest and the farthest end of a candidate
    matter: the intervals of all candidates between overlap (see ``docs/indexes.md``).

Guarantee
    Every match whose events all lie in covered positions and have no late event between them has a
    candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...compiled import kernel
from ...indexes.kernels import count_bits, positions_of_bits
from ...indexes.lookup import IndexMetrics, excluded, mark_run
from ...indexes.runs import Run
from ...indexes.stream_indexes import Catalogue, StreamIndexes
from ...schema import StreamSchema
from .coarse import CoarseMap
from .symbols import Term
from .timeline import Timeline

__all__ = ["Candidates", "ChosenBlock", "ChosenTerm", "Chunk", "find_candidates", "occurrences"]

Ints = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class ChosenTerm:
    """A term that is looked up.

    Attributes
    ----------
    term : Term
    symbol : int
        Place of its symbol among all symbols of the outline.
    offset : int
        Place of its symbol in the block.
    """

    term: Term
    symbol: int
    offset: int


@dataclass(frozen=True)
class ChosenBlock:
    """A basic block of which some terms are looked up.

    Attributes
    ----------
    terms : tuple of ChosenTerm
        Rarest first.
    length : int
        Symbols in the block, looked up or not.
    between : int
        Events that lie at least between the end of the chosen block before and the start of this
        one.
    """

    terms: tuple[ChosenTerm, ...]
    length: int
    between: int


@dataclass(frozen=True)
class Chunk:
    """Positions for which every chosen attribute has a run.

    Attributes
    ----------
    start, end : int
        Positions among the base events.
    runs : dict of str to Run
        By attribute.
    """

    start: int
    end: int
    runs: dict[str, Run]


@dataclass(frozen=True)
class Candidates:
    """Per occurrence of the first chosen block that has a candidate.

    Attributes
    ----------
    first : int64[n]
        Latest position at which the match can begin (exactly that without a gap before the block).
    nearest, farthest : int64[n]
        Earliest position at which the match can end, of the nearest and of the farthest candidate.
    first_ticks, nearest_ticks, farthest_ticks : int64[n]
        Their times; zeros without a window.
    """

    first: Ints
    nearest: Ints
    farthest: Ints
    first_ticks: Ints
    nearest_ticks: Ints
    farthest_ticks: Ints


def chunks_of(catalogue: Catalogue, timeline: Timeline, attributes: Sequence[str]) -> list[Chunk]:
    """Stretches of the base events for which all of some attributes are indexed."""
    found = []
    for part in timeline.parts:
        if part.view is None:
            continue
        segment, events = part.view.file.segment_id, part.view.events
        columns = [
            {
                run.first: run
                for run in catalogue.runs.get((catalogue.attributes[name], segment), ())
            }
            for name in attributes
        ]
        timed = {times.first: times.end for times in catalogue.times.get(segment, ())}
        for first, timed_end in timed.items():
            if not all(first in runs for runs in columns):
                continue
            ends = [runs[first].end for runs in columns]
            end = min([timed_end, events, *ends])
            if end > first:
                runs = {name: c[first] for name, c in zip(attributes, columns, strict=True)}
                found.append(Chunk(part.start + first, part.start + end, runs))
    found.sort(key=lambda chunk: chunk.start)
    return found


def occurrences(
    block: ChosenBlock,
    chunks: Sequence[Chunk],
    wanted: npt.NDArray[np.bool_],
    total: int,
    indexes: StreamIndexes,
    schema: StreamSchema,
    coarse: CoarseMap | None,
    metrics: IndexMetrics,
) -> Ints:
    """Positions at which a block begins, ascending.

    Parameters
    ----------
    block : ChosenBlock
    chunks : sequence of Chunk
    wanted : bool[chunks]
        Chunks in which occurrences matter.
    total : int
        Base events.
    indexes : StreamIndexes
    schema : StreamSchema
    coarse : CoarseMap, optional
        Chunks in which it rules a term's symbol out are not read.
    metrics : IndexMetrics
        Added to.
    """
    words = (total + 63) // 64
    bits = np.zeros(words, np.uint64)
    other: Bits | None = None
    for number, chosen in enumerate(block.terms):
        target = bits
        if number:
            other = np.zeros(words, np.uint64) if other is None else other
            target = other
        for i, chunk in enumerate(chunks):
            if not wanted[i]:
                continue
            low = max(0, chunk.start - chosen.offset)
            if number:
                if not bits[low >> 6 : ((chunk.end - 1) >> 6) + 1].any():
                    metrics.runs_skipped += 1
                    continue
            elif coarse is not None and not coarse.may_hold(chosen.symbol, chunk.start, chunk.end):
                metrics.runs_skipped += 1
                continue
            _mark_term(chosen, chunk, target, total, indexes, schema, metrics)
        if number:
            assert other is not None
            bits &= other
            if number + 1 < len(block.terms):
                other[:] = 0
    out = np.empty(count_bits(bits), np.int64)
    positions_of_bits(bits, 0, out)
    return out


def _mark_term(
    chosen: ChosenTerm,
    chunk: Chunk,
    target: Bits,
    total: int,
    indexes: StreamIndexes,
    schema: StreamSchema,
    metrics: IndexMetrics,
) -> None:
    for name in chosen.term.attributes:
        atoms = [atom for atom in chosen.term.atoms if atom.column == name]
        run = chunk.runs[name]
        attribute = schema.attribute(name)
        if excluded(indexes, run, atoms, attribute):
            metrics.runs_skipped += 1
            continue
        base = chunk.start - chosen.offset
        # a run may know more positions than this snapshot: they would lie beyond the chunk
        size = min(total, chunk.end - chosen.offset)
        mark_run(indexes, run, atoms, attribute, base, target, size, metrics)


@kernel
def _merge(  # type: ignore[no-untyped-def]
    first, starts, bounds, lengths, between, ends_at, ticks, end_ticks, window, span, out
):
    """Second merge, see :func:`find_candidates`; returns the number of candidates in ``out``.

    ``starts[bounds[b]:bounds[b + 1]]`` are the occurrences of block ``b``; ``first`` and ``ticks``
    go with those of block 0, ``ends_at`` and ``end_ticks`` with those of the last block.
    """
    blocks = bounds.shape[0] - 1
    pointer = np.zeros(blocks, np.int64)
    for b in range(blocks):
        pointer[b] = bounds[b]
    last = bounds[blocks - 1]
    far = last
    found = 0
    for i in range(bounds[0], bounds[1]):
        a = first[i]
        if a < 0:
            continue
        at = starts[i] + lengths[0]
        alive = True
        if blocks == 1:
            near = i
        else:
            for b in range(1, blocks):
                j = pointer[b]
                stop = bounds[b + 1]
                low = at + between[b]
                while j < stop and starts[j] < low:
                    j += 1
                pointer[b] = j
                if j == stop:
                    alive = False
                    break
                at = starts[j] + lengths[b]
            if not alive:
                break
            near = pointer[blocks - 1]
        z = ends_at[near - last]
        if z < 0 or z - a >= span:
            continue
        if window >= 0 and end_ticks[near - last] - ticks[i] > window:
            continue
        if blocks == 1:
            farthest = near
        else:
            if far < near:
                far = near
            while far + 1 < bounds[blocks]:
                z = ends_at[far + 1 - last]
                if z < 0 or z - a >= span:
                    break
                if window >= 0 and end_ticks[far + 1 - last] - ticks[i] > window:
                    break
                far += 1
            farthest = far
        out[0, found] = a
        out[1, found] = ends_at[near - last]
        out[2, found] = ends_at[farthest - last]
        out[3, found] = ticks[i]
        out[4, found] = end_ticks[near - last]
        out[5, found] = end_ticks[farthest - last]
        found += 1
    return found


def find_candidates(
    found: Sequence[Ints],
    blocks: Sequence[ChosenBlock],
    before: int,
    after: int,
    timeline: Timeline,
    within: int | None,
    longest: int | None,
) -> Candidates:
    """Merge the occurrences of blocks to candidates.

    Parameters
    ----------
    found : sequence of int64[n]
        Occurrences of each chosen block.
    blocks : sequence of ChosenBlock
    before, after : int
        Symbols of the pattern before the first and after the last chosen block.
    timeline : Timeline
    within : int or None
        Window in ticks, inclusive.
    longest : int or None
        Window in events.
    """
    first = found[0] - before
    ends_at = found[-1] + (blocks[-1].length + after - 1)
    ends_at[ends_at >= timeline.total] = -1
    lengths = np.array([block.length for block in blocks], np.int64)
    between = np.array([block.between for block in blocks], np.int64)
    bounds = np.concatenate(([0], np.cumsum([len(f) for f in found]))).astype(np.int64)
    ticks, end_ticks = np.zeros(len(first), np.int64), np.zeros(len(ends_at), np.int64)
    if within is not None:
        ticks = timeline.ticks_at(np.maximum(first, 0))
        last = timeline.total - 1
        end_ticks = timeline.ticks_at(np.where(ends_at < 0, last, ends_at))
    out = np.empty((6, len(first)), np.int64)
    window = -1 if within is None else min(within, 2**62)
    span = 2**62 if longest is None else longest
    count = _merge(
        first, np.concatenate(found), bounds, lengths, between, ends_at, ticks, end_ticks, window,
        span, out,
    )  # fmt: skip
    kept = out[:, :count]
    return Candidates(kept[0], kept[1], kept[2], kept[3], kept[4], kept[5])

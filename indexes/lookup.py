"""Range lookups: from ranges of values to bitmaps of positions.

``mark_run`` sets a bit for every event of a run that satisfies one of several atoms (ranges, IS
NULL, IS NOT NULL on one attribute); ``estimate_runs`` is the cardinality estimate, without reading
blocks.  A range reads two key blocks, then only the position blocks between them; the fences, which
are in memory, tell which::

    range of values                  |-----------------|
    fences of a run     |.......|.......|.......|.......|.......|
    key blocks                   x                    x             where it begins and ends
    position blocks              x       x       x    x
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..core.native import kernel
from ..core.sorting import first_at_least
from ..schema import Attribute, Storage
from ..store.layout import Encoding
from ..store.packing import unpack
from ..store.prune import IsNull, NotNull, Range
from ..store.tap import disjoint
from .keys import KEY_MAX, entry_at, float_values, key_range, mark, unpack_positions
from .opened import OpenedIndexes
from .runs import BLOCK_ENTRIES, Run, read_dictionary

Atom = Range | IsNull | NotNull
"""A condition on one attribute that an index can look up."""


@dataclass
class IndexMetrics:
    entries_read: int = 0
    blocks_read: int = 0
    bytes_read: int = 0
    runs_read: int = 0
    runs_skipped: int = 0
    events_evaluated: int = 0
    keys_listed: int = 0


def _ranges(
    indexes: OpenedIndexes, run: Run, atoms: Sequence[Atom], attribute: Attribute
) -> tuple[list[tuple[int, int]], bool]:
    ranges: list[tuple[int, int]] = []
    nulls = False
    for atom in atoms:
        if isinstance(atom, IsNull):
            nulls = True
        elif isinstance(atom, NotNull):
            ranges.append((0, KEY_MAX))
        elif run.entries:
            dictionary = None
            if run.text == "dictionary":
                dictionary = read_dictionary(indexes.block(b"s", run))
            span = key_range(atom, attribute, dictionary)
            if span is not None:
                ranges.append(span)
    merged = disjoint((low, high + 1) for low, high in ranges)  # half-open: neighbours are joined
    return [(low, end - 1) for low, end in merged], nulls


class KeyRanges:
    """Key ranges of atoms on one attribute, computed once for runs with common keys."""

    def __init__(self, indexes: OpenedIndexes, atoms: Sequence[Atom], attribute: Attribute) -> None:
        self.indexes = indexes
        self.atoms = atoms
        self.attribute = attribute
        self._shared: tuple[list[tuple[int, int]], bool] | None = None

    def of(self, run: Run) -> tuple[list[tuple[int, int]], bool]:
        if run.text or not run.entries:  # strings are ranks in each run's dictionary
            return _ranges(self.indexes, run, self.atoms, self.attribute)
        if self._shared is None:
            self._shared = _ranges(self.indexes, run, self.atoms, self.attribute)
        return self._shared


@kernel
def _rank(fences, values, first, last, entries, block, key, value):  # type: ignore[no-untyped-def]
    """Estimated entries of a run below ``key``: uniform between the first keys of two blocks; of
    doubles, whose keys are far apart near zero, between their ``values`` (else there are none).
    """
    at = first_at_least(fences, first, last + 1, key)
    if at == first:
        return 0.0
    if at > last:
        return np.float64(entries)
    number = at - 1 - first
    left = fences[at - 1]
    within = min(block, entries - number * block)
    part = np.float64(key - left) / (np.float64(fences[at] - left) + 1.0)
    if values.shape[0]:
        width = values[at] - values[at - 1]
        if 0.0 < width < np.inf:
            part = (value - values[at - 1]) / width
    return number * block + part * within


@kernel
def _estimate(fences, values, begins, entries, often, block, low, high, ends, out):  # type: ignore[no-untyped-def]
    """Estimated entries of each run in [low, high]; ``ends``: the same as values.  At least the
    frequency of one value where a fence, which occurs, is in the range, or one value is wanted:
    uniformity fails for few, distant values such as 0.0 and 1.0.
    """
    for i in range(entries.shape[0]):
        out[i] = 0.0
        if entries[i] == 0:
            continue
        first = begins[i]
        last = begins[i + 1] - 1
        below = _rank(fences, values, first, last, entries[i], block, low, ends[0])
        upto = np.float64(entries[i])
        if high < np.uint64(0xFFFFFFFFFFFFFFFF):
            above = high + np.uint64(1)
            upto = _rank(fences, values, first, last, entries[i], block, above, ends[1])
        out[i] = max(0.0, upto - below)
        at = first_at_least(fences, first, last + 1, low)
        if at > last:
            continue
        if fences[at] <= high:
            out[i] = max(out[i], often[at, 0])
        elif low == high and at > first:
            out[i] = max(out[i], often[at - 1, 1])


class RunFences:
    def __init__(self, runs: Sequence[Run], attribute: Attribute) -> None:
        self.runs = runs
        self.floats = attribute.storage is Storage.FLOAT
        self.text = any(run.text for run in runs)
        self.filled = next((run for run in runs if run.entries), None)
        self.fences = np.concatenate([np.zeros(0, np.uint64), *(run.fences for run in runs)])
        self.values = float_values(self.fences[: self.floats * len(self.fences)])
        self.begins = np.cumsum([0, *(len(run.fences) for run in runs)])
        self.entries = np.array([run.entries for run in runs], np.int64)
        self.often = np.concatenate([np.zeros((0, 2)), *(run.frequencies for run in runs)])

    def between(self, low: int, high: int) -> npt.NDArray[np.float64]:
        counts, ends = np.empty(len(self.runs)), np.array([low, high], np.uint64)
        _estimate(
            self.fences, self.values, self.begins, self.entries, self.often, BLOCK_ENTRIES,
            ends[0], ends[1], float_values(ends), counts,
        )  # fmt: skip
        return counts


def estimate_runs(
    indexes: OpenedIndexes,
    fences: RunFences,
    atoms: Sequence[Atom],
    attribute: Attribute,
    absent: bool = True,
) -> npt.NDArray[np.float64]:
    """Estimated matches of each run, without reading blocks; ``absent`` counts missing PREVs."""
    runs = fences.runs
    total = np.zeros(len(runs))
    if fences.text and len(runs) > 1:  # keys are ranks, which differ between runs
        estimates: dict[int, float] = {}
        for i, run in enumerate(runs):
            if id(run) not in estimates:
                each = estimate_runs(indexes, RunFences([run], attribute), atoms, attribute)
                estimates[id(run)] = float(each[0])
            total[i] = estimates[id(run)]
        return total
    if fences.filled is not None:
        spans, _ = _ranges(indexes, fences.filled, atoms, attribute)
        for low, high in spans:
            total += fences.between(low, high)
    if any(isinstance(atom, IsNull) for atom in atoms):
        total += [
            run.nulls if run.unknown < 0 else run.unknown + absent * run.absent for run in runs
        ]
    return total


def excluded(run: Run, keys: KeyRanges, absent: int | None = None) -> bool:
    """Whether the bounds of a run exclude every atom; ``absent`` as for ``mark_run``."""
    spans, nulls = keys.of(run)
    if nulls and (run.nulls if run.unknown < 0 else run.unknown or (run.absent and absent != 0)):
        return False
    if not run.entries:
        return True
    least, most = int(run.fences[0]), int(run.fences[-1])
    return all(high < least or low > most for low, high in spans)


def entries_between(
    indexes: OpenedIndexes, run: Run, low: int, high: int, metrics: IndexMetrics
) -> tuple[int, int]:
    """Entries [first, end) of a run with keys in [low, high]."""
    fences = run.fences[:-1]
    if not run.entries or high < int(fences[0]) or low > int(run.fences[-1]):
        return 0, 0
    first = 0
    if low > int(fences[0]):
        block = int(np.searchsorted(fences, np.uint64(low), side="left")) - 1
        words = indexes.words(b"k", run, block)
        metrics.blocks_read += 1
        metrics.bytes_read += words.nbytes
        within = entry_at(words, run.block_entries(block), low, upper=False)
        first = block * BLOCK_ENTRIES + within
    if high >= int(run.fences[-1]):
        return first, run.entries
    block = int(np.searchsorted(fences, np.uint64(high), side="right")) - 1
    words = indexes.words(b"k", run, block)
    metrics.blocks_read += 1
    metrics.bytes_read += words.nbytes
    end = block * BLOCK_ENTRIES + entry_at(words, run.block_entries(block), high, upper=True)
    return first, max(first, end)


def read_entries(
    indexes: OpenedIndexes, run: Run, low: int, high: int, metrics: IndexMetrics
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """Keys and run-relative positions of entries with keys in [low, high], in key order."""
    first, end = entries_between(indexes, run, low, high, metrics)
    metrics.entries_read += end - first
    keys, positions = np.empty(end - first, np.uint64), np.empty(end - first, np.int64)
    at = first
    while at < end:
        block = at // BLOCK_ENTRIES
        start = block * BLOCK_ENTRIES
        stop = min(end, start + BLOCK_ENTRIES)
        data = memoryview(indexes.block(b"k", run, block))
        count = run.block_entries(block)
        part = unpack(data, Encoding.DELTA, count, at - start, stop - start)
        keys[at - first : stop - first] = part.view(np.uint64)
        words = indexes.words(b"p", run, block)
        metrics.blocks_read += 2
        metrics.bytes_read += len(data) + words.nbytes
        out = positions[at - first : stop - first]
        unpack_positions(words, run.width, at - start, stop - start, out)
        at = stop
    return keys, positions


def read_nulls(indexes: OpenedIndexes, run: Run) -> npt.NDArray[np.int64]:
    """Run-relative positions of the events without a value, ascending."""
    if not run.entries:
        return np.arange(run.end - run.first)
    positions = np.empty(run.nulls, np.int64)
    if run.nulls:
        unpack_positions(indexes.words(b"n", run), run.width, 0, run.nulls, positions)
    return positions


def mark_run(
    run: Run,
    keys: KeyRanges,
    base: int,
    bits: npt.NDArray[np.uint64],
    size: int,
    metrics: IndexMetrics,
    absent: int | None = None,
) -> None:
    """Set the bits of matching events; ``base`` (perhaps negative) is the bit of the run's first
    position.  From position ``absent`` on a missing PREV event makes a derived value NULL; before,
    and without it, the event may precede the run: IS NULL then means *may be anything*.
    """
    spans, nulls = keys.of(run)
    indexes = keys.indexes
    metrics.runs_read += 1
    if nulls and run.nulls:
        if run.unknown < 0 and not run.listed:
            _mark_all(base, run.end - run.first, bits, size)
            metrics.entries_read += run.nulls
        elif run.listed:
            certain = run.nulls if run.unknown < 0 else run.unknown
            until = certain if absent == 0 else certain + run.absent
            words = indexes.words(b"n", run)
            mark(words, run.width, 0, certain, base, bits, size)
            sure_until = size if absent is None else min(size, base + absent)
            mark(words, run.width, certain, until, base, bits, sure_until)
            metrics.entries_read += until
    for low, high in spans:
        first, end = entries_between(indexes, run, low, high, metrics)
        metrics.entries_read += end - first
        while first < end:
            block = first // BLOCK_ENTRIES
            words = indexes.words(b"p", run, block)
            metrics.blocks_read += 1
            metrics.bytes_read += words.nbytes
            start = block * BLOCK_ENTRIES
            stop = min(end, start + BLOCK_ENTRIES)
            mark(words, run.width, first - start, stop - start, base, bits, size)
            first = stop


def _mark_all(base: int, count: int, bits: npt.NDArray[np.uint64], size: int) -> None:
    low, high = max(0, base), min(size, base + count)
    if high > low:
        flags = np.unpackbits(bits.view(np.uint8), bitorder="little")
        flags[low:high] = 1
        bits[:] = np.packbits(flags, bitorder="little").view(np.uint64)

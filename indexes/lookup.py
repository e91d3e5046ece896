"""Range lookups: from ranges over values to bits over positions.

Purpose
    :func:`mark_run` sets a bit for every event of a run that satisfies one of several atoms
    (ranges, IS NULL, IS NOT NULL on one attribute); :func:`estimate_run` says about how many there
    are without reading blocks.

Cost
    A range reads two key blocks to find its ends, then only position blocks between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..compiled import kernel
from ..schema import Attribute
from ..store.prune import IsNull, NotNull, Range
from .kernels import lower_entry, mark, upper_entry
from .keys import KEY_MAX, key_range
from .opened import OpenedIndexes
from .runs import BLOCK_ENTRIES, Run, read_dictionary

__all__ = [
    "Atom",
    "IndexMetrics",
    "KeyRanges",
    "RunFences",
    "estimate_run",
    "estimate_runs",
    "excluded",
    "mark_run",
]

Atom = Range | IsNull | NotNull
"""A condition on one attribute that an index can look up."""


@dataclass
class IndexMetrics:
    """What lookups touched; each adds to the object that it is given."""

    entries_read: int = 0
    blocks_read: int = 0
    bytes_read: int = 0
    runs_read: int = 0
    runs_skipped: int = 0
    events_evaluated: int = 0


def _ranges(
    indexes: OpenedIndexes, run: Run, atoms: Sequence[Atom], attribute: Attribute
) -> tuple[list[tuple[int, int]], bool]:
    """Disjoint key ranges of the atoms, ascending, and whether nulls are wanted."""
    found: list[tuple[int, int]] = []
    nulls = False
    for atom in atoms:
        if isinstance(atom, IsNull):
            nulls = True
        elif isinstance(atom, NotNull):
            found.append((0, KEY_MAX))
        elif run.entries:
            dictionary = None
            if run.text == "dictionary":
                dictionary = read_dictionary(indexes.dictionary(run))
            span = key_range(atom, attribute, dictionary)
            if span is not None:
                found.append(span)
    found.sort()
    merged: list[tuple[int, int]] = []
    for low, high in found:
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged, nulls


class KeyRanges:
    """What atoms on one attribute mean as key ranges of a run, made once where runs share keys."""

    def __init__(self, indexes: OpenedIndexes, atoms: Sequence[Atom], attribute: Attribute) -> None:
        self.indexes = indexes
        self.atoms = atoms
        self.attribute = attribute
        self._shared: tuple[list[tuple[int, int]], bool] | None = None

    def of(self, run: Run) -> tuple[list[tuple[int, int]], bool]:
        """Disjoint key ranges, ascending, and whether nulls are wanted."""
        if run.text or not run.entries:  # strings are ranks in the run's own dictionary
            return _ranges(self.indexes, run, self.atoms, self.attribute)
        if self._shared is None:
            self._shared = _ranges(self.indexes, run, self.atoms, self.attribute)
        return self._shared


def estimate_run(
    indexes: OpenedIndexes, run: Run, atoms: Sequence[Atom], attribute: Attribute
) -> float:
    """About how many events of a run satisfy one of the atoms."""
    spans, nulls = _ranges(indexes, run, atoms, attribute)
    return sum(run.estimate(low, high) for low, high in spans) + (run.nulls if nulls else 0)


@kernel
def _ranks(fences, begins, entries, block, key, beyond, out):  # type: ignore[no-untyped-def]
    """About how many entries of each run have keys below ``key`` (all when ``beyond``)."""
    for i in range(entries.shape[0]):
        first = begins[i]
        last = begins[i + 1] - 1
        if entries[i] == 0:
            out[i] = 0.0
        elif beyond or key > fences[last]:
            out[i] = entries[i]
        elif key <= fences[first]:
            out[i] = 0.0
        else:
            low = first
            high = last
            while low < high:  # first fence that is not below the key
                middle = (low + high) // 2
                if fences[middle] < key:
                    low = middle + 1
                else:
                    high = middle
            number = low - 1 - first
            left = fences[first + number]
            right = fences[first + number + 1]
            within = min(block, entries[i] - number * block)
            part = 1.0
            if right > left:
                part = min(1.0, np.float64(key - left) / np.float64(right - left))
            out[i] = number * block + part * within


class RunFences:
    """The fences of several runs of one attribute, side by side."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs
        self.text = any(run.text for run in runs)
        self.filled = next((run for run in runs if run.entries), None)
        self.fences = np.concatenate([np.zeros(0, np.uint64), *(run.fences for run in runs)])
        self.begins = np.cumsum([0, *(len(run.fences) for run in runs)])
        self.entries = np.array([run.entries for run in runs], np.int64)


def estimate_runs(
    indexes: OpenedIndexes, known_runs: RunFences, atoms: Sequence[Atom], attribute: Attribute
) -> npt.NDArray[np.float64]:
    """About how many events of each run satisfy one of the atoms: :func:`estimate_run` of many."""
    runs = known_runs.runs
    total = np.zeros(len(runs))
    if known_runs.text:  # keys are ranks, other ones in every run
        known: dict[object, float] = {}
        for i, run in enumerate(runs):
            total[i] = known.setdefault(id(run), estimate_run(indexes, run, atoms, attribute))
        return total
    if known_runs.filled is not None:
        spans, _ = _ranges(indexes, known_runs.filled, atoms, attribute)
        fences, begins, entries = known_runs.fences, known_runs.begins, known_runs.entries
        below, upto = np.empty(len(runs)), np.empty(len(runs))
        for low, high in spans:
            _ranks(fences, begins, entries, BLOCK_ENTRIES, np.uint64(low), False, below)
            beyond = high >= KEY_MAX
            _ranks(
                fences, begins, entries, BLOCK_ENTRIES, np.uint64(min(high + 1, KEY_MAX)), beyond,
                upto,
            )  # fmt: skip
            total += np.maximum(0.0, upto - below)
    if any(isinstance(atom, IsNull) for atom in atoms):
        total += [run.nulls for run in runs]
    return total


def excluded(run: Run, keys: KeyRanges) -> bool:
    """Whether the bounds of a run rule every atom out."""
    spans, nulls = keys.of(run)
    if nulls and run.nulls:
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
        within = lower_entry(words, run.block_entries(block), np.uint64(low))
        first = block * BLOCK_ENTRIES + within
    if high >= int(run.fences[-1]):
        return first, run.entries
    block = int(np.searchsorted(fences, np.uint64(high), side="right")) - 1
    words = indexes.words(b"k", run, block)
    metrics.blocks_read += 1
    metrics.bytes_read += words.nbytes
    end = block * BLOCK_ENTRIES + upper_entry(words, run.block_entries(block), np.uint64(high))
    return first, max(first, end)


def mark_run(
    run: Run,
    keys: KeyRanges,
    base: int,
    bits: npt.NDArray[np.uint64],
    size: int,
    metrics: IndexMetrics,
) -> None:
    """Set the bits of the events of a run that satisfy one of the atoms.

    Parameters
    ----------
    keys : KeyRanges
        Of atoms on the run's attribute; an event that satisfies any of them counts.
    base : int
        Bit of the run's first position; may be negative.
    bits : uint64[words]
    size : int
        Bits that there are; positions beyond are left out.
    metrics : IndexMetrics
        Added to.
    """
    spans, nulls = keys.of(run)
    indexes = keys.indexes
    metrics.runs_read += 1
    if nulls and run.nulls:
        if run.entries == 0:
            _mark_all(base, run.end - run.first, bits, size)
        else:
            mark(indexes.words(b"n", run), run.width, 0, run.nulls, base, bits, size)
        metrics.entries_read += run.nulls
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

"""Roots of adjacent segments as tables, from the pages of a manifest (``manifest_pages``).

An aggregate over a long range merges thousands with one kernel call, without opening a segment.
Segments without a root in a page must be opened.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..core.caches import Lru
from ..errors import CorruptBlock
from ..schema import StreamSchema
from .catalog import SegmentList, StreamManifest
from .file_contract import Files
from .manifest_pages import read_roots
from .segment_list import PageRef

__all__ = ["RootRun", "RootRuns"]

Table = npt.NDArray[np.int64]
BYTES_REMEMBERED = 64 << 20


class RootRun(NamedTuple):
    """Roots of adjacent segments with the same columns; ``table`` begins ``skipped`` segments
    earlier.
    """

    first: int
    end: int
    schema: StreamSchema
    table: Table
    skipped: int = 0


class RootRuns:
    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._known = Lru[PageRef, list[RootRun]](BYTES_REMEMBERED, _bytes)

    def between(
        self, manifest: StreamManifest, segments: SegmentList, first: int, end: int
    ) -> Iterator[RootRun]:
        """Runs of the known roots of segments [first, end), in order, under a manifest."""
        at = 0
        for page in segments.pages:
            begin, at = at, at + page.segments
            if at <= first or begin >= end:
                continue
            runs = self._known.get(page)
            if runs is None:
                runs = self._read(manifest, segments[begin:at], page)
                self._known.put(page, runs)
            for run in runs:
                low, high = max(first, begin + run.first), min(end, begin + run.end)
                if low < high:
                    yield RootRun(low, high, run.schema, run.table, low - begin - run.first)

    def _read(self, manifest: StreamManifest, entries: SegmentList, page: PageRef) -> list[RootRun]:
        try:
            heights, roots = read_roots(self._files, self._directory, page)
        except (FileNotFoundError, CorruptBlock):
            return []  # fall back to the segments
        kinds = np.stack([*entries.shapes, heights > 0])
        edges = np.flatnonzero((kinds[:, 1:] != kinds[:, :-1]).any(axis=0)) + 1
        found = []
        bounds = [0, *edges.tolist(), len(entries)]
        for first, end in pairwise(bounds):
            if not heights[first]:
                continue
            how = manifest.read_as(entries[first])
            table = np.ascontiguousarray(np.stack(roots[first:end], axis=1))
            schema = how.schema
            if how.evolution is not None:
                table, schema = how.evolution.table(table), how.evolution.now
            table.flags.writeable = False
            found.append(RootRun(first, end, schema, table))
        return found


def _bytes(runs: list[RootRun]) -> int:
    return 1 + sum(run.table.nbytes for run in runs)

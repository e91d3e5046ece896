"""Roots of neighbouring segments as one table, read from the pages of a manifest.

Purpose
    An aggregate over a year merges the roots of all segments in it.  The pages have these
    (:mod:`.manifest_pages`): :class:`RootRuns` gives them as tables in the form of a node's, so
    that a kernel merges thousands at once and no segment is opened.

Guarantee
    What a table says of a segment is what its own root says.  Where no page has the root of a
    segment, or its page has gone with its version, there is none here either, and the segment is
    looked at itself.
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
    """Segments that follow each other and have the same columns.

    Attributes
    ----------
    first, end : int
        Their places in the list.
    schema : StreamSchema
        Of the table.
    table : int64[rows, segments]
        Their roots, behind those of others.
    skipped : int
        So many others.
    """

    first: int
    end: int
    schema: StreamSchema
    table: Table
    skipped: int = 0


class RootRuns:
    """The roots in the pages of a stream's manifests; those of some pages are remembered.

    Parameters
    ----------
    directory : str
        Of the stream.
    """

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._known = Lru[PageRef, list[RootRun]](BYTES_REMEMBERED, _bytes)

    def between(
        self, manifest: StreamManifest, segments: SegmentList, first: int, end: int
    ) -> Iterator[RootRun]:
        """Runs of the roots that are known of the segments [first, end), in order.

        Parameters
        ----------
        manifest : StreamManifest
            How they are read.
        """
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
            return []  # the segments say the same
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

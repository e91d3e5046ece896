"""Rows of both sides of a live recency join, kept from one step to the next, and never the truth.

Purpose
    :class:`RecentState` keeps live rows whose partners may still become known, and archive rows
    near which live rows may still come, so that a step joins what it brings and nothing else.

Layout
    ::

        archive rows      | read when a live row asks for them | kept, each as it is known
                          ........................... covered   settled
        live rows                                               | kept

    *settled*: every archive row that ends before it is known.  *covered*: every archive row that
    ends at it or later, is known, and may still have partners, is kept.

Guarantee
    It holds for one watermark.  Whatever goes wrong, it can be dropped: the next one is built from
    the streams.

Limits
    Archive rows take at most :data:`ARCHIVE_BYTES_MAX`: beyond it they are forgotten, and read
    through the store when a live row comes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..query.pattern.groups import KeyCodes
from .recent_rows import TimedRows
from .removals import Removals

__all__ = ["ARCHIVE_BYTES_MAX", "RecentState"]

Mask = npt.NDArray[np.bool_]
ARCHIVE_BYTES_MAX = 32 << 20
SPARE_ROWS = 1 << 10
"""Of more rows than these half must be of no use any more before they are forgotten."""


class RecentState:
    """Rows of both sides at a watermark.

    Parameters
    ----------
    watermark : int
    codes : KeyCodes or None
        Of the keys of both sides.
    live, archive : TimedRows
    met : bool array
        Of each live row, whether it has had a partner.
    covered : int
        See the module.
    gone : mapping of str to Removals
        What had gone from the sources when it was made.
    """

    def __init__(
        self,
        watermark: int,
        codes: KeyCodes | None,
        live: TimedRows,
        archive: TimedRows,
        met: Mask,
        covered: int,
        gone: dict[str, Removals],
    ) -> None:
        self.watermark = watermark
        self.codes = codes
        self.live, self.archive = live, archive
        self.met = met
        self.covered = covered
        self.gone = gone

    def let_go(self, settled: int, needed: int) -> None:
        """Forget live rows that are settled, and archive rows that begin before a tick."""
        waiting = self.live.end > settled
        self.live, self.met = self.live.where(waiting), self.met[waiting]
        alive = (self.archive.start >= needed) & self.archive.known
        dead = len(alive) - int(alive.sum())
        if dead and (len(alive) < SPARE_ROWS or 2 * dead > len(alive)):
            self.archive = self.archive.where(alive)
        if self.archive.nbytes > ARCHIVE_BYTES_MAX and self.covered < settled:
            self.archive = self.archive.where(self.archive.end >= settled)
            self.covered = settled

    @property
    def first(self) -> int | None:
        """Where the oldest row begins; None without rows."""
        starts = [int(rows.start.min()) for rows in (self.live, self.archive) if len(rows)]
        return min(starts, default=None)

    @property
    def worn(self) -> bool:
        """Whether keys are numbered that hardly any row has."""
        rows = len(self.live) + len(self.archive)
        return self.codes is not None and self.codes.count > 64 * SPARE_ROWS + 4 * rows

    @property
    def nbytes(self) -> int:
        """Memory that is kept."""
        return self.live.nbytes + self.archive.nbytes + self.met.nbytes

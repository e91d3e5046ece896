"""Cache of both sides' rows in a live recency join at a watermark::

    archive rows      | read when a live row needs them    | kept, as they become known
                      ........................... covered   settled
    live rows                                               | kept

*settled*: every archive row that ends before it is known.  *covered*: every known archive row that
ends at or after it is kept, at most ``ARCHIVE_BYTES_MAX``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..query.pattern.columns import KeyCodes
from .recent_rows import TimedRows
from .removals import Removals

__all__ = ["ARCHIVE_BYTES_MAX", "RecentState"]

Mask = npt.NDArray[np.bool_]
ARCHIVE_BYTES_MAX = 32 << 20
SPARE_ROWS = 1 << 10
"""Above this number, rows are removed only when half of them are obsolete."""


class RecentState:
    """``met``: live rows that have had a partner."""

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
        starts = [int(rows.start.min()) for rows in (self.live, self.archive) if len(rows)]
        return min(starts, default=None)

    @property
    def worn(self) -> bool:
        """Whether most numbered keys have no row any more."""
        rows = len(self.live) + len(self.archive)
        return self.codes is not None and self.codes.count > 64 * SPARE_ROWS + 4 * rows

    @property
    def nbytes(self) -> int:
        return self.live.nbytes + self.archive.nbytes + self.met.nbytes

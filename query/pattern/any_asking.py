"""Evaluates one condition between two variables over the rows of a buffer, in parts for threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from . import any_partners as partners
from . import machine as m
from .any_pairs import Asked
from .image import H_COLUMN
from .search import Rows, Task

__all__ = ["Asking", "CannotAsk", "Pairs"]

IntArray = npt.NDArray[np.int64]
Check = Callable[[], None] | None

SLICE_TESTS = 20_000_000
PAIRS_FIRST = 1 << 12
SAMPLED_ROWS, SAMPLED_TESTS = 64, 2000
NONE = np.zeros(0, np.int64)


class CannotAsk(Exception):
    """A condition cannot be computed for some pair of rows."""


class Pairs(NamedTuple):
    """Partners per row of the earlier variable (``counts``), all partners, and pairs tested."""

    counts: IntArray
    partner: npt.NDArray[np.int32]
    tested: int


@dataclass(frozen=True)
class Asking:
    """A condition that reads one other variable, encoded as ``spec`` (``any_partners``), and the
    ascending rows ``left`` (in partitions ``groups``) and ``right`` to test.  ``depth``: slots of
    the path.
    """

    one: Asked
    spec: IntArray
    depth: int
    left: IntArray
    groups: IntArray
    right: IntArray
    image: IntArray
    offsets: IntArray
    rows: Rows
    task: Task
    key: IntArray = field(default_factory=lambda: NONE)
    keys: IntArray = field(default_factory=lambda: NONE)
    keyed: IntArray = field(default_factory=lambda: NONE)

    def share(self) -> float:
        """Estimated selectivity, from a sample; 1 if the condition fails on a pair of it."""
        # a strided view would need another kernel form
        some = np.arange(0, len(self.left), max(1, len(self.left) // SAMPLED_ROWS))
        sampled = replace(self, left=self.left[some], groups=self.groups[some])
        progress, counts = np.zeros(4, np.int64), np.zeros(len(some), np.int64)
        partner = np.empty(SAMPLED_TESTS * 8, np.int32)
        status = sampled._join(SAMPLED_TESTS, progress, counts, partner)
        tested = int(progress[partners.TESTED])
        if status == partners.FAILED or not tested:
            return 1.0
        return max(1, int(progress[partners.USED])) / tested

    def pairs(self, most: int, check: Check) -> Pairs | None:
        """All pairs; None when there are more than ``most``.  Raises CannotAsk."""
        counts, progress = np.zeros(len(self.left), np.int64), np.zeros(4, np.int64)
        partner = np.empty(max(PAIRS_FIRST, 2 * len(self.left)), np.int32)
        while True:
            before = progress[partners.NEXT]
            status = self._join(SLICE_TESTS, progress, counts, partner)
            if check is not None:
                check()
            if status == partners.FAILED:
                raise CannotAsk
            if status:
                used = int(progress[partners.USED])
                return Pairs(counts, partner[:used], int(progress[partners.TESTED]))
            full = progress[partners.NEXT] == before
            if full or progress[partners.USED] * 2 > len(partner):
                if 2 * len(partner) > most:
                    return None
                partner = np.concatenate([partner, np.empty_like(partner)])

    def by_keys(self) -> Asking:
        """The same condition, with an equality of two columns turned into a key lookup."""
        spec = self.spec
        is_float = bool(spec[partners.OP] == m.EQ_F)
        equality = (is_float or spec[partners.OP] == m.EQ_I) and not spec[partners.NEGATED]
        if spec[partners.KIND] != partners.COMPARE or not equality:
            return self
        own, own_valid = self._column(int(spec[partners.X_COLUMN]), self.left, is_float)
        other, valid = self._column(int(spec[partners.Y_COLUMN]), self.right, is_float)
        there = np.flatnonzero(valid)
        there = there[np.argsort(other[there], kind="stable")]
        ordered = other[there]  # NaN sorts last
        key, keys = np.searchsorted(ordered, own), np.searchsorted(ordered, ordered)
        if len(ordered):
            found = ordered[np.minimum(key, len(ordered) - 1)]
            own_valid = own_valid & ((found == own) | ((found != found) & (own != own)))
        key[~own_valid] = -1
        keyed = spec.copy()
        keyed[partners.KIND] = partners.EQUAL
        return replace(self, spec=keyed, key=key, keys=keys, keyed=self.right[there])

    def parts(self, count: int) -> Iterator[Asking]:
        cuts = np.linspace(0, len(self.left), count + 1).astype(np.int64).tolist()
        for low, high in pairwise(cuts):
            image = self.image
            if count > 1 and self.spec[partners.KIND] == partners.PROGRAM:
                image = image.copy()  # the kernel writes to its path
            yield replace(
                self, left=self.left[low:high], groups=self.groups[low:high],
                key=self.key[low:high], image=image,
            )  # fmt: skip

    def _join(
        self, budget: int, progress: IntArray, counts: IntArray, partner: npt.NDArray[np.int32]
    ) -> int:
        asking = partners.Buffer(self.image, self.image.view(np.float64), self.offsets)
        status: int = partners.join(
            self.spec, asking, self.one.slots[0], self.depth, self.one.place, self.left,
            self.groups, self.right, self.key, self.keys, self.keyed, self.rows.time, self.task,
            budget, progress, counts, partner,
        )  # fmt: skip
        return status

    def _column(
        self, column: int, chosen: IntArray, is_float: bool
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        image = self.image
        at = int(image[H_COLUMN]) + 3 * column
        values = (image.view(np.float64) if is_float else image)[int(image[at]) + chosen]
        bits = int(image[at + 1])
        if bits < 0:
            return values, np.ones(len(chosen), np.bool_)
        return values, (image[bits + (chosen >> 6)] >> (chosen & 63)) & 1 == 1

"""Chooses how many first events share lists, and allocates room for ``any_diagram.draw``.

::

    events    1 .. 8       9 .. 72         73 .. 136    ...
    lists     own          shared          shared

The first block, or a sample, measures the cost of own lists.  Sharing stops when it costs more, or
when a condition fails that might be evaluated for no first event.  The result is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from . import any_diagram as diagram
from .any_diagram import ALL, CANNOT, LONG, Block, Diagram, Domain
from .any_pairs import Shape
from .search import Task

__all__ = ["Blocks", "DrawnBlock", "Scene", "Starts"]

IntArray = npt.NDArray[np.int64]
Check = Callable[[], None] | None

SIZE_FIRST = 1 << 13
SLICE_STEPS = 4_000_000
"""Rows examined between two cancellation checks; doubled while one first event needs more."""
BYTES_A_CANDIDATE = 200
BLOCK_FIRST, BLOCK_LEAST, BLOCK_MAX = 8, 64, 1 << 10
"""First events of the first block; least and most of a block that shares lists."""
WINDOWS_A_BLOCK = 4
DEARER, SPARE_STEPS = 2, 1000
"""Cost ratio, shared to own lists, above which sharing is given up."""


class Starts(NamedTuple):
    """Rows at which a match may begin, in result order, and their partitions.
    ``classes``: position of each such row.  ``stop``: per partition, the end of the rows that a
    match may contain.
    """

    row: IntArray
    group: IntArray
    classes: npt.NDArray[np.int32]
    stop: IntArray


class Scene(NamedTuple):
    starts: Starts
    offsets: IntArray
    image: IntArray
    shape: Shape
    domain: Domain
    task: Task

    def starts_of(self, windows: float) -> int:
        """Number of first events that share lists, for a span of so many windows."""
        row, time = self.starts.row, self.domain.time
        if self.task.window < 0 or not len(row):
            return BLOCK_MAX
        span = abs(int(time[row[-1]]) - int(time[row[0]])) + 1
        wanted = windows * len(row) * min(1.0, self.task.window / span)
        return int(min(max(wanted, BLOCK_LEAST), BLOCK_MAX))

    def block(self, chosen: IntArray) -> tuple[Block, IntArray]:
        row = self.starts.row[chosen]
        order = np.argsort(row, kind="stable")
        turns = np.empty_like(order)
        turns[order] = np.arange(len(order))
        row = row[order]
        none, table = np.empty(len(row), np.int64), (len(row), len(self.shape.gap))
        place = self.starts.classes[row].astype(np.int64)
        last, until = np.empty(table, np.int64), np.empty(table, np.int64)
        block = Block(
            row, self.starts.group[chosen][order], place, none, last, until, none.copy()
        )  # fmt: skip
        return block, turns


class DrawnBlock(NamedTuple):
    """A code as ``any_diagram.ALL``, the block, and the index in it of each event, in order."""

    status: int
    block: Block
    turns: IntArray
    own: bool


class Blocks:
    """Draws blocks of first events, with room for ``size`` candidates.  ``most``: candidates beyond
    which a block shrinks instead.  ``each``: steps per first event with its own lists, if known.
    """

    def __init__(
        self, scene: Scene, most: int, memory_bytes: int, each: float | None = None
    ) -> None:
        self._scene = scene
        self._most = most
        self._memory_bytes = memory_bytes
        self._budget = SLICE_STEPS
        self._wide = BLOCK_FIRST
        self._allowed: float | None = None  # steps per event that shares lists; None: unknown
        # absences after a match depend on its window
        self._settled = bool((scene.shape.ends > 0).any())
        self._own = True
        if each is not None and not self._settled:
            self._share(each)
        self.progress = np.zeros(7, np.int64)
        self.progress[diagram.USED] = 1
        self._make_room(SIZE_FIRST)

    def _make_room(self, size: int) -> None:
        shape = self._scene.shape
        slots, positions = shape.keeps.shape[1], len(shape.gap)
        self.size = size
        self.diagram = Diagram(
            np.empty((size, 8), np.int32), np.empty((size, 13), np.int32),
            np.empty((size, slots), np.int32), np.empty((positions, 2), np.int32),
            np.zeros((1 << (2 * size - 1).bit_length(), 2), np.int32),
        )  # fmt: skip

    def try_some(self, chosen: IntArray) -> tuple[float, float] | None:
        """Mean candidates and steps of first events with own lists; None: slice too short."""
        block, _ = self._scene.block(chosen)
        if not len(chosen) or self._draw(block, self._budget) != ALL:
            return None
        drawn, spent = self.progress[diagram.DRAWN], self.progress[diagram.SPENT]
        return drawn / len(chosen), (drawn + spent) / len(chosen)

    def draw(self, begun: int, check: Check) -> DrawnBlock:
        while True:
            upto = min(len(self._scene.starts.row), begun + self._wide)
            block, turns = self._scene.block(np.arange(begun, upto))
            several, budget = len(turns) > 1, self._budget
            if not self._own and self._allowed is not None:
                budget = min(budget, int(self._allowed * len(turns)) + SPARE_STEPS)
            status = self._draw(block, budget)
            if check is not None:
                check()
            drawn = DrawnBlock(status, block, turns, self._own)
            if status == ALL:
                self._note(len(turns))
                return drawn
            large = self.size * 4 * BYTES_A_CANDIDATE > self._memory_bytes
            dear = status == LONG and budget < self._budget
            if not self._own and (status == CANNOT or dear):
                self._own = self._settled = True
            elif status == CANNOT:
                return drawn
            elif several and (status == LONG or large or self.size >= self._most):
                self._wide = max(1, self._wide // 4)
            elif status == LONG:
                self._budget *= 2
            elif large:
                return drawn
            else:
                self._make_room(self.size * 4)

    def _draw(self, block: Block, budget: int) -> int:
        scene = self._scene
        status: int = diagram.draw(
            block, self._own, scene.offsets, scene.image, scene.image.view(np.float64), scene.shape,
            scene.domain, scene.task, self.diagram, self.progress, budget,
        )  # fmt: skip
        return status

    def _note(self, events: int) -> None:
        self._budget = SLICE_STEPS
        each = int(self.progress[diagram.SPENT] + self.progress[diagram.DRAWN]) / events
        if self._settled:
            return
        if not self._own:
            self._own = self._settled = self._allowed is not None and each > self._allowed
        elif self.progress[diagram.DRAWN]:
            self._share(each)
        else:
            self._wide = min(2 * self._wide, BLOCK_MAX)

    def _share(self, each: float) -> None:
        self._allowed = DEARER * each
        self._own, self._wide = False, self._scene.starts_of(WINDOWS_A_BLOCK)

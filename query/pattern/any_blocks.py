"""Blocks: how many first events share their lists, and whether they do.

Purpose
    :class:`Blocks` supplies :func:`.any_diagram.draw` with room for one block of first events after
    the other.

Layout
    The events of the first block have lists of their own, which says what an event costs so, unless
    some were tried before.  From then on the events of a block share their lists::

        events    1 .. 8       9 .. 72         73 .. 136    ...
        lists     own          shared          shared

    unless that costs more, which it does where conditions with the first event leave next to
    nothing: then all have lists of their own, as where a condition cannot be computed that may be
    asked for no first event at all.  Which it is changes no match.

Limits
    Sharing ends with the block; a few windows make one, so what its first and last events share
    with those of its neighbours is a small part.
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
"""Candidates, and entries, that there is room for at first."""
SLICE_STEPS = 4_000_000
"""Rows that may be looked at between two questions whether to go on; twice as many when one first
event needs more, and so on."""
BYTES_A_CANDIDATE = 200
"""What a candidate takes with its list, its entry, and its count."""
BLOCK_FIRST, BLOCK_LEAST, BLOCK_MAX = 8, 64, 1 << 10
"""First events of the first block; of those that share."""
WINDOWS_A_BLOCK = 4
DEARER, SPARE_STEPS = 2, 1000
"""How much more than lists of their own those that are shared may cost before they are given up."""


class Starts(NamedTuple):
    """Rows that a match may begin with, in the order of the result, and their partitions.

    ``classes``: position of each row of the buffer that is one of them.  ``stop``: per partition
    the end of the rows that a match may hold.
    """

    row: IntArray
    group: IntArray
    classes: npt.NDArray[np.int32]
    stop: IntArray


class Scene(NamedTuple):
    """What is drawn: first events, and the buffer that they are in."""

    starts: Starts
    offsets: IntArray
    image: IntArray
    shape: Shape
    domain: Domain
    task: Task

    def starts_of(self, windows: float) -> int:
        """First events that share lists, by the windows that they span."""
        row, time = self.starts.row, self.domain.time
        if self.task.window < 0 or not len(row):
            return BLOCK_MAX
        span = abs(int(time[row[-1]]) - int(time[row[0]])) + 1
        wanted = windows * len(row) * min(1.0, self.task.window / span)
        return int(min(max(wanted, BLOCK_LEAST), BLOCK_MAX))

    def block(self, chosen: IntArray) -> tuple[Block, IntArray]:
        """Some first events in the order of their rows, and where each of them went."""
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
    """What came of drawing a block.

    ``status``: :data:`.any_diagram.ALL`, or what cannot be helped: CANNOT, or SOME when there is no
    memory for one first event.  ``turns``: which of its events stands where in the order of the
    result.  ``own``: whether each has lists of its own.
    """

    status: int
    block: Block
    turns: IntArray
    own: bool


class Blocks:
    """Draws blocks of first events.

    Parameters
    ----------
    most : int
        Candidates from which on a block is made smaller rather than its room larger.
    memory_bytes : int
        For the candidates of one first event.
    each : float, optional
        Steps that a first event takes with lists of its own, if that is known: the first block then
        shares, too.

    Attributes
    ----------
    size : int
        Candidates that there is room for.
    diagram : Diagram
        The lists of the last block.
    progress : int64 array
        See :data:`.any_diagram.STAMPS`.
    """

    def __init__(
        self, scene: Scene, most: int, memory_bytes: int, each: float | None = None
    ) -> None:
        self._scene = scene
        self._most = most
        self._memory_bytes = memory_bytes
        self._budget = SLICE_STEPS
        self._wide = BLOCK_FIRST
        self._allowed: float | None = None  # steps for each event that shares; None: not known
        # what must not follow a match differs by its window
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
        """Candidates, and steps, of a first event with lists of its own; None when these are long.

        The mean of some.
        """
        block, _ = self._scene.block(chosen)
        if not len(chosen) or self._draw(block, self._budget) != ALL:
            return None
        drawn, spent = self.progress[diagram.DRAWN], self.progress[diagram.SPENT]
        return drawn / len(chosen), (drawn + spent) / len(chosen)

    def draw(self, begun: int, check: Check) -> DrawnBlock:
        """Draw the block that begins with a first event."""
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
        """Learn from a block what its events cost."""
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

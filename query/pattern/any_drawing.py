"""Builds the lists of a buffer's first events, as many at a time as fit into memory.
Each piece reuses the arrays of the previous one unless ``keep`` was called, so memory does not
depend on the number of first events or matches.  Threads draw disjoint parts with their own arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, field
from itertools import pairwise
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...core.caches import lazy
from ...errors import ResourceLimit
from . import any_blocks
from . import any_diagram as diagram
from .any_batches import Lists
from .any_blocks import Blocks, Scene, Starts
from .any_cost import CANDIDATE_COST, START_COST
from .any_lists import ListEntries, Scratch, room_for
from .any_output import Source
from .any_pairs import Pairing
from .any_restriction import restrict
from .any_states import Tables
from .outcomes import overflow
from .search import Task

if TYPE_CHECKING:
    from .any_joins import PairedRows

__all__ = ["Drawing", "Drawn"]

IntArray = npt.NDArray[np.int64]
Check = Callable[[], None] | None

ENTRIES_MAX = 1 << 17
"""Entries held at a time by each thread, unless one first event needs more: fits the CPU cache."""
SAMPLED_STARTS = 16
PART_COST, PARTS_MAX = 50_000.0, 1 << 12
"""Estimated microseconds, without sharing, that make a part (10 ms with it), and most parts."""
WINDOWS_A_PART = 2
"""Least windows per part; lists shared with the neighbouring parts are drawn twice."""


@dataclass
class Drawn:
    """Counters: peak entries held, and lists and candidates built so far."""

    entries: int = 0
    lists: int = 0
    candidates: int = 0
    _guard: Lock = field(default_factory=Lock)

    def add(self, entries: int, lists: int, candidates: int) -> None:
        with self._guard:
            self.entries = max(self.entries, entries)
            self.lists += lists
            self.candidates += candidates


class Drawing:
    def __init__(
        self,
        pairing: Pairing,
        paired: PairedRows,
        starts: Starts,
        task: Task,
        memory_bytes: int,
        text: str,
        describe_row: Callable[[int], str],
        drawn: Drawn,
    ) -> None:
        assert pairing.shape is not None
        self._pairing = pairing
        self._memory_bytes = memory_bytes
        self._text = text
        self._describe_row = describe_row
        domain = paired.domain._replace(
            stop=starts.stop, behind=_behind(paired.absent, pairing.masks)
        )
        self._scene = Scene(starts, paired.offsets, paired.image, pairing.shape, domain, task)
        self._drawn = drawn
        self._each: float | None = None
        self._kept = self._of_many = False

    @lazy
    def cost(self) -> float:
        """Estimated microseconds for lists without sharing, from a sample of first events."""
        count = len(self._scene.starts.row)
        some = np.arange(0, count, max(1, count // SAMPLED_STARTS))
        found = Blocks(self._scene, any_blocks.SIZE_FIRST, self._memory_bytes).try_some(some)
        drawn = float(any_blocks.SIZE_FIRST)
        if found is not None:
            drawn, self._each = found
        return (START_COST + CANDIDATE_COST * drawn) * count

    def parts(self, threads: int) -> list[Source]:
        count, wanted = len(self._scene.starts.row), 1
        if threads > 1:
            most = count // self._scene.starts_of(WINDOWS_A_PART)
            wanted = int(min(self.cost // PART_COST, most, PARTS_MAX))
        if wanted < 2 * threads:
            return [self]
        cuts = np.linspace(0, count, wanted + 1).astype(np.int64).tolist()
        return [self._part(low, high) for low, high in pairwise(cuts)]

    def _part(self, low: int, high: int) -> Drawing:
        part = copy(self)
        starts = self._scene.starts
        some = starts._replace(row=starts.row[low:high], group=starts.group[low:high])
        part._scene = self._scene._replace(starts=some)
        part._of_many = True
        return part

    def keep(self) -> None:
        """Keep the last piece valid: the next one takes new arrays."""
        self._kept = True

    def pieces(self, check: Check) -> Iterator[tuple[Lists, Task]]:
        """All matches, some first events at a time; raises ResourceLimit and SqlError."""
        scene, tables = self._scene, _tables(len(self._scene.shape.gap))
        if self._of_many and not scene.domain.joined.all():
            scene = scene._replace(image=scene.image.copy())  # a private path
        floats, count = scene.image.view(np.float64), len(scene.starts.row)
        blocks = Blocks(scene, ENTRIES_MAX, self._memory_bytes, self._each)
        progress = blocks.progress
        size = blocks.size
        entries, scratch = room_for(size + 1, 1)  # one more for the first event
        marks = np.zeros(scene.domain.pairs.shape, np.int32)
        frames = np.zeros((len(scene.shape.gap) + 2, 2), np.int64)
        made = np.zeros(count, np.int64)
        begun = given = 0
        while begun < count:
            status, block, turns, own = blocks.draw(begun, check)
            if status == diagram.SOME:
                raise self._too_large(int(block.row[0]))
            progress[diagram.NEXT] = 0
            upto = begun + len(turns)
            while status != diagram.ALL or progress[diagram.NEXT] < len(turns):
                if status == diagram.CANNOT:
                    raise overflow(self._text, self._describe_row(int(progress[diagram.FAILED])))
                full = status == diagram.SOME or blocks.size > size
                if full:
                    done = begun + int(progress[diagram.NEXT])
                    yield from self._piece(made, given, done, entries, scratch, progress, tables)
                    given = done
                    if self._kept or size < max(ENTRIES_MAX, blocks.size):
                        size = max(blocks.size, min(ENTRIES_MAX, size * 4))
                        entries, scratch = room_for(size + 1, 1)
                        self._kept = False
                status = restrict(
                    turns, block, own, scene.offsets, scene.image, floats, scene.shape,
                    scene.domain, blocks.diagram, marks, frames, entries, made[begun:upto],
                    progress, any_blocks.SLICE_STEPS,
                )  # fmt: skip
                if check is not None:
                    check()
            self._drawn.add(0, int(progress[diagram.LISTS]), int(progress[diagram.DRAWN]))
            begun = upto
        yield from self._piece(made, given, count, entries, scratch, progress, tables)

    def _piece(
        self,
        made: IntArray,
        begin: int,
        end: int,
        entries: ListEntries,
        scratch: Scratch,
        progress: IntArray,
        tables: Tables,
    ) -> Iterator[tuple[Lists, Task]]:
        starts = self._scene.starts
        self._drawn.add(int(progress[diagram.USED]) - 1, 0, 0)
        progress[diagram.USED] = 1
        some = begin + np.flatnonzero(made[begin:end])
        if len(some):
            numbers = np.arange(len(some))
            lists = Lists(
                starts.classes, tables, entries, scratch, made[some], starts.group[some], numbers,
                starts.stop, apart=True,
            )  # fmt: skip
            # every entry ends in the window of its own start
            yield lists, self._scene.task._replace(window=-1)

    def _too_large(self, row: int) -> ResourceLimit:
        names = dict.fromkeys(a.origin.variable for a in self._pairing.asked)
        return ResourceLimit(
            f"the matches of pattern {self._text} that begin {self._describe_row(row)} need more "
            f"than {self._memory_bytes} bytes to be told apart by the conditions of "
            f"{', '.join(names)}; narrow WITHIN or these conditions"
        )


def _behind(absent: IntArray, masks: tuple[int, ...]) -> IntArray:
    """For each absence and row, the first later row that violates the absence."""
    count = len(absent)
    found = np.full((len(masks), count), count, np.int64)
    for i, mask in enumerate(masks):
        hit = np.where(absent & mask, np.arange(count), count)[::-1]
        found[i, :-1] = np.minimum.accumulate(hit)[::-1][1:]
    return found


def _tables(positions: int) -> Tables:
    """Tables for the walk with positions as states: one labeling each."""
    each, none = np.arange(positions, dtype=np.int64), np.zeros(positions, np.int64)
    return Tables(none, none, none, none, each, each, each, none, each, each, none)

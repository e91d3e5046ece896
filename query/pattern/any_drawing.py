"""Builds the lists of a buffer's first events, as many at a time as fit into memory.  Each piece
reuses the arrays of the previous one unless ``keep`` was called, so memory does not depend on the
number of first events or matches.  Threads draw disjoint parts with their own arrays.

Events of the first block have lists of their own; the events of a later block share lists::

    events    1 .. 8       9 .. 72         73 .. 136    ...
    lists     own          shared          shared

The first block, or a sample, measures the cost of own lists.  Sharing stops when it costs more, or
when a condition fails that might be evaluated for no first event.  The result is the same.

Shared lists of a block are then restricted to one first event, as in ``any_lists``.  A list is
traversed from its last candidate to its first, after its child lists; entering it at an earlier
candidate resumes its traversal.  ``DOWN`` is the first candidate done, ``TOP`` the first beyond the
window, ``FIRST`` the last entry written, ``ENTRY`` of a candidate the entry at which the list is
entered there.  Every entry leads to a match in the window.  A candidate is examined once per first
event, however many paths lead to it.

The cost model estimates the work of a backtracking search.  A partial match of ``d`` events ending
at ``p`` is tried with ``rate_q W / d`` rows at each successor ``q`` (``rate_q = n_q / span``): the
next event lies anywhere in the rest of the window that ``d`` ordered events leave (W^d / d! in
all).  Conditions let their selectivity pass.  Rows are assumed to be evenly distributed.  Costs are
microseconds; no choice depends on a factor below two.
"""

# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, field
from itertools import pairwise
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ...core.caches import lazy
from ...core.native import kernel
from ...errors import ResourceLimit
from . import any_diagram as diagram
from . import machine
from .any_diagram import (
    ALL,
    BEGIN,
    CANNOT,
    CHILD,
    DOWN,
    END,
    ENDS,
    ENTRY,
    FAILED,
    FIRST,
    LAST,
    LONG,
    NEXT,
    OF,
    ONWARD,
    PLACE,
    ROW,
    SOME,
    STAMP,
    STAMPS,
    TOP,
    USED,
    Block,
    Diagram,
    Domain,
    candidate_behind,
    fits,
)
from .any_lists import EARLIEST, ListEntries, Scratch, Tables, room_for
from .any_output import Lists, Source
from .any_pairs import Asked, Pairing, Shape
from .search import Task, overflow

if TYPE_CHECKING:
    from .any_diagram import PairedRows

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


@kernel
def restrict(turns, block, own, offsets, image, floats, shape, domain, diagram, marks, frames,
             entries, starts, progress, budget):  # fmt: skip
    """Continue writing the entries of first events; returns a code as ``any_diagram.ALL``.
    ``turns``: first events in result order.  ``starts``: output, entry of each, or 0.  ``marks``,
    ``frames``: scratch.
    """
    spent = np.int64(0)
    image, floats = machine.borrowed(image), machine.borrowed(floats)
    shape, domain = machine.all_borrowed(shape), machine.all_borrowed(domain)
    diagram, block = machine.all_borrowed(diagram), machine.all_borrowed(block)
    entries = machine.all_borrowed(entries)
    row, reach, transition, following, smaller, child_of, final = entries
    made, lists = diagram.made, diagram.lists
    origin = shape.origin
    used = progress[USED]
    room = row.shape[0]
    for i in range(progress[NEXT], turns.shape[0]):
        k = turns[i]
        root = block.root[k]
        starts[i] = 0
        progress[NEXT] = i
        progress[USED] = used
        if spent > budget:
            return LONG
        if root < 0:
            continue
        start = block.row[k]
        p = block.place[k]
        begin = offsets[block.group[k]]
        end = offsets[block.group[k] + 1]
        stop = block.stop[k]
        last = block.last[k]
        progress[STAMPS] += 1
        stamp = progress[STAMPS]
        if not own:
            for c in range(domain.joined.shape[0]):
                if shape.slots[shape.reads[c]] == origin and domain.joined[c]:
                    for j in range(domain.pairs[c, start], domain.pairs[c, start + 1]):
                        marks[c, domain.partner[j]] = stamp
        depth = 0
        frames[0, 0] = root
        frames[0, 1] = candidate_behind(
            made, np.int64(lists[root, BEGIN]), np.int64(lists[root, END]), start
        )
        fresh = True
        while depth >= 0:
            of = frames[depth, 0]
            to = frames[depth, 1]
            if fresh and lists[of, STAMP] != stamp:
                # skip candidates after the last useful row
                position = lists[of, OF]
                e = shape.first[position]
                limit = stop - 1
                if shape.first[position + 1] == e + 1:
                    limit = last[shape.target[e]]
                top = candidate_behind(
                    made, np.int64(lists[of, BEGIN]), np.int64(lists[of, END]), limit
                )
                lists[of, STAMP] = stamp
                lists[of, TOP] = top
                lists[of, DOWN] = top
                lists[of, FIRST] = 0
            fresh = False
            head = lists[of, FIRST]
            d = np.int64(lists[of, DOWN]) - 1
            spent += max(np.int64(0), d - to) + 1
            while d >= to:
                t = np.int64(made[d, PLACE])
                y = np.int64(made[d, ROW])
                alive = made[d, ENDS] < stop and y <= last[t]
                if alive and not own:
                    for c in range(shape.later[t], shape.asks[t + 1]):
                        if domain.joined[c]:
                            alive = alive and marks[c, y] == stamp
                        elif alive:
                            known = diagram.known[of]
                            known[origin] = start
                            truth = fits(
                                c, c + 1, -1, known, y, t, shape, domain, image, floats, begin, end
                            )
                            if truth < 0:
                                progress[FAILED] = y
                                return CANNOT
                            alive = truth > 0
                if alive:
                    onward = np.int64(made[d, ONWARD])
                    child = np.int64(made[d, CHILD])
                    inner = np.int32(0)
                    if onward == of:
                        inner = head
                    elif child >= 0:
                        if lists[onward, STAMP] != stamp or child < lists[onward, DOWN]:
                            depth += 1
                            frames[depth, 0] = onward
                            frames[depth, 1] = child
                            fresh = True
                            break
                        if child < lists[onward, TOP]:
                            inner = made[child, ENTRY]
                    if inner or made[d, LAST]:
                        if used == room:
                            return SOME
                        row[used] = y
                        reach[used] = EARLIEST
                        transition[used] = t
                        following[used] = head
                        smaller[used] = 0
                        child_of[used] = inner
                        final[used] = t if made[d, LAST] else -1
                        head = np.int32(used)
                        used += 1
                made[d, ENTRY] = head
                d -= 1
            lists[of, FIRST] = head
            lists[of, DOWN] = d + 1
            if not fresh:
                depth -= 1
        to = frames[0, 1]
        inner = made[to, ENTRY] if to < lists[root, TOP] else np.int32(0)
        ends_here = shape.ends[p] >= 0
        if shape.ends[p] > 0:
            ends_here = domain.behind[shape.ends[p] - 1, start] >= stop
        if inner or ends_here:
            if used == room:
                return SOME
            row[used] = start
            reach[used] = EARLIEST
            transition[used] = p
            following[used] = 0
            smaller[used] = 0
            child_of[used] = inner
            final[used] = p if ends_here else -1
            starts[i] = used
            used += 1
    progress[NEXT] = turns.shape[0]
    progress[USED] = used
    return ALL


TRY_COST, WALK_COST = 0.15, 0.0005
"""Per row tried with a partial match; per row skipped."""
ROW_COST, EVENT_COST = 0.04, 0.2
"""Of joining: per row of the buffer, and per row and position."""
START_COST, CANDIDATE_COST = 0.6, 0.15
"""Of lists: per first event, and per candidate."""
WORTH = 1000.0
"""Minimum search cost before alternatives are considered; includes loading kernels."""
DEPTH_MAX = 64
ENOUGH = 1e12


def search_cost(
    follow: list[list[int]],
    counts: IntArray,
    asked: tuple[Asked, ...],
    shares: npt.NDArray[np.float64],
    rows: int,
    within: float,
) -> float:
    """Expected microseconds of searching a buffer.
    ``follow``: successors of each position; ``counts``: its rows; ``shares``: selectivities;
    ``within``: fraction of the buffer that a window covers.
    """
    number = counts.tolist()
    held = [1.0] * len(number)
    for one, share in zip(asked, shares.tolist(), strict=True):
        held[one.place] *= share
    starts = float(sum(number[p] for p in follow[0]))
    if not starts:
        return 0.0
    reached = {p: number[p] / starts for p in follow[0]}
    tries, partial = 0.0, 1.0
    for depth in range(1, DEPTH_MAX):
        following: dict[int, float] = {}
        for p, ways in reached.items():
            for q in follow[p]:
                tried = ways * number[q] * within / depth
                tries += tried
                following[q] = following.get(q, 0.0) + tried * held[q]
        reached = {p: ways for p, ways in following.items() if ways}
        partial += sum(reached.values())
        if not reached or partial > ENOUGH:
            break
    return starts * (tries * TRY_COST + partial * rows * within / 2 * WALK_COST)


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
        found = Blocks(self._scene, SIZE_FIRST, self._memory_bytes).try_some(some)
        drawn = float(SIZE_FIRST)
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
                    progress, SLICE_STEPS,
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

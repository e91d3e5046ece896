"""Small appends that wait at the same time become one commit.

Purpose
    A commit of one event costs as much as one of a hundred: a hop to a thread, a record of the log,
    a sync.  :class:`Gathering` lets what arrives while one commit is under way wait, and stores all
    of it with the next.

How it goes
    ::

        event loop     A ─┐  B ─ C ─ D ─┐           E ─┐
        a thread          └ [A] ─ sync ─┴ [B C D] ─ sync ┴ [E] ...
                                        answers A      answers B C D

    One commit at a time for each stream and each promise of durability, so that answers come in the
    order of the appends.  A commit takes one place among the appends, in the name of the client
    whose body has waited longest.

Guarantee
    A body is stored whole, once and as durably as it asked for when its answer is sent, or not at
    all.  One that cannot be stored costs no other: a body with a value that does not fit is left
    out and told to be read with care; where all cannot be stored together for a reason of their
    own, each is.  What the disk refuses is refused to all.

Limits
    Bodies of one commit share its version, and the same ``count``.  An event counts as late when it
    is older than what was stored before the commit.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.append_result import AppendResult
from ...errors import InvalidData, SchemaMismatch
from ...store.tail import ticks_of
from .small_bodies import SmallBody, SmallReader

if TYPE_CHECKING:
    from ...api.streams import Stream
    from .state import Server

__all__ = ["Gathering", "Stored"]

VALUES_TOGETHER_MAX = 64 << 10
"""Values of bodies that are stored together, if there is more than one."""

_Key = tuple[object, SmallReader, str | None]


@dataclass(frozen=True)
class Stored:
    """What became of a body.

    Attributes
    ----------
    late, count, version : int
        As in :class:`AppendResult`.
    waited_s, stored_s : float
        Seconds before its commit began, and within it.
    """

    late: int
    count: int
    version: int
    waited_s: float
    stored_s: float


_Outcome = tuple[int, int, int] | Exception | None
"""Late events, the count afterwards and the commit; what was raised; None: to be read with care."""


@dataclass(eq=False)
class _Waiting:
    """A body whose request waits for its answer: None where it is to be read with care."""

    body: SmallBody
    client: str
    answer: asyncio.Future[Stored | None]
    since: float = field(default_factory=time.perf_counter)

    def settle(self, outcome: _Outcome, begun: float, took: float) -> None:
        """Tell the request, unless it has been cancelled meanwhile."""
        if self.answer.done():
            return
        if isinstance(outcome, tuple):
            self.answer.set_result(Stored(*outcome, begun - self.since, took))
        elif outcome is None:
            self.answer.set_result(None)
        else:
            self.answer.set_exception(outcome)


class Gathering:
    """The small appends of a server that wait; lives on its event loop."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._waiting: dict[_Key, list[_Waiting]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def append(
        self,
        stream: Stream,
        reader: SmallReader,
        body: SmallBody,
        durability: str | None,
        client: str,
    ) -> Stored | None:
        """Return when a body is stored; None when it has to be read with care.

        Raises
        ------
        ChronicleError, Problem
            Nothing of it was stored, as far as is known.
        """
        key = (stream.handle, reader, durability)
        mine = _Waiting(body, client, asyncio.get_running_loop().create_future())
        waiting = self._waiting.get(key)
        if waiting is None:
            self._waiting[key] = [mine]
            task = asyncio.create_task(self._run(key, stream))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            waiting.append(mine)
        return await mine.answer

    async def _run(self, key: _Key, stream: Stream) -> None:
        """Store what waits, until nothing does."""
        server, (_, reader, durability) = self._server, key
        try:
            while self._waiting[key]:
                group: list[_Waiting] = []
                try:
                    async with server.appends.held(self._waiting[key][0].client):
                        group = self._next(key)
                        begun = time.perf_counter()
                        found = await server.call(_store, stream, reader, group, durability)
                except Exception as error:  # no place, or no threads any more
                    found = [error] * len(group or (group := self._next(key)))
                took = time.perf_counter() - begun
                for each, outcome in zip(group, found, strict=True):
                    each.settle(outcome, begun, took)
        finally:
            for each in self._waiting.pop(key):  # only where the server is stopped hard
                each.answer.cancel()

    def _next(self, key: _Key) -> list[_Waiting]:
        """Take those that waited longest."""
        waiting = self._waiting[key]
        width = len(waiting[0].body.columns)
        room = VALUES_TOGETHER_MAX // width
        end = 0
        for end, each in enumerate(waiting):
            room -= each.body.rows
            if room < 0 and end:
                break
        else:
            end += 1
        group, self._waiting[key] = waiting[:end], waiting[end:]
        return group


def _store(
    stream: Stream, reader: SmallReader, group: list[_Waiting], durability: str | None
) -> list[_Outcome]:
    """Append bodies in one commit; in a thread."""
    try:
        batch, bad = reader.batch([each.body for each in group])
    except (ValueError, OverflowError):
        return _alone(stream, reader, group, durability)
    rows = np.array([each.body.rows for each in group])
    starts = np.cumsum(rows) - rows
    if bad.any():
        kept = ~np.logical_or.reduceat(bad, starts)
        if not kept.any():
            return [None] * len(group)
        good = [each for each, keep in zip(group, kept, strict=True) if keep]
        done = iter(_store(stream, reader, good, durability))
        return [next(done) if keep else None for keep in kept]
    try:
        result = stream.append(batch, durability=durability)
    except (SchemaMismatch, InvalidData):
        return _alone(stream, reader, group, durability)
    except Exception as error:
        return [error] * len(group)
    late = _late(batch, reader, result, starts)
    return [(int(few), result.count, result.version) for few in late]


def _alone(
    stream: Stream, reader: SmallReader, group: list[_Waiting], durability: str | None
) -> list[_Outcome]:
    """Each body in a commit of its own; one that fails even so is to be read with care."""
    if len(group) == 1:
        return [None]
    return [_store(stream, reader, [each], durability)[0] for each in group]


def _late(
    batch: pa.RecordBatch,
    reader: SmallReader,
    result: AppendResult,
    starts: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Late events of each body."""
    if not result.late or result.newest is None:
        return np.zeros(len(starts), np.int64)
    older = ticks_of(batch, reader.schema) < result.newest
    return np.add.reduceat(older.astype(np.int64), starts)

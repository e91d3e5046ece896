"""Group commit: small appends that wait at the same time become one commit. ::

    event loop     A ─┐  B ─ C ─ D ─┐           E ─┐
    a thread          └ [A] ─ sync ─┴ [B C D] ─ sync ┴ [E] ...
                                    answers A      answers B C D

Each stream and durability level has one commit at a time, so answers come in the order of the
appends.  A commit takes one append slot, charged to the client that waited longest.

When its answer is sent, a body is stored whole, once and with the durability it asked for, or not
at all.  A bad body does not affect others: one with a value that does not fit is sent to the full
parser; if a batch fails as a whole, each body is stored alone.  Errors of the disk go to all.
Bodies of one commit share its version and ``count``; an event is late if it is older than what was
stored before.
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

_Key = tuple[object, SmallReader, str | None]


@dataclass(frozen=True)
class Stored:
    """Result of a body; ``waited_s`` is the time before its commit, ``stored_s`` the commit's
    duration.
    """

    late: int
    count: int
    version: int
    waited_s: float
    stored_s: float


_Outcome = tuple[int, int, int] | Exception | None
"""Late events, count and version; the exception; or None: the full parser must read it."""


@dataclass(eq=False)
class _Waiting:
    """A body whose request waits; the answer None means that the full parser must read it."""

    body: SmallBody
    client: str
    answer: asyncio.Future[Stored | None]
    since: float = field(default_factory=time.perf_counter)

    def settle(self, outcome: _Outcome, begun: float, took: float) -> None:
        if self.answer.done():
            return
        if isinstance(outcome, tuple):
            self.answer.set_result(Stored(*outcome, begun - self.since, took))
        elif outcome is None:
            self.answer.set_result(None)
        else:
            self.answer.set_exception(outcome)


class Gathering:
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
        """Store a body; None: the full parser must read it.  On an error nothing is stored."""
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
        server, (_, reader, durability) = self._server, key
        try:
            while self._waiting[key]:
                group: list[_Waiting] = []
                try:
                    async with server.appends.held(self._waiting[key][0].client):
                        group = self._next(key)
                        begun = time.perf_counter()
                        found = await server.call(_store, stream, reader, group, durability)
                except Exception as error:  # no slot, or the threads have ended
                    found = [error] * len(group or (group := self._next(key)))
                took = time.perf_counter() - begun
                for each, outcome in zip(group, found, strict=True):
                    each.settle(outcome, begun, took)
        finally:
            for each in self._waiting.pop(key):  # only on a hard stop
                each.answer.cancel()

    def _next(self, key: _Key) -> list[_Waiting]:
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
    if len(group) == 1:
        return [None]
    return [_store(stream, reader, [each], durability)[0] for each in group]


def _late(
    batch: pa.RecordBatch,
    reader: SmallReader,
    result: AppendResult,
    starts: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    if not result.late or result.newest is None:
        return np.zeros(len(starts), np.int64)
    older = ticks_of(batch, reader.schema) < result.newest
    return np.add.reduceat(older.astype(np.int64), starts)

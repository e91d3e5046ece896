"""Admission control: how many requests run, wait and hold memory at once.

A ``Gate`` runs a fixed number of requests, queues a further number and refuses the rest;
``ByteBudget`` bounds the memory of uploads.  Clients (tokens, or addresses) take turns; one
client's requests run in order.  One client leaves every fourth slot (at least one of two or more)
and a fourth of a byte budget to others.  In a full queue, the newest request of the client with
most waiting is displaced by another client's.  Gates belong to one event loop; budgets are
thread-safe.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from ...errors import ResourceLimit
from ..http.replies import Problem

RESERVED = 4
"""One in this many slots, and bytes, is not available to a single client."""


@dataclass(eq=False)
class Gate:
    """Slots for the requests of one kind, ``what``; ``wait_s`` is the longest wait, and
    ``client_max`` bounds one client's running and waiting requests.
    """

    what: str
    running_max: int
    waiting_max: int
    wait_s: float
    client_max: int | None = None
    running: int = field(default=0, init=False)
    _waiters: OrderedDict[str, deque[asyncio.Future[None]]] = field(
        default_factory=OrderedDict, init=False
    )
    _running: Counter[str] = field(default_factory=Counter, init=False)

    def __post_init__(self) -> None:
        self._share = max(1, self.running_max - max(1, self.running_max // RESERVED))

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiters.values()))

    async def enter(self, client: str) -> Slot:
        """Take a slot, perhaps after a wait; end it with ``Slot.release``.  Raises ``Problem``: 429
        for too many requests of this client, 503 if the queue is full or too slow.
        """
        mine = self._running[client] + len(self._waiters.get(client, ()))
        if self.client_max is not None and mine >= self.client_max:
            raise Problem(
                "too-many-requests",
                f"this client has {mine} {self.what} running or waiting, which is its limit "
                "(CHRONICLE_MAX_CLIENT_QUERIES); wait for one to end",
            )
        if not self._free(client):
            await self._wait(client)
        else:
            self._admit(client)
        return Slot(self, client)

    @asynccontextmanager
    async def held(self, client: str) -> AsyncIterator[None]:
        slot = await self.enter(client)
        try:
            yield
        finally:
            slot.release()

    def _free(self, client: str) -> bool:
        return self.running < self.running_max and self._running[client] < self._share

    def _admit(self, client: str) -> None:
        self.running += 1
        self._running[client] += 1

    async def _wait(self, client: str) -> None:
        if self.waiting >= self.waiting_max:
            self._displace_or_refuse(client)
        turn = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(client, deque()).append(turn)
        try:
            await asyncio.wait_for(asyncio.shield(turn), self.wait_s)
        except BaseException as error:
            if not turn.done():
                self._remove(client, turn)
                turn.cancel()
            elif turn.exception() is None:
                self._leave(client)  # it got a slot at the last moment: pass it on
            if isinstance(error, TimeoutError):
                raise self._overloaded(f"and none ended within {self.wait_s:g} s") from None
            raise

    def _displace_or_refuse(self, client: str) -> None:
        """Displace the newest request of the client with most waiting, or refuse this one."""
        full = self._overloaded(f"and {self.waiting} wait")
        most = max(self._waiters, key=lambda name: len(self._waiters[name]), default=client)
        if len(self._waiters.get(most, ())) <= len(self._waiters.get(client, ())) + 1:
            raise full
        turned_away = self._waiters[most][-1]
        self._remove(most, turned_away)
        turned_away.set_exception(full)

    def _remove(self, client: str, turn: asyncio.Future[None]) -> None:
        queue = self._waiters[client]
        queue.remove(turn)
        if not queue:
            del self._waiters[client]

    def _leave(self, client: str) -> None:
        self.running -= 1
        self._running[client] -= 1
        if not self._running[client]:
            del self._running[client]
        following = next((name for name in self._waiters if self._free(name)), None)
        if following is not None:
            turn = self._waiters[following][0]
            self._waiters.move_to_end(following)
            self._remove(following, turn)
            self._admit(following)
            turn.set_result(None)

    def _overloaded(self, why: str) -> Problem:
        return Problem(
            "overloaded",
            f"{self.running} {self.what} are running, of {self.running_max}, {why}; try again",
        )


class Slot:
    def __init__(self, gate: Gate, client: str) -> None:
        self._gate: Gate | None = gate
        self._client = client

    def release(self) -> None:
        """Release the slot, once; on the event loop."""
        gate, self._gate = self._gate, None
        if gate is not None:
            gate._leave(self._client)


class ByteBudget:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.share = limit - limit // RESERVED
        self.used = 0
        self._clients: Counter[str] = Counter()
        self._guard = threading.Lock()

    @contextmanager
    def account(self, client: str) -> Iterator[ByteAccount]:
        account = ByteAccount(self, client)
        try:
            yield account
        finally:
            account.close()

    def _move(self, client: str, size: int, held: int) -> None:
        with self._guard:
            theirs = self._clients[client]
            if size > 0 and (self.used + size > self.limit or theirs + size > self.share):
                if held + size > self.share:
                    raise ResourceLimit(
                        f"the body takes more than {self.share:,} bytes, what one client may hold "
                        f"of the {self.limit:,} bytes for all uploads "
                        "(CHRONICLE_MAX_UPLOAD_MEMORY_BYTES); send it in parts"
                    )
                raise Problem(
                    "overloaded",
                    f"uploads hold {self.used:,} of {self.limit:,} bytes, those of this client "
                    f"{theirs:,} of {self.share:,}; try again",
                )
            self.used += size
            self._clients[client] += size
            if not self._clients[client]:
                del self._clients[client]


class ByteAccount:
    """One request's share of a budget; for one thread at a time."""

    def __init__(self, budget: ByteBudget, client: str) -> None:
        self._budget = budget
        self._client = client
        self._held = 0

    def hold(self, size: int) -> None:
        self._budget._move(self._client, size, self._held)
        self._held += size

    def close(self) -> None:
        held, self._held = self._held, 0
        self._budget._move(self._client, -held, 0)

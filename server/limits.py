"""Admission: how many requests may run, wait and hold memory at once.

Purpose
    A database that accepts everything answers nothing.  :class:`Gate` lets a fixed number of
    requests run, a further number wait in order, and turns the rest away at once with a time to
    come back. :class:`ByteBudget` does the same for the memory that uploads hold.

Guarantee
    Clients (tokens, or addresses where there are none) take turns, and the requests of one client
    come in order.  However slow its requests are, one client leaves every fourth place (at least
    one, of two or more) to others; in a full queue the newest request of the client that waits with
    most makes room for that of another.  One client leaves a fourth of a byte budget to others.
    A place is given back exactly once, however its request ends.

Limits
    Gates belong to one event loop and are not thread-safe; budgets are.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from ..errors import ResourceLimit
from .problems import Problem

__all__ = ["ByteAccount", "ByteBudget", "Gate", "Place"]

RETRY_AFTER_S = 1
RESERVED = 4
"""One in so many places, and of so many bytes, no single client gets."""


class Gate:
    """Places for requests of one kind.

    Parameters
    ----------
    what : str
        The kind, in the plural, for messages: ``"queries"``.
    running_max : int
        Requests that run at once.
    waiting_max : int
        Requests that wait for a place.
    wait_s : float
        Longest wait.
    client_max : int, optional
        Requests of one client, running and waiting.
    """

    def __init__(
        self,
        what: str,
        running_max: int,
        waiting_max: int,
        wait_s: float,
        client_max: int | None = None,
    ) -> None:
        self.what = what
        self.running_max = running_max
        self.running = 0
        self._share = max(1, running_max - max(1, running_max // RESERVED))
        self._waiting_max = waiting_max
        self._wait_s = wait_s
        self._client_max = client_max
        self._waiters: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._running: Counter[str] = Counter()

    @property
    def waiting(self) -> int:
        """Requests that wait for a place."""
        return sum(map(len, self._waiters.values()))

    async def enter(self, client: str) -> Place:
        """Take a place, after a wait when all are taken; give it back by :meth:`Place.release`.

        Raises
        ------
        Problem
            429 when the client has too many requests here, 503 when the queue is full or did not
            move.
        """
        mine = self._running[client] + len(self._waiters.get(client, ()))
        if self._client_max is not None and mine >= self._client_max:
            raise Problem(
                "too-many-requests",
                429,
                f"this client has {mine} {self.what} running or waiting, which is its limit "
                "(CHRONICLE_MAX_CLIENT_QUERIES); wait for one to end",
                {"Retry-After": str(RETRY_AFTER_S)},
            )
        if not self._free(client):
            await self._wait(client)
        else:
            self._admit(client)
        return Place(self, client)

    @asynccontextmanager
    async def held(self, client: str) -> AsyncIterator[None]:
        """A place for the length of a block."""
        place = await self.enter(client)
        try:
            yield
        finally:
            place.release()

    def _free(self, client: str) -> bool:
        return self.running < self.running_max and self._running[client] < self._share

    def _admit(self, client: str) -> None:
        self.running += 1
        self._running[client] += 1

    async def _wait(self, client: str) -> None:
        if self.waiting >= self._waiting_max:
            self._make_room(client)
        place = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(client, deque()).append(place)
        try:
            await asyncio.wait_for(asyncio.shield(place), self._wait_s)
        except BaseException as error:
            if not place.done():
                self._remove(client, place)
                place.cancel()
            elif place.exception() is None:
                self._leave(client)  # the place came at the last moment: pass it on
            if isinstance(error, TimeoutError):
                raise self._overloaded(f"and none ended within {self._wait_s:g} s") from None
            raise

    def _make_room(self, client: str) -> None:
        """Turn away the newest request of the client that waits with most, or this one."""
        full = self._overloaded(f"and {self.waiting} wait")
        most = max(self._waiters, key=lambda name: len(self._waiters[name]), default=client)
        if len(self._waiters.get(most, ())) <= len(self._waiters.get(client, ())) + 1:
            raise full
        turned_away = self._waiters[most][-1]
        self._remove(most, turned_away)
        turned_away.set_exception(full)

    def _remove(self, client: str, place: asyncio.Future[None]) -> None:
        queue = self._waiters[client]
        queue.remove(place)
        if not queue:
            del self._waiters[client]

    def _leave(self, client: str) -> None:
        """Give a client's place to the next client in turn."""
        self.running -= 1
        self._running[client] -= 1
        if not self._running[client]:
            del self._running[client]
        following = next((name for name in self._waiters if self._free(name)), None)
        if following is not None:
            place = self._waiters[following][0]
            self._waiters.move_to_end(following)
            self._remove(following, place)
            self._admit(following)
            place.set_result(None)

    def _overloaded(self, why: str) -> Problem:
        return Problem(
            "overloaded",
            503,
            f"{self.running} {self.what} are running, of {self.running_max}, {why}; try again",
            {"Retry-After": str(RETRY_AFTER_S)},
        )


class Place:
    """A request's place in a gate."""

    def __init__(self, gate: Gate, client: str) -> None:
        self._gate: Gate | None = gate
        self._client = client

    def release(self) -> None:
        """Give the place back; on the event loop; the second time does nothing."""
        gate, self._gate = self._gate, None
        if gate is not None:
            gate._leave(self._client)


class ByteBudget:
    """Bytes that all requests together may hold."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.share = limit - limit // RESERVED
        self.used = 0
        self._clients: Counter[str] = Counter()
        self._guard = threading.Lock()

    @contextmanager
    def account(self, client: str) -> Iterator[ByteAccount]:
        """A client's account that starts empty and is given back when the block ends."""
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
                    503,
                    f"uploads hold {self.used:,} of {self.limit:,} bytes, those of this client "
                    f"{theirs:,} of {self.share:,}; try again",
                    {"Retry-After": str(RETRY_AFTER_S)},
                )
            self.used += size
            self._clients[client] += size
            if not self._clients[client]:
                del self._clients[client]


class ByteAccount:
    """One request's share of a budget; may be used from any thread, by one at a time."""

    def __init__(self, budget: ByteBudget, client: str) -> None:
        self._budget = budget
        self._client = client
        self._held = 0

    def hold(self, size: int) -> None:
        """Take ``size`` bytes more; raises when the budget does not have them."""
        self._budget._move(self._client, size, self._held)
        self._held += size

    def close(self) -> None:
        """Give everything back."""
        held, self._held = self._held, 0
        self._budget._move(self._client, -held, 0)

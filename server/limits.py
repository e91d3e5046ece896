"""Admission: how many requests may run, wait and hold memory at once.

Purpose
    A database that accepts everything answers nothing.  :class:`Gate` lets a fixed number of
    requests run, a further number wait in order, and turns the rest away at once with a time to
    come back. :class:`ByteBudget` does the same for the memory that uploads hold.

Guarantee
    First come, first served among those who wait; one client cannot take the whole queue.  A place
    is given back exactly once, however its request ends.

Limits
    Gates belong to one event loop and are not thread-safe; budgets are.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import ResourceLimit
from .problems import Problem

__all__ = ["ByteAccount", "ByteBudget", "Gate", "Place"]

RETRY_AFTER_S = 1


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
        self._waiting_max = waiting_max
        self._wait_s = wait_s
        self._client_max = client_max
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._clients: Counter[str] = Counter()

    @property
    def waiting(self) -> int:
        """Requests that wait for a place."""
        return len(self._waiters)

    async def enter(self, client: str) -> Place:
        """Take a place, after a wait when all are taken; give it back by :meth:`Place.release`.

        Raises
        ------
        Problem
            429 when the client has too many requests here, 503 when the queue is full or did not
            move.
        """
        if self._client_max is not None and self._clients[client] >= self._client_max:
            raise Problem(
                "too-many-requests",
                429,
                f"this client has {self._client_max} {self.what} running or waiting, which is its "
                "limit "
                "(CHRONICLE_MAX_CLIENT_QUERIES); wait for one to end",
                {"Retry-After": str(RETRY_AFTER_S)},
            )
        self._clients[client] += 1
        try:
            await self._take()
        except BaseException:
            self._leave(client)
            raise
        return Place(self, client)

    def _leave(self, client: str) -> None:
        self._clients[client] -= 1
        if not self._clients[client]:
            del self._clients[client]

    async def _take(self) -> None:
        if self.running < self.running_max:
            self.running += 1
            return
        if len(self._waiters) >= self._waiting_max:
            raise self._overloaded(f"and {len(self._waiters)} wait")
        place = asyncio.get_running_loop().create_future()
        self._waiters.append(place)
        try:
            await asyncio.wait_for(asyncio.shield(place), self._wait_s)
        except BaseException as error:
            if place.done() and not place.cancelled():
                self._give()  # the place came at the last moment: pass it on
            else:
                place.cancel()
                self._waiters.remove(place)
            if isinstance(error, TimeoutError):
                raise self._overloaded(f"and none ended within {self._wait_s:g} s") from None
            raise

    def _give(self) -> None:
        if self._waiters:
            self._waiters.popleft().set_result(None)  # the place changes hands, running stays
        else:
            self.running -= 1

    def _overloaded(self, why: str) -> Problem:
        return Problem(
            "overloaded",
            503,
            f"{self.running} {self.what} are running, which is the limit, {why}; try again",
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
            gate._give()
            gate._leave(self._client)


class ByteBudget:
    """Bytes that all requests together may hold.

    Parameters
    ----------
    limit : int
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._guard = threading.Lock()

    @contextmanager
    def account(self) -> Iterator[ByteAccount]:
        """An account that starts empty and is given back when the block ends."""
        account = ByteAccount(self)
        try:
            yield account
        finally:
            account.close()

    def _move(self, size: int, held: int) -> None:
        with self._guard:
            if size > 0 and self.used + size > self.limit:
                if held + size > self.limit:
                    raise ResourceLimit(
                        f"the body takes more than the {self.limit:,} bytes that all uploads "
                        "together "
                        "may hold (CHRONICLE_MAX_UPLOAD_MEMORY_BYTES); send it in parts"
                    )
                raise Problem(
                    "overloaded",
                    503,
                    f"uploads hold {self.used:,} of {self.limit:,} bytes; try again",
                    {"Retry-After": str(RETRY_AFTER_S)},
                )
            self.used += size


class ByteAccount:
    """One request's share of a budget; may be used from any thread, by one at a time."""

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._held = 0

    def hold(self, size: int) -> None:
        """Take ``size`` bytes more; raises when the budget does not have them."""
        self._budget._move(size, self._held)
        self._held += size

    def close(self) -> None:
        """Give everything back."""
        held, self._held = self._held, 0
        self._budget._move(-held, 0)

"""Ending a query from outside: time limits, cancellation and Ctrl-C.

Scans call ``QueryControl.check`` between blocks; DuckDB and kernels are interrupted through a
callback; parsing and planning call ``checkpoint``, which uses the control that ``checked_by`` has
set for the thread.  Once the limit has passed or the token is cancelled, every ``check`` raises,
and an attached callback is called until detached, so an interrupt just before the work begins is
not lost.  A query ends at the next check, typically within milliseconds.  Python delivers Ctrl-C to
the main thread only, and only while it runs Python: ``interruptibly`` runs compiled code in
another.

``Progress`` counts the events read, and those expected; both only grow.  Pruned blocks are expected
but not read; reads of fewer than ``WATCHED_EVENTS`` events and answers from the tree are not
counted.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from ...core.ownership import ModuleLock, Owner
from ...errors import InvalidArgument, QueryCancelled, QueryTimeout

WATCHED_EVENTS = 1 << 17


class Counted(Protocol):
    """A counter of events read, such as the store's scan metrics."""

    events_read: int


class Progress:
    """Counters of a query; may be read from any thread while it runs."""

    def __init__(self) -> None:
        self._reads: list[tuple[Sequence[Counted], int, int]] = []

    def expect(
        self, counters: Sequence[Counted], most: int, exactly: Callable[[], int] | None = None
    ) -> None:
        """Announce a read of at most ``most`` events; ``exactly`` is called for large reads."""
        if most < WATCHED_EVENTS:
            return
        events = most if exactly is None else exactly()
        if events >= WATCHED_EVENTS:
            self._reads.append((counters, _read(counters), events))

    @property
    def events(self) -> tuple[int, int] | None:
        """Events read and expected; None if nothing is expected yet."""
        reads = list(self._reads)
        if not reads:
            return None
        done = sum(min(_read(counters) - before, events) for counters, before, events in reads)
        return done, sum(events for _, _, events in reads)


def _read(counters: Sequence[Counted]) -> int:
    return sum(counter.events_read for counter in counters)


Answer = TypeVar("Answer")

INTERRUPT_EVERY_S = 0.02
LOOK_S = 0.05
TIMEOUT_MAX_S = 10 * 365 * 86_400.0  # beyond that, threads cannot wait


class Cancellation:
    """A token that ends queries from another thread; may be shared by several.

    Attributes
    ----------
    progress : Progress
        How far the queries have come.
    """

    def __init__(self) -> None:
        self.progress = Progress()
        self._event = threading.Event()
        self._listeners: list[Callable[[], None]] = []
        self._guard = threading.Lock()

    @property
    def cancelled(self) -> bool:
        return self._event.is_set()

    def cancel(self) -> None:
        """End the queries that carry this token, now and in future."""
        with self._guard:
            self._event.set()
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call a listener on cancellation, in the cancelling thread."""
        with self._guard:
            self._listeners.append(listener)

    def forget(self, listener: Callable[[], None]) -> None:
        with self._guard, suppress(ValueError):
            self._listeners.remove(listener)


class QueryControl:
    """The limits of one running query; ``timeout`` in seconds from now."""

    def __init__(
        self, timeout: float | None = None, cancellation: Cancellation | None = None
    ) -> None:
        if timeout is not None and not timeout > 0:
            raise InvalidArgument(f"timeout is a number of seconds above 0, found {timeout!r}")
        self.timeout = timeout
        self.cancellation = cancellation
        self.progress = Progress() if cancellation is None else cancellation.progress
        self._deadline = None if timeout is None else time.monotonic() + min(timeout, TIMEOUT_MAX_S)
        self._owner = Owner("the store of this query")

    @property
    def stopped(self) -> bool:
        if self.cancellation is not None and self.cancellation.cancelled:
            return True
        return self._deadline is not None and time.monotonic() >= self._deadline

    @property
    def left(self) -> float:
        """Seconds until the limit; infinite without one."""
        return math.inf if self._deadline is None else self._deadline - time.monotonic()

    def check(self) -> None:
        """Raise QueryTimeout, QueryCancelled, or in a forked child StoreClosed."""
        self._owner.check()
        if self.cancellation is not None and self.cancellation.cancelled:
            raise QueryCancelled("the query was cancelled")
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise QueryTimeout(
                f"the query ran into its limit of {self.timeout:g} s; narrow its time range, or "
                "give it a longer timeout"
            )

    @contextmanager
    def interrupting(self, interrupt: Callable[[], None], *, timed: bool = True) -> Iterator[None]:
        """Call ``interrupt`` repeatedly from another thread once the query has to end;
        ``timed=False``: not for the time limit, which costs a thread, if the caller enforces it.
        """
        timed = timed and self._deadline is not None
        if not timed and self.cancellation is None:
            yield
            return
        done = threading.Event()

        def hammer() -> None:
            while not done.is_set():
                with suppress(Exception):  # the work may have ended, and its handle with it
                    interrupt()
                done.wait(INTERRUPT_EVERY_S)

        def cancelled() -> None:
            threading.Thread(target=hammer, name="chronicle-cancel", daemon=True).start()

        timer = None
        if timed:
            timer = threading.Timer(max(0.0, self.left), hammer)
            timer.name = "chronicle-timeout"
            timer.daemon = True
            timer.start()
        if self.cancellation is not None:
            self.cancellation.listen(cancelled)
            if self.cancellation.cancelled:
                cancelled()
        try:
            yield
        finally:
            done.set()
            if timer is not None:
                timer.cancel()
            if self.cancellation is not None:
                self.cancellation.forget(cancelled)


_in_charge: ContextVar[QueryControl | None] = ContextVar("control", default=None)


class Held:
    __slots__ = ("_token", "_value", "_variable")

    def __init__(self, variable: ContextVar[Any], value: object) -> None:
        self._variable = variable
        self._value = value
        self._token: Any = None

    def __enter__(self) -> None:
        self._token = self._variable.set(self._value)

    def __exit__(self, *_: object) -> None:
        self._variable.reset(self._token)


def checked_by(control: QueryControl) -> Held:
    """Make a control decide, in this thread and context, whether work continues."""
    return Held(_in_charge, control)


def checkpoint() -> None:
    """Raise if the query of this thread has to end; cheap enough to call per tree node."""
    control = _in_charge.get()
    if control is not None:
        control.check()


class _Turn(ModuleLock):
    """A lock whose waiters check their query's limits."""

    def __enter__(self) -> bool:
        try:
            while not self.acquire(timeout=LOOK_S):
                checkpoint()
        except BaseException:  # Ctrl-C may come when it has been acquired
            if self._is_owned():
                self.release()
            raise
        return True


_turn = _Turn()


def alone() -> AbstractContextManager[bool | None]:
    """A context for long interpreter work; one thread at a time, which may enter it again.  Threads
    that run side by side would gain nothing and starve the others of the interpreter.
    """
    return nullcontext() if _turn._is_owned() else _turn


def interruptibly(call: Callable[[], Answer], interrupt: Callable[[], None]) -> Answer:
    """Call compiled code; on Ctrl-C ``interrupt`` is called until it returns, then raise."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    answers: list[Answer] = []
    errors: list[BaseException] = []
    abandoned = False
    running = threading.Lock()  # an Event whose use Ctrl-C ends stays locked
    running.acquire()

    def work() -> None:
        try:
            if not abandoned:
                answers.append(call())
        except BaseException as error:
            errors.append(error)
        finally:
            running.release()

    worker = threading.Thread(target=work, name="chronicle-query", daemon=True)
    try:
        worker.start()  # Ctrl-C may come in here as well
        running.acquire()
    except KeyboardInterrupt:
        abandoned = True
        while worker.is_alive() and not running.acquire(timeout=INTERRUPT_EVERY_S):
            with suppress(Exception):
                interrupt()
        raise
    if errors:
        raise errors[0]
    return answers[0]

"""Ending a query from outside: time limits, cancellation and Ctrl-C.

Purpose
    :class:`Cancellation` is the token a caller keeps to end a query from another thread, and to
    ask how far it has come.
    :class:`QueryControl` is what one running query asks: scans call :meth:`QueryControl.check`
    between blocks, and whatever runs outside of Python (the relational executor, kernels) is
    interrupted through a callback for as long as it runs.  What reads and plans a statement is deep
    in recursive functions that know of no query: it calls :func:`checkpoint`, which asks the
    control that :func:`checked_by` has put in charge of the thread.

Guarantee
    Once the limit has passed or the token is cancelled, every ``check`` raises, and an attached
    callback is called again and again until it is detached: an interrupt that arrives just before
    the work begins is not lost.

Limits
    A query ends at the next check or interrupt point, typically within milliseconds.  Python
    delivers Ctrl-C to the main thread only, and only while that runs Python: :func:`interruptibly`
    therefore lets another thread do the waiting inside of compiled code.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from typing import Any, TypeVar

from ...core.ownership import ModuleLock, Owner
from ...errors import InvalidArgument, QueryCancelled, QueryTimeout
from .progress import Progress

__all__ = ["Cancellation", "QueryControl", "alone", "checked_by", "checkpoint", "interruptibly"]

Answer = TypeVar("Answer")

INTERRUPT_EVERY_S = 0.02
LOOK_S = 0.05
TIMEOUT_MAX_S = 10 * 365 * 86_400.0  # beyond that, threads cannot wait


class Cancellation:
    """A token by which a query can be ended from another thread; good for one query or many.

    Attributes
    ----------
    progress : Progress
        How far they have come.
    """

    def __init__(self) -> None:
        self.progress = Progress()
        self._event = threading.Event()
        self._listeners: list[Callable[[], None]] = []
        self._guard = threading.Lock()

    @property
    def cancelled(self) -> bool:
        """Whether :meth:`cancel` was called."""
        return self._event.is_set()

    def cancel(self) -> None:
        """End the queries that carry this token, now and in future."""
        with self._guard:
            self._event.set()
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call a listener when this is cancelled, in the thread that does it."""
        with self._guard:
            self._listeners.append(listener)

    def forget(self, listener: Callable[[], None]) -> None:
        """Call a listener no more."""
        with self._guard, suppress(ValueError):
            self._listeners.remove(listener)


class QueryControl:
    """The limits under which one query runs.

    Parameters
    ----------
    timeout : float, optional
        Seconds from now.
    cancellation : Cancellation, optional
    """

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
        """Whether :meth:`check` would raise."""
        if self.cancellation is not None and self.cancellation.cancelled:
            return True
        return self._deadline is not None and time.monotonic() >= self._deadline

    @property
    def left(self) -> float:
        """Seconds until the limit; infinite without one."""
        return math.inf if self._deadline is None else self._deadline - time.monotonic()

    def check(self) -> None:
        """Raise when the query has to end.

        Raises
        ------
        QueryTimeout, QueryCancelled, StoreClosed
            The last in a forked child: the query is its parent's.
        """
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
        """Call ``interrupt`` from another thread, repeatedly, once the query has to end.

        Not for its time limit, which costs a thread, where the caller sees to that himself
        (``timed=False``).
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
    """A context in which a variable has a value; half the cost of one made from a generator."""

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
    """Have a control decide, in this thread and for a while, whether work goes on."""
    return Held(_in_charge, control)


def checkpoint() -> None:
    """Raise when the query that this thread works for has to end; see :meth:`QueryControl.check`.

    Takes less than a microsecond: call it for every node of a tree.
    """
    control = _in_charge.get()
    if control is not None:
        control.check()


class _Turn(ModuleLock):
    """A lock that a thread may take again, and for which it waits no longer than its query may."""

    def __init__(self) -> None:
        super().__init__()
        self.renew()

    def renew(self) -> None:
        self.lock = threading.RLock()  # type: ignore[assignment]

    def __enter__(self) -> None:
        while not self.lock.acquire(timeout=LOOK_S):
            checkpoint()


_turn = _Turn()


def alone() -> AbstractContextManager[None]:
    """A block for long work of the interpreter; one thread at a time is in such a block.

    A crowd of them would gain nothing by running side by side, and keep everybody else from the
    interpreter.
    """
    return _turn


def interruptibly(call: Callable[[], Answer], interrupt: Callable[[], None]) -> Answer:
    """Make a call into compiled code that Ctrl-C can end.

    Parameters
    ----------
    call : callable
    interrupt : callable
        Makes the call return soon; called from the main thread, repeatedly, on Ctrl-C.

    Raises
    ------
    KeyboardInterrupt
        Once the call has returned.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    answers: list[Answer] = []
    errors: list[BaseException] = []
    done, given_up = threading.Event(), threading.Event()

    def work() -> None:
        try:
            if not given_up.is_set():
                answers.append(call())
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    worker = threading.Thread(target=work, name="chronicle-query", daemon=True)
    try:
        worker.start()  # Ctrl-C may come in here as well
        done.wait()
    except KeyboardInterrupt:
        given_up.set()
        while worker.is_alive() and not done.wait(INTERRUPT_EVERY_S):
            with suppress(Exception):
                interrupt()
        raise
    if errors:
        raise errors[0]
    return answers[0]

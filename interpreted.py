"""Kernels without machine code: small inputs run as Python while another process compiles.

Purpose
    The first query on a machine would wait for Numba: half a second to import it, then half a
    second to five for each kernel.  Over the few thousand values that most first queries look at,
    Python itself is done sooner.  A kernel that says so (:func:`~.compiled.interpretable`) is
    called as the Python function that it is, until there is machine code
    (:mod:`.compiled_beside`).

Guarantee
    The same answers to the last bit, but for the sign of a NaN, which the processor chooses.
    Python differs from machine code where it raises (an overflow, an index, an operation on mixed
    types): then what was written is put back, and the kernel is compiled.  Where it would differ in
    silence, a kernel is not interpretable; tests run each that is in both ways and compare.

Limits
    An input of more than :data:`ELEMENTS_MAX` array elements (:data:`BY_ARRAYS_MAX` where NumPy
    does the same over whole arrays) is compiled for, and so is a kernel
    that has run for :data:`SECONDS_MAX` as Python, in one call or in many: a call that takes longer
    is given up.  Forked children do none of this, nor does anybody with ``CHRONICLE_COMPILE=first``
    in the environment, a process that said so (:func:`compile_first`) or a thread that does for a
    while (:func:`compiling_first`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from .compiled_beside import Beside, Kind, kind_of

if TYPE_CHECKING:
    from .compiled import Kernel

__all__ = [
    "UNANSWERED",
    "Interpreting",
    "answer",
    "compile_beside",
    "compile_first",
    "compiling_first",
    "is_running",
    "leave_compiling",
]

ELEMENTS_MAX = 1 << 20
BY_ARRAYS_MAX = 1 << 24
"""The same of a kernel in whose place whole arrays are computed."""
SECONDS_MAX = 1.5
SURELY_QUICK = 512
"""Array elements of a call that is not watched, whatever it does with them."""
UNANSWERED = object()
"""Instead of an answer: machine code is wanted."""

_beside: Beside | None = (
    Beside() if os.environ.get("CHRONICLE_COMPILE", "beside") != "first" else None
)


class _Here(threading.local):
    running = False
    compiles_first = False


_here = _Here()


class Interpreting:
    """How a kernel runs as Python, and how that went.

    Attributes
    ----------
    wraps : bool
        Whether sums of integers that leave their type wrap around, in Python as in machine code.
    hopeless : bool
        It has raised once.
    plain : bool
        Whether elements of arrays are Python's numbers.
    instead : callable, optional
        What runs in the kernel's place: the same over whole arrays.
    seconds : float
        Of a processor, that all its calls have taken.
    """

    __slots__ = ("hopeless", "instead", "plain", "seconds", "wraps")

    def __init__(
        self, wraps: bool, plain: bool = False, instead: Callable[..., Any] | None = None
    ) -> None:
        self.wraps = wraps
        self.plain = plain
        self.instead = instead
        self.hopeless = False
        self.seconds = 0.0


def compile_first() -> None:
    """Interpret nothing from here on: for a process that has its kernels compiled otherwise."""
    global _beside
    _beside = None


@contextlib.contextmanager
def compiling_first() -> Iterator[None]:
    """Interpret nothing within the block, in this thread; others go on."""
    before = _here.compiles_first
    _here.compiles_first = True
    try:
        yield
    finally:
        _here.compiles_first = before


def leave_compiling() -> None:
    """Start no process that compiles: one of somebody else's does, into the same cache.

    What runs as Python goes on so until machine code is found there.
    """
    if _beside is not None:
        _beside.leave()


def compile_beside() -> None:
    """The other way round: what was wanted meanwhile and nobody has compiled is compiled now."""
    if _beside is not None:
        _beside.resume()


def is_running() -> bool:
    """Whether this thread is within a kernel that runs as Python: those that it calls do, too."""
    return _here.running


def answer(kernel: Kernel, state: Interpreting, arguments: tuple[Any, ...]) -> Any:
    """What a kernel makes of its arguments, as Python.

    Returns
    -------
    object
        :data:`UNANSWERED` where machine code is there, or wanted; the arguments are as they were.
    """
    beside = _beside
    if beside is None or _here.compiles_first or state.hopeless or state.seconds > SECONDS_MAX:
        return UNANSWERED
    arrays = list(_arrays_of(arguments))
    size = sum(array.size for array in arrays)
    most = ELEMENTS_MAX if state.instead is None else BY_ARRAYS_MAX
    if size > most or not beside.owner.here:
        return UNANSWERED
    kinds: list[Kind] = [kind_of(each) for each in arguments]
    if None in kinds or beside.has_compiled(kernel, tuple(kinds)):
        return UNANSWERED
    kept = [(array, array.copy()) for array in arrays if array.flags.writeable]
    function = state.instead or kernel.function
    call = function if size <= SURELY_QUICK else _watched(function)
    began = time.thread_time()
    _here.running = True
    try:
        with np.errstate(all="ignore", over="ignore" if state.wraps else "raise"):
            return _as_compiled(call(*(map(_plain, arguments) if state.plain else arguments)))
    except (Exception, _TooSlow):
        for array, before in kept:
            array[...] = before
        state.hopeless = True
        return UNANSWERED
    finally:
        _here.running = False
        state.seconds += time.thread_time() - began


class _TooSlow(BaseException):
    """A call takes too long as Python."""


def _watched(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that :class:`_TooSlow` is raised in when it has had a processor for so long.

    It is raised by another thread, so at any step.  Here it is seen to that this is within the
    call: when that is over, either nothing is to be raised any more, or it is waited for.
    """

    def watched(*arguments: Any) -> Any:
        thread, began = threading.get_ident(), time.thread_time()
        over = threading.Event()
        to_come: list[bool] = []

        def watch() -> None:
            clock = time.pthread_getcpuclockid(thread)  # of a thread that waits for this one
            left = SECONDS_MAX
            while not over.wait(left):
                left = SECONDS_MAX - (time.clock_gettime(clock) - began)
                if left <= 0:
                    to_come.append(True)
                    raised = ctypes.py_object(_TooSlow)
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)
                    return

        watching = threading.Thread(target=watch, daemon=True)
        watching.start()
        try:
            return function(*arguments)
        except _TooSlow:
            to_come.clear()
            raise
        finally:
            try:
                over.set()
                watching.join()
                while to_come:
                    time.sleep(0)
            except _TooSlow:  # it has ended otherwise; entering suppress() would be too late
                pass

    return watched


def _plain(argument: Any) -> Any:
    """An array so that its elements are Python's numbers; what is written goes into the array."""
    view: Any = argument
    return memoryview(view) if isinstance(argument, np.ndarray) else argument


def _arrays_of(arguments: tuple[Any, ...]) -> Iterator[np.ndarray[Any, Any]]:
    for each in arguments:
        if isinstance(each, np.ndarray):
            yield each
        elif isinstance(each, tuple):
            yield from _arrays_of(each)


def _as_compiled(result: Any) -> Any:
    """Machine code gives plain numbers."""
    if isinstance(result, np.generic):
        return result.item()
    if type(result) is tuple:
        return tuple(_as_compiled(each) for each in result)
    return result

"""Work that stands back: the system gives its processors to others first.

Purpose
    What nobody waits for, such as the copying of segments that move, is done by a thread of its own
    (:func:`standing_back`) of low priority.  Beside queries that want all processors it gets a
    small part of one, and all of it where they want none.

Guarantee
    Who asks waits for the end, and neither its own priority nor that of any thread that it begins
    later changes: an unprivileged thread could not take it back.  Where the system knows no
    priority of a thread, the work is done as by any other.

What may be done here
    Work that takes no lock that others wait for, since who holds one here may wait for a processor
    meanwhile; and that begins no threads, which would stand back for the rest of their lives.
    Requests of ``pyarrow.fs`` to a service begin some, of the pool that queries use.

Limits
    Linux.  The lock of the interpreter can be held by a thread that waits for a processor: only
    between calls that let go of it, for some microseconds of computing, while other processes, or
    kernels of this one, want all processors.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

__all__ = ["STEPS", "standing_back"]

STEPS = 10
"""Of niceness: about one tenth of what another thread gets of a processor that both want."""

NICENESS_MAX = 19

_Found = TypeVar("_Found")


def _stand_back() -> None:
    """Lower the priority of this thread, for good."""
    if sys.platform != "linux":  # elsewhere the number of a thread is no number of a process
        return
    thread = threading.get_native_id()
    with suppress(OSError):  # a system that allows none of it
        niceness = os.getpriority(os.PRIO_PROCESS, thread) + STEPS
        os.setpriority(os.PRIO_PROCESS, thread, min(niceness, NICENESS_MAX))


def standing_back(work: Callable[[], _Found]) -> _Found:
    """Do some work in a thread of low priority, and wait for it; see the module."""
    asked: Future[_Found] = Future()

    def done() -> None:
        _stand_back()
        if not asked.set_running_or_notify_cancel():
            return
        try:
            asked.set_result(work())
        except BaseException as error:
            asked.set_exception(error)

    # a daemon, for the end of the interpreter waits for none of what it does
    thread = threading.Thread(target=done, name="chronicle-standing-back", daemon=True)
    try:
        thread.start()
        return asked.result()
    finally:
        if not asked.cancel():  # interrupted: what it works with is there until it has ended
            thread.join()

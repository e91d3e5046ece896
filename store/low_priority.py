"""Low-priority work: ``standing_back`` runs it in its own thread of low priority, and waits.

An unprivileged thread could not raise its priority again, so the caller's does not change.  Linux
only; elsewhere the work runs normally.

The work must not take locks that others wait for (priority inversion), nor start threads, which
would keep the low priority, as ``pyarrow.fs`` requests to a service do.  Under full load it can
hold the interpreter's lock, while it waits for a processor, for microseconds of computing.
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
"""Increase of the nice value: about one tenth of a normal thread's processor share."""

NICENESS_MAX = 19

_Found = TypeVar("_Found")


def _stand_back() -> None:
    if sys.platform != "linux":  # thread ids are process ids only on Linux
        return
    thread = threading.get_native_id()
    with suppress(OSError):  # not permitted by the system
        niceness = os.getpriority(os.PRIO_PROCESS, thread) + STEPS
        os.setpriority(os.PRIO_PROCESS, thread, min(niceness, NICENESS_MAX))


def standing_back(work: Callable[[], _Found]) -> _Found:
    asked: Future[_Found] = Future()

    def done() -> None:
        _stand_back()
        if not asked.set_running_or_notify_cancel():
            return
        try:
            asked.set_result(work())
        except BaseException as error:
            asked.set_exception(error)

    # a daemon: the interpreter's exit need not wait for it
    thread = threading.Thread(target=done, name="chronicle-standing-back", daemon=True)
    try:
        thread.start()
        return asked.result()
    finally:
        if not asked.cancel():  # interrupted: its resources must stay until it has ended
            thread.join()

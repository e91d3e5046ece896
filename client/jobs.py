"""Jobs of a server: ``db.start_job(kind)`` and ``db.job(job_id)``; any process may use a job by its
id.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ..errors import ConnectionFailed, JobFailed, QueryTimeout
from . import server_calls
from .feeds import PATIENCE_S
from .transport import Transport

__all__ = ["RemoteJob", "Waiting"]

FIRST_LOOK_S, LOOK_S_MAX = 0.05, 1.0
Tell = Callable[[dict[str, Any]], None]


class RemoteJob:
    """A job, made by ``RemoteDatabase.start_job`` and ``job``."""

    def __init__(self, transport: Transport, told: Any) -> None:
        self._transport = transport
        self.id: str = told["job_id"]
        self.kind: str = told["kind"]

    def status(self) -> dict[str, Any]:
        """Request, ``state``, ``progress`` from 0 to 1, times, ``result`` or ``error``."""
        return dict(self._transport.json(server_calls.job(self.id)))

    def wait(self, timeout: float | None = None, tell: Tell | None = None) -> dict[str, Any]:
        """Wait for the job and return its result; the server may restart meanwhile.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait (``QueryTimeout``); the job goes on.
        tell : callable, optional
            Called with each status.

        Raises
        ------
        JobFailed
            It failed, was cancelled, or was lost with its server.
        """
        waiting = Waiting(self.id, timeout, tell)
        while True:
            try:
                status = self.status()
            except ConnectionFailed as error:
                waiting.broken(error)
            else:
                if waiting.heard(status):
                    return waiting.result
            time.sleep(waiting.pause())

    def cancel(self) -> None:
        """End it before its next step; an ended job is unchanged."""
        self._transport.json(server_calls.job(self.id, "DELETE"))

    def __repr__(self) -> str:
        return f"<chronicle.Job {self.id!r} ({self.kind}) of {self._transport.where}>"


class Waiting:
    """State of waiting for a job; sends nothing.  ``result`` is set when the job is done."""

    result: dict[str, Any]

    def __init__(self, job_id: str, timeout: float | None, tell: Tell | None) -> None:
        self._id = job_id
        self._timeout = timeout
        self._tell = tell
        self._pause = FIRST_LOOK_S
        self._began = self._heard = time.monotonic()

    def heard(self, status: dict[str, Any]) -> bool:
        """Whether the job is done; raises ``JobFailed`` if it ended otherwise."""
        self._heard = time.monotonic()
        if self._tell is not None:
            self._tell(status)
        state = status["state"]
        if status["ended_at"] is None:
            return False
        if state != "done":
            why = status["error"] or f"it was {state}"
            raise JobFailed(f"the job {self._id} ({status['kind']}) {state}: {why}")
        self.result = dict(status["result"] or {})
        return True

    def broken(self, error: ConnectionFailed) -> None:
        """Note that the server is away; raises after too long."""
        if time.monotonic() - self._heard > PATIENCE_S:
            raise error

    def pause(self) -> float:
        """Seconds until the next request; raises ``QueryTimeout``."""
        pause, self._pause = self._pause, min(2 * self._pause, LOOK_S_MAX)
        if self._timeout is None:
            return pause
        left = self._began + self._timeout - time.monotonic()
        if left <= 0:
            raise QueryTimeout(
                f"the job {self._id} goes on after {self._timeout:g} s; wait for it again, or "
                "cancel it"
            )
        return min(pause, left)

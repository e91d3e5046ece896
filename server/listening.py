"""Uvicorn, with word given when it accepts connections and when it stops to."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn

__all__ = ["Listening"]


class Listening(uvicorn.Server):
    """A server that tells when it begins and when it ends.

    Parameters
    ----------
    started : callable
        Called on the event loop when the application has started and connections are accepted.
    stopping : callable
        Called on the event loop when no new connections are accepted any more.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        started: Callable[[], None],
        stopping: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._tell_started = started
        self._tell_stopping = stopping

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application and listen."""
        await super().startup(sockets)
        if self.started:
            self._tell_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let running requests end, then stop the application."""
        self._tell_stopping()
        await super().shutdown(sockets)

"""Uvicorn, with word given when it accepts connections and when it stops to, and new certificates.

Guarantee
    With TLS, SIGHUP has the certificate read again; without, it ends the process as it always does.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable

import uvicorn

from .access.tls import LOOK_S, Certificates

__all__ = ["Listening"]


class Listening(uvicorn.Server):
    """A server that tells when it begins and when it ends.

    Parameters
    ----------
    started : callable
        Called on the event loop when the application has started and connections are accepted.
    stopping : callable
        Called on the event loop when no new connections are accepted any more.
    certificates : Certificates, optional
        With which it serves; None for plain HTTP.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        started: Callable[[], None],
        stopping: Callable[[], None],
        certificates: Certificates | None = None,
    ) -> None:
        super().__init__(config)
        if certificates is not None:
            config.load()
            config.ssl = certificates.context
        self._certificates = certificates
        self._tell_started = started
        self._tell_stopping = stopping

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application and listen."""
        await super().startup(sockets)
        if self._certificates is not None and _in_main_thread():
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGHUP, self._certificates.reload)
        if self.started:
            self._tell_started()

    async def on_tick(self, counter: int) -> bool:
        """What Uvicorn does ten times a second; now and then, a look at the certificate's files."""
        if self._certificates is not None and counter % (10 * LOOK_S) == 0:
            self._certificates.look()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let running requests end, then stop the application."""
        self._tell_stopping()
        await super().shutdown(sockets)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()

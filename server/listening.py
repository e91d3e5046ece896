"""Uvicorn with callbacks for start and stop, and reloading of TLS certificates.  With TLS, SIGHUP
reloads the certificate; without, it ends the process as usual.
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
    """Calls ``started`` when it accepts connections and ``stopping`` when it stops to, on the event
    loop.
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
        await super().startup(sockets)
        if self._certificates is not None and _in_main_thread():
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGHUP, self._certificates.reload)
        if self.started:
            self._tell_started()

    async def on_tick(self, counter: int) -> bool:
        if self._certificates is not None and counter % (10 * LOOK_S) == 0:
            self._certificates.look()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._tell_stopping()
        await super().shutdown(sockets)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()

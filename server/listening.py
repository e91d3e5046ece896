"""Uvicorn, with word given once it accepts connections."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn

__all__ = ["announcing"]


class _Announcing(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, announce: Callable[[str], None], url: str) -> None:
        super().__init__(config)
        self._announce = announce
        self._url = url

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._announce(self._url)


def announcing(config: uvicorn.Config, announce: Callable[[str], None], url: str) -> uvicorn.Server:
    """A server that calls ``announce(url)`` when the application has started and it listens."""
    return _Announcing(config, announce, url)

"""The client of a Chronicle server: what ``chronicle.connect`` and ``chronicle.aconnect`` return.

Reading order, bottom up::

    requests      calls (routes as values)
    conversion    conversion (JSON to objects, users' data to requests)
    blocking      transport (retries, errors, Arrow streams)
                  stream  live (live queries, feeds, jobs)  database
    for asyncio   asynchronous
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .database import RemoteDatabase
from .live import RemoteFeed, RemoteJob, RemoteLive
from .stream import RemoteStream
from .transport import Transport

if TYPE_CHECKING:
    from .asynchronous import AsyncDatabase

__all__ = [
    "AsyncDatabase",
    "RemoteDatabase",
    "RemoteFeed",
    "RemoteJob",
    "RemoteLive",
    "RemoteStream",
    "Transport",
    "aconnect",
    "connect",
]


def connect(url: str, token: str | None, timeout: float, retries: int) -> RemoteDatabase:
    """As ``chronicle.connect`` documents it."""
    return RemoteDatabase(Transport(url, token, timeout, retries))


def aconnect(url: str, token: str | None, timeout: float, retries: int) -> AsyncDatabase:
    """As ``chronicle.aconnect`` documents it."""
    from .asynchronous import AsyncDatabase, Threads

    return AsyncDatabase(Threads(), connect(url, token, timeout, retries))

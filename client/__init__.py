"""The client of a Chronicle server: what ``chronicle.connect`` and ``chronicle.aconnect`` return.

Reading order, bottom up::

    requests      calls (routes as values)
    conversion    conversion (JSON to objects, users' data to requests)
    blocking      transport (retries, errors, Arrow streams)
                  stream  live (live queries, feeds, jobs)  database
    for asyncio   asynchronous
"""

from __future__ import annotations

from .database import RemoteDatabase
from .live import RemoteFeed, RemoteJob, RemoteLive
from .stream import RemoteStream
from .transport import Transport

__all__ = ["RemoteDatabase", "RemoteFeed", "RemoteJob", "RemoteLive", "RemoteStream", "Transport"]

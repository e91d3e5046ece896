"""Talking to a Chronicle server: the HTTP client of the command line, of ingest and of Spark.

Reading order: ``transport`` (requests, retries, tokens, errors, Arrow in both directions),
``feeds`` (answers that go on), ``remote_stream`` (what a server does with one stream, a method for
each route).
"""

from __future__ import annotations

from .feeds import RemoteFeed
from .remote_stream import RemoteStream
from .transport import Transport

__all__ = ["RemoteFeed", "RemoteStream", "Transport"]

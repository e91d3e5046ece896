"""Chronicle: an event store that answers pattern and window queries from its indexes.

``chronicle.open(path)`` gives a :class:`~chronicle.api.database.Database`; streams of events go in
through :meth:`~chronicle.catalog.streams.Stream.append`, answers come out through ``db.sql`` and
``stream.scan``. ``chronicle.connect(url)`` gives the same of a server. Importing this package
loads neither Spark nor a web framework, nor the store itself: ``open`` does.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from . import errors
from .errors import *  # noqa: F403  (the error classes are the public vocabulary of failures)

if TYPE_CHECKING:
    from .api.database import Database
    from .client import RemoteDatabase
    from .client.asynchronous import AsyncDatabase

__all__ = ["__version__", "aconnect", "connect", "open"]
__all__ += [each.__name__ for each in errors.OUTSIDE]
__version__ = "0.1.0"


def open(
    path: str | os.PathLike[str],
    mode: str = "rw",
    *,
    query_memory_bytes: int = 1 << 30,
    query_threads: int | None = None,
    isolation: str = "none",
    live: bool = False,
    objects: str | None = None,
    frames: bool = True,
) -> Database:
    """Open a store.

    Parameters
    ----------
    path : path-like
        Directory of the store.
    mode : {"rw", "r"}
        ``"rw"`` creates the directory when it is missing and locks it against other writers;
        ``"r"`` reads snapshots beside a writer.
    query_memory_bytes : int
        Memory that the relational part of running queries may take before it spills to disk.
    query_threads : int, optional
        Threads of the relational part; by default one per processor.
    isolation : {"none", "process"}
        Where the relational part runs: in this process, or, for SQL of strangers, in confined
        worker processes that read their input from this one (Linux; ``docs/server.md``).
    live : bool
        Run the store's live queries in this process (``docs/live.md``).
    objects : str, optional
        Where segments of streams with ``move_after`` or ``keep_local_bytes`` move to while the
        store is open: ``s3://bucket/prefix`` or ``file:///directory`` (``docs/operations.md``).
    frames : bool
        Let names in FROM that are no streams be variables of the caller that hold tables.

    Returns
    -------
    Database

    Raises
    ------
    NotAStore, StoreLocked, UnsupportedFormat, CorruptStore
    """
    from .api.database import open_database

    return open_database(
        path,
        mode,
        query_memory_bytes=query_memory_bytes,
        query_threads=query_threads,
        isolation=isolation,
        live=live,
        objects=objects,
        frames=frames,
    )


def connect(
    url: str, token: str | None = None, *, timeout: float = 60.0, retries: int = 3
) -> RemoteDatabase:
    """Use the database of a server, by the methods of an embedded one (``docs/clients.md``).

    Parameters
    ----------
    url : str
        ``http://host:port`` or ``https://...``, with or without a path in front of ``/v1``.
    token : str, optional
        As ``chronicle token create`` printed it.
    timeout : float
        Seconds to wait for a connection and between two pieces of an answer; more than 15, which
        is how often a server that has nothing to tell a follower says so.
    retries : int
        How often a request is tried again that the server had no place for, or that does the same
        when it is carried out twice.

    Returns
    -------
    RemoteDatabase
        Also a context manager.

    Raises
    ------
    InvalidArgument
        When the url is none.
    ConnectionFailed
        Nothing listens there.
    """
    from .client import RemoteDatabase, Transport

    transport = Transport(url, token, timeout, retries)
    transport.reach()
    return RemoteDatabase(transport)


def aconnect(
    url: str, token: str | None = None, *, timeout: float = 60.0, retries: int = 3
) -> AsyncDatabase:
    """The same for asyncio; the arguments are those of :func:`connect`.

    Returns
    -------
    AsyncDatabase
        Use it in ``async with``; ``await chronicle.aconnect(...)`` gives the same.

    Raises
    ------
    InvalidArgument
        When the url is none.
    """
    from .client import RemoteDatabase, Transport
    from .client.asynchronous import AsyncDatabase, Threads

    return AsyncDatabase(Threads(), RemoteDatabase(Transport(url, token, timeout, retries)))


def load_ipython_extension(shell: Any) -> None:
    """What ``%load_ext chronicle`` calls in a notebook (``docs/notebooks.md``)."""
    from .commands.notebook import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """What ``%unload_ext chronicle`` calls."""
    from .commands.notebook import unload

    unload(shell)

"""Chronicle: an event store that answers pattern and window queries from its indexes.

``chronicle.open(path)`` gives a :class:`~chronicle.database.Database`; streams of events go in
through :meth:`~chronicle.streams.Stream.append`, answers come out through ``db.sql`` and
``stream.scan``. Importing this package loads neither Spark nor a web framework, nor the store
itself: ``open`` does.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from . import errors
from .errors import *  # noqa: F403  (the error classes are the public vocabulary of failures)

if TYPE_CHECKING:
    from .database import Database

_INSIDE = ("HINTS", "OUTSIDE", "Hint", "Outside")

__all__ = ["__version__", "open"]
__all__ += [name for name in errors.__all__ if name[0].isupper() and name not in _INSIDE]
__version__ = "0.1.0"


def open(
    path: str | os.PathLike[str],
    mode: str = "rw",
    *,
    query_memory_bytes: int = 1 << 30,
    query_threads: int | None = None,
    isolation: str = "none",
    live: bool = False,
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

    Returns
    -------
    Database

    Raises
    ------
    NotAStore, StoreLocked, UnsupportedFormat, CorruptStore
    """
    from .database import open_database

    return open_database(
        path,
        mode,
        query_memory_bytes=query_memory_bytes,
        query_threads=query_threads,
        isolation=isolation,
        live=live,
    )

"""The target of an ingest."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..api.database import Database, open_database
from ..client import Transport
from ..errors import InvalidArgument
from .report import quarantine_path
from .request import IngestRequest
from .server_sink import ServerSink
from .store_sink import StoreSink

Sink = ServerSink | StoreSink
"""A stream to load events into; it need not exist yet."""


@dataclass(frozen=True)
class Target:
    """Exactly one of a store's directory, a database open for writing, and a server's url.

    ``timeout`` is in seconds, for the server or the writer's lock; ``retries`` is for requests.
    """

    path: str | os.PathLike[str] | None = None
    database: Database | None = None
    url: str | None = None
    token: str | None = None
    timeout: float = 60.0
    retries: int = 3

    def __post_init__(self) -> None:
        if sum(place is not None for place in (self.path, self.database, self.url)) != 1:
            raise InvalidArgument("give one target: a store's path, a database, or a url")

    def quarantine_path(self, request: IngestRequest) -> Path:
        if request.quarantine is not None:
            return request.quarantine
        if self.url is not None:
            return quarantine_path("chronicle", request.stream)
        place = self.database.path if self.database is not None else self.path
        assert place is not None
        return quarantine_path(place, request.stream)

    @contextlib.contextmanager
    def opened(self, *, dry_run: bool) -> Iterator[Target]:
        """The target with its store open for writing and locked; unchanged for a dry run."""
        if self.path is None or dry_run:
            yield self
        else:
            with open_database(self.path, "rw") as database:
                yield Target(database=database)

    def sink(self, stream: str) -> Sink:
        if self.url is not None:
            return ServerSink(Transport(self.url, self.token, self.timeout, self.retries), stream)
        if self.database is not None:
            return StoreSink(self.database.path, stream, database=self.database)
        assert self.path is not None
        return StoreSink(self.path, stream, timeout=self.timeout)

"""What the streaming source needs of a store, whether it lies on a file system or behind a server.

Purpose
    :class:`Follower` is to :mod:`chronicle.spark_connector.stream_reader` what
    :class:`~chronicle.spark_connector.backend.Backend` is to a batch read: it keeps commits under
    names, tells what is new between two of them, and reads it.

Guarantee
    A kept commit can be read until it ends or is dropped, in any process, also after a restart of
    Spark or of the server.  What lies between two of them is the same events every time, each once.

Layout
    ::

        path    <stream>/pins/<name>.pin, written by the driver, read by executors
        url     POST /positions, GET /changes, GET /changes/events: the same files, in the server

Limits
    Names end seven days after their last use (by url: ``CHRONICLE_POSITION_TTL_HOURS``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote

import pyarrow as pa

from ..errors import InvalidArgument, ResourceLimit
from ..schema import StreamSchema
from ..store import Store
from ..store.changes import NewRange, new_events, new_ranges
from ..store.kept_pins import drop_pin, keep_pin, load_pin, renew_pin, sweep_pins
from ..store.pinned import Pin
from ..store.recovery import load
from .local import local_path
from .options import Options
from .served import remote_of, schema_of

__all__ = ["Follower", "LocalFollower", "Piece", "ServedFollower", "commit_of", "open_follower"]


@dataclass(frozen=True)
class Piece:
    """New events between two kept commits.

    Attributes
    ----------
    before, after : str
        Their names; `before` is empty for the stream before its first event.
    start, end : int or None
        Ticks, half-open.
    skip, take : int
        How many new events of that time range are left out, and how many are wanted then.
    """

    before: str
    after: str
    start: int | None
    end: int | None
    skip: int
    take: int


class Follower(Protocol):
    """One stream that is followed, on a path or behind a url."""

    def describe(self) -> StreamSchema:
        """The stream's schema, as of now."""
        ...

    def keep(self, position: int | None = None) -> str:
        """Keep the last commit, or an earlier one, and give it a name (driver)."""
        ...

    def keep_later(self, name: str) -> str | None:
        """Keep the last commit when it is later than a kept one, which is renewed (driver)."""
        ...

    def drop(self, name: str) -> None:
        """Give a kept commit up (driver)."""
        ...

    def ranges(self, before: str, after: str) -> list[NewRange]:
        """Where there is something new between two kept commits (driver)."""
        ...

    def events(self, piece: Piece, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read what is new (executor): exactly the events of the piece."""
        ...


def open_follower(options: Options) -> Follower:
    """The follower of the stream that the options name."""
    return LocalFollower(options) if options.path is not None else ServedFollower(options)


def commit_of(name: str) -> int:
    """Commit position of a kept commit; 0 without a name."""
    return int(name.split("-", 1)[0]) if name else 0


def _leads_nowhere() -> InvalidArgument:
    return InvalidArgument("the checkpoint holds an offset that leads nowhere; use a new one")


class LocalFollower:
    """Follows a stream by the files in its directory."""

    def __init__(self, options: Options) -> None:
        assert options.path is not None
        self._path = local_path(options.path)
        self._stream = options.stream or ""
        with self._open() as store:
            store.stream(self._stream)  # raises, with the names that there are
            self._directory = store.directory_of(self._stream)

    def _open(self) -> Store:
        return Store.open(self._path, mode="r")

    def describe(self) -> StreamSchema:
        """Schema of the stream."""
        with self._open() as store:
            return store.stream(self._stream).schema

    def keep(self, position: int | None = None) -> str:
        """Keep a commit in the stream's directory."""
        with self._open() as store:
            sweep_pins(store.files, self._directory)
            return keep_pin(store.files, self._directory, position=position)

    def keep_later(self, name: str) -> str | None:
        """Keep the last commit, unless it is the one that is kept already."""
        with self._open() as store:
            if name:
                renew_pin(store.files, self._directory, name)
            if load(store.files, self._directory).journal.position <= commit_of(name):
                return None
            return keep_pin(store.files, self._directory)

    def drop(self, name: str) -> None:
        """Remove the kept commit's file."""
        with self._open() as store:
            drop_pin(store.files, self._directory, name)

    def ranges(self, before: str, after: str) -> list[NewRange]:
        """Compare the manifests, and the trees' counts."""
        with self._open() as store:
            return new_ranges(store.files, *self._pins(store, before, after))

    def events(self, piece: Piece, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read the files of both commits."""
        skip, left = piece.skip, piece.take
        with self._open() as store:
            before, after = self._pins(store, piece.before, piece.after)
            for batch in new_events(store.files, before, after, piece.start, piece.end, columns):
                if skip >= batch.num_rows:
                    skip -= batch.num_rows
                    continue
                chosen = batch.slice(skip, left)
                skip = 0
                left -= chosen.num_rows
                yield chosen
                if left == 0:
                    return

    def _pins(self, store: Store, before: str, after: str) -> tuple[Pin | None, Pin]:
        if not after:
            raise _leads_nowhere()
        earlier = load_pin(store.files, self._directory, before) if before else None
        return earlier, load_pin(store.files, self._directory, after)


class ServedFollower:
    """Follows a stream through a server."""

    def __init__(self, options: Options) -> None:
        self._remote = remote_of(options)
        self._stream = f"/v1/streams/{quote(options.stream or '', safe='')}"

    def describe(self) -> StreamSchema:
        """Schema of the stream."""
        return schema_of(self._remote.json("GET", self._stream))

    def keep(self, position: int | None = None) -> str:
        """Have the server keep a commit."""
        return str(self._keep({"at": position}))

    def keep_later(self, name: str) -> str | None:
        """Have the server keep its last commit, unless it is the one that is kept already."""
        return self._keep({"after": name or None}) if name else self._first()

    def _first(self) -> str | None:
        kept = self.keep()
        if commit_of(kept):
            return kept
        self.drop(kept)  # nothing was ever committed
        return None

    def _keep(self, body: dict[str, Any]) -> str | None:
        answer = self._remote.json("POST", f"{self._stream}/positions", body=body)
        name = answer["position"]
        return None if name is None else str(name)

    def drop(self, name: str) -> None:
        """Have the server let go of a kept commit."""
        self._remote.json("DELETE", f"{self._stream}/positions/{quote(name, safe='')}")

    def ranges(self, before: str, after: str) -> list[NewRange]:
        """Have the server compare two commits."""
        if not after:
            raise _leads_nowhere()
        query = {"after": before or None, "until": after}
        answer = self._remote.json("GET", f"{self._stream}/changes", query)
        return [
            NewRange(part["start"], part["end"], part["events"], part["stored"])
            for part in answer["ranges"]
        ]

    def events(self, piece: Piece, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Stream what is new.

        Raises
        ------
        ResourceLimit
            When the server sent fewer events than it had announced.
        """
        query = {
            "after": piece.before or None,
            "until": piece.after,
            "start": piece.start,
            "end": piece.end,
            "columns": ",".join('"' + name.replace('"', '""') + '"' for name in columns),
            "skip": piece.skip,
            "limit": piece.take,
            "format": "arrow",
        }
        path = f"{self._stream}/changes/events"
        left = piece.take
        for batch in self._remote.batches("GET", path, query, may_be_cut=True):
            left -= batch.num_rows
            yield batch
        if left:
            raise ResourceLimit(
                f"{self._remote.where} sent {piece.take - left} events of {piece.take}; raise its "
                "CHRONICLE_MAX_ROWS, or read smaller pieces with the option 'numPartitions'"
            )

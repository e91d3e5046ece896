"""Interface between the streaming source and a store: named commits and the events between them.

A kept commit stays readable in any process until it is dropped or expires, seven days after its
last use (by url: ``CHRONICLE_POSITION_TTL_HOURS``).  The events between two are always the same::

    path    <stream>/pins/<name>.pin, written by the driver, read by executors
    url     POST /positions, GET /changes, GET /changes/events: the same files, in the server
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ..errors import InvalidArgument, ResourceLimit
from ..schema import StreamSchema
from ..store import Store
from ..store.changes import NewRange, new_events, new_ranges
from ..store.pins import Pin, drop_pin, keep_pin, load_pin, renew_pin, sweep_pins
from ..store.recovery import load
from .local import local_path
from .opening import ServerStream
from .options import Options


@dataclass(frozen=True)
class CommitSpan:
    """New events between two kept commits, in half-open ticks: ``take`` of them after ``skip``."""

    before: str
    after: str
    start: int | None
    end: int | None
    skip: int
    take: int


def commit_of(name: str) -> int:
    """Commit position of a kept commit; 0 without a name."""
    return int(name.split("-", 1)[0]) if name else 0


def _leads_nowhere() -> InvalidArgument:
    return InvalidArgument("the checkpoint holds an offset that leads nowhere; use a new one")


class LocalFollower:
    def __init__(self, options: Options) -> None:
        assert options.path is not None
        self._path = local_path(options.path)
        self._stream = options.stream or ""
        with self._open() as store:
            store.stream(self._stream)  # raises, with the known names
            self._directory = store.directory_of(self._stream)

    def _open(self) -> Store:
        return Store.open(self._path, mode="r")

    def describe(self) -> StreamSchema:
        with self._open() as store:
            return store.stream(self._stream).schema

    def keep(self, position: int | None = None) -> str:
        """Keep the last commit, or the one at ``position``, and return its name (driver)."""
        with self._open() as store:
            sweep_pins(store.files, self._directory)
            return keep_pin(store.files, self._directory, position=position)

    def keep_later(self, name: str) -> str | None:
        """Keep the last commit if later than ``name``, which is renewed; else None (driver)."""
        with self._open() as store:
            if name:
                renew_pin(store.files, self._directory, name)
            if load(store.files, self._directory).journal.position <= commit_of(name):
                return None
            return keep_pin(store.files, self._directory)

    def drop(self, name: str) -> None:
        with self._open() as store:
            drop_pin(store.files, self._directory, name)

    def ranges(self, before: str, after: str) -> list[NewRange]:
        """Time ranges with new events between two kept commits (driver)."""
        with self._open() as store:
            return new_ranges(store.files, *self._pins(store, before, after))

    def events(self, piece: CommitSpan, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Exactly the new events of a span (executor)."""
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


class ServerFollower(ServerStream):
    def keep(self, position: int | None = None) -> str:
        return str(self.transport.json(self.calls.keep_position(at=position))["position"])

    def keep_later(self, name: str) -> str | None:
        if name:
            later: str | None = self.transport.json(self.calls.keep_position(after=name))[
                "position"
            ]
            return later
        kept = self.keep()
        if commit_of(kept):
            return kept
        self.drop(kept)  # nothing was ever committed
        return None

    def drop(self, name: str) -> None:
        self.transport.json(self.calls.drop_position(name))

    def ranges(self, before: str, after: str) -> list[NewRange]:
        if not after:
            raise _leads_nowhere()
        found = self.transport.json(self.calls.changes(before or None, after))["ranges"]
        return [
            NewRange(part["start"], part["end"], part["events"], part["stored"]) for part in found
        ]

    def events(self, piece: CommitSpan, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Stream the new events; ResourceLimit if the server sends too few."""
        left = piece.take
        call = self.calls.new_events(
            piece.before or None,
            piece.after,
            columns,
            start=piece.start,
            end=piece.end,
            skip=piece.skip,
            limit=piece.take,
        )
        for batch in self.transport.batches(call):
            left -= batch.num_rows
            yield batch
        if left:
            raise ResourceLimit(
                f"{self.transport.where} sent {piece.take - left} events of {piece.take}; "
                "raise its CHRONICLE_MAX_ROWS, or read smaller pieces with the option "
                "'numPartitions'"
            )


def open_follower(options: Options) -> LocalFollower | ServerFollower:
    return LocalFollower(options) if options.path is not None else ServerFollower(options)

"""What changes a stream that exists: a part of :class:`~chronicle.database.Database`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from .errors import InvalidArgument
from .store import EventStream, Store
from .store.commits import Commits
from .store.mover import move_due
from .store.moving import Moved
from .store.object_store import object_store
from .store.options import retention_limits
from .store.progress import each
from .store.schema_change import (
    drop_attribute,
    rename_attribute,
    set_options,
    widen_attribute,
)
from .store.segment import TICK_MAX, TICK_MIN
from .streams import Stream

if TYPE_CHECKING:
    from .indexes import StoreIndexes
    from .live.engine import LiveQueries
    from .query.engine import QueryEngine
    from .store.deleting import Change, Choice

__all__ = ["ChangingDatabase"]


class ChangingDatabase:
    """Deletes, updates and alterations, as the query layer and a stream's handle ask for them."""

    _store: Store
    _indexes: StoreIndexes
    _streams: dict[str, Stream]

    def stream(self, name: str) -> Stream:
        """The stream of that name."""
        raise NotImplementedError

    @property
    def live_statements(self) -> LiveQueries:
        """Those who carry out statements about live queries."""
        raise NotImplementedError

    def _query_engine(self) -> QueryEngine:
        raise NotImplementedError

    def _check_writable(self, what: str) -> None:
        raise NotImplementedError

    def _drop_readers(self, name: str, cascade: bool, what: str) -> None:
        raise NotImplementedError

    def _remove_stream(self, name: str) -> None:
        raise NotImplementedError

    def streams(self) -> list[str]:
        """Names of all streams, sorted."""
        raise NotImplementedError

    def _written(self, name: str, what: str) -> EventStream:
        """A stream that is to be changed."""
        self._check_writable(f"{what} {name!r}")
        handle = self._store.stream(name)
        assert isinstance(handle, EventStream)
        return handle

    # ------------------------------------------------------------------- events

    def delete_events(
        self, name: str, start: int | None, end: int | None, choose: Choice | None
    ) -> int:
        """Delete the events between two ticks, or those that are chosen; gives their number."""
        return self._written(name, "delete from").delete(start, end, choose)

    def update_events(
        self, name: str, start: int | None, end: int | None, choose: Choice | None, change: Change
    ) -> int:
        """Give the events between two ticks, or those that are chosen, other values."""
        return self._written(name, "update").update(start, end, choose, change)

    def move(
        self,
        to: str,
        *,
        stream: str | None = None,
        older_than: str | int | None = None,
        due: bool = False,
    ) -> dict[str, Moved]:
        """Move sealed segments to objects, where storage is cheap; queries find them there.

        Their nodes stay, so that plans and aggregates over whole leaves ask nothing of the objects.

        Parameters
        ----------
        to : str
            ``s3://bucket/prefix`` or ``file:///directory``: :mod:`.store.object_store`.
        stream : str, optional
            Every stream by default, those of live queries left out.
        older_than : str or int, optional
            Age of the youngest event of a segment that moves, as ``"90 days"``, or in ticks where
            time is an integer; counted from the newest event of the stream.  All that is sealed
            by default.
        due : bool
            Only what the settings of the streams say, ``move_after`` and ``keep_local_bytes``: what
            a store that is opened with ``objects`` does by itself.

        Returns
        -------
        dict
            By stream: the segments that have moved, and their bytes.

        Raises
        ------
        InvalidArgument
            The address or the age is none.
        StorageFailed
            The objects cannot be written or do not read back; what has moved until then has.
        """
        objects = object_store(to)
        if due and older_than is not None:
            raise InvalidArgument("due goes by the settings of the streams: leave out older_than")
        owner = self._store.identity
        named = [stream] if stream is not None else self._store.streams()
        done = {}
        for name in each(named):
            handle = self._written(name, "move")
            if due:
                done[name] = move_due(handle, objects, owner)
                continue
            if stream is None and handle.commits.manifest.owner is not None:
                continue
            done[name] = handle.move(objects, owner, _before(handle, older_than))
        return done

    def moving(self) -> dict[str, Any] | None:
        """How segments move by themselves, where the store was opened with ``objects``; else None.

        Returns
        -------
        dict or None
            ``objects`` (the address), ``state`` (``"waiting"``, or ``"failing"`` since the last try
            failed), ``error``, ``failing_since`` (Unix time), ``failures`` in a row,
            ``failed_total`` since the store was opened, ``next_try_s``.
        """
        return self._store.moving()

    def delete_where(
        self, name: str, predicate: str | None, start: int | None, end: int | None
    ) -> int:
        """Delete events that satisfy a SQL predicate; times in ticks."""
        return self._query_engine().delete(name, predicate, start, end)

    def update_where(
        self,
        name: str,
        assignments: Mapping[str, str],
        predicate: str | None,
        start: int | None,
        end: int | None,
    ) -> int:
        """Update events that satisfy a SQL predicate; times in ticks."""
        return self._query_engine().update(name, assignments, predicate, start, end)

    def purge_indexes(self, name: str) -> None:
        """Remove from the files of a stream's indexes what they no longer say."""
        self._indexes.purge(name)

    # ------------------------------------------------------------------ columns

    def add_column(
        self,
        name: str,
        column: str,
        type_: pa.DataType,
        nullable: bool = True,
        default: Any = None,
    ) -> None:
        """Add an attribute to a stream."""
        stream = self._written(name, "add a column to")
        stream.add_attribute(column, type_, nullable, default)

    def widen_column(self, name: str, column: str, type_: pa.DataType) -> None:
        """Give an attribute a type that holds all values of its old one."""
        stream = self._written(name, "alter a column of")
        self._check_unread(name)

        def change(commits: Commits) -> None:
            with self._indexes.widening(name, commits.schema.attribute(column), type_):
                widen_attribute(commits, column, type_)

        stream.alter(change)

    def rename_column(self, name: str, column: str, to: str) -> None:
        """Give an attribute another name; its index follows."""
        stream = self._written(name, "rename a column of")
        self._check_unread(name)
        stream.alter(rename_attribute, column, to)
        self._indexes.follow(name)

    def drop_column(self, name: str, column: str) -> None:
        """Drop an attribute, with its index."""
        stream = self._written(name, "drop a column of")
        self._check_unread(name)
        stream.alter(drop_attribute, column)
        self._indexes.follow(name)

    # ------------------------------------------------------------------- streams

    def set_options(self, name: str, options: Mapping[str, Any]) -> None:
        """Change settings of a stream."""
        self._written(name, "alter").alter(set_options, **options)

    def drop_stream(self, name: str, *, if_exists: bool = False, cascade: bool = False) -> None:
        """Remove a stream, its events and its indexes; raises :class:`StreamNotFound`.

        One that views read is refused (:class:`StreamOwned`) unless ``cascade`` removes them, too.
        """
        self._check_writable(f"drop the stream {name!r}")
        if if_exists and name not in self.streams():
            return
        if self._store.files.exists("live"):
            self.live_statements.check_drop(name)
        if name in self._store.streams():
            self._drop_readers(name, cascade, "stream")
        self._remove_stream(name)

    def rename_stream(self, name: str, to: str) -> None:
        """Give a stream another name; handles of it, and what reads it, end.

        Raises
        ------
        StreamNotFound, StreamExists, InvalidArgument
        StreamOwned
            Live queries read it, or put their results into it.
        """
        self._written(name, "rename")
        if to == name:
            return
        self._check_unread(name)
        self._drop_readers(name, False, "stream")
        self._streams.pop(name, None)
        with self._indexes.dropping(name):
            self._store.rename_stream(name, to)
        self._indexes.attach(to)

    def _check_unread(self, name: str) -> None:
        """Refuse what live queries on a stream would break at."""
        if self._store.files.exists("live"):
            self.live_statements.check_drop(name)


def _before(handle: EventStream, older_than: str | int | None) -> int:
    """The first tick of what is not yet as old."""
    if older_than is None:
        return TICK_MAX
    age, size = retention_limits(str(older_than), handle.schema)
    if age is None or size is not None:
        raise InvalidArgument(f"older_than is an age such as '90 days', found {older_than!r}")
    span = handle.snapshot().time_range
    return TICK_MIN if span is None else max(TICK_MIN, span[1] - age)

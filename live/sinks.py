"""Creation, checks and removal of sinks; with ``store = false`` they are in memory."""

from __future__ import annotations

import threading

from ..errors import ChronicleError, InvalidArgument
from ..query.contract.catalog import LiveRequest
from ..query.sql.dialect import error_at
from ..store import EventStream, Store, StreamOptions
from ..store.memory_files import MemoryFiles
from .analysis import Analysed
from .definition import LiveDefinition
from .recollection import RecollectionBudget
from .sink import OWNER, QUERY, Sink, sink_schema

__all__ = ["Sinks", "wrong"]

PASSING = StreamOptions(
    leaf_bytes=1 << 16, segment_bytes=1 << 20, retention="8 MB", durability="none",
    late_events_max=1 << 12, kept_bytes_max=0,
)  # fmt: skip


def wrong(request: LiveRequest, what: str) -> ChronicleError:
    """An error in a request, with its position if it has a text."""
    return error_at(request.text, request.at, what) if request.text else InvalidArgument(what)


class Sinks:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._memory: Store | None = None
        self._budget = RecollectionBudget()
        self._lock = threading.Lock()

    def opened(self, definition: LiveDefinition, found: Analysed) -> Sink:
        if not definition.store:
            return self._passing(definition, found)
        schema = sink_schema(
            found.time, found.fields, revokes=definition.revokes, shared=definition.shared
        )
        if definition.sink in self._store.streams():
            stream = self._writer(definition.sink)
            if stream.schema != schema:
                raise InvalidArgument(
                    f"the stream {definition.sink!r} does not have the columns that results of "
                    f"{definition.name!r} have now; drop the live query and create it again"
                )
        else:
            stream = self._store.create_stream(
                definition.sink, schema, StreamOptions(**definition.options), owner=OWNER
            )
        return Sink(stream, definition.name, definition.columns, self._budget)

    def _passing(self, definition: LiveDefinition, found: Analysed) -> Sink:
        schema = sink_schema(found.time, found.fields, revokes=definition.revokes, shared=False)
        self.drop_passing(definition.name)
        with self._lock:
            if self._memory is None:
                self._memory = Store.open("live", files=MemoryFiles())
            stream = self._memory.create_stream(definition.name, schema, PASSING, owner=OWNER)
        return Sink(stream, definition.name, definition.columns)

    def drop_passing(self, name: str) -> None:
        with self._lock:
            if self._memory is not None and name in self._memory.streams():
                self._memory.drop_stream(name)

    def close(self) -> None:
        with self._lock:
            if self._memory is not None:
                self._memory.close()

    def _writer(self, name: str) -> EventStream:
        found = self._store.stream(name)
        assert isinstance(found, EventStream)
        return found

    def check(self, request: LiveRequest, definition: LiveDefinition, found: Analysed) -> None:
        """Raise an error for a sink that a request cannot have."""
        schema = sink_schema(
            found.time, found.fields, revokes=definition.revokes, shared=definition.shared
        )
        streams = self._store.streams()
        taken = definition.sink in streams
        if definition.shared and definition.name in streams:
            raise wrong(request, f"there is a stream {definition.name!r} already")
        if not taken:
            return
        if not definition.shared:
            raise wrong(
                request, f"there is a stream {definition.sink!r} already; choose another name"
            )
        stream = self._writer(definition.sink)
        if self._store.owner_of(definition.sink) != OWNER or QUERY not in stream.schema:
            raise wrong(
                request, f"{definition.sink!r} is no stream that live queries share; choose another"
            )
        if stream.schema != schema:
            columns = ", ".join(stream.schema.names)
            raise wrong(
                request, f"the sink {definition.sink!r} has other columns ({columns}): those that "
                "share one have the same, in name and type"
            )  # fmt: skip

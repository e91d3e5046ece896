"""What a statement reads and changes, and the catalogue as one caller sees it.

Purpose
    A server must know what a statement touches before it runs: :class:`Access` says it, computed
    from the bound statement, so that a stream is found wherever in the statement it is named.
    :class:`VisibleStreams` is a catalogue in which streams out of a caller's reach do not exist,
    neither for names nor for suggestions.

Guarantee
    ``reads`` holds every stream from which any part of the statement reads: queries, subqueries in
    VALUES, inputs of operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...errors import StreamNotFound
from ...lazy import lazy
from ...schema import StreamSchema
from ...store.snapshot import Snapshot
from .catalog import Catalog
from .live import LiveStatements

if TYPE_CHECKING:
    from ...indexes.stream_indexes import StreamIndexes

__all__ = ["Access", "VisibleStreams"]


@dataclass(frozen=True)
class Access:
    """What a statement does.

    Attributes
    ----------
    kind : str
        Class of the syntax tree, such as ``Select`` or ``DropStream``.
    scope : {"read", "write", "admin"}
        ``write``: it adds events or a stream; ``admin``: it drops, alters or indexes.
    target : str or None
        Stream that is changed, as it is written.
    find_reads : callable
        Gives the streams that it reads; binds the statement if that was not done yet.
    """

    kind: str
    scope: str
    target: str | None = None
    find_reads: Callable[[], frozenset[str]] = frozenset

    @lazy
    def reads(self) -> frozenset[str]:
        """Streams that it reads."""
        return self.find_reads()


class VisibleStreams:
    """A catalogue of only those streams for which ``visible`` is true.

    What changes a stream is passed on: who may do that was asked before.
    """

    def __init__(self, catalog: Catalog, visible: Callable[[str], bool]) -> None:
        self._catalog = catalog
        self._visible = visible

    def _check(self, name: str) -> None:
        if not self._visible(name):
            raise StreamNotFound(f"there is no stream {name!r}")

    def streams(self) -> list[str]:
        """Names of the visible streams, sorted."""
        return [name for name in self._catalog.streams() if self._visible(name)]

    def stream_schema(self, name: str) -> StreamSchema:
        """Schema of a stream; raises StreamNotFound."""
        self._check(name)
        return self._catalog.stream_schema(name)

    def snapshot(self, name: str) -> Snapshot:
        """A consistent view of a stream as of now."""
        self._check(name)
        return self._catalog.snapshot(name)

    def damaged(self) -> dict[str, str]:
        """Those among the visible streams that cannot be opened, each with what is wrong."""
        found = self._catalog.damaged()
        return {name: why for name, why in found.items() if self._visible(name)}

    def indexes_of(self, name: str) -> StreamIndexes | None:
        """The secondary indexes of a stream; None for a stream without any."""
        self._check(name)
        return self._catalog.indexes_of(name)

    def list_indexes(self, name: str) -> Sequence[dict[str, Any]]:
        """The secondary indexes of a stream, for people."""
        self._check(name)
        return self._catalog.list_indexes(name)

    def stream_options(self, name: str) -> dict[str, Any]:
        """Settings of a stream as they were given."""
        self._check(name)
        return self._catalog.stream_options(name)

    # what changes streams, or is about none: as it is

    @property
    def mode(self) -> str:
        """Of the catalogue behind this one."""
        return self._catalog.mode

    @property
    def path(self) -> Path | None:
        """Of the catalogue behind this one."""
        return self._catalog.path

    @property
    def live_statements(self) -> LiveStatements:
        """Live queries of the catalogue behind this one."""
        return self._catalog.live_statements

    def append_arrow(self, name: str, data: pa.Table) -> int:
        """Append events in the stream's schema; gives their number."""
        return self._catalog.append_arrow(name, data)

    def create_stream(self, name: str, schema: StreamSchema, **settings: Any) -> Any:
        """Create a stream."""
        return self._catalog.create_stream(name, schema, **settings)

    def drop_stream(self, name: str, *, if_exists: bool = False) -> None:
        """Remove a stream."""
        self._catalog.drop_stream(name, if_exists=if_exists)

    def add_column(self, name: str, column: str, type_: pa.DataType) -> None:
        """Add a nullable attribute to a stream."""
        self._catalog.add_column(name, column, type_)

    def create_index(self, name: str, attribute: str, *, lag_events_max: int | None = None) -> None:
        """Build a secondary index."""
        self._catalog.create_index(name, attribute, lag_events_max=lag_events_max)

    def drop_index(self, name: str, attribute: str) -> None:
        """Remove a secondary index."""
        self._catalog.drop_index(name, attribute)

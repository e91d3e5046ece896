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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...core.append_result import AppendResult
from ...core.caches import lazy
from ...errors import StreamNotFound
from ...schema import StreamSchema
from ...store.deleting import Change, Choice
from ...store.snapshot import Snapshot
from ...store.views import KeptView
from .catalog import Catalog
from .frames import Frame
from .live import LiveStatements
from .rollups import Rollup

if TYPE_CHECKING:
    from ...indexes.stream_indexes import StreamIndexes

__all__ = ["Access", "Tell", "VisibleStreams"]

Tell = Callable[[str], Sequence[Mapping[str, Any]]]
"""Rows of a system table for one caller, by its name."""


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
    renamed : str or None
        The name that the target is given.
    """

    kind: str
    scope: str
    target: str | None = None
    find_reads: Callable[[], frozenset[str]] = frozenset
    renamed: str | None = None

    @lazy
    def reads(self) -> frozenset[str]:
        """Streams that it reads."""
        return self.find_reads()


class VisibleStreams:
    """A catalogue of only those streams for which ``visible`` is true, and of no frames.

    What changes a stream is passed on: who may do that was asked before.  ``tell`` gives this
    caller's rows of the system tables of :data:`.system_tables.TOLD`; there are none without.
    """

    def __init__(
        self, catalog: Catalog, visible: Callable[[str], bool], tell: Tell | None = None
    ) -> None:
        self._catalog = catalog
        self._visible = visible
        self._tell = tell or (lambda _: ())

    def _check(self, name: str) -> None:
        if not self._visible(name):
            raise StreamNotFound(f"there is no stream {name!r}")

    def streams(self) -> list[str]:
        """Names of the visible streams, sorted."""
        return [name for name in self._catalog.streams() if self._visible(name)]

    def views(self) -> Mapping[str, KeptView]:
        """The visible views; what they read has to be visible as well."""
        return {name: view for name, view in self._catalog.views().items() if self._visible(name)}

    def create_view(self, view: KeptView, *, replace: bool = False) -> None:
        """Keep a view."""
        self._catalog.create_view(view, replace=replace)

    def drop_view(self, name: str, *, cascade: bool = False) -> None:
        """Remove a view."""
        self._catalog.drop_view(name, cascade=cascade)

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

    def rollups_of(self, name: str) -> Sequence[Rollup]:
        """The roll-ups of a stream whose results are visible."""
        return [each for each in self._catalog.rollups_of(name) if self._visible(each.sink)]

    def list_indexes(self, name: str) -> Sequence[dict[str, Any]]:
        """The secondary indexes of a stream, for people."""
        self._check(name)
        return self._catalog.list_indexes(name)

    def stream_options(self, name: str) -> dict[str, Any]:
        """Settings of a stream as they were given."""
        self._check(name)
        return self._catalog.stream_options(name)

    def told(self, table: str) -> Sequence[Mapping[str, Any]]:
        """Rows of a system table that are this caller's to see."""
        return self._tell(table)

    @property
    def frames(self) -> Mapping[str, Frame]:
        """None: they are the program's own."""
        return {}

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

    def append_arrow(self, name: str, data: pa.Table) -> AppendResult:
        """Append events in the stream's schema; gives their number."""
        return self._catalog.append_arrow(name, data)

    def delete_events(
        self, name: str, start: int | None, end: int | None, choose: Choice | None
    ) -> int:
        """Delete events of a stream; gives their number."""
        return self._catalog.delete_events(name, start, end, choose)

    def update_events(
        self, name: str, start: int | None, end: int | None, choose: Choice | None, change: Change
    ) -> int:
        """Give events of a stream other values; gives their number."""
        return self._catalog.update_events(name, start, end, choose, change)

    def create_stream(self, name: str, schema: StreamSchema, **settings: Any) -> Any:
        """Create a stream."""
        return self._catalog.create_stream(name, schema, **settings)

    def drop_stream(self, name: str, *, if_exists: bool = False, cascade: bool = False) -> None:
        """Remove a stream."""
        self._catalog.drop_stream(name, if_exists=if_exists, cascade=cascade)

    def add_column(
        self,
        name: str,
        column: str,
        type_: pa.DataType,
        nullable: bool = True,
        default: Any = None,
    ) -> None:
        """Add an attribute to a stream."""
        self._catalog.add_column(name, column, type_, nullable, default)

    def widen_column(self, name: str, column: str, type_: pa.DataType) -> None:
        """Give an attribute a type that holds all values of its old one."""
        self._catalog.widen_column(name, column, type_)

    def rename_column(self, name: str, column: str, to: str) -> None:
        """Give an attribute another name."""
        self._catalog.rename_column(name, column, to)

    def drop_column(self, name: str, column: str) -> None:
        """Drop an attribute."""
        self._catalog.drop_column(name, column)

    def set_options(self, name: str, options: Mapping[str, Any]) -> None:
        """Change settings of a stream."""
        self._catalog.set_options(name, options)

    def rename_stream(self, name: str, to: str) -> None:
        """Give a stream another name."""
        self._catalog.rename_stream(name, to)

    def create_index(self, name: str, attribute: str, *, lag_events_max: int | None = None) -> None:
        """Build a secondary index."""
        self._catalog.create_index(name, attribute, lag_events_max=lag_events_max)

    def drop_index(self, name: str, attribute: str) -> None:
        """Remove a secondary index."""
        self._catalog.drop_index(name, attribute)

"""What the query layer asks of the database above it.

Purpose
    The query layer runs statements against streams without knowing who owns them:
    :class:`Catalog` lists the few calls it makes.  :class:`chronicle.api.database.Database` is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from ...core.append_result import AppendResult
from ...schema import StreamSchema
from ...store.deleting import Change, Choice
from ...store.snapshot import Snapshot
from ...store.views import KeptView
from .frames import Frame
from .live import LiveStatements
from .rollups import Rollup

if TYPE_CHECKING:
    from ...indexes.stream_indexes import StreamIndexes

__all__ = ["Catalog"]


class Catalog(Protocol):
    """Streams by name, and the changes that statements can ask for."""

    @property
    def mode(self) -> str:
        """``"rw"`` or ``"r"``."""

    @property
    def path(self) -> Path | None:
        """Directory of the store, where calibrated weights are kept; None without one."""

    def indexes_of(self, name: str) -> StreamIndexes | None:
        """The secondary indexes of a stream; None for a stream without any."""

    @property
    def live_statements(self) -> LiveStatements:
        """Its live queries."""

    def rollups_of(self, name: str) -> Sequence[Rollup]:
        """The roll-ups of a stream that may answer for it."""

    @property
    def frames(self) -> Mapping[str, Frame]:
        """Tables of the program around it, by name in lower case."""

    def streams(self) -> list[str]:
        """Names of all streams, sorted."""

    def damaged(self) -> dict[str, str]:
        """Those among them that cannot be opened, each with what is wrong."""

    def views(self) -> Mapping[str, KeptView]:
        """Views by name, sorted."""

    def create_view(self, view: KeptView, *, replace: bool = False) -> None:
        """Keep a view; raises StreamExists."""

    def drop_view(self, name: str, *, cascade: bool = False) -> None:
        """Remove a view; raises StreamOwned where others read it."""

    def stream_schema(self, name: str) -> StreamSchema:
        """Schema of a stream; raises StreamNotFound."""

    def snapshot(self, name: str) -> Snapshot:
        """A consistent view of a stream as of now."""

    def append_arrow(self, name: str, data: pa.Table) -> AppendResult:
        """Append events in the stream's schema."""

    def delete_events(
        self, name: str, start: int | None, end: int | None, choose: Choice | None
    ) -> int:
        """Delete the events between two ticks, or those that are chosen; gives their number."""

    def update_events(
        self, name: str, start: int | None, end: int | None, choose: Choice | None, change: Change
    ) -> int:
        """Give such events other values; gives their number."""

    def create_stream(
        self,
        name: str,
        schema: StreamSchema,
        *,
        retention: str | int | None = None,
        codec: str = "lz4",
        if_not_exists: bool = False,
        options: Mapping[str, Any] | None = None,
        events: Iterable[pa.RecordBatch] | None = None,
    ) -> Any:
        """Create a stream, which holds these events from the beginning."""

    def drop_stream(self, name: str, *, if_exists: bool = False, cascade: bool = False) -> None:
        """Remove a stream; with ``cascade`` the views that read it, too."""

    def add_column(
        self,
        name: str,
        column: str,
        type_: pa.DataType,
        nullable: bool = True,
        default: Any = None,
    ) -> None:
        """Add an attribute to a stream, which events so far have the default of."""

    def widen_column(self, name: str, column: str, type_: pa.DataType) -> None:
        """Give an attribute a type that holds all values of its old one."""

    def rename_column(self, name: str, column: str, to: str) -> None:
        """Give an attribute another name."""

    def drop_column(self, name: str, column: str) -> None:
        """Drop an attribute."""

    def set_options(self, name: str, options: Mapping[str, Any]) -> None:
        """Change settings of a stream."""

    def rename_stream(self, name: str, to: str) -> None:
        """Give a stream another name."""

    def create_index(self, name: str, attribute: str, *, lag_events_max: int | None = None) -> None:
        """Build a secondary index."""

    def drop_index(self, name: str, attribute: str) -> None:
        """Remove a secondary index."""

    def list_indexes(self, name: str) -> Sequence[dict[str, Any]]:
        """The secondary indexes of a stream."""

    def stream_options(self, name: str) -> dict[str, Any]:
        """Settings of a stream as they were given: codec, retention."""

    def told(self, table: str) -> Sequence[Mapping[str, Any]]:
        """Rows of a system table that only the owner knows, see :data:`.system_tables.TOLD`."""

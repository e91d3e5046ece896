"""What the query layer requires of the database; ``api/database.py`` implements it."""

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
    """Streams by name, and the changes that statements can make."""

    @property
    def mode(self) -> str:
        """``"rw"`` or ``"r"``."""

    @property
    def path(self) -> Path | None:
        """Directory of the store, with calibrated weights; None without one."""

    def indexes_of(self, name: str) -> StreamIndexes | None:
        """The secondary indexes of a stream; None for a stream without any."""

    @property
    def live_statements(self) -> LiveStatements:
        """The live queries."""

    def rollups_of(self, name: str) -> Sequence[Rollup]:
        """The roll-ups of a stream that may answer its queries."""

    @property
    def frames(self) -> Mapping[str, Frame]:
        """Registered tables of the program, by name in lower case."""

    def streams(self) -> list[str]:
        """Names of all streams, sorted."""

    def damaged(self) -> dict[str, str]:
        """Streams that cannot be opened, each with the reason."""

    def views(self) -> Mapping[str, KeptView]:
        """Views by name, sorted."""

    def create_view(self, view: KeptView, *, replace: bool = False) -> None:
        """Store a view; raises StreamExists."""

    def drop_view(self, name: str, *, cascade: bool = False) -> None:
        """Remove a view; raises StreamOwned if others read it."""

    def stream_schema(self, name: str) -> StreamSchema:
        """Schema of a stream; raises StreamNotFound."""

    def snapshot(self, name: str) -> Snapshot:
        """A consistent view of a stream as of now."""

    def append_arrow(self, name: str, data: pa.Table) -> AppendResult:
        """Append events in the stream's schema."""

    def delete_events(
        self, name: str, start: int | None, end: int | None, choose: Choice | None
    ) -> int:
        """Delete the events between two ticks, or the chosen ones; returns their number."""

    def update_events(
        self, name: str, start: int | None, end: int | None, choose: Choice | None, change: Change
    ) -> int:
        """Update the events between two ticks, or the chosen ones; returns their number."""

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
        """Create a stream that initially holds ``events``."""

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
        """Add an attribute to a stream; existing events have its default."""

    def widen_column(self, name: str, column: str, type_: pa.DataType) -> None:
        """Change an attribute to a type that holds all values of its old one."""

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
        """Settings of a stream as given: codec, retention."""

    def told(self, table: str) -> Sequence[Mapping[str, Any]]:
        """Rows of a system table in ``system_tables.TOLD``."""

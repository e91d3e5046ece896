"""What the query layer asks of the database above it.

Purpose
    The query layer runs statements against streams without knowing who owns them:
    :class:`Catalog` lists the few calls it makes.  :class:`chronicle.database.Database` is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from ...schema import StreamSchema
from ...store.snapshot import Snapshot
from .live import LiveStatements

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

    def streams(self) -> list[str]:
        """Names of all streams, sorted."""

    def damaged(self) -> dict[str, str]:
        """Those among them that cannot be opened, each with what is wrong."""

    def stream_schema(self, name: str) -> StreamSchema:
        """Schema of a stream; raises StreamNotFound."""

    def snapshot(self, name: str) -> Snapshot:
        """A consistent view of a stream as of now."""

    def append_arrow(self, name: str, data: pa.Table) -> int:
        """Append events in the stream's schema; gives their number."""

    def create_stream(
        self,
        name: str,
        schema: StreamSchema,
        *,
        retention: str | int | None = None,
        codec: str = "lz4",
        if_not_exists: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> Any:
        """Create a stream."""

    def drop_stream(self, name: str, *, if_exists: bool = False) -> None:
        """Remove a stream."""

    def add_column(self, name: str, column: str, type_: pa.DataType) -> None:
        """Add a nullable attribute to a stream."""

    def create_index(self, name: str, attribute: str, *, lag_events_max: int | None = None) -> None:
        """Build a secondary index."""

    def drop_index(self, name: str, attribute: str) -> None:
        """Remove a secondary index."""

    def list_indexes(self, name: str) -> Sequence[dict[str, Any]]:
        """The secondary indexes of a stream."""

    def stream_options(self, name: str) -> dict[str, Any]:
        """Settings of a stream as they were given: codec, retention."""

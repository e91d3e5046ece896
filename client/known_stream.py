"""Name and last known schema of a remote stream, without a request."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ..schema import StreamSchema
from .answers import schema_of
from .stream_calls import StreamCalls

__all__ = ["KnownStream"]


class KnownStream:
    """Base of the blocking and the asynchronous stream."""

    def __init__(self, name: str, told: Any, where: str) -> None:
        self._calls = StreamCalls(name)
        self._where = where
        self._told(told)

    def _told(self, told: Any) -> Any:
        """Take the schema from a description; returns the description."""
        self._schema = schema_of(told, self._where)
        return told

    @property
    def name(self) -> str:
        return self._calls.name

    @property
    def schema(self) -> pa.Schema:
        return self._schema.arrow

    @property
    def event_schema(self) -> StreamSchema:
        """The schema with its time attribute and storage types."""
        return self._schema

    @property
    def time(self) -> str:
        return self._schema.time

    def __repr__(self) -> str:
        return f"<chronicle.Stream {self.name!r} of {self._where}>"

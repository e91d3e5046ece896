"""A stream behind a Chronicle server, read as Arrow over HTTP.

Purpose
    The :class:`~chronicle.spark_connector.backend.Backend` for ``option("url", ...)``: no shared
    file system is needed, and the server that owns the store may write to it meanwhile.

Guarantee
    ``GET .../partitions`` pins a version on the server, and every task reads that version.  A
    version that the server no longer keeps answers 410, which ends the task with an error, not with
    other events.

Limits
    All bytes go through one server process.  A pinned version is kept for
    ``CHRONICLE_SNAPSHOT_TTL_MS`` after its last use (ten minutes unless set): a DataFrame that is
    read again after that must be loaded again.  ``pushFilters`` narrows the time range only.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from ..client import StreamRoutes, Transport
from ..client.calls import query
from ..errors import InvalidArgument
from ..schema import StreamSchema
from .backend import EventPartition, ScanRequest
from .options import Options

__all__ = ["ServerBackend", "remote_stream"]


def remote_stream(options: Options) -> StreamRoutes:
    """The stream behind a server that the options name."""
    assert options.url is not None
    transport = Transport(options.url, options.token, options.timeout, options.retries)
    return StreamRoutes(transport, options.stream or "")


class ServerBackend:
    """Reads through a server; see the module."""

    def __init__(self, options: Options) -> None:
        self._stream = remote_stream(options)

    def describe(self) -> StreamSchema:
        """Schema of the stream."""
        return self._stream.schema()

    def has_view(self, name: str) -> bool:
        """Whether there is a view of that name."""
        text = (
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'main' AND "
            "table_type = 'VIEW'"
        )
        found = self._stream.transport.batches(query(text)).read_all()
        return name.lower() in map(str.lower, found.column(0).to_pylist())

    def count(self) -> int:
        """Events in the stream."""
        return self._stream.count()

    def plan(self, scan: ScanRequest) -> list[EventPartition]:
        """Have the server pin a version and cut it; a wrong predicate is told before tasks run."""
        if scan.filter is not None:
            self._stream.check_filter(scan.filter)
        answer = self._stream.partitions(
            scan.parts, start=scan.start, end=scan.end, version=scan.as_of
        )
        return [
            EventPartition(part["start"], part["end"], answer["version"])
            for part in answer["partitions"]
        ]

    def read(self, scan: ScanRequest, partition: EventPartition) -> Iterator[pa.RecordBatch]:
        """Stream one partition."""
        return iter(
            self._stream.events(
                list(dict.fromkeys(scan.columns)),
                scan.filter,
                scan.limit,
                start=partition.start,
                end=partition.end,
                version=partition.pin,
            )
        )

    def query_schema(self, text: str) -> pa.Schema:
        """Schema of a query's result, from an answer without rows."""
        return self._stream.query_schema(text)

    def plan_query(self, text: str, parts: int | None) -> list[InputPartition]:
        """One partition: the server runs the query itself."""
        if parts is not None and parts > 1:
            raise InvalidArgument(
                "a query behind a url runs in the server, in one piece; leave out the option "
                "'numPartitions', or read the store by its 'path'"
            )
        return [InputPartition(text)]

    def run_query(self, text: str, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Stream the rows of a query."""
        del partition
        transport = self._stream.transport
        return iter(transport.batches(query(text)))

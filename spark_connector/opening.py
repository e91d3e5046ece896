"""Choice of the backend: the store's files by ``path``, a server by ``url``.

The server backend reads a stream as Arrow over HTTP.  ``GET .../partitions`` pins a version on the
server for ``CHRONICLE_SNAPSHOT_TTL_MS`` after its last use (default ten minutes); an expired one
answers 410, an error.  ``pushFilters`` narrows only the time.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from ..client import Transport
from ..client.answers import schema_of
from ..client.calls import StreamCalls, check, query
from ..errors import InvalidArgument
from ..schema import StreamSchema
from .backend import EventPartition, ScanRequest
from .local import LocalBackend
from .options import Options


class ServerStream:
    """A stream behind a server; it need not have a name, for queries only."""

    def __init__(self, options: Options) -> None:
        assert options.url is not None
        self.transport = Transport(options.url, options.token, options.timeout, options.retries)
        self.calls = StreamCalls(options.stream or "")

    def describe(self) -> StreamSchema:
        return schema_of(self.transport.json(self.calls.describe()), self.transport.where)


class ServerBackend(ServerStream):
    def has_view(self, name: str) -> bool:
        text = (
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'main' AND "
            "table_type = 'VIEW'"
        )
        found = self.transport.batches(query(text)).read_all()
        return name.lower() in map(str.lower, found.column(0).to_pylist())

    def count(self) -> int:
        return int(self.transport.json(self.calls.describe())["count"])

    def plan(self, scan: ScanRequest) -> list[EventPartition]:
        """Have the server pin a version and cut it; a wrong predicate fails before tasks run."""
        if scan.filter is not None:
            self.transport.batches(self.calls.events(None, scan.filter, 0)).read_all()
        answer = self.transport.json(
            self.calls.partitions(scan.parts, start=scan.start, end=scan.end, version=scan.as_of)
        )
        return [
            EventPartition(part["start"], part["end"], answer["version"])
            for part in answer["partitions"]
        ]

    def read(self, scan: ScanRequest, partition: EventPartition) -> Iterator[pa.RecordBatch]:
        call = self.calls.events(
            list(dict.fromkeys(scan.columns)) or None,
            scan.filter,
            scan.limit,
            start=partition.start,
            end=partition.end,
            version=partition.pin,
        )
        return iter(self.transport.batches(call))

    def query_schema(self, text: str) -> pa.Schema:
        """Schema of a query's result, from an answer without rows."""
        return self.transport.batches(check(text)).read_all().schema

    def plan_query(self, text: str, parts: int | None) -> list[InputPartition]:
        """One partition: the server runs the query."""
        if parts is not None and parts > 1:
            raise InvalidArgument(
                "a query behind a url runs in the server, in one piece; leave out the option "
                "'numPartitions', or read the store by its 'path'"
            )
        return [InputPartition(text)]

    def run_query(self, text: str, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        del partition
        return iter(self.transport.batches(query(text)))


Backend = LocalBackend | ServerBackend


def open_backend(options: Options) -> Backend:
    return LocalBackend(options) if options.path is not None else ServerBackend(options)

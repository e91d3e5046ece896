"""A stream behind a Chronicle server, read as Arrow over HTTP.

Purpose
    The :class:`~chronicle.spark_connector.backend.Backend` for ``option("url", ...)``: no shared
    file system is needed, and the server that owns the store may write to it meanwhile.

Guarantee
    ``GET .../partitions`` pins a version on the server, and every task reads that version.  A
    version that the server has let go answers 410, which ends the task with an error, not with
    other events.

Limits
    All bytes go through one server process.  A pinned version is kept for
    ``CHRONICLE_SNAPSHOT_TTL_MS`` after its last use (ten minutes unless set): a DataFrame that is
    read again after that must be loaded again.  ``pushFilters`` narrows the time range only.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from ..errors import InvalidArgument
from ..schema import StreamSchema
from .backend import EventPartition, Scan
from .options import Options
from .remote import Remote

__all__ = ["ServedBackend", "remote_of", "schema_of"]


def remote_of(options: Options) -> Remote:
    """The server that the options name."""
    assert options.url is not None
    return Remote(options.url, options.token, options.timeout, options.retries)


class ServedBackend:
    """Reads through a server; see the module."""

    def __init__(self, options: Options) -> None:
        self._remote = remote_of(options)
        self._stream = f"/v1/streams/{quote(options.stream or '', safe='')}"

    def describe(self) -> StreamSchema:
        """Schema of the stream."""
        return schema_of(self._remote.json("GET", self._stream))

    def count(self) -> int:
        """Events in the stream."""
        return int(self._remote.json("GET", self._stream)["count"])

    def plan(self, scan: Scan) -> list[EventPartition]:
        """Have the server pin a version and cut it; a wrong predicate is told before tasks run."""
        if scan.filter is not None:
            query = {"where": scan.filter, "limit": 0}
            self._remote.json("GET", f"{self._stream}/events", query)
        answer = self._remote.json(
            "GET",
            f"{self._stream}/partitions",
            {"parts": scan.parts, "start": scan.start, "end": scan.end, "version": scan.as_of},
        )
        return [
            EventPartition(part["start"], part["end"], answer["version"])
            for part in answer["partitions"]
        ]

    def read(self, scan: Scan, partition: EventPartition) -> Iterator[pa.RecordBatch]:
        """Stream one partition."""
        names = list(dict.fromkeys(scan.columns))
        query = {
            "start": partition.start,
            "end": partition.end,
            "columns": ",".join('"' + name.replace('"', '""') + '"' for name in names) or None,
            "where": scan.filter,
            "limit": scan.limit,
            "version": partition.pin,
            "format": "arrow",
        }
        return iter(
            self._remote.batches(
                "GET", f"{self._stream}/events", query, may_be_cut=scan.limit is not None
            )
        )

    def query_schema(self, text: str) -> pa.Schema:
        """Schema of a query's result, from an answer without rows."""
        reader = self._remote.batches(
            "POST", "/v1/query", body={"sql": text, "limit": 0}, may_be_cut=True
        )
        schema = reader.schema
        for _ in itertools.islice(reader, 1):
            pass
        return schema

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
        return iter(self._remote.batches("POST", "/v1/query", {"format": "arrow"}, {"sql": text}))


def schema_of(answer: Any) -> StreamSchema:
    """Schema of a stream from the server's description of it."""
    message = pa.py_buffer(base64.b64decode(answer["arrow_schema"]))
    return StreamSchema(pa.ipc.read_schema(message), answer["time"])

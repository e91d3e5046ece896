"""One stream of a server: what the routes below ``/v1/streams/{name}`` do, as methods.

Purpose
    Paths, queries and bodies of the REST interface are written here once.  Ingest, the Spark
    connector and the command line say what they want; see ``docs/rest.md`` for what it means.

Limits
    Answers are given as the server words them; only schemas and batches become objects.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from ..errors import ConnectionFailed
from ..schema import StreamSchema
from .feeds import RemoteFeed
from .transport import Transport

__all__ = ["RemoteStream"]


class RemoteStream:
    """A stream behind a server; it need not exist."""

    def __init__(self, transport: Transport, name: str) -> None:
        self.transport = transport
        self.name = name
        self.path = f"/v1/streams/{quote(name, safe='')}"

    # ------------------------------------------------------------------------------- the stream

    def describe(self) -> dict[str, Any]:
        """What the server tells of the stream."""
        answer: dict[str, Any] = self.transport.json("GET", self.path)
        return answer

    def schema(self) -> StreamSchema:
        """Columns of the stream."""
        return self._schema_of(self.describe())

    def count(self) -> int:
        """Events in the stream."""
        return int(self.describe()["count"])

    def create(
        self,
        schema: StreamSchema,
        *,
        codec: str = "lz4",
        retention: str | None = None,
        if_not_exists: bool = False,
    ) -> StreamSchema:
        """Make the stream; gives the schema that it has."""
        body = {
            "name": self.name,
            "time": schema.time,
            "arrow_schema": base64.b64encode(schema.arrow.serialize()).decode("ascii"),
            "codec": codec,
            "retention": retention,
            "if_not_exists": if_not_exists,
        }
        return self._schema_of(self.transport.json("POST", "/v1/streams", body=body))

    def drop(self) -> None:
        """Remove the stream."""
        self.transport.json("DELETE", self.path)

    def create_index(self, attribute: str, lag_events_max: int | None = None) -> None:
        """Build an index on an attribute."""
        self.transport.json("POST", self._index(attribute), {"lag_events_max": lag_events_max})

    def drop_index(self, attribute: str) -> None:
        """Remove an index."""
        self.transport.json("DELETE", self._index(attribute))

    def _index(self, attribute: str) -> str:
        return f"{self.path}/indexes/{quote(attribute, safe='')}"

    def _schema_of(self, answer: dict[str, Any]) -> StreamSchema:
        try:
            message = pa.py_buffer(base64.b64decode(answer["arrow_schema"]))
            return StreamSchema(pa.ipc.read_schema(message), answer["time"])
        except (KeyError, TypeError, ValueError, pa.ArrowInvalid):
            raise ConnectionFailed(
                f"{self.transport.where} describes no stream where one is expected: is it a "
                "Chronicle server?"
            ) from None

    # ----------------------------------------------------------------------------------- events

    def append(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Any:
        """Append events by one request, atomically."""
        return self.transport.send_batches("POST", f"{self.path}/events", schema, batches)

    def events(
        self, columns: Sequence[str], where: str | None, limit: int | None, **bounds: object | None
    ) -> pa.RecordBatchReader:
        """Events in time order; ``bounds`` are ``start``, ``end`` (ticks), ``version``."""
        query = {
            "columns": _listed(columns) or None,
            "where": where,
            "limit": limit,
            "format": "arrow",
            **bounds,
        }
        return self.transport.batches(
            "GET", f"{self.path}/events", query, may_be_cut=limit is not None
        )

    def check_filter(self, where: str) -> None:
        """Have the server refuse a wrong predicate."""
        self.transport.json("GET", f"{self.path}/events", {"where": where, "limit": 0})

    def partitions(self, parts: int | None, **bounds: object | None) -> Any:
        """Have the server pin a version and cut it into time ranges."""
        return self.transport.json("GET", f"{self.path}/partitions", {"parts": parts, **bounds})

    # ----------------------------------------------------------------------------- transactions

    def put_part(
        self, transaction: str, part: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
    ) -> None:
        """Stage a part of a transaction."""
        path = f"{self._transaction(transaction)}/parts/{part}"
        self.transport.send_batches("PUT", path, schema, batches)

    def commit(
        self,
        transaction: str,
        parts: Sequence[str],
        truncate: bool = False,
        application: str | None = None,
        version: int | None = None,
    ) -> Any:
        """Make parts events; asked again, it does nothing."""
        body = {"parts": list(parts), "truncate": truncate}
        if application is not None and version is not None:
            body |= {"app_id": application, "app_version": version}
        path = f"{self._transaction(transaction)}/commit"
        return self.transport.json("POST", path, body=body, repeatable=True)

    def abort(self, transaction: str) -> None:
        """Drop the parts of a transaction."""
        self.transport.json("DELETE", self._transaction(transaction))

    def _transaction(self, name: str) -> str:
        return f"{self.path}/transactions/{quote(name, safe='')}"

    # -------------------------------------------------------------------------------- following

    def tail(
        self,
        after: str = "now",
        *,
        follow: bool = True,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> RemoteFeed:
        """What is appended, as it is committed."""
        query: dict[str, Any] = {"after": after, "follow": follow, "where": where}
        query["columns"] = None if columns is None else _listed(columns)
        return RemoteFeed(self.transport, f"{self.path}/tail", query)

    def keep_position(self, **which: object | None) -> str | None:
        """Keep a commit (``at``), or the last one when it lies ``after`` a kept one."""
        answer = self.transport.json("POST", f"{self.path}/positions", body=which)
        name = answer["position"]
        return None if name is None else str(name)

    def drop_position(self, name: str) -> None:
        """Give a kept commit up."""
        self.transport.json("DELETE", f"{self.path}/positions/{quote(name, safe='')}")

    def changes(self, after: str | None, until: str) -> Any:
        """Time ranges that hold what was committed between two kept commits."""
        query = {"after": after, "until": until}
        return self.transport.json("GET", f"{self.path}/changes", query)["ranges"]

    def new_events(
        self, after: str | None, until: str, columns: Sequence[str], **bounds: object | None
    ) -> pa.RecordBatchReader:
        """What was committed between two kept commits, in a time range."""
        query = {
            "after": after,
            "until": until,
            "columns": _listed(columns),
            "format": "arrow",
            **bounds,
        }
        return self.transport.batches("GET", f"{self.path}/changes/events", query, may_be_cut=True)


def _listed(columns: Iterable[str]) -> str:
    """A list of columns as the server reads it: each in quotes, for names with commas."""
    return ",".join('"' + name.replace('"', '""') + '"' for name in columns)

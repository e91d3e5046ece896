"""The routes below ``/v1/streams/{name}`` as calls; see ``docs/rest.md``."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..schema import StreamSchema
from .calls import Call, quoted

__all__ = ["StreamCalls"]


class StreamCalls:
    """Requests about one stream, which need not exist; ``bounds`` are ``start`` and ``end`` in
    ticks.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = f"/v1/streams/{quoted(name)}"

    def describe(self) -> Call:
        return Call("GET", self.path)

    def create(
        self,
        schema: StreamSchema,
        codec: str,
        retention: str | int | None,
        options: Mapping[str, Any] | None,
        if_not_exists: bool,
    ) -> Call:
        body: dict[str, Any] = {
            "name": self.name,
            "time": schema.time,
            "arrow_schema": base64.b64encode(schema.arrow.serialize()).decode("ascii"),
            "codec": codec,
            "retention": retention,
            "if_not_exists": if_not_exists,
        }
        if options:
            body["options"] = dict(options)
        return Call("POST", "/v1/streams", body=body, repeatable=if_not_exists)

    def drop(self) -> Call:
        return Call("DELETE", self.path)

    def create_index(
        self, attribute: str, *, wait: bool = True, lag_events_max: int | None = None
    ) -> Call:
        query = {"wait": str(wait).lower(), "lag_events_max": lag_events_max}
        return Call("POST", f"{self.path}/indexes/{quoted(attribute)}", query)

    def drop_index(self, attribute: str) -> Call:
        return Call("DELETE", f"{self.path}/indexes/{quoted(attribute)}")

    def indexes(self) -> Call:
        return Call("GET", f"{self.path}/indexes")

    # ----------------------------------------------------------------------------------- events

    def append(self, durability: str | None = None, key: str | None = None) -> Call:
        """Repeatable with a key."""
        headers = {} if key is None else {"Idempotency-Key": key}
        path = f"{self.path}/events"
        query = {"durability": durability}
        return Call("POST", path, query, headers=headers, repeatable=key is not None)

    def delete(self, where: str | None, **bounds: int | None) -> Call:
        body = {"where": "true" if where is None else where, **bounds}
        return Call("POST", f"{self.path}/delete", body=body)

    def update(self, values: Mapping[str, str], where: str | None, **bounds: int | None) -> Call:
        body = {"set": dict(values), "where": "true" if where is None else where, **bounds}
        return Call("POST", f"{self.path}/update", body=body)

    def events(
        self,
        columns: Sequence[str] | None,
        where: str | None,
        limit: int | None,
        **bounds: object | None,
    ) -> Call:
        """Events in time order; ``bounds`` are ``start``, ``end`` (ticks), ``version``."""
        query = {"columns": listed(columns), "where": where, "limit": limit, **bounds}
        query["format"] = "arrow"
        return Call("GET", f"{self.path}/events", query, may_be_cut=limit is not None)

    def aggregate(
        self, attributes: Sequence[str], functions: Iterable[str], **bounds: int | None
    ) -> Call:
        query = {"attribute": listed(attributes), "functions": ",".join(functions), **bounds}
        return Call("GET", f"{self.path}/aggregate", query)

    def partitions(self, parts: int | None, **bounds: object | None) -> Call:
        return Call("GET", f"{self.path}/partitions", {"parts": parts, **bounds})

    # ----------------------------------------------------------------------------- transactions

    def put_part(self, transaction: str, part: str) -> Call:
        return Call("PUT", f"{self._transaction(transaction)}/parts/{part}")

    def commit(
        self,
        transaction: str,
        parts: Sequence[str],
        truncate: bool,
        over: tuple[int | None, int | None] | None,
        application: str | None,
        version: int | None,
    ) -> Call:
        """Commit parts; repeatable.  ``over``: a range to replace, in ticks."""
        body: dict[str, Any] = {"parts": list(parts), "truncate": truncate}
        if over is not None:
            body["replace"] = {"start": over[0], "end": over[1]}
        if application is not None and version is not None:
            body |= {"app_id": application, "app_version": version}
        path = f"{self._transaction(transaction)}/commit"
        return Call("POST", path, body=body, repeatable=True)

    def abort(self, transaction: str) -> Call:
        return Call("DELETE", self._transaction(transaction))

    def _transaction(self, name: str) -> str:
        return f"{self.path}/transactions/{quoted(name)}"

    # -------------------------------------------------------------------------------- following

    def tail(
        self, after: str | int, follow: bool, where: str | None, columns: Sequence[str] | None
    ) -> Call:
        query = {"after": after, "follow": follow, "where": where, "columns": listed(columns)}
        return Call("GET", f"{self.path}/tail", query)

    def keep_position(self, **which: object | None) -> Call:
        """``at`` a commit, or the last one if it is ``after`` a position."""
        return Call("POST", f"{self.path}/positions", body=which)

    def drop_position(self, name: str) -> Call:
        return Call("DELETE", f"{self.path}/positions/{quoted(name)}")

    def changes(self, after: str | None, until: str) -> Call:
        return Call("GET", f"{self.path}/changes", {"after": after, "until": until})

    def new_events(
        self,
        after: str | None,
        until: str,
        columns: Sequence[str] | None,
        **bounds: object | None,
    ) -> Call:
        query = {"after": after, "until": until, "columns": listed(columns), **bounds}
        query["format"] = "arrow"
        return Call("GET", f"{self.path}/changes/events", query, may_be_cut=True)


def listed(columns: Iterable[str] | None) -> str | None:
    if columns is None:
        return None
    return ",".join('"' + name.replace('"', '""') + '"' for name in columns)

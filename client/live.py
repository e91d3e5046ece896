"""A live query of a server: ``db.live(name)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from ..schema import StreamSchema
from . import calls
from .answers import schema_of, status_of
from .feeds import RemoteFeed
from .stream_calls import StreamCalls
from .transport import Transport

__all__ = ["RemoteLive"]


class RemoteLive:
    """A live query, made by ``RemoteDatabase.live``."""

    def __init__(
        self, transport: Transport, name: str, caught_up: Callable[[], None], told: Any
    ) -> None:
        self._transport = transport
        self._caught_up = caught_up
        self._times: StreamSchema | None = None
        self.name = name
        self.sql: str = told["sql"]
        self.sink: str = told["sink"]

    def status(self) -> dict[str, Any]:
        """As ``LiveHandle.status``."""
        return status_of(self._ask("GET"), self._schema())

    def rows(self, after: int = 0, follow: bool = False) -> RemoteFeed:
        """Results and retractions after the ``_seq`` ``after``, in order; with ``follow``, wait for
        more.
        """
        return RemoteFeed(self._transport, calls.live_rows(self.name, after, follow))

    def net(self, start: object = None, end: object = None) -> pa.Table:
        """The current results, as ``NET(name)``; with times in ``[start, end)``."""
        schema = self._schema() if (start, end) != (None, None) else None
        return self._transport.batches(calls.net(self.name, schema, start, end)).read_all()

    def pause(self) -> None:
        """Stop until ``resume``, also across restarts."""
        self._ask("POST", "pause")

    def resume(self) -> None:
        """Continue where it stopped, also after a failure."""
        self._ask("POST", "resume")

    def refresh(self, start: object = None, end: object = None) -> None:
        """Compare results with times in ``[start, end)`` with the query, and correct them."""
        self._ask("POST", "refresh", **calls.bounds(self._schema(), start, end))

    def verify(self) -> int:
        """Number of missing or wrong results after all commits so far."""
        self._caught_up()
        return int(self._ask("POST", "verify")["differences"])

    def drop(self, keep_results: bool = False) -> None:
        """Remove it, and its results unless they are kept."""
        self._ask("DELETE", keep_results=str(keep_results).lower())

    def _ask(self, method: str, what: str = "", **query: object | None) -> Any:
        return self._transport.json(calls.live(self.name, what, method, **query))

    def _schema(self) -> StreamSchema:
        if self._times is None:
            told = self._transport.json(StreamCalls(self.sink).describe())
            self._times = schema_of(told, self._transport.where)
        return self._times

    def __repr__(self) -> str:
        return f"<chronicle.LiveQuery {self.name!r} of {self._transport.where}>"

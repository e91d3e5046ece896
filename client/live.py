"""A live query of a server: what ``db.live(name)`` gives."""

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
    """A live query by name; made by :meth:`.RemoteDatabase.live`."""

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
        """How it does; as :meth:`chronicle.live.handle.LiveHandle.status`."""
        return status_of(self._ask("GET"), self._schema())

    def rows(self, after: int = 0, follow: bool = False) -> RemoteFeed:
        """What was put out and taken back behind a ``_seq``, in the order of ``_seq``.

        Parameters
        ----------
        after : int
            The last ``_seq`` that is known already.
        follow : bool
            Wait for more.
        """
        return RemoteFeed(self._transport, calls.live_rows(self.name, after, follow))

    def net(self, start: object = None, end: object = None) -> pa.Table:
        """What holds now, as ``NET(name)``; of results with times in ``[start, end)``."""
        schema = self._schema() if (start, end) != (None, None) else None
        return self._transport.batches(calls.net(self.name, schema, start, end)).read_all()

    def pause(self) -> None:
        """Stop until :meth:`resume`, over restarts of the server, too."""
        self._ask("POST", "pause")

    def resume(self) -> None:
        """Go on where it stopped, after a failure as well."""
        self._ask("POST", "resume")

    def refresh(self, start: object = None, end: object = None) -> None:
        """Compare results with times in ``[start, end)`` with the query, and put them right."""
        self._ask("POST", "refresh", **calls.bounds(self._schema(), start, end))

    def verify(self) -> int:
        """How many results are missing or wrong after all commits so far were taken in."""
        self._caught_up()
        return int(self._ask("POST", "verify")["differences"])

    def drop(self, keep_results: bool = False) -> None:
        """End it, and unless they are kept remove its results."""
        self._ask("DELETE", keep_results=str(keep_results).lower())

    def _ask(self, method: str, what: str = "", **query: object | None) -> Any:
        return self._transport.json(calls.live(self.name, what, method, **query))

    def _schema(self) -> StreamSchema:
        """Times of its results, which are those of its source."""
        if self._times is None:
            told = self._transport.json(StreamCalls(self.sink).describe())
            self._times = schema_of(told, self._transport.where)
        return self._times

    def __repr__(self) -> str:
        return f"<chronicle.LiveQuery {self.name!r} of {self._transport.where}>"

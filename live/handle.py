"""A live query as Python has it: what ``db.live(name)`` gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from ..core.times import INT64_MAX, INT64_MIN
from .engine import LiveQueries

__all__ = ["LiveHandle"]


class LiveHandle:
    """A live query by name; made by :meth:`chronicle.api.database.Database.live`."""

    def __init__(self, live: LiveQueries, name: str) -> None:
        self._live = live
        self.name = name
        live.definition(name)

    @property
    def sql(self) -> str:
        """The SELECT, as it was written."""
        return self._live.definition(self.name).sql

    @property
    def sink(self) -> str:
        """Name of the stream that holds its results."""
        return self._live.definition(self.name).sink

    def status(self) -> dict[str, Any]:
        """How it does.

        Returns
        -------
        dict
            ``state`` (``running``, ``catching up``, ``paused``, ``failed``), ``watermark`` (as the
            source's time is declared; everything up to it is known), ``lag_events``, ``lag_ms``,
            ``rows``, ``retractions``, ``late``, ``ignored``, ``error`` and the other columns of
            SHOW LIVE QUERIES.
        """
        return self._live.status(self.name)

    def rows(self, after: int = 0, follow: bool = False) -> Iterator[pa.RecordBatch]:
        """What was put out and taken back, in the order of ``_seq``.

        Parameters
        ----------
        after : int
            The last ``_seq`` that is known already.
        follow : bool
            Wait for more; ends when the live query is dropped or the database is closed.
        """
        if follow:
            return self._live.query(self.name).sink.following(after, self._live.ended)
        return self._live.reader(self.name).rows(after)

    def net(self, start: object = None, end: object = None) -> pa.Table:
        """What holds now, as ``NET(name)``: ``_time``, ``_id``, ``_rev``, then the columns.

        Parameters
        ----------
        start, end : optional
            Times of results, half-open, as of :meth:`Stream.scan`.
        """
        sink = self._live.reader(self.name)
        schema = sink.schema
        low = INT64_MIN if start is None else schema.to_ticks(start)
        high = INT64_MAX if end is None else schema.to_ticks(end) - 1
        said = sink.said(low, high)
        columns = {
            "_time": pa.array(said.net.time).cast(schema.time_type),
            "_id": said.net.id,
            "_rev": pa.array(said.revision).cast(pa.int32()),
        }
        for name in sink.columns:
            columns[name] = said.net.columns.column(name)
        return pa.table(columns)

    def pause(self) -> None:
        """Stop until :meth:`resume`, over restarts, too."""
        self._live.pause(self.name)

    def resume(self) -> None:
        """Go on where it stopped, after a failure as well."""
        self._live.resume(self.name)

    def refresh(self, start: object = None, end: object = None) -> None:
        """Compare results with times in ``[start, end)`` with the query, and put them right."""
        self._live.refresh(self.name, start, end)

    def verify(self) -> int:
        """How many results are missing or wrong after all commits so far were taken in."""
        self._live.run()
        return self._live.query(self.name).verify()

    def drop(self, keep_results: bool = False) -> None:
        """End it, and unless they are kept remove its results."""
        self._live.drop(self.name, keep_results)

    def __repr__(self) -> str:
        return f"<chronicle.LiveQuery {self.name!r}>"

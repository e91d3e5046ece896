"""A live query's handle in Python, as ``db.live(name)`` returns it.

``request_of`` converts Python arguments to the request of a CREATE LIVE statement.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from ..core.sql_text import quoted_text
from ..core.times import INT64_MAX, INT64_MIN
from ..errors import InvalidArgument
from ..query.conditions.constants import Folder, Kind
from ..query.contract.catalog import Given, LiveRequest
from ..query.sql.dialect import parse_predicate, parse_statement
from .engine import LiveQueries


class LiveHandle:
    """A live query by name; made by ``Database.live``."""

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
        """State and counters of the query.

        Returns
        -------
        dict
            The columns of SHOW LIVE QUERIES, among them ``state`` (``running``, ``catching up``,
            ``paused``, ``failed``), ``watermark`` (in the source's time type; results up to it are
            final), ``lag_events``, ``lag_ms``, ``rows``, ``retractions``, ``late``, ``ignored`` and
            ``error``.
        """
        return self._live.status(self.name)

    def rows(self, after: int = 0, follow: bool = False) -> Iterator[pa.RecordBatch]:
        """Additions and retractions, in the order of ``_seq``.

        Parameters
        ----------
        after : int
            Return only rows with a greater ``_seq``.
        follow : bool
            Wait for more; ends when the live query is dropped or the database is closed.
        """
        if follow:
            return self._live.query(self.name).sink.following(after, self._live.ended)
        return self._live.reader(self.name).rows(after)

    def net(self, start: object = None, end: object = None) -> pa.Table:
        """Results that hold now, as ``NET(name)``: ``_time``, ``_id``, ``_rev``, then the columns.

        Parameters
        ----------
        start, end : optional
            Half-open range of result times, as in ``Stream.scan``.
        """
        sink = self._live.reader(self.name)
        schema = sink.schema
        low = INT64_MIN if start is None else schema.to_ticks(start)
        high = INT64_MAX if end is None else schema.to_ticks(end) - 1
        said = sink.emitted(low, high)
        columns = {
            "_time": pa.array(said.net.time).cast(schema.time_type),
            "_id": said.net.id,
            "_rev": pa.array(said.revision).cast(pa.int32()),
        }
        for name in sink.columns:
            columns[name] = said.net.columns.column(name)
        return pa.table(columns)

    def pause(self) -> None:
        """Stop until ``resume``, across restarts."""
        self._live.pause(self.name)

    def resume(self) -> None:
        """Continue after a pause or a failure."""
        self._live.resume(self.name)

    def refresh(self, start: object = None, end: object = None) -> None:
        """Recompute results with times in ``[start, end)`` and correct what differs."""
        self._live.refresh(self.name, start, end)

    def verify(self) -> int:
        """Number of missing or wrong results, after all commits so far were processed."""
        self._live.run()
        return self._live.query(self.name).verify()

    def drop(self, keep_results: bool = False) -> None:
        """Drop the query, and its results unless ``keep_results``."""
        self._live.drop(self.name, keep_results)

    def __repr__(self) -> str:
        return f"<chronicle.LiveQuery {self.name!r}>"


def request_of(
    name: str,
    sql: str,
    into: str | None,
    start: object,
    delay: object,
    idle: object,
    late: object,
    emit: object,
    options: Mapping[str, Any],
    if_not_exists: bool,
) -> LiveRequest:
    """A request; arguments as of ``Database.create_live``."""
    text = sql.strip().removesuffix(";").rstrip()
    words = isinstance(start, str) and start.lower() in ("first", "now")
    ignores = isinstance(late, str) and late.lower() in ("correct", "ignore")
    closes = emit is None or (isinstance(emit, str) and emit.lower() == "close")
    never = isinstance(idle, str) and idle.lower() == "never"
    return LiveRequest(
        name,
        parse_statement(sql),
        sql,
        text,
        into=into,
        start=str(start).lower() if words else Given(start),
        delay=_length(delay, "delay"),
        idle="never" if never else _length(idle, "idle"),
        late=str(late).lower() if ignores else "correct",
        correct_for=None if ignores else _length(late, "late"),
        every=None if closes else _length(emit, "emit"),
        options={key.lower(): Given(value) for key, value in options.items()},
        exists_ok=if_not_exists,
    )


def _length(value: object, what: str) -> Given | None:
    if value is None:
        return None
    if isinstance(value, dt.timedelta):
        return Given(None, value // dt.timedelta(microseconds=1) * 1000)
    if isinstance(value, int) and not isinstance(value, bool):
        return Given(value)
    if isinstance(value, str):
        now = dt.datetime.now(dt.timezone.utc)
        found = Folder({}, now).fold(parse_predicate(f"INTERVAL {quoted_text(value)}"))
        if found.kind is Kind.INTERVAL:
            return Given(None, int(found.value))
    raise InvalidArgument(
        f"{what} is a timedelta, an integer where times are integers, or a text such as "
        f"'5 minutes', found {value!r}"
    )

"""Statements on live queries: create, change, drop, show.

Statements are serialised and take the lock of the query that they change, so they wait for its
step.  A definition is durable on return; an interrupted DROP is completed when the store is opened.
``LiveHandle`` is what ``db.live(name)`` returns.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from ..core.sql_text import quoted_text
from ..core.times import INT64_MAX, INT64_MIN, iso_text
from ..errors import ChronicleError, InvalidArgument, ReadOnlyStore
from ..query.conditions.constants import Folder, Kind
from ..query.contract.catalog import LIVE_QUERIES, Given, LiveRequest, Rollup
from ..query.engine import QueryEngine
from ..query.sql.dialect import parse_predicate, parse_statement
from ..schema import StreamSchema
from ..store.store import Store
from .analysis import Analysed
from .bank.symbols import Card
from .composition import analyse, engine_with_views, expand_views, stored_views
from .definition import Definitions, LiveDefinition
from .delivery import Deliveries, Webhook
from .options import defined
from .query import LiveQuery, error_text
from .rollups import RetentionHolds, checked, rollup_of
from .rounds import Rounds
from .sharing import card_of_query
from .sink import SinkReader, Sinks, wrong


class LiveQueries:
    """``drop_stream`` removes a stream with all state of the layers above the store."""

    def __init__(
        self,
        store: Store,
        engine: Callable[[], QueryEngine],
        drop_stream: Callable[[str], None],
    ) -> None:
        self._store = store
        self._engine = engine
        self._drop_stream = drop_stream
        self._sinks = Sinks(store)
        self._deliveries = Deliveries(store.files)
        self._holds = RetentionHolds(store)
        self._rollups: dict[str, tuple[LiveDefinition, StreamSchema, Rollup | None]] = {}
        self._definitions = Definitions(store)
        self._rounds = Rounds(self._definitions, self._store.writer, self._opened)
        if store.mode == "rw":
            for definition in self._definitions:
                if definition.dropping:
                    self._finish_drop(definition, keep_results=False)
                else:
                    self._holds.begin(definition)

    # -- what there is ----------------------------------------------------------------------------

    def names(self) -> list[str]:
        return self._definitions.names()

    def definition(self, name: str) -> LiveDefinition:
        return self._definitions.find(name)

    def rollups(self) -> list[str]:
        names, definitions = self.names(), list(self._definitions)
        return sorted(d.name for d in definitions if d.rollup is not None and d.name in names)

    def rollups_of(self, stream: str) -> list[Rollup]:
        """Roll-ups of a stream whose results can be read."""
        names, readable, streams = self.rollups(), [], self._store.streams()
        for name in names:
            definition = self._definitions.get(name)
            if definition is None or stream not in definition.sources:
                continue
            schema = self._store.stream(stream).schema
            cached = self._rollups.get(name)
            if cached is None or cached[0] != definition or cached[1] is not schema:
                made = rollup_of(self._engine(), definition, partial(self._rounds.get, name))
                cached = self._rollups[name] = (definition, schema, made)
            if cached[2] is not None and definition.sink in streams:
                readable.append(cached[2])
        return readable

    def sink_of(self, name: str) -> str:
        """Name of the results' stream; the query's own name if the definition is unreadable."""
        with self._definitions.lock:
            definition = self._definitions.get(name)
        return name if definition is None else definition.sink

    def query(self, name: str) -> LiveQuery:
        """A running query, opened on first use."""
        definition = self.definition(name)
        if self._store.mode != "rw":
            raise ReadOnlyStore(
                f"the live query {name!r} runs where the store is open for writing; its "
                f"results can be read here: SELECT ... FROM {definition.sink}"
            )
        return self._rounds.query(name)

    def reader(self, name: str) -> SinkReader:
        """Reader of a query's output, also where the query itself runs in another process."""
        if self._store.mode == "rw":
            return self.query(name).sink
        definition = self.definition(name)
        if not definition.store:
            raise InvalidArgument(
                f"the live query {name!r} stores nothing: follow it where it runs"
            )
        return SinkReader(self._store.stream(definition.sink), name, definition.columns)

    def _opened(self, definition: LiveDefinition, analysed: Analysed | None = None) -> LiveQuery:
        if analysed is None:
            text, views = definition.sql, stored_views(definition.views)
            expanded = expand_views(parse_statement(text), text, views)
            with expanded.explained():
                analysed = self._analyse(expanded.tree, text, definition.columns)
        sources = self._rounds.sources(definition.sources)
        sink = self._sinks.opened(definition, analysed)
        if definition.rollup is not None:
            self._holds.serve(definition.name, sink.stream)
        card = card_of_query(definition, analysed.form)
        if card is not None and Card.from_json(definition.card) != card:
            definition = replace(definition, card=card.to_json())
            if self._definitions.get(definition.name) is not None and not definition.dropping:
                self._definitions.keep(definition)
        if definition.webhook is not None and definition.webhook_secret is not None:
            webhook = Webhook(definition.webhook, definition.webhook_secret)
            self._deliveries.add(webhook, sink)
        return LiveQuery(definition, analysed.form, sources, sink, card)

    def _analyse(self, tree: Any, text: str, frozen: Sequence[str] = ()) -> Analysed:
        return analyse(
            self._engine, lambda name: self._store.stream(name).snapshot(), tree, text, frozen
        )

    # -- statements -------------------------------------------------------------------------------

    def create(self, request: LiveRequest) -> bool:
        """Create a live query; False if it exists and the request allows that."""
        self._store.check_writable("change live queries")
        with self._definitions.lock:
            if request.name in self._definitions:
                if request.exists_ok:
                    return False
                raise wrong(request, f"there is a live query {request.name!r} already")
            expanded = expand_views(request.tree, request.text, self._engine().catalog.views())
            with expanded.explained():
                analysed = self._analyse(expanded.tree, request.text)
            sources = [self._store.writer(name) for name in analysed.form.streams]
            definition = replace(defined(request, analysed, sources), views=expanded.views)
            self._sinks.check(request, definition, analysed)
            if request.rollup and not definition.store:
                raise wrong(request, "a roll-up stores its results: leave store = false out")
            if request.rollup:
                with expanded.explained():
                    windows = checked(self._engine(), analysed, expanded.tree, request.text)
                definition = replace(definition, rollup=windows)
            card = card_of_query(definition, analysed.form)
            if card is not None:
                definition = replace(definition, card=card.to_json())
            self._holds.begin(definition)
            try:
                self._definitions.keep(definition)
                self._rounds.begin(definition, lambda: self._opened(definition, analysed))
            except BaseException:
                self._definitions.forget(definition.name)
                self._rounds.end(definition)
                self._definitions.lose(definition.name)
                self._holds.end(definition.name)
                raise
        self._rounds.wake()
        return True

    def check(self, sql: str) -> None:
        """Raise SqlError for a SELECT that cannot be live."""
        expanded = expand_views(parse_statement(sql), sql, self._engine().catalog.views())
        with expanded.explained():
            self._analyse(expanded.tree, sql)

    def drop(self, name: str, keep_results: bool = False) -> None:
        self._store.check_writable("change live queries")
        with self._definitions.lock:
            if self._definitions.damaged(name):
                self._definitions.lose(name)
                return
            definition = self.definition(name)
            query = None
            with contextlib.suppress(ChronicleError):  # an unopenable query can be dropped
                query = self.query(name)
            self._rounds.sharing.forget(name)
            if query is not None:
                with query.holding():
                    query.definition = replace(definition, paused=True)
            if not keep_results:
                definition = replace(definition, dropping=True)
                self._definitions.keep(definition)
            self._finish_drop(definition, keep_results)

    def _finish_drop(self, definition: LiveDefinition, keep_results: bool) -> None:
        name, sink = definition.name, definition.sink
        self._holds.end(name)
        self._deliveries.remove(name)
        self._definitions.forget(name)
        query = self._rounds.end(definition)
        if not definition.store:
            self._sinks.drop_passing(name)
        elif not keep_results and sink in self._store.streams():
            if not self._definitions.writes(sink):
                self._drop_stream(sink)
            elif query is not None:
                query.retract()
            else:
                with contextlib.suppress(ChronicleError):
                    self._opened(definition).retract()
                self._rounds.end(definition)
        elif query is not None and sink in self._store.streams():
            query.sink.put(None, None)
        self._definitions.lose(name)
        if query is not None:
            query.sink.end()

    def pause(self, name: str) -> None:
        self._change(name, paused=True)

    def resume(self, name: str) -> None:
        self._change(name, paused=False)
        self._deliveries.resume(name)
        self._rounds.wake()

    def _change(self, name: str, *, paused: bool) -> None:
        self._store.check_writable("change live queries")
        with self._definitions.lock:
            definition = replace(self.definition(name), paused=paused)
            self._definitions.keep(definition)
            self._rounds.retry(name)
            query = self._rounds.get(name)
        if query is not None:
            query.take(definition)
        if paused:
            self._rounds.sharing.leave(name)

    def refresh(self, name: str, start: object = None, end: object = None) -> None:
        self._store.check_writable("change live queries")
        query = self.query(name)
        schema = self._store.stream(query.definition.sources[0]).schema
        low = None if start is None else schema.to_ticks(start)
        high = None if end is None else schema.to_ticks(end) - 1
        query.refresh(low, high)

    def check_drop(self, stream: str) -> None:
        self._definitions.check_drop(stream)

    # -- what people ask --------------------------------------------------------------------------

    def status(self, name: str) -> dict[str, Any]:
        """A row of SHOW LIVE QUERIES."""
        sink, sources = self.sink_of(name), []
        try:
            sources = list(self.definition(name).sources)
            status = self._rounds.sharing.status(name) or self.query(name).status()
            webhook = self._deliveries.status(name)
            return status if webhook is None else {**status, "webhook": webhook}
        except ReadOnlyStore:
            state, error = "elsewhere", None
        except Exception as problem:
            state, error = "failed", error_text(problem)
        columns = LIVE_QUERIES.names
        return {
            **dict.fromkeys(columns), "name": name, "sink": sink, "state": state,
            "sources": sources, "error": error,
        }  # fmt: skip

    def rollup_row(self, name: str) -> dict[str, Any]:
        """A row of SHOW ROLLUPS."""
        definition, status = self.definition(name), self.status(name)
        schema = self._store.stream(definition.sources[0]).schema
        assert definition.rollup is not None
        size, per_second = definition.rollup["size"], schema.ticks_per_second
        shown = str(size)
        if per_second is not None:
            micros = size * 1_000_000 // per_second
            shown = str(iso_text(pa.array([micros], pa.duration("us")))[0])
        watermark = status["watermark"]
        return {
            "name": name, "stream": definition.sources[0], "window": shown,
            "columns": ", ".join(definition.columns), "state": status["state"],
            "watermark": None if watermark is None else str(watermark),
            "lag_events": status["lag_events"], "rows": status["rows"], "late": status["late"],
            "retention": definition.options.get("retention"), "error": status["error"],
        }  # fmt: skip

    def figures(self, name: str) -> dict[str, float]:
        """Counters since the query was opened, for metrics; empty if it does not run."""
        with self._definitions.lock:
            query, group = self._rounds.get(name), self._rounds.sharing.group_of(name)
            shared = {} if group is None else group.figures(name)
        own = {} if query is None else query.figures()
        return {key: shared.get(key, 0) + own.get(key, 0) for key in {**shared, **own}}

    def describe(self, name: str) -> list[tuple[str, str]]:
        definition = self.definition(name)
        schema = self._store.stream(definition.sources[0]).schema
        return definition.described(lambda tick: str(schema.from_ticks(tick)))

    def explain(self, name: str) -> list[str]:
        query = self.query(name)
        lines = [f"LiveQuery {name}"]
        time = self._store.stream(query.definition.sources[0]).schema.time_type
        facts = [*query.form.explain(time), *self._rounds.sharing.explain(name, query)]
        lines += [f"  {key}: {value}" for key, value in facts]
        lines.append("  after a restart: goes on from its mark; what is kept is read again")
        lines.append("  query:")
        definition = query.definition
        plan = engine_with_views(self._engine, definition.views).explain(definition.sql)
        return lines + [f"    {line}" for line in str(plan).splitlines()]

    # -- running ----------------------------------------------------------------------------------

    def start(self) -> None:
        self._rounds.start()
        self._deliveries.start()

    def run(self, timeout: float | None = None) -> None:
        self._rounds.run(timeout)

    def keep_up(self, stream: str) -> None:
        self._rounds.keep_up(stream)

    def close(self) -> None:
        """Stop the threads and write the marks; idempotent."""
        if self.ended.is_set():
            return
        self._rounds.close()
        self._deliveries.close()
        self._sinks.close()

    @property
    def ended(self) -> threading.Event:
        return self._rounds.ended


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
        emitted = sink.emitted(low, high)
        columns = {
            "_time": pa.array(emitted.net.time).cast(schema.time_type),
            "_id": emitted.net.id,
            "_rev": pa.array(emitted.revision).cast(pa.int32()),
        }
        for name in sink.columns:
            columns[name] = emitted.net.columns.column(name)
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
        constant = Folder({}, now).fold(parse_predicate(f"INTERVAL {quoted_text(value)}"))
        if constant.kind is Kind.INTERVAL:
            return Given(None, int(constant.value))
    raise InvalidArgument(
        f"{what} is a timedelta, an integer where times are integers, or a text such as "
        f"'5 minutes', found {value!r}"
    )

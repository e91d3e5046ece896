"""The live queries of a store: made, kept, run, and asked about.

Purpose
    :class:`LiveQueries` is what a database has one of.  It carries out statements, opens what is
    defined, and has steps done: by a thread of its own (:meth:`LiveQueries.start`), or by whoever
    calls :meth:`LiveQueries.run`.

Guarantee
    Of each live query one step is done at a time.  One that fails stops alone.  A definition is
    durable when its statement has returned; what it has to put out follows.

Concurrency
    A commit of a source wakes the thread, and nothing more happens in the thread that commits.
    Steps hold the lock of their live query, statements take it, too, so a statement waits for the
    step at hand.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from ..errors import (
    ChronicleError,
    CorruptStore,
    InvalidArgument,
    QueryTimeout,
    ReadOnlyStore,
    StreamNotFound,
    StreamOwned,
)
from ..query.contract.live import LiveRequest
from ..query.engine import QueryEngine
from ..query.sql.dialect import parse_statement
from ..store import EventStream, Store
from ..store.tap import CommitTap
from .analysis import Analysed
from .bank.cards import Card
from .composition import understood
from .definition import (
    LiveDefinition,
    keep_definition,
    kept_definitions,
    lose_definition,
)
from .delivery import Deliveries
from .options import defined
from .pattern_group import PatternGroup
from .query import LiveQuery, told
from .sharing import Sharing, card_of_query
from .sink import SinkReader
from .sinks import Sinks, wrong
from .spent import together
from .webhooks import Webhook

__all__ = ["LiveQueries"]

logger = logging.getLogger("chronicle.live")

IDLE_SECONDS_MAX = 60.0


class LiveQueries:
    """See the module.

    Parameters
    ----------
    store : Store
    engine : callable
        The query engine, when it is needed.
    drop_stream : callable
        Removes a stream with all that the layers above the store keep of it.
    """

    def __init__(
        self,
        store: Store,
        engine: Callable[[], QueryEngine],
        drop_stream: Callable[[str], None],
    ) -> None:
        self._store = store
        self._engine = engine
        self._drop_stream = drop_stream
        self._lock = threading.RLock()
        self._queries: dict[str, LiveQuery] = {}
        self._broken: dict[str, tuple[LiveDefinition, str]] = {}
        self._heard: set[EventStream] = set()
        self._wake = threading.Event()
        self._stepped = threading.Condition()
        self._ended = threading.Event()
        self._deliveries = Deliveries(store.files)
        self._opening = threading.RLock()
        self._sharing = Sharing(self._source, self._writer, self._at_work)
        self._resumed = False
        self._thread: threading.Thread | None = None
        self._sinks = Sinks(store)
        self._definitions, self._damaged = kept_definitions(store.files)
        if store.mode == "rw":
            for definition in list(self._definitions.values()):
                if definition.dropping:
                    self._finish_drop(definition, keep_results=False)

    # -- what there is ----------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Names of all live queries, sorted."""
        with self._lock:
            self._look()
            return sorted({*self._definitions, *self._damaged})

    def _look(self) -> None:
        """Where another process writes, see what it has made or dropped."""
        if self._store.mode == "r":
            self._definitions, self._damaged = kept_definitions(self._store.files)

    def sink_of(self, name: str) -> str:
        """The stream that holds the results of one; its own name where that cannot be read."""
        with self._lock:
            found = self._definitions.get(name)
        return name if found is None else found.sink

    def definition(self, name: str) -> LiveDefinition:
        """What one is.

        Raises
        ------
        StreamNotFound
            With the names that there are.
        CorruptStore
            When it cannot be read.
        """
        with self._lock:
            self._look()
            found = self._definitions.get(name)
            if name in self._damaged:
                raise CorruptStore(self._damaged[name])
        if found is None:
            known = ", ".join(self.names()) or "there are none yet"
            raise StreamNotFound(f"no live query {name!r} (there are: {known})")
        return found

    def query(self, name: str) -> LiveQuery:
        """One at work; opened when it is asked for first.

        Raises
        ------
        ChronicleError
            What keeps it from being opened.
        """
        with self._lock:
            definition = self.definition(name)
        if self._store.mode != "rw":
            raise ReadOnlyStore(
                f"the live query {name!r} runs where the store is open for writing; its "
                f"results can be read here: SELECT ... FROM {definition.sink}"
            )
        return self._at_work(name)

    def _at_work(self, name: str) -> LiveQuery:
        """One that there is, opened when it is asked for first."""
        with self._opening:
            known = self._queries.get(name)
            if known is None:
                known = self._queries[name] = self._opened(self._definitions[name])
                group = self._sharing.group_of(name)
                if group is not None:
                    known.share(group)
            return known

    def _committed(self, _: object) -> None:
        self._wake.set()

    def _unheard(self, definition: LiveDefinition) -> None:
        """Listen no more to streams that only this one, which is gone, has read."""
        read = {name for each in self._definitions.values() for name in each.sources}
        for source in [each for each in self._heard if each.name in definition.sources]:
            if source.name not in read:
                source.unsubscribe(self._committed)
                self._heard.discard(source)

    def reader(self, name: str) -> SinkReader:
        """What one has put out, wherever it runs."""
        if self._store.mode == "rw":
            return self.query(name).sink
        definition = self.definition(name)
        if not definition.store:
            raise InvalidArgument(
                f"the live query {name!r} stores nothing: follow it where it runs"
            )
        return SinkReader(self._store.stream(definition.sink), name, definition.columns)

    def _opened(self, definition: LiveDefinition, found: Analysed | None = None) -> LiveQuery:
        if found is None:
            tree = parse_statement(definition.sql)
            found = understood(
                self._engine, lambda name: self._store.stream(name).snapshot(), tree,
                definition.sql, definition.columns,
            )  # fmt: skip
        sources = {name: self._source(name) for name in definition.sources}
        sink = self._sinks.opened(definition, found)
        card = card_of_query(definition, found.form)
        if card is not None and Card.from_json(definition.card) != card:
            definition = replace(definition, card=card.to_json())
            if definition.name in self._definitions and not definition.dropping:
                self._definitions[definition.name] = definition
                keep_definition(self._store.files, definition)
        query = LiveQuery(definition, found.form, sources, sink, card)
        if definition.webhook is not None and definition.webhook_secret is not None:
            webhook = Webhook(definition.webhook, definition.webhook_secret)
            self._deliveries.add(webhook, sink)
        return query

    def _source(self, name: str) -> EventStream:
        """A stream whose commits wake the thread."""
        source = self._writer(name)
        if source not in self._heard:
            source.subscribe(self._committed)
            self._heard.add(source)
        return source

    def _writer(self, name: str) -> EventStream:
        found = self._store.stream(name)
        assert isinstance(found, EventStream)
        return found

    # -- statements -------------------------------------------------------------------------------

    def create(self, request: LiveRequest) -> bool:
        """Make a live query; False when it exists and may."""
        self._check_writable()
        with self._lock:
            if request.name in self.names():
                if request.exists_ok:
                    return False
                raise wrong(request, f"there is a live query {request.name!r} already")
            found = understood(
                self._engine, lambda name: self._store.stream(name).snapshot(), request.tree,
                request.text,
            )  # fmt: skip
            sources = [self._writer(name) for name in found.form.streams]
            definition = defined(request, found, sources)
            self._sinks.check(request, definition, found)
            card = card_of_query(definition, found.form)
            if card is not None:
                definition = replace(definition, card=card.to_json())
            keep_definition(self._store.files, definition)
            self._definitions[definition.name] = definition
            try:
                with self._opening:
                    self._queries[definition.name] = self._opened(definition, found)
                self._sharing.apart[definition.name] = None
            except BaseException:
                del self._definitions[definition.name]
                self._queries.pop(definition.name, None)
                self._unheard(definition)
                lose_definition(self._store.files, definition.name)
                raise
        self._wake.set()
        return True

    def check(self, sql: str) -> None:
        """Refuse a SELECT that cannot be live; raises :class:`SqlError`."""
        understood(
            self._engine, lambda name: self._store.stream(name).snapshot(), parse_statement(sql),
            sql,
        )  # fmt: skip

    def drop(self, name: str, keep_results: bool = False) -> None:
        """End a live query, and unless they are kept remove its results."""
        self._check_writable()
        with self._lock:
            if self._damaged.pop(name, None) is not None:
                lose_definition(self._store.files, name)
                return
            definition = self.definition(name)
            query = None
            with contextlib.suppress(ChronicleError):  # what cannot be opened can be dropped
                query = self.query(name)
            self._sharing.forget(name)
            if query is not None:
                with query.holding():
                    query.definition = replace(definition, paused=True)
            if not keep_results:
                definition = replace(definition, dropping=True)
                keep_definition(self._store.files, definition)
            self._finish_drop(definition, keep_results)

    def _finish_drop(self, definition: LiveDefinition, keep_results: bool) -> None:
        name, sink = definition.name, definition.sink
        self._deliveries.remove(name)
        query = self._queries.pop(name, None)
        del self._definitions[name]
        used = any(each.sink == sink for each in self._definitions.values())
        if not definition.store:
            self._sinks.drop_passing(name)
        elif not keep_results and sink in self._store.streams():
            if not used:
                self._drop_stream(sink)
            elif query is not None:
                query.retract()
            else:
                with contextlib.suppress(ChronicleError):
                    self._opened(definition).retract()
        elif query is not None and sink in self._store.streams():
            query.sink.put(None, None)
        lose_definition(self._store.files, name)
        self._unheard(definition)
        if query is not None:
            query.sink.end()

    def pause(self, name: str) -> None:
        """Stop one until it is resumed, over restarts, too."""
        self._change(name, paused=True)

    def resume(self, name: str) -> None:
        """Go on where it stopped, after a failure as well."""
        self._change(name, paused=False)
        self._deliveries.resume(name)
        self._wake.set()

    def _change(self, name: str, *, paused: bool) -> None:
        self._check_writable()
        with self._lock:
            definition = replace(self.definition(name), paused=paused)
            keep_definition(self._store.files, definition)
            self._definitions[name] = definition
            self._broken.pop(name, None)
            query = self._queries.get(name)
        if query is not None:
            query.take(definition)
        if paused:
            self._sharing.leave(name)

    def refresh(self, name: str, start: object = None, end: object = None) -> None:
        """Make the results with times in ``[start, end)`` anew."""
        self._check_writable()
        query = self.query(name)
        schema = self._store.stream(query.definition.sources[0]).schema
        low = None if start is None else schema.to_ticks(start)
        high = None if end is None else schema.to_ticks(end) - 1
        query.refresh(low, high)

    def status(self, name: str) -> dict[str, Any]:
        """How one does: the columns of SHOW LIVE QUERIES."""
        sink, sources = self.sink_of(name), []
        try:
            sources = list(self.definition(name).sources)
            status = self._sharing.status(name) or self.query(name).status()
            webhook = self._deliveries.status(name)
            return status if webhook is None else {**status, "webhook": webhook}
        except ReadOnlyStore:
            state, error = "elsewhere", None
        except Exception as problem:
            state, error = "failed", told(problem)
        return {
            "name": name, "sink": sink, "state": state, "sources": sources,
            "watermark": None, "lag_events": None, "lag_ms": None, "rows": None,
            "retractions": None, "late": None, "ignored": None, "state_bytes": None,
            "error": error,
        }  # fmt: skip

    def figures(self, name: str) -> dict[str, float]:
        """What one has done since it was opened, for metrics; nothing where it is not at work."""
        with self._lock:
            query, group = self._queries.get(name), self._sharing.group_of(name)
            shared = {} if group is None else group.figures(name)
        return together(shared, {} if query is None else query.figures())

    def describe(self, name: str) -> list[tuple[str, str]]:
        """What one is: names and texts."""
        definition = self.definition(name)
        schema = self._store.stream(definition.sources[0]).schema
        return definition.described(lambda tick: str(schema.from_ticks(tick)))

    def explain(self, name: str) -> list[str]:
        """How one is computed, line by line."""
        query = self.query(name)
        lines = [f"LiveQuery {name}"]
        told_ = [*query.form.explain(), *self._sharing.explain(name, query)]
        lines += [f"  {key}: {value}" for key, value in told_]
        lines.append("  after a restart: goes on from its mark; what is kept is read again")
        lines.append("  query:")
        plan = self._engine().explain(query.definition.sql)
        return lines + [f"    {line}" for line in str(plan).splitlines()]

    # -- who may be dropped -----------------------------------------------------------------------

    def check_drop(self, stream: str) -> None:
        """Refuse to drop a stream that live queries read, or put results into.

        Raises
        ------
        StreamOwned
            With their names.
        """
        with self._lock:
            every = self._definitions.values()
            readers = [each.name for each in every if stream in each.sources]
            writers = [each.name for each in every if each.sink == stream and each.store]
        if readers or writers:
            what = "read by" if readers else "the sink of"
            named = ", ".join(readers or writers)
            raise StreamOwned(
                f"the stream {stream!r} is {what} the live queries {named}; drop them first: "
                f"DROP LIVE QUERY {(readers or writers)[0]}"
            )

    def _check_writable(self) -> None:
        if self._store.mode != "rw":
            raise ReadOnlyStore(
                "cannot change live queries: the store was opened with mode='r'; open it with "
                "mode='rw'"
            )

    # -- running ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Have a thread of its own do the steps."""
        self._thread = threading.Thread(target=self._loop, name="chronicle-live", daemon=True)
        self._thread.start()
        self._deliveries.start()

    def run(self, timeout: float | None = None) -> None:
        """Return when every live query has taken in every commit so far.

        Those that are paused or have failed are left out.

        Raises
        ------
        QueryTimeout
            When that takes longer.
        """
        until = None if timeout is None else time.monotonic() + timeout

        def late() -> None:
            if until is not None and time.monotonic() > until:
                raise QueryTimeout(
                    f"live queries have not caught up within {timeout:g} s; SHOW LIVE QUERIES "
                    "tells how far they are"
                )

        if self._thread is None:
            while self._round(late):
                pass
            return
        self._resume()
        targets: dict[LiveQuery | PatternGroup, dict[str, int]] = {
            each: each.sources.positions() for each in self._stepping(self._open())
        }
        self._wake.set()
        with self._stepped:
            while any(
                each.active and not each.taken(positions) for each, positions in targets.items()
            ):
                late()
                self._stepped.wait(0.05)

    def keep_up(self, stream: str) -> None:
        """Return when no query with a limit on its lag is further behind a stream than that.

        At once where nobody does the steps, in this process or for now.
        """
        if self._thread is None or self._thread is threading.current_thread():
            return
        limited = [
            (query, query.definition.lag_events_max)
            for query in list(self._queries.values())
            if query.definition.lag_events_max is not None and stream in query.sources.streams
        ]
        if not limited:
            return
        with self._stepped:
            while not self._ended.is_set() and any(
                query.active and most is not None and query.lag() > most for query, most in limited
            ):
                self._stepped.wait(0.05)

    def _stepping(self, queries: Iterable[LiveQuery]) -> list[LiveQuery | PatternGroup]:
        """Those that do steps: some queries, and all groups."""
        return [*self._sharing.groups, *queries]

    def _open(self) -> list[LiveQuery]:
        """Those that can be opened, opened."""
        found = []
        for name in list(self._sharing.apart):
            if name in self._broken and self._broken[name][0] == self._definitions.get(name):
                continue
            try:
                found.append(self.query(name))
            except Exception as error:  # whatever it is, the others go on
                self._break(name, error)
        return found

    def _break(self, name: str, error: Exception) -> None:
        with self._lock:
            definition = self._definitions.get(name)
            if definition is not None:
                self._broken[name] = (definition, told(error))
                logger.warning(
                    "live query %s cannot be opened: %s", name, told(error),
                    exc_info=not isinstance(error, ChronicleError),
                )  # fmt: skip

    def _round(self, late: Callable[[], None] = lambda: None) -> bool:
        """One step of each; says whether there may be more to do at once."""
        self._resume()
        more = False
        queries = self._open()
        self._sharing.start(queries)
        for group in self._sharing.groups:
            late()
            more = self._sharing.step(group) or more
        for query in queries:
            late()
            more = query.step(at=self._sharing.goal_of(query)) or more
        self._sharing.join(queries)
        self._forget(self._stepping(queries))
        with self._stepped:
            self._stepped.notify_all()
        return more

    def _resume(self) -> None:
        """Bring those together, once, that are searched together."""
        with self._lock:
            if not self._resumed:
                self._resumed = True
                new = set(self._sharing.apart)
                every = list(self._definitions.values())
                self._sharing.resume([each for each in every if each.name not in new])

    def _forget(self, queries: Sequence[LiveQuery | PatternGroup]) -> None:
        """Let taps drop what every reader has taken in; one that is paused does without."""
        least: dict[int, tuple[CommitTap, int]] = {}
        for query in queries:
            for name, tap in query.sources.taps.items() if query.active else ():
                position = query.mark.positions.get(name, 0)
                if id(tap) not in least or position < least[id(tap)][1]:
                    least[id(tap)] = (tap, position)
        for tap, position in least.values():
            tap.forget(position)

    def _loop(self) -> None:
        while not self._ended.is_set():
            self._wake.clear()
            try:
                more = self._round()
            except Exception:
                logger.exception("live queries: a round failed")
                more = False
                self._ended.wait(1.0)
            if more:
                continue
            queries = (self._queries.get(name) for name in list(self._sharing.apart))
            active = [query for query in queries if query is not None and query.active]
            waits = [each.due_in() for each in self._stepping(active)]
            due = min((wait for wait in waits if wait is not None), default=IDLE_SECONDS_MAX)
            self._wake.wait(min(due, IDLE_SECONDS_MAX))

    def close(self) -> None:
        """End the thread, and leave the marks of what was done; doing so again does nothing."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._deliveries.close()
        for each in self._stepping(self._queries.values()):
            each.close()
        self._sinks.close()

    @property
    def ended(self) -> threading.Event:
        """Set when nothing will be put out any more."""
        return self._ended

"""Scheduling of live queries: steps in rounds, by a thread or by callers of ``Rounds.run``::

    commits of sources --> wake --> groups       one step each
                                    queries      one step each, those without a group
                                    joining      queries that have caught up with their group
                                    forgetting   taps drop what all readers have processed
                             <------- repeat while there may be more to do

Each query runs one step at a time, under its lock; one that fails stops alone.  Opening has its own
lock, taken after that of the definitions.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from ..core.ownership import Condition
from ..errors import ChronicleError, QueryTimeout, StreamNotFound
from ..store.recent import CommitTap
from ..store.stream import EventStream
from .definition import Definitions, LiveDefinition
from .pattern_group import PatternGroup
from .query import LiveQuery, Step, error_text
from .sharing import Sharing
from .sink import PUTS_MAX, Put, put_at_once
from .sources import Sources, Views

logger = logging.getLogger("chronicle.live")

IDLE_SECONDS_MAX = 60.0


class Rounds:
    def __init__(
        self,
        definitions: Definitions,
        stream: Callable[[str], EventStream],
        opened: Callable[[LiveDefinition], LiveQuery],
    ) -> None:
        self._definitions = definitions
        self._stream = stream
        self._opened = opened
        self._opening = threading.RLock()
        self._queries: dict[str, LiveQuery] = {}
        self._broken: dict[str, tuple[LiveDefinition, str]] = {}
        self._heard: set[EventStream] = set()
        self._wake = threading.Event()
        self._stepped = Condition()
        self.ended = threading.Event()
        self._views = Views()
        self.sharing = Sharing(self._source, stream, self.query, self._views)
        self._resumed = False
        self._thread: threading.Thread | None = None

    # -- who is at work ---------------------------------------------------------------------------

    def get(self, name: str) -> LiveQuery | None:
        return self._queries.get(name)

    def query(self, name: str) -> LiveQuery:
        """A query, opened on first use; raises the ChronicleError that prevents it."""
        with self._opening:
            query = self._queries.get(name)
            if query is None:
                definition = self._definitions.get(name)
                if definition is None:
                    raise StreamNotFound(f"the live query {name!r} is gone")
                query = self._queries[name] = self._opened(definition)
                group = self.sharing.group_of(name)
                if group is not None:
                    query.share(group)
            return query

    def begin(self, definition: LiveDefinition, opened: Callable[[], LiveQuery]) -> None:
        with self._opening:
            self._queries[definition.name] = opened()
        self.sharing.apart[definition.name] = None

    def retry(self, name: str) -> None:
        self._broken.pop(name, None)

    def end(self, definition: LiveDefinition) -> LiveQuery | None:
        """Remove a query; unsubscribe from streams that only it read."""
        read = self._definitions.sources()
        for source in [each for each in self._heard if each.name in definition.sources]:
            if source.name not in read:
                source.unsubscribe(self._committed)
                self._heard.discard(source)
                self._views.drop(source)
        return self._queries.pop(definition.name, None)

    def sources(self, names: Iterable[str]) -> Sources:
        return Sources({name: self._source(name) for name in names}, self._views)

    def _source(self, name: str) -> EventStream:
        source = self._stream(name)
        if source not in self._heard:
            source.subscribe(self._committed)
            self._heard.add(source)
        return source

    def _committed(self, _: object) -> None:
        self.wake()

    def wake(self) -> None:
        self._wake.set()

    # -- waiting ----------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread = threading.Thread(target=self._loop, name="chronicle-live", daemon=True)
        self._thread.start()

    def run(self, timeout: float | None = None) -> None:
        """Return when every active query has processed all commits; raises QueryTimeout."""
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
        positions: dict[str, int] = {}
        for each in self._stepping(self._open()):
            positions.update(each.sources.positions())
        with self._stepped:
            while self._behind(positions):
                late()
                self._wake.set()
                self._stepped.wait(0.05)

    def _behind(self, positions: Mapping[str, int]) -> bool:
        names, groups = self.sharing.at_work()
        working: list[LiveQuery | PatternGroup] = [*groups]
        working += [one for name in names if (one := self._queries.get(name)) is not None]
        return any(
            not each.taken({n: positions[n] for n in each.sources.streams if n in positions})
            for each in working
            if each.active
        )

    def keep_up(self, stream: str) -> None:
        """Backpressure: block while a query's lag behind a stream exceeds its limit."""
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
            while not self.ended.is_set() and any(
                query.active and most is not None and query.lag() > most for query, most in limited
            ):
                self._stepped.wait(0.05)

    # -- rounds -----------------------------------------------------------------------------------

    def _stepping(self, queries: Iterable[LiveQuery]) -> list[LiveQuery | PatternGroup]:
        return [*self.sharing.groups, *queries]

    def _open(self) -> list[LiveQuery]:
        opened = []
        for name in list(self.sharing.apart):
            if name in self._broken and self._broken[name][0] == self._definitions.get(name):
                continue
            try:
                with self._definitions.lock:  # a statement may be dropping it
                    self._definitions.find(name)
                opened.append(self.query(name))
            except Exception as error:  # the other queries continue
                self._break(name, error)
        return opened

    def _break(self, name: str, error: Exception) -> None:
        with self._definitions.lock:
            definition = self._definitions.get(name)
            if definition is not None:
                self._broken[name] = (definition, error_text(error))
                logger.warning(
                    "live query %s cannot be opened: %s", name, error_text(error),
                    exc_info=not isinstance(error, ChronicleError),
                )  # fmt: skip

    def _round(self, late: Callable[[], None] = lambda: None) -> bool:
        """One step of each; whether there may be more to do."""
        self._resume()
        with self._views.round():
            return self._steps(late)

    def _steps(self, late: Callable[[], None]) -> bool:
        more = False
        queries = self._open()
        self.sharing.start(queries)
        for group in self.sharing.groups:
            late()
            more = self.sharing.step(group) or more
        more = self._step_each(queries, late) or more
        self.sharing.join(queries)
        self._forget(self._stepping(queries))
        with self._stepped:
            self._stepped.notify_all()
        return more

    def _step_each(self, queries: Iterable[LiveQuery], late: Callable[[], None]) -> bool:
        """A step of each query; some put out their results at once, before others read these."""
        waiting: list[tuple[Step, Put]] = []
        more = False
        try:
            for query in queries:
                late()
                sinks = {put[0] for _, put in waiting}
                if len(waiting) == PUTS_MAX or sinks & {*query.sources.streams.values()}:
                    more = self._put_out(waiting) or more
                step = query.step(at=self.sharing.goal_of(query))
                try:
                    waiting.append((step, next(step)))
                except StopIteration as ended:
                    more = ended.value or more
            return self._put_out(waiting) or more
        finally:
            for step, _ in waiting:  # an error: they let go their locks
                step.close()

    @staticmethod
    def _put_out(waiting: list[tuple[Step, Put]]) -> bool:
        """End steps that wait for their results to be put out."""
        more, begun = False, time.perf_counter()
        errors = put_at_once([put for _, put in waiting])
        seconds = time.perf_counter() - begun
        while waiting:
            (step, _), error = waiting.pop(0), errors.pop(0)
            try:
                step.send(seconds) if error is None else step.throw(error)
            except StopIteration as ended:
                more = ended.value or more
        return more

    def _resume(self) -> None:
        with self._definitions.lock:
            if not self._resumed:
                self._resumed = True
                new = set(self.sharing.apart)
                self.sharing.resume([each for each in self._definitions if each.name not in new])

    def _forget(self, queries: Sequence[LiveQuery | PatternGroup]) -> None:
        least: dict[int, tuple[CommitTap, int]] = {}
        for query in queries:
            for name, tap in query.sources.taps.items() if query.active else ():
                position = query.mark.positions.get(name, 0)
                if id(tap) not in least or position < least[id(tap)][1]:
                    least[id(tap)] = (tap, position)
        for tap, position in least.values():
            tap.forget(position)

    def _loop(self) -> None:
        while not self.ended.is_set():
            self._wake.clear()
            try:
                more = self._round()
            except Exception:
                logger.exception("live queries: a round failed")
                more = False
                self.ended.wait(1.0)
            if more:
                continue
            queries = (self._queries.get(name) for name in list(self.sharing.apart))
            active = [query for query in queries if query is not None and query.active]
            waits = [each.due_in() for each in self._stepping(active)]
            due = min((wait for wait in waits if wait is not None), default=IDLE_SECONDS_MAX)
            self._wake.wait(min(due, IDLE_SECONDS_MAX))

    def close(self) -> None:
        self.ended.set()
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        for each in self._stepping(self._queries.values()):
            each.close()

"""Live queries at work: opened, and taken forward in rounds of steps.

Purpose
    :class:`Rounds` holds the live queries that have been opened, and has their steps done: by a
    thread of its own (:meth:`Rounds.start`), or by whoever calls :meth:`Rounds.run`.

A round
    ::

        commits of sources --> wake --> groups       one step each
                                        queries      one step each, those with no group
                                        joining      who has come as far as its group
                                        forgetting   taps let go what everybody has taken in
                               <------- again, while somebody may have more to do

Guarantee
    Of each live query one step is done at a time.  One that fails, or cannot be opened, stops
    alone.

Concurrency
    A commit of a source wakes the thread, and nothing more happens in the thread that commits.
    Steps hold the lock of their live query.  Opening has a lock of its own, which is taken behind
    that of the definitions, and never the other way round.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from ..errors import ChronicleError, QueryTimeout, StreamNotFound
from ..store import EventStream
from ..store.tap import CommitTap
from .definition import LiveDefinition
from .definitions import Definitions
from .pattern_group import PatternGroup
from .query import LiveQuery, told
from .sharing import Sharing
from .sources import Sources
from .views import Views

__all__ = ["Rounds"]

logger = logging.getLogger("chronicle.live")

IDLE_SECONDS_MAX = 60.0


class Rounds:
    """See the module.

    Parameters
    ----------
    definitions : Definitions
    stream : callable
        A stream by name.
    opened : callable
        A live query at work, made of its definition.

    Attributes
    ----------
    sharing : Sharing
        Which of them are searched together.
    ended : Event
        Set when nothing will be put out any more.
    """

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
        self._stepped = threading.Condition()
        self.ended = threading.Event()
        self._views = Views()
        self.sharing = Sharing(self._source, stream, self.query, self._views)
        self._resumed = False
        self._thread: threading.Thread | None = None

    # -- who is at work ---------------------------------------------------------------------------

    def get(self, name: str) -> LiveQuery | None:
        """One that has been opened; None where it has not."""
        return self._queries.get(name)

    def query(self, name: str) -> LiveQuery:
        """One that there is, opened when it is asked for first.

        Raises
        ------
        ChronicleError
            What keeps it from being opened.
        """
        with self._opening:
            known = self._queries.get(name)
            if known is None:
                definition = self._definitions.get(name)
                if definition is None:
                    raise StreamNotFound(f"the live query {name!r} is gone")
                known = self._queries[name] = self._opened(definition)
                group = self.sharing.group_of(name)
                if group is not None:
                    known.share(group)
            return known

    def begin(self, definition: LiveDefinition, opened: Callable[[], LiveQuery]) -> None:
        """Take in one that is new; it does its first steps by itself."""
        with self._opening:
            self._queries[definition.name] = opened()
        self.sharing.apart[definition.name] = None

    def retry(self, name: str) -> None:
        """Open one again that could not be opened."""
        self._broken.pop(name, None)

    def end(self, definition: LiveDefinition) -> LiveQuery | None:
        """Let one go, if it was opened, and hear no more of streams that only it has read."""
        read = self._definitions.sources()
        for source in [each for each in self._heard if each.name in definition.sources]:
            if source.name not in read:
                source.unsubscribe(self._committed)
                self._heard.discard(source)
        return self._queries.pop(definition.name, None)

    def sources(self, names: Iterable[str]) -> Sources:
        """Streams that a live query reads."""
        return Sources({name: self._source(name) for name in names}, self._views)

    def _source(self, name: str) -> EventStream:
        """A stream whose commits wake the thread."""
        source = self._stream(name)
        if source not in self._heard:
            source.subscribe(self._committed)
            self._heard.add(source)
        return source

    def _committed(self, _: object) -> None:
        self.wake()

    def wake(self) -> None:
        """There is something to do."""
        self._wake.set()

    # -- waiting ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Have a thread of its own do the steps."""
        self._thread = threading.Thread(target=self._loop, name="chronicle-live", daemon=True)
        self._thread.start()

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
        positions: dict[str, int] = {}
        for each in self._stepping(self._open()):
            positions.update(each.sources.positions())
        with self._stepped:
            while self._behind(positions):
                late()
                self._wake.set()
                self._stepped.wait(0.05)

    def _behind(self, positions: Mapping[str, int]) -> bool:
        """Whether somebody has not taken in commits; a query may have joined a group meanwhile."""
        names, groups = self.sharing.at_work()
        working: list[LiveQuery | PatternGroup] = [*groups]
        working += [one for name in names if (one := self._queries.get(name)) is not None]
        return any(
            not each.taken({n: positions[n] for n in each.sources.streams if n in positions})
            for each in working
            if each.active
        )

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
            while not self.ended.is_set() and any(
                query.active and most is not None and query.lag() > most for query, most in limited
            ):
                self._stepped.wait(0.05)

    # -- rounds -----------------------------------------------------------------------------------

    def _stepping(self, queries: Iterable[LiveQuery]) -> list[LiveQuery | PatternGroup]:
        """Those that do steps: some queries, and all groups."""
        return [*self.sharing.groups, *queries]

    def _open(self) -> list[LiveQuery]:
        """Those by themselves that can be opened, opened."""
        found = []
        for name in list(self.sharing.apart):
            if name in self._broken and self._broken[name][0] == self._definitions.get(name):
                continue
            try:
                with self._definitions.lock:  # a statement may be about to drop it
                    self._definitions.find(name)
                found.append(self.query(name))
            except Exception as error:  # whatever it is, the others go on
                self._break(name, error)
        return found

    def _break(self, name: str, error: Exception) -> None:
        with self._definitions.lock:
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
        with self._views.round():
            return self._steps(late)

    def _steps(self, late: Callable[[], None]) -> bool:
        more = False
        queries = self._open()
        self.sharing.start(queries)
        for group in self.sharing.groups:
            late()
            more = self.sharing.step(group) or more
        for query in queries:
            late()
            more = query.step(at=self.sharing.goal_of(query)) or more
        self.sharing.join(queries)
        self._forget(self._stepping(queries))
        with self._stepped:
            self._stepped.notify_all()
        return more

    def _resume(self) -> None:
        """Bring those together, once, that are searched together."""
        with self._definitions.lock:
            if not self._resumed:
                self._resumed = True
                new = set(self.sharing.apart)
                self.sharing.resume([each for each in self._definitions if each.name not in new])

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
        """End the thread, and leave the marks of what was done."""
        self.ended.set()
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        for each in self._stepping(self._queries.values()):
            each.close()

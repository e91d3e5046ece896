"""Live patterns of one stream that are searched together: one scan, one bank, one step.

Marks::

    shared sink              mark of the group, with each commit and otherwise once per second;
                             a member's own mark refers to the group's
    sink of one member       its own mark, with its rows; otherwise renewed in turn, few per second

A member is as far as its own mark or the group's.  After a restart the group begins at its least
advanced member; output already in the sinks of others is not repeated.  A member whose rows cannot
be computed fails alone; any other error dissolves the group.  The group's lock is its members'.
One scan reads the result rows for the matches of all queries, then each query's SELECT is
evaluated.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.identity import digests
from ..core.times import INT64_MIN, half_open, moved
from ..errors import ChronicleError
from ..query.contract.operator import MatchLimits
from ..query.pattern.columns import KeyCodes, take_ranges
from ..query.pattern.results import RANK
from ..store.snapshot import Snapshot
from ..store.stream import EventStream
from ..store.tail import ticks_of_column
from ..store.tap import Spans, merged
from .bank.corrections import Arranged, Corrected, Late, Scan, correct, open_at
from .bank.layer import BankMatches, Layer
from .bank.pattern_bank import PatternBank
from .bank.symbols import Card
from .changes import Changes, Emitted, Removals, Results, difference, newly
from .definition import LiveDefinition
from .forms import coalesced, ticks_of
from .pattern_form import PatternForm
from .query import LiveQuery, Timer, figures, status_row
from .sink import Mark, Sink, leave_marks, put_at_once
from .sources import Sources

IntArray = npt.NDArray[np.int64]


def _ticks(snapshot: Snapshot, spans: Spans) -> IntArray:
    time = snapshot.schema.time
    ticks = [
        ticks_of_column(batch.column(0))
        for low, high in spans
        for batch in snapshot.scan(*half_open(low, high), [time])
    ]
    return np.concatenate([np.zeros(0, np.int64), *ticks])


def late_ticks(old: Snapshot, new: Snapshot, events: pa.Table | None, spans: Spans) -> Late | None:
    """The late events, which only ``new`` has, in ranges of ticks, given them if at hand.  None if
    events were removed.
    """
    first = new.time_range
    floor = INT64_MIN if first is None else first[0]  # retention hides earlier ones
    if events is not None:
        ticks = ticks_of(events, new.schema.time)
        return Late(*np.unique(ticks[ticks >= floor], return_counts=True))
    shown = tuple((max(low, floor), high) for low, high in spans if high >= floor)
    spans = coalesced({"": new}, shown)
    tick, count = np.unique(_ticks(new, spans), return_counts=True)
    had, times = np.unique(_ticks(old, spans), return_counts=True)
    if not np.isin(had, tick).all():
        return None
    count[np.searchsorted(tick, had)] -= times
    return None if (count < 0).any() else Late(tick[count > 0], count[count > 0])


def form_of_member(query: LiveQuery) -> PatternForm:
    assert isinstance(query.form, PatternForm)
    return query.form


def _events_of(
    matches: BankMatches, snapshot: Snapshot, columns: list[str]
) -> tuple[pa.Table, Arranged, IntArray, IntArray]:
    """Events with those of the matches, and their first and end rows when arranged."""
    schema = snapshot.schema
    spans = coalesced({"": snapshot}, merged(matches.first_tick, matches.last_tick))
    batches = [batch for low, high in spans for batch in snapshot.scan(low, high + 1, columns)]
    table = pa.Table.from_batches(batches, pa.schema([schema.arrow.field(n) for n in columns]))
    table = table.combine_chunks()
    keys, count = matches.keys.schema.names, 1
    partition, code = (np.zeros(n, np.int64) for n in (len(matches), table.num_rows))
    if keys:
        codes = KeyCodes(len(keys))
        partition = codes.encode(matches.keys.columns)
        count = codes.count
        code = codes.encode(table.select(keys).columns)
    events = Arranged.of(ticks_of(table, schema.time), code, count)
    first = events.first_rows(partition, matches.first_tick) + matches.first_rank
    last = events.first_rows(partition, matches.last_tick) + matches.last_rank
    return table, events, first, last + 1


def rows_of(
    matches: BankMatches, queries: Mapping[str, LiveQuery], snapshot: Snapshot
) -> dict[str, Results | Exception]:
    """Results or the exception, by query; an error affects only its query."""
    if not len(matches):
        return {}
    members = [queries[str(name)] for name in matches.names]
    schema, partition_by = snapshot.schema, list(matches.keys.schema.names)
    read = {c for q in members for c in form_of_member(q).compiled.input_columns}
    columns = [n for n in schema.names if n in {*read, *partition_by, schema.time}]
    every, events, begin, end = _events_of(matches, snapshot, columns)
    rows_by_name: dict[str, Results | Exception] = {}
    for i, query in enumerate(members):
        mine = np.flatnonzero(matches.query == i)
        rows = take_ranges(begin[mine], end[mine])
        table = every.take(pa.array(events.order[rows]))
        table = table.append_column(RANK, pa.array(events.ranks(rows)))
        offsets = np.concatenate([[0], np.cumsum((end - begin)[mine])]).astype(np.int64)
        try:
            rows_by_name[str(matches.names[i])] = form_of_member(query).results_of_matches(
                snapshot, table, offsets
            )
        except Exception as error:  # the other queries continue
            rows_by_name[str(matches.names[i])] = error
    return rows_by_name


def corrected_rows(
    query: LiveQuery,
    rows: Results,
    gone: BankMatches,
    found: BankMatches,
    floor: int,
    emitted: EmittedBy,
) -> Changes:
    ids = pa.concat_arrays([_names(query, each) for each in (gone, found)])
    some = emitted.of(query, ids)
    some = some.where(some.net.time >= floor)
    rows = _wanted(query, rows)
    return difference(rows.since(floor), some)


class EmittedBy:
    """Output of queries over a range of times; a shared sink is read once."""

    def __init__(self, low: int, high: int) -> None:
        self._range = low, high
        self._read: dict[EventStream, Callable[[str], Emitted]] = {}

    def of(self, query: LiveQuery, ids: pa.Array) -> Emitted:
        if not query.sink.shared:
            return query.sink.emitted_of(ids, *self._range)
        stream = query.sink.stream
        if stream not in self._read:
            self._read[stream] = query.sink.emitted_of_all(*self._range)
        return self._read[stream](query.definition.name).named(ids)


def span_of(*parts: BankMatches) -> tuple[int, int]:
    some = [part for part in parts if len(part)]
    low = min(int(part.first_tick.min()) for part in some)
    return low, max(int(part.last_tick.max()) for part in some)


def _wanted(query: LiveQuery, rows: Results) -> Results:
    start = query.definition.start
    return rows if start is None else rows.since(start)


def _names(query: LiveQuery, matches: BankMatches) -> pa.Array:
    if not len(matches):
        return pa.array([], pa.binary())
    keys = [column.combine_chunks() for column in matches.keys.columns]
    events = [pa.array(matches.first_tick), pa.array(matches.first_rank)]
    return digests(form_of_member(query).compiled.seed, [*keys, *events]).cast(pa.binary())


logger = logging.getLogger("chronicle.live")

QUIET_MARK_SECONDS = 1.0
RENEWED_MAX = 16
"""Marks of members without rows renewed per ``QUIET_MARK_SECONDS``."""
STATE_BYTES_MAX = 1 << 30


@dataclass(frozen=True)
class GroupKey:
    """What patterns of one group have in common."""

    source: str
    partition_by: tuple[str, ...]
    delay: int
    idle_ms: float | None
    correct: bool

    @property
    def name(self) -> str:
        keys = "\n".join(self.partition_by)
        return f"\n{self.source}\n{self.delay} {self.idle_ms} {self.correct}\n{keys}"


@dataclass
class Member:
    """A live query in a group; ``mark`` is its own, of its last rows."""

    definition: LiveDefinition
    card: Card
    mark: Mark
    sink: EventStream


class PatternGroup:
    def __init__(self, key: GroupKey, sources: Sources, opened: Callable[[str], LiveQuery]) -> None:
        self.key = key
        self.lock = threading.RLock()
        self.members: dict[str, Member] = {}
        self.sources = sources
        self.mark = Mark()
        self.stepping, self.reconciling = Timer(), Timer()
        self._opened = opened
        self._rule = LiveDefinition(
            "", "", (key.source,), "", delay=key.delay, idle_ms=key.idle_ms, correct=key.correct
        )
        self._begin(self.sources.look())

    def _begin(self, moment: Mapping[str, Snapshot]) -> None:
        schema = moment[self.key.source].schema
        limits = MatchLimits(memory_bytes=STATE_BYTES_MAX)
        self.moment = moment
        self.bank = PatternBank(schema.arrow, schema.time, self.key.partition_by, limits)
        self._gone = Removals.of(moment[self.key.source].state)
        self._doubtful = INT64_MIN  # matches with a later first event were never emitted
        self._marked = 0.0
        self._quiet: deque[str] = deque()
        self._shared: set[EventStream] = set()  # sinks of several members
        self._caught_up = False

    # -- members ----------------------------------------------------------------------------------

    def mark_of(self, name: str, at: Mark | None = None) -> Mark:
        """Progress of a member at a mark of the group."""
        own, mark = self.members[name].mark, self.mark if at is None else at
        late, ignored = own.late + mark.late, own.ignored + mark.ignored
        return replace(own.at(mark), late=late, ignored=ignored)

    def count(self, name: str, mark: Mark) -> None:
        """Take over the counters of a member that has emitted something by itself."""
        member = self.members[name]
        member.mark = replace(
            member.mark, step=mark.step, rows=mark.rows, retractions=mark.retractions
        )

    def join(self, members: Sequence[Member], mark: Mark, moment: Mapping[str, Snapshot]) -> None:
        """Add queries at the same mark, the group's if it has members."""
        if not self.members:
            self._caught_up = False
            self._begin(moment)
            self.mark = replace(mark, rows=0, retractions=0, late=0, ignored=0, group="")
        assert mark.watermark is not None
        assert mark.watermark == self.mark.watermark
        cards = [member.card for member in members]
        layer = Layer([member.definition.name for member in members], cards)
        self._open(layer)
        self.bank.take(layer)
        marks: dict[EventStream, dict[str, Any]] = {}
        for member in members:
            own, group_name = member.mark, self.key.name if member.definition.shared else ""
            member.mark = replace(
                own, group=group_name, late=own.late - self.mark.late,
                ignored=own.ignored - self.mark.ignored,
            )  # fmt: skip
            name = member.definition.name
            self.members[name] = member
            if not member.definition.shared:
                self._quiet.append(name)
                continue
            self._shared.add(member.sink)
            if own.group != group_name or own.watermark != self.mark.watermark:
                of_sink = marks.setdefault(member.sink, {self.key.name: self.mark.to_json()})
                of_sink[name] = self.mark_of(name).to_json()
        for stream, of_sink in marks.items():
            leave_marks(stream, of_sink)
        self._doubtful = max(self._doubtful, mark.watermark)

    def doubt(self, watermark: int) -> None:
        """Matches that begin up to a watermark may have been emitted already."""
        self._doubtful = max(self._doubtful, watermark)

    def _open(self, layer: Layer) -> None:
        snapshot = self.moment[self.key.source]
        span, watermark = snapshot.time_range, self.mark.watermark
        if span is not None and watermark is not None:
            scan = self._scan(snapshot, self.bank.read_by(layer))
            open_at(self.bank, layer, scan, span[0], watermark)

    def leave(self, names: Sequence[str]) -> dict[str, Mark]:
        """Remove members; their progress, after their marks are written."""
        left: dict[str, Mark] = {}
        if not names:
            return left
        marks: dict[EventStream, dict[str, Any]] = {}
        for name in names:
            left[name] = replace(self.mark_of(name), group="")
            marks.setdefault(self.members[name].sink, {})[name] = left[name].to_json()
        for stream, of_sink in marks.items():
            leave_marks(stream, of_sink)
        for name in names:  # only after all marks are written
            del self.members[name]
            self.bank.remove(name)
        self._shared = {each.sink for each in self.members.values() if each.definition.shared}
        self._quiet = deque(name for name in self._quiet if name in self.members)
        return left

    def figures(self, name: str) -> dict[str, float]:
        return figures(self.stepping, self.reconciling, self.bank.searched(name))

    # -- what there is to do ----------------------------------------------------------------------

    @property
    def active(self) -> bool:
        return bool(self.members)

    def due_in(self) -> float | None:
        """Seconds until the passing of time alone causes a step; None for never."""
        return self.sources.idle_in(self._rule, self.mark.watermark)

    def watermark(self) -> int | None:
        return self.sources.watermark(self._rule)

    def taken(self, positions: Mapping[str, int]) -> bool:
        """Whether commits, and time up to them, were processed."""
        mine = self.mark.positions
        return self._caught_up and all(mine.get(n, 0) >= p for n, p in positions.items())

    # -- a step -----------------------------------------------------------------------------------

    def step(self) -> tuple[bool, dict[str, tuple[Exception, Mark]]]:
        """Process what is new, or a part; whether there may be more, and failed members with error
        and mark.  An exception means that the group cannot continue; output may then be in some
        sinks.
        """
        before, moment = self.mark, self.sources.look()
        watermark = self.watermark()
        assert before.watermark is not None
        watermark = before.watermark if watermark is None else max(watermark, before.watermark)
        positions = {self.key.source: moment[self.key.source].version}
        if watermark == before.watermark and positions == before.positions:
            self.moment, self._caught_up = moment, True
            return False, {}
        with self.stepping.timed():
            return self._taken_in(moment, watermark)

    def _taken_in(
        self, moment: Mapping[str, Snapshot], known: int
    ) -> tuple[bool, dict[str, tuple[Exception, Mark]]]:
        before, snapshot = self.mark, moment[self.key.source]
        assert before.watermark is not None
        positions = {self.key.source: snapshot.version}
        upto = self.sources.cut(moment, before, known)
        count, spans = self._late(moment)
        with self.reconciling.timed() if spans else nullcontext():
            corrected = self._corrected(snapshot, spans)
        reach = self.bank.layer.longest
        oldest = INT64_MIN if reach < 0 else moved(before.watermark, -reach)
        if not self._gone.spare(snapshot.state, oldest):
            self._reopen(snapshot)
        scan = self._scan(snapshot, self.bank.read_by(self.bank.layer))
        matches = self.bank.advance(scan(before.watermark + 1, upto), upto)
        if len(matches) and snapshot.state.dropped and (span := snapshot.time_range) is not None:
            matches = matches.where(matches.first_tick >= span[0])  # of events that are there
        parts, failed = self._changes(moment, corrected, matches, upto)
        late = count if self.key.correct else 0
        mark = Mark(
            positions, upto, self.sources.events(moment, upto), 0, before.step + 1, 0, 0,
            before.late + late, before.ignored + count - late,
        )  # fmt: skip
        if corrected is not None:
            self._doubtful = max(self._doubtful, before.watermark)
        left = self.leave(list(failed))
        self._put(parts, mark)
        self.moment, self.mark, self._caught_up = moment, mark, upto >= known
        return upto < known, {name: (failed[name], left[name]) for name in failed}

    def _scan(self, snapshot: Snapshot, columns: list[str]) -> Scan:
        schema = pa.schema([snapshot.schema.arrow.field(name) for name in columns])

        def scan(low: int, high: int) -> pa.Table:
            if low > high:
                return schema.empty_table()
            return pa.Table.from_batches(snapshot.scan(*half_open(low, high), columns), schema)

        return scan

    # -- late events ------------------------------------------------------------------------------

    def _late(self, moment: Mapping[str, Snapshot]) -> tuple[int, Spans]:
        source = self.key.source
        count, late = self.sources.late(moment, self.mark, self._rule)
        spans = late.get(source, ())
        old = self.moment[source].version
        if spans and (spans[0][0] <= INT64_MIN or self.mark.positions != {source: old}):
            raise _Unknown("it is not known which events came late")
        if spans and self.sources.deleted(source, self.mark):  # or updated
            raise _Unknown("events are gone, or are other ones")
        return count, spans

    def _corrected(self, snapshot: Snapshot, spans: Spans) -> Corrected | None:
        watermark = self.mark.watermark
        span = snapshot.time_range if spans else None
        if span is None or watermark is None:
            return None
        events = self.sources.late_events(self.key.source, snapshot, self.mark, self._rule)
        late = late_ticks(self.moment[self.key.source], snapshot, events, spans)
        corrected = None
        if late is not None:
            scan = self._scan(snapshot, self.bank.read_by(self.bank.layer))
            corrected = correct(self.bank, scan, late, span[0], watermark)
        if corrected is None:
            raise _Unknown("events are gone")
        return corrected

    def _reopen(self, snapshot: Snapshot) -> None:
        """Rebuild open matches after retention may have dropped their events."""
        self.moment = {self.key.source: snapshot}
        self._gone = Removals.of(snapshot.state)
        self._doubtful = max(self._doubtful, self.mark.watermark or INT64_MIN)
        self._open(self.bank.layer)

    # -- what is put out --------------------------------------------------------------------------

    def _changes(
        self,
        moment: Mapping[str, Snapshot],
        corrected: Corrected | None,
        found: BankMatches,
        upto: int,
    ) -> tuple[dict[str, Changes], dict[str, Exception]]:
        """Changes per member with matches, and errors per member."""
        snapshot, watermark = moment[self.key.source], self.mark.watermark
        assert watermark is not None
        gone: dict[str, BankMatches] = {}
        there: dict[str, BankMatches] = {}
        if corrected is not None and self.key.correct:
            gone, there = _by_name(corrected.gone), _by_name(corrected.added)
            found = BankMatches.joined([corrected.added, found])
        mine = _by_name(found)
        queries = {name: self._opened(name) for name in {**gone, **mine}}
        rows_by_name = rows_of(found, queries, snapshot)
        nothing = self.bank.nothing()
        of_all = () if corrected is None else (corrected.gone,)
        low, _ = span_of(found, *of_all) if queries else (upto, upto)
        emitted = EmittedBy(low, upto)
        parts: dict[str, Changes] = {}
        failed: dict[str, Exception] = {}
        for name, query in queries.items():
            try:
                rows = rows_by_name[name] if name in rows_by_name else query.nothing()
                if isinstance(rows, Exception):
                    raise rows
                matches = mine.get(name, nothing)
                if name in gone or name in there:
                    floor = query.floor(moment, watermark)
                    changes = corrected_rows(
                        query, rows, gone.get(name, nothing), matches, floor, emitted
                    )
                else:
                    rows = _wanted(query, rows)
                    doubtful = len(rows) and int(matches.first_tick.min()) <= self._doubtful
                    changes = Changes.added(rows)
                    if doubtful:
                        changes = newly(rows, emitted.of(query, rows.id))
                if len(changes):
                    parts[name] = changes
            except Exception as error:  # the other members continue
                failed[name] = error
        return parts, failed

    def _put(self, parts: Mapping[str, Changes], mark: Mark) -> None:
        """Commit a step's output sink by sink; marks of members without rows may be delayed."""
        now = time.monotonic()
        quiet = now - self._marked >= QUIET_MARK_SECONDS
        sinks: dict[EventStream, list[tuple[Sink, Changes, Mark]]] = {}
        for name, changes in parts.items():
            member, query = self.members[name], self._opened(name)
            member.mark = member.mark.counted(changes, mark.step)
            of_sink = sinks.setdefault(member.sink, [])
            of_sink.append((query.sink, changes, self.mark_of(name, mark)))
        of_group = {self.key.name: mark.to_json()}
        errors = put_at_once(
            [(each, of, of_group if each in self._shared else {}) for each, of in sinks.items()]
        )
        for error in errors:
            if error is not None:
                raise error
        if not quiet:
            return
        self._marked = now
        for stream in self._shared - sinks.keys():
            leave_marks(stream, {self.key.name: mark.to_json()})
        self._renew(mark, RENEWED_MAX)

    def _renew(self, mark: Mark, most: int) -> None:
        for _ in range(min(most, len(self._quiet))):
            name = self._quiet[0]
            leave_marks(self.members[name].sink, {name: self.mark_of(name, mark).to_json()})
            self._quiet.rotate(-1)

    # -- for people -------------------------------------------------------------------------------

    def status(self, name: str) -> dict[str, Any]:
        """A member's row of SHOW LIVE QUERIES."""
        schema = self.moment[self.key.source].schema
        behind = self.sources.positions() != self.mark.positions
        definition = self.members[name].definition
        row = status_row(definition, self.mark_of(name), schema, self.sources, behind)
        return {**row, "state_bytes": self.bank.nbytes // len(self.members)}

    def describe(self) -> list[tuple[str, str]]:
        """Lines of EXPLAIN of a member."""
        others = len(self.members) - 1
        return [("search", f"in a bank with {others} other patterns of {self.key.source}")]

    def close(self, seconds: float = 2.0) -> None:
        """Write marks; those of sinks of one member only until ``seconds`` have passed."""
        with self.lock:
            if not self.members or self.mark.watermark is None:
                return
            until = time.monotonic() + seconds
            try:
                for stream in self._shared:
                    leave_marks(stream, {self.key.name: self.mark.to_json()})
                for _ in range(len(self._quiet)):
                    if time.monotonic() > until:
                        break
                    self._renew(self.mark, 1)
            except ChronicleError as error:  # repeated after the restart
                logger.warning("marks of live patterns were not left: %s", error)


class _Unknown(ChronicleError):
    """The group does not know what has changed; its members must find out alone."""


def _by_name(matches: BankMatches) -> dict[str, BankMatches]:
    return {
        str(name): matches.where(matches.query == i) for i, name in enumerate(matches.names)
    }  # fmt: skip

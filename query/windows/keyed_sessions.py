"""Sessions per key: ``SESSION(s, t, gap, k)``, and sessions grouped by keys.
Sessions are numbered by first event, independently of batches.  A *piece* is a run of one key in a
batch without a pause; a key's first piece may continue its open session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...schema import StreamSchema
from . import kernels as k
from .aggregation import Check, WindowAggregation, times_array
from .expand import with_bounds
from .fields import Aggregate
from .keyed import KEYS_IDLE_MAX, fold_rows
from .keys import KeyTable
from .slices import SliceChunk, in_pieces, ticks_of
from .spec import TICK_MAX, CountWindows, SessionWindows, TimeWindows

__all__ = ["KeyedSessionAggregation", "Pieces", "SessionNumbers", "expand_keyed_sessions"]

Words = npt.NDArray[np.int64]
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True)
class Pieces:
    """Pieces of a batch: of each row, and per piece session number, key, first and last tick."""

    of_row: Words
    number: Words
    code: Words
    first: Words
    last: Words


class SessionNumbers:
    """Numbers the sessions of keys, batch by batch in time order; ``gap`` in ticks."""

    def __init__(self, gap: int) -> None:
        self._gap = np.uint64(gap)
        self._count = 0
        self._number = _NONE  # newest session by code, or -1
        self._last = _NONE

    def take(self, codes: Words, ticks: Words) -> Pieces:
        """The pieces of a batch; ``codes``: dense key codes, ``ticks`` ascend."""
        if not len(codes):
            return Pieces(_NONE, _NONE, _NONE, _NONE, _NONE)
        self._make_room(int(codes.max()) + 1)
        order = np.argsort(codes, kind="stable")
        code, tick = codes[order], ticks[order]
        other = np.ones(len(code), np.bool_)  # first event of a key in this batch
        other[1:] = code[1:] != code[:-1]
        pause = np.ones(len(code), np.bool_)
        pause[1:] = self._apart(tick[:-1], tick[1:])
        starts = np.flatnonzero(other | pause)
        goes_on = other[starts] & (self._number[code[starts]] >= 0)
        goes_on &= ~self._apart(self._last[code[starts]], tick[starts])
        number = self._number[code[starts]]
        fresh = np.flatnonzero(~goes_on)
        number[fresh[np.argsort(order[starts[fresh]])]] = self._count + np.arange(len(fresh))
        self._count += len(fresh)
        ends = np.append(starts[1:], len(code)) - 1
        newest = np.append(code[starts[1:]] != code[starts[:-1]], True)
        self._number[code[ends[newest]]] = number[newest]
        self._last[code[ends[newest]]] = tick[ends[newest]]
        of_row = np.empty(len(code), np.int64)
        of_row[order] = np.repeat(np.arange(len(starts)), ends - starts + 1)
        return Pieces(of_row, number, code[starts], tick[starts], tick[ends])

    def keep(self, codes: Words) -> None:
        """Forget all other keys; ``codes[i]`` becomes i."""
        self._number, self._last = self._number[codes], self._last[codes]

    def is_open(self, last: Words, now: int) -> npt.NDArray[np.bool_]:
        """Whether sessions with these last ticks can continue after an event at ``now``."""
        return ~self._apart(last, np.full(len(last), now, np.int64))

    def _apart(self, before: Words, after: Words) -> npt.NDArray[np.bool_]:
        # the difference of two ticks may exceed 63 bits, but not 64
        found: npt.NDArray[np.bool_] = after.view(np.uint64) - before.view(np.uint64) > self._gap
        return found

    def _make_room(self, known: int) -> None:
        more = max(known, 2 * len(self._number)) - len(self._number)
        if known > len(self._number):
            self._number = np.append(self._number, np.full(more, -1, np.int64))
            self._last = np.append(self._last, np.zeros(more, np.int64))


class KeyedSessionAggregation(WindowAggregation):
    def __init__(
        self,
        schema: StreamSchema,
        windows: SessionWindows,
        aggregates: Sequence[Aggregate],
        keys: Sequence[str],
        scan: Callable[[list[str]], Iterator[pa.RecordBatch]],
        check: Check = lambda: None,
    ) -> None:
        super().__init__(schema, windows, aggregates, check, keys)
        self._gap = windows.gap
        self._keys = tuple(keys)
        self._scan = scan
        self._table = KeyTable([schema.attribute(name).type for name in keys])
        self._sessions = SessionNumbers(windows.gap)

    def _sources(self, windows: TimeWindows | CountWindows) -> list[Iterator[SliceChunk]]:
        raise AssertionError("sessions of keys do not come from slices")

    def batches(self) -> Iterator[pa.RecordBatch]:
        plan = self.plan
        names = list(dict.fromkeys((plan.schema.time, *plan.names, *self._keys)))
        bounds = np.empty((4, 0), np.int64)  # of open sessions: number, key, first, last
        partials = np.empty((0, plan.width), np.int64)
        for batch in in_pieces(self._scan(names), self._check):
            ticks = ticks_of(batch.column(batch.schema.get_field_index(plan.schema.time)))
            columns = [batch.column(batch.schema.get_field_index(name)) for name in self._keys]
            pieces = self._sessions.take(self._table.codes(columns), ticks)
            words = fold_rows(batch, ticks, pieces.of_row, len(pieces.number), plan)
            self.metrics.events += batch.num_rows
            self.metrics.slices += len(words)
            added = np.stack((pieces.number, pieces.code, pieces.first, pieces.last))
            bounds, partials = self._merged_with(bounds, partials, added, words)
            going_on = self._sessions.is_open(bounds[3], int(ticks[-1]))
            yield from self._given(bounds[:, ~going_on], partials[~going_on])
            bounds, partials = bounds[:, going_on], partials[going_on]
            if len(self._table) > max(KEYS_IDLE_MAX, 4 * bounds.shape[1]):
                active = np.sort(bounds[1])
                self._table.keep(active)
                self._sessions.keep(active)
                bounds[1] = np.searchsorted(active, bounds[1])
        yield from self._given(bounds, partials)

    def _merged_with(
        self, bounds: Words, partials: Words, added: Words, words: Words
    ) -> tuple[Words, Words]:
        bounds, both = np.concatenate((bounds, added), axis=1), np.concatenate((partials, words))
        order = np.argsort(bounds[0], kind="stable")
        ids, merged = np.empty(len(order), np.int64), np.empty_like(both)
        count = k.merge_equal(bounds[0], both, order, self.plan.own.fields, ids, merged)
        bounds = bounds[:, order]
        starts = np.searchsorted(bounds[0], ids[:count])
        ends = np.append(starts[1:], len(order)) - 1
        return np.stack((*bounds[:3, starts], bounds[3, ends])), merged[:count]

    def _given(self, bounds: Words, partials: Words) -> Iterator[pa.RecordBatch]:
        if not bounds.shape[1]:
            return
        self.metrics.windows += bounds.shape[1]
        time = self.plan.schema.time_type
        start, end = bounds[2], _ends(bounds[3], self._gap)
        yield pa.RecordBatch.from_arrays(
            [
                times_array(start, time),
                times_array(end, time),
                *self._table.columns(bounds[1]),
                *self.plan.columns(partials),
            ],
            schema=self.schema,
        )


def _ends(last: Words, gap: int) -> Words:
    found: Words = np.where(last > TICK_MAX - gap, TICK_MAX, last + gap)
    return found


def expand_keyed_sessions(
    batches: Iterable[pa.RecordBatch],
    ahead: Iterable[pa.RecordBatch],
    windows: SessionWindows,
    time: str,
    keys: Sequence[str],
    columns: Sequence[str],
    check: Callable[[], None],
) -> Iterator[pa.RecordBatch]:
    """Each event with the session of its key; ``ahead``: the same events."""
    first, last, count = _NONE, _NONE, 0
    for pieces, _ in _pieces(ahead, windows.gap, time, keys, check):
        known, count = count, max(count, int(pieces.number.max()) + 1)
        if count > len(first):
            room = np.zeros(max(count, 2 * len(first)) - len(first), np.int64)
            first, last = np.append(first, room), np.append(last, room)
        begins = pieces.number >= known
        first[pieces.number[begins]] = pieces.first[begins]
        last[pieces.number] = pieces.last  # a session has at most one piece per batch
    for pieces, batch in _pieces(batches, windows.gap, time, keys, check):
        session = pieces.number[pieces.of_row]
        end = _ends(last[session], windows.gap)
        rows, type_ = np.arange(batch.num_rows), batch.schema.field(time).type
        yield with_bounds(batch, rows, None, first[session], end, columns, type_)


def _pieces(
    batches: Iterable[pa.RecordBatch],
    gap: int,
    time: str,
    keys: Sequence[str],
    check: Callable[[], None],
) -> Iterator[tuple[Pieces, pa.RecordBatch]]:
    table: KeyTable | None = None
    sessions = SessionNumbers(gap)
    for batch in batches:
        check()
        if not batch.num_rows:
            continue
        columns = [batch.column(batch.schema.get_field_index(name)) for name in keys]
        if table is None:
            table = KeyTable([column.type for column in columns])
        ticks = ticks_of(batch.column(batch.schema.get_field_index(time)))
        yield sessions.take(table.codes(columns), ticks), batch

"""Drop occurrences that fit no other, by the bands between blocks, before candidates are merged::

    position           4    9   17   18   23        B AS x BETWEEN A.x - 1 AND A.x + 1
    A, x               7        3                   window 20
    B, x                    2        8    3         left: A at 4 and 17, B at 18 and 23

All bands between two blocks are tested together, pair by pair; within a block each occurrence is
tested alone.  Sound: in a match the symbols' rows fit, the later one behind the earlier and within
the window; nulls fit nothing; beyond ``cost.PAIRS_PER_EVENT`` pairs per event in the intervals the
rest is kept.  Columns are read only if intervals hold ``WORTH_EVENTS`` events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.native import kernel
from ...core.sorting import distinct, order_of, places_in
from ...core.times import INT64_MAX, moved
from .bands import Band
from .candidates import in_any_order
from .context import PlanContext
from .cost import PAIRS_PER_EVENT
from .partitions import NEAR_EVENTS, PartitionKeys
from .timeline import Timeline, near, read_arrays

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

WORTH_EVENTS = 1 << 13
"""Events in intervals from which on reading columns is worth it."""
COLUMN_SHARE = 16
"""Events of which one column may be read per event in the intervals."""
ROUNDS = 2


@dataclass(frozen=True)
class Fitted:
    """The remaining occurrences of each block and their partitions, in the order given.  ``texts``:
    conditions and how many occurrences they left, for EXPLAIN; empty if none was tested.
    """

    found: Mapping[int, Ints]
    codes: Mapping[int, Ints]
    texts: tuple[str, ...]


def fitted(
    context: PlanContext,
    found: Mapping[int, Ints],
    codes: Mapping[int, Ints],
    events: int,
    keyed: str = "",
) -> Fitted:
    """Drop occurrences that bands exclude.  ``events``: those in the intervals, the possible gain;
    ``keyed``: a column whose equality the candidate merge tests later.
    """
    search = _Fitting(context, found, codes, keyed)
    if events < WORTH_EVENTS or not search.pairs or search.to_read() > COLUMN_SHARE * events:
        return Fitted(found, codes, ())
    before = {block: len(at) for block, at in found.items()}
    budget = int(PAIRS_PER_EVENT * events)
    for _ in range(ROUNDS):
        dropped = 0
        for blocks, bands in search.pairs.items():
            context.check()
            dropped += search.ask(blocks, bands, budget)
        if not dropped:
            break
    texts = tuple(
        dict.fromkeys(band.condition.text for bands in search.pairs.values() for band in bands)
    )
    asked = {block for blocks in search.pairs for block in blocks}
    names = [
        f"{'+'.join(symbol.name for symbol in context.pattern.blocks[block].symbols)} "
        f"{before[block]:,} -> {len(search.found[block]):,}"
        for block in sorted(asked)
    ]
    return Fitted(search.found, search.codes, (*texts, *names))


class _Fitting:
    def __init__(
        self,
        context: PlanContext,
        found: Mapping[int, Ints],
        codes: Mapping[int, Ints],
        keyed: str,
    ) -> None:
        self.found, self.codes = dict(found), dict(codes)
        self.pairs: dict[tuple[int, int], list[Band]] = {}
        self._context = context
        self._places: list[tuple[int, int]] = []
        for number, block in enumerate(context.pattern.blocks):
            self._places += [(number, offset) for offset in range(len(block.symbols))]
        self._values: dict[tuple[int, str], tuple[Floats, Mask]] = {}
        self._keys: dict[Band, dict[int, Ints]] = {}
        for band in context.pattern.bands:
            blocks = self._places[band.earlier][0], self._places[band.later][0]
            if band.condition.same and band.condition.column == keyed:
                continue
            if blocks[0] in found and blocks[1] in found:
                self.pairs.setdefault(blocks, []).append(band)

    def _wanted(self) -> dict[str, set[int]]:
        found: dict[str, set[int]] = {}
        for bands in self.pairs.values():
            for band in bands:
                found.setdefault(band.condition.source, set()).add(band.earlier)
                found.setdefault(band.condition.column, set()).add(band.later)
        return found

    def to_read(self) -> int:
        total = 0
        for symbols in self._wanted().values():
            at = np.sort(np.concatenate([self._rows(symbol) for symbol in symbols]))
            total += sum(int(at[high - 1] - at[low]) + 1 for low, high in near(at, NEAR_EVENTS))
        return total

    def ask(self, blocks: tuple[int, int], bands: list[Band], budget: int) -> int:
        known = [np.ones(len(self.found[block]), np.bool_) for block in blocks]
        tests = []
        for band in bands:
            present, bounds, values = self._test(band)
            known[0] &= present[0]
            known[1] &= present[1]
            tests.append((*bounds, values))
        low, high, value = (np.array(part) for part in zip(*tests, strict=True))
        if blocks[0] == blocks[1]:
            inside = ((low <= value) & (value <= high)) | np.isnan(value)
            kept = [known[0] & known[1] & inside.all(axis=0)]
            return self._keep({blocks[0]: kept[0]})
        dropped = self._keep({blocks[0]: known[0], blocks[1]: known[1]})
        low, high, value = low[:, known[0]], high[:, known[0]], value[:, known[1]]
        fits = self._partners(bands[0], low, high, value, budget)
        return dropped + self._keep(dict(zip(blocks, fits, strict=True)))

    def _partners(
        self, band: Band, low: Floats, high: Floats, value: Floats, budget: int
    ) -> tuple[Mask, Mask]:
        timeline, pattern = self._context.timeline, self._context.pattern
        symbols = band.earlier, band.later
        at = [self._rows(symbol) for symbol in symbols]
        ticks = [in_any_order(timeline, rows, Timeline.ticks_at) for rows in at]
        until = np.full(len(at[0]), INT64_MAX, np.int64)
        if pattern.within is not None:
            until = moved(ticks[0], pattern.within)
        none = [np.zeros(len(rows), np.int64) for rows in at]
        of = [
            self.codes.get(self._places[symbol][0], zeros)
            for symbol, zeros in zip(symbols, none, strict=True)
        ]
        fits = np.zeros(len(at[0]), np.bool_), np.zeros(len(at[1]), np.bool_)
        _mark_pairs(
            of[0], at[0], ticks[0], until, of[1], at[1], ticks[1], low, high, value,
            self._span(band), self._context.wants.ties, budget, *fits,
        )  # fmt: skip
        return fits

    def _span(self, band: Band) -> int:
        pattern = self._context.pattern
        blocks = [self._places[symbol][0] for symbol in (band.earlier, band.later)]
        known = [2**62] if pattern.longest is None else [pattern.longest]
        distance = pattern.distance(*blocks)
        if distance is not None:
            known.append(distance + sum(len(pattern.blocks[block].symbols) for block in blocks))
        return min(known)

    def _keep(self, flags: Mapping[int, Mask]) -> int:
        dropped = 0
        for block, kept in flags.items():
            if kept.all():
                continue
            dropped += len(kept) - int(np.count_nonzero(kept))
            self.found[block] = self.found[block][kept]
            if block in self.codes:
                self.codes[block] = self.codes[block][kept]
            for (symbol, name), (values, present) in list(self._values.items()):
                if self._places[symbol][0] == block:
                    self._values[symbol, name] = values[kept], present[kept]
            for by_symbol in self._keys.values():
                for symbol, keys in list(by_symbol.items()):
                    if self._places[symbol][0] == block:
                        by_symbol[symbol] = keys[kept]
        return dropped

    def _rows(self, symbol: int) -> Ints:
        block, offset = self._places[symbol]
        last = self._context.total - 1
        # a block that extends beyond the last event is no real occurrence
        return np.minimum(self.found[block] + offset, last)

    def _test(self, band: Band) -> tuple[tuple[Mask, Mask], tuple[Floats, Floats], Floats]:
        """Where both values are present, bounds of the later value, and the later value."""
        one = band.condition
        if one.equal:
            keys = self._equal(band)
            earlier, later = keys[band.earlier], keys[band.later]
            bounds = earlier.astype(np.float64)
            return (earlier >= 0, later >= 0), (bounds, bounds), later.astype(np.float64)
        source, present = self._read(band.earlier, one.source)
        value, there = self._read(band.later, one.column)
        return (present, there), one.own(source, source), value

    def _equal(self, band: Band) -> dict[int, Ints]:
        """Numbers that are equal where texts are; negative for null and unmatched texts."""
        if band not in self._keys:
            context, name = self._context, band.condition.column
            symbols = sorted((band.earlier, band.later), key=lambda s: len(self._rows(s)))
            keys = PartitionKeys(context.timeline, (name,), context.schema)
            found: dict[int, Ints] = {}
            for symbol in symbols:
                rows = self._rows(symbol)
                order = order_of(rows)
                learned = keys.codes_at if found else keys.learn
                of = np.empty(len(rows), np.int64)
                of[order] = learned(rows[order])
                found[symbol] = of
            null = keys.codes([pa.nulls(1, context.schema.attribute(name).type)])[0]
            for of in found.values():
                of[of == null] = -1
            self._keys[band] = found
        return self._keys[band]

    def _read(self, symbol: int, name: str) -> tuple[Floats, Mask]:
        if (symbol, name) not in self._values:
            rows = {one: self._rows(one) for one in self._wanted()[name]}
            every = distinct(np.concatenate(list(rows.values())))
            values, present = _values_at(self._context, name, every)
            for one, own in rows.items():
                at = places_in(every, own)
                self._values[one, name] = values[at], present[at]
        return self._values[symbol, name]


def _values_at(context: PlanContext, name: str, rows: Ints) -> tuple[Floats, Mask]:
    output = pa.schema([context.schema.arrow.field(name)])
    values, present = np.full(len(rows), np.nan), np.zeros(len(rows), np.bool_)
    for low, high in near(rows, NEAR_EVENTS):
        done = low
        first, end = int(rows[low]), int(rows[high - 1]) + 1
        for at, (array,) in read_arrays(context.timeline, (name,), output, first, end):
            stop = low + int(np.searchsorted(rows[low:high], at + len(array)))
            some = array.take(pa.array(rows[done:stop] - at))
            present[done:stop] = some.is_valid().to_numpy(zero_copy_only=False)
            if pa.types.is_timestamp(some.type):
                some = some.cast(pa.int64())
            # without nulls, numbers are not converted by way of doubles
            plain = some.drop_null().to_numpy(zero_copy_only=False)
            values[done:stop][present[done:stop]] = plain.astype(np.float64)
            done = stop
    return values, present


@kernel
def _mark_pairs(  # type: ignore[no-untyped-def]
    of_u, at_u, tick_u, until, of_v, at_v, tick_v, low, high, value, longest, ties, budget,
    fits_u, fits_v,
):  # fmt: skip
    """Flag ``u`` and later ``v``, both by (partition, position), with
    ``low[b, u] <= value[b, v] <= high[b, u]`` for every band; after ``budget`` pairs everything
    else is flagged.
    """
    bands = low.shape[0]
    begin = np.int64(0)
    asked = np.int64(0)
    for u in range(at_u.shape[0]):
        while begin < at_v.shape[0] and (
            of_v[begin] < of_u[u]
            or (
                of_v[begin] == of_u[u]
                and ((tick_v[begin] < tick_u[u]) if ties else (at_v[begin] <= at_u[u]))
            )
        ):
            begin += 1
        if asked > budget:
            fits_u[u:] = True
            fits_v[begin:] = True
            return
        v = begin
        while v < at_v.shape[0] and of_v[v] == of_u[u]:
            if tick_v[v] > until[u] or at_v[v] - at_u[u] >= longest:
                break
            fits = True
            for b in range(bands):
                x = value[b, v]
                if not (low[b, u] <= x <= high[b, u] or x != x):
                    fits = False
                    break
            if fits:
                fits_u[u] = True
                fits_v[v] = True
            v += 1
            asked += 1

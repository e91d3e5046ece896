"""Thousands of saved patterns over one stream, step by step.

Purpose
    :class:`PatternBank` takes the events of a step and says which patterns matched where.  It does
    for all of its patterns together what :class:`~chronicle.query.pattern.advancing.AdvancingMatch`
    does for one.

Guarantee
    Matches of a pattern are those that it has alone, known at the same watermark, but for SKIP TO
    NEXT ROW, where a match waits for those that begin before it.  No Python and no allocation per
    query and batch.  State is the hits of open matches.

Limits
    Patterns of one PARTITION BY list that :func:`~.symbols.why_alone` has nothing against.  A
    pattern sees the events from the step on in which it was added.  The rows that a partial match
    keeps are searched again when its query has another hit in the partition.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...errors import InvalidArgument, ResourceLimit, SqlError
from ...query.pattern import outcomes
from ...query.pattern.columns import flat, numbers
from ...query.pattern.compiled import CompiledMatch
from ...query.pattern.groups import KeyCodes, group_rows
from ...query.pattern.kept_rows import ranks
from ...query.pattern.matcher import MatchLimits
from ...query.pattern.search import MatchTable
from ...query.pattern.waiting import NOTHING
from ...ticks import INT64_MAX, INT64_MIN
from .automata import Automata, Tables
from .predicate_index import PredicateIndex, find_hits, use_codes
from .searching import (
    BUFFER_FULL,
    KEPT_FULL,
    Fresh,
    Hits,
    Kept,
    Parts,
    Queries,
    by_query,
    search_bank,
)
from .symbols import Symbols, atoms_of, keys_of, why_alone

__all__ = ["BankMatches", "PatternBank"]

IntArray = npt.NDArray[np.int64]
SAMPLE_ROWS = 4096
BATCH_ROWS = 1 << 16
PARTITIONS_MIN = 4096


@dataclass(frozen=True)
class BankMatches:
    """Matches of a step, by query, partition and first event.

    Attributes
    ----------
    names : tuple
        Of the queries.
    query : int64 array
        Per match: which of ``names``.
    keys : pyarrow.Table
        Per match: columns of PARTITION BY.
    last_tick, last_rank : int64 arrays
        Per match: its last event, by tick and rank among the events of its partition and tick.
    run_offsets : int64 array
        Runs of match ``i``: ``run_offsets[i] .. run_offsets[i + 1]``.
    place, tick, rank : int64 arrays
        Per run of events at one position of the pattern: the position, and the first event of it;
        rank -1 where a star of which nothing is asked begins with an event that is no hit.
    """

    names: tuple[Hashable, ...]
    query: IntArray
    keys: pa.Table
    last_tick: IntArray
    last_rank: IntArray
    run_offsets: IntArray
    place: IntArray
    tick: IntArray
    rank: IntArray

    @property
    def first_tick(self) -> IntArray:
        """Per match: tick of its first event."""
        return self.tick[self.run_offsets[:-1]]

    @property
    def first_rank(self) -> IntArray:
        """Per match: rank of its first event."""
        return self.rank[self.run_offsets[:-1]]


@dataclass(frozen=True)
class _Built:
    """What a step reads of the patterns, as long as these do not change."""

    index: PredicateIndex
    tables: Tables
    queries: Queries
    use_query: IntArray
    use_bits: npt.NDArray[np.uint64]


class PatternBank:
    """See the module.

    Parameters
    ----------
    schema : pyarrow.Schema
        Columns of the events.
    time : str
    partition_by : sequence of str
    limits : MatchLimits, optional
    """

    def __init__(
        self,
        schema: pa.Schema,
        time: str,
        partition_by: Sequence[str] = (),
        limits: MatchLimits | None = None,
    ) -> None:
        self.schema = schema
        self.time = time
        self.partition_by = list(partition_by)
        self.limits = limits or MatchLimits()
        self.watermark = INT64_MIN
        self._names: list[Hashable] = []
        self._patterns: list[CompiledMatch] = []
        self._symbols = Symbols()
        self._built: _Built | None = None
        self._kept = _kept(0, 0)
        self._frames = 256
        self._buffer_rows = 1024
        self._hits_room = 1 << 16
        self._matches_room = 4096
        self._tidy_at = PARTITIONS_MIN
        self._start_partitions()

    def _start_partitions(self) -> None:
        self._codes = KeyCodes(max(1, len(self.partition_by)))
        self._keys = pa.schema([self.schema.field(n) for n in self.partition_by]).empty_table()
        one = 0 if self.partition_by else 1
        self._count = np.zeros(one, np.int64)
        self._tick = np.full(one, INT64_MIN)
        self._rank = np.full(one, -1)

    # -- patterns -------------------------------------------------------------------------------

    def add(self, name: Hashable, compiled: CompiledMatch) -> None:
        """Take a pattern in; it sees the events of the next step on.

        Raises
        ------
        InvalidArgument
            When it must run by itself, or partitions in another way.
        """
        why = why_alone(compiled)
        if not why and list(compiled.partition_by) != self.partition_by:
            why = f"it is partitioned by {compiled.partition_by}, not by {self.partition_by}"
        if why:
            raise InvalidArgument(f"pattern {name} cannot share the search: {why}")
        self._names.append(name)
        self._patterns.append(compiled)
        self._built = None

    def remove(self, name: Hashable) -> None:
        """Let a pattern go, with what it had open."""
        gone = self._names.index(name)
        del self._names[gone], self._patterns[gone]
        self._built = None
        kept = self._kept
        mine = kept.query != gone
        rows = np.repeat(mine, np.diff(kept.first))
        sizes = np.diff(kept.first)[mine]
        query = kept.query[mine]
        self._kept = Kept(
            query - (query > gone), kept.partition[mine],
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), kept.bits[rows],
            kept.rank[rows], kept.tick[rows], kept.among[rows],
        )  # fmt: skip

    @property
    def symbols(self) -> int:
        """Conditions that are evaluated."""
        return len({n for pattern in self._patterns for n in self._numbers(pattern)})

    @property
    def nbytes(self) -> int:
        """Memory of the state."""
        parts = [*self._kept, self._count, self._tick, self._rank]
        return int(sum(part.nbytes for part in parts) + self._keys.nbytes)

    def _numbers(self, compiled: CompiledMatch) -> list[int]:
        return [self._symbols.number(atoms) for atoms in atoms_of(compiled).values()]

    def _build(self, table: pa.Table) -> _Built:
        """Index and tables of the patterns; what is rare is learnt from a batch."""
        automata, symbols = Automata(), Symbols()
        uses: list[tuple[int, int, int]] = []
        numbers_ = []
        for q, compiled in enumerate(self._patterns):
            numbers_.append(automata.number(compiled))
            for bits, atoms in atoms_of(compiled).items():
                uses.append((symbols.number(atoms), q, bits))
        self._symbols = symbols
        uses.sort()
        symbol = np.array([s for s, _, _ in uses], np.int64)
        sample = {}
        some = table.slice(0, SAMPLE_ROWS)
        for name in {getattr(a, "column", "") for atoms in symbols.atoms for a in atoms} - {""}:
            if not pa.types.is_string(table.schema.field(name).type):
                keys, valid = keys_of(some.column(name))
                sample[name] = np.sort(keys if valid is None else keys[valid])
        windows = [-1 if p.within is None else p.within for p in self._patterns]
        use_first = np.searchsorted(symbol, np.arange(len(symbols.atoms) + 1)).astype(np.int64)
        tables, automaton = automata.tables(), np.array(numbers_, np.int64)
        query = np.array([q for _, q, _ in uses], np.int64)
        codes = use_codes(query, (~tables.alone & (tables.gap == 0))[automaton])
        return _Built(
            PredicateIndex(symbols.atoms, use_first, codes, sample), tables,
            Queries(automaton, np.array(windows, np.int64), 1 << 60), query,
            np.array([bits for _, _, bits in uses], np.uint64),
        )  # fmt: skip

    # -- steps ----------------------------------------------------------------------------------

    def advance(self, batch: pa.RecordBatch | pa.Table | None, watermark: int) -> BankMatches:
        """Take events and a watermark; the matches that are decided by them.

        Parameters
        ----------
        batch : RecordBatch, Table or None
            Events in the order of time.
        watermark : int
            In ticks: no event at this time or before will come any more.
        """
        self.watermark = max(self.watermark, watermark)
        table = self.schema.empty_table() if batch is None else _as_table(batch)
        found = []
        for begin in range(0, max(1, table.num_rows), BATCH_ROWS):
            piece = table.slice(begin, BATCH_ROWS)
            last = begin + BATCH_ROWS >= table.num_rows
            now = self.watermark if last else INT64_MIN
            found.append(self._step(piece, now, False))
        return found[0] if len(found) == 1 else _joined(found)

    def finish(self) -> BankMatches:
        """No event will come; what was still open."""
        return self._step(self.schema.empty_table(), self.watermark, True)

    def _step(self, table: pa.Table, watermark: int, final: bool) -> BankMatches:
        if self._built is None:
            self._built = self._build(table)
        built = self._built
        fresh, order = self._arrange(table)
        hits = self._hits(built, table, order, fresh)
        found = self._search(built, hits, fresh, watermark, final)
        self._tidy()
        if self.nbytes > self.limits.memory_bytes:
            raise ResourceLimit(
                f"open matches of {len(self._names)} patterns keep more than "
                f"{self.limits.memory_bytes} bytes; add WITHIN, or narrow the conditions"
            )
        return found

    def _arrange(self, table: pa.Table) -> tuple[Fresh, IntArray]:
        """The events in the order of partitions."""
        count = table.num_rows
        ticks, _ = numbers(flat(table.column(self.time)), "i")
        tick = np.ascontiguousarray(ticks, np.int64)
        codes = np.zeros(count, np.int64)
        if self.partition_by and count:
            codes = self._codes.encode([table.column(name) for name in self.partition_by])
            more = self._codes.count - len(self._count)
            if more:
                new, first = np.unique(codes, return_index=True)
                rows = pa.array(first[new >= len(self._count)])
                keys = table.select(self.partition_by).take(rows)
                self._keys = pa.concat_tables([self._keys, keys]).combine_chunks()
                self._count = np.concatenate([self._count, np.zeros(more, np.int64)])
                self._tick = np.concatenate([self._tick, np.full(more, INT64_MIN)])
                self._rank = np.concatenate([self._rank, np.full(more, -1)])
        partitions = len(self._count)
        order, offsets = group_rows(codes, partitions)
        codes, tick = codes[order], tick[order]
        among = np.empty(count, np.int64)
        ranks(np.arange(partitions), offsets, tick, self._tick, self._rank, among)
        rank = self._count[codes] + np.arange(count) - offsets[codes]
        self._count += np.diff(offsets)
        return Fresh(codes, rank, tick, among, self._count), order

    def _hits(self, built: _Built, table: pa.Table, order: IntArray, fresh: Fresh) -> Hits:
        """Hits of the events, by query."""
        batch = built.index.read(table)
        at = np.zeros(2, np.int64)
        edges = np.zeros(len(order), np.int64)
        if len(order):
            other = np.flatnonzero(np.diff(fresh.partition, prepend=-1))
            edges[other] |= 1
            edges[np.append(other[1:], len(order)) - 1] |= 2
        last = np.full(len(self._names), -(1 << 40))
        rows, uses = self._room_for_hits(built)
        while not find_hits(
            order, edges, batch, built.index.lists, built.index.tests, built.index.use_first,
            built.index.codes, last, at, rows, uses,
        ):  # fmt: skip
            self._hits_room *= 2
            before, made = (rows, uses), int(at[1])
            rows, uses = self._room_for_hits(built)
            rows[:made], uses[:made] = before[0][:made], before[1][:made]
        total = int(at[1])
        first = np.zeros(len(self._names) + 1, np.int64)
        hits = Hits(first, np.empty(total, np.int32), np.empty(total, np.uint64))
        by_query(
            rows[:total], uses[:total], built.use_query, built.use_bits, first, hits.row, hits.bits
        )
        return hits

    def _room_for_hits(self, built: _Built) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        room = self._hits_room + 2 * len(built.use_query)
        return np.empty(room, np.int32), np.empty(room, np.int32)

    def _search(
        self, built: _Built, hits: Hits, fresh: Fresh, watermark: int, final: bool
    ) -> BankMatches:
        kept = self._kept
        at = np.zeros(5, np.int64)
        state = np.zeros(8, np.int64)
        buffers = self._buffers()
        rows = len(kept.bits) + 4096
        out = _kept(len(kept.query) + 256, rows)
        output, parts = self._room_for_matches()
        known = np.zeros(2 * 65, np.int64)
        frame, visited = self._scratch()
        now = watermark + 1 if watermark < INT64_MAX else INT64_MAX
        while True:
            status, wanted = search_bank(
                built.queries, built.tables, hits, fresh, kept, now, final, at, frame, visited,
                known, NOTHING, state, output, parts, out, buffers,
            )  # fmt: skip
            if status == outcomes.DONE:
                break
            if status == BUFFER_FULL:
                self._buffer_rows = 2 * max(self._buffer_rows, int(wanted))
                self._check(self._buffer_rows * 32)
                buffers = self._buffers()
            elif status == KEPT_FULL:
                before = out
                out = _kept(2 * len(out.query), 2 * (len(out.bits) + int(wanted)))
                for old, new in zip(before, out, strict=True):
                    new[: len(old)] = old
            elif status == outcomes.PATH_FULL:
                self._frames *= 4
                self._check(self._frames * 40)
                frame, visited = self._scratch()
            elif status == outcomes.OUTPUT_FULL:
                self._matches_room *= 4
                self._check(self._matches_room * 200)
                small = (*output, *parts)
                output, parts = self._room_for_matches()
                for narrow, wide in zip(small, (*output, *parts), strict=True):
                    wide[: len(narrow)] = narrow
            else:
                raise SqlError(
                    "AFTER MATCH SKIP of pattern "
                    f"{self._names[int(wanted)]} leads to a variable without events, or back to "
                    "the first event of the match"
                )
        entries, used = int(at[3]), int(at[4])
        self._kept = Kept(
            out.query[:entries].copy(), out.partition[:entries].copy(),
            out.first[: entries + 1].copy(), out.bits[:used].copy(), out.rank[:used].copy(),
            out.tick[:used].copy(), out.among[:used].copy(),
        )  # fmt: skip
        m, r = int(state[outcomes.MATCHES]), int(state[outcomes.RUNS])
        offsets = np.concatenate([[0], np.cumsum(output.runs[:m])]).astype(np.int64)
        keys = self._keys.take(pa.array(parts.partition[:m])) if self.partition_by else pa.table({})
        return BankMatches(
            tuple(self._names), parts.query[:m], keys, parts.last_tick[:m], parts.last_among[:m],
            offsets, output.place[:r], parts.tick[:r], parts.among[:r],
        )  # fmt: skip

    def _check(self, size: int) -> None:
        if size > self.limits.memory_bytes:
            raise ResourceLimit(
                f"a step of {len(self._names)} patterns needs more than "
                f"{self.limits.memory_bytes} bytes; narrow the conditions, or shorten WITHIN"
            )

    def _buffers(self) -> tuple[npt.NDArray[np.uint64], IntArray, IntArray, IntArray]:
        n = self._buffer_rows
        rank, tick, among = (np.empty(n, np.int64) for _ in range(3))
        return np.empty(n, np.uint64), rank, tick, among

    def _scratch(self) -> tuple[IntArray, npt.NDArray[np.uint64]]:
        return np.zeros(4 * (self._frames + 2), np.int64), np.zeros(self._frames + 2, np.uint64)

    def _room_for_matches(self) -> tuple[MatchTable, Parts]:
        n, r = self._matches_room, 4 * self._matches_room
        output = MatchTable(*(np.empty(size, np.int64) for size in (n, n, n, n, n, r, r, r)))
        return output, Parts(*(np.empty(size, np.int64) for size in (n, n, r, r, n, n)))

    def _tidy(self) -> None:
        """Forget partitions in which nothing is open."""
        if len(self._count) <= self._tidy_at or not self.partition_by:
            return
        lasting = self._tick > self.watermark
        lasting[self._kept.partition] = True
        some = int(lasting.sum())
        self._tidy_at = max(PARTITIONS_MIN, 2 * some)
        if 2 * some > len(lasting):
            return
        number = np.cumsum(lasting) - 1
        self._kept = self._kept._replace(partition=number[self._kept.partition])
        self._keys = self._keys.filter(pa.array(lasting)).combine_chunks()
        self._codes = KeyCodes(len(self.partition_by))
        self._codes.encode([self._keys.column(name) for name in self.partition_by])
        self._count, self._tick, self._rank = (
            column[lasting] for column in (self._count, self._tick, self._rank)
        )


def _kept(entries: int, rows: int) -> Kept:
    """Room for kept rows."""
    query, partition = np.zeros(entries, np.int64), np.zeros(entries, np.int64)
    columns = (np.zeros(rows, np.int64) for _ in range(3))
    return Kept(
        query, partition, np.zeros(entries + 1, np.int64), np.zeros(rows, np.uint64), *columns
    )


def _as_table(batch: pa.RecordBatch | pa.Table) -> pa.Table:
    return batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])


def _joined(parts: list[BankMatches]) -> BankMatches:
    """Matches of several batches of a step."""

    def all_of(name: str) -> IntArray:
        return np.concatenate([getattr(part, name) for part in parts])

    runs = np.concatenate([np.diff(part.run_offsets) for part in parts])
    return BankMatches(
        parts[0].names, all_of("query"), pa.concat_tables([part.keys for part in parts]),
        all_of("last_tick"), all_of("last_rank"),
        np.concatenate([[0], np.cumsum(runs)]).astype(np.int64),
        all_of("place"), all_of("tick"), all_of("rank"),
    )  # fmt: skip

"""Patterns of a bank that share one index, and their open matches.

An index of ten thousand patterns takes part of a second to build, so it is built once, at the first
events, and removed patterns are marked dead.  ``Layer.search`` maps open matches (``OpenMatches``,
sorted by pattern and partition) to the next ones.

The automata of the patterns are in flat tables, equal structures once (see
``query.pattern.contiguous``).

Matches are identified by their events, not by row positions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.sorting import numbered
from ...core.times import INT64_MAX, INT64_MIN
from ...errors import ResourceLimit, SqlError
from ...query.contract.operator import MatchLimits
from ...query.pattern import search
from ...query.pattern.attempts import NOTHING
from ...query.pattern.search import MatchTable
from .predicate_index import PredicateIndex, Read, Uses
from .searching import (
    BUFFER_FULL,
    KEPT_FULL,
    Fresh,
    Hits,
    OpenMatches,
    Parts,
    Queries,
    search_bank,
)
from .symbols import Atom, Card, Shape, keys_of

IntArray = npt.NDArray[np.int64]


_EVENTS = ("first_tick", "first_rank", "last_tick", "last_rank")


@dataclass(frozen=True)
class BankMatches:
    """Matches by query, partition and first event; ``query`` counts in ``names``, a rank counts the
    events of a tick in the partition.
    """

    names: tuple[Hashable, ...]
    query: IntArray
    keys: pa.Table
    first_tick: IntArray
    first_rank: IntArray
    last_tick: IntArray
    last_rank: IntArray

    def __len__(self) -> int:
        return len(self.query)

    def where(self, chosen: npt.NDArray[np.bool_]) -> BankMatches:
        if chosen.all():
            return self
        some, query = numbered(self.query[chosen])
        keys = self.keys.filter(pa.array(chosen)) if self.keys.num_columns else self.keys
        rest = (getattr(self, name)[chosen] for name in _EVENTS)
        return BankMatches(tuple(self.names[i] for i in some.tolist()), query, keys, *rest)

    @staticmethod
    def joined(parts: Sequence[BankMatches]) -> BankMatches:
        """Concatenation of at least one part."""
        full = [part for part in parts if len(part)] or list(parts[:1])
        if len(full) == 1:
            return full[0]
        number: dict[Hashable, int] = {}
        query = [
            np.array([number.setdefault(n, len(number)) for n in part.names], np.int64)[part.query]
            for part in full
        ]
        keys = pa.concat_tables([part.keys for part in full])
        rest = [np.concatenate([getattr(part, name) for part in full]) for name in _EVENTS]
        return BankMatches(tuple(number), np.concatenate(query), keys, *rest)


Words = npt.NDArray[np.uint64]


class Tables(NamedTuple):
    """Automaton ``a`` has positions ``place[a] .. place[a + 1]``, and edges from ``edge[a]`` on.
    Per position: ``first`` (one entry more) to ``member``; per edge: ``target``, ``flag``; the rest
    per automaton: ``gap`` has the bits of positions without a condition, ``alone``: one event can
    match.
    """

    place: IntArray
    edge: IntArray
    first: IntArray
    bit: IntArray
    kind: IntArray
    exits: Words
    star_first: IntArray
    star_last: IntArray
    member: npt.NDArray[np.bool_]
    target: IntArray
    flag: IntArray
    first_bits: Words
    star_bits: Words
    gap: Words
    skip: IntArray
    alone: npt.NDArray[np.bool_]


def tables_of(shapes: Sequence[Shape]) -> Tables:
    words = np.uint64

    def joined(name: str, kind: Any = np.int64) -> Any:
        return np.array([value for each in shapes for value in getattr(each, name)], kind)

    def single(name: str, kind: Any = np.int64) -> Any:
        return np.array([getattr(each, name) for each in shapes], kind)

    def begins(name: str) -> IntArray:
        sizes = [len(getattr(each, name)) for each in shapes]
        return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    return Tables(
        begins("bit"), begins("target"), joined("first"), joined("bit"), joined("kind"),
        joined("exits", words), joined("star_first"), joined("star_last"),
        joined("member", np.bool_), joined("target"), joined("flag"),
        single("first_bits", words), single("star_bits", words), single("gap", words),
        single("skip"), single("alone", np.bool_),
    )  # fmt: skip


Bools = npt.NDArray[np.bool_]
SAMPLE_ROWS = 4096


def no_open_matches(entries: int = 0, rows: int = 0) -> OpenMatches:
    query, partition = np.zeros(entries, np.int64), np.zeros(entries, np.int64)
    columns = (np.zeros(rows, np.int64) for _ in range(3))
    return OpenMatches(
        query, partition, np.zeros(entries + 1, np.int64), np.zeros(rows, np.uint64), *columns
    )


def open_where(kept: OpenMatches, chosen: Bools) -> OpenMatches:
    sizes = np.diff(kept.first)
    rows = np.repeat(chosen, sizes)
    return OpenMatches(
        kept.query[chosen], kept.partition[chosen],
        np.concatenate([[0], np.cumsum(sizes[chosen])]).astype(np.int64), kept.bits[rows],
        kept.rank[rows], kept.tick[rows], kept.among[rows],
    )  # fmt: skip


class Scratch:
    """Growing scratch space, shared by the layers of a bank."""

    def __init__(self, limits: MatchLimits) -> None:
        self.limits = limits
        self.frames = 256
        self.buffer_rows = 1024
        self.hits = 1 << 16
        self.matches = 4096
        self._buffers: tuple[Words, IntArray, IntArray, IntArray] | None = None
        self._tables: tuple[MatchTable, Parts] | None = None

    def check(self, size: int) -> None:
        """Raise ResourceLimit if ``size`` bytes exceed the budget."""
        if size > self.limits.memory_bytes:
            raise ResourceLimit(
                f"a step of a bank of patterns needs more than {self.limits.memory_bytes} bytes; "
                "narrow the conditions, or shorten WITHIN"
            )

    def buffers(self) -> tuple[Words, IntArray, IntArray, IntArray]:
        n = self.buffer_rows
        if self._buffers is None or len(self._buffers[0]) != n:
            rank, tick, among = (np.empty(n, np.int64) for _ in range(3))
            self._buffers = np.empty(n, np.uint64), rank, tick, among
        return self._buffers

    def path_arrays(self) -> tuple[IntArray, npt.NDArray[np.uint64]]:
        return np.zeros(4 * (self.frames + 2), np.int64), np.zeros(self.frames + 2, np.uint64)

    def tables(self) -> tuple[MatchTable, Parts]:
        n, r = self.matches, 4 * self.matches
        if self._tables is None or len(self._tables[0][0]) != n:
            output = MatchTable(*(np.empty(size, np.int64) for size in (n, n, n, n, n, r, r, r)))
            self._tables = output, Parts(*(np.empty(n, np.int64) for _ in Parts._fields))
        return self._tables


@dataclass(frozen=True)
class _Built:
    index: PredicateIndex
    tables: Tables
    queries: Queries


@dataclass(frozen=True)
class SearchResult:
    """Matches of a search, by pattern and partition number, and the open matches after it."""

    parts: Parts
    open_matches: OpenMatches

    def matches(
        self, names: Sequence[Hashable], keys: Callable[[IntArray], pa.Table]
    ) -> BankMatches:
        parts = self.parts
        some, query = numbered(parts.query)
        return BankMatches(
            tuple(names[q] for q in some.tolist()), query, keys(parts.partition),
            parts.first_tick, parts.first_among, parts.last_tick, parts.last_among,
        )  # fmt: skip


class Layer:
    """See the module; ``longest`` is the greatest WITHIN in ticks (-1: one has none), ``passes``:
    matches may skip events, ``searched``: hits so far, by pattern.
    """

    def __init__(
        self,
        names: Sequence[Hashable],
        cards: Sequence[Card],
        open_matches: OpenMatches | None = None,
    ) -> None:
        self.names = list(names)
        self.cards = list(cards)
        self.number = {name: i for i, name in enumerate(self.names)}
        self.alive = np.ones(len(self.names), np.bool_)
        self.open_matches = no_open_matches() if open_matches is None else open_matches
        windows = [-1 if card.within is None else card.within for card in self.cards]
        self.window = np.array(windows, np.int64)
        self.longest = -1 if -1 in windows else max(windows, default=0)
        self.columns = frozenset(name for card in self.cards for name, _ in card.columns)
        self.passes = np.array([card.shape.gap != 0 for card in self.cards], np.bool_)
        self.searched = np.zeros(len(self.names), np.int64)
        self._built: _Built | None = None

    def __len__(self) -> int:
        return len(self.names)

    def remove(self, name: Hashable) -> None:
        gone = self.number.pop(name)
        self.alive[gone] = False
        self.open_matches = open_where(self.open_matches, self.open_matches.query != gone)

    def instead(self, *before: Layer) -> Layer:
        """This layer, with the counters of the layers that it replaces."""
        for layer in before:
            for name, number in layer.number.items():
                self.searched[self.number[name]] = layer.searched[number]
        return self

    def living(self) -> tuple[list[Hashable], list[Card], OpenMatches]:
        """The remaining patterns, renumbered, and their open matches."""
        if self.alive.all():
            return self.names, self.cards, self.open_matches
        number = np.cumsum(self.alive) - 1
        some = np.flatnonzero(self.alive).tolist()
        open_matches = self.open_matches._replace(query=number[self.open_matches.query])
        return [self.names[i] for i in some], [self.cards[i] for i in some], open_matches

    @property
    def passes_over(self) -> bool:
        return bool((self.passes & self.alive).any())

    def build(self, table: pa.Table) -> _Built:
        """Build index and tables once; selectivities are estimated from a sample of ``table``."""
        if self._built is not None:
            return self._built
        automata: dict[Shape, int] = {}
        symbols: dict[tuple[Atom, ...], int] = {}
        uses: list[tuple[int, int, int]] = []
        numbers = []
        for q, card in enumerate(self.cards):
            numbers.append(automata.setdefault(card.shape, len(automata)))
            for guarded, atoms in card.conditions:
                uses.append((symbols.setdefault(atoms, len(symbols)), q, guarded))
        uses.sort()
        symbol = np.array([s for s, _, _ in uses], np.int64)
        sample = {}
        some = table.slice(0, SAMPLE_ROWS)
        for name in {getattr(a, "column", "") for atoms in symbols for a in atoms} - {""}:
            if not pa.types.is_string(table.schema.field(name).type):
                keys, valid = keys_of(some.column(name))
                sample[name] = np.sort(keys if valid is None else keys[valid])
        tables, automaton = tables_of(list(automata)), np.array(numbers, np.int64)
        query = np.array([q for _, q, _ in uses], np.int64)
        bits = np.array([bits for _, _, bits in uses], np.uint64)
        strict = (~tables.alone & (tables.gap == 0))[automaton]
        index = PredicateIndex(list(symbols), Uses(symbol, query, bits), strict, sample)
        self._built = _Built(index, tables, Queries(automaton, self.window, 1 << 60))
        return self._built

    def read(self, table: pa.Table) -> Read:
        return self.build(table).index.read(table)

    def hits(
        self,
        read: Read,
        order: IntArray,
        fresh: Fresh,
        scratch: Scratch,
        followed: IntArray | slice = slice(0),
    ) -> Hits:
        """Hits by query, without isolated ones that cannot match (except those in ``followed``)."""
        built = self._built
        assert built is not None
        edges = np.zeros(len(order), np.bool_)
        if len(order):
            borders = fresh.partition[1:] != fresh.partition[:-1]
            edges[0] = edges[-1] = True
            edges[1:] |= borders
            edges[:-1] |= borders
            edges[followed] = True
        hits = Hits(*built.index.hits(read, order, edges, self.alive, scratch.hits))
        scratch.hits = max(scratch.hits, len(hits.row))
        return hits

    def search(
        self,
        hits: Hits,
        fresh: Fresh,
        kept: OpenMatches,
        watermark: int | IntArray,
        scratch: Scratch,
        skip: int | None = None,
    ) -> SearchResult:
        """Search hits and open matches; ``watermark`` may be per partition, ``skip`` overrides."""
        built = self._built
        assert built is not None
        if not len(hits.row) and not len(kept.query):
            return SearchResult(Parts(*[hits.first[:0]] * len(Parts._fields)), kept)
        tables = built.tables
        if skip is not None:
            tables = tables._replace(skip=np.full(len(tables.skip), skip, np.int64))
        at = np.zeros(5, np.int64)
        state = np.zeros(search.STATE_WORDS, np.int64)
        buffers = scratch.buffers()
        out = no_open_matches(len(kept.query) + 256, len(kept.bits) + 4096)
        output, parts = scratch.tables()
        marked = np.zeros(2 * 65, np.int64)
        frame, visited = scratch.path_arrays()
        final = isinstance(watermark, int) and watermark == INT64_MAX  # nothing comes behind that
        if isinstance(watermark, int):  # it may lie before the first tick
            now = np.full(len(fresh.count), max(INT64_MIN, min(watermark + 1, INT64_MAX)))
        else:
            now = np.minimum(watermark, INT64_MAX - 1) + 1
        while True:
            status, wanted = search_bank(
                built.queries, tables, hits, fresh, kept, now, final, at, frame, visited, marked,
                NOTHING, state, output, parts, out, buffers,
            )  # fmt: skip
            if status == search.DONE:
                break
            if status == BUFFER_FULL:
                scratch.buffer_rows = 2 * max(scratch.buffer_rows, int(wanted))
                scratch.check(scratch.buffer_rows * 32)
                buffers = scratch.buffers()
            elif status == KEPT_FULL:
                before = out
                out = no_open_matches(2 * len(out.query), 2 * (len(out.bits) + int(wanted)))
                for old, new in zip(before, out, strict=True):
                    new[: len(old)] = old
            elif status == search.PATH_FULL:
                scratch.frames *= 4
                scratch.check(scratch.frames * 40)
                frame, visited = scratch.path_arrays()
            elif status == search.OUTPUT_FULL:
                scratch.matches *= 4
                scratch.check(scratch.matches * 200)
                small = (*output, *parts)
                output, parts = scratch.tables()
                for narrow, wide in zip(small, (*output, *parts), strict=True):
                    wide[: len(narrow)] = narrow
            else:
                raise SqlError(
                    f"AFTER MATCH SKIP of pattern {self.names[int(wanted)]} leads to a variable "
                    "without events, or back to the first event of the match"
                )
        entries, used = int(at[3]), int(at[4])
        left = OpenMatches(
            out.query[:entries].copy(), out.partition[:entries].copy(),
            out.first[: entries + 1].copy(), out.bits[:used].copy(), out.rank[:used].copy(),
            out.tick[:used].copy(), out.among[:used].copy(),
        )  # fmt: skip
        matches = int(state[search.MATCHES])
        return SearchResult(Parts(*[column[:matches].copy() for column in parts]), left)

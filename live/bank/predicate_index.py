"""Which of many conditions an event satisfies, without asking each of them.

Purpose
    :class:`PredicateIndex` holds the conjunctions of :mod:`.symbols` and gives, for a batch, the
    pairs (row, symbol) that hold.

Layout
    Each conjunction is found by one of its atoms, the *access* atom, and the rest is tested on the
    pairs found.  Per column, over the access atoms of all symbols:

    ==========  ==================================================================================
    ranges      a value falls into one elementary interval (an end, or what lies between two).  A
                segment tree over these has symbols on the lists of its nodes; nodes without a list
                are left out of the way up.  Where ranges are short, each interval has a whole list
    members     a list per constant; constants are looked up in the batch's dictionary, not per row
    null        one list
    residuals   one list per text, all of them evaluated by one query a batch
    ==========  ==================================================================================

    All of these are *ways*: a way gives each row a place or none, a place has a list of symbols and
    perhaps another place above it.

Guarantee
    Memory is O(K log K) for K ranges; a row costs a binary search per column, and its hits.  A
    range that is open on one side reaches the border of the tree.  An event for which a residual
    condition cannot be computed is an error.

Limits
    The access atom is the rarest by a sample of the stream; without one, texts go before ranges
    that are closed on both sides, these before others.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core.caches import lazy
from ...core.native import kernel
from ...core.times import INT64_MAX, INT64_MIN
from ...errors import SqlError
from ...query.pattern.columns import flat
from ...query.pattern.groups import take_ranges
from ...query.pattern.scalar import evaluate_all
from .symbols import Atom, Member, Null, Range, Residual, keys_of

__all__ = [
    "Batch", "Columns", "Lists", "PredicateIndex", "Read", "Tests", "find_hits", "holds_all",
    "in_order", "use_codes",
]  # fmt: skip

IntArray = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
USE, STRICT = np.int64((1 << 31) - 1), np.int64(1 << 62)
FLAT_MAX = 1 << 22
"""Entries up to which every elementary interval has a list of its own."""


class Lists(NamedTuple):
    """Places and what is listed there.

    ``base[w]`` is the first place of way ``w``, ``up[p]`` the next place above with a list, or -1.
    Place ``p`` has the uses (their codes) ``use[plain[p] .. plain[p + 1]]`` of symbols of which
    nothing is left to test, and the symbols ``symbol[tested[p] .. tested[p + 1]]`` of the others.
    """

    base: IntArray
    up: IntArray
    plain: IntArray
    use: IntArray
    tested: IntArray
    symbol: Int32


class Tests(NamedTuple):
    """What is left to test: rows ``first[s] .. first[s + 1]`` of ``test`` for symbol ``s``.

    A test is (column of keys, low, high), or (-1 - column of keys, first member, end of members).
    """

    first: IntArray
    test: IntArray
    member: IntArray


class Batch(NamedTuple):
    """A batch as rows are looked up: ``place[w, row]`` is the place on way ``w``, or -1.

    ``keys[c, row]`` and ``valid[c, row]`` are the columns that tests read.
    """

    place: Int32
    keys: IntArray
    valid: npt.NDArray[np.bool_]


Column = tuple[IntArray, npt.NDArray[np.bool_] | None]
"""Keys, and which of them count; None: all."""


class Columns:
    """Keys of the columns of a batch, which are found and sorted once for all indexes.

    Parameters
    ----------
    table : pyarrow.Table
    """

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self._keys: dict[str, Column] = {}
        self._sorted: dict[tuple[str, int], tuple[IntArray, tuple[IntArray, IntArray]]] = {}

    def keys(self, name: str) -> Column:
        """Of a column of numbers or times."""
        if name not in self._keys:
            self._keys[name] = keys_of(self.table.column(name))
        return self._keys[name]

    def in_order(self, name: str, rows: IntArray) -> tuple[IntArray, IntArray]:
        """As :func:`in_order`, of such a column."""
        held, found = self._sorted.get((name, id(rows)), (None, None))
        if held is not rows or found is None:
            found = in_order(*self.keys(name), rows)
            self._sorted[name, id(rows)] = rows, found  # which keeps the id its own
        return found


def in_order(
    keys: IntArray, valid: npt.NDArray[np.bool_] | None, rows: IntArray
) -> tuple[IntArray, IntArray]:
    """Keys of some rows, ascending, and the places in ``rows`` that they are from.

    Those that do not count are left out.
    """
    keys = keys[rows]
    if valid is None:
        by_key = np.argsort(keys)
    else:
        some = np.flatnonzero(valid[rows])
        by_key = some[np.argsort(keys[some])]
    return keys[by_key], by_key


@dataclass
class Read:
    """What the conditions look at of a batch.

    Attributes
    ----------
    columns : Columns
    access : list
        Per way the keys of the rows.
    keys, valid : arrays
        See :class:`Batch`.
    placed : Batch or None
        With the places, when they were asked for.
    """

    columns: Columns
    access: list[Column]
    keys: IntArray
    valid: npt.NDArray[np.bool_]
    placed: Batch | None = field(default=None, repr=False)


@kernel
def _cover(low, high, size, count, first, symbol, fill):
    """Put intervals of elementary slots on the nodes of a segment tree: count, or fill lists."""
    for i in range(low.shape[0]):
        left = low[i] + size
        right = high[i] + size + 1
        while left < right:
            if left & 1:
                if fill:
                    symbol[first[left] + count[left]] = i
                count[left] += 1
                left += 1
            if right & 1:
                right -= 1
                if fill:
                    symbol[first[right] + count[right]] = i
                count[right] += 1
            left >>= 1
            right >>= 1


@kernel
def _note(k, code, edge, last, hit_row, hit_use, n):
    """Put a hit out, or keep it back until the next event of the partition; hits so far.

    ``last[q]`` is the row of the last hit of a strict query, and its use while it is kept back.
    """
    u = code & USE
    if code & STRICT:
        q = (code >> 31) & USE
        before = last[q] >> 32
        kept = (last[q] & 0xFFFFFFFF) - 1
        if before == k or (before == k - 1 and not edge & 1):
            if kept >= 0:
                hit_row[n] = before
                hit_use[n] = kept
                n += 1
        elif not edge:
            last[q] = (np.int64(k) << 32) | (u + 1)
            return n
        last[q] = np.int64(k) << 32
    hit_row[n] = k
    hit_use[n] = u
    return n + 1


@kernel
def holds_all(tests, symbol, row, keys, valid):
    """Whether what is left to test of a symbol holds of a row."""
    for t in range(tests.first[symbol], tests.first[symbol + 1]):
        c = tests.test[t, 0]
        low = tests.test[t, 1]
        high = tests.test[t, 2]
        if c >= 0:
            x = keys[c, row]
            holds = valid[c, row] and low <= x <= high
        else:
            x = keys[-1 - c, row]
            holds = False
            for m in range(low, high):
                if tests.member[m] == x:
                    holds = True
                    break
        if not holds:
            return False
    return True


@kernel
def find_hits(rows, edges, batch, lists, tests, use_first, codes, last, at, hit_row, hit_use):
    """Pairs (row, use) of all symbols that hold; ``rows``: the order in which rows are looked at.

    ``use_first``: uses of each symbol; ``codes``: see :func:`use_codes`.  Of a *strict* query
    hits are left out that have no other beside them: none in the row before or behind, where
    ``edges`` does not say that this row is the first (1) or the last (2) of its partition.
    ``at``: next of ``rows``, next hit; the call returns False when the hits may have no room for
    those of a row.
    """
    ways = lists.base.shape[0]
    n = at[1]
    most = 2 * codes.shape[0]
    for k in range(at[0], rows.shape[0]):
        if n + most > hit_row.shape[0]:
            at[0] = k
            at[1] = n
            return False
        row = rows[k]
        edge = edges[k]
        for w in range(ways):
            slot = batch.place[w, row]
            if slot < 0:
                continue
            p = lists.base[w] + slot
            while p >= 0:
                for i in range(lists.plain[p], lists.plain[p + 1]):
                    code = lists.use[i]
                    if code & STRICT and not edge:  # most hits; as :func:`_note`, without a call
                        q = (code >> 31) & USE
                        if last[q] >> 32 < k - 1:
                            last[q] = (np.int64(k) << 32) | ((code & USE) + 1)
                            continue
                    n = _note(k, code, edge, last, hit_row, hit_use, n)
                for i in range(lists.tested[p], lists.tested[p + 1]):
                    s = lists.symbol[i]
                    if holds_all(tests, s, row, batch.keys, batch.valid):
                        for u in range(use_first[s], use_first[s + 1]):
                            n = _note(k, codes[u], edge, last, hit_row, hit_use, n)
                p = lists.up[p]
    at[0] = rows.shape[0]
    at[1] = n
    return True


def use_codes(query: IntArray, strict: npt.NDArray[np.bool_]) -> IntArray:
    """Each use with its query, and whether that is strict, in one number: read as one."""
    use: IntArray = np.arange(len(query))
    codes: IntArray = use | (query << 31) | np.where(strict[query], STRICT, 0)
    return codes


def _starts(place: IntArray, places: int) -> IntArray:
    """Where the entries of each place begin; ``place`` ascends."""
    return np.searchsorted(place, np.arange(places + 1)).astype(np.int64)


@dataclass(frozen=True)
class Way:
    """How conditions are found: by ranges of a column, members, nulls, or a residual text.

    Keys from ``low[i]`` to ``high[i]`` are those of symbol ``owner[i]``; the keys of texts are
    their numbers.
    """

    kind: str
    name: str
    low: IntArray
    high: IntArray
    owner: IntArray


@dataclass(frozen=True)
class _Slots:
    """How keys come to places of a way: by the ends of elementary intervals, or they are places.

    ``above``: places of the tree that lie before those of the intervals.
    """

    ends: IntArray | None
    above: int = 0


class PredicateIndex:
    """An index of conjunctions that does not change.

    Parameters
    ----------
    symbols : sequence of tuples of Atom
        By number; each has an atom at least.
    use_first : int64 array
        Uses of symbol ``s``: ``use_first[s] .. use_first[s + 1]``.
    codes : int64 array
        Of the uses, see :func:`use_codes`.
    sample : mapping, optional
        Sorted keys of some events, per column of numbers: what is rare there is used for access.
    """

    def __init__(
        self,
        symbols: Sequence[tuple[Atom, ...]],
        use_first: IntArray,
        codes: IntArray,
        sample: Mapping[str, IntArray] | None = None,
    ) -> None:
        self.use_first, self.codes = use_first, codes
        self._sample = sample or {}
        access = [a[0] if len(a) == 1 else min(a, key=self._share) for a in symbols]
        self._texts: dict[str, dict[str, int]] = {}
        self._key_columns: list[tuple[str, str]] = []  # kind, name
        self._build_tests(symbols, access)
        self.ways = self._ways(access)

    def _share(self, atom: Atom) -> tuple[float, str]:
        """How rare an atom is thought to be."""
        if isinstance(atom, Member):
            return 0.01 * len(atom.texts), atom.column
        if isinstance(atom, Null):
            return 0.05, atom.column
        if isinstance(atom, Residual):
            return 2.0, atom.sql
        known = self._sample.get(atom.column)
        if known is not None and len(known):
            low = np.searchsorted(known, atom.low, side="left")
            high = np.searchsorted(known, atom.high, side="right")
            return max(0.0, float(high - low)) / len(known), atom.column
        if atom.low == atom.high:
            return 0.01, atom.column
        closed = (atom.low > INT64_MIN) + (atom.high < INT64_MAX)
        return (0.5, 0.3, 0.1)[closed], atom.column

    # -- building -------------------------------------------------------------------------------

    def _text(self, column: str, text: str) -> int:
        known = self._texts.setdefault(column, {})
        return known.setdefault(text, len(known))

    def _column(self, kind: str, name: str) -> int:
        if (kind, name) not in self._key_columns:
            self._key_columns.append((kind, name))
        return self._key_columns.index((kind, name))

    def _build_tests(self, symbols: Sequence[tuple[Atom, ...]], access: Sequence[Atom]) -> None:
        first, tests = [0], []
        members: list[int] = []
        for atoms, chosen in zip(symbols, access, strict=True):
            for atom in atoms:
                if atom is chosen:
                    continue
                if isinstance(atom, Range):
                    tests.append((self._column("range", atom.column), atom.low, atom.high))
                    continue
                begin = len(members)
                if isinstance(atom, Member):
                    members += [self._text(atom.column, text) for text in atom.texts]
                    column = self._column("text", atom.column)
                elif isinstance(atom, Null):
                    members.append(0)
                    column = self._column("null", atom.column)
                else:
                    members.append(0)
                    column = self._column("sql", atom.sql)
                tests.append((-1 - column, begin, len(members)))
            first.append(len(tests))
        self.tests = Tests(
            np.array(first, np.int64), np.array(tests, np.int64).reshape(len(tests), 3),
            np.array(members, np.int64),
        )  # fmt: skip

    def _ways(self, access: Sequence[Atom]) -> list[Way]:
        groups: dict[tuple[str, str], list[int]] = {}
        for s, atom in enumerate(access):
            kind = _KINDS[type(atom)]
            name = atom.sql if isinstance(atom, Residual) else atom.column
            groups.setdefault((kind, name), []).append(s)
        ways = []
        for (kind, name), mine in groups.items():
            owner = np.array(mine, np.int64)
            low = high = np.zeros(len(mine), np.int64)
            if kind == "range":
                low = np.array([access[s].low for s in mine], np.int64)  # type: ignore[union-attr]
                high = np.array([access[s].high for s in mine], np.int64)  # type: ignore[union-attr]
                some = low <= high
                low, high, owner = low[some], high[some], owner[some]
            elif kind == "text":
                pairs = [(self._text(name, text), s) for s in mine for text in access[s].texts]  # type: ignore[union-attr]
                low = high = np.array([number for number, _ in pairs], np.int64)
                owner = np.array([s for _, s in pairs], np.int64)
            ways.append(Way(kind, name, low, high, owner))
        return ways

    @lazy
    def lists(self) -> Lists:
        """The places; they are made when a row is looked up first."""
        return self._placed[0]

    @lazy
    def _placed(self) -> tuple[Lists, list[_Slots]]:
        base, ups, firsts, listed = [], [], [np.zeros(1, np.int64)], []
        slots: list[_Slots] = []
        places = entries = 0
        for way in self.ways:
            if way.kind == "range":
                mine, up, sizes, symbols = _tree(way)
            else:
                order = np.argsort(way.low, kind="stable")
                count = len(self._texts[way.name]) if way.kind == "text" else 1
                sizes = np.bincount(way.low, minlength=count).astype(np.int64)
                mine, up, symbols = _Slots(None), np.full(count, -1), way.owner[order]
            slots.append(mine)
            base.append(places)
            ups.append(np.where(up >= 0, up + places, -1))
            firsts.append(entries + np.cumsum(sizes))
            listed.append(symbols)
            places += len(sizes)
            entries += len(symbols)
        none = np.zeros(0, np.int64)
        symbol = np.concatenate([none, *listed])
        ends = np.concatenate(firsts)
        place = np.repeat(np.arange(places), ends[1:] - ends[:-1])
        tested = (np.diff(self.tests.first) > 0)[symbol]
        begin, end = self.use_first[symbol[~tested]], self.use_first[symbol[~tested] + 1]
        plain = np.repeat(place[~tested], end - begin)
        lists = Lists(
            np.array(base, np.int64), np.concatenate([none, *ups]), _starts(plain, places),
            self.codes[take_ranges(begin, end)], _starts(place[tested], places),
            symbol[tested].astype(np.int32),
        )  # fmt: skip
        return lists, slots

    # -- a batch --------------------------------------------------------------------------------

    def read(self, columns: Columns) -> Read:
        """Keys of the rows of a batch.

        Raises
        ------
        SqlError
            Where a residual condition cannot be computed.
        """
        table = columns.table
        count, texts = table.num_rows, self._answers(table)
        access: list[Column] = []
        for way in self.ways:
            if way.kind == "range":
                access.append(columns.keys(way.name))
            else:
                codes = self._codes(way.kind, way.name, table, texts)
                access.append((codes, None))
        held = len(self._key_columns)
        keys = np.zeros((held, count), np.int64)
        valid_all = np.ones((held, count), np.bool_)
        for c, (kind, name) in enumerate(self._key_columns):
            if kind == "range":
                keys[c], valid = columns.keys(name)
                if valid is not None:
                    valid_all[c] = valid
            else:
                keys[c] = self._codes(kind, name, table, texts)
        return Read(columns, access, keys, valid_all)

    def batch(self, read: Read) -> Batch:
        """A batch with the places of its rows."""
        if read.placed is None:
            _, slots = self._placed
            place = np.empty((len(slots), read.keys.shape[1]), np.int32)
            for w, (way, (keys, valid)) in enumerate(zip(slots, read.access, strict=True)):
                if way.ends is None:
                    place[w] = keys
                    continue
                at = np.searchsorted(way.ends, keys)
                exact = np.zeros(len(keys), np.bool_)
                inside = at < len(way.ends)
                exact[inside] = way.ends[at[inside]] == keys[inside]
                slot = 2 * at + exact + way.above
                place[w] = slot if valid is None else np.where(valid, slot, -1)
            read.placed = Batch(place, read.keys, read.valid)
        return read.placed

    def _codes(
        self, kind: str, name: str, table: pa.Table, texts: Mapping[str, npt.NDArray[np.bool_]]
    ) -> IntArray:
        """Number of the constant of each row, -1 for another value; 0 where a condition holds."""
        if kind == "sql":
            return np.where(texts[name], 0, -1)
        column = flat(table.column(name))
        if kind == "null":
            return np.where(np.asarray(column.is_null()), 0, -1)
        encoded = pc.dictionary_encode(column)
        known = pa.array(list(self._texts.get(name, {})), pa.string())
        found = pc.index_in(encoded.dictionary.cast(pa.string()), value_set=known)
        codes = np.append(found.fill_null(-1).to_numpy(zero_copy_only=False), -1)
        indices = encoded.indices.fill_null(len(codes) - 1)
        found_codes: IntArray = codes[indices.to_numpy(zero_copy_only=False)].astype(np.int64)
        return found_codes

    def _answers(self, table: pa.Table) -> dict[str, npt.NDArray[np.bool_]]:
        """Rows in which each residual condition holds."""
        wanted = {way.name for way in self.ways if way.kind == "sql"}
        wanted |= {name for kind, name in self._key_columns if kind == "sql"}
        listed = sorted(wanted)
        if not listed:
            return {}
        arrays, failed, why = evaluate_all([f"coalesce(({s}), false)" for s in listed], table)
        for sql, bad in zip(listed, failed, strict=True):
            if bad is not None and bad.any():
                raise SqlError(f"the condition {sql} cannot be computed: {why}")
        return {
            sql: np.array(array.to_numpy(zero_copy_only=False), np.bool_)
            for sql, array in zip(listed, arrays, strict=True)
        }


_KINDS = {Range: "range", Member: "text", Null: "null", Residual: "sql"}


def _tree(way: Way) -> tuple[_Slots, IntArray, IntArray, IntArray]:
    """The segment tree of the ranges of a column."""
    ends = np.unique(np.concatenate([way.low, way.high]))
    slots = 2 * len(ends) + 1  # what lies before an end, and the end itself, in turn
    left = 2 * np.searchsorted(ends, way.low) + 1
    right = 2 * np.searchsorted(ends, way.high) + 1
    width = right - left + 1
    if int(width.sum()) <= FLAT_MAX:  # every slot has its list: one place a row
        slot = take_ranges(left, right + 1)
        order = np.argsort(slot, kind="stable")
        sizes = np.bincount(slot, minlength=slots).astype(np.int64)
        owner = np.repeat(way.owner, width)[order]
        return _Slots(ends), np.full(slots, -1), sizes, owner
    size = 1 << max(0, slots - 1).bit_length()
    count = np.zeros(2 * size, np.int64)
    none = np.zeros(0, np.int64)
    _cover(left, right, size, count, none, none, False)
    first = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
    symbol = np.zeros(int(first[-1]), np.int64)
    filled = np.zeros(2 * size, np.int64)
    _cover(left, right, size, filled, first, symbol, True)
    up = np.full(2 * size, -1, np.int64)
    above = np.arange(2 * size) >> 1
    for level in range(1, (2 * size).bit_length()):  # from the root down
        nodes = np.arange(1 << level, min(2 * size, 2 << level))
        parent = above[nodes]
        up[nodes] = np.where(count[parent] > 0, parent, up[parent])
    return _Slots(ends, size), up, count, way.owner[symbol]

"""Predicate index: which of many conditions an event satisfies, without testing each.

Each conjunction is found by its *access* atom (the rarest in a sample); the rest is tested.

==========  ==================================================================================
ranges      a value falls into one elementary interval (an end, or what lies between two).  A
            segment tree over these has symbols on the lists of its nodes; nodes without a list
            are skipped on the path up.  Where ranges are short, each interval has a whole list
members     a list per constant; constants are looked up in the batch's dictionary, not per row
null        one list
residuals   one list per SQL text, all evaluated by one query per batch
==========  ==================================================================================

Each is a *way* from a row to a place with a list of symbols, and possibly a parent place.
Memory is O(K log K) for K ranges; a row costs a binary search per column plus its hits.
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
from ...query.pattern.columns import flat, take_ranges
from ...query.pattern.scalar import evaluate_all
from .symbols import Atom, Member, Null, Range, Residual, keys_of

IntArray = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
USE, STRICT = np.int64((1 << 31) - 1), np.int64(1 << 62)
FLAT_MAX = 1 << 22
"""Maximum number of entries for which every elementary interval has its own list."""


class Lists(NamedTuple):
    """Way ``w`` begins at place ``base[w]``; ``up[p]`` is the next ancestor with a list, or -1.
    Place ``p`` has the use codes ``use[plain[p] .. plain[p + 1]]`` without further tests, and the
    symbols ``symbol[tested[p] .. tested[p + 1]]`` with tests.
    """

    base: IntArray
    up: IntArray
    plain: IntArray
    use: IntArray
    tested: IntArray
    symbol: Int32


class Tests(NamedTuple):
    """Symbol ``s`` has rows ``first[s] .. first[s + 1]`` of ``test``: (key column, low, high), or
    (-1 - key column, first member, end of members).
    """

    first: IntArray
    test: IntArray
    member: IntArray


class Batch(NamedTuple):
    """A batch for lookup: ``place[w, row]`` is the place on way ``w``, or -1."""

    place: Int32
    keys: IntArray
    valid: npt.NDArray[np.bool_]


Column = tuple[IntArray, npt.NDArray[np.bool_] | None]


class Columns:
    """Keys of a batch's columns, computed and sorted once for all indexes."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self._keys: dict[str, Column] = {}
        self._sorted: dict[tuple[str, int], tuple[IntArray, tuple[IntArray, IntArray]]] = {}

    def keys(self, name: str) -> Column:
        if name not in self._keys:
            self._keys[name] = keys_of(self.table.column(name))
        return self._keys[name]

    def in_order(self, name: str, rows: IntArray) -> tuple[IntArray, IntArray]:
        held, found = self._sorted.get((name, id(rows)), (None, None))
        if held is not rows or found is None:
            found = in_order(*self.keys(name), rows)
            self._sorted[name, id(rows)] = rows, found  # holding rows keeps the id unique
        return found


def in_order(
    keys: IntArray, valid: npt.NDArray[np.bool_] | None, rows: IntArray
) -> tuple[IntArray, IntArray]:
    """Valid keys of some rows, ascending, and their positions in ``rows``."""
    keys = keys[rows]
    if valid is None:
        by_key = np.argsort(keys)
    else:
        some = np.flatnonzero(valid[rows])
        by_key = some[np.argsort(keys[some])]
    return keys[by_key], by_key


@dataclass
class Read:
    """The values that conditions read of a batch: keys per way, and the columns for tests."""

    columns: Columns
    access: list[Column]
    keys: IntArray
    valid: npt.NDArray[np.bool_]
    placed: Batch | None = field(default=None, repr=False)


@kernel
def _cover(low, high, size, count, first, symbol, fill):
    """Map intervals of elementary slots to segment tree nodes: count, or fill their lists."""
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
    """Emit a hit, or hold it back in ``last`` until the partition's next event; the hits so far."""
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
    """Whether a symbol's remaining tests hold for a row."""
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
    """Pairs (row, use) that hold; *strict* queries lose hits without one in an adjacent row, unless
    ``edges`` says that the row is first (1) or last (2) of its partition.  ``at``: next row, next
    hit; False when the output may be too small for a row's hits.
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
                    if code & STRICT and not edge:  # most hits: _note, inlined
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
    """Each use, its query and whether that is strict, packed into one number."""
    use: IntArray = np.arange(len(query))
    codes: IntArray = use | (query << 31) | np.where(strict[query], STRICT, 0)
    return codes


def _starts(place: IntArray, places: int) -> IntArray:
    return np.searchsorted(place, np.arange(places + 1)).astype(np.int64)


@dataclass(frozen=True)
class Way:
    """Symbol ``owner[i]`` has the keys ``low[i]`` to ``high[i]``; a text's key is its number."""

    kind: str
    name: str
    low: IntArray
    high: IntArray
    owner: IntArray


@dataclass(frozen=True)
class _Slots:
    """Ends of elementary intervals (None: keys are places); ``above``: tree places before them."""

    ends: IntArray | None
    above: int = 0


class PredicateIndex:
    """An immutable index of non-empty conjunctions; ``sample`` has sorted keys by column."""

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
        """Keys of a batch's rows; SqlError where a residual condition fails to evaluate."""
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
        """Number of each row's constant, -1 for other values; 0 where a condition holds."""
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
    """The segment tree of a column's ranges."""
    ends = np.unique(np.concatenate([way.low, way.high]))
    slots = 2 * len(ends) + 1  # gaps and ends alternate
    left = 2 * np.searchsorted(ends, way.low) + 1
    right = 2 * np.searchsorted(ends, way.high) + 1
    width = right - left + 1
    if int(width.sum()) <= FLAT_MAX:  # a list per slot: one place per row
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

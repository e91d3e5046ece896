"""Predicate index: the events of a batch that satisfy each of many conditions.

The events are sorted by the columns of the conditions, and each condition looks up its range::

    values of a column, sorted    2   3   3   5   8   8   9        one way of the index
    their rows                    4   0   6   1   2   5   3
                                      [===========)                span of BETWEEN 3 AND 7
    spans of the access atoms, by way | one for each symbol with more tests: its rows
    query -> pieces: a span, and the bits that a row in it may stand for

A conjunction is looked up by its *access* atom (the rarest in a sample); its other atoms are tested
on the rows of that span.

==========  ==================================================================================
ranges      two binary searches in the sorted keys of the column
members     constants are looked up in the batch's dictionary, not per row
null        one key
residuals   one key per SQL text, all evaluated by one query per batch
==========  ==================================================================================

Cost per batch: a sort per column, two binary searches per condition, few instructions per hit; a
column with few ranges is compared with each instead.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core.native import kernel, trailing_zeros
from ...core.times import INT64_MAX, INT64_MIN
from ...errors import SqlError
from ...query.pattern.columns import flat, take_ranges
from ...query.pattern.scalar import evaluate_all
from .symbols import Atom, Member, Null, Range, Residual, keys_of

IntArray = npt.NDArray[np.int64]
Rows = npt.NDArray[np.uint32]
Bools = npt.NDArray[np.bool_]
EDGE, HITS = np.uint8(128), np.uint8(127)
SORTED_BY_HAND = 24
RANGES_FEW = 8
"""Up to this many ranges, a batch is compared with each rather than sorted."""


class Tests(NamedTuple):
    """Symbol ``s`` has rows ``first[s] .. first[s + 1]`` of ``test``: (key column, low, high), or
    (-1 - key column, first member, end of members).
    """

    first: IntArray
    test: IntArray
    member: IntArray


Column = tuple[IntArray, npt.NDArray[np.bool_] | None]


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


@dataclass(frozen=True)
class Read:
    """The values that conditions read of a batch: keys per way, and the columns for tests."""

    access: list[Column]
    keys: IntArray
    valid: Bools


@kernel
def _holds_all(tests, symbol, row, keys, valid):
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
def _narrowed(symbol, first, span, begin, end, row, order, tests, keys, valid, at, ends, out):
    """Rows of symbols with remaining tests: the rows of their spans that pass.  False when the
    output is too small for those of the next symbol; ``at``: next symbol, next row.
    """
    n = at[1]
    for i in range(at[0], symbol.shape[0]):
        candidates = 0
        for j in range(first[i], first[i + 1]):
            candidates += end[span[j]] - begin[span[j]]
        if n + candidates > out.shape[0]:
            at[0] = i
            at[1] = n
            return False
        for j in range(first[i], first[i + 1]):
            for h in range(begin[span[j]], end[span[j]]):
                k = row[h]
                if _holds_all(tests, symbol[i], order[k - np.uint32(1)], keys, valid):
                    out[n] = k
                    n += 1
        ends[i] = n
    at[0] = symbol.shape[0]
    at[1] = n
    return True


@kernel
def _collected(
    first, piece, bits, strict, begin, end, row, at, marks, held, found, words, out_first, out_row,
    out_bits,
):  # fmt: skip
    """Hits by query; False when the output is too small for those of the next query.  ``row``,
    ``marks`` and ``held`` count from 1 with sentinels; ``marks``: uses that hold, and ``EDGE``;
    ``held``: their bits; ``at``: next query, next hit.
    """
    n = at[1]
    for q in range(at[0], strict.shape[0]):
        out_first[q] = n
        total = 0
        for p in range(first[q], first[q + 1]):
            s = piece[p]
            total += end[s] - begin[s]
            for h in range(begin[s], end[s]):
                marks[np.uint64(row[h])] += np.uint8(1)
        if total == 0:
            continue
        m = 0
        beside = strict[q]
        for p in range(first[q], first[q + 1]):
            s = piece[p]
            mine = bits[p]
            for h in range(begin[s], end[s]):
                k = np.uint64(row[h])
                if beside and marks[k] == 1:  # of one use, and no edge
                    near = marks[k - np.uint64(1)] | marks[k + np.uint64(1)]
                    if near & HITS == 0:
                        continue
                if held[k] == 0:
                    found[m] = row[h]
                    m += 1
                held[k] |= mine
        for p in range(first[q], first[q + 1]):
            s = piece[p]
            for h in range(begin[s], end[s]):
                marks[np.uint64(row[h])] &= EDGE
        if n + m > out_row.shape[0]:
            for i in range(m):
                held[np.uint64(found[i])] = 0
            at[0] = q
            at[1] = n
            return False
        if m <= SORTED_BY_HAND:
            for i in range(m):
                k = found[i]
                j = i - 1
                while j >= 0 and found[j] > k:
                    found[j + 1] = found[j]
                    j -= 1
                found[j + 1] = k
        else:
            for i in range(m):
                k = np.uint64(found[i])
                words[k >> np.uint64(6)] |= np.uint64(1) << (k & np.uint64(63))
            m = 0
            for w in range(words.shape[0]):
                word = words[w]
                if word == 0:
                    continue
                words[w] = 0
                while word != 0:
                    found[m] = np.uint32((w << 6) + trailing_zeros(word))
                    m += 1
                    word &= word - np.uint64(1)
        for i in range(m):
            k = np.uint64(found[i])
            out_row[n] = np.int32(found[i]) - 1
            out_bits[n] = held[k]
            held[k] = 0
            n += 1
    out_first[strict.shape[0]] = n
    at[0] = strict.shape[0]
    at[1] = n
    return True


@dataclass(frozen=True)
class _KeyRange:
    """Symbol ``owner[i]`` has the keys ``low[i]`` to ``high[i]``; a text's key is its number."""

    kind: str
    name: str
    low: IntArray
    high: IntArray
    owner: IntArray


def _scanned(
    keys: IntArray, valid: npt.NDArray[np.bool_] | None, rows: IntArray, way: _KeyRange
) -> list[IntArray]:
    """Positions in ``rows`` of the keys in each range; faster than sorting for few ranges."""
    keys = keys[rows]
    inside = ((keys >= low) & (keys <= high) for low, high in zip(way.low, way.high, strict=True))
    if valid is not None:
        held = valid[rows]
        inside = (some & held for some in inside)
    return [np.flatnonzero(some) for some in inside]


class Uses(NamedTuple):
    """Uses of symbols, in their order: a row of ``symbol`` may stand for ``bits`` of ``query``."""

    symbol: IntArray
    query: IntArray
    bits: npt.NDArray[np.uint64]


class PredicateIndex:
    """An immutable index of non-empty conjunctions.  ``strict`` queries drop isolated hits;
    ``sample`` has sorted keys by column.
    """

    def __init__(
        self,
        symbols: Sequence[tuple[Atom, ...]],
        uses: Uses,
        strict: Bools,
        sample: Mapping[str, IntArray] | None = None,
    ) -> None:
        self._strict = strict
        self._sample = sample or {}
        access = [a[0] if len(a) == 1 else min(a, key=self._share) for a in symbols]
        self._texts: dict[str, dict[str, int]] = {}
        self._key_columns: list[tuple[str, str]] = []  # kind, name
        self._build_tests(symbols, access)
        self._ranges = self._ranges_of(access)
        self._build_pieces(uses, len(symbols))

    def _share(self, atom: Atom) -> tuple[float, str]:
        if isinstance(atom, Member):
            return 0.01 * len(atom.texts), atom.column
        if isinstance(atom, Null):
            return 0.05, atom.column
        if isinstance(atom, Residual):
            return 2.0, atom.sql
        sample = self._sample.get(atom.column)
        if sample is not None and len(sample):
            low = np.searchsorted(sample, atom.low, side="left")
            high = np.searchsorted(sample, atom.high, side="right")
            return max(0.0, float(high - low)) / len(sample), atom.column
        if atom.low == atom.high:
            return 0.01, atom.column
        closed = (atom.low > INT64_MIN) + (atom.high < INT64_MAX)
        return (0.5, 0.3, 0.1)[closed], atom.column

    # -- building -------------------------------------------------------------------------------

    def _text(self, column: str, text: str) -> int:
        numbers = self._texts.setdefault(column, {})
        return numbers.setdefault(text, len(numbers))

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
        self._tests = Tests(
            np.array(first, np.int64), np.array(tests, np.int64).reshape(len(tests), 3),
            np.array(members, np.int64),
        )  # fmt: skip

    def _ranges_of(self, access: Sequence[Atom]) -> list[_KeyRange]:
        groups: dict[tuple[str, str], list[int]] = {}
        for s, atom in enumerate(access):
            kind = _KINDS[type(atom)]
            name = atom.sql if isinstance(atom, Residual) else atom.column
            groups.setdefault((kind, name), []).append(s)
        ranges = []
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
            by_low = np.argsort(low, kind="stable")  # lookups in this order are faster
            ranges.append(_KeyRange(kind, name, low[by_low], high[by_low], owner[by_low]))
        return ranges

    def _build_pieces(self, uses: Uses, symbols: int) -> None:
        owner = np.concatenate([np.zeros(0, np.int64), *(way.owner for way in self._ranges)])
        self._spans = len(owner)
        span = np.argsort(owner, kind="stable")
        first = np.searchsorted(owner[span], np.arange(symbols + 1))
        tested = np.diff(self._tests.first) > 0
        self._tested = np.flatnonzero(tested)
        self._tested_first = np.concatenate(
            [[0], np.cumsum(first[self._tested + 1] - first[self._tested])]
        ).astype(np.int64)
        self._tested_span = span[take_ranges(first[self._tested], first[self._tested + 1])]
        number = np.cumsum(tested) - 1  # of a symbol among the tested ones
        every = np.concatenate([span, self._spans + np.arange(len(self._tested))])
        begin = np.where(tested, self._spans + number, first[:-1])[uses.symbol]
        end = np.where(tested, self._spans + number + 1, first[1:])[uses.symbol]
        use = np.repeat(np.arange(len(uses.symbol)), end - begin)
        by_query = np.argsort(uses.query[use], kind="stable")
        self._piece = every[take_ranges(begin, end)][by_query]
        self._bits = uses.bits[use][by_query]
        queries = np.arange(len(self._strict) + 1)
        self._first = np.searchsorted(uses.query[use][by_query], queries)

    # -- a batch --------------------------------------------------------------------------------

    def read(self, table: pa.Table) -> Read:
        """Keys of a batch's rows; SqlError where a residual condition fails to evaluate."""
        count, texts = table.num_rows, self._answers(table)
        columns = {way.name for way in self._ranges if way.kind == "range"}
        columns |= {name for kind, name in self._key_columns if kind == "range"}
        keys_by_name = {name: keys_of(table.column(name)) for name in columns}
        access: list[Column] = []
        for way in self._ranges:
            if way.kind == "range":
                access.append(keys_by_name[way.name])
            else:
                codes = self._codes(way.kind, way.name, table, texts)
                access.append((codes, None))
        held = len(self._key_columns)
        keys = np.zeros((held, count), np.int64)
        valid_all = np.ones((held, count), np.bool_)
        for c, (kind, name) in enumerate(self._key_columns):
            if kind == "range":
                keys[c], valid = keys_by_name[name]
                if valid is not None:
                    valid_all[c] = valid
            else:
                keys[c] = self._codes(kind, name, table, texts)
        return Read(access, keys, valid_all)

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
        texts_of_column = pa.array(list(self._texts.get(name, {})), pa.string())
        number_of_text = pc.index_in(
            encoded.dictionary.cast(pa.string()), value_set=texts_of_column
        )
        codes = np.append(number_of_text.fill_null(-1).to_numpy(zero_copy_only=False), -1)
        indices = encoded.indices.fill_null(len(codes) - 1)
        row_codes: IntArray = codes[indices.to_numpy(zero_copy_only=False)].astype(np.int64)
        return row_codes

    def _answers(self, table: pa.Table) -> dict[str, npt.NDArray[np.bool_]]:
        """Rows in which each residual condition holds."""
        wanted = {way.name for way in self._ranges if way.kind == "sql"}
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

    def hits(
        self, read: Read, order: IntArray, edges: Bools, alive: Bools, capacity: int
    ) -> tuple[IntArray, npt.NDArray[np.int32], npt.NDArray[np.uint64]]:
        """Offsets per query, and per hit its position in ``order`` and bits.  ``order`` has rows in
        neighbour order; ``edges`` may have neighbours outside the batch.
        """
        begin, end, row = self._looked_up(read, order)
        if len(self._tested):
            at, base = np.zeros(2, np.int64), len(row)
            passed, ends = np.empty(capacity + len(order), np.uint32), end[self._spans :]
            while not _narrowed(
                self._tested, self._tested_first, self._tested_span, begin, end, row, order,
                self._tests, read.keys, read.valid, at, ends, passed,
            ):  # fmt: skip
                made = int(at[1])
                passed = np.concatenate([passed[:made], np.empty(made + len(order), np.uint32)])
            ends += base
            begin[self._spans :] = np.concatenate([[base], ends[:-1]])
            row = np.concatenate([row, passed[: int(at[1])]])
        return self._by_query(begin, end, row, edges, alive, capacity)

    def _looked_up(self, read: Read, order: IntArray) -> tuple[IntArray, IntArray, Rows]:
        begin, end = np.zeros((2, self._spans + len(self._tested)), np.int64)
        rows, at, base = [np.zeros(0, np.uint32)], 0, 0
        for way, access in zip(self._ranges, read.access, strict=True):
            own = slice(at, at + len(way.low))
            if 0 < len(way.low) <= RANGES_FEW:
                passing = _scanned(*access, order, way)
                ends = base + np.cumsum([len(some) for some in passing], dtype=np.int64)
                begin[own], end[own] = np.concatenate([[base], ends[:-1]]), ends
                by_key = np.concatenate(passing)
            else:
                keys, by_key = in_order(*access, order)
                begin[own] = base + np.searchsorted(keys, way.low, side="left")
                end[own] = base + np.searchsorted(keys, way.high, side="right")
                np.maximum(begin[own], end[own], out=end[own])  # of a range without values
            rows.append((by_key + 1).astype(np.uint32))
            at, base = at + len(way.low), base + len(by_key)
        return begin, end, np.concatenate(rows)

    def _by_query(
        self,
        begin: IntArray,
        end: IntArray,
        row: Rows,
        edges: Bools,
        alive: Bools,
        capacity: int,
    ) -> tuple[IntArray, npt.NDArray[np.int32], npt.NDArray[np.uint64]]:
        count, queries = len(edges), len(self._strict)
        first, piece, bits = self._first, self._piece, self._bits
        if not alive.all():
            lasting = np.repeat(alive, np.diff(first))
            piece, bits = piece[lasting], bits[lasting]
            sizes = np.where(alive, np.diff(first), 0)
            first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        marks, held = np.zeros(count + 2, np.uint8), np.zeros(count + 2, np.uint64)
        marks[1:-1][edges] = EDGE
        row_numbers = np.empty(count, np.uint32)
        words = np.zeros((count >> 6) + 1, np.uint64)
        out_first, at = np.zeros(queries + 1, np.int64), np.zeros(2, np.int64)
        out_row, out_bits = (
            np.empty(capacity + count, np.int32),
            np.empty(capacity + count, np.uint64),
        )
        while not _collected(
            first, piece, bits, self._strict, begin, end, row, at, marks, held, row_numbers, words,
            out_first, out_row, out_bits,
        ):  # fmt: skip
            made = int(at[1])
            more = 2 * made + count
            out_row = np.concatenate([out_row[:made], np.empty(more, np.int32)])
            out_bits = np.concatenate([out_bits[:made], np.empty(more, np.uint64)])
        made = int(at[1])
        return out_first, out_row[:made], out_bits[:made]


_KINDS = {Range: "range", Member: "text", Null: "null", Residual: "sql"}

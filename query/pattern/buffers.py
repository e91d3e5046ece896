"""Evaluates conditions over one buffer of rows: bit words, and the image that bytecode reads.  A
value that cannot be computed is an error only when the search needs it, after the rest of its
condition: ``y <> 0 AND x // y > 2`` never fails.  Its row passes the test, nothing is pruned
(``careful``), and a condition raises the error, so errors do not depend on the buffers.

Kernels for row-local conditions: each test clears its bits in the words of the rows that fail it,
pruning clears more.  Nulls satisfy nothing, so the caller adds a TRUE_B test on the validity of
each nullable column.

=========  =================================================================
RANGE_F    ``low <= column <= high``; NaN (the greatest value) by ``flag``
RANGE_I    ``low <= column <= high``
TRUE_B     the boolean column ``a`` holds
COMPARE_F  column ``a`` op column ``b``, NaN equal to itself and greatest
COMPARE_I  column ``a`` op column ``b``
=========  =================================================================
"""

# ruff: noqa: SIM109
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.native import kernel, trailing_zeros
from ...errors import SqlError
from ...store.packing import pooled
from ..sql.rendering import identifier as quote
from . import machine as m
from .binding import CLASSIFIER, RowExpression
from .bytecode import Cells, Codes, Column
from .columns import (
    codes_and_values,
    decoded,
    flat,
    numbers,
    shift_rows,
    shifted,
    string_codes,
    time_ticks,
    whole,
)
from .machine import build_image
from .scalar import evaluate_all
from .search import LATEST, within
from .tabulated import Tabulated, Values, distinct_values, tabulate

if TYPE_CHECKING:
    from .conditions import ConditionPlan, RowQuery, RowTests

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class PreparedRows:
    """Per row its positions or variables (``words``) and the absences it violates; per position its
    bytecode condition, or -1.  ``careful``: some value could not be computed; ``why``: the first
    error.
    """

    words: Words
    absent: IntArray
    image: IntArray
    condition: IntArray
    careful: bool = False
    why: str = ""


class _Rows:
    def __init__(self, rows: pa.Table, offsets: IntArray) -> None:
        self.rows = rows
        self.offsets = offsets
        self.count = rows.num_rows
        self.computed: dict[RowExpression, pa.Array] = {}
        self.failed: dict[RowExpression, BoolArray | None] = {}
        self.numeric: dict[tuple[Any, ...], Any] = {}
        self.indices: dict[int, pa.Array] = {}
        self.encoded: dict[str, tuple[npt.NDArray[np.int32], pa.Array]] = {}
        self.why = ""

    def compute(self, expressions: Sequence[RowExpression]) -> None:
        todo = [
            e for e in dict.fromkeys(expressions) if e.column is None and e not in self.computed
        ]
        if not todo:
            return
        arrays, failed, why = evaluate_all([e.sql for e in todo], self.rows)
        self.why = self.why or why
        self.computed.update(zip(todo, arrays, strict=True))
        self.failed.update(zip(todo, failed, strict=True))

    def array(self, row: RowExpression) -> pa.Array:
        if row.column is None:
            return self.computed[row]
        return whole(self.rows.column(row.column))

    def coded(self, column: str) -> tuple[npt.NDArray[np.int32], pa.Array]:
        """As ``codes_and_values``, of an encoded column."""
        if column not in self.encoded:
            self.encoded[column] = codes_and_values(whole(self.rows.column(column)))
        return self.encoded[column]

    def index(self, shift: int) -> pa.Array:
        """Row numbers ``shift`` rows away, null beyond the partition."""
        if shift not in self.indices:
            places = np.empty(self.count, np.int64)
            shift_rows(self.offsets, shift, places)
            self.indices[shift] = pa.array(places, mask=places < 0)
        return self.indices[shift]

    def moved(self, marks: BoolArray, shift: int) -> BoolArray:
        taken = pa.array(marks).take(self.index(shift)).fill_null(False)
        return np.array(taken.to_numpy(zero_copy_only=False), np.bool_)

    def source(self, source: tuple[str, int], kind: str) -> tuple[Any, Any]:
        key = (source, kind)
        if key not in self.numeric:
            name, shift = source
            values, valid = numbers(flat(self.rows.column(name)), kind)
            if shift:
                values, valid = shifted(values, valid, self.offsets, shift)
            self.numeric[key] = (values, valid)
        return self.numeric[key]  # type: ignore[no-any-return]


REMEMBERED = 1 << 16
"""Answers for so many bytes of values are used for the next rows with the same values."""


class Answer(NamedTuple):
    """Where a query of row tests holds, and where it cannot be computed: of each row, or, of an
    encoded ``column``, of each of its values.
    """

    holds: BoolArray
    failed: BoolArray | None
    column: str = ""


def _answers(plan: RowTests, rows: _Rows) -> list[Answer]:
    by_query: dict[RowQuery, Answer] = {}
    by_column: dict[str, list[RowQuery]] = {}
    for query in plan.queries:
        if query.column is not None and pa.types.is_dictionary(
            rows.rows.schema.field(query.column).type
        ):
            by_column.setdefault(query.column, []).append(query)
    for column, queries in by_column.items():
        _, values = rows.coded(column)
        before, answers = plan.answered.get(column, (None, []))
        if before is None or not before.equals(values):
            answers = _asked(queries, pa.table({column: values}), rows)
            if values.nbytes <= REMEMBERED and not any(
                answer.failed is not None for answer in answers
            ):
                plan.answered[column] = values, answers
        for query, answer in zip(queries, answers, strict=True):
            by_query[query] = answer._replace(column=column)
    others = [query for query in plan.queries if query not in by_query]
    if others:
        table = rows.rows
        for i, (row, shift) in enumerate(plan.shifted):
            table = table.append_column(f"@s{i}", rows.array(row).take(rows.index(shift)))
        for query, (holds, bad, _) in zip(others, _asked(others, table, rows), strict=True):
            for i, (row, shift) in enumerate(plan.shifted):
                broken = rows.failed.get(row)
                if broken is not None and quote(f"@s{i}") in query.sql:
                    away = rows.moved(broken, shift)
                    bad = away if bad is None else bad | away
            by_query[query] = Answer(holds if bad is None else holds | bad, bad)
    return [by_query[query] for query in plan.queries]


def _asked(queries: Sequence[RowQuery], table: pa.Table, rows: _Rows) -> list[Answer]:
    texts = [f"coalesce(({query.sql}), false)" for query in queries]
    arrays, failed, why = evaluate_all(texts, table)
    rows.why = rows.why or why
    answers = []
    for array, bad in zip(arrays, failed, strict=True):
        holds = array if bad is None else array.fill_null(True)
        answers.append(Answer(np.array(holds.to_numpy(zero_copy_only=False), np.bool_), bad))
    return answers


def run_row_tests(plan: RowTests, rows: _Rows, words: Words) -> Words | None:
    """Fill the words; returns the bits of conditions that cannot be computed per row, or None."""
    words[:] = plan.initial
    answers = _answers(plan, rows)
    passing: dict[str, Words] = {}  # bits that each value of an encoded column leaves
    failed: Words | None = None
    for test in plan.tests:
        bits = np.uint64(test.bits)
        if test.kind == TRUE_B:
            what, detail = test.a
            if what == "query":
                flags, bad, column = answers[detail]
                if bad is not None:
                    marks = np.where(bad, bits, np.uint64(0))
                    marks = marks[rows.coded(column)[0]] if column else marks
                    failed = marks if failed is None else failed | marks
                if column:
                    left = passing.setdefault(column, np.full(len(flags), ~np.uint64(0)))
                    test_flag(flags, bits, left)
                    continue
            elif what == "true":
                booleans = flat(rows.rows.column(detail[0])).fill_null(False)
                flags = booleans.to_numpy(zero_copy_only=False)
            else:
                type_ = rows.rows.schema.field(detail[0]).type
                _, valid = rows.source(detail, "f" if pa.types.is_float64(type_) else "i")
                if valid is None:
                    continue
                flags = valid
            test_flag(flags, bits, words)
            continue
        kind = "f" if test.kind in (RANGE_F, COMPARE_F) else "i"
        values = rows.source(test.a, kind)[0]
        if test.kind in (COMPARE_F, COMPARE_I):
            others = rows.source(test.b, kind)[0]
            test_compare(values, others, test.op, bits, words)
        else:
            test_range(values, test.low, test.high, bool(test.b), bits, words)
    for column, left in passing.items():
        test_codes(rows.coded(column)[0], left, words)
    if failed is not None:
        failed &= words  # a false conjunct decides, whatever failed
    return failed if failed is not None and failed.any() else None


def row_words(plan: RowTests, table: pa.Table, offsets: IntArray) -> Words:
    """Bits of the tests that hold in each row; SqlError when one cannot be computed."""
    rows = _Rows(table, offsets)
    rows.compute([row for row, _ in plan.shifted])
    words = np.empty(rows.count, np.uint64)
    if run_row_tests(plan, rows, words) is not None:
        raise SqlError(f"a condition cannot be computed: {rows.why}")
    return words


def _bits(plan: ConditionPlan, rows: _Rows) -> tuple[Words, IntArray, Words | None]:
    words = pooled(rows.count, np.uint64)
    failed = run_row_tests(plan.tests, rows, words)
    absent = np.zeros(rows.count, np.uint64)
    if plan.absences.initial and run_row_tests(plan.absences, rows, absent) is not None:
        raise SqlError(f"the condition of an absence [^ ] cannot be computed: {rows.why}")
    return words, absent.view(np.int64), failed


def row_bits(
    plan: ConditionPlan, table: pa.Table, offsets: IntArray
) -> tuple[Words, IntArray, Words | None, bool]:
    """Words, absences, bits that cannot be computed (or None), and ``careful``; no image."""
    rows = _Rows(table, offsets)
    shifted = plan.tests.shifted + plan.absences.shifted
    rows.compute([row for row, _ in shifted if row.column != CLASSIFIER])
    return *_bits(plan, rows), bool(rows.why)


def prepare(plan: ConditionPlan, table: pa.Table, offsets: IntArray) -> PreparedRows:
    rows = _Rows(table, offsets)
    builder = plan.builder
    wanted = [c.row for c in builder.columns if isinstance(c, Column)]
    wanted += [row for t in builder.tables for d in t.dimensions for row in d.rows]
    wanted += [row for row, _ in plan.tests.shifted + plan.absences.shifted]
    rows.compute([row for row in wanted if row.column != CLASSIFIER])
    words, absent, failed = _bits(plan, rows)
    guards = {}
    if failed is not None:
        for name, bits in plan.bits_of.items():
            marks = (failed & np.uint64(bits)) != 0
            if marks.any():
                guards[name] = marks
    if guards or plan.path_dependent:
        image, condition = _Image(plan, rows, words, guards).build()
    else:
        image, condition = plan.image = plan.image or _Image(plan, rows, words, guards).build()
    return PreparedRows(words, absent, image, condition, bool(rows.why), rows.why)


class _Image:
    def __init__(
        self, plan: ConditionPlan, rows: _Rows, words: Words, guards: dict[str, BoolArray]
    ) -> None:
        self.plan = plan
        self.rows = rows
        self.words = words
        self.guards = guards
        self.numbers = {name: i + 1 for i, name in enumerate(dict.fromkeys(plan.names[1:]))}
        self.constants: list[Any] = [constant.value for constant in plan.builder.constants]
        self.values = {table: self._values(table) for table in plan.builder.tables}

    def build(self) -> tuple[IntArray, IntArray]:
        plan, builder = self.plan, self.plan.builder
        names = plan.names
        label = np.zeros((2, len(names)), np.int64)
        member = np.zeros((len(builder.sets), len(names)), np.bool_)
        for i, chosen in enumerate(builder.sets):
            for p, name in enumerate(names):
                member[i, p] = p > 0 and (chosen is None or name in chosen)
        columns: list[Any] = []
        if plan.path_dependent:
            arrays = [self._array(column) for column in builder.columns]
            texts = [i for i, c in enumerate(builder.columns) if getattr(c, "kind", "") == "s"]
            written = [value for value in self.constants if isinstance(value, str)]
            encoded, places = string_codes([arrays[i][0] for i in texts], [*written, *names])
            codes = dict(zip(texts, encoded, strict=True))
            code_of = dict(zip(written, places, strict=False))
            self.constants = [
                code_of[value] if isinstance(value, str) else self._size(value)
                for value in self.constants
            ]
            label[0] = places[len(written) :]
            label[1] = [self.numbers.get(name, 0) for name in names]
            for i, column in enumerate(builder.columns):
                array, failed = arrays[i]
                numbers_ = codes[i] if i in codes else self._flat(column, array)
                columns.append((*numbers_, failed))
        arrays_, condition = self._guarded(builder.arrays(), columns)
        constants = np.array(self.constants, np.int64)
        return build_image(arrays_, constants, label, member, columns), condition

    def _size(self, value: int | Codes) -> int:
        if isinstance(value, Codes):
            return len(self.values[value.table][value.dimension].columns[0])
        return value

    def _array(self, column: Column | Codes | Cells) -> tuple[Any, BoolArray | None]:
        if isinstance(column, Column):
            return self.rows.array(column.row), self.rows.failed.get(column.row)
        if isinstance(column, Codes):
            broken = [
                self.rows.failed.get(r) for r in column.table.dimensions[column.dimension].rows
            ]
            marks = [mark for mark in broken if mark is not None]
            return None, np.logical_or.reduce(marks) if marks else None
        array, failed, why = tabulate(column.table, self.values[column.table])
        self.rows.why = self.rows.why or why
        return array, failed

    def _flat(self, column: Column | Codes | Cells, array: Any) -> tuple[Any, BoolArray | None]:
        if isinstance(column, Codes):
            codes = self.values[column.table][column.dimension].codes
            failed = self._array(column)[1]
            return codes, None if failed is None else ~failed
        if column.kind == "n":
            valid = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)
            return np.zeros(len(array), np.int64), valid
        if column.kind == "t":
            return time_ticks(array, self.plan.builder.unit)
        try:
            return numbers(array, column.kind)
        except pa.ArrowInvalid:
            raise SqlError(
                "a condition that compares events reads integers beyond 64 bits with a sign; CAST "
                "them to VARCHAR or DOUBLE"
            ) from None

    def _values(self, table: Tabulated) -> list[Values]:
        """Per dimension of a tabulated function, the values that its row can have."""
        values = []
        for dimension in table.dimensions:
            place = dimension.place
            if dimension.rows[0].column == CLASSIFIER:
                column = pa.array([None, *self.numbers], pa.string())
                values.append(Values(np.zeros(0, np.int64), [column]))
                continue
            chosen = {table.variable} if dimension.current else place.variables
            bits = 0
            for name, own in self.plan.bits_of.items():
                if chosen is None or name in chosen:
                    bits |= own
            usable = (self.words & np.uint64(bits)) != 0
            if place.shift:
                usable = self.rows.moved(usable, -place.shift)
            values.append(
                distinct_values([decoded(self.rows.array(r)) for r in dimension.rows], usable)
            )
        return values

    def _guarded(
        self, arrays: dict[str, IntArray], columns: list[Any]
    ) -> tuple[dict[str, IntArray], IntArray]:
        """Add conditions that raise the error at values that could not be computed."""
        condition = self.plan.condition
        if not self.guards:
            return arrays, condition
        condition = condition.copy()
        code = [tuple(step) for step in arrays["code"].tolist()]
        begin = arrays["begin"].tolist()
        no, yes = len(self.constants), len(self.constants) + 1
        self.constants += [0, 1]
        for name, marks in self.guards.items():
            places = [p for p, other in enumerate(self.plan.names) if p and other == name]
            own = int(condition[places[0]])
            if own < 0:
                code.append((m.CONST_I, yes, 0, 0))
            else:
                code += code[begin[own] : begin[own + 1]]
            code.append((m.JUMP_NOT_TRUE, 2, 0, 0))
            code.append((m.LOAD_I, len(columns), -1, 0))
            code.append((m.JUMP, 1, 0, 0))
            code.append((m.CONST_I, no, 0, 0))
            columns.append((np.ones(self.rows.count, np.int64), ~marks, marks))
            condition[places] = len(begin) - 1
            begin.append(len(code))
        fixed = {
            **arrays,
            "code": np.array(code, np.int64).reshape(len(code), 4),
            "begin": np.array(begin, np.int64),
        }
        return fixed, condition


RANGE_F, RANGE_I, TRUE_B, COMPARE_F, COMPARE_I = range(5)
LT, LE, GT, GE, EQ, NE = range(6)


@kernel
def test_flag(flags, bits, words):
    """Clear ``bits`` in the words of rows without the flag."""
    passing = ~bits
    for i in range(words.shape[0]):
        words[i] &= passing | (np.uint64(0) - np.uint64(flags[i]))


@kernel
def test_codes(codes, passing, words):
    """Leave the bits in the words of rows that the value of their code leaves."""
    for i in range(words.shape[0]):
        words[i] &= passing[np.uint64(codes[i])]


@kernel
def test_range(values, low, high, greatest, bits, words):
    """Clear ``bits`` in the words of rows whose value is not in ``low .. high``; ``greatest``: NaN,
    which is the greatest value, passes.
    """
    passing = ~bits
    if greatest:
        for i in range(words.shape[0]):
            words[i] &= passing | (np.uint64(0) - np.uint64(not (values[i] < low)))
    else:
        for i in range(words.shape[0]):
            inside = (values[i] >= low) & (values[i] <= high)
            words[i] &= passing | (np.uint64(0) - np.uint64(inside))


@kernel
def test_compare(left, right, op, bits, words):
    """Clear ``bits`` in the words of rows where ``left op right`` does not hold; NaN is the
    greatest value and equal to itself.
    """
    passing = ~bits
    wanted = op == LT or op == GT or op == EQ
    if op == EQ or op == NE:
        for i in range(words.shape[0]):
            x = left[i]
            y = right[i]
            same = (x == y) | ((x != x) & (y != y))
            words[i] &= passing | (np.uint64(0) - np.uint64(same == wanted))
        return
    # a > b is b < a, and a >= b is not a < b: one loop instead of four
    a = left
    b = right
    if op == GT or op == LE:
        a = right
        b = left
    for i in range(words.shape[0]):
        x = a[i]
        y = b[i]
        less = (x < y) | ((y != y) & (x == x))
        words[i] &= passing | (np.uint64(0) - np.uint64(less == wanted))


@kernel
def _chain(follow):
    """Bits of the positions whose only successor is the next position."""
    chain = np.uint64(0)
    for p in range(min(63, follow.shape[0])):
        if follow[p] == np.uint64(1) << np.uint64(p + 1):
            chain |= np.uint64(1) << np.uint64(p)
    return chain


@kernel
def feasible(
    words, follow, finals, time, window, begins, ends_at, position, now, final, lookahead, lazy
):
    """Clear the bits from which no match can be completed, in one backward pass over each group,
    down to ``position[g]``.  Bit ``p`` of a row stays if the rows right after it can complete a
    match that ends within ``window`` of this row: exact for first rows, a necessary condition for
    others.  Rows that have not arrived count as able to complete anything at ``now``.  ``lazy``:
    star positions without a condition; they stay alive, also beyond the window, until a row has no
    bits at all, so rows where nothing else happens cost almost nothing.
    """
    ends = np.full(64, LATEST)
    fresh = np.full(64, LATEST)
    one = np.uint64(1)
    zero = np.uint64(0)
    chain = _chain(follow)
    strict = ~lazy
    feeds = zero  # successors of lazy positions
    rest = lazy
    while rest:
        p = trailing_zeros(rest)
        rest &= rest - one
        feeds |= follow[p] & ~(one << np.uint64(p))
    for g in range(begins.shape[0]):
        begin = max(begins[g], position[g])
        end = ends_at[g]
        usable = end if final else max(begin, end - lookahead)
        state = zero  # alive at the next row; lazy ones are in `idle`
        idle = zero
        if not final:
            state = strict
            idle = lazy
            ends[:] = time[usable] if usable < end else now
        if window < 0:
            for r in range(usable - 1, begin - 1, -1):
                alive = state | idle
                idle &= words[r]
                rest = words[r] & strict
                word = rest & (finals | ((alive >> one) & chain))
                rest = rest & ~finals & ~chain if alive else zero
                while rest:
                    p = trailing_zeros(rest)
                    rest &= rest - one
                    if follow[p] & alive:
                        word |= one << np.uint64(p)
                if alive & feeds:
                    rest = words[r] & lazy & ~idle
                    while rest:
                        p = trailing_zeros(rest)
                        rest &= rest - one
                        if follow[p] & alive:
                            idle |= one << np.uint64(p)
                words[r] = word | idle
                state = word
            continue
        news = idle  # lazy positions with a new end
        for r in range(usable - 1, begin - 1, -1):
            alive = state | idle
            live = words[r] & strict
            rest = live & (finals | ((alive >> one) & chain))
            if alive:
                rest |= live & ~chain
            hot = (state | news) & feeds
            idle &= words[r]
            if rest == 0 and hot == 0:
                words[r] = idle
                state = zero
                news = zero
                continue
            at = time[r]
            word = zero
            while rest:
                p = trailing_zeros(rest)
                bit = one << np.uint64(p)
                rest &= rest - one
                best = at
                able = finals & bit != 0
                if not able:
                    best = LATEST
                    onward = follow[p] & alive
                    able = onward != 0
                    while onward:
                        q = trailing_zeros(onward)
                        onward &= onward - one
                        best = min(best, ends[q])
                if able and within(at, best, window):
                    word |= bit
                    fresh[p] = best
            renewed = zero
            if hot:
                rest = words[r] & lazy
                while rest:
                    p = trailing_zeros(rest)
                    bit = one << np.uint64(p)
                    rest &= rest - one
                    best = ends[p] if idle & bit else LATEST
                    onward = follow[p] & hot
                    if idle & bit == 0 and onward == 0:
                        continue
                    while onward:
                        q = trailing_zeros(onward)
                        onward &= onward - one
                        best = min(best, ends[q])
                    if idle & bit == 0 or best < ends[p]:
                        renewed |= bit
                        fresh[p] = best
            rest = word | renewed
            while rest:
                p = trailing_zeros(rest)
                rest &= rest - one
                ends[p] = fresh[p]
            idle |= renewed
            news = renewed
            words[r] = word | idle
            state = word


@kernel
def completing(
    words, follow, finals, time, window, begin, fresh, end, stop, now, waits, skipping
):  # fmt: skip
    """As ``feasible``; with ``skipping``, rows between two events of a match may be skipped.  A
    match ends at one of the rows ``fresh[g] .. end[g]`` or, if it ``waits``, at a row to come: row
    ``end[g]``, or beyond ``stop[g]`` at ``now``.
    """
    ends = np.full(64, LATEST)
    best_of = np.full(64, LATEST)
    one = np.uint64(1)
    zero = np.uint64(0)
    for g in range(begin.shape[0]):
        state = zero
        if waits:
            state = ~zero
            ends[:] = time[end[g]] if end[g] < stop[g] else now
        for r in range(end[g] - 1, begin[g] - 1, -1):
            rest = words[r]
            at = time[r]
            word = zero
            while rest:
                p = trailing_zeros(rest)
                bit = one << np.uint64(p)
                rest &= rest - one
                able = finals & bit != 0 and r >= fresh[g]
                best = at
                if not able:
                    best = LATEST
                    onward = follow[p] & state
                    able = onward != 0
                    while onward:
                        q = trailing_zeros(onward)
                        onward &= onward - one
                        best = min(best, ends[q])
                if able and within(at, best, window):
                    word |= bit
                    best_of[p] = best
            words[r] = word
            rest = word
            while rest:
                p = trailing_zeros(rest)
                bit = one << np.uint64(p)
                rest &= rest - one
                if not (skipping and state & bit) or best_of[p] < ends[p]:
                    ends[p] = best_of[p]
            state = state | word if skipping else word

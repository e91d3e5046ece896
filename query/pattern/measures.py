"""MEASURES: computes output columns for a batch of matches, without Python code per match.
An output row is a pair (match, index of a row in the match), with index -1 for an empty match.
RUNNING reads the rows up to the index, FINAL all of them.  Navigation to a missing row gives NULL.
``sum`` over integers is a 64-bit integer and an error on overflow.
"""

# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core.native import kernel
from ...errors import ResourceLimit, SqlError
from ..contract.operator import MatchLimits
from ..relational.interface import evaluate
from ..sql.pattern_tree import position_error
from ..sql.rendering import identifier as quote
from .binding import (
    CLASSIFIER,
    NUMBER,
    Bound,
    Given,
    Leaf,
    MatchAggregate,
    MatchNumber,
    Navigation,
    RowExpression,
    substitute,
)
from .columns import flat
from .matches import Matches

IntArray = npt.NDArray[np.int64]
VALUES_BYTES_MAX = MatchLimits().memory_bytes - 1  # a text column of Arrow holds as much
ORDERED = ("array_agg", "list", "string_agg", "group_concat", "listagg", "arbitrary", "any_value")


@dataclass(frozen=True)
class OutputRows:
    """Match and index in it of each output row, ascending; index -1 for an empty match."""

    match: IntArray
    index: IntArray


@dataclass(frozen=True)
class Context:
    """A batch of matches.
    ``take``: values of a column at row numbers.  ``begin``, ``end``: rows of each match's
    partition.  ``names``: variable of each position.  ``given``: values of other leaves.
    """

    matches: Matches
    rows: OutputRows
    take: Callable[[str, pa.Array], pa.Array]
    begin: IntArray
    end: IntArray
    names: Sequence[str]
    given: Callable[[Given], pa.Array] | None = None


@kernel
def _navigate(
    runs, begin, place, lengths, member, match, index, from_first, offset, final, out
):  # fmt: skip
    """Index within the match of the wanted row of each output row, or -1; output rows ascend."""
    most = 0
    for i in range(runs.shape[0] - 1):
        most = max(most, runs[i + 1] - runs[i])
    before = np.empty(most, np.int64)  # the last run of a member up to each run, or -1
    n = match.shape[0]
    at = 0
    while at < n:
        current = match[at]
        low = runs[current]
        count = runs[current + 1] - low
        length = lengths[current]
        last = np.int64(-1)
        left = offset
        first = np.int64(-1)  # index of the wanted row from the first one
        for i in range(count):
            if member[place[low + i]]:
                last = i
                size = (begin[low + i + 1] if i + 1 < count else length) - begin[low + i]
                if first < 0 and left < size:
                    first = begin[low + i] + left
                left -= size
            before[i] = last
        run = 0
        while at < n and match[at] == current:
            stop = length if final else min(length, index[at] + 1)
            out[at] = first if from_first and first < stop else -1
            if not from_first and stop > 0:
                while run + 1 < count and begin[low + run + 1] < stop:
                    run += 1
                i = before[run]
                left = offset
                while i >= 0:
                    end = min(stop, begin[low + i + 1] if i + 1 < count else length)
                    if left < end - begin[low + i]:
                        out[at] = end - 1 - left
                        break
                    left -= end - begin[low + i]
                    i = before[i - 1] if i > 0 else np.int64(-1)
            at += 1


@kernel
def _target_rows(runs, run_row, begin, match, index, shift, first, end, out):
    """Row number ``shift`` rows from a row of a match, or -1."""
    for i in range(match.shape[0]):
        out[i] = -1
        if index[i] >= 0:
            low = runs[match[i]]
            high = runs[match[i] + 1] - 1
            while low < high:  # the last run that begins at or before the index
                middle = (low + high + 1) // 2
                if begin[middle] <= index[i]:
                    low = middle
                else:
                    high = middle - 1
            target = run_row[low] + index[i] - begin[low] + shift
            if first[match[i]] <= target < end[match[i]]:
                out[i] = target


@kernel
def _place_of(runs, run_row, begin, place, lengths, match, target, out):
    """Position of a row in a match, or 0 when it is not part of it."""
    for i in range(match.shape[0]):
        out[i] = 0
        low = runs[match[i]]
        stop = runs[match[i] + 1]
        high = stop - 1
        while low < high:  # the last run that begins at or before the row
            middle = (low + high + 1) // 2
            if run_row[middle] <= target[i]:
                low = middle
            else:
                high = middle - 1
        if low < stop and run_row[low] <= target[i]:
            end = begin[low + 1] if low + 1 < stop else lengths[match[i]]
            if target[i] - run_row[low] < end - begin[low]:
                out[i] = place[low]


@kernel
def _count_rows(runs, begin, place, lengths, member, match, index, final, out):
    """Number of rows of some variables up to each output row."""
    n = match.shape[0]
    at = 0
    while at < n:
        current = match[at]
        run = runs[current]
        high = runs[current + 1]
        count = 0  # in earlier runs
        while at < n and match[at] == current:
            stop = lengths[current] if final else index[at] + 1
            partly = 0
            while run < high:
                end = begin[run + 1] if run + 1 < high else lengths[current]
                partly = member[place[run]] * max(0, min(end, stop) - begin[run])
                if end > stop:
                    break
                count += partly
                partly = 0
                run += 1
            out[at] = count + partly
            at += 1


def _indices(values: IntArray) -> pa.Array:
    return pa.array(values, mask=values < 0 if len(values) and values.min() < 0 else None)


class _Leaves:
    def __init__(self, context: Context, type_of: Callable[[RowExpression], pa.DataType]) -> None:
        self.context = context
        self.type_of = type_of
        self.known: dict[Leaf, pa.Array] = {}

    def value(self, leaf: Leaf) -> pa.Array:
        values = self.known.get(leaf)
        if values is None:
            values = self.known[leaf] = self._value(leaf)
        return values

    def _value(self, leaf: Leaf) -> pa.Array:
        if isinstance(leaf, MatchNumber):
            context = self.context
            return pa.array(context.matches.number[context.rows.match])
        if isinstance(leaf, Given):
            assert self.context.given is not None
            return self.context.given(leaf)
        if isinstance(leaf, Navigation):
            return self._navigation(leaf)
        return self._aggregate(leaf)

    def _member(self, variables: frozenset[str] | None) -> npt.NDArray[np.bool_]:
        names = self.context.names
        return np.array(
            [p > 0 and (variables is None or n in variables) for p, n in enumerate(names)]
        )

    def _index(self, leaf: Navigation) -> IntArray:
        context = self.context
        matches, rows = context.matches, context.rows
        if leaf.variables is None:  # every row of the match counts
            last = matches.length[rows.match] - 1
            if not leaf.final:
                last = np.minimum(last, rows.index)
            wanted = last - leaf.offset
            if leaf.first:
                wanted = np.where(wanted >= 0, leaf.offset, -1)
            return np.asarray(np.maximum(wanted, -1), np.int64)
        out = np.empty(len(rows.match), np.int64)
        member = self._member(leaf.variables)
        _navigate(
            matches.runs, matches.begin, matches.place, matches.length, member, rows.match,
            rows.index, leaf.first, leaf.offset, leaf.final, out,
        )  # fmt: skip
        return out

    def _navigation(self, leaf: Navigation) -> pa.Array:
        context = self.context
        matches, match = context.matches, context.rows.match
        at = self._fixed(leaf)
        if at is not None:
            rows = pa.array(np.ascontiguousarray(matches.row[at :: matches.width]))
            return context.take(str(leaf.row.column), rows)
        target = self._end(leaf)
        if target is None:
            target = np.empty(len(match), np.int64)
            index = self._index(leaf)
            _target_rows(
                matches.runs, matches.row, matches.begin, match, index, leaf.shift, context.begin,
                context.end, target,
            )  # fmt: skip
        if leaf.row.column == CLASSIFIER:
            return self._classifier(match, target)
        return self._row_values(leaf.row, target)

    def _fixed(self, leaf: Navigation) -> int | None:
        """Index of the event that a leaf reads if it is the same in all matches, else None."""
        matches, rows = self.context.matches, self.context.rows
        plain = leaf.shift == 0 and leaf.row.column not in (None, CLASSIFIER)
        every = matches.width and len(rows.match) == len(matches.group)
        if not (plain and every and _one_row_per_match(rows, matches)):
            return None
        member = self._member(leaf.variables)[1:]
        inside = np.flatnonzero(member) if leaf.first else np.flatnonzero(member)[::-1]
        return int(inside[leaf.offset]) if leaf.offset < len(inside) else None

    def _end(self, leaf: Navigation) -> IntArray | None:
        """The rows that a leaf reads if these are the first or last ones of matches, else None."""
        matches, rows = self.context.matches, self.context.rows
        if (
            leaf.variables is not None
            or leaf.offset
            or leaf.shift
            or len(rows.match) != len(matches.group)
            or not _one_row_per_match(rows, matches)
        ):
            return None
        at = np.ascontiguousarray(matches.start if leaf.first else matches.last_row)
        return np.where(matches.length > 0, at, -1) if len(at) and matches.length.min() == 0 else at

    def _classifier(self, match: IntArray, target: IntArray) -> pa.Array:
        matches = self.context.matches
        place = np.empty(len(match), np.int64)
        _place_of(
            matches.runs, matches.row, matches.begin, matches.place, matches.length, match, target,
            place,
        )  # fmt: skip
        names = pa.array(["", *self.context.names[1:]], pa.string())
        return names.take(pa.array(place, mask=(place == 0) | (target < 0)))

    def _row_values(self, row: RowExpression, target: IntArray) -> pa.Array:
        indices = _indices(target)
        if row.column is not None:
            return self.context.take(row.column, indices)
        table = pa.table(
            {"@row": indices, **{name: self.context.take(name, indices) for name in row.columns}}
        )
        values = flat(evaluate(f"SELECT ({row.sql}) AS c FROM rows", rows=table).column(0))
        return pc.if_else(pa.array(target >= 0), values, pa.scalar(None, values.type))

    def _aggregate(self, leaf: MatchAggregate) -> pa.Array:
        context = self.context
        matches, rows = context.matches, context.rows
        member = self._member(leaf.variables)
        if leaf.sql == "count(*)":
            counts = np.empty(len(rows.match), np.int64)
            _count_rows(
                matches.runs, matches.begin, matches.place, matches.length, member, rows.match,
                rows.index, leaf.final, counts,
            )  # fmt: skip
            return pa.array(counts)
        # the rows of the variables, in order, with their match
        entry = (
            np.flatnonzero(member[matches.places]) if len(matches.row) else np.zeros(0, np.int64)
        )
        match = np.searchsorted(matches.first, entry, side="right") - 1
        table = self._entries(leaf, entry, match)
        call = leaf.sql
        if leaf.basic and not leaf.distinct and leaf.function in ORDERED:
            call = f'{leaf.head[:-1]} ORDER BY "@order"){call[len(leaf.head) :]}'
        last_only = len(rows.match) == 0 or leaf.final or _one_row_per_match(rows, matches)
        if last_only:
            sql = f'SELECT "@match", {self._typed(leaf, call)} AS c FROM rows GROUP BY "@match"'
            answer = evaluate(sql, rows=table)
            at = np.full(len(matches.group), -1, np.int64)
            at[answer.column(0).to_numpy()] = np.arange(answer.num_rows)
            chosen = at[rows.match] if len(rows.match) else np.zeros(0, np.int64)
            values = flat(answer.column(1))
        else:
            window = (
                ' OVER (PARTITION BY "@match" ORDER BY "@order" '
                "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
            )
            sql = f'SELECT "@order", {self._typed(leaf, call + window)} AS c FROM rows ORDER BY 1'
            answer = evaluate(sql, rows=table)
            navigation = Navigation(RowExpression("", ()), leaf.variables)
            index = self._index(navigation)
            place_of_entry = np.full(len(matches.rows), -1, np.int64)
            place_of_entry[entry] = np.arange(len(entry))
            where = np.where(index >= 0, matches.first[rows.match] + np.maximum(index, 0), -1)
            chosen = np.where(where >= 0, place_of_entry[np.maximum(where, 0)], -1)
            values = flat(answer.column(1))
        nothing = evaluate(
            f"SELECT {self._typed(leaf, call)} AS c FROM rows", rows=table.slice(0, 0)
        )
        default = nothing.column(0)[0]
        size = _size_of(values, chosen)
        if size > VALUES_BYTES_MAX:
            raise ResourceLimit(
                f"the values of {leaf.sql} for every row of a match take {size:,} bytes, more than "
                f"{VALUES_BYTES_MAX:,}; ONE ROW PER MATCH gives each once"
            )
        taken = values.take(_indices(chosen))
        if default.is_valid:
            taken = pc.if_else(pa.array(chosen >= 0), taken, default.cast(taken.type))
        return taken

    def _typed(self, leaf: MatchAggregate, call: str) -> str:
        if leaf.function == "sum":
            argument = leaf.argument
            if argument is None or pa.types.is_integer(self.type_of(argument)):
                kind = "BIGINT" if argument is not None else None
                return f"CAST({call} AS {kind})" if kind else call
        # HUGEINT in the executor
        return f"CAST({call} AS BIGINT)" if leaf.function in ("count_if", "countif") else call

    def _entries(self, leaf: MatchAggregate, entry: IntArray, match: IntArray) -> pa.Table:
        context = self.context
        matches = context.matches
        columns = {"@match": pa.array(match), "@order": pa.array(entry)}
        indices = pa.array(matches.rows[entry])
        for name in leaf.columns:
            if name == CLASSIFIER:
                names = pa.array(["", *context.names[1:]], pa.string())
                columns[name] = names.take(pa.array(matches.places[entry]))
            elif name == NUMBER:
                columns[name] = pa.array(matches.number[match])
            else:
                columns[name] = context.take(name, indices)
        return pa.table(columns)


def _size_of(values: pa.Array, chosen: IntArray) -> int:
    """Bytes of the chosen values of a type whose values differ in length; else 0."""
    if pa.types.is_list(values.type):
        lengths, each = pc.list_value_length(values), values.nbytes / max(1, len(values.flatten()))
    elif pa.types.is_string(values.type) or pa.types.is_binary(values.type):
        lengths, each = pc.binary_length(values), 1.0
    else:
        return 0
    counts = lengths.fill_null(0).to_numpy(zero_copy_only=False)
    return int(each * counts[chosen[chosen >= 0]].sum(dtype=np.int64))


def _one_row_per_match(rows: OutputRows, matches: Matches) -> bool:
    """Whether each output row stands for a whole match, so that RUNNING equals FINAL."""
    return bool(np.array_equal(rows.index, matches.length[rows.match] - 1))


def measure_columns(
    bounds: Sequence[Bound],
    context: Context,
    type_of: Callable[[RowExpression], pa.DataType],
    text: str,
) -> list[pa.Array]:
    """One array per measure; SqlError at the position of one that cannot be computed."""
    leaves = _Leaves(context, type_of)
    results: list[pa.Array | None] = []
    columns: dict[str, pa.Array] = {}
    queries = []
    places: dict[Leaf, str] = {}
    count = len(context.rows.match)
    for bound in bounds:
        if bound.leaf is not None:
            results.append(_placed(bound, text, leaves.value, bound.leaf))
            continue
        texts = {}
        for i, leaf in enumerate(bound.leaves):
            if leaf not in places:
                places[leaf] = f"@leaf{len(places)}"
                columns[places[leaf]] = _placed(bound, text, leaves.value, leaf)
            texts[i] = quote(places[leaf])
        results.append(None)
        queries.append((bound, substitute(bound.sql, texts)))
    if queries:
        columns["@row"] = pa.array(np.arange(count))
        listed = ", ".join(f"({sql}) AS c{i}" for i, (_, sql) in enumerate(queries))
        rows = pa.table(columns)
        try:
            answer = evaluate(f"SELECT {listed} FROM rows", rows=rows)
        except SqlError:
            for bound, sql in queries:  # find the failing one
                _placed(
                    bound, text, lambda one: evaluate(one, rows=rows), f"SELECT {sql} FROM rows"
                )
            raise
        computed = iter(answer.columns)
        results = [flat(next(computed)) if value is None else value for value in results]
    return [value for value in results if value is not None]


def _placed(bound: Bound, text: str, compute: Callable[[Any], Any], what: Any) -> Any:
    try:
        return compute(what)
    except SqlError as error:
        reason = re.sub(r'"?@leaf\d+"?', "...", error.reason)
        if "INT128" in reason and "INT64" in reason:
            reason = "a sum goes beyond 64 bits; sum CAST(... AS DECIMAL(38, 0)) or DOUBLE"
        raise position_error(f"a measure cannot be computed: {reason}", text, bound.at) from None

"""MATCH_RECOGNIZE as an operator over Arrow batches in time order.

The result does not depend on the division into batches.  Matches are ordered by their first event
in the stream, whatever their partition, and output as soon as no earlier one can appear; the rows
of a match are adjacent.  Memory holds the rows at which a match can still begin and the rows that
it may need: the window, a fixed number for a pattern of bounded length, else whatever open matches
span.  An ORDER BY that does not begin with the time attribute, ascending, sorts the whole input in
memory.

Names and options of the clause are validated against the standard's rules.  Types of expressions
are cached by input; DuckDB is asked over an empty table.  Durations are converted to ticks of the
time attribute.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from ...core.caches import lazy
from ...core.json_text import is_json
from ...core.suggestion import did_you_mean
from ...core.times import INT64_MAX, NS_PER_TICK, length_text
from ...errors import AttributeNotFound, InvalidArgument, SqlError
from ...schema import StreamSchema
from ..conditions.constants import Folder, Kind
from ..contract.operator import Check, Clause, MatchLimits
from ..relational.interface import evaluate
from ..sql.dialect import to_text
from ..sql.match_clause import MatchClause, MatchRecognize, match_clause, offset_of
from ..sql.pattern_tree import Absence, Exclusion, describe, position_error, variables, walk
from ..sql.sql_types import sql_type
from .any_choice import Selecting, choose
from .automaton import ACCEPT, Automaton, build_automaton
from .binding import (
    CLASSIFIER,
    NUMBER,
    PSEUDO,
    Binder,
    Bound,
    Given,
    Leaf,
    MatchAggregate,
    MatchNumber,
    Navigation,
    RowExpression,
    leaf_index,
    substitute,
)
from .conditions import ConditionPlan, number_of, plan_conditions
from .match_stream import MatchStream
from .results import Naming, check_identities, naming_of
from .scalar import column_types

if TYPE_CHECKING:
    from ..sql.match_clause import MatchClause


def pattern_variables(clause: MatchClause) -> dict[str, frozenset[str]]:
    """What each variable and subset stands for; SqlError with line and column."""
    sql = clause.sql
    matched = variables(clause.pattern)
    absent = {n for part in walk(clause.pattern) if isinstance(part, Absence) for n in part.names}
    members = {name: frozenset({name}) for name in matched}
    defined: set[str] = set()
    for definition in clause.definitions:
        name = definition.variable
        if name in defined:
            raise position_error(f"variable {name} is defined twice", sql, definition.at)
        defined.add(name)
        if name not in members and name not in absent:
            listed = ", ".join(matched) or "no variables"
            raise position_error(
                f"DEFINE names {name}, which is not in PATTERN (it has {listed})",
                sql,
                definition.at,
            )
    for part in walk(clause.pattern):
        if isinstance(part, Absence):
            for name in part.names:
                if name not in defined:
                    raise position_error(
                        f"[^{name}] needs a condition for {name} in DEFINE (without one every "
                        f"event "
                        "satisfies it)", sql, part.at
                    )  # fmt: skip
            if clause.selection not in ("next", "any"):
                raise position_error(
                    "[^ ] speaks of events that are passed over: it needs EVENT SELECTION SKIP "
                    "TILL NEXT "
                    "MATCH or SKIP TILL ANY MATCH; for contiguous matches write a variable whose "
                    "condition is negated", sql, part.at
                )  # fmt: skip
    _check_subsets(clause, members)
    _check_options(clause, members, matched)
    return members


def _check_subsets(clause: MatchClause, variables: dict[str, frozenset[str]]) -> None:
    sql = clause.sql
    primary = set(variables)
    for subset in clause.subsets:
        if subset.name in primary:
            raise position_error(
                f"{subset.name} is a pattern variable; a SUBSET needs a name of its own",
                sql,
                subset.at,
            )
        if subset.name in variables:
            raise position_error(f"SUBSET {subset.name} is defined twice", sql, subset.at)
        for name in subset.variables:
            if name not in primary:
                raise position_error(
                    f"SUBSET {subset.name} names {name}, which is not a variable of PATTERN",
                    sql,
                    subset.at,
                )
        if len(set(subset.variables)) < len(subset.variables):
            raise position_error(f"SUBSET {subset.name} names a variable twice", sql, subset.at)
        variables[subset.name] = frozenset(subset.variables)


def _check_options(
    clause: MatchClause, known: dict[str, frozenset[str]], matched: tuple[str, ...]
) -> None:
    sql = clause.sql
    skip = clause.skip
    if skip is not None and clause.selection is not None:
        raise position_error(
            "AFTER MATCH SKIP cannot be used with EVENT SELECTION: every match is a result",
            sql,
            skip.at,
        )
    if skip is not None and skip.variable and skip.variable not in known:
        listed = ", ".join(sorted(known))
        raise position_error(
            f"AFTER MATCH SKIP TO names {skip.variable}, which is no pattern variable ({listed})",
            sql,
            skip.at,
        )
    for part in walk(clause.pattern):
        if isinstance(part, Exclusion) and clause.rows == "all with unmatched":
            raise position_error(
                "{- -} cannot be used with ALL ROWS PER MATCH WITH UNMATCHED ROWS", sql, part.at
            )
    if clause.selection is not None and not matched:
        raise position_error(
            "EVENT SELECTION finds sets of events; the pattern matches none", sql, clause.at
        )


_PSEUDO_TYPES = {CLASSIFIER: pa.string(), NUMBER: pa.int64()}


class RowTypes:
    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.known: dict[RowExpression, pa.DataType] = {}

    def __call__(self, row: RowExpression) -> pa.DataType:
        if row.column in PSEUDO:
            return _PSEUDO_TYPES[row.column]
        if row.column is not None:
            return plain_type(self.schema.field(row.column).type)
        if row not in self.known:
            self.known[row] = column_types([f"({row.sql})"], self._with_pseudo(row.columns))[0]
        return self.known[row]

    def _with_pseudo(self, columns: Iterable[str]) -> pa.Schema:
        added = [pa.field(name, _PSEUDO_TYPES[name]) for name in PSEUDO & set(columns)]
        return pa.schema([*self.schema, *added])

    def leaf(self, leaf: Leaf) -> pa.DataType:
        if isinstance(leaf, Navigation):
            return self(leaf.row)
        if isinstance(leaf, MatchAggregate):
            return column_types([leaf.sql], self._with_pseudo(leaf.columns))[0]
        return leaf.type if isinstance(leaf, Given) else pa.int64()

    def bound(self, bound: Bound) -> pa.DataType:
        fields = [(f"@{i}", self.leaf(leaf)) for i, leaf in enumerate(bound.leaves)]
        return column_types([bound.sql], pa.schema([*fields, ("@row", pa.int64())]))[0]

    def bounds(self, bounds: Sequence[Bound]) -> list[pa.DataType]:
        """Types of several expressions with one query; an error does not say which is wrong."""
        types_: list[pa.DataType] = [self.plain(bound) for bound in bounds]
        untyped = [i for i, type_ in enumerate(types_) if type_ is None]
        fields, texts = [], []
        for i in untyped:
            bound, names = bounds[i], {}
            for j, leaf in enumerate(bound.leaves):
                names[j] = f'"@{i}_{j}"'
                fields.append((f"@{i}_{j}", self.leaf(leaf)))
            texts.append(substitute(bound.sql, names))
        types = column_types(texts, pa.schema([*fields, ("@row", pa.int64())]))
        for i, type_ in zip(untyped, types, strict=True):
            types_[i] = type_
        return types_

    def plain(self, bound: Bound) -> pa.DataType | None:
        """The type of a column, a number of the match or a comparison of numbers; None for what the
        executor has to say.
        """
        index = leaf_index(bound.scalar)
        if index is None:
            return self._plain_condition(bound.scalar, bound)
        leaf = bound.leaves[index]
        typed = isinstance(leaf, Given | MatchNumber) or (
            isinstance(leaf, Navigation) and leaf.row.column is not None
        )
        return self.leaf(leaf) if typed else None

    def _plain_condition(self, node: Any, bound: Bound) -> pa.DataType | None:
        """``boolean`` for numeric comparisons joined by AND, OR and NOT, else None."""
        if isinstance(node, exp.Paren | exp.Not):
            return self._plain_condition(node.this, bound)
        if isinstance(node, exp.And | exp.Or):
            left = self._plain_condition(node.this, bound)
            return left and self._plain_condition(node.expression, bound)
        if isinstance(node, exp.Between) and not node.args.get("symmetric"):
            sides = [node.this, node.args["low"], node.args["high"]]
        elif isinstance(node, exp.LT | exp.LTE | exp.GT | exp.GTE | exp.EQ | exp.NEQ):
            sides = [node.this, node.expression]
        else:
            return None
        return pa.bool_() if all(self._is_number(side, bound) for side in sides) else None

    def _is_number(self, node: Any, bound: Bound) -> bool:
        index = leaf_index(node)
        if index is None:
            return number_of(node) is not None
        leaf = bound.leaves[index]
        if not isinstance(leaf, Navigation) or leaf.row.column is None:
            return False
        type_ = self(leaf.row)
        return bool(pa.types.is_float64(type_) or pa.types.is_signed_integer(type_))


def is_key(type_: pa.DataType) -> bool:
    """Whether rows can be grouped and ordered by values of this type."""
    return not (is_json(type_) or pa.types.is_nested(type_))


def unfit_key(name: str, type_: pa.DataType) -> str:
    return (
        f"rows are not grouped or ordered by {name!r}: its values are {sql_type(type_)}; take out "
        "what is to be the key in a subquery"
    )


def plain_type(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def checked_types(types: RowTypes, bounds: Iterable[Bound], sql: str) -> list[pa.DataType]:
    """Types of expressions with one query; raises the error of the first invalid one."""
    listed = list(bounds)
    try:
        return types.bounds(listed)
    except SqlError:
        for bound in listed:
            try:
                types.bound(bound)
            except SqlError as error:
                raise position_error(error.reason, sql, bound.at) from None
        raise


def interval_ticks(
    node: Any, time: pa.Field | None, word: str, sql: str, at: int, *, up: bool = False
) -> int:
    """Ticks of an INTERVAL, or of an integer where time is one; raises SqlError.
    ``word``: the keyword before it, ``at``: its position, for errors.  ``up``: round up; otherwise
    ticks further apart than the result are further apart than the duration.
    """
    written = node

    def fail(message: str) -> SqlError:
        return position_error(message, sql, offset_of(written, at))

    def held(ticks: int) -> int:
        if ticks > INT64_MAX:
            raise fail(f"{word} has more ticks than 64 bits hold; take it out, or a shorter one")
        return ticks

    if time is None:
        raise fail(f"{word} needs a time attribute, which this input does not have")
    timed = pa.types.is_timestamp(time.type)
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Literal) and not node.is_string:
        if timed:
            raise fail(f"{word} takes an interval such as INTERVAL '10' MINUTE for a timestamp")
        if not node.name.isdigit():
            raise fail(f"{word} takes an integer from 0 on, found {node.name}")
        return held(int(node.name))
    if not isinstance(node, exp.Interval):
        raise fail(f"{word} takes an INTERVAL, or an integer when time is an integer")
    if not timed:
        raise fail(f"time attribute {time.name!r} is an integer: {word} takes an integer")
    folded = Folder(
        {}, dt.datetime.now(dt.timezone.utc),
        lambda part: evaluate(f"SELECT {to_text(part, sql)} AS c").column(0)[0],
    ).fold(node)  # fmt: skip
    if folded.kind is not Kind.INTERVAL:
        raise fail(
            f"{word} takes an interval of fixed length in whole units: weeks, days or shorter"
        )
    nanos = int(folded.value)
    if nanos < 0:
        raise fail(f"{word} takes an interval that is not negative")
    per_tick = NS_PER_TICK[time.type.unit]
    return held(int(-(-nanos // per_tick) if up else nanos // per_tick))


_SECONDS = {
    "microsecond": 1, "millisecond": 10**3, "second": 10**6, "minute": 60 * 10**6,
    "hour": 3600 * 10**6, "day": 86_400 * 10**6, "week": 7 * 86_400 * 10**6,
}  # fmt: skip


@dataclass(frozen=True)
class InputColumns:
    """An Arrow schema, its time column or None; names resolve exactly, then ignoring case."""

    arrow: pa.Schema
    time: str | None = None
    ordered: bool = True

    def resolve(self, name: str) -> str:
        names: list[str] = self.arrow.names
        if names.count(name) > 1:
            raise AttributeNotFound(
                f"the input has {names.count(name)} columns {name!r}; give them names of their own"
            )
        if name in names:
            return name
        folded = {column.lower(): column for column in names}
        matching = folded.get(name.lower())
        if matching is None:
            hint = did_you_mean(name, self.arrow.names)
            raise AttributeNotFound(
                f"no column {name!r}{hint} (there are {', '.join(self.arrow.names)})"
            )
        return matching

    def length(self, ticks: int) -> str:
        """A duration for people."""
        assert self.time is not None
        return length_text(ticks, self.arrow.field(self.time).type)


@dataclass
class CompiledMatch(Clause):
    """A clause that is ready to run.
    ``within``: in ticks, inclusive.  ``order_by``: (column, descending, nulls first).  ``history``,
    ``lookahead``: rows read before and after a match.  ``seed``: identifies the pattern and its
    input.  ``wanted``: output columns that are computed (None: all).  ``outlined``: the planner's
    outline and its key.
    """

    clause: MatchClause
    columns: InputColumns
    automaton: Automaton
    conditions: ConditionPlan
    measures: tuple[Bound, ...]
    variables: dict[str, frozenset[str]]
    definitions: dict[str, Bound]
    within: int | None
    partition_by: tuple[str, ...]
    order_by: tuple[tuple[str, bool, bool], ...]
    in_time_order: bool
    type_of: RowTypes
    history: int = 0
    lookahead: int = 0
    selecting: Selecting = field(default_factory=Selecting)
    seed: bytes = b""
    wanted: frozenset[str] | None = None
    outlined: tuple[object, object] | None = field(
        default=None, init=False, repr=False, compare=False
    )
    _schema: pa.Schema = field(default=None, repr=False)

    @property
    def output_schema(self) -> pa.Schema:
        """ONE ROW PER MATCH: partition columns, measures.
        ALL ROWS PER MATCH: partition columns, order columns, measures, the other columns.
        """
        if self._schema is None:
            self._schema = self._plain_schema() or MatchStream(self, MatchLimits()).empty().schema
        return self._schema

    def _plain_schema(self) -> pa.Schema | None:
        """The schema, if it is known without running the clause over no rows."""
        names = self.output_names
        types = [self.type_of.plain(bound) for bound in self.measures]
        if not names or any(type_ is None for type_ in types):
            return None
        known = {column.name: column.type for column in self.columns.arrow}
        known |= {m.name: t for m, t in zip(self.clause.measures, types, strict=True)}
        return pa.schema([(name, known[name]) for name in names])

    @lazy
    def output_names(self) -> list[str]:
        every = self.clause.rows != "one"
        names = dict.fromkeys(self.partition_by)
        if every:
            names |= dict.fromkeys(name for name, _, _ in self.order_by)
        names |= dict.fromkeys(measure.name for measure in self.clause.measures)
        if every:
            names |= dict.fromkeys(self.columns.arrow.names)
        return [name for name in names if self.wanted is None or name in self.wanted]

    def computing(self, columns: Sequence[str]) -> CompiledMatch:
        """The same search, of whose output only some columns are computed."""
        wanted = frozenset(columns)
        chosen = [i for i, one in enumerate(self.clause.measures) if one.name in wanted]
        return replace(
            self,
            clause=replace(self.clause, measures=tuple(self.clause.measures[i] for i in chosen)),
            measures=tuple(self.measures[i] for i in chosen),
            wanted=wanted,
            _schema=None,
        )

    @property
    def numbered(self) -> bool:
        bounds = [*self.measures, *self.definitions.values()]
        return any(isinstance(leaf, MatchNumber) for bound in bounds for leaf in bound.leaves)

    @lazy
    def naming(self) -> Naming | None:
        time, selection = str(self.columns.time), self.clause.selection
        return naming_of(self.measures, self.seed, self.partition_by, time, selection)

    @lazy
    def input_columns(self) -> list[str]:
        needed = set(self.partition_by) | {name for name, _, _ in self.order_by}
        if self.clause.rows != "one":
            needed.update(self.columns.arrow.names if self.wanted is None else self.wanted)
        if self.columns.time is not None:
            needed.add(self.columns.time)
        for bound in [*self.definitions.values(), *self.measures]:
            for leaf in bound.leaves:
                needed |= _columns_of(leaf)
        return [name for name in self.columns.arrow.names if name in needed]

    def begin(self, limits: MatchLimits, check: Check) -> MatchStream:
        return MatchStream(self, limits, check)

    def details(self) -> tuple[tuple[str, str | tuple[str, ...]], ...]:
        clause = self.clause
        details: list[tuple[str, str | tuple[str, ...]]] = [("pattern", describe(clause.pattern))]
        if self.within is not None:
            details.append(("within", f"{self.columns.length(self.within)}, inclusive"))
        strategies = {
            "contiguous": "every contiguous match", "next": "every match, skip till next match",
            "any": "every match, skip till any match",
        }  # fmt: skip
        skip = clause.skip
        after = "past last" if skip is None else " ".join([skip.mode, skip.variable]).strip()
        one = f"one at a time, then skip {after}"
        modes = {
            "maximal": "of all contiguous matches of one first row the longest",
            "incremental": "of all contiguous matches of one last row the longest",
        }
        details.append(
            ("matches", modes.get(clause.mode or "", strategies.get(clause.selection or "", one)))
        )
        if clause.selection == "any":
            chosen = choose(self.automaton, self.conditions, self.selecting.search)
            more = self.selecting.describe()
            text = chosen.describe() + (f"; {more}" if more else "")
            details.append(("selection", text))
        details.append(("output", clause.rows))
        if self.partition_by:
            details.append(("partition_by", self.partition_by))
        vectorised, matched = [], []
        for name, (local, rest) in self.conditions.summary.items():
            if local:
                vectorised.append(f"{name}: {self._readable(name, local)}")
            if rest:
                matched.append(f"{name}: {self._readable(name, rest)}")
        free = dict.fromkeys(self.automaton.names[1:])
        vectorised += [f"{name}: true" for name in free if name not in self.conditions.summary]
        details.append(("vectorised_conditions", tuple(vectorised)))
        if matched:
            details.append(("conditions_in_the_matcher", tuple(matched)))
        return tuple(details)

    def describe(self) -> str:
        lines = []
        for name, value in self.details():
            shown = name.replace("_", " ")
            if isinstance(value, str):
                lines.append(f"{shown}: {value}")
            else:
                lines += [f"{shown}:", *("  " + line for line in value)]
        return "\n".join(lines)

    def _readable(self, name: str, parts: list[exp.Expression]) -> str:
        return readable_condition(self.definitions[name], name, parts)


def readable_condition(bound: Bound, variable: str, parts: Sequence[exp.Expression]) -> str:
    text = " AND ".join(to_text(part) for part in parts)
    for i in range(len(bound.leaves) - 1, -1, -1):
        text = text.replace(f'"@{i}"', _leaf_text(bound.leaves[i], variable))
    return text


def _leaf_text(leaf: Leaf, variable: str) -> str:
    if isinstance(leaf, Navigation):
        inner = "CLASSIFIER()" if leaf.row.column == CLASSIFIER else leaf.row.sql
        chosen = leaf.variables
        where = "" if chosen is None or chosen == {variable} else "|".join(sorted(chosen)) + "."
        text = where + inner
        if leaf.first or leaf.offset:
            text = f"{'FIRST' if leaf.first else 'LAST'}({text}, {leaf.offset})"
        elif where:
            text = f"LAST({text})"
        if leaf.shift:
            text = f"{'PREV' if leaf.shift < 0 else 'NEXT'}({text}, {abs(leaf.shift)})"
        return text
    if isinstance(leaf, MatchAggregate):
        chosen = leaf.variables
        return leaf.sql if chosen is None else f"{leaf.sql} OVER {'|'.join(sorted(chosen))}"
    return "MATCH_NUMBER()"


def _columns_of(leaf: Leaf) -> set[str]:
    if isinstance(leaf, Navigation):
        return set(leaf.row.columns) - PSEUDO
    if isinstance(leaf, MatchAggregate):
        return set(leaf.columns) - PSEUDO
    return set()


def _window(clause: MatchClause, columns: InputColumns) -> int | None:
    if clause.within is None:
        return None
    time = None if columns.time is None else columns.arrow.field(columns.time)
    return interval_ticks(clause.within, time, "WITHIN", clause.sql, clause.at)


def _window_of_define(
    automaton: Automaton, definitions: Mapping[str, Bound], columns: InputColumns
) -> int | None:
    """The window that DEFINE implies where every match begins with the only event of a variable
    and ends with one of another, whose condition bounds the time between the two, such as
    ``M.time - R.time <= INTERVAL '30' MINUTE``.
    """
    begins = {edge.target for edge in automaton.edges[0]}
    inner = list(zip(automaton.names, automaton.edges, strict=True))[1:]
    ends = [(name, e) for name, edges in inner for e in edges if e.target == ACCEPT]
    again = {edge.target for _, edges in inner for edge in edges}
    lasts = {name for name, _ in ends}
    if columns.time is None or len(begins) != 1 or begins & again or len(lasts) != 1:
        return None
    first, last = automaton.names[min(begins)], min(lasts)
    alone = automaton.names.count(first) == 1 and first != last
    if not alone or last not in definitions or any(edge.absent for _, edge in ends):
        return None
    time = columns.arrow.field(columns.time)
    tick = NS_PER_TICK[time.type.unit] if pa.types.is_timestamp(time.type) else 0
    bound = definitions[last]
    windows = []
    scalar = bound.scalar.unnest()
    for node in scalar.flatten() if isinstance(scalar, exp.And) else [scalar]:
        if type(node) in (exp.LT, exp.LTE, exp.GT, exp.GTE):
            left = _times(node.this, bound, time.name, (first, last), tick)
            right = _times(node.expression, bound, time.name, (first, last), tick)
            if left is None or right is None:
                continue
            of_first, of_last, least = (a - b for a, b in zip(left, right, strict=True))
            if isinstance(node, exp.GT | exp.GTE):
                of_first, of_last, least = -of_first, -of_last, -least
            if (of_first, of_last) == (-1, 1) and least <= 0:  # last - first + least <= 0
                windows.append(-least // max(1, tick) + _ROUNDED_NS * (tick == 1))
    return min((ticks for ticks in windows if ticks <= INT64_MAX), default=None)


_ROUNDED_NS = 1_000
"""Times in nanoseconds may be subtracted in microseconds."""


def _times(
    node: Any, bound: Bound, time: str, variables: tuple[str, str], tick: int
) -> tuple[int, int, int] | None:
    """A sum of times of the first and of the last variable, and of nanoseconds or integers: how
    often it has each; None for anything else.
    """
    if isinstance(node, exp.Paren):
        return _times(node.this, bound, time, variables, tick)
    index = leaf_index(node)
    if index is not None:
        leaf = bound.leaves[index]
        if not isinstance(leaf, Navigation) or leaf.row.column != time or leaf.shift:
            return None
        of = leaf.variables
        if of == frozenset({variables[0]}) and not leaf.offset:
            return 1, 0, 0
        own = of is None or of == frozenset({variables[1]})
        return (0, 1, 0) if own and not leaf.first and not leaf.offset else None
    if isinstance(node, exp.Add | exp.Sub):
        left = _times(node.this, bound, time, variables, tick)
        right = _times(node.expression, bound, time, variables, tick)
        if left is None or right is None:
            return None
        sign = 1 if isinstance(node, exp.Add) else -1
        first, last, constant = (a + sign * b for a, b in zip(left, right, strict=True))
        return first, last, constant
    folded = Folder({}, dt.datetime.now(dt.timezone.utc)).fold(node)
    if folded.kind is not (Kind.INTERVAL if tick else Kind.EXACT):
        return None
    return (0, 0, int(folded.value)) if folded.value == int(folded.value) else None


def _time_unit(bounds: Iterable[Bound], schema: pa.Schema) -> str:
    for bound in bounds:
        for leaf in bound.leaves:
            for name in _columns_of(leaf):
                type_ = plain_type(schema.field(name).type)
                if pa.types.is_timestamp(type_) and type_.unit == "ns":
                    return "ns"
    return "us"


def compile_match(
    clause: MatchClause | MatchRecognize,
    schema: StreamSchema | InputColumns | pa.Schema,
) -> CompiledMatch:
    """Bind a clause to its input; a plain Arrow schema has no time attribute.  Raises SqlError with
    line and column, and ResourceLimit when the pattern unrolls to too many nodes.
    """
    if isinstance(clause, MatchRecognize):
        clause = match_clause(clause)
    if isinstance(schema, StreamSchema):
        columns = InputColumns(schema.arrow, schema.time)
    elif isinstance(schema, pa.Schema):
        columns = InputColumns(schema)
    else:
        columns = schema
    if not isinstance(clause, MatchClause):
        raise InvalidArgument(f"expected a MATCH_RECOGNIZE clause, found {type(clause).__name__}")
    plain = pa.schema([pa.field(f.name, plain_type(f.type), f.nullable) for f in columns.arrow])
    columns = InputColumns(plain, columns.time, columns.ordered)
    variables = pattern_variables(clause)
    types = RowTypes(plain)
    names = {**variables, **{d.variable: frozenset({d.variable}) for d in clause.definitions}}
    binder = Binder(columns, names, clause.sql)
    if columns.time is not None:
        binder.clock = plain.field(columns.time).type
    definitions = {
        d.variable: binder.bind(d.condition, d.at, define=True) for d in clause.definitions
    }
    measures = [
        binder.bind(measure.expression, measure.at, define=False) for measure in clause.measures
    ]
    for name, type_ in zip(
        definitions, checked_types(types, definitions.values(), clause.sql), strict=True
    ):
        if not (pa.types.is_boolean(type_) or pa.types.is_null(type_)):
            raise position_error(
                f"the condition of {name} must be true or false, it is of type {type_}",
                clause.sql,
                definitions[name].at,
            )
    checked_types(types, measures, clause.sql)
    automaton = build_automaton(clause.pattern)
    _check_absences(automaton, clause)
    plan = plan_conditions(
        automaton, definitions, types, _time_unit(definitions.values(), plain),
        lambda message, bound: position_error(message, clause.sql, bound.at),
        apart=clause.selection == "any",
    )  # fmt: skip
    partition = tuple(_resolve(columns, name, clause) for name in clause.partition_by)
    order = tuple(
        (_resolve(columns, key.column, clause, key.at), key.descending, key.nulls_first)
        for key in clause.order_by
    )
    for key in (*partition, *(name for name, _, _ in order)):
        type_ = plain.field(key).type
        if not is_key(type_):
            raise position_error(unfit_key(key, type_), clause.sql, clause.at)
    by_time = not order or (order[0][0] == columns.time and not order[0][1])
    in_time_order = not order or (by_time and columns.ordered)
    within = _window(clause, columns)
    if within is not None and not by_time:
        raise position_error(
            f"WITHIN needs ORDER BY {columns.time}, ascending, as the first key",
            clause.sql,
            clause.at,
        )
    if within is None and by_time:
        within = _window_of_define(automaton, definitions, columns)
    _check_output_names(clause, columns, partition)
    check_identities(measures, clause.sql, columns.time is not None and in_time_order)
    shifts = [
        leaf.shift
        for bound in [*definitions.values(), *measures]
        for leaf in bound.leaves
        if isinstance(leaf, Navigation)
    ]
    plan.lookahead = max([0, *shifts])
    return CompiledMatch(
        clause, columns, automaton, plan, tuple(measures), variables, definitions, within,
        partition, order, in_time_order, types,
        history=max([0, *(-s for s in shifts)]), lookahead=plan.lookahead,
    )  # fmt: skip


def _resolve(columns: InputColumns, name: str, clause: MatchClause, at: int | None = None) -> str:
    try:
        return columns.resolve(name)
    except AttributeNotFound as error:
        raise position_error(str(error), clause.sql, clause.at if at is None else at) from None


def _check_absences(automaton: Automaton, clause: MatchClause) -> None:
    written = [part for part in walk(clause.pattern) if isinstance(part, Absence)]
    for p, edges in enumerate(automaton.edges):
        for edge in edges:
            if not edge.absent or (p and (edge.target != ACCEPT or clause.within is not None)):
                continue
            names = {n for i, n in enumerate(automaton.absences) if edge.absent >> i & 1}
            at = [part.at for part in written if names & set(part.names)]
            if p:
                raise position_error(
                    "[^ ] at the end of a match needs WITHIN: it asks that no such event comes "
                    "until the window ends",
                    clause.sql,
                    at[-1],
                )
            raise position_error(
                "[^ ] cannot stand at the beginning of a match, because nothing says how far it "
                "would reach back; put the variable from which on it counts before it",
                clause.sql,
                at[0],
            )


def _check_output_names(
    clause: MatchClause, columns: InputColumns, partition: tuple[str, ...]
) -> None:
    taken = {name.lower() for name in (partition if clause.rows == "one" else columns.arrow.names)}
    for measure in clause.measures:
        if measure.name.lower() in taken:
            raise position_error(
                f"the result has a column {measure.name} already; name the measure differently",
                clause.sql,
                measure.at,
            )
        taken.add(measure.name.lower())
    if not taken:
        raise position_error(
            "ONE ROW PER MATCH gives the PARTITION BY columns and the measures, and there are "
            "neither; add MEASURES MATCH_NUMBER() AS match, or say ALL ROWS PER MATCH",
            clause.sql,
            clause.at,
        )

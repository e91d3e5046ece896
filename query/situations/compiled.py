"""MATCH_SITUATIONS as an operator over Arrow batches in time order.  An unsatisfiable pattern is
an error; a written relation that the rest excludes is a note.  At most ``NAMES_MAX`` names;
conditions read one event and, by PREV, earlier ones.

MEASURES are functions of a match, and expressions over the rows of its situations:

===============  ==============================================================  ===============
STARTED(A)       start of A                                                      time
ENDED(A)         its end; null when that is not known yet                        time
DURATION(A)      ENDED(A) - STARTED(A)                                           as SQL has it
COMPLETED()      the last end; null when one is not known yet                    time
DETECTED()       when the match was certain                                      time
RELATION(A, B)   the name of the relation of A to B; null when not known yet     text
MATCH_ID()       the same for every run that finds the match                     16 bytes
===============  ==============================================================  ===============

"Known" means at the instant of the match: its completion, or with EMIT ON DETECTION its detection.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlglot import exp

from ...core.caches import lazy
from ...core.identity import digests
from ...core.times import INT64_MIN
from ...errors import AttributeNotFound, SqlError
from ...store.snapshot import tail_start
from ..contract.operator import Check, EventOperator, MatchLimits, PartRun
from ..pattern.binding import (
    IDENTITIES,
    PSEUDO,
    Binder,
    Bound,
    Given,
    Leaf,
    MatchNumber,
    Navigation,
    RowExpression,
    with_members,
)
from ..pattern.compiled import (
    InputColumns,
    RowTypes,
    checked_types,
    interval_ticks,
    is_key,
    plain_type,
    unfit_key,
)
from ..pattern.conditions import RowTests, row_tests
from ..pattern.scalar import function_name
from ..sql.forms import AGGREGATES
from ..sql.pattern_tree import position_error
from ..sql.situation_clause import SituationClause, SituationDefinition
from .network import (
    ALL,
    FAR,
    LIMIT,
    NAMES,
    RELATIONS,
    SIGNS,
    Durations,
    Masks,
    Unsatisfiable,
    close,
    converse,
    dead_relations,
    describe,
    distances,
    needs_an_end,
    union,
    unrestricted,
)

if TYPE_CHECKING:
    from ...store.snapshot import Snapshot
    from ...store.tap import Spans
    from .stream import FromTick, SituationStream

IntArray = npt.NDArray[np.int64]

_FUNCTIONS = {
    "started": 1, "ended": 1, "duration": 1, "completed": 0, "detected": 0, "relation": 2,
    "match_id": 0,
}  # fmt: skip


class MeasureBinder(Binder):
    def __init__(self, columns: Any, names: tuple[str, ...], sql: str, time: pa.DataType) -> None:
        super().__init__(columns, {name: frozenset({name}) for name in names}, sql)
        self.time = time
        self.given: dict[str, tuple[Given, str]] = {}

    def bind_measure(self, node: exp.Expression, at: int) -> Bound:
        self.at = at
        bound = self.bind(node.copy().transform(self._marked), at, define=False)
        for leaf in bound.leaves:
            self._check(leaf)
        return bound

    def _check(self, leaf: Leaf) -> None:
        if isinstance(leaf, Given):
            if leaf.function in IDENTITIES and leaf not in [
                marked for marked, _ in self.given.values()
            ]:
                raise self.fail(f"{leaf.function.upper()}() belongs to MATCH_RECOGNIZE")
            return
        if isinstance(leaf, MatchNumber):
            raise self.fail("situations have no MATCH_NUMBER; MATCH_ID() tells matches apart")
        columns = leaf.row.columns if isinstance(leaf, Navigation) else leaf.columns
        if not PSEUDO.isdisjoint(columns):
            raise self.fail("CLASSIFIER and MATCH_NUMBER belong to MATCH_RECOGNIZE")
        if leaf.variables is None:
            raise self.fail("a measure says whose rows it means: A.x, avg(A.x), count(A.*)")
        if isinstance(leaf, Navigation) and leaf.shift:
            raise self.fail("PREV and NEXT of a situation are not among its rows")

    def _marked(self, node: Any) -> Any:
        name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
        if name not in _FUNCTIONS:
            return node
        names = []
        for argument in node.expressions:
            if not isinstance(argument, exp.Column) or argument.table:
                raise self.fail(f"{name.upper()} takes names of situations", node)
            names.append(self._variable(argument.this))
        if len(names) != _FUNCTIONS[name]:
            wanted = ("no argument", "one name", "two names")[_FUNCTIONS[name]]
            raise self.fail(f"{name.upper()} takes {wanted}", node)
        if name == "duration":
            ends = [self._mark(part, tuple(names), node) for part in ("ended", "started")]
            return exp.Paren(this=exp.Sub(this=ends[0], expression=ends[1]))
        return self._mark(name, tuple(names), node)

    def _mark(self, function: str, names: tuple[str, ...], node: Any) -> Any:
        types = {"relation": pa.string(), "match_id": pa.binary()}
        marked = Given(function, names, types.get(function, self.time))
        marker = f"@given{len(self.given)}"
        self.given[marker] = (marked, f"{function.upper()}({', '.join(names)})")
        column = exp.column(exp.to_identifier(marker, quoted=True))
        column.meta.update(node.meta)
        return column

    def _transform(
        self, node: Any, leaves: list[Leaf], final: bool, marked: bool
    ) -> exp.Expression:
        if isinstance(node, exp.Column) and node.name in self.given and not node.table:
            return self.place(self.given[node.name][0], leaves)
        return super()._transform(node, leaves, final, marked)

    def _column(self, part: Any) -> str:
        if part.name in self.given:
            text = self.given[part.name][1]
            raise self.fail(
                f"{text} is one value of the match, not of the rows of a situation", part
            )
        return super()._column(part)


@dataclass(frozen=True)
class MatchColumns:
    """Matches in output order.  ``lasting``: an end is unknown, later than any time."""

    starts: IntArray
    ends: IntArray
    lasting: npt.NDArray[np.bool_]
    instant: IntArray
    detected: IntArray


def match_values(
    given: Given, found: MatchColumns, places: Mapping[str, int], identity: bytes, keys: pa.Table
) -> pa.Array:
    """Values of a function of the match; ``places``: column of each name."""
    columns = [places[name] for name in given.names]
    unknown = np.asarray(found.lasting | (found.ends > found.instant[:, None]))
    if given.function == "started":
        return _times(found.starts[:, columns[0]], None, given.type)
    if given.function == "ended":
        return _times(found.ends[:, columns[0]], unknown[:, columns[0]], given.type)
    if given.function == "completed":
        return _times(found.ends.max(axis=1), np.asarray(unknown.any(axis=1)), given.type)
    if given.function == "detected":
        return _times(found.detected, None, given.type)
    if given.function == "relation":
        return _relations(found, unknown, *columns)
    return _ids(found, identity, keys)


def _times(ticks: IntArray, mask: npt.NDArray[np.bool_] | None, type_: pa.DataType) -> pa.Array:
    values = pa.array(np.ascontiguousarray(ticks), pa.int64(), mask=mask)
    if pa.types.is_timestamp(type_):
        return values.view(type_)
    return values.cast(type_)


@cache
def _by_signs() -> tuple[pa.Array, pa.Array]:
    """Relation number by its four signs as a base-3 number; and the names of relations."""
    numbers: list[int | None] = [None] * 3**4
    for number, code in enumerate(SIGNS):
        numbers[sum((sign + 1) * 3 ** (3 - i) for i, sign in enumerate(code))] = number
    return pa.array(numbers, pa.int64()), pa.array(NAMES, pa.string())


def _relations(found: MatchColumns, unknown: npt.NDArray[np.bool_], a: int, b: int) -> pa.Array:
    code = np.zeros(len(found.instant), np.int64)
    begun = np.zeros(len(code), np.bool_)
    points = [
        ((found.starts[:, x], begun), (found.ends[:, x], found.lasting[:, x])) for x in (a, b)
    ]
    for (p, p_lasts), (q, q_lasts) in product(*points):
        later = (p > q) | (p_lasts & ~q_lasts)
        sooner = (p < q) | (q_lasts & ~p_lasts)
        code = 3 * code + np.sign(later.astype(np.int64) - sooner) + 1
    lasting = unknown[:, a] & unknown[:, b]
    relations, names = _by_signs()
    return names.take(relations.take(pa.array(code, mask=lasting)))


def _ids(found: MatchColumns, identity: bytes, keys: pa.Table) -> pa.Array:
    starts = map(pa.array, np.ascontiguousarray(found.starts.T))
    return digests(identity, [*keys.columns, *starts])


def row_names(bounds: tuple[Bound, ...]) -> frozenset[str]:
    names: set[str] = set()
    for bound in bounds:
        for leaf in bound.leaves:
            names |= getattr(leaf, "variables", None) or frozenset()
    return frozenset(names)


def row_columns(bounds: tuple[Bound, ...]) -> frozenset[str]:
    columns: set[str] = set()
    for bound in bounds:
        for leaf in bound.leaves:
            row: RowExpression | None = getattr(leaf, "row", None)
            columns |= set(row.columns if row is not None else getattr(leaf, "columns", ()))
    return frozenset(columns)


NAMES_MAX = 16


@dataclass(frozen=True)
class CompiledSituations(EventOperator):
    """A clause that is ready to run.
    ``tests``: one bit per name, in the order of DEFINE.  ``history``: rows that conditions read
    before a row.  ``allowed``, ``implied``: relations as written, and as implied.  ``gap``: in
    ticks.  ``distances``: see ``network.distances``.  ``notes``: warnings.
    """

    clause: SituationClause
    columns: InputColumns
    names: tuple[str, ...]
    conditions: tuple[Bound, ...]
    tests: RowTests
    history: int
    allowed: Masks
    implied: Masks
    durations: Durations
    gap: int | None
    distances: npt.NDArray[np.int64]
    partition_by: tuple[str, ...]
    measures: tuple[Bound, ...]
    outputs: tuple[str, ...]
    types: RowTypes
    notes: tuple[str, ...] = ()
    order: tuple[str, ...] | None = None
    identity: bytes = field(default=b"", repr=False)

    @property
    def time(self) -> str:
        assert self.columns.time is not None
        return self.columns.time

    @property
    def early(self) -> bool:
        return self.durations.early

    @lazy
    def output_schema(self) -> pa.Schema:
        from .stream import measured_types

        fields = [self.columns.arrow.field(name) for name in self.partition_by]
        fields += map(pa.field, self.outputs, measured_types(self))
        return pa.schema(fields)

    @property
    def condition_columns(self) -> frozenset[str]:
        columns = {name for bound in self.conditions for name in _columns_of(bound)}
        return frozenset(columns)

    @property
    def measured_columns(self) -> frozenset[str]:
        return row_columns(self.measures)

    @property
    def measured_names(self) -> frozenset[str]:
        return row_names(self.measures)

    @property
    def input_columns(self) -> list[str]:
        needed = {self.time, *self.partition_by, *self.condition_columns, *self.measured_columns}
        return [name for name in self.columns.arrow.names if name in needed]

    @property
    def ends_count(self) -> tuple[bool, ...]:
        """Per name, whether its end can complete a match."""
        count = len(self.names)
        if not self.early:
            return tuple(
                not any(
                    self.distances[count + q, count + p] <= (0 if q < p else -1)
                    for q in range(count)
                    if q != p
                )
                for p in range(count)
            )
        return tuple(
            any(needs_an_end(self.allowed[p][q]) for q in range(count) if q != p)
            for p in range(count)
        )

    def point_of(self, output: str) -> int | None:
        measure = self.measures[self.outputs.index(output)]
        leaf = measure.leaves[0] if len(measure.leaves) == 1 else None
        if not isinstance(leaf, Given) or not isinstance(measure.scalar, exp.Column):
            return None
        count = len(self.names)
        if leaf.function == ("detected" if self.early else "completed"):
            return 2 * count
        if leaf.function not in ("started", "ended"):
            return None
        return self.names.index(leaf.names[0]) + count * (leaf.function == "ended")

    def reach_of(self, name: int) -> int | None:
        """Ticks after its start in which a situation can join a new match; None: unbounded."""
        reach = int(self.distances[name, 2 * len(self.names)])
        return None if reach >= LIMIT // 2 else reach

    @property
    def reach(self) -> int | None:
        reach = [self.reach_of(i) for i in range(len(self.names))]
        bounds = [ticks for ticks in reach if ticks is not None]
        return max(bounds) if len(bounds) == len(reach) else None

    def begin(self, limits: MatchLimits, check: Check) -> SituationStream:
        from .stream import SituationStream

        return SituationStream(self, limits, check)

    def begin_at(self, run: PartRun, low: int) -> FromTick:
        from .stream import FromTick

        begin = INT64_MIN if self.reach is None else max(INT64_MIN, low - self.reach)
        return FromTick(run, self, begin, low)

    def lowest(self, snapshot: Snapshot, begin: int) -> int | None:
        if not self.partition_by:
            assert snapshot.time_range is not None
            return tail_start(snapshot, snapshot.time_range[0], begin - 1, self.history + 1)
        if self.gap is not None and not self.history:
            return max(INT64_MIN, begin - self.gap)
        return None

    def changed(self, snapshot: Snapshot, spans: Spans, watermark: int) -> Spans:
        from .stream import changed_instants

        return changed_instants(self, snapshot, spans, watermark)


def _columns_of(bound: Bound) -> list[str]:
    return [
        name for leaf in bound.leaves if isinstance(leaf, Navigation) for name in leaf.row.columns
    ]


# ------------------------------------------------------------------------------- binding


def compile_situations(
    clause: SituationClause, columns: InputColumns, stream: str = ""
) -> CompiledSituations:
    """Bind a clause to its input, named ``stream``; SqlError with line and column."""
    if columns.time is None:
        raise _error(clause, "situations need ORDER BY a timestamp or an integer: their time")
    plain = pa.schema([pa.field(f.name, plain_type(f.type), f.nullable) for f in columns.arrow])
    columns = InputColumns(plain, columns.time, columns.ordered)
    types = RowTypes(plain)
    _check_order(clause, columns)
    definitions = _definitions(clause)
    names = tuple(definition.name for definition in definitions)
    partition = tuple(_resolve(columns, name, clause) for name in clause.partition_by)
    for key in partition:
        type_ = plain.field(key).type
        if not is_key(type_):
            raise _error(clause, unfit_key(key, type_))
    conditions = [_condition(d, columns, names, clause) for d in definitions]
    for name, bound, type_ in zip(
        names, conditions, checked_types(types, conditions, clause.sql), strict=True
    ):
        if not (pa.types.is_boolean(type_) or pa.types.is_null(type_)):
            message = f"the condition of {name} must be true or false, it is of type {type_}"
            raise _error(clause, message, bound.at)
    tests = row_tests(
        dict(zip(names, conditions, strict=True)), types,
        lambda name, bound: _error(clause, _LOCAL.format(name), bound.at),
    )  # fmt: skip
    shifts = [leaf.shift for c in conditions for leaf in c.leaves if isinstance(leaf, Navigation)]
    durations = _durations(clause, definitions, columns)
    allowed = _allowed(clause, names)
    implied, reach, notes = _closed(clause, names, allowed, durations)
    gap = None if clause.gap is None else _ticks(clause.gap, "GAP", clause, columns)
    outputs, measures = _measures(clause, columns, types, names, partition)
    texts = [
        *names, *(c.sql for c in conditions), *(repr(c.leaves) for c in conditions),
    ]  # fmt: skip
    identity = repr(
        (stream, partition, texts, durations.least, durations.most, durations.window, gap, allowed)
    )
    return CompiledSituations(
        clause, columns, names, tuple(conditions), tests, max([0, *(-s for s in shifts)]), allowed,
        implied, durations, gap, reach, partition, measures, outputs, types, notes,
        identity=hashlib.blake2b(identity.encode(), digest_size=16).digest(),
    )  # fmt: skip


_LOCAL = (
    "the condition of {} sees one event and, by PREV, those before it: no aggregate, FIRST, LAST, "
    "NEXT or other situation"
)


def _error(clause: SituationClause, message: str, at: int | None = None) -> SqlError:
    return position_error(message, clause.sql, clause.at if at is None else at)


def _resolve(
    columns: InputColumns, name: str, clause: SituationClause, at: int | None = None
) -> str:
    try:
        return columns.resolve(name)
    except AttributeNotFound as error:
        raise _error(clause, str(error), at) from None


def _check_order(clause: SituationClause, columns: InputColumns) -> None:
    for i, key in enumerate(clause.order_by):
        name = _resolve(columns, key.column, clause, key.at)
        if i or name != columns.time or key.descending:
            raise _error(
                clause, f"situations are found in the order of time: ORDER BY {columns.time}, "
                "ascending, and nothing else", key.at,
            )  # fmt: skip


def _definitions(clause: SituationClause) -> list[SituationDefinition]:
    names_before: set[str] = set()
    used = dict(clause.names)
    for definition in clause.definitions:
        if definition.name in names_before:
            raise _error(clause, f"{definition.name} is defined twice", definition.at)
        names_before.add(definition.name)
        if definition.name not in used:
            raise _error(
                clause, f"DEFINE names {definition.name}, which is not in PATTERN (it has "
                f"{', '.join(used)})", definition.at,
            )  # fmt: skip
    for name, at in used.items():
        if name not in names_before:
            raise _error(clause, f"{name} has no condition in DEFINE", at)
    if len(used) > NAMES_MAX:
        raise _error(clause, f"a pattern has up to {NAMES_MAX} situations, found {len(used)}")
    return list(clause.definitions)


def _condition(
    definition: SituationDefinition,
    columns: InputColumns,
    names: tuple[str, ...],
    clause: SituationClause,
) -> Bound:
    own = definition.name

    def refuse(message: str, node: Any) -> SqlError:
        starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
        return _error(clause, message, min(starts, default=definition.at))

    folded = {name.upper() for name in names}
    condition = with_members(definition.condition.copy(), columns, folded, refuse)
    for part in condition.walk():
        at = part.meta.get("start", definition.at)
        qualifier = part.args.get("table") if isinstance(part, exp.Column) else None
        if qualifier is not None and qualifier.name.upper() != own.upper():
            other = "another situation" if qualifier.name.upper() in names else "no situation"
            raise _error(
                clause, f"the condition of {own} sees events only; {qualifier.name} is {other}", at
            )
        if isinstance(part, exp.Func) and function_name(part) in AGGREGATES - {"first", "last"}:
            raise _error(clause, _LOCAL.format(own), at)
        if isinstance(part, exp.Anonymous) and part.name.lower() == "next":
            raise _error(clause, _LOCAL.format(own), at)
    binder = Binder(columns, {own: frozenset({own})}, clause.sql)
    return binder.bind(condition, definition.at, define=True)


def _ticks(
    node: Any, word: str, clause: SituationClause, columns: InputColumns, up: bool = False
) -> int:
    assert columns.time is not None
    time = columns.arrow.field(columns.time)
    return interval_ticks(node, time, word, clause.sql, clause.at, up=up)


def _durations(
    clause: SituationClause, definitions: list[SituationDefinition], columns: InputColumns
) -> Durations:
    least, most = [], []
    for definition in definitions:
        low, high = definition.least, definition.most
        least.append(0 if low is None else _ticks(low, "LASTING", clause, columns, up=True))
        most.append(FAR if high is None else _ticks(high, "LASTING", clause, columns))
        if least[-1] > most[-1]:
            raise _error(
                clause, f"{definition.name} lasts at least longer than it lasts at most: the lower "
                "bound comes first", definition.at,
            )  # fmt: skip
    window = FAR if clause.within is None else _ticks(clause.within, "WITHIN", clause, columns)
    return Durations(tuple(least), tuple(most), window, clause.early)


def _allowed(clause: SituationClause, names: tuple[str, ...]) -> Masks:
    place = {name: i for i, name in enumerate(names)}
    allowed = unrestricted(len(names))
    for constraint in clause.constraints:
        i, j = place[constraint.left], place[constraint.right]
        mask = union(RELATIONS[word] for word in constraint.relations)
        both = allowed[i][j] & mask
        if not both:
            raise _error(
                clause, f"{constraint.left} cannot be both {describe(allowed[i][j])} and "
                f"{describe(mask)} {constraint.right}", constraint.at,
            )  # fmt: skip
        allowed[i][j], allowed[j][i] = both, converse(both)
    if len(names) > 1:
        _check_connected(clause, names, allowed)
    return tuple(map(tuple, allowed))


def _check_connected(
    clause: SituationClause, names: tuple[str, ...], masks: list[list[int]]
) -> None:
    related = {name for c in clause.constraints for name in (c.left, c.right)}
    for name, at in clause.names:
        if name not in related:
            raise _error(clause, f"{name} is in no constraint", at)
    reached = {0}
    while True:
        more = {
            j for i in reached for j in range(len(names)) if masks[i][j] != ALL and j not in reached
        }
        if not more:
            break
        reached |= more
    if len(reached) < len(names) and clause.within is None:
        apart = [name for i, name in enumerate(names) if i not in reached]
        raise _error(
            clause, f"no constraint connects {', '.join(apart)} with {names[0]}; say WITHIN, so "
            "that not everything matches everything",
        )  # fmt: skip


def _closed(
    clause: SituationClause, names: tuple[str, ...], allowed: Masks, durations: Durations
) -> tuple[Masks, npt.NDArray[np.int64], tuple[str, ...]]:
    try:
        implied = close(allowed)
        reach = distances(implied, durations)
    except Unsatisfiable:
        raise _error(
            clause, "nothing can satisfy this pattern: its relations"
            + ("" if clause.within is None else ", WITHIN") + " and durations exclude each other; "
            "these are Allen's relations, and what some papers print as 'finishes' is FINISHED BY",
            clause.constraints[0].at if clause.constraints else None,
        ) from None  # fmt: skip
    place = {name: i for i, name in enumerate(names)}
    pairs = dict.fromkeys((place[c.left], place[c.right]) for c in clause.constraints)
    notes = []
    for i, j, dead in dead_relations(allowed, implied, durations, list(pairs)):
        note = f"{names[i]} {describe(dead)} {names[j]} can never be: the rest excludes it"
        if dead & (RELATIONS["FINISHES"] | RELATIONS["FINISHED BY"]):
            note += "; what some papers print as 'finishes' is FINISHED BY here"
        notes.append(note)
    return implied, reach, tuple(notes)


def _measures(
    clause: SituationClause,
    columns: InputColumns,
    types: RowTypes,
    names: tuple[str, ...],
    partition: tuple[str, ...],
) -> tuple[tuple[str, ...], tuple[Bound, ...]]:
    assert columns.time is not None
    binder = MeasureBinder(columns, names, clause.sql, columns.arrow.field(columns.time).type)
    bounds, outputs = [], []
    for measure in clause.measures:
        bounds.append(binder.bind_measure(measure.expression, measure.at))
        outputs.append((measure.name, measure.at))
    for name in names if not clause.measures else ():
        for function in ("STARTED", "ENDED"):
            argument = exp.column(exp.to_identifier(name, quoted=True))
            call = exp.Anonymous(this=function, expressions=[argument])
            bounds.append(binder.bind_measure(call, clause.at))
            outputs.append((f"{name}_{function}".lower(), clause.at))
    checked_types(types, bounds, clause.sql)
    taken = {name.lower() for name in partition}
    for name, at in outputs:
        if name.lower() in taken:
            message = f"the result has a column {name} already; name the measure differently"
            raise _error(clause, message, at)
        taken.add(name.lower())
    return tuple(name for name, _ in outputs), tuple(bounds)

"""Terms: conditions on one event that indexes can look up, implied by the event's condition.

An index on two attributes can look up an equality of one with a range of the other.  ``category =
'ARSON' AND beat >= '1100'`` is one range of an index on ``(category, beat)``; of ``IN``, on either
attribute, each value is a range.  Sound, see ``chronicle.indexes.index_key``.  Without a condition
on the second attribute, a pair is used only if the first has no index.

A comparison with a rounded sum or product is expressed in a derived value that is rounded, too.  An
index on ``x - PREV(x)`` holds a rounded difference, ``x > PREV(x) + 0.1`` compares with a rounded
sum; likewise ``x / PREV(x)`` and ``x > PREV(x) * 1.1``.  With ``p`` the other value, ``c`` the
constant, and ``~`` for "rounded to the nearest double"::

    x >  ~(p + c)    then  x > p + c,  for x itself is a double and rounding keeps order
                     so    x - p > c,  and  ~(x - p) >= c
    x >= ~(p + c)    the sum may have been rounded down to x:  x - p >= c - |p + c| / 2^53
                     so    ~(x - p) >= c - |c| / 2^16     while |x| and |p| are at most 2^35 |c|
    x >= ~(p * c)    so    ~(x / p) >= c (1 - 2^-48)      while p and c are positive, not tiny

Sound to the last bit, given the side conditions (``Bounded``), which the planner checks against
minimum and maximum.  Constants may be off by some units in the last place.

An index on a derived value can look up conditions such as ``price < PREV(price) - 5``.  A DEFINE
condition is rewritten in terms of the index keys (``chronicle.indexes.index_key``) and compiled as
usual, so AND, OR, NOT, BETWEEN and IN keep their meaning.  With ``d = x - PREV(x)``::

    PREV(x) - x > 5                 d < -5
    x < PREV(x)                     d < 0
    ABS(x - PREV(x)) > 5            d > 5 OR d < -5
    x >= PREV(x) + 5                d >= 5              slightly lower for doubles
    x NOT BETWEEN PREV(x) - 5 AND PREV(x) + 5           d < -5 OR d > 5
    x > A.x, in PATTERN (A B ...)   d > 0               A is the event before

Guarantee: sound.  Where the condition is true, the value is in the range or unknown.  For doubles
``x - y`` is rounded but never to or across zero, so its sign is that of the comparison; an
expression that stands in the condition itself is rounded as in the index.  Integer terms may move
from side to side; overflows are unknown.  A double constant may move with the range widened by the
rounding error (above), given the column bounds in ``DerivedPrune.needs``.  Limits: a key that looks
back needs the clause's PARTITION BY and ORDER BY time alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ...core.caches import lazy
from ...core.times import NS_PER_TICK
from ...indexes.derived_values import Node, Number, Operation, Value
from ...indexes.index_key import DerivedKey, PairKey, index_key
from ...schema import Storage, StreamSchema
from ...store.prune import AllOf, AnyOf, IsNull, Never, NotNull, Prune, Range
from ..conditions.constants import Folder, Kind
from ..conditions.predicates import PredicateCompiler, describe
from ..pattern.binding import CLASSIFIER, Bound, Navigation, leaf_index
from ..pattern.compiled import CompiledMatch
from ..sql.pattern_tree import Concatenation, Variable

VALUES_MAX = 64
"""Most values of IN that are looked up one by one."""


@dataclass(frozen=True)
class PairTerm:
    """A condition as ranges of index words; it replaces the conjuncts ``instead_of``."""

    atoms: tuple[Range | IsNull, ...]
    text: str
    instead_of: tuple[Prune, ...]


def pair_keys(names: frozenset[str], schema: StreamSchema) -> tuple[PairKey, ...]:
    keys = []
    for name in sorted(names):
        key = None if name in schema else index_key(name, schema)
        if isinstance(key, PairKey):
            keys.append(key)
    return tuple(keys)


def pair_terms(
    items: Sequence[Prune], indexed: frozenset[str], schema: StreamSchema
) -> list[PairTerm]:
    """The terms of conjuncts whose ranges over one attribute are merged."""
    terms_of_pairs = []
    for key in pair_keys(indexed, schema):
        first, second = key.pair[0].name, key.pair[1].name
        equal = next((item for item in items if _values(item, first)), None)
        if equal is None:
            continue
        values = _values(equal, first)
        then = next((i for i in items if _few(len(values), _choices(i, second))), None)
        if then is None and first in indexed:
            continue
        choices = [None] if then is None else _choices(then, second)
        atoms: list[Range | IsNull] = [*_ranges(key, values, choices)]
        if then is None:
            atoms.append(IsNull(key.name))  # the second attribute may be null
        text = " and ".join(_described(item, schema) for item in (equal, then) if item)
        if atoms:
            replaced = (equal,) if then is None else (equal, then)
            terms_of_pairs.append(PairTerm(tuple(dict.fromkeys(atoms)), text, replaced))
    return terms_of_pairs


def equalities(atoms: Sequence[Prune], key: PairKey) -> list[Range]:
    """The words of a choice of equalities on the first attribute; empty if it is none."""
    return _ranges(key, _values(AnyOf(tuple(atoms)), key.pair[0].name), [None])


def _ranges(key: PairKey, values: Sequence[Range], choices: Sequence[Range | None]) -> list[Range]:
    try:
        ranges = [key.range(value, then) for value in values for then in choices]
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError):
        return []  # constant of another type
    return [range_ for range_ in ranges if range_ is not None]


def _described(item: Prune, schema: StreamSchema) -> str:
    text = describe(item, schema) or ""
    return f"({text})" if isinstance(item, AnyOf) and len(item.items) > 1 else text


def _few(values: int, choices: Sequence[Range]) -> bool:
    return 0 < values * len(choices) <= VALUES_MAX


def _choices(item: Prune, column: str) -> list[Range]:
    """The ranges that a conjunct on a column is a choice of; empty if it is none."""
    choices = item.items if isinstance(item, AnyOf) else (item,)
    ranges = [one for one in choices if isinstance(one, Range) and one.column == column]
    return ranges if len(ranges) == len(choices) else []


def _values(item: Prune, column: str) -> list[Range]:
    """The equalities that a conjunct on a column is a choice of; empty if it is none."""
    ranges = _choices(item, column)
    equal = all(
        one.low is not None and one.low == one.high and not one.low_open and not one.high_open
        for one in ranges
    )
    return ranges if equal and len(ranges) <= VALUES_MAX else []


_CONSTANT = 2.0**-48
"""Relative error of a constant and of one rounding, with a margin."""
_SLACK = 2.0**-16
_REACH = 2.0**35
_TINY, _HUGE = 2.0**-400, 2.0**400
_LEAST = 2.0**-500

_BELOW, _ABOVE = ("<", "<="), (">", ">=")


@dataclass(frozen=True)
class Bounded:
    """The condition that all numbers of a column lie in [low, high], except NaN and infinity."""

    column: str
    low: float
    high: float


_Found = tuple["float | None", "float | None", tuple[Bounded, ...]]


def sum_range(how: str, constant: float, columns: tuple[str, ...]) -> _Found | None:
    """Inclusive range of ``~(x - p)`` where ``x how ~(p + constant)``, and its needs, or None."""
    size = abs(constant)
    needs: tuple[Bounded, ...] = ()
    slack = _CONSTANT * size
    if size and not _TINY <= size <= _HUGE:
        return None
    if size and how not in ("<", ">"):
        slack = _SLACK * size
        reach = _REACH * size
        needs = tuple(Bounded(name, -reach, reach) for name in dict.fromkeys(columns))
    return _bounds(how, constant - slack, constant + slack, needs)


def product_range(how: str, constant: float, columns: tuple[str, ...]) -> _Found | None:
    """Range of ``~(x / p)`` where ``x how ~(p * constant)``, and its needs, or None."""
    if not _TINY <= constant <= _HUGE:
        return None
    needs = tuple(Bounded(name, _LEAST, float("inf")) for name in dict.fromkeys(columns))
    slack = _CONSTANT * constant
    return _bounds(how, constant - slack, constant + slack, needs)


def _bounds(how: str, low: float, high: float, needs: tuple[Bounded, ...]) -> _Found | None:
    if how in _ABOVE:
        return low, None, needs
    if how in _BELOW:
        return None, high, needs
    return (low, high, needs) if how == "=" else None


Atom = Range | IsNull | NotNull


@dataclass(frozen=True)
class Term:
    """A disjunction of atoms; all of their attributes must be indexed.  ``back``: how many earlier
    events decide whether an event satisfies it; ``inside``: these belong to the match, so they lie
    at most so many ticks before; ``text``: for EXPLAIN, if the atoms are internal; without all
    ``needs`` the term implies nothing.
    """

    atoms: tuple[Atom, ...]
    back: int = 0
    inside: int | None = None
    text: str = ""
    needs: tuple[Bounded, ...] = ()

    @lazy
    def attributes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(atom.column for atom in self.atoms))

    @lazy
    def _hashed(self) -> int:
        return hash(self.atoms)

    def __hash__(self) -> int:  # planning looks terms up many times
        return self._hashed


def index_terms(
    prune: Prune | None, schema: StreamSchema, indexed: frozenset[str] = frozenset()
) -> tuple[Term, ...]:
    """Conjuncts that indexes could look up; pair terms replace their conjuncts."""
    items = merged(prune)
    terms = []
    for pair in pair_terms(items, indexed, schema):
        terms.append(Term(pair.atoms, text=pair.text))
        items = [item for item in items if item not in pair.instead_of]
    for item in items:
        if isinstance(item, AnyOf):
            atoms = [_atom(choice, schema) for choice in item.items]
            if atoms and None not in atoms:
                terms.append(Term(tuple(atom for atom in atoms if atom is not None)))
        elif (atom := _atom(item, schema)) is not None:
            terms.append(Term((atom,)))
    return tuple(terms)


def _atom(prune: Prune, schema: StreamSchema) -> Atom | None:
    if isinstance(prune, AllOf):
        atoms = (_atom(item, schema) for item in merged(prune))
        return next((atom for atom in atoms if atom is not None), None)
    if not isinstance(prune, Range | IsNull | NotNull) or prune.column == schema.time:
        return None
    if prune.column in schema and schema.attribute(prune.column).storage is Storage.DECIMAL:
        return None
    return prune


def merged(prune: Prune | None) -> list[Prune]:
    """The conjuncts, with the ranges on each column intersected."""
    if prune is None:
        return []
    if not isinstance(prune, AllOf):
        return [prune]
    ranges: dict[str, Range] = {}
    others: list[Prune] = []
    for item in prune.items:
        if isinstance(item, AllOf):
            others.extend(merged(item))
        elif isinstance(item, Range):
            range_ = ranges.get(item.column)
            ranges[item.column] = item if range_ is None else _both(range_, item)
        else:
            others.append(item)
    rest = [o for o in others if not (isinstance(o, NotNull) and o.column in ranges)]
    return [*ranges.values(), *rest]


def _both(a: Range, b: Range) -> Range:
    low, low_open = a.low, a.low_open
    if b.low is not None and (low is None or b.low > low or (b.low == low and b.low_open)):  # type: ignore[operator]
        low, low_open = b.low, b.low_open
    high, high_open = a.high, a.high_open
    if b.high is not None and (high is None or b.high < high or (b.high == high and b.high_open)):  # type: ignore[operator]
        high, high_open = b.high, b.high_open
    return Range(a.column, low, high, low_open, high_open)


_FLIPPED: dict[type, Any] = {
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.EQ: exp.EQ,
    exp.NEQ: exp.NEQ,
}
_NEGATED: dict[type, Any] = {
    exp.LT: exp.GTE,
    exp.LTE: exp.GT,
    exp.GT: exp.LTE,
    exp.GTE: exp.LT,
    exp.EQ: exp.NEQ,
    exp.NEQ: exp.EQ,
}
_TEXTS: dict[type, str] = {exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.EQ: "="}
_SYMBOLS: dict[type, str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/"}
_SLACK_NS = 1_000
"""Times in nanoseconds may be subtracted in microseconds."""


@dataclass(frozen=True)
class DerivedPrune:
    """What a condition implies for a derived value, provided that all ``needs`` hold."""

    key: DerivedKey
    prune: Prune
    needs: tuple[Bounded, ...]


def derived_keys(
    names: frozenset[str], schema: StreamSchema, compiled: CompiledMatch
) -> tuple[DerivedKey, ...]:
    """The derived indexes that apply to the events of a clause."""
    keys = []
    for name in sorted(names):
        key = None if name in schema else index_key(name, schema)
        if not isinstance(key, DerivedKey):
            continue
        same = key.partition == tuple(sorted(set(compiled.partition_by)))
        if not key.back or (same and len(compiled.order_by) <= 1):
            keys.append(key)
    return tuple(keys)


def derived_prunes(
    bound: Bound,
    variable: str,
    keys: tuple[DerivedKey, ...],
    schema: StreamSchema,
    folder: Folder,
    compiled: CompiledMatch,
) -> list[DerivedPrune]:
    """For each usable key, the condition with the key in place of its expression."""
    steps = _steps_before(compiled, variable)
    prunes = []
    for key in keys:
        writer = _Writer(bound, variable, key, folder, steps, schema)
        scalar = writer.written(bound.scalar.copy())
        if not writer.used:
            continue
        fields = [*schema.arrow, pa.field(key.name, key.attribute.type)]
        wider = StreamSchema(pa.schema(fields), schema.time)
        prune = PredicateCompiler(wider, folder, writer.column_of).compile(scalar).prune
        if prune is not None:
            prunes.append(DerivedPrune(key, prune, tuple(dict.fromkeys(writer.needs))))
    return prunes


def _steps_before(compiled: CompiledMatch, variable: str) -> dict[str, int]:
    """How many events before ``variable`` those of other variables lie, if fixed."""
    pattern = compiled.clause.pattern
    if compiled.clause.selection not in (None, "contiguous"):
        return {}
    if not isinstance(pattern, Concatenation):
        return {}
    names = [part.name if isinstance(part, Variable) else None for part in pattern.parts]
    if names.count(variable) != 1 or compiled.automaton.names.count(variable) != 1:
        return {}
    here, steps = names.index(variable), dict[str, int]()
    for place in range(here - 1, -1, -1):
        name = names[place]
        if name is None:
            break
        if compiled.automaton.names.count(name) == 1:
            steps[name] = here - place
    return steps


def with_unknown(prune: Prune, name: str) -> Prune:
    """The same condition, but satisfied by unknown values of ``name``."""
    if isinstance(prune, AllOf):
        return AllOf(tuple(with_unknown(item, name) for item in prune.items))
    if isinstance(prune, AnyOf):
        items: list[Prune] = []
        for item in (with_unknown(item, name) for item in prune.items):
            items += item.items if isinstance(item, AnyOf) else (item,)
        return AnyOf(tuple(dict.fromkeys(items)))
    if isinstance(prune, Range | NotNull) and prune.column == name:
        return AnyOf((prune, IsNull(name)))
    return IsNull(name) if isinstance(prune, Never) else prune


@dataclass
class _Linear:
    values: dict[Value, int]
    constant: Any  # int, or Decimal of times


class _Writer:
    def __init__(
        self,
        bound: Bound,
        variable: str,
        key: DerivedKey,
        folder: Folder,
        steps: dict[str, int],
        schema: StreamSchema,
    ) -> None:
        self.used = False
        self.needs: list[Bounded] = []
        self._exactly = False  # inside NOT: a widened range would be unsound
        self._bound, self._variable, self._key = bound, variable, key
        self._folder, self._steps, self._schema = folder, steps, schema
        self._whole = key.attribute.storage is Storage.SIGNED
        self._sum = self._key_sum(key.tree) if self._whole else None
        unit = schema.attribute(key.columns[0]).type
        self._tick_ns = NS_PER_TICK[unit.unit] if pa.types.is_timestamp(unit) else 0
        self._slack = _SLACK_NS // self._tick_ns if 0 < self._tick_ns < _SLACK_NS else 0

    def column_of(self, node: Any) -> str | None:
        if node.meta.get("derived"):
            return self._key.name
        value = self._value(node)
        return value.column if value is not None and not value.back else None

    def written(self, node: Any) -> Any:
        if isinstance(node, exp.Not):
            inner = _inside(node.this)
            if type(inner) in _NEGATED:  # NULL satisfies neither form
                turned = _NEGATED[type(inner)](this=inner.this, expression=inner.expression)
                return self._comparison(turned) or node
            if isinstance(inner, exp.Between) and not self._is_key(inner.this):
                outside = self._between(inner, (exp.LT, exp.GT), exp.Or)
                return node if outside is None else outside
            exactly, self._exactly = self._exactly, True
            node.set("this", self.written(node.this))
            self._exactly = exactly
        elif isinstance(node, exp.Paren):
            node.set("this", self.written(node.this))
        elif isinstance(node, exp.And | exp.Or):
            node.set("this", self.written(node.this))
            node.set("expression", self.written(node.expression))
        elif type(node) in _FLIPPED:
            return self._comparison(node) or node
        elif isinstance(node, exp.Between | exp.In) and self._is_key(node.this):
            if self._tick_ns:
                return node  # intervals are not comparable with index numbers
            node.set("this", self._named())
        elif isinstance(node, exp.Between):
            return self._between(node, (exp.GTE, exp.LTE), exp.And) or node
        return node

    def _between(self, node: Any, kinds: tuple[Any, Any], joined: Any) -> Any:
        """Two comparisons, or None; for integers both must be replaced, as types must agree."""
        if node.args.get("symmetric"):
            return None
        parts: list[Any] = [
            kind(this=node.this.copy(), expression=node.args[side].copy())
            for kind, side in zip(kinds, ("low", "high"), strict=True)
        ]
        before = self.used, list(self.needs)
        comparisons = [self._comparison(part) for part in parts]
        if None in comparisons and (self._whole or comparisons == [None, None]):
            self.used, self.needs = before
            return None
        low, high = (one or part for one, part in zip(comparisons, parts, strict=True))
        return joined(this=low, expression=high)

    def _named(self) -> Any:
        self.used = True
        column = exp.column(exp.to_identifier(self._key.name, quoted=True))
        column.meta["derived"] = True
        return column

    def _comparison(self, node: Any) -> Any:
        how, sides = type(node), (node.this, node.expression)
        if self._whole:
            return None if self._exactly and self._slack else self._whole_comparison(how, *sides)
        for (own, other), turned in ((sides, how), (sides[::-1], _FLIPPED[how])):
            if self._folder.fold(other).kind in (Kind.EXACT, Kind.FLOAT):
                range_ = self._with_constant(turned, own, other)
                if range_ is not None:
                    return range_
        tree = self._key.tree
        if isinstance(tree, Operation) and tree.symbol == "-" and len(tree.operands) == 2:
            zero = exp.Literal.number(0)
            for (own, other), turned in ((sides, how), (sides[::-1], _FLIPPED[how])):
                if self._is(own, tree.operands[0]) and self._is(other, tree.operands[1]):
                    return turned(this=self._named(), expression=zero)
        for (own, other), turned in ((sides, how), (sides[::-1], _FLIPPED[how])):
            range_ = None if self._exactly else self._rounded(turned, own, other)
            if range_ is not None:
                return range_
        return None

    # -- doubles ------------------------------------------------------------------------------

    def _rounded(self, how: Any, own: Any, other: Any) -> Any:
        """``x how PREV(x) + 5`` and ``x how PREV(x) * 1.1``; see the proof at the top."""
        tree, mine = self._key.tree, self._value(_inside(own))
        read = self._value_and_constant(_inside(other))
        if mine is None or read is None or how not in _TEXTS or not isinstance(tree, Operation):
            return None
        theirs, symbol, constant = read
        columns = (mine.column, theirs.column)
        if any(self._schema.attribute(name).type != pa.float64() for name in columns):
            return None
        text = _TEXTS[how]
        if symbol == "+" and tree.symbol == "-":
            if tree.operands == (theirs, mine):  # -d is x - p, to the last bit
                range_ = sum_range(_TEXTS[_FLIPPED[how]], -constant, columns)
            else:
                range_ = sum_range(text, constant, columns)
        elif symbol == "*" and tree.symbol == "/" and constant:
            if tree.operands == (theirs, mine):
                range_ = product_range(_TEXTS[_FLIPPED[how]], 1.0 / constant, columns)
            else:
                range_ = product_range(text, constant, columns)
        else:
            return None
        if range_ is None or set(tree.operands) != {mine, theirs} or len(tree.operands) != 2:
            return None
        low, high, needs = range_
        self.needs += needs
        parts = [
            kind(this=self._named(), expression=_number(bound))
            for kind, bound in ((exp.GTE, low), (exp.LTE, high))
            if bound is not None
        ]
        return parts[0] if len(parts) == 1 else exp.And(this=parts[0], expression=parts[1])

    def _value_and_constant(self, node: Any) -> tuple[Value, str, float] | None:
        if type(node) not in (exp.Add, exp.Sub, exp.Mul):
            value = self._value(node)
            return None if value is None else (value, "*", 1.0)
        sides = [(node.this, node.expression)]
        if not isinstance(node, exp.Sub):
            sides.append((node.expression, node.this))
        for one, two in sides:
            value, number = self._value(_inside(one)), self._folder.fold(two)
            if value is not None and number.kind in (Kind.EXACT, Kind.FLOAT):
                constant = _double(number.value)
                if isinstance(node, exp.Mul):
                    return None if constant is None else (value, "*", constant)
                if constant is not None:
                    return value, "+", -constant if isinstance(node, exp.Sub) else constant
        return None

    def _with_constant(self, how: Any, own: Any, constant: Any) -> Any:
        own = _inside(own)
        opposite = exp.Neg(this=exp.Paren(this=constant.copy()))
        if self._is_key(own):
            return how(this=self._named(), expression=constant.copy())
        if self._is_opposite(own):
            return _FLIPPED[how](this=self._named(), expression=opposite)
        inner = _of_abs(own)
        if inner is not None and (self._is_key(inner) or self._is_opposite(inner)):
            above = how(this=self._named(), expression=constant.copy())
            below = _FLIPPED[how](this=self._named(), expression=opposite)
            both = exp.And if how in (exp.LT, exp.LTE, exp.NEQ) else exp.Or
            return both(this=above, expression=below)
        return None

    # -- integers and times -------------------------------------------------------------------

    def _whole_comparison(self, how: Any, left: Any, right: Any) -> Any:
        for own, other, turned in ((left, right, how), (right, left, _FLIPPED[how])):
            constant = self._constant(other)
            inside = None if constant is None else _of_abs(_inside(own))
            if inside is not None:
                inner = self._sums(inside)
                if inner is not None and self._sign(inner) and not inner.constant:
                    above, below = self._against(turned, constant), None
                    below = self._against(_FLIPPED[turned], -constant)
                    both = exp.And if turned in (exp.LT, exp.LTE, exp.NEQ) else exp.Or
                    return both(this=above, expression=below)
            if constant is not None and self._is_key(own) and not self._tick_ns:
                return self._against(turned, constant)
        one, two = self._sums(left), self._sums(right)
        if one is None or two is None or self._sum is None:
            return None
        values = dict(one.values)
        for value, times in two.values.items():
            values[value] = values.get(value, 0) - times
        difference = _Linear({v: n for v, n in values.items() if n}, one.constant - two.constant)
        sign = self._sign(difference)
        if not sign:
            return None
        # found.values is sign * (d - constant of the key):  sign * d + rest  how  0
        rest = difference.constant - sign * self._sum.constant
        return self._against(how if sign > 0 else _FLIPPED[how], -sign * rest)

    def _sign(self, found: _Linear) -> int:
        """1 if the values are those of the key, -1 if they are negated, else 0."""
        if self._sum is None or not self._sum.values:
            return 0
        if found.values == self._sum.values:
            return 1
        return -1 if found.values == {v: -n for v, n in self._sum.values.items()} else 0

    def _against(self, how: Any, constant: Any) -> Any:
        if self._slack:
            if how in (exp.EQ, exp.NEQ):
                return exp.true()
            constant += self._slack if how in (exp.LT, exp.LTE) else -self._slack
        text = format(constant, "f") if isinstance(constant, Decimal) else str(constant)
        literal: Any = exp.Literal.number(text.removeprefix("-"))
        if text.startswith("-"):
            literal = exp.Neg(this=literal)
        return how(this=self._named(), expression=literal)

    def _constant(self, node: Any) -> Any:
        constant = self._folder.fold(node)
        if self._tick_ns:
            if constant.kind is not Kind.INTERVAL:
                return None
            return Decimal(constant.value) / self._tick_ns
        if constant.kind is not Kind.EXACT:
            return None
        whole = int(constant.value)
        return whole if whole == constant.value else None

    def _sums(self, node: Any) -> _Linear | None:
        node = _inside(node)
        constant = self._constant(node)
        if constant is not None:
            return _Linear({}, constant)
        value = self._value(node)
        if value is not None:
            type_ = self._schema.attribute(value.column).type
            fits = pa.types.is_timestamp(type_) if self._tick_ns else pa.types.is_integer(type_)
            return _Linear({value: 1}, 0) if fits else None
        if isinstance(node, exp.Neg):
            inner = self._sums(node.this)
            return None if inner is None else _scaled(inner, -1)
        if not isinstance(node, exp.Add | exp.Sub):
            return None
        one, two = self._sums(node.this), self._sums(node.expression)
        if one is None or two is None:
            return None
        return _added(one, two if isinstance(node, exp.Add) else _scaled(two, -1))

    def _key_sum(self, tree: Node) -> _Linear | None:
        if isinstance(tree, Value):
            return _Linear({tree: 1}, 0)
        if isinstance(tree, Number):
            return _Linear({}, tree.value)
        if tree.symbol not in ("+", "-"):
            return None
        parts = [self._key_sum(operand) for operand in tree.operands]
        if len(parts) == 1:
            return None if parts[0] is None else _scaled(parts[0], -1)
        if parts[0] is None or parts[1] is None:
            return None
        return _added(parts[0], parts[1] if tree.symbol == "+" else _scaled(parts[1], -1))

    # -- the same expression ------------------------------------------------------------------

    def _is_key(self, node: Any) -> bool:
        return self._is(node, self._key.tree)

    def _is_opposite(self, node: Any) -> bool:
        tree, node = self._key.tree, _inside(node)
        if not isinstance(tree, Operation) or tree.symbol != "-" or len(tree.operands) != 2:
            return False
        return (
            isinstance(node, exp.Sub)
            and self._is(node.this, tree.operands[1])
            and self._is(node.expression, tree.operands[0])
        )

    def _is(self, node: Any, tree: Node) -> bool:
        node = _inside(node)
        if isinstance(tree, Value):
            return self._value(node) == tree
        if isinstance(tree, Number):
            constant = self._folder.fold(node)
            return constant.kind in (Kind.EXACT, Kind.FLOAT) and constant.value == tree.value
        if tree.symbol == "ABS":
            inner = _of_abs(node)
            return inner is not None and self._is(inner, tree.operands[0])
        if len(tree.operands) == 1:
            return isinstance(node, exp.Neg) and self._is(node.this, tree.operands[0])
        return (
            _SYMBOLS.get(type(node)) == tree.symbol
            and self._is(node.this, tree.operands[0])
            and self._is(node.expression, tree.operands[1])
        )

    def _value(self, node: Any) -> Value | None:
        index = leaf_index(node)
        leaf = None if index is None else self._bound.leaves[index]
        if not isinstance(leaf, Navigation) or leaf.row.column is None or leaf.shift > 0:
            return None
        if leaf.row.column == CLASSIFIER or leaf.row.column not in self._schema or leaf.offset:
            return None
        back = -leaf.shift
        if leaf.variables is not None and self._variable not in leaf.variables:
            steps = [self._steps.get(name) for name in leaf.variables]
            if len(steps) != 1 or steps[0] is None:
                return None
            back += steps[0]
        elif leaf.first:
            return None
        return Value(leaf.row.column, back)


def _double(value: Any) -> float | None:
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _number(value: float) -> Any:
    literal: Any = exp.Literal.number(repr(abs(value)))
    return exp.Neg(this=literal) if value < 0 else literal


def _of_abs(node: Any) -> Any:
    """The argument of ABS, or None; a statement parses it as an anonymous function."""
    if isinstance(node, exp.Abs):
        return node.this
    named = isinstance(node, exp.Anonymous) and node.name.upper() == "ABS"
    return node.expressions[0] if named and len(node.expressions) == 1 else None


def _inside(node: Any) -> Any:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _scaled(found: _Linear, times: int) -> _Linear:
    return _Linear({v: times * n for v, n in found.values.items()}, times * found.constant)


def _added(one: _Linear, two: _Linear) -> _Linear:
    values = dict(one.values)
    for value, times in two.values.items():
        values[value] = values.get(value, 0) + times
    return _Linear({v: n for v, n in values.items() if n}, one.constant + two.constant)

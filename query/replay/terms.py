"""Terms: conditions on one event that indexes can look up, implied by the event's condition.

An index on two attributes can look up an equality of one with a range of the other.  ``category =
'ARSON' AND beat >= '1100'`` is one range of an index on ``(category, beat)``; of ``IN``, on either
attribute, each value is a range.  Sound, see ``chronicle.indexes.index_key``.  Without a condition
on the second attribute, a pair is used only if the first has no index.

An index on a derived value can look up conditions such as ``price < PREV(price) - 5``.  A DEFINE
condition is rewritten in terms of the index keys (``chronicle.indexes.index_key``) and compiled as
usual, so AND, OR, NOT, BETWEEN and IN keep their meaning.  With ``d = x - PREV(x)``::

    PREV(x) - x > 5                 d < -5
    x < PREV(x)                     d < 0
    ABS(x - PREV(x)) > 5            d > 5 OR d < -5
    x >= PREV(x) + 5                d >= 5              of integers and times
    x > A.x, in PATTERN (A B ...)   d > 0               A is the event before

Guarantee: sound.  Where the condition is true, the value is in the range or unknown.  For doubles
``x - y`` is rounded but never to or across zero, so its sign is that of the comparison; an
expression that stands in the condition itself is rounded as in the index.  Of integers and times a
constant may move from side to side; overflows are unknown.  Limits: a key that looks back needs the
clause's PARTITION BY and ORDER BY time alone.
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


def pair_keys(names: frozenset[str], schema: StreamSchema) -> tuple[PairKey, ...]:
    keys = []
    for name in sorted(names):
        key = None if name in schema else index_key(name, schema)
        if isinstance(key, PairKey):
            keys.append(key)
    return tuple(keys)


def pair_terms(
    items: Sequence[Prune], indexed: frozenset[str], schema: StreamSchema
) -> list[tuple[Term, tuple[Prune, ...]]]:
    """Terms of conjuncts whose ranges over one attribute are merged, and what each replaces."""
    terms_of_pairs: list[tuple[Term, tuple[Prune, ...]]] = []
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
            terms_of_pairs.append((Term(tuple(dict.fromkeys(atoms)), text=text), replaced))
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


Atom = Range | IsNull | NotNull


@dataclass(frozen=True)
class Term:
    """A disjunction of atoms; all of their attributes must be indexed.  ``back``: how many earlier
    events decide whether an event satisfies it; ``inside``: these belong to the match, so they lie
    at most so many ticks before; ``text``: for EXPLAIN, if the atoms are internal.
    """

    atoms: tuple[Atom, ...]
    back: int = 0
    inside: int | None = None
    text: str = ""

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
    for term, replaced in pair_terms(items, indexed, schema):
        terms.append(term)
        items = [item for item in items if item not in replaced]
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
_SYMBOLS: dict[type, str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/"}
_SLACK_NS = 1_000
"""Times in nanoseconds may be subtracted in microseconds."""


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
) -> list[tuple[DerivedKey, Prune]]:
    """For each usable key, what the condition implies for it."""
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
            prunes.append((key, prune))
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


class _Writer:
    """Writes a condition with a derived key in place of its expression; ``used``: it occurred."""

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
        self._exactly = False  # inside NOT: a widened range would be unsound
        self._bound, self._variable, self._key = bound, variable, key
        self._folder, self._steps, self._schema = folder, steps, schema
        self._whole = key.attribute.storage is Storage.SIGNED
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
        elif isinstance(node, exp.Between | exp.In) and self._is(node.this, self._key.tree):
            # intervals are not comparable with index numbers
            node.set("this", node.this if self._tick_ns else self._named())
        return node

    def _named(self) -> Any:
        self.used = True
        column = exp.column(exp.to_identifier(self._key.name, quoted=True))
        column.meta["derived"] = True
        return column

    def _comparison(self, node: Any) -> Any:
        if self._exactly and self._slack:
            return None
        how, one, two = type(node), _inside(node.this), _inside(node.expression)
        for own, other, turned in ((one, two, how), (two, one, _FLIPPED[how])):
            written = self._against(turned, own, other)
            if written is not None:
                return written
        return None

    def _against(self, how: Any, own: Any, other: Any) -> Any:
        """``own how other`` as a range of the key, or None."""
        sign, constant = self._sign(own), self._constant(other)
        if constant is not None:
            if sign:
                return self._range(how, constant, sign)
            inner = _of_abs(own)
            if inner is None or not self._sign(inner):
                return None
            both = exp.And if how in (exp.LT, exp.LTE, exp.NEQ) else exp.Or
            return both(
                this=self._range(how, constant, 1), expression=self._range(how, constant, -1)
            )
        tree = self._key.tree
        if not isinstance(tree, Operation) or tree.symbol != "-" or len(tree.operands) != 2:
            return None
        for sign, (mine, theirs) in ((1, tree.operands), (-1, tree.operands[::-1])):
            shift = self._shift(other, theirs) if self._is(own, mine) else None
            if shift is not None:
                return self._range(how, shift, sign)
        return None

    def _sign(self, node: Any) -> int:
        """1 if a node is the key's expression, -1 if it is ``b - a`` of a key ``a - b``, else 0."""
        tree, node = self._key.tree, _inside(node)
        if self._is(node, tree):
            return 1
        if not isinstance(tree, Operation) or tree.symbol != "-" or len(tree.operands) != 2:
            return 0
        turned = isinstance(node, exp.Sub) and self._is(node.this, tree.operands[1])
        return -1 if turned and self._is(node.expression, tree.operands[0]) else 0

    def _shift(self, node: Any, tree: Node) -> Any:
        """``c`` of ``tree + c``: 0 without it, None for another node or a sum that is rounded."""
        if self._is(node, tree):
            return 0
        if not self._whole or not isinstance(node, exp.Add | exp.Sub):
            return None
        value, more = node.this, node.expression
        if isinstance(node, exp.Add) and not self._is(value, tree):
            value, more = more, value
        constant = self._constant(more)
        if constant is None or not self._is(value, tree):
            return None
        return -constant if isinstance(node, exp.Sub) else constant

    def _range(self, how: Any, constant: Any, sign: int) -> Any:
        """``sign * key how constant``."""
        if sign < 0:
            how, constant = _FLIPPED[how], -constant
        if self._slack:
            if how in (exp.EQ, exp.NEQ):
                return exp.true()
            constant += self._slack if how in (exp.LT, exp.LTE) else -self._slack
        size = abs(constant)
        text = format(size, "f") if isinstance(size, Decimal) else repr(size)
        literal: Any = exp.Literal.number(text)
        return how(
            this=self._named(), expression=exp.Neg(this=literal) if constant < 0 else literal
        )

    def _constant(self, node: Any) -> Any:
        constant = self._folder.fold(node)
        value = constant.value
        if self._tick_ns:
            return Decimal(value) / self._tick_ns if constant.kind is Kind.INTERVAL else None
        if self._whole:
            return int(value) if constant.kind is Kind.EXACT and value == int(value) else None
        known = constant.kind is Kind.EXACT or (
            constant.kind is Kind.FLOAT and math.isfinite(value)
        )
        return value if known else None

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

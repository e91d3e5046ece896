"""The key of an index, named by its text: an attribute, a pair of attributes, or a derived value::

    altitude                                  the attribute
    category, beat                            events of one category, ordered by beat
    price - PREV(price) PARTITION BY symbol   difference to the symbol's previous event

A *pair* is one uint64 per event: ``HASH_BITS`` bits of a hash of the first value, then the upper
bits of the second value's key (integers as doubles, so that small ones keep all bits).  An equality
on the first and a range over the second are one range of words, without false negatives.

A *derived* value is an ``int64`` for integers and times, else a double; null without a number, for
a reason in ``Gaps``.  The event of PREV is searched in the same segment, with PARTITION BY at most
``LOOK_BACK`` events before the run, so a run stays valid across compactions.  No false negatives if
UNKNOWN and ABSENT count as hits and no late event precedes an event in question (the planner
ensures both).

Limits: columns, PREV of a column, whole numbers (any with doubles), ``+ - * /`` and ABS; one
operation on 32-bit floats, which a query would round otherwise.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..core.ownership import LOADING
from ..core.sql_text import quoted_name
from ..errors import InvalidArgument, UnsupportedType
from ..schema import Attribute, Storage, StreamSchema
from ..store.columns import prefix_words
from ..store.leaf_map import LeafMap
from ..store.prune import Range
from .derived_values import (
    ABSENT,
    KNOWN,
    UNKNOWN,
    ColumnReader,
    Node,
    Number,
    Operation,
    Value,
    as_array,
    evaluated,
    last_events,
    previous,
)
from .keys import encode, indexable, key_range
from .runs import RUN_EVENTS, Gaps

HASH_BITS = 20
_REST = np.uint64(64 - HASH_BITS)
LOOK_BACK = RUN_EVENTS
"""Events before a run among which those of its partitions are searched."""
_BACK_MAX = 1_000
_TEXT_MAX = 400
_SYMBOLS = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/"}
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PARTITION = re.compile(r"\s+PARTITION\s+BY\s+", re.IGNORECASE)
_NOTHING = Number(0)
_DOUBLE = Attribute("", pa.float64(), True, Storage.FLOAT)
_KINDS = "an attribute, two attributes (a, b), or an expression such as price - PREV(price)"


@dataclass(frozen=True)
class KeyValues:
    """Key values of some events, None when all are null; ``gaps`` are of derived values."""

    column: pa.ChunkedArray | None
    gaps: Gaps | None = None


@dataclass(frozen=True)
class IndexKey:
    """An attribute as a key: canonical ``name``, ``columns`` read, and the number of preceding
    events (of the ``partition``) that a value depends on.
    """

    name: str
    attribute: Attribute
    columns: tuple[str, ...]
    back: int = 0
    partition: tuple[str, ...] = ()

    def renamed(self, now: Mapping[str, str]) -> str:
        return now[self.name]

    def column(self, leaves: LeafMap, first: int, end: int, lowest: int | None = None) -> KeyValues:
        return self.values(leaves.column, first, end, lowest)

    def values(
        self, read: ColumnReader, first: int, end: int, lowest: int | None = None
    ) -> KeyValues:
        """Values at positions [first, end); partitions look back to ``lowest``."""
        column = read(self.name, first, end)
        return KeyValues(pa.chunked_array([column]) if isinstance(column, pa.Array) else column)


@dataclass(frozen=True)
class PairKey(IndexKey):
    pair: tuple[Attribute, Attribute] = (_DOUBLE, _DOUBLE)

    def renamed(self, now: Mapping[str, str]) -> str:
        return _listing([now[attribute.name] for attribute in self.pair])

    def values(
        self, read: ColumnReader, first: int, end: int, lowest: int | None = None
    ) -> KeyValues:
        parts = [read(attribute.name, first, end) for attribute in self.pair]
        if parts[0] is None or parts[1] is None:
            return KeyValues(None)
        one, other = as_array(parts[0]), as_array(parts[1])
        valid = pc.and_(one.is_valid(), other.is_valid())
        words = np.zeros(end - first, np.uint64)
        both = np.asarray(valid.to_numpy(zero_copy_only=False), np.bool_)
        if both.any():
            if not both.all():
                one, other = one.filter(valid), other.filter(valid)
            words[both] = (_hashes(one, self.pair[0]) << _REST) | (
                _rest(other, self.pair[1]) >> np.uint64(HASH_BITS)
            )
        return KeyValues(pa.chunked_array([pa.array(words, mask=~both)]))

    def range(self, equal: Range, then: Range | None) -> Range | None:
        """The words of an equality and a range (default: all); None if that is empty."""
        one, other = self.pair
        value = pa.array([equal.low], _exact_type(one))
        base = int(_hashes(value, one)[0]) << int(_REST)
        low, high = 0, (1 << int(_REST)) - 1
        if then is not None:
            span = key_range(then, other, None)
            if span is None:
                return None
            low, high = (_rest_of(bound, other) >> HASH_BITS for bound in span)
        return Range(self.name, base | low, base | high)


@dataclass(frozen=True)
class DerivedKey(IndexKey):
    """A number computed from an event and those before it."""

    tree: Node = _NOTHING

    def renamed(self, now: Mapping[str, str]) -> str:
        return _whole_text(_renamed(self.tree, now), [now[name] for name in self.partition])

    @property
    def strict(self) -> bool:
        """Whether a comparison decided by the value is NULL whenever an operand is.  Not for ``x -
        PREV(x) + y - y``, which also serves ``x > PREV(x)``, whatever ``y`` is.
        """
        values = _values(self.tree)
        return len(set(values)) == len(values)

    def values(
        self, read: ColumnReader, first: int, end: int, lowest: int | None = None
    ) -> KeyValues:
        start = seen = first if self.partition else max(0, first - self.back)
        columns: dict[str, pa.Array] = {}
        for name in self.columns:
            column = read(name, start, end)
            if column is None:
                return KeyValues(None, Gaps.of([], [], start))
            columns[name] = as_array(column)
        before = None
        if self.partition:
            seen = max(0, first - LOOK_BACK) if lowest is None else lowest
            columns = self._with_earlier(read, columns, seen, first)
            before = previous([columns[name] for name in self.partition])
        count = len(columns[self.columns[0]])
        whole = self.attribute.storage is Storage.SIGNED
        with np.errstate(all="ignore"):  # overflows become UNKNOWN
            values, states = evaluated(self.tree, columns, before, whole, count)
        if not whole:
            states[(states == KNOWN) & ~np.isfinite(values)] = UNKNOWN
        values, states = values[count - (end - first) :], states[count - (end - first) :]
        if not self.strict:
            states[states != KNOWN] = UNKNOWN
        array = pa.array(values, mask=states != KNOWN).cast(self.attribute.type, safe=False)
        gaps = Gaps.of(np.flatnonzero(states == UNKNOWN), np.flatnonzero(states == ABSENT), seen)
        return KeyValues(pa.chunked_array([array]), gaps)

    def _with_earlier(
        self, read: ColumnReader, columns: dict[str, pa.Array], lowest: int, first: int
    ) -> dict[str, pa.Array]:
        if lowest >= first:
            return columns
        keys = [columns[name] for name in self.partition]
        earlier = last_events(read, self.columns, self.partition, keys, self.back, lowest, first)
        return {name: pa.concat_arrays([earlier[name], columns[name]]) for name in columns}


@lru_cache(maxsize=1024)
def index_key(text: str, schema: StreamSchema) -> IndexKey:
    """Parse the key of an index, as users write it or as ``IndexKey.name``."""
    if text in schema:
        return _plain(schema, text)
    if len(text) > _TEXT_MAX:
        raise InvalidArgument(
            f"what an index is on takes up to {_TEXT_MAX} characters, found {len(text)}"
        )
    body, *partition = _PARTITION.split(text, maxsplit=1)
    node = _parsed(body)
    if partition:
        keys = [_column(part, schema) for part in _listed(_parsed(partition[0]))]
        return _derived(node, schema, tuple(dict.fromkeys(keys)), text)
    listed = _listed(node)
    if len(listed) == 2:
        return _pair(_column(listed[0], schema), _column(listed[1], schema), schema)
    if len(listed) > 2:
        raise InvalidArgument(f"an index is on one value or on two attributes, found {text!r}")
    if type(node).__name__ in ("Column", "Identifier"):
        return _plain(schema, schema.resolve(node.name))
    return _derived(node, schema, (), text)


# ------------------------------------------------------------------------------------ reading


def _parsed(text: str) -> Any:
    with LOADING:
        import sqlglot

    try:
        tree: Any = sqlglot.parse_one(f"({text.strip()})")
    except (sqlglot.errors.SqlglotError, RecursionError):
        raise InvalidArgument(f"an index is on {_KINDS}, found {text!r}") from None
    while type(tree).__name__ == "Paren":
        tree = tree.this
    return tree


def _listed(node: Any) -> list[Any]:
    return list(node.expressions) if type(node).__name__ == "Tuple" else [node]


def _column(node: Any, schema: StreamSchema) -> str:
    if type(node).__name__ != "Column" or node.table:
        raise InvalidArgument(f"expected an attribute, found {node.sql()}; an index is on {_KINDS}")
    return schema.resolve(node.name)


def _plain(schema: StreamSchema, name: str) -> IndexKey:
    attribute = schema.attribute(name)
    indexable(attribute)
    return IndexKey(attribute.name, attribute, (attribute.name,))


def _pair(first: str, second: str, schema: StreamSchema) -> IndexKey:
    if first == second:
        raise InvalidArgument(f"an index on two attributes needs two, found {first!r} twice")
    one, other = schema.attribute(first), schema.attribute(second)
    indexable(one)
    indexable(other)
    name = _listing([first, second])
    word = Attribute(name, pa.uint64(), True, Storage.UNSIGNED)
    return PairKey(name, word, (first, second), pair=(one, other))


def _derived(node: Any, schema: StreamSchema, partition: tuple[str, ...], text: str) -> IndexKey:
    tree = _tree(node, schema)
    values = _values(tree)
    if not values or isinstance(tree, Value):
        raise InvalidArgument(f"an index is on {_KINDS}, found {text!r}")
    back = max(value.back for value in values)
    if partition and not back:
        raise InvalidArgument(
            f"PARTITION BY says whose event PREV means; there is no PREV in {text!r}"
        )
    for name in partition:
        if schema.attribute(name).storage is Storage.FLOAT:
            raise UnsupportedType(f"PARTITION BY {name} of an index is a floating-point number")
    type_ = _type(tree, [schema.attribute(value.column) for value in values], text)
    name = _whole_text(tree, partition)
    columns = tuple(dict.fromkeys([*(value.column for value in values), *partition]))
    storage = Storage.SIGNED if pa.types.is_int64(type_) else Storage.FLOAT
    return DerivedKey(
        name, Attribute(name, type_, True, storage), columns, back, tuple(sorted(partition)),
        tree=tree,
    )  # fmt: skip


def _tree(node: Any, schema: StreamSchema) -> Node:
    kind = type(node).__name__
    if kind == "Paren":
        return _tree(node.this, schema)
    if kind == "Column":
        return Value(_column(node, schema))
    if kind in _SYMBOLS:
        return Operation(_SYMBOLS[kind], (_tree(node.this, schema), _tree(node.expression, schema)))
    if kind == "Neg":
        inner = _tree(node.this, schema)
        if isinstance(inner, Number):
            return Number(-inner.value)
        return Operation("-", (inner,))
    if kind == "Abs":
        return Operation("ABS", (_tree(node.this, schema),))
    if kind == "Literal" and not node.is_string:
        text = str(node.this)
        try:
            finite = math.isfinite(float(text))
        except ValueError:  # 1.5e
            finite = False
        if not finite:
            raise InvalidArgument(f"a number of an index is finite, found {text[:50]}")
        return Number(int(text) if text.isdecimal() else float(text))
    if kind == "Anonymous" and node.name.upper() == "PREV" and 1 <= len(node.expressions) <= 2:
        column, *steps = node.expressions
        back = int(steps[0].this) if steps and str(steps[0].this).isdigit() else 1
        if (steps and str(steps[0].this) != str(back)) or not 1 <= back <= _BACK_MAX:
            raise InvalidArgument(f"PREV of an index goes 1 to {_BACK_MAX} events back")
        return Value(_column(column, schema), back)
    raise InvalidArgument(
        f"an index cannot be on {node.sql()}: expressions have columns, PREV of a column, numbers, "
        "+, -, *, / and ABS"
    )


def _nodes(tree: Node) -> Iterator[Node]:
    yield tree
    if isinstance(tree, Operation):
        for operand in tree.operands:
            yield from _nodes(operand)


def _values(tree: Node) -> list[Value]:
    return [node for node in _nodes(tree) if isinstance(node, Value)]


def _type(tree: Node, attributes: list[Attribute], text: str) -> pa.DataType:
    """Type of the values; raises where they could differ from a query's."""
    types = {attribute.type for attribute in attributes}
    operations = [node.symbol for node in _nodes(tree) if isinstance(node, Operation)]
    numbers = [node.value for node in _nodes(tree) if isinstance(node, Number)]
    if all(pa.types.is_timestamp(type_) for type_ in types):
        if len(types) == 1 and set(operations) <= {"-", "ABS"} and len(attributes) == 2:
            return pa.int64()
        raise UnsupportedType(f"of times an index has the difference of two, found {text!r}")
    if not all(
        pa.types.is_integer(t) or pa.types.is_float32(t) or t == pa.float64() for t in types
    ):
        names = ", ".join(f"{a.name} {a.type}" for a in attributes)
        raise UnsupportedType(f"an index computes with numbers or with times, found {names}")
    whole = all(pa.types.is_integer(type_) for type_ in types)
    fractions = [number for number in numbers if isinstance(number, float)]
    if whole and "/" not in operations and not fractions:
        if any(abs(number) >= 2**62 for number in numbers):
            raise InvalidArgument(f"whole numbers of an index are below 2^62, found {text!r}")
        return pa.int64()
    single = any(pa.types.is_float32(type_) for type_ in types)
    if single and (len(operations) > 1 or len(types) > 1):
        raise UnsupportedType(f"of 32-bit floats an index computes one operation, found {text!r}")
    if whole and fractions:
        raise UnsupportedType(f"an index computes with whole numbers or doubles, found {text!r}")
    return pa.float32() if single else pa.float64()


def _whole_text(tree: Node, partition: Sequence[str]) -> str:
    return f"{_text(tree)} PARTITION BY {_listing(partition)}" if partition else _text(tree)


def _renamed(tree: Node, now: Mapping[str, str]) -> Node:
    if isinstance(tree, Operation):
        return Operation(tree.symbol, tuple(_renamed(operand, now) for operand in tree.operands))
    return Value(now[tree.column], tree.back) if isinstance(tree, Value) else tree


def _listing(names: Sequence[str]) -> str:
    return ", ".join(_quoted(name) for name in names)


def _quoted(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else quoted_name(name)


def _text(tree: Node) -> str:
    if isinstance(tree, Value):
        name = _quoted(tree.column)
        if not tree.back:
            return name
        return f"PREV({name})" if tree.back == 1 else f"PREV({name}, {tree.back})"
    if isinstance(tree, Number):
        return str(tree.value)
    parts = [_text(operand) for operand in tree.operands]
    if tree.symbol == "ABS":
        return f"ABS({parts[0]})"
    inner = [
        f"({part})" if isinstance(operand, Operation) and operand.symbol != "ABS" else part
        for part, operand in zip(parts, tree.operands, strict=True)
    ]
    return f"-{inner[0]}" if len(inner) == 1 else f"{inner[0]} {tree.symbol} {inner[1]}"


# ---------------------------------------------------------------------------------- computing


def _exact_type(attribute: Attribute) -> pa.DataType:
    return pa.int64() if attribute.storage is Storage.SIGNED else attribute.type


def _hashes(array: pa.Array, attribute: Attribute) -> npt.NDArray[np.uint64]:
    """Process-independent hashes of ``HASH_BITS`` bits; equal for equal values."""
    if attribute.storage in (Storage.STRING, Storage.BINARY):
        encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
        values = encoded.dictionary.cast(pa.large_binary()).to_pylist()
        hashed = np.array([zlib.crc32(value) for value in values], np.uint64)
        words = hashed[encoded.indices.to_numpy(zero_copy_only=False)] << np.uint64(32)
    else:
        words, _ = encode(array, attribute)
    mixed: npt.NDArray[np.uint64] = words ^ (words >> np.uint64(32))
    mixed *= np.uint64(0x9E3779B97F4A7C15)
    mixed >>= _REST
    return mixed


def _rest(array: pa.Array, attribute: Attribute) -> npt.NDArray[np.uint64]:
    """Words whose upper bits sort as the values do."""
    if attribute.storage in (Storage.STRING, Storage.BINARY):
        encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
        first = prefix_words(encoded.dictionary)
        words: npt.NDArray[np.uint64] = first[encoded.indices.to_numpy(zero_copy_only=False)]
        return words
    keys, _ = encode(array, attribute)
    if attribute.storage is Storage.FLOAT:
        return keys
    if attribute.storage is Storage.SIGNED:
        numbers = (keys ^ np.uint64(1 << 63)).view(np.int64).astype(np.float64)
    else:
        numbers = keys.astype(np.float64)
    return encode(pa.array(numbers), _DOUBLE)[0]


def _rest_of(key: int, attribute: Attribute) -> int:
    """``_rest`` of a value given by a key of ``key_range``."""
    if attribute.storage in (Storage.FLOAT, Storage.STRING, Storage.BINARY):
        return key
    number = key - 2**63 if attribute.storage is Storage.SIGNED else key
    return int(encode(pa.array([float(number)]), _DOUBLE)[0][0])

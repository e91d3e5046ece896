"""Conditions that an index on two attributes can look up: an equality, and a range of the other.

``category = 'ARSON' AND beat >= '1100'`` is one range of an index on ``(category, beat)``; of
``IN``, on either attribute, each value is a range.  Sound, see ``chronicle.indexes.index_key``.
Without a condition on the second attribute, a pair is used only if the first has no index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from ...indexes.index_key import PairKey, index_key
from ...schema import StreamSchema
from ...store.prune import AnyOf, IsNull, Prune, Range
from ..conditions.ranges import describe

__all__ = ["PairTerm", "equalities", "pair_keys", "pair_terms"]

VALUES_MAX = 64
"""Most values of IN that are looked up one by one."""


@dataclass(frozen=True)
class PairTerm:
    """A condition as ranges of index words; it replaces the conjuncts ``instead_of``."""

    atoms: tuple[Range | IsNull, ...]
    text: str
    instead_of: tuple[Prune, ...]


def pair_keys(names: frozenset[str], schema: StreamSchema) -> tuple[PairKey, ...]:
    found = []
    for name in sorted(names):
        key = None if name in schema else index_key(name, schema)
        if isinstance(key, PairKey):
            found.append(key)
    return tuple(found)


def pair_terms(
    items: Sequence[Prune], indexed: frozenset[str], schema: StreamSchema
) -> list[PairTerm]:
    """The terms of conjuncts whose ranges over one attribute are merged."""
    found = []
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
            found.append(PairTerm(tuple(dict.fromkeys(atoms)), text, replaced))
    return found


def equalities(atoms: Sequence[Prune], key: PairKey) -> list[Range]:
    """The words of a choice of equalities on the first attribute; empty if it is none."""
    return _ranges(key, _values(AnyOf(tuple(atoms)), key.pair[0].name), [None])


def _ranges(key: PairKey, values: Sequence[Range], choices: Sequence[Range | None]) -> list[Range]:
    try:
        found = [key.range(value, then) for value in values for then in choices]
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError):
        return []  # constant of another type
    return [range_ for range_ in found if range_ is not None]


def _described(item: Prune, schema: StreamSchema) -> str:
    text = describe(item, schema) or ""
    return f"({text})" if isinstance(item, AnyOf) and len(item.items) > 1 else text


def _few(values: int, choices: Sequence[Range]) -> bool:
    return 0 < values * len(choices) <= VALUES_MAX


def _choices(item: Prune, column: str) -> list[Range]:
    """The ranges that a conjunct on a column is a choice of; empty if it is none."""
    choices = item.items if isinstance(item, AnyOf) else (item,)
    found = [one for one in choices if isinstance(one, Range) and one.column == column]
    return found if len(found) == len(choices) else []


def _values(item: Prune, column: str) -> list[Range]:
    """The equalities that a conjunct on a column is a choice of; empty if it is none."""
    found = _choices(item, column)
    equal = all(
        one.low is not None and one.low == one.high and not one.low_open and not one.high_open
        for one in found
    )
    return found if equal and len(found) <= VALUES_MAX else []

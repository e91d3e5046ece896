"""From a row pattern to basic blocks: the symbols that every match must contain, and where.

Thesis sections 3.4.1, 3.4.2 and 3.4.4.  Gaps cut the symbols of ``pattern_parts`` into blocks;
conditions become ranges over single attributes, or ``true``::

    pattern  (A, (B, C+)+, D)  ->  A B C gap D  ->  blocks (A B C) (D)

A *term* is a disjunction of ranges over indexed attributes that every event of its symbol
satisfies; a conjunction gives several terms.  Guarantee: sound, not complete: every match satisfies
the outline event by event.  A pattern may have several outlines, each valid for every match, and a
set of outlines of which every match obeys one; the planner takes the cheapest.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from ...schema import Storage, StreamSchema
from ...store.prune import AllOf, Never, Prune, Range
from ..conditions.constants import Folder
from ..conditions.predicates import PredicateCompiler
from ..pattern.binding import CLASSIFIER, Bound, Navigation
from ..pattern.compiled import CompiledMatch
from ..pattern.typed import leaf_index
from ..sql.pattern_tree import Pattern, Variable, walk
from .applicability import earliest
from .bands import Band, bands_between, conditions_between, implied_ranges
from .derived_terms import derived_keys, derived_prunes, with_unknown
from .implied_ranges import with_implied
from .pattern_parts import Gap, Known, Parts, Symbol, TooMany, rewrite
from .shared_columns import SharedColumn, shared_columns
from .terms import Term, index_terms, merged

__all__ = [
    "Block",
    "Outline",
    "Room",
    "Symbol",
    "condition_prune",
    "known_outlines",
    "outline",
    "outlines",
]

OPTIONS_MAX = 4
"""Outlines of one pattern that are compared."""
HANDED_ON = 3
"""Rounds in which bands propagate ranges from symbol to symbol."""


@dataclass(frozen=True)
class Block:
    """Symbols at fixed distances from one another."""

    symbols: tuple[Symbol, ...]


@dataclass(frozen=True)
class Room:
    """What lies between a block and the next one, or the end of the match.  ``most``: maximum
    number of events (None: any).  ``repeats``: the variable of the symbol before, if all of these
    events carry it.
    """

    most: int | None = None
    repeats: str = ""

    @property
    def bounded(self) -> bool:
        return self.most is not None or bool(self.repeats)


@dataclass(frozen=True)
class Outline:
    """What every match contains.  ``blocks`` in pattern order with gaps between them, and a gap
    before (``leading``) or after (``trailing``); ``longest``: most events of a contiguous match;
    ``within``: window in ticks; ``contiguous``: symbols of a block are neighbours in the stream;
    ``impossible``: no event satisfies some symbol; ``within_partition``: the outline in one
    partition's sequence, None where matches may skip events there too; ``shared``: equal
    attributes, without PARTITION BY; ``options``: number of outlines of the pattern; ``rooms``:
    behind each block, in a contiguous match.
    """

    blocks: tuple[Block, ...]
    leading: bool
    trailing: bool
    longest: int | None
    within: int | None
    contiguous: bool
    impossible: bool
    within_partition: Outline | None = None
    shared: tuple[SharedColumn, ...] = ()
    bands: tuple[Band, ...] = ()
    options: int = 1
    rooms: tuple[Room, ...] = ()

    def room(self, block: int) -> Room:
        return self.rooms[block] if self.rooms else Room()

    def distance(self, earlier: int, later: int) -> int | None:
        """Most events between two blocks, intermediate blocks included; None if unbounded."""
        total = 0
        for block in range(earlier, later):
            room = self.room(block).most
            if room is None:
                return None
            total += room + (len(self.blocks[block].symbols) if block > earlier else 0)
        return total

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        return tuple(symbol for block in self.blocks for symbol in block.symbols)

    @property
    def bounded(self) -> bool:
        """Whether a match is bounded in time, or in events of the stream or of its partition."""
        inner = self.within_partition
        return (
            self.within is not None
            or self.longest is not None
            or (inner is not None and inner.longest is not None)
        )

    def __str__(self) -> str:
        parts = ["gap"] if self.leading else []
        for number, block in enumerate(self.blocks):
            if number:
                parts.append("gap")
            parts.append("(" + " ".join(symbol.name for symbol in block.symbols) + ")")
        return " ".join([*parts, "gap"] if self.trailing else parts)


def known_outlines(
    compiled: CompiledMatch, schema: StreamSchema, folder: Folder | None, indexed: frozenset[str]
) -> tuple[tuple[Outline, ...], ...]:
    """``outlines``, cached on the compiled clause (parameter values are part of it)."""
    wanted = (schema, indexed, folder is None)
    known = compiled.outlined
    if known is None or known[0] != wanted:
        known = compiled.outlined = wanted, outlines(compiled, schema, folder, indexed)
    assert isinstance(known[1], tuple)
    return known[1]


def outlines(
    compiled: CompiledMatch, schema: StreamSchema, folder: Folder | None, indexed: frozenset[str]
) -> tuple[tuple[Outline, ...], ...]:
    """Sets of outlines; every match obeys one outline of each set."""
    maker = _Maker(compiled, schema, folder or _now(), indexed)
    found = [maker.outline()]
    found += [maker.outline(option) for option in range(1, min(OPTIONS_MAX, found[0].options))]
    apart = maker.apart()
    return (*((one,) for one in found), *([apart] if len(apart) > 1 else []))


def outline(
    compiled: CompiledMatch, schema: StreamSchema, folder: Folder | None = None,
    also: Prune | None = None, skipping: bool = False, indexed: frozenset[str] = frozenset(),
) -> Outline:  # fmt: skip
    """The outline of a compiled clause.  ``also``: a condition on every event; ``skipping``: the
    clause sees only some events, so its neighbours need not be neighbours in the stream.
    """
    return _Maker(compiled, schema, folder or _now(), indexed, also, skipping).outline()


def _now() -> Folder:
    return Folder({}, dt.datetime.now(dt.timezone.utc))


class _Maker:
    def __init__(
        self, compiled: CompiledMatch, schema: StreamSchema, folder: Folder,
        indexed: frozenset[str], also: Prune | None = None, skipping: bool = False,
    ) -> None:  # fmt: skip
        self.compiled, self.schema, self.indexed = compiled, schema, indexed
        self.also, self.skipping = also, skipping
        conditions = {
            name: condition_prune(bound, name, schema, folder)
            for name, bound in compiled.definitions.items()
        }
        between = {
            name: conditions_between(bound, name, schema, folder)
            for name, bound in compiled.definitions.items()
        }
        self.known = Known(
            with_implied(conditions, compiled.definitions, schema), schema, indexed,
            {} if skipping else _derived(compiled, schema, folder, indexed), between,
            _once(compiled.clause.pattern),
        )  # fmt: skip

    def outline(self, option: int = 0) -> Outline:
        known = replace(self.known, option=option, options=[])
        (parts,) = rewrite(self.compiled.clause.pattern, known)
        return replace(self._of(parts), options=max(known.options, default=1))

    def apart(self) -> tuple[Outline, ...]:
        try:
            ways = rewrite(self.compiled.clause.pattern, replace(self.known, apart=True))
        except TooMany:
            return ()
        return tuple(map(self._of, ways)) if len(ways) > 1 else ()

    def _of(self, parts: Parts) -> Outline:
        compiled, schema, also = self.compiled, self.schema, self.also
        told = [(item.variables, isinstance(item, Gap)) for item in parts.items]
        bands = bands_between(told, self.known.between)
        items = _narrowed(parts.items, bands, schema)
        if also is not None:
            items = [
                item if isinstance(item, Gap) else replace(item, prune=_and(item.prune, also))
                for item in items
            ]
        selected = compiled.clause.selection in (None, "contiguous")
        neighbours = selected and len(compiled.order_by) <= 1
        contiguous = neighbours and not self.skipping and not compiled.partition_by
        longest = None if self.skipping else parts.most
        found = self._cut(items, longest, contiguous)
        found = replace(found, bands=bands)
        if self.skipping:
            return found
        if not compiled.partition_by:
            return replace(found, shared=shared_columns(compiled, schema))
        return replace(
            found, within_partition=self._cut(items, longest, True) if neighbours else None
        )

    def _cut(self, items: Sequence[Symbol | Gap], longest: int | None, contiguous: bool) -> Outline:
        blocks: list[list[Symbol]] = []
        rooms: list[Room] = []
        leading, fresh = False, True
        for item in items:
            if isinstance(item, Gap):
                leading = leading or not blocks
                fresh = True
                if blocks:
                    alone = item.variables == blocks[-1][-1].variables
                    name = next(iter(item.variables)) if len(item.variables) == 1 else ""
                    rooms[-1] = Room(item.most, name if alone else "")
                continue
            if fresh or not contiguous:
                blocks.append([])
                rooms.append(Room(0))
                fresh = False
            terms = (*item.terms, *index_terms(item.prune, self.schema, self.indexed))
            blocks[-1].append(replace(item, terms=terms))
        trailing = bool(items) and isinstance(items[-1], Gap)
        return Outline(
            tuple(Block(tuple(block)) for block in blocks), leading, trailing,
            longest if contiguous else None, self.compiled.within, contiguous,
            any(isinstance(s.prune, Never) for block in blocks for s in block),
            rooms=tuple(rooms) if contiguous else (),
        )  # fmt: skip


def _once(pattern: Pattern) -> frozenset[str]:
    """Variables that occur once in a pattern."""
    names = [node.name for node in walk(pattern) if isinstance(node, Variable)]
    return frozenset(name for name in names if names.count(name) == 1)


def _narrowed(
    items: Sequence[Symbol | Gap], bands: tuple[Band, ...], schema: StreamSchema
) -> list[Symbol | Gap]:
    found = list(items)
    places = [i for i, part in enumerate(items) if isinstance(part, Symbol)]
    for _ in range(min(HANDED_ON, len(bands))):
        before = list(found)
        for band in bands:
            ends = places[band.earlier], places[band.later]
            columns = band.condition.source, band.condition.column
            ranges = [_range_of(found[at], name) for at, name in zip(ends, columns, strict=True)]
            for at, implied in zip(ends, implied_ranges(band, *ranges), strict=True):
                part = found[at]
                if implied is not None and isinstance(part, Symbol):
                    found[at] = replace(part, prune=_within(part.prune, implied, schema))
        if found == before:
            break
    return found


def _range_of(part: Symbol | Gap, column: str) -> Range | None:
    items = merged(part.prune) if isinstance(part, Symbol) else []
    return next((i for i in items if isinstance(i, Range) and i.column == column), None)


def _within(prune: Prune | None, also: Range, schema: StreamSchema) -> Prune | None:
    if schema.attribute(also.column).storage is not Storage.FLOAT:
        low = None if also.low is None else math.ceil(float(also.low))
        high = None if also.high is None else math.floor(float(also.high))
        also = Range(also.column, low, high)
    items = merged(prune)
    both = merged(AllOf((*items, also)))
    if both == items or isinstance(prune, Never):
        return prune
    return both[0] if len(both) == 1 else AllOf(tuple(both))


def _and(prune: Prune | None, also: Prune) -> Prune:
    if prune is None or isinstance(also, Never):
        return also
    return prune if isinstance(prune, Never) else AllOf((prune, also))


def _derived(
    compiled: CompiledMatch, schema: StreamSchema, folder: Folder, indexed: frozenset[str]
) -> dict[str, tuple[Term, ...]]:
    keys = derived_keys(indexed, schema, compiled)
    found = {}
    for name, bound in compiled.definitions.items() if keys else ():
        place = earliest(compiled.clause.pattern, name)
        terms = [
            replace(
                term,
                back=one.key.back,
                needs=one.needs,
                inside=None if place is None or place < one.key.back else compiled.within,
            )
            for one in derived_prunes(bound, name, keys, schema, folder, compiled)
            for item in merged(one.prune)
            for term in index_terms(with_unknown(item, one.key.name), schema)
            if one.key.name in term.attributes
        ]
        found[name] = tuple(dict.fromkeys(terms))
    return found


def condition_prune(
    bound: Bound, variable: str, schema: StreamSchema, folder: Folder
) -> Prune | None:
    """What a DEFINE condition implies for the current row alone."""

    def column_of(node: Any) -> str | None:
        index = leaf_index(node) if isinstance(node, exp.Column) else None
        if index is None:
            return None
        leaf = bound.leaves[index]
        if not isinstance(leaf, Navigation) or leaf.first or leaf.offset or leaf.shift:
            return None
        if leaf.variables is not None and variable not in leaf.variables:
            return None
        name = leaf.row.column
        return None if name is None or name == CLASSIFIER or name not in schema else name

    prune = PredicateCompiler(schema, folder, column_of).compile(bound.scalar).prune
    if not isinstance(prune, AllOf):
        return prune
    parts = merged(prune)  # merge both sides of BETWEEN into one range
    return parts[0] if len(parts) == 1 else AllOf(tuple(parts)) if parts else None

"""The algebra of relations, and how early each is certain."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, product

import pyarrow as pa
import pytest

from chronicle.query.situations import network as r
from chronicle.query.situations.compiled import CompiledSituations
from chronicle.query.situations.network import (
    FAR,
    Durations,
    Unsatisfiable,
    close,
    distances,
    unrestricted,
)

from ...oracles_situations import DEFINITIONS, relation

STRETCHES = list(combinations(range(5), 2))
Compile = Callable[[str, pa.Schema], CompiledSituations]


def test_relations_are_what_their_names_say() -> None:
    assert set(DEFINITIONS) == set(r.NAMES)
    for a, b in product(STRETCHES, repeat=2):
        found = r.relation_of(a, b)
        assert [n for n, holds in DEFINITIONS.items() if holds(*a, *b)] == [r.NAMES[found]]
        assert r.NAMES[found] == list(DEFINITIONS)[relation(*a, *b)]
        assert r.relation_of(b, a) == 12 - found
        shares = max(a[0], b[0]) < min(a[1], b[1])
        assert bool(r.INTERSECTS >> found & 1) == shares


def test_composition_leaves_what_some_third_stretch_allows() -> None:
    equals = 1 << r.NAMES.index("EQUALS")
    for i in range(13):
        assert r.compose(1 << i, equals) == 1 << i == r.compose(equals, 1 << i)
        assert r.compose(1 << i, r.converse(1 << i)) & equals
    for a, b, c in product(STRETCHES, repeat=3):
        through = r.compose(1 << r.relation_of(a, b), 1 << r.relation_of(b, c))
        assert through >> r.relation_of(a, c) & 1
    before = r.RELATIONS["BEFORE"]
    assert r.compose(before, before) == before
    assert r.compose(before, r.converse(before)) == r.ALL


def test_what_follows_is_found_and_what_cannot_be_is_told() -> None:
    masks = unrestricted(3)

    def say(i: int, j: int, mask: int) -> None:
        masks[i][j], masks[j][i] = mask, r.converse(mask)

    say(0, 1, r.RELATIONS["STARTS"])
    say(1, 2, r.RELATIONS["BEFORE"])
    closed = close(tuple(map(tuple, masks)))
    assert closed[0][2] == r.RELATIONS["BEFORE"]
    say(0, 2, r.RELATIONS["MEETS"] | r.RELATIONS["DURING"])
    with pytest.raises(Unsatisfiable):
        close(tuple(map(tuple, masks)))


def test_distances_hold_for_every_match() -> None:
    """All pairs of stretches of a pattern: no difference of two points beyond its bound."""
    for mask in (*(1 << i for i in range(13)), r.INTERSECTS, r.ALL):
        sets = ((r.ALL, mask), (r.converse(mask), r.ALL))
        for durations in (
            Durations((0, 0), (FAR, FAR), 3),
            Durations((0, 2), (3, FAR), 4),
            Durations((1, 0), (2, 2)),
        ):
            try:
                within = distances(sets, durations)
            except Unsatisfiable:
                within = None
            for a, b in product(STRETCHES, repeat=2):
                lengths = [a[1] - a[0], b[1] - b[0]]
                fits = all(
                    low <= length <= high
                    for low, length, high in zip(
                        durations.least, lengths, durations.most, strict=True
                    )
                )
                instant = max(a[1], b[1])
                fits = fits and instant - min(a[0], b[0]) <= durations.window
                if not fits or not mask >> r.relation_of(a, b) & 1:
                    continue
                assert within is not None
                points = [a[0], b[0], a[1], b[1], instant]
                for u, v in product(range(5), repeat=2):
                    assert points[v] - points[u] <= within[u, v]


EARLIEST = {
    "BEFORE": lambda a, b: b[0],
    "MEETS": lambda a, b: b[0],
    "OVERLAPS": lambda a, b: a[1],
    "STARTS": lambda a, b: a[1],
    "DURING": lambda a, b: a[1],
    "FINISHES": lambda a, b: a[1],
    "EQUALS": lambda a, b: a[1],
}


@pytest.mark.parametrize("name", EARLIEST)
def test_one_relation_is_detected_as_early_as_it_can_be(name: str, compiled: Compile) -> None:
    """Before and meets gain all of B's duration; equals and finishes nothing."""
    schema = pa.schema([("t", pa.int64()), ("a", pa.bool_()), ("b", pa.bool_())])
    for a, b in product(STRETCHES, repeat=2):
        if r.NAMES[r.relation_of(a, b)] != name:
            continue
        rows = [
            {"t": t, "a": a[0] <= t < a[1], "b": b[0] <= t < b[1]} for t in range(6)
        ]  # fmt: skip
        table = pa.Table.from_pylist(rows, schema)
        for emit in ("COMPLETION", "DETECTION"):
            clause = compiled(
                f"MEASURES DETECTED() AS d PATTERN (A {name} B) EMIT ON {emit} "
                "DEFINE A AS a, B AS b", schema,
            )  # fmt: skip
            found = [row for batch in clause.run(table.to_batches()) for row in batch.to_pylist()]
            assert found == [{"d": EARLIEST[name](a, b)}]


def test_a_set_is_the_union_of_its_relations(compiled: Compile) -> None:
    """And A r B is B converse(r) A: over one stream with all thirteen relations in it."""
    schema = pa.schema([("t", pa.int64()), ("a", pa.bool_()), ("b", pa.bool_())])
    state = [(7 * t * t + t // 3) % 11 for t in range(400)]
    rows = [{"t": t, "a": x % 3 > 0, "b": x % 5 < 3} for t, x in enumerate(state)]
    table = pa.Table.from_pylist(rows, schema)

    def found(pattern: str, emit: str) -> list[tuple[int, ...]]:
        clause = compiled(
            f"MEASURES STARTED(A) AS a, STARTED(B) AS b, DETECTED() AS d PATTERN ({pattern}) "
            f"WITHIN 25 EMIT ON {emit} DEFINE A AS a, B AS b", schema,
        )  # fmt: skip
        batches = list(clause.run(table.to_batches()))
        return sorted(tuple(row.values()) for batch in batches for row in batch.to_pylist())

    single = {name: found(f"A {name} B", "COMPLETION") for name in r.NAMES}
    assert sum(map(len, single.values())) > 500
    for i, name in enumerate(r.NAMES):
        assert found(f"B {r.NAMES[12 - i]} A", "COMPLETION") == single[name]
        early = {row[:2] for row in found(f"A {name} B", "DETECTION")}
        assert {row[:2] for row in single[name]} <= early  # completed ones are among the detected
    some = ("BEFORE", "OVERLAPS", "EQUALS", "DURING", "MET BY")
    both = [row[:2] for row in found(f"A {' | '.join(some)} B", "COMPLETION")]
    assert sorted(both) == sorted(row[:2] for name in some for row in single[name])

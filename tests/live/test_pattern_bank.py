"""A bank of patterns against each of them alone."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest

from chronicle.core.times import INT64_MAX, INT64_MIN
from chronicle.errors import InvalidArgument
from chronicle.live.bank.layer import Layer
from chronicle.live.bank.pattern_bank import PatternBank
from chronicle.live.bank.symbols import (
    Card,
    Member,
    Null,
    Range,
    Residual,
    atoms_of,
    card_of,
    keys_of,
    why_alone,
)
from chronicle.query.pattern.compiled import InputColumns, compile_match
from chronicle.query.sql.match_clause import clause_of_text

SCHEMA = pa.schema(
    [
        pa.field("t", pa.int64(), False), ("k", pa.string()), ("x", pa.float64()),
        ("y", pa.int64()), ("s", pa.string()), ("id", pa.int64()),
    ]
)  # fmt: skip
SHAPES = (
    "A B C", "A B+ C", "A+", "A B? C", "A Z* B", "A Z*? B", "(A | B) C", "A B | A C", "A (B C)+",
    "A Z* B Z* C", "A{2}", "B", "A B+? C", "(A B)+ C", "A Z* (B | C)",
)  # fmt: skip


def condition(r: random.Random) -> str:
    def atom() -> str:
        low = r.randint(0, 90)
        return r.choice([
            f"x BETWEEN {low} AND {low + r.choice([2, 5, 20])}", f"x > {r.randint(60, 99)}",
            f"x < {r.randint(1, 30)}", f"y = {r.randint(0, 20)}", f"y >= {r.randint(10, 19)}",
            f"s = '{r.choice('abcdefgh')}'", f"s IN ('{r.choice('abc')}', '{r.choice('defz')}')",
            "x IS NULL", "y IS NULL", f"s LIKE '{r.choice('abc')}%'",
            f"x + y > {r.randint(80, 110)}",
        ])  # fmt: skip

    return " AND ".join(atom() for _ in range(r.choice([1, 1, 2, 3])))


def clause(r: random.Random, partitioned: bool) -> str:
    shape = r.choice(SHAPES)
    names = sorted({c for c in shape if c in "ABC"})
    shared = condition(r)
    defined = [f"{n} AS {r.choice([shared, condition(r), condition(r)])}" for n in names]
    skip = r.choice(["PAST LAST ROW", "PAST LAST ROW", "TO NEXT ROW"])
    return (
        ("PARTITION BY k " if partitioned else "")
        + f"ORDER BY t MEASURES FIRST(id) AS a, LAST(id) AS z AFTER MATCH SKIP {skip} "
        + f"PATTERN ({shape}) WITHIN {r.choice([0, 3, 10, 40])} DEFINE {', '.join(defined)}"
    )


def compiled_clause(text: str) -> Any:
    return compile_match(
        clause_of_text(f"SELECT * FROM s MATCH_RECOGNIZE ({text})"), InputColumns(SCHEMA, "t")
    )


def events(r: random.Random, count: int, keys: str) -> pa.Table:
    t, rows = 0, []
    for i in range(count):
        t += r.choice([0, 0, 1, 1, 2])
        x = r.choice([None, float("nan"), float(r.randint(0, 99)), r.random() * 100])
        rows.append({
            "t": t, "k": r.choice(keys), "x": x, "y": r.choice([None, r.randint(0, 20)]),
            "s": r.choice(["a", "b", "c", "d", "e", "zz", None]), "id": i,
        })  # fmt: skip
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def identities(table: pa.Table, partitioned: bool) -> dict[tuple[Any, int, int], int]:
    counted: dict[tuple[Any, int], int] = {}
    found = {}
    for row in table.to_pylist():
        key = row["k"] if partitioned else None
        rank = counted.get((key, row["t"]), 0)
        counted[key, row["t"]] = rank + 1
        found[key, row["t"], rank] = row["id"]
    return found


def in_the_bank(
    r: random.Random, patterns: dict[int, Any], table: pa.Table, partitioned: bool
) -> set[tuple[int, int, int]]:
    bank = PatternBank(SCHEMA, "t", ["k"] if partitioned else [])
    for name, compiled in patterns.items():
        bank.take(Layer([name], [card_of(compiled)]))
    ids = identities(table, partitioned)
    ticks = table.column("t").to_pylist()
    parts, at = [], 0
    while at < len(ticks):
        end = min(len(ticks), at + r.choice([1, 2, 7, 50, 400]))
        following = ticks[end] if end < len(ticks) else ticks[-1] + r.choice([1, 50])
        parts.append(bank.advance(table.slice(at, end - at), following - r.choice([1, 1, 5])))
        at = end
    parts.append(bank.advance(None, INT64_MAX))
    found = []
    for part in parts:
        keys = part.keys.column("k").to_pylist() if partitioned else [None] * len(part.query)
        for i, q in enumerate(part.query.tolist()):
            first = ids[keys[i], int(part.first_tick[i]), int(part.first_rank[i])]
            last = ids[keys[i], int(part.last_tick[i]), int(part.last_rank[i])]
            found.append((part.names[q], first, last))
    assert len(set(found)) == len(found)
    assert bank.layer.open_matches.query.tolist() == []
    return set(found)


def alone(patterns: dict[int, Any], table: pa.Table) -> set[tuple[int, int, int]]:
    found = set()
    for name, compiled in patterns.items():
        for batch in compiled.run(table.to_batches()):
            found |= {(name, row["a"], row["z"]) for row in batch.to_pylist()}
    return found


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize(("count", "rounds"), [(1, 25), (20, 6), (300, 1)])
def test_a_bank_finds_what_each_pattern_finds_alone(
    count: int,
    rounds: int,
    partitioned: bool,
) -> None:
    r = random.Random(count * 2 + partitioned)
    total = 0
    for _ in range(rounds):
        patterns = {i: compiled_clause(clause(r, partitioned)) for i in range(count)}
        table = events(r, r.choice([60, 300]), "abc")
        wanted = alone(patterns, table)
        assert in_the_bank(r, patterns, table, partitioned) == wanted
        total += len(wanted)
    assert total > 10


@pytest.mark.slow
def test_two_thousand_patterns() -> None:
    r = random.Random(5)
    patterns = {i: compiled_clause(clause(r, True)) for i in range(2_000)}
    table = events(r, 300, "abcd")
    assert in_the_bank(r, patterns, table, True) == alone(patterns, table)


def test_families_are_one_automaton() -> None:
    bank = PatternBank(SCHEMA, "t")
    text = "ORDER BY t MEASURES A.t AS a PATTERN (A B) WITHIN 5 DEFINE A AS y = {}, B AS s = 'a'"
    for i in range(50):
        bank.take(Layer([i], [card_of(compiled_clause(text.format(i)))]))
    bank.advance(events(random.Random(1), 10, "a"), 100)
    assert len(bank.layer.build(SCHEMA.empty_table()).tables.place) == 2
    assert len({atoms for card in bank.layer.cards for _, atoms in card.conditions}) == 51


def test_a_pattern_that_leaves_takes_what_is_open_with_it() -> None:
    text = (
        "ORDER BY t MEASURES A.id AS a PATTERN (A Z*? B) WITHIN 50 DEFINE A AS y = {}, B AS y = 9"
    )
    bank = PatternBank(SCHEMA, "t")
    for i in range(3):
        bank.take(Layer([f"q{i}"], [card_of(compiled_clause(text.format(i)))]))
    rows = [{"t": i, "k": "a", "x": 0.0, "y": i, "s": "a", "id": i} for i in range(3)]
    bank.advance(pa.Table.from_pylist(rows, schema=SCHEMA), 2)
    bank.remove("q1")
    rows = [{"t": 5, "k": "a", "x": 0.0, "y": 9, "s": "a", "id": 5}]
    found = bank.advance(pa.Table.from_pylist(rows, schema=SCHEMA), 5)
    assert [(found.names[q], t) for q, t in zip(found.query, found.first_tick, strict=True)] == [
        ("q0", 0), ("q2", 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("PATTERN (A B) DEFINE B AS x > A.x", "looks at the partial match"),
        ("PATTERN (A B) DEFINE A AS x > 1, B AS x > PREV(x)", "reads another event"),
        ("PATTERN (A B) DEFINE B AS x > 1", "nothing is asked of A"),
        ("PATTERN (Z* B) DEFINE B AS x > 1", "begin with any event"),
        ("PATTERN (A*) DEFINE A AS x > 1", "match no event"),
        ("PATTERN (^ A) DEFINE A AS x > 1", "anchor"),
        ("PATTERN (A) EVENT SELECTION SKIP TILL ANY MATCH DEFINE A AS x > 1", "selects"),
    ],
)  # fmt: skip
def test_what_must_run_alone_says_why(text: str, why: str) -> None:
    compiled = compiled_clause(f"ORDER BY t MEASURES LAST(t) AS z {text}")
    assert why in why_alone(compiled)


def test_a_pattern_of_other_partitions_is_refused() -> None:
    text = "PARTITION BY k ORDER BY t MEASURES A.t AS a PATTERN (A) WITHIN 5 DEFINE A AS y = 1"
    with pytest.raises(InvalidArgument, match="partitioned by"):
        PatternBank(SCHEMA, "t").take(Layer(["q"], [card_of(compiled_clause(text))]))


def test_a_card_comes_back_from_its_document() -> None:
    r = random.Random(3)
    for partitioned in (False, True):
        for _ in range(20):
            card = card_of(compiled_clause(clause(r, partitioned)))
            again = Card.from_json(json.loads(json.dumps(card.to_json())))
            assert again == card
            assert again is not None
            assert hash(again.shape) == hash(card.shape)
            assert card.fits(SCHEMA)
    assert Card.from_json({**card.to_json(), "generation": 0}) is None
    assert Card.from_json(None) is None


# -- conditions ----------------------------------------------------------------------------------


def holds(atom: Any, row: int, table: pa.Table) -> bool:
    if isinstance(atom, Residual):
        value = table.column("y")[row].as_py()
        return value is not None and value % 2 == 0
    value = table.column(atom.column)[row]
    if isinstance(atom, Null):
        return not value.is_valid
    if isinstance(atom, Member):
        return value.is_valid and value.as_py() in atom.texts
    keys, _ = keys_of(table.column(atom.column))
    return bool(value.is_valid and atom.low <= keys[row] <= atom.high)


def random_atom(r: random.Random) -> Any:
    kind = r.randrange(6)
    if kind == 0:
        return Member("s", tuple(sorted(r.sample(["a", "b", "c", "zz", "q"], r.randint(1, 3)))))
    if kind == 1:
        return Null(r.choice("xys"))
    if kind == 2:
        return Residual('"y" % 2 = 0')
    column = r.choice("xy")
    ends = sorted(r.randint(-2, 22) for _ in range(2))
    if column == "x":
        ends = keys_of(pa.array([float(5 * e) for e in ends]))[0].tolist()
    low = r.choice([ends[0], ends[0], INT64_MIN])
    return Range(column, low, r.choice([ends[1], ends[1], INT64_MAX]))


def test_keys_order_as_numbers_do() -> None:
    values = [float("-inf"), -2.5, -0.0, 0.0, 1e-300, 3.0, float("inf"), float("nan")]
    keys, _ = keys_of(pa.array(values))
    assert keys.tolist() == sorted(keys.tolist())
    assert keys[2] == keys[3]
    assert len(set(keys.tolist())) == 7
    assert keys[-1] == INT64_MAX


def test_conditions_become_atoms() -> None:
    compiled = compiled_clause(
        "ORDER BY t MEASURES A.t AS a PATTERN (A B) DEFINE "
        "A AS s IN ('b', 'a') AND y >= 2 AND y < 5, B AS x IS NULL AND length(s) > 1"
    )
    (a, b) = (set(atoms) for atoms in atoms_of(compiled).values())
    assert a == {Member("s", ("a", "b")), Range("y", 2, 4)}
    assert Null("x") in b
    assert any(isinstance(atom, Residual) for atom in b)

"""Clauses and streams of the tests of SKIP TILL ANY MATCH."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from chronicle.query.binding import match_binding
from chronicle.query.pattern import matcher
from chronicle.query.pattern.any_choice import Choice, Selecting
from chronicle.query.pattern.compiled import CompiledMatch, InputColumns, compile_match
from chronicle.query.sql.match_clause import clause_of_text

SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.string()), ("x", pa.float64()), ("y", pa.int64())])


def any_clause(partitioned: bool, pattern: str, window: str, defined: list[str]) -> str:
    return (
        ("PARTITION BY k " if partitioned else "")
        + "ORDER BY t MEASURES MATCH_NUMBER() AS mn, FIRST(t) AS b, CLASSIFIER() AS c "
        + f"ALL ROWS PER MATCH PATTERN ({pattern}) {window} "
        + "EVENT SELECTION SKIP TILL ANY MATCH "
        + ("DEFINE " + ", ".join(defined) if defined else "")
    )


def compiled(clause: str, schema: pa.Schema = SCHEMA, **asked: Any) -> CompiledMatch:
    parsed = clause_of_text(f"SELECT * FROM s MATCH_RECOGNIZE ({clause})")
    made = compile_match(parsed, InputColumns(schema, "t"))
    return replace(made, selecting=Selecting(**asked))


def always_search(patch: pytest.MonkeyPatch) -> None:
    """Statements are answered by the search, the independent twin of diagrams."""
    for module in (match_binding, matcher):
        patch.setattr(module, "choose", lambda *_: Choice(False, "a test says so"))


def rows_of(match: CompiledMatch, table: pa.Table, batch: int = 1 << 20) -> list[dict[str, Any]]:
    found = list(match.run(table.to_batches(max_chunksize=batch)))
    return pa.Table.from_batches(found, match.output_schema).to_pylist()


def random_table(r: random.Random, count: int) -> pa.Table:
    """Ties in time, nulls, NaN and a skewed key."""
    t, rows = 0, []
    for _ in range(count):
        t += r.choice([0, 0, 1, 1, 2, 5])
        x = r.choice([None, float("nan"), 0.0, -0.0, 1.0, 2.0, 3.0])
        y = r.choice([None, 0, 1, 2, 3])
        rows.append({"t": t, "k": r.choice("ppppq"), "x": x, "y": y})
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def random_pattern(r: random.Random, names: str, depth: int) -> str:
    """A pattern; never one that matches nothing alone, and never empty."""
    kind = r.choice(["var", "cat", "cat", "cat", "alt", "rep", "perm", "not"]) if depth else "var"
    parts = [random_pattern(r, names, depth - 1) for _ in range(r.randint(2, 3))] if depth else []
    if kind == "cat":
        return " ".join(parts)
    if kind == "alt":
        return "(" + " | ".join(parts) + ")"
    if kind == "perm":
        return f"PERMUTE({', '.join(parts[:2])})"
    if kind == "not":
        return f"{parts[0]} [^X] {parts[1]}"
    if kind == "rep":
        return f"({parts[0]})" + r.choice(["?", "+", "*", "{2}", "{1,3}", "{,2}", "??", "*?", "+?"])
    return r.choice(names)


CONDITIONS = (
    "x > 1", "x <= 2", "y = 1", "y >= 1", "x = y", "x > PREV(x)", "NEXT(y) > 0", "x IS NULL",
    "y IN (0, 2)", "true", "x <> 0",
)  # fmt: skip


def row_clause(r: random.Random, partitioned: bool) -> str:
    """Every condition is about one event."""
    names = "ABCD"[: r.randint(2, 4)]
    pattern = random_pattern(r, names, r.randint(1, 2))
    head, tail = r.choice(["", "^ ", "^? "]) if r.random() < 0.3 else "", ""
    if r.random() < 0.3:
        tail = r.choice([" [^X]", " $", " $?"])
    pattern = f"{head}A {pattern}{tail}".replace("^? ", "(^ | ()) ").replace(" $?", " ($ | ())")
    window = r.choice(["", "WITHIN 3", "WITHIN 8", "WITHIN 20"])
    if "[^X]" in pattern:
        window = window or "WITHIN 6"
    used = [name for name in names if name in pattern and r.random() < 0.85]
    defined = [f"{name} AS {r.choice(CONDITIONS)}" for name in used]
    if "[^X]" in pattern:
        defined.append(f"X AS {r.choice(['y = 3', 'x = 0', 'x > 2'])}")
    return any_clause(partitioned, pattern, window, defined)


BETWEEN = (
    "{o}.y = {v}.y", "{v}.x > {o}.x", "{v}.x <= {o}.x", "{v}.y <> {o}.y", "{v}.x = {o}.x",
    "{v}.y BETWEEN {o}.y - 1 AND {o}.y + 1", "{v}.k = {o}.k", "{v}.k < {o}.k",
    "{v}.x - {o}.x < 1.5", "{o}.y < NEXT(y)", "PREV({o}.y) <= y", "FIRST({o}.x) >= x",
    "{o}.x IS NULL OR x > 1", "NOT ({v}.y >= {o}.y)", "sqrt(abs({o}.x)) <= x",
)  # fmt: skip
ALONE = ("x > 1", "y >= 1", "y = 1", "true", "x IS NOT NULL", "k = 'p'", "y IN (0, 2)")
OPAQUE = ("sum(x) < 5", "CLASSIFIER() <> 'Q'", "LAST(x, 1) <= x OR LAST(x, 1) IS NULL")


def random_sequence(r: random.Random) -> tuple[str, str]:
    """A pattern of up to five variables, some of them repeated, absent or given a choice."""
    names = "ABCDE"[: r.randint(2, 5)]
    parts = list(names)
    for i in range(1, len(parts)):
        kind = r.random()
        if kind < 0.15:
            parts[i] += r.choice(["+", "?", "*", "{1,2}"])
        elif kind < 0.25:
            parts[i] = "[^X] " + parts[i]
        elif kind < 0.3:
            parts[i] = f"({parts[i]} | F)"
        elif kind < 0.33:
            parts[i] = f"({parts[i]} [^X] F)+"
    if r.random() < 0.1:
        parts.append("[^X]")
    if r.random() < 0.05:
        parts[0] = "^ " + parts[0]
    return names, " ".join(parts)


def paired_clause(r: random.Random, partitioned: bool, plain: bool = False) -> str:
    """Conditions compare events."""
    names, pattern = random_sequence(r)
    if plain:
        pattern = " ".join(names)
    defined = []
    for i, name in enumerate(names):
        conjuncts = [r.choice(ALONE)] if r.random() < 0.6 else []
        for _ in range(r.choice([0, 1, 1, 2]) if i else 0):
            condition = r.choice(BETWEEN).format(v=name, o=r.choice(names[:i]))
            conjuncts.append(f"({condition})")
        if i > 1 and r.random() < 0.15:
            a, b = r.sample(names[:i], 2)
            conjuncts.append(f"{name}.x <= {a}.x + {b}.x")
        if r.random() < 0.05:
            conjuncts.append(f"({r.choice(OPAQUE)})")
        if r.random() < 0.03:
            conjuncts.append(f"({names[-1]}.x > 1)")  # an event that is still to come
        if conjuncts:
            defined.append(f"{name} AS " + " AND ".join(conjuncts))
    if "X" in pattern:
        defined.append(f"X AS {r.choice(['y = 3', 'x = 0', 'x > 2'])}")
    window = r.choice(["", "WITHIN 4", "WITHIN 9", "WITHIN 20"])
    if "X" in pattern or "+" in pattern or "*" in pattern:
        window = window or "WITHIN 9"
    return any_clause(partitioned, pattern, window, defined)

"""Random patterns over random traces: the matcher against the brute-force oracle.

``make nightly`` compares more than a million traces, with other seeds each time, and says how many;
``CHRONICLE_PATTERNS`` is the number of patterns a test tries then.  A failure names its seed:
``standard_case(seed, share)`` repeats it.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from chronicle.errors import ResourceLimit, SqlError
from chronicle.query.pattern import match_stream
from chronicle.query.pattern.compiled import compile_match
from chronicle.query.sql.match_clause import clause_of_text

from ... import oracles_patterns as oracle
from ...new_stores import timed
from ...rounds import NIGHTLY, rounds

BY_NIGHT = int(os.environ.get("CHRONICLE_PATTERNS", "6000"))
PATTERNS = rounds(10, 100, BY_NIGHT)
IN_STEPS = rounds(6, 100, BY_NIGHT)
"""Patterns of the tests that run each case step by step, which takes five times as long."""

TRACES = 8 if NIGHTLY else 5
CROWD = tuple(f"p{i:02}" for i in range(60))
"""Keys of many traces that are run at once, as partitions."""

COMPARED: Counter[str] = Counter()

SCHEMA = timed(id=pa.int64(), k=pa.string(), x=pa.float64(), y=pa.int64(), s=pa.string())


# -- three-valued logic -------------------------------------------------------------------------


def less(a: Any, b: Any) -> Any:
    return None if a is None or b is None else a < b


def equal(a: Any, b: Any) -> Any:
    return None if a is None or b is None else a == b


def negate(a: Any) -> Any:
    return None if a is None else not a


def plus(a: Any, b: Any) -> Any:
    return None if a is None or b is None else a + b


def both(*values: Any) -> Any:
    if any(v is False for v in values):
        return False
    return None if any(v is None for v in values) else True


def either(*values: Any) -> Any:
    if any(v is True for v in values):
        return True
    return None if any(v is None for v in values) else False


def value(rows: Any, at: int, name: str) -> Any:
    return rows[at][name] if 0 <= at < len(rows) else None


def chain(path: Any, at: int, label: str, names: Any) -> list[int]:
    return [r for r, n in [*path, (at, label)] if names is None or n in names]


def pick(found: list[int], index: int) -> int:
    return found[index] if -len(found) <= index < len(found) else -(10**6)


def row_local(r: random.Random) -> tuple[str, Any]:
    """A condition over fixed rows: SQL and Python."""
    c = r.randint(0, 4)
    k = r.randint(1, 2)
    options: list[tuple[str, Any]] = [
        (f"x > {c}", lambda w, p, a, n: less(c, w[a]["x"])),
        (f"x <= {c}.5", lambda w, p, a, n: less(w[a]["x"], c + 0.6)),
        (f"y = {c}", lambda w, p, a, n: equal(w[a]["y"], c)),
        (f"y >= {c} AND y < {c + 2}", lambda w, p, a, n: both(
            negate(less(w[a]["y"], c)), less(w[a]["y"], c + 2))),
        (f"x > PREV(x, {k})", lambda w, p, a, n: less(value(w, a - k, "x"), w[a]["x"])),
        ("x < PREV(x)", lambda w, p, a, n: less(w[a]["x"], value(w, a - 1, "x"))),
        (f"NEXT(y, {k}) > y", lambda w, p, a, n: less(w[a]["y"], value(w, a + k, "y"))),
        ("s = 'a'", lambda w, p, a, n: equal(w[a]["s"], "a")),
        ("upper(s) IN ('B', 'C')", lambda w, p, a, n: either(
            equal(w[a]["s"], "b"), equal(w[a]["s"], "c"))),
        ("x IS NULL", lambda w, p, a, n: w[a]["x"] is None),
        (f"NOT (x > {c})", lambda w, p, a, n: negate(less(c, w[a]["x"]))),
        (f"x + y > {c + 1} OR s = 'b'", lambda w, p, a, n: either(
            less(c + 1, plus(w[a]["x"], w[a]["y"])), equal(w[a]["s"], "b"))),
        ("PREV(s) || 'q' = 'aq'", lambda w, p, a, n: equal(value(w, a - 1, "s"), "a")),
        ("s LIKE 'a%' OR PREV(s) || s LIKE '%bc'", lambda w, p, a, n: either(
            equal(w[a]["s"], "a"),
            equal(glued(value(w, a - 1, "s"), w[a]["s"]), "bc"))),
        ("true", lambda w, p, a, n: True),
    ]  # fmt: skip
    return r.choice(options)


def glued(a: Any, b: Any) -> Any:
    return None if a is None or b is None else a + b


def label(path: Any, at: int, name: str, row: int) -> Any:
    """The variable of a row of the match."""
    return dict([*path, (at, name)]).get(row)


def path_dependent(r: random.Random, names: list[str], subset: Any) -> tuple[str, Any]:
    """A condition over what is matched already."""
    o = r.choice(names)
    c = r.randint(0, 4)
    k = r.randint(0, 2)
    which, members = ("U", set(subset)) if subset and r.random() < 0.3 else (o, {o})

    def total(w: Any, p: Any, a: int, n: str, chosen: Any) -> Any:
        values = [w[i]["y"] for i in chain(p, a, n, chosen) if w[i]["y"] is not None]
        return sum(values) if values else None

    def mean(w: Any, p: Any, a: int, n: str, chosen: Any) -> Any:
        values = [w[i]["y"] for i in chain(p, a, n, chosen) if w[i]["y"] is not None]
        return sum(values) / len(values) if values else None

    def greatest(w: Any, p: Any, a: int, n: str, chosen: Any) -> Any:
        values = [w[i]["x"] for i in chain(p, a, n, chosen) if w[i]["x"] is not None]
        return max(values) if values else None

    options: list[tuple[str, Any]] = [
        (f"x >= {which}.x + 1", lambda w, p, a, n: negate(
            less(w[a]["x"], plus(value(w, pick(chain(p, a, n, members), -1), "x"), 1)))),
        (f"x > FIRST({which}.x, {k})", lambda w, p, a, n: less(
            value(w, pick(chain(p, a, n, members), k), "x"), w[a]["x"])),
        (f"y <> LAST({which}.y, {k})", lambda w, p, a, n: negate(equal(
            w[a]["y"], value(w, pick(chain(p, a, n, members), -1 - k), "y")))),
        (f"count({which}.*) <= {c % 3}", lambda w, p, a, n: len(chain(p, a, n, members)) <= c % 3),
        (f"sum(y) < {3 * c}", lambda w, p, a, n: less(total(w, p, a, n, None), 3 * c)),
        (f"avg({which}.y) > {c}", lambda w, p, a, n: less(c, mean(w, p, a, n, members))),
        (f"max({which}.x) > {c}", lambda w, p, a, n: less(c, greatest(w, p, a, n, members))),
        (f"LAST(CLASSIFIER(), 1) = '{o}'", lambda w, p, a, n: equal(p[-1][1] if p else None, o)),
        (f"PREV(CLASSIFIER(), {k + 1}) = '{o}'", lambda w, p, a, n: equal(
            label(p, a, n, a - k - 1), o)),
        (f"NEXT(FIRST(CLASSIFIER({which}))) <> '{o}'", lambda w, p, a, n: negate(equal(
            label(p, a, n, pick(chain(p, a, n, members), 0) + 1), o))),
        (f"LAST({which}.s || CLASSIFIER({which}), {k}) LIKE '%{o}'", lambda w, p, a, n: (
            None if value(w, pick(chain(p, a, n, members), -1 - k), "s") is None
            else label(p, a, n, pick(chain(p, a, n, members), -1 - k)) == o)),
        (f"count(*) FILTER (WHERE y > {c}) < 2", lambda w, p, a, n: sum(
            less(c, w[i]["y"]) is True for i in chain(p, a, n, None)) < 2),
        (f"max({which}.x) FILTER (WHERE {which}.y <= {c}) < x", lambda w, p, a, n: less(
            max((w[i]["x"] for i in chain(p, a, n, members)
                 if w[i]["x"] is not None and less(c, w[i]["y"]) is False), default=None),
            w[a]["x"])),
        (f"s || {which}.s LIKE 'a%' OR {which}.s || s = 'cb'", lambda w, p, a, n: either(
            None if None in (w[a]["s"], value(w, pick(chain(p, a, n, members), -1), "s"))
            else w[a]["s"] == "a",
            equal(glued(value(w, pick(chain(p, a, n, members), -1), "s"), w[a]["s"]), "cb"))),
        (f"concat({which}.s, s) = 'b'", lambda w, p, a, n:
            (value(w, pick(chain(p, a, n, members), -1), "s") or "") + (w[a]["s"] or "") == "b"),
        (f"abs(x - FIRST({which}.x, {k})) > 1.5", lambda w, p, a, n: None if None in (
            w[a]["x"], value(w, pick(chain(p, a, n, members), k), "x"))
            else abs(w[a]["x"] - value(w, pick(chain(p, a, n, members), k), "x")) > 1.5),
        (f"PREV(LAST({which}.y, {k})) = {c}", lambda w, p, a, n: equal(
            value(w, pick(chain(p, a, n, members), -1 - k) - 1, "y"), c)),
        (f"s = {which}.s", lambda w, p, a, n: equal(
            w[a]["s"], value(w, pick(chain(p, a, n, members), -1), "s"))),
        (f"CASE WHEN {which}.s = 'a' THEN x > {c} ELSE y > {which}.y END", lambda w, p, a, n: (
            less(c, w[a]["x"])
            if value(w, pick(chain(p, a, n, members), -1), "s") == "a"
            else less(value(w, pick(chain(p, a, n, members), -1), "y"), w[a]["y"]))),
        (f"coalesce({which}.x, 2) > {c} OR y IS NULL", lambda w, p, a, n: either(
            less(c, 2 if value(w, pick(chain(p, a, n, members), -1), "x") is None
                 else value(w, pick(chain(p, a, n, members), -1), "x")), w[a]["y"] is None)),
    ]  # fmt: skip
    return r.choice(options)


# -- random patterns ----------------------------------------------------------------------------


def random_pattern(r: random.Random, names: list[str], depth: int, *, extras: bool) -> Any:
    kind = r.random()
    if depth == 0 or kind < 0.3:
        return ("var", r.choice(names))
    if kind < 0.55:
        parts = [random_pattern(r, names, depth - 1, extras=extras) for _ in range(r.randint(2, 3))]
        return ("cat", *parts)
    if kind < 0.68:
        parts = [random_pattern(r, names, depth - 1, extras=extras) for _ in range(2)]
        return ("alt", *parts)
    if kind < 0.92:
        low, high = r.choice([(0, None), (1, None), (0, 1), (2, 2), (1, 2), (0, 2), (2, None)])
        body = random_pattern(r, names, depth - 1, extras=False)
        return ("rep", body, low, high, r.random() < 0.7)
    if extras and kind < 0.95:
        return ("excl", random_pattern(r, names, depth - 1, extras=False))
    if extras and kind < 0.97:
        return ("perm", ("var", r.choice(names)), ("var", r.choice(names)))
    if extras and kind < 0.985:
        return ("cat", ("start",), random_pattern(r, names, depth - 1, extras=False))
    if extras:
        return ("cat", random_pattern(r, names, depth - 1, extras=False), ("end",))
    return ("alt", ("var", r.choice(names)), ("empty",))


def text_of(node: Any) -> str:
    kind = node[0]
    if kind == "var":
        return str(node[1])
    if kind == "cat":
        return "(" + " ".join(map(text_of, node[1:])) + ")"
    if kind == "alt":
        return "(" + " | ".join(map(text_of, node[1:])) + ")"
    if kind == "perm":
        return "PERMUTE(" + ", ".join(map(text_of, node[1:])) + ")"
    if kind == "excl":
        return "{- " + text_of(node[1]) + " -}"
    if kind == "rep":
        _, body, low, high, greedy = node
        bounds = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((low, high))
        bounds = bounds or f"{{{low},{'' if high is None else high}}}"
        return f"({text_of(body)}){bounds}" + ("" if greedy else "?")
    if kind == "absent":
        return "[^" + " ".join(node[1:]) + "]"
    return {"empty": "()", "start": "^", "end": "$"}[kind]


def random_rows(
    r: random.Random, count: int, keys: Sequence[str], longest: int = 14
) -> list[dict[str, Any]]:
    """Rows in time order; among many keys time passes as slowly as each of them needs it."""
    rows: list[dict[str, Any]] = []
    sizes: Counter[str] = Counter()
    calm = len(keys) / 3
    t = 0.0
    for _ in range(count):
        t += r.choice([0, 1, 1, 2, 5]) / max(1.0, calm)
        key = r.choice(keys)
        sizes[key] += 1
        if sizes[key] > longest:
            continue
        rows.append(
            {
                "t": int(t),
                "id": len(rows),
                "k": key,
                "x": None if r.random() < 0.1 else float(r.randint(0, 5)),
                "y": None if r.random() < 0.1 else r.randint(0, 5),
                "s": None if r.random() < 0.05 else r.choice("abc"),
            }
        )
    return rows


def used(node: Any) -> set[str]:
    if node[0] == "var":
        return {node[1]}
    return {name for part in node[1:] if isinstance(part, tuple) for name in used(part)}


def definitions(r: random.Random, names: list[str], subset: Any, share: float) -> Any:
    texts, functions = [], {}
    for name in names:
        if r.random() < 0.1:
            continue
        parts = [row_local(r)]
        if r.random() < share:
            parts = [path_dependent(r, names, subset)]
            if r.random() < 0.5:
                parts.append(row_local(r))
        texts.append(f"{name} AS " + " AND ".join(f"({sql})" for sql, _ in parts))
        checks = [check for _, check in parts]
        functions[name] = lambda w, p, a, n, checks=checks: (
            both(*(f(w, p, a, n) for f in checks)) is True
        )
    return texts, functions


def compiled_clause(clause: str) -> Any:
    return compile_match(clause_of_text(f"SELECT * FROM s {clause}"), SCHEMA)


def run(compiled: Any, rows: list[dict[str, Any]], batch: int) -> pa.Table:
    table = pa.Table.from_pylist(rows, schema=SCHEMA.arrow)
    batches = list(compiled.run(table.to_batches(max_chunksize=batch)))
    return pa.Table.from_batches(batches, compiled.output_schema)


@pytest.fixture(autouse=True, scope="module")
def small_buffers() -> Any:
    """Search after every batch, so that undecided matches cross buffers."""
    before = match_stream.ROWS_FIRST
    match_stream.ROWS_FIRST = 1
    COMPARED.clear()
    yield
    match_stream.ROWS_FIRST = before
    print("compared with the oracle: " + ", ".join(f"{n:,} {what}" for what, n in COMPARED.items()))


def partitions(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["k"], []).append(row)
    return list(groups.values())


def standard_case(seed: int, share: float) -> None:
    r = random.Random(seed)
    names = ["A", "B", "C", "D"][: r.randint(1, 4)]
    pattern = random_pattern(r, names, r.randint(1, 3), extras=True)
    names = sorted(used(pattern)) or []
    if not names:
        return
    subset = r.sample(names, r.randint(1, len(names))) if r.random() < 0.4 else None
    texts, functions = definitions(r, names, subset, share)
    window = r.choice([None, None, 0, 2, 5])
    mode = r.choice(["", "SHOW EMPTY MATCHES", "OMIT EMPTY MATCHES", "WITH UNMATCHED ROWS"])
    if "{-" in text_of(pattern) and "UNMATCHED" in mode:
        mode = ""
    skip: tuple[str, Any] = r.choice(
        [("past last", ()), ("next", ()), ("first", names[-1:]), ("last", names[-1:])]
    )
    skip_text = {"past last": "PAST LAST ROW", "next": "TO NEXT ROW"}.get(skip[0])
    if skip_text is None:
        skip_text = f"TO {skip[0].upper()} {skip[1][0]}"
    keys: Sequence[str] = r.choice(["p", "pq", "pqr", CROWD])
    crowd = keys is CROWD
    COMPARED["patterns"] += 1
    lines = [
        "PARTITION BY k " if len(keys) > 1 else "",
        "ORDER BY t MEASURES MATCH_NUMBER() AS mn, CLASSIFIER() AS c ",
        f"ALL ROWS PER MATCH {mode} AFTER MATCH SKIP {skip_text} PATTERN ({text_of(pattern)})",
        f" WITHIN {window}" if window is not None else "",
        f" SUBSET U = ({', '.join(subset)})" if subset else "",
        " DEFINE " + ", ".join(texts) if texts else "",
    ]
    clause = "MATCH_RECOGNIZE (" + "".join(lines) + ")"
    compiled = compiled_clause(clause)
    for _ in range(TRACES):
        rows = random_rows(r, 7 * len(keys) if crowd else r.randint(0, 14), keys)
        expected = []
        failed = False
        for group in partitions(rows):
            try:
                found = oracle.matches(group, pattern, functions, window, (skip[0], set(skip[1])))
            except oracle.SkipError:
                if crowd:  # one error would hide all the others' rows
                    rows = [row for row in rows if row["k"] != group[0]["k"]]
                    continue
                failed = True
                break
            COMPARED["traces"] += 1
            covered = set()
            for number, (start, path) in enumerate(found, 1):
                covered |= {row for row, _, _ in path} or {start}
                entries = [(group[i]["id"], number, label) for i, label, out in path if not out]
                if not path and "OMIT" not in mode:
                    entries = [(group[start]["id"], number, None)]
                expected.append((group[start]["id"], entries))
            if "UNMATCHED" in mode:
                expected += [
                    (row["id"], [(row["id"], None, None)])
                    for i, row in enumerate(group)
                    if i not in covered
                ]
        shown = f"seed {seed}\n{clause}\n{rows}"
        try:
            table = run(compiled, rows, r.choice([2, 5, 100]))
        except SqlError as error:
            if not failed:
                raise AssertionError(f"{error}\n{shown}") from error
            continue
        assert not failed, f"expected an error of SKIP TO\n{shown}"
        answer = list(zip(*(table.column(c).to_pylist() for c in ("id", "mn", "c")), strict=True))
        wanted = [entry for _, entries in sorted(expected, key=lambda e: e[0]) for entry in entries]
        assert answer == wanted, f"{answer}\n!=\n{wanted}\n{shown}"


def selection_case(seed: int, share: float) -> None:
    r = random.Random(seed)
    names = ["A", "B", "C"][: r.randint(2, 3)]
    pattern = random_pattern(r, names, r.randint(1, 2), extras=r.random() < 0.3)
    if "{-" in text_of(pattern):
        pattern = ("cat", ("var", "A"), ("rep", ("var", "B"), 0, None, True), ("var", names[-1]))
    strategy = r.choice(["contiguous", "next", "any"])
    names = sorted(used(pattern))
    if not names:
        return
    texts, functions = definitions(r, names, None, share)
    if strategy != "contiguous" and r.random() < 0.4:
        sql, check = row_local(r)
        texts.append(f"X AS {sql}")
        functions["X"] = lambda w, p, a, n, check=check: check(w, p, a, n) is True
        absent = ("absent", "X")
        pattern = r.choice(
            [
                ("cat", ("var", names[0]), absent, pattern, ("var", names[-1])),
                ("cat", ("var", names[0]), ("rep", ("cat", absent, pattern), 1, None, True)),
                ("cat", ("var", names[0]), pattern, absent),
                ("cat", ("var", names[0]), ("rep", ("cat", pattern, absent), 0, 2, True)),
                ("cat", ("var", names[0]), absent, ("perm", pattern, ("var", names[0]))),
                ("cat", ("var", names[0]), ("alt", ("cat", absent, pattern), ("var", names[-1]))),
            ]
        )
    window = r.choice([None, 3, 6])
    if "[^X]" in text_of(pattern):
        window = window or 4
    keys: Sequence[str] = r.choice(["p", "pq", CROWD])
    COMPARED["patterns"] += 1
    words = {
        "contiguous": "CONTIGUOUS", "next": "SKIP TILL NEXT MATCH", "any": "SKIP TILL ANY MATCH",
    }  # fmt: skip
    clause = (
        "MATCH_RECOGNIZE ("
        + ("PARTITION BY k " if len(keys) > 1 else "")
        + "ORDER BY t MEASURES MATCH_NUMBER() AS mn, CLASSIFIER() AS c "
        f"ALL ROWS PER MATCH PATTERN ({text_of(pattern)}) "
        + (f"WITHIN {window} " if window is not None else "")
        + f"EVENT SELECTION {words[strategy]} "
        + ("DEFINE " + ", ".join(texts) if texts else "")
        + ")"
    )
    compiled = compiled_clause(clause)
    for _ in range(2):
        rows = random_rows(r, 4 * len(keys) if keys is CROWD else r.randint(0, 7), keys, 7)
        listed = []
        for group in partitions(rows):
            COMPARED["traces"] += 1
            found = oracle.selected(group, pattern, functions, strategy, window)
            for number, match in enumerate(found, 1):
                entries = [(group[i]["id"], number, label) for i, label in match]
                listed.append((entries[0][0], entries))
        listed.sort(key=lambda e: e[0])
        wanted = [entry for _, entries in listed for entry in entries]
        shown = f"seed {seed}\n{clause}\n{rows}"
        try:
            table = run(compiled, rows, r.choice([2, 5, 100]))
        except (SqlError, ResourceLimit) as error:
            raise AssertionError(f"{error}\n{shown}") from error
        answer = list(zip(*(table.column(c).to_pylist() for c in ("id", "mn", "c")), strict=True))
        assert answer == wanted, f"{answer}\n!=\n{wanted}\n{shown}"


def seeds(count: int) -> range:
    """The first ones; by night others each time."""
    first = random.randrange(2**40) if NIGHTLY else 0
    return range(first, first + count)


def test_row_local_conditions_match_as_the_oracle_does() -> None:
    for seed in seeds(PATTERNS):
        standard_case(seed, 0.0)


def test_path_dependent_conditions_match_as_the_oracle_does() -> None:
    for seed in seeds(PATTERNS):
        standard_case(seed, 0.6)


class NotComputed(Exception):
    """A value that SQL cannot compute was asked for."""


def quotient(a: Any) -> Any:
    if a is None:
        return None
    if a == 2:
        raise NotComputed
    return int(12 / (a - 2))


def failing_case(seed: int) -> None:
    """Conditions that fail on some rows fail the query when the search asks for those rows."""
    r = random.Random(seed)
    names = ["A", "B", "C"][: r.randint(1, 3)]
    pattern = random_pattern(r, names, r.randint(1, 3), extras=True)
    names = sorted(used(pattern))
    if not names:
        return
    texts, functions = [], {}
    for name in names:
        kind = r.choice(["now", "before", "moved", "path", "table", "plain"])
        o = r.choice(names)
        sql, local = r.choice(
            [("x > 1", lambda w, a: less(1, w[a]["x"])), ("true", lambda w, a: True)]
        )
        broken: dict[str, tuple[str, Any]] = {
            "now": ("12 // (y - 2) > 3", lambda w, p, a, n: less(3, quotient(w[a]["y"]))),
            "before": ("12 // (PREV(y) - 2) > y", lambda w, p, a, n: less(
                w[a]["y"], quotient(value(w, a - 1, "y")))),
            "moved": ("PREV(12 // (y - 2)) <> 6", lambda w, p, a, n: negate(equal(
                6, quotient(value(w, a - 1, "y"))))),
            "path": (f"y <= LAST(12 // ({o}.y - 2), 1)", lambda w, p, a, n, o=o: negate(less(
                quotient(value(w, pick(chain(p, a, n, {o}), -2), "y")), w[a]["y"]))),
            "table": (f"CAST(s || {o}.s AS DATE) IS NULL", lambda w, p, a, n, o=o: converted(
                glued(w[a]["s"], value(w, pick(chain(p, a, n, {o}), -1), "s")))),
            "plain": ("y >= 0", lambda w, p, a, n: negate(less(w[a]["y"], 0))),
        }  # fmt: skip
        text, check = broken[kind]
        texts.append(f"{name} AS " + " AND ".join(r.sample([sql, text], 2)))
        functions[name] = lambda w, p, a, n, local=local, check=check: (
            local(w, a) is True and check(w, p, a, n) is True
        )
    window = r.choice([None, None, 3])
    clause = (
        "MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES MATCH_NUMBER() AS mn ALL ROWS PER "
        f"MATCH AFTER MATCH SKIP TO NEXT ROW PATTERN ({text_of(pattern)}) "
        + (f"WITHIN {window} " if window is not None else "")
        + f"DEFINE {', '.join(texts)})"
    )
    compiled = compiled_clause(clause)
    for _ in range(TRACES):
        rows = random_rows(r, r.randint(0, 8), "pq")
        COMPARED["traces that may fail"] += 1
        shown = f"seed {seed}\n{clause}\n{rows}"
        try:
            listed = []
            for group in partitions(rows):
                found = oracle.matches(group, pattern, functions, window, ("next", ()))
                for number, (start, path) in enumerate(found, 1):
                    entries = [(group[i]["id"], number) for i, _, out in path if not out]
                    listed.append((group[start]["id"], entries or [(group[start]["id"], number)]))
                    if path and not entries:
                        listed.pop()
            wanted = [e for _, entries in sorted(listed, key=lambda e: e[0]) for e in entries]
        except NotComputed:
            size = r.choice([2, 5, 100])
            try:
                run(compiled, rows, size)
            except SqlError as error:
                assert "cannot be computed" in str(error), shown  # noqa: PT017
            else:
                raise AssertionError(f"expected an error\n{shown}") from None
            continue
        try:
            table = run(compiled, rows, r.choice([2, 5, 100]))
        except SqlError as error:
            raise AssertionError(f"{error}\n{shown}") from error
        answer = list(zip(*(table.column(c).to_pylist() for c in ("id", "mn")), strict=True))
        assert answer == wanted, f"{answer}\n!=\n{wanted}\n{shown}"


def converted(text: Any) -> Any:
    """Whether a date is null: these strings are none, and an error."""
    if text is None:
        return True
    raise NotComputed


def test_errors_come_when_the_search_comes_to_them() -> None:
    for seed in seeds(PATTERNS):
        failing_case(seed)


def test_event_selection_finds_the_sets_of_the_definitions() -> None:
    for seed in seeds(PATTERNS * 2):
        selection_case(seed, 0.3)

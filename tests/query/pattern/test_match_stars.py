"""Stars that every event satisfies, between symbols with conditions: the search jumps over them.

Random patterns of that kind against the brute-force oracle, in every skip mode, with and without
windows and partitions, one row per match and all rows; and the same search with and without jumps
over longer streams.

``CHRONICLE_HYPOTHESIS=nightly`` and ``CHRONICLE_PATTERNS`` size the runs, as for the other
differential tests.  A failure names its seed: ``star_case(seed)`` repeats it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chronicle.errors import SqlError
from chronicle.query.pattern import match_stream, matcher
from chronicle.query.pattern import search as codes

from . import test_match_differential as common
from .conftest import over

oracle = common.oracle

JUMPED: Counter[str] = Counter()
"""What the search with jumps was seen doing."""


def watched(search: Any) -> Any:
    """Count the runs of more than one row that a search puts out for stars."""

    def call(*arguments: Any) -> int:
        _edges, stars, *_, state, output = arguments
        before = int(state[codes.RUNS])
        status = int(search(*arguments))
        kind, after = stars.kind, int(state[codes.RUNS])
        places, begins = output.place[before:after], output.begin[before:after]
        first = np.flatnonzero(begins[1:] > begins[:-1])  # runs that another run follows
        long = begins[first + 1] - begins[first] > 1
        JUMPED["runs of stars"] += int(np.count_nonzero((kind[places[first]] > 0) & long))
        JUMPED["searches with stars"] += int(kind.any())
        return status

    return call


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Search after every batch, so that undecided matches cross buffers; count jumps."""
    monkeypatch.setattr(match_stream, "ROWS_FIRST", 1)
    monkeypatch.setattr(matcher, "match_contiguous", watched(matcher.match_contiguous))
    JUMPED.clear()
    yield
    print(", ".join(f"{count:,} {what}" for what, count in JUMPED.items()))


def star(r: random.Random, name: str) -> Any:
    low, high = r.choice([(0, None), (0, None), (0, None), (1, None), (2, None), (0, 2), (1, 3)])
    return ("rep", ("var", name), low, high, r.random() < 0.65)


def symbol(r: random.Random, names: list[str]) -> Any:
    node: Any = ("var", r.choice(names))
    kind = r.random()
    if kind < 0.1:
        node = ("alt", node, ("var", r.choice(names)))
    elif kind < 0.25:
        node = ("rep", node, *r.choice([(0, 1), (1, None), (0, None), (2, 2)]), r.random() < 0.6)
    return node


def star_pattern(r: random.Random, names: list[str], free: list[str]) -> Any:
    """Symbols with stars between them, rarely around them, rarely as a group that is repeated."""
    parts = [star(r, r.choice(free))] if r.random() < 0.15 else []
    for i in range(r.randint(1, 4)):
        if i and r.random() < 0.75:
            parts += [star(r, r.choice(free)) for _ in range(r.choice([1, 1, 1, 2]))]
        parts.append(symbol(r, names))
    if r.random() < 0.15:
        parts.append(star(r, r.choice(free)))
    if len(parts) > 2 and r.random() < 0.2:
        at = r.randint(0, len(parts) - 2)
        low, high = r.choice([(0, None), (1, None), (1, 2), (0, 1)])
        parts[at : at + 2] = [("rep", ("cat", *parts[at : at + 2]), low, high, r.random() < 0.6)]
    if r.random() < 0.1:
        at = r.randint(0, len(parts) - 1)
        parts[at] = ("alt", ("cat", star(r, free[0]), ("var", names[0])), parts[at])
    if r.random() < 0.06:
        parts = r.choice([[("start",), *parts], [*parts, ("end",)]])
    return ("cat", *parts)


ONE = (
    "MATCH_NUMBER() AS mn, FIRST(id) AS f, LAST(id) AS l, count(*) AS n, CLASSIFIER() AS c, "
    "LAST(CLASSIFIER(), 1) AS d, count(Z.*) AS nz, FIRST(Z.id, 1) AS fz, LAST(Z.id, 2) AS lz, "
    "NEXT(FIRST(Z.id)) AS az, LAST(A.id) AS la, PREV(A.id) AS pa"
)
ALL = (
    "MATCH_NUMBER() AS mn, id AS i, CLASSIFIER() AS c, count(Z.*) AS nz, FINAL count(Z.*) AS tz, "
    "FIRST(Z.id) AS fz, LAST(Z.id, 1) AS lz, FINAL LAST(Z.id) AS ez, sum(A.id) AS sa"
)


def one_row(group: Any, number: int, path: Any, sums: bool) -> tuple[Any, ...]:
    """The measures of a match, from their definitions."""

    def identity(row: int) -> Any:
        return group[row]["id"] if 0 <= row < len(group) else None

    def of(chosen: list[int], index: int) -> Any:
        return identity(chosen[index]) if -len(chosen) <= index < len(chosen) else None

    rows = [row for row, _, _ in path]
    z = [row for row, name, _ in path if name == "Z"]
    a = [row for row, name, _ in path if name == "A"]
    labels = [name for _, name, _ in path]
    found = (
        number, of(rows, 0), of(rows, -1), len(rows), labels[-1] if labels else None,
        labels[-2] if len(labels) > 1 else None, len(z), of(z, 1), of(z, -3),
        identity(z[0] + 1) if z else None, of(a, -1), identity(a[-1] - 1) if a else None,
    )  # fmt: skip
    return (*found, sum(group[row]["id"] for row in z) if z else None) if sums else found


def all_rows(group: Any, number: int, path: Any) -> list[tuple[Any, ...]]:
    """The measures of each row of a match."""
    found = []
    every = [group[row]["id"] for row, name, _ in path if name == "Z"]
    for i, (row, name, _) in enumerate(path):
        z = [group[at]["id"] for at, label, _ in path[: i + 1] if label == "Z"]
        a = [group[at]["id"] for at, label, _ in path[: i + 1] if label == "A"]
        found.append(
            (
                number, group[row]["id"], name, len(z), len(every), z[0] if z else None,
                z[-2] if len(z) > 1 else None, every[-1] if every else None, sum(a) if a else None,
            )
        )  # fmt: skip
    return found or [(number, None, None, 0, 0, None, None, None, None)]


def star_case(seed: int) -> None:
    """One pattern over some traces."""
    r = random.Random(seed)
    free = ["Z", "Y"][: r.randint(1, 2)]
    pattern = star_pattern(r, ["A", "B", "C"], free)
    names = common.used(pattern)
    if not {"A", "Z"} <= names:
        return
    texts, functions = common.definitions(r, sorted(names - set(free)), None, 0.0)
    if "Y" in names and r.random() < 0.3:
        texts.append("Y AS true")
    window = r.choice([None, 0, 3, 6, 6, 12])
    skip: tuple[str, Any] = r.choice(
        [
            ("past last", ()),
            ("next", ()),
            ("next", ()),
            ("first", "A"),
            ("last", "A"),
            ("last", "Z"),
        ]
    )
    words = {"past last": "PAST LAST ROW", "next": "TO NEXT ROW"}
    skip_text = words.get(skip[0]) or f"TO {skip[0].upper()} {skip[1]}"
    keys = r.choice(["p", "p", "pq", "pqr"])
    whole = r.random() < 0.4
    sums = not whole and r.random() < 0.3
    clause = (
        "MATCH_RECOGNIZE ("
        + ("PARTITION BY k " if len(keys) > 1 else "")
        + f"ORDER BY t MEASURES {ALL if whole else ONE}{', sum(Z.id) AS sz' if sums else ''} "
        + ("ALL ROWS PER MATCH " if whole else "")
        + f"AFTER MATCH SKIP {skip_text} PATTERN ({common.text_of(pattern)})"
        + (f" WITHIN {window}" if window is not None else "")
        + (f" DEFINE {', '.join(texts)}" if texts else "")
        + ")"
    )
    compiled = common.compiled_clause(clause)
    for _ in range(common.TRACES):
        rows = common.random_rows(r, r.randint(0, 16), keys, 16)
        JUMPED["traces"] += 1
        shown = f"seed {seed}\n{clause}\n{rows}"
        expected: list[tuple[int, list[tuple[Any, ...]]]] = []
        failed = False
        for group in common.partitions(rows):
            try:
                found = oracle.matches(group, pattern, functions, window, (skip[0], {*skip[1]}))
            except oracle.SkipError:
                failed = True
                break
            for number, (start, path) in enumerate(found, 1):
                lines = [one_row(group, number, path, sums)]
                if whole:
                    lines = all_rows(group, number, path)
                expected.append((group[start]["id"], lines))
        try:
            table = common.run(compiled, rows, r.choice([1, 3, 5, 100]))
        except SqlError as error:
            if not failed:
                raise AssertionError(f"{error}\n{shown}") from error
            continue
        assert not failed, f"expected an error of SKIP TO\n{shown}"
        wanted = [line for _, lines in sorted(expected, key=lambda e: e[0]) for line in lines]
        width = len(wanted[0]) if wanted else 0
        columns = [m.name for m in compiled.clause.measures][:width]
        answer = list(zip(*(table.column(c).to_pylist() for c in columns), strict=True))
        assert table.num_rows == len(wanted), f"{table.num_rows} != {len(wanted)}\n{shown}"
        assert answer == wanted, f"{answer}\n!=\n{wanted}\n{shown}"


def test_stars_match_as_the_oracle_does() -> None:
    for seed in common.seeds(common.PATTERNS * 4):
        star_case(seed)
    # the search really jumped, and often
    assert JUMPED["runs of stars"] > JUMPED["traces"] / 10, JUMPED


def spaced_pattern(r: random.Random) -> Any:
    """Symbols with a star after each but the last, sometimes as a group that is repeated."""
    parts: list[Any] = []
    for name in ["A", *(r.choice("ABC") for _ in range(r.randint(1, 3)))]:
        parts += [("var", name), ("rep", ("var", r.choice("ZY")), 0, None, r.random() < 0.6)]
    if r.random() < 0.2:
        return ("cat", ("rep", ("cat", *parts), 1, r.choice([2, None]), True), ("var", "C"))
    if r.random() < 0.2:
        parts[-2] = ("alt", parts[-2], ("var", r.choice("ABC")))
    return ("cat", *parts[:-1])


def idle_case(seed: int) -> None:
    """One pattern whose results read no row of a star, over some traces, by partition: the same
    with and without the rows that are nothing but events between two others.
    """
    r = random.Random(seed)
    pattern = star_pattern(r, ["A", "B", "C"], ["Z", "Y"])
    if r.random() < 0.7:
        pattern = spaced_pattern(r)
    names = common.used(pattern)
    if "A" not in names:
        return
    texts, _ = common.definitions(r, sorted(names - {"Z", "Y"}), None, 0.0)
    skip = r.choice(["PAST LAST ROW", "TO NEXT ROW", "TO LAST A", "TO FIRST A"])
    window = r.choice(["", "", "WITHIN 3", "WITHIN 6", "WITHIN 12"])
    compiled = common.compiled_clause(
        "MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES MATCH_NUMBER() AS mn, A.id AS a, "
        "FIRST(A.id, 1) AS fa, count(A.*) AS na, sum(A.id) AS sa, CLASSIFIER(A) AS ca, "
        "FIRST(id) AS f, LAST(id) AS l, y AS py "
        f"AFTER MATCH SKIP {skip} PATTERN ({common.text_of(pattern)}) {window} "
        + (f"DEFINE {', '.join(texts)})" if texts else ")")
    )
    for _ in range(common.TRACES):
        rows = common.random_rows(r, r.randint(0, 24), "pq", 16)
        size = r.choice([1, 3, 5, 100])
        answers = []
        for left_out in (True, False):
            with pytest.MonkeyPatch.context() as patch:
                if not left_out:
                    patch.setattr(matcher, "idle_bits", lambda compiled, stars: 0)
                try:
                    table = common.run(compiled, rows, size)
                    answers.append(table.to_pylist())
                    JUMPED["matches"] += table.num_rows
                except SqlError as error:
                    answers.append([{"error": str(error)}])
        JUMPED["traces"] += 1
        limits = match_stream.MatchLimits()
        idle = matcher.Matcher(compiled, limits, str).idle
        JUMPED["traces with idle rows"] += int(idle > 0)
        assert answers[0] == answers[1], f"seed {seed}\n{compiled.clause}\n{rows}"


def test_rows_that_only_stars_match_change_nothing() -> None:
    for seed in common.seeds(common.PATTERNS * 2):
        idle_case(seed)
    assert JUMPED["traces with idle rows"] > JUMPED["traces"] / 5, JUMPED
    assert JUMPED["matches"] > JUMPED["traces"] / 10, JUMPED


@pytest.mark.parametrize(
    ("pattern", "measures", "left_out"),
    [
        ("A Z* B", "B.t AS b", True),
        ("A Z*? B Y* C", "B.t AS b, MATCH_NUMBER() AS n, count(A.*) AS c", True),
        ("(A Z* B Z*)+ C", "B.t AS b", True),
        ("A Z* B", "count(*) AS n", False),
        ("A Z* B", "FIRST(t) AS a, LAST(t) AS b, x AS c", True),
        ("A Z* B", "LAST(t, 1) AS b", False),
        ("A Z* B", "FIRST(t, 1) AS b", False),
        ("A Z* B", "LAST(CLASSIFIER()) AS b", False),
        ("A Z* B", "PREV(B.t) AS b", False),
        ("A Z* B", "LAST(Z.t) AS b", False),
        ("A B Z* C", "B.t AS b", False),  # B follows A at once
        ("A Z+ B", "B.t AS b", False),
        ("A Z* B Z*", "B.t AS b", False),
        ("A (B | Z* C)", "C.t AS b", False),
        ("A Z* (B | Y* C)", "B.t AS b", False),
        ("^ A Z* B", "B.t AS b", False),
    ],
)
def test_when_rows_that_only_stars_match_are_left_out(
    pattern: str, measures: str, left_out: bool
) -> None:
    define = ", ".join(f"{n} AS x = {i}" for i, n in enumerate("ABC") if n in pattern)
    compiled = common.compiled_clause(
        f"MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES {measures} PATTERN ({pattern}) "
        f"WITHIN 9 DEFINE {define})"
    )
    assert bool(matcher.Matcher(compiled, match_stream.MatchLimits(), str).idle) == left_out


LONG = {
    "next": "AFTER MATCH SKIP TO NEXT ROW",
    "past": "AFTER MATCH SKIP PAST LAST ROW",
    "last": "AFTER MATCH SKIP TO LAST A",
}


@pytest.mark.parametrize("skip", LONG)
@pytest.mark.parametrize(
    ("pattern", "within"),
    [
        ("A Z* B", 40), ("A Z*? B", 40), ("A B Z* C A", 60), ("A Z* B Y*? C Z* A", 80),
        ("A Z+ B Z{2,}? C", 50), ("A (Z* B)+ C", 30), ("(A Z*?)* B C", 25), ("A B Z*", 12),
        ("Z* A B", 9), ("A Z* Y* B", 30), ("A Z* B", None), ("A Z*? B C", None),
        ("A Z* (B | C Z*) A{65} B", 200), ("A Z*? B Z* C{64} A", None), ("A{0,65} Z* B C A", 100),
    ],
)  # fmt: skip
def test_jumps_find_what_a_walk_finds(
    monkeypatch: pytest.MonkeyPatch, pattern: str, within: int | None, skip: str
) -> None:
    """Streams with windows of dozens of rows, several buffers, and patterns beyond 64 positions."""
    rng = np.random.default_rng(len(pattern) + (within or 0))
    count = 4_000 if within else 400
    rare = 0.9 if "{" in pattern and "6" in pattern else 0.15
    table = pa.table(
        {
            "t": np.cumsum(rng.integers(0, 3, count)),
            "k": rng.integers(0, 3, count),
            "x": np.where(rng.random(count) < rare, 1, rng.integers(0, 8, count)),
        }
    )
    conditions = {"A": "x <= 1", "B": "x = 2 OR x = 1", "C": "x = 3 OR x = 1"}
    defined = ", ".join(f"{n} AS {sql}" for n, sql in conditions.items() if n in pattern)
    clause = (
        "PARTITION BY k ORDER BY t MEASURES MATCH_NUMBER() AS mn, FIRST(t) AS f, LAST(t) AS l, "
        "count(Z.*) AS z, count(*) AS n, LAST(B.t) AS b, FIRST(A.t, 1) AS a, LAST(Z.t, 1) AS y "
        f"{LONG[skip]} PATTERN ({pattern})"
        + (f" WITHIN {within}" if within else "")
        + f" DEFINE {defined}"
    )
    monkeypatch.setattr(match_stream, "ROWS_FIRST", 700)
    compiled = over(clause, table)

    def answer() -> Any:
        try:
            batches = list(compiled.run(table.to_batches(max_chunksize=300)))
        except SqlError as error:
            return str(error)
        return pa.Table.from_batches(batches, compiled.output_schema).to_pylist()

    jumping = answer()
    assert JUMPED["searches with stars"] > 0
    found = matcher.stars_of
    monkeypatch.setattr(matcher, "stars_of", lambda a, p: found(a, p).without(a.tables[0]))
    JUMPED.clear()
    walking = answer()
    assert JUMPED["searches with stars"] == 0
    assert jumping == walking
    assert jumping

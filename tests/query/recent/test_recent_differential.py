"""Every order of evaluation against the definitions: random streams, patterns, distances, kinds.

Streams lie in small leaves, partly in memory, with late events, with and without indexes; patterns
that can go on past the other side's row are over-represented.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.query.recent import narrowing
from chronicle.query.replay import planning
from chronicle.query.run import recent_operator

from ... import oracles_patterns
from ... import oracles_recent as oracle
from ...rounds import rounds
from ..pattern.test_match_differential import used
from .conftest import in_order

CASES = rounds(10, 16, 400)
ORDERS = ("eager", "live_first", "archive_first", "both")
SCHEMA = pa.schema([("t", pa.int64()), ("id", pa.int64()), ("k", pa.string()), ("x", pa.int64())])


@pytest.fixture(autouse=True, scope="module")
def narrowed_always() -> Iterator[None]:
    """Regions are read for themselves, however near to each other and however large."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(narrowing, "WORTH", 10.0)
        for module in (narrowing, recent_operator):
            patch.setattr(module, "READ_GAP", 0)
        patch.setitem(planning.plan_match.__kwdefaults__, "gap", 0)
        yield


# -- conditions and patterns ------------------------------------------------------------------


def condition(r: random.Random) -> tuple[str, Any]:
    """A condition as SQL, and as a function of rows, path, row, label."""
    c = r.randint(0, 3)
    options: list[tuple[str, Any]] = [
        (f"x > {c}", lambda w, p, a, n: w[a]["x"] > c),
        (f"x <= {c}", lambda w, p, a, n: w[a]["x"] <= c),
        (f"x = {c}", lambda w, p, a, n: w[a]["x"] == c),
        ("x < PREV(x)", lambda w, p, a, n: a > 0 and w[a]["x"] < w[a - 1]["x"]),
        ("x > PREV(x)", lambda w, p, a, n: a > 0 and w[a]["x"] > w[a - 1]["x"]),
        ("x >= A.x", lambda w, p, a, n: w[a]["x"] >= labelled(w, p, a, n)),
    ]
    return r.choice(options[: 5 if r.random() < 0.7 else 6])


def labelled(rows: Any, path: Any, at: int, name: str) -> int:
    """x of the last row that is an A; the row at hand counts when it is one."""
    found = [row for row, label in [*path, (at, name)] if label == "A"]
    return int(rows[found[-1]]["x"]) if found else 10**9


A, B, C = (("var", name) for name in "ABC")


def some(node: Any, low: int, high: int | None = None, greedy: bool = True) -> Any:
    return ("rep", node, low, high, greedy)


PATTERNS: list[tuple[str, Any]] = [
    ("A B+", ("cat", A, some(B, 1))),
    ("A B", ("cat", A, B)),
    ("A B* C?", ("cat", A, some(B, 0), some(C, 0, 1))),
    ("A B+ C* B+", ("cat", A, some(B, 1), some(C, 0), some(B, 1))),
    ("A+", some(A, 1)),
    ("A (B | C)+?", ("cat", A, some(("alt", B, C), 1, None, False))),
    ("A B? (B C)?", ("cat", A, some(B, 0, 1), some(("cat", B, C), 0, 1))),
    ("A B C", ("cat", A, B, C)),
]
MODES = ("MAXIMAL", "INCREMENTAL", "next", "past last", "contiguous", "till next")


class Side:
    """One side: its text, and its events by definition."""

    def __init__(self, r: random.Random, alias: str, stream: str) -> None:
        self.alias, self.stream = alias, stream
        self.plain = r.random() < 0.12
        text, self.pattern = r.choice(PATTERNS)
        self.mode = r.choice(MODES)
        self.window = r.choice([None, 2, 4, 8])
        self.keyed = r.random() < 0.5
        self.conditions: dict[str, Any] = {}
        definitions = []
        for name in sorted(used(self.pattern)):
            if r.random() < 0.85:
                sql, self.conditions[name] = condition(r)
                definitions.append(f"{name} AS {sql}")
        if self.plain:
            self.text = f"{stream} AS {alias}"
            return
        skips = {
            "MAXIMAL": "MAXIMAL MATCH", "INCREMENTAL": "INCREMENTAL MATCH",
            "next": "AFTER MATCH SKIP TO NEXT ROW", "past last": "",
        }  # fmt: skip
        selections = {"contiguous": "CONTIGUOUS", "till next": "SKIP TILL NEXT MATCH"}
        parts = [
            "PARTITION BY k" if self.keyed else "",
            "ORDER BY t MEASURES FIRST(id) AS id, LAST(id) AS e, LAST(x) AS x",
            skips.get(self.mode, ""), f"PATTERN ({text})",
            f"WITHIN {self.window}" if self.window is not None else "",
            f"EVENT SELECTION {selections[self.mode]}" if self.mode in selections else "",
            "DEFINE " + ", ".join(definitions) if definitions else "",
        ]  # fmt: skip
        self.text = f"{stream} MATCH_RECOGNIZE ({' '.join(parts)}) AS {alias}"

    def events(self, rows: list[dict[str, Any]]) -> list[tuple[int, int, str | None, int, int]]:
        """Start, end, key, id of the first event, x of the last; in the order of the side."""
        if self.plain:
            return [(row["t"], row["t"], row["k"], row["id"], row["x"]) for row in rows]
        groups: dict[str | None, list[dict[str, Any]]] = {}
        for row in rows:
            groups.setdefault(row["k"] if self.keyed else None, []).append(row)
        found = []
        for key, group in groups.items():
            for number, (first, last) in enumerate(self._matches(group)):
                one, other = group[first], group[last]
                order = (rows.index(one), number)
                found.append((order, (one["t"], other["t"], key, one["id"], other["x"])))
        return [event for _, event in sorted(found, key=lambda pair: pair[0])]

    def _matches(self, rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
        if self.mode in ("next", "past last"):
            found = oracles_patterns.matches(
                rows, self.pattern, self.conditions, self.window, (self.mode, ())
            )
            return [(path[0][0], path[-1][0]) for _, path in found if path]
        if self.mode == "till next":
            sets = oracles_patterns.selected(
                rows, self.pattern, self.conditions, "next", self.window
            )
            return [(path[0][0], path[-1][0]) for path in sets]
        listed = oracle.contiguous(rows, self.pattern, self.conditions, self.window)
        chosen = {"MAXIMAL": oracle.maximal, "INCREMENTAL": oracle.incremental}
        return [match[:2] for match in chosen.get(self.mode, list)(listed)]


def random_rows(r: random.Random, count: int) -> list[dict[str, Any]]:
    rows, t, x = [], 0, 2
    for number in range(count):
        t += r.choice([0, 1, 1, 1, 2, 9])
        x = max(0, min(5, x + r.choice([-2, -1, -1, 0, 1, 1, 2])))
        rows.append({"t": t, "id": number, "k": r.choice("pq"), "x": x})
    return rows


def store(db: Any, name: str, r: random.Random, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put rows into a stream; the order in which it has them then."""
    stream = db.create_stream(name, SCHEMA, time="t", options={"leaf_bytes": 4096})
    late = sorted(r.sample(range(len(rows)), 3)) if len(rows) > 9 and r.random() < 0.3 else []
    fresh = [row for number, row in enumerate(rows) if number not in late]
    cut = r.randint(0, len(fresh))
    for part in (fresh[:cut], fresh[cut:], [rows[number] for number in late]):
        if part:
            stream.append(pa.Table.from_pylist(part, SCHEMA))
            stream.flush()
    if r.random() < 0.3:
        stream.compact()
    if r.random() < 0.5:
        stream.create_index("x")
    if r.random() < 0.3:
        stream.seal()
    return list(stream.scan().read_all().to_pylist())


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chronicle.open(tmp_path_factory.mktemp("recent") / "store") as opened:
        yield opened


@pytest.mark.parametrize("seed", range(CASES))
def test_all_orders_give_the_rows_of_the_definitions(db: Any, seed: int) -> None:
    r = random.Random(seed)
    rows = {}
    names = [f"s{seed}"] if r.random() < 0.5 else [f"s{seed}", f"u{seed}"]
    for name in names:
        rows[name] = store(db, name, r, random_rows(r, r.choice([0, 5, 10, 11])))
    live = Side(r, "l", names[0])
    archive = Side(r, "a", names[-1])
    for _ in range(2):
        kind = r.choice(["", "", "", "LEFT ", "SEMI ", "ANTI "])
        distance = r.choice([None, 0, 2, 5, 9, 30])
        last = r.choice([None, None, 1, 2]) if kind in ("", "LEFT ") else None
        both_keyed = (live.plain or live.keyed) and (archive.plain or archive.keyed)
        conditions: list[tuple[str, Any]] = []
        if both_keyed and r.random() < 0.6:
            conditions.append(("a.k = l.k", lambda one, other: one[2] == other[2]))
        if r.random() < 0.3:
            conditions.append(("a.x >= l.x", lambda one, other: other[4] >= one[4]))
        if r.random() < 0.3:
            conditions.append(("a.x > 1", lambda one, other: other[4] > 1))
        if r.random() < 0.3:
            conditions.append(("l.x < 4", lambda one, other: one[4] < 4))
        chosen = r.choice(["", "", "l.x > 1", "l.x > 1 AND a.x < 4"])
        if kind in ("SEMI ", "ANTI "):
            chosen = chosen[:7]
        shown = "l.id" if kind in ("SEMI ", "ANTI ") else "l.id, match_end(l), a.id, match_end(a)"
        text = f"SELECT {shown} FROM {live.text} RECENT {f'LAST {last} ' if last else ''}"
        text += f"{kind}JOIN {archive.text}"
        if conditions:
            text += " ON " + " AND ".join(sql for sql, _ in conditions)
        if distance is not None:
            text += f" WITHIN {distance}"
        text += f" WHERE {chosen}" if chosen else ""
        mine, theirs = live.events(rows[names[0]]), archive.events(rows[names[-1]])
        pairs = oracle.joined(
            theirs, mine, kind.strip().lower() or "inner", distance=distance, last=last,
            condition=lambda one, other, c=conditions: all(f(one, other) for _, f in c),
        )  # fmt: skip
        if chosen:
            pairs = [(i, j) for i, j in pairs if mine[i][4] > 1]
        if "a.x" in chosen:
            pairs = [(i, j) for i, j in pairs if j is not None and theirs[j][4] < 4]
        if kind in ("SEMI ", "ANTI "):
            wanted: list[tuple[Any, ...]] = [(mine[i][3],) for i, _ in pairs]
        else:
            nothing = (None,) * 5
            partners = [nothing if j is None else theirs[j] for _, j in pairs]
            wanted = [
                (mine[i][3], mine[i][1], other[3], other[1])
                for (i, _), other in zip(pairs, partners, strict=True)
            ]
        for order in ORDERS:
            if order in ("archive_first", "both") and kind in ("LEFT ", "ANTI "):
                continue
            with in_order(order):
                found = db.sql(text).fetchall()
            assert found == wanted, f"seed {seed}, {order}\n{text}\n{rows}"


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("within", ["", "WITHIN 20"])
def test_a_match_is_not_cut_to_its_region(db: Any, order: str, within: str) -> None:
    """A rise that goes on past the live event, and a fall that began before the region."""
    name = f"cut_{order}_{len(within)}"
    for stream, values in ((f"{name}_up", range(8)), (f"{name}_down", range(8, 0, -1))):
        rows = [{"t": t, "id": t, "k": "p", "x": x} for t, x in enumerate(values)]
        db.create_stream(stream, SCHEMA, time="t").append(pa.Table.from_pylist(rows, SCHEMA))
    one = db.create_stream(f"{name}_one", SCHEMA, time="t")
    one.append(pa.Table.from_pylist([{"t": 3, "id": 0, "k": "p", "x": 0}], SCHEMA))
    rise = f"""{name}_up MATCH_RECOGNIZE (MEASURES FIRST(t) AS b, LAST(t) AS e {{}} MATCH
      PATTERN (A B+) {within} DEFINE B AS x > PREV(x)) AS a"""
    asked = f"SELECT /*+ recent({order}) */ a.b, a.e FROM {name}_one l RECENT JOIN {rise} WITHIN 3"
    assert db.sql(asked.format("MAXIMAL")).fetchall() == []
    assert db.sql(asked.format("INCREMENTAL")).fetchall() == [(0, 1), (0, 2)]
    fall = f"""{name}_down MATCH_RECOGNIZE (MEASURES FIRST(t) AS b, LAST(t) AS e {{}} MATCH
      PATTERN (A B+) {within} DEFINE B AS x < PREV(x)) AS l"""
    asked = f"SELECT /*+ recent({order}) */ l.b, l.e FROM {fall} RECENT JOIN {name}_one a WITHIN 2"
    assert db.sql(asked.format("INCREMENTAL")).fetchall() == []
    assert db.sql(asked.format("MAXIMAL")).fetchall() == []

"""The operator against the definitions, over random streams and patterns.

Streams have ties, nulls, gaps, partitions that begin late and runs that never end; patterns any
sets of relations, durations, windows and gaps.  Whatever the batches, the order of joins and the
mode: the rows, and their order, are those of the oracle.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import pyarrow as pa
import pytest

from chronicle.errors import SqlError
from chronicle.query.pattern.compiled import MatchLimits
from chronicle.query.situations.compiled import CompiledSituations
from chronicle.query.situations.stream import SituationStream

from ... import oracles_situations as oracle
from ...rounds import rounds

CASES = int(os.environ.get("CHRONICLE_SITUATION_CASES", rounds(35, 250, 20_000)))
RELATIONS = tuple(oracle.DEFINITIONS)
SCHEMA = pa.schema(
    [("t", pa.int64()), ("p", pa.string()), ("v", pa.int64())]
    + [(name, pa.int8()) for name in "abcd"]
)
COMPILE = Callable[[str, pa.Schema], CompiledSituations]


@dataclass
class Case:
    """A pattern, as text and for the oracle, and a stream."""

    text: str
    pattern: oracle.Pattern
    early: bool
    partitioned: bool
    rows: list[dict[str, Any]]


def random_rows(rng: random.Random, names: str) -> list[dict[str, Any]]:
    count = rng.choice((0, 1, 5, 20, 40, 60))
    keys = rng.choice((["x"], ["x", "y"], ["x", "y", None]))
    stay = rng.choice((0.3, 0.6, 0.8))
    steps = rng.choice(((0, 1), (1,), (0, 1, 1, 2), (1, 1, 1, 9)))
    time, state, rows = rng.randrange(-5, 5), {}, []
    for i in range(count):
        time += rng.choice(steps)
        key = rng.choice(keys)
        held = state.setdefault(key, dict.fromkeys(names, 0))
        for name in names:
            if rng.random() > stay:
                held[name] = rng.choice((0, 1, 1, None) if rng.random() < 0.2 else (0, 1))
        rows.append({"t": time, "p": key, "v": i, **held})
    return rows


def random_pattern(rng: random.Random) -> tuple[oracle.Pattern, bool, bool]:
    """A pattern, whether it tells matches early, and whether it has partitions."""
    names = "abcd"[: rng.choice((1, 2, 2, 2, 3, 3, 4))]
    linked, constraints = [names[0]], []
    for name in names[1:]:
        constraints.append((name, rng.choice(linked)))
        linked.append(name)
    for pair in combinations(names, 2):
        if rng.random() < 0.2 and pair not in constraints and pair[::-1] not in constraints:
            constraints.append(pair)
    sets = []
    for a, b in constraints:
        size = rng.choice((1, 2, 3, 6, 12))
        sets.append((a, b, frozenset(rng.sample(RELATIONS, size))))
    least, most = {}, {}
    for name in names:
        kind = rng.random()
        least[name] = rng.randrange(1, 4) if kind < 0.3 else 0
        most[name] = least[name] + rng.randrange(1, 6) if 0.2 < kind < 0.45 else None
    within = rng.choice((None, None, 0, 3, 8, 20))
    gap = rng.choice((None, None, None, 1, 3))
    early, partitioned = rng.random() < 0.5, rng.random() < 0.6
    return oracle.Pattern(names, sets, least, most, within, gap), early, partitioned


def random_case(seed: int) -> Case:
    rng = random.Random(seed)
    pattern, early, partitioned = random_pattern(rng)
    return Case(text_of(pattern, early, partitioned), pattern, early, partitioned,
                random_rows(rng, "".join(pattern.names)))  # fmt: skip


def text_of(
    pattern: oracle.Pattern, early: bool, partitioned: bool, measured: bool = True
) -> str:  # fmt: skip
    parts = ["PARTITION BY p"] if partitioned else []
    ends = ", ".join(
        f"STARTED({n}) AS {n}s, ENDED({n}) AS {n}e, count({n}.*) AS {n}n, FIRST({n}.v) AS {n}f, "
        f"LAST({n}.v) AS {n}l, min({n}.v) AS {n}m"
        for n in pattern.names
    )
    if measured:
        parts.append(f"MEASURES {ends}, DETECTED() AS detected, COMPLETED() AS completed")
    listed = " AND ".join(f"{a} {' | '.join(sorted(r))} {b}" for a, b, r in pattern.constraints)
    parts.append(f"PATTERN ({listed or pattern.names[0]})")
    if pattern.within is not None:
        parts.append(f"WITHIN {pattern.within}")
    if pattern.gap is not None:
        parts.append(f"GAP {pattern.gap}")
    parts.append(f"EMIT ON {'DETECTION' if early else 'COMPLETION'}")
    defined = []
    for name in pattern.names:
        least, most = pattern.least[name], pattern.most[name]
        lasting = "" if not least else f" LASTING AT LEAST {least}"
        if most is not None:
            lasting = f" LASTING BETWEEN {least} AND {most}"
        defined.append(f"{name} AS {name} = 1{lasting}")
    return " ".join([*parts, "DEFINE", ", ".join(defined)])


def expected(case: Case) -> list[tuple[Any, ...]]:
    """Rows of the oracle, in the order that is promised."""
    pattern, now = case.pattern, max((r["t"] for r in case.rows), default=0)
    keys = {r["p"] if case.partitioned else "" for r in case.rows}
    found = []
    for key in keys:
        rows = [r for r in case.rows if not case.partitioned or r["p"] == key]
        situations = {
            name: oracle.runs([(r["t"], r[name] == 1) for r in rows], pattern.gap, now)
            for name in pattern.names
        }
        for instant, told, chosen in oracle.matches(pattern, situations, now, case.early):
            values: list[Any] = []
            for name in pattern.names:
                s = chosen[name]
                ended = s.end is not None and s.end <= instant
                own = [r["v"] for r in rows[s.first : s.last + 1] if r["t"] <= instant]
                values += [s.start, s.end if ended else None]
                values += [len(own), own[0], own[-1], min(own)]
            ends = [s.end for s in chosen.values()]
            done = None if None in ends else max(e for e in ends if e is not None)
            if done is not None and done > instant:
                done = None
            order = (instant, key is not None, key or "", [chosen[n].start for n in pattern.names])
            shown = (key,) if case.partitioned else ()
            found.append((order, (*shown, *values, told, done)))
    return [row for _, row in sorted(found, key=lambda pair: pair[0])]


def run(compiled: CompiledSituations, case: Case, cut: int) -> list[tuple[Any, ...]]:
    table = pa.Table.from_pylist(case.rows, SCHEMA)
    stream_rows = []
    stream = SituationStream(compiled, MatchLimits())
    stream.target = 1  # each batch is looked at by itself
    for batch in table.to_batches(max_chunksize=cut):
        stream_rows += list(stream.feed(batch))
        stream.target = 1
    stream_rows += list(stream.finish())
    rows = [row for batch in stream_rows for row in batch.to_pylist()]
    return [tuple(row.values()) for row in rows]


@pytest.mark.parametrize("block", range(5))
def test_the_operator_gives_what_the_definitions_say(block: int, compiled: COMPILE) -> None:
    some = 0
    for seed in range(block * CASES // 5, (block + 1) * CASES // 5):
        case = random_case(seed)
        wanted = expected(case)
        try:
            made = compiled(case.text, SCHEMA)
        except SqlError as error:
            if "nothing can satisfy" in str(error) and not wanted:
                continue
            raise
        some += len(wanted) > 0
        rng = random.Random(seed)
        for cut in (1000, rng.randrange(1, 8)):
            order = tuple(rng.sample(made.names, len(made.names)))
            forced = replace(made, order=order) if rng.random() < 0.5 else made
            assert run(forced, case, cut) == wanted, (seed, cut, order, case.text)
    assert some > CASES // 50

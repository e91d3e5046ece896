"""Parts of a query over situations: together the rows of the whole, of ranges in its order."""

from __future__ import annotations

import contextlib
import datetime as dt
import pickle
import random
from collections import Counter
from pathlib import Path

import pytest

import chronicle
from chronicle.api.database import catalog_of
from chronicle.errors import SqlError
from chronicle.query.conditions.constants import Folder
from chronicle.query.contract import operator
from chronicle.query.contract.operator import InstantRange, MatchLimits, PartRun
from chronicle.query.pattern.compiled import InputColumns
from chronicle.query.replay.situation_intervals import plan_situations_replay
from chronicle.query.run import situation_operator
from chronicle.query.situations.compiled import CompiledSituations, compile_situations
from chronicle.query.split.planning import split_situations
from chronicle.query.sql.dialect import parse_statement
from chronicle.query.sql.situation_clause import situation_clause
from chronicle.query.sql.statement_clauses import SituationRelation
from chronicle.store.pins import open_pinned, pin_stream
from chronicle.store.segment import ScanMetrics

from ...rounds import LONG, rounds
from ..situations.test_situations_differential import random_case
from ..situations.test_situations_replay import SCHEMA, stream

FOLDER = Folder({}, dt.datetime.now(dt.timezone.utc))
LIMITS = MatchLimits()
CASES = rounds(3, 16, 200)


def compiled_clause(text: str) -> CompiledSituations | None:
    """The clause; None where nothing can satisfy it."""
    tree = parse_statement(f"SELECT * FROM s MATCH_SITUATIONS ({text})")
    node = situation_clause(tree.find(SituationRelation).args["match"])
    with contextlib.suppress(SqlError):
        return compile_situations(node, InputColumns(SCHEMA, "t"), "s")
    return None


def clause(rng: random.Random, number: int) -> str:
    """A random clause, mostly with a bound; perhaps with conditions that look back."""
    case = random_case(number)
    text = case.text.replace(f"WITHIN {case.pattern.within} ", "")
    if number % 4:
        gap = "" if case.pattern.gap is None else f"GAP {case.pattern.gap} "
        within = f" WITHIN {rng.choice((10, 90, 400))} {gap}EMIT"
        text = text.replace(gap, "").replace(" EMIT", within)
    if rng.random() < 0.3:
        text = text.replace("a = 1", "a >= PREV(b)")
    return text


@pytest.fixture(scope="module")
def seen() -> Counter[str]:
    """What the comparisons were about."""
    return Counter()


@pytest.mark.parametrize("seed", range(4))
def test_parts_have_every_match_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, seen: Counter[str]
) -> None:
    monkeypatch.setattr(operator, "READ_TWICE", 2.0)
    rng = random.Random(seed)
    with chronicle.open(tmp_path) as db:
        s = db.create_stream(
            "s", SCHEMA, time="t", options={"leaf_bytes": 8192, "segment_bytes": 60_000}
        )
        table = stream(seed)
        s.append(table.slice(0, 10_000))
        s.flush()
        for name in rng.sample("abcd", 2):
            s.create_index(name)
        s.append(table.slice(10_000))
        if seed % 2:
            s.append(table.slice(6_000, 5))  # late
        store = catalog_of(db).store
        pin = pin_stream(store.files, store.directory_of("s"))
        snapshot = db.stream("s").snapshot()
        for number in range(1000 * seed, 1000 * seed + CASES):
            text = clause(rng, number)
            compiled = compiled_clause(text)
            seen["cases"] += 1
            if compiled is None:
                continue
            wanted = [row for batch in compiled.run(snapshot.scan()) for row in batch.to_pylist()]
            strategy = rng.choice(["replay", "all", "all"])
            plan = plan_situations_replay(
                snapshot, compiled, catalog_of(db).engine.catalog.indexes_of("s"), strategy, FOLDER,
                lambda: None,
            )  # fmt: skip
            split = split_situations(snapshot, compiled, plan, lambda _: rng.choice([2, 3, 7]))
            if split.parts == (None,):
                seen["one"] += 1
                continue
            found = []
            parts = pickle.loads(pickle.dumps(split.parts))
            for part in parts:
                seen[type(part).__name__] += 1
                alone = open_pinned(store.files, pin, *part.ticks)
                for batch in part.run(PartRun(alone, compiled, ScanMetrics(), None, LIMITS)):
                    found += batch.to_pylist()
            if not parts or isinstance(parts[0], InstantRange):
                assert found == wanted, (number, split.reason, text)
            assert Counter(map(repr, found)) == Counter(map(repr, wanted)), (number, text)
            seen["rows"] += len(wanted)


def test_the_comparisons_show_something(seen: Counter[str]) -> None:
    if seen["cases"] >= 4 * CASES:  # elsewhere than here, the parts of this file ran apart
        assert seen["rows"] > 200, seen
        kinds = ("InstantRange", "SharePart", "SituationSpans")
        assert min(seen[kind] for kind in kinds) > 4, seen


@pytest.mark.parametrize("seed", range(3) if LONG else (1,))
def test_threads_give_the_rows_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(situation_operator, "RANGE_EVENTS", 1500)
    rng = random.Random(seed)
    side_by_side = 0
    with chronicle.open(tmp_path) as db:
        s = db.create_stream("s", SCHEMA, time="t", options={"leaf_bytes": 8192})
        s.append(stream(seed))
        for number in range(500 * seed, 500 * seed + 12):
            text = clause(rng, number)
            if compiled_clause(text) is None:
                continue
            query = f"SELECT /*+ strategy(replay) */ * FROM s MATCH_SITUATIONS ({text})"
            monkeypatch.setattr(situation_operator, "processors", lambda: 1)
            wanted = db.sql(query).arrow()
            monkeypatch.setattr(situation_operator, "processors", lambda: 3)
            assert db.sql(query).arrow().equals(wanted), query
            side_by_side += "ranges of time" in str(db.explain(query, analyze=True))
            for batch in db.sql(query).batches():  # who stops early waits for nothing
                assert batch.num_rows
                break
    assert side_by_side > 2

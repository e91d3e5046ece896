"""Every plan against the definitions, over many random streams that lie in one store.

A case is a pattern and a stretch of rows (:mod:`.random_world`).  Part of the rows is indexed, part
in memory, some are late, perhaps compacted.  Whatever is looked up, starts or ends, and however it
is read: the rows and their order are those of the oracle.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import Database
from chronicle.errors import SqlError
from chronicle.query.replay import situation_intervals, tree_runs

from ...rounds import rounds
from .random_world import SCHEMA, STRETCHES, World, asked
from .test_situations_many import in_order, says

CASES = int(os.environ.get("CHRONICLE_SITUATION_PLANS", rounds(400, 90_000, 600_000)))
PATTERNS = 15
"""Of one store."""
STRATEGIES = ("all", "auto", "replay")


def fill(db: Database, world: World, rng: random.Random) -> None:
    """Have its rows come: in order, partly before the indexes, and late."""
    table = world.table()
    options = {"leaf_bytes": rng.choice([2048, 8192]), "durability": "none"}
    stream = db.create_stream("s", SCHEMA, time="t", options=options)
    fresh = table.filter(pa.array(world.late == 0))
    cuts = sorted(rng.randrange(fresh.num_rows) for _ in range(2))
    stream.append(fresh.slice(0, cuts[0]))
    if rng.random() < 0.5:
        stream.seal()
    for name in "abcd":
        if rng.random() < 0.7:
            stream.create_index(name)
    stream.append(fresh.slice(cuts[0], cuts[1] - cuts[0]))
    stream.flush()
    stream.append(fresh.slice(cuts[1]))
    for number in (1, 2):
        stream.append(table.filter(pa.array(world.late == number)))
    if rng.random() < 0.3:
        stream.compact()


def planned(result: object) -> str:
    """The kind of a plan."""
    text = str(result)
    if "TreeRuns" in text:
        return "tree"
    if "whole stream:" in text or "\n" not in text:
        return "whole"
    return "ends" if "end of" in text.split("Replay")[-1] else "intervals"


@pytest.mark.parametrize("kind", ["partitions", "alone", "tree"])
def test_every_plan_gives_what_the_definitions_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(tree_runs, "KNOWN_LEAST", 0.0)
    monkeypatch.setattr(situation_intervals, "BY_TIME_MOST", 10)
    choose = random.Random(kind)
    monkeypatch.setattr(situation_intervals, "_rarest", lambda context: choose.random())
    kinds: Counter[str] = Counter()
    cases = some = matches = 0
    for seed in range(max(1, CASES // 3 // STRETCHES // PATTERNS)):
        rng = random.Random(f"{kind} {seed}")
        partitioned = kind == "partitions"
        numbers = np.random.default_rng(rng.getrandbits(64))
        late = rng.choice((0, 0.005)) if kind != "tree" else 0
        world = World.random(numbers, partitioned, late, repeated=kind == "tree")
        with chronicle.open(tmp_path / f"{seed}") as db:
            fill(db, world, rng)
            for number in range(PATTERNS):
                pattern, early, rising, text = asked(rng, kind)
                wanted = in_order(
                    world.wanted(pattern, early, rising), len(pattern.names), world.keys
                )
                matches, cases = matches + len(wanted), cases + STRETCHES
                some += len(np.unique(wanted[:, 0]))
                for strategy in rng.sample(STRATEGIES, 2) if kind != "tree" else ("auto",):
                    query = f"""SELECT /*+ strategy({strategy}) */ *
                        FROM s MATCH_SITUATIONS ({text})"""
                    try:
                        result = db.sql(query)
                    except SqlError as error:
                        if len(wanted) or "nothing can satisfy" not in str(error):
                            raise
                        continue
                    rows = result.arrow()
                    assert says(rows, wanted, len(pattern.names), world.keys), (
                        kind, seed, number, strategy, query,
                    )  # fmt: skip
                    kinds[planned(result.plan)] += 1
    assert matches > cases // 10
    assert some > cases // 50
    expected = {"tree"} if kind == "tree" else {"whole", "intervals", "ends"}
    assert set(kinds) >= expected, kinds

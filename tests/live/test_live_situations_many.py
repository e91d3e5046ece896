"""Live situations against the definitions, over many random streams that come piece by piece.

A case is a pattern and a stretch of rows, as in the test of plans.  The rows come in the order of
time, a few of them one or two commits late; between commits the stream is sealed, compacted, opened
anew.  After every step, what holds are the matches that the oracle knows at the watermark, of the
rows that have come.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from chronicle.api.database import Database
from chronicle.catalog.store_catalog import StoreCatalog
from chronicle.errors import SqlError
from chronicle.store.store import Store
from chronicle.tests.memory_files import MemoryFiles

from .. import oracles_situations as oracle
from ..query.situations.random_world import SCHEMA, STRETCHES, World, asked
from ..query.situations.test_situations_many import Ints, ends_of
from ..rounds import rounds

CASES = int(os.environ.get("CHRONICLE_SITUATION_LIVE", rounds(60, 40_000, 400_000)))
PATTERNS = rounds(4, 10)
"""Of one store."""
COMMITS = 6


@dataclass
class Query:
    """A live query, and its pattern."""

    name: str
    pattern: oracle.Pattern
    early: bool
    rising: bool


def created(db: Database, rng: random.Random, kind: str, delay: int) -> list[Query]:
    """Random live queries."""
    made: list[Query] = []
    while len(made) < PATTERNS:
        pattern, early, rising, text = asked(rng, kind)
        name = f"q{len(made)}"
        try:
            db.create_live(
                name, f"SELECT * FROM s MATCH_SITUATIONS ({text})", delay=delay or None,
                idle="never",
            )  # fmt: skip
        except SqlError as error:
            if "nothing can satisfy" not in str(error):
                raise
            continue
        made.append(Query(name, pattern, early, rising))
    return made


def said(db: Database, query: Query, world: World) -> Ints:
    """What holds: instant, stretch, starts and ends of each match, in order."""
    net = db.live(query.name).net().drop_columns(["_id", "_rev"])
    columns = [net.column(0).to_numpy()]
    if world.keys is not None:
        columns.append(pc.index_in(net["p"], pa.array(world.keys)).to_numpy())
        net = net.drop_columns(["p"])
    columns += map(ends_of, net.columns[1:])
    return arranged(np.stack(columns, axis=1).astype(np.int64))


def arranged(rows: Ints) -> Ints:
    """Rows in the order of their columns."""
    return rows[np.lexsort(rows.T[::-1])]


def due(query: Query, world: World, watermark: int) -> Ints:
    """The same by the definitions."""
    found = world.wanted(query.pattern, query.early, query.rising)
    found = found[found[:, 1] <= watermark]
    names = len(query.pattern.names)
    instant, starts, ends = found[:, 1:2], found[:, 3 : 3 + names], found[:, 3 + names :]
    ends = np.where(ends[:, :names] <= instant, ends[:, :names], 2**63 - 1)
    spans = np.stack([starts, ends], axis=2).reshape(-1, 2 * names)
    place = found[:, :1] if world.keys is not None else found[:, :0]
    return arranged(np.concatenate([instant, place, spans], axis=1))


@pytest.mark.parametrize("kind", ["partitions", "alone"])
def test_what_holds_is_what_the_definitions_say(kind: str) -> None:
    cases = matches = 0
    for seed in range(max(1, CASES // 2 // STRETCHES // PATTERNS)):
        rng = random.Random(f"{kind} {seed}")
        numbers = np.random.default_rng(rng.getrandbits(64))
        world = World.random(numbers, kind == "partitions", late=0.02)
        cuts = np.sort(numbers.choice(world.time, COMMITS - 1))
        commit = np.searchsorted(cuts, world.time, side="right") + world.late
        delay = rng.choice([0, 0, 3])
        memory = MemoryFiles()
        db = Database(StoreCatalog(Store.open("mem", files=memory)))
        options = {"late_events_max": 30, "leaf_bytes": 4096}
        db.create_stream("s", SCHEMA, time="t", options=options)
        queries = created(db, rng, kind, delay)
        for number in range(int(commit.max()) + 1):
            if (commit == number).any():
                db.stream("s").append(world.only(commit == number).table())
            if rng.random() < 0.2:
                db.close()
                db = Database(StoreCatalog(Store.open("mem", files=memory)))
            match rng.randrange(6):
                case 0:
                    db.stream("s").seal()
                case 1:
                    db.stream("s").compact()
            db.run_live()
            here = world.only(commit <= number)
            watermark = int(here.time.max()) - delay - 1
            for query in queries:
                assert db.live(query.name).status()["error"] is None
                wanted = due(query, here, watermark)
                assert np.array_equal(said(db, query, world), wanted), (kind, seed, number, query)
                matches += len(wanted)
        cases += PATTERNS * STRETCHES
        db.close()
    assert matches > cases // 2

"""PARTITION BY against the same pattern without it, over one stream.

The values of an event do not depend on its key or on the events before it.  So the events of a key
are, as a sequence, what the whole stream is: a pattern finds about as many matches of the same
length with PARTITION BY as without, and what differs is the cost of keeping keys apart.  Windows
are as many times longer as there are keys, so that they hold as many events of a key.  The peer is
the same statement without PARTITION BY, whose rows lack the key.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from ..api.database import Database, open_database
from .harness import Row, Section

KEYS = (1, 40, 1_000, 100_000)
BATCH = 1 << 19
INDEXES = ("y", "z")
STATES = ("idle", "running", "degraded", "stopped")
SPAN = "FIRST(t) AS first, LAST(t) AS last"
SHAPE = "B AS x < PREV(x), C AS x > PREV(x)"
GAP = "A AS x < 0.0005, B AS y > 0.9995"
BAND = "A AS x < 0.3, B AS x > 0.3, C AS y < 0.3"


@dataclass(frozen=True)
class Form:
    """A pattern; ``window`` in events of a key, 0 for none; ``hint``: the strategy."""

    pattern: str
    define: str
    measures: str = SPAN
    after: str = "SKIP PAST LAST ROW"
    rows: str = "ONE ROW PER MATCH"
    window: int = 0
    select: str = "*"
    hint: str = "replay"

    def text(self, keys: int) -> str:
        """The statement with PARTITION BY a column of so many keys; 0: without."""
        by = f"PARTITION BY k{keys} " if keys else ""
        window = self.window * max(1, keys)
        within = f" WITHIN INTERVAL '{window}' SECOND" if window else ""
        return (
            f"SELECT /*+ strategy({self.hint}) */ {self.select} FROM s MATCH_RECOGNIZE ({by}"
            f"ORDER BY t MEASURES {self.measures} {self.rows} AFTER MATCH {self.after} "
            f"PATTERN ({self.pattern}){within} DEFINE {self.define})"
        )


FORMS = {
    "A B, few": Form("A B", "A AS x < 0.003, B AS x > 0.997"),
    "A B, dense": Form("A B", "A AS x < 0.5, B AS x > 0.5"),
    "A B, dense, count(*)": Form("A B", "A AS x < 0.5, B AS x > 0.5", select="count(*)"),
    "A B+ C, few": Form("A B+ C", "A AS x < 0.01, B AS y > 0.9, C AS x > 0.99"),
    "A B+ C, dense": Form("A B+ C", BAND),
    "A B+ C on texts": Form(
        "A B+ C", "A AS state = 'idle', B AS state = 'running', C AS state = 'stopped'"
    ),
    "V-shape, few": Form("A B{5,} C{4,}", SHAPE, measures=f"{SPAN}, LAST(B.x) AS low"),
    "V-shape, dense": Form("A B+ C+", SHAPE),
    "V-shape, to next row": Form("A B+ C+", SHAPE, after="SKIP TO NEXT ROW"),
    "greedy star": Form("A Z* B", "A AS x < 0.01, B AS y < 0.01", window=50),
    "reluctant gap, few": Form("A Z*? B", GAP, after="SKIP TO NEXT ROW", window=500),
    "reluctant gap, dense": Form("A Z*? B", "A AS x < 0.1, B AS y > 0.9", window=500),
    "gap after PREV": Form(
        "A Z*? B", "A AS x < PREV(x) - 0.95, B AS y > PREV(y) + 0.95", window=200
    ),
    "aggregates": Form(
        "A B+ C", BAND, measures="A.x AS ax, avg(B.x) AS m, sum(B.n) AS s, count(*) AS c"
    ),
    "condition on LAST": Form("A B+", "B AS x > LAST(A.x) AND y > 0.2"),
    "condition on A": Form("A B* C", "B AS x > PREV(x), C AS x > A.x + 0.8", window=300),
    "running sum": Form("A+ B", "A AS sum(A.x) < 5", measures="FIRST(t) AS a, count(*) AS c"),
    "all rows": Form(
        "A B", "A AS x < 0.1, B AS x > 0.9", "CLASSIFIER() AS c", rows="ALL ROWS PER MATCH"
    ),
    "gap by indexes": Form(
        "A Z*? B", "A AS z < 0.0001, B AS y > 0.9999", after="SKIP TO NEXT ROW", window=500,
        hint="auto",
    ),
    "A B by indexes": Form("A B", "A AS z < 0.001, B AS y > 0.999", hint="auto"),
}  # fmt: skip


def events(first: int, count: int, rng: np.random.Generator) -> pa.Table:
    columns = {"t": pa.array(np.arange(first, first + count) * 1_000_000, pa.timestamp("us"))}
    for keys in KEYS:
        names = pa.array([f"key-{number:06}" for number in range(keys)])
        columns[f"k{keys}"] = names.take(pa.array(rng.integers(0, keys, count)))
    states = pa.array(STATES)
    columns["state"] = states.take(pa.array(rng.choice(4, count, p=[0.3, 0.6, 0.05, 0.05])))
    columns |= {name: pa.array(np.round(rng.random(count), 5)) for name in "xyz"}
    return pa.table(columns | {"n": pa.array(rng.integers(0, 1000, count))})


def filled(directory: Path, total: int) -> Database:
    rng = np.random.default_rng(40)
    database = open_database(directory)
    stream = database.create_stream("s", events(0, 1, rng).schema, "t")
    for first in range(0, total, BATCH):
        stream.append(events(first, min(BATCH, total - first), rng))
    stream.seal()
    for name in INDEXES:
        stream.create_index(name)
    return database


def compared(database: Database, form: Form, rounds: int) -> tuple[dict[int, float], int]:
    """Processor time with so many keys (0: without), in turns, medians; rows without keys."""
    times: dict[int, list[float]] = {keys: [] for keys in (0, *KEYS)}
    rows = 0
    for number in range(rounds + 1):
        for keys, spent in times.items():
            begun = time.process_time()
            found = database.sql(form.text(keys)).arrow()
            if number:
                spent.append(time.process_time() - begun)
            if not keys:
                rows = found.num_rows if form.select == "*" else found.column(0)[0].as_py()
    return {keys: statistics.median(spent) for keys, spent in times.items()}, rows


def run(short: bool = False) -> Section:
    total, rounds = (300_000, 3) if short else (2_000_000, 5)
    section = Section(
        "PARTITION BY",
        f"{total:,} events whose values do not depend on their keys; processor time of a pattern "
        f"with PARTITION BY a text of {', '.join(f'{keys:,}' for keys in KEYS)} keys, by that of "
        f"the same pattern without; medians of {rounds} by turns.",
    )
    with tempfile.TemporaryDirectory(dir=os.environ.get("CHRONICLE_BENCH_DIR")) as directory:
        database = filled(Path(directory) / "store", total)
        for name, form in FORMS.items():
            spent, rows = compared(database, form, rounds)
            costs = [spent[keys] / spent[0] for keys in KEYS]
            section.rows.append(
                Row(
                    f"{name} ({rows:,} rows)", f"{spent[40] * 1000:.1f} ms, 40 keys",
                    f"{spent[0] * 1000:.1f} ms", ", ".join(f"{cost:.2f}x" for cost in costs),
                    "1.33x", max(costs) <= 4 / 3,
                )
            )  # fmt: skip
        database.close()
    return section

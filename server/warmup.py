"""Warming up: a small database is filled and asked before the first client is.

Purpose
    Compiled kernels load on their first call, the query engine on its first text.  :func:`warm_up`
    makes these calls, so that ``/readyz`` means what it says.

Limits
    Takes well below a second with cached kernels; the very first time on a machine they are
    compiled, which takes ten seconds or twenty.
"""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
import threading
import time

import pyarrow as pa

from ..compiled import CompilingStopped, compiling_until
from ..database import open_database
from ..formats import read_batches

__all__ = ["warm_up"]

logger = logging.getLogger("chronicle.server")

SCHEMA = pa.schema(
    [
        pa.field("t", pa.timestamp("us"), False),
        ("i", pa.int64()),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
    ]
)
ROWS = 5000
QUERIES = (
    "SELECT count(*), sum(x), max(i) FROM warm WHERE t >= TIMESTAMP '2001-01-01 00:00:10'",
    "SELECT s, avg(x) FROM warm WHERE i > 10 GROUP BY s",
    "SELECT * FROM warm MATCH_RECOGNIZE (PARTITION BY s ORDER BY t MEASURES A.x AS a, "
    "LAST(B.x) AS b PATTERN (A B+) WITHIN INTERVAL '1' MINUTE "
    "DEFINE A AS x > 10, B AS x > PREV(x)) AS m",
    "SELECT * FROM warm MATCH_RECOGNIZE (ORDER BY t MEASURES A.x AS a, B.x AS b "
    "PATTERN (A B) DEFINE B AS x >= A.x + 1) AS m",
    "SELECT * FROM warm MATCH_SITUATIONS (PARTITION BY s MEASURES avg(A.x) AS a "
    "PATTERN (A OVERLAPS B) WITHIN INTERVAL '1' MINUTE GAP INTERVAL '10' SECOND "
    "EMIT ON DETECTION DEFINE A AS x > 10, B AS x > PREV(x)) AS m",
    "SELECT /*+ recent(archive_first) */ l.x, a.x AS y FROM warm MATCH_RECOGNIZE ("
    "MEASURES A.x AS x INCREMENTAL MATCH PATTERN (A B+) DEFINE B AS x > 10) AS l "
    "RECENT JOIN warm MATCH_RECOGNIZE (MEASURES A.x AS x MAXIMAL MATCH "
    "PATTERN (A B+) DEFINE B AS x > A.x) AS a WITHIN INTERVAL '10' MILLISECOND",
    "SELECT l.i FROM warm l RECENT SEMI JOIN warm a ON a.s = l.s WITHIN INTERVAL '1' SECOND",
)


def warm_up(stop: threading.Event | None = None) -> bool:
    """Run through the paths of appends, reads and queries once, in a store of its own.

    Parameters
    ----------
    stop : threading.Event, optional
        Once it is set, nothing more is compiled or asked; the store is removed in any case.

    Returns
    -------
    bool
        Whether it came to its end.
    """
    stop = stop or threading.Event()
    started = time.perf_counter()
    try:
        with compiling_until(stop):
            _run_through(stop)
    except CompilingStopped:
        return False
    if stop.is_set():
        return False
    logger.info("warm after %.1f s", time.perf_counter() - started)
    return True


def _run_through(stop: threading.Event) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="chronicle-warm-") as directory,
        open_database(directory) as database,
    ):
        stream = database.create_stream("warm", SCHEMA, time="t")
        lines = "".join(
            f'{{"t": "2001-01-01T00:{n // 60 % 60:02}:{n % 60:02}", "i": {n}, "x": {n}.5, '
            f'"s": "s{n % 9}", "b": true}}\n'
            for n in range(ROWS)
        )
        source = io.BytesIO(lines.encode())
        batches = read_batches(source, "ndjson", schema=stream.event_schema, time_format="iso")
        stream.append(pa.Table.from_batches(batches, SCHEMA))
        for text in QUERIES:
            if stop.is_set():
                return
            with contextlib.closing(database.sql(text)) as result:
                result.arrow()

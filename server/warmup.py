"""Warming up: a small database is filled and asked beside the first requests.

Purpose
    Compiled kernels load on their first call, the query engine on its first text.  :func:`get_warm`
    makes these calls in a thread of a server that answers already; ``/readyz`` says when it is
    done.

Guarantee
    What the cache does not hold is compiled by another process, which writes it to the cache: the
    compiler would hold the interpreter's lock of the server.  Until then kernels of requests run as
    Python over small inputs (:mod:`chronicle.interpreted`), and no second process compiles; a
    request compiles what it needs for a large one itself.  Stopping ends all of it at once, and
    leaves nothing behind.

Limits
    A second or two with cached kernels; the first time on a machine takes a minute of one core.
    Where the cache cannot be written, the server's thread compiles.
"""

from __future__ import annotations

import contextlib
import gc
import io
import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from .. import machine_code
from ..database import open_database
from ..formats import read_batches
from ..interpreted import compile_beside, compile_first, compiling_first, leave_compiling
from ..isolation.confinement import die_with_parent
from ..machine_code import CompilingStopped, cache_at_rest, compiling_while
from ..scratch import ScratchDirectory

if TYPE_CHECKING:
    from .service.state import Server

__all__ = ["compile_ahead", "get_warm", "warm_up"]

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
LOOK_S = 0.05
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
    "MEASURES A.x AS x INCREMENTAL MATCH PATTERN (A B+) WITHIN INTERVAL '3' SECOND "
    "DEFINE B AS x > 10) AS l RECENT JOIN warm MATCH_RECOGNIZE (MEASURES A.x AS x MAXIMAL MATCH "
    "PATTERN (A B+) WITHIN INTERVAL '3' SECOND DEFINE B AS x > A.x) AS a "
    "WITHIN INTERVAL '10' MILLISECOND",
    "SELECT l.i FROM warm l RECENT SEMI JOIN warm a ON a.s = l.s WITHIN INTERVAL '1' SECOND",
)


def get_warm(server: Server) -> None:
    """Load what requests need, then have the server say that it is ready; blocks."""
    stop = server.stop_warming
    try:
        if not warm_up(stop):
            return
        server.warm_workers()
        # a collection beside a large statement then walks that, not all the libraries
        gc.collect()
        gc.freeze()
    except Exception:
        if not stop.is_set():
            logger.exception("warming up failed; requests load what they need")
    server.warm = True


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
    leave_compiling()  # what requests want meanwhile is mostly what is compiled here
    try:
        return _warmed_up(stop, started)
    finally:
        if not stop.is_set():
            compile_beside()


def _warmed_up(stop: threading.Event, started: float) -> bool:
    with ScratchDirectory("warm") as directory:
        try:
            if not _loaded(directory / "loaded", stop):
                logger.info("compiling kernels for this machine; they are kept")
                if machine_code.keeps_machine_code:
                    _compile_elsewhere(directory, stop)
                with compiling_first(), compiling_while(lambda: not stop.is_set()):
                    _run_through(directory / "compiled", stop)
        except CompilingStopped:
            return False
    if stop.is_set():
        return False
    logger.info("warm after %.1f s", time.perf_counter() - started)
    return True


def compile_ahead(directory: Path | str, parent: int | None = None) -> None:
    """Fill the cache of compiled kernels with what a server needs.

    Parameters
    ----------
    directory : path
        Does not exist; a store is made there.
    parent : int, optional
        Process whose end is the end of this one.
    """
    if parent is not None:
        die_with_parent(parent)
        os.nice(10)  # requests come first
    compile_first()
    _run_through(Path(directory), threading.Event())


def _loaded(directory: Path, stop: threading.Event) -> bool:
    """Whether the cache holds everything, which is then loaded."""
    try:
        with compiling_first(), compiling_while(lambda: False):
            _run_through(directory, stop)
    except CompilingStopped:
        return False
    return True


def _compile_elsewhere(directory: Path, stop: threading.Event) -> None:
    program = (
        "from chronicle.server.warmup import compile_ahead; "
        f"compile_ahead({str(directory / 'child')!r}, {os.getpid()})"
    )
    with open(directory / "said", "w+b") as said:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", program],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,  # Ctrl-C is for the server
        )
        while process.poll() is None:
            if stop.wait(LOOK_S):
                with cache_at_rest():
                    process.kill()
                process.wait()
                raise CompilingStopped
        if process.returncode:
            said.seek(0)
            logger.warning(
                "the process that compiles kernels has failed (%s); the server compiles them",
                (said.read().decode(errors="replace").strip().splitlines() or ["killed"])[-1],
            )


def _run_through(directory: Path, stop: threading.Event) -> None:
    with open_database(directory) as database:
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
        if not stop.is_set():
            stream.delete("i % 100 = 7 OR x < 0.01")

"""Runs the work of an answer in a thread.  The slot is released, and the query leaves the list of
running ones, when the thread has really ended, even if the client has gone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future

from ..access.limits import Slot
from ..http.body_pipe import BodyPipe
from ..http.problems import Problem
from .encoding import Tally
from .query_log import outcome_of
from .running_queries import RunningQuery
from .state import Server

__all__ = ["account_for", "compute"]


def account_for(
    server: Server,
    kind: str,
    format: str,
    tally: Tally,
    error: BaseException | None,
    seconds: float,
) -> None:
    server.metrics.query_seconds.labels(kind).observe(seconds)
    server.metrics.result_rows.labels(format).inc(tally.rows)
    server.metrics.queries.labels(kind, outcome_of(error)).inc()


def compute(
    server: Server,
    slot: Slot,
    query: RunningQuery,
    pipe: BodyPipe,
    tally: Tally,
    format: str,
    write: Callable[[], None],
) -> None:
    """Have a thread run ``write``, which fills ``pipe``; on the event loop.  Raises ``Problem``
    (503).
    """
    started = time.perf_counter()
    loop = asyncio.get_running_loop()

    def work() -> None:
        with server.running.logged(query, tally):
            write()

    def ended(job: Future[BaseException | None]) -> None:
        slot.release()
        server.running.remove(query)
        seconds = time.perf_counter() - started
        account_for(server, query.kind, format, tally, job.result(), seconds)

    try:
        job = server.submit(pipe, work)
    except Problem:
        server.running.remove(query)
        slot.release()
        raise
    job.add_done_callback(lambda job: loop.call_soon_threadsafe(ended, job))

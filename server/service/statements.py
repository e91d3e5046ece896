"""Opens the statements of clients.  A statement is authorized by the objects that it binds to,
before it runs.  A drop or rename forgets what the server holds for the stream, and requests that
fail meanwhile say why.

The work of an answer runs in a thread.  The slot is released, and the query leaves the list of
running ones, when the thread has really ended, even if the client has gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from ..access.auth import Principal, authorize, visible_to
from ..access.limits import Slot
from ..http.body_pipe import BodyPipe
from ..http.problems import Problem
from .encoding import Tally
from .query_log import RunningQuery, outcome_of
from .state import Server

if TYPE_CHECKING:
    from ...query.contract.access import Access
    from ...query.contract.result import Result


def open_statement(
    server: Server,
    principal: Principal,
    query: RunningQuery,
    text: str,
    params: dict[str, Any] | list[Any] | None,
    timeout: float,
    *,
    read_only: bool = False,
) -> Result:
    dropped: list[str] = []
    with contextlib.ExitStack() as dropping:

        def allowed(access: Access) -> None:
            authorize(principal, access)
            gone = access.kind == "DropStream" or access.renamed is not None
            if gone and access.target is not None:
                dropping.enter_context(server.drops.dropping(access.target))
                dropped.append(access.target)

        result = server.database.sql(
            text,
            params,
            timeout,
            read_only=read_only,
            cancellation=query.cancellation,
            visible=visible_to(principal),
            allowed=allowed,
            tell=server.tell(principal),
        )
    for name in dropped:
        server.forget_stream(name)
    return result


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

"""Answers made of rows: computed in a thread, sent as they come, ended early without harm.

Purpose
    :func:`send_rows` runs a query or a read for a request.  It waits for a slot, computes and
    encodes in a worker thread, and gives the bytes to the client through a
    :class:`~.body_pipe.BodyPipe`.

Layout
    ::

        gate -> thread: open rows -> cut at limit -> encode -> gzip -> pipe -> event loop: send
                  ^                                                        |
                  '-- cancellation <-- client went away, stalled, DELETE --'

Guarantee
    Nothing is sent before the first rows are computed, so an error until then is a problem
    document with its own status.  An error after that breaks the connection off.  The slot is
    given back, and the query removed from the list, when the thread has really ended.  An answer
    that fits into one block says how many rows it has in its headers.

Limits
    A query in the middle of an uninterruptible operation of DuckDB keeps its slot until that ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

import pyarrow as pa
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...errors import ChronicleError, QueryCancelled, QueryTimeout, ResourceLimit
from ...formats import media_type_of
from ..access.auth import Principal
from ..access.limits import Gate
from ..http.body_pipe import BodyPipe
from ..http.problems import Problem
from ..service.bodies import Pace
from ..service.encoding import RowEncoding, Tally, encode
from ..service.middleware import ABORT, BrokenAnswer, note_time
from ..service.running_queries import RunningQuery
from ..service.state import Server, server_of

__all__ = ["RowSource", "send_rows"]

logger = logging.getLogger("chronicle.server")


@dataclass
class RowSource:
    """What an answer is made of.

    Attributes
    ----------
    batches : iterator of pyarrow.RecordBatch
        Lazily computed; asked by one thread.
    close : callable
        Called when no more batches are taken, in the same thread.
    """

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    close: Callable[[], None] = field(default=lambda: None)


async def send_rows(
    request: Request,
    principal: Principal,
    gate: Gate,
    kind: str,
    text: str,
    open_rows: Callable[[RunningQuery], RowSource],
    encoding: RowEncoding,
    *,
    limit: int | None = None,
    looks_ahead: bool = True,
) -> Response:
    """Answer a request with rows.

    Parameters
    ----------
    gate : Gate
        Where a slot is taken.
    kind : {"query", "events"}
    text : str
        What runs, for the list of running queries.
    open_rows : callable
        Called in a worker thread; what it raises becomes the answer.
    encoding : RowEncoding
        Format and form of the rows.
    limit : int, optional
        Rows that the client wants at most.
    looks_ahead : bool
        Whether the rows go on beyond the limit, so that ``truncated`` is known.
    """
    server = server_of(request)
    waited = time.perf_counter()
    slot = await gate.enter(principal.client)
    note_time(request, "queue", time.perf_counter() - waited)
    query = server.running.add(request.state.request_id, kind, text, principal)
    pipe = BodyPipe()
    tally = Tally(limit, server.settings.max_rows, looks_ahead=looks_ahead)
    started = time.perf_counter()

    def work() -> None:
        rows = open_rows(query)
        try:
            encode(rows.schema, rows.batches, encoding, tally, pipe, query)
        finally:
            rows.close()

    try:
        job = server.submit(pipe, work)
    except Problem:
        server.running.remove(query)
        slot.release()
        raise

    def ended(job: Future[BaseException | None]) -> None:
        slot.release()
        server.running.remove(query)
        _account(server, kind, encoding, tally, job.result(), time.perf_counter() - started)

    loop = asyncio.get_running_loop()
    job.add_done_callback(lambda job: loop.call_soon_threadsafe(ended, job))
    watch = asyncio.create_task(_watch(request, query, pipe))
    try:
        first = await pipe.next_block()
    except BaseException as error:
        watch.cancel()
        query.cancellation.cancel()
        pipe.abandon()
        if isinstance(error, QueryCancelled) and watch.done() and not watch.cancelled():
            raise ClientDisconnect from None
        if isinstance(error, QueryCancelled) and server.stopping:
            raise Problem(
                "not-ready",
                503,
                "the server is stopping and the query took too long to wait for; ask again",
                {"Retry-After": "1"},
            ) from None
        raise
    note_time(request, "first", time.perf_counter() - started)
    more = {
        "X-Query-Id": query.id,
        "Vary": "Accept, Accept-Encoding",
        "Cache-Control": "no-store",
    }
    if encoding.gzip:
        more["Content-Encoding"] = "gzip"
    if pipe.complete:
        more["X-Row-Count"] = str(tally.rows)
        if tally.truncated is not None:
            more["X-Truncated"] = "true" if tally.truncated else "false"
        watch.cancel()
        return Response(first or b"", headers=more, media_type=media_type_of(encoding.format))
    return _Stream(first or b"", pipe, query, watch, more, encoding, server)


async def _watch(request: Request, query: RunningQuery, pipe: BodyPipe) -> None:
    """Cancel a query when its client goes away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    query.cancellation.cancel()
    pipe.abandon()


def _account(
    server: Server,
    kind: str,
    encoding: RowEncoding,
    tally: Tally,
    error: BaseException | None,
    seconds: float,
) -> None:
    outcome = "ok"
    if isinstance(error, QueryCancelled):
        outcome = "cancelled"
    elif isinstance(error, QueryTimeout):
        outcome = "timeout"
    elif isinstance(error, ResourceLimit):
        outcome = "limit"
    elif error is not None:
        outcome = "refused" if isinstance(error, ChronicleError) else "failed"
    server.metrics.queries.labels(kind, outcome).inc()
    server.metrics.query_seconds.labels(kind).observe(seconds)
    server.metrics.result_rows.labels(encoding.format).inc(tally.rows)


class _Stream(Response):
    """An answer that is sent while it is computed."""

    def __init__(
        self,
        first: bytes,
        pipe: BodyPipe,
        query: RunningQuery,
        watch: asyncio.Task[None],
        headers: Mapping[str, str],
        encoding: RowEncoding,
        server: Server,
    ) -> None:
        self._first: bytes | None = first
        self._pipe = pipe
        self._query = query
        self._watch = watch
        self._pace = Pace.of(server.settings)
        self.status_code = 200
        self.media_type = media_type_of(encoding.format)
        self.background = None
        self.init_headers(headers)

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        """Headers without a length: it is not known."""
        self.body = b""
        super().init_headers(headers)
        self.raw_headers = [item for item in self.raw_headers if item[0] != b"content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the headers, then blocks as they are ready; break off a client that is too slow."""
        request_id = scope["state"]["request_id"]
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            block, self._first = self._first, None
            sent, waited = 0, 0.0
            while block is not None:
                message = {"type": "http.response.body", "body": block, "more_body": True}
                began = time.perf_counter()
                await asyncio.wait_for(send(message), max(0.0, self._pace.left(sent, waited)))
                waited += time.perf_counter() - began
                sent += len(block)
                block = await self._pipe.next_block()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            logger.warning(
                "request %s: the client took its answer too slowly; broken off after %d bytes",
                request_id,
                sent,
            )
            if ABORT in scope:
                scope[ABORT]()
            raise BrokenAnswer from None
        except QueryCancelled as error:
            logger.info("request %s: %s", request_id, error)
            raise BrokenAnswer from None
        except ChronicleError as error:
            logger.warning(
                "request %s broke off in the middle of its answer: %s", request_id, error
            )
            raise BrokenAnswer from None
        finally:
            self._query.cancellation.cancel()
            self._pipe.abandon()
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch

"""Row answers: computed in a thread, sent as they come, cancelled with their client. ::

    slot -> thread: open rows -> cut at limit -> encode -> gzip -> pipe -> event loop: send
              ^                                                        |
              '-- cancellation <-- client went away, stalled, DELETE --'

Nothing is sent before the first rows are computed, so an error until then is a problem document
with its own status; a later error breaks the connection.  The slot is released when the thread has
really ended (an uninterruptible DuckDB operation holds it until then).  An answer in one block has
its row count in the headers.  HEAD, ranges and conditions make the answer a file.

Files: generic readers of CSV and Parquet URLs send HEAD, byte ranges and conditions.  HEAD writes a
new file; ranges and ``If-Match`` use the file that the same client saw last, so the pieces of a
file fit together.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import logging
import time
from collections.abc import AsyncGenerator, Callable, Hashable, Mapping

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive

from ...errors import ChronicleError, QueryCancelled
from ...formats.kinds import media_type_of
from ...query.contract.result import Result
from ..access.auth import Principal
from ..access.limits import Gate
from ..http.replies import Problem
from ..http.requests import FileRequest, raw_path
from ..http.streamed import BrokenAnswer, Pace, Streamed
from ..service.answer_cache import Answer, tag_of
from ..service.middleware import note_time
from ..service.query_log import RunningQuery
from ..service.row_stream import BodyPipe, RowEncoding, Tally, compute, encode
from ..service.state import Server
from .route import Called

logger = logging.getLogger("chronicle.server")


PIECE_BYTES = 1 << 18


def encoding_of_file(file_request: FileRequest, encoding: RowEncoding) -> RowEncoding:
    whole = file_request.wanted is None and not file_request.head
    return encoding if whole else dataclasses.replace(encoding, gzip=False)


def request_identity(request: Request, principal: Principal, encoding: RowEncoding) -> Hashable:
    token = principal.token
    rights = None if token is None else (token.id, tuple(token.scopes), tuple(token.streams))
    return raw_path(request.scope), request.scope["query_string"], encoding, rights


class FileResponse(Streamed):
    """The part of a stored answer that was asked for; the constructor raises ``Problem`` (412,
    416).
    """

    def __init__(self, cached: Answer, file_request: FileRequest, server: Server) -> None:
        try:
            part = file_request.judge(cached.tag, cached.size)
        except BaseException:
            cached.file.close()
            raise
        self._cached = cached
        silent = file_request.head or part.status == 304
        self._first, self._stop = part.first, part.first if silent else part.last + 1
        headers = {**cached.headers, "ETag": cached.tag, "Accept-Ranges": "bytes"}
        if part.status == 206:
            headers["Content-Range"] = f"bytes {part.first}-{part.last}/{cached.size}"
        if part.status == 304:
            headers.pop("Content-Type", None)
        else:
            headers["Content-Length"] = str(part.last - part.first + 1)
        super().__init__(headers, None, Pace.of(server.settings), part.status)

    async def blocks(self, receive: Receive) -> AsyncGenerator[bytes, None]:
        for first in range(self._first, self._stop, PIECE_BYTES):
            size = min(PIECE_BYTES, self._stop - first)
            yield await asyncio.to_thread(self._cached.piece, first, size)

    async def end(self) -> None:
        self._cached.file.close()


async def send_rows(
    call: Called,
    gate: Gate,
    kind: str,
    text: str,
    open_rows: Callable[[RunningQuery], Result],
    encoding: RowEncoding,
    *,
    limit: int | None = None,
    looks_ahead: bool = True,
) -> Response:
    """Answer with the rows of ``open_rows``, which runs in a worker thread; its exception becomes
    the answer.  ``looks_ahead``: rows go on beyond ``limit``, so that ``truncated`` is known.
    """
    request, server, principal = call.request, call.server, call.principal
    file_request = FileRequest.of(request)
    if file_request is not None:
        encoding = encoding_of_file(file_request, encoding)
        what = request_identity(request, principal, encoding)
        if file_request.continues:
            cached = server.answers.find(principal.client, what, file_request.tags)
            if cached is not None:
                return FileResponse(cached, file_request, server)
    waited = time.perf_counter()
    slot = await gate.enter(principal.client)
    note_time(request, "queue", time.perf_counter() - waited)
    query = server.running.add(call.id, kind, text, principal)
    pipe = BodyPipe()
    tally = Tally(limit, server.settings.max_rows, looks_ahead=looks_ahead)
    started = time.perf_counter()

    def write() -> None:
        with open_rows(query) as rows:
            encode(rows.schema, rows.batches(), encoding, tally, pipe, query)

    compute(server, slot, query, pipe, tally, encoding.format, write)
    watch = ClientWatch(request, query)
    file = None if file_request is None else server.answers.begin(principal.client)
    try:
        block = first = await pipe.next_block()
        while file is not None and block is not None:
            await asyncio.to_thread(server.answers.write, file, block)
            block = await pipe.next_block()
    except BaseException as error:
        if file is not None:
            server.answers.abandon(file)
        watch.end()
        query.cancellation.cancel()
        pipe.abandon()
        if isinstance(error, QueryCancelled):
            _explain_cancellation(server, watch)
        raise
    note_time(request, "first", time.perf_counter() - started)
    if file_request is not None and file is not None:
        watch.end()
        media = {"Content-Type": media_type_of(encoding.format)}
        headers = _headers(query, encoding) | _counted(tally) | media
        kept = server.answers.keep(file, what, headers)
        return FileResponse(kept, file_request, server)
    if pipe.complete:
        watch.end()
        return _whole(request, query, encoding, tally, first or b"")
    return _Stream(first or b"", pipe, query, watch, _headers(query, encoding), encoding, server)


def _explain_cancellation(server: Server, watch: ClientWatch) -> None:
    if watch.gone:
        raise ClientDisconnect from None
    if server.stopping:
        why = "the server is stopping and the query took too long to wait for; ask again"
        raise Problem("not-ready", why) from None


def _headers(query: RunningQuery, encoding: RowEncoding) -> dict[str, str]:
    headers = {
        "X-Query-Id": query.id,
        "Vary": "Accept, Accept-Encoding",
        "Cache-Control": "no-store",
        "Accept-Ranges": "bytes",
    }
    if encoding.gzip:
        headers["Content-Encoding"] = "gzip"
    return headers


def _whole(
    request: Request, query: RunningQuery, encoding: RowEncoding, tally: Tally, body: bytes
) -> Response:
    headers = _headers(query, encoding) | _counted(tally)
    if request.method == "GET" and not encoding.envelope:  # the envelope has the elapsed time
        headers["ETag"] = tag_of(hashlib.sha256(body))
    return Response(body, headers=headers, media_type=media_type_of(encoding.format))


def _counted(tally: Tally) -> dict[str, str]:
    headers = {"X-Row-Count": str(tally.rows)}
    if tally.truncated is not None:
        headers["X-Truncated"] = "true" if tally.truncated else "false"
    return headers


WATCH_AFTER_S = 0.005


class ClientWatch:
    """Cancels a query when its client goes; a query that ends at once needs no task for this."""

    def __init__(self, request: Request, query: RunningQuery) -> None:
        self._request = request
        self._query = query
        self._task: asyncio.Task[None] | None = None
        self._begin = asyncio.get_running_loop().call_later(WATCH_AFTER_S, self._look)
        self.gone = False

    def _look(self) -> None:
        self._task = asyncio.create_task(self._wait())

    async def _wait(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        self._query.cancellation.cancel()

    def end(self) -> None:
        self._begin.cancel()
        if self._task is not None:
            self._task.cancel()


class _Stream(Streamed):
    def __init__(
        self,
        first: bytes,
        pipe: BodyPipe,
        query: RunningQuery,
        watch: ClientWatch,
        headers: Mapping[str, str],
        encoding: RowEncoding,
        server: Server,
    ) -> None:
        self._first = first
        self._pipe = pipe
        self._query = query
        self._watch = watch
        super().__init__(headers, media_type_of(encoding.format), Pace.of(server.settings))

    async def blocks(self, receive: Receive) -> AsyncGenerator[bytes, None]:
        block: bytes | None = self._first
        try:
            while block is not None:
                yield block
                block = await self._pipe.next_block()
        except ChronicleError as error:
            level = logging.INFO if isinstance(error, QueryCancelled) else logging.WARNING
            logger.log(level, "the answer to %s broke off in its middle: %s", self._query.id, error)
            raise BrokenAnswer from None

    async def end(self) -> None:
        self._query.cancellation.cancel()
        self._pipe.abandon()
        self._watch.end()

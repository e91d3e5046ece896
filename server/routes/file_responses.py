"""Row answers as files, for HEAD, byte ranges and conditions, as generic readers of CSV and Parquet
URLs send them.  HEAD writes a new file; ranges and ``If-Match`` use the file that the same client
saw last, so the pieces of a file fit together.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Hashable

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..access.auth import Principal
from ..http.body_pipe import BodyPipe
from ..http.preconditions import FileRequest
from ..http.request_head import raw_path
from ..service.bodies import Pace
from ..service.encoding import RowEncoding
from ..service.kept_answers import AnswerFile, OpenAnswer
from ..service.state import Server
from .paced_sending import send_paced

__all__ = ["FileResponse", "encoding_of_file", "what_is_asked", "write_answer"]

PIECE_BYTES = 1 << 18


def encoding_of_file(asked: FileRequest, encoding: RowEncoding) -> RowEncoding:
    whole = asked.wanted is None and not asked.head
    return encoding if whole else dataclasses.replace(encoding, gzip=False)


def what_is_asked(request: Request, principal: Principal, encoding: RowEncoding) -> Hashable:
    token = principal.token
    rights = None if token is None else (token.id, tuple(token.scopes), tuple(token.streams))
    return raw_path(request.scope), request.scope["query_string"], encoding, rights


async def write_answer(file: AnswerFile, first: bytes | None, pipe: BodyPipe) -> None:
    block = first
    while block is not None:
        await asyncio.to_thread(file.write, block)
        block = await pipe.next_block()


class FileResponse(Response):
    """The part of a stored answer that was asked for; the constructor raises ``Problem`` (412,
    416).
    """

    def __init__(self, kept: OpenAnswer, asked: FileRequest, server: Server) -> None:
        try:
            told = asked.judge(kept.tag, kept.size)
        except BaseException:
            kept.file.close()
            raise
        self._kept = kept
        self._first, self._last = told.first, told.last
        self._silent = asked.head or told.status == 304
        self._pace = Pace.of(server.settings)
        headers = {**kept.headers, "ETag": kept.tag, "Accept-Ranges": "bytes"}
        if told.status == 206:
            headers["Content-Range"] = f"bytes {told.first}-{told.last}/{kept.size}"
        if told.status == 304:
            headers.pop("Content-Type", None)
        else:
            headers["Content-Length"] = str(told.last - told.first + 1)
        super().__init__(b"", told.status, headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._kept.file:
            start = {"type": "http.response.start", "status": self.status_code}
            await send({**start, "headers": self.raw_headers})
            if self._silent:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                return
            await send_paced(scope, send, self._pace, self._next_block)

    async def _next_block(self) -> bytes | None:
        size = min(PIECE_BYTES, self._last + 1 - self._first)
        if size <= 0:
            return None
        block = await asyncio.to_thread(self._kept.piece, self._first, size)
        self._first += len(block)
        return block

"""``POST .../events?ack=each``: an endless NDJSON body with an acknowledgement for each commit. ::

    client   {"t": 1} {"t": 2} ... ->            ... {"t": 900}
    server           -> {"lines": 100, "appended": 100, ...} {"lines": 200, ...} ...

    socket -> [<= 1 MiB] -> whole lines, cut into commits -> a thread: parse, append, one sync
                                                              -> an answer for each commit

Lines are acknowledged in order, once, with the durability asked for; those that arrive during a
sync become commits of the next one.  A commit holds up to ``commit_events`` lines, all or none.
Acknowledged events stay, however the connection ends.  An invalid line ends it with the problem as
the last line.

A line has at most ``PENDING_MAX`` bytes.  An endless body has no digest and so no Idempotency-Key;
after a lost connection the client counts the stored events before it goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...api.streams import Stream
from ...core.append_result import AppendResult
from ...errors import ChronicleError, InvalidArgument
from ...formats.dialect import TextOptions
from ..access.auth import Principal, ask_again
from ..http.problems import Problem, as_problem, problem_document
from ..service.bodies import Body, Pace, too_slow
from ..service.event_parsing import read_events, time_format_of
from ..service.middleware import ABORT, BrokenAnswer
from ..service.small_bodies import SmallReader
from ..service.state import Server

__all__ = ["Acknowledged", "check_continuous"]

PENDING_MAX = 1 << 20

TOGETHER_MAX = 64

LOOK_S = 1.0


def check_continuous(
    request: Request,
    format: str,
    on_error: str,
    idempotency_key: str | None,
    flatten: str | None,
    text: TextOptions,
) -> None:
    packed = request.headers.get("content-encoding", "identity").strip().lower()
    wrong = {
        f"the format {format}, which has no lines; send ndjson": format != "ndjson",
        f"Content-Encoding {packed}; send it as it is": packed not in ("", "identity"),
        "on_error=skip; a line that is no event ends it": on_error != "fail",
        "flatten; send flat lines": flatten is not None,
        "options of text files; send UTF-8": text != TextOptions(),
        "an Idempotency-Key; an answer that goes on cannot be replayed": idempotency_key
        is not None,
    }
    for what, found in wrong.items():
        if found:
            raise InvalidArgument(f"ack=each does not go with {what}")


@dataclass
class _Committed:
    answers: list[bytes]
    lines: int
    problem: Exception | None = None


class Acknowledged(Response):
    """A response written while the body arrives; ``commit_events`` bounds the lines of a commit."""

    def __init__(
        self,
        request: Request,
        server: Server,
        principal: Principal,
        stream: Stream,
        precision: str | None,
        durability: str | None,
        commit_events: int,
    ) -> None:
        self._request = request
        self._server = server
        self._principal = principal
        self._stream = stream
        self._precision = precision
        self._durability = durability
        self._commit_events = commit_events
        self._pace = Pace.of(server.settings)
        self._line_max = min(PENDING_MAX, server.settings.max_body_bytes)
        schema = stream.event_schema
        self._reader = SmallReader(schema, time_format_of(schema, precision))
        self._come = bytearray()
        self._ended = False
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._lines = 0
        self._appended = 0
        self.status_code = 200
        self.media_type = "application/x-ndjson"
        self.background = None
        self.body = b""
        self.init_headers(
            {
                "Cache-Control": "no-store",
                "X-Accel-Buffering": "no",
                "Connection": "close",  # the answer may end before the body
            }
        )
        self.raw_headers = [item for item in self.raw_headers if item[0] != b"content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        server, client = self._server, self._principal.client
        async with server.bodies.held(client):
            with server.uploads.account(client) as account:
                account.hold(2 * PENDING_MAX)
                await self._send(send, None)
                taking = asyncio.create_task(self._take(receive))
                try:
                    last = await self._run(send, taking)
                    await self._send(send, last)
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
                except TimeoutError:  # the client does not read
                    if ABORT in scope:
                        scope[ABORT]()
                    raise BrokenAnswer from None
                finally:
                    taking.cancel()
                    with contextlib.suppress(asyncio.CancelledError, Problem, ClientDisconnect):
                        await taking

    async def _run(self, send: Send, taking: asyncio.Task[None]) -> bytes:
        server = self._server
        try:
            while True:
                pieces = self._pieces()
                if not pieces:
                    if self._ended:
                        told = {"lines": self._lines, "appended": self._appended}
                        return orjson.dumps({"$end": told}) + b"\n"
                    if taking.done():
                        taking.result()  # raises if the client is silent or gone
                    self._refuse_to_wait()
                    await self._wait()
                    continue
                async with server.appends.held(self._principal.client):
                    done = await server.call(self._commit, pieces)
                if done.answers:
                    await self._send(send, b"".join(done.answers))
                if done.problem is not None:
                    raise done.problem
        except (ChronicleError, Problem) as error:
            problem = as_problem(error)
            if problem.status in (413, 429, 503):
                server.metrics.rejected.labels(problem.code).inc()
            document = problem_document(error, self._request.state.request_id)
            return orjson.dumps({"$error": {**document, "lines": self._lines}}) + b"\n"

    # --- the lines

    async def _take(self, receive: Receive) -> None:
        try:
            more = True
            while more:
                while len(self._come) >= PENDING_MAX:
                    self._room.clear()
                    await self._room.wait()
                try:
                    async with asyncio.timeout(self._pace.silence_s):
                        message = await receive()
                except TimeoutError:
                    raise too_slow(self._pace, self._lines) from None
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                self._come += message.get("body", b"")
                more = message.get("more_body", False)
                self._news.set()
            self._ended = True
        finally:
            self._news.set()

    async def _wait(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await self._news.wait()
        self._news.clear()

    def _refuse_to_wait(self) -> None:
        if self._server.stopping:
            raise Problem("not-ready", 503, "the server is stopping; go on with another connection")
        if len(self._come) >= self._line_max:
            raise Problem(
                "body-too-large",
                413,
                f"line {self._lines + 1} does not end within {self._line_max:,} bytes",
            )

    def _pieces(self) -> list[bytes]:
        come = self._come
        end = len(come) if self._ended else come.rfind(b"\n") + 1
        if not end:
            return []
        data = bytes(come[:end])
        breaks = np.flatnonzero(np.frombuffer(data, np.uint8) == 10) + 1
        cuts = breaks[self._commit_events - 1 :: self._commit_events].tolist()[:TOGETHER_MAX]
        if len(cuts) < TOGETHER_MAX and (not cuts or cuts[-1] < end):
            cuts.append(end)
        del come[: cuts[-1]]
        self._room.set()
        return [data[start:stop] for start, stop in zip([0, *cuts], cuts, strict=False)]

    # --- their commits, in a thread

    def _commit(self, pieces: list[bytes]) -> _Committed:
        ask_again(self._request).require("ingest", self._stream.name)
        done = _Committed([], 0)
        waiting: list[tuple[int, pa.RecordBatch | pa.Table]] = []
        lines = 0
        for piece in pieces:
            lines += piece.count(b"\n") + (not piece.endswith(b"\n"))
            try:
                events = self._events(piece)
            except (ChronicleError, Problem) as error:
                done.problem = error
                break
            if events.num_rows:
                waiting.append((lines, events))
        try:
            while waiting:
                results = self._stream.append_each([each for _, each in waiting], self._durability)
                self._note(done, waiting, results)
                del waiting[: len(results)]
        except ChronicleError as error:
            done.problem = error
        if done.problem is None:
            done.lines = lines
        self._lines += done.lines
        return done

    def _events(self, piece: bytes) -> pa.RecordBatch | pa.Table:
        found = self._reader.columns(piece, lines=True)
        if found is not None:
            with contextlib.suppress(ValueError, OverflowError):
                batch, bad = self._reader.batch([found])
                if not bad.any():
                    return batch
        settings, server = self._server.settings, self._server
        with contextlib.closing(Body(None, None, None)) as body:
            body.write(piece)
            return read_events(
                body,
                "ndjson",
                self._stream.event_schema,
                self._precision,
                settings.max_decoded_bytes,
                server.reader,
                columns_max=settings.max_columns,
            )[0]

    def _note(
        self,
        done: _Committed,
        waiting: list[tuple[int, Any]],
        results: list[AppendResult],
    ) -> None:
        metrics = self._server.metrics
        for (lines, _), result in zip(waiting, results, strict=False):
            done.lines = lines
            self._appended += result.appended
            told = {
                "lines": self._lines + lines,
                "appended": result.appended,
                "late": result.late,
                "count": result.count,
                "version": result.version,
            }
            if self._stream.handle.options.unique is not None:
                told["duplicates"] = result.duplicates
            done.answers.append(orjson.dumps(told) + b"\n")
            metrics.appended_events.labels("ndjson").inc(result.appended)
            metrics.late_events.inc(result.late)

    # --- the answer

    async def _send(self, send: Send, block: bytes | None) -> None:
        message: dict[str, Any] = {"type": "http.response.body", "body": block, "more_body": True}
        if block is None:
            message = {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        async with asyncio.timeout(self._pace.silence_s):
            await send(message)

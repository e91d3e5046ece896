"""Events over a connection that goes on: each commit is acknowledged when it is durable.

Purpose
    ``POST .../events?ack=each`` is for a client that has events all the time.  It sends lines of
    NDJSON in a body that need not end, and reads the answer meanwhile: one line for each commit.

Layout
    ::

        client   {"t": 1} {"t": 2} ... ->            ... {"t": 900}
        server           -> {"lines": 100, "appended": 100, ...} {"lines": 200, ...} ...

        socket -> [<= 1 MiB] -> whole lines, cut into commits -> a thread: parse, append, one sync
                                                                  -> an answer for each commit

    While one sync is under way the lines that come wait, and become commits of the next.

Guarantee
    A line is acknowledged when it is as durable as was asked for, in the order of the lines, once.
    A commit holds up to ``commit_events`` lines: those that have come, whole or not at all.  What
    was acknowledged stays, however the connection ends.  A line that is no event ends it, with the
    problem as the last line; nothing of its commit is stored.

Limits
    A line has at most :data:`PENDING_MAX` bytes.  A body that goes on has no digest: there are no
    Idempotency-Keys; a client that lost its connection counts what is stored before it goes on.
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
"""Bytes that are read ahead of the commit under way."""

TOGETHER_MAX = 64
"""Commits that share a sync."""

LOOK_S = 1.0
"""How often a connection that is silent looks whether the server stops."""


def check_continuous(
    request: Request,
    format: str,
    on_error: str,
    idempotency_key: str | None,
    flatten: str | None,
    text: TextOptions,
) -> None:
    """Refuse what a body that is acknowledged commit by commit cannot have.

    Raises
    ------
    InvalidArgument
    """
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
    """What a thread has done: an answer for each commit, then what stopped it, if something did."""

    answers: list[bytes]
    lines: int
    problem: Exception | None = None


class Acknowledged(Response):
    """An answer that is written while the body comes.

    Parameters
    ----------
    stream : Stream
        Whose appends the principal may do.
    commit_events : int
        Most lines of a commit.
    """

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
                "Connection": "close",  # it may end before the body does
            }
        )
        self.raw_headers = [item for item in self.raw_headers if item[0] != b"content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take lines and acknowledge them until there are no more."""
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
                except TimeoutError:  # it does not take its answers
                    if ABORT in scope:
                        scope[ABORT]()
                    raise BrokenAnswer from None
                finally:
                    taking.cancel()
                    with contextlib.suppress(asyncio.CancelledError, Problem, ClientDisconnect):
                        await taking

    async def _run(self, send: Send, taking: asyncio.Task[None]) -> bytes:
        """Commit what comes; gives the last line of the answer."""
        server = self._server
        try:
            while True:
                pieces = self._pieces()
                if not pieces:
                    if self._ended:
                        told = {"lines": self._lines, "appended": self._appended}
                        return orjson.dumps({"$end": told}) + b"\n"
                    if taking.done():
                        taking.result()  # raises: the client fell silent, or went away
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
        """Take the body off the wire, no further ahead than :data:`PENDING_MAX`."""
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
        """End a connection that waits for lines where it must not go on."""
        if self._server.stopping:
            raise Problem("not-ready", 503, "the server is stopping; go on with another connection")
        if len(self._come) >= self._line_max:
            raise Problem(
                "body-too-large",
                413,
                f"line {self._lines + 1} does not end within {self._line_max:,} bytes",
            )

    def _pieces(self) -> list[bytes]:
        """Whole lines that have come, cut into commits."""
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
        """The events of some lines; raises where one is none."""
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
        """Make the answers of commits, and count them."""
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
        """Send the head (None) or some of the answer, to a client that takes it in time."""
        message: dict[str, Any] = {"type": "http.response.body", "body": block, "more_body": True}
        if block is None:
            message = {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        async with asyncio.timeout(self._pace.silence_s):
            await send(message)

"""HTTP for asyncio, over httpx2 (``docs/decisions/0017-async-client.md``); rules as in
``transport``.  Cancelling a task closes its connection, which ends the query on the server.  One
event loop for each transport.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..errors import MissingDependency, StoreClosed
from .calls import Call
from .transport import (
    ARROW,
    IDLE_S,
    JSON,
    RETRIES,
    TIMEOUT_S,
    TRUNCATED,
    ArrowDecoder,
    Refusal,
    Told,
    address_of,
    arrow_chunks,
    cut_error,
    pauses,
    refusal,
)

if TYPE_CHECKING:
    import httpx2


Body = Callable[[], bytes | AsyncIterator[bytes] | None]


class AsyncTransport:
    """Requests to one server; parameters as of ``Transport``."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        timeout: float = TIMEOUT_S,
        retries: int = RETRIES,
    ) -> None:
        try:
            import httpx2
        except ImportError:
            raise MissingDependency(
                "aconnect needs httpx2: pip install 'chronicle-eventstore[async]'; "
                "chronicle.connect does without"
            ) from None
        self.address = address_of(url)
        self.where = self.address.where
        self._retries = retries
        self._httpx = httpx2
        self._client = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {token}"} if token else None,
            verify=ssl.create_default_context() if self.address.secure else False,
            timeout=timeout,
            limits=httpx2.Limits(keepalive_expiry=IDLE_S),
            trust_env=False,  # like the blocking client
        )

    async def json(self, call: Call) -> Any:
        return await self._decoded(await self._request(call, JSON, lambda: call.payload))

    async def rows(self, call: Call) -> AsyncRows:
        return AsyncRows(await self.feed(call), call.may_be_cut)

    async def feed(self, call: Call) -> AsyncFeed:
        told = AsyncFeed(self, await self._request(call, ARROW, lambda: call.payload))
        await told.begin()
        return told

    async def send(self, call: Call, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Any:

        async def pieces() -> AsyncIterator[bytes]:
            for piece in arrow_chunks(schema, batches):
                yield piece

        retries = self._retries if call.repeatable else 0
        return await self._decoded(await self._request(call, JSON, pieces, retries))

    async def close(self) -> None:
        await self._client.aclose()

    async def _request(
        self, call: Call, accepted: str, body: Body, retries: int | None = None
    ) -> httpx2.Response:
        if self._client.is_closed:
            raise StoreClosed(f"the connection to {self.where} was closed; connect again")
        for pause in pauses(self._retries if retries is None else retries):
            try:
                response = await self._sent(call, accepted, body())
                if response.status_code < 400:
                    return response
                refused = await self._refused(response)
            except (self._httpx.ConnectError, self._httpx.ConnectTimeout) as error:
                if pause is None:
                    raise self.address.away(error) from None
            except self._httpx.TransportError as error:
                if pause is None or not call.again:
                    raise self.address.broke_off(error) from None
            else:
                if pause is None or not refused.passes(call.again):
                    raise refused.error()
                pause = refused.pause_after(pause)
            await asyncio.sleep(pause)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _sent(
        self, call: Call, accepted: str, body: bytes | AsyncIterator[bytes] | None
    ) -> httpx2.Response:
        headers = {"Accept": accepted, "Accept-Encoding": "identity", **call.headers}
        if body is not None:
            headers["Content-Type"] = JSON if isinstance(body, bytes) else ARROW
        url = self.where + self.address.base + call.target
        request = self._client.build_request(call.method, url, headers=headers, content=body)
        return await self._client.send(request, stream=True)

    async def _refused(self, response: httpx2.Response) -> Refusal:
        text = await response.aread()
        later = response.headers.get("Retry-After")
        return refusal(response.status_code, text, self.where, later)

    async def _decoded(self, response: httpx2.Response) -> Any:
        try:
            text = await response.aread()
        except self._httpx.TransportError as error:
            raise self.address.broke_off(error) from None
        return self.address.decoded(text)


class AsyncFeed:
    """Batches of an answer with their metadata."""

    schema: pa.Schema

    def __init__(self, transport: AsyncTransport, response: httpx2.Response) -> None:
        self.transport = transport
        self._response = response
        self._pieces = response.aiter_raw()
        self._held = b""
        self._decoder = ArrowDecoder()

    async def begin(self) -> None:
        try:
            while self._decoder.schema is None and not self._decoder.ended:
                await self._step()
            if self._decoder.schema is None:
                raise self.transport.address.broke_off("an Arrow stream without a schema")
        except BaseException:
            await self.close()
            raise
        self.schema = self._decoder.schema

    async def _step(self) -> Told | None:
        try:
            return self._decoder.feed(await self._exactly(self._decoder.needed))
        except (pa.ArrowInvalid, EOFError, self.transport._httpx.TransportError) as error:
            raise self.transport.address.broke_off(error) from None

    async def _exactly(self, size: int) -> bytes:
        pieces, length = [self._held], len(self._held)
        while length < size:
            piece = await anext(self._pieces, b"")
            if not piece:
                raise EOFError("its end is missing")
            pieces.append(piece)
            length += len(piece)
        whole = b"".join(pieces)
        self._held = whole[size:]
        return whole[:size]

    async def __aiter__(self) -> AsyncIterator[Told]:
        while not self._decoder.ended:
            told = await self._step()
            if told is not None:
                yield told

    async def finish(self) -> None:
        async for _ in self._pieces:
            pass

    async def close(self) -> None:
        await self._response.aclose()


class AsyncRows:
    """Batches of a finite answer."""

    def __init__(self, told: AsyncFeed, may_be_cut: bool) -> None:
        self.schema = told.schema
        self._told = told
        self._may_be_cut = may_be_cut

    async def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        try:
            async for batch, marks in self._told:
                if TRUNCATED in marks and not self._may_be_cut:
                    raise cut_error(self._told.transport.where)
                yield batch
            await self._told.finish()
        finally:
            await self._told.close()

    async def close(self) -> None:
        await self._told.close()

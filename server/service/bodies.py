"""Request bodies: received in pieces, bounded in size and time, decompressed while read. ::

    socket --1 MiB pieces--> [<= 8 MiB memory | unnamed file] --> gunzip --> count --> parser
          event loop                worker thread                    worker thread

Neither the bytes on the wire nor the decoded ones exceed their limits, whatever a header says, so a
decompression bomb stops at the limit.  A client slower than ``Pace`` is disconnected.  Parsing
starts after the whole body has arrived: an append is atomic and its errors need a status.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from starlette.requests import ClientDisconnect, Request

from ...formats.kinds import sniff_compression
from ...formats.sources import unpacked
from ..access.limits import ByteAccount
from ..access.settings import Settings
from ..http.problems import Problem

MEMORY_BYTES = 8 << 20
PIECE_BYTES = 1 << 20
SMALL_BYTES = 1 << 16
_ENCODINGS = {"": None, "identity": None, "gzip": "gzip", "x-gzip": "gzip", "zstd": "zstd"}


class Body:
    """A received body; ``size`` is on the wire, ``encoding`` None, "gzip" or "zstd"."""

    def __init__(
        self,
        directory: Path | None,
        encoding: str | None,
        account: ByteAccount | None,
        *,
        hashed: bool = False,
    ) -> None:
        self._directory = directory
        self._account = account
        self._file = self._new_file()
        self._sha256 = hashlib.sha256() if hashed else None
        self._is_unpacked = False
        self.size = 0
        self.encoding = encoding

    def _new_file(self) -> IO[bytes]:
        return tempfile.SpooledTemporaryFile(
            max_size=MEMORY_BYTES, dir=None if self._directory is None else str(self._directory)
        )

    def write(self, piece: bytes) -> None:
        """Add bytes; may write to disk, so call it in a thread."""
        if self._account is not None:
            self._account.hold(len(piece))
        if self._sha256 is not None:
            self._sha256.update(piece)
        self._file.write(piece)
        self.size += len(piece)

    def tell_encoding(self) -> None:
        if self.encoding is None:
            self._file.seek(0)
            self.encoding = sniff_compression(self._file.read(4))

    @property
    def position(self) -> int:
        """Bytes that have been read; the size, where this is not tracked."""
        return self.size

    @property
    def digest(self) -> str:
        assert self._sha256 is not None
        return self._sha256.hexdigest()

    def open(self, decoded_max: int, *, seekable: bool = False) -> IO[bytes]:
        """The decoded body as a file; more than ``decoded_max`` bytes raise ``ResourceLimit``.
        ``seekable`` copies a compressed body.
        """
        self._file.seek(0)
        hold = None if self._account is None else self._account.hold
        encoding = None if self._is_unpacked else self.encoding
        decoded = unpacked(self._file, encoding, decoded_max, hold)
        if encoding is None or not seekable:
            return decoded
        packed, self._file = self._file, self._new_file()
        with packed:
            while piece := decoded.read(PIECE_BYTES):
                self._file.write(piece)
        self._is_unpacked = True
        self._file.seek(0)
        return self._file

    def hold(self, size: int) -> None:
        if self._account is not None:
            self._account.hold(size)

    @contextmanager
    def handed_over(self) -> Iterator[int | bytes]:
        """The body as it was sent, for another process: its bytes, or its own descriptor."""
        if self.size <= SMALL_BYTES:
            self._file.seek(0)
            yield self._file.read()
            return
        if getattr(self._file, "_rolled", True):
            self._file.flush()
            file = os.open(f"/proc/self/fd/{self._file.fileno()}", os.O_RDONLY | os.O_CLOEXEC)
        else:
            file = os.memfd_create("body")
        try:
            if not getattr(self._file, "_rolled", True):
                self._file.seek(0)
                with open(file, "wb", closefd=False) as copy:
                    copy.write(self._file.read())
                os.lseek(file, 0, os.SEEK_SET)
            yield file
        finally:
            os.close(file)

    def close(self) -> None:
        self._file.close()


class StoredFile(Body):
    """A file on the server's machine, read like a body; ``directory`` has decompressed copies."""

    def __init__(self, path: Path, directory: Path) -> None:
        super().__init__(directory, None, None)
        self._path = path
        self._file.close()
        self._file = path.open("rb")
        self.size = os.fstat(self._file.fileno()).st_size
        self._given: int | None = None

    @property
    def position(self) -> int:
        """The read position of the worker process, or of this one."""
        if self._given is None:
            return self.size if self._file.closed else self._file.tell()
        return os.lseek(self._given, 0, os.SEEK_CUR)

    @contextmanager
    def handed_over(self) -> Iterator[int | bytes]:
        """The file, opened once more, since a reader moves the position of its descriptor."""
        file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._given = file
            yield file
        finally:
            self._given = None
            os.close(file)


def body_too_large(limit: int) -> Problem:
    return Problem(
        "body-too-large",
        413,
        f"the body is larger than {limit:,} bytes (CHRONICLE_MAX_BODY_BYTES); send it in parts",
        {"Connection": "close"},  # do not read the rest of it
    )


@asynccontextmanager
async def receive(
    request: Request,
    account: ByteAccount | None,
    *,
    body_max: int,
    pace: Pace,
    directory: Path | None = None,
    hashed: bool = False,
) -> AsyncIterator[Body]:
    """Receive a body, for the block; raises ``Problem`` (408, 413, 415) or ``ClientDisconnect``."""
    name = request.headers.get("content-encoding", "").strip().lower()
    if name not in _ENCODINGS:
        raise Problem(
            "unsupported-media-type",
            415,
            f"Content-Encoding is gzip or zstd, found {name!r}",
            {"Accept-Encoding": "gzip, zstd", "Connection": "close"},
        )
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and len(declared) < 20 and int(declared) > body_max:
        raise body_too_large(body_max)
    body = Body(directory, _ENCODINGS[name], account, hashed=hashed)
    try:
        await fill(body, pieces_of(request, body_max, pace))
        yield body
    finally:
        body.close()


async def fill(body: Body, received: AsyncGenerator[bytes, None]) -> None:
    pieces: list[bytes] = []
    gathered = 0
    async with contextlib.aclosing(received) as stream:
        async for piece in stream:
            pieces.append(piece)
            gathered += len(piece)
            if gathered >= PIECE_BYTES:
                await asyncio.to_thread(body.write, b"".join(pieces))
                pieces, gathered = [], 0
    if gathered:
        if body.size + gathered <= MEMORY_BYTES:
            body.write(b"".join(pieces))
        else:
            await asyncio.to_thread(body.write, b"".join(pieces))


@dataclass(frozen=True)
class Pace:
    """How slow a client may be: ``silence_s`` without a byte, or for a body of any size; for each
    further second, ``bytes_per_s`` bytes must have come.
    """

    silence_s: float
    bytes_per_s: int

    @classmethod
    def of(cls, settings: Settings) -> Pace:
        return cls(settings.client_timeout_ms / 1000, settings.min_client_bytes_per_s)

    def left(self, moved: int, waited: float) -> float:
        """Seconds for the client's next byte, after ``moved`` bytes and ``waited`` seconds."""
        return min(self.silence_s, self.silence_s + moved / self.bytes_per_s - waited)


def too_slow(pace: Pace, size: int) -> Problem:
    return Problem(
        "request-timeout",
        408,
        f"the body came too slowly: {size:,} bytes, then none for a while; at most "
        f"{pace.silence_s:g} s without a byte (CHRONICLE_CLIENT_TIMEOUT_MS) and at "
        f"least {pace.bytes_per_s:,} bytes a second (CHRONICLE_MIN_CLIENT_BYTES_PER_S)",
        {"Connection": "close"},
    )


async def pieces_of(request: Request, body_max: int, pace: Pace) -> AsyncGenerator[bytes, None]:
    """The pieces of a body, as ``receive``; only time spent waiting for the client counts."""
    size = 0
    waited = 0.0
    loop = asyncio.get_running_loop()
    more = True
    while more:
        began = loop.time()
        try:
            async with asyncio.timeout(max(0.0, pace.left(size, waited))):
                message = await request.receive()
        except TimeoutError:
            raise too_slow(pace, size) from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        waited += loop.time() - began
        piece = message.get("body", b"")
        more = message.get("more_body", False)
        size += len(piece)
        if size > body_max:
            raise body_too_large(body_max)
        if piece:
            yield piece

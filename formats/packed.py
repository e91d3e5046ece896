"""Decompression (gzip, zstd) that counts bytes and stops at a limit, whatever a header declares."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import IO, Any

import pyarrow as pa

from ..errors import InvalidData, ResourceLimit

__all__ = ["Unpacked", "check_size", "unpacked"]

PIECE_BYTES = 1 << 20


def unpacked(
    file: IO[bytes],
    encoding: str | None,
    limit: int,
    hold: Callable[[int], None] | None = None,
) -> IO[bytes]:
    """The file decompressed; reading beyond ``limit`` raises, ``hold`` gets each piece's size."""
    if encoding is None:
        check_size(file.seek(0, io.SEEK_END), limit)
        file.seek(0)
        return file
    return io.BufferedReader(Unpacked(file, encoding, limit, hold), PIECE_BYTES)


def check_size(size: int, limit: int) -> None:
    if size > limit:
        raise ResourceLimit(
            f"the decoded body is larger than {limit:,} bytes (CHRONICLE_MAX_DECODED_BYTES); "
            "send it in parts"
        )


class Unpacked(io.RawIOBase):
    def __init__(
        self,
        file: IO[bytes],
        encoding: str,
        limit: int,
        hold: Callable[[int], None] | None,
    ) -> None:
        self._stream = pa.CompressedInputStream(pa.PythonFile(file, "r"), encoding)
        self._encoding = encoding
        self._limit = limit
        self._hold = hold
        self._count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), PIECE_BYTES)
        try:
            piece = self._stream.read(wanted)
        except (OSError, pa.ArrowException) as error:
            raise InvalidData(
                f"the body is not valid {self._encoding} ({error}); send it whole, or without "
                "Content-Encoding"
            ) from None
        self._count += len(piece)
        check_size(self._count, self._limit)
        if self._hold is not None:
            self._hold(len(piece))
        buffer[: len(piece)] = piece
        return len(piece)

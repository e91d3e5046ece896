"""Byte sources: paths, standard input, open files, byte strings, request bodies, archives.

``ByteSource`` gives decompressed bytes with lookahead, text as UTF-8, and a seekable file for
Parquet and Arrow files (a temporary copy of a pipe).  Truncated or undecodable input raises
InvalidData.  Decompression (gzip, zstd) counts bytes and stops at a limit, whatever a header says.

Of a ZIP archive its one file is read, and of an ``.xlsx`` workbook one sheet, as CSV.  ``zipfile``
reads no more than the declared size, which is checked first.  A sheet is read row by row: dates and
times as ISO text, numbers with all digits, formulas by their stored value; text that looks like a
number stays text.  Workbooks need openpyxl, which holds its string table in memory.
"""

from __future__ import annotations

import codecs
import csv
import datetime as dt
import io
import os
import re
import select
import stat
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa

from ..core.closing import Closing
from ..core.suggestion import did_you_mean
from ..errors import InvalidArgument, InvalidData, MissingDependency, ResourceLimit
from .convert import FLOAT_TEXT
from .dialect import Limits, TextOptions
from .kinds import sniff_compression, suffixes_of

Readable = str | os.PathLike[str] | bytes | bytearray | memoryview | IO[bytes] | Iterable[bytes]
"""A path (``"-"`` is standard input), bytes, a binary file, or chunks of bytes."""

_COPY_BYTES = 1 << 20
LIVE_SECONDS = 0.5


class _ReadBy(io.RawIOBase):
    """A file of what a function reads, which may give more than it is asked for."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._rest = memoryview(b"")
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        self._rest = self._rest or memoryview(self._read(len(view)))
        size = min(len(view), len(self._rest))
        view[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        self.count += size
        return size


class ByteSource(Closing):
    """A source of bytes; as a context manager it closes what it opened.

    With ``live``, ``read`` waits at most half a second (for endless pipes).  ``size`` is in raw
    bytes, if known; ``texts`` are columns of a sheet with text that looks like a number.
    """

    def __init__(
        self,
        source: Readable,
        *,
        name: str | None = None,
        compression: str | None = "auto",
        live: bool = False,
    ) -> None:
        self.name = name or "<data>"
        self.size: int | None = None
        self.texts: set[int] = set()
        self._path: Path | None = None
        self._owned: list[IO[Any]] = []
        file: IO[bytes] | None = None
        if isinstance(source, (str, os.PathLike)):
            file = self._open_path(os.fspath(source), name)
        elif isinstance(source, (bytes, bytearray, memoryview)):
            self.size = len(source)
            file = io.BytesIO(source)
        elif hasattr(source, "read"):
            file = cast("IO[bytes]", source)
            if name is None and isinstance(getattr(source, "name", None), str):
                self.name = str(file.name)
        elif isinstance(source, Iterable):
            pieces = filter(None, source)
        else:
            raise InvalidArgument(
                f"expected a path, bytes or a binary file to read, found {type(source).__name__}"
            )
        # a file at its beginning is the whole source
        is_file = self._path is not None or isinstance(file, io.BufferedReader | io.BytesIO)
        at_begin = is_file and file is not None and file.seekable() and file.tell() == 0
        self._whole = file if at_begin else None
        if file is None:
            self._raw = _ReadBy(lambda _: next(pieces, b""))
        else:
            read = getattr(file, "read1", file.read)
            self._raw = _ReadBy(lambda size: read(size) or b"")
        self._buffered = io.BufferedReader(self._raw, buffer_size=1 << 18)
        self.compression = compression
        if compression == "auto":
            self.compression = sniff_compression(self._buffered.peek(4)[:4])
        self._plain: Any = self._buffered
        self._descriptor = _pipe_of(file) if live and self.compression is None else None
        self._head = b""
        self._is_text = False
        self._encoding = "utf-8"
        self._decoder: codecs.IncrementalDecoder | None = None
        self._lines = 0
        if self.compression is not None:
            try:
                self._plain = pa.CompressedInputStream(
                    pa.PythonFile(self._buffered, "r"), self.compression
                )
            except (ValueError, OSError, NotImplementedError) as error:
                raise InvalidArgument(f"cannot read {self.compression} here: {error}") from None

    def _open_path(self, path: str, name: str | None) -> IO[bytes]:
        if path == "-":
            self.name = name or "<stdin>"
            return sys.stdin.buffer
        self.name = name or path
        try:
            file = open(path, "rb")  # noqa: SIM115 - closed by close()
        except FileNotFoundError:
            raise InvalidArgument(f"there is no file {path!r}") from None
        except IsADirectoryError:
            raise InvalidArgument(f"{path!r} is a directory, expected a file") from None
        except OSError as error:
            raise InvalidArgument(f"cannot read {path!r}: {error.strerror or error}") from None
        self._owned.append(file)
        self._path = Path(path)
        status = os.fstat(file.fileno())
        self.size = status.st_size if status.st_size else None
        return file

    @property
    def consumed(self) -> int:
        return self._raw.count

    def at_share(self, share: float) -> None:
        if self._path is not None and self.size is not None:
            self._raw.count = min(self.size, int(share * self.size))

    def begin_text(self, encoding: str | None = None) -> None:
        """Decode text to UTF-8, once; a byte order mark overrides ``encoding``."""
        if self._is_text:
            return
        self._is_text = True
        head = self.peek(4)
        zeros = [place for place in (0, 1) if head[place::2] == b"\0\0"]
        order = "be" if zeros == [0] else "le"
        if head.startswith(codecs.BOM_UTF8):
            self.read(3)
            return
        if head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            encoding = "utf-16-be" if self.read(2) == codecs.BOM_UTF16_BE else "utf-16-le"
        elif encoding == "utf-16":
            encoding = f"utf-16-{order}"
        elif encoding in (None, "utf-8"):
            if len(zeros) == 1:
                raise InvalidData(
                    f"{self.name}: the text is UTF-16 without a byte order mark: give its "
                    f"encoding, --encoding utf-16-{order}"
                )
            return
        assert encoding is not None
        self._encoding = encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()
        begun, self._head = self._head, b""
        self._head = self._decoded(begun) if begun else b""

    def _decoded(self, data: bytes) -> bytes:
        assert self._decoder is not None
        pending = self._decoder.getstate()[0]
        try:
            text = self._decoder.decode(data, final=not data).encode()
        except UnicodeError as error:
            at = error.start if isinstance(error, UnicodeDecodeError) else 0
            bad = (pending + data)[at : at + 1].hex()
            before = (pending + data)[:at].decode(self._encoding, "replace").count("\n")
            raise InvalidData(
                f"{self.name}, line {self._lines + before + 1}: expected {self._encoding} text, "
                f"found the byte 0x{bad} ({getattr(error, 'reason', error)}); give the encoding "
                "that the file has, --encoding windows-1252 or another"
            ) from None
        self._lines += text.count(b"\n")
        return text

    @property
    def is_live(self) -> bool:
        return self._descriptor is not None

    def peek(self, size: int) -> bytes:
        """Up to ``size`` next bytes without consuming them; empty only at the end."""
        until = None
        while len(self._head) < size:
            if self._head:
                until = until or time.monotonic() + LIVE_SECONDS
                if not self._more_soon(until):
                    break
            more = self._read_plain(size - len(self._head))
            self._head += more
            if not more:
                break
        return self._head[:size]

    def _more_soon(self, until: float) -> bool:
        if self._descriptor is None:
            return True
        left = until - time.monotonic()
        return left > 0 and bool(select.select([self._descriptor], [], [], left)[0])

    def read(self, size: int) -> bytes:
        """The next ``size`` bytes, fewer at the end; decoded text and pipes may differ."""
        if not self._head:
            return self._read_plain(size)
        if len(self._head) >= size:
            out, self._head = self._head[:size], self._head[size:]
            return out
        out, self._head = self._head, b""
        if self._descriptor is not None:
            return out
        return out + self._read_plain(size - len(out))

    def _read_plain(self, size: int) -> bytes:
        while self._decoder is not None:
            data = self._read_bytes(size)
            text = self._decoded(data)
            if text or not data:  # a partial character gives no text yet
                return text
        return self._read_bytes(size)

    def _read_bytes(self, size: int) -> bytes:
        try:
            if self._descriptor is not None:
                return self._read_live(size)
            return bytes(self._plain.read(size))
        except (OSError, pa.ArrowInvalid) as error:
            if self.compression is None:
                raise
            raise InvalidData(
                f"{self.name}: the {self.compression} data is damaged or cut off after "
                f"{self.consumed:,} bytes ({error}); fetch the file again"
            ) from None

    def _read_live(self, size: int) -> bytes:
        data = self._buffered.read1(size)
        until = time.monotonic() + LIVE_SECONDS
        while 0 < len(data) < size and self._more_soon(until):
            more = self._buffered.read1(size - len(data))
            if not more:
                break
            data += more
        return data

    def seekable(self) -> IO[bytes]:
        """The whole source as a seekable file; call before ``read``."""
        regular = self._whole
        if regular is not None and self.compression is None:
            regular.seek(0)
            self._raw.count = 0
            return regular
        copy = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._owned.append(copy)
        while chunk := self.read(_COPY_BYTES):
            copy.write(chunk)
        copy.seek(0)
        return copy

    def keep(self, whole: ByteSource) -> None:
        """Close the source that contains this one, too."""
        self._owned.append(cast("IO[Any]", whole))

    def close(self) -> None:
        """Close what was opened here; a file given by the caller stays open."""
        for file in self._owned:
            file.close()
        self._owned.clear()


def _pipe_of(file: IO[bytes] | None) -> int | None:
    try:
        descriptor = file.fileno() if file is not None else -1
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
    except (OSError, AttributeError):
        return None
    return descriptor


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
    stream = pa.CompressedInputStream(pa.PythonFile(file, "r"), encoding)
    count = 0

    def read(size: int) -> bytes:
        nonlocal count
        try:
            piece: bytes = stream.read(min(size, PIECE_BYTES))
        except (OSError, pa.ArrowException) as error:
            raise InvalidData(
                f"the body is not valid {encoding} ({error}); send it whole, or without "
                "Content-Encoding"
            ) from None
        count += len(piece)
        check_size(count, limit)
        if hold is not None:
            hold(len(piece))
        return piece

    return io.BufferedReader(_ReadBy(read), PIECE_BYTES)


def check_size(size: int, limit: int) -> None:
    if size > limit:
        raise ResourceLimit(
            f"the decoded body is larger than {limit:,} bytes (CHRONICLE_MAX_DECODED_BYTES); "
            "send it in parts"
        )


_ROWS_TOGETHER = 1000
_ROWS_MAX = 1 << 20

_NUMBER = re.compile(FLOAT_TEXT)


def open_archive(
    source: ByteSource,
    format: str | None,
    text: TextOptions,
    limits: Limits,
    notes: dict[str, str],
) -> tuple[ByteSource, str | None, TextOptions]:
    """The file in an archive, its format if known, and its text options; fills ``notes``.

    Raises InvalidData unless it holds one readable file, MissingDependency without openpyxl.
    """
    file = source.seekable()
    source.at_share(1.0)
    try:
        archive = zipfile.ZipFile(file)
        entries = [entry for entry in archive.infolist() if not entry.is_dir()]
        if limits.unpacked_bytes is not None:
            check_size(sum(entry.file_size for entry in entries), limits.unpacked_bytes)
        if any(entry.filename == "xl/workbook.xml" for entry in entries):
            written = replace(text, delimiter=",", quote='"', encoding=None)
            return _Sheet(source, file, text, notes), "csv", written
        entries = [entry for entry in entries if not entry.filename.startswith("__MACOSX/")]
        if len(entries) != 1:
            names = ", ".join(entry.filename for entry in entries[:5])
            raise InvalidData(
                f"{source.name}: expected an archive with one file, found {len(entries)} "
                f"({names}{', ...' if len(entries) > 5 else ''}); unpack it"
            )
        kind = suffixes_of(entries[0].filename)
        packed = archive.open(entries[0])
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, ValueError, OSError) as error:
        raise _damaged(source.name, error) from None

    def read(size: int) -> bytes:
        try:
            return packed.read(size)
        except Exception as error:  # zlib, bz2 and lzma have their own errors
            raise _damaged(source.name, error) from None

    inner = io.BufferedReader(_ReadBy(read), PIECE_BYTES)
    entry = ByteSource(inner, name=source.name, compression=None)
    entry.keep(source)
    return entry, format or (kind and kind.format), text


def _damaged(name: str, error: Exception) -> InvalidData:
    return InvalidData(f"{name}: the ZIP archive cannot be read ({error}); unpack it")


class _Sheet(ByteSource):
    """A sheet as CSV; ``texts`` are the columns that had text that looks like a number so far."""

    def __init__(
        self, whole: ByteSource, file: IO[bytes], text: TextOptions, notes: dict[str, str]
    ) -> None:
        source, name = whole.name, text.sheet
        try:
            import openpyxl  # type: ignore[import-untyped]
        except ImportError:
            raise MissingDependency(
                f"{source} is an Excel workbook, which openpyxl reads: "
                "pip install 'chronicle-eventstore[excel]'"
            ) from None
        try:
            book = openpyxl.load_workbook(file, read_only=True, data_only=True)
            names = [sheet.title for sheet in book.worksheets]
        except Exception as error:  # XML parsers raise errors of many classes
            raise self._unread(source, error) from None
        if not names:
            raise InvalidData(f"{source}: the workbook has no sheet with cells")
        if name is None and len(names) > 1:
            rest = ", ".join(names[1:6]) + (", ..." if len(names) > 6 else "")
            notes["sheet"] = f"the sheet {names[0]} was read; --sheet reads another one ({rest})"
        elif name is not None and name not in names:
            hint = did_you_mean(name, names) or ";"
            raise InvalidArgument(
                f"{source}: there is no sheet {name!r}{hint} sheets are {', '.join(names)}"
            )
        self._sheet: Any = book[names[0] if name is None else name]
        self._sheet.reset_dimensions()  # a file may declare any size
        super().__init__(self._pieces(source, text.skip), name=source, compression=None)
        self.keep(whole)

    @staticmethod
    def _unread(source: str, error: Exception) -> InvalidData:
        return InvalidData(
            f"{source}: the workbook cannot be read ({type(error).__name__}: {error}); save it "
            "again, or as CSV"
        )

    def _pieces(self, source: str, skip: int) -> Iterator[bytes]:
        out = io.StringIO()
        lines = csv.writer(out, lineterminator="\n")
        width = count = 0
        rows = iter(self._sheet.iter_rows(values_only=True))
        while True:
            try:
                piece = [row for row, _ in zip(rows, range(_ROWS_TOGETHER), strict=False)]
            except Exception as error:  # XML parsers raise errors of many classes
                raise self._unread(source, error) from None
            if not piece:
                return
            count += len(piece)
            if count > _ROWS_MAX:
                raise InvalidData(f"{source}: the sheet has more than {_ROWS_MAX:,} rows")
            for row in piece:
                cells = _trimmed(row)
                if cells and not width and skip <= 0:
                    width = len(cells)
                skip -= 1
                if cells:
                    padded = chain(cells, (None for _ in range(width - len(cells))))
                    lines.writerow(self._text(at, cell) for at, cell in enumerate(padded))
                else:
                    out.write("\n")
            yield out.getvalue().encode(errors="replace")
            out.seek(0)
            out.truncate()

    def _text(self, at: int, cell: Any) -> str:
        if cell is None:
            return ""
        if isinstance(cell, bool):
            return "true" if cell else "false"
        if isinstance(cell, dt.datetime | dt.date | dt.time):
            return cell.isoformat()
        if isinstance(cell, dt.timedelta):
            return str(cell)
        if isinstance(cell, str) and _NUMBER.match(cell.strip()):
            self.texts.add(at)
        return str(cell)


def _trimmed(row: Iterable[Any]) -> list[Any]:
    cells = list(row)
    while cells and cells[-1] is None:
        cells.pop()
    return cells

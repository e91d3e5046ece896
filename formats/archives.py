"""ZIP archives that hold one file, and ``.xlsx`` workbooks, of which one sheet is read as CSV.

``zipfile`` reads no more than the declared size, which is checked first.  A sheet is read row by
row: dates and times as ISO text, numbers with all digits, formulas by their stored value; text that
looks like a number stays text.  Workbooks need openpyxl, which holds its string table in memory.

Decompression (gzip, zstd) counts bytes and stops at a limit, whatever a header declares.
"""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from itertools import chain
from typing import IO, Any

import pyarrow as pa

from ..core.suggestion import did_you_mean
from ..errors import InvalidArgument, InvalidData, MissingDependency, ResourceLimit
from .convert import FLOAT_TEXT
from .dialect import TextOptions
from .kinds import suffixes_of
from .limits import Limits
from .sources import ByteSource

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
        inner = _Entry(source.name, archive.open(entries[0]))
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, ValueError, OSError) as error:
        raise _damaged(source.name, error) from None
    found = ByteSource(io.BufferedReader(inner, 1 << 20), name=source.name, compression=None)
    found.keep(source)
    return found, format or (kind and kind.format), text


def _damaged(name: str, error: Exception) -> InvalidData:
    return InvalidData(f"{name}: the ZIP archive cannot be read ({error}); unpack it")


class _Entry(io.RawIOBase):
    def __init__(self, name: str, file: IO[bytes]) -> None:
        self._name = name
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._file.read(len(buffer))
        except Exception as error:  # zlib, bz2 and lzma have their own errors
            raise _damaged(self._name, error) from None
        buffer[: len(data)] = data
        return len(data)


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
        if isinstance(cell, datetime | date | time):
            return cell.isoformat()
        if isinstance(cell, timedelta):
            return str(cell)
        if isinstance(cell, str) and _NUMBER.match(cell.strip()):
            self.texts.add(at)
        return str(cell)


def _trimmed(row: Iterable[Any]) -> list[Any]:
    cells = list(row)
    while cells and cells[-1] is None:
        cells.pop()
    return cells

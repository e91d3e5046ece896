"""Files that are ZIP archives: a ``.zip`` with one file in it, and ``.xlsx`` workbooks.

Purpose
    :func:`open_archive` gives the file in an archive as a source of its own.  Of a workbook it is
    one sheet, as CSV: what tells types, times and bad rows of CSV does so for sheets.

Guarantee
    What an archive says that it unpacks to is held against a limit before it is unpacked, and no
    more is: ``zipfile`` reads as much as was declared.  A sheet is read row by row.  Dates and
    times are ISO text, numbers have all of their digits, text that looks like a number stays text.

Limits
    A formula has the value that Excel stored with it.  Workbooks need openpyxl; its table of texts
    is held in memory.
"""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from itertools import chain
from typing import IO, Any

from ..core.suggestion import did_you_mean
from ..errors import InvalidArgument, InvalidData, MissingDependency
from .convert import FLOAT_TEXT
from .dialect import TextOptions
from .kinds import suffixes_of
from .limits import Limits
from .packed import check_size
from .sources import ByteSource

__all__ = ["open_archive"]

_ROWS_TOGETHER = 1000
_ROWS_MAX = 1 << 20
"""Rows that a sheet can have; the numbers of rows in a file are not to be trusted."""

_NUMBER = re.compile(FLOAT_TEXT)


def open_archive(
    source: ByteSource,
    format: str | None,
    text: TextOptions,
    limits: Limits,
    notes: dict[str, str],
) -> tuple[ByteSource, str | None, TextOptions]:
    """The file in an archive, its format where that is known, and how its text is written.

    Parameters
    ----------
    format, text
        What was said of these; which sheet of a workbook is read, too.
    notes : dict of str to str
        Takes what is assumed, by what it is about.

    Raises
    ------
    InvalidData
        When the archive is damaged or encrypted, or does not hold one file.
    MissingDependency
        When openpyxl is not installed.
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
    """The bytes of a file in an archive, whose damage is told as that of any source."""

    def __init__(self, name: str, file: IO[bytes]) -> None:
        self._name = name
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._file.read(len(buffer))
        except Exception as error:  # of zlib, bz2 and lzma: each has its own
            raise _damaged(self._name, error) from None
        buffer[: len(data)] = data
        return len(data)


class _Sheet(ByteSource):
    """A sheet of a workbook, as CSV.

    Its ``texts`` are the columns in which text that looks like a number was met so far.
    """

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
        except Exception as error:  # of the parsers of XML and of what they call
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
        self._sheet.reset_dimensions()  # which may claim any size
        super().__init__(self._pieces(source, text.skip), name=source, compression=None)
        self.keep(whole)

    @staticmethod
    def _unread(source: str, error: Exception) -> InvalidData:
        return InvalidData(
            f"{source}: the workbook cannot be read ({type(error).__name__}: {error}); save it "
            "again, or as CSV"
        )

    def _pieces(self, source: str, skip: int) -> Iterator[bytes]:
        """Some rows at a time, as wide as the header at least; blank ones are blank lines."""
        out = io.StringIO()
        lines = csv.writer(out, lineterminator="\n")
        width = count = 0
        rows = iter(self._sheet.iter_rows(values_only=True))
        while True:
            try:
                piece = [row for row, _ in zip(rows, range(_ROWS_TOGETHER), strict=False)]
            except Exception as error:  # of the parsers of XML and of what they call
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
        """A cell as CSV has it."""
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
    """The cells of a row without the empty ones at its end."""
    cells = list(row)
    while cells and cells[-1] is None:
        cells.pop()
    return cells

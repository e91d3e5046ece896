"""Reading CSV: records cut out of the byte stream, parsed by Arrow in chunks.

Purpose
    :class:`CsvRecords` cuts a stream of CSV text into chunks of complete records, so that memory
    stays bounded and every row has a number; Arrow's parser does the rest.

Guarantee
    RFC 4180 with the usual liberties: any single-character separator (inferred from the header line
    among comma, semicolon, tab and bar), CR LF or LF, line breaks inside quotes, ``""`` for a
    quote, blank lines skipped, a UTF-8 byte order mark skipped.  A record with too few or too many
    values, or with a lone CR outside of quotes, is a bad row.  A number that its type cannot hold
    is a bad value, never infinity.

Layout
    An empty value is null unless it is quoted; so are ``NULL``, ``null`` and ``\\N``, and what
    ``nulls`` adds.  In a column of strings only the unquoted ones are.

Limits
    UTF-8 only.  A single record must fit into 64 MB.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from ..compiled import interpretable, kernel
from ..errors import InvalidArgument, InvalidData
from ..lazy import lazy
from .badrows import BadRow
from .chunks import CHUNK_BYTES, SAMPLE_BYTES, LineNumbers, Texts
from .sources import ByteSource

__all__ = ["NULLS", "CsvRecords"]

NULLS = ("", "NULL", "null", "\\N")
RECORD_BYTES_MAX = 64 << 20
_SEPARATORS = ",;\t|"
LF, CR = 10, 13


@interpretable(plain=True)
@kernel
def _breaks(data, separator, wanted, found):  # type: ignore[no-untyped-def]
    """Positions of LF, or of CR that no LF follows, outside of quotes; gives their number.

    A quote opens a quoted value only where a value begins, as in Arrow's parser.  With an empty
    `found` only the last position is wanted: what follows it is returned, 0 where there is none.
    """
    count = 0
    behind = 0
    quoted = False
    at_start = True
    i = 0
    n = len(data)
    while i < n:
        c = data[i]
        if quoted:
            if c == 34:
                if i + 1 < n and data[i + 1] == 34:
                    i += 1
                else:
                    quoted = False
        elif c == 34 and at_start:
            quoted = True
        elif c == wanted and (c == 10 or i + 1 == n or data[i + 1] != 10):
            behind = i + 1
            if count < len(found):
                found[count] = i
            count += 1
        at_start = (c == separator or c == 10) and not quoted
        i += 1
    return count if len(found) else behind


def _bytes(data: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)


class CsvChunk:
    """Some complete records of a CSV source; see :class:`~chronicle.formats.chunks.RecordChunk`."""

    def __init__(self, owner: CsvRecords, data: bytes, first_row: int, first_line: int) -> None:
        self._owner = owner
        self.data = data
        self.first_row = first_row
        self.first_line = first_line
        self._spans: list[tuple[int, int]] | None = None

    def _read(
        self, data: bytes, types: Mapping[str, pa.DataType], careful: Careful | None
    ) -> pa.Table:
        owner = self._owner
        options = pa_csv.ReadOptions(
            column_names=owner.positions, use_threads=careful is None, block_size=1 << 20
        )
        if len(data) > 1 << 20 and careful is not None:
            options.block_size = len(data) + 1
        return pa_csv.read_csv(
            pa.BufferReader(data),
            read_options=options,
            parse_options=pa_csv.ParseOptions(
                delimiter=owner.separator,
                newlines_in_values=b'"' in data,
                invalid_row_handler=careful,
            ),
            convert_options=pa_csv.ConvertOptions(
                column_types=types,
                include_columns=list(types),
                null_values=owner.nulls,
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                check_utf8=True,
            ),
        )

    def parse(self, types: Mapping[str, pa.DataType | None] | None) -> dict[str, pa.Array]:
        """Columns parsed fast; undecided ones as text."""
        owner = self._owner
        if len(self._returns()):
            raise pa.ArrowInvalid("a CR stands outside of quotes")
        wanted: dict[str, pa.DataType] = {}
        for name, position in zip(owner.names, owner.positions, strict=True):
            if types is None:
                wanted[position] = pa.string()
            elif name in types:
                wanted[position] = types[name] or pa.string()
        try:
            table = self._read(self.data, wanted, None)
            endless = [
                position
                for at, (position, type_) in enumerate(wanted.items())
                if pa.types.is_floating(type_) and pc.any(pc.is_inf(table.column(at))).as_py()
            ]
            if endless:  # as text: whether infinity is what was written is to be seen
                table = self._read(self.data, wanted | dict.fromkeys(endless, pa.string()), None)
        except UnicodeDecodeError as error:
            raise pa.ArrowInvalid(str(error)) from None
        by_position = dict(zip(owner.positions, owner.names, strict=True))
        return {
            by_position[position]: table.column(at).combine_chunks()
            for at, position in enumerate(wanted)
        }

    def texts(self) -> Texts:
        """All columns as text; broken are records with a wrong number of values or not in UTF-8."""
        owner = self._owner
        spans = self._records()
        data = self.data
        unread = self._unreadable()
        broken = sorted(unread.items())
        kept = [record for record in range(len(spans)) if record not in unread]
        if unread:
            data = b"".join(data[spans[record][0] : spans[record][1]] for record in kept)
        careful = Careful(len(owner.names))
        types = dict.fromkeys(owner.positions, pa.string())
        if kept:
            table = self._read(data, types, careful)
        else:
            table = pa.table({position: pa.array([], pa.string()) for position in owner.positions})
        good = np.ones(len(kept), np.bool_)
        for number, reason in careful.found:
            if number < len(kept):
                good[number] = False
                broken.append((kept[number], reason))
        records = np.asarray(kept, np.int64)[good]
        if len(records) != table.num_rows:
            raise InvalidData(
                f"{owner.source.name}, line {self.first_line}: cannot tell the records apart; "
                "check the quotes there"
            )
        return Texts(
            {
                name: table.column(at).combine_chunks()
                if table.num_rows
                else pa.array([], pa.string())
                for at, name in enumerate(owner.names)
            },
            records,
            broken=sorted(broken),
        )

    def _returns(self) -> npt.NDArray[np.int64]:
        """Positions of lone CRs outside of quotes, at which Arrow's parser would end a record."""
        count = self.data.count(b"\r")
        if count == self.data.count(b"\r\n"):
            return np.empty(0, np.int64)
        found = np.empty(count, np.int64)
        return found[: _breaks(_bytes(self.data), ord(self._owner.separator), CR, found)]

    def _unreadable(self) -> dict[int, str]:
        """Records that the parser must not see, with the reason."""
        found: dict[int, str] = {}
        spans = self._records()
        starts = np.array([start for start, _ in spans], np.int64)
        for record in (np.searchsorted(starts, self._returns(), "right") - 1).tolist():
            found[record] = "expected lines that end in LF or CR LF, found a CR alone; quote it"
        try:
            self.data.decode()
        except UnicodeDecodeError:
            for record, (start, end) in enumerate(spans):
                try:
                    self.data[start:end].decode()
                except UnicodeDecodeError as error:
                    found[record] = f"expected UTF-8 text, found {error.reason}"
        return found

    @lazy
    def _lines(self) -> LineNumbers:
        return LineNumbers(self.data, self.first_line)

    def describe(self, record: int) -> BadRow:
        """Line and text of a record."""
        start, end = self._records()[record]
        return BadRow(
            source=self._owner.source.name,
            row=self.first_row + record,
            reason="",
            line=self._lines.at(start),
            record=self.data[start:end].rstrip(b"\r\n").decode(errors="replace"),
        )

    def _records(self) -> list[tuple[int, int]]:
        """Where each record begins and ends; blank lines are none."""
        if self._spans is None:
            ends = np.empty(self.data.count(b"\n") + 1, np.int64)
            count = _breaks(_bytes(self.data), ord(self._owner.separator), LF, ends)
            borders = [0, *(ends[:count] + 1).tolist()]
            if borders[-1] != len(self.data):
                borders.append(len(self.data))
            self._spans = [
                (start, end)
                for start, end in itertools.pairwise(borders)
                if self.data[start:end] not in (b"\n", b"\r\n")
            ]
        return self._spans

    @property
    def rows(self) -> int:
        """Number of records, broken ones included."""
        return len(self._records())


class Careful:
    """Collects the rows that Arrow's parser finds with a wrong number of values."""

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.found: list[tuple[int, str]] = []

    def __call__(self, row: pa_csv.InvalidRow) -> str:
        self.found.append(
            (row.number - 1, f"expected {row.expected_columns} values, found {row.actual_columns}")
        )
        return "skip"


class CsvRecords:
    """The records of one CSV source.

    Parameters
    ----------
    separator : str, optional
        One ASCII character; inferred from the header line by default.
    columns : sequence of str, optional
        Names of the columns, for a file without a header line.
    nulls : sequence of str
        Further spellings of null.

    Raises
    ------
    InvalidData
        When the source is empty or its header line cannot be read.
    """

    typed = False

    def __init__(
        self,
        source: ByteSource,
        *,
        separator: str | None = None,
        columns: Sequence[str] | None = None,
        nulls: Sequence[str] = (),
    ) -> None:
        self.source = source
        self.nulls = [*NULLS, *nulls]
        if separator is not None and (len(separator) != 1 or not separator.isascii()):
            raise InvalidArgument(f"the separator is one ASCII character, found {separator!r}")
        source.begin_text()
        self._lines = 0
        if columns is not None:
            first = source.peek(1 << 16).split(b"\n", 1)[0].decode(errors="replace")
            self.separator = separator or _separator_of(first)
            self.names = list(columns)
        else:
            header = self._header()
            self.separator = separator or _separator_of(header)
            self.names = _names_of(header, self.separator, source.name)
        self.names = [name.strip() for name in self.names]
        for at, name in enumerate(self.names):
            if not name:
                raise InvalidData(
                    f"{source.name}, line 1: column {at + 1} has no name; name the columns, or "
                    "give their names by columns= when the file has no header"
                )
        self.positions = [f"f{at}" for at in range(len(self.names))]

    def _header(self) -> str:
        """The first line that is not blank."""
        while True:
            size = 1 << 16
            while True:
                head = self.source.peek(size)
                end = head.find(b"\n") + 1
                if end or len(head) < size:
                    break
                size *= 4
                if size > RECORD_BYTES_MAX:
                    raise InvalidData(f"{self.source.name}: the header line does not end")
            if not head:
                raise InvalidData(f"{self.source.name} is empty; expected a CSV header line")
            line = self.source.read(end or len(head))
            self._lines += 1
            if line.strip():
                break
        try:
            return line.decode().rstrip("\r\n")
        except UnicodeDecodeError:
            raise InvalidData(
                f"{self.source.name}, line {self._lines}: expected UTF-8 text; convert the file"
            ) from None

    def chunks(self) -> Iterator[CsvChunk]:
        """Chunks of complete records."""
        carry = b""
        row, line = 1, 1 + self._lines
        size = SAMPLE_BYTES
        while True:
            more = self.source.read(size)
            data = carry + more
            if not data:
                return
            if more:
                end = self._last_end(data)
                if end == 0:
                    if len(data) > RECORD_BYTES_MAX:
                        raise InvalidData(
                            f"{self.source.name}, line {line}: no record ends within "
                            f"{RECORD_BYTES_MAX >> 20} MB; is a quote missing?"
                        )
                    carry, size = data, CHUNK_BYTES
                    continue
                data, carry = data[:end], data[end:]
            else:
                carry = b""
                if data.count(b'"') and self._last_end(data + b"\n") != len(data) + 1:
                    raise InvalidData(
                        f"{self.source.name}: the file ends inside a quoted value; it is cut off, "
                        f"or a quote is missing after line {line}"
                    )
            size = CHUNK_BYTES
            if data.strip(b"\r\n"):
                chunk = CsvChunk(self, data, row, line)
                yield chunk
                row += self.rows_of(chunk)
            line += data.count(b"\n")

    def rows_of(self, chunk: CsvChunk) -> int:
        """Number of records in a chunk: its lines when nothing is quoted or blank."""
        data = chunk.data
        if b'"' in data or b"\n\n" in data or b"\n\r\n" in data or data[:1] in b"\r\n":
            return chunk.rows
        return data.count(b"\n") + (not data.endswith(b"\n"))

    def _last_end(self, data: bytes) -> int:
        """Position after the last complete record, 0 when there is none."""
        if b'"' not in data:
            return data.rfind(b"\n") + 1
        return int(_breaks(_bytes(data), ord(self.separator), LF, np.empty(0, np.int64)))


def _names_of(header: str, separator: str, source: str) -> list[str]:
    try:
        return next(csv.reader(io.StringIO(header), delimiter=separator), [])
    except csv.Error as error:
        raise InvalidData(
            f"{source}, line 1: the header cannot be read ({error}); expected names between "
            f"{separator!r}, and lines that end in LF or CR LF"
        ) from None


def _separator_of(header: str) -> str:
    """The separator that a header line has most of, outside of quotes."""
    plain = "".join(header.split('"')[::2])
    best = max(_SEPARATORS, key=plain.count)
    return best if plain.count(best) else ","

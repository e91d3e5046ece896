r"""Reading CSV: the byte stream is cut into chunks of complete records, which Arrow parses.

RFC 4180 with any one-character delimiter (inferred among comma, semicolon, tab and bar) and quote,
line breaks in quotes, and blank lines.  Lines end in LF, CR LF, CR CR LF, or in CR if there is no
LF.  A wrong number of values or another lone CR outside quotes makes a bad row; a number beyond its
type a bad value.  Empty values, ``NULL``, ``null``, ``\N`` and ``nulls`` are null, unless quoted
(numbers: also quoted).  Column names are trimmed, values are not; unnamed and duplicate columns are
named as by DuckDB (``column1``, ``v_1``).  If a ``#`` comment line precedes the header, such lines
are skipped throughout.  A record must fit into 64 MB.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pa_csv

from ..core.caches import lazy
from ..errors import InvalidData
from ..schema import StreamSchema
from .chunks import CHUNK_BYTES, SAMPLE_BYTES, BadRow, Columns, LineNumbers
from .convert import FLOAT_TEXT
from .dialect import TextOptions
from .sources import ByteSource

NULLS = ("", "NULL", "null", "\\N")
RECORD_BYTES_MAX = 64 << 20
OTHER_ENCODING = "if the file has another encoding, give it: --encoding latin-1"
HEAD_BYTES = 1 << 16
_LINES_TRIED = 1000

_DELIMITERS = ",;\t|"
LF, CR, HASH = b"\n\r#"

Positions = npt.NDArray[np.intp]


class Quoting:
    """Which bytes are inside quotes.  As in Arrow, a quote opens only where a value begins."""

    def __init__(self, delimiter: str, quote: str) -> None:
        self._delimiter = delimiter.encode()
        self._quote = quote.encode()
        if quote:
            begin, q = re.escape(self._delimiter), re.escape(self._quote)
            self._odd = re.compile(
                rb"(?:(?<=[\n%b])|\A)%b(?:[^%b]++|%b%b)*+(?:%b|\Z)|[\r\n]" % (begin, *[q] * 5)
            )

    def _regular(self, data: bytes) -> Positions | None:
        """Positions of the quotes if every second one closes; None for other text."""
        text = np.frombuffer(data, np.uint8)
        quotes = np.flatnonzero(text == self._quote[0])
        before = text[quotes - 1]
        opens = (before == self._delimiter[0]) | (before == LF)
        opens[0] |= quotes[0] == 0
        if not opens.any():
            return quotes[:0]
        return quotes if (opens | (before == self._quote[0]))[::2].all() else None

    def may_quote(self, data: bytes) -> bool:
        return bool(self._quote) and self._quote in data

    def outside(self, data: bytes, wanted: int) -> Positions:
        positions = np.flatnonzero(np.frombuffer(data, np.uint8) == wanted)
        if not self.may_quote(data):
            return positions
        quotes = self._regular(data)
        if quotes is None:
            matches = self._odd.finditer(data)
            at = [m.start() for m in matches if data[m.start()] == wanted]
            return np.array(at, np.intp)
        inside: npt.NDArray[np.bool_] = np.searchsorted(quotes, positions) % 2 == 1
        return np.delete(positions, inside)

    def last_end(self, data: bytes) -> int:
        """Position after the last complete record, 0 if there is none."""
        end = data.rfind(b"\n") + 1
        if not self.may_quote(data):
            return end
        quotes = self._regular(data)
        for _ in range(_LINES_TRIED):
            if quotes is None:
                break
            before = int(np.searchsorted(quotes, end))
            if before % 2 == 0:
                return end
            end = data.rfind(b"\n", 0, int(quotes[before - 1])) + 1
        ends = self.outside(data, LF)
        return int(ends[-1]) + 1 if len(ends) else 0


class CsvChunk:
    def __init__(self, owner: CsvRecords, data: bytes, first_row: int, first_line: int) -> None:
        self._owner = owner
        self.data = data
        self.first_row = first_row
        self.first_line = first_line
        self.rows = 0

    def _read(self, data: bytes, careful: Careful | None) -> pa.Table:
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
                delimiter=owner.delimiter,
                quote_char=owner.quote or False,
                newlines_in_values=owner.quoting.may_quote(data),
                invalid_row_handler=careful,
            ),
            convert_options=pa_csv.ConvertOptions(
                column_types=dict.fromkeys(owner.positions, pa.string()),
                include_columns=list(owner.included),
                null_values=owner.nulls,
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                check_utf8=True,
            ),
        )

    def parts(self) -> Iterator[Columns]:
        yield self.columns()

    def columns(self) -> Columns:
        """All columns as text; a wrong number of values or invalid UTF-8 makes a record broken."""
        owner = self._owner
        broken: list[tuple[int, str]] = []
        try:
            if len(self._returns()):
                raise pa.ArrowInvalid("a CR stands outside of quotes")
            table = self._read(self.data, None)
            self.rows = table.num_rows
            records = np.arange(self.rows)
        except (pa.ArrowInvalid, UnicodeDecodeError):
            table, records, broken = self._readable()
            self.rows = len(self._spans[0])
        columns = {
            name: table.column(at).combine_chunks() if table.num_rows else pa.array([], pa.string())
            for at, name in enumerate(owner.included.values())
        }
        return Columns(columns, records, owner.quoted, broken)

    def _readable(self) -> tuple[pa.Table, Positions, list[tuple[int, str]]]:
        """The records that can be read, their numbers, and what is wrong with the others."""
        owner = self._owner
        starts, ends = self._spans
        data = self.data
        unread = self._unreadable()
        broken = list(unread.items())
        readable = np.delete(np.arange(len(starts)), list(unread))
        if unread:
            data = b"".join(data[starts[record] : ends[record]] for record in readable.tolist())
        careful = Careful()
        empty = {position: pa.array([], pa.string()) for position in owner.included}
        table = self._read(data, careful) if len(readable) else pa.table(empty)
        good = np.ones(len(readable), np.bool_)
        for number, reason in careful.rejected:
            if number < len(readable):
                good[number] = False
                broken.append((int(readable[number]), reason))
        if np.count_nonzero(good) != table.num_rows:
            raise InvalidData(
                f"{owner.source.name}, line {self.first_line}: cannot tell the records apart; "
                "check the quotes there"
            )
        return table, readable[good], sorted(broken)

    def _returns(self) -> Positions:
        """Positions of lone CRs outside quotes, at which Arrow's parser would end a record."""
        if b"\r" not in self.data:
            return np.empty(0, np.intp)
        text = np.frombuffer(self.data, np.uint8)
        alone = text == CR
        alone[:-1] &= text[1:] != LF
        if not alone.any():
            return np.empty(0, np.intp)
        returns = self._owner.quoting.outside(self.data, CR)
        return np.delete(returns, ~alone[returns])

    def _unreadable(self) -> dict[int, str]:
        reasons: dict[int, str] = {}
        starts, ends = self._spans
        for record in (np.searchsorted(starts, self._returns(), "right") - 1).tolist():
            reasons[record] = "expected lines that end in LF or CR LF, found a CR alone; quote it"
        try:
            self.data.decode()
        except UnicodeDecodeError:
            for record, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
                try:
                    self.data[start:end].decode()
                except UnicodeDecodeError as error:
                    reasons[record] = f"expected UTF-8 text, found {error.reason}; {OTHER_ENCODING}"
        return reasons

    @lazy
    def _lines(self) -> LineNumbers:
        return LineNumbers(self.data, self.first_line)

    def describe(self, record: int) -> BadRow:
        starts, ends = self._spans
        start, end = int(starts[record]), int(ends[record])
        return BadRow(
            source=self._owner.source.name,
            row=self.first_row + record,
            reason="",
            line=self._lines.at(start),
            record=self.data[start:end].rstrip(b"\r\n").decode(errors="replace"),
        )

    @lazy
    def _spans(self) -> tuple[Positions, Positions]:
        text = np.frombuffer(self.data, np.uint8)
        ends = self._owner.quoting.outside(self.data, LF) + 1
        if not len(ends) or ends[-1] != len(text):
            ends = np.append(ends, len(text))
        starts = np.append(0, ends[:-1])
        length, first = ends - starts, text[starts]
        blank = ((length == 1) & (first == LF)) | (
            (length == 2) & (first == CR) & (text[ends - 1] == LF)
        )
        return starts[~blank], ends[~blank]


class Careful:
    """Collects the rows that Arrow's parser rejects for their number of values."""

    def __init__(self) -> None:
        self.rejected: list[tuple[int, str]] = []

    def __call__(self, row: pa_csv.InvalidRow) -> str:
        self.rejected.append(
            (row.number - 1, f"expected {row.expected_columns} values, found {row.actual_columns}")
        )
        return "skip"


class CsvRecords:
    """The records of one CSV source; InvalidData if it is empty or its header unreadable."""

    typed = False

    def __init__(
        self, source: ByteSource, options: TextOptions, notes: dict[str, str] | None = None
    ) -> None:
        self.source = source
        self._doubled: dict[str, str] = {}
        self.nulls = [*NULLS, *options.nulls]
        self.quote = options.quote
        self._notes = {} if notes is None else notes
        source.begin_text(options.encoding)
        self._lines = 0
        head = source.peek(HEAD_BYTES)
        end = head.find(b"\n")
        self._line_end = b"\r" if end < 0 and b"\r" in head else b"\n"
        self._converted = b"\r\r\n" if head[max(0, end - 2) : end + 1] == b"\r\r\n" else None
        if self._line_end == b"\r":
            self._converted = b"\r"
        self._skip(options.skip)
        header = options.columns is None if options.header is None else options.header
        first = self._first_line(header)
        self.delimiter = options.delimiter or _delimiter_of(first, self.quote)
        self.quoting = Quoting(self.delimiter, self.quote)
        names = list(options.columns or ())
        if header:
            named = self._header(first)
            names = names or named
        elif not names:
            count = len(self._split(first))
            width = len(str(count))
            names = [f"column{at:0{width}}" for at in range(count)]
        self.names = self._unique([name.strip() for name in names])
        self.positions = [f"f{at}" for at in range(len(self.names))]
        self.included = dict(zip(self.positions, self.names, strict=True))

    def keep(self, names: Collection[str]) -> None:
        """Read only these columns."""
        columns = zip(self.positions, self.names, strict=True)
        self.included = {position: name for position, name in columns if name in names}

    def way_out(self) -> str:
        below = next((b for b in self.source.peek(HEAD_BYTES).splitlines() if b.strip()), b"")
        values = len(self._split(below.decode(errors="replace")))
        if not below or values == len(self.names) > 1:
            if any(re.match(r"[+-]?\d", name) for name in self.names):
                return "; if the file has no header: --no-header, and --columns names the columns"
            return ""
        hint = "; if lines stand before the header: --skip N"
        if len(self.names) == 1:
            hint += "; if something else than , ; tab | is between the values: --delimiter"
        return hint

    @property
    def quoted(self) -> frozenset[str]:
        return frozenset(self.names[at] for at in self.source.texts if at < len(self.names))

    def _next_line(self) -> bytes:
        size = HEAD_BYTES
        while True:
            head = self.source.peek(size)
            end = head.find(self._line_end) + 1
            if end or len(head) < size:
                return head[:end] if end else head
            size *= 4
            if size > RECORD_BYTES_MAX:
                raise InvalidData(f"{self.source.name}: the header line does not end")

    def _take(self, lines: bytes) -> None:
        self.source.read(len(lines))
        self._lines += max(1, lines.count(self._line_end))

    def _skip(self, lines: int) -> None:
        while lines > 0 and (head := self.source.peek(HEAD_BYTES)):
            ends = np.flatnonzero(np.frombuffer(head, np.uint8) == self._line_end[0])[:lines]
            self._take(head[: ends[-1] + 1] if len(ends) else self._next_line())
            lines -= max(1, len(ends))

    def _first_line(self, header: bool) -> str:
        self._comments = False
        passed = re.compile(rb"(?:[ \t\r]*%b|#[^%b]*%b)++" % ((self._line_end,) * 3))
        while True:
            head = self.source.peek(HEAD_BYTES)
            lines = passed.match(head)
            start = 0 if lines is None else head.rfind(self._line_end, 0, lines.end() - 1) + 1
            if start:  # keep the last one: it may be the header
                self._comments |= b"#" in head[:start]
                self._take(head[:start])
            line = self._next_line()
            if not line:
                if header:
                    raise InvalidData(f"{self.source.name} is empty; expected a CSV header line")
                return ""
            if line.strip() and (line[0] != HASH or (header and self._is_header(line))):
                break
            self._comments |= line[:1] == b"#"
            self._take(line)
        try:
            return line.decode().rstrip("\r\n")
        except UnicodeDecodeError:
            raise InvalidData(
                f"{self.source.name}, line {self._lines + 1}: expected UTF-8 text; {OTHER_ENCODING}"
            ) from None

    def _is_header(self, line: bytes) -> bool:
        more = self.source.peek(len(line) + HEAD_BYTES)[len(line) :]
        below = more.split(self._line_end, 1)[0].decode(errors="replace").strip()
        text = line.decode(errors="replace").strip()
        delimiter = _delimiter_of(text, self.quote)
        names, values = text.split(delimiter), below.split(delimiter)
        return (
            len(names) == len(values) > 1
            and not below.startswith("#")
            and (
                any(value.strip()[:1].isdigit() or re.match(FLOAT_TEXT, value) for value in values)
            )
        )

    def _header(self, first: str) -> list[str]:
        self._take(self._next_line())
        while self.quote and first.count(self.quote) % 2 and (line := self._next_line()):
            if len(first) > HEAD_BYTES:
                raise InvalidData(
                    f"{self.source.name}, line {self._lines}: the header does not end; is a quote "
                    "missing?"
                )
            first += "\n" + line.decode(errors="replace").rstrip("\r\n")
            self._take(line)
        return self._split(first)

    def _split(self, text: str) -> list[str]:
        how: dict[str, Any] = {"quotechar": self.quote}
        if not self.quote:
            how = {"quoting": csv.QUOTE_NONE}
        try:
            return next(csv.reader(io.StringIO(text), delimiter=self.delimiter, **how), [])
        except csv.Error as error:
            raise InvalidData(
                f"{self.source.name}, line {self._lines}: the header cannot be read ({error}); "
                f"expected names between {self.delimiter!r}, and lines that end in LF or CR LF"
            ) from None

    def names_for(self, target: StreamSchema | None) -> list[str]:
        """The names; an error if a duplicate was renamed to one that the stream lacks."""
        target_names = set() if target is None else {name.lower() for name in target.names}
        for renamed, name in self._doubled.items():
            if target_names and renamed.lower() not in target_names:
                raise InvalidData(
                    f"{self.source.name}: the column name {name!r} occurs more than once, and the "
                    f"stream has no {renamed!r}; --columns gives other names"
                )
        return self.names

    def _unique(self, names: list[str]) -> list[str]:
        unique: dict[str, str] = {}
        taken = {name.lower() for name in names}
        numbers: dict[str, int] = {}
        for at, name in enumerate(names):
            wanted = name or f"column{at}"
            candidate, number = wanted, numbers.get(wanted.lower(), 0)
            while candidate.lower() in unique or (number and candidate.lower() in taken):
                number += 1
                candidate = f"{wanted}_{number}"
            numbers[wanted.lower()] = number
            unique[candidate.lower()] = candidate
            if not name:
                self._notes[f"name:{at}"] = (
                    f"column {at + 1} has no name in the header, and is called {candidate}"
                )
            elif candidate != name:
                self._doubled[candidate] = name
                self._notes[f"name:{at}"] = (
                    f"the name {name!r} occurs more than once, and column {at + 1} is called "
                    f"{candidate}; --columns gives other names"
                )
        return list(unique.values())

    def chunks(self) -> Iterator[CsvChunk]:
        carry = b""
        row, line = 1, 1 + self._lines
        size = SAMPLE_BYTES
        while True:
            more = self.source.read(size)
            data = carry + more
            if not data:
                return
            if self._converted:
                data = data.replace(self._converted, b"\n")
            if more:
                end = self.quoting.last_end(data)
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
                if self.quoting.last_end(data + b"\n") != len(data) + 1:
                    raise InvalidData(
                        f"{self.source.name}: the file ends inside a quoted value; it is cut off, "
                        f"or a quote is missing after line {line}"
                    )
            size = CHUNK_BYTES
            if self._comments:
                data = self._without_comments(data)
            if data.strip(b"\r\n"):
                chunk = CsvChunk(self, data, row, line)
                yield chunk  # the consumer has its columns read
                row += chunk.rows
            line += int(np.count_nonzero(np.frombuffer(data, np.uint8) == LF))

    def _without_comments(self, data: bytes) -> bytes:
        text = np.frombuffer(data, np.uint8)
        ends = self.quoting.outside(data, LF)
        starts = np.append(0, ends + 1)
        ends = np.append(ends, len(text))
        marked = np.append(text, 0)[starts] == HASH
        if not marked.any():
            return data
        self._notes["comments"] = (
            "lines that begin with # were left out as comments, as the file begins with one"
        )
        steps = np.zeros(len(text) + 1, np.int8)
        steps[starts[marked]] = 1
        steps[ends[marked]] = -1
        rest: npt.NDArray[np.uint8] = text[np.cumsum(steps[:-1], dtype=np.int8) == 0]
        return rest.tobytes()


def _delimiter_of(header: str, quote: str) -> str:
    plain = "".join(header.split(quote)[::2]) if quote else header
    best = max(_DELIMITERS, key=plain.count)
    return best if plain.count(best) else ","

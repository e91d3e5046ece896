"""The options of reading and storing files, each with its help, and the limits of a source.

The command line, REST, Python and Spark share them.  The encodings are a fixed list, loaded before
a worker gives up file access.  The memory of decoders is bounded by that of their process
(``isolated.py``).
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.options import option
from ..core.suggestion import did_you_mean
from ..errors import InvalidArgument, ResourceLimit

if TYPE_CHECKING:
    import pyarrow as pa

    from .times import TimeRule

DEPTH_MAX = 64
"""Most brackets open at once in a JSON record; decoders are recursive."""


@dataclass(frozen=True)
class Limits:
    """Limits of one source; None is unlimited.

    ``columns`` also bounds distinct JSON keys; ``piece_bytes`` a decoded dictionary or list column;
    ``unpacked_bytes`` a ZIP archive; ``total_bytes`` all events, if held in memory together.
    """

    columns: int = 10_000
    piece_bytes: int = 1 << 30
    unpacked_bytes: int | None = None
    total_bytes: int | None = None


class Meter:
    """What one source has used of its limits."""

    def __init__(self, limits: Limits, source: str) -> None:
        self.limits = limits
        self._source = source
        self._held = 0

    def columns(self, count: int, what: str = "columns") -> None:
        if count > self.limits.columns:
            raise ResourceLimit(
                f"{self._source}: {count:,} {what}, and at most {self.limits.columns:,} are read; "
                "split it, or raise the limit of columns"
            )

    def piece(self, size: int, what: str) -> None:
        most = self.limits.piece_bytes
        if self.limits.total_bytes is not None:
            most = min(most, self.limits.total_bytes)
        if size > most:
            raise ResourceLimit(
                f"{self._source}: {what} unpacks to {size:,} bytes, and at most {most:,} are taken "
                "at once; write it in smaller pieces"
            )

    def hold(self, size: int) -> None:
        self._held += size
        self.expect(self._held)

    def expect(self, size: int) -> None:
        most = self.limits.total_bytes
        if most is not None and size > most:
            raise ResourceLimit(
                f"{self._source}: its events take more than {most:,} bytes once decoded; send "
                "them in parts"
            )


READING = "What to read"
COLUMNS = "Columns and times"
STORING = "How to store"
ERRORS = "Errors and reports"
"""The panels of ``chronicle ingest --help``."""

ENCODINGS = (
    *("utf-8", "utf-16", "utf-16-le", "utf-16-be", "latin-1", "ascii", "mac-roman"),
    *(f"windows-{page}" for page in range(1250, 1259)),
    *(f"iso-8859-{part}" for part in range(1, 17) if part != 12),
    *("cp437", "cp850", "koi8-r", "koi8-u"),
    *("shift_jis", "euc-jp", "euc-kr", "gb18030", "big5"),
)
_TABS = {"tab": "\t", "\\t": "\t"}


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    r"""How a text file is written; all but ``encoding`` and ``flatten`` are for CSV.

    ``encoding`` is one of ``ENCODINGS``; UTF-8 unless a byte order mark says otherwise.
    ``delimiter``, also named ``separator``, may be ``tab``.  Without ``columns`` and a header the
    names are column0, column1, ...  ``nulls``, also named ``null``, are spellings of null besides
    the empty value, ``NULL``, ``null`` and ``\N``.
    """

    encoding: str | None = option(
        None, "Of text: latin-1, windows-1252, utf-16; else UTF-8.", "NAME", panel=READING
    )
    decimal: str | None = option(
        None,
        "Decimal separator of CSV; the other one may group digits in threes.",
        choices=(",", "."),
        panel=READING,
    )
    delimiter: str | None = option(
        None,
        "Of CSV: one character, or tab; else inferred from the header (, ; tab |).",
        "C",
        flags=("--delimiter", "--separator"),
        panel=READING,
    )
    quote: str = option('"', "Of CSV; '' for none.", "C", panel=READING)
    skip: int = option(
        0, "Lines of CSV to pass over, before the header.", "N", minimum=0, panel=READING
    )
    header: bool | None = option(
        None,
        "Whether the first line of CSV names the columns. [default: unless columns are given]",
        flags=("--header/--no-header",),
        kind=bool,
        panel=READING,
    )
    columns: Sequence[str] | None = option(
        None,
        "Names of the columns of CSV files, instead of a header's.",
        "COL,...",
        many="names",
        panel=READING,
    )
    sheet: str | None = option(
        None, "Of Excel workbooks; the first by default.", "NAME", panel=READING
    )
    nulls: Sequence[str] = option(
        (),
        "A further spelling of null in CSV, e.g. N/A; repeatable.",
        "TEXT",
        name="null",
        many="texts",
        panel=READING,
    )
    flatten: str | None = option(
        None,
        "Make columns of nested JSON: _ makes a_b of {'a': {'b': 1}}.",
        "SEP",
        panel=READING,
    )
    separator: InitVar[str | None] = None
    null: InitVar[Sequence[str] | None] = None

    def __post_init__(self, separator: str | None, null: Sequence[str] | None) -> None:
        if null is not None:
            object.__setattr__(self, "nulls", [null] if isinstance(null, str) else list(null))
        delimiter = self.delimiter or separator
        if delimiter is not None:
            delimiter = _TABS.get(delimiter, delimiter)
            if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '\r\n"':
                raise InvalidArgument(
                    f"the delimiter is one ASCII character or tab, found {delimiter!r}"
                )
            object.__setattr__(self, "delimiter", delimiter)
        if self.quote and (
            len(self.quote) != 1 or not self.quote.isascii() or self.quote in f"\r\n{delimiter}"
        ):
            raise InvalidArgument(
                "the quote is one ASCII character other than the delimiter, or empty for none; "
                f"found {self.quote!r}"
            )
        if self.skip < 0:
            raise InvalidArgument(f"lines to skip are 0 or more, found {self.skip}")
        if self.decimal not in (None, ",", "."):
            raise InvalidArgument(f"the decimal separator is , or . found {self.decimal!r}")
        if self.encoding is not None:
            object.__setattr__(self, "encoding", _known_encoding(self.encoding))

    @property
    def text(self) -> TextOptions:
        return TextOptions(**by_name(self, TextOptions))


@dataclass(frozen=True, kw_only=True)
class ColumnOptions:
    """Which columns of a source are read, under which names, as which types.

    ``time_of_day`` is a column to merge into the time; ``rename`` maps the files' names to new
    ones; ``select`` (new names) always includes the time; ``file_column`` is a text column for the
    file's name.  For ``time_format``, ``time_zone`` and ``ambiguous`` see ``times``.
    """

    time: str | None = option(None, "The time column; needed for a new stream.", "COL")
    time_format: str | Sequence[str] | TimeRule = option(  # noqa: RUF009 a field
        "auto",
        "auto, iso, ticks, s, ms, us, ns, or a pattern such as '%d.%m.%Y %H:%M:%S'; "
        "repeatable: each value has the first that reads it. [default: auto]",
        "F",
        many="texts",
    )
    time_zone: str | None = option(
        None,
        "Time zone of times without an offset, e.g. Europe/Berlin. [default: UTC]",
        "ZONE",
        panel=COLUMNS,
    )
    ambiguous: str = option(
        "refuse",
        "How to read a local time that occurs twice, when clocks go back.",
        choices=("refuse", "earlier", "later"),
        panel=COLUMNS,
    )
    time_of_day: str | None = option(
        None,
        "The column with the time of day, where the time column has dates.",
        "COL",
        panel=COLUMNS,
    )
    types: Iterable[str] | Mapping[str, str | pa.DataType] = option(
        (),
        "Types in place of inferred ones: speed=double,zip=string,at=timestamp.",
        "COL=TYPE,...",
        many="texts",
    )
    rename: Mapping[str, str] | None = option(
        dict,
        "New names for columns; the other options use these.",
        "OLD=NEW,...",
        panel=COLUMNS,
        many="pairs",
    )
    select: Sequence[str] | None = option(
        None, "Columns to keep; the time is always kept.", "COL,...", panel=COLUMNS, many="names"
    )
    file_column: str | None = option(
        None,
        "Add a column with the name of the file, without directory and suffixes.",
        "COL",
        panel=COLUMNS,
    )


@dataclass(frozen=True, kw_only=True)
class ReadOptions(TextOptions, ColumnOptions):
    """How a file of any format is read."""

    format: str | None = option(
        None,
        "json, ndjson, csv, parquet or arrow; else inferred from names and bytes.",
        "FORMAT",
        panel=READING,
    )


@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """How the events of files are stored."""

    create: bool = option(False, "Make the stream from the data.")
    if_exists: str = option(
        "fail",
        "With create: what to do when the stream is there already.",
        choices=("fail", "append"),
        panel=STORING,
    )
    retention: str | None = option(
        None, "Of a new stream: '30 days' or '10 GB'.", "AGE", panel=STORING
    )
    codec: str = option(
        "lz4", "Compression of a new stream.", choices=("lz4", "zstd", "none"), panel=STORING
    )
    unique: str | None = option(
        None,
        "Of a new stream: a key whose events are stored once, e.g. 'device, seq'.",
        "COLUMNS",
        panel=STORING,
    )
    within: str | None = option(
        None,
        "With unique: how near in time equal keys are the same event, e.g. '1 hour'.",
        "SPAN",
        panel=STORING,
    )
    dry_run: bool = option(False, "Read and check everything, store nothing.")

    @property
    def of_new_stream(self) -> dict[str, Any]:
        """The settings of a stream that is made, as ``Database.create_stream`` takes them."""
        return {name: getattr(self, name) for name in ("codec", "retention", "unique", "within")}


@dataclass(frozen=True, kw_only=True)
class IngestOptions(StoreOptions, ReadOptions):
    """All options of an ingest: of ``chronicle ingest`` and ``chronicle.ingest.IngestRequest``."""

    on_error: str = option(
        "fail",
        "What a row that cannot be read does.",
        choices=("fail", "skip", "quarantine"),
        flags=("--bad-rows", "--on-error"),
    )
    quarantine: Path | None = option(  # noqa: RUF009 a field
        None,
        "Where quarantined rows go. [default: beside the store]",
        "FILE",
        flags=("--quarantine-file",),
        kind=Path,
        panel=ERRORS,
    )
    commit: str = option(
        "end",
        "All at once at the end, or batch by batch (for a pipe that does not end).",
        choices=("end", "batch"),
        panel=STORING,
    )
    batch_rows: int = option(
        262_144, "Events a batch.", "N", flags=("--batch-size",), minimum=1, panel=STORING
    )
    engine: str = option(
        "auto",
        "Who reads: this process, or Spark. auto is spark when --master is given.",
        choices=("auto", "arrow", "spark"),
        panel=STORING,
    )
    master: str | None = option(None, "Spark master, e.g. local[4].", "URL", panel=STORING)
    max_columns: int = option(
        Limits.columns, "Most columns, or different keys, of a file.", "N", minimum=1, panel=READING
    )


def by_name(options: Any, schema: type[Any]) -> dict[str, Any]:
    """The values of the fields that ``options`` share with a schema."""
    return {each.name: getattr(options, each.name) for each in fields(schema)}


def load_encodings() -> None:
    """Import the decoders before the process loses file access."""
    for name in ENCODINGS:
        codecs.getincrementaldecoder(name)


def _known_encoding(name: str) -> str:
    plain = name.strip().lower().replace("_", "-").replace(" ", "-")
    plain = plain.replace("cp125", "windows-125").replace("iso8859", "iso-8859")
    for encoding in ENCODINGS:
        if plain in (encoding, encoding.replace("_", "-"), encoding.replace("-", "")):
            return encoding
    raise InvalidArgument(
        f"unknown encoding {name!r}{did_you_mean(name, ENCODINGS) or ';'} known are "
        f"{', '.join(ENCODINGS)}"
    )

"""Options of text files: encoding, delimiter, quotes, header, nulls, decimal separator.

The encodings are a fixed list, loaded before a worker gives up file access.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import InitVar, dataclass, fields
from typing import Any

from ..core.suggestion import did_you_mean
from ..errors import InvalidArgument

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
    r"""How a text file is written; all but ``encoding`` are for CSV.

    Attributes
    ----------
    encoding : str, optional
        One of ``ENCODINGS``; UTF-8 unless a byte order mark says otherwise.
    delimiter, separator : str, optional
        One ASCII character or ``tab``; inferred from the header line by default.
    quote : str
        One ASCII character; empty for no quoting.
    skip : int
        Lines to skip before the header or the first row.
    header : bool, optional
        Whether the first line names the columns; by default unless ``columns`` is given.
    columns : sequence of str, optional
        Column names; column0, column1, ... without them and a header.
    nulls : sequence of str
        Spellings of null besides the empty value, ``NULL``, ``null`` and ``\N``.
    decimal : {",", "."}, optional
        Decimal separator; the other one, an apostrophe or a blank may then group digits in threes.
    sheet : str, optional
        Sheet of an Excel workbook; the first by default.
    """

    encoding: str | None = None
    delimiter: str | None = None
    quote: str = '"'
    skip: int = 0
    header: bool | None = None
    columns: Sequence[str] | None = None
    nulls: Sequence[str] = ()
    decimal: str | None = None
    sheet: str | None = None
    separator: InitVar[str | None] = None

    def __post_init__(self, separator: str | None) -> None:
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

    def by_name(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(TextOptions)}

    @property
    def text(self) -> TextOptions:
        return TextOptions(**self.by_name())


def load_encodings() -> None:
    """Import the decoders before the process loses file access."""
    for name in ENCODINGS:
        codecs.getincrementaldecoder(name)


def _known_encoding(name: str) -> str:
    plain = name.strip().lower().replace("_", "-").replace(" ", "-")
    plain = plain.replace("cp125", "windows-125").replace("iso8859", "iso-8859")
    for known in ENCODINGS:
        if plain in (known, known.replace("_", "-"), known.replace("-", "")):
            return known
    raise InvalidArgument(
        f"unknown encoding {name!r}{did_you_mean(name, ENCODINGS) or ';'} known are "
        f"{', '.join(ENCODINGS)}"
    )

"""Reading JSON in chunks of complete records of at most 64 MB.

``json``: one array of objects, or objects one after another; ``ndjson``: one object a line.  An
unclosed array is an error.  A broken line costs that line only; after a broken record of an array
the rest is read while brackets balance.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from ..errors import InvalidData
from .badrows import shown
from .chunks import CHUNK_BYTES, SAMPLE_BYTES
from .jsonchunk import JsonChunk, Reading
from .jsonmarks import AFTER_END, NO_COMMA, NO_RECORD, Cutter, line_spans
from .sources import ByteSource

__all__ = ["JsonLines", "JsonRecords", "Reading", "looks_like_lines"]

RECORD_BYTES_MAX = 64 << 20


class JsonLines:
    typed = False

    def __init__(self, source: ByteSource, reading: Reading) -> None:
        self.source = source
        self.reading = reading

    def chunks(self) -> Iterator[JsonChunk]:
        source = self.source
        source.begin_text()
        carry = b""
        row, line = 1, 1
        size = SAMPLE_BYTES
        while True:
            more = source.read(size)
            data = carry + more
            goes_on = len(more) == size or (source.is_live and bool(more))
            size = CHUNK_BYTES
            if not data:
                return
            if goes_on:
                end = data.rfind(b"\n") + 1
                if end == 0:
                    if len(data) > RECORD_BYTES_MAX:
                        raise InvalidData(
                            f"{source.name}, line {line}: the line does not end within "
                            f"{RECORD_BYTES_MAX >> 20} MB; is this NDJSON?"
                        )
                    carry = data
                    continue
                data, carry = data[:end], data[end:]
            else:
                carry = b""
            spans = line_spans(data)
            if len(spans):
                yield JsonChunk(self.reading, data, row, line, spans)
                row += len(spans)
            line += data.count(b"\n")


class JsonRecords:
    typed = False

    def __init__(self, source: ByteSource, reading: Reading) -> None:
        self.source = source
        self.reading = reading

    def chunks(self) -> Iterator[JsonChunk]:
        source, cutter = self.source, Cutter()
        source.begin_text()
        carry = held = b""
        row = 1
        size = SAMPLE_BYTES
        while more := source.read(size):
            size = CHUNK_BYTES
            more = held + more
            kept = more.rstrip(b"\\")  # a trailing backslash escapes what follows
            held = more[len(kept) :]
            text = bytearray(kept)
            begun = cutter.depth > 0
            last, spans, wrong, kind = cutter.cut(text)
            if last == 0 and wrong < 0:
                carry += text
                if len(carry) + len(held) > RECORD_BYTES_MAX:
                    raise InvalidData(
                        f"{source.name}: record {row} does not end within {RECORD_BYTES_MAX >> 20} "
                        "MB; expected an array of records (objects), or one object a line"
                    )
                continue
            if len(spans):
                spans += len(carry)
                if begun:
                    spans[0, 0] = len(carry) - len(carry.lstrip())
                yield JsonChunk(self.reading, carry + bytes(text[:last]), row, None, spans)
            carry = bytes(text[last:])
            row += len(spans)
            if wrong >= 0:
                self._raise(kind, row, kept[wrong : wrong + 40])
        if cutter.depth or cutter.in_string:
            raise InvalidData(
                f"{source.name}: the file ends inside record {row}; it is cut off, or a quote or "
                "bracket is missing there",
                row=row,
            )
        if cutter.in_array and not cutter.done:
            raise InvalidData(
                f"{source.name}: the array is not closed after record {row - 1}; the file is "
                "cut off",
                row=row,
            )
        if not cutter.in_array and row == 1:
            raise InvalidData(f"{source.name} is empty; expected a JSON array of records")

    def _raise(self, kind: int, row: int, text: bytes) -> None:
        found = shown(text.decode(errors="replace"))
        what = {
            NO_RECORD: f"expected a record (an object) as number {row}, found {found}",
            AFTER_END: f"expected nothing after the end of the array, found {found}",
            NO_COMMA: f"expected a comma after record {row - 1}, found {found}",
        }[kind]
        raise InvalidData(f"{self.source.name}: {what}", row=row)


def looks_like_lines(head: bytes) -> bool:
    """Whether the text's first object stands on a line of its own."""
    line, newline, _ = head.lstrip(b"\xef\xbb\xbf \t\r\n").partition(b"\n")
    if not newline or not line.startswith(b"{"):
        return False
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False

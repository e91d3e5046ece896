"""Bodies of every format, whole and then broken on purpose.

Purpose
    :class:`Bodies` makes request bodies for a stream of seven columns from a seed: a valid one of
    each format; the same with bytes flipped, cut, doubled, spliced and overwritten by numbers that
    lengths and offsets are made of; and bodies that are well formed and still too much (depth,
    width, repetition), in gzip and zstd or not.

    Arrow bodies are broken in a way of their own too: offsets, validity maps and bytes of texts,
    which no parser looks at, are forged in messages that are otherwise whole.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as parquet

__all__ = ["MEDIA", "Bodies", "Sent"]

MEDIA = {
    "json": "application/json",
    "ndjson": "application/x-ndjson",
    "csv": "text/csv",
    "arrow": "application/vnd.apache.arrow.stream",
    "parquet": "application/vnd.apache.parquet",
}
LENGTHS = [0, 1, 2, 7, 127, 255, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1]
FRAGMENTS = [
    *(
        b"null",
        b"[",
        b"{",
        b"[[[[[[[[",
        b"}",
        b'"',
        b"\\u0000",
        b"\\ud800",
        b"\xff\xfe",
        b"\x00",
        b",",
    ),
    *(
        b"1e999",
        b"-0",
        b"NaN",
        b"\n",
        b"\r\n",
        b'{"t":',
        b'{"t": {"t": {}}}',
        b"true",
        b"99999999999999999999",
    ),
    *(b"ARROW1", b"PAR1", b"\xff\xff\xff\xff", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"),
]


@dataclass(frozen=True)
class Sent:
    """A body as it is sent.

    Attributes
    ----------
    format : str
    content : bytes
    story : str
        How it was made, for a fault's report.
    headers : dict
        Content-Type, and Content-Encoding where it is compressed.
    """

    format: str
    content: bytes
    story: str
    headers: dict[str, str] = field(default_factory=dict)


class Bodies:
    """Bodies from a seed.

    Parameters
    ----------
    seed : int
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._time = 0
        self._ways: list[Callable[[], tuple[str, bytes, str]]] = [
            self._whole,
            self._broken,
            self._broken,
            self._broken,
            self._buffers,
            self._buffers,
            self._large,
        ]

    def body(self) -> Sent:
        """The next body."""
        format, content, story = self.random.choice(self._ways)()
        headers = {"Content-Type": MEDIA[format]}
        kind = self.random.random()
        if kind < 0.1:
            content = gzip.compress(content, 1)
            headers["Content-Encoding"] = "gzip"
            if kind < 0.05:
                content, more = self._mutated(content)
                story += f", gzip, {more}"
        elif kind < 0.2:
            content = pa.compress(content, "zstd", asbytes=True)
            headers["Content-Encoding"] = "zstd"
            if kind < 0.15:
                content, more = self._mutated(content)
                story += f", zstd, {more}"
        return Sent(format, content, f"{format}: {story}", headers)

    def _table(self, rows: int) -> pa.Table:
        r = self.random
        self._time += rows
        times = list(range(self._time - rows, self._time))
        texts = [r.choice([None, "", "a", "ü€", "long " * 30]) for _ in times]
        return pa.table(
            {
                "t": pa.array(times, pa.int64()),
                "k": pa.array(texts, pa.string()),
                "x": pa.array([r.choice([None, 0.5, -1.0, 1e300]) for _ in times], pa.float64()),
                "raw": pa.array([text and text.encode() for text in texts], pa.binary()),
                "at": pa.array([r.choice([None, n]) for n in times], pa.timestamp("us")),
                "flag": pa.array([r.choice([None, True, False]) for _ in times], pa.bool_()),
                "d": pa.array([None] * rows, pa.decimal128(10, 2)),
            }
        )

    def _whole(self) -> tuple[str, bytes, str]:
        format = self.random.choice(list(MEDIA))
        return format, self._encoded(format, self._table(self.random.choice([1, 3, 50]))), "whole"

    def _encoded(self, format: str, table: pa.Table) -> bytes:
        sink = io.BytesIO()
        if format == "csv":
            csv.write_csv(table.select(["t", "k", "x", "flag"]), sink)
        elif format == "parquet":
            codec = self.random.choice(["none", "snappy", "zstd", "gzip"])
            parquet.write_table(table, sink, compression=codec)
        elif format == "arrow":
            if self.random.random() < 0.3:
                k = table.schema.get_field_index("k")
                table = table.set_column(k, "k", table["k"].combine_chunks().dictionary_encode())
            codec = self.random.choice([None, None, "lz4", "zstd"])
            options = pa.ipc.IpcWriteOptions(compression=codec)
            make = self.random.choice([pa.ipc.new_stream, pa.ipc.new_stream, pa.ipc.new_file])
            with make(sink, table.schema, options=options) as writer:
                writer.write_table(table)
        else:
            rows = table.select(["t", "k", "x", "flag"]).to_pylist()
            if format == "json":
                sink.write(json.dumps(rows).encode())
            else:
                sink.write(b"".join(json.dumps(row).encode() + b"\n" for row in rows))
        return sink.getvalue()

    def _broken(self) -> tuple[str, bytes, str]:
        format, content, _ = self._whole()
        content, story = self._mutated(content)
        return format, content, story

    def _mutated(self, content: bytes) -> tuple[bytes, str]:
        """A few bytes other than they were."""
        r = self.random
        data = bytearray(content)
        story = []
        for _ in range(r.choice([1, 1, 2, 5, 20])):
            at = r.randrange(len(data) + 1)
            way = r.randrange(7)
            story.append(f"{way}@{at}")
            if way == 0 and at < len(data):
                data[at] ^= 1 << r.randrange(8)
            elif way == 1:
                data[at : at + r.choice([1, 4, 100])] = b""
            elif way == 2:
                data[at:at] = r.choice(FRAGMENTS) * r.choice([1, 1, 3])
            elif way == 3:
                data[at:] = b""
            elif way == 4:
                data[at:at] = data[at : at + 40]
            elif way == 5:
                width = r.choice([1, 2, 4, 8])
                value = r.choice(LENGTHS) % (1 << 8 * width)
                data[at : at + width] = value.to_bytes(width, "little")
            else:
                start = r.randrange(len(data) + 1)
                data[at : at + 8] = data[start : start + 8]
        return bytes(data), "mutated " + " ".join(story)

    def _buffers(self) -> tuple[str, bytes, str]:
        """An Arrow stream whose buffers contradict themselves."""
        r = self.random
        rows = r.choice([2, 5, 50])
        table = self._table(rows).select(["t", "k", "raw"])
        batch = table.combine_chunks().to_batches()[0]
        name = r.choice(["k", "raw"])
        place = batch.schema.get_field_index(name)
        array = batch.column(place)
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        content = sink.getvalue()
        validity, offsets, values = (part and part.to_pybytes() for part in array.buffers())
        right = struct.unpack(f"<{rows + 1}i", offsets[: 4 * rows + 4])
        wrong = list(right)
        at = r.randrange(rows + 1)
        wrong[at] = r.choice([-1, wrong[-1] + 1, 2**31 - 1, -(2**31), 0, 20_000_000, wrong[at] + 3])
        content = _swapped(content, offsets[: 4 * rows + 4], struct.pack(f"<{rows + 1}i", *wrong))
        for part in (validity, values):
            if part and len(part) >= 8 and r.random() < 0.3:
                content = _swapped(content, part, r.randbytes(len(part)))
        return "arrow", content, f"offset {at} of {name} is {wrong[at]}"

    def _large(self) -> tuple[str, bytes, str]:
        """Well formed, small to send, much to hold."""
        r = self.random
        size = r.choice([10, 600, 20_000, 200_000])
        wide = r.choice([10, 300, 5_000, 50_000])
        self._time += 1
        opened, closed = "[" * size, "]" * size
        deep = f'{{"t": {self._time}, "k": {opened}1{closed}}}'
        header = ",".join(f"c{n}" for n in range(wide))
        many = "{" + ", ".join(f'"c{n}": {n}' for n in range(wide)) + "}"
        zeros = pa.table({"t": pa.array([self._time] * wide), "x": pa.array([0.0] * wide)})
        sink = io.BytesIO()
        parquet.write_table(zeros, sink, use_dictionary=True, compression="zstd")
        return r.choice(
            [
                ("json", f"[{deep}]".encode(), f"{size} levels"),
                ("ndjson", f"{deep}\n".encode(), f"{size} levels"),
                ("json", (b"[" * size), f"{size} brackets"),
                ("ndjson", (b"{" * size), f"{size} braces"),
                ("json", f"[{many}]".encode(), f"{wide} keys"),
                ("ndjson", "".join(f'{{"t": 1, "k{n}": 1}}\n' for n in range(wide)).encode(),
                 f"{wide} rows with a new key each"),
                ("csv", f"{header}\n1\n".encode(), f"{wide} columns"),
                ("csv", ("t,k\n1," + '"' * size + "\n").encode(), f"{size} quotes"),
                ("parquet", sink.getvalue(), f"{wide} equal rows"),
                ("ndjson", b"null\n", "null"),
                ("json", b"null", "null"),
                ("ndjson", b"\n" * size, f"{size} empty lines"),
            ]
        )  # fmt: skip


def _swapped(content: bytes, part: bytes, other: bytes) -> bytes:
    """The content with the last place that reads ``part`` reading ``other``."""
    head, _, tail = content.rpartition(part)
    return head + other + tail if tail else content

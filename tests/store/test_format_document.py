"""docs/format.md says what the code does: tables, enumerations and the worked example."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from chronicle.schema import StreamSchema
from chronicle.store import layout
from chronicle.store.inspect import describe_segment
from chronicle.store.scaled import INTEGERS, scaled_floats, tabulated
from chronicle.store.segment_writer import SegmentWriter
from chronicle.tests.memory_files import MemoryFiles

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "format.md"
STRUCTURES = [
    "FILE_HEADER",
    "BLOCK_FRAME",
    "LEAF_HEADER",
    "CHUNK_ENTRY",
    "NODE_HEADER",
    "DICTIONARY_HEADER",
    "FOOTER",
    "PAGE_HEADER",
]


def spans(pattern: str) -> list[tuple[int, int]]:
    """Offset and size of every field of a struct format."""
    found, at = [], 0
    for digits, code in re.findall(r"(\d*)([a-zA-Z])", pattern.lstrip("<")):
        repeat = int(digits or 1)
        sizes = [repeat] if code in "sx" else [struct.calcsize("<" + code)] * repeat
        for size in sizes:
            found.append((at, size))
            at += size
    return found


def tables(text: str) -> list[list[tuple[int, int]]]:
    """Every table of offsets and sizes, in order."""
    result = []
    for block in text.split("\n\n"):
        if "| offset | size | meaning |" in block:
            rows = re.findall(r"^\| (\d+) \| (\d+) \|", block, re.M)
            result.append([(int(offset), int(size)) for offset, size in rows])
    return result


def example() -> tuple[bytes, str]:
    """The segment of the worked example and the list of its blocks."""
    schema = StreamSchema(
        pa.schema([pa.field("t", pa.int64(), False), ("x", pa.float64()), ("s", pa.string())]), "t"
    )
    files = MemoryFiles()
    writer = SegmentWriter(files, "example.seg", 7, schema, "none", 1 << 20)
    columns = [pa.array([10, 20, 35]), pa.array([1.5, None, -2.0]), pa.array(["up", "up", "down"])]
    writer.write(pa.RecordBatch.from_arrays(columns, schema=schema.arrow))
    writer.seal()
    writer.close()
    return files.read("example.seg"), "\n".join(describe_segment(files, "example.seg"))


def test_structures() -> None:
    expected = [spans(getattr(layout, name).format) for name in STRUCTURES]
    assert tables(DOCUMENT.read_text(encoding="utf-8")) == expected


@pytest.mark.parametrize("enumeration", ["BlockKind", "ValueKind", "Encoding", "Codec"])
def test_enumerations(enumeration: str) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    table = text.split(f"({enumeration}):", 1)[1].split("\n\n")[1]
    rows = re.findall(r"^\| (\d+) \| ([A-Z0-9]+) \|", table, re.M)
    members = getattr(layout, enumeration)
    assert rows == [(str(int(member)), member.name) for member in members]


def test_numbers() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for phrase in (
        f"version {layout.FORMAT_VERSION}\n",
        f"multiples of {layout.ALIGNMENT} bytes",
        f"A zone is {layout.ZONE_EVENTS} events",
        f"pages of {layout.PAGE_EVENTS} events",
        f"longer than {layout.SECTION_BYTES} bytes",
        f"| {layout.SECTION_SHIFT}: sections",
        f"has {layout.NODE_FANOUT} children",
        f"`{layout.ROW_ATTRIBUTES} + {layout.ROWS_PER_ATTRIBUTE} n` rows",
    ):
        assert phrase in text, phrase
    rows = re.findall(r"^\| (\d+) \| (ROW_[A-Z]+) \|", text, re.M)
    assert rows == [(str(getattr(layout, name)), name) for _, name in rows]
    assert len(rows) == 5


def test_example_of_scaled_numbers() -> None:
    values = np.array([1.5, 2.25, -0.0, 3.0, *[2.75, 1.5] * 30])
    few = np.array([7, 900, 900_000, 7] * 16)
    text = DOCUMENT.read_text(encoding="utf-8")
    examples = {"words": scaled_floats(values), "table": tabulated(few, INTEGERS, few.nbytes)}
    for block, scaled in examples.items():
        assert scaled is not None
        words = np.concatenate([part.view(np.uint64) for part in scaled.parts()])
        (shown,) = re.findall(rf"```{block}\n(.*?)\n```", text, re.S)
        expected = [f"{word:016x}" for word in words.tolist()]
        assert shown.split() == expected[: len(shown.split())]
    assert len(shown.split()) == len(expected), "the table is shown whole"


def test_worked_example() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    raw, listing = example()
    assert f"```blocks\n{listing}\n```" in text
    dumps = re.findall(r"```hex\n(.*?)\n```", text, re.S)
    assert len(dumps) == 2
    for dump in dumps:
        for line in dump.splitlines():
            at, shown = line.split("  ", 1)
            bytes_shown = bytes.fromhex(shown)
            offset = int(at, 16)
            assert raw[offset : offset + len(bytes_shown)] == bytes_shown

"""Files as people have them: each loads with at most one option, or its error says which one."""

import bz2
import contextlib
import dataclasses
import datetime as dt
import gzip
import io
import math
import random
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import chronicle
from chronicle.errors import ChronicleError, InvalidArgument, InvalidData, ResourceLimit
from chronicle.formats import csvtext as csv_module
from chronicle.formats.chunks import BadRow
from chronicle.formats.csvtext import Quoting
from chronicle.formats.dialect import ENCODINGS, ColumnOptions, Limits, TextOptions
from chronicle.formats.isolated import IsolatedReader
from chronicle.formats.layout import Layout, conform
from chronicle.formats.reader import EventReader
from chronicle.ingest import IngestRequest, Target, ingest

DAY = dt.datetime(2024, 1, 1)
NEXT = dt.datetime(2024, 1, 2)


class Messy(NamedTuple):
    """A file, the option that it needs, and what is in it then."""

    data: bytes
    rows: list[tuple[Any, ...]]
    option: Mapping[str, Any] = MappingProxyType({})
    names: str = "t v"
    note: str | None = None
    suffix: str = ".csv"


PLAIN = b"t,v\n2024-01-01,1.5\n2024-01-02,2\n"
ROWS = [(DAY, 1.5), (NEXT, 2.0)]


def parquet_of(values: pa.Array) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"t": pa.array([DAY, NEXT], pa.timestamp("us")), "v": values}), out)
    return out.getvalue()


def parquet(type_: pa.DataType, *, int96: bool = False) -> bytes:
    times, values = zip(*ROWS, strict=True)
    out = io.BytesIO()
    table = pa.table({"t": pa.array(times, type_), "v": pa.array(values)})
    pq.write_table(table, out, use_deprecated_int96_timestamps=int96)
    return out.getvalue()


FILES = {
    "byte order mark": Messy(b"\xef\xbb\xbf" + PLAIN, ROWS),
    "UTF-16 of Excel": Messy(PLAIN.replace(b",", b"\t").decode().encode("utf-16"), ROWS),
    "UTF-16, big end first": Messy(("\ufeff" + PLAIN.decode()).encode("utf-16-be"), ROWS),
    "UTF-16 without a mark": Messy(
        PLAIN.decode().encode("utf-16-le"), ROWS, {"encoding": "utf-16-le"}
    ),
    "Latin-1": Messy(
        "t;Maß\n2024-01-01;Käse\n".encode("latin-1"),
        [(DAY, "Käse")],
        {"encoding": "latin-1"},
        "t Maß",
    ),
    "Windows-1252": Messy(
        "t,v\n2024-01-01,5 €\n".encode("windows-1252"), [(DAY, "5 €")], {"encoding": "cp1252"}
    ),
    "semicolons and decimal comma": Messy(
        b"t;v\n2024-01-01;12,56\n2024-01-02;-3\n", [(DAY, 12.56), (NEXT, -3.0)], note="decimal"
    ),
    "decimal comma and groups": Messy(
        b"t;v\n2024-01-01;1.234,56\n2024-01-02;1.234.567\n", [(DAY, 1234.56), (NEXT, 1234567.0)]
    ),
    "decimal comma, by a type": Messy(
        b"t;v\n2024-01-01;12,56\n", [(DAY, 12.56)], {"types": {"v": "double"}}
    ),
    "decimal comma of a decimal": Messy(
        b"t;v\n2024-01-01;1.234,50\n", [(DAY, "1234.50")], {"types": {"v": "decimal(8,2)"}}
    ),
    "decimal comma that may be a group": Messy(
        b"t;v\n2024-01-01;1,234\n", [(DAY, 1.234)], {"decimal": ","}
    ),
    "decimal comma between commas": Messy(
        b't,v\n2024-01-01,"1,5"\n2024-01-02,"1.000"\n',
        [(DAY, 1.5), (NEXT, 1000.0)],
        {"decimal": ","},
    ),
    "thousands": Messy(
        b't,v\n2024-01-01,"1,234.5"\n2024-01-02,7\n', [(DAY, 1234.5), (NEXT, 7.0)], {"decimal": "."}
    ),
    "thousands, Swiss": Messy(
        "t;v\n2024-01-01;1'234.5\n2024-01-02;1’000\n".encode(),
        [(DAY, 1234.5), (NEXT, 1000.0)],
        {"decimal": "."},
    ),
    "whole thousands": Messy(b't,v\n2024-01-01,"1,234"\n', [(DAY, 1234)], {"decimal": "."}),
    "quoted newlines": Messy(
        b't,v\n2024-01-01,"a\n""b"", c\r\n"\n2024-01-02,d\n', [(DAY, 'a\n"b", c\r\n'), (NEXT, "d")]
    ),
    "quotes in the middle": Messy(
        b't,v\n2024-01-01,5" pipe\n2024-01-02,a "b" c\n', [(DAY, '5" pipe'), (NEXT, 'a "b" c')]
    ),
    "other quotes": Messy(b"t,v\n2024-01-01,'a, ''b'''\n", [(DAY, "a, 'b'")], {"quote": "'"}),
    "no quotes": Messy(b't,v\n2024-01-01,"a\n', [(DAY, '"a')], {"quote": ""}),
    "duplicate headers": Messy(
        b"t,v,V,v\n2024-01-01,1,2,3\n", [(DAY, 1, 2, 3)], names="t v V_1 v_2", note="name:2"
    ),
    "duplicate headers, one taken": Messy(
        b"t,v,v,v_1\n2024-01-01,1,2,3\n", [(DAY, 1, 2, 3)], names="t v v_2 v_1"
    ),
    "a header without a name": Messy(
        b"t,,v\n2024-01-01,1,2\n", [(DAY, 1, 2)], names="t column1 v", note="name:1"
    ),
    "header on two lines": Messy(b't,"v\n(bar)"\n2024-01-01,1\n', [(DAY, 1)], names="t v\n(bar)"),
    "blank names": Messy(b" t , v \n2024-01-01, 5 \n2024-01-02,6\n", [(DAY, 5), (NEXT, 6)]),
    "blanks in text": Messy(b"t,v\n2024-01-01, a \n", [(DAY, " a ")]),
    "comments": Messy(
        b'# made by "x\n#\nt,v\n2024-01-01,1\n# a note\n2024-01-02,2\n#end',
        [(DAY, 1), (NEXT, 2)],
        note="comments",
    ),
    "comments and quotes": Messy(
        b'# x\nt,v\n2024-01-01,"a\n# b"\n# c\n', [(DAY, "a\n# b")], note="comments"
    ),
    "a header like a comment": Messy(
        b"#t,v\n2024-01-01,1\n#b,2\n"[:-5], [(DAY, 1)], {"time": "#t"}, "#t v"
    ),
    "lines before the header": Messy(
        b"Station 5\nmade today, by hand\n\nt,v\n2024-01-01,1\n", [(DAY, 1)], {"skip": 3}
    ),
    "no header": Messy(
        b"2024-01-01,1\n2024-01-02,2\n",
        [(DAY, 1), (NEXT, 2)],
        {"header": False, "time": "column0"},
        "column0 column1",
    ),
    "no header, names given": Messy(b"2024-01-01,1\n", [(DAY, 1)], {"columns": ["t", "v"]}),
    "a null of its own": Messy(
        b"t,v\n2024-01-01,n/a\n2024-01-02,2\n", [(DAY, None), (NEXT, 2)], {"nulls": ["n/a"]}
    ),
    "tabs": Messy(PLAIN.replace(b",", b"\t"), ROWS),
    "bars": Messy(PLAIN.replace(b",", b"|"), ROWS),
    "a caret": Messy(PLAIN.replace(b",", b"^"), ROWS, {"delimiter": "^"}),
    "CR LF": Messy(PLAIN.replace(b"\n", b"\r\n"), ROWS),
    "CR CR LF": Messy(PLAIN.replace(b"\n", b"\r\r\n"), ROWS),
    "CR alone": Messy(PLAIN.replace(b"\n", b"\r"), ROWS),
    "blank lines": Messy(b"\n" + PLAIN.replace(b"\n", b"\n\n"), ROWS),
    "no end of the last line": Messy(PLAIN[:-1], ROWS),
    "gzip": Messy(gzip.compress(PLAIN), ROWS, suffix=".csv.gz"),
    "zstd": Messy(pa.compress(PLAIN, "zstd", asbytes=True), ROWS, suffix=".csv.zst"),
    "bz2": Messy(bz2.compress(PLAIN), ROWS, suffix=".csv.bz2"),
    "gzip of UTF-16": Messy(gzip.compress(PLAIN.decode().encode("utf-16")), ROWS, suffix=".csv.gz"),
    "epoch in s": Messy(b"t,v\n1704067200,1\n", [(DAY, 1)], note="time:"),
    "epoch in ms": Messy(b"t,v\n1704067200000,1\n", [(DAY, 1)], note="time:"),
    "epoch in us": Messy(b"t,v\n1704067200000000,1\n", [(DAY, 1)], note="time:"),
    "epoch in ns": Messy(
        b"t,v\n1704067200000000000,1\n", [(pd.Timestamp(DAY), 1)], {"time_format": "ns"}
    ),
    "offsets": Messy(
        b"t,v\n2024-01-01T01:00:00+01:00,1\n2024-01-02T00:00:00Z,2\n", [(DAY, 1), (NEXT, 2)]
    ),
    "an offset at some times": Messy(
        b"t,v\n2024-01-01T00:00:00Z,1\n2024-01-02T01:00:00,2\n",
        [(DAY, 1), (NEXT, 2)],
        {"time_zone": "Europe/Berlin"},
    ),
    "time in two columns": Messy(
        b"t,clock,v\n2024-01-01,00:00,1\n2024-01-02,00:00:00,2\n",
        [(DAY, 1), (NEXT, 2)],
        {"time_of_day": "clock"},
    ),
    "dates of Germany": Messy(
        b"t;v\n01.01.2024 00:00;1,5\n02.01.2024 00:00;2\n", ROWS, {"time_format": "%d.%m.%Y %H:%M"}
    ),
    "leading zeros in JSON": Messy(
        b'{"t": "2024-01-01", "v": "007"}\n{"t": "2024-01-01", "v": 5}\n',
        [(DAY, 7), (DAY, 5)],
        note="zeros:v",
        suffix=".ndjson",
    ),
    "times of day in Parquet": Messy(
        parquet_of(pa.array([1, None], pa.time32("s"))),
        [(DAY, "00:00:01.000"), (NEXT, None)],
        suffix=".parquet",
    ),
    "leading zeros": Messy(b"t,v\n2024-01-01,01067\n", [(DAY, 1067)], note="zeros:v"),
    "dates beside times of day": Messy(
        b"t,v\n2024-01-01,13:00\n", [(DAY, "13:00")], note="clock:v"
    ),
    "nested NDJSON": Messy(
        b'{"t": "2024-01-01", "v": {"a": 1, "b": [1, 2.5]}}\n{"t": "2024-01-02", "v": null}\n',
        [(DAY, {"a": 1, "b": [1.0, 2.5]}), (NEXT, None)],
        suffix=".ndjson",
    ),
    "heterogeneous NDJSON": Messy(
        b'{"t": "2024-01-01", "v": 1}\n{"t": "2024-01-02", "v": {"a": "x"}}\n',
        [(DAY, "1"), (NEXT, '{"a":"x"}')],
        suffix=".ndjson",
    ),
    "NDJSON with CR CR LF": Messy(
        b'{"t": "2024-01-01", "v": 1}\r\r\n\r\r\n{"t": "2024-01-02", "v": 2}\r\r\n',
        [(DAY, 1), (NEXT, 2)],
        suffix=".ndjson",
    ),
    "NaN in nested JSON": Messy(
        b'{"t": "2024-01-01", "v": {"a": 1.5}}\n{"t": "2024-01-02", "v": {"a": NaN}}\n',
        [(DAY, 1.5), (NEXT, math.nan)],
        {"flatten": "_"},
        "t v_a",
        suffix=".ndjson",
    ),
    "JSON array": Messy(
        b'[\n{"t": "2024-01-01", "v": [{"x": 1}]},\n{"t": "2024-01-02", "v": []}]',
        [(DAY, [{"x": 1}]), (NEXT, [])],
        suffix=".json",
    ),
    "INT96": Messy(parquet(pa.timestamp("ns"), int96=True), ROWS, suffix=".parquet"),
    "nanoseconds with a zone": Messy(
        parquet(pa.timestamp("ns", "UTC")),
        [(pd.Timestamp(t, tz="UTC"), v) for t, v in ROWS],
        suffix=".parquet",
    ),
    "UTF-16 NDJSON": Messy(
        '{"t": "2024-01-01", "v": "ä"}\n'.encode("utf-16"), [(DAY, "ä")], suffix=".ndjson"
    ),
    "Latin-1 JSON": Messy(
        '[{"t": "2024-01-01", "v": "ä"}]'.encode("latin-1"),
        [(DAY, "ä")],
        {"encoding": "latin-1"},
        suffix=".json",
    ),
}


def zipped(files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def workbook(*sheets: Sequence[Sequence[Any]]) -> bytes:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for number, rows in enumerate(sheets):
        sheet = book.create_sheet(f"Sheet {number}")
        for row in rows:
            sheet.append(row)
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


CELLS = [
    ["t", "v", "code", "ok"],
    [DAY, 0.1, "007", True],
    [],
    [NEXT, 123456789012345, "12", None],
]
IN_CELLS = [(DAY, 0.1, "007", True), (NEXT, 123456789012345.0, "12", None)]
FILES |= {
    "zip": Messy(zipped({"x/": b"", "x/data.csv": PLAIN}), ROWS, suffix=".zip"),
    "zip of a Mac": Messy(
        zipped({"data.csv": PLAIN, "__MACOSX/._data.csv": b"junk"}), ROWS, suffix=".csv.zip"
    ),
    "zip, stored, of NDJSON": Messy(
        zipped({"data.ndjson": b'{"t": "2024-01-01", "v": 1}'}, zipfile.ZIP_STORED),
        [(DAY, 1)],
        suffix=".zip",
    ),
    "zip of Latin-1": Messy(
        zipped({"a.txt": "t\tv\n2024-01-01\tä\n".encode("latin-1")}, zipfile.ZIP_LZMA),
        [(DAY, "ä")],
        {"encoding": "latin-1"},
        suffix=".zip",
    ),
    "xlsx": Messy(workbook([["t", "v"], [DAY, 1.5], [NEXT, 2]]), ROWS, suffix=".xlsx"),
    "xlsx under another name": Messy(
        workbook([["t", "v"], [DAY.date(), 1], [NEXT.date(), 2]], [["x"]]),
        [(DAY, 1), (NEXT, 2)],
        note="sheet",
        suffix=".csv",
    ),
    "xlsx, another sheet": Messy(
        workbook([["x"]], [["t", "v"], [DAY, 1]]), [(DAY, 1)], {"sheet": "Sheet 1"}, suffix=".xlsx"
    ),
    "xlsx, rows before the header": Messy(
        workbook([["made by"], [], ["t", "v", "w"], [DAY, 1]]),
        [(DAY, 1, None)],
        {"skip": 2},
        "t v w",
        suffix=".xlsx",
    ),
}


def load(path: Path, **options: Any) -> tuple[pa.Table, dict[str, str]]:
    chosen = {"time": "t", **options}
    names = [each.name for each in dataclasses.fields(ColumnOptions) if each.name in chosen]
    layout = Layout(**{name: chosen.pop(name) for name in names})
    options = chosen
    batches = list(EventReader(path, layout=layout, **options))
    schema = layout.schema()
    return pa.Table.from_batches([conform(b, schema) for b in batches], schema), layout.notes


@pytest.mark.parametrize("name", list(FILES))
@pytest.mark.parametrize("chunk", [None, 16])
def test_a_messy_file_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, chunk: int | None
) -> None:
    if chunk is not None:
        monkeypatch.setattr(csv_module, "CHUNK_BYTES", chunk)
    file = FILES[name]
    path = tmp_path / f"messy{file.suffix}"
    path.write_bytes(file.data)
    assert len(file.option.keys() - {"time"}) <= 1
    table, notes = load(path, **file.option)
    assert table.schema.names == file.names.split(" ")
    rows = [tuple(row.values()) for row in table.to_pylist()]
    wanted = [
        tuple(str(v) if pa.types.is_decimal(table.schema.types[i]) else v for i, v in enumerate(r))
        for r in rows
    ]
    assert str(wanted) == str(file.rows)
    assert [type(v) for row in wanted for v in row] == [type(v) for row in file.rows for v in row]
    if file.note is not None:
        assert any(about.startswith(file.note) for about in notes), notes


UNREADABLE = [
    ("t,v\n2024-01-01,ä\n".encode("latin-1"), {}, "line 2.*UTF-8.*--encoding latin-1"),
    ("t,ä\n2024-01-01,1\n".encode("latin-1"), {}, "line 1.*UTF-8.*--encoding latin-1"),
    (b"t,v\n2024-01-01,\x81\n", {"encoding": "cp1252"}, "line 2.*0x81.*--encoding"),
    (PLAIN.decode().encode("utf-16-be"), {}, "--encoding utf-16-be"),
    (PLAIN.decode().encode("utf-16")[:-1], {}, "line 3: expected utf-16-le"),
    (PLAIN.replace(b",", b"^"), {}, "--delimiter"),
    (b"Station 5\n\n" + PLAIN, {}, "--skip"),
    (b"Station 5, Berlin, 2024\n" + PLAIN, {}, "--skip"),
    (b"2024-01-01,1\n2024-01-02,2\n", {}, "--no-header"),
    (b't,v\n2024-01-01,"1,234"\n', {"types": ["v=double"]}, "'1,234'; --decimal , or"),
    (b't,v\n2024-01-01,"1.234,5"\n', {"types": ["v=double"]}, "--decimal , reads it"),
    (b't,v\n2024-01-01,"1,234.5"\n', {"types": ["v=double"]}, "--decimal . reads it"),
    (b"t;v\n2024-01-01;1.5\n", {"decimal": ",", "types": ["v=double"]}, "expected a number"),
    (b"t,v\n2024-01-01,1\r2024-01-02,2\n", {}, "found a CR alone"),
    (b"t,v\n2024-01-01,1\n2024-01-02,n/a\n", {"types": ["v=int"]}, "--null n/a reads it"),
    (b"t,v\n01.02.2024,1\n", {}, "time_format= .'%d.%m.%Y' reads them"),
    (b"t,v\n2024-01-01T00:00Z,1\n2024-01-01T00:00,2\n", {}, "pass time_zone="),
]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ('"1,234"\n"2,500"', "v: numbers such as 1,234 are kept as text; --decimal , or --decim"),
        ('"12,56"', "v: numbers such as 12,56 are kept as text; --decimal , reads it"),
        ('"1,234.5"', "v: numbers such as 1,234.5 are kept as text; --decimal . reads it"),
    ],
)
def test_numbers_that_stay_text_are_told_of(tmp_path: Path, values: str, message: str) -> None:
    path = tmp_path / "f.csv"
    lines = "".join(f"2024-01-01,{value}\n" for value in values.split("\n"))
    path.write_text("t,v\n" + lines)
    table, notes = load(path)
    assert table.schema.field("v").type == pa.string()
    assert any(note.startswith(message) for note in notes.values())


def test_a_later_value_that_is_no_number_is_a_bad_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_module, "SAMPLE_BYTES", 24)
    monkeypatch.setattr(csv_module, "CHUNK_BYTES", 24)
    path = tmp_path / "f.csv"
    path.write_bytes(b"t;v\n2024-01-01;12,56\n2024-01-02;1,234\n2024-01-03;1.5\n2024-01-04;\n")
    bad: list[BadRow] = []
    layout = Layout(time="t")
    batches = list(EventReader(path, layout=layout, on_bad=bad.append))
    assert [v for batch in batches for v in batch["v"].to_pylist()] == [12.56, 1.234, None]
    assert [(row.line, row.column, row.value) for row in bad] == [(4, "v", "1.5")]


def test_lines_and_rows_are_counted_past_comments_and_quotes(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_bytes(b'# c\nt,v\n2024-01-01,"a\nb"\n# c\n\nnever,1\n2024-01-02,"c"\n2024-01-03\n')
    bad: list[BadRow] = []
    list(EventReader(path, layout=Layout(time="t"), on_bad=bad.append))
    assert [(row.row, row.line, row.record) for row in bad] == [
        (2, 7, "never,1"),
        (4, 9, "2024-01-03"),
    ]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_encoding_is_decoded_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    monkeypatch.setattr(csv_module, "CHUNK_BYTES", 7)
    letters = "".join(
        c for c in map(chr, range(32, 0x500)) if c.encode(encoding, "ignore").decode(encoding) == c
    )
    letters = letters.replace('"', "").replace(",", "")
    text = "t,v\n" + "".join(f'2024-01-01,"{letter}{letter}"\n' for letter in letters)
    path = tmp_path / "f.csv"
    path.write_bytes(text.encode(encoding))
    table, _ = load(path, encoding=encoding, types={"v": "string"})
    assert table["v"].to_pylist() == [letter * 2 for letter in letters]


def test_cells_keep_their_digits_and_text(tmp_path: Path) -> None:
    path = tmp_path / "f.xlsx"
    path.write_bytes(workbook(CELLS))
    rows, _ = load(path, types=["v=double"])
    assert [tuple(row.values()) for row in rows.to_pylist()] == IN_CELLS
    assert rows.schema.field("code").type == pa.string()


ARCHIVES = [
    (zipped({"a.csv": PLAIN, "b.csv": PLAIN}), {}, r"found 2 \(a.csv, b.csv\); unpack it"),
    (zipped({}), {}, "found 0"),
    (zipped({"a.csv": PLAIN * 100})[:-30], {}, "the ZIP archive cannot be read"),
    (
        workbook([["t"]], [["t"]]),
        {"sheet": "sheet 1"},
        "did you mean 'Sheet 1'.*are Sheet 0",
    ),
    (workbook([["t", "v"], [DAY, 1, 2]]), {}, "line 2 .row 1.: expected 2 values, found 3"),
    (zipped({"xl/workbook.xml": b"<a"}), {}, "the workbook cannot be read"),
    (PLAIN, {}, "expected an Excel workbook"),
]


@pytest.mark.parametrize(
    ("name", "data", "options", "message"),
    [*(("f.csv", *case) for case in UNREADABLE), *(("f.xlsx", *case) for case in ARCHIVES)],
)
def test_what_does_not_load_says_why(
    tmp_path: Path, name: str, data: bytes, options: dict[str, Any], message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(ChronicleError, match=message):
        load(path, **options)


def test_a_damaged_archive_is_told_when_it_is_unpacked(tmp_path: Path) -> None:
    data = bytearray(zipped({"a.csv": PLAIN * 2000}))
    data[60] ^= 0xFF
    path = tmp_path / "f.zip"
    path.write_bytes(data)
    with pytest.raises(InvalidData, match="the ZIP archive cannot be read"):
        load(path)


def test_an_archive_unpacks_to_no_more_than_it_may() -> None:
    """Neither by what it declares, nor by what it holds beyond that."""
    data = zipped({"a.csv": PLAIN + b"\n" * 1_000_000})
    limits = Limits(unpacked_bytes=100_000)
    with pytest.raises(ResourceLimit, match="100,000"):
        EventReader(data, layout=Layout(time="t"), limits=limits)
    size = (len(PLAIN) + 1_000_000).to_bytes(4, "little")
    assert data.count(size) == 2
    lying = data.replace(size, len(PLAIN).to_bytes(4, "little"))
    with pytest.raises(InvalidData, match="the ZIP archive cannot be read"):
        list(EventReader(lying, layout=Layout(time="t"), limits=limits))


def test_archives_are_read_in_a_worker_too() -> None:
    reader = IsolatedReader(1 << 30)
    with contextlib.closing(reader):
        for data in (zipped({"a.csv": PLAIN}), workbook([["t", "v"], [DAY, 1.5], [NEXT, 2]])):
            for body in (data, gzip.compress(data)):
                layout = Layout(time="t")
                packed = "gzip" if body is not data else None
                batches = reader.events(body, None, layout=layout, encoding=packed)
                found = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
                assert found == ROWS
        for name in ENCODINGS:
            data = "t,v\n2024-01-01,x\n".encode(name)
            text = TextOptions(encoding=name)
            (batch,) = reader.events(data, "csv", layout=Layout(time="t"), text=text)
            assert batch["v"].to_pylist() == ["x"]


def test_nan_inside_of_json_names_the_option_that_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "f.ndjson"
    path.write_bytes(b'{"t": "2024-01-01", "v": {"a": 1.5, "b": Infinity}}\n')
    for types in ([], ["v=struct(a double, b double)"], ["v=json"]):
        with pytest.raises(InvalidData, match=r"no NaN or Infinity.*--flatten _"):
            load(path, types=types)


def naive(data: bytes, delimiter: int, quote: int, wanted: int) -> list[int]:
    """Positions outside of quotes, byte by byte."""
    found, quoted, at_start, i = [], False, True, 0
    while i < len(data):
        c = data[i]
        if quoted:
            if c == quote and data[i + 1 : i + 2] == bytes([quote]):
                i += 1
            elif c == quote:
                quoted = False
        elif c == quote and at_start:
            quoted = True
        elif c == wanted:
            found.append(i)
        at_start = c in (delimiter, 10) and not quoted
        i += 1
    return found


@pytest.mark.parametrize("letters", [b'",\na', b'"",\n\r', b"a,\n'", b'"";|\n'])
def test_quotes_are_those_of_a_reader_byte_by_byte(letters: bytes) -> None:
    seeded = random.Random(5)
    quote = "'" if b"'" in letters else '"'
    for delimiter in ",;":
        quoting = Quoting(delimiter, quote)
        for _ in range(4000):
            data = bytes(seeded.choices(letters, k=seeded.randrange(1, 14)))
            ends = naive(data, ord(delimiter), ord(quote), 10)
            assert quoting.outside(data, 10).tolist() == ends, data
            assert quoting.outside(data, 13).tolist() == naive(data, ord(delimiter), ord(quote), 13)
            assert quoting.last_end(data) == (ends[-1] + 1 if ends else 0), data
    assert np.all(Quoting(",", "").outside(b'"\n"\n', 10) == [1, 3])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delimiter": "ab"}, "one ASCII character"),
        ({"delimiter": "\n"}, "one ASCII character"),
        ({"quote": "ä"}, "the quote is one ASCII character"),
        ({"delimiter": "'", "quote": "'"}, "other than the delimiter"),
        ({"skip": -1}, "0 or more"),
        ({"decimal": ";"}, "decimal separator"),
        ({"encoding": "latin-2"}, "did you mean 'latin-1'"),
        ({"encoding": "idna"}, "known are utf-8"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        TextOptions(**options)


def test_the_options_of_an_ingest_are_those_of_the_reader(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_bytes("x\nt^Größe\n2024-01-01^'1,5'\n2024-01-02^-\n".encode("latin-1"))
    request = IngestRequest(
        [str(path)], "s", time="t", create=True, encoding="latin1", skip=1, separator="^",
        quote="'", decimal=",", null=["-"], bad_rows="skip",
    )  # fmt: skip
    assert (request.on_error, request.nulls) == ("skip", ["-"])
    ingest(request, Target(path=tmp_path / "store"))
    with chronicle.open(tmp_path / "store", mode="r") as database:
        rows = database.sql('SELECT "Größe" FROM s ORDER BY t').arrow()
    assert rows.column(0).to_pylist() == [1.5, None]

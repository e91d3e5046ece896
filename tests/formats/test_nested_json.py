"""Nested and irregular JSON without an option: which columns it becomes, and what is bad later."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.errors import InvalidData, ResourceLimit
from chronicle.formats import jsontext as json_module
from chronicle.formats.chunks import BadRow
from chronicle.formats.dialect import Limits, Meter
from chronicle.formats.jsonscan import Cutter
from chronicle.formats.jsontext import JsonText, Values, split_lines
from chronicle.formats.kinds import name_of_type
from chronicle.formats.layout import Layout, conform
from chronicle.formats.reader import EventReader
from chronicle.tests.rounds import rounds


def read(
    text: str | bytes, format: str = "ndjson", *, bad: list[BadRow] | None = None, **options: Any
) -> pa.Table:
    layout = Layout(time="t", time_format="ticks", types=options.pop("types", ()))
    more = {} if bad is None else {"on_bad": bad.append}
    data = text.encode() if isinstance(text, str) else text
    batches = list(EventReader(data, format, layout=layout, **more, **options))
    schema = layout.schema()
    return pa.Table.from_batches([conform(batch, schema) for batch in batches], schema)


def columns(table: pa.Table) -> dict[str, tuple[str, list[Any]]]:
    return {
        field.name: (name_of_type(field.type), table.column(field.name).to_pylist())
        for field in table.schema
        if field.name != "t"
    }


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('ab"\\{}[],:\n é', max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text('a"\\{', max_size=2), inner, max_size=3)
    ),
    max_leaves=6,
)
RECORDS = st.lists(st.dictionaries(st.text('ab"\\ é', max_size=3), VALUES, max_size=4), max_size=8)

BIG = 9_007_199_254_740_993
REGULAR: dict[str, tuple[list[str], dict[str, tuple[str, list[Any]]]]] = {
    "an object": (
        ['"p":{"a":1,"b":"x"}', '"p":{"a":2}', '"p":null', ""],
        {"p": ("struct(a bigint, b varchar)",
               [{"a": 1, "b": "x"}, {"a": 2, "b": None}, None, None])},
    ),
    "a list": (['"p":[1,2.5]', '"p":[]'], {"p": ("double[]", [[1.0, 2.5], []])}),
    "lists of objects": (
        ['"p":[{"a":1},{"a":null}]', '"p":[]'],
        {"p": ("struct(a bigint)[]", [[{"a": 1}, {"a": None}], []])},
    ),
    "times stay text": (
        ['"p":{"at":"2020-01-01T00:00:00Z"}'],
        {"p": ("struct(at varchar)", [{"at": "2020-01-01T00:00:00Z"}])},
    ),
    "an object and a number": (
        ['"p":{"a":1.10}', '"p":5', '"p":"x"', '"p":null'],
        {"p": ("json", ['{"a":1.10}', "5", '"x"', None])},
    ),
    "a list and a text": (['"p":[1]', '"p":"x"'], {"p": ("json", ["[1]", '"x"'])}),
    "a list of mixed things": (
        ['"p":[1,"a",{"b":[]}]', '"p":[]'], {"p": ("json", ['[1,"a",{"b":[]}]', "[]"])}
    ),
    "a member of two kinds": (
        ['"p":{"a":1}', '"p":{"a":"x"}'], {"p": ("json", ['{"a":1}', '{"a":"x"}'])}
    ),
    "empty objects": (['"p":{}', '"p":{}'], {"p": ("json", ["{}", "{}"])}),
    "nulls": (['"p":{"a":null}', '"p":{}'], {"p": ("struct(a varchar)", [{"a": None}] * 2)}),
    "names that differ in case": (
        ['"p":{"a":1,"A":2}'], {"p": ("json", ['{"a":1,"A":2}'])}
    ),
    "digits beyond a double": (
        [f'"p":{{"a":{BIG}}}', '"p":{"a":1.5}'],
        {"p": ("json", [f'{{"a":{BIG}}}', '{"a":1.5}'])},
    ),
    "a name with a slash": (['"p/q":[1]', '"p/q":1'], {"p/q": ("json", ["[1]", "1"])}),
    "number and text, as ever": (['"p":1', '"p":"x"'], {"p": ("varchar", ["1", "x"])}),
    "several at once": (
        ['"a":1,"b":{"c":1},"d":[1]', '"a":[1],"b":2,"d":[2]'],
        {"a": ("json", ["1", "[1]"]), "b": ("json", ['{"c":1}', "2"]),
         "d": ("bigint[]", [[1], [2]])},
    ),
}  # fmt: skip


def records(members: list[str]) -> list[str]:
    return [f'{{"t":{n}{"," if text else ""}{text}}}' for n, text in enumerate(members)]


@pytest.mark.parametrize("name", list(REGULAR))
@pytest.mark.parametrize("form", ["ndjson", "cr cr lf", "json", "broken"])
def test_what_nested_values_become(name: str, form: str) -> None:
    members, expected = REGULAR[name]
    lines = records(members)
    bad: list[BadRow] = []
    if form == "json":
        table = read(f"[{', '.join(lines)}]", "json")
    elif form == "broken":  # read record by record
        table = read("\n".join(["{", *lines]), bad=bad)
    else:
        end = "\n" if form == "ndjson" else "\r\r\n"
        table = read("\ufeff" + "".join(line + end + end for line in lines))
    assert [row.line for row in bad] == ([1] if form == "broken" else [])
    assert columns(table) == expected


FLAT: dict[str, tuple[list[str], dict[str, tuple[str, list[Any]]]]] = {
    "lists stay": (
        ['"p":{"a":[1,2],"b":{"c":"x"}}', '"p":null'],
        {"p_a": ("bigint[]", [[1, 2], None]), "p_b_c": ("varchar", ["x", None])},
    ),
    "irregular lists": (
        ['"p":{"a":[1,"x"]}', '"p":{"a":[]}'], {"p_a": ("json", ['[1,"x"]', "[]"])}
    ),
    "an empty object": (['"p":{},"q":1', '"p":{"a":1}'],
                        {"q": ("bigint", [1, None]), "p_a": ("bigint", [None, 1])}),
    "one name, two ways": (
        ['"p":{"a":1}', '"p_a":2'], {"p_a": ("bigint", [1, 2])}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(FLAT))
def test_what_flattening_leaves(name: str) -> None:
    members, expected = FLAT[name]
    assert columns(read("\n".join(records(members)), flatten="_")) == expected


# --------------------------------------------------------------------------------- later chunks


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line is a chunk."""
    monkeypatch.setattr(json_module, "CHUNK_BYTES", 16)
    monkeypatch.setattr(json_module, "SAMPLE_BYTES", 16)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("first", "later", "type_", "values"),
    [
        ('{"a":1}', '{"a":2.5}', "struct(a double)", [{"a": 1.0}, {"a": 2.5}]),
        (
            '{"a":1}',
            '{"b":"x"}',
            "struct(a bigint, b varchar)",
            [{"a": 1, "b": None}, {"a": None, "b": "x"}],
        ),
        ('{"a":null}', '{"a":[1]}', "struct(a bigint[])", [{"a": None}, {"a": [1]}]),
        (
            '{"a":null,"b":[]}',
            '{"a":null,"b":[]}',
            "struct(a varchar, b varchar[])",
            [{"a": None, "b": []}] * 2,
        ),
        ("[]", "[[1.5]]", "double[][]", [[], [[1.5]]]),
        ("null", '{"a":1}', "struct(a bigint)", [None, {"a": 1}]),
    ],
)
def test_what_comes_later_widens(first: str, later: str, type_: str, values: list[Any]) -> None:
    table = read("\n".join(records([f'"p":{first}', f'"p":{later}'])) + "\n")
    assert columns(table) == {"p": (type_, values)}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("first", "later"),
    [
        ('{"a":1}', '{"a":"x"}'),
        ('{"a":1}', "[1]"),
        ("[1]", '["x"]'),
        ("[1]", "5"),
        ('{"a":1.5}', f'{{"a":{BIG}}}'),
        ('{"a":1}', '{"A":1}'),
        ('{"a":1}', '{"a":1e400}'),
    ],
)
def test_what_does_not_fit_later_is_a_bad_row_with_a_way(first: str, later: str) -> None:
    bad: list[BadRow] = []
    lines = records([f'"p":{first}', f'"p":{later}', f'"p":{first}'])
    table = read("\n".join(lines) + "\n", bad=bad)
    assert table.num_rows == 2
    ((line, column, value),) = [(row.line, row.column, row.value) for row in bad]
    assert (line, column) == (2, "p")
    assert json.loads(str(value)) == json.loads(later)
    assert "p=json" in bad[0].reason or "double can hold" in bad[0].reason
    whole = read("\n".join(lines[:1] * 2) + "\n", types={"p": "json"})
    assert whole.column("p").to_pylist() == [first] * 2


@pytest.mark.usefixtures("small")
def test_an_irregular_column_stays_json() -> None:
    lines = records(['"p":[1,"x"]', '"p":{"a":1.10}', '"p":1e5', '"p":null'])
    assert columns(read("\n".join(lines) + "\n")) == {
        "p": ("json", ['[1,"x"]', '{"a":1.10}', "1e5", None])
    }


FEW = Limits(columns=200)


def test_records_with_keys_of_their_own_take_bounded_memory() -> None:
    lines = [b'{"t":%d,"k%d":{"m%d":1}}\n' % (n, n, n) for n in range(120)]
    table = read(b"".join(lines[:80]), limits=FEW)
    assert table.num_rows == 80
    assert table.schema.field("k7").type == pa.struct([("m7", pa.int64())])
    with pytest.raises(ResourceLimit, match="different keys"):
        read(b"".join(lines), limits=FEW)


def test_keys_that_come_chunk_by_chunk_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_module, "CHUNK_BYTES", 1 << 10)
    monkeypatch.setattr(json_module, "SAMPLE_BYTES", 1 << 10)
    lines = b"".join(b'{"t":%d,"k":{"m%d":1}}\n' % (n, n) for n in range(220))
    with pytest.raises(ResourceLimit, match="different keys"):
        read(lines, limits=FEW)


@pytest.mark.parametrize("end", ["", "x", '{"t":1', '{"t":"', "[]", "\xff"])
def test_keys_are_counted_before_broken_lines_are_read_one_by_one(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_module, "_CELLS_MAX", 1 << 20)
    tall = b"{}\n" * 20_000
    wide = b"".join(b'{"k%d":1}\n' % n for n in range(2_000))
    one = b"{" + b",".join(b'"k%d":1' % n for n in range(2_000))
    for body in (tall + wide + end.encode("latin-1"), tall + one + b"}"):
        with pytest.raises(ResourceLimit, match="different keys"):
            read(body, bad=[], limits=FEW)
    rows = b"".join(b'{"t":%d,"k%d":1}\n' % (n, n % 180) for n in range(4_000))
    bad: list[BadRow] = []
    assert read(rows + end.encode("latin-1"), bad=bad, limits=FEW).num_rows == 4_000
    assert len(bad) == bool(end)


@given(RECORDS)
@settings(deadline=None, max_examples=rounds(60, 1500))
def test_members_are_as_python_finds_them(rows: list[dict[str, Any]]) -> None:
    """Also in objects that are values themselves."""
    lines = [json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows]
    data = "".join(lines).encode()
    ends = np.cumsum([0, *(len(line.encode()) for line in lines)]).astype(np.int32)
    text = JsonText(data, Meter(Limits(), "text"))
    whole = Values(np.arange(len(rows), dtype=np.int32), ends[:-1], ends[1:])

    def check(of: Values, objects: list[dict[str, Any]], rows: list[int]) -> None:
        members = text.members(of)
        assert set(members) == set().union(*objects)
        for name, values in members.items():
            holders = [(row, each) for row, each in zip(rows, objects, strict=True) if name in each]
            assert values.rows.tolist() == [row for row, _ in holders]
            spans = zip(values.starts.tolist(), values.ends.tolist(), strict=True)
            found = [json.loads(data[start:end]) for start, end in spans]
            assert found == [each[name] for _, each in holders]
            inner = np.array([isinstance(each, dict) for each in found], np.bool_)
            if inner.any():
                deeper = [each for each in found if isinstance(each, dict)]
                check(values.at(inner), deeper, values.rows[inner].tolist())

    check(whole, rows, list(range(len(rows))))


# ------------------------------------------------------------------------------------ the cutter


@given(RECORDS, st.booleans(), st.booleans(), st.sampled_from([None, 1]), st.integers(1, 60))
@settings(deadline=None, max_examples=rounds(60, 1500))
def test_records_are_cut_as_python_reads_them(
    rows: list[dict[str, Any]], array: bool, ascii: bool, indent: int | None, size: int
) -> None:
    if array:
        text = json.dumps(rows, indent=indent, ensure_ascii=ascii).encode()
    else:
        text = "".join(json.dumps(row, indent=indent, ensure_ascii=ascii) for row in rows).encode()
    cutter, carry, found, held = Cutter(), b"", [], b""
    for at in range(0, len(text), size):
        piece = held + text[at : at + size]
        kept = piece.rstrip(b"\\")
        held = piece[len(kept) :]
        begun = cutter.in_record
        last, spans, wrong, _ = cutter.cut(kept)
        assert wrong < 0
        for start, end in spans.tolist():
            found.append((carry if begun else b"") + kept[start:end])
            carry, begun = b"", False
        carry = (carry if last == 0 else b"") + kept[last:]
    assert [json.loads(record) for record in found] == rows
    assert (cutter.in_record, cutter.in_array) == (False, False)


def test_white_space_and_what_is_between_lines() -> None:
    data = b"\r\n  {}\t\r\r\n" + b" " * 50 + b'{"a":1}' + b"\t" * 50 + b"\n\n \n{}"
    lines, numbers = split_lines(data, 1)
    assert [line.strip() for line in lines.to_pylist()] == [b"{}", b'{"a":1}', b"{}"]
    assert numbers.tolist() == [2, 3, 6]
    assert not len(split_lines(b" \n\r\n", 1)[0])


def test_a_record_that_ends_nowhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_module, "RECORD_BYTES_MAX", 1 << 20)
    for filling in (b"[" * (3 << 20), b'"' + b"\\" * (3 << 20), b'"' + b"x" * (3 << 20)):
        with pytest.raises(InvalidData, match="does not end within"):
            list(EventReader(b'[{"t":' + filling, "json", layout=Layout(time="t")))


def test_many_values_with_much_white_space() -> None:
    rows = 200
    body = b"".join(b'{"t":%d,"p":%b[1]%b}\n' % (n, b" " * 900, b" " * 900) for n in range(rows))
    found = read(body, types={"p": "json"}).column("p").to_pylist()
    assert found == ["[1]"] * rows
    assert np.all([value == "[1]" for value in found])


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-be", "latin-1"])
@pytest.mark.parametrize("end", ["\n", ""])
def test_lines_of_any_encoding_are_whole(
    monkeypatch: pytest.MonkeyPatch, encoding: str, end: str
) -> None:
    """Decoded text has another length than its bytes: a short piece is not the last one."""
    monkeypatch.setattr(json_module, "SAMPLE_BYTES", 200)
    monkeypatch.setattr(json_module, "CHUNK_BYTES", 100)
    body = "\n".join(f'{{"t":{n},"a":"é{n:030}"}}' for n in range(60)) + end
    reader = EventReader(
        body.encode(encoding), "ndjson", layout=Layout(time="t", time_format="ticks"),
        encoding=None if encoding == "utf-16" else encoding,
    )  # fmt: skip
    rows = [row for batch in reader for row in batch.to_pylist()]
    assert rows == [{"t": n, "a": f"é{n:030}"} for n in range(60)]

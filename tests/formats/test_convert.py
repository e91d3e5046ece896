"""Whole-column conversion: what fits, what does not, and that nothing changes silently."""

from __future__ import annotations

import contextlib
import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.errors import InvalidArgument, UnsupportedType
from chronicle.formats.convert import convert
from chronicle.formats.isolated import IsolatedReader
from chronicle.formats.kinds import name_of_type, parse_pairs, parse_type
from chronicle.formats.layout import Layout, decimal_of, infer_text, plain_numbers
from chronicle.formats.reader import EventReader


def outcome(values: list[Any], type_: pa.DataType, target: pa.DataType) -> list[Any]:
    """Values after conversion, with the text 'bad' for each that was refused."""
    result = convert(pa.array(values, type_), target)
    codes = [0] * len(values) if result.codes is None else result.codes.tolist()
    return ["bad" if c else v for v, c in zip(result.values.to_pylist(), codes, strict=True)]


@pytest.mark.parametrize(
    ("target", "texts", "expected"),
    [
        (pa.int64(), ["1", " -2 ", "+3", "4.0", "5.", None], [1, -2, 3, 4, 5, None]),
        (pa.int64(), ["1.5", "x", "", "0x10", "1e3", "9223372036854775808"], ["bad"] * 6),
        (pa.int8(), ["127", "128"], [127, "bad"]),
        (pa.uint64(), ["18446744073709551615", "-1"], [2**64 - 1, "bad"]),
        (pa.float64(), ["1", "-.5", "1e3", " 2.5 ", "inf"], [1.0, -0.5, 1e3, 2.5, float("inf")]),
        (pa.float64(), ["1,5", "x", "1_000", "0x1p3", "--1"], ["bad"] * 5),
        (pa.bool_(), ["true", "FALSE", "1", "0", "yes"], [True, False, True, False, "bad"]),
        (pa.string(), ["a", "", None], ["a", "", None]),
        (pa.date32(), ["2018-08-01", "2018-08-01T00:00", "2018-08-01T01:00", "x"],
         [dt.date(2018, 8, 1), dt.date(2018, 8, 1), "bad", "bad"]),
        (pa.decimal128(6, 2), ["1.50", "1.505", "99999.00", "+2"],
         [Decimal("1.50"), "bad", "bad", Decimal("2.00")]),
        (pa.binary(), ["aGk=", "?", None], [b"hi", "bad", None]),
    ],
)  # fmt: skip
def test_text(target: pa.DataType, texts: list[str | None], expected: list[Any]) -> None:
    assert outcome(texts, pa.string(), target) == expected


@pytest.mark.parametrize(
    ("given_type", "values", "target", "expected"),
    [
        (pa.int64(), [1, 300], pa.int8(), [1, "bad"]),
        (pa.float64(), [1.0, 1.5, float("nan")], pa.int64(), [1, "bad", "bad"]),
        (pa.int64(), [1, 2**53 + 1], pa.float64(), [1.0, "bad"]),
        (pa.int64(), [1], pa.string(), ["1"]),
        (pa.bool_(), [True, None], pa.int64(), [1, None]),
        (pa.float64(), [0.1], pa.float32(), [pytest.approx(0.1)]),
    ],
)
def test_typed(
    given_type: pa.DataType, values: list[Any], target: pa.DataType, expected: list[Any]
) -> None:
    assert outcome(values, given_type, target) == expected


def test_impossible_conversions_name_both_types() -> None:
    with pytest.raises(UnsupportedType, match="expected double, found"):
        convert(pa.array([{"a": 1}]), pa.float64())
    with pytest.raises(UnsupportedType, match="expected double, found"):
        convert(pa.array([dt.date(2018, 1, 1)]), pa.float64())


def test_required_columns_refuse_nulls() -> None:
    result = convert(pa.array(["1", None, "x"]), pa.int64(), required=True)
    assert result.codes is not None
    assert [result.reasons[c - 1].split(",")[0] if c else "" for c in result.codes] == [
        "",
        "the value is missing",
        "expected a whole number (bigint)",
    ]


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.text(max_size=5))))
def test_bad_values_are_found_exactly(values: list[int | str | None]) -> None:
    texts = [None if v is None else str(v) for v in values]
    expected: list[Any] = []
    for text in texts:
        try:
            plain = None if text is None else text.strip()
            if plain is None:
                expected.append(None)
                continue
            digits = plain.rstrip("0").removesuffix(".") if "." in plain else plain
            if not digits.lstrip("+-").isdigit() or not digits.isascii():
                raise ValueError
            number = int(digits)
            expected.append(number if -(2**63) <= number < 2**63 else "bad")
        except ValueError:
            expected.append("bad")
    assert outcome(texts, pa.string(), pa.int64()) == expected


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["1", "2", None], pa.int64()),
        (["1", "2.5"], pa.float64()),
        (["1", "18446744073709551615"], pa.uint64()),
        (["1", "184467440737095516150"], pa.decimal128(38, 0)),
        (["1", "2", "3", "4", "abc"], pa.int64()),
        (["1", "2", "3", "abc"], pa.string()),
        (["nan", "1.5"], pa.float64()),
        (["true", "False"], pa.bool_()),
        (["true", "maybe"], pa.string()),
        (["2018-08-01", "2018-08-02"], pa.date32()),
        (["2018-08-01", "2018-08-02T05:00"], pa.timestamp("us")),
        (["2018-08-01T05:00:00.123456789"], pa.timestamp("ns")),
        (["a", "b"], pa.string()),
        ([None], None),
        ([], None),
    ],
)
def test_inference(texts: list[str | None], expected: pa.DataType | None) -> None:
    assert infer_text(pa.array(texts, pa.string())) == expected


def test_json_strings_are_not_numbers() -> None:
    assert infer_text(pa.array(["1", "2"]), numbers=False) == pa.string()


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["1,5", None, " -20,25 ", "3"], ","),
        (["1", "2"], None),
        (["1,5", "a"], None),
        (["1.000,5"], ","),
        (["1,5,6"], None),
        (["1,234"], None),
        (["1,234", "1,25"], ","),
        (["0,123"], ","),
        (["1,234e-5"], ","),
        ([None], None),
        ([], None),
    ],
)
def test_a_decimal_comma_is_one_without_doubt(texts: list[str | None], found: str | None) -> None:
    assert decimal_of(pa.array(texts, pa.string())) == found


@pytest.mark.parametrize(
    ("decimal", "text", "number"),
    [
        (",", "1.234,56", "1234.56"),
        (",", "1'234'567,8", "1234567.8"),
        (",", "-1 234", "-1234"),
        (",", "1\u00a0234,5", "1234.5"),
        (",", "1,5e3", "1.5e3"),
        (",", "12", "12"),
        (",", "1.5", None),
        (",", "0.123", None),
        (",", "1.234.56", None),
        (",", "1.234'567", None),
        (",", "1,234,567", None),
        (".", "1,234.5", "1234.5"),
        (".", "1,234", "1234"),
        (".", "1.234", "1.234"),
        (".", "1,23", None),
        (".", "12,34,567", None),
    ],
)
def test_groups_are_regular_or_no_number(decimal: str, text: str, number: str | None) -> None:
    found = plain_numbers(pa.array([text]), decimal)
    read = convert(found, pa.float64())
    if number is None:
        assert read.bad
    else:
        assert (found.to_pylist(), read.bad) == ([number], 0)


@pytest.mark.parametrize("isolated", [False, True])
def test_numbers_with_a_decimal_comma_are_read_and_that_is_said(isolated: bool) -> None:
    data = b't;pressure (bar);"a ""b""";x\n2024-01-01;1,5;2,5;7\n2024-01-02;;3,125;8\n'
    layout = Layout(time="t")
    if isolated:
        with contextlib.closing(IsolatedReader(1 << 30)) as reader:
            batches = list(reader.events(data, "csv", layout=layout))
    else:
        batches = list(EventReader(data, "csv", layout=layout))
    assert batches[0].column(1).to_pylist() == [1.5, None]
    assert batches[0].column(2).to_pylist() == [2.5, 3.125]
    assert list(layout.notes.values()) == ["pressure (bar): numbers are read with a decimal comma"]
    layout = Layout(time="t", types={"pressure (bar)": "string", 'a "b"': "string"})
    list(EventReader(data, "csv", layout=layout))
    assert layout.notes == {}


@pytest.mark.parametrize(
    ("name", "type_"),
    [
        ("double", pa.float64()),
        ("BIGINT", pa.int64()),
        ("varchar", pa.string()),
        ("timestamp", pa.timestamp("us")),
        ("timestamp[ms]", pa.timestamp("ms")),
        ("timestamp[ns, tz=Europe/Berlin]", pa.timestamp("ns", "Europe/Berlin")),
        ("timestamptz", pa.timestamp("us", "UTC")),
        ("decimal(10,2)", pa.decimal128(10, 2)),
        ("decimal", pa.decimal128(18, 3)),
        ("date", pa.date32()),
    ],
)
def test_type_names(name: str, type_: pa.DataType) -> None:
    assert parse_type(name) == type_
    if "tz=" not in name:
        assert parse_type(name_of_type(type_)) == type_


def test_unknown_types_have_a_hint() -> None:
    with pytest.raises(InvalidArgument, match="did you mean 'double'"):
        parse_type("duoble")
    with pytest.raises(InvalidArgument, match="decimal"):
        parse_type("decimal(50,2)")


def test_pairs() -> None:
    assert parse_pairs(["a=int,p=decimal(10,2)", "b=bool"], "--types") == {
        "a": "int",
        "p": "decimal(10,2)",
        "b": "bool",
    }
    with pytest.raises(InvalidArgument, match="--types takes name=value"):
        parse_pairs(["a"], "--types")
    with pytest.raises(InvalidArgument, match="twice"):
        parse_pairs(["a=int,a=bool"], "--types")

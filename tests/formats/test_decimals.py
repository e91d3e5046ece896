"""Decimal text read exactly, against Python's decimals."""

from __future__ import annotations

from decimal import Context, Decimal, localcontext

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.formats.decimals import GOOD, TOO_FINE, TOO_LARGE, UNREAD, parse_decimals
from chronicle.tests.rounds import rounds

DIGITS = st.text("0123456789", max_size=60) | st.text("0", max_size=60)
NUMBERS = st.builds(
    lambda sign, whole, point, part, exponent: sign + whole + (point and "." + part) + exponent,
    st.sampled_from(["", "-", "+"]),
    DIGITS,
    st.booleans().map(lambda yes: "." if yes else ""),
    DIGITS,
    st.just("") | st.integers(-120, 120).map(lambda n: f"e{n}"),
)


def expected(text: str, power: int, digits: int) -> int | str:
    with localcontext(Context(prec=2000, Emax=10**6, Emin=-(10**6))):
        try:
            value = Decimal(text).scaleb(power)
        except ArithmeticError:
            return "unread"
        whole = int(value)
        if len(str(abs(whole))) > digits and whole:
            return "large"
        return whole if value == whole else "fine"


@settings(deadline=None, max_examples=rounds(40, 400))
@given(st.lists(NUMBERS, min_size=1, max_size=20), st.sampled_from([0, 3, 9]), st.integers(1, 38))
def test_text_is_read_as_python_reads_it(texts: list[str], power: int, digits: int) -> None:
    found = parse_decimals(pa.array(texts), power, digits)
    found.values.validate(full=True)
    with localcontext(Context(prec=100)):
        values = [
            None if value is None else int(value.scaleb(power))
            for value in found.values.to_pylist()
        ]
    for text, value, status in zip(texts, values, found.status.tolist(), strict=True):
        wanted = expected(text, power, digits)
        if wanted == "large":
            assert status in (TOO_LARGE, TOO_FINE), text
        elif isinstance(wanted, str):
            assert status == {"unread": UNREAD, "fine": TOO_FINE}[wanted], text
        else:
            assert (status, value) == (GOOD, wanted), text
    fits = found.status == GOOD
    wholes = found.as_int64()
    for value, whole, good, status in zip(values, wholes, fits, found.status, strict=True):
        assert good == (value is not None)
        if status == GOOD:
            assert whole == value


@pytest.mark.parametrize("text", ["", " ", ".", "-", "1e", "1e+", "e5", "1.2.3", "0x1", "1_0", "١"])
def test_other_text_is_not_read(text: str) -> None:
    assert parse_decimals(pa.array([text, None]), 0).status.tolist() == [UNREAD, UNREAD]


def test_exponents_and_digits_without_end() -> None:
    texts = ["1e2147483647", "-1e-2147483647", "0e99999999999", "9" * 100_000, "1e-400", "0e-400"]
    status = parse_decimals(pa.array(texts), 2).status.tolist()
    assert status == [TOO_LARGE, TOO_FINE, GOOD, TOO_LARGE, TOO_FINE, GOOD]


def test_the_ends_of_int64() -> None:
    texts = [str(2**63 - 1), str(2**63), str(-(2**63)), str(-(2**63) - 1), " 5.0 "]
    found = parse_decimals(pa.array(texts).slice(0), 0)
    assert found.as_int64().tolist() == [2**63 - 1, 0, -(2**63), 0, 5]
    assert found.status.tolist() == [GOOD, TOO_LARGE, GOOD, TOO_LARGE, GOOD]

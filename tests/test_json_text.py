"""JSON text: what is let in, against Python's own parser, and what becomes of it."""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.core.json_text import DEPTH_MAX, JSON, REASONS, is_json, read_json

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**25), 10**25)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",)), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=("Cs",)), max_size=4), inner, max_size=4
        )
    ),
    max_leaves=12,
)
SPACES = st.sampled_from(["", " ", "\n", "\t \r"])


def spaced(value: Any, draw: Any) -> str:
    """A value with white space wherever there may be some."""
    ascii_only = draw(st.booleans())

    def text(part: Any) -> str:
        before, behind = draw(SPACES), draw(SPACES)
        if isinstance(part, dict):
            members = (
                draw(SPACES)
                + json.dumps(key, ensure_ascii=ascii_only)
                + f"{draw(SPACES)}:{text(item)}"
                for key, item in part.items()
            )
            inner = "{" + ",".join(members) + (draw(SPACES) if not part else "") + "}"
        elif isinstance(part, list):
            inner = "[" + ",".join(map(text, part)) + (draw(SPACES) if not part else "") + "]"
        else:
            inner = json.dumps(part, ensure_ascii=ascii_only)
        return before + inner + behind

    return text(value)


def read(*texts: str | None) -> tuple[list[str | None], list[int]]:
    """The texts as JSON, and their faults."""
    found = read_json(pa.array(texts, pa.string()))
    assert found.values.type == JSON
    found.values.validate(full=True)
    faults = [0] * len(texts) if found.faults is None else found.faults.tolist()
    return found.values.storage.to_pylist(), faults


def is_let_in_by_python(text: str) -> bool:
    """Whether RFC 8259 holds, by Python's parser with its extensions taken away."""

    def refuse(word: str) -> Any:
        raise ValueError(word)

    def number(digits: str) -> str:
        if math.isinf(float(digits)):
            raise ValueError(digits)
        return digits

    try:
        value = json.loads(text, parse_constant=refuse, parse_float=number, parse_int=number)
        json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair
    except ValueError:
        return False
    return True


@given(st.lists(st.none() | VALUES, max_size=5), st.data())
def test_what_is_json_stays_but_for_white_space(values: list[Any], data: Any) -> None:
    texts = [None if value is None else spaced(value, data.draw) for value in values]
    found, faults = read(*texts)
    assert not any(faults)
    for value, text, kept in zip(values, texts, found, strict=True):
        if text is None:
            assert kept is None
            continue
        assert kept is not None
        assert json.loads(kept) == value
        assert kept == "".join(
            part if at % 2 else "".join(part.split()) for at, part in enumerate(_strings(text))
        )


def _strings(text: str) -> list[str]:
    """A text cut at its strings, which are at the odd places."""
    parts, at, begin = [], 0, 0
    while at < len(text):
        if text[at] == '"':
            end = at + 1
            while text[end] != '"':
                end += 2 if text[end] == "\\" else 1
            parts += [text[begin:at], text[at : end + 1]]
            at = begin = end + 1
        else:
            at += 1
    return [*parts, text[begin:]]


@given(VALUES, st.data())
def test_broken_text_is_refused_as_python_refuses_it(value: Any, data: Any) -> None:
    text = spaced(value, data.draw)
    at = data.draw(st.integers(0, len(text)))
    cut = data.draw(st.integers(0, 2))
    put = data.draw(st.text('{}[]",:\\0123456789.eE+-ntfu d8cD\x01', max_size=2))
    text = text[:at] + put + text[at + cut :]
    _, (fault,) = read(text)
    assert (fault == 0) == is_let_in_by_python(text), text


@pytest.mark.parametrize(
    "text",
    ["1", "-0", "0.5", "1E5", '""', "null", "true", "[]", "{}", r'"\ud83d\ude00"', "1e308",
     "1.7976931348623157e308", "17976931348623157" + "0" * 292, "1e-999", "0e999", "-0.0e-0"],
)  # fmt: skip
def test_values(text: str) -> None:
    assert read(text) == ([text], [0])


@pytest.mark.parametrize(
    ("text", "fault"),
    [(text, 1) for text in (
        "", " ", "01", "+1", ".5", "1.", "1e", "-", "nul", "nulll", "True", "NaN", "Infinity",
        "'a'", "[1,]", "[,]", "{,}", '{"a"}', '{"a":}', '{"a":1,}', "{1:2}", "[1 2]", "1 2", "[1",
        "1]", '"a', '"\\x"', '"\\u12"', '"\t"', "[}", "{]", "\ufeff1", "//", "-01", "1.e5", "1e+",
    )]
    + [("[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1), 2)]
    + [(text, 3) for text in (
        r'"\ud800"', r'"\udc00"', r'"\ud800x"', r'"\ud800\n"', r'"\ud800\ud800"',
    )]
    + [(text, 4) for text in (
        "1e309", "-1e309", "1.8e308", "9" * 400, "0.1e310", "1e99999999999999",
    )],
)  # fmt: skip
def test_what_is_none(text: str, fault: int) -> None:
    assert read("1", text, "[2]") == (["1", None, "[2]"], [0, fault, 0])
    assert "{value}" in REASONS[fault - 1]


def test_slices_and_other_kinds_of_text() -> None:
    texts = pa.array(["x", " [1, 2] ", None, "3", "y"])
    expected = ["[1,2]", None, "3"]
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        found = read_json(texts.cast(kind).slice(1, 3))
        assert (found.values.storage.to_pylist(), found.faults) == (expected, None)
    given_type = pa.ExtensionArray.from_storage(
        pa.json_(pa.large_string()), texts.cast(pa.large_string())
    )
    assert read_json(given_type.slice(1, 3)).values.storage.to_pylist() == expected
    assert read_json(pa.array([], pa.string())).values.type == JSON


def test_compact_text_is_not_copied() -> None:
    text = pa.array(['{"a":1}', None, "2"])
    assert read_json(text).values.storage.buffers()[2].address == text.buffers()[2].address


def test_its_type() -> None:
    assert is_json(pa.json_())
    assert is_json(pa.json_(pa.large_string()))
    assert not is_json(pa.string())
    assert not is_json(pa.uuid())

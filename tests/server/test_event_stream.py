"""Server-sent events: what is written is what a reader of the standard reads."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.server.service.feeds import comment, event, retry, row_events

from .event_client import parse

LINES = st.text(alphabet=st.sampled_from('ab:"\\ \t\n\r\u2028é'), max_size=30)


def lines(text: bytes) -> list[str]:
    """Lines as the standard has them: CR LF, LF and CR end one."""
    return text.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n")


@given(LINES)
def test_every_text_arrives(text: str) -> None:
    (found,) = parse(iter(lines(event("row", json.dumps(text), "7"))))
    assert (found.kind, found.id, found.data) == ("row", "7", text)
    data = [line.removeprefix("data: ") for line in lines(event("x", text)) if line[:4] == "data"]
    assert "\n".join(data) == text.replace("\r\n", "\n").replace("\r", "\n")
    assert next(parse(iter(lines(comment(text))))).kind == ":"


@given(st.lists(LINES, min_size=1, max_size=5))
def test_rows_arrive(texts: list[str]) -> None:
    rows = pa.RecordBatch.from_pydict({"text": pa.array(texts), "n": pa.array(range(len(texts)))})
    ids = pa.array([str(n) for n in range(len(texts))])
    found = list(parse(iter(lines(row_events(ids, rows)))))
    assert [(e.kind, e.id, e.data) for e in found] == [
        ("row", str(n), {"text": text, "n": n}) for n, text in enumerate(texts)
    ]


def test_names_and_ids_are_one_line() -> None:
    for kind, id in (("a\nb", None), ("a", "1\r2"), ("a", "1\0")):
        with pytest.raises(ValueError, match="one line"):
            event(kind, "{}", id)
    assert retry(2000) == b"retry: 2000\n\n"

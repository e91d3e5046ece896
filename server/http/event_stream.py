"""Server-sent events, ``text/event-stream`` (WHATWG HTML, section 9.2.6)::

    event: row                  the kind; "message" without this line
    id: 79.3                    what the client sends back as Last-Event-ID
    data: {"t": 1}              one such line for each line of the text
                                an empty line dispatches the event
    : comment                   ignored by clients; keeps proxies from closing the connection
    retry: 2000                 milliseconds before a client reconnects

Names and ids with a line break, and ids with NUL, are refused.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from ...formats.jsonout import json_bytes

__all__ = ["MEDIA_TYPE", "comment", "event", "retry", "row_events"]

MEDIA_TYPE = "text/event-stream"
_BREAK = re.compile(r"\r\n|\r|\n")


def event(kind: str, data: str, id: str | None = None) -> bytes:
    lines = [f"event: {_single(kind)}"]
    if id is not None:
        lines.append(f"id: {_single(id)}")
    lines += [f"data: {line}" for line in _BREAK.split(data)]
    return ("\n".join(lines) + "\n\n").encode()


def row_events(ids: pa.Array, rows: pa.RecordBatch) -> bytes:
    head, middle, between = (
        pa.scalar(text, pa.large_string()) for text in ("event: row\nid: ", "\ndata: ", "")
    )
    names = pc.cast(ids, pa.large_string())
    heads = pc.binary_join_element_wise(head, names, middle, between)
    return json_bytes(rows, last="}\n\n", heads=heads)


def comment(text: str = "") -> bytes:
    return "".join(f": {line}\n" for line in _BREAK.split(text)).encode() + b"\n"


def retry(milliseconds: int) -> bytes:
    return b"retry: %d\n\n" % milliseconds


def _single(text: str) -> str:
    if _BREAK.search(text) or "\0" in text:
        raise ValueError(f"a name or id in an event stream is one line, found {text!r}")
    return text

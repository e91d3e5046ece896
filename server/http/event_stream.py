"""Server-sent events: the text of ``text/event-stream``, written in this one place.

Purpose
    What browsers read with ``EventSource`` and curl prints as it comes (WHATWG HTML, section
    9.2.6).

Layout
    ::

        event: row                  what kind of event; "message" without this line
        id: 79.3                    what the client sends back as Last-Event-ID
        data: {"t": 1}              its text, one such line for each line of it
                                    an empty line dispatches it
        : comment                   not told to the program; keeps proxies from cutting the line
        retry: 2000                 milliseconds that a client waits before it connects again

Guarantee
    Whatever a text holds, it arrives as that text: it is split at CR, LF and CR LF, as readers do.
    A name or id with a line break, and an id with NUL, cannot be written.
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
    """One event."""
    lines = [f"event: {_single(kind)}"]
    if id is not None:
        lines.append(f"id: {_single(id)}")
    lines += [f"data: {line}" for line in _BREAK.split(data)]
    return ("\n".join(lines) + "\n\n").encode()


def row_events(ids: pa.Array, rows: pa.RecordBatch) -> bytes:
    """An event for each row: a JSON object, which has no line breaks.

    Parameters
    ----------
    ids : pyarrow.Array
        Text without line breaks; as many as rows.
    """
    head, middle, between = (
        pa.scalar(text, pa.large_string()) for text in ("event: row\nid: ", "\ndata: ", "")
    )
    names = pc.cast(ids, pa.large_string())
    heads = pc.binary_join_element_wise(head, names, middle, between)
    return json_bytes(rows, last="}\n\n", heads=heads)


def comment(text: str = "") -> bytes:
    """A line that clients pass over."""
    return "".join(f": {line}\n" for line in _BREAK.split(text)).encode() + b"\n"


def retry(milliseconds: int) -> bytes:
    """How long a client shall wait before it connects again."""
    return b"retry: %d\n\n" % milliseconds


def _single(text: str) -> str:
    if _BREAK.search(text) or "\0" in text:
        raise ValueError(f"a name or id in an event stream is one line, found {text!r}")
    return text

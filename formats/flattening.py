"""Nested JSON made flat, and CloudEvents made plain records, before a parser sees them.

Purpose
    A stream has columns; JSON of devices and webhooks has objects in objects.  :class:`Flattened`
    rewrites the text of records in compiled code, so that everything behind it is that of flat
    JSON::

        {"a": {"b": 1, "c": {"d": 2}}, "e": [3]}     {"a_b":1,"a_c_d":2,"e":[3]}

    :class:`Unwrapped` rewrites CloudEvents: the members of ``data`` become members of the record,
    beside the attributes that the stream has columns for; ``time`` becomes its time::

        {"specversion": "1.0", "id": "7", "time": "2026-...", "data": {"x": 1}}
                                                     {"x":1,"id":"7","timestamp":"2026-..."}

Guarantee
    Keys and values are copied byte by byte: no digit of a number changes.  A record stays where it
    was, so that rows and lines keep their numbers.  Text that is no JSON is left as it is, or stays
    wrong: the parser behind finds, and words, what is wrong with it.  An empty object has no
    members and leaves nothing.  What two members become under one name is refused by the parser.

    Of a CloudEvent: a member of ``data`` wins over an attribute of the same name, and an event
    without a time has that at which reading began.  Where the stream has a column ``data``, that is
    kept whole, and only attributes stand beside it.

Limits
    Objects inside of arrays stay.  Names together have at most :data:`PREFIX_BYTES`, and the text
    may become :data:`GROWTH` times as long.  That an event has all attributes that the standard
    requires is not looked at.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import time
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..errors import InvalidArgument, ResourceLimit
from ..schema import StreamSchema
from .flatscan import LONG, rewrite
from .limits import DEPTH_MAX

__all__ = ["CONTEXT", "IGNORED", "Flattened", "Rewriting", "Unwrapped"]

PREFIX_BYTES = 1 << 16
GROWTH = 8
CONTEXT = ("id", "source", "type", "subject", "datacontenttype", "dataschema")
"""Attributes that become columns of a stream that is made of CloudEvents, beside the time."""

IGNORED = "\x1fce:"
"""Begins the names of attributes that a stream has no column for: parsed, and passed over."""

_IGNORED = np.frombuffer(json.dumps(IGNORED)[1:-1].encode(), np.uint8)
_SEPARATOR = re.compile(r"[A-Za-z0-9_.:/-]{1,8}")
_FRACTION = {"s": 0, "ms": 3, "us": 6, "ns": 9}


class Rewriting(Protocol):
    """What rewrites the text of some complete records."""

    def __call__(self, data: bytes, lines: bool) -> bytes:
        """The new text; with ``lines`` each record has a line, and no other."""
        ...


class Flattened:
    """Rewrites nested objects as members whose names are joined.

    Parameters
    ----------
    separator : str
        Between the names.

    Raises
    ------
    InvalidArgument
    """

    def __init__(self, separator: str) -> None:
        if not _SEPARATOR.fullmatch(separator):
            raise InvalidArgument(
                "flatten takes what is to stand between names, 1 to 8 letters, digits, '_', '.', "
                f"':', '/' or '-', such as flatten=_; found {separator!r}"
            )
        self._separator = _bytes(separator)

    def __call__(self, data: bytes, lines: bool) -> bytes:
        """The records, flat."""
        names, ends = _table([])
        return _rewritten(
            data, lines, self._separator, names, ends, names, ends, False, False, names, names
        )


class Unwrapped:
    """Rewrites CloudEvents as records of a stream.

    Parameters
    ----------
    target : StreamSchema, optional
        The stream; without one, attributes are kept as they are called.
    time : str
        Name of the time.
    separator : str, optional
        Joins the names of what is nested in ``data``.
    """

    def __init__(self, target: StreamSchema | None, time: str, separator: str | None) -> None:
        columns = {name.lower(): name for name in (CONTEXT if target is None else target.names)}
        self._whole = target is not None and "data" in columns
        self._strict = target is not None
        unit = "us" if target is None else target.time_unit
        self._now = _bytes("" if unit is None else f'"{_now(unit)}"')
        named = {"time": time or "time"}  # comes first: the kernel looks there
        named |= {name: to for name, to in columns.items() if name != "time"}
        named.setdefault("data_base64", columns.get("data", "data_base64"))
        named.setdefault("data", "data")
        if target is None:
            named["specversion"] = ""
        self._names, self._ends = _table(list(named))
        self._to, self._to_ends = _table([json.dumps(to)[1:-1] for to in named.values()])
        self._separator = _bytes("") if separator is None else Flattened(separator)._separator

    def __call__(self, data: bytes, lines: bool) -> bytes:
        """The events, as records."""
        return _rewritten(
            data,
            lines,
            self._separator,
            self._names,
            self._ends,
            self._to,
            self._to_ends,
            not self._whole,
            self._strict,
            _IGNORED,
            self._now,
        )


def _now(unit: str) -> str:
    """The present time, no finer than a unit."""
    digits = _FRACTION[unit]
    seconds, nanos = divmod(time.time_ns(), 10**9)
    text = dt.datetime.fromtimestamp(seconds, dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    return text + (f".{nanos:09d}"[: digits + 1] if digits else "") + "Z"


def _bytes(text: str) -> npt.NDArray[np.uint8]:
    return np.frombuffer(text.encode(), np.uint8)


def _table(names: list[str]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Names one after the other, and where each ends."""
    encoded = [name.encode() for name in names]
    return np.frombuffer(b"".join(encoded), np.uint8), np.cumsum([0, *map(len, encoded)])


def _rewritten(data: bytes, lines: bool, *said: Any) -> bytes:
    """Run the kernel, with room enough for what it writes."""
    given = np.frombuffer(data, np.uint8)
    prefix, marks = np.empty(PREFIX_BYTES, np.uint8), np.empty(DEPTH_MAX, np.int64)
    hits = np.empty(len(said[2]), np.uint8)
    room, most = 2 * len(data) + (1 << 16), GROWTH * len(data) + (1 << 16)
    while True:
        out = np.empty(room, np.uint8)
        written = rewrite(given, lines, *said, prefix, marks, hits, out)
        if written >= 0:
            return out[:written].tobytes()
        if written == LONG:
            raise ResourceLimit(f"the names of nested members are longer than {PREFIX_BYTES:,}")
        if room >= most:
            raise ResourceLimit(
                f"records become more than {GROWTH} times as long when they are flat; their names "
                "repeat too much, send them flat"
            )
        room = min(most, 2 * room)

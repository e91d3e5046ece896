"""What becomes of the members of JSON records: columns of their names, flat ones, CloudEvents.

Purpose
    A stream has columns; JSON of devices and webhooks has objects in objects.  A *form* says which
    objects are taken apart, and which column each of their members becomes.  :class:`Plain` takes
    none apart.  :class:`Flattened` takes all apart and joins their names::

        {"a": {"b": 1, "c": {"d": 2}}, "e": [3]}     a_b: 1, a_c_d: 2, e: [3]

    :class:`Unwrapped` reads CloudEvents: the members of ``data`` become columns, beside the
    attributes that the stream has columns for; ``time`` becomes its time::

        {"specversion": "1.0", "id": "7", "time": "2026-...", "data": {"x": 1}}
                                                     x: 1, id: "7", timestamp: "2026-..."

Guarantee
    An empty object has no members and leaves nothing.  A record with two members that would become
    one column is broken.  What whole columns cannot say (two members that become one column, in
    records of their own) is an ``ArrowInvalid``: the records are read one by one then.

    Of a CloudEvent: a member of ``data`` wins over an attribute of the same name, and an event
    without a time has that at which reading began.  Where the stream has a column ``data``, that is
    kept whole, and only attributes stand beside it.

Limits
    Objects inside of arrays stay.  Names together have at most :data:`NAME_BYTES`.  That an event
    has all attributes that the standard requires is not looked at.
"""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import InvalidArgument, ResourceLimit
from ..schema import StreamSchema

__all__ = [
    "CONTEXT",
    "Flattened",
    "Form",
    "Path",
    "Plain",
    "Unwrapped",
    "form_of",
    "members",
    "opened",
]

NAME_BYTES = 1 << 16
CONTEXT = ("id", "source", "type", "subject", "datacontenttype", "dataschema")
"""Attributes that become columns of a stream that is made of CloudEvents, beside the time."""

_SEPARATOR = re.compile(r"[A-Za-z0-9_.:/-]{1,8}")
_FRACTION = {"s": 0, "ms": 3, "us": 6, "ns": 9}

Path = tuple[str, ...]
"""The names that lead to a member of a record."""


class Form(Protocol):
    """What becomes of the members of records."""

    parent: str | None
    """The one member whose own members become columns of their own names."""

    def opens(self, path: Path) -> bool:
        """Whether an object is taken apart."""
        ...

    def column(self, path: Path) -> str | None:
        """Name of the column that a member becomes; None for none."""
        ...

    def columns(
        self, found: Sequence[tuple[Path, pa.Array]], rows: int, nulls: bool
    ) -> dict[str, pa.Array]:
        """The columns that members become; ``nulls``: a null may have been written as such."""
        ...

    def record(self, found: Sequence[tuple[Path, Any]]) -> dict[str, Any]:
        """The same for one record; a ValueError says what is wrong with it."""
        ...


def opened(values: Mapping[str, pa.Array], form: Form, path: Path = ()) -> Iterator[Any]:
    """The members of records as columns, with their paths, objects that are opened taken apart."""
    for name, column in values.items():
        here = (*path, name)
        if pa.types.is_struct(column.type) and form.opens(here):
            names = [column.type.field(at).name for at in range(column.type.num_fields)]
            yield from opened(dict(zip(names, column.flatten(), strict=True)), form, here)
        else:
            yield here, column


def members(record: Mapping[str, Any], form: Form, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The same of one record."""
    for name, value in record.items():
        here = (*path, name)
        if isinstance(value, dict) and form.opens(here):
            yield from members(value, form, here)
        else:
            yield here, value


class Plain:
    """Members become columns as they are."""

    parent: str | None = None

    def opens(self, path: Path) -> bool:
        """Never."""
        del path
        return False

    def column(self, path: Path) -> str | None:
        """The name of the member."""
        return path[0]

    def columns(
        self, found: Sequence[tuple[Path, pa.Array]], rows: int, nulls: bool
    ) -> dict[str, pa.Array]:
        """Columns by their names."""
        del rows, nulls
        return _by_name((self.column(path), column) for path, column in found)

    def record(self, found: Sequence[tuple[Path, Any]]) -> dict[str, Any]:
        """Values by their names."""
        return _once((self.column(path), value) for path, value in found)


class Flattened(Plain):
    """Nested objects become columns whose names are joined.

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
        self._separator = separator

    def opens(self, path: Path) -> bool:
        """Always."""
        del path
        return True

    def column(self, path: Path) -> str | None:
        """The names, joined."""
        if len(path) > 1 and sum(map(len, path)) > NAME_BYTES:
            raise ResourceLimit(f"the names of nested members are longer than {NAME_BYTES:,}")
        return self._separator.join(path)


class Unwrapped:
    """CloudEvents become records of a stream.

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
        self.parent = None if target is not None and "data" in columns else "data"
        self._strict = target is not None
        unit = "us" if target is None else target.time_unit
        self._now = None if unit is None else _now(unit)
        self._time = time or "time"
        named: dict[str, str | None] = {"time": self._time}
        named |= {name: to for name, to in columns.items() if name != "time"}
        named.setdefault("data_base64", columns.get("data", "data_base64"))
        named.setdefault("data", "data")
        if target is None:
            named["specversion"] = None
        self._named = named
        self._inner = Plain() if separator is None else Flattened(separator)

    def opens(self, path: Path) -> bool:
        """``data``, and what is in it where names are joined."""
        if self.parent is None or path[0] != self.parent:
            return False
        return len(path) == 1 or self._inner.opens(path[1:])

    def column(self, path: Path) -> str | None:
        """The name of a member of ``data``, or the column of an attribute."""
        if len(path) > 1:
            return self._inner.column(path[1:])
        return self._named.get(path[0], None if self._strict else path[0])

    def columns(
        self, found: Sequence[tuple[Path, pa.Array]], rows: int, nulls: bool
    ) -> dict[str, pa.Array]:
        """Members of ``data`` first, then attributes, and the present where no time is."""
        out = _by_name((self.column(path), column) for path, column in found if len(path) > 1)
        attributes = [(path, column) for path, column in found if len(path) == 1]
        for name, column in _by_name((self.column(p), column) for p, column in attributes).items():
            inner = out.get(name)
            if inner is not None:
                if nulls or inner.type != column.type or name not in self._named.values():
                    raise pa.ArrowInvalid(f"two members become the column {name!r}")
                column = pc.if_else(inner.is_valid(), inner, column)
            out[name] = column
        if self._now is not None:
            times = out.get(self._time, pa.nulls(rows, pa.string()))
            if times.null_count:
                if nulls or times.type != pa.string():
                    raise pa.ArrowInvalid("some event has no time")
                times = pc.fill_null(times, self._now)
            out[self._time] = times
        return out

    def record(self, found: Sequence[tuple[Path, Any]]) -> dict[str, Any]:
        """The same for one record."""
        out = _once((self.column(path), value) for path, value in found if len(path) > 1)
        listed = set(self._named.values())
        given = _once((self.column(path), value) for path, value in found if len(path) == 1)
        for name, value in given.items():
            if name in out and name not in listed:
                raise ValueError(f"the field {name!r} occurs twice")
            out.setdefault(name, value)
        if self._now is not None:
            out.setdefault(self._time, self._now)
        return out


def form_of(
    format: str, flatten: str | None, target: StreamSchema | None, time: str, source: str
) -> Form:
    """What becomes of the members of records in a format."""
    if format == "cloudevents":
        return Unwrapped(target, time, flatten)
    if flatten is not None and format not in ("json", "ndjson"):
        raise InvalidArgument(f"flatten is for json and ndjson; {source} is {format}")
    return Plain() if flatten is None else Flattened(flatten)


def _now(unit: str) -> str:
    """The present time, no finer than a unit."""
    digits = _FRACTION[unit]
    seconds, nanos = divmod(time.time_ns(), 10**9)
    text = dt.datetime.fromtimestamp(seconds, dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    return text + (f".{nanos:09d}"[: digits + 1] if digits else "") + "Z"


def _by_name(found: Iterator[tuple[str | None, pa.Array]]) -> dict[str, pa.Array]:
    out: dict[str, pa.Array] = {}
    for name, column in found:
        if name in out:
            raise pa.ArrowInvalid(f"two members become the column {name!r}")
        if name is not None:
            out[name] = column
    return out


def _once(found: Iterator[tuple[str | None, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in found:
        if name in out:
            raise ValueError(f"the field {name!r} occurs twice")
        if name is not None:
            out[name] = value
    return out

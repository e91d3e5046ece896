"""Mapping of JSON members to columns: unchanged, flattened, or as CloudEvents.

``Plain`` opens no objects; ``Flattened`` opens all and joins the names; ``Unwrapped`` makes columns
of the members of a CloudEvent's ``data``, and of attributes that the stream has columns for::

    {"a": {"b": 1, "c": {"d": 2}}, "e": [3]}     a_b: 1, a_c_d: 2, e: [3]

    {"specversion": "1.0", "id": "7", "time": "2026-...", "data": {"x": 1}}
                                                 x: 1, id: "7", timestamp: "2026-..."

A record with two members for one column is broken; conflicts that columns cannot express raise
ArrowInvalid, and the records are read one by one.  Members of ``data`` override attributes; a
missing time is the time at which reading began.  A stream's column ``data`` gets it whole.
Required attributes are not checked; objects inside arrays stay.
"""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import InvalidArgument, ResourceLimit
from ..schema import StreamSchema

NAME_BYTES = 1 << 16
CONTEXT = ("id", "source", "type", "subject", "datacontenttype", "dataschema")
"""Attributes that become columns of a stream created from CloudEvents, besides the time."""

_SEPARATOR = re.compile(r"[A-Za-z0-9_.:/-]{1,8}")
_FRACTION = {"s": 0, "ms": 3, "us": 6, "ns": 9}

Path = tuple[str, ...]


def opened(values: Mapping[str, pa.Array], form: Form, path: Path = ()) -> Iterator[Any]:
    """Members of records as columns with paths, objects opened as the form says."""
    for name, column in values.items():
        here = (*path, name)
        if pa.types.is_struct(column.type) and form.opens(here):
            names = [column.type.field(at).name for at in range(column.type.num_fields)]
            yield from opened(dict(zip(names, column.flatten(), strict=True)), form, here)
        else:
            yield here, column


def members(record: Mapping[str, Any], form: Form, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    for name, value in record.items():
        here = (*path, name)
        if isinstance(value, dict) and form.opens(here):
            yield from members(value, form, here)
        else:
            yield here, value


class Plain:
    parent: str | None = None
    """The one member whose own members become columns by their own names."""

    def opens(self, path: Path) -> bool:
        del path
        return False

    def column(self, path: Path) -> str | None:
        return path[0]

    def columns(
        self, found: Sequence[tuple[Path, pa.Array]], rows: int, nulls: bool
    ) -> dict[str, pa.Array]:
        """The columns for members; ``nulls``: the text may have explicit nulls."""
        del rows, nulls
        return _by_name((self.column(path), column) for path, column in found)

    def record(self, found: Sequence[tuple[Path, Any]]) -> dict[str, Any]:
        """Columns for one record; a ValueError says what is wrong with it."""
        return _once((self.column(path), value) for path, value in found)


class Flattened(Plain):
    """Opens all objects and joins the names with ``separator``."""

    def __init__(self, separator: str) -> None:
        if not _SEPARATOR.fullmatch(separator):
            raise InvalidArgument(
                "flatten takes what is to stand between names, 1 to 8 letters, digits, '_', '.', "
                f"':', '/' or '-', such as flatten=_; found {separator!r}"
            )
        self._separator = separator

    def opens(self, path: Path) -> bool:
        del path
        return True

    def column(self, path: Path) -> str | None:
        if len(path) > 1 and sum(map(len, path)) > NAME_BYTES:
            raise ResourceLimit(f"the names of nested members are longer than {NAME_BYTES:,}")
        return self._separator.join(path)


class Unwrapped:
    """CloudEvents as records of a stream; without a ``target`` attributes keep their names."""

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
        if self.parent is None or path[0] != self.parent:
            return False
        return len(path) == 1 or self._inner.opens(path[1:])

    def column(self, path: Path) -> str | None:
        if len(path) > 1:
            return self._inner.column(path[1:])
        return self._named.get(path[0], None if self._strict else path[0])

    def columns(
        self, found: Sequence[tuple[Path, pa.Array]], rows: int, nulls: bool
    ) -> dict[str, pa.Array]:
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


Form = Plain | Unwrapped


def form_of(
    format: str, flatten: str | None, target: StreamSchema | None, time: str, source: str
) -> Form:
    if format == "cloudevents":
        return Unwrapped(target, time, flatten)
    if flatten is not None and format not in ("json", "ndjson"):
        raise InvalidArgument(f"flatten is for json and ndjson; {source} is {format}")
    return Plain() if flatten is None else Flattened(flatten)


def _now(unit: str) -> str:
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

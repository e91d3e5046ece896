"""Arguments of the window functions::

    TUMBLE(stream, time, size [, origin] [, time_zone => name] [, fill => what])
    HOP(stream, time, slide, size [, origin])
    TUMBLE_ROWS(stream, size)                        HOP_ROWS(stream, slide, size)
    SESSION(stream, time, gap [, key, ...])

Measures are intervals, or integers for integer times; finer than the time unit is an error.
TUMBLE with months, years, or a time zone and whole days follows the calendar, without origin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from ...errors import ChronicleError, SqlError
from ...schema import StreamSchema
from ..conditions.constants import Folder, Kind
from ..sql.dialect import error_at, position_of
from ..sql.time_texts import settled
from ..windows.filling import Fill
from ..windows.spec import AnyWindows, CalendarWindows, CountWindows, SessionWindows, TimeWindows
from .from_operator import OperatorSite

__all__ = ["NAMES", "WindowCall"]

_FORMS = {
    "tumble": "TUMBLE(stream, time, size [, origin] [, time_zone => name] [, fill => what])",
    "hop": "HOP(stream, time, slide, size [, origin])",
    "tumble_rows": "TUMBLE_ROWS(stream, size)",
    "hop_rows": "HOP_ROWS(stream, slide, size)",
    "session": "SESSION(stream, time, gap [, key, ...])",
}
_ARGUMENTS: dict[str, tuple[int, int | None]] = {
    "tumble": (3, 4),
    "hop": (4, 5),
    "tumble_rows": (2, 2),
    "hop_rows": (3, 3),
    "session": (3, None),
}

NAMES = tuple(_FORMS)

_NS_PER_SECOND = 1_000_000_000


@dataclass(frozen=True)
class WindowCall:
    """A window function; ``measures`` are its unevaluated arguments behind stream and time."""

    name: str
    stream: str
    schema: StreamSchema
    measures: tuple[Any, ...]
    text: str
    keys: tuple[str, ...] = ()
    zone: Any = None
    fill: Any = None

    @classmethod
    def read(cls, site: OperatorSite) -> WindowCall:
        call = site.item.this
        name = call.name.lower()
        named = [node for node in call.expressions if isinstance(node, (exp.Kwarg, exp.PropertyEQ))]
        arguments = [node for node in call.expressions if node not in named]
        low, high = _ARGUMENTS[name]

        def wrong(what: str, node: Any = None) -> SqlError:
            return error_at(site.text, position_of(node or site.item), f"{what}: {_FORMS[name]}")

        if len(arguments) < low or (high is not None and len(arguments) > high):
            number = {None: f"{low} or more", low: str(low)}.get(high, f"{low} or {high}")
            raise wrong(f"{name.upper()} takes {number} arguments, found {len(arguments)}")
        given: dict[str, Any] = {}
        for node in named:
            word = node.name.lower()
            if name != "tumble" or word not in ("time_zone", "fill") or word in given:
                raise wrong(f"{name.upper()} has no argument {node.name!r} here", node)
            given[word] = node.expression
        stream = arguments[0]
        if not isinstance(stream, exp.Column) or len(stream.parts) != 1:
            raise wrong("the first argument is the name of a stream", stream)
        found, schema = site.stream(stream)
        measures = arguments[1:]
        if not name.endswith("_rows"):
            time = measures[0]
            measures = measures[1:]
            written = time.name if isinstance(time, exp.Column) and len(time.parts) == 1 else None
            if written is None or written.lower() != schema.time.lower():
                raise wrong(
                    f"the second argument is the time attribute of {found}, {schema.time}", time
                )
        for column in ("window_start", "window_end", "window_id"):
            if column in (attribute.lower() for attribute in schema.names):
                raise wrong(
                    f"{found} has an attribute {column!r}, which windows need for themselves"
                )
        for measure in measures:
            site.settle(measure, schema.arrow)
        keys: tuple[str, ...] = ()
        if name == "session":
            measures, told = measures[:1], measures[1:]
            keys = tuple(_key(node, schema, found, wrong) for node in told)
        return cls(
            name, found, schema, tuple(measures), site.text, keys, given.get("time_zone"),
            given.get("fill"),
        )  # fmt: skip

    @property
    def counts(self) -> bool:
        return self.name.endswith("_rows")

    def windows(self, folder: Folder) -> AnyWindows:
        """Fold the measures; the origin of time windows may be None (``'first'``)."""
        try:
            return self._windows(folder)
        except SqlError:
            raise
        except ChronicleError as error:
            raise error_at(self.text, position_of(self.measures[0]), str(error)) from None

    def filled(self, folder: Folder) -> Fill | None:
        """Fill of empty windows; None if they have no rows."""
        if self.fill is None:
            return None
        found = folder.fold(self.fill)
        if found.kind is Kind.NULL:
            return Fill("null")
        if found.kind is Kind.TEXT and found.value.lower() in ("null", "previous", "linear"):
            return Fill(found.value.lower())
        if found.kind in (Kind.EXACT, Kind.FLOAT):
            return Fill("value", found.value)
        raise self._wrong(self.fill, "fill is 'null', 'previous', 'linear' or a number")

    def _windows(self, folder: Folder) -> AnyWindows:
        if self.name == "tumble_rows":
            size = self._count(self.measures[0], folder)
            return CountWindows(size, size)
        if self.name == "hop_rows":
            slide, size = (self._count(node, folder) for node in self.measures)
            return CountWindows(size, slide)
        if self.name == "session":
            return SessionWindows(self._ticks(self.measures[0], folder))
        if self.name == "tumble" and (self.zone is not None or _months(self.measures[0], folder)):
            return self._calendar(folder)
        lengths = 1 if self.name == "tumble" else 2
        slide = self._ticks(self.measures[0], folder)
        size = slide if lengths == 1 else self._ticks(self.measures[1], folder)
        origin = self.measures[lengths:]
        return TimeWindows(size, slide, self._origin(origin[0], folder) if origin else 0)

    def _calendar(self, folder: Folder) -> CalendarWindows:
        size = self.measures[0]
        per_second = self.schema.ticks_per_second
        if per_second is None:
            raise self._wrong(size, f"{self.schema.time} is an integer and has no calendar")
        if len(self.measures) > 1:
            raise self._wrong(self.measures[1], "windows that follow the calendar have no origin")
        zone = None
        if self.zone is not None:
            value = folder.fold(self.zone)
            if value.kind is not Kind.TEXT:
                raise self._wrong(self.zone, "expected the name of a time zone")
            zone = str(value.value)
        months = _months(size, folder)
        if months:
            return CalendarWindows(months, 0, zone)
        days, rest = divmod(self._ticks(size, folder), 86_400 * per_second)
        if rest or days < 1:
            raise self._wrong(size, "with a time zone the size is whole days, months or years")
        return CalendarWindows(0, days, zone)

    def _wrong(self, node: Any, what: str) -> SqlError:
        return error_at(self.text, position_of(node), f"{what} in {_FORMS[self.name]}")

    def _count(self, node: Any, folder: Folder) -> int:
        value = folder.fold(node)
        if value.kind is not Kind.EXACT or value.value != int(value.value):
            raise self._wrong(node, "expected a number of events")
        return int(value.value)

    def _ticks(self, node: Any, folder: Folder) -> int:
        value = folder.fold(node)
        per_second = self.schema.ticks_per_second
        if per_second is None:
            if value.kind is not Kind.EXACT or value.value != int(value.value):
                raise self._wrong(
                    node,
                    f"the time attribute {self.schema.time} is an integer: expected an integer",
                )
            return int(value.value)
        if value.kind is not Kind.INTERVAL:
            raise self._wrong(
                node, "expected an interval of fixed length such as INTERVAL '5' MINUTE"
            )
        ticks, rest = divmod(value.value * per_second, _NS_PER_SECOND)
        if rest:
            raise self._wrong(
                node,
                f"the interval is finer than the stream's unit of time, {self.schema.time_unit}",
            )
        return int(ticks)

    def _origin(self, node: Any, folder: Folder) -> int | None:
        value = folder.fold(node)
        if value.kind is Kind.TEXT and value.value.lower() == "first":
            return None
        per_second = self.schema.ticks_per_second
        if per_second is None:
            if value.kind is not Kind.EXACT or value.value != int(value.value):
                raise self._wrong(node, "expected an integer or 'first' as origin")
            return int(value.value)
        if value.kind is Kind.TEXT:
            type_ = self.schema.arrow.field(self.schema.time).type
            text = settled(value.value, type_, self.text, position_of(node))
            fine = "_NS" if type_.unit == "ns" else ""
            value = folder.cast_text(text, f"TIMESTAMP{fine if type_.tz is None else 'TZ'}")
        if value.kind is not Kind.TIME:
            raise self._wrong(node, "expected a time or 'first' as origin")
        ticks, rest = divmod(value.value * per_second, _NS_PER_SECOND)
        if rest:
            raise self._wrong(
                node, f"the origin is finer than the stream's unit of time, {self.schema.time_unit}"
            )
        return int(ticks)


_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12, "DECADE": 120, "CENTURY": 1200}


def _months(node: Any, folder: Folder) -> int:
    """Months of an interval of months or years; 0 for other expressions."""
    while isinstance(node, exp.Paren):
        node = node.this
    if not isinstance(node, exp.Interval) or node.this is None:
        return 0
    unit = _MONTHS.get(str(node.args.get("unit") or "").upper().rstrip("S"), 0)
    amount = folder.fold(node.this)
    count = amount.value
    if amount.kind is Kind.TEXT and str(count).isascii() and str(count).isdigit():
        count = int(count)
    return unit * count if unit and type(count) is int else 0


def _key(
    node: Any, schema: StreamSchema, stream: str, wrong: Callable[[str, Any], SqlError]
) -> str:
    names = {name.lower(): name for name in schema.names if name != schema.time}
    plain = isinstance(node, exp.Column) and len(node.parts) == 1
    found = names.get(node.name.lower()) if plain else None
    if found is None:
        known = ", ".join(names.values())
        raise wrong(f"a key of sessions is an attribute of {stream} ({known})", node)
    return found

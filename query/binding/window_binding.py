"""Window functions in FROM: bound to their stream, taking over grouping or conditions.

Conditions apply before windows are formed, so count windows, sessions and the origin ``'first'``
see only events that satisfy them.

Arguments of the window functions::

    TUMBLE(stream, time, size [, origin] [, time_zone => name] [, fill => what])
    HOP(stream, time, slide, size [, origin])
    TUMBLE_ROWS(stream, size)                        HOP_ROWS(stream, slide, size)
    SESSION(stream, time, gap [, key, ...])

Measures are intervals, or integers for integer times; finer than the time unit is an error.  TUMBLE
with months, years, or a time zone and whole days follows the calendar, without origin.
``WindowSelect`` distinguishes, in the SELECT around a window function, columns of the stream from
those of the window.

A group key with parameters or window columns needs expanded events.  In GROUP BY and HAVING an
attribute precedes an alias, in ORDER BY an alias an attribute.

A grouping SELECT is fused with its window operator, which delivers keys and aggregates::

    SELECT window_start, k, avg(x) / 2 FROM HOP(s, t, ...) WHERE t >= $1
    GROUP BY window_start, k HAVING count(*) > 3 ORDER BY avg(x)
                                        becomes
    SELECT window_start, "$k0" AS k, "$a0" / 2 FROM <operator> WHERE "$a1" > 3 ORDER BY "$a0"

The tree is changed only if everything can be fused; other SELECTs use expanded events
(``windows.expand``).  Conditions on attributes apply to events before windowing, those on window
columns to windows.  Queries are compared by canonical texts of keys, aggregates and conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ...errors import ChronicleError, SqlError
from ...schema import StreamSchema
from ..conditions.constants import Constant, Folder, Kind
from ..pattern.compiled import unfit_key
from ..relational.interface import evaluate
from ..sql.dialect import canonical, error_on, position_of, to_text
from ..sql.forms import AGGREGATES
from ..sql.gate import is_volatile
from ..sql.nesting import all_true
from ..sql.rendering import identifier
from ..sql.sql_types import settled
from ..windows.aggregation import result_schema, window_fields
from ..windows.fields import (
    Aggregate,
    FieldPlan,
    aggregate_column,
    key_column,
    keyable,
    supports,
)
from ..windows.filling import Fill
from ..windows.spec import (
    AnyWindows,
    CalendarWindows,
    CountWindows,
    SessionWindows,
    TimeWindows,
    Windows,
)
from .binder import conjuncts
from .scope import OperatorSite
from .tree_aggregates import TREE_FUNCTIONS, natural_name

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
    made: list[AnyWindows] = field(default_factory=list, init=False, repr=False, compare=False)
    """The windows, where these are the same in every execution."""

    @classmethod
    def read(cls, site: OperatorSite) -> WindowCall:
        call = site.item.this
        name = call.name.lower()
        named = [node for node in call.expressions if isinstance(node, (exp.Kwarg, exp.PropertyEQ))]
        arguments = [node for node in call.expressions if node not in named]
        low, high = _ARGUMENTS[name]

        def wrong(what: str, node: Any = None) -> SqlError:
            return error_on(site.text, node or site.item, f"{what}: {_FORMS[name]}")

        if len(arguments) < low or (high is not None and len(arguments) > high):
            number = {None: f"{low} or more", low: str(low)}.get(high, f"{low} or {high}")
            raise wrong(f"{name.upper()} takes {number} arguments, found {len(arguments)}")
        options: dict[str, Any] = {}
        for node in named:
            word = node.name.lower()
            if name != "tumble" or word not in ("time_zone", "fill") or word in options:
                raise wrong(f"{name.upper()} has no argument {node.name!r} here", node)
            options[word] = node.expression
        stream = arguments[0]
        if not isinstance(stream, exp.Column) or len(stream.parts) != 1:
            raise wrong("the first argument is the name of a stream", stream)
        owner, schema = site.stream(stream)
        measures = arguments[1:]
        if not name.endswith("_rows"):
            time = measures[0]
            measures = measures[1:]
            written = time.name if isinstance(time, exp.Column) and len(time.parts) == 1 else None
            if written is None or written.lower() != schema.time.lower():
                raise wrong(
                    f"the second argument is the time attribute of {owner}, {schema.time}",
                    time,
                )
        for column in ("window_start", "window_end", "window_id"):
            if column in (attribute.lower() for attribute in schema.names):
                raise wrong(
                    f"{owner} has an attribute {column!r}, which windows need for themselves"
                )
        for measure in measures:
            site.settle(measure, schema.arrow)
        keys: tuple[str, ...] = ()
        if name == "session":
            measures, key_nodes = measures[:1], measures[1:]
            keys = tuple(_key(node, schema, owner, wrong) for node in key_nodes)
        return cls(
            name, owner, schema, tuple(measures), site.text, keys, options.get("time_zone"),
            options.get("fill"),
        )  # fmt: skip

    @property
    def counts(self) -> bool:
        return self.name.endswith("_rows")

    def windows(self, folder: Folder) -> AnyWindows:
        """Fold the measures; the origin of time windows may be None (``'first'``)."""
        if self.made and folder.fixed:
            return self.made[0]
        try:
            windows = self._windows(folder)
            if folder.fixed:
                self.made[:] = [windows]
            return windows
        except SqlError:
            raise
        except ChronicleError as error:
            raise error_on(self.text, self.measures[0], str(error)) from None

    def filled(self, folder: Folder) -> Fill | None:
        """Fill of empty windows; None if they have no rows."""
        if self.fill is None:
            return None
        constant = folder.fold(self.fill)
        if constant.kind is Kind.NULL:
            return Fill("null")
        if constant.kind is Kind.TEXT and constant.value.lower() in ("null", "previous", "linear"):
            return Fill(constant.value.lower())
        if constant.kind in (Kind.EXACT, Kind.FLOAT):
            return Fill("value", constant.value)
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
        return error_on(self.text, node, f"{what} in {_FORMS[self.name]}")

    def _whole(self, value: Constant, node: Any, what: str) -> int:
        if value.kind is not Kind.EXACT or value.value != int(value.value):
            raise self._wrong(node, f"expected {what}")
        return int(value.value)

    def _in_ticks(self, value: Constant, node: Any, what: str) -> int:
        """A constant in nanoseconds as ticks."""
        ticks, rest = divmod(value.value * self.schema.ticks_per_second, _NS_PER_SECOND)
        if rest:
            unit = self.schema.time_unit
            raise self._wrong(node, f"{what} is finer than the stream's unit of time, {unit}")
        return int(ticks)

    def _count(self, node: Any, folder: Folder) -> int:
        return self._whole(folder.fold(node), node, "a number of events")

    def _ticks(self, node: Any, folder: Folder) -> int:
        value = folder.fold(node)
        if self.schema.ticks_per_second is None:
            what = f"an integer, like the time attribute {self.schema.time},"
            return self._whole(value, node, what)
        if value.kind is not Kind.INTERVAL:
            what = "expected an interval of fixed length in whole units such as INTERVAL '5' MINUTE"
            raise self._wrong(node, what)
        return self._in_ticks(value, node, "the interval")

    def _origin(self, node: Any, folder: Folder) -> int | None:
        value = folder.fold(node)
        if value.kind is Kind.TEXT and value.value.lower() == "first":
            return None
        if self.schema.ticks_per_second is None:
            return self._whole(value, node, "an integer or 'first' as origin")
        if value.kind is Kind.TEXT:
            type_ = self.schema.arrow.field(self.schema.time).type
            text = settled(value.value, type_, self.text, position_of(node))
            fine = "_NS" if type_.unit == "ns" else ""
            value = folder.cast_text(text, f"TIMESTAMP{fine if type_.tz is None else 'TZ'}")
        if value.kind is not Kind.TIME:
            raise self._wrong(node, "expected a time or 'first' as origin")
        return self._in_ticks(value, node, "the origin")


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
    attribute = names.get(node.name.lower()) if plain else None
    if attribute is None:
        attributes = ", ".join(names.values())
        raise wrong(f"a key of sessions is an attribute of {stream} ({attributes})", node)
    return attribute


WINDOW_COLUMNS = ("window_start", "window_end", "window_id")


@dataclass
class WindowSelect:
    call: WindowCall
    select: Any
    alias: str
    _attributes: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self._attributes = {name.lower(): name for name in self.call.schema.names}

    def attribute(self, column: Any) -> str | None:
        """The stream's attribute that a column refers to; None for others."""
        name = self._own(column)
        return None if name is None else self._attributes.get(name)

    def is_window(self, column: Any) -> bool:
        name = self._own(column)
        return name in WINDOW_COLUMNS and (name != "window_id" or self.call.counts)

    def _own(self, column: Any) -> str | None:
        parts = column.parts
        if isinstance(column.this, exp.Star) or len(parts) > 2:
            return None
        if len(parts) == 2 and parts[0].name.lower() != self.alias:
            return None
        return str(parts[-1].name.lower())

    @property
    def alone(self) -> bool:
        args = self.select.args
        item = args["from_"].this if args.get("from_") is not None else None
        return (
            isinstance(self.select, exp.Select)
            and not any(args.get(key) for key in ("joins", "laterals", "sample"))
            and item is not None
            and not item.args.get("joins")
            and item.args.get("sample") is None
            and not (item.args.get("alias") and item.args["alias"].args.get("columns"))
        )

    def split_where(self) -> tuple[list[Any], list[Any]] | None:
        """Conditions on events and on windows; None if one is on both or neither."""
        where = self.select.args.get("where")
        events: list[Any] = []
        windows: list[Any] = []
        for part in conjuncts(where.this) if where is not None else ():
            if part.find(exp.Query) is not None:
                return None
            columns = list(part.find_all(exp.Column))
            if columns and all(self.attribute(column) for column in columns):
                events.append(part)
            elif all(self.is_window(column) for column in columns):
                windows.append(part)
            else:
                return None
        return events, windows


def unqualified(node: Any) -> Any:
    copy = node.copy()
    for column in [copy] if isinstance(copy, exp.Column) else list(copy.find_all(exp.Column)):
        for part in ("table", "db", "catalog"):
            column.set(part, None)
    return copy


def has_aggregate(node: Any) -> bool:
    return any(isinstance(n, exp.Anonymous) and n.name.lower() in AGGREGATES for n in node.walk())


def group_keys(windowed: WindowSelect) -> Keys | None:
    """Keys besides the windows; None if windows are not grouped by, or a key is unsupported."""
    group = windowed.select.args.get("group")
    if group is None or any(
        group.args.get(k) for k in ("grouping_sets", "cube", "rollup", "totals")
    ):
        return None
    nodes = _grouped(group, windowed)
    if nodes is None:
        return None
    windows = {
        node.name.lower()
        for node in nodes
        if isinstance(node, exp.Column) and windowed.is_window(node)
    }
    apart = {"window_id"} if windowed.call.counts else {"window_start", "window_end"}
    if not windows & apart:
        return None
    keys = Keys(windowed)
    for node in nodes:
        if isinstance(node, exp.Column) and windowed.is_window(node):
            continue
        if not _is_key(node, windowed):
            return None
        keys.add(node)
    return keys


def _grouped(group: Any, windowed: WindowSelect) -> list[Any] | None:
    nodes: list[Any] = []
    projections = windowed.select.expressions
    if group.args.get("all"):
        nodes = [p.unalias() for p in projections if not has_aggregate(p)]
    for node in group.expressions:
        if isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdigit():
            position = int(node.this)
            if not 1 <= position <= len(projections):
                return None
            node = projections[position - 1].unalias()
        elif isinstance(node, exp.Column) and not windowed.is_window(node) and len(node.parts) == 1:
            named = [p for p in projections if p.alias.lower() == node.name.lower()]
            if len(named) == 1 and windowed.attribute(node) is None:
                node = named[0].unalias()
        nodes.append(node)
    return nodes


def _is_key(node: Any, windowed: WindowSelect) -> bool:
    if isinstance(node, exp.Column):
        return windowed.attribute(node) is not None
    columns = list(node.find_all(exp.Column))
    forbidden = (exp.Query, exp.Star, exp.Window, exp.Placeholder, exp.Lambda)
    return (
        bool(columns)
        and all(windowed.attribute(column) for column in columns)
        and not any(isinstance(n, forbidden) or _volatile(n) for n in node.walk())
        and not has_aggregate(node)
    )


def _volatile(node: Any) -> bool:
    return isinstance(node, exp.Anonymous) and is_volatile(node.name)


def session_keys(windowed: WindowSelect) -> tuple[str, ...]:
    """Session keys of a SELECT that is not fused; SqlError if a key cannot distinguish sessions."""
    group = windowed.select.args.get("group")
    if group is None:
        return ()
    keys = group_keys(windowed) if windowed.alone else None
    if keys is not None:
        names = [
            windowed.attribute(node) if isinstance(node, exp.Column) else None
            for node in keys.nodes
        ]
        if None not in names:
            return tuple(str(name) for name in names)
    else:
        nodes = _grouped(group, windowed) or []
        sets = any(isinstance(node, exp.Cube | exp.Rollup | exp.GroupingSets) for node in nodes)
        windows = [isinstance(node, exp.Column) and windowed.is_window(node) for node in nodes]
        if not sets and (all(windows) or not any(windows)):
            return ()
    raise error_on(
        windowed.call.text,
        group,
        "sessions are told apart by attributes: name them in SESSION(stream, time, gap, key, ...) "
        "and group by window_start, window_end and them",
    )


class Keys:
    """Ordered, distinct, unqualified keys; attributes as spelled in the schema."""

    def __init__(self, windowed: WindowSelect) -> None:
        self.nodes: list[Any] = []
        self._windowed = windowed
        self._texts: list[str] = []
        self._kinds: set[type] = set()

    def __len__(self) -> int:
        return len(self.nodes)

    def add(self, node: Any) -> None:
        own = self._own(node)
        text = to_text(own)
        if text not in self._texts:
            self.nodes.append(own)
            self._texts.append(text)
            self._kinds.add(type(own))

    def find(self, node: Any) -> int | None:
        if type(node) not in self._kinds:
            return None
        text = to_text(self._own(node))
        return self._texts.index(text) if text in self._texts else None

    def _own(self, node: Any) -> Any:
        copy = unqualified(node)
        for column in [copy] if isinstance(copy, exp.Column) else list(copy.find_all(exp.Column)):
            name = self._windowed.attribute(column)
            if name is not None:
                column.set("this", exp.to_identifier(name, quoted=True))
        return copy


_FUNCTIONS = {
    **TREE_FUNCTIONS,
    "first": "first",
    "last": "last",
    "any_value": "any_value",
    "bool_and": "min",
    "bool_or": "max",
    "stddev": "stddev_samp",
    "stddev_samp": "stddev_samp",
    "stddev_pop": "stddev_pop",
    "variance": "var_samp",
    "var_samp": "var_samp",
    "var_pop": "var_pop",
}
_WITH_EVENTS = ("unnest", "columns", "grouping")
_OF_TIME = {"first": "min", "any_value": "min", "last": "max"}


@dataclass
class Fused:
    """Aggregates and keys, of attributes or ``derived`` columns, and conditions on events."""

    aggregates: list[Aggregate]
    keys: list[str]
    derived: dict[str, Any]
    schema: StreamSchema
    conditions: list[Any]


def move_conditions(windowed: WindowSelect) -> list[Any]:
    """Remove conditions on events from the SELECT, and return them unqualified."""
    split = windowed.split_where() if windowed.alone else None
    if split is None or not split[0]:
        return []
    events, windows = split
    _set_where(windowed.select, windows)
    return [unqualified(part) for part in events]


def _set_where(select: Any, conditions: list[Any]) -> None:
    if not conditions:
        select.set("where", None)
        return
    select.set("where", exp.Where(this=all_true(conditions)))


# ------------------------------------------------------------------------------- fusing


def fuse(windowed: WindowSelect) -> Fused | None:
    """Fuse a SELECT, changing it, or return None."""
    select = windowed.select
    keys = group_keys(windowed) if windowed.alone else None
    if keys is None or not _are_session_keys(keys, windowed):
        return None
    if any(select.args.get(key) for key in ("distinct", "windows")):
        return None
    split = windowed.split_where()
    if split is None:
        return None
    aliases = {projection.alias.lower() for projection in select.expressions if projection.alias}
    collected = _Collected(windowed, aliases, keys)
    for key in ("expressions", "having", "qualify", "order"):
        part = select.args.get(key)
        for node in part if isinstance(part, list) else [part]:
            if node is not None and not collected.collect(node):
                return None
    calls = collected.calls
    derived: dict[str, Any] = {}
    columns = [_key_name(node, derived) for node in keys.nodes]
    planned: list[tuple[str, str | None]] = []
    for call in calls:
        aggregate = _planned(call, windowed, derived)
        if aggregate is None:
            return None
        planned.append(aggregate)
    described = _described(windowed, derived, keys)
    if described is None:
        return None
    schema, names = described
    if not all(keyable(schema.attribute(name)) for name in columns):
        return None
    aggregates: list[Aggregate] = []
    places: list[int] = []
    for function, name in planned:
        one = Aggregate(_OF_TIME.get(function, function) if name == schema.time else function, name)
        if not supports(schema, one):
            return None
        if one not in aggregates:
            aggregates.append(one)
        places.append(aggregates.index(one))
    _rewrite(windowed, collected, [(i, aggregates[i]) for i in places], schema, names, split[1])
    return Fused(aggregates, columns, derived, schema, [unqualified(part) for part in split[0]])


def _are_session_keys(keys: Keys, windowed: WindowSelect) -> bool:
    named = windowed.call.keys
    if not named:
        return True  # sessions take the keys of GROUP BY, or there are none
    return sorted(named) == sorted(
        str(node.name) if isinstance(node, exp.Column) else "" for node in keys.nodes
    )


class _Collected:
    def __init__(self, windowed: WindowSelect, aliases: set[str], keys: Keys) -> None:
        self.calls: list[Any] = []
        self.keys: list[tuple[Any, int]] = []
        self._windowed = windowed
        self._aliases = aliases
        self._known = keys

    def collect(self, node: Any) -> bool:
        """Collect below a node; False if something needs the events themselves."""
        windowed = self._windowed
        if isinstance(node, (exp.Query, exp.WithinGroup, exp.Star, exp.Lambda)):
            return False
        if isinstance(node, (exp.IgnoreNulls, exp.RespectNulls)):
            return False
        if isinstance(node, exp.Ordered) and self._is_alias(node.this):
            return True  # in ORDER BY an alias precedes an attribute
        key = self._known.find(node)
        if key is not None:
            self.keys.append((node, key))
            return True
        if isinstance(node, exp.Column):
            if windowed.is_window(node):
                return True
            return self._is_alias(node)
        if isinstance(node, exp.Window):
            return self._over(node)
        call = node.this if isinstance(node, exp.Filter) else node
        if isinstance(call, exp.Anonymous) and call.name.lower() in AGGREGATES:
            if call.name.lower() not in _FUNCTIONS:
                return False
            self.calls.append(node)
            return True
        if isinstance(node, exp.Filter):
            return False
        if isinstance(node, exp.Anonymous) and node.name.lower() in _WITH_EVENTS:
            return False
        return all(self.collect(child) for child in node.iter_expressions())

    def _is_alias(self, node: Any) -> bool:
        plain = isinstance(node, exp.Column) and len(node.parts) == 1
        return plain and node.name.lower() in self._aliases

    def _over(self, node: Any) -> bool:
        inner = node.this
        while isinstance(inner, (exp.IgnoreNulls, exp.RespectNulls, exp.Filter)):
            inner = inner.this
        parts = [*inner.expressions] if isinstance(inner, exp.Anonymous) else [inner]
        parts = [part for part in parts if not isinstance(part, exp.Star)]
        parts += [child for child in node.iter_expressions() if child is not node.this]
        if isinstance(node.this, exp.Filter):
            parts.append(node.this.expression)
        return all(self.collect(part) for part in parts)


def _key_name(node: Any, derived: dict[str, Any]) -> str:
    return str(node.name) if isinstance(node, exp.Column) else _derived_name(node, derived)


def _derived_name(node: Any, derived: dict[str, Any]) -> str:
    text = to_text(node)
    for name, expression in derived.items():
        if to_text(expression) == text:
            return name
    name = f"chronicle_e{len(derived)}"
    derived[name] = node
    return name


def _planned(
    node: Any, windowed: WindowSelect, derived: dict[str, Any]
) -> tuple[str, str | None] | None:
    condition = None
    if isinstance(node, exp.Filter):
        condition = node.expression.this
        node = node.this
    function = _FUNCTIONS[node.name.lower()]
    if condition is not None and function in ("first", "last"):
        return None  # these do not skip the nulls that FILTER leaves
    arguments = node.expressions
    star = function == "count" and (
        not arguments or (len(arguments) == 1 and isinstance(arguments[0], exp.Star))
    )
    if star and (not arguments or not any(arguments[0].args.values())):
        if condition is None:
            return "count", None
        value: Any = exp.Literal.number(1)
    elif len(arguments) != 1 or star or node.name.lower() == "count_star":
        return None
    else:
        value = arguments[0]
        if isinstance(value, exp.Column) and condition is None:
            name = windowed.attribute(value)
            if name is None:
                return None
            boolean = pa.types.is_boolean(windowed.call.schema.attribute(name).type)
            if node.name.lower().startswith("bool_") and not boolean:
                return None
            return function, name
    if node.name.lower().startswith("bool_"):
        return None
    parts = [value] if condition is None else [value, condition]
    for part in parts:
        if any(isinstance(n, (exp.Query, exp.Distinct, exp.Star, exp.Window)) for n in part.walk()):
            return None
        if has_aggregate(part):
            return None
        if not all(windowed.attribute(column) for column in part.find_all(exp.Column)):
            return None
    if value.find(exp.Placeholder) is not None:
        return None  # the type is unknown before there is a value
    value = unqualified(value)
    if condition is not None:
        value = exp.Case(ifs=[exp.If(this=unqualified(condition), true=value)])
    return function, _derived_name(value, derived)


def _rewrite(
    windowed: WindowSelect,
    found: _Collected,
    columns: list[tuple[int, Aggregate]],
    schema: StreamSchema,
    names: list[str],
    windows: list[Any],
) -> None:
    select = windowed.select
    named = [
        bool(projection.alias)
        or (isinstance(projection, exp.Column) and windowed.is_window(projection))
        for projection in select.expressions
    ]
    for node, key in found.keys:
        node.replace(exp.column(exp.to_identifier(key_column(key), quoted=True)))
    for node, (position, aggregate) in zip(found.calls, columns, strict=True):
        column: Any = exp.column(exp.to_identifier(aggregate_column(position), quoted=True))
        if aggregate.function == "sum":
            attribute = schema.attribute(aggregate.attribute or "")
            if not pa.types.is_floating(attribute.type):
                column = exp.cast(column, "HUGEINT", dialect="duckdb")
        node.replace(column)
    projections = [
        projection
        if keeps
        else exp.Alias(this=projection, alias=exp.to_identifier(name, quoted=True))
        for projection, keeps, name in zip(select.expressions, named, names, strict=True)
    ]
    select.set("expressions", projections)
    having = select.args.get("having")
    select.set("having", None)
    select.set("group", None)
    _set_where(select, [*windows, *([having.this] if having is not None else [])])


def _described(
    windowed: WindowSelect, derived: dict[str, Any], grouped: Keys
) -> tuple[StreamSchema, list[str]] | None:
    """The executor's types of derived columns and names of unaliased projections."""
    arrow = windowed.call.schema.arrow
    unnamed = [
        (i, projection)
        for i, projection in enumerate(windowed.select.expressions)
        if not projection.alias and not isinstance(projection, exp.Column)
    ]
    names = [
        (isinstance(projection, exp.Column) and windowed.attribute(projection))
        or projection.alias_or_name
        for projection in windowed.select.expressions
    ]
    for i, projection in list(unnamed):
        natural = natural_name(projection)
        if natural is not None:
            names[i] = natural
            unnamed.remove((i, projection))
    if not derived and not unnamed:
        return windowed.call.schema, names
    columns = [pa.field(name, windowed.call.schema.time_type) for name in WINDOW_COLUMNS[:2]]
    table = pa.schema([*arrow, *columns, pa.field("window_id", pa.int64())]).empty_table()
    try:
        if derived:
            listed = ", ".join(
                f"{to_text(_nulled(node))} AS {identifier(name)}" for name, node in derived.items()
            )
            table_described = evaluate(f"SELECT {listed} FROM events", events=table)
            arrow = pa.schema([*arrow, *table_described.schema])
        if unnamed:
            listed = ", ".join(to_text(_nulled(unqualified(node))) for _, node in unnamed)
            keys = ", ".join([*WINDOW_COLUMNS, *(to_text(node) for node in grouped.nodes)])
            table_described = evaluate(f"SELECT {listed} FROM events GROUP BY {keys}", events=table)
            if len(table_described.schema) != len(unnamed):  # of COLUMNS, for example
                return None
            for (i, _), name in zip(unnamed, table_described.schema.names, strict=True):
                names[i] = name
        return StreamSchema(arrow, windowed.call.schema.time), names
    except ChronicleError:  # the executor reports the error on the original text
        return None


def _nulled(node: Any) -> Any:
    return node.copy().transform(lambda n: exp.Null() if isinstance(n, exp.Placeholder) else n)


@dataclass(frozen=True)
class BoundWindows:
    """``fused`` None delivers events; ``conditions`` must hold for events."""

    call: WindowCall
    fused: Fused | None
    conditions: tuple[Any, ...]
    strategy: str
    schema: pa.Schema
    rollup: str = "auto"

    @property
    def event_schema(self) -> StreamSchema:
        return self.call.schema if self.fused is None else self.fused.schema

    @property
    def ordered_by(self) -> Sequence[str]:
        if self.fused is None:
            return (self.call.schema.time,)
        if self.call.name == "session" and self.fused.keys:
            return ()
        return ("window_id",) if self.call.counts else ("window_start", "window_end")

    @property
    def streams(self) -> Sequence[str]:
        return (self.call.stream,)


def bind_windows(site: OperatorSite) -> BoundWindows:
    """Check the call, and rewrite the SELECT if the operator can aggregate."""
    call = WindowCall.read(site)
    windowed = WindowSelect(call, site.select, (site.item.alias or call.name).lower())
    fused = fuse(windowed) if isinstance(site.select, exp.Select) else None
    if call.fill is not None and fused is None:
        what = (
            "gaps are filled where a SELECT groups by its windows and keys, and aggregates by "
            "count, sum, min, max, avg, first, last, any_value, deviations or variances"
        )
        raise error_on(site.text, call.fill, what)
    conditions = fused.conditions if fused else []
    if fused is None and isinstance(site.select, exp.Select):
        if call.name == "session" and not call.keys:
            call = replace(call, keys=session_keys(windowed))
        conditions = move_conditions(windowed)
    for key in call.keys:
        type_ = call.schema.attribute(key).type
        if pa.types.is_nested(type_):
            raise error_on(site.text, site.item, unfit_key(key, type_))
    for condition in conditions:
        site.settle(condition, call.schema.arrow)
    kind: Windows = CountWindows(1, 1) if call.counts else SessionWindows(1)
    if fused is None:
        schema = pa.schema([*call.schema.arrow, *window_fields(call.schema, kind)])
    else:
        schema = result_schema(FieldPlan(fused.schema, fused.aggregates), kind, fused.keys)
    return BoundWindows(
        call, fused, tuple(conditions), site.hint("strategy"), schema, site.hint("rollups")
    )


EVENTS = ""
"""The operand of ``count(*)``."""


def key_text(fused: Fused, name: str) -> str:
    node = fused.derived.get(name)
    return canonical(exp.column(exp.to_identifier(name)) if node is None else node)


def aggregate_text(bound: BoundWindows, aggregate: Aggregate) -> tuple[str, str]:
    fused, name = bound.fused, aggregate.attribute
    assert fused is not None
    if name is None:
        return aggregate.function, EVENTS
    if aggregate.function == "count" and not fused.schema.attribute(name).nullable:
        return aggregate.function, EVENTS
    return aggregate.function, key_text(fused, name)


def condition_text(node: Any) -> str | None:
    """A condition on events; None if it is volatile."""
    if any(isinstance(n, exp.Anonymous) and is_volatile(n.name) for n in node.walk()):
        return None
    return canonical(node)


def names_in(node: Any) -> set[str]:
    return {column.name.lower() for column in node.find_all(exp.Column)}

"""RECENT JOIN in FROM: both sides, keys, remaining condition, and the joint relation::

    side                       its times
    MATCH_RECOGNIZE            first and last event of a match: added measures
    MATCH_SITUATIONS           the earliest start, the last end (or detection)
    stream                     the time of an event, twice
    (query) AS x PERIOD (a, b) its columns a and b
    a recency join             start of its archive row, end of its live row

    column of the relation     "alias.column"; times are "alias.@start", "alias.@end"

Both times are of one kind and compared in the finer unit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ...core.times import TICKS_PER_SECOND
from ...errors import SqlError
from ..conditions.constants import Folder, Kind
from ..pattern.compiled import interval_ticks, is_key
from ..pattern.scalar import column_types
from ..sql.dialect import error_at, error_on, position_of
from ..sql.dialect import to_text as text_of
from ..sql.forms import AGGREGATES
from ..sql.match_clause import clause_order, fold
from ..sql.statement_clauses import MatchRelation, RecentRelation, SituationRelation
from ..sql.trees import MANY_VALUES, several
from .binder import conjuncts
from .match_binding import (
    BoundMatch,
    BoundSituations,
    bare,
    bind_match,
    bind_situations,
    input_of,
    with_values,
)
from .scope import (
    NamedSide,
    Names,
    OperatorSite,
    Scope,
    own_nodes,
    resolve,
    source_of,
    take_time,
    unwrapped,
)
from .views import PUT_IN

START, END = "@start", "@end"
PAIRS = "rows"
"""Name of the relation in conditions on pairs."""

_WHOLE_ROWS = exp.Select(expressions=[exp.Star()])
"""A SELECT that no operator can simplify."""


@dataclass(frozen=True)
class BoundRows:
    schema: pa.Schema
    stream: str | None
    query: Any = None

    @property
    def streams(self) -> Sequence[str]:
        return () if self.stream is None else (self.stream,)


@dataclass(frozen=True)
class BoundSide:
    """``columns`` maps the relation's columns to the source's, as ``start`` and ``end`` are.  Rows
    that do not satisfy the ``condition`` have no partner.
    """

    source: Any
    named_sides: tuple[NamedSide, ...]
    columns: tuple[tuple[str, str], ...]
    start: str
    end: str
    condition: Any = None

    @property
    def time(self) -> pa.DataType:
        return self.source.schema.field(self.start).type

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(name, self.source.schema.field(own).type) for name, own in self.columns]


@dataclass(frozen=True)
class BoundRecent:
    """A bound recency join (inner, left, semi, anti); ``keys`` are (live, archive) columns."""

    live: BoundSide
    archive: BoundSide
    kind: str
    last: Any
    keys: tuple[tuple[str, str], ...]
    condition: Any
    within: Any
    hint: str
    text: str

    @property
    def one_sided(self) -> bool:
        return self.kind in ("semi", "anti")

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*self.live.fields, *([] if self.one_sided else self.archive.fields)])

    @property
    def named_sides(self) -> tuple[NamedSide, ...]:
        return (
            self.live.named_sides
            if self.one_sided
            else self.live.named_sides + self.archive.named_sides
        )

    @property
    def start(self) -> str:
        """Column with the start of the relation's rows."""
        return _own(self.live if self.one_sided else self.archive, START)

    @property
    def end(self) -> str:
        return _own(self.live, END)

    @property
    def streams(self) -> Sequence[str]:
        return tuple(dict.fromkeys((*self.live.source.streams, *self.archive.source.streams)))

    @property
    def ordered_by(self) -> Sequence[str]:
        return (self.start, self.end) if self.kind == "inner" else ()

    @property
    def unit(self) -> pa.DataType:
        return max(self.live.time, self.archive.time, key=_fineness)

    def distance(self, folder: Folder | None) -> int | None:
        """WITHIN in ticks of ``unit``; None without."""
        if self.within is None:
            return None
        node = self.within if folder is None else with_values(exp.Paren(this=self.within), folder)
        at = position_of(self.within) or 0
        return interval_ticks(node, pa.field("time", self.unit), "WITHIN", self.text, at)

    def greatest(self, folder: Folder | None) -> int | None:
        """LAST: archive rows per live row; None for all."""
        if self.last is None:
            return None
        value: Any = self.last.name if isinstance(self.last, exp.Literal) else None
        if isinstance(self.last, exp.Literal) and self.last.is_string:
            value = None
        if folder is not None:
            constant = folder.fold(self.last)
            value = constant.value if constant is not None and constant.kind is Kind.EXACT else None
        if value is None or not str(value).isdigit() or not 0 < int(value) < 2**31:
            raise error_on(self.text, self.last, "RECENT LAST takes an integer from 1 on")
        return int(value)

    def condition_text(self, condition: Any, folder: Folder) -> str | None:
        if condition is None:
            return None
        return text_of(with_values(exp.Paren(this=condition), folder), self.text)


def _own(side: BoundSide, which: str) -> str:
    wanted = side.start if which == START else side.end
    return next(name for name, own in side.columns if own == wanted and name.endswith(which))


def _fineness(type_: pa.DataType) -> int:
    return TICKS_PER_SECOND[type_.unit] if pa.types.is_timestamp(type_) else 0


def bind_recent(site: OperatorSite) -> BoundRecent:
    """Bind sides and condition; raises SqlError with position."""
    item, text = site.item, site.text
    live, archive = (_side(site, side) for side in (item.this, item.expression))
    _check_times(live, archive, text, item)
    _check_names([*live.named_sides, *archive.named_sides], text, item)
    bound = BoundRecent(
        live, archive, item.args["kind"], item.args.get("last"), (), None,
        item.args.get("within"), site.hint("recent"), text,
    )  # fmt: skip
    if bound.hint == "archive_first" and bound.kind in ("left", "anti"):
        message = f"a {bound.kind.upper()} join asks for all live rows: archive_first cannot be"
        raise error_at(text, max(text.find("/*+"), 0), message)
    if bound.within is not None and bound.within.find(exp.Placeholder) is None:
        bound.distance(None)
    if bound.last is not None:
        if bound.one_sided:
            message = f"LAST chooses pairs, and a {bound.kind.upper()} join gives none"
            raise error_on(text, bound.last, message)
        if not isinstance(bound.last, exp.Placeholder):
            bound.greatest(None)
    on = item.args.get("on")
    if on is None:
        return bound
    on = on.copy()
    site.settle(on, pa.schema([*live.source.schema, *archive.source.schema]))
    return _with_condition(bound, on)


# ------------------------------------------------------------------------------- sides


def _side(site: OperatorSite, item: Any) -> BoundSide:
    item = unwrapped(item, site.text)
    inner = replace(site, item=item, select=_WHOLE_ROWS.copy())
    if "period" in item.meta and not isinstance(item, exp.Subquery):
        message = "PERIOD belongs to a query in parentheses; what stands here has times of its own"
        raise error_at(site.text, item.meta["period_at"], message)
    if isinstance(item, RecentRelation):
        joined = bind_recent(inner)
        names = tuple((name, name) for name in joined.schema.names)
        return BoundSide(joined, joined.named_sides, names, joined.start, joined.end)
    if isinstance(item, SituationRelation):
        return _situations(inner)
    if isinstance(item, MatchRelation):
        return _matches(inner)
    if isinstance(item, exp.Table) and isinstance(item.this, exp.Identifier):
        if item.args.get("sample") is not None:
            raise error_on(site.text, item, "a side of a recency join has no sample")
        name, schema = site.stream(item)
        rows = BoundRows(schema.arrow, name)
        return _leaf(rows, item.alias or item.name, schema.names, schema.time, schema.time)
    if isinstance(item, exp.Subquery):
        return _rows(inner)
    raise error_on(
        site.text,
        item,
        "a side of a recency join is MATCH_RECOGNIZE, MATCH_SITUATIONS, a stream, a query with "
        "PERIOD (start, end) behind its name, or another recency join",
    )


def _leaf(source: Any, alias: str, names: Sequence[str], start: str, end: str) -> BoundSide:
    shown = [(f"{alias}.{name}", name) for name in names]
    times = ((f"{alias}.{START}", start), (f"{alias}.{END}", end))
    named = NamedSide(
        alias,
        tuple((own, name, source.schema.field(own).type) for name, own in shown),
        times[0][0],
        times[1][0],
    )
    return BoundSide(source, (named,), (*shown, *times), start, end)


def _matches(site: OperatorSite) -> BoundSide:
    item, text = site.item, site.text
    node = item.args["match"]
    rows = node.args.get("rows")
    if rows is not None and rows.name != "one":
        message = "a side of a recency join gives one row per match: say ONE ROW PER MATCH"
        raise error_at(text, node.meta.get("start"), message)
    order = clause_order(node, text, node.meta.get("start", 0))
    columns, _, _ = input_of(site, lambda _: order[0].column if order else None)
    time = columns.time
    by_time = not order or (not order[0].descending and _same(order[0].column, time))
    times = [name for name in columns.arrow.names if time is not None and _same(name, time)]
    type_ = columns.arrow.field(times[0]).type if times else pa.null()
    if not by_time or not (pa.types.is_timestamp(type_) or pa.types.is_integer(type_)):
        message = (
            "a side of a recency join needs times: ORDER BY begins with a timestamp or an integer, "
            "ascending"
        )
        raise error_at(text, node.meta.get("start"), message)
    bound: BoundMatch = bind_match(replace(site, item=timed(item, times[0])))
    names = [name for name in bound.schema.names if name not in (START, END)]
    return _leaf(bound, item.alias or "match", names, START, END)


def _same(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one.lower() == other.lower()


def _situations(site: OperatorSite) -> BoundSide:
    item = timed(site.item)
    bound: BoundSituations = bind_situations(replace(site, item=item))
    shown = [name for name in bound.schema.names if name not in (START, END)]
    return _leaf(bound, item.alias or "match", shown, START, END)


def timed(item: Any, time: str = "") -> Any:
    """A copy of a clause with its rows' times as measures ``START`` and ``END``."""
    item = item.copy()
    node = item.args["match"]
    measures = list(node.args.get("measures") or ())
    if not isinstance(item, SituationRelation):
        times = [(_call("FIRST", time), START), (_call("LAST", time), END)]
    else:
        names = [fold(definition.args["alias"]) for definition in _definitions(node)]
        if not measures:  # the default measures
            for name in names:
                measures += [
                    exp.alias_(
                        _call(function, name), f"{name.lower()}_{function.lower()}", quoted=True
                    )
                    for function in ("STARTED", "ENDED")
                ]
        starts = [_call("STARTED", name) for name in names]
        many = exp.Anonymous(this="least", expressions=starts)
        end = exp.Anonymous(
            this="DETECTED" if node.args.get("early") else "COMPLETED", expressions=[]
        )
        times = [(starts[0] if len(starts) == 1 else many, START), (end, END)]
    measures += [exp.alias_(value, name, quoted=True) for value, name in times]
    node.set("measures", measures)
    return item


def _definitions(node: Any) -> Iterator[Any]:
    for definition in node.args["define"]:
        yield definition if isinstance(definition, exp.Alias) else definition.this


def _call(function: str, name: str) -> Any:
    return exp.Anonymous(this=function, expressions=[exp.column(name, quoted=True)])


def _rows(site: OperatorSite) -> BoundSide:
    item, text = site.item, site.text
    time = _event_time(site, item.this) if item.meta.get(PUT_IN) else None
    period = item.meta.get("period") or (None if time is None else (time, time))
    if period is None or not item.alias:
        raise error_on(
            text,
            item,
            "rows of a query have no times of their own: name it and say which columns they are, "
            "(SELECT ...) AS x PERIOD (start, end)",
        )
    columns, _, query = input_of(replace(site, item=exp.Paren(this=item.copy())), lambda _: None)
    times = []
    for wanted in period:
        matching = [name for name in columns.arrow.names if _same(name, wanted)]
        if len(matching) != 1:
            listed = ", ".join(columns.arrow.names)
            message = f"PERIOD names {wanted!r}, which the query does not give ({listed})"
            raise error_at(text, item.meta["period_at"], message)
        times.append(matching[0])
        type_ = columns.arrow.field(matching[0]).type
        if not (pa.types.is_timestamp(type_) or pa.types.is_integer(type_)):
            message = f"PERIOD takes timestamps or integers, {matching[0]!r} is of type {type_}"
            raise error_at(text, item.meta["period_at"], message)
    if columns.arrow.field(times[0]).type != columns.arrow.field(times[1]).type:
        raise error_at(text, item.meta["period_at"], "PERIOD takes two columns of one type")
    bound = BoundRows(columns.arrow, None, query)
    return _leaf(bound, item.alias, columns.arrow.names, times[0], times[1])


def _event_time(site: OperatorSite, query: Any) -> str | None:
    """The column of a view's query that is its stream's time, if its rows are events."""
    clauses = {key for key, value in query.args.items() if value and key != "kind"}
    if not isinstance(query, exp.Select) or not clauses <= {"expressions", "from_", "where"}:
        return None
    source: Any = query.args["from_"].this
    if isinstance(source, exp.Subquery):
        time = _event_time(site, source.this)
    elif isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier):
        time = site.stream(source)[1].time
    else:
        return None
    for shown in query.expressions if time is not None else ():
        node = shown.unalias()
        star = node.this if isinstance(node, exp.Column) else node
        if isinstance(star, exp.Star):
            if not any(star.args.values()):
                return time
        elif (
            isinstance(node, exp.Column)
            and _same(node.name, time)
            and (not node.table or _same(node.table, source.alias_or_name))
        ):
            return str(shown.alias_or_name)
    return None


def _check_times(live: BoundSide, archive: BoundSide, text: str, item: Any) -> None:
    if pa.types.is_timestamp(live.time) != pa.types.is_timestamp(archive.time):
        raise error_at(
            text, item.meta.get("recent_at"),
            f"times of both sides must be of one kind: the live side has {live.time}, the archive "
            f"side {archive.time}",
        )  # fmt: skip


def _check_names(named_sides: Sequence[NamedSide], text: str, item: Any) -> None:
    seen: set[str] = set()
    for named in named_sides:
        if named.alias.lower() in seen:
            raise error_at(
                text, item.meta.get("recent_at"),
                f"two sides are called {named.alias!r}: give one another name with AS",
            )  # fmt: skip
        seen.add(named.alias.lower())


# --------------------------------------------------------------------------- condition


def _with_condition(bound: BoundRecent, on: Any) -> BoundRecent:
    """The condition on the relation's columns, with equalities split off as keys, and what only one
    side must satisfy.
    """
    text = bound.text
    holder = exp.Paren(this=on)
    scope = Scope(0, None)
    for named in (*bound.live.named_sides, *bound.archive.named_sides):
        scope.sources.append(source_of(named, PAIRS))
    names = Names()
    for node in list(holder.walk()):
        aggregate = isinstance(node, exp.Anonymous) and node.name.lower() in AGGREGATES
        if aggregate or isinstance(node, (exp.Query, exp.Window)):
            what = "a subquery" if isinstance(node, exp.Query) else "a window function"
            what = "an aggregate" if aggregate else what
            message = f"{what} cannot be used in the condition of a recency join"
            raise error_on(text, node, message)
    more = several(holder)
    if more is not None:
        raise error_on(text, more, MANY_VALUES)
    taken: set[int] = set()
    for node in list(own_nodes(holder)):
        if isinstance(node, exp.Anonymous) and take_time(node, scope, text):
            taken.update(map(id, node.expressions))
        elif isinstance(node, exp.Column) and id(node) not in taken:
            resolve(node, scope, text, names)
    fields = {field.name: field for field in (*bound.live.fields, *bound.archive.fields)}
    mine = {field.name for field in bound.live.fields}
    keys: list[tuple[str, str]] = []
    rest: dict[str, list[Any]] = {"live": [], "archive": [], "": []}
    for part in conjuncts(holder):
        if (key := _key(part, fields, mine)) is not None:
            keys.append(key)
            continue
        _check_type(part, pa.schema(list(fields.values())), text, on)
        read = {column.name for column in part.find_all(exp.Column)}
        one = "" if not read else "live" if read <= mine else "" if read & mine else "archive"
        rest[one].append(part)
    of = {one: exp.and_(*parts, copy=False) if parts else None for one, parts in rest.items()}
    live, archive = (replace(getattr(bound, one), condition=of[one]) for one in ("live", "archive"))
    return replace(bound, live=live, archive=archive, keys=tuple(keys), condition=of[""])


def _key(part: Any, fields: dict[str, pa.Field], mine: set[str]) -> tuple[str, str] | None:
    """Key columns if a conjunct is just an equality of both sides."""
    if not isinstance(part, exp.EQ):
        return None
    sides = (part.this, part.expression)
    if not all(isinstance(side, exp.Column) and side.name in fields for side in sides):
        return None
    left, right = (side.name for side in sides)
    if (left in mine) == (right in mine) or fields[left].type != fields[right].type:
        return None
    if not is_key(fields[left].type):
        return None
    return (left, right) if left in mine else (right, left)


def _check_type(condition: Any, schema: pa.Schema, text: str, on: Any) -> None:
    plain = bare(exp.Paren(this=condition.copy()))
    try:
        (type_,) = column_types([text_of(plain, text)], schema)
    except SqlError as error:
        raise error_on(text, on, error.reason) from None
    if not (pa.types.is_boolean(type_) or pa.types.is_null(type_)):
        message = f"the condition of a recency join is true or false, this is of type {type_}"
        raise error_on(text, on, message)

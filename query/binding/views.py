"""Views: what stands in FROM under the name of a view becomes the view's query.

Purpose
    :func:`expand` puts the query of a view, as a derived table, in the place of its name, before
    anything is bound.  So all that is known of derived tables holds for views: conditions and
    column lists reach the streams below, and a row pattern or situation over a view that only
    filters and picks is planned with the stream's indexes and replay intervals.

    ::

        FROM v AS x          FROM (SELECT ... FROM s WHERE ...) AS x
        TUMBLE(v, t, d)      TUMBLE(s, t, d), and the view's WHERE beside that of the SELECT

Guarantee
    A name means a CTE before a registered frame, that before a view, and that before a stream; what
    a view's query names is looked up for the view, whatever is around its use.  What is wrong in a
    view is told with its name, at the place where that stands.

Limits
    A statement takes :data:`USES_MAX` views, :data:`DEPTH_MAX` inside each other,
    :data:`CHARACTERS_MAX` characters of them in all.  Windows read streams: ``TUMBLE`` and ``HOP``
    of a view that is ``SELECT * FROM s [WHERE ...]``, in a SELECT without joins; no others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlglot import exp

from ...errors import SqlError
from ...store.views import KeptView
from ..contract.cancellation import checkpoint
from ..sql.dialect import error_at, parse_statement, position_of

__all__ = [
    "OF_VIEW",
    "PUT_IN",
    "Expansion",
    "expand",
    "only_filters",
    "path_of",
    "without_qualifier",
]

USES_MAX = 64
DEPTH_MAX = 8
CHARACTERS_MAX = 1 << 17

_ROW_BY_ROW = ("tumble", "hop")
"""Windows of an event that depend on nothing but its time."""
_OF_STREAMS = (*_ROW_BY_ROW, "session", "hop_rows", "tumble_rows")

OF_VIEW = "of a view"
"""Key of a table that the query of a view names: neither a CTE nor a frame from around it."""
PUT_IN = "put in"
"""Key of a derived table that stands in the place of a view's name."""

Hidden = frozenset[str]


class Expansion:
    """One statement's views, put in.

    Parameters
    ----------
    text : str
        The statement.
    views : mapping of str to KeptView
    taken : container of str
        Names, in lower case, that mean something else.
    within : tuple of str
        Views whose queries these are, from outside in: none may be met again.

    Attributes
    ----------
    used : dict of str to str
        The queries that were put in, by the name of the view.
    places : dict of int to str
        Which view stands at an offset of the statement.
    named : set of str
        What the statement itself names in FROM, views or not, as it is written.
    """

    def __init__(
        self,
        text: str,
        views: Mapping[str, KeptView],
        taken: Hidden = frozenset(),
        within: tuple[str, ...] = (),
    ) -> None:
        self._text = text
        self._views = {name.lower(): view for name, view in views.items()}
        self._taken = taken
        self._within = tuple(name.lower() for name in within)
        self.used: dict[str, str] = {}
        self.places: dict[int, str] = {}
        self.named: set[str] = set()
        self._uses = self._characters = 0

    def into(self, root: Any) -> Any:
        """A statement's tree with its views put in; it is changed."""
        holder = exp.Subquery(this=root)
        self._walk(root, frozenset(), self._within, None)
        found = holder.this
        found.pop()
        return found

    def explained(self, error: SqlError) -> SqlError:
        """An error that comes from the query of a view, with the view's name."""
        for place, name in self.places.items():
            found = error_at(self._text, place, f"the view {name!r}: {error.reason}")
            if (found.line, found.column) == (error.line, error.column):
                return found
        return error

    def _walk(self, node: Any, hidden: Hidden, within: tuple[str, ...], place: int | None) -> None:
        checkpoint()
        clause = node.args.get("with_")
        if clause is not None:
            recursive = bool(clause.args.get("recursive"))
            for cte in clause.expressions:
                name = cte.alias.lower()
                self._walk(cte.this, hidden | {name} if recursive else hidden, within, place)
                hidden = hidden | {name}
        for key, child in list(node.args.items()):
            if key == "with_":
                continue
            for part in list(child) if isinstance(child, list) else [child]:
                if isinstance(part, exp.Expression):
                    self._walk(part, hidden, within, place)
        if isinstance(node, exp.Table):
            self._table(node, hidden, within, place)

    def _table(self, node: Any, hidden: Hidden, within: tuple[str, ...], place: int | None) -> None:
        if node.args.get("db") is not None:
            return
        if isinstance(node.this, exp.Anonymous):
            if node.this.name.lower() in _OF_STREAMS:
                self._window(node, within, place)
            return
        name = node.name
        if name.lower() in hidden or (place is None and name.lower() in self._taken):
            return
        if place is None:
            self.named.add(name)
        view = self._views.get(name.lower())
        if view is None:
            if place is not None:
                node.meta[OF_VIEW] = True
            return
        at = position_of(node) if place is None else place
        query = self._query(view, within, at)
        alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(name, quoted=True))
        derived = exp.Subquery(this=query, alias=alias)
        for key in ("joins", "sample", "laterals", "pivots"):
            if node.args.get(key):
                derived.set(key, node.args[key])
        if at is not None:
            derived.meta["start"] = at
        derived.meta[PUT_IN] = True
        for key in ("period", "period_at"):
            if key in node.meta:
                derived.meta[key] = node.meta[key]
        node.replace(derived)

    def _query(self, view: KeptView, within: tuple[str, ...], at: int | None) -> Any:
        """The query of a view with its own views put in; all of it stands at one place."""
        name = view.name.lower()
        if name in within:
            through = within[within.index(name) + 1 :]
            inner = f", through {', '.join(through)}" if through else ""
            raise error_at(self._text, at, f"the view {view.name!r} reads itself{inner}")
        self._uses += 1
        self._characters += len(view.sql)
        for limit, found, what in (
            (DEPTH_MAX, len(within) + 1, "views inside each other"),
            (USES_MAX, self._uses, "views"),
            (CHARACTERS_MAX, self._characters, "characters of views"),
        ):
            if found > limit:
                raise error_at(
                    self._text, at, f"a statement takes {limit} {what} at most; make a stream of "
                    f"one (CREATE STREAM ... AS SELECT * FROM {view.name})",
                )  # fmt: skip
        self.used[view.name] = view.sql
        if at is not None:
            self.places.setdefault(at, view.name)  # the outermost, which stands there
        try:
            query = parse_statement(view.sql)
        except SqlError as error:
            raise error_at(self._text, at, f"the view {view.name!r}: {error.reason}") from None
        for node in query.walk():
            node.meta.clear()
            if at is not None:
                node.meta["start"] = at
        holder = exp.Subquery(this=query)
        self._walk(query, frozenset(), (*within, name), 0 if at is None else at)
        found = holder.this
        found.pop()
        return found

    def _window(self, node: Any, within: tuple[str, ...], place: int | None) -> None:
        """A window function whose first argument is a view."""
        call = node.this
        named = call.expressions[0] if call.expressions else None
        if not isinstance(named, exp.Column) or len(named.parts) != 1:
            return
        name = named.name
        if place is None:
            self.named.add(name)
        view = self._views.get(name.lower())
        if view is None:
            return
        at = position_of(named) if place is None else place
        select: Any = node.find_ancestor(exp.Select)
        query = self._query(view, within, at)
        while isinstance(query.args.get("from_") and query.args["from_"].this, exp.Subquery):
            inner = query.args["from_"].this.this  # a view of a view
            if not only_filters(query) or not isinstance(inner, exp.Select):
                break
            where = query.args.get("where")
            if where is not None:
                names = (query.args["from_"].this.alias_or_name,)
                inner = inner.where(without_qualifier(where.this, names), copy=False)
            query = inner
        if (
            call.name.lower() not in _ROW_BY_ROW
            or not only_filters(query)
            or not isinstance(query.args["from_"].this, exp.Table)
            or select is None
            or select.args.get("joins")
        ):
            raise error_at(
                self._text, at,
                f"{view.name!r} is a view, and {call.name.upper()} reads a stream: TUMBLE and HOP "
                "know a view that is SELECT * FROM stream WHERE ..., in a SELECT without joins; "
                "else name the stream, with the view's condition in WHERE",
            )  # fmt: skip
        stream = query.args["from_"].this
        argument = exp.column(exp.to_identifier(stream.name, quoted=True))
        argument.meta["start"] = at
        named.replace(argument)
        where = query.args.get("where")
        if where is not None:
            condition = without_qualifier(where.this, (stream.alias_or_name,))
            select.where(exp.paren(condition, copy=False), copy=False)


def without_qualifier(condition: Any, names: Sequence[str], instead: str | None = None) -> Any:
    """A condition on one table as it stands elsewhere; it is changed.

    Parameters
    ----------
    names : sequence of str
        What the table is called in it: ``s.at.x`` becomes ``at.x``.
    instead : str, optional
        What it is called there: ``x`` and ``s.x`` become ``instead.x``.
    """
    folded = {name.lower() for name in names}
    holder = exp.paren(condition, copy=False)
    for column in list(holder.find_all(exp.Column)):
        parts = [part.copy() for part in column.parts]
        if len(parts) > 1 and parts[0].name.lower() in folded:
            parts = parts[1:]
        if instead is not None:
            parts = [exp.to_identifier(instead, quoted=True), *parts]
        column.replace(path_of(parts, column))
    found = holder.this
    found.pop()
    return found


def path_of(parts: list[Any], like: Any) -> Any:
    """A column of one to four parts, at the place of another."""
    names = ("this", "table", "db", "catalog")
    if len(parts) <= len(names):
        made: Any = exp.Column(**dict(zip(names, reversed(parts), strict=False)))
    else:  # the rest are members of a struct
        made = exp.Dot.build([path_of(parts[: len(names)], like), *parts[len(names) :]])
    made.meta.update(like.meta)
    return made


def only_filters(query: Any) -> bool:
    """Whether a query is ``SELECT * FROM one [WHERE ...]``."""
    if not isinstance(query, exp.Select) or query.args.get("from_") is None:
        return False
    said = {key for key, value in query.args.items() if value and key != "kind"}
    source = query.args["from_"].this
    star = len(query.expressions) == 1 and isinstance(query.expressions[0], exp.Star)
    plain = not any(source.args.get(key) for key in ("joins", "sample", "laterals", "pivots"))
    bare = star and not any(query.expressions[0].args.values())
    nested = query.args.get("where") is not None and query.args["where"].find(exp.Query)
    return said <= {"expressions", "from_", "where"} and bare and plain and not nested


def expand(
    root: Any, text: str, views: Mapping[str, KeptView], taken: Hidden
) -> tuple[Any, Expansion | None]:
    """A statement's tree with its views put in, and what that was; None where there are no views.

    Raises
    ------
    SqlError
        A view reads itself, or there are too many.
    """
    if not views:
        return root, None
    expansion = Expansion(text, views, taken)
    return expansion.into(root), expansion

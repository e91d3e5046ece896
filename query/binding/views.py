"""View expansion: a view's name in FROM becomes its query as a derived table, before binding::

    FROM v AS x          FROM (SELECT ... FROM s WHERE ...) AS x
    TUMBLE(v, t, d)      TUMBLE(s, t, d), and the view's WHERE beside that of the SELECT

Precedence: CTE, registered frame, view, stream; names in a view are resolved independently of its
use.  At most ``USES_MAX`` views, ``DEPTH_MAX`` nested, ``CHARACTERS_MAX`` characters.  Only
TUMBLE and HOP take a view, ``SELECT * FROM s [WHERE ...]``, in a SELECT without joins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlglot import exp

from ...errors import SqlError
from ...store.views import StoredView
from ..contract.cancellation import checkpoint
from ..sql.dialect import error_at, parse_statement, position_of

USES_MAX = 64
DEPTH_MAX = 8
CHARACTERS_MAX = 1 << 17

_ROW_BY_ROW = ("tumble", "hop")
WINDOW_FUNCTIONS = (*_ROW_BY_ROW, "tumble_rows", "hop_rows", "session")

OF_VIEW = "of a view"
"""Meta key of tables named in a view's query: not a CTE or frame from outside."""
PUT_IN = "put in"
"""Meta key of a derived table that replaces a view."""

Hidden = frozenset[str]


class Expansion:
    """``taken``: names that mean something else; ``within``: enclosing views (no cycles); ``used``:
    queries by view; ``places``: view by offset; ``named``: names in FROM.
    """

    def __init__(
        self,
        text: str,
        views: Mapping[str, StoredView],
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
        holder = exp.Subquery(this=root)
        self._walk(root, frozenset(), self._within, None)
        query = holder.this
        query.pop()
        return query

    def explained(self, error: SqlError) -> SqlError:
        """An error inside a view, with the view's name added."""
        for place, name in self.places.items():
            moved = error_at(self._text, place, f"the view {name!r}: {error.reason}")
            if (moved.line, moved.column) == (error.line, error.column):
                return moved
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
            if node.this.name.lower() in WINDOW_FUNCTIONS:
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

    def _query(self, view: StoredView, within: tuple[str, ...], at: int | None) -> Any:
        name = view.name.lower()
        if name in within:
            through = within[within.index(name) + 1 :]
            inner = f", through {', '.join(through)}" if through else ""
            raise error_at(self._text, at, f"the view {view.name!r} reads itself{inner}")
        self._uses += 1
        self._characters += len(view.sql)
        for limit, amount, what in (
            (DEPTH_MAX, len(within) + 1, "views inside each other"),
            (USES_MAX, self._uses, "views"),
            (CHARACTERS_MAX, self._characters, "characters of views"),
        ):
            if amount > limit:
                raise error_at(
                    self._text, at, f"a statement takes {limit} {what} at most; make a stream of "
                    f"one (CREATE STREAM ... AS SELECT * FROM {view.name})",
                )  # fmt: skip
        self.used[view.name] = view.sql
        if at is not None:
            self.places.setdefault(at, view.name)  # the outermost view
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
        amount = holder.this
        amount.pop()
        return amount

    def _window(self, node: Any, within: tuple[str, ...], place: int | None) -> None:
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
            inner = query.args["from_"].this.this  # nested view
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
    """Move a condition on one table, in place: ``s.at.x`` becomes ``at.x``.

    With ``instead``, ``x`` and ``s.x`` become ``instead.x``.
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
    query = holder.this
    query.pop()
    return query


def path_of(parts: list[Any], like: Any) -> Any:
    names = ("this", "table", "db", "catalog")
    if len(parts) <= len(names):
        made: Any = exp.Column(**dict(zip(names, reversed(parts), strict=False)))
    else:  # struct members
        made = exp.Dot.build([path_of(parts[: len(names)], like), *parts[len(names) :]])
    made.meta.update(like.meta)
    return made


def only_filters(query: Any) -> bool:
    """Whether a query is ``SELECT * FROM one [WHERE ...]``."""
    if not isinstance(query, exp.Select) or query.args.get("from_") is None:
        return False
    clauses = {key for key, value in query.args.items() if value and key != "kind"}
    source = query.args["from_"].this
    star = len(query.expressions) == 1 and isinstance(query.expressions[0], exp.Star)
    plain = not any(source.args.get(key) for key in ("joins", "sample", "laterals", "pivots"))
    bare = star and not any(query.expressions[0].args.values())
    nested = query.args.get("where") is not None and query.args["where"].find(exp.Query)
    return clauses <= {"expressions", "from_", "where"} and bare and plain and not nested


def expand(
    root: Any, text: str, views: Mapping[str, StoredView], taken: Hidden
) -> tuple[Any, Expansion | None]:
    """The tree with views expanded, and the expansion (None without); SqlError for cycles."""
    if not views:
        return root, None
    expansion = Expansion(text, views, taken)
    return expansion.into(root), expansion

"""SELECTs of several parts: joins, unions and queries over subqueries as live queries.

Purpose
    :func:`understood` takes a SELECT apart until its parts are of one stream and one class
    (:mod:`.analysis`), and says how they go together.

Layout
    ::

        FROM a [LEFT] JOIN b ON ...              join_form      two streams in a time window
        SELECT ... UNION ALL SELECT ...          union_form     of any of these

Guarantee
    Names and types of the columns are those that the SELECT has when it is run.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ..identity import seed_of
from ..query.binding.binder import is_plain
from ..query.conditions.constants import Folder
from ..query.contract.cancellation import QueryControl
from ..query.engine import QueryEngine, Region
from ..query.sql.canonical import canonical
from ..query.sql.dialect import to_text
from ..query.sql.stream_names import StreamNames
from ..schema import StreamSchema
from ..store.snapshot import Snapshot
from .analysis import Analysed, form_of
from .join_binding import BoundJoin, JoinedStream, bind_join
from .join_form import JoinForm
from .refusals import aggregate_in, check_live, refused
from .union_form import UnionForm

__all__ = ["understood"]


def understood(
    engine: Callable[[], QueryEngine],
    snapshot: Callable[[str], Snapshot],
    tree: Any,
    text: str,
    frozen: Sequence[str] = (),
) -> Analysed:
    """Understand a SELECT; the parameters and errors are those of :func:`.analysis.form_of`."""
    parts = _Parts(engine, snapshot, text)
    return parts.understood(tree, frozen)


class _Parts:
    """The parts of one statement."""

    def __init__(
        self,
        engine: Callable[[], QueryEngine],
        snapshot: Callable[[str], Snapshot],
        text: str,
    ) -> None:
        self._engine = engine
        self._snapshot = snapshot
        self._text = text

    def understood(self, tree: Any, frozen: Sequence[str]) -> Analysed:
        """A part, whatever it is."""
        if isinstance(tree, exp.SetOperation):
            return self._union(tree, frozen)
        if isinstance(tree, exp.Select) and tree.args.get("joins"):
            return self._join(tree, frozen)
        return form_of(self._engine, self._snapshot, tree, self._text, frozen)

    # -- unions -------------------------------------------------------------------------------

    def _union(self, tree: Any, frozen: Sequence[str]) -> Analysed:
        text = self._text
        branches: list[Any] = []
        for node in _set_operations(tree):
            check_live(node, text, union=True)
            branches.insert(0, node.expression)
            if not isinstance(node.this, exp.SetOperation):
                branches.insert(0, node.this)
        found = [
            self.understood(branch.this if isinstance(branch, exp.Subquery) else branch, ())
            for branch in branches
        ]
        first = found[0]
        for branch, other in zip(branches[1:], found[1:], strict=True):
            mine, theirs = ([field.type for field in each.fields] for each in (first, other))
            if mine != theirs or first.time != other.time:
                raise refused(
                    text, branch, f"the SELECTs of a union have columns of the same types, found "
                    f"({_types(theirs)}) with times of {other.time} after ({_types(mine)}) with "
                    f"times of {first.time}: CAST them"
                )  # fmt: skip
            if not other.form.corrects:
                raise refused(text, branch, "windows of so many events stand alone in a live query")
        if not first.form.corrects:
            raise refused(text, tree, "windows of so many events stand alone in a live query")
        names = tuple(field.name for field in first.fields)
        return Analysed(UnionForm([each.form for each in found], names), first.fields, first.time)

    # -- joins --------------------------------------------------------------------------------

    def _join(self, tree: Any, frozen: Sequence[str]) -> Analysed:
        text = self._text
        check_live(tree, text, join=True)
        found = aggregate_in(tree)
        if found is not None or tree.args.get("group") or tree.args.get("having"):
            raise refused(
                text, found if found is not None else tree, "a live join gives a row for each "
                "pair: aggregate where it is read, FROM NET(name)"
            )  # fmt: skip
        bound = bind_join(tree, text, self._schema_of, self._folder())
        if not is_plain(tree):
            raise refused(text, tree, "a live join gives one row for each pair: unnest elsewhere")
        fields = self._fields(tree, bound)
        named = tree.copy()
        shown = list(_expanded(named, bound, text))
        made = []
        for node, field in zip(shown, fields, strict=True):
            if not frozen or field.name in frozen:
                made.append((exp.alias_(node.unalias(), field.name, quoted=True), field))
        doubled = [f.name for _, f in made if [g.name for _, g in made].count(f.name) > 1]
        if doubled:
            raise refused(
                text, tree.expressions[0],
                f"two columns of the results would be called {doubled[0]!r}; give one an alias",
            )  # fmt: skip
        named.set("expressions", [node for node, _ in made])
        chosen = tuple(field.with_nullable(True) for _, field in made)
        names = tuple(field.name for field in chosen)
        streams = " ".join(side.stream for side in bound.sides)
        seed = seed_of(f"{streams} {canonical(tree)}")
        form = JoinForm(self._engine, named, text, bound, names, seed)
        return Analysed(form, chosen, bound.left.schema.time_type)

    def _schema_of(self, table: Any) -> tuple[str, StreamSchema]:
        catalog = self._engine().catalog
        names = StreamNames(catalog.streams())
        found = names.find(table.name)
        if found is None:
            raise names.missing(table, self._text)
        return found, catalog.stream_schema(found)

    def _folder(self) -> Folder:
        executor = self._engine().executor

        def evaluate(node: Any) -> pa.Scalar | None:
            return executor.constant(to_text(node, self._text), {}, QueryControl())

        return Folder({}, dt.datetime.now(dt.timezone.utc), evaluate)

    def _fields(self, tree: Any, bound: BoundJoin) -> list[pa.Field]:
        """Columns of the results, as the executor names and types them."""
        prepared = self._engine().prepared(tree.copy(), self._text)
        streams = {side.stream for side in bound.sides}
        moment = {name: self._snapshot(name) for name in streams}
        region = Region(moment, dict.fromkeys(streams, (0, 0)))
        return list(self._engine().over(prepared, region).arrow().schema)


def _set_operations(tree: Any) -> list[Any]:
    """Those of a union, the outermost first."""
    found = []
    while isinstance(tree, exp.SetOperation):
        found.append(tree)
        tree = tree.this
    return found


def _types(types: Sequence[pa.DataType]) -> str:
    return ", ".join(map(str, types))


def _expanded(tree: Any, bound: BoundJoin, text: str) -> Any:
    """The projections, with ``*`` written out."""
    for node in tree.expressions:
        star = node.this if isinstance(node, exp.Column) else node
        if not isinstance(star, exp.Star):
            yield node
            continue
        if any(star.args.values()):
            raise refused(text, node, "a live join names its columns, or takes all with *")
        sides: Sequence[JoinedStream] = bound.sides
        if star is not node:
            sides = [s for s in sides if s.alias.lower() == node.table.lower()]
        for side in sides:
            for name in side.schema.names:
                yield exp.column(
                    exp.to_identifier(name, quoted=True), exp.to_identifier(side.alias, quoted=True)
                )

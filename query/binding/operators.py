"""Stream operators: what may stand in FROM besides streams, and where new ones plug in.

Purpose
    Windows (``TUMBLE``, ``HOP``, ...) and row patterns (``MATCH_RECOGNIZE``) are answered by
    operators of this system, not by the relational executor.  To the planner each is an
    :class:`OperatorFactory` that binds one FROM item to a :class:`BoundOperator`: a relation with
    known columns that can be scanned any number of times.

Guarantee
    The planner calls ``bind`` once per statement text and schema, and ``open`` once per execution,
    with parameters and snapshots fixed.  An operator may rewrite the SELECT it stands in (for
    instance replace ``avg(x)`` by a column that it delivers): the tree it is given is the
    planner's own copy, and what it leaves is what the executor runs.

Layout
    Modules that define operators are listed in :data:`PROVIDERS`; they are imported when the first
    statement is planned and call :func:`register_table_function` or :func:`register_match`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from ...ownership import LOADING
from ...schema import StreamSchema
from ...store.snapshot import Snapshot
from ..conditions.constants import Folder
from ..contract.cancellation import QueryControl
from ..contract.catalog import Catalog
from ..contract.explanation import Operator

__all__ = [
    "BoundOperator",
    "Division",
    "OperatorFactory",
    "OperatorSite",
    "Relation",
    "RunContext",
    "match_factory",
    "register_match",
    "register_table_function",
    "table_function",
    "table_function_names",
]

PROVIDERS: tuple[str, ...] = ("..run.window_operator", "..run.match_operator")
"""Modules, relative to this package, that register operators when imported (``".windows"``)."""


@dataclass
class RunContext:
    """What one execution of a statement provides.

    Attributes
    ----------
    control : QueryControl
        ``control.check()`` is to be called between blocks and kernels.
    folder : Folder
        Folds expressions over parameters and ``now()``.
    snapshot : callable
        Snapshot of a stream by name; the same one each time within an execution.
    subquery : callable
        Runs a query tree (bound like any other) and yields its batches.
    analyze : bool
        Whether figures are wanted.
    indexes : callable, optional
        Secondary indexes of a stream by name; None for a stream without any.
    store : path, optional
        Directory of the store, where calibrated weights are kept.
    division : Division, optional
        For a query of which only a part is run here.
    """

    control: QueryControl
    folder: Folder
    snapshot: Callable[[str], Snapshot]
    subquery: Callable[[Any], tuple[pa.Schema, Iterator[pa.RecordBatch]]]
    analyze: bool = False
    indexes: Callable[[str], Any] | None = None
    store: Path | None = None
    division: Division | None = None


class Division(Protocol):
    """A query that several processes run in parts: one plans, the others run what it planned."""

    def planned(self, stream: str, compiled: Any, plan: Any) -> None:
        """Hear of a pattern's replay plan."""

    def part(self, stream: str) -> Any:
        """The part of a pattern to run (:mod:`chronicle.query.split`); None for all of it."""


class Relation(Protocol):
    """A re-scannable source of batches for one execution."""

    @property
    def schema(self) -> pa.Schema:
        """Columns, in the order in which ``SELECT *`` shows them."""

    def batches(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """Scan: batches of the named columns (all when None), in this order."""

    def explain(self) -> Operator:
        """The node of the plan, with figures when analyzed."""


class BoundOperator(Protocol):
    """An operator bound to its arguments, good for any number of executions."""

    @property
    def schema(self) -> pa.Schema:
        """Columns of the relation."""

    @property
    def streams(self) -> Sequence[str]:
        """Streams that it reads; the plan is made anew when the schema of one changes."""

    def open(self, run: RunContext) -> Relation:
        """Fix parameters and snapshots for one execution."""


@dataclass
class OperatorSite:
    """Where an operator stands.

    Attributes
    ----------
    item : sqlglot tree
        The FROM item: an ``exp.Table`` around the call, or a ``MatchRelation``.
    select : sqlglot tree
        The SELECT around it; an operator may rewrite it.
    text : str
        The statement, for error positions.
    catalog : Catalog
    hints : dict
        Plan hints of the SELECT: ``{"strategy": "replay"}``.
    outputs_of : callable
        Column names and Arrow types (None where unknown) of a query tree in FROM.
    """

    item: Any
    select: Any
    text: str
    catalog: Catalog
    hints: dict[str, str] = field(default_factory=dict)
    outputs_of: Callable[[Any], list[tuple[str, pa.DataType | None]]] | None = None

    def stream(self, name: str) -> StreamSchema:
        """Schema of a stream; raises :class:`StreamNotFound`."""
        return self.catalog.stream_schema(name)


class OperatorFactory(Protocol):
    """Makes bound operators."""

    def bind(self, site: OperatorSite) -> BoundOperator:
        """Check the arguments (:class:`SqlError` with position) and bind them."""


_table_functions: dict[str, OperatorFactory] = {}
_match: list[OperatorFactory] = []
_loaded = False


def register_table_function(name: str, factory: OperatorFactory) -> None:
    """Let a name such as ``hop`` stand in FROM."""
    _table_functions[name.lower()] = factory


def register_match(factory: OperatorFactory) -> None:
    """Let ``MATCH_RECOGNIZE`` be answered by a factory."""
    _match[:] = [factory]


def table_function(name: str) -> OperatorFactory | None:
    """The factory behind a name in FROM."""
    _load()
    return _table_functions.get(name.lower())


def table_function_names() -> frozenset[str]:
    """Names that may stand in FROM, in lower case."""
    _load()
    return frozenset(_table_functions)


def match_factory() -> OperatorFactory | None:
    """The factory behind ``MATCH_RECOGNIZE``."""
    _load()
    return _match[0] if _match else None


def _load() -> None:
    """Import what registers operators; nobody goes on before the first has done so."""
    global _loaded
    if not _loaded:
        with LOADING:
            for module in PROVIDERS:
                importlib.import_module(module, __package__)
            _loaded = True

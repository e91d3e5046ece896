"""How Spark would run a query: said before it runs.

Purpose
    ``df.explain()`` shows a Python data source as one opaque scan.  :func:`plan_query` plans the
    option ``query`` as the driver would, and says into which parts it would be cut, why not into
    more, and what each of them reads.

Guarantee
    The parts are those that ``load()`` would make of the same options and commit.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import InvalidArgument
from ..query.contract.explanation import Plan
from .options import Options
from .pinned_catalog import PinnedCatalog, query_engine
from .queries import divided

__all__ = ["CutPlan", "plan_query"]


@dataclass(frozen=True)
class CutPlan:
    """What would be run.

    Attributes
    ----------
    kind : str
        ``rows``, ``windows``, ``match`` or ``whole``; ``none`` when there is nothing to find.
    reason : str
        Why the query is cut as it is.
    parts : tuple of str
        What each task reads.
    plan : Plan
        Of the query as one piece, as EXPLAIN shows it.
    """

    kind: str
    reason: str
    parts: tuple[str, ...]
    plan: Plan

    def __str__(self) -> str:
        lines = [f"{len(self.parts)} parts ({self.kind}): {self.reason}"]
        lines += [f"  {number}: {part}" for number, part in enumerate(self.parts)]
        return "\n".join([*lines, str(self.plan)])


def plan_query(**options: object) -> CutPlan:
    """Say how a query would be run by executors.

    Parameters
    ----------
    **options
        Those of ``spark.read.format("chronicle")``: ``path``, ``query``, ``numPartitions``.

    Raises
    ------
    InvalidArgument
        Without ``path`` and ``query``: behind a url a query is run in one piece.
    SqlError
        As the query itself.
    """
    from ..store import Store
    from .local import local_path

    asked = Options.parse({name: str(value) for name, value in options.items()}, "r")
    if asked.path is None or asked.query is None:
        raise InvalidArgument(
            "plan_query expects 'path' and 'query'; behind a url a query is run in one piece"
        )
    with Store.open(local_path(asked.path), mode="r") as store:
        catalog = PinnedCatalog(store, growing=True)
        with query_engine(catalog) as engine:
            plan, cut = divided(asked.query, engine, catalog, asked.num_partitions)
            shown = engine.explain_plan(plan)
    return CutPlan(cut.kind, cut.reason, tuple(map(str, cut.parts)), shown)

"""EXPLAIN for the option ``query``: the parts that ``load()`` would make."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ..errors import InvalidArgument
from ..query.contract.explanation import Plan
from .options import Options
from .queries import PinnedCatalog, divided, query_engine


@dataclass(frozen=True)
class CutPlan:
    """How a query would be divided; ``parts`` say what each task reads.

    ``kind`` is ``rows``, ``windows``, ``match``, ``whole`` or ``none`` (empty result).
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
    """How executors would run a query, given ``path``, ``query``, ``numPartitions``.

    Raises InvalidArgument without ``path`` and ``query``, and SqlError as the query itself.
    """
    from ..store.store import Store
    from .backend import local_path, partition_count

    parsed = Options.parse({name: str(value) for name, value in options.items()}, "r")
    if parsed.path is None or parsed.query is None:
        raise InvalidArgument(
            "plan_query expects 'path' and 'query'; behind a url a query is run in one piece"
        )
    with Store.open(local_path(parsed.path), mode="r") as store:
        catalog = PinnedCatalog(store, growing=True)
        with query_engine(catalog) as engine:
            parts = partial(partition_count, parsed.num_partitions)
            plan, cut = divided(parsed.query, engine, catalog, parts)
            shown = engine.explain_plan(plan)
    return CutPlan(cut.kind, cut.reason, tuple(map(str, cut.parts)), shown)

"""Chooses the algorithm for SKIP TILL ANY MATCH, and explains the choice for EXPLAIN.
``lists`` needs conditions on single rows; ``tree`` also handles conditions between variables;
``search`` backtracks over rows that have partners.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ...core.threads import Busy
from ...errors import SqlError
from .any_pairs import Pairing, pairing
from .automaton import Automaton

if TYPE_CHECKING:
    from .any_diagram import PairedRows
    from .conditions import ConditionPlan


REGIMES = ("auto", "lists", "tree", "search")
"""Values of the hint ``selection(x)``."""


class Regime(NamedTuple):
    """An algorithm, the reason for it, and the conditions between variables that it uses."""

    regime: str
    why: str
    pairing: Pairing | None = None


@dataclass
class Selecting:
    """Options of a statement for SKIP TILL ANY MATCH, and counters of its run.
    ``weighted``: one row per first event, with its count of matches as MATCH_NUMBER.  ``threads``:
    0 means the caller's number.  ``fallback``: why buffers were searched although the clause allows
    lists.  ``before``, ``after``: events of each joined position, and those that have partners.
    """

    wanted: str = "auto"
    weighted: bool = False
    skip: int = 0
    threads: int = 0
    states: int = 0
    entries: int = 0
    lists: int = 0
    searched: int = 0
    fallback: str = ""
    diagrams: int = 0
    candidates: int = 0
    tested: int = 0
    pairs: int = 0
    before: dict[int, int] = field(default_factory=dict)
    after: dict[int, int] = field(default_factory=dict)
    busy: Busy = field(default_factory=Busy)

    def of_run(self, threads: int) -> Selecting:
        return Selecting(self.wanted, self.weighted, self.skip, self.threads or threads)

    def reduced(self, paired: PairedRows) -> None:
        self.tested += paired.tested
        self.pairs += paired.pairs
        for sums, found in ((self.before, paired.before), (self.after, paired.after)):
            for place, count in found.items():
                sums[place] = sums.get(place, 0) + count

    def figures(self) -> tuple[tuple[str, int | float], ...]:
        found: dict[str, int | float] = {}
        if self.tested:
            found |= {"pairs_tested": self.tested, "pairs_joined": self.pairs}
            found |= {
                "events_joined": sum(self.before.values()),
                "events_with_partners": sum(self.after.values()),
            }
        if self.diagrams:
            found |= {"tree_lists": self.diagrams, "tree_candidates": self.candidates}
        if self.states:
            found["list_states"] = self.states
        if self.lists or self.fallback:
            found |= {
                "list_entries": self.entries,
                "buffers_listed": self.lists,
                "buffers_searched": self.searched,
            }
        if self.busy.threads > 1:
            found |= {"threads": self.busy.threads, "busiest_over_mean": self.busy.skew}
        return tuple(found.items())

    def describe(self) -> str:
        parts = []
        if self.weighted:
            parts.append("counted, not listed")
        if self.skip:
            parts.append(f"from match {self.skip + 1:,} on")
        if self.fallback:
            parts.append(f"{self.searched:,} buffers searched: {self.fallback}")
        return "; ".join(parts)


def choose(
    selection: str | None, automaton: Automaton, plan: ConditionPlan, wanted: str = "auto"
) -> Regime:
    """The algorithm for a clause; raises SqlError when the hint ``wanted`` is impossible."""
    lists = tree = ""
    joined: Pairing | None = None
    dependent = [name for name, (_, rest) in plan.summary.items() if rest]
    if selection != "any":
        lists = tree = "the clause has no EVENT SELECTION SKIP TILL ANY MATCH"
    elif not plan.by_position:
        lists = tree = f"the pattern has {len(plan.names) - 1} positions, lists take up to 64"
    else:
        if dependent:
            lists = f"the condition of {dependent[0]} is about more than one event of the match"
        if dependent or wanted == "tree":
            if plan.pairing is None:
                plan.pairing = pairing(automaton, plan)
            joined = plan.pairing
            tree = plan.pairing.obstacle
    obstacle = {"lists": lists, "tree": tree}.get(wanted, "")
    if obstacle:
        raise SqlError(f"the hint selection({wanted}) cannot be obeyed: {obstacle}")
    if wanted == "search":
        return Regime("search", "the hint says so")
    if not lists and wanted != "tree":
        return Regime("lists", "every condition is about one event")
    if joined is None:
        return Regime("search", lists)
    if tree:
        return Regime("search", tree, joined if joined.asked else None)
    return Regime("tree", joined.describe(plan.names), joined)

"""Which regime answers SKIP TILL ANY MATCH, and why.

Purpose
    ``lists`` (:mod:`.any_search`) needs conditions that are about one row each, ``tree``
    (:mod:`.any_tree`) takes conditions between variables, too: both walk only what is completed and
    can count without walking.  ``search`` (:mod:`.selection`) tries whatever is conceivable, of
    rows that have partners.  :func:`choose` says which one a clause takes, in words for EXPLAIN;
    :class:`Selecting` carries what a statement asked for, and what a run did.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ...core.threads import Busy
from ...errors import SqlError
from .any_pairs import Pairing, pairing
from .automaton import Automaton

if TYPE_CHECKING:
    from .any_joins import PairedRows
    from .conditions import ConditionPlan

__all__ = ["REGIMES", "Regime", "Selecting", "choose"]

REGIMES = ("auto", "lists", "tree", "search")
"""Values of the hint ``selection(x)``."""


class Regime(NamedTuple):
    """A regime, the reason for it, and the conditions between variables that it makes use of."""

    regime: str
    why: str
    pairing: Pairing | None = None


@dataclass
class Selecting:
    """What a statement asks of the selection, and figures of its run.

    Attributes
    ----------
    wanted : str
        One of :data:`REGIMES`.
    weighted : bool
        Matches of one first event come as one row, with their number as MATCH_NUMBER.
    skip : int
        Matches that are left out at the beginning of the result.
    threads : int
        Most that matches may be put out by; 0: as many as whoever runs it has.
    states, entries : int
        States of the lists, and the most entries they had room for in one buffer.
    lists, searched : int
        Buffers that were answered by lists, of whatever regime, and by the search instead.
    fallback : str
        Why buffers were searched though the clause takes lists.
    diagrams, candidates : int
        Lists that the tree made, one for all that the rest of a match can tell apart, and their
        candidates.
    tested, pairs : int
        Pairs of events of which a condition was asked, and those that satisfy it.
    before, after : dict of int to int
        Events of each position that conditions join: all, and those that have partners.
    busy : Busy
        What threads did.
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
        """What was asked, without figures; ``threads``: how many there are, if nobody said."""
        return Selecting(self.wanted, self.weighted, self.skip, self.threads or threads)

    def reduced(self, paired: PairedRows) -> None:
        """Add the figures of a buffer of which pairs were made."""
        self.tested += paired.tested
        self.pairs += paired.pairs
        for sums, found in ((self.before, paired.before), (self.after, paired.after)):
            for place, count in found.items():
                sums[place] = sums.get(place, 0) + count

    def figures(self) -> tuple[tuple[str, int | float], ...]:
        """For EXPLAIN ANALYZE; nothing where no lists were made."""
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
        """What differs from the choice of the clause, for EXPLAIN ANALYZE."""
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
    """The regime of a clause.

    Parameters
    ----------
    selection : str or None
        Event selection strategy of the clause.
    wanted : str
        The hint.

    Raises
    ------
    SqlError
        When the hint asks for a regime that is impossible.
    """
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

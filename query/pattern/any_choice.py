"""Which regime answers SKIP TILL ANY MATCH, and why.

Purpose
    ``lists`` (:mod:`.any_search`) walks only what is completed and can count without walking; it
    needs conditions that are about one row each.  ``search`` (:mod:`.selection`) tries whatever is
    conceivable.  :func:`choose` says which one a clause takes, in words for EXPLAIN;
    :class:`Selecting` carries what a statement asked for, and what a run did.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ...errors import SqlError

if TYPE_CHECKING:
    from .conditions import ConditionPlan

__all__ = ["REGIMES", "Regime", "Selecting", "choose"]

REGIMES = ("auto", "lists", "search")
"""Values of the hint ``selection(x)``."""


class Regime(NamedTuple):
    """A regime and the reason for it."""

    regime: str
    why: str


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
    states, entries : int
        States of the lists, and the most entries they had room for in one buffer.
    lists, searched : int
        Buffers that each regime answered.
    fallback : str
        Why buffers were searched though the clause takes lists.
    """

    wanted: str = "auto"
    weighted: bool = False
    skip: int = 0
    states: int = 0
    entries: int = 0
    lists: int = 0
    searched: int = 0
    fallback: str = ""

    def figures(self) -> tuple[tuple[str, int | float], ...]:
        """For EXPLAIN ANALYZE; nothing where no lists were made."""
        if not self.lists and not self.fallback:
            return ()
        found = {
            "list_states": self.states,
            "list_entries": self.entries,
            "buffers_listed": self.lists,
            "buffers_searched": self.searched,
        }
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


def choose(selection: str | None, plan: ConditionPlan, wanted: str = "auto") -> Regime:
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
        When ``lists`` is asked for and impossible.
    """
    obstacle = ""
    dependent = [name for name, (_, rest) in plan.summary.items() if rest]
    if selection != "any":
        obstacle = "the clause has no EVENT SELECTION SKIP TILL ANY MATCH"
    elif dependent:
        obstacle = f"the condition of {dependent[0]} is about more than one event of the match"
    elif not plan.by_position:
        obstacle = f"the pattern has {len(plan.names) - 1} positions, lists take up to 64"
    if wanted == "lists" and obstacle:
        raise SqlError(f"the hint selection(lists) cannot be obeyed: {obstacle}")
    if obstacle:
        return Regime("search", obstacle)
    if wanted == "search":
        return Regime("search", "the hint says so")
    return Regime("lists", "every condition is about one event")

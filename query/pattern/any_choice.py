"""Whether a diagram of the matches or a backtracking search answers SKIP TILL ANY MATCH; figures of
EXPLAIN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from .any_pairs import Pairing, pairing
from .automaton import Automaton

if TYPE_CHECKING:
    from .conditions import ConditionPlan


class Choice(NamedTuple):
    """``why``: the reason.  ``pairing``: conditions between events, of a diagram."""

    diagram: bool
    why: str
    pairing: Pairing | None = None

    def describe(self) -> str:
        return f"{'diagram' if self.diagram else 'search'}: {self.why}"


@dataclass
class Selecting:
    """Options of a statement for SKIP TILL ANY MATCH, and counters of its run.
    ``search``: search even where a diagram is possible.  ``weighted``: one row per first event,
    with its count of matches as MATCH_NUMBER.  ``entries``: of the largest lists.  ``fallback``:
    why buffers were searched although the clause allows a diagram.
    """

    search: bool = False
    weighted: bool = False
    skip: int = 0
    entries: int = 0
    listed: int = 0
    searched: int = 0
    fallback: str = ""

    def of_run(self) -> Selecting:
        return Selecting(self.search, self.weighted, self.skip)

    def figures(self) -> tuple[tuple[str, int | float], ...]:
        if not self.listed and not self.searched:
            return ()
        return (
            ("list_entries", self.entries), ("buffers_listed", self.listed),
            ("buffers_searched", self.searched),
        )  # fmt: skip

    def describe(self) -> str:
        parts = []
        if self.weighted:
            parts.append("counted, not listed")
        if self.skip:
            parts.append(f"from match {self.skip + 1:,} on")
        if self.fallback:
            parts.append(f"{self.searched:,} buffers searched: {self.fallback}")
        return "; ".join(parts)


def choose(automaton: Automaton, plan: ConditionPlan, search: bool = False) -> Choice:
    """How a clause with SKIP TILL ANY MATCH is answered."""
    if search:
        return Choice(False, "it was asked for")
    if not plan.by_position:
        positions = len(plan.names) - 1
        return Choice(False, f"the pattern has {positions} positions, a diagram takes up to 64")
    if plan.pairing is None:
        plan.pairing = pairing(automaton, plan)
    joined: Pairing = plan.pairing
    if joined.obstacle:
        return Choice(False, joined.obstacle)
    if not any(rest for _, rest in plan.summary.values()):
        return Choice(True, "every condition is about one event", joined)
    return Choice(True, joined.describe(plan.names), joined)

"""Validates names and options of a MATCH_RECOGNIZE clause against the standard's rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..sql.pattern_parser import position_error
from ..sql.pattern_tree import Absence, Exclusion, variables, walk

if TYPE_CHECKING:
    from ..sql.match_clause import MatchClause

__all__ = ["known_variables"]


def known_variables(clause: MatchClause) -> dict[str, frozenset[str]]:
    """What each variable and subset stands for; SqlError with line and column."""
    sql = clause.sql
    matched = variables(clause.pattern)
    absent = {n for part in walk(clause.pattern) if isinstance(part, Absence) for n in part.names}
    known = {name: frozenset({name}) for name in matched}
    defined: set[str] = set()
    for definition in clause.definitions:
        name = definition.variable
        if name in defined:
            raise position_error(f"variable {name} is defined twice", sql, definition.at)
        defined.add(name)
        if name not in known and name not in absent:
            listed = ", ".join(matched) or "no variables"
            raise position_error(
                f"DEFINE names {name}, which is not in PATTERN (it has {listed})",
                sql,
                definition.at,
            )
    for part in walk(clause.pattern):
        if isinstance(part, Absence):
            for name in part.names:
                if name not in defined:
                    raise position_error(
                        f"[^{name}] needs a condition for {name} in DEFINE (without one every "
                        f"event "
                        "satisfies it)", sql, part.at
                    )  # fmt: skip
            if clause.selection not in ("next", "any"):
                raise position_error(
                    "[^ ] speaks of events that are passed over: it needs EVENT SELECTION SKIP "
                    "TILL NEXT "
                    "MATCH or SKIP TILL ANY MATCH; for contiguous matches write a variable whose "
                    "condition is negated", sql, part.at
                )  # fmt: skip
    _check_subsets(clause, known)
    _check_options(clause, known, matched)
    return known


def _check_subsets(clause: MatchClause, known: dict[str, frozenset[str]]) -> None:
    sql = clause.sql
    primary = set(known)
    for subset in clause.subsets:
        if subset.name in primary:
            raise position_error(
                f"{subset.name} is a pattern variable; a SUBSET needs a name of its own",
                sql,
                subset.at,
            )
        if subset.name in known:
            raise position_error(f"SUBSET {subset.name} is defined twice", sql, subset.at)
        for name in subset.variables:
            if name not in primary:
                raise position_error(
                    f"SUBSET {subset.name} names {name}, which is not a variable of PATTERN",
                    sql,
                    subset.at,
                )
        if len(set(subset.variables)) < len(subset.variables):
            raise position_error(f"SUBSET {subset.name} names a variable twice", sql, subset.at)
        known[subset.name] = frozenset(subset.variables)


def _check_options(
    clause: MatchClause, known: dict[str, frozenset[str]], matched: tuple[str, ...]
) -> None:
    sql = clause.sql
    skip = clause.skip
    if skip is not None and clause.selection is not None:
        raise position_error(
            "AFTER MATCH SKIP cannot be used with EVENT SELECTION: every match is a result",
            sql,
            skip.at,
        )
    if skip is not None and skip.variable and skip.variable not in known:
        listed = ", ".join(sorted(known))
        raise position_error(
            f"AFTER MATCH SKIP TO names {skip.variable}, which is no pattern variable ({listed})",
            sql,
            skip.at,
        )
    for part in walk(clause.pattern):
        if isinstance(part, Exclusion) and clause.rows == "all with unmatched":
            raise position_error(
                "{- -} cannot be used with ALL ROWS PER MATCH WITH UNMATCHED ROWS", sql, part.at
            )
    if clause.selection is not None and not matched:
        raise position_error(
            "EVENT SELECTION finds sets of events; the pattern matches none", sql, clause.at
        )

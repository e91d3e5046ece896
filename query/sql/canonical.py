"""One text for each query, however it was written: what identities of its results stand for.

Purpose
    Two texts of one query differ in white space, in the case of keywords and names, in comments
    and in parentheses that change nothing.  :func:`canonical` writes a parsed query without these.

Guarantee
    Texts that are parsed to the same tree, names compared without regard to case, have one
    canonical text.  Different queries have different ones.  It does not change from one release to
    the next where the tree does not: it is made of names of clauses and of what stands in them.

Limits
    Queries that mean the same and are built differently (``a AND b``, ``b AND a``) have two.
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from .match_clause import MatchRecognize
from .pattern_parser import parse_pattern
from .pattern_tree import describe

__all__ = ["canonical", "canonical_pattern"]

_SILENT = ("hint", "comments", "_type")


def canonical(node: Any) -> str:
    """The canonical text of a tree."""
    if isinstance(node, exp.Paren):
        return canonical(node.this)
    if isinstance(node, exp.Identifier):
        return f"'{str(node.this).lower()}'"
    if isinstance(node, exp.Literal):
        return repr(str(node.this)) if node.is_string else str(node.this)
    if isinstance(node, exp.Expression | exp.Expr):
        parts = [
            f"{key}={_value(node, key, value)}"
            for key, value in sorted(node.args.items())
            if key not in _SILENT and value not in (None, False, [])
        ]
        return f"{type(node).__name__}({', '.join(parts)})"
    if isinstance(node, list):
        return f"[{', '.join(canonical(part) for part in node)}]"
    return str(node).lower()


def _value(node: Any, key: str, value: Any) -> str:
    if isinstance(node, MatchRecognize) and key == "pattern":
        return describe(parse_pattern(value.name))
    if isinstance(node, exp.Anonymous) and key == "this":
        return str(value).lower()
    return canonical(value)


def canonical_pattern(source: str, clause: Any) -> str:
    """The canonical text of MATCH_RECOGNIZE over a source, whatever measures are taken of matches.

    Parameters
    ----------
    source : str
        The stream's name, or the canonical text of the input query.
    clause : MatchRecognize
    """
    bare = clause.copy()
    for key in ("measures", "alias", "rows"):
        bare.set(key, None)
    return f"{source} {canonical(bare)}"

"""Canonical text of a query, from which identities of its results are derived.

Equal parse trees, names compared without case, have equal texts, different ones different texts.
A text stays the same across releases unless the tree changes.  Equivalent queries with different
trees (``a AND b``, ``b AND a``) differ.
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from .match_clause import MatchRecognize
from .pattern_tree import describe, parse_pattern

_SILENT = ("hint", "comments", "_type")


def canonical(node: Any) -> str:
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
    """The canonical text of MATCH_RECOGNIZE over a source, without measures."""
    bare = clause.copy()
    for key in ("measures", "alias", "rows"):
        bare.set(key, None)
    return f"{source} {canonical(bare)}"

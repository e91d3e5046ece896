"""The only way to SQL text that an executor runs: a closed table from node classes to text.

Purpose
    :func:`render` writes a tree that was parsed, checked and bound as the text that DuckDB is
    given.  sqlglot's own generator is not used for that: it prints the text of some tokens as it
    is (collations, units, sizes of types, kinds of joins), so that a quoted name in such a place
    could carry any SQL at all.

Guarantee
    Every piece of the text that came from a user is one of three: an identifier, always in double
    quotes; a literal, in single quotes or all digits; a member of a list in this module or in
    :mod:`.vocabulary`.  A class of node that has no entry, an argument that its entry does not
    name, and a word that is on no list are refused with their position.  Operands are put in
    parentheses wherever precedence could matter, so that the text means what the tree says
    whatever the precedence of DuckDB's grammar.

Layout
    :mod:`.forms` holds for each class the arguments that are understood and the function that
    writes it, which :mod:`.expressions` and :mod:`.queries` fill in.  :mod:`..gate` refuses by the
    same table, before anything is written.

Limits
    Chains of one associative operator are written flat; other nesting costs a few Python frames a
    level, see :mod:`..nesting`.

Reading order: ``vocabulary`` (words), ``forms`` (the table), ``expressions``, ``queries``.
"""

from __future__ import annotations

from . import expressions, queries
from .forms import FORMS, Refused, identifier, literal, render, unknown_argument

__all__ = [
    "FORMS",
    "Refused",
    "expressions",
    "identifier",
    "literal",
    "queries",
    "render",
    "unknown_argument",
]

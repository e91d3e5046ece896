"""SQL text for the executor, from a closed table of node classes.

sqlglot's generator prints some tokens as they are (collations, units, types, kinds of joins), so a
quoted name there could inject SQL.  Here text from a user is only ever an identifier in double
quotes, a literal, or a member of a closed list; anything else is refused with its position.
Operands are parenthesised wherever precedence could matter.

Reading order: ``forms`` (closed lists, the table), ``renderers``.
"""

from __future__ import annotations

from . import renderers
from .forms import FORMS, Refused, identifier, literal, render, unknown_argument

__all__ = [
    "FORMS",
    "Refused",
    "identifier",
    "literal",
    "render",
    "renderers",
    "unknown_argument",
]

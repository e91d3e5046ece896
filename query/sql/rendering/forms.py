"""Table of forms: per node class its permitted arguments and its renderer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp

from ...contract.cancellation import checkpoint
from . import vocabulary as words

__all__ = ["FORMS", "Refused", "identifier", "literal", "render", "unknown_argument"]


class Refused(Exception):
    """A node without a form; its position is that of ``node`` or ``token``."""

    def __init__(self, node: Any, message: str, token: str | None = None) -> None:
        super().__init__(message)
        self.node = node
        self.message = message
        self.token = token


FORMS: dict[type, tuple[frozenset[str], Callable[[Any], str]]] = {}
"""Per node class: permitted arguments, and renderer."""

_ABSENT: tuple[Any, ...] = (None, False, "", [])


def render(node: Any) -> str:
    checkpoint()
    form = FORMS.get(type(node))
    if form is None:
        raise Refused(node, f"{type(node).__name__} is not part of Chronicle's SQL")
    unknown = unknown_argument(node, form[0])
    if unknown is not None:
        raise Refused(node, f"{words.spelled(node, unknown)} is not part of Chronicle's SQL")
    return form[1](node)


def unknown_argument(node: Any, known: frozenset[str]) -> str | None:
    """The first argument that a form does not permit."""
    for key, value in node.args.items():
        if key not in known and value not in _ABSENT:
            return str(key)
    return None


def identifier(name: str, node: Any = None) -> str:
    if not name or "\0" in name:
        raise Refused(node, "a name is neither empty nor does it hold a zero character")
    return '"' + name.replace('"', '""') + '"'


def literal(text: str, node: Any = None) -> str:
    if "\0" in text:
        raise Refused(node, "a text cannot hold a zero character")
    return "'" + text.replace("'", "''") + "'"


def form(*classes: type, takes: str = "this") -> Callable[[Callable[[Any], str]], Any]:
    def register(write: Callable[[Any], str]) -> Callable[[Any], str]:
        for kind in classes:
            FORMS[kind] = (frozenset(takes.split()), write)
        return write

    return register


def word(node: Any, value: Any, known: frozenset[str], what: str) -> str:
    """A member of a closed list, in capitals."""
    text = str(value.name if isinstance(value, exp.Expression) else value).upper()
    if text not in known:
        shown = str(value.name if isinstance(value, exp.Expression) else value)
        raise Refused(node, f"there is no {what} {shown[:40]!r}", shown)
    return text


def listed(nodes: Any) -> str:
    return ", ".join(render(node) for node in nodes)


def names_in_parentheses(nodes: Any) -> str:
    return "(" + ", ".join(name_of(node) for node in nodes) + ")"


def name_of(node: Any) -> str:
    plain = node.this if isinstance(node, exp.Column) and len(node.parts) == 1 else node
    if not isinstance(plain, exp.Identifier):
        raise Refused(node, "expected a name")
    return identifier(plain.name, node)


_ATOMS = (
    exp.Column, exp.Identifier, exp.Literal, exp.RawString, exp.ByteString, exp.Null, exp.Boolean,
    exp.Placeholder, exp.Paren, exp.Anonymous, exp.Cast, exp.TryCast, exp.Case, exp.Array,
    exp.Struct, exp.ToMap, exp.Map, exp.Tuple, exp.Subquery, exp.Star, exp.Extract, exp.Abs,
    exp.Pow, exp.Trim, exp.Substring, exp.StrPosition, exp.StartsWith, exp.RegexpLike,
    exp.RegexpILike, exp.CurrentDate, exp.CurrentTimestamp, exp.CurrentTime, exp.Localtime,
    exp.Localtimestamp, exp.If, exp.Concat, exp.Bracket, exp.PositionalColumn, exp.Any, exp.All,
    exp.Exists, exp.Window, exp.Filter, exp.WithinGroup,
)  # fmt: skip


def operand(node: Any) -> str:
    if isinstance(node, exp.Literal) or (isinstance(node, _ATOMS) and type(node) in FORMS):
        return render(node)
    return f"({render(node)})"


def string(node: Any) -> str:
    if not isinstance(node, exp.Literal) or not node.is_string:
        raise Refused(node, "expected a text in single quotes")
    return render(node)


def integer(node: Any, low: int, high: int, what: str) -> str:
    text = str(node.this) if isinstance(node, exp.Literal) and not node.is_string else ""
    if not (text.isascii() and text.isdigit()) or not low <= int(text) <= high:
        raise Refused(node, f"{what} is an integer of {low} to {high}")
    return text

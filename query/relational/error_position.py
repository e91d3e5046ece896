"""Where in a statement an error of the executor lies: what its message mentions.

Names, functions and values stand for their first use, in a cast if the message is about one;
operators and clauses count only if there is a single candidate.
"""

from __future__ import annotations

import re

from ..sql.dialect import tokens_of

__all__ = ["error_offset"]

_NAMES = (
    re.compile(r"casting from source column (\w+)"),
    re.compile(r"[Cc]ould not (?:convert|parse) string ['\"]([^'\"]*)['\"]"),
    re.compile(r"[Ff]unction with name (\w+)"),
    re.compile(r"'(\w+)\("),
    re.compile(r"\"([^\"]+)\""),
)
_OUT_OF_RANGE = re.compile(r"with value (\S+) can't be cast")
_OPERATOR = re.compile(r"argument types '([^\s\w(]+)\(")
_CLAUSES = re.compile(
    r"\b(CASE|BETWEEN|IN|WHERE|HAVING|QUALIFY|LIMIT|OFFSET|FILTER)\b (?:clause|expression)"
)
_CASTS = ("cast", "::")
_MEANT = {
    "ould not convert": _CASTS,
    "can't be cast": _CASTS,
    "field format": _CASTS,
    "Division by zero": ("/", "//", "%"),
    "Cannot compare values": ("=", "==", "<", ">", "<=", ">=", "<>", "!="),
    "in addition of": ("+",),
    "in subtraction of": ("-",),
    "in multiplication of": ("*",),
    "in division of": ("/", "//"),
    "Set operations": ("union", "except", "intersect"),
    "'array_extract(": ("[",),
}
_CAST_BEFORE = ("cast", "try_cast")


def error_offset(message: str, text: str) -> int | None:
    tokens = tokens_of(text)
    words = [token.text.lower() for token in tokens]
    for pattern in _NAMES:
        found = pattern.search(message)
        if found is None:
            continue
        places = [i for i, word in enumerate(words) if word == found.group(1).lower()]
        if "cast" in message:
            places = [i for i in places if _is_cast(words, i)] or places
        if places:
            return int(tokens[places[0]].start)
    number = _OUT_OF_RANGE.search(message)
    if number is not None:
        for place, word in enumerate(words):
            if word == number.group(1) and _is_cast(words, place):
                return int(tokens[place].start)
    meant: tuple[str, ...] = ()
    for found in (_OPERATOR.search(message), _CLAUSES.search(message)):
        if found is not None:
            meant = (found.group(1).lower(),)
    for phrase, operators in _MEANT.items():
        if phrase in message:
            meant = operators
    places = [i for i, word in enumerate(words) if word in meant]
    return int(tokens[places[0]].start) if len(places) == 1 else None


def _is_cast(words: list[str], at: int) -> bool:
    return words[at + 1 : at + 2] == ["::"] or (at > 1 and words[at - 2] in _CAST_BEFORE)

"""Uniqueness: which events a stream takes for one and the same.

Definition
    With ``unique="device, seq"`` and ``within="1 hour"`` an event is a *duplicate*, and is not
    stored, when the stream holds an event with the same values in ``device`` and ``seq`` whose time
    is not more than an hour away, before or after it.  What counts is the time of the events, not
    when they arrived, and what the stream holds at that moment: a duplicate that was left out is
    not there to be compared with, and the key of an event that was deleted can be stored again.

    The events of one append are taken in order of time, those of one time in the order in which
    they were given, each as if those before it were stored::

        within 10     stored       k at 100
        append        k at 105     left out: 5 from 100
                      k at 112     stored: 12 from 100
                      k at 120     left out: 8 from 112

Equality
    As SQL's GROUP BY compares, but for nulls: -0.0 equals 0.0, NaN equals NaN, and an event with a
    null in its key is like no other.

Limits
    What a stream held when its setting was changed is compared with, and not itself looked through.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import InvalidArgument
from .schema import StreamSchema

__all__ = ["Uniqueness", "key_names", "key_text", "resolved", "stream_settings"]

_NAME = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^",]+?))\s*(,|$)')


@dataclass(frozen=True)
class Uniqueness:
    """What makes an event a duplicate.

    Attributes
    ----------
    columns : tuple of str
        The key, in the schema's names.
    within : int
        Ticks, inclusive.
    """

    columns: tuple[str, ...]
    within: int


def key_names(given: str | Sequence[str]) -> tuple[str, ...]:
    """The columns that a setting names: a list, or a text with commas between them.

    In a text, a name that holds a comma stands in double quotes.

    Raises
    ------
    InvalidArgument
        There is none, one is there twice, or it is no list of names.
    """
    names: tuple[str, ...]
    if isinstance(given, str):
        names = _split(given)
    elif isinstance(given, Sequence) and all(isinstance(name, str) for name in given):
        names = tuple(given)
    else:
        names = ()
    if not names or not all(names):
        raise InvalidArgument(
            f"unique names the columns of a key, such as 'device, seq'; found {given!r}"
        )
    folded = [name.lower() for name in names]
    twice = next((name for i, name in enumerate(names) if name.lower() in folded[:i]), None)
    if twice is not None:
        raise InvalidArgument(f"unique names {twice!r} twice")
    return names


def key_text(names: Sequence[str]) -> str:
    """The text that :func:`key_names` reads as these names."""
    plain = re.compile(r'[^",\s]+')
    return ", ".join(
        name if plain.fullmatch(name) else '"' + name.replace('"', '""') + '"' for name in names
    )


def stream_settings(
    options: Mapping[str, Any] | None,
    unique: str | Sequence[str] | None,
    within: str | int | None,
) -> dict[str, Any]:
    """Settings of a stream with those two, where they are given."""
    settings = dict(options or {})
    if unique is not None:
        settings["unique"] = unique
    if within is not None:
        settings["within"] = within
    return settings


def _split(text: str) -> tuple[str, ...]:
    names, at = [], 0
    while True:
        found = _NAME.match(text, at)
        if found is None:
            return ()
        names.append(found[2] if found[1] is None else found[1].replace('""', '"'))
        if not found[3]:
            return tuple(names)
        at = found.end()


def resolved(names: Sequence[str], schema: StreamSchema) -> tuple[str, ...]:
    """Columns as the schema calls them.

    Raises
    ------
    AttributeNotFound, InvalidArgument
    """
    found = tuple(schema.resolve(name) for name in names)
    for name in found:
        attribute = schema.attribute(name)
        if not attribute.comparable:
            raise InvalidArgument(
                f"unique names {name!r}, which is {attribute.type_name}: such values are not "
                "compared; keep what makes an event unique in columns of its own"
            )
    return found

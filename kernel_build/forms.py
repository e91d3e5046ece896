"""Parser of ``forms.toml``, the argument types for which kernels are compiled::

int64, bool, float64            scalars
int64[:], uint8[:, :]           contiguous writable arrays
const float64[:]                read-only; a writable array fits, too
const int64[any]                of any strides
T[:]                            of each type that ``T`` lists, in a table with ``form``
Task(int64, const uint64[:])    a named tuple, by the name of its class
(int64, float64)                a plain tuple
"""

from __future__ import annotations

import itertools
import re
import sys
from typing import Any

from numba.core import types

_TOKEN = re.compile(r"\s*(\w+|\[[^\]]*\]|[(),])")


class _Reader:
    def __init__(self, text: str, module: str) -> None:
        self.module = module
        self.tokens = _TOKEN.findall(text)
        self.at = 0

    def take(self) -> str:
        self.at += 1
        return str(self.tokens[self.at - 1])

    def next_is(self, token: str) -> bool:
        return self.at < len(self.tokens) and self.tokens[self.at] == token

    def several(self) -> list[Any]:
        items = []
        while not self.next_is(")") and self.at < len(self.tokens):
            items.append(self.one())
            if self.next_is(","):
                self.take()
        return items

    def one(self) -> Any:
        word = self.take()
        const = word == "const"
        if const:
            word = self.take()
        if word == "(":
            return self.tuple_of(None)
        if self.next_is("("):
            self.take()
            return self.tuple_of(word)
        scalar = types.boolean if word == "bool" else getattr(types, word)
        if self.at < len(self.tokens) and self.tokens[self.at].startswith("["):
            dims = self.take()[1:-1].split(",")
            layout = "C" if dims[0].strip() == ":" else "A"
            return types.Array(scalar, len(dims), layout, readonly=const)
        return scalar

    def tuple_of(self, name: str | None) -> Any:
        parts = self.several()
        self.take()
        if name is None:
            return types.Tuple(parts)
        kind = _class_of(name, len(parts), self.module)
        if len(set(parts)) == 1:
            return types.NamedUniTuple(parts[0], len(parts), kind)
        return types.NamedTuple(parts, kind)


def read_form(text: str, module: str) -> tuple[Any, ...]:
    return tuple(_Reader(text, module).several())


def _class_of(name: str, fields: int, module: str) -> Any:
    """The named tuple of this name that is nearest to the kernel's module."""
    distances: dict[Any, int] = {}
    for around in [module for module in sys.modules if module.startswith("chronicle.")]:
        kind = getattr(sys.modules[around], name, None)
        if isinstance(kind, type) and len(getattr(kind, "_fields", ())) == fields:
            pairs = zip(kind.__module__.split("."), module.split("."), strict=False)
            shared = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
            distances[kind] = 100 * (around == module) + shared
    if not distances:
        raise LookupError(f"kernel_build/forms.toml: there is no named tuple {name!r}")
    return max(distances, key=lambda kind: distances[kind])


def fields_of(types_: tuple[Any, ...]) -> list[Any]:
    """The fields of the named tuples of a form, in order."""
    return [
        (getattr(type_, "fields", ()), fields_of(tuple(type_)))
        for type_ in types_
        if isinstance(type_, types.BaseTuple)
    ]

"""The automata of a bank's patterns in flat tables, equal structures once (see ``jumping``)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .cards import Shape

__all__ = ["Automata", "Tables"]

IntArray = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


class Tables(NamedTuple):
    """Automaton ``a`` has positions ``place[a] .. place[a + 1]``, and edges from ``edge[a]`` on.
    Per position: ``first`` (one entry more) to ``member``; per edge: ``target``, ``flag``; the rest
    per automaton: ``gap`` has the bits of positions without a condition, ``alone``: one event can
    match.
    """

    place: IntArray
    edge: IntArray
    first: IntArray
    bit: IntArray
    kind: IntArray
    exits: Words
    star_first: IntArray
    star_last: IntArray
    member: npt.NDArray[np.bool_]
    target: IntArray
    flag: IntArray
    first_bits: Words
    star_bits: Words
    gap: Words
    skip: IntArray
    alone: npt.NDArray[np.bool_]


class Automata:
    def __init__(self) -> None:
        self._number: dict[Shape, int] = {}

    def number(self, shape: Shape) -> int:
        return self._number.setdefault(shape, len(self._number))

    def tables(self) -> Tables:
        shapes = list(self._number)
        words = np.uint64

        def joined(name: str, kind: Any = np.int64) -> Any:
            return np.array([value for each in shapes for value in getattr(each, name)], kind)

        def single(name: str, kind: Any = np.int64) -> Any:
            return np.array([getattr(each, name) for each in shapes], kind)

        def begins(name: str) -> IntArray:
            sizes = [len(getattr(each, name)) for each in shapes]
            return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

        return Tables(
            begins("bit"), begins("target"), joined("first"), joined("bit"), joined("kind"),
            joined("exits", words), joined("star_first"), joined("star_last"),
            joined("member", np.bool_), joined("target"), joined("flag"),
            single("first_bits", words), single("star_bits", words), single("gap", words),
            single("skip"), single("alone", np.bool_),
        )  # fmt: skip

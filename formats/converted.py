"""A converted column: its values, and the values that could not be converted, with reasons."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["Codes", "Converted", "flag"]

Codes = npt.NDArray[np.uint8]
"""Per value 0 if good, else 1 + the index of its reason."""


@dataclass(frozen=True)
class Converted:
    """A conversion's result; values are null where bad, ``{value}`` in a reason stands for them."""

    values: pa.Array
    codes: Codes | None = None
    reasons: tuple[str, ...] = ()

    @property
    def bad(self) -> int:
        return 0 if self.codes is None else int(np.count_nonzero(self.codes))


def flag(codes: Codes, where: npt.NDArray[np.bool_], code: int) -> None:
    codes[where & (codes == 0)] = code

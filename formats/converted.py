"""A column after conversion: its values, and which of them could not be converted.

Purpose
    Converters work on whole columns.  :class:`Converted` carries the outcome so that good rows go
    on and each bad one can be named with its reason, without a Python loop over the good ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["Codes", "Converted", "flag"]

Codes = npt.NDArray[np.uint8]
"""Per value 0 when it is good, else 1 + the position of its reason."""


@dataclass(frozen=True)
class Converted:
    """Outcome of a conversion.

    Attributes
    ----------
    values : pyarrow.Array
        Of the type asked for; null where a value is bad.
    codes : uint8 array, optional
        Which values are bad, and why; None when all are good.
    reasons : tuple of str
        Reason of code 1, 2, ...; ``{value}`` in it stands for the offending value.
    """

    values: pa.Array
    codes: Codes | None = None
    reasons: tuple[str, ...] = ()

    @property
    def bad(self) -> int:
        """Number of bad values."""
        return 0 if self.codes is None else int(np.count_nonzero(self.codes))


def flag(codes: Codes, where: npt.NDArray[np.bool_], code: int) -> None:
    """Give ``code`` to the values at ``where`` that have none yet."""
    codes[where & (codes == 0)] = code

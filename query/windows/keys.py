"""Dense codes for combinations of group key values, across batches.
Equality is that of GROUP BY: null = null, NaN = NaN, -0.0 = 0.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..conditions.key_values import comparable

__all__ = ["KeyTable"]

Words = npt.NDArray[np.int64]


class KeyTable:
    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self._types = tuple(types)
        self._codes: dict[tuple[Any, ...], int] = {}
        self._values: list[list[pa.Array]] = [[pa.nulls(0, type_)] for type_ in types]

    def __len__(self) -> int:
        return len(self._codes)

    def codes(self, columns: Sequence[pa.Array]) -> Words:
        """The code of each row; new combinations get new codes."""
        rows = len(columns[0])
        if not rows:
            return np.empty(0, np.int64)
        plain = [comparable(column) for column in columns]
        local, firsts = _numbered(plain)
        chosen = pa.array(firsts)
        listed = zip(*(column.take(chosen).to_pylist() for column in plain), strict=True)
        known = self._codes
        found = np.empty(len(firsts), np.int64)
        fresh: list[int] = []
        for i, values in enumerate(listed):
            code = known.get(values)
            if code is None:
                code = known[values] = len(known)
                fresh.append(i)
            found[i] = code
        if fresh:
            new = pa.array(firsts[np.array(fresh)])
            for pieces, column in zip(self._values, columns, strict=True):
                pieces.append(column.take(new))
        codes: Words = found[local]
        return codes

    def columns(self, codes: Words) -> list[pa.Array]:
        made = []
        for pieces in self._values:
            if len(pieces) > 1:
                pieces[:] = [pa.concat_arrays(pieces)]
            made.append(pieces[0].take(pa.array(codes)))
        return made

    def keep(self, codes: Words) -> None:
        """Forget all other combinations; ``codes[i]`` becomes i."""
        values = self.columns(codes)
        of_code = list(self._codes)
        self._codes = {of_code[code]: i for i, code in enumerate(codes.tolist())}
        self._values = [[column] for column in values]


def _numbered(columns: Sequence[pa.Array]) -> tuple[Words, Words]:
    local: Words | None = None
    for column in columns:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        encoded = column.dictionary_encode(null_encoding="encode")
        own = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        if local is None:
            local = own
        else:  # both are below the number of rows, so the product has 64 bits
            pairs = pa.array(local * len(encoded.dictionary) + own).dictionary_encode()
            local = pairs.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    assert local is not None
    firsts = np.empty(int(local.max()) + 1, np.int64)
    firsts[local[::-1]] = np.arange(len(local) - 1, -1, -1)
    return local, firsts

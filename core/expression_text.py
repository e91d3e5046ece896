"""Texts of Arrow expressions, which name the columns that they read."""

from __future__ import annotations

import pyarrow.compute as pc


def expression_text(expression: pc.Expression) -> str:
    try:
        return str(expression)
    except UnicodeDecodeError:  # Arrow cuts long texts of lists, also within a character
        serialized = expression.__reduce__()[1][0].to_pybytes()
        return str(serialized.decode("utf-8", "replace"))

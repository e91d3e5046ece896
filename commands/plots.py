"""Decides whether an answer is drawn, and where to."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InvalidArgument

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["draw", "plot_format"]

_FORMATS = ("svg", "html", "png")
WIDTH_MAX = 160


def plot_format(format: str, plot: bool, output: Path | None) -> str | None:
    """``text``, ``svg``, ``html`` or ``png`` for a plot, else None; raises ``InvalidArgument``."""
    if format == "auto" and output is not None and output.suffix.lower()[1:] in _FORMATS:
        format = output.suffix.lower()[1:]
    if format in _FORMATS:
        if output is None:
            raise InvalidArgument(f"--format {format} writes a file: name it with --output")
        return format
    if not plot:
        return None
    if format not in ("auto", "table") or output is not None:
        raise InvalidArgument(
            "--plot draws in the terminal; for a file use --output with .svg, .html or .png"
        )
    return "text"


def draw(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, format: str, output: Path | None
) -> None:
    """Draw an answer as text on stdout, or into a file."""
    import pyarrow as pa

    from .plotting import series_of, terminal_text, write_plot

    table = pa.Table.from_batches(list(batches), schema)
    if format == "text":
        size = shutil.get_terminal_size((78, 24))
        print(terminal_text(series_of(table), min(size.columns, WIDTH_MAX), 18))
        return
    assert output is not None
    write_plot(table, format, output)

"""Rows as a table: with lines and colours on a terminal, plain aligned columns in a pipe.

Guarantee
    A pipe gets every row, as it is computed, one line each; a terminal gets the first so many,
    with a word about the rest.  Nulls read ``NULL``.

Limits
    The widths of the columns in a pipe come from the first batch; a longer value later pushes its
    line out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from ..formats.jsonout import shown_columns

__all__ = ["TERMINAL_ROWS", "plain_table", "terminal_table"]

TERMINAL_ROWS = 100
_SLICE_ROWS = 8192
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def _is_number(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)
    )


def _clean(text: str | None) -> str:
    """One line, without characters that would act on the terminal."""
    if text is None:
        return "NULL"
    if text.isprintable():
        return text
    return _CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[str, ...]]:
    columns = shown_columns(batch)
    yield from zip(*([_clean(text) for text in column] for column in columns), strict=True)


def plain_table(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[str]:
    """Lines of a table without decoration: names, a rule, rows."""
    right = [_is_number(field.type) for field in schema]
    widths: list[int] = []

    def line(cells: Iterable[str]) -> str:
        padded = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(cells, widths, right, strict=True)
        )
        return "  ".join(padded).rstrip()

    for whole in batches:
        for start in range(0, whole.num_rows, _SLICE_ROWS):
            rows = list(_rows(whole.slice(start, _SLICE_ROWS)))
            if not widths:
                names = [_clean(name) for name in schema.names]
                widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
                yield line(names)
                yield "  ".join("-" * width for width in widths)
            yield from map(line, rows)
    if not widths:
        widths = [len(name) for name in schema.names]
        yield line(schema.names)
        yield "  ".join("-" * width for width in widths)


def terminal_table(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, rows_max: int = TERMINAL_ROWS
) -> tuple[Any, int, bool]:
    """A table for a terminal: the renderable, its number of rows, and whether there are more.

    ``rows_max`` 0 stands for all rows.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.ROUNDED, header_style="bold")
    for field in schema:
        table.add_column(
            Text(_clean(field.name)),
            justify="right" if _is_number(field.type) else "left",
            overflow="fold",
            no_wrap=_is_number(field.type) or pa.types.is_temporal(field.type),
        )
    shown = 0
    for whole in batches:
        for start in range(0, whole.num_rows, _SLICE_ROWS):
            for row in _rows(whole.slice(start, _SLICE_ROWS)):
                if rows_max and shown == rows_max:
                    return table, shown, True
                table.add_row(*(Text(cell, style="dim" if cell == "NULL" else "") for cell in row))
                shown += 1
    return table, shown, False

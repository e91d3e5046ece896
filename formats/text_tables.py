"""Rows as tables of text, for a terminal or a pipe.

Numbers and times are never cut: text wraps, and if that does not suffice, columns in the middle are
replaced by one named ``…``.  In a pipe the first batch sets the column widths.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import pyarrow as pa

from .chunks import slices
from .kinds import is_number
from .writers import shown_columns

TERMINAL_ROWS = 100
_SLICE_ROWS = 8192
_WRAPPED = 12
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def _clean(text: str | None) -> str:
    """One line without control characters."""
    if text is None:
        return "NULL"
    if text.isprintable():
        return text
    return _CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


def _rows(batch: pa.RecordBatch) -> list[tuple[str, ...]]:
    columns = shown_columns(batch)
    return list(zip(*([_clean(text) for text in column] for column in columns), strict=True))


def plain_table(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[str]:
    right = [is_number(field.type) for field in schema]
    widths: list[int] = []

    def line(cells: Iterable[str]) -> str:
        padded = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(cells, widths, right, strict=True)
        )
        return "  ".join(padded).rstrip()

    names = [_clean(name) for name in schema.names]
    nothing: list[tuple[str, ...]] = []
    for rows in chain(map(_rows, slices(batches, _SLICE_ROWS)), [nothing]):
        if not widths:
            widths += [max(map(len, column)) for column in zip(names, *rows, strict=True)]
            yield line(names)
            yield "  ".join("-" * width for width in widths)
        yield from map(line, rows)


def terminal_table(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    rows_max: int = TERMINAL_ROWS,
    width: int = 80,
) -> tuple[Any, int, bool, list[str]]:
    """The renderable, its rows, whether there are more, hidden columns; ``rows_max`` 0: all."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    rows, more = _first_rows(batches, rows_max)
    fixed = [is_number(field.type) or pa.types.is_temporal(field.type) for field in schema]
    needed = []
    for at, field in enumerate(schema):
        natural = max((_cell_len(row[at]) for row in rows), default=1)
        whole_name = min(_cell_len(_clean(field.name)), _WRAPPED)
        needed.append(max(natural if fixed[at] else min(natural, _WRAPPED), whole_name))
    shown = _fitting(needed, width)
    table = Table(box=box.ROUNDED, header_style="bold")
    for place in shown:
        if place is None:
            table.add_column("…", min_width=1, style="dim")
            continue
        field = schema.field(place)
        table.add_column(
            Text(_clean(field.name)),
            justify="right" if is_number(field.type) else "left",
            overflow="fold",
            no_wrap=fixed[place],
            min_width=needed[place],
        )
    for row in rows:
        cells = ["…" if place is None else row[place] for place in shown]
        table.add_row(*(Text(cell, style="dim" if cell == "NULL" else "") for cell in cells))
    left_out = [name for at, name in enumerate(schema.names) if at not in shown]
    return table, len(rows), more, left_out


def print_table(rows: pa.Table, whole: bool) -> None:
    """Print rows, and whether these are all."""
    try:
        from rich.console import Console
    except ImportError:
        for line in plain_table(rows.to_batches(), rows.schema):
            print(line)
    else:
        console = Console()
        drawn, _, _, hidden = terminal_table(rows.to_batches(), rows.schema, 0, console.width)
        console.print(drawn)
        if hidden:
            print(f"not shown here, for want of width: {', '.join(hidden)}")
    counted = _counted(rows.num_rows, "row")
    said = counted if whole else f"the first {counted}, there are more"
    print(f"{said}; {_counted(rows.num_columns, 'column')}")


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _first_rows(
    batches: Iterable[pa.RecordBatch], rows_max: int
) -> tuple[list[tuple[str, ...]], bool]:
    rows: list[tuple[str, ...]] = []
    for batch in slices(batches, _SLICE_ROWS):
        rows += _rows(batch)
        if rows_max and len(rows) > rows_max:
            return rows[:rows_max], True
    return rows, False


def records(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, rows_max: int = TERMINAL_ROWS
) -> tuple[list[str], int, bool]:
    """Rows with a line for each value: the lines, the number of rows, whether there are more."""
    rows, more = _first_rows(batches, rows_max)
    names = [_clean(name) for name in schema.names]
    width = max(map(_cell_len, names), default=0)
    padded = [name + " " * (width - _cell_len(name)) for name in names]
    lines = []
    for number, row in enumerate(rows, 1):
        lines.append(f"-[ row {number} ]-".ljust(width + 3, "-"))
        lines += (f"{name} | {cell}" for name, cell in zip(padded, row, strict=True))
    return lines, len(rows), more


def _fitting(needed: list[int], width: int) -> list[int | None]:
    """Positions of the columns to show, from both ends; None where others are hidden."""
    if sum(needed) + 3 * len(needed) + 1 <= width or len(needed) < 2:
        return list(range(len(needed)))
    columns_left = width - 5  # the borders, and the column named …
    first, last = [0], []
    columns_left -= needed[0] + 3
    left, right = 1, len(needed) - 1
    from_end = True
    while left <= right:
        at = right if from_end else left
        if needed[at] + 3 > columns_left:
            break
        columns_left -= needed[at] + 3
        if from_end:
            last.append(at)
            right -= 1
        else:
            first.append(at)
            left += 1
        from_end = not from_end
    return [*first, None, *reversed(last)]


def _cell_len(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len as measured

    return measured(text)

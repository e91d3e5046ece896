"""Writes rows to stdout or a file, in the chosen format.

Tables have lines and colours on a terminal, plain aligned columns in a pipe.  Numbers and times are
never cut: text wraps, and if that does not suffice, columns in the middle are replaced by one named
``…``.  In a pipe the first batch sets the column widths.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from ..errors import ChronicleError, InvalidArgument, StorageFull
from ..formats.kinds import is_number
from ..formats.writers import shown_columns
from .terminal import is_terminal, say

ANSWER_FORMATS = ("table", "json", "ndjson", "csv", "arrow", "parquet")
_BINARY = ("arrow", "parquet")
_SUFFIXES = (
    ".csv", ".json", ".ndjson", ".jsonl", ".parquet", ".pq", ".arrow", ".feather", ".ipc", ".arrows"
)  # fmt: skip
_ARROW_FILES = (".arrow", ".feather", ".ipc")
"""Suffixes of IPC files; a stream is an ``.arrows``."""
_NAMED = 12
"""Most hidden columns that are listed by name."""


def check_format(format: str, output: Path | None) -> str:
    """The format to write; ``auto`` depends on the output file.  Raises ``InvalidArgument``."""
    if format == "auto":
        format = "table"
        if output is not None:
            from ..formats.kinds import suffixes_of

            kind = suffixes_of(output.name)
            if kind is not None and kind.compression is not None:
                raise InvalidArgument(
                    f"output is not compressed here; write {output.stem!r} and compress that"
                )
            suffix = output.suffix.lower()
            if suffix and suffix not in _SUFFIXES:
                raise InvalidArgument(
                    f"a name that ends in {suffix} says no format that is written; end it in "
                    f"{', '.join(_SUFFIXES)}, or say --format"
                )
            format = "csv" if kind is None else kind.format
    if format not in ANSWER_FORMATS:
        raise InvalidArgument(f"--format is one of {', '.join(ANSWER_FORMATS)}; found {format!r}")
    if format in _BINARY and output is None and is_terminal():
        raise InvalidArgument(f"{format} is binary: redirect stdout, or name a file with --output")
    return format


def write_answer(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    format: str,
    *,
    output: Path | None = None,
    rows_max: int | None = None,
    expanded: bool = False,
) -> None:
    """Write rows as they come; a file appears when it is complete.  On a terminal, ``rows_max``
    bounds a table's rows (0: all), and ``expanded`` writes each value on its own line.
    """
    if format == "table" and output is None and is_terminal():
        _show(batches, schema, rows_max, expanded)
        return
    with _opened(output) as out:
        if format == "table":
            for line in plain_table(batches, schema):
                out.write(line.encode() + b"\n")
        else:
            from ..formats.writers import write

            if format == "arrow" and output is not None:
                format = "arrow file" if output.suffix.lower() in _ARROW_FILES else format
            write(batches, schema, format, out, line_end="\n")
        out.flush()


def _show(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, rows_max: int | None, expanded: bool
) -> None:
    from rich.console import Console

    limit = TERMINAL_ROWS if rows_max is None else rows_max
    hidden: list[str] = []
    if expanded:
        lines, rows, more = records(batches, schema, limit)
        for line in lines:
            print(line)
    else:
        console = Console()
        table, rows, more, hidden = terminal_table(batches, schema, limit, console.width)
        console.print(table)
    if more:
        say(f"{rows:,} rows shown, there are more: --max-rows 0 shows all")
    else:
        say(f"{rows:,} row{'' if rows == 1 else 's'}")
    if hidden:
        named = ", ".join(hidden[:_NAMED]) + (", ..." if len(hidden) > _NAMED else "")
        say(
            f"{len(schema) - len(hidden)} of {len(schema)} columns fit here, not {named}: select "
            "fewer, widen the terminal, or take another --format (\\x in the prompt)"
        )


@contextlib.contextmanager
def _opened(output: Path | None) -> Iterator[IO[bytes]]:
    if output is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        return
    if output.exists() and not output.is_file():  # write to a device or a pipe, do not replace it
        try:
            with open(output, "wb") as file:
                yield file
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _cannot_write(output, error) from None
        return
    target = output.resolve()  # keep a symbolic link
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with open(partial, "wb") as file:
            yield file
        os.replace(partial, target)
    except OSError as error:
        raise _cannot_write(output, error) from None
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()


def _cannot_write(output: Path, error: OSError) -> ChronicleError:
    message = f"cannot write {str(output)!r}: {error.strerror or error}"
    return StorageFull(message) if error.errno == errno.ENOSPC else InvalidArgument(message)


def write_rows(rows: list[dict[str, Any]], columns: Mapping[str, str], format: str) -> None:
    """Write a short list of rows; ``columns`` maps names to Arrow type names."""

    schema = pa.schema([(name, pa.type_for_alias(type_)) for name, type_ in columns.items()])
    table = pa.Table.from_pylist(rows, schema)
    write_answer(table.to_batches(), schema, format)


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


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[str, ...]]:
    columns = shown_columns(batch)
    yield from zip(*([_clean(text) for text in column] for column in columns), strict=True)


def plain_table(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[str]:
    right = [is_number(field.type) for field in schema]
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


def _first_rows(
    batches: Iterable[pa.RecordBatch], rows_max: int
) -> tuple[list[tuple[str, ...]], bool]:
    rows: list[tuple[str, ...]] = []
    for whole in batches:
        for start in range(0, whole.num_rows, _SLICE_ROWS):
            rows += _rows(whole.slice(start, _SLICE_ROWS))
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

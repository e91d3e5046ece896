"""Writes rows to stdout or a file, in the chosen format: on a terminal, tables with lines."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from ..errors import ChronicleError, InvalidArgument, StorageFull
from ..formats.text_tables import TERMINAL_ROWS, plain_table, records, terminal_table
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


WIDTH_MAX = 160


def plot_format(format: str, plot: bool, output: Path | None) -> str | None:
    """``text``, ``svg``, ``html`` or ``png`` for a plot, else None; raises ``InvalidArgument``."""
    from ..formats.plots import FORMATS

    if format == "auto" and output is not None and output.suffix.lower()[1:] in FORMATS:
        format = output.suffix.lower()[1:]
    if format in FORMATS:
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
    table = pa.Table.from_batches(list(batches), schema)
    from ..formats.plots import series_of, terminal_text

    if format == "text":
        size = shutil.get_terminal_size((78, 24))
        print(terminal_text(series_of(table), min(size.columns, WIDTH_MAX), 18))
        return
    assert output is not None
    series_of(table).save(output, format)

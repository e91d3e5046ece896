"""An ingest request, the same for every engine, and the counters of an ingest.

``rows == stored + duplicates + bad``, or ``good + bad`` in a dry run.

Policies for bad rows: ``fail`` at the first, ``skip`` and count, or ``quarantine``.  A quarantine
file is NDJSON, by default ``<store>-quarantine/<stream>-<UTC time>.ndjson``::

    {"source": "f.csv", "row": 16, "line": 17, "column": "speed", "value": "abc",
     "reason": "expected a number (double), found 'abc'", "record": "2018-08-01,abc,7"}

It is created with the first bad row, and removed if the ingest stores nothing.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import glob
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

import pyarrow as pa

from ..core.append_result import AppendResult
from ..core.options import parameters_of
from ..errors import IngestError, InvalidArgument, StreamExists
from ..formats.chunks import BadRow, fail
from ..formats.dialect import IngestOptions, StoreOptions
from ..formats.kinds import READ_FORMATS, suffixes_of
from ..formats.layout import Layout
from ..schema import StreamSchema


@dataclass
class IngestReport:
    """Counters of an ingest, updated while it runs.

    Attributes
    ----------
    files, broken_files : int, list of str
        Sources read to their end; errors of abandoned sources, unless ``on_error`` is ``fail``.
    bytes, rows, bad : int
        Raw bytes and rows read, and the bad rows among them.
    stored, late, duplicates : int
        Events stored, those of them older than the newest event, and events skipped by ``unique``.
    count, version : int or None
        Events and commit position of the stream afterwards, if known.
    examples, bad_columns : list of str, Counter
        The first bad rows; how often each column was at fault.
    """

    stream: str
    engine: str = "arrow"
    files: int = 0
    broken_files: list[str] = field(default_factory=list)
    bytes: int = 0
    rows: int = 0
    bad: int = 0
    stored: int = 0
    late: int = 0
    duplicates: int = 0
    count: int | None = None
    version: int | None = None
    seconds: float = 0.0
    created: bool = False
    schema: pa.Schema | None = None
    quarantine: Path | None = None
    examples: list[str] = field(default_factory=list)
    bad_columns: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    dry_run: bool = False

    @property
    def good(self) -> int:
        return self.rows - self.bad

    def add(self, done: AppendResult) -> None:
        self.stored += done.appended
        self.late += done.late
        self.duplicates += done.duplicates

    def statement(self) -> str:
        """What is in the store, as a note to an error."""
        if self.stored == 0:
            return f"nothing was stored in {self.stream!r}"
        return (
            f"{self.stored:,} events are stored in {self.stream!r}, each batch of them whole; the "
            "rest is not"
        )

    def to_dict(self) -> dict[str, Any]:
        inner = ("version", "schema", "examples")
        return {
            **{name: value for name, value in vars(self).items() if name not in inner},
            "bad_columns": dict(self.bad_columns),
            "quarantine": None if self.quarantine is None else str(self.quarantine),
        }


class Progress(Protocol):
    """Callbacks for progress."""

    def phase(self, name: str, total: int | None) -> None:
        """A phase begins; ``total`` is in bytes (reading) or events (storing), if known."""
        ...

    def at(self, done: int) -> None:
        """Progress of the phase, in the unit of its total."""
        ...


class Silent:
    def phase(self, name: str, total: int | None) -> None:
        """Nothing."""

    def at(self, done: int) -> None:
        """Nothing."""


EXAMPLES = 5


def quarantine_path(store: str | os.PathLike[str], stream: str) -> Path:
    """Default path for an ingest that begins now."""
    place = Path(os.path.abspath(store))
    now = dt.datetime.now(dt.timezone.utc).strftime("%Y%m%dT%H%M%S%fZ")
    name = re.sub(r"[^\w.-]", "_", stream)
    return place.with_name(f"{place.name}-quarantine") / f"{name}-{now}.ndjson"


class BadRows:
    """A policy for bad rows; call it with each."""

    def __init__(self, on_error: str, path: Path | None = None) -> None:
        self.count = 0
        self.examples: list[str] = []
        self.columns: Counter[str] = Counter()
        self.path = path if on_error == "quarantine" else None
        self._strict = on_error == "fail"
        self._file: IO[str] | None = None

    def __call__(self, bad: BadRow) -> None:
        if self._strict:
            fail(bad)
        self.count += 1
        self.columns[bad.column or "(the row as a whole)"] += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(str(bad))
        if self.path is not None:
            self._write(self.path, bad)

    def _write(self, path: Path, bad: BadRow) -> None:
        try:
            if self._file is None:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._file = open(path, "x", encoding="utf-8")  # noqa: SIM115 - closed by close()
            self._file.write(bad.to_json() + "\n")
        except FileExistsError:
            raise IngestError(
                f"the quarantine file {path} exists already; name another one"
            ) from None
        except OSError as error:
            raise IngestError(
                f"cannot write the quarantine file {path}: {error.strerror}"
            ) from None

    @property
    def quarantine_file(self) -> Path | None:
        """The quarantine file, if one was written."""
        return self.path if self._file is not None else None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def discard(self) -> None:
        """Remove the file after an ingest that stored nothing."""
        if self._file is not None:
            self._file.close()
            self._file = None
            if self.path is not None:
                with contextlib.suppress(OSError):
                    self.path.unlink()
                    self.path.parent.rmdir()


_NEW_STREAM = "--retention, --codec, --unique and --within"


@dataclass(frozen=True)
class InputSource:
    """A path or ``-``, and its size in bytes if known."""

    path: str
    size: int | None


@dataclass(frozen=True)
class IngestRequest(IngestOptions):
    """An ingest, as requested; also has the attributes of ``IngestOptions``.

    Attributes
    ----------
    inputs : sequence of str
        Files, directories, globs, or ``-`` for standard input.
    stream : str
        The stream to append to.
    bad_rows : str
        Another name of ``on_error``.
    """

    inputs: Sequence[str]
    stream: str
    bad_rows: InitVar[str | None] = field(default=None, kw_only=True)

    def __post_init__(
        self, separator: str | None, null: Sequence[str] | None, bad_rows: str | None
    ) -> None:
        super().__post_init__(separator, null)
        if bad_rows is not None:
            object.__setattr__(self, "on_error", bad_rows)
        if not self.inputs:
            raise InvalidArgument("name at least one file, directory or glob, or - for stdin")
        choices = {each.field: each.option.choices for each in parameters_of(IngestOptions)}
        for what, value, allowed in (
            ("--engine", self.engine, choices["engine"]),
            ("--bad-rows", self.on_error, choices["on_error"]),
            ("--commit", self.commit, choices["commit"]),
            ("--if-exists", self.if_exists, choices["if_exists"]),
            ("--format", self.format, (None, *READ_FORMATS)),
        ):
            if value not in allowed:
                names = ", ".join(name for name in allowed if name is not None)
                raise InvalidArgument(f"{what} is one of {names}; found {value!r}")
        if self.batch_rows < 1:
            raise InvalidArgument(f"--batch-size is at least 1, found {self.batch_rows}")
        if self.quarantine is not None and self.on_error != "quarantine":
            raise InvalidArgument("a quarantine file needs --bad-rows quarantine")
        if self.flatten is not None and (self.engine == "spark" or self.master is not None):
            raise InvalidArgument("--flatten is for --engine arrow")
        if self.master is not None and self.engine == "arrow":
            raise InvalidArgument("--master is for --engine spark")
        if not self.create and self._asks_for_new:
            raise InvalidArgument(f"{_NEW_STREAM} are for a new stream: add --create")
        if not self.create and self.if_exists != "fail":
            raise InvalidArgument(
                "--if-exists goes with --create; without that, events are appended"
            )

    @property
    def _asks_for_new(self) -> bool:
        return self.of_new_stream != StoreOptions().of_new_stream

    def apply_if_exists(self, events: int | None, report: IngestReport) -> None:
        """Apply ``if_exists``; may raise StreamExists."""
        if self.if_exists == "fail":
            held = "" if events is None else f" and has {events:,} events"
            raise StreamExists(
                f"there is a stream {self.stream!r} already{held}; leave out --create, or "
                "add --if-exists append, to append to it"
            )
        if self._asks_for_new:
            report.notes.append(
                f"{_NEW_STREAM} are for a new stream; {self.stream!r} keeps its own"
            )

    def layout(self, target: StreamSchema | None) -> Layout:
        return Layout(self, target=target)


def expand(inputs: Sequence[str]) -> list[InputSource]:
    """The nonempty list of readable sources, in order; InvalidArgument if something is missing.

    Of a directory only files with a format's suffix are read.
    """
    paths: dict[str, None] = {}
    for item in inputs:
        if item == "-":
            paths[item] = None
        elif os.path.isdir(item):
            files = _files_below(item)
            if not files:
                raise InvalidArgument(
                    f"the directory {item!r} has no file with a known suffix (.csv, .json, "
                    ".ndjson, .parquet, .arrow, each also with .gz, .zst or .bz2)"
                )
            paths.update(dict.fromkeys(files))
        elif os.path.exists(item) or not glob.has_magic(item):
            paths[item] = None
        else:
            matches = sorted(glob.glob(item, recursive=True))
            if not matches:
                raise InvalidArgument(f"no file matches {item!r}")
            for match in matches:
                if os.path.isdir(match):
                    paths.update(dict.fromkeys(_files_below(match)))
                else:
                    paths[match] = None
    return [_source(path) for path in paths]


def _files_below(directory: str) -> list[str]:
    files = []
    for root, folders, names in os.walk(directory):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
        files += [
            os.path.join(root, name)
            for name in sorted(names)
            if not name.startswith((".", "_")) and suffixes_of(name) is not None
        ]
    return files


def _source(path: str) -> InputSource:
    if path == "-":
        return InputSource(path, None)
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        raise InvalidArgument(f"there is no file {path!r}") from None
    except OSError as error:
        raise InvalidArgument(f"cannot read {path!r}: {error.strerror or error}") from None
    return InputSource(path, size if os.path.isfile(path) else None)

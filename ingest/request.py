"""An ingest request: the inputs, the stream, and the options; the same for every engine."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass

from ..core.options import parameters_of
from ..errors import InvalidArgument, StreamExists
from ..formats.dialect import IngestOptions
from ..formats.kinds import READ_FORMATS, suffixes_of
from ..formats.layout import Layout
from ..schema import StreamSchema
from .report import IngestReport

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
    """

    inputs: Sequence[str]
    stream: str

    def __post_init__(self, separator: str | None) -> None:
        super().__post_init__(separator)
        if not self.inputs:
            raise InvalidArgument("name at least one file, directory or glob, or - for stdin")
        choices = {each.field: each.option.choices for each in parameters_of(IngestOptions)}
        for what, value, known in (
            ("--engine", self.engine, choices["engine"]),
            ("--on-error", self.on_error, choices["on_error"]),
            ("--commit", self.commit, choices["commit"]),
            ("--if-exists", self.if_exists, choices["if_exists"]),
            ("--format", self.format, (None, *READ_FORMATS)),
        ):
            if value not in known:
                names = ", ".join(name for name in known if name is not None)
                raise InvalidArgument(f"{what} is one of {names}; found {value!r}")
        if self.batch_rows < 1:
            raise InvalidArgument(f"--batch-size is at least 1, found {self.batch_rows}")
        if self.quarantine is not None and self.on_error != "quarantine":
            raise InvalidArgument("a quarantine file needs --on-error quarantine")
        if self.flatten is not None and (self.engine == "spark" or self.master is not None):
            raise InvalidArgument("--flatten is for --engine arrow")
        if self.master is not None and self.engine == "arrow":
            raise InvalidArgument("--master is for --engine spark")
        if not self.create and self._of_new_stream:
            raise InvalidArgument(f"{_NEW_STREAM} are for a new stream: add --create")
        if not self.create and self.if_exists != "fail":
            raise InvalidArgument(
                "--if-exists goes with --create; without that, events are appended"
            )

    @property
    def _of_new_stream(self) -> bool:
        given = (self.retention, self.unique, self.within)
        return self.codec != "lz4" or any(setting is not None for setting in given)

    def found_existing(self, events: int | None, report: IngestReport) -> None:
        """Apply ``if_exists``; may raise StreamExists."""
        if self.if_exists == "fail":
            held = "" if events is None else f" and has {events:,} events"
            raise StreamExists(
                f"there is a stream {self.stream!r} already{held}; leave out --create, or "
                "add --if-exists append, to append to it"
            )
        if self._of_new_stream:
            report.notes.append(
                f"{_NEW_STREAM} are for a new stream; {self.stream!r} keeps its own"
            )

    def layout(self, target: StreamSchema | None) -> Layout:
        return Layout(self, target=target)


def expand(inputs: Sequence[str], *, any_suffix: bool = False) -> list[InputSource]:
    """The nonempty list of readable sources, in order; InvalidArgument if something is missing.

    Of a directory only files with a format's suffix are read, unless ``any_suffix``.
    """
    found: dict[str, None] = {}
    for item in inputs:
        if item == "-":
            found[item] = None
        elif os.path.isdir(item):
            files = _files_below(item, any_suffix)
            if not files:
                raise InvalidArgument(
                    f"the directory {item!r} has no file with a known suffix (.csv, .json, "
                    ".ndjson, .parquet, .arrow, each also with .gz, .zst or .bz2)"
                )
            found.update(dict.fromkeys(files))
        elif os.path.exists(item) or not glob.has_magic(item):
            found[item] = None
        else:
            matches = sorted(glob.glob(item, recursive=True))
            if not matches:
                raise InvalidArgument(f"no file matches {item!r}")
            for match in matches:
                if os.path.isdir(match):
                    found.update(dict.fromkeys(_files_below(match, any_suffix)))
                else:
                    found[match] = None
    return [_source(path) for path in found]


def _files_below(directory: str, any_suffix: bool) -> list[str]:
    files = []
    for root, folders, names in os.walk(directory):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
        files += [
            os.path.join(root, name)
            for name in sorted(names)
            if not name.startswith((".", "_")) and (any_suffix or suffixes_of(name) is not None)
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

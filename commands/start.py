"""What ``chronicle`` says without a command: what can be done next in the present directory."""

from __future__ import annotations

import http.client
import json
import os
import shlex
from collections.abc import Iterator

from ..errors import ChronicleError
from .options import connection_of

SERVER = "127.0.0.1", 8000
_NAMED = 5

SPREADSHEETS = "windows-1252"
"""What spreadsheets write that do not write UTF-8."""


def next_steps() -> Iterator[str]:
    """Lines of text and commands."""
    path = connection_of(None).path
    streams = _streams()
    if streams:
        yield f"The store {path} has {_listed(streams, 'stream')}:"
        yield "  chronicle sql                       a prompt for queries"
        yield f"  chronicle describe {shlex.quote(streams[0])}"
        yield "  chronicle serve                     the console in a browser, REST"
    if _server_answers():
        url = f"http://{SERVER[0]}:{SERVER[1]}"
        yield f"A server answers at {url}:"
        yield f"  chronicle streams --url {url}"
    files = _files(streams)
    if files:
        from ..formats.kinds import stem_of

        yield f"This directory has {_listed(files, 'file')} to load:"
        words = [files[0], "--stream", stem_of(files[0]), *reading_options(files[0]), "--create"]
        yield f"  chronicle ingest {shlex.join(words)}"
    if not streams and not files:
        yield f"There is neither a store at {path} nor a file to load here:"
        yield "  chronicle ingest FILE --stream NAME --time COLUMN --create"
        yield "  chronicle demo                      a tour with generated events"
    yield "All commands: chronicle --help"


def _listed(names: list[str], what: str) -> str:
    shown = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
    return f"{len(names)} {what}{'' if len(names) == 1 else 's'} ({shown})"


def _streams() -> list[str]:
    try:
        with connection_of(None).database() as database:
            return database.streams()
    except ChronicleError:  # there is none, or it is damaged
        return []


def _server_answers() -> bool:
    connection = http.client.HTTPConnection(*SERVER, timeout=0.5)
    try:
        connection.request("GET", "/healthz")
        return set(json.loads(connection.getresponse().read(1000))) == {"status", "version"}
    except (OSError, ValueError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _files(streams: list[str]) -> list[str]:
    """Files that are not loaded yet, as far as the names of streams say."""
    from ..formats.kinds import stem_of, suffixes_of

    names = sorted(entry.name for entry in os.scandir() if entry.is_file())
    known = [name for name in names if name[0] != "." and suffixes_of(name) is not None]
    return [name for name in known if stem_of(name) not in streams]


def reading_options(file: str) -> list[str]:
    """Options of ``chronicle ingest`` that read a file, its time column guessed if it can be."""
    from ..formats.dialect import TextOptions
    from ..formats.layout import Layout
    from ..formats.reader import EventReader, guess_times

    for encoding in (None, SPREADSHEETS):
        words = [] if encoding is None else ["--encoding", encoding]
        try:
            text = TextOptions(encoding=encoding)
            reader = EventReader(file, layout=Layout(timeless=True), text=text)
            rows = next(iter(reader), None)
            reader.close()
        except (ChronicleError, OSError):
            continue
        guess = None if rows is None else guess_times(rows)
        if guess is not None and guess.time is not None:
            words += ["--time", guess.time]
            words += ["--time-of-day", guess.time_of_day] if guess.time_of_day else []
            words += ["--time-format", guess.formats[0]] if guess.formats else []
            return words
    return ["--time", "COLUMN"]

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
        yield f"This directory has {_listed(files, 'file')} to load:"
        yield f"  chronicle ingest {_loading(files[0])} --create"
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


def _loading(file: str) -> str:
    """The arguments of ``chronicle ingest`` for a file, its time column guessed."""
    from ..formats.kinds import stem_of
    from ..formats.layout import Layout
    from ..formats.reader import EventReader, Guess, guess_times

    try:
        reader = EventReader(file, layout=Layout(timeless=True))
        rows = next(iter(reader), None)
        reader.close()
        guess = Guess() if rows is None else guess_times(rows)
    except (ChronicleError, OSError):
        guess = Guess()
    words = [file, "--stream", stem_of(file), "--time", guess.time or "COLUMN"]
    if guess.formats:
        words += ["--time-format", guess.formats[0]]
    return shlex.join(words)

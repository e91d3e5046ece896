"""Messages for people: on stderr, with colours and bars only on a terminal (``NO_COLOR`` is
honoured).
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress as Bars


def is_terminal(stream: Any = None) -> bool:
    """Whether a stream (stdout by default) is a terminal."""
    chosen = sys.stdout if stream is None else stream
    try:
        return bool(chosen.isatty())
    except (AttributeError, ValueError):
        return False


def _paint(text: str, code: str) -> str:
    if is_terminal(sys.stderr) and not os.environ.get("NO_COLOR"):
        return f"\x1b[{code}m{text}\x1b[0m"
    return text


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def warn(text: str) -> None:
    say(f"{_paint('note:', '33')} {text}")


def fail(text: str) -> None:
    say(f"{_paint('error:', '1;31')} {text}")


def human_bytes(count: float) -> str:
    """A number of bytes as text: 3.9 MB."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError


class IngestBar:
    """A progress bar on stderr; nothing without a terminal.  A context manager."""

    def __init__(self) -> None:
        self._bars: Bars | None = None
        self._task: Any = None

    def __enter__(self) -> IngestBar:
        if is_terminal(sys.stderr):
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                Progress,
                TaskProgressColumn,
                TextColumn,
                TimeRemainingColumn,
            )

            self._bars = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TextColumn("{task.fields[done]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._bars.start()
        return self

    def phase(self, name: str, total: int | None) -> None:
        if self._bars is not None:
            self._reading = name == "reading"
            self._task = self._bars.add_task(name, total=total, done="")

    def at(self, done: int) -> None:
        if self._bars is not None and self._task is not None:
            shown = human_bytes(done) if self._reading else f"{done:,} events"
            self._bars.update(self._task, completed=done, done=shown)

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

"""The interface of live queries for statements; ``chronicle.live`` implements it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["Given", "LiveRequest", "LiveStatements"]


@dataclass(frozen=True)
class Given:
    """A constant of a statement or caller.  ``value``: a number, or a time or text as written;
    ``nanoseconds``: length of an interval; ``at``: offset in the text.
    """

    value: Any
    nanoseconds: int | None = None
    at: int | None = None


@dataclass(frozen=True)
class LiveRequest:
    """CREATE LIVE QUERY with folded constants, not yet checked against streams.  ``tree``: the
    parsed SELECT, ``sql`` its text, ``text`` the whole statement; ``start``: ``first``, ``now`` or
    a time; ``idle``: ``never``, a wall-clock length, or None for the default; ``late``: ``correct``
    or ``ignore``; ``every``: interval of EMIT ON CHANGE (None: ON CLOSE); ``at``: offset of the
    name.
    """

    name: str
    tree: Any
    text: str
    sql: str
    into: str | None = None
    start: str | Given = "first"
    delay: Given | None = None
    idle: str | Given | None = None
    late: str = "correct"
    correct_for: Given | None = None
    every: Given | None = None
    options: Mapping[str, Given] = field(default_factory=dict)
    exists_ok: bool = False
    at: int | None = None
    rollup: bool = False


class LiveStatements(Protocol):
    """The live queries of a database."""

    def names(self) -> list[str]:
        """All names, sorted."""

    def rollups(self) -> list[str]:
        """Names of the roll-ups, sorted."""

    def rollup_row(self, name: str) -> dict[str, Any]:
        """A row of SHOW ROLLUPS."""

    def sink_of(self, name: str) -> str:
        """The stream of its results."""

    def create(self, request: LiveRequest) -> bool:
        """Create one; False if it exists and ``exists_ok``."""

    def drop(self, name: str, keep_results: bool) -> None:
        """Drop one, and its results unless they are kept."""

    def pause(self, name: str) -> None:
        """Stop one until it is resumed."""

    def resume(self, name: str) -> None:
        """Continue where it stopped, also after a failure."""

    def refresh(self, name: str, start: Any, end: Any) -> None:
        """Recompute its results in a range of time."""

    def status(self, name: str) -> dict[str, Any]:
        """A row of SHOW LIVE QUERIES."""

    def describe(self, name: str) -> list[tuple[str, str]]:
        """Names and texts that describe one."""

    def explain(self, name: str) -> list[str]:
        """How one is computed, line by line."""

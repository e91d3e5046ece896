"""What statements about live queries ask of the database, and what they say.

Purpose
    :class:`LiveStatements` is carried out above the query layer, by :mod:`chronicle.live`.  A
    :class:`LiveRequest` is a CREATE LIVE QUERY whose constants are known and whose meaning is not
    yet checked against streams.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["Given", "LiveRequest", "LiveStatements"]


@dataclass(frozen=True)
class Given:
    """A constant that a statement, or a caller, has given.

    Attributes
    ----------
    value : int, str or datetime-like
        A number, a time or text as written; of an interval, see ``nanoseconds``.
    nanoseconds : int or None
        Length of an interval.
    at : int or None
        Where it stands in the text.
    """

    value: Any
    nanoseconds: int | None = None
    at: int | None = None


@dataclass(frozen=True)
class LiveRequest:
    """A live query to be created.

    Attributes
    ----------
    tree : sqlglot tree
        The SELECT, as parsed of ``text``.
    text : str
        The statement, for positions.
    sql : str
        The SELECT alone.
    start : str or Given
        ``first``, ``now`` or a time.
    idle : str or Given or None
        ``never``, a length of wall clock, or None for the default.
    late : str
        ``correct`` or ``ignore``.
    every : Given or None
        EMIT ON CHANGE at most this often; None: ON CLOSE.
    at : int or None
        Where the name stands.
    rollup : bool
        Whether it is to be a roll-up.
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
        """Names of all of them, sorted."""

    def rollups(self) -> list[str]:
        """Names of those that are roll-ups, sorted."""

    def rollup_row(self, name: str) -> dict[str, Any]:
        """How one does: the columns of SHOW ROLLUPS."""

    def sink_of(self, name: str) -> str:
        """The stream that holds the results of one."""

    def create(self, request: LiveRequest) -> bool:
        """Make one; False when it exists and may."""

    def drop(self, name: str, keep_results: bool) -> None:
        """End one, and unless they are kept remove its results."""

    def pause(self, name: str) -> None:
        """Stop one until it is resumed."""

    def resume(self, name: str) -> None:
        """Go on where it stopped, after a failure as well."""

    def refresh(self, name: str, start: Any, end: Any) -> None:
        """Make its results in a range of time anew."""

    def status(self, name: str) -> dict[str, Any]:
        """How one does: the columns of SHOW LIVE QUERIES."""

    def describe(self, name: str) -> list[tuple[str, str]]:
        """What one is: names and texts."""

    def explain(self, name: str) -> list[str]:
        """How one is computed, line by line."""

"""The seam to the relational executor: text, inputs and parameters in, batches out.

Purpose
    Joins, grouping, sorting and expressions are DuckDB's work, done in this process
    (:mod:`.executor`) or in a worker (:mod:`.isolated`).  :class:`RelationalExecutor` is what the
    engine asks of either; :func:`translated` says what an error of DuckDB means to the user.

Guarantee
    Both give the same rows, types and errors, with the same positions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from ..errors import QueryCancelled, ResourceLimit, SqlError
from .cancellation import QueryControl
from .dialect import error_at
from .error_position import error_offset
from .scans import Failure, FailureBox, Scanned

__all__ = ["Answer", "RelationalExecutor", "translated"]

MESSAGE_CHARACTERS = 4000


@dataclass
class Answer:
    """A running query.

    Attributes
    ----------
    schema : pyarrow.Schema
        As DuckDB names and types the columns.
    hugeints : tuple of int
        Positions of the columns whose type in DuckDB is HUGEINT or UHUGEINT.
    batches : iterator of RecordBatch
    close : callable
        Ends the query; may be called more than once.
    """

    schema: pa.Schema
    hugeints: tuple[int, ...]
    batches: Iterator[pa.RecordBatch]
    close: Callable[[], None]


class RelationalExecutor(Protocol):
    """DuckDB for one database; safe to use from many threads."""

    def run(
        self,
        sql: str,
        relations: Mapping[str, Scanned],
        values: Mapping[str, Any],
        text: str,
        control: QueryControl,
        failures: FailureBox,
    ) -> Answer:
        """Start a query.

        Parameters
        ----------
        sql : str
            Written by :func:`.dialect.to_text` from a tree that passed the gate.
        relations : mapping of str to ScanDataset
        values : mapping
            Parameters that occur in ``sql``.
        text : str
            What the user wrote, for positions in messages.
        control : QueryControl
        failures : FailureBox
            Shared with the datasets.
        """

    def explain(
        self,
        sql: str,
        relations: Mapping[str, Scanned],
        values: Mapping[str, Any],
        text: str,
        control: QueryControl,
        failures: FailureBox,
        analyze: bool,
    ) -> str:
        """DuckDB's own plan of a query as JSON; with ``analyze`` the query runs."""

    def columns(
        self, sql: str, relations: Mapping[str, Scanned], values: Mapping[str, Any], text: str
    ) -> list[tuple[str, str]]:
        """Names and DuckDB types of a query's columns, without running it."""

    def constant(self, sql: str, values: Mapping[str, Any] | None = None) -> pa.Scalar | None:
        """The value of an expression without columns; None when it has none."""

    def warm(self, count: int) -> None:
        """Be ready for so many queries at once; blocks."""

    def close(self) -> None:
        """End what runs, and remove what was spilled."""


def translated(
    failure: Failure, text: str, control: QueryControl, failures: FailureBox
) -> BaseException:
    """What an error that came out of DuckDB means to the user."""
    if failures.error is not None:
        return failures.error
    kind, message = failure.kind, failure.message[:MESSAGE_CHARACTERS]
    if kind == "interrupted" or control.stopped:
        try:
            control.check()
        except Exception as ended:  # the reason, as the caller knows it
            return ended
        if kind == "interrupted":
            return QueryCancelled("the query was interrupted")
    if kind == "memory":
        return ResourceLimit(
            "the query needs more memory than it may take; narrow its time range, aggregate "
            f"earlier, or raise query_memory_bytes ({_first_line(message)})"
        )
    if kind == "broken":
        return SqlError(f"the query made the executor fail: {_first_line(message)}")
    return _sql_error(message, text)


def _first_line(message: str) -> str:
    return message.strip().splitlines()[0] if message.strip() else ""


def _sql_error(message: str, text: str) -> SqlError:
    """DuckDB's message in the user's own terms, with a position where it names something."""
    told = message[:MESSAGE_CHARACTERS]
    message = told.split("\nLINE ")[0].strip()
    message = re.sub(r"^[A-Z][A-Za-z ]*(?:Error|Exception): ?", "", message)
    message = re.sub(r"\bchronicle_+\d+\b", "the stream", message)
    message = re.split(r"\s*Candidate functions:", " ".join(message.split()))[0]
    return error_at(text, error_offset(told, text), message or "the query cannot be run")

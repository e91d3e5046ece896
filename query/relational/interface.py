"""The interface of the relational executor; in process or in a worker, the results are the same.

An error's position in the statement is found from what its message mentions.  Names, functions and
values stand for their first use, in a cast if the message is about one; operators and clauses count
only if there is a single candidate.

``evaluate`` runs expressions over Arrow columns outside of any query.  The engine sets the executor
for the thread (``evaluated_by``); an isolated one runs the text in a worker, under the statement's
limits.  Otherwise a private single-threaded instance runs it (``admission``), which is replaced
when broken; the statement's time limit interrupts it from ``INTERRUPTED_ROWS`` rows on.  Row order
is kept.  Answers without rows, that is types, are cached.
"""

from __future__ import annotations

import atexit
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from ...core.caches import Lru
from ...core.ownership import LOADING, ModuleLock, leave_to_parent
from ...errors import ChronicleError, QueryCancelled, ResourceLimit, SqlError
from ..contract.cancellation import Held, QueryControl
from ..sql.dialect import error_at, tokens_of
from .scans import Failure, FailureBox, Scanned

_NAMES = (
    re.compile(r"casting from source column (\w+)"),
    re.compile(r"[Cc]ould not (?:convert|parse) string ['\"]([^'\"]*)['\"]"),
    re.compile(r"[Ff]unction with name (\w+)"),
    re.compile(r"'(\w+)\("),
    re.compile(r"\"([^\"]+)\""),
)
_OUT_OF_RANGE = re.compile(r"with value (\S+) can't be cast")
_OPERATOR = re.compile(r"argument types '([^\s\w(]+)\(")
_CLAUSES = re.compile(
    r"\b(CASE|BETWEEN|IN|WHERE|HAVING|QUALIFY|LIMIT|OFFSET|FILTER)\b (?:clause|expression)"
)
_CASTS = ("cast", "::")
_MEANT = {
    "ould not convert": _CASTS,
    "can't be cast": _CASTS,
    "field format": _CASTS,
    "Division by zero": ("/", "//", "%"),
    "Cannot compare values": ("=", "==", "<", ">", "<=", ">=", "<>", "!="),
    "in addition of": ("+",),
    "in subtraction of": ("-",),
    "in multiplication of": ("*",),
    "in division of": ("/", "//"),
    "Set operations": ("union", "except", "intersect"),
    "'array_extract(": ("[",),
}
_CAST_BEFORE = ("cast", "try_cast")


def error_offset(message: str, text: str) -> int | None:
    tokens = tokens_of(text)
    words = [token.text.lower() for token in tokens]
    for pattern in _NAMES:
        match = pattern.search(message)
        if match is None:
            continue
        places = [i for i, word in enumerate(words) if word == match.group(1).lower()]
        if "cast" in message:
            places = [i for i in places if _is_cast(words, i)] or places
        if places:
            return int(tokens[places[0]].start)
    number = _OUT_OF_RANGE.search(message)
    if number is not None:
        for place, word in enumerate(words):
            if word == number.group(1) and _is_cast(words, place):
                return int(tokens[place].start)
    candidates: tuple[str, ...] = ()
    for match in (_OPERATOR.search(message), _CLAUSES.search(message)):
        if match is not None:
            candidates = (match.group(1).lower(),)
    for phrase, operators in _MEANT.items():
        if phrase in message:
            candidates = operators
    places = [i for i, word in enumerate(words) if word in candidates]
    return int(tokens[places[0]].start) if len(places) == 1 else None


def _is_cast(words: list[str], at: int) -> bool:
    return words[at + 1 : at + 2] == ["::"] or (at > 1 and words[at - 2] in _CAST_BEFORE)


MESSAGE_CHARACTERS = 4000
CONSTANTS_MAX = 1000
CONSTANT_LENGTH_MAX = 1000

_ADVICE = re.compile(r"\b(?:SET|PRAGMA) [a-z_]+|\bTRY\(")
"""What DuckDB recommends and Chronicle's SQL does not have."""

_OF_VALUE = "must call SetFallible(). Error: "
"""In messages of DuckDB about a value that a function does not take, though it ends with them."""

logger = logging.getLogger("chronicle.query")


@dataclass
class Answer:
    """A running query; the schema has DuckDB's names and types.  ``hugeints``: positions of HUGEINT
    and UHUGEINT columns; ``jsons``: of JSON columns, which arrive as text; ``close`` ends the query
    and may be called repeatedly.
    """

    schema: pa.Schema
    hugeints: tuple[int, ...]
    batches: Iterator[pa.RecordBatch]
    close: Callable[[], None]
    jsons: tuple[int, ...] = ()


@dataclass(frozen=True)
class RelationalQuery:
    """A query for an executor.  ``sql``: written from a tree that passed the gate; ``relations``:
    inputs by name; ``values``: parameters; ``text``: the user's text, for positions; ``failures``:
    shared with the inputs.
    """

    sql: str
    relations: Mapping[str, Scanned] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    control: QueryControl = field(default_factory=QueryControl)
    failures: FailureBox = field(default_factory=FailureBox)


class RelationalExecutor(ABC):
    """DuckDB for one database; thread-safe."""

    def __init__(self) -> None:
        self._constants: dict[str, pa.Scalar | None] = {}

    @abstractmethod
    def run(self, query: RelationalQuery) -> Answer:
        """Start a query."""

    @abstractmethod
    def evaluate(self, sql: str, tables: Mapping[str, pa.Table], control: QueryControl) -> pa.Table:
        """All rows of a query over tables, in order; see ``evaluation``."""

    @abstractmethod
    def explain(self, query: RelationalQuery, analyze: bool) -> str:
        """DuckDB's own plan of a query as JSON; with ``analyze`` the query runs."""

    @abstractmethod
    def columns(self, query: RelationalQuery) -> list[tuple[str, str]]:
        """Names and DuckDB types of a query's columns, without running it."""

    @abstractmethod
    def warm(self, count: int) -> None:
        """Prepare for so many concurrent queries; blocks."""

    @abstractmethod
    def close(self) -> None:
        """End running queries and remove spilled files."""

    def constant(
        self, sql: str, values: Mapping[str, Any] | None = None, control: QueryControl | None = None
    ) -> pa.Scalar | None:
        """The value of an expression without columns, or None; cached without parameters."""
        if not values and sql in self._constants:
            return self._constants[sql]
        control = control or QueryControl()
        try:
            answer = self.run(
                RelationalQuery(f"SELECT {sql}", values=values or {}, text=sql, control=control)
            )
            (value,) = (row for batch in answer.batches for row in batch.column(0))
        except ChronicleError:
            control.check()
            value = None
        if not values and len(sql) <= CONSTANT_LENGTH_MAX:
            if len(self._constants) > CONSTANTS_MAX:
                self._constants.clear()
            self._constants[sql] = value
        return value

    def serves(self, seconds: float) -> bool:
        """Whether a query is answered within so many seconds."""
        try:
            answer = self.run(RelationalQuery("SELECT 1 AS c", control=QueryControl(seconds)))
            return [row.as_py() for batch in answer.batches for row in batch.column(0)] == [1]
        except ChronicleError:
            logger.exception("the relational executor does not answer")
            return False


def translated(failure: Failure, query: RelationalQuery) -> BaseException:
    control = query.control
    if query.failures.error is not None:
        return query.failures.error
    kind, message = failure.kind, failure.message[:MESSAGE_CHARACTERS]
    if kind == "interrupted":
        try:
            control.check()
        except Exception as ended:  # the actual reason
            return ended
        return QueryCancelled("the query was interrupted")
    if kind == "memory":
        return ResourceLimit(
            "the query needs more memory than it may take; narrow its time range, aggregate "
            f"earlier, or raise query_memory_bytes ({_first_line(message)})"
        )
    if kind == "broken" and _OF_VALUE not in message:
        return SqlError(
            "this query made the relational executor fail, or ran beside one that did; the "
            "executor was started anew: run it again, and write it another way if it fails again"
        )
    return _sql_error(message, query.text)


def _first_line(message: str) -> str:
    return message.strip().splitlines()[0] if message.strip() else ""


def _sql_error(message: str, text: str) -> SqlError:
    shortened = message[:MESSAGE_CHARACTERS]
    message = shortened.split("\nLINE ")[0].split("\nStack Trace:")[0].strip()
    message = message.rpartition(_OF_VALUE)[2]
    message = re.sub(r" when casting from source column [$@]\w+", "", message)
    message = re.sub(r"^[A-Z][A-Za-z ]*(?:Error|Exception): ?", "", message)
    message = re.sub(r"\bchronicle_+\d+\b", "the stream", message)
    message = re.split(r"\n\s*Candidate functions:", message)[0]
    sentences = ""
    for sentence in re.findall(r".+?(?:[.!?](?=\s)|\n|$)\s*", message, re.DOTALL):
        if sentences.count("'") % 2 or not _ADVICE.search(sentence):
            sentences += sentence  # inside quotes it is a value
    message = " ".join(sentences.split())
    if message.startswith("Division by zero"):
        message = f"{message.removesuffix('.')}; guard it with CASE or nullif"
    return error_at(text, error_offset(shortened, text), message or "the query cannot be run")


INTERRUPTED_ROWS = 4096
"""Fewer take a moment, and a thread that watches them would take longer."""
TYPES_MAX = 1000
TEXT_LENGTH_MAX = 4000


class _Evaluator(NamedTuple):
    executor: RelationalExecutor
    control: QueryControl


_evaluator: ContextVar[_Evaluator | None] = ContextVar("evaluator", default=None)
_guard = ModuleLock()
_instance: Any = None
_types: Lru[Any, pa.Table] = Lru(TYPES_MAX)


def evaluate(query: str, **tables: pa.Table) -> pa.Table:
    """Run one SELECT, made of checked expressions, over Arrow tables; raises SqlError."""
    typed = len(query) <= TEXT_LENGTH_MAX and not any(table.num_rows for table in tables.values())
    key = (query, *((name, table.schema) for name, table in tables.items())) if typed else None
    if key is not None and (cached := _types.get(key)) is not None:
        return cached
    evaluator = _evaluator.get()
    if evaluator is None:
        result = evaluate_here(query, tables)
    else:
        result = evaluator.executor.evaluate(query, tables, evaluator.control)
    if key is not None and not result.num_rows:
        _types.put(key, result)
    return result


def evaluated_by(executor: RelationalExecutor, control: QueryControl) -> Held:
    """Make an executor answer ``evaluate`` in this thread and context."""
    return Held(_evaluator, _Evaluator(executor, control))


# ----------------------------------------------------------------------------- in this process


def evaluate_here(
    query: str, tables: Mapping[str, pa.Table], control: QueryControl | None = None
) -> pa.Table:
    with LOADING:
        from .admission import admit, failure_of, is_ctrl_c

    cursor = _cursor()
    rows = max((table.num_rows for table in tables.values()), default=0)
    control = control if control is not None and rows >= INTERRUPTED_ROWS else QueryControl()
    try:
        admit(cursor, query, tables)
        for name, table in tables.items():
            cursor.register(name, table)
        with control.interrupting(cursor.interrupt):
            return cursor.sql(query).to_arrow_table()
    except Exception as error:
        if is_ctrl_c(error):
            raise KeyboardInterrupt from None
        failure = failure_of(error)
        if failure is None:
            if isinstance(error, (pa.ArrowException, RuntimeError)):
                control.check()
            raise
        if failure.kind == "broken":
            _replace()
        raise translated(failure, RelationalQuery("", control=control)) from None
    finally:
        cursor.close()


def _cursor() -> Any:
    global _instance
    with LOADING:
        from .admission import open_empty

    with _guard:
        if _instance is None:
            _instance = open_empty()
            leave_to_parent(_instance)
        return _instance.cursor()


@atexit.register  # kernels outlive the interpreter and would keep the instance alive
def _replace() -> None:
    global _instance
    with _guard:
        _instance = None

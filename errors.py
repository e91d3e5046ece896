"""Every error that Chronicle raises on purpose, and what it means to the outside.

Purpose
    A caller can catch :class:`ChronicleError` and print it: the message says what was expected,
    what was found, where, and what to do next.  Nothing else needs to be known about the inside.

Guarantee
    One root class.  One table, :data:`OUTSIDE`, maps each class to the slug used as the ``type`` of
    an RFC 9457 problem document, to an HTTP status, a process exit code and a class of PEP 249; a
    subclass that is not listed answers as its nearest listed ancestor does.

Limits
    Errors of the operating system that say nothing about Chronicle (a broken pipe, an interrupt)
    are not wrapped.
"""

from __future__ import annotations

from typing import NamedTuple


class ChronicleError(Exception):
    """Root of every error that Chronicle raises on purpose."""


class InvalidArgument(ChronicleError):
    """An argument, option or setting has a value that cannot be used."""


class UnsupportedType(InvalidArgument):
    """A type is outside of what a stream can store."""


class StreamNotFound(ChronicleError):
    """The store has no stream of that name."""


class StreamExists(ChronicleError):
    """The store has a stream of that name already."""


class StreamOwned(ChronicleError):
    """The stream holds the results of live queries, or feeds some: they must not be cut off."""


class AttributeNotFound(ChronicleError):
    """The stream has no attribute of that name."""


class IndexNotFound(ChronicleError):
    """The attribute has no secondary index."""


class IndexExists(ChronicleError):
    """The attribute has a secondary index already."""


class SchemaMismatch(ChronicleError):
    """The columns or types of the data do not fit the stream's schema."""


class InvalidData(ChronicleError):
    """Data that cannot be read as events: an unparsable value, a missing time, a truncated file.

    Parameters
    ----------
    message : str
        What was expected, what was found, what to do.
    row : int, optional
        Position of the first offending row or line, counted from 1.
    """

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


class IngestError(ChronicleError):
    """An ingest stopped; the message says what is in the store and what is not."""


class NotAStore(ChronicleError):
    """The directory is not a Chronicle store, or not one of this version."""


class UnsupportedFormat(NotAStore):
    """The store or file was written by a newer, unknown format version."""


class StoreLocked(ChronicleError):
    """Another process (or another handle of this one) writes to the store."""


class StoreClosed(ChronicleError):
    """The store or stream was used after it had been closed."""


class ReadOnlyStore(ChronicleError):
    """A change was asked of a store that was opened for reading."""


class SnapshotExpired(ChronicleError):
    """A pinned version of a stream is no longer kept; plan the read again."""


class StorageFailed(ChronicleError, OSError):
    """The disk failed to write or to sync; what was acknowledged before is not affected."""


class StorageFull(StorageFailed):
    """No space is left; the change was refused and the store stays readable."""


class CorruptStore(ChronicleError):
    """Stored bytes contradict each other or their checksum."""


class CorruptBlock(CorruptStore):
    """A block does not carry the checksum that it was written with.

    Parameters
    ----------
    message : str
        What was expected and found.
    file : str
        File that holds the block, relative to the store.
    offset : int
        Offset of the block in that file, in bytes.
    """

    def __init__(self, message: str, file: str = "", offset: int = -1) -> None:
        where = f"{file} at byte {offset}: " if file else ""
        super().__init__(f"{where}{message}; run `chronicle check` to see what is affected")
        self.file = file
        self.offset = offset


class SqlError(ChronicleError):
    """A SQL text that cannot be parsed, bound or run.

    Parameters
    ----------
    message : str
        What is wrong and what would be right.
    line, column : int, optional
        Position in the text, both counted from 1.
    """

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        at = f" (line {line}, column {column})" if line is not None else ""
        super().__init__(f"{message}{at}")
        self.reason = message
        self.line = line
        self.column = column
        self.unknown: str | None = None
        """A name in FROM that is no stream, if that is what is wrong."""


class QueryTimeout(ChronicleError):
    """A query ran into its time limit."""


class QueryCancelled(ChronicleError):
    """A query was cancelled by its owner."""


class ResourceLimit(ChronicleError):
    """A request exceeds a configured budget: rows, bytes, steps or memory."""


class WorkerLost(ChronicleError):
    """The process that did an isolated piece of work ended; nothing else is affected.

    Parameters
    ----------
    message : str
    why : {"crash", "memory", "deadline", "start"}
        It died or answered nonsense; all work together took too much memory and it most of it;
        it made no step for too long; none could be started.
    """

    def __init__(self, message: str, why: str = "crash") -> None:
        super().__init__(message)
        self.why = why


class MissingDependency(ChronicleError):
    """An optional part of Chronicle is not installed."""


class Unauthorized(ChronicleError):
    """No token, or one that is unknown or expired."""


class Forbidden(ChronicleError):
    """The token does not allow this."""


class ConnectionFailed(ChronicleError):
    """A Chronicle server could not be reached or broke off."""


class JobFailed(ChronicleError):
    """Long work of a server ended without a result; the message says why."""


class Outside(NamedTuple):
    """How an error looks from outside: problem slug, HTTP status, process exit code, and class of
    PEP 249 (``chronicle.dbapi``).
    """

    slug: str
    status: int
    exit_code: int
    dbapi: str


OUTSIDE: dict[type[ChronicleError], Outside] = {
    ChronicleError: Outside("error", 500, 1, "DatabaseError"),
    InvalidArgument: Outside("invalid-argument", 400, 2, "ProgrammingError"),
    UnsupportedType: Outside("unsupported-type", 400, 1, "NotSupportedError"),
    StreamNotFound: Outside("stream-not-found", 404, 1, "ProgrammingError"),
    StreamExists: Outside("stream-exists", 409, 1, "ProgrammingError"),
    StreamOwned: Outside("stream-owned", 409, 1, "ProgrammingError"),
    AttributeNotFound: Outside("attribute-not-found", 404, 1, "ProgrammingError"),
    IndexNotFound: Outside("index-not-found", 404, 1, "ProgrammingError"),
    IndexExists: Outside("index-exists", 409, 1, "ProgrammingError"),
    SchemaMismatch: Outside("schema-mismatch", 400, 1, "DataError"),
    InvalidData: Outside("invalid-data", 400, 1, "DataError"),
    IngestError: Outside("ingest-failed", 500, 1, "DataError"),
    NotAStore: Outside("not-a-store", 500, 1, "OperationalError"),
    UnsupportedFormat: Outside("unsupported-format", 500, 1, "OperationalError"),
    StoreLocked: Outside("store-locked", 503, 1, "OperationalError"),
    StoreClosed: Outside("store-closed", 503, 1, "InterfaceError"),
    ReadOnlyStore: Outside("read-only-store", 403, 1, "OperationalError"),
    SnapshotExpired: Outside("snapshot-expired", 410, 1, "OperationalError"),
    StorageFull: Outside("storage-full", 507, 1, "OperationalError"),
    StorageFailed: Outside("storage-failed", 500, 1, "OperationalError"),
    CorruptStore: Outside("corrupt-store", 500, 1, "InternalError"),
    CorruptBlock: Outside("corrupt-block", 500, 1, "InternalError"),
    SqlError: Outside("sql-error", 400, 1, "ProgrammingError"),
    QueryTimeout: Outside("query-timeout", 504, 1, "OperationalError"),
    QueryCancelled: Outside("query-cancelled", 499, 1, "OperationalError"),
    ResourceLimit: Outside("resource-limit", 413, 1, "OperationalError"),
    WorkerLost: Outside("worker-lost", 503, 1, "OperationalError"),
    MissingDependency: Outside("missing-dependency", 501, 1, "InterfaceError"),
    Unauthorized: Outside("unauthorized", 401, 1, "OperationalError"),
    Forbidden: Outside("forbidden", 403, 1, "ProgrammingError"),
    ConnectionFailed: Outside("connection-failed", 502, 1, "OperationalError"),
    JobFailed: Outside("job-failed", 500, 1, "OperationalError"),
}


def no_rollup(name: str, names: list[str]) -> StreamNotFound:
    """The error for a roll-up that is not there, with those that are."""
    existing = ", ".join(names) or "there are none yet"
    return StreamNotFound(f"no roll-up {name!r} (there are: {existing})")


def outside(error: ChronicleError | type[ChronicleError]) -> Outside:
    """Look up how an error is shown outside, by its class or its nearest listed ancestor."""
    cls = error if isinstance(error, type) else type(error)
    for ancestor in cls.__mro__:
        kind = OUTSIDE.get(ancestor)
        if kind is not None:
            return kind
    return OUTSIDE[ChronicleError]


class Hint(NamedTuple):
    """What to do next, in the words of each interface; messages have those of the library."""

    library: str
    command: str
    rest: str


HINTS = (
    Hint("; pass params=", "; give it by -p NAME=VALUE", "; give it in params"),
    Hint("pass time_format= s,", "give --time-format s,", "say precision=s,"),
    Hint("pass time_format=", "give --time-format", "say precision="),
    Hint(
        "pass time_zone= ('UTC', or the zone that times without one are of)",
        "give --time-zone UTC, or the zone that times without one are of",
        "send all of them with an offset, or a file with time_zone=UTC (or another zone)",
    ),
    Hint("--encoding ", "--encoding ", "encoding="),
    Hint("--decimal ", "--decimal ", "decimal="),
    Hint("--no-header", "--no-header", "header=false"),
    Hint("--skip N", "--skip N", "skip=N"),
    Hint(
        "raise the limit of columns",
        "raise --max-columns",
        "raise CHRONICLE_MAX_COLUMNS on the server",
    ),
)


def in_words_of(interface: str, text: str) -> str:
    """A message with its hints in the words of an interface: ``command`` or ``rest``."""
    for hint in HINTS:
        text = text.replace(hint.library, getattr(hint, interface))
    return text

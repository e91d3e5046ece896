"""Options of the ``chronicle`` format, parsed once on the driver.

An unknown name is an error with the nearest known name; names are case-insensitive, and Spark's own
options are ignored.  The token never appears in messages or ``repr``.  ``docs/spark.md`` repeats
the table ``OPTIONS``; a test compares the two.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ..core.suggestion import did_you_mean
from ..errors import InvalidArgument


class Option(NamedTuple):
    """One option: its uses, kind, default and meaning."""

    name: str
    uses: str  # letters: r batch read, s streaming read, w batch write, x streaming write
    kind: (
        str  # text, names, time, count (> 0), limit (>= 0), flag, position, number (>= 0), seconds
    )
    default: str
    meaning: str


OPTIONS: tuple[Option, ...] = (
    Option("path", "rswx", "text", "", "store directory, shared by all nodes"),
    Option("url", "rswx", "text", "", "server address, instead of `path`"),
    Option("token", "rswx", "text", "$CHRONICLE_TOKEN", "token for `url`; never shown"),
    Option("timeout", "rswx", "seconds", "60", "seconds to wait for server or writer lock"),
    Option("retries", "rswx", "number", "3", "retries of a server request"),
    Option("stream", "rswx", "text", "", "stream; in batch reads also a view"),
    Option("columns", "rs", "names", "all", "comma-separated columns"),
    Option("startTime", "rw", "time", "first event", "inclusive: ISO 8601 or µs"),
    Option("endTime", "rw", "time", "last event", "exclusive: ISO 8601 or µs"),
    Option("filter", "r", "text", "", "SQL predicate, applied in the store"),
    Option("limit", "r", "limit", "none", "first n events in time order"),
    Option("query", "r", "text", "", "SQL query, run by the executors"),
    Option("numPartitions", "rs", "count", "by size", "target number of partitions"),
    Option("batchSize", "rs", "count", "65536", "rows of an Arrow batch"),
    Option("asOf", "r", "number", "latest", "commit position (version) to read"),
    Option("pushFilters", "r", "flag", "false", "use filters pushed by Spark; unsafe, see above"),
    Option("metricsPath", "r", "text", "", "directory for read metrics of tasks"),
    Option(
        "startingPosition", "s", "position", "earliest", "earliest, latest or a commit position"
    ),
    Option("maxRowsPerTrigger", "s", "count", "unlimited", "events of a micro-batch, about"),
    Option("time", "wx", "text", "", "time column; creates the stream if missing"),
    Option("codec", "wx", "text", "lz4", "codec of a new stream"),
    Option("retention", "wx", "text", "none", "retention of a new stream"),
    Option("unique", "wx", "text", "none", "unique key of a new stream"),
    Option("within", "wx", "text", "none", "time span of `unique`"),
    Option("truncate", "w", "flag", "false", "overwrite replaces all events"),
    Option("replaceWhere", "w", "text", "", "overwrite replaces this SQL range of times"),
    Option(
        "txnAppId", "wx", "text", "", "writer id for idempotence; in a batch needs `txnVersion`"
    ),
    Option("txnVersion", "w", "number", "", "number of the write; not above the last: no effect"),
)

_BY_NAME = {option.name.lower(): option for option in OPTIONS}
_OF_SPARK = {"checkpointlocation", "mode", "mergeschema"}
_USES = {"r": "read", "s": "readStream", "w": "write", "x": "writeStream"}
_TRUE, _FALSE = {"true", "1", "yes", "on"}, {"false", "0", "no", "off"}


def _refuse(option: Option, found: str, expected: str) -> InvalidArgument:
    return InvalidArgument(f"option {option.name!r} expects {expected}, found {found!r}")


def _whole(option: Option, text: str, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        raise _refuse(option, text, "a whole number") from None
    if number < least:
        raise _refuse(option, text, f"a whole number of at least {least}")
    return number


def _names(option: Option, text: str) -> tuple[str, ...]:
    names: list[str] = []
    rest = text.strip()
    while rest:
        if rest[0] in '"`':
            closing = rest.find(rest[0], 1)
            if closing < 0:
                raise _refuse(option, text, f"a closing {rest[0]} after the last name")
            names.append(rest[1:closing])
            rest = rest[closing + 1 :].strip()
            if rest and not rest.startswith(","):
                raise _refuse(option, text, "a comma after each name")
            rest = rest[1:].strip()
            continue
        name, comma, rest = rest.partition(",")
        if not name.strip():
            raise _refuse(option, text, "names separated by commas")
        names.append(name.strip())
        rest = rest.strip()
        if comma and not rest:
            raise _refuse(option, text, "a name after the last comma")
    if not names:
        raise _refuse(option, text, "at least one name")
    return tuple(names)


def _parse(option: Option, text: str) -> object:
    if option.kind == "flag":
        lowered = text.strip().lower()
        if lowered not in _TRUE | _FALSE:
            raise _refuse(option, text, "true or false")
        return lowered in _TRUE
    if option.kind in ("count", "limit", "number"):
        return _whole(option, text, 1 if option.kind == "count" else 0)
    if option.kind == "seconds":
        try:
            seconds = float(text)
        except ValueError:
            seconds = -1.0
        if not 0 < seconds < float("inf"):
            raise _refuse(option, text, "a number of seconds above 0")
        return seconds
    if option.kind == "names":
        return _names(option, text)
    if option.kind == "position":
        lowered = text.strip().lower()
        if not lowered.isdecimal() and lowered not in ("earliest", "latest"):
            raise _refuse(option, text, "earliest, latest or a commit position")
        return lowered if lowered in ("earliest", "latest") else _whole(option, text, 0)
    if not text.strip():
        raise _refuse(option, text, "a value that is not empty")
    return text


@dataclass(frozen=True, repr=False)
class Options:
    """The typed options of one read or write; picklable.  Times are still text."""

    path: str | None = None
    url: str | None = None
    token: str | None = None
    timeout: float = 60.0
    retries: int = 3
    stream: str | None = None
    columns: tuple[str, ...] | None = None
    start_time: str | None = None
    end_time: str | None = None
    filter: str | None = None
    limit: int | None = None
    query: str | None = None
    num_partitions: int | None = None
    batch_size: int = 65_536
    as_of: int | None = None
    push_filters: bool = False
    metrics_path: str | None = None
    starting_position: str | int = "earliest"
    max_rows_per_trigger: int | None = None
    time: str | None = None
    codec: str | None = None
    retention: str | None = None
    unique: str | None = None
    within: str | None = None
    truncate: bool = False
    replace_where: str | None = None
    txn_app_id: str | None = None
    txn_version: int | None = None

    @classmethod
    def parse(cls, raw: Mapping[str, str], use: str) -> Options:
        """Check and convert the options of one use: r, s, w, x as in ``Option``, or a for any."""
        values: dict[str, object] = {}
        for name, text in raw.items():
            option = _BY_NAME.get(name.lower())
            if option is None:
                if name.lower() in _OF_SPARK:
                    continue
                raise _unknown(name, use)
            if use != "a" and use not in option.uses:
                raise InvalidArgument(
                    f"option {option.name!r} is for {_spell(option.uses)}, not for {_USES[use]}"
                )
            values[_python_name(option.name)] = _parse(option, str(text))
        if "url" in values and "token" not in values:
            values["token"] = os.environ.get("CHRONICLE_TOKEN")
        options = cls(**values)  # type: ignore[arg-type]
        options._check(use)
        return options

    def _check(self, use: str) -> None:
        if (self.path is None) == (self.url is None):
            raise InvalidArgument(
                "say where the store is with one of the options 'path' (a directory) and 'url' (a "
                f"server); found {'both' if self.path else 'neither'}"
            )
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise InvalidArgument(
                f"option 'url' expects http://host:port or https://..., found {self.url!r}"
            )
        if self.metrics_path is not None and (self.path is None or self.query is not None):
            raise InvalidArgument(
                "option 'metricsPath' records reads of a stream by its 'path'; a server counts its "
                "own under /metrics, and EXPLAIN ANALYZE tells of a query"
            )
        if self.query is None and self.stream is None:
            raise InvalidArgument("option 'stream' is missing: the name of the stream")
        if self.query is not None:
            clashing = {
                "stream": self.stream,
                "columns": self.columns,
                "startTime": self.start_time,
                "endTime": self.end_time,
                "filter": self.filter,
                "limit": self.limit,
            }
            given = [name for name, value in clashing.items() if value is not None]
            if self.push_filters:
                given.append("pushFilters")
            if self.as_of is not None:
                raise InvalidArgument(
                    "option 'asOf' is for a stream; a query reads the newest commit of each of its "
                    "streams"
                )
            if given:
                raise InvalidArgument(
                    f"option 'query' holds the whole question; put {', '.join(given)} into its SQL"
                )
        ranges = {
            "truncate": self.truncate or None,
            "replaceWhere": self.replace_where,
            "startTime and endTime": self.start_time or self.end_time,
        }
        said = [name for name, value in ranges.items() if value is not None]
        if use == "w" and len(said) > 1:
            raise InvalidArgument(f"options {said[0]} and {said[1]} both say what is replaced")
        if use == "w" and (self.txn_app_id is None) != (self.txn_version is None):
            raise InvalidArgument(
                "options 'txnAppId' and 'txnVersion' belong together; found one of them"
            )

    def __repr__(self) -> str:
        where = f"path={self.path!r}" if self.path is not None else f"url={self.url!r}"
        return f"Options({where}, stream={self.stream!r})"


def _python_name(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def _spell(uses: str) -> str:
    return " and ".join(_USES[letter] for letter in uses)


def _unknown(name: str, use: str) -> InvalidArgument:
    known = [option.name for option in OPTIONS if use == "a" or use in option.uses]
    hint = did_you_mean(name, known) or f"; known are {', '.join(known)}"
    return InvalidArgument(f"unknown option {name!r}{hint}")

"""Options of the ``chronicle`` format, parsed once on the driver.

An unknown name is an error with the nearest known name; names are case-insensitive, and Spark's own
options are ignored.  The token never appears in messages or ``repr``.  ``docs/spark.md`` repeats
the table ``OPTIONS``; a test compares the two.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from ..core.suggestion import did_you_mean
from ..errors import InvalidArgument
from ..schema import split_names


class Option(NamedTuple):
    """One option: its uses, kind, default and meaning."""

    name: str
    uses: str  # letters: r batch read, s streaming read, w batch write, x streaming write
    kind: (
        str  # text, names, time, count (> 0), limit (>= 0), flag, position, number (>= 0), seconds
    )
    default: str
    meaning: str


def _option(uses: str, kind: str, meaning: str, default: Any = None, shown: str = "") -> Any:
    """A field; ``shown`` is its default in words."""
    words = shown or ("" if default is None else str(default).lower())
    return field(default=default, metadata={"option": (uses, kind, words, meaning)})


_OF_SPARK = {"checkpointlocation", "mode", "mergeschema"}
_USES = {"r": "read", "s": "readStream", "w": "write", "x": "writeStream"}
_TRUE, _FALSE = {"true", "1", "yes", "on"}, {"false", "0", "no", "off"}


def _refuse(option: Option, text: str, expected: str) -> InvalidArgument:
    return InvalidArgument(f"option {option.name!r} expects {expected}, found {text!r}")


def _whole(option: Option, text: str, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        raise _refuse(option, text, "a whole number") from None
    if number < least:
        raise _refuse(option, text, f"a whole number of at least {least}")
    return number


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
        names = split_names(text.replace("`", '"'))
        if not names or not all(map(str.strip, names)):
            raise _refuse(option, text, "names separated by commas")
        return names
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

    path: str | None = _option("rswx", "text", "store directory, shared by all nodes")
    url: str | None = _option("rswx", "text", "server address, instead of `path`")
    token: str | None = _option(
        "rswx", "text", "token for `url`; never shown", shown="$CHRONICLE_TOKEN"
    )
    timeout: float = _option(
        "rswx", "seconds", "seconds to wait for server or writer lock", 60.0, shown="60"
    )
    retries: int = _option("rswx", "number", "retries of a server request", 3)
    stream: str | None = _option("rswx", "text", "stream; in batch reads also a view")
    columns: tuple[str, ...] | None = _option("rs", "names", "comma-separated columns", shown="all")
    start_time: str | None = _option("rw", "time", "inclusive: ISO 8601 or µs", shown="first event")
    end_time: str | None = _option("rw", "time", "exclusive: ISO 8601 or µs", shown="last event")
    filter: str | None = _option("r", "text", "SQL predicate, applied in the store")
    limit: int | None = _option("r", "limit", "first n events in time order", shown="none")
    query: str | None = _option("r", "text", "SQL query, run by the executors")
    num_partitions: int | None = _option(
        "rs", "count", "target number of partitions", shown="by size"
    )
    batch_size: int = _option("rs", "count", "rows of an Arrow batch", 65536)
    as_of: int | None = _option("r", "number", "commit position (version) to read", shown="latest")
    push_filters: bool = _option(
        "r", "flag", "use filters pushed by Spark; unsafe, see above", False
    )
    starting_position: str | int = _option(
        "s", "position", "earliest, latest or a commit position", "earliest"
    )
    max_rows_per_trigger: int | None = _option(
        "s", "count", "events of a micro-batch, about", shown="unlimited"
    )
    time: str | None = _option("wx", "text", "time column; creates the stream if missing")
    codec: str | None = _option("wx", "text", "codec of a new stream", shown="lz4")
    retention: str | None = _option("wx", "text", "retention of a new stream", shown="none")
    unique: str | None = _option("wx", "text", "unique key of a new stream", shown="none")
    within: str | None = _option("wx", "text", "time span of `unique`", shown="none")
    truncate: bool = _option("w", "flag", "overwrite replaces all events", False)
    replace_where: str | None = _option("w", "text", "overwrite replaces this SQL range of times")
    txn_app_id: str | None = _option(
        "wx", "text", "writer id for idempotence; in a batch needs `txnVersion`"
    )
    txn_version: int | None = _option(
        "w", "number", "number of the write; not above the last: no effect"
    )

    @classmethod
    def parse(cls, raw: Mapping[str, str], use: str) -> Options:
        """Check and convert the options of one use: r, s, w, x as in ``Option``, or a for any."""
        values: dict[str, object] = {}
        for name, text in raw.items():
            if name.lower() in _OF_SPARK:
                continue
            if name.lower() not in _FIELDS:
                raise _unknown(name, use)
            field_name, option = _FIELDS[name.lower()]
            if use != "a" and use not in option.uses:
                raise InvalidArgument(
                    f"option {option.name!r} is for {_spell(option.uses)}, not for {_USES[use]}"
                )
            values[field_name] = _parse(option, str(text))
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
        if self.query is None and self.stream is None:
            raise InvalidArgument("option 'stream' is missing: the name of the stream")
        if self.query is not None:
            if self.as_of is not None:
                raise InvalidArgument(
                    "option 'asOf' is for a stream; a query reads the newest commit of each of its "
                    "streams"
                )
            beside = self.given(
                "stream", "columns", "start_time", "end_time", "filter", "limit", "push_filters"
            )
            if beside:
                raise InvalidArgument(
                    f"option 'query' holds the whole question; put {', '.join(beside)} into its SQL"
                )
        ranges = self.given("truncate", "replace_where", "start_time", "end_time")
        if use == "w" and len(ranges) > 1 and ranges != ["startTime", "endTime"]:
            raise InvalidArgument(f"options {ranges[0]} and {ranges[1]} both say what is replaced")
        if use == "w" and (self.txn_app_id is None) != (self.txn_version is None):
            raise InvalidArgument(
                "options 'txnAppId' and 'txnVersion' belong together; found one of them"
            )

    def given(self, *names: str) -> list[str]:
        """The options of these fields that are set and no false flag."""
        values = ((name, getattr(self, name)) for name in names)
        return [_option_name(name) for name, v in values if v is not None and v is not False]

    def __repr__(self) -> str:
        where = f"path={self.path!r}" if self.path is not None else f"url={self.url!r}"
        return f"Options({where}, stream={self.stream!r})"


def _option_name(field_name: str) -> str:
    first, *rest = field_name.split("_")
    return first + "".join(word.capitalize() for word in rest)


OPTIONS = tuple(
    Option(_option_name(each.name), *each.metadata["option"]) for each in fields(Options)
)
_FIELDS = {
    option.name.lower(): (each.name, option)
    for each, option in zip(fields(Options), OPTIONS, strict=True)
}


def _spell(uses: str) -> str:
    return " and ".join(_USES[letter] for letter in uses)


def _unknown(name: str, use: str) -> InvalidArgument:
    names = [option.name for option in OPTIONS if use == "a" or use in option.uses]
    hint = did_you_mean(name, names) or f"; known are {', '.join(names)}"
    return InvalidArgument(f"unknown option {name!r}{hint}")

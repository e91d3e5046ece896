"""Group commit: small appends that wait at the same time become one commit. ::

    event loop     A ─┐  B ─ C ─ D ─┐           E ─┐
    a thread          └ [A] ─ sync ─┴ [B C D] ─ sync ┴ [E] ...
                                    answers A      answers B C D

Each stream and durability level has one commit at a time, so answers come in the order of the
appends.  A commit takes one append slot, charged to the client that waited longest.

When its answer is sent, a body is stored whole, once and with the durability it asked for, or not
at all.  A bad body does not affect others: one with a value that does not fit is sent to the full
parser; if a batch fails as a whole, each body is stored alone.  Errors of the disk go to all.
Bodies of one commit share its version and ``count``; an event is late if it is older than what was
stored before.

``SmallReader`` reads small JSON bodies on the event loop; all others go to a worker process.
``SmallReader.columns`` takes the values of a body in microseconds, ``SmallReader.batch`` makes one
Arrow batch from many bodies.  What this reader accepts, the full parser (``bodies``) reads
as the same events.  It declines whatever it is not certain of: names or types that are not the
stream's, duplicate names, text where a number is expected, digits that a type does not hold, a time
without its unit, times with an offset mixed with times without, a signed zero that the type lacks;
also decimals, dates, binaries, and bodies beyond ``BYTES_MAX`` or ``VALUES_MAX``.  The full parser
words all errors.  Only orjson sees the bytes.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from ...catalog.streams import Stream, handle_of
from ...core.append_result import AppendResult
from ...core.caches import Lru
from ...errors import InvalidData, SchemaMismatch
from ...formats.convert import convert
from ...formats.times import TimeRule, parse_time_format
from ...schema import StreamSchema
from ...store.tail import ticks_of
from .bodies import time_format_of

if TYPE_CHECKING:
    from .state import Server

BYTES_MAX = 32 << 10
"""Longest body: about a millisecond of the event loop."""

VALUES_MAX = 16 << 10

_NULL = type(None)
_OFFSET = re.compile(r"[Tt ].*[Zz+-]")
_NEGATIVE_ZERO = re.compile(rb"[\s:,\[]-0")


class SmallBody(NamedTuple):
    rows: int
    columns: tuple[list[Any], ...]


class _Column(NamedTuple):
    name: str
    target: pa.DataType
    json_type: pa.DataType  # type of the JSON values
    kinds: frozenset[type]  # Python types of the values
    required: bool
    rule: TimeRule | None


class SmallReader:
    """Reads bodies for one schema and ``time_format`` (what numbers mean as times); thread-safe."""

    def __init__(self, schema: StreamSchema, time_format: str) -> None:
        self.schema = schema
        rule = parse_time_format(time_format)
        columns = [_column_of(schema, position, rule) for position in range(len(schema.names))]
        self._columns = [column for column in columns if column is not None]
        self.usable = len(self._columns) == len(columns)
        self._names = frozenset(schema.names)
        self._unsigned = any(pa.types.is_unsigned_integer(a.type) for a in schema.attributes)

    def columns(self, body: bytes, *, lines: bool) -> SmallBody | None:
        """The values of a body; None: the full parser must read it.  ``lines``: NDJSON."""
        if not self.usable or (self._unsigned and _NEGATIVE_ZERO.search(body)):
            return None
        try:
            if lines:
                texts = body.split(b"\n")
                records = [orjson.loads(text) for text in texts if text and not text.isspace()]
            else:
                records = orjson.loads(body)
                if type(records) is dict:
                    records = [records]
        except orjson.JSONDecodeError:
            return None
        if type(records) is not list or not records:
            return None
        if len(records) * len(self._columns) > VALUES_MAX:
            return None
        strings = 0
        for record in records:
            if type(record) is not dict or not record.keys() <= self._names:
                return None
            strings += len(record)
        columns = []
        for column in self._columns:
            name = column.name
            values = [record.get(name) for record in records]
            kinds = set(map(type, values))
            if not kinds <= column.kinds:
                return None
            if str in kinds:
                strings += sum(type(value) is str for value in values)
                if column.rule is not None and len(values) > 1 and _mixes_offsets(values):
                    return None
            columns.append(values)
        # Of a duplicate name only the last value is seen, but its quotes still count.
        if not _has_strings(body, strings):
            return None
        return SmallBody(len(records), tuple(columns))

    def batch(self, bodies: Sequence[SmallBody]) -> tuple[pa.RecordBatch, npt.NDArray[np.bool_]]:
        """Concatenate bodies into a batch, with a mask of bad rows, whose unconvertible values are
        null.  Raises ValueError or OverflowError if a value exceeds every type that its column can
        be read as.
        """
        rows = sum(body.rows for body in bodies)
        bad = np.zeros(rows, np.bool_)
        arrays = []
        for position, column in enumerate(self._columns):
            if len(bodies) == 1:
                values = bodies[0].columns[position]
            else:
                values = list(chain.from_iterable(body.columns[position] for body in bodies))
            array = pa.array(values, column.json_type)
            if pa.types.is_float64(column.json_type):
                bad |= _inexact(array, column.target)
            done = convert(array, column.target, rule=column.rule, required=column.required)
            if done.codes is not None:
                bad |= done.codes != 0
            arrays.append(done.values)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema.arrow), bad


def _column_of(schema: StreamSchema, position: int, rule: TimeRule) -> _Column | None:
    """How to read a column; None where only the full parser can: some types, defaults."""
    attribute = schema.attributes[position]
    if attribute.default is not None:
        return None
    target, is_time = attribute.type, attribute.name == schema.time
    kinds: set[type] = {int}
    own: TimeRule | None = rule if is_time else None
    type_ = pa.int64()
    if pa.types.is_timestamp(target):
        own = rule if rule.kind == "epoch" else TimeRule("iso")
        if own.kind == "iso":
            kinds, type_ = {str}, pa.string()
    elif pa.types.is_uint64(target):
        type_ = pa.uint64()
    elif pa.types.is_float32(target) or pa.types.is_float64(target):
        kinds, type_ = {int, float}, pa.float64()
    elif pa.types.is_boolean(target):
        kinds, type_ = {bool}, pa.bool_()
    elif pa.types.is_string(target) or pa.types.is_large_string(target):
        kinds, type_ = {str}, target
    elif not pa.types.is_integer(target):
        return None
    if attribute.nullable:
        kinds.add(_NULL)
    return _Column(attribute.name, target, type_, frozenset(kinds), not attribute.nullable, own)


def _mixes_offsets(texts: list[str | None]) -> bool:
    return len({_OFFSET.search(text) is None for text in texts if text is not None}) > 1


def _has_strings(body: bytes, count: int) -> bool:
    """Whether a body holds exactly ``count`` strings, names included."""
    quotes = body.count(b'"')
    if b"\\" in body:
        if b"\\\\" in body:
            return False  # declined: which quotes are escaped is not worth parsing
        quotes -= body.count(b'\\"')
    return quotes == 2 * count


def _inexact(values: pa.Array, target: pa.DataType) -> npt.NDArray[np.bool_]:
    """Numbers that the full parser might read differently: out of range; for ``float32``, which it
    parses from the digits, half-way between two values, or subnormal.
    """
    numbers = values.fill_null(0.0).to_numpy(zero_copy_only=False)
    bad: npt.NDArray[np.bool_] = ~np.isfinite(numbers)
    if pa.types.is_float32(target):
        size = np.abs(numbers)
        bad |= (size > np.finfo(np.float32).max) | ((size < np.finfo(np.float32).tiny) & (size > 0))
        bad |= (numbers.view(np.int64) & 0x1FFF_FFFF) == 0x1000_0000
    return bad


VALUES_TOGETHER_MAX = 64 << 10
READERS_KEPT = 256

_Key = tuple[object, SmallReader, str | None]


@dataclass(frozen=True)
class Stored:
    """Result of a body; ``waited_s`` is the time before its commit, ``stored_s`` the commit's
    duration.
    """

    late: int
    count: int
    version: int
    waited_s: float
    stored_s: float


_Outcome = tuple[int, int, int] | Exception | None
"""Late events, count and version; the exception; or None: the full parser must read it."""


@dataclass(eq=False)
class _Waiting:
    """A body whose request waits; the answer None means that the full parser must read it."""

    body: SmallBody
    client: str
    answer: asyncio.Future[Stored | None]
    since: float = field(default_factory=time.perf_counter)

    def settle(self, outcome: _Outcome, begun: float, took: float) -> None:
        if self.answer.done():
            return
        if isinstance(outcome, tuple):
            self.answer.set_result(Stored(*outcome, begun - self.since, took))
        elif outcome is None:
            self.answer.set_result(None)
        else:
            self.answer.set_exception(outcome)


class Gathering:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._readers: Lru[tuple[int, str], SmallReader] = Lru(READERS_KEPT)
        self._waiting: dict[_Key, list[_Waiting]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def reader(self, stream: Stream, precision: str | None) -> SmallReader:
        schema = stream.event_schema
        key = (id(schema), time_format_of(schema, precision))
        reader = self._readers.get(key)
        if reader is None or reader.schema is not schema:
            reader = SmallReader(schema, key[1])
            self._readers.put(key, reader)
        return reader

    async def append(
        self,
        stream: Stream,
        reader: SmallReader,
        body: SmallBody,
        durability: str | None,
        client: str,
    ) -> Stored | None:
        """Store a body; None: the full parser must read it.  On an error nothing is stored."""
        key = (handle_of(stream), reader, durability)
        mine = _Waiting(body, client, asyncio.get_running_loop().create_future())
        waiting = self._waiting.get(key)
        if waiting is None:
            self._waiting[key] = [mine]
            task = asyncio.create_task(self._run(key, stream))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            waiting.append(mine)
        return await mine.answer

    async def _run(self, key: _Key, stream: Stream) -> None:
        server, (_, reader, durability) = self._server, key
        try:
            while self._waiting[key]:
                group: list[_Waiting] = []
                try:
                    async with server.appends.held(self._waiting[key][0].client):
                        group = self._next(key)
                        begun = time.perf_counter()
                        outcomes = await server.call(_store, stream, reader, group, durability)
                except Exception as error:  # no slot, or the threads have ended
                    outcomes = [error] * len(group or (group := self._next(key)))
                took = time.perf_counter() - begun
                for each, outcome in zip(group, outcomes, strict=True):
                    each.settle(outcome, begun, took)
        finally:
            for each in self._waiting.pop(key):  # only on a hard stop
                each.answer.cancel()

    def _next(self, key: _Key) -> list[_Waiting]:
        waiting = self._waiting[key]
        width = len(waiting[0].body.columns)
        values_left = VALUES_TOGETHER_MAX // width
        end = 0
        for end, each in enumerate(waiting):
            values_left -= each.body.rows
            if values_left < 0 and end:
                break
        else:
            end += 1
        group, self._waiting[key] = waiting[:end], waiting[end:]
        return group


def _store(
    stream: Stream, reader: SmallReader, group: list[_Waiting], durability: str | None
) -> list[_Outcome]:
    try:
        batch, bad = reader.batch([each.body for each in group])
    except (ValueError, OverflowError):
        return _alone(stream, reader, group, durability)
    rows = np.array([each.body.rows for each in group])
    starts = np.cumsum(rows) - rows
    if bad.any():
        accepted = ~np.logical_or.reduceat(bad, starts)
        if not accepted.any():
            return [None] * len(group)
        good = [each for each, keep in zip(group, accepted, strict=True) if keep]
        done = iter(_store(stream, reader, good, durability))
        return [next(done) if keep else None for keep in accepted]
    try:
        result = stream.append(batch, durability=durability)
    except (SchemaMismatch, InvalidData):
        return _alone(stream, reader, group, durability)
    except Exception as error:
        return [error] * len(group)
    late = _late(batch, reader, result, starts)
    return [(int(few), result.count, result.version) for few in late]


def _alone(
    stream: Stream, reader: SmallReader, group: list[_Waiting], durability: str | None
) -> list[_Outcome]:
    if len(group) == 1:
        return [None]
    return [_store(stream, reader, [each], durability)[0] for each in group]


def _late(
    batch: pa.RecordBatch, reader: SmallReader, result: AppendResult, starts: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    if not result.late or result.newest is None:
        return np.zeros(len(starts), np.int64)
    older = ticks_of(batch, reader.schema) < result.newest
    return np.add.reduceat(older.astype(np.int64), starts)

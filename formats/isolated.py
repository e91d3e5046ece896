"""Reading untrusted events in workers (``decoder.py``), as ``EventReader`` and ``look`` would here.

Everything that a worker sends is validated.  A file that needs too much memory is refused; a worker
that dies, sends invalid messages or is silent too long affects only its file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pyarrow as pa

from .. import errors
from ..errors import ChronicleError, ResourceLimit
from ..isolation.batches import schema_of, unpack
from ..isolation.channel import ChannelClosed, Garbage
from ..isolation.pool import PoolSpec, WorkerLease, open_pool
from .chunks import BadRow, BadRowPolicy, fail
from .layout import Layout
from .reader import Look

SILENCE_S = 60.0
READING_S = 120.0
_MAY_RAISE = {"InvalidData", "SchemaMismatch", "InvalidArgument", "UnsupportedType"}
_MAY_RAISE |= {"ResourceLimit", "AttributeNotFound", "MissingDependency"}


_TEXT, _MAYBE = (str,), (str, type(None))
_BAD_ROW: dict[str, tuple[type, ...]] = {
    **{"source": _TEXT, "row": (int,), "reason": _TEXT, "record": _TEXT},
    **{"line": (int, type(None)), "column": _MAYBE, "value": _MAYBE},
}


_LOOK: dict[str, tuple[type, ...]] = {
    **{"format": _TEXT, "time": _MAYBE, "time_format": (str, list, type(None))},
    **{"looked_at": (int,), "bad": (int,), "notes": (list,)},
    **{"time_formats": (list,), "time_of_day": _MAYBE},
}

Answer = TypeVar("Answer")


class IsolatedReader:
    """A thread-safe pool of workers that read events.

    A file may take ``memory_bytes`` (all together four times that) and ``reading_s``, including the
    time in which its batches are taken; ``silence_s`` is the longest wait for a message.
    """

    def __init__(
        self, memory_bytes: int, silence_s: float = SILENCE_S, reading_s: float = READING_S
    ) -> None:
        self._memory_bytes = memory_bytes
        self._silence_s = silence_s
        self._reading_s = reading_s
        self.pool = open_pool(
            PoolSpec(
                entry="chronicle.formats.decoder",
                memory_bytes=memory_bytes,
                shared_bytes=memory_bytes * 4,
            )
        )

    def close(self) -> None:
        self.pool.close()

    def events(
        self,
        source: int | bytes,
        format: str | None,
        *,
        layout: Layout,
        on_bad: BadRowPolicy = fail,
        name: str = "body",
        encoding: str | None = None,
        decoded_max: int = 1 << 62,
        reading_s: float | None = None,
        **options: Any,
    ) -> Iterator[pa.RecordBatch]:
        """Batches of a layout, which learns from the source as with a local reader.

        ``source`` is bytes or a seekable descriptor, which stays open; ``encoding`` is decompressed
        to at most ``decoded_max`` bytes.
        """
        job: dict[str, Any] = {"job": "read", "format": format, "layout": layout, "name": name}
        job |= {"encoding": encoding, "decoded_max": decoded_max, "options": options}
        target = None if layout.target is None else layout.target.arrow
        schema = target

        def take(message: dict[str, Any], data: pa.Buffer | None) -> pa.RecordBatch | None:
            nonlocal schema
            for row in _bad_rows(message.get("bad", [])):
                on_bad(row)
            if "columns" in message and target is None:
                schema = _adopt(layout, message["columns"])
            batch = None
            if "batch" in message:
                if schema is None:
                    raise Garbage("the worker does not say what its rows are")
                batch = unpack(schema, message["batch"], data)
            elif not message.keys() & {"bad", "end"}:
                raise Garbage("the worker's answer is no message")
            if "settled" in message:
                _adopt(layout, message["settled"])
            for about, text in _texts(message.get("notes", {})).items():
                layout.note(about, text)
            return batch

        for batch in self._answers(job, source, take, reading_s):
            if batch is not None:
                yield batch

    def look(
        self,
        source: int | bytes,
        format: str | None,
        *,
        name: str = "body",
        encoding: str | None = None,
        decoded_max: int = 1 << 62,
        **options: Any,
    ) -> Look:
        job: dict[str, Any] = {"job": "look", "format": format, "name": name}
        job |= {"encoding": encoding, "decoded_max": decoded_max, "options": options}

        def take(message: dict[str, Any], data: pa.Buffer | None) -> Look:
            try:
                fields = message["look"]
                rows = unpack(schema_of(message["columns"]), message["batch"], data)
                preview = Look(**{**fields, "examples": _bad_rows(fields["examples"])}, rows=rows)
            except (TypeError, KeyError) as error:
                raise Garbage(f"the worker's look is none ({error})") from None
            odd = [
                part for part, kinds in _LOOK.items() if type(getattr(preview, part)) not in kinds
            ]
            if odd or "end" not in message:
                raise Garbage(f"the worker's look is none ({', '.join(odd) or 'it goes on'})")
            _texts(dict(enumerate(preview.notes)))
            _texts(dict(enumerate(preview.time_formats)))
            if isinstance(preview.time_format, list):
                _texts(dict(enumerate(preview.time_format)))
            return preview

        (preview,) = self._answers(job, source, take)
        return preview

    def _answers(
        self,
        job: dict[str, Any],
        source: int | bytes,
        take: Callable[[dict[str, Any], pa.Buffer | None], Answer],
        reading_s: float | None = None,
    ) -> Iterator[Answer]:
        lease = self.pool.lease(self._reading_s if reading_s is None else reading_s)
        try:
            if isinstance(source, int):
                lease.channel.send({**job, "size": 0}, file=source)
            else:
                lease.channel.send({**job, "size": len(source)}, [source])
            ended = False
            while not ended:
                message, data = self._message(lease)
                if "error" in message:
                    raise self._error(message, lease)
                answer = take(message, data)
                ended = "end" in message
                if ended:
                    lease.give_back()
                yield answer
        except (ChannelClosed, Garbage) as error:
            raise lease.lost(error) from None
        finally:
            lease.discard()

    def _message(self, lease: WorkerLease) -> tuple[dict[str, Any], pa.Buffer | None]:
        if not lease.channel.waiting(self._silence_s):
            lease.kill("deadline")
        message, data = lease.channel.receive()
        if not isinstance(message, dict):
            raise Garbage("the worker's answer is no message")
        return message, data

    def _error(self, message: dict[str, Any], lease: WorkerLease) -> ChronicleError:
        """The error that ended the reading; the worker is reused only if the data was at fault."""
        try:
            kind, text, row = message["error"]
            expected = kind in _MAY_RAISE or kind == "Memory"
        except (TypeError, ValueError, KeyError) as error:
            raise Garbage(f"the worker's error is none ({error})") from None
        if not expected:
            raise Garbage("the worker raises what it cannot")
        if kind == "Memory":
            return ResourceLimit(
                f"reading this body takes more than {self._memory_bytes:,} bytes "
                "(CHRONICLE_BODY_MEMORY_BYTES); send it in smaller parts"
            )
        lease.give_back()
        if kind == "InvalidData":
            return errors.InvalidData(str(text), row if type(row) is int else None)
        raised: ChronicleError = getattr(errors, kind)(str(text))
        return raised


def _bad_rows(sent: Any) -> list[BadRow]:
    try:
        rows = [BadRow(**row) for row in sent]
        for row in rows:
            if any(type(getattr(row, name)) not in kinds for name, kinds in _BAD_ROW.items()):
                raise TypeError("a part of another type")
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise Garbage(f"the worker's bad rows are none ({error})") from None
    return rows


def _adopt(layout: Layout, sent: Any) -> pa.Schema:
    try:
        described, time = sent
    except (TypeError, ValueError):
        raise Garbage("the worker's columns are none") from None
    if type(time) is not str:
        raise Garbage("the worker's time is no name")
    schema = schema_of(described)
    layout.adopt(schema, time)
    return schema


def _texts(sent: Any) -> dict[Any, str]:
    if type(sent) is not dict or any(type(text) is not str for text in sent.values()):
        raise Garbage("the worker's notes are none")
    return sent

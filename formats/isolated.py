"""Reading events in workers: what a stranger sends never meets a decoder in this process.

Purpose
    :meth:`IsolatedReader.read_batches` is :func:`.reader.read_batches` for a file of a stranger:
    a worker (:mod:`.decoder`) reads it, the batches come back.

Guarantee
    Batches, bad rows and errors are those of reading here.  What arrives has been validated in
    full on this side, in the stream's own schema.  A file that needs too much memory is refused, a
    worker that dies, answers nonsense or is silent for too long costs its own file only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from .. import errors
from ..errors import ChronicleError, ResourceLimit
from ..isolation.batches import unpack
from ..isolation.channel import ChannelClosed, Garbage
from ..isolation.pool import PoolSpec, WorkerLease, open_pool
from ..schema import StreamSchema
from .badrows import BadRow, BadRowPolicy, fail

__all__ = ["IsolatedReader"]

SILENCE_S = 60.0
READING_S = 120.0
_MAY_RAISE = {"InvalidData", "SchemaMismatch", "InvalidArgument", "UnsupportedType"}
_MAY_RAISE |= {"ResourceLimit", "AttributeNotFound"}


_TEXT, _MAYBE = (str,), (str, type(None))
_BAD_ROW: dict[str, tuple[type, ...]] = {
    **{"source": _TEXT, "row": (int,), "reason": _TEXT, "record": _TEXT},
    **{"line": (int, type(None)), "column": _MAYBE, "value": _MAYBE},
}


class IsolatedReader:
    """Workers that read events; any thread may use it.

    Parameters
    ----------
    memory_bytes : int
        What reading one file may take; all of them together take up to four times as much.
    silence_s : float
        Longest time without a message of a worker.
    reading_s : float
        Longest time that reading one file may take, that of taking its batches included.
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
        """Let go of the workers."""
        self.pool.close()

    def read_batches(
        self,
        source: int | bytes,
        format: str,
        *,
        schema: StreamSchema,
        time_format: str = "auto",
        on_bad: BadRowPolicy = fail,
        name: str = "body",
        encoding: str | None = None,
        decoded_max: int = 1 << 62,
        **options: Any,
    ) -> Iterator[pa.RecordBatch]:
        """Batches in exactly ``schema.arrow``.

        Parameters
        ----------
        source : int or bytes
            A descriptor that can be read and seeked, which stays open; or what there is to read.
        format, schema, time_format, on_bad, name
            As :func:`.reader.read_batches` takes them.
        encoding : {None, "gzip", "zstd"}
            What is to be undone first.
        decoded_max : int
            Most bytes that this may give.
        **options
            Further ones of :func:`.reader.read_batches`, such as its limits.
        """
        lease = self.pool.lease(self._reading_s)
        try:
            job = {
                "job": "read",
                "format": format,
                "schema": schema.arrow,
                "time": schema.time,
                "time_format": time_format,
                "name": name,
                "encoding": encoding,
                "decoded_max": decoded_max,
                "options": options,
                "size": 0 if isinstance(source, int) else len(source),
            }
            if isinstance(source, int):
                lease.channel.send(job, file=source)
            else:
                lease.channel.send(job, [source])
            ended = False
            while not ended:
                message, data = self._message(lease)
                if "error" in message:
                    raise self._error(message, lease)
                for row in _bad_rows(message.get("bad", [])):
                    on_bad(row)
                batch = None
                if "batch" in message:
                    batch = unpack(schema.arrow, message["batch"], data)
                elif not message.keys() & {"bad", "end"}:
                    raise Garbage("the worker's answer is no message")
                ended = "end" in message
                if ended:
                    lease.give_back()
                if batch is not None:
                    yield batch
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
        """What ended the reading; only after an error of the data is the worker kept."""
        try:
            kind, text, row = message["error"]
            known = kind in _MAY_RAISE or kind == "Memory"
        except (TypeError, ValueError, KeyError) as error:
            raise Garbage(f"the worker's error is none ({error})") from None
        if not known:
            raise Garbage("the worker raises what it cannot")
        if kind == "Memory":
            return ResourceLimit(
                f"reading this body takes more than {self._memory_bytes:,} bytes "
                "(CHRONICLE_BODY_MEMORY_BYTES); send it in smaller parts"
            )
        lease.give_back()
        if kind == "InvalidData":
            return errors.InvalidData(str(text), row if type(row) is int else None)
        found: ChronicleError = getattr(errors, kind)(str(text))
        return found


def _bad_rows(told: Any) -> list[BadRow]:
    try:
        rows = [BadRow(**row) for row in told]
        for row in rows:
            if any(type(getattr(row, name)) not in kinds for name, kinds in _BAD_ROW.items()):
                raise TypeError("a part of another type")
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise Garbage(f"the worker's bad rows are none ({error})") from None
    return rows

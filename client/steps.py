"""Methods of the client, written once for threads and for asyncio.

A method that needs the server is a generator: it yields a *step*, such as a ``Call``, and goes on
with the answer.  It does no I/O itself, so ``run`` and ``run_async`` can both perform it. ::

    class RemoteStream:
        @blocking
        def delete(self, where: str) -> Steps[int]:
            answer = yield self._calls.delete(where)
            return int(answer["deleted"])

    class AsyncStream:
        delete = awaited(RemoteStream.delete)

``RemoteStream.delete`` returns the int, ``AsyncStream.delete`` a coroutine of it.  ``self`` in the
generator is an object of either class; both have the attributes that it uses.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast, overload

import pyarrow as pa

from .calls import Call
from .transport import Transport

if TYPE_CHECKING:
    from .asynchronous import AsyncTransport

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True)
class Upload:
    """Send batches; the result is the JSON answer."""

    call: Call
    schema: pa.Schema
    batches: Sequence[pa.RecordBatch]


@dataclass(frozen=True)
class Download:
    """Read all rows of an answer; the result is a table."""

    call: Call


@dataclass(frozen=True)
class Read:
    """Begin to read the rows of an answer; the result is a reader, or an async iterator."""

    call: Call


@dataclass(frozen=True)
class Pause:
    seconds: float


@dataclass(frozen=True)
class Work:
    """Run a function that may compute for long."""

    function: Callable[[], Any]


Step = Call | Upload | Download | Read | Pause | Work
Steps = Generator[Step, Any, T]


def run(transport: Transport, steps: Steps[T]) -> T:
    """Perform the steps of a method; returns its result."""
    try:
        step = next(steps)
        while True:
            try:
                answer = _performed(transport, step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


def _performed(transport: Transport, step: Step) -> Any:
    match step:
        case Call():
            return transport.json(step)
        case Upload():
            return transport.send(step.call, step.schema, step.batches)
        case Download():
            return transport.batches(step.call).read_all()
        case Read():
            return transport.batches(step.call)
        case Pause():
            return time.sleep(step.seconds)
        case Work():
            return step.function()


async def run_async(transport: AsyncTransport, steps: Steps[T]) -> T:
    """As ``run``; other tasks go on meanwhile."""
    try:
        step = next(steps)
        while True:
            try:
                answer = await _performed_async(transport, step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


async def _performed_async(transport: AsyncTransport, step: Step) -> Any:
    match step:
        case Call():
            return await transport.json(step)
        case Upload():
            return await transport.send(step.call, step.schema, step.batches)
        case Download():
            rows = await transport.rows(step.call)
            return pa.Table.from_batches([batch async for batch in rows], rows.schema)
        case Read():
            return await transport.rows(step.call)
        case Pause():
            return await asyncio.sleep(step.seconds)
        case Work():
            return await asyncio.to_thread(step.function)


def blocking(
    method: Callable[Concatenate[S, P], Steps[T]],
) -> Callable[Concatenate[S, P], T]:
    """Make a method of its steps, for an object with a ``Transport``."""

    @wraps(method)
    def blocks(self: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(self._transport, method(self, *args, **kwargs))

    return cast(Callable[Concatenate[S, P], T], blocks)


@overload
def awaited(
    method: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]: ...


@overload
def awaited(
    method: Callable[Concatenate[Any, P], Any], result: type[T]
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]: ...


def awaited(method: Any, result: Any = None) -> Any:
    """The coroutine method of a ``blocking`` one, for an object with an ``AsyncTransport``.

    ``result`` is for type checkers: the class of the result where it is another one here.
    """
    steps = method.__wrapped__

    @wraps(steps)
    async def waits(self: Any, *args: Any, **kwargs: Any) -> Any:
        return await run_async(self._transport, steps(self, *args, **kwargs))

    return waits

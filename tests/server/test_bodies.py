"""Bodies off the wire: limits, encodings, bombs, silence."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from starlette.requests import ClientDisconnect, Request

from chronicle.errors import InvalidData, ResourceLimit
from chronicle.server.access.limits import ByteBudget
from chronicle.server.http.replies import Problem
from chronicle.server.service.bodies import MEMORY_BYTES, Body, Pace, receive
from chronicle.tests.patience import PATIENCE_S

MIB = 1 << 20


def zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, codec="zstd", asbytes=True))


def take(
    pieces: list[bytes],
    then: Callable[[Body], Any],
    headers: dict[str, str] | None = None,
    *,
    body_max: int = 64 * MIB,
    ending: str = "end",
    silence_s: float = PATIENCE_S,
    budget: ByteBudget | None = None,
    directory: Path | None = None,
) -> Any:
    """Receive pieces as a request's body and give what ``then`` makes of it."""
    given = budget or ByteBudget(1 << 40)

    async def main() -> Any:
        waiting = list(pieces)

        async def more() -> Any:
            if waiting:
                piece = waiting.pop(0)
                return {
                    "type": "http.request",
                    "body": piece,
                    "more_body": bool(waiting) or ending != "end",
                }
            if ending == "leave":
                return {"type": "http.disconnect"}
            return await asyncio.sleep(3600)

        scope = {
            "type": "http",
            "method": "POST",
            "headers": [(k.encode(), v.encode()) for k, v in (headers or {}).items()],
        }
        with given.account("c") as account:
            body = await receive(
                Request(scope, more),
                account,
                body_max=body_max,
                pace=Pace(silence_s, 1 << 30),
                hashed=True,
                directory=directory,
            )
            with contextlib.closing(body):
                return await asyncio.to_thread(then, body)

    return asyncio.run(main())


def whole(body: Body) -> bytes:
    return body.open(1 << 40).read()


@pytest.mark.parametrize("sizes", [[0], [1], [10, 20], [100_000] * 50, [MEMORY_BYTES + 7]])
@pytest.mark.parametrize("encoding", [None, "identity", "gzip", "x-gzip", "zstd", "ZSTD"])
def test_bodies_arrive_whole(sizes: list[int], encoding: str | None) -> None:
    data = b"".join(bytes([number % 251]) * size for number, size in enumerate(sizes))
    packed = data
    if encoding in ("gzip", "x-gzip"):
        packed = gzip.compress(data, 1)
    elif encoding in ("zstd", "ZSTD"):
        packed = zstd(data)
    step = max(1, len(packed) // 7)
    pieces = [packed[at : at + step] for at in range(0, len(packed), step)] or [b""]
    headers = {"content-encoding": encoding} if encoding else {}
    budget = ByteBudget(1 << 40)
    assert take(pieces, whole, headers, budget=budget) == data
    assert budget.used == 0

    def digest(body: Body) -> str:
        return body.digest

    assert take(pieces, digest, headers) == hashlib.sha256(packed).hexdigest()


@pytest.mark.parametrize("packer", [gzip.compress, zstd])
def test_a_bomb_stops_at_the_limit(packer: Callable[[bytes], bytes]) -> None:
    bomb = packer(b"0" * (64 * MIB))
    assert len(bomb) < MIB
    name = "gzip" if packer is gzip.compress else "zstd"
    taken = 0

    def read(body: Body) -> None:
        nonlocal taken
        file = body.open(5 * MIB)
        while piece := file.read(100_000):
            taken += len(piece)

    with pytest.raises(ResourceLimit, match="MAX_DECODED"):
        take([bomb], read, {"content-encoding": name})
    assert taken <= 5 * MIB


def test_a_bomb_in_a_seekable_body_stops_too() -> None:
    bomb = gzip.compress(b"0" * (32 * MIB))
    with pytest.raises(ResourceLimit):
        take([bomb], lambda body: body.open(MIB, seekable=True), {"content-encoding": "gzip"})


def test_seekable_bodies_are_decoded_once() -> None:
    data = bytes(range(256)) * 100

    def jump(body: Body) -> bytes:
        file = body.open(1 << 30, seekable=True)
        file.seek(-4, 2)
        return file.read()

    assert take([gzip.compress(data)], jump, {"content-encoding": "gzip"}) == data[-4:]
    assert take([data], jump) == data[-4:]


@pytest.mark.parametrize("name", ["gzip", "zstd"])
@pytest.mark.parametrize("damage", ["cut", "junk"])
def test_damaged_bodies_are_bad_data(name: str, damage: str) -> None:
    packed = gzip.compress(bytes(5000)) if name == "gzip" else zstd(bytes(5000))
    wrong = packed[:-6] if damage == "cut" else b"this is not compressed"
    with pytest.raises(InvalidData, match=name):
        take([wrong], whole, {"content-encoding": name})


def test_several_gzip_members_are_one_body() -> None:
    packed = gzip.compress(b"one ") + gzip.compress(b"two")
    assert take([packed], whole, {"content-encoding": "gzip"}) == b"one two"


def problem_of(call: Callable[[], object]) -> Problem:
    with pytest.raises(Problem) as caught:
        call()
    return caught.value


def test_what_is_too_large_is_refused_before_it_is_read() -> None:
    declared = {"content-length": "1000"}
    problem = problem_of(lambda: take([b""], whole, declared, body_max=999, ending="hang"))
    assert (problem.status, problem.code) == (413, "body-too-large")
    assert problem.headers["Connection"] == "close"


def test_what_grows_too_large_is_refused_when_it_does() -> None:
    problem = problem_of(lambda: take([b"x" * 600] * 2, whole, body_max=1000, ending="hang"))
    assert problem.status == 413
    assert take([b"x" * 500] * 2, whole, body_max=1000) == b"x" * 1000


def test_unknown_encodings_are_named() -> None:
    problem = problem_of(lambda: take([b""], whole, {"content-encoding": "br"}))
    assert (problem.status, problem.headers["Accept-Encoding"]) == (415, "gzip, zstd")


def test_a_silent_client_is_let_go() -> None:
    problem = problem_of(lambda: take([b"x"], whole, ending="hang", silence_s=0.02))
    assert (problem.status, problem.code) == (408, "request-timeout")


def test_a_client_that_leaves_sends_no_body() -> None:
    with pytest.raises(ClientDisconnect):
        take([b"half of"], whole, ending="leave")


def test_the_budget_counts_wire_and_decoded_bytes() -> None:
    data = zlib.compress(b"")  # any small thing
    budget = ByteBudget(MIB)
    with pytest.raises(ResourceLimit, match="UPLOAD_MEMORY"):
        take([b"x" * (MIB + 1)], whole, budget=budget)
    bomb = gzip.compress(bytes(2 * MIB))
    with pytest.raises(ResourceLimit, match="UPLOAD_MEMORY"):
        take([bomb], whole, {"content-encoding": "gzip"}, budget=budget)
    assert budget.used == 0
    assert take([data], whole, budget=budget) == data


def test_nothing_is_left_in_the_directory(tmp_path: Path) -> None:
    long = bytes(MEMORY_BYTES + 1)
    assert take([long], whole, directory=tmp_path) == long
    assert list(tmp_path.iterdir()) == []

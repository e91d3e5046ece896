"""Broken bodies of every format: refused or stored whole, and the store opens again behind them.

:mod:`.target` says how to run it for long.
"""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow as pa

import chronicle
from chronicle.tests.fuzz.bodies import Bodies, Sent
from chronicle.tests.fuzz.target import CLIENTS, Target, pieces

BETWEEN_READINGS = 100
SPEC = {
    "name": "w",
    "time": "t",
    "schema": {
        **{"t": "bigint", "k": "varchar", "x": "double", "raw": "blob", "at": "timestamp"},
        **{"flag": "boolean", "d": "decimal(10, 2)"},
    },
}


def read_back(target: Target, shown: str, stream: str = "w") -> int:
    """All events of the stream, validated; how many, or -1 with a fault."""
    reply = target.send("GET", f"/v1/streams/{stream}/events?format=arrow", shown, target.writer)
    if reply.status == 0:
        return -1
    try:
        assert reply.status == 200, reply.text
        with pa.ipc.open_stream(io.BytesIO(reply.content)) as reader:
            table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, AssertionError) as error:
        target.note("changed", f"events cannot be read: {error}", shown)
        return -1
    return int(table.num_rows)


def test_a_body_is_stored_whole_or_costs_its_own_answer(tmp_path: Path) -> None:
    """Each piece has a stream of its own, which is read back again and again while it grows."""
    stored: dict[str, int] = {}
    asked = accepted = 0
    with Target(tmp_path) as target, ThreadPoolExecutor(CLIENTS) as clients:

        def send(stream: str, sent: Sent) -> int | None:
            """How many events were acknowledged; None for a body that was refused."""
            reply = target.send(
                "POST", f"/v1/streams/{stream}/events", shown_as(sent), target.writer,
                content=sent.content, headers=sent.headers,
            )  # fmt: skip
            return reply.json()["appended"] if reply.status == 200 else None

        for number, size in pieces("bodies", target):
            stream = f"w{len(stored)}"
            spec = {**SPEC, "name": stream}
            made = target.send("POST", "/v1/streams", "create", target.writer, json=spec)
            assert made.status == 201, made.text
            stored[stream] = 0
            bodies = Bodies(number)
            for at in range(0, size, BETWEEN_READINGS):
                batch = [bodies.body() for _ in range(min(BETWEEN_READINGS, size - at))]
                told = [*clients.map(partial(send, stream), batch)]
                accepted += sum(count is not None for count in told)
                stored[stream] += sum(count or 0 for count in told)
                shown = "\n    ".join(map(shown_as, batch))
                found = read_back(target, shown, stream)
                if found != stored[stream]:
                    what = f"{stored[stream]} events acknowledged, {found} there"
                    target.note("changed", what, shown)
                    stored[stream] = max(found, 0)
                target.canaries(shown)
            asked += size
        assert accepted > asked // 50, "hardly any body is accepted: the generator is stale"
    assert not target.faults, "\n".join(map(str, target.faults))
    with chronicle.open(target.store) as db:
        assert {name: db.stream(name).count for name in stored} == stored
        assert not db.check().problems


def shown_as(sent: Sent) -> str:
    """What a fault says of a body."""
    return f"{sent.story} {sent.headers} {sent.content[:200].hex()}"

"""Broken bodies of every format: refused or stored whole, and the store opens again behind them.

``CHRONICLE_FUZZ=100000 CHRONICLE_SEED=7`` is the long run (``make nightly``).
"""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pytest

import chronicle
from chronicle.tests.fuzz.attacks import OPEN
from chronicle.tests.fuzz.bodies import Bodies
from chronicle.tests.fuzz.target import COUNT, NIGHTLY, Target, seed

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


@pytest.mark.xfail(bool(OPEN), run=NIGHTLY, reason="attacks of the corpus work still")
@pytest.mark.timeout(0 if COUNT > 1000 else 300)
def test_a_body_is_stored_whole_or_costs_its_own_answer(tmp_path: Path) -> None:
    bodies = Bodies(seed())
    stored = accepted = 0
    with Target(tmp_path) as target:
        made = target.send("POST", "/v1/streams", "create", target.writer, json=SPEC)
        assert made.status == 201, made.text
        batch = []
        for number in range(COUNT):
            sent = bodies.body()
            shown = f"{sent.story} {sent.headers} {sent.content[:200].hex()}"
            batch.append(shown)
            reply = target.send(
                "POST", "/v1/streams/w/events", shown, target.writer,
                content=sent.content, headers=sent.headers,
            )  # fmt: skip
            if reply.status == 200:
                accepted += 1
                stored += reply.json()["appended"]
            if number % BETWEEN_READINGS == BETWEEN_READINGS - 1 or number == COUNT - 1:
                found = read_back(target, "\n    ".join(batch))
                if found != stored:
                    what = f"{stored} events acknowledged, {found} there"
                    target.note("changed", what, *batch)
                    stored = max(found, 0)
                target.canaries("\n    ".join(batch))
                batch.clear()
        assert accepted > COUNT // 20, "hardly any body is accepted: the generator is stale"
    assert not target.faults, "\n".join(map(str, target.faults))
    with chronicle.open(target.store) as db:
        assert db.stream("w").count == stored
        assert not db.check().problems

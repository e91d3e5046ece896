"""Bodies made to end the server or to read its memory: each costs its own answer, a 4xx.

``tests/fuzz/test_attack_corpus.py`` sends the same to a server that runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import chronicle
from chronicle.tests.fuzz.attacks import BODIES, Attack
from chronicle.tests.fuzz.bodies import MEDIA
from chronicle.tests.fuzz.test_fuzz_bodies import SPEC

from ..rounds import rounds

EVENTS = "/v1/streams/w/events"


@pytest.mark.parametrize("attack", BODIES, ids=lambda attack: attack.name)
def test_an_attack_costs_its_own_answer(
    database: Any, serve_app: Callable[..., Any], attack: Attack
) -> None:
    api = serve_app(database, max_decoded_bytes=16 << 20, max_columns=500)
    assert api.post("/v1/streams", json=SPEC).status_code == 201
    headers = {"content-type": MEDIA[attack.format]}
    if attack.encoding:
        headers["content-encoding"] = attack.encoding
    body = attack.make()
    assert len(body) < 20 << 20
    for _ in range(rounds(1, 2)):
        answer = api.post(EVENTS, content=body, headers=headers)
        assert answer.status_code == attack.status, answer.text
        assert len(answer.content) < 10_000
    assert api.post(EVENTS, json=[{"t": 7, "x": 0.5}]).json()["count"] == 1
    assert [row["t"] for row in api.get(EVENTS).json()] == [7]
    database.close()
    with chronicle.open(database.path) as again:
        assert again.check().ok
        assert again.stream("w").count == 1

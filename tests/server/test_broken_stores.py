"""A server over a store whose files are broken answers problems, and serves the other streams."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import chronicle
from chronicle.errors import ChronicleError

from ..test_system_faults import FAULTS, made


@pytest.mark.parametrize("fault", FAULTS)
def test_a_server_answers_problems_of_its_own(
    tmp_path: Path, serve_app: Callable[..., Any], fault: str
) -> None:
    path = made(tmp_path / "s")
    FAULTS[fault](path)
    try:
        database = chronicle.open(path)
    except ChronicleError:
        return
    with database:
        client = serve_app(database)
        for method, route, body in (
            ("GET", "/v1/streams", None),
            ("GET", "/v1/streams/s", None),
            ("GET", "/v1/streams/s/events", None),
            ("GET", "/v1/streams/other", None),
            ("POST", "/v1/query", {"sql": "SELECT * FROM s WHERE x = 7"}),
            ("GET", "/metrics", None),
            ("DELETE", "/v1/streams/s", None),
        ):
            answer = client.request(method, route, json=body)
            if answer.status_code >= 500:
                told = answer.json()
                assert told["code"] not in ("error", "internal-error"), told

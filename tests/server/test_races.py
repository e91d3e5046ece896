"""Streams and indexes are made, filled, listed, asked and dropped at once: every answer is one of
the table."""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chronicle

NAMES = ("a", "b", "c")
SECONDS = float(os.environ.get("CHRONICLE_STRESS_SECONDS", "0"))
REQUESTS_MIN = 60
"""Of each client; it goes on for as many seconds."""


def test_nobody_is_answered_500_while_streams_come_and_go(
    tmp_path: Path, live: Callable[..., Any]
) -> None:
    """Cold: the first queries of all threads come at once, too."""
    with chronicle.open(tmp_path / "store") as database:
        served = live(database, max_concurrent_queries=8)
        wrong: list[tuple[str, str, int, str]] = []
        seen: Counter[int] = Counter()
        began = time.monotonic()

        def run(number: int) -> None:
            rng = random.Random(number)
            for turn in itertools.count():
                if turn >= REQUESTS_MIN and time.monotonic() - began >= SECONDS:
                    return
                name = rng.choice(NAMES)
                method, path, body = rng.choice(requests(name, rng))
                answer = served.http.request(method, path, content=body)
                seen[answer.status_code] += 1
                if answer.status_code >= 500 and answer.status_code != 503:
                    wrong.append((method, path, answer.status_code, answer.text))

        threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong, wrong[:3]
        assert seen[200] > 20, seen


def requests(name: str, rng: random.Random) -> list[tuple[str, str, bytes]]:
    """What a client may ask of a stream, which may be there or not."""
    at = f"/v1/streams/{name}"
    spec = b'{"name": "%s", "time": "t", "schema": {"t": "bigint", "n": "bigint"}}' % name.encode()
    job = f"{at}/transactions/j{rng.randrange(10)}"
    rows = b'[{"t": %d, "n": 1}]' % rng.randrange(1000)
    pattern = (
        f"SELECT * FROM {name} MATCH_RECOGNIZE (ORDER BY t MEASURES A.n AS x "
        "PATTERN (A B) DEFINE B AS n > 0) AS m"
    )
    return [
        ("POST", "/v1/streams", spec),
        ("POST", "/v1/streams", spec),
        ("DELETE", at, b""),
        ("GET", "/v1/streams", b""),
        ("GET", at, b""),
        ("POST", f"{at}/events?format=json", rows),
        ("POST", f"{at}/events?format=json", rows),
        ("GET", f"{at}/events", b""),
        ("GET", f"{at}/aggregate?attribute=n", b""),
        ("POST", f"{at}/positions", b"{}"),
        ("PUT", f"{job}/parts/p?format=json", rows),
        ("POST", f"{job}/commit", b'{"parts": ["p"]}'),
        ("POST", "/v1/query", b"SHOW STREAMS"),
        ("POST", "/v1/query", b"SHOW INDEXES"),
        ("POST", f"{at}/indexes/n", b""),
        ("POST", f"{at}/indexes/t?wait=false", b""),
        ("DELETE", f"{at}/indexes/n", b""),
        ("GET", f"{at}/indexes", b""),
        ("POST", "/v1/query", b"CREATE INDEX ON " + name.encode() + b" (n)"),
        ("POST", "/v1/query", b"DROP INDEX ON " + name.encode() + b" (n)"),
        ("POST", "/v1/query", b"SELECT t FROM " + name.encode() + b" WHERE n = 1"),
        ("POST", "/v1/query", b"SELECT count(*) FROM " + name.encode()),
        ("POST", "/v1/query", pattern.encode()),
        ("GET", "/metrics", b""),
        ("GET", "/readyz", b""),
    ]

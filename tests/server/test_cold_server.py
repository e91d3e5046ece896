"""A server on a machine that has no compiled kernels: patterns are answered while they are made."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest

import chronicle

from .conftest import wait_until

ROWS = 2000
SMALL_S = 15.0
"""A small pattern, on a loaded machine; it was over 40 on an idle one when it waited."""
PATTERN = (
    "SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES A.t AS a, LAST(B.x) AS b "
    "PATTERN (A B+ C) WITHIN 90 DEFINE A AS x < 0.3, B AS x > PREV(x), C AS x < 0.4) ORDER BY a"
)
PROGRAM = """
import json, sys
from chronicle.cli import run
from chronicle.compiled import Kernel
code = run(["serve", "--store", sys.argv[1], "--port", "0"])
kernels = {
    value.function.__qualname__: (value._has_run is not None, value._interpreting.seconds)
    for module in list(sys.modules.values()) if module.__name__.startswith("chronicle")
    for value in vars(module).values()
    if isinstance(value, Kernel) and value._interpreting is not None
}
print(json.dumps(kernels))
sys.exit(code)
"""


@contextmanager
def cold_server(place: Path) -> Iterator[tuple[httpx.Client, subprocess.Popen[str], Any]]:
    """A server with an empty cache, what the pattern gives in its store."""
    random = np.random.default_rng(11)
    columns = {"t": range(ROWS), "k": ["ab"[i % 2] for i in range(ROWS)], "x": random.random(ROWS)}
    with chronicle.open(place / "store") as database:
        table = pa.table(columns)
        database.create_stream("s", table.schema, "t").append(table)
        expected = database.sql(PATTERN).arrow().to_pylist()
    assert len(expected) > 50
    (place / "tmp").mkdir()
    environment = {
        **os.environ, "CHRONICLE_CACHE_DIR": str(place / "cache"), "TMPDIR": str(place / "tmp"),
        "CHRONICLE_COMPILE": "beside", "CHRONICLE_LOG_LEVEL": "warning",  # nobody reads a log
    }  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(place / "store")],
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        found = re.search(r"http://[\w.:]+", process.stderr.readline())
        assert found, process.communicate()[1]
        with httpx.Client(base_url=found[0], timeout=120) as http:
            yield http, process, expected
    finally:
        process.kill()
        process.communicate()


def asked(http: httpx.Client) -> Any:
    return http.get("/v1/query", params={"q": PATTERN, "limit": ROWS}).json()["rows"]


def compilers(server: int) -> list[str]:
    """What the children of a server say that compile."""
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdecimal():
            continue
        try:
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            said = (process / "cmdline").read_text()
        except OSError:  # it has ended
            continue
        if int(parent) == server:
            found += re.findall(r"compile_\w+(?=\()", said)
    return found


def test_a_small_pattern_does_not_wait_for_the_warm_up(tmp_path: Path) -> None:
    with cold_server(tmp_path) as (http, process, expected):
        scratch = tmp_path / "tmp"
        wait_until(lambda: any(scratch.glob("chronicle-warm-*/child")), 60)
        began = time.monotonic()
        assert asked(http) == expected
        assert time.monotonic() - began < SMALL_S
        assert http.get("/readyz").json()["state"] == "warming"
        assert compilers(process.pid) == ["compile_ahead"]  # one, and it is the warm-up's
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=60)
    kernels = json.loads(said)
    assert any(seconds > 0 for _, seconds in kernels.values())  # as Python


@pytest.mark.slow
def test_after_the_warm_up_patterns_are_machine_code(tmp_path: Path) -> None:
    with cold_server(tmp_path) as (http, process, expected):
        assert asked(http) == expected
        wait_until(lambda: http.get("/readyz").status_code == 200, 240)
        wait_until(lambda: compilers(process.pid) == [], 60)  # of what requests wanted besides
        for _ in range(2):
            assert asked(http) == expected
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=60)
    kernels = json.loads(said)
    once = {name for name, (_, seconds) in kernels.items() if seconds > 0}
    assert once
    assert all(kernels[name][0] for name in once), kernels

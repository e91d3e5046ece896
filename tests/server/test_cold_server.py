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
from chronicle.tests.patience import PATIENCE_S, wait_until

from .test_server_process import PATIENTLY, compilers, warm_up_held

ROWS = 2000
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
        **os.environ, **PATIENTLY, "CHRONICLE_CACHE_DIR": str(place / "cache"),
        "TMPDIR": str(place / "tmp"), "CHRONICLE_COMPILE": "beside",
        "CHRONICLE_LOG_LEVEL": "warning",  # nobody reads a log
    }  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(place / "store")],
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        found = re.search(r"http://[\w.:]+", process.stderr.readline())
        assert found, process.communicate()[1]
        with httpx.Client(base_url=found[0], timeout=PATIENCE_S) as http:
            yield http, process, expected
    finally:
        process.kill()
        process.communicate()


def asked(http: httpx.Client) -> Any:
    return http.get("/v1/query", params={"q": PATTERN, "limit": ROWS}).json()["rows"]


def test_a_small_pattern_does_not_wait_for_the_warm_up(tmp_path: Path) -> None:
    with cold_server(tmp_path) as (http, process, expected):
        with warm_up_held(process.pid, tmp_path / "cache"):
            assert asked(http) == expected
            assert http.get("/readyz").json()["state"] == "warming"
            assert list(compilers(process.pid)) == ["compile_ahead"]
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=PATIENCE_S)
    kernels = json.loads(said)
    assert any(seconds > 0 for _, seconds in kernels.values())  # as Python


@pytest.mark.slow
@pytest.mark.timeout(3600)  # a minute on an idle machine
def test_after_the_warm_up_patterns_are_machine_code(tmp_path: Path) -> None:
    with cold_server(tmp_path) as (http, process, expected):
        with warm_up_held(process.pid, tmp_path / "cache"):
            assert asked(http) == expected
        while http.get("/readyz").status_code != 200:
            time.sleep(0.1)
        wait_until(lambda: not compilers(process.pid))  # of what requests wanted besides
        for _ in range(2):
            assert asked(http) == expected
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=PATIENCE_S)
    kernels = json.loads(said)
    once = {name for name, (_, seconds) in kernels.items() if seconds > 0}
    assert once
    assert all(kernels[name][0] for name in once), kernels

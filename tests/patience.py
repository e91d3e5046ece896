"""Waiting for what another thread or process does, however slow the machine is.

No test judges how long something takes.  A test that waits has one limit, which is there so that a
hang ends with a message; it is far beyond what anything takes on a loaded machine, and below the
limit of pytest-timeout (``pyproject.toml``).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from chronicle.api.database import catalog_of

__all__ = ["PATIENCE_S", "wait_for_indexes", "wait_until"]

PATIENCE_S = float(os.environ.get("CHRONICLE_PATIENCE_S", "300"))
"""Seconds after which a test may say that what it waits for does not come; mutants wait less."""


def wait_until(condition: Callable[[], object], expected: str = "what was expected") -> None:
    """Return as soon as the condition holds; fail after ``PATIENCE_S`` seconds."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {PATIENCE_S:.0f} s for {expected}"
        time.sleep(0.005)


def wait_for_indexes(database: Any) -> None:
    """Return when the thread of a database that keeps indexes up to date has nothing to do."""
    known = catalog_of(database).indexes
    wait_until(lambda: not known._todo and known._busy is None, "indexes that are up to date")

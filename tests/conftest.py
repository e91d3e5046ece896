"""How the tests are shared out where several processes run them (``pytest -n 2``)."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from .rounds import LONG

# How long anything takes is not what random cases are about, and machines are busy.  A run of the
# default tests says the same of the same sources each time; the long ones look elsewhere each time.
settings.register_profile(
    "chronicle",
    deadline=None,
    derandomize=not LONG,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("chronicle")

SPARK = "tests/spark_connector/"
TOGETHER = (SPARK, "tests/fuzz/")
"""Folders of which one process has all files: one Spark session, one server under attack."""
os.environ["CHRONICLE_COMPILE"] = "first"  # what takes how long shall not depend on the cache


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first: Spark's, which stay in one process, then the files of this folder."""
    here = Path(__file__).parent
    items.sort(key=lambda item: (not item.nodeid.startswith(SPARK), item.path.parent != here))


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: collections of garbage pass over it."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Libraries look for what they leak when the interpreter ends."""
    gc.unfreeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file at a time, so that what it opens is opened once; some folders as a whole."""
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            whole = (folder for folder in TOGETHER if nodeid.startswith(folder))
            return next(whole, None) or super()._split_scope(nodeid)

    return ByFile(config, log)

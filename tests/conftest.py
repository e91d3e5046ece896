"""How the tests are shared out where several processes run them (``pytest -n 2``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

SPARK = "tests/spark_connector/"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first: Spark's, which stay in one process, then the files of this folder."""
    here = Path(__file__).parent
    items.sort(key=lambda item: (not item.nodeid.startswith(SPARK), item.path.parent != here))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file at a time, so that what it opens is opened once; one Spark session for all of them."""
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return SPARK if nodeid.startswith(SPARK) else super()._split_scope(nodeid)

    return ByFile(config, log)

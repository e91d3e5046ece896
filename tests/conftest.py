"""Tiers, order and random cases of the tests (``docs/testing.md``)."""

from __future__ import annotations

import gc
import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

from .rounds import LONG, rounds
from .tiers import STARTS, changed_files, distances, mark

# How long anything takes is not what random cases are about, and machines are busy.  A run of the
# default tests says the same of the same sources each time; the long ones look elsewhere each time.
settings.register_profile(
    "chronicle",
    deadline=None,
    max_examples=rounds(10, 100),
    derandomize=not LONG,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("chronicle")

BEGUN = time.monotonic()
gc.disable()  # until all is collected: what is imported stays


def import_kernels_from(place: Path) -> None:
    """Have the package take its kernels from another folder."""
    (file,) = place.glob("_kernels*")
    name = f"chronicle.{file.name.partition('.')[0]}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)


if (place := os.environ.get("CHRONICLE_KERNELS_FROM")) is not None:  # make test-bounds
    import_kernels_from(Path(place))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--changed",
        nargs="?",
        const="HEAD",
        metavar="COMMIT",
        help="the tests that changes since a commit can reach by imports, the nearest first",
    )
    parser.addoption(
        "--seconds", type=float, metavar="N", help="skip the tests that would begin later"
    )


def pytest_configure(config: pytest.Config) -> None:
    for kind in ("plain", *STARTS, "heavy", "smoke", "extra"):
        config.addinivalue_line("markers", f"{kind}: tests/tiers.py marks them")


@pytest.hookimpl(tryfirst=True)  # before -m deselects
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test with its tier; what begins with a session of Spark or a browser first."""
    mark(items)
    first = {"spark": 0, "browser": 1}
    items.sort(key=lambda item: min(first.get(mark.name, 2) for mark in item.iter_markers()))
    if (base := config.getoption("changed")) is not None:
        _keep_reached(config, items, distances(changed_files(base)))


def _keep_reached(
    config: pytest.Config, items: list[pytest.Item], distance: dict[Path, int]
) -> None:
    kept = [item for item in items if item.path in distance]
    config.hook.pytest_deselected(items=[item for item in items if item.path not in distance])
    items[:] = sorted(kept, key=lambda item: distance[item.path])


def pytest_runtest_setup(item: pytest.Item) -> None:
    seconds = item.config.getoption("seconds")
    if seconds is not None and time.monotonic() - BEGUN > seconds:
        pytest.skip(f"{seconds:g} seconds are over")


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: collections of garbage pass over it."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """Libraries look for what they leak when the interpreter ends."""
    gc.unfreeze()


@pytest.fixture(autouse=True, scope="module")
def unchanged_constants() -> Iterator[None]:
    """A constant of the package that a test leaves changed slows or breaks the tests after it."""
    before = _constants()
    yield
    after = _constants()
    assert [name for name in before if before[name] is not after.get(name)] == []


def _constants() -> dict[str, object]:
    return {
        f"{path}.{name}": value
        for path, module in [*sys.modules.items()]
        if path.startswith("chronicle.") and not path.startswith("chronicle.tests")
        if isinstance(module, ModuleType)
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, int | float | str | bytes)
    }


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go; not swept yet by this process."""
    path = tmp_path / "tmp"
    path.mkdir()
    monkeypatch.setenv("TMPDIR", str(path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return path

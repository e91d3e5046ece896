"""What is installed elsewhere has the console, and the pages that its help shows."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import chronicle

PACKAGE = Path(chronicle.__file__).parent
BUILD = (
    "from setuptools import setup; setup(script_args=['-q', 'build_py', '--build-lib', {out!r}])"
)


def test_an_installed_package_has_the_console(tmp_path: Path) -> None:
    """What goes into a wheel: the build's own copy of the packages and their data."""
    pytest.importorskip("setuptools")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=PACKAGE.resolve(), capture_output=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a checkout")
    source, out = tmp_path / "source", tmp_path / "out"
    for name in listed.stdout.decode().split("\0"):
        path = PACKAGE / name
        if name and path.is_file() and not name.startswith(("tests/", "web/")):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, source / name)
    command = [sys.executable, "-W", "ignore", "-c", BUILD.format(out=str(out))]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    for folder, pattern in (("server/console", "*"), ("docs", "*.md")):
        wanted = {path.name for path in (source / folder).glob(pattern) if path.is_file()}
        found = {path.name for path in (out / "chronicle" / folder).glob("*")}
        assert wanted
        assert wanted <= found
    assert not list(out.rglob("*.tsx"))
    assert not (out / "chronicle" / "bench").exists()

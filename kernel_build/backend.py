"""Build backend: setuptools with Numba and a C compiler, unless ``CHRONICLE_KERNELS=none``."""

from __future__ import annotations

import os
import shutil
import tomllib
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403

NUMBA = "numba>=0.68,<0.69"
"""The version whose calling convention ``wrappers.py`` implements."""


def _needed() -> list[str]:
    if os.environ.get("CHRONICLE_KERNELS") == "none":
        return []
    with (Path(__file__).parent.parent / "pyproject.toml").open("rb") as file:
        needed = [NUMBA, *tomllib.load(file)["project"]["dependencies"]]
    compilers = ("cc", "gcc", "clang")
    has_compiler = os.environ.get("CC") or any(shutil.which(name) for name in compilers)
    return needed if has_compiler else [*needed, "ziglang>=0.15"]


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    return [*build_meta.get_requires_for_build_wheel(config_settings), *_needed()]


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    return [*build_meta.get_requires_for_build_editable(config_settings), *_needed()]

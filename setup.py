"""Builds the package: its kernels are compiled before it is installed (``kernel_build/``)."""

from __future__ import annotations

import importlib
import os
import platform
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

SOURCE = Path(__file__).resolve().parent


class BuildKernels(build_ext):
    """Compile the kernels into the package that is built, or into the tree of an editable one."""

    def build_extension(self, ext: Extension) -> None:
        """Compile one module of kernels."""
        directory = Path(self.get_ext_fullpath(ext.name)).resolve().parent
        directory.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "kernel_build", str(directory)]
        name = ext.name.rpartition(".")[2]
        subprocess.run([*command, "--modules", name], cwd=SOURCE, check=True)


class BuildModules(build_py):
    """Leave this file out of the package, whose directory it lies in."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        """The modules of a package."""
        modules = super().find_package_modules(package, package_dir)
        return [each for each in modules if each[1] != "setup"]


def modules() -> list[str]:
    """The modules to build: what CHRONICLE_KERNELS names, or that of this machine."""
    named = os.environ.get("CHRONICLE_KERNELS")
    if named is not None:
        wanted = [] if named == "none" else named.split(",")
        return [n for n in wanted if n == "_kernels" or platform.machine() == "x86_64"]
    sys.path.insert(0, str(SOURCE))
    try:
        return [importlib.import_module("core.native").of_this_machine()]
    except ModuleNotFoundError:  # without NumPy it is only asked what the package is
        return ["_kernels"]


setup(
    ext_modules=[Extension(f"chronicle.{name}", []) for name in modules()],
    cmdclass={"build_ext": BuildKernels, "build_py": BuildModules},
)

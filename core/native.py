"""Kernels: array functions that are machine code in the installed package.

A function over arrays (arrays, scalars, outputs) decorated with ``kernel`` is compiled at build
time (``kernel_build/``) into the extension module ``_kernels``, for the argument types in
``forms.toml``; other calls raise a TypeError.  Arrays are contiguous unless the form says
otherwise.  A call releases the GIL.  No fast-math, integers wrap, NaN and signed zeros follow IEEE
754.  If a kernel or a constant that it reads has changed since the build, importing its module
fails.  A kernel without a form can be called only by kernels.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

compiler: Any = None
"""Set by ``kernel_build`` before other modules are imported; makes Numba's forms of kernels."""

FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""The kernels' Python functions by name, for debuggers and tests."""

_machine_code: Any = None


def _refused(*_: Any) -> Any:
    raise TypeError("this operation is for machine code")


def trailing_zeros(word: Any) -> int:
    """Index of the lowest set bit of a word; 64 for zero."""
    word = int(word)
    return (word & -word).bit_length() - 1 if word else 64


def leading_zeros(word: Any) -> int:
    """Zero bits above the highest set bit of a word of 64 bits."""
    return 64 - int(word).bit_length()


def machine_operation(
    plain: Callable[..., Any] = _refused,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An operation for kernels in LLVM (a Numba intrinsic); ``plain`` is the same in Python."""
    return lambda generate: plain if compiler is None else compiler.operation(generate)


def load() -> ModuleType:
    global _machine_code
    if _machine_code is None:
        for name in dict.fromkeys((of_this_machine(), "_kernels")):
            try:
                _machine_code = importlib.import_module(f"chronicle.{name}")
                break
            except ModuleNotFoundError:
                continue
        else:
            raise ImportError(
                "Chronicle's kernels were not compiled for this Python and processor: in a clone "
                "run `make kernels`, else install the package anew"
            )
    module: ModuleType = _machine_code
    return module


def of_this_machine() -> str:
    """Name of the extension module for this processor."""
    features = importlib.import_module("numpy._core._multiarray_umath").__cpu_features__
    fast = all(features.get(name) for name in ("AVX2", "FMA3", "BMI2", "LZCNT"))
    return "_kernels_v3" if fast else "_kernels"


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Machine code of a function; ImportError if the compiled one differs (``make kernels``)."""
    if compiler is not None:
        form: Callable[..., Any] = compiler.form(function)
        return form
    machine_code = load()
    name = f"{function.__module__.partition('.')[2]}.{function.__name__}"
    compiled = machine_code.DIGESTS.get(name)
    if compiled != digest_of(function) and sys.flags.optimize < 2:  # -OO changes the byte code
        what = "is not among the compiled kernels" if compiled is None else "was changed"
        raise ImportError(f"the kernel {name} {what}: run `make kernels`")
    FUNCTIONS[name] = function
    return getattr(machine_code, name.replace(".", "_"), None) or _without_form(name)


def _without_form(name: str) -> Callable[..., Any]:
    def refuse(*arguments: Any) -> Any:
        types = _machine_code.types_of(*arguments)
        raise TypeError(f"the kernel {name} has no form for ({types}): see kernel_build/forms.toml")

    return refuse


def digest_of(function: Callable[..., Any]) -> str:
    """Digest of a kernel's code and the constants it reads, without the kernels that it calls."""
    code, around = function.__code__, function.__globals__
    constants = [each for each in code.co_consts if each != function.__doc__]
    digest = hashlib.blake2b(repr((code.co_code, constants, code.co_varnames)).encode())
    for name in code.co_names:
        value = around.get(name)
        if isinstance(value, ModuleType):
            for inner in code.co_names:
                digest.update(_description(f"{name}.{inner}", getattr(value, inner, None)))
        else:
            digest.update(_description(name, value))
    return digest.hexdigest()[:16]


def _description(name: str, value: Any) -> bytes:
    if isinstance(value, np.ndarray):
        return f"{name}={value.dtype}{value.shape}".encode() + value.tobytes()
    parts = value if isinstance(value, tuple) else (value,)
    printable = all(isinstance(part, (int, float, str, np.generic, type(None))) for part in parts)
    return f"{name}={value!r}".encode() if printable else name.encode()

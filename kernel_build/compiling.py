"""Numba at build time: kernels to object code, each once for what it is made of.

Guarantee
    An object is named by what it comes from: the code of the kernel and of all that it calls, the
    constants that they read, the form, Numba's version and the processor.  So only what has changed
    is compiled anew.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Callable, Hashable
from pathlib import Path
from types import ModuleType
from typing import Any

import llvmlite.binding as llvm
import numba
from numba.core.types.misc import unliteral
from numba.extending import intrinsic

from .forms import fields_of, read_form
from .wrappers import wrapper

__all__ = ["Compiler", "Form"]

_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "fastmath": False,
    "error_model": "numpy",
    "no_cfunc_wrapper": True,
    "no_cpython_wrapper": True,
}


class Compiler:
    """Numba's forms of kernels while the package's modules are imported, then their object code.

    Parameters
    ----------
    directory : Path
        Where objects are kept.
    bounds : bool
        Whether indices are looked at: slow, for tests.
    """

    def __init__(self, directory: Path, *, bounds: bool = False) -> None:
        self.directory = directory
        self.kernels: dict[str, Any] = {}
        self._bounds = bounds
        self._machine: Any = None
        self._digests: dict[Any, str] = {}

    def form(self, function: Callable[..., Any]) -> Any:
        """Numba's form of a kernel, which other kernels call."""
        from chronicle.core.native import digest_of

        made = numba.njit(boundscheck=self._bounds, **_OPTIONS)(function)
        made.get_call_template = _by_types(made.get_call_template)
        self._digests[made] = digest_of(function)
        self.kernels[f"{function.__module__.partition('.')[2]}.{function.__name__}"] = made
        return made

    def operation(self, generate: Callable[..., Any]) -> Any:
        """Numba's form of an operation that is written in terms of LLVM."""
        made = intrinsic(generate)
        self._digests[made] = hashlib.blake2b(generate.__code__.co_code).hexdigest()
        return made

    def digest(self, kernel: Any) -> str:
        """Of a kernel's own code."""
        return self._digests[kernel]

    def compile(self, kernel: Any, text: str) -> Form:
        """A form of a kernel; compiled unless it is there, or another process does so."""
        form = Form(self.directory, self._key(kernel, text))
        if form.is_there() or not form.claimed():
            return form
        types = read_form(text, kernel.py_func.__module__)
        kernel.compile(types)
        found = kernel.overloads[types]
        module = llvm.parse_bitcode(found.library._final_module.as_bitcode())
        module.get_function(found.fndesc.mangled_name).name = form.symbol
        form.write(self._object_of(module), wrapper(form.symbol, found.signature))
        return form

    def _object_of(self, module: Any) -> bytes:
        if self._machine is None:
            self._machine = llvm.Target.from_default_triple().create_target_machine(
                cpu=numba.config.CPU_NAME or "generic",
                features=numba.config.CPU_FEATURES or "",
                opt=3,
                reloc="pic",
                codemodel="default",
            )
        data: bytes = self._machine.emit_object(module)
        return data

    def _key(self, kernel: Any, text: str) -> str:
        machine = [
            numba.__version__,
            numba.config.CPU_NAME,
            platform.machine(),
            sys.version_info[:2],
        ]
        types = read_form(text, kernel.py_func.__module__)
        of = [sorted(self._reached(kernel)), self._digests[kernel], text, fields_of(types)]
        return hashlib.blake2b(json.dumps([*of, self._bounds, *machine]).encode()).hexdigest()[:24]

    def _reached(self, kernel: Any) -> set[str]:
        """Digests of a kernel and of all that it calls."""
        waiting, seen = [kernel], {id(kernel): self._digests[kernel]}
        while waiting:
            function = getattr(waiting.pop(), "py_func", None)
            if function is None:
                continue
            names = function.__code__.co_names
            values = [function.__globals__.get(name) for name in names]
            values += [
                getattr(value, name, None)
                for value in values
                if isinstance(value, ModuleType)
                for name in names
            ]
            for value in values:
                if isinstance(value, Hashable) and value in self._digests and id(value) not in seen:
                    seen[id(value)] = self._digests[value]
                    waiting.append(value)
        return set(seen.values())


class Form:
    """One form of a kernel in the directory of objects."""

    def __init__(self, directory: Path, key: str) -> None:
        self.symbol = f"chronicle_{key}"
        self.object = directory / f"{key}.o"
        self._wrapper = directory / f"{key}.c"
        self._claim = directory / f"{key}.claim"

    def is_there(self) -> bool:
        """Whether it was compiled."""
        return self.object.exists()

    def claimed(self) -> bool:
        """Whether this process is the one that compiles it."""
        try:
            self._claim.touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def write(self, data: bytes, text: str) -> None:
        """Keep the object and its wrapper."""
        self._wrapper.write_text(text)
        part = self.object.with_suffix(".part")
        part.write_bytes(data)
        part.replace(self.object)

    @property
    def wrapper(self) -> str:
        """C text of the function that unpacks arguments and calls it."""
        return self._wrapper.read_text()


def _by_types(template: Callable[..., Any]) -> Callable[..., Any]:
    """How a kernel finds another that it calls: by types, not once more for each literal."""

    def found(arguments: Any, named: Any) -> Any:
        return template(tuple(unliteral(each) for each in arguments), named)

    return found

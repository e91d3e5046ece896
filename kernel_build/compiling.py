"""Numba at build time: kernels to object code, cached by content.

An object's key is a digest of the code of the kernel and all it calls, the constants they read, the
form, Numba's version and the processor.
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
from numba.cpython import numbers
from numba.extending import intrinsic

from . import checking
from .forms import fields_of, read_form
from .wrappers import wrapper

_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "fastmath": False,
    "error_model": "numpy",
    "no_cfunc_wrapper": True,
    "no_cpython_wrapper": True,
}

# Sums of signed integers wrap, as NumPy's do; Numba would have LLVM assume that none overflows.
numbers._int_arith_flags = lambda _: []


class Compiler:
    """Numba's forms of kernels while the package's modules are imported, then their object code.

    Parameters
    ----------
    directory : Path
        Where objects are kept.
    checks : str
        "bounds": indices are looked at; "sanitizers": memory and undefined operations are
        (:mod:`.checking`).  Both are slow, for tests.
    """

    def __init__(self, directory: Path, checks: str = "") -> None:
        self.directory = directory
        self.kernels: dict[str, Any] = {}
        self._checks = checks
        self._machine: Any = None
        self._digests: dict[Any, str] = {}

    def form(self, function: Callable[..., Any]) -> Any:
        from chronicle.core.native import digest_of

        made = numba.njit(boundscheck=self._checks == "bounds", **_OPTIONS)(function)
        made.get_call_template = _by_types(made.get_call_template)
        self._digests[made] = digest_of(function)
        self.kernels[f"{function.__module__.partition('.')[2]}.{function.__name__}"] = made
        return made

    def operation(self, generate: Callable[..., Any]) -> Any:
        made = intrinsic(generate)
        self._digests[made] = hashlib.blake2b(generate.__code__.co_code).hexdigest()
        return made

    def digest(self, kernel: Any) -> str:
        return self._digests[kernel]

    def compile(self, kernel: Any, text: str) -> Form:
        """Compile a form of a kernel unless it is cached or another process compiles it."""
        form = Form(self.directory, self._key(kernel, text))
        if form.is_there() or not form.claimed():
            return form
        types = read_form(text, kernel.py_func.__module__)
        kernel.compile(types)
        overload = kernel.overloads[types]
        module = llvm.parse_bitcode(overload.library._final_module.as_bitcode())
        module.get_function(overload.fndesc.mangled_name).name = form.symbol
        if self._checks == "sanitizers":
            module = llvm.parse_assembly(checking.checked(str(module)))
            module.verify()
        form.write(self._object_of(module), wrapper(form.symbol, overload.signature))
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
        if self._checks == "sanitizers":  # Numba has left it as it was written
            passes = llvm.create_pass_builder(
                self._machine, llvm.create_pipeline_tuning_options(speed_level=1)
            )
            passes.getModulePassManager().run(module, passes)
        data: bytes = self._machine.emit_object(module)
        return data

    def _key(self, kernel: Any, text: str) -> str:
        machine = [
            "wrapping",
            numba.__version__,
            numba.config.CPU_NAME,
            platform.machine(),
            sys.version_info[:2],
        ]
        if self._checks == "sanitizers":
            machine.append(hashlib.blake2b(Path(checking.__file__).read_bytes()).hexdigest())
        types = read_form(text, kernel.py_func.__module__)
        of = [sorted(self._reached(kernel)), self._digests[kernel], text, fields_of(types)]
        return hashlib.blake2b(
            json.dumps([*of, self._checks == "bounds", *machine]).encode()
        ).hexdigest()[:24]

    def _reached(self, kernel: Any) -> set[str]:
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
    """One form of a kernel in the object cache."""

    def __init__(self, directory: Path, key: str) -> None:
        self.symbol = f"chronicle_{key}"
        self.object = directory / f"{key}.o"
        self._wrapper = directory / f"{key}.c"
        self._claim = directory / f"{key}.claim"

    def is_there(self) -> bool:
        return self.object.exists()

    def claimed(self) -> bool:
        """Whether this process is the first to claim it."""
        try:
            self._claim.touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def write(self, data: bytes, text: str) -> None:
        self._wrapper.write_text(text)
        part = self.object.with_suffix(".part")
        part.write_bytes(data)
        part.replace(self.object)

    @property
    def wrapper(self) -> str:
        """C text of the function that unpacks arguments and calls it."""
        return self._wrapper.read_text()


def _by_types(template: Callable[..., Any]) -> Callable[..., Any]:
    """Resolve calls between kernels by type, not separately for each literal."""

    def resolved(arguments: Any, named: Any) -> Any:
        return template(tuple(unliteral(each) for each in arguments), named)

    return resolved

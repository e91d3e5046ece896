"""The one decorator under which every hot loop of Chronicle is compiled.

Purpose
    A kernel is a plain function over arrays (arrays, then scalars, then outputs).  :func:`kernel`
    has Numba compile it once and keep the machine code on disk (:mod:`.machine_code`), so that a
    second process starts warm.

Guarantee
    Declaring kernels costs nothing: Numba, which takes half a second to import, is loaded when the
    first of them is called.

    A kernel that others call is compiled once for each kind of arguments, not for each literal that
    stands in a call.

Limits
    Numba notices a change of the file that holds a kernel, not of another file that the kernel
    calls: kernels that call each other live in one module, or say so (:func:`kernel_calling`).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .interpreted import UNANSWERED, Interpreting, answer, is_running
from .ownership import LOADING

__all__ = [
    "carray",
    "interpretable",
    "kernel",
    "kernel_calling",
    "machine_operation",
    "trailing_zeros",
    "when_compiling",
]


class _Named:
    """What Numba has a form of: in a kernel that calls this, that form stands for it."""

    _form: Any = None

    def _make(self) -> Any:
        raise NotImplementedError

    @property
    def form(self) -> Any:
        """Numba's form, made when it is asked for first."""
        with LOADING:
            from . import machine_code  # noqa: F401  (it may take a while)
        return self._made()

    def _made(self) -> Any:
        from .machine_code import global_compiler_lock

        with global_compiler_lock:
            if self._form is None:
                self._form = self._make()
            return self._form

    @property
    def _numba_type_(self) -> Any:
        """What Numba asks for while it compiles: LOADING must not be waited for there."""
        from .machine_code import numba_type

        return numba_type(self._made())


class Kernel(_Named):
    """A function over arrays, compiled when it is called.

    Attributes
    ----------
    function : callable
        As it was written.
    """

    def __init__(self, function: Callable[..., Any], calls: tuple[ModuleType, ...]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self._calls = calls
        self._interpreting: Interpreting | None = None
        self._has_run: Any = None

    def _make(self) -> Any:
        from .machine_code import compiled_form

        _pass_on()
        return compiled_form(self.function, self._calls)

    def interpret(
        self, wraps: bool, plain: bool = False, instead: Callable[..., Any] | None = None
    ) -> None:
        """See :func:`interpretable`."""
        self._interpreting = Interpreting(wraps, plain, instead)

    def __call__(self, *arguments: Any) -> Any:
        if is_running():  # machine code would give plain numbers, which Python takes otherwise
            return self.function(*arguments)
        form = self._has_run
        if form is not None:
            return form(*arguments)
        if self._interpreting is not None:
            found = answer(self, self._interpreting, arguments)
            if found is not UNANSWERED:
                return found
        form = self.form
        result = form(*arguments)  # there is a form before there is machine code of it
        self._has_run = form
        return result


class _Operation(_Named):
    def __init__(self, generate: Callable[..., Any], plain: Callable[..., Any] | None) -> None:
        self._generate = generate
        self._plain = plain

    def __call__(self, *arguments: Any) -> Any:
        if self._plain is None:
            raise TypeError("this operation is for machine code")
        return self._plain(*arguments)

    def _make(self) -> Any:
        from .machine_code import operation

        return operation(self._generate)


class _OfNumba(_Operation):
    def _make(self) -> Any:
        return self._generate()


def _of_numba(find: Callable[[], Any]) -> Any:
    return _OfNumba(find, None)


def kernel(function: Callable[..., Any]) -> Kernel:
    """Compile a function over arrays; without the GIL, cached on disk, with exact arithmetic."""
    return Kernel(function, ())


def kernel_calling(*modules: ModuleType) -> Callable[[Callable[..., Any]], Kernel]:
    """Compile as :func:`kernel` does, anew also when one of these modules has changed.

    Parameters
    ----------
    *modules : module
        Those whose kernels the function calls, and those that these call.
    """
    return lambda function: Kernel(function, modules)


def interpretable(
    *, wraps: bool = False, plain: bool = False, instead: Callable[..., Any] | None = None
) -> Callable[[Kernel], Kernel]:
    """Let a kernel run as Python while it is compiled: see :mod:`.interpreted`.

    Only where that gives the same to the last bit: values of 64 bits or comparisons, no arithmetic
    on smaller integers or truth values, no functions that the C library rounds in its own way.

    Parameters
    ----------
    wraps : bool
        Whether its integers wrap around, which else makes it run as machine code.
    plain : bool
        Whether no whole number of its own leaves 64 bits: then it may be given the elements of
        arrays as Python's numbers, which is several times as fast.
    instead : callable, optional
        The same over whole arrays, by NumPy or Arrow, which is what runs then.
    """

    def let(made: Kernel) -> Kernel:
        made.interpret(wraps, plain, instead)
        return made

    return let


def machine_operation(plain: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """An operation that kernels call, written in terms of LLVM: what Numba calls an intrinsic.

    Parameters
    ----------
    plain : callable, optional
        The same in Python.
    """
    return lambda generate: _Operation(generate, plain)


@_of_numba
def carray() -> Any:
    """Memory at a pointer as an array, in kernels."""
    from numba import carray

    return carray


def _trailing_zeros(word: int) -> int:
    word = int(word)
    return (word & -word).bit_length() - 1 if word else 64


def _find_trailing_zeros() -> Any:
    from numba.cpython.unsafe.numbers import trailing_zeros

    return trailing_zeros


trailing_zeros = _OfNumba(_find_trailing_zeros, _trailing_zeros)
"""Number of the lowest bit of a word, in kernels."""


def when_compiling(tell: Callable[[], None]) -> None:
    """Have a function called once, before the first kernel that the cache does not hold.

    Parameters
    ----------
    tell : callable
        Says why the next call takes seconds.  It must not raise.
    """
    _untold.append(tell)
    if f"{__package__}.machine_code" in sys.modules:
        _pass_on()


_untold: list[Callable[[], None]] = []


def _pass_on() -> None:
    from .machine_code import tell_of_compiling

    while _untold:
        tell_of_compiling(_untold.pop())

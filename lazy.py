"""A property that is computed when it is asked for first, and kept.

Purpose
    :class:`lazy` does what ``functools.cached_property`` does from Python 3.12 on.  Before, that
    one holds a lock *of the class* while it computes: a statement that takes seconds to bind kept
    every other statement waiting, none of them could be cancelled meanwhile, and a child that was
    forked then inherited the lock as held.

Guarantee
    No lock.  Threads that ask for the same value of the same object at once may each compute it;
    one of the values is kept.  So what is computed has to be a plain value: where making it twice
    matters (a process, a file), take a lock of the object's own.

Limits
    The object needs a ``__dict__``; a frozen dataclass has one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

__all__ = ["lazy"]

Value = TypeVar("Value")


class lazy(Generic[Value]):  # noqa: N801 - a decorator
    """See the module; use it as a decorator of a method without parameters."""

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> lazy[Value]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> Value: ...

    def __get__(self, instance: object | None, owner: type) -> lazy[Value] | Value:
        if instance is None:
            return self
        found = self._compute(instance)
        # No __set__ here: from now on the instance's own attribute is found first.
        instance.__dict__[self._name] = found
        return found

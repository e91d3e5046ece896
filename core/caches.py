"""A cache that drops what was used least recently.

Purpose
    :class:`Lru` bounds a mapping by the weight of its values: their number, or the bytes that
    they take.  ``functools.lru_cache`` remembers calls; this remembers values that are put in,
    dropped and weighed by hand.  It is too small to be worth a dependency (cachetools has it too).

Guarantee
    Safe for many threads, and free in a forked child.

Also here:

* A property that is computed when it is asked for first, and kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from .ownership import ModuleLock

Key = TypeVar("Key")
Value = TypeVar("Value")


class Lru(Generic[Key, Value]):
    """Values by key, up to a weight; the newest stays even when it alone is heavier.

    Parameters
    ----------
    limit : int
        Weight of all values.
    weigh : callable, optional
        Weight of a value, which must not change; each counts one by default.
    """

    def __init__(self, limit: int, weigh: Callable[[Value], int] = lambda value: 1) -> None:
        self._limit = limit
        self._weigh = weigh
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._lock = ModuleLock()
        self.weight = 0

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Key) -> Value | None:
        """The value of a key, which becomes the most recently used."""
        with self._lock.lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
        return value

    def put(self, key: Key, value: Value) -> None:
        """Remember a value, in place of an older one of the same key."""
        with self._lock.lock:
            if key in self._values:
                self.weight -= self._weigh(self._values.pop(key))
            self._values[key] = value
            self.weight += self._weigh(value)
            while self.weight > self._limit and len(self._values) > 1:
                self.weight -= self._weigh(self._values.popitem(last=False)[1])

    def drop(self, key: Key) -> None:
        """Forget the value of a key, if there is one."""
        with self._lock.lock:
            if key in self._values:
                self.weight -= self._weigh(self._values.pop(key))

    def clear(self) -> None:
        """Drop every value."""
        with self._lock.lock:
            self._values.clear()
            self.weight = 0


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

"""An LRU cache, and cached properties without a lock.

``Lru`` bounds a mapping by the weight of its values: their number, or their bytes.  It is safe for
many threads, and its lock is free in a forked child.

``lazy`` is ``functools.cached_property`` of Python 3.12 and later, also for older versions, whose
lock is one per class: a slow computation blocks all instances, and a forked child inherits the lock
as held.  ``lazy`` has no lock: threads may compute a value twice, and one result stays.  So the
value must be plain; where computing it twice matters (a process, a file), use a lock of the object.
The object needs a ``__dict__``; a frozen dataclass has one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, overload

from .ownership import ModuleLock

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(eq=False)
class Lru(Generic[Key, Value]):
    """Values by key, up to the weight ``limit``; the newest stays even if it alone is heavier.

    ``weigh`` gives the weight of a value, which must not change; 1 each by default.  ``evicted`` is
    called with each value that makes room for others, under the lock.
    """

    limit: int
    weigh: Callable[[Value], int] = lambda value: 1
    evicted: Callable[[Value], object] = lambda value: None
    weight: int = field(default=0, init=False)
    _values: OrderedDict[Key, Value] = field(default_factory=OrderedDict, init=False)
    _lock: ModuleLock = field(default_factory=ModuleLock, init=False)

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Key) -> Value | None:
        """The value of a key, which becomes the most recently used; None if absent."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
        return value

    def put(self, key: Key, value: Value) -> None:
        with self._lock:
            if key in self._values:
                self.weight -= self.weigh(self._values.pop(key))
            self._values[key] = value
            self.weight += self.weigh(value)
            while self.weight > self.limit and len(self._values) > 1:
                oldest = self._values.popitem(last=False)[1]
                self.weight -= self.weigh(oldest)
                self.evicted(oldest)

    def drop(self, key: Key) -> None:
        """Remove a key, if present."""
        with self._lock:
            if key in self._values:
                self.weight -= self.weigh(self._values.pop(key))

    def clear(self) -> None:
        with self._lock:
            self._values.clear()
            self.weight = 0


class lazy(Generic[Value]):  # noqa: N801 - a decorator
    """Decorator of a method without parameters: a property, computed once."""

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
        value = self._compute(instance)
        # No __set__ here: from now on the instance's own attribute is found first.
        instance.__dict__[self._name] = value
        return value

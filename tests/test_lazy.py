"""Properties that are computed once."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from chronicle.core.caches import lazy
from chronicle.query.contract.access import Access

from .patience import PATIENCE_S, wait_until


@dataclass(frozen=True)
class Square:
    side: int
    asked: list[int] = field(default_factory=list)

    @lazy
    def area(self) -> int:
        """Its area."""
        self.asked.append(self.side)
        return self.side**2


def test_it_is_computed_once_for_each_object() -> None:
    one, other = Square(2), Square(3)
    assert [one.area, other.area, one.area, other.area] == [4, 9, 4, 9]
    assert (one.asked, other.asked) == ([2], [3])
    assert Square.__dict__["area"].__doc__ == "Its area."


def test_one_that_takes_long_keeps_nobody_waiting() -> None:
    """Of two statements, the one that is bound at once is answered while the other is bound."""
    begun, end = threading.Event(), threading.Event()

    def long() -> frozenset[str]:
        begun.set()
        assert end.wait(PATIENCE_S)
        return frozenset({"long"})

    found: list[Any] = []
    slow = threading.Thread(target=lambda: found.append(Access("Select", "read", None, long).reads))
    quick = threading.Thread(
        target=lambda: found.append(
            Access("Select", "read", None, lambda: frozenset({"short"})).reads
        ),
        daemon=True,
    )
    slow.start()
    assert begun.wait(PATIENCE_S)
    quick.start()
    wait_until(lambda: found, "the quick one")
    answered = list(found)
    end.set()
    slow.join(PATIENCE_S)
    quick.join(PATIENCE_S)
    assert answered == [frozenset({"short"})]
    assert len(found) == 2

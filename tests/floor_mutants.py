"""Lies about what retention shows, for ``make mutants``.

Layout
    Entries are ``(name, file or folder, text, replacement, tests below tests/store)``.
"""

from __future__ import annotations

__all__ = ["FLOOR_MUTANTS"]

FLOOR_MUTANTS = [
    (
        "the floor waits for the next manifest",
        "store/floor.py",
        "        if base is None or (target is not None and target > base.until):\n",
        "        if base is None:\n",
        "test_floor.py",
    ),
    (
        "late events that are too old are shown",
        "store/floor.py",
        "        if floor is not None and leaf.first < floor:\n",
        "        if False:\n",
        "test_floor.py",
    ),
    (
        "a late run is shown from its first event on",
        "store/floor.py",
        "        elif floor is not None and entry.first < floor:\n",
        "        elif False:\n",
        "test_floor.py",
    ),
    (
        "a floor goes back when roll-ups need more",
        "store/floor.py",
        "            floor = bound if floor is None else max(floor, bound)\n",
        "            pass\n",
        "test_floor.py",
    ),
    (
        "a pin does not say where the floor is",
        "store/pins.py",
        "        return replace(manifest, floor=state.floor)\n",
        "        return manifest\n",
        "test_floor.py",
    ),
    (
        "a longer retention brings back what was hidden",
        "store/background.py",
        "                if hides and not expelled(commits, self._stopped.is_set):\n",
        "                if False:\n",
        "test_floor.py",
    ),
    (
        "the floor outlives a truncation",
        "store/commits.py",
        "            self._floors.forget()\n",
        "            pass\n",
        "test_floor.py",
    ),
    (
        "a size is cut where it is nearly reached",
        "store/floor.py",
        "        if excess <= 0:\n",
        "        if excess <= -size // 4:\n",
        "test_floor.py",
    ),
    (
        "a delete counts what retention hides",
        "store/deleting.py",
        "        self.removed += shown\n",
        "        self.removed += entry.events\n",
        "test_floor.py",
    ),
    (
        "a late run goes while events of its times are shown",
        "store/retention.py",
        "    kept[count:] = entries.lasts[count:] >= bound\n",
        "",
        "test_floor.py",
    ),
]

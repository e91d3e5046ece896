"""Where a query is evaluated, if not everywhere as of now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..store.snapshot import Snapshot
    from .contract.operator import Part
    from .windows.group_cache import GroupHook


@dataclass(frozen=True)
class Region:
    """Restricts the evaluation of a query.  ``snapshots``: streams as they are to be seen;
    ``bounds``: half-open ticks outside of which events do not count; ``part`` makes the share of a
    clause's results from a snapshot and the clause; ``hook``: applied to groups of windows
    before output.
    """

    snapshots: Mapping[str, Snapshot]
    bounds: Mapping[str, tuple[int | None, int | None]] = field(default_factory=dict)
    part: Callable[[Snapshot, Any], Part] | None = None
    hook: GroupHook | None = None

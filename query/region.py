"""Where a query is evaluated, when that is not everywhere as of now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..store.snapshot import Snapshot
    from .pattern.compiled import CompiledMatch
    from .situations.compiled import CompiledSituations
    from .split.parts import MatchPart
    from .split.situation_parts import SituationPart
    from .windows.kept_groups import GroupHook

__all__ = ["Region"]


@dataclass(frozen=True)
class Region:
    """Where a query is evaluated, instead of everywhere as of now.

    Attributes
    ----------
    snapshots : mapping of str to Snapshot
        Streams as they are to be seen.
    bounds : mapping of str to (int or None, int or None)
        Half-open ranges of ticks outside of which their events do not count.
    part : callable, optional
        From a snapshot and a row pattern over it to the share of its matches that is looked for.
    situations : callable, optional
        The same for patterns of situations.
    hook : GroupHook, optional
        What becomes of groups of windows before they are given out.
    """

    snapshots: Mapping[str, Snapshot]
    bounds: Mapping[str, tuple[int | None, int | None]] = field(default_factory=dict)
    part: Callable[[Snapshot, CompiledMatch], MatchPart] | None = None
    situations: Callable[[Snapshot, CompiledSituations], SituationPart] | None = None
    hook: GroupHook | None = None

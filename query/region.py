"""Where a query is evaluated, if not everywhere as of now."""

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


@dataclass(frozen=True)
class Region:
    """Restricts the evaluation of a query.  ``snapshots``: streams as they are to be seen;
    ``bounds``: half-open ticks outside of which events do not count; ``part`` and ``situations``
    make the share of a pattern's matches from a snapshot; ``hook``: applied to groups of windows
    before output.
    """

    snapshots: Mapping[str, Snapshot]
    bounds: Mapping[str, tuple[int | None, int | None]] = field(default_factory=dict)
    part: Callable[[Snapshot, CompiledMatch], MatchPart] | None = None
    situations: Callable[[Snapshot, CompiledSituations], SituationPart] | None = None
    hook: GroupHook | None = None

"""What had gone from a source when a state was made, and whether that matters to it.

Purpose
    States of live queries hold events, or what was made of them, from some time on.  A delete or a
    truncation may take any of these away.  Retention takes the oldest, with every leaf
    (:mod:`~chronicle.store.floor`): as long as these lie before what a state holds it stays as it
    is, and is not made anew.
"""

from __future__ import annotations

from typing import NamedTuple

from ..store.snapshot import StreamState

__all__ = ["Removals"]


class Removals(NamedTuple):
    """The events of a stream that had gone as of one of its states."""

    dropped: int
    deleted: int
    rewritten: int
    truncated: int

    @classmethod
    def of(cls, state: StreamState) -> Removals:
        """As of a state."""
        return cls(state.dropped, state.deleted, state.rewritten, state.truncated)

    def spare(self, state: StreamState, first: int | None) -> bool:
        """Whether of the events from a tick on none has gone since; ``first`` None: of none."""
        now = Removals.of(state)
        if now == self:
            return True
        if now[1:] != self[1:]:
            return False
        return first is None or (state.dropped_before is not None and state.dropped_before <= first)

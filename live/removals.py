"""Whether events removed from a source since a state was built affect that state.

Retention removes the oldest, which does not affect a state that begins later.
"""

from __future__ import annotations

from typing import NamedTuple

from ..store.snapshot import StreamState

__all__ = ["Removals"]


class Removals(NamedTuple):
    dropped: int
    deleted: int
    rewritten: int
    truncated: int

    @classmethod
    def of(cls, state: StreamState) -> Removals:
        return cls(state.dropped, state.deleted, state.rewritten, state.truncated)

    def spare(self, state: StreamState, first: int | None) -> bool:
        """Whether no event from tick ``first`` on was removed since (None: no event matters)."""
        now = Removals.of(state)
        if now == self:
            return True
        if now[1:] != self[1:]:
            return False
        return first is None or (state.dropped_before is not None and state.dropped_before <= first)

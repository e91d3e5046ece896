"""Searches that go on from step to step: what the forms of patterns and of instants share.

A state is a cache: valid for one watermark and one set of events up to it, and made again from the
stream where it is not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from ..core.times import half_open
from ..errors import ChronicleError, ResourceLimit
from ..query.contract.operator import Part, PartRun
from ..store.snapshot import Snapshot
from .changes import Results
from .forms import StreamForm

STATE_BYTES_MAX = 256 << 20
"""Limit per live query; beyond it steps evaluate regions."""


class SearchState(ABC):
    """``watermark``: where the search is, None after a failure."""

    def __init__(self) -> None:
        self.watermark: int | None = None
        self.nbytes = 0

    @abstractmethod
    def advance(self, run: PartRun, since: int, known: int) -> list[pa.RecordBatch]:
        """Results closed at ``known`` but not at ``since``, from the state if it is valid there."""

    def drop(self) -> None:
        self.watermark, self.nbytes = None, 0


def bounded(run: PartRun) -> PartRun:
    """A run for building a state, within the memory of one."""
    memory = min(run.limits.memory_bytes, STATE_BYTES_MAX)
    return run._replace(limits=replace(run.limits, memory_bytes=memory))


class Step(Part):
    """The results of a step; running it advances the state."""

    def __init__(self, state: SearchState, since: int, known: int) -> None:
        self._state = state
        self._since, self._known = since, known
        self._results: list[pa.RecordBatch] | None = None

    @property
    def ticks(self) -> tuple[int | None, int | None]:
        return half_open(self._since + 1, self._known)

    def run(self, run: PartRun) -> Iterator[pa.RecordBatch]:
        if self._results is None:  # a part may be run repeatedly
            self._results = self._state.advance(run, self._since, self._known)
        yield from self._results

    def describe(self) -> str:
        return f"what becomes known by time ({self._since}, {self._known}]"


class StatefulForm(StreamForm):
    """A form of one stream with a state; None where it would be too large."""

    appends = False
    incremental = True
    _state: SearchState | None

    @abstractmethod
    def _part(self, snapshot: Snapshot, part: Part) -> Results:
        """The results of a part."""

    def _from_state(self, snapshot: Snapshot, part: Part) -> Results | None:
        """The results of a part that uses the state; None where the region must be evaluated."""
        try:
            return self._part(snapshot, part)
        except ResourceLimit:  # a rebuilt state would be too large again
            self._state = None
            return None
        except ChronicleError:  # the region reports the error, or avoids it
            self.drop_state()
            return None
        except BaseException:
            self.drop_state()
            raise

    @property
    def state_bytes(self) -> int:
        return 0 if self._state is None else self._state.nbytes

    def drop_state(self) -> None:
        if self._state is not None:
            self._state.drop()

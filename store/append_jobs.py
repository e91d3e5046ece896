"""Append jobs for ``append_queue``: the input of each append and the result for its thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.append_result import AppendResult
from .append_queue import QueuedAppend
from .conform import AppendRules
from .duplicates import Keys
from .journal import Marks
from .log import LogWriter
from .snapshot import Snapshot, StreamState

__all__ = ["Append", "AppendSeries"]


class Append(QueuedAppend):
    __slots__ = (
        "_carry_out",
        "batch",
        "duplicates",
        "keys",
        "late",
        "log",
        "marks",
        "newest",
        "position",
        "rules",
        "state",
        "ticks",
    )

    state: StreamState
    log: LogWriter

    def __init__(
        self,
        carry_out: Callable[[Append], None],
        batch: pa.RecordBatch,
        ticks: npt.NDArray[np.int64],
        rules: AppendRules,
        durable: bool,
        marks: Marks | None,
        keys: Keys | None,
    ) -> None:
        super().__init__(patient=durable)
        self._carry_out = carry_out
        self.batch = batch
        self.ticks = ticks
        self.rules = rules
        self.marks = marks
        self.keys = keys
        self.duplicates = 0
        self.late = 0
        self.newest: int | None = None
        self.position = 0

    def perform(self) -> None:
        self._carry_out(self)

    @property
    def result(self) -> AppendResult:
        count = Snapshot(self.state).count
        return AppendResult(
            self.batch.num_rows,
            self.late,
            count,
            self.state.position,
            self.newest,
            self.duplicates,
        )


class AppendSeries(QueuedAppend):
    """Appends in order, settled together; it fails only if the first does, earlier ones stay
    stored.
    """

    __slots__ = ("done", "jobs", "log", "position", "state")

    state: StreamState
    log: LogWriter

    def __init__(self, jobs: Sequence[Append]) -> None:
        super().__init__(patient=jobs[0].patient)
        self.jobs = jobs
        self.done = 0
        self.position = 0

    def perform(self) -> None:
        for job in self.jobs:
            try:
                job.perform()
            except Exception:
                if not self.done:
                    raise
                return
            self.done += 1
            self.log, self.position, self.state = job.log, job.position, job.state

"""Counters of a task's read, logged and recorded when it ends; ``measuring.py`` collects them::

<metricsPath>/<stream>-<stage>-<partition>-<attempt>-<random>.json     one JSON object each
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa

from ..store import ScanMetrics, Snapshot

if TYPE_CHECKING:
    from ..store.snapshot import StreamState
    from .backend import EventPartition


logger = logging.getLogger("chronicle.spark")


class CountedSnapshot(Snapshot):
    """A snapshot whose scans always count into ``metrics``."""

    def __init__(self, state: StreamState, metrics: ScanMetrics) -> None:
        super().__init__(state)
        self._metrics = metrics

    def scan(
        self,
        start: int | None = None,
        end: int | None = None,
        columns: Sequence[str] | None = None,
        **how: Any,
    ) -> Iterator[pa.RecordBatch]:
        return super().scan(start, end, columns, **{**how, "metrics": self._metrics})


def counted(snapshot: Snapshot, metrics: ScanMetrics) -> Snapshot:
    return CountedSnapshot(snapshot.state, metrics)


@contextmanager
def measured(
    stream: str, partition: EventPartition, directory: str | None
) -> Iterator[ScanMetrics]:
    """Metrics of the read in the block, logged and recorded when it ends, early or not."""
    metrics = ScanMetrics()
    started = time.perf_counter()
    try:
        yield metrics
    finally:
        record = {
            "stream": stream,
            "start": partition.start,
            "end": partition.end,
            **_task(),
            "blocks_read": metrics.blocks_read,
            "blocks_skipped": metrics.blocks_skipped,
            "nodes_read": metrics.nodes_read,
            "bytes_read": metrics.bytes_read,
            "events_read": metrics.events_read,
            "seconds": round(time.perf_counter() - started, 6),
        }
        logger.info("read %s", json.dumps(record))
        if directory is not None:
            _leave(directory, record)


def _task() -> dict[str, int | None]:
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return {"stage": None, "partition": None, "attempt": None}
    return {
        "stage": context.stageId(),
        "partition": context.partitionId(),
        "attempt": context.attemptNumber(),
    }


def _leave(directory: str, record: dict[str, Any]) -> None:
    place = Path(directory)
    place.mkdir(parents=True, exist_ok=True)
    task = "-".join(str(record[name]) for name in ("stage", "partition", "attempt"))
    name = f"{quote(record['stream'], safe='')}-{task}-{secrets.token_hex(6)}"
    hidden = place / f".{name}"
    hidden.write_text(json.dumps(record) + "\n", encoding="utf-8")
    os.replace(hidden, place / f"{name}.json")  # atomic

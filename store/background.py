"""What a stream does beside its appends: syncs at an interval, and compaction.

Purpose
    :class:`Flusher` keeps the promise of ``durability="interval"``.  :class:`Compactor` folds late
    runs in when they have become many, in a thread that is started when it is first needed.

Guarantee
    Both end when the stream is closed: :meth:`Compactor.stop` interrupts a compaction between two
    batches, which leaves the stream as it was.  What fails in the background is logged, tried again
    later, and never disturbs an append.

When late runs are folded
    Spilling merges neighbours of similar size, so ``n`` late events make at most ``log2(n /
    late_events_max)`` runs.  They are folded in when

    - there are :data:`RUNS_MAX` of them, or
    - they hold :data:`SHARE_MIN` of the events in the segments that they touch, and at least
      :data:`EVENTS_MIN`.

    Folding rewrites the touched segments.  The share bounds what that costs: at most ``1 /
    SHARE_MIN`` events are rewritten for one late event.

Limits
    A thread of the writer's process: it shares its processors with the appends.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from ..errors import ChronicleError
from .commits import Commits
from .compaction import Interrupted, compact

__all__ = ["Compactor", "Flusher"]

logger = logging.getLogger("chronicle.store")

RUNS_MAX = 8
SHARE_MIN = 0.05
EVENTS_MIN = 32_768
RETRY_SECONDS = 10.0


class Flusher:
    """Syncs at an interval until stopped.

    Parameters
    ----------
    sync : callable
        Must not raise.
    seconds : float
    """

    def __init__(self, sync: Callable[[], None], seconds: float) -> None:
        self._sync = sync
        self._seconds = seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chronicle-flusher", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.wait(self._seconds):
            self._sync()

    def stop(self) -> None:
        """Stop and wait for the thread."""
        self._stopped.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()


class Compactor:
    """Folds the late runs of a stream, one compaction at a time.

    Parameters
    ----------
    commits : Commits
    """

    def __init__(self, commits: Commits) -> None:
        self._commits = commits
        self._one = threading.Lock()
        self._due = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        """Compact now, in this thread."""
        with self._one:
            compact(self._commits, self._stopped.is_set)

    def wake(self) -> None:
        """Compact in the background if it is due; called with the stream's lock held."""
        if self._commits.options.compaction != "background" or not self.due():
            return
        self._due.set()
        if self._thread is None and not self._stopped.is_set():
            self._thread = threading.Thread(
                target=self._work, name="chronicle-compactor", daemon=True
            )
            self._thread.start()

    def due(self) -> bool:
        """Whether the late runs have become many; see the module."""
        runs = self._commits.manifest.runs
        if len(runs) >= RUNS_MAX:
            return True
        late = sum(entry.events for entry in runs)
        if late < EVENTS_MIN:
            return False
        first = min(entry.first for entry in runs)
        touched = sum(
            entry.events for entry in self._commits.manifest.segments if entry.last >= first
        )
        if self._commits.writer is not None:
            touched += self._commits.writer.events
        return late >= SHARE_MIN * touched

    def _work(self) -> None:
        while not self._stopped.is_set():
            self._due.wait()
            self._due.clear()
            if self._stopped.is_set():
                return
            try:
                self.run()
            except Interrupted:
                return
            except (ChronicleError, OSError) as error:
                logger.warning("%s: compaction failed: %s", self._commits.directory, error)
                self._stopped.wait(RETRY_SECONDS)
            except Exception:
                logger.exception("%s: compaction failed", self._commits.directory)
                self._stopped.wait(RETRY_SECONDS)

    def stop(self) -> None:
        """Interrupt what runs and wait for the thread; nothing is compacted afterwards."""
        self._stopped.set()
        self._due.set()
        if self._thread is not None and threading.current_thread() is not self._thread:
            self._thread.join()

"""Compaction of a stream in the background (``Compactor``).

Guarantee: ``Compactor.stop`` interrupts a compaction between two batches, which leaves the stream
unchanged, and a move between two requests.  A background failure is logged, retried later, and
never disturbs an append.

Late runs are folded when they hold ``SHARE_MIN`` of the events in the segments that they overlap,
and at least ``EVENTS_MIN``; and then not before the stream has been quiet for ``QUIET_SECONDS``, or
the runs hold ``SPILLS_BUSY`` full buffers.  The share bounds write amplification: at most ``1 /
SHARE_MIN`` events are rewritten for one late event, plus small segments that are joined.

Throttling: while the other threads of the process leave less than ``PROCESSOR_SPARE`` of a
processor idle, a compaction rests between two batches (``moving.Pace``), until ``SPILLS_OVERDUE``
full buffers wait in runs.  Moves rest while less than ``MOVING_SPARE`` is idle.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from ..errors import ChronicleError, ResourceLimit, StoreClosed
from .cold_file import DOOMED, MOVING, purge_quietly
from .commits import Commits
from .compaction import RUNS_MAX, Interrupted, compact
from .deleting import rewrite_events
from .floor import Hold, loosened
from .moving import Moved, Pace, Stopped, move_segments
from .object_store import ObjectStore
from .segment import TICK_MIN

logger = logging.getLogger("chronicle.store")

SHARE_MIN = 0.05
EVENTS_MIN = 32_768
SPILLS_BUSY = RUNS_MAX
SPILLS_OVERDUE = 2 * RUNS_MAX
QUIET_SECONDS = 1.0
PROCESSOR_SPARE = 0.75
MOVING_SPARE = 1.25
RETRY_SECONDS = 10.0


class Compactor:
    def __init__(self, commits: Commits) -> None:
        self._commits = commits
        self._one = threading.Lock()
        self._moving = threading.Lock()
        self._stopped = threading.Event()
        self._pace = Pace(self._stopped.wait, MOVING_SPARE)
        self._due = threading.Event()
        self._waiting = 0
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        with self.alone("compacted"):
            compact(self._commits, self._stopped.is_set)
            with self._commits.lock:
                self._commits.collect_garbage()

    def rewrite(self, doing: str, first: int, last: int, **how: Any) -> int:
        """Delete, update or replace events, as ``deleting.rewrite_events`` says."""
        with self.alone(doing):
            return rewrite_events(self._commits, first, last, self._stopped.is_set, **how)

    def move(self, to: ObjectStore, owner: str, before: int | None, stopped: Stopped) -> Moved:
        def ended() -> bool:
            return self._stopped.is_set() or stopped()

        with self._moving:
            return move_segments(self._commits, to, owner, before, ended, self._pace)

    @contextmanager
    def altered(self, options: Mapping[str, Any]) -> Iterator[None]:
        """Alter options inside this block, with the lock held.  For a longer retention, segments
        are first rewritten without hidden events, and a hold keeps more from being hidden
        meanwhile.
        """
        commits = self._commits

        def everything() -> Hold:
            return Hold(TICK_MIN, TICK_MIN)

        with self.alone("altered"), ExitStack() as held:
            if "retention" in options and loosened(commits.manifest, options["retention"]):
                with commits.lock:
                    commits.check_writable()
                    commits.hold(everything)
                    held.callback(commits.release, everything)
                    hides = commits.hides()
                if hides and not compact(commits, self._stopped.is_set):
                    raise ResourceLimit(
                        f"the stream {commits.manifest.name!r} changed during each attempt to "
                        "remove what its retention hides; try again when less is loaded"
                    )
            with commits.lock:
                held.close()
                yield

    @contextmanager
    def alone(self, doing: str) -> Iterator[None]:
        """Exclude other compactions in this block, interrupting a background one; then purge."""
        with self._commits.lock:
            self._waiting += 1
        try:
            with self._one:
                yield
                self._purge()
        except Interrupted:
            raise StoreClosed(
                f"{self._commits.directory} was closed while it was {doing}; nothing has changed"
            ) from None
        finally:
            with self._commits.lock:
                self._waiting -= 1

    def _purge(self) -> None:
        """Remove unreferenced objects; those that are being moved are incomplete and stay."""
        alone = self._moving.acquire(blocking=False)
        try:
            endings = (DOOMED, MOVING) if alone else (DOOMED,)
            purge_quietly(self._commits.files, self._commits.directory, endings)
        finally:
            if alone:
                self._moving.release()

    def wake(self) -> None:
        """Compact in the background if it is due; the caller holds the stream's lock."""
        if self._commits.options.compaction != "background" or not self.due():
            return
        self._due.set()
        if self._thread is None and not self._stopped.is_set():
            self._thread = threading.Thread(
                target=self._work, name="chronicle-compactor", daemon=True
            )
            self._thread.start()

    def due(self) -> bool:
        manifest, active = self._commits.manifest, self._commits.active  # may be replaced
        late = sum(entry.events for entry in manifest.runs)
        if not manifest.runs or late < EVENTS_MIN:
            return False
        first = min(entry.first for entry in manifest.runs)
        touched = int(manifest.segments.events[manifest.segments.lasts >= first].sum())
        if active is not None:
            touched += active.writer.events
        return late >= SHARE_MIN * touched

    def _late(self) -> int:
        return sum(entry.events for entry in self._commits.manifest.runs)

    def _work(self) -> None:
        while not self._stopped.is_set():
            self._due.wait()
            self._due.clear()
            self._wait_for_quiet()
            if self._stopped.is_set():
                return
            done = self._commits.figures["compactions"]
            try:
                with self._one:
                    compact(self._commits, self._interrupted(), buffered=False)
            except Interrupted:
                if self._stopped.is_set():
                    return
                self._due.set()
            except (ChronicleError, OSError) as error:
                logger.warning("%s: compaction failed: %s", self._commits.directory, error)
                self._stopped.wait(RETRY_SECONDS)
            except Exception:
                logger.exception("%s: compaction failed", self._commits.directory)
                self._stopped.wait(RETRY_SECONDS)
            if self._commits.figures["compactions"] > done:
                self._purge()
                if self.due():
                    self._due.set()  # late events arrived meanwhile

    def _interrupted(self) -> Callable[[], bool]:
        pace = Pace(self._stopped.wait, PROCESSOR_SPARE)

        def ended() -> bool:
            if not self._waiting:
                pace(self._overdue)
            return self._waiting > 0 or self._stopped.is_set()

        return ended

    def _overdue(self) -> bool:
        return self._late() >= SPILLS_OVERDUE * self._commits.options.late_events_max

    def _wait_for_quiet(self) -> None:
        before = -1
        while self._late() < SPILLS_BUSY * self._commits.options.late_events_max:
            position = self._commits.journal.position
            if position == before or self._stopped.is_set():
                return
            before = position
            self._due.wait(QUIET_SECONDS)
            self._due.clear()

    def stop(self) -> None:
        """Interrupt running work and wait for it; no compaction or move begins afterwards."""
        self._stopped.set()
        self._due.set()
        if self._thread is not None and threading.current_thread() is not self._thread:
            self._thread.join()
        with self._moving:  # its request to the objects ends first
            pass

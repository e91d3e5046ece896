"""Compaction: folding late runs into the base segments, so that readers need not merge them.

Guarantee: scans, aggregates and the order of ties do not change.  Rewriting reads immutable files
while appends go on; one replacement of the manifest publishes it.  After a crash, the next opening
removes unnamed files.  If retention or truncation meanwhile drops an input, it begins again.

Algorithm: an event at time t belongs to the last base segment that begins at or before t (else the
first), after all base events of its time, which arrived earlier. ::

    base     |==== 1 ====|==== 2 ====|==== 3 ====|==== 4 ====|       1 and 4 stay
    runs                     |--|  |-----|                           2 and 3 are rewritten,
    after    |==== 1 ====|======= 5 =======|= 6 =|==== 4 ====|       joined, cut when full

Late events keep falling into the newest part of a stream, as far back as ``Commits.reach``.  So the
output is cut there, at the *horizon*: the next fold rewrites only what is behind it.  A crowd of
small segments before the horizon is joined with what is being rewritten. ::

    folded   |======= cold =======|= hot =|
    later    |======= cold =======|= hot =|====== new ======|
    folded   |======= cold =======|===== cold =====|= hot =|
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from ..errors import CorruptStore
from .catalog import SegmentEntry, SegmentList
from .cold_files import ColdFiles
from .commits import Commits
from .draft import seal
from .edit import Edit
from .fold import Fold, events_between
from .merge import join_late
from .progress import each
from .rewriting import merge_runs, write_group
from .segment import TICK_MAX, TICK_MIN

__all__ = [
    "ATTEMPTS",
    "RUNS_MAX",
    "active_first",
    "compact",
    "expelled",
    "rewritten",
    "show",
    "spill",
]

logger = logging.getLogger("chronicle.store")

ATTEMPTS = 5

CROWD = 8

SMALL_SHARE = 8
"""A segment is small below ``segment_bytes`` / this."""

RUNS_MAX = 8
"""Late runs, beside those being folded; above it, two neighbours are merged."""


def _never() -> bool:
    return False


def compact(
    commits: Commits, stopped: Callable[[], bool] = _never, *, buffered: bool = True
) -> None:
    """Fold the late events of a stream; ``stopped`` is polled and raises ``fold.Interrupted``.
    ``buffered`` also folds the buffer, and rewrites outdated columns and expired events.
    """
    if not rewritten(commits, lambda: _begin(commits, buffered), stopped):
        logger.warning(
            "%s: the base changed during each of %d compactions", commits.directory, ATTEMPTS
        )


def expelled(commits: Commits, stopped: Callable[[], bool]) -> bool:
    """Rewrite segments with hidden events; False when the base changed in each attempt."""
    return rewritten(commits, lambda: _begin(commits), stopped)


def rewritten(
    commits: Commits, begin: Callable[[], Fold | None], stopped: Callable[[], bool]
) -> bool:
    """Rewrite what ``begin`` chooses, and commit; False when the base changed in each attempt.  The
    lock is held only by ``begin`` (None: nothing to do) and during the commit.
    """
    for _ in range(ATTEMPTS):
        began = time.perf_counter()
        fold = begin()
        if fold is None:
            return True
        done = False
        try:
            _rewrite(commits, fold, stopped)
            done = _finish(commits, fold)
        finally:
            with commits.lock:
                commits.fold()
            if not done and commits.failed is None:
                commits.discard(fold.identifiers)
        if done:
            commits.count(
                compactions=1,
                compaction_seconds=time.perf_counter() - began,
                events_rewritten=sum(entry.events for entry, _ in fold.made),
            )
            return True
    return False


def _begin(commits: Commits, buffered: bool = True) -> Fold | None:
    with commits.lock:
        commits.check_writable()
        before = commits.manifest.version
        if commits.journal.late and buffered:
            spill(commits)
        runs = commits.manifest.runs
        purged = frozenset(
            entry.id
            for entry in (commits.manifest.segments if buffered else ())
            if commits.manifest.holds_dropped(entry) or commits.manifest.read_as(entry).evolution
        )
        active_from = active_first(commits)
        expires = commits.expires(exactly=buffered)
        if buffered and expires is not None and active_from is not None and active_from < expires:
            seal(commits)
            runs, active_from = commits.manifest.runs, None
        entries = commits.manifest.segments
        old = buffered and expires is not None and any(entries.firsts < expires)
        if not (runs or purged or old):  # retention may have dropped them during the spill
            show(commits, before)
            return None
        newest = max((entry.last for entry in runs), default=TICK_MIN)
        if not commits.manifest.segments or (active_from is not None and newest >= active_from):
            seal(commits)
            runs = commits.manifest.runs
            if not (runs or purged or old):
                show(commits, before)
                return None
        segments = commits.manifest.segments
        commits.fold(runs)
        views = commits.views.by_id(commits.manifest)
        fold = Fold(
            commits.schema, runs, segments, views, purged=purged, expires=expires, expels=buffered
        )
        if commits.reach and commits.journal.last is not None:
            fold.horizon = commits.journal.last - int(commits.reach)
        return fold


def show(commits: Commits, before: int) -> None:
    """Publish earlier commits when no further commit follows."""
    if commits.manifest.version != before:  # a commit makes everything before it durable
        commits.publish(commits.state())


def _rewrite(commits: Commits, fold: Fold, stopped: Callable[[], bool]) -> None:
    if not fold.segments:  # retention has dropped the base: only late events are left
        if fold.runs:
            write_group(commits, fold, [], TICK_MIN, TICK_MAX, stopped)
        return
    group: list[SegmentEntry] = []
    group_first = group_last = 0
    size = 0
    spans: list[tuple[int, int]] = []
    wanted: list[bool] = []
    segments = list(fold.segments)
    for number, entry in enumerate(segments):
        newest = number == len(segments) - 1
        first = TICK_MIN if number == 0 else entry.first
        last = TICK_MAX if newest else segments[number + 1].first - 1
        spans.append((first, last))
        late = any(events_between(fold.views[e.id], first, last) for e in fold.runs)
        if not late and fold.drops(entry):
            fold.replaced[entry.id] = []
            wanted.append(False)
        else:
            wanted.append(late or fold.touches(entry))
    _join_crowd(commits, fold, wanted)
    for entry, (first, last), touched in each(list(zip(segments, spans, wanted, strict=True))):
        if group and (not touched or size + entry.bytes > commits.options.sealed_bytes):
            write_group(commits, fold, group, group_first, group_last, stopped)
            group = []
        if touched:
            if not group:
                group_first, size = first, 0
            group.append(entry)
            group_last = last
            size += entry.bytes
    if group:
        write_group(commits, fold, group, group_first, group_last, stopped)


def _join_crowd(commits: Commits, fold: Fold, wanted: list[bool]) -> None:
    if commits.options.retention is not None or True not in wanted:
        return
    end = len(wanted) - 1 - wanted[::-1].index(True)
    while end > 0 and wanted[end - 1]:
        end -= 1
    small = commits.options.segment_bytes // SMALL_SHARE
    start, files = end, commits.files
    cold = files.cold(commits.directory) if isinstance(files, ColdFiles) else frozenset()
    while start > 0 and not wanted[start - 1]:
        entry = fold.segments[start - 1]
        if entry.bytes >= small or entry.id in fold.replaced or entry.file in cold:
            break
        start -= 1
    if end - start >= CROWD:
        wanted[start:end] = [True] * (end - start)


def _finish(commits: Commits, fold: Fold) -> bool:
    with commits.lock:
        commits.check_writable()
        fold.ready(commits)
        manifest = commits.manifest
        named = {*manifest.segments.ids.tolist(), *(entry.id for entry in manifest.runs)}
        gone = fold.sources
        if not named.issuperset({*fold.replaced, *gone}):
            return False
        if not fold.segments and manifest.segments:
            return False
        present = manifest.segments.replaced(fold.replaced)
        if not fold.segments:
            present = SegmentList.of(entry for entry, _ in fold.made)
        manifest = replace(
            manifest,
            segments=present,
            runs=tuple(entry for entry in manifest.runs if entry.id not in gone),
        )
        commits.apply(fold.edit(commits, manifest))
        fold.applied(commits)
        state = commits.state()
    commits.publish(state)
    return True


def active_first(commits: Commits) -> int | None:
    """First tick of the active segment and the tail; None when both are empty."""
    view = commits.active_view()
    if view is not None and view.events:
        return view.first
    return commits.journal.tail.first


def spill(commits: Commits) -> None:
    """Write the late buffer as a late run.  Above ``RUNS_MAX``, the adjacent pair with the fewest
    events is merged, for low write amplification; runs being folded and damaged ones are skipped.
    """
    schema = commits.schema
    first_id = commits.next_id
    kept: set[int] = set()
    try:
        writer = commits.new_segment().writer
        writer.write(join_late(commits.journal.late, schema))
        entry, view = commits.seal_writer(writer)
        views = {entry.id: view}
        # runs being folded are the oldest
        folding = [e for e in commits.manifest.runs if e.id in commits.folding]
        runs = [e for e in commits.manifest.runs if e.id not in commits.folding] + [entry]
        damaged: set[tuple[int, int]] = set()
        while len(runs) > RUNS_MAX:
            pairs = [
                (runs[i].events + runs[i + 1].events, -i)
                for i in range(len(runs) - 1)
                if (runs[i].id, runs[i + 1].id) not in damaged
            ]
            if not pairs:
                break
            at = -min(pairs)[1]
            pair = [views.get(e.id) or commits.views[e.id] for e in runs[at : at + 2]]
            merged = commits.new_segment().writer
            try:
                merge_runs(pair, merged, schema)
            except CorruptStore as error:
                merged.close()
                logger.error("%s: cannot merge late runs: %s", commits.directory, error)
                damaged.add((runs[at].id, runs[at + 1].id))
                continue
            entry, view = commits.seal_writer(merged)
            runs[at : at + 2] = [entry]
            views[entry.id] = view
        runs = [*folding, *runs]
        kept = {entry.id for entry in runs}
        commits.apply(
            Edit(
                replace(commits.journal, late=()),
                commits.active,
                replace(commits.manifest, runs=tuple(runs)),
                {i: view for i, view in views.items() if i in kept},
            )
        )
    except BaseException:
        if commits.failed is None:
            commits.discard(range(first_id, commits.next_id))
        raise
    commits.count(spills=1)
    # intermediate runs of this spill
    commits.discard(i for i in range(first_id, commits.next_id) if i not in kept)

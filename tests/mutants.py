"""Breaks one promise of the store or of queries at a time and says which tests notice.

    make mutants                      # all of them
    python tests/mutants.py log sync  # those whose names hold one of the words

Purpose
    A test that cannot fail proves nothing.  Each :class:`Mutant` is a small lie: a sync left out, a
    checksum ignored, a late run forgotten, a bound off by one.  It is told in a scratch copy of the
    project, where the tests that are responsible must fail.  A mutant that survives ends the run
    with 1.

Layout
    Those of the store are here, those of queries in :mod:`query_mutants` and :mod:`sql_mutants`:
    the latter mostly name a folder, so that they outlive a move of their text to another file.
    ``tests/store/test_mutants.py`` holds all of them against the sources in every test run: a text
    that does not stand there exactly once is found there, not at the next long run.

    Compiled kernels are cached by the path and the time of their source.  The copy begins with
    those of the project, under paths of its own; what a changed kernel compiles to is thrown away
    with the mutant.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from query_mutants import QUERY_MUTANTS
from sql_mutants import SQL_MUTANTS

__all__ = ["MUTANTS", "Mutant", "source_of"]

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 600
IGNORED = shutil.ignore_patterns(
    ".git", ".venv", ".build", ".hypothesis", "*_cache", "__pycache__", "*.egg-info"
)


@dataclass(frozen=True)
class Mutant:
    """One broken promise.

    Attributes
    ----------
    name : str
    file : str
        A file or a folder, relative to the root.
    old, new : str
        Text that stands once in the file or folder, and what takes its place.
    tests : str
        Files or tests (``file::test``) that must notice, space separated.
    below : str
        Folder of ``tests`` in which they are.
    """

    name: str
    file: str
    old: str
    new: str
    tests: str = "test_crash_loops.py"
    below: str = "store"


MUTANTS = [
    # -- syncs ------------------------------------------------------------------------------------
    Mutant(
        "segment not synced before the log names its bytes",
        "store/stream.py",
        "                writer.sync()\n",
        "                pass\n",
    ),
    Mutant(
        "sealed segment not synced",
        "store/segment_writer.py",
        "        self.sync()\n",
        "        pass\n",
    ),
    Mutant(
        "log not synced at an append",
        "store/log.py",
        "        self._commit.sync(self._size if position is None else position)\n",
        "        pass\n",
    ),
    Mutant(
        "new log not synced before the manifest names it",
        "store/commits.py",
        "            log.sync()\n            # the names",
        "            # the names",
    ),
    Mutant(
        "directory not synced before the manifest",
        "store/commits.py",
        "            self.files.sync_directory(self.directory)\n        except",
        "        except",
    ),
    Mutant(
        "manifest not synced before it is renamed",
        "store/atomic_file.py",
        "            file.sync()\n",
        "            pass\n",
    ),
    Mutant(
        "directory not synced after the manifest is renamed",
        "store/atomic_file.py",
        "    files.sync_directory(posixpath.dirname(path))\n",
        "",
    ),
    Mutant(
        "log of an earlier session trusted after a failed sync",
        "store/commits.py",
        "self._carry_over = found.torn or found.log_records > 1",
        "self._carry_over = False",
    ),
    Mutant(
        "a file that failed to sync takes more",
        "store/files.py",
        "            self._poisoned = True\n",
        "            pass\n",
        "test_files_contract.py",
    ),
    Mutant(
        "group commit forgets a failure",
        "store/group_commit.py",
        "                        self.failure = error\n",
        "                        pass\n",
        "test_group_commit.py",
    ),
    Mutant(
        "group commit covers what came during the sync",
        "store/group_commit.py",
        "self.durable = max(self.durable, target)",
        "self.durable = max(self.durable, self._end())",
        "test_group_commit.py",
    ),
    Mutant(
        "only the first of combined appends is shown",
        "store/stream.py",
        "        newest = jobs[-1]\n",
        "        newest = jobs[0]\n",
        "test_append_queue.py",
    ),
    Mutant(
        "a combined append is given back and done all the same",
        "store/append_queue.py",
        "                    self._waiting.remove(job)\n",
        "                    pass\n",
        "test_append_queue.py",
    ),
    Mutant(
        "an append is shown before it is durable",
        "store/stream.py",
        "            self._sync(newest.log, newest.position)\n",
        "            self.commits.publish(newest.state)\n"
        "            self._sync(newest.log, newest.position)\n",
        "test_stream_lifecycle.py",
    ),
    # -- checksums --------------------------------------------------------------------------------
    Mutant(
        "checksum of a chunk ignored",
        "store/block.py",
        "    if found != checksum:\n",
        "    if False:\n",
        "test_check_repair.py",
    ),
    Mutant(
        "checksum of a block's head ignored",
        "store/block.py",
        "    if digest.intdigest() != signature:\n",
        "    if False:\n",
        "test_check_repair.py",
    ),
    Mutant(
        "checksum of a log record ignored",
        "store/log.py",
        "        if end > size or checksum != digest(view[start + 8 : end], salt ^ start):\n",
        "        if end > size or not checksum:\n",
        "test_log.py test_crash_loops.py",
    ),
    Mutant(
        "records behind a damaged one do not betray it",
        "store/log.py",
        "contents.torn and (witness := _find_witness(data, contents.valid_length)) is not None:",
        "False and (witness := _find_witness(data, contents.valid_length)) is not None:",
        "test_log.py test_check_repair.py",
    ),
    Mutant(
        "checksum of the manifest ignored",
        "store/manifest.py",
        '    if outer.get("checksum") != found:\n',
        "    if False:\n",
        "test_manifest.py test_check_repair.py",
    ),
    # -- late events, order, retention, readers ----------------------------------------------------
    Mutant(
        "a scan drops the last late run",
        "store/snapshot.py",
        "runs = [view for view in state.runs if view.last",
        "runs = [view for view in state.runs[:-1] if view.last",
        "test_late_and_retention.py",
    ),
    Mutant(
        "a scan drops the late buffer",
        "store/snapshot.py",
        "buffers = [leaf for leaf in state.late if leaf.last",
        "buffers = [leaf for leaf in state.late[:0] if leaf.last",
        "test_late_and_retention.py",
    ),
    Mutant(
        "a fold forgets its runs",
        "store/compaction.py",
        "runs=tuple(entry for entry in manifest.runs if entry.id not in gone),",
        "runs=(),",
        "test_late_and_retention.py test_crash_loops.py",
    ),
    Mutant(
        "a fold keeps its runs",
        "store/compaction.py",
        "runs=tuple(entry for entry in manifest.runs if entry.id not in gone),",
        "runs=manifest.runs,",
        "test_late_and_retention.py",
    ),
    Mutant(
        "readers' leases ignored",
        "store/garbage.py",
        "if any(lease.wants(_counter(file), version) for lease in leases)\n"
        "        or not remove_quietly(files, directory, file)",
        "if not remove_quietly(files, directory, file)",
        "test_stream_lifecycle.py",
    ),
    Mutant(
        "garbage never removed",
        "store/garbage.py",
        "if any(lease.wants(_counter(file), version) for lease in leases)\n"
        "        or not remove_quietly(files, directory, file)",
        "if True",
        "test_stream_lifecycle.py",
    ),
    Mutant(
        "files that no commit names are left",
        "store/commits.py",
        "                self._remove_quietly(file)\n\n    def active_view",
        "                pass\n\n    def active_view",
        "test_stream_lifecycle.py",
    ),
    Mutant(
        "retention by age drops a segment too early",
        "store/retention.py",
        "        old = [e for e in (*segments, *runs) if e.last < horizon]\n",
        "        old = [e for e in (*segments, *runs) if e.first < horizon]\n",
        "test_late_and_retention.py",
    ),
    Mutant(
        "a failed append is not taken back",
        "store/stream.py",
        "                self.commits.undo(mark if not sealed else None, first_id)\n",
        "                pass\n",
    ),
    Mutant(
        "ties of two sources change places",
        "store/merge.py",
        'end, high = one.rows, other.position(one.last, "left")',
        'end, high = one.rows, other.position(one.last, "right")',
        "test_merge.py",
    ),
    Mutant(
        "late runs are never merged",
        "store/compaction.py",
        "        while len(runs) > RUNS_MAX:\n",
        "        while False:\n",
        "test_folding.py",
    ),
    Mutant(
        "folding rewrites what lies before the horizon too",
        "store/compaction.py",
        "    if fold.horizon is None or writer.length < COLD_BYTES:\n",
        "    if True:\n",
        "test_folding.py",
    ),
    Mutant(
        "a forked child inherits its parent's threads",
        "store/write_behind.py",
        "    os.register_at_fork(after_in_child=_begin_pools)\n",
        "    pass\n",
        "test_write_behind.py",
    ),
    Mutant(
        "a full disk is for ever",
        "store/log.py",
        "                self._take_back(start, records)\n",
        "                self._closed = True\n",
    ),
    *(Mutant(*entry, below="query") for entry in QUERY_MUTANTS + SQL_MUTANTS),
]


def source_of(root: Path, mutant: Mutant) -> Path:
    """The file that holds a mutant's text, which stands nowhere else in its folder."""
    path = root / mutant.file
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    found = [(file, file.read_text(encoding="utf-8").count(mutant.old)) for file in files]
    places = [file for file, count in found for _ in range(count)]
    assert len(places) == 1, (
        f"{mutant.name}: its text stands {len(places)} times in {mutant.file}, not once"
    )
    return places[0]


def scratch_copy(place: Path) -> Path:
    """Copy the project's own files; the copy is importable as ``chronicle`` from ``place``."""
    copy = place / "chronicle"
    shutil.copytree(ROOT, copy, ignore=IGNORED)
    return copy


def warm_cache(copy: Path, cache: Path) -> None:
    """Fill a cache with the project's compiled kernels, as those of the copy."""
    from chronicle.compiled import cache_directory

    known = cache_directory()
    for folder in {file.parent for file in copy.rglob("*.py")}:
        own = ROOT / folder.relative_to(copy)
        compiled = known / _cache_name(own)
        if compiled.is_dir():
            shutil.copytree(compiled, cache / known.name / _cache_name(folder))


def _cache_name(folder: Path) -> str:
    """What Numba calls a folder in its cache; another name costs compiling, nothing else."""
    return f"{folder.name}_{hashlib.sha1(str(folder).encode()).hexdigest()}"


def failing(copy: Path, cache: Path, mutant: Mutant) -> list[str]:
    """Tests that fail in the copy with the mutant in it; what raised first, where nothing else."""
    path = source_of(copy, mutant)
    text, times = path.read_text(encoding="utf-8"), path.stat()
    own = cache
    if "@kernel" in text:  # what it compiles is thrown away, what is compiled already stays
        own = cache.with_name("kernels-of-this-one")
        shutil.copytree(cache, own)
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        done = subprocess.run(
            [
                *(
                    sys.executable,
                    "-m",
                    "pytest",
                    "-x",
                    "-q",
                    "--no-header",
                    "-p",
                    "no:cacheprovider",
                ),
                *("--timeout", "120"),
                *(f"tests/{mutant.below}/{name}" for name in mutant.tests.split()),
            ],
            cwd=copy,
            env={
                **os.environ,
                "PYTHONPATH": str(copy.parent),
                "PYTHONDONTWRITEBYTECODE": "1",
                "CHRONICLE_CACHE_DIR": str(own),
            },
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    finally:
        path.write_text(text, encoding="utf-8")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # what is compiled still fits
        if own != cache:
            shutil.rmtree(own)
    if done.returncode == 0:
        return []
    found = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.M)
    return found or [f"exit code {done.returncode}: {done.stdout[-400:]}{done.stderr[-400:]}"]


def main(words: list[str]) -> int:
    """Run the mutants whose names hold one of the words, or all."""
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="chronicle-mutants-") as place:
        copy, cache = scratch_copy(Path(place)), Path(place) / "kernels"
        warm_cache(copy, cache)
        for mutant in MUTANTS:
            if words and not any(word in mutant.name for word in words):
                continue
            names = failing(copy, cache, mutant)
            survivors += not names
            print(f"{mutant.name}: {', '.join(names) or 'SURVIVES'}", flush=True)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

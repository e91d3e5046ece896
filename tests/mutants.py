"""Breaks one promise of the store or of queries at a time and says which tests notice.

    make mutants                                    # all of them
    python tests/mutants.py --only log sync         # those whose names hold one of the words
    python tests/mutants.py --jobs 16 --part 2/3    # the second third, sixteen at a time
    python tests/mutants.py --list                  # names, files and tests; nothing runs

Purpose
    A test that cannot fail proves nothing.  Each :class:`Mutant` is a small lie: a sync left out, a
    checksum ignored, a late run forgotten, a bound off by one.  It is told in a scratch copy of the
    project, where the tests that are responsible must fail.

Guarantee
    The run ends with 1 where a mutant survives, where its text no longer stands exactly once in its
    file or folder, or where its tests fail without it: a test that fails anyway (a library is
    missing, say) notices nothing.

Layout
    The lies stand in lists by what they are about: :mod:`store_mutants`, :mod:`floor_mutants`,
    :mod:`segment_mutants`, :mod:`object_mutants`, :mod:`replay_mutants`, :mod:`query_mutants`,
    :mod:`situation_mutants`, :mod:`sql_mutants`, :mod:`live_mutants`.  Those of queries mostly name
    a folder, so that they outlive a move of their text to another file.
    ``tests/store/test_mutants.py`` holds all of them against the sources in every test run.

    Every job has a copy of the tree, of its own: one mutant at a time stands in it.  Mutants with
    the same tests go to the same job, where these tests first run without any.

    Compiled kernels are cached by the path and the time of their source.  Each copy begins with
    those of the project, under paths of its own, and keeps what the unchanged tests compile; what a
    changed kernel compiles to is thrown away with the mutant.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue

from floor_mutants import FLOOR_MUTANTS
from live_mutants import LIVE_MUTANTS
from object_mutants import OBJECT_MUTANTS
from query_mutants import QUERY_MUTANTS
from replay_mutants import REPLAY_MUTANTS
from segment_mutants import SEGMENT_MUTANTS
from situation_mutants import SITUATION_MUTANTS
from sql_mutants import SQL_MUTANTS
from store_mutants import STORE_MUTANTS

__all__ = ["MUTANTS", "Mutant", "source_of"]

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 600
SHARE = 4
"""Mutants with the same tests that one job takes at once, where there are several jobs."""

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
    *(Mutant(*entry) for entry in STORE_MUTANTS + FLOOR_MUTANTS),
    *(Mutant(*entry) for entry in SEGMENT_MUTANTS + OBJECT_MUTANTS),
    *(
        Mutant(*entry, below="query")
        for entry in REPLAY_MUTANTS + QUERY_MUTANTS + SQL_MUTANTS + SITUATION_MUTANTS + LIVE_MUTANTS
    ),
]


class NotOnce(Exception):
    """A mutant's text does not stand exactly once where it is looked for."""


def source_of(root: Path, mutant: Mutant) -> Path:
    """The file that holds a mutant's text, which stands nowhere else in its folder."""
    path = root / mutant.file
    files = [path] if path.suffix else sorted(path.rglob("*.py"))
    found = [(file, file.read_text(encoding="utf-8").count(mutant.old)) for file in files]
    places = [file for file, count in found for _ in range(count)]
    if len(places) != 1:
        raise NotOnce(f"{mutant.name}: its text stands {len(places)} times in {mutant.file}")
    return places[0]


class Bench:
    """A copy of the project's own files in which one mutant at a time is told and tested.

    The copy is importable as ``chronicle`` from ``place``, where its kernels and the temporary
    files of its tests are, too.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        self.copy = place / "chronicle"
        self.kernels = place / "kernels"
        self._sound: dict[tuple[str, str], str] = {}
        (place / "tmp").mkdir(parents=True)
        shutil.copytree(ROOT, self.copy, ignore=IGNORED)
        self._copy_kernels()

    def _copy_kernels(self) -> None:
        """Begin with the project's compiled kernels, as those of the copy."""
        sys.path.append(str(self.place))
        from chronicle.machine_code import cache_directory

        known = cache_directory()
        for folder in {file.parent for file in self.copy.rglob("*.py")}:
            compiled = known / _cache_name(ROOT / folder.relative_to(self.copy))
            if compiled.is_dir():
                shutil.copytree(compiled, self.kernels / known.name / _cache_name(folder))

    def judge(self, mutant: Mutant) -> Verdict:
        """Run the tests of a mutant without it, once, then with it."""
        try:
            path = source_of(self.copy, mutant)
        except (NotOnce, OSError) as error:
            return Verdict("not found", str(error))
        key = (mutant.below, mutant.tests)
        if key not in self._sound:
            self._sound[key] = ", ".join(self._failing(mutant, self.kernels, keep=True))
        if self._sound[key]:
            return Verdict("not judged", f"fails without it: {self._sound[key]}")
        text, times = path.read_text(encoding="utf-8"), path.stat()
        kernels = self.kernels
        if "@kernel" in text:
            kernels = self.place / "kernels-of-this-one"  # Numba replaces files, never changes them
            shutil.copytree(self.kernels, kernels, copy_function=os.link)
        path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        try:
            names = self._failing(mutant, kernels, keep=False)
        finally:
            path.write_text(text, encoding="utf-8")
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # so that its kernels fit
            if kernels != self.kernels:
                shutil.rmtree(kernels)
        return Verdict("noticed", ", ".join(names)) if names else Verdict("SURVIVES", mutant.tests)

    def _failing(self, mutant: Mutant, kernels: Path, *, keep: bool) -> list[str]:
        """Tests of a mutant that fail in the copy as it is; what was printed, if no test says it.

        With ``keep``, the copy's byte code stays: that of a mutant must not outlive it.
        """
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--timeout", "120"]
        command += ["-p", "no:cacheprovider"]
        command += [f"tests/{mutant.below}/{name}" for name in mutant.tests.split()]
        paths = [str(self.place), os.environ.get("PYTHONPATH", "")]
        own = {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "PYTHONDONTWRITEBYTECODE": "" if keep else "1",
            "CHRONICLE_CACHE_DIR": str(kernels),
            "TMPDIR": str(self.place / "tmp"),
        }
        try:
            done = subprocess.run(
                command,
                cwd=self.copy,
                env={**os.environ, **own},
                capture_output=True,
                text=True,
                timeout=SECONDS,
            )
        except subprocess.TimeoutExpired:
            return [f"no end after {SECONDS} s"]
        if done.returncode == 0:
            return []
        found = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", done.stdout, re.M)
        return found or [f"exit code {done.returncode}: {done.stdout[-400:]}{done.stderr[-400:]}"]


def _cache_name(folder: Path) -> str:
    """What Numba calls a folder in its cache; another name costs compiling, nothing else."""
    return f"{folder.name}_{hashlib.sha1(str(folder).encode()).hexdigest()}"


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: noticed, SURVIVES, not found or not judged, and by whom or why."""

    word: str
    detail: str


@dataclass
class Results:
    """Verdicts, told as they come and summed up at the end."""

    wanted: int
    begun: float = field(default_factory=time.monotonic)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, mutant: Mutant, verdict: Verdict) -> None:
        with self._lock:
            self.verdicts[mutant.name] = verdict
            count = f"{len(self.verdicts)}/{self.wanted}"
            print(f"[{count}] {mutant.name}: {verdict.word}: {verdict.detail}", flush=True)

    def summary(self) -> int:
        """Print what was not noticed, by kind; 1 where there is any, or where some did not run."""
        by_word = defaultdict(list)
        for name, verdict in sorted(self.verdicts.items()):
            by_word[verdict.word].append(f"  {name}: {verdict.detail}")
        noticed = len(by_word.pop("noticed", []))
        seconds = time.monotonic() - self.begun
        print(f"\n{noticed} of {self.wanted} mutants were noticed, in {seconds:.0f} s")
        for word, lines in by_word.items():
            print(f"{word}: {len(lines)}", *lines, sep="\n")
        return 0 if noticed == self.wanted else 1


def shares(mutants: list[Mutant], jobs: int) -> list[list[Mutant]]:
    """Cut into lists of mutants with the same tests, long ones first."""
    alike = defaultdict(list)
    for mutant in mutants:
        alike[mutant.below, mutant.tests].append(mutant)
    most = SHARE if jobs > 1 else len(mutants)
    cut = [found[at : at + most] for found in alike.values() for at in range(0, len(found), most)]
    return sorted(cut, key=len, reverse=True)


def work(place: Path, waiting: SimpleQueue[list[Mutant]], tell: Callable[..., None]) -> None:
    """Judge shares of mutants in a copy of its own until none is left."""
    bench = Bench(place)
    while True:
        try:
            share = waiting.get_nowait()
        except Empty:
            return
        for mutant in share:
            tell(mutant, bench.judge(mutant))


def chosen(words: list[str], part: str) -> list[Mutant]:
    """The mutants whose names hold one of the words, if any; of these, part ``number/count``."""
    number, _, count = part.partition("/")
    found = [one for one in MUTANTS if not words or any(word in one.name for word in words)]
    found.sort(key=lambda one: (one.below, one.tests))
    low, high = (len(found) * at // int(count) for at in (int(number) - 1, int(number)))
    return found[low:high]


def main(arguments: list[str]) -> int:
    """Run or list mutants."""
    parser = argparse.ArgumentParser(description="break one promise at a time; tests must notice")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="of these names")
    parser.add_argument("--part", default="1/1", metavar="K/N", help="the K-th of N parts")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="so many at a time")
    parser.add_argument("--list", action="store_true", help="print names, files and tests")
    options = parser.parse_args(arguments)
    mutants = chosen(options.only, options.part)
    if options.list:
        for mutant in mutants:
            print(f"{mutant.name}\t{mutant.file}\t{mutant.below}: {mutant.tests}")
        return 0
    waiting: SimpleQueue[list[Mutant]] = SimpleQueue()
    for share in shares(mutants, options.jobs):
        waiting.put(share)
    results = Results(len(mutants))
    with (
        tempfile.TemporaryDirectory(prefix="chronicle-mutants-") as place,
        ThreadPoolExecutor(options.jobs) as pool,
    ):
        done = [
            pool.submit(work, Path(place) / str(job), waiting, results.add)
            for job in range(options.jobs)
        ]
        try:
            for one in done:
                one.result()
        finally:
            while not waiting.empty():  # interrupted: what has not begun does not begin
                waiting.get()
    return results.summary()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Mutation testing: inject one fault at a time and check that the tests notice.

    make mutants                                     # all of them
    make mutants MUTANTS="--only log sync --jobs 2"  # of these names, two at once
    make mutants MUTANTS="--part 2/3"                # the second third
    make mutants MUTANTS="--default"                 # only tests of the default tier may notice
    make mutants MUTANTS="--list"                    # names, files and tests; nothing runs

The ``*.toml`` files list mutants: ``name``; ``in``, a file or folder; ``old``, text that occurs
there once; ``new``; and ``tests``, of which some must fail.  Each job has a copy of the tree and
runs the tests first without a mutant.  Exit status 1 unless all mutants are noticed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SECONDS = 600
SHARE = 4
"""Mutants with the same tests that one of several jobs takes at once."""
DEFAULT_TIER = "smoke or not (heavy or extra or slow)"
NOTHING_RAN = 5

IGNORED = shutil.ignore_patterns(
    ".git", ".venv", ".build", ".hypothesis", "*_cache", "__pycache__", "*.egg-info", "node_modules"
)


@dataclass(frozen=True)
class Mutant:
    name: str
    place: str
    old: str
    new: str
    tests: tuple[str, ...]


def load_mutants() -> list[Mutant]:
    return [
        Mutant(one["name"], one["in"], one["old"], one["new"], tuple(one["tests"]))
        for file in sorted(Path(__file__).parent.glob("*.toml"))
        for one in tomllib.loads(file.read_text(encoding="utf-8"))["mutant"]
    ]


class NotOnce(Exception):
    """A mutant's text does not occur exactly once in its file or folder."""


def source_of(root: Path, mutant: Mutant) -> Path:
    """The file with a mutant's text; may raise ``NotOnce``."""
    path = root / mutant.place
    files = [path] if path.suffix else sorted(path.rglob("*.py"))
    counts = [(file, file.read_text(encoding="utf-8").count(mutant.old)) for file in files]
    places = [file for file, count in counts for _ in range(count)]
    if len(places) != 1:
        raise NotOnce(f"{mutant.name}: its text stands {len(places)} times in {mutant.place}")
    return places[0]


class Bench:
    """A copy of the project for one mutant at a time, importable as ``chronicle``."""

    def __init__(self, place: Path, expression: str) -> None:
        self.place = place
        self.copy = place / "chronicle"
        self.expression = expression
        self._sound: dict[tuple[str, ...], str] = {}
        (place / "tmp").mkdir(parents=True)
        shutil.copytree(ROOT, self.copy, ignore=IGNORED)
        shutil.copytree(ROOT / ".build" / "kernels", self.copy / ".build" / "kernels")

    def judge(self, mutant: Mutant) -> tuple[str, str]:
        """Run a mutant's tests once without it, then with it; returns the verdict and details."""
        try:
            path = source_of(self.copy, mutant)
        except (NotOnce, OSError) as error:
            return "not found", str(error)
        if mutant.tests not in self._sound:
            failing = self._failing(mutant, keep=True)
            self._sound[mutant.tests] = ", ".join(failing)
        if self._sound[mutant.tests]:
            return "not judged", f"fails without it: {self._sound[mutant.tests]}"
        text, times = path.read_text(encoding="utf-8"), path.stat()
        path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        try:
            names = self._compiled(path) or self._failing(mutant, keep=False)
        finally:
            path.write_text(text, encoding="utf-8")
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            self._compiled(path)
        return ("noticed", ", ".join(names)) if names else ("SURVIVES", " ".join(mutant.tests))

    def _compiled(self, path: Path) -> list[str]:
        if "@kernel" not in path.read_text(encoding="utf-8"):
            return []
        command = [sys.executable, "-m", "kernel_build", str(self.copy)]
        done = subprocess.run(command, cwd=self.copy, capture_output=True, text=True, check=False)
        return [done.stderr[-400:]] if done.returncode else []

    def _failing(self, mutant: Mutant, *, keep: bool) -> list[str]:
        """Failing tests of the copy, or output if none is named; ``keep`` retains byte code."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--timeout", "300"]
        command += ["-p", "no:cacheprovider", *(f"tests/{name}" for name in mutant.tests)]
        if self.expression:
            command += ["-m", self.expression]
        paths = [str(self.place), os.environ.get("PYTHONPATH", "")]
        own = {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "PYTHONDONTWRITEBYTECODE": "" if keep else "1",
            "TMPDIR": str(self.place / "tmp"),
            "CHRONICLE_PATIENCE_S": "60",
        }
        try:
            done = subprocess.run(
                command, cwd=self.copy, env={**os.environ, **own}, capture_output=True, text=True,
                timeout=SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return [f"no end after {SECONDS} s"]
        if done.returncode in (0, NOTHING_RAN):
            return []
        failures = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", done.stdout, re.M)
        return failures or [
            f"exit code {done.returncode}: {done.stdout[-400:]}{done.stderr[-400:]}"
        ]


def shares(mutants: list[Mutant], jobs: int) -> list[list[Mutant]]:
    """Groups of mutants with the same tests, large ones first."""
    most = SHARE if jobs > 1 else len(mutants)
    alike = [list(group) for _, group in groupby(mutants, key=lambda one: one.tests)]
    cut = [group[at : at + most] for group in alike for at in range(0, len(group), most)]
    return sorted(cut, key=len, reverse=True)


def choose(words: list[str], part: str) -> list[Mutant]:
    """Mutants whose names contain one of the words; of these, part ``number/count``."""
    number, _, count = part.partition("/")
    chosen = [one for one in load_mutants() if not words or any(word in one.name for word in words)]
    chosen.sort(key=lambda one: one.tests)
    low, high = (len(chosen) * at // int(count) for at in (int(number) - 1, int(number)))
    return chosen[low:high]


def run(mutants: list[Mutant], jobs: int, expression: str) -> int:
    """Judge mutants, print verdicts and a summary; returns 1 unless all were noticed."""
    begun, verdicts = time.monotonic(), defaultdict[str, list[str]](list)

    def work(place: Path, ahead: list[list[Mutant]]) -> None:
        bench = Bench(place, expression)
        while ahead:
            for mutant in ahead.pop(0):
                verdict, detail = bench.judge(mutant)
                verdicts[verdict].append(f"  {mutant.name}: {detail}")
                count = sum(map(len, verdicts.values()))
                print(f"[{count}/{len(mutants)}] {mutant.name}: {verdict}: {detail}", flush=True)

    with (
        tempfile.TemporaryDirectory(prefix="chronicle-mutants-") as scratch,
        ThreadPoolExecutor(jobs) as pool,
    ):
        ahead = shares(mutants, jobs)
        try:
            for done in [pool.submit(work, Path(scratch) / str(n), ahead) for n in range(jobs)]:
                done.result()
        finally:
            ahead.clear()  # after an interrupt, start no more
    noticed = len(verdicts.pop("noticed", []))
    seconds = time.monotonic() - begun
    print(f"\n{noticed} of {len(mutants)} mutants were noticed, in {seconds:.0f} s")
    for word, lines in verdicts.items():
        print(f"{word}: {len(lines)}", *sorted(lines), sep="\n")
    return 0 if noticed == len(mutants) else 1


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="break one promise at a time; tests must notice")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="of these names")
    parser.add_argument("--part", default="1/1", metavar="K/N", help="the K-th of N parts")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="so many at a time")
    parser.add_argument("--default", action="store_true", help="run only tests of the default tier")
    parser.add_argument("--list", action="store_true", help="print names, files and tests")
    options = parser.parse_args(arguments)
    mutants = choose(options.only, options.part)
    if options.list:
        for mutant in mutants:
            print(f"{mutant.name}\t{mutant.place}\t{' '.join(mutant.tests)}")
        return 0
    return run(mutants, options.jobs, DEFAULT_TIER if options.default else "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

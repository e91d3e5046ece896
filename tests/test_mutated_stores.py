"""Stores whose files were changed at random: never a wrong answer, and ``check`` finds it.

A mutation flips bits, zeroes, cuts or lengthens a file, deletes it, renames it, swaps it with
another or writes another over it.  Every query gives the answer of the sound store, or an error of
ours; where one gives an error, ``check`` names a problem.  A repair accounts for every event.  What
happens to files of indexes alone changes no answer and makes no query fail.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import Database, catalog_of
from chronicle.errors import ChronicleError

from .rounds import rounds

pytestmark = pytest.mark.crash
LONG = os.environ.get("CHRONICLE_CRASH") == "long"
STORES = 500 if LONG else rounds(2, 6)
NOTEWORTHY = (1091, 641_224_260)
"""Mutations that have found something: a block that RocksDB reads only when it compacts; a log
whose last records are damaged, too, so that only the manifest tells what was lost."""
EVENTS = 2 * 1200
SCHEMA = pa.schema([("t", pa.int64()), ("x", pa.float64()), ("k", pa.string())])
STREAMS = ("a", "b")
QUERIES = (
    "SELECT * FROM {s}",
    "SELECT t, x FROM {s} WHERE k = 'k3' AND x > 40",
    "SELECT count(*), sum(x), min(x), max(x), min(t), max(t) FROM {s}",
    "SELECT count(*), max(x) FROM {s} WHERE t >= 300 AND t < 900",
    "SELECT k, count(*), avg(x) FROM {s} GROUP BY k ORDER BY k",
    "SELECT window_start, count(*), sum(x) FROM TUMBLE({s}, t, 250) "
    "GROUP BY window_start ORDER BY window_start",
    "SELECT * FROM {s} MATCH_RECOGNIZE (ORDER BY t MEASURES FIRST(t) AS first, LAST(x) AS last "
    "PATTERN (A B) DEFINE A AS k = 'k1', B AS x < PREV(x))",
    "SELECT /*+ strategy(all) */ * FROM {s} MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS t, "
    "B.x AS x PATTERN (A B) WITHIN 50 DEFINE A AS k = 'k2', B AS k = 'k5')",
)


def rows(first: int, count: int, seed: int) -> pa.Table:
    draw = random.Random(seed + first)
    return pa.table(
        {
            "t": list(range(first, first + count)),
            "x": [draw.randrange(400) / 4 for _ in range(count)],
            "k": [f"k{draw.randrange(7)}" for _ in range(count)],
        },
        schema=SCHEMA,
    )


def answers(db: Database) -> dict[tuple[str, str], Any]:
    """What each query gives on each stream: rows, or an error of ours."""
    found: dict[tuple[str, str], Any] = {}
    for name in STREAMS:
        for query in QUERIES:
            try:
                found[name, query] = db.sql(query.format(s=name)).fetchall()
            except ChronicleError as error:
                found[name, query] = error
    return found


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two streams with segments, late runs, a late buffer, an active segment, a tail, an index."""
    path = tmp_path_factory.mktemp("mutated") / "store"
    with chronicle.open(path) as db:
        for seed, name in enumerate(STREAMS):
            options = {"leaf_bytes": 1024, "late_events_max": 40, "compaction": "manual"}
            stream = db.create_stream(name, SCHEMA, time="t", options=options)
            stream.append(rows(0, 400, seed))
            stream.seal()
            stream.append(rows(400, 400, seed))
            stream.seal()
            stream.append(rows(100, 50, seed))  # late: a run
            stream.append(rows(800, 300, seed))
            stream.append(rows(500, 20, seed))  # late: in the buffer
            stream.append(rows(1100, 30, seed))
            catalog_of(db).create_index(name, "k")
    return path


def files_of(path: Path) -> list[Path]:
    """Files that a mutation may touch: all but locks and RocksDB's journal of what it does."""
    return [
        file
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.name not in ("LOCK", "LOG") and "LOG.old" not in file.name
    ]


def flip(draw: random.Random, file: Path, _: Path) -> str:
    data = bytearray(file.read_bytes())
    places = [draw.randrange(len(data)) for _ in range(draw.choice((1, 1, 1, 5, 50)))]
    for place in places:
        data[place] ^= 1 << draw.randrange(8)
    file.write_bytes(data)
    return f"flipped {places[:5]}"


def zero(draw: random.Random, file: Path, _: Path) -> str:
    data = bytearray(file.read_bytes())
    start = draw.randrange(len(data))
    length = min(len(data) - start, draw.choice((1, 64, 512, 4096)))
    data[start : start + length] = bytes(length)
    file.write_bytes(data)
    return f"zeroed {start}+{length}"


def cut(draw: random.Random, file: Path, _: Path) -> str:
    size = draw.randrange(file.stat().st_size)
    os.truncate(file, size)
    return f"cut to {size}"


def lengthen(draw: random.Random, file: Path, _: Path) -> str:
    with file.open("ab") as out:
        out.write(draw.randbytes(draw.choice((1, 8, 64, 1000))))
    return "lengthened"


def delete(_: random.Random, file: Path, __: Path) -> str:
    file.unlink()
    return "deleted"


def rename(_: random.Random, file: Path, __: Path) -> str:
    file.rename(file.with_name("9" + file.name))
    return "renamed"


def swap(_: random.Random, file: Path, other: Path) -> str:
    ours, theirs = file.read_bytes(), other.read_bytes()
    file.write_bytes(theirs)
    other.write_bytes(ours)
    return f"swapped with {other.name}"


def overwrite(_: random.Random, file: Path, other: Path) -> str:
    file.write_bytes(other.read_bytes())
    return f"overwritten with {other.name}"


MUTATIONS: tuple[Callable[[random.Random, Path, Path], str], ...] = (
    flip, flip, zero, cut, lengthen, delete, rename, swap, overwrite,
)  # fmt: skip


def mutated(sound: Path, target: Path, number: int) -> tuple[str, bool]:
    """A copy of the sound store with one mutation: in words, and whether events are unharmed."""
    shutil.copytree(sound, target)
    draw = random.Random(number)
    files = files_of(target)
    of_indexes = draw.random() < 0.4
    part = [file for file in files if ("indexes" in file.parts) == of_indexes]
    file = draw.choice(part)
    other = draw.choice([f for f in files if f != file])
    if draw.random() < 0.5:  # one of the same kind, of the other stream where there is one
        alike = [f for f in files if f.suffix == file.suffix and f != file]
        other = draw.choice(alike or [other])
    mutation = draw.choice(
        [m for m in MUTATIONS if file.stat().st_size or m not in (flip, zero, cut)]
    )
    what = mutation(draw, file, other)
    harmless = "indexes" in file.parts and (mutation is not swap or "indexes" in other.parts)
    return f"{number}: {file.relative_to(target)} {what}", harmless


def judge(
    path: Path, mode: str, model: dict[tuple[str, str], Any], what: str, harmless: bool
) -> None:
    """Compare what a mutated store answers with the model, and what its check says."""
    try:
        with chronicle.open(path, mode=mode) as db:
            found = answers(db)
            report = db.check()
    except ChronicleError as error:  # refused as a whole
        if harmless:
            raise AssertionError(f"{what}: {mode}: {error}") from error
        return
    refused = [key for key, answer in found.items() if isinstance(answer, ChronicleError)]
    for key, answer in found.items():
        if key not in refused:
            assert answer == model[key], f"{what}: {mode}: another answer to {key}"
    assert not (harmless and refused), f"{what}: {mode}: {found[refused[0]]}"
    if refused:
        assert not report.ok, f"{what}: {mode}: {refused[0]} fails, check finds nothing"


def survive(sound: Path, target: Path, number: int, model: dict[tuple[str, str], Any]) -> None:
    """Judge one mutation, and its repair."""
    what, harmless = mutated(sound, target, number)
    judge(target, "r", model, what, harmless)
    judge(target, "rw", model, what, harmless)
    try:
        with chronicle.open(target) as db:
            report = db.check(repair=True)
            if report.ok and len(db.streams()) == len(STREAMS):
                left = sum(db.stream(name).count for name in STREAMS)
                assert left + report.lost_events == EVENTS, f"{what}: {report.repairs}"
            if harmless:
                assert report.ok, f"{what}: {report.problems}"
                assert answers(db) == model, what
    except ChronicleError as error:
        if harmless:
            raise AssertionError(f"{what}: {error}") from error
    shutil.rmtree(target)


@pytest.mark.timeout(7200)
def test_mutated_stores_never_answer_wrongly(sound: Path, tmp_path: Path) -> None:
    with chronicle.open(sound, mode="r") as db:
        model = answers(db)
        assert sum(db.stream(name).count for name in STREAMS) == EVENTS
    assert not any(isinstance(answer, ChronicleError) for answer in model.values())
    assert all(model.values())
    first = random.randrange(1 << 30) if LONG else 0
    for number in (*NOTEWORTHY, *range(first, first + STORES)):
        survive(sound, tmp_path / "copy", number, model)

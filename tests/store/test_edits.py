"""What a stream is changes by edits alone, and each of them whole or not at all."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle.errors import StorageFailed, StorageFull
from chronicle.schema import StreamSchema
from chronicle.store.commits import Commits, Draft, seal
from chronicle.store.compaction import spill
from chronicle.store.options import StreamOptions
from chronicle.store.store import Store
from chronicle.store.stream import EventStream
from chronicle.tests.faulty_files import FaultPlan, FaultyFiles
from chronicle.tests.memory_files import MemoryFiles

from ..rounds import rounds

ROOT = Path(chronicle.__file__).parent
STATE = {"manifest", "journal", "views", "log", "active"}
SCHEMA = StreamSchema(pa.schema([("t", pa.timestamp("ms")), ("n", pa.int64())]), "t")
OPTIONS = StreamOptions(leaf_bytes=4096, segment_bytes=1 << 14)


def assigned(tree: ast.AST) -> list[tuple[str, ast.Attribute]]:
    """Attributes that a function or module assigns, with the name of what they belong to."""
    found = []
    for node in ast.walk(tree):
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [node.target]
            if isinstance(node, ast.AugAssign | ast.AnnAssign)
            else []
        )
        found += [
            (ast.unparse(target.value).rpartition(".")[2].lstrip("_"), target)
            for one in targets
            for target in ast.walk(one)
            if isinstance(target, ast.Attribute) and isinstance(target.ctx, ast.Store)
        ]
    return found


def test_nobody_but_commits_assigns_the_state_of_a_stream() -> None:
    for path in ROOT.rglob("*.py"):
        if {"tests", ".venv", ".build"} & set(path.relative_to(ROOT).parts):
            continue
        text = path.read_text(encoding="utf-8")
        for owner, target in assigned(ast.parse(text)) if "commits." in text else ():
            assert owner != "commits", f"{path.name}:{target.lineno}: {ast.unparse(target)}"
    tree = ast.parse((ROOT / "store" / "commits.py").read_text(encoding="utf-8"))
    methods = {
        function.name
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for _, target in assigned(function)
        if target.attr in STATE
    }
    assert methods == {"__init__", "_resume", "apply", "_replace", "take_back"}


def batch(first: int, rows: int) -> pa.RecordBatch:
    ticks = np.arange(first, first + rows).astype("datetime64[ms]")
    return pa.RecordBatch.from_arrays(
        [pa.array(ticks), pa.array(np.arange(rows))], schema=SCHEMA.arrow
    )


def append(stream: EventStream) -> None:
    stream.append(batch(10_000, 2_000))


def append_segments(stream: EventStream) -> None:
    stream.append(batch(10_000, 9_000))


def changes() -> list[Any]:
    return [
        append,
        append_segments,
        lambda stream: seal(stream.commits),
        lambda stream: spill(stream.commits),
        lambda stream: stream.add_attribute("more", pa.int32()),
        lambda stream: stream.compact(),
    ]


@pytest.mark.parametrize("change", changes())
@pytest.mark.parametrize("kind", ["enospc", "eio", "fsync"])
def test_a_change_that_fails_leaves_the_state_as_it_was(change: Any, kind: Any) -> None:
    """At whatever write, sync or rename it fails: nothing happened, or the stream refuses."""
    failed = 0
    for operation in range(1, 200, rounds(3, 1)):
        files = FaultyFiles(MemoryFiles())
        stream = Store.open("memory", files=files).create_stream("s", SCHEMA, OPTIONS)
        assert isinstance(stream, EventStream)
        stream.append(batch(1_000, 700))
        stream.append(batch(5_000, 20))
        stream.append(batch(2_000, 20))  # late
        commits = stream.commits
        before = (commits.manifest, commits.journal, commits.log, commits.active)
        events = stream.snapshot().count
        files.operations = 0
        files.plan = FaultPlan(kind, operation)
        try:
            change(stream)
        except (StorageFull, StorageFailed, OSError):
            failed += 1
        else:
            if files.operations < operation:
                break
            continue
        files.plan = FaultPlan()
        if commits.failed is None and commits.manifest is before[0]:
            assert (commits.manifest, commits.journal, commits.log) == before[:3]
            assert (commits.active is None) == (before[3] is None)
            assert stream.snapshot().count == events
            stream.append(batch(60_000, 5))
            assert stream.snapshot().count == events + 5
    assert failed


def give_up(commits: Commits, sealed: bool) -> None:
    """Write to a draft, and fail."""
    with commits.lock, Draft(commits) as draft:
        draft.writer().write(batch(4_000, 1_000))
        if sealed:
            draft.seal()
            draft.writer().write(batch(6_000, 1_000))
        raise ZeroDivisionError


def test_what_a_draft_has_written_is_taken_back() -> None:
    with Store.open("memory", files=MemoryFiles()) as store:
        stream = store.create_stream("s", SCHEMA, OPTIONS)
        assert isinstance(stream, EventStream)
        stream.append(batch(0, 3_000))
        commits = stream.commits
        files = set(commits.files.list(commits.directory))
        assert commits.active is not None
        length = commits.active.writer.length
        for sealed in (False, True):
            with pytest.raises(ZeroDivisionError):
                give_up(commits, sealed)
            assert commits.failed is None
            assert commits.active.writer.length == length
            assert set(commits.files.list(commits.directory)) == files
        stream.append(batch(4_000, 3_000))
        assert stream.snapshot().count == 6_000

"""Lists of segments, and the pages of a manifest that keep them, by themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.store import manifest_pages
from chronicle.store.manifest_pages import read_pages, read_roots, write_pages
from chronicle.store.segment import Root
from chronicle.store.segment_list import SegmentEntry, SegmentList, pages_to_json
from chronicle.tests.memory_files import MemoryFiles
from chronicle.tests.rounds import rounds

ENTRIES = st.lists(st.integers(1, 60), unique=True, max_size=40)


def listed(ids: list[int]) -> SegmentList:
    return SegmentList.of(SegmentEntry(i, 10 * i, i, i + 1, 1000 + i, 3, i % 2) for i in ids)


@settings(max_examples=rounds(15, 150), deadline=None)
@given(st.lists(ENTRIES, min_size=1, max_size=6))
def test_pages_say_what_was_listed(versions: list[list[int]]) -> None:
    """Whatever replaces what: pages that are there already, and none too many."""
    files = MemoryFiles()
    files.make_directory("s")
    stored = SegmentList.of(())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(manifest_pages, "INLINE_SEGMENTS", 2)
        patched.setattr(manifest_pages, "PAGE_SEGMENTS", 4)
        for version, ids in enumerate(versions, 1):
            kept = {page.file for page in stored.pages}
            written = write_pages(
                files, "s", version, 77, listed(ids), stored,
                lambda entry: Root(entry.id, np.full(15, entry.id)) if entry.id % 3 else None,
            )  # fmt: skip
            assert list(written) == list(listed(ids))
            assert bool(written.pages) == (len(ids) > 2)
            if written.pages:
                assert read_pages(files, "s", pages_to_json(written.pages), 77) == written
                assert sum(page.segments for page in written.pages) == len(ids)
                assert all(0 < page.segments <= 4 for page in written.pages)
                assert len(written.pages) <= len(ids)
                new = {page.file for page in written.pages} - kept
                assert all(file.startswith(f"{version:08d}-") for file in new)
                at = 0
                for page in written.pages:
                    heights, roots = read_roots(files, "s", page)
                    for number, height, words in zip(
                        ids[at : at + page.segments], heights.tolist(), roots, strict=True
                    ):
                        assert height == (number if number % 3 else 0)
                        assert words.tolist() == ([number] * 15 if number % 3 else [])
                    at += page.segments
            stored = written


def test_appends_fill_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_pages, "INLINE_SEGMENTS", 2)
    monkeypatch.setattr(manifest_pages, "PAGE_SEGMENTS", 4)
    files = MemoryFiles()
    files.make_directory("s")
    stored = SegmentList.of(())
    for count in range(1, 60):
        stored = write_pages(
            files, "s", count, 1, listed(list(range(1, count + 1))), stored, lambda entry: None
        )
        assert len(stored.pages) <= 1 + count // 3


@settings(max_examples=rounds(20, 200), deadline=None)
@given(ENTRIES, ENTRIES, st.integers(0, 62), st.integers(0, 62))
def test_lists_of_segments(ids: list[int], others: list[int], first: int, last: int) -> None:
    """Against plain lists of entries."""
    found, entries = listed(ids), list(listed(ids))
    assert list(found) == entries == [found[i] for i in range(len(ids))]
    assert SegmentList.from_json(found.to_json()) == found
    assert found == tuple(entries)
    assert [found[i] for i in found.within(first, last)] == [
        e for e in entries if e.last >= first and e.first <= last
    ]
    other = listed(others)
    assert list(found.missing(other)) == [e for e in entries if e.id not in others]
    assert list(found.after(other)) == [*entries, *other]
    assert [found.find(i) for i in range(61)] == [
        ids.index(i) if i in ids else None for i in range(61)
    ]
    swapped = {i: [SegmentEntry(100 + i, 1, 2, 3, 4, 5)] * (i % 3) for i in others}
    plain = [new for e in entries for new in swapped.get(e.id, [e])]
    assert list(found.replaced(swapped)) == plain
    assert found.files() == [entry.file for entry in entries]
    drawn = SegmentList.of([replace(e, id=e.id + (1 << 61) + (e.id << 32)) for e in entries])
    assert drawn.files() == [entry.file for entry in drawn]
    assert list(found[1:3]) == entries[1:3]


@pytest.mark.parametrize(
    "wrong",
    [{"more": 1}, {"events": None}, {"events": "5"}, {"events": True}, {"events": 1 << 70}, {}],
)
def test_lists_that_say_something_else_are_refused(wrong: dict[str, object]) -> None:
    (entry,) = listed([7]).to_json()
    broken: dict[str, object] = {**entry, **wrong}
    if not wrong:
        del broken["last"]
    with pytest.raises((KeyError, TypeError, ValueError)):
        SegmentList.from_json([broken])  # type: ignore[list-item]

"""Pages that others than the manifest name: pins, and the manifest's copy beside the objects."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from chronicle.errors import CorruptStore, SnapshotExpired, StorageFailed
from chronicle.store import manifest_pages, pins
from chronicle.store.backup import restore_store
from chronicle.store.catalog import manifest_content
from chronicle.store.changes import new_ranges
from chronicle.store.files import RealFiles
from chronicle.store.manifest_pages import roots_in_pages
from chronicle.store.object_store import ObjectStore
from chronicle.store.pins import catalog_of, open_pinned, pin_stream
from chronicle.store.store import Store
from chronicle.store.stream import EventStream
from chronicle.tests.memory_files import MemoryFiles

from .test_many_segments import EVENTS, batch, expected, filled, numbers, pages_in

DIRECTORY = "streams/s"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_pages, "INLINE_SEGMENTS", 2)
    monkeypatch.setattr(manifest_pages, "PAGE_SEGMENTS", 4)


@pytest.fixture
def memory() -> MemoryFiles:
    return MemoryFiles()


# -- pins -----------------------------------------------------------------------------------------


def test_a_pin_names_pages_and_keeps_them(memory: MemoryFiles) -> None:
    with Store.open("memory", files=memory) as store:
        stream = filled(store, 11)
        pin = pin_stream(memory, DIRECTORY)
        named = {page.file for page in stream.commits.manifest.segments.pages}
        assert set(pin.manifest["pages"]["file"]) == named
        assert "segments" not in pin.manifest
        assert not len(pin.outline.segments)
        assert catalog_of(memory, pin).segments == stream.commits.manifest.segments
        stream.delete(0, 9 * EVENTS)
        stream.append(batch(11))
        stream.seal()
        assert named - {page.file for page in stream.commits.manifest.segments.pages}
        assert named <= set(pages_in(memory))
        assert numbers(open_pinned(memory, pin)) == expected(*range(11))
        assert numbers(open_pinned(memory, pin, EVENTS, 2 * EVENTS)) == expected(1)
        later = pin_stream(memory, DIRECTORY)
        assert numbers(open_pinned(memory, later)) == expected(9, 10, 11)
        assert sum(part.events for part in new_ranges(memory, pin, later)) == EVENTS
    with Store.open("memory", files=memory):  # a sweep leaves what the lease keeps
        assert numbers(open_pinned(memory, pin)) == expected(*range(11))


def test_pages_that_nobody_has_a_lease_on_go_and_the_pin_says_so(memory: MemoryFiles) -> None:
    with Store.open("memory", files=memory) as store:
        stream = filled(store, 11)
        name = pins.keep_pin(memory, DIRECTORY)
        kept = pins.load_pin(memory, DIRECTORY, name)
        old = set(kept.manifest["pages"]["file"])
        stream.delete(0, 9 * EVENTS)
        assert old <= set(pages_in(memory))
        pins.drop_pin(memory, DIRECTORY, name)
        stream.append(batch(11))
        stream.seal()
        assert not old <= set(pages_in(memory))
        for work in (
            lambda: open_pinned(memory, kept),
            lambda: catalog_of(memory, kept),
            lambda: new_ranges(memory, kept, pin_stream(memory, DIRECTORY)),
        ):
            with pytest.raises(SnapshotExpired, match=r"commit 11 .* is no longer kept: .*\.page"):
                work()


def test_a_kept_pin_is_small_renewed_and_opened(memory: MemoryFiles) -> None:
    with Store.open("memory", files=memory) as store:
        stream = filled(store, 40)
        name = pins.keep_pin(memory, DIRECTORY, seconds=1000)
        document = json.loads(memory.read(f"{DIRECTORY}/pins/{name}.pin"))
        assert len(document["manifest"]["pages"]["file"]) == 10
        assert "segments" not in document["manifest"]
        later = time.time() + 600
        assert pins.renew_pin(memory, DIRECTORY, name, seconds=1000, clock=lambda: later)
        stream.delete(0, 35 * EVENTS)
        pin = pins.load_pin(memory, DIRECTORY, name)
        assert numbers(open_pinned(memory, pin)) == expected(*range(40))


def test_pins_of_releases_before_name_their_segments(memory: MemoryFiles) -> None:
    with Store.open("memory", files=memory) as store:
        stream = filled(store, 11)
        pin = pin_stream(memory, DIRECTORY)
        whole = catalog_of(memory, pin)
        whole = replace(whole, segments=whole.segments.paged(()))
        old = replace(pin, manifest=json.loads(json.dumps(whole.to_json())))
        assert len(old.manifest["segments"]) == 11
        stream.delete(0, 9 * EVENTS)
        assert numbers(open_pinned(memory, old)) == expected(*range(11))
        assert len(old.outline.segments) == 11


def test_a_damaged_page_of_a_pin_is_told(memory: MemoryFiles) -> None:
    with Store.open("memory", files=memory) as store:
        filled(store, 11)
        pin = pin_stream(memory, DIRECTORY)
        path = f"{DIRECTORY}/{pin.manifest['pages']['file'][0]}"
        data = memory.read(path)
        memory.remove(path)
        with memory.create(path) as file:
            file.write(data[:90] + bytes([data[90] ^ 1]) + data[91:])
        with pytest.raises(CorruptStore, match="hash"):
            open_pinned(memory, pin)


# -- beside the objects ---------------------------------------------------------------------------


class Cut(ObjectStore):
    """Objects that end the work at one of the calls that change something, before or after it."""

    def __init__(self, url: str, left: int = 1 << 30, after: bool = False) -> None:
        super().__init__(url)
        self.left, self.after = left, after
        self.done: list[tuple[str, str]] = []

    def _counted(self, what: str, key: str, work: Callable[[], None]) -> None:
        self.left -= 1
        if self.left < 0 or (self.left == 0 and not self.after):
            self.left = 0
            raise StorageFailed("cut")
        work()
        self.done.append((what, key))
        if self.left == 0:
            raise StorageFailed("cut")

    def put(self, key: str, parts: object) -> None:
        self._counted("put", key, lambda: super(Cut, self).put(key, parts))  # type: ignore[arg-type]

    def remove(self, key: str) -> None:
        self._counted("remove", key, lambda: super(Cut, self).remove(key))


@pytest.fixture
def moved(tmp_path: Path) -> Iterator[tuple[EventStream, Cut]]:
    with Store.open(tmp_path / "store") as store:
        stream = filled(store, 11)
        objects = Cut(f"file://{tmp_path}/objects")
        assert stream.move(objects, "own", 1 << 40).segments == 11
        yield stream, objects


def page_objects(objects: ObjectStore) -> set[str]:
    return {key for key in objects.list("") if key.endswith(".page")}


def names(keys: set[str]) -> set[str]:
    return {key.rpartition("/")[2].rpartition("-")[0] for key in keys}


def files_of(stream: EventStream) -> set[str]:
    pages = stream.commits.manifest.segments.pages
    return {page.file.removesuffix(".page") for page in pages}


def restored(objects: ObjectStore, path: Path) -> tuple[list[int], int]:
    """Events of a restored store, and how many segments of it have a root in a page."""
    restore_store(ObjectStore(objects.url), path)
    with Store.open(path) as store:
        stream = store.stream("s")
        assert isinstance(stream, EventStream)
        assert store.check().ok
        segments = stream.commits.manifest.segments
        roots = roots_in_pages(RealFiles(path), DIRECTORY, segments)
        return numbers(stream.snapshot()), len(roots)


def test_a_move_puts_new_pages_and_no_others(
    moved: tuple[EventStream, Cut], tmp_path: Path
) -> None:
    stream, objects = moved
    assert names(page_objects(objects)) == files_of(stream)
    before = page_objects(objects)
    objects.done.clear()
    assert not stream.move(objects, "own", 1 << 40).segments
    assert objects.done == []
    stream.append(batch(11))
    stream.seal()
    assert stream.move(objects, "own", 1 << 40).segments == 1
    written = [key for what, key in objects.done if what == "put" and key.endswith(".page")]
    assert set(written) == page_objects(objects) - before
    assert len(written) == 1
    assert names(page_objects(objects)) == files_of(stream)
    assert [key for what, key in objects.done if what == "remove"] == sorted(
        before - page_objects(objects)
    )
    assert objects.done[-2][1].endswith("/MANIFEST")  # then the page that it no longer names
    assert restored(objects, tmp_path / "again") == (expected(*range(12)), 12)


@pytest.mark.parametrize("after", [False, True])
def test_an_accident_at_any_step_leaves_a_copy_that_is_whole(
    after: bool, moved: tuple[EventStream, Cut], tmp_path: Path
) -> None:
    stream, objects = moved
    told, steps = expected(*range(11)), 0
    for number in (11, 12):
        stream.append(batch(number))
        stream.seal()
        stream.delete((number - 10) * EVENTS, (number - 9) * EVENTS)
        now = numbers(stream.snapshot())
        ended, calls = False, 0
        while not ended:
            calls, steps = calls + 1, steps + 1
            cut = Cut(objects.url, calls, after)
            try:
                stream.move(cut, "own", 1 << 40)
                ended = True
            except StorageFailed:
                pass
            found, _ = restored(objects, tmp_path / f"again{steps}")
            assert found == sorted(found)
            assert set(told) & set(now) <= set(found) <= set(told) | set(now)
        assert found == now
        assert names(page_objects(objects)) == files_of(stream)
        told = now
    assert steps >= 8


def test_pages_that_are_missing_or_damaged_are_told(
    moved: tuple[EventStream, Cut], tmp_path: Path
) -> None:
    _, objects = moved
    key = min(page_objects(objects))
    path = tmp_path / "objects" / key
    data = path.read_bytes()
    path.write_bytes(data[:100] + bytes([data[100] ^ 8]) + data[101:])
    with pytest.raises(CorruptStore, match=r"page of .*MANIFEST is damaged"):
        restore_store(ObjectStore(objects.url), tmp_path / "damaged")
    path.unlink()
    with pytest.raises(StorageFailed, match=r"\.page is missing"):
        restore_store(ObjectStore(objects.url), tmp_path / "missing")


def test_a_copy_of_releases_before_is_restored(
    moved: tuple[EventStream, Cut], tmp_path: Path
) -> None:
    """It has all segments itself; the pages of the new store have no roots yet."""
    stream, objects = moved
    for key in page_objects(objects):
        ObjectStore.remove(objects, key)
    manifest = stream.commits.manifest
    whole = replace(manifest, segments=manifest.segments.paged(()))
    (copy,) = (tmp_path / "objects").rglob("MANIFEST")
    copy.write_bytes(manifest_content(whole.to_json()))
    assert restored(objects, tmp_path / "again") == (expected(*range(11)), 0)


def test_a_stream_that_has_few_segments_again_leaves_no_pages(
    moved: tuple[EventStream, Cut], tmp_path: Path
) -> None:
    stream, objects = moved
    stream.delete(0, 9 * EVENTS)
    stream.move(objects, "own", 1 << 40)
    assert page_objects(objects) == set()
    assert restored(objects, tmp_path / "again") == (expected(9, 10), 0)

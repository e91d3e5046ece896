"""Mutants of streams of many segments: pages of a manifest, views that are opened later, open files.

A mutant is a name, a file or folder, a text that stands there once, what takes its place, and the
tests that must notice; see :mod:`mutants`.
"""
# ruff: noqa: E501

from __future__ import annotations

__all__ = ["SEGMENT_MUTANTS"]

MANY = "test_many_segments.py"
MACHINE = "test_stream_machine.py::test_a_stream_of_many_segments_is_a_sorted_list"

SEGMENT_MUTANTS = [
    # -- pages ------------------------------------------------------------------------------------
    (
        "a page is not synced before the manifest names it",
        "store/manifest_pages.py",
        "        file.sync()\n",
        "        pass\n",
        f"{MANY}::test_a_commit_of_pages_is_whole_or_nothing",
    ),
    (
        "a page of the version before goes although it stays",
        "store/manifest_commit.py",
        "if page.file not in staying]",
        "]",
        MANY,
    ),
    (
        "a replaced page is forgotten, not garbage",
        "store/manifest_commit.py",
        "((file, manifest.version) for file in gone)",
        "((file, manifest.version) for file in gone[1:])",
        MANY,
    ),
    (
        "the table of a page is not compared with its checksum",
        "store/manifest_pages.py",
        "    if body.intdigest() != sign:\n",
        "    if False:\n",
        f"{MANY}::test_no_flipped_bit_of_a_page_passes",
    ),
    (
        "any page of that name will do",
        "store/manifest_pages.py",
        "body.hexdigest() != page.digest or ",
        "",
        f"{MANY}::test_pages_that_are_not_those_that_were_written",
    ),
    (
        "the roots of a page are not compared with their checksum",
        "store/manifest_pages.py",
        "if len(words) != length or xxh3_64_intdigest(words) != sign:",
        "if len(words) != length:",
        f"{MANY}::test_no_flipped_bit_of_a_page_passes",
    ),
    (
        "older releases read a manifest without its segments",
        "store/catalog.py",
        "            return {NEEDED: 5}\n",
        "            return {}\n",
        MANY,
    ),
    (
        "a commit writes every page",
        "store/manifest_pages.py",
        "first + pages[0].segments <= begin:",
        "first + pages[0].segments <= 0:",
        f"{MANY}::test_a_commit_writes_the_last_page_and_the_manifest",
    ),
    (
        "each segment gets a page of its own",
        "store/manifest_pages.py",
        "    elif small and left and left + small <= PAGE_SEGMENTS:\n",
        "    elif False:\n",
        f"{MANY}::test_appends_fill_pages",
    ),
    (
        "roots are lost when their page is written again",
        "store/manifest_pages.py",
        "known.get(entry.id) or root_of(entry)",
        "root_of(entry)",
        MANY,
    ),
    (
        "a reader takes pages of a version that is gone",
        "store/recovery.py",
        "            if again == body:\n",
        "            if True:\n",
        f"{MANY}::test_a_load_names_pages_of_one_version",
    ),
    (
        "a pin names pages instead of segments",
        "store/pins.py",
        "            manifest.whole().to_json()",
        "            manifest.to_json()",
        f"{MANY}::test_pins_and_backups_have_all_segments",
    ),
    (
        "a backup leaves pages behind",
        "store/backup.py",
        "[*manifest.segments.files(), *runs, *pages]",
        "[*manifest.segments.files(), *runs]",
        f"{MANY}::test_pins_and_backups_have_all_segments",
    ),
    # -- roots ------------------------------------------------------------------------------------
    (
        "a segment that begins before the range counts whole",
        "store/segment_views.py",
        "begin + int(entries.firsts[begin] < first)",
        "begin",
        MANY,
    ),
    (
        "a segment that ends behind the range counts whole",
        "store/segment_views.py",
        "end - int(entries.lasts[end - 1] > last)",
        "end",
        MANY,
    ),
    (
        "segments without a root are left out",
        "store/segment_views.py",
        "                yield from self._views(at, run.first)\n",
        "",
        f"{MANY}::test_roots_of_pages_say_what_the_segments_say",
    ),
    (
        "roots of earlier columns are taken as they are",
        "store/root_runs.py",
        "            if how.evolution is not None:\n",
        "            if False:\n",
        f"{MANY}::test_columns_that_came_later_are_made_for_roots_too",
    ),
    # -- heads of leaves in stubs -----------------------------------------------------------------
    (
        "heads of leaves are asked of the object",
        "store/cold_file.py",
        "        if heads is not None:\n            with",
        "        if False:\n            with",
        "test_cold_segments.py::test_heads_of_leaves_stay_at_home",
    ),
    (
        "older releases read stubs with heads",
        "store/cold_stub.py",
        "VERSION if self.heads else 1",
        "1",
        "test_cold_segments.py::test_heads_of_leaves_stay_at_home",
    ),
    (
        "what a stub keeps is not compared with its checksum",
        "store/cold_stub.py",
        "    if xxh3_64_hexdigest(content) != digest:\n",
        "    if False:\n",
        "test_cold_segments.py::test_a_damaged_stub_is_told",
    ),
    (
        "heads stay whatever they take",
        "store/moving.py",
        " > entry.bytes // HEADS_SHARE:\n",
        " > entry.bytes:\n",
        "test_cold_segments.py::test_heads_of_leaves_stay_at_home",
    ),
    # -- views and files --------------------------------------------------------------------------
    (
        "what a snapshot wants is not opened before it goes",
        "store/segment_views.py",
        "                if _stays(view):\n",
        "                if False:\n",
        f"{MANY}::test_snapshots_stay_as_they_are",
    ),
    (
        "a lease is given up at once",
        "store/segment_views.py",
        "                    state.leases.append(kept)\n",
        "                    pass\n",
        f"{MANY}::test_snapshots_stay_as_they_are",
    ),
    (
        "a reader elsewhere holds no lease",
        "store/segment_views.py",
        "            self._lease = _Kept(lease)\n",
        "            lease.release()\n            return True\n",
        f"{MANY}::test_a_reader_elsewhere_keeps_its_version",
    ),
    (
        "files whose names are gone are closed",
        "store/segment_views.py",
        "        view.file.stay_open()\n",
        "        pass\n",
        f"{MANY}::test_snapshots_stay_as_they_are",
    ),
    (
        "nobody closes files",
        "store/open_files.py",
        "            asked = self._oldest(file, over) if over > 0 else []\n",
        "            asked: list[Reopened] = []\n",
        f"{MANY}::test_few_files_are_open_at_once",
    ),
    (
        "a segment that is missing shows late",
        "store/commits.py",
        "        if lost:\n",
        "        if False:\n",
        f"{MANY}::test_a_segment_that_is_missing_shows_when_the_stream_is_opened",
    ),
    (
        "a segment is not compared with what the manifest says",
        "store/segment.py",
        "            check_entry(found, entry, path)\n",
        "",
        f"{MANY}::test_a_segment_holds_what_the_manifest_says",
    ),
    (
        "all segments are opened with a large stream",
        "store/segment_views.py",
        "        return len(self) <= OPENED_MAX\n",
        "        return True\n",
        f"{MANY}::test_only_what_is_looked_at_is_opened",
    ),
]

"""Mutants of streams of many segments: pages of a manifest, views that are opened later, open files.

A mutant is a name, a file or folder, a text that stands there once, what takes its place, and the
tests that must notice; see :mod:`mutants`.
"""
# ruff: noqa: E501

from __future__ import annotations

__all__ = ["SEGMENT_MUTANTS"]

MANY = "test_many_segments.py"
LISTS = "test_segment_lists.py"
ELSEWHERE = "test_pages_elsewhere.py"
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
        f"{LISTS}::test_appends_fill_pages",
    ),
    (
        "roots are lost when their page is written again",
        "store/manifest_pages.py",
        "known.get(entry.id) or root_of(entry)",
        "root_of(entry)",
        f"{MANY} {LISTS}",
    ),
    (
        "a reader takes pages of a version that is gone",
        "store/recovery.py",
        "            if again == body:\n",
        "            if True:\n",
        f"{MANY}::test_a_load_names_pages_of_one_version",
    ),
    (
        "a backup leaves pages behind",
        "store/backup.py",
        "        for page in manifest.segments.pages:\n",
        "        for page in ():\n",
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
        "        if self._heads is not None:\n            with",
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
        "a check looks at no heads that are kept",
        "store/check.py",
        "        view.file.check_heads()\n",
        "",
        "test_cold_segments.py::test_a_damaged_stub_is_told",
    ),
    (
        "other heads are put in their places",
        "store/cold_stub.py",
        'np.searchsorted(behind, offset, "right"), offset + length',
        'np.searchsorted(behind, offset, "right") + 1, offset + length',
        "test_cold_segments.py::test_heads_of_leaves_stay_at_home",
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
    # -- pages that others name -------------------------------------------------------------------
    (
        "a move puts pages that are there already",
        "store/moving.py",
        "        if key not in there:\n",
        "        if True:\n",
        f"{ELSEWHERE}::test_a_move_puts_new_pages_and_no_others",
    ),
    (
        "pages that the copy of a manifest no longer names stay with the objects",
        "store/moving.py",
        "    for key in there.difference(named):",
        "    for key in ():",
        f"{ELSEWHERE}::test_a_stream_that_has_few_segments_again_leaves_no_pages",
    ),
    (
        "pages go from the objects before the manifest that names others is there",
        "store/moving.py",
        '    store.put(f"{place}/{MANIFEST}", [manifest_content(manifest.to_json())])\n',
        "    for key in there.difference(named):\n        store.remove(key)\n"
        '    store.put(f"{place}/{MANIFEST}", [manifest_content(manifest.to_json())])\n',
        f"{ELSEWHERE}::test_an_accident_at_any_step_leaves_a_copy_that_is_whole",
    ),
    (
        "a restore forgets the roots of pages",
        "store/restoring.py",
        "lambda entry: roots.get(entry.id)",
        "lambda entry: None",
        f"{ELSEWHERE}::test_a_move_puts_new_pages_and_no_others",
    ),
    (
        "a pin has no segments of its pages",
        "store/pins.py",
        "    return StreamManifest.from_json(body, segments)\n",
        "    return pin.outline\n",
        f"{ELSEWHERE}::test_a_pin_names_pages_and_keeps_them",
    ),
    (
        "pages go although a lease wants their version",
        "store/garbage.py",
        '    if not file.endswith(".seg"):\n        return 0\n',
        '    if not file.endswith(".seg"):\n        return COUNTER_MASK\n',
        f"{ELSEWHERE}::test_a_pin_names_pages_and_keeps_them",
    ),
    # -- cold reads -------------------------------------------------------------------------------
    (
        "a time at the border of two runs is taken to be of the first",
        "query/replay/timeline.py",
        "        asked = vague[high > low]\n",
        "        asked = vague[:0]\n",
        "../query/replay/test_timeline.py",
    ),
    (
        "leaves are read where the times of runs meet",
        "query/replay/timeline.py",
        "(self._indexes is not None)\n            early",
        "False\n            early",
        "../query/replay/test_timeline.py",
    ),
    (
        "rows of the next batches are asked for when they are wanted",
        "query/replay/objects_ahead.py",
        "            if number + 1 < len(groups):\n",
        "            if False:\n",
        "../query/replay/test_objects_ahead.py",
    ),
    (
        "rows in objects are asked for batch by batch",
        "query/replay/objects_ahead.py",
        "        elif int(size[high - 1]) - done > most:\n",
        "        else:\n",
        "../query/replay/test_objects_ahead.py",
    ),
    (
        "a database of indexes is closed under those who read of it",
        "indexes/storage.py",
        "                    self._await_lookups(database)\n",
        "",
        "../indexes/test_ahead.py",
    ),
    (
        "blocks of the next lookups are asked for when they are wanted",
        "indexes/ahead.py",
        "_looking.pool().submit(indexes.fetch, names) if names else None",
        "None",
        "../indexes/test_ahead.py",
    ),
]

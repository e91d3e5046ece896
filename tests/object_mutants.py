"""Lies about segments that lie in objects, and about reads that are planned, for ``make mutants``.

Layout
    As in :mod:`store_mutants`: ``(name, file or folder, text, replacement, tests below
    tests/store)``.
"""

from __future__ import annotations

__all__ = ["OBJECT_MUTANTS"]

BACKUP = "../test_object_backup.py"

OBJECT_MUTANTS = [
    # -- segments in objects ----------------------------------------------------------------------
    (
        "a moved segment goes before the name of its stub is durable",
        "store/moving.py",
        "            files.sync_directory(commits.directory)\n        files.inner.remove(path)\n",
        "        files.inner.remove(path)\n",
        "test_cold_segments.py",
    ),
    (
        "what was put is not compared",
        "store/moving.py",
        "            if found != digest:\n",
        "            if False:\n",
        "test_cold_segments.py",
    ),
    (
        "objects of a move that was cut short stay",
        "store/moving.py",
        "    purge(files.inner, commits.directory, (DOOMED, MOVING))\n",
        "    purge(files.inner, commits.directory)\n",
        "test_cold_segments.py",
    ),
    (
        "objects of removed segments stay",
        "store/cold_files.py",
        "                objects.remove(found.key)\n",
        "                pass\n",
        "test_cold_segments.py",
    ),
    (
        "holes are read",
        "store/segment_file.py",
        "        mapping.need(((offset, length),))\n",
        "        pass\n",
        "test_cold_segments.py",
    ),
    (
        "the cache of cold segments grows for ever",
        "store/cold_file.py",
        "            if self.bytes <= self.limit:\n",
        "            if True:\n",
        "test_cold_segments.py",
    ),
    (
        "a mapping is given up while a kernel goes over it",
        "store/cold_file.py",
        "            if old is newest or (old is not None and old.held):\n",
        "            if old is newest:\n",
        "test_cold_segments.py",
    ),
    (
        "JSON keeps half of a surrogate pair",
        "json_text.py",
        "                if half != low:\n",
        "                if False:\n",
        "../test_json_text.py",
    ),
    (
        "JSON of an Arrow table is believed",
        "incoming.py",
        "        if found.faults is not None:\n            at",
        "        if False:\n            at",
        "../test_json_columns.py",
    ),
    (
        "members of the wrong name are left out of a struct in silence",
        "nested_types.py",
        "            if found is None or found in places_of:\n",
        "            if found is None:\n                continue\n"
        "            if found in places_of:\n",
        "../test_nested_types.py",
    ),
    (
        "an older release opens a stream with JSON columns",
        "store/catalog.py",
        "            return {NEEDED: 4}\n",
        "            return {NEEDED: 3}\n",
        "../test_json_columns.py",
    ),
    (
        "a segment that was rewritten while it was uploaded is put in its place",
        "store/moving.py",
        "        if entry not in commits.manifest.segments:\n            return False",
        "        if False:\n            return False",
        "test_tiering.py::test_deletes_and_compactions_do_not_wait_for_objects",
    ),
    (
        "deletes wait for objects",
        "store/background.py",
        "        with self._moving:\n            return move_segments(",
        "        with self._moving, self._one:\n            return move_segments(",
        "test_tiering.py::test_deletes_and_compactions_do_not_wait_for_objects",
    ),
    (
        "a store is closed beside a request to its objects",
        "store/background.py",
        "        with self._moving:  # its request to the objects ends first\n            pass\n",
        "",
        "test_tiering.py::test_closing_ends_a_move_between_two_requests",
    ),
    (
        "what lies in objects counts as kept on the disk",
        "store/tiering.py",
        "    local = [entry for entry in manifest.segments if entry.file not in cold]\n",
        "    local = list(manifest.segments)\n",
        "test_tiering.py::test_due_is_what_the_settings_say",
    ),
    (
        "a sparse stream becomes a crowd of objects",
        "store/tiering.py",
        " and active.writer.length >= commits.options.moved_bytes_min\n",
        " or commits.journal.tail.rows > 0\n",
        "test_tiering.py::test_a_sparse_stream_is_no_crowd_of_objects",
    ),
    (
        "one stream that cannot move holds up the others",
        "store/mover.py",
        '        self._first = name + "\\0"  # the one behind it\n',
        "",
        "test_tiering.py::test_one_that_cannot_move_does_not_hold_up_the_others",
    ),
    (
        "objects that fail are asked again and again",
        "store/mover.py",
        "RETRY_SECONDS * (1 << min(self._failures - 1, 30))",
        "RETRY_SECONDS",
        "test_tiering.py::test_failures_are_told_and_tried_again",
    ),
    (
        "cold neighbours are joined, and come back to the disk",
        "store/compaction.py",
        " or entry.id in fold.replaced or entry.file in cold:\n",
        " or entry.id in fold.replaced:\n",
        "test_tiering.py::test_what_has_moved_is_not_joined_with_small_neighbours",
    ),
    # -- reads that are planned -------------------------------------------------------------------
    (
        "sections are not compared with their checksums",
        "store/leaf.py",
        "            verify_chunk(section, int(sums[number]), what, self.file, self.offset)\n",
        "            pass\n",
        "test_sections.py",
    ),
    (
        "the last section of some rows is left out",
        "store/sections.py",
        "        low, high = first // step, -(-end // step)\n",
        "        low, high = first // step, max(first // step + 1, end // step)\n",
        "test_sections.py",
    ),
    (
        "the nulls of a column are read unverified",
        "store/sections.py",
        "    return validity if entry.codec is Codec.NONE else validity + 8 * (entry.pages + 1)\n",
        "    return 0 if entry.codec is Codec.NONE else validity + 8 * (entry.pages + 1)\n",
        "test_sections.py",
    ),
    (
        "leaves are asked for one after the other",
        "store/leaf_map.py",
        "            if size >= AHEAD_BYTES:\n",
        "            if size >= 0:\n",
        "test_sections.py::test_leaves_come_ahead_in_two_rounds",
    ),
    (
        "gaps of every width are read",
        "store/read_plan.py",
        "        if begun is not None and offset - sum(begun) <= gap:\n",
        "        if begun is not None:\n",
        "test_sections.py::test_requests_cover_what_is_wanted",
    ),
    (
        "the last position block of a range does not come ahead",
        "indexes/ahead.py",
        '        *((b"p", number) for number in range(first, last + 1)),\n',
        '        *((b"p", number) for number in range(first, last)),\n',
        "../indexes/test_ahead.py",
    ),
    # -- backups in objects -----------------------------------------------------------------------
    (
        "a backup is listed before its bytes are there",
        "store/object_backup.py",
        "        files = all_of(tasks)\n",
        "        files = all_of(tasks[1:])\n",
        f"{BACKUP}::test_what_is_restored_is_the_store",
    ),
    (
        "nothing says that a backup is being made",
        "store/object_backup.py",
        '    objects.put(unfinished, [b"a backup that is being made, or was cut short\\n"])\n',
        "",
        f"{BACKUP}::test_it_is_whole_or_unfinished",
    ),
    (
        "a backup lets go of segments before their bytes were sent",
        "store/object_backup.py",
        "self._leases.callback(lease.release)",
        "lease.release()",
        f"{BACKUP}::test_what_goes_on_meanwhile",
    ),
    (
        "each backup sends everything",
        "store/object_backup.py",
        "known = self._there.get(file.key) == file.size or file.key in self._begun",
        "known = file.key in self._begun",
        f"{BACKUP}::test_the_next_backup_sends_what_is_new",
    ),
    (
        "equal files are sent at once, over each other",
        "store/object_backup.py",
        "known = self._there.get(file.key) == file.size or file.key in self._begun",
        "known = self._there.get(file.key) == file.size",
        f"{BACKUP}::test_the_next_backup_sends_what_is_new",
    ),
    (
        "all of the active segment is sent, committed or not",
        "store/object_backup.py",
        "file.size if length is None else length, check)",
        "file.size, check)",
        f"{BACKUP}::test_what_is_sent_of_the_active_segment_is_what_is_committed",
    ),
    (
        "what is restored is not compared with its digest",
        "store/object_backups.py",
        "    if digest.hexdigest() != file.digest:\n",
        "    if False:\n",
        f"{BACKUP}::test_damage_is_told_and_nothing_is_made_of_it",
    ),
    (
        "what is half restored opens",
        "store/object_backup.py",
        "    begin_unfinished(os.path.abspath(target))\n",
        "    Store.open(target).close()\n",
        f"{BACKUP}::test_damage_is_told_and_nothing_is_made_of_it",
    ),
    (
        "a listing is believed whatever its checksum",
        "store/object_backups.py",
        "if xxhash.xxh3_64_hexdigest(body).encode() != digest:",
        "if False:",
        f"{BACKUP}::test_damage_is_told_and_nothing_is_made_of_it",
    ),
    (
        "a listing may name files anywhere",
        "store/object_backups.py",
        'if path.startswith("/") or not set(path.split("/")).isdisjoint(("", ".", "..")):',
        "if False:",
        f"{BACKUP}::test_listings_of_strangers",
    ),
    (
        "removing a backup leaves its bytes",
        "store/object_backups.py",
        "    for key in each(left):\n",
        "    for key in ():\n",
        f"{BACKUP}::test_what_is_removed_is_gone",
    ),
    (
        "removing a backup takes what others have",
        "store/object_backups.py",
        "left = [key for key in objects.list(BYTES) if key not in kept]",
        "left = objects.list(BYTES)",
        f"{BACKUP}::test_what_is_removed_is_gone",
    ),
    (
        "bytes are removed while another backup counts on them",
        "store/object_backups.py",
        '        if other.state == "unfinished":\n',
        "        if False:\n",
        f"{BACKUP}::test_it_is_whole_or_unfinished",
    ),
]

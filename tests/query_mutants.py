"""Lies about patterns and windows, for ``make mutants``: what is broken, and who must notice.

Layout
    Entries are ``(name, file or folder, text, replacement, tests below tests/query)``; see
    :mod:`mutants`.  A text of a kernel makes that kernel compile anew, which takes some seconds.
"""

# ruff: noqa: E501

from __future__ import annotations

__all__ = ["QUERY_MUTANTS"]

CLAUSES = "pattern/test_match_clauses.py"
STREAMING = "pattern/test_match_streaming.py"
ADVANCING = "pattern/test_match_advancing.py pattern/test_match_closing.py"
WINDOWS = "windows/test_window_operators.py::test_random_streams"
GROUPS = "windows/test_window_groups.py"

QUERY_MUTANTS = [
    # -- patterns ---------------------------------------------------------------------------------
    (
        "WITHIN is exclusive",
        "query",
        "return time[start] + task.window\n",
        "return time[start] + task.window - 1\n",
        f"{CLAUSES}::test_within_is_inclusive",
    ),
    (
        "PAST LAST ROW goes on at the last row",
        "query",
        "return start + length\n",
        "return start + max(1, length - 1)\n",
        f"{CLAUSES}::test_skip_modes",
    ),
    (
        "TO NEXT ROW goes on past the match",
        "query",
        "    if length == 0 or skip == TO_NEXT:\n        return start + 1\n",
        "    if length == 0 or skip == TO_NEXT:\n        return start + max(1, length)\n",
        f"{CLAUSES}::test_skip_modes",
    ),
    (
        "TO LAST goes to the first, where conditions depend on the match",
        "query",
        "chosen = s + i\n                        wanted = task.skip == TO_LAST",
        "chosen = s + i\n                        wanted = False",
        "pattern/test_match_clauses.py::test_skip_modes",
    ),
    (
        "TO LAST goes to the first, where conditions are of a row",
        "query",
        "chosen = frame[at + 2] - 1 if wanted else frame[at - 2]",
        "chosen = frame[at - 2]",
        "pattern/test_match_clauses.py::test_skip_to_a_name_of_many_rows",
    ),
    (
        "reluctant quantifiers are greedy",
        "query",
        "first, second = (body, leave) if greedy else (leave, body)",
        "first, second = body, leave",
        "pattern/test_pattern_text.py::test_edges_keep_the_preference_order",
    ),
    (
        "later alternatives are preferred",
        "query",
        "            push((step.other, fresh, anchor, absent))\n"
        "            push((step.target, fresh, anchor, absent))\n",
        "            push((step.target, fresh, anchor, absent))\n"
        "            push((step.other, fresh, anchor, absent))\n",
        "pattern/test_pattern_text.py::test_edges_keep_the_preference_order",
    ),
    (
        "excluded rows are shown",
        "query",
        "excluded=self.excluded > 0",
        "excluded=False",
        "pattern/test_match_published.py::test_trino_exclusion_hides_rows_but_counts_them",
    ),
    (
        "^ holds at the first row of every buffer",
        "query",
        "frame[top + 1] = c + 1\n                flags = flag[c]\n"
        "                if flags & 1 and (row != begin or seen[g]):",
        "frame[top + 1] = c + 1\n                flags = flag[c]\n"
        "                if flags & 1 and row != begin:",
        f"{STREAMING} {CLAUSES}::test_anchors",
    ),
    (
        "events that must be absent may be passed over",
        "query",
        "                        if (flags >> 2) & passed:\n",
        "                        if False:\n",
        f"{CLAUSES}::test_absence_between_two_events",
    ),
    (
        "events that must be absent until the window ends are not looked for",
        "query",
        "                        if flags >> 2:  # absent until the window ends\n",
        "                        if False:\n",
        f"{CLAUSES}::test_absence_before_groups_and_until_the_window_ends",
    ),
    (
        "SKIP TILL NEXT passes over what it could take",
        "query",
        "if satisfied and kind == SKIP_NEXT:",
        "if False:",
        "pattern/test_match_differential.py"
        "::test_event_selection_finds_the_sets_of_the_definitions",
    ),
    (
        "a pattern that goes on is decided a tick early",
        "query/pattern/advancing.py",
        "        now = self.watermark + 1 if",
        "        now = self.watermark + 2 if",
        ADVANCING,
    ),
    (
        "a window that has passed is looked at a tick late",
        "query/pattern/advancing.py",
        "np.flatnonzero(kept.due < now)",
        "np.flatnonzero(kept.due < now - 1)",
        ADVANCING,
    ),
    (
        "rows of attempts that are open are dropped",
        "query/pattern/advancing.py",
        "        np.minimum.at(low, owner[own], attempts.start[own])\n",
        "",
        ADVANCING,
    ),
    (
        "rows that PREV looks at are dropped between two steps",
        "query/pattern/advancing.py",
        "kept.drop(groups, needed - self.compiled.history)",
        "kept.drop(groups, needed)",
        ADVANCING,
    ),
    (
        "conditions read rows that are not there yet",
        "query",
        "return end if task.final else max(begin, end - task.lookahead)",
        "return end",
        STREAMING,
    ),
    (
        "rows that PREV looks at are dropped",
        "query",
        "begin = np.maximum(groups.offsets[:-1], position - self.compiled.history)",
        "begin = np.maximum(groups.offsets[:-1], position)",
        f"{CLAUSES}::test_navigation_offsets_and_nesting",
    ),
    (
        "events of one time are torn apart between two batches",
        "query",
        'cut = int(np.searchsorted(time, time[-1], side="left"))',
        'cut = int(np.searchsorted(time, time[-1], side="right"))',
        f"{CLAUSES}::test_ties_are_ordered_by_further_keys",
    ),
    (
        "partitions of two keys are mixed up",
        "query",
        "pair = (codes << 31) | other",
        "pair = codes + other",
        f"{CLAUSES}::test_partitions_nulls_and_several_keys",
    ),
    (
        "a search does not ask whether it is to end",
        "query",
        "            if check is not None:\n                check()\n            if status == m.DONE:",
        "            if status == m.DONE:",
        "pattern/test_match_killers.py::test_time_limits_are_asked_for_during_a_long_search",
    ),
    # -- windows ----------------------------------------------------------------------------------
    (
        "a pause as long as the gap ends a session",
        "query",
        "np.uint64(ticks[i]) - np.uint64(ticks[i - 1]) > np.uint64(gap)",
        "np.uint64(ticks[i]) - np.uint64(ticks[i - 1]) >= np.uint64(gap)",
        WINDOWS,
    ),
    (
        "a pause as long as the gap between two batches ends a session",
        "query",
        "            if int(ticks[0]) - previous <= gap:\n",
        "            if int(ticks[0]) - previous < gap:\n",
        WINDOWS,
    ),
    (
        "a pause as long as the gap ends a session of a key",
        "query",
        "after.view(np.uint64) - before.view(np.uint64) > self._gap",
        "after.view(np.uint64) - before.view(np.uint64) >= self._gap",
        "windows/test_keyed_sessions.py",
    ),
    (
        "sessions of keys run into one another",
        "query",
        "other[1:] = code[1:] != code[:-1]",
        "other[1:] = False",
        "windows/test_keyed_sessions.py",
    ),
    (
        "a slice takes the tick at its end",
        "query",
        "        if rest < cut:\n            room = cut - 1 - rest\n",
        "        if rest <= cut:\n            room = cut - rest\n",
        WINDOWS,
    ),
    (
        "a window takes the tick at its end",
        "query",
        "back = self.overlap - 1 + (rest < cut)",
        "back = self.overlap - 1 + (rest <= cut)",
        "windows/test_window_edges.py windows/test_window_sql.py",
    ),
    (
        "the last count window may be incomplete",
        "query",
        "(events - self.size) // self.slide + 1",
        "(events - self.size) // self.slide + 2",
        f"{WINDOWS} windows/test_window_sql.py::test_count_windows",
    ),
    (
        "windows begin at zero whatever their origin",
        "query",
        "[BY_TIME, self.origin % self.slide, self.slide,",
        "[BY_TIME, 0, self.slide,",
        WINDOWS,
    ),
    (
        "windows are shown without their origin",
        "query",
        "shift = self.origin % self.slide\n",
        "shift = 0\n",
        WINDOWS,
    ),
    (
        "a window ends one slice late",
        "query",
        "return distance >= np.uint64(overlap)",
        "return distance > np.uint64(overlap)",
        WINDOWS,
    ),
    (
        "late runs are left out of windows",
        "query",
        "slicing, selected.start, selected.last) for view in state.runs\n",
        "slicing, selected.start, selected.last) for view in state.runs[:0]\n",
        WINDOWS,
    ),
    (
        "late buffers are left out of windows",
        "query",
        "            for leaf in state.late\n",
        "            for leaf in state.late[:0]\n",
        WINDOWS,
    ),
    (
        "late events do not shift the count",
        "query",
        "        for low, high in self._snapshot.dirty_ranges():\n            if high < start",
        "        for low, high in ():\n            if high < start",
        WINDOWS,
    ),
    (
        "the tick between two halves counts twice",
        "query",
        "earlier = swept(selected.start, middle - 1, self.metrics)",
        "earlier = swept(selected.start, middle, self.metrics)",
        "windows/test_window_operators.py",
    ),
    (
        "a sweep takes a zone whole that the range cuts",
        "query",
        "zone_inside = zone_first >= start and zone_last <= last",
        "zone_inside = zone_last <= last",
        WINDOWS,
    ),
    (
        "zeros of both signs are different keys",
        "query",
        "values = pc.add(column, pa.scalar(0.0, type_))",
        "values = pc.multiply(column, pa.scalar(1.0, type_))",
        f"{GROUPS}::test_keys_are_equal_where_group_by_says_so",
    ),
    (
        "keys of two columns are mixed up",
        "query",
        "pairs = pa.array(local * len(encoded.dictionary) + own).dictionary_encode()",
        "pairs = pa.array(local + own).dictionary_encode()",
        GROUPS,
    ),
    (
        "conditions on events come after windows",
        "query",
        "    if bound.conditions:\n        query.set(",
        "    if False:\n        query.set(",
        "test_moments.py",
    ),
    # -- recency joins ----------------------------------------------------------------------------
    (
        "an archive row that ends with the live row is before it",
        "query/recent",
        'j = low + np.searchsorted(live_te[low:high], ends[i], side="right")\n        stop = low + np.searchsorted(live_te[low:high], reach[i], side="right")\n        found = 0',
        'j = low + np.searchsorted(live_te[low:high], ends[i], side="left")\n        stop = low + np.searchsorted(live_te[low:high], reach[i], side="right")\n        found = 0',
        "recent/test_recent_pairs.py",
    ),
    (
        "an archive row that begins with the live row is before it",
        "query/recent",
        "                if live_ts[j] > tick:",
        "                if live_ts[j] >= tick:",
        "recent/test_recent_pairs.py",
    ),
    (
        "a distance is exclusive",
        "query/recent",
        "self._reach = plus(self._start, distance)",
        "self._reach = plus(self._start, distance) - 1",
        "recent/test_recent_pairs.py",
    ),
    (
        "regions of the archive side begin a tick late",
        "query/recent",
        "else ~plus(~end, distance)",
        "else ~plus(~end, distance) + 1",
        "recent/test_recent_pairs.py",
    ),
    (
        "what is read near a region is no longer than the region",
        "query/recent",
        "hull, rows = regions.hull().widened(within, within), 0",
        "hull, rows = regions.hull(), 0",
        "recent/test_recent_differential.py",
    ),
    (
        "an open-ended range is read no further than its end",
        "query/recent",
        "return self._open_from >= self.edge",
        "return True",
        "recent/test_recent_differential.py",
    ),
    (
        "an incremental match begins in its region",
        "query/recent",
        "begin[i] = found",
        "begin[i] = first",
        "recent/test_recent_differential.py",
    ),
    (
        "a maximal match is the first that is found",
        "query/pattern",
        "                    longest_thread = chosen\n                    longest_depth = depth\n",
        "                    if longest_depth == 0:\n"
        "                        longest_thread = chosen\n                        longest_depth = depth\n",
        "recent/test_match_modes.py",
    ),
    (
        "rows that a match ends with are forgotten from buffer to buffer",
        "query/pattern",
        "self.taken = _joined(self.taken, np.zeros(count, np.bool_))",
        "self.taken = np.zeros(len(self.taken) + count, np.bool_)",
        "recent/test_match_modes.py",
    ),
    # -- conditions of deletes --------------------------------------------------------------------
    (
        "NaN is not above the bound of a deleted range",
        "query/conditions/row_truths.py",
        "            found |= np.isnan(values)\n",
        "            pass\n",
        "test_row_truths.py",
    ),
    (
        "what lies under a null is deleted",
        "query/conditions/row_truths.py",
        "return found & _bits(column.is_valid()) if column.null_count else found",
        "return found",
        "test_row_truths.py",
    ),
    (
        "a remainder has the sign of the divisor",
        "query/conditions/row_truths.py",
        "np.fmod(values,",
        "np.mod(values,",
        "test_row_truths.py",
    ),
    (
        "decimals of any length are taken for the double next to them",
        "query/conditions/bounds.py",
        "len(digits) <= SHORT_DIGITS and",
        "",
        "test_row_truths.py",
    ),
    (
        "an alternative that is a remainder is passed over by a scan",
        "query/plan/scans.py",
        "        if isinstance(prune, AnyOf) or not kept:\n",
        "        if not kept:\n",
        "test_row_truths.py",
    ),
    (
        "a remainder decides a scan that cannot apply it",
        "query/plan/scans.py",
        "    if known == whole.prune:\n",
        "    if True:\n",
        "test_row_truths.py",
    ),
    (
        "a negated remainder is compared as it stands",
        "query/conditions/predicates.py",
        "            attribute.name, operator if truth else _NEGATED[operator], other.value\n",
        "            attribute.name, operator, other.value\n",
        "test_row_truths.py",
    ),
    (
        "a delete's condition is asked of events outside of its range of time",
        "store/snapshot.py",
        "        return list(pairwise([start, *inside, end]))\n",
        "        return list(pairwise([None, *inside, None]))\n",
        "test_row_truths.py",
    ),
]

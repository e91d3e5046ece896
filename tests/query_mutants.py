"""Lies about patterns and windows, for ``make mutants``: what is broken, and who must notice.

Layout
    Entries are ``(name, file or folder, text, replacement, tests below tests/query)``; see
    :mod:`mutants`.  A text of a kernel makes that kernel compile anew, which takes some seconds.
"""

# ruff: noqa: E501

from __future__ import annotations

__all__ = ["QUERY_MUTANTS"]

BOUNDS = "replay/test_interval_bounds.py"
PARTITIONS = "replay/test_partition_intervals.py"
CLAUSES = "pattern/test_match_clauses.py"
STREAMING = "pattern/test_match_streaming.py"
WINDOWS = "windows/test_window_operators.py::test_random_streams"
GROUPS = "windows/test_window_groups.py"
GOLDEN = "../test_golden_scripts.py::test_a_golden_script_prints_what_stands_in_it"

QUERY_MUTANTS = [
    # -- replay intervals -------------------------------------------------------------------------
    (
        "an interval ends one event early",
        "query",
        "return Spans.of(found.first, found.farthest + 1)",
        "return Spans.of(found.first, found.farthest)",
        BOUNDS,
    ),
    (
        "an interval ends one tick early",
        "query",
        "to_tick = shift(found.first_ticks, within) if trailing",
        "to_tick = shift(found.first_ticks, within - 1) if trailing",
        BOUNDS,
    ),
    (
        "an interval begins one tick late",
        "query",
        "from_tick = shift(found.nearest_ticks, -within) if leading",
        "from_tick = shift(found.nearest_ticks, 1 - within) if leading",
        BOUNDS,
    ),
    (
        "an interval of a bounded number of events begins one event late",
        "query",
        "low = np.maximum(found.nearest - longest + 1, 0) if leading",
        "low = np.maximum(found.nearest - longest + 2, 0) if leading",
        BOUNDS,
    ),
    (
        "an interval of a bounded number of events ends one event early",
        "query",
        "high = found.first + longest if trailing",
        "high = found.first + longest - 1 if trailing",
        BOUNDS,
    ),
    (
        "late ranges are not replayed",
        "query",
        "    if not dirty:\n        return spans.joined(gap), by_time\n",
        "    if True:\n        return spans.joined(gap), by_time\n",
        BOUNDS,
    ),
    (
        "what a late event reaches ends one tick early",
        "query",
        "first, last = shift(starts, -within), shift(ends, within)",
        "first, last = shift(starts, -within), shift(ends, within - 1)",
        BOUNDS,
    ),
    (
        "late events beyond the base events of an interval are not read",
        "query",
        "low, high = min(low, int(first[near].min())), max(high, int(last[near].max()))",
        "pass",
        BOUNDS,
    ),
    (
        "what no run covers is not looked at",
        "query",
        "chunks = sorted(chunks + unindexed(chunks, context.total), key=",
        "chunks = sorted(chunks or unindexed(chunks, context.total), key=",
        BOUNDS,
    ),
    (
        "what is not indexed counts as indexed by other attributes",
        "query",
        "if not all(first in runs for runs in columns):",
        "if not any(first in runs for runs in columns):",
        BOUNDS,
    ),
    (
        "the coarse map takes WITHIN as exclusive",
        "query",
        'np.searchsorted(first, _plus(last, pattern.within), side="right"))',
        'np.searchsorted(first, _plus(last, pattern.within - 1), side="right"))',
        BOUNDS,
    ),
    (
        "the coarse map forgets what follows the last symbol",
        "query",
        "pattern, True, pattern.trailing, total)",
        "pattern, True, False, total)",
        BOUNDS,
    ),
    (
        "candidates take WITHIN as exclusive",
        "query",
        "if window >= 0 and end_ticks[near - last] - ticks[i] > window:",
        "if window >= 0 and end_ticks[near - last] - ticks[i] >= window:",
        BOUNDS,
    ),
    (
        "candidates leave one more event between two blocks",
        "query",
        "low = at + between[b]\n",
        "low = at + between[b] + 1\n",
        BOUNDS,
    ),
    (
        "the farthest candidate is the nearest",
        "query",
        "                farthest = far\n",
        "                farthest = near\n",
        BOUNDS,
    ),
    (
        "rows around an interval are not shown",
        "query",
        "first = max(0, start - before)\n",
        "first = start\n",
        BOUNDS,
    ),
    (
        "rows around an interval may match",
        "query",
        "prepared.words[~self.mask(sequence)] = 0",
        "pass",
        "split/test_split_matches.py::test_a_match_over_a_cut_is_carried_to_one_part",
    ),
    (
        "neighbours within a partition are not shown",
        "query",
        "return self._with_neighbours(result) if self.wants.neighbours else result",
        "return result",
        BOUNDS,
    ),
    (
        "PREV before a partition's first row of a match is no reason to show neighbours",
        "query",
        "if place is not None and place < back:",
        "if place is not None and place + 1 < back:",
        BOUNDS,
    ),
    (
        "events of one time have a certain order",
        "query",
        "        len(compiled.order_by) > 1,\n        anchored",
        "        False,\n        anchored",
        BOUNDS,
    ),
    (
        "partitions of two keys are mixed up when they are learned",
        "query",
        "codes * max(1, len(encoded.dictionary)) + own, return_inverse=True",
        "codes + own, return_inverse=True",
        PARTITIONS,
    ),
    (
        "an interval of one partition is that of the next",
        "query",
        "place = code * stride + base + i\n        j = cursor[code]",
        "place = code * stride + base + i + 1\n        j = cursor[code]",
        BOUNDS,
    ),
    (
        "a disjunction is looked up by its first part",
        "query",
        "terms.append(Term(tuple(atom for atom in atoms if atom is not None)))",
        "terms.append(Term(tuple(atom for atom in atoms[:1] if atom is not None)))",
        BOUNDS,
    ),
    (
        "a filter by index forgets the limit of time",
        "query",
        "kept = _within(batch, with_time.index(schema.time), low, high)",
        "kept = batch",
        "replay/test_index_filters.py",
    ),
    # -- choices ----------------------------------------------------------------------------------
    (
        "patterns always use indexes",
        "query",
        "if not _cheap(pricing) and estimate.total_ns > CLEARLY * full:",
        "if False:",
        f"{GOLDEN}[replay_choice]",
    ),
    (
        "patterns are always replayed",
        "query",
        "if not _cheap(pricing) and estimate.total_ns > CLEARLY * full:",
        "if True:",
        f"{GOLDEN}[replay_choice]",
    ),
    (
        "lookups never end early",
        "query",
        "return self.pricing.spans_ns(spans) <= further",
        "return False",
        "replay/test_choice.py",
    ),
    (
        "filters always use indexes",
        "query",
        "if len(spans) * SPAN_NS + spans.total * SCAN_EVENT_NS > 0.8 * scanned:",
        "if False:",
        "replay/test_index_filters.py",
    ),
    (
        "filters never use indexes",
        "query",
        "if len(spans) * SPAN_NS + spans.total * SCAN_EVENT_NS > 0.8 * scanned:",
        "if True:",
        "replay/test_index_filters.py",
    ),
    (
        "windows are always swept",
        "query",
        'return "index" if costs.index <= costs.replay else "replay", "cheaper", costs',
        'return "index", "cheaper", costs',
        f"{GOLDEN}[time_windows]",
    ),
    (
        "windows are always replayed",
        "query",
        'return "index" if costs.index <= costs.replay else "replay", "cheaper", costs',
        'return "replay", "cheaper", costs',
        f"{GOLDEN}[window_plans]",
    ),
    # -- parts of a query -------------------------------------------------------------------------
    (
        "rows carried over a cut belong to nobody",
        "query",
        "stream.end(high.carried)",
        "stream.end(high.carried[:0])",
        "split/test_split_matches.py::test_a_match_over_a_cut_is_carried_to_one_part",
    ),
    (
        "rows carried over a cut belong to both parts",
        "query",
        "stream.begin(low.carried)",
        "stream.begin(low.carried[:0])",
        "split/test_split_matches.py::test_a_match_over_a_cut_is_carried_to_one_part",
    ),
    (
        "MATCH_NUMBER counts in every group of intervals anew",
        "query",
        "wanted = 1 if numbered else max(1, parts(plan.replayed()))",
        "wanted = max(1, parts(plan.replayed()))",
        "split/test_split_matches.py::test_what_depends_on_all_matches_before_is_not_cut",
    ),
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
        "pattern/test_match_differential.py"
        "::test_path_dependent_conditions_match_as_the_oracle_does",
    ),
    (
        "TO LAST goes to the first, where conditions are of a row",
        "query",
        "chosen = frame[at + 2] - 1 if wanted else frame[at - 2]",
        "chosen = frame[at - 2]",
        "pattern/test_match_published.py::test_trino_skip_modes",
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
        "            stack.append((step.other, fresh, anchor, absent))\n"
        "            stack.append((step.target, fresh, anchor, absent))\n",
        "            stack.append((step.target, fresh, anchor, absent))\n"
        "            stack.append((step.other, fresh, anchor, absent))\n",
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
        STREAMING,
    ),
    (
        "events of one time are torn apart between two batches",
        "query",
        'cut = int(np.searchsorted(time, time[-1], side="left"))',
        'cut = int(np.searchsorted(time, time[-1], side="right"))',
        STREAMING,
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
        "    for condition in bound.conditions:\n        query = query.where(condition.copy())\n",
        "",
        "test_moments.py",
    ),
]

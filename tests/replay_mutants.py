"""Lies about replay intervals, choices of plans and parts of a query, for ``make mutants``.

Layout
    As in :mod:`query_mutants`.
"""

from __future__ import annotations

__all__ = ["REPLAY_MUTANTS"]

BOUNDS = "replay/test_interval_bounds.py"
PARTITIONS = "replay/test_partition_intervals.py"
GOLDEN = "../test_golden_scripts.py::test_a_golden_script_prints_what_stands_in_it"

WAYS = "replay/test_ways.py"

REPLAY_MUTANTS = [
    # -- ways of a pattern, rooms between blocks --------------------------------------------------
    (
        "a room holds one event less than the pattern allows",
        "query/replay/rooms.py",
        "until = self._last_of_room(earlier, behind - 1) + 1",
        "until = self._last_of_room(earlier, behind - 1)",
        WAYS,
    ),
    (
        "blocks with another one between them are one event nearer",
        "query/replay/symbols.py",
        "total += room + (len(self.blocks[block].symbols) if block > earlier else 0)",
        "total += room",
        WAYS,
    ),
    (
        "a match ends before the last event that repeats",
        "query/replay/rooms.py",
        "last = np.minimum(self._last_of_room(used, found.farthest), self._timeline.total - 1)",
        "last = np.minimum(self._last_of_room(used, found.farthest) - 1, found.farthest)",
        WAYS,
    ),
    (
        "a gap of several variables repeats that of the symbol before",
        "query/replay/symbols.py",
        "alone = item.variables == blocks[-1][-1].variables",
        "alone = True",
        WAYS,
    ),
    (
        "what repeats up to a number of times does so once less",
        "query/replay/pattern_parts.py",
        "(node.high - copies) * most",
        "(node.high - copies - 1) * most",
        WAYS,
    ),
    (
        "the last of the ways of a pattern is left out",
        "query/replay/considered.py",
        "    for way in ways:\n        one = way.found()",
        "    for way in ways[:-1]:\n        one = way.found()",
        WAYS,
    ),
    (
        "PERMUTE has an order less",
        "query/replay/pattern_parts.py",
        "found += [] if left else [order]",
        "found += [] if left or found else [order]",
        WAYS,
    ),
    (
        "partitions of several ways keep the numbers that the first gave them",
        "query/replay/partition_keys.py",
        "        self._mapped = [None] * len(self.columns)\n        for column in columns:",
        "        for column in columns:",
        WAYS,
    ),
    (
        "NOT BETWEEN is between",
        "query/replay/derived_terms.py",
        "(exp.LT, exp.GT), exp.Or)",
        "(exp.GTE, exp.LTE), exp.And)",
        "replay/test_derived_indexes.py",
    ),
    (
        "a row right after an interval counts as inside of it",
        "query/replay/column_gather.py",
        "inside[1::3] = True",
        "inside[1::3] = inside[2::3] = True",
        "replay/test_replay_intervals.py replay/test_interval_bounds.py",
    ),
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
        "*around, True, pattern.trailing, total)",
        "*around, True, False, total)",
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
        "    first = np.maximum(spans.starts - intervals.before, 0)\n",
        "    first = spans.starts\n",
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
        "return self.pricing.spans_ns(near) <= further",
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
]

"""Lies about situations, for ``make mutants``: each comparison of the relation kernel and each rule of
the semantics broken once.

Layout
    As in :mod:`query_mutants`.
"""

# ruff: noqa: E501

from __future__ import annotations

__all__ = ["SITUATION_MUTANTS"]

DERIVE = "query/situations/derive_kernels.py"
JOIN = "query/situations/join_kernels.py"
RULES = "situations/test_situations_many.py situations/test_situations_differential.py"
REPLAY = "situations/test_situations_replay.py"
TREE = "situations/test_situations_tree.py"
PARTS = "split/test_split_situations.py"
LIVE = "../live/test_live_situations.py"

SITUATION_MUTANTS = [
    # -- what a situation is ----------------------------------------------------------------------
    ("a situation without length counts", DERIVE, "if length > 0 and least[p]", "if length >= 0 and least[p]", RULES),
    ("a least duration is exclusive", DERIVE, "least[p] <= length <= most[p]", "least[p] < length <= most[p]", RULES),
    ("a greatest duration is exclusive", DERIVE, "least[p] <= length <= most[p]", "least[p] <= length < most[p]", RULES),
    ("a silence as long as the gap ends a situation", DERIVE, "span_of(time_before, now) > gap", "span_of(time_before, now) >= gap", RULES),
    ("a gap ends situations at the last event", DERIVE, "count, g, word_before, time_before + gap, row_before,", "count, g, word_before, time_before, row_before,", RULES),
    ("a gap passes one tick late", DERIVE, "span_of(last_time[g], until[g]) >= gap", "span_of(last_time[g], until[g]) > gap", RULES),
    ("one name that ends ends all", DERIVE, "ended = changed & word_before", "ended = word_before", RULES),
    ("a situation of the first event begins later", DERIVE, "if not known and k == low:", "if not known and k > low:", f"{REPLAY} {LIVE}"),
    # -- relations ----------------------------------------------------------------------------------
    ("meeting is before", JOIN, "return one << (0 if a_end < b_start else 1)", "return one << (0 if a_end <= b_start else 1)", RULES),
    ("being met is after", JOIN, "return one << (12 if b_end < a_start else 11)", "return one << (12 if b_end <= a_start else 11)", RULES),
    ("two that touch intersect", JOIN, "if a_end <= b_start:\n        return one", "if a_end < b_start:\n        return one", RULES),
    ("two that begin together overlap", JOIN, "if a_start == b_start:\n        shift = 5", "if a_start == b_start:\n        shift = 2", RULES),
    ("the later one contains", JOIN, "elif a_start > b_start:\n        shift = 8", "elif a_start > b_start:\n        shift = 2", RULES),
    ("equal ends are overlaps", JOIN, "return one << (shift + 1 if a_end == b_end else shift + 2)", "return one << (shift if a_end == b_end else shift + 2)", RULES),
    ("of two that last the first one is taken to end", JOIN, "return _GROUP_SAME if a_start == b_start else _GROUP_RIGHT", "return _GROUP_SAME if a_start == b_start else _GROUP_LEFT", RULES),
    # -- when a match is known ------------------------------------------------------------------------
    ("a part of a prefix group is enough", JOIN, "return later if group & ~allowed == 0 else sooner", "return later if group & allowed else sooner", RULES),
    ("a pair that is apart waits for its ends", JOIN, "if sooner <= later:\n        return later", "if sooner <= later:\n        return max(a_end, b_end)", RULES),
    ("an upper bound of a duration is not waited for", JOIN, "return end if bounded else start + least", "return start + least", RULES),
    ("a least duration is not waited for", JOIN, "return end if bounded else start + least", "return end if bounded else start", RULES),
    ("a match is told twice at one instant", JOIN, "if p < trigger and (at == instant or", "if p < trigger and (at < instant - 99 or", RULES),
    ("the window is exclusive", JOIN, "if start[first] < oldest:", "if start[first] <= oldest:", RULES),
    ("a window's first situation is left out", JOIN, "low = _first_at_least(start, low, high, oldest)", "low = _first_at_least(start, low, high, oldest + 1)", RULES),
    ("situations are forgotten one tick early", "query/situations/matching.py", "limit[i] = max(INT64_MIN, instant - int(self.reach[i]))", "limit[i] = max(INT64_MIN, instant - int(self.reach[i])) + 1", RULES),
    ("rows come by their starts", "query/situations/results.py", "return np.asarray(np.lexsort([*by, found.instant]), np.int64)", "return np.asarray(np.lexsort([*by]), np.int64)", RULES),
    ("partitions come in the order of their first events", "query/situations/results.py", "by.append(keys.ranks(groups)[place])", "by.append(groups[place])", RULES),
    ("aggregates go beyond the instant", "query/situations/results.py", "if sequence[middle] <= last[i] and time[middle] <= instant[i]:", "if sequence[middle] <= last[i]:", RULES),
    ("what lasts is no partner", JOIN, "found = bits & allowed[p, q] != 0", "found = False", RULES),
    ("a partner is looked for among those before alone", JOIN, "                while low < high and not found:", "                high = min(high, first_end)\n                while low < high and not found:", RULES),
    ("a partner may not come at the end", "query/situations/matching.py", '_LATER = RELATIONS["BEFORE"] | RELATIONS["MEETS"]', '_LATER = RELATIONS["BEFORE"]', RULES),
    ("those without partners leave their places behind", "query/situations/matching.py", "np.concatenate([[0], np.cumsum(~lonely)])[offsets]", "offsets", RULES),
    # -- history ----------------------------------------------------------------------------------------
    ("a run cut by its interval is believed", "query/situations/certifying.py", "return not word >> name & 1 or", "return True or", REPLAY),
    ("a gap before a run is overlooked", "query/situations/certifying.py", "(gap is not None and start - tick > gap)", "(gap is not None and start - tick < 0)", REPLAY),
    ("nulls do not end situations", "query/replay/situation_outline.py", "return AnyOf((false, *nulls))", "return false", f"{REPLAY} situations/test_situations_tree.py"),
    ("ends are looked up with a gap", "query/replay/situation_outline.py", "return compiled.gap is None and not shifted and by_then", "return not shifted and by_then", REPLAY),
    ("the first row of a mixed zone goes on as the zone before", "query/replay/tree_runs.py", "if i == ranges[r, 0] or words[at] != words[at - 1]:", "if at == 0 or words[at] != words[at - 1]:", TREE),
    ("leaves of one word behind mixed ones are overlooked", "query/replay/tree_runs.py", "known[1:] &= mixed[:-1] | (words[1:] != words[:-1])", "known[1:] &= words[1:] != words[:-1]", TREE),
    ("times of matches between events are left out", "query/replay/situation_intervals.py", "high = max(high, timeline.tick(end) - 1 if end < timeline.total else span[1])", "high = max(high, timeline.tick(end - 1))", f"{REPLAY} {PARTS}"),
    ("an end that is not known yet is no null", "query/plan/situation_times.py", 'schema = StreamSchema(pa.schema(fields), "@time")', 'schema = StreamSchema(pa.schema([fields[1].with_nullable(False)]), column)', "situations/test_situations_asked.py"),
    ("a range of time is read without the reach", "query/replay/situation_ticks.py", "begin = INT64_MIN if reach is None else max(INT64_MIN, low - reach)", "begin = INT64_MIN if reach is None else low", f"{PARTS} {LIVE}"),
    ("PREV at the border of a range sees one row too few", "query/replay/situation_ticks.py", "self._keys.values(groups), self.compiled.history + 1)", "self._keys.values(groups), self.compiled.history)", f"{PARTS} {LIVE}"),
    # -- live ---------------------------------------------------------------------------------------------
    ("a late event does not reach the next row", "live/situation_form.py", "found += [(tick, added(tick, self._reach)) for tick in behind]", "found += [(tick, tick) for tick in behind[:0]]", LIVE),
    ("a late event changes nothing later", "live/situation_form.py", "found.append((first, added(last, self._reach)))", "found.append((first, last))", LIVE),
    ("a late event within a gap is nothing to the next row", "live/situation_form.py", "added(added(last, compiled.gap), self._reach)", "added(last, 0)", LIVE),
    ("kept situations outlive a step that was interrupted", "live/situation_state.py", "and self.watermark == watermark", "and self.watermark is not None", LIVE),
    ("kept situations outlive their rows", "live/situation_state.py", "if not self.holds(snapshot, since):", "if self._rows is None:", LIVE),
]  # fmt: skip
"""Lies about situations."""

"""Mutants of what late events change, in live patterns that are searched together.

A mutant is a name, a file or folder, a text that stands there once, what takes its place, and the
tests that must notice; see :mod:`mutants`.
"""
# ruff: noqa: E501

from __future__ import annotations

__all__ = ["LIVE_MUTANTS"]

BANK = "../live/test_bank_regions.py ../live/test_late_history.py"
ROWS = "../live/test_arranged.py"
SORTED = "../live/test_postings.py"
VIEWS = "../live/test_live_views.py"

LIVE_MUTANTS = [
    # -- groups -----------------------------------------------------------------------------------
    ("an update is no late event of a group", "live/pattern_group.py", "if spans and self.sources.deleted(source, self.mark):", "if False:", "../live/test_late_history.py::test_events_that_are_other_ones_at_their_times_change_what_was_said"),
    # -- events by partition ----------------------------------------------------------------------
    ("a late event comes before those of its tick", "live/bank", "rows[base + old, 0] > tick[new]:", "rows[base + old, 0] >= tick[new]:", ROWS),
    ("those with room lose it when everything moves", "live/bank", "room[groups] = 2 * wanted", "room[groups] = 2 * room[groups]", ROWS),
    ("what is forgotten keeps its numbers", "live/bank", "self._block[:, 1] = np.searchsorted(kept, self._block[:, 1])", "kept.sort()", ROWS),
    ("a rank counts from the first row that is read", "live/bank", "among[k] = place - since", "among[k] = place - max(since, begin[i])", ROWS),
    # -- neighbourhoods ---------------------------------------------------------------------------
    ("a run of hits is cut at the late event", "live/bank", "at = run if newest >= 0 and newest == late[p] - 1 else late[p]", "at = late[p]", BANK),
    ("searches meet again without a bare row", "live/bank", "behind < size[p] - 1 - last_late[p]", "behind <= size[p] - 1 - last_late[p]", BANK),
    ("a hit before a late event is left out", "live/bank", "hits = layer.hits(batch, self.every, self.new, room, near_first)", "hits = layer.hits(batch, self.every, self.new, room)", BANK),
    ("patterns that pass over events have bare rows", "live/bank", "cut[count] = at if at > 0 and not passes[q] else NONE", "cut[count] = at if at > 0 else NONE", BANK),
    ("the first row read is the first there is", "live/bank", "(near.begin == 0) & (events.first <= first)", "near.begin == 0", BANK),
    ("neighbourhoods that were joined are not searched again", "live/bank", "self.done[order[fresh]] & alone", "self.done[order[fresh]]", BANK),
    ("what was found in a neighbourhood outlives it", "live/bank", "mine = some & counts[one.parts.partition]", "mine = some", BANK),
    ("open matches are not put right", "live/bank", "kept = kept_where(layer.kept, ~ends[layer.kept.partition])", "kept = layer.kept", BANK),
    ("late events do not count", "live/bank", "shift[number[touched]] = more", "shift[number[touched]] = 0", BANK),
    ("a match with a late event is the one before", "live/bank", "fresh = holds | ~said[theirs]", "fresh = ~said[theirs]", BANK),
    # -- many events at once ----------------------------------------------------------------------
    ("a hit has others beside it on one side only", "live/bank", "near = marks[k - np.uint64(1)] | marks[k + np.uint64(1)]", "near = marks[k - np.uint64(1)]", SORTED),
    ("nothing is beside the last event of a batch", "live/bank", "marks[1:-1][edges] = EDGE", "marks[1:-1][edges] = 0", SORTED),
    ("the greatest value of a range is none of it", "live/bank", 'np.searchsorted(keys, high, side="right")', 'np.searchsorted(keys, high, side="left")', SORTED),
    ("a pattern that left is searched", "live/bank", "if not alive.all():", "if not alive.size:", SORTED),
    ("what is left to test is not tested", "live/bank", "if holds_all(tests, symbol[i], order[k - np.uint32(1)], keys, valid):", "if k > 0:", SORTED),
    ("marks stay behind when there is no room", "live/bank", "held[np.uint64(found[i])] = 0", "held[np.uint64(found[i])] |= 0", SORTED),
    # -- what is kept -----------------------------------------------------------------------------
    ("what is kept does not go on", "live", "held.append(events.select(held.schema.names), upto)", "held.last = upto", BANK),
    ("columns that were not read are taken as kept", "live", "missing = set(columns) - set(held.schema.names)", "missing = set(columns) - set(columns)", BANK),
    # -- views ------------------------------------------------------------------------------------
    ("a live query follows the view of now", "live/engine.py", "text, views = definition.sql, kept(definition.views)", "text, views = definition.sql, self._engine().catalog.views()", VIEWS),
    ("a view's condition is asked behind LEFT JOIN", "live/viewed.py", "if join is None or not join.side:", "if True:", VIEWS),
    ("a computed column of no event is computed of nulls", "live/join_columns.py", "if any(side is each for each in optional):", "if False:", VIEWS),
    ("a query's condition is asked behind LEFT JOIN", "live/join_columns.py", "if isinstance(holder, exp.Join) and holder.side:", "if False:", VIEWS),
    ("a column that the view does not give is found in its stream", "live/join_columns.py", "if any(parts[0].name.lower() in _hidden(side) for side in sides):", "if False:", VIEWS),
    ("a recency join takes any column of a view for the time", "query/binding/recent_binding.py", "            and _same(node.name, time)\n", "", "../test_views.py"),
    ("a view's condition is left out", "live/viewed.py", "condition = None if where is None else where.this", "condition = None", VIEWS),
]  # fmt: skip

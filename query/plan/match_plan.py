"""Plan of a row pattern: parameter values, and the parts of the input that can contain matches."""

from __future__ import annotations

from ..binding.match_binding import BoundMatch
from ..replay.filtering import local_stream, plan_subquery, restricted
from ..replay.planning import cached_plan, plan_match
from .nodes import Match
from .planner import Planning


def plan_recognition(bound: BoundMatch, planning: Planning) -> Match:
    catalog, folder, check = planning.catalog, planning.folder, planning.control.check
    compiled = bound.compiled_with(folder)
    if bound.stream is not None and planning.part is not None:
        return Match(
            compiled, bound.stream, part=planning.part(planning.snapshot(bound.stream), compiled)
        )
    if bound.stream is not None:
        plan = cached_plan if compiled is bound.compiled else plan_match
        replay = plan(
            planning.snapshot(bound.stream), compiled, catalog.indexes_of(bound.stream),
            bound.strategy, folder=folder, check=check,
        )  # fmt: skip
        return Match(compiled, bound.stream, replay=replay)
    under = local_stream(bound.query, catalog.streams())
    if under is None:
        return Match(compiled, None, planning.query(bound.query))
    snapshot = planning.snapshot(under)
    replay = plan_subquery(
        snapshot, compiled, bound.query, catalog.indexes_of(under), bound.strategy, folder,
        check,
    )  # fmt: skip
    query = bound.query
    if replay.spans is not None:
        query = restricted(query, replay, snapshot.schema)
    return Match(compiled, None, planning.query(query), replay)

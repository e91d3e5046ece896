"""Window functions in FROM: bound to their stream, taking over grouping or conditions.

Conditions apply before windows are formed, so count windows, sessions and the origin ``'first'``
see only events that satisfy them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ...schema import StreamSchema
from ..sql.dialect import error_at, position_of
from ..windows.aggregation import result_schema, window_fields
from ..windows.fields import FieldPlan
from ..windows.spec import CountWindows, SessionWindows, Windows
from .from_operator import OperatorSite
from .window_call import WindowCall
from .window_fusion import Fused, fuse, move_conditions
from .window_keys import session_keys
from .window_select import WindowSelect

__all__ = ["BoundWindows", "bind_windows"]


@dataclass(frozen=True)
class BoundWindows:
    """``fused`` None delivers events; ``conditions`` must hold for events."""

    call: WindowCall
    fused: Fused | None
    conditions: tuple[Any, ...]
    strategy: str
    schema: pa.Schema
    rollup: str = "auto"

    @property
    def event_schema(self) -> StreamSchema:
        return self.call.schema if self.fused is None else self.fused.schema

    @property
    def ordered_by(self) -> Sequence[str]:
        if self.fused is None or (self.call.name == "session" and self.fused.keys):
            return ()
        return ("window_id",) if self.call.counts else ("window_start", "window_end")

    @property
    def streams(self) -> Sequence[str]:
        return (self.call.stream,)


def bind_windows(site: OperatorSite) -> BoundWindows:
    """Check the call, and rewrite the SELECT if the operator can aggregate."""
    call = WindowCall.read(site)
    windowed = WindowSelect(call, site.select, (site.item.alias or call.name).lower())
    fused = fuse(windowed) if isinstance(site.select, exp.Select) else None
    if call.fill is not None and fused is None:
        what = (
            "gaps are filled where a SELECT groups by its windows and keys, and aggregates by "
            "count, sum, min, max, avg, first, last, any_value, deviations or variances"
        )
        raise error_at(site.text, position_of(call.fill), what)
    conditions = fused.conditions if fused else []
    if fused is None and isinstance(site.select, exp.Select):
        if call.name == "session" and not call.keys:
            call = replace(call, keys=session_keys(windowed))
        conditions = move_conditions(windowed)
    for condition in conditions:
        site.settle(condition, call.schema.arrow)
    kind: Windows = CountWindows(1, 1) if call.counts else SessionWindows(1)
    if fused is None:
        schema = pa.schema([*call.schema.arrow, *window_fields(call.schema, kind)])
    else:
        schema = result_schema(FieldPlan(fused.schema, fused.aggregates), kind, fused.keys)
    return BoundWindows(call, fused, tuple(conditions), site.strategy, schema, site.rollup)

"""UNION ALL of live classes into one sink; identities include the number of the SELECT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from ..core.identity import digests, seed_of
from ..store.tap import Spans, united
from .changes import Results
from .combined import Combined, Moment

__all__ = ["UnionForm"]


class UnionForm(Combined):
    kind = "union"

    def __init__(self, parts: Sequence[Combined], columns: tuple[str, ...]) -> None:
        self.parts = tuple(parts)
        self.columns = columns
        self.streams = tuple(dict.fromkeys(name for part in parts for name in part.streams))
        self.appends = all(part.appends and part.closed(0) == 0 for part in parts)
        self.emits_changes = all(part.emits_changes for part in parts)
        self.incremental = any(part.incremental for part in parts)
        self.rebuilds = all(part.rebuilds or not part.incremental for part in parts)
        self.in_order = all(part.in_order for part in parts)

    def results(self, moment: Moment, low: int, high: int, known: int) -> Results:
        return self._joined([part.results(moment, low, high, known) for part in self.parts])

    def advanced(self, moment: Moment, since: int, known: int) -> Results | None:
        found = []
        for part in self.parts:
            new = part.advanced(moment, since, known) if part.incremental else None
            if new is None and part.appends:
                begin = part.begin(moment, since)
                new = part.results(moment, begin, part.closed(known), known)
            if new is None:
                self.drop_state()
                return None
            found.append(new)
        return self._joined(found)

    def _joined(self, found: Sequence[Results]) -> Results:
        tables = [each.columns.rename_columns(list(self.columns)) for each in found]
        names = [
            digests(seed_of(f"union {number}"), [each.id]) for number, each in enumerate(found)
        ]
        times = np.concatenate([each.time for each in found])
        order = np.argsort(times, kind="stable")
        taken = pa.array(order)
        whole = pa.concat_tables(tables).take(taken)
        return Results(times[order], pa.concat_arrays(names).take(taken), whole)

    @property
    def state_bytes(self) -> int:
        return sum(part.state_bytes for part in self.parts)

    def drop_state(self) -> None:
        for part in self.parts:
            part.drop_state()

    def closed(self, watermark: int) -> int:
        return max(part.closed(watermark) for part in self.parts)

    def begin(self, moment: Moment, watermark: int) -> int:
        return min(part.begin(moment, watermark) for part in self.parts)

    def changed(self, moment: Moment, late: Mapping[str, Spans], watermark: int) -> Spans:
        return united(
            tuple(span for part in self.parts for span in part.changed(moment, late, watermark))
        )

    def explain(self) -> list[tuple[str, str]]:
        told = [("class", f"{self.kind} of {len(self.parts)}")]
        for number, part in enumerate(self.parts, 1):
            told += [(f"{number}. {name}", value) for name, value in part.explain()]
        return told

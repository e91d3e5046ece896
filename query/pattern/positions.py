"""Exports the state of a stream that re-reading a bounded part of the input does not restore.
Events are identified by tick and rank, so late events before them do not invalidate an export.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from .attempts import OpenAttempts
from .kept_input import KeptInput
from .kept_rows import COVERED, EVENT, MARKS, RANK, TAKEN, TIME

__all__ = ["Positions", "export_positions", "restore_positions"]


@dataclass(frozen=True)
class Positions:
    """State of a stream.
    ``positions``: PARTITION BY columns; ``@tick`` and ``@rank`` of the first event at which a match
    may begin; ``@number`` of matches; ``@seen``: there were events.  ``rows``: events still needed.
    """

    positions: pa.Table
    rows: pa.Table


def export_positions(
    kept_input: KeptInput, attempts: OpenAttempts, since: int, watermark: int, forgets: bool
) -> Positions:
    """State for a restart besides the events from ``since`` on; see ``AdvancingMatch.export``."""
    kept, cells = kept_input.rows, kept_input.rows.cells
    low = kept.position.copy()
    np.minimum.at(low, attempts.group, attempts.start)
    there = low < kept.end
    tick, rank = kept.tick.copy(), kept.rank + 1
    open_ = kept.place(np.flatnonzero(there), low[there])
    tick[there], rank[there] = cells[TIME][open_], cells[RANK][open_]
    named = (kept.end > kept.first) | (kept.tick >= min(since, watermark)) | (not forgets)
    columns: dict[str, Any] = {n: kept_input.keys.column(n) for n in kept_input.partition_by}
    columns |= {
        "@tick": tick, "@rank": rank, "@number": kept.number,
        "@seen": kept.seen | (kept.first > 0),
    }  # fmt: skip
    positions = pa.table(columns).filter(pa.array(named))
    chosen = kept.all_columns()
    chosen = chosen[cells[TIME][chosen] < since]
    chosen = chosen[np.argsort(cells[EVENT][chosen])]
    rows = kept_input.events.table(kept_input.inputs, cells[EVENT][chosen])
    rows = rows.append_column("@rank", pa.array(cells[RANK][chosen]))
    marks = cells[MARKS][chosen] & (COVERED | TAKEN)
    return Positions(positions, rows.append_column("@marks", pa.array(marks)))


def restore_positions(kept_input: KeptInput, given: Positions) -> None:
    kept, positions = kept_input.rows, given.positions
    groups = kept_input.partitions_of(positions)
    found = {n: positions.column(n).to_numpy() for n in ("@tick", "@rank", "@number")}
    kept_input.bound(groups, found["@tick"], found["@rank"])
    kept.number[groups] = found["@number"]
    kept.seen[groups] = positions.column("@seen").to_numpy()
    before = kept_input.next_number
    kept_input.append(
        given.rows.select(kept_input.inputs).cast(kept_input.schema),
        given.rows.column("@rank").to_numpy(),
    )
    columns = kept.all_columns()
    columns = columns[kept.cells[EVENT][columns] >= before]
    columns = columns[np.argsort(kept.cells[EVENT][columns])]
    marks = given.rows.column("@marks").to_numpy()
    if marks.any():  # then every given row is stored
        kept.cells[MARKS][columns] |= marks

"""Where the searches of a stream stand, as plain Arrow: what a restart cannot read from the input.

Purpose
    Rows, bits and open attempts come back by reading a bounded piece of the input again.  Where a
    search stands does not, for that depends on all matches before; nor do numbers of matches, nor
    the rows that PREV reads far back.

Guarantee
    An event is meant by tick and rank (:mod:`.decided`), so positions hold whatever late events
    were woven in before them.
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
    """What no bounded piece of the input tells about a stream: plain Arrow, for a restart.

    Attributes
    ----------
    positions : pyarrow.Table
        Columns of PARTITION BY; ``@tick`` and ``@rank`` of the first event with which a match may
        begin; ``@number`` of matches so far; ``@seen``: whether there were events before.
    rows : pyarrow.Table
        Events that are still needed, as the clause reads them, with ``@rank`` and ``@marks``.
    """

    positions: pa.Table
    rows: pa.Table


def export_positions(
    kept_input: KeptInput, attempts: OpenAttempts, since: int, watermark: int, forgets: bool
) -> Positions:
    """What a restart needs beside the events from ``since`` on; see ``AdvancingMatch.export``."""
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
    """Take what :func:`export_positions` gave."""
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
    if marks.any():  # then every row that is given is kept
        kept.cells[MARKS][columns] |= marks

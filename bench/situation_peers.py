"""Peers of situations: ISEQ, gaps and islands in DuckDB, and Flink SQL; match counts must agree.

``iseq`` reimplements ISEQ (Li et al. 2011, not public) from the TPStream papers.  Its input are
situations in order of their ends; each possible last one searches the other buffers.  Relations
bound the ends by binary search, and all candidates between are examined, since starts are
unordered.

In SQL a situation is an island of rows and matches are joins.  In Flink it is a pattern with the
preceding row, as in the papers (else each row would begin one).  SQL covers only the simplified
aggressive drivers, A MEETS B AND B OVERLAPS C.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import time

import duckdb
import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..query.situations.compiled import CompiledSituations
from ..query.situations.deriving import GROUP, NAME, START, UNTIL, Deriver
from ..query.situations.matching import SIZE_FIRST, join_orders
from ..query.situations.network import FAR
from .flink import FlinkJob, measure

kernel = numba.njit(nogil=True, error_model="numpy")

Limits = tuple[float, float, float]
_BEFORE, _MEETS, _AFTER = 1 << 0, 1 << 1, 1 << 12
_WITH_END = 1 << 3 | 1 << 6 | 1 << 9
_WITHIN = 1 << 2 | 1 << 5 | 1 << 8
_BEYOND = 1 << 4 | 1 << 7 | 1 << 10 | 1 << 11 | _AFTER
BATCH_ROWS = 1 << 17


@kernel
def _place(values, low, high, wanted):
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def _relation(a, b, c, d):
    """Bit of the relation between two intervals."""
    if b < c or d < a:
        return _BEFORE if b < c else _AFTER
    if b == c or d == a:
        return _MEETS if b == c else 1 << 11
    shift = 5 if a == c else (2 if a < c else 8)
    return 1 << (shift + (0 if b < d else (1 if b == d else 2)))


@kernel
def _search(name, group, start, end, orders, allowed, window, starts, ends):
    """Matches of situations in order of ends, by partition: starts and ends."""
    count, total = allowed.shape[0], 0
    out = np.empty((1024, count, 2), np.int64)
    arrived = np.zeros(count, np.int64)
    oldest = np.zeros(count, np.int64)
    chosen = np.empty((count, 2), np.int64)
    place = np.empty(count, np.int64)
    until = np.empty(count, np.int64)
    for k in range(name.shape[0]):
        if k and group[k] != group[k - 1]:
            arrived[:] = 0
            oldest[:] = 0
        last, now = name[k], end[k]
        starts[last, arrived[last]] = start[k]
        ends[last, arrived[last]] = now
        arrived[last] += 1
        if now - start[k] > window:
            continue
        chosen[last, 0] = start[k]
        chosen[last, 1] = now
        step = 0
        while True:
            if step == count - 1:
                if total == out.shape[0]:
                    out = np.concatenate((out, np.empty_like(out)))
                out[total] = chosen
                total += 1
            else:  # bounds of the next name's ends
                step += 1
                p = orders[last, step]
                while oldest[p] < arrived[p] and ends[p, oldest[p]] < now - window:
                    oldest[p] += 1
                low, high = oldest[p], arrived[p]
                for i in range(step):
                    q = orders[last, i]
                    mask, a, b = allowed[p, q], chosen[q, 0], chosen[q, 1]
                    if mask & _BEFORE == 0:
                        least = a if mask & _MEETS else (a + 1 if mask & _WITHIN else b)
                        if mask & (_MEETS | _WITHIN | _WITH_END) == 0:
                            least = b + 1
                        low = _place(ends[p], low, high, least)
                    if mask & _BEYOND == 0:
                        most = b if mask & _WITH_END else (b - 1 if mask & _WITHIN else a)
                        if mask & (_MEETS | _WITHIN | _WITH_END) == 0:
                            most = a - 1
                        high = _place(ends[p], low, high, most + 1)
                place[step] = low
                until[step] = high
            while step:  # find the next matching candidate
                p = orders[last, step]
                found = False
                while place[step] < until[step] and not found:
                    a, b = starts[p, place[step]], ends[p, place[step]]
                    place[step] += 1
                    found = now - a <= window
                    for i in range(step):
                        q = orders[last, i]
                        if found and not (
                            _relation(a, b, chosen[q, 0], chosen[q, 1]) & allowed[p, q]
                        ):
                            found = False
                if found:
                    chosen[p, 0] = a
                    chosen[p, 1] = b
                    break
                step -= 1
            if step == 0:
                break
    return out[:total]


def iseq(clause: CompiledSituations, table: pa.Table) -> tuple[int, float]:
    """Matches on completion, and CPU seconds including derivation."""
    window = clause.durations.window
    allowed = np.array(clause.allowed, np.int64)
    orders = join_orders(clause.implied, (SIZE_FIRST,) * len(clause.names))
    begun = time.process_time()
    deriver = Deriver(clause)
    parts = [
        deriver.take(pa.Table.from_batches([batch]), 0).ended
        for batch in table.to_batches(max_chunksize=BATCH_ROWS)
    ]
    runs = np.concatenate(parts)
    order = np.lexsort((runs[:, NAME], runs[:, UNTIL], runs[:, GROUP]))
    columns = [np.ascontiguousarray(runs[order, i]) for i in (NAME, GROUP, START, UNTIL)]
    room = np.empty((len(clause.names), len(runs) + 1), np.int64)
    limit = np.int64(2**62 if window >= FAR else window)
    columns[-1] += 1  # ISEQ's situations end at the first tick after them
    found = _search(*columns, orders, allowed, limit, room, np.empty_like(room))
    return len(found), time.process_time() - begun


# --------------------------------------------------------------------- in SQL

ISLANDS = """
    {0} AS (SELECT car, min(t) AS s, max(e) AS e FROM (
        SELECT *, sum(begins) OVER (PARTITION BY car ORDER BY t) AS run FROM (
            SELECT car, t, c, lead(t) OVER w AS e,
                CASE WHEN c AND NOT coalesce(lag(c) OVER w, false) THEN 1 ELSE 0 END AS begins
            FROM (SELECT car, t, {1} AS c FROM cars) WINDOW w AS (PARTITION BY car ORDER BY t)))
        WHERE c GROUP BY car, run HAVING count(e) = count(*))"""


def _conditions(limits: Limits) -> dict[str, str]:
    low, high, brake = limits
    return {"a": f"accel > {low}", "b": f"speed > {high}", "c": f"accel < {brake}"}


def islands(table: pa.Table, limits: Limits) -> tuple[int, float]:
    connection = duckdb.connect(config={"threads": 1})
    connection.register("cars", table)
    names = ", ".join(ISLANDS.format(name, text) for name, text in _conditions(limits).items())
    text = f"""WITH {names} SELECT count(*) FROM a JOIN b ON a.car = b.car AND a.e = b.s
        JOIN c ON b.car = c.car AND b.s < c.s AND c.s < b.e AND b.e < c.e
        WHERE c.e - a.s <= 300"""
    begun = time.process_time()
    rows = connection.execute(text).fetchall()[0][0]
    return int(rows), time.process_time() - begun


SITUATION = """SELECT car, s, e, rt FROM s MATCH_RECOGNIZE (PARTITION BY car ORDER BY t
    MEASURES FIRST(S.t) AS s, E.t AS e, MATCH_ROWTIME() AS rt ONE ROW PER MATCH
    AFTER MATCH SKIP TO LAST E PATTERN (N S+ E)
    DEFINE N AS NOT N.{0}, S AS S.{0}, E AS NOT E.{0})"""
SPAN = "INTERVAL '5' MINUTE"


def flink_drivers(table: pa.Table, limits: Limits, runs: int) -> tuple[int, float, float, str]:
    """The simplified drivers by Flink: rows, seconds, seconds of reading, and version."""
    a, b, c = (SITUATION.format(text) for text in _conditions(limits).values())
    query = f"""SELECT a.car, a.s, c.e FROM ({a}) AS a JOIN ({b}) AS b
        ON a.car = b.car AND a.e = b.s AND b.rt BETWEEN a.rt AND a.rt + {SPAN}
        JOIN ({c}) AS c ON b.car = c.car AND c.rt BETWEEN b.rt AND b.rt + {SPAN}
        AND b.s < c.s AND c.s < b.e AND b.e < c.e
        WHERE c.e <= a.s + {SPAN}"""
    reading = FlinkJob("read", "")
    drivers = FlinkJob("drivers", "", "car BIGINT, s TIMESTAMP(3), e TIMESTAMP(3)", query=query)
    apart = pc.add(pc.multiply(table["t"], 1000), table["car"])  # Flink's watermark allows no ties
    answers = measure(table.set_column(0, "t", apart), [reading, drivers], runs)
    found = answers[drivers]
    assert found.rows is not None
    return found.rows.num_rows, found.seconds, answers[reading].seconds, found.version

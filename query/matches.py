"""The matches of a statement's row pattern, and the pairs of its recency join, as plain data.

Everything is queried in SQL, so it works for a database, a server request or a client.  The rest of
the statement is ignored.  Without a match, each condition shows how many events satisfy it alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ..core.sql_text import quoted_name
from ..errors import SqlError
from .binding.recent_binding import recent_outline
from .contract.result import Result, tuples
from .sql.match_outline import MatchOutline, match_outline
from .sql.parameters import names_in

EVENTS_MAX = 50_000
CONDITIONS_MAX = 12
_ENDS = ("from", "to")

Run = Callable[[str, Mapping[str, Any] | None], Result]
"""Runs a query, with values for all of its parameters."""

FindStream = Callable[[str], tuple[str, str] | None]
"""Stream and time attribute of a name in a statement; None for other relations."""


def outlined(
    run: Run, sql: str, params: Mapping[str, Any] | None, limit: int, find: FindStream
) -> dict[str, Any]:
    """Where each variable of a pattern matched, one entry per match; raises SqlError."""
    outline = match_outline(sql)
    stream, time = (outline.stream and find(outline.stream)) or (None, None)
    time = outline.time or time
    if time is None:
        raise SqlError("give the clause an ORDER BY: matches are drawn over its first column", 1, 1)
    table, truncated = _first_rows(run, outline.rows(time), params, limit)
    answer: dict[str, Any] = {
        "time": time,
        "stream": stream,
        "partition": list(outline.partition),
        "variables": list(outline.variables),
        "matches": [_match(outline, row) for row in _rows(table)],
        "truncated": truncated,
    }
    if not answer["matches"]:
        answer["conditions"] = [
            _hits(run, outline, params, variable, condition)
            for variable, condition in outline.definitions[:CONDITIONS_MAX]
        ]
    return answer


def _first_rows(
    run: Run, text: str, params: Mapping[str, Any] | None, limit: int
) -> tuple[pa.Table, bool]:
    """The first rows of a query, and whether there are more."""
    named = names_in(text)
    given = {name: value for name, value in (params or {}).items() if name in named}
    taken: list[pa.RecordBatch] = []
    count = 0
    with run(text, given or None) as result:
        for batch in result.batches():
            taken.append(batch)
            count += batch.num_rows
            if count > limit:
                break
        return pa.Table.from_batches(taken, result.schema).slice(0, limit), count > limit


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    return [dict(zip(table.column_names, row, strict=True)) for row in tuples(table)]


def _match(outline: MatchOutline, row: dict[str, Any]) -> dict[str, Any]:
    met = {
        name: {
            "first": row[f"_first_{place}"],
            "last": row[f"_last_{place}"],
            "count": row[f"_count_{place}"],
        }
        for place, name in enumerate(outline.variables)
        if row[f"_count_{place}"]
    }
    return {
        "number": row["_match"],
        "partition": [row[name] for name in outline.partition],
        "first": row["_first"],
        "last": row["_last"],
        "events": row["_events"],
        "variables": met,
    }


def _hits(
    run: Run,
    outline: MatchOutline,
    params: Mapping[str, Any] | None,
    variable: str,
    condition: str,
) -> dict[str, Any]:
    """How many events satisfy a condition alone; None if it concerns several."""
    try:
        table, _ = _first_rows(run, outline.hits(condition), params, 1)
    except SqlError:
        return {"variable": variable, "hits": None, "reason": "it looks at several events"}
    return {"variable": variable, "hits": table.column(0)[0].as_py()}


def events_of(
    run: Run, sql: str, params: Mapping[str, Any] | None, number: int, partition: Sequence[Any]
) -> dict[str, Any]:
    """The events of match ``number`` of a partition, given by its key values; raises SqlError."""
    outline = match_outline(sql)
    if len(partition) != len(outline.partition):
        raise SqlError(
            "mode events asks for one match: its number, and a value for each column of "
            f"PARTITION BY ({len(outline.partition)})",
            1,
            1,
        )
    text = f"SELECT * FROM ({outline.events()}) AS _events WHERE _match = $_number"
    given = {**(params or {}), "_number": number}
    for place, name in enumerate(outline.partition):
        key = f"CAST({quoted_name(name)} AS varchar)"
        text += f" AND {key} IS NOT DISTINCT FROM CAST($_key{place} AS varchar)"
        given[f"_key{place}"] = partition[place]
    table, truncated = _first_rows(run, text, given, EVENTS_MAX)
    return {
        "columns": table.column_names,
        "rows": [list(row) for row in tuples(table)],
        "truncated": truncated,
    }


def pairs_of(run: Run, sql: str, params: Mapping[str, Any] | None, limit: int) -> dict[str, Any]:
    """Keys of each pair, and start and end of each side's row; raises SqlError."""
    outline = recent_outline(sql)
    table, truncated = _first_rows(run, outline.text, params, limit)
    pairs = []
    for row in _rows(table):
        times = [
            None if row[f"_from_{i}"] is None else [row[f"_{at}_{i}"] for at in _ENDS]
            for i in range(len(outline.sides))
        ]
        pairs.append({"key": [row[f"_key_{i}"] for i in range(len(outline.keys))], "times": times})
    return {
        "sides": list(outline.sides),
        "keys": list(outline.keys),
        "pairs": pairs,
        "truncated": truncated,
    }

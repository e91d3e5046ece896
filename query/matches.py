"""The matches of a statement's row pattern, and the pairs of its recency join, as plain data.

Purpose
    To be drawn, listed or told: :func:`outlined` says of each match where each variable was met,
    :func:`events_of` gives the events of one, :func:`pairs_of` the times of joined rows.  All ask
    in SQL (:mod:`.sql.match_outline`, :mod:`.binding.recent_outline`), so they work over whatever
    runs statements: a database, a server under the rights of a request, a client.

Guarantee
    The matches are those of the statement's MATCH_RECOGNIZE, the pairs those of its outermost
    RECENT JOIN.  In outline there is one entry a match, whatever a star takes; where there is none,
    each condition says how many events satisfy it by themselves.

Limits
    What stands around the clause or the join is left out.  :data:`EVENTS_MAX` events of a match are
    given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ..errors import SqlError
from .binding.recent_outline import recent_outline
from .sql.match_outline import MatchOutline, match_outline

__all__ = ["Ask", "FindStream", "events_of", "outlined", "pairs_of"]

EVENTS_MAX = 50_000
CONDITIONS_MAX = 12
_ENDS = ("from", "to")

Ask = Callable[[str, Mapping[str, Any] | None, int], tuple[pa.Table, bool]]
"""The first rows of a query, at most so many, and whether there are more; parameters that it does
not name are to be left out."""

FindStream = Callable[[str], tuple[str, str] | None]
"""The stream that a statement calls by a name, and its time attribute; None where it is another
relation."""


def outlined(
    ask: Ask, sql: str, params: Mapping[str, Any] | None, limit: int, find: FindStream
) -> dict[str, Any]:
    """Where each variable of a pattern was met; values as Arrow gives them to Python.

    Raises
    ------
    SqlError
    """
    outline = match_outline(sql)
    stream, time = (outline.stream and find(outline.stream)) or (None, None)
    time = outline.time or time
    if time is None:
        raise SqlError("give the clause an ORDER BY: matches are drawn over its first column", 1, 1)
    table, truncated = ask(outline.rows(time), params, limit)
    answer: dict[str, Any] = {
        "time": time,
        "stream": stream,
        "partition": list(outline.partition),
        "variables": list(outline.variables),
        "matches": [_match(outline, row) for row in table.to_pylist()],
        "truncated": truncated,
    }
    if not answer["matches"]:
        answer["conditions"] = [
            _hits(ask, outline, params, variable, condition)
            for variable, condition in outline.definitions[:CONDITIONS_MAX]
        ]
    return answer


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
    ask: Ask,
    outline: MatchOutline,
    params: Mapping[str, Any] | None,
    variable: str,
    condition: str,
) -> dict[str, Any]:
    """How many events satisfy a condition by themselves; None where it speaks of several."""
    try:
        table, _ = ask(outline.hits(condition), params, 1)
    except SqlError:
        return {"variable": variable, "hits": None, "reason": "it looks at several events"}
    return {"variable": variable, "hits": table.column(0)[0].as_py()}


def events_of(
    ask: Ask, sql: str, params: Mapping[str, Any] | None, number: int, partition: Sequence[Any]
) -> dict[str, Any]:
    """The events of one match, each with its variable.

    Parameters
    ----------
    number : int
        Of the match within its partition.
    partition : sequence
        A value for each column of PARTITION BY.

    Raises
    ------
    SqlError
    """
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
        quoted = '"' + name.replace('"', '""') + '"'
        text += f" AND CAST({quoted} AS varchar) IS NOT DISTINCT FROM CAST($_key{place} AS varchar)"
        given[f"_key{place}"] = partition[place]
    table, truncated = ask(text, given, EVENTS_MAX)
    return {
        "columns": table.column_names,
        "rows": [list(row.values()) for row in table.to_pylist()],
        "truncated": truncated,
    }


def pairs_of(ask: Ask, sql: str, params: Mapping[str, Any] | None, limit: int) -> dict[str, Any]:
    """Of each pair the keys, and of each side when its row began and ended; None without one.

    Raises
    ------
    SqlError
    """
    outline = recent_outline(sql)
    table, truncated = ask(outline.text, params, limit)
    pairs = []
    for row in table.to_pylist():
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

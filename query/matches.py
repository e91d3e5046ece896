"""The matches of a statement's row pattern, and the pairs of its recency join, as plain data.

Everything is queried in SQL, so it works for a database, a server request or a client.  The rest of
the statement is ignored.  Without a match, each condition shows how many events satisfy it alone.

The clause is rewritten to be queried again: measures are replaced, and ``{- -}`` does not hide
rows; all that decides matches is unchanged, and what surrounds the clause is dropped.  Of a group
like ``(A B)+`` an outline has only the first and last event of each variable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp
from sqlglot.tokens import TokenType

from ..core.sql_text import quoted_name
from ..errors import SqlError
from .binding.binder import conjuncts
from .binding.scope import leaves_of
from .contract.result import Result, tuples
from .sql.dialect import Chronicle, error_at, parse_statement, to_text
from .sql.match_clause import MatchClause, MatchRecognize, clause_order, match_clause
from .sql.parameters import names_in
from .sql.pattern_tree import Exclusion, variables, walk
from .sql.statement_clauses import MatchRelation, RecentRelation, SituationRelation

_BEGINS_ITEM = (TokenType.FROM, TokenType.COMMA, TokenType.JOIN)
_OPEN, _CLOSE = TokenType.L_PAREN, TokenType.R_PAREN


@dataclass(frozen=True)
class MatchOutline:
    """A clause whose matches can be queried again; ``source`` is the input's text, ``stream`` its
    name if it may be a stream, ``time`` the first column of ORDER BY.
    """

    variables: tuple[str, ...]
    partition: tuple[str, ...]
    time: str | None
    source: str
    stream: str | None
    definitions: tuple[tuple[str, Any], ...]
    _prefix: str
    _order: str
    _rest: str

    def rows(self, time: str) -> str:
        """SQL with a row per match: ``_match``, ``_first``, ``_last``, ``_events``, and
        ``_first_i``, ``_last_i`` and ``_count_i`` of variable ``i``.
        """
        at = quoted_name(time)
        measures = [
            "MATCH_NUMBER() AS _match",
            f"FIRST({at}) AS _first",
            f"LAST({at}) AS _last",
            "count(*) AS _events",
        ]
        for place, name in enumerate(self.variables):
            of = quoted_name(name)
            measures += [
                f"FIRST({of}.{at}) AS _first_{place}",
                f"LAST({of}.{at}) AS _last_{place}",
                f"count({of}.*) AS _count_{place}",
            ]
        return self._statement(measures, "ONE ROW PER MATCH")

    def events(self) -> str:
        """SQL with every event of every match, ``_match`` and ``_variable``."""
        measures = ["MATCH_NUMBER() AS _match", "CLASSIFIER() AS _variable"]
        return self._statement(measures, "ALL ROWS PER MATCH")

    def hits(self, condition: Any) -> str:
        """SQL that counts the input rows that satisfy a condition; SqlError if it is of several."""
        where = to_text(condition)
        return f"{self._prefix}SELECT count(*) FROM {self.source} AS _input WHERE {where}"

    def _statement(self, measures: list[str], rows: str) -> str:
        by = ", ".join(map(quoted_name, self.partition))
        head = (f"PARTITION BY {by} " if by else "") + self._order
        clause = f"{head}MEASURES {', '.join(measures)} {rows} {self._rest}"
        return f"{self._prefix}SELECT * FROM {self.source} MATCH_RECOGNIZE ({clause}) AS _matches"


def match_outline(text: str) -> MatchOutline:
    """Parse the first MATCH_RECOGNIZE of a statement; SqlError without one."""
    relation = next(
        (r for r in parse_statement(text).find_all(MatchRelation) if _is_match(r)), None
    )
    if relation is None:
        raise SqlError("the statement has no MATCH_RECOGNIZE: there are no matches to draw", 1, 1)
    node = relation.args["match"]
    clause = match_clause(node)
    tokens = Chronicle().tokenize(text)
    starts = {token.start: place for place, token in enumerate(tokens)}
    word = starts[int(node.meta["start"])]
    close = _closing(tokens, word + 1)
    pattern = max(
        place
        for place in range(word, close)
        if tokens[place].start < int(node.args["pattern"].meta["start"])
        and tokens[place].text.upper() == "PATTERN"
    )
    tail = pattern
    for part in ("after", "mode"):
        if node.args.get(part) is not None:
            tail = min(tail, starts[int(node.args[part].meta["start"])])
    begin = _item_begin(tokens, word)
    source = text[tokens[begin].start : tokens[word].start].strip()
    single = word - begin == 1
    return MatchOutline(
        variables=variables(clause.pattern),
        partition=clause.partition_by,
        time=_time(node, clause),
        source=source,
        stream=str(relation.this.name) if single else None,
        definitions=tuple((each.variable, each.condition) for each in clause.definitions),
        _prefix=with_of(text),
        _order=_order(clause),
        _rest=_shown(text, tokens[tail].start, tokens[close].start, clause),
    )


def _is_match(relation: Any) -> bool:
    return isinstance(relation.args["match"], MatchRecognize)


def _closing(tokens: list[Any], opening: int) -> int:
    depth = 0
    for place in range(opening, len(tokens)):
        kind = tokens[place].token_type
        depth += (kind is _OPEN) - (kind is _CLOSE)
        if depth == 0:
            return place
    raise AssertionError("a clause that was parsed is closed")


def _item_begin(tokens: list[Any], word: int) -> int:
    depth = 0
    for place in range(word - 1, -1, -1):
        kind = tokens[place].token_type
        depth += (kind is _CLOSE) - (kind is _OPEN)
        if depth < 0 or (depth == 0 and kind in _BEGINS_ITEM):
            return place + 1
    raise AssertionError("a clause that was parsed stands in FROM")


def with_of(text: str) -> str:
    tokens = Chronicle().tokenize(text)
    if tokens[0].token_type is not TokenType.WITH:
        return ""
    depth = 0
    for token in tokens:
        depth += (token.token_type is _OPEN) - (token.token_type is _CLOSE)
        if depth == 0 and token.token_type is TokenType.SELECT:
            return text[tokens[0].start : token.start]
    return ""


def _time(node: Any, clause: MatchClause) -> str | None:
    order = clause_order(node, clause.sql, clause.at)
    return order[0].column if order else None


def _order(clause: MatchClause) -> str:
    keys = [
        quoted_name(key.column)
        + (" DESC" if key.descending else "")
        + (" NULLS FIRST" if key.nulls_first else "")
        for key in clause.order_by
    ]
    return f"ORDER BY {', '.join(keys)} " if keys else ""


def _shown(text: str, start: int, end: int, clause: MatchClause) -> str:
    rest = text[start:end]
    if any(isinstance(part, Exclusion) for part in walk(clause.pattern)):
        rest = rest.replace("{-", "(").replace("-}", ")")
    return rest


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
    values = {name: value for name, value in (params or {}).items() if name in named}
    taken: list[pa.RecordBatch] = []
    count = 0
    with run(text, values or None) as result:
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
    condition: Any,
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
    values = {**(params or {}), "_number": number}
    for place, name in enumerate(outline.partition):
        key = f"CAST({quoted_name(name)} AS varchar)"
        text += f" AND {key} IS NOT DISTINCT FROM CAST($_key{place} AS varchar)"
        values[f"_key{place}"] = partition[place]
    table, truncated = _first_rows(run, text, values, EVENTS_MAX)
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


@dataclass(frozen=True)
class RecentOutline:
    """Sides (live first), keys, and SQL with ``_from_i``, ``_to_i`` and ``_key_i`` per pair."""

    sides: tuple[str, ...]
    keys: tuple[str, ...]
    text: str


def recent_outline(text: str) -> RecentOutline:
    """Parse the outermost recency join; SqlError if there is none, or it has no pairs."""
    join = parse_statement(text).find(RecentRelation)
    if join is None:
        raise SqlError("the statement has no RECENT JOIN: there are no pairs to draw", 1, 1)
    if join.args["kind"] in ("semi", "anti"):
        message = "SEMI and ANTI joins give live rows alone: there are no pairs to draw"
        raise error_at(text, join.meta["recent_at"], message)
    sides = tuple(_name_of(side) for side in leaves_of(join, text))
    keys = tuple(_key_columns(join.args.get("on"), sides[0]))
    columns = [
        f"match_{which}({quoted_name(side)}) AS _{word}_{place}"
        for place, side in enumerate(sides)
        for which, word in (("start", "from"), ("end", "to"))
    ]
    columns += [
        f"{quoted_name(sides[0])}.{quoted_name(key)} AS _key_{i}" for i, key in enumerate(keys)
    ]
    first, end = join.meta["recent_span"]
    sql = f"{with_of(text)}SELECT {', '.join(columns)} FROM {text[first:end]}"
    return RecentOutline(sides, keys, sql)


def _name_of(side: Any) -> str:
    unnamed = "match" if isinstance(side, MatchRelation | SituationRelation) else side.name
    return str(side.alias or unnamed)


def _key_columns(on: Any, live: str) -> Iterator[str]:
    names: dict[str, None] = {}
    for part in () if on is None else conjuncts(on):
        columns = (part.this, part.expression) if isinstance(part, exp.EQ) else ()
        if columns and all(isinstance(column, exp.Column) for column in columns):
            mine = [column.name for column in columns if column.table.lower() == live.lower()]
            if len(mine) == 1:
                names[mine[0]] = None
    yield from names

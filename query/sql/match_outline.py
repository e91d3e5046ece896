"""Rewrites of a MATCH_RECOGNIZE statement for drawing: outlines of matches, and their events.

Measures are replaced, and ``{- -}`` does not hide rows; all that decides matches is unchanged, and
what surrounds the clause is dropped.  Of a group like ``(A B)+`` an outline has only the first and
last event of each variable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlglot.tokens import TokenType

from ...core.sql_text import quoted_name
from ...errors import SqlError
from .dialect import Chronicle, error_at, parse_statement
from .match_clause import MatchClause, MatchRecognize, clause_order, match_clause
from .pattern_tree import Exclusion, variables, walk
from .statement_nodes import MatchRelation

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
    definitions: tuple[tuple[str, str], ...]
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
        return self._asked(measures, "ONE ROW PER MATCH")

    def events(self) -> str:
        """SQL with every event of every match, ``_match`` and ``_variable``."""
        measures = ["MATCH_NUMBER() AS _match", "CLASSIFIER() AS _variable"]
        return self._asked(measures, "ALL ROWS PER MATCH")

    def hits(self, condition: str) -> str:
        """SQL that counts the input rows that satisfy a condition."""
        return f"{self._prefix}SELECT count(*) FROM {self.source} AS _input WHERE {condition}"

    def _asked(self, measures: list[str], rows: str) -> str:
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
        definitions=_definitions(text, tokens, word, close, clause),
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


def _definitions(
    text: str, tokens: list[Any], word: int, close: int, clause: MatchClause
) -> tuple[tuple[str, str], ...]:
    found = []
    places = {token.start: place for place, token in enumerate(tokens)}
    for definition in clause.definitions:
        name = places.get(definition.at)
        if name is None:
            raise error_at(text, clause.at, "this clause cannot be read for drawing")
        depth, end = 0, close
        for place in range(name, close):
            kind = tokens[place].token_type
            depth += (kind is _OPEN) - (kind is _CLOSE)
            if depth == 0 and kind is TokenType.COMMA:
                end = place
                break
        found.append(
            (definition.variable, text[tokens[name + 2].start : tokens[end].start].strip())
        )
    return tuple(found)

"""Two other texts of a statement with MATCH_RECOGNIZE: its matches in outline, and event by event.

Purpose
    To draw matches one needs to know where each variable of the pattern was met, whatever the
    statement's measures are.  :func:`match_outline` reads the first clause of a statement and
    writes it again over the same input: ONE ROW PER MATCH with first time, last time and number
    of events of each variable, or ALL ROWS PER MATCH with every event's variable.

Guarantee
    Which matches there are does not change: input, PARTITION BY, ORDER BY, AFTER MATCH, PATTERN,
    WITHIN, EVENT SELECTION, SUBSET and DEFINE are those of the text.  The outline has a row a
    match, however many events a star takes.  ``{- -}`` only hides rows, and does not hide them
    here.

Limits
    What stands around the clause (WHERE, joins, another query over its result) is left out.  In a
    group like ``(A B)+`` the outline knows of each variable its first and last event only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlglot.tokens import TokenType

from ...errors import SqlError
from .dialect import Chronicle, error_at, parse_statement
from .match_clause import MatchClause, MatchRecognize, clause_order, match_clause
from .pattern_tree import Exclusion, variables, walk
from .statement_nodes import MatchRelation

__all__ = ["MatchOutline", "match_outline", "quoted", "with_of"]

_BEGINS_ITEM = (TokenType.FROM, TokenType.COMMA, TokenType.JOIN)
_OPEN, _CLOSE = TokenType.L_PAREN, TokenType.R_PAREN


@dataclass(frozen=True)
class MatchOutline:
    """A clause of MATCH_RECOGNIZE, ready to be asked in another way.

    Attributes
    ----------
    variables, partition : tuple of str
        Names of the pattern's variables and of the columns of PARTITION BY.
    time : str or None
        First column of ORDER BY; None when the clause has none.
    source : str
        The text of the clause's input, as FROM has it.
    stream : str or None
        Its name when the input may be a stream.
    definitions : tuple of (str, str)
        Variables and the texts of their conditions.
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
        """One row a match: ``_match``, ``_first``, ``_last``, ``_events``, and for the variable
        at each place ``i`` ``_first_i``, ``_last_i`` and ``_count_i``."""
        at = quoted(time)
        measures = [
            "MATCH_NUMBER() AS _match",
            f"FIRST({at}) AS _first",
            f"LAST({at}) AS _last",
            "count(*) AS _events",
        ]
        for place, name in enumerate(self.variables):
            of = quoted(name)
            measures += [
                f"FIRST({of}.{at}) AS _first_{place}",
                f"LAST({of}.{at}) AS _last_{place}",
                f"count({of}.*) AS _count_{place}",
            ]
        return self._asked(measures, "ONE ROW PER MATCH")

    def events(self) -> str:
        """Every event of every match, with ``_match`` and ``_variable``."""
        measures = ["MATCH_NUMBER() AS _match", "CLASSIFIER() AS _variable"]
        return self._asked(measures, "ALL ROWS PER MATCH")

    def hits(self, condition: str) -> str:
        """How many rows of the input satisfy a condition by themselves."""
        return f"{self._prefix}SELECT count(*) FROM {self.source} AS _input WHERE {condition}"

    def _asked(self, measures: list[str], rows: str) -> str:
        by = ", ".join(map(quoted, self.partition))
        head = (f"PARTITION BY {by} " if by else "") + self._order
        clause = f"{head}MEASURES {', '.join(measures)} {rows} {self._rest}"
        return f"{self._prefix}SELECT * FROM {self.source} MATCH_RECOGNIZE ({clause}) AS _matches"


def match_outline(text: str) -> MatchOutline:
    """Read the first MATCH_RECOGNIZE of a statement.

    Raises
    ------
    SqlError
        When the statement cannot be read, or has no such clause.
    """
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


def quoted(name: str) -> str:
    """A name in double quotes; whoever reads it says what is wrong with one."""
    return '"' + name.replace('"', '""') + '"'


def _closing(tokens: list[Any], opening: int) -> int:
    depth = 0
    for place in range(opening, len(tokens)):
        kind = tokens[place].token_type
        depth += (kind is _OPEN) - (kind is _CLOSE)
        if depth == 0:
            return place
    raise AssertionError("a clause that was parsed is closed")


def _item_begin(tokens: list[Any], word: int) -> int:
    """The first token of the FROM item that a clause stands behind."""
    depth = 0
    for place in range(word - 1, -1, -1):
        kind = tokens[place].token_type
        depth += (kind is _CLOSE) - (kind is _OPEN)
        if depth < 0 or (depth == 0 and kind in _BEGINS_ITEM):
            return place + 1
    raise AssertionError("a clause that was parsed stands in FROM")


def with_of(text: str) -> str:
    """The statement's CTEs, with a space behind; they may be the clause's input."""
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
        quoted(key.column)
        + (" DESC" if key.descending else "")
        + (" NULLS FIRST" if key.nulls_first else "")
        for key in clause.order_by
    ]
    return f"ORDER BY {', '.join(keys)} " if keys else ""


def _shown(text: str, start: int, end: int, clause: MatchClause) -> str:
    """The rest of the clause, with rows shown that its pattern hides."""
    rest = text[start:end]
    if any(isinstance(part, Exclusion) for part in walk(clause.pattern)):
        rest = rest.replace("{-", "(").replace("-}", ")")
    return rest


def _definitions(
    text: str, tokens: list[Any], word: int, close: int, clause: MatchClause
) -> tuple[tuple[str, str], ...]:
    """The text of each condition: from behind AS up to the comma, or the end of the clause."""
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

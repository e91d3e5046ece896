"""The MATCH_SITUATIONS clause: from SQL text to a node, and to dataclasses::

    MATCH_SITUATIONS (
      [PARTITION BY column, ...] [ORDER BY time] [MEASURES expression AS name, ...]
      [ONE ROW PER MATCH] PATTERN ( name | constraint AND constraint ... )
      [WITHIN duration] [GAP duration] [EMIT ON {COMPLETION | DETECTION}]
      DEFINE name AS condition
      [LASTING {AT LEAST d | AT MOST d | BETWEEN d AND d}], ...
    )
    constraint := name relations name | '(' constraint {OR constraint} ')'
    relations  := relation {'|' relation} | '(' relation {'|' relation} ')'

A relation is one of Allen's or INTERSECTS; OR joins constraints of one pair of names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp
from sqlglot.tokens import TokenType

from ...core.suggestion import did_you_mean
from .match_clause import (
    Measure,
    OrderKey,
    begin_clause,
    clause_measures,
    clause_order,
    clause_partition,
    end_clause,
    fold,
    offset_of,
    parse_definition,
)
from .pattern_tree import position_error

RELATION_WORDS: tuple[tuple[str, ...], ...] = (
    ("FINISHED", "BY"), ("STARTED", "BY"), ("OVERLAPPED", "BY"), ("MET", "BY"), ("BEFORE",),
    ("AFTER",), ("MEETS",), ("OVERLAPS",), ("STARTS",), ("DURING",), ("CONTAINS",), ("FINISHES",),
    ("EQUALS",), ("INTERSECTS",),
)  # fmt: skip
_ELSEWHERE = {
    "ALL": "a match of situations has one row; for its events join the stream on time between "
    "STARTED and ENDED",
    "AFTER": "all combinations of situations count, and none is skipped",
    "SUBSET": "measures name one situation each",
}


@dataclass(frozen=True)
class Constraint:
    """Permitted relations of one name to another."""

    left: str
    right: str
    relations: tuple[str, ...]
    at: int = field(default=0, compare=False)


@dataclass(frozen=True)
class SituationDefinition:
    """A name, its condition, and bounds of its duration (INTERVALs or numbers)."""

    name: str
    condition: exp.Expression
    least: exp.Expression | None = None
    most: exp.Expression | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True)
class SituationClause:
    """A MATCH_SITUATIONS clause; ``early``: EMIT ON DETECTION; ``constraints``: a conjunction."""

    names: tuple[tuple[str, int], ...]
    constraints: tuple[Constraint, ...]
    definitions: tuple[SituationDefinition, ...]
    partition_by: tuple[str, ...] = ()
    order_by: tuple[OrderKey, ...] = ()
    measures: tuple[Measure, ...] = ()
    within: exp.Expression | None = None
    gap: exp.Expression | None = None
    early: bool = False
    sql: str = field(default="", compare=False)
    at: int = field(default=0, compare=False)


class MatchSituations(exp.MatchRecognize):  # type: ignore[misc]
    arg_types = {  # noqa: RUF012
        "partition_by": False,
        "order": False,
        "measures": False,
        "pattern": True,
        "within": False,
        "gap": False,
        "early": False,
        "define": True,
        "alias": False,
    }


class Lasting(exp.Expression):  # type: ignore[misc]
    arg_types = {"this": True, "low": False, "high": False}  # noqa: RUF012


def parse_situation_clause(parser: Any) -> MatchSituations:
    begin, arguments = begin_clause(parser)
    parser._match_text_seq("ONE", "ROW", "PER", "MATCH")
    _refuse(parser)
    parser._expect("PATTERN")
    arguments["pattern"] = _pattern(parser)
    if parser._match_text_seq("WITHIN"):
        arguments["within"] = _duration(parser, "WITHIN")
    if parser._match_text_seq("GAP"):
        arguments["gap"] = _duration(parser, "GAP")
    if parser._match_text_seq("EMIT"):
        if parser._match_text_seq("ON", "DETECTION"):
            arguments["early"] = exp.Boolean(this=True)
        elif not parser._match_text_seq("ON", "COMPLETION"):
            parser.raise_error("expected ON COMPLETION or ON DETECTION after EMIT")
    _refuse(parser)
    if not parser._match_text_seq("DEFINE"):
        parser.raise_error("expected DEFINE and the conditions of the names in PATTERN")
    arguments["define"] = parser._parse_csv(lambda: _definition(parser))
    node: MatchSituations = end_clause(parser, MatchSituations, begin, arguments)
    return node


def _refuse(parser: Any) -> None:
    word = parser._curr.text.upper() if parser._curr else ""
    if word in _ELSEWHERE:
        parser.raise_error(f"MATCH_SITUATIONS has no {word}: {_ELSEWHERE[word]}")


def _duration(parser: Any, after: str) -> Any:
    node = parser._parse_unary()
    if node is None:
        parser.raise_error(f"expected a duration such as INTERVAL '5' SECOND after {after}")
    return node


def _definition(parser: Any) -> Any:
    node = parse_definition(parser)
    if not parser._match_text_seq("LASTING"):
        return node
    low = high = None
    if parser._match_text_seq("AT", "LEAST"):
        low = _duration(parser, "AT LEAST")
    elif parser._match_text_seq("AT", "MOST"):
        high = _duration(parser, "AT MOST")
    elif parser._match(TokenType.BETWEEN):
        low = _duration(parser, "BETWEEN")
        if not parser._match(TokenType.AND):
            parser.raise_error("expected AND and the upper bound of the duration")
        high = _duration(parser, "AND")
    else:
        parser.raise_error("expected AT LEAST, AT MOST or BETWEEN after LASTING")
    return Lasting(this=node, low=low, high=high)


# ----------------------------------------------------------------------------- pattern


def _pattern(parser: Any) -> Any:
    parser._match_l_paren()
    if parser._next is not None and parser._next.token_type is TokenType.R_PAREN:
        constraints: list[Any] = [_name(parser)]
    else:
        constraints = _constraints(parser)
        while parser._match(TokenType.AND):
            constraints += _constraints(parser)
    if not parser._match(TokenType.R_PAREN):
        instead = f", found {parser._curr.text!r}" if parser._curr else ""
        parser.raise_error(f"expected AND or ) in PATTERN{instead}")
    return exp.Tuple(expressions=constraints)


def _constraints(parser: Any) -> list[Any]:
    """One constraint, or several joined by OR in parentheses, merged."""
    if not parser._match(TokenType.L_PAREN):
        return [_constraint(parser)]
    first = _constraint(parser)
    names = {fold(first.expressions[0]), fold(first.expressions[1])}
    words = list(first.expressions[2:])
    while parser._match(TokenType.OR):
        token = parser._curr
        other = _constraint(parser)
        left, right = fold(other.expressions[0]), fold(other.expressions[1])
        if {left, right} != names:
            parser.raise_error(
                f"OR joins constraints of one pair of names, here {' and '.join(sorted(names))}",
                token,
            )
        turned = left != fold(first.expressions[0])
        words += [_turned(word) if turned else word for word in other.expressions[2:]]
    if not parser._match(TokenType.R_PAREN):
        parser.raise_error("expected OR or ) after a constraint")
    return [exp.Tuple(expressions=[*first.expressions[:2], *words])]


_CONVERSES = {
    "BEFORE": "AFTER", "MEETS": "MET BY", "OVERLAPS": "OVERLAPPED BY", "STARTS": "STARTED BY",
    "DURING": "CONTAINS", "FINISHES": "FINISHED BY",
}  # fmt: skip
_CONVERSES |= {other: word for word, other in _CONVERSES.items()}


def _turned(word: Any) -> Any:
    return exp.var(_CONVERSES.get(word.name, word.name))


def _constraint(parser: Any) -> Any:
    token = parser._curr
    left = _name(parser)
    grouped = parser._match(TokenType.L_PAREN)
    words = [_relation(parser)]
    while parser._match(TokenType.PIPE):
        words.append(_relation(parser))
    if grouped and not parser._match(TokenType.R_PAREN):
        parser.raise_error("expected | or ) after a relation")
    node = exp.Tuple(expressions=[left, _name(parser), *words])
    node.meta["start"] = token.start
    return node


def _name(parser: Any) -> Any:
    token = parser._curr
    name: Any = parser._parse_id_var(any_token=False) if token else None
    if name is None:
        parser.raise_error("expected the name of a situation in PATTERN")
    name.meta["start"] = token.start
    return name


def _relation(parser: Any) -> Any:
    for words in RELATION_WORDS:
        if parser._match_text_seq(*words):
            return exp.var(" ".join(words))
    relations = [" ".join(words) for words in RELATION_WORDS]
    word = parser._curr.text if parser._curr else ""
    hint = did_you_mean(word.upper(), relations, quoted=False) if word else ""
    return parser.raise_error(f"expected a relation ({', '.join(relations)}), found {word!r}{hint}")


# ----------------------------------------------------------------------------- to data


def situation_clause(node: MatchSituations) -> SituationClause:
    """Turn the node into data; SqlError for an invalid part."""
    sql = str(node.meta.get("sql", ""))
    begin = int(node.meta.get("start", 0))
    names: dict[str, int] = {}
    constraints = []
    for part in node.args["pattern"].expressions:
        if isinstance(part, exp.Identifier):
            names.setdefault(fold(part), offset_of(part, begin))
            continue
        left, right = (fold(name) for name in part.expressions[:2])
        at = offset_of(part, begin)
        for name, identifier in zip((left, right), part.expressions[:2], strict=True):
            names.setdefault(name, offset_of(identifier, at))
        words = tuple(dict.fromkeys(word.name for word in part.expressions[2:]))
        constraints.append(Constraint(left, right, words, at))
        if left == right:
            raise position_error(f"{left} has no relation to itself", sql, at)
    return SituationClause(
        tuple(names.items()),
        tuple(constraints),
        tuple(_definitions(node, begin)),
        clause_partition(node, sql, begin),
        clause_order(node, sql, begin),
        clause_measures(node, begin),
        node.args.get("within"),
        node.args.get("gap"),
        node.args.get("early") is not None,
        sql,
        begin,
    )


def _definitions(node: Any, begin: int) -> list[SituationDefinition]:
    definitions = []
    for part in node.args["define"]:
        low, high = part.args.get("low"), part.args.get("high")
        inner: Any = part
        if isinstance(part, Lasting):
            inner = part.this
        name = fold(inner.args["alias"])
        at = int(inner.meta.get("start", begin))
        definitions.append(SituationDefinition(name, inner.this, low, high, at))
    return definitions

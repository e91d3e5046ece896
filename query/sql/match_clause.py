"""The MATCH_RECOGNIZE clause: from SQL text to a node, and to dataclasses::

    MATCH_RECOGNIZE (
      [PARTITION BY column, ...] [ORDER BY column [ASC|DESC] [NULLS FIRST|LAST], ...] [MEASURES
      expression AS name, ...] [ONE ROW PER MATCH | ALL ROWS PER MATCH [SHOW EMPTY MATCHES |
      OMIT EMPTY MATCHES | WITH UNMATCHED ROWS]] [AFTER MATCH SKIP {PAST LAST ROW | TO NEXT ROW
      | TO [FIRST | LAST] variable}] [MAXIMAL MATCH | INCREMENTAL MATCH]
      PATTERN (row pattern) [WITHIN interval | WITHIN integer]
      [EVENT SELECTION {CONTIGUOUS | SKIP TILL NEXT MATCH | SKIP TILL ANY MATCH}] [SUBSET name =
      (variable, ...), ...] [DEFINE variable AS condition, ...]
    )

Expressions stay sqlglot trees until ``match_clause``, so that parameters can be replaced before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp
from sqlglot.tokens import TokenType

from ...errors import SqlError
from .pattern_tree import Pattern, parse_pattern, position_error

SEMANTICS = ("RUNNING", "FINAL")
STRATEGIES = {
    ("CONTIGUOUS",): "contiguous",
    ("SKIP", "TILL", "NEXT", "MATCH"): "next",
    ("SKIP", "TILL", "ANY", "MATCH"): "any",
}
ROWS = {
    ("ONE", "ROW", "PER", "MATCH"): "one",
    ("ALL", "ROWS", "PER", "MATCH"): "all",
}
EMPTY_MODES = {
    ("SHOW", "EMPTY", "MATCHES"): "all",
    ("OMIT", "EMPTY", "MATCHES"): "all omit empty",
    ("WITH", "UNMATCHED", "ROWS"): "all with unmatched",
}

MODES = {("MAXIMAL", "MATCH"): "maximal", ("INCREMENTAL", "MATCH"): "incremental"}


@dataclass(frozen=True)
class OrderKey:
    column: str
    descending: bool = False
    nulls_first: bool = False
    at: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Measure:
    name: str
    expression: exp.Expression
    at: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Definition:
    variable: str
    condition: exp.Expression
    at: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Subset:
    name: str
    variables: tuple[str, ...]
    at: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Skip:
    """AFTER MATCH SKIP: ``past last``, ``next``, ``first`` or ``last``."""

    mode: str = "past last"
    variable: str = ""
    at: int = field(default=0, compare=False)


@dataclass(frozen=True)
class MatchClause:
    """A MATCH_RECOGNIZE clause; ``at`` are offsets in ``sql``.  ``rows``: ``one``, ``all`` (shows
    empty matches), ``all omit empty`` or ``all with unmatched``; ``skip`` None: past the last row;
    ``selection``: ``contiguous``, ``next``, ``any``, None for the standard's semantics; ``mode``:
    the longest contiguous match that begins (``maximal``) or ends (``incremental``) with an event.
    """

    pattern: Pattern
    definitions: tuple[Definition, ...] = ()
    partition_by: tuple[str, ...] = ()
    order_by: tuple[OrderKey, ...] = ()
    measures: tuple[Measure, ...] = ()
    rows: str = "one"
    skip: Skip | None = None
    within: exp.Expression | None = None
    selection: str | None = None
    subsets: tuple[Subset, ...] = ()
    mode: str | None = None
    sql: str = field(default="", compare=False)
    at: int = field(default=0, compare=False)


class MatchRecognize(exp.MatchRecognize):  # type: ignore[misc]
    arg_types = {  # noqa: RUF012
        **exp.MatchRecognize.arg_types,
        "subset": False,
        "within": False,
        "selection": False,
        "mode": False,
    }


def fold(identifier: Any) -> str:
    """Name of a pattern variable: upper case unless quoted."""
    text = str(identifier.name)
    return text if identifier.args.get("quoted") else text.upper()


def offset_of(node: Any, default: int = 0) -> int:
    """Least offset that any part of an expression has."""
    starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
    return min(starts, default=default)


def parse_match_clause(parser: Any) -> MatchRecognize:
    """Parse the clause; RUNNING and FINAL before a function become calls ``RUNNING(f(...))``."""
    standard = parser._parse_unary
    parser._parse_unary = lambda: _unary(parser, standard)
    try:
        return _clause(parser)
    finally:
        del parser._parse_unary


def _unary(parser: Any, standard: Any) -> Any:
    token = parser._curr
    tokens, index = parser._tokens, parser._index
    if (
        token
        and token.text.upper() in SEMANTICS
        and token.token_type is not TokenType.IDENTIFIER
        and index + 2 < len(tokens)
        and tokens[index + 2].token_type is TokenType.L_PAREN
        and tokens[index + 1].text.replace("_", "").isalpha()
    ):
        parser._advance()
        function = parser._parse_function()
        if function is None:
            parser.raise_error(f"expected a function after {token.text}")
        wrapped = exp.Anonymous(this=token.text.upper(), expressions=[function])
        wrapped.update_positions(token)
        return parser._parse_column_ops(wrapped)
    return standard()


def begin_clause(parser: Any) -> tuple[int, dict[str, Any]]:
    """Parse from the clause's word to MEASURES; the word's offset, and the parts by name."""
    begin = parser._curr.start
    parser._advance()
    parser._match_l_paren()
    arguments = {"partition_by": parser._parse_partition_by(), "order": parser._parse_order()}
    if parser._match_text_seq("MEASURES"):
        arguments["measures"] = parser._parse_csv(lambda: parse_measure(parser))
    return begin, arguments


def end_clause(parser: Any, kind: type, begin: int, arguments: dict[str, Any]) -> Any:
    parser._match_r_paren()
    arguments["alias"] = parser._parse_table_alias()
    node = kind(**{key: value for key, value in arguments.items() if value})
    node.meta["sql"] = parser.sql
    node.meta["start"] = begin
    return node


def _clause(parser: Any) -> MatchRecognize:
    begin, arguments = begin_clause(parser)
    arguments["rows"] = _rows(parser)
    arguments["after"] = _after(parser)
    arguments["mode"] = _mode(parser)
    for word in ("INITIAL", "SEEK"):
        if parser._match_text_seq(word, advance=False):
            parser.raise_error(f"{word} belongs to row patterns in windows, not to this clause")
    parser._expect("PATTERN")
    arguments["pattern"] = _pattern(parser)
    if parser._match_text_seq("WITHIN"):
        arguments["within"] = parser._parse_unary()
    if parser._match_text_seq("EVENT"):
        if not parser._match_text_seq("SELECTION"):
            parser.raise_error("expected SELECTION after EVENT")
        arguments["selection"] = exp.var(_choice(parser, STRATEGIES, "EVENT SELECTION"))
    if parser._match_text_seq("SUBSET"):
        arguments["subset"] = parser._parse_csv(lambda: _subset(parser))
    if parser._match_text_seq("DEFINE"):
        arguments["define"] = parser._parse_csv(lambda: parse_definition(parser))
    node: MatchRecognize = end_clause(parser, MatchRecognize, begin, arguments)
    return node


def _choice(parser: Any, choices: dict[tuple[str, ...], str], after: str) -> str:
    for words, value in choices.items():
        if parser._match_text_seq(*words):
            return value
    options = ", ".join(" ".join(words) for words in choices)
    parser.raise_error(f"expected one of {options} after {after}")
    return ""


def _rows(parser: Any) -> Any:
    for words, value in ROWS.items():
        if parser._match_text_seq(*words):
            if value == "all":
                for more, mode in EMPTY_MODES.items():
                    if parser._match_text_seq(*more):
                        return exp.var(mode)
            return exp.var(value)
    return None


def _after(parser: Any) -> Any:
    at = parser._curr.start if parser._curr else 0
    if not parser._match_text_seq("AFTER", "MATCH"):
        return None
    if not parser._match_text_seq("SKIP"):
        parser.raise_error("expected SKIP after AFTER MATCH")
    node = exp.var("past last")
    if parser._match_text_seq("PAST", "LAST", "ROW"):
        pass
    elif parser._match_text_seq("TO", "NEXT", "ROW"):
        node = exp.var("next")
    elif parser._match_text_seq("TO"):
        mode = "last"
        following = parser._tokens[parser._index + 1 : parser._index + 2]
        names_variable = following and following[0].text.upper() in ("PATTERN", "INITIAL", "SEEK")
        if parser._curr.text.upper() in ("FIRST", "LAST") and not names_variable:
            mode = parser._curr.text.lower()
            parser._advance()
        variable = parser._parse_id_var(any_token=True)
        if variable is None:
            parser.raise_error("expected a pattern variable after SKIP TO")
        node = exp.var(mode)
        node.meta["variable"] = fold(variable)
    else:
        parser.raise_error("expected PAST LAST ROW, TO NEXT ROW or TO [FIRST | LAST] variable")
    node.meta["start"] = at
    return node


def _mode(parser: Any) -> Any:
    at = parser._curr.start if parser._curr else 0
    for words, value in MODES.items():
        if parser._match_text_seq(*words):
            node = exp.var(value)
            node.meta["start"] = at
            return node
    return None


def parse_measure(parser: Any) -> Any:
    token = parser._curr
    expression = parser._parse_assignment()
    if expression is None:
        parser.raise_error("expected a measure")
    if not parser._match(TokenType.ALIAS):
        parser.raise_error("expected AS and a name after a measure")
    node = exp.Alias(this=expression, alias=parser._parse_id_var(any_token=True))
    node.meta["start"] = token.start
    return node


def parse_definition(parser: Any) -> Any:
    token = parser._curr
    variable = parser._parse_id_var(any_token=True)
    if not parser._match(TokenType.ALIAS):
        parser.raise_error("expected AS after a variable in DEFINE")
    condition = parser._parse_disjunction()
    if condition is None:
        parser.raise_error("expected a condition in DEFINE")
    node = exp.Alias(this=condition, alias=variable)
    node.meta["start"] = token.start
    return node


def _subset(parser: Any) -> Any:
    token = parser._curr
    name = parser._parse_id_var(any_token=True)
    if not parser._match(TokenType.EQ):
        parser.raise_error("expected = after a name in SUBSET")
    parser._match_l_paren()
    members = parser._parse_csv(lambda: parser._parse_id_var(any_token=True))
    parser._match_r_paren()
    node = exp.Tuple(expressions=[name, *members])
    node.meta["start"] = token.start
    return node


def _pattern(parser: Any) -> Any:
    parser._match_l_paren()
    start = parser._prev.end + 1
    depth = 1
    while parser._index < len(parser._tokens):
        kind = parser._curr.token_type
        if kind is TokenType.L_PAREN:
            depth += 1
        elif kind is TokenType.R_PAREN:
            depth -= 1
            if depth == 0:
                break
        parser._advance()
    if depth:
        parser.raise_error("expected ) at the end of PATTERN")
    end = parser._curr.start
    parser._advance()
    node = exp.Var(this=parser.sql[start:end])  # exp.var() refuses the empty pattern
    node.meta["start"] = start
    node.meta["end"] = end
    return node


def clause_partition(node: Any, sql: str, begin: int) -> tuple[str, ...]:
    columns = []
    for column in node.args.get("partition_by") or []:
        if not isinstance(column, exp.Column) or column.table:
            at = offset_of(column, begin)
            raise position_error("PARTITION BY takes the names of columns", sql, at)
        columns.append(column.name)
    return tuple(columns)


def clause_order(node: Any, sql: str, begin: int) -> tuple[OrderKey, ...]:
    keys = []
    if node.args.get("order"):
        for key in node.args["order"].expressions:
            column = key.this
            at = offset_of(column, begin)
            if not isinstance(column, exp.Column) or column.table:
                raise position_error("ORDER BY takes the names of columns", sql, at)
            descending, nulls_first = bool(key.args.get("desc")), bool(key.args.get("nulls_first"))
            keys.append(OrderKey(column.name, descending, nulls_first, at))
    return tuple(keys)


def clause_measures(node: Any, begin: int) -> tuple[Measure, ...]:
    return tuple(
        Measure(m.alias, m.this, m.meta.get("start", begin))
        for m in node.args.get("measures") or []
    )


def match_clause(node: MatchRecognize) -> MatchClause:
    """Turn the node into data; SqlError for an invalid part."""
    sql = str(node.meta.get("sql", ""))
    begin = int(node.meta.get("start", 0))
    pattern_node = node.args["pattern"]
    start = pattern_node.meta.get("start")
    if start is None:  # built by code, not parsed
        pattern = parse_pattern(pattern_node.name)
    else:
        pattern = parse_pattern(sql, start, pattern_node.meta["end"])
    after = node.args.get("after")
    skip = None
    if after is not None:
        skip = Skip(after.name, after.meta.get("variable", ""), after.meta.get("start", begin))
    selection = node.args.get("selection")
    chosen = selection.name if selection is not None else None
    mode = node.args.get("mode")
    if mode is not None:
        _check_mode(mode, skip, chosen, sql, begin)
        skip, chosen = None, "contiguous"
    rows = node.args.get("rows")
    return MatchClause(
        pattern=pattern,
        definitions=tuple(
            Definition(fold(d.args["alias"]), d.this, d.meta.get("start", begin))
            for d in node.args.get("define") or []
        ),
        partition_by=clause_partition(node, sql, begin),
        order_by=clause_order(node, sql, begin),
        measures=clause_measures(node, begin),
        rows=rows.name if rows is not None else "one",
        skip=skip,
        within=node.args.get("within"),
        selection=chosen,
        subsets=tuple(
            Subset(
                fold(s.expressions[0]),
                tuple(fold(member) for member in s.expressions[1:]),
                s.meta.get("start", begin),
            )
            for s in node.args.get("subset") or []
        ),
        mode=mode.name if mode is not None else None,
        sql=sql,
        at=begin,
    )


def _check_mode(mode: Any, skip: Skip | None, selection: str | None, sql: str, begin: int) -> None:
    words = f"{mode.name.upper()} MATCH"
    if skip is not None and skip.mode != "next":
        raise position_error(
            f"{words} looks for a match from every row: it stands with AFTER MATCH SKIP TO NEXT "
            "ROW, or without AFTER MATCH",
            sql,
            skip.at,
        )
    if selection is not None:
        raise position_error(
            f"{words} chooses among contiguous matches; it cannot be used with EVENT SELECTION",
            sql,
            mode.meta.get("start", begin),
        )


def clause_of_text(statement: str) -> MatchClause:
    """The first MATCH_RECOGNIZE clause of a statement; SqlError without one."""
    from .dialect import parse_statement

    node = parse_statement(statement).find(MatchRecognize)
    if node is None:
        raise SqlError("the statement has no MATCH_RECOGNIZE clause", 1, 1)
    return match_clause(node)

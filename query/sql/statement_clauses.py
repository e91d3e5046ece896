"""Syntax nodes of Chronicle (statements that are no queries, FROM items with a clause), and parsing
of the statements::

    DELETE FROM s [WHERE condition]         TRUNCATE [TABLE | STREAM] s
    UPDATE s SET a = expression, ... [WHERE condition]
    ALTER STREAM s ADD [COLUMN] a TYPE [NOT NULL] [DEFAULT literal]
    ALTER STREAM s ALTER [COLUMN] a [SET DATA] TYPE TYPE
    ALTER STREAM s DROP COLUMN a
    ALTER STREAM s RENAME COLUMN a TO b
    ALTER STREAM s RENAME TO r
    ALTER STREAM s SET (option = value, ...)

CREATE STREAM has columns, or ``s [TIMESTAMP BY t] [WITH (k = v, ...)] AS SELECT ...``.  CREATE and
DROP INDEX have one or two attributes, or an expression.

Live queries and roll-ups::

    CREATE LIVE QUERY [IF NOT EXISTS] name [INTO sink] [START AT {FIRST | NOW | time}]
      [DELAY interval] [IDLE AFTER interval | IDLE NEVER]
      [LATE {CORRECT [FOR interval] | IGNORE}]
      [EMIT {ON CLOSE | ON CHANGE EVERY interval}] [WITH (option = value, ...)] AS select
    DROP LIVE QUERY [IF EXISTS] name [KEEP RESULTS]
    ALTER LIVE QUERY name {PAUSE | RESUME | REFRESH [FROM t TO t]}
    CREATE ROLLUP [IF NOT EXISTS] name [DELAY interval] [IDLE AFTER interval | IDLE NEVER]
      [WITH (option = value, ...)] AS select
    DROP ROLLUP [IF EXISTS] name

Options may be in any order before AS (behind the SELECT, ``EMIT`` would be an alias).  Keywords are
lower-case strings in the node, values expressions; ``meta["query"]`` is the SELECT's offset.

Views::

    CREATE [OR REPLACE] VIEW [IF NOT EXISTS] v AS SELECT ...
    DROP VIEW [IF EXISTS] v [CASCADE]
    SHOW VIEWS
    SHOW CREATE VIEW v
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp
from sqlglot.tokens import TokenType


class StatementNode(exp.Expression):  # type: ignore[misc]
    """A statement that is no query; its parser says which arguments it has."""

    arg_types = dict.fromkeys(
        (
            "this", "query", "columns", "time", "options", "exists", "replace", "cascade", "action",
            "column", "to", "kind", "where", "assignments", "analyze", "into", "start", "end",
            "delay", "idle", "late", "correct_for", "every", "keep",
        ),
        False,
    )  # fmt: skip


class CreateStream(StatementNode):
    """``columns`` are ColumnDefs, ``options`` EQs; with ``query`` there are no ``columns``."""


class DropStream(StatementNode):
    """``cascade``: drop dependent views."""


class AlterStream(StatementNode):
    """``column``: ColumnDef or identifier; ``to``: new name."""


class CreateView(StatementNode):
    """CREATE VIEW"""


class DropView(StatementNode):
    """DROP VIEW"""


class ShowViews(StatementNode):
    """SHOW VIEWS"""


class ShowCreateView(StatementNode):
    """SHOW CREATE VIEW"""


class DeleteEvents(StatementNode):
    """DELETE and TRUNCATE"""


class UpdateEvents(StatementNode):
    """UPDATE; ``assignments`` are EQs."""


class ShowStreams(StatementNode):
    """SHOW STREAMS"""


class ShowIndexes(StatementNode):
    """``this``: the stream, optional."""


class DescribeStream(StatementNode):
    """``this``: a name or a query."""


class CreateIndexOn(StatementNode):
    """CREATE INDEX"""


class DropIndexOn(StatementNode):
    """DROP INDEX"""


class Explain(StatementNode):
    """``analyze``: the query is run."""


class CreateLive(StatementNode):
    """CREATE LIVE QUERY"""


class CreateRollup(CreateLive):
    """CREATE ROLLUP"""


class DropLive(StatementNode):
    """DROP LIVE QUERY"""


class DropRollup(DropLive):
    """DROP ROLLUP"""


class AlterLive(StatementNode):
    """``action``: pause, resume or refresh."""


class ShowLive(StatementNode):
    """SHOW LIVE QUERIES"""


class ShowRollups(StatementNode):
    """SHOW ROLLUPS"""


class DescribeLive(StatementNode):
    """DESCRIBE LIVE QUERY"""


class DescribeRollup(DescribeLive):
    """DESCRIBE ROLLUP"""


class ExplainLive(StatementNode):
    """EXPLAIN LIVE QUERY"""


class MatchRelation(exp.Expression):  # type: ignore[misc]
    """A FROM item with MATCH_RECOGNIZE: ``this`` is the input, ``match`` the clause."""

    arg_types = {"this": True, "match": True}  # noqa: RUF012

    @property
    def alias(self) -> str:
        return str(self.args["match"].alias)


class SituationRelation(MatchRelation):
    """A FROM item with MATCH_SITUATIONS."""


class RecentRelation(exp.Expression):  # type: ignore[misc]
    """A recency join: ``this`` the live side, ``expression`` the archive side."""

    arg_types = {  # noqa: RUF012
        "this": True, "expression": True, "kind": True, "last": False, "on": False, "within": False,
    }  # fmt: skip


def _selected(parser: Any, message: str) -> tuple[Any, int]:
    """The SELECT that ends a statement, and where it begins."""
    token = parser._curr
    query = parser._parse_statement() if token else None
    if not isinstance(query, exp.Query):
        parser.raise_error(message, token or None)
    return query, token.start


def parse_create_as(parser: Any, name: Any, exists: bool) -> CreateStream:
    """Parse what follows the stream's name."""
    time = None
    if parser._match_text_seq("TIMESTAMP", "BY"):
        time = parser._name("the time attribute")
    options = parser._parse_options("codec = 'zstd'")
    if not parser._match_text_seq("AS"):
        parser.raise_error(
            "expected the columns in parentheses, (t TIMESTAMP, x DOUBLE), or AS and a SELECT"
        )
    query, start = _selected(parser, "expected a SELECT after AS")
    query.meta.setdefault("start", start)
    return CreateStream(this=name, time=time, options=options, exists=exists, query=query)


def parse_stream_column(parser: Any) -> Any:
    """Parse a column definition: name, type, NOT NULL, DEFAULT."""
    name = parser._name("a column")
    token = parser._curr
    kind = parser._parse_types(schema=True)
    if kind is None:
        parser.raise_error(f"expected the type of column {name.name!r}", token or None)
    kind.meta["start"] = token.start
    not_null, default = False, None
    while True:
        if parser._match_text_seq("NOT", "NULL"):
            not_null = True
        elif default is None and parser._match_text_seq("DEFAULT"):
            default = parser._parse_unary()
            if default is None:
                parser.raise_error(f"expected the default of column {name.name!r}")
        elif not parser._match_text_seq("NULL"):
            break
    definition = parser.expression(exp.ColumnDef(this=name, kind=kind, default=default))
    definition.meta["not_null"] = not_null
    return definition


def parse_delete(parser: Any) -> DeleteEvents:
    parser._expect("FROM")
    name = parser._name("the stream")
    return DeleteEvents(this=name, where=parser._parse_where())


def parse_truncate(parser: Any) -> DeleteEvents:
    parser._match_texts(("STREAM", "TABLE"))
    return DeleteEvents(this=parser._name("the stream"))


def parse_update(parser: Any) -> UpdateEvents:
    name = parser._name("the stream")
    parser._expect("SET")
    assignments = parser._parse_csv(lambda: _assignment(parser))
    return UpdateEvents(this=name, assignments=assignments, where=parser._parse_where())


def _assignment(parser: Any) -> Any:
    column = parser._name("a column")
    if not parser._match(TokenType.EQ):
        parser.raise_error(f"expected = and an expression after {column.name!r}")
    value = parser._parse_disjunction()
    if value is None:
        parser.raise_error(f"expected the new value of {column.name!r}")
    return exp.EQ(this=column, expression=value)


def parse_alter_stream(parser: Any) -> AlterStream:
    """Parse what follows ``ALTER``, except live queries."""
    parser._expect("STREAM")
    name = parser._name("the stream")
    if parser._match_text_seq("ADD"):
        parser._match_text_seq("COLUMN")
        return AlterStream(this=name, action="add", column=parse_stream_column(parser))
    if parser._match(TokenType.ALTER):
        parser._match_text_seq("COLUMN")
        column = parser._name("the column")
        parser._match_text_seq("SET", "DATA")
        parser._expect("TYPE")
        token = parser._curr
        kind = parser._parse_types(schema=True)
        if kind is None:
            parser.raise_error(f"expected the new type of column {column.name!r}")
        kind.meta["start"] = token.start
        return AlterStream(this=name, action="type", column=column, kind=kind)
    if parser._match_text_seq("DROP"):
        parser._match_text_seq("COLUMN")
        return AlterStream(this=name, action="drop", column=parser._name("the column"))
    if parser._match_text_seq("RENAME", "TO"):
        return AlterStream(this=name, action="rename", to=parser._name("the stream"))
    if parser._match_text_seq("RENAME"):
        parser._match_text_seq("COLUMN")
        column = parser._name("the column")
        parser._expect("TO")
        to = parser._name("the column")
        return AlterStream(this=name, action="rename column", column=column, to=to)
    if parser._match_text_seq("SET"):
        options = parser._options_in_parentheses("SET (retention = '90 days')")
        return AlterStream(this=name, action="set", options=options)
    made: AlterStream = parser.raise_error(
        "expected ADD COLUMN, ALTER COLUMN, DROP COLUMN, RENAME COLUMN, RENAME TO or SET (...)"
    )
    return made


def parse_index_target(parser: Any) -> tuple[Any, Any]:
    """The stream, and an identifier or a Var with the key's text for ``indexes.index_key``."""
    if not parser._match_text_seq("ON"):
        parser.raise_error("expected ON stream (attribute); an index has no name of its own")
    stream = parser._name("the stream")
    if not parser._match(TokenType.L_PAREN):
        parser.raise_error("expected the attribute in parentheses")
    if parser._next and parser._next.token_type == TokenType.R_PAREN:
        name = parser._name("the attribute")
        parser._match_r_paren()
        return stream, name
    return stream, _key(parser)


def _key(parser: Any) -> Any:
    first, depth = parser._curr, 1
    if first is None:
        parser.raise_error("expected an attribute, two of them, or an expression")
    while parser._curr and depth:
        token = parser._curr.token_type
        depth += (token == TokenType.L_PAREN) - (token == TokenType.R_PAREN)
        parser._advance()
    if depth:
        parser.raise_error("expected ) after what the index is on")
    text = parser.sql[first.start : parser._prev.start]
    if parser._match(TokenType.PARTITION_BY):
        begin = parser._curr
        parser._parse_csv(lambda: parser._name("an attribute"))
        text += f" PARTITION BY {parser.sql[begin.start : parser._prev.end + 1]}"
    key = exp.Var(this=text)
    key.meta["start"] = first.start
    return key


def parse_create_live(parser: Any) -> CreateLive:
    parser._expect("QUERY")
    return _created(parser, CreateLive, "live query", _OPTIONS)


def parse_create_rollup(parser: Any) -> CreateLive:
    return _created(parser, CreateRollup, "roll-up", {k: _OPTIONS[k] for k in ("DELAY", "IDLE")})


def _created(
    parser: Any, kind: type[CreateLive], what: str, known: dict[str, Callable[[Any], Any]]
) -> CreateLive:
    exists = bool(parser._match_text_seq("IF", "NOT", "EXISTS"))
    name = parser._name(f"the {what}")
    clauses: dict[str, Any] = {}
    while parser._curr and (read := known.get(parser._curr.text.upper())) is not None:
        token, word = parser._curr, parser._curr.text.upper()
        if word in clauses:
            parser.raise_error(f"{word} was said already", token)
        parser._advance()
        clauses[word] = read(parser)
    options = parser._parse_options("retention = '30 days'")
    if not parser._match_text_seq("AS"):
        listed = ", ".join(known)
        parser.raise_error(f"expected AS and the SELECT, or one of {listed}, WITH before it")
    query, start = _selected(parser, f"a {what} is a SELECT")
    late, correct_for = clauses.pop("LATE", (None, None))
    made = kind(
        this=name, query=query, late=late, correct_for=correct_for,
        every=clauses.pop("EMIT", None), options=options, exists=exists,
        **{word.lower(): value for word, value in clauses.items()},
    )  # fmt: skip
    made.meta["query"] = start
    return made


def parse_drop_live(parser: Any) -> DropLive:
    parser._expect("QUERY")
    exists = bool(parser._match_text_seq("IF", "EXISTS"))
    name = parser._name("the live query")
    keep = bool(parser._match_text_seq("KEEP"))
    if keep:
        parser._expect("RESULTS")
    return DropLive(this=name, exists=exists, keep=keep)


def parse_drop_rollup(parser: Any) -> DropLive:
    exists = bool(parser._match_text_seq("IF", "EXISTS"))
    return DropRollup(this=parser._name("the roll-up"), exists=exists)


def parse_alter_live(parser: Any) -> AlterLive:
    parser._expect("QUERY")
    name = parser._name("the live query")
    for action in ("PAUSE", "RESUME"):
        if parser._match_text_seq(action):
            return AlterLive(this=name, action=action.lower())
    if not parser._match_text_seq("REFRESH"):
        parser.raise_error("expected PAUSE, RESUME or REFRESH")
    start = end = None
    if parser._match_text_seq("FROM"):
        start = _value(parser, "the time from which on results are made anew")
        if not parser._match_text_seq("TO"):
            parser.raise_error("expected TO and the time up to which results are made anew")
        end = _value(parser, "the time up to which results are made anew")
    return AlterLive(this=name, action="refresh", start=start, end=end)


def _value(parser: Any, what: str) -> Any:
    token = parser._curr
    node = parser._parse_unary() if token else None
    if node is None:
        return parser.raise_error(f"expected {what}")
    if "start" not in node.meta:
        node.meta["start"] = token.start
    return node


def _into(parser: Any) -> Any:
    return parser._name("the stream that takes the results")


def _start(parser: Any) -> Any:
    parser._expect("AT")
    for word in ("FIRST", "NOW"):
        if parser._match_text_seq(word):
            return word.lower()
    return _value(parser, "FIRST, NOW or a time")


def _delay(parser: Any) -> Any:
    return _value(parser, "how long events are waited for, such as INTERVAL '5' MINUTE")


def _idle(parser: Any) -> Any:
    if parser._match_text_seq("NEVER"):
        return "never"
    if not parser._match_text_seq("AFTER"):
        parser.raise_error("expected AFTER and an interval, or NEVER")
    return _value(parser, "an interval such as INTERVAL '1' SECOND")


def _late(parser: Any) -> tuple[str, Any]:
    if parser._match_text_seq("IGNORE"):
        return "ignore", None
    if not parser._match_text_seq("CORRECT"):
        parser.raise_error("expected CORRECT or IGNORE")
    if parser._match_text_seq("FOR"):
        return "correct", _value(parser, "an interval such as INTERVAL '1' DAY")
    return "correct", None


def _emit(parser: Any) -> Any:
    parser._expect("ON")
    if parser._match_text_seq("CLOSE"):
        return None
    if not parser._match_text_seq("CHANGE"):
        parser.raise_error("expected CLOSE or CHANGE")
    if not parser._match_text_seq("EVERY"):
        parser.raise_error("expected EVERY and an interval such as INTERVAL '1' SECOND")
    return _value(parser, "an interval such as INTERVAL '1' SECOND")


_OPTIONS: dict[str, Callable[[Any], Any]] = {
    "INTO": _into, "START": _start, "DELAY": _delay, "IDLE": _idle, "LATE": _late, "EMIT": _emit,
}  # fmt: skip


def parse_create_view(parser: Any, *, replace: bool) -> CreateView:
    exists = not replace and bool(parser._match_text_seq("IF", "NOT", "EXISTS"))
    name = parser._name("the view")
    parser._expect("AS")
    query, start = _selected(parser, "a view is a SELECT: expected one after AS")
    made = CreateView(this=name, query=query, replace=replace, exists=exists)
    made.meta["query"] = start
    made.meta["end"] = parser._prev.end + 1
    return made


def parse_drop_view(parser: Any) -> DropView:
    exists = bool(parser._match_text_seq("IF", "EXISTS"))
    name = parser._name("the view")
    return DropView(this=name, exists=exists, cascade=cascades(parser))


def cascades(parser: Any) -> bool:
    if parser._match_text_seq("CASCADE"):
        return True
    parser._match_text_seq("RESTRICT")
    return False


def parse_show_create(parser: Any) -> ShowCreateView:
    parser._expect("VIEW")
    return ShowCreateView(this=parser._name("the view"))

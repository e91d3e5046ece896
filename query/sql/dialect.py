"""SQL text to syntax tree: DuckDB's grammar plus Chronicle's own statements.

Errors have line and column of the offending token.  Function calls keep name and arguments as
written: sqlglot's function knowledge is disabled, so that nothing is renamed, reordered or lost,
and the gate can decide by name::

    CREATE STREAM [IF NOT EXISTS] s (a TYPE [NOT NULL], ...) TIMESTAMP BY t [WITH (k = v, ...)]
    CREATE STREAM [IF NOT EXISTS] s [TIMESTAMP BY t] [WITH (k = v, ...)] AS SELECT ...
    DROP STREAM [IF EXISTS] s
    SHOW STREAMS                            DESCRIBE s | DESCRIBE SELECT ...
    CREATE INDEX [IF NOT EXISTS] ON s (a)   DROP INDEX [IF EXISTS] ON s (a)
    SHOW INDEXES [ON s]                     EXPLAIN [ANALYZE] SELECT ...
    INSERT INTO s [(a, ...)] VALUES ... | SELECT ...

``canonical`` gives the text from which identities of results are derived.  Equal parse trees, names
compared without case, have equal texts, different ones different texts.
A text stays the same across releases unless the tree changes.  Equivalent queries with different
trees (``a AND b``, ``b AND a``) differ.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

from sqlglot import exp, parser
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokens import TokenType

from ...core.suggestion import did_you_mean
from ...errors import MissingDependency, SqlError
from ..contract.cancellation import checkpoint
from .from_parser import FromParser
from .match_clause import MatchRecognize
from .nesting import STEPS_BETWEEN_CHECKS, HeedingTokenizer, balanced, headroom, measure
from .pattern_tree import describe, parse_pattern, position_error
from .rendering import Refused, render
from .statement_clauses import (
    CreateIndexOn,
    CreateStream,
    DescribeLive,
    DescribeRollup,
    DescribeStream,
    DropIndexOn,
    DropStream,
    Explain,
    ExplainLive,
    ShowIndexes,
    ShowLive,
    ShowRollups,
    ShowStreams,
    ShowViews,
    cascades,
    parse_alter_live,
    parse_alter_stream,
    parse_create_as,
    parse_create_live,
    parse_create_rollup,
    parse_create_view,
    parse_delete,
    parse_drop_live,
    parse_drop_rollup,
    parse_drop_view,
    parse_index_target,
    parse_show_create,
    parse_stream_column,
    parse_truncate,
    parse_update,
)

RETREATS_MAX = 50_000
"""Limit of tokens parsed again by backtracking, plus 50 per token."""

_STATEMENTS = (
    "SELECT", "FROM", "WITH", "VALUES", "CREATE", "DROP", "ALTER", "SHOW", "DESCRIBE", "INSERT",
    "DELETE", "TRUNCATE", "UPDATE", "EXPLAIN",
)  # fmt: skip


class _MethodCall(exp.Expression):  # type: ignore[misc]
    """``.f(y)`` behind an operand or a name, until ``_settled``."""


class Chronicle(DuckDB):  # type: ignore[misc]
    INDEX_OFFSET = 0  # keep subscripts as written

    def to_json_path(self, path: Any) -> Any:
        return path

    class Tokenizer(HeedingTokenizer):
        KEYWORDS = {  # noqa: RUF012
            **DuckDB.Tokenizer.KEYWORDS,
            "/*+": TokenType.HINT,
            "MATCH_RECOGNIZE": TokenType.MATCH_RECOGNIZE,
            "MATCH_SITUATIONS": TokenType.MATCH_RECOGNIZE,
        }
        del KEYWORDS["?::"]  # a parameter that is cast
        COMMANDS: frozenset[Any] = frozenset()  # no unparsed commands

    class Parser(FromParser):
        FUNCTIONS: dict[str, Any] = {}  # noqa: RUF012
        FUNC_TOKENS = {*DuckDB.Parser.FUNC_TOKENS, TokenType.SESSION}  # noqa: RUF012
        FUNCTION_PARSERS = {  # noqa: RUF012
            name: DuckDB.Parser.FUNCTION_PARSERS[name]
            for name in ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "SUBSTRING", "POSITION", "OVERLAY")
        }
        QUERY_MODIFIER_PARSERS = {  # noqa: RUF012
            token: parse
            for token, parse in DuckDB.Parser.QUERY_MODIFIER_PARSERS.items()
            if token != TokenType.MATCH_RECOGNIZE
        }
        QUERY_MODIFIER_TOKENS = set(QUERY_MODIFIER_PARSERS)  # noqa: RUF012
        STATEMENT_PARSERS = {  # noqa: RUF012
            TokenType.CREATE: lambda self: self._parse_create_statement(),
            TokenType.DROP: lambda self: self._parse_drop_statement(),
            TokenType.ALTER: lambda self: (
                parse_alter_live(self) if self._match_text_seq("LIVE") else parse_alter_stream(self)
            ),
            TokenType.SHOW: lambda self: self._parse_show_statement(),
            TokenType.DESCRIBE: lambda self: self._parse_describe_statement(),
            TokenType.DESC: lambda self: self._parse_describe_statement(),
            TokenType.INSERT: lambda self: self._parse_insert(),
            TokenType.DELETE: parse_delete,
            TokenType.TRUNCATE: parse_truncate,
            TokenType.UPDATE: parse_update,
        }

        def raise_error(self, message: str, token: Any = None) -> NoReturn:
            found = token or self._curr or self._prev
            at_end = not token and not self._curr
            error = ParseError(message, errors=[{"description": message}])
            error.offset = None if at_end or found is None else found.start
            error.token = None if at_end or found is None else found
            raise error

        _steps = 0

        def _advance(self, times: int = 1) -> None:
            self._steps += 1
            if not self._steps % STEPS_BETWEEN_CHECKS:
                checkpoint()
            super()._advance(times)

        def _retreat(self, index: int) -> None:
            self._again = getattr(self, "_again", 0) + abs(self._index - index)
            if self._again > RETREATS_MAX + 50 * self._tokens_size:
                self.raise_error("the statement is too involved to be read")
            super()._retreat(index)

        def _parse_placeholder(self) -> Any:
            token = self._curr
            node = super()._parse_placeholder()
            if node is not None and token:
                node.meta["start"] = token.start
            return node

        def _parse_field(
            self, any_token: bool = False, tokens: Any = None, anonymous_func: bool = False
        ) -> Any:
            """Wrap a call behind a dot; sqlglot would copy everything before it each time."""
            dotted = anonymous_func and self._prev.token_type == TokenType.DOT
            field = super()._parse_field(any_token, tokens, anonymous_func)
            if dotted and isinstance(field, (exp.Func, exp.Window)):
                return self.expression(_MethodCall(this=field))
            return field

        # ------------------------------------------------------------ statements

        def _parse_statement(self) -> Any:
            if not self._curr:
                self.raise_error("the statement is empty")
            word = self._curr
            if word.text.upper() == "EXPLAIN":
                self._advance()
                return self._parse_explain_statement()
            if not self._match_set(self.STATEMENT_PARSERS, advance=False):
                starts_query = word.text.upper() in _STATEMENTS or word.token_type in (
                    TokenType.L_PAREN,
                    TokenType.TABLE,
                )
                if not starts_query:
                    hint = did_you_mean(word.text, _STATEMENTS, quoted=False)
                    self.raise_error(
                        f"expected {', '.join(_STATEMENTS)}, found {word.text!r}{hint}",
                        word,
                    )
            return super()._parse_statement()

        def _expect(self, *words: str) -> None:
            for word in words:
                if not self._match_text_seq(word):
                    self.raise_error(f"expected {word}")

        def _name(self, what: str) -> Any:
            token = self._curr
            name = self._parse_id_var(any_token=False)
            if name is None:
                self.raise_error(f"expected the name of {what}")
            if self._curr and self._curr.token_type == TokenType.DOT:
                self.raise_error("names of streams have one part, found a dot")
            if not name.meta.get("start"):
                name.update_positions(token)
            return name

        def _parse_create_statement(self) -> Any:
            if self._match_text_seq("LIVE"):
                return parse_create_live(self)
            if self._match_text_seq("ROLLUP"):
                return parse_create_rollup(self)
            if self._match_text_seq("STREAM"):
                return self._parse_create_stream()
            replace = bool(self._match_text_seq("OR", "REPLACE"))
            if self._match_text_seq("VIEW"):
                return parse_create_view(self, replace=replace)
            if self._match_text_seq("INDEX"):
                exists = bool(self._match_text_seq("IF", "NOT", "EXISTS"))
                stream, column = parse_index_target(self)
                options = self._parse_options("lag_events_max = 100000")
                return self.expression(
                    CreateIndexOn(this=stream, column=column, options=options, exists=exists)
                )
            return self.raise_error(
                "CREATE makes a STREAM, an INDEX, a VIEW, a LIVE QUERY or a ROLLUP here (CREATE "
                f"STREAM s (...) TIMESTAMP BY t; CREATE INDEX ON s (a)), found {self._curr.text!r}"
                if self._curr
                else "expected STREAM, INDEX or VIEW after CREATE"
            )

        def _parse_create_stream(self) -> Any:
            exists = bool(self._match_text_seq("IF", "NOT", "EXISTS"))
            name = self._name("the stream")
            if not self._match(TokenType.L_PAREN):
                return parse_create_as(self, name, exists)
            columns = self._parse_csv(lambda: parse_stream_column(self))
            self._match_r_paren()
            if not self._match_text_seq("TIMESTAMP", "BY"):
                self.raise_error("expected TIMESTAMP BY and the name of the time attribute")
            time = self._name("the time attribute")
            options = self._parse_options("codec = 'zstd'")
            return self.expression(
                CreateStream(this=name, columns=columns, time=time, options=options, exists=exists)
            )

        def _parse_options(self, example: str) -> list[Any]:
            if not self._match_text_seq("WITH"):
                return []
            return self._options_in_parentheses(f"WITH ({example})")

        def _options_in_parentheses(self, example: str) -> list[Any]:
            if not self._match(TokenType.L_PAREN):
                self.raise_error(f"expected the options in parentheses: {example}")
            options: list[Any] = self._parse_csv(self._parse_option)
            self._match_r_paren()
            return options

        def _parse_option(self) -> Any:
            name = self._parse_id_var(any_token=True)
            if name is None:
                self.raise_error("expected an option such as codec = 'zstd'")
            if not self._match(TokenType.EQ):
                self.raise_error(f"expected = after the option {name.name!r}")
            value = self._parse_primary() or self._parse_var(any_token=True)
            if value is None:
                self.raise_error(f"expected the value of the option {name.name!r}")
            return self.expression(exp.EQ(this=name, expression=value))

        def _parse_drop_statement(self) -> Any:
            if self._match_text_seq("LIVE"):
                return parse_drop_live(self)
            if self._match_text_seq("ROLLUP"):
                return parse_drop_rollup(self)
            if self._match_text_seq("STREAM"):
                exists = bool(self._match_text_seq("IF", "EXISTS"))
                name = self._name("the stream")
                return self.expression(DropStream(this=name, exists=exists, cascade=cascades(self)))
            if self._match_text_seq("VIEW"):
                return parse_drop_view(self)
            if self._match_text_seq("INDEX"):
                exists = bool(self._match_text_seq("IF", "EXISTS"))
                stream, column = parse_index_target(self)
                return self.expression(DropIndexOn(this=stream, column=column, exists=exists))
            return self.raise_error("expected STREAM, INDEX, VIEW, LIVE QUERY or ROLLUP after DROP")

        def _parse_show_statement(self) -> Any:
            if self._match_texts(("STREAMS", "TABLES")):
                return self.expression(ShowStreams())
            if self._match_texts(("INDEXES", "INDICES")):
                stream = self._name("the stream") if self._match_text_seq("ON") else None
                return self.expression(ShowIndexes(this=stream))
            if self._match_text_seq("LIVE"):
                self._expect("QUERIES")
                return self.expression(ShowLive())
            if self._match_text_seq("VIEWS"):
                return self.expression(ShowViews())
            if self._match_text_seq("CREATE"):
                return parse_show_create(self)
            if self._match_text_seq("ROLLUPS"):
                return self.expression(ShowRollups())
            return self.raise_error(
                "expected STREAMS, INDEXES, VIEWS, LIVE QUERIES or ROLLUPS after SHOW"
            )

        def _parse_describe_statement(self) -> Any:
            if self._match_text_seq("LIVE", "QUERY"):
                return self.expression(DescribeLive(this=self._name("the live query")))
            if self._describes_rollup():
                return self.expression(DescribeRollup(this=self._name("the roll-up")))
            self._match_texts(("STREAM", "TABLE", "VIEW"))
            start = self._curr.text.upper() if self._curr else ""
            if start in ("SELECT", "WITH", "FROM", "VALUES") or (
                self._curr and self._curr.token_type == TokenType.L_PAREN
            ):
                return self.expression(DescribeStream(this=super()._parse_statement()))
            return self.expression(DescribeStream(this=self._name("the stream")))

        def _describes_rollup(self) -> bool:
            return bool(self._next) and bool(self._match_text_seq("ROLLUP"))

        def _parse_explain_statement(self) -> Any:
            if self._match_text_seq("LIVE", "QUERY"):
                return self.expression(ExplainLive(this=self._name("the live query")))
            analyze = bool(self._match_text_seq("ANALYZE"))
            token = self._curr
            inner = self._parse_statement()
            if not isinstance(inner, (exp.Query, exp.Values)):
                self.raise_error("EXPLAIN explains queries", token or None)
            return self.expression(Explain(this=inner, analyze=analyze))


# ------------------------------------------------------------------------------- reading


def parse_statement(text: str) -> Any:
    """Parse one statement into a query, VALUES, Insert or StatementNode; raises SqlError."""
    statements = [node for node in _parse(text, None) if node is not None]
    if not statements:
        raise SqlError("the statement is empty; write for example SELECT * FROM a_stream", 1, 1)
    if len(statements) > 1:
        offset = _second_statement(text)
        raise error_at(text, offset, "one statement at a time: a second one follows the first")
    return statements[0]


def parse_predicate(text: str) -> Any:
    nodes = _parse(text, exp.Condition)
    if len(nodes) != 1 or nodes[0] is None:
        raise SqlError("expected one condition such as x > 5 AND y IS NOT NULL", 1, 1)
    return nodes[0]


def _parse(text: str, into: Any) -> list[Any]:
    measure(text)
    try:
        with headroom(text):
            read = _DIALECT.parse(text) if into is None else _DIALECT.parse_into(into, text)
            return [None if node is None else _settled(node, text) for node in read]
    except ParseError as error:
        raise _parse_error(text, error) from None
    except TokenError as error:
        raise _token_error(text, error) from None
    except RecursionError:
        raise SqlError("the statement is nested too deeply") from None


_DOT = re.compile(r"\.(?!\d)")


def _settled(root: Any, text: str) -> Any:
    """Replace method calls by plain calls, and balance long chains."""
    dotted = {}
    if _DOT.search(text):
        dotted = {id(call.parent): call.parent for call in root.find_all(_MethodCall)}
    for node in dotted.values():
        if isinstance(node, (exp.Dot, exp.Column)):
            made = _called(node)
            if node is root:
                root = made
            else:
                node.replace(made)
    return balanced(root, text)


def _called(node: Any) -> Any:
    """``a.b.f(x).c`` as the field c of the call f(a.b, x)."""
    names: list[Any] = []
    made: Any = None
    if isinstance(node, exp.Dot):
        made, parts = node.this, [node.expression]
    else:
        parts = [node.args.get(key) for key in ("catalog", "db", "table", "this")]
    for part in parts:
        if isinstance(part, _MethodCall):
            made = _column(names) if made is None else made
            call = part.this.this if isinstance(part.this, exp.Window) else part.this
            call.set("expressions", [made, *call.expressions])  # x.f(y) is f(x, y)
            made = part.this
        elif made is not None:
            made = exp.Dot(this=made, expression=part)
        elif part is not None:
            names.append(part)
    return made


def _column(names: list[Any]) -> Any:
    column = exp.column(*reversed(names), copy=False)
    starts = [name.meta["start"] for name in names if "start" in name.meta]
    if starts:
        column.meta["start"] = min(starts)
    return column


def _parse_error(text: str, error: Any) -> SqlError:
    cause = error
    while cause is not None and not hasattr(cause, "offset"):
        cause = cause.__cause__
    if cause is None:
        return SqlError(str(error), 1, 1)
    message, token = str(cause), cause.token
    if cause.offset is None:
        offset = len(text.rstrip())
        if not message.startswith(("expected", "the statement", "CREATE")):
            message = "the statement ends too early"
            if str(cause).startswith("Expecting"):
                message += f": {str(cause).replace('Expecting', 'expected')}"
        return error_at(text, offset, message)
    if "Unexpected token" in message or message.startswith("Expected table name but got"):
        message = f"did not expect {token.text!r} here"
    elif message.startswith("Required keyword"):
        message = f"something is missing near {token.text!r}"
    elif message.startswith("Expecting"):
        message = f"{message.replace('Expecting', 'expected')}, found {token.text!r}"
    return error_at(text, cause.offset, message)


def _token_error(text: str, error: Any) -> SqlError:
    inner = str(error.__cause__ or error)
    missing = re.search(r"Missing (.+) from (\d+):(\d+)", inner)
    for opening, closing in (("/*", "*/"), ((missing.group(1) if missing else "'"),) * 2):
        offset = _open_quote(text, opening)
        if offset is not None:
            what = "comment" if opening == "/*" else "text"
            return error_at(text, offset, f"this {what} is never closed: expected {closing}")
    return error_at(text, error.start or 0, "this cannot be read as SQL")


def _open_quote(text: str, opening: str) -> int | None:
    pattern = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)
    rest = pattern.sub(lambda match: " " * len(match.group()), text)
    offset = rest.find(opening)
    return offset if offset >= 0 else None


def _second_statement(text: str) -> int:
    tokens = _DIALECT.tokenize(text)
    for position, token in enumerate(tokens[:-1]):
        if token.token_type == TokenType.SEMICOLON:
            return int(tokens[position + 1].start)
    return 0


# ----------------------------------------------------------------------------- positions


def error_at(text: str, offset: int | None, message: str) -> SqlError:
    """A ``SqlError`` at an offset of the text; None for no position."""
    return SqlError(message) if offset is None else position_error(message, text, offset)


def error_on(text: str, node: Any, message: str) -> SqlError:
    """A ``SqlError`` at a node of the text's tree."""
    return error_at(text, position_of(node), message)


def position_of(node: Any) -> int | None:
    """Offset of a node's first token; None if unknown."""
    offsets = [
        part.meta["start"] for part in node.walk() if part is not None and "start" in part.meta
    ]
    return min(offsets) if offsets else None


def tokens_of(text: str) -> list[Any]:
    try:
        return list(_DIALECT.tokenize(text))
    except TokenError:
        return []


def token_offset(text: str, name: str) -> int | None:
    """Offset of the first token equal to a name, ignoring case; None without one."""
    folded = name.lower()
    return next((int(t.start) for t in tokens_of(text) if t.text.lower() == folded), None)


def to_text(node: Any, text: str | None = None) -> str:
    """Render a tree as SQL for the executor; SqlError with position for unsupported nodes."""
    try:
        return render(node)
    except Refused as error:
        offset = None
        if text is not None:
            offset = token_offset(text, error.token) if error.token else None
            node = error.node
            while offset is None and node is not None and not isinstance(node, exp.Query):
                offset, node = position_of(node), node.parent
        raise error_at(text or "", offset, f"{error.message} (see docs/sql.md)") from None
    except RecursionError:
        raise SqlError("the statement is nested too deeply") from None


if not str(parser.__file__).endswith(".py"):
    raise MissingDependency(
        "Chronicle extends sqlglot's parser, which sqlglot's compiled build does not allow: remove "
        "that build (`pip uninstall sqlglotc`); sqlglot itself stays"
    )
_DIALECT = Chronicle()


_SILENT = ("hint", "comments", "_type")


def canonical(node: Any) -> str:
    if isinstance(node, exp.Paren):
        return canonical(node.this)
    if isinstance(node, exp.Identifier):
        return f"'{str(node.this).lower()}'"
    if isinstance(node, exp.Literal):
        return repr(str(node.this)) if node.is_string else str(node.this)
    if isinstance(node, exp.Expression | exp.Expr):
        return _canonical_node(node, _SILENT)
    if isinstance(node, list):
        return f"[{', '.join(canonical(part) for part in node)}]"
    return str(node).lower()


def _canonical_node(node: Any, silent: tuple[str, ...]) -> str:
    parts = [
        f"{key}={_value(node, key, value)}"
        for key, value in sorted(node.args.items())
        if key not in silent and value not in (None, False, [])
    ]
    return f"{type(node).__name__}({', '.join(parts)})"


def _value(node: Any, key: str, value: Any) -> str:
    if isinstance(node, MatchRecognize) and key == "pattern":
        return describe(parse_pattern(value.name))
    if isinstance(node, exp.Anonymous) and key == "this":
        return str(value).lower()
    return canonical(value)


def canonical_pattern(source: str, clause: Any) -> str:
    """The canonical text of MATCH_RECOGNIZE over a source, without measures."""
    return f"{source} {_canonical_node(clause, (*_SILENT, 'measures', 'alias', 'rows'))}"

"""Parsing of statements on live queries and roll-ups, one node each::

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
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp

from .statement_nodes import AlterLive, CreateLive, CreateRollup, DropLive, DropRollup

__all__ = [
    "parse_alter_live",
    "parse_create_live",
    "parse_create_rollup",
    "parse_drop_live",
    "parse_drop_rollup",
]


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
    said: dict[str, Any] = {}
    while True:
        token = parser._curr
        word = token.text.upper() if token else ""
        read = known.get(word)
        if read is None:
            break
        if word in said:
            parser.raise_error(f"{word} was said already", token)
        parser._advance()
        said[word] = read(parser)
    options = parser._parse_options("retention = '30 days'")
    if not parser._match_text_seq("AS"):
        listed = ", ".join(known)
        parser.raise_error(f"expected AS and the SELECT, or one of {listed}, WITH before it")
    token = parser._curr
    query = parser._parse_statement() if token else None
    if not isinstance(query, exp.Query):
        parser.raise_error(f"a {what} is a SELECT", token or None)
    late, correct_for = said.get("LATE", (None, None))
    made = kind(
        this=name,
        query=query,
        into=said.get("INTO"),
        start=said.get("START"),
        delay=said.get("DELAY"),
        idle=said.get("IDLE"),
        late=late,
        correct_for=correct_for,
        every=said.get("EMIT"),
        options=options,
        exists=exists,
    )
    made.meta["query"] = token.start
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
    "INTO": _into,
    "START": _start,
    "DELAY": _delay,
    "IDLE": _idle,
    "LATE": _late,
    "EMIT": _emit,
}

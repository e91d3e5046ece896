"""Pattern text, tree, program and automaton, each stage by itself."""

from __future__ import annotations

import pytest

from chronicle.errors import ResourceLimit, SqlError
from chronicle.query.pattern.automaton import ACCEPT, ANCHOR_START, build_automaton
from chronicle.query.sql.pattern_tree import (
    Quantified,
    Variable,
    describe,
    parse_pattern,
    variables,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("A B+ C*? {- D -} E{2,3}? | ^ F $", "A B+ C*? {- D -} E{2,3}? | ^ F $"),
        ("permute(a, B | c)", "PERMUTE(A, B | C)"),
        ('"a b" A{,3} (A B){2} A{4,}', '"a b" A{0,3} (A B){2} A{4,}'),
        ("A [^X, ]".replace(",", ""), "A [^X]"),
        ("()", "()"),
        ("A?? B", "A?? B"),
        ("A -- comment\n B /* other */", "A B"),
    ],
)
def test_text_round_trips(text: str, shown: str) -> None:
    tree = parse_pattern(text)
    assert describe(tree) == shown
    assert parse_pattern(describe(tree)) == tree


def test_quantifier_bounds() -> None:
    assert parse_pattern("A{3}") == Quantified(Variable("A"), 3, 3)
    assert parse_pattern("A{3,}?") == Quantified(Variable("A"), 3, None, greedy=False)
    assert variables(parse_pattern("B A (B | C)")) == ("B", "A", "C")


@pytest.mark.parametrize(
    ("text", "message", "line", "column"),
    [
        ("A**", "a quantifier follows a quantifier", 1, 3),
        ("A |\n", "expected a pattern variable", 2, 1),
        ("{- A", "expected '-}'", 1, 5),
        ("A{3,2}", "reversed", 1, 2),
        ("A{0}", "at least 1", 1, 2),
        ("*", "something to repeat", 1, 1),
        ("A\n  %", "unexpected '%'", 2, 3),
        ("A{99999999}", "may go to", 1, 3),
        ("A )", "unexpected ')'", 1, 3),
    ],
)
def test_errors_point_at_their_place(text: str, message: str, line: int, column: int) -> None:
    with pytest.raises(SqlError, match=message.replace("(", r"\(").replace(")", r"\)")) as caught:
        parse_pattern(text)
    assert (caught.value.line, caught.value.column) == (line, column)


def test_positions_stand_in_the_order_of_the_pattern() -> None:
    automaton = build_automaton(parse_pattern("A D+ {- U -}?"))
    assert automaton.names == ("", "A", "D", "U")
    assert automaton.excluded == (False, False, False, True)


def edges(text: str) -> list[list[int]]:
    automaton = build_automaton(parse_pattern(text))
    return [[edge.target for edge in position] for position in automaton.edges]


def test_edges_keep_the_preference_order() -> None:
    assert edges("A B* C") == [[1], [2, 3], [2, 3], [ACCEPT]]
    assert edges("A B*? C") == [[1], [3, 2], [3, 2], [ACCEPT]]
    assert edges("A | B C") == [[1, 2], [ACCEPT], [3], [ACCEPT]]
    assert edges("(A*)*") == [[1, ACCEPT], [1, ACCEPT]]
    assert edges("(A??)* B") == [[2, 1], [2, 1], [ACCEPT]]


def test_length_and_anchors() -> None:
    automaton = build_automaton(parse_pattern("^ A B{2,4} (C | D)?"))
    assert automaton.length_max == 6
    assert all(edge.anchor & ANCHOR_START for edge in automaton.edges[0])
    assert build_automaton(parse_pattern("A B*")).length_max is None
    assert build_automaton(parse_pattern("A*")).empty_match


@pytest.mark.parametrize("text", ["A{100000}", "((A{1000}){1000})", "PERMUTE(A,B,C,D,E,F,G,H,I)"])
def test_what_grows_too_large_is_refused(text: str) -> None:
    with pytest.raises(ResourceLimit):
        build_automaton(parse_pattern(text))

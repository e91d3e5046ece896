"""Statements at random against a running server: each may cost its own answer and nothing else.

:mod:`.target` says how to run it for long.
"""

from __future__ import annotations

import random
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from chronicle.tests.fuzz.border_streams import TYPES, over
from chronicle.tests.fuzz.grammar import Grammar
from chronicle.tests.fuzz.target import CLIENTS, Target, pieces

BETWEEN_CANARIES = 100


def test_a_statement_costs_at_most_its_own_answer(tmp_path: Path) -> None:
    with Target(tmp_path) as target, ThreadPoolExecutor(CLIENTS) as clients:
        asked = answered = 0
        for number, size in pieces("statements", target):
            grammar = Grammar(number, borders=True)
            statements = [grammar.statement() for _ in range(size)]
            for at in range(0, size, BETWEEN_CANARIES):
                batch = statements[at : at + BETWEEN_CANARIES]
                answered += sum(reply.status == 200 for reply in clients.map(target.query, batch))
                target.canaries("\n    ".join(batch))
            asked += size
    assert not target.faults, "\n".join(map(str, target.faults))
    assert answered > asked // 10, "hardly any statement runs: the grammar is stale"


def test_the_grammar_repeats_itself_for_a_seed() -> None:
    one, other, third = Grammar(1), Grammar(1), Grammar(2)
    texts = [one.statement() for _ in range(50)]
    assert texts == [other.statement() for _ in range(50)]
    assert texts != [third.statement() for _ in range(50)]


@pytest.mark.parametrize("name", TYPES)
def test_statements_over_a_border_stream_read_no_other(name: str) -> None:
    rng = random.Random(0)
    for statement in (
        "SELECT x FROM s WHERE s.t > 3 AND EXISTS (SELECT 1 FROM s o WHERE o.t = s.t)",
        "SELECT count(*) FROM HOP(s, t, 3, 10) AS s GROUP BY k",
        "SELECT m FROM s MATCH_RECOGNIZE (ORDER BY t PATTERN (A B) WITHIN 10) AS s",
        "SELECT 1 FROM s ASOF JOIN s o USING (t)",
        "INSERT INTO s SELECT * FROM s",
    ):
        text = over(name, statement, rng)
        assert not re.search(r"(FROM|JOIN|INTO) s\b|\(s,", text), text
        assert name in text

"""Statements at random against a running server: each may cost its own answer and nothing else.

``CHRONICLE_FUZZ=100000 CHRONICLE_SEED=7`` is the long run (``make nightly``).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from chronicle.tests.fuzz.attacks import OPEN
from chronicle.tests.fuzz.grammar import Grammar
from chronicle.tests.fuzz.target import COUNT, NIGHTLY, Target, seed

CLIENTS = 1 if COUNT < 10_000 else 4
BETWEEN_CANARIES = 50


@pytest.mark.xfail(bool(OPEN), run=NIGHTLY, reason="attacks of the corpus work still")
@pytest.mark.timeout(0 if COUNT > 1000 else 300)
def test_a_statement_costs_at_most_its_own_answer(tmp_path: Path) -> None:
    grammar = Grammar(seed())
    with Target(tmp_path) as target, ThreadPoolExecutor(CLIENTS) as clients:
        answered = 0
        for _ in range(0, COUNT, BETWEEN_CANARIES):
            batch = [grammar.statement() for _ in range(BETWEEN_CANARIES)]
            answered += sum(reply.status == 200 for reply in clients.map(target.query, batch))
            target.canaries("\n    ".join(batch))
    assert not target.faults, "\n".join(map(str, target.faults))
    assert answered > COUNT // 10, "hardly any statement runs: the grammar is stale"


def test_the_grammar_repeats_itself_for_a_seed() -> None:
    one, other, third = Grammar(1), Grammar(1), Grammar(2)
    texts = [one.statement() for _ in range(50)]
    assert texts == [other.statement() for _ in range(50)]
    assert texts != [third.statement() for _ in range(50)]

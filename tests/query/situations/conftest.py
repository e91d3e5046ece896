"""Clauses of situations without a database around them."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from chronicle.query.pattern.compiled import InputColumns
from chronicle.query.situations.compiled import CompiledSituations, compile_situations
from chronicle.query.sql.dialect import parse_statement
from chronicle.query.sql.situation_clause import situation_clause
from chronicle.query.sql.statement_clauses import SituationRelation


@pytest.fixture(scope="session")
def compiled() -> Callable[[str, pa.Schema], CompiledSituations]:
    """The clause ``MATCH_SITUATIONS (...)`` over columns whose time is ``t``."""

    def compile_(text: str, schema: pa.Schema) -> CompiledSituations:
        tree = parse_statement(f"SELECT * FROM s MATCH_SITUATIONS ({text})")
        node = tree.find(SituationRelation).args["match"]
        return compile_situations(situation_clause(node), InputColumns(schema, "t"))

    return compile_

"""Tokenizer that checks the query's limits on the way, as the longest texts take seconds."""

from __future__ import annotations

from typing import Any

from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenizerCore

from ...errors import ChronicleError
from ..contract.cancellation import checkpoint

__all__ = ["STEPS_BETWEEN_CHECKS", "HeedingTokenizer"]

STEPS_BETWEEN_CHECKS = 1 << 8


class _HeedingCore(TokenizerCore):  # type: ignore[misc]
    __slots__ = ("_steps",)

    def __init__(self, plain: TokenizerCore) -> None:
        for name in TokenizerCore.__slots__:
            setattr(self, name, getattr(plain, name))
        self._steps = 0

    def _advance(self, i: int = 1, alnum: bool = False) -> None:
        self._steps += 1
        if not self._steps % STEPS_BETWEEN_CHECKS:
            checkpoint()
        super()._advance(i, alnum)


class HeedingTokenizer(DuckDB.Tokenizer):  # type: ignore[misc]
    def _init_core(self) -> TokenizerCore:
        return _HeedingCore(super()._init_core())

    def tokenize(self, sql: str) -> list[Any]:
        try:
            tokens: list[Any] = super().tokenize(sql)
        except TokenError as error:
            if isinstance(error.__cause__, ChronicleError):
                raise error.__cause__ from None
            raise
        return tokens

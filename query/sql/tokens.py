"""Cutting a text into tokens, under the limits of the query that asks.

Purpose
    sqlglot cuts a whole text into tokens in one call, which takes a second or two for a text as
    long as one may be.  :class:`HeedingTokenizer` asks the query's control on the way.

Guarantee
    Between two checks the tokenizer goes :data:`STEPS_BETWEEN_CHECKS` steps at most, whatever the
    text holds: names, comments and line ends are all passed by the same method.

Limits
    sqlglot takes every exception on its way for a text that cannot be read; what a check raised is
    given on as it was.
"""

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
    """The loop over characters, with a check now and then."""

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
    """DuckDB's tokens; see the module."""

    def _init_core(self) -> TokenizerCore:
        return _HeedingCore(super()._init_core())

    def tokenize(self, sql: str) -> list[Any]:
        """Cut a text into tokens; raises what :func:`~..contract.cancellation.checkpoint` does."""
        try:
            tokens: list[Any] = super().tokenize(sql)
        except TokenError as error:
            if isinstance(error.__cause__, ChronicleError):
                raise error.__cause__ from None
            raise
        return tokens

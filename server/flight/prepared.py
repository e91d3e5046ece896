"""Prepared statements: checked, not run; kept for ``IDLE_S`` after their last use, for the token
that prepared them, and counted against its upload memory.  Parameter types are unknown before
binding (Arrow's ``null``, as in ADBC); columns are those with NULL parameters.  A query takes one
row of parameters; ``INSERT ... VALUES (?, ...)`` any number.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ...errors import ChronicleError, InvalidArgument
from ...query.sql.many_rows import as_columns
from ...query.sql.parameters import names_in
from ..access.limits import ByteAccount
from ..access.statement_rights import authorize, visible_to
from ..http.problems import Problem
from ..service.audit import STATEMENT
from ..service.state import Server
from .calls import Call
from .statements import Params, Statements

__all__ = ["Prepared", "PreparedStatements", "Rows"]

IDLE_S = 600.0
KEPT_BYTES = 1024

Rows = list[dict[str, Any]]


@dataclass
class Prepared:
    """``names`` are the parameters ("1", "2" if positional), ``bound`` those of the next run."""

    text: str
    owner: Any
    names: list[str]
    account: ByteAccount
    release: contextlib.ExitStack
    bound: Rows = field(default_factory=list)
    used: float = field(default_factory=time.monotonic)

    def bind(self, rows: Rows) -> None:
        if len(rows) > 1:
            raise InvalidArgument(f"a query takes one row of parameters, found {len(rows)}")
        self.bound = rows

    @property
    def params(self) -> Params:
        if not self.names and not self.bound:
            return None
        if not self.bound:
            named = ", ".join(f"${name}" for name in self.names)
            raise InvalidArgument(f"no values were bound for the parameters {named}")
        return self._values(self.bound[0])

    @property
    def nothing(self) -> Params:
        return self._values(dict.fromkeys(self.names)) if self.names else None

    def each(self, rows: Rows) -> tuple[str, Params] | None:
        if not rows:
            return (self.text, None) if not self.names else None
        if len(rows) == 1:
            return self.text, self._values(rows[0])
        many = as_columns(self.text, [list(row.values()) for row in rows])
        if many is None:
            raise InvalidArgument(
                f"INSERT INTO stream (...) VALUES (?, ...) takes several rows of parameters, found "
                f"{len(rows)} for another statement; run it for each"
            )
        return many

    def _values(self, row: dict[str, Any]) -> Params:
        if all(name.isdigit() for name in self.names):
            return list(row.values())
        return {name.removeprefix("$"): value for name, value in row.items()}


class PreparedStatements:
    def __init__(self, server: Server, statements: Statements) -> None:
        self._server = server
        self._statements = statements
        self._kept: dict[bytes, Prepared] = {}

    async def make(self, call: Call, text: str) -> tuple[bytes, pa.Schema | None, pa.Schema]:
        """Prepare a statement: handle, schema of its rows if any, schema of its parameters."""
        self._forget_idle()
        call.scope[STATEMENT] = text
        server, principal = self._server, call.principal

        def look() -> tuple[str, list[str]]:
            access = server.database.access(text, visible_to(principal))
            authorize(principal, access)
            return access.scope, sorted(names_in(text), key=_place)

        async with server.queries.held(principal.client):
            scope, names = await server.call(look)
        release = contextlib.ExitStack()
        account = release.enter_context(server.uploads.account(principal.client))
        prepared = Prepared(text, principal.token, names, account, release)
        try:
            account.hold(len(text) + KEPT_BYTES)
            schema = await self._rows_of(call, prepared) if scope == "read" else None
        except BaseException:
            release.close()
            raise
        handle = secrets.token_bytes(16)
        self._kept[handle] = prepared
        return handle, schema, pa.schema([pa.field(name, pa.null()) for name in names])

    async def _rows_of(self, call: Call, prepared: Prepared) -> pa.Schema | None:
        try:
            return await self._statements.schema(call, prepared.text, prepared.nothing)
        except ChronicleError:
            if not prepared.names:
                raise
            return None  # a NULL may be the cause, as in LIMIT ?

    def find(self, call: Call, handle: bytes) -> Prepared:
        prepared = self._kept.get(handle)
        if prepared is None or prepared.owner != call.principal.token:
            raise Problem("not-found", 404, "there is no such prepared statement; prepare it again")
        prepared.used = time.monotonic()
        return prepared

    def close(self, call: Call, handle: bytes) -> None:
        prepared = self._kept.get(handle)
        if prepared is not None and prepared.owner == call.principal.token:
            self._forget(handle)

    def close_all(self) -> None:
        for handle in list(self._kept):
            self._forget(handle)

    def _forget(self, handle: bytes) -> None:
        self._kept.pop(handle).release.close()

    def _forget_idle(self) -> None:
        oldest = time.monotonic() - IDLE_S
        for handle, prepared in list(self._kept.items()):
            if prepared.used < oldest:
                self._forget(handle)


def _place(name: str) -> tuple[int, str]:
    return (int(name), "") if name.isdigit() else (0, name)

"""Opens the statements of clients.  A statement is authorized by the objects that it binds to,
before it runs.  A drop or rename forgets what the server holds for the stream, and requests that
fail meanwhile say why.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ..access.auth import Principal
from ..access.statement_rights import authorize, visible_to
from .running_queries import RunningQuery
from .state import Server

if TYPE_CHECKING:
    from ...query.contract.access import Access
    from ...query.contract.result import Result

__all__ = ["open_statement"]


def open_statement(
    server: Server,
    principal: Principal,
    query: RunningQuery,
    text: str,
    params: dict[str, Any] | list[Any] | None,
    timeout: float,
    *,
    read_only: bool = False,
) -> Result:
    dropped: list[str] = []
    with contextlib.ExitStack() as dropping:

        def allowed(access: Access) -> None:
            authorize(principal, access)
            gone = access.kind == "DropStream" or access.renamed is not None
            if gone and access.target is not None:
                dropping.enter_context(server.drops.dropping(access.target))
                dropped.append(access.target)

        result = server.database.sql(
            text,
            params,
            timeout,
            read_only=read_only,
            cancellation=query.cancellation,
            visible=visible_to(principal),
            allowed=allowed,
            tell=server.tell(principal),
        )
    for name in dropped:
        server.forget_stream(name)
    return result

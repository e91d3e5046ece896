"""The route of views.  A view is listed for clients that may read it by its name, as in ``SHOW
VIEWS``.  Its columns are those of its creation; ``DESCRIBE`` gives the present ones.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from ...formats import name_of_type
from ..access.auth import Requester
from ..access.statement_rights import visible_to
from ..http.responses import reply
from ..service.state import server_of

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["streams"])


@router.get("/views", summary="List the views")
async def list_views(request: Request, principal: Requester) -> Response:
    """The views within the token's reach: their queries and columns."""
    principal.require("read")
    server = server_of(request)
    visible = visible_to(principal) or (lambda _: True)

    def listed() -> list[dict[str, Any]]:
        return [
            {
                "name": view.name,
                "sql": view.sql,
                "reads": [name for name in view.sources if visible(name)],
                "schema": [
                    {
                        "name": field.name,
                        "type": str(field.type),
                        "sql_type": name_of_type(field.type),
                        "nullable": field.nullable,
                    }
                    for field in view.columns
                ],
            }
            for view in server.database.views().values()
            if visible(view.name)
        ]

    return reply({"views": await server.read(principal.client, listed)})

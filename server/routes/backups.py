"""The route of backups: those below ``CHRONICLE_BACKUP_DIRECTORY``.  It shows all streams, so it
needs ``operate`` on all of them.  ``chronicle backups`` lists any other directory or address.
"""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, Request, Response

from ...errors import Forbidden
from ...store.backups import is_address, list_backups
from ..access.auth import Requester
from ..http.responses import reply
from ..service.state import server_of

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["jobs"])


@router.get("/backups", summary="List backups")
async def backups(request: Request, principal: Requester) -> Response:
    """When each was made and what it holds, oldest first; unfinished ones last."""
    principal.require("operate")
    if not principal.everywhere:
        raise Forbidden("to list backups takes the scope 'operate' on all streams")
    server = server_of(request)
    place = server.settings.backup_directory
    there = place is not None and (is_address(place) or Path(place).is_dir())
    found = await server.call(list_backups, place) if there else []
    told = [each.to_json() for each in found]
    return reply({"configured": place is not None, "backups": told})

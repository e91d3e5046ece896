"""``GET /v1/streams/{stream}/tail``: follow a stream.  ``api/tailing.py`` defines order and
positions, ``service.feeds`` the formats.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response

from ...api.tailing import Tail
from ...errors import ReadOnlyStore
from ...query.contract.cancellation import QueryControl
from ...store import EventStream
from ..access.auth import Principal, Requester
from ..access.statement_rights import check_predicate
from ..http.negotiation import feed_format
from ..http.request_head import PathName
from ..service.feeds import Feed, TailFeed, format_of
from ..service.running_queries import RunningQuery
from ..service.state import server_of
from .following import send_feed
from .parameters import Columns, FeedFormatName, Follow, Int64AsString, Marks, column_names

__all__ = ["router"]

router = APIRouter(prefix="/v1/streams/{stream}", tags=["followers"])


@router.get("/tail", summary="Follow a stream")
async def tail(
    request: Request,
    principal: Requester,
    stream: PathName,
    after: Annotated[
        str, Query(description="now, the version of a commit (0: the beginning), or the last id.")
    ] = "now",
    where: Annotated[
        str | None, Query(description="SQL predicate, such as altitude > 10000.")
    ] = None,
    columns: Columns = None,
    format: FeedFormatName = None,
    follow: Follow = True,
    marks: Marks = False,
    int64_as_string: Int64AsString = False,
    last_event_id: Annotated[
        str | None, Header(description="The last id that was read; wins over `after`.")
    ] = None,
) -> Response:
    """Events as they are committed: server-sent events, NDJSON or an Arrow stream."""
    server = server_of(request)
    name = feed_format(request)

    def allowed(asking: Principal) -> None:
        asking.require("read", stream)

    def open_feed(query: RunningQuery) -> tuple[Feed, EventStream]:
        found = server.database.stream(stream)
        handle = found.handle
        if not isinstance(handle, EventStream):
            raise ReadOnlyStore(
                "the store is open for reading here, and commits are told where they are made; "
                "follow the stream through the server that writes"
            )
        if where is not None:
            check_predicate(where)
        told = Tail(
            server.database,
            handle,
            (last_event_id or "").strip() or after.strip() or "now",
            where,
            column_names(columns),
            control=QueryControl(cancellation=query.cancellation),
        )
        form = format_of(name, told.schema, marks=marks, int64_as_string=int64_as_string)
        return TailFeed(told, form), handle

    text = f"tail of {stream}" + (f" where {where}" if where else "")
    return await send_feed(
        request, principal, "tail", text, open_feed, follow=follow, allowed=allowed
    )

"""``chronicle mcp``: the tools for language models over stdin and stdout."""

from __future__ import annotations

from .connection import Connection
from .options import connected

__all__ = ["mcp"]


@connected
def mcp(connection: Connection) -> None:
    """Serve the Model Context Protocol on stdin and stdout: tools that read, for an agent.

    A store is opened for reading, beside the process that writes; for --url take a token with the
    scope read.
    """
    from ..agents.tools import tools_over

    with connection.open() as database:
        tools_over(database).run("stdio")

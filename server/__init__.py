"""The REST face: FastAPI around an open database, served by one Uvicorn process.

``serve(settings)`` is the process, ``create_app(database, settings)`` the ASGI application alone.
Reading order::

    what goes wrong   problems  replies  jsonable
    a connection      protocol  door  logs  edge
    who may           settings  places  tokens  guard  statements
    how much          limits  metrics  pipe
    what is asked     specs  negotiation  encoding  parameters
    a body in         bodies  parsing  ordering
    what is kept      key_log  idempotency  snapshots  positions  transactions  drops  running
                      probe  state
    rows out          answers  reading
    routes            service_routes  stream_routes  event_routes  query_routes  position_routes
                      transaction_routes
    the process       app  listening  warmup  run

Names are imported when asked for: managing tokens must not load a web framework.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = [
    "Settings",
    "create_app",
    "create_token",
    "list_tokens",
    "load_settings",
    "revoke_token",
    "serve",
]

_HOMES = {
    "Settings": "settings",
    "create_app": "app",
    "create_token": "tokens",
    "list_tokens": "tokens",
    "load_settings": "settings",
    "revoke_token": "tokens",
    "serve": "run",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{home}", __name__), name)

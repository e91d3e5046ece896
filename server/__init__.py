"""The REST face: FastAPI around an open database, served by one Uvicorn process.

``serve(settings)`` is the process, ``create_app(database, settings)`` the ASGI application alone.
Reading order, bottom up; each folder imports only those above it in this list::

    http           what HTTP says: errors, JSON, addresses, formats, bytes on their way
    access         who may do what, and how much at once: settings, tokens, limits
    service        what requests share: bodies, idempotency, transactions, metrics, the state
    routes         a module for each kind of route
    flight         a second door: Flight SQL, over gRPC
    the process    logs  http_protocol  api_document  app  listening  run

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
    "revoke_all_tokens",
    "revoke_token",
    "rotate_token",
    "serve",
]

_HOMES = {
    "Settings": "access.settings",
    "create_app": "app",
    "create_token": "access.tokens",
    "list_tokens": "access.tokens",
    "load_settings": "access.settings",
    "revoke_all_tokens": "access.tokens",
    "revoke_token": "access.tokens",
    "rotate_token": "access.tokens",
    "serve": "run",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{home}", __name__), name)

"""The HTTP server: Starlette and FastAPI around an open database, served by one Uvicorn process.

Names are imported lazily: managing tokens must not load a web framework.  Reading order, bottom up;
a folder imports only those above it::

    http           errors, JSON, headers and content negotiation
    access         settings, tokens, rights, limits
    service        state that requests share, and services over it
    routes         a module for each kind of route
    flight         Flight SQL over gRPC
    the process    app  run (log, connections, start and stop)
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

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


__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{home}", __name__), name)

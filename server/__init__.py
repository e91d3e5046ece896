"""The REST face: FastAPI around an open database, served by one Uvicorn process.

``serve(settings)`` is the process, ``create_app(database, settings)`` the ASGI application alone.
Reading order: ``problems.py`` (errors), ``protocol.py`` and ``door.py`` (what a request looks
like), ``guard.py``, ``tokens.py`` and ``statements.py`` (who may), ``limits.py`` and ``bodies.py``
(how much, how slowly), ``key_log.py`` and ``idempotency.py`` (what happens once), ``pipe.py``,
``encoding.py`` and ``answers.py`` (rows out), the ``*_routes.py``, ``drops.py`` and ``probe.py``
(what is told when streams go and when SQL fails), ``logs.py``, then ``app.py`` and ``run.py``.
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

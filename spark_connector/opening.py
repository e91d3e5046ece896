"""Choice of the backend: the store's files by ``path``, a server by ``url``."""

from __future__ import annotations

from .backend import Backend
from .local import LocalBackend
from .options import Options
from .server_backend import ServerBackend

__all__ = ["open_backend"]


def open_backend(options: Options) -> Backend:
    return LocalBackend(options) if options.path is not None else ServerBackend(options)

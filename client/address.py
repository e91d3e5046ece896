"""Server addresses, and the errors of servers that do not answer."""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass

from ..errors import ConnectionFailed, InvalidArgument

__all__ = ["Address", "address_of"]


@dataclass(frozen=True)
class Address:
    """``host`` lacks IPv6 brackets, ``base`` is the path before ``/v1``, ``where`` for messages."""

    secure: bool
    host: str
    port: int | None
    base: str
    where: str

    def away(self, error: Exception) -> ConnectionFailed:
        return ConnectionFailed(
            f"the Chronicle server at {self.where} cannot be reached ({error}); is it running, and "
            "is the address right on this machine too?"
        )

    def broke_off(self, error: Exception | str) -> ConnectionFailed:
        return ConnectionFailed(
            f"{self.where} broke off in the middle of an answer ({error}); look at the server's log"
        )


def address_of(url: str) -> Address:
    """Parse a URL; raises ``InvalidArgument``."""
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urllib.parse.urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidArgument(f"a server's url is http://host:port or https://..., found {url!r}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    where = f"{parts.scheme}://{host}{f':{port}' if port else ''}"
    return Address(parts.scheme == "https", parts.hostname, port, parts.path.rstrip("/"), where)

"""TLS: the certificate that the server shows, and a new one without a restart.

Purpose
    :class:`Certificates` makes the context that Uvicorn serves with out of the files that
    ``CHRONICLE_TLS_CERT``, ``CHRONICLE_TLS_KEY`` and ``CHRONICLE_TLS_CLIENT_CA`` name, and reads
    them again when they were replaced: at SIGHUP, and within :data:`LOOK_S` of a change.

Guarantee
    TLS 1.2 or newer.  Files are tried before they are used: a pair that does not fit together, or
    is half written, leaves the old certificate in use and a line in the log.  Connections that
    stand keep theirs.  With a client CA, whoever has no certificate of it gets no connection.

Limits
    Authorities of clients are added by a new file, never taken away: to trust one no more takes a
    restart.  Keys have no passphrase.
"""

from __future__ import annotations

import logging
import os
import ssl
from pathlib import Path

from ...errors import InvalidArgument
from .settings import Settings

__all__ = ["LOOK_S", "Certificates", "certificates_of"]

logger = logging.getLogger("chronicle.server")
LOOK_S = 30
"""Seconds between two looks at the files."""

_Stamps = tuple[tuple[int, int, int] | None, ...]


class Certificates:
    """The certificate of a server, its key, and who may connect.

    Parameters
    ----------
    certificate : Path
        PEM: the server's certificate, then those that lead to its authority.
    key : Path, optional
        PEM; None where it stands in the file of the certificate.
    client_ca : Path, optional
        PEM: authorities, one of which has to have signed a client's certificate.

    Raises
    ------
    InvalidArgument
        When the files cannot be used.
    """

    def __init__(self, certificate: Path, key: Path | None, client_ca: Path | None) -> None:
        self._files = (certificate, key, client_ca)
        self._stamps = self._now()
        self.context = self._made()

    def reload(self) -> bool:
        """Take the files as they are now; whether that was possible."""
        self._stamps = self._now()
        try:
            self._made()
            self._load(self.context)
        except InvalidArgument as error:
            logger.error("the TLS certificate stays as it was: %s", error)
            return False
        logger.info("the TLS certificate was read again from %s", self._files[0])
        return True

    def look(self) -> None:
        """Take the files if they were replaced."""
        if self._now() != self._stamps:
            self.reload()

    def _made(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load(context)
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        certificate, key, client_ca = self._files
        try:
            context.load_cert_chain(certificate, key, password="")  # or it would ask a terminal
        except (OSError, ValueError) as error:
            named = f"{certificate}" if key is None else f"{certificate} and {key}"
            raise InvalidArgument(
                f"CHRONICLE_TLS_CERT and CHRONICLE_TLS_KEY: {named} are no certificate and its key "
                f"in PEM, without a passphrase ({_reason(error)})"
            ) from None
        if client_ca is not None:
            try:
                context.load_verify_locations(client_ca)
            except (OSError, ValueError) as error:
                raise InvalidArgument(
                    f"CHRONICLE_TLS_CLIENT_CA: {client_ca} has no certificates in PEM "
                    f"({_reason(error)})"
                ) from None
            context.verify_mode = ssl.CERT_REQUIRED

    def _now(self) -> _Stamps:
        return tuple(None if path is None else _stamp(path) for path in self._files)


def certificates_of(settings: Settings) -> Certificates | None:
    """What the settings say of TLS; None for plain HTTP.

    Raises
    ------
    InvalidArgument
    """
    if settings.tls_cert is None:
        for name in ("tls_key", "tls_client_ca"):
            if getattr(settings, name) is not None:
                raise InvalidArgument(
                    f"CHRONICLE_{name.upper()} needs CHRONICLE_TLS_CERT, the server's certificate"
                )
        return None
    return Certificates(settings.tls_cert, settings.tls_key, settings.tls_client_ca)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return str(error.reason or error)
    return str(getattr(error, "strerror", None) or error)

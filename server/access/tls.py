"""TLS certificates, reloaded without a restart on SIGHUP, or within ``LOOK_S`` seconds of a change.
TLS 1.2 or newer.  Invalid or half-written files leave the old certificate in use, with a log line.
Existing connections keep theirs.  Reloading adds client authorities but removes none; that takes a
restart.  Keys have no passphrase.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from ...errors import InvalidArgument
from .settings import Settings
from .tokens import Stamp, file_stamp

logger = logging.getLogger("chronicle.server")
LOOK_S = 30


class Certificates:
    """Certificate chain, key (None: in the same file) and client authorities, all PEM."""

    def __init__(self, certificate: Path, key: Path | None, client_ca: Path | None) -> None:
        self._files = (certificate, key, client_ca)
        self._stamps = self._now()
        self.context = self._made()

    def reload(self) -> bool:
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
            context.load_cert_chain(certificate, key, password="")  # else it prompts
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

    def _now(self) -> tuple[Stamp | None, ...]:
        return tuple(None if path is None else file_stamp(path) for path in self._files)


def certificates_of(settings: Settings) -> Certificates | None:
    """The certificates of the settings; None for plain HTTP.  Raises ``InvalidArgument``."""
    if settings.tls_cert is None:
        for name in ("tls_key", "tls_client_ca"):
            if getattr(settings, name) is not None:
                raise InvalidArgument(
                    f"CHRONICLE_{name.upper()} needs CHRONICLE_TLS_CERT, the server's certificate"
                )
        return None
    return Certificates(settings.tls_cert, settings.tls_key, settings.tls_client_ca)


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return str(error.reason or error)
    return str(getattr(error, "strerror", None) or error)

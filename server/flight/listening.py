"""The port of Flight SQL: gRPC on the server's event loop, with HTTP's address rules, TLS files and
stop timeout.  Messages are at most ``MESSAGE_MAX`` bytes.  RPCs are bounded, not connections.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import grpc

from ...errors import InvalidArgument
from ..access.settings import Settings
from ..access.tls import certificates_of
from ..service.audit import Audit
from ..service.state import Server
from .calls import SERVICE, handled
from .service import FlightService

__all__ = ["FlightListener"]

logger = logging.getLogger("chronicle.server")
MESSAGE_MAX = 64 << 20
HEADERS_MAX = 64 << 10
STREAMS_MAX = 128
"""Concurrent RPCs of one connection; more wait."""


class FlightListener:
    """Serves Flight SQL; created and used on the event loop.  ``port`` is set by ``start``."""

    port: int

    def __init__(self, server: Server) -> None:
        settings = server.settings
        self._server = server
        self._service = FlightService(server)
        rpcs = (
            settings.max_concurrent_queries
            + settings.max_concurrent_reads
            + settings.max_concurrent_uploads
            + settings.max_waiting_queries
        )
        self._grpc = grpc.aio.server(options=_options(settings), maximum_concurrent_rpcs=rpcs)
        audit = Audit(server.database.path)
        methods = {
            name: handled(server, audit, name, answer)
            for name, answer in self._service.methods().items()
        }
        handler = grpc.method_handlers_generic_handler(SERVICE, methods)
        self._grpc.add_generic_rpc_handlers((handler,))
        self._stopping: asyncio.Task[None] | None = None
        server.on_drain.append(self._begin_stop)

    async def start(self) -> None:
        """Listen; raises ``InvalidArgument`` if the address cannot be bound."""
        settings = self._server.settings
        address = f"{_bracketed(settings.host)}:{settings.flight_port}"
        credentials = _credentials(settings)
        try:
            if credentials is None:
                self.port = self._grpc.add_insecure_port(address)
            else:
                self.port = self._grpc.add_secure_port(address, credentials)
        except RuntimeError:
            raise InvalidArgument(
                f"cannot listen on {address} for Flight SQL; choose another --flight-port"
            ) from None
        await self._grpc.start()
        scheme = "grpc" if credentials is None else "grpc+tls"
        logger.info(
            "Flight SQL listens on %s://%s:%d", scheme, _bracketed(settings.host), self.port
        )

    async def stop(self) -> None:
        self._begin_stop(0.0)
        self._service.statements.end_all()
        assert self._stopping is not None
        await self._stopping
        self._service.prepared.close_all()

    def _begin_stop(self, seconds: float) -> None:
        if self._stopping is None:
            self._stopping = asyncio.get_running_loop().create_task(self._grpc.stop(seconds))


def _options(settings: Settings) -> list[tuple[str, int]]:
    silence_ms = settings.client_timeout_ms
    return [
        ("grpc.so_reuseport", 0),  # a port in use is an error
        ("grpc.max_receive_message_length", min(MESSAGE_MAX, settings.max_body_bytes)),
        ("grpc.max_send_message_length", -1),  # a row may be larger than a message
        ("grpc.max_metadata_size", HEADERS_MAX),
        ("grpc.max_concurrent_streams", STREAMS_MAX),
        ("grpc.server_handshake_timeout_ms", settings.header_timeout_ms),
        ("grpc.keepalive_time_ms", silence_ms),  # without an answer to a ping the client is gone
        ("grpc.keepalive_timeout_ms", min(silence_ms, 20_000)),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    ]


def _credentials(settings: Settings) -> Any:
    if certificates_of(settings) is None:
        return None
    served = _Certificates(settings)
    return grpc.dynamic_ssl_server_credentials(
        served.read(),
        served.renewed,
        require_client_authentication=settings.tls_client_ca is not None,
    )


class _Certificates:
    """The certificate's files; gRPC asks for them at each new connection, in a thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._served = self._files()

    def read(self) -> Any:
        certificate, key, authority = self._served
        return grpc.ssl_server_certificate_configuration([(key, certificate)], authority)

    def renewed(self) -> Any:
        try:
            found = self._files()
            if found == self._served:
                return None
            certificates_of(self._settings)  # raises if they do not match
        except (OSError, InvalidArgument) as error:
            logger.error("the TLS certificate of Flight SQL stays as it was: %s", error)
            return None
        self._served = found
        return self.read()

    def _files(self) -> tuple[bytes, bytes, bytes | None]:
        settings = self._settings
        assert settings.tls_cert is not None
        certificate = settings.tls_cert.read_bytes()
        key = certificate if settings.tls_key is None else Path(settings.tls_key).read_bytes()
        authority = settings.tls_client_ca
        return certificate, key, None if authority is None else authority.read_bytes()


def _bracketed(host: str) -> str:
    plain = host.strip("[]")
    return f"[{plain}]" if ":" in plain else plain

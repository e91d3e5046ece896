"""The server's settings: ``CHRONICLE_*`` variables and flags, read once at the start.
``docs/server.md`` lists the same fields (a test compares).  Tokens are in a file of their own.

TLS certificates are reloaded without a restart on SIGHUP, or within ``LOOK_S`` seconds of a change.
TLS 1.2 or newer.  Invalid or half-written files leave the old certificate in use, with a log line.
Existing connections keep theirs.  Reloading adds client authorities but removes none; that takes a
restart.  Keys have no passphrase.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
import ssl
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from ...errors import InvalidArgument
from .tokens import Stamp, file_stamp

MIB = 1 << 20
JWT_ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "Ed25519", "Ed448", "EdDSA"),
)
"""Asymmetric algorithms; with a shared secret, whoever verifies could make tokens."""

Names = Annotated[list[str], NoDecode]


class Settings(BaseSettings):
    """All settings; the variable is ``CHRONICLE_`` plus the upper-case name."""

    model_config = SettingsConfigDict(env_prefix="CHRONICLE_", extra="forbid", frozen=True)

    store: Path = Field(Path("chronicle-data"), description="Store directory.")
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port; 0 picks a free one.")
    flight_port: int | None = Field(
        None, ge=0, le=65535, description="Port of Flight SQL; 0 picks a free one. Unset: off."
    )
    postgres_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="Port of PostgreSQL's protocol; 0 picks a free one. Unset: off.",
    )
    token_file: Path | None = Field(
        None, description="File whose first line is a token with all rights."
    )
    token_days: int = Field(
        0,
        ge=0,
        le=36_500,
        description="Longest lifetime of tokens made over REST, in days; 0: unlimited.",
    )
    jwt_issuer: str | None = Field(None, description="Accepted JWT issuer (`iss`).")
    jwt_audience: str | None = Field(None, description="Required JWT audience (`aud`).")
    jwt_keys: str | None = Field(
        None, description="The issuer's keys (JWK set): file or https address."
    )
    jwt_algorithms: Names = Field(
        default_factory=lambda: ["RS256", "PS256", "ES256", "Ed25519"],
        description="Accepted signature algorithms.",
    )
    backup_directory: str | Path | None = Field(
        None, description="Directory or `s3://bucket/prefix` for backups by jobs. Unset: off."
    )
    objects: str | None = Field(
        None, description="Object storage (`s3://bucket/prefix`) that segments move to."
    )
    exchange_directory: Path | None = Field(
        None, description="Directory for export and import jobs. Unset: off."
    )
    tls_cert: Path | None = Field(None, description="PEM certificate chain; enables HTTPS.")
    tls_key: Path | None = Field(None, description="PEM file of the key, if separate.")
    tls_client_ca: Path | None = Field(
        None, description="PEM file of authorities; requires client certificates."
    )
    allowed_hosts: Names = Field(
        default_factory=list,
        description="Further host names accepted without tokens; comma-separated.",
    )
    cors_origins: Names = Field(
        default_factory=list, description="Web origins that may call the API; comma-separated."
    )
    public_metrics: bool = Field(False, description="Serve /metrics without a token.")
    max_body_bytes: int = Field(256 * MIB, ge=1, description="Largest request body, as sent.")
    max_decoded_bytes: int = Field(
        512 * MIB, ge=1, description="Decompressed body, and its events in memory."
    )
    max_columns: int = Field(
        10_000, ge=1, description="Columns, or different JSON keys, of a body."
    )
    max_part_bytes: int = Field(
        4096 * MIB, ge=1, description="Largest part of a transaction, or file, as sent."
    )
    max_upload_memory_bytes: int = Field(
        2048 * MIB, ge=1, description="Decoded bodies in memory, all requests together."
    )
    max_rows: int = Field(10_000_000, ge=1, description="Most rows of an answer.")
    query_timeout_ms: int = Field(60_000, ge=1, description="Time limit of a query and its answer.")
    query_memory_bytes: int = Field(
        1024 * MIB, ge=16 * MIB, description="Memory of a query; it spills before that."
    )
    isolation: Literal["process", "none"] = Field(
        "process", description="`process`: workers run SQL and read bodies; `none`: the server."
    )
    body_memory_bytes: int = Field(
        512 * MIB, ge=64 * MIB, description="Memory of a worker that reads a body."
    )
    max_concurrent_queries: int = Field(8, ge=1, description="Queries at once; others wait.")
    max_concurrent_reads: int = Field(32, ge=1, description="Reads of events at once; others wait.")
    max_client_queries: int = Field(
        64, ge=1, description="Queries, and reads, of one client, running or waiting."
    )
    max_waiting_queries: int = Field(64, ge=0, description="Queries, and reads, that wait.")
    queue_timeout_ms: int = Field(10_000, ge=1, description="Longest wait before 503.")
    query_log_entries: int = Field(1000, ge=0, description="Entries of chronicle.query_log.")
    slow_query_ms: int = Field(
        0, ge=0, description="Log queries and reads from this duration on; 0: none."
    )
    max_followers: int = Field(1000, ge=1, description="Open `tail` and live feeds.")
    max_concurrent_appends: int = Field(
        32, ge=1, description="Appends at once; they share an fsync."
    )
    max_concurrent_uploads: int = Field(256, ge=1, description="Event bodies received at once.")
    max_requests_per_s: int = Field(
        0, ge=0, description="Requests per second of one client (burst: twice that); 0: unlimited."
    )
    max_failed_logins_per_minute: int = Field(
        60, ge=1, description="Requests with unknown tokens, per address."
    )
    max_address_connections: int = Field(1000, ge=1, description="Connections per address.")
    client_timeout_ms: int = Field(
        60_000, ge=1, description="Silence of a client within a body or answer."
    )
    min_client_bytes_per_s: int = Field(
        16_384, ge=1, description="Average speed required of a slow client."
    )
    header_timeout_ms: int = Field(10_000, ge=1, description="Time to receive the headers.")
    drain_timeout_ms: int = Field(
        20_000, ge=0, description="Time for running requests to end after SIGTERM."
    )
    idempotency_hours: int = Field(
        24, ge=24, description="Lifetime of an Idempotency-Key, at least 24."
    )
    snapshot_ttl_ms: int = Field(600_000, ge=1, description="Lifetime of an unused pinned version.")
    max_snapshots: int = Field(256, ge=1, description="Pinned versions.")
    result_ttl_ms: int = Field(60_000, ge=1, description="Lifetime of an unused result file.")
    max_result_bytes: int = Field(
        2048 * MIB, ge=1, description="Result files on disk; one client gets half."
    )
    position_ttl_hours: int = Field(168, ge=1, description="Lifetime of an unused position.")
    max_positions: int = Field(1000, ge=1, description="Positions per stream.")
    live: bool = Field(True, description="Run live queries.")
    console: Literal["off", "read", "full"] = Field(
        "full", description="Web console at /console/: `full`, `read` or `off`."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Lowest level logged."
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="`text` or `json` lines on stderr."
    )

    @field_validator("jwt_algorithms", mode="after")
    @classmethod
    def _check_algorithms(cls, value: list[str]) -> list[str]:
        unknown = [name for name in value if name not in JWT_ALGORITHMS]
        if unknown or not value:
            raise ValueError(f"algorithms are some of {', '.join(JWT_ALGORITHMS)}")
        return value

    @field_validator("allowed_hosts", "cors_origins", "jwt_algorithms", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return [part.strip() for part in value.split(",") if part.strip()]
        return value

    @property
    def query_timeout(self) -> float:
        return self.query_timeout_ms / 1000


def load_settings(**overrides: Any) -> Settings:
    """Settings from the environment and ``overrides`` values that are not None; raises
    ``InvalidArgument``.
    """
    chosen = {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings(**chosen)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else "?"
        shown = name if name in chosen else f"CHRONICLE_{name.upper()}"
        raise InvalidArgument(
            f"setting {shown}: {first['msg']}, found {first.get('input')!r}; "
            "docs/server.md lists the settings"
        ) from None


def is_loopback(host: str) -> bool:
    """Whether all addresses of a host name are loopback addresses."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        pass
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return bool(addresses) and all(ipaddress.ip_address(a[4][0]).is_loopback for a in addresses)


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

"""The server's settings: ``CHRONICLE_*`` variables and flags, read once at the start.
``docs/server.md`` lists the same fields (a test compares).  Tokens are in a file of their own.
"""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from ...errors import InvalidArgument

__all__ = ["Settings", "is_loopback", "load_settings"]

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

    store: Path = Field(Path("chronicle-data"), description="Directory of the store.")
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    flight_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="Port of Flight SQL (gRPC) at that address, 0 takes a free one; without it, "
        "none.",
    )
    token_file: Path | None = Field(
        None,
        description=(
            "File whose first line is a token with every right, for secrets mounted as files."
        ),
    )
    token_days: int = Field(
        0,
        ge=0,
        le=36_500,
        description="Days after which tokens that are made over REST expire at the latest; 0: any.",
    )
    jwt_issuer: str | None = Field(
        None, description="Issuer (`iss`) of the JWTs that are taken besides tokens."
    )
    jwt_audience: str | None = Field(
        None, description="Audience (`aud`) that they have to be made for."
    )
    jwt_keys: str | None = Field(
        None, description="Its public keys, a JWK set: a file, or an https address."
    )
    jwt_algorithms: Names = Field(
        default_factory=lambda: ["RS256", "PS256", "ES256", "Ed25519"],
        description="Algorithms of signatures that are taken; comma-separated.",
    )
    backup_directory: str | Path | None = Field(
        None,
        description="Directory below which jobs write backups, or address of objects, as "
        "`s3://bucket/prefix`; without it they write none.",
    )
    objects: str | None = Field(
        None,
        description="Address of objects, as `s3://bucket/prefix`, that segments of streams with "
        "`move_after` or `keep_local_bytes` move to, and jobs of the kind `move` move them to; "
        "without it none move.",
    )
    exchange_directory: Path | None = Field(
        None,
        description="Directory in which jobs write exports and read imports; without it there are "
        "none.",
    )
    tls_cert: Path | None = Field(
        None,
        description="PEM file of the server's certificate and those that lead to its authority; "
        "the server then speaks HTTPS only.",
    )
    tls_key: Path | None = Field(
        None, description="PEM file of the certificate's key, where it is another file."
    )
    tls_client_ca: Path | None = Field(
        None,
        description="PEM file of authorities; only clients with a certificate of theirs connect.",
    )
    allowed_hosts: Names = Field(
        default_factory=list,
        description="Host names, besides loopback ones, that requests may carry while there are no "
        "tokens; comma-separated.",
    )
    cors_origins: Names = Field(
        default_factory=list,
        description="Origins of web pages that may call the API from a browser; comma-separated.",
    )
    public_metrics: bool = Field(
        False, description="Serve /metrics without a token although tokens exist."
    )
    max_body_bytes: int = Field(
        256 * MIB, ge=1, description="Largest request body, as sent (compressed)."
    )
    max_decoded_bytes: int = Field(
        512 * MIB,
        ge=1,
        description="Largest request body after gzip or zstd is undone, and the most that its "
        "events may take in memory.",
    )
    max_columns: int = Field(
        10_000, ge=1, description="Most columns, or different JSON keys, that a body may have."
    )
    max_part_bytes: int = Field(
        4096 * MIB,
        ge=1,
        description="Largest part of a transaction, as sent; it is staged on disk.",
    )
    max_upload_memory_bytes: int = Field(
        2048 * MIB,
        ge=1,
        description=(
            "Bytes of request bodies (decoded) that may be held at once, all requests together."
        ),
    )
    max_rows: int = Field(
        10_000_000,
        ge=1,
        description="Most rows that one answer may have, whatever `limit` asks for.",
    )
    query_timeout_ms: int = Field(
        60_000, ge=1, description="Longest time a query may take, its answer included."
    )
    query_memory_bytes: int = Field(
        1024 * MIB, ge=16 * MIB, description="Memory of the relational executor before it spills."
    )
    isolation: Literal["process", "none"] = Field(
        "process",
        description="Where SQL and bodies of clients are read: in confined worker processes, or in "
        "the server itself, for clients that are trusted.",
    )
    body_memory_bytes: int = Field(
        512 * MIB, ge=64 * MIB, description="Memory that a worker may take to read one body."
    )
    max_concurrent_queries: int = Field(
        8, ge=1, description="Queries that run at once; more of them wait."
    )
    max_concurrent_reads: int = Field(
        32, ge=1, description="Reads of events that run at once; more of them wait."
    )
    max_client_queries: int = Field(
        64,
        ge=1,
        description=(
            "Queries that one token (or address) may have running and waiting; reads likewise."
        ),
    )
    max_waiting_queries: int = Field(
        64, ge=0, description="Queries, and likewise reads, that may wait for their turn."
    )
    queue_timeout_ms: int = Field(
        10_000, ge=1, description="Longest wait for a turn before 503 is answered."
    )
    query_log_entries: int = Field(
        1000, ge=0, description="Queries and reads that chronicle.query_log remembers."
    )
    slow_query_ms: int = Field(
        0, ge=0, description="From this duration on, a query or read is logged as slow; 0: none."
    )
    max_followers: int = Field(
        1000,
        ge=1,
        description="Feeds of streams and live queries that are followed at once.",
    )
    max_concurrent_appends: int = Field(
        32, ge=1, description="Appends that run at once; they share one fsync."
    )
    max_concurrent_uploads: int = Field(
        256, ge=1, description="Request bodies of events that are received and stored at once."
    )
    max_requests_per_s: int = Field(
        0,
        ge=0,
        description="Requests a second of one token (or address), twice as many at once; 0: no "
        "limit.",
    )
    max_failed_logins_per_minute: int = Field(
        60,
        ge=1,
        description="Requests a minute that one address may make with a token that is not known.",
    )
    max_address_connections: int = Field(
        1000, ge=1, description="Connections that one address may have open."
    )
    client_timeout_ms: int = Field(
        60_000,
        ge=1,
        description="Longest silence of a client that sends a body or takes an answer.",
    )
    min_client_bytes_per_s: int = Field(
        16_384,
        ge=1,
        description="Bytes a second that such a client moves at least, once that time is over.",
    )
    header_timeout_ms: int = Field(
        10_000,
        ge=1,
        description="Longest time from the first byte of a request to the end of its headers.",
    )
    drain_timeout_ms: int = Field(
        20_000, ge=0, description="After SIGTERM, how long running requests may take to end."
    )
    idempotency_hours: int = Field(
        24, ge=24, description="How long an Idempotency-Key is remembered, in hours."
    )
    snapshot_ttl_ms: int = Field(
        600_000, ge=1, description="How long an unused pinned version of a stream stays readable."
    )
    max_snapshots: int = Field(256, ge=1, description="Pinned versions kept at once.")
    result_ttl_ms: int = Field(
        60_000,
        ge=1,
        description="How long an answer that is read in pieces is kept after its last use.",
    )
    max_result_bytes: int = Field(
        2048 * MIB,
        ge=1,
        description="Bytes on disk of all answers that are kept so; one client may have half.",
    )
    position_ttl_hours: int = Field(
        168,
        ge=1,
        description="Hours that a follower's position is kept after its last use.",
    )
    max_positions: int = Field(
        1000, ge=1, description="Positions of followers that one stream keeps."
    )
    live: bool = Field(True, description="Run the store's live queries.")
    console: Literal["off", "read", "full"] = Field(
        "full",
        description="The web console at /console/: all of it, one that only reads, or none.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severity that is logged."
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="Form of a log line, on stderr."
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


def load_settings(**given: Any) -> Settings:
    """Settings from the environment and ``given`` values that are not None; raises
    ``InvalidArgument``.
    """
    chosen = {name: value for name, value in given.items() if value is not None}
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
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return bool(found) and all(ipaddress.ip_address(a[4][0]).is_loopback for a in found)

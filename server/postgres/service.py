"""Sessions of PostgreSQL's protocol, and the port that they come through.

A session: startup (TLS if the server has a certificate; the password is a token), then queries, one
at a time.  Each statement is authorized, counted and logged as a request of its own, so a revoked
token ends at its next statement.  The extended protocol skips messages after an error up to Sync.
Portals end with their transaction, or at Sync outside of one.

BEGIN, COMMIT and ROLLBACK are accepted and change nothing but what the session says of itself:
statements only read, each from one snapshot.  ``SET statement_timeout`` shortens the server's time
limit; other settings have no effect, which a notice says.

Limits: a message has ``MESSAGE_MAX`` bytes, a startup ``STARTUP_MAX``; a session has
``NAMES_MAX`` prepared statements and portals, whose texts and values count as uploads of its client
while they exist; an address has
``CHRONICLE_MAX_ADDRESS_CONNECTIONS`` connections.  A client has the pace of HTTP to send a message
it began and to take its answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import secrets
import ssl
import struct
from collections import Counter
from collections.abc import Mapping
from typing import Any

from starlette.requests import ClientDisconnect

from ...errors import ChronicleError, InvalidArgument, QueryCancelled, Unauthorized
from ...query.sql.first_word import split
from ..access.auth import Principal
from ..access.limits import ByteAccount
from ..access.settings import certificates_of
from ..http.replies import Problem, as_problem
from ..http.streamed import Pace
from ..service.middleware import STATEMENT, Audit, accounted, scope_of
from ..service.state import Server
from .catalogue import SETTINGS, names_catalog
from .messages import (
    CANCEL_REQUEST,
    GSS_REQUEST,
    SSL_REQUEST,
    VERSION_3,
    message_of,
    notice,
    written,
)
from .statements import Portal, Statement, Statements
from .values import KINDS, row_description

logger = logging.getLogger("chronicle.server")
STARTUP_MAX, MESSAGE_MAX = 10_000, 16 << 20
NAMES_MAX, STATEMENT_BYTES = 1000, 1024
_REPORTED = (
    "server_version", "server_encoding", "client_encoding", "DateStyle", "IntervalStyle",
    "TimeZone", "integer_datetimes", "standard_conforming_strings", "is_superuser",
)  # fmt: skip

_STATES = {
    "sql-error": "42601", "stream-not-found": "42P01", "attribute-not-found": "42703",
    "read-only-store": "25006", "query-timeout": "57014", "query-cancelled": "57014",
    "invalid-argument": "22023", "resource-limit": "54000", "too-many-requests": "53300",
    "overloaded": "53300", "not-ready": "57P03", "unauthorized": "28P01", "forbidden": "42501",
    "not-supported": "0A000", "bad-request": "08P01", "request-timeout": "08006",
}  # fmt: skip
"""SQLSTATE by code of a problem; all others are XX000."""

_TRANSACTION = {
    **dict.fromkeys(("BEGIN", "START"), "BEGIN"), **dict.fromkeys(("COMMIT", "END"), "COMMIT"),
    **dict.fromkeys(("ROLLBACK", "ABORT"), "ROLLBACK"), "SAVEPOINT": "SAVEPOINT",
    "RELEASE": "RELEASE",
}  # fmt: skip
_NOTHING = {"DISCARD": "DISCARD ALL", "RESET": "RESET", "UNLISTEN": "UNLISTEN"}
_SET = re.compile(
    r"set\s+(?:session\s+|local\s+)?(time\s+zone|[\w.]+)\s*(?:=|\bto\b)?\s*(.*)", re.I | re.S
)
_TIME = re.compile(r"(\d+)\s*(ms|s|min)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0}
_ORIGINAL = {name.lower(): value for name, value in SETTINGS.items()}
_SETTINGS = {name: value.lower() for name, value in _ORIGINAL.items()}
_SYNONYMS = {
    "client_encoding": ("utf8", "utf-8", "unicode"), "datestyle": ("iso", "iso, mdy", "iso,mdy"),
    "timezone": ("utc", "etc/utc", "gmt"), "standard_conforming_strings": ("on", "true"),
}  # fmt: skip
_HARMLESS = ("application_name", "extra_float_digits", "statement_timeout")
"""Settings whose values make no difference to what is read."""


class Ended(ClientDisconnect):
    """The client has gone, or ended the session."""


class Session:
    """One connection."""

    principal: Principal

    def __init__(self, listener: PostgresListener, reader: Any, writer: Any) -> None:
        self._listener = listener
        self._server = listener.server
        self._reader, self._writer = reader, writer
        self._statements = Statements(self._server)
        self._prepared: dict[str, Statement] = {}
        self._portals: dict[str, Portal] = {}
        self._status = "I"
        self._secret: str | None = None
        self._pace = Pace.of(self._server.settings)
        self._timeout_s = self._server.settings.query_timeout
        self._memory: ByteAccount | None = None
        self.number, self.key = listener.number(), secrets.randbits(31)
        peer = writer.get_extra_info("peername") or ("local", 0)
        self.address = (peer[0], peer[1])

    def cancel(self) -> None:
        """End the query that runs, if one does."""
        self._statements.cancel()

    # --------------------------------------------------------------------------- messages

    async def _read(self, size: int) -> bytes:
        left = self._pace.silence_s + size / self._pace.bytes_per_s
        try:
            return bytes(await asyncio.wait_for(self._reader.readexactly(size), left))
        except (asyncio.IncompleteReadError, TimeoutError, ConnectionError):
            raise Ended from None

    async def _message(self) -> Any:
        try:
            head = await self._reader.readexactly(5)  # an idle session may wait
        except (asyncio.IncompleteReadError, ConnectionError):
            raise Ended from None
        kind, size = chr(head[0]), struct.unpack(">i", head[1:])[0] - 4
        if not 0 <= size <= MESSAGE_MAX:
            await self._fail(
                Problem(
                    "bad-request", f"a message has at most {MESSAGE_MAX:,} bytes, found {size:,}"
                ),
                "FATAL",
            )
            raise Ended
        data = await self._read(size)
        self._received += 5 + size
        try:
            return message_of(kind, data)
        except Problem as problem:  # what follows cannot be told to be a message
            await self._fail(problem, "FATAL")
            raise Ended from None

    _received = _sent = 0

    async def _send(self, *messages: bytes) -> None:
        data = b"".join(messages)
        self._writer.write(data)
        self._sent += len(data)
        try:
            await asyncio.wait_for(self._writer.drain(), self._pace.silence_s)
        except (TimeoutError, ConnectionError):
            self._writer.transport.abort()
            raise Ended from None

    async def _fail(self, problem: Problem, severity: str = "ERROR", text: str = "") -> None:
        more = {}
        where = problem.more.get("position")
        if where is not None and text and not names_catalog(text):
            lines = text.splitlines(keepends=True)
            offset = sum(map(len, lines[: where["line"] - 1])) + where["column"]
            more["P"] = str(offset)
        state = _STATES.get(problem.code, "XX000")
        state = problem.more.get("sqlstate", state)
        await self._send(notice("E", severity, state, problem.detail, **more))

    # ---------------------------------------------------------------------------- startup

    async def serve(self) -> None:
        """Serve the connection to its end."""
        try:
            limit = self._server.settings.header_timeout_ms / 1000
            async with asyncio.timeout(limit):
                if not await self._start():
                    return
            with self._server.uploads.account(self.principal.client) as self._memory:
                await self._serve()
        except (Ended, TimeoutError, ConnectionError, ssl.SSLError):
            pass
        finally:
            for portal in self._portals.values():
                portal.end()

    async def _start(self) -> bool:
        """Agree on TLS and authenticate; False for a connection that is done with that."""
        certificates, secure = self._listener.certificates, False
        code, rest = await self._startup()
        while code in (SSL_REQUEST, GSS_REQUEST):
            if code == SSL_REQUEST and certificates is not None and not secure:
                # what the client sends next is for TLS: the reader must not take it
                self._writer.transport.pause_reading()
                if self._reader._buffer:  # sent before TLS, it would pass for what TLS protects
                    raise Ended
                await self._send(b"S")
                await self._writer.start_tls(certificates.context)
                secure = True
            else:
                await self._send(b"N")
            code, rest = await self._startup()
        if code == CANCEL_REQUEST:
            if len(rest) == 8:
                self._listener.cancel(*struct.unpack(">ii", rest))
            return False
        try:
            if code >> 16 != VERSION_3 >> 16:
                raise Problem("bad-request", "expected version 3 of PostgreSQL's protocol")
            if certificates is not None and not secure:
                raise Problem("bad-request", "this server takes TLS only: set sslmode=require")
            await self._authenticate()
        except (ChronicleError, Problem) as error:
            await self._fail(as_problem(error), "FATAL")
            return False
        if code != VERSION_3:
            await self._send(written("NegotiateProtocolVersion", 0, 0))
        facts = [written("ParameterStatus", name, SETTINGS[name]) for name in _REPORTED]
        await self._send(
            written("Authentication", 0), *facts, written("BackendKeyData", self.number, self.key),
            written("ReadyForQuery", "I"),
        )  # fmt: skip
        return True

    async def _startup(self) -> tuple[int, bytes]:
        """The code of a message without a kind, and what follows."""
        (size,) = struct.unpack(">i", await self._read(4))
        if not 8 <= size <= STARTUP_MAX:
            raise Ended
        data = await self._read(size - 4)
        return struct.unpack_from(">i", data)[0], data[4:]

    async def _authenticate(self) -> None:
        async with self._request("startup"):
            authenticator = self._server.authenticator
            if not authenticator.check_address(self._scope):
                await self._send(written("Authentication", 3))
                message = await self._message()
                if message.command != "Password":
                    raise Problem("bad-request", f"expected a password, found {message.command}")
                self._secret = message.secret or None
            self._identify()

    def _identify(self) -> None:
        authenticator = self._server.authenticator
        authenticator.check_address(self._scope)
        try:
            self.principal = authenticator.principal(self._scope, self._secret)
        except Unauthorized:
            raise Unauthorized(
                "the password is a token of this server; `chronicle token create` makes one"
            ) from None
        self._scope["state"]["principal"] = self.principal

    # --------------------------------------------------------------------------- requests

    @contextlib.asynccontextmanager
    async def _request(self, what: str, text: str = "") -> Any:
        """A statement as a request: metrics, access log, audit log."""
        headers = [(b"authorization", b"")] if self._secret else []
        self._scope = scope_of(f"/postgres/{what}", self.address, headers)
        if text:
            self._scope[STATEMENT] = text
        self._received = self._sent = 0
        audit, moved = self._listener.audit, lambda: (self._received, self._sent)
        with accounted(self._server, audit, self._scope, moved):
            yield self._scope["state"]["request_id"]

    async def _serve(self) -> None:
        while True:
            message = await self._message()
            if message.command == "Terminate":
                return
            try:
                await self._answer(message)
            except (ChronicleError, Problem) as error:
                await self._fail(as_problem(error), text=self._scope.get(STATEMENT, ""))
                self._broken()
                if message.command != "Query":
                    await self._skip_to_sync()
                await self._ready()

    def _broken(self) -> None:
        self._status = "E" if self._status != "I" else "I"

    async def _skip_to_sync(self) -> None:
        while True:
            name = (await self._message()).command
            if name == "Terminate":
                raise Ended
            if name == "Sync":
                return

    async def _ready(self) -> None:
        if self._status == "I":
            for name in list(self._portals):
                self._forget_portal(name)
        await self._send(written("ReadyForQuery", self._status))

    async def _answer(self, message: Any) -> None:
        match message.command:
            case "Query":
                await self._query(message.sql)
                await self._ready()
            case "Parse":
                self._parse(message)
                await self._send(written("ParseComplete"))
            case "Bind":
                await self._bind(message)
            case "Describe":
                await self._describe(message)
            case "Execute":
                await self._execute(self._portal(message.portal), message.rows)
            case "Close":
                await self._close(message)
            case "Sync":
                await self._ready()
            case "Flush":
                pass
            case _:
                raise Problem("bad-request", f"a message {message.command} is not expected here")

    # ------------------------------------------------------------------------- statements

    async def _query(self, sql: str) -> None:
        texts = split(sql)
        if not texts:
            await self._send(written("EmptyQueryResponse"))
        for text in texts:
            portal = Portal(Statement(text))
            try:
                await self._execute(portal, 0, describe=True)
            finally:
                portal.end()

    def _parse(self, message: Any) -> None:
        if message.name and message.name in self._prepared:
            raise Problem("bad-request", f"the statement {message.name!r} exists already")
        if len(split(message.sql)) > 1:
            raise Problem("bad-request", "a prepared statement is one statement")
        self._forget_statement(message.name)
        self._hold(self._prepared, len(message.sql) + STATEMENT_BYTES)
        self._prepared[message.name] = Statement(message.sql, message.types)

    def _hold(self, named: Mapping[str, object], size: int) -> None:
        if len(named) >= NAMES_MAX:
            raise Problem(
                "too-many-requests",
                f"a session has at most {NAMES_MAX} prepared statements, and as many portals",
            )
        assert self._memory is not None
        self._memory.hold(size)

    def _forget_statement(self, name: str) -> None:
        statement = self._prepared.pop(name, None)
        if statement is not None and self._memory is not None:
            self._memory.hold(-len(statement.text) - STATEMENT_BYTES)

    def _forget_portal(self, name: str) -> None:
        portal = self._portals.pop(name, None)
        if portal is not None and self._memory is not None:
            portal.end()
            self._memory.hold(-portal.size)

    async def _bind(self, message: Any) -> None:
        statement = self._statement(message.statement)
        values = await self._server.call(self._statements.bound, self.principal, statement, message)
        self._forget_portal(message.portal)
        size = sum(len(value or b"") for value in message.values) + STATEMENT_BYTES
        self._hold(self._portals, size)
        self._portals[message.portal] = Portal(statement, values, message.results, size)
        await self._send(written("BindComplete"))

    def _statement(self, name: str) -> Statement:
        if name not in self._prepared:
            raise Problem(
                "not-found", f"there is no prepared statement {name!r}", more={"sqlstate": "26000"}
            )
        return self._prepared[name]

    def _portal(self, name: str) -> Portal:
        if name not in self._portals:
            raise Problem("not-found", f"there is no portal {name!r}", more={"sqlstate": "34000"})
        return self._portals[name]

    async def _describe(self, message: Any) -> None:
        if message.kind == "P":
            portal = self._portal(message.name)
            await self._send(await self._columns(portal))
            return
        statement = self._statement(message.name)
        if _command(statement) is not None or not statement.first:
            await self._send(written("ParameterDescription", []), written("NoData"))
            return
        async with self._request("describe", statement.text) as request:
            self._identify()
            types, schema = await self._statements.describe(
                self.principal, request, statement, self._timeout_s
            )
            columns = (
                written("NoData")
                if schema is None
                else written("RowDescription", row_description(schema, ()))
            )
            await self._send(written("ParameterDescription", types), columns)

    async def _columns(self, portal: Portal) -> bytes:
        if _command(portal.statement) is not None or not portal.statement.first:
            return written("NoData")
        await self._begin(portal)
        assert portal.run is not None
        return bytes(portal.run.description)

    async def _begin(self, portal: Portal) -> None:
        if portal.run is None:
            self._in_order()
            async with self._request("query", portal.statement.text) as request:
                self._identify()
                portal.run = await self._statements.begin(
                    self.principal, request, portal, self._timeout_s
                )
                portal.run.wait(self._pace.silence_s)

    def _in_order(self) -> None:
        if self._status == "E":
            raise Problem(
                "bad-request",
                "the transaction has failed; ROLLBACK ends it",
                more={"sqlstate": "25P02"},
            )

    async def _execute(self, portal: Portal, most: int, *, describe: bool = False) -> None:
        if not portal.statement.first:
            await self._send(written("EmptyQueryResponse"))
            return
        command = _command(portal.statement)
        if command is not None:
            await self._send(*self._command_answer(portal.statement, command))
            return
        await self._begin(portal)
        run = portal.run
        assert run is not None
        if describe:
            await self._send(run.description)
        self._statements.running = run.query
        try:
            async with contextlib.aclosing(run.blocks(most)) as blocks:
                async for block in blocks:
                    await self._send(block)
        except (ChronicleError, QueryCancelled) as error:
            raise as_problem(error) from error
        if most and run.rows == most and not run.complete:
            run.wait(self._pace.silence_s)
            await self._send(written("PortalSuspended"))
            return
        await self._send(
            written("CommandComplete", f"SELECT {run.rows if most else run.tally.rows}")
        )

    async def _close(self, message: Any) -> None:
        if message.kind == "S":
            self._forget_statement(message.name)
        else:
            self._forget_portal(message.name)
        await self._send(written("CloseComplete"))

    # --------------------------------------------------------------------------- commands

    def _command_answer(self, statement: Statement, command: str) -> list[bytes]:
        """The answer to a command of the session."""
        notices: list[bytes] = []
        if command in ("BEGIN", "COMMIT", "ROLLBACK"):
            command = self._turn(statement, command)
        elif command == "DEALLOCATE":
            name = statement.words[-1].strip('"')
            for each in list(self._prepared) if name.upper() == "ALL" else [name]:
                self._forget_statement(each)
        elif command == "SHOW":
            return _shown(_setting_of(statement))
        elif command == "SET":
            notices = self._set(statement.text.strip().rstrip(";"))
        return [*notices, written("CommandComplete", command)]

    def _turn(self, statement: Statement, command: str) -> str:
        """Begin or end a transaction; the tag of what was done."""
        to_savepoint = "TO" in statement.text.upper().split()
        if command == "COMMIT" and self._status == "E":
            command = "ROLLBACK"
        inside = command == "BEGIN" or (to_savepoint and self._status != "I")
        self._status = "T" if inside else "I"
        return command

    def _set(self, text: str) -> list[bytes]:
        match = _SET.match(text)
        if match is None:
            return [notice("N", "NOTICE", "01000", "this has no effect here")]
        name = "timezone" if " " in match[1] else match[1].lower()
        value = match[2].strip(" '\"").lower()
        timeout = _TIME.fullmatch(value)
        if name == "statement_timeout" and timeout is not None:
            seconds = int(timeout[1]) * _SECONDS[timeout[2] or "ms"]
            most = self._server.settings.query_timeout
            self._timeout_s = min(seconds, most) if seconds else most
        elif value != _SETTINGS.get(name) and value not in _SYNONYMS.get(name, (value,)):
            return [notice("N", "NOTICE", "01000", f"{name} stays {_ORIGINAL[name]} here")]
        elif name not in _SETTINGS and name not in _HARMLESS:
            return [notice("N", "NOTICE", "01000", f"{name} has no effect here")]
        return []


def _setting_of(statement: Statement) -> str:
    """The setting that a SHOW names, in lower case."""
    name = " ".join(statement.words[1:]).lower()
    return {"transaction isolation level": "transaction_isolation", "time zone": "timezone"}.get(
        name, name
    )


def _shown(name: str) -> list[bytes]:
    kind, value = KINDS["text"], _ORIGINAL[name]
    row = struct.pack(">hi", 1, len(value)) + value.encode()
    return [
        written("RowDescription", [(name, 0, 0, kind.oid, kind.size, -1, 0)]),
        b"D" + struct.pack(">i", len(row) + 4) + row,
        written("CommandComplete", "SHOW"),
    ]


def _command(statement: Statement) -> str | None:
    """The tag of a command that the session answers; None for what the engine runs."""
    first = statement.first
    if first in _TRANSACTION:
        return _TRANSACTION[first]
    if first in ("SET", "DEALLOCATE"):
        return first
    if first == "SHOW":
        return first if _setting_of(statement) in _SETTINGS else None
    return _NOTHING.get(first)


class PostgresListener:
    """Serves the protocol; created and used on the event loop.  ``port`` is set by ``start``."""

    port: int

    def __init__(self, server: Server) -> None:
        self.server = server
        self.audit = Audit(server.database.path)
        self.certificates = certificates_of(server.settings)
        self._sessions: dict[int, Session] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._open_of: Counter[str] = Counter()
        self._last = 0
        self._listening: asyncio.Server | None = None
        server.on_drain.append(lambda seconds: self._close())

    async def start(self) -> None:
        """Listen; raises ``InvalidArgument`` if the address cannot be bound."""
        settings = self.server.settings
        try:
            self._listening = await asyncio.start_server(
                self._serve, settings.host.strip("[]"), settings.postgres_port
            )
        except OSError as error:
            raise InvalidArgument(
                f"cannot listen on {settings.host} port {settings.postgres_port} for PostgreSQL's "
                f"protocol: {error.strerror or error}; choose another --postgres-port"
            ) from None
        self.port = self._listening.sockets[0].getsockname()[1]
        logger.info("PostgreSQL's protocol listens on %s:%d", settings.host, self.port)

    async def stop(self) -> None:
        self._close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def number(self) -> int:
        self._last += 1
        return self._last

    def cancel(self, number: int, key: int) -> None:
        session = self._sessions.get(number)
        if session is not None and secrets.compare_digest(str(session.key), str(key)):
            session.cancel()

    def _close(self) -> None:
        if self._listening is not None:
            self._listening.close()

    async def _serve(self, reader: Any, writer: Any) -> None:
        session = Session(self, reader, writer)
        address = session.address[0]
        self._open_of[address] += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._sessions[session.number] = session
        try:
            if self._open_of[address] <= self.server.settings.max_address_connections:
                await session.serve()
        except asyncio.CancelledError:  # by stop; asyncio would log a task that says so
            writer.transport.abort()
        except Exception:
            logger.exception("a session of %s ended", address)
        finally:
            self._tasks.discard(task)
            del self._sessions[session.number]
            self._open_of[address] -= 1
            if not self._open_of[address]:
                del self._open_of[address]
            writer.close()

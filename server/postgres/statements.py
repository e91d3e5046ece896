"""What a text is, the types of its parameters, and the query behind a portal. ::

    text -> a command of the session (BEGIN, SET, SHOW ...)      answered by the session
         -> a query over pg_catalog                              translated, then run
         -> any other                                            run as it is, less ``public.``

A portal's query is computed by a thread as for HTTP and carried by a pipe of at most 4 MiB, so a
client that reads slowly slows its query, nothing else.  The first block is the row description.
"""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ...errors import ChronicleError, InvalidArgument, ReadOnlyStore, StreamNotFound
from ...query.contract.access import VisibleStreams
from ...query.contract.result import Result
from ...query.sql.dialect import parse_statement, tokens_of
from ...query.sql.first_word import plain
from ...query.sql.nesting import headroom, measure
from ...query.sql.parameters import number_placeholders
from ..access.auth import Principal, authorize, visible_to
from ..service.query_log import RunningQuery
from ..service.row_stream import BodyPipe, Tally, compute, open_statement
from ..service.state import Server
from .catalogue import SCHEMA, PostgresCatalog, names_catalog, translated
from .messages import notice, written
from .values import (
    ARRAY_OIDS,
    KINDS,
    ROWS_AT_ONCE,
    data_rows,
    format_at,
    kind_of,
    parameter,
    row_description,
)

FORMAT = "postgres"


@dataclass
class Statement:
    """A prepared text; ``declared`` are the types of parameters that the client named."""

    text: str
    declared: list[int] = field(default_factory=list)
    types: list[int] | None = None

    @property
    def words(self) -> list[str]:
        return plain(self.text).rstrip(";").split()

    @property
    def first(self) -> str:
        return self.words[0].upper() if self.words else ""


@dataclass
class Portal:
    """A statement with its values of ``size`` bytes; ``run`` is its query once it has begun."""

    statement: Statement
    values: list[Any] | None = None
    formats: Sequence[int] = ()
    size: int = 0
    run: Run | None = None

    def end(self) -> None:
        if self.run is not None:
            self.run.end()


class Run:
    """A query that is computed, and its rows as messages."""

    def __init__(self, query: RunningQuery, pipe: BodyPipe, tally: Tally) -> None:
        self.query = query
        self.pipe = pipe
        self.tally = tally
        self.description = b""
        self.rows = 0
        self.sent = 0
        self._left = b""
        self._expiry: asyncio.TimerHandle | None = None

    def wait(self, seconds: float) -> None:
        """End the query unless its client asks for more rows within ``seconds``."""
        self._expiry = asyncio.get_running_loop().call_later(seconds, self.end)

    def end(self) -> None:
        self._go_on()
        self.query.cancellation.cancel()
        self.pipe.abandon()

    def _go_on(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    @property
    def complete(self) -> bool:
        return not self._left and self.pipe.complete

    async def blocks(self, most: int) -> Any:
        """Blocks of messages with ``most`` rows in all (0: all rows)."""
        self._go_on()
        self.rows = 0
        while True:
            block = self._left or await self.pipe.next_block()
            self._left = b""
            if block is None:
                return
            if most:
                end = self._end_of_rows(block, most - self.rows)
                block, self._left = block[:end], block[end:]
            if block:
                yield block
            if most and self.rows == most:
                return

    def _end_of_rows(self, block: bytes, most: int) -> int:
        at = 0
        while at < len(block) and most:
            if block[at] == ord("D"):
                most -= 1
                self.rows += 1
            at += 1 + int(struct.unpack_from(">i", block, at + 1)[0])
        return at


class Statements:
    """Runs the statements of one session."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.running: RunningQuery | None = None

    def cancel(self) -> None:
        if self.running is not None:
            self.running.cancellation.cancel()

    async def begin(
        self, principal: Principal, request_id: str, portal: Portal, timeout_s: float
    ) -> Run:
        """Start a portal's query and wait for its columns."""
        server = self._server
        text, values, formats = portal.statement.text, portal.values, portal.formats
        slot = await server.queries.enter(principal.client)
        query = server.running.add(request_id, "query", text, principal)
        self.running = query
        run = Run(query, BodyPipe(), Tally(None, server.settings.max_rows))

        def write() -> None:
            with self._open(principal, query, text, values, timeout_s) as result:
                columns = row_description(result.schema, formats)
                run.pipe.write(written("RowDescription", columns))
                run.pipe.flush()
                _write_rows(run.tally.cut(result.batches(), query, False), formats, run.pipe)

        compute(server, slot, query, run.pipe, run.tally, FORMAT, write)
        try:
            run.description = await run.pipe.next_block() or b""
        except BaseException:
            run.end()
            raise
        return run

    async def describe(
        self, principal: Principal, request_id: str, statement: Statement, timeout_s: float
    ) -> tuple[list[int], pa.Schema | None]:
        """The types of a statement's parameters, and its columns; None where they depend on
        values.
        """
        server = self._server

        def look(query: RunningQuery) -> tuple[list[int], pa.Schema | None]:
            types = self.types(principal, statement)
            try:
                nothing = [None] * len(types) or None
                result = self._open(principal, query, statement.text, nothing, timeout_s)
            except ChronicleError:
                if not types:
                    raise
                return types, None
            with result:
                return types, result.schema

        async with server.queried(request_id, statement.text, principal) as self.running:
            return await server.call(look, self.running)

    def bound(self, principal: Principal, statement: Statement, message: Any) -> list[Any] | None:
        """The values of a Bind; raises ``InvalidArgument``."""
        if not message.values:
            return None
        types = statement.types
        if types is None:
            types = self.types(principal, statement)
        formats = message.formats
        if len(formats) not in (0, 1, len(message.values)):
            raise InvalidArgument("expected one format for all parameters, or one for each")
        declared = chain(types, repeat(0))
        return [
            parameter(data, format_at(formats, place) == 1, oid)
            for place, (data, oid) in enumerate(zip(message.values, declared, strict=False))
        ]

    def types(self, principal: Principal, statement: Statement) -> list[int]:
        """The types of parameters: as declared, else as their use says, else text."""
        if statement.types is None:
            statement.types = list(statement.declared)
            if "$" in statement.text:
                found = _used_types(self._server, principal, self._plain(principal, statement.text))
                declared = statement.declared
                statement.types = [
                    (declared[place] if place < len(declared) else 0) or type_
                    for place, type_ in enumerate(found)
                ]
        return statement.types

    def _plain(self, principal: Principal, text: str) -> str:
        measure(text)
        with headroom(text):
            return translated(text, _user(principal)) if names_catalog(text) else _unqualified(text)

    def _open(
        self, principal: Principal, query: RunningQuery, text: str, values: Any, timeout_s: float
    ) -> Result:
        server = self._server
        wanted = self._plain(principal, text)
        if not names_catalog(text):
            try:
                return open_statement(
                    server, principal, query, wanted, values, timeout_s, read_only=True
                )
            except ReadOnlyStore:
                raise ReadOnlyStore(
                    "PostgreSQL's protocol is for reading here; send what changes the store over "
                    "REST, or from Python, Spark or the command line"
                ) from None
        if values:  # functions that are constants here read none
            used = [int(number) for number in re.findall(r"\$(\d+)", wanted)]
            values = values[: max(used, default=0)] or None
        visible = visible_to(principal) or (lambda _: True)
        engine = server.catalog.engine
        catalog = PostgresCatalog(engine.catalog, visible, server.tell(principal))
        return engine.over_catalog(catalog).run(
            wanted, values, timeout_s, read_only=True, cancellation=query.cancellation,
            allowed=lambda access: authorize(principal, access),
        )  # fmt: skip


def _user(principal: Principal) -> str:
    return principal.owner or "chronicle"


def _write_rows(batches: Iterator[pa.RecordBatch], formats: Sequence[int], pipe: BodyPipe) -> None:
    said: set[str] = set()
    for batch in batches:
        for at in range(0, batch.num_rows, ROWS_AT_ONCE):
            rows, cut = data_rows(batch.slice(at, ROWS_AT_ONCE), formats)
            if not said.issuperset(cut):
                said.update(cut)
                pipe.write(
                    notice(
                        "N", "WARNING", "01000",
                        f"the binary form of times has microseconds: the nanoseconds of "
                        f"{', '.join(cut)} were cut; ask for text, or cast to VARCHAR",
                    )
                )  # fmt: skip
            pipe.write(rows)


def _unqualified(text: str) -> str:
    """The text without the schema before names; positions stay."""
    if SCHEMA not in text.lower():
        return text
    pieces, tokens = list(text), tokens_of(text)
    for before, name, dot in zip([None, *tokens], tokens, tokens[1:], strict=False):
        if (
            dot.text == "."
            and name.text.lower() == SCHEMA
            and (before is None or before.text != ".")
        ):
            pieces[name.start : dot.end + 1] = " " * (dot.end + 1 - name.start)
    return "".join(pieces)


_COMPARED = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between, exp.In, exp.Like)


def _used_types(server: Server, principal: Principal, text: str) -> list[int]:
    """A type for each parameter ``$1``, ``$2`` ...: that of a cast, or of the compared column."""
    root = parse_statement(text)
    count = max(
        (int(name) for name in number_placeholders(root, text) if name.isdigit()), default=0
    )
    types = [KINDS["text"].oid] * count
    columns = _columns(server, principal, root)
    for node in root.find_all(exp.Placeholder):
        place = node.meta.get("parameter", "")
        kind, is_list = _kind_by_use(node, columns)
        if kind is not None and place.isdigit():
            types[int(place) - 1] = ARRAY_OIDS[kind] if is_list else KINDS[kind].oid
    return types


def _columns(server: Server, principal: Principal, root: Any) -> dict[str, str]:
    catalog = VisibleStreams(server.catalog, visible_to(principal) or (lambda _: True))
    kinds: dict[str, str] = {}
    for table in root.find_all(exp.Table):
        try:
            schema = catalog.stream_schema(table.name).arrow
        except (StreamNotFound, InvalidArgument):
            continue
        kinds.update((column.name.lower(), kind_of(column.type)) for column in schema)
    return kinds


def _kind_by_use(node: Any, columns: dict[str, str]) -> tuple[str | None, bool]:
    """The kind of a parameter, and whether it is a list of these."""
    parent, is_list = node.parent, False
    while isinstance(parent, (exp.Paren, exp.Tuple, exp.Any, exp.All)):
        is_list |= isinstance(parent, (exp.Any, exp.All))
        parent = parent.parent
    if isinstance(parent, exp.Cast):
        made = exp.DataType.build(parent.to).sql("postgres").lower()
        is_list, made = made.endswith("[]"), made.removesuffix("[]")
        named = {kind.name: name for name, kind in KINDS.items()}
        kind = {"int": "int4", "uint": "oid", "timestamp": "timestamp", "decimal": "numeric"}.get(
            made.partition("(")[0], named.get(made, made if made in KINDS else None)
        )
        return (None if is_list and kind not in ARRAY_OIDS else kind), is_list
    if isinstance(parent, (exp.Limit, exp.Offset)):
        return "int8", False
    if isinstance(parent, _COMPARED):
        for column in parent.find_all(exp.Column):
            if column.name.lower() in columns:
                return columns[column.name.lower()], is_list
    return None, is_list

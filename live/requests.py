"""Requests of the Python API, in the form that statements have."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from ..errors import InvalidArgument
from ..query.conditions.constants import Folder, Kind
from ..query.contract.catalog import Given, LiveRequest
from ..query.sql.dialect import parse_predicate, parse_statement

__all__ = ["request_of"]


def request_of(
    name: str,
    sql: str,
    into: str | None,
    start: object,
    delay: object,
    idle: object,
    late: object,
    emit: object,
    options: Mapping[str, Any],
    if_not_exists: bool,
) -> LiveRequest:
    """A request; arguments as of ``Database.create_live``."""
    text = sql.strip().removesuffix(";").rstrip()
    words = isinstance(start, str) and start.lower() in ("first", "now")
    ignores = isinstance(late, str) and late.lower() in ("correct", "ignore")
    closes = emit is None or (isinstance(emit, str) and emit.lower() == "close")
    never = isinstance(idle, str) and idle.lower() == "never"
    return LiveRequest(
        name,
        parse_statement(sql),
        sql,
        text,
        into=into,
        start=str(start).lower() if words else Given(start),
        delay=_length(delay, "delay"),
        idle="never" if never else _length(idle, "idle"),
        late=str(late).lower() if ignores else "correct",
        correct_for=None if ignores else _length(late, "late"),
        every=None if closes else _length(emit, "emit"),
        options={key.lower(): Given(value) for key, value in options.items()},
        exists_ok=if_not_exists,
    )


def _length(value: object, what: str) -> Given | None:
    if value is None:
        return None
    if isinstance(value, dt.timedelta):
        return Given(None, value // dt.timedelta(microseconds=1) * 1000)
    if isinstance(value, int) and not isinstance(value, bool):
        return Given(value)
    if isinstance(value, str):
        quoted = value.replace("'", "''")
        now = dt.datetime.now(dt.timezone.utc)
        found = Folder({}, now).fold(parse_predicate(f"INTERVAL '{quoted}'"))
        if found.kind is Kind.INTERVAL:
            return Given(None, int(found.value))
    raise InvalidArgument(
        f"{what} is a timedelta, an integer where times are integers, or a text such as "
        f"'5 minutes', found {value!r}"
    )

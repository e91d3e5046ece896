"""The table of docs/values.md: every type, every way in and out, the values at its ends.

A value that a type holds is the same behind every way in and on every way out; one that it does not
hold is refused, with nothing stored.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import datetime as dt
import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

import chronicle
from chronicle.core import times
from chronicle.core.times import INT64_MAX, INT64_MIN, TICKS_PER_SECOND, time_text
from chronicle.dbapi import connect
from chronicle.dbapi.connection import DatabaseError
from chronicle.errors import ChronicleError
from chronicle.formats.writers import encode
from chronicle.schema import StreamSchema
from chronicle.tests.reading import read_batches

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "values.md"
EPOCH = dt.datetime(1970, 1, 1)


@dataclass(frozen=True)
class Kind:
    """A type of SQL, values that it holds, and some that it does not, all as texts."""

    type: pa.DataType
    holds: tuple[str, ...]
    refuses: tuple[str, ...] = ()
    edges: tuple[str, ...] = ()
    """Values of the type that some ways take and others refuse."""


def _integer(type_: pa.DataType) -> Kind:
    bits, signed = type_.bit_width, not pa.types.is_unsigned_integer(type_)
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    some = {low, low + 1, *((-1,) if signed else ()), 0, high - 1, high}
    some |= {n for n in (2**53, 2**53 + 1) if n < high}
    return Kind(type_, tuple(map(str, sorted(some))), (str(low - 1), str(high + 1), "1.5"))


def _time(unit: str, zone: str | None = None) -> Kind:
    digits = len(str(TICKS_PER_SECOND[unit])) - 1
    nines = "." + "9" * digits if digits else ""
    first, last = "0001-01-01T00:00:00", f"9999-12-31T23:59:59{nines}"
    beyond = f"2024-01-01T00:00:00.{'0' * digits}1"
    refuses = (beyond,) if unit != "ns" else (beyond, "2262-04-12T00:00:00", "1677-09-20T00:00:00")
    edges: tuple[str, ...] = ()
    if unit != "ns":  # years of more than four digits
        edges = (time_text(INT64_MIN if unit == "ms" else INT64_MAX, pa.timestamp(unit), "T"),)
    else:
        edges = ("1677-09-21T00:12:43.145224192", "2262-04-11T23:47:16.854775807")
        first, last = "1677-09-21T00:12:45.000000001", "2262-04-11T23:47:14.999999999"
    before = f"1969-12-31T23:59:59{nines}"
    return Kind(
        pa.timestamp(unit, zone), (first, before, "1970-01-01T00:00:00", last), refuses, edges
    )


KINDS = {
    "BOOLEAN": Kind(pa.bool_(), ("true", "false"), ("2", "yes?")),
    "TINYINT": _integer(pa.int8()),
    "SMALLINT": _integer(pa.int16()),
    "INTEGER": _integer(pa.int32()),
    "BIGINT": _integer(pa.int64()),
    "UTINYINT": _integer(pa.uint8()),
    "USMALLINT": _integer(pa.uint16()),
    "UINTEGER": _integer(pa.uint32()),
    "UBIGINT": _integer(pa.uint64()),
    "FLOAT": Kind(pa.float32(), ("0.5", "-3.4028234663852886e+38", "1.401298464324817e-45"),
                  ("1e39",)),
    "DOUBLE": Kind(pa.float64(), ("0.1", "-1.7976931348623157e+308", "5e-324",
                                  "9007199254740992.0"), ("1e309", "x")),
    "DECIMAL(10, 2)": Kind(pa.decimal128(10, 2), ("0.01", "-99999999.99", "0.00"),
                           ("100000000.00",)),
    "DECIMAL(38, 0)": Kind(pa.decimal128(38, 0), ("9" * 38, "-" + "9" * 38, "18446744073709551616"),
                           ("1" + "0" * 38,)),
    "VARCHAR": Kind(pa.string(), ("", " a ", 'say "hi", ä\n日', "NULL?")),
    "BLOB": Kind(pa.binary(), ("", "AAECgP8=")),
    "DATE": Kind(pa.date32(), ("0001-01-01", "1969-12-31", "9999-12-31"), ("2024-02-30",)),
    "TIMESTAMP_S": _time("s"),
    "TIMESTAMP_MS": _time("ms"),
    "TIMESTAMP": _time("us"),
    "TIMESTAMP_NS": _time("ns"),
    "TIMESTAMPTZ": _time("us", "UTC"),
}  # fmt: skip


# -------------------------------------------------------------------------- values and texts


def ticks_of(text: str, unit: str) -> int:
    """Ticks of a time in UTC, in Python's whole numbers."""
    if text[0] in "+-":
        return int(times.ticks_of(text, "x", unit))
    whole, _, fraction = text.partition(".")
    seconds = (dt.datetime.fromisoformat(whole) - EPOCH) // dt.timedelta(seconds=1)
    digits = len(str(TICKS_PER_SECOND[unit])) - 1
    return seconds * TICKS_PER_SECOND[unit] + int((fraction + "0" * digits)[:digits] or 0)


def scalar_of(kind: Kind, text: str) -> pa.Scalar:
    """A value that the kind holds."""
    if pa.types.is_timestamp(kind.type):
        return pa.scalar(ticks_of(text, kind.type.unit), pa.int64()).cast(kind.type)
    return pa.scalar(python_of(kind, text), kind.type)


def python_of(kind: Kind, text: str) -> Any:
    """What a program in Python would give; None where it cannot say such a value."""
    type_ = kind.type
    if pa.types.is_integer(type_):
        return int(text) if text.lstrip("-").isdigit() else float(text)
    if pa.types.is_boolean(type_):
        return {"true": True, "false": False}.get(text, text)
    if pa.types.is_floating(type_):
        return None if text == "1e309" else text if text == "x" else float(text)
    if pa.types.is_decimal(type_):
        return Decimal(text)
    if pa.types.is_binary(type_):
        return base64.b64decode(text)
    if pa.types.is_date(type_):
        return dt.date.fromisoformat(text) if text != "2024-02-30" else None
    if pa.types.is_timestamp(type_):
        zone = None if type_.tz is None else dt.timezone.utc
        _, _, fraction = text.partition(".")
        if len(fraction) > 9:
            return None
        if text[0] in "+-":
            return pa.scalar(ticks_of(text, type_.unit), pa.int64()).cast(type_)
        ticks = ticks_of(text, "ns")
        if (type_.unit == "ns" and INT64_MIN <= ticks <= INT64_MAX) or len(fraction) > 6:
            return pa.scalar(ticks, pa.int64()).cast(pa.timestamp("ns", type_.tz))
        return dt.datetime.fromisoformat(text).replace(tzinfo=zone)
    return text


def text_of(kind: Kind, value: Any) -> str:
    """A value of any way out as the text of :data:`KINDS`."""
    type_ = kind.type
    if value is None or (isinstance(value, pa.Scalar) and not value.is_valid):
        return "no value"
    if isinstance(value, pa.Scalar):
        value = value.value if pa.types.is_timestamp(value.type) else value.as_py()
        if pa.types.is_timestamp(type_):
            return time_text(value, pa.timestamp(type_.unit), "T")
    if pa.types.is_timestamp(type_) and not isinstance(value, str):
        if isinstance(value, dt.datetime):
            nanos = getattr(value, "nanosecond", 0)
            plain = value.replace(tzinfo=None)
            micros = dt.datetime(*plain.timetuple()[:6], plain.microsecond) - EPOCH
            count = micros // dt.timedelta(microseconds=1) * 1000 + nanos
            return time_text(count * TICKS_PER_SECOND[type_.unit] // 10**9,
                             pa.timestamp(type_.unit), "T")  # fmt: skip
        return time_text(int(value), pa.timestamp(type_.unit), "T")
    if pa.types.is_timestamp(type_):
        return value.removesuffix("Z").removesuffix("+00").replace(" ", "T")
    if pa.types.is_boolean(type_):
        return str(value).lower()
    if pa.types.is_float32(type_):
        return repr(float(np.float32(value)))
    if pa.types.is_floating(type_):
        return repr(float(value))
    if pa.types.is_decimal(type_):
        return f"{Decimal(str(value)):.{type_.scale}f}"
    if pa.types.is_binary(type_) and isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if pa.types.is_date(type_) and not isinstance(value, str):
        return value.isoformat()
    return str(value)


def wanted_of(kind: Kind) -> list[str]:
    return [text_of(kind, scalar_of(kind, text)) for text in kind.holds]


# ------------------------------------------------------------------------------- the ways in


@dataclass
class Place:
    """A stream ``s`` of ``t`` and ``x``, and the interfaces to its database."""

    db: Any
    api: Any
    path: Path
    kind: Kind

    @property
    def stream(self) -> Any:
        return self.db.stream("s")

    def kept(self) -> list[str]:
        return [text_of(self.kind, x) for x in self.stream.scan().read_all()["x"]]

    @property
    def schema(self) -> StreamSchema:
        return StreamSchema(
            pa.schema([pa.field("t", pa.int64(), False), ("x", self.kind.type)]), "t"
        )


class CannotSay(Exception):
    """The way has no such value."""


def natural(place: Place, texts: list[str]) -> pa.Table:
    """Values in the type that Python's or Arrow's own conversion gives them."""
    values = [python_of(place.kind, text) for text in texts]
    if None in values:
        raise CannotSay
    if all(text in place.kind.holds for text in texts):
        array = pa.array([scalar_of(place.kind, text) for text in texts], place.kind.type)
    else:
        try:
            array = pa.array(values)
        except OverflowError:  # nor has Arrow such a number
            raise CannotSay from None
    return pa.table({"t": range(len(texts)), "x": array})


def by_rows(place: Place, texts: list[str]) -> None:
    values = [python_of(place.kind, text) for text in texts]
    if None in values:
        raise CannotSay
    place.stream.append([{"t": t, "x": x} for t, x in enumerate(values)])


def by_arrow(place: Place, texts: list[str]) -> None:
    place.stream.append(natural(place, texts))


def by_pandas(place: Place, texts: list[str]) -> None:
    table = natural(place, texts)
    frame = pandas.DataFrame({"t": range(len(texts))})
    dtype = pandas.ArrowDtype(table["x"].type)
    frame["x"] = pandas.Series(dtype.__from_arrow__(table["x"]))
    place.stream.append(frame)


def by_polars(place: Place, texts: list[str]) -> None:
    table = natural(place, texts)
    far = texts[0][0:1] in ("+", "-") and table["x"].type == pa.timestamp("s")
    if far or pa.types.is_decimal256(table["x"].type):  # polars has no seconds
        raise CannotSay
    place.stream.append(polars.from_arrow(table))


def literal_of(kind: Kind, text: str) -> str:
    if pa.types.is_integer(kind.type) or pa.types.is_decimal(kind.type):
        return text
    if pa.types.is_binary(kind.type):
        return f"from_base64('{text}')"
    return "'" + text.replace("'", "''") + "'"


def by_insert(place: Place, texts: list[str]) -> None:
    if texts == ["1.5"]:
        raise CannotSay  # SQL rounds numbers to whole ones
    rows = ", ".join(f"({t}, {literal_of(place.kind, x)})" for t, x in enumerate(texts))
    place.db.sql(f"INSERT INTO s VALUES {rows}").fetchall()


def by_texts(place: Place, texts: list[str]) -> None:
    """INSERT of texts, whatever the type."""
    if texts == ["1.5"] or pa.types.is_binary(place.kind.type):
        raise CannotSay
    quoted = ["'" + text.replace("'", "''") + "'" for text in texts]
    rows = ", ".join(f"({t}, {x})" for t, x in enumerate(quoted))
    place.db.sql(f"INSERT INTO s VALUES {rows}").fetchall()


def _parameters(place: Place, texts: list[str]) -> list[Any]:
    values = [python_of(place.kind, text) for text in texts]
    if None in values or 1.5 in values:
        raise CannotSay
    if any(isinstance(value, pa.Scalar) for value in values):
        values = [x if not isinstance(x, pa.Scalar) else text
                  for x, text in zip(values, texts, strict=True)]  # fmt: skip
    return values


def by_parameter(place: Place, texts: list[str]) -> None:
    for t, x in enumerate(_parameters(place, texts)):
        place.db.sql("INSERT INTO s VALUES ($t, $x)", {"t": t, "x": x}).fetchall()


def by_dbapi(place: Place, texts: list[str]) -> None:
    values = _parameters(place, texts)
    place.db.close()
    try:
        with contextlib.closing(connect(place.path)) as connection:
            cursor = connection.cursor()
            cursor.executemany("INSERT INTO s VALUES (?, ?)", list(enumerate(values)))
            connection.commit()
    except DatabaseError as error:
        raise chronicle.errors.InvalidData(str(error)) from None
    finally:
        place.db = chronicle.open(place.path)


def json_value(kind: Kind, text: str) -> str:
    plain = (pa.types.is_integer(kind.type) or pa.types.is_floating(kind.type)
             or pa.types.is_decimal(kind.type) or pa.types.is_boolean(kind.type))  # fmt: skip
    number = text.replace("e+", "e").lstrip("-").replace(".", "").replace("e-", "").isalnum()
    return text if plain and number and text not in ("x", "yes?") else json.dumps(text)


def ndjson(place: Place, texts: list[str]) -> bytes:
    lines = (f'{{"t": {t}, "x": {json_value(place.kind, x)}}}\n' for t, x in enumerate(texts))
    return "".join(lines).encode()


def read(place: Place, data: bytes, format: str) -> None:
    batches = list(read_batches(data, format, schema=place.schema, time_format="ticks"))
    for batch in batches:
        place.stream.append(batch)


def by_csv(place: Place, texts: list[str]) -> None:
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL).writerows([["t", "x"], *enumerate(texts)])
    read(place, out.getvalue().encode(), "csv")


def by_ndjson(place: Place, texts: list[str]) -> None:
    read(place, ndjson(place, texts), "ndjson")


def by_json(place: Place, texts: list[str]) -> None:
    lines = ndjson(place, texts).decode().splitlines()
    read(place, f"[{','.join(lines)}]".encode(), "json")


def by_parquet(place: Place, texts: list[str]) -> None:
    out = io.BytesIO()
    try:
        pq.write_table(natural(place, texts), out)
    except pa.ArrowInvalid:  # Parquet has no seconds
        raise CannotSay from None
    read(place, out.getvalue(), "parquet")


def by_ipc(place: Place, texts: list[str]) -> None:
    table, out = natural(place, texts), io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    read(place, out.getvalue(), "arrow")


def _accepted(answer: Any) -> None:
    if answer.status_code >= 400:
        raise chronicle.errors.InvalidData(answer.text)


def by_rest(place: Place, texts: list[str]) -> None:
    _accepted(
        place.api.request(
            "POST", "/v1/streams/s/events", content=ndjson(place, texts),
            headers={"content-type": "application/x-ndjson"},
        )
    )  # fmt: skip


def by_rest_parameter(place: Place, texts: list[str]) -> None:
    for t, text in enumerate(texts):
        x: Any = text
        if pa.types.is_integer(place.kind.type) and "." not in text:
            x = int(text)
        elif text == "1.5":
            raise CannotSay
        elif pa.types.is_binary(place.kind.type):
            x = {"type": "blob", "value": text}
        elif pa.types.is_timestamp(place.kind.type) and place.kind.type.unit == "us":
            x = {
                "type": "timestamp" if place.kind.type.tz is None else "timestamptz",
                "value": text,
            }
        body = {"sql": "INSERT INTO s VALUES ($t, $x)", "params": {"t": t, "x": x}}
        _accepted(place.api.request("POST", "/v1/query", json=body))


WAYS_IN: dict[str, Callable[[Place, list[str]], None]] = {
    "append: rows": by_rows,
    "append: Arrow": by_arrow,
    "append: pandas": by_pandas,
    "append: polars": by_polars,
    "INSERT: literals": by_insert,
    "INSERT: texts": by_texts,
    "SQL parameters": by_parameter,
    "CSV": by_csv,
    "NDJSON": by_ndjson,
    "JSON": by_json,
    "Parquet": by_parquet,
    "Arrow IPC": by_ipc,
    "REST body": by_rest,
    "REST parameters": by_rest_parameter,
    "DB-API": by_dbapi,  # last: it opens the store itself
}


# ------------------------------------------------------------------------------ the ways out


def _csv_column(data: bytes) -> list[str]:
    return [row["x"] for row in csv.DictReader(io.StringIO(data.decode(), newline=""))]


def _json_lines(data: bytes) -> list[Any]:
    return [json.loads(line, parse_float=str)["x"] for line in data.decode().splitlines()]


def _frame_values(place: Place, frame: Any) -> list[Any]:
    if pa.types.is_timestamp(place.kind.type):
        return list(pa.array(frame["x"]).cast(place.kind.type))
    return list(frame["x"])


QUERY = "SELECT x FROM s ORDER BY t"


def _encoded(place: Place, format: str) -> bytes:
    table = place.db.sql(QUERY).arrow()
    return b"".join(encode(table.to_batches(), table.schema, format))


def _rest(place: Place, accept: str) -> bytes:
    answer = place.api.request("GET", "/v1/query", params={"q": QUERY}, headers={"accept": accept})
    assert answer.status_code == 200, answer.text
    return answer.content


def _from_dbapi(place: Place) -> list[Any]:
    with contextlib.closing(connect(place.path, mode="r")) as connection:
        cursor = connection.cursor()
        cursor.execute(QUERY)
        return [x for (x,) in cursor.fetchall()]


WAYS_OUT: dict[str, Callable[[Place], list[Any]]] = {
    "arrow()": lambda p: list(p.db.sql(QUERY).arrow()["x"]),
    "fetchall()": lambda p: [x for (x,) in p.db.sql(QUERY).fetchall()],
    "df()": lambda p: _frame_values(p, p.db.sql(QUERY).df()),
    "pl()": lambda p: list(p.db.sql(QUERY).pl()["x"].to_arrow().cast(p.kind.type)),
    "DB-API": _from_dbapi,
    "Parquet": lambda p: list(
        pq.read_table(io.BytesIO(_encoded(p, "parquet")))["x"].cast(p.kind.type)
    ),
    "Arrow IPC": lambda p: list(pa.ipc.open_stream(_encoded(p, "arrow")).read_all()["x"]),
    "NDJSON": lambda p: _json_lines(_encoded(p, "ndjson")),
    "CSV": lambda p: _csv_column(_encoded(p, "csv")),
    "REST: JSON": lambda p: [
        row["x"] for row in json.loads(_rest(p, "application/json"), parse_float=str)["rows"]
    ],
    "REST: CSV": lambda p: _csv_column(_rest(p, "text/csv")),
}  # fmt: skip


# ---------------------------------------------------------------------------------- the walk


@pytest.fixture
def make(tmp_path: Path, serve_app: Any) -> Iterator[Callable[[str, Kind], Place]]:
    made: list[Place] = []

    def build(name: str, kind: Kind) -> Place:
        path = tmp_path / "store"
        db = chronicle.open(path)
        db.sql(f"CREATE STREAM s (t BIGINT, x {name}) TIMESTAMP BY t")
        made.append(Place(db, serve_app(db), path, kind))
        return made[-1]

    yield build
    for place in made:
        place.db.close()


@pytest.mark.parametrize("name", KINDS)
def test_values_pass_every_way(name: str, make: Callable[[str, Kind], Place]) -> None:
    kind = KINDS[name]
    place = make(name, kind)
    wanted, problems = wanted_of(kind), []
    by_arrow(place, list(kind.holds))
    for way, take in WAYS_OUT.items():
        try:
            found = [text_of(kind, x) for x in take(place)]
        except Exception as error:
            problems.append((way, "out", repr(error)[:200]))
            continue
        if found != wanted:
            problems.append((way, "out", found))
    rows = place.db.sql("SELECT t, x FROM s").fetchall()
    place.stream.delete(None)
    place.stream.append([{"t": t, "x": x} for t, x in rows])
    found = place.kept()
    if found != wanted:
        problems.append(("fetchall()", "in again", found))
    place.stream.delete(None)
    for way, give in WAYS_IN.items():
        with contextlib.suppress(CannotSay):
            try:
                give(place, list(kind.holds))
                found = place.kept()
                if found != wanted:
                    problems.append((way, "in", found))
            except ChronicleError as error:
                problems.append((way, "refused", str(error)))
            place.stream.delete(None)
        alone = way == "DB-API"  # whose values are those of SQL parameters
        for text in () if alone else kind.edges:
            with contextlib.suppress(ChronicleError, CannotSay):
                give(place, [text])
                found = place.kept()
                if found != [text]:
                    problems.append((way, "edge", text, found))
            place.stream.delete(None)
        for text in kind.refuses[:1] if alone else kind.refuses:
            try:
                give(place, [text])
                problems.append(
                    (way, "kept", text, place.stream.scan().read_all()["x"].to_pylist())
                )
            except (ChronicleError, CannotSay):
                pass
            if place.stream.count:
                place.stream.delete(None)
    assert not problems, "\n".join(map(str, problems))


def test_the_document_has_every_way_and_type() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    cells = {cell.strip().strip("`") for line in text.splitlines() for cell in line.split("|")}
    assert set(WAYS_IN) | set(WAYS_OUT) <= cells
    assert {name.split("(")[0] for name in KINDS} <= set(re.findall(r"[A-Z_]{3,}", text))

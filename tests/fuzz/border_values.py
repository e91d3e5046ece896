"""Events with values at the ends of their types, and SQL over them, at random.

Purpose
    :class:`Events` draws the columns, the time and the values of a stream from a seed; ``n``
    numbers the events.  :class:`Texts` writes predicates, aggregates and literals over them that
    the dialect shares with DuckDB; literals lie at, before and beyond the ends.
"""

from __future__ import annotations

import datetime as dt
import math
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa

from chronicle.query.sql.sql_types import sql_type

__all__ = ["POOLS", "TEXTS", "Events", "Texts", "quoted"]

TEXTS = (
    *("", " ", "a", "A", "a ", "ab", "ä", "a\u0308", "ß", "日本", "😀", "\U0010ffff", "\ufeffa"),
    *("NULL", "null", "NaN", "'", '"', "a,b", "a\nb", "a\r\nb", "\r", "%", "_", "\\", "a%b_c"),
    *(
        "0012",
        "1e5",
        "-0",
        "true",
        "2024-01-01",
        "2024-01-01T00:00:00Z",
        "x" * 300,
        "\u2028",
        "\x7f",
    ),
)
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999  # years 1 to 9999
INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
NAMES = ("a", "B", "select", "a b", "Ä", 'q"q', "x.y", "1st", "_id", "ORDER", "a'b", "naïve", "%")


def _ends(bits: int, signed: bool) -> list[int]:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    odd = [v for v in (-1, 0, 1, 5, 2**53, 2**53 + 1) if low < v < high]
    return [low, low + 1, *odd, high - 1, high]


def _times(unit: str, ends: bool) -> list[int]:
    per = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    if unit == "ns":
        low, high = -(9_223_372_034 * per), 9_223_372_034 * per + 999_999_999  # docs/values.md
    else:
        low, high = FIRST_US * per // 10**6, LAST_US * per // 10**6
    near = [low, low + 1, -per, -1, 0, 1, per - 1, per, 86_400 * per, 86_400 * per - 1]
    return [*near, 1_714_521_600 * per, high - 1, high]


POOLS: dict[pa.DataType, list[Any]] = {
    **{getattr(pa, name)(): _ends(bits, True) for name, bits in INTEGERS.items()},
    **{getattr(pa, f"u{name}")(): _ends(bits, False) for name, bits in INTEGERS.items()},
    pa.float64(): [math.nan, -0.0, 0.0, math.inf, -math.inf, 5e-324, -5e-324, 2.0**53, 0.1, -1.5,
                   1.7976931348623157e308, -1.7976931348623157e308, 1e300, 9.223372036854775807e18],
    pa.float32(): [math.nan, -0.0, 0.0, math.inf, -math.inf, 1.401298464324817e-45, 0.5, 16777216.0,
                   3.4028234663852886e38, -3.4028234663852886e38],
    pa.decimal128(38, 0): [Decimal(v) for v in (10**38 - 1, 1 - 10**38, 0, 1, -1, 2**63, 2**64)],
    pa.decimal128(38, 37): [Decimal(f"{v}E-37") for v in (10**38 - 1, 1 - 10**38, 0, 1, -1)],
    pa.decimal128(18, 3): [Decimal(f"{v}E-3") for v in (10**18 - 1, 1 - 10**18, 0, 1, -1, 1500)],
    pa.decimal128(9, 2): [Decimal(f"{v}E-2") for v in (10**9 - 1, 1 - 10**9, 0, 1, -1, 1500)],
    pa.string(): list(TEXTS),
    pa.binary(): [b"", b"\x00", b"a", b"\xff" * 40, b"\x00\x01", bytes(range(256))],
    pa.bool_(): [True, False],
    pa.date32(): [-719_162, -719_161, -1, 0, 1, 19_844, 2_932_895, 2_932_896],
    **{pa.timestamp(unit): _times(unit, True) for unit in ("s", "ms", "us", "ns")},
    pa.timestamp("us", "UTC"): _times("us", True),
}  # fmt: skip
NESTED = (pa.list_(pa.int64()), pa.struct([("a", pa.int64()), ("b c", pa.string())]),
          pa.list_(pa.string()))  # fmt: skip


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class Events:
    """A random schema and events of it.

    Parameters
    ----------
    nested : bool
        With a column of lists or structs.
    calm : bool
        Times are near each other, and none is at the greatest ticks.

    Attributes
    ----------
    columns : dict
        Types by name, without the time ``t`` and the number ``n``.
    """

    def __init__(self, rng: random.Random, *, nested: bool = False, calm: bool = False) -> None:
        self.random = rng
        self.time = rng.choice(
            [pa.int64(), pa.int64(), *(pa.timestamp(u) for u in ("s", "ms", "us", "ns"))]
        )
        names = ["k", *rng.sample(NAMES, rng.randint(1, 4))]
        self.columns = {name: rng.choice(list(POOLS)) for name in names}
        self.columns["k"] = rng.choice([pa.string(), pa.int8(), pa.bool_()])
        if nested:
            self.columns["nest"] = rng.choice(NESTED)
        ticks = POOLS[self.time]
        self.base = rng.choice([min(ticks), 0, 1000] if calm else [*ticks, *ticks, 1000])
        self.spread = rng.choice([5, 40] if calm else [0, 1, 5, 40, 1000])
        self.made = 0

    @property
    def schema(self) -> pa.Schema:
        fields = [pa.field("t", self.time, False), pa.field("n", pa.int64())]
        return pa.schema([*fields, *self.columns.items()])

    def ticks(self) -> int:
        r = self.random
        low, high = min(POOLS[self.time]), max(POOLS[self.time])
        if self.spread == 0:
            return int(r.choice(POOLS[self.time]))
        return max(low, min(high, self.base + r.randint(-self.spread, self.spread)))

    def value(self, type_: pa.DataType) -> Any:
        r = self.random
        if r.random() < 0.15:
            return None
        if pa.types.is_list(type_):
            return [self.value(type_.value_type) for _ in range(r.choice([0, 1, 2]))]
        if pa.types.is_struct(type_):
            return {f.name: self.value(f.type) for f in type_}
        return r.choice(POOLS[type_])

    def array(self, type_: pa.DataType, rows: int) -> pa.Array:
        few = [self.value(type_) for _ in range(self.random.choice([1, 3, 20]))]
        values = [self.random.choice(few) for _ in range(rows)]
        if pa.types.is_temporal(type_):
            word = pa.int32() if pa.types.is_date32(type_) else pa.int64()
            return pa.array(values, word).cast(type_)
        return pa.array(values, type_)

    def table(self, rows: int, *, ordered: bool = True) -> pa.Table:
        ticks = [self.ticks() for _ in range(rows)]
        if ordered:
            ticks.sort()
        columns = {
            "t": pa.array(ticks, pa.int64()).cast(self.time),
            "n": pa.array(range(self.made, self.made + rows), pa.int64()),
            **{name: self.array(type_, rows) for name, type_ in self.columns.items()},
        }
        self.made += rows
        return pa.table(columns, schema=self.schema)


class Texts:
    """SQL over the events of an :class:`Events`."""

    def __init__(self, events: Events) -> None:
        self.events = events
        self.random = events.random
        self.types = {"t": events.time, "n": pa.int64(), **events.columns}
        self.flat = [c for c, type_ in self.types.items() if not pa.types.is_nested(type_)]

    def literal(self, type_: pa.DataType) -> str:
        """A value of the type, or a near one, as SQL."""
        r = self.random
        value = r.choice(POOLS[type_])
        if r.random() < 0.06:
            return f"NULL::{sql_type(type_)}" if r.random() < 0.5 else "NULL"
        if pa.types.is_integer(type_):
            value += r.choice([0, 0, 0, 1, -1])
            return r.choice([str(value)] * 5 + [f"{value}.5", f"{value}::DOUBLE", f"'{value}'",
                                                f"{value}::HUGEINT"])  # fmt: skip
        if pa.types.is_floating(type_):
            text = repr(value)
            return f"'{text}'::{r.choice(['DOUBLE', 'FLOAT'])}" if "n" in text else text
        if pa.types.is_decimal(type_):
            return f"{value:f}"
        if pa.types.is_string(type_):
            return "'" + value.replace("'", "''") + "'"
        if pa.types.is_binary(type_):
            return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"
        if pa.types.is_boolean(type_):
            return str(value)
        if pa.types.is_date(type_):
            return f"DATE '{dt.date(1970, 1, 1) + dt.timedelta(days=value)}'"
        return f"'{time_of(value, type_)}'::{sql_type(type_)}"

    def tick(self) -> str:
        time, value = self.events.time, self.events.ticks() + self.random.choice([0, 0, 1, -1])
        value = max(min(POOLS[time]), min(max(POOLS[time]), value))
        return str(value) if time == pa.int64() else f"'{time_of(value, time)}'::{sql_type(time)}"

    def atom(self) -> str:
        r = self.random
        column = r.choice(["t", *self.flat])
        type_, name = self.types[column], quoted(column)

        def value() -> str:
            return self.tick() if column == "t" else self.literal(type_)

        kind = r.randrange(10)
        if kind == 0:
            return f"{name} BETWEEN {value()} AND {value()}"
        if kind == 1:
            return f"{name} {r.choice(['IN', 'NOT IN'])} ({value()}, {value()})"
        if kind == 2:
            return f"{name} IS {r.choice(['', 'NOT '])}NULL"
        if kind == 3:
            return f"{name} IS {r.choice(['', 'NOT '])}DISTINCT FROM {value()}"
        if kind == 4 and pa.types.is_string(type_):
            shape = r.choice(["'a%'", "'%b'", "'_'", "'%'", "''", "'A%'", "'%\\%%' ESCAPE '\\'"])
            return f"{name} {r.choice(['LIKE', 'NOT LIKE', 'ILIKE'])} {shape}"
        return f"{name} {r.choice(['<', '<=', '>', '>=', '=', '<>'])} {value()}"

    def predicate(self, depth: int = 0) -> str:
        r = self.random
        roll = r.random()
        if depth > 1 or roll < 0.5:
            return self.atom()
        if roll < 0.6:
            return f"NOT ({self.predicate(depth + 1)})"
        return (
            f"({self.predicate(depth + 1)} {r.choice(['AND', 'OR'])} {self.predicate(depth + 1)})"
        )

    def span(self) -> str:
        """A condition on the time alone."""
        r = self.random
        parts = [
            f"t {r.choice(['>=', '>'])} {self.tick()}",
            f"t {r.choice(['<', '<='])} {self.tick()}",
        ]
        return " AND ".join(r.sample(parts, r.randint(0, 2))) or "TRUE"

    def aggregate(self, *, own: bool = False) -> str:
        """A call whose answer does not depend on an order."""
        r = self.random
        column = r.choice(self.flat)
        type_, name = self.types[column], quoted(column)
        calls = ["count({})", "min({})", "max({})"]
        few = pa.types.is_decimal(type_) and type_.precision < 38  # else by the order of summands
        if pa.types.is_integer(type_) or (own and few):
            calls += ["sum({})"] * 3
        if pa.types.is_boolean(type_):
            calls += ["bool_and({})", "bool_or({})"]
        if pa.types.is_boolean(type_) or pa.types.is_binary(type_):
            calls = [c for c in calls if "m" not in c] or ["count({})"]
        return r.choice([*calls, *calls, "count(*)"]).format(name)


def time_of(value: int, type_: pa.DataType) -> str:
    per = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[type_.unit]
    seconds, rest = divmod(value, per)
    text = (dt.datetime(1970, 1, 1) + dt.timedelta(seconds=seconds)).strftime("%Y-%m-%d %H:%M:%S")
    text = text.rjust(19, "0")
    return text if per == 1 else f"{text}.{rest:0{len(str(per)) - 1}d}"

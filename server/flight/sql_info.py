"""Capabilities for drivers: ``GetSqlInfo`` and ``GetXdbcTypeInfo``.  Numbers are those of the
protocol's enumerations ``SqlInfo``, ``XdbcDataType`` and their like.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ... import __version__
from ...query.sql.nesting import TEXT_LENGTH_MAX
from .prepared import IDLE_S

__all__ = ["INFO_COMMANDS"]

_LISTS = pa.map_(pa.int32(), pa.list_(pa.field("$data$", pa.int32())))
_KINDS = [
    pa.field("string_value", pa.string()),
    pa.field("bool_value", pa.bool_()),
    pa.field("bigint_value", pa.int64()),
    pa.field("int32_bitmask", pa.int32()),
    pa.field("string_list", pa.list_(pa.field("string_data", pa.string()))),
    pa.field("int32_to_int32_list_map", _LISTS),
]
_STRING, _BOOL, _BIGINT, _INT = range(4)
_INFO = pa.schema(
    [
        pa.field("info_name", pa.uint32(), nullable=False),
        pa.field("value", pa.dense_union(_KINDS), nullable=False),
    ]
)

_SAID: dict[int, tuple[int, Any]] = {
    0: (_STRING, "Chronicle"),
    1: (_STRING, __version__),
    2: (_STRING, pa.__version__),
    3: (_BOOL, False),  # read-only; replaced by the store's mode
    4: (_BOOL, True),  # SQL
    5: (_BOOL, False),  # Substrait
    8: (_INT, 0),  # no transactions
    9: (_BOOL, True),  # CancelQuery
    100: (_INT, int(IDLE_S * 1000)),
    101: (_INT, 0),
    500: (_BOOL, False),  # CREATE and DROP of catalogs,
    501: (_BOOL, False),  # of schemas,
    502: (_BOOL, True),  # of tables
    503: (_INT, 1),  # names are case-insensitive
    504: (_STRING, '"'),
    505: (_INT, 1),
    506: (_BOOL, True),
    507: (_INT, 3),  # NULLs come last
    513: (_STRING, "\\"),
    514: (_STRING, ""),
    515: (_BOOL, True),
    516: (_BOOL, True),
    518: (_BOOL, True),
    519: (_BOOL, False),
    520: (_BOOL, True),
    521: (_BOOL, True),
    522: (_INT, 3),
    523: (_BOOL, True),
    524: (_BOOL, True),
    525: (_INT, 1),
    526: (_INT, 0),
    527: (_BOOL, False),
    528: (_INT, 2),
    529: (_STRING, "schema"),
    530: (_STRING, ""),
    531: (_STRING, "catalog"),
    532: (_BOOL, True),
    533: (_INT, 0),
    534: (_INT, 0),
    535: (_INT, 0),
    536: (_BOOL, False),
    537: (_BOOL, False),
    538: (_INT, 15),
    539: (_BOOL, True),
    540: (_INT, 3),
    557: (_BIGINT, TEXT_LENGTH_MAX),
    562: (_INT, 0),  # no isolation level: no transactions
    563: (_BOOL, False),
    564: (_INT, 1),
    565: (_BOOL, False),
    566: (_BOOL, False),
    567: (_INT, 2),  # results go forward only
    572: (_BOOL, True),
    573: (_BOOL, False),
    574: (_BOOL, True),
    576: (_BOOL, False),
}
"""By the number of ``SqlInfo``; entries not listed have no limit or do not apply."""


def _info(read_only: bool, command: Any) -> pa.Table:
    said = {**_SAID, 3: (_BOOL, read_only)}
    wanted = sorted(set(command.info) & said.keys()) if command.info else sorted(said)
    children: list[list[Any]] = [[] for _ in _KINDS]
    kinds, offsets = [], []
    for name in wanted:
        kind, value = said[name]
        kinds.append(kind)
        offsets.append(len(children[kind]))
        children[kind].append(value)
    values = pa.UnionArray.from_dense(
        pa.array(kinds, pa.int8()),
        pa.array(offsets, pa.int32()),
        [pa.array(child, field.type) for child, field in zip(children, _KINDS, strict=True)],
        [field.name for field in _KINDS],
    )
    return pa.table([pa.array(wanted, pa.uint32()), values], schema=_INFO)


_TYPE_INFO = pa.schema(
    [
        pa.field("type_name", pa.string(), nullable=False),
        pa.field("data_type", pa.int32(), nullable=False),
        pa.field("column_size", pa.int32()),
        pa.field("literal_prefix", pa.string()),
        pa.field("literal_suffix", pa.string()),
        pa.field("create_params", pa.list_(pa.field("item", pa.string(), nullable=False))),
        pa.field("nullable", pa.int32(), nullable=False),
        pa.field("case_sensitive", pa.bool_(), nullable=False),
        pa.field("searchable", pa.int32(), nullable=False),
        pa.field("unsigned_attribute", pa.bool_()),
        pa.field("fixed_prec_scale", pa.bool_(), nullable=False),
        pa.field("auto_increment", pa.bool_()),
        pa.field("local_type_name", pa.string()),
        pa.field("minimum_scale", pa.int32()),
        pa.field("maximum_scale", pa.int32()),
        pa.field("sql_data_type", pa.int32(), nullable=False),
        pa.field("datetime_subcode", pa.int32()),
        pa.field("num_prec_radix", pa.int32()),
        pa.field("interval_precision", pa.int32()),
    ]
)
_NULLABLE, _ANY_OPERATOR = 1, 3
_DATETIME = 9


def _type(
    name: str,
    number: int,
    size: int | None = None,
    *,
    unsigned: bool | None = None,
    radix: int | None = None,
    quoted: bool = False,
    **more: Any,
) -> dict[str, Any]:
    return {
        "type_name": name, "data_type": number, "column_size": size,
        "literal_prefix": "'" if quoted else None, "literal_suffix": "'" if quoted else None,
        "nullable": _NULLABLE, "case_sensitive": name == "VARCHAR", "searchable": _ANY_OPERATOR,
        "unsigned_attribute": unsigned, "fixed_prec_scale": False,
        "auto_increment": None if radix is None else False, "sql_data_type": number,
        "num_prec_radix": radix, **more,
    }  # fmt: skip


def _moment(name: str, size: int, number: int = 93, subcode: int = 3) -> dict[str, Any]:
    found = _type(name, number, size, quoted=True)
    return found | {"sql_data_type": _DATETIME, "datetime_subcode": subcode}


_TYPES = [
    _type("BOOLEAN", -7, 1),
    *(_type(n, k, s, unsigned=False, radix=10) for n, k, s in (
        ("TINYINT", -6, 3), ("SMALLINT", 5, 5), ("INTEGER", 4, 10), ("BIGINT", -5, 19))),
    *(_type(n, k, s, unsigned=True, radix=10) for n, k, s in (
        ("UTINYINT", -6, 3), ("USMALLINT", 5, 5), ("UINTEGER", 4, 10), ("UBIGINT", -5, 20))),
    _type("FLOAT", 7, 24, unsigned=False, radix=2),
    _type("DOUBLE", 8, 53, unsigned=False, radix=2),
    _type("DECIMAL", 3, 38, unsigned=False, radix=10, minimum_scale=0, maximum_scale=38,
          create_params=["precision", "scale"]),
    _type("VARCHAR", 12, quoted=True),
    _type("BLOB", -3, quoted=True),
    _moment("DATE", 10, 91, 1),
    *(_moment(n, s) for n, s in (
        ("TIMESTAMP", 26), ("TIMESTAMP_S", 19), ("TIMESTAMP_MS", 23), ("TIMESTAMP_NS", 29))),
    _moment("TIMESTAMPTZ", 32, subcode=5),
]  # fmt: skip


def _types(read_only: bool, command: Any) -> pa.Table:
    del read_only
    wanted = command.data_type if command.HasField("data_type") else None
    rows = [row for row in _TYPES if wanted in (None, row["data_type"])]
    rows.sort(key=lambda row: (row["data_type"], row["type_name"]))
    return pa.Table.from_pylist(rows, _TYPE_INFO)


INFO_COMMANDS = {"CommandGetSqlInfo": _info, "CommandGetXdbcTypeInfo": _types}

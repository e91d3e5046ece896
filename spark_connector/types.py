"""Lossless conversion between the types of a stream and of a DataFrame, or an error.

========================  =====================  ==========================================
stream (Arrow)            Spark                  remarks
========================  =====================  ==========================================
bool                      boolean
int8, 16, 32, 64          byte, short, int, long
uint8, 16, 32             short, int, long
uint64                    decimal(20,0)
float32, float64          float, double          NaN and infinities kept
string, large_string      string
binary, large_binary      binary
date32, date64            date                   date64 must be whole days
timestamp with a zone     timestamp              an instant; µs, not rounded
timestamp without         timestamp_ntz          the stream's UTC wall clock; µs, not rounded
decimal128(p, s)          decimal(p, s)          0 <= s <= p
arrow.json                string                 its text; ``parse_json`` makes a variant
list, struct              array, struct          of these types
========================  =====================  ==========================================

A user's schema may have fewer columns, in any order, and wider types of the same kind.  Spark
checks only the first batch's schema, so every batch is converted to one target schema.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T  # noqa: N812  (the name that Spark's own documentation uses)
from pyspark.sql.pandas.types import to_arrow_schema

from ..core.json_text import REASONS, is_json, read_json
from ..core.nested_types import is_list, is_nested, rebuilt
from ..core.soundness import require_sound
from ..errors import InvalidData, SchemaMismatch, UnsupportedType
from ..schema import StreamSchema

_SIMPLE: dict[pa.DataType, T.DataType] = {
    pa.bool_(): T.BooleanType(),
    pa.int8(): T.ByteType(),
    pa.int16(): T.ShortType(),
    pa.int32(): T.IntegerType(),
    pa.int64(): T.LongType(),
    pa.uint8(): T.ShortType(),
    pa.uint16(): T.IntegerType(),
    pa.uint32(): T.LongType(),
    pa.uint64(): T.DecimalType(20, 0),
    pa.float32(): T.FloatType(),
    pa.float64(): T.DoubleType(),
    pa.string(): T.StringType(),
    pa.large_string(): T.StringType(),
    pa.binary(): T.BinaryType(),
    pa.large_binary(): T.BinaryType(),
    pa.date32(): T.DateType(),
    pa.date64(): T.DateType(),
}

_INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_TIMES = (T.TimestampType, T.TimestampNTZType)


def spark_type(type_: pa.DataType, column: str = "") -> T.DataType:
    """Spark type that holds every value of an Arrow type; UnsupportedType if there is none."""
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    if pa.types.is_timestamp(type_):
        return T.TimestampType() if type_.tz is not None else T.TimestampNTZType()
    if pa.types.is_decimal128(type_) and 0 <= type_.scale <= type_.precision:
        return T.DecimalType(type_.precision, type_.scale)
    if is_json(type_):
        return T.StringType()
    if is_list(type_):
        return T.ArrayType(spark_type(type_.value_type, column), True)
    if pa.types.is_struct(type_):
        fields = [type_.field(i) for i in range(type_.num_fields)]
        return T.StructType([T.StructField(f.name, spark_type(f.type, column)) for f in fields])
    simple = _SIMPLE.get(type_)
    if simple is None:
        raise UnsupportedType(
            f"Spark has no type for {type_}{f' of column {column!r}' if column else ''}; leave it "
            "out with the option 'columns'"
        )
    return simple


def spark_schema(schema: pa.Schema, columns: Sequence[str] | None = None) -> T.StructType:
    """Spark schema of a stream or result; ``columns`` selects and orders columns."""
    names = schema.names if columns is None else columns
    fields = [schema.field(name) for name in names]
    return T.StructType(
        [T.StructField(f.name, spark_type(f.type, f.name), f.nullable) for f in fields]
    )


def arrow_schema(schema: T.StructType) -> pa.Schema:
    """Arrow schema that Spark expects of batches for a Spark schema."""
    return to_arrow_schema(schema, timezone="UTC")


def _widens(type_: T.DataType, wanted: T.DataType) -> bool:
    if type_ == wanted or (isinstance(type_, T.StringType) and isinstance(wanted, T.StringType)):
        return True
    if isinstance(type_, _INTEGERS) and isinstance(wanted, _INTEGERS):
        kinds = list(_INTEGERS)
        return kinds.index(type(type_)) <= kinds.index(type(wanted))
    if isinstance(type_, T.DecimalType) and isinstance(wanted, T.DecimalType):
        whole = wanted.precision - wanted.scale >= type_.precision - type_.scale
        return bool(whole and wanted.scale >= type_.scale)
    if isinstance(type_, T.FloatType) and isinstance(wanted, T.DoubleType):
        return True
    if isinstance(type_, T.ArrayType) and isinstance(wanted, T.ArrayType):
        return wanted.containsNull and _widens(type_.elementType, wanted.elementType)
    if isinstance(type_, T.StructType) and isinstance(wanted, T.StructType):
        return type_.names == wanted.names and all(
            other.nullable and _widens(one.dataType, other.dataType)
            for one, other in zip(type_.fields, wanted.fields, strict=True)
        )
    return isinstance(type_, _TIMES) and isinstance(wanted, _TIMES)


class ReadConversion:
    """Converts a stream's batches to a DataFrame's schema; ``columns`` are the names to read.

    Raises SchemaMismatch for a missing column or a type that cannot hold the stream's values.
    """

    def __init__(self, source: pa.Schema, wanted: T.StructType) -> None:
        folded = {name.lower(): name for name in source.names}
        self.columns: list[str] = []
        for field in wanted.fields:
            name = field.name if field.name in source.names else folded.get(field.name.lower())
            if name is None:
                raise SchemaMismatch(
                    f"the schema given asks for a column {field.name!r}; the stream has "
                    f"{', '.join(source.names)}"
                )
            type_ = spark_type(source.field(name).type, name)
            if not _widens(type_, field.dataType):
                raise SchemaMismatch(
                    f"column {name!r} is {type_.simpleString()} in Spark, the schema given says "
                    f"{field.dataType.simpleString()}; read it as it is and cast it in Spark"
                )
            self.columns.append(name)
        self.target = arrow_schema(wanted)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert one batch; InvalidData if a value does not fit."""
        arrays = [
            _exactly(batch.column(name), field)
            for name, field in zip(self.columns, self.target, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.target)


def _exactly(array: pa.Array, field: pa.Field) -> pa.Array:
    if not field.nullable and array.null_count:
        raise InvalidData(
            f"column {field.name!r} holds nulls, the schema given to Spark says it does not"
        )
    type_ = array.type
    if type_ == field.type:
        return array
    if is_nested(type_) and is_nested(field.type):
        return rebuilt(array, field.type, lambda part, to: _exactly(part, field.with_type(to)))
    if is_json(type_):
        return _exactly(array.storage, field)
    try:
        if pa.types.is_dictionary(type_):
            return _exactly(array.cast(type_.value_type), field)
        if pa.types.is_date64(type_):
            days = array.cast(pa.int64())
            if pc.any(
                pc.not_equal(pc.multiply(pc.divide(days, 86_400_000), 86_400_000), days)
            ).as_py():
                raise InvalidData(
                    f"column {field.name!r} holds a date64 with a time of day; a date has none"
                )
            return array.cast(field.type)
        if pa.types.is_timestamp(type_) and pa.types.is_timestamp(field.type):
            # Through integers: a cast between naive and zoned would shift by the zone's offset.
            micros = array.cast(pa.timestamp("us", type_.tz))
            return micros.view(field.type)
        if pa.types.is_unsigned_integer(type_) and pa.types.is_decimal(field.type):
            return array.cast(pa.decimal128(20, 0)).cast(field.type)
        return array.cast(field.type)
    except pa.ArrowInvalid as error:
        raise InvalidData(_explain(field, type_, str(error))) from None


def _explain(field: pa.Field, type_: pa.DataType, reason: str) -> str:
    if pa.types.is_timestamp(type_):
        return (
            f"column {field.name!r} holds a time that Spark's microseconds cannot hold exactly "
            f"({reason}); round it in the store, or leave the column out with the option 'columns'"
        )
    return f"column {field.name!r} of type {type_} does not fit {field.type}: {reason}"


class WriteConversion:
    """Converts a DataFrame's batches to a stream's schema; missing columns get defaults.

    Names match case-insensitively.  SchemaMismatch for unknown or missing columns and other types.
    """

    def __init__(self, schema: T.StructType, stream: StreamSchema) -> None:
        unused: dict[str, int] = {}
        for index, field in enumerate(schema.fields):
            if field.name.lower() in unused:
                raise SchemaMismatch(f"the DataFrame has two columns named {field.name!r}")
            unused[field.name.lower()] = index
        self.target = stream.arrow
        self._attributes = stream.attributes
        self.positions: list[int | None] = []
        for attribute in stream.attributes:
            position = unused.pop(attribute.name.lower(), None)
            if position is None and not attribute.nullable and attribute.default is None:
                raise SchemaMismatch(
                    f"the stream requires a column {attribute.name!r}; the DataFrame has "
                    f"{', '.join(schema.fieldNames())}"
                )
            self.positions.append(position)
            if position is not None:
                type_ = schema.fields[position].dataType
                if not _storable(type_, attribute.type):
                    how = "make it text with to_json" if is_json(attribute.type) else "cast it"
                    raise SchemaMismatch(
                        f"column {attribute.name!r} is {attribute.type_name} in the stream and "
                        f"{type_.simpleString()} in the DataFrame; {how} in Spark"
                    )
        if unused:
            extra = ", ".join(schema.fields[index].name for index in unused.values())
            raise SchemaMismatch(
                f"the stream has no column {extra} (it has {', '.join(stream.names)}); drop it"
            )

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert one batch; InvalidData if a value does not fit."""
        require_sound(batch)
        arrays = []
        for position, attribute, field in zip(
            self.positions, self._attributes, self.target, strict=True
        ):
            if position is None:
                arrays.append(attribute.missing(batch.num_rows))
                continue
            array = batch.column(position)
            if not field.nullable and array.null_count:
                raise InvalidData(
                    f"column {field.name!r} must not be null; found {array.null_count} nulls. Drop "
                    f"them with df.where('{field.name} IS NOT NULL')"
                )
            arrays.append(_stored(array, field))
        return pa.RecordBatch.from_arrays(arrays, schema=self.target)


def _storable(spark: T.DataType, type_: pa.DataType) -> bool:
    if is_list(type_) and isinstance(spark, T.ArrayType):
        return _storable(spark.elementType, type_.value_type)
    if pa.types.is_struct(type_) and isinstance(spark, T.StructType):
        members = {
            type_.field(i).name.lower(): type_.field(i).type for i in range(type_.num_fields)
        }
        return len(set(map(str.lower, spark.names))) == len(spark.names) and all(
            field.name.lower() in members and _storable(field.dataType, members[field.name.lower()])
            for field in spark.fields
        )
    wanted = spark_type(type_)
    if _widens(spark, wanted):
        return True
    if isinstance(spark, _INTEGERS) and pa.types.is_integer(type_):
        return True  # narrower or unsigned: checked value by value
    whole = isinstance(spark, T.DecimalType) and spark.scale == 0
    return bool(whole and pa.types.is_integer(type_))


def _stored(array: pa.Array, field: pa.Field) -> pa.Array:
    type_ = array.type
    if is_json(field.type):
        parsed = read_json(array)
        if parsed.faults is not None:
            at = int(parsed.faults.argmax())
            reason = REASONS[parsed.faults[at] - 1].format(value=repr(array[at].as_py()[:60]))
            raise InvalidData(f"column {field.name!r}: {reason}")
        return parsed.values
    if type_ == field.type:
        return array
    if is_nested(type_) and is_nested(field.type):
        return rebuilt(array, field.type, lambda part, to: _stored(part, field.with_type(to)))
    try:
        if pa.types.is_timestamp(type_) and pa.types.is_timestamp(field.type):
            # Spark's batches carry the session's zone; the integers are UTC in any case.
            return array.view(pa.timestamp(type_.unit, field.type.tz)).cast(field.type)
        return array.cast(field.type)
    except pa.ArrowInvalid as error:
        raise InvalidData(
            f"a value of column {field.name!r} does not fit {field.type}: {error}"
        ) from None

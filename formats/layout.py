"""The output columns of a read: names, types, and how they were decided.

The readers of all files of an ingest share a ``Layout``.  With a ``target``, batches have exactly
its schema.  Else types are inferred from the first records (``infer.py``) and may widen later,
never narrow: integers to floats, microseconds to nanoseconds; given types never widen.  ``conform``
converts earlier batches to the final schema without loss.  Renames apply first.  Names match
exactly, else case-insensitively.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ..core.nested_types import decided
from ..core.suggestion import did_you_mean
from ..errors import InvalidArgument, InvalidData, SchemaMismatch, UnsupportedType
from ..schema import StreamSchema, storage_of
from .convert import convert
from .dialect import ColumnOptions
from .kinds import name_of_type, parse_types
from .time_rules import Offsets, TimeRule, parse_time_formats


@dataclass
class Field:
    """An output column; ``type`` is None until a value shows it, ``fixed`` if given.

    ``default`` fills absent values; ``decimal`` is a decimal separator seen in CSV, if no point.
    """

    name: str
    type: pa.DataType | None = None
    fixed: bool = False
    required: bool = False
    default: pa.Scalar | None = None
    decimal: str | None = None


class Layout:
    """Which columns of a source are read, under which names, as which types.

    ``options`` or ``named`` are ``ColumnOptions``; ``timeless``: the source is only inspected.
    """

    def __init__(
        self,
        options: ColumnOptions | None = None,
        *,
        target: StreamSchema | None = None,
        timeless: bool = False,
        **named: Any,
    ) -> None:
        options = options or ColumnOptions(**named)
        self.timeless = timeless
        rule, time = options.time_format, options.time
        if not isinstance(rule, TimeRule):
            rule = parse_time_formats(rule, zone=options.time_zone, ambiguous=options.ambiguous)
        self.rule = rule
        self.time_of_day = options.time_of_day
        self.target = target
        self.rename = dict(options.rename or {})
        self.select = None if options.select is None else list(dict.fromkeys(options.select))
        self.types = parse_types(options.types)
        self.file_column = file_column = options.file_column
        self.fields: dict[str, Field] = {}
        self._folded: dict[str, str] = {}
        self.offsets: defaultdict[str, Offsets] = defaultdict(Offsets)
        """Whether times have offsets, by column."""
        self.notes: dict[str, str] = {}
        """Assumptions by subject."""
        if target is not None:
            if time is not None and time.lower() != target.time.lower():
                raise InvalidArgument(
                    f"the stream's time attribute is {target.time!r}, not {time!r}; rename the "
                    f"column ({time}={target.time}) if it holds the time"
                )
            self.time = target.time
            for attribute in target.attributes:
                required = not attribute.nullable
                self.fields[attribute.name] = Field(
                    attribute.name, attribute.type, True, required, attribute.default
                )
            for name, type_ in self.types.items():
                known = self.fields.get(self._key(name))
                if known is None:
                    raise self._unknown_name(name, "types")
                if known.type != type_:
                    raise SchemaMismatch(
                        f"column {name!r} is a {name_of_type(known.type)} in the stream, not a "
                        f"{name_of_type(type_)}"
                    )
        else:
            if time is None and not timeless:
                raise InvalidArgument(
                    "which column is the time of the events? give its name (time)"
                )
            self.time = time or ""
        if file_column is not None and target is None:
            self.fields[file_column] = Field(file_column, pa.string(), True)
        elif file_column is not None and self._key(file_column) not in self.fields:
            raise self._unknown_name(file_column, "file column")
        if self.time_of_day is not None:
            self._check_time_of_day(self.time_of_day)
        if self.select is not None:
            self._selected = {name.lower() for name in self.select} | {self.time.lower()}

    def _check_time_of_day(self, name: str) -> None:
        if self.rule.counting is not None or self.rule.kind == "ticks":
            raise InvalidArgument(
                f"a time of day in a column of its own ({name}) goes with dates: the time format "
                f"is auto, iso or patterns, found {', '.join(self.rule.texts())}"
            )
        folded = name.lower()
        if folded == self.time.lower():
            raise InvalidArgument(
                f"time and time of day are two columns, found {name!r} for both; one that holds "
                "both is the time alone"
            )
        known = [*(self.select or ()), *self.types, *(() if self.target is None else self.fields)]
        if self.file_column is not None:
            known.append(self.file_column)
        if folded in (other.lower() for other in known):
            raise InvalidArgument(
                f"the time of day ({name}) becomes part of the time, and is no column of its own: "
                "it can have no type, be selected, or be one of the stream's; rename it where the "
                "stream has another column of that name"
            )

    # ---------------------------------------------------------------------------------- names

    def is_time_of_day(self, raw: str) -> bool:
        name = self.time_of_day
        return name is not None and self.rename.get(raw, raw).lower() == name.lower()

    def _key(self, name: str) -> str:
        if name in self.fields:
            return name
        if len(self._folded) != len(self.fields):
            self._folded = {known.lower(): known for known in reversed(self.fields)}
        return self._folded.get(name.lower(), name)

    def _unknown_name(self, name: str, what: str, names: Iterable[str] = ()) -> InvalidArgument:
        known = list(names) or list(self.fields)
        hint = did_you_mean(name, known)
        return InvalidArgument(
            f"{what}: there is no column {name!r}{hint} (columns are {', '.join(known)})"
        )

    def output(self, raw: str, source: str) -> str | None:
        """Output name of a source column, None if not selected; may raise ``SchemaMismatch``."""
        name = self.rename.get(raw, raw)
        if self.is_time_of_day(raw):
            return None
        if self.select is not None and name.lower() not in self._selected:
            return None
        key = self._key(name)
        if key in self.fields:
            if self.file_column is not None and key.lower() == self.file_column.lower():
                raise SchemaMismatch(
                    f"{source}: has a column {raw!r} itself; give the file name another column"
                )
            return key
        if self.target is not None:
            hint = did_you_mean(name, self.fields) or ";"
            raise SchemaMismatch(
                f"{source}: the stream has no attribute {name!r}{hint} rename the column, or "
                f"select the ones to read (the stream has {', '.join(self.fields)})"
            )
        if name.lower() == self.time.lower():
            self.time = name
        fixed = next((t for n, t in self.types.items() if n.lower() == name.lower()), None)
        self.fields[name] = Field(name, fixed, fixed is not None, name == self.time)
        self._folded[name.lower()] = name
        if self.file_column is not None:  # stays last
            self.fields[self.file_column] = self.fields.pop(self.file_column)
        return name

    def bind(
        self, names: Sequence[str], source: str, way_out: Callable[[], str] = str
    ) -> dict[str, str]:
        """Map a source's columns to output names; raises for duplicate, unknown or missing ones."""
        counts = Counter(names)
        if len(counts) != len(names):
            doubled, times = min((name, times) for name, times in counts.items() if times > 1)
            raise InvalidData(
                f"{source}: the column name {doubled!r} occurs {times} times; each column needs a "
                "name of its own"
            )
        bound: dict[str, str] = {}
        by_output: dict[str, str] = {}
        for raw in names:
            out = self.output(raw, source)
            if out is None:
                continue
            other = by_output.setdefault(out.lower(), raw)
            if other != raw:
                raise InvalidData(
                    f"{source}: the columns {other!r} and {raw!r} would both become {out!r}; "
                    "rename or leave out one"
                )
            bound[raw] = out
        present = {out.lower() for out in bound.values()}
        if not self.timeless and self.time.lower() not in present:
            raise self._no_column("time column", self.time, names, source, way_out())
        wanted = self.time_of_day
        if wanted is not None and not any(self.is_time_of_day(raw) for raw in names):
            raise self._no_column("column of the time of day", wanted, names, source)
        return bound

    def _no_column(
        self, what: str, name: str, names: Sequence[str], source: str, way_out: str = ""
    ) -> InvalidData:
        shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        hint = did_you_mean(name, names)
        return InvalidData(
            f"{source}: there is no {what} {name!r}{hint} (columns are {shown}){way_out}"
        )

    def type_of(self, raw: str) -> pa.DataType | None:
        """Type of a source column, None if unknown."""
        name = self.rename.get(raw, raw)
        field = self.fields.get(self._key(name))
        if field is not None:
            return field.type
        return next((t for n, t in self.types.items() if n.lower() == name.lower()), None)

    def check_names(self, names: Sequence[str], source: str) -> None:
        """Refuse options that name columns which the source lacks."""
        for old in self.rename:
            if old not in names:
                raise self._unknown_name(old, f"{source}: rename", names)
        present = {self.rename.get(name, name).lower() for name in names}
        if self.file_column is not None:
            present.add(self.file_column.lower())
        for what, wanted in (("select", self.select or ()), ("types", self.types)):
            for name in wanted:
                if name.lower() not in present and self._key(name) not in self.fields:
                    raise self._unknown_name(name, f"{source}: {what}", names)

    # ---------------------------------------------------------------------------------- types

    def check(self, field: Field, source: str) -> None:
        type_ = field.type
        if type_ is None or storage_of(decided(type_)) is not None:
            return
        if pa.types.is_nested(type_):
            what = "arrays" if pa.types.is_list(type_) else "objects"
            raise UnsupportedType(
                f"{source}: column {field.name!r} holds {what} ({type_}); give it the type json, "
                "or that of a list or struct, to store them whole, or select the other columns"
            )

    def schema(self) -> pa.Schema:
        """The output columns known so far; undecided ones as text."""
        if self.target is not None:
            return self.target.arrow
        return pa.schema(
            [
                pa.field(field.name, decided(field.type or pa.null()), field.name != self.time)
                for field in self.fields.values()
            ]
        )

    def settle(self) -> None:
        """Fix the types: later values that do not fit are bad."""
        for field in self.fields.values():
            field.type = decided(field.type or pa.null())
            field.fixed = True

    def adopt(self, schema: pa.Schema, time: str) -> None:
        """Take over columns found by a copy in a worker."""
        if self.target is None:
            self.time = time
            self.fields = {f.name: Field(f.name, f.type, required=f.name == time) for f in schema}

    def note(self, about: str, text: str | None) -> None:
        if text:
            self.notes.setdefault(about, text)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert an earlier batch to a wider schema; InvalidData for an integer without float."""
    if batch.schema.equals(schema):
        return batch
    arrays = []
    for field in schema:
        at = batch.schema.get_field_index(field.name)
        if at < 0:
            arrays.append(pa.nulls(batch.num_rows, field.type))
            continue
        column = batch.column(at)
        if column.type != field.type:
            rule = TimeRule("iso") if pa.types.is_timestamp(field.type) else None
            result = convert(column, field.type, rule=rule)
            if result.codes is not None:
                value = column[int(result.codes.argmax())].as_py()
                raise InvalidData(
                    f"column {field.name!r} shows fractions and also the whole number {value}, "
                    f"which no {name_of_type(field.type)} holds exactly; give the column a type"
                )
            column = result.values
        arrays.append(column)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)

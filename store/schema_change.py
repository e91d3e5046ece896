"""Schema and option changes, atomic and durable; callers hold the lock and exclude compactions.

Nothing is rewritten: a segment knows its columns by position.  A column that was added later is
null, or has its default.  For renamed, dropped or widened columns, the manifest maps the columns of
older segments to current ones (``catalog.Layout``), and ``evolution`` converts them on read.  A
dropped column is removed by the next explicit compaction. ::

    segment 1    t, a, b        written as (t, a, b)
    RENAME a TO c               called     (t, c, b)
    segment 2    t, c, b
    DROP b                      called     (t, c, -)
    segment 3    t, c
    ADD d DEFAULT 0             read as    (t, c, -, 0)

Limits: a former column name cannot be reused while a segment of that time exists: a reader of an
earlier state would confuse the two.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pyarrow as pa

from ..core.suggestion import did_you_mean
from ..errors import InvalidArgument, SchemaMismatch
from ..schema import StreamSchema
from .catalog import Layout, StreamManifest
from .commits import Commits, Edit, seal
from .conform import widened
from .evolution import widens
from .options import StreamOptions, settled, uniqueness
from .segment_views import ViewSource
from .tail import Tail


def add_attribute(
    commits: Commits, name: str, type_: pa.DataType, nullable: bool = True, default: Any = None
) -> None:
    """Add an attribute, with its default (or null) in all existing events."""
    schema = commits.schema.with_attribute(name, type_, nullable, default)
    added = schema.attribute(name)
    if not nullable and added.default is None:
        raise InvalidArgument(
            f"events lack the column {name!r} so far, so it is null in them: give it a default, or "
            "leave out NOT NULL"
        )
    _check_name(commits.manifest, name, None)
    seal(commits)
    journal = commits.journal
    manifest = replace(commits.manifest, schema=schema)
    late = tuple(widened(batch, schema) for batch in journal.late)
    journal = replace(journal, late=late, tail=Tail(schema), position=journal.position + 1)
    source = None if added.default is None else _reopened(commits, manifest)
    commits.apply(Edit(journal, None, manifest, source=source))


def widen_attribute(commits: Commits, name: str, type_: pa.DataType) -> None:
    """Change the type of an attribute, except the time, to one that holds all its values."""
    before = commits.schema
    attribute = before.attribute(name)
    if attribute.type == type_:
        return
    if attribute.name == before.time:
        raise InvalidArgument(
            f"{attribute.name!r} is the time of the events, whose type stays: every commit and "
            "index goes by it; copy the events into a stream of the other type"
        )
    if not widens(attribute.type, type_):
        raise InvalidArgument(
            f"the column {attribute.name!r} is a {attribute.type}, and not each of its values is "
            f"a {type_} as it is: types only become wider (integers with more bits, integers of up "
            "to 32 bits to float64, integers to decimals, float32 to float64, decimals of higher "
            "precision and the same scale); add a column of that type and fill it with UPDATE"
        )
    _apply(commits, before.with_type(attribute.name, type_), attribute.name, attribute.name)


def rename_attribute(commits: Commits, name: str, to: str) -> None:
    schema = commits.schema
    old = schema.resolve(name)
    taken = [other for other in schema.names if other != old and other.lower() == to.lower()]
    if taken:
        raise SchemaMismatch(f"the stream has an attribute {taken[0]!r} already")
    if old == to:
        return
    _check_name(commits.manifest, to, old)
    names = [to if other == old else other for other in schema.names]
    _apply(commits, schema.renamed(names), old, to)


def drop_attribute(commits: Commits, name: str) -> None:
    schema = commits.schema
    old = schema.resolve(name)
    if old == schema.time:
        raise InvalidArgument(
            f"{old!r} is the time of the events and cannot be dropped; it can be renamed"
        )
    rule = uniqueness(commits.options, schema)
    if rule is not None and old in rule.columns:
        raise InvalidArgument(
            f"{old!r} is part of what makes events of the stream {commits.manifest.name!r} unique; "
            f"change that first: ALTER STREAM {commits.manifest.name} SET (unique = NULL)"
        )
    _apply(commits, schema.without(old), old, None)


def _check_name(manifest: StreamManifest, name: str, column: str | None) -> None:
    oldest = min([len(manifest.layouts), *(run.layout for run in manifest.runs)])
    if len(manifest.segments):
        oldest = min(oldest, int(manifest.segments.layouts.min()))
    for layout in manifest.layouts[oldest:]:
        for was, now in zip(layout.written.names, layout.names, strict=True):
            if was.lower() == name.lower() and (now is None or now != column):
                raise SchemaMismatch(
                    f"another column of the stream {manifest.name!r} was called {was!r}, and "
                    "segments hold it still; choose another name, or compact the stream first"
                )


def _apply(commits: Commits, schema: StreamSchema, old: str, new: str | None) -> None:
    seal(commits)
    journal, manifest = commits.journal, commits.manifest
    before = manifest.schema
    numbers = [i for i, name in enumerate(before.names) if new is not None or name != old]
    now = Layout(before, tuple(before.names))
    layouts = tuple(layout.after(old, new) for layout in (*manifest.layouts, now))
    options, rule = manifest.options, uniqueness(manifest.options, before)
    if rule is not None and new is not None:
        options = replace(options, unique=[new if n == old else n for n in rule.columns])
    manifest = replace(manifest, schema=schema, layouts=layouts, options=options)

    def reshaped(batch: pa.RecordBatch) -> pa.RecordBatch:
        batch = widened(batch, before)  # the batch may lack the newest columns
        columns = [batch.column(i) for i in numbers]
        return widened(pa.RecordBatch.from_arrays(columns, names=schema.names), schema)

    late = tuple(reshaped(batch) for batch in journal.late)
    journal = replace(journal, late=late, tail=Tail(schema), position=journal.position + 1)
    commits.apply(Edit(journal, None, manifest, source=_reopened(commits, manifest)))
    if commits.tap is not None:
        commits.tap.reshape(reshaped)


def _reopened(commits: Commits, manifest: StreamManifest) -> ViewSource:
    source = ViewSource(commits.files, commits.directory, manifest)
    if source.eager:
        source.open_all()
    return source


def set_options(commits: Commits, **changes: Any) -> None:
    """Change options for later writes; a shorter retention drops events at once."""
    names = [field.name for field in fields(StreamOptions)]
    for name in changes:
        if name not in names:
            hint = did_you_mean(name, names)
            raise InvalidArgument(
                f"no setting {name!r} of a stream{hint} (there are {', '.join(names)})"
            )
    if changes.get("retention") is not None:
        changes["retention"] = str(changes["retention"])
    if changes.get("unique", "") is None:
        changes.setdefault("within", None)
    options = settled(replace(commits.options, **changes), commits.schema)
    if options == commits.options:
        return
    seal(commits)
    commits.apply(Edit(commits.journal, None, replace(commits.manifest, options=options)))

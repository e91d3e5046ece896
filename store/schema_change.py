"""Changes of a stream's columns: what it takes to add one without touching what is stored."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from .catalog import StreamManifest
from .commits import Commits
from .conform import widened
from .journal import Journal
from .tail import Tail

__all__ = ["add_attribute"]


def add_attribute(commits: Commits, name: str, type_: pa.DataType) -> None:
    """Add a nullable attribute, null in all events so far; the lock is held."""
    schema = commits.schema.with_attribute(name, type_)
    commits.seal()
    late = tuple(widened(batch, schema) for batch in commits.journal.late)
    manifest = replace(commits.manifest, schema=schema)
    journal = replace(
        commits.journal, late=late, tail=Tail(schema), position=commits.journal.position + 1
    )
    _commit(commits, manifest, journal)


def _commit(commits: Commits, manifest: StreamManifest, journal: Journal) -> None:
    """The one commit in whose course the old manifest must have the new columns already."""
    old = commits.manifest
    commits.manifest = replace(old, schema=manifest.schema)
    try:
        commits.commit(manifest, journal, {})
    except BaseException:
        if commits.manifest.version == old.version:
            commits.manifest = old
        raise

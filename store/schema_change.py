"""Changes of a stream's columns: what it takes to add one without touching what is stored."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from .commits import Commits
from .conform import widened
from .draft import seal
from .edit import Edit
from .tail import Tail

__all__ = ["add_attribute"]


def add_attribute(commits: Commits, name: str, type_: pa.DataType) -> None:
    """Add a nullable attribute, null in all events so far; the lock is held."""
    schema = commits.schema.with_attribute(name, type_)
    seal(commits)
    journal = commits.journal
    late = tuple(widened(batch, schema) for batch in journal.late)
    journal = replace(journal, late=late, tail=Tail(schema), position=journal.position + 1)
    commits.apply(Edit(journal, None, replace(commits.manifest, schema=schema)))

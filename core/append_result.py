"""What an append, or the commit of a bulk load, did, in the same words in every interface."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class AppendResult:
    """What an append did.

    Attributes
    ----------
    appended : int
        Events added.
    late : int
        Those among them that were older than the newest stored event.
    count : int
        Events in the stream afterwards.
    version : int
        Commit position of the append.
    newest : int or None
        Tick of the newest event before: what is older than it was late.
    duplicates : int
        Events that were left out because the stream, which has ``unique``, holds their keys.
    repeated : bool
        Whether the commit of a bulk load was done before, with these figures.
    """

    appended: int
    late: int
    count: int
    version: int
    newest: int | None = None
    duplicates: int = 0
    repeated: bool = field(default=False, repr=False)

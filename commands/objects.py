"""``chronicle move`` and ``restore``: segments and backups in object storage."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .connection import connection_of
from .options import StoreOption
from .terminal import say

__all__ = ["move", "restore"]

_Address = Annotated[
    str,
    typer.Argument(
        metavar="ADDRESS",
        envvar="CHRONICLE_OBJECTS",
        help="s3://bucket/prefix[?region=...&endpoint_override=host:port&scheme=http], or "
        "file:///directory. Keys come from the environment (AWS_ACCESS_KEY_ID, ...).",
    ),
]


def move(
    to: _Address,
    streams: Annotated[
        list[str] | None,
        typer.Option("--stream", help="Which stream, repeatable; all by default."),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            metavar="AGE",
            help="Only segments whose events are all older than this beside the newest of their "
            "stream, e.g. '90 days'. [default: all that are sealed]",
            show_default=False,
        ),
    ] = None,
    due: Annotated[
        bool,
        typer.Option(
            "--due",
            help="Only what the settings of the streams say, move_after and keep_local_bytes; a "
            "server with CHRONICLE_OBJECTS does so by itself.",
        ),
    ] = False,
    store: StoreOption = None,
) -> None:
    """Move sealed segments to object storage, where space is cheap; queries find them there."""
    with connection_of(store).database("rw", create=False) as database:
        total = 0
        for name in streams or [None]:  # type: ignore[list-item]
            found = database.move(to, stream=name, older_than=older_than, due=due)
            for moved, done in found.items():
                print(f"{moved}: {done.segments:,} segments, {done.bytes:,} bytes moved")
                total += done.segments
        if not total:
            asked = "is due" if due else "is old enough" if older_than else "stays here"
            say(
                f"note: no sealed segment {asked}, or all of them have moved before; the one that "
                "a stream is writing stays until it is full"
            )


def restore(
    address: _Address,
    store: StoreOption = None,
    backup: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Which of the backups at the address. [default: the newest, where no segments "
            "have moved there]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Make a store of what lies in objects: a backup, or what had moved before a disk was lost.

    From moved segments it has what had moved until the last `chronicle move`; what was on the disk
    alone is gone.
    """
    from ..store.object_backup import restore_backup
    from ..store.object_backups import holds_backups
    from ..store.object_store import ObjectStore
    from ..store.restoring import holds_segments, restore_store

    path: Path = connection_of(store).path
    objects = ObjectStore(address)
    backups = backup is not None or holds_backups(objects)
    if backup is not None or (backups and not holds_segments(objects)):
        made = restore_backup(objects, path, backup)
        print(f"backup {made.name} of {made.made_at} restored")
        for name, events in made.streams.items():
            print(f"{name}: {events:,} events")
        return
    if backups:
        say("there are backups, too: --backup NAME restores one")
    for name, (segments, lost) in restore_store(objects, path).items():
        print(f"{name}: {segments:,} segments restored")
        if lost:
            say(f"{name}: {lost:,} segments were on the lost disk alone, and what came after them")

"""Maintenance of a store: ``check``, ``inspect``, ``backup``, ``compact``, ``bench`` and others.

``move`` and ``restore`` handle segments and backups in object storage.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated

import typer

from ..errors import InvalidArgument
from .options import FormatOption, StoreOption, TokenOption, UrlOption, connection_of
from .output import check_format, write_rows
from .terminal import say, warn

_BACKUPS = {
    "name": "string",
    "made": "string",
    "state": "string",
    "events": "int64",
    "bytes": "int64",
    "streams": "string",
}


def check(
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Save what can be saved of damaged streams, put the rest into quarantine, and say "
            "what was lost.",
        ),
    ] = False,
    store: StoreOption = None,
) -> None:
    """Verify every checksum, order and aggregate of a store.

    Exit code 0: all is well. 1: something is damaged; the report says what and where.
    """
    with connection_of(store).database("rw" if repair else "r", create=False) as database:
        report = database.check(repair=repair)
    for note in report.notes:
        warn(note)
    for repaired in report.repairs:
        print(repaired)
    if report.repairs:
        print(f"{report.lost_events:,} events were lost; damaged files are in quarantine")
    print(
        f"{report.streams:,} streams, {report.segments:,} segments, {report.blocks:,} blocks, "
        f"{report.events:,} events verified"
    )
    if report.deleted_events:
        remark = f"{report.replaced_files:,} replaced files are kept for readers, and may hold some"
        print(
            f"{report.deleted_events:,} events were deleted; "
            f"{remark if report.replaced_files else 'no segment or log holds them'}"
        )
    for problem in report.problems:
        print(problem)
    if not report.ok:
        say(
            f"{len(report.problems)} problem{'s' if len(report.problems) != 1 else ''} found; "
            "restore the named files from a backup, or save the rest with --repair"
        )
        raise typer.Exit(1)
    print("no problems found")


def inspect(
    file: Annotated[
        str, typer.Argument(help="A segment file: in the store (streams/...), or any path.")
    ],
    offset: Annotated[
        int | None,
        typer.Option("--offset", min=0, help="Print the block at this byte in full."),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Print the blocks of a segment file, or one block in full.

    The files are found as <store>/streams/<stream>/*.seg; without --offset, the blocks are listed
    with their offsets.
    """
    from ..api.database import catalog_of
    from ..store.files import RealFiles
    from ..store.inspect import describe_block, describe_segment

    connection = connection_of(store)
    path = Path(file) if Path(file).is_file() else connection.path / file
    if not path.is_file():
        raise InvalidArgument(f"there is no file {file!r}, neither here nor in {connection.path}")
    files = RealFiles(str(path.parent))
    if offset is None:
        for line in describe_segment(files, path.name):
            print(line)
        return
    directory = path.resolve().parent
    with connection_of(directory.parent.parent).database() as database:
        opened = catalog_of(database).store
        name = next(
            (
                name
                for name in database.streams()
                if (database.path / opened.directory_of(name)).resolve() == directory
            ),
            None,
        )
        if name is None:
            raise InvalidArgument(f"{path} is not the file of a stream: its columns are not known")
        schema = database.stream(name).event_schema
    for line in describe_block(files, path.name, offset, schema):
        print(line)


def backup(
    destination: Annotated[
        str,
        typer.Argument(
            help="New directory for the copy; or an address of objects, s3://bucket/prefix, where "
            "backups lie beside each other and share what has not changed."
        ),
    ],
    name: Annotated[
        str | None, typer.Option("--name", help="Of one in objects. [default: the time]")
    ] = None,
    store: StoreOption = None,
) -> None:
    """Write a consistent copy of a store, while writing goes on.

    A copy in a directory is a store itself: open it, serve it, or put it in the place of a lost
    one. `chronicle restore` makes a store of one in objects.
    """
    with connection_of(store).database() as database:
        database.backup(destination, name=name)
    print(f"backup written to {destination}")


def backups(
    place: Annotated[
        str | None,
        typer.Argument(
            help="Where backups lie, a directory or an address of objects; with --url the server "
            "says where.",
            metavar="PLACE",
        ),
    ] = None,
    verify: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Read all of a backup in objects, and tell damage."),
    ] = None,
    remove: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Remove a backup in objects, and what no other backup has."
        ),
    ] = None,
    format: FormatOption = "table",
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """List the backups at a place; verify or remove one.

    A delete does not reach backups: those that were made before it may hold what it took out.
    """
    chosen = check_format(format, None)
    if (place is None) == (url is None):
        raise typer.BadParameter("give the place of the backups, or --url of a server")
    if verify is not None or remove is not None:
        _tend(place, verify, remove)
        return
    if place is None:
        with connection_of(None, url, token).remote() as database:
            listed = database.backups()
    else:
        from ..store.backup import list_backups

        listed = [each.to_json() for each in list_backups(place)]
    rows = []
    for backup in listed:
        if backup["problem"]:
            warn(f"{backup['name']}: {backup['problem']}")
        streams = ", ".join(f"{name} {count:,}" for name, count in backup["streams"].items())
        rows.append({**backup, "made": backup["made_at"], "streams": streams})
    write_rows(rows, _BACKUPS, chosen)


def _tend(place: str | None, verify: str | None, remove: str | None) -> None:
    from ..store.backup import is_address, remove_backup, verify_backup
    from ..store.object_store import ObjectStore

    if place is None or not is_address(place) or (verify is not None and remove is not None):
        raise typer.BadParameter(
            "--verify or --remove, one of them, is for an address of objects; of backups in a "
            "directory, `chronicle check --store` verifies one, `rm -r` removes one"
        )
    objects = ObjectStore(place)
    if remove is not None:
        print(f"{remove}: removed, and {remove_backup(objects, remove):,} objects of it alone")
    if verify is not None:
        problems = verify_backup(objects, verify)
        for problem in problems:
            warn(problem)
        if problems:
            raise typer.Exit(1)
        print(f"{verify}: every byte is as it was written")


def compact(
    streams: Annotated[
        list[str] | None, typer.Argument(help="Streams to compact; all by default.")
    ] = None,
    store: StoreOption = None,
) -> None:
    """Merge late events into the segments that they belong to."""
    with connection_of(store).database("rw", create=False) as database:
        for name in streams or database.streams():
            database.stream(name).compact()
            print(f"{name}: compacted")


def bench(
    names: Annotated[list[str] | None, typer.Argument(help="Benchmarks; all by default.")] = None,
    full: Annotated[
        bool,
        typer.Option("--full", help="Full sizes (many minutes), and rewrite bench/results."),
    ] = False,
) -> None:
    """Compare Chronicle with other systems on this machine."""
    try:
        benchmarks = importlib.import_module("chronicle.bench.__main__")
    except ModuleNotFoundError:
        raise InvalidArgument(
            "the benchmarks are not installed with Chronicle: run `make bench` in a clone of its "
            "repository"
        ) from None
    code = benchmarks.main([*(names or ()), *([] if full else ["--short"])])
    if code:
        raise typer.Exit(code)


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
    """Move sealed segments to object storage. Queries find them there."""
    with connection_of(store).database("rw", create=False) as database:
        total = 0
        for name in streams or [None]:  # type: ignore[list-item]
            reports = database.move(to, stream=name, older_than=older_than, due=due)
            for moved, done in reports.items():
                print(f"{moved}: {done.segments:,} segments, {done.bytes:,} bytes moved")
                total += done.segments
        if not total:
            condition = "is due" if due else "is old enough" if older_than else "stays here"
            say(
                f"note: no sealed segment {condition}, or all of them have moved before; the one "
                "that a stream is writing stays until it is full"
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
    """Make a store from objects: a backup, or moved segments.

    From moved segments it has what had moved until the last `chronicle move`; what was on the disk
    alone is gone.
    """
    from ..store.backup import holds_backups, holds_segments, restore_backup, restore_store
    from ..store.object_store import ObjectStore

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

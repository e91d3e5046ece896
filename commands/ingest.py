"""``chronicle ingest``: files into a stream."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InvalidData, StoreLocked, in_words_of
from ..formats.dialect import ERRORS, IngestOptions, by_name
from .options import Connection, connected
from .start import reading_options
from .terminal import IngestBar, human_bytes, say, warn

if TYPE_CHECKING:
    from ..ingest import IngestReport


@connected
def ingest(
    connection: Connection,
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|DIR|GLOB...",
            help="What to read; - is stdin. Quote globs that are to be expanded here.",
        ),
    ],
    stream: Annotated[str, typer.Option("--stream", help="The stream to append to.")],
    options: IngestOptions,
    json_report: Annotated[
        bool,
        typer.Option("--json", help="Print the report as JSON on stdout.", rich_help_panel=ERRORS),
    ] = False,
) -> None:
    """Append the events of files to a stream.

    Reads CSV, JSON arrays, NDJSON, Parquet, Arrow and Excel, also packed (.gz .zst .bz2 .zip), and
    stores everything or nothing: an error in any file leaves the stream as it was.

    Examples:

      chronicle ingest flights.json.gz --stream flights --time timestamp --create

      chronicle ingest 'nab/*/*.csv' --stream nab --time timestamp --file-column sensor --create

      tail -f log.ndjson | chronicle ingest - --stream log --time at --create --commit batch
    """
    from ..ingest import IngestRequest, TimeUnnamed, expand
    from ..ingest import ingest as run

    target = connection.target()
    request = IngestRequest(inputs, stream, **by_name(options, IngestOptions))
    with IngestBar() as bar:
        try:
            report = run(request, target, bar)
        except TimeUnnamed as error:
            first = expand(inputs)[0].path
            if os.path.isfile(first):
                error.add_note(f"{first} can be read with {shlex.join(reading_options(first))}")
            raise
        except InvalidData as error:
            if options.on_error == "fail" and error.row is not None:
                error.add_note(
                    "--bad-rows skip or quarantine goes on without rows that cannot be read"
                )
            raise
        except StoreLocked as error:
            error.add_note("if a server holds the store, send it the events: --url URL")
            raise
    _print_notes(report)
    if json_report:
        print(json.dumps(report.to_dict()))
    else:
        print("\n".join(_summary(report)))
    if report.rows and report.good == 0:
        raise typer.Exit(1)


def _print_notes(report: IngestReport) -> None:
    """Print notes besides the figures, on stderr."""
    for note in report.notes:
        warn(note)
    for broken in report.broken_files:
        warn(f"left out: {broken}")
    if report.bad:
        columns = ", ".join(f"{n} {name}" for name, n in report.bad_columns.most_common(5))
        warn(f"{report.bad:,} of {report.rows:,} rows could not be read ({columns}), the first:")
        for example in report.examples:
            say(f"  {in_words_of('command', str(example))}")
        if report.quarantine is not None:
            say(f"  kept in {report.quarantine}")


def _summary(report: IngestReport) -> Iterator[str]:
    from ..formats.kinds import name_of_type

    files = f"{report.files} file{'' if report.files == 1 else 's'}"
    speed = f"{report.seconds:.2f} s, {human_bytes(report.bytes / max(report.seconds, 1e-9))}/s"
    if report.dry_run:
        yield (
            f"{report.good:,} events could be stored in {report.stream!r} from {files} ({speed}); "
            "nothing was stored (--dry-run)"
        )
    else:
        late = f", {report.late:,} of them late" if report.late else ""
        left_out = f" ({report.duplicates:,} duplicates left out)" if report.duplicates else ""
        total = "" if report.count is None else f"; it has {report.count:,} now"
        events = "event" if report.stored == 1 else "events"
        what = "new stream" if report.created else "stream"
        yield (
            f"{report.stored:,} {events}{late}{left_out} from {files} stored in {what} "
            f"{report.stream!r} ({speed}){total}"
        )
    if report.schema is not None and (report.created or report.dry_run):
        columns = ", ".join(f"{field.name} {name_of_type(field.type)}" for field in report.schema)
        yield f"columns: {columns}"

"""``chronicle ingest``: files into a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InvalidData, StoreLocked, in_words_of
from .options import Connection, connected
from .terminal import IngestBar, human_bytes, say, warn

if TYPE_CHECKING:
    from ..ingest import IngestReport


_READING = "What to read"
_COLUMNS = "Columns and times"
_STORING = "How to store"


def _listed(items: list[str] | None) -> list[str] | None:
    if items is None:
        return None
    return [name.strip() for item in items for name in item.split(",") if name.strip()]


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
    time: Annotated[
        str | None,
        typer.Option(
            "--time",
            metavar="COL",
            help="The time column; needed for a new stream.",
            rich_help_panel=_COLUMNS,
        ),
    ] = None,
    time_format: Annotated[
        list[str] | None,
        typer.Option(
            "--time-format",
            metavar="F",
            help="auto, iso, ticks, s, ms, us, ns, or a pattern such as '%d.%m.%Y %H:%M:%S'; "
            "repeatable: each value has the first that reads it. [default: auto]",
            show_default=False,
            rich_help_panel=_COLUMNS,
        ),
    ] = None,
    time_zone: Annotated[
        str | None,
        typer.Option(
            "--time-zone",
            metavar="ZONE",
            help="Whose clocks times without an offset are of: Europe/Berlin. [default: UTC]",
            show_default=False,
            rich_help_panel=_COLUMNS,
        ),
    ] = None,
    ambiguous: Annotated[
        str,
        typer.Option(
            "--ambiguous",
            metavar="refuse|earlier|later",
            help="Which of both a time is that these clocks showed twice.",
            rich_help_panel=_COLUMNS,
        ),
    ] = "refuse",
    time_of_day: Annotated[
        str | None,
        typer.Option(
            "--time-of-day",
            metavar="COL",
            help="The column with the time of day, where the time column has dates.",
            rich_help_panel=_COLUMNS,
        ),
    ] = None,
    create: Annotated[
        bool, typer.Option("--create", help="Make the stream from the data.")
    ] = False,
    if_exists: Annotated[
        str,
        typer.Option(
            "--if-exists",
            metavar="fail|append",
            help="With --create: what to do when the stream is there already.",
        ),
    ] = "fail",
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="json, ndjson, csv, parquet or arrow; else told from names and bytes.",
            rich_help_panel=_READING,
        ),
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--types",
            metavar="COL=TYPE,...",
            help="Types instead of told ones: speed=double,zip=string,at=timestamp.",
            rich_help_panel=_COLUMNS,
        ),
    ] = None,
    rename: Annotated[
        list[str] | None,
        typer.Option(
            "--rename",
            metavar="OLD=NEW,...",
            help="New names for columns; the other options use these.",
            rich_help_panel=_COLUMNS,
        ),
    ] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(
            "--select",
            metavar="COL,...",
            help="Columns to keep; the time is always kept.",
            rich_help_panel=_COLUMNS,
        ),
    ] = None,
    file_column: Annotated[
        str | None,
        typer.Option(
            "--file-column",
            metavar="COL",
            help="Add a column with the name of the file, without directory and suffixes.",
            rich_help_panel=_COLUMNS,
        ),
    ] = None,
    encoding: Annotated[
        str | None,
        typer.Option(
            "--encoding",
            metavar="NAME",
            help="Of text: latin-1, windows-1252, utf-16; else UTF-8.",
            rich_help_panel=_READING,
        ),
    ] = None,
    decimal: Annotated[
        str | None,
        typer.Option(
            "--decimal",
            metavar=",|.",
            help="Decimal separator of CSV; the other one may group digits in threes.",
            rich_help_panel=_READING,
        ),
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(
            "--delimiter",
            "--separator",
            metavar="C",
            help="Of CSV; else told from the header (, ; tab |).",
            rich_help_panel=_READING,
        ),
    ] = None,
    quote: Annotated[
        str,
        typer.Option("--quote", metavar="C", help="Of CSV; '' for none.", rich_help_panel=_READING),
    ] = '"',
    skip: Annotated[
        int,
        typer.Option(
            "--skip",
            min=0,
            metavar="N",
            help="Lines of CSV to pass over, before the header.",
            rich_help_panel=_READING,
        ),
    ] = 0,
    header: Annotated[
        bool | None,
        typer.Option(
            "--header/--no-header",
            help="Whether the first line of CSV names the columns. [default: unless --columns]",
            show_default=False,
            rich_help_panel=_READING,
        ),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--columns",
            metavar="COL,...",
            help="Names of the columns of CSV files, instead of a header's.",
            rich_help_panel=_READING,
        ),
    ] = None,
    sheet: Annotated[
        str | None,
        typer.Option(
            "--sheet",
            metavar="NAME",
            help="Of Excel workbooks; the first by default.",
            rich_help_panel=_READING,
        ),
    ] = None,
    max_columns: Annotated[
        int,
        typer.Option(
            "--max-columns",
            min=1,
            metavar="N",
            help="Most columns, or different keys, of a file.",
            rich_help_panel=_READING,
        ),
    ] = 10_000,
    null: Annotated[
        list[str] | None,
        typer.Option(
            "--null",
            metavar="TEXT",
            help="A further spelling of null in CSV, e.g. N/A; repeatable.",
            rich_help_panel=_READING,
        ),
    ] = None,
    flatten: Annotated[
        str | None,
        typer.Option(
            "--flatten",
            metavar="SEP",
            help="Make columns of nested JSON: _ makes a_b of {'a': {'b': 1}}.",
            rich_help_panel=_READING,
        ),
    ] = None,
    on_error: Annotated[
        str,
        typer.Option(
            "--bad-rows",
            "--on-error",
            metavar="fail|skip|quarantine",
            help="What a row that cannot be read does.",
        ),
    ] = "fail",
    quarantine: Annotated[
        Path | None,
        typer.Option(
            "--quarantine-file",
            metavar="FILE",
            help="Where quarantined rows go. [default: beside the store]",
            show_default=False,
        ),
    ] = None,
    commit: Annotated[
        str,
        typer.Option(
            "--commit",
            metavar="end|batch",
            help="All at once at the end, or batch by batch (for a pipe that does not end).",
            rich_help_panel=_STORING,
        ),
    ] = "end",
    batch_size: Annotated[
        int,
        typer.Option(
            "--batch-size", min=1, metavar="N", help="Events a batch.", rich_help_panel=_STORING
        ),
    ] = 262_144,
    retention: Annotated[
        str | None,
        typer.Option(
            "--retention",
            metavar="AGE",
            help="Of a new stream: '30 days' or '10 GB'.",
            rich_help_panel=_STORING,
        ),
    ] = None,
    unique: Annotated[
        str | None,
        typer.Option(
            "--unique",
            metavar="COLUMNS",
            help="Of a new stream: a key whose events are stored once, e.g. 'device, seq'.",
            rich_help_panel=_STORING,
        ),
    ] = None,
    within: Annotated[
        str | None,
        typer.Option(
            "--within",
            metavar="SPAN",
            help="With --unique: how near in time equal keys are the same event, e.g. '1 hour'.",
            rich_help_panel=_STORING,
        ),
    ] = None,
    codec: Annotated[
        str,
        typer.Option(
            "--codec", help="Of a new stream: lz4, zstd or none.", rich_help_panel=_STORING
        ),
    ] = "lz4",
    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            metavar="auto|arrow|spark",
            help="Who reads: this process, or Spark. auto is spark when --master is given.",
            rich_help_panel=_STORING,
        ),
    ] = "auto",
    master: Annotated[
        str | None,
        typer.Option(
            "--master", metavar="URL", help="Spark master, e.g. local[4].", rich_help_panel=_STORING
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and check everything, store nothing.")
    ] = False,
    json_report: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON on stdout.")
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
    from ..formats import parse_pairs
    from ..ingest import IngestRequest
    from ..ingest import ingest as run

    target = connection.target()
    request = IngestRequest(
        inputs=inputs,
        stream=stream,
        time=time,
        time_format=time_format or "auto",
        time_zone=time_zone,
        ambiguous=ambiguous,
        time_of_day=time_of_day,
        format=format,
        create=create,
        if_exists=if_exists,
        types=types or (),
        rename=parse_pairs(rename or (), "--rename"),
        select=_listed(select),
        file_column=file_column,
        on_error=on_error,
        quarantine=quarantine,
        engine=engine,
        master=master,
        commit=commit,
        batch_rows=batch_size,
        dry_run=dry_run,
        encoding=encoding,
        decimal=decimal,
        delimiter=delimiter,
        quote=quote,
        skip=skip,
        header=header,
        sheet=sheet,
        columns=_listed(columns),
        nulls=null or (),
        flatten=flatten,
        max_columns=max_columns,
        retention=retention,
        codec=codec,
        unique=unique,
        within=within,
    )
    with IngestBar() as bar:
        try:
            report = run(request, target, bar)
        except InvalidData as error:
            if on_error == "fail" and error.row is not None:
                error.add_note(
                    "--on-error skip or quarantine goes on without rows that cannot be read"
                )
            raise
        except StoreLocked as error:
            error.add_note("if a server holds the store, send it the events: --url URL")
            raise
    _tell(report)
    if json_report:
        print(json.dumps(report.to_dict()))
    else:
        print("\n".join(_summary(report)))
    if report.rows and report.good == 0:
        raise typer.Exit(1)


def _tell(report: IngestReport) -> None:
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
    from ..formats import name_of_type

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

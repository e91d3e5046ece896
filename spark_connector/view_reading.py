"""Reads of a view by the option ``stream``, rewritten into the option ``query``."""

from __future__ import annotations

from dataclasses import replace

from ..errors import InvalidArgument, StreamNotFound
from .opening import open_backend
from .options import Options

__all__ = ["of_view"]


def of_view(options: Options) -> Options:
    """The options of the query for a view, which has no time and no commits; others unchanged."""
    if options.query is not None or options.stream is None:
        return options
    backend = open_backend(options)
    try:
        backend.describe()
        return options
    except StreamNotFound:
        if not backend.has_view(options.stream):
            raise
    refused = {
        "startTime": options.start_time,
        "endTime": options.end_time,
        "asOf": options.as_of,
        "pushFilters": options.push_filters or None,
        "metricsPath": options.metrics_path,
    }
    said = [name for name, value in refused.items() if value is not None]
    if said:
        raise InvalidArgument(
            f"{options.stream!r} is a view, which has no time and no commits of its own: leave out "
            f"{', '.join(said)}; a range of time goes into the option 'filter'"
        )
    columns = "*" if options.columns is None else ", ".join(map(_quoted, options.columns))
    text = f"SELECT {columns} FROM {_quoted(options.stream)}"
    if options.filter is not None:
        text += f" WHERE ({options.filter})"
    if options.limit is not None:
        text += f" LIMIT {options.limit}"
    return replace(options, stream=None, columns=None, filter=None, limit=None, query=text)


def _quoted(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))

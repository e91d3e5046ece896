"""Files that SQL can name: ``chronicle sql --with name=file``; only options name files, never SQL.
CSV and JSON are read into memory once per command.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import InvalidArgument, InvalidData

__all__ = ["named_files", "read_file"]

_READERS = {"csv": "read_csv", "json": "read_json", "ndjson": "read_json"}
_COMPRESSIONS = {None: "none", "gzip": "gzip", "zstd": "zstd"}


def named_files(items: list[str]) -> dict[str, Path]:
    """Parse ``name=file`` items; a file alone has its stem as name.  Raises ``InvalidArgument``."""
    if not items:
        return {}
    from ..formats.kinds import stem_of

    files: dict[str, Path] = {}
    for item in items:
        before, equals, path = item.partition("=")
        name, file = (before.strip(), Path(path)) if equals else (stem_of(item), Path(item))
        if not name or not file.name:
            raise InvalidArgument(f"--with takes name=file, found {item!r}")
        if name.lower() in (known.lower() for known in files):
            raise InvalidArgument(f"--with names {name!r} twice")
        files[name] = file.expanduser()
    return files


def read_file(path: Path) -> Any:
    """A file as a table or dataset, by its suffix."""
    from ..formats.kinds import suffixes_of

    kind = suffixes_of(path.name)
    if kind is None or kind.format == "xlsx":
        raise InvalidArgument(
            f"--with reads .csv, .json, .ndjson, .parquet and .arrow files, found {str(path)!r}"
        )
    try:
        path.open("rb").close()
    except OSError as error:
        raise InvalidArgument(f"cannot read {str(path)!r}: {error.strerror or error}") from None
    if kind.format in _READERS:
        if kind.compression not in _COMPRESSIONS:
            raise InvalidArgument(f"--with reads .gz and .zst, found {str(path)!r}")
        return _text(path, _READERS[kind.format], _COMPRESSIONS[kind.compression])
    if kind.compression is not None:
        raise InvalidArgument(f"{kind.format} files are not compressed as a whole: {str(path)!r}")
    import pyarrow as pa
    import pyarrow.dataset as ds

    try:
        return ds.dataset(path, format="ipc" if kind.format == "arrow" else "parquet")
    except (pa.ArrowException, OSError) as error:
        raise InvalidData(f"{path}: {str(error).splitlines()[0]}") from None


def _text(path: Path, reader: str, compression: str) -> Any:
    import duckdb

    settings = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    with duckdb.connect(config=settings) as reading:
        reading.execute("SET TimeZone = 'UTC'")
        try:
            query = f"SELECT * FROM {reader}(?, compression = '{compression}')"
            return reading.sql(query, params=[str(path)]).to_arrow_table()
        except duckdb.Error as error:
            raise InvalidData(f"{path}: {str(error).splitlines()[0]}") from None

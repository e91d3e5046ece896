"""The manifest: the one file of a directory that is replaced, and so the unit of commit.

Purpose
    Name everything that belongs to a store or a stream.  What the manifest does not name does not
    exist, whatever lies in the directory.

Guarantee
    After a crash at any moment the directory holds the old manifest or the new one, whole.  When
    :func:`write_manifest` has returned it is the new one, also after a power cut.

Layout
    One JSON object in UTF-8::

        {"format": "chronicle manifest", "version": 1, "checksum": "<16 hex digits>", "body": {...}}

    The version is what a reader has to know, where the body says what it ``"needs"``: 2 (updates,
    columns that were renamed or dropped), 3 (columns with a default or of a new
    type, events that are unique), 4 (columns of JSON, lists
    and structs), 5 (segments in pages: :mod:`.manifest_pages`); else 1.

    The checksum is the XXH3-64 (seed 0) of the body in canonical form: keys sorted, no white space,
    everything outside of ASCII escaped.  How the file itself is spaced and ordered does not matter.

States that a crash may leave
    ==========================  =================================================================
    ``MANIFEST``                the last commit
    both                        the same; ``MANIFEST.tmp`` is part of a commit that did not happen
    ``MANIFEST.tmp``            nothing was ever committed
    ==========================  =================================================================

    Readers ignore ``MANIFEST.tmp``, the next commit removes it.

Limits
    Written whole each time: made for thousands of entries, not for millions.  One writer at a time.
    When the last step fails (the sync of the directory), the new manifest is there but may be lost
    in a power cut: the writer must not go on as if either were certain, and open the store anew.
"""

from __future__ import annotations

import json
import posixpath
from typing import Any

from xxhash import xxh3_64_hexdigest

from ..errors import CorruptStore, InvalidArgument, UnsupportedFormat
from .atomic_file import replace_file
from .files import Files

__all__ = [
    "MANIFEST",
    "MANIFEST_VERSION",
    "NEEDED",
    "manifest_content",
    "read_manifest",
    "write_manifest",
]

MANIFEST = "MANIFEST"
TEMPORARY = "MANIFEST.tmp"
FORMAT = "chronicle manifest"
MANIFEST_VERSION = 5
NEEDED = "needs"
"""Key of a body that needs a version greater than 1 to be understood: that version."""


def write_manifest(files: Files, directory: str, document: dict[str, Any]) -> None:
    """Replace the manifest of a directory, durably and atomically.

    Parameters
    ----------
    directory : str
        Must exist; what the manifest names must have been synced before.
    document : dict
        JSON values only, keys are strings.

    Raises
    ------
    InvalidArgument
        The document would not come back as it is: NaN, a key that is not a string.
    StorageFull, StorageFailed
        The old manifest is still there, unless only the sync of the directory failed.
    """
    content = manifest_content(document)
    temporary = posixpath.join(directory, TEMPORARY)
    path = posixpath.join(directory, MANIFEST)
    replace_file(files, path, content, temporary=temporary)


def manifest_content(document: dict[str, Any]) -> bytes:
    """What the file says of a document; see :func:`write_manifest`."""
    _check_keys(document)
    body = _canonical(document)
    text = (
        f'{{"format":"{FORMAT}","version":{document.get(NEEDED, 1)},'
        f'"checksum":"{_checksum(body)}","body":{body}}}\n'
    )
    return text.encode("ascii")


def read_manifest(files: Files, directory: str) -> dict[str, Any] | None:
    """Return the document of the last commit, or None when there was none.

    Raises
    ------
    CorruptStore
        The file is damaged or not a manifest.
    UnsupportedFormat
        It was written by a newer version.
    """
    path = posixpath.join(directory, MANIFEST)
    try:
        data = files.read(path)
    except FileNotFoundError:
        return None
    try:
        outer = json.loads(data, parse_constant=_no_constant)
    except ValueError as error:
        raise _corrupt(path, f"it is not JSON ({error})") from error
    if not isinstance(outer, dict) or outer.get("format") != FORMAT:
        raise _corrupt(path, f'it does not say "format": "{FORMAT}"')
    version = outer.get("version")
    if type(version) is not int or version < 1:
        raise _corrupt(path, f"its format version is {version!r}")
    if version > MANIFEST_VERSION:
        raise UnsupportedFormat(
            f"{path} has format version {version}, this Chronicle reads up to {MANIFEST_VERSION}: "
            f"use the release that wrote it, or a newer one"
        )
    body = outer.get("body")
    if not isinstance(body, dict):
        raise _corrupt(path, "it has no body")
    if version != body.get(NEEDED, 1):
        raise _corrupt(
            path, f"its format version is {version}, its body needs {body.get(NEEDED, 1)}"
        )
    as_written = data[data.find(b'"body":') + 7 : -2]  # canonical, unless somebody has edited it
    if outer.get("checksum") == xxh3_64_hexdigest(as_written):
        return body
    found = _checksum(_canonical(body))
    if outer.get("checksum") != found:
        raise _corrupt(path, f"it says checksum {outer.get('checksum')!r}, its body has {found!r}")
    return body


def _check_keys(value: object) -> None:
    """Refuse keys that JSON would turn into strings without a word."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise InvalidArgument(f"the keys of a manifest must be strings, found {key!r}")
            _check_keys(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            _check_keys(inner)


def _no_constant(name: str) -> None:
    """Refuse the numbers that JSON does not have, but Python reads."""
    raise ValueError(f"{name} is not a number in JSON")


def _canonical(document: dict[str, Any]) -> str:
    try:
        return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"a manifest holds JSON values only: {error}") from error


def _checksum(body: str) -> str:
    found: str = xxh3_64_hexdigest(body.encode("ascii"))
    return found


def _corrupt(path: str, what: str) -> CorruptStore:
    return CorruptStore(
        f"{path} is damaged: {what}; restore it from a backup, or run `chronicle check --repair`"
    )

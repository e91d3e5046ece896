"""The manifest: the file that is replaced atomically in each commit, and names all others.

Guarantee: after a crash the directory has the old manifest or the new one, whole.  When
``write_manifest`` has returned it is the new one, also after a power cut.  ``MANIFEST.tmp`` is part
of a commit that did not happen; the next one removes it.

Layout: one JSON object in UTF-8::

    {"format": "chronicle manifest", "version": 1, "checksum": "<16 hex digits>", "body": {...}}

The version is the minimum that a reader must support, from the body's ``"needs"``: 2 (updates,
renamed or dropped columns), 3 (column defaults, changed types, unique events), 4 (columns of JSON,
lists and structs), 5 (segments in pages, ``manifest_pages``); else 1.  The checksum is the XXH3-64
(seed 0) of the body in canonical form: keys sorted, no white space, non-ASCII escaped.

Limits: rewritten whole each time: for thousands of entries, not millions.  When the final sync of
the directory fails, the new manifest exists but may be lost in a power cut: the writer must assume
neither state, and open the store again.
"""

from __future__ import annotations

import json
import posixpath
from typing import Any

from xxhash import xxh3_64_hexdigest

from ..errors import CorruptStore, InvalidArgument, UnsupportedFormat
from .file_contract import Files, replace_file

MANIFEST = "MANIFEST"
TEMPORARY = "MANIFEST.tmp"
FORMAT = "chronicle manifest"
MANIFEST_VERSION = 5
NEEDED = "needs"
"""Key of a body with the minimum format version, if greater than 1."""


def write_manifest(files: Files, directory: str, document: dict[str, Any]) -> None:
    """Replace a manifest durably and atomically; files that it names must have been synced.
    ``InvalidArgument`` when the document is not exact JSON.  On an error the old one stays, unless
    only the sync of the directory failed.
    """
    content = manifest_content(document)
    temporary = posixpath.join(directory, TEMPORARY)
    path = posixpath.join(directory, MANIFEST)
    replace_file(files, path, content, temporary=temporary)


def manifest_content(document: dict[str, Any]) -> bytes:
    _check_keys(document)
    body = _canonical(document)
    text = (
        f'{{"format":"{FORMAT}","version":{document.get(NEEDED, 1)},'
        f'"checksum":"{_checksum(body)}","body":{body}}}\n'
    )
    return text.encode("ascii")


def read_manifest(files: Files, directory: str) -> dict[str, Any] | None:
    """The document of the last commit, if any; ``CorruptStore`` or ``UnsupportedFormat``."""
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
    as_written = data[data.find(b'"body":') + 7 : -2]  # canonical, unless edited by hand
    if outer.get("checksum") == xxh3_64_hexdigest(as_written):
        return body
    found = _checksum(_canonical(body))
    if outer.get("checksum") != found:
        raise _corrupt(path, f"it says checksum {outer.get('checksum')!r}, its body has {found!r}")
    return body


def _check_keys(value: object) -> None:
    """Refuse keys that JSON would silently turn into strings."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise InvalidArgument(f"the keys of a manifest must be strings, found {key!r}")
            _check_keys(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            _check_keys(inner)


def _no_constant(name: str) -> None:
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

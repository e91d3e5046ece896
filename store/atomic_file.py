"""Replacing a small file as a whole: the one way in which Chronicle writes a file anew.

Guarantee
    Whoever reads sees the old content or the new one, never a mixture, also after a crash.  When
    :func:`replace_file` has returned it is the new one, also after a power cut.  Where it raises,
    the file says what it said, unless only the sync of the directory has failed.

Order
    ::

        new file -> its content -> sync -> rename -> sync of the directory

Limits
    A crash may leave the new file under its temporary name.  Files that stay open while they are
    replaced (logs, leases with a lock on them) have ways of their own.
"""

from __future__ import annotations

import posixpath
import secrets
from contextlib import suppress

from .file_contract import Files

__all__ = ["replace_file"]


def replace_file(
    files: Files,
    path: str,
    content: bytes,
    *,
    temporary: str | None = None,
    private: bool = False,
) -> None:
    """Replace a file's content durably and atomically; it need not exist yet.

    Parameters
    ----------
    path : str
        Its directory must exist.
    temporary : str, optional
        Path of the new file meanwhile; what an earlier try has left there is removed.  By default
        a name that no other try has.
    private : bool
        Only the owner may read the new file.

    Raises
    ------
    StorageFull, StorageFailed, OSError
        As :class:`~chronicle.store.file_contract.Files` says.
    """
    if temporary is None:
        temporary = f"{path}.{secrets.token_hex(4)}.tmp"
    else:
        with suppress(FileNotFoundError):
            files.remove(temporary)
    try:
        with files.create(temporary, private=private) as file:
            file.write(content)
            file.sync()
        files.replace(temporary, path)
    except Exception:
        with suppress(Exception):  # the space may be what is missing
            files.remove(temporary)
        raise
    files.sync_directory(posixpath.dirname(path))

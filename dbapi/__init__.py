"""``chronicle.dbapi``: the Python database API 2.0 (PEP 249) for stores and servers.

``connect`` takes the directory of a store or the address of a server; SQLAlchemy uses
``chronicle://``.  Parameters are ``?`` with a sequence, or ``$name`` with a mapping.  Threads may
share the module and connections, not cursors.  Rows are fetched incrementally.

Every statement is a commit of its own; ``rollback`` raises ``NotSupportedError`` after a change.

Reading order: ``connection`` (exceptions, types, connections, cursors), ``dialect`` (SQLAlchemy).
"""

from __future__ import annotations

from .connection import *  # noqa: F403

apilevel = "2.0"
threadsafety = 2
paramstyle = "qmark"

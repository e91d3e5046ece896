"""Chronicle in notebooks: ``%load_ext chronicle``, ``%chronicle PLACE``, then ``%%chronicle`` above
SQL. ``$name`` is the notebook's variable; a cell shows its last statement.  An error is one message
with a caret, without traceback, and ends "Run all".
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

from ..errors import ChronicleError, InvalidArgument, SqlError
from ..query.sql.first_word import split
from .session import pointed_at

_NAME = "chronicle"


@magics_class
class ChronicleMagics(Magics):
    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self.database: Any = None
        self._owned = False

    @magic_arguments()
    @argument("place", nargs="?", help="A store's directory, a server's URL, or a variable.")
    @argument("--write", action="store_true", help="Open the store for writing.")
    @argument("--token", help="The server's token.")
    @argument("--with", dest="frames", action="append", default=[], metavar="NAME",
              help="A frame of this notebook that SQL may name; repeatable.")  # fmt: skip
    @argument("--matches", action="store_true", help="Draw the matches of MATCH_RECOGNIZE.")
    @argument("-o", "--output", metavar="NAME", help="Variable that takes the result, too.")
    @line_cell_magic(_NAME)
    def run(self, line: str, cell: str | None = None) -> Any:
        """Open a database (``%chronicle PLACE``), or run the SQL of a cell (``%%chronicle``)."""
        options = parse_argstring(self.run, line)
        with _plain_errors():
            if options.place is not None:
                self._open(options.place, options.write, options.token)
            if self.database is None:
                raise InvalidArgument("first say where: %chronicle DIRECTORY, URL or variable")
            if options.frames and not hasattr(self.database, "register"):
                raise InvalidArgument("--with is for a store on this machine, not for a server")
            for name in options.frames:
                if name not in self.shell.user_ns:
                    raise InvalidArgument(f"this notebook has no variable {name!r}")
                self.database.register(name, self.shell.user_ns[name])
            if cell is None:
                return self.database
            shown = None
            for statement in split(cell):
                shown = self._answer(statement, options.matches)
            if options.output:
                self.shell.user_ns[options.output] = shown
            return shown

    def _open(self, place: str, write: bool, token: str | None) -> None:
        import chronicle

        value = self.shell.user_ns.get(place)
        if hasattr(value, "sql") and hasattr(value, "explain"):
            opened, owned = value, False
        elif place.startswith(("http://", "https://")):
            opened, owned = chronicle.connect(place, token), True
        else:
            opened, owned = chronicle.open(place, "rw" if write else "r"), True
        self.close()
        self.database, self._owned = opened, owned

    def close(self) -> None:
        database, self.database = self.database, None
        if self._owned and database is not None:
            database.close()

    def _answer(self, statement: str, matches: bool) -> Any:
        from ..drawing.matches import matches_of
        from ..query.sql.dialect import parse_statement
        from ..query.sql.parameters import number_placeholders
        from ..query.sql.statement_clauses import Explain

        try:
            tree = parse_statement(statement)
            names = list(number_placeholders(tree, statement))
            missing = sorted(name for name in names if name not in self.shell.user_ns)
            if missing:
                raise InvalidArgument(f"${missing[0]}: this notebook has no such variable")
            params = {name: self.shell.user_ns[name] for name in names} or None
            if matches:
                return matches_of(self.database, statement, params)
            if isinstance(tree, Explain):
                return self.database.explain(statement, params=params)
            return self.database.sql(statement, params)
        except SqlError as error:
            for note in pointed_at(statement, error.line, error.column):
                error.add_note(note)
            raise


@contextlib.contextmanager
def _plain_errors() -> Iterator[None]:
    try:
        yield
    except ChronicleError as error:
        notes = "".join(f"\n  {note}" for note in getattr(error, "__notes__", ()))
        raise UsageError(f"{error}{notes}") from None


def load(shell: Any) -> None:
    """Register the magics and the drawing of plans, for ``%load_ext chronicle``."""
    from ..drawing.matches import plan_html
    from ..query.contract.explanation import Plan

    magics = ChronicleMagics(shell)
    shell.register_magics(magics)
    shell.display_formatter.formatters["text/html"].for_type(Plan, plan_html)


def unload(shell: Any) -> None:
    """Close what the magics opened, for ``%unload_ext chronicle``."""
    magics = shell.magics_manager.registry.get(ChronicleMagics.__name__)
    if magics is not None:
        magics.close()

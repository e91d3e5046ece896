"""The views of a database: a part of :class:`~chronicle.database.Database`."""

from __future__ import annotations

from collections.abc import Mapping

from .errors import StreamExists, StreamNotFound, StreamOwned
from .store import Store
from .store.views import KeptView, Views

__all__ = ["ViewingDatabase"]


class ViewingDatabase:
    """What a database offers of views; they are made in SQL, by ``CREATE VIEW``."""

    _store: Store
    _views: Views

    def _check_open(self) -> None:
        raise NotImplementedError

    def _check_writable(self, what: str) -> None:
        raise NotImplementedError

    def views(self) -> Mapping[str, KeptView]:
        """All views by name, sorted: the query of each, what it reads, and its columns."""
        self._check_open()
        return self._views.all()

    def create_view(self, view: KeptView, *, replace: bool = False) -> None:
        """Keep a view whose query was checked.

        Raises
        ------
        StreamExists
            A stream, or unless ``replace`` is said a view, has that name.
        """
        self._check_writable(f"create the view {view.name!r}")
        taken = [*self._store.streams(), *(() if replace else self._views.all())]
        if any(name.lower() == view.name.lower() for name in taken):
            raise StreamExists(f"{view.name!r} is the name of a stream or view already")
        self._views.keep(view)

    def drop_view(self, name: str, *, cascade: bool = False) -> None:
        """Remove a view, with ``cascade`` those that read it, too.

        Raises
        ------
        StreamNotFound, StreamOwned
        """
        self._check_writable(f"drop the view {name!r}")
        if name not in self._views.all():
            raise StreamNotFound(f"there is no view {name!r}")
        self._drop_readers(name, cascade, "view")
        self._views.drop([name])

    def _drop_readers(self, name: str, cascade: bool, what: str) -> None:
        """Remove the views that read a stream or view; refuse it unless ``cascade`` is said."""
        readers = self._views.reading(name)
        if readers and not cascade:
            raise StreamOwned(
                f"the {what} {name!r} is read by the views {', '.join(readers)}: drop them first, "
                f"or say DROP {what.upper()} ... CASCADE"
            )
        if readers:
            self._views.drop(readers)

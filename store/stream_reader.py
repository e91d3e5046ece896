"""The reader's side of a stream: its last commit, looked at from another process.

Purpose
    :class:`StreamReader` shows a stream of a store that is open for reading only, while another
    process writes to it, or none does.

Guarantee
    Takes no lock and needs no right to write.  A snapshot is one commit, as
    :mod:`.recovery` finds it without changing anything; it stays as it is.

Limits
    What was committed since is seen at the next :meth:`StreamReader.refresh`.
"""

from __future__ import annotations

from typing import Any

from ..core.ownership import OwnedLock
from ..schema import StreamSchema
from .catalog import StreamManifest, log_name
from .file_contract import Files
from .options import StreamOptions
from .recovery import load_for_reading
from .segment_views import bytes_of, close_views
from .snapshot import Snapshot

__all__ = ["StreamReader"]


class StreamReader:
    """A stream that is open for reading only."""

    def __init__(self, files: Files, directory: str) -> None:
        self.files = files
        self.directory = directory
        self._lock = OwnedLock(f"the stream in {directory}")
        self._seen: tuple[bytes, int] | None = None
        self._manifest: StreamManifest | None = None
        self._snapshot: Snapshot
        self.refresh()

    def refresh(self) -> None:
        """Look at the last commit; snapshots taken before stay as they are.

        Every commit replaces the manifest or lengthens its log, so looking costs next to nothing
        when nothing was committed.
        """
        with self._lock:
            seen = self._look()
            if seen is not None and seen == self._seen:
                return
            self._manifest, state = load_for_reading(self.files, self.directory)
            self._snapshot = Snapshot(state)
            # what was seen before loading: a commit in between is loaded once more, never missed
            self._seen = seen

    def _look(self) -> tuple[bytes, int] | None:
        """The manifest's bytes and the length of the log that it was last known to name."""
        if self._manifest is None:
            return None
        try:
            return (
                self.files.read(f"{self.directory}/MANIFEST"),
                self.files.size(f"{self.directory}/{log_name(self._manifest.log)}"),
            )
        except FileNotFoundError:
            return None

    @property
    def name(self) -> str:
        """Name of the stream."""
        return self._loaded().name

    @property
    def schema(self) -> StreamSchema:
        """Columns of the stream."""
        return self._loaded().schema

    @property
    def options(self) -> StreamOptions:
        """Settings of the stream."""
        return self._loaded().options

    @property
    def layout(self) -> int:
        """How often a column has been renamed, dropped, or given another type."""
        return len(self._loaded().layouts)

    @property
    def owner(self) -> str | None:
        """Who alone may append to the stream."""
        return self._loaded().owner

    def _loaded(self) -> StreamManifest:
        assert self._manifest is not None  # since the first refresh
        return self._manifest

    def snapshot(self) -> Snapshot:
        """The stream as of the last :meth:`refresh`."""
        self._lock.check()
        return self._snapshot

    def stats(self) -> dict[str, Any]:
        """Figures about the stream, for people."""
        state = self._snapshot.state
        return {
            "events": self._snapshot.count,
            "position": self._snapshot.version,
            "segments": len(state.segments),
            "late_runs": len(state.runs),
            "late_buffered": sum(leaf.events for leaf in state.late),
            "tail_events": state.tail_events,
            "dropped_events": state.dropped,
            "deleted_events": state.deleted,
            "bytes": bytes_of(state.segments) + bytes_of(state.runs),
            "manifest_version": state.manifest_version,
            "dirty_ranges": self._snapshot.dirty_ranges(),
        }

    def close(self) -> None:
        """Close the files of the last snapshot."""
        close_views(self._snapshot.state.segments, self._snapshot.state.runs)

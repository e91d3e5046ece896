"""The reader's side of a stream: its last commit, without a lock or write access."""

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


class StreamReader:
    def __init__(self, files: Files, directory: str) -> None:
        self.files = files
        self.directory = directory
        self._lock = OwnedLock(f"the stream in {directory}")
        self._seen: tuple[bytes, int] | None = None
        self._manifest: StreamManifest | None = None
        self._snapshot: Snapshot
        self.refresh()

    def refresh(self) -> None:
        """Load the last commit; cheap without one, since each changes manifest or log."""
        with self._lock:
            seen = self._look()
            if seen is not None and seen == self._seen:
                return
            self._manifest, state = load_for_reading(self.files, self.directory)
            self._snapshot = Snapshot(state)
            # from before loading: a commit in between is loaded again, never missed
            self._seen = seen

    def _look(self) -> tuple[bytes, int] | None:
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
        return self._loaded().name

    @property
    def schema(self) -> StreamSchema:
        return self._loaded().schema

    @property
    def options(self) -> StreamOptions:
        return self._loaded().options

    @property
    def layout(self) -> int:
        """Number of earlier renames, drops and type changes of columns."""
        return len(self._loaded().layouts)

    @property
    def owner(self) -> str | None:
        return self._loaded().owner

    def _loaded(self) -> StreamManifest:
        assert self._manifest is not None  # since the first refresh
        return self._manifest

    def snapshot(self) -> Snapshot:
        self._lock.check()
        return self._snapshot

    def stats(self) -> dict[str, Any]:
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
        close_views(self._snapshot.state.segments, self._snapshot.state.runs)

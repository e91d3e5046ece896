"""Bodies that delete or update events, for routes and jobs.  A body without where, start and end is
refused, so that a mistake does not change every event.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from pydantic import ConfigDict, Field

from ...api.streams import Stream
from ...errors import InvalidArgument
from .parameters import RangeSpec

__all__ = ["DeleteSpec", "EventsSpec", "UpdateSpec"]


class EventsSpec(RangeSpec, ABC):
    """Which events of a stream are meant, and how they change."""

    where: str | None = Field(None, description="SQL predicate on one event; true for all.")

    def check(self) -> None:
        """Refuse a body that would mean every event by omission."""
        if self.where is None and self.start is None and self.end is None:
            raise InvalidArgument(
                f"give where, start or end; to {self.doing} every event of the stream say "
                '{"where": "true"}'
            )

    def expressions(self) -> list[str]:
        return [] if self.where is None else [self.where]

    @property
    @abstractmethod
    def doing(self) -> str:
        """The verb, for messages."""

    @abstractmethod
    def apply(self, stream: Stream) -> dict[str, Any]:
        """Make the change in one commit; returns the answer.  Blocks."""


class DeleteSpec(EventsSpec):
    """Events of a stream to delete."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"where": "icao24 = '4b1803'"}]}
    )

    @property
    def doing(self) -> str:
        return "delete"

    def apply(self, stream: Stream) -> dict[str, Any]:
        return {"deleted": stream.delete(self.where, *self.bounds(stream.event_schema))}


class UpdateSpec(EventsSpec):
    """Events of a stream to update, and their new values."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"set": {"altitude": "altitude * 0.3048"}, "where": "icao24 = '4b1803'"}]
        },
    )

    set: dict[str, str] = Field(
        description="By column, a SQL expression over the event as it was; not the time."
    )

    @property
    def doing(self) -> str:
        return "update"

    def expressions(self) -> list[str]:
        return [*super().expressions(), *self.set.values()]

    def apply(self, stream: Stream) -> dict[str, Any]:
        bounds = self.bounds(stream.event_schema)
        return {"updated": stream.update(self.set, self.where, *bounds)}

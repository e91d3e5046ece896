"""Which events of a stream are to go, or to hold other values: what requests and jobs say of it.

Guarantee
    A body that names no events is refused: what was meant for a few must not be done to all.
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
    """Which events of a stream are meant, and what is to be done to them."""

    where: str | None = Field(None, description="SQL predicate on one event; true for all.")

    def check(self) -> None:
        """Refuse what may be meant for a few events and would be for all."""
        if self.where is None and self.start is None and self.end is None:
            raise InvalidArgument(
                f"give where, start or end; to {self.doing} every event of the stream say "
                '{"where": "true"}'
            )

    def expressions(self) -> list[str]:
        """The SQL texts in it."""
        return [] if self.where is None else [self.where]

    @property
    @abstractmethod
    def doing(self) -> str:
        """The verb."""

    @abstractmethod
    def apply(self, stream: Stream) -> dict[str, Any]:
        """Do it, in one commit; gives the answer.  Blocks."""


class DeleteSpec(EventsSpec):
    """Which events of a stream are to go."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"where": "icao24 = '4b1803'"}]}
    )

    @property
    def doing(self) -> str:
        """The verb."""
        return "delete"

    def apply(self, stream: Stream) -> dict[str, Any]:
        """Delete them for good."""
        return {"deleted": stream.delete(self.where, *self.bounds(stream.event_schema))}


class UpdateSpec(EventsSpec):
    """Which events of a stream are to hold which values."""

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
        """The verb."""
        return "update"

    def expressions(self) -> list[str]:
        """The SQL texts in it."""
        return [*super().expressions(), *self.set.values()]

    def apply(self, stream: Stream) -> dict[str, Any]:
        """Give them the values."""
        bounds = self.bounds(stream.event_schema)
        return {"updated": stream.update(self.set, self.where, *bounds)}

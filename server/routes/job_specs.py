"""What all kinds of jobs have: who may ask for them, and what a job is asked for."""

from __future__ import annotations

import re
from abc import abstractmethod
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from ...errors import Forbidden
from ..access.auth import Principal
from ..service.jobs import Work
from ..service.state import Server

__all__ = ["FILE_NAME", "OfStore", "OfStream"]

FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""What a backup or a file may be called: nothing that leads out of its directory."""


class OfStore(BaseModel):
    """Work on the whole store."""

    model_config = ConfigDict(extra="forbid")
    repeats: ClassVar[bool] = True
    """Whether it may be begun again when nobody knows how far it was."""

    def require(self, principal: Principal) -> None:
        """Raise :class:`Forbidden` unless who asks may have it done."""
        principal.require("operate")
        if not principal.everywhere:
            raise Forbidden(
                "a job over the whole store takes the scope 'operate' on all streams; compact "
                "and move take a list of streams"
            )

    def check_new(self, server: Server) -> None:
        """Refuse what is there already, when it is asked for.  Blocks."""

    @abstractmethod
    def work(self, server: Server) -> Work:
        """What is to be done; raises where it is clear beforehand that it cannot.  Blocks."""


class OfStream(OfStore):
    """A change of one stream, allowed to whom its route allows it."""

    stream: str

    def require(self, principal: Principal) -> None:
        """Who may change the stream."""
        principal.require("operate")
        principal.require("admin", self.stream)

"""Base classes of job specifications: rights and the work."""

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
"""Names of backups and files: no path out of the directory."""


class OfStore(BaseModel):
    """Work on the whole store."""

    model_config = ConfigDict(extra="forbid")
    repeats: ClassVar[bool] = True
    """Whether it may run again when its progress is unknown."""

    def require(self, principal: Principal) -> None:
        """Raise ``Forbidden`` unless the principal may have it done."""
        principal.require("operate")
        if not principal.everywhere:
            raise Forbidden(
                "a job over the whole store takes the scope 'operate' on all streams; compact "
                "and move take a list of streams"
            )

    def check_new(self, server: Server) -> None:
        """Refuse what exists already; called when a job is created.  Blocks."""

    @abstractmethod
    def work(self, server: Server) -> Work:
        """The function to run; raises if it clearly cannot succeed.  Blocks."""


class OfStream(OfStore):
    """A change of one stream, with the rights of its own route."""

    stream: str

    def require(self, principal: Principal) -> None:
        principal.require("operate")
        principal.require("admin", self.stream)

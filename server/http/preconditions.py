"""Conditional and range requests (RFC 9110, sections 13 and 14).  An unreadable range, one of
another unit, or of several parts is ignored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from starlette.requests import Request

from .problems import Problem

__all__ = ["FileRequest", "Judgement"]

_HEADERS = frozenset({b"range", b"if-match", b"if-none-match"})
_TAG = re.compile(r'(?:W/)?("[^"]*")')
_RANGE = re.compile(r"bytes=\s*([0-9]{0,18})-([0-9]{0,18})\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Judgement:
    """Status 200, 206 or 304; bytes ``first`` to ``last``, inclusive (none if reversed)."""

    status: int
    first: int
    last: int


@dataclass(frozen=True)
class FileRequest:
    """Conditions and range of a request, as sent; ``head`` is True for HEAD."""

    head: bool
    wanted: str | None
    if_match: str | None
    if_none_match: str | None
    if_range: str | None

    @classmethod
    def of(cls, request: Request) -> FileRequest | None:
        head = request.method == "HEAD"
        if not head and (
            request.method != "GET" or _HEADERS.isdisjoint(n for n, _ in request.headers.raw)
        ):
            return None
        get = request.headers.get
        wanted = None if head else get("range")
        return cls(head, wanted, get("if-match"), get("if-none-match"), get("if-range"))

    @property
    def continues(self) -> bool:
        return self.wanted is not None or self.if_match is not None

    @property
    def tags(self) -> frozenset[str]:
        return _tags(self.if_match) | _tags(self.if_range)

    def judge(self, tag: str, size: int) -> Judgement:
        """How to answer with a file of this tag and size; raises ``Problem`` (412, 416)."""
        if self.if_match is not None and not _names(self.if_match, tag):
            raise Problem(
                "precondition-failed",
                412,
                f"the answer is another one now, {tag}, not {self.if_match}; begin again with HEAD",
            )
        if self.if_none_match is not None and _names(self.if_none_match, tag):
            return Judgement(304, 0, -1)
        whole = Judgement(200, 0, size - 1)
        found = None if self.wanted is None else _RANGE.fullmatch(self.wanted.strip())
        if found is None or (self.if_range is not None and self.if_range.strip() != tag):
            return whole
        first, last = found.groups()
        if not first and not last:
            return whole
        if not first:
            start, end = max(0, size - int(last)), size - 1
        else:
            start, end = int(first), min(size - 1, int(last) if last else size - 1)
            if last and int(last) < start:
                return whole
        if start >= size:
            raise Problem(
                "range-not-satisfiable",
                416,
                f"the answer has {size:,} bytes, and the range {self.wanted!r} has none of them",
                {"Content-Range": f"bytes */{size}", "ETag": tag},
            )
        return Judgement(206, start, end)


def _tags(given: str | None) -> frozenset[str]:
    return frozenset() if given is None else frozenset(_TAG.findall(given))


def _names(given: str, tag: str) -> bool:
    return given.strip() == "*" or tag in _tags(given)

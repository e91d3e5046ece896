"""What a request says of the file that it asks for: conditions on its tag, a range of its bytes.

Purpose
    Programs that read files over HTTP ask for their size (HEAD), for pieces (``Range``), and only
    for what they do not have (``If-None-Match``).  :class:`FileRequest` holds what the headers of
    a request say of that, and :meth:`FileRequest.judge` says how it is to be answered.

Guarantee
    As RFC 9110 has it, sections 13 and 14: ``If-Match`` first, then ``If-None-Match``, then the
    range, which ``If-Range`` may take back.  A range that cannot be read, of another unit, or of
    several parts is passed over, and the whole file is the answer.
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
    """How a file is answered.

    Attributes
    ----------
    status : {200, 206, 304}
    first, last : int
        Positions of the bytes to send, both inclusive; ``last`` is below ``first`` for none.
    """

    status: int
    first: int
    last: int


@dataclass(frozen=True)
class FileRequest:
    """What a request says of the file that it asks for.

    Attributes
    ----------
    head : bool
        It asks for the headers only.
    wanted : str or None
        Text of the range.
    if_match, if_none_match, if_range : str or None
        Conditions, as they were sent.
    """

    head: bool
    wanted: str | None
    if_match: str | None
    if_none_match: str | None
    if_range: str | None

    @classmethod
    def of(cls, request: Request) -> FileRequest | None:
        """What a request says; None where it only asks for what there is."""
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
        """Whether it goes on with a file that an earlier request saw."""
        return self.wanted is not None or self.if_match is not None

    @property
    def tags(self) -> frozenset[str]:
        """Tags of the files that it goes on with."""
        return _tags(self.if_match) | _tags(self.if_range)

    def judge(self, tag: str, size: int) -> Judgement:
        """How to answer with a file of this tag and size.

        Raises
        ------
        Problem
            412 when it is not the file of ``If-Match``, 416 for a range beyond its end.
        """
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
    """Whether a condition names a tag, or any."""
    return given.strip() == "*" or tag in _tags(given)

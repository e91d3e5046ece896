"""gRPC codes of errors; the text is HTTP's, and a 500 is sent without its text."""

from __future__ import annotations

import grpc

from ..http.problems import Problem

__all__ = ["code_of"]

_CODES = {
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    410: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    499: grpc.StatusCode.CANCELLED,
    500: grpc.StatusCode.INTERNAL,
    501: grpc.StatusCode.UNIMPLEMENTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
    507: grpc.StatusCode.RESOURCE_EXHAUSTED,
}


def code_of(problem: Problem) -> grpc.StatusCode:
    if problem.code in ("stream-exists", "index-exists"):
        return grpc.StatusCode.ALREADY_EXISTS
    return _CODES.get(problem.status, grpc.StatusCode.INVALID_ARGUMENT)

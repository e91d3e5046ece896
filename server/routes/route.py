"""Routes of the API: FastAPI reads signatures and writes the document, ``Route`` reads requests.

FastAPI's own handler validates each parameter of each dependency by itself, and wraps each request
in five layers, which costs as much as a small query.  Here the query string is one pydantic model
per route, dependencies are plain functions without memory, and the application is Starlette's.

In this order: who asks, the parameters, the right that the route ``needs`` (on the stream of the
path, if it has one), the body, the dependencies, the function.  So only who is authenticated learns
of other errors.  A coroutine runs on the event loop; any other function blocks, and runs in a
thread: ``runs`` names the method of ``Server``.  It returns a response, or an object to be sent as
JSON, or None for 204.

Parameters that nobody declared are refused, with a hint.  Headers are optional text, and a name in
the path may have a slash (``requests.SLASH``).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, Any, TypeVar, get_args, get_origin
from urllib.parse import parse_qsl

from fastapi import Depends, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from ...core.suggestion import did_you_mean
from ...errors import Forbidden
from ..access.auth import Principal, bearer_of, identify
from ..http.replies import Problem, reply
from ..http.requests import SLASH
from ..service.state import Server, server_of
from .answers import JSON, PROBLEM
from .parameters import BYTES_MAX, read_spec

F = TypeVar("F", bound=Callable[..., Any])

_bearer = HTTPBearer(
    auto_error=False, description="A token made by `chronicle token create`.", scheme_name="token"
)
"""For the document; ``bearer_of`` reads the header."""


@dataclass(frozen=True, slots=True)
class Called:
    """A request, the server, and who asks."""

    request: Request
    server: Server
    principal: Principal

    @property
    def id(self) -> str:
        return str(self.request.state.request_id)

    @property
    def client(self) -> str:
        return self.principal.client


def secret_of(request: Request, _: Annotated[Any, Depends(_bearer)] = None) -> str | None:
    return bearer_of(request)


Secret = Annotated[str | None, Depends(secret_of)]


def _called(request: Request, secret: Secret) -> Called:
    return Called(request, server_of(request), identify(request, secret))


Call = Annotated[Called, Depends(_called)]


class Route(APIRoute):
    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        refuses_unknown: bool,
        needs: str | None = None,
        everywhere: str | None = None,
        runs: str = "call",
        body_max: int = BYTES_MAX,
        example: Any = None,
        **described: Any,
    ) -> None:
        """``everywhere`` says what takes the right on all streams; ``example`` is one of the body,
        by default the first of its model.
        """
        super().__init__(path, endpoint, **described)
        self._needs = needs
        self._everywhere = everywhere
        self._runs = runs
        self._body_max = body_max
        self._blocks = not inspect.iscoroutinefunction(endpoint)
        self._query = _Query(self.name, self.dependant, refuses_unknown)
        self._body: tuple[str, type[BaseModel]] | None = None
        for parameter in self.dependant.body_params:
            model: Any = parameter.field_info.annotation
            self._body = parameter.name, model
            self.openapi_extra = _body_described(model, example)
        self._begins = path.partition("{")[0]
        self.app = self._answer

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return super().matches(scope) if self._begins in scope["path"] else (Match.NONE, {})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        names = scope["path_params"]
        scope["path_params"] = {name: text.replace(SLASH, "/") for name, text in names.items()}
        response = await self._response(Request(scope, receive, send))
        await response(scope, receive, send)

    async def _response(self, request: Request) -> Response:
        query = cache(partial(self._query.read, request.scope["query_string"]))
        values = _values(self.dependant, request, query)
        query()  # refuse what is wrong in it, whether or not it is used
        if self._needs is not None:
            principal: Principal = request.state.principal
            principal.require(self._needs, request.path_params.get("stream"))
            if self._everywhere is not None and not principal.everywhere:
                message = f"{self._everywhere} takes the scope {self._needs!r} on all streams"
                raise Forbidden(message)
        if self._body is not None:
            name, model = self._body
            values[name] = await read_spec(request, model, self._body_max)
        if not self._blocks:
            return self._sent(await self.endpoint(**values))
        server = server_of(request)
        work = partial(self._done, values)
        if self._runs == "read":
            return await server.read(request.state.principal.client, work)
        return await (server.build(work) if self._runs == "build" else server.call(work))

    def _done(self, values: dict[str, Any]) -> Response:
        return self._sent(self.endpoint(**values))

    def _sent(self, answer: Any) -> Response:
        if isinstance(answer, Response):
            return answer
        status = self.status_code or 200
        return Response(status_code=204) if answer is None else reply(answer, status)


def _body_described(model: type[BaseModel], example: Any) -> dict[str, Any]:
    of_model: Any = model.model_config.get("json_schema_extra") or {}
    for each in of_model.get("examples", ()) if example is None else ():
        example = each
    content: dict[str, Any] = {} if example is None else {JSON: {"example": example}}
    if "sql" in model.model_fields:
        content["application/sql"] = {"schema": {"type": "string"}}
    return {"requestBody": {"content": content}}


def _values(
    dependant: Any, request: Request, query: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """The arguments of a function, its dependencies' results first."""
    values = {
        below.name: below.call(**_values(below, request, query))
        for below in dependant.dependencies
        if below.call is not _bearer
    }
    for parameter in dependant.path_params:
        values[parameter.name] = request.path_params[parameter.name]
    for parameter in dependant.header_params:
        values[parameter.name] = request.headers.get(parameter.name.replace("_", "-"))
    if dependant.query_params:
        known = query()
        values |= {each.name: known[_PREFIX + each.name] for each in dependant.query_params}
    for name in (dependant.request_param_name, dependant.http_connection_param_name):
        if name is not None:
            values[name] = request
    return values


_PREFIX = "query_"
"""Of the fields of a model, so that a parameter may have the name of a method of it."""


class _Query:
    """The query string of a route, as one model."""

    def __init__(self, name: str, dependant: Any, refuses_unknown: bool) -> None:
        fields: dict[str, Any] = {}
        for parameter in _query_parameters(dependant):
            info = copy(parameter.field_info)
            info.validation_alias = parameter.alias
            fields[_PREFIX + parameter.name] = (info.annotation, info)
        config = ConfigDict(extra="forbid" if refuses_unknown else "ignore")
        self._model: type[BaseModel] = create_model(name, __config__=config, **fields)
        infos = self._model.model_fields.values()
        self._lists = {str(info.alias) for info in infos if _is_list(info.annotation)}

    def read(self, text: bytes) -> dict[str, Any]:
        """All values of a repeated name make a list, or have to be equal."""
        given: dict[str, Any] = {}
        try:
            pairs = parse_qsl(text.decode("latin-1"), keep_blank_values=True, errors="strict")
        except UnicodeDecodeError:
            raise Problem(
                "bad-request", "the parameters are not UTF-8; percent-encode values as UTF-8"
            ) from None
        for name, value in pairs:
            if name in self._lists:
                given.setdefault(name, []).append(value)
            elif given.setdefault(name, value) != value:
                fault = {"type": "repeated", "loc": ("query", name), "msg": "several values given"}
                raise RequestValidationError([fault])
        try:
            return vars(self._model.model_validate(given))
        except ValidationError as error:
            raise RequestValidationError(self._faults(error)) from None

    def _faults(self, error: ValidationError) -> list[Any]:
        known = sorted(str(info.alias) for info in self._model.model_fields.values())
        faults = []
        for fault in error.errors():
            message = fault["msg"]
            if fault["type"] == "extra_forbidden":
                hint = did_you_mean(str(fault["loc"][0]), known, quoted=False)
                hint = hint or f"; known are {', '.join(known) or 'none'}"
                message = f"no such parameter{hint}"
            faults.append({**fault, "loc": ("query", *fault["loc"]), "msg": message})
        return faults


def _query_parameters(dependant: Any) -> Iterator[Any]:
    yield from dependant.query_params
    for below in dependant.dependencies:
        yield from _query_parameters(below)


def _is_list(annotation: Any) -> bool:
    return get_origin(annotation) is list or any(map(_is_list, get_args(annotation)))


class Routes(list[Route]):
    """Routes of one kind, below an address."""

    def __init__(self, tag: str, prefix: str = "", *, refuses_unknown: bool = True) -> None:
        super().__init__()
        self._tag = tag
        self._prefix = prefix
        self._refuses_unknown = refuses_unknown

    def _add(
        self,
        method: str,
        path: str,
        summary: str | None = None,
        answer: type[BaseModel] | None = None,
        status: int = 200,
        *,
        head: bool = False,
        also: int | None = None,
        **more: Any,
    ) -> Callable[[F], F]:
        """Add a function; ``answer`` is the model of its JSON, ``also`` another status with it.
        ``head`` adds the method HEAD.  Without a summary the document leaves the route out.
        """
        responses = {**PROBLEM, **more.pop("responses", {})}
        if also is not None:
            responses[also] = {"model": answer}

        def add(endpoint: F) -> F:
            if head:
                self._add("HEAD", path, needs=more.get("needs"))(endpoint)
            route = Route(
                self._prefix + path,
                endpoint,
                refuses_unknown=self._refuses_unknown,
                methods=[method],
                summary=summary,
                include_in_schema=summary is not None,
                response_model=answer,
                response_class=Response if answer is None else JSONResponse,
                status_code=status,
                generate_unique_id_function=lambda route: route.name,
                tags=[self._tag],
                responses=responses,
                **more,
            )
            self.append(route)
            return endpoint

        return add

    def get(self, path: str, *described: Any, **more: Any) -> Callable[[F], F]:
        return self._add("GET", path, *described, **more)

    def post(self, path: str, *described: Any, **more: Any) -> Callable[[F], F]:
        return self._add("POST", path, *described, **more)

    def put(self, path: str, *described: Any, **more: Any) -> Callable[[F], F]:
        return self._add("PUT", path, *described, **more)

    def delete(self, path: str, *described: Any, **more: Any) -> Callable[[F], F]:
        return self._add("DELETE", path, *described, **more)

"""Routes of the API: FastAPI reads signatures and writes the document, ``Route`` reads requests.

FastAPI's own handler validates each parameter of each dependency by itself, which costs as much
as a small query.  Here the query string is one pydantic model per route.  Parameters that nobody
declared are refused, with a hint.  Dependencies are coroutines, run once per request in the order
of the signature: with ``Requester`` first, only who is authenticated learns of other errors.
Headers are optional text, and a name in the path may have a slash (``requests.SLASH``).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from copy import copy
from typing import Any, get_args, get_origin

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from ...core.suggestion import did_you_mean
from .requests import SLASH


class Route(APIRoute):
    refuses_unknown = True

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        model, dependant = self._query_model(), self.dependant
        fields = model.model_fields.values()
        lists = frozenset(str(info.alias) for info in fields if _is_list(info.annotation))

        async def answer(request: Request) -> Response:
            path = {name: text.replace(SLASH, "/") for name, text in request.path_params.items()}
            request.scope["path_params"] = path
            arguments = _Arguments(request, model, lists)
            values = await arguments.of(dependant)
            arguments.query()
            response: Response = await dependant.call(**values)  # type: ignore[misc]
            return response

        return answer

    def _query_model(self) -> type[BaseModel]:
        fields: dict[str, Any] = {}
        for parameter in _query_parameters(self.dependant):
            info = copy(parameter.field_info)
            info.validation_alias = parameter.alias
            fields[_PREFIX + parameter.name] = (info.annotation, info)
        config = ConfigDict(extra="forbid" if self.refuses_unknown else "ignore")
        return create_model(self.name, __config__=config, **fields)


class OpenRoute(Route):
    """A route that ignores unknown parameters."""

    refuses_unknown = False


def api_router(*, route_class: type[Route] = Route, **given: Any) -> APIRouter:
    return APIRouter(
        route_class=route_class, generate_unique_id_function=lambda route: route.name, **given
    )


_PREFIX = "query_"
"""Of the fields of a model, so that a parameter may have the name of a method of it."""


def _query_parameters(dependant: Any) -> Iterator[Any]:
    yield from dependant.query_params
    for below in dependant.dependencies:
        yield from _query_parameters(below)


class _Arguments:
    """The arguments of a route's function, and of its dependencies, for one request."""

    def __init__(self, request: Request, model: type[BaseModel], lists: frozenset[str]) -> None:
        self._request = request
        self._model = model
        self._lists = lists
        self._query: dict[str, Any] | None = None
        self._results: dict[Any, Any] = {}

    async def of(self, dependant: Any) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for below in dependant.dependencies:
            if below.call not in self._results:
                self._results[below.call] = await below.call(**await self.of(below))
            values[below.name] = self._results[below.call]
        for parameter in dependant.path_params:
            values[parameter.name] = self._request.path_params[parameter.name]
        for parameter in dependant.header_params:
            name = parameter.name.replace("_", "-")
            values[parameter.name] = self._request.headers.get(name)
        if dependant.query_params:
            query = self.query()
            values |= {each.name: query[_PREFIX + each.name] for each in dependant.query_params}
        for name in (dependant.request_param_name, dependant.http_connection_param_name):
            if name is not None:
                values[name] = self._request
        return values

    def query(self) -> dict[str, Any]:
        """The parameters of the query string; raises ``RequestValidationError``."""
        if self._query is None:
            sent = self._request.query_params
            given = {
                name: sent.getlist(name) if name in self._lists else sent[name] for name in sent
            }
            try:
                self._query = vars(self._model.model_validate(given))
            except ValidationError as error:
                raise RequestValidationError(self._faults(error)) from None
        return self._query

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


def _is_list(annotation: Any) -> bool:
    return get_origin(annotation) is list or any(map(_is_list, get_args(annotation)))

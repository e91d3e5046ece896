"""Names and texts as SQL writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import InvalidArgument


def parameters_of(params: Any, values: Mapping[str, Any]) -> Any:
    """Parameters of a statement: a mapping or sequence, or values by keyword."""
    if not values:
        return params
    if params is not None and not isinstance(params, Mapping):
        raise InvalidArgument("parameters have names or numbers, not both")
    return {**(params or {}), **values}


def quoted_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def quoted_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"

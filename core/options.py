"""Options that are declared once, as fields of a dataclass.

The command line makes its options of them (``commands.options``), and REST its query parameters
(``server.routes.parameters``); Python and Spark take the objects.  Nothing else is loaded here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Option:
    """What a field is for a user.

    ``many`` says how the texts of a repeatable option are read; it is None unless it is given.
    ``name`` and ``flags`` are for names other than the field's.
    """

    help: str
    metavar: str | None = None
    flags: tuple[str, ...] = ()
    name: str | None = None
    panel: str | None = None
    kind: Any = None
    choices: tuple[str, ...] = ()
    many: Literal["texts", "names", "pairs", "assignments"] | None = None
    minimum: int | None = None
    longest: int | None = None


@dataclass(frozen=True)
class Parameter:
    """An option with the field it sets, and its name, type and default."""

    field: str
    name: str
    type: Any
    default: Any
    option: Option


def option(default: Any, help: str, metavar: str | None = None, **more: Any) -> Any:
    """A field of a dataclass that is an option; ``more`` as in ``Option``."""
    metadata = {"option": Option(help, metavar, **more)}
    if isinstance(default, type):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def parameters_of(schema: type[Any]) -> Iterator[Parameter]:
    for each in fields(schema):
        option: Option | None = each.metadata.get("option")
        if option is None:
            continue
        default = None if option.many else each.default
        kind: Any = list[str] if option.many else option.kind
        kind = kind or (str if default is None else type(default))
        kind = kind | None if default is None else kind
        yield Parameter(each.name, option.name or each.name, kind, default, option)


def options_from(
    schema: type[T],
    values: Mapping[str, Any],
    read: Mapping[str, Callable[[Any, Parameter], Any]],
    more: Mapping[str, Any] | None = None,
) -> T:
    """The object of what was ``values`` by parameter; ``read`` reads names and pairs, and ``more``
    sets other fields.
    """
    chosen = dict(more or {})
    for each in parameters_of(schema):
        value = values.get(each.name)
        if value is not None:
            reader = read.get(each.option.many or "")
            chosen[each.field] = value if reader is None else reader(value, each)
    return schema(**chosen)

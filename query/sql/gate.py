"""The gate: an allow list for SQL that reaches the relational executor.

No file, network or catalog function, no statement but a query, no setting.  Functions whose result
can be much larger than their arguments need literal sizes, also as ``x.f(n)`` and in
``list_aggregate(x, 'f', n)``.  The executor copies operands in planning (BETWEEN, IN, NULLIF, CASE
x WHEN, lambdas, alias references); their total is computed beforehand and limited.  Implementations
of listed functions are trusted, and memory is bounded by the executor.

Conversions that the executor would do with silent loss are refused.  These are numbers beyond
DOUBLE (read as infinity) and digits that a time type cannot hold (``sql_types``).  Rounding to
DECIMAL's digits and to integers, except the time, is allowed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ...core.suggestion import did_you_mean
from ...schema import Attribute
from ..contract.cancellation import checkpoint
from .dialect import error_at, error_on
from .forms import (
    AGGREGATES,
    FORMATS,
    FUNCTIONS,
    QUANTILES,
    SCALARS,
    SERIES,
    SIZES,
    TABLE_FUNCTIONS,
    spelled,
)
from .rendering import FORMS, unknown_argument
from .sql_types import DIGITS, sql_type
from .statement_clauses import MatchRelation, RecentRelation
from .trees import children_of

LITERAL_SIZE_MAX = 10_000
"""Limit of literal sizes for padding, resizing, sampling and formatting."""

SERIES_MAX = 1_000_000
"""Limit of values made by ``range`` and ``generate_series``."""

SERIES_IN_LAMBDA_MAX = 1_000

QUANTILES_MAX = 100

DEPTH_MAX = 200
"""Limit of nested expressions, AND and OR not counted."""

COPIES_MAX = 20_000
"""Limit of nodes that the executor makes by copying operands."""

GROUPING_SETS_MAX = 64
"""CUBE of six columns."""

SET_OPERATIONS_MAX = 200

_VOLATILE = frozenset({"random", "uuid", "gen_random_uuid"})
_NAMED_ARGUMENTS = frozenset({"struct_pack", "struct_insert", "unnest"})


def is_volatile(name: str) -> bool:
    """Whether a function may return different values for equal arguments."""
    return name.lower() in _VOLATILE or name.lower() not in SCALARS


def check_query(root: Any, text: str, table_functions: frozenset[str] = frozenset()) -> None:
    """Raise SqlError for unknown nodes or functions, and numbers that the executor would change;
    ``table_functions`` may stand in FROM.
    """
    children = _check_shape(root, text)  # first: the checks below walk up the tree
    nodes = [root]
    for node in nodes:  # breadth first: the first error in this order is told
        checkpoint()
        nodes += children[id(node)]
        if isinstance(node.parent, exp.Hint) or isinstance(node, exp.Hint):
            continue  # for the binder, not the executor
        known = _ARGUMENTS.get(type(node))
        if known is None:
            if type(node) not in _PARTS and not _inside_match(node):
                raise _not_ours(text, node, type(node).__name__)
            continue
        if isinstance(node, exp.Literal) and not node.is_string:
            _check_number(node, text)
        if isinstance(node, exp.Table):
            _check_table(node, text)
        if isinstance(node, exp.Anonymous):
            _check_function(node, text, table_functions)
        elif not _inside_match_clause(node):
            unknown = unknown_argument(node, known)
            if unknown is not None:
                raise _not_ours(text, node, spelled(node, unknown))


_PARTS = frozenset(
    (
        *(exp.From, exp.Var, exp.IntervalSpan, exp.DataTypeParam, exp.ColumnDef, exp.LimitOptions),
        RecentRelation,
    )
)
"""Nodes rendered by their parents, or removed by the binder."""

TIMES_OF_SIDES = ("match_start", "match_end")
"""Functions on sides of a recency join, handled by the binder."""

_READ_BY_BINDER = frozenset(("hint", "db"))
"""Arguments removed by the binder: plan hints, and schemas of system tables."""

_ARGUMENTS = {kind: takes | _READ_BY_BINDER for kind, (takes, _) in FORMS.items()}
"""Arguments permitted in each class of node."""


def _not_ours(text: str, node: Any, what: str) -> Exception:
    return error_on(text, node, f"{what} is not part of Chronicle's SQL (see docs/sql.md)")


def _inside_match(node: Any) -> bool:
    while node is not None:
        if isinstance(node, (MatchRelation, exp.MatchRecognize)):
            return True
        node = node.parent
    return False


def _inside_match_clause(node: Any) -> bool:
    return isinstance(node.parent, exp.MatchRecognize)


def _check_table(node: Any, text: str) -> None:
    if (
        isinstance(node.this, exp.Dot)
        or node.args.get("catalog")
        or (node.args.get("db") and not isinstance(node.this, exp.Identifier))
    ):
        parts = ".".join(part.name for part in node.parts)
        raise error_on(text, node, f"names of streams have one part, found {parts}")


# --------------------------------------------------------------------------- functions


def _check_function(node: Any, text: str, table_functions: frozenset[str]) -> None:
    name = node.name.lower()
    in_from = isinstance(node.parent, (exp.Table, exp.Lateral))
    if in_from and name in table_functions:
        return
    if _inside_match(node) or name in TIMES_OF_SIDES:
        return
    if in_from and name not in TABLE_FUNCTIONS:
        raise error_on(
            text, node, f"no table function {node.name!r}{_near(name, table_functions | SERIES)}"
        )
    if name not in FUNCTIONS:
        raise error_on(
            text, node, f"no function {node.name!r}{_near(name, FUNCTIONS)} (see docs/sql.md)"
        )
    arguments = list(_plain_arguments(node, text))
    if name in ("list_aggregate", "list_aggr"):
        inner = arguments[1] if len(arguments) > 1 else None
        if not isinstance(inner, exp.Literal) or str(inner.this).lower() not in AGGREGATES:
            raise error_on(text, node, f"{name} takes the name of an aggregate as a literal")
        name, arguments = str(inner.this).lower(), [arguments[0], *arguments[2:]]
    _check_arguments(node, name, arguments, text)


def _plain_arguments(node: Any, text: str) -> Iterator[Any]:
    for argument in node.expressions:
        inner = argument
        while isinstance(inner, (exp.Order, exp.IgnoreNulls, exp.RespectNulls)):
            inner = inner.this
        named = isinstance(inner, (exp.PropertyEQ, exp.Kwarg))
        if named and node.name.lower() not in _NAMED_ARGUMENTS:
            raise error_on(
                text, node, f"the arguments of {node.name} are given by position, not by name"
            )
        if isinstance(inner, exp.Distinct):
            yield from inner.expressions
        else:
            yield inner


def _check_arguments(node: Any, name: str, arguments: list[Any], text: str) -> None:
    def wrong(message: str) -> Exception:
        return error_on(text, node, message)

    if name in SERIES:
        _check_series(node, arguments, text)
    for place in SIZES.get(name, ()):
        size = _integer(arguments[place]) if len(arguments) > place else 0
        if size is None or abs(size) > LITERAL_SIZE_MAX:
            raise wrong(f"the size that {name} makes must be a literal up to {LITERAL_SIZE_MAX}")
    if name in QUANTILES and len(arguments) > (0 if name.startswith("percentile") else 1):
        wanted = arguments[0 if name.startswith("percentile") else 1]
        while isinstance(wanted, (exp.Paren, exp.Neg, exp.Cast)):
            wanted = wanted.this
        several = isinstance(wanted, exp.Array) and len(wanted.expressions) <= QUANTILES_MAX
        if not several and not isinstance(wanted, (exp.Literal, exp.Placeholder, exp.Null)):
            raise wrong(f"{name} takes a literal or a list of up to {QUANTILES_MAX} of them")
    if name in FORMATS:
        pattern = arguments[0] if arguments else None
        is_text = isinstance(pattern, exp.Literal) and pattern.is_string
        literal = str(pattern.this) if is_text else "*"  # type: ignore[union-attr]
        digits = re.findall(r"\d+", literal)
        if (
            "*" in literal
            or re.search(r"{[^}]*{", literal)
            or any(len(width) > 6 for width in digits)
            or sum(map(int, digits)) > LITERAL_SIZE_MAX
        ):
            raise wrong(
                f"the format of {name} must be a literal with widths up to {LITERAL_SIZE_MAX}"
            )


def _check_series(node: Any, arguments: list[Any], text: str) -> None:
    values = [_integer(argument) for argument in arguments]
    numbers = [number for number in values if number is not None]
    if len(numbers) != len(values) or not 1 <= len(numbers) <= 3:
        raise error_on(text, node, f"{node.name} takes one to three integer literals here")
    start, stop = (0, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])
    step = numbers[2] if len(numbers) == 3 else 1
    most = SERIES_MAX if node.find_ancestor(exp.Lambda) is None else SERIES_IN_LAMBDA_MAX
    if step and abs(stop - start) // abs(step) > most:
        where = "" if most == SERIES_MAX else " inside a lambda"
        raise error_on(text, node, f"{node.name} makes at most {most} values{where}")


def _integer(node: Any) -> int | None:
    sign = 1
    while isinstance(node, (exp.Neg, exp.Paren)):
        sign = -sign if isinstance(node, exp.Neg) else sign
        node = node.this
    if isinstance(node, exp.Literal) and not node.is_string:
        digits = str(node.this).replace("_", "")
        return sign * int(digits) if digits.isdigit() and len(digits) <= 20 else None
    return None


def _near(name: str, known: frozenset[str]) -> str:
    return did_you_mean(name, sorted(known), quoted=False)


# ------------------------------------------------------------------------------- shape


def _check_shape(root: Any, text: str) -> dict[int, list[Any]]:
    """Refuse a tree that is too deep, or that planning would multiply; the children of each node,
    by its ``id``.
    """
    order: list[tuple[Any, Any]] = []  # node, the SELECT around it
    children: dict[int, list[Any]] = {}
    waiting: list[tuple[Any, int, Any]] = [(root, 0, None)]
    operations = 0
    while waiting:
        checkpoint()
        node, depth, select = waiting.pop()
        if depth > DEPTH_MAX:
            raise error_on(
                text, node, f"the statement is nested too deeply: at most {DEPTH_MAX} levels"
            )
        if isinstance(node, exp.SetOperation):
            operations += 1
            depth -= isinstance(node.parent, exp.SetOperation)
        order.append((node, select))
        inner = node if isinstance(node, exp.Select) else select
        below = depth if isinstance(node, (exp.And, exp.Or)) else depth + 1
        children[id(node)] = own = children_of(node)
        waiting += [(child, below, inner) for child in own]
    if operations > SET_OPERATIONS_MAX:
        raise error_at(
            text, 0, f"at most {SET_OPERATIONS_MAX} set operations stand in one statement"
        )
    weights: dict[int, int] = {}
    aliases: dict[tuple[int, str], int] = {}
    copies = 0
    for node, select in reversed(order):  # from the leaves up, from left to right
        weight = 1
        for child in children[id(node)]:
            below = weights.pop(id(child))
            times = _copies(node, child)
            weight += times * below
            copies += (times - 1) * below
        if isinstance(node, exp.Column) and len(node.parts) == 1 and select is not None:
            count = aliases.get((id(select), node.name.lower()), 0)
            weight += count
            copies += count
        elif isinstance(node, exp.Alias) and node.parent is select and select is not None:
            aliases[id(select), node.alias.lower()] = weight
        elif isinstance(node, exp.Group) and _grouping_sets(node) > GROUPING_SETS_MAX:
            raise error_on(
                text, node, f"one GROUP BY makes at most {GROUPING_SETS_MAX} grouping sets"
            )
        if copies > COPIES_MAX:
            raise error_on(
                text,
                node,
                "the statement is too involved: operands of BETWEEN, IN, CASE, NULLIF and of "
                "lambdas, and references to aliases, are nested in each other too often; compute "
                "them in a subquery",
            )
        weights[id(node)] = weight
    return children


def _copies(node: Any, child: Any) -> int:
    """Number of copies of an operand in the executor's plan, measured with DuckDB 2.0."""
    key = child.arg_key
    if key == "this":
        if isinstance(node, exp.Between):
            return 6 if node.args.get("symmetric") else 3
        if isinstance(node, exp.In):
            return min(max(len(node.expressions), 1), 10)
        if isinstance(node, exp.Case):
            return len(node.args.get("ifs") or ()) + 1
        if isinstance(node, exp.Lambda):
            return 3
    elif isinstance(node, exp.Anonymous):
        name = node.name.lower()
        if name == "nullif" and child.index == 0:
            return 2
        if name in ("levenshtein", "damerau_levenshtein", "editdist3") or name.startswith("jaro_"):
            return 2
    return 1


def _grouping_sets(group: Any) -> int:
    sets = 1
    for part in group.expressions:
        if isinstance(part, exp.Cube):
            sets *= 1 << min(len(part.expressions), 30)
        elif isinstance(part, exp.Rollup):
            sets *= len(part.expressions) + 1
        elif isinstance(part, exp.GroupingSets):
            sets *= max(len(part.expressions), 1)
    return sets


def is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def lost_by_cast(
    column: str, given: pa.DataType, attribute: Attribute, is_time: bool
) -> tuple[str, str] | None:
    """SQL condition under which INSERT would lose information, and its message; else None."""
    type_ = attribute.type
    text = is_text(given)
    if pa.types.is_timestamp(type_):
        conditions = [f"TRY_CAST({column} AS {sql_type(type_)}) IN ('infinity', '-infinity')"]
        digits = DIGITS[type_.unit]
        if text:
            conditions.append(f"regexp_matches({column}, '{_finer_than(digits)}')")
        elif pa.types.is_timestamp(given) and DIGITS[given.unit] > digits:
            conditions.append(
                f"epoch_{given.unit}({column}) % {10 ** (DIGITS[given.unit] - digits)} <> 0"
            )
        return " OR ".join(conditions), f"the type {sql_type(type_)} cannot hold it"
    if pa.types.is_floating(type_) and text:
        infinite = f"isinf(CAST({column} AS {sql_type(type_)}))"
        named = f"regexp_full_match(lower(trim({column})), '[+-]?inf(inity)?')"
        return f"{infinite} AND NOT {named}", f"it is beyond what a {sql_type(type_)} holds"
    if is_time and not pa.types.is_integer(given):
        number = f"TRY_CAST({column} AS DECIMAL(38, 9))" if text else column
        return f"{number} <> CAST({column} AS {sql_type(type_)})", "times are whole numbers here"
    return None


def _finer_than(digits: int) -> str:
    return rf":\d\d[.,]\d{{{digits}}}\d*[1-9]"


def _check_number(node: Any, text: str) -> None:
    digits = str(node.this).replace("_", "")
    try:
        value = float(digits)
    except ValueError:
        return
    if math.isinf(value):
        shown = digits if len(digits) <= 20 else f"{digits[:8]}... ({len(digits)} characters)"
        raise error_on(
            text,
            node,
            f"the number {shown} is beyond what a DOUBLE holds (1.8e308); infinity is written "
            "'inf'::DOUBLE",
        )

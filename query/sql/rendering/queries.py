"""Forms of queries: SELECT and its clauses, FROM items, set operations, types of casts."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from . import forms as words
from .forms import (
    Refused,
    form,
    identifier,
    integer,
    listed,
    name_of,
    names_in_parentheses,
    operand,
    render,
    string,
    word,
)

__all__: list[str] = []

TYPE_DEPTH_MAX = 16
"""Limit of nested types, as in ``INTEGER[][]``."""

_SAMPLE_ROWS_MAX = 2**31 - 1
_QUERIES = (exp.Select, exp.SetOperation, exp.Values)
_MODIFIERS = ("with_", "order", "limit", "offset")


# ----------------------------------------------------------------------------- queries


@form(
    exp.Select,
    takes="with_ distinct expressions from_ joins laterals where group having windows qualify "
    "sample order limit offset",
)
def _select(node: Any) -> str:
    get = node.args.get
    parts = [render(get("with_"))] if get("with_") is not None else []
    parts.append("SELECT")
    if get("distinct") is not None:
        parts.append(render(get("distinct")))
    parts.append(listed(node.expressions))
    if get("from_") is not None:
        parts.append(f"FROM {_item(get('from_').this)}")
    parts.append(_joins(get("joins")))
    parts += [f", {_item(lateral)}" for lateral in get("laterals") or ()]
    parts += [render(get(key)) for key in ("where", "group", "having") if get(key) is not None]
    if get("windows"):
        parts.append(f"WINDOW {listed(get('windows'))}")
    if get("qualify") is not None:
        parts.append(render(get("qualify")))
    if get("sample") is not None:
        parts.append(f"USING SAMPLE {render(get('sample'))}")
    parts += _last(node)
    return " ".join(part for part in parts if part)


def _last(node: Any) -> list[str]:
    found = (node.args.get(key) for key in ("order", "limit", "offset"))
    return [render(clause) for clause in found if clause is not None]


@form(exp.Union, exp.Except, exp.Intersect,
      takes="with_ this expression distinct by_name order limit offset")  # fmt: skip
def _set_operation(node: Any) -> str:
    parts, steps = [], []
    with_, kind = node.args.get("with_"), type(node)
    first = node
    while True:  # a chain of one operator is written flat
        symbol = type(first).__name__.upper()
        symbol += "" if first.args.get("distinct") else " ALL"
        symbol += " BY NAME" if first.args.get("by_name") else ""
        steps.append(f"{symbol} {_side(first.expression)}")
        left = first.this
        if type(left) is not kind or any(left.args.get(key) is not None for key in _MODIFIERS):
            break
        first = left
    if with_ is not None:
        parts.append(render(with_))
    parts.append(_side(first.this))
    return " ".join([*parts, *reversed(steps), *_last(node)])


def _side(node: Any) -> str:
    plain = isinstance(node, exp.Select) and not any(
        node.args.get(key) is not None for key in _MODIFIERS
    )
    return render(node) if plain or isinstance(node, exp.Subquery) else f"({render(node)})"


@form(exp.With, takes="expressions recursive")
def _with(node: Any) -> str:
    return ("WITH RECURSIVE " if node.args.get("recursive") else "WITH ") + listed(node.expressions)


@form(exp.CTE, takes="this alias materialized key_expressions")
def _cte(node: Any) -> str:
    keys = node.args.get("key_expressions")
    using = f" USING KEY {names_in_parentheses(keys)}" if keys else ""
    kept = node.args.get("materialized")
    how = "" if kept is None else "MATERIALIZED " if kept else "NOT MATERIALIZED "
    if not isinstance(node.this, (*_QUERIES, exp.Subquery)):
        raise Refused(node, "expected a query behind AS")
    return f"{render(node.args['alias'])}{using} AS {how}({render(node.this)})"


@form(exp.Values, takes="expressions alias")
def _values(node: Any) -> str:
    rows = [
        render(row) if isinstance(row, exp.Tuple) else f"({render(row)})"
        for row in node.expressions
    ]
    return f"VALUES {', '.join(rows)}"


@form(exp.Group, takes="expressions all")
def _group(node: Any) -> str:
    return f"GROUP BY {'ALL' if node.args.get('all') else listed(node.expressions)}"


@form(exp.Order, takes="this expressions")
def _order(node: Any) -> str:
    what = node.this
    return ("" if what is None else f"{render(what)} ") + f"ORDER BY {listed(node.expressions)}"


@form(exp.Ordered, takes="this desc nulls_first")
def _ordered(node: Any) -> str:
    key = node.this
    text = "ALL" if isinstance(key, exp.Var) and key.name.upper() == "ALL" else render(key)
    direction = node.args.get("desc")
    text += "" if direction is None else " DESC" if direction else " ASC"
    return text + (" NULLS FIRST" if node.args.get("nulls_first") else "")


@form(exp.Limit, takes="expression limit_options")
def _limit(node: Any) -> str:
    count, options = node.expression, node.args.get("limit_options")
    if isinstance(count, exp.Var):
        return f"LIMIT {word(node, count, frozenset(('ALL',)), 'limit')}"
    text = f"LIMIT {operand(count)}"
    if options is None:
        return text
    if options.args.get("with_ties") or options.args.get("rows"):
        raise Refused(node, "LIMIT takes a number of rows, or a number and PERCENT")
    return f"{text} PERCENT" if options.args.get("percent") else text


# ------------------------------------------------------------------------------- items


def _item(node: Any) -> str:
    """A FROM item with the joins tied to it."""
    if not isinstance(node, (exp.Table, exp.Subquery, exp.Lateral, exp.Unnest, exp.Values)):
        raise Refused(node, "expected a stream, a query or a function in FROM")
    text = f"({render(node)}){_as(node)}" if isinstance(node, exp.Values) else render(node)
    if node.args.get("joins") and not isinstance(node, exp.Subquery):
        return f"({text} {_joins(node.args['joins'])})"
    return text


def _as(node: Any) -> str:
    alias = node.args.get("alias")
    if alias is None:
        return ""
    return f" AS {render(alias)}"


@form(exp.TableAlias, takes="this columns")
def _table_alias(node: Any) -> str:
    if node.this is None:
        raise Refused(node, "expected an alias before the names of columns")
    columns = node.args.get("columns")
    return name_of(node.this) + (names_in_parentheses(columns) if columns else "")


@form(exp.Table, takes="this alias joins sample")
def _table(node: Any) -> str:
    if isinstance(node.this, exp.Anonymous):
        if node.this.name.lower() not in words.TABLE_FUNCTIONS:
            raise Refused(node, f"no table function {node.this.name!r}")
        text = render(node.this)
    else:
        text = name_of(node.this)
    return text + _as(node) + _sampled(node)


def _sampled(node: Any) -> str:
    sample = node.args.get("sample")
    return "" if sample is None else f" TABLESAMPLE {render(sample)}"


@form(exp.TableSample, takes="method size percent seed")
def _sample(node: Any) -> str:
    method = node.args.get("method")
    text = "" if method is None else word(node, method, words.SAMPLES, "method of sampling") + " "
    percent, size, seed = (node.args.get(key) for key in ("percent", "size", "seed"))
    if percent is not None:
        if not (isinstance(percent, exp.Literal) and not percent.is_string):
            raise Refused(node, "a sample is a literal number of rows or PERCENT")
        text += f"({render(percent)} PERCENT)"
    else:
        text += f"({integer(size, 0, _SAMPLE_ROWS_MAX, 'the size of a sample')} ROWS)"
    if seed is not None:
        text += f" REPEATABLE ({integer(seed, 0, _SAMPLE_ROWS_MAX, 'the seed of a sample')})"
    return text


@form(exp.Subquery, takes="this alias joins sample with_ order limit offset")
def _subquery(node: Any) -> str:
    inner = node.this
    if isinstance(inner, (*_QUERIES, exp.Subquery)):
        text = f"({render(inner)})"
    else:  # a parenthesised join
        text = _item(inner)
    if node.args.get("joins"):
        text = f"({text}{_as(node)} {_joins(node.args['joins'])})"
    else:
        text += _as(node)
    if node.args.get("with_") is not None:
        text = f"{render(node.args['with_'])} {text}"
    return " ".join([text + _sampled(node), *_last(node)])


@form(exp.Lateral, takes="this alias")
def _lateral(node: Any) -> str:
    if not isinstance(node.this, exp.Subquery):
        raise Refused(node, "expected a query behind LATERAL")
    return f"LATERAL {render(node.this)}{_as(node)}"


@form(exp.Unnest, takes="expressions alias offset")
def _unnest(node: Any) -> str:
    numbered = node.args.get("offset")
    if numbered not in (None, False, True):
        raise Refused(node, "expected WITH ORDINALITY")
    text = f"unnest({listed(node.expressions)})" + (" WITH ORDINALITY" if numbered else "")
    return text + _as(node)


def _joins(joins: Any) -> str:
    return " ".join(render(join) for join in joins or ())


@form(exp.Join, takes="this method side kind on using")
def _join(node: Any) -> str:
    method = word(node, node.method or "", words.JOIN_METHODS, "kind of join")
    side = word(node, node.side or "", words.JOIN_SIDES, "kind of join")
    kind = word(node, node.kind or "", words.JOIN_KINDS, "kind of join")
    if side and kind in ("SEMI", "ANTI"):
        raise Refused(node, f"there is no {side} {kind} JOIN")
    on, using = node.args.get("on"), node.args.get("using")
    item = _item(node.this)
    if not (method or side or kind or on is not None or using):
        return f", {item}"
    text = " ".join([*(part for part in (method, side, kind) if part), "JOIN", item])
    if on is not None:
        return f"{text} ON {operand(on)}"
    return f"{text} USING {names_in_parentheses(using)}" if using else text


# ------------------------------------------------------------------------------- types


@form(exp.DataType, takes="this expressions nested values kind")
def _type(node: Any) -> str:
    return _type_at(node, 1)


def _type_at(node: Any, depth: int) -> str:
    if depth > TYPE_DEPTH_MAX:
        raise Refused(node, f"types stand inside each other at most {TYPE_DEPTH_MAX} deep")
    kind, parts = node.this, node.expressions
    if kind == exp.DataType.Type.DECIMAL:
        sizes = [integer(part.this, 0, 38, "a size of DECIMAL") for part in parts]
        return f"DECIMAL({', '.join(sizes)})" if sizes else "DECIMAL"
    if kind in (exp.DataType.Type.ARRAY, exp.DataType.Type.LIST):
        sizes = node.args.get("values") or []
        if len(parts) != 1 or len(sizes) > 1:
            raise Refused(node, "expected the type of a list as INTEGER[] or INTEGER[3]")
        size = integer(sizes[0], 1, 100_000, "the length of an array") if sizes else ""
        return f"{_type_at(parts[0], depth + 1)}[{size}]"
    if kind == exp.DataType.Type.MAP:
        return f"MAP({', '.join(_type_at(part, depth + 1) for part in parts)})"
    if kind in (exp.DataType.Type.STRUCT, exp.DataType.Type.UNION):
        fields = [_field(part, depth + 1) for part in parts]
        return f"{kind.value}({', '.join(fields)})"
    if kind == exp.DataType.Type.ENUM:
        return f"ENUM({', '.join(string(part) for part in parts)})"
    name = words.TYPES.get(kind)
    if name is None or node.args.get("values"):
        shown = node.args.get("kind") or getattr(kind, "value", kind)
        raise Refused(node, f"there is no type {str(shown)[:40]}", str(shown))
    if parts:
        if name not in ("TIMESTAMP", "VARCHAR") or len(parts) != 1:
            raise Refused(node, f"{name} takes no sizes")
        size = integer(parts[0].this, 0, 10_000_000, f"the size of {name}")
        return name if name == "VARCHAR" else f"{name}({size})"
    return name


def _field(node: Any, depth: int) -> str:
    if not isinstance(node, exp.ColumnDef) or node.args.get("constraints"):
        raise Refused(node, "expected the fields of a type as name TYPE")
    return f"{identifier(node.name, node)} {_type_at(node.args['kind'], depth)}"

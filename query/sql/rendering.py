"""SQL text for the executor, from a closed table of node classes (``forms``).

sqlglot's generator prints some tokens as they are (collations, units, types, kinds of joins), so a
quoted name there could inject SQL.  Here text from a user is only ever an identifier in double
quotes, a literal, or a member of a closed list; anything else is refused with its position.
Operands are parenthesised wherever precedence could matter.
"""

from __future__ import annotations

import re
from typing import Any

from sqlglot import exp

from . import forms as words
from .forms import (
    FORMS,
    Refused,
    form,
    identifier,
    integer,
    listed,
    literal,
    name_of,
    names_in_parentheses,
    operand,
    render,
    string,
    unknown_argument,
    word,
)

__all__ = ["FORMS", "Refused", "identifier", "literal", "render", "unknown_argument"]

_NUMBER = re.compile(r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_PARAMETER = re.compile(r"[^\W\d]\w*")


# ----------------------------------------------------------------------------- atoms


@form(exp.Identifier, takes="this quoted")
def _identifier(node: Any) -> str:
    return identifier(node.name, node)


@form(exp.Column, takes="this table db catalog")
def _column(node: Any) -> str:
    return ".".join(
        render(part) if isinstance(part, exp.Star) else name_of(part) for part in node.parts
    )


@form(exp.Star, takes="except_ replace rename ilike")
def _star(node: Any) -> str:
    text = "*"
    if node.args.get("ilike"):
        text += f" ILIKE {string(node.args['ilike'])}"
    if node.args.get("except_"):
        dropped = (
            _column(n) if isinstance(n, exp.Column) else name_of(n) for n in node.args["except_"]
        )
        text += f" EXCLUDE ({', '.join(dropped)})"
    if node.args.get("replace"):
        text += f" REPLACE ({listed(node.args['replace'])})"
    if node.args.get("rename"):
        text += f" RENAME ({listed(node.args['rename'])})"
    return text


@form(exp.Literal, takes="this is_string")
def _literal(node: Any) -> str:
    text = str(node.this)
    if node.args.get("is_string"):
        return literal(text, node)
    digits = text.replace("_", "")
    if not _NUMBER.fullmatch(digits):
        raise Refused(node, f"{text!r} is not a number")
    return digits


@form(exp.RawString)
def _raw_string(node: Any) -> str:
    return literal(str(node.this), node)


@form(exp.ByteString)
def _escape_string(node: Any) -> str:
    text = str(node.this)
    if "\\" in text:
        raise Refused(node, "in e'...' only the escapes \\n, \\t, \\r, \\b and \\f are understood")
    return literal(text, node)


@form(exp.Boolean)
def _boolean(node: Any) -> str:
    return "TRUE" if node.this else "FALSE"


@form(exp.Placeholder)
def _placeholder(node: Any) -> str:
    name = str(node.this or "?")
    if name == "?":
        return name
    if not _PARAMETER.fullmatch(name):
        raise Refused(node, f"a parameter is called $name or ?, found {name!r}")
    return f"${name}"


@form(exp.PositionalColumn)
def _positional(node: Any) -> str:
    return f"#{integer(node.this, 1, 1_000_000, 'the position of a column')}"


# ------------------------------------------------------------------------- expressions


@form(exp.Paren)
def _paren(node: Any) -> str:
    inner = node.this
    while isinstance(inner, exp.Paren):
        inner = inner.this
    return f"({render(inner)})"


@form(exp.Alias, takes="this alias")
def _alias(node: Any) -> str:
    return f"{render(node.this)} AS {name_of(node.args['alias'])}"


@form(*words.CHAINED, takes="this expression safe")
def _chained(node: Any) -> str:
    kind, parts, waiting = type(node), [], [node]
    both_sides = kind in (exp.And, exp.Or)
    while waiting:
        part = waiting.pop()
        if type(part) is not kind or unknown_argument(part, FORMS[kind][0]) is not None:
            parts.append(operand(part))
        elif both_sides:
            waiting += (part.expression, part.this)
        else:
            parts.append(operand(part.expression))
            waiting.append(part.this)
    if both_sides:
        return f" {words.CHAINED[kind]} ".join(parts)
    _check_left(node)
    return f" {words.CHAINED[kind]} ".join(reversed(parts))


@form(*words.BINARY, takes="this expression typed safe only_json_types scalar_only negate")
def _binary(node: Any) -> str:
    symbol = words.BINARY[type(node)]
    if node.args.get("negate"):
        symbol = f"NOT {symbol}"
    _check_left(node)
    return f"{operand(node.this)} {symbol} {operand(node.expression)}"


def _check_left(node: Any) -> None:
    """Refuse ~ and @ before an operator that binds tighter in DuckDB."""
    if isinstance(node.this, (exp.BitwiseNot, exp.Abs)) and isinstance(node, words.CLOSE):
        raise Refused(node, "what ~ and @ apply to is put in parentheses: (~x) + 1 or ~(x + 1)")


@form(exp.Escape, takes="this expression")
def _escape(node: Any) -> str:
    if not isinstance(node.this, (exp.Like, exp.ILike)):
        raise Refused(node, "ESCAPE stands behind LIKE or ILIKE")
    return f"{render(node.this)} ESCAPE {operand(node.expression)}"


@form(exp.Is, takes="this expression")
def _is(node: Any) -> str:
    if not isinstance(node.expression, (exp.Null, exp.Boolean)):
        raise Refused(node, "IS stands before NULL, TRUE or FALSE")
    return f"{operand(node.this)} IS {render(node.expression)}"


@form(exp.Between, takes="this low high symmetric")
def _between(node: Any) -> str:
    value, low, high = (operand(node.args[key]) for key in ("this", "low", "high"))
    if node.args.get("symmetric"):
        return f"({value} BETWEEN {low} AND {high} OR {value} BETWEEN {high} AND {low})"
    if isinstance(node.this, exp.Column) and any(
        node.args[bound].find(exp.Column) is not None for bound in ("low", "high")
    ):  # DuckDB sees a join by ranges only in comparisons
        return f"({value} >= {low} AND {value} <= {high})"
    return f"{value} BETWEEN {low} AND {high}"


@form(exp.In, takes="this expressions query field")
def _in(node: Any) -> str:
    if node.args.get("query") is not None:
        return f"{operand(node.this)} IN {_in_parentheses(node.args['query'])}"
    if node.args.get("field") is not None:
        return f"{operand(node.this)} IN {operand(node.args['field'])}"
    return f"{operand(node.this)} IN ({listed(node.expressions)})"


def _in_parentheses(node: Any) -> str:
    inner = node
    while isinstance(inner, exp.Paren):
        inner = inner.this
    return render(inner) if isinstance(inner, exp.Subquery) else f"({render(inner)})"


@form(exp.Any, exp.All)
def _quantified(node: Any) -> str:
    return f"{type(node).__name__.upper()} {_in_parentheses(node.this)}"


@form(exp.Exists)
def _exists(node: Any) -> str:
    return f"EXISTS {_in_parentheses(node.this)}"


@form(exp.Case, takes="this ifs default")
def _case(node: Any) -> str:
    parts = ["CASE"] + ([render(node.this)] if node.this is not None else [])
    for branch in node.args["ifs"]:
        if unknown_argument(branch, frozenset(("this", "true"))) is not None:
            raise Refused(branch, "expected WHEN ... THEN ...")
        parts.append(f"WHEN {render(branch.this)} THEN {render(branch.args['true'])}")
    if node.args.get("default") is not None:
        parts.append(f"ELSE {render(node.args['default'])}")
    return " ".join([*parts, "END"])


@form(exp.If, takes="this true false")
def _if(node: Any) -> str:
    last = node.args.get("false")
    otherwise = "" if last is None else f" ELSE {render(last)}"
    return f"CASE WHEN {render(node.this)} THEN {render(node.args['true'])}{otherwise} END"


@form(exp.Cast, exp.TryCast, takes="this to safe")
def _cast(node: Any) -> str:
    function = "TRY_CAST" if isinstance(node, exp.TryCast) else "CAST"
    return f"{function}({render(node.this)} AS {render(node.args['to'])})"


@form(exp.Collate, takes="this expression")
def _collate(node: Any) -> str:
    wanted = node.expression
    parts = wanted.parts if isinstance(wanted, exp.Column) else [wanted]
    steps = [step for part in parts for step in str(part.name).split(".")]
    collations = [word(node, step, words.COLLATIONS, "collation").lower() for step in steps]
    return f"{operand(node.this)} COLLATE {'.'.join(collations)}"


@form(exp.Interval, takes="this unit")
def _interval(node: Any) -> str:
    amount = node.this
    if amount is None:
        raise Refused(node, "expected an amount behind INTERVAL")
    is_text = isinstance(amount, exp.Literal)
    text = literal(str(amount.this), node) if is_text else f"({render(amount)})"
    unit = node.args.get("unit")
    if unit is None:
        if not is_text:
            raise Refused(node, "expected a unit of time behind INTERVAL (...)")
        return f"INTERVAL {text}"
    if isinstance(unit, exp.IntervalSpan):
        ends = (unit.this, unit.expression)
        shown = " TO ".join(word(node, end, words.UNITS, "unit of time") for end in ends)
        return f"INTERVAL {text} {shown}"
    return f"INTERVAL {text} {word(node, unit, words.UNITS, 'unit of time')}"


@form(exp.Extract, takes="this expression")
def _extract(node: Any) -> str:
    part = word(node, node.this, words.DATE_PARTS, "part of a date")
    return f"EXTRACT('{part.lower()}' FROM {render(node.expression)})"


@form(exp.Bracket, takes="this expressions offset")
def _bracket(node: Any) -> str:
    if len(node.expressions) != 1:
        raise Refused(node, "expected one subscript, or a slice")
    base = node.this
    text = render(base) if isinstance(base, (exp.Column, exp.Bracket)) else f"({render(base)})"
    return f"{text}[{render(node.expressions[0])}]"


@form(exp.Slice, takes="this expression step")
def _slice(node: Any) -> str:
    low, high, step = (node.args.get(key) for key in ("this", "expression", "step"))
    text = ("" if low is None else operand(low)) + ":"
    if step is None:
        return text if high is None else text + operand(high)
    return f"{text}{'-' if high is None else operand(high)}:{operand(step)}"


@form(exp.Dot, takes="this expression")
def _dot(node: Any) -> str:
    base = node.this
    text = render(base) if isinstance(base, (exp.Column, exp.Dot)) else f"({render(base)})"
    return f"{text}.{name_of(node.expression)}"


@form(exp.Struct, takes="expressions")
def _struct(node: Any) -> str:
    fields = []
    for field in node.expressions:
        if not isinstance(field, exp.PropertyEQ):
            raise Refused(field, "expected the fields of a struct as {'name': value}")
        fields.append(f"{literal(field.name, field)}: {render(field.expression)}")
    return "{" + ", ".join(fields) + "}"


@form(exp.ToMap)
def _map_of_pairs(node: Any) -> str:
    pairs, base, behind = [], node.this, ""
    while isinstance(base, exp.Bracket) and len(base.expressions) == 1:
        behind = f"[{render(base.expressions[0])}]{behind}"  # of the map, as it is read
        base = base.this
    if not isinstance(base, exp.Struct):
        raise Refused(node, "expected MAP {key: value}")
    for pair in base.expressions:
        if not isinstance(pair, exp.PropertyEQ):
            raise Refused(pair, "expected MAP {key: value}")
        pairs.append(f"{render(pair.this)}: {render(pair.expression)}")
    text = "MAP {" + ", ".join(pairs) + "}"
    return f"({text}){behind}" if behind else text


@form(exp.PropertyEQ, exp.Kwarg, takes="this expression")
def _named_argument(node: Any) -> str:
    return f"{identifier(node.name, node)} := {render(node.expression)}"


@form(exp.Lambda, takes="this expressions colon")
def _lambda(node: Any) -> str:
    names = ", ".join(name_of(argument) for argument in node.expressions)
    return f"LAMBDA {names} : {render(node.this)}"


# --------------------------------------------------------------------------- functions


@form(exp.Anonymous, takes="this expressions")
def _call(node: Any) -> str:
    name = str(node.name).lower()
    if name not in words.FUNCTIONS:
        raise Refused(node, f"no function {node.name!r}")
    call = f"{name}({listed(node.expressions)})"
    return _guarded(node, call) if name in words.DISTANCES else call


def _guarded(node: Any, call: str) -> str:
    """A call of quadratic cost, which fails for long texts."""
    too_long = " OR ".join(
        f"strlen({render(argument)}) > {words.DISTANCE_BYTES_MAX}"
        for argument in node.expressions[:2]
    )
    message = f"{node.name.lower()} compares texts of up to {words.DISTANCE_BYTES_MAX} bytes"
    return f"CASE WHEN {too_long or 'FALSE'} THEN error({literal(message)}) ELSE {call} END"


@form(exp.Map, takes="keys values")
def _map(node: Any) -> str:
    arguments = [value for key in ("keys", "values") if (value := node.args.get(key)) is not None]
    return f"map({listed(arguments)})"


@form(exp.Pow, exp.StartsWith, exp.RegexpLike, exp.RegexpILike, takes="this expression")
def _function_of_two(node: Any) -> str:
    _check_left(node)
    name = words.OF_TWO[type(node)]
    flag = ", 'i'" if isinstance(node, exp.RegexpILike) else ""
    return f"{name}({render(node.this)}, {render(node.expression)}{flag})"


@form(exp.Trim, takes="this expression position")
def _trim(node: Any) -> str:
    side = str(node.args.get("position") or "BOTH")
    name = words.TRIMS[word(node, side, frozenset(words.TRIMS), "side to trim")]
    what = node.args.get("expression")
    return f"{name}({render(node.this)}{'' if what is None else ', ' + render(what)})"


@form(exp.Substring, takes="this start length")
def _substring(node: Any) -> str:
    arguments = (node.args.get(key) for key in ("this", "start", "length"))
    return f"substring({listed(argument for argument in arguments if argument is not None)})"


@form(exp.Overlay, takes="this expression from_ for_")
def _overlay(node: Any) -> str:
    text = (
        f"{render(node.this)} PLACING {render(node.expression)} FROM {render(node.args['from_'])}"
    )
    length = node.args.get("for_")
    return f"OVERLAY({text}{'' if length is None else f' FOR {render(length)}'})"


@form(exp.Distinct, takes="expressions on")
def _distinct(node: Any) -> str:
    if node.args.get("on") is not None:
        return f"DISTINCT ON {operand(node.args['on'])}"
    return f"DISTINCT {listed(node.expressions)}".rstrip()


@form(exp.Window, takes="this partition_by order spec alias over")
def _window(node: Any) -> str:
    base, parts = node.args.get("alias"), []
    if base is not None:
        parts.append(name_of(base))
    if node.args.get("partition_by"):
        parts.append(f"PARTITION BY {listed(node.args['partition_by'])}")
    parts += [render(node.args[key]) for key in ("order", "spec") if node.args.get(key) is not None]
    if isinstance(node.this, exp.Identifier):  # an entry of the clause WINDOW
        return f"{name_of(node.this)} AS ({' '.join(parts)})"
    if str(node.args.get("over") or "OVER").upper() != "OVER":
        raise Refused(node, "expected OVER")
    if base is not None and len(parts) == 1:
        return f"{render(node.this)} OVER {parts[0]}"
    return f"{render(node.this)} OVER ({' '.join(parts)})"


@form(exp.WindowSpec, takes="kind start start_side end end_side exclude")
def _frame(node: Any) -> str:
    kind = word(node, node.args.get("kind"), words.FRAMES, "kind of frame")
    start = _bound(node, "start")
    end = "CURRENT ROW" if node.args.get("end") is None else _bound(node, "end")
    text = f"{kind} BETWEEN {start} AND {end}"
    left_out = node.args.get("exclude")
    if left_out is not None:
        text += f" EXCLUDE {word(node, left_out, words.EXCLUSIONS, 'exclusion')}"
    return text


def _bound(node: Any, key: str) -> str:
    value, side = node.args.get(key), node.args.get(f"{key}_side")
    if isinstance(value, exp.Expression) and not isinstance(value, exp.Var):
        text = render(value) if isinstance(value, exp.Interval) else operand(value)
    else:
        text = word(node, value, words.FRAME_BOUNDS, "bound of a frame")
    if not side:
        return text
    return f"{text} {word(node, side, words.FRAME_SIDES, 'side of a frame')}"


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
    clauses = (node.args.get(key) for key in ("order", "limit", "offset"))
    return [render(clause) for clause in clauses if clause is not None]


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
    materialized = node.args.get("materialized")
    how = "" if materialized is None else "MATERIALIZED " if materialized else "NOT MATERIALIZED "
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

"""Forms of expressions: names, literals, operators, functions, casts, windows."""

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
    operand,
    render,
    string,
    unknown_argument,
    word,
)

__all__: list[str] = []

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
    known = [word(node, step, words.COLLATIONS, "collation").lower() for step in steps]
    return f"{operand(node.this)} COLLATE {'.'.join(known)}"


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
    found = (node.args.get(key) for key in ("this", "start", "length"))
    return f"substring({listed(argument for argument in found if argument is not None)})"


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

"""Table of forms: per node class its permitted arguments and its renderer.

Words that are neither names nor literals come from closed lists.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from sqlglot import exp

from ...core.sql_text import quoted_name, quoted_text
from ..contract.cancellation import checkpoint


class Refused(Exception):
    """A node without a form; its position is that of ``node`` or ``token``."""

    def __init__(self, node: Any, message: str, token: str | None = None) -> None:
        super().__init__(message)
        self.node = node
        self.message = message
        self.token = token


FORMS: dict[type, tuple[frozenset[str], Callable[[Any], str]]] = {}
"""Per node class: permitted arguments, and renderer."""

_ABSENT: tuple[Any, ...] = (None, False, "", [])


def render(node: Any) -> str:
    checkpoint()
    form = FORMS.get(type(node))
    if form is None:
        if isinstance(node, exp.Var) and node.name.upper() == "DEFAULT":
            raise Refused(node, "leave a column out of the list to give it its DEFAULT")
        raise Refused(node, f"{type(node).__name__} is not part of Chronicle's SQL")
    unknown = unknown_argument(node, form[0])
    if unknown is not None:
        raise Refused(node, f"{spelled(node, unknown)} is not part of Chronicle's SQL")
    return form[1](node)


def unknown_argument(node: Any, known: frozenset[str]) -> str | None:
    """The first argument that a form does not permit."""
    for key, value in node.args.items():
        if key not in known and value not in _ABSENT:
            return str(key)
    return None


def identifier(name: str, node: Any = None) -> str:
    if not name or "\0" in name:
        raise Refused(node, "a name is neither empty nor does it hold a zero character")
    return quoted_name(name)


def literal(text: str, node: Any = None) -> str:
    if "\0" in text:
        raise Refused(node, "a text cannot hold a zero character")
    return quoted_text(text)


def form(*classes: type, takes: str = "this") -> Callable[[Callable[[Any], str]], Any]:
    def register(write: Callable[[Any], str]) -> Callable[[Any], str]:
        for kind in classes:
            FORMS[kind] = (frozenset(takes.split()), write)
        return write

    return register


_PART = re.compile(r"\{(\w+)(?::(\w+))?\}")


def template(kind: type, text: str, takes: str = "") -> None:
    """A form as a text with parts: ``{this}``, ``{this:operand}``, ``{expressions:listed}``;
    ``takes``: arguments permitted beside these.
    """
    writers: dict[str, Callable[[Any], str]] = {
        "": render, "operand": operand, "listed": lambda nodes: listed(nodes or ()),
    }  # fmt: skip

    def write(node: Any) -> str:
        return _PART.sub(lambda part: writers[part[2] or ""](node.args.get(part[1])), text)

    FORMS[kind] = (frozenset((*takes.split(), *(part[0] for part in _PART.findall(text)))), write)


def word(node: Any, value: Any, known: frozenset[str], what: str) -> str:
    """A member of a closed list, in capitals."""
    text = str(value.name if isinstance(value, exp.Expression) else value).upper()
    if text not in known:
        shown = str(value.name if isinstance(value, exp.Expression) else value)
        raise Refused(node, f"there is no {what} {shown[:40]!r}", shown)
    return text


def listed(nodes: Any) -> str:
    return ", ".join(render(node) for node in nodes)


def names_in_parentheses(nodes: Any) -> str:
    return "(" + ", ".join(name_of(node) for node in nodes) + ")"


def name_of(node: Any) -> str:
    plain = node.this if isinstance(node, exp.Column) and len(node.parts) == 1 else node
    if not isinstance(plain, exp.Identifier):
        raise Refused(node, "expected a name")
    return identifier(plain.name, node)


_ATOMS = (
    exp.Column, exp.Identifier, exp.Literal, exp.RawString, exp.ByteString, exp.Null, exp.Boolean,
    exp.Placeholder, exp.Paren, exp.Anonymous, exp.Cast, exp.TryCast, exp.Case, exp.Array,
    exp.Struct, exp.ToMap, exp.Map, exp.Tuple, exp.Subquery, exp.Star, exp.Extract, exp.Abs,
    exp.Pow, exp.Trim, exp.Substring, exp.StrPosition, exp.StartsWith, exp.RegexpLike,
    exp.RegexpILike, exp.CurrentDate, exp.CurrentTimestamp, exp.CurrentTime, exp.Localtime,
    exp.Localtimestamp, exp.If, exp.Concat, exp.Bracket, exp.PositionalColumn, exp.Any, exp.All,
    exp.Exists, exp.Window, exp.Filter, exp.WithinGroup,
)  # fmt: skip


def operand(node: Any) -> str:
    if isinstance(node, exp.Literal) or (isinstance(node, _ATOMS) and type(node) in FORMS):
        return render(node)
    return f"({render(node)})"


def string(node: Any) -> str:
    if not isinstance(node, exp.Literal) or not node.is_string:
        raise Refused(node, "expected a text in single quotes")
    return render(node)


def integer(node: Any, low: int, high: int, what: str) -> str:
    text = str(node.this) if isinstance(node, exp.Literal) and not node.is_string else ""
    if not (text.isascii() and text.isdigit()) or not low <= int(text) <= high:
        raise Refused(node, f"{what} is an integer of {low} to {high}")
    return text


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


AGGREGATES = _names("""
    any_value approx_count_distinct approx_quantile approx_top_k arbitrary arg_max arg_max_null
    arg_min arg_min_null argmax argmin array_agg avg bit_and bit_or bit_xor bool_and bool_or
    corr count count_if count_star countif covar_pop covar_samp entropy favg first fsum geomean
    geometric_mean group_concat histogram kahan_sum kurtosis kurtosis_pop last list listagg mad
    max max_by mean median min min_by mode percentile_cont percentile_disc product quantile
    quantile_cont quantile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope
    regr_sxx regr_sxy regr_syy reservoir_quantile sem skewness stddev stddev_pop stddev_samp
    string_agg sum sum_no_overflow sumkahan var_pop var_samp variance weighted_avg wavg
    json_group_array json_group_object
""")

WINDOWS = _names("""
    cume_dist dense_rank fill first_value lag last_value lead nth_value ntile percent_rank rank
    rank_dense row_number
""")

SCALARS = _names("""
    abs acos acosh add age array_append array_cat array_concat array_contains
    array_cosine_distance array_cosine_similarity array_distance array_distinct array_extract
    array_filter array_has array_has_all array_has_any array_indexof array_inner_product
    array_intersect array_length array_pop_back array_pop_front array_position array_prepend
    array_push_back array_push_front array_reverse array_reverse_sort array_slice array_sort
    array_to_string array_transform array_unique array_value array_where array_zip ascii asin
    asinh atan atan2 atanh base64 bin bit_count bit_length bit_position bitstring cardinality
    cbrt ceil ceiling century char_length character_length chr coalesce columns concat concat_ws
    contains cos cosh cot current_date current_localtime current_localtimestamp
    damerau_levenshtein date_add date_diff date_part date_sub date_trunc datediff datepart
    datesub datetrunc day dayname dayofmonth dayofweek dayofyear days_in_month decade decode
    degrees divide editdist3 element_at encode ends_with epoch epoch_ms epoch_ns epoch_us
    equi_width_bins era even exp factorial fdiv flatten floor fmod format_bytes from_base64
    from_binary from_hex gamma gcd gen_random_uuid generate_subscripts get_bit get_current_time
    get_current_timestamp greatest greatest_common_divisor grouping grouping_id hamming hash hex
    hour if ifnull instr isfinite isinf isnan isodow isoyear jaccard
    jaro_similarity jaro_winkler_similarity json json_array json_array_length json_contains
    json_exists json_extract json_extract_path json_extract_path_text json_extract_string
    json_keys json_merge_patch json_object json_pretty json_quote json_structure json_transform
    json_transform_strict json_type json_valid json_value julian last_day lcase lcm least
    least_common_multiple left left_grapheme len length length_grapheme levenshtein lgamma
    list_aggr list_aggregate list_any_value list_append list_apply list_avg list_bit_and
    list_bit_or list_bit_xor list_bool_and list_bool_or list_cat list_concat list_contains
    list_cosine_distance list_cosine_similarity list_count list_distance list_distinct
    list_dot_product list_element list_entropy list_extract list_filter list_first list_grade_up
    list_has list_has_all list_has_any list_histogram list_indexof list_inner_product
    list_intersect list_kurtosis list_last list_mad list_max list_median list_min list_mode
    list_pack list_position list_prepend list_product list_reduce list_reverse list_reverse_sort
    list_select list_sem list_skewness list_slice list_sort list_stddev_pop list_stddev_samp
    list_string_agg list_sum list_transform list_unique list_value list_var_pop list_var_samp
    list_where list_zip ln log log10 log2 lower ltrim make_date make_time make_timestamp
    make_timestamp_ms make_timestamp_ns make_timestamptz map map_concat map_contains map_entries
    map_extract map_extract_value map_from_entries map_keys map_values md5 microsecond
    millennium millisecond minute mismatches mod month monthname multiply nanosecond nextafter
    nfc_normalize normalized_interval now nullif octet_length ord parse_dirname parse_dirpath
    parse_filename parse_path pi position pow power prefix quarter radians random regexp_escape
    regexp_extract regexp_extract_all regexp_full_match regexp_matches regexp_replace
    regexp_split_to_array replace reverse right right_grapheme round round_even roundbankers row
    row_to_json rtrim second set_bit sha1 sha256 sign signbit sin sinh split split_part sqrt
    starts_with str_split str_split_regex strftime string_split string_split_regex
    string_to_array strip_accents strlen strpos strptime struct_concat struct_extract
    struct_insert struct_keys struct_pack struct_values substr substring substring_grapheme
    subtract suffix switch tan tanh time_bucket timezone timezone_hour timezone_minute to_base64
    to_binary to_centuries to_days to_decades to_hex to_hours to_json to_microseconds
    to_millennia to_milliseconds to_minutes to_months to_quarters to_seconds to_timestamp
    to_weeks to_years today transaction_timestamp translate trim trunc try_strptime typeof ucase
    unbin unhex unicode unnest upper url_decode url_encode uuid uuid_extract_timestamp
    week weekday weekofyear xor year yearweek
""")

SIZES: dict[str, tuple[int, ...]] = {
    "lpad": (1,), "rpad": (1,), "list_resize": (1,), "array_resize": (1,), "to_base": (1, 2),
    "bitstring": (1,), "approx_top_k": (1,), "reservoir_quantile": (2,), "equi_width_bins": (2,),
    "min": (1,), "max": (1,), "arg_min": (2,), "arg_max": (2,), "argmin": (2,), "argmax": (2,),
    "min_by": (2,), "max_by": (2,),
}  # fmt: skip
"""Positions of arguments that size a function's result or state."""

SIZED_ONLY = frozenset(("lpad", "rpad", "list_resize", "array_resize", "to_base"))

QUANTILES = frozenset(
    ("quantile", "quantile_cont", "quantile_disc", "approx_quantile", "reservoir_quantile",
     "percentile_cont", "percentile_disc")
)  # fmt: skip

DISTANCES = frozenset(
    ("levenshtein", "damerau_levenshtein", "editdist3", "jaro_similarity",
     "jaro_winkler_similarity")
)  # fmt: skip
"""Functions whose cost is the product of two text lengths."""

DISTANCE_BYTES_MAX = 2000

FORMATS = frozenset({"format", "printf"})
SERIES = frozenset({"range", "generate_series"})
TABLE_FUNCTIONS = SERIES | {"unnest"}

FUNCTIONS = AGGREGATES | WINDOWS | SCALARS | FORMATS | SERIES | SIZED_ONLY

MADE_BY_DUCKDB = frozenset(
    ("error", "~~", "!~~", "~~*", "!~~*", "~~~", "list_value", "struct_pack", "row", "date_part",
     "timezone", "list_extract", "array_extract", "list_slice", "array_slice", "struct_extract",
     "position", "overlay", "count_star", "regexp_full_match", "regexp_matches", "like_escape",
     "not_like_escape", "ilike_escape", "not_ilike_escape", "to_years", "to_months", "to_days",
     "to_hours", "to_minutes", "to_seconds", "to_milliseconds", "to_microseconds", "to_weeks",
     "to_quarters", "to_decades", "to_centuries", "to_millennia", "contains", "array_value", "try",
     "map", "->", "->>", "main", "generate_series", "range", "mode", "quantile_cont",
     "quantile_disc", "ifnull", "unnest", "columns")
)  # fmt: skip
"""Functions that DuckDB's parser makes of operators and special forms, and our checks."""

CHAINED = {
    exp.And: "AND", exp.Or: "OR", exp.Add: "+", exp.Mul: "*", exp.DPipe: "||",
}  # fmt: skip

BINARY = {
    exp.Sub: "-", exp.Div: "/", exp.IntDiv: "//", exp.Mod: "%", exp.EQ: "=", exp.NEQ: "<>",
    exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM", exp.NullSafeNEQ: "IS DISTINCT FROM",
    exp.Like: "LIKE", exp.ILike: "ILIKE", exp.SimilarTo: "SIMILAR TO", exp.Glob: "GLOB",
    exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseLeftShift: "<<",
    exp.BitwiseRightShift: ">>", exp.ArrayOverlaps: "&&", exp.ArrayContainsAll: "@>",
    exp.ArrayContainedBy: "<@", exp.JSONExtract: "->", exp.JSONExtractScalar: "->>",
}  # fmt: skip

CLOSE = (
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Pow, exp.DPipe, exp.BitwiseAnd,
    exp.BitwiseOr, exp.BitwiseLeftShift, exp.BitwiseRightShift,
)  # fmt: skip
"""Operators that bind tighter than a prefix ~ or @ in DuckDB."""

OF_TWO = {
    exp.Pow: "power", exp.StartsWith: "starts_with", exp.RegexpLike: "regexp_matches",
    exp.RegexpILike: "regexp_matches",
}  # fmt: skip

MOMENTS = {
    exp.CurrentDate: "CURRENT_DATE", exp.CurrentTimestamp: "CURRENT_TIMESTAMP",
    exp.CurrentTime: "CURRENT_TIME", exp.Localtime: "LOCALTIME",
    exp.Localtimestamp: "LOCALTIMESTAMP",
}  # fmt: skip

TRIMS = {"BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}

_UNITS = "YEAR MONTH DAY HOUR MINUTE SECOND MILLISECOND MICROSECOND WEEK QUARTER DECADE"
UNITS = frozenset(
    (*_UNITS.split(), *(f"{unit}S" for unit in _UNITS.split()), "CENTURY", "CENTURIES",
     "MILLENNIUM", "MILLENNIA")
)  # fmt: skip

DATE_PARTS = UNITS | _names("""
    DOW DAYOFWEEK WEEKDAY ISODOW DOY DAYOFYEAR WEEKOFYEAR YEARWEEK ISOYEAR EPOCH ERA JULIAN
    TIMEZONE TIMEZONE_HOUR TIMEZONE_MINUTE MS MSEC MSECS US USEC USECS S SEC SECS M MIN MINS H HR
    HRS D W MON MONS Y YR YRS DEC DECS CENT C MIL MILS MILLENNIUMS
""")

COLLATIONS = frozenset(("NOCASE", "NOACCENT", "NFC", "C", "POSIX"))

JOIN_METHODS = frozenset(("", "ASOF", "NATURAL", "POSITIONAL"))
JOIN_SIDES = frozenset(("", "LEFT", "RIGHT", "FULL"))
JOIN_KINDS = frozenset(("", "INNER", "OUTER", "CROSS", "SEMI", "ANTI"))

FRAMES = frozenset(("ROWS", "RANGE", "GROUPS"))
FRAME_BOUNDS = frozenset(("UNBOUNDED", "CURRENT ROW"))
FRAME_SIDES = frozenset(("PRECEDING", "FOLLOWING"))
EXCLUSIONS = frozenset(("CURRENT ROW", "GROUP", "TIES", "NO OTHERS"))
SAMPLES = frozenset(("SYSTEM", "BERNOULLI", "RESERVOIR"))

_T = exp.DataType.Type
TYPES = {
    _T.BOOLEAN: "BOOLEAN", _T.TINYINT: "TINYINT", _T.SMALLINT: "SMALLINT", _T.INT: "INTEGER",
    _T.BIGINT: "BIGINT", _T.INT128: "HUGEINT", _T.UTINYINT: "UTINYINT", _T.USMALLINT: "USMALLINT",
    _T.UINT: "UINTEGER", _T.UBIGINT: "UBIGINT", _T.UINT128: "UHUGEINT", _T.FLOAT: "FLOAT",
    _T.DOUBLE: "DOUBLE", _T.DECIMAL: "DECIMAL", _T.TEXT: "VARCHAR", _T.VARCHAR: "VARCHAR",
    _T.CHAR: "VARCHAR", _T.VARBINARY: "BLOB", _T.BINARY: "BLOB", _T.BLOB: "BLOB", _T.BIT: "BIT",
    _T.DATE: "DATE", _T.TIME: "TIME", _T.TIMESTAMP: "TIMESTAMP",
    _T.TIMESTAMPNTZ: "TIMESTAMP", _T.TIMESTAMPTZ: "TIMESTAMPTZ", _T.TIMESTAMP_S: "TIMESTAMP_S",
    _T.TIMESTAMP_MS: "TIMESTAMP_MS", _T.TIMESTAMP_NS: "TIMESTAMP_NS", _T.DATETIME: "TIMESTAMP",
    _T.INTERVAL: "INTERVAL", _T.UUID: "UUID", _T.JSON: "JSON", _T.BIGNUM: "BIGNUM",
    _T.NULL: '"NULL"',
}  # fmt: skip


KEYWORDS = _names("""
    ALL AND ANTI ANY AS ASC ASOF AT BERNOULLI BETWEEN BY CASE CAST COLLATE CROSS CUBE CURRENT
    CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP DESC DISTINCT ELSE END ENUM ERROR ESCAPE EXCEPT
    EXCLUDE EXISTS EXTRACT FALSE FILTER FIRST FOLLOWING FOR FROM FULL GLOB GROUP GROUPING GROUPS
    HAVING IGNORE ILIKE IN INNER INTERSECT INTERVAL IS JOIN KEY LAMBDA LATERAL LEFT LIKE LIMIT
    LOCALTIME LOCALTIMESTAMP MAP MATERIALIZED NAME NATURAL NO NOT NULL NULLS OFFSET ON OR ORDER
    ORDINALITY OTHERS OUTER OVER OVERLAY PARTITION PERCENT PLACING POSITIONAL PRECEDING QUALIFY
    RANGE RECURSIVE RENAME REPEATABLE REPLACE RESERVOIR RESPECT RIGHT ROLLUP ROW ROWS SAMPLE
    SELECT SEMI SETS SIMILAR STRUCT SYSTEM TABLESAMPLE THEN TIES TIME TO TRUE TRY TRY_CAST
    UNBOUNDED UNION USING VALUES WHEN WHERE WINDOW WITH WITHIN ZONE
""")

UNQUOTED = (
    KEYWORDS
    | UNITS
    | COLLATIONS
    | frozenset(word.upper() for word in (*FUNCTIONS, *TABLE_FUNCTIONS, *TYPES.values()))
)


def spelled(node: Any, argument: str) -> str:
    """A clause's name for messages."""
    name = argument.rstrip("_").replace("_", " ").upper()
    return f"{name} of {type(node).__name__}" if name in ("THIS", "EXPRESSION") else name


for _kind, _text in MOMENTS.items():
    template(_kind, _text)
template(exp.Null, "NULL")
template(exp.Not, "NOT {this:operand}")
template(exp.Neg, "-{this:operand}")
template(exp.BitwiseNot, "~{this:operand}")
template(exp.Abs, "abs({this})")
template(exp.StrPosition, "strpos({this}, {substr})")
template(exp.AtTimeZone, "{this:operand} AT TIME ZONE {zone:operand}")
template(exp.Array, "[{expressions:listed}]", takes="value_constructor")
template(exp.Tuple, "({expressions:listed})")
template(exp.Concat, "concat({expressions:listed})", takes="coalesce safe")
template(exp.IgnoreNulls, "{this} IGNORE NULLS")
template(exp.RespectNulls, "{this} RESPECT NULLS")
template(exp.Filter, "{this} FILTER ({expression})")
template(exp.WithinGroup, "{this} WITHIN GROUP ({expression})")
template(exp.Where, "WHERE {this}")
template(exp.Having, "HAVING {this}")
template(exp.Qualify, "QUALIFY {this}")
template(exp.GroupingSets, "GROUPING SETS ({expressions:listed})")
template(exp.Cube, "CUBE ({expressions:listed})")
template(exp.Rollup, "ROLLUP ({expressions:listed})")
template(exp.Offset, "OFFSET {expression:operand}")

"""The gate: which SQL reaches the relational executor at all.

Purpose
    The executor is locked down by its own configuration; this is the second lock.  A query passes
    when every node of its tree is of a known kind and every function is on a list.

Guarantee
    What is not named here does not run: no file, network or catalog function, no statement but a
    query, no setting.  Functions whose result can be far larger than their arguments run only with
    literal sizes below :data:`LITERAL_SIZE_MAX`.

Limits
    The list is of names; it trusts DuckDB's implementations of them.  Memory is bounded by the
    executor's limit, which is not a hard cap: a public server needs a container limit as well.
"""

from __future__ import annotations

import difflib
import re
from typing import Any

from sqlglot import exp

from .dialect import MatchRelation, error_at, position_of, token_offset

__all__ = ["AGGREGATES", "SCALARS", "WINDOWS", "check_query", "is_volatile"]

LITERAL_SIZE_MAX = 10_000
"""Largest literal length that padding, resizing and formatting functions may ask for."""

SERIES_MAX = 1_000_000
"""Most rows or elements that ``range`` and ``generate_series`` may make."""


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
    hour if ifnull in_search_path instr isfinite isinf isnan isodow isoyear jaccard
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
    vector_type week weekday weekofyear xor year yearweek
""") - {"vector_type", "in_search_path"}

_SIZED = {"lpad": 1, "rpad": 1, "list_resize": 1, "array_resize": 1, "to_base": 2}
"""Functions that run with a literal size; the position of that argument."""

_FORMATS = frozenset({"format", "printf"})
_SERIES = frozenset({"range", "generate_series"})
_VOLATILE = frozenset({"random", "uuid", "gen_random_uuid"})


def _nodes(text: str) -> frozenset[type]:
    return frozenset(getattr(exp, name) for name in text.split() if hasattr(exp, name))


_NODES = _nodes("""
    Select Union Except Intersect Subquery Values Tuple CTE With From Join Where Group Having
    Qualify Order Ordered Limit LimitOptions Offset Distinct Window WindowSpec Filter WithinGroup
    IgnoreNulls RespectNulls GroupingSets Cube Rollup Table TableAlias Lateral Unnest TableSample
    Hint Alias Aliases Column Identifier Star Literal RawString ByteString Null Boolean Placeholder
    Parameter Paren Anonymous Var Interval IntervalSpan DataType DataTypeParam ColumnDef And Or Not
    Xor EQ NEQ GT GTE LT LTE NullSafeEQ NullSafeNEQ Is In Between Like ILike SimilarTo Glob
    RegexpLike RegexpILike RegexpFullMatch Escape Any All Exists Case If Cast TryCast Extract Trim
    Substring StrPosition Overlay Collate AtTimeZone StartsWith Add Sub Mul Div IntDiv Mod Pow Neg
    Abs BitwiseAnd BitwiseOr BitwiseXor BitwiseNot BitwiseLeftShift BitwiseRightShift DPipe Dot
    Bracket Slice Array Struct ToMap Map PropertyEQ Kwarg Lambda JSONExtract JSONExtractScalar
    JSONPath JSONPathKey JSONPathRoot JSONPathSubscript JSONPathWildcard ArrayContainsAll
    ArrayContainedBy ArrayOverlaps PositionalColumn CurrentDate CurrentTimestamp CurrentTime
    Localtime Localtimestamp Concat
""")


def is_volatile(name: str) -> bool:
    """Whether a function may give another value each time it is called."""
    return name.lower() in _VOLATILE or name.lower() not in SCALARS


def check_query(root: Any, text: str, table_functions: frozenset[str] = frozenset()) -> None:
    """Refuse a query that holds anything but known nodes and functions.

    Parameters
    ----------
    root : sqlglot tree
    text : str
        The statement, for positions.
    table_functions : frozenset of str
        Names, in lower case, of the stream operators that may stand in FROM.

    Raises
    ------
    SqlError
    """
    for node in root.walk():
        if isinstance(node.parent, exp.Hint):
            continue  # read by the binder, never by the executor
        if isinstance(node, exp.Anonymous):
            _check_function(node, text, table_functions)
        elif isinstance(node, exp.Table):
            _check_table(node, text)
        elif isinstance(node, exp.DataType):
            if node.this == exp.DataType.Type.USERDEFINED:
                kind = str(node.args.get("kind"))
                raise error_at(text, token_offset(text, kind), f"there is no type {kind}")
        elif type(node) not in _NODES and not _inside_match(node):
            what = type(node).__name__
            raise error_at(
                text, position_of(node), f"{what} is not part of Chronicle's SQL (see docs/sql.md)"
            )


def _inside_match(node: Any) -> bool:
    """Row patterns are read by their own engine, never by the executor."""
    while node is not None:
        if isinstance(node, (MatchRelation, exp.MatchRecognize)):
            return True
        node = node.parent
    return False


def _check_table(node: Any, text: str) -> None:
    if isinstance(node.this, exp.Dot) or node.args.get("db") or node.args.get("catalog"):
        raise error_at(
            text, position_of(node), f"names of streams have one part, found {node.sql('duckdb')}"
        )
    for clause in ("pivots", "version", "when", "only", "rows_from", "changes", "hints", "indexed"):
        if node.args.get(clause):
            raise error_at(
                text, position_of(node), f"{clause.upper()} is not part of Chronicle's SQL"
            )


def _check_function(node: Any, text: str, table_functions: frozenset[str]) -> None:
    name = node.name.lower()
    in_from = isinstance(node.parent, (exp.Table, exp.Lateral))
    if in_from and name in table_functions:
        return
    if _inside_match(node):
        return
    if in_from and name not in _SERIES and name != "unnest":
        raise error_at(
            text,
            position_of(node),
            f"no table function {node.name!r}{_near(name, table_functions | _SERIES)}",
        )
    if name in _SERIES:
        _check_series(node, text)
    elif name in _SIZED:
        arguments = node.expressions
        where = _SIZED[name]
        size = _integer(arguments[where]) if len(arguments) > where else 0
        if size is None or abs(size) > LITERAL_SIZE_MAX:
            raise error_at(
                text,
                position_of(node),
                f"the size that {name} makes must be a literal up to {LITERAL_SIZE_MAX}",
            )
    elif name in _FORMATS:
        pattern = node.expressions[0] if node.expressions else None
        literal = str(pattern.this) if isinstance(pattern, exp.Literal) else "*"
        widths = [int(width) for width in re.findall(r"\d+", literal)]
        if (
            "*" in literal
            or re.search(r"{[^}]*{", literal)
            or max(widths, default=0) > (LITERAL_SIZE_MAX)
        ):
            raise error_at(
                text,
                position_of(node),
                f"the format of {name} must be a literal with widths up to {LITERAL_SIZE_MAX}",
            )
    elif name not in SCALARS and name not in AGGREGATES and name not in WINDOWS:
        known = SCALARS | AGGREGATES | WINDOWS
        raise error_at(
            text,
            position_of(node),
            f"no function {node.name!r}{_near(name, known)} (see docs/sql.md)",
        )


def _check_series(node: Any, text: str) -> None:
    found = [_integer(argument) for argument in node.expressions]
    numbers = [number for number in found if number is not None]
    if len(numbers) != len(found) or not 1 <= len(numbers) <= 3:
        raise error_at(
            text, position_of(node), f"{node.name} takes one to three integer literals here"
        )
    start, stop = (0, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])
    step = numbers[2] if len(numbers) == 3 else 1
    if step and abs(stop - start) // abs(step) > SERIES_MAX:
        raise error_at(text, position_of(node), f"{node.name} makes at most {SERIES_MAX} values")


def _integer(node: Any) -> int | None:
    sign = 1
    while isinstance(node, (exp.Neg, exp.Paren)):
        sign = -sign if isinstance(node, exp.Neg) else sign
        node = node.this
    if isinstance(node, exp.Literal) and not node.is_string:
        digits = str(node.this).replace("_", "")
        return sign * int(digits) if digits.isdigit() else None
    return None


def _near(name: str, known: frozenset[str]) -> str:
    near = difflib.get_close_matches(name, sorted(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""

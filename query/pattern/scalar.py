"""Scalar expressions over Arrow columns, evaluated by DuckDB.

Purpose
    Conditions and measures are SQL: CASE, LIKE, casts, string and time functions, three-valued logic,
    overflow errors.  DuckDB evaluates all of that over whole Arrow batches; nothing here loops over rows.

Guarantee
    One private in-memory connection per process, locked down: no files, no network, no extensions, no
    Python variables.  Only scalar functions on :data:`FUNCTIONS` and aggregates on :data:`AGGREGATES` pass
    :func:`check_functions`.  Row order is kept.

Limits
    An error in an expression (overflow, a failed cast) is raised for any row of the input, also for one
    that the matcher would not have asked about: guard with CASE or TRY_CAST.  Integer division by zero with
    ``//`` and ``%`` is such an error; ``/`` is floating-point division, as in DuckDB.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ...errors import SqlError
from .parse import position_error

__all__ = ["AGGREGATES", "check_functions", "column_types", "evaluate", "function_name", "quote"]

FUNCTIONS = frozenset(
    """
    abs ceil ceiling floor round trunc sign sqrt cbrt exp ln log log2 log10 pow power mod greatest least
    sin cos tan asin acos atan atan2 sinh cosh tanh cot degrees radians pi gcd lcm factorial even gamma
    isnan isinf isfinite is_nan is_inf is_finite nextafter xor bit_count bit_length
    coalesce ifnull nvl nullif if iff case cast try_cast try nvl2 error
    lower upper lcase ucase initcap length len char_length character_length strlen octet_length trim ltrim
    rtrim substring substr left right concat concat_ws replace reverse lpad rpad position strpos instr
    str_position contains starts_with startswith ends_with endswith prefix suffix ascii chr char unicode ord
    translate split_part like_escape not_like_escape ilike_escape regexp_matches regexp_like regexp_full_match
    regexp_extract regexp_replace regexp_i_like rlike similar_to levenshtein hamming jaccard jaro_similarity
    jaro_winkler_similarity md5 sha256 hash hex unhex to_hex from_hex base64 to_base64 from_base64 encode decode format
    extract date_part datepart date_trunc timestamp_trunc datetrunc datetime_trunc date_diff datediff date_sub
    date_add dateadd timestamp_diff timestamp_add timestamp_sub time_diff datetime_diff datetime_add
    datetime_sub year month day hour minute second millisecond microsecond
    nanosecond quarter week weekofyear week_of_year dayofweek day_of_week dayofweekiso day_of_month
    dayofmonth dayofyear day_of_year dayname
    monthname isodow isoyear yearweek weekday era century decade millennium epoch epoch_ms epoch_us epoch_ns to_timestamp
    make_date make_time make_timestamp strftime strptime try_strptime time_to_str str_to_time age last_day
    date_from_parts timestamp_from_parts timestamp_from_parts
    unix_to_time unix_seconds unix_millis unix_micros time_bucket date_bin timezone date timestamp
    ts_or_ds_add ts_or_ds_diff ts_or_ds_to_date ts_or_ds_to_timestamp to_days to_hours to_minutes to_seconds
    to_milliseconds to_microseconds to_months to_years to_weeks width_bucket safe_divide
    and or between in like ilike is not any arrays array struct list_value
    time_str_to_time str_to_date to_char to_date to_number
    """.split()
)
AGGREGATES = frozenset(
    """
    count sum min max avg mean bool_and bool_or logical_and logical_or every arbitrary any_value array_agg
    list string_agg group_concat listagg stddev stddev_pop stddev_samp variance var_pop var_samp
    variance_pop median mode quantile quantile_cont quantile_disc percentile_cont percentile_disc
    approx_quantile approx_distinct approx_count_distinct product count_if countif min_by max_by arg_min arg_max
    bit_and bit_or bit_xor bitwise_and_agg bitwise_or_agg bitwise_xor_agg
    corr covar_pop covar_samp kurtosis skewness entropy geometric_mean fsum
    favg mad
    """.split()
)
_FORBIDDEN = (exp.Query, exp.Window, exp.Placeholder, exp.Parameter, exp.Lambda, exp.DDL, exp.Command)

_lock = threading.Lock()
_connection: Any = None


def quote(name: str) -> str:
    """A column name as it is written in SQL."""
    return '"' + name.replace('"', '""') + '"'


def function_name(node: exp.Expression) -> str:
    """Lower-case name of a function node."""
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower()
    names = node.sql_names() if isinstance(node, exp.Func) else []
    return str(names[0]).lower() if names else type(node).__name__.lower()


def check_functions(node: exp.Expression, sql: str, at: int) -> None:
    """Refuse what a condition or measure must not hold: subqueries, windows, unknown functions.

    Raises
    ------
    SqlError
        Naming the function, with its position where the parser kept it.
    """
    for part in node.walk():
        where = part.meta.get("start", at)
        if isinstance(part, _FORBIDDEN):
            kind = {"Subquery": "a subquery", "Select": "a subquery", "Window": "a window function"}
            what = kind.get(type(part).__name__, type(part).__name__.lower())
            raise position_error(f"{what} cannot be used in MATCH_RECOGNIZE", sql, where)
        if not isinstance(part, exp.Func | exp.Anonymous):
            continue
        names = {function_name(part)}
        if isinstance(part, exp.Func) and not isinstance(part, exp.Anonymous):
            names |= {str(name).lower() for name in part.sql_names()}
        if not names & FUNCTIONS and not names & AGGREGATES:
            raise position_error(
                f"unknown function {function_name(part)!r} in MATCH_RECOGNIZE", sql, where
            )


def _cursor() -> Any:
    global _connection
    import duckdb

    with _lock:
        if _connection is None:
            connection = duckdb.connect(
                config={
                    "enable_external_access": "false",
                    "python_enable_replacements": "false",
                    "autoinstall_known_extensions": "false",
                    "autoload_known_extensions": "false",
                    "threads": 1,
                }
            )
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute("SET lock_configuration = true")
            _connection = connection
        return _connection.cursor()


def evaluate(query: str, **tables: pa.Table) -> pa.Table:
    """Run one query over Arrow tables.

    Parameters
    ----------
    query : str
        A SELECT over the given tables, made by this package from checked expressions.
    **tables : pyarrow.Table

    Raises
    ------
    SqlError
        When an expression has no types that fit, or fails on a value.
    """
    import duckdb

    cursor = _cursor()
    try:
        for name, table in tables.items():
            cursor.register(name, table)
        return cursor.sql(query).to_arrow_table()
    except duckdb.Error as error:
        text = str(error).split("\n\nLINE")[0].split("\nLINE")[0].strip()
        raise SqlError(text.replace("\n", " ")) from None
    finally:
        cursor.close()


def column_types(expressions: Sequence[str], schema: pa.Schema) -> list[pa.DataType]:
    """Types of expressions over a schema, found by running them over no rows."""
    if not expressions:
        return []
    listed = ", ".join(f"{text} AS c{i}" for i, text in enumerate(expressions))
    table = evaluate(f"SELECT {listed} FROM rows", rows=schema.empty_table())
    return [field.type for field in table.schema]

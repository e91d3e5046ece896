"""Lies about SQL, for ``make mutants``: pruning, plans and doors.

Layout
    As :mod:`query_mutants`.
"""

# ruff: noqa: E501

from __future__ import annotations

__all__ = ["SQL_MUTANTS"]

PREDICATES = "test_predicate_differential.py"
ENGINE = "test_sql_engine.py"

SQL_MUTANTS = [
    # -- FROM -------------------------------------------------------------------------------------
    (
        "a name behind parentheses leaves the one inside",
        "query/sql/from_parser.py",
        'inner.set("alias", alias or inner.args.get("alias"))',
        'inner.set("alias", inner.args.get("alias") or alias)',
        "test_statements.py",
    ),
    (
        "conditions of joins in parentheses are not bound",
        "query/binding/binder.py",
        "        for on in scope.ons:\n",
        "        for on in scope.ons[len(node.args.get('joins') or ()):0]:\n",
        "test_statements.py",
    ),
    # -- pruning ----------------------------------------------------------------------------------
    (
        "pruning loses NaN, the greatest value",
        "store/prune.py",
        "result &= above | np.isnan(high)",
        "result &= above",
        "../store/test_prune.py",
    ),
    (
        "pruning loses nulls beside values",
        "store/prune.py",
        "return np.asarray(valid < table[ROW_COUNT])",
        "return np.asarray(valid == 0)",
        "../store/test_prune.py",
    ),
    (
        "an open bound excludes its neighbour, too",
        "store/prune.py",
        "return number - 1 if upper else number + 1",
        "return number - 2 if upper else number + 2",
        "../store/test_prune.py",
    ),
    (
        "a fraction above is rounded down",
        "store/prune.py",
        "whole = math.floor(value) if upper else math.ceil(value)",
        "whole = math.floor(value) - 1 if upper else math.ceil(value)",
        "../store/test_prune.py",
    ),
    (
        "an attribute that a segment lacks is never null",
        "store/prune.py",
        "if row is None:  # added after this segment was written: null throughout\n"
        "            return np.full(children, isinstance(predicate, IsNull), np.bool_)",
        "if row is None:\n            return np.zeros(children, np.bool_)",
        "../store/test_prune.py",
    ),
    (
        "greater is at least",
        "query",
        'low = floor + 1 if operator == ">" else ceiling',
        "low = floor + 1",
        f"{PREDICATES}::test_what_is_pushed_down_follows_from_the_condition",
    ),
    (
        "NOT LIKE is LIKE",
        "query",
        'if node.args.get("negate"):  # NOT LIKE',
        "if False:  # NOT LIKE",
        f"{PREDICATES}::test_what_is_pushed_down_follows_from_the_condition"
        f" {PREDICATES}::test_conditions_that_were_once_pruned_wrongly",
    ),
    (
        "constants of mixed types are compared one by one",
        "query",
        "        if not sound and kinds:\n",
        "        if False:\n",
        f"{PREDICATES}::test_conditions_that_were_once_pruned_wrongly",
    ),
    (
        "doubles are compared exactly",
        "query",
        "return value - 2 * step, value + 2 * step",
        "return value, value",
        f"{PREDICATES}::test_what_is_pushed_down_follows_from_the_condition",
    ),
    (
        "OR forgets the side that it does not understand",
        "query",
        "            return ALWAYS if part.exact else NOTHING\n        if isinstance(part.prune, AnyOf):",
        "            continue\n        if isinstance(part.prune, AnyOf):",
        f"{PREDICATES}::test_what_is_pushed_down_follows_from_the_condition",
    ),
    (
        "NOT of AND is AND",
        "query",
        "return all_of(parts) if isinstance(node, exp.And) == truth else any_of(parts)",
        "return all_of(parts) if isinstance(node, exp.And) else any_of(parts)",
        f"{PREDICATES}::test_what_is_pushed_down_follows_from_the_condition",
    ),
    (
        "a truncated time is within an hour of itself",
        "query",
        '    "day": _DAY_NS,\n    "week"',
        '    "day": 3_600_000_000_000,\n    "week"',
        f"{PREDICATES}::test_what_is_pushed_down_follows_from_the_condition",
    ),
    (
        "an outer join's missing rows are pruned like others",
        "query",
        "    if nullable and condition.where:\n",
        "    if False:\n",
        "test_sql_differential.py::test_random_joins_equal_those_of_duckdb",
    ),
    (
        "an IS NULL beside a range rejects missing rows",
        "query",
        "return any(_accepts_nulls(item) for item in prune.items)",
        "return all(_accepts_nulls(item) for item in prune.items)",
        "test_sql_differential.py::test_random_joins_equal_those_of_duckdb",
    ),
    (
        "the greatest tick of a range is left out",
        "query",
        "return None if low == TICK_MIN else low, None if high == TICK_MAX else high + 1",
        "return None if low == TICK_MIN else low, None if high == TICK_MAX else high",
        "test_sql_differential.py::test_random_aggregates_over_time_equal_those_of_a_scan",
    ),
    # -- plans ------------------------------------------------------------------------------------
    (
        "a limit is pushed below conditions",
        "query",
        "if rows is None or not scan.exact:",
        "if rows is None:",
        "test_statements.py::test_limits_reach_a_scan_only_where_they_may",
    ),
    (
        "a limit is pushed below DISTINCT",
        "query",
        '"group", "having", "limit", "offset", "distinct", "qualify"',
        '"group", "having", "limit", "offset", "qualify"',
        "test_statements.py::test_limits_reach_a_scan_only_where_they_may",
    ),
    (
        "a limit forgets what is skipped before it",
        "query",
        "for node in (rows.limit, rows.offset):",
        "for node in (rows.limit,):",
        "test_statements.py::test_order_by_time_and_limits_reach_the_scan",
    ),
    (
        "the newest events are one too few",
        "query",
        "        if events(middle) >= rows:\n",
        "        if events(middle) >= rows - 1:\n",
        "test_statements.py::test_limits_reach_a_scan_only_where_they_may",
    ),
    (
        "ORDER BY time DESC is dropped",
        "query",
        '        if not newest:\n            select.set("order", None)\n',
        '        select.set("order", None)\n',
        "test_statements.py::test_order_by_time_and_limits_reach_the_scan",
    ),
    (
        "ORDER BY of an alias that hides time is dropped",
        "query",
        "if not column.table and _hidden(select, column, names):",
        "if False:",
        "test_statements.py::test_limits_reach_a_scan_only_where_they_may",
    ),
    (
        "the tree answers aggregates under any condition",
        "query",
        "frozenset(i for i in prepared.candidates if scans[i].exact)",
        "frozenset(prepared.candidates)",
        "test_sql_differential.py::test_the_tree_answers_aggregates_over_time_and_only_those",
    ),
    (
        "the tree answers aggregates under conditions of other scopes",
        "query",
        "exact = _covers_where(site) and all(",
        "exact = all(",
        "test_statements.py::test_the_tree_answers_only_what_it_knows",
    ),
    (
        "the tree answers aggregates with FILTER",
        "query",
        "(exp.Window, exp.Filter, exp.WithinGroup, exp.Column, exp.Star)",
        "(exp.Window, exp.WithinGroup, exp.Column, exp.Star)",
        "test_statements.py::test_the_tree_answers_only_what_it_knows",
    ),
    (
        "two relations of one query see two states of a stream",
        "query",
        "found = self.snapshots[name] = self.catalog.snapshot(name)",
        "found = self.catalog.snapshot(name)",
        f"{ENGINE}::test_one_query_sees_one_state_of_a_stream",
    ),
    (
        "now() is asked at every place",
        "query",
        "        _keep_name(node)\n        node.replace(made)\n    return found",
        "    return found",
        f"{ENGINE}::test_now_is_one_moment_and_narrows_the_scan",
    ),
    (
        "ORDER BY time beside a subquery is dropped",
        "query",
        "if any(node is not select and isinstance(node, exp.Query) for node in select.walk()):\n"
        "            return None  # a subquery",
        "if False:\n            return None  # a subquery",
        "test_statements.py::test_order_by_time_holds_beside_subqueries",
    ),
    (
        "positional parameters begin at zero",
        "query",
        "enumerate(params, start=1)}",
        "enumerate(params, start=0)}",
        f"{ENGINE}::test_parameters_by_name_and_by_position",
    ),
    (
        "a parameter's name is found within a longer one",
        "query",
        "return {name: self.values[name] for name in names if name in self.values}",
        'return {n: v for n, v in self.values.items() if n in " ".join(names)}',
        "test_statement_names.py::test_parameters_are_found_by_their_whole_name",
    ),
    (
        "a prepared query outlives its schema",
        "query",
        "if current is not schema and current != schema:",
        "if False:",
        f"{ENGINE}::test_a_prepared_query_follows_changes_of_the_schema",
    ),
    (
        "columns are picked in whatever order rows come",
        "query",
        "if order is not None and not _delivered(order, picked, ordered_by, relation):",
        "if False:",
        "test_match_shortcuts.py",
    ),
    (
        "a member of a struct is the column of its name",
        "query/plan",
        'return node.table.lower() in ("", relation)',
        "return True",
        "../test_nested_columns.py::test_a_member_is_not_the_column_of_its_name",
    ),
    (
        "what is called as a column is no variable",
        "query/pattern/members.py",
        "variable = names[0] if _folded(names[0]) in variables else None",
        "variable = None",
        "pattern/test_match_members.py",
    ),
    (
        "a time that was twice is the earlier one unasked",
        "formats/local_times.py",
        'twice[changed] = was_shown & ~of_date & (ambiguous == "refuse")',
        "twice[changed] = False",
        "../formats/test_local_times.py",
    ),
    (
        "a time that clocks skipped is moved",
        "formats/local_times.py",
        "skipped[changed] = ~was_shown & ~of_date",
        "skipped[changed] = False",
        "../formats/test_local_times.py",
    ),
    (
        "a later format reads again what was read",
        "formats/times.py",
        "left = left[unread]",
        "left = left[unread | True]",
        "../formats/test_time_formats.py",
    ),
    # -- doors ------------------------------------------------------------------------------------
    (
        "the gate stands open",
        "query",
        "    check_query(root, text, functions)\n    check_literals",
        "    check_literals",
        "test_lockdown.py::test_hostile_statements_are_refused",
    ),
    (
        "the door stands open",
        "query",
        "    names = sorted(relations)\n    digest",
        "    return\n    names = sorted(relations)\n    digest",
        "test_doors.py::test_the_door_does_not_trust_the_renderer",
    ),
    (
        "the door does not look at words",
        "query",
        '    if name not in known:\n        raise SqlError(f"the executor knows no {what}',
        '    if False:\n        raise SqlError(f"the executor knows no {what}',
        "test_doors.py::test_the_door_does_not_trust_the_renderer",
    ),
    (
        "the executor can be written to",
        "query",
        "duckdb.connect(path, read_only=True, config=settings)",
        "duckdb.connect(path, config=settings)",
        "test_doors.py test_lockdown.py::test_the_executor_is_locked",
    ),
    (
        "a query does not look whether it has to end",
        "query",
        "        self._owner.check()\n        if self.cancellation is not None and self.cancellation.cancelled:\n"
        "            raise QueryCancelled",
        "        return\n        if self.cancellation is not None and self.cancellation.cancelled:\n"
        "            raise QueryCancelled",
        f"{ENGINE}::test_a_query_is_cancelled_from_another_thread"
        f" {ENGINE}::test_a_query_ends_at_its_time_limit",
    ),
    (
        "literals that do not fit are changed in silence",
        "query",
        "    check_literals(root, text)\n",
        "",
        "test_silent_loss.py::test_literals_that_do_not_fit_are_errors_at_their_place",
    ),
]

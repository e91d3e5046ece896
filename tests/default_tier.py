"""What the default tier runs of heavy tests, and of plain ones with many dear cases.

Of each heavy kind what covers its whole path once, from start to end; of a plain test whose cases
take seconds, some of them, evenly spread.
``make test-all`` runs everything.
"""

from __future__ import annotations

__all__ = ["CASES", "SMOKE"]

SMOKE: dict[str, tuple[str, ...]] = {
    # a JVM
    "spark_connector/test_spark_read.py": (
        "test_filter_and_limit_are_applied_inside_the_store",
        "test_errors_reach_the_user",
    ),
    "spark_connector/test_spark_write.py": (
        "test_a_write_creates_the_stream_and_reads_back",
        "test_a_commit_that_fails_leaves_nothing",
    ),
    "spark_connector/test_spark_query.py": ("test_a_pattern_as_a_dataframe",),
    "spark_connector/test_spark_streaming.py": ("test_a_stream_is_copied_by_a_query[path]",),
    "spark_connector/test_spark_pipeline.py": ("test_the_first_bad_row_ends_a_strict_run",),
    "spark_connector/test_spark_served.py": ("test_spark_reads_writes_and_asks_through_a_server",),
    # a browser
    "server/test_console_browser.py": (
        "test_a_journey",
        "test_errors_stand_at_their_place",
        "test_hostile_text_stays_text",
        "test_a_token_is_offered_what_it_may_do",
        "test_situations_are_drawn",
    ),
    # processes that are killed, forked or interrupted
    "store/test_crash_kill.py": ("test_kill_minus_nine",),
    "store/test_lock.py": ("",),
    "server/test_jobs_resumed.py": ("test_what_a_stopped_server_left_is_done_by_the_next",),
    "server/test_postgres.py": (
        "test_parameters_of_each_type",
        "test_a_portal_gives_its_rows_in_parts",
        "test_psql_describes_streams",
        "test_a_token_is_the_password",
    ),
    "server/test_server_process.py": ("test_a_life",),
    "test_fork.py": (
        "test_whatever_a_child_asks_of_its_parents_store_is_refused",
        "test_a_child_may_write_once_its_parent_has_closed",
        "test_a_child_gives_up_no_lease_of_its_parent",
    ),
    "isolation/test_pool.py": (
        "test_no_orphan_outlives_its_owner[sys.exit(0)]",
        "test_a_worker_reaches_nothing",
        "test_an_interrupt_does_not_reach_the_workers",
    ),
    "query/test_ctrl_c.py": ("test_ctrl_c_ends_a_query_and_nothing_else[a query without an end]",),
    "cli/test_cli_processes.py": (
        "test_a_reader_that_goes_away_is_no_error",
        "test_an_interrupt_says_what_is_stored[batch]",
        "test_the_prompt",
    ),
    # processes that load the package
    "test_conventions.py": ("test_import_is_light",),
    "test_wheel.py": ("",),
    "test_first_steps.py": ("",),
    "cli/test_mcp.py": ("test_the_command_speaks_over_standard_input",),
    # a server that strangers attack
    "fuzz/test_attack_corpus.py": (
        "test_requests",
        "test_queries_in_json",
        "test_headers",
        "test_a_name_out_of_reach_is_told_by_no_answer",
        "test_a_position_of_another_is_not_dropped",
        "test_log_lines_cannot_be_forged",
        "test_readiness_tells_a_stranger_nothing_else",
    ),
    # a server on a socket
    "client/test_connect.py": (
        "test_sql_and_parameters_of_every_type",
        "test_errors_are_the_same",
        "test_live_queries",
        "test_deletes[remote]",
        "test_a_tail_goes_on_where_it_stopped[remote]",
    ),
    "client/test_async.py": (
        "test_methods_are_awaited_and_give_objects_for_asyncio",
        "test_a_cancelled_task_ends_its_query",
    ),
    "client/test_administration.py": ("test_tokens_are_managed_by_one_of_them",),
    "client/test_clients_docs.py": ("test_the_examples_run",),
    "client/test_dbapi.py": (
        "test_rows_go_in_and_come_out_in_their_types",
        "test_fetching[embedded]",
        "test_every_error_has_a_class[embedded]",
    ),
    "client/test_sqlalchemy.py": ("test_queries", "test_classes_are_mapped[embedded]"),
    "client/test_recipes.py": ("test_grafana", "test_telegraf"),
    "client/test_transport.py": (
        "test_a_busy_server_is_asked_again",
        "test_a_problem_document_becomes_the_error_it_was_made_from",
        "test_an_answer_that_was_cut_is_an_error",
    ),
    "live/test_webhooks.py": ("test_every_row_is_taken_in_order_by_a_receiver_that_fails",),
    # confined workers
    "formats/test_isolated_answers.py": ("",),
    "query/test_isolated_queries.py": (
        "test_answers_are_those_of_this_process",
        "test_errors_are_those_of_this_process",
        "test_a_memory_bomb_costs_its_own_answer",
        "test_a_query_is_cancelled",
    ),
    "query/test_frames.py": ("test_patterns_and_appends_read_frames",),
    "server/test_isolated_bodies.py": (
        "test_rows_and_bad_rows_are_those_of_reading_here",
        "test_errors_are_those_of_reading_here",
    ),
    "server/test_ingest_api.py": ("test_csv_is_looked_at_and_stored", "test_bad_rows"),
    "server/test_exchange_jobs.py": ("test_what_was_exported_is_imported",),
    "server/test_nested_events.py": ("test_values_are_themselves_in_both_directions",),
    "server/test_flight_sql.py": ("test_a_query", "test_metadata", "test_parameters"),
    "server/test_query_log.py": ("test_what_runs_sees_itself",),
    "server/test_event_walk.py": ("",),
}
"""Heavy tests by file: functions, single cases, or all of the file (``""``)."""

CASES: dict[str, dict[str, int]] = {
    "formats/test_isotime.py": {"test_a_value_is_read_whatever_stands_beside_it": 3},
    "formats/test_local_times.py": {"test_every_quarter_of_a_year_around_its_changes": 2},
    "formats/test_nested_json.py": {
        "test_keys_are_counted_before_broken_lines_are_read_one_by_one": 1
    },
    "indexes/test_index_faults.py": {
        "test_an_index_that_cannot_be_created_leaves_nothing_behind": 2,
        "test_damaged_indexes_keep_nothing_from_being_opened": 1,
        "test_whatever_write_of_upkeep_fails_answers_stay_the_same": 1,
    },
    "ingest/test_messy_files.py": {"test_quotes_are_those_of_a_reader_byte_by_byte": 2},
    "isolation/test_batches.py": {"test_what_arrives_is_sound_or_garbage": 2},
    "live/test_bank_late_events.py": {"test_late_events_change_what_was_said": 3},
    "live/test_bank_regions.py": {
        "test_late_events_change_what_they_change": 1,
        "test_patterns_that_come_have_open_what_they_had": 1,
    },
    "live/test_late_windows.py": {"test_late_events_change_what_the_query_says": 4},
    "live/test_live_bank.py": {
        "test_a_crash_at_any_write_of_a_step_of_many": 1,
        "test_what_is_dropped_while_events_come_late_ends_no_group": 1,
    },
    "live/test_live_borders.py": {"test_what_is_said_does_not_depend_on_when": 1},
    "live/test_live_compositions.py": {"test_any_order_of_commits_and_steps": 1},
    "live/test_live_crashes.py": {"test_a_crash_in_a_step": 4},
    "live/test_live_pattern_state.py": {
        "test_a_backlog_is_one_region_and_what_is_said_the_same": 5,
        "test_a_late_event_where_a_column_is_not_read": 5,
        "test_a_state_is_built_again_where_searches_are_known": 2,
        "test_matches_that_do_not_wait_for_each_other": 1,
    },
    "live/test_live_recent.py": {"test_steps_in_order_go_on_from_what_is_kept": 1},
    "live/test_live_sums.py": {"test_sums_beyond_64_bits_are_those_of_the_select": 1},
    "live/test_live_views.py": {
        "test_views_that_cannot_be_followed": 9,
        "test_what_holds_is_what_the_query_over_the_view_gives": 1,
    },
    "live/test_pattern_bank.py": {"test_a_bank_finds_what_each_pattern_finds_alone": 1},
    "live/test_predicate_index.py": {"test_the_index_finds_what_asking_everything_finds": 15},
    "live/test_recency_tables.py": {"test_table_5": 2},
    "live/test_situation_crashes.py": {"test_a_crash_in_a_step": 1},
    "query/pattern/test_match_advancing.py": {"test_small_steps_cost_what_the_events_cost": 3},
    "query/pattern/test_match_any.py": {
        "test_statements_give_the_same_with_a_diagram_as_with_the_search": 10
    },
    "query/pattern/test_match_functions.py": {"test_functions_of_two_events_are_those_of_sql": 20},
    "query/recent/test_match_modes.py": {"test_modes_against_the_oracle": 20},
    "query/recent/test_recent_plans.py": {
        "test_orders_and_duckdb_agree": 1,
        "test_parts_give_each_row_once": 4,
    },
    "query/replay/test_coded_spans.py": {
        "test_rows_are_those_of_a_replay": 1,
        "test_the_column_of_the_key_is_hardly_read": 1,
    },
    "query/replay/test_derived_indexes.py": {"test_rows_are_those_of_a_replay": 1},
    "query/replay/test_identities_replayed.py": {"test_identities_are_those_of_a_full_replay": 6},
    "query/replay/test_looking_back.py": {"test_rows_are_those_of_a_replay_however_far_is_seen": 1},
    "query/replay/test_replay_intervals.py": {"test_every_plan_gives_the_rows_of_a_full_replay": 2},
    "query/replay/test_subquery_intervals.py": {
        "test_a_subquery_over_a_stream_gives_the_rows_of_its_full_replay": 3
    },
    "query/replay/test_timeline.py": {"test_places_are_those_of_a_sorted_array": 3},
    "query/situations/test_situations_replay.py": {
        "test_a_run_cut_by_its_interval_is_not_believed": 4,
        "test_every_plan_gives_the_rows_of_a_full_replay": 1,
    },
    "query/situations/test_situations_tree.py": {"test_the_rows_are_those_of_a_scan": 1},
    "query/split/test_split_matches.py": {"test_parts_have_every_match_once": 1},
    "query/test_isolated_queries.py": {"test_a_worker_that_was_taken_over_costs_one_query": 8},
    "query/test_match_encoded.py": {"test_encoded_strings_match_as_plain_ones": 10},
    "query/test_plan_limits.py": {
        "test_four_times_the_words_take_about_four_times_as_long": 3,
        "test_what_is_too_much_is_refused_soon": 3,
    },
    "query/test_predicate_differential.py": {
        "test_conditions_of_patterns_hold_where_duckdb_finds_them_true": 3,
        "test_filters_with_and_without_indexes_keep_the_events_that_duckdb_keeps": 4,
        "test_what_is_pushed_down_follows_from_the_condition": 5,
        "test_windows_and_joins_keep_the_events_that_duckdb_keeps": 2,
    },
    "query/test_retained.py": {"test_patterns": 1, "test_plain_queries": 16},
    "query/test_row_truths.py": {
        "test_a_delete_takes_what_a_select_finds": 6,
        "test_remainders_have_the_sign_that_duckdb_gives_them": 1,
        "test_what_is_decided_is_what_duckdb_finds": 4,
    },
    "query/test_silent_loss.py": {"test_a_text_is_one_time_wherever_it_stands": 2},
    "query/windows/test_calendar.py": {"test_windows_are_those_of_the_clocks": 12},
    "query/windows/test_keyed_sessions.py": {
        "test_sessions_grouped_by_keys_are_those_of_each_key": 6
    },
    "query/windows/test_window_groups.py": {"test_keys_and_ordered_aggregates": 1},
    "query/windows/test_window_operators.py": {"test_random_streams": 3},
    "server/test_broken_stores.py": {"test_a_server_answers_problems_of_its_own": 4},
    "server/test_idempotency.py": {"test_no_fault_appends_twice_or_loses_what_was_answered": 9},
    "server/test_small_appends.py": {"test_the_short_way_reads_what_the_careful_reader_reads": 1},
    "server/test_values.py": {"test_values_pass_every_way": 4},
    "store/test_change_faults.py": {
        "test_disk_that_fails_at_every_operation": 3,
        "test_power_cut_at_every_operation": 5,
    },
    "store/test_check_repair.py": {"test_a_flipped_bit_is_found_wherever_it_is": 1},
    "store/test_cold_segments.py": {"test_a_damaged_stub_is_told": 1},
    "store/test_duplicates.py": {
        "test_random_histories_are_those_of_a_plain_model": 1,
        "test_what_is_sent_again_after_a_power_cut_is_stored_once": 1,
    },
    "store/test_floor.py": {"test_a_size_is_kept_to_a_leaf_at_every_commit": 1},
    "store/test_moving_beside.py": {"test_moves_rest_while_processors_are_wanted": 3},
    "store/test_set_aside.py": {
        "test_it_can_be_dropped_and_made_anew": 10,
        "test_repair_works_on_it": 10,
        "test_the_others_are_served": 12,
    },
    "store/test_stream_machine.py": {"test_a_stream_of_many_segments_is_a_sorted_list": 1},
    "test_alter.py": {"test_power_cut_at_every_operation_of_an_alteration": 4},
    "test_system_faults.py": {
        "test_broken_files_raise_errors_of_ours": 9,
        "test_too_many_open_files": 3,
    },
    "test_views.py": {"test_power_cut_at_every_operation": 3},
}
"""Plain tests with dear cases by file, and how many of the cases the default tier runs."""

//! The list of all behaviours: as a value, as one function, and as one test each.

use super::contract::{Behaviour, ProviderFactory};

// `$d` is a dollar sign for the macro that this macro defines.
macro_rules! list {
    ($d:tt $($module:ident { $($name:ident,)* })*) => {
        /// Every behaviour, by name.
        #[must_use]
        pub fn behaviours<F: ProviderFactory>() -> Vec<Behaviour<F>> {
            vec![$($(Behaviour { name: stringify!($name), check: super::$module::$name::<F> },)*)*]
        }

        /// Makes one `#[test]` of each behaviour; the argument makes a factory.
        ///
        /// ```text
        /// mod my_provider {
        ///     alluvium::provider_conformance!(super::MyFactory::new());
        /// }
        /// ```
        #[macro_export]
        macro_rules! provider_conformance {
            ($d factory:expr) => {
                $($(
                    #[test]
                    fn $name() {
                        $d crate::store::conformance::run_one(stringify!($name), &$d factory);
                    }
                )*)*
            };
        }
    };
}

list! { $
    basics {
        an_empty_store_is_version_0_and_holds_nothing,
        a_put_is_seen_at_once_by_its_transaction_and_by_others_after_the_commit,
        puts_overwrites_and_removals_make_the_next_version,
        what_was_committed_can_be_scanned_at_once,
        the_number_of_keys_follows_puts_commits_reloads_and_removals,
        a_multi_get_agrees_with_single_gets,
        an_empty_value_is_a_value,
        an_empty_commit_makes_a_version,
    }
    transactions {
        aborting_or_dropping_leaves_files_and_data_as_they_were,
        aborted_keys_are_absent_after_upkeep_and_a_reopening,
        a_second_transaction_waits_and_then_is_told_busy,
        a_thread_that_panics_gives_the_slot_back,
        after_a_failed_operation_a_transaction_can_only_be_aborted,
        a_failed_read_leaves_a_view_as_it_was,
        readers_beside_a_writer_neither_see_nor_undo_its_commit,
        handles_can_be_sent_to_other_threads,
        scans_views_and_transactions_outlive_what_made_them,
    }
    scans {
        a_prefix_scan_gives_exactly_the_keys_with_the_prefix,
        a_prefix_scan_shows_own_puts_after_a_reload_and_forgets_them_with_an_abort,
        a_range_scan_includes_its_start_and_excludes_its_end,
        putting_while_scanning_works,
        removing_while_scanning_works,
        every_scan_shows_the_moment_it_was_made,
        a_scan_goes_on_through_commits_upkeep_and_rollbacks,
        scans_ascend_by_the_bytes_of_the_keys,
    }
    ranges {
        a_deleted_range_includes_its_start_and_excludes_its_end,
        puts_after_a_range_was_deleted_stay,
        a_deleted_range_ends_at_the_border_of_its_family,
        a_deleted_range_stays_deleted,
        many_ranges_in_one_transaction_agree_with_single_removals,
    }
    families {
        families_keep_the_same_key_apart,
        families_persist_with_the_commit_that_made_them,
        a_family_is_unknown_where_it_was_not_committed,
        an_unknown_family_is_a_wrong_call_for_every_operation,
        bad_family_names_are_refused,
        the_number_of_families_is_limited,
    }
    versions {
        a_version_that_is_not_there_is_refused_with_what_can_be_read,
        a_new_provider_builds_on_what_it_finds_and_old_versions_stay,
        an_older_version_loads_again_after_newer_commits,
        going_back_hides_what_was_above,
        a_commit_on_an_older_version_supersedes_what_is_above,
        a_commit_on_version_0_starts_afresh,
        a_version_written_again_is_never_taken_for_the_old_one,
        another_instance_loads_any_version_also_those_written_again,
        loading_one_version_again_and_again_with_snapshots_in_between_keeps_it_whole,
        each_version_gives_back_its_own_metadata,
        a_view_stays_as_it_is,
        a_checkpoint_that_was_moved_opens_at_its_new_place,
    }
    publishing {
        a_commit_that_cannot_be_written_or_named_never_happened,
        a_commit_whose_answer_is_lost_is_indeterminate_and_can_be_repeated,
        an_indeterminate_commit_is_found_whole_or_not_at_all,
        a_failed_commit_leaves_other_stores_alone,
        an_open_that_cannot_claim_the_store_can_be_repeated,
        a_begin_that_cannot_claim_the_store_can_be_repeated,
    }
    writers {
        a_commit_acknowledged_before_a_takeover_is_built_upon,
        of_two_commits_the_one_of_the_newer_instance_counts_also_where_it_comes_last,
        of_two_commits_the_one_of_the_newer_instance_counts_also_where_it_comes_first,
        a_newer_instance_may_write_versions_again_and_the_older_one_harms_none,
        a_new_instance_takes_over_from_one_that_hangs,
        a_transaction_that_was_taken_over_still_reads_its_own_version,
        opening_fences_whoever_was_there,
        upkeep_of_a_fenced_instance_harms_nothing,
        no_acknowledged_commit_is_lost_when_many_open_at_once,
    }
    upkeep {
        a_snapshot_changes_no_version,
        a_snapshot_that_fails_leaves_its_store_and_all_others_as_they_were,
        a_provider_may_be_dropped_before_or_after_upkeep,
        upkeep_runs_beside_commits_and_reads,
        after_a_restart_a_commit_writes_one_delta_of_its_own_size,
        many_small_commits_with_upkeep_stay_readable_version_by_version,
    }
    limits {
        keys_and_values_of_every_size_come_back,
        what_is_over_a_limit_is_refused_before_anything_is_written,
        the_longest_value_is_stored_or_refused_for_lack_of_memory,
        a_key_written_many_times_appears_once,
    }
    damage {
        a_damaged_page_is_told_and_never_skipped,
        a_missing_or_cut_run_is_told_by_name,
    }
    histories {
        random_histories_agree_with_a_map_per_version,
    }
}

/// Checks every behaviour, one after the other.
pub fn run<F: ProviderFactory>(factory: &F) {
    behaviours().iter().for_each(|behaviour| (behaviour.check)(factory));
}

/// Checks the behaviour called `name`.
pub fn run_one<F: ProviderFactory>(name: &str, factory: &F) {
    let found = behaviours().into_iter().find(|behaviour| behaviour.name == name);
    (found.expect("a behaviour of that name").check)(factory);
}

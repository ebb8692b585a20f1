//! The promises of [`Store`](hicache_core::Store) and [`StorageBackend`](hicache_core::StorageBackend), as checks
//! that run over every store. A check that fails panics with the number of the promise.

pub mod batches;
pub mod closing;
pub mod deadlines;
pub mod misses;
pub mod namespaces;
pub mod ownership;
pub mod prefixes;
pub mod races;
pub mod reopening;
pub mod round_trips;
pub mod scans;
pub mod shapes;

use crate::Subject;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// One promise put to the test.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// The function's name, with its module's.
    pub name: &'static str,
    /// Panics if the promise is broken.
    pub run: fn(&Subject),
}

macro_rules! checks {
    ($($module:ident::$check:ident,)*) => {
        /// Every check there is.
        pub const CHECKS: &[Check] = &[
            $(Check { name: concat!(stringify!($module), "::", stringify!($check)), run: $module::$check },)*
        ];
    };
}

checks! {
    batches::each_item_has_its_outcome_in_its_place,
    batches::an_empty_batch_has_an_empty_answer,
    batches::a_batch_may_name_a_key_twice,
    batches::a_page_with_or_without_a_parent_is_stored,
    batches::what_is_done_is_counted,
    misses::an_absent_page_is_a_miss,
    misses::a_page_of_a_miss_is_back_before_the_answer,
    misses::a_leading_run_ends_before_its_first_miss,
    misses::a_removed_page_is_a_miss_and_can_be_set_again,
    misses::a_set_of_a_page_that_is_there_writes_nothing,
    round_trips::pages_of_every_layout_come_back_whole,
    round_trips::pages_move_between_pools_of_any_alignment,
    round_trips::pages_of_memory_that_others_may_write_come_back_whole,
    round_trips::a_chosen_slot_is_read_into_and_can_be_chosen_again,
    shapes::a_page_of_another_shape_is_refused_before_any_io,
    shapes::an_item_of_another_shape_fails_alone,
    namespaces::one_key_in_two_namespaces_is_two_pages,
    namespaces::a_namespace_is_listed_from_its_first_put,
    namespaces::names_of_any_kind_are_kept_apart,
    namespaces::clear_takes_its_own_namespace_and_nothing_else,
    namespaces::a_cleared_namespace_can_be_used_again,
    namespaces::another_layout_is_incompatible,
    namespaces::two_layouts_before_the_first_put_do_not_mix,
    scans::a_scan_finds_every_page_once,
    scans::a_scan_of_one_namespace_finds_no_other,
    scans::a_scan_of_nothing_finds_nothing,
    scans::a_scan_ends_where_its_visitor_breaks,
    ownership::a_dropped_set_goes_on_and_gives_its_pages_back,
    ownership::a_dropped_get_gives_its_pages_back,
    ownership::work_starts_at_the_call,
    ownership::a_page_being_set_stays_readable,
    deadlines::a_deadline_of_nothing_is_a_timeout_or_an_outcome,
    deadlines::a_deadline_of_for_ever_is_no_deadline,
    deadlines::background_calls_are_answered_too,
    races::two_writers_of_the_same_pages_are_both_right,
    races::a_get_beside_a_remove_is_whole_or_a_miss,
    races::two_stores_on_one_medium_see_the_same_pages,
    prefixes::a_run_ends_before_its_first_miss,
    prefixes::a_run_may_be_longer_than_the_pool,
    prefixes::a_dry_pool_ends_the_run_as_exhausted,
    prefixes::what_was_read_ahead_of_a_miss_is_back_when_the_run_ends,
    prefixes::a_run_left_halfway_gives_its_pages_back,
    closing::a_closed_store_refuses_everything,
    closing::what_was_accepted_before_a_close_is_answered,
    closing::a_store_may_be_closed_twice,
    reopening::a_closed_store_is_whole_when_opened_again,
    reopening::a_dropped_store_is_whole_when_opened_again,
    reopening::a_removed_page_stays_removed,
}

/// Runs every check, also after one has failed.
///
/// # Panics
///
/// If a check fails, with the names of all that did. What each of them has to say is printed as it happens.
pub fn all(subject: &Subject) {
    let fails = |check: &&Check| catch_unwind(AssertUnwindSafe(|| (check.run)(subject))).is_err();
    let failed: Vec<&str> = CHECKS.iter().filter(fails).map(|check| check.name).collect();
    let (name, count) = (subject.name(), CHECKS.len());
    assert!(failed.is_empty(), "{name}: {} of {count} checks failed: {}", failed.len(), failed.join(", "));
}

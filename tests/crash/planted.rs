//! Bugs put in on purpose: a harness that never turns red proves nothing. (The fourth, skipped page checksums, is in `damage`.)

use alluvium::StoreOptions;
use alluvium::store::Planted;

use super::disk::Lie;
use super::harness::{Base, Plan, explore, histories};

/// The same small plan without a bug is green; it is part of the exhaustive one, but that may be cut down one day.
fn plan() -> Plan {
    Plan { histories: histories(&[Base::Two], 1), ..Plan::default() }
}

#[track_caller]
fn violation_of(plan: &Plan) -> String {
    let report = explore(plan);
    let violation = report.violation.as_ref();
    violation.unwrap_or_else(|| panic!("the planted bug was not found: {report}")).clone()
}

#[test]
fn without_a_planted_bug_nothing_is_found() {
    let report = explore(&plan());
    assert_eq!(report.violation, None);
    assert!(report.states > 0);
}

#[test]
fn a_skipped_directory_sync_loses_an_acknowledged_commit() {
    let found = violation_of(&Plan { lie: Lie::DirectorySync, ..plan() });
    assert!(found.contains("none of what is allowed") || found.contains("is missing"), "{found}");
}

#[test]
fn an_acknowledgement_before_the_sync_leaves_half_a_file_under_its_name() {
    let found = violation_of(&Plan { lie: Lie::FileSync, ..plan() });
    assert!(found.contains("the file is damaged") || found.contains("none of what is allowed"), "{found}");
}

#[test]
fn applying_before_publishing_shows_what_was_never_committed() {
    let options = StoreOptions::default().planted(Planted::ApplyBeforePublish);
    let found = violation_of(&Plan { options, ..plan() });
    assert!(found.contains("a transaction on") || found.contains("get gives"), "{found}");
}

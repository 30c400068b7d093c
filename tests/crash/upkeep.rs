//! Crashes inside collapses, snapshots, retirements and repairs, of the store's own and of an outsider; then a clean-up.

use alluvium::StoreOptions;
use alluvium::store::Planted;

use super::disk::Lie;
use super::harness::{Base, Plan, explore, histories_of};
use super::model::Op;

const LONGEST: usize = if cfg!(debug_assertions) { 1 } else { 2 };
const UPKEEP: [Op; 7] = [Op::Commit, Op::Older, Op::Snapshot, Op::Collapse, Op::Retire, Op::Outsider, Op::Repair];

#[test]
fn every_crash_inside_upkeep_leaves_every_retained_version_and_a_clean_up_leaves_nothing_else() {
    let histories = histories_of(&UPKEEP, &[Base::Two, Base::Snapshotted, Base::Damaged], LONGEST);
    let plan = Plan { histories, cleans_up: true, ..Plan::default() };
    let report = explore(&plan);
    println!("{report}");
    if let Some(violation) = &report.violation {
        panic!("{violation}");
    }
    assert_eq!(report.histories, plan.histories.len());
    assert!(report.states > if cfg!(debug_assertions) { 500 } else { 5_000 } && report.second_states > 0, "{report}");
}

#[track_caller]
fn violation_of(plan: &Plan) -> String {
    let report = explore(plan);
    let violation = report.violation.as_ref();
    violation.unwrap_or_else(|| panic!("the planted bug was not found: {report}")).clone()
}

#[test]
fn retiring_for_the_sake_of_a_run_that_nobody_looked_at_loses_versions() {
    let options = StoreOptions::default().planted(Planted::RetireUnseen);
    let histories = histories_of(&[Op::Retire], &[Base::Damaged], 1);
    let found = violation_of(&Plan { histories, options, ..Plan::default() });
    assert!(found.contains("cannot be made") || found.contains("damaged"), "{found}");
}

#[test]
fn deleting_what_a_snapshot_replaces_before_its_name_is_durable_loses_versions() {
    let histories = histories_of(&[Op::Outsider], &[Base::Two], 1);
    let found = violation_of(&Plan { histories, lie: Lie::DirectorySync, ..Plan::default() });
    assert!(found.contains("none of what is allowed") || found.contains("issing"), "{found}");
}

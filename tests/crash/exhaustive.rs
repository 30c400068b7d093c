//! All short histories, without a bug.

use super::harness::{Base, Plan, explore, histories};

/// Without optimization the longest histories take too long.
const LONGEST: usize = if cfg!(debug_assertions) { 1 } else { 3 };

#[test]
fn every_crash_of_every_short_history_leaves_a_state_that_the_contract_allows() {
    let plan = Plan { histories: histories(&Base::ALL, LONGEST), ..Plan::default() };
    let report = explore(&plan);
    println!("{report}");
    if let Some(violation) = report.violation {
        panic!("{violation}");
    }
    assert_eq!(report.histories, plan.histories.len());
    let least = if cfg!(debug_assertions) { 1_000 } else { 100_000 };
    assert!(report.states >= least && report.second_states > 0, "{}", report.states);
}

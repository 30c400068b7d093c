//! All short histories, without a bug.

use alluvium::{Access, PageCodec, Residency, StoreOptions};

use super::harness::{Base, Plan, explore, histories};

/// Without optimization longer histories take too long.
const LONGEST: usize = if cfg!(debug_assertions) { 1 } else { 3 };

#[test]
fn every_crash_of_every_short_history_leaves_a_state_that_the_contract_allows() {
    // What an empty disk adds is in the first steps; after them it is like the others.
    let from_nothing = histories(&[Base::Empty], LONGEST.min(2));
    let histories = [from_nothing, histories(&[Base::Two, Base::Snapshotted], LONGEST)].concat();
    let plan = Plan { histories, ..Plan::default() };
    let report = explore(&plan);
    println!("{report}");
    if let Some(violation) = &report.violation {
        panic!("{violation}");
    }
    assert_eq!(report.histories, plan.histories.len());
    let least = if cfg!(debug_assertions) { 1_000 } else { 100_000 };
    assert!(report.states >= least && report.second_states > 0 && report.crashes > report.states, "{report}");
}

#[test]
fn the_contract_holds_however_the_store_is_held_and_read() {
    let default = StoreOptions::default;
    for options in [
        default().residency(Residency::Resident),
        default().access(Access::Positioned).compression(PageCodec::Lz4),
        default().longest_tail(1).unwrap(),
        // Deltas join the base, and the base is merged, whenever two come together.
        default().longest_tail(1).unwrap().collapse_from(1),
    ] {
        let report =
            explore(&Plan { histories: histories(&[Base::Snapshotted], LONGEST.min(2)), options, ..Plan::default() });
        println!("{report}");
        assert_eq!(report.violation, None);
        assert!(report.states > 100);
    }
}

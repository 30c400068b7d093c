//! Several writers of one store: one counts, the others learn it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Barrier, Mutex};
use std::thread;

use super::contract::ProviderFactory;
use super::fixture::{
    DEFAULT, Fixture, all, assert_fenced, at, begin, commit_on, commit_put, content, id_of, kind_of, put, value,
};
use crate::error::{ErrorKind, Result};
use crate::store::contract::{ReadStore, StateStoreProvider, WriteStore};
use crate::version::Version;

/// How the second instance of a store is opened: over the same local state, or on another machine.
type Open<'f, F> = fn(&Fixture<'f, F>) -> <F as ProviderFactory>::Provider;

fn both<'f, F: ProviderFactory>() -> [Open<'f, F>; 2] {
    [Fixture::open, Fixture::open_elsewhere]
}

/// What a fenced provider may still do (read), and what it never does again (write), however often it is asked.
fn assert_stays_fenced<P: StateStoreProvider>(loser: &P, readable: u64) {
    for _ in 0..3 {
        assert_fenced(loser.begin(Version(readable)));
        assert_fenced(loser.begin(Version(0)));
        assert!(!at(loser, readable).is_empty(), "a fenced provider reads on");
    }
}

/// The files of the winner are as they were; others may have come.
fn assert_kept<F: ProviderFactory>(fixture: &Fixture<'_, F>, runs: &BTreeMap<PathBuf, Vec<u8>>) {
    let now = fixture.runs();
    for (path, bytes) in runs {
        assert_eq!(now.get(path), Some(bytes), "{}", path.display());
    }
}

/// Behaviour 87, the first of four: the first instance commits before the second opens.
pub(super) fn a_commit_acknowledged_before_a_takeover_is_built_upon<F: ProviderFactory>(factory: &F) {
    for open in both() {
        let fixture = Fixture::new(factory);
        let first = fixture.open();
        commit_put(&first, 0, b"first", b"1");
        let second = open(&fixture);
        assert_eq!(second.latest().expect("the newest version"), Version(1));
        assert_eq!(commit_put(&second, 1, b"second", b"2"), Version(2));
        let runs = fixture.runs();
        let mut late = begin(&first, 1);
        put(&mut late, b"late", b"1");
        assert_fenced(late.commit());
        assert_stays_fenced(&first, 1);
        assert_kept(&fixture, &runs);
        assert_eq!(at(&second, 2), content([("first", "1"), ("second", "2")]));
    }
}

/// Behaviour 87, the second, and Z1: both are open, the loser commits first.
pub(super) fn of_two_commits_the_one_of_the_newer_instance_counts_also_where_it_comes_last<F: ProviderFactory>(
    factory: &F,
) {
    for open in both() {
        let fixture = Fixture::new(factory);
        let first = fixture.open();
        commit_put(&first, 0, b"base", b"1");
        let mut late = begin(&first, 1);
        put(&mut late, b"k", b"first");
        put(&mut late, b"only of the first", b"1");
        let second = open(&fixture);
        let mut winning = begin(&second, 1);
        put(&mut winning, b"k", b"second");
        assert_fenced(late.commit_with(b"first"));
        assert_eq!(winning.commit_with(b"second").expect("the commit succeeds"), Version(2));
        assert_stays_fenced(&first, 1);
        check_second_won(&fixture, second);
    }
}

/// Behaviour 87, the third, and Z1: both are open, the winner commits first.
pub(super) fn of_two_commits_the_one_of_the_newer_instance_counts_also_where_it_comes_first<F: ProviderFactory>(
    factory: &F,
) {
    for open in both() {
        let fixture = Fixture::new(factory);
        let first = fixture.open();
        commit_put(&first, 0, b"base", b"1");
        let mut late = begin(&first, 1);
        put(&mut late, b"k", b"first");
        put(&mut late, b"only of the first", b"1");
        let second = open(&fixture);
        let mut winning = begin(&second, 1);
        put(&mut winning, b"k", b"second");
        assert_eq!(winning.commit_with(b"second").expect("the commit succeeds"), Version(2));
        let runs = fixture.runs();
        assert_fenced(late.commit_with(b"first"));
        assert_stays_fenced(&first, 1);
        assert_kept(&fixture, &runs);
        check_second_won(&fixture, second);
    }
}

fn check_second_won<F: ProviderFactory>(fixture: &Fixture<'_, F>, second: F::Provider) {
    let expected = content([("base", "1"), ("k", "second")]);
    assert_eq!(at(&second, 2), expected);
    assert_eq!(commit_put(&second, 2, b"next", b"1"), Version(3), "the winner goes on");
    assert_eq!(second.versions().expect("the versions").len(), 3);
    drop(second);
    for open in both() {
        let third = open(fixture);
        assert_eq!(at(&third, 2), expected);
        assert_eq!(third.metadata(Version(2)).expect("its metadata"), b"second");
        assert_eq!(all(&begin(&third, 3)).len(), 3, "no later version mixes");
    }
}

/// Behaviour 87, the fourth: the newer instance goes back and writes the same versions again.
pub(super) fn a_newer_instance_may_write_versions_again_and_the_older_one_harms_none<F: ProviderFactory>(factory: &F) {
    for open in both() {
        let fixture = Fixture::new(factory);
        let first = fixture.open();
        (0..4).for_each(|version| _ = commit_put(&first, version, &version.to_be_bytes(), b"first"));
        let mut late = begin(&first, 4);
        put(&mut late, b"late", b"first");
        let second = open(&fixture);
        for version in 2..5 {
            assert_eq!(commit_put(&second, version, &version.to_be_bytes(), b"second"), Version(version + 1));
            second.snapshot().expect("the snapshot succeeds");
        }
        let runs = fixture.runs();
        assert_fenced(late.commit());
        assert_stays_fenced(&first, 1);
        assert_kept(&fixture, &runs);
        drop(second);
        let third = open(&fixture);
        let by = |version: u64| if version < 2 { "first" } else { "second" };
        let expected = content((0u64..5).map(|version| (version.to_be_bytes(), by(version))));
        assert_eq!(at(&third, 5), expected);
        assert_eq!(all(&begin(&third, 5)), expected);
    }
}

/// Z3: the holder of the slot hangs; a new attempt does not wait for it. The error names who took over.
pub(super) fn a_new_instance_takes_over_from_one_that_hangs<F: ProviderFactory>(factory: &F) {
    for open in both() {
        let fixture = Fixture::new(factory);
        let hanging = fixture.open();
        commit_put(&hanging, 0, b"base", b"1");
        let mut stuck = begin(&hanging, 1);
        put(&mut stuck, b"stuck", b"1");
        let second = open(&fixture);
        commit_put(&second, 1, b"k", b"1");
        let epoch = |provider: &F::Provider| provider.versions().expect("the versions").last().map(|info| info.epoch);
        let taken_by = epoch(&second).expect("there are versions");
        assert_eq!(kind_of(stuck.commit()), ErrorKind::Fenced { by: taken_by });
        assert_eq!(kind_of(hanging.begin(Version(1))), ErrorKind::Fenced { by: taken_by });
        let third = open(&fixture);
        commit_put(&third, 2, b"k", b"2");
        assert_fenced(second.begin(Version(0)));
        assert_stays_fenced(&hanging, 1);
        assert_stays_fenced(&second, 1);
        assert_eq!(at(&third, 3), content([("base", "1"), ("k", "2")]));
    }
}

/// Whoever hangs reads what it began on, whatever its successor writes over the same local state.
pub(super) fn a_transaction_that_was_taken_over_still_reads_its_own_version<F: ProviderFactory>(factory: &F) {
    for open in both() {
        for snapshot in [false, true] {
            let fixture = Fixture::new(factory);
            let first = fixture.open();
            commit_on(&first, 0, |transaction| (0u8..50).for_each(|key| put(transaction, &[key], b"1")));
            (0..2).for_each(|turn| factory.maintain(&first, turn).expect("the upkeep succeeds"));
            let stuck = begin(&first, 1);
            let second = open(&fixture);
            for version in 1..6 {
                let base = if version == 4 { 1 } else { second.latest().expect("the newest version").0 };
                commit_on(&second, base, |transaction| (0u8..60).for_each(|key| put(transaction, &[key], b"2")));
                (0..4).for_each(|turn| factory.maintain(&second, turn).expect("the upkeep succeeds"));
                if snapshot {
                    second.snapshot().expect("the snapshot succeeds");
                }
                assert_eq!(value(&stuck, &[7]), Some(b"1".to_vec()), "after version {version}");
                assert_eq!(value(&stuck, &[55]), None, "after version {version}");
                assert_eq!(all(&stuck), content((0u8..50).map(|key| ([key], b"1"))), "after version {version}");
            }
            assert_fenced(stuck.commit());
        }
    }
}

/// Opening alone takes the store, even where the newcomer never writes: it could.
pub(super) fn opening_fences_whoever_was_there<F: ProviderFactory>(factory: &F) {
    for open in both() {
        let fixture = Fixture::new(factory);
        let first = fixture.open();
        commit_put(&first, 0, b"k", b"1");
        let second = open(&fixture);
        let mut late = begin(&first, 1);
        put(&mut late, b"k", b"2");
        assert_fenced(late.commit());
        assert_stays_fenced(&first, 1);
        // Behaviour 14 of the field's "late changelog": what the loser left above is nobody's.
        assert_eq!(second.latest().expect("the newest version"), Version(1));
        assert_eq!(commit_put(&second, 1, b"k", b"3"), Version(2));
        assert_eq!(at(&second, 2), content([("k", "3")]));
    }
}

/// A fenced provider can do no harm by its upkeep either.
pub(super) fn upkeep_of_a_fenced_instance_harms_nothing<F: ProviderFactory>(factory: &F) {
    for open in both() {
        let fixture = Fixture::new(factory);
        let first = fixture.open();
        (0..3).for_each(|version| _ = commit_put(&first, version, &version.to_be_bytes(), b"first"));
        let second = open(&fixture);
        for version in 1..5 {
            commit_put(&second, version, &version.to_be_bytes(), b"second");
            // It may succeed or fail; what it makes must never be mistaken for the winner's.
            drop((first.snapshot(), factory.maintain(&first, version)));
        }
        drop((first, second));
        for open in both() {
            let third = open(&fixture);
            let by = |version: u64| if version < 1 { "first" } else { "second" };
            let expected = |newest: u64| content((0..newest).map(|version| (version.to_be_bytes(), by(version))));
            (1..=5).for_each(|version| assert_eq!(at(&third, version), expected(version), "version {version}"));
            assert_eq!(all(&begin(&third, 5)), expected(5));
        }
    }
}

/// No acknowledged commit is ever lost to somebody who opens at the newest version, however many do so at once.
pub(super) fn no_acknowledged_commit_is_lost_when_many_open_at_once<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let elsewhere = factory.elsewhere();
    let start = Barrier::new(4);
    let acknowledged = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for number in 0..4u64 {
            let (fixture, elsewhere, start, acknowledged) = (&fixture, &elsewhere, &start, &acknowledged);
            scope.spawn(move || {
                let opener = if number % 2 == 0 { factory } else { elsewhere };
                start.wait();
                for round in 0..20u64 {
                    let key = (number, round);
                    if let Ok(version) = attempt(opener, fixture, key) {
                        acknowledged.lock().expect("no thread panics").push((version, key));
                    }
                }
            });
        }
    });
    let acknowledged = acknowledged.into_inner().expect("no thread panics");
    let last = fixture.open();
    let newest = at(&last, last.latest().expect("the newest version").0);
    assert!(!acknowledged.is_empty());
    for (version, (number, round)) in acknowledged {
        let found = newest.get([number.to_be_bytes(), round.to_be_bytes()].as_flattened());
        assert_eq!(found, Some(&version.0.to_be_bytes().to_vec()), "thread {number} round {round}");
    }
}

/// Opens, commits one key on what is newest then, and says the version; fails where somebody else took over meanwhile.
fn attempt<F: ProviderFactory>(opener: &F, fixture: &Fixture<'_, F>, key: (u64, u64)) -> Result<Version> {
    let provider = opener.open(fixture.checkpoint(), id_of(0))?;
    let mut transaction = provider.begin(provider.latest()?)?;
    let next = transaction.version().next();
    let key = [key.0.to_be_bytes(), key.1.to_be_bytes()];
    transaction.put(DEFAULT, key.as_flattened(), &next.0.to_be_bytes())?;
    transaction.commit()
}

//! Snapshots, what else keeps a store in shape, and restarts.

use std::sync::Arc;
use std::thread;

use super::contract::ProviderFactory;
use super::faulty::Fault;
use super::fixture::{DEFAULT, Fixture, all, at, begin, commit_on, commit_put, content, put, remove};
use crate::store::contract::{StateStoreProvider, WriteStore};
use crate::version::Version;

/// A snapshot changes what is on disk and nothing of what is read.
pub(super) fn a_snapshot_changes_no_version<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let provider = fixture.open();
    assert_eq!(provider.snapshot().expect("the snapshot succeeds"), Version(0), "of nothing");
    assert!(fixture.runs().is_empty());
    for version in 0u64..6 {
        commit_on(&provider, version, |transaction| {
            (0u64..20).for_each(|key| put(transaction, &(version * 10 + key).to_be_bytes(), &version.to_be_bytes()));
            remove(transaction, &(version * 10).to_be_bytes());
        });
    }
    let before: Vec<_> = (1..=6).map(|version| at(&provider, version)).collect();
    let check = |provider: &F::Provider| {
        for (version, content) in (1..).zip(&before) {
            assert_eq!(at(provider, version), *content, "version {version}");
        }
        assert_eq!(all(&begin(provider, 6)), *before.last().expect("there are versions"));
    };
    for _ in 0..3 {
        assert_eq!(provider.snapshot().expect("the snapshot succeeds"), Version(6));
        check(&provider);
        (0..4).for_each(|turn| factory.maintain(&provider, turn).expect("the upkeep succeeds"));
        check(&provider);
    }
    assert_eq!(provider.versions().expect("the versions").len(), 6);
    drop(provider);
    check(&fixture.open());
    check(&fixture.open_elsewhere());
}

/// Behaviour 22: whose snapshot fails is not harmed, and neither are the others; later it succeeds.
pub(super) fn a_snapshot_that_fails_leaves_its_store_and_all_others_as_they_were<F: ProviderFactory>(factory: &F) {
    for fault in [Fault::Create, Fault::Append, Fault::Refused, Fault::LostBefore, Fault::LostAfter] {
        let fixture = Fixture::new(factory);
        let stores = [0, 1, 2].map(|partition| fixture.open_partition(partition));
        for provider in &stores {
            (0..3).for_each(|version| _ = commit_put(provider, version, &version.to_be_bytes(), b"1"));
        }
        let [first, second, third] = &stores;
        let mut open = begin(first, 3);
        put(&mut open, &3u64.to_be_bytes(), b"1");
        for (broken, what) in [(first, "conformance/0"), (second, "conformance/1")] {
            fixture.faults.arm(fault, what);
            broken.snapshot().expect_err("the snapshot could not be written");
            assert_eq!(fixture.faults.fired() % 2, usize::from(what.ends_with('0')), "the fault was met");
        }
        assert_eq!(third.snapshot().expect("the snapshot succeeds"), Version(3));
        assert_eq!(open.commit().expect("the commit succeeds"), Version(4), "{fault:?}");
        assert_eq!(commit_put(second, 3, &3u64.to_be_bytes(), b"1"), Version(4), "{fault:?}");
        assert_eq!(commit_put(third, 3, &3u64.to_be_bytes(), b"1"), Version(4), "{fault:?}");
        let expected = content((0u64..4).map(|key| (key.to_be_bytes(), b"1")));
        for provider in &stores {
            assert_eq!(all(&begin(provider, 4)), expected, "{fault:?}");
            assert_eq!(provider.snapshot().expect("the snapshot succeeds"), Version(4), "{fault:?}");
            assert_eq!(at(provider, 4), expected, "{fault:?}");
        }
        drop(stores);
        (0..3).for_each(|partition| assert_eq!(at(&fixture.open_partition(partition), 4), expected, "{fault:?}"));
    }
}

/// Behaviour 63.
pub(super) fn a_provider_may_be_dropped_before_or_after_upkeep<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    for round in 0..6 {
        let provider = fixture.open();
        let mut transaction = begin(&provider, round);
        put(&mut transaction, &round.to_be_bytes(), &[1; 1000]);
        transaction.commit().expect("the commit succeeds");
        match round % 3 {
            0 => {}
            1 => drop(provider.snapshot().expect("the snapshot succeeds")),
            _ => {
                factory.maintain(&provider, round).expect("the upkeep succeeds");
                let left_open = begin(&provider, round + 1);
                drop(provider);
                drop(left_open);
            }
        }
    }
    assert_eq!(at(&fixture.open(), 6).len(), 6);
}

/// Behaviours 34, 49 and 65: upkeep needs no turn of the writer, and the writer none of upkeep's.
pub(super) fn upkeep_runs_beside_commits_and_reads<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let provider = Arc::new(fixture.open());
    commit_put(&*provider, 0, &0u64.to_be_bytes(), b"1");
    thread::scope(|scope| {
        let upkeep = || {
            for _ in 0..15 {
                let version = provider.snapshot().expect("the snapshot succeeds");
                provider.read_at(version).expect("the version of the snapshot can be read");
            }
        };
        scope.spawn(upkeep);
        scope.spawn(upkeep);
        for version in 1..60u64 {
            commit_on(&*provider, version, |transaction| {
                put(transaction, &version.to_be_bytes(), b"1");
                assert_eq!(all(transaction).len() as u64, version + 1);
            });
            assert_eq!(at(&*provider, version).len() as u64, version);
        }
    });
    let open = begin(&*provider, 60);
    assert_eq!(provider.snapshot().expect("a snapshot needs no writer slot"), Version(60));
    assert_eq!(all(&open).len(), 60);
    drop((open, provider));
    assert_eq!(at(&fixture.open_afresh(), 60).len(), 60);
}

/// R20, SPARK-48903: after a restart, one more commit writes one small delta, whatever the size of the state.
pub(super) fn after_a_restart_a_commit_writes_one_delta_of_its_own_size<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let provider = fixture.open();
    for version in 0u64..3 {
        commit_on(&provider, version, |transaction| {
            (0u64..500).for_each(|key| put(transaction, &(version * 500 + key).to_be_bytes(), &[7; 500]));
        });
    }
    provider.snapshot().expect("the snapshot succeeds");
    commit_put(&provider, 3, b"k", b"1");
    drop(provider);
    for version in 4..6 {
        let before = fixture.runs();
        let provider = if version == 4 { fixture.open() } else { fixture.open_afresh() };
        assert_eq!(fixture.runs(), before, "opening writes no runs");
        commit_put(&provider, version, b"k", b"2");
        let mut after = fixture.runs();
        after.retain(|path, _| !before.contains_key(path));
        let written: Vec<_> = after.iter().map(|(path, bytes)| (path.extension(), bytes.len())).collect();
        let [(extension, length)] = *written.as_slice() else { panic!("one file is written, not {written:?}") };
        assert_eq!(extension.and_then(|extension| extension.to_str()), Some("delta"));
        assert!(length < 16 << 10, "{length} bytes for one key");
    }
    assert_eq!(at(&fixture.open(), 6).len(), 1501);
}

/// Behaviours 30 and 35: every version stays readable beside whatever upkeep makes, until it is retired on purpose.
pub(super) fn many_small_commits_with_upkeep_stay_readable_version_by_version<F: ProviderFactory>(factory: &F) {
    let fixture = Fixture::new(factory);
    let mut provider = fixture.open();
    for version in 0u64..40 {
        commit_on(&provider, version, |transaction| {
            put(transaction, &(version % 7).to_be_bytes(), &version.to_be_bytes());
            if version % 5 == 4 {
                let first = (version % 3).to_be_bytes();
                transaction
                    .delete_range(DEFAULT, Some(&first), Some(&4u64.to_be_bytes()))
                    .expect("the range is deleted");
            }
        });
        if version % 10 == 9 {
            factory.maintain(&provider, version / 10).expect("the upkeep succeeds");
        }
        if version == 25 {
            drop(provider);
            provider = fixture.open_afresh();
        }
    }
    drop(provider);
    let provider = fixture.open_elsewhere();
    let mut model = content::<&str, &str>([]);
    for version in 0u64..40 {
        model.insert((version % 7).to_be_bytes().to_vec(), version.to_be_bytes().to_vec());
        if version % 5 == 4 {
            let (first, end) = ((version % 3).to_be_bytes().to_vec(), 4u64.to_be_bytes().to_vec());
            model.retain(|key, _| *key < first || *key >= end);
        }
        assert_eq!(at(&provider, version + 1), model, "version {}", version + 1);
    }
}

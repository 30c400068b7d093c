//! Snapshots, merges of the base, retirement and verification, beside commits.

use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::sync::Arc;

use alluvium::backend::{IndexImage, SimIndex};
use alluvium::fs::SimDisk;
use alluvium::prelude::*;
use alluvium::{Backend, FamilyId, LocalCheckpoint, RocksDbProvider, StateStoreId, StoreOptions, Upkeep, Version};

use super::care::comes;

const FAMILY: FamilyId = FamilyId::DEFAULT;

fn open(disk: &SimDisk, backend: &Backend, options: StoreOptions) -> RocksDbProvider {
    let checkpoint = LocalCheckpoint::on(Arc::new(disk.clone()), "/checkpoint").unwrap();
    RocksDbProvider::open(backend, checkpoint, StateStoreId::new("op", 0, "state").unwrap(), options).unwrap()
}

fn commit(provider: &RocksDbProvider, version: u64) {
    let mut batch = provider.begin(Version(version - 1)).unwrap();
    for key in 0..20_u64 {
        let key = (key * version % 97).to_be_bytes();
        batch.put(FAMILY, &key, &version.to_be_bytes()).unwrap();
    }
    batch.remove(FAMILY, &(version % 97).to_be_bytes()).unwrap();
    assert_eq!(batch.commit().unwrap(), Version(version));
}

fn content(store: &impl ReadStore) -> Vec<(Vec<u8>, Vec<u8>)> {
    let entries = store.scan(FAMILY).unwrap().map(Result::unwrap);
    entries.map(|entry| (entry.key.to_vec(), entry.value.to_vec())).collect()
}

fn model(versions: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut map = std::collections::BTreeMap::new();
    for version in 1..=versions {
        for key in 0..20_u64 {
            map.insert((key * version % 97).to_be_bytes().to_vec(), version.to_be_bytes().to_vec());
        }
        map.remove((version % 97).to_be_bytes().as_slice());
    }
    map.into_iter().collect()
}

#[test]
fn deltas_that_join_the_base_and_are_merged_read_like_any_others() {
    let disk = SimDisk::new(1);
    let backend = Backend::in_memory().unwrap();
    let options = StoreOptions::default().upkeep(Upkeep::Manual).longest_tail(2).unwrap().collapse_from(1);
    let provider = open(&disk, &backend, options.clone());
    for version in 1..=60 {
        commit(&provider, version);
        if version % 7 == 0 {
            provider.settle().unwrap();
        }
        if version % 25 == 0 {
            provider.snapshot().unwrap();
        }
        let batch = provider.begin(Version(version)).unwrap();
        assert_eq!(content(&batch), model(version), "version {version}");
        for (key, value) in model(version) {
            assert_eq!(batch.get(FAMILY, &key).unwrap().unwrap(), value.as_slice());
        }
    }
    let collapsed = disk.files().iter().filter(|path| path.to_string_lossy().contains('-')).count();
    assert!(collapsed > 5, "{collapsed} collapsed deltas");
    drop(provider);
    let provider = open(&disk, &Backend::in_memory().unwrap(), options);
    assert_eq!(content(&provider.begin(Version(60)).unwrap()), model(60));
    (1..=60).for_each(|version| assert_eq!(content(&provider.read_at(Version(version)).unwrap()), model(version)));
}

#[test]
fn a_snapshot_taken_while_others_commit_moves_the_base_and_leaves_no_delta_behind() {
    let disk = SimDisk::new(2);
    let backend = Backend::in_memory().unwrap();
    let options = StoreOptions::default().upkeep(Upkeep::Manual).longest_tail(2).unwrap().collapse_from(1);
    let provider = open(&disk, &backend, options);
    (1..=20).for_each(|version| commit(&provider, version));
    std::thread::scope(|scope| {
        let snapshots = scope.spawn(|| (0..20).for_each(|_| _ = provider.snapshot().unwrap()));
        (21..=120).for_each(|version| commit(&provider, version));
        snapshots.join().unwrap();
    });
    provider.settle().unwrap();
    let at = provider.snapshot().unwrap();
    assert_eq!(at, Version(120));
    assert_eq!(content(&provider.begin(at).unwrap()), model(120));
    for version in [1, 20, 63, 119, 120] {
        assert_eq!(content(&provider.read_at(Version(version)).unwrap()), model(version));
    }
}

#[test]
fn retiring_keeps_the_newest_versions_and_whoever_reads_reads_on() {
    let disk = SimDisk::new(3);
    let backend = Backend::in_memory().unwrap();
    let provider = open(&disk, &backend, StoreOptions::default());
    (1..=30).for_each(|version| commit(&provider, version));
    provider.snapshot().unwrap();
    (31..=40).for_each(|version| commit(&provider, version));
    let old = provider.read_at(Version(3)).unwrap();
    let before = disk.files().len();
    let retired = provider.retire(5).unwrap();
    assert_eq!(retired.oldest, Version(36));
    assert!(disk.files().len() < before && !retired.deleted.is_empty());
    assert_eq!(content(&old), model(3), "a view that was open reads on");
    for version in 36..=40 {
        assert_eq!(content(&provider.read_at(Version(version)).unwrap()), model(version));
    }
    assert!(provider.read_at(Version(35)).is_err());
    commit(&provider, 41);
    drop((old, provider));
    let provider = open(&disk, &Backend::in_memory().unwrap(), StoreOptions::default());
    assert_eq!(content(&provider.begin(Version(41)).unwrap()), model(41));
}

#[test]
fn verifying_reads_every_byte_and_names_what_is_damaged() {
    let disk = SimDisk::new(4);
    let provider = open(&disk, &Backend::in_memory().unwrap(), StoreOptions::default());
    (1..=10).for_each(|version| commit(&provider, version));
    provider.snapshot().unwrap();
    let verified = provider.verify(|_| ControlFlow::Continue(())).unwrap();
    assert_eq!((verified.runs, verified.damaged.len()), (11, 0));
    assert!(provider.verify(|_| ControlFlow::Break(())).is_err());
    drop(provider);

    let snapshot = disk.files().into_iter().find(|path| path.extension().is_some_and(|e| e == "snapshot")).unwrap();
    disk.flip_bit(&snapshot, 8 * 5_000).unwrap();
    let provider = open(&disk, &Backend::in_memory().unwrap(), StoreOptions::default());
    let verified = provider.verify(|_| ControlFlow::Continue(())).unwrap();
    let damaged: Vec<_> = verified.damaged.iter().map(|(path, _)| path.clone()).collect();
    assert_eq!(damaged, [snapshot]);
}

#[test]
fn tiny_commits_by_the_thousand_leave_few_deltas_to_open() {
    let disk = SimDisk::new(5);
    let index = SimIndex::from_image(&IndexImage::default());
    let provider = open(&disk, index.backend(), StoreOptions::default());
    for version in 0..3_000_u64 {
        let mut batch = provider.begin(Version(version)).unwrap();
        batch.put(FAMILY, &version.to_be_bytes(), b"tiny").unwrap();
        batch.commit().unwrap();
        if version % 64 == 0 {
            index.run_pending(); // its turn comes when a test says so, not when a thread has time
        }
    }
    drop(provider);
    // With the index lost, every delta above the base waits in the tail.
    let names = disk.files();
    let collapsed =
        names.iter().filter(|path| path.file_stem().is_some_and(|stem| stem.to_string_lossy().contains('-')));
    let reached = collapsed.filter_map(|path| {
        let stem = path.file_stem()?.to_string_lossy().into_owned();
        stem.split_once('-')?.1.split_once('.')?.0.parse::<u64>().ok()
    });
    let reached = reached.max().expect("something was collapsed");
    assert!(3_000 - reached < 300, "collapsed up to {reached} only");
    let provider = open(&disk, &Backend::in_memory().unwrap(), StoreOptions::default());
    assert!(provider.tail_length() < 300, "{} deltas wait", provider.tail_length());
    assert_eq!(content(&provider.begin(Version(3_000)).unwrap()).len(), 3_000);
}

#[test]
fn reads_stay_short_where_folds_and_maintenance_collapse_side_by_side() {
    let disk = SimDisk::new(6);
    let index = SimIndex::from_image(&IndexImage::default());
    let provider = open(&disk, index.backend(), StoreOptions::default().collapse_from(4_000));
    let mut model = std::collections::BTreeMap::new();
    let mut version = 0_u64;
    let mut put = |model: &mut std::collections::BTreeMap<Vec<u8>, Vec<u8>>, keys: u64, bytes: usize| {
        let mut batch = provider.begin(Version(version)).unwrap();
        if version % 7 == 3 {
            let (start, end) = ((version * 3).to_be_bytes(), (version * 3 + 40).to_be_bytes());
            batch.delete_range(FAMILY, Some(&start), Some(&end)).unwrap();
            model.retain(|key, _| key.as_slice() < start.as_slice() || key.as_slice() >= end.as_slice());
        }
        for key in 0..keys {
            let (key, value) =
                ((version * 5 % 3_000 + key).to_be_bytes(), vec![u8::try_from(version % 251).unwrap(); bytes]);
            batch.put(FAMILY, &key, &value).unwrap();
            model.insert(key.to_vec(), value);
        }
        batch.commit().unwrap();
        version += 1;
        version
    };
    // Large enough that no snapshot is due.
    put(&mut model, 20_000, 1_000);
    provider.snapshot().unwrap();
    let mut most = 0;
    for round in 0..600 {
        let (commits, bytes) = if round % 2 == 0 { (1, 10) } else { (3, 3_000) };
        let newest = (0..commits).map(|_| put(&mut model, 1, bytes)).last().unwrap();
        provider.settle().unwrap();
        index.run_pending();
        most = most.max(provider.upkeep().read_sources);
        if round % 50 == 0 {
            let expected: Vec<_> = model.clone().into_iter().collect();
            assert_eq!(content(&provider.begin(Version(newest)).unwrap()), expected, "round {round}");
        }
    }
    assert!(most < 70, "a read touches {most} files and generations");
    drop(provider);
    let provider = open(&disk, &Backend::in_memory().unwrap(), StoreOptions::default());
    let newest = provider.latest().unwrap();
    assert_eq!(content(&provider.begin(newest).unwrap()), model.into_iter().collect::<Vec<_>>());
}

#[test]
fn a_store_that_is_maintained_slowly_does_not_hold_up_what_is_urgent_for_others() {
    let disk = SimDisk::new(7);
    let backend = Backend::in_memory().unwrap();
    let open = |partition, options| {
        let checkpoint = LocalCheckpoint::on(Arc::new(disk.clone()), "/checkpoint").unwrap();
        let id = StateStoreId::new("op", partition, "state").unwrap();
        RocksDbProvider::open(&backend, checkpoint, id, options).unwrap()
    };
    // At a byte a second its first collapse would take hours.
    let slow = open(0, StoreOptions::default().retain_versions(5).unwrap().upkeep_pace(NonZeroU64::MIN));
    (1..=300).for_each(|version| commit(&slow, version));
    assert!(comes(|| disk.files().iter().any(|path| path.to_string_lossy().contains("/.tmp-"))));
    let done = slow.upkeep().tasks_done;
    let other = open(1, StoreOptions::default().collapse_from(1).longest_tail(2).unwrap());
    (1..=300).for_each(|version| commit(&other, version));
    assert!(comes(|| slow.upkeep().tasks_done > done && other.upkeep().tasks_done > 0));
    assert!(comes(|| other.upkeep().read_sources < 32));
    // And no store of its own.
    let slow = open(2, StoreOptions::default().retain_versions(5).unwrap().upkeep_pace(NonZeroU64::MIN));
    (1..=6_000).for_each(|version| commit(&slow, version));
    assert!(comes(|| slow.upkeep().tasks_done > 0));
}
